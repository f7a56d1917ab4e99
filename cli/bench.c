/* bench.c - `heddle bench`: reads the command line of a benchmark and runs it.
 *
 * The program's first thread, which the benchmark's worker processes watch; no locks.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "bench/alloc.h"
#include "bench/copy.h"
#include "bench/faults.h"
#include "bench/lanes.h"
#include "bench/tensor.h"
#include "cli/cli.h"

enum { DEVICES_MOST = 64, ROUNDS_MOST = 100, SECONDS_MOST = 3600 };

static int print_help(void)
{
    printf("usage: heddle bench lanes [OPTION]...\n"
           "       heddle bench faults [OPTION]...\n"
           "       heddle bench alloc [OPTION]...\n"
           "       heddle bench copy [OPTION]...\n"
           "       heddle bench tensor [OPTION]...\n"
           "\n"
           "benchmarks:\n"
           "  lanes   every device driven at once: plain driver calls from threads and from processes, and Heddle\n"
           "  faults  a device that faults in placement process: how soon it works again, and what the others notice\n"
           "  alloc   allocating and freeing memory: Heddle and the driver's own calls, in the same run\n"
           "  copy    transfers between the program, devices and devices: Heddle and the driver's own calls\n"
           "  tensor  moving tensors between layouts, and products: beside the device copy, plain kernels and cuBLAS\n"
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

static int print_copy_help(void)
{
    printf(
        "usage: heddle bench copy [--only PART[,PART]...] [--seconds S] [--rounds R] [--quick] [--json [FILE]]\n"
        "\n"
        "%s"
        "\n"
        "options:\n"
        "  --only PARTS   only these parts, separated by commas\n"
        "  --seconds S    measuring time in all (default: by the parts and the kind of device)\n"
        "  --rounds R     rounds (default: 9 with GPUs, 5 with host devices)\n"
        "  --quick        3 rounds in a quarter of the time; smaller sizes with host devices\n"
        "  --json [FILE]  print JSON instead of the table; with FILE, write it there and print the table\n"
        "  --help, -h     this text\n"
        "\n"
        "The first two devices are used. HEDDLE_DRIVER, HEDDLE_PLACEMENT, HEDDLE_DEVICES and HEDDLE_COPY_THREADS are\n"
        "heeded.\n",
        copy_help);
    return cli_finish("bench copy", CLI_OK);
}

static int print_tensor_help(void)
{
    printf("usage: heddle bench tensor [--device N] [--only PART[,PART]...] [--rounds R] [--quick] [--variants]\n"
           "                           [--json [FILE]]\n"
           "\n"
           "%s"
           "\n"
           "options:\n"
           "  --device N     the device to use (default: the first one)\n"
           "  --only PARTS   only these parts, separated by commas\n"
           "  --rounds R     rounds (default: 7 with a GPU, 3 with host devices)\n"
           "  --quick        fewer rounds and rows, less time for each\n"
           "  --variants     every kernel that can do the transposes and permutes, in several orders of tiles, and "
           "nothing\n"
           "                 else: what the planner's choices are made from\n"
           "  --json [FILE]  print JSON instead of the table; with FILE, write it there and print the table\n"
           "  --help, -h     this text\n"
           "\n"
           "HEDDLE_DRIVER, HEDDLE_PLACEMENT, HEDDLE_DEVICES and HEDDLE_BLAS are heeded. On host devices, and where "
           "memory is\n"
           "too small, sizes are cut.\n",
           tensor_help);
    return cli_finish("bench tensor", CLI_OK);
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

/* --json: whether argv[*i] is it. */
static bool parse_json(int argc, char **argv, int *i, report_run *run)
{
    const char *value = cli_option_value("--json", argc, argv, i);
    if (value) {
        run->json_on_output = value[0] == 0 || strcmp(value, "-") == 0;
        run->json_file = run->json_on_output ? NULL : value;
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
        } else if ((value = cli_option_value("--devices", argc, argv, &i))) {
            if (!cli_parse_count(value, DEVICES_MOST, &out->devices)) {
                return cli_usage("bench lanes", "--devices wants a number from 1 to %d, not '%s'", DEVICES_MOST, value);
            }
        } else if ((value = cli_option_value("--rounds", argc, argv, &i))) {
            if (!cli_parse_count(value, ROUNDS_MOST, &out->rounds)) {
                return cli_usage("bench lanes", "--rounds wants a number from 1 to %d, not '%s'", ROUNDS_MOST, value);
            }
        } else if ((value = cli_option_value("--seconds", argc, argv, &i))) {
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
        } else if ((value = cli_option_value("--rounds", argc, argv, &i))) {
            if (!cli_parse_count(value, ROUNDS_MOST, &out->rounds)) {
                return cli_usage("bench faults", "--rounds wants a number from 1 to %d, not '%s'", ROUNDS_MOST, value);
            }
        } else if (!parse_json(argc, argv, &i, &out->run)) {
            return unknown("bench faults", argument);
        }
    }
    return CLI_OK;
}

/* --only: every name is that of a part. */
static bool parse_parts(const char *text, bool (*has_part)(const char *name, size_t length))
{
    const char *at = text;
    for (;;) {
        size_t length = strcspn(at, ",");
        if (!has_part(at, length)) {
            return false;
        }
        if (!at[length]) {
            return true;
        }
        at += length + 1;
    }
}

/* --device: a number from 0 on. */
static bool parse_device(const char *text, int *out)
{
    *out = 0;
    return strcmp(text, "0") == 0 || cli_parse_count(text, DEVICES_MOST - 1, out);
}

/* One option of `bench alloc` with a value; CLI_OK: taken, -1: it is another option. */
static int parse_alloc_value(int argc, char **argv, int *i, alloc_options *out)
{
    const char *value;
    if ((value = cli_option_value("--device", argc, argv, i))) {
        if (!parse_device(value, &out->device)) {
            return cli_usage("bench alloc", "--device wants a number from 0 to %d, not '%s'", DEVICES_MOST - 1, value);
        }
    } else if ((value = cli_option_value("--rounds", argc, argv, i))) {
        if (!cli_parse_count(value, ALLOC_ROUNDS_MAX, &out->rounds)) {
            return cli_usage("bench alloc", "--rounds wants a number from 1 to %d, not '%s'", ALLOC_ROUNDS_MAX, value);
        }
    } else if ((value = cli_option_value("--only", argc, argv, i))) {
        if (!parse_parts(value, alloc_has_part)) {
            return cli_usage("bench alloc", "--only wants names of parts, separated by commas, not '%s'", value);
        }
        out->only = value;
    } else if ((value = cli_option_value("--replay", argc, argv, i))) {
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

static int parse_copy(int argc, char **argv, copy_options *out, bool *help)
{
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i], *value;
        if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
            *help = true;
            return CLI_OK;
        }
        if (strcmp(argument, "--quick") == 0) {
            out->quick = true;
        } else if ((value = cli_option_value("--only", argc, argv, &i))) {
            if (!parse_parts(value, copy_has_part)) {
                return cli_usage("bench copy", "--only wants names of parts, separated by commas, not '%s'", value);
            }
            out->only = value;
        } else if ((value = cli_option_value("--rounds", argc, argv, &i))) {
            if (!cli_parse_count(value, COPY_ROUNDS_MAX, &out->rounds)) {
                return cli_usage("bench copy", "--rounds wants a number from 1 to %d, not '%s'", COPY_ROUNDS_MAX,
                                 value);
            }
        } else if ((value = cli_option_value("--seconds", argc, argv, &i))) {
            if (!parse_seconds(value, &out->seconds)) {
                return cli_usage("bench copy", "--seconds wants a time up to %d, not '%s'", SECONDS_MOST, value);
            }
        } else if (!parse_json(argc, argv, &i, &out->run)) {
            return unknown("bench copy", argument);
        }
    }
    return CLI_OK;
}

/* As parse_alloc_value. */
static int parse_tensor_value(int argc, char **argv, int *i, tensor_options *out)
{
    const char *value;
    if ((value = cli_option_value("--device", argc, argv, i))) {
        if (!parse_device(value, &out->device)) {
            return cli_usage("bench tensor", "--device wants a number from 0 to %d, not '%s'", DEVICES_MOST - 1, value);
        }
    } else if ((value = cli_option_value("--rounds", argc, argv, i))) {
        if (!cli_parse_count(value, TENSOR_ROUNDS_MAX, &out->rounds)) {
            return cli_usage("bench tensor", "--rounds wants a number from 1 to %d, not '%s'", TENSOR_ROUNDS_MAX,
                             value);
        }
    } else if ((value = cli_option_value("--only", argc, argv, i))) {
        if (!parse_parts(value, tensor_has_part)) {
            return cli_usage("bench tensor", "--only wants names of parts, separated by commas, not '%s'", value);
        }
        out->only = value;
    } else {
        return -1;
    }
    return CLI_OK;
}

static int parse_tensor(int argc, char **argv, tensor_options *out, bool *help)
{
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];
        if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
            *help = true;
            return CLI_OK;
        }
        if (strcmp(argument, "--quick") == 0) {
            out->quick = true;
            continue;
        }
        if (strcmp(argument, "--variants") == 0) {
            out->variants = true;
            continue;
        }
        int status = parse_tensor_value(argc, argv, &i, out);
        if (status > CLI_OK) {
            return status;
        }
        if (status < 0 && !parse_json(argc, argv, &i, &out->run)) {
            return unknown("bench tensor", argument);
        }
    }
    return CLI_OK;
}

static void record_command(int argc, char **argv, char **words, report_run *run)
{
    run->command = words;
    run->command_count = cli_record("bench", argc, argv, words);
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
    char *words[CLI_WORDS];
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
    char *words[CLI_WORDS];
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
    char *words[CLI_WORDS];
    record_command(argc, argv, words, &options.run);
    cli_progress_start(&progress, stderr);
    return cli_finish("bench alloc", alloc_run(&options));
}

static int run_copy(int argc, char **argv)
{
    cli_progress progress;
    copy_options options = {.run = {.output = stdout, .progress = cli_progress_step, .context = &progress}};
    bool help = false;
    int status = parse_copy(argc, argv, &options, &help);
    if (status != CLI_OK || help) {
        return help ? print_copy_help() : status;
    }
    char *words[CLI_WORDS];
    record_command(argc, argv, words, &options.run);
    cli_progress_start(&progress, stderr);
    return cli_finish("bench copy", copy_run(&options));
}

static int run_tensor(int argc, char **argv)
{
    cli_progress progress;
    tensor_options options = {.device = -1,
                              .run = {.output = stdout, .progress = cli_progress_step, .context = &progress}};
    bool help = false;
    int status = parse_tensor(argc, argv, &options, &help);
    if (status != CLI_OK || help) {
        return help ? print_tensor_help() : status;
    }
    char *words[CLI_WORDS];
    record_command(argc, argv, words, &options.run);
    cli_progress_start(&progress, stderr);
    return cli_finish("bench tensor", tensor_run(&options));
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
    if (strcmp(what, "copy") == 0) {
        return run_copy(argc - 1, argv + 1);
    }
    if (strcmp(what, "tensor") == 0) {
        return run_tensor(argc - 1, argv + 1);
    }
    if (strcmp(what, "--help") == 0 || strcmp(what, "-h") == 0) {
        return print_help();
    }
    if (argc < 2) {
        return cli_usage("bench", "the name of a benchmark is missing");
    }
    return cli_usage("bench", what[0] == '-' ? "unknown option '%s'" : "unknown benchmark '%s'", what);
}
