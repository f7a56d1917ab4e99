/* failing.h - the system calls that fail, in a test and in its workers: plain data in a file that
 * they share. */
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
    atomic_int calls;          /* calls of the kind so far, in all workers or in the application */
    int first;                 /* the number of the first failing call; 0: none */
    bool for_good, in_worker;
    bool shows;    /* prints on stderr where the call was made */
    char name[32]; /* the first call that failed; "": none did */
} failing_calls;

extern failing_calls *failing;

/* Makes the data for this process, its forked children, and their workers. */
bool failing_begin(void);

#endif
