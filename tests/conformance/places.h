/* places.h - shared code of the tests of copies: buffers in every kind of place, and settings for
 * peers.
 *
 * Threads: any.
 * Locks: none.
 */
#ifndef CONFORMANCE_PLACES_H
#define CONFORMANCE_PLACES_H

#include "conformance.h"

typedef enum place {
    PLACE_DEVICE,  /* device 0 */
    PLACE_OTHER,   /* device 1, or 0 if it is the only one */
    PLACE_THIRD,   /* device 2, or the last one: in a ring of four, devices 0 and 2 are not peers */
    PLACE_PINNED,  /* pinned host memory */
    PLACE_UNIFIED, /* of device 0 */
    PLACE_UNIFIED_OTHER,
    PLACES
} place;

CONF_UNUSED static const char *const place_names[PLACES] = {"device", "other",   "third",
                                                            "pinned", "unified", "unified on the other"};

/* Which devices reach each other. Host devices obey the option, GPUs keep their own links. With the
 * last setting no device reaches another. */
CONF_UNUSED static const char *const place_settings[] = {"host_peers=all", "host_peers=none", "host_peers=ring",
                                                         "peers=off"};
enum {
    PLACE_SETTINGS = CONF_SLOWNESS > 1 ? 3 : 4
}; /* the last setting also turns peers off, so slow builds leave it out */

CONF_UNUSED static int place_device(hd_runtime *runtime, place where)
{
    int last = hd_device_count(runtime) - 1;
    int device = where == PLACE_OTHER || where == PLACE_UNIFIED_OTHER ? 1 : where == PLACE_THIRD ? 2 : 0;
    return device < last ? device : last;
}

CONF_UNUSED static hd_buffer *place_alloc(hd_runtime *runtime, place where, size_t bytes)
{
    hd_buffer *buffer = NULL;
    hd_lane *lane = conf_default_lane(runtime, place_device(runtime, where));
    switch (where) {
    case PLACE_PINNED:
        CONF_OK(hd_alloc_host(runtime, bytes, &buffer));
        break;
    case PLACE_UNIFIED:
    case PLACE_UNIFIED_OTHER:
        CONF_OK(hd_alloc_unified(lane, bytes, &buffer));
        break;
    default:
        CONF_OK(hd_alloc(lane, bytes, &buffer));
    }
    return buffer;
}

#endif
