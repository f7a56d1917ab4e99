/* doctor.c - `heddle doctor`: reads the command line, collects or reads a snapshot, judges it, prints the findings.
 *
 * Threads: the program's first. Locks: none.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "cli/cli.h"
#include "cli/doctor/collect.h"
#include "cli/doctor/report.h"
#include "cli/common/output.h"
#include "cli/process.h"

static int print_help(void)
{
    printf(
        "usage: heddle doctor [--json] [--snapshot FILE] [--from FILE]\n"
        "\n"
        "Finds what is wrong or slow on this machine, and what to do. Each finding has the facts that it comes from,\n"
        "why it matters, and what mends it. It needs no privileges, changes nothing, and makes no context on a "
        "device.\n"
        "Facts come from /proc, /sys, NVML, the driver, and what heddle p2p has verified; each may be missing.\n"
        "\n"
        "options:\n"
        "  --json           print the findings as one JSON object\n"
        "  --snapshot FILE  also write the facts there, for a bug report; no host name, user, path or UUID is in it\n"
        "  --from FILE      judge the facts of such a file, and read nothing of this machine\n"
        "  --help, -h       this text\n"
        "\n"
        "FILE may be -, for the output, which then has no findings, or for the input.\n"
        "Exit status:\n"
        "  0  nothing wrong, or notes only\n"
        "  1  warnings: something is slow or at risk; or a file could not be read or written, with a line on stderr\n"
        "  2  errors: something does not work; or the command line is wrong, with a line on stderr\n"
        "With --json, the member \"status\" is that of the findings, and is there only where they are.\n");
    return cli_finish("doctor", CLI_OK);
}

typedef struct doctor_options {
    bool json, help;
    const char *snapshot, *from; /* NULL: not asked for */
} doctor_options;

enum { JSON = 'j', SNAPSHOT = 's', FROM = 'f' };

static const struct option options_of_doctor[] = {{"json", no_argument, NULL, JSON},
                                                  {"snapshot", required_argument, NULL, SNAPSHOT},
                                                  {"from", required_argument, NULL, FROM},
                                                  CLI_HELP,
                                                  {NULL, 0, NULL, 0}};

static int parse(int argc, char **argv, doctor_options *out)
{
    cli_words words = {
        .command = "doctor", .argc = argc, .argv = argv, .options = options_of_doctor, .letters = CLI_HELP_LETTER};
    int option;
    while ((option = cli_next(&words)) != CLI_END) {
        switch (option) {
        case CLI_WRONG:
            return CLI_USAGE;
        case CLI_WORD:
            return cli_usage("doctor", "unexpected '%s'", words.word);
        case 'h':
            out->help = true;
            return CLI_OK;
        case JSON:
            out->json = true;
            break;
        default:
            *(option == FROM ? &out->from : &out->snapshot) = words.value;
            if (!words.value[0]) {
                return cli_usage("doctor", "--%s wants a file", option == FROM ? "from" : "snapshot");
            }
        }
    }
    if (out->json && out->snapshot && strcmp(out->snapshot, "-") == 0) {
        return cli_usage("doctor", "--json and --snapshot - cannot both go to the output");
    }
    return CLI_OK;
}

/* All of a stream; NULL with errno. */
static char *read_stream(FILE *file, size_t *bytes)
{
    char *text = cli_allocate(DOCTOR_FILE_MAX + 1);
    *bytes = fread(text, 1, DOCTOR_FILE_MAX + 1, file);
    if (ferror(file) || *bytes > DOCTOR_FILE_MAX) {
        errno = ferror(file) ? errno : EFBIG;
        free(text);
        return NULL;
    }
    return text;
}

static bool read_snapshot(const char *path, doctor_snapshot *s)
{
    bool input = strcmp(path, "-") == 0;
    FILE *file = input ? stdin : fopen(path, "re");
    size_t bytes = 0;
    char error[DOCTOR_ERROR_BYTES] = "";
    char *text = file ? read_stream(file, &bytes) : NULL;
    bool good = text && doctor_read(s, text, bytes, error);
    if (!good) {
        char large[64];
        snprintf(large, sizeof(large), "it is larger than %d MiB", DOCTOR_FILE_MAX >> 20);
        fprintf(stderr, "heddle doctor: --from: %s cannot be read: %s; give a file that --snapshot wrote\n",
                input ? "the input" : path,
                error[0]         ? error
                : errno == EFBIG ? large
                                 : strerror(errno));
    }
    if (file && !input) {
        fclose(file);
    }
    free(text);
    return good;
}

static bool write_snapshot(const char *path, const doctor_snapshot *s)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    if (file) {
        doctor_write(s, file);
    }
    bool good = file && fclose(file) == 0 && output_write(path, text, bytes);
    if (!good) {
        fprintf(stderr, "heddle doctor: --snapshot: %s cannot be written: %s; give another file, or - for the output\n",
                path, strerror(errno));
    }
    free(text);
    return good;
}

int cli_doctor(int argc, char **argv)
{
    doctor_options options = {0};
    doctor_snapshot s = {0};
    doctor_findings found;
    int status = parse(argc, argv, &options);
    if (status != CLI_OK || options.help) {
        return options.help ? print_help() : status;
    }
    bool to_output = options.snapshot && strcmp(options.snapshot, "-") == 0;
    if (options.from) {
        if (options.snapshot && !output_spares("doctor", options.snapshot, &options.from, 1)) {
            return CLI_FAILED;
        }
        if (!read_snapshot(options.from, &s)) {
            return CLI_FAILED;
        }
    } else {
        doctor_collect(&s);
    }
    doctor_judge(&s, &found);
    status = doctor_status(&found);
    bool good = true;
    if (to_output) {
        doctor_write(&s, stdout);
    } else {
        good = !options.snapshot || write_snapshot(options.snapshot, &s);
        (options.json ? doctor_print_json : doctor_print_text)(&s, &found, stdout);
    }
    doctor_findings_release(&found);
    doctor_release(&s);
    if (!good && status == 0) {
        status = CLI_FAILED;
    }
    return cli_finish("doctor", status);
}
