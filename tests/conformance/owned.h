/* owned.h - for the tests of memory in threads: a buffer whose owner records its content and its
 * address.
 *
 * Threads: one at a time owns a buffer.
 * Locks: none.
 * Always: content and address are as the owner left them, or a check fails.
 */
#ifndef CONFORMANCE_OWNED_H
#define CONFORMANCE_OWNED_H

#include "pool.h"

typedef struct owned {
    hd_buffer *buffer;
    uint64_t address;
    size_t bytes;
    uint32_t word;
} owned;

CONF_UNUSED static void take(hd_lane *lane, owned *o, size_t bytes, uint32_t word)
{
    CONF_OK(hd_alloc(lane, bytes, &o->buffer));
    o->bytes = bytes;
    o->word = word;
    o->address = hd_buffer_address(o->buffer);
    CONF_TRUE(o->address != 0 && hd_buffer_size(o->buffer) == bytes);
    if (bytes >= 4 && word % 8 == 0) {
        CONF_OK(hd_fill(o->buffer, 0, word, 4, NULL));
    }
}

CONF_UNUSED static void put_back(owned *o)
{
    if (o->buffer == NULL) {
        return;
    }
    if (hd_buffer_address(o->buffer) != o->address || hd_buffer_size(o->buffer) != o->bytes) {
        conf_fail_at(__FILE__, __LINE__, "a buffer of %zu bytes at %llx has become one of %zu at %llx", o->bytes,
                     (unsigned long long)o->address, hd_buffer_size(o->buffer),
                     (unsigned long long)hd_buffer_address(o->buffer));
    }
    if (o->bytes >= 4 && o->word % 64 == 0) {
        CONF_FILLED(o->buffer, 0, o->word, 4);
    }
    hd_free(o->buffer);
    o->buffer = NULL;
}

#endif
