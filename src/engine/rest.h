/* rest.h - times at which a driver call that waits for all kernels does not wait long.
 *
 * Threads: only one thread at a time may use an hdi_rest.
 * Locks: that of the registry, while a look goes from one runtime to the next.
 */
#ifndef HDI_ENGINE_REST_H
#define HDI_ENGINE_REST_H

#include "engine/engine.h"

/* The state of a runtime's lanes in the looks so far (rest.c describes looks). At first all fields
 * are zero. */
typedef struct hdi_rest_look {
    uint64_t id; /* of the runtime */
    /* clock time of the first of the looks that found work without a break; 0: the last look found
     * no work */
    int64_t since;
    int64_t looked; /* clock time of the last look that found work */
    struct hdi_rest_lane *lanes;
} hdi_rest_look;

typedef struct hdi_rest {
    hdi_rest_look own;
    hdi_rest_look *beside; /* other runtimes, by their places in the registry; NULL: none seen */
} hdi_rest;

/* True if no device has work of this runtime, or of another runtime for whose kernels the driver
 * would wait. */
bool hdi_rest_is_reached(const hd_runtime *rt);

/* Like hdi_rest_is_reached, but ignores the work of the runtime `rt`. */
bool hdi_rest_is_reached_beside(const hd_runtime *rt);

/* Looks once at all lanes of these runtimes. True: no device has work, or all work is moving
 * (rest.c). The caller repeats the call until it returns true. If a look comes more than a second
 * after the one before, it counts as the first look. */
bool hdi_rest_is_near(hdi_rest *rest, const hd_runtime *rt);

/* Like hdi_rest_is_near, but ignores the work of the runtime `rt`. */
bool hdi_rest_is_near_beside(hdi_rest *rest, const hd_runtime *rt);

void hdi_rest_end(hdi_rest *rest);

#endif
