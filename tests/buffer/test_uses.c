/* test_uses.c - use records against a model with a record for every byte.
 *
 * Promise: Use records find exactly the dependencies of a model that tracks every byte.
 * Threads: one. Locks: none.
 */
#include "buffer/part.h"
#include "support/check.h"

#include <stdlib.h>
#include <string.h>
#include "buffer/uses.h"

#define BYTES 96
#define LANES 6

typedef struct byte_model {
    hdi_point writer;
    uint64_t reader[LANES]; /* position per lane, 0: none */
} byte_model;

/* A runtime with one device whose lanes are at positions that the test sets. */
static hd_runtime *fake_runtime(void)
{
    hdi_buffer_part *part = aligned_alloc(HDI_LINE, (sizeof *part + HDI_LINE - 1) / HDI_LINE * HDI_LINE);
    hd_runtime *rt = (hd_runtime *)part;
    hdi_device *device = aligned_alloc(HDI_LINE, (sizeof *device + HDI_LINE - 1) / HDI_LINE * HDI_LINE);
    assert_non_null(rt);
    assert_non_null(device);
    memset(part, 0, sizeof *part);
    *rt = (hd_runtime){.n_devices = 1};
    *device = (hdi_device){.runtime = rt};
    rt->devices[0] = device;
    assert_int_equal(hdi_channel_create(128, &device->channel), HD_OK);
    return rt;
}

static void free_runtime(hd_runtime *rt)
{
    hdi_parts_group_release(&hdi_buffer_of(rt)->parts[0]);
    hdi_channel_release(&rt->devices[0]->channel);
    free(rt->devices[0]);
    free(rt);
}

static bool is_unfinished(hd_runtime *rt, hdi_point point)
{
    return point.position && !hdi_point_done(rt, point);
}

static void check_byte(hd_runtime *rt, hdi_uses *u, const byte_model *model, uint64_t at)
{
    hdi_segment_place place;
    hdi_segment *s = hdi_uses_first(u, at, &place);
    assert_true(s->low <= at && at < s->high);
    if (s->writer.position) {
        assert_int_equal(s->writer.position, model[at].writer.position);
        assert_int_equal(s->writer.lane, model[at].writer.lane);
    } else { /* not written, or the writer has finished */
        assert_false(is_unfinished(rt, model[at].writer));
    }
    /* The segment lists every unfinished reader of the model with its latest position, and no other
     * one. The bytes of a wide reader may have been written since; then the writer waits for it. */
    uint64_t seen[LANES] = {0};
    for (uint32_t i = 0; i < s->n_readers; i++) {
        hdi_point point = hdi_segment_readers(s)[i];
        assert_int_equal(seen[point.lane], 0);
        seen[point.lane] = point.position;
        assert_true(point.position <= model[at].reader[point.lane]);
    }
    uint32_t n_wide;
    const hdi_wide_reader *wide = hdi_uses_wide(u, &n_wide);
    for (uint32_t i = 0; i < n_wide; i++) {
        uint64_t *position = &seen[wide[i].point.lane];
        bool here =
            wide[i].low <= at && at < wide[i].high && model[at].reader[wide[i].point.lane] >= wide[i].point.position;
        *position = here && wide[i].point.position > *position ? wide[i].point.position : *position;
    }
    for (uint32_t lane = 0; lane < LANES; lane++) {
        if (is_unfinished(rt, (hdi_point){lane, model[at].reader[lane]})) {
            assert_int_equal(seen[lane], model[at].reader[lane]);
        }
    }
}

/* Changes a record as a submission does. */
static void use(hd_runtime *rt, hdi_uses *u, uint64_t low, uint64_t high, bool write, hdi_point point)
{
    hdi_leaf *garbage = NULL;
    hdi_uses_settle(rt, u, low, high);
    hdi_uses_prune(rt, u, 0);
    assert_true(hdi_uses_prepare(rt, u, 0, low, high, write));
    hdi_uses_commit(u, low, high, write, point, &garbage);
    hdi_leaves_free(garbage);
}

static uint32_t count(const hdi_uses *u)
{
    return u->parts ? hdi_parts_overlapping(u->parts, 0, UINT64_MAX, UINT32_MAX) : 1;
}

/* `narrow`: most ranges cover only a few bytes, which makes many segments, and wide readers. */
static void follow_model(hd_runtime *rt, bool narrow)
{
    hdi_uses u;
    hdi_uses_init(&u, BYTES);
    byte_model model[BYTES];
    memset(model, 0, sizeof model);
    uint64_t position[LANES] = {0};
    for (uint32_t lane = 0; lane < LANES; lane++) {
        atomic_store(&rt->devices[0]->channel.lanes[lane].done, 0);
    }
    for (int step = 0; step < 300; step++) {
        uint64_t low = (uint64_t)rand() % BYTES;
        uint64_t high = low + 1 + (uint64_t)rand() % (narrow && rand() % 8 && BYTES - low > 3 ? 3 : BYTES - low);
        uint32_t lane = (uint32_t)rand() % LANES;
        bool write = rand() % 3 == 0 || (narrow && high - low < 3);
        if (rand() % (narrow ? 40 : 4) == 0) {
            low = 0;
            high = BYTES;
        }
        hdi_point point = {lane, ++position[lane]};
        use(rt, &u, low, high, write, point);
        for (uint64_t at = low; at < high; at++) {
            if (write) {
                memset(&model[at], 0, sizeof model[at]);
                model[at].writer = point;
            } else {
                model[at].reader[lane] = point.position;
            }
        }
        if (rand() % (narrow ? 20 : 5) == 0) {
            uint32_t ahead = (uint32_t)rand() % LANES;
            _Atomic uint64_t *done = &rt->devices[0]->channel.lanes[ahead].done;
            atomic_store(done, *done + (uint64_t)rand() % (position[ahead] - *done + 1));
        }
        assert_true(hdi_uses_check(&u, BYTES));
        for (uint64_t at = 0; at < BYTES; at++) {
            check_byte(rt, &u, model, at);
        }
    }
    hdi_uses_release(&u);
    assert_null(hdi_buffer_of(rt)->parts[0].ring);
}

static void records_say_what_a_model_of_bytes_says(void **state)
{
    (void)state;
    hd_runtime *rt = fake_runtime();
    srand(7);
    for (int round = 0; round < 60; round++) {
        follow_model(rt, round % 2);
    }
    free_runtime(rt);
}

static void pending_points_are_unfinished_and_once_per_lane(void **state)
{
    (void)state;
    hd_runtime *rt = fake_runtime();
    hdi_uses u;
    hdi_uses_init(&u, BYTES);
    use(rt, &u, 0, 32, true, (hdi_point){1, 5});
    use(rt, &u, 16, 64, false, (hdi_point){1, 9});
    use(rt, &u, 0, BYTES, false, (hdi_point){2, 3});
    hdi_point points[8];
    assert_int_equal(hdi_uses_pending(rt, &u, 0, BYTES, true, points, 8), 2);
    assert_int_equal(hdi_uses_pending(rt, &u, 0, BYTES, false, points, 8), 1);
    assert_int_equal(hdi_uses_pending(rt, &u, 64, BYTES, false, points, 8), 0);
    assert_int_equal(hdi_uses_pending(rt, &u, 64, BYTES, true, points, 8), 1);
    assert_int_equal(points[0].lane, 2);
    atomic_store(&rt->devices[0]->channel.lanes[2].done, 3);
    assert_int_equal(hdi_uses_pending(rt, &u, 0, BYTES, true, points, 8), 1);
    assert_int_equal(points[0].lane, 1);
    assert_int_equal(points[0].position, 9);
    atomic_store(&rt->devices[0]->channel.lanes[1].done, 9);
    assert_int_equal(hdi_uses_pending(rt, &u, 0, BYTES, true, points, 8), 0);
    hdi_uses_release(&u);
    free_runtime(rt);
}

/* Each part of a large transfer is a use of its own, and only the last few are unfinished. A failed
 * one is not dropped. */
static void a_record_has_as_many_parts_as_are_under_way(void **state)
{
    (void)state;
    hd_runtime *rt = fake_runtime();
    hdi_lane_shared *lane = &rt->devices[0]->channel.lanes[1];
    enum { parts = 5000, under_way = 20, failed = 100 };
    hdi_failure failure = {.from = failed, .to = failed, .position = failed, .lane = 1, .driver_code = 1};
    hdi_failure_add(&rt->devices[0]->channel, 1, &failure);
    for (int write = 0; write < 2; write++) {
        hdi_uses u;
        hdi_uses_init(&u, parts);
        atomic_store(&lane->done, 0);
        for (uint64_t i = 0; i < parts; i++) {
            use(rt, &u, i, i + 1, write, (hdi_point){1, i + 1});
            atomic_store(&lane->done, i < under_way ? 0 : i - under_way);
            assert_true(count(&u) <= 4 * HDI_LEAF_SEGMENTS + under_way);
        }
        assert_true(hdi_uses_check(&u, parts));
        hdi_point bad = hdi_uses_failed_writer(rt, &u, 0, parts);
        assert_int_equal(bad.position, write ? failed : 0);
        assert_int_equal(hdi_uses_failed_writer(rt, &u, 0, failed - 1).position, 0);
        assert_int_equal(hdi_uses_failed_writer(rt, &u, failed, parts).position, 0);
        hdi_uses_release(&u);
    }
    free_runtime(rt);
}

/* In any state of the record, one segment remains after a write of the whole buffer, or after a
 * read once everything is finished. */
static void a_use_of_the_whole_buffer_leaves_one_part(void **state)
{
    (void)state;
    hd_runtime *rt = fake_runtime();
    hdi_lane_shared *lane = &rt->devices[0]->channel.lanes[1];
    enum { parts = 600 };
    for (int write = 0; write < 2; write++) {
        hdi_uses u;
        hdi_uses_init(&u, parts);
        atomic_store(&lane->done, 0);
        for (uint64_t i = 0; i < parts; i++) {
            use(rt, &u, i, i + 1, true, (hdi_point){1, i + 1});
        }
        use(rt, &u, 0, parts, false, (hdi_point){2, 1});
        assert_int_equal(count(&u), parts);
        atomic_store(&lane->done, write ? 0 : parts);
        atomic_store(&rt->devices[0]->channel.lanes[2].done, write ? 0 : 1);
        use(rt, &u, 0, parts, write, (hdi_point){3, 1});
        assert_int_equal(count(&u), 1);
        assert_null(u.parts);
        atomic_store(&rt->devices[0]->channel.lanes[2].done, 0);
        hdi_uses_release(&u);
    }
    free_runtime(rt);
}

/* Many lanes have read a buffer at once, or used its memory before. Once they are finished, the
 * record is simple again. Otherwise each launch would take the careful path until the next
 * write. */
static void many_readers_that_have_finished_leave_no_trace(void **state)
{
    (void)state;
    hd_runtime *rt = fake_runtime();
    for (int inherited = 0; inherited < 2; inherited++) {
        hdi_uses u;
        hdi_uses_init(&u, BYTES);
        for (uint32_t lane = 0; lane < LANES; lane++) {
            atomic_store(&rt->devices[0]->channel.lanes[lane].done, 0);
            hdi_point point = {lane, 1};
            if (inherited) {
                assert_true(hdi_uses_inherit(rt, &u, point));
            } else {
                use(rt, &u, 0, BYTES, false, point);
            }
        }
        for (uint32_t lane = 0; lane < LANES; lane++) {
            assert_false(hdi_uses_only_in(&u, 1, 0));
            assert_int_equal(hdi_uses_state(rt, &u, 0, BYTES), HDI_USES_READ);
            atomic_store(&rt->devices[0]->channel.lanes[lane].done, 1);
            use(rt, &u, 0, BYTES, false, (hdi_point){1, 2}); /* and is the only one in the end */
            assert_true(hdi_uses_check(&u, BYTES));
        }
        assert_true(hdi_uses_only_in(&u, 1, 0));
        hdi_uses_release(&u);
    }
    free_runtime(rt);
}

/* Records of unused buffers shrink while others under the same lock are used. */
static void what_is_finished_goes_although_nobody_asks(void **state)
{
    (void)state;
    hd_runtime *rt = fake_runtime();
    enum { records = 8, parts = 400 };
    static hdi_uses u[records];
    uint64_t position = 0;
    for (int r = 0; r < records; r++) {
        hdi_uses_init(&u[r], parts);
        for (uint64_t i = 0; i < parts; i++) {
            use(rt, &u[r], i, i + 1, true, (hdi_point){1, ++position});
        }
        assert_int_equal(count(&u[r]), parts);
        atomic_store(&rt->devices[0]->channel.lanes[1].done, position);
    }
    for (uint64_t i = 0; i < records * parts; i++) {
        use(rt, &u[0], i % parts, i % parts + 1, false, (hdi_point){1, ++position});
        atomic_store(&rt->devices[0]->channel.lanes[1].done, position);
    }
    for (int r = 0; r < records; r++) {
        assert_true(count(&u[r]) <= 4);
        hdi_uses_release(&u[r]);
    }
    free_runtime(rt);
}

/* If only one lane used a buffer, a free checks the record alone, and no lane. */
static void a_record_of_one_lane_says_so(void **state)
{
    (void)state;
    hd_runtime *rt = fake_runtime();
    hdi_point last = {0, 0};
    hdi_uses u;
    hdi_uses_init(&u, BYTES);
    assert_true(hdi_uses_of_lane(&u, 2, &last));
    assert_int_equal(last.position, 0);
    use(rt, &u, 0, BYTES, true, (hdi_point){2, 3});
    use(rt, &u, 8, 16, false, (hdi_point){2, 9});
    use(rt, &u, 12, 40, true, (hdi_point){2, 5});
    assert_true(count(&u) > 1);
    assert_true(hdi_uses_of_lane(&u, 2, &last));
    assert_int_equal(last.lane, 2);
    assert_int_equal(last.position, 9);
    assert_false(hdi_uses_of_lane(&u, 3, &last));
    use(rt, &u, 64, 72, false, (hdi_point){4, 1});
    assert_false(hdi_uses_of_lane(&u, 2, &last));
    hdi_uses_renew(&u, BYTES, (hdi_point){2, 9});
    assert_true(hdi_uses_of_lane(&u, 2, &last));
    assert_int_equal(last.position, 9);
    use(rt, &u, 0, BYTES, true, (hdi_point){5, 1});
    assert_false(hdi_uses_of_lane(&u, 2, &last));
    hdi_uses_release(&u);
    free_runtime(rt);
}

/* Many reads by one lane make it a wide reader. */
static void a_wide_reader_counts_among_the_points(void **state)
{
    (void)state;
    hd_runtime *rt = fake_runtime();
    hdi_uses u;
    hdi_point last;
    hdi_uses_init(&u, BYTES);
    for (uint64_t i = 0; i < BYTES; i++) {
        use(rt, &u, i, i + 1, true, (hdi_point){1, i + 1});
    }
    use(rt, &u, 0, BYTES, false, (hdi_point){1, 200});
    uint32_t n_wide;
    hdi_uses_wide(&u, &n_wide);
    assert_int_equal(n_wide, 1);
    assert_true(hdi_uses_of_lane(&u, 1, &last));
    assert_int_equal(last.position, 200);
    use(rt, &u, 0, BYTES, false, (hdi_point){3, 1});
    assert_false(hdi_uses_of_lane(&u, 1, &last));
    hdi_uses_release(&u);
    free_runtime(rt);
}

/* Freed memory of parts is reused without its old content, and only a limited amount is kept. */
static void memory_of_parts_is_kept_for_the_next_record(void **state)
{
    (void)state;
    hd_runtime *rt = fake_runtime();
    enum { records = 20 };
    hdi_uses u[records];
    hdi_uses_init(&u[0], BYTES);
    use(rt, &u[0], 8, 16, true, (hdi_point){1, 1});
    const hdi_parts *parts = u[0].parts;
    hdi_uses_renew(&u[0], BYTES, (hdi_point){1, 1});
    assert_null(u[0].parts);
    assert_ptr_equal(hdi_buffer_of(rt)->parts[0].spare, parts);
    use(rt, &u[0], 32, 40, false, (hdi_point){2, 1});
    assert_ptr_equal(u[0].parts, parts);
    assert_true(hdi_uses_check(&u[0], BYTES));
    assert_int_equal(count(&u[0]), 3);
    hdi_uses_release(&u[0]);
    for (int i = 0; i < records; i++) {
        hdi_uses_init(&u[i], BYTES);
        use(rt, &u[i], 8, 16, true, (hdi_point){1, 1});
    }
    for (int i = 0; i < records; i++) {
        hdi_uses_release(&u[i]);
    }
    assert_null(hdi_buffer_of(rt)->parts[0].ring);
    assert_true(hdi_buffer_of(rt)->parts[0].n_spare > 0 && hdi_buffer_of(rt)->parts[0].n_spare < records);
    free_runtime(rt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_has_as_many_parts_as_are_under_way),
        cmocka_unit_test(records_say_what_a_model_of_bytes_says),
        cmocka_unit_test(pending_points_are_unfinished_and_once_per_lane),
        cmocka_unit_test(a_use_of_the_whole_buffer_leaves_one_part),
        cmocka_unit_test(many_readers_that_have_finished_leave_no_trace),
        cmocka_unit_test(what_is_finished_goes_although_nobody_asks),
        cmocka_unit_test(a_record_of_one_lane_says_so),
        cmocka_unit_test(a_wide_reader_counts_among_the_points),
        cmocka_unit_test(memory_of_parts_is_kept_for_the_next_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
