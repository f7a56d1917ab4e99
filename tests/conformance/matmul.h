/* matmul.h - for the tests of matrix products: elements of all types, operands in all layouts, a
 * reference in double precision.
 *
 * Threads: any, each with its own operands.
 * Locks: none.
 */
#ifndef CONFORMANCE_MATMUL_H
#define CONFORMANCE_MATMUL_H

#include "libraries.h"

#include <complex.h>
#include <math.h>

typedef double complex mm_number;

/* ---- elements ---- */

enum { MM_TYPES = 6 };
static const hd_type mm_types[MM_TYPES] = {HD_TYPE_F32,  HD_TYPE_F64, HD_TYPE_C64,
                                           HD_TYPE_C128, HD_TYPE_F16, HD_TYPE_BF16};

static inline const char *mm_name(hd_type type)
{
    static const char *const names[] = {"f16", "bf16", "f32", "f64", "c64", "c128"};
    return names[type - HD_TYPE_F16];
}

static inline size_t mm_size(hd_type type)
{
    return type == HD_TYPE_C128 ? 16 : type == HD_TYPE_F64 || type == HD_TYPE_C64 ? 8 : type == HD_TYPE_F32 ? 4 : 2;
}

static inline bool mm_is_complex(hd_type type)
{
    return type == HD_TYPE_C64 || type == HD_TYPE_C128;
}

/* f16 and bf16 by their definition: `bits` of fraction, and the least exponent. The greatest finite
 * number is below 2^over. */
static inline uint16_t mm_short_of(double x, int bits, int least, int over)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    int exponent = 0, width = 15 - bits;
    uint16_t infinite = (uint16_t)(((1 << width) - 1) << bits);
    if (isnan(x)) {
        return (uint16_t)(sign | infinite | 1 << (bits - 1));
    }
    x = fabs(x);
    if (x == 0) {
        return sign;
    }
    frexp(x, &exponent); /* x = 0.1... * 2^exponent */
    exponent = exponent - 1 < least ? least : exponent - 1;
    double units = isinf(x) ? 0 : nearbyint(ldexp(x, bits - exponent)); /* ties to even */
    if (isinf(x) || ldexp(units, exponent - bits) >= ldexp(1, over)) {
        return (uint16_t)(sign | infinite);
    }
    long whole = (long)units;
    long encoded = exponent == least && whole < 1L << bits ? whole : whole + ((long)(exponent - least) << bits);
    return (uint16_t)(sign | encoded);
}

static inline double mm_of_short(uint16_t h, int bits, int least)
{
    int width = 15 - bits, exponent = h >> bits & ((1 << width) - 1);
    double fraction = h & ((1 << bits) - 1), x;
    if (exponent == (1 << width) - 1) {
        x = fraction != 0 ? (double)NAN : (double)INFINITY;
    } else {
        x = exponent == 0 ? ldexp(fraction, least - bits) : ldexp(fraction + (1 << bits), exponent - 1 + least - bits);
    }
    return h & 0x8000 ? -x : x;
}

static inline void mm_set(hd_type type, void *at, mm_number x)
{
    float f[2] = {(float)creal(x), (float)cimag(x)};
    double d[2] = {creal(x), cimag(x)};
    uint16_t h = type == HD_TYPE_F16 ? mm_short_of(creal(x), 10, -14, 16) : mm_short_of(creal(x), 7, -126, 128);
    bool wide = type == HD_TYPE_F64 || type == HD_TYPE_C128, narrow = type == HD_TYPE_F16 || type == HD_TYPE_BF16;
    memcpy(at, wide ? (void *)d : narrow ? (void *)&h : (void *)f, mm_size(type));
}

static inline mm_number mm_get(hd_type type, const void *at)
{
    float f[2] = {0, 0};
    double d[2] = {0, 0};
    uint16_t h = 0;
    if (type == HD_TYPE_F16 || type == HD_TYPE_BF16) {
        memcpy(&h, at, 2);
        return type == HD_TYPE_F16 ? mm_of_short(h, 10, -14) : mm_of_short(h, 7, -126);
    }
    if (type == HD_TYPE_F64 || type == HD_TYPE_C128) {
        memcpy(d, at, mm_size(type));
        return d[0] + d[1] * I;
    }
    memcpy(f, at, mm_size(type));
    return f[0] + f[1] * I;
}

/* ---- operands ---- */

typedef enum mm_layout {
    MM_ROWS,           /* elements of a row side by side */
    MM_COLUMNS,        /* elements of a column side by side */
    MM_PADDED_ROWS,    /* with a gap behind each row */
    MM_PADDED_COLUMNS, /* with a gap behind each column */
    MM_SPARSE,         /* every second element, and a gap */
    MM_BACKWARDS,      /* from the last row and column to the first */
    MM_LAYOUTS
} mm_layout;

typedef struct mm_operand {
    hd_tensor tensor; /* its buffer is NULL until it is put on a device */
    uint8_t *data;    /* the content of the whole buffer */
    size_t bytes;
} mm_operand;

/* Makes an operand of random numbers between -1 and 1. It begins some elements into its buffer. The
 * bytes between its elements are random, too. */
CONF_UNUSED static mm_operand mm_make(hd_type type, int dims, const uint64_t *shape, mm_layout layout, size_t before,
                                      conf_random *r)
{
    mm_operand o = {.tensor = {.type = type, .dims = dims}};
    hd_tensor *t = &o.tensor;
    int64_t size = (int64_t)mm_size(type);
    memcpy(t->shape, shape, (size_t)dims * sizeof shape[0]);
    int64_t rows = (int64_t)shape[dims - 2], columns = (int64_t)shape[dims - 1];
    int64_t gap = layout == MM_PADDED_ROWS || layout == MM_PADDED_COLUMNS || layout == MM_SPARSE ? 3 : 0;
    int64_t step = layout == MM_SPARSE ? 2 : 1;
    bool by_columns = layout == MM_COLUMNS || layout == MM_PADDED_COLUMNS;
    int64_t pitch = ((by_columns ? rows : columns) + gap) * step;
    int64_t matrix = pitch * (by_columns ? columns : rows);
    t->stride[dims - 2] = (by_columns ? step : pitch) * size;
    t->stride[dims - 1] = (by_columns ? pitch : step) * size;
    t->offset = before * (size_t)size;
    if (layout == MM_BACKWARDS && rows > 0 && columns > 0) {
        t->offset += (size_t)((rows - 1) * t->stride[dims - 2] + (columns - 1) * t->stride[dims - 1]);
        t->stride[dims - 2] *= -1;
        t->stride[dims - 1] *= -1;
    }
    for (int i = dims - 3; i >= 0; i--) {
        t->stride[i] = matrix * size;
        matrix *= (int64_t)shape[i];
    }
    o.bytes = (before + (size_t)matrix + 5) * (size_t)size;
    o.data = conf_memory(o.bytes);
    for (size_t i = 0; i < o.bytes; i += (size_t)size) {
        double re = (double)(conf_next(r) >> 11) * 0x1p-52 - 1, im = (double)(conf_next(r) >> 11) * 0x1p-52 - 1;
        mm_set(type, o.data + i, re + (mm_is_complex(type) ? im : 0) * I);
    }
    return o;
}

CONF_UNUSED static void mm_put(mm_operand *o, hd_lane *lane)
{
    CONF_OK(hd_alloc(lane, o->bytes, &o->tensor.buffer));
    CONF_OK(hd_write(o->tensor.buffer, 0, o->data, o->bytes));
}

CONF_UNUSED static void mm_free(mm_operand *o)
{
    hd_free(o->tensor.buffer);
    free(o->data);
    *o = (mm_operand){.bytes = 0};
}

/* Returns the place of an element. It skips leading dimensions of the index that the tensor lacks.
 * Dimensions of size 1 count as 0. */
CONF_UNUSED static size_t mm_at(const hd_tensor *t, int dims, const uint64_t *batch, uint64_t row, uint64_t column)
{
    int64_t at = (int64_t)t->offset + (int64_t)row * t->stride[t->dims - 2] + (int64_t)column * t->stride[t->dims - 1];
    for (int i = 0; i < t->dims - 2; i++) {
        uint64_t index = batch[dims - t->dims + i];
        at += t->shape[i] == 1 ? 0 : (int64_t)index * t->stride[i];
    }
    return (size_t)at;
}

/* Returns the error that an element may have.
 *
 * - Each of k products and sums is rounded once in the type of the calculation, in any order.
 *   The same holds for alpha, beta and the last sum.
 * - A stored value is rounded once more, in the result and in the reference.
 * - Complex products take four roundings instead of one. */
static inline double mm_tolerance(hd_type type, uint64_t k, double sum_of_sizes, double result)
{
    double epsilon = type == HD_TYPE_F64 || type == HD_TYPE_C128 ? 0x1p-53 : 0x1p-24;
    double stored = type == HD_TYPE_F16 ? 0x1p-11 : type == HD_TYPE_BF16 ? 0x1p-8 : epsilon;
    double tiny = type == HD_TYPE_F16 ? 0x1p-25 : 0;
    double times = mm_is_complex(type) ? 4 : 1;
    return times * (double)(k + 4) * epsilon * sum_of_sizes + 2 * (stored * result + tiny);
}

/* Writes the correct product into c's data. `allowed` gets the error that each element may have.
 * Its index is the byte offset in c's data / element size. It may be NULL. */
CONF_UNUSED static void mm_reference(mm_operand *c, const mm_operand *a, const mm_operand *b, double alpha, double beta,
                                     double *allowed)
{
    const hd_tensor *t = &c->tensor;
    size_t size = mm_size(t->type);
    int dims = t->dims;
    uint64_t m = t->shape[dims - 2], n = t->shape[dims - 1], k = a->tensor.shape[a->tensor.dims - 1], matrices = 1;
    for (int i = 0; i < dims - 2; i++) {
        matrices *= t->shape[i];
    }
    for (uint64_t number = 0; number < matrices * m * n; number++) {
        uint64_t batch[HD_TENSOR_DIMS] = {0}, rest = number / (m * n), i = number / n % m, j = number % n;
        for (int d = dims - 3; d >= 0; d--) {
            batch[d] = rest % t->shape[d];
            rest /= t->shape[d];
        }
        mm_number sum = 0;
        double sizes = 0;
        for (uint64_t l = 0; l < k && alpha != 0; l++) {
            mm_number x = mm_get(t->type, a->data + mm_at(&a->tensor, dims, batch, i, l));
            mm_number y = mm_get(t->type, b->data + mm_at(&b->tensor, dims, batch, l, j));
            sum += x * y;
            sizes += cabs(x) * cabs(y);
        }
        size_t at = mm_at(t, dims, batch, i, j);
        mm_number before = beta == 0 ? 0 : mm_get(t->type, c->data + at);
        mm_number result = alpha == 0 ? beta * before : alpha * sum + beta * before;
        mm_set(t->type, c->data + at, result);
        if (allowed != NULL) {
            allowed[at / size] =
                mm_tolerance(t->type, k, fabs(alpha) * sizes + fabs(beta) * cabs(before), cabs(result));
        }
    }
}

static inline bool mm_is_nan(mm_number x)
{
    return isnan(creal(x)) || isnan(cimag(x));
}

/* Checks that c's buffer contains the reference, within the allowed error. The bytes between c's
 * elements must not change. */
CONF_UNUSED static void mm_compare(const mm_operand *c, const double *allowed, const char *what)
{
    hd_type type = c->tensor.type;
    size_t size = mm_size(type);
    uint8_t *got = conf_memory(c->bytes);
    conf_ok_at(hd_read(c->tensor.buffer, 0, got, c->bytes), what, __FILE__, __LINE__);
    for (size_t at = 0; at < c->bytes; at += size) {
        mm_number x = mm_get(type, got + at), y = mm_get(type, c->data + at);
        bool good = allowed[at / size] < 0 ? memcmp(got + at, c->data + at, size) == 0
                    : mm_is_nan(y)         ? mm_is_nan(x)
                                           : cabs(x - y) <= allowed[at / size];
        if (!good) {
            double limit = allowed[at / size];
            free(got);
            conf_fail_at(__FILE__, __LINE__, "%s: element %zu is %.9g + %.9g i, not %.9g + %.9g i within %.3g", what,
                         at / size, creal(x), cimag(x), creal(y), cimag(y), limit);
            return;
        }
    }
    free(got);
}

/* Makes the product on the device and here, and compares both. The operands are on the device. */
CONF_UNUSED static void mm_check(hd_lane *lane, mm_operand *c, const mm_operand *a, const mm_operand *b, double alpha,
                                 double beta, const char *what)
{
    size_t elements = c->bytes / mm_size(c->tensor.type);
    double *allowed = conf_memory(elements * sizeof *allowed);
    for (size_t i = 0; i < elements; i++) {
        allowed[i] = -1;
    }
    hd_ticket ticket = {NULL, 0};
    conf_ok_at(hd_tensor_matmul(lane, &c->tensor, &a->tensor, &b->tensor, alpha, beta, &ticket), what, __FILE__,
               __LINE__);
    mm_reference(c, a, b, alpha, beta, allowed);
    conf_ok_at(hd_wait(ticket, 100 * CONF_SECOND), what, __FILE__, __LINE__);
    mm_compare(c, allowed, what);
    free(allowed);
}

/* ---- shapes ---- */

/* One product of operands with these layouts and shapes; c's shape follows from `batch`. */
typedef struct shapes {
    int dims_a, dims_b, dims_c;
    uint64_t a[HD_TENSOR_DIMS], b[HD_TENSOR_DIMS], c[HD_TENSOR_DIMS];
} shapes;

CONF_UNUSED static shapes plain(uint64_t m, uint64_t n, uint64_t k)
{
    return (shapes){2, 2, 2, {m, k}, {k, n}, {m, n}};
}

CONF_UNUSED static void try_one(hd_lane *lane, hd_type type, const shapes *s, const mm_layout layout[3], double alpha,
                                double beta, uint64_t seed, const char *way)
{
    char what[256];
    conf_random r = {seed};
    const uint64_t *c = s->c + s->dims_c - 2;
    snprintf(what, sizeof what,
             "%s, %s, %d x %d (batch of %d dimensions), k %d, layouts %d %d -> %d, alpha %g, beta %g", way,
             mm_name(type), (int)c[0], (int)c[1], s->dims_c - 2, (int)s->a[s->dims_a - 1], layout[0], layout[1],
             layout[2], alpha, beta);
    mm_operand oa = mm_make(type, s->dims_a, s->a, layout[0], 3, &r);
    mm_operand ob = mm_make(type, s->dims_b, s->b, layout[1], 0, &r);
    mm_operand oc = mm_make(type, s->dims_c, s->c, layout[2], 1, &r);
    mm_put(&oa, lane);
    mm_put(&ob, lane);
    mm_put(&oc, lane);
    mm_check(lane, &oc, &oa, &ob, alpha, beta, what);
    mm_free(&oa);
    mm_free(&ob);
    mm_free(&oc);
}

/* Returns rows side by side from the beginning of a buffer. */
CONF_UNUSED static hd_tensor tensor(hd_buffer *buffer, hd_type type, uint64_t rows, uint64_t columns)
{
    int64_t size = (int64_t)mm_size(type);
    return (hd_tensor){
        .buffer = buffer, .type = type, .dims = 2, .shape = {rows, columns}, .stride = {(int64_t)columns * size, size}};
}

#endif
