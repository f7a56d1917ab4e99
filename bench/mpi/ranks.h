/* ranks.h - shared by the files of the program that runs on the ranks of `heddle bench mpi`. The
 * user's mpicc compiles it, so it uses public headers only.
 *
 *    ranks.c   the program: opens MPI and Heddle, and measures the rows in rounds
 *    sides.c   the memory of a row, and one iteration of each side
 *
 * Threads: the main one. Locks: none.
 * Failures: a rank that cannot go on prints a line on stderr, and ends all ranks.
 */
#ifndef BENCH_MPI_RANKS_H
#define BENCH_MPI_RANKS_H

#include <heddle/mpi.h>
#include "rows.h"

enum { RANKS_TAG = 1, RANKS_TAG_BACK = 2, RANKS_N = 1024 };

/* Entry points of the driver, for the copies by hand. */
typedef struct ranks_driver {
    int (*cuInit)(unsigned);
    int (*cuDeviceGetCount)(int *);
    int (*cuDeviceGet)(int *, int);
    int (*cuDeviceGetUuid)(unsigned char *, int);
    int (*cuDevicePrimaryCtxRetain)(void **, int);
    int (*cuCtxSetCurrent)(void *);
    int (*cuMemAlloc)(unsigned long long *, size_t);
    int (*cuMemFree)(unsigned long long);
    int (*cuMemHostAlloc)(void **, size_t, unsigned);
    int (*cuMemFreeHost)(void *);
    int (*cuMemcpyHtoD)(unsigned long long, const void *, size_t);
    int (*cuMemcpyDtoH)(void *, unsigned long long, size_t);
} ranks_driver;

typedef struct ranks_state {
    int rank, ranks;
    bool sends, receives; /* the first rank sends, and the last one receives */
    int peer;             /* the last rank; for it, the first one */
    int rounds;
    bool quick, on_host;
    ranks_driver driver;
    hd_runtime *runtime;
    hd_mpi *mpi;
    hd_lane *lane;
    /* the memory of the row */
    const ranks_row *row;
    size_t window, bytes; /* bytes: of the whole window */
    char *plain_from, *plain_to;
    char *hand_host; /* pinned */
    unsigned long long hand_from, hand_to;
    hd_buffer *from, *to;
    hd_buffer *word;      /* pinned, for the answer to a window */
    hd_buffer *matrix[3]; /* for the work of the device */
    int64_t work_ns;      /* on host devices: how long the work takes */
    int work_count;       /* with GPUs: products */
    uint64_t verified;
} ranks_state;

/* Ends all ranks. `what` names what failed. */
void bench_ranks_fail(const char *what, const char *why);

#define RANKS_TRY(call)                                                                                                \
    do {                                                                                                               \
        if ((call) != HD_OK) {                                                                                         \
            bench_ranks_fail(#call, hd_message());                                                                     \
        }                                                                                                              \
    } while (0)

#define RANKS_DRIVER(x, name, arguments)                                                                               \
    do {                                                                                                               \
        if ((x)->driver.name arguments) {                                                                              \
            bench_ranks_fail(#name, "the driver reported an error");                                                   \
        }                                                                                                              \
    } while (0)

int64_t bench_ranks_now(void);

/* Finds the driver's entry points, and makes the context of Heddle's first device current. */
void bench_ranks_driver_open(ranks_state *x, const char *driver);

/* Makes the memory of a row, and fills what will be sent. */
void bench_ranks_memory_open(ranks_state *x);
/* Compares what arrived, and frees the memory. */
void bench_ranks_memory_close(ranks_state *x);

/* One iteration of a side, on every rank that takes part. Returns its nanoseconds on the first
 * rank. */
double bench_ranks_iterate(ranks_state *x, int side);

#endif
