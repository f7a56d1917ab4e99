/* test_blocks.c - the allocator over offsets: directed cases, a random run against a model, and host memory that
 * runs out. */
#include "support/check.h"

#include "memory/blocks.h"

enum { LANES = 6, UNITS = 4096, G = 256 };

/* What the test says has finished: everything up to here, per lane. */
static uint64_t finished_to[256];

static bool finished(void *context, hdi_mark mark)
{
    const uint64_t *to = context;
    return mark.position <= to[mark.lane];
}

/* Host memory that can be made to run out: allocations left before every further one fails, -1 for no limit. */
static long allocations_left = -1;

static void *allocate(size_t bytes)
{
    if (allocations_left == 0) {
        return NULL;
    }
    if (allocations_left > 0) {
        allocations_left--;
    }
    return malloc(bytes);
}

static void check(const hdi_blocks *b)
{
    char why[160] = "";
    if (!hdi_blocks_check(b, why, sizeof why)) {
        fail_msg("%s", why);
    }
}

static hd_status create(size_t limit, hdi_blocks **out)
{
    hdi_blocks_config config = {
        .limit = limit, .finished = finished, .finished_context = finished_to, .allocate = allocate};
    return hdi_blocks_create(&config, out);
}

static hdi_blocks *make(size_t limit, size_t bytes)
{
    hdi_blocks *b = NULL;
    memset(finished_to, 0, sizeof finished_to);
    allocations_left = -1;
    assert_ok(create(limit, &b));
    if (bytes != 0) {
        assert_ok(hdi_blocks_grow(b, bytes));
    }
    return b;
}

/* Allocates where there must be room and nothing to wait for. */
static size_t take(hdi_blocks *b, size_t bytes, uint32_t lane)
{
    size_t offset = 0;
    hdi_marks marks;
    assert_ok(hdi_blocks_alloc(b, bytes, lane, &offset, &marks));
    assert_int_equal(marks.count, 0);
    assert_int_equal(offset % G, 0);
    assert_true(hdi_blocks_size(b, offset) >= bytes);
    check(b);
    return offset;
}

static void give(hdi_blocks *b, size_t offset, uint32_t lane, uint64_t position)
{
    hdi_mark mark = {lane, position};
    hdi_blocks_free(b, offset, &mark, 1);
    check(b);
}

static hdi_blocks_info info_of(const hdi_blocks *b)
{
    hdi_blocks_info info;
    hdi_blocks_get_info(b, &info);
    return info;
}

static void splits_and_merges(void **unused)
{
    (void)unused;
    hdi_blocks *b = make(1 << 20, 64 * G);
    size_t at[4];
    for (int i = 0; i < 4; i++) {
        at[i] = take(b, 10 * G - (size_t)i, 0);
        assert_int_equal(hdi_blocks_size(b, at[i]), 10 * G);
        assert_int_equal(at[i], (size_t)i * 10 * G);
    }
    assert_int_equal(hdi_blocks_tail(b), 24 * G);
    hdi_blocks_free(b, at[0], NULL, 0);
    hdi_blocks_free(b, at[2], NULL, 0);
    check(b);
    assert_int_equal(info_of(b).free_blocks, 3);
    hdi_blocks_free(b, at[1], NULL, 0); /* with both neighbours */
    check(b);
    assert_int_equal(info_of(b).free_blocks, 2);
    assert_int_equal(info_of(b).largest_free, 30 * G);
    hdi_blocks_free(b, at[3], NULL, 0);
    check(b);
    hdi_blocks_info info = info_of(b);
    assert_int_equal(info.free_blocks, 1);
    assert_int_equal(info.largest_free, 64 * G);
    assert_int_equal(info.free_bytes, 64 * G);
    assert_int_equal(info.live_bytes, 0);

    /* what is not a live block is ignored */
    hdi_blocks_free(b, at[3], NULL, 0);
    hdi_blocks_free(b, 1, NULL, 0);
    hdi_blocks_free(b, SIZE_MAX, NULL, 0);
    assert_int_equal(hdi_blocks_size(b, at[0]), 0);
    check(b);
    hdi_blocks_destroy(b);
    hdi_blocks_destroy(NULL);
}

static void grows_at_its_end(void **unused)
{
    (void)unused;
    hdi_blocks *b = make(100 * G + 17, 0);
    size_t offset = 77;
    hdi_marks marks;
    assert_status(hdi_blocks_alloc(b, 1, 0, &offset, &marks), HD_ERROR_NOT_FOUND);
    assert_int_equal(hdi_blocks_tail(b), 0);
    assert_status(hdi_blocks_grow(b, 0), HD_ERROR_ARGUMENT);
    assert_status(hdi_blocks_grow(b, G + 1), HD_ERROR_ARGUMENT);
    assert_status(hdi_blocks_grow(b, 101 * G), HD_ERROR_ARGUMENT);
    assert_ok(hdi_blocks_grow(b, 10 * G));
    assert_status(hdi_blocks_alloc(b, 11 * G, 0, &offset, &marks), HD_ERROR_NOT_FOUND);
    assert_int_equal(offset, 77);
    assert_ok(hdi_blocks_grow(b, 10 * G)); /* joins the free end */
    assert_int_equal(hdi_blocks_tail(b), 20 * G);
    assert_int_equal(take(b, 20 * G, 0), 0);
    assert_ok(hdi_blocks_grow(b, 80 * G)); /* behind a live block */
    check(b);
    assert_int_equal(take(b, 80 * G, 0), 20 * G);
    assert_status(hdi_blocks_grow(b, G), HD_ERROR_ARGUMENT);
    assert_int_equal(info_of(b).managed_bytes, 100 * G);
    hdi_blocks_destroy(b);
}

static void refuses_sizes_that_cannot_be(void **unused)
{
    (void)unused;
    hdi_blocks *b = make(SIZE_MAX, (size_t)1 << 62);
    size_t offset = 1;
    hdi_marks marks;
    assert_status(hdi_blocks_alloc(b, 0, 0, &offset, &marks), HD_ERROR_ARGUMENT);
    assert_status(hdi_blocks_alloc(b, SIZE_MAX, 0, &offset, &marks), HD_ERROR_NOT_FOUND);
    assert_status(hdi_blocks_alloc(b, SIZE_MAX - 254, 0, &offset, &marks), HD_ERROR_NOT_FOUND);
    assert_status(hdi_blocks_alloc(b, ((size_t)1 << 62) + 1, 0, &offset, &marks), HD_ERROR_NOT_FOUND);
    assert_int_equal(take(b, (size_t)1 << 62, 0), 0);
    assert_ok(hdi_blocks_grow(b, SIZE_MAX / G * G - ((size_t)1 << 62)));
    check(b);
    assert_status(create(255, &b), HD_ERROR_ARGUMENT);
    hdi_blocks_destroy(b);
}

/* Every size finds a block of exactly its size among others that are close to it. */
static void fits_exactly(void **unused)
{
    (void)unused;
    hdi_blocks *b = make((size_t)1 << 40, (size_t)1 << 34);
    static size_t at[2000];
    for (size_t i = 0; i < 1000; i++) {
        at[2 * i] = take(b, (1000 + i) * G, 0);
        at[2 * i + 1] = take(b, G, 0); /* keeps neighbours apart */
    }
    size_t rest = take(b, info_of(b).largest_free, 0);
    for (size_t i = 0; i < 1000; i++) {
        hdi_blocks_free(b, at[2 * (i * 389 % 1000)], NULL, 0); /* in no order of size */
    }
    /* largest first: the only block that fits is somewhere in its class */
    for (size_t i = 1000; i-- > 0;) {
        size_t offset = take(b, (1000 + i) * G, 0);
        assert_int_equal(hdi_blocks_size(b, offset), (1000 + i) * G);
    }
    assert_int_equal(info_of(b).free_blocks, 0);
    hdi_blocks_free(b, rest, NULL, 0);
    hdi_blocks_destroy(b);
}

static void takes_the_smallest_that_fits(void **unused)
{
    (void)unused;
    hdi_blocks *b = make(1 << 20, 100 * G);
    size_t large = take(b, 30 * G, 0);
    take(b, G, 0);
    size_t small = take(b, 10 * G, 0);
    take(b, 59 * G, 0);
    hdi_blocks_free(b, small, NULL, 0);
    hdi_blocks_free(b, large, NULL, 0);
    assert_int_equal(take(b, 9 * G, 0), small);
    assert_int_equal(take(b, 9 * G, 0), large);
    hdi_blocks_destroy(b);
}

static void hands_on_unfinished_uses(void **unused)
{
    (void)unused;
    hdi_blocks *b = make(1 << 20, 8 * G);
    hdi_mark marks[] = {{5, 50}, {1, 10}, {3, 30}, {1, 12}, {3, 29}, {2, 20}};
    finished_to[2] = 20;
    size_t offset = take(b, 8 * G, 1);
    hdi_blocks_free(b, offset, marks, 6);
    check(b);
    assert_int_equal(info_of(b).pending_marks, 3);

    /* one mark per lane, the highest, without what has finished; by lane; the taker's own lane too */
    hdi_marks got;
    assert_ok(hdi_blocks_alloc(b, 3 * G, 3, &offset, &got));
    check(b);
    assert_int_equal(got.count, 3);
    const hdi_mark *m = hdi_marks_data(&got);
    assert_true(m[0].lane == 1 && m[0].position == 12);
    assert_true(m[1].lane == 3 && m[1].position == 30);
    assert_true(m[2].lane == 5 && m[2].position == 50);
    hdi_marks_release(&got);
    assert_int_equal(got.count, 0);
    hdi_marks_release(&got);

    /* the rest has a copy, and loses what finishes */
    finished_to[5] = 50;
    size_t second;
    assert_ok(hdi_blocks_alloc(b, 5 * G, 7, &second, &got));
    assert_int_equal(got.count, 2);
    assert_int_equal(got.room, 0); /* two fit without host memory */
    assert_int_equal(info_of(b).pending_marks, 0);

    /* freed apart with different uses, merged: the union, the highest of each lane */
    hdi_mark first_uses[] = {{1, 90}, {4, 40}};
    hdi_mark second_uses[] = {{1, 91}, {6, 60}};
    hdi_blocks_free(b, offset, first_uses, 2);
    hdi_blocks_free(b, second, second_uses, 2);
    check(b);
    assert_ok(hdi_blocks_alloc(b, 8 * G, 1, &offset, &got));
    m = hdi_marks_data(&got);
    assert_int_equal(got.count, 3);
    assert_true(m[0].position == 91 && m[1].position == 40 && m[2].position == 60);
    hdi_marks_release(&got);
    hdi_blocks_destroy(b);
}

static void prefers_what_needs_no_wait(void **unused)
{
    (void)unused;
    hdi_blocks *b = make(1 << 20, 64 * G);
    size_t at[5], fence[5];
    for (int i = 0; i < 5; i++) {
        at[i] = take(b, 4 * G, 0);
        fence[i] = take(b, G, 0);
    }
    size_t rest = take(b, info_of(b).largest_free, 0);
    for (uint32_t i = 0; i < 4; i++) {
        give(b, at[i], i, 100 + i);
    }
    /* a lane gets its own block back */
    size_t offset;
    hdi_marks got;
    assert_ok(hdi_blocks_alloc(b, 4 * G, 2, &offset, &got));
    assert_int_equal(offset, at[2]);
    assert_int_equal(got.count, 1);
    /* another lane the one that has finished */
    finished_to[1] = 101;
    assert_ok(hdi_blocks_alloc(b, 4 * G, 9, &offset, &got));
    assert_int_equal(offset, at[1]);
    assert_int_equal(got.count, 0);
    /* a larger one without a wait before one of the right size with a wait */
    hdi_blocks_free(b, at[4], NULL, 0);
    hdi_blocks_free(b, fence[4], NULL, 0);
    assert_ok(hdi_blocks_alloc(b, 4 * G, 9, &offset, &got));
    assert_int_equal(offset, at[4]);
    assert_int_equal(got.count, 0);
    /* with a wait before none at all */
    assert_ok(hdi_blocks_alloc(b, 3 * G, 9, &offset, &got));
    assert_int_equal(got.count, 1);
    check(b);
    hdi_blocks_free(b, rest, NULL, 0);
    hdi_blocks_destroy(b);
}

/* A class full of blocks that others use: the oldest, which finish first, are looked at too. */
static void looks_at_the_oldest(void **unused)
{
    (void)unused;
    hdi_blocks *b = make(1 << 20, 200 * G);
    size_t at[100];
    for (int i = 0; i < 100; i++) {
        at[i] = take(b, G, 0);
        take(b, G, 0);
    }
    for (uint32_t i = 0; i < 100; i++) {
        give(b, at[i], 0, i + 1);
    }
    finished_to[0] = 1;
    size_t offset;
    hdi_marks got;
    assert_ok(hdi_blocks_alloc(b, G, 1, &offset, &got));
    assert_int_equal(offset, at[0]);
    assert_int_equal(got.count, 0);
    hdi_blocks_destroy(b);
}

/* ---- a random run against a model ------------------------------------------------------------------------------- */

typedef struct live {
    size_t offset, bytes;
    hdi_mark marks[LANES];
    size_t n_marks;
} live;

static uint64_t seed;

static uint64_t draw(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

static uint8_t owned[UNITS];
static uint64_t need[UNITS][LANES]; /* per unit: what must be finished before a new owner's use */
static uint64_t submitted[LANES];
static live lives[UNITS];
static size_t n_lives;

/* What the new owner was told must cover what the model knows. */
static void verify_new(size_t offset, size_t size, const hdi_marks *got)
{
    uint64_t told[LANES] = {0};
    const hdi_mark *m = hdi_marks_data(got);
    for (size_t i = 0; i < got->count; i++) {
        assert_true(m[i].lane < LANES && (i == 0 || m[i].lane > m[i - 1].lane));
        assert_true(m[i].position <= submitted[m[i].lane] && m[i].position > finished_to[m[i].lane]);
        told[m[i].lane] = m[i].position;
    }
    for (size_t u = offset / G; u < (offset + size) / G; u++) {
        assert_int_equal(owned[u], 0);
        owned[u] = 1;
        for (int lane = 0; lane < LANES; lane++) {
            assert_true(need[u][lane] <= finished_to[lane] || told[lane] >= need[u][lane]);
        }
    }
}

static void model_alloc(hdi_blocks *b)
{
    size_t bytes = 1 + (size_t)draw(draw(8) == 0 ? 200 * G : 12 * G);
    size_t offset;
    hdi_marks got;
    hd_status status = hdi_blocks_alloc(b, bytes, (uint32_t)draw(LANES), &offset, &got);
    if (status == HD_ERROR_NOT_FOUND) {
        assert_true(info_of(b).largest_free < bytes);
        if (info_of(b).managed_bytes < UNITS * G && hdi_blocks_grow(b, 64 * G) == HD_OK) {
            check(b);
        }
        return;
    }
    if (status != HD_OK) {
        assert_status(status, HD_ERROR_HOST_MEMORY);
        assert_true(allocations_left == 0);
        return;
    }
    size_t size = hdi_blocks_size(b, offset);
    assert_true(size >= bytes && size < bytes + G && offset % G == 0 && offset + size <= UNITS * G);
    verify_new(offset, size, &got);

    live *l = &lives[n_lives++];
    *l = (live){.offset = offset, .bytes = size};
    if (draw(4) == 0) { /* never used: what it inherited is handed on */
        for (size_t i = 0; i < got.count; i++) {
            l->marks[l->n_marks++] = hdi_marks_data(&got)[i];
        }
    } else {
        size_t uses = 1 + (size_t)draw(LANES);
        for (size_t i = 0; i < uses; i++) {
            uint32_t lane = (uint32_t)draw(LANES);
            l->marks[l->n_marks++] = (hdi_mark){lane, ++submitted[lane]};
        }
    }
    hdi_marks_release(&got);
}

static void model_free(hdi_blocks *b)
{
    if (n_lives == 0) {
        return;
    }
    size_t i = (size_t)draw(n_lives);
    live l = lives[i];
    lives[i] = lives[--n_lives];
    for (size_t u = l.offset / G; u < (l.offset + l.bytes) / G; u++) {
        owned[u] = 0;
        memset(need[u], 0, sizeof need[u]);
        for (size_t j = 0; j < l.n_marks; j++) {
            uint64_t *n = &need[u][l.marks[j].lane];
            *n = l.marks[j].position > *n ? l.marks[j].position : *n;
        }
    }
    hdi_blocks_free(b, l.offset, l.marks, l.n_marks);
}

static void run_model(uint64_t from_seed, int steps, bool starve)
{
    seed = from_seed * 0x9e3779b97f4a7c15u + 1;
    memset(owned, 0, sizeof owned);
    memset(need, 0, sizeof need);
    memset(submitted, 0, sizeof submitted);
    n_lives = 0;
    hdi_blocks *b = make(UNITS * G, 64 * G);
    for (int step = 0; step < steps; step++) {
        if (starve && step % 50 == 0) {
            allocations_left = draw(2) == 0 ? -1 : (long)draw(4);
        }
        /* fills and empties in turns */
        unsigned share = step / 500 % 2 == 0 ? 60 : 40;
        if (draw(100) < share) {
            model_alloc(b);
        } else {
            model_free(b);
        }
        if (draw(5) == 0) {
            uint32_t lane = (uint32_t)draw(LANES);
            finished_to[lane] += draw(submitted[lane] - finished_to[lane] + 1);
        }
        if (step % 7 == 0) {
            check(b);
        }
        size_t live_bytes = 0;
        for (size_t i = 0; step % 100 == 0 && i < n_lives; i++) {
            live_bytes += lives[i].bytes;
        }
        assert_true(step % 100 != 0 || live_bytes == info_of(b).live_bytes);
    }
    allocations_left = -1;
    while (n_lives > 0) {
        model_free(b);
    }
    check(b);
    hdi_blocks_info info = info_of(b);
    assert_int_equal(info.live_blocks, 0);
    if (info.retired_blocks == 0) {
        assert_int_equal(info.free_blocks, 1);
        assert_int_equal(info.largest_free, info.managed_bytes);
        assert_true(info.pending_marks <= LANES);
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

/* ---- host memory runs out --------------------------------------------------------------------------------------- */

static void creation_fails_cleanly(void **unused)
{
    (void)unused;
    hdi_blocks *b = NULL;
    long n = 0;
    for (;; n++) {
        allocations_left = n;
        hd_status status = create(1 << 20, &b);
        if (status == HD_OK) {
            break;
        }
        assert_status(status, HD_ERROR_HOST_MEMORY);
        assert_null(b);
    }
    assert_true(n >= 3);
    allocations_left = 0;
    assert_status(hdi_blocks_grow(b, 64 * G), HD_ERROR_HOST_MEMORY);
    check(b);
    allocations_left = -1;
    assert_ok(hdi_blocks_grow(b, 64 * G));
    hdi_blocks_destroy(b);
}

/* The copy of a large set cannot be made: the block stays free, with its set. */
static void a_failed_alloc_loses_nothing(void **unused)
{
    (void)unused;
    hdi_blocks *b = make(1 << 20, 8 * G);
    hdi_mark marks[40];
    for (uint32_t i = 0; i < 40; i++) {
        marks[i] = (hdi_mark){i, i + 1};
    }
    size_t offset = take(b, 8 * G, 0);
    hdi_blocks_free(b, offset, marks, 40);
    allocations_left = 0;
    hdi_marks got = {.count = 99};
    assert_status(hdi_blocks_alloc(b, 8 * G, 0, &offset, &got), HD_ERROR_HOST_MEMORY);
    assert_int_equal(got.count, 99);
    check(b);
    allocations_left = -1;
    assert_ok(hdi_blocks_alloc(b, 8 * G, 0, &offset, &got));
    assert_int_equal(got.count, 40);
    hdi_marks_release(&got);
    hdi_blocks_destroy(b);
}

/* One mark per live block has its room for sure. */
static void usual_frees_need_no_memory(void **unused)
{
    (void)unused;
    enum { N = 1000 };
    static size_t at[N];
    hdi_blocks *b = make(1 << 20, 2 * N * G);
    for (int i = 0; i < N; i++) {
        at[i] = take(b, G, 0);
        take(b, G, 0); /* neighbours stay apart */
    }
    allocations_left = 0;
    for (uint32_t i = 0; i < N; i++) {
        hdi_mark mark = {i % 256, 1 + i};
        hdi_blocks_free(b, at[i], &mark, 1);
    }
    check(b);
    assert_int_equal(info_of(b).retired_blocks, 0);
    assert_int_equal(info_of(b).pending_marks, N);
    allocations_left = -1;
    hdi_blocks_destroy(b);
}

/* A free that finds no room for its marks first drops finished ones elsewhere, and at last retires the block. */
static void free_keeps_its_promise_without_memory(void **unused)
{
    (void)unused;
    enum { N = 8, MARKS = 200 };
    hdi_blocks *b = make(1 << 20, 64 * G);
    size_t at[N];
    hdi_mark marks[MARKS];
    for (int i = 0; i < N; i++) {
        at[i] = take(b, G, 0);
        take(b, G, 0); /* neighbours stay apart */
    }
    for (uint32_t i = 0; i < MARKS; i++) {
        marks[i] = (hdi_mark){i, 1};
    }
    allocations_left = 0;
    /* Two slabs of 256 are there: this many sets of 200 fit, the next one does not. */
    int kept = 0;
    while (info_of(b).retired_blocks == 0) {
        hdi_blocks_free(b, at[kept++], marks, MARKS);
        check(b);
        assert_true(kept < N);
    }
    assert_int_equal(info_of(b).retired_bytes, G);
    assert_int_equal(info_of(b).pending_marks, (size_t)(kept - 1) * MARKS);
    hdi_blocks_free(b, at[kept - 1], NULL, 0); /* it is nobody's: ignored */
    check(b);

    /* once uses have finished there is room again */
    for (uint32_t i = 0; i < MARKS; i++) {
        finished_to[i] = 1;
        marks[i].position = 2;
    }
    hdi_blocks_free(b, at[kept], marks, MARKS);
    check(b);
    assert_int_equal(info_of(b).retired_blocks, 1);
    assert_int_equal(info_of(b).pending_marks, MARKS);

    /* and never is the retired block handed out */
    allocations_left = -1;
    size_t offset;
    hdi_marks got;
    while (hdi_blocks_alloc(b, G, 0, &offset, &got) == HD_OK) {
        assert_int_not_equal(offset, at[kept - 1]);
        hdi_marks_release(&got);
    }
    assert_int_equal(info_of(b).free_bytes, 0);
    check(b);
    hdi_blocks_destroy(b);
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
        cmocka_unit_test(prefers_what_needs_no_wait),
        cmocka_unit_test(looks_at_the_oldest),
        cmocka_unit_test(agrees_with_the_model),
        cmocka_unit_test(agrees_with_the_model_when_starved),
        cmocka_unit_test(creation_fails_cleanly),
        cmocka_unit_test(a_failed_alloc_loses_nothing),
        cmocka_unit_test(usual_frees_need_no_memory),
        cmocka_unit_test(free_keeps_its_promise_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
