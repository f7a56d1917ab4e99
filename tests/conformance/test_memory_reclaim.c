/* test_memory_reclaim.c - the program's reclaim callback: at the limit, early, in many threads,
 * during a replacement. test_memory_trim.c tests memory that is given back without one.
 *
 * Promise: Before an allocation fails, the reclaim callback runs, and its frees serve it.
 *
 * Threads: up to 8 that allocate.
 * Locks: the lock of the buffers that the callback frees.
 * Always: the rate of early calls is compared with their length, by the library's own rule,
 * generously, and never with an expected speed.
 */
#include "pool.h"

/* ---- at the limit ---- */

enum { SPARE = 64 };

/* Buffers that the program can spare, and observations of its callback. */
typedef struct spare {
    hd_runtime *runtime;
    hd_buffer *buffers[SPARE];
    atomic_int n;
    int free_each;  /* buffers freed by each call */
    bool always;    /* returns that it freed something even if it did not */
    bool allocates; /* allocates more than the device has */
    pthread_t allocator;
    atomic_int depth, deepest, calls, early, limit;
    hd_reclaim last;
    unsigned attempts[16];
} spare;

static bool spares(void *context, const hd_reclaim *what)
{
    spare *s = context;
    int depth = atomic_fetch_add(&s->depth, 1) + 1;
    if (depth > atomic_load(&s->deepest)) {
        atomic_store(&s->deepest, depth);
    }
    CONF_TRUE(pthread_equal(pthread_self(), s->allocator));
    CONF_TRUE(what->size >= sizeof *what);
    CONF_TRUE(what->reason == HD_RECLAIM_EARLY || what->reason == HD_RECLAIM_LIMIT);
    CONF_TRUE(what->reserved_bytes <= what->limit_bytes);
    CONF_TRUE(what->live_bytes <= what->reserved_bytes);
    s->last = *what;
    int call = atomic_fetch_add(&s->calls, 1);
    atomic_fetch_add(what->reason == HD_RECLAIM_EARLY ? &s->early : &s->limit, 1);
    if (call < 16) {
        s->attempts[call] = what->attempt;
    }
    if (s->allocates) { /* it is refused, and calls no callback again */
        hd_buffer *x = NULL;
        CONF_FAILS(hd_alloc(conf_default_lane(s->runtime, what->device), what->limit_bytes, &x), HD_ERROR_MEMORY);
    }
    int freed = 0;
    for (; freed < s->free_each && atomic_load(&s->n) > 0; freed++) {
        hd_free(s->buffers[atomic_fetch_sub(&s->n, 1) - 1]);
    }
    atomic_fetch_sub(&s->depth, 1);
    return freed > 0 || s->always;
}

static void spare_make(spare *s, hd_runtime *runtime, int count, size_t each)
{
    memset(s, 0, sizeof *s);
    s->runtime = runtime;
    s->allocator = pthread_self();
    s->free_each = 1;
    for (int i = 0; i < count; i++) {
        CONF_OK(hd_alloc(conf_default_lane(runtime, 0), each, &s->buffers[i]));
        CONF_OK(hd_fill(s->buffers[i], 0, (uint32_t)i, each, NULL));
    }
    atomic_store(&s->n, count);
}

static void spare_free(spare *s)
{
    CONF_OK(hd_memory_on_reclaim(s->runtime, NULL, NULL));
    while (atomic_load(&s->n) > 0) {
        hd_free(s->buffers[atomic_fetch_sub(&s->n, 1) - 1]);
    }
}

static void frees_what_an_allocation_lacks(void **state)
{
    (void)state;
    hd_runtime *runtime =
        conf_open("host_devices=2 host_memory=128M memory_limit=32M memory_timeout=20 memory_reclaim=0");
    int device = 0;
    hd_lane *lane = conf_default_lane(runtime, device);
    static spare s;
    spare_make(&s, runtime, 8, 4 * POOL_MIB);
    CONF_OK(hd_memory_on_reclaim(runtime, spares, &s));
    hd_buffer *x = NULL, *none = NULL;
    CONF_OK(hd_alloc(lane, 10 * POOL_MIB, &x)); /* lacks three of them */
    CONF_TRUE(atomic_load(&s.limit) >= 3 && atomic_load(&s.limit) <= 4);
    CONF_EQUAL(atomic_load(&s.early), 0);
    CONF_EQUAL(s.last.device, device);
    CONF_EQUAL(s.last.reason, HD_RECLAIM_LIMIT);
    CONF_TRUE(s.last.wanted >= 10 * POOL_MIB && s.last.wanted < 10 * POOL_MIB + 4096);
    CONF_EQUAL(s.last.limit_bytes, 32 * POOL_MIB);
    for (int i = 0; i < atomic_load(&s.limit); i++) {
        CONF_EQUAL(s.attempts[i], i);
    }
    hd_memory_stats stats = pool_stats(runtime, device);
    CONF_EQUAL(stats.limit_reclaims, atomic_load(&s.limit));
    CONF_EQUAL(stats.failures, 0);
    CONF_TRUE(stats.limit_reclaim_ns > 0);
    CONF_TRUE(stats.longest_pause_ns >= stats.limit_reclaim_ns);
    CONF_TRUE(stats.drains > 0);

    /* attempts of the next allocation count from 0 again; once nothing is left to free, it fails */
    int before = atomic_load(&s.calls);
    CONF_FAILS(hd_alloc(lane, 30 * POOL_MIB, &none), HD_ERROR_MEMORY);
    CONF_EQUAL(s.attempts[before], 0);
    CONF_EQUAL(atomic_load(&s.n), 0);
    CONF_EQUAL(pool_stats(runtime, device).failures, 1);
    CONF_TRUE(none == NULL);
    hd_free(x);
    CONF_OK(hd_alloc(lane, 30 * POOL_MIB, &x));
    hd_free(x);
    spare_free(&s);
    pool_gives_all_back(runtime, 0);
    conf_close(runtime);
}

/* An allocation above the limit fails at once: neither the callback nor a thread's magazine gives
 * anything up for it. */
static void is_not_called_in_vain(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=1 host_memory=128M memory_limit=32M pinned_limit=16M");
    hd_lane *lane = conf_default_lane(runtime, 0);
    static spare s;
    spare_make(&s, runtime, 7, 4 * POOL_MIB); /* enough pressure for early calls */
    CONF_OK(hd_memory_on_reclaim(runtime, spares, &s));
    uint64_t drains = pool_stats(runtime, 0).drains;
    hd_buffer *none = NULL;
    const hd_alloc_options dedicated = {.size = sizeof dedicated, .flags = HD_ALLOC_DEDICATED};
    for (int i = 0; i < 20; i++) {
        CONF_FAILS_WITH(hd_alloc(lane, 33 * POOL_MIB, &none), HD_ERROR_MEMORY,
                        "the size exceeds the limit: raise memory_limit (32 MiB)");
        CONF_FAILS(hd_alloc_with(lane, 33 * POOL_MIB, &dedicated, &none), HD_ERROR_MEMORY);
        CONF_FAILS_WITH(hd_alloc_host(runtime, 17 * POOL_MIB, &none), HD_ERROR_HOST_MEMORY,
                        "the size 17 MiB exceeds the limit; raise pinned_limit (16 MiB)");
    }
    CONF_EQUAL(atomic_load(&s.calls), 0);
    CONF_EQUAL(pool_stats(runtime, 0).drains, drains);
    spare_free(&s);
    conf_close(runtime);
}

/* A callback that frees nothing ends the fallback, even if it always returns that it did. */
static void may_free_nothing(void **state)
{
    (void)state;
    hd_runtime *runtime =
        conf_open("host_devices=1 host_memory=128M memory_limit=16M memory_timeout=1 memory_reclaim=0");
    hd_lane *lane = conf_default_lane(runtime, 0);
    static spare s;
    spare_make(&s, runtime, 4, 3 * POOL_MIB);
    s.free_each = 0;
    CONF_OK(hd_memory_on_reclaim(runtime, spares, &s));
    hd_buffer *none = NULL;
    CONF_FAILS_WITH(hd_alloc(lane, 8 * POOL_MIB, &none), HD_ERROR_MEMORY, "hd_alloc");
    CONF_EQUAL(atomic_load(&s.calls), 1);
    s.always = true;
    CONF_FAILS(hd_alloc(lane, 8 * POOL_MIB, &none), HD_ERROR_MEMORY);
    CONF_TRUE(atomic_load(&s.calls) > 2);
    s.always = false;

    /* its own allocations do not call it, and this allocation does not report their failures */
    s.allocates = true;
    atomic_store(&s.calls, 0);
    CONF_FAILS(hd_alloc(lane, 8 * POOL_MIB, &none), HD_ERROR_MEMORY);
    CONF_EQUAL(atomic_load(&s.calls), 1);
    CONF_EQUAL(atomic_load(&s.deepest), 1);
    s.free_each = 4;
    CONF_OK(hd_alloc(lane, 8 * POOL_MIB, &none));
    CONF_EQUAL(atomic_load(&s.deepest), 1);
    hd_free(none);

    /* a removed callback is not called */
    spare_free(&s);
    CONF_OK(hd_alloc(lane, 12 * POOL_MIB, &s.buffers[0]));
    int calls = atomic_load(&s.calls);
    CONF_FAILS(hd_alloc(lane, 8 * POOL_MIB, &none), HD_ERROR_MEMORY);
    CONF_EQUAL(atomic_load(&s.calls), calls);
    hd_free(s.buffers[0]);
    conf_close(runtime);
}

/* The callback may call everything: it queries, waits, reads, trims, makes lanes, allocates. */
static bool calls_everything(void *context, const hd_reclaim *what)
{
    spare *s = context;
    hd_runtime *runtime = s->runtime;
    atomic_fetch_add(&s->calls, 1);
    size_t needed = 0, count = 0, freed = 0;
    char report[256];
    hd_lane *lane = NULL;
    hd_buffer *small = NULL, *pinned = NULL;
    hd_ticket ticket;
    hd_lane_memory lanes[4];
    pool_consistent(runtime, what->device, false);
    CONF_OK(hd_memory_report(runtime, HD_REPORT_TEXT, report, sizeof report, &needed));
    CONF_TRUE(needed > 1);
    CONF_OK(hd_memory_get_lanes(runtime, what->device, lanes, 4, &count));
    CONF_OK(hd_lane_create(runtime, what->device, &lane));
    hd_free(s->buffers[atomic_fetch_sub(&s->n, 1) - 1]);
    CONF_OK(hd_alloc(lane, 5000, &small));
    CONF_OK(hd_alloc_host(runtime, 5000, &pinned));
    CONF_OK(hd_fill(small, 0, 9, 4000, &ticket));
    CONF_OK(hd_copy(pinned, 0, small, 0, 4000, &ticket));
    CONF_OK(hd_wait(ticket, POOL_WAIT));
    CONF_FILLED(pinned, 0, 9, 4000);
    CONF_OK(hd_lane_wait(lane, POOL_WAIT));
    CONF_FAILS(hd_alloc(lane, 0, &small), HD_ERROR_ARGUMENT);
    hd_free(small);
    hd_free(pinned);
    hd_lane_destroy(lane);
    CONF_OK(hd_memory_trim(runtime, what->device, 0, &freed));
    return true;
}

static void may_call_everything(void **state)
{
    (void)state;
    hd_runtime *runtime =
        conf_open("host_devices=1 host_memory=128M memory_limit=32M memory_timeout=1 memory_reclaim=0");
    hd_lane *lane = conf_default_lane(runtime, 0);
    static spare s;
    spare_make(&s, runtime, 7, 4 * POOL_MIB);
    CONF_OK(hd_memory_on_reclaim(runtime, calls_everything, &s));
    for (int i = 0; i < 3; i++) {
        hd_buffer *x = NULL;
        CONF_OK(hd_alloc(lane, 10 * POOL_MIB, &x));
        hd_free(x);
        CONF_OK(hd_alloc(lane, 4 * POOL_MIB, &s.buffers[atomic_load(&s.n)]));
        atomic_fetch_add(&s.n, 1);
    }
    CONF_TRUE(atomic_load(&s.calls) >= 3);
    spare_free(&s);
    pool_gives_all_back(runtime, 0);
    conf_close(runtime);
}

/* ---- many threads ---- */

enum { ALLOCATORS = 6 };

typedef struct installed {
    /* set before its installation, cleared after hd_memory_on_reclaim installed another one */
    atomic_bool is_installed;
    atomic_int calls;
} installed;

typedef struct storm {
    hd_runtime *runtime;
    atomic_bool stop;
    pthread_mutex_t lock;
    hd_buffer *spare[16];
    atomic_uint refused, served;
} storm;

static storm st;

static bool checks_that_it_is_installed(void *context, const hd_reclaim *what)
{
    installed *i = context;
    (void)what;
    atomic_fetch_add(&i->calls, 1);
    CONF_TRUE(atomic_load(&i->is_installed));
    bool freed = false;
    pthread_mutex_lock(&st.lock);
    for (int j = 0; j < 16 && !freed; j++) {
        freed = st.spare[j] != NULL;
        hd_free(st.spare[j]);
        st.spare[j] = NULL;
    }
    pthread_mutex_unlock(&st.lock);
    sched_yield();
    CONF_TRUE(atomic_load(&i->is_installed));
    return freed;
}

/* Allocates more than there is; the callback frees the results. */
static void *allocates(void *argument)
{
    pool_thread *t = argument;
    hd_lane *lane = conf_default_lane(t->runtime, 0);
    while (!atomic_load(&st.stop)) {
        hd_buffer *x = NULL;
        hd_status status = hd_alloc(lane, 1 + conf_below(&t->random, 4 * POOL_MIB), &x);
        if (status != HD_OK) {
            CONF_FAILS(status, HD_ERROR_MEMORY);
            atomic_fetch_add(&st.refused, 1);
            continue;
        }
        atomic_fetch_add(&st.served, 1);
        int at = (int)conf_below(&t->random, 16);
        pthread_mutex_lock(&st.lock);
        hd_buffer *old = st.spare[at];
        st.spare[at] = x;
        pthread_mutex_unlock(&st.lock);
        hd_free(old);
    }
    return NULL;
}

/* Once hd_memory_on_reclaim returns, no call of the earlier callback is under way, or comes
 * later. */
static void is_replaced_while_others_allocate(void **state)
{
    (void)state;
    hd_runtime *runtime =
        conf_open("host_devices=1 host_memory=128M memory_limit=16M memory_timeout=1 memory_reclaim=80");
    memset(&st, 0, sizeof st);
    st.runtime = runtime;
    pthread_mutex_init(&st.lock, NULL);
    static installed both[2];
    memset(both, 0, sizeof both);
    pool_thread threads[ALLOCATORS];
    pool_start(threads, ALLOCATORS, runtime, 5, allocates, NULL);
    int now = -1;
    for (int i = 0; i < (CONF_TSAN ? 100 : 400) || atomic_load(&both[0].calls) < 20 || atomic_load(&both[1].calls) < 20;
         i++) {
        int next = i % 3 == 2 ? -1 : i % 3;
        if (next >= 0) {
            atomic_store(&both[next].is_installed, true);
        }
        CONF_OK(hd_memory_on_reclaim(runtime, next < 0 ? NULL : checks_that_it_is_installed,
                                     next < 0 ? NULL : &both[next]));
        if (now >= 0) {
            atomic_store(&both[now].is_installed, false);
        }
        now = next;
        if (i % 8 == 0) {
            conf_sleep_ms(1);
        }
    }
    atomic_store(&st.stop, true);
    pool_join(threads, ALLOCATORS);
    CONF_OK(hd_memory_on_reclaim(runtime, NULL, NULL));
    CONF_TRUE(pool_stats(runtime, 0).reserved_peak_bytes <= 16 * POOL_MIB);
    for (int i = 0; i < 16; i++) {
        hd_free(st.spare[i]);
    }
    fprintf(stderr, "  %u served, %u refused, %d and %d calls\n", atomic_load(&st.served), atomic_load(&st.refused),
            atomic_load(&both[0].calls), atomic_load(&both[1].calls));
    pool_gives_all_back(runtime, 0);
    pthread_mutex_destroy(&st.lock);
    conf_close(runtime);
}

/* ---- early ---- */

typedef struct early {
    atomic_int early, limit;
    int sleep_ms;
    int64_t first_begin, last_end;
    int64_t longest_gap;
} early;

static bool sleeps(void *context, const hd_reclaim *what)
{
    early *e = context;
    int64_t begin = conf_now();
    e->first_begin = e->first_begin == 0 ? begin : e->first_begin;
    atomic_fetch_add(what->reason == HD_RECLAIM_EARLY ? &e->early : &e->limit, 1);
    conf_sleep_ms(e->sleep_ms);
    e->last_end = conf_now();
    return false;
}

/* Large blocks come and go on top of the live memory, so that each pair passes the point of early
 * calls. */
static void churn(hd_lane *lane, int pairs)
{
    for (int i = 0; i < pairs; i++) {
        hd_buffer *x = NULL;
        CONF_OK(hd_alloc(lane, (2 + (size_t)i % 2) * POOL_MIB, &x));
        hd_free(x);
    }
}

static void early_calls_need_pressure(void **state)
{
    (void)state;
    static const struct {
        unsigned live; /* MiB of 64 */
        int reclaim;   /* the option */
        bool expected;
    } cases[] = {{24, 5, false}, {40, 5, false}, {56, 5, true}, {56, 0, false}, {56, 80, true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hd_runtime *runtime = conf_open_with(
            "host_devices=1 host_memory=128M memory_limit=64M memory_timeout=1 memory_reclaim=%d", cases[i].reclaim);
        hd_lane *lane = conf_default_lane(runtime, 0);
        hd_buffer *x = NULL, *none = NULL;
        early e = {.sleep_ms = 1};
        CONF_OK(hd_memory_on_reclaim(runtime, sleeps, &e));
        CONF_OK(hd_alloc(lane, cases[i].live * POOL_MIB, &x));
        churn(lane, 100);
        CONF_EQUAL(atomic_load(&e.limit), 0);
        if ((atomic_load(&e.early) > 0) != cases[i].expected) {
            conf_fail_at(__FILE__, __LINE__, "%u of 64 MiB live, memory_reclaim=%d: %d early calls", cases[i].live,
                         cases[i].reclaim, atomic_load(&e.early));
        }
        CONF_EQUAL(pool_stats(runtime, 0).early_reclaims, atomic_load(&e.early));
        CONF_TRUE((pool_stats(runtime, 0).early_reclaim_ns > 0) == cases[i].expected);
        /* at the limit it is always called */
        CONF_FAILS(hd_alloc(lane, 63 * POOL_MIB, &none), HD_ERROR_MEMORY);
        CONF_TRUE(atomic_load(&e.limit) > 0);
        CONF_OK(hd_memory_on_reclaim(runtime, NULL, NULL));
        hd_free(x);
        pool_gives_all_back(runtime, 0);
        conf_close(runtime);
    }
}

/* Calls that take long and free nothing get the share of time that the option sets. Between two of
 * them the program gets the time that makes this share. */
static void early_calls_are_bounded(void **state)
{
    (void)state;
    hd_runtime *runtime =
        conf_open("host_devices=1 host_memory=128M memory_limit=64M memory_timeout=1 memory_reclaim=10");
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *x = NULL;
    early e = {.sleep_ms = 10};
    CONF_OK(hd_alloc(lane, 52 * POOL_MIB, &x)); /* pressure between 0.81 and 0.86: no bonus */
    CONF_OK(hd_memory_on_reclaim(runtime, sleeps, &e));
    while (atomic_load(&e.early) < 6) {
        churn(lane, 50);
    }
    CONF_OK(hd_memory_on_reclaim(runtime, NULL, NULL));
    /* six calls of 10 ms at least, so five pauses of 100 ms */
    int64_t span = e.last_end - e.first_begin, least = 5 * 100 * CONF_MILLISECOND;
    if (span < least) {
        conf_fail_at(__FILE__, __LINE__, "six early calls of 10 ms within %lld us", (long long)span / 1000);
    }
    CONF_TRUE(pool_stats(runtime, 0).early_reclaim_ns >= 6 * 10 * CONF_MILLISECOND);
    hd_free(x);
    pool_gives_all_back(runtime, 0);
    conf_close(runtime);
}

/* From half of the pressure on, a thread that is about to block uses the time. */
static void early_calls_while_a_thread_blocks(void **state)
{
    (void)state;
    for (int how = 0; how < 2; how++) {
        hd_runtime *runtime =
            conf_open("host_devices=1 host_memory=128M memory_limit=64M memory_timeout=1 memory_reclaim=80");
        conf_slow slow;
        conf_slow_make(&slow, runtime, 0);
        hd_lane *lane = conf_default_lane(runtime, 0);
        hd_buffer *x = NULL;
        early e = {.sleep_ms = 0};
        /* with the memory of `slow`, above 0.50 and below 0.75 */
        CONF_OK(hd_alloc(lane, 32 * POOL_MIB, &x));
        CONF_OK(hd_memory_on_reclaim(runtime, sleeps, &e));
        for (double ms = 20; atomic_load(&e.early) == 0 && ms < 30000; ms *= 2) {
            hd_ticket ticket;
            conf_slow_run(&slow, lane, NULL, 0, ms, &ticket);
            CONF_OK(how == 0 ? hd_wait(ticket, POOL_WAIT) : hd_lane_wait(lane, POOL_WAIT));
        }
        CONF_TRUE(atomic_load(&e.early) > 0);
        CONF_EQUAL(atomic_load(&e.limit), 0);
        CONF_OK(hd_memory_on_reclaim(runtime, NULL, NULL));
        hd_free(x);
        conf_slow_free(&slow);
        pool_gives_all_back(runtime, 0);
        conf_close(runtime);
    }
}

/* Cached memory is not live: it causes no pressure for long, and the callback gets the figure of
 * live memory. */
static void what_is_cached_is_not_live(void **state)
{
    (void)state;
    hd_runtime *runtime =
        conf_open("host_devices=1 host_memory=128M memory_limit=32M memory_timeout=1 memory_reclaim=0");
    hd_lane *lanes[24];
    hd_buffer *none = NULL;
    for (int i = 0; i < 24; i++) { /* a MiB in a magazine of each lane */
        CONF_OK(hd_lane_create(runtime, 0, &lanes[i]));
        hd_buffer *x = NULL;
        CONF_OK(hd_alloc(lanes[i], POOL_MIB, &x));
        hd_free(x);
    }
    static spare s;
    memset(&s, 0, sizeof s);
    s.runtime = runtime;
    s.allocator = pthread_self();
    hd_buffer *live = NULL;
    CONF_OK(hd_alloc(lanes[0], 6 * POOL_MIB, &live));
    CONF_OK(hd_memory_on_reclaim(runtime, spares, &s));
    CONF_FAILS(hd_alloc(lanes[0], 28 * POOL_MIB, &none), HD_ERROR_MEMORY);
    CONF_EQUAL(atomic_load(&s.limit), 1);
    CONF_TRUE(s.last.live_bytes >= 6 * POOL_MIB && s.last.live_bytes < 7 * POOL_MIB);
    spare_free(&s);
    hd_free(live);
    pool_gives_all_back(runtime, 0);
    conf_close(runtime);
}

static void refuses_bad_arguments(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=2 host_memory=64M");
    hd_runtime *const garbage = (hd_runtime *)(uintptr_t)0x12345670;
    int count = hd_device_count(runtime);
    size_t freed = 77, n = 77;
    hd_memory_stats s = {.size = sizeof s};
    hd_lane_memory lanes[2];
    hd_runtime *bad[] = {NULL, garbage};
    for (int i = 0; i < 2; i++) {
        CONF_FAILS(hd_memory_on_reclaim(bad[i], spares, NULL), HD_ERROR_HANDLE);
        CONF_FAILS(hd_memory_trim(bad[i], 0, 0, &freed), HD_ERROR_HANDLE);
        CONF_FAILS(hd_memory_get_stats(bad[i], 0, &s), HD_ERROR_HANDLE);
        CONF_FAILS(hd_memory_get_lanes(bad[i], 0, lanes, 2, &n), HD_ERROR_HANDLE);
    }
    static const int no_device[] = {-2, 1000, INT32_MAX, INT32_MIN};
    for (int i = 0; i < 4; i++) {
        CONF_FAILS(hd_memory_trim(runtime, no_device[i], 0, &freed), HD_ERROR_NO_DEVICE);
        CONF_FAILS(hd_memory_get_stats(runtime, no_device[i], &s), HD_ERROR_NO_DEVICE);
        CONF_FAILS(hd_memory_get_lanes(runtime, no_device[i], lanes, 2, &n), HD_ERROR_NO_DEVICE);
    }
    CONF_FAILS(hd_memory_trim(runtime, count, 0, &freed), HD_ERROR_NO_DEVICE);
    CONF_FAILS(hd_memory_get_lanes(runtime, 0, NULL, 2, &n), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_memory_get_lanes(runtime, 0, lanes, 2, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_memory_get_stats(runtime, 0, NULL), HD_ERROR_ARGUMENT);
    s.size = 0;
    CONF_FAILS(hd_memory_get_stats(runtime, 0, &s), HD_ERROR_ARGUMENT);
    CONF_TRUE(freed == 77 && n == 77);
    CONF_OK(hd_memory_on_reclaim(runtime, NULL, garbage)); /* removes a missing callback */
    CONF_OK(hd_memory_trim(runtime, HD_DEVICE_HOST, 0, &freed));
    CONF_OK(hd_memory_get_lanes(runtime, 0, NULL, 0, &n));
    CONF_EQUAL(n, 0);
    conf_close(runtime);
    CONF_FAILS(hd_memory_on_reclaim(runtime, spares, NULL), HD_ERROR_HANDLE);
    CONF_FAILS(hd_memory_trim(runtime, 0, 0, &freed), HD_ERROR_HANDLE);
}

int main(void)
{
    conf_begin("test_memory_reclaim");
    const struct CMUnitTest tests[] = {
        CONF_CASE(frees_what_an_allocation_lacks),
        CONF_CASE(is_not_called_in_vain),
        CONF_CASE(may_free_nothing),
        CONF_CASE(may_call_everything),
        CONF_CASE(is_replaced_while_others_allocate),
        CONF_CASE(early_calls_need_pressure),
        CONF_CASE(early_calls_are_bounded),
        CONF_CASE(early_calls_while_a_thread_blocks),
        CONF_CASE(what_is_cached_is_not_live),
        CONF_CASE(refuses_bad_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
