/* test_memory_line.c - allocations of several threads that wait for memory at a limit: who gets
 * the freed memory, and who may pass whom.
 *
 * Promise: Freed memory goes to the allocation that waits first, and later ones do not starve it.
 *
 * Later allocations may use the memory that it leaves. So a thread that must free memory first can
 * continue.
 *
 * Threads: up to eight that allocate.
 * Locks: none.
 * Always: no case measures time. An allocation that nobody serves ends the case by its failure, or
 * by the watchdog.
 */
#include "pool.h"

#define LONG "memory_timeout=600000 " /* the watchdog ends a case that waits for this */

typedef enum memory { PLAIN, SMALL, DEDICATED, PINNED, MEMORIES } memory;

static hd_status takes(hd_runtime *runtime, memory kind, size_t bytes, hd_buffer **out)
{
    hd_lane *lane = conf_default_lane(runtime, 0);
    const hd_alloc_options dedicated = {.size = sizeof dedicated, .flags = HD_ALLOC_DEDICATED};
    return kind == PINNED      ? hd_alloc_host(runtime, bytes, out)
           : kind == DEDICATED ? hd_alloc_with(lane, bytes, &dedicated, out)
                               : hd_alloc(lane, bytes, out);
}

static hd_buffer *taken(hd_runtime *runtime, memory kind, size_t bytes)
{
    hd_buffer *b = NULL;
    hd_status status = takes(runtime, kind, bytes, &b);
    if (status != HD_OK) {
        conf_fail_at(__FILE__, __LINE__, "%zu bytes of kind %d: %s", bytes, (int)kind, hd_message());
    }
    return b;
}

/* Dedicated memory goes back a little later, and counts in no figure of the pool's blocks. */
static void gives_all_back(hd_runtime *runtime)
{
    CONF_EQUAL(pool_stats(runtime, 0).live_bytes, 0);
    CONF_EQUAL(pool_stats(runtime, 0).failures, 0);
    while (pool_stats(runtime, 0).reserved_bytes != 0) {
        CONF_OK(hd_memory_trim(runtime, 0, 0, NULL));
        conf_sleep_ms(1); /* the watchdog ends the case */
    }
    conf_close(runtime);
}

/* ---- a loop of pairs of hd_free and hd_alloc ---- */

typedef struct loops {
    memory kind;
    size_t bytes;
    atomic_bool over;
    atomic_int held; /* threads that hold their first block */
    atomic_ullong frees;
} loops;

/* Holds a block nearly all of the time. */
static void *loop_frees(void *argument)
{
    pool_thread *t = argument;
    loops *all = t->context;
    hd_buffer *b = taken(t->runtime, all->kind, all->bytes);
    atomic_fetch_add(&all->held, 1);
    while (!atomic_load(&all->over)) {
        conf_sleep_ms(1);
        hd_free(b);
        atomic_fetch_add(&all->frees, 1);
        b = taken(t->runtime, all->kind, all->bytes);
    }
    hd_free(b);
    return NULL;
}

/* `count` threads loop, and a block of `wanted` bytes fits only when some of them hold none. */
static void is_served_beside(memory kind, int count, size_t each, size_t wanted, const char *limit)
{
    pool_thread threads[8];
    /* memory_timeout limits a wait in which nothing is freed. Here memory is freed all the time. */
    hd_runtime *runtime =
        conf_open_with("host_devices=1 host_memory=256M memory_timeout=%d %s", 5000 * CONF_SLOWNESS, limit);
    loops all = {.kind = kind, .bytes = each};
    pool_start(threads, count, runtime, 1, loop_frees, &all);
    while (atomic_load(&all.held) < count) {
        conf_sleep_ms(1);
    }
    for (int i = 0; i < 3; i++) {
        hd_free(taken(runtime, kind == SMALL ? PLAIN : kind, wanted));
    }
    atomic_store(&all.over, true);
    pool_join(threads, count);
    gives_all_back(runtime);
}

static void a_loop_of_frees_starves_nobody(void **state)
{
    (void)state;
    is_served_beside(PLAIN, 1, 64 * POOL_MIB, 60 * POOL_MIB, "memory_limit=100M");
    is_served_beside(PLAIN, 1, 64 * POOL_MIB, 30 * POOL_MIB, "memory_limit=80M");
    is_served_beside(SMALL, 1, POOL_MIB, 2 * POOL_MIB, "memory_limit=2M");
    is_served_beside(DEDICATED, 1, 64 * POOL_MIB, 60 * POOL_MIB, "memory_limit=100M");
    is_served_beside(PINNED, 1, 64 * POOL_MIB, 60 * POOL_MIB, "pinned_limit=100M");
}

/* Never all of them free at the same time by chance. */
static void several_loops_starve_nobody(void **state)
{
    (void)state;
    is_served_beside(PLAIN, 4, 16 * POOL_MIB, 60 * POOL_MIB, "memory_limit=64M");
    is_served_beside(PLAIN, 4, 8 * POOL_MIB, 60 * POOL_MIB, "memory_limit=64M");
    is_served_beside(SMALL, 4, POOL_MIB, 8 * POOL_MIB, "memory_limit=8M");
    is_served_beside(DEDICATED, 4, 16 * POOL_MIB, 60 * POOL_MIB, "memory_limit=64M");
    is_served_beside(PINNED, 3, 20 * POOL_MIB, 60 * POOL_MIB, "pinned_limit=64M");
}

/* ---- order of arrival, against a model ---- */

enum { WAITERS = 6, PARTS = 32 };

typedef struct waiter {
    size_t bytes;
    memory kind;
    atomic_bool served;
    hd_buffer *buffer;
} waiter;

static void *waits_in_line(void *argument)
{
    pool_thread *t = argument;
    waiter *w = &((waiter *)t->context)[t->number];
    w->buffer = taken(t->runtime, w->kind, w->bytes);
    atomic_store(&w->served, true);
    return NULL;
}

/* All memory is held, in parts. Threads come one after another, and then parts are freed in random
 * order. Model: the first one that is not served gets the free bytes as soon as they are enough. */
static void run_line(uint64_t seed)
{
    static waiter waiters[WAITERS];
    conf_random r = {seed};
    pool_thread threads[WAITERS];
    hd_buffer *parts[PARTS];
    hd_runtime *runtime = conf_open("host_devices=1 host_memory=256M memory_limit=128M " LONG);
    for (int i = 0; i < PARTS; i++) {
        parts[i] = taken(runtime, conf_chance(&r, 50) ? PLAIN : DEDICATED, 4 * POOL_MIB);
    }
    memset(waiters, 0, sizeof waiters);
    for (int i = 0; i < WAITERS; i++) {
        waiters[i].bytes = 2 * POOL_MIB * (1 + conf_below(&r, 10));
        waiters[i].kind = conf_chance(&r, 50) ? PLAIN : DEDICATED;
        uint64_t drains = pool_stats(runtime, 0).drains;
        conf_failure_ends_program = true;
        threads[i] = (pool_thread){.number = i, .runtime = runtime, .context = waiters};
        CONF_EQUAL(pthread_create(&threads[i].thread, NULL, waits_in_line, &threads[i]), 0);
        while (pool_stats(runtime, 0).drains < drains + 2) { /* it has joined, and settled */
            conf_sleep_ms(1);
        }
    }
    size_t free_bytes = 0;
    int next = 0;
    for (int left = PARTS; left > 0; left--) {
        int at = (int)conf_below(&r, (uint64_t)left);
        hd_free(parts[at]);
        parts[at] = parts[left - 1];
        free_bytes += 4 * POOL_MIB;
        while (next < WAITERS && free_bytes >= waiters[next].bytes) {
            while (!atomic_load(&waiters[next].served)) {
                conf_sleep_ms(1); /* the watchdog ends the case */
            }
            free_bytes -= waiters[next].bytes;
            next++;
        }
        for (int i = next; i < WAITERS; i++) {
            if (atomic_load(&waiters[i].served)) {
                conf_fail_at(__FILE__, __LINE__,
                             "%zu bytes are free, number %d waits for %zu bytes, but number %d got its %zu bytes",
                             free_bytes, next, waiters[next].bytes, i, waiters[i].bytes);
            }
        }
    }
    CONF_EQUAL(next, WAITERS);
    pool_join(threads, WAITERS);
    for (int i = 0; i < WAITERS; i++) {
        hd_free(waiters[i].buffer);
    }
    gives_all_back(runtime);
}

static void memory_goes_to_those_who_wait_in_their_order(void **state)
{
    (void)state;
    uint64_t first = conf_number_from("HEDDLE_SEED", 1);
    for (uint64_t seed = first; seed < first + 6; seed++) {
        run_line(seed);
    }
}

/* ---- who must free memory first ---- */

typedef struct holder {
    size_t bytes;
    memory kind;
    hd_buffer *held;
    pthread_barrier_t barrier;
    uint64_t drains;
} holder;

/* Needs a little memory again and again before it frees what another thread waits for. */
static void *needs_a_little_first(void *argument)
{
    pool_thread *t = argument;
    holder *h = t->context;
    hd_runtime *runtime = t->runtime;
    h->held = taken(runtime, h->kind, h->bytes);
    h->drains = pool_stats(runtime, 0).drains;
    pthread_barrier_wait(&h->barrier);
    while (h->kind != PINNED && pool_stats(runtime, 0).drains < h->drains + 2) {
        conf_sleep_ms(1);
    }
    for (int i = 0; i < 300; i++) {
        hd_buffer *some = taken(runtime, h->kind, 1 + conf_below(&t->random, 8 * POOL_MIB));
        hd_buffer *more = taken(runtime, h->kind, 1 + conf_below(&t->random, 64 * POOL_KIB));
        hd_free(some);
        hd_free(more);
    }
    hd_free(h->held);
    return NULL;
}

static void who_must_free_first_gets_what_is_left(void **state)
{
    (void)state;
    for (memory kind = PLAIN; kind < MEMORIES; kind++) {
        if (kind == SMALL) {
            continue;
        }
        hd_runtime *runtime = conf_open("host_devices=1 host_memory=256M memory_limit=100M pinned_limit=100M " LONG);
        holder h = {.bytes = 60 * POOL_MIB, .kind = kind};
        pool_thread other;
        pthread_barrier_init(&h.barrier, NULL, 2);
        pool_start(&other, 1, runtime, 3, needs_a_little_first, &h);
        pthread_barrier_wait(&h.barrier);
        hd_free(taken(runtime, kind, 60 * POOL_MIB));
        pool_join(&other, 1);
        pthread_barrier_destroy(&h.barrier);
        gives_all_back(runtime);
    }
}

typedef struct cache {
    hd_runtime *runtime;
    hd_buffer *kept;
    int calls;
} cache;

/* The allocation waits for the callback, so the callback's own allocations do not wait for it. */
static bool frees_after_a_copy(void *context, const hd_reclaim *what)
{
    cache *c = context;
    if (what->reason != HD_RECLAIM_LIMIT || !c->kept) {
        return false;
    }
    c->calls++;
    hd_buffer *some = taken(c->runtime, PLAIN, 4 * POOL_MIB);
    hd_free(some);
    hd_free(c->kept);
    c->kept = NULL;
    return true;
}

static void the_callback_passes_the_allocation_that_calls_it(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=1 host_memory=128M memory_limit=32M memory_reclaim=0 " LONG);
    cache c = {.runtime = runtime, .kept = taken(runtime, PLAIN, 26 * POOL_MIB)};
    CONF_OK(hd_memory_on_reclaim(runtime, frees_after_a_copy, &c));
    hd_free(taken(runtime, PLAIN, 30 * POOL_MIB));
    CONF_EQUAL(c.calls, 1);
    CONF_OK(hd_memory_on_reclaim(runtime, NULL, NULL));
    gives_all_back(runtime);
}

/* ---- everybody finishes ---- */

enum { EATERS = 6 };

typedef struct table {
    size_t most;
    int rounds;
    atomic_int finished;
} table;

/* Holds one block at a time, of any size, and so keeps nobody waiting for ever. */
static void *eats(void *argument)
{
    pool_thread *t = argument;
    table *all = t->context;
    for (int i = 0; i < all->rounds; i++) {
        bool large = conf_chance(&t->random, 20);
        size_t bytes = large ? all->most - conf_below(&t->random, all->most / 8) : pool_size(&t->random, all->most / 2);
        hd_buffer *b = taken(t->runtime, conf_chance(&t->random, 10) ? DEDICATED : PLAIN, bytes);
        if (conf_chance(&t->random, 50)) {
            CONF_OK(hd_fill(b, 0, 1, bytes / 4 * 4, NULL));
        }
        if (conf_chance(&t->random, 30)) {
            sched_yield();
        }
        hd_free(b);
    }
    atomic_fetch_add(&all->finished, 1);
    return NULL;
}

static void everybody_finishes(void **state)
{
    (void)state;
    uint64_t seed = conf_number_from("HEDDLE_SEED", 1);
    static const size_t limits[] = {8, 24, 64};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        pool_thread threads[EATERS];
        hd_runtime *runtime = conf_open_with("host_devices=1 host_memory=128M memory_limit=%zuM " LONG, limits[i]);
        table all = {.most = limits[i] * POOL_MIB, .rounds = CONF_TSAN ? 20 : 40};
        pool_start(threads, EATERS, runtime, seed + i, eats, &all);
        pool_join(threads, EATERS);
        CONF_EQUAL(atomic_load(&all.finished), EATERS);
        CONF_EQUAL(pool_stats(runtime, 0).failures, 0);
        gives_all_back(runtime);
    }
}

int main(void)
{
    conf_begin("test_memory_line");
    const struct CMUnitTest tests[] = {
        CONF_CASE(a_loop_of_frees_starves_nobody),
        CONF_CASE(several_loops_starve_nobody),
        CONF_CASE(memory_goes_to_those_who_wait_in_their_order),
        CONF_CASE(who_must_free_first_gets_what_is_left),
        CONF_CASE(the_callback_passes_the_allocation_that_calls_it),
        CONF_CASE(everybody_finishes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
