/* number.h - arithmetic on sizes, offsets and sets of devices.
 *
 * Threads: any. Locks: none. Blocking: nothing.
 * Always: sizes fit 64 bits, so size_t and uint64_t are equally wide (the library supports nothing
 * else).
 */
#ifndef HDI_BASE_NUMBER_H
#define HDI_BASE_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

_Static_assert(sizeof(size_t) == sizeof(uint64_t), "sizes have 64 bits");

static inline uint64_t hdi_smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t hdi_larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Rounds up. The caller ensures that the result does not wrap around. */
static inline uint64_t hdi_round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* True if [offset, offset + size) lies inside `bytes` bytes. */
static inline bool hdi_is_inside(uint64_t offset, uint64_t size, uint64_t bytes)
{
    return offset <= bytes && size <= bytes - offset;
}

/* The bit of a device in a set of devices. */
static inline uint64_t hdi_device_bit(int device)
{
    return (uint64_t)1 << device;
}

/* The absolute value of a stride. */
static inline uint64_t hdi_stride_size(int64_t stride)
{
    return stride < 0 ? 0 - (uint64_t)stride : (uint64_t)stride;
}

#endif
