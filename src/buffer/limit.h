/* limit.h - allocations at a limit: how long they wait, and the steps before one fails.
 *
 * Threads: any. One thread per wait.
 * Locks: none is held while an allocation waits, nor during a try.
 * Blocking: an allocation, for work, other threads and the program's callback, within the limit
 * below.
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

/* One allocation makes one wait, whatever steps it is made of. The wait ends when nothing moves for
 * the time of the option. In all it takes at most HDI_MEMORY_WAIT_TIMES that time. So an allocation
 * fails in the end even if other threads take the freed memory each time.
 * The wait ends earlier if nothing can be freed any more. Then no other live thread ever made a
 * call, and only the program can end what is unfinished.
 * The caller decides which events count as moving (hdi_memory_wait_moved). */
/* the longest wait in all, in units of the option memory_timeout */
#define HDI_MEMORY_WAIT_TIMES 20

typedef enum hdi_memory_wait_end {
    HDI_MEMORY_WAIT_NONE,  /* no wait */
    HDI_MEMORY_WAIT_STILL, /* nothing moved */
    HDI_MEMORY_WAIT_LONG,  /* something did, again and again */
    HDI_MEMORY_WAIT_ALONE, /* nothing is unfinished, and no other thread could free anything */
    HDI_MEMORY_WAIT_CLOSED /* the runtime is being closed */
} hdi_memory_wait_end;

typedef struct hdi_memory_wait {
    hd_runtime *runtime;
    int64_t allowed; /* ns without any move */
    int64_t begin, moved, asked;
    bool any; /* something moved */
    hdi_memory_wait_end end;
} hdi_memory_wait;

/* Starts a wait. */
hdi_memory_wait hdi_memory_wait_begin(hd_runtime *rt);

/* Something was freed or finished. */
void hdi_memory_wait_moved(hdi_memory_wait *p);

/* The program's callback ran since `began` (clock). That time is no wait. */
void hdi_memory_wait_apart(hdi_memory_wait *p, int64_t began);

/* True if it is time to give up; p->end gives the reason. `quiet`: no unfinished work could free
 * anything by its end. */
bool hdi_memory_wait_over(hdi_memory_wait *p, bool quiet);

/* Sleeps until another look makes sense: a small part of the time since the last move. */
void hdi_memory_wait_sleep(const hdi_memory_wait *p);

/* Why the wait ended, for a message: "nothing was freed or finished for 5 s (option
 * memory_timeout)". "" if there was no wait. */
#define HDI_MEMORY_WAIT_TEXT 160
const char *hdi_memory_wait_text(const hdi_memory_wait *p, char out[HDI_MEMORY_WAIT_TEXT]);

/* ---- steps before an allocation of device memory fails ---- */

/* One try to get `bytes` of the device's memory. MEMORY: there is none, and its message gives the
 * figures. */
typedef hd_status (*hdi_take)(hdi_device *device, size_t bytes, void *context);

/* Makes a try, in turn: others may wait already (line.h). If it returns MEMORY, repeats it after
 * each step, until it returns something else. `losses`: the device's count of losses before the
 * call. After a loss since then the waits end, and the call fails with DEVICE_LOST. */
hd_status hdi_take_or_wait(hdi_device *device, size_t bytes, uint64_t losses, hdi_take take, void *context);

#endif
