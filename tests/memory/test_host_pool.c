/* test_host_pool.c - blocks of pinned memory: reuse without pinning, the limit, memory still in
 * use, lost devices, failures.
 *
 * Promise: Pinned blocks are reused after their work, and pinned bytes never exceed the limit.
 *
 * Threads: one. Locks: none.
 * Always: pinned bytes never exceed the limit.
 */
#include "host_pool_tools.h"

/* ---- reuse ---- */

static void reuses_without_pinning_again(void **unused)
{
    (void)unused;
    hdi_host_pool *pool = make(256 * MIB);
    for (int i = 0; i < 1000; i++) {
        hdi_host_block a = take(pool, 1 + (size_t)i), b = take(pool, MIB), c = take(pool, 20 * MIB);
        memset(a.host, 1, 1 + (size_t)i);
        b.host[MIB - 1] = 2;
        c.host[20 * MIB - 1] = 3;
        give(pool, &b);
        give(pool, &a);
        give(pool, &c);
    }
    hdi_host_pool_info info = info_of(pool);
    assert_int_equal(atomic_load(&device.requests), 2);
    assert_int_equal(info.driver_calls, 2);
    assert_int_equal(info.allocations, 3000);
    assert_int_equal(info.frees, 3000);
    assert_int_equal(info.from_finished + info.from_fresh, 3000);
    assert_int_equal(info.live_count, 0);
    assert_int_equal(info.live_bytes, 0);
    assert_int_equal(info.taken_bytes, 0);
    assert_int_equal(info.reserved_bytes, atomic_load(&device.pinned));
    assert_int_equal(info.reserved_peak_bytes, atomic_load(&device.peak));
    assert_int_equal(info.idle_bytes, info.reserved_bytes);
    end(pool);
}

static void counts_what_is_asked_for(void **unused)
{
    (void)unused;
    hdi_host_pool *pool = make(64 * MIB);
    hdi_host_block a = take(pool, 5), own = {0};
    hdi_points inherited;
    assert_ok(hdi_host_pool_take(pool, 100, true, &own, &inherited));
    hdi_host_pool_info info = info_of(pool);
    assert_int_equal(info.live_bytes, 5);
    assert_int_equal(info.live_count, 1);
    assert_int_equal(info.own_bytes, 100);
    assert_int_equal(info.own_count, 1);
    assert_int_equal(info.taken_bytes, 2 * page);
    assert_int_equal(info.allocations, 1);
    hdi_host_block copy = a;
    give(pool, &a);
    give(pool, &a); /* no effect */
    hdi_host_pool_give(pool, &own, NULL, 0);
    info = info_of(pool);
    assert_int_equal(info.live_bytes + info.live_count + info.own_bytes + info.own_count + info.taken_bytes, 0);
    assert_int_equal(info.frees, 1);
    assert_int_equal(info.taken_peak_bytes, 2 * page);
    (void)copy;
    fails(pool, 0, HD_ERROR_ARGUMENT);
    fails(pool, SIZE_MAX, HD_ERROR_HOST_MEMORY);
    fails(pool, SIZE_MAX / 2, HD_ERROR_HOST_MEMORY);
    end(pool);
    hdi_host_pool_destroy(NULL, false);
}

/* Blocks of one superblock are contiguous; blocks of two superblocks never join, even at adjacent
 * addresses. */
static void a_block_lies_in_one_superblock(void **unused)
{
    (void)unused;
    enum { COUNT = 200 };
    hdi_host_pool *pool = make(1024 * MIB);
    hdi_host_block blocks[COUNT];
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = take(pool, MIB / 2);
    }
    check(pool);
    for (int i = 0; i < COUNT; i += 2) {
        give(pool, &blocks[i]);
    }
    check(pool);
    for (int i = 1; i < COUNT; i += 2) {
        give(pool, &blocks[i]);
    }
    check(pool);
    hdi_host_pool_info info = info_of(pool);
    assert_int_equal(info.idle_bytes, info.reserved_bytes);
    assert_true(info.driver_calls > 3);  /* several superblocks, */
    assert_true(info.driver_calls < 40); /* of growing size */
    assert_true(info.reserved_bytes <= COUNT * MIB / 2 * 5 / 4);
    /* all memory together would suffice, but no single superblock does */
    uint64_t requests = atomic_load(&device.requests);
    hdi_host_block large = take(pool, 40 * MIB);
    assert_int_equal(atomic_load(&device.requests), requests + 1);
    give(pool, &large);
    end(pool);
}

/* ---- the limit ---- */

static void keeps_to_the_limit(void **unused)
{
    (void)unused;
    hdi_host_pool *pool = make(10 * MIB + page + 1);
    assert_int_equal(info_of(pool).limit_bytes, 10 * MIB + page);
    hdi_host_block a = take(pool, 6 * MIB), b = take(pool, 4 * MIB), c = take(pool, 1);
    assert_int_equal(info_of(pool).reserved_bytes, 10 * MIB + page);
    fails(pool, 1, HD_ERROR_HOST_MEMORY);
    assert_message_has("pinned memory: 1 byte: 10.0 MiB of at most 10.0 MiB are held: live 10.0 MiB");
    hdi_host_pool_count_failure(pool);
    assert_int_equal(info_of(pool).failures, 1);
    fails(pool, 11 * MIB, HD_ERROR_HOST_MEMORY);
    give(pool, &a);
    give(pool, &c);
    uint64_t before = info_of(pool).driver_calls;
    fails(pool, 7 * MIB, HD_ERROR_HOST_MEMORY);
    a = take(pool, 6 * MIB + page); /* idle memory is unpinned to make room for this block */
    assert_true(info_of(pool).driver_calls > before);
    assert_true(atomic_load(&device.peak) <= 10 * MIB + page);
    give(pool, &a);
    give(pool, &b);
    a = take(pool, 10 * MIB + page);
    assert_int_equal(info_of(pool).reserved_bytes, 10 * MIB + page);
    give(pool, &a);
    end(pool);

    pool = make(0);
    fails(pool, 1, HD_ERROR_HOST_MEMORY);
    end(pool);
}

static void trims_to_what_is_to_be_kept(void **unused)
{
    (void)unused;
    hdi_host_pool *pool = make(1024 * MIB);
    hdi_host_block blocks[4];
    for (int i = 0; i < 4; i++) {
        blocks[i] = take(pool, 20 * MIB);
    }
    uint64_t freed = 7;
    assert_ok(hdi_host_pool_trim(pool, 0, &freed));
    assert_int_equal(freed, 0);
    give(pool, &blocks[0]);
    give(pool, &blocks[1]);
    give_in_use(pool, &blocks[2], 1, 10);
    assert_int_equal(info_of(pool).idle_bytes, 40 * MIB);
    assert_int_equal(info_of(pool).waiting_bytes, 20 * MIB);
    assert_ok(hdi_host_pool_trim(pool, 40 * MIB, &freed));
    assert_int_equal(freed, 0);
    assert_ok(hdi_host_pool_trim(pool, 20 * MIB, &freed));
    assert_int_equal(freed, 20 * MIB);
    assert_ok(hdi_host_pool_trim(pool, 1, NULL));
    assert_int_equal(info_of(pool).returned_bytes, 40 * MIB);
    assert_int_equal(atomic_load(&device.pinned), 40 * MIB);
    atomic_store(&done_to[1], 10);
    assert_int_equal(info_of(pool).waiting_bytes, 0);
    assert_ok(hdi_host_pool_trim(pool, 0, &freed));
    assert_int_equal(freed, 20 * MIB);
    memset(blocks[3].host, 1, 20 * MIB);
    give(pool, &blocks[3]);
    end(pool);
}

/* ---- memory that work still uses ---- */

static void prefers_what_nobody_uses(void **unused)
{
    (void)unused;
    hdi_host_pool *pool = make(1024 * MIB);
    hdi_host_block a = take(pool, MIB / 2), between = take(pool, MIB), b = take(pool, MIB / 2);
    const unsigned char *of_b = b.host;
    give_in_use(pool, &a, 2, 5);
    give(pool, &b);
    hdi_host_block c = take(pool, MIB / 2);
    assert_ptr_equal(c.host, of_b);
    hdi_host_block d = take(pool, MIB / 2); /* pins a little more instead of waiting */
    assert_int_equal(info_of(pool).waiting_bytes, MIB / 2);
    assert_int_equal(info_of(pool).from_waited, 0);
    atomic_store(&done_to[2], 5);
    give(pool, &between);
    give(pool, &c);
    give(pool, &d);
    end(pool);
}

static void waits_rather_than_pin_too_much(void **unused)
{
    (void)unused;
    hdi_host_pool *pool = make(1024 * MIB);
    for (uint64_t i = 1; i <= 100; i++) { /* unfinished work */
        size_t waits;
        hdi_host_block block = take_from(pool, 8 * MIB, &waits);
        give_in_use(pool, &block, 3, i);
    }
    hdi_host_pool_info info = info_of(pool);
    assert_true(info.reserved_bytes <= 80 * MIB);
    assert_true(info.from_waited > 80);
    assert_int_equal(info.waiting_bytes % (8 * MIB), 0);
    atomic_store(&done_to[3], 100);
    hdi_host_block block = take(pool, 8 * MIB);
    give(pool, &block);
    end(pool);

    /* at the limit, it always does */
    pool = make(12 * MIB);
    block = take(pool, 8 * MIB);
    const hdi_point points[] = {{1, 4}, {2, 9}, {1, 3}};
    hdi_host_pool_give(pool, &block, points, 3);
    fails(pool, 9 * MIB, HD_ERROR_HOST_MEMORY);
    assert_message_has("freed and still in use 8 MiB");
    fails(pool, 13 * MIB, HD_ERROR_HOST_MEMORY);
    assert_message_has("the size 13 MiB exceeds the limit");
    hdi_points inherited;
    assert_ok(hdi_host_pool_take(pool, 8 * MIB, false, &block, &inherited));
    assert_int_equal(inherited.count, 2);
    assert_int_equal(hdi_points_data(&inherited)[0].lane, 1);
    assert_int_equal(hdi_points_data(&inherited)[0].position, 4);
    assert_int_equal(hdi_points_data(&inherited)[1].position, 9);
    hdi_points_release(&inherited);
    assert_int_equal(info_of(pool).from_waited, 1);
    give(pool, &block);
    end(pool);
}

/* ---- lost devices ---- */

static void what_a_lost_device_used_is_left_alone(void **unused)
{
    (void)unused;
    hdi_host_pool *pool = make(1024 * MIB);
    hdi_host_block live = take(pool, 20 * MIB), waiting = take(pool, 30 * MIB), idle = take(pool, 40 * MIB);
    const unsigned char *of_live = live.host, *of_waiting = waiting.host;
    give_in_use(pool, &waiting, 3, 8);
    give(pool, &idle);
    atomic_store(&lost, (uint64_t)1 << 3); /* its work counts as finished now */
    atomic_store(&done_to[3], 8);
    give(pool, &live);
    hdi_host_block again[8];
    for (int i = 0; i < 8; i++) {
        again[i] = take(pool, 20 * MIB);
        assert_true(again[i].host < of_live || again[i].host >= of_live + 20 * MIB);
        assert_true(again[i].host < of_waiting || again[i].host >= of_waiting + 30 * MIB);
    }
    for (int i = 0; i < 8; i++) {
        give(pool, &again[i]);
    }
    check(pool);
    assert_ok(hdi_host_pool_trim(pool, 0, NULL));
    /* idle memory is gone; these two blocks stay to the end */
    assert_int_equal(atomic_load(&device.pinned), 50 * MIB);
    assert_int_equal(info_of(pool).reserved_bytes, 50 * MIB);
    /* a second loss, with memory pinned after the first */
    live = take(pool, 20 * MIB);
    of_live = live.host;
    atomic_store(&lost, (uint64_t)3 << 3);
    give(pool, &live);
    live = take(pool, 20 * MIB);
    assert_ptr_not_equal(live.host, of_live);
    give(pool, &live);
    assert_ok(hdi_host_pool_trim(pool, 0, NULL));
    assert_int_equal(atomic_load(&device.pinned), 70 * MIB);
    end(pool);
}

static void abandoned_memory_is_not_unpinned(void **unused)
{
    (void)unused;
    hdi_host_pool *pool = make(1024 * MIB);
    hdi_host_block a = take(pool, 1);
    void *base = a.host;
    hdi_host_block b = take(pool, 30 * MIB);
    give(pool, &b);
    uint64_t requests = atomic_load(&device.requests);
    hdi_host_pool_destroy(pool, true);
    assert_int_equal(atomic_load(&device.requests), requests);
    assert_false(hdi_shm_reserve(base, page)); /* the addresses stay taken */
    hdi_pinned_pool_destroy(pinned);
}

/* ---- failures ---- */

static void pins_less_where_the_system_has_less(void **unused)
{
    (void)unused;
    hdi_host_pool *pool = make(1024 * MIB);
    device.code = HDCU_ERROR_OUT_OF_MEMORY;
    atomic_store(&device.fail_pins, 1);
    hdi_fail(HD_ERROR_LIMIT, "from before");
    hdi_host_block a = take(pool, 5);
    assert_message_has("from before"); /* a success does not change the message */
    assert_int_equal(info_of(pool).reserved_bytes, page);
    hdi_host_block b = take(pool, 30 * MIB);
    give(pool, &b);
    atomic_store(&device.fail_pins, 1);
    b = take(pool, 31 * MIB); /* idle memory is unpinned to make room */
    assert_int_equal(info_of(pool).reserved_bytes, 31 * MIB + page);
    atomic_store(&device.fail_pins, 2);
    fails(pool, MIB, HD_ERROR_HOST_MEMORY);
    assert_message_has("cannot be pinned");
    device.code = HDCU_ERROR_UNKNOWN;
    atomic_store(&device.fail_pins, 1);
    fails(pool, MIB, HD_ERROR_DRIVER);
    assert_int_equal(info_of(pool).reserved_bytes, 31 * MIB + page);
    /* waits instead of failing */
    give_in_use(pool, &b, 4, 2);
    atomic_store(&device.fail_pins, 1);
    size_t waits;
    b = take_from(pool, MIB, &waits);
    assert_int_equal(waits, 1);
    give(pool, &a);
    give(pool, &b);
    end(pool);
}

/* Memory that the driver does not unpin still counts. */
static void unpinning_may_fail(void **unused)
{
    (void)unused;
    hdi_host_pool *pool = make(100 * MIB);
    hdi_host_block a = take(pool, 30 * MIB), b = take(pool, 40 * MIB);
    give(pool, &a);
    give(pool, &b);
    device.code = HDCU_ERROR_UNKNOWN;
    atomic_store(&device.fail_unpins, 1);
    uint64_t freed = 0;
    assert_status(hdi_host_pool_trim(pool, 0, &freed), HD_ERROR_DRIVER);
    uint64_t kept = 70 * MIB - freed;
    assert_true(freed == 30 * MIB || freed == 40 * MIB);
    assert_int_equal(info_of(pool).reserved_bytes, kept);
    check(pool);
    fails(pool, 100 * MIB - kept + 1, HD_ERROR_HOST_MEMORY);
    a = take(pool, 100 * MIB - kept);
    give(pool, &a);
    hdi_host_pool_destroy(pool, false);
    assert_int_equal(atomic_load(&device.pinned), kept);
    hdi_pinned_pool_destroy(pinned);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reuses_without_pinning_again),
        cmocka_unit_test(counts_what_is_asked_for),
        cmocka_unit_test(a_block_lies_in_one_superblock),
        cmocka_unit_test(keeps_to_the_limit),
        cmocka_unit_test(trims_to_what_is_to_be_kept),
        cmocka_unit_test(prefers_what_nobody_uses),
        cmocka_unit_test(waits_rather_than_pin_too_much),
        cmocka_unit_test(what_a_lost_device_used_is_left_alone),
        cmocka_unit_test(abandoned_memory_is_not_unpinned),
        cmocka_unit_test(pins_less_where_the_system_has_less),
        cmocka_unit_test(unpinning_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
