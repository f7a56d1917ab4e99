/* transfers.h - for the tests of hd_write and hd_read: buffers, and checks of the bytes read and of
 * the bytes around them.
 *
 * Threads: any.
 * Locks: none.
 */
#ifndef CONFORMANCE_TRANSFERS_H
#define CONFORMANCE_TRANSFERS_H

#include "workers.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

CONF_UNUSED static hd_buffer *make(hd_runtime *runtime, int device, size_t bytes)
{
    hd_buffer *buffer = NULL;
    CONF_OK(hd_alloc(conf_default_lane(runtime, device), bytes, &buffer));
    return buffer;
}

/* Reads a range into memory between two borders, which must not change. */
CONF_UNUSED static void holds(hd_buffer *buffer, size_t offset, const uint8_t *wanted, size_t bytes, size_t shift)
{
    enum { around = 256 };
    uint8_t *got = conf_memory(bytes + 2 * around), *target = got + shift % around;
    memset(got, 0xee, bytes + 2 * around);
    CONF_OK(hd_read(buffer, offset, target, bytes));
    CONF_SAME(target, wanted, bytes);
    for (uint8_t *p = got; p < got + bytes + 2 * around; p++) {
        p = p == target ? target + bytes : p;
        if (p < got + bytes + 2 * around) {
            CONF_EQUAL(*p, 0xee);
        }
    }
    free(got);
}

CONF_UNUSED static hd_memory_stats pinned_stats(hd_runtime *runtime)
{
    hd_memory_stats stats = {.size = sizeof stats};
    CONF_OK(hd_memory_get_stats(runtime, HD_DEVICE_HOST, &stats));
    return stats;
}

#endif
