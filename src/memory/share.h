/* share.h - memory that several worker processes map: its addresses, and when each worker maps and
 * unmaps the memory of a peer.
 *
 * A device that owns memory shares it with its peers. The peer's worker gets a mapping as a
 * descriptor from the owner's worker, and maps it at the owner's address. After a loss of the
 * owner, a peer keeps the old mapping until all its own work that may use the mapping is finished.
 * If the peer unmapped it earlier, the peer's work would fault, and the healthy peer would be lost.
 *
 * Threads: any. Locks: the table's mutex, never held during a request.
 * Blocking: hdi_share, hdi_unshare and hdi_shares_reap wait for requests to ports.
 * Always:
 * - A peer's worker reserves a range before it maps anything there. It gives the range back only
 *   when no work uses it.
 * - This file only computes addresses: it reserves none.
 */
#ifndef HDI_MEMORY_SHARE_H
#define HDI_MEMORY_SHARE_H

#include <stdint.h>
#include "engine/runtime.h"

/* ---- addresses that are free in every process ------------------------------------------------ */

/* The application and every worker map pinned memory at the same address. A device's own worker and
 * the workers of its peers also map the device's memory at one address.
 *
 * No allocator, loader or stack puts anything at these addresses, in any process. So an address
 * that is free in one process is free in all processes. The table leaves out two areas with other
 * users:
 * - The CUDA driver's own ranges, around 0x200000000, 0x10000000000 and 0x7f0000000000.
 * - The shadow memory of the address sanitizer, which ends at 0x10007fff7fff.
 *
 * The thread sanitizer allows mappings at a fixed address in one area only, so its column of the
 * table has smaller areas.
 *
 *                     without the thread sanitizer            with it
 *   pinned windows    0x110000000000  60 slots of 256 GiB     0x7e8000000000  16 slots of 4 GiB
 *   device ranges     0x200000000000  to 0x6d0000000000       0x7e9000000000  to 0x7eef00000000
 *   pieces            0x6d0000000000  to 0x7d0000000000       0x7eef00000000  to 0x7eff00000000
 */
#if defined(__SANITIZE_THREAD__)
#define HDI_ADDRESSES_FEW 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HDI_ADDRESSES_FEW 1
#endif
#endif

/* A runtime takes one slot for its window. The window may be smaller than its slot. */
#define HDI_WINDOW_BYTES_MIN ((uint64_t)4 << 30)
#ifdef HDI_ADDRESSES_FEW
#define HDI_WINDOWS_AT UINT64_C(0x7e8000000000)
#define HDI_WINDOW_BYTES ((uint64_t)4 << 30)
#define HDI_WINDOWS 16
#define HDI_RANGES_AT UINT64_C(0x7e9000000000)
#define HDI_RANGES_END UINT64_C(0x7eef00000000)
#define HDI_PIECES_AT HDI_RANGES_END
#define HDI_PIECES_BYTES (UINT64_C(0x7eff00000000) - HDI_PIECES_AT)
#else
#define HDI_WINDOWS_AT UINT64_C(0x110000000000)
#define HDI_WINDOW_BYTES ((uint64_t)256 << 30)
#define HDI_WINDOWS 60
#define HDI_RANGES_AT UINT64_C(0x200000000000)
#define HDI_RANGES_END UINT64_C(0x6d0000000000)
#define HDI_PIECES_AT HDI_RANGES_END
#define HDI_PIECES_BYTES (UINT64_C(0x7d0000000000) - HDI_PIECES_AT)
#endif

_Static_assert(HDI_WINDOWS_AT + HDI_WINDOWS * HDI_WINDOW_BYTES <= HDI_RANGES_AT, "windows and ranges do not overlap");

#define HDI_RANGE_EPOCHS 8 /* after this many restarts a device gets its first range again */
/* This many bytes behind a range stay free, so that an access past its end faults. */
#define HDI_RANGE_GAP ((uint64_t)2 << 20)

/* Returns the address of a device's memory. 0: there are too few addresses.
 * - `device`: its number in the runtime.
 * - `epoch`: the number of restarts of this device.
 * - `bytes`: the size of each range.
 * - Each of the `n_devices` devices owns HDI_RANGE_EPOCHS ranges, used in turn.
 * - So the memory of a restarted device gets other addresses than its old memory, which peers may
 *   still have mapped. */
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

/* ---- memory that a worker maps --------------------------------------------------------------- */

extern const hdi_lifetime hdi_shares_lifetime;

/* Callbacks for hdi_arena_config. `context` is the owner's hdi_device. */
hdi_answer hdi_share(void *context, int peer, uint64_t at, uint64_t bytes);
void hdi_unshare(void *context, int peer, uint64_t at, uint64_t bytes);

/* Called after a device was lost and its worker ended. Forgets the mappings in that worker. The
 * other workers unmap the lost device's memory once the work that was submitted to them before this
 * call is finished. */
void hdi_shares_retire(hd_runtime *rt, int device);

/* Unmaps retired mappings without unfinished uses. Returns true if any existed. */
bool hdi_shares_reap(hd_runtime *rt);

#endif
