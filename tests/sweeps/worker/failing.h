/* failing.h - which calls of the system fail, in a test and in its workers: plain data in a file that they share. */
#ifndef SWEEPS_WORKER_FAILING_H
#define SWEEPS_WORKER_FAILING_H

#include <stdatomic.h>
#include <stdbool.h>

typedef enum failing_kind {
    FAILING_NONE,
    FAILING_MEMORY,
    FAILING_MAPPING,
    FAILING_DESCRIPTOR,
    FAILING_THREAD,
    FAILING_PROCESS
} failing_kind;

typedef struct failing_calls {
    _Atomic failing_kind kind; /* NONE: nothing fails now */
    atomic_int calls;          /* of the kind, so far, in all workers or in the application */
    int first;                 /* that fails; 0: none does */
    bool for_good, in_worker;
    bool shows;    /* on stderr, where the call was made */
    char name[32]; /* of the first that failed; "": none has */
} failing_calls;

extern failing_calls *failing;

/* Makes it, for this process, those that it forks, and their workers. */
bool failing_begin(void);

#endif
