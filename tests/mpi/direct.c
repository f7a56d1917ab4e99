/* direct.c - device memory goes directly between MPI and the device only where a test passed.
 *
 * usage: mpiexec -n RANKS direct WAY
 *
 * Host devices use the CPU's memory, so every MPI can use their memory. This program stands between
 * Heddle and MPI, and makes MPI behave as WAY says.
 *
 *   - unaware: MPI says that it cannot use device memory
 *   - good: MPI says that it can, and it can
 *   - send: it sends wrong bytes from device memory
 *   - receive: what it receives never reaches device memory
 *   - long: long messages between two devices are wrong at their end
 *   - refuse: it refuses device memory with an error
 *   - one: rank 1 cannot use device memory, and says so
 *
 * Threads: the main one, and those of Heddle.
 * Locks: none.
 */
#include <heddle/mpi.h>
#include <stdatomic.h>
#include <string.h>
#include "check.h"

enum { PIECE = 65536, BYTES = 3 * PIECE + 100 };

static const char *way;
static _Atomic int direct_sends, direct_receives; /* since the test */
static int rank, ranks;

static int is(const char *name)
{
    return strcmp(way, name) == 0;
}

/* True for memory of host devices. */
static int is_device(const void *p)
{
    char line[512];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    EXPECT(maps != NULL);
    while (!found && fgets(line, sizeof line, maps)) {
        unsigned long from = 0, to = 0;
        found = sscanf(line, "%lx-%lx", &from, &to) == 2 && (unsigned long)p >= from && (unsigned long)p < to &&
                strstr(line, "heddle-host-memory") != NULL;
    }
    fclose(maps);
    return found;
}

int MPIX_Query_cuda_support(void)
{
    return !is("unaware") && !(is("one") && rank == 1);
}

/* Wrong bytes in place of those of a device. */
static const void *sent_instead(const void *p, int n)
{
    static char wrong[PIECE];
    return is("send") && n <= PIECE && is_device(p) ? wrong : p;
}

static void *received_instead(void *p, int n)
{
    static char lost[PIECE];
    return is("receive") && n <= PIECE && is_device(p) ? lost : p;
}

int MPI_Sendrecv(const void *from, int n, MPI_Datatype type, int to_rank, int send_tag, void *to, int room,
                 MPI_Datatype room_type, int from_rank, int receive_tag, MPI_Comm comm, MPI_Status *status)
{
    if (is("refuse") && (is_device(from) || is_device(to))) {
        return MPI_ERR_BUFFER;
    }
    const int code = PMPI_Sendrecv(sent_instead(from, n), n, type, to_rank, send_tag, received_instead(to, room), room,
                                   room_type, from_rank, receive_tag, comm, status);
    if (is("long") && room >= PIECE && is_device(to) && is_device(from)) {
        ((char *)to)[room - 1] ^= 1;
    }
    return code;
}

int MPI_Isend(const void *from, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request)
{
    direct_sends += n && is_device(from);
    return PMPI_Isend(sent_instead(from, n), n, type, to, tag, comm, request);
}

int MPI_Irecv(void *to, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request)
{
    direct_receives += n && is_device(to);
    return PMPI_Irecv(received_instead(to, n), n, type, from, tag, comm, request);
}

static unsigned char byte_of(int from, size_t i, int round)
{
    return (unsigned char)(i * 7 + (size_t)from * 31 + (size_t)round * 101 + i / 251);
}

/* A message around the ring of ranks: from device memory to device memory, in the middle of both
 * buffers. */
static void ring(hd_runtime *runtime, hd_mpi *mpi, MPI_Comm comm, int round)
{
    hd_buffer *a = NULL, *b = NULL;
    hd_lane *lane = NULL;
    static unsigned char bytes[BYTES];
    hd_ticket sent, received;
    OK(hd_lane_get_default(runtime, round % hd_device_count(runtime), &lane));
    OK(hd_alloc(lane, BYTES + 40, &a));
    OK(hd_alloc(lane, BYTES + 80, &b));
    for (size_t i = 0; i < BYTES; i++) {
        bytes[i] = byte_of(rank, i, round);
    }
    OK(hd_write(a, 40, bytes, BYTES));
    OK(hd_mpi_sendrecv(mpi, hd_mpi_range(a, 40, BYTES), (rank + 1) % ranks, round, hd_mpi_range(b, 80, BYTES),
                       (rank + ranks - 1) % ranks, round, comm, &sent, &received));
    OK(hd_mpi_wait(mpi, received, HD_FOREVER));
    OK(hd_read(b, 80, bytes, BYTES));
    for (size_t i = 0; i < BYTES; i++) {
        EXPECT(bytes[i] == byte_of((rank + ranks - 1) % ranks, i, round));
    }
    OK(hd_mpi_wait(mpi, sent, HD_FOREVER));
    hd_free(a);
    hd_free(b);
}

int main(int argc, char **argv)
{
    const hd_mpi_options options = {.size = sizeof options, .piece_bytes = PIECE};
    int level = 0, passed = -1;
    hd_runtime *runtime = NULL;
    hd_mpi *mpi = NULL;
    MPI_Comm comm;
    way = argc > 1 ? argv[1] : "good";
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    OK(hd_mpi_runtime_open(MPI_COMM_WORLD, rank ? "driver=host host_devices=2" : "driver=host host_devices=1", &runtime,
                           NULL));
    OK(hd_mpi_open(runtime, &options, &mpi));
    ring(runtime, mpi, comm, 0);
    EXPECT(direct_sends == 0 && direct_receives == 0); /* nothing is direct before the test */

    const hd_status status = hd_mpi_enable_direct(mpi, comm, &passed);
    const char *placement = getenv("HEDDLE_PLACEMENT");
    const int in_process = !placement || strcmp(placement, "process") != 0;
    const int direct = is("good") && in_process;
    OK(status);
    EXPECT(passed == (direct ? ranks : is("one") && in_process && rank != 1 ? ranks - 1 : 0));
    for (int round = 1; round < 4; round++) {
        ring(runtime, mpi, comm, round);
    }
    if (!is("one")) {
        EXPECT(direct_sends == (direct ? 3 * 4 : 0));
        EXPECT(direct_receives == (direct ? 3 * 4 : 0));
    } else {
        EXPECT(rank != 1 || (direct_sends == 0 && direct_receives == 0));
    }
    if (is("good")) { /* a later test that fails ends direct messages */
        way = "send";
        OK(hd_mpi_enable_direct(mpi, comm, &passed));
        const int until_now = direct_sends;
        ring(runtime, mpi, comm, 4);
        EXPECT(passed == 0 && direct_sends == until_now);
        way = "good";
    }
    const int before = direct_sends;
    ring(runtime, mpi, MPI_COMM_WORLD, 5); /* only `comm` was tested */
    EXPECT(direct_sends == before);
    FAILS(hd_mpi_enable_direct(NULL, comm, NULL), HD_ERROR_ARGUMENT);
    FAILS(hd_mpi_enable_direct(mpi, MPI_COMM_NULL, NULL), HD_ERROR_ARGUMENT);
    OK(hd_mpi_close(mpi, HD_FOREVER));
    OK(hd_close(runtime));
    MPI_Comm_free(&comm);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        printf("direct: %s: all bytes arrived\n", way);
    }
    MPI_Finalize();
    return 0;
}
