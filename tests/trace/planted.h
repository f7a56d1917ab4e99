/* planted.h - traces of programs with one fault each, and of one without.
 *
 * Threads: one. Locks: none.
 */
#ifndef TEST_TRACE_PLANTED_H
#define TEST_TRACE_PLANTED_H

#include "trace/script.h"

/* The trace of a fault: its first finding must be `id`; NULL: no finding. The first trace is
 * "clean". */
typedef struct planted {
    const char *name, *id;
    void (*make)(script *s);
} planted;

void planted_make(script *s, const planted *p);

extern const planted planted_traces[];
extern const int planted_count;

#endif
