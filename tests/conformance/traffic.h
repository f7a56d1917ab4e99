/* traffic.h - work on all devices from several threads, for tests in which one device is lost
 * meanwhile.
 *
 * Threads: three for each healthy device, and one for the device that will be lost. A failed check
 * in one of them ends the program.
 * - "apart" works on its device and copies to the next healthy one and to pinned memory
 * - "across" copies to and from the device that will be lost
 * - "reader" runs kernels that read the lost device's memory, if they reach it
 * - "victim" is the thread of the device that will be lost
 *
 * Locks: none. Each buffer belongs to one thread.
 *
 * Always:
 * - "apart" sees no failure and exact bytes until its flag ends it
 * - the others end with the first failure, which the loss must explain
 * - before they end they check that memory and lanes of healthy devices work at once again
 */
#ifndef CONFORMANCE_TRAFFIC_H
#define CONFORMANCE_TRAFFIC_H

#include "workers.h"

enum { TRAFFIC_THREADS = 32 };

struct traffic;

typedef struct traffic_thread {
    struct traffic *all;
    int device;
    hd_buffer *x, *y, *z, *pinned; /* x, z: of `device`; y: of the other one */
    hd_lane *lane;
    pthread_t thread;
    atomic_int rounds; /* successful rounds */
    atomic_bool ended;
    bool must_go_on; /* "apart" */
} traffic_thread;

typedef struct traffic {
    hd_runtime *runtime;
    conf_kernels k;
    int victim;
    bool launches; /* healthy devices launch kernels */
    size_t bytes;
    atomic_bool stop;
    int n;
    traffic_thread threads[TRAFFIC_THREADS];
} traffic;

static inline uint32_t traffic_word(const traffic_thread *t)
{
    return (uint32_t)(t - t->all->threads) << 24 | (uint32_t)(atomic_load(&t->rounds) & 0xffffff);
}

CONF_UNUSED static void traffic_fill(traffic_thread *t, hd_buffer *buffer, uint32_t word)
{
    traffic *all = t->all;
    if (all->launches && atomic_load(&t->rounds) % 2 == 0) {
        CONF_OK(conf_fill(t->lane, all->k, buffer, 0, all->bytes / 4, word, NULL));
    } else {
        CONF_OK(hd_fill(buffer, 0, word, all->bytes, NULL));
    }
}

CONF_UNUSED static void *traffic_apart(void *argument)
{
    traffic_thread *t = argument;
    traffic *all = t->all;
    while (!atomic_load(&all->stop)) {
        uint32_t word = traffic_word(t);
        hd_ticket ticket;
        traffic_fill(t, t->x, word);
        CONF_OK(hd_copy(t->y, 0, t->x, 0, all->bytes, NULL));
        CONF_OK(hd_copy(t->pinned, 0, t->y, 0, all->bytes, &ticket));
        CONF_OK(hd_copy(t->z, 0, t->y, 0, all->bytes, NULL));
        CONF_OK(hd_wait(ticket, 60 * CONF_SECOND * CONF_SLOWNESS));
        CONF_FILLED(t->z, 0, word, all->bytes);
        CONF_FILLED(t->pinned, 0, word, all->bytes);
        CONF_FILLED(t->y, 0, word, all->bytes);
        atomic_fetch_add(&t->rounds, 1);
    }
    atomic_store(&t->ended, true);
    return NULL;
}

/* Checks that the loss explains the failure. */
CONF_UNUSED static void traffic_explained(const traffic *all, hd_status status, const char *what)
{
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    bool lost = status == HD_ERROR_DEVICE_LOST && error.device == all->victim;
    if (!lost && status != HD_ERROR_FAILED && status != HD_ERROR_LANE_FAILED) {
        conf_fail_at(__FILE__, __LINE__, "%s: %s, device %d: %s", what, hd_status_name(status), error.device,
                     error.message);
    }
}

/* Checks that the destination of a failed operation works again once written, and that its source
 * is unchanged. */
CONF_UNUSED static void traffic_heals(traffic_thread *t, uint32_t word)
{
    traffic *all = t->all;
    CONF_FILLED(t->x, 0, word, all->bytes);
    CONF_OK(hd_fill(t->z, 0, 0x0badcafeu, all->bytes, NULL));
    CONF_FILLED(t->z, 0, 0x0badcafeu, all->bytes);
    if (all->launches) {
        CONF_OK(hd_lane_reset(t->lane, 60 * CONF_SECOND));
        CONF_OK(conf_copy(t->lane, all->k, t->z, 0, t->x, 0, all->bytes / 4, NULL));
        CONF_FILLED(t->z, 0, word, all->bytes);
    }
    atomic_store(&t->ended, true);
}

CONF_UNUSED static void *traffic_across(void *argument)
{
    traffic_thread *t = argument;
    traffic *all = t->all;
    while (!atomic_load(&all->stop)) {
        uint32_t word = traffic_word(t);
        hd_ticket there = {NULL, 0}, back = {NULL, 0};
        traffic_fill(t, t->x, word);
        hd_status status = hd_copy(t->y, 0, t->x, 0, all->bytes, &there);
        status = status == HD_OK ? hd_copy(t->z, 0, t->y, 0, all->bytes, &back) : status;
        status = status == HD_OK ? hd_wait(back, 60 * CONF_SECOND * CONF_SLOWNESS) : status;
        if (status != HD_OK) {
            traffic_explained(all, status, "across");
            CONF_TRUE(hd_wait(there, 60 * CONF_SECOND) != HD_ERROR_TIMEOUT);
            CONF_TRUE(hd_wait(back, 60 * CONF_SECOND) != HD_ERROR_TIMEOUT);
            traffic_heals(t, word);
            break;
        }
        CONF_FILLED(t->z, 0, word, all->bytes);
        atomic_fetch_add(&t->rounds, 1);
    }
    return NULL;
}

/* Kernels of a healthy device read memory of the one that will be lost. */
CONF_UNUSED static void *traffic_reader(void *argument)
{
    traffic_thread *t = argument;
    traffic *all = t->all;
    CONF_OK(hd_fill(t->x, 0, 1, all->bytes, NULL));
    while (!atomic_load(&all->stop)) {
        uint32_t word = traffic_word(t);
        hd_ticket ticket = {NULL, 0};
        hd_status status = hd_fill(t->y, 0, word, all->bytes, NULL);
        status = status == HD_OK ? conf_copy(t->lane, all->k, t->z, 0, t->y, 0, all->bytes / 4, &ticket) : status;
        status = status == HD_OK ? hd_wait(ticket, 60 * CONF_SECOND * CONF_SLOWNESS) : status;
        if (status != HD_OK) {
            traffic_explained(all, status, "reader");
            traffic_heals(t, 1);
            break;
        }
        CONF_FILLED(t->z, 0, word, all->bytes);
        atomic_fetch_add(&t->rounds, 1);
    }
    return NULL;
}

/* Works only on the device that will be lost. */
CONF_UNUSED static void *traffic_victim(void *argument)
{
    traffic_thread *t = argument;
    traffic *all = t->all;
    while (!atomic_load(&all->stop)) {
        uint32_t word = traffic_word(t), got[4] = {0};
        hd_status status = conf_fill(t->lane, all->k, t->x, 0, all->bytes / 4, word, NULL);
        status = status == HD_OK ? hd_copy(t->z, 0, t->x, 0, all->bytes, NULL) : status;
        status = status == HD_OK ? hd_read(t->z, all->bytes - 16, got, 16) : status;
        if (status != HD_OK) {
            traffic_explained(all, status, "victim");
            break;
        }
        CONF_TRUE(got[0] == word && got[3] == word);
        atomic_fetch_add(&t->rounds, 1);
    }
    atomic_store(&t->ended, true);
    return NULL;
}

CONF_UNUSED static traffic_thread *traffic_add(traffic *all, int device, int other, void *(*function)(void *))
{
    CONF_TRUE(all->n < TRAFFIC_THREADS);
    traffic_thread *t = &all->threads[all->n++];
    *t = (traffic_thread){.all = all, .device = device, .must_go_on = function == traffic_apart};
    CONF_OK(hd_lane_create(all->runtime, device, &t->lane));
    CONF_OK(hd_alloc(t->lane, all->bytes, &t->x));
    CONF_OK(hd_alloc(t->lane, all->bytes, &t->z));
    CONF_OK(hd_alloc(conf_default_lane(all->runtime, other), all->bytes, &t->y));
    CONF_OK(hd_alloc_host(all->runtime, all->bytes, &t->pinned));
    CONF_EQUAL(pthread_create(&t->thread, NULL, function, t), 0);
    return t;
}

CONF_UNUSED static int traffic_next_healthy(const traffic *all, int device)
{
    int count = hd_device_count(all->runtime), next = (device + 1) % count;
    return next == all->victim ? (next + 1) % count : next;
}

/* Starts the traffic; with `with_victim` also the threads that will see failures. At most three
 * healthy devices take part. */
CONF_UNUSED static void traffic_start(traffic *all, hd_runtime *runtime, int victim, bool launches, size_t bytes,
                                      bool with_victim)
{
    memset(all, 0, sizeof *all);
    /* until the traffic stops: after a failed check its threads would run on */
    conf_failure_ends_program = true;
    all->runtime = runtime, all->victim = victim, all->launches = launches, all->bytes = bytes;
    all->k = conf_builtins(runtime);
    int count = hd_device_count(runtime), healthy = 0;
    for (int d = 0; d < count && healthy < 3; d++) {
        if (d == victim) {
            continue;
        }
        healthy++;
        traffic_add(all, d, traffic_next_healthy(all, d), traffic_apart);
        if (with_victim) {
            traffic_add(all, d, victim, traffic_across);
            if (launches && conf_reaches(runtime, d, victim)) {
                traffic_add(all, d, victim, traffic_reader);
            }
        }
    }
    if (with_victim) {
        traffic_add(all, victim, victim, traffic_victim);
    }
}

/* Waits until every thread that the loss does not concern does `more` rounds from now on. */
CONF_UNUSED static void traffic_goes_on(traffic *all, int more)
{
    int before[TRAFFIC_THREADS];
    for (int i = 0; i < all->n; i++) {
        before[i] = atomic_load(&all->threads[i].rounds);
    }
    for (int i = 0; i < all->n; i++) {
        traffic_thread *t = &all->threads[i];
        while (!atomic_load(&t->ended) && atomic_load(&t->rounds) < before[i] + more) {
            conf_sleep_ms(1);
        }
        CONF_TRUE(!t->must_go_on || !atomic_load(&t->ended));
    }
}

/* Waits until every thread that the loss concerns notices it. */
CONF_UNUSED static void traffic_notices(traffic *all)
{
    for (int i = 0; i < all->n; i++) {
        while (!all->threads[i].must_go_on && !atomic_load(&all->threads[i].ended)) {
            conf_sleep_ms(1);
        }
    }
}

CONF_UNUSED static void traffic_stop(traffic *all)
{
    atomic_store(&all->stop, true);
    for (int i = 0; i < all->n; i++) {
        traffic_thread *t = &all->threads[i];
        pthread_join(t->thread, NULL);
        hd_free(t->x);
        hd_free(t->y);
        hd_free(t->z);
        hd_free(t->pinned);
        hd_lane_destroy(t->lane);
    }
    conf_failure_ends_program = false;
}

#endif
