/* probe.c - kernels by which one device stores to, loads from and counts in the memory of another
 * device.
 *
 * The kernels touch `width` bytes at a time (1, 4, 8 or 16), and all addresses are multiples of
 * `width`. At the end the kernels touch the remaining bytes one by one. A grid of any size works.
 */
#include <heddle/kernel.h>

/* Word i of the pattern that `seed` stands for; byte j of a range is byte j % 8 of word j / 8.
 * src/programs/probe.c defines the same pattern. */
HD_DEVICE uint64_t builtin_pattern_word(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

HD_DEVICE uint8_t pattern_byte(uint64_t seed, uint64_t j)
{
    return (uint8_t)(builtin_pattern_word(seed, j / 8) >> (j % 8 * 8));
}

/* A type of 16 bytes, which one instruction moves. */
typedef uint64_t two_words __attribute__((vector_size(16)));

HD_KERNEL(hd_probe_store, HD_OUT(uint8_t, y), HD_VALUE(uint64_t, bytes), HD_VALUE(uint64_t, seed),
          HD_VALUE(uint32_t, width))
{
    uint64_t step = (uint64_t)hd_grid_dim_x() * hd_block_dim_x();
    uint64_t whole = bytes / width;
    for (uint64_t i = hd_global_x(); i < whole; i += step) {
        if (width == 16) {
            two_words words = {builtin_pattern_word(seed, 2 * i), builtin_pattern_word(seed, 2 * i + 1)};
            ((two_words *)(void *)y)[i] = words;
        } else if (width == 8) {
            ((uint64_t *)(void *)y)[i] = builtin_pattern_word(seed, i);
        } else if (width == 4) {
            ((uint32_t *)(void *)y)[i] = (uint32_t)(builtin_pattern_word(seed, i / 2) >> (i % 2 * 32));
        } else {
            y[i] = pattern_byte(seed, i);
        }
    }
    for (uint64_t j = whole * width + hd_global_x(); j < bytes; j += step) {
        y[j] = pattern_byte(seed, j);
    }
}

HD_KERNEL(hd_probe_load, HD_OUT(uint8_t, y), HD_IN(uint8_t, x), HD_VALUE(uint64_t, bytes), HD_VALUE(uint32_t, width))
{
    uint64_t step = (uint64_t)hd_grid_dim_x() * hd_block_dim_x();
    uint64_t whole = bytes / width;
    for (uint64_t i = hd_global_x(); i < whole; i += step) {
        if (width == 16) {
            ((two_words *)(void *)y)[i] = ((const two_words *)(const void *)x)[i];
        } else if (width == 8) {
            ((uint64_t *)(void *)y)[i] = ((const uint64_t *)(const void *)x)[i];
        } else if (width == 4) {
            ((uint32_t *)(void *)y)[i] = ((const uint32_t *)(const void *)x)[i];
        } else {
            y[i] = x[i];
        }
    }
    for (uint64_t j = whole * width + hd_global_x(); j < bytes; j += step) {
        y[j] = x[j];
    }
}

/* Each thread adds 1, `times` times, to one of `n` counters of each kind: `n` 64-bit numbers, then
 * `n` 32-bit numbers, then `n` floats. */
HD_KERNEL(hd_probe_count, HD_INOUT(uint64_t, counters), HD_VALUE(uint32_t, n), HD_VALUE(uint32_t, times))
{
    uint32_t *words = (uint32_t *)(void *)(counters + n);
    float *floats = (float *)(void *)(words + n);
    uint32_t at = (uint32_t)(hd_global_x() % n);
    for (uint32_t i = 0; i < times; i++) {
        hd_atomic_add_u64(&counters[at], 1);
        hd_atomic_add_u32(&words[at], 1);
        hd_atomic_add_f32(&floats[at], 1.0f);
    }
}
