/* test_thread_cache.c - the magazines of one thread: content and bounds, taking items out,
 * draining, and counts.
 *
 * Promise: A block in a thread's cache comes out once, for its size class; caches stay bounded.
 *
 * Threads: one. Locks: none.
 * Always: every item is in exactly one place.
 */
#include "thread_cache_store.h"

/* The item must be one of the `n` in `in`, and each comes out once. */
static void comes_out_once(hdi_item *item, hdi_item **in, int n)
{
    assert_non_null(item);
    for (int i = 0; i < n; i++) {
        if (in[i] == item) {
            in[i] = NULL;
            return;
        }
    }
    fail_msg("an item came out twice, or from another lane or class");
}

static void items_come_out_for_their_lane_and_class(void **unused)
{
    (void)unused;
    store *s = open_store();
    hdi_item *in[4][2][3];
    uint32_t lanes[4] = {lane_of(0, 0), lane_of(0, 255), lane_of(1, 0), lane_of(2, 7)};
    assert_int_equal(hdi_thread_caches_count(s->rt), 0);
    for (int l = 0; l < 4; l++) {
        assert_null(cached(s, lanes[l], 3));
        for (uint32_t i = 0; i < 5; i++) {
            in[l][i % 2][i / 2] = fresh(s, lanes[l], 3 + i % 2);
            assert_true(give(s, in[l][i % 2][i / 2]));
        }
    }
    assert_int_equal(hdi_thread_caches_count(s->rt), 1);
    assert_int_equal(sums(s, 0).cached_bytes, 2 * (3 * hdi_class_bytes(3) + 2 * hdi_class_bytes(4)));
    assert_int_equal(sums(s, 1).cached_bytes, 3 * hdi_class_bytes(3) + 2 * hdi_class_bytes(4));
    static uint64_t bytes[HDI_LANES_MAX], items[HDI_LANES_MAX];
    hdi_thread_caches_lanes(s->rt, 0, bytes, items);
    assert_int_equal(items[0], 5);
    assert_int_equal(items[255], 5);
    assert_int_equal(items[1], 0);
    assert_int_equal(bytes[255], 3 * hdi_class_bytes(3) + 2 * hdi_class_bytes(4));
    for (int l = 0; l < 4; l++) {
        assert_null(cached(s, lanes[l], 2));
        assert_null(cached(s, lanes[l] + 1 - 2 * (lanes[l] % 2), 3)); /* the lane beside it */
        for (uint32_t odd = 0; odd < 2; odd++) {
            for (uint32_t i = 0; i < 3 - odd; i++) {
                comes_out_once(cached(s, lanes[l], 3 + odd), in[l][odd], 3 - (int)odd);
            }
            assert_null(cached(s, lanes[l], 3 + odd));
        }
    }
    for (int d = 0; d < DEVICES; d++) {
        assert_int_equal(sums(s, d).cached_bytes, 0);
        assert_int_equal(s->released[d], 0);
    }
    close_store(s);
}

/* A magazine holds 64 items, if they fit into 1 MiB, but at least two. */
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
        hdi_thread_caches_drain(s->rt, 1);
        assert_int_equal(sums(s, 1).cached_bytes, 0);
        assert_int_equal(s->count, ITEMS);
        assert_true(give(s, fresh(s, lane, class))); /* there is room again */
        close_store(s);
    }
}

/* All magazines of a thread together are bounded, too, across devices. */
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
    assert_true(held * each <= HDI_THREAD_CACHE_BYTES);
    assert_true(held * each >= HDI_THREAD_CACHE_BYTES - 2 * each);
    assert_int_equal(sums(s, 0).cached_bytes + sums(s, 1).cached_bytes + sums(s, 2).cached_bytes, held * each);
    hdi_thread_caches_drain(s->rt, 0);
    assert_int_equal(sums(s, 0).cached_bytes, 0);
    assert_true(give(s, fresh(s, lane_of(2, HDI_LANES_MAX - 1), class))); /* draining made room */
    close_store(s);
}

/* Half of a magazine comes out; the other half stays usable. */
static void half_comes_out_and_half_stays(void **unused)
{
    (void)unused;
    for (int n = 1; n <= HDI_MAGAZINE_ITEMS; n += n < 6 ? 1 : 29) {
        store *s = open_store();
        hdi_item *in[HDI_MAGAZINE_ITEMS];
        for (int i = 0; i < n; i++) {
            in[i] = fresh(s, lane_of(0, 9), 0);
            assert_true(give(s, in[i]));
        }
        hdi_thread_cache *cache = hdi_thread_cache_own(s->rt);
        hdi_thread_cache_enter(cache);
        hdi_item *out = hdi_thread_cache_take_half(cache, lane_of(0, 9), 0);
        hdi_thread_cache_leave(cache);
        int n_out = 0;
        for (hdi_item *item = out, *next; item != NULL; item = next, n_out++) {
            next = item->next;
            comes_out_once(item, in, n);
            moves(s, item, CACHED, STORED);
            store_put(s, item);
        }
        assert_true(n_out >= n / 2 && n_out <= (n + 1) / 2);
        assert_int_equal(sums(s, 0).cached_bytes, (uint64_t)(n - n_out) * hdi_class_bytes(0));
        for (int i = n_out; i < n; i++) {
            comes_out_once(cached(s, lane_of(0, 9), 0), in, n);
        }
        assert_null(cached(s, lane_of(0, 9), 0));
        hdi_thread_cache_enter(cache);
        assert_null(hdi_thread_cache_take_half(cache, lane_of(0, 9), 0));  /* empty */
        assert_null(hdi_thread_cache_take_half(cache, lane_of(0, 10), 0)); /* never used */
        hdi_thread_cache_leave(cache);
        close_store(s);
    }
}

/* One large block per lane serves requests of exactly its size; the next one replaces it. */
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
    assert_null(cached_large(s, lane, 5 * mib)); /* replaced, but still in the cache */
    assert_int_equal(sums(s, 1).cached_bytes, 12 * mib);
    static uint64_t bytes[HDI_LANES_MAX], items[HDI_LANES_MAX];
    hdi_thread_caches_lanes(s->rt, 1, bytes, items);
    assert_int_equal(items[3], 2);
    assert_int_equal(bytes[3], 12 * mib);
    assert_int_equal(let_leave(s), 1);
    assert_int_equal(let_leave(s), 0);
    assert_int_equal(sums(s, 1).cached_bytes, 7 * mib);
    assert_true(give(s, fresh(s, lane, 0))); /* small blocks are kept separately */
    assert_ptr_equal(cached_large(s, lane, 7 * mib), second);
    assert_int_equal(sums(s, 1).cached_bytes, hdi_class_bytes(0));
    assert_true(give(s, second));

    /* both drains include the replaced block, and affect one device */
    assert_true(give(s, fresh_large(s, lane, 9 * mib)));
    assert_true(give(s, fresh_large(s, lane_of(2, 3), 9 * mib)));
    assert_false(hdi_thread_caches_drain_large(s->rt, 0));
    assert_int_equal(s->released[1], 0);
    assert_true(hdi_thread_caches_drain_large(s->rt, 1));
    assert_int_equal(s->released[1], 2);
    assert_false(hdi_thread_caches_drain_large(s->rt, 1));
    assert_int_equal(sums(s, 1).cached_bytes, hdi_class_bytes(0));
    assert_int_equal(sums(s, 2).cached_bytes, 9 * mib);
    hdi_thread_caches_drain(s->rt, 2);
    hdi_thread_caches_drain(s->rt, 1);
    assert_int_equal(s->count, ITEMS);
    close_store(s);
}

/* Large blocks have bounds of their own: for each, for all, and for replaced ones. */
static void large_blocks_are_bounded(void **unused)
{
    (void)unused;
    store *s = open_store();
    assert_false(give(s, fresh_large(s, lane_of(0, 0), HDI_LARGE_BYTES / 4 + 256)));
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(give(s, fresh_large(s, lane_of((int)i % DEVICES, i), HDI_LARGE_BYTES / 4)));
    }
    assert_false(give(s, fresh_large(s, lane_of(0, 9), 2 << 20)));
    /* small ones have their own room */
    assert_true(give(s, fresh(s, lane_of(0, 9), HDI_CLASSES - 1)));
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
        hdi_thread_caches_drain(s->rt, d);
        assert_int_equal(sums(s, d).cached_bytes, 0);
        assert_int_equal(s->released[d], 10);
        hdi_thread_caches_drain(s->rt, d);
        assert_int_equal(s->released[d], 10);
    }
    assert_int_equal(s->count, ITEMS);
    close_store(s);
}

/* The sums include counts of threads without a cache. */
/* While some thread keeps a device closed, its blocks go elsewhere, and those of others do not. */
static void a_closed_device_takes_nothing(void **unused)
{
    (void)unused;
    store *s = open_store();
    for (uint32_t i = 0; i < 30; i++) {
        assert_true(give(s, fresh(s, lane_of((int)i % DEVICES, i % 5), i % 7)));
    }
    assert_true(give(s, fresh_large(s, lane_of(1, 9), 2 << 20)));
    hdi_thread_caches_close(s->rt, 1);
    assert_int_equal(s->released[1], 11);
    assert_int_equal(sums(s, 1).cached_bytes, 0);
    hdi_thread_caches_close(s->rt, 1);
    for (int closed = 2; closed > 0; closed--) {
        assert_null(cached(s, lane_of(1, 0), 0));
        assert_false(give(s, fresh(s, lane_of(1, 0), 0)));
        assert_false(give(s, fresh_large(s, lane_of(1, 9), 2 << 20)));
        assert_true(give(s, fresh(s, lane_of(0, 0), 0)));
        assert_non_null(cached(s, lane_of(0, 0), 0));
        hdi_thread_caches_open(s->rt, 1);
    }
    assert_true(give(s, fresh(s, lane_of(1, 0), 0)));
    assert_true(give(s, fresh_large(s, lane_of(1, 9), 2 << 20)));
    assert_non_null(cached(s, lane_of(1, 0), 0));
    assert_int_equal(s->released[0] + s->released[2], 0);
    close_store(s);
}

static void counts_add_up(void **unused)
{
    (void)unused;
    store *s = open_store();
    hdi_thread_cache *cache = hdi_thread_cache_own(s->rt);
    assert_non_null(cache);
    assert_ptr_equal(cache, hdi_thread_cache_own(s->rt));
    assert_true(cache->number != 0);
    hdi_count(&cache->counts[1].allocations, 5);
    hdi_count(&cache->counts[1].allocated_bytes, 500);
    hdi_count(&cache->counts[1].frees, 2);
    hdi_count(&cache->counts[1].freed_bytes, 200);
    hdi_count(&cache->counts[1].from_magazine, 3);
    hdi_count(&cache->counts[1].frees_elsewhere, 1);
    hdi_thread_caches_count_apart(s->rt, 1, 1000, true);
    hdi_thread_caches_count_apart(s->rt, 1, 1000, true);
    hdi_thread_caches_count_apart(s->rt, 1, 700, false);
    hdi_thread_cache_sums sum = sums(s, 1);
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
        cmocka_unit_test(items_come_out_for_their_lane_and_class),
        cmocka_unit_test(magazines_are_bounded),
        cmocka_unit_test(a_thread_is_bounded),
        cmocka_unit_test(half_comes_out_and_half_stays),
        cmocka_unit_test(draining_takes_one_devices_items),
        cmocka_unit_test(a_closed_device_takes_nothing),
        cmocka_unit_test(one_large_block_per_lane),
        cmocka_unit_test(large_blocks_are_bounded),
        cmocka_unit_test(counts_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
