/* test_memory_trim.c - memory that is given back on request and when idle, and the counters for
 * each way to serve an allocation.
 *
 * Promise: hd_memory_trim and idle time give unused memory back and keep live memory.
 *
 * Statistics count each way to serve an allocation.
 *
 * Threads: the main one.
 * Locks: none.
 * Always: live memory stays. No check measures how long giving back took.
 */
#include "pool.h"

/* ---- memory that goes back ---- */

/* Trims until at most `most` bytes are reserved. One trim may not suffice, because the library may
 * have just mapped memory ahead of need. Returns the bytes given back. */
static size_t trims_to(hd_runtime *runtime, size_t keep, size_t most)
{
    size_t all = 0, freed = 0;
    do {
        CONF_OK(hd_memory_trim(runtime, 0, keep, &freed));
        CONF_EQUAL(freed % POOL_GRANULE, 0);
        all += freed;
    } while (pool_stats(runtime, 0).reserved_bytes > most);
    return all;
}

static void is_given_back_on_request(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=2 host_memory=128M memory_limit=64M memory_idle=0");
    hd_lane *lane = conf_default_lane(runtime, 0);
    uint64_t before = pool_driver_holds(runtime, 0);
    hd_buffer *x = NULL, *y = NULL, *small[40];
    size_t freed = 4711;
    CONF_OK(hd_alloc(lane, 20 * POOL_MIB, &x));
    CONF_OK(hd_alloc(lane, 10 * POOL_MIB, &y));
    for (int i = 0; i < 40; i++) {
        CONF_OK(hd_alloc(lane, 100 * POOL_KIB, &small[i]));
    }
    CONF_OK(hd_fill(y, 0, 5, 10 * POOL_MIB, NULL));
    CONF_OK(hd_lane_wait(lane, POOL_WAIT));
    uint64_t all = pool_stats(runtime, 0).reserved_bytes;
    CONF_TRUE(all >= 34 * POOL_MIB);
    hd_free(x);
    for (int i = 0; i < 40; i++) { /* magazines take as many as fit */
        hd_free(small[i]);
    }
    /* 10 live, 8 idle, some granules in part */
    freed = trims_to(runtime, 8 * POOL_MIB, 20 * POOL_MIB);
    hd_memory_stats s = pool_stats(runtime, 0);
    CONF_TRUE(freed + s.reserved_bytes >= all);
    CONF_TRUE(s.reserved_bytes >= 16 * POOL_MIB); /* not more than asked for */
    CONF_EQUAL(s.cached_bytes, 0);
    CONF_OK(hd_memory_trim(runtime, 0, SIZE_MAX, &freed));
    CONF_EQUAL(freed, 0);
    trims_to(runtime, 0, 12 * POOL_MIB);
    s = pool_stats(runtime, 0);
    CONF_TRUE(s.reserved_bytes >= 10 * POOL_MIB);
    CONF_TRUE(s.reserved_peak_bytes >= all);
    CONF_FILLED(y, 0, 5, 10 * POOL_MIB);
    CONF_OK(hd_memory_trim(runtime, hd_device_count(runtime) - 1, 0, NULL));
    hd_free(y);
    pool_gives_all_back(runtime, 0);
    CONF_TRUE(pool_driver_holds(runtime, 0) <= before);
    CONF_OK(hd_alloc(lane, 20 * POOL_MIB, &x)); /* and can be allocated again */
    CONF_OK(hd_fill(x, 0, 6, 20 * POOL_MIB, NULL));
    CONF_FILLED(x, 0, 6, 20 * POOL_MIB);
    hd_free(x);

    /* memory that work still uses stays */
    conf_slow slow;
    conf_slow_make(&slow, runtime, 0);
    bool seen = false;
    for (double ms = 50; !seen && ms < 30000; ms *= 2) {
        hd_ticket ticket;
        CONF_OK(hd_alloc(lane, 16 * POOL_MIB, &x));
        conf_slow_run(&slow, lane, NULL, 0, ms, NULL);
        CONF_OK(conf_fill(lane, slow.kernels, x, 0, 4 * POOL_MIB, 7, &ticket));
        hd_free(x);
        CONF_OK(hd_memory_trim(runtime, 0, 0, NULL));
        uint64_t reserved = pool_stats(runtime, 0).reserved_bytes, waiting = pool_stats(runtime, 0).waiting_bytes;
        seen = !hd_done(ticket);
        CONF_TRUE(!seen || (reserved >= 16 * POOL_MIB && waiting >= 16 * POOL_MIB));
        CONF_OK(hd_wait(ticket, POOL_WAIT));
    }
    CONF_TRUE(seen);
    conf_slow_free(&slow);
    pool_gives_all_back(runtime, 0);
    conf_close(runtime);
}

/* A program that stopped growing, or stopped altogether, gives back memory that it does not
 * need. */
static void is_given_back_when_idle(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=1 host_memory=128M memory_limit=64M memory_idle=30");
    if (conf_is_inline(runtime)) { /* no thread could do it */
        conf_close(runtime);
        skip();
    }
    hd_lane *lane = conf_default_lane(runtime, 0);
    for (int round = 0; round < 3; round++) {
        hd_buffer *x = NULL, *y = NULL, *small = NULL;
        CONF_OK(hd_alloc(lane, 24 * POOL_MIB, &x));
        CONF_OK(hd_alloc(lane, 6 * POOL_MIB, &y));
        CONF_OK(hd_alloc(lane, 1000, &small));
        CONF_OK(hd_fill(x, 0, 1, 24 * POOL_MIB, NULL));
        CONF_OK(hd_fill(y, 0, (uint32_t)round, 6 * POOL_MIB, NULL));
        CONF_OK(hd_buffer_wait(x, HD_READ_WRITE, POOL_WAIT));
        uint64_t peak = pool_stats(runtime, 0).reserved_bytes;
        CONF_TRUE(peak >= 30 * POOL_MIB);
        hd_free(x);
        hd_free(small);
        /* 6 live, and some head room */
        while (pool_stats(runtime, 0).reserved_bytes > 16 * POOL_MIB) {
            conf_sleep_ms(5);
        }
        CONF_FILLED(y, 0, (uint32_t)round, 6 * POOL_MIB);
        hd_free(y);
        while (pool_stats(runtime, 0).reserved_bytes != 0) {
            conf_sleep_ms(5);
        }
        CONF_EQUAL(pool_stats(runtime, 0).cached_bytes, 0);
    }
    CONF_TRUE(pool_stats(runtime, 0).returned_bytes >= 3 * 30 * POOL_MIB);
    conf_close(runtime);
}

/* Also pinned memory, of a program without other memory. Live memory stays. */
static void pinned_memory_is_given_back_when_idle(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=1 host_memory=128M pinned_limit=64M memory_idle=30");
    if (conf_is_inline(runtime)) {
        conf_close(runtime);
        skip();
    }
    uint64_t before = pool_stats(runtime, HD_DEVICE_HOST).reserved_bytes;
    for (int round = 0; round < 3; round++) {
        hd_buffer *freed = NULL, *live = NULL;
        CONF_OK(hd_alloc_host(runtime, 24 * POOL_MIB, &freed));
        CONF_OK(hd_alloc_host(runtime, 20 * POOL_MIB, &live));
        CONF_TRUE(pool_stats(runtime, HD_DEVICE_HOST).reserved_bytes >= 44 * POOL_MIB);
        hd_free(freed);
        while (pool_stats(runtime, HD_DEVICE_HOST).reserved_bytes > before + 20 * POOL_MIB) {
            conf_sleep_ms(5);
        }
        CONF_EQUAL(pool_stats(runtime, HD_DEVICE_HOST).live_bytes, 20 * POOL_MIB);
        hd_free(live);
        while (pool_stats(runtime, HD_DEVICE_HOST).reserved_bytes > before) {
            conf_sleep_ms(5);
        }
    }
    conf_close(runtime);
}

/* ---- statistics ---- */

/* Each way to serve an allocation counts in its counter. */
static void every_way_is_counted(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=1 host_memory=128M memory_limit=64M memory_idle=0 memory_timeout=0");
    conf_slow slow;
    conf_slow_make(&slow, runtime, 0);
    hd_lane *a = NULL, *b = NULL;
    CONF_OK(hd_lane_create(runtime, 0, &a));
    CONF_OK(hd_lane_create(runtime, 0, &b));
    hd_buffer *x = NULL, *y = NULL, *all[64];
    int n = 0;

    hd_memory_stats s = pool_stats(runtime, 0), t;
    CONF_OK(hd_alloc(a, 12 * POOL_MIB, &x)); /* larger than all mapped memory */
    t = pool_stats(runtime, 0);
    CONF_EQUAL(t.from_fresh, s.from_fresh + 1);
    CONF_TRUE(t.driver_calls > s.driver_calls);
    CONF_TRUE(t.mapped_bytes > s.mapped_bytes);
    CONF_EQUAL(t.live_bytes, s.live_bytes + 12 * POOL_MIB);
    CONF_EQUAL(t.live_count, s.live_count + 1);
    CONF_OK(hd_alloc(b, 4 * POOL_MIB, &y));
    /* no memory is left but this block */
    for (size_t each = 8 * POOL_MIB; each >= 2 * POOL_MIB; each /= 2) {
        while (n < 64 && hd_alloc(a, each, &all[n]) == HD_OK) {
            n++;
        }
    }

    s = pool_stats(runtime, 0); /* no lane used it */
    hd_free(x);
    CONF_OK(hd_alloc(b, 12 * POOL_MIB, &x));
    t = pool_stats(runtime, 0);
    CONF_EQUAL(t.from_finished + t.from_same_lane, s.from_finished + s.from_same_lane + 1);
    CONF_EQUAL(t.from_fresh, s.from_fresh);
    CONF_EQUAL(t.frees, s.frees + 1);

    bool same = false, waited = false;
    for (double ms = 30; (!same || !waited) && ms < 30000;
         ms *= 2) { /* in use by the lane that allocates, or by another */
        hd_ticket ticket;
        for (int other = 0; other < 2; other++) {
            conf_slow_run(&slow, b, NULL, 0, ms, NULL);
            CONF_OK(conf_fill(b, slow.kernels, x, 0, 16384, 1, &ticket));
            hd_free(x);
            if (!other) { /* the lane's magazine keeps this block instead */
                CONF_OK(conf_fill(b, slow.kernels, y, 0, 1, 1, NULL));
                hd_free(y);
            }
            s = pool_stats(runtime, 0);
            CONF_OK(hd_alloc(other ? a : b, 12 * POOL_MIB, &x));
            t = pool_stats(runtime, 0);
            bool unfinished = !hd_done(ticket);
            if (other) {
                CONF_TRUE(!unfinished || t.from_waited == s.from_waited + 1);
                waited |= unfinished;
            } else {
                CONF_TRUE(!unfinished || t.from_same_lane == s.from_same_lane + 1);
                same |= unfinished;
                CONF_OK(hd_alloc(b, 4 * POOL_MIB, &y));
                CONF_EQUAL(pool_stats(runtime, 0).from_magazine, s.from_magazine + 1);
            }
            /* behind the fill of the other lane */
            CONF_OK(conf_fill(a, slow.kernels, x, 0, 16384, 3, NULL));
            CONF_FILLED(x, 0, 3, 65536);
        }
    }
    CONF_TRUE(same && waited);
    hd_free(y);
    for (int i = 0; i < n; i++) {
        hd_free(all[i]);
    }

    hd_buffer *small = NULL;
    CONF_OK(hd_alloc(a, 5000, &small));
    hd_free(small);
    s = pool_stats(runtime, 0);
    CONF_TRUE(s.cached_bytes >= 5000);
    hd_lane_memory lanes[4] = {{0, 0, 0}};
    size_t count = 0;
    CONF_OK(hd_memory_get_lanes(runtime, 0, lanes, 4, &count));
    CONF_TRUE(count >= 1);
    uint64_t cached = 0;
    bool found = false;
    for (size_t i = 0; i < count && i < 4; i++) {
        cached += lanes[i].cached_bytes;
        found |= lanes[i].lane == hd_lane_number(a) && lanes[i].cached_count >= 1 && lanes[i].cached_bytes >= 5000;
    }
    CONF_TRUE(found);
    CONF_EQUAL(cached, s.cached_bytes);
    CONF_OK(hd_alloc(a, 5100, &small)); /* of the same class */
    t = pool_stats(runtime, 0);
    CONF_EQUAL(t.from_magazine, s.from_magazine + 1);
    CONF_TRUE(t.cached_bytes < s.cached_bytes);
    hd_free(small);
    pool_consistent(runtime, 0, true);

    uint64_t live = t.live_count;
    hd_free(x);
    hd_free(NULL);
    hd_free(x);
    CONF_EQUAL(pool_stats(runtime, 0).live_count, live - 2);
    conf_slow_free(&slow);
    CONF_OK(hd_lane_wait(a, POOL_WAIT));
    CONF_OK(hd_lane_wait(b, POOL_WAIT));
    pool_gives_all_back(runtime, 0);
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_memory_trim");
    const struct CMUnitTest tests[] = {
        CONF_CASE(is_given_back_on_request),
        CONF_CASE(is_given_back_when_idle),
        CONF_CASE(pinned_memory_is_given_back_when_idle),
        CONF_CASE(every_way_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
