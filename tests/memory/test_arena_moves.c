/* test_arena_moves.c - moving physical memory, mapping it ahead, giving it back: stitching, the
 * rungs of an allocation, spans of small blocks, and failing calls.
 *
 * Promise: Idle memory moves to serve an allocation, live memory stays, failing calls lose nothing.
 * Threads: one. Locks: none.
 */
#include "arena_tools.h"

#include "memory/arena_internal.h"

static uint64_t seed;

static uint64_t draw(uint64_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % below;
}

/* ---- stitching ------------------------------------------------------------------------------- */

/* Fills the arena up to its limit with blocks of one size, and frees every other one. */
static size_t fill_and_punch(hdi_arena *arena, size_t bytes, hdcu_deviceptr *left)
{
    enum { MOST = 512 };
    hdcu_deviceptr at[MOST];
    size_t n = 0, kept = 0;
    while (n < MOST && tool_take(arena, bytes, &at[n]) == HD_OK) {
        n++;
    }
    assert_true(n > 8 && n < MOST);
    for (size_t i = 0; i < n; i++) {
        if (i % 2 == 0) {
            tool_give(arena, at[i], 0, 0);
        } else {
            left[kept++] = at[i];
        }
    }
    return kept;
}

static void stitches_a_large_block(void **unused)
{
    (void)unused;
    static const size_t sizes[] = {4 * MIB, 2 * MIB, 6 * MIB, 7 * MIB + 256, 3 * MIB + 300000, 5 * MIB - 256};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        hdi_arena *arena = tool_make(1000 * MIB, 256 * MIB);
        hdcu_deviceptr left[512], at;
        size_t kept = fill_and_punch(arena, sizes[s], left);
        hdi_arena_info before = tool_info(arena);
        assert_true(before.mapped_bytes > 240 * MIB && before.idle_bytes > 0);
        assert_true(before.largest_free < 3 * sizes[s]);
        size_t bytes = before.limit_bytes - before.mapped_bytes + before.idle_bytes;
        assert_true(bytes > before.largest_free);
        assert_status(tool_take(arena, before.limit_bytes - before.taken_bytes + 256, &at), HD_ERROR_MEMORY);
        /* moving would not help, so nothing moves */
        assert_true(tool_info(arena).moved_bytes == 0);
        assert_ok(tool_take(arena, bytes, &at));
        assert_true(fake_is_mapped(at, bytes, 1));
        for (size_t i = 0; i < kept; i++) {
            assert_true(fake_is_mapped(left[i], sizes[s], 1));
            assert_true(left[i] + sizes[s] <= at || at + bytes <= left[i]);
        }
        hdi_arena_info after = tool_info(arena);
        assert_true(after.mapped_bytes <= after.limit_bytes && after.moved_bytes > 0);
        assert_int_equal(after.mapped_total - after.moved_bytes, after.mapped_bytes);
        tool_end(arena);
    }
}

/* The place that lacks the least does not help if the idle memory itself must move there. The free
 * rest of a mapping that cannot move then decides. */
static void looks_for_a_place_without_idle_mappings(void **unused)
{
    (void)unused;
    hdi_arena *arena = tool_make(1000 * MIB, 0);
    hdcu_deviceptr idle, hole, wall, stuck, rest, at;
    assert_ok(tool_take(arena, 20 * MIB, &idle));
    assert_ok(tool_take(arena, 40 * MIB, &hole));
    assert_ok(tool_take(arena, 2 * MIB, &wall));
    assert_ok(tool_take(arena, 3 * MIB, &stuck)); /* leaves one MiB that is free but not idle */
    assert_ok(tool_take(arena, 5 * MIB, &rest));
    assert_int_equal(rest, idle + 65 * MIB);
    tool_give(arena, hole, 0, 0);
    assert_ok(hdi_arena_trim(arena, 0, SIZE_MAX, NULL));
    fake.total = fake.created;
    tool_give(arena, idle, 0, 0);
    tool_give(arena, rest, 0, 0);
    assert_int_equal(tool_info(arena).idle_bytes, 24 * MIB);
    assert_ok(tool_take(arena, 25 * MIB, &at));
    assert_in_range(tool_info(arena).moved_bytes, 1, 24 * MIB); /* at most the idle bytes */
    assert_true(fake_is_mapped(at, 25 * MIB, 1));
    assert_true(fake_is_mapped(wall, 2 * MIB, 1) && fake_is_mapped(stuck, 3 * MIB, 1));
    assert_true(at >= stuck + 3 * MIB || at + 25 * MIB <= wall);
    tool_check(arena);
    assert_status(tool_take(arena, 1, &at), HD_ERROR_MEMORY);
    tool_end(arena);
}

/* In any state of the arena, all unmapped and idle memory can be allocated as one block. */
static void everything_idle_can_be_had(void **unused)
{
    (void)unused;
    enum { HELD = 64 };
    for (uint64_t s = 1; s <= 6; s++) {
        seed = s;
        hdi_arena *arena = tool_make(1000 * MIB, 300 * MIB);
        struct {
            hdcu_deviceptr at;
            size_t bytes;
        } held[HELD] = {{0, 0}};
        for (int step = 0; step < 1500; step++) {
            size_t slot = draw(HELD);
            if (held[slot].at != 0) {
                tool_give(arena, held[slot].at, 0, 0);
                held[slot].at = 0;
            } else {
                size_t bytes = draw(3) == 0 ? 1 + draw(MIB) : 1 + draw(draw(10) == 0 ? 100 * MIB : 12 * MIB);
                hd_status status = tool_take(arena, bytes, &held[slot].at);
                assert_true(status == HD_OK || status == HD_ERROR_MEMORY);
                held[slot].at = status == HD_OK ? held[slot].at : 0;
                held[slot].bytes = bytes;
            }
            if (step % 10 == 0) {
                tool_check(arena);
                hdi_arena_info info = tool_info(arena);
                hdcu_deviceptr at;
                size_t bytes = info.limit_bytes - info.mapped_bytes + info.idle_bytes;
                if (bytes > HDI_SMALL_BYTES) {
                    assert_ok(tool_take(arena, bytes, &at));
                    assert_true(fake_is_mapped(at, bytes, 1));
                    tool_check(arena);
                    tool_give(arena, at, 0, 0);
                }
            }
        }
        for (size_t i = 0; i < HELD; i++) {
            assert_true(held[i].at == 0 || fake_is_mapped(held[i].at, held[i].bytes, 1));
        }
        assert_true(tool_info(arena).moved_bytes > 0);
        tool_end(arena);
    }
}

/* ---- work that is not finished --------------------------------------------------------------- */

enum { LANES = 4, USES = 8192 };

/* A block that was freed while a lane was still using it. */
typedef struct use {
    hdcu_deviceptr at;
    size_t bytes;
    hdi_point point;
} use;

/* A live block, and the points that its owner waits for. */
typedef struct owned {
    hdcu_deviceptr at;
    size_t bytes;
    hdi_point points[LANES + 1];
    size_t n_points;
} owned;

static use uses[USES];
static size_t n_uses;

/* Takes a block. Its points must name every lane that still uses it. */
static void take_owned(hdi_arena *arena, uint32_t lane, size_t bytes, owned *o)
{
    hdi_points got;
    hd_status status = hdi_arena_alloc(arena, lane, bytes, &o->at, &got);
    assert_true(status == HD_OK || status == HD_ERROR_MEMORY);
    if (status != HD_OK) {
        o->at = 0;
        return;
    }
    o->bytes = bytes;
    o->n_points = got.count;
    assert_true(got.count <= LANES);
    memcpy(o->points, hdi_points_data(&got), got.count * sizeof o->points[0]);
    hdi_points_release(&got);
    size_t kept = 0;
    for (size_t i = 0; i < n_uses; i++) {
        const use *u = &uses[i];
        bool meets = u->at < o->at + bytes && o->at < u->at + u->bytes;
        bool told = tool_finished(NULL, u->point);
        for (size_t j = 0; meets && j < o->n_points; j++) {
            told |= o->points[j].lane == u->point.lane && o->points[j].position >= u->point.position;
        }
        assert_true(!meets || told);
        if (!tool_finished(NULL, u->point)) {
            uses[kept++] = *u;
        }
    }
    n_uses = kept;
}

/* Frees with one more use, and passes on the inherited points. */
static void give_owned(hdi_arena *arena, owned *o, hdi_point point)
{
    o->points[o->n_points++] = point;
    hdi_arena_free(arena, o->at, o->points, o->n_points);
    assert_true(n_uses < USES);
    uses[n_uses++] = (use){o->at, o->bytes, point};
    o->at = 0;
}

/* Memory that may still be in use stays mapped, and its next owner gets the points to wait for. */
static void nothing_in_use_is_unmapped(void **unused)
{
    (void)unused;
    enum { HELD = 32 };
    for (uint64_t s = 1; s <= 4; s++) {
        seed = s * 77;
        hdi_arena *arena = tool_make(1000 * MIB, 200 * MIB);
        uint64_t submitted[LANES] = {0};
        owned held[HELD] = {{.at = 0}};
        n_uses = 0;
        for (int step = 0; step < 2000; step++) {
            owned *o = &held[draw(HELD)];
            uint32_t lane = (uint32_t)draw(LANES);
            if (o->at != 0) {
                give_owned(arena, o, (hdi_point){lane, ++submitted[lane]});
            } else {
                size_t most = draw(10) == 0 ? 80 * MIB : 12 * MIB;
                take_owned(arena, lane, 1 + draw(draw(3) == 0 ? MIB : most), o);
            }
            if (draw(6) == 0) {
                lane = (uint32_t)draw(LANES);
                uint64_t to = atomic_load(&tool_finished_to[lane]);
                atomic_store(&tool_finished_to[lane], to + draw(submitted[lane] - to + 1));
            }
            if (step % 50 == 0) {
                assert_ok(hdi_arena_trim(arena, draw(50) * MIB, SIZE_MAX, NULL));
            }
            for (size_t i = 0; step % 8 == 0 && i < n_uses; i++) {
                assert_true(tool_finished(NULL, uses[i].point) || fake_is_mapped(uses[i].at, uses[i].bytes, 1));
            }
            if (step % 16 == 0) {
                tool_check(arena);
            }
        }
        hdi_arena_info info = tool_info(arena);
        assert_true(info.moved_bytes > 0 && info.returned_bytes > 0 && info.from_waited > 0);
        assert_true(info.from_same_lane > 0 && info.from_finished > 0 && info.from_fresh > 0);
        tool_end(arena);
    }
}

/* ---- the order of the rungs ------------------------------------------------------------------ */

static void maps_more_before_it_waits(void **unused)
{
    (void)unused;
    hdi_arena *arena = tool_make(4000 * MIB, 0);
    hdcu_deviceptr at[40], again;
    assert_ok(tool_take(arena, 100 * MIB, &at[0]));
    tool_give(arena, at[0], 1, 1);
    assert_ok(tool_take_in(arena, 1, 100 * MIB, &again)); /* the same lane gets it at once */
    assert_int_equal(again, at[0]);
    assert_int_equal(tool_info(arena).from_same_lane, 1);
    tool_give(arena, again, 1, 2);
    /* another lane gets new memory, up to 5/4 of the peak and 256 MiB */
    assert_ok(tool_take_in(arena, 2, 100 * MIB, &at[1]));
    assert_int_equal(tool_info(arena).mapped_bytes, 200 * MIB);
    tool_give(arena, at[1], 2, 1);
    assert_ok(tool_take_in(arena, 3, 100 * MIB, &at[1]));
    tool_give(arena, at[1], 3, 1);
    assert_int_equal(tool_info(arena).mapped_bytes, 300 * MIB);
    assert_ok(tool_take_in(arena, 4, 80 * MIB, &at[1]));
    tool_give(arena, at[1], 4, 1);
    assert_int_equal(tool_info(arena).mapped_bytes, 380 * MIB); /* of 381 */
    assert_int_equal(tool_info(arena).from_waited, 0);
    assert_ok(tool_take_in(arena, 5, 80 * MIB, &at[1]));
    assert_int_equal(tool_info(arena).mapped_bytes, 380 * MIB);
    assert_int_equal(tool_info(arena).from_waited, 1);
    tool_end(arena);
}

/* A small program's memory never moves. A larger program holds no more than it needs. */
static void moves_when_more_would_be_held_than_needed(void **unused)
{
    (void)unused;
    hdi_arena *arena = tool_make(4000 * MIB, 0);
    hdcu_deviceptr a, b, c;
    assert_ok(tool_take(arena, 20 * MIB, &a));
    assert_ok(tool_take(arena, 3 * MIB, &c));
    tool_give(arena, a, 0, 0);
    assert_ok(tool_take(arena, 40 * MIB, &b)); /* 64 MiB in all */
    assert_int_equal(tool_info(arena).mapped_bytes, 64 * MIB);
    assert_int_equal(tool_info(arena).moved_bytes, 0);
    assert_ok(tool_take(arena, 30 * MIB, &a));
    assert_int_equal(tool_info(arena).moved_bytes, 20 * MIB);
    assert_int_equal(tool_info(arena).mapped_bytes, 74 * MIB);
    tool_give(arena, c, 0, 0);
    tool_end(arena);
}

/* The device provides less than the limit, since others hold the rest. */
static void makes_do_with_what_the_device_has(void **unused)
{
    (void)unused;
    hdi_arena *arena = tool_make(1000 * MIB, 0);
    hdcu_deviceptr a, b, c, d;
    assert_ok(tool_take(arena, 20 * MIB, &a));
    assert_ok(tool_take(arena, 10 * MIB, &b));
    assert_ok(tool_take(arena, 20 * MIB, &c));
    fake.total = 50 * MIB;
    tool_give(arena, a, 0, 0);
    /* first, idle mappings move */
    assert_ok(tool_take(arena, 15 * MIB, &a));
    assert_ok(tool_take(arena, 4 * MIB, &d));
    tool_give(arena, a, 0, 0);
    tool_give(arena, c, 0, 0);
    assert_ok(tool_take(arena, 33 * MIB, &a));
    assert_true(tool_info(arena).moved_bytes > 0);
    assert_true(tool_info(arena).mapped_bytes <= 50 * MIB);
    /* then lanes wait */
    tool_give(arena, a, 1, 1);
    assert_ok(tool_take_in(arena, 2, 33 * MIB, &a));
    assert_int_equal(tool_info(arena).from_waited, 1);
    /* then nothing is left */
    assert_status(tool_take_in(arena, 2, 33 * MIB, &c), HD_ERROR_MEMORY);
    assert_message_has("cuMemCreate");
    tool_end(arena);
}

/* ---- ahead of need, and back ----------------------------------------------------------------- */

static void grows_ahead_and_gives_back(void **unused)
{
    (void)unused;
    hdi_arena *arena = tool_make(1000 * MIB, 100 * MIB);
    hdcu_deviceptr a, b, c;
    size_t n = 7;
    assert_ok(hdi_arena_grow_ahead(arena, 0, &n));
    assert_int_equal(n, 0);
    assert_ok(tool_take(arena, 10 * MIB, &a));
    assert_ok(hdi_arena_grow_ahead(arena, 29 * MIB, &n));
    assert_int_equal(n, 30 * MIB);
    assert_int_equal(hdi_arena_free_bytes(arena), 30 * MIB);
    long calls = fake.calls;
    assert_ok(tool_take(arena, 30 * MIB, &b));
    assert_int_equal(fake.calls, calls);
    assert_int_equal(hdi_arena_free_bytes(arena), 0);
    assert_ok(hdi_arena_grow_ahead(arena, 500 * MIB, &n));
    assert_int_equal(n, 60 * MIB);
    assert_ok(hdi_arena_grow_ahead(arena, 500 * MIB, &n));
    assert_int_equal(n, 0);
    assert_int_equal(tool_info(arena).ahead_bytes, 90 * MIB);
    assert_int_equal(tool_info(arena).idle_bytes, 60 * MIB);

    /* idle memory goes, memory in use stays */
    uint64_t freed = hdi_arena_freed(arena);
    assert_ok(hdi_arena_trim(arena, 50 * MIB, SIZE_MAX, &n));
    assert_true(n >= 10 * MIB && n < 10 * MIB + 4 * MIB);
    assert_true(fake_is_mapped(a, 10 * MIB, 1) && fake_is_mapped(b, 30 * MIB, 1));
    assert_int_equal(tool_info(arena).mapped_bytes, 100 * MIB - n);
    assert_true(hdi_arena_freed(arena) != freed);
    assert_ok(hdi_arena_trim(arena, 0, 5 * MIB, &n));
    assert_true(n >= 5 * MIB && n < 5 * MIB + 4 * MIB);
    tool_give(arena, a, 1, 1);
    assert_ok(hdi_arena_trim(arena, 0, SIZE_MAX, NULL));
    assert_int_equal(tool_info(arena).mapped_bytes, 40 * MIB);
    assert_int_equal(tool_info(arena).waiting_bytes, 10 * MIB);
    atomic_store(&tool_finished_to[1], 1);
    assert_ok(hdi_arena_trim(arena, 0, SIZE_MAX, &n));
    assert_int_equal(n, 10 * MIB);
    assert_int_equal(tool_info(arena).mapped_bytes, 30 * MIB);
    assert_int_equal(tool_info(arena).returned_bytes, 70 * MIB);
    assert_ok(tool_take(arena, 40 * MIB, &c));
    assert_ok(tool_take(arena, 10 * MIB, &a));
    assert_int_equal(tool_info(arena).mapped_bytes, 80 * MIB);
    tool_check(arena);

    /* a failed call undoes all it did */
    fake_fail("cuMemCreate", 3, false, HDCU_ERROR_UNKNOWN);
    assert_status(hdi_arena_grow_ahead(arena, 20 * MIB, &n), HD_ERROR_DRIVER);
    assert_int_equal(n, 0);
    assert_int_equal(fake.created, 80 * MIB);
    fake_fail(NULL, 0, false, 0);
    assert_ok(hdi_arena_grow_ahead(arena, 4 * MIB, &n));
    assert_int_equal(n, 4 * MIB);
    fake_fail("cuMemUnmap", 1, true, HDCU_ERROR_UNKNOWN);
    assert_status(hdi_arena_trim(arena, 0, SIZE_MAX, &n), HD_ERROR_DRIVER);
    assert_message_has("memory of device 3 could not be given back");
    assert_int_equal(tool_info(arena).mapped_bytes, 80 * MIB);
    tool_check(arena);
    fake_fail(NULL, 0, false, 0);
    fake.total = fake.created;
    assert_status(hdi_arena_grow_ahead(arena, 20 * MIB, &n), HD_ERROR_MEMORY);
    tool_end(arena);
}

/* ---- small blocks ---------------------------------------------------------------------------- */

/* A few small blocks do not hold a large area, and once they are freed, their granules are free for
 * anything. */
static void spans_come_back(void **unused)
{
    (void)unused;
    enum { N = 4000 };
    static hdcu_deviceptr at[N];
    hdi_arena *arena = tool_make(1000 * MIB, 100 * MIB);
    hdcu_deviceptr large;
    for (int i = 0; i < N; i++) {
        assert_ok(tool_take(arena, 20 * 1024, &at[i]));
    }
    hdi_arena_info info = tool_info(arena);
    assert_int_equal(info.taken_bytes, N * 20 * 1024);
    assert_true(info.mapped_bytes < info.taken_bytes + 2 * MIB);
    assert_int_equal(info.taken_blocks, N);
    for (int i = 0; i < N; i++) {
        if (i % 500 != 0) {
            tool_give(arena, at[i], 0, 0);
        }
    }
    /* eight blocks are left, each in its own granule; two spare granules stay */
    assert_int_equal(tool_info(arena).idle_bytes, info.mapped_bytes - (8 + HDI_SPARE_SPANS) * 2 * MIB);
    /* takes the spare granules, too */
    assert_ok(tool_take(arena, 100 * MIB - 8 * 2 * MIB, &large));
    tool_check(arena);
    tool_give(arena, large, 0, 0);
    for (int i = 0; i < N; i += 500) {
        tool_give(arena, at[i], 2, 7);
    }
    assert_int_equal(tool_info(arena).waiting_bytes, 8 * 20 * 1024);
    assert_ok(tool_take(arena, 90 * MIB, &large));     /* waits for some of the memory */
    assert_int_equal(tool_info(arena).from_waited, 0); /* but most was mapped for it */
    tool_give(arena, large, 0, 0);
    atomic_store(&tool_finished_to[2], 7);
    assert_ok(hdi_arena_trim(arena, 0, SIZE_MAX, NULL));
    assert_int_equal(tool_info(arena).mapped_bytes, 0);
    tool_end(arena);
}

static bool apart(hdcu_deviceptr a, hdcu_deviceptr b, size_t bytes)
{
    return a + bytes <= b || b + bytes <= a;
}

static void takes_more_at_once(void **unused)
{
    (void)unused;
    hdi_arena *arena = tool_make(1000 * MIB, 0);
    hdcu_deviceptr first, at[64];
    hdi_points points[64];
    /* nothing is mapped */
    assert_int_equal(hdi_arena_alloc_more(arena, 0, 100 * 1024, 64, at, points), 0);
    assert_int_equal(hdi_arena_alloc_more(arena, 0, 0, 64, at, points), 0);
    assert_ok(tool_take(arena, 100 * 1024, &first));
    long calls = fake.calls;
    /* as many as fit into mapped memory */
    size_t more = hdi_arena_alloc_more(arena, 0, 100 * 1024, 64, at, points);
    assert_in_range(more, 2, 2 * MIB / (100 * 1024) - 1);
    for (size_t i = 0; i < more; i++) {
        assert_int_equal(points[i].count, 0);
        assert_true(fake_is_mapped(at[i], 100 * 1024, 1) && apart(at[i], first, 100 * 1024));
        for (size_t j = 0; j < i; j++) {
            assert_true(apart(at[i], at[j], 100 * 1024));
        }
    }
    assert_int_equal(fake.calls, calls);
    assert_int_equal(tool_info(arena).taken_blocks, 1 + more);
    assert_int_equal(tool_info(arena).from_fresh, 1); /* the others count once they are used */
    for (size_t i = 0; i < more; i++) {
        tool_give(arena, at[i], i % 2 == 0 ? 1 : 2, 1);
    }
    /* only blocks that the lane need not wait for, with their points */
    size_t n = hdi_arena_alloc_more(arena, 1, 100 * 1024, 64, at, points);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < points[i].count; j++) {
            assert_int_equal(hdi_points_data(&points[i])[j].lane, 1);
        }
        hdi_points_release(&points[i]);
    }
    assert_int_equal(tool_info(arena).from_waited, 0);
    tool_end(arena);
}

/* ---- failing calls --------------------------------------------------------------------------- */

/* Runs a scenario with moves; the Nth call of an entry point fails, once or for good. */
static bool run_with_failure(const char *only, long n, bool for_good, int code)
{
    enum { BLOCKS = 16 };
    hdi_arena *arena = tool_make(1000 * MIB, 128 * MIB);
    hdcu_deviceptr at[BLOCKS], large[3] = {0}, one = 0;
    assert_ok(hdi_arena_grant(arena, 0));
    for (int i = 0; i < BLOCKS; i++) {
        assert_ok(tool_take(arena, 7 * MIB, &at[i]));
    }
    for (int i = 0; i < BLOCKS; i += 2) {
        tool_give(arena, at[i], 0, 0);
    }
    fake_fail(only, n, for_good, code);
    hd_status status = HD_OK;
    for (int i = 0; i < 3; i++) {
        hd_status now = tool_take(arena, (i + 1) * 10 * MIB, &large[i]);
        tool_check(arena);
        status = now != HD_OK ? now : status;
        large[i] = now != HD_OK ? 0 : large[i];
        if (i == 1) {
            now = hdi_arena_trim(arena, 0, 8 * MIB, NULL);
            status = now != HD_OK ? now : status;
            now = tool_take(arena, 1000, &one);
            status = now != HD_OK ? now : status;
            one = now != HD_OK ? 0 : one;
            tool_check(arena);
        }
    }
    bool hit = fake.failed != NULL;
    assert_true(hit || status == HD_OK);
    fake_fail(NULL, 0, false, 0);
    fake_set_stack(NULL);
    for (int i = 0; i < 3; i++) {
        assert_true(large[i] == 0 || fake_is_mapped(large[i], (i + 1) * 10 * MIB, 1));
        if (large[i] != 0) {
            /* device 0 is the driver's number of the peer */
            assert_true(fake_is_mapped(large[i], (i + 1) * 10 * MIB, 0));
            tool_give(arena, large[i], 0, 0);
        }
    }
    for (int i = 1; i < BLOCKS; i += 2) {
        assert_true(fake_is_mapped(at[i], 7 * MIB, 1));
        tool_give(arena, at[i], 0, 0);
    }
    if (one != 0) {
        tool_give(arena, one, 0, 0);
    }
    /* the failure is over, and all memory is available */
    assert_int_equal(tool_info(arena).taken_bytes, 0);
    assert_ok(tool_take(arena, 128 * MIB, &at[0]));
    assert_true(fake_is_mapped(at[0], 128 * MIB, 1));
    assert_int_equal(fake.misuses, 0);
    tool_end(arena);
    return hit;
}

static void any_call_may_fail(void **unused)
{
    (void)unused;
    static const char *const entry_points[] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap",
                                               "cuMemRelease"};
    static const int codes[] = {HDCU_ERROR_UNKNOWN, HDCU_ERROR_OUT_OF_MEMORY, HDCU_ERROR_ILLEGAL_ADDRESS};
    for (size_t e = 0; e < 5; e++) {
        for (int way = 0; way < 6; way++) {
            long n = 1;
            while (run_with_failure(entry_points[e], n, way >= 3, codes[way % 3])) {
                n++;
            }
            assert_true(n > 4);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stitches_a_large_block),
        cmocka_unit_test(looks_for_a_place_without_idle_mappings),
        cmocka_unit_test(everything_idle_can_be_had),
        cmocka_unit_test(nothing_in_use_is_unmapped),
        cmocka_unit_test(maps_more_before_it_waits),
        cmocka_unit_test(moves_when_more_would_be_held_than_needed),
        cmocka_unit_test(makes_do_with_what_the_device_has),
        cmocka_unit_test(grows_ahead_and_gives_back),
        cmocka_unit_test(spans_come_back),
        cmocka_unit_test(takes_more_at_once),
        cmocka_unit_test(any_call_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
