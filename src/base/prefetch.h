/* prefetch.h - asks for a cache line that is going to be written.
 *
 * Reading ahead alone gets a line that other processors keep a copy of. Its first store waits until they have given theirs up. The
 * compiler's own prefetch is one for reading, unless it may assume a newer processor than the oldest of x86-64.
 *
 * Threads: any. Locks: none. Always: nothing but time depends on it; any address will do.
 */
#ifndef HDI_BASE_PREFETCH_H
#define HDI_BASE_PREFETCH_H

static inline void hdi_prefetch_to_write(const void *address)
{
#if defined(__x86_64__)
    /* A processor without it does nothing: every x86-64 processor decodes it. */
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)address));
#else
    __builtin_prefetch(address, 1);
#endif
}

#endif
