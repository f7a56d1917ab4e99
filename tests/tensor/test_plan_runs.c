/* test_plan_runs.c - plans for random layouts move the same elements as a simple loop, with the
 * kernels for CPUs and GPUs, and touch nothing else. Blocks of launches too large to run write to
 * the right place.
 *
 * Promise: A plan moves the same elements as a plain loop, and touches nothing else.
 * Tier: full.
 * Threads: one calls; blocks run on several.
 */
#include "support/check.h"

#include <stdatomic.h>
#include "support/sanitizers.h"
#include "tensor/layouts.h"
#include "tensor/plans.h"

#if TEST_ASAN || TEST_TSAN
#define ROUNDS(n) ((n) / 10)
#else
#define ROUNDS(n) (n)
#endif

typedef struct memory {
    unsigned char *dst, *wanted, *src;
    uint64_t dst_bytes, src_bytes;
} memory;

static unsigned char *allocate(uint64_t bytes)
{
    unsigned char *p = aligned_alloc(256, (bytes + 256) / 256 * 256);
    assert_non_null(p);
    return p;
}

static memory prepare(uint64_t dst_bytes, uint64_t src_bytes, uint64_t seed)
{
    memory m = {allocate(dst_bytes), allocate(dst_bytes), allocate(src_bytes), dst_bytes, src_bytes};
    layouts_random r = {seed};
    for (uint64_t i = 0; i < src_bytes; i++) {
        m.src[i] = (unsigned char)layouts_next(&r);
    }
    memset(m.dst, 0x5a, dst_bytes);
    memset(m.wanted, 0x5a, dst_bytes);
    return m;
}

static void release(memory *m)
{
    free(m->dst);
    free(m->wanted);
    free(m->src);
}

static void print(const hdi_layout *l)
{
    print_error("element %u, dst %% 64 = %u, src %% 64 = %u:", l->element, (unsigned)(l->dst % 64),
                (unsigned)(l->src % 64));
    for (int i = 0; i < l->dims; i++) {
        print_error(" [%llu: %lld %lld]", (unsigned long long)l->shape[i], (long long)l->dst_stride[i],
                    (long long)l->src_stride[i]);
    }
    print_error("\n");
}

/* Marks the source bytes that belong to elements, for the checks of accesses. */
static void watch(const hdi_layout *l, const memory *m, unsigned char *belongs)
{
    static const unsigned char ones[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    hdi_layout points = *l;
    points.dst = (uintptr_t)belongs + l->src;
    points.src = (uintptr_t)ones;
    for (int i = 0; i < l->dims; i++) {
        points.dst_stride[i] = l->src_stride[i];
        points.src_stride[i] = 0;
    }
    memset(belongs, 0, m->src_bytes);
    plans_run_simply(&points);
    plans_seen.elements = m->src;
    plans_seen.element_bytes = m->src_bytes;
    plans_seen.belongs = belongs;
    plans_seen.strange = 0;
    plans_seen.unaligned = 0;
}

/* Runs `l`, whose addresses are offsets, and compares. Returns the number of launches. */
static int check(const hdi_layout *l, memory *m, bool is_gpu, const hdi_plan_wish *wish, unsigned *kinds)
{
    hdi_layout now = *l, simple = *l;
    memset(m->dst, 0x5a, m->dst_bytes);
    memset(m->wanted, 0x5a, m->dst_bytes);
    now.dst += (uintptr_t)m->dst;
    simple.dst += (uintptr_t)m->wanted;
    now.src += (uintptr_t)m->src;
    simple.src += (uintptr_t)m->src;
    plans_run_simply(&simple);
    unsigned char *belongs = allocate(m->src_bytes);
    watch(l, m, belongs);
    int launches = plans_run(&now, is_gpu, wish, kinds);
    plans_seen.belongs = NULL;
    free(belongs);
    if (launches && (memcmp(m->dst, m->wanted, m->dst_bytes) != 0 || plans_seen.unaligned || plans_seen.strange)) {
        hdi_layout canonical = now;
        hdi_layout_canonicalize(&canonical);
        const hdi_plan_device device = {is_gpu, 132};
        hdi_plan plan;
        hdi_plan_make(&canonical, &device, wish, &plan);
        print(&now);
        print(&canonical);
        fail_msg("%s kernel %s: wrong bytes, %llu accesses to odd addresses, or %llu reads far from every element",
                 is_gpu ? "GPU" : "CPU", plan.kind <= HDI_PLAN_TILES ? plan.kernel : "-",
                 (unsigned long long)plans_seen.unaligned, (unsigned long long)plans_seen.strange);
    }
    return launches;
}

static void random_layouts(bool is_gpu, int rounds, uint64_t elements)
{
    unsigned kinds = 0;
    for (int round = 0; round < rounds; round++) {
        layouts_random r = {(uint64_t)round * 2 + is_gpu};
        hdi_layout l;
        uint64_t dst_bytes, src_bytes;
        layouts_make(&r, elements, &l, &dst_bytes, &src_bytes);
        memory m = prepare(dst_bytes, src_bytes, (uint64_t)round);
        assert_true(check(&l, &m, is_gpu, NULL, &kinds) > 0);
        release(&m);
    }
    assert_true(kinds & 1u << HDI_PLAN_UNITS);
    assert_true(kinds & 1u << HDI_PLAN_TILES);
}

static void random_layouts_on_the_cpu(void **state)
{
    (void)state;
    random_layouts(false, ROUNDS(6000), 40000);
}

static void random_layouts_on_a_gpu(void **state)
{
    (void)state;
    random_layouts(true, ROUNDS(2500), 12000);
}

/* Makes a two-dimensional transpose. Rows are `pad` elements longer than needed, and the first
 * elements lie `start` bytes after a multiple of 256. */
static void transpose(hdi_layout *l, uint32_t element, uint64_t rows, uint64_t columns, uint64_t pad, uint64_t start,
                      uint64_t *dst_bytes, uint64_t *src_bytes)
{
    *l = (hdi_layout){.element = element, .dims = 2, .dst = start, .src = start};
    l->shape[0] = rows;
    l->shape[1] = columns;
    l->src_stride[0] = (int64_t)((columns + pad) * element);
    l->src_stride[1] = (int64_t)element;
    l->dst_stride[0] = (int64_t)element;
    l->dst_stride[1] = (int64_t)((rows + pad) * element);
    *dst_bytes = start + columns * (rows + pad) * element + 64;
    *src_bytes = start + rows * (columns + pad) * element + 64;
}

/* Runs every kernel for tiles, and every order of tiles, with whole tiles, ragged edges, odd rows
 * and odd starts. */
static void every_kernel_for_tiles(void **state)
{
    (void)state;
    for (int k = 0; hdi_tile_kind_at(k); k++) {
        const hdi_tile_kind *kind = hdi_tile_kind_at(k);
        const uint64_t shapes[][4] = {
            /* rows, columns, pad, start */
            {2 * kind->size_j, 2 * kind->size_i, 0, 0},
            {3 * kind->size_j, kind->size_i, 0, 16},
            {kind->size_j + 16 / kind->element, 2 * kind->size_i + 16 / kind->element, 0, 0},
            {2 * kind->size_j + 1, kind->size_i + 3, 0, 0},
            {kind->size_j - 1, 2 * kind->size_i - 1, 2, kind->element},
            {2 * kind->size_j, kind->size_i, 1, 3 * kind->element},
            {9, 5 * kind->size_i + 7, 0, kind->element},
            {5 * kind->size_j + 7, 9, 3, 0},
        };
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            hdi_layout l;
            uint64_t dst_bytes, src_bytes;
            transpose(&l, kind->element, shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3], &dst_bytes,
                      &src_bytes);
            memory m = prepare(dst_bytes, src_bytes, i);
            const hdi_plan_wish wish = {kind->name, 1 + (uint32_t)i % 3};
            unsigned kinds = 0;
            plans_seen.wide = 0;
            assert_int_equal(check(&l, &m, true, &wish, &kinds), 1);
            assert_int_equal(kinds, 1u << HDI_PLAN_TILES);
            /* Whole tiles at aligned addresses move 16 bytes at a time, and shifted windows at any
             * address. */
            bool shifted = kind->kind == HD_TENSOR_TILE_SHIFTED;
            assert_true(plans_seen.wide > 0 || (!shifted && i >= 3));
            release(&m);
        }
    }
}

/* Rows with any start, on either side: every residue, whole tiles and ragged ones, sources with
 * gaps and several digits. */
static void rows_begin_anywhere(void **state)
{
    (void)state;
    for (int k = 0; hdi_tile_kind_at(k); k++) {
        const hdi_tile_kind *kind = hdi_tile_kind_at(k);
        const uint64_t element = kind->element, residues = 32 / element;
        const hdi_plan_wish wish = {kind->name, 0};
        for (uint64_t r = 0; r < residues && kind->kind == HD_TENSOR_TILE_SHIFTED; r++) {
            for (int way = 0; way < 4; way++) {
                /* 0: the same residue for all rows of a side. 1: rows of odd lengths. 2: the source
                 * contains gaps. 3: dimensions that join. */
                uint64_t gap = way == 2 ? 2 : 1, nj = kind->size_j * 2 + r * 3 + 1, ni = kind->size_i + r * 5 + 1;
                uint64_t low = way == 3 ? 3 : 1;
                uint64_t src_row = way == 0 ? (ni + 31) / 32 * 32 : ni * gap + 1;
                uint64_t dst_row = way == 0 ? (nj + 31) / 32 * 32 : nj * low + r % 3;
                hdi_layout l = {.element = kind->element, .dims = way == 3 ? 3 : 2};
                l.dst = r * element;
                l.src = (r * 7 + 3) % residues * element;
                l.shape[0] = ni, l.shape[l.dims - 1] = nj;
                l.dst_stride[0] = (int64_t)(dst_row * element), l.src_stride[0] = (int64_t)(gap * element);
                l.dst_stride[l.dims - 1] = (int64_t)element, l.src_stride[l.dims - 1] = (int64_t)(src_row * element);
                uint64_t src_rows = nj;
                /* 3 groups of few j, which are contiguous in the destination only */
                if (way == 3) {
                    nj = 2 * 32 / element + 5;
                    src_row += 2;
                    src_rows = low * (nj + 1);
                    dst_row = nj * low + r % 3;
                    l.shape[1] = low, l.shape[2] = nj;
                    l.dst_stride[0] = (int64_t)(dst_row * element);
                    l.dst_stride[1] = (int64_t)(nj * element);
                    l.src_stride[1] = (int64_t)((nj + 1) * src_row * element);
                    l.src_stride[2] = (int64_t)(src_row * element);
                }
                memory m = prepare((dst_row * ni + 32) * element, (src_row * src_rows + 32) * element, r);
                unsigned kinds = 0;
                plans_seen.wide = plans_seen.narrow = 0;
                assert_int_equal(check(&l, &m, true, &wish, &kinds), 1);
                assert_int_equal(kinds, 1u << HDI_PLAN_TILES);
                assert_true(way == 2 || plans_seen.wide > plans_seen.narrow);
                release(&m);
            }
        }
    }
}

static void units_do_everything(void **state)
{
    (void)state;
    const hdi_plan_wish wish = {"units", 0};
    for (int is_gpu = 0; is_gpu < 2; is_gpu++) {
        for (int round = 0; round < ROUNDS(600); round++) {
            layouts_random r = {(uint64_t)round + 1000000};
            hdi_layout l;
            uint64_t dst_bytes, src_bytes;
            unsigned kinds = 0;
            layouts_make(&r, 5000, &l, &dst_bytes, &src_bytes);
            memory m = prepare(dst_bytes, src_bytes, (uint64_t)round);
            assert_true(check(&l, &m, is_gpu != 0, &wish, &kinds) > 0);
            assert_int_equal(kinds, 1u << HDI_PLAN_UNITS);
            release(&m);
        }
    }
}

/* Shapes whose elements the planner walks in stretches, or in groups of rows. */
static void units_in_stretches(void **state)
{
    (void)state;
    static const struct {
        uint32_t element;
        int dims;
        uint64_t shape[4];
        int order[4]; /* dimension i of the destination is dimension order[i] of the source */
    } cases[] = {
        {4, 2, {1000, 3}, {1, 0}},
        {1, 2, {9001, 3}, {1, 0}},
        {2, 2, {5000, 5}, {1, 0}},
        {8, 3, {3, 700, 2}, {2, 0, 1}},
        {4, 4, {2, 70, 40, 32}, {0, 2, 1, 3}},
        {2, 4, {2, 37, 41, 64}, {0, 2, 1, 3}},
        {4, 3, {90, 50, 8}, {1, 0, 2}},
        {1, 3, {80, 33, 48}, {1, 0, 2}},
        {4, 2, {3, 20000}, {1, 0}},
        {1, 2, {5, 9001}, {1, 0}},
        {2, 3, {3, 5000, 2}, {1, 0, 2}},
        {4, 2, {20000, 3}, {1, 0}},
        {4, 4, {40, 3, 35, 16}, {2, 1, 0, 3}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        hdi_layout l = {.element = cases[c].element, .dims = cases[c].dims};
        int64_t stride[4], next = (int64_t)l.element;
        for (int i = l.dims - 1; i >= 0; i--) {
            stride[i] = next;
            next *= (int64_t)cases[c].shape[i];
        }
        uint64_t bytes = (uint64_t)next;
        next = (int64_t)l.element;
        for (int i = l.dims - 1; i >= 0; i--) {
            l.shape[i] = cases[c].shape[cases[c].order[i]];
            l.src_stride[i] = stride[cases[c].order[i]];
            l.dst_stride[i] = next;
            next *= (int64_t)l.shape[i];
        }
        memory m = prepare(bytes, bytes, c);
        assert_int_equal(check(&l, &m, true, NULL, NULL), 1);
        assert_int_equal(check(&l, &m, false, NULL, NULL), 1);
        release(&m);
    }
}

/* Columns, reversed or repeated elements, and rows with an odd start: writes are 16 bytes wide if
 * the destination allows it. */
static void units_gather_elements(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {1, 2, 4, 8};
    for (size_t e = 0; e < sizeof sizes / sizeof sizes[0]; e++) {
        int64_t element = sizes[e];
        const int64_t steps[] = {2 * element, -element, 0, -3 * element, element};
        for (size_t k = 0; k < sizeof steps / sizeof steps[0]; k++) {
            hdi_layout l = {.element = sizes[e], .dims = 2};
            l.shape[0] = 37, l.shape[1] = 160;
            l.dst_stride[0] = 160 * element, l.dst_stride[1] = element;
            l.src_stride[0] = 1003 * element, l.src_stride[1] = steps[k];
            l.src = (uint64_t)(501 * element); /* odd */
            memory m = prepare(37 * 160 * sizes[e], 37 * 1003 * sizes[e] + 1003 * sizes[e], k);
            plans_seen.wide = 0;
            assert_int_equal(check(&l, &m, true, NULL, NULL), 1);
            assert_int_equal(plans_seen.wide, 37 * 160 * sizes[e] / 16);
            release(&m);
        }
    }
}

/* ---- launches that are too large to run ---- */

static hdi_layout pretended;
static _Atomic uint64_t written, wrong;

/* Every written byte must belong to an element, and equal that element's source byte. */
static void wrote(uint64_t address, const unsigned char *bytes, uint32_t n)
{
    for (uint32_t b = 0; b < n; b++) {
        uint64_t rest = address + b - pretended.dst, from = pretended.src;
        bool inside = address + b >= pretended.dst;
        for (int i = 0; i < pretended.dims; i++) {
            uint64_t index = rest / (uint64_t)pretended.dst_stride[i];
            index = index < pretended.shape[i] ? index : pretended.shape[i] - 1;
            rest -= index * (uint64_t)pretended.dst_stride[i];
            from += index * (uint64_t)pretended.src_stride[i];
        }
        if (!inside || rest >= pretended.element || bytes[b] != plans_byte(from + rest)) {
            atomic_fetch_add(&wrong, 1);
        }
    }
    atomic_fetch_add(&written, n);
}

static void run_some_blocks(const hdi_layout *l, const hdi_plan_wish *wish, layouts_random *r, bool *was_cut)
{
    const hdi_plan_device device = {true, 132};
    hdi_layout now = *l;
    hdi_layout_canonicalize(&now);
    hdi_plan plan;
    *was_cut = false;
    for (;;) {
        hdi_plan_make(&now, &device, wish, &plan);
        if (plan.kind != HDI_PLAN_CUT) {
            break;
        }
        hdi_layout upper;
        *was_cut = true;
        hdi_layout_cut(&now, plan.cut_dim, plan.cut_at, &upper);
        now = layouts_below(r, 2) ? upper : now;
    }
    assert_true(plan.kind <= HDI_PLAN_TILES);
    pretended = now;
    plans_seen.pretend = true;
    plans_seen.wrote = wrote;
    uint32_t blocks[] = {0, plan.grid - 1, plan.grid / 2, (uint32_t)layouts_below(r, plan.grid),
                         (uint32_t)layouts_below(r, plan.grid)};
    bool some = false;
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        atomic_store(&written, 0);
        atomic_store(&wrong, 0);
        plans_launch(&plan, true, blocks[i], 1);
        some |= written != 0; /* the last ones may be empty if a dimension is walked in stretches */
        if (wrong || plans_seen.unaligned) {
            print(&now);
            fail_msg("kernel %s, block %u of %u: %llu of %llu bytes are wrong", plan.kernel, blocks[i], plan.grid,
                     (unsigned long long)wrong, (unsigned long long)written);
        }
    }
    assert_true(some);
    plans_seen.pretend = false;
}

#define FAR ((uint64_t)1 << 44)

static void sizes_past_32_bits(void **state)
{
    (void)state;
    static const struct {
        uint32_t element;
        int dims;
        uint64_t shape[5];
        int order[5];
        const char *kernel;
    } cases[] = {
        {4, 2, {32768 * 4, 32768 * 4}, {1, 0}, NULL},
        {4, 2, {100003, 99991}, {1, 0}, NULL},
        {4, 2, {100003, 99991}, {1, 0}, "4a"},
        {1, 2, {1000003, 99991}, {1, 0}, NULL},
        {2, 2, {300000, 70001}, {1, 0}, "units"},
        {8, 2, {65536, 131072}, {1, 0}, NULL},
        {16, 2, {65536, 100000}, {1, 0}, NULL},
        {4, 5, {70, 66, 90, 130, 333}, {4, 2, 0, 3, 1}, NULL},
        {4, 5, {7, 66, 90, 1300, 333}, {4, 3, 2, 1, 0}, NULL},
        {2, 4, {300, 4000, 100, 64}, {0, 2, 1, 3}, NULL},
        {1, 2, {3, (uint64_t)7 << 31}, {1, 0}, NULL},
        {1, 2, {(uint64_t)7 << 31, 3}, {1, 0}, NULL},
        {1, 2, {((uint64_t)5 << 31) + 77, 100}, {1, 0}, NULL},
        {4, 2, {20, ((uint64_t)1 << 33) + 5}, {1, 0}, NULL},
        {1, 3, {2, (uint64_t)3 << 33, 2}, {2, 1, 0}, NULL},
    };
    layouts_random r = {77};
    int cuts = 0;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        hdi_layout l = {.element = cases[c].element, .dims = cases[c].dims, .dst = FAR, .src = 2 * FAR};
        int64_t stride[5], next = (int64_t)l.element;
        for (int i = l.dims - 1; i >= 0; i--) {
            stride[i] = next;
            next *= (int64_t)cases[c].shape[i];
        }
        next = (int64_t)l.element;
        for (int i = l.dims - 1; i >= 0; i--) {
            l.shape[i] = cases[c].shape[cases[c].order[i]];
            l.src_stride[i] = stride[cases[c].order[i]];
            l.dst_stride[i] = next;
            next *= (int64_t)l.shape[i];
        }
        const hdi_plan_wish wish = {cases[c].kernel, 0};
        bool was_cut;
        for (int round = 0; round < 3; round++) {
            run_some_blocks(&l, &wish, &r, &was_cut);
            cuts += was_cut;
        }
    }
    assert_true(cuts > 0);
    /* A repeated source larger than any memory, read in reverse, and a view with gaps of many
     * gigabytes. */
    hdi_layout far = {.element = 4, .dims = 3, .dst = FAR, .src = 8 * FAR};
    far.shape[0] = 50000, far.shape[1] = 3, far.shape[2] = 40000;
    far.dst_stride[0] = 40000 * 3 * 4, far.dst_stride[1] = 40000 * 4, far.dst_stride[2] = 4;
    far.src_stride[0] = -4, far.src_stride[1] = 0, far.src_stride[2] = (int64_t)3 << 28;
    bool was_cut;
    run_some_blocks(&far, NULL, &r, &was_cut);
    far.src_stride[0] = 4, far.src_stride[1] = (int64_t)5 << 40;
    run_some_blocks(&far, NULL, &r, &was_cut);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_layouts_on_the_cpu), cmocka_unit_test(random_layouts_on_a_gpu),
        cmocka_unit_test(every_kernel_for_tiles),    cmocka_unit_test(rows_begin_anywhere),
        cmocka_unit_test(units_do_everything),       cmocka_unit_test(units_in_stretches),
        cmocka_unit_test(units_gather_elements),     cmocka_unit_test(sizes_past_32_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
