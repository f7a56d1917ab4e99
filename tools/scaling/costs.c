/* costs.c - measures what the steps of examples/mpi/wave.c consist of, for tools/make-scaling.
 *
 * usage: mpiexec -n RANKS costs KERNEL_FILE SECONDS PLANES...
 *
 * Rank 0 writes one JSON object. `costs` contains the nanoseconds of single operations, and `steps`
 * those of a whole step with PLANES planes on each rank. The rounds of one figure take about
 * SECONDS; 0: one round. All ranks measure a round at the same time, and the slowest rank counts.
 * Each rank uses one device.
 *
 * Threads: the main one, and those of Heddle and MPI. Locks: none. */
#define _GNU_SOURCE /* sched_getaffinity */
#define main wave_main
#include "../../examples/mpi/wave.c"
#undef main
#include <sched.h>
#include <sys/resource.h>

enum { ROUNDS_LEAST = 7, ROUNDS_MOST = 60, PLANES_OF_GPU = 16384, PLANES_OF_HOST = 512 };

static example e;
static wave w;
static hd_buffer *pinned;
static double seconds_most; /* of all rounds of one figure */
static const char *separator = "";

/* Measures one round. Returns the nanoseconds of one operation. */
typedef double measure(size_t size);

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Measures in rounds, and writes a row. */
static void report(const char *name, size_t size, measure *one)
{
    double ns[ROUNDS_MOST];
    const double begin = MPI_Wtime();
    int n = 0, more = 1;
    one(size); /* also loads and allocates */
    while (more) {
        MPI_Barrier(MPI_COMM_WORLD);
        ns[n] = one(size);
        MPI_Allreduce(MPI_IN_PLACE, &ns[n], 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        n++;
        more = (seconds_most > 0 && n < ROUNDS_LEAST) || (n < ROUNDS_MOST && MPI_Wtime() - begin < seconds_most);
        MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    qsort(ns, (size_t)n, sizeof *ns, compare);
    if (e.rank == 0) {
        printf("%s\n  {\"name\": \"%s\", \"size\": %zu, \"least_ns\": %.0f, \"median_ns\": %.0f, \"rounds\": %d}",
               separator, name, size, ns[0], ns[n / 2], n);
        separator = ",";
    }
}

static double since(double start, int operations)
{
    return 1e9 * (MPI_Wtime() - start) / operations;
}

/* A launch for `planes` planes, in a lane that is never empty. */
static double measure_kernel(size_t planes)
{
    const int n = planes < 64 ? 32 : 4;
    const double start = MPI_Wtime();
    for (int i = 0; i < n; i++) {
        advance(&w, w.slabs, i % 2, 0, planes, NULL);
    }
    must(hd_lane_wait(w.slabs->lane, HD_FOREVER));
    return since(start, n);
}

/* The same, while the program waits in hd_mpi_wait, which looks for messages. */
static double measure_kernel_waited(size_t planes)
{
    enum { N = 4 };
    hd_ticket ticket;
    const double start = MPI_Wtime();
    for (int i = 0; i < N; i++) {
        advance(&w, w.slabs, i % 2, 0, planes, &ticket);
    }
    must(hd_mpi_wait(w.mpi, ticket, HD_FOREVER));
    return since(start, N);
}

/* The calling thread's time for a launch. */
static double measure_launch_call(size_t planes)
{
    enum { N = 32 };
    const double start = MPI_Wtime();
    for (int i = 0; i < N; i++) {
        advance(&w, w.slabs, i % 2, 0, planes, NULL);
    }
    const double ns = since(start, N);
    must(hd_lane_wait(w.slabs->lane, HD_FOREVER));
    return ns;
}

/* The calling thread's time for the messages of a step. */
static double measure_exchange_call(size_t bytes)
{
    enum { N = 8 };
    hd_ticket ticket;
    (void)bytes;
    const double start = MPI_Wtime();
    for (int i = 0; i < N; i++) {
        exchange(&w, 0);
    }
    const double ns = since(start, N);
    step(&w, 0, &ticket);
    must(hd_mpi_wait(w.mpi, ticket, HD_FOREVER));
    return ns;
}

static double measure_copy(size_t bytes, int to_device)
{
    enum { N = 16 };
    hd_buffer *field = w.slabs->field[0];
    const double start = MPI_Wtime();
    for (int i = 0; i < N; i++) {
        hd_ticket t;
        must(hd_copy(to_device ? field : pinned, 0, to_device ? pinned : field, 0, bytes, &t));
        must(hd_wait(t, HD_FOREVER));
    }
    return since(start, N);
}

static double measure_copy_to_pinned(size_t bytes)
{
    return measure_copy(bytes, 0);
}

static double measure_copy_to_device(size_t bytes)
{
    return measure_copy(bytes, 1);
}

/* A message in each direction, from plain memory and by MPI alone. */
static double measure_network(size_t bytes)
{
    enum { N = 16 };
    static char out[1 << 20], in[1 << 20];
    const double start = MPI_Wtime();
    for (int i = 0; i < N; i++) {
        MPI_Sendrecv(out, (int)bytes, MPI_BYTE, 1 - e.rank, 9, in, (int)bytes, MPI_BYTE, 1 - e.rank, 9, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    }
    return since(start, N);
}

/* A step of all ranks. */
static double measure_step(size_t planes)
{
    const int n = planes > 64 ? 4 : 16;
    hd_ticket tickets[STEPS_AHEAD];
    const double start = MPI_Wtime();
    for (int i = 0; i < n; i++) {
        if (i >= STEPS_AHEAD) {
            must(hd_mpi_wait(w.mpi, tickets[i % STEPS_AHEAD], HD_FOREVER));
        }
        step(&w, i % 2, &tickets[i % STEPS_AHEAD]);
    }
    must(hd_mpi_wait(w.mpi, tickets[(n - 1) % STEPS_AHEAD], HD_FOREVER));
    return since(start, n);
}

static double processor_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* The time of this process on its processors for a step. */
static double measure_step_processor(size_t planes)
{
    const double start = processor_seconds(), begun = MPI_Wtime();
    const double ns = measure_step(planes);
    return ns * (processor_seconds() - start) / (MPI_Wtime() - begun);
}

/* Opens a link, and gives the device `planes` planes. */
static void slabs_open(size_t planes, int below, int above)
{
    must(hd_mpi_open(e.runtime, NULL, &w.mpi));
    w.below = below;
    w.above = above;
    begin(&e, &w, 0, planes);
}

static void slabs_close(void)
{
    must(hd_mpi_close(w.mpi, HD_FOREVER));
    must(hd_free(w.slabs->field[0]));
    must(hd_free(w.slabs->field[1]));
    free(w.slabs);
}

static void costs_of_one_rank(size_t planes_most)
{
    slabs_open(planes_most, MPI_PROC_NULL, MPI_PROC_NULL);
    report("launch_call", R, measure_launch_call);
    for (size_t planes = 1; planes <= planes_most; planes *= 2) {
        report("kernel", planes, measure_kernel);
    }
    report("kernel_waited", 64, measure_kernel_waited);
    for (size_t bytes = R * PLANE; bytes <= 16 * R * PLANE; bytes *= 16) {
        report("copy_to_pinned", bytes, measure_copy_to_pinned);
        report("copy_to_device", bytes, measure_copy_to_device);
    }
    slabs_close();
}

/* With one neighbour and with two, which are the same rank. */
static void costs_of_two_ranks(void)
{
    const int other = 1 - e.rank;
    for (size_t bytes = 4096; bytes <= 1 << 20; bytes *= 16) {
        report("network", bytes, measure_network);
    }
    slabs_open(2 * R, e.rank ? other : MPI_PROC_NULL, e.rank ? MPI_PROC_NULL : other);
    report("edges_and_messages_1", 2 * R, measure_step);
    report("edges_and_messages_1_processor", 2 * R, measure_step_processor);
    slabs_close();
    slabs_open(2 * R, other, other);
    report("edges_and_messages_2", 2 * R, measure_step);
    report("edges_and_messages_2_processor", 2 * R, measure_step_processor);
    report("exchange_call", R * PLANE, measure_exchange_call);
    slabs_close();
}

/* The number of ranks that use this rank's GPU. */
static int count_ranks_of_device(const hd_device_info *info)
{
    char mine[64] = "", *all = calloc((size_t)e.ranks, sizeof mine);
    int same = 0;
    demand(all != NULL, "no memory");
    snprintf(mine, sizeof mine, "%s", info->bus_id);
    MPI_Allgather(mine, sizeof mine, MPI_CHAR, all, sizeof mine, MPI_CHAR, MPI_COMM_WORLD);
    for (int i = 0; i < e.ranks; i++) {
        same += strcmp(all + (size_t)i * sizeof mine, mine) == 0;
    }
    free(all);
    return info->is_host ? 1 : same;
}

int main(int argc, char **argv)
{
    cpu_set_t set;
    hd_device_info info = {.size = sizeof info};
    e = (example){.cells = 1, .steps = 1};
    seconds_most = argc > 2 ? atof(argv[2]) : 0;
    example_begin(&e, argc > 1 ? 2 : argc, argv);
    w.n = 1;
    must(hd_kernel_get(e.module, "wave", &w.kernel));
    must(hd_alloc_host(e.runtime, 16 * R * PLANE, &pinned));
    must(hd_device_get_info(e.runtime, 0, &info));
    sched_getaffinity(0, sizeof set, &set);
    const int sharing = count_ranks_of_device(&info);
    if (e.rank == 0) {
        printf("{\"ranks\": %d, \"device\": \"%s\", \"is_host\": %d, \"ranks_of_a_device\": %d, "
               "\"processors_of_a_rank\": %d, \"costs\": [",
               e.ranks, info.name, info.is_host, sharing, CPU_COUNT(&set));
    }
    if (e.ranks == 1) {
        costs_of_one_rank(info.is_host ? PLANES_OF_HOST : PLANES_OF_GPU);
    } else if (e.ranks == 2) {
        costs_of_two_ranks();
    }
    if (e.rank == 0) {
        printf("], \"steps\": [");
        separator = "";
    }
    for (int i = 3; i < argc; i++) {
        const long planes = atol(argv[i]);
        demand(planes >= 2 * R, "costs: PLANES must be at least 8");
        slabs_open((size_t)planes, e.rank ? e.rank - 1 : MPI_PROC_NULL,
                   e.rank + 1 < e.ranks ? e.rank + 1 : MPI_PROC_NULL);
        report("step", (size_t)planes, measure_step);
        slabs_close();
    }
    if (e.rank == 0) {
        printf("]}\n");
    }
    return example_end(&e, 1);
}
