/* libraries.h - the parts of CUDA's runtime and NCCL 2 that the guide to MPI calls, as the headers
 * of these libraries declare them. So the guide's blocks compile without them.
 *
 * Threads, locks: none. */
#ifndef HEDDLE_TESTS_MPI_LIBRARIES_H
#define HEDDLE_TESTS_MPI_LIBRARIES_H

#include <stddef.h>

typedef struct ncclUniqueId {
    char internal[128];
} ncclUniqueId;
typedef struct ncclComm *ncclComm_t;
enum { ncclSum = 0, ncclFloat = 7 };

int cudaSetDevice(int device);
int ncclGetUniqueId(ncclUniqueId *id);
int ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank);
int ncclAllReduce(const void *from, void *to, size_t count, int type, int operation, ncclComm_t comm, void *stream);

/* The context of the guide's lane call. */
struct sum {
    ncclComm_t comm;
    void *at;
    size_t count;
    int device;
};

#endif
