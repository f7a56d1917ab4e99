/* line.h - the order of allocations that wait for memory at a limit.
 *
 * Each device has a line, and pinned memory has one. An allocation joins it when its first attempt
 * fails, and leaves it when it is over. Memory goes to the allocations in a line in the order in
 * which they joined. A later one, in the line or not, may take memory only if it leaves enough
 * free. For each earlier one it leaves:
 * - all that it wants, if that much is free, or if it waited for the option memory_timeout
 * - otherwise all but its spare bytes of what was ever free since it joined. Spare are the bytes
 *   that were free when it joined, but no more than the limit leaves beside what it wants.
 *
 * So later allocations share the spare bytes, which were too few for the earlier one. For example,
 * a thread that is about to free memory may need a little for its next step. But nobody takes what
 * is freed for the earlier one. After memory_timeout nobody passes it at all.
 *
 * Allocations of the library for transfers pass the line of pinned memory, since they come back
 * without the program.
 *
 * While a device has a line, its magazines are closed. So all blocks that are freed become free for
 * all, and every allocation comes to the line.
 *
 * Threads: any.
 * Locks: one per line, held while the figures of the arena or the pool are read.
 * Blocking: while another thread maps memory. Joining and leaving visit all caches of threads.
 * Always: without a line an allocation costs one relaxed load more, on its slow path. The program's
 * reclaim callback passes every line, since an allocation in it waits for the callback.
 */
#ifndef HDI_BUFFER_LINE_H
#define HDI_BUFFER_LINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <heddle/memory.h>
#include "base/lock.h"
#include "engine/runtime.h"

/* A place in a line, in the allocation's own memory. */
typedef struct hdi_in_line {
    struct hdi_in_line *next; /* the next one to come */
    uint64_t wanted;          /* bytes */
    uint64_t spare;           /* bytes that later ones may share */
    uint64_t free_most;       /* most bytes that were free since it joined */
    int64_t since;            /* clock */
} hdi_in_line;

typedef struct hdi_line {
    hdi_mutex lock;
    _Atomic uint32_t waiting; /* places; changes under the lock */
    _Atomic uint64_t left;    /* counts places left */
    _Atomic uint64_t chances; /* counts ends of attempts that kept others from theirs */
    hdi_in_line *first;       /* under the lock, like the next two */
    uint64_t trying;          /* bytes of attempts that may go on */
    bool refused;             /* an attempt, because of these bytes */
} hdi_line;

extern const hdi_lifetime hdi_lines_lifetime;

/* The line of a device, or of pinned memory (HD_DEVICE_HOST). */
hdi_line *hdi_line_of(const hd_runtime *rt, int device);

static inline bool hdi_line_is_empty(const hdi_line *line)
{
    /* Relaxed: an allocation that misses a place that is just joined counts as earlier. */
    return atomic_load_explicit(&line->waiting, memory_order_relaxed) == 0;
}

/* Numbers that change when an attempt that was refused may go on: a place was left, or another
 * attempt is over. */
static inline uint64_t hdi_line_left(const hdi_line *line)
{
    return atomic_load_explicit(&line->left, memory_order_acquire);
}
static inline uint64_t hdi_line_chances(const hdi_line *line)
{
    return atomic_load_explicit(&line->chances, memory_order_acquire);
}

/* Joins at the end. */
void hdi_line_join(hd_runtime *rt, int device, hdi_in_line *place, uint64_t bytes);
/* `served`: the allocation got its memory. */
void hdi_line_leave(hd_runtime *rt, int device, const hdi_in_line *place, bool served);

/* True if an attempt to take that many bytes may go on; hdi_line_exit ends it. `place`: NULL if the
 * allocation is not in the line. */
bool hdi_line_enter(hd_runtime *rt, int device, const hdi_in_line *place, uint64_t bytes);
void hdi_line_exit(hd_runtime *rt, int device, uint64_t bytes);

#endif
