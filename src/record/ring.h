/* ring.h - a ring of records with one writer and one reader, which may be in different processes.
 *
 * Threads: one writes, one reads. Locks: none.
 * Always: a writer never waits. Records without room are counted, but not written. A reader does
 * not trust the other side: impossible positions count as an empty ring.
 */
#ifndef HDI_RECORD_RING_H
#define HDI_RECORD_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include "base/thread.h"
#include "record/format.h"

#define HDI_RING_RECORDS 32768 /* a power of two: 2 MiB, of which only used pages take memory */
#define HDI_RING_PREPARED 4    /* how far hdi_ring_prepare looks ahead, in records */

typedef struct hdi_record_ring {
    _Alignas(64) _Atomic uint64_t head; /* writer: records written */
    _Atomic uint64_t dropped;           /* writer: records without room */
    uint64_t tail_seen;                 /* writer: `tail` as last loaded */
    _Alignas(64) _Atomic uint64_t tail; /* reader: records taken */
    uint64_t dropped_seen;              /* reader: how many of `dropped` were reported */
    _Alignas(64) hdi_record records[HDI_RING_RECORDS];
} hdi_record_ring;

/* True if `n` records fit. */
static inline bool hdi_ring_fits(hdi_record_ring *ring, uint64_t n)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    if (__builtin_expect(head + n - ring->tail_seen > HDI_RING_RECORDS, 0)) {
        /* pairs with the release store in hdi_ring_taken: the reader already copied the records
         * that the writer overwrites from here on */
        ring->tail_seen = atomic_load_explicit(&ring->tail, memory_order_acquire);
        return head + n - ring->tail_seen <= HDI_RING_RECORDS;
    }
    return true;
}

/* Counts `n` records as not written. */
static inline void hdi_ring_drop(hdi_record_ring *ring, uint64_t n)
{
    uint64_t dropped = atomic_load_explicit(&ring->dropped, memory_order_relaxed);
    atomic_store_explicit(&ring->dropped, dropped + n, memory_order_relaxed);
}

/* As hdi_ring_fits; records without room count as dropped. */
static inline bool hdi_ring_has_room(hdi_record_ring *ring, uint64_t n)
{
    bool fits = hdi_ring_fits(ring, n);
    if (__builtin_expect(!fits, 0)) {
        hdi_ring_drop(ring, n);
    }
    return fits;
}

/* Writer: fetches the cache line of a later record from the reader's processor, so that the later
 * write need not wait. */
static inline void hdi_ring_prepare(hdi_record_ring *ring, uint64_t head)
{
    hdi_prefetch_to_write(&ring->records[(head + HDI_RING_PREPARED) % HDI_RING_RECORDS]);
}

/* Writes one record. False: it was dropped. */
static inline bool hdi_ring_put(hdi_record_ring *ring, const hdi_record *record)
{
    if (!hdi_ring_has_room(ring, 1)) {
        return false;
    }
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    ring->records[head % HDI_RING_RECORDS] = *record;
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
    hdi_ring_prepare(ring, head);
    return true;
}

/* Writes records that belong together: the reader finds all of them, or none. False: they were
 * dropped. */
static inline bool hdi_ring_put_all(hdi_record_ring *ring, const hdi_record *records, uint32_t n)
{
    if (!hdi_ring_has_room(ring, n)) {
        return false;
    }
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    for (uint32_t i = 0; i < n; i++) {
        ring->records[(head + i) % HDI_RING_RECORDS] = records[i];
    }
    atomic_store_explicit(&ring->head, head + n, memory_order_release);
    return true;
}

/* Reader: the number of records. hdi_ring_taken gives them back. */
static inline uint64_t hdi_ring_ready(const hdi_record_ring *ring)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    return head - tail <= HDI_RING_RECORDS ? head - tail : 0;
}

/* Reader: number `i` of the records that are ready. */
static inline const hdi_record *hdi_ring_at(const hdi_record_ring *ring, uint64_t i)
{
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    return &ring->records[(tail + i) % HDI_RING_RECORDS];
}

static inline void hdi_ring_taken(hdi_record_ring *ring, uint64_t n)
{
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    atomic_store_explicit(&ring->tail, tail + n, memory_order_release);
}

/* Reader: records dropped since the last call. */
static inline uint64_t hdi_ring_take_dropped(hdi_record_ring *ring)
{
    uint64_t dropped = atomic_load_explicit(&ring->dropped, memory_order_relaxed);
    uint64_t since = dropped - ring->dropped_seen;
    ring->dropped_seen = dropped;
    return since;
}

/* Makes the system allocate the ring's memory in advance, so that the writer causes no page faults.
 * Any thread. The contents of the ring stay the same. */
static inline void hdi_ring_populate(hdi_record_ring *ring)
{
#ifdef MADV_POPULATE_WRITE
    madvise(ring, sizeof *ring, MADV_POPULATE_WRITE);
#else
    (void)ring;
#endif
}

/* Reader: drops all records, without counting them as dropped. */
static inline void hdi_ring_clear(hdi_record_ring *ring)
{
    atomic_store_explicit(&ring->tail, atomic_load_explicit(&ring->head, memory_order_acquire), memory_order_release);
    hdi_ring_take_dropped(ring);
}

#endif
