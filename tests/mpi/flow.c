/* flow.c - messages flow while many receives wait for messages that do not come.
 *
 * usage: mpiexec -n 2 flow
 *
 * All receives together need more pinned memory than the option pinned_limit allows. Each message
 * that depends on none of them must still arrive.
 *
 * Threads: the main one, and those of Heddle. Locks: none.
 */
#include <heddle/mpi.h>
#include "check.h"

enum { WAITING = 100, HELD = 60000, LONG = (3 << 20) + 5, EXCHANGES = 10 };

static hd_runtime *runtime;
static hd_lane *lane;
static hd_mpi *mpi;
static int rank, other;

static hd_buffer *device(size_t bytes, uint32_t word)
{
    hd_buffer *b = NULL;
    OK(hd_alloc(lane, bytes, &b));
    OK(hd_fill(b, 0, word, bytes / 4 * 4, NULL));
    return b;
}

static void exchange(size_t bytes, uint32_t word)
{
    hd_buffer *in = device(bytes, word + (uint32_t)rank), *out = device(bytes, 0);
    hd_ticket sent, got;
    uint32_t last = 0;
    OK(hd_mpi_sendrecv(mpi, hd_mpi_buffer(in), other, 8, hd_mpi_buffer(out), other, 8, MPI_COMM_WORLD, &sent, &got));
    OK(hd_wait(got, HD_FOREVER));
    OK(hd_wait(sent, HD_FOREVER));
    OK(hd_read(out, bytes / 4 * 4 - 4, &last, 4));
    EXPECT(last == word + (uint32_t)other);
    hd_free(in);
    hd_free(out);
}

int main(int argc, char **argv)
{
    hd_buffer *waiting[WAITING];
    hd_ticket late[WAITING], sent[WAITING];
    int level = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    other = 1 - rank;
    OK(hd_mpi_runtime_open(MPI_COMM_WORLD, "driver=host host_devices=1 pinned_limit=4M", &runtime, NULL));
    OK(hd_lane_get_default(runtime, 0, &lane));
    OK(hd_mpi_open(runtime, NULL, &mpi));
    for (int i = 0; i < WAITING; i++) {
        waiting[i] = device(HELD, 0);
        OK(hd_mpi_recv(mpi, hd_mpi_buffer(waiting[i]), other, 7, MPI_COMM_WORLD, NULL, NULL, &late[i]));
    }
    for (int i = 0; i < EXCHANGES; i++) {
        exchange(1000, 100);
        exchange(LONG, 200);
    }
    for (int i = 0; i < WAITING; i++) {
        EXPECT(!hd_done(late[i]));
    }
    /* late is not never: the messages arrive in their order */
    hd_buffer *numbers = device(HELD, 0);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < WAITING; i++) {
        OK(hd_fill(numbers, 0, (uint32_t)i, HELD, NULL));
        OK(hd_mpi_send(mpi, hd_mpi_buffer(numbers), other, 7, MPI_COMM_WORLD, &sent[i]));
        OK(hd_mpi_wait(mpi, sent[i], HD_FOREVER));
    }
    for (int i = 0; i < WAITING; i++) {
        uint32_t word = 999;
        OK(hd_wait(late[i], HD_FOREVER));
        OK(hd_read(waiting[i], HELD - 4, &word, 4));
        EXPECT(word == (uint32_t)i);
        hd_free(waiting[i]);
    }
    hd_free(numbers);
    OK(hd_mpi_close(mpi, HD_FOREVER));
    OK(hd_close(runtime));
    if (rank == 0) {
        printf("flow: all messages arrived\n");
    }
    MPI_Finalize();
    return 0;
}
