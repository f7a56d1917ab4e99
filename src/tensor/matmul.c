/* matmul.c - hd_tensor_matmul: checks a product, plans it, and submits it. A product becomes calls
 * of the lane's library, or one launch of the built-in kernel.
 *
 * Threads: any.
 * Locks: none of its own, except while a library is opened (matmul.h).
 * Blocking: a call waits while a library is opened, while kernels are loaded for the first time,
 * and while a lane is full.
 * Always:
 * - Nothing is submitted before every check passes.
 * - Every operation of a product uses all bytes from the first to the last element of each operand.
 *   So use records decide its order.
 * - c, the result, is written last. If an earlier step fails, c stays unchanged.
 */
#include <heddle/tensor.h>
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "base/sized.h"
#include "buffer/submit.h"
#include "engine/engine.h"
#include "tensor/matmul.h"
#include "tensor/plan.h"
#include "transfer/route.h"

/* The most calls of a library for one product. A product that would need more becomes one launch of
 * the built-in kernel. */
#define CALLS_MOST 64
/* Operands are packed only if m, n and k are at least this large. Then each element of a packed
 * operand is used at least this often. */
#define PACK_LEAST 64

/* ---- operands that fit together ---- */

static bool matmul_is_number(hd_type type)
{
    return type >= HD_TYPE_F16 && type <= HD_TYPE_C128;
}

static hd_status matmul_check_form(const hd_tensor *t, const char *name)
{
    if (!matmul_is_number(t->type)) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%s is of type %s: products are made of f16, bf16, f32, f64, c64 and c128",
                        name, hd_type_name(t->type));
    }
    if (t->dims < 2) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%s has %d dimensions: rows and columns are needed", name, t->dims);
    }
    return HD_OK;
}

/* Fails if an element does not lie at a multiple of its size, since kernels and libraries need
 * that. An import may have any address. */
static hd_status matmul_check_strides(const hd_tensor *t, const struct hd_buffer *b, const char *name)
{
    uint64_t size = hdi_product_size(t->type), begin = b ? b->address : 0;
    if (begin % size != 0 && (begin + t->offset) % size != 0) {
        return hdi_fail(HD_ERROR_ARGUMENT,
                        "%s begins at the address 0x%llx, which is no multiple of the %llu bytes of its elements; "
                        "hd_tensor_copy it to memory of hd_alloc",
                        name, (unsigned long long)(begin + t->offset), (unsigned long long)size);
    }
    if (begin % size == 0 && t->offset % size != 0) {
        return hdi_fail(HD_ERROR_ARGUMENT,
                        "%s begins at byte %zu, which is no multiple of the %llu bytes of its elements", name,
                        t->offset, (unsigned long long)size);
    }
    for (int i = 0; i < t->dims; i++) {
        if (t->shape[i] > 1 && t->stride[i] % (int64_t)size != 0) {
            return hdi_fail(
                HD_ERROR_ARGUMENT,
                "%s has a stride of %lld bytes in dimension %d, which is no multiple of the %llu bytes of its "
                "elements",
                name, (long long)t->stride[i], i, (unsigned long long)size);
        }
    }
    return HD_OK;
}

static hd_status matmul_check_shapes(const hd_tensor *c, const hd_tensor *a, const hd_tensor *b)
{
    char of_a[HDI_TENSOR_TEXT_BYTES], of_b[HDI_TENSOR_TEXT_BYTES], of_c[HDI_TENSOR_TEXT_BYTES];
    hdi_tensor_text(a, of_a);
    hdi_tensor_text(b, of_b);
    hdi_tensor_text(c, of_c);
    if (a->type != b->type || a->type != c->type) {
        return hdi_fail(HD_ERROR_ARGUMENT, "c = %s, a = %s, b = %s: all three must be of one type", of_c, of_a, of_b);
    }
    const uint64_t *sa = a->shape + a->dims - 2, *sb = b->shape + b->dims - 2, *sc = c->shape + c->dims - 2;
    if (sa[1] != sb[0] || sc[0] != sa[0] || sc[1] != sb[1]) {
        return hdi_fail(HD_ERROR_ARGUMENT,
                        "c = %s, a = %s, b = %s: the last two dimensions must be m,n = m,k times k,n", of_c, of_a,
                        of_b);
    }
    const hd_tensor *factors[] = {a, b};
    for (int f = 0; f < 2; f++) {
        const hd_tensor *t = factors[f];
        bool fits = t->dims <= c->dims;
        for (int i = 1; fits && i <= t->dims - 2; i++) {
            uint64_t size = t->shape[t->dims - 2 - i];
            fits = size == 1 || size == c->shape[c->dims - 2 - i];
        }
        if (!fits) {
            return hdi_fail(HD_ERROR_ARGUMENT,
                            "c = %s, a = %s, b = %s: the batch of %s cannot be broadcast to that of c", of_c, of_a,
                            of_b, f == 0 ? "a" : "b");
        }
    }
    return HD_OK;
}

static hd_status matmul_check_places(const hd_tensor *operands, const hdi_extent *extents)
{
    const hdi_extent *c = &extents[HDI_C];
    if (c->elements == 0) {
        return HD_OK;
    }
    if (hdi_tensor_repeats(&operands[HDI_C])) {
        char text[HDI_TENSOR_TEXT_BYTES];
        return hdi_fail(HD_ERROR_ARGUMENT, "the strides of c, %s, lead to an element twice, or to parts of others",
                        hdi_tensor_text(&operands[HDI_C], text));
    }
    for (int i = HDI_A; i <= HDI_B; i++) {
        if (extents[i].buffer == c->buffer && extents[i].elements > 0 &&
            !hdi_tensors_apart(&operands[HDI_C], c, &operands[i], &extents[i])) {
            return hdi_fail(HD_ERROR_ARGUMENT, "c, bytes %llu..%llu, and %c, bytes %llu..%llu of one buffer, overlap",
                            (unsigned long long)c->low, (unsigned long long)c->high, "ab"[i],
                            (unsigned long long)extents[i].low, (unsigned long long)extents[i].high);
        }
    }
    return HD_OK;
}

/* ---- a problem from operands ---- */

static void matmul_read_operand(hdi_matmul_problem *p, int which, const hd_tensor *t)
{
    int64_t size = (int64_t)hdi_product_size(t->type);
    p->row[which] = t->stride[t->dims - 2] / size;
    p->column[which] = t->stride[t->dims - 1] / size;
    p->offset[which] = t->offset;
    for (uint32_t i = 1; i <= p->dims; i++) { /* dimensions of the batch, from the last one on */
        int at = t->dims - 2 - (int)i;
        p->step[which][p->dims - i] = at >= 0 && t->shape[at] > 1 ? t->stride[at] / size : 0;
    }
}

hd_status hdi_matmul_read(const hd_tensor operands[HDI_OPERANDS], const hdi_extent extents[HDI_OPERANDS], double alpha,
                          double beta, hdi_matmul_problem *out)
{
    static const char *const names[HDI_OPERANDS] = {"a", "b", "c"};
    const hd_tensor *a = &operands[HDI_A], *b = &operands[HDI_B], *c = &operands[HDI_C];
    hd_status status = HD_OK;
    for (int i = 0; i < HDI_OPERANDS && !status; i++) {
        status = matmul_check_form(&operands[i], names[i]);
    }
    status = status ? status : matmul_check_shapes(c, a, b);
    for (int i = 0; i < HDI_OPERANDS && !status; i++) {
        status = matmul_check_strides(&operands[i], extents[i].buffer, names[i]);
    }
    status = status ? status : matmul_check_places(operands, extents);
    if (status) {
        return status;
    }
    *out = (hdi_matmul_problem){
        .type = c->type,
        .m = c->shape[c->dims - 2],
        .n = c->shape[c->dims - 1],
        .k = a->shape[a->dims - 1],
        .dims = (uint32_t)c->dims - 2,
        .alpha = alpha,
        .beta = beta,
    };
    for (uint32_t i = 0; i < out->dims; i++) {
        out->batch[i] = c->shape[i];
    }
    for (int i = 0; i < HDI_OPERANDS; i++) {
        matmul_read_operand(out, i, &operands[i]);
        out->low[i] = extents[i].low;
        out->high[i] = extents[i].high;
    }
    return HD_OK;
}

/* ---- simplifying: the same product with fewer dimensions ---- */

static void matmul_drop_dim(hdi_matmul_problem *p, uint32_t d)
{
    p->dims--;
    for (uint32_t i = d; i < p->dims; i++) {
        p->batch[i] = p->batch[i + 1];
        for (int o = 0; o < HDI_OPERANDS; o++) {
            p->step[o][i] = p->step[o][i + 1];
        }
    }
}

static void matmul_swap_dims(hdi_matmul_problem *p, uint32_t d, uint32_t e)
{
    uint64_t batch = p->batch[d];
    p->batch[d] = p->batch[e];
    p->batch[e] = batch;
    for (int o = 0; o < HDI_OPERANDS; o++) {
        int64_t step = p->step[o][d];
        p->step[o][d] = p->step[o][e];
        p->step[o][e] = step;
    }
}

/* True if, in all operands, one step of dimension `outer` leads to where `inner` ends. */
static bool matmul_dim_goes_on(const hdi_matmul_problem *p, uint32_t outer, uint32_t inner)
{
    bool yes = true;
    for (int o = 0; o < HDI_OPERANDS; o++) {
        yes = yes && p->step[o][outer] == p->step[o][inner] * (int64_t)p->batch[inner];
    }
    return yes;
}

/* Drops dimensions of size 1. Sorts the others by their steps in c, longest first. Joins dimensions
 * that continue each other. */
static void matmul_join_batch(hdi_matmul_problem *p)
{
    for (uint32_t d = p->dims; d-- > 0;) {
        if (p->batch[d] == 1) {
            matmul_drop_dim(p, d);
        }
    }
    for (uint32_t i = 1; i < p->dims; i++) {
        for (uint32_t j = i; j > 0 && hdi_stride_size(p->step[HDI_C][j - 1]) < hdi_stride_size(p->step[HDI_C][j]);
             j--) {
            matmul_swap_dims(p, j, j - 1);
        }
    }
    for (uint32_t d = p->dims; d-- > 1;) {
        if (matmul_dim_goes_on(p, d - 1, d)) {
            p->batch[d - 1] *= p->batch[d];
            for (int o = 0; o < HDI_OPERANDS; o++) {
                p->step[o][d - 1] = p->step[o][d];
            }
            matmul_drop_dim(p, d);
        }
    }
}

/* Looks for a dimension of the batch that can become more rows, and turns it into rows. Along this
 * dimension, b must not change. The matrices of a and c must follow each other like rows, or be one
 * row each. Does the same for columns, with a and b exchanged. True: the function found such a
 * dimension. */
static bool matmul_fold_batch(hdi_matmul_problem *p)
{
    for (uint32_t d = p->dims; d-- > 0;) {
        const int64_t *a = &p->step[HDI_A][d], *b = &p->step[HDI_B][d], *c = &p->step[HDI_C][d];
        if (*b == 0 && (p->m == 1 || (*a == p->row[HDI_A] * (int64_t)p->m && *c == p->row[HDI_C] * (int64_t)p->m))) {
            p->row[HDI_A] = p->m == 1 ? *a : p->row[HDI_A];
            p->row[HDI_C] = p->m == 1 ? *c : p->row[HDI_C];
            p->m *= p->batch[d];
        } else if (*a == 0 &&
                   (p->n == 1 || (*b == p->column[HDI_B] * (int64_t)p->n && *c == p->column[HDI_C] * (int64_t)p->n))) {
            p->column[HDI_B] = p->n == 1 ? *b : p->column[HDI_B];
            p->column[HDI_C] = p->n == 1 ? *c : p->column[HDI_C];
            p->n *= p->batch[d];
        } else {
            continue;
        }
        matmul_drop_dim(p, d);
        return true;
    }
    return false;
}

/* ---- the plan for a library ---- */

/* True if a matrix with these strides is stored by columns. *pitch: the elements from one column to
 * the next. */
static bool matmul_is_by_columns(uint64_t rows, uint64_t columns, int64_t row, int64_t column, uint64_t most,
                                 uint64_t *pitch)
{
    bool dense = rows == 1 || row == 1;
    *pitch = columns == 1 ? rows : (uint64_t)column;
    return dense && (columns == 1 || column > 0) && *pitch >= rows && *pitch <= most;
}

/* True if a library can read a factor: the factor, or its transpose, is stored by columns. */
static bool matmul_fit_factor(uint64_t rows, uint64_t columns, int64_t row, int64_t column, uint64_t most,
                              uint8_t *transpose, uint64_t *pitch)
{
    *transpose = 0;
    if (matmul_is_by_columns(rows, columns, row, column, most, pitch)) {
        return true;
    }
    *transpose = 1;
    return matmul_is_by_columns(columns, rows, column, row, most, pitch);
}

/* True if a library can write c: c is stored by columns or by rows. For rows, *swapped is set, and
 * the library solves the transposed problem. */
static bool matmul_fit_result(const hdi_matmul_problem *p, uint64_t most, bool *swapped, uint64_t *pitch)
{
    *swapped = false;
    if (matmul_is_by_columns(p->m, p->n, p->row[HDI_C], p->column[HDI_C], most, pitch)) {
        return true;
    }
    *swapped = true;
    return matmul_is_by_columns(p->n, p->m, p->column[HDI_C], p->row[HDI_C], most, pitch);
}

typedef struct fit {
    bool operand[HDI_OPERANDS];
    bool swapped;
    uint8_t transpose[2];
    uint64_t pitch[HDI_OPERANDS];
} fit;

/* Determines the operands that a library takes without a copy. */
static fit matmul_fit_all(const hdi_matmul_problem *p, uint64_t most)
{
    fit f = {.swapped = false};
    f.operand[HDI_C] = matmul_fit_result(p, most, &f.swapped, &f.pitch[HDI_C]);
    /* In the transposed problem, rows and columns of the factors are exchanged. */
    f.operand[HDI_A] = f.swapped ? matmul_fit_factor(p->k, p->m, p->column[HDI_A], p->row[HDI_A], most,
                                                     &f.transpose[HDI_A], &f.pitch[HDI_A])
                                 : matmul_fit_factor(p->m, p->k, p->row[HDI_A], p->column[HDI_A], most,
                                                     &f.transpose[HDI_A], &f.pitch[HDI_A]);
    f.operand[HDI_B] = f.swapped ? matmul_fit_factor(p->n, p->k, p->column[HDI_B], p->row[HDI_B], most,
                                                     &f.transpose[HDI_B], &f.pitch[HDI_B])
                                 : matmul_fit_factor(p->k, p->n, p->row[HDI_B], p->column[HDI_B], most,
                                                     &f.transpose[HDI_B], &f.pitch[HDI_B]);
    return f;
}

static bool matmul_all_fit(const fit *f)
{
    return f->operand[HDI_A] && f->operand[HDI_B] && f->operand[HDI_C];
}

static uint64_t matmul_batch_count(const hdi_matmul_problem *p)
{
    uint64_t count = 1;
    for (uint32_t d = 0; d < p->dims; d++) {
        count *= p->batch[d];
    }
    return count;
}

static void matmul_fill_product(const hdi_matmul_problem *p, const fit *f, hdi_matmul_plan *out)
{
    int64_t size = (int64_t)hdi_product_size(p->type);
    uint32_t longest = 0;
    for (uint32_t d = 1; d < p->dims; d++) {
        longest = p->batch[d] > p->batch[longest] ? d : longest;
    }
    int first = f->swapped ? HDI_B : HDI_A, second = f->swapped ? HDI_A : HDI_B;
    bool batched = p->dims > 0;
    out->product = (hdi_product){
        .type = (uint8_t)p->type,
        .transpose_a = f->transpose[first],
        .transpose_b = f->transpose[second],
        .a = p->offset[first],
        .b = p->offset[second],
        .c = p->offset[HDI_C],
        .m = f->swapped ? p->n : p->m,
        .n = f->swapped ? p->m : p->n,
        .k = p->k,
        .pitch_a = f->pitch[first],
        .pitch_b = f->pitch[second],
        .pitch_c = f->pitch[HDI_C],
        .step_a = batched ? p->step[first][longest] : 0,
        .step_b = batched ? p->step[second][longest] : 0,
        .step_c = batched ? p->step[HDI_C][longest] : 0,
        .count = batched ? p->batch[longest] : 1,
        .alpha = p->alpha,
        .beta = p->beta,
    };
    out->first = first;
    out->second = second;
    out->calls = 1;
    for (uint32_t d = 0; d < p->dims; d++) {
        if (d != longest) {
            out->loop[out->loops] = p->batch[d];
            for (int o = 0; o < HDI_OPERANDS; o++) {
                out->step[o][out->loops] = p->step[o][d] * size;
            }
            out->calls *= p->batch[d];
            out->loops++;
        }
    }
}

hdi_product hdi_matmul_call(const hdi_matmul_plan *plan, uint64_t number)
{
    hdi_product p = plan->product;
    for (uint32_t d = plan->loops; d-- > 0;) {
        uint64_t index = number % plan->loop[d];
        number /= plan->loop[d];
        p.a += index * (uint64_t)plan->step[plan->first][d];
        p.b += index * (uint64_t)plan->step[plan->second][d];
        p.c += index * (uint64_t)plan->step[HDI_C][d];
    }
    return p;
}

/* Plans the product for the library. True: the library takes it, perhaps after the operands in
 * `pack` were copied. */
static bool matmul_plan_library(const hdi_matmul_problem *p, const hdi_matmul_facts *facts, hdi_matmul_plan *out)
{
    if (!(facts->types >> p->type & 1) || p->m > facts->most || p->n > facts->most || p->k > facts->most) {
        return false;
    }
    hdi_matmul_problem folded = *p;
    while (matmul_fold_batch(&folded)) {
    }
    fit f = matmul_fit_all(&folded, facts->most);
    if (matmul_all_fit(&f) && folded.m <= facts->most && folded.n <= facts->most) {
        p = &folded;
    } else {
        f = matmul_fit_all(p, facts->most);
    }
    uint64_t most = 1;
    for (uint32_t d = 0; d < p->dims; d++) {
        most = p->batch[d] > most ? p->batch[d] : most;
    }
    if (most > facts->most_count || matmul_batch_count(p) / most > CALLS_MOST) {
        return false;
    }
    out->kind = HDI_MATMUL_LIBRARY;
    if (matmul_all_fit(&f)) {
        matmul_fill_product(p, &f, out);
        return true;
    }
    bool worth = p->m >= PACK_LEAST && p->n >= PACK_LEAST && p->k >= PACK_LEAST;
    for (int o = 0; o < HDI_OPERANDS; o++) {
        out->pack[o] = !f.operand[o];
    }
    return facts->can_pack && worth;
}

/* ---- the plan for the built-in kernel ---- */

static void matmul_plan_builtin(const hdi_matmul_problem *problem, const hdi_matmul_facts *facts, hdi_matmul_plan *out)
{
    hdi_matmul_problem p = *problem;
    int64_t size = (int64_t)hdi_product_size(p.type);
    while (matmul_fold_batch(&p)) {
    }
    *out = (hdi_matmul_plan){
        .kind = HDI_MATMUL_BUILTIN, .reads_factors = out->reads_factors, .first = HDI_A, .second = HDI_B};
    /* The kernel writes c fast if neighbouring elements of a row are adjacent. So if c is stored by
     * columns, the kernel solves the transposed problem. */
    bool swapped = hdi_stride_size(p.row[HDI_C]) < hdi_stride_size(p.column[HDI_C]) && p.m > 1;
    int first = swapped ? HDI_B : HDI_A, second = swapped ? HDI_A : HDI_B;
    out->first = first;
    out->second = second;
    hdi_matmul_shape *s = &out->shape;
    s->m = swapped ? p.n : p.m;
    s->n = swapped ? p.m : p.n;
    s->k = p.k;
    s->first_a = (int64_t)(p.offset[first] - p.low[first]) / size;
    s->first_b = (int64_t)(p.offset[second] - p.low[second]) / size;
    s->first_c = (int64_t)(p.offset[HDI_C] - p.low[HDI_C]) / size;
    const int64_t *row = swapped ? p.column : p.row, *column = swapped ? p.row : p.column;
    s->row_a = row[first], s->column_a = column[first];
    s->row_b = row[second], s->column_b = column[second];
    s->row_c = row[HDI_C], s->column_c = column[HDI_C];
    s->alpha = p.alpha;
    s->beta = p.beta;
    s->count = matmul_batch_count(&p);
    s->batch_dims = p.dims;
    for (uint32_t d = 0; d < p.dims; d++) {
        s->batch[d] = p.batch[d];
        s->step_a[d] = p.step[first][d];
        s->step_b[d] = p.step[second][d];
        s->step_c[d] = p.step[HDI_C][d];
    }
    for (uint32_t d = p.dims; d < HDI_MATMUL_BATCH; d++) {
        s->batch[d] = 1;
    }
    uint64_t inside = size < 4 ? 4 : (uint64_t)size;
    out->tiles = hdi_matmul_tiles(facts->gpu, inside, s->m, s->n, s->count);
}

/* Sets the strides of factors that are not read to 0. Such strides may be any numbers, and products
 * of them could overflow. */
static void matmul_forget_factors(hdi_matmul_problem *p)
{
    for (int o = HDI_A; o <= HDI_B; o++) {
        p->row[o] = p->column[o] = 0;
        p->offset[o] = p->low[o];
        memset(p->step[o], 0, sizeof p->step[o]);
    }
}

void hdi_matmul_make_plan(const hdi_matmul_problem *problem, const hdi_matmul_facts *facts, hdi_matmul_plan *out)
{
    hdi_matmul_problem p = *problem;
    *out = (hdi_matmul_plan){.kind = HDI_MATMUL_NOTHING};
    if (p.low[HDI_C] == p.high[HDI_C]) {
        return;
    }
    /* With k = 0 or alpha = 0, c is only multiplied by beta, and the factors are not read. The
     * built-in kernel does this, since libraries differ in this case. */
    p.k = p.alpha == 0 ? 0 : p.k;
    out->reads_factors = p.k > 0;
    if (p.k == 0) {
        matmul_forget_factors(&p);
    }
    matmul_join_batch(&p);
    if (p.k == 0 || !matmul_plan_library(&p, facts, out)) {
        matmul_plan_builtin(&p, facts, out);
    }
}

/* A product with its operands and the results of the checks. */
typedef struct product {
    hd_lane *lane;
    hdi_same same; /* the word of the lane's handle */
    hd_tensor tensor[HDI_OPERANDS];
    double alpha, beta;
    hdi_extent extent[HDI_OPERANDS];
    hdi_matmul_problem problem;
    hdi_use use[HDI_OPERANDS];
} product;

static const char *const names[HDI_OPERANDS] = {"a", "b", "c"};

/* ---- checks ---- */

static hd_status matmul_check_buffer(product *p, int which)
{
    hdi_device *device = p->lane->device;
    hd_runtime *rt = device->runtime;
    const hdi_extent *e = &p->extent[which];
    struct hd_buffer *b = e->buffer;
    assert(b != NULL); /* hdi_tensor_check found it */
    if (b->runtime != rt) {
        return hdi_fail(HD_ERROR_HANDLE, "%s is of another runtime than the lane", names[which]);
    }
    p->use[which] = (hdi_use){.buffer = b,
                              .losses = hdi_buffer_losses(b),
                              .word = hdi_self_word(p->tensor[which].buffer),
                              .low = e->low,
                              .high = e->high,
                              .whole = e->low == 0 && e->high == b->bytes,
                              .read = true};
    bool lost = p->use[which].losses == HDI_LOST;
    /* Read once: the structure may pass to another buffer, and the submission detects that. */
    int owner = b->owner;
    bool reaches = lost || e->elements == 0 || hdi_buffer_is_reached(b, owner, device->index);
    if (lost || (!reaches && hdi_buffer_is_gone(b, p->tensor[which].buffer))) {
        return hdi_fail_about(hdi_buffer_refused(p->tensor[which].buffer), "%s", names[which]);
    }
    return reaches ? HD_OK : HDI_FAIL_ABOUT(hdi_buffer_reach_again(b, owner, device->index), "%s", names[which]);
}

/* Notes the use of c, which is written. If beta is not 0, or if other bytes lie between the
 * elements of c, c also counts as read. So newer bytes on the host are not lost, and bytes that a
 * failed operation should have written stay failed. */
static void matmul_note_result(product *p)
{
    const hdi_extent *c = &p->extent[HDI_C];
    uint64_t written = c->elements * hdi_product_size(p->problem.type);
    hdi_use *use = &p->use[HDI_C];
    use->write = true;
    use->read = p->beta != 0 || written != c->high - c->low;
}

static hd_status matmul_check_all(product *p)
{
    hd_status status = HD_OK;
    for (int i = HDI_OPERANDS - 1; i >= 0 && !status; i--) {
        status = hdi_tensor_check(&p->tensor[i], names[i], &p->extent[i]);
    }
    status = status ? status : hdi_matmul_read(p->tensor, p->extent, p->alpha, p->beta, &p->problem);
    for (int i = HDI_OPERANDS - 1; i >= 0 && !status; i--) {
        status = matmul_check_buffer(p, i);
    }
    if (!status) {
        matmul_note_result(p);
    }
    return status;
}

/* ---- submitting ---- */

/* Lists the uses of the operands that the plan needs. The last use is that of c. */
static size_t matmul_uses_of(const product *p, const hdi_matmul_plan *plan, hdi_use uses[HDI_OPERANDS])
{
    size_t n = plan->reads_factors ? HDI_OPERANDS : 1;
    memcpy(uses, p->use + HDI_OPERANDS - n, n * sizeof uses[0]);
    return n;
}

static hd_status matmul_submit_calls(const product *p, const hdi_matmul_plan *plan, hd_ticket *out)
{
    hdi_use uses[HDI_OPERANDS];
    size_t n_uses = matmul_uses_of(p, plan, uses);
    hd_status status = HD_OK;
    for (uint64_t i = 0; i < plan->calls && !status; i++) {
        uses[n_uses - 1].read |= i > 0; /* c contains results of earlier calls, which must stay */
        hdi_product call = hdi_matmul_call(plan, i);
        call.a += p->extent[plan->first].buffer->address;
        call.b += p->extent[plan->second].buffer->address;
        call.c += p->extent[HDI_C].buffer->address;
        hdi_command command[HDI_MATMUL_SLOTS];
        memcpy(command, &call, sizeof call);
        command[0].op = HDI_OP_MATMUL;
        command[0].slots = HDI_MATMUL_SLOTS;
        command[0].kind = 0;
        status = hdi_submit_linked(p->lane, uses, n_uses, command, (hdi_linked){.same = &p->same}, out);
    }
    return status;
}

/* The kernel's argument block. */
typedef struct arguments {
    uint64_t c, a, b;
    hdi_matmul_shape shape;
} arguments;

static hd_status matmul_submit_kernel(const product *p, const hdi_matmul_plan *plan, hd_ticket *out)
{
    hdi_device *device = p->lane->device;
    struct hd_kernel *kernel = NULL;
    hd_status status = hdi_products_kernel(device->runtime, p->problem.type, &kernel);
    if (status) {
        return status;
    }
    uint64_t at[HDI_OPERANDS];
    for (int i = 0; i < HDI_OPERANDS; i++) {
        at[i] = p->extent[i].buffer->address + p->extent[i].low;
    }
    /* The address of a factor that is not read may lie behind the end of its buffer. So for such a
     * factor the kernel gets the address of c. */
    arguments args = {.c = at[HDI_C],
                      .a = plan->reads_factors ? at[plan->first] : at[HDI_C],
                      .b = plan->reads_factors ? at[plan->second] : at[HDI_C],
                      .shape = plan->shape};
    hdi_use uses[HDI_OPERANDS];
    size_t n_uses = matmul_uses_of(p, plan, uses);
    bool gpu = device->runtime->provider->threads_parallel;
    uint32_t most = device->limits.grid[0];
    return hdi_launch_linked(p->lane, kernel, plan->tiles < most ? (uint32_t)plan->tiles : most,
                             gpu ? HDI_MATMUL_THREADS : 1, 0, &args, uses, n_uses, (hdi_linked){.same = &p->same}, out);
}

/* ---- operands that must be dense for a library ---- */

/* An operand that contains each element once: batch dimensions that repeat matrices get size 1. */
static hd_tensor matmul_without_repeats(const hd_tensor *t)
{
    hd_tensor once = *t;
    for (int i = 0; i < once.dims - 2; i++) {
        once.shape[i] = once.stride[i] == 0 ? 1 : once.shape[i];
    }
    return once;
}

/* Allocates a row-major tensor of the same shape. */
static hd_status matmul_make_dense(hd_lane *lane, const hd_tensor *like, hd_tensor *out)
{
    uint64_t bytes;
    if (!hdi_tensor_bytes(like, &bytes)) {
        return hdi_fail(HD_ERROR_MEMORY, "an operand's copy takes 2^63 bytes or more");
    }
    hd_buffer *buffer = NULL;
    hd_status status = hdi_tensor_scratch(lane->device, bytes, &buffer);
    *out = hdi_tensor_row_major(like, buffer);
    return status;
}

static hd_status matmul_run(product *p, bool can_pack, hd_ticket *out);

static hd_status matmul_run_packed(const product *p, const bool *pack, hd_ticket *out)
{
    product dense = {.lane = p->lane, .alpha = p->alpha, .beta = p->beta};
    memcpy(dense.tensor, p->tensor, sizeof dense.tensor);
    hd_status status = HD_OK;
    for (int i = 0; i < HDI_OPERANDS && !status; i++) {
        if (pack[i]) {
            hd_tensor once = matmul_without_repeats(&p->tensor[i]);
            status = matmul_make_dense(p->lane, &once, &dense.tensor[i]);
            if (!status && (i != HDI_C || p->beta != 0)) {
                status = hdi_tensor_copy_as(&dense.tensor[i], &once, NULL, NULL);
            }
        } else {
            dense.tensor[i].buffer = p->tensor[i].buffer;
        }
    }
    status = status ? status : matmul_check_all(&dense);
    status = status ? status : matmul_run(&dense, false, out);
    if (!status && pack[HDI_C]) {
        status = hdi_tensor_copy_as(&p->tensor[HDI_C], &dense.tensor[HDI_C], NULL, out);
    }
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    for (int i = 0; i < HDI_OPERANDS; i++) {
        if (pack[i] && dense.tensor[i].buffer != p->tensor[i].buffer) {
            /* submitted operations keep the memory until they are done */
            hdi_free(dense.tensor[i].buffer);
        }
    }
    hdi_attempt_end(&attempt);
    return status;
}

static hd_status matmul_run(product *p, bool can_pack, hd_ticket *out)
{
    const hdi_blas_facts *library = NULL;
    hd_status status = hdi_products_library(p->lane, &library);
    if (status) {
        return status;
    }
    hdi_matmul_facts facts = {.types = library->types,
                              .most = library->most,
                              .most_count = library->most_count,
                              .gpu = p->lane->device->runtime->provider->threads_parallel,
                              .can_pack = can_pack};
    hdi_matmul_plan plan;
    hdi_matmul_make_plan(&p->problem, &facts, &plan);
    if (plan.kind != HDI_MATMUL_LIBRARY) {
        return matmul_submit_kernel(p, &plan, out);
    }
    if (!plan.pack[HDI_A] && !plan.pack[HDI_B] && !plan.pack[HDI_C]) {
        return matmul_submit_calls(p, &plan, out);
    }
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    status = matmul_run_packed(p, plan.pack, out);
    /* If no memory is left for dense copies, use the built-in kernel, which needs no copies. */
    if (status == HD_ERROR_MEMORY) {
        status = matmul_run(p, false, out);
    }
    return hdi_attempt_result(&attempt, status);
}

hd_status hd_tensor_matmul(hd_lane *handle, const hd_tensor *c, const hd_tensor *a, const hd_tensor *b, double alpha,
                           double beta, hd_ticket *out)
{
    HDI_INSIDE(hdi_lane_runtime(handle));
    product p = {
        .lane = hdi_lane_from_handle(handle), .same = {.lane = hdi_lane_word(handle)}, .alpha = alpha, .beta = beta};
    if (!p.lane) {
        return hdi_lane_refused(handle);
    }
    if (!c || !a || !b) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%s is null", !c ? "c" : !a ? "a" : "b");
    }
    p.tensor[HDI_A] = *a;
    p.tensor[HDI_B] = *b;
    p.tensor[HDI_C] = *c;
    hd_ticket ticket = {NULL, 0};
    hd_status status = matmul_check_all(&p);
    if (!status && p.extent[HDI_C].elements > 0) {
        status = matmul_run(&p, true, &ticket);
    }
    if (!status && out) {
        *out = ticket;
    }
    return status;
}

hd_status hd_matmul_get_info(hd_lane *handle, hd_matmul_info *out)
{
    HDI_INSIDE(hdi_lane_runtime(handle));
    hd_lane *lane = hdi_lane_from_handle(handle);
    if (!lane) {
        return hdi_lane_refused(handle);
    }
    if (!out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "out is null");
    }
    hd_status status = HDI_SIZED_CHECK(hd_matmul_info, out);
    const hdi_blas_facts *library = NULL;
    status = status ? status : hdi_products_library(lane, &library);
    if (status) {
        return status;
    }
    hd_matmul_info info = {.size = sizeof info};
    snprintf(info.library, sizeof info.library, "%s", library->name);
    snprintf(info.reason, sizeof info.reason, "%s", library->why);
    HDI_SIZED_OUT(hd_matmul_info, out, &info);
    return HD_OK;
}
