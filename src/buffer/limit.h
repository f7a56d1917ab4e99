/* limit.h - allocations at a memory limit: their waits, and the steps before an allocation fails.
 *
 * Threads: any. Each wait belongs to one thread.
 * Locks: no lock is held while an allocation waits or is attempted.
 * Blocking: an allocation waits for work, for other threads and for the program's callback, within
 * the time limit below.
 * Always: allocations of one device that wait are served in the order of line.h.
 */
#ifndef HDI_BUFFER_LIMIT_H
#define HDI_BUFFER_LIMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <heddle/status.h>
#include "engine/runtime.h"

/* ---- how long an allocation at a limit waits for others to free something (option memory_timeout)
 * ---- */

/* All steps of one allocation share one wait. The wait ends when nothing is freed or finished for
 * the time memory_timeout. In all, a wait takes at most HDI_MEMORY_WAIT_TIMES times memory_timeout.
 * So an allocation fails in the end even if other threads take all freed memory.
 * The wait ends earlier if no memory can become free. This is the case if no other living thread
 * ever made a call, and the end of work cannot free memory (`quiet`). The caller reports each event
 * that frees or finishes something (hdi_memory_wait_moved). */
/* the longest wait in all, as a multiple of the option memory_timeout */
#define HDI_MEMORY_WAIT_TIMES 20

typedef enum hdi_memory_wait_end {
    HDI_MEMORY_WAIT_NONE,  /* no wait */
    HDI_MEMORY_WAIT_STILL, /* nothing was freed or finished for memory_timeout */
    HDI_MEMORY_WAIT_LONG,  /* the longest wait in all is over */
    HDI_MEMORY_WAIT_ALONE, /* no work can free memory, and no other thread can free anything */
    HDI_MEMORY_WAIT_CLOSED /* the runtime is being closed */
} hdi_memory_wait_end;

typedef struct hdi_memory_wait {
    hd_runtime *runtime;
    /* the wait ends after this many nanoseconds in which nothing was freed or finished */
    int64_t allowed;
    int64_t begin, moved, asked;
    bool any; /* something was freed or finished */
    hdi_memory_wait_end end;
} hdi_memory_wait;

/* Starts a wait. */
hdi_memory_wait hdi_memory_wait_begin(hd_runtime *rt);

/* Notes that something was freed or finished. */
void hdi_memory_wait_moved(hdi_memory_wait *p);

/* True if the wait is over; p->end gives the reason. `quiet`: no work is unfinished whose end could
 * free memory. */
bool hdi_memory_wait_over(hdi_memory_wait *p, bool quiet);

/* Sleeps for a small fraction of the time since something was last freed or finished. */
void hdi_memory_wait_sleep(const hdi_memory_wait *p);

/* Why the wait ended, for a message: "nothing was freed or finished for 5 s (option
 * memory_timeout)". "" if there was no wait. */
#define HDI_MEMORY_WAIT_TEXT 160
const char *hdi_memory_wait_text(const hdi_memory_wait *p, char out[HDI_MEMORY_WAIT_TEXT]);

/* ---- steps before an allocation of device memory fails ---- */

/* A function that makes one attempt to take `bytes` of the device's memory. MEMORY: too little
 * memory is free; the message gives the figures. */
typedef hd_status (*hdi_take)(hdi_device *device, size_t bytes, void *context);

/* Calls `take`, but only when it is this allocation's turn: allocations that already wait go first
 * (line.h). While `take` returns MEMORY, this function takes the next step of the fallback and
 * calls `take` again. `losses`: the device's count of losses before the call. If the device was
 * lost since the caller read that count, the waits end, and the call fails with DEVICE_LOST. */
hd_status hdi_take_or_wait(hdi_device *device, size_t bytes, uint64_t losses, hdi_take take, void *context);

/* Reports the pool's failure to provide `bytes` of pinned memory, under the name of the call. Adds
 * the reason why the wait *p ended, a remedy, and the largest holders to the message. */
hd_status hdi_buffer_host_fail_take(hd_runtime *rt, uint64_t bytes, const hdi_memory_wait *p);

#endif
