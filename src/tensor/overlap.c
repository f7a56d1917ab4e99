/* overlap.c - whether elements share bytes. overlap.h has threads, locks and blocking.
 */
#include "tensor/overlap.h"

/* Lists the dimensions of more than one element in `order`, by rising size of their strides. Returns their number. */
static int by_stride(const hd_tensor *t, int *order)
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
    int n = by_stride(t, order);
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

/* Whether two elements can be `apart` bytes from each other, give or take less than an element, along the n dimensions
 * with the smallest strides. In a dimension, two indices differ by at most shape - 1. The smaller dimensions span less
 * than one step of the largest one, so only two numbers of steps are possible. */
static bool is_difference(const hd_tensor *t, const int *order, int n, int64_t apart)
{
    int64_t element = (int64_t)hd_type_size(t->type);
    if (n == 0) {
        return apart > -element && apart < element;
    }
    int dim = order[n - 1];
    int64_t stride = (int64_t)hdi_stride_size(t->stride[dim]), most = (int64_t)(t->shape[dim] - 1);
    int64_t below = apart / stride - (apart % stride < 0);
    for (int64_t steps = below; steps <= below + 1; steps++) {
        if (steps >= -most && steps <= most && is_difference(t, order, n - 1, apart - steps * stride)) {
            return true;
        }
    }
    return false;
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The bytes that the elements cover in each period of `pitch`, counted from the first element. 0: the elements do not
 * repeat with that pitch. */
static uint64_t width_in(const hd_tensor *t, uint64_t pitch)
{
    uint64_t width = hd_type_size(t->type);
    for (int i = 0; i < t->dims; i++) {
        uint64_t stride = hdi_stride_size(t->stride[i]);
        if (t->shape[i] > 1 && stride < pitch) {
            width += (t->shape[i] - 1) * stride; /* no overflow, since all elements lie in a buffer */
        } else if (t->shape[i] > 1 && stride % pitch != 0) {
            return 0;
        }
    }
    return width <= pitch ? width : 0;
}

/* Whether the elements of `a` and `b` are side by side in each period of a common pitch. Tries each stride of `steps`
 * as the pitch. */
static bool side_by_side(const hd_tensor *steps, const hd_tensor *a, uint64_t a_low, const hd_tensor *b, uint64_t b_low)
{
    for (int i = 0; i < steps->dims; i++) {
        uint64_t pitch = steps->shape[i] > 1 ? hdi_stride_size(steps->stride[i]) : 0;
        uint64_t a_width = pitch ? width_in(a, pitch) : 0, b_width = a_width ? width_in(b, pitch) : 0;
        if (b_width) {
            uint64_t apart = (b_low % pitch + pitch - a_low % pitch) % pitch; /* from the start of a to that of b */
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
           side_by_side(a, a, a_extent->low, b, b_extent->low) || side_by_side(b, a, a_extent->low, b, b_extent->low);
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
            divisor =
                common_divisor(divisor, common_divisor(hdi_stride_size(a->stride[i]), hdi_stride_size(b->stride[i])));
        }
    }
    int64_t apart = (int64_t)b->offset - (int64_t)a->offset;
    if (same) {
        int order[HD_TENSOR_DIMS];
        return is_difference(a, order, by_stride(a, order), apart);
    }
    uint64_t element = hd_type_size(a->type);
    uint64_t rest = divisor ? hdi_stride_size(apart) % divisor : 0;
    return rest < element || divisor - rest < element;
}
