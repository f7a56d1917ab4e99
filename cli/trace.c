/* trace.c - `heddle trace`: shows how a traced program spent its time. Reads the command line and
 * runs cli/trace/model.h.
 *
 * Threads: the program's first. Locks: none.
 * Always: nothing is printed until the command line and the trace are parsed.
 */
#include <errno.h>
#include <heddle.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "cli/cli.h"
#include "cli/common/output.h"
#include "cli/process.h"
#include "cli/trace/output.h"
#include "cli/trace/ranks.h"

typedef struct options {
    const char **files; /* from the command line */
    int n_files;
    const char *why, *peaks, *rules, *format, *output, *json_file;
    bool all, json, help;
} options;

static int trace_print_help(void)
{
    printf(
        "usage: heddle trace FILE... [--all] [--json [OUT]] [--peaks PEAKS]\n"
        "       heddle trace FILE --why DEVICE.LANE:POSITION\n"
        "       heddle trace FILE --check RULES\n"
        "       heddle trace FILE --export chrome|hta|pytorch -o OUT\n"
        "       heddle trace FILE... --export chrome -o OUT\n"
        "\n"
        "Shows where the time of a traced program went: how each device's time divides into compute, transfer and\n"
        "idle, why the device stood still, how much time can be gained, and how. HEDDLE_TRACE=FILE makes a trace;\n"
        "further runtimes of the program write FILE.2 and so on. The tool analyses each of several files by itself.\n"
        "If they are the files of several ranks, the tool puts them on one clock, and shows which rank waited for\n"
        "which message. The FILE - is the input.\n"
        "\n"
        "options:\n"
        "  --all             print all lines, not only the first ones\n"
        "  --json [OUT]      print JSON; with OUT, write it there and print the text\n"
        "  --peaks PEAKS     compare transfers with the peaks in a file of `heddle p2p --json`\n"
        "  --why OPERATION   print the chain of waits behind an operation, such as 0.1:4711\n"
        "  --check RULES     check the rules of a file, one in each line, such as idle.device < 5 %%, findings == 0\n"
        "                    or gap.max.0 < 2 ms\n"
        "  --export FORMAT   write for another tool: chrome (Perfetto), hta (a folder with a file for each device;\n"
        "                    the trace needs trace_detail=full or cupti), pytorch (its memory snapshot)\n"
        "  -o OUT            the file or folder for --export\n"
        "  --help, -h        this text\n"
        "\n"
        "Exit status:\n"
        "  0  done\n"
        "  1  something failed, or a rule is broken\n"
        "  2  the command line, or a rule, is wrong\n");
    return cli_finish("trace", CLI_OK);
}

static int trace_print_failure(const char *what)
{
    cli_complain("trace", "%s", what);
    return CLI_FAILED;
}

static int trace_print_write_failure(const char *path)
{
    cli_complain("trace", "cannot write %s: %s", path, strerror(errno));
    return CLI_FAILED;
}

/* An output file that a function fills, written whole or not at all. */
typedef struct document {
    char *bytes;
    size_t length;
    FILE *file;
} document;

static bool trace_document_open(document *d)
{
    d->bytes = NULL;
    d->file = open_memstream(&d->bytes, &d->length);
    return d->file != NULL;
}

static int trace_document_write(document *d, const char *path)
{
    bool ok = !ferror(d->file);
    ok = fclose(d->file) == 0 && ok;
    if (!ok) {
        errno = ENOMEM;
    }
    ok = ok && cli_output_write(path, d->bytes, d->length);
    int status = ok ? CLI_OK : trace_print_write_failure(path);
    free(d->bytes);
    return status;
}

/* ---- exports ---- */

static char *trace_hta_file(const char *folder, int device)
{
    return cli_format("%s/rank_%d.json", folder, device);
}

static int trace_write_hta(const trace *t, const char *folder)
{
    if (t->detail != HDI_RECORD_DETAIL_FULL && t->n_reported == 0) {
        return trace_print_failure(
            "HTA needs the times of every operation; trace with HEDDLE_TRACE_DETAIL=full or cupti");
    }
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        return trace_print_write_failure(folder);
    }
    int status = CLI_OK;
    for (int d = 0; status == CLI_OK && d < t->n_devices; d++) {
        if (!trace_hta_has(t, d)) {
            cli_complain("trace", "device %d has no work with times, and gets no file", d);
            continue;
        }
        char *path = trace_hta_file(folder, d);
        document file;
        if (trace_document_open(&file)) {
            trace_export_hta(t, d, file.file);
            status = trace_document_write(&file, path);
        } else {
            status = trace_print_write_failure(path);
        }
        free(path);
    }
    return status;
}

static int trace_write_format(const trace *t, const options *o)
{
    document file;
    if (strcmp(o->format, "hta") == 0) {
        return trace_write_hta(t, o->output);
    }
    if (!trace_document_open(&file)) {
        return trace_print_write_failure(o->output);
    }
    if (strcmp(o->format, "chrome") == 0) {
        trace_export_chrome(t, file.file);
    } else {
        trace_export_snapshot(t, file.file);
    }
    return trace_document_write(&file, o->output);
}

/* ---- rest ---- */

static int trace_check_file(const trace *t, const char *path)
{
    size_t bytes;
    char error[512], *rules = cli_read_file(path, &bytes);
    if (!rules) {
        cli_complain("trace", "--check %s: %s", path, strerror(errno));
        return CLI_FAILED;
    }
    int status = trace_check(t, rules, stdout, error);
    if (status == CLI_USAGE) {
        cli_complain("trace", "%s: %s", path, error);
    }
    free(rules);
    return status;
}

static int trace_write_json(const trace *t, const char *path)
{
    document file;
    if (!trace_document_open(&file)) {
        return trace_print_write_failure(path);
    }
    trace_put_json(t, file.file);
    return trace_document_write(&file, path);
}

static int trace_show(const trace *t, const options *o)
{
    char error[512];
    if (o->why) {
        return trace_put_why(t, o->why, stdout, error) ? CLI_OK : trace_print_failure(error);
    }
    if (o->rules) {
        return trace_check_file(t, o->rules);
    }
    if (o->format) {
        return trace_write_format(t, o);
    }
    if (o->json && !o->json_file) {
        trace_put_json(t, stdout);
        return CLI_OK;
    }
    trace_put_text(t, o->all, stdout);
    return o->json ? trace_write_json(t, o->json_file) : CLI_OK;
}

/* ---- command line ---- */

enum { ALL = 'a', JSON = 'j', PEAKS = 'p', WHY = 'w', CHECK = 'c', EXPORT = 'e' };

static const struct option option_list[] = {{"all", no_argument, NULL, ALL},
                                            {"json", optional_argument, NULL, JSON},
                                            {"peaks", required_argument, NULL, PEAKS},
                                            {"why", required_argument, NULL, WHY},
                                            {"check", required_argument, NULL, CHECK},
                                            {"export", required_argument, NULL, EXPORT},
                                            CLI_HELP,
                                            {NULL, 0, NULL, 0}};

/* `word`: the option as written on the command line. */
static int trace_parse_option(int option, const char *word, const char *value, options *out)
{
    bool wants = option == PEAKS || option == WHY || option == CHECK || option == EXPORT || option == 'o';
    if (wants && value[0] == 0) {
        return cli_usage("trace", "%s wants a value", word);
    }
    switch (option) {
    case ALL:
        out->all = true;
        break;
    case JSON:
        out->json = true;
        out->json_file = value[0] && strcmp(value, "-") != 0 ? value : NULL;
        break;
    case PEAKS:
        out->peaks = value;
        break;
    case WHY:
        out->why = value;
        break;
    case CHECK:
        out->rules = value;
        break;
    case EXPORT:
        out->format = value;
        if (strcmp(value, "chrome") != 0 && strcmp(value, "hta") != 0 && strcmp(value, "pytorch") != 0) {
            return cli_usage("trace", "--export wants chrome, hta or pytorch, not '%s'", value);
        }
        break;
    case 'o':
        out->output = value;
        break;
    default:
        out->help = true;
        break;
    }
    return CLI_OK;
}

static int trace_parse_words(int argc, char **argv, options *out)
{
    cli_words words = {
        .command = "trace", .argc = argc, .argv = argv, .options = option_list, .letters = CLI_HELP_LETTER "o:"};
    int option;
    while (!out->help && (option = cli_next(&words)) != CLI_END) {
        if (option == CLI_WRONG) {
            return CLI_USAGE;
        }
        if (option == CLI_WORD) {
            out->files[out->n_files++] = words.word;
        } else if (trace_parse_option(option, words.word, words.value, out) != CLI_OK) {
            return CLI_USAGE;
        }
    }
    int tasks = (out->why != NULL) + (out->rules != NULL) + (out->format != NULL) + (out->json || out->all);
    if (out->help) {
        return CLI_OK;
    }
    if (out->n_files == 0) {
        return cli_usage("trace", "the file of a trace is missing");
    }
    /* this export takes the files of several ranks */
    bool together = out->format && strcmp(out->format, "chrome") == 0;
    if (out->n_files > 1 && (out->why || out->rules || (out->format && !together))) {
        return cli_usage("trace", "'%s' is a second file; --why, --check and this --export are for one at a time",
                         out->files[1]);
    }
    if (tasks > 1) {
        return cli_usage("trace", "one of --why, --check, --export, or --all and --json at a time");
    }
    if ((out->format != NULL) != (out->output != NULL)) {
        return cli_usage("trace", out->format ? "--export needs -o OUT" : "-o is for --export");
    }
    return CLI_OK;
}

/* Checks that no output overwrites the trace or the peaks. For HTA there is one output for each
 * device. */
static bool trace_spares_inputs(const char *file, const options *o, int devices)
{
    const char *const inputs[] = {file, o->peaks};
    bool ok = (!o->json_file || cli_output_spares("trace", o->json_file, inputs, 2)) &&
              (!o->output || cli_output_spares("trace", o->output, inputs, 2));
    for (int d = 0; ok && o->format && strcmp(o->format, "hta") == 0 && d < devices; d++) {
        char *path = trace_hta_file(o->output, d);
        ok = cli_output_spares("trace", path, inputs, 2);
        free(path);
    }
    return ok;
}

/* ---- several files ---- */

static int trace_write_ranks(const trace_ranks *ranks, void (*put)(const trace_ranks *ranks, FILE *out),
                             const char *path)
{
    document file;
    if (!trace_document_open(&file)) {
        return trace_print_write_failure(path);
    }
    put(ranks, file.file);
    return trace_document_write(&file, path);
}

/* Shows the traces of several ranks together. */
static int trace_show_ranks(trace **files, int n, const options *o)
{
    trace_ranks ranks;
    char error[512];
    if (!trace_ranks_make(files, n, &ranks, error)) {
        return trace_print_failure(error);
    }
    int status = CLI_OK;
    if (o->format) {
        status = trace_write_ranks(&ranks, trace_ranks_export_chrome, o->output);
    } else if (o->json && !o->json_file) {
        trace_ranks_put_json(&ranks, stdout);
    } else {
        trace_ranks_put_text(&ranks, o->all, stdout);
        for (int i = 0; o->all && i < n; i++) {
            printf("\nrank %d by itself\n", (int)files[i]->rank);
            trace_put_text(files[i], true, stdout);
        }
    }
    if (o->json_file) {
        status = trace_write_ranks(&ranks, trace_ranks_put_json, o->json_file);
    }
    trace_ranks_release(&ranks);
    return status;
}

/* Shows each trace by itself. */
static int trace_show_each(trace *const *files, int n, const options *o)
{
    int status = CLI_OK;
    for (int i = 0; status == CLI_OK && i < n; i++) {
        if (n > 1) {
            printf("%s%d of %d files, each by itself\n", i > 0 ? "\n" : "", i + 1, n);
        }
        status = trace_show(files[i], o);
    }
    return status;
}

/* `files` are in the order of the command line. */
static int trace_show_files(trace **files, const options *o)
{
    int n = o->n_files, of_ranks = 0, with = 0, without = 0;
    for (int i = 0; i < n; i++) {
        bool has = files[i]->rank != TRACE_NONE;
        of_ranks += has;
        *(has ? &with : &without) = i;
    }
    if (n == 1 || of_ranks == 0) {
        if (n > 1 && (o->json || o->format)) {
            return cli_usage("trace", "'%s' is a second file; --json and --export of several files are for ranks",
                             o->files[1]);
        }
        return trace_show_each(files, n, o);
    }
    if (of_ranks < n) {
        cli_complain("trace", "%s is of a rank, and %s is not; give the files of the ranks alone", o->files[with],
                     o->files[without]);
        return CLI_FAILED;
    }
    return trace_show_ranks(files, n, o);
}

static int trace_read_files(const options *o)
{
    trace **files = cli_allocate((size_t)o->n_files * sizeof *files);
    char error[512];
    int status = CLI_OK, n = 0;
    for (; status == CLI_OK && n < o->n_files; n++) {
        files[n] = cli_allocate(sizeof **files);
        memset(files[n], 0, sizeof **files); /* reading may fail before it fills the structure */
        if (!trace_read(o->files[n], o->peaks, files[n], error)) {
            status = trace_print_failure(error);
        } else if (!trace_spares_inputs(o->files[n], o, files[n]->n_devices)) {
            status = CLI_FAILED;
        }
    }
    if (status == CLI_OK) {
        status = trace_show_files(files, o);
    }
    for (int i = 0; i < n; i++) {
        trace_release(files[i]);
        free(files[i]);
    }
    free(files);
    return status;
}

int cli_trace(int argc, char **argv)
{
    options o = {.files = cli_allocate((size_t)argc * sizeof o.files[0])};
    int status = trace_parse_words(argc, argv, &o);
    if (status == CLI_OK && !o.help) {
        status = trace_read_files(&o);
    }
    free(o.files);
    if (o.help) {
        return trace_print_help();
    }
    return status == CLI_USAGE ? status : cli_finish("trace", status);
}
