/* bench.c - `heddle bench`: reads the command line of a benchmark and runs it.
 *
 * The program's first thread, which the benchmark's worker processes watch; no locks.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "bench/alloc.h"
#include "bench/faults.h"
#include "bench/lanes.h"
#include "cli/cli.h"

enum { DEVICES_MOST = 64, ROUNDS_MOST = 100, SECONDS_MOST = 3600, ARGUMENTS_MOST = 32 };

static int print_help(void)
{
    printf("usage: heddle bench lanes [OPTION]...\n"
           "       heddle bench faults [OPTION]...\n"
           "       heddle bench alloc [OPTION]...\n"
           "\n"
           "benchmarks:\n"
           "  lanes   every device driven at once: plain driver calls from threads and from processes, and Heddle\n"
           "  faults  a device that faults in placement process: how soon it works again, and what the others notice\n"
           "  alloc   allocating and freeing memory: Heddle and the driver's own calls, in the same run\n"
           "\n"
           "`heddle bench lanes --help` and the like say more.\n");
    return cli_finish("bench", CLI_OK);
}

static int print_lanes_help(void)
{
    printf("usage: heddle bench lanes [--devices N] [--seconds S] [--rounds R] [--quick] [--json [FILE]]\n"
           "\n"
           "%s"
           "\n"
           "options:\n"
           "  --devices N    use the first N devices (default: all)\n"
           "  --seconds S    measuring time in all (default: 92 with GPUs, 48 with host devices)\n"
           "  --rounds R     rounds (default: 7 with GPUs, at most 3 with host devices)\n"
           "  --quick        at most 3 rounds, in a quarter of the time\n"
           "  --json [FILE]  print JSON instead of the table; with FILE, write it there and print the table\n"
           "  --help, -h     this text\n"
           "\n"
           "Without a GPU the devices are host devices, on which kernels run on the CPU and are slow; the same rows\n"
           "are measured, with fewer kernels. HEDDLE_DRIVER and HEDDLE_DEVICES are heeded; with HEDDLE_PLACEMENT only\n"
           "that placement is measured, in less time.\n",
           lanes_help);
    return cli_finish("bench lanes", CLI_OK);
}

static int print_faults_help(void)
{
    printf("usage: heddle bench faults [--rounds R] [--quick] [--json [FILE]]\n"
           "\n"
           "%s"
           "\n"
           "options:\n"
           "  --rounds R     rounds, each with every kind of fault (default: one per device, at least 4)\n"
           "  --quick        2 rounds\n"
           "  --json [FILE]  print JSON instead of the table; with FILE, write it there and print the table\n"
           "  --help, -h     this text\n"
           "\n"
           "Whether goals are reached does not change the exit status. With one device only its fault and its restart "
           "are\n"
           "measured. HEDDLE_DRIVER and HEDDLE_DEVICES are heeded; the placement is always process.\n",
           faults_help);
    return cli_finish("bench faults", CLI_OK);
}

static int print_alloc_help(void)
{
    printf(
        "usage: heddle bench alloc [--device N] [--only PART[,PART]...] [--replay FILE]... [--rounds R] [--quick]\n"
        "                          [--json [FILE]]\n"
        "\n"
        "%s"
        "\n"
        "options:\n"
        "  --device N     the device to use (default: the first one)\n"
        "  --only PARTS   only these parts, separated by commas\n"
        "  --replay FILE  replay this recorded program instead of the ones that come with Heddle; may be given again\n"
        "  --rounds R     rounds (default: 5 with a GPU, 3 with host devices)\n"
        "  --quick        2 rounds, fewer cases, less time for each\n"
        "  --json [FILE]  print JSON instead of the table; with FILE, write it there and print the table\n"
        "  --help, -h     this text\n"
        "\n"
        "HEDDLE_DRIVER, HEDDLE_PLACEMENT, HEDDLE_DEVICES and HEDDLE_MEMORY_LIMIT are heeded. Host devices get 16 GiB\n"
        "of memory each where HEDDLE_HOST_MEMORY does not say how much.\n",
        alloc_help);
    return cli_finish("bench alloc", CLI_OK);
}

static bool parse_count(const char *text, int most, int *out)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < 1 || value > most) {
        return false;
    }
    *out = (int)value;
    return true;
}

static bool parse_seconds(const char *text, double *out)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || value <= 0 || value > SECONDS_MOST) {
        return false;
    }
    *out = value;
    return true;
}

/* The value of `--name VALUE` or `--name=VALUE` at argv[*i]; moves *i. NULL: this is another option. "": no value. */
static const char *option_value(const char *name, int argc, char **argv, int *i)
{
    size_t length = strlen(name);
    if (strncmp(argv[*i], name, length) != 0) {
        return NULL;
    }
    if (argv[*i][length] == '=') {
        return argv[*i] + length + 1;
    }
    if (argv[*i][length]) {
        return NULL;
    }
    if (*i + 1 < argc && argv[*i + 1][0] != '-') {
        return argv[++*i];
    }
    return "";
}

/* --json: whether argv[*i] is it. */
static bool parse_json(int argc, char **argv, int *i, report_run *run)
{
    const char *value = option_value("--json", argc, argv, i);
    if (value) {
        run->json_on_output = value[0] == 0;
        run->json_file = value[0] ? value : NULL;
    }
    return value != NULL;
}

static int unknown(const char *command, const char *argument)
{
    return cli_usage(command, argument[0] == '-' ? "unknown option '%s'" : "unexpected '%s'", argument);
}

static int parse_lanes(int argc, char **argv, lanes_options *out, bool *help)
{
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i], *value;
        if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
            *help = true;
            return CLI_OK;
        }
        if (strcmp(argument, "--quick") == 0) {
            out->quick = true;
        } else if ((value = option_value("--devices", argc, argv, &i))) {
            if (!parse_count(value, DEVICES_MOST, &out->devices)) {
                return cli_usage("bench lanes", "--devices wants a number from 1 to %d, not '%s'", DEVICES_MOST, value);
            }
        } else if ((value = option_value("--rounds", argc, argv, &i))) {
            if (!parse_count(value, ROUNDS_MOST, &out->rounds)) {
                return cli_usage("bench lanes", "--rounds wants a number from 1 to %d, not '%s'", ROUNDS_MOST, value);
            }
        } else if ((value = option_value("--seconds", argc, argv, &i))) {
            if (!parse_seconds(value, &out->seconds)) {
                return cli_usage("bench lanes", "--seconds wants a time up to %d, not '%s'", SECONDS_MOST, value);
            }
        } else if (!parse_json(argc, argv, &i, &out->run)) {
            return unknown("bench lanes", argument);
        }
    }
    return CLI_OK;
}

static int parse_faults(int argc, char **argv, faults_options *out, bool *help)
{
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i], *value;
        if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
            *help = true;
            return CLI_OK;
        }
        if (strcmp(argument, "--quick") == 0) {
            out->quick = true;
        } else if ((value = option_value("--rounds", argc, argv, &i))) {
            if (!parse_count(value, ROUNDS_MOST, &out->rounds)) {
                return cli_usage("bench faults", "--rounds wants a number from 1 to %d, not '%s'", ROUNDS_MOST, value);
            }
        } else if (!parse_json(argc, argv, &i, &out->run)) {
            return unknown("bench faults", argument);
        }
    }
    return CLI_OK;
}

/* --only: every name is that of a part. */
static bool parse_parts(const char *text)
{
    const char *at = text;
    for (;;) {
        size_t length = strcspn(at, ",");
        if (!alloc_has_part(at, length)) {
            return false;
        }
        if (!at[length]) {
            return true;
        }
        at += length + 1;
    }
}

/* One option of `bench alloc` with a value; CLI_OK: taken, -1: it is another option. */
static int parse_alloc_value(int argc, char **argv, int *i, alloc_options *out)
{
    const char *value;
    if ((value = option_value("--device", argc, argv, i))) {
        int number = 0;
        if (strcmp(value, "0") != 0 && !parse_count(value, DEVICES_MOST - 1, &number)) {
            return cli_usage("bench alloc", "--device wants a number from 0 to %d, not '%s'", DEVICES_MOST - 1, value);
        }
        out->device = number;
    } else if ((value = option_value("--rounds", argc, argv, i))) {
        if (!parse_count(value, ALLOC_ROUNDS_MAX, &out->rounds)) {
            return cli_usage("bench alloc", "--rounds wants a number from 1 to %d, not '%s'", ALLOC_ROUNDS_MAX, value);
        }
    } else if ((value = option_value("--only", argc, argv, i))) {
        if (!parse_parts(value)) {
            return cli_usage("bench alloc", "--only wants names of parts, separated by commas, not '%s'", value);
        }
        out->only = value;
    } else if ((value = option_value("--replay", argc, argv, i))) {
        if (!value[0] || out->n_replays == ALLOC_REPLAYS_MAX) {
            return cli_usage("bench alloc", "--replay wants a file, %d at most", ALLOC_REPLAYS_MAX);
        }
        out->replays[out->n_replays++] = value;
    } else {
        return -1;
    }
    return CLI_OK;
}

static int parse_alloc(int argc, char **argv, alloc_options *out, bool *help)
{
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];
        if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
            *help = true;
            return CLI_OK;
        }
        int status = strcmp(argument, "--quick") == 0 ? CLI_OK : parse_alloc_value(argc, argv, &i, out);
        out->quick = out->quick || strcmp(argument, "--quick") == 0;
        if (status > CLI_OK) {
            return status;
        }
        if (status < 0 && !parse_json(argc, argv, &i, &out->run)) {
            return unknown("bench alloc", argument);
        }
    }
    return CLI_OK;
}

/* The command line for the record: it names no directories. `words` has ARGUMENTS_MOST. */
static void record_command(int argc, char **argv, char **words, report_run *run)
{
    int count = 0;
    words[count++] = "heddle";
    words[count++] = "bench";
    for (int i = 0; i < argc && count < ARGUMENTS_MOST; i++) {
        char *slash = argv[i][0] == '/' ? strrchr(argv[i], '/') : NULL;
        words[count++] = slash ? slash + 1 : argv[i];
    }
    run->command = words;
    run->command_count = count;
}

static int run_lanes(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], LANES_WORKER) == 0) { /* the benchmark starts its worker processes so */
        return lanes_worker(argc - 2, argv + 2);
    }
    cli_progress progress;
    lanes_options options = {.run = {.output = stdout, .progress = cli_progress_step, .context = &progress}};
    bool help = false;
    int status = parse_lanes(argc, argv, &options, &help);
    if (status != CLI_OK || help) {
        return help ? print_lanes_help() : status;
    }
    char *words[ARGUMENTS_MOST];
    record_command(argc, argv, words, &options.run);
    cli_progress_start(&progress, stderr);
    return cli_finish("bench lanes", lanes_run(&options));
}

static int run_faults(int argc, char **argv)
{
    cli_progress progress;
    faults_options options = {.run = {.output = stdout, .progress = cli_progress_step, .context = &progress}};
    bool help = false;
    int status = parse_faults(argc, argv, &options, &help);
    if (status != CLI_OK || help) {
        return help ? print_faults_help() : status;
    }
    char *words[ARGUMENTS_MOST];
    record_command(argc, argv, words, &options.run);
    cli_progress_start(&progress, stderr);
    return cli_finish("bench faults", faults_run(&options));
}

static int run_alloc(int argc, char **argv)
{
    cli_progress progress;
    alloc_options options = {.device = -1,
                             .run = {.output = stdout, .progress = cli_progress_step, .context = &progress}};
    bool help = false;
    int status = parse_alloc(argc, argv, &options, &help);
    if (status != CLI_OK || help) {
        return help ? print_alloc_help() : status;
    }
    char *words[ARGUMENTS_MOST];
    record_command(argc, argv, words, &options.run);
    cli_progress_start(&progress, stderr);
    return cli_finish("bench alloc", alloc_run(&options));
}

int cli_bench(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "lanes") == 0) {
        return run_lanes(argc - 1, argv + 1);
    }
    if (strcmp(what, "faults") == 0) {
        return run_faults(argc - 1, argv + 1);
    }
    if (strcmp(what, "alloc") == 0) {
        return run_alloc(argc - 1, argv + 1);
    }
    if (strcmp(what, "--help") == 0 || strcmp(what, "-h") == 0) {
        return print_help();
    }
    if (argc < 2) {
        return cli_usage("bench", "the name of a benchmark is missing");
    }
    return cli_usage("bench", what[0] == '-' ? "unknown option '%s'" : "unknown benchmark '%s'", what);
}
