/* forked.c - detects that this process was forked from one with a driver.
 *
 * Threads: any. Locks: none. Blocking: nothing.
 * Always: a process that is forked while a driver is started, or being started, has `forked` set before fork returns in
 * it. It calls no driver and takes no lock of a driver: threads that it does not have may hold them.
 */
#include <pthread.h>
#include <stdatomic.h>
#include "driver/driver.h"

/* Starts that have succeeded or are under way. Relaxed: the handler runs on the thread that forked, which sees its own
 * starts and those it waited for.
 * A start that another thread begins meanwhile may count or not. */
static _Atomic unsigned starts;
/* Set in the forked child, while it has one thread; never cleared. */
static _Atomic bool forked;

static void in_forked_child(void)
{
    if (atomic_load_explicit(&starts, memory_order_relaxed) > 0) {
        atomic_store_explicit(&forked, true, memory_order_relaxed);
    }
}

bool hdi_driver_was_forked(void)
{
    return atomic_load_explicit(&forked, memory_order_relaxed);
}

static int watch_result;

static void watch_forks(void)
{
    watch_result = pthread_atfork(NULL, NULL, in_forked_child);
}

bool hdi_driver_start_begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    if (watch_result != 0) {
        return false;
    }
    atomic_fetch_add_explicit(&starts, 1, memory_order_relaxed);
    return true;
}

void hdi_driver_start_undo(void)
{
    atomic_fetch_sub_explicit(&starts, 1, memory_order_relaxed);
}
