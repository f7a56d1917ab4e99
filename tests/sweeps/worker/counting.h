/* counting.h - how many chains of launches there were, in a test and in its workers: plain data in a file that they share. */
#ifndef SWEEPS_WORKER_COUNTING_H
#define SWEEPS_WORKER_COUNTING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The calls that chains are made of. */
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
    _Atomic uint64_t chains, several;          /* that the driver took, and those of them with more than one launch */
    _Atomic uint64_t launches, longest;        /* in them; in the longest one */
    _Atomic uint64_t alone;                    /* launches that an engine did not put into one */
    _Atomic uint64_t calls[COUNTED_CALLS_END]; /* that got as far as the host provider */
} counted_chains;

extern counted_chains *counted;

/* Makes it, for this process and its workers, which run test_counting_worker from here on. False: the system refused. */
bool counting_begin(void);

#endif
