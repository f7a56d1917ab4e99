/* ended.c - calls through a link that was closed, or whose MPI was finalized.
 *
 * usage: mpiexec -n 2 ended
 *
 * Threads: the main one, and those of Heddle. Locks: none.
 */
#include <heddle/mpi.h>
#include "check.h"

static hd_runtime *runtime;
static hd_lane *lane;

/* The call fails with this status, and its message contains the text. After MPI_Finalize, MPI_Abort
 * cannot end the ranks. */
#define REFUSED(call, status, text)                                                                                    \
    do {                                                                                                               \
        const hd_status refused = (call);                                                                              \
        if (refused != (status) || !strstr(hd_message(), text)) {                                                      \
            fprintf(stderr, "%s: %s: %s\n", #call, hd_status_name(refused), hd_message());                             \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

static void a_closed_link_is_refused(hd_mpi_data data)
{
    hd_mpi *mpi = NULL;
    hd_ticket t;
    OK(hd_mpi_open(runtime, NULL, &mpi));
    OK(hd_mpi_barrier(mpi, MPI_COMM_WORLD, &t));
    OK(hd_mpi_close(mpi, HD_FOREVER));
    REFUSED(hd_mpi_close(mpi, HD_FOREVER), HD_ERROR_HANDLE, "hd_mpi_close: mpi is no open link");
    REFUSED(hd_mpi_send(mpi, data, 0, 0, MPI_COMM_WORLD, &t), HD_ERROR_HANDLE, "hd_mpi_send: mpi is no open link");
    REFUSED(hd_mpi_recv(mpi, data, 0, 0, MPI_COMM_WORLD, NULL, NULL, &t), HD_ERROR_HANDLE, "no open link");
    REFUSED(hd_mpi_bcast(mpi, data, 0, MPI_COMM_WORLD, &t), HD_ERROR_HANDLE, "no open link");
    REFUSED(hd_mpi_allgather(mpi, data, data, MPI_COMM_WORLD, &t), HD_ERROR_HANDLE, "no open link");
    REFUSED(hd_mpi_barrier(mpi, MPI_COMM_WORLD, &t), HD_ERROR_HANDLE, "no open link");
    REFUSED(hd_mpi_enable_direct(mpi, MPI_COMM_WORLD, NULL), HD_ERROR_HANDLE, "no open link");
    REFUSED(hd_mpi_wait(mpi, t, HD_FOREVER), HD_ERROR_HANDLE, "no open link");
}

int main(int argc, char **argv)
{
    int level = 0, rank = 0;
    hd_mpi *mpi = NULL;
    hd_buffer *b = NULL;
    hd_claim *gate = NULL;
    hd_ticket held, t;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    OK(hd_mpi_runtime_open(MPI_COMM_WORLD, "driver=host host_devices=1", &runtime, NULL));
    OK(hd_lane_get_default(runtime, 0, &lane));
    OK(hd_alloc(lane, 100, &b));
    a_closed_link_is_refused(hd_mpi_buffer(b));
    OK(hd_mpi_open(runtime, NULL, &mpi));
    OK(hd_mpi_barrier(mpi, MPI_COMM_WORLD, &t));
    OK(hd_wait(t, HD_FOREVER));
    /* the bytes of this send are not ready, so MPI knows nothing of it */
    const hd_arg use = hd_out(b);
    OK(hd_claim_begin(runtime, &use, 1, &gate));
    OK(hd_mpi_send(mpi, hd_mpi_buffer(b), 1 - rank, 1, MPI_COMM_WORLD, &held));
    MPI_Finalize();
    if (hd_claim_end(gate, HD_OK)) {
        fprintf(stderr, "%s\n", hd_message());
        return 1;
    }
    REFUSED(hd_wait(held, HD_FOREVER), HD_ERROR_FAILED, "send to");
    REFUSED(hd_mpi_send(mpi, hd_mpi_buffer(b), 1 - rank, 1, MPI_COMM_WORLD, &t), HD_ERROR_UNSUPPORTED,
            "hd_mpi_send: MPI was finalized");
    REFUSED(hd_mpi_barrier(mpi, MPI_COMM_WORLD, &t), HD_ERROR_UNSUPPORTED, "MPI was finalized");
    REFUSED(hd_mpi_close(mpi, HD_FOREVER), HD_ERROR_UNSUPPORTED, "call MPI_Finalize after hd_mpi_close");
    REFUSED(hd_mpi_close(mpi, HD_FOREVER), HD_ERROR_HANDLE, "no open link");
    REFUSED(hd_mpi_open(runtime, NULL, &mpi), HD_ERROR_UNSUPPORTED, "MPI was finalized");
    if (hd_close(runtime)) {
        fprintf(stderr, "%s\n", hd_message());
        return 1;
    }
    return 0;
}
