/* counting.h - counts of launch chains, in a test and in its workers: plain data in a file that
 * they share. */
#ifndef SWEEPS_WORKER_COUNTING_H
#define SWEEPS_WORKER_COUNTING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The calls that make and run chains. */
#define COUNTED_CALLS(CALL)                                                                                            \
    CALL(cuGraphCreate)                                                                                                \
    CALL(cuGraphAddKernelNode)                                                                                         \
    CALL(cuGraphInstantiateWithFlags)                                                                                  \
    CALL(cuGraphExecKernelNodeSetParams)                                                                               \
    CALL(cuGraphLaunch)                                                                                                \
    CALL(cuGraphExecDestroy)                                                                                           \
    CALL(cuGraphDestroy)

#define COUNTED_INDEX(name) COUNTED_##name,
typedef enum counted_call { COUNTED_CALLS(COUNTED_INDEX) COUNTED_CALLS_END } counted_call;

typedef struct counted_chains {
    /* chains that the driver got; those with several launches */
    _Atomic uint64_t chains, several;
    _Atomic uint64_t launches, longest; /* launches in all chains; in the longest one */
    /* launches that an engine gave to the driver alone */
    _Atomic uint64_t alone;
    _Atomic uint64_t calls[COUNTED_CALLS_END]; /* calls that reached the host provider */
} counted_chains;

extern counted_chains *counted;

/* Makes the counts for this process and its workers, which run test_counting_worker from here on.
 * False: the system refused. */
bool counting_begin(void);

#endif
