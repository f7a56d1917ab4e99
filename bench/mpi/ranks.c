/* ranks.c - the program that runs on every rank of `heddle bench mpi` (ranks.h): opens MPI and
 * Heddle, and measures the rows in rounds.
 *
 * usage: ranks ROUNDS QUICK PARTS; QUICK is 0 or 1, and PARTS are names separated by commas, or
 * "all"
 *
 * Messages go from the first rank to the last one. Other ranks take part in reductions only, and
 * sleep meanwhile. The first rank prints the results (rows.h).
 *
 * Threads: the main one. Locks: none.
 * Always: every round measures each row once on each side, in changing order. All sides run in one
 * program, with one thread level.
 */
#include <unistd.h>
#include "ranks.h"

enum { WARM = 3, ITERATIONS_LEAST = 3, ITERATIONS_MOST = 4000 };

/* the measuring time of a side in a round */
static const double slice_ns = 40e6, slice_quick_ns = 4e6;

/* Between the sides, so that Heddle's progress thread sleeps while the other sides are measured. */
static const int64_t quiet_ns = 2 * HDMPI_LINGER_NS;

static void bench_ranks_pause(int64_t ns)
{
    const struct timespec t = {.tv_sec = 0, .tv_nsec = (long)ns};
    nanosleep(&t, NULL);
}

void bench_ranks_fail(const char *what, const char *why)
{
    int rank = -1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, why);
    bench_ranks_pause(500000000); /* MPICH loses a line that comes with MPI_Abort */
    MPI_Abort(MPI_COMM_WORLD, 1);
    _exit(1);
}

/* Waits for all ranks. A rank that waits long sleeps, and leaves the processor to the others. */
static void bench_ranks_meet(void)
{
    MPI_Request request;
    int done = 0;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    while (!done) {
        bench_ranks_pause(200000);
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    }
}

static int bench_ranks_order(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double bench_ranks_median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, bench_ranks_order);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* Runs `n` iterations. Returns the median of their times, on the first rank. */
static double bench_ranks_turn(ranks_state *x, int side, int n)
{
    static double ns[ITERATIONS_MOST];
    bench_ranks_pause(quiet_ns);
    bench_ranks_meet();
    if (x->row->part == RANKS_ALLREDUCE || x->sends || x->receives) {
        for (int i = 0; i < n; i++) {
            ns[i] = bench_ranks_iterate(x, side);
        }
    }
    bench_ranks_meet();
    return bench_ranks_median(ns, n);
}

/* Chooses work that takes a little longer than the message beside it. */
static void bench_ranks_work_size(ranks_state *x)
{
    double times[2] = {0, 1};
    x->work_count = 4;
    x->work_ns = 1000000;
    bench_ranks_turn(x, RANKS_WORK, WARM);
    bench_ranks_turn(x, RANKS_MESSAGE, WARM);
    times[0] = bench_ranks_turn(x, RANKS_MESSAGE, WARM);
    times[1] = bench_ranks_turn(x, RANKS_WORK, WARM) / x->work_count;
    MPI_Bcast(times, 2, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    x->work_ns = (int64_t)(1.2 * times[0]);
    x->work_count = 1 + (int)(1.2 * times[0] / times[1]);
}

static void bench_ranks_row_run(ranks_state *x, int number)
{
    int n[RANKS_SIDES] = {0};
    bench_ranks_memory_open(x);
    if (x->row->part == RANKS_BESIDE) {
        bench_ranks_work_size(x);
    }
    for (int side = 0; side < RANKS_SIDES; side++) {
        if (bench_ranks_has(x->row, side)) {
            bench_ranks_turn(x, side, WARM);
            const double ns = bench_ranks_turn(x, side, WARM);
            const double fit = (x->quick ? slice_quick_ns : slice_ns) / (ns > 1 ? ns : 1);
            n[side] = fit > ITERATIONS_MOST ? ITERATIONS_MOST : fit < ITERATIONS_LEAST ? ITERATIONS_LEAST : (int)fit;
        }
    }
    MPI_Bcast(n, RANKS_SIDES, MPI_INT, 0, MPI_COMM_WORLD);
    for (int round = 0; round < x->rounds; round++) {
        if (x->rank == 0) {
            printf("at %d %d\n", number, round);
            fflush(stdout);
        }
        for (int i = 0; i < RANKS_SIDES; i++) {
            const int side = round % 2 ? RANKS_SIDES - 1 - i : i;
            if (bench_ranks_has(x->row, side)) {
                const double ns = bench_ranks_turn(x, side, n[side]);
                if (x->rank == 0) {
                    printf("sample %d %d %d %.1f\n", number, side, round, ns);
                }
            }
        }
    }
    bench_ranks_memory_close(x);
}

/* True if the machines have room for the memory of the row on all ranks. */
static bool bench_ranks_fits(const ranks_state *x, const ranks_row *row)
{
    const double need = 8.0 * (double)(bench_ranks_window(row) * row->bytes) * x->ranks;
    int fits = (double)sysconf(_SC_AVPHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) > 2 * need;
    hd_device_info info = {.size = sizeof info};
    RANKS_TRY(hd_device_get_info(x->runtime, 0, &info));
    fits = fits && (double)info.memory_free_bytes > need;
    MPI_Allreduce(MPI_IN_PLACE, &fits, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    return fits;
}

static void bench_ranks_open(ranks_state *x, int level)
{
    static const char *const levels[] = {"single", "funneled", "serialized", "multiple"};
    hd_runtime_info info = {.size = sizeof info};
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    RANKS_TRY(hd_mpi_runtime_open(MPI_COMM_WORLD, NULL, &x->runtime, NULL));
    RANKS_TRY(hd_mpi_open(x->runtime, NULL, &x->mpi));
    RANKS_TRY(hd_runtime_get_info(x->runtime, &info));
    RANKS_TRY(hd_lane_get_default(x->runtime, 0, &x->lane));
    RANKS_TRY(hd_alloc_host(x->runtime, 4, &x->word));
    RANKS_TRY(hd_fill(x->word, 0, 0, 4, NULL));
    x->on_host = strcmp(info.driver, "host") == 0;
    for (int i = 0; i < 3; i++) {
        const size_t bytes = sizeof(float) * RANKS_N * RANKS_N;
        RANKS_TRY(x->on_host ? hd_alloc_host(x->runtime, 4, &x->matrix[i]) : hd_alloc(x->lane, bytes, &x->matrix[i]));
        RANKS_TRY(hd_fill(x->matrix[i], 0, 0, x->on_host ? 4 : bytes, NULL));
    }
    bench_ranks_driver_open(x, info.driver);
    if (x->rank == 0) {
        MPI_Get_library_version(library, &length);
        library[strcspn(library, "\n")] = 0;
        for (char *at = library; *at; at++) {
            *at = *at == '\t' ? ' ' : *at;
        }
        printf("fact mpi %s\n", library);
        printf("fact level %s\n", levels[level - MPI_THREAD_SINGLE < 4 ? level - MPI_THREAD_SINGLE : 3]);
        printf("fact driver %s\n", info.driver);
        printf("fact piece %d\n", HDMPI_PIECE_BYTES);
    }
}

static bool bench_ranks_is_wanted(const char *parts, ranks_part part)
{
    const size_t length = strlen(ranks_part_names[part]);
    for (const char *at = parts; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        if (strcspn(at, ",") == length && strncmp(at, ranks_part_names[part], length) == 0) {
            return true;
        }
    }
    return strcmp(parts, "all") == 0;
}

static void bench_ranks_close(ranks_state *x)
{
    uint64_t all = 0;
    MPI_Reduce(&x->verified, &all, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (x->rank == 0) {
        printf("verified %llu\n", (unsigned long long)all);
    }
    for (int i = 0; i < 3; i++) {
        hd_free(x->matrix[i]);
    }
    hd_free(x->word);
    RANKS_TRY(hd_mpi_close(x->mpi, HD_FOREVER));
    RANKS_TRY(hd_close(x->runtime));
}

int main(int argc, char **argv)
{
    static ranks_state x;
    int level = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &x.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &x.ranks);
    if (argc != 4 || x.ranks < 2) {
        bench_ranks_fail("ranks", argc != 4 ? "usage: ranks ROUNDS QUICK PARTS" : "mpiexec started one rank alone");
    }
    x.rounds = atoi(argv[1]);
    x.quick = strcmp(argv[2], "1") == 0;
    x.sends = x.rank == 0;
    x.receives = x.rank == x.ranks - 1;
    x.peer = x.sends ? x.ranks - 1 : 0;
    bench_ranks_open(&x, level);
    for (int i = 0; i < RANKS_ROWS; i++) {
        x.row = &ranks_rows[i];
        if (!bench_ranks_is_wanted(argv[3], x.row->part) || (x.quick && !x.row->quick)) {
            continue;
        }
        if (bench_ranks_fits(&x, x.row)) {
            bench_ranks_row_run(&x, i);
        } else if (x.rank == 0) {
            printf("note %d there is not enough free memory\n", i);
        }
    }
    bench_ranks_close(&x);
    MPI_Finalize();
    return 0;
}
