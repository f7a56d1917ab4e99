/* test_blocks.c - the allocator over offsets: directed cases, and a random run against a model.
 * Gaps, and host memory that runs out, are tested in other files.
 *
 * Promise: The allocator never gives out bytes twice, and joins freed neighbours.
 * Threads: one. Locks: none.
 */
#include "blocks_model.h"

static int compare_offsets(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

/* Blocks that fill the whole range lie side by side, whatever the order of allocation. */
static void splits_and_merges(void **unused)
{
    (void)unused;
    hdi_blocks *b = blocks_make(1 << 20, 40 * G);
    size_t at[4];
    for (int i = 0; i < 4; i++) {
        at[i] = blocks_take(b, 10 * G - (size_t)i, 0);
    }
    assert_int_equal(blocks_info(b).free_blocks, 0);
    qsort(at, 4, sizeof at[0], compare_offsets);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(at[i], i * 10 * G);
    }
    hdi_blocks_free(b, at[0], NULL, 0);
    hdi_blocks_free(b, at[2], NULL, 0);
    blocks_check(b);
    assert_int_equal(blocks_info(b).free_blocks, 2);
    hdi_blocks_free(b, at[1], NULL, 0); /* joins with both neighbours */
    blocks_check(b);
    assert_int_equal(blocks_info(b).free_blocks, 1);
    assert_int_equal(blocks_info(b).largest_free, 30 * G);
    hdi_blocks_free(b, at[3], NULL, 0);
    blocks_check(b);
    hdi_blocks_info info = blocks_info(b);
    assert_int_equal(info.free_blocks, 1);
    assert_int_equal(info.largest_free, 40 * G);
    assert_int_equal(info.free_bytes, 40 * G);
    assert_int_equal(info.live_bytes, 0);

    /* freeing anything but a live block does nothing */
    hdi_blocks_free(b, at[3], NULL, 0);
    hdi_blocks_free(b, 1, NULL, 0);
    hdi_blocks_free(b, SIZE_MAX, NULL, 0);
    assert_int_equal(blocks_info(b).live_bytes, 0);
    blocks_check(b);
    hdi_blocks_destroy(b);
    hdi_blocks_destroy(NULL);
}

static void grows_at_its_end(void **unused)
{
    (void)unused;
    hdi_blocks *b = blocks_make(100 * G + 17, 0);
    size_t offset = 77;
    hdi_points points;
    assert_status(hdi_blocks_alloc(b, 1, 0, &offset, &points), HD_ERROR_NOT_FOUND);
    assert_status(hdi_blocks_grow(b, 0), HD_ERROR_ARGUMENT);
    assert_status(hdi_blocks_grow(b, G + 1), HD_ERROR_ARGUMENT);
    assert_status(hdi_blocks_grow(b, 101 * G), HD_ERROR_ARGUMENT);
    assert_ok(hdi_blocks_grow(b, 10 * G));
    assert_status(hdi_blocks_alloc(b, 11 * G, 0, &offset, &points), HD_ERROR_NOT_FOUND);
    assert_int_equal(offset, 77);
    assert_ok(hdi_blocks_grow(b, 10 * G)); /* extends the free end */
    assert_int_equal(blocks_info(b).largest_free, 20 * G);
    assert_int_equal(blocks_take(b, 20 * G, 0), 0);
    assert_ok(hdi_blocks_grow(b, 80 * G)); /* follows a live block */
    blocks_check(b);
    assert_int_equal(blocks_take(b, 80 * G, 0), 20 * G);
    assert_status(hdi_blocks_grow(b, G), HD_ERROR_ARGUMENT);
    assert_int_equal(blocks_info(b).managed_bytes, 100 * G);
    hdi_blocks_destroy(b);
}

static void refuses_sizes_that_cannot_be(void **unused)
{
    (void)unused;
    hdi_blocks *b = blocks_make(SIZE_MAX, (size_t)1 << 62);
    size_t offset = 1;
    hdi_points points;
    assert_status(hdi_blocks_alloc(b, 0, 0, &offset, &points), HD_ERROR_ARGUMENT);
    assert_status(hdi_blocks_alloc(b, SIZE_MAX, 0, &offset, &points), HD_ERROR_NOT_FOUND);
    assert_status(hdi_blocks_alloc(b, SIZE_MAX - 254, 0, &offset, &points), HD_ERROR_NOT_FOUND);
    assert_status(hdi_blocks_alloc(b, ((size_t)1 << 62) + 1, 0, &offset, &points), HD_ERROR_NOT_FOUND);
    assert_int_equal(blocks_take(b, (size_t)1 << 62, 0), 0);
    assert_ok(hdi_blocks_grow(b, SIZE_MAX / G * G - ((size_t)1 << 62)));
    blocks_check(b);
    assert_status(blocks_create(255, 0, &b), HD_ERROR_ARGUMENT);
    hdi_blocks_destroy(b);
}

/* Each size finds the block of exactly its size among others of nearly the same size. */
static void fits_exactly(void **unused)
{
    (void)unused;
    hdi_blocks *b = blocks_make((size_t)1 << 40, (size_t)1 << 34);
    static size_t at[2000];
    for (size_t i = 0; i < 1000; i++) {
        at[2 * i] = blocks_take(b, (1000 + i) * G, 0);
        at[2 * i + 1] = blocks_take(b, G, 0); /* keeps neighbours apart */
    }
    size_t rest = blocks_take(b, blocks_info(b).largest_free, 0);
    for (size_t i = 0; i < 1000; i++) {
        hdi_blocks_free(b, at[2 * (i * 389 % 1000)], NULL, 0); /* in an order unrelated to size */
    }
    /* largest first: only one block of the class fits */
    for (size_t i = 1000; i-- > 0;) {
        blocks_take(b, (1000 + i) * G, 0);
    }
    assert_int_equal(blocks_info(b).free_blocks, 0);
    hdi_blocks_free(b, rest, NULL, 0);
    hdi_blocks_destroy(b);
}

static void takes_the_smallest_that_fits(void **unused)
{
    (void)unused;
    hdi_blocks *b = blocks_make(1 << 20, 100 * G);
    size_t large = blocks_take(b, 30 * G, 0);
    blocks_take(b, G, 0);
    size_t small = blocks_take(b, 10 * G, 0);
    blocks_take(b, 59 * G, 0);
    hdi_blocks_free(b, small, NULL, 0);
    hdi_blocks_free(b, large, NULL, 0);
    assert_int_equal(blocks_take(b, 9 * G, 0), small);
    assert_int_equal(blocks_take(b, 9 * G, 0), large);
    hdi_blocks_destroy(b);
}

static void hands_on_unfinished_uses(void **unused)
{
    (void)unused;
    hdi_blocks *b = blocks_make(1 << 20, 8 * G);
    hdi_point points[] = {{5, 50}, {1, 10}, {3, 30}, {1, 12}, {3, 29}, {2, 20}};
    finished_to[2] = 20;
    size_t offset = blocks_take(b, 8 * G, 1);
    hdi_blocks_free(b, offset, points, 6);
    blocks_check(b);
    assert_int_equal(blocks_info(b).pending_points, 3);

    /* one point per lane, the highest; without finished work, in order of lanes, and including the
     * taker's own lane */
    hdi_points got;
    assert_ok(hdi_blocks_alloc(b, 3 * G, 3, &offset, &got));
    blocks_check(b);
    assert_int_equal(got.count, 3);
    const hdi_point *m = hdi_points_data(&got);
    assert_true(m[0].lane == 1 && m[0].position == 12);
    assert_true(m[1].lane == 3 && m[1].position == 30);
    assert_true(m[2].lane == 5 && m[2].position == 50);
    hdi_points_release(&got);
    assert_int_equal(got.count, 0);
    hdi_points_release(&got);

    /* the rest of the block gets a copy, and drops finished points */
    finished_to[5] = 50;
    size_t second;
    allocations_left = 0; /* two points need no host memory */
    assert_ok(hdi_blocks_alloc(b, 5 * G, 7, &second, &got));
    allocations_left = -1;
    assert_int_equal(got.count, 2);
    assert_int_equal(blocks_info(b).pending_points, 0);

    /* freed apart with other uses in the same lanes, then merged: the highest of each lane */
    hdi_point first_uses[] = {{1, 90}, {4, 41}};
    hdi_point second_uses[] = {{1, 91}, {4, 40}};
    hdi_blocks_free(b, offset, first_uses, 2);
    hdi_blocks_free(b, second, second_uses, 2);
    blocks_check(b);
    assert_ok(hdi_blocks_alloc(b, 8 * G, 1, &offset, &got));
    m = hdi_points_data(&got);
    assert_int_equal(got.count, 2);
    assert_true(m[0].position == 91 && m[1].position == 41);
    hdi_points_release(&got);
    hdi_blocks_destroy(b);
}

/* Memory that one lane still uses does not keep others from the memory beside it. */
static void joins_what_waits_for_the_same_lanes(void **unused)
{
    (void)unused;
    hdi_blocks *b = blocks_make(1 << 20, 40 * G);
    size_t at[4];
    for (int i = 0; i < 4; i++) {
        at[i] = blocks_take(b, 10 * G, 0);
    }
    hdi_blocks_free(b, at[0], NULL, 0);
    blocks_give(b, at[1], 1, 1);
    blocks_give(b, at[2], 2, 1);
    blocks_give(b, at[3], 2, 2);
    assert_int_equal(blocks_info(b).free_blocks, 3);
    assert_int_equal(blocks_info(b).waiting_bytes, 30 * G);
    assert_int_equal(blocks_take(b, 10 * G, 9), at[0]);
    hdi_blocks_free(b, at[0], NULL, 0);
    size_t offset;
    hdi_points got;
    assert_ok(hdi_blocks_alloc(b, 20 * G, 2, &offset, &got));
    assert_int_equal(offset, at[2]);
    assert_true(got.count == 1 && hdi_points_data(&got)[0].position == 2);
    assert_status(hdi_blocks_alloc(b, 20 * G, 2, &offset, &got), HD_ERROR_NOT_FOUND);
    /* once that work is finished, pruning joins the blocks */
    finished_to[1] = 1;
    hdi_blocks_prune(b);
    blocks_check(b);
    assert_int_equal(blocks_take(b, 20 * G, 2), at[0]);
    blocks_give(b, at[0], 1, 2);
    blocks_give(b, at[2], 2, 3);
    assert_int_equal(blocks_info(b).free_blocks, 2);
    finished_to[1] = 2;
    finished_to[2] = 3;
    for (int i = 0; i < 3; i++) { /* a free also looks for finished work */
        hdi_blocks_free(b, blocks_take(b, 1, 0), NULL, 0);
        blocks_check(b);
    }
    assert_int_equal(blocks_info(b).free_blocks, 1);
    assert_int_equal(blocks_info(b).waiting_bytes, 0);
    hdi_blocks_destroy(b);
}

static void prefers_what_needs_no_wait(void **unused)
{
    (void)unused;
    hdi_blocks *b = blocks_make(1 << 20, 64 * G);
    size_t at[5], fence[5];
    for (int i = 0; i < 5; i++) {
        at[i] = blocks_take(b, 4 * G, 0);
        fence[i] = blocks_take(b, G, 0);
    }
    size_t rest = blocks_take(b, blocks_info(b).largest_free, 0);
    for (uint32_t i = 0; i < 4; i++) {
        blocks_give(b, at[i], i, 100 + i);
    }
    /* a lane gets its own block back */
    size_t offset;
    hdi_points got;
    assert_ok(hdi_blocks_alloc(b, 4 * G, 2, &offset, &got));
    assert_int_equal(offset, at[2]);
    assert_int_equal(got.count, 1);
    /* another lane gets the block whose work has finished */
    finished_to[1] = 101;
    assert_ok(hdi_blocks_alloc(b, 4 * G, 9, &offset, &got));
    assert_int_equal(offset, at[1]);
    assert_int_equal(got.count, 0);
    /* prefers a larger block without a wait to one of the right size with a wait */
    hdi_blocks_free(b, at[4], NULL, 0);
    hdi_blocks_free(b, fence[4], NULL, 0);
    assert_ok(hdi_blocks_alloc(b, 4 * G, 9, &offset, &got));
    assert_int_equal(offset, at[4]);
    assert_int_equal(got.count, 0);
    /* a block with a wait is better than none */
    assert_ok(hdi_blocks_alloc(b, 3 * G, 9, &offset, &got));
    assert_int_equal(got.count, 1);
    blocks_check(b);
    hdi_blocks_free(b, rest, NULL, 0);
    hdi_blocks_destroy(b);
}

/* Finds the one finished block among many of its size that another lane uses. */
static void finds_what_has_finished_among_many(void **unused)
{
    (void)unused;
    hdi_blocks *b = blocks_make(1 << 20, 200 * G);
    size_t at[100];
    for (int i = 0; i < 100; i++) {
        at[i] = blocks_take(b, G, 0);
        blocks_take(b, G, 0);
    }
    for (uint32_t i = 0; i < 100; i++) {
        blocks_give(b, at[i], 0, i + 1);
    }
    finished_to[0] = 1;
    size_t offset;
    hdi_points got;
    assert_ok(hdi_blocks_alloc(b, G, 1, &offset, &got));
    assert_int_equal(offset, at[0]);
    assert_int_equal(got.count, 0);
    hdi_blocks_destroy(b);
}

/* ---- a random run against a model ------------------------------------------------------------ */

static uint8_t owned[MODEL_UNITS];

static void owns(size_t offset, size_t size, bool now)
{
    for (size_t g = offset / G; g < (offset + size) / G; g++) {
        assert_int_equal(owned[g], !now);
        owned[g] = now;
    }
}

static void take_one(hdi_blocks *b)
{
    size_t bytes = 1 + (size_t)model_draw(model_draw(8) == 0 ? 200 * G : 12 * G);
    size_t offset, before = blocks_info(b).live_bytes;
    hdi_points got;
    hd_status status = hdi_blocks_alloc(b, bytes, (uint32_t)model_draw(MODEL_LANES), &offset, &got);
    if (status == HD_ERROR_NOT_FOUND) {
        assert_true(blocks_info(b).largest_free < bytes);
        if (blocks_info(b).managed_bytes < MODEL_UNITS * G && hdi_blocks_grow(b, 64 * G) == HD_OK) {
            blocks_check(b);
        }
        return;
    }
    if (status != HD_OK) {
        assert_status(status, HD_ERROR_HOST_MEMORY);
        assert_true(allocations_left == 0);
        return;
    }
    size_t size = blocks_info(b).live_bytes - before;
    assert_true(size >= bytes && size < bytes + G && offset % G == 0 && offset + size <= MODEL_UNITS * G);
    owns(offset, size, true);
    for (size_t i = 0; i < got.count; i++) { /* no point of finished work */
        assert_true(hdi_points_data(&got)[i].position > finished_to[hdi_points_data(&got)[i].lane]);
    }
    model_take(offset, size, hdi_points_data(&got), got.count);
    hdi_points_release(&got);
}

static void free_one(hdi_blocks *b)
{
    model_live l;
    if (model_pick(&l)) {
        owns(l.offset, l.bytes, false);
        model_give(&l);
        hdi_blocks_free(b, l.offset, l.points, l.n_points);
    }
}

static void run_model(uint64_t from_seed, int steps, bool starve)
{
    model_begin(from_seed);
    memset(owned, 0, sizeof owned);
    hdi_blocks *b = blocks_make(MODEL_UNITS * G, 64 * G);
    for (int step = 0; step < steps; step++) {
        if (starve && step % 50 == 0) {
            allocations_left = model_draw(2) == 0 ? -1 : (long)model_draw(4);
        }
        /* fills and empties alternately */
        unsigned share = step / 500 % 2 == 0 ? 60 : 40;
        if (model_draw(100) < share) {
            take_one(b);
        } else {
            free_one(b);
        }
        if (model_draw(5) == 0) {
            model_finish_some();
        }
        if (step % 7 == 0) {
            blocks_check(b);
        }
        size_t live_bytes = 0;
        for (size_t i = 0; step % 100 == 0 && i < model_n_lives; i++) {
            live_bytes += model_lives[i].bytes;
        }
        assert_true(step % 100 != 0 || live_bytes == blocks_info(b).live_bytes);
    }
    allocations_left = -1;
    while (model_n_lives > 0) {
        free_one(b);
    }
    model_finish_all();
    hdi_blocks_prune(b);
    blocks_check(b);
    hdi_blocks_info info = blocks_info(b);
    assert_int_equal(info.live_blocks, 0);
    if (info.retired_blocks == 0) {
        assert_int_equal(info.free_blocks, 1);
        assert_int_equal(info.largest_free, info.managed_bytes);
        assert_int_equal(info.pending_points, 0);
    }
    hdi_blocks_destroy(b);
}

static void agrees_with_the_model(void **unused)
{
    (void)unused;
    for (uint64_t s = 1; s <= 12; s++) {
        run_model(s, 6000, false);
    }
}

static void agrees_with_the_model_when_starved(void **unused)
{
    (void)unused;
    for (uint64_t s = 1; s <= 12; s++) {
        run_model(s + 100, 6000, true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_and_merges),
        cmocka_unit_test(grows_at_its_end),
        cmocka_unit_test(refuses_sizes_that_cannot_be),
        cmocka_unit_test(fits_exactly),
        cmocka_unit_test(takes_the_smallest_that_fits),
        cmocka_unit_test(hands_on_unfinished_uses),
        cmocka_unit_test(joins_what_waits_for_the_same_lanes),
        cmocka_unit_test(prefers_what_needs_no_wait),
        cmocka_unit_test(finds_what_has_finished_among_many),
        cmocka_unit_test(agrees_with_the_model),
        cmocka_unit_test(agrees_with_the_model_when_starved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
