/* report.c - `heddle report`: reads the command line, and writes a page that shows the contents of
 * the files.
 *
 * Threads: the program's first. Locks: none.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "cli/cli.h"
#include "cli/common/output.h"
#include "cli/report/parts.h"

static int report_print_help(void)
{
    printf("usage: heddle report FILE... [-o FILE]\n"
           "\n"
           "Writes one HTML page that shows the content of the files: where the time of every device went, and why.\n"
           "Any recent browser opens it from disk, without a network.\n"
           "\n"
           "At most %d files. The tool recognises each FILE by its content:\n"
           "  a trace                    written with HEDDLE_TRACE=FILE\n"
           "  of `heddle p2p --json`     peers, links, and the peaks for a comparison with transfers\n"
           "  of `heddle bench --json`   its figures; two files of one benchmark appear side by side\n"
           "  of `heddle doctor --json`  faults and slow settings of the machine\n"
           "  of doctor --snapshot FILE  the same, judged from the facts as `heddle doctor --from` does\n"
           "  of `heddle info --json`    the machine\n"
           "Two traces appear side by side, too. Traces of several ranks appear together, on one clock. The FILE - is\n"
           "the input.\n"
           "\n"
           "options:\n"
           "  --output FILE, -o FILE  the page (default: report.html); -: the output\n"
           "  --help, -h              this text\n"
           "\n"
           "Exit status:\n"
           "  0  the page is written\n"
           "  1  a file cannot be read or written\n"
           "  2  the command line is wrong\n",
           PAGE_FILES);
    return cli_finish("report", CLI_OK);
}

static const struct option options_of_report[] = {
    {"output", required_argument, NULL, 'o'}, CLI_HELP, {NULL, 0, NULL, 0}};

typedef struct report_words {
    page_file files[PAGE_FILES];
    int n;
    const char *output;
    bool help;
} report_words;

/* Returns the exit status; CLI_OK: continue. */
static int report_parse_words(int argc, char **argv, report_words *out)
{
    cli_words words = {
        .command = "report", .argc = argc, .argv = argv, .options = options_of_report, .letters = CLI_HELP_LETTER "o:"};
    int option;
    while (!out->help && (option = cli_next(&words)) != CLI_END) {
        if (option == CLI_WRONG) {
            return CLI_USAGE;
        }
        if (option == 'h') {
            out->help = true;
        } else if (option == 'o') {
            out->output = words.value;
        } else if (out->n == PAGE_FILES) {
            return cli_usage("report", "too many files; a report shows at most %d", PAGE_FILES);
        } else {
            out->files[out->n++].path = words.word;
        }
    }
    return out->help || out->n > 0 ? CLI_OK : cli_usage("report", "a FILE is missing");
}

static int report_write_page(const report_words *words)
{
    size_t bytes = 0;
    char *page = report_page_make(words->files, words->n, &bytes);
    if (!page) {
        cli_complain("report", "there is no memory for the page; give fewer files");
        return CLI_FAILED;
    }
    bool on_output = strcmp(words->output, "-") == 0;
    bool ok = on_output || cli_output_write(words->output, page, bytes);
    if (on_output) {
        fwrite(page, 1, bytes, stdout); /* cli_finish reports a failure */
    }
    if (!ok) {
        cli_complain("report", "cannot write '%s': %s", words->output, strerror(errno));
    }
    free(page);
    return ok ? CLI_OK : CLI_FAILED;
}

int cli_report(int argc, char **argv)
{
    report_words words = {.output = "report.html"};
    char error[PAGE_ERROR] = "";
    int status = report_parse_words(argc, argv, &words);
    if (status != CLI_OK || words.help) {
        return words.help ? report_print_help() : status;
    }
    const char *inputs[PAGE_FILES];
    for (int i = 0; i < words.n; i++) {
        inputs[i] = words.files[i].path;
    }
    if (!cli_output_spares("report", words.output, inputs, (size_t)words.n)) {
        return CLI_FAILED;
    }
    if (strcmp(words.output, "-") != 0 && !cli_output_may(words.output)) {
        cli_complain("report", "cannot write '%s': %s", words.output, strerror(errno));
        return CLI_FAILED;
    }
    if (report_page_read_files(words.files, words.n, error)) {
        status = report_write_page(&words);
    } else {
        cli_complain("report", "%s", error);
        status = CLI_FAILED;
    }
    report_page_release_files(words.files, words.n);
    return cli_finish("report", status);
}
