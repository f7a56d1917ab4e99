/* ring.h - chunk rings: pinned memory for copies from one device to another that go through pinned memory.
 *
 * Each ordered pair of devices has rings of its own, one for each size of chunk, so that pairs, directions, and small copies beside large ones do
 * not wait for each other's chunks. A chunk is a tracked buffer: whoever takes one submits operations that write it and read it, and gives it
 * back at once; its use record makes the next ones wait in the lanes, not on the host.
 *
 * Threads: any. Locks: the mutex of all rings, never held across a wait or a call of the driver. Blocking: hdi_ring_take while other threads are
 * submitting with all chunks, and while a chunk is made. Always: a chunk is taken by one thread or by none; it is made when it is first
 * needed, and given up when pinned memory gets scarce and nothing uses it.
 */
#ifndef HDI_DATA_RING_H
#define HDI_DATA_RING_H

#include "data/buffer.h"
#include "data/route.h"

typedef struct hdi_ring_chunk {
    struct hd_buffer *buffer; /* NULL: not made */
    hdi_point last;           /* the last operation that uses it */
    uint64_t order;           /* when it was taken the last time */
    bool taken;
} hdi_ring_chunk;

/* Errors: HOST_MEMORY. */
hd_status hdi_rings_create(hd_runtime *rt);
void hdi_rings_release(hd_runtime *rt); /* the chunks' buffers go with all other buffers */

/* A chunk of the ring that a staged route from `src` to `dst` names; hdi_ring_give follows. Errors: HOST_MEMORY, DRIVER, SYSTEM, TIMEOUT. */
hd_status hdi_ring_take(hd_runtime *rt, int src, int dst, const hdi_route *route, int64_t deadline,
                        hdi_ring_chunk **out);

/* `last`: the last operation submitted with it ({0, 0}: none). */
void hdi_ring_give(hd_runtime *rt, hdi_ring_chunk *chunk, hdi_point last);

/* hd_close has begun: all that wait for chunks see that. */
void hdi_rings_wake(hd_runtime *rt);

/* Pinned memory is scarce: gives up the chunks that nothing uses. Whether there are some that are in use. */
bool hdi_rings_trim(hd_runtime *rt);

#endif
