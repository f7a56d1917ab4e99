/* test_cache.c - magazines of threads: what they hold and how much, what others drain from them, and where it goes
 * when a thread or a runtime ends.
 *
 * The runtimes are made up: a number in the registry and the caches. Items come from a store that stands for the
 * arena and knows where each of them is, so one that gets lost, or comes back twice, is found.
 * Threads: owners that take and put, others that drain. Locks: the store's.
 */
#include "support/check.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>
#include "engine/engine.h"
#include "memory/cache.h"

#if defined(__SANITIZE_THREAD__)
#define SLOW 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SLOW 1
#endif
#endif
#ifndef SLOW
#define SLOW 0
#endif

enum { DEVICES = 3, ITEMS = 4096 };
enum { STORED, OWNED, CACHED }; /* where an item is */

typedef struct thing {
    hdi_item item; /* first */
    _Atomic int where;
} thing;

typedef struct store {
    hd_runtime *rt;
    pthread_mutex_t lock;
    hdi_item *items; /* linked by `next` */
    int count;
    uint64_t released[DEVICES];
    _Atomic int wrong; /* items that were elsewhere than they should be; threads must not fail a test themselves */
    thing things[ITEMS];
} store;

static void store_put(store *s, hdi_item *item)
{
    pthread_mutex_lock(&s->lock);
    item->next = s->items;
    s->items = item;
    s->count++;
    pthread_mutex_unlock(&s->lock);
}

static void moves(store *s, hdi_item *item, int from, int to)
{
    if (atomic_exchange(&((thing *)(void *)item)->where, to) != from) {
        s->wrong++;
    }
}

static void take_back(void *context, int device, hdi_item *items)
{
    store *s = context;
    for (hdi_item *item = items, *next; item != NULL; item = next) {
        next = item->next;
        if (device < 0 || device >= DEVICES || item->lane / HDI_LANES_MAX != (uint32_t)device) {
            s->wrong++;
            continue;
        }
        moves(s, item, CACHED, STORED);
        pthread_mutex_lock(&s->lock);
        s->released[device]++;
        pthread_mutex_unlock(&s->lock);
        store_put(s, item);
    }
}

static store *open_store(void)
{
    store *s = calloc(1, sizeof *s);
    assert_non_null(s);
    pthread_mutex_init(&s->lock, NULL);
    s->rt = calloc(1, sizeof *s->rt);
    assert_non_null(s->rt);
    s->rt->n_devices = DEVICES;
    assert_ok(hdi_runtime_add(s->rt));
    hdi_caches_config config = {.release = take_back, .context = s};
    assert_ok(hdi_caches_create(s->rt, &config));
    for (int i = 0; i < ITEMS; i++) {
        store_put(s, &s->things[i].item);
    }
    return s;
}

static void close_store(store *s)
{
    hdi_runtime_remove(s->rt);
    hdi_caches_destroy(s->rt);
    assert_int_equal(s->wrong, 0);
    pthread_mutex_destroy(&s->lock);
    free(s->rt);
    free(s);
}

/* An item for a lane and class from the store; NULL: there is none left. */
static hdi_item *fresh(store *s, uint32_t lane, uint32_t class)
{
    pthread_mutex_lock(&s->lock);
    hdi_item *item = s->items;
    if (item != NULL) {
        s->items = item->next;
        s->count--;
    }
    pthread_mutex_unlock(&s->lock);
    if (item != NULL) {
        moves(s, item, STORED, OWNED);
        item->lane = lane;
        item->class = class;
        item->bytes = class < HDI_CLASSES ? hdi_class_bytes(class) : 0;
    }
    return item;
}

static hdi_item *fresh_large(store *s, uint32_t lane, size_t bytes)
{
    hdi_item *item = fresh(s, lane, HDI_CLASS_LARGE);
    if (item != NULL) {
        item->bytes = bytes;
    }
    return item;
}

static hdi_item *cached(store *s, uint32_t lane, uint32_t class)
{
    hdi_cache *cache = hdi_cache_own(s->rt);
    if (cache == NULL) {
        s->wrong++;
        return NULL;
    }
    hdi_cache_enter(cache);
    hdi_item *item = hdi_cache_take(cache, lane, class);
    hdi_cache_leave(cache);
    if (item != NULL) {
        s->wrong += item->lane != lane || item->class != class;
        moves(s, item, CACHED, OWNED);
    }
    return item;
}

static hdi_item *cached_large(store *s, uint32_t lane, size_t bytes)
{
    hdi_cache *cache = hdi_cache_own(s->rt);
    if (cache == NULL) {
        s->wrong++;
        return NULL;
    }
    hdi_cache_enter(cache);
    hdi_item *item = hdi_cache_take_large(cache, lane, bytes);
    hdi_cache_leave(cache);
    if (item != NULL) {
        s->wrong += item->lane != lane || item->bytes != bytes || item->class != HDI_CLASS_LARGE;
        moves(s, item, CACHED, OWNED);
    }
    return item;
}

/* What is on its way out goes back to the store. Returns how many. */
static int let_leave(store *s)
{
    hdi_cache *cache = hdi_cache_own(s->rt);
    int n = 0;
    hdi_cache_enter(cache);
    hdi_item *items = hdi_cache_take_leaving(cache);
    hdi_cache_leave(cache);
    for (hdi_item *item = items, *next; item != NULL; item = next, n++) {
        next = item->next;
        moves(s, item, CACHED, STORED);
        store_put(s, item);
    }
    return n;
}

/* False: there was no room, and it went back to the store. */
static bool give(store *s, hdi_item *item)
{
    hdi_cache *cache = hdi_cache_own(s->rt);
    if (cache == NULL) {
        s->wrong++;
        return false;
    }
    moves(s, item, OWNED, CACHED);
    hdi_cache_enter(cache);
    bool kept = item->class == HDI_CLASS_LARGE ? hdi_cache_put_large(cache, item) : hdi_cache_put(cache, item);
    hdi_cache_leave(cache);
    if (!kept) {
        moves(s, item, CACHED, STORED);
        store_put(s, item);
    }
    return kept;
}

static hdi_cache_sums sums(store *s, int device)
{
    hdi_cache_sums out = {0};
    hdi_caches_sum(s->rt, device, &out);
    return out;
}

static uint32_t lane_of(int device, uint32_t number)
{
    return (uint32_t)device * HDI_LANES_MAX + number;
}

/* ---------------------------------------------------------------------------------------------------- one thread -- */

static void last_in_first_out_by_lane_and_class(void **unused)
{
    (void)unused;
    store *s = open_store();
    hdi_item *in[4][5];
    uint32_t lanes[4] = {lane_of(0, 0), lane_of(0, 255), lane_of(1, 0), lane_of(2, 7)};
    assert_int_equal(hdi_caches_count(s->rt), 0);
    for (int l = 0; l < 4; l++) {
        assert_null(cached(s, lanes[l], 3));
        for (uint32_t i = 0; i < 5; i++) {
            in[l][i] = fresh(s, lanes[l], 3 + i % 2);
            assert_non_null(in[l][i]);
        }
        for (int i = 0; i < 5; i++) {
            assert_true(give(s, in[l][i]));
        }
    }
    assert_int_equal(hdi_caches_count(s->rt), 1);
    assert_int_equal(sums(s, 0).cached_bytes, 2 * (3 * hdi_class_bytes(3) + 2 * hdi_class_bytes(4)));
    assert_int_equal(sums(s, 1).cached_bytes, 3 * hdi_class_bytes(3) + 2 * hdi_class_bytes(4));
    static uint64_t bytes[HDI_LANES_MAX], items[HDI_LANES_MAX];
    hdi_caches_lanes(s->rt, 0, bytes, items);
    assert_int_equal(items[0], 5);
    assert_int_equal(items[255], 5);
    assert_int_equal(items[1], 0);
    assert_int_equal(bytes[255], 3 * hdi_class_bytes(3) + 2 * hdi_class_bytes(4));
    for (int l = 0; l < 4; l++) {
        static const int order[] = {4, 2, 0};
        assert_null(cached(s, lanes[l], 2));
        assert_null(cached(s, lanes[l] + 1 - 2 * (lanes[l] % 2), 3)); /* the lane beside it */
        for (int i = 0; i < 3; i++) {
            assert_ptr_equal(cached(s, lanes[l], 3), in[l][order[i]]);
        }
        assert_null(cached(s, lanes[l], 3));
        assert_ptr_equal(cached(s, lanes[l], 4), in[l][3]);
        assert_ptr_equal(cached(s, lanes[l], 4), in[l][1]);
        assert_null(cached(s, lanes[l], 4));
    }
    for (int d = 0; d < DEVICES; d++) {
        assert_int_equal(sums(s, d).cached_bytes, 0);
        assert_int_equal(s->released[d], 0);
    }
    close_store(s);
}

/* A magazine has room for 64 items, as long as they are 1 MiB in all, or for two. */
static void magazines_are_bounded(void **unused)
{
    (void)unused;
    for (uint32_t class = 0; class < HDI_CLASSES; class ++) {
        store *s = open_store();
        size_t each = hdi_class_bytes(class);
        size_t room = HDI_MAGAZINE_BYTES / each < 2 ? 2 : HDI_MAGAZINE_BYTES / each;
        room = room > HDI_MAGAZINE_ITEMS ? HDI_MAGAZINE_ITEMS : room;
        uint32_t lane = lane_of(1, class % 3);
        size_t held = 0;
        while (held <= room && give(s, fresh(s, lane, class))) {
            held++;
        }
        if (held < 2 || held > room) {
            print_error("class %u of %zu bytes: %zu items held, room for %zu\n", class, each, held, room);
            fail();
        }
        assert_int_equal(sums(s, 1).cached_bytes, held * each);
        hdi_caches_drain(s->rt, 1);
        assert_int_equal(sums(s, 1).cached_bytes, 0);
        assert_int_equal(s->count, ITEMS);
        assert_true(give(s, fresh(s, lane, class))); /* there is room again */
        close_store(s);
    }
}

/* All magazines of a thread together are bounded, too, whatever device they are of. */
static void a_thread_is_bounded(void **unused)
{
    (void)unused;
    store *s = open_store();
    uint32_t class = HDI_CLASSES - 1;
    size_t each = hdi_class_bytes(class), held = 0, refused = 0;
    for (int d = 0; d < DEVICES; d++) {
        for (uint32_t number = 0; number < HDI_LANES_MAX / 4; number++) {
            if (give(s, fresh(s, lane_of(d, number), class))) {
                held++;
            } else {
                refused++;
            }
        }
    }
    assert_true(refused > 0);
    assert_true(held * each <= HDI_CACHE_BYTES);
    assert_true(held * each >= HDI_CACHE_BYTES - 2 * each);
    assert_int_equal(sums(s, 0).cached_bytes + sums(s, 1).cached_bytes + sums(s, 2).cached_bytes, held * each);
    hdi_caches_drain(s->rt, 0);
    assert_int_equal(sums(s, 0).cached_bytes, 0);
    assert_true(give(s, fresh(s, lane_of(2, HDI_LANES_MAX - 1), class))); /* what was drained makes room */
    close_store(s);
}

/* Half of a magazine, the older one, comes out; what was put last stays. */
static void the_older_half_comes_out(void **unused)
{
    (void)unused;
    for (int n = 1; n <= HDI_MAGAZINE_ITEMS; n += n < 6 ? 1 : 29) {
        store *s = open_store();
        hdi_item *in[HDI_MAGAZINE_ITEMS];
        bool is_out[HDI_MAGAZINE_ITEMS] = {false};
        for (int i = 0; i < n; i++) {
            in[i] = fresh(s, lane_of(0, 9), 0);
            assert_true(give(s, in[i]));
        }
        hdi_cache *cache = hdi_cache_own(s->rt);
        hdi_cache_enter(cache);
        hdi_item *out = hdi_cache_take_half(cache, lane_of(0, 9), 0);
        hdi_cache_leave(cache);
        int n_out = 0, oldest_in = n;
        for (hdi_item *item = out, *next; item != NULL; item = next, n_out++) {
            next = item->next;
            for (int i = 0; i < n; i++) {
                is_out[i] |= in[i] == item;
            }
            moves(s, item, CACHED, STORED);
            store_put(s, item);
        }
        for (int i = n; i-- > 0;) {
            oldest_in = is_out[i] ? oldest_in : i;
        }
        assert_true(n_out >= n / 2 && n_out <= (n + 1) / 2);
        assert_int_equal(oldest_in, n_out); /* the first ones are out, and none behind them */
        assert_int_equal(sums(s, 0).cached_bytes, (uint64_t)(n - n_out) * hdi_class_bytes(0));
        for (int i = n; i-- > n_out;) {
            assert_ptr_equal(cached(s, lane_of(0, 9), 0), in[i]);
        }
        assert_null(cached(s, lane_of(0, 9), 0));
        hdi_cache_enter(cache);
        assert_null(hdi_cache_take_half(cache, lane_of(0, 9), 0));  /* empty */
        assert_null(hdi_cache_take_half(cache, lane_of(0, 10), 0)); /* never used */
        hdi_cache_leave(cache);
        close_store(s);
    }
}

/* One large block per lane, for who wants exactly its size; the next one takes its place. */
static void one_large_block_per_lane(void **unused)
{
    (void)unused;
    store *s = open_store();
    enum { mib = 1 << 20 };
    uint32_t lane = lane_of(1, 3);
    assert_null(cached_large(s, lane, 5 * mib));
    hdi_item *first = fresh_large(s, lane, 5 * mib), *second = fresh_large(s, lane, 7 * mib);
    assert_true(give(s, first));
    assert_int_equal(sums(s, 1).cached_bytes, 5 * mib);
    assert_null(cached_large(s, lane, 5 * mib - 256));
    assert_null(cached_large(s, lane, 5 * mib + 256));
    assert_null(cached_large(s, lane_of(1, 4), 5 * mib));
    assert_null(cached_large(s, lane_of(0, 3), 5 * mib));
    assert_ptr_equal(cached_large(s, lane, 5 * mib), first);
    assert_null(cached_large(s, lane, 5 * mib));
    assert_int_equal(sums(s, 1).cached_bytes, 0);
    assert_true(give(s, first));
    assert_true(give(s, second));
    assert_null(cached_large(s, lane, 5 * mib)); /* it is leaving, but still held */
    assert_int_equal(sums(s, 1).cached_bytes, 12 * mib);
    static uint64_t bytes[HDI_LANES_MAX], items[HDI_LANES_MAX];
    hdi_caches_lanes(s->rt, 1, bytes, items);
    assert_int_equal(items[3], 2);
    assert_int_equal(bytes[3], 12 * mib);
    assert_int_equal(let_leave(s), 1);
    assert_int_equal(let_leave(s), 0);
    assert_int_equal(sums(s, 1).cached_bytes, 7 * mib);
    assert_true(give(s, fresh(s, lane, 0))); /* small ones are apart */
    assert_ptr_equal(cached_large(s, lane, 7 * mib), second);
    assert_int_equal(sums(s, 1).cached_bytes, hdi_class_bytes(0));
    assert_true(give(s, second));

    /* drained with the rest, or alone, with what is leaving; of one device */
    assert_true(give(s, fresh_large(s, lane, 9 * mib)));
    assert_true(give(s, fresh_large(s, lane_of(2, 3), 9 * mib)));
    assert_false(hdi_caches_drain_large(s->rt, 0));
    assert_int_equal(s->released[1], 0);
    assert_true(hdi_caches_drain_large(s->rt, 1));
    assert_int_equal(s->released[1], 2);
    assert_false(hdi_caches_drain_large(s->rt, 1));
    assert_int_equal(sums(s, 1).cached_bytes, hdi_class_bytes(0));
    assert_int_equal(sums(s, 2).cached_bytes, 9 * mib);
    hdi_caches_drain(s->rt, 2);
    hdi_caches_drain(s->rt, 1);
    assert_int_equal(s->count, ITEMS);
    close_store(s);
}

/* Large blocks are bounded apart from the small ones: each, all of them, and those on their way out. */
static void large_blocks_are_bounded(void **unused)
{
    (void)unused;
    store *s = open_store();
    assert_false(give(s, fresh_large(s, lane_of(0, 0), HDI_LARGE_BYTES / 4 + 256)));
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(give(s, fresh_large(s, lane_of((int)i % DEVICES, i), HDI_LARGE_BYTES / 4)));
    }
    assert_false(give(s, fresh_large(s, lane_of(0, 9), 2 << 20)));
    assert_true(give(s, fresh(s, lane_of(0, 9), HDI_CLASSES - 1))); /* small ones have room of their own */
    assert_non_null(cached_large(s, lane_of(1, 1), HDI_LARGE_BYTES / 4));
    assert_true(give(s, fresh_large(s, lane_of(0, 9), 2 << 20)));
    int leaving = 0;
    while (give(s, fresh_large(s, lane_of(0, 9), 2 << 20))) {
        leaving++;
        assert_true(leaving <= HDI_LEAVING_ITEMS);
    }
    assert_true(leaving > 0);
    assert_int_equal(let_leave(s), leaving);
    assert_true(give(s, fresh_large(s, lane_of(0, 9), 2 << 20)));
    close_store(s);
}

static void draining_takes_one_devices_items(void **unused)
{
    (void)unused;
    store *s = open_store();
    for (uint32_t i = 0; i < 30; i++) {
        assert_true(give(s, fresh(s, lane_of((int)i % DEVICES, i % 5), i % 7)));
    }
    for (int d = DEVICES; d-- > 0;) {
        assert_true(sums(s, d).cached_bytes > 0);
        assert_int_equal(s->released[d], 0);
        hdi_caches_drain(s->rt, d);
        assert_int_equal(sums(s, d).cached_bytes, 0);
        assert_int_equal(s->released[d], 10);
        hdi_caches_drain(s->rt, d);
        assert_int_equal(s->released[d], 10);
    }
    assert_int_equal(s->count, ITEMS);
    close_store(s);
}

/* -------------------------------------------------------------------------------------------------- many threads -- */

enum { OWNERS = 3, DRAINERS = 2, ROUNDS = SLOW ? 100000 : 2000000 };

typedef struct owner {
    store *s;
    uint64_t seed;
    _Atomic bool *stop; /* of who drains */
} owner;

static uint64_t next_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    return *seed ^= *seed << 17;
}

/* Takes and puts at random, with up to 16 in hand. */
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
                hdi_caches_drain(o->s->rt, d);
            } else {
                hdi_caches_drain_large(o->s->rt, d);
            }
            sums(o->s, d);
            hdi_caches_cached(o->s->rt, d);
            hdi_caches_lanes(o->s->rt, d, scratch[0][row], scratch[1][row]);
        }
        hdi_caches_count(o->s->rt);
        sched_yield();
    }
    return NULL;
}

/* While owners work, others drain and look. Every item is somewhere, once; and when the owners have ended, their
 * magazines are empty. */
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

typedef struct guest {
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
        hdi_cache *cache = hdi_cache_own(g->s->rt);
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

/* A thread that ends gives everything back; what it counted stays counted. */
static void a_thread_that_ends_gives_back(void **unused)
{
    (void)unused;
    store *s = open_store();
    for (int round = 1; round <= 20; round++) {
        guest g[4];
        pthread_t threads[4];
        for (int i = 0; i < 4; i++) {
            g[i] = (guest){s, 60, NULL};
            assert_int_equal(pthread_create(&threads[i], NULL, fills_its_magazines, &g[i]), 0);
        }
        for (int i = 0; i < 4; i++) {
            pthread_join(threads[i], NULL);
        }
        assert_int_equal(s->count, ITEMS);
        assert_int_equal(hdi_caches_count(s->rt), 0);
        for (int d = 0; d < DEVICES; d++) {
            assert_int_equal(sums(s, d).cached_bytes, 0);
            assert_int_equal(s->released[d], (uint64_t)round * 80);
            assert_int_equal(sums(s, d).allocations, (uint64_t)round * 80);
        }
    }
    assert_int_equal(s->wrong, 0);
    close_store(s);
}

/* What threads that live on and do nothing hold can be had by others. */
static void idle_threads_are_drained(void **unused)
{
    (void)unused;
    store *s = open_store();
    guest g[4];
    pthread_t threads[4];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, 5);
    for (int i = 0; i < 4; i++) {
        g[i] = (guest){s, 60, &barrier};
        assert_int_equal(pthread_create(&threads[i], NULL, fills_its_magazines, &g[i]), 0);
    }
    pthread_barrier_wait(&barrier);
    assert_int_equal(hdi_caches_count(s->rt), 4);
    assert_int_equal(s->count, ITEMS - 240);
    for (int d = 0; d < DEVICES; d++) {
        hdi_caches_drain(s->rt, d);
        assert_int_equal(sums(s, d).cached_bytes, 0);
    }
    assert_int_equal(s->count, ITEMS);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(s->count, ITEMS);
    pthread_barrier_destroy(&barrier);
    close_store(s);
}

/* The runtime is closed while threads have full magazines; they end afterwards, or go on with another runtime. */
static void a_runtime_ends_before_its_threads(void **unused)
{
    (void)unused;
    for (int round = 0; round < 20; round++) {
        store *s = open_store();
        guest g[4];
        pthread_t threads[4];
        pthread_barrier_t barrier;
        pthread_barrier_init(&barrier, NULL, 5);
        for (int i = 0; i < 4; i++) {
            g[i] = (guest){s, 60, &barrier};
            assert_int_equal(pthread_create(&threads[i], NULL, fills_its_magazines, &g[i]), 0);
        }
        pthread_barrier_wait(&barrier);
        uint64_t released = s->released[0];
        close_store(
            s); /* forgets the items: nothing is released any more, or the store would be used after it is gone */
        assert_int_equal(released, 0);
        pthread_barrier_wait(&barrier);
        for (int i = 0; i < 4; i++) {
            pthread_join(threads[i], NULL);
        }
        pthread_barrier_destroy(&barrier);
    }
}

/* ---------------------------------------------------------------------------------------------- several runtimes -- */

/* One thread works with several runtimes, which come and go in any order. Each has its own items. */
static void *works_with_several(void *argument)
{
    uint64_t seed = *(uint64_t *)argument;
    enum { OPEN = 5 };
    store *open[OPEN] = {NULL};
    int live[OPEN] = {0}; /* items that the thread's magazines hold of each, at most */
    for (int i = 0; i < (SLOW ? 3000 : 20000); i++) {
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

/* A thread with caches of several runtimes ends: each gets its own back, as far as it is still open. */
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
            assert_int_equal(hdi_caches_count(stores[i]->rt), 0);
        }
    }
    for (int i = 0; i < 4; i++) {
        close_store(stores[i]);
    }
}

/* What is counted where a thread has no cache is in the sums as well. */
static void counts_add_up(void **unused)
{
    (void)unused;
    store *s = open_store();
    hdi_cache *cache = hdi_cache_own(s->rt);
    assert_non_null(cache);
    assert_ptr_equal(cache, hdi_cache_own(s->rt));
    assert_true(cache->number != 0);
    hdi_count(&cache->counts[1].allocations, 5);
    hdi_count(&cache->counts[1].allocated_bytes, 500);
    hdi_count(&cache->counts[1].frees, 2);
    hdi_count(&cache->counts[1].freed_bytes, 200);
    hdi_count(&cache->counts[1].from_magazine, 3);
    hdi_count(&cache->counts[1].frees_elsewhere, 1);
    hdi_caches_count_apart(s->rt, 1, 1000, true);
    hdi_caches_count_apart(s->rt, 1, 1000, true);
    hdi_caches_count_apart(s->rt, 1, 700, false);
    hdi_cache_sums sum = sums(s, 1);
    assert_int_equal(sum.allocations, 7);
    assert_int_equal(sum.allocated_bytes, 2500);
    assert_int_equal(sum.frees, 3);
    assert_int_equal(sum.freed_bytes, 900);
    assert_int_equal(sum.from_magazine, 3);
    assert_int_equal(sum.frees_elsewhere, 1);
    assert_int_equal(sums(s, 0).allocations, 0);
    close_store(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(last_in_first_out_by_lane_and_class),
        cmocka_unit_test(magazines_are_bounded),
        cmocka_unit_test(a_thread_is_bounded),
        cmocka_unit_test(the_older_half_comes_out),
        cmocka_unit_test(draining_takes_one_devices_items),
        cmocka_unit_test(one_large_block_per_lane),
        cmocka_unit_test(large_blocks_are_bounded),
        cmocka_unit_test(others_drain_while_the_owners_work),
        cmocka_unit_test(a_thread_that_ends_gives_back),
        cmocka_unit_test(idle_threads_are_drained),
        cmocka_unit_test(a_runtime_ends_before_its_threads),
        cmocka_unit_test(a_thread_works_with_several_runtimes),
        cmocka_unit_test(a_thread_with_several_caches_ends),
        cmocka_unit_test(counts_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
