/* test_plan.c - the planner's choices, as a table: kernel, width, number of blocks; and the parts
 * of the planner.
 *
 * Promise: The planner picks a valid kernel for every layout, and the listed ones in the table.
 * Threads: one. Locks: none.
 *
 * test_plan_runs.c runs plans to check their results.
 */
#include "support/check.h"

#include "tensor/layouts.h"
#include "tensor/plan.h"

#define AT ((uint64_t)1 << 40) /* addresses are highly aligned, except for a row's offset */

typedef struct row {
    const char *name;
    uint32_t element;
    int dims;
    uint64_t shape[5]; /* of the source, row-major */
    /* dimension i of the row-major destination is dimension order[i] of the source */
    int order[5];
    uint64_t dst_start, src_start;
    bool is_gpu;
    hdi_plan_kind kind;
    const char *kernel;
    uint32_t flags; /* of tiles */
    uint32_t grid;  /* 0: any */
} row;

static hdi_layout layout_of(const row *c)
{
    hdi_layout l = {.element = c->element, .dims = c->dims, .dst = AT + c->dst_start, .src = 2 * AT + c->src_start};
    int64_t stride[5], next = (int64_t)c->element;
    for (int i = c->dims - 1; i >= 0; i--) {
        stride[i] = next;
        next *= (int64_t)c->shape[i];
    }
    next = (int64_t)c->element;
    for (int i = c->dims - 1; i >= 0; i--) {
        l.shape[i] = c->shape[c->order[i]];
        l.src_stride[i] = stride[c->order[i]];
        l.dst_stride[i] = next;
        next *= (int64_t)l.shape[i];
    }
    return l;
}

#define IN HD_TENSOR_WIDE_LOADS
#define OUT HD_TENSOR_WIDE_STORES
#define BOTH (IN | OUT)
#define LONG ((uint64_t)3 << 30)

static void each_layout_has_its_kernel(void **state)
{
    (void)state;
    /* clang-format off */
    static const row table[] = {
        {"square", 4, 2, {4096, 4096}, {1, 0}, 0, 0, true, HDI_PLAN_TILES, "hd_tensor_tile_4a", BOTH, 4096},
        {"odd rows on both sides", 4, 2, {9973, 10007}, {1, 0}, 0, 0, true, HDI_PLAN_TILES, "hd_tensor_tile_4s", BOTH, 0},
        {"odd rows of the source", 4, 2, {4096, 10007}, {1, 0}, 0, 0, true, HDI_PLAN_TILES, "hd_tensor_tile_4s", BOTH, 0},
        {"odd rows of the destination", 4, 2, {10007, 4096}, {1, 0}, 0, 0, true, HDI_PLAN_TILES, "hd_tensor_tile_4s", BOTH, 0},
        {"odd start", 4, 2, {4096, 4096}, {1, 0}, 0, 4, true, HDI_PLAN_TILES, "hd_tensor_tile_4s", BOTH, 0},
        {"bytes", 1, 2, {4096, 4096}, {1, 0}, 0, 0, true, HDI_PLAN_TILES, "hd_tensor_tile_1a", BOTH, 1024},
        {"halves", 2, 2, {4096, 4096}, {1, 0}, 0, 0, true, HDI_PLAN_TILES, "hd_tensor_tile_2a", BOTH, 1024},
        {"doubles", 8, 2, {4096, 4096}, {1, 0}, 0, 0, true, HDI_PLAN_TILES, "hd_tensor_tile_8d", BOTH, 0},
        {"complex doubles", 16, 2, {4096, 4096}, {1, 0}, 0, 0, true, HDI_PLAN_TILES, "hd_tensor_tile_16a", BOTH, 0},
        {"a batch", 4, 3, {10, 640, 640}, {0, 2, 1}, 0, 0, true, HDI_PLAN_TILES, "hd_tensor_tile_4a", BOTH, 1000},
        {"short dimensions join", 4, 5, {8, 24, 36, 40, 48}, {4, 2, 0, 3, 1}, 0, 0, true, HDI_PLAN_TILES, "hd_tensor_tile_4d", BOTH, 0},
        {"quadruples are one element", 4, 3, {512, 512, 4}, {1, 0, 2}, 0, 0, true, HDI_PLAN_TILES, "hd_tensor_tile_16a", BOTH, 256},
        {"pairs are", 4, 3, {512, 512, 2}, {1, 0, 2}, 0, 0, true, HDI_PLAN_TILES, "hd_tensor_tile_8d", BOTH, 0},
        {"pairs at odd starts are not", 4, 3, {512, 512, 2}, {1, 0, 2}, 4, 4, true, HDI_PLAN_UNITS, "hd_tensor_units_4", 0, 512},
        {"elements in bytes", 4, 2, {512, 512}, {1, 0}, 1, 0, true, HDI_PLAN_UNITS, "hd_tensor_units_1", 0, 1024},
        {"rows", 4, 3, {64, 32, 256}, {1, 0, 2}, 0, 0, true, HDI_PLAN_UNITS, "hd_tensor_units_16", 0, 128},
        {"rows of odd length", 4, 3, {64, 32, 255}, {1, 0, 2}, 0, 0, true, HDI_PLAN_UNITS, "hd_tensor_units_4", 0, 510},
        {"rows of two", 2, 3, {64, 64, 2}, {1, 0, 2}, 0, 0, true, HDI_PLAN_TILES, "hd_tensor_tile_4a", BOTH, 1},
        {"a dozen columns", 4, 2, {1 << 20, 12}, {1, 0}, 0, 0, true, HDI_PLAN_TILES, "hd_tensor_tile_4n", BOTH, 4096},
        {"a dozen rows", 4, 2, {12, 1 << 20}, {1, 0}, 0, 0, true, HDI_PLAN_TILES, "hd_tensor_tile_4w", BOTH, 4096},
        {"many small matrices", 4, 3, {10000, 16, 16}, {0, 2, 1}, 0, 0, true, HDI_PLAN_UNITS, "hd_tensor_units_4", 0, 625},
        {"three columns", 4, 2, {1 << 20, 3}, {1, 0}, 0, 0, true, HDI_PLAN_UNITS, "hd_tensor_units_4", 0, 768},
        {"three odd columns", 4, 2, {(1 << 20) - 1, 3}, {1, 0}, 0, 0, true, HDI_PLAN_UNITS, "hd_tensor_units_4", 0, 3072},
        {"three rows", 4, 2, {3, 1 << 20}, {1, 0}, 0, 0, true, HDI_PLAN_UNITS, "hd_tensor_units_4", 0, 3072},
        {"too long", 1, 2, {2, LONG}, {1, 0}, 0, 0, true, HDI_PLAN_CUT, "hd_tensor_", 0, 0},
        {"square", 4, 2, {4096, 4096}, {1, 0}, 0, 0, false, HDI_PLAN_TILES, "hd_tensor_tile_4a", BOTH | HD_TENSOR_STREAM, 4096},
        {"odd start", 4, 2, {256, 256}, {1, 0}, 1, 3, false, HDI_PLAN_TILES, "hd_tensor_tile_4a", BOTH, 16},
        {"small", 4, 2, {3, 3}, {1, 0}, 0, 0, false, HDI_PLAN_UNITS, "hd_tensor_units_4", 0, 1},
        {"rows", 4, 3, {64, 32, 255}, {1, 0, 2}, 0, 0, false, HDI_PLAN_UNITS, "hd_tensor_units_4", 0, 16},
        {"quadruples", 4, 3, {512, 512, 4}, {1, 0, 2}, 1, 2, false, HDI_PLAN_TILES, "hd_tensor_tile_16a", BOTH, 256},
        {"too long", 1, 2, {2, LONG}, {1, 0}, 0, 0, false, HDI_PLAN_CUT, "hd_tensor_", 0, 0},
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const row *c = &table[i];
        hdi_layout l = layout_of(c);
        hdi_layout_canonicalize(&l);
        assert_false(hdi_layout_is_run(&l));
        const hdi_plan_device device = {c->is_gpu, 132};
        hdi_plan plan;
        hdi_plan_make(&l, &device, NULL, &plan);
        bool good = plan.kind == c->kind;
        if (good && plan.kind != HDI_PLAN_CUT) {
            good = strcmp(plan.kernel, c->kernel) == 0 && (c->grid == 0 || plan.grid == c->grid) &&
                   (plan.kind != HDI_PLAN_TILES || plan.tile.flags == c->flags);
        }
        if (!good) {
            fail_msg("%s, %s: kind %d, kernel %s, flags %u, grid %u", c->is_gpu ? "GPU" : "CPU", c->name,
                     (int)plan.kind, plan.kind == HDI_PLAN_CUT ? "-" : plan.kernel,
                     plan.kind == HDI_PLAN_TILES ? plan.tile.flags : 0, plan.grid);
        }
    }
}

static void layouts_become_tidy(void **state)
{
    (void)state;
    /* Dimensions of 1 are dropped, reversed ones turned, the rest sorted as in the destination, and
     * neighbours joined. */
    hdi_layout l = {.element = 4, .dims = 5, .dst = 10000, .src = 20000};
    const uint64_t shape[] = {5, 1, 6, 7, 2};
    const int64_t dst[] = {4, 77, -560, 80, 20}, src[] = {400, 33, 56, -8, 4};
    memcpy(l.shape, shape, sizeof shape);
    memcpy(l.dst_stride, dst, sizeof dst);
    memcpy(l.src_stride, src, sizeof src);
    hdi_layout_canonicalize(&l);
    assert_int_equal(l.dims, 3);
    assert_int_equal(l.dst, 10000 - 5 * 560);
    assert_int_equal(l.src, 20000 + 5 * 56);
    const uint64_t tidy_shape[] = {6 * 7, 2, 5};
    const int64_t tidy_dst[] = {80, 20, 4}, tidy_src[] = {-8, 4, 400};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(l.shape[i], tidy_shape[i]);
        assert_int_equal(l.dst_stride[i], tidy_dst[i]);
        assert_int_equal(l.src_stride[i], tidy_src[i]);
    }

    /* A column-major layout on both sides is one run; so is one element. */
    hdi_layout run = {.element = 8, .dims = 3, .dst = 0, .src = 0};
    for (int i = 0; i < 3; i++) {
        run.shape[i] = 10;
        run.dst_stride[i] = run.src_stride[i] = i == 0 ? 8 : i == 1 ? 80 : 800;
    }
    hdi_layout_canonicalize(&run);
    assert_int_equal(run.dims, 1);
    assert_int_equal(run.shape[0], 1000);
    assert_true(hdi_layout_is_run(&run));
    hdi_layout one = {.element = 2, .dims = 2, .shape = {1, 1}};
    hdi_layout_canonicalize(&one);
    assert_int_equal(one.dims, 0);
    assert_true(hdi_layout_is_run(&one));

    /* Both halves of a cut together equal the whole. */
    hdi_layout upper;
    hdi_layout_cut(&run, 0, 400, &upper);
    assert_int_equal(run.shape[0], 400);
    assert_int_equal(upper.shape[0], 600);
    assert_int_equal(upper.dst, 3200);
    assert_int_equal(upper.src, 3200);
}

/* hd_tensor_divide divides exactly, for every divisor and number that kernels may use. */
static void quotients_are_exact(void **state)
{
    (void)state;
    layouts_random r = {1};
    for (int round = 0; round < 200000; round++) {
        uint32_t n = round < 3000 ? (uint32_t)round + 1 : (uint32_t)(layouts_next(&r) >> (33 + layouts_below(&r, 31)));
        n = n ? n : 1;
        /* Makes the divisor for a batch with this dimension. */
        uint32_t shift = 0;
        while (((uint64_t)1 << shift) < n) {
            shift++;
        }
        hdi_layout l = {.element = 4, .dims = 2, .dst = 0, .src = 0};
        hd_tensor_divisor by = {n, (uint32_t)((((uint64_t)1 << 32) * (((uint64_t)1 << shift) - n)) / n + 1), shift};
        if (n <= (1u << 30) && n > 1) { /* as the planner makes it */
            l.shape[0] = n;
            l.shape[1] = 2;
            l.dst_stride[0] = 16, l.dst_stride[1] = 8;
            l.src_stride[0] = 4, l.src_stride[1] = (int64_t)1 << 40;
            const hdi_plan_device device = {true, 132};
            const hdi_plan_wish wish = {"units", 0};
            hdi_plan plan;
            hdi_plan_make(&l, &device, &wish, &plan);
            assert_int_equal(plan.kind, HDI_PLAN_UNITS);
            for (uint32_t k = 0; k < plan.units.digits; k++) {
                if (plan.units.digit[k].by.n == n) {
                    by = plan.units.digit[k].by;
                }
            }
        }
        const uint32_t numbers[] = {0,
                                    1,
                                    n - 1,
                                    n,
                                    n + 1,
                                    2 * n - 1,
                                    HD_TENSOR_COUNT_MAX,
                                    HD_TENSOR_COUNT_MAX - 1,
                                    HD_TENSOR_COUNT_MAX / n * n,
                                    HD_TENSOR_COUNT_MAX / n * n - 1,
                                    (uint32_t)layouts_below(&r, (uint64_t)1 << 31)};
        for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
            uint32_t x = numbers[i] & HD_TENSOR_COUNT_MAX;
            if (hd_tensor_divide(x, &by) != x / n) {
                fail_msg("%u / %u is not %u", x, n, hd_tensor_divide(x, &by));
            }
        }
    }
}

static void wishes(void **state)
{
    (void)state;
    const row transpose = {"", 4, 2, {1000, 1000}, {1, 0}, 0, 0, true, HDI_PLAN_TILES, "", 0, 0};
    const row rows = {"", 4, 3, {30, 30, 30}, {1, 0, 2}, 0, 0, true, HDI_PLAN_UNITS, "", 0, 0};
    const hdi_plan_device device = {true, 132};
    int granted = 0;
    for (int i = 0; hdi_tile_kind_at(i); i++) {
        const hdi_tile_kind *kind = hdi_tile_kind_at(i);
        const hdi_plan_wish wish = {kind->name, 3};
        hdi_layout l = layout_of(&transpose);
        hdi_plan plan;
        hdi_layout_canonicalize(&l);
        hdi_plan_make(&l, &device, &wish, &plan);
        assert_int_equal(plan.kind, kind->element == 4 ? HDI_PLAN_TILES : HDI_PLAN_NONE);
        if (plan.kind == HDI_PLAN_TILES) {
            granted++;
            assert_contains(plan.kernel, kind->name);
            assert_int_equal(plan.tile.size_i, kind->size_i);
            assert_int_equal(plan.tile.size_j, kind->size_j);
            assert_int_equal(plan.tile.group, 3);
            assert_int_equal(plan.block, kind->threads);
            assert_true(plan.number >= 0 && plan.number < HDI_PLAN_KERNELS);
        }
        l = layout_of(&rows);
        hdi_layout_canonicalize(&l);
        hdi_plan_make(&l, &device, &wish, &plan);
        assert_int_equal(plan.kind, HDI_PLAN_NONE);
    }
    assert_true(granted >= 3);
    assert_null(hdi_tile_kind_at(-1));
    const hdi_plan_wish nonsense = {"nonsense", 0}, units = {"units", 0};
    hdi_layout l = layout_of(&transpose);
    hdi_plan plan;
    hdi_layout_canonicalize(&l);
    hdi_plan_make(&l, &device, &nonsense, &plan);
    assert_int_equal(plan.kind, HDI_PLAN_NONE);
    hdi_plan_make(&l, &device, &units, &plan);
    assert_int_equal(plan.kind, HDI_PLAN_UNITS);
}

/* Rows of 256 bytes in another order: indices that a block fixes, or that all units of a thread
 * share, are computed once. */
static void units_have_little_to_divide(void **state)
{
    (void)state;
    const row rows = {"", 4, 5, {32, 64, 48, 56, 64}, {2, 0, 3, 1, 4}, 0, 0, true, HDI_PLAN_UNITS, "", 0, 0};
    const hdi_plan_device device = {true, 132};
    hdi_layout l = layout_of(&rows);
    hdi_plan plan;
    hdi_layout_canonicalize(&l);
    hdi_plan_make(&l, &device, NULL, &plan);
    assert_int_equal(plan.kind, HDI_PLAN_UNITS);
    assert_int_equal(plan.units.inner, 3); /* a block: 16 units of a row, 8 rows on either side */
    assert_int_equal(plan.units.count, HD_TENSOR_UNITS_THREADS * HD_TENSOR_UNITS_EACH);
    assert_int_equal(plan.units.common, 2);
    assert_int_equal(plan.units.apart, 2);
    assert_int_equal(plan.grid, 32 * 64 * 48 * 56 * 16 / 1024);
    /* Other numbers of rows, for benchmarks. */
    const hdi_plan_wish one = {"units", 1}, many = {"units", 4096};
    hdi_plan_make(&l, &device, &one, &plan);
    assert_int_equal(plan.kind, HDI_PLAN_UNITS);
    assert_int_equal(plan.units.flags & HD_TENSOR_CUTS, 0);
    hdi_plan_make(&l, &device, &many, &plan);
    assert_int_equal(plan.units.digit[1].by.n, 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_layout_has_its_kernel),  cmocka_unit_test(layouts_become_tidy),
        cmocka_unit_test(quotients_are_exact),         cmocka_unit_test(wishes),
        cmocka_unit_test(units_have_little_to_divide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
