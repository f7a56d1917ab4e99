/* cancel.h - no thread of the program is cancelled inside a call.
 *
 * pthread_cancel ends a thread while it waits, reads or writes. If that happened inside the
 * library, the thread would keep its locks, and hd_close would wait for it. So calls hold
 * cancellation off until they return:
 * - HDI_INSIDE holds cancellation off for the whole call.
 * - Calls that programs make by the million do not hold cancellation off as a whole. Such a call
 *   holds cancellation off only in waits, and in the few other places where cancellation could end
 *   the thread. See wait.h, lock.h, driver/current.h, and functions with HDI_UNCANCELLED. Waits on
 *   futexes are no cancellation points. Like most functions of the C library, the library does not
 *   support asynchronous cancellation.
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
