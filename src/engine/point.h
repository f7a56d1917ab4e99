/* point.h - a position in a lane of this runtime, as the layers below the API store it.
 *
 * A plain value. The work that it names is finished once the lane's finished position has reached `position`.
 */
#ifndef HDI_ENGINE_POINT_H
#define HDI_ENGINE_POINT_H

#include <stdint.h>

typedef struct hdi_point {
    uint32_t lane;     /* global number of the lane in the runtime */
    uint64_t position; /* its sequence number there */
} hdi_point;

#endif
