/* addresses.h - where memory lies that several processes must have at the same address: pinned memory, which the application
 * and every worker map, and device memory, which a worker may map for its own device and for the peers'.
 *
 * Numbers only; nothing here takes an address. Threads: any. Locks: none.
 *
 * Why these numbers: no allocator, loader or stack puts anything there, in any process, so an address that is free in one process is
 * free in all of them. The CUDA driver's own ranges (around 0x200000000, 0x10000000000 and 0x7f0000000000) are passed by, and so
 * is the shadow of the address sanitizer, which ends at 0x10007fff7fff. The thread sanitizer allows mappings by address in one
 * place only, so there everything is smaller.
 *
 *                     without the thread sanitizer            with it
 *   pinned windows    0x110000000000  60 slots of 256 GiB     0x7e8000000000  16 slots of 4 GiB
 *   device ranges     0x200000000000  to 0x7d0000000000       0x7e9000000000  to 0x7eff00000000
 */
#ifndef HDI_MEMORY_ADDRESSES_H
#define HDI_MEMORY_ADDRESSES_H

#include <stdint.h>

#if defined(__SANITIZE_THREAD__)
#define HDI_ADDRESSES_FEW 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HDI_ADDRESSES_FEW 1
#endif
#endif

/* A runtime takes one slot for its window, whose size may be less. */
#define HDI_WINDOW_BYTES_MIN ((uint64_t)4 << 30)
#ifdef HDI_ADDRESSES_FEW
#define HDI_WINDOWS_AT UINT64_C(0x7e8000000000)
#define HDI_WINDOW_BYTES ((uint64_t)4 << 30)
#define HDI_WINDOWS 16
#define HDI_RANGES_AT UINT64_C(0x7e9000000000)
#define HDI_RANGES_END UINT64_C(0x7eff00000000)
#else
#define HDI_WINDOWS_AT UINT64_C(0x110000000000)
#define HDI_WINDOW_BYTES ((uint64_t)256 << 30)
#define HDI_WINDOWS 60
#define HDI_RANGES_AT UINT64_C(0x200000000000)
#define HDI_RANGES_END UINT64_C(0x7d0000000000)
#endif

_Static_assert(HDI_WINDOWS_AT + HDI_WINDOWS * HDI_WINDOW_BYTES <= HDI_RANGES_AT, "windows and ranges do not overlap");

#define HDI_RANGE_EPOCHS 8                /* restarts until a device's range is used again */
#define HDI_RANGE_GAP ((uint64_t)2 << 20) /* stays free behind a range, so that running over its end faults */

/* Where the memory of a device (number in the runtime) lies: `bytes` at a place of its own for each of `n_devices` and, so that a
 * restarted device's memory never lies where peers may still have the old one mapped, for each of the last restarts. `epoch`
 * counts the device's restarts. 0: there are not that many addresses. */
static inline uint64_t hdi_device_range(int device, unsigned epoch, uint64_t bytes, int n_devices)
{
    const uint64_t all = HDI_RANGES_END - HDI_RANGES_AT;
    if (device < 0 || device >= n_devices || bytes == 0 || bytes > all - HDI_RANGE_GAP) {
        return 0;
    }
    uint64_t stride = 1;
    while (stride < bytes + HDI_RANGE_GAP) {
        stride *= 2;
    }
    uint64_t number = (uint64_t)(epoch % HDI_RANGE_EPOCHS) * (uint64_t)n_devices + (uint64_t)device;
    return number < all / stride ? HDI_RANGES_AT + number * stride : 0;
}

#endif
