/* pool.h - for the tests of memory: checks of the statistics, threads, and the check that all
 * memory was given back.
 *
 * Threads: the helpers work in every thread.
 * Locks: none.
 * Always: no check measures time. Limits come from the option memory_limit, so that the tests fit
 * on a GPU that others use, too.
 */
#ifndef CONFORMANCE_POOL_H
#define CONFORMANCE_POOL_H

#include <sched.h>
#include <stdatomic.h>
#include "conformance.h"

#define POOL_KIB ((size_t)1 << 10)
#define POOL_MIB ((size_t)1 << 20)
#define POOL_GRANULE (2 * POOL_MIB)
#define POOL_WAIT (60 * CONF_SECOND * CONF_SLOWNESS)

CONF_UNUSED static hd_memory_stats pool_stats(hd_runtime *runtime, int device)
{
    hd_memory_stats stats = {.size = sizeof stats};
    CONF_OK(hd_memory_get_stats(runtime, device, &stats));
    return stats;
}

/* Returns the physical memory in use on a host device, as its driver reports. 0 for a GPU, whose
 * memory others use, too. */
CONF_UNUSED static uint64_t pool_driver_holds(hd_runtime *runtime, int device)
{
    hd_device_info info = {.size = sizeof info};
    CONF_OK(hd_device_get_info(runtime, device, &info));
    return info.is_host ? info.memory_bytes - info.memory_free_bytes : 0;
}

/* Checks the figures while no thread allocates. Returns NULL, or a text that describes the
 * violation. */
CONF_UNUSED static const char *pool_odd(hd_runtime *runtime, int device)
{
    hd_memory_stats s = pool_stats(runtime, device);
    bool on_device = device != HD_DEVICE_HOST;
    hd_device_info info = {.size = sizeof info};
    CONF_OK(hd_device_get_info(runtime, on_device ? device : 0, &info));
    uint64_t served = s.from_magazine + s.from_same_lane + s.from_finished + s.from_waited + s.from_fresh;
    const struct {
        bool is;
        const char *what;
    } odd[] = {
        {s.reserved_bytes > s.reserved_peak_bytes, "reserved is above its peak"},
        {s.taken_bytes > s.taken_peak_bytes, "taken is above its peak"},
        {s.live_count != s.allocations - s.frees, "live is not what was allocated and not freed"},
        {(s.live_count == 0) != (s.live_bytes == 0), "live bytes do not fit live blocks"},
        {s.frees_elsewhere > s.frees, "more was freed elsewhere than at all"},
        {(s.waits == 0) != (s.wait_ns == 0), "waits do not fit their time"},
        {s.overruns != 0, "something was overrun"},
        {on_device && s.taken_bytes > s.reserved_bytes, "more is taken than reserved"},
        {on_device && s.live_bytes + s.cached_bytes + s.held_bytes > s.taken_bytes, "more is live than taken"},
        {on_device && info.losses == 0 && served != s.allocations,
         "allocations are not the sum of where they came from"},
        {s.mapped_bytes - s.moved_bytes - s.returned_bytes != s.reserved_bytes,
         "reserved is not what was mapped and not moved or given back"},
        {on_device && s.ahead_bytes > s.mapped_bytes, "more was mapped ahead than at all"},
    };
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        if (odd[i].is) {
            return odd[i].what;
        }
    }
    return NULL;
}

/* Checks the figures; if `quiet`, also those that hold while no thread allocates. It tries the
 * latter again: between two figures of one look, memory may still be mapped ahead of need or given
 * back. */
CONF_UNUSED static void pool_consistent(hd_runtime *runtime, int device, bool quiet)
{
    hd_memory_stats s = pool_stats(runtime, device);
    CONF_EQUAL(s.size, sizeof s);
    CONF_TRUE(device == HD_DEVICE_HOST || (s.limit_bytes > 0 && s.reserved_bytes % POOL_GRANULE == 0));
    CONF_TRUE(s.reserved_bytes <= s.limit_bytes);
    CONF_TRUE(s.reserved_peak_bytes <= s.limit_bytes);
    if (device != HD_DEVICE_HOST) { /* these figures are of one moment */
        CONF_EQUAL(s.mapped_bytes - s.moved_bytes - s.returned_bytes, s.reserved_bytes);
        CONF_TRUE(s.reserved_bytes <= s.reserved_peak_bytes);
        CONF_TRUE(s.taken_bytes <= s.reserved_bytes);
    }
    const char *odd = quiet ? pool_odd(runtime, device) : NULL;
    for (int i = 0; i < 200 && odd != NULL; i++) {
        conf_sleep_ms(5);
        odd = pool_odd(runtime, device);
    }
    if (odd != NULL) {
        s = pool_stats(runtime, device);
        conf_fail_at(
            __FILE__, __LINE__,
            "device %d: %s. Reserved %llu (peak %llu), taken %llu (peak %llu), live %llu in %llu, cached %llu, "
            "held %llu. %llu allocations, %llu frees. From magazine %llu, same lane %llu, finished %llu, waited "
            "%llu, fresh %llu. Mapped %llu, moved %llu, returned %llu, ahead %llu",
            device, odd, (unsigned long long)s.reserved_bytes, (unsigned long long)s.reserved_peak_bytes,
            (unsigned long long)s.taken_bytes, (unsigned long long)s.taken_peak_bytes, (unsigned long long)s.live_bytes,
            (unsigned long long)s.live_count, (unsigned long long)s.cached_bytes, (unsigned long long)s.held_bytes,
            (unsigned long long)s.allocations, (unsigned long long)s.frees, (unsigned long long)s.from_magazine,
            (unsigned long long)s.from_same_lane, (unsigned long long)s.from_finished,
            (unsigned long long)s.from_waited, (unsigned long long)s.from_fresh, (unsigned long long)s.mapped_bytes,
            (unsigned long long)s.moved_bytes, (unsigned long long)s.returned_bytes, (unsigned long long)s.ahead_bytes);
    }
}

/* If the engine runs on the caller, only calls that submit and wait see finished work of any
 * lane. */
CONF_UNUSED static void pool_drive(hd_runtime *runtime, int device)
{
    hd_buffer *x = NULL;
    if (conf_is_inline(runtime)) {
        CONF_OK(hd_alloc(conf_default_lane(runtime, device), 4, &x));
        CONF_OK(hd_fill(x, 0, 1, 4, NULL));
        CONF_OK(hd_buffer_wait(x, HD_READ_WRITE, POOL_WAIT));
        hd_free(x);
    }
}

/* No buffer is live, so all physical memory can be given back, at the latest once the end of the
 * work is seen. */
CONF_UNUSED static void pool_gives_all_back(hd_runtime *runtime, int device)
{
    hd_memory_stats s = pool_stats(runtime, device);
    CONF_EQUAL(s.live_count, 0);
    CONF_EQUAL(s.live_bytes, 0);
    CONF_EQUAL(s.held_bytes, 0);
    pool_consistent(runtime, device, true);
    hd_lane *lane = conf_default_lane(runtime, device);
    int64_t start = conf_now();
    for (int i = 0; pool_stats(runtime, device).reserved_bytes != 0; i++) {
        CONF_OK(hd_lane_wait(lane, POOL_WAIT));
        pool_drive(runtime, device);
        CONF_OK(hd_memory_trim(runtime, device, 0, NULL));
        if (i > 0) {
            conf_sleep_ms(1);
        }
        if (conf_now() - start > POOL_WAIT) {
            s = pool_stats(runtime, device);
            conf_fail_at(__FILE__, __LINE__,
                         "device %d: nothing is live, but %llu bytes are reserved: taken %llu, cached %llu, waiting "
                         "%llu, held %llu",
                         device, (unsigned long long)s.reserved_bytes, (unsigned long long)s.taken_bytes,
                         (unsigned long long)s.cached_bytes, (unsigned long long)s.waiting_bytes,
                         (unsigned long long)s.held_bytes);
        }
    }
    s = pool_stats(runtime, device);
    CONF_EQUAL(s.taken_bytes, 0);
    CONF_EQUAL(s.cached_bytes, 0);
    CONF_EQUAL(s.waiting_bytes, 0);
    pool_consistent(runtime, device, true);
}

/* ---- threads ---- */

typedef struct pool_thread {
    pthread_t thread;
    void *(*function)(void *);
    int number;
    hd_runtime *runtime;
    conf_random random;
    void *context;
} pool_thread;

/* Starts `count` threads, each with its number and its random numbers. While they run, a failed
 * check ends the program. */
CONF_UNUSED static void pool_start(pool_thread *threads, int count, hd_runtime *runtime, uint64_t seed,
                                   void *(*function)(void *), void *context)
{
    conf_failure_ends_program = true;
    for (int i = 0; i < count; i++) {
        threads[i] = (pool_thread){.function = function,
                                   .number = i,
                                   .runtime = runtime,
                                   .random = {seed * 1000 + (uint64_t)i},
                                   .context = context};
        CONF_EQUAL(pthread_create(&threads[i].thread, NULL, function, &threads[i]), 0);
    }
}

CONF_UNUSED static void pool_join(pool_thread *threads, int count)
{
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i].thread, NULL);
    }
    conf_failure_ends_program = false;
}

/* Returns a random size: small, a border of a size class, anything up to 1 MiB, or large. */
CONF_UNUSED static size_t pool_size(conf_random *r, size_t largest)
{
    uint64_t kind = conf_below(r, 100);
    size_t bytes;
    if (kind < 35) {
        bytes = 1 + conf_below(r, 4096);
    } else if (kind < 65) {
        size_t row = (size_t)2048 << conf_below(r, 10); /* 2 KiB to 1 MiB, in eighths */
        bytes = row / 8 * (8 + conf_below(r, 9)) + conf_below(r, 3) - 1;
    } else if (kind < 85) {
        bytes = 1 + conf_below(r, POOL_MIB);
    } else {
        bytes = 1 + conf_below(r, largest);
    }
    return bytes > largest ? largest : bytes;
}

#endif
