/* lanes.h - returns a thread's default lane or the end of a lane as values, for tests in which they
 * cannot fail or NULL is enough.
 *
 * Threads: any. Locks: none.
 */
#ifndef TESTS_SUPPORT_LANES_H
#define TESTS_SUPPORT_LANES_H

#include <heddle.h>
#include <stdio.h>

/* Returns NULL on failure, with hd_message. */
static inline hd_lane *conf_default_lane(hd_runtime *runtime, int device)
{
    hd_lane *lane = NULL;
    return hd_lane_get_default(runtime, device, &lane) ? NULL : lane;
}

/* Returns a ticket for everything submitted so far, zeroed on failure. */
static inline hd_ticket conf_lane_ticket(hd_lane *lane)
{
    hd_ticket ticket = {NULL, 0};
    hd_lane_get_ticket(lane, &ticket);
    return ticket;
}

/* Copies the texts of hd_matmul_get_info; `why` may be NULL. */
static inline hd_status conf_matmul_library(hd_lane *lane, char *name, size_t name_bytes, char *why, size_t why_bytes)
{
    hd_matmul_info info = {.size = sizeof info};
    hd_status status = hd_matmul_get_info(lane, &info);
    if (!status) {
        snprintf(name, name_bytes, "%.*s", (int)name_bytes - 1, info.library);
        if (why) {
            snprintf(why, why_bytes, "%.*s", (int)why_bytes - 1, info.reason);
        }
    }
    return status;
}

#endif
