/* claimed.h - a buffer with known content, and a claim of a whole buffer, for tests in which copies
 * wait for claims.
 *
 * Threads: any. Locks: none.
 */
#ifndef HEDDLE_TESTS_CLAIMED_H
#define HEDDLE_TESTS_CLAIMED_H

#include "conformance.h"

CONF_UNUSED static hd_claim *claim(hd_runtime *runtime, hd_buffer *buffer)
{
    hd_claim *c = NULL;
    const hd_arg use = hd_inout(buffer);
    CONF_OK(hd_claim_begin(runtime, &use, 1, &c));
    return c;
}

CONF_UNUSED static hd_buffer *on_device(hd_runtime *runtime, int device, size_t size, uint32_t word)
{
    hd_buffer *buffer = NULL;
    CONF_OK(hd_alloc(conf_default_lane(runtime, device), size, &buffer));
    CONF_OK(hd_fill(buffer, 0, word, size, NULL));
    return buffer;
}

#endif
