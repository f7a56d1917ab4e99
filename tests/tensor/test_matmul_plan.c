/* test_matmul_plan.c - the plans of matrix products, as a table: the library calls and their
 * number, or the built-in kernel.
 *
 * Promise: Each product is planned as the calls that the table lists.
 * Threads: one. Locks: none.
 */
#include "support/check.h"

#include <string.h>
#include "tensor/matmul.h"

#define ALL_TYPES 0xffffffffu

static const hdi_matmul_facts library = {.types = ALL_TYPES, .most = INT32_MAX, .most_count = INT32_MAX, .gpu = true};
static const hdi_matmul_facts packing = {
    .types = ALL_TYPES, .most = INT32_MAX, .most_count = INT32_MAX, .gpu = true, .can_pack = true};
static const hdi_matmul_facts nothing = {.gpu = true};

/* An operand: its shape, its strides, and the place of its first element; the latter two count
 * elements. */
typedef struct operand {
    int dims;
    uint64_t shape[HD_TENSOR_DIMS];
    int64_t stride[HD_TENSOR_DIMS];
    size_t first;
} operand;

static struct hd_buffer buffers[3]; /* dummies at address 0 */

static hd_tensor tensor_of(const operand *o, hd_type type, int which)
{
    hd_tensor t = {.buffer = (hd_buffer *)(void *)&buffers[which], .type = type, .dims = o->dims};
    int64_t size = (int64_t)hdi_product_size(type);
    t.offset = o->first * (size_t)size;
    for (int i = 0; i < o->dims; i++) {
        t.shape[i] = o->shape[i];
        t.stride[i] = o->stride[i] * size;
    }
    return t;
}

/* The extent that hdi_tensor_check computes. */
static hdi_extent extent_of(const hd_tensor *t)
{
    hdi_extent e = {.buffer = (struct hd_buffer *)(void *)t->buffer, .low = t->offset, .high = t->offset};
    e.elements = hd_tensor_elements(t);
    if (e.elements > 0) {
        e.high += hd_type_size(t->type);
        for (int i = 0; i < t->dims; i++) {
            uint64_t way = (t->shape[i] - 1) * (uint64_t)t->stride[i];
            *(t->stride[i] < 0 ? &e.low : &e.high) += way;
        }
    }
    return e;
}

static hdi_matmul_plan plan_of(const operand *c, const operand *a, const operand *b, hd_type type, double alpha,
                               double beta, const hdi_matmul_facts *facts, hdi_matmul_problem *problem)
{
    const hd_tensor operands[HDI_OPERANDS] = {tensor_of(a, type, 0), tensor_of(b, type, 1), tensor_of(c, type, 2)};
    hdi_extent extents[HDI_OPERANDS];
    for (int i = 0; i < HDI_OPERANDS; i++) {
        extents[i] = extent_of(&operands[i]);
    }
    hdi_matmul_plan plan;
    assert_ok(hdi_matmul_read(operands, extents, alpha, beta, problem));
    hdi_matmul_make_plan(problem, facts, &plan);
    return plan;
}

/* The expected call: N or T for both factors, sizes, pitches, and the operand that is the first
 * factor. */
typedef struct call {
    char ops[3];
    uint64_t m, n, k, pitch_a, pitch_b, pitch_c;
    int first;
    uint64_t count, calls;
    int64_t step_a, step_b, step_c;
} call;

typedef struct entry {
    const char *what;
    operand c, a, b;
    hdi_matmul_kind kind;
    call call; /* to a library */
} entry;

#define NO_CALL                                                                                                        \
    {                                                                                                                  \
        .first = HDI_A                                                                                                 \
    }

static const entry rows[] = {
    {"all by columns",
     {2, {3, 4}, {1, 3}, 0},
     {2, {3, 5}, {1, 3}, 0},
     {2, {5, 4}, {1, 5}, 0},
     HDI_MATMUL_LIBRARY,
     {"NN", 3, 4, 5, 3, 5, 3, HDI_A, 1, 1, 0, 0, 0}},
    {"all by rows: the transposed problem",
     {2, {3, 4}, {4, 1}, 0},
     {2, {3, 5}, {5, 1}, 0},
     {2, {5, 4}, {4, 1}, 0},
     HDI_MATMUL_LIBRARY,
     {"NN", 4, 3, 5, 4, 5, 4, HDI_B, 1, 1, 0, 0, 0}},
    {"c by rows, a by columns",
     {2, {3, 4}, {4, 1}, 0},
     {2, {3, 5}, {1, 3}, 0},
     {2, {5, 4}, {4, 1}, 0},
     HDI_MATMUL_LIBRARY,
     {"NT", 4, 3, 5, 4, 3, 4, HDI_B, 1, 1, 0, 0, 0}},
    {"c by columns, b by rows, gaps",
     {2, {3, 4}, {1, 7}, 2},
     {2, {3, 5}, {1, 8}, 0},
     {2, {5, 4}, {9, 1}, 0},
     HDI_MATMUL_LIBRARY,
     {"NT", 3, 4, 5, 8, 9, 7, HDI_A, 1, 1, 0, 0, 0}},
    {"a column of c, whatever its other stride",
     {2, {3, 1}, {10, 77}, 0},
     {2, {3, 5}, {5, 1}, 0},
     {2, {5, 1}, {1, 99}, 0},
     HDI_MATMUL_LIBRARY,
     {"NN", 1, 3, 5, 1, 5, 10, HDI_B, 1, 1, 0, 0, 0}},
    {"a single element",
     {2, {1, 1}, {0, 0}, 0},
     {2, {1, 1}, {-3, 0}, 0},
     {2, {1, 1}, {5, 5}, 0},
     HDI_MATMUL_LIBRARY,
     {"NN", 1, 1, 1, 1, 1, 1, HDI_A, 1, 1, 0, 0, 0}},
    {"no stride of one element in a",
     {2, {3, 4}, {4, 1}, 0},
     {2, {3, 5}, {10, 2}, 0},
     {2, {5, 4}, {4, 1}, 0},
     HDI_MATMUL_BUILTIN,
     NO_CALL},
    {"rows of a backwards",
     {2, {3, 4}, {4, 1}, 0},
     {2, {3, 5}, {-5, 1}, 10},
     {2, {5, 4}, {4, 1}, 0},
     HDI_MATMUL_BUILTIN,
     NO_CALL},
    {"the same row of a again and again",
     {2, {3, 4}, {4, 1}, 0},
     {2, {3, 5}, {0, 1}, 0},
     {2, {5, 4}, {4, 1}, 0},
     HDI_MATMUL_BUILTIN,
     NO_CALL},
    {"no stride of one element in c",
     {2, {3, 4}, {8, 2}, 0},
     {2, {3, 5}, {5, 1}, 0},
     {2, {5, 4}, {4, 1}, 0},
     HDI_MATMUL_BUILTIN,
     NO_CALL},
    {"a batch",
     {3, {6, 3, 4}, {12, 4, 1}, 0},
     {3, {6, 3, 5}, {15, 5, 1}, 0},
     {3, {6, 5, 4}, {20, 4, 1}, 0},
     HDI_MATMUL_LIBRARY,
     {"NN", 4, 3, 5, 4, 5, 4, HDI_B, 6, 1, 20, 15, 12}},
    {"a batch of two dimensions that are one",
     {4, {2, 3, 3, 4}, {36, 12, 4, 1}, 0},
     {4, {2, 3, 3, 5}, {45, 15, 5, 1}, 0},
     {4, {2, 3, 5, 4}, {60, 20, 4, 1}, 0},
     HDI_MATMUL_LIBRARY,
     {"NN", 4, 3, 5, 4, 5, 4, HDI_B, 6, 1, 20, 15, 12}},
    {"the same, seen in the other order",
     {4, {3, 2, 3, 4}, {12, 36, 4, 1}, 0},
     {4, {3, 2, 3, 5}, {15, 45, 5, 1}, 0},
     {4, {3, 2, 5, 4}, {20, 60, 4, 1}, 0},
     HDI_MATMUL_LIBRARY,
     {"NN", 4, 3, 5, 4, 5, 4, HDI_B, 6, 1, 20, 15, 12}},
    {"one b for all: more rows",
     {3, {6, 3, 4}, {12, 4, 1}, 0},
     {3, {6, 3, 5}, {15, 5, 1}, 0},
     {2, {5, 4}, {4, 1}, 0},
     HDI_MATMUL_LIBRARY,
     {"NN", 4, 18, 5, 4, 5, 4, HDI_B, 1, 1, 0, 0, 0}},
    {"one b for all, but gaps between the matrices of a",
     {3, {6, 3, 4}, {12, 4, 1}, 0},
     {3, {6, 3, 5}, {16, 5, 1}, 0},
     {2, {5, 4}, {4, 1}, 0},
     HDI_MATMUL_LIBRARY,
     {"NN", 4, 3, 5, 4, 5, 4, HDI_B, 6, 1, 0, 16, 12}},
    {"one a for all, c by columns: more columns",
     {3, {6, 3, 4}, {12, 1, 3}, 0},
     {2, {3, 5}, {1, 3}, 0},
     {3, {6, 5, 4}, {20, 1, 5}, 0},
     HDI_MATMUL_LIBRARY,
     {"NN", 3, 24, 5, 3, 5, 3, HDI_A, 1, 1, 0, 0, 0}},
    {"a batch of rows with one b: a matrix",
     {3, {6, 1, 4}, {4, 4, 1}, 0},
     {3, {6, 1, 5}, {5, 5, 1}, 0},
     {2, {5, 4}, {4, 1}, 0},
     HDI_MATMUL_LIBRARY,
     {"NN", 4, 6, 5, 4, 5, 4, HDI_B, 1, 1, 0, 0, 0}},
    {"all pairs: a call for each of the fewer",
     {4, {2, 7, 3, 4}, {84, 12, 4, 1}, 0},
     {4, {2, 1, 3, 5}, {15, 0, 5, 1}, 0},
     {4, {1, 7, 5, 4}, {0, 20, 4, 1}, 0},
     HDI_MATMUL_LIBRARY,
     {"NN", 4, 3, 5, 4, 5, 4, HDI_B, 7, 2, 20, 0, 12}},
    {"too many calls",
     {4, {65, 70, 3, 4}, {840, 12, 4, 1}, 0},
     {4, {65, 1, 3, 5}, {15, 0, 5, 1}, 0},
     {4, {1, 70, 5, 4}, {0, 20, 4, 1}, 0},
     HDI_MATMUL_BUILTIN,
     NO_CALL},
    {"a batch backwards",
     {3, {6, 3, 4}, {12, 4, 1}, 0},
     {3, {6, 3, 5}, {-15, 5, 1}, 75},
     {3, {6, 5, 4}, {20, 4, 1}, 0},
     HDI_MATMUL_LIBRARY,
     {"NN", 4, 3, 5, 4, 5, 4, HDI_B, 6, 1, 20, -15, 12}},
    {"a size that the library does not take",
     {2, {1, 1}, {1, 1}, 0},
     {2, {1, (uint64_t)1 << 31}, {0, 1}, 0},
     {2, {(uint64_t)1 << 31, 1}, {1, 0}, 0},
     HDI_MATMUL_BUILTIN,
     NO_CALL},
    {"a pitch that it does not take",
     {2, {2, 4}, {4, 1}, 0},
     {2, {2, 5}, {(int64_t)1 << 31, 1}, 0},
     {2, {5, 4}, {4, 1}, 0},
     HDI_MATMUL_BUILTIN,
     NO_CALL},
    {"no rows", {2, {0, 4}, {4, 1}, 0}, {2, {0, 5}, {5, 1}, 0}, {2, {5, 4}, {4, 1}, 0}, HDI_MATMUL_NOTHING, NO_CALL},
    {"no matrices",
     {3, {0, 3, 4}, {12, 4, 1}, 0},
     {2, {3, 5}, {5, 1}, 0},
     {2, {5, 4}, {4, 1}, 0},
     HDI_MATMUL_NOTHING,
     NO_CALL},
    {"no factor", {2, {3, 4}, {4, 1}, 0}, {2, {3, 0}, {0, 1}, 0}, {2, {0, 4}, {4, 1}, 0}, HDI_MATMUL_BUILTIN, NO_CALL},
};

static void check_call(const entry *r, const hdi_matmul_plan *plan, hd_type type)
{
    const hdi_product *p = &plan->product;
    const call *c = &r->call;
    assert_int_equal(p->type, type);
    assert_int_equal(p->transpose_a, c->ops[0] == 'T');
    assert_int_equal(p->transpose_b, c->ops[1] == 'T');
    const uint64_t got[] = {p->m, p->n, p->k, p->pitch_a, p->pitch_b, p->pitch_c, p->count, plan->calls};
    const uint64_t wanted[] = {c->m, c->n, c->k, c->pitch_a, c->pitch_b, c->pitch_c, c->count, c->calls};
    for (size_t i = 0; i < sizeof got / sizeof got[0]; i++) {
        if (got[i] != wanted[i]) {
            print_error("%s: number %zu is %llu, not %llu\n", r->what, i, (unsigned long long)got[i],
                        (unsigned long long)wanted[i]);
        }
        assert_int_equal(got[i], wanted[i]);
    }
    assert_int_equal(plan->first, c->first);
    assert_int_equal(plan->second, c->first == HDI_A ? HDI_B : HDI_A);
    if (c->count > 1) {
        assert_int_equal(p->step_a, c->step_a);
        assert_int_equal(p->step_b, c->step_b);
        assert_int_equal(p->step_c, c->step_c);
    }
}

static void plans_are_those_of_the_table(void **state)
{
    (void)state;
    const hd_type types[] = {HD_TYPE_F16, HD_TYPE_F32, HD_TYPE_C128};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (size_t t = 0; t < 3; t++) {
            const entry *r = &rows[i];
            hdi_matmul_problem problem;
            hdi_matmul_plan plan = plan_of(&r->c, &r->a, &r->b, types[t], 1, 0, &library, &problem);
            if (plan.kind != r->kind) {
                print_error("%s: kind %d, not %d\n", r->what, plan.kind, r->kind);
            }
            assert_int_equal(plan.kind, r->kind);
            if (plan.kind == HDI_MATMUL_LIBRARY) {
                check_call(r, &plan, types[t]);
                assert_true(plan.reads_factors);
                assert_false(plan.pack[HDI_A] || plan.pack[HDI_B] || plan.pack[HDI_C]);
            }
            /* without a library, the built-in kernel does everything */
            plan = plan_of(&r->c, &r->a, &r->b, types[t], 1, 0, &nothing, &problem);
            assert_int_equal(plan.kind, r->kind == HDI_MATMUL_NOTHING ? HDI_MATMUL_NOTHING : HDI_MATMUL_BUILTIN);
            /* times 0, the factors do not matter */
            plan = plan_of(&r->c, &r->a, &r->b, types[t], 0, 2, &library, &problem);
            assert_int_equal(plan.kind, r->kind == HDI_MATMUL_NOTHING ? HDI_MATMUL_NOTHING : HDI_MATMUL_BUILTIN);
            assert_false(plan.reads_factors);
            assert_true(plan.kind == HDI_MATMUL_NOTHING || plan.shape.k == 0);
        }
    }
}

/* ---- the results of calls and kernel, element by element ---- */

typedef struct sums {
    uint64_t at[3][4096]; /* for each use, the elements of a, b and c */
    size_t n;
} sums;

static void note(sums *s, uint64_t a, uint64_t b, uint64_t c)
{
    assert_true(s->n < 4096);
    s->at[0][s->n] = a;
    s->at[1][s->n] = b;
    s->at[2][s->n++] = c;
}

static bool has(const sums *s, uint64_t a, uint64_t b, uint64_t c)
{
    for (size_t i = 0; i < s->n; i++) {
        if (s->at[0][i] == a && s->at[1][i] == b && s->at[2][i] == c) {
            return true;
        }
    }
    return false;
}

/* Lists every product of an element of a and one of b, and the element that it is added to, by the
 * tensors' strides. Bytes from the buffers' starts. */
static void by_definition(const hd_tensor *c, const hd_tensor *a, const hd_tensor *b, sums *out)
{
    out->n = 0;
    uint64_t count = 1, m = c->shape[c->dims - 2], n = c->shape[c->dims - 1], k = a->shape[a->dims - 1];
    for (int i = 0; i < c->dims - 2; i++) {
        count *= c->shape[i];
    }
    for (uint64_t i = 0; i < count * m * n * k; i++) {
        uint64_t matrix = i / (m * n * k), row = i / (n * k) % m, column = i / k % n, l = i % k;
        const hd_tensor *t[3] = {a, b, c};
        uint64_t at[3];
        for (int o = 0; o < 3; o++) {
            uint64_t rest = matrix, r = o == 1 ? l : row, s = o == 0 ? l : column;
            at[o] =
                t[o]->offset + r * (uint64_t)t[o]->stride[t[o]->dims - 2] + s * (uint64_t)t[o]->stride[t[o]->dims - 1];
            for (int d = c->dims - 3; d >= 0; d--) {
                uint64_t index = rest % c->shape[d];
                int own = d - (c->dims - t[o]->dims);
                rest /= c->shape[d];
                at[o] += own >= 0 && t[o]->shape[own] > 1 ? index * (uint64_t)t[o]->stride[own] : 0;
            }
        }
        note(out, at[0], at[1], at[2]);
    }
}

static void by_calls(const hdi_matmul_plan *plan, uint64_t size, sums *out)
{
    out->n = 0;
    for (uint64_t number = 0; number < plan->calls; number++) {
        hdi_product p = hdi_matmul_call(plan, number);
        for (uint64_t i = 0; i < p.count * p.m * p.n * p.k; i++) {
            uint64_t matrix = i / (p.m * p.n * p.k), row = i / (p.n * p.k) % p.m, column = i / p.k % p.n, l = i % p.k;
            uint64_t a = matrix * (uint64_t)p.step_a + (p.transpose_a ? l + row * p.pitch_a : row + l * p.pitch_a);
            uint64_t b =
                matrix * (uint64_t)p.step_b + (p.transpose_b ? column + l * p.pitch_b : l + column * p.pitch_b);
            uint64_t c = matrix * (uint64_t)p.step_c + row + column * p.pitch_c;
            uint64_t first = p.a + a * size, second = p.b + b * size;
            bool in_order = plan->first == HDI_A;
            note(out, in_order ? first : second, in_order ? second : first, p.c + c * size);
        }
    }
}

static void by_kernel(const hdi_matmul_plan *plan, const hdi_matmul_problem *problem, uint64_t size, sums *out)
{
    const hdi_matmul_shape *s = &plan->shape;
    out->n = 0;
    for (uint64_t i = 0; i < s->count * s->m * s->n * s->k; i++) {
        uint64_t matrix = i / (s->m * s->n * s->k), l = i % s->k;
        int64_t row = (int64_t)(i / (s->n * s->k) % s->m), column = (int64_t)(i / s->k % s->n);
        int64_t a = s->first_a + row * s->row_a + (int64_t)l * s->column_a;
        int64_t b = s->first_b + (int64_t)l * s->row_b + column * s->column_b;
        int64_t c = s->first_c + row * s->row_c + column * s->column_c;
        for (int d = (int)s->batch_dims - 1; d >= 0; d--) {
            int64_t index = (int64_t)(matrix % s->batch[d]);
            matrix /= s->batch[d];
            a += index * s->step_a[d];
            b += index * s->step_b[d];
            c += index * s->step_c[d];
        }
        assert_true(a >= 0 && b >= 0 && c >= 0); /* not before the operand's first byte */
        uint64_t first = problem->low[plan->first] + (uint64_t)a * size;
        uint64_t second = problem->low[plan->second] + (uint64_t)b * size;
        bool in_order = plan->first == HDI_A;
        note(out, in_order ? first : second, in_order ? second : first, problem->low[HDI_C] + (uint64_t)c * size);
    }
}

/* Every plan must add the same products to the same elements. */
static void plans_mean_what_tensors_say(void **state)
{
    (void)state;
    static sums wanted, got;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const entry *r = &rows[i];
        if (r->a.shape[r->a.dims - 1] > 100 || r->c.shape[0] > 60) {
            continue; /* too many to list */
        }
        hd_tensor c = tensor_of(&r->c, HD_TYPE_F32, 2), a = tensor_of(&r->a, HD_TYPE_F32, 0);
        hd_tensor b = tensor_of(&r->b, HD_TYPE_F32, 1);
        by_definition(&c, &a, &b, &wanted);
        for (int with = 0; with < 2; with++) {
            hdi_matmul_problem problem;
            hdi_matmul_plan plan =
                plan_of(&r->c, &r->a, &r->b, HD_TYPE_F32, 1, 0, with ? &library : &nothing, &problem);
            if (plan.kind == HDI_MATMUL_NOTHING) {
                continue;
            }
            if (plan.kind == HDI_MATMUL_LIBRARY) {
                by_calls(&plan, 4, &got);
            } else {
                by_kernel(&plan, &problem, 4, &got);
            }
            assert_int_equal(got.n, wanted.n);
            for (size_t j = 0; j < wanted.n; j++) {
                if (!has(&got, wanted.at[0][j], wanted.at[1][j], wanted.at[2][j])) {
                    print_error("%s: product %zu is missing\n", r->what, j);
                    fail();
                }
            }
        }
    }
}

static void large_operands_are_packed_for_a_library(void **state)
{
    (void)state;
    hdi_matmul_problem problem;
    const operand c = {2, {100, 90}, {90, 1}, 0}, b = {2, {80, 90}, {90, 1}, 0};
    const operand sparse_a = {2, {100, 80}, {160, 2}, 0}, backwards_b = {2, {80, 90}, {-90, 1}, 79 * 90};
    const operand a = {2, {100, 80}, {80, 1}, 0}, sparse_c = {2, {100, 90}, {200, 2}, 0};
    hdi_matmul_plan plan = plan_of(&c, &sparse_a, &b, HD_TYPE_F32, 1, 0, &packing, &problem);
    assert_int_equal(plan.kind, HDI_MATMUL_LIBRARY);
    assert_true(plan.pack[HDI_A] && !plan.pack[HDI_B] && !plan.pack[HDI_C]);
    plan = plan_of(&c, &sparse_a, &backwards_b, HD_TYPE_F32, 1, 0, &packing, &problem);
    assert_true(plan.kind == HDI_MATMUL_LIBRARY && plan.pack[HDI_A] && plan.pack[HDI_B]);
    plan = plan_of(&sparse_c, &a, &b, HD_TYPE_F32, 1, 0, &packing, &problem);
    assert_true(plan.kind == HDI_MATMUL_LIBRARY && plan.pack[HDI_C] && !plan.pack[HDI_A]);
    /* a library without this type, one without copies, and small operands */
    hdi_matmul_facts others = packing;
    others.types &= ~((uint32_t)1 << HD_TYPE_F32);
    assert_int_equal(plan_of(&c, &sparse_a, &b, HD_TYPE_F32, 1, 0, &others, &problem).kind, HDI_MATMUL_BUILTIN);
    assert_int_equal(plan_of(&c, &sparse_a, &b, HD_TYPE_F32, 1, 0, &library, &problem).kind, HDI_MATMUL_BUILTIN);
    const operand low_c = {2, {63, 90}, {90, 1}, 0}, low_a = {2, {63, 80}, {160, 2}, 0};
    assert_int_equal(plan_of(&low_c, &low_a, &b, HD_TYPE_F32, 1, 0, &packing, &problem).kind, HDI_MATMUL_BUILTIN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_are_those_of_the_table),
        cmocka_unit_test(plans_mean_what_tensors_say),
        cmocka_unit_test(large_operands_are_packed_for_a_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
