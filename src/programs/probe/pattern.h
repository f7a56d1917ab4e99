/* pattern.h - bytes that show where they belong: those of src/kernel/builtin/probe.c, made and checked by the processor.
 * Threads: one. Locks: none. */
#ifndef HDI_PROGRAMS_PROBE_PATTERN_H
#define HDI_PROGRAMS_PROBE_PATTERN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Word i of the pattern that `seed` stands for; byte j of a range is byte j % 8 of word j / 8. */
static inline uint64_t hdi_pattern_word(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static inline uint8_t hdi_pattern_byte(uint64_t seed, uint64_t j)
{
    return (uint8_t)(hdi_pattern_word(seed, j / 8) >> (j % 8 * 8));
}

static inline void hdi_pattern_fill(uint8_t *out, size_t bytes, uint64_t seed)
{
    size_t whole = bytes / 8 * 8;
    for (size_t j = 0; j < whole; j += 8) {
        uint64_t word = hdi_pattern_word(seed, j / 8);
        memcpy(out + j, &word, sizeof word);
    }
    for (size_t j = whole; j < bytes; j++) {
        out[j] = hdi_pattern_byte(seed, j);
    }
}

/* The first byte that is another one; `bytes`: all are right. */
static inline size_t hdi_pattern_check(const uint8_t *at, size_t bytes, uint64_t seed)
{
    size_t j = 0;
    for (; j + 8 <= bytes; j += 8) {
        uint64_t found;
        memcpy(&found, at + j, sizeof found);
        if (found != hdi_pattern_word(seed, j / 8)) {
            break;
        }
    }
    while (j < bytes && at[j] == hdi_pattern_byte(seed, j)) {
        j++;
    }
    return j;
}

#endif
