/* unified.h - shared code of the tests of unified buffers: makes one, and reads its elements.
 *
 * Threads: the helpers work in every thread.
 * Locks: none.
 * Always: an element that the CPU cannot get fails a check, except with NO_ELEMENT.
 */
#ifndef CONFORMANCE_UNIFIED_H
#define CONFORMANCE_UNIFIED_H

#include "pool.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define CHUNK (64 * KIB)

CONF_UNUSED static hd_buffer *make(hd_lane *lane, size_t size)
{
    hd_buffer *b = NULL;
    CONF_OK(hd_alloc_unified(lane, size, &b));
    CONF_EQUAL(hd_buffer_size(b), size);
    return b;
}

CONF_UNUSED static uint32_t word_of(hd_buffer *b, size_t index)
{
    uint32_t value = 0xeeeeeeee;
    if (!hd_get_u32(b, index, &value)) {
        conf_fail_at(__FILE__, __LINE__, "hd_get_u32(%zu): %s", index, hd_message());
    }
    return value;
}

CONF_UNUSED static void put_word(hd_buffer *b, size_t index, uint32_t value)
{
    if (!hd_put_u32(b, index, value)) {
        conf_fail_at(__FILE__, __LINE__, "hd_put_u32(%zu): %s", index, hd_message());
    }
}

CONF_UNUSED static hd_status last_status(void)
{
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    return error.status;
}

/* Checks that hd_element fails in this way. */
#define NO_ELEMENT(call, status, word)                                                                                 \
    do {                                                                                                               \
        CONF_TRUE((call) == NULL);                                                                                     \
        CONF_EQUAL(last_status(), (status));                                                                           \
        CONF_TRUE(strstr(hd_message(), (word)) != NULL);                                                               \
    } while (0)

#endif
