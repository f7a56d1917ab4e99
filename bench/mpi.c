/* mpi.c - the conductor of `heddle bench mpi`: compiles the program of the ranks with the user's
 * mpicc, runs it with mpiexec, and reads its figures.
 *
 * Threads: the conductor. Locks: none.
 * Always: the folder for temporary files is removed on every path. The signals INT, TERM and HUP
 * end mpiexec, and then this program.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "bench/mpi_parts.h"
#include "cli/common/place.h"
#include "cli/common/plain.h"
#include "cli/common/program.h"

#ifndef HEDDLE_DATA_FROM_BENCH
#define HEDDLE_DATA_FROM_BENCH "../share"
#define HEDDLE_DATA_INSTALLED "/usr/local/share"
#define HEDDLE_HEADERS_FROM_BENCH "../include"
#define HEDDLE_HEADERS_INSTALLED "/usr/local/include"
#define HEDDLE_LIBRARY_FROM_BENCH "../lib"
#define HEDDLE_LIBRARY_INSTALLED "/usr/local/lib"
#define HEDDLE_BUILD_DIR ""
#endif

enum { ROUNDS_GPU = 9, ROUNDS_HOST = 7, ROUNDS_QUICK = 5, RANKS_DEFAULT = 2, PATH_BYTES = 4096 };

const char mpi_help[] =
    "Messages and reductions through heddle/mpi.h, and through MPI alone, between ranks of this machine or of "
    "several.\n"
    "Your mpicc compiles the program of the ranks, and your mpiexec runs it. All sides run in that program, in turns,\n"
    "with the thread level MPI_THREAD_MULTIPLE. A figure is the median of the rounds, and in a round that of the\n"
    "iterations, on the first rank. Messages go from the first rank to the last one.\n"
    "\n"
    "Parts (--only), in the shapes of the OSU micro-benchmarks:\n"
    "  latency    a ping-pong; the time of one way\n"
    "  bandwidth  a window of 2 to 64 messages and a short answer\n"
    "  allreduce  the sum of floats of all ranks\n"
    "  beside     a message of device memory while the device works: a matrix product on a GPU. Host devices\n"
    "             sleep, since a kernel of theirs would take the processor that the message needs\n"
    "\n"
    "Columns:\n"
    "  mpi       MPI_Send and MPI_Recv, MPI_Isend and MPI_Irecv, MPI_Allreduce, on memory of the CPU; in rows of "
    "device\n"
    "            memory, on pinned memory\n"
    "  by hand   rows of device memory: a plain copy of the driver to pinned memory, MPI_Send and MPI_Recv, and a "
    "plain\n"
    "            copy to the device\n"
    "  heddle    pinned memory, or device memory\n"
    "  hidden    the part of the shorter of work and message that both at once hide\n"
    "\n"
    "What arrived is compared with what was sent, on all sides; wrong bytes end the run with exit status 1.\n"
    "Whether goals are reached does not change the exit status.\n";

/* the names of ranks_part_names */
const char mpi_parts[] = "latency,bandwidth,allreduce,beside";

bool bench_mpi_is_wanted(const mpi_experiment *x, const ranks_row *row)
{
    return cli_report_is_wanted(x->options->only, ranks_part_names[row->part]) && (row->quick || !x->options->quick);
}

void bench_mpi_name(const ranks_row *row, char id[MPI_TEXT], char name[MPI_TEXT])
{
    static const char *const texts[RANKS_PARTS] = {"ping-pong", "window", "all-reduce", "beside work"};
    const char *memory = row->on_device ? "device" : "pinned";
    const bool mib = row->bytes >= RANKS_MIB, kib = row->bytes >= RANKS_KIB;
    const size_t n = mib ? row->bytes / RANKS_MIB : kib ? row->bytes / RANKS_KIB : row->bytes;
    const char *unit = mib ? "MiB" : kib ? "KiB" : "B";
    snprintf(id, MPI_TEXT, "%s_%s_%zu_%s", ranks_part_names[row->part], memory, n, unit);
    snprintf(name, MPI_TEXT, "%s, %s, %zu %s", texts[row->part], memory, n, unit);
}

/* ---- what the ranks print ---- */

static void bench_mpi_read_fact(mpi_experiment *x, const char *text)
{
    char name[16], value[MPI_TEXT];
    if (sscanf(text, "%15s %191[^\n]", name, value) != 2) {
        return;
    }
    if (strcmp(name, "mpi") == 0) {
        memcpy(x->library, value, sizeof(value));
    } else if (strcmp(name, "level") == 0) {
        memcpy(x->level, value, sizeof(value));
    } else if (strcmp(name, "driver") == 0) {
        memcpy(x->driver, value, sizeof(value));
    } else if (strcmp(name, "piece") == 0) {
        x->piece_bytes = strtoll(value, NULL, 10);
    }
}

static void bench_mpi_read_sample(mpi_experiment *x, const char *text)
{
    int row, side, round;
    double ns;
    if (sscanf(text, "%d %d %d %lf", &row, &side, &round, &ns) == 4 && row >= 0 && row < RANKS_ROWS && side >= 0 &&
        side < RANKS_SIDES && round >= 0 && round < x->rounds && ns > 0) {
        x->rows[row].ns[side][round] = ns;
    }
}

static void bench_mpi_read_at(mpi_experiment *x, const char *text)
{
    char id[MPI_TEXT], name[MPI_TEXT], stage[MPI_TEXT];
    int row, round;
    if (sscanf(text, "%d %d", &row, &round) == 2 && row >= 0 && row < RANKS_ROWS) {
        bench_mpi_name(&ranks_rows[row], id, name);
        snprintf(stage, sizeof(stage), "%s", ranks_part_names[ranks_rows[row].part]);
        cli_report_progress(&x->options->run, stage, name, (double)row / RANKS_ROWS);
    }
}

static void bench_mpi_read_note(mpi_experiment *x, const char *text)
{
    int row, at = 0;
    if (sscanf(text, "%d %n", &row, &at) == 1 && row >= 0 && row < RANKS_ROWS) {
        snprintf(x->rows[row].note, MPI_TEXT, "%s", text + at);
    }
}

/* A line of the ranks. MPI may print other lines, which are ignored. */
static void bench_mpi_read_line(void *experiment, char *text)
{
    mpi_experiment *x = experiment;
    if (strncmp(text, "fact ", 5) == 0) {
        bench_mpi_read_fact(x, text + 5);
    } else if (strncmp(text, "at ", 3) == 0) {
        bench_mpi_read_at(x, text + 3);
    } else if (strncmp(text, "sample ", 7) == 0) {
        bench_mpi_read_sample(x, text + 7);
    } else if (strncmp(text, "note ", 5) == 0) {
        bench_mpi_read_note(x, text + 5);
    } else if (strncmp(text, "verified ", 9) == 0) {
        x->verified = strtoull(text + 9, NULL, 10);
        x->complete = true;
    }
}

/* Counts the rounds of each row. False: figures are missing. */
static bool bench_mpi_check_rows(mpi_experiment *x, char *error)
{
    for (int i = 0; i < RANKS_ROWS; i++) {
        const ranks_row *row = &ranks_rows[i];
        mpi_row *found = &x->rows[i];
        if (!bench_mpi_is_wanted(x, row) || found->note[0]) {
            continue;
        }
        for (int round = 0; round < x->rounds; round++) {
            for (int side = 0; side < RANKS_SIDES; side++) {
                if (bench_ranks_has(row, side) && !(found->ns[side][round] > 0)) {
                    snprintf(error, PLAIN_ERROR, "the ranks printed no figures for a row of %s",
                             ranks_part_names[row->part]);
                    return false;
                }
            }
        }
        found->rounds = x->rounds;
    }
    return true;
}

/* ---- programs ---- */

/* True if the first word of the command names a program. */
static bool bench_mpi_is_there(const char *option, const char *command, char *error)
{
    char *name = cli_format("%.*s", (int)strcspn(command, " \t"), command);
    const bool found = name[0] && cli_process_exists(name);
    snprintf(error, PLAIN_ERROR, "%s: there is no program '%.200s'", option, name);
    free(name);
    return found;
}

static bool bench_mpi_find_compiler(mpi_experiment *x, char *error)
{
    static const char *const names[] = {"mpicc", "mpicc.mpich", "mpicc.openmpi"};
    const char *given = x->options->mpicc;
    if (given) {
        x->mpicc = cli_format("%s", given);
        return bench_mpi_is_there("--mpicc", given, error);
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !x->mpicc; i++) {
        x->mpicc = cli_process_exists(names[i]) ? cli_format("%s", names[i]) : NULL;
    }
    snprintf(error, PLAIN_ERROR,
             "found no mpicc, mpicc.mpich or mpicc.openmpi; install an MPI, such as MPICH, or name its compiler with "
             "--mpicc");
    return x->mpicc != NULL;
}

/* Finds the mpiexec that belongs to the compiler: the same name with mpiexec in place of mpicc. */
static bool bench_mpi_find_launcher(mpi_experiment *x, char *error)
{
    const char *given = x->options->mpiexec;
    if (given) {
        x->mpiexec = cli_format("%s", given);
        return bench_mpi_is_there("--mpiexec", given, error);
    }
    const int length = (int)strcspn(x->mpicc, " \t");
    const char *last = NULL;
    for (const char *at = strstr(x->mpicc, "mpicc"); at && at < x->mpicc + length; at = strstr(at + 1, "mpicc")) {
        last = at;
    }
    x->mpiexec = last ? cli_format("%.*smpiexec%.*s", (int)(last - x->mpicc), x->mpicc,
                                   (int)(x->mpicc + length - last - 5), last + 5)
                      : cli_format("mpiexec");
    snprintf(error, PLAIN_ERROR, "found no %.200s for %.200s; name it with --mpiexec", x->mpiexec, x->mpicc);
    return cli_process_exists(x->mpiexec);
}

/* The folders with the source of the ranks, the headers, and the library. */
typedef struct mpi_places {
    char source[PATH_BYTES], headers[PATH_BYTES], library[PATH_BYTES];
} mpi_places;

static bool bench_mpi_find_places(mpi_places *p, char *error)
{
    if (!cli_place_find("bench/mpi", HEDDLE_DATA_FROM_BENCH[0] ? HEDDLE_DATA_FROM_BENCH "/heddle/mpi" : NULL,
                        HEDDLE_DATA_INSTALLED "/heddle/mpi", p->source, sizeof(p->source)) ||
        !cli_place_find("include/heddle", HEDDLE_HEADERS_FROM_BENCH[0] ? HEDDLE_HEADERS_FROM_BENCH "/heddle" : NULL,
                        HEDDLE_HEADERS_INSTALLED "/heddle", p->headers, sizeof(p->headers))) {
        snprintf(error, PLAIN_ERROR, "found no %s; install Heddle again",
                 p->source[0] ? "headers of Heddle" : "source of the program for the ranks");
        return false;
    }
    *strrchr(p->headers, '/') = 0; /* the folder with heddle.h */
    char tree[PATH_BYTES];
    if (cli_place_find("include/heddle", NULL, NULL, tree, sizeof(tree))) {
        snprintf(p->library, sizeof(p->library), "%s", HEDDLE_BUILD_DIR);
        return true;
    }
    snprintf(error, PLAIN_ERROR, "found no folder with libheddle.so; install Heddle again");
    return cli_place_find(NULL, HEDDLE_LIBRARY_FROM_BENCH[0] ? HEDDLE_LIBRARY_FROM_BENCH : NULL,
                          HEDDLE_LIBRARY_INSTALLED, p->library, sizeof(p->library));
}

static void bench_mpi_add_path(cli_command *c, const char *before, const char *folder, const char *name)
{
    char *word = cli_format("%s%s%s%s", before, folder, name ? "/" : "", name ? name : "");
    cli_command_add(c, word);
    free(word);
}

static bool bench_mpi_compile(mpi_experiment *x, char *error)
{
    mpi_places places = {{0}, {0}, {0}};
    cli_command command = {NULL, 0};
    char *messages = NULL;
    if (!bench_mpi_find_places(&places, error)) {
        return false;
    }
    cli_report_progress(&x->options->run, "compiling the program of the ranks", "", 0);
    cli_command_add_words(&command, x->mpicc);
    cli_command_add_words(&command, "-std=gnu11 -O2");
    bench_mpi_add_path(&command, "-I", places.headers, NULL);
    bench_mpi_add_path(&command, "", places.source, "ranks.c");
    bench_mpi_add_path(&command, "", places.source, "sides.c");
    cli_command_add(&command, "-o");
    bench_mpi_add_path(&command, "", x->folder, "ranks");
    bench_mpi_add_path(&command, "-L", places.library, NULL);
    bench_mpi_add_path(&command, "-Wl,-rpath,", places.library, NULL);
    cli_command_add_words(&command, "-lheddle -lpthread");
    const int status = cli_process_run(&command, false, NULL, &messages);
    if (status) {
        cli_report_progress(&x->options->run, NULL, "", 0);
        fprintf(stderr, "%s", messages ? messages : "");
        snprintf(error, PLAIN_ERROR, "%.200s could not compile the program of the ranks (exit status %d)", x->mpicc,
                 status);
    }
    free(messages);
    cli_command_release(&command);
    return status == 0;
}

/* Shows what the ranks and mpiexec wrote to stderr. */
static void bench_mpi_show_messages(const mpi_experiment *x, const char *path)
{
    char text[PATH_BYTES];
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = 0;
    cli_report_progress(&x->options->run, NULL, "", 0);
    while (file >= 0 && (n = read(file, text, sizeof(text))) > 0) {
        fwrite(text, 1, (size_t)n, stderr);
    }
    if (file >= 0) {
        close(file);
    }
}

static bool bench_mpi_run_ranks(mpi_experiment *x, char *error)
{
    cli_command command = {NULL, 0};
    char *messages = cli_format("%s/messages", x->folder);
    char *numbers = cli_format("%d %d", x->rounds, x->options->quick);
    char *ranks = cli_format("-n %d", x->ranks);
    cli_command_add_words(&command, x->mpiexec);
    cli_command_add_words(&command, ranks);
    bench_mpi_add_path(&command, "", x->folder, "ranks");
    cli_command_add_words(&command, numbers);
    cli_command_add(&command, x->options->only ? x->options->only : "all");
    const int status = cli_process_run_lines(&command, messages, bench_mpi_read_line, x);
    const bool ok = status == 0 && x->complete;
    if (!ok) {
        bench_mpi_show_messages(x, messages);
        snprintf(error, PLAIN_ERROR,
                 status ? "%.200s failed (exit status %d); its messages are above"
                        : "%.200s ended without all results (exit status %d)",
                 x->mpiexec, status);
    }
    free(ranks);
    free(numbers);
    free(messages);
    cli_command_release(&command);
    return ok && bench_mpi_check_rows(x, error);
}

/* ---- run ---- */

static bool bench_mpi_measure_all(mpi_experiment *x, char *error)
{
    if (!bench_mpi_find_compiler(x, error) || !bench_mpi_find_launcher(x, error)) {
        return false;
    }
    /* for the larger rows; host devices have 1 GiB otherwise */
    setenv("HEDDLE_HOST_MEMORY", "4G", 0);
    hd_runtime_info info = {.size = sizeof(info)};
    if (!cli_report_check(hd_open(NULL, &x->runtime), "hd_open", error) ||
        !cli_report_check(hd_runtime_get_info(x->runtime, &info), "hd_runtime_get_info", error)) {
        return false;
    }
    x->on_host = strcmp(info.driver, "host") == 0;
    hd_close(x->runtime); /* the ranks need the devices */
    x->runtime = NULL;
    const bench_options *o = x->options;
    x->rounds = o->rounds ? o->rounds : o->quick ? ROUNDS_QUICK : x->on_host ? ROUNDS_HOST : ROUNDS_GPU;
    x->ranks = o->ranks ? o->ranks : RANKS_DEFAULT;
    x->folder = cli_folder_make("heddle-bench");
    if (!x->folder) {
        snprintf(error, PLAIN_ERROR, "no folder for temporary files can be made (%s); set TMPDIR to another one",
                 strerror(errno));
        return false;
    }
    return bench_mpi_compile(x, error) && bench_mpi_run_ranks(x, error) &&
           cli_report_check(hd_open(NULL, &x->runtime), "hd_open", error);
}

static bool bench_mpi_measure(void *experiment, char *error)
{
    mpi_experiment *x = experiment;
    cli_process_begin();
    const bool ok = bench_mpi_measure_all(x, error);
    cli_folder_remove(x->folder);
    x->folder = NULL;
    cli_process_end(); /* after a signal, this program ends here */
    return ok;
}

static void bench_mpi_close(void *experiment)
{
    mpi_experiment *x = experiment;
    hd_close(x->runtime);
    free(x->mpicc);
    free(x->mpiexec);
}

int bench_mpi_run(const bench_options *options)
{
    static const report_benchmark benchmark = {"bench mpi", bench_mpi_measure, bench_mpi_close, bench_mpi_print_json};
    mpi_experiment *x = calloc(1, sizeof(*x));
    if (x) {
        x->options = options;
    }
    return cli_report_conduct(&benchmark, x, &options->run);
}
