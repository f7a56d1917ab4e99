/* test_thread_cache_threads.c - magazines of many threads: others drain them, and their items
 * return when a thread or a runtime ends. Also threads with several runtimes.
 *
 * Promise: Blocks in threads' caches never get lost: others drain them, a thread's end frees them.
 *
 * Threads: owners that take and put, others that drain. Locks: the store's lock.
 * Always: every item is in one place, and a thread's items are back once it has ended.
 */
#include "thread_cache_store.h"

/* ---- many threads ---- */

enum { OWNERS = 3, DRAINERS = 2, ROUNDS = TEST_TSAN ? 100000 : 2000000 };

typedef struct owner {
    store *s;
    uint64_t seed;
    _Atomic bool *stop; /* of the draining thread */
} owner;

static uint64_t next_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    return *seed ^= *seed << 17;
}

/* Takes and puts at random, holding up to 16 items. */
static void *takes_and_puts(void *argument)
{
    owner *o = argument;
    hdi_item *hand[16] = {NULL};
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t r = next_random(&o->seed);
        hdi_item **at = &hand[r % 16];
        if (*at != NULL) {
            give(o->s, *at);
            *at = NULL;
            continue;
        }
        uint32_t lane = lane_of((int)(r >> 8 & 3) % DEVICES, r >> 16 & 3), class = (uint32_t)(r >> 24) % 20;
        if ((r >> 40) % 8 == 0) {
            size_t bytes = (size_t)(2 + class % 3) << 20;
            *at = cached_large(o->s, lane, bytes);
            *at = *at != NULL ? *at : fresh_large(o->s, lane, bytes);
        } else {
            *at = cached(o->s, lane, class);
            *at = *at != NULL ? *at : fresh(o->s, lane, class);
        }
        if (i % 64 == 0) {
            let_leave(o->s);
        }
    }
    for (int i = 0; i < 16; i++) {
        if (hand[i] != NULL) {
            give(o->s, hand[i]);
        }
    }
    return NULL;
}

static void *drains(void *argument)
{
    owner *o = argument;
    static uint64_t scratch[2][DRAINERS + 1][HDI_LANES_MAX];
    int row = (int)(o->seed % DRAINERS);
    while (!*o->stop) {
        for (int d = 0; d < DEVICES; d++) {
            if (row == 0) {
                hdi_thread_caches_drain(o->s->rt, d);
            } else {
                hdi_thread_caches_drain_large(o->s->rt, d);
            }
            sums(o->s, d);
            hdi_thread_caches_cached(o->s->rt, d);
            hdi_thread_caches_lanes(o->s->rt, d, scratch[0][row], scratch[1][row]);
        }
        hdi_thread_caches_count(o->s->rt);
        sched_yield();
    }
    return NULL;
}

/* While owners work, others drain and read figures. Every item is in one place, and once the owners
 * have ended, their magazines are empty. */
static void others_drain_while_the_owners_work(void **unused)
{
    (void)unused;
    store *s = open_store();
    _Atomic bool stop = false;
    owner owners[OWNERS + DRAINERS];
    pthread_t threads[OWNERS + DRAINERS];
    for (int i = 0; i < OWNERS + DRAINERS; i++) {
        owners[i] = (owner){s, 1000 + (uint64_t)i, &stop};
        assert_int_equal(pthread_create(&threads[i], NULL, i < OWNERS ? takes_and_puts : drains, &owners[i]), 0);
    }
    for (int i = 0; i < OWNERS + DRAINERS; i++) {
        stop = i >= OWNERS;
        pthread_join(threads[i], NULL);
    }
    for (int d = 0; d < DEVICES; d++) {
        assert_int_equal(sums(s, d).cached_bytes, 0);
        assert_true(s->released[d] > 0);
    }
    assert_int_equal(s->wrong, 0);
    assert_int_equal(s->count, ITEMS);
    close_store(s);
}

enum { GUESTS = 4 };

typedef struct guest {
    pthread_t thread;
    store *s;
    int items;
    pthread_barrier_t *barrier; /* NULL: ends at once */
} guest;

static void *fills_its_magazines(void *argument)
{
    guest *g = argument;
    for (int i = 0; i < g->items; i++) {
        uint32_t lane = lane_of(i % DEVICES, (uint32_t)i % 4);
        hdi_item *item = i % 5 == 4 ? fresh_large(g->s, lane, (size_t)2 << 20) : fresh(g->s, lane, (uint32_t)i % 8);
        hdi_thread_cache *cache = hdi_thread_cache_own(g->s->rt);
        if (item == NULL || cache == NULL || !give(g->s, item)) {
            g->s->wrong++;
            break;
        }
        hdi_count(&cache->counts[i % DEVICES].allocations, 1);
    }
    if (g->barrier != NULL) {
        pthread_barrier_wait(g->barrier);
        pthread_barrier_wait(g->barrier);
    }
    return NULL;
}

/* Starts threads that each put 60 items into their magazines. */
static void start_guests(guest guests[GUESTS], store *s, pthread_barrier_t *barrier)
{
    for (int i = 0; i < GUESTS; i++) {
        guests[i] = (guest){.s = s, .items = 60, .barrier = barrier};
        assert_int_equal(pthread_create(&guests[i].thread, NULL, fills_its_magazines, &guests[i]), 0);
    }
}

static void join_guests(guest guests[GUESTS])
{
    for (int i = 0; i < GUESTS; i++) {
        pthread_join(guests[i].thread, NULL);
    }
}

/* A thread that ends gives everything back; its counts remain. */
static void a_thread_that_ends_gives_back(void **unused)
{
    (void)unused;
    store *s = open_store();
    for (int round = 1; round <= 20; round++) {
        guest guests[GUESTS];
        start_guests(guests, s, NULL);
        join_guests(guests);
        assert_int_equal(s->count, ITEMS);
        assert_int_equal(hdi_thread_caches_count(s->rt), 0);
        for (int d = 0; d < DEVICES; d++) {
            assert_int_equal(sums(s, d).cached_bytes, 0);
            assert_int_equal(s->released[d], (uint64_t)round * 80);
            assert_int_equal(sums(s, d).allocations, (uint64_t)round * 80);
        }
    }
    assert_int_equal(s->wrong, 0);
    close_store(s);
}

/* Others can take the items of idle threads. */
static void idle_threads_are_drained(void **unused)
{
    (void)unused;
    store *s = open_store();
    guest guests[GUESTS];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, GUESTS + 1);
    start_guests(guests, s, &barrier);
    pthread_barrier_wait(&barrier);
    assert_int_equal(hdi_thread_caches_count(s->rt), 4);
    assert_int_equal(s->count, ITEMS - 240);
    for (int d = 0; d < DEVICES; d++) {
        hdi_thread_caches_drain(s->rt, d);
        assert_int_equal(sums(s, d).cached_bytes, 0);
    }
    assert_int_equal(s->count, ITEMS);
    pthread_barrier_wait(&barrier);
    join_guests(guests);
    assert_int_equal(s->count, ITEMS);
    pthread_barrier_destroy(&barrier);
    close_store(s);
}

/* Closes the runtime while threads hold full magazines; these threads then end, or continue with
 * another runtime. */
static void a_runtime_ends_before_its_threads(void **unused)
{
    (void)unused;
    for (int round = 0; round < 20; round++) {
        store *s = open_store();
        guest guests[GUESTS];
        pthread_barrier_t barrier;
        pthread_barrier_init(&barrier, NULL, GUESTS + 1);
        start_guests(guests, s, &barrier);
        pthread_barrier_wait(&barrier);
        uint64_t released = s->released[0];
        close_store(s); /* drops the items: releasing one later would use the store after its end */
        assert_int_equal(released, 0);
        pthread_barrier_wait(&barrier);
        join_guests(guests);
        pthread_barrier_destroy(&barrier);
    }
}

/* ---- several runtimes ---- */

/* One thread works with several runtimes, which open and close in any order. Each has its own
 * items. */
static void *works_with_several(void *argument)
{
    uint64_t seed = *(uint64_t *)argument;
    enum { OPEN = 5 };
    store *open[OPEN] = {NULL};
    int live[OPEN] = {0}; /* upper bound of the items in the thread's magazines, per runtime */
    for (int i = 0; i < (TEST_TSAN ? 3000 : 20000); i++) {
        uint64_t r = next_random(&seed);
        int at = (int)(r % OPEN);
        store *s = open[at];
        if (s == NULL) {
            open[at] = open_store();
            live[at] = 0;
        } else if (r >> 8 & 0x7f) {
            uint32_t lane = lane_of((int)(r >> 16 & 3) % DEVICES, r >> 20 & 1), class = r >> 24 & 3;
            hdi_item *item = cached(s, lane, class);
            live[at] -= item != NULL;
            item = item != NULL ? item : fresh(s, lane, class);
            live[at] += give(s, item);
            assert_int_equal(s->count, ITEMS - live[at]);
        } else {
            close_store(s);
            open[at] = NULL;
        }
    }
    for (int i = 0; i < OPEN; i++) {
        if (open[i] != NULL) {
            close_store(open[i]);
        }
    }
    return NULL;
}

static void a_thread_works_with_several_runtimes(void **unused)
{
    (void)unused;
    uint64_t seed = 77;
    works_with_several(&seed);
}

static void *one_after_the_other(void *argument)
{
    store **stores = argument;
    for (int i = 0; i < 40; i++) {
        store *s = stores[i % 4];
        hdi_item *item = fresh(s, lane_of(0, 1), 2);
        if (item == NULL || !give(s, item)) {
            s->wrong++;
        }
    }
    return NULL;
}

/* A thread with caches of several runtimes ends: each open runtime gets its items back. */
static void a_thread_with_several_caches_ends(void **unused)
{
    (void)unused;
    store *stores[4];
    for (int i = 0; i < 4; i++) {
        stores[i] = open_store();
    }
    for (int round = 0; round < 10; round++) {
        pthread_t threads[3];
        for (int i = 0; i < 3; i++) {
            assert_int_equal(pthread_create(&threads[i], NULL, one_after_the_other, stores), 0);
        }
        for (int i = 0; i < 3; i++) {
            pthread_join(threads[i], NULL);
        }
        for (int i = 0; i < 4; i++) {
            assert_int_equal(stores[i]->count, ITEMS);
            assert_int_equal(stores[i]->released[0], (uint64_t)(round + 1) * 30);
            assert_int_equal(hdi_thread_caches_count(stores[i]->rt), 0);
        }
    }
    for (int i = 0; i < 4; i++) {
        close_store(stores[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_drain_while_the_owners_work),
        cmocka_unit_test(a_thread_that_ends_gives_back),
        cmocka_unit_test(idle_threads_are_drained),
        cmocka_unit_test(a_runtime_ends_before_its_threads),
        cmocka_unit_test(a_thread_works_with_several_runtimes),
        cmocka_unit_test(a_thread_with_several_caches_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
