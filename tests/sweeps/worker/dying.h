/* dying.h - what a test and its workers share: how many points are left before one of them dies. Plain data in a file. */
#ifndef SWEEPS_WORKER_DYING_H
#define SWEEPS_WORKER_DYING_H

#include <stdatomic.h>

typedef struct dying_points {
    atomic_int left; /* whose point makes this 0 dies; the others go on, below 0 as well */
    atomic_int passed;
    char name[64]; /* of the point where one died */
} dying_points;

#endif
