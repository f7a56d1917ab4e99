/* main.c - the program heddle-bench, which `heddle bench` becomes: reads the command line of a
 * benchmark and runs it.
 *
 * Threads: the program's first. The benchmark's worker processes detect its end. Locks: none.
 */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "bench/bench.h"
#include "bench/mpi/rows.h"
#include "cli/common/command.h"
#include "cli/common/output.h"
#include "cli/common/plain.h"

enum { DEVICES_MOST = 64, SECONDS_MOST = 3600 };

/* Options of some benchmarks only. */
enum {
    TAKES_DEVICES = 1,
    TAKES_DEVICE = 2,
    TAKES_SECONDS = 4,
    TAKES_REPLAY = 8,
    TAKES_VARIANTS = 16,
    TAKES_PARTS = 32,
    TAKES_RANKS = 64
};

typedef struct benchmark {
    const char *name, *command, *summary; /* "lanes", "bench lanes", and its subject */
    int (*run)(const bench_options *options);
    int takes, rounds_most;
    /* leaves the driver's number of queues unchanged, as in any program */
    bool as_it_is;
    const char *parts;                           /* for --only */
    const char *about, *usage, *options, *notes; /* of the help */
} benchmark;

static const benchmark benchmarks[] = {
    {
        .name = "lanes",
        .command = "bench lanes",
        .summary = "every device driven at once: plain driver calls from threads and from processes, and Heddle",
        .run = bench_lanes_run,
        .takes = TAKES_DEVICES | TAKES_SECONDS,
        .rounds_most = LANES_ROUNDS_MAX,
        .about = lanes_help,
        .usage = "[--devices N] [--seconds S] [--rounds R] [--quick] [--json [FILE]]\n",
        .options = "  --devices N    use the first N devices (default: all)\n"
                   "  --seconds S    measuring time in all (default: 92 with GPUs, 48 with host devices)\n"
                   "  --rounds R     rounds (default: 7 with GPUs, at most 3 with host devices)\n"
                   "  --quick        at most 3 rounds, in a quarter of the time\n",
        .notes =
            "Without a GPU the devices are host devices, on which kernels run on the CPU and are slow; the same rows\n"
            "are measured, with fewer kernels. HEDDLE_DRIVER and HEDDLE_DEVICES are heeded; with HEDDLE_PLACEMENT "
            "only\n"
            "that placement is measured, in less time.\n",
    },
    {
        .name = "faults",
        .command = "bench faults",
        .summary = "a device that faults in placement process: how soon it works again, and what the others notice",
        .run = bench_faults_run,
        .rounds_most = FAULTS_ROUNDS_MAX,
        .about = faults_help,
        .usage = "[--rounds R] [--quick] [--json [FILE]]\n",
        .options = "  --rounds R     rounds, each with every kind of fault (default: one per device, at least 4)\n"
                   "  --quick        2 rounds\n",
        .notes = "Whether goals are reached does not change the exit status. With one device only its fault and its "
                 "restart are\n"
                 "measured. HEDDLE_DRIVER and HEDDLE_DEVICES are heeded; the placement is always process.\n",
    },
    {
        .name = "alloc",
        .command = "bench alloc",
        .summary = "allocating and freeing memory: Heddle and the driver's own calls, in the same run",
        .run = bench_alloc_run,
        .takes = TAKES_DEVICE | TAKES_REPLAY | TAKES_PARTS,
        .rounds_most = ALLOC_ROUNDS_MAX,
        .parts = alloc_parts,
        .about = alloc_help,
        .usage = "[--device N] [--only PART[,PART]...] [--replay FILE]... [--rounds R] [--quick]\n"
                 "                          [--json [FILE]]\n",
        .options = "  --device N     the device to use (default: the first one)\n"
                   "  --only PARTS   only these parts, separated by commas\n"
                   "  --replay FILE  only replay this recorded program (without --only); may be given again\n"
                   "  --rounds R     rounds (default: 5 with a GPU, 3 with host devices)\n"
                   "  --quick        2 rounds, fewer cases, less time for each\n",
        .notes = "HEDDLE_DRIVER, HEDDLE_PLACEMENT, HEDDLE_DEVICES and HEDDLE_MEMORY_LIMIT are heeded. Host devices get "
                 "16 GiB\n"
                 "of memory each unless HEDDLE_HOST_MEMORY is set.\n",
    },
    {
        .name = "copy",
        .command = "bench copy",
        .summary = "transfers between the program, devices and devices: Heddle and the driver's own calls",
        .run = bench_copy_run,
        .takes = TAKES_SECONDS | TAKES_PARTS,
        .rounds_most = COPY_ROUNDS_MAX,
        .parts = copy_parts,
        .about = copy_help,
        .usage = "[--only PART[,PART]...] [--seconds S] [--rounds R] [--quick] [--json [FILE]]\n",
        .options = "  --only PARTS   only these parts, separated by commas\n"
                   "  --seconds S    measuring time in all (default: by the parts and the kind of device)\n"
                   "  --rounds R     rounds (default: 9 with GPUs, 5 with host devices)\n"
                   "  --quick        3 rounds in a quarter of the time; smaller sizes with host devices\n",
        .notes = "The first two devices are used. HEDDLE_DRIVER, HEDDLE_PLACEMENT, HEDDLE_DEVICES and "
                 "HEDDLE_COPY_THREADS are\n"
                 "heeded.\n",
    },
    {
        .name = "tensor",
        .command = "bench tensor",
        .summary = "moving tensors between layouts, and products: beside the device copy, plain kernels and cuBLAS",
        .run = bench_tensor_run,
        .takes = TAKES_DEVICE | TAKES_VARIANTS | TAKES_PARTS,
        .rounds_most = TENSOR_ROUNDS_MAX,
        .parts = tensor_parts,
        .about = tensor_help,
        .usage = "[--device N] [--only PART[,PART]...] [--rounds R] [--quick] [--variants]\n"
                 "                           [--json [FILE]]\n",
        .options = "  --device N     the device to use (default: the first one)\n"
                   "  --only PARTS   only these parts, separated by commas\n"
                   "  --rounds R     rounds (default: 7 with a GPU, 3 with host devices)\n"
                   "  --quick        fewer rounds and rows, less time for each\n"
                   "  --variants     every kernel that can do the transposes and permutes, in several orders of tiles, "
                   "and nothing\n"
                   "                 else: what the planner's choices are made from\n",
        .notes = "HEDDLE_DRIVER, HEDDLE_PLACEMENT, HEDDLE_DEVICES and HEDDLE_BLAS are heeded. On host devices, and "
                 "where memory is\n"
                 "too small, sizes are cut.\n",
    },
    {
        .name = "start",
        .command = "bench start",
        .summary = "until work can begin: hd_open, a restart, the first copy, beside a bare program of the driver",
        .run = bench_start_run,
        .as_it_is = true,
        .rounds_most = START_ROUNDS_MAX,
        .about = start_help,
        .usage = "[--rounds R] [--quick] [--json [FILE]]\n",
        .options = "  --rounds R     rounds (default: 5 with GPUs, 3 with host devices)\n"
                   "  --quick        2 rounds\n",
        .notes = "HEDDLE_DRIVER and HEDDLE_DEVICES are heeded.\n",
    },
    {
        .name = "submit",
        .command = "bench submit",
        .summary =
            "what a submit costs, from one to sixteen threads, and what it holds up, beside the driver's own calls",
        .run = bench_submit_run,
        .takes = TAKES_PARTS,
        .rounds_most = SUBMIT_ROUNDS_MAX,
        .parts = submit_parts,
        .about = submit_help,
        .usage = "[--only PART[,PART]...] [--rounds R] [--quick] [--json [FILE]]\n",
        .options = "  --only PARTS   only these parts, separated by commas\n"
                   "  --rounds R     rounds (default: 5 with GPUs, 3 with host devices)\n"
                   "  --quick        2 rounds, less time for each sample\n",
        .notes =
            "HEDDLE_DRIVER, HEDDLE_PLACEMENT and HEDDLE_DEVICES are heeded. On host devices, whose kernels run on the "
            "CPU, the\n"
            "figures say little.\n",
    },
    {
        .name = "claim",
        .command = "bench claim",
        .summary = "what a claim costs, and a claim on a stream, beside a program's own events",
        .run = bench_claim_run,
        .rounds_most = CLAIM_ROUNDS_MAX,
        .about = claim_help,
        .usage = "[--rounds R] [--quick] [--json [FILE]]\n",
        .options = "  --rounds R     rounds (default: 7 with a GPU, 3 with host devices)\n"
                   "  --quick        2 rounds, less time for each\n",
        .notes = "The first device is used. HEDDLE_DRIVER, HEDDLE_PLACEMENT and HEDDLE_DEVICES are heeded.\n",
    },
    {
        .name = "trace",
        .command = "bench trace",
        .summary = "what a trace costs, in turns with the same work without one",
        .run = bench_trace_run,
        .rounds_most = TRACE_ROUNDS_MAX,
        .about = trace_help,
        .usage = "[--rounds R] [--quick] [--json [FILE]]\n",
        .options = "  --rounds R     rounds (default: 9 with a GPU, 3 with host devices)\n"
                   "  --quick        2 rounds, less time for each\n",
        .notes = "HEDDLE_DRIVER, HEDDLE_PLACEMENT and HEDDLE_DEVICES are heeded. HEDDLE_TRACE has to be unset. Files "
                 "of traces\n"
                 "are in TMPDIR, or /tmp, while they are written.\n",
    },
    {
        .name = "mpi",
        .command = "bench mpi",
        .summary = "messages and reductions through heddle/mpi.h, beside the same MPI alone and copies by hand",
        .run = bench_mpi_run,
        .takes = TAKES_PARTS | TAKES_RANKS,
        .as_it_is = true,
        .rounds_most = MPI_ROUNDS_MAX,
        .parts = mpi_parts,
        .about = mpi_help,
        .usage = "[--ranks N] [--mpicc PROGRAM] [--mpiexec PROGRAM] [--only PART[,PART]...] [--rounds R]\n"
                 "                        [--quick] [--json [FILE]]\n",
        .options =
            "  --ranks N          ranks, at least 2 (default: 2)\n"
            "  --mpicc PROGRAM    the compiler of the MPI, with its options (default: mpicc, mpicc.mpich or "
            "mpicc.openmpi)\n"
            "  --mpiexec PROGRAM  what starts the ranks, with its options (default: the mpiexec beside that mpicc); "
            "it must\n"
            "                     understand -n\n"
            "  --only PARTS       only these parts, separated by commas\n"
            "  --rounds R         rounds (default: 9 with GPUs, 7 with host devices)\n"
            "  --quick            5 rounds, less time for each, no large messages\n",
        .notes = "HEDDLE_DRIVER, HEDDLE_PLACEMENT and HEDDLE_DEVICES are heeded. Host devices get 4 GiB of memory each "
                 "unless\n"
                 "HEDDLE_HOST_MEMORY is set. TMPDIR, or /tmp, holds the compiled program meanwhile; with several "
                 "machines it\n"
                 "must be a folder that all of them see.\n",
    },
};
enum { BENCHMARKS = sizeof(benchmarks) / sizeof(benchmarks[0]) };

/* ---- help ---- */

static int bench_print_help(void)
{
    for (int i = 0; i < BENCHMARKS; i++) {
        printf("%s heddle bench %s [OPTION]...\n", i ? "      " : "usage:", benchmarks[i].name);
    }
    printf("\nbenchmarks:\n");
    for (int i = 0; i < BENCHMARKS; i++) {
        printf("  %-6s  %s\n", benchmarks[i].name, benchmarks[i].summary);
    }
    printf("\n`heddle bench lanes --help` and the like have more.\n");
    return cli_finish("bench", CLI_OK);
}

static int bench_print_help_of(const benchmark *b)
{
    printf("usage: heddle %s %s"
           "\n"
           "%s"
           "\n"
           "options:\n"
           "%s"
           "  --json [FILE]  print JSON instead of the table; with FILE, write it there and print the table\n"
           "  --help, -h     this text\n"
           "\n"
           "%s",
           b->command, b->usage, b->about, b->options, b->notes);
    return cli_finish(b->command, CLI_OK);
}

/* ---- options ---- */

static bool bench_parse_seconds(const char *text, double *out)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || value <= 0 || value > SECONDS_MOST) {
        return false;
    }
    *out = value;
    return true;
}

/* True if every name of --only is that of a part. */
static bool bench_are_parts(const char *text, const char *parts)
{
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        if (!cli_report_has_name(parts, at, length)) {
            return false;
        }
        at += length;
        if (!*at) {
            return true;
        }
    }
}

/* Parses --device: a number from 0 on. */
static bool bench_parse_device(const char *text, int *out)
{
    *out = 0;
    return strcmp(text, "0") == 0 || cli_parse_count(text, DEVICES_MOST - 1, out);
}

enum {
    ROUNDS = 'r',
    DEVICES = 'D',
    DEVICE = 'd',
    SECONDS = 's',
    REPLAY = 'R',
    ONLY = 'o',
    JSON = 'j',
    QUICK = 'q',
    VARIANTS = 'v',
    RANKS = 'n',
    MPICC = 'c',
    MPIEXEC = 'x'
};

/* The options, and the benchmarks that accept them (0: all). */
static const struct {
    struct option option;
    int taken;
} all_options[] = {{{"rounds", required_argument, NULL, ROUNDS}, 0},
                   {{"devices", required_argument, NULL, DEVICES}, TAKES_DEVICES},
                   {{"device", required_argument, NULL, DEVICE}, TAKES_DEVICE},
                   {{"seconds", required_argument, NULL, SECONDS}, TAKES_SECONDS},
                   {{"replay", required_argument, NULL, REPLAY}, TAKES_REPLAY},
                   {{"only", required_argument, NULL, ONLY}, TAKES_PARTS},
                   {{"json", optional_argument, NULL, JSON}, 0},
                   {{"quick", no_argument, NULL, QUICK}, 0},
                   {{"variants", no_argument, NULL, VARIANTS}, TAKES_VARIANTS},
                   {{"ranks", required_argument, NULL, RANKS}, TAKES_RANKS},
                   {{"mpicc", required_argument, NULL, MPICC}, TAKES_RANKS},
                   {{"mpiexec", required_argument, NULL, MPIEXEC}, TAKES_RANKS},
                   {CLI_HELP, 0}};
enum { OPTIONS = sizeof(all_options) / sizeof(all_options[0]) };

static int bench_parse_number(int option, const benchmark *b, const char *value, bench_options *out)
{
    switch (option) {
    case ROUNDS:
        return cli_parse_count(value, b->rounds_most, &out->rounds)
                   ? CLI_OK
                   : cli_usage(b->command, "--rounds wants a number from 1 to %d, not '%s'", b->rounds_most, value);
    case DEVICES:
        return cli_parse_count(value, DEVICES_MOST, &out->devices)
                   ? CLI_OK
                   : cli_usage(b->command, "--devices wants a number from 1 to %d, not '%s'", DEVICES_MOST, value);
    case RANKS:
        return cli_parse_count(value, RANKS_MOST, &out->ranks) && out->ranks >= 2
                   ? CLI_OK
                   : cli_usage(b->command, "--ranks wants a number from 2 to %d, not '%s'", RANKS_MOST, value);
    case DEVICE:
        return bench_parse_device(value, &out->device)
                   ? CLI_OK
                   : cli_usage(b->command, "--device wants a number from 0 to %d, not '%s'", DEVICES_MOST - 1, value);
    default:
        return bench_parse_seconds(value, &out->seconds)
                   ? CLI_OK
                   : cli_usage(b->command, "--seconds wants a time up to %d, not '%s'", SECONDS_MOST, value);
    }
}

static int bench_parse_option(int option, const benchmark *b, const char *value, bench_options *out)
{
    switch (option) {
    case REPLAY:
        if (!value[0] || out->n_replays == ALLOC_REPLAYS_MAX) {
            return cli_usage(b->command, "--replay wants a file, %d at most", ALLOC_REPLAYS_MAX);
        }
        out->replays[out->n_replays++] = value;
        return CLI_OK;
    case ONLY:
        out->only = value;
        return bench_are_parts(value, b->parts)
                   ? CLI_OK
                   : cli_usage(b->command, "--only wants names of parts, separated by commas, not '%s'; there are: %s",
                               value, b->parts);
    case JSON:
        out->run.json_on_output = value[0] == 0 || strcmp(value, "-") == 0;
        out->run.json_file = out->run.json_on_output ? NULL : value;
        return CLI_OK;
    case QUICK:
        out->quick = true;
        return CLI_OK;
    case VARIANTS:
        out->variants = true;
        return CLI_OK;
    case MPICC:
        out->mpicc = value;
        return value[0] ? CLI_OK : cli_usage(b->command, "--mpicc wants a program");
    case MPIEXEC:
        out->mpiexec = value;
        return value[0] ? CLI_OK : cli_usage(b->command, "--mpiexec wants a program");
    default:
        return bench_parse_number(option, b, value, out);
    }
}

static int bench_parse(const benchmark *b, int argc, char **argv, bench_options *out, bool *help)
{
    struct option options[OPTIONS + 1];
    int count = 0, status = CLI_OK, option;
    for (int i = 0; i < OPTIONS; i++) {
        if ((all_options[i].taken & b->takes) == all_options[i].taken) {
            options[count++] = all_options[i].option;
        }
    }
    options[count] = (struct option){NULL, 0, NULL, 0};
    cli_words words = {
        .command = b->command, .argc = argc, .argv = argv, .options = options, .letters = CLI_HELP_LETTER};
    while (status == CLI_OK && !*help && (option = cli_next(&words)) != CLI_END) {
        if (option == CLI_WRONG) {
            status = CLI_USAGE;
        } else if (option == CLI_WORD) {
            status = cli_usage(b->command, "unexpected '%s'", words.word);
        } else if (option == 'h') {
            *help = true;
        } else {
            status = bench_parse_option(option, b, words.value, out);
        }
    }
    return status;
}

/* ---- run ---- */

static int bench_run(const benchmark *b, int argc, char **argv)
{
    cli_progress progress;
    bench_options options = {.device = -1,
                             .run = {.output = stdout, .progress = cli_progress_step, .context = &progress}};
    bool help = false;
    int status = bench_parse(b, argc, argv, &options, &help);
    if (status != CLI_OK || help) {
        return help ? bench_print_help_of(b) : status;
    }
    if (options.n_replays > 0 && !options.only) {
        options.only = "replay";
    }
    if (!b->as_it_is) {
        cli_plain_begin();
    }
    char *words[CLI_WORDS];
    options.run.command = words;
    options.run.command_count = cli_record("bench", argc, argv, words);
    cli_progress_start(&progress, stderr);
    return cli_finish(b->command, b->run(&options));
}

static const char *bench_benchmark_name(const void *context, int index)
{
    (void)context;
    return index < BENCHMARKS ? benchmarks[index].name : NULL;
}

int main(int argc, char **argv)
{
    cli_output_begin();
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the file size limit fails and is reported */
    const char *what = argc > 1 ? argv[1] : "";
    if (argc > 2 && strcmp(what, "lanes") == 0 && strcmp(argv[2], LANES_WORKER) == 0) {
        /* the benchmark starts its worker processes this way */
        return bench_lanes_worker(argc - 3, argv + 3);
    }
    if (argc > 2 && strcmp(what, "start") == 0 && strcmp(argv[2], START_SAMPLE) == 0) {
        /* the benchmark starts its samples this way */
        return bench_start_sample(argc - 3, argv + 3);
    }
    static const struct option options[] = {CLI_HELP, {NULL, 0, NULL, 0}};
    cli_words words = {.command = "bench", .argc = argc, .argv = argv, .options = options, .letters = CLI_HELP_LETTER};
    switch (cli_next(&words)) {
    case 'h':
        return bench_print_help();
    case CLI_END:
        return cli_usage("bench", "the name of a benchmark is missing");
    case CLI_WRONG:
        return CLI_USAGE;
    default:
        break;
    }
    for (int i = 0; i < BENCHMARKS; i++) {
        if (strcmp(words.word, benchmarks[i].name) == 0) {
            int before = words.next - 1;
            return bench_run(&benchmarks[i], argc - before, argv + before);
        }
    }
    char hint[CLI_HINT];
    cli_hint(words.word, bench_benchmark_name, NULL, hint);
    return cli_usage("bench", "unknown benchmark '%s'%s", words.word, hint);
}
