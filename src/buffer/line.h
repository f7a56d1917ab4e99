/* line.h - the order of allocations that wait for memory at a limit.
 *
 * There is one line for each device, and one for pinned memory. An allocation joins the line when
 * its first attempt fails, and leaves the line when it ends. The allocations in a line get memory
 * in the order in which they joined. A later allocation, in the line or not, may take memory only
 * if it leaves enough for each earlier allocation. For an earlier allocation it leaves:
 * - all bytes that the earlier allocation wants, if that many are free in whole granules, or if it
 *   waited as long as the option memory_timeout
 * - otherwise the most bytes that were ever free since the earlier allocation joined, without its
 *   spare bytes, and at most the bytes that it wants. Its spare bytes are the bytes that were free
 *   when it joined. They are at most the limit without the bytes that it wants.
 *
 * So later allocations can use the spare bytes, which were too few for the earlier allocation. For
 * example, a thread that is about to free memory may need a little memory for its next step. But no
 * later allocation takes memory that is freed afterwards. After memory_timeout, later allocations
 * leave the spare bytes, too.
 *
 * The library's own allocations for transfers pass the line of pinned memory, since the library
 * frees them without the program.
 *
 * While allocations are in the line of a device, the magazines of threads are closed for this
 * device. So a freed block becomes free for all threads, and every allocation meets the line.
 *
 * Threads: any.
 * Locks: one per line, held while a thread reads the figures of the arena or the pool.
 * Blocking: a call waits while another thread maps memory. Joining and leaving visit the caches of
 * all threads.
 * Always: an empty line costs an allocation one relaxed load, on the slow path only. Allocations
 * inside the program's reclaim callback pass every line, since an allocation in the line waits for
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
    uint64_t spare;           /* bytes that later allocations may share */
    uint64_t free_most;       /* the most bytes that were free at one time since it joined */
    int64_t since;            /* clock time when it joined */
} hdi_in_line;

typedef struct hdi_line {
    hdi_mutex lock;
    _Atomic uint32_t waiting; /* the number of places; changes under the lock */
    _Atomic uint64_t left;    /* counts allocations that left the line */
    _Atomic uint64_t chances; /* counts ended attempts because of which others were refused */
    hdi_in_line *first;       /* under the lock, like the next two */
    uint64_t trying;          /* bytes wanted by the attempts that run now */
    bool refused;             /* an attempt was refused because of `trying` */
} hdi_line;

extern const hdi_lifetime hdi_lines_lifetime;

/* The line of a device, or of pinned memory (HD_DEVICE_HOST). */
hdi_line *hdi_line_of(const hd_runtime *rt, int device);

static inline bool hdi_line_is_empty(const hdi_line *line)
{
    /* Relaxed: an allocation that does not see a new place counts as earlier than that place. */
    return atomic_load_explicit(&line->waiting, memory_order_relaxed) == 0;
}

/* If one of these two numbers changes, a refused attempt may succeed now: an allocation left the
 * line, or another attempt ended. */
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

/* True if an attempt to take that many bytes may run; then call hdi_line_exit after the attempt.
 * `place`: NULL if the allocation is not in the line. */
bool hdi_line_enter(hd_runtime *rt, int device, const hdi_in_line *place, uint64_t bytes);
void hdi_line_exit(hd_runtime *rt, int device, uint64_t bytes);

#endif
