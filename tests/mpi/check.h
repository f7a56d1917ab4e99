/* check.h - checks in programs of several ranks: a check that fails ends all ranks.
 *
 * Threads: any. Locks: none.
 */
#ifndef HEDDLE_TESTS_MPI_CHECK_H
#define HEDDLE_TESTS_MPI_CHECK_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <heddle.h>

/* Ends the program. With NO_FINALIZE in the environment, all ranks end after a barrier instead:
 * over TCP between hosts, MPI_Finalize of MPICH 4.0 and UCX 1.13 sometimes waits forever. */
static inline void end_of_rank(void)
{
    if (getenv("NO_FINALIZE")) {
        fflush(stdout);
        MPI_Barrier(MPI_COMM_WORLD);
        usleep(300000); /* the launchers pass the line on meanwhile */
        _exit(0);
    }
    MPI_Finalize();
}

#define FAIL(...)                                                                                                      \
    do {                                                                                                               \
        int check_rank = -1;                                                                                           \
        MPI_Comm_rank(MPI_COMM_WORLD, &check_rank);                                                                    \
        fprintf(stderr, "%s:%d: rank %d: ", __FILE__, __LINE__, check_rank);                                           \
        fprintf(stderr, __VA_ARGS__);                                                                                  \
        fprintf(stderr, "\n");                                                                                         \
        MPI_Abort(MPI_COMM_WORLD, 1);                                                                                  \
    } while (0)

#define EXPECT(fact)                                                                                                   \
    do {                                                                                                               \
        if (!(fact)) {                                                                                                 \
            FAIL("not true: %s", #fact);                                                                               \
        }                                                                                                              \
    } while (0)

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        const hd_status check_status = (call);                                                                         \
        if (check_status) {                                                                                            \
            FAIL("%s: %s: %s", #call, hd_status_name(check_status), hd_message());                                     \
        }                                                                                                              \
    } while (0)

#define FAILS(call, expected)                                                                                          \
    do {                                                                                                               \
        const hd_status check_status = (call);                                                                         \
        if (check_status != (expected)) {                                                                              \
            FAIL("%s: %s instead of %s: %s", #call, hd_status_name(check_status), #expected, hd_message());            \
        }                                                                                                              \
    } while (0)

#endif
