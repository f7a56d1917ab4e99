/* tensor_rows.c - the layouts that `heddle bench tensor` moves, their sizes on this device, and the
 * tensors for them.
 *
 * Threads: the conductor. Locks: none.
 * Always: a row keeps its name if its sizes are cut. Sizes coprime with a tile stay odd.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "bench/tensor_parts.h"

enum {
    HOST_SCALE = 256, /* elements on a GPU for each element on a host device */
    QUICK_SCALE = 4,  /* a further divisor for --quick on host devices */
    TAIL = 64         /* bytes behind the last element, which must not change */
};

/* Samples rotate over at least this many bytes, so that each copy finds equally little of its data
 * in a cache. */
static const uint64_t rotation_bytes = (uint64_t)1 << 30;

#define SQUARE(n) .dims = 2, .shape = {n, n}, .order = {1, 0}

static const tensor_spec specs[] = {
    {"transpose", "transpose_f32_4096", "f32", HD_TYPE_F32, SQUARE(4096), .goal = 0.95, .always = true},
    {"transpose", "transpose_f32_8192", "f32", HD_TYPE_F32, SQUARE(8192), .goal = 0.95},
    {"transpose", "transpose_f32_16384", "f32", HD_TYPE_F32, SQUARE(16384), .goal = 0.95, .always = true},
    {"transpose", "transpose_f32_32768", "f32", HD_TYPE_F32, SQUARE(32768), .goal = 0.95},
    {"transpose", "transpose_f32_10007x9973", "f32", HD_TYPE_F32, .dims = 2, .shape = {10007, 9973}, .order = {1, 0},
     .goal = 0.95, .always = true},
    {"transpose", "transpose_f16_16384", "f16", HD_TYPE_F16, SQUARE(16384), .goal = 0.93, .always = true},
    {"transpose", "transpose_f64_8192", "f64", HD_TYPE_F64, SQUARE(8192), .goal = 0.93},
    {"transpose", "transpose_f64_16384", "f64", HD_TYPE_F64, SQUARE(16384), .goal = 0.93, .always = true},
    {"transpose", "transpose_u8_16384", "u8", HD_TYPE_U8, SQUARE(16384)},
    {"transpose", "transpose_c128_8192", "c128", HD_TYPE_C128, SQUARE(8192)},
    {"transpose", "transpose_f16_10007x9973", "f16", HD_TYPE_F16, .dims = 2, .shape = {10007, 9973}, .order = {1, 0}},
    {"transpose", "transpose_f64_10007x9973", "f64", HD_TYPE_F64, .dims = 2, .shape = {10007, 9973}, .order = {1, 0}},
    {"transpose", "transpose_f32_unaligned", "f32, off by 1 and 3 elements", HD_TYPE_F32, SQUARE(16384), .src_skip = 1,
     .dst_skip = 3},
    {"permute", "permute_f32_5d", "f32", HD_TYPE_F32, .dims = 5, .shape = {32, 64, 48, 56, 64},
     .order = {0, 3, 1, 4, 2}, .goal = 0.85, .always = true},
    {"permute", "permute_f32_5d_reversed", "f32", HD_TYPE_F32, .dims = 5, .shape = {32, 64, 48, 56, 64},
     .order = {4, 3, 2, 1, 0}},
    {"permute", "permute_f32_5d_rows", "f32", HD_TYPE_F32, .dims = 5, .shape = {32, 64, 48, 56, 64},
     .order = {2, 0, 3, 1, 4}},
    {"permute", "permute_f16_nhwc", "f16, channels last", HD_TYPE_F16, .dims = 4, .shape = {64, 256, 112, 112},
     .order = {0, 2, 3, 1}},
    {"permute", "permute_f32_batch", "f32, many small matrices", HD_TYPE_F32, .dims = 3, .shape = {16384, 128, 128},
     .order = {0, 2, 1}},
    {"slice", "slice_columns", "f32, every other column", HD_TYPE_F32, .dims = 2, .shape = {16384, 16384},
     .order = {0, 1}, .slice_dim = 1, .step = 2, .always = true},
    {"slice", "slice_rows", "f32, every other row", HD_TYPE_F32, .dims = 2, .shape = {16384, 16384}, .order = {0, 1},
     .slice_dim = 0, .step = 2},
    {"slice", "slice_box", "f32, without 7 columns at each end", HD_TYPE_F32, .dims = 2, .shape = {16384, 16384},
     .order = {0, 1}, .slice_dim = 1, .step = 1, .drop = 7},
    {"slice", "slice_reversed", "f32, columns backwards", HD_TYPE_F32, .dims = 2, .shape = {16384, 16384},
     .order = {0, 1}, .slice_dim = 1, .step = -1},
    {"broadcast", "broadcast_row", "f32, one row to all", HD_TYPE_F32, .dims = 2, .shape = {1, 16384}, .order = {0, 1},
     .broadcast = {16384, 16384}, .always = true},
    {"broadcast", "broadcast_column", "f32, one column to all", HD_TYPE_F32, .dims = 2, .shape = {16384, 1},
     .order = {0, 1}, .broadcast = {16384, 16384}},
};

const tensor_spec *bench_tensor_spec_at(int i)
{
    return i >= 0 && i < (int)(sizeof(specs) / sizeof(specs[0])) ? &specs[i] : NULL;
}

/* ---- sizes ---- */

/* The divisor of each dimension for a tensor of about `scale` times fewer elements. */
static uint64_t bench_root(uint64_t scale, int dims)
{
    uint64_t by = 0, power;
    do {
        by++;
        power = 1;
        for (int i = 0; i < dims; i++) {
            power *= by + 1;
        }
    } while (power <= scale);
    return by;
}

static uint64_t bench_scaled(uint64_t n, int dims, uint64_t scale)
{
    uint64_t least = n < 4 ? n : 4, small = n / bench_root(scale, dims);
    small = small < least ? least : small;
    return n % 2 ? small | 1 : small;
}

static uint64_t bench_product_of(const uint64_t *shape, int dims)
{
    uint64_t n = 1;
    for (int i = 0; i < dims; i++) {
        n *= shape[i];
    }
    return n;
}

static size_t bench_rounded(uint64_t bytes)
{
    return (size_t)(bytes + 255) / 256 * 256;
}

/* Computes the fields that follow from the source's shape. */
static void bench_size_row(tensor_row *row)
{
    const tensor_spec *s = row->spec;
    uint64_t sliced[TENSOR_SPEC_DIMS];
    memcpy(sliced, row->shape, sizeof(sliced));
    if (s->step) {
        uint64_t step = (uint64_t)(s->step < 0 ? -s->step : s->step);
        sliced[s->slice_dim] = (sliced[s->slice_dim] - 2 * s->drop + step - 1) / step;
    }
    uint64_t size = hd_type_size(s->type), read = bench_product_of(sliced, s->dims) * size;
    for (int i = 0; i < s->dims; i++) {
        row->view[i] = sliced[s->order[i]];
        /* in two dimensions the broadcast one gets the size of the other one */
        if (s->broadcast[0] && row->view[i] == 1) {
            row->view[i] = row->shape[1 - i];
        }
    }
    row->elements = bench_product_of(row->view, s->dims);
    row->payload = (size_t)(row->elements * size);
    row->moved = (size_t)read + row->payload;
    row->src_bytes = bench_rounded(bench_product_of(row->shape, s->dims) * size + (uint64_t)s->src_skip * size);
    row->dst_bytes = bench_rounded(row->payload + (uint64_t)s->dst_skip * size + TAIL);
    uint64_t pairs = rotation_bytes / (2 * row->payload) + 1;
    row->pairs = pairs < TENSOR_PAIRS_MAX ? (int)pairs : TENSOR_PAIRS_MAX;
}

/* The memory that both sides need. The plain side copies as many bytes as the destination holds. */
static uint64_t bench_needed(const tensor_row *row, int pairs)
{
    size_t plain_src = row->src_bytes > row->payload ? row->src_bytes : row->payload;
    return (uint64_t)pairs * (row->src_bytes + plain_src + 2 * row->dst_bytes);
}

void bench_tensor_plan_row(const tensor_experiment *x, const tensor_spec *spec, tensor_row *row)
{
    uint64_t scale = x->on_host ? HOST_SCALE * (x->options->quick ? QUICK_SCALE : 1) : 1;
    memset(row, 0, sizeof(*row));
    row->spec = spec;
    for (int i = 0; i < TENSOR_PEERS; i++) {
        row->peers[i] = (tensor_peer){NAN, NAN};
    }
    for (bool fits = false; !fits; scale *= 4) {
        for (int i = 0; i < spec->dims; i++) {
            row->shape[i] = bench_scaled(spec->shape[i], spec->dims, scale);
        }
        bench_size_row(row);
        while (row->pairs > 1 && bench_needed(row, row->pairs) > x->room) {
            row->pairs--;
        }
        fits = bench_needed(row, row->pairs) <= x->room || row->elements < 4096;
        row->cut = row->cut || !fits;
    }
}

void bench_tensor_plan_rows(tensor_experiment *x)
{
    for (int i = 0; bench_tensor_spec_at(i) && x->n_rows < TENSOR_ROWS_MAX; i++) {
        const tensor_spec *spec = bench_tensor_spec_at(i);
        if (bench_tensor_is_wanted(x, spec->part) && (spec->always || !x->options->quick)) {
            bench_tensor_plan_row(x, spec, &x->rows[x->n_rows++]);
        }
    }
}

/* ---- tensors ---- */

void bench_tensor_shape_text(const tensor_row *row, char *out, size_t bytes)
{
    const tensor_spec *s = row->spec;
    size_t used = 0;
    for (int i = 0; i < s->dims && used < bytes; i++) {
        used += (size_t)snprintf(out + used, bytes - used, "%s%llu", i ? " x " : "", (unsigned long long)row->shape[i]);
    }
    if (strcmp(s->part, "permute") == 0 && used < bytes) {
        for (int i = 0; i < s->dims && used < bytes; i++) {
            used += (size_t)snprintf(out + used, bytes - used, "%s%d", i ? "," : " to ", s->order[i]);
        }
    }
}

bool bench_tensor_views(const tensor_row *row, hd_buffer *src, hd_buffer *dst, hd_tensor *from, hd_tensor *to,
                        char *error)
{
    const tensor_spec *s = row->spec;
    size_t size = hd_type_size(s->type);
    if (!cli_report_check(hd_tensor_make(src, (size_t)s->src_skip * size, s->type, s->dims, row->shape, from),
                          "hd_tensor_make", error)) {
        return false;
    }
    if (s->step) {
        uint64_t n = row->shape[s->slice_dim] - 2 * s->drop, step = (uint64_t)(s->step < 0 ? -s->step : s->step);
        uint64_t first = s->step < 0 ? s->drop + n - 1 : s->drop, count = (n + step - 1) / step;
        if (!cli_report_check(hd_tensor_slice(from, s->slice_dim, first, count, s->step, from), "hd_tensor_slice",
                              error)) {
            return false;
        }
    }
    bool ok = s->broadcast[0]
                  ? cli_report_check(hd_tensor_broadcast(from, s->dims, row->view, from), "hd_tensor_broadcast", error)
                  : cli_report_check(hd_tensor_permute(from, s->order, from), "hd_tensor_permute", error);
    return ok && cli_report_check(hd_tensor_make(dst, (size_t)s->dst_skip * size, s->type, s->dims, row->view, to),
                                  "hd_tensor_make", error);
}
