/* doctor.c - `heddle doctor`: reads the command line, collects or reads a snapshot, judges the
 * snapshot, and prints the findings.
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
#include "cli/common/plain.h"
#include "cli/common/report.h"
#include "cli/process.h"

static int doctor_print_help(void)
{
    printf(
        "usage: heddle doctor [--json [FILE]] [--snapshot FILE] [--from FILE] [--expect N]\n"
        "\n"
        "Finds faults and slow settings of this machine. Each finding shows its facts, why it matters, and the "
        "remedy.\n"
        "The command needs no privileges, changes nothing, and makes no context on a device.\n"
        "Facts come from /proc, /sys, NVML, the driver, and the verdicts of heddle p2p; each source may be missing.\n"
        "\n"
        "options:\n"
        "  --json [FILE]    print the findings as one JSON object; with FILE, write it there and print the text\n"
        "  --snapshot FILE  also write the facts to FILE, for a bug report, without host name, user, path or UUID\n"
        "  --from FILE      judge the facts of such a file, and read nothing from this machine\n"
        "  --expect N       report an error if programs can use fewer than N devices\n"
        "  --help, -h       this text\n"
        "\n"
        "FILE may be -: the input, or the output, which then contains no findings as text.\n"
        "Exit status:\n"
        "  0  nothing wrong, or notes only\n"
        "  1  warnings: something is slow or at risk; or a file could not be read or written, with a line on stderr\n"
        "  2  errors: something does not work; or the command line is wrong, with a line on stderr\n"
        "With --json, the member \"status\" is the status of the findings.\n");
    return cli_finish("doctor", CLI_OK);
}

typedef struct doctor_options {
    bool json, help;                         /* JSON on the output */
    const char *json_file, *snapshot, *from; /* NULL: the option is not given */
    int expect;                              /* 0: any number of devices */
} doctor_options;

enum { JSON = 'j', SNAPSHOT = 's', FROM = 'f', EXPECT = 'e' };

static const struct option options_of_doctor[] = {{"json", optional_argument, NULL, JSON},
                                                  {"snapshot", required_argument, NULL, SNAPSHOT},
                                                  {"from", required_argument, NULL, FROM},
                                                  {"expect", required_argument, NULL, EXPECT},
                                                  CLI_HELP,
                                                  {NULL, 0, NULL, 0}};

static int doctor_parse_words(int argc, char **argv, doctor_options *out)
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
            cli_parse_json(words.value, &out->json, &out->json_file);
            break;
        case EXPECT:
            if (!cli_parse_count(words.value, DOCTOR_GPUS_MAX, &out->expect)) {
                return cli_usage("doctor", "--expect wants a number of devices from 1 to %d, not '%s'", DOCTOR_GPUS_MAX,
                                 words.value);
            }
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

/* Reads the stream to its end. Returns NULL with errno on failure. */
static char *doctor_read_stream(FILE *file, size_t *bytes)
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

static bool doctor_read_snapshot(const char *path, doctor_snapshot *s)
{
    bool input = strcmp(path, "-") == 0;
    FILE *file = input ? stdin : fopen(path, "re");
    size_t bytes = 0;
    char error[DOCTOR_ERROR_BYTES] = "";
    char *text = file ? doctor_read_stream(file, &bytes) : NULL;
    bool good = text && doctor_read(s, text, bytes, error);
    if (!good) {
        char large[64];
        snprintf(large, sizeof(large), "it is larger than %d MiB", DOCTOR_FILE_MAX >> 20);
        cli_complain("doctor", "--from: %s cannot be read: %s; give a file that --snapshot wrote",
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

/* Writes a file with `print`. If this fails, prints a message and returns false. */
static bool doctor_write_file(const char *option, const char *path, report_printer print, const void *what)
{
    char error[PLAIN_ERROR];
    bool written = cli_report_write_file(path, print, what, error);
    if (!written) {
        cli_complain("doctor", "%s: %s; give another file, or - for the output", option, error);
    }
    return written;
}

static void doctor_print_snapshot(const void *context, FILE *out)
{
    doctor_write(context, out);
}

typedef struct judged {
    const doctor_snapshot *s;
    const doctor_findings *found;
} judged;

static void doctor_print_judged(const void *context, FILE *out)
{
    const judged *j = context;
    doctor_print_json(j->s, j->found, out);
}

/* Writes the snapshot before the caller's expectations are added to it. CLI_OK: all was written. */
static int doctor_write_facts(const doctor_options *options, const doctor_snapshot *s)
{
    bool to_output = options->snapshot && strcmp(options->snapshot, "-") == 0;
    if (to_output) {
        doctor_write(s, stdout);
    }
    return !options->snapshot || to_output ||
                   doctor_write_file("--snapshot", options->snapshot, doctor_print_snapshot, s)
               ? CLI_OK
               : CLI_FAILED;
}

/* Returns the status of the findings. If this status is 0 and a write failed, returns
 * CLI_FAILED. */
static int doctor_run(const doctor_options *options, doctor_snapshot *s)
{
    doctor_findings found;
    int failed = doctor_write_facts(options, s);
    if (options->expect) {
        doctor_put_number(s, options->expect, "expected.devices");
    }
    doctor_judge(s, &found);
    judged all = {s, &found};
    if (options->json_file && !doctor_write_file("--json", options->json_file, doctor_print_judged, &all)) {
        failed = CLI_FAILED;
    }
    if (options->json) {
        doctor_print_json(s, &found, stdout);
    } else if (!options->snapshot || strcmp(options->snapshot, "-") != 0) {
        doctor_print_text(s, &found, stdout);
    }
    int status = doctor_status(&found);
    doctor_findings_release(&found);
    return status ? status : failed;
}

int cli_doctor(int argc, char **argv)
{
    doctor_options options = {0};
    doctor_snapshot s = {0};
    int status = doctor_parse_words(argc, argv, &options);
    if (status != CLI_OK || options.help) {
        return options.help ? doctor_print_help() : status;
    }
    const char *outputs[] = {options.snapshot, options.json_file};
    for (int i = 0; i < 2 && options.from; i++) {
        if (outputs[i] && !cli_output_spares("doctor", outputs[i], &options.from, 1)) {
            return CLI_FAILED;
        }
    }
    if (!options.from) {
        doctor_collect(&s);
    } else if (!doctor_read_snapshot(options.from, &s)) {
        return CLI_FAILED;
    }
    status = doctor_run(&options, &s);
    doctor_release(&s);
    return cli_finish("doctor", status);
}
