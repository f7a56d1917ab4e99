/* test_host_pool_storm.c - a random run of many threads with blocks of pinned memory, against a
 * model.
 *
 * Promise: Under many threads every pinned page has one owner, and the limit holds.
 * Tier: stress.
 *
 * Threads: those that take and give, and the main one, which reads the figures meanwhile. Locks:
 * none.
 * Always: every page has one owner, which got the points of the work that still uses it. Pinned
 * bytes never exceed the limit.
 */
#include "host_pool_tools.h"

#include <pthread.h>
#include "support/sanitizers.h"

enum { THREADS = 16, SLOTS = 24, STEPS = TEST_TSAN ? 300 : 1500 };

typedef struct storm {
    hdi_host_pool *pool;
    unsigned number;
    _Atomic uint64_t *submitted; /* per lane */
    pthread_barrier_t *halfway;
    int errors;
    unsigned long got, refused;
} storm;

/* Each page of a block stores its owner and, if it was freed in use, the lane and position of that
 * use. */
typedef struct stamp {
    _Atomic uint64_t owner; /* 0: none */
    _Atomic uint32_t lane;
    _Atomic uint64_t position; /* 0: not used */
} stamp;

static uint64_t next_number(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* True if the new owner got the point of the work that still uses its page. */
static bool is_told(const stamp *s, const hdi_points *inherited)
{
    hdi_point use = {atomic_load(&s->lane), atomic_load(&s->position)};
    if (use.position == 0 || atomic_load(&done_to[use.lane]) >= use.position) {
        return true;
    }
    for (size_t i = 0; i < inherited->count; i++) {
        const hdi_point *m = &hdi_points_data(inherited)[i];
        if (m->lane == use.lane && m->position >= use.position) {
            return true;
        }
    }
    return false;
}

/* Gives a block back; at position 0 it is not in use. */
static void storm_give(storm *st, hdi_host_block *block, uint64_t me, uint32_t lane, uint64_t position)
{
    for (size_t at = 0; at < block->bytes; at += page) {
        stamp *s = (stamp *)(void *)(block->host + at);
        st->errors += atomic_load(&s->owner) != me;
        atomic_store(&s->lane, lane);
        atomic_store(&s->position, position);
        atomic_store(&s->owner, 0);
    }
    hdi_host_pool_give(st->pool, block, &(hdi_point){lane, position}, position != 0);
}

static uint64_t name_of(const storm *st, size_t slot)
{
    return (uint64_t)st->number << 32 | slot << 1 | 1;
}

static void *storm_thread(void *argument)
{
    storm *st = argument;
    uint64_t random = st->number * 1000003;
    hdi_host_block slots[SLOTS] = {{0}};
    for (int step = 0; step < STEPS; step++) {
        if (step == STEPS / 2) { /* so that all threads hold blocks at once, in any schedule */
            pthread_barrier_wait(st->halfway);
        }
        hdi_host_block *slot = &slots[next_number(&random) % SLOTS];
        uint64_t me = name_of(st, (size_t)(slot - slots));
        if (slot->space != NULL) {
            uint32_t lane = (uint32_t)(next_number(&random) % LANES);
            bool used = next_number(&random) % 3 == 0;
            storm_give(st, slot, me, lane, used ? atomic_fetch_add(&st->submitted[lane], 1) + 1 : 0);
        } else {
            size_t bytes = 1 + next_number(&random) % (next_number(&random) % 4 == 0 ? 3 * MIB : 256 << 10);
            hdi_points inherited;
            if (hdi_host_pool_take(st->pool, bytes, next_number(&random) % 8 == 0, slot, &inherited) != HD_OK) {
                st->refused++;
                continue;
            }
            st->got++;
            for (size_t at = 0; at < bytes; at += page) {
                stamp *s = (stamp *)(void *)(slot->host + at);
                uint64_t nobody = 0;
                st->errors += !is_told(s, &inherited);
                st->errors += !atomic_compare_exchange_strong(&s->owner, &nobody, me);
            }
            hdi_points_release(&inherited);
        }
        if (next_number(&random) % 16 == 0) { /* some lane finishes more work */
            uint32_t lane = (uint32_t)(next_number(&random) % LANES);
            uint64_t head = atomic_load(&st->submitted[lane]), done = atomic_load(&done_to[lane]);
            while (done < head && !atomic_compare_exchange_weak(&done_to[lane], &done, head)) {
            }
        }
        if (next_number(&random) % 200 == 0) {
            st->errors += hdi_host_pool_trim(st->pool, 4 * MIB, NULL) != HD_OK;
        }
    }
    for (size_t i = 0; i < SLOTS; i++) {
        if (slots[i].space != NULL) {
            storm_give(st, &slots[i], name_of(st, i), 0, 0);
        }
    }
    return NULL;
}

static void no_byte_above_the_limit_in_a_storm(void **unused)
{
    (void)unused;
    const uint64_t limit = 48 * MIB;
    hdi_host_pool *pool = make(limit);
    static _Atomic uint64_t submitted[LANES];
    storm storms[THREADS];
    pthread_t threads[THREADS];
    pthread_barrier_t halfway;
    pthread_barrier_init(&halfway, NULL, THREADS);
    atomic_store(&device.slow, true);
    for (int i = 0; i < LANES; i++) {
        atomic_store(&submitted[i], 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        storms[i] = (storm){.pool = pool, .number = i + 1, .submitted = submitted, .halfway = &halfway};
        assert_int_equal(pthread_create(&threads[i], NULL, storm_thread, &storms[i]), 0);
    }
    unsigned long got = 0, refused = 0;
    for (int i = 0; i < THREADS; i++) {
        for (int look = 0; look < 20; look++) {
            check(pool); /* while the threads work */
            hdi_host_pool_info info = info_of(pool);
            assert_true(info.reserved_bytes <= limit);
            assert_true(info.taken_bytes + info.waiting_bytes <= info.reserved_bytes);
            usleep(500);
        }
        pthread_join(threads[i], NULL);
        assert_int_equal(storms[i].errors, 0);
        got += storms[i].got;
        refused += storms[i].refused;
    }
    pthread_barrier_destroy(&halfway);
    assert_true(atomic_load(&device.peak) <= limit);
    assert_true(atomic_load(&device.peak) > limit / 2);
    assert_true(got > 1000);
    assert_true(refused > 0); /* the limit was reached */
    hdi_host_pool_info info = info_of(pool);
    assert_int_equal(info.taken_bytes + info.live_count + info.own_count, 0);
    assert_int_equal(info.reserved_bytes, atomic_load(&device.pinned));
    assert_int_equal(info.allocations, info.frees);
    assert_int_equal(info.allocations, info.from_fresh + info.from_finished + info.from_waited);
    assert_true(info.from_waited > 0);
    end(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_byte_above_the_limit_in_a_storm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
