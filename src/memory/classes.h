/* classes.h - size classes of small device blocks.
 *
 * The classes are multiples of 256 bytes up to 2 KiB, then eight per doubling up to 1 MiB: 80 classes. A block is at
 * most 255 bytes, or an eighth, larger than its request.
 *
 * Threads: any. Locks: none. Blocking: nothing.
 * Always: the functions are pure.
 */
#ifndef HDI_MEMORY_CLASSES_H
#define HDI_MEMORY_CLASSES_H

#include <stddef.h>
#include <stdint.h>

#define HDI_CLASSES 80
#define HDI_CLASS_LARGE HDI_CLASSES /* in place of a class, for a block of its own size */

/* The class of 1 <= bytes <= HDI_SMALL_BYTES (arena.h). */
static inline uint32_t hdi_class_of(size_t bytes)
{
    size_t last = bytes - 1;
    if (last < 2048) {
        return (uint32_t)(last >> 8);
    }
    uint32_t row = 63u - (uint32_t)__builtin_clzll(last); /* 11 from 2 KiB on, at most 19 */
    return (row - 10) * 8 + (uint32_t)(last >> (row - 3) & 7);
}

/* The size of a class's blocks. */
static inline size_t hdi_class_bytes(uint32_t class)
{
    if (class < 8) {
        return (size_t)(class + 1) << 8;
    }
    uint32_t row = class / 8 + 10;
    return ((size_t)8 + class % 8 + 1) << (row - 3);
}

#endif
