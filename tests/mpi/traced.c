/* traced.c - messages whose waits are known, or that are random, for a trace of each rank.
 *
 * usage: mpiexec -n RANKS traced planted                three ranks
 *        mpiexec -n RANKS traced random MESSAGES SEED
 *
 * The planted waits need no time: a message of MPI itself shows that the one who waits is there,
 * before the other one goes on. Each random message has a size of its own, which is its content.
 *
 * Threads: the main one, and those of Heddle. Locks: none.
 */
#include <heddle/mpi.h>
#include <string.h>
#include "check.h"

enum { PIECE = 4096, BYTES = 3 * PIECE, FACT = 99, TAGS = 3, COMMS = 3, IN_FLIGHT = 24 };

static hd_runtime *runtime;
static hd_lane *lane;
static hd_mpi *mpi;
static int rank, ranks;

/* ---- planted waits ---- */

static void tell(int to)
{
    MPI_Send(NULL, 0, MPI_BYTE, to, FACT, MPI_COMM_WORLD);
}

static void hear(int from)
{
    MPI_Recv(NULL, 0, MPI_BYTE, from, FACT, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Rank 2 waits for rank 1: first for its call, then for its bytes. */
static void a_sender_is_late(hd_buffer *data)
{
    hd_ticket t;
    if (rank == 1) {
        const hd_arg use = hd_out(data);
        hd_claim *gate = NULL;
        hear(2);
        OK(hd_claim_begin(runtime, &use, 1, &gate));
        OK(hd_mpi_send(mpi, hd_mpi_buffer(data), 2, 7, MPI_COMM_WORLD, &t));
        tell(2);
        hear(2);
        OK(hd_claim_end(gate, HD_OK));
        OK(hd_wait(t, HD_FOREVER));
    } else if (rank == 2) {
        OK(hd_mpi_recv(mpi, hd_mpi_buffer(data), 1, 7, MPI_COMM_WORLD, NULL, NULL, &t));
        tell(1);
        hear(1);
        EXPECT(!hd_done(t));
        tell(1);
        OK(hd_wait(t, HD_FOREVER));
    }
}

/* All wait for rank 0. */
static void a_rank_comes_last(hd_buffer *data, hd_buffer *sum)
{
    hd_ticket t;
    for (int r = 1; rank == 0 && r < ranks; r++) {
        hear(r);
    }
    OK(hd_mpi_allreduce(mpi, hd_mpi_buffer(data), hd_mpi_buffer(sum), HD_TYPE_U32, MPI_SUM, MPI_COMM_WORLD, &t));
    if (rank > 0) {
        EXPECT(!hd_done(t));
        tell(0);
    }
    OK(hd_wait(t, HD_FOREVER));
}

static void planted(void)
{
    hd_buffer *data = NULL, *sum = NULL;
    EXPECT(ranks == 3);
    OK(hd_alloc_host(runtime, BYTES, &data)); /* ready at once */
    OK(hd_alloc_host(runtime, BYTES, &sum));
    OK(hd_fill(data, 0, 1, BYTES, NULL));
    OK(hd_fill(sum, 0, 1, BYTES, NULL));
    OK(hd_buffer_wait(data, HD_WRITE, HD_FOREVER));
    OK(hd_buffer_wait(sum, HD_WRITE, HD_FOREVER));
    a_sender_is_late(data);
    MPI_Barrier(MPI_COMM_WORLD);
    a_rank_comes_last(data, sum);
    hd_free(data);
    hd_free(sum);
}

/* ---- random messages ---- */

typedef struct flight {
    hd_ticket ticket;
    hd_buffer *buffer;
    MPI_Status status;
    size_t received;
} flight;

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*state >> 33) % below;
}

/* All receives of a rank with one communicator and tag take messages of any rank, or none does.
 * With any tag, this holds for all tags. */
static int is_any(int to, int comm, int tag)
{
    return (to + comm + tag) % 2 == 0;
}

static void flight_end(flight *f)
{
    if (f->buffer) {
        OK(hd_wait(f->ticket, HD_FOREVER));
        hd_free(f->buffer);
        f->buffer = NULL;
    }
}

static flight *flight_begin(flight *all, int *at, size_t bytes, int i)
{
    flight *f = &all[(*at)++ % IN_FLIGHT];
    flight_end(f);
    if (i % 3) {
        OK(hd_alloc(lane, bytes, &f->buffer));
    } else {
        OK(hd_alloc_host(runtime, bytes, &f->buffer));
    }
    OK(hd_fill(f->buffer, 0, (uint32_t)i, bytes / 4 * 4, NULL));
    return f;
}

/* Every rank goes through the same list. So a send never waits for a receive that comes later than
 * the sends of other ranks for which that receive waits. */
static void random_messages(int count, uint64_t seed, MPI_Comm *comms)
{
    static flight sends[IN_FLIGHT], receives[IN_FLIGHT];
    int sent = 0, received = 0;
    const size_t most = (size_t)count * 4 + 4 + 2 * PIECE;
    for (int i = 0; i < count; i++) {
        const int from = (int)draw(&seed, (uint64_t)ranks), to = (int)draw(&seed, (uint64_t)ranks);
        const int comm = (int)draw(&seed, COMMS), tag = (int)draw(&seed, TAGS);
        const size_t bytes = (size_t)i * 4 + 4 + (draw(&seed, 8) ? 0 : 2 * PIECE);
        const int any_tag = comm == 2;
        if (rank == to) {
            flight *f = flight_begin(receives, &received, most, i);
            OK(hd_mpi_recv(mpi, hd_mpi_buffer(f->buffer), any_tag || is_any(to, comm, tag) ? MPI_ANY_SOURCE : from,
                           any_tag ? MPI_ANY_TAG : tag, comms[comm], &f->status, &f->received, &f->ticket));
        }
        if (rank == from) {
            flight *f = flight_begin(sends, &sent, bytes, i);
            OK(hd_mpi_send(mpi, hd_mpi_buffer(f->buffer), to, tag, comms[comm], &f->ticket));
        }
        if (draw(&seed, 16) == 0) {
            OK(hd_mpi_barrier(mpi, comms[comm], NULL));
        }
    }
    for (int i = 0; i < IN_FLIGHT; i++) {
        flight_end(&sends[i]);
        flight_end(&receives[i]);
    }
}

int main(int argc, char **argv)
{
    int level;
    MPI_Comm comms[COMMS];
    const hd_mpi_options options = {.size = sizeof options, .piece_bytes = PIECE};
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    comms[0] = MPI_COMM_WORLD;
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[2]);
    MPI_Comm_set_name(comms[1], "one");
    MPI_Comm_set_name(comms[2], "two");
    OK(hd_mpi_runtime_open(MPI_COMM_WORLD, "driver=host host_devices=1", &runtime, NULL));
    OK(hd_lane_get_default(runtime, 0, &lane));
    OK(hd_mpi_open(runtime, &options, &mpi));
    if (argc > 3 && strcmp(argv[1], "random") == 0) {
        random_messages(atoi(argv[2]), strtoull(argv[3], NULL, 10), comms);
    } else {
        planted();
    }
    OK(hd_mpi_trace_clock(MPI_COMM_WORLD, runtime));
    OK(hd_mpi_close(mpi, HD_FOREVER));
    OK(hd_close(runtime));
    MPI_Comm_free(&comms[1]);
    MPI_Comm_free(&comms[2]);
    MPI_Finalize();
    return 0;
}
