/* dying.h - the number of points left before a worker dies, which a test and its workers share.
 * Plain data in a file. */
#ifndef SWEEPS_WORKER_DYING_H
#define SWEEPS_WORKER_DYING_H

#include <stdatomic.h>

typedef struct dying_points {
    atomic_int left; /* the point that makes this 0 kills its worker; below 0 all others live */
    atomic_int passed;
    char name[64]; /* the point at which one died */
} dying_points;

#endif
