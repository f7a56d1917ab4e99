/* layout.c - reduces layouts to few dimensions, and cuts them (plan.h).
 *
 * Threads: any; pure functions.
 * Locks: none.
 * Blocking: none.
 */
#include "tensor/plan.h"

static void drop(hdi_layout *l, int dim)
{
    l->dims--;
    for (int i = dim; i < l->dims; i++) {
        l->shape[i] = l->shape[i + 1];
        l->dst_stride[i] = l->dst_stride[i + 1];
        l->src_stride[i] = l->src_stride[i + 1];
    }
}

/* Reverses a dimension: its last element becomes the first one. */
static void turn(hdi_layout *l, int dim)
{
    uint64_t steps = l->shape[dim] - 1;
    l->dst += steps * (uint64_t)l->dst_stride[dim];
    l->src += steps * (uint64_t)l->src_stride[dim];
    l->dst_stride[dim] = -l->dst_stride[dim];
    l->src_stride[dim] = -l->src_stride[dim];
}

static void sort(hdi_layout *l)
{
    for (int i = 1; i < l->dims; i++) {
        for (int k = i; k > 0 && l->dst_stride[k] > l->dst_stride[k - 1]; k--) {
            uint64_t n = l->shape[k];
            int64_t d = l->dst_stride[k], s = l->src_stride[k];
            l->shape[k] = l->shape[k - 1], l->shape[k - 1] = n;
            l->dst_stride[k] = l->dst_stride[k - 1], l->dst_stride[k - 1] = d;
            l->src_stride[k] = l->src_stride[k - 1], l->src_stride[k - 1] = s;
        }
    }
}

/* Whether dimension `dim` continues where the next one ends, on both sides. No product for the destination overflows,
 * since all its elements lie in a buffer. */
static bool follows(const hdi_layout *l, int dim)
{
    int64_t n = (int64_t)l->shape[dim + 1];
    int64_t src;
    return l->dst_stride[dim] == n * l->dst_stride[dim + 1] &&
           !__builtin_mul_overflow(n, l->src_stride[dim + 1], &src) && l->src_stride[dim] == src;
}

void hdi_layout_canonicalize(hdi_layout *l)
{
    for (int i = l->dims - 1; i >= 0; i--) {
        if (l->shape[i] == 1) {
            drop(l, i);
        } else if (l->dst_stride[i] < 0) {
            turn(l, i);
        }
    }
    sort(l);
    for (int i = l->dims - 2; i >= 0; i--) {
        if (follows(l, i)) {
            l->shape[i + 1] *= l->shape[i];
            drop(l, i);
        }
    }
}

bool hdi_layout_is_run(const hdi_layout *l)
{
    return l->dims == 0 || (l->dims == 1 && l->dst_stride[0] == l->element && l->src_stride[0] == l->element);
}

void hdi_layout_cut(hdi_layout *l, int dim, uint64_t at, hdi_layout *upper)
{
    *upper = *l;
    upper->shape[dim] -= at;
    upper->dst += at * (uint64_t)l->dst_stride[dim];
    upper->src += at * (uint64_t)l->src_stride[dim];
    l->shape[dim] = at;
    hdi_layout_canonicalize(l);
    hdi_layout_canonicalize(upper);
}
