/* units.c - a program of two translation units, which both include heddle/mpi.h. One opens the
 * link, and the other one uses it.
 *
 * usage: mpiexec -n 1 units; compiled twice, once with -DUNITS_USE
 *
 * Threads: the main one. Locks: that of the link, for a look at the progress thread.
 */
#include <heddle/mpi.h>
#include "check.h"

void units_use(hd_runtime *runtime, hd_mpi *mpi);

#ifdef UNITS_USE

enum { BYTES = 3 * HDMPI_PIECE_LEAST };

/* A message of several pieces to this rank itself. Only the progress thread completes it. */
void units_use(hd_runtime *runtime, hd_mpi *mpi)
{
    hd_buffer *a = NULL, *b = NULL;
    hd_ticket sent, received;
    uint32_t word = 0;
    OK(hd_alloc_host(runtime, BYTES, &a));
    OK(hd_alloc_host(runtime, BYTES, &b));
    OK(hd_fill(a, 0, 7, BYTES, NULL));
    OK(hd_mpi_sendrecv(mpi, hd_mpi_buffer(a), 0, 1, hd_mpi_buffer(b), 0, 1, MPI_COMM_WORLD, &sent, &received));
    OK(hd_wait(received, 60000000000));
    OK(hd_wait(sent, 60000000000));
    OK(hd_read(b, BYTES - 4, &word, 4));
    EXPECT(word == 7);
    /* a call also ends the earlier operations that MPI completes with it, so they do not pile up */
    OK(hd_mpi_send(mpi, hd_mpi_range(a, 0, 4), 0, 1, MPI_COMM_WORLD, &sent));
    OK(hd_mpi_recv(mpi, hd_mpi_range(b, 0, 4), 0, 1, MPI_COMM_WORLD, NULL, NULL, &received));
    EXPECT(hd_done(received) && hd_done(sent));
    /* this unit sees that the link of the other unit uses the communicator */
    hd_mpi *second = NULL;
    OK(hd_mpi_open(runtime, NULL, &second));
    FAILS(hd_mpi_barrier(second, MPI_COMM_WORLD, NULL), HD_ERROR_ACCESS);
    OK(hd_mpi_close(second, HD_FOREVER));
    hd_free(a);
    hd_free(b);
}

#else

int main(int argc, char **argv)
{
    const hd_mpi_options options = {.size = sizeof options, .piece_bytes = HDMPI_PIECE_LEAST};
    hd_runtime *runtime = NULL;
    hd_mpi *mpi = NULL;
    int level = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    OK(hd_mpi_runtime_open(MPI_COMM_WORLD, "driver=host host_devices=1", &runtime, NULL));
    OK(hd_mpi_open(runtime, &options, &mpi));
    units_use(runtime, mpi);
    /* from here on, the thread sleeps until a call of the other unit wakes it */
    for (int looks = 1; looks;) {
        hdmpi_lock(mpi);
        looks = mpi->looks_soon;
        hdmpi_unlock(mpi);
        sched_yield();
    }
    units_use(runtime, mpi);
    OK(hd_mpi_close(mpi, HD_FOREVER));
    OK(hd_close(runtime));
    MPI_Finalize();
    return 0;
}

#endif
