/* random.h - traces made by chance, for what must hold for every trace.
 *
 * Threads: one. Locks: none.
 */
#ifndef TEST_TRACE_RANDOM_H
#define TEST_TRACE_RANDOM_H

#include "trace/script.h"

/* A trace of `ops` operations on `devices` devices with waits, threads, memory. Sane: what a recorder can have written, with records
 * missing here and there; else numbers are of any size. */
void random_trace(script *s, uint64_t seed, int devices, int ops, int sane);

#endif
