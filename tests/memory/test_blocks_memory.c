/* test_blocks_memory.c - the allocator over offsets when host memory runs out.
 *
 * Promise: An allocator that lacks host memory refuses, and loses no block.
 * Threads: one. Locks: none.
 */
#include "blocks_tools.h"

static void creation_fails_cleanly(void **unused)
{
    (void)unused;
    hdi_blocks *b = NULL;
    long n = 0;
    for (;; n++) {
        allocations_left = n;
        hd_status status = blocks_create(1 << 20, 0, &b);
        if (status == HD_OK) {
            break;
        }
        assert_status(status, HD_ERROR_HOST_MEMORY);
        assert_null(b);
    }
    assert_true(n >= 3);
    allocations_left = 0;
    assert_status(hdi_blocks_grow(b, 64 * G), HD_ERROR_HOST_MEMORY);
    blocks_check(b);
    allocations_left = -1;
    assert_ok(hdi_blocks_grow(b, 64 * G));
    hdi_blocks_destroy(b);
}

/* The copy of a large set cannot be made, so the block stays free, with its set. */
static void a_failed_alloc_loses_nothing(void **unused)
{
    (void)unused;
    hdi_blocks *b = blocks_make(1 << 20, 8 * G);
    hdi_point points[40];
    for (uint32_t i = 0; i < 40; i++) {
        points[i] = (hdi_point){i, i + 1};
    }
    size_t offset = blocks_take(b, 8 * G, 0);
    hdi_blocks_free(b, offset, points, 40);
    allocations_left = 0;
    hdi_points got = {.count = 99};
    assert_status(hdi_blocks_alloc(b, 8 * G, 0, &offset, &got), HD_ERROR_HOST_MEMORY);
    assert_int_equal(got.count, 99);
    blocks_check(b);
    allocations_left = -1;
    assert_ok(hdi_blocks_alloc(b, 8 * G, 0, &offset, &got));
    assert_int_equal(got.count, 40);
    hdi_points_release(&got);
    hdi_blocks_destroy(b);
}

/* One point per live block always fits without new memory. */
static void usual_frees_need_no_memory(void **unused)
{
    (void)unused;
    enum { N = 1000 };
    static size_t at[N];
    hdi_blocks *b = blocks_make(1 << 20, 2 * N * G);
    for (int i = 0; i < N; i++) {
        at[i] = blocks_take(b, G, 0);
        blocks_take(b, G, 0); /* keeps neighbours apart */
    }
    allocations_left = 0;
    for (uint32_t i = 0; i < N; i++) {
        hdi_point point = {i % 256, 1 + i};
        hdi_blocks_free(b, at[i], &point, 1);
    }
    blocks_check(b);
    assert_int_equal(blocks_info(b).retired_blocks, 0);
    assert_int_equal(blocks_info(b).pending_points, N);
    allocations_left = -1;
    hdi_blocks_destroy(b);
}

/* A free without room for its points first drops finished points of others, and finally retires the
 * block. */
static void free_keeps_its_promise_without_memory(void **unused)
{
    (void)unused;
    enum { N = 8, POINTS = 200 };
    hdi_blocks *b = blocks_make(1 << 20, 64 * G);
    size_t at[N];
    hdi_point points[POINTS];
    for (int i = 0; i < N; i++) {
        at[i] = blocks_take(b, G, 0);
        blocks_take(b, G, 0); /* keeps neighbours apart */
    }
    for (uint32_t i = 0; i < POINTS; i++) {
        points[i] = (hdi_point){i, 1};
    }
    allocations_left = 0;
    /* Two slabs of 256 exist: they hold this many sets of 200, and not one more. */
    int kept = 0;
    while (blocks_info(b).retired_blocks == 0) {
        hdi_blocks_free(b, at[kept++], points, POINTS);
        blocks_check(b);
        assert_true(kept < N);
    }
    assert_int_equal(blocks_info(b).retired_bytes, G);
    assert_int_equal(blocks_info(b).pending_points, (size_t)(kept - 1) * POINTS);
    hdi_blocks_free(b, at[kept - 1], NULL, 0); /* a retired block has no owner: ignored */
    blocks_check(b);

    /* finished uses make room again */
    for (uint32_t i = 0; i < POINTS; i++) {
        finished_to[i] = 1;
        points[i].position = 2;
    }
    hdi_blocks_free(b, at[kept], points, POINTS);
    blocks_check(b);
    assert_int_equal(blocks_info(b).retired_blocks, 1);
    assert_int_equal(blocks_info(b).pending_points, POINTS);

    /* the retired block is never handed out */
    allocations_left = -1;
    size_t offset;
    hdi_points got;
    while (hdi_blocks_alloc(b, G, 0, &offset, &got) == HD_OK) {
        assert_int_not_equal(offset, at[kept - 1]);
        hdi_points_release(&got);
    }
    assert_int_equal(blocks_info(b).free_bytes, 0);
    blocks_check(b);
    hdi_blocks_destroy(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(creation_fails_cleanly),
        cmocka_unit_test(a_failed_alloc_loses_nothing),
        cmocka_unit_test(usual_frees_need_no_memory),
        cmocka_unit_test(free_keeps_its_promise_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
