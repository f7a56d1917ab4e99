/* test_gaps.c - the allocator over offsets with gaps in its memory: directed cases, and a random
 * run against a model. For each granule, the model stores whether memory is behind it, its owner,
 * and the lanes that may still use it.
 *
 * Promise: The allocator gives out only bytes with memory behind them, and each byte to one owner.
 * Threads: one. Locks: none.
 */
#include "blocks_model.h"

/* memory comes in units of 8 granules; the range is this many granules long */
enum { UNIT = 8, UNITS = 2048 };
#define U ((size_t)UNIT * G)

/* Makes a live block by filling the gaps of its place. */
static size_t stitch(hdi_blocks *b, size_t bytes, size_t lacks)
{
    const hdi_blocks_request request = {.bytes = bytes};
    hdi_run run;
    hdi_block *pledge = NULL;
    hdi_points points;
    assert_true(hdi_blocks_find_run(b, &request, U, NULL, &run));
    assert_int_equal(run.lacks, lacks);
    assert_ok(hdi_blocks_pledge_run(b, &run, &points, &pledge));
    blocks_check(b);
    hdi_blocks_finish(b, pledge, run.to, bytes);
    blocks_check(b);
    hdi_points_release(&points);
    return run.from;
}

static void fills_what_is_lacking(void **unused)
{
    (void)unused;
    hdi_blocks *b = blocks_make_gap(20 * U, 0);
    const hdi_blocks_request one = {.bytes = 1};
    hdi_blocks_taken taken;
    assert_status(hdi_blocks_take(b, &one, &taken), HD_ERROR_NOT_FOUND);
    assert_int_equal(taken.origin, HDI_ORIGIN_NONE);
    assert_int_equal(blocks_info(b).gap_bytes, 20 * U);

    /* the rest of the last unit is free */
    size_t a = stitch(b, 2 * U + 1, 3 * U);
    assert_int_equal(a, 0);
    assert_int_equal(blocks_info(b).free_bytes, U - G);
    assert_int_equal(blocks_info(b).gap_bytes, 17 * U);
    /* the next block starts with it */
    size_t c = stitch(b, 2 * U, 2 * U);
    assert_int_equal(c, 2 * U + G);
    assert_int_equal(stitch(b, U - G, 0), 4 * U + G);
    size_t e = stitch(b, 4 * U, 4 * U);

    /* a hole is filled only as far as needed: two free blocks around a live one, a gap behind */
    hdi_blocks_free(b, c, NULL, 0);
    hdi_blocks_free(b, e, NULL, 0);
    blocks_check(b);
    assert_int_equal(stitch(b, 6 * U, 2 * U), e);
    const hdi_blocks_request all = {.bytes = 21 * U};
    hdi_run run;
    assert_false(hdi_blocks_find_run(b, &all, U, NULL, &run));
    hdi_blocks_destroy(b);
}

static void gaps_and_free_blocks_stay_apart(void **unused)
{
    (void)unused;
    hdi_blocks *b = blocks_make_gap(20 * U, 0);
    assert_ok(hdi_blocks_fill(b, 4 * U, 2 * U, true, NULL, 0));
    assert_ok(hdi_blocks_fill(b, 6 * U, U, true, NULL, 0));
    blocks_check(b);
    hdi_blocks_info info = blocks_info(b);
    assert_int_equal(info.free_blocks, 1);
    assert_int_equal(info.largest_free, 3 * U);
    const hdi_blocks_request request = {.bytes = 2 * U, .alignment = U, .lane = 1};
    hdi_blocks_taken taken;
    assert_ok(hdi_blocks_take(b, &request, &taken));
    assert_int_equal(taken.origin, HDI_ORIGIN_FRESH);
    assert_int_equal(taken.offset, 4 * U);
    hdi_blocks_drop(b, taken.offset); /* between a gap and a free block */
    blocks_check(b);
    assert_int_equal(blocks_info(b).gap_bytes, 19 * U);
    hdi_run run;
    assert_true(hdi_blocks_find_gap(b, 13 * U, &run));
    assert_true(run.from == 7 * U && run.to == 20 * U);
    assert_true(hdi_blocks_find_gap(b, 14 * U, &run)); /* no gap is that long */
    assert_true(run.from == 7 * U && run.lacks == 13 * U);

    /* the filled memory comes with points */
    hdi_point points[] = {{2, 7}, {1, 3}};
    assert_ok(hdi_blocks_fill(b, 0, U, false, points, 2));
    hdi_blocks_taken other;
    const hdi_blocks_request no_wait = {.bytes = U, .lane = 1, .no_wait = true};
    assert_ok(hdi_blocks_take(b, &no_wait, &other));
    assert_int_equal(other.offset, 6 * U);
    assert_status(hdi_blocks_take(b, &no_wait, &other), HD_ERROR_NOT_FOUND);
    assert_int_equal(other.origin, HDI_ORIGIN_WAITED);
    finished_to[2] = 7;
    assert_ok(hdi_blocks_take(b, &no_wait, &other));
    assert_int_equal(other.origin, HDI_ORIGIN_SAME_LANE);
    assert_int_equal(other.inherited.count, 1);
    hdi_blocks_destroy(b);
}

static void walls_keep_free_blocks_apart(void **unused)
{
    (void)unused;
    hdi_blocks *b = blocks_make_gap(8 * U, U);
    size_t at[3 * UNIT];
    hdi_points points;
    for (size_t i = 0; i < 3; i++) {
        assert_ok(hdi_blocks_fill(b, (3 + i) * U, U, true, NULL, 0));
    }
    blocks_check(b);
    assert_int_equal(blocks_info(b).free_blocks, 3);
    assert_int_equal(hdi_blocks_whole(b), 3);
    for (int i = 0; i < 3 * UNIT; i++) {
        assert_ok(hdi_blocks_alloc(b, G, 0, &at[i], &points));
    }
    for (int i = 0; i < 3 * UNIT; i++) {
        hdi_point point = {(uint32_t)i % 2, 1};
        hdi_blocks_free(b, at[i], &point, 1);
        blocks_check(b);
    }
    assert_int_equal(hdi_blocks_whole(b), 0); /* two lanes alternate */
    hdi_blocks_join_whole(b);
    blocks_check(b);
    assert_int_equal(hdi_blocks_whole(b), 3);
    assert_int_equal(blocks_info(b).waiting_bytes, 3 * U);
    const hdi_blocks_request whole = {.bytes = U};
    hdi_blocks_taken taken;
    assert_ok(hdi_blocks_take(b, &whole, &taken));
    assert_int_equal(taken.inherited.count, 2);
    hdi_blocks_drop(b, taken.offset);
    blocks_check(b);
    assert_int_equal(hdi_blocks_whole(b), 2);
    hdi_blocks_destroy(b);
}

/* ---- the model ------------------------------------------------------------------------------- */

static uint8_t kinds[UNITS]; /* per granule, an hdi_block_kind */
static bool filled[UNITS];   /* true if memory is behind the granule; a pledge may be either */

/* The current pledge, if any. */
static struct {
    hdi_block *pledge;
    hdi_run run;
    size_t bytes;
    model_live owner; /* with its inherited points */
} window;
static hdi_block *leaving;

static void set_kinds(size_t from, size_t to, hdi_block_kind kind)
{
    memset(&kinds[from / G], (int)kind, (to - from) / G);
}

static bool agrees(void *context, size_t from, size_t to, hdi_block_kind kind)
{
    (void)context;
    for (size_t g = from / G; g < to / G; g++) {
        if (kinds[g] != kind || (kind != HDI_BLOCK_PLEDGED && filled[g] == (kind == HDI_BLOCK_GAP))) {
            return false;
        }
    }
    return true;
}

static void verify(hdi_blocks *b)
{
    blocks_check(b);
    assert_true(hdi_blocks_each(b, agrees, NULL));
}

/* Checks that the new owner's points cover those of the model, then makes the range live. */
static void become_live(size_t offset, size_t bytes, const hdi_point *told, size_t n_told)
{
    size_t end = offset + (bytes + G - 1) / G * G;
    for (size_t g = offset / G; g < end / G; g++) {
        filled[g] = true;
    }
    set_kinds(offset, end, HDI_BLOCK_LIVE);
    model_take(offset, bytes, told, n_told);
}

static size_t draw_bytes(void)
{
    return 1 + (size_t)model_draw(model_draw(6) == 0 ? 400 * G : 20 * G);
}

/* Counts the free granules in a row from `at` on. */
static size_t free_from(size_t at)
{
    size_t n = 0;
    while (at + n < UNITS && kinds[at + n] == HDI_BLOCK_FREE) {
        n++;
    }
    return n;
}

static void take_one(hdi_blocks *b)
{
    const hdi_blocks_request request = {.bytes = draw_bytes(),
                                        .alignment = model_draw(3) == 0 ? U : 0,
                                        .lane = (uint32_t)model_draw(MODEL_LANES),
                                        .no_wait = model_draw(2) == 0};
    hdi_blocks_taken taken;
    hd_status status = hdi_blocks_take(b, &request, &taken);
    if (status == HD_ERROR_HOST_MEMORY) {
        assert_int_equal(allocations_left, 0);
        return;
    }
    if (status == HD_ERROR_NOT_FOUND) {
        assert_true(taken.origin == HDI_ORIGIN_NONE || (taken.origin == HDI_ORIGIN_WAITED && request.no_wait));
        hdi_blocks_prune(b);
        /* after a prune and with waits allowed, the block must be found if it exists */
        hdi_blocks_taken again;
        hdi_blocks_request any = request;
        any.no_wait = false;
        bool one_lane = true;
        for (size_t g = 0; g < UNITS; g++) {
            for (uint32_t lane = 1; lane < MODEL_LANES; lane++) {
                one_lane &= kinds[g] != HDI_BLOCK_FREE || model_need[g][lane] <= finished_to[lane];
            }
        }
        for (size_t g = 0; one_lane && g < UNITS; g += request.alignment != 0 ? UNIT : 1) {
            if (free_from(g) * G >= request.bytes && hdi_blocks_take(b, &any, &again) == HD_OK) {
                set_kinds(again.offset, again.offset + (any.bytes + G - 1) / G * G, HDI_BLOCK_LIVE);
                hdi_blocks_free(b, again.offset, hdi_points_data(&again.inherited), again.inherited.count);
                set_kinds(again.offset, again.offset + (any.bytes + G - 1) / G * G, HDI_BLOCK_FREE);
                hdi_points_release(&again.inherited);
                break;
            }
        }
        return;
    }
    assert_ok(status);
    size_t end = taken.offset + (request.bytes + G - 1) / G * G;
    assert_true(request.alignment == 0 || taken.offset % U == 0);
    bool others = false;
    for (size_t i = 0; i < taken.inherited.count; i++) {
        others |= hdi_points_data(&taken.inherited)[i].lane != request.lane;
    }
    assert_true(others == (taken.origin == HDI_ORIGIN_WAITED) && !(others && request.no_wait));
    for (size_t g = taken.offset / G; g < end / G; g++) {
        assert_int_equal(kinds[g], HDI_BLOCK_FREE);
    }
    become_live(taken.offset, request.bytes, hdi_points_data(&taken.inherited), taken.inherited.count);
    hdi_points_release(&taken.inherited);
}

static void free_one(hdi_blocks *b)
{
    model_live l;
    if (!model_pick(&l)) {
        return;
    }
    size_t retired = blocks_info(b).retired_bytes;
    assert_true(hdi_blocks_free(b, l.offset, l.points, l.n_points));
    bool lost = blocks_info(b).retired_bytes != retired;
    set_kinds(l.offset, l.offset + l.bytes, lost ? HDI_BLOCK_RETIRED : HDI_BLOCK_FREE);
    model_give(&l);
}

/* Returns the fewest bytes that any place lacks, found by trying all; SIZE_MAX if no place fits. */
static size_t fewest(size_t units, size_t alignment)
{
    size_t best = SIZE_MAX;
    for (size_t from = 0; from + units <= UNITS; from++) {
        size_t lacks = 0, g = from;
        if (from % alignment != 0 || (kinds[from] == HDI_BLOCK_GAP && from % UNIT != 0)) {
            continue;
        }
        for (; g < from + units && (kinds[g] == HDI_BLOCK_FREE || kinds[g] == HDI_BLOCK_GAP); g++) {
            lacks += kinds[g] == HDI_BLOCK_GAP && (g == from || g % UNIT == 0) ? U : 0;
        }
        /* hdi_blocks_find_run does not return a place that is free as a whole, unless it consists
         * of several blocks */
        best = g == from + units && lacks < best ? lacks : best;
    }
    return best;
}

static void model_pledge(hdi_blocks *b)
{
    const hdi_blocks_request request = {.bytes = draw_bytes(),
                                        .alignment = model_draw(3) == 0 ? U : 0,
                                        .lane = (uint32_t)model_draw(MODEL_LANES),
                                        .no_wait = model_draw(3) == 0};
    hdi_blocks_request any = request;
    any.no_wait = false;
    hdi_blocks_taken taken;
    size_t units = (request.bytes + G - 1) / G;
    size_t least = fewest(units, request.alignment != 0 ? UNIT : 1);
    hdi_run run;
    bool found = hdi_blocks_find_run(b, &request, U, NULL, &run);
    if (!found && (least == SIZE_MAX || request.no_wait)) {
        return;
    }
    if (!found || (run.lacks != least && !request.no_wait)) {
        /* then one free block without a gap beside it holds the request */
        hd_status status = hdi_blocks_take(b, &any, &taken);
        assert_int_equal(least, 0);
        if (status != HD_OK) {
            assert_status(status, HD_ERROR_HOST_MEMORY);
            return;
        }
        become_live(taken.offset, request.bytes, hdi_points_data(&taken.inherited), taken.inherited.count);
        hdi_points_release(&taken.inherited);
        return;
    }
    assert_true(run.lacks >= least);
    assert_true(request.alignment == 0 || run.from % U == 0);
    assert_true(run.to - run.from >= units * G && run.to - run.from < units * G + U);
    hdi_points got;
    hd_status status = hdi_blocks_pledge_run(b, &run, &got, &window.pledge);
    if (status != HD_OK) {
        assert_status(status, HD_ERROR_HOST_MEMORY);
        assert_int_equal(allocations_left, 0);
        return;
    }
    for (size_t i = 0; i < got.count; i++) {
        assert_true(!request.no_wait || hdi_points_data(&got)[i].lane == request.lane);
        assert_true(i == 0 || hdi_points_data(&got)[i].lane > hdi_points_data(&got)[i - 1].lane);
    }
    for (size_t g = run.from / G; g < run.to / G; g++) {
        assert_true(kinds[g] == HDI_BLOCK_FREE || kinds[g] == HDI_BLOCK_GAP);
    }
    set_kinds(run.from, run.to, HDI_BLOCK_PLEDGED);
    window.run = run;
    window.bytes = request.bytes;
    window.owner.n_points = got.count;
    memcpy(window.owner.points, hdi_points_data(&got), got.count * sizeof(hdi_point));
    hdi_points_release(&got);
}

static void model_end_pledge(hdi_blocks *b)
{
    hdi_run run = window.run;
    size_t end = run.from + (window.bytes + G - 1) / G * G;
    if (model_draw(2) == 0) {
        hdi_blocks_finish(b, window.pledge, run.to, window.bytes);
        for (size_t g = end / G; g < run.to / G; g++) {
            filled[g] = true;
            memset(model_need[g], 0, sizeof model_need[g]);
        }
        set_kinds(end, run.to, HDI_BLOCK_FREE);
        become_live(run.from, window.bytes, window.owner.points, window.owner.n_points);
    } else {
        size_t to = run.from + model_draw((run.to - run.from) / G + 1) * G;
        to = to / U * U > run.from ? to / U * U : run.from;
        hdi_blocks_settle(b, window.pledge, run.to, to);
        for (size_t g = run.from / G; g < run.to / G; g++) {
            if (!filled[g] && g < to / G) {
                filled[g] = true;
                memset(model_need[g], 0, sizeof model_need[g]);
            }
            kinds[g] = filled[g] ? HDI_BLOCK_FREE : HDI_BLOCK_GAP;
        }
    }
    window.pledge = NULL;
}

/* Chooses whole units, or part of them. */
static hdi_choice choose(void *context, size_t *from, size_t *to)
{
    size_t *left = context;
    for (size_t g = *from / G; g < *to / G; g++) {
        for (uint32_t lane = 0; lane < MODEL_LANES; lane++) {
            assert_true(model_need[g][lane] <= finished_to[lane]);
        }
    }
    size_t first = (*from + U - 1) / U, last = *to / U;
    if (*left == 0) {
        return HDI_CHOICE_STOP;
    }
    if (first >= last || model_draw(3) == 0) {
        return HDI_CHOICE_SKIP;
    }
    first += (size_t)model_draw(last - first);
    last -= (size_t)model_draw(last - first);
    --*left;
    *from = first * U;
    *to = last * U;
    return HDI_CHOICE_TAKE;
}

static void model_pledge_finished(hdi_blocks *b)
{
    size_t left = 1 + (size_t)model_draw(6), from, to;
    hd_status status = hdi_blocks_pledge_finished(b, U, model_draw(2) == 0, choose, &left, &leaving);
    assert_true(status == HD_OK || allocations_left == 0);
    for (const hdi_block *k = leaving; k != NULL;) {
        k = hdi_blocks_pledged(k, &from, &to);
        assert_true(from % U == 0 && to % U == 0 && from < to);
        set_kinds(from, to, HDI_BLOCK_PLEDGED);
    }
    /* counted as free already, these blocks may lead to another place, which lacks no more */
    const hdi_blocks_request request = {.bytes = draw_bytes()};
    hdi_run run, with;
    if (leaving != NULL && hdi_blocks_find_run(b, &request, U, NULL, &run)) {
        assert_true(hdi_blocks_find_run(b, &request, U, leaving, &with));
        assert_true(with.lacks <= run.lacks && with.at == NULL);
    }
}

static void model_vacate(hdi_blocks *b)
{
    while (leaving != NULL) {
        size_t from, to;
        hdi_blocks_pledged(leaving, &from, &to);
        size_t gone = from + model_draw((to - from) / U + 1) * U;
        leaving = hdi_blocks_vacate(b, leaving, gone);
        for (size_t g = from / G; g < to / G; g++) {
            filled[g] = g >= gone / G;
            kinds[g] = filled[g] ? HDI_BLOCK_FREE : HDI_BLOCK_GAP;
        }
    }
}

static void step_once(hdi_blocks *b, bool fills)
{
    uint64_t what = model_draw(100);
    if (what < (fills ? 30 : 20)) {
        take_one(b);
    } else if (what < 60) {
        free_one(b);
    } else if (what < 80 && window.pledge == NULL) {
        model_pledge(b);
    } else if (what < 80) {
        model_end_pledge(b);
    } else if (what < 90 && leaving == NULL) {
        model_pledge_finished(b);
    } else if (what < 90) {
        model_vacate(b);
    } else {
        model_finish_some();
    }
}

static void run_model(uint64_t from_seed, int steps, bool starve)
{
    model_begin(from_seed);
    memset(kinds, HDI_BLOCK_GAP, sizeof kinds);
    memset(filled, 0, sizeof filled);
    hdi_blocks *b = blocks_make_gap((size_t)UNITS * G, 0);
    for (int step = 0; step < steps; step++) {
        if (starve && step % 40 == 0) {
            allocations_left = model_draw(2) == 0 ? -1 : (long)model_draw(3);
        }
        step_once(b, step / 400 % 2 == 0);
        verify(b);
    }
    allocations_left = -1;
    model_vacate(b);
    if (window.pledge != NULL) {
        model_end_pledge(b);
    }
    while (model_n_lives > 0) {
        free_one(b);
    }
    model_finish_all();
    hdi_blocks_prune(b);
    verify(b);
    hdi_blocks_info info = blocks_info(b);
    assert_int_equal(info.live_bytes + info.pledged_bytes + info.waiting_bytes + info.pending_points, 0);
    assert_int_equal(info.free_bytes + info.gap_bytes + info.retired_bytes, UNITS * G);
    assert_true(info.gap_bytes > 0 && (starve || info.retired_bytes == 0));
    hdi_blocks_destroy(b);
}

static void agrees_with_the_model(void **unused)
{
    (void)unused;
    for (uint64_t s = 1; s <= 10; s++) {
        run_model(s, 2500, false);
    }
}

static void agrees_with_the_model_when_starved(void **unused)
{
    (void)unused;
    for (uint64_t s = 1; s <= 10; s++) {
        run_model(s + 100, 2500, true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills_what_is_lacking),
        cmocka_unit_test(gaps_and_free_blocks_stay_apart),
        cmocka_unit_test(walls_keep_free_blocks_apart),
        cmocka_unit_test(agrees_with_the_model),
        cmocka_unit_test(agrees_with_the_model_when_starved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
