/* side.h - for the tests in which a worker is lost or restarts in the middle of another operation.
 *
 * It provides a second thread, buffers, and a way to use up all descriptors of the process.
 *
 * Threads: a stopped worker stops the second thread of a case (side) at the right place.
 * Locks: none.
 * Always: if a thread does not get as far as intended, the case still passes, and only shows less.
 */
#ifndef CONFORMANCE_SIDE_H
#define CONFORMANCE_SIDE_H

#include <sys/resource.h>
#include "workers.h"

enum { words = 1 << 14, bytes = words * 4 };

/* ---- the second thread ---- */

typedef struct side {
    void (*function)(struct side *s);
    pthread_t thread;
    atomic_int id;     /* of the thread, for /proc */
    atomic_int begun;  /* operations */
    atomic_bool ended; /* no operation is left */
    atomic_bool stop;
    hd_runtime *runtime;
    int device;
    hd_lane *lane;
    hd_buffer *x, *y;
    conf_kernels k;
    hd_module *module;
    hd_status status;
} side;

CONF_UNUSED static void *side_runs(void *argument)
{
    side *s = argument;
    atomic_store(&s->id, (int)syscall(SYS_gettid));
    s->function(s);
    atomic_store(&s->ended, true);
    return NULL;
}

CONF_UNUSED static void side_start(side *s)
{
    conf_failure_ends_program = true;
    CONF_EQUAL(pthread_create(&s->thread, NULL, side_runs, s), 0);
}

/* Waits until the thread slept for a while in one operation, or ended. On a busy machine it may
 * take long to get there. */
CONF_UNUSED static void side_settle(side *s)
{
    int quiet = 0, begun = -1;
    int64_t limit = conf_now() + 25 * CONF_SECOND * CONF_SLOWNESS;
    while (quiet < 40 && !atomic_load(&s->ended) && conf_now() < limit) {
        int now = atomic_load(&s->begun), id = atomic_load(&s->id);
        quiet = id != 0 && now == begun && wk_state(id) == 'S' ? quiet + 1 : 0;
        begun = now;
        conf_sleep_ms(2);
    }
}

CONF_UNUSED static void side_join(side *s)
{
    CONF_EQUAL(pthread_join(s->thread, NULL), 0);
    conf_failure_ends_program = false;
}

CONF_UNUSED static void restart_works(hd_runtime *runtime, int device, uint64_t losses)
{
    CONF_OK(hd_device_restart(runtime, device));
    wk_check_facts(runtime, device, losses, losses);
}

/* Returns a buffer of words; all its work is finished. */
CONF_UNUSED static hd_buffer *filled(hd_lane *lane, unsigned flags, uint32_t word)
{
    hd_alloc_options options = {.size = sizeof options, .flags = flags};
    hd_buffer *buffer = NULL;
    CONF_OK(hd_alloc_with(lane, bytes, &options, &buffer));
    CONF_OK(hd_fill(buffer, 0, word, bytes, NULL));
    CONF_OK(hd_buffer_wait(buffer, HD_READ_WRITE, 60 * CONF_SECOND));
    return buffer;
}

CONF_UNUSED static void save(hd_buffer *buffer)
{
    hd_ticket ticket;
    CONF_OK(hd_buffer_save(buffer, &ticket));
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
}

/* Uses up the descriptors of this process until the caller restores the limit. */
CONF_UNUSED static struct rlimit take_descriptors(void)
{
    struct rlimit before, none;
    int lowest = dup(2);
    CONF_TRUE(lowest >= 0 && close(lowest) == 0);
    CONF_EQUAL(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = (rlim_t)lowest;
    CONF_EQUAL(setrlimit(RLIMIT_NOFILE, &none), 0);
    return before;
}

CONF_UNUSED static void give_descriptors(struct rlimit before)
{
    CONF_EQUAL(setrlimit(RLIMIT_NOFILE, &before), 0);
}

#endif
