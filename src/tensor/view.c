/* view.c - element types, tensors over buffers, other views of the same elements, and tests whether
 * elements share bytes.
 *
 * Threads: any.
 * Locks: none.
 * Blocking: none, except in hd_tensor_alloc (as hd_alloc). No function reads an element, so the
 * time does not depend on the size of the tensor.
 * Always:
 * - sums and products of the program's numbers are checked for overflow
 * - a function writes `out` last, since `out` may be the tensor that it reads
 */
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "base/presence.h"
#include "buffer/buffer.h"
#include "engine/engine.h"
#include "tensor/tensor.h"

#define ELEMENTS_MAX ((uint64_t)INT64_MAX)

static const struct {
    uint8_t bytes;
    const char *name;
} types[] = {
    [HD_TYPE_I8] = {1, "i8"},   [HD_TYPE_U8] = {1, "u8"},     [HD_TYPE_I16] = {2, "i16"}, [HD_TYPE_U16] = {2, "u16"},
    [HD_TYPE_I32] = {4, "i32"}, [HD_TYPE_U32] = {4, "u32"},   [HD_TYPE_I64] = {8, "i64"}, [HD_TYPE_U64] = {8, "u64"},
    [HD_TYPE_F16] = {2, "f16"}, [HD_TYPE_BF16] = {2, "bf16"}, [HD_TYPE_F32] = {4, "f32"}, [HD_TYPE_F64] = {8, "f64"},
    [HD_TYPE_C64] = {8, "c64"}, [HD_TYPE_C128] = {16, "c128"}};

size_t hd_type_size(hd_type type)
{
    return (unsigned)type < sizeof types / sizeof types[0] ? types[type].bytes : 0;
}

const char *hd_type_name(hd_type type)
{
    return hd_type_size(type) ? types[type].name : "?";
}

/* ---- looking at a tensor ---- */

const char *hdi_tensor_text(const hd_tensor *t, char out[HDI_TENSOR_TEXT_BYTES])
{
    size_t room = HDI_TENSOR_TEXT_BYTES;
    size_t at = (size_t)snprintf(out, room, "%s [", hd_type_name(t->type));
    for (int i = 0; i < t->dims; i++) {
        at += (size_t)snprintf(out + at, room - at, "%s%llu", i ? ", " : "", (unsigned long long)t->shape[i]);
    }
    snprintf(out + at, room - at, "]");
    return out;
}

/* The number of elements of a shape. If the size of one dimension is 0, the number is 0, whatever
 * the other dimensions are. False: the number is 2^63 or more. */
static bool tensor_count_elements(int dims, const uint64_t *shape, uint64_t *out)
{
    uint64_t n = 1;
    bool fits = true;
    for (int i = 0; i < dims; i++) {
        if (shape[i] == 0) {
            *out = 0;
            return true;
        }
        fits = fits && !__builtin_mul_overflow(n, shape[i], &n) && n <= ELEMENTS_MAX;
    }
    *out = n;
    return fits;
}

hd_status hdi_tensor_check_form(const hd_tensor *t, const char *which, uint64_t *elements)
{
    if (!t) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%s is null", which);
    }
    if (!hd_type_size(t->type)) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%s: %d is no element type", which, (int)t->type);
    }
    if (t->dims < 0 || t->dims > HD_TENSOR_DIMS) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%s: %d dimensions, 0 to %d are possible", which, t->dims, HD_TENSOR_DIMS);
    }
    if (!tensor_count_elements(t->dims, t->shape, elements)) {
        char text[HDI_TENSOR_TEXT_BYTES];
        return hdi_fail(HD_ERROR_ARGUMENT, "%s: %s has 2^63 elements or more", which, hdi_tensor_text(t, text));
    }
    return HD_OK;
}

bool hdi_tensor_bytes(const hd_tensor *t, uint64_t *bytes)
{
    uint64_t n = 0;
    return tensor_count_elements(t->dims, t->shape, &n) && !__builtin_mul_overflow(n, hd_type_size(t->type), bytes) &&
           *bytes <= ELEMENTS_MAX;
}

bool hdi_tensor_reach(const hd_tensor *t, uint64_t *before, uint64_t *behind)
{
    *before = 0;
    *behind = hd_type_size(t->type);
    for (int i = 0; i < t->dims; i++) {
        uint64_t steps = t->shape[i] - 1;
        uint64_t step = hdi_stride_size(t->stride[i]);
        uint64_t *end = t->stride[i] < 0 ? before : behind;
        uint64_t way;
        if (__builtin_mul_overflow(steps, step, &way) || __builtin_add_overflow(*end, way, end)) {
            return false;
        }
    }
    return true;
}

/* Fails for a tensor whose buffer was freed, or is no buffer. */
static hd_status tensor_refused(const hd_tensor *t, const char *which)
{
    return hdi_fail_about(hdi_buffer_refused(t->buffer), "%s", which);
}

hd_status hdi_tensor_check(const hd_tensor *t, const char *which, hdi_extent *out)
{
    uint64_t elements = 0;
    hd_status status = hdi_tensor_check_form(t, which, &elements);
    if (status) {
        return status;
    }
    struct hd_buffer *b = hdi_buffer_from_handle(t->buffer);
    if (!b) {
        return tensor_refused(t, which);
    }
    char text[HDI_TENSOR_TEXT_BYTES];
    uint64_t before = 0, behind = 0;
    if (elements != 0 && !hdi_tensor_reach(t, &before, &behind)) {
        return hdi_fail(HD_ERROR_RANGE, "%s: the elements of %s lie further apart than any buffer is large", which,
                        hdi_tensor_text(t, text));
    }
    bool outside = before > t->offset || behind > b->bytes || t->offset > b->bytes - behind;
    if (outside && hdi_buffer_is_gone(b, t->buffer)) {
        return tensor_refused(t, which);
    }
    if (outside && elements == 0) {
        return hdi_fail(HD_ERROR_RANGE, "%s begins at byte %zu of a buffer of %llu", which, t->offset,
                        (unsigned long long)b->bytes);
    }
    if (outside) {
        return hdi_fail(HD_ERROR_RANGE,
                        "%s: the elements of %s reach from %llu bytes before to %llu bytes behind byte %zu of a "
                        "buffer of %llu",
                        which, hdi_tensor_text(t, text), (unsigned long long)before, (unsigned long long)behind,
                        t->offset, (unsigned long long)b->bytes);
    }
    *out = (hdi_extent){b, t->offset - before, t->offset + behind, elements};
    return HD_OK;
}

uint64_t hd_tensor_elements(const hd_tensor *t)
{
    uint64_t n = 0;
    bool sound = t && hd_type_size(t->type) && t->dims >= 0 && t->dims <= HD_TENSOR_DIMS &&
                 tensor_count_elements(t->dims, t->shape, &n);
    return sound ? n : 0;
}

bool hd_tensor_is_contiguous(const hd_tensor *t)
{
    uint64_t elements;
    if (!t || !hd_type_size(t->type) || t->dims < 0 || t->dims > HD_TENSOR_DIMS ||
        !tensor_count_elements(t->dims, t->shape, &elements)) {
        return false;
    }
    uint64_t next = hd_type_size(t->type);
    for (int i = t->dims - 1; i >= 0 && elements > 0; i--) {
        if (t->shape[i] != 1 && (t->stride[i] < 0 || (uint64_t)t->stride[i] != next)) {
            return false;
        }
        if (__builtin_mul_overflow(next, t->shape[i], &next)) {
            return false;
        }
    }
    return true;
}

/* ---- making tensors ---- */

bool hdi_tensor_set_row_major(hd_tensor *t)
{
    int64_t next = (int64_t)hd_type_size(t->type), more;
    bool fits = true, empty = false;
    for (int i = t->dims - 1; i >= 0; i--) {
        t->stride[i] = next;
        uint64_t n = t->shape[i] ? t->shape[i] : 1;
        empty |= t->shape[i] == 0;
        if (n > ELEMENTS_MAX || __builtin_mul_overflow(next, (int64_t)n, &more)) {
            fits = false;
        } else {
            next = more;
        }
    }
    return fits || empty; /* no element uses a stride of an empty tensor */
}

hd_tensor hdi_tensor_row_major(const hd_tensor *like, hd_buffer *buffer)
{
    hd_tensor t = *like;
    t.buffer = buffer;
    t.offset = 0;
    hdi_tensor_set_row_major(&t);
    return t;
}

/* Sets *t to this shape with strides of 0. All other bytes of *t become 0, so that equal tensors
 * consist of equal bytes. Errors: ARGUMENT. */
static hd_status tensor_set_form(hd_tensor *t, hd_type type, int dims, const uint64_t *shape)
{
    if (dims > 0 && !shape) {
        return hdi_fail(HD_ERROR_ARGUMENT, "shape is null");
    }
    hd_tensor made;
    memset(&made, 0, sizeof made);
    made.type = type;
    made.dims = dims;
    if (dims >= 0 && dims <= HD_TENSOR_DIMS) {
        memcpy(made.shape, shape ? shape : made.shape, (size_t)dims * sizeof made.shape[0]);
    }
    uint64_t elements;
    hd_status status = hdi_tensor_check_form(&made, "the tensor", &elements);
    if (!status) {
        memcpy(t, &made, sizeof made);
    }
    return status;
}

static hd_status tensor_make(hd_buffer *buffer, size_t offset, hd_type type, int dims, const uint64_t *shape,
                             const int64_t *stride, hd_tensor *out)
{
    if (!out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "out is null");
    }
    hd_tensor t;
    hd_status status = tensor_set_form(&t, type, dims, shape);
    if (status) {
        return status;
    }
    t.buffer = buffer;
    t.offset = offset;
    if (stride) {
        memcpy(t.stride, stride, (size_t)dims * sizeof t.stride[0]);
    } else if (!hdi_tensor_set_row_major(&t)) {
        char text[HDI_TENSOR_TEXT_BYTES];
        return hdi_fail(HD_ERROR_ARGUMENT, "%s takes 2^63 bytes or more", hdi_tensor_text(&t, text));
    }
    hdi_extent extent;
    status = hdi_tensor_check(&t, "the tensor", &extent);
    if (!status) {
        *out = t;
    }
    return status;
}

hd_status hd_tensor_make(hd_buffer *buffer, size_t offset, hd_type type, int dims, const uint64_t *shape,
                         hd_tensor *out)
{
    HDI_INSIDE(hdi_buffer_runtime(buffer));
    return tensor_make(buffer, offset, type, dims, shape, NULL, out);
}

hd_status hd_tensor_make_strided(hd_buffer *buffer, size_t offset, hd_type type, int dims, const uint64_t *shape,
                                 const int64_t *stride, hd_tensor *out)
{
    HDI_INSIDE(hdi_buffer_runtime(buffer));
    if (!stride && dims > 0) {
        return hdi_fail(HD_ERROR_ARGUMENT, "stride is null");
    }
    static const int64_t none;
    return tensor_make(buffer, offset, type, dims, shape, stride ? stride : &none, out);
}

hd_status hd_tensor_alloc(hd_lane *lane, hd_type type, int dims, const uint64_t *shape, hd_tensor *out)
{
    HDI_INSIDE(hdi_lane_runtime(lane));
    if (!out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "out is null");
    }
    hd_tensor t;
    hd_status status = tensor_set_form(&t, type, dims, shape);
    if (status) {
        return status;
    }
    uint64_t bytes;
    if (!hdi_tensor_set_row_major(&t) || !hdi_tensor_bytes(&t, &bytes)) {
        char text[HDI_TENSOR_TEXT_BYTES];
        return hdi_fail(HD_ERROR_ARGUMENT, "%s takes 2^63 bytes or more", hdi_tensor_text(&t, text));
    }
    /* A tensor without elements also gets a buffer, so that programs can free all tensors in the
     * same way. */
    status = hdi_alloc_with(lane, bytes ? bytes : 1, NULL, __builtin_return_address(0), &t.buffer);
    if (!status) {
        *out = t;
    }
    return status;
}

/* ---- other views ---- */

/* The first checks of each function that makes a view. */
static hd_status tensor_check_view(const hd_tensor *t, const hd_tensor *out)
{
    if (!out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "out is null");
    }
    uint64_t elements;
    return hdi_tensor_check_form(t, "the tensor", &elements);
}

/* Adds steps * stride to the offset. False: the result overflows or is negative. This is possible
 * only for a tensor that does not fit into any buffer. */
static bool tensor_move_offset(size_t *offset, uint64_t steps, int64_t stride)
{
    int64_t way, sum;
    if (steps > (uint64_t)INT64_MAX || *offset > (size_t)INT64_MAX ||
        __builtin_mul_overflow((int64_t)steps, stride, &way) || __builtin_add_overflow((int64_t)*offset, way, &sum) ||
        sum < 0) {
        return false;
    }
    *offset = (size_t)sum;
    return true;
}

hd_status hd_tensor_slice(const hd_tensor *t, int dim, uint64_t first, uint64_t count, int64_t step, hd_tensor *out)
{
    HDI_CALL();
    hd_status status = tensor_check_view(t, out);
    if (status) {
        return status;
    }
    if (dim < 0 || dim >= t->dims) {
        return hdi_fail(HD_ERROR_ARGUMENT, "dimension %d of %d", dim, t->dims);
    }
    if (step == 0) {
        return hdi_fail(HD_ERROR_ARGUMENT, "step is 0; hd_tensor_broadcast repeats elements");
    }
    uint64_t n = t->shape[dim];
    uint64_t step_size = hdi_stride_size(step);
    /* The number of elements behind the first one that is taken, in the direction of the step. */
    uint64_t room = step < 0 ? first : n - first - 1;
    if (count == 0 ? first > n : first >= n || (count - 1) > room / step_size) {
        return hdi_fail(HD_ERROR_RANGE, "%llu elements from %llu on in steps of %lld, dimension %d has %llu",
                        (unsigned long long)count, (unsigned long long)first, (long long)step, dim,
                        (unsigned long long)n);
    }
    hd_tensor view = *t;
    view.shape[dim] = count;
    /* If only one element is taken, the stride does not matter, so an overflow of the product is no
     * error. */
    if (count > 1 && __builtin_mul_overflow(t->stride[dim], step, &view.stride[dim])) {
        return hdi_fail(HD_ERROR_ARGUMENT, "stride %lld times step %lld is too large", (long long)t->stride[dim],
                        (long long)step);
    }
    uint64_t elements = hd_tensor_elements(t);
    if (count > 0 && elements > 0 && !tensor_move_offset(&view.offset, first, t->stride[dim])) {
        return hdi_fail(HD_ERROR_ARGUMENT, "element %llu of dimension %d, stride %lld, lies outside of any buffer",
                        (unsigned long long)first, dim, (long long)t->stride[dim]);
    }
    *out = view;
    return HD_OK;
}

hd_status hd_tensor_permute(const hd_tensor *t, const int *order, hd_tensor *out)
{
    HDI_CALL();
    hd_status status = tensor_check_view(t, out);
    if (status) {
        return status;
    }
    if (!order && t->dims > 0) {
        return hdi_fail(HD_ERROR_ARGUMENT, "order is null");
    }
    hd_tensor view = *t;
    unsigned seen = 0;
    for (int i = 0; i < t->dims; i++) {
        if (order[i] < 0 || order[i] >= t->dims || (seen >> order[i] & 1)) {
            return hdi_fail(HD_ERROR_ARGUMENT, "order[%d] is %d: it must name each of the %d dimensions once", i,
                            order[i], t->dims);
        }
        seen |= 1u << order[i];
        view.shape[i] = t->shape[order[i]];
        view.stride[i] = t->stride[order[i]];
    }
    *out = view;
    return HD_OK;
}

hd_status hd_tensor_transpose(const hd_tensor *t, int a, int b, hd_tensor *out)
{
    HDI_CALL();
    hd_status status = tensor_check_view(t, out);
    if (status) {
        return status;
    }
    if (a < 0 || a >= t->dims || b < 0 || b >= t->dims) {
        return hdi_fail(HD_ERROR_ARGUMENT, "dimensions %d and %d of %d", a, b, t->dims);
    }
    hd_tensor view = *t;
    view.shape[a] = t->shape[b], view.stride[a] = t->stride[b];
    view.shape[b] = t->shape[a], view.stride[b] = t->stride[a];
    *out = view;
    return HD_OK;
}

bool hdi_tensor_broadcast_to(const hd_tensor *t, int dims, const uint64_t *shape, hd_tensor *out)
{
    if (dims < t->dims) {
        return false;
    }
    hd_tensor view;
    memset(&view, 0, sizeof view);
    view.buffer = t->buffer;
    view.offset = t->offset;
    view.type = t->type;
    view.dims = dims;
    for (int i = 0; i < dims; i++) {
        int from = i - (dims - t->dims);
        bool same = from >= 0 && t->shape[from] == shape[i];
        if (!same && from >= 0 && t->shape[from] != 1) {
            return false;
        }
        view.shape[i] = shape[i];
        view.stride[i] = same ? t->stride[from] : 0;
    }
    *out = view;
    return true;
}

hd_status hd_tensor_broadcast(const hd_tensor *t, int dims, const uint64_t *shape, hd_tensor *out)
{
    HDI_CALL();
    hd_status status = tensor_check_view(t, out);
    hd_tensor wanted, view;
    status = status ? status : tensor_set_form(&wanted, t->type, dims, shape);
    if (status) {
        return status;
    }
    if (!hdi_tensor_broadcast_to(t, dims, shape, &view)) {
        char from[HDI_TENSOR_TEXT_BYTES], to[HDI_TENSOR_TEXT_BYTES];
        return hdi_fail(HD_ERROR_ARGUMENT, "%s cannot be repeated to %s: only dimensions of size 1 grow",
                        hdi_tensor_text(t, from), hdi_tensor_text(&wanted, to));
    }
    *out = view;
    return HD_OK;
}

/* Sets the strides of `to`, a shape with as many elements as *t, over the elements of *t.
 * Walks both shapes from the slowest dimension on. Finds groups of old dimensions and groups of new
 * ones with the same number of elements. Within a group, the old dimensions must continue each
 * other without a gap. */
static bool tensor_reshape_strides(const hd_tensor *t, hd_tensor *to)
{
    uint64_t shape[HD_TENSOR_DIMS] = {0};
    int64_t stride[HD_TENSOR_DIMS] = {0};
    int dims = 0;
    for (int i = 0; i < t->dims; i++) {
        if (t->shape[i] != 1) {
            shape[dims] = t->shape[i];
            stride[dims++] = t->stride[i];
        }
    }
    int old = 0;
    for (int first = 0; first < to->dims;) {
        if (to->shape[first] == 1) {
            first++;
            continue;
        }
        int end = first + 1, old_end = old + 1;
        uint64_t n = to->shape[first], old_n = shape[old];
        while (n != old_n) {
            if (n < old_n) {
                n *= to->shape[end++];
            } else {
                old_n *= shape[old_end++];
            }
        }
        for (int i = old; i + 1 < old_end; i++) {
            int64_t below;
            if (__builtin_mul_overflow(stride[i + 1], (int64_t)shape[i + 1], &below) || stride[i] != below) {
                return false;
            }
        }
        int64_t next = stride[old_end - 1];
        for (int i = end - 1; i >= first; i--) {
            to->stride[i] = next;
            if (i > first && __builtin_mul_overflow(next, (int64_t)to->shape[i], &next)) {
                return false;
            }
        }
        first = end;
        old = old_end;
    }
    /* A dimension of size 1 gets the stride that it would have in a row-major tensor. */
    int64_t next = (int64_t)hd_type_size(t->type);
    for (int i = to->dims - 1; i >= 0; i--) {
        if (to->shape[i] == 1) {
            to->stride[i] = next;
        }
        if (__builtin_mul_overflow(to->stride[i], (int64_t)to->shape[i], &next)) {
            next = 0;
        }
    }
    return true;
}

hd_status hd_tensor_reshape(const hd_tensor *t, int dims, const uint64_t *shape, hd_tensor *out)
{
    HDI_CALL();
    hd_status status = tensor_check_view(t, out);
    hd_tensor view;
    status = status ? status : tensor_set_form(&view, t->type, dims, shape);
    if (status) {
        return status;
    }
    uint64_t elements = hd_tensor_elements(t);
    bool fits = elements == hd_tensor_elements(&view);
    char from[HDI_TENSOR_TEXT_BYTES], to[HDI_TENSOR_TEXT_BYTES];
    if (!fits) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%s has %llu elements, %s has %llu", hdi_tensor_text(t, from),
                        (unsigned long long)elements, hdi_tensor_text(&view, to),
                        (unsigned long long)hd_tensor_elements(&view));
    }
    view.buffer = t->buffer;
    view.offset = t->offset;
    if (elements == 0 ? !hdi_tensor_set_row_major(&view) : !tensor_reshape_strides(t, &view)) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%s to %s: the elements would have to be moved; hd_tensor_copy does that",
                        hdi_tensor_text(t, from), hdi_tensor_text(&view, to));
    }
    *out = view;
    return HD_OK;
}

/* ---- elements that share bytes ---- */

/* Lists the dimensions of more than one element in `order`, by rising size of their strides.
 * Returns their number. */
static int tensor_dims_by_stride(const hd_tensor *t, int *order)
{
    int n = 0;
    for (int i = 0; i < t->dims; i++) {
        if (t->shape[i] == 1) {
            continue;
        }
        int at = n++;
        for (; at > 0 && hdi_stride_size(t->stride[i]) < hdi_stride_size(t->stride[order[at - 1]]); at--) {
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    return n;
}

bool hdi_tensor_repeats(const hd_tensor *t)
{
    int order[HD_TENSOR_DIMS];
    int n = tensor_dims_by_stride(t, order);
    uint64_t span = hd_type_size(t->type); /* no overflow, since all elements lie in a buffer */
    for (int i = 0; i < n; i++) {
        uint64_t stride = hdi_stride_size(t->stride[order[i]]);
        if (stride < span) {
            return true;
        }
        span += stride * (t->shape[order[i]] - 1);
    }
    return false;
}

/* True if two elements can be about `apart` bytes from each other; the difference may be less than
 * an element. Looks only at the n dimensions with the smallest strides. Two indices of a dimension
 * differ by at most shape - 1. The dimensions with smaller strides span less than one step of the
 * dimension with the largest stride. So only two numbers of steps are possible in that
 * dimension. */
static bool tensor_is_difference(const hd_tensor *t, const int *order, int n, int64_t apart)
{
    int64_t element = (int64_t)hd_type_size(t->type);
    if (n == 0) {
        return apart > -element && apart < element;
    }
    int dim = order[n - 1];
    int64_t stride = (int64_t)hdi_stride_size(t->stride[dim]), most = (int64_t)(t->shape[dim] - 1);
    int64_t below = apart / stride - (apart % stride < 0);
    for (int64_t steps = below; steps <= below + 1; steps++) {
        if (steps >= -most && steps <= most && tensor_is_difference(t, order, n - 1, apart - steps * stride)) {
            return true;
        }
    }
    return false;
}

static uint64_t tensor_common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The bytes that the elements cover in each period of `pitch`, counted from the first element. 0:
 * the elements do not repeat with that pitch. */
static uint64_t tensor_width_in(const hd_tensor *t, uint64_t pitch)
{
    uint64_t width = hd_type_size(t->type);
    for (int i = 0; i < t->dims; i++) {
        uint64_t stride = hdi_stride_size(t->stride[i]);
        if (t->shape[i] > 1 && stride < pitch) {
            /* No overflow, since all elements lie in a buffer. */
            width += (t->shape[i] - 1) * stride;
        } else if (t->shape[i] > 1 && stride % pitch != 0) {
            return 0;
        }
    }
    return width <= pitch ? width : 0;
}

/* True if the elements of `a` and `b` are side by side in each period of a common pitch. Tries each
 * stride of `steps` as the pitch. */
static bool tensors_side_by_side(const hd_tensor *steps, const hd_tensor *a, uint64_t a_low, const hd_tensor *b,
                                 uint64_t b_low)
{
    for (int i = 0; i < steps->dims; i++) {
        uint64_t pitch = steps->shape[i] > 1 ? hdi_stride_size(steps->stride[i]) : 0;
        uint64_t a_width = pitch ? tensor_width_in(a, pitch) : 0, b_width = a_width ? tensor_width_in(b, pitch) : 0;
        if (b_width) {
            /* the distance from the start of a to the start of b, in a period */
            uint64_t apart = (b_low % pitch + pitch - a_low % pitch) % pitch;
            if (a_width <= apart && apart + b_width <= pitch) {
                return true;
            }
        }
    }
    return false;
}

bool hdi_tensors_apart(const hd_tensor *a, const hdi_extent *a_extent, const hd_tensor *b, const hdi_extent *b_extent)
{
    return a_extent->low >= b_extent->high || b_extent->low >= a_extent->high ||
           tensors_side_by_side(a, a, a_extent->low, b, b_extent->low) ||
           tensors_side_by_side(b, a, a_extent->low, b, b_extent->low);
}

bool hdi_tensors_overlap(const hd_tensor *a, const hdi_extent *a_extent, const hd_tensor *b, const hdi_extent *b_extent)
{
    if (hdi_tensors_apart(a, a_extent, b, b_extent)) {
        return false;
    }
    bool same = true;
    uint64_t divisor = 0;
    for (int i = 0; i < a->dims; i++) {
        if (a->shape[i] != 1) {
            same = same && a->stride[i] == b->stride[i];
            divisor = tensor_common_divisor(
                divisor, tensor_common_divisor(hdi_stride_size(a->stride[i]), hdi_stride_size(b->stride[i])));
        }
    }
    int64_t apart = (int64_t)b->offset - (int64_t)a->offset;
    if (same) {
        int order[HD_TENSOR_DIMS];
        return tensor_is_difference(a, order, tensor_dims_by_stride(a, order), apart);
    }
    uint64_t element = hd_type_size(a->type);
    uint64_t rest = divisor ? hdi_stride_size(apart) % divisor : 0;
    return rest < element || divisor - rest < element;
}
