/* copy_through.c - hdi_copy_through: a copy past the processor's caches.
 *
 * Stores that bypass the caches need not read the destination first, and leave the content of the caches there.
 * They write whole cache lines. The bytes in front of the first line and behind the last one go the usual way, as small blocks do.
 * It is memcpy where there are no such stores, and under sanitizers, which do not see them.
 *
 * Threads: any. Locks: none. Blocking: never.
 * Always: a thread that sees a release store behind the call sees the bytes, too.
 */
#include "transfer/copy_pool.h"

#include <stdint.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif

#if defined(__SSE2__) && !defined(SANITIZED)
#include <emmintrin.h>

#define LINE 64
#define LEAST ((size_t)64 << 10) /* smaller blocks stay in a cache, where the next use may find them */

static void copy_lines(unsigned char *dst, const unsigned char *src, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += LINE) {
        const __m128i *from = (const __m128i *)(const void *)(src + i);
        __m128i *to = (__m128i *)(void *)(dst + i);
        __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1);
        __m128i c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3);
        _mm_stream_si128(to, a);
        _mm_stream_si128(to + 1, b);
        _mm_stream_si128(to + 2, c);
        _mm_stream_si128(to + 3, d);
    }
    _mm_sfence(); /* without it these stores have no order with later ones */
}

void hdi_copy_through(void *dst, const void *src, size_t bytes)
{
    unsigned char *to = dst;
    const unsigned char *from = src;
    if (bytes < LEAST) {
        memcpy(to, from, bytes);
        return;
    }
    size_t head = -(uintptr_t)to % LINE;
    size_t lines = (bytes - head) / LINE * LINE;
    memcpy(to, from, head);
    copy_lines(to + head, from + head, lines);
    memcpy(to + head + lines, from + head + lines, bytes - head - lines);
}

#else

void hdi_copy_through(void *dst, const void *src, size_t bytes)
{
    memcpy(dst, src, bytes);
}

#endif
