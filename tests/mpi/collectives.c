/* collectives.c - random collective operations, compared with a model.
 *
 * usage: mpiexec -n RANKS collectives OPERATIONS SEED
 *
 * All ranks compute the same list of operations from the seed. A thread for each communicator
 * submits the operations of that communicator in order, while up to IN_FLIGHT of them are
 * unfinished. Heddle makes the bytes before each operation, and reads the result behind it.
 *
 * Threads: the main one, and one for each communicator. Locks: none.
 */
#include <heddle/mpi.h>
#include "check.h"

enum { COMMS = 3, IN_FLIGHT = 6, PIECE = 16384, KINDS = 6 };

typedef struct operation {
    int kind, comm, root;
    size_t elements; /* of a rank */
    int in_place, memory;
    uint32_t word;
} operation;

static hd_runtime *runtime;
static hd_mpi *mpi;
static MPI_Comm comms[COMMS];
static int count;
static operation *list;

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % below;
}

static void list_make(uint64_t seed)
{
    static const size_t sizes[] = {0, 1, 7, 1000, PIECE / 4, 5 * PIECE / 4 + 3};
    uint64_t s = seed;
    list = calloc((size_t)count, sizeof *list);
    for (int i = 0; i < count; i++) {
        operation *o = &list[i];
        o->kind = (int)draw(&s, KINDS);
        o->comm = (int)draw(&s, COMMS);
        o->root = (int)draw(&s, 1000);
        o->elements = draw(&s, 3) ? sizes[draw(&s, 6)] : draw(&s, PIECE);
        o->in_place = (int)draw(&s, 2);
        o->memory = (int)draw(&s, 1000);
        o->word = (uint32_t)draw(&s, 100000);
    }
}

/* Element i that rank `rank` contributes. */
static int32_t element(const operation *o, int rank, size_t i)
{
    return (int32_t)((o->word + 1000003u * (uint32_t)rank + i * 7) % 100000);
}

/* What element i of the result is on rank `rank`. */
static int32_t expected(const operation *o, int rank, int ranks, size_t i)
{
    const size_t part = i / (o->elements ? o->elements : 1), in_part = i % (o->elements ? o->elements : 1);
    int32_t sum = 0;
    switch (o->kind) {
    case 0:
        return element(o, o->root % ranks, i);
    case 1:
    case 2:
        for (int r = 0; r < ranks; r++) {
            sum += element(o, r, i);
        }
        return sum;
    case 3:
        return element(o, (int)part, in_part);
    default:
        return element(o, (int)part, (size_t)rank * o->elements + in_part);
    }
}

typedef struct under_way {
    const operation *o;
    hd_buffer *in, *out, *staging, *result;
    hd_ticket ticket, checked;
    size_t results; /* elements; 0: this rank gets none */
} under_way;

static hd_buffer *buffer_make(hd_lane *lane, int memory, size_t elements)
{
    hd_buffer *b = NULL;
    const size_t bytes = 4 * elements + 4;
    OK(memory % 3 == 1   ? hd_alloc_host(runtime, bytes, &b)
       : memory % 3 == 2 ? hd_alloc_unified(lane, bytes, &b)
                         : hd_alloc(lane, bytes, &b));
    return b;
}

static void begin(under_way *u, hd_lane *lane)
{
    const operation *o = u->o;
    const MPI_Comm comm = comms[o->comm];
    int rank, ranks;
    int32_t *p = NULL;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    const int root = o->root % ranks, memory = o->memory + rank;
    const size_t n = o->elements, sent = o->kind == 4 ? n * (size_t)ranks : n;
    const size_t got = o->kind >= 3 ? n * (size_t)ranks : n;
    OK(hd_alloc_host(runtime, 4 * sent + 4, &u->staging));
    OK(hd_map(u->staging, HD_WRITE, (void **)&p));
    for (size_t i = 0; i < sent; i++) {
        p[i] = element(o, rank, i);
    }
    OK(hd_unmap(u->staging));
    u->in = buffer_make(lane, memory, sent);
    OK(hd_copy(u->in, 0, u->staging, 0, 4 * sent, NULL));
    const int same = o->kind == 0 || ((o->kind == 1 || o->kind == 2) && o->in_place);
    u->out = same ? u->in : buffer_make(lane, memory / 3, got);
    const hd_mpi_data from = hd_mpi_range(u->in, 0, 4 * sent), to = hd_mpi_range(u->out, 0, 4 * got);
    u->results = o->kind == 5 || (o->kind == 1 && rank != root) ? 0 : got;
    switch (o->kind) {
    case 0:
        OK(hd_mpi_bcast(mpi, from, root, comm, &u->ticket));
        break;
    case 1:
        OK(hd_mpi_reduce(mpi, from, to, HD_TYPE_I32, MPI_SUM, root, comm, &u->ticket));
        break;
    case 2:
        OK(hd_mpi_allreduce(mpi, from, to, HD_TYPE_I32, MPI_SUM, comm, &u->ticket));
        break;
    case 3:
        OK(hd_mpi_allgather(mpi, from, to, comm, &u->ticket));
        break;
    case 4:
        OK(hd_mpi_alltoall(mpi, from, to, comm, &u->ticket));
        break;
    default:
        OK(hd_mpi_barrier(mpi, comm, &u->ticket));
        break;
    }
    OK(hd_alloc_host(runtime, 4 * got + 4, &u->result));
    OK(hd_copy(u->result, 0, u->out, 0, 4 * u->results, &u->checked));
}

static void finish(under_way *u)
{
    const operation *o = u->o;
    int rank, ranks;
    int32_t *p = NULL;
    MPI_Comm_rank(comms[o->comm], &rank);
    MPI_Comm_size(comms[o->comm], &ranks);
    OK(hd_mpi_wait(mpi, u->ticket, HD_FOREVER));
    OK(hd_wait(u->checked, HD_FOREVER));
    OK(hd_map(u->result, HD_READ, (void **)&p));
    for (size_t i = 0; i < u->results; i++) {
        if (p[i] != expected(o, rank, ranks, i)) {
            FAIL("operation %d, kind %d, %zu elements, root %d, memory %d: element %zu is %d instead of %d",
                 (int)(o - list), o->kind, o->elements, o->root % ranks, o->memory, i, p[i],
                 expected(o, rank, ranks, i));
        }
    }
    OK(hd_unmap(u->result));
    hd_free(u->in);
    if (u->out != u->in) {
        hd_free(u->out);
    }
    hd_free(u->staging);
    hd_free(u->result);
}

static void *comm_run(void *argument)
{
    const int comm = (int)(intptr_t)argument;
    under_way ring[IN_FLIGHT];
    hd_lane *lane = NULL;
    int begun = 0;
    OK(hd_lane_get_default(runtime, comm % hd_device_count(runtime), &lane));
    for (int i = 0; i < count; i++) {
        if (list[i].comm != comm) {
            continue;
        }
        under_way *u = &ring[begun % IN_FLIGHT];
        if (begun++ >= IN_FLIGHT) {
            finish(u);
        }
        memset(u, 0, sizeof *u);
        u->o = &list[i];
        begin(u, lane);
    }
    for (int i = begun < IN_FLIGHT ? 0 : begun - IN_FLIGHT; i < begun; i++) {
        finish(&ring[i % IN_FLIGHT]);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    const hd_mpi_options options = {.size = sizeof options, .piece_bytes = PIECE};
    int level = 0, rank, ranks;
    pthread_t threads[COMMS];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    count = argc > 1 ? atoi(argv[1]) : 200;
    list_make(argc > 2 ? (uint64_t)atoll(argv[2]) : 1);
    comms[0] = MPI_COMM_WORLD;
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &comms[2]);
    OK(hd_mpi_runtime_open(MPI_COMM_WORLD, "host_devices=2", &runtime, NULL));
    OK(hd_mpi_open(runtime, &options, &mpi));
    for (int i = 0; i < COMMS; i++) {
        EXPECT(pthread_create(&threads[i], NULL, comm_run, (void *)(intptr_t)i) == 0);
    }
    for (int i = 0; i < COMMS; i++) {
        pthread_join(threads[i], NULL);
    }
    OK(hd_mpi_close(mpi, HD_FOREVER));
    OK(hd_close(runtime));
    unsigned long long bytes = 0; /* at least as many go from one rank to another */
    for (int i = 0; i < count; i++) {
        bytes += list[i].kind < 5 && (list[i].comm < 2 || ranks > 2) ? 4 * list[i].elements : 0;
    }
    free(list);
    MPI_Comm_free(&comms[1]);
    MPI_Comm_free(&comms[2]);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        printf("collectives: %d operations of %d ranks are as in the model, with %llu bytes between ranks\n", count,
               ranks, bytes);
    }
    end_of_rank();
    return 0;
}
