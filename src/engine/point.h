/* point.h - a position in a lane of this runtime, as the layers below the API store it.
 *
 * Threads: any, since it is a plain value.
 * Locks: none.
 * Always: the work that it names is finished once the lane's `done` has reached `position`.
 */
#ifndef HDI_ENGINE_POINT_H
#define HDI_ENGINE_POINT_H

#include <stdint.h>

typedef struct hdi_point {
    uint32_t lane;     /* global number of the lane in the runtime */
    uint64_t position; /* its sequence number there */
} hdi_point;

#endif
