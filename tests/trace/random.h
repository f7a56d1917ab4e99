/* random.h - random traces, for properties of every trace.
 *
 * Threads: one. Locks: none.
 */
#ifndef TEST_TRACE_RANDOM_H
#define TEST_TRACE_RANDOM_H

#include "trace/script.h"

/* Makes a trace of `ops` operations on `devices` devices, with waits, threads and memory. Sane: a
 * recorder could have written it, except that some records are missing; otherwise numbers have any
 * size. */
void random_trace(script *s, uint64_t seed, int devices, int ops, int sane);

#endif
