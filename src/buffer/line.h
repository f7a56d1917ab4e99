/* line.h - the order of allocations that wait for memory at a limit.
 *
 * There is one line for each device, and one for pinned memory. An allocation joins the line when
 * its first attempt fails, and leaves the line when it ends. The allocations in a line get memory
 * in the order in which they joined. A later allocation, in the line or not, may take memory only
 * if it leaves enough for each earlier allocation. For each of them it must leave:
 * - all bytes that the earlier allocation wants, if that many bytes are free in whole granules. It
 *   must also leave all of them once the earlier allocation waited longer than memory_timeout
 * - otherwise the most bytes that were free at any time since the earlier allocation joined, minus
 *   its spare bytes. This number is at most the bytes that it wants. The spare bytes are those that
 *   were free when it joined, but at most the limit minus the bytes that it wants.
 *
 * So later allocations can use the spare bytes, which were not enough for the earlier allocation.
 * This matters if, for example, a thread needs a little memory before it frees much. Memory that is
 * freed after the earlier allocation joined goes to that allocation. After memory_timeout, later
 * allocations must leave the spare bytes, too.
 *
 * The library's own allocations for transfers do not wait in the line of pinned memory, since the
 * library frees this memory without the program.
 *
 * While allocations are in the line of a device, the magazines of threads are closed for this
 * device. So all threads can take a freed block, and every allocation goes through the line.
 *
 * Threads: any.
 * Locks: one per line, held while a thread reads the figures of the arena or the pool.
 * Blocking: a call waits while another thread maps memory. Joining and leaving visit the caches of
 * all threads.
 * Always: an empty line costs an allocation one relaxed load, on the slow path only. Allocations
 * inside the program's reclaim callback wait in no line, since an allocation in the line waits for
 * the callback.
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
    struct hdi_in_line *next; /* the next place in the line */
    uint64_t wanted;          /* bytes */
    uint64_t spare;           /* the spare bytes, which later allocations may take */
    /* the most bytes that were free at one time since the allocation joined */
    uint64_t free_most;
    int64_t since; /* clock time when it joined */
} hdi_in_line;

typedef struct hdi_line {
    hdi_mutex lock;
    _Atomic uint32_t waiting; /* the number of places; changes under the lock */
    _Atomic uint64_t left;    /* counts allocations that left the line */
    /* the number of attempts that ended, and during which another attempt was refused because of
     * them */
    _Atomic uint64_t chances;
    hdi_in_line *first; /* under the lock, like the next two */
    uint64_t trying;    /* the bytes that the attempts under way want, in all */
    bool refused;       /* an attempt was refused because of `trying` */
} hdi_line;

extern const hdi_lifetime hdi_lines_lifetime;

/* The line of a device, or of pinned memory (HD_DEVICE_HOST). */
hdi_line *hdi_line_of(hd_runtime *rt, int device);

static inline bool hdi_line_is_empty(const hdi_line *line)
{
    /* Relaxed: if an allocation does not see a new place, the allocation counts as earlier than
     * that place. */
    return atomic_load_explicit(&line->waiting, memory_order_relaxed) == 0;
}

/* Two numbers. The first changes when an allocation leaves the line. The second changes when an
 * attempt ends, and other attempts were refused because of it. After a change, an attempt that was
 * refused may succeed. */
static inline uint64_t hdi_line_left(const hdi_line *line)
{
    return atomic_load_explicit(&line->left, memory_order_acquire);
}
static inline uint64_t hdi_line_chances(const hdi_line *line)
{
    return atomic_load_explicit(&line->chances, memory_order_acquire);
}

/* Joins the line at its end. */
void hdi_line_join(hd_runtime *rt, int device, hdi_in_line *place, uint64_t bytes);
/* `served`: the allocation got its memory. */
void hdi_line_leave(hd_runtime *rt, int device, const hdi_in_line *place, bool served);

/* True if an attempt to take `bytes` bytes may run. If so, call hdi_line_exit after the attempt.
 * `place`: NULL if the allocation is not in the line. */
bool hdi_line_enter(hd_runtime *rt, int device, const hdi_in_line *place, uint64_t bytes);
void hdi_line_exit(hd_runtime *rt, int device, uint64_t bytes);

#endif
