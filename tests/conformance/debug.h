/* debug.h - shared code of the tests of the option memory_debug: figures, reports, labelled
 * buffers, and a check of the thread's message.
 *
 * Threads: any.
 * Locks: none.
 */
#ifndef CONFORMANCE_DEBUG_H
#define CONFORMANCE_DEBUG_H

#include "support/json.h"
#include "workers.h"

#define DEBUG "memory_debug=on"

enum { fresh_word = 0x7ff7fff7, freed_word = (int)0xdddddddd };

CONF_UNUSED static hd_memory_stats stats_of(hd_runtime *runtime, int device)
{
    hd_memory_stats s = {.size = sizeof s};
    CONF_OK(hd_memory_get_stats(runtime, device, &s));
    return s;
}

CONF_UNUSED static char *json_of(hd_runtime *runtime)
{
    size_t needed = 0;
    CONF_OK(hd_memory_report(runtime, HD_REPORT_JSON, NULL, 0, &needed));
    char *text = conf_memory(needed + 512);
    CONF_OK(hd_memory_report(runtime, HD_REPORT_JSON, text, needed + 512, &needed));
    CONF_TRUE(json_is_document(text));
    return text;
}

/* Sets a message, so that the test sees if a call changes it. */
CONF_UNUSED static void leave_message(void)
{
    CONF_FAILS(hd_memory_report(NULL, HD_REPORT_TEXT, NULL, 0, NULL), HD_ERROR_HANDLE);
}

CONF_UNUSED static bool message_is_left(void)
{
    return strstr(hd_message(), "hd_memory_report") != NULL;
}

/* Never inlined, so that all its allocations share one call site even if the compiler unrolls
 * loops. */
CONF_UNUSED __attribute__((noinline)) static hd_buffer *labelled(hd_lane *lane, size_t bytes, const char *label)
{
    hd_buffer *b = NULL;
    hd_alloc_options options = {.size = sizeof options, .label = label};
    CONF_OK(hd_alloc_with(lane, bytes, &options, &b));
    return b;
}

#endif
