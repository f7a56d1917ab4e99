/* test_memory_limit.c - physical memory never exceeds the limit, and every allocation that fits
 * under it succeeds.
 *
 * Promise: Under the limit every allocation succeeds, above it none; a refusal lists the holders.
 *
 * An allocation succeeds even if another thread caches the memory, or work still uses it.
 * test_memory_fragments.c tests memory that is free in pieces.
 *
 * Threads: up to 16 that allocate, and one that reads the figures meanwhile.
 * Locks: those of a queue.
 * Always: the option memory_timeout is so long that the watchdog would end a case that waits for
 * it, except in cases about giving up.
 */
#include "pool.h"

#define LONG_TIMEOUT "memory_timeout=600000 "

/* Checks that the last message contains the word. */
static void says(const char *word)
{
    if (strstr(hd_message(), word) == NULL) {
        conf_fail_at(__FILE__, __LINE__, "'%s' is not in the message '%s'", word, hd_message());
    }
}

static void labelled(hd_lane *lane, size_t bytes, const char *label, hd_buffer **out)
{
    hd_alloc_options options = {.size = sizeof options, .label = label};
    CONF_OK(hd_alloc_with(lane, bytes, &options, out));
}

/* ---- the value of the limit ---- */

static void is_given_in_bytes_or_as_a_share(void **state)
{
    (void)state;
    static const struct {
        const char *settings;
        uint64_t limit; /* 0: a share of the device */
        unsigned percent;
    } limits[] = {
        /* whole granules */
        {"memory_limit=24M", 24 * POOL_MIB, 0}, {"memory_limit=25000000", 11 * POOL_GRANULE, 0},
        {"memory_limit=2M", POOL_GRANULE, 0},   {"memory_limit=25%", 0, 25},
        {"memory_limit=100%", 0, 100},          {NULL, 0, 100},
    };
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        hd_runtime *runtime =
            conf_open_with("host_memory=64M memory_timeout=0 %s", limits[i].settings == NULL ? "" : limits[i].settings);
        hd_device_info info = {.size = sizeof info};
        CONF_OK(hd_device_get_info(runtime, 0, &info));
        uint64_t wanted = limits[i].limit;
        wanted = wanted != 0 ? wanted : info.memory_bytes / 100 * limits[i].percent / POOL_GRANULE * POOL_GRANULE;
        hd_memory_stats s = pool_stats(runtime, 0);
        if (s.limit_bytes > wanted + POOL_GRANULE || s.limit_bytes + POOL_GRANULE < wanted ||
            (limits[i].limit != 0 && s.limit_bytes != wanted)) {
            conf_fail_at(__FILE__, __LINE__, "%s: the limit is %llu, not %llu", limits[i].settings,
                         (unsigned long long)s.limit_bytes, (unsigned long long)wanted);
        }
        if (wanted <= 64 * POOL_MIB) { /* all of it, and not a granule more */
            hd_buffer *all = NULL, *none = NULL;
            hd_lane *lane = conf_default_lane(runtime, 0);
            CONF_FAILS(hd_alloc(lane, s.limit_bytes + 1, &none), HD_ERROR_MEMORY);
            CONF_OK(hd_alloc(lane, s.limit_bytes, &all));
            CONF_EQUAL(pool_stats(runtime, 0).reserved_bytes, s.limit_bytes);
            CONF_FAILS(hd_alloc(lane, 1, &none), HD_ERROR_MEMORY);
            CONF_TRUE(none == NULL);
            CONF_OK(hd_fill(all, s.limit_bytes - 4, 7, 4, NULL));
            CONF_FILLED(all, s.limit_bytes - 4, 7, 4);
            hd_free(all);
            CONF_OK(hd_alloc(lane, 1, &none));
            hd_free(none);
        }
        pool_gives_all_back(runtime, 0);
        conf_close(runtime);
    }
    hd_runtime *none = NULL;
    CONF_FAILS_WITH(conf_try_open("memory_limit=0%", &none), HD_ERROR_OPTION, "memory_limit");
    CONF_FAILS_WITH(conf_try_open("memory_limit=101%", &none), HD_ERROR_OPTION, "memory_limit");
    CONF_FAILS_WITH(conf_try_open("memory_limit=1M", &none), HD_ERROR_OPTION, "memory_limit");
}

/* Two runtimes on one device, each with its own limit. Memory that one gives back serves the
 * other. */
static void belongs_to_a_runtime(void **state)
{
    (void)state;
    hd_runtime *a = conf_open("memory_limit=40M memory_timeout=0 host_memory=64M");
    hd_runtime *b = conf_open("memory_limit=24M memory_timeout=0 host_memory=64M");
    hd_buffer *x = NULL, *y = NULL, *none = NULL;
    CONF_OK(hd_alloc(conf_default_lane(a, 0), 40 * POOL_MIB, &x));
    CONF_OK(hd_alloc(conf_default_lane(b, 0), 24 * POOL_MIB, &y));
    CONF_FAILS(hd_alloc(conf_default_lane(a, 0), 1, &none), HD_ERROR_MEMORY);
    CONF_FAILS(hd_alloc(conf_default_lane(b, 0), 1, &none), HD_ERROR_MEMORY);
    CONF_EQUAL(pool_stats(a, 0).reserved_bytes, 40 * POOL_MIB);
    CONF_EQUAL(pool_stats(b, 0).reserved_bytes, 24 * POOL_MIB);
    hd_free(x);
    conf_close(b);
    pool_gives_all_back(a, 0);
    /* others use the GPU, too; each host worker drives its own device */
    bool apart = conf_on_gpus || conf_is_process(a);
    conf_close(a);
    if (apart) {
        return;
    }
    a = conf_open("memory_timeout=0 host_memory=64M"); /* the device is the only limit */
    b = conf_open("memory_timeout=0 host_memory=64M");
    CONF_OK(hd_alloc(conf_default_lane(a, 0), 48 * POOL_MIB, &x));
    CONF_FAILS(hd_alloc(conf_default_lane(b, 0), 32 * POOL_MIB, &y), HD_ERROR_MEMORY);
    hd_free(x);
    CONF_OK(hd_memory_trim(a, 0, 0, NULL));
    CONF_OK(hd_alloc(conf_default_lane(b, 0), 32 * POOL_MIB, &y));
    hd_free(y);
    conf_close(a);
    conf_close(b);
}

/* ---- the storm ---- */

enum { STORMERS = 16, OWN = 12 };

typedef struct storm {
    pthread_barrier_t begin;
    atomic_bool stop;
    atomic_uint served, refused;
    uint64_t before; /* physical memory that the driver used before */
    int rounds;
} storm;

/* Allocates more than there is: some allocations are refused, and then it frees. */
static void *storms(void *argument)
{
    pool_thread *t = argument;
    storm *all = t->context;
    hd_lane *lane = conf_default_lane(t->runtime, 0);
    hd_buffer *own[OWN] = {NULL};
    CONF_TRUE(lane != NULL);
    pthread_barrier_wait(&all->begin);
    for (int i = 0; i < all->rounds; i++) {
        hd_buffer **at = &own[conf_below(&t->random, OWN)];
        hd_free(*at);
        *at = NULL;
        size_t bytes = pool_size(&t->random, 3 * POOL_MIB);
        hd_status status = hd_alloc(lane, bytes, at);
        if (status == HD_OK) {
            atomic_fetch_add(&all->served, 1);
            if (bytes >= 4 && conf_chance(&t->random, 20)) {
                CONF_OK(hd_fill(*at, 0, 1, 4, NULL));
            }
            continue;
        }
        CONF_FAILS(status, HD_ERROR_MEMORY);
        CONF_TRUE(*at == NULL);
        atomic_fetch_add(&all->refused, 1);
        for (int j = 0; j < OWN; j += 2) {
            hd_free(own[j]);
            own[j] = NULL;
        }
    }
    for (int i = 0; i < OWN; i++) {
        hd_free(own[i]);
    }
    return NULL;
}

static void *looks_at_the_limit(void *argument)
{
    pool_thread *t = argument;
    storm *all = t->context;
    while (!atomic_load(&all->stop)) {
        uint64_t limit = pool_stats(t->runtime, 0).limit_bytes, holds = pool_driver_holds(t->runtime, 0);
        if (holds > all->before + limit) {
            conf_fail_at(__FILE__, __LINE__, "the driver holds %llu bytes, limit %llu", (unsigned long long)holds,
                         (unsigned long long)limit);
        }
        hd_device_info info = {.size = sizeof info};
        CONF_OK(hd_device_get_info(t->runtime, 0, &info));
        CONF_TRUE(info.memory_mapped_bytes <= limit);
        pool_consistent(t->runtime, 0, false);
        sched_yield();
    }
    return NULL;
}

static void run_storm(const char *settings)
{
    hd_runtime *runtime = conf_open_with("host_devices=1 host_memory=128M memory_timeout=1 %s", settings);
    conf_builtins(runtime);
    storm all = {.rounds = CONF_TSAN ? 60 : 400, .before = pool_driver_holds(runtime, 0)};
    pthread_barrier_init(&all.begin, NULL, STORMERS);
    pool_thread looker, threads[STORMERS];
    pool_start(&looker, 1, runtime, 3, looks_at_the_limit, &all);
    pool_start(threads, STORMERS, runtime, conf_number_from("HEDDLE_SEED", 1), storms, &all);
    pool_join(threads, STORMERS);
    atomic_store(&all.stop, true);
    pool_join(&looker, 1);
    pthread_barrier_destroy(&all.begin);
    hd_memory_stats s = pool_stats(runtime, 0);
    fprintf(stderr, "  %s: %u served, %u refused, peak %llu of %llu KiB; %llu drains, %llu waits\n", settings,
            atomic_load(&all.served), atomic_load(&all.refused), (unsigned long long)s.reserved_peak_bytes >> 10,
            (unsigned long long)s.limit_bytes >> 10, (unsigned long long)s.drains, (unsigned long long)s.waits);
    CONF_TRUE(s.reserved_peak_bytes <= s.limit_bytes);
    CONF_EQUAL(s.failures, atomic_load(&all.refused));
    CONF_EQUAL(s.allocations, atomic_load(&all.served));
    /* the limit was met; the order of the threads decides between the two */
    CONF_TRUE(atomic_load(&all.refused) > 0 || s.drains > 0);
    pool_gives_all_back(runtime, 0);
    CONF_TRUE(pool_driver_holds(runtime, 0) <= all.before);
    conf_close(runtime);
}

static void holds_in_a_storm(void **state)
{
    (void)state;
    run_storm("memory_limit=24M");
    if (!conf_on_gpus) {
        run_storm("memory_limit=17%");
        run_storm("memory_limit=24M host_schedule=7 delay=cuMemUnmap:1+=200");
    }
}

/* ---- out of memory ---- */

static void the_message_says_who_holds_what(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=1 host_memory=128M memory_limit=64M memory_timeout=0");
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *weights[4], *states[6], *small[8], *const untouched = (hd_buffer *)(uintptr_t)0x1234;
    hd_buffer *none = untouched;
    for (int i = 0; i < 4; i++) {
        labelled(lane, 8 * POOL_MIB, "weights", &weights[i]);
    }
    for (int i = 0; i < 6; i++) {
        labelled(lane, 3 * POOL_MIB, i == 5 ? "optimizer states, as many as there are parameters" : "moments",
                 &states[i]);
    }
    for (int i = 0; i < 8; i++) {
        labelled(lane, 100 * POOL_KIB, "crumbs", &small[i]);
    }
    CONF_FAILS(hd_alloc(lane, 40 * POOL_MIB, &none), HD_ERROR_MEMORY);
    CONF_TRUE(none == untouched);
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    CONF_EQUAL(error.device, 0);
    says("weights");
    says("moments");
    /* the largest first */
    CONF_TRUE(strstr(error.message, "weights") < strstr(error.message, "moments"));
    /* the limit */
    CONF_TRUE(strstr(error.message, "64") != NULL || strstr(error.message, "67108864") != NULL);
    /* the size */
    CONF_TRUE(strstr(error.message, "40") != NULL || strstr(error.message, "41943040") != NULL);
    CONF_EQUAL(pool_stats(runtime, 0).failures, 1);

    /* another label, and none */
    for (int i = 0; i < 4; i++) {
        CONF_OK(hd_buffer_set_label(weights[i], i == 0 ? NULL : "renamed"));
    }
    CONF_FAILS(hd_alloc(lane, 40 * POOL_MIB, &none), HD_ERROR_MEMORY);
    says("renamed");
    CONF_TRUE(strstr(hd_message(), "weights") == NULL);
    CONF_FAILS(hd_alloc(lane, (size_t)1 << 50, &none), HD_ERROR_MEMORY);
    CONF_FAILS(hd_alloc(lane, SIZE_MAX, &none), HD_ERROR_MEMORY);
    CONF_FAILS(hd_alloc(lane, SIZE_MAX - 255, &none), HD_ERROR_MEMORY);
    CONF_FAILS(hd_alloc(lane, SIZE_MAX / 2, &none), HD_ERROR_MEMORY);
    CONF_TRUE(none == untouched);
    CONF_EQUAL(pool_stats(runtime, 0).live_count, 18);
    CONF_EQUAL(pool_stats(runtime, 0).live_bytes, 50 * POOL_MIB + 800 * POOL_KIB);

    /* a failure loses nothing */
    for (int i = 0; i < 8; i++) {
        hd_free(small[i]);
        hd_free(i < 4 ? weights[i] : NULL);
        hd_free(i < 6 ? states[i] : NULL);
    }
    CONF_OK(hd_alloc(lane, 64 * POOL_MIB, &none));
    hd_free(none);
    pool_gives_all_back(runtime, 0);
    conf_close(runtime);
}

/* One thread, and no work that would free anything. Each allocation fails, and leaves everything as
 * it was. */
static void fails_without_hanging(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=1 host_memory=128M memory_limit=16M memory_timeout=200");
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *x = NULL, *none = NULL;
    CONF_OK(hd_alloc(lane, 12 * POOL_MIB, &x));
    CONF_OK(hd_fill(x, 0, 1, 12 * POOL_MIB, NULL));
    for (int i = 0; i < 10; i++) {
        CONF_FAILS(hd_alloc(lane, 8 * POOL_MIB, &none), HD_ERROR_MEMORY);
    }
    /* running work uses live memory, so waiting for it does not help, but the wait must end, too */
    conf_kernels k = conf_builtins(runtime);
    for (uint32_t i = 0; i < 20; i++) {
        CONF_OK(conf_fill(lane, k, x, 0, 3 * POOL_MIB, i, NULL));
    }
    CONF_FAILS(hd_alloc(lane, 8 * POOL_MIB, &none), HD_ERROR_MEMORY);
    CONF_FILLED(x, 0, 19, 12 * POOL_MIB);
    hd_free(x);
    CONF_OK(hd_alloc(lane, 16 * POOL_MIB, &x));
    hd_free(x);
    pool_gives_all_back(runtime, 0);
    conf_close(runtime);
}

typedef struct waiting {
    hd_buffer *held;
    pthread_barrier_t barrier;
    atomic_bool free_it;
} waiting;

/* Allocates memory, and frees it when `free_it` is set. */
static void *holds_memory(void *argument)
{
    pool_thread *t = argument;
    waiting *w = t->context;
    CONF_OK(hd_alloc(conf_default_lane(t->runtime, 0), 12 * POOL_MIB, &w->held));
    pthread_barrier_wait(&w->barrier);
    while (!atomic_load(&w->free_it)) {
        conf_sleep_ms(1);
    }
    conf_sleep_ms(30);
    hd_free(w->held);
    return NULL;
}

/* While another thread might free something, an allocation waits as long as the option allows. */
static void waits_for_other_threads(void **state)
{
    (void)state;
    for (int longer = 0; longer < 2; longer++) {
        hd_runtime *runtime = conf_open_with("host_devices=1 host_memory=128M memory_limit=16M memory_timeout=%d",
                                             longer == 0 ? 50 : 600000);
        waiting w = {0};
        pthread_barrier_init(&w.barrier, NULL, 2);
        pool_thread other;
        pool_start(&other, 1, runtime, 1, holds_memory, &w);
        pthread_barrier_wait(&w.barrier);
        hd_buffer *x = NULL;
        if (longer == 0) {
            CONF_FAILS(hd_alloc(conf_default_lane(runtime, 0), 8 * POOL_MIB, &x), HD_ERROR_MEMORY);
            CONF_EQUAL(pool_stats(runtime, 0).failures, 1);
            atomic_store(&w.free_it, true);
        } else {
            atomic_store(&w.free_it, true);
            CONF_OK(hd_alloc(conf_default_lane(runtime, 0), 8 * POOL_MIB, &x));
            CONF_EQUAL(pool_stats(runtime, 0).failures, 0);
            hd_free(x);
        }
        CONF_TRUE(pool_stats(runtime, 0).waits > 0);
        pool_join(&other, 1);
        pthread_barrier_destroy(&w.barrier);
        pool_gives_all_back(runtime, 0);
        conf_close(runtime);
    }
}

/* ---- producers and consumers ---- */

enum { QUEUE = 4096 };

typedef struct queue {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    hd_buffer *buffers[QUEUE];
    int put, taken, total;
    size_t each;
} queue;

/* Allocates as fast as it can, regardless of how many buffers wait: only allocations slow it
 * down. */
static void *produces(void *argument)
{
    pool_thread *t = argument;
    queue *q = t->context;
    hd_lane *lane = conf_default_lane(t->runtime, 0);
    for (int i = 0; i < q->total; i++) {
        hd_buffer *x = NULL;
        hd_status status = hd_alloc(lane, q->each, &x);
        if (status != HD_OK) {
            conf_fail_at(__FILE__, __LINE__, "the producer is refused its buffer number %d (%d consumed): %s", i,
                         q->taken, hd_message());
        }
        CONF_OK(hd_fill(x, 0, (uint32_t)i, q->each, NULL));
        pthread_mutex_lock(&q->lock);
        q->buffers[q->put++] = x;
        pthread_cond_signal(&q->filled);
        pthread_mutex_unlock(&q->lock);
    }
    return NULL;
}

static void *consumes(void *argument)
{
    pool_thread *t = argument;
    queue *q = t->context;
    for (int i = 0; i < q->total; i++) {
        pthread_mutex_lock(&q->lock);
        while (q->put == q->taken) {
            pthread_cond_wait(&q->filled, &q->lock);
        }
        hd_buffer *x = q->buffers[q->taken++];
        pthread_mutex_unlock(&q->lock);
        if (i % 4 == 0) {
            conf_sleep_ms(1); /* slower than the producer */
        }
        uint32_t word = 0;
        CONF_OK(hd_read(x, q->each - 4, &word, 4));
        CONF_EQUAL(word, i);
        hd_free(x);
    }
    return NULL;
}

static void a_producer_waits_for_its_consumer(void **state)
{
    (void)state;
    static const size_t sizes[] = {64 * POOL_KIB, 1000000, 3 * POOL_MIB + 5 * POOL_KIB};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        hd_runtime *runtime = conf_open("host_devices=1 host_memory=128M memory_limit=16M " LONG_TIMEOUT);
        static queue q;
        memset(&q, 0, sizeof q);
        q.each = sizes[i] / 4 * 4;
        q.total = (int)((CONF_TSAN ? 64 : 192) * POOL_MIB / sizes[i]);
        q.total = q.total > QUEUE ? QUEUE : q.total;
        pthread_mutex_init(&q.lock, NULL);
        pthread_cond_init(&q.filled, NULL);
        pool_thread producer, consumer;
        pool_start(&consumer, 1, runtime, 1, consumes, &q);
        pool_start(&producer, 1, runtime, 2, produces, &q);
        pool_join(&producer, 1);
        pool_join(&consumer, 1);
        hd_memory_stats s = pool_stats(runtime, 0);
        CONF_TRUE(s.reserved_peak_bytes <= 16 * POOL_MIB);
        CONF_EQUAL(s.failures, 0);
        CONF_EQUAL(s.frees_elsewhere, q.total);
        CONF_EQUAL(s.frees, q.total);
        pool_gives_all_back(runtime, 0);
        conf_close(runtime);
        pthread_cond_destroy(&q.filled);
        pthread_mutex_destroy(&q.lock);
    }
}

/* One thread frees buffers of one lane at once. Slow work in another lane still uses them. */
static void a_producer_waits_for_another_lane(void **state)
{
    (void)state;
    static const size_t sizes[] = {100 * POOL_KIB, POOL_MIB, 5 * POOL_MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        hd_runtime *runtime = conf_open("host_devices=1 host_memory=128M memory_limit=24M " LONG_TIMEOUT);
        conf_slow slow;
        conf_slow_make(&slow, runtime, 0);
        hd_lane *makes = NULL, *uses = NULL;
        hd_buffer *total = NULL;
        CONF_OK(hd_lane_create(runtime, 0, &makes));
        CONF_OK(hd_lane_create(runtime, 0, &uses));
        CONF_OK(hd_alloc(uses, 256, &total));
        CONF_OK(hd_fill(total, 0, conf_bits(0), 256, NULL));
        size_t each = sizes[i];
        int count = (int)(128 * POOL_MIB / each) / (CONF_TSAN ? 4 : 1);
        count = count > 400 ? 400 : count;
        for (int j = 0; j < count; j++) {
            hd_buffer *x = NULL;
            hd_status status = hd_alloc(makes, each, &x);
            if (status != HD_OK) {
                conf_fail_at(__FILE__, __LINE__, "buffer %d of %zu bytes: %s", j, each, hd_message());
            }
            CONF_OK(conf_fill(makes, slow.kernels, x, 0, each / 4, conf_bits(1), NULL));
            if (j % 8 == 0) {
                conf_slow_run(&slow, uses, NULL, 4, 1, NULL);
            }
            /* the next buffer must not overlap it */
            CONF_OK(conf_sum(uses, slow.kernels, total, 0, x, 0, 1000, 1, NULL));
            hd_free(x);
        }
        CONF_FILLED(total, 0, conf_bits((float)count * 1000), 4);
        hd_memory_stats s = pool_stats(runtime, 0);
        CONF_TRUE(s.reserved_peak_bytes <= 24 * POOL_MIB);
        CONF_EQUAL(s.failures, 0);
        hd_free(total);
        conf_slow_free(&slow);
        pool_gives_all_back(runtime, 0);
        conf_close(runtime);
    }
}

/* ---- pinned memory ---- */

static void pinned_memory_has_a_limit_of_its_own(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("pinned_limit=24M host_devices=1");
    hd_buffer *buffers[32] = {NULL};
    uint64_t before = pool_stats(runtime, HD_DEVICE_HOST).reserved_bytes;
    for (int round = 0; round < 3; round++) {
        int n = 0;
        hd_status status = HD_OK;
        while (n < 32 && (status = hd_alloc_host(runtime, 2 * POOL_MIB, &buffers[n])) == HD_OK) {
            CONF_OK(hd_fill(buffers[n], 0, (uint32_t)n, 2 * POOL_MIB, NULL));
            n++;
        }
        CONF_FAILS(status, HD_ERROR_HOST_MEMORY);
        says("hd_alloc_host");
        CONF_TRUE(n >= 6 && n <= 12); /* the library's own staging counts, too */
        hd_memory_stats s = pool_stats(runtime, HD_DEVICE_HOST);
        CONF_EQUAL(s.limit_bytes, 24 * POOL_MIB);
        CONF_TRUE(s.reserved_peak_bytes <= 24 * POOL_MIB);
        CONF_TRUE(s.live_bytes >= (uint64_t)n * 2 * POOL_MIB);
        for (int i = 0; i < n; i++) {
            CONF_FILLED(buffers[i], 2 * POOL_MIB - 64, (uint32_t)i, 64);
            hd_free(buffers[i]);
        }
        CONF_EQUAL(pool_stats(runtime, HD_DEVICE_HOST).live_count, 0);
    }
    CONF_OK(hd_memory_trim(runtime, HD_DEVICE_HOST, 0, NULL));
    CONF_TRUE(pool_stats(runtime, HD_DEVICE_HOST).reserved_bytes <= before + 18 * POOL_MIB);
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_memory_limit");
    const struct CMUnitTest tests[] = {
        CONF_CASE(is_given_in_bytes_or_as_a_share),
        CONF_CASE(belongs_to_a_runtime),
        CONF_CASE(holds_in_a_storm),
        CONF_CASE(the_message_says_who_holds_what),
        CONF_CASE(fails_without_hanging),
        CONF_CASE(waits_for_other_threads),
        CONF_CASE(a_producer_waits_for_its_consumer),
        CONF_CASE(a_producer_waits_for_another_lane),
        CONF_CASE(pinned_memory_has_a_limit_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
