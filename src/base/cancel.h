/* cancel.h - no thread of the program is cancelled inside a call.
 *
 * pthread_cancel ends a thread while it waits, reads or writes. If that happened inside the
 * library, the thread would keep its locks, and hd_close would wait for it. So calls hold a
 * cancellation off until they return:
 * - HDI_INSIDE holds it off for the whole call.
 * - Calls that programs make by the million do not hold it off as a whole. In such a call, only
 *   waits hold it off, and the few other places that could end the thread (wait.h, lock.h,
 *   driver/current.h, functions with HDI_UNCANCELLED). Waits on futexes are no cancellation points.
 *   Asynchronous cancellation is not supported, as in most functions of the C library.
 *
 * Threads: any. Locks: none. Blocking: none.
 * Always: a thread leaves a call with the cancellation state with which it entered.
 */
#ifndef HDI_BASE_CANCEL_H
#define HDI_BASE_CANCEL_H

#include <pthread.h>

/* Holds cancellation off. Returns the previous state, for hdi_cancel_restore. */
static inline int hdi_cancel_hold_off(void)
{
    int before = PTHREAD_CANCEL_ENABLE;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

static inline void hdi_cancel_restore(const int *before)
{
    int now;
    pthread_setcancelstate(*before, &now);
}

/* Holds cancellation off for the rest of the block. */
#define HDI_UNCANCELLED HDI_UNCANCELLED_AT(__LINE__)
#define HDI_UNCANCELLED_AT(line) HDI_UNCANCELLED_AS(hdi_cancel_before_, line)
#define HDI_UNCANCELLED_AS(name, line)                                                                                 \
    const int name##line __attribute__((cleanup(hdi_cancel_restore), unused)) = hdi_cancel_hold_off()

#endif
