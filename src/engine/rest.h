/* rest.h - times at which a driver call that waits for all kernels does not wait long.
 *
 * Threads: one at a time uses a record.
 * Locks: none.
 */
#ifndef HDI_ENGINE_REST_H
#define HDI_ENGINE_REST_H

#include "engine/engine.h"

/* The lanes of a runtime as the looks so far found them. All fields are zero at first. */
typedef struct hdi_rest {
    int64_t since;  /* clock time of the first look that found work; 0: none did */
    int64_t looked; /* clock time of the last look that found work */
    struct hdi_rest_lane *lanes;
} hdi_rest;

/* True if no device has work. */
bool hdi_rest_is_reached(const hd_runtime *rt);

/* Looks at all lanes. True: no device has work, or all work is moving (rest.c). The caller looks
 * again and again until then. A look more than a second after the last one counts as the first. */
bool hdi_rest_is_near(hdi_rest *rest, const hd_runtime *rt);

void hdi_rest_end(hdi_rest *rest);

#endif
