/* levels.c - the levels of threads that MPI may provide, and the share of each rank in the devices.
 *
 * usage: mpiexec -n 2 levels single|funneled|serialized|multiple
 *
 * Threads: the main one, and with MPI_THREAD_SERIALIZED a second one. Locks: that of the program.
 */
#include <heddle/mpi.h>
#include "check.h"

enum { BYTES = 300000, EXCHANGES = 50 };

static hd_runtime *runtime;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* during each call of MPI */
static int rank, other;

/* The program sends messages of its own while those of Heddle are under way. */
static void *own_messages(void *unused)
{
    for (int i = 0; i < EXCHANGES; i++) {
        int got = -1, done = 0;
        MPI_Request requests[2];
        MPI_Status statuses[2];
        pthread_mutex_lock(&lock);
        MPI_Irecv(&got, 1, MPI_INT, other, 1, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(&i, 1, MPI_INT, other, 1, MPI_COMM_WORLD, &requests[1]);
        pthread_mutex_unlock(&lock);
        while (!done) {
            pthread_mutex_lock(&lock);
            MPI_Testall(2, requests, &done, statuses);
            pthread_mutex_unlock(&lock);
            sched_yield();
        }
        EXPECT(got == i);
    }
    return unused;
}

static void exchange(hd_mpi *mpi)
{
    hd_lane *lane = NULL;
    hd_buffer *a = NULL, *b = NULL;
    OK(hd_lane_get_default(runtime, 0, &lane));
    OK(hd_alloc(lane, BYTES, &a));
    OK(hd_alloc(lane, BYTES, &b));
    for (int i = 0; i < EXCHANGES; i++) {
        uint32_t word = 0;
        hd_ticket t;
        OK(hd_fill(a, 0, (uint32_t)(100 * rank + i), BYTES, NULL));
        OK(hd_mpi_sendrecv(mpi, hd_mpi_buffer(a), other, 2, hd_mpi_buffer(b), other, 2, MPI_COMM_WORLD, NULL, &t));
        OK(i % 2 ? hd_wait(t, HD_FOREVER) : hd_mpi_wait(mpi, t, HD_FOREVER));
        OK(hd_read(b, BYTES - 4, &word, 4));
        EXPECT(word == (uint32_t)(100 * other + i));
    }
    hd_free(a);
    hd_free(b);
}

/* Heddle and another thread of the program share the lock. */
static void share_the_lock(int level)
{
    hd_mpi_options options = {.size = sizeof options, .piece_bytes = 65536};
    hd_mpi *mpi = NULL;
    pthread_t thread;
    if (level == MPI_THREAD_SERIALIZED) {
        FAILS(hd_mpi_open(runtime, &options, &mpi), HD_ERROR_UNSUPPORTED);
        EXPECT(strstr(hd_message(), "MPI_THREAD_SERIALIZED") && strstr(hd_message(), "options.lock") && !mpi);
    }
    options.lock = &lock;
    OK(hd_mpi_open(runtime, &options, &mpi));
    EXPECT(pthread_create(&thread, NULL, own_messages, NULL) == 0);
    exchange(mpi);
    pthread_join(thread, NULL);
    OK(hd_mpi_close(mpi, HD_FOREVER));
}

/* Where the ranks of a machine share devices, each of them gets its part, and no device is left. */
static void divide_devices(void)
{
    for (int ranks = 1; ranks <= 9; ranks++) {
        for (int devices = 1; devices <= 9; devices++) {
            int users[9] = {0};
            for (int r = 0; r < ranks; r++) {
                hd_mpi_place p = {.rank = r, .ranks = ranks};
                hdmpi_place_choose(&p, devices);
                EXPECT(p.devices >= 1 && p.first >= 0 && p.first + p.devices <= devices);
                EXPECT(ranks > devices ? p.devices == 1 : p.shared == 1);
                for (int d = 0; d < p.devices; d++) {
                    users[p.first + d]++;
                }
            }
            for (int r = 0; r < ranks; r++) {
                hd_mpi_place p = {.rank = r, .ranks = ranks};
                hdmpi_place_choose(&p, devices);
                EXPECT(users[p.first] == p.shared);
            }
            for (int d = 0; d < devices; d++) {
                EXPECT(users[d] >= 1 && users[d] <= (ranks + devices - 1) / devices);
            }
        }
    }
}

/* A failure of one rank is that of all ranks. Different settings are none. */
static void open_with_one_wrong_rank(void)
{
    hd_runtime *own = NULL;
    hd_mpi_place place = {0};
    for (int wrong = 0; wrong < 2; wrong++) {
        FAILS(hd_mpi_runtime_open(MPI_COMM_WORLD, NULL, rank == wrong ? NULL : &own, NULL), HD_ERROR_ARGUMENT);
        EXPECT(strstr(hd_message(), rank == wrong ? "out is null"
                                    : wrong       ? "rank 1 failed with"
                                                  : "rank 0 failed with"));
        FAILS(hd_mpi_runtime_open(MPI_COMM_WORLD, rank == wrong ? "nonsense=1" : NULL, &own, NULL), HD_ERROR_OPTION);
        EXPECT(strstr(hd_message(), rank == wrong ? "nonsense" : wrong ? "rank 1 failed with" : "rank 0 failed with"));
        EXPECT(own == NULL);
        OK(hd_mpi_runtime_open(MPI_COMM_WORLD, rank == wrong ? "devices=\"0\"" : NULL, &own, &place));
        EXPECT(place.rank == rank && place.ranks == 2 && place.devices >= 1);
        OK(hd_close(own));
        own = NULL;
    }
    FAILS(hd_mpi_runtime_open(MPI_COMM_NULL, NULL, &own, NULL), HD_ERROR_ARGUMENT);
}

int main(int argc, char **argv)
{
    const char *const names[] = {"single", "funneled", "serialized", "multiple"};
    const int levels[] = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE};
    const char *const refused[] = {"MPI_THREAD_SINGLE", "MPI_THREAD_FUNNELED"};
    int wanted = 0, level = 0;
    hd_mpi *mpi = NULL;
    hd_mpi_place place = {0};
    while (wanted < 3 && argc > 1 && strcmp(argv[1], names[wanted]) != 0) {
        wanted++;
    }
    OK(hd_open(NULL, &runtime));
    FAILS(hd_mpi_open(runtime, NULL, &mpi), HD_ERROR_UNSUPPORTED);
    EXPECT(strstr(hd_message(), "MPI is not initialized"));
    FAILS(hd_mpi_runtime_open(MPI_COMM_WORLD, NULL, &runtime, NULL), HD_ERROR_UNSUPPORTED);
    OK(hd_close(runtime));
    MPI_Init_thread(&argc, &argv, levels[wanted], &level);
    EXPECT(level == levels[wanted]);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    other = 1 - rank;
    open_with_one_wrong_rank();
    OK(hd_mpi_runtime_open(MPI_COMM_WORLD, "host_devices=2 devices=\"1\"", &runtime, &place));
    EXPECT(place.devices == 1 && place.ranks == 2 && place.rank == rank && hd_device_count(runtime) == 1);
    OK(hd_close(runtime));
    OK(hd_mpi_runtime_open(MPI_COMM_WORLD, "host_devices=2", &runtime, &place));
    EXPECT(place.devices == 2 && place.shared == 1 && place.first == 0);
    if (wanted < 2) {
        FAILS(hd_mpi_open(runtime, NULL, &mpi), HD_ERROR_UNSUPPORTED);
        EXPECT(strstr(hd_message(), refused[wanted]) && strstr(hd_message(), "MPI_THREAD_MULTIPLE") && !mpi);
    } else {
        share_the_lock(level);
        divide_devices();
    }
    OK(hd_close(runtime));
    if (rank == 0) {
        printf("levels: %s is as promised\n", names[wanted]);
    }
    MPI_Finalize();
    return 0;
}
