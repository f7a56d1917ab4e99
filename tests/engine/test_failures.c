/* test_failures.c - failures of a lane are found by position, in any number, and never merge across
 * an operation that succeeded. This holds in the log, in the archive, and while failures move
 * between them.
 *
 * Promise: Failures of a lane are found by position, in any number, and cover no success.
 * Threads: two in one case, else one.
 */
#include "support/check.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "engine/archive.h"
#include "engine/engine.h"

enum { SLOTS = 64, LANES = 2 };

static hdi_failure failure(uint64_t from, uint64_t to, int code)
{
    return (hdi_failure){.from = from, .to = to, .position = to, .driver_code = code, .op = HDI_OP_LAUNCH};
}

/* One device with two lanes whose positions the test sets. */
typedef struct fixture {
    hd_runtime runtime;
    hdi_device device;
    hd_lane lanes[LANES];
} fixture;

static int set_up(void **state)
{
    fixture *f = aligned_alloc(_Alignof(fixture), sizeof *f);
    assert_non_null(f);
    memset(f, 0, sizeof *f);
    f->runtime.n_devices = 1;
    f->runtime.devices[0] = &f->device;
    hdi_lock_init(&f->device.order, HDI_RANKED(HDI_RANK_ORDER, 0));
    f->device.runtime = &f->runtime;
    assert_int_equal(hdi_channel_create(SLOTS, &f->device.channel), HD_OK);
    for (uint32_t i = 0; i < LANES; i++) {
        f->lanes[i] = (hd_lane){
            .number = i,
            .global = i,
            .device = &f->device,
            .shared = &f->device.channel.lanes[i],
            .archive = hdi_archive_make(),
        };
        assert_non_null(f->lanes[i].archive);
        f->device.lanes[i] = &f->lanes[i];
    }
    atomic_store(&f->device.lanes_made, LANES);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < LANES; i++) {
        hdi_archive_free(f->lanes[i].archive);
    }
    hdi_channel_release(&f->device.channel);
    free(f);
    return 0;
}

static int code_at(fixture *f, uint64_t position)
{
    hdi_failure found;
    return hdi_failure_find(&f->runtime, 0, position, &found) ? found.driver_code : 0;
}

static void add(fixture *f, uint64_t from, uint64_t to, int code)
{
    hdi_failure one = failure(from, to, code);
    hdi_failure_add(&f->device.channel, 0, &one);
}

static void reach(fixture *f, uint32_t lane, uint64_t head, uint64_t done)
{
    f->lanes[lane].head = head;
    atomic_store(&f->lanes[lane].submitted, head);
    atomic_store(&f->lanes[lane].shared->head, head);
    atomic_store(&f->lanes[lane].shared->done, done);
}

static void a_position_finds_its_failure(void **state)
{
    fixture *f = *state;
    assert_int_equal(code_at(f, 1), 0);
    add(f, 5, 6, 700);
    add(f, 10, 10, 2);
    const int expected[] = {0, 0, 0, 0, 0, 700, 700, 0, 0, 0, 2, 0};
    for (uint64_t position = 0; position < sizeof expected / sizeof expected[0]; position++) {
        assert_int_equal(code_at(f, position), expected[position]);
    }
    uint64_t end = 0;
    assert_true(hdi_failure_end(&f->lanes[0], &end));
    assert_int_equal(end, 10);
}

/* A failure inherited from another lane may be noticed after later failures, which keep their own
 * cause. */
static void a_late_failure_covers_what_has_none(void **state)
{
    fixture *f = *state;
    add(f, 10, 10, 1);
    add(f, 14, 16, 2);
    add(f, 8, 20, 3);
    const int expected[] = {0, 3, 3, 1, 3, 3, 3, 2, 2, 2, 3, 3, 3, 3, 0};
    for (uint64_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        assert_int_equal(code_at(f, 7 + i), expected[i]);
    }
    add(f, 9, 15, 4); /* every position has a cause already */
    assert_int_equal(code_at(f, 9), 3);
    assert_int_equal(code_at(f, 15), 2);
    add(f, 1, 9, 5);
    assert_int_equal(code_at(f, 7), 5);
    assert_int_equal(code_at(f, 8), 3);
}

static void what_follows_at_once_becomes_part_of_a_record(void **state)
{
    fixture *f = *state;
    hdi_failure one = failure(3, 3, 7);
    for (uint64_t i = 0; i < 1000; i++) {
        one.from = one.to = 3 + i;
        hdi_failure_add(&f->device.channel, 0, &one);
    }
    assert_int_equal(atomic_load(&f->lanes[0].shared->failures_end), 1);
    assert_int_equal(code_at(f, 2), 0);
    assert_int_equal(code_at(f, 1002), 7);
    assert_int_equal(code_at(f, 1003), 0);
}

static void a_record_without_end_is_closed(void **state)
{
    fixture *f = *state;
    const hdi_channel *channel = &f->device.channel;
    hdi_failure_close(channel, 0, 5); /* no record is open */
    add(f, 3, UINT64_MAX, 1);
    assert_int_equal(code_at(f, UINT64_MAX), 1);
    hdi_failure_close(channel, 0, 7);
    assert_int_equal(code_at(f, 3), 1);
    assert_int_equal(code_at(f, 7), 1);
    assert_int_equal(code_at(f, 8), 0);
    assert_int_equal(code_at(f, UINT64_MAX), 0);
    hdi_failure_close(channel, 0, 9); /* the record is closed already */
    assert_int_equal(code_at(f, 9), 0);
    /* nothing was unfinished: the record covers nothing, and no later operation */
    add(f, 20, UINT64_MAX, 2);
    hdi_failure_close(channel, 0, 19);
    assert_int_equal(code_at(f, 19), 0);
    assert_int_equal(code_at(f, 20), 0);
}

/* Every third operation fails, and far more fail than the log holds. */
static void no_failure_is_lost_and_none_is_made_up(void **state)
{
    fixture *f = *state;
    enum { FAILURES = 3 * HDI_FAILURES_LEAST };
    for (uint64_t i = 1; i <= FAILURES; i++) {
        reach(f, 0, 3 * i, 3 * i);
        add(f, 3 * i, 3 * i, (int)(i % 1000) + 1);
        if (!hdi_failures_have_room(&f->lanes[0])) {
            uint32_t lane;
            uint64_t position;
            assert_int_equal(hdi_failures_archive(&f->lanes[0], &lane, &position), HDI_ARCHIVED);
            assert_true(hdi_failures_have_room(&f->lanes[0]));
        }
    }
    for (uint64_t i = 1; i <= FAILURES; i++) {
        assert_int_equal(code_at(f, 3 * i), (int)(i % 1000) + 1);
        assert_int_equal(code_at(f, 3 * i - 1), 0);
        assert_int_equal(code_at(f, 3 * i + 1), 0);
    }
    uint64_t end = 0;
    assert_true(hdi_failure_end(&f->lanes[0], &end));
    assert_int_equal(end, 3 * FAILURES);
}

/* Moves all failures to the archive. */
static void archive(fixture *f, uint64_t to)
{
    uint32_t lane;
    uint64_t position;
    reach(f, 0, to, to);
    assert_int_equal(hdi_failures_archive(&f->lanes[0], &lane, &position), HDI_ARCHIVED);
}

static void what_fails_for_ever_takes_one_entry(void **state)
{
    fixture *f = *state;
    enum { FAILURES = 100000, DISTANCE = 5 };
    for (uint64_t i = 1; i <= FAILURES; i++) {
        add(f, DISTANCE * i, DISTANCE * i + 1, 7);
        if (!hdi_failures_have_room(&f->lanes[0]) || i == FAILURES) {
            archive(f, DISTANCE * i + 1);
        }
    }
    assert_int_equal(hdi_archive_entries(f->lanes[0].archive), 1);
    for (uint64_t i = 1; i <= FAILURES; i++) {
        hdi_failure found;
        for (uint64_t k = 0; k < DISTANCE; k++) {
            bool failed = hdi_failure_find(&f->runtime, 0, DISTANCE * i + k, &found);
            assert_int_equal(failed, k < 2);
            assert_true(!failed || (found.position == DISTANCE * i + 1 && found.from == DISTANCE * i));
        }
    }
}

/* Claims that fail one after the other have a wait between them or none, without a rhythm. */
static void claims_that_fail_for_ever_take_one_entry(void **state)
{
    fixture *f = *state;
    enum { FAILURES = 100000, EACH = 25000 };
    static uint64_t ends[FAILURES];
    unsigned seed = 3;
    uint64_t end = 0;
    for (int i = 0; i < FAILURES; i++) {
        /* now and then one succeeds in between */
        end += 2 + (uint64_t)rand_r(&seed) % 2 + (i % EACH == EACH - 1 ? 2 : 0);
        ends[i] = end;
        const hdi_failure one = {.from = end, .to = end, .position = end, .kernel = 1, .op = HDI_OP_CLAIM};
        hdi_failure_add(&f->device.channel, 0, &one);
        if (!hdi_failures_have_room(&f->lanes[0]) || i == FAILURES - 1) {
            archive(f, end);
        }
    }
    assert_true(hdi_archive_entries(f->lanes[0].archive) <= 2 * (FAILURES / EACH + 1));
    for (int i = 0; i < FAILURES; i++) {
        hdi_failure found;
        assert_true(hdi_failure_find(&f->runtime, 0, ends[i], &found));
        assert_true(found.position == ends[i] && found.op == HDI_OP_CLAIM && found.kernel == 1 && !found.inherited);
        if (i % EACH == EACH - 1) {
            assert_false(hdi_failure_find(&f->runtime, 0, ends[i - 1] + 2, &found));
        }
    }
    hdi_failure found;
    assert_false(hdi_failure_find(&f->runtime, 0, end + 1, &found));
}

/* Compares with a list of all records. Lengths, distances, causes and culprits change now and then,
 * independently. */
static void an_entry_gives_exactly_what_went_in(void **state)
{
    fixture *f = *state;
    enum { FAILURES = 20000 };
    static hdi_failure all[FAILURES];
    uint64_t next = 1, length = 1, distance = 1;
    unsigned seed = 5;
    hdi_failure one = {.op = HDI_OP_COPY};
    for (int i = 0; i < FAILURES; i++) {
        switch (rand_r(&seed) % 32) {
        case 0:
            length = 1 + (uint64_t)rand_r(&seed) % 3;
            break;
        case 1:
            distance = (uint64_t)rand_r(&seed) % 4;
            break;
        case 2:
            one.driver_code = rand_r(&seed) % 2;
            break;
        case 3:
            one.inherited ^= 1;
            break;
        case 4:
            one.position = (uint64_t)rand_r(&seed) << 20;
            break;
        case 5:
            one.kernel = (uint32_t)rand_r(&seed) % 2;
            break;
        }
        one.from = next;
        one.to = next + length - 1;
        one.position = one.inherited ? one.position : one.to;
        all[i] = one;
        hdi_failure_add(&f->device.channel, 0, &one);
        next = one.to + 1 + distance;
        if (i % 512 == 0 || i == FAILURES - 1) {
            archive(f, next);
        }
    }
    assert_true(hdi_archive_entries(f->lanes[0].archive) < FAILURES / 4);
    uint64_t position = 1;
    for (int i = 0; i < FAILURES; i++) {
        hdi_failure found;
        for (; position < all[i].from; position++) {
            assert_false(hdi_failure_find(&f->runtime, 0, position, &found));
        }
        for (; position <= all[i].to; position++) {
            assert_true(hdi_failure_find(&f->runtime, 0, position, &found));
            /* the log already joins neighbours with the same cause */
            assert_true(found.from <= all[i].from && found.to >= all[i].to);
            assert_true(found.position == all[i].position && found.driver_code == all[i].driver_code &&
                        found.kernel == all[i].kernel && found.inherited == all[i].inherited &&
                        found.op == HDI_OP_COPY);
        }
    }
}

/* Claims in a lane, of which some fail at random, as cancelled requests do. */
static void failures_between_successes_take_few_bytes(void **state)
{
    fixture *f = *state;
    enum { FAILURES = 200000, ONE_IN = 50, BYTES_EACH = 2 };
    static uint64_t ends[FAILURES];
    unsigned seed = 7;
    uint64_t end = 0;
    for (int i = 0; i < FAILURES; i++) {
        do { /* with a wait in front of some */
            end += 2 + (uint64_t)rand_r(&seed) % 2;
        } while (rand_r(&seed) % ONE_IN != 0);
        ends[i] = end;
        /* some are cancelled, and some fail */
        const hdi_failure one = {
            .from = end, .to = end, .position = end, .kernel = 1 + (uint32_t)i / 100 % 2, .op = HDI_OP_CLAIM};
        hdi_failure_add(&f->device.channel, 0, &one);
        if (!hdi_failures_have_room(&f->lanes[0]) || i == FAILURES - 1) {
            archive(f, end);
        }
    }
    int64_t more;
    size_t bytes = hdi_archive_bytes(f->lanes[0].archive, &more);
    print_message("%.2f bytes for each failure\n", (double)bytes / FAILURES);
    assert_true(bytes <= (size_t)BYTES_EACH * FAILURES);
    for (int i = 0; i < FAILURES; i++) {
        hdi_failure found;
        assert_true(hdi_failure_find(&f->runtime, 0, ends[i], &found));
        assert_true(found.from == ends[i] && found.to == ends[i] && found.position == ends[i]);
        assert_true(found.kernel == 1 + (uint32_t)i / 100 % 2 && found.op == HDI_OP_CLAIM && !found.inherited);
        if (i > 0 && ends[i] - ends[i - 1] > 3) { /* claims of a run have no ticket in between */
            assert_false(hdi_failure_find(&f->runtime, 0, ends[i - 1] + 2, &found));
            assert_false(hdi_failure_find(&f->runtime, 0, ends[i] - 2, &found));
        }
    }
}

/* Failures of every kind, in turns with and without a rhythm. Now and then looks for old positions
 * and new ones. Compares with a table of all positions. */
static void every_answer_is_that_of_a_model(void **state)
{
    fixture *f = *state;
    enum { POSITIONS = 300000, LOOKS = 64 };
    static hdi_failure model[POSITIONS]; /* `to` is 0 if the position succeeded */
    memset(model, 0, sizeof model);
    unsigned seed = 11;
    hdi_failure one = {.op = HDI_OP_COPY};
    uint64_t next = 1, most_distance = 1, kinds = 1;
    bool rhythm = false;
    for (int i = 1; next + 300 < POSITIONS; i++) {
        if (rand_r(&seed) % 64 == 0) {
            rhythm = rand_r(&seed) % 3 == 0;
            most_distance = 1 + (uint64_t)(rand_r(&seed) % 2 ? rand_r(&seed) % 4 : rand_r(&seed) % 200);
            kinds = 1 + (uint64_t)rand_r(&seed) % 600;
        }
        one.from = next + (rhythm ? most_distance : 1 + (uint64_t)rand_r(&seed) % most_distance);
        one.to = one.from + (rhythm || rand_r(&seed) % 8 ? 0 : (uint64_t)rand_r(&seed) % 5);
        one.driver_code = rhythm ? 7 : (int32_t)((uint64_t)rand_r(&seed) % kinds);
        one.lane = rhythm ? 0 : (uint32_t)rand_r(&seed) % 2;
        one.inherited = one.lane == 1;
        one.lost = !rhythm && rand_r(&seed) % 16 == 0;
        one.position = one.inherited ? (uint64_t)rand_r(&seed) << (rand_r(&seed) % 34) : one.from;
        next = one.to;
        hdi_failure_add(&f->device.channel, 0, &one);
        for (uint64_t p = one.from; p <= one.to; p++) {
            model[p] = one;
        }
        if (i % 1024 == 0) {
            archive(f, next);
        }
        for (int k = 0; k < (i % 1000 == 0 ? 8 * LOOKS : 1); k++) {
            uint64_t back = rand_r(&seed) % 2 ? (uint64_t)rand_r(&seed) % LOOKS : (uint64_t)rand_r(&seed);
            uint64_t p = next - back % next;
            hdi_failure found;
            bool failed = hdi_failure_find(&f->runtime, 0, p, &found);
            assert_int_equal(failed, model[p].to != 0);
            assert_true(!failed || (found.from <= p && found.to >= p && found.position == model[p].position &&
                                    found.driver_code == model[p].driver_code && found.lane == model[p].lane &&
                                    found.inherited == model[p].inherited && found.lost == model[p].lost));
        }
    }
}

/* The archives of other lanes take all the memory. A lane keeps its latest failures, and forgets
 * the oldest. */
static void memory_is_bounded(void **state)
{
    fixture *f = *state;
    enum { FAILURES = 600000, NEAR = 40 };
    atomic_store(&f->runtime.archives_bytes, HDI_ARCHIVES_BYTES);
    static uint64_t ends[FAILURES];
    unsigned seed = 13;
    uint64_t end = 0, forgotten = 0, forgettings = 0, most = 0;
    for (int i = 0; i < FAILURES; i++) {
        end += 1 + (uint64_t)rand_r(&seed) % 100;
        ends[i] = end;
        add(f, end, end, 1 + i % 3);
        if (hdi_failures_have_room(&f->lanes[0])) {
            continue;
        }
        archive(f, end);
        uint64_t to = hdi_failures_to_forget(&f->lanes[0]);
        assert_true(to == 0 || i < (int)HDI_ARCHIVE_LEAST || to < ends[i - (int)HDI_ARCHIVE_LEAST]);
        if (to) {
            hdi_failures_forget(&f->lanes[0], to);
            forgotten = to;
            forgettings++;
        }
        uint64_t bytes = (uint64_t)atomic_load(&f->runtime.archives_bytes) - HDI_ARCHIVES_BYTES;
        most = bytes > most ? bytes : most;
        for (uint64_t p = end; p > end - NEAR; p--) { /* what is new is exact */
            hdi_failure found;
            assert_true(!hdi_failure_find(&f->runtime, 0, p, &found) || found.driver_code < 4);
        }
    }
    assert_true(forgettings > 2 && most < 8 * HDI_ARCHIVE_LEAST);
    for (int i = 0; i < FAILURES; i++) {
        assert_int_equal(code_at(f, ends[i]), ends[i] <= forgotten ? HDI_FAILURE_FORGOTTEN : 1 + i % 3);
        bool gap = i > 0 && ends[i] - ends[i - 1] > 1;
        assert_true(!gap || code_at(f, ends[i] - 1) == (ends[i] - 1 <= forgotten ? HDI_FAILURE_FORGOTTEN : 0));
    }
}

/* An engine that has not reached a wait may still look up the failure there. */
static void the_log_keeps_what_somebody_may_look_for(void **state)
{
    fixture *f = *state;
    uint32_t lane = 0;
    uint64_t position = 0;
    hdi_failure found;
    reach(f, 0, 10, 10);
    reach(f, 1, 8, 5);
    add(f, 4, 4, 1);
    assert_int_equal(hdi_failures_archive(&f->lanes[0], &lane, &position), HDI_ARCHIVED_BEHIND);
    assert_int_equal(lane, 1);
    assert_int_equal(position, 8);
    assert_int_equal(hdi_failure_logged(&f->device.channel, 0, 4, &found), HDI_LOGGED_YES);
    /* Later failures and submissions do not change that. */
    reach(f, 0, 20, 20);
    add(f, 15, 15, 2);
    reach(f, 1, 30, 8);
    assert_int_equal(hdi_failures_archive(&f->lanes[0], &lane, &position), HDI_ARCHIVED);
    assert_int_equal(hdi_failure_logged(&f->device.channel, 0, 4, &found), HDI_LOGGED_NO);
    assert_int_equal(hdi_failure_logged(&f->device.channel, 0, 15, &found), HDI_LOGGED_YES);
    assert_int_equal(code_at(f, 4), 1);
    assert_int_equal(code_at(f, 15), 2);
    /* The failure of a lost lane is open until the lane comes back. */
    add(f, 21, UINT64_MAX, 3);
    reach(f, 1, 30, 30);
    assert_int_equal(hdi_failures_archive(&f->lanes[0], &lane, &position), HDI_ARCHIVED);
    assert_int_equal(hdi_failure_logged(&f->device.channel, 0, 21, &found), HDI_LOGGED_YES);
    assert_int_equal(code_at(f, 15), 2);
}

enum { WRITES = 20000 };

static void *write_and_archive(void *argument)
{
    fixture *f = argument;
    for (uint64_t i = 1; i <= WRITES; i++) {
        add(f, 2 * i, 2 * i, (int)i);
        reach(f, 0, 2 * i, 2 * i);
        if (i % 100 == 0) {
            uint32_t lane;
            uint64_t position;
            hdi_failures_archive(&f->lanes[0], &lane, &position);
        }
    }
    return NULL;
}

static void a_reader_never_misses_a_record_or_sees_half_of_one(void **state)
{
    fixture *f = *state;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, write_and_archive, f), 0);
    unsigned seed = 1;
    for (uint64_t done = 0; done < (uint64_t)2 * WRITES;) {
        done = atomic_load(&f->lanes[0].shared->done);
        if (done) {
            uint64_t back = (uint64_t)rand_r(&seed) % 400;
            uint64_t position = done > back ? done - back : done;
            assert_int_equal(code_at(f, position), position % 2 ? 0 : position / 2);
        }
    }
    pthread_join(thread, NULL);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_position_finds_its_failure),
        CASE(a_late_failure_covers_what_has_none),
        CASE(what_follows_at_once_becomes_part_of_a_record),
        CASE(a_record_without_end_is_closed),
        CASE(no_failure_is_lost_and_none_is_made_up),
        CASE(what_fails_for_ever_takes_one_entry),
        CASE(claims_that_fail_for_ever_take_one_entry),
        CASE(an_entry_gives_exactly_what_went_in),
        CASE(failures_between_successes_take_few_bytes),
        CASE(every_answer_is_that_of_a_model),
        CASE(memory_is_bounded),
        CASE(the_log_keeps_what_somebody_may_look_for),
        CASE(a_reader_never_misses_a_record_or_sees_half_of_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
