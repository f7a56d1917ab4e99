/* plan.c - reduces layouts to few dimensions, and chooses the kernel that moves the elements, with
 * its parameters (plan.h, src/kernel/builtin/tensor.h).
 *
 * The dimensions of a canonical layout are numbered from the slowest to the fastest one in the
 * destination. The fastest dimension of a side is the one with the shortest stride. `d` is the
 * fastest dimension of the destination, and `s` of the source.
 * - If `s` and `d` are the same dimension, or if tiles would gain nothing (GATHER_FAR), the plan
 *   uses units. The units are as wide as the addresses allow.
 * - Otherwise the plan uses tiles over `s` and `d`. If `s` or `d` is shorter than a tile, the
 *   dimensions that continue it on its side join it.
 * - If `s` is only a few elements long, the plan uses units along `d`, in short stretches. So the
 *   source's cache lines are still in the cache when the kernel gets to the next index of `s`.
 *
 * Threads: any; pure functions.
 * Locks: none.
 * Blocking: none.
 */
#include "tensor/plan.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>
#include "base/number.h"

/* ---- layouts ---- */

static void layout_drop_dim(hdi_layout *l, int dim)
{
    l->dims--;
    for (int i = dim; i < l->dims; i++) {
        l->shape[i] = l->shape[i + 1];
        l->dst_stride[i] = l->dst_stride[i + 1];
        l->src_stride[i] = l->src_stride[i + 1];
    }
}

/* Reverses a dimension: its last index becomes the first one. */
static void layout_turn_dim(hdi_layout *l, int dim)
{
    uint64_t steps = l->shape[dim] - 1;
    l->dst += steps * (uint64_t)l->dst_stride[dim];
    l->src += steps * (uint64_t)l->src_stride[dim];
    l->dst_stride[dim] = -l->dst_stride[dim];
    l->src_stride[dim] = -l->src_stride[dim];
}

static void layout_sort_dims(hdi_layout *l)
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

/* True if, on both sides, one step of dimension `dim` leads to where the next dimension ends. No
 * product for the destination overflows, since all its elements lie in a buffer. */
static bool layout_dim_follows(const hdi_layout *l, int dim)
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
            layout_drop_dim(l, i);
        } else if (l->dst_stride[i] < 0) {
            layout_turn_dim(l, i);
        }
    }
    layout_sort_dims(l);
    for (int i = l->dims - 2; i >= 0; i--) {
        if (layout_dim_follows(l, i)) {
            l->shape[i + 1] *= l->shape[i];
            layout_drop_dim(l, i);
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

/* ---- tuning values ---- */

/* GPU: the kernels for tiles of an element. The index is the kind (HD_TENSOR_TILE_*), or FEW_I or
 * FEW_J for few of i or of j. For 8 bytes one kernel serves PLAIN and DIGITS. `heddle bench tensor
 * --variants` shows that a kernel for PLAIN alone is no faster. */
#define FEW_I 3
#define FEW_J 4
static const struct {
    uint32_t element;
    const char *kernel[5];
} gpu_tiles[] = {
    {1, {"1a", "1d", "1s", "1n", "1w"}},
    {2, {"2a", "2d", "2s", "2n", "2w"}},
    {4, {"4a", "4d", "4s", "4n", "4w"}},
    {8, {"8d", "8d", "8s", "8n", "8w"}},
    /* no kernel with a shifted window: 16-byte elements are at multiples of 16 bytes */
    {16, {"16a", "16d", "16d", "16d", "16d"}},
};
/* CPU: sizes of tiles. size_i * size_j * element is at most 32 KiB, the size of the kernel's
 * buffer. */
static const struct {
    uint32_t element, size_i, size_j;
} cpu_tiles[] = {{1, 128, 128}, {2, 128, 128}, {4, 64, 64}, {8, 64, 64}, {16, 32, 32}};

/* GPU: up to this many elements of i or j count as few; if both are few, units find their lines in
 * the cache */
#define FEW 32
#define GPU_TILE_LEAST 8 /* GPU: tiles need this many elements of i, and of j */
#define CPU_TILE_LEAST 4 /* CPU: the same */
/* Elements should fill this percentage of a tile; if they fill less, other dimensions join. */
#define FILLED_LEAST 80
/* If source elements are further apart than this many bytes, a copy gains nothing from tiles. */
#define GATHER_FAR 16
#define GPU_STRETCH 256  /* GPU: units along d before the next index of s, if s is short */
#define CPU_STRETCH 4096 /* CPU: the same */
/* GPU: bytes of neighbouring rows on both sides that are copied before other rows */
#define ROWS_TOGETHER 2048
/* GPU: at least this many pieces, so that a last piece that is not full costs little */
#define PIECES_LEAST 32
/* CPU: with rows of fewer elements, the inner loop goes along the longest dimension */
#define CPU_ROW_LEAST 16
/* GPU: the tiles of a strip. A strip contains all tiles, so that concurrent blocks write whole
 * rows. */
#define GPU_GROUP UINT32_MAX
#define CPU_GROUP 8            /* CPU: tiles of a strip */
#define CPU_ROW_BYTES 262144   /* CPU: longer rows are copied in pieces of this many bytes */
#define CPU_BLOCK_BYTES 131072 /* CPU: bytes of one block, with units */
/* CPU: copies of at least this many bytes are written past the caches */
#define CPU_STREAM_BYTES 8388608

#define COUNT_MOST ((uint64_t)HD_TENSOR_COUNT_MAX)
#define DIM_MOST ((uint64_t)1 << 30) /* indices of a dimension in one launch */

/* ---- kernels ---- */

static const hdi_tile_kind tile_kinds[] = {
#define ROW(name, element, size_i, size_j, threads, blocks, kind) {#name, element, size_i, size_j, threads, kind},
    HD_TENSOR_TILES(ROW)
#undef ROW
};
static const char *const tile_kernels[] = {
#define ROW(name, ...) "hd_tensor_tile_" #name,
    HD_TENSOR_TILES(ROW)
#undef ROW
};
static const struct {
    uint32_t bytes;
    const char *kernel;
} unit_kernels[] = {
#define ROW(bytes) {bytes, "hd_tensor_units_" #bytes},
    HD_TENSOR_UNITS(ROW)
#undef ROW
};
#define N_TILES ((int)(sizeof tile_kinds / sizeof tile_kinds[0]))
#define N_UNITS ((int)(sizeof unit_kernels / sizeof unit_kernels[0]))
#define ROW(name, element, size_i, size_j, threads, blocks, kind)                                                      \
    _Static_assert((size_i) * (element) % 16 == 0 && (size_j) * (element) % 16 == 0 &&                                 \
                       (threads) % ((size_i) * (element) / 16) == 0 &&                                                 \
                       ((size_i) * (element) / 16) * HD_TILE_ROW_CHUNKS(element, size_j, kind) % (threads) == 0 &&     \
                       (threads) % HD_TILE_ROW_CHUNKS(element, size_j, kind) == 0,                                     \
                   "each thread has as much to do as the others in " #name);
HD_TENSOR_TILES(ROW)
#undef ROW
_Static_assert(N_TILES + N_UNITS == HDI_PLAN_KERNELS, "each kernel has a number");

const hdi_tile_kind *hdi_tile_kind_at(int index)
{
    return index >= 0 && index < N_TILES ? &tile_kinds[index] : NULL;
}

static int plan_find_tile(const char *name)
{
    for (int i = 0; i < N_TILES; i++) {
        if (strcmp(tile_kinds[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

/* ---- numbers ---- */

static uint32_t plan_ceil_divide(uint64_t n, uint64_t by)
{
    return (uint32_t)((n + by - 1) / by);
}

/* The divisor for x / n in the kernels. n is from 1 to 2^31 - 1. */
static hd_tensor_divisor plan_divisor(uint32_t n)
{
    uint32_t shift = 0;
    while (((uint64_t)1 << shift) < n) {
        shift++;
    }
    uint64_t multiplier = (((uint64_t)1 << 32) * (((uint64_t)1 << shift) - n)) / n + 1;
    return (hd_tensor_divisor){n, (uint32_t)multiplier, shift};
}

static hd_tensor_digit plan_digit(const hdi_layout *l, int dim)
{
    return (hd_tensor_digit){
        .by = plan_divisor((uint32_t)l->shape[dim]), .dst = l->dst_stride[dim], .src = l->src_stride[dim]};
}

/* The largest power of two, at most 16, that divides all addresses and strides. The strides of
 * dimension `except` do not count. */
static uint32_t plan_alignment(const hdi_layout *l, int except)
{
    uint64_t all = 16 | l->dst | l->src;
    for (int i = 0; i < l->dims; i++) {
        if (i != except) {
            all |= (uint64_t)l->dst_stride[i] | (uint64_t)l->src_stride[i];
        }
    }
    return (uint32_t)(all & (0 - all));
}

/* ---- elements ---- */

/* GPU: splits elements that are not at multiples of their size into smaller ones. */
static void plan_split_elements(hdi_layout *l)
{
    uint32_t most = plan_alignment(l, -1);
    if (most < l->element) {
        l->shape[l->dims] = l->element / most;
        l->dst_stride[l->dims] = l->src_stride[l->dims] = most;
        l->dims++;
        l->element = most;
    }
}

/* Joins adjacent elements into larger ones, if the fastest dimension contains no gaps on either
 * side. */
static void plan_join_elements(hdi_layout *l, bool is_gpu)
{
    int last = l->dims - 1;
    if (l->dst_stride[last] != l->element || l->src_stride[last] != l->element) {
        return;
    }
    uint64_t n = l->shape[last] * l->element;
    uint64_t bytes = 16;
    if (is_gpu) {
        bytes = plan_alignment(l, last) | (n & (0 - n) & 15);
        bytes &= 0 - bytes;
    } else if (n > 16 || (n & (n - 1)) != 0) {
        return; /* no need to join elements, since the kernel copies rows as bytes */
    } else {
        bytes = n;
    }
    if (bytes > l->element) {
        l->shape[last] = n / bytes;
        l->dst_stride[last] = l->src_stride[last] = (int64_t)bytes;
        l->element = (uint32_t)bytes;
        l->dims -= l->shape[last] == 1 && last > 0;
    }
}

/* The dimension with the shortest stride in the source; if there are several, the last of them.
 * Skips strides of 0, and dimensions in the bit mask `except`. -1: none. */
static int plan_nearest_dim(const hdi_layout *l, unsigned except)
{
    int best = -1;
    for (int i = 0; i < l->dims; i++) {
        bool usable = l->src_stride[i] != 0 && !(except >> i & 1);
        if (usable && (best < 0 || hdi_stride_size(l->src_stride[i]) <= hdi_stride_size(l->src_stride[best]))) {
            best = i;
        }
    }
    return best;
}

/* ---- units ---- */

/* Cuts the indices of dimension `dim` into two digits: a low one with `low` values, and a high one.
 * The index is computed from the two digits with weight[which], and is below limit[which]. */
static void plan_cut_digit(const hdi_layout *l, int dim, uint32_t low, int which, hd_tensor_units *u,
                           hd_tensor_digit *lower, hd_tensor_digit *upper)
{
    *lower = *upper = plan_digit(l, dim);
    lower->by = plan_divisor(low);
    lower->weight[which] = 1;
    upper->by = plan_divisor(plan_ceil_divide(l->shape[dim], low));
    upper->weight[which] = low;
    upper->dst *= low;
    upper->src *= low;
    u->limit[which] = (uint32_t)l->shape[dim];
    u->flags |= HD_TENSOR_CUTS;
}

/* GPU: if the destination allows writes of 16 bytes, but the source does not allow such reads, a
 * thread gathers 16 bytes of elements from the source. */
static void plan_gather_elements(hdi_layout *l, hd_tensor_units *u)
{
    int last = l->dims - 1;
    uint64_t each = 16 / l->element, all = l->dst;
    for (int i = 0; i < last; i++) {
        all |= (uint64_t)l->dst_stride[i];
    }
    if (each > 1 && l->dst_stride[last] == (int64_t)l->element && l->shape[last] % each == 0 && (all & 15) == 0) {
        u->flags |= HD_TENSOR_GATHER;
        u->collect_step = l->src_stride[last];
        l->shape[last] /= each;
        l->dst_stride[last] = 16;
        l->src_stride[last] *= (int64_t)each;
    }
}

/* Chooses the digits, fastest first: the order in which the elements are copied. */
static void plan_choose_digits(const hdi_layout *l, bool is_gpu, uint32_t together, hd_tensor_units *u)
{
    int d = l->dims - 1, s = plan_nearest_dim(l, 0);
    int longest = 0;
    for (int i = 1; i < l->dims; i++) {
        longest = l->shape[i] > l->shape[longest] ? i : longest;
    }
    uint32_t n = 0;
    unsigned done = 0;
    u->limit[0] = u->limit[1] = 1;
    hd_tensor_digit later[2];
    uint32_t n_later = 0;
    bool gathers = u->flags & HD_TENSOR_GATHER;
    uint64_t row = l->shape[d] * (gathers ? 16 : l->element);
    uint32_t stretch = is_gpu ? GPU_STRETCH : CPU_STRETCH;
    bool is_row = gathers ? u->collect_step == (int64_t)l->element
                          : l->dst_stride[d] == (int64_t)l->element && l->src_stride[d] == (int64_t)l->element;
    if (s >= 0 && s != d && l->src_stride[d] != 0 && !is_row && hdi_stride_size(l->src_stride[s]) <= GATHER_FAR &&
        l->shape[d] > 2 * stretch) {
        plan_cut_digit(l, d, stretch, 0, u, &u->digit[0], &later[n_later++]);
        u->digit[1] = plan_digit(l, s);
        n = 2;
        done = 1u << d | 1u << s;
    } else if (!is_gpu && l->shape[d] < CPU_ROW_LEAST && row < CPU_ROW_LEAST * 4 && l->shape[longest] > CPU_STRETCH) {
        plan_cut_digit(l, longest, CPU_STRETCH, 0, u, &u->digit[0], &later[n_later++]);
        u->digit[1] = plan_digit(l, d);
        n = 2;
        done = 1u << d | 1u << longest;
    } else if (!is_gpu && row > 2 * CPU_ROW_BYTES) {
        plan_cut_digit(l, d, CPU_ROW_BYTES / l->element, 0, u, &u->digit[0], &u->digit[1]);
        n = 2;
        done = 1u << d;
    } else {
        u->digit[n++] = plan_digit(l, d);
        done = 1u << d;
        /* If rows are short, the kernel copies `rows` neighbouring rows of the destination, and
         * `rows` of the source, before other rows. */
        int p = d - 1, q = plan_nearest_dim(l, done);
        uint32_t rows = row < together ? (uint32_t)(together / row) : 1;
        if (is_gpu && is_row && row >= 32 && p >= 0 && q >= 0 && p != q && rows > 1 && l->shape[p] > 2 * rows &&
            l->shape[q] > 2 * rows) {
            plan_cut_digit(l, p, rows, 0, u, &u->digit[n], &later[0]);
            plan_cut_digit(l, q, rows, 1, u, &u->digit[n + 1], &later[1]);
            n += 2;
            n_later = 2;
            done |= 1u << p | 1u << q;
        }
    }
    for (uint32_t i = 0; i < n_later; i++) {
        u->digit[n++] = later[i];
    }
    for (int i = d; i >= 0; i--) {
        if (!(done >> i & 1)) {
            u->digit[n++] = plan_digit(l, i);
        }
    }
    u->digits = n;
}

static hdi_plan_kind plan_units(const hdi_layout *layout, bool is_gpu, const hdi_plan_wish *wish, hdi_plan *out)
{
    hd_tensor_units *u = &out->units;
    memset(u, 0, sizeof *u);
    hdi_layout copy = *layout;
    const hdi_layout *l = &copy;
    if (is_gpu) {
        plan_gather_elements(&copy, u);
    }
    plan_choose_digits(l, is_gpu, wish && wish->group ? wish->group : ROWS_TOGETHER, u);
    int number = 0;
    while (unit_kernels[number].bytes != l->element) {
        number++;
    }
    out->number = number;
    out->kernel = unit_kernels[number].kernel;
    uint64_t grid = 1;
    bool fits = true;
    if (is_gpu) {
        /* A thread computes the outer digits once for all its units, so few digits should be inner
         * ones. But the inner digits count positions in pieces, and the last piece may be nearly
         * empty. So the plan adds inner digits until the positions fill whole pieces exactly, or
         * fill many pieces. */
        uint64_t count = 1;
        u->piece = HD_TENSOR_UNITS_THREADS * HD_TENSOR_UNITS_EACH;
        while (u->inner < u->digits && count * u->digit[u->inner].by.n <= COUNT_MOST &&
               !(count % u->piece == 0 || count >= (uint64_t)PIECES_LEAST * u->piece)) {
            count *= u->digit[u->inner++].by.n;
        }
        fits = u->inner == u->digits || count % u->piece == 0 || count >= (uint64_t)PIECES_LEAST * u->piece;
        u->count = (uint32_t)count;
        u->pieces = plan_divisor(plan_ceil_divide(count, u->piece));
        grid = u->pieces.n;
        u->apart = HD_TENSOR_UNITS_THREADS;
        while (u->common < u->inner && u->apart % u->digit[u->common].by.n == 0) {
            u->apart /= u->digit[u->common++].by.n;
        }
        for (uint32_t k = u->inner; k < u->digits; k++) {
            fits = fits && !__builtin_mul_overflow(grid, (uint64_t)u->digit[k].by.n, &grid);
        }
        out->block = HD_TENSOR_UNITS_THREADS;
    } else {
        uint64_t rows = 1;
        for (uint32_t k = 1; k < u->digits; k++) {
            fits = fits && !__builtin_mul_overflow(rows, (uint64_t)u->digit[k].by.n, &rows);
        }
        uint64_t row = (uint64_t)u->digit[0].by.n * l->element;
        u->piece = row < CPU_BLOCK_BYTES ? (uint32_t)(CPU_BLOCK_BYTES / row) : 1;
        grid = rows / u->piece + (rows % u->piece != 0);
        out->block = 1;
    }
    out->grid = (uint32_t)grid;
    return fits && grid <= COUNT_MOST ? HDI_PLAN_UNITS : HDI_PLAN_CUT;
}

/* ---- tiles ---- */

typedef struct group {
    int dims[HD_TENSOR_ROW_DIGITS];
    int n;
    uint64_t count; /* indices of all dimensions together */
} group;

/* The dimension that continues the group on one side. -1: no dimension does, it is taken, or the
 * group would be too large. */
static int plan_group_next(const hdi_layout *l, const group *g, const int64_t *stride, unsigned taken)
{
    int64_t end;
    if (g->n == HD_TENSOR_ROW_DIGITS || __builtin_mul_overflow((int64_t)g->count, stride[g->dims[0]], &end)) {
        return -1;
    }
    for (int i = 0; i < l->dims; i++) {
        if (!(taken >> i & 1) && stride[i] == end && g->count * l->shape[i] <= DIM_MOST) {
            return i;
        }
    }
    return -1;
}

/* The percentage of a row of tiles that elements fill. */
static uint64_t plan_percent_filled(uint64_t count, uint32_t size)
{
    return count * 100 / ((count + size - 1) / size * size);
}

/* Adds dimensions to i and j until their tiles are full enough. */
static void plan_grow_groups(const hdi_layout *l, group *i, group *j, uint32_t size_i, uint32_t size_j)
{
    assert(l->dims <= HD_TENSOR_DIMS);
    unsigned taken = 1u << i->dims[0] | 1u << j->dims[0];
    for (;;) {
        int of_i =
            plan_percent_filled(i->count, size_i) < FILLED_LEAST ? plan_group_next(l, i, l->src_stride, taken) : -1;
        int of_j =
            plan_percent_filled(j->count, size_j) < FILLED_LEAST ? plan_group_next(l, j, l->dst_stride, taken) : -1;
        if (of_i < 0 && of_j < 0) {
            return;
        }
        /* The group with the emptier tiles grows first. */
        bool to_i =
            of_j < 0 || (of_i >= 0 && plan_percent_filled(i->count, size_i) <= plan_percent_filled(j->count, size_j));
        group *g = to_i ? i : j;
        int dim = to_i ? of_i : of_j;
        g->dims[g->n++] = dim;
        g->count *= l->shape[dim];
        taken |= 1u << dim;
    }
}

/* True if the rows along a group are without gaps on one side, and begin at multiples of 16
 * bytes. */
static bool plan_group_is_wide(const hdi_layout *l, uint64_t address, const int64_t *stride, const group *g)
{
    uint64_t all = address;
    for (int k = 0; k < l->dims; k++) {
        bool along = false;
        for (int n = 0; n < g->n; n++) {
            /* the dimension is part of the group, so its stride need not be a multiple of 16
             * bytes */
            along |= g->dims[n] == k;
        }
        all |= along ? 0 : (uint64_t)stride[k];
    }
    return stride[g->dims[0]] == (int64_t)l->element && (all & 15) == 0;
}

/* Chooses the kernel for tiles. `wide`: all rows without gaps begin at multiples of 16 bytes. -1:
 * the wish cannot be granted. */
static int plan_choose_tile(const hdi_layout *l, const group *i, const group *j, bool wide, bool is_gpu,
                            const hdi_plan_wish *wish)
{
    bool single = i->n == 1 && j->n == 1;
    bool no_gaps = l->dst_stride[j->dims[0]] == (int64_t)l->element;
    if (wish && wish->kernel) {
        int number = plan_find_tile(wish->kernel);
        bool can = number >= 0 && tile_kinds[number].element == l->element &&
                   (tile_kinds[number].kind != HD_TENSOR_TILE_PLAIN || single) &&
                   (tile_kinds[number].kind != HD_TENSOR_TILE_SHIFTED || no_gaps);
        return can ? number : -1;
    }
    int row = 0;
    while (gpu_tiles[row].element != l->element) {
        row++;
    }
    int kind = single ? HD_TENSOR_TILE_PLAIN : HD_TENSOR_TILE_DIGITS;
    if (is_gpu && i->count <= FEW) {
        kind = FEW_I;
    } else if (is_gpu && j->count <= FEW) {
        kind = FEW_J;
    } else if (is_gpu && !wide && no_gaps && l->element < 16) {
        kind = HD_TENSOR_TILE_SHIFTED;
    }
    return plan_find_tile(gpu_tiles[row].kernel[kind]);
}

/* The number of tiles along one side. A shifted window may begin up to `margin` elements earlier.
 * The windows must still reach the last element. */
static uint64_t plan_count_tiles(uint64_t count, uint32_t size, uint32_t margin)
{
    return (count + margin + size - 1) / size;
}

/* The bytes of the run without gaps that a matrix forms on one side. `along`: the dimensions of
 * adjacent elements. `across`: the dimensions of rows. */
static uint64_t plan_group_run(const hdi_layout *l, const group *along, const group *across, const int64_t *stride)
{
    uint64_t run = along->count * l->element;
    int row = across->dims[0];
    return hdi_stride_size(stride[row]) == run ? run * l->shape[row] : run;
}

static void plan_fill_tile(const hdi_layout *l, const group *i, const group *j, hd_tensor_tile *p)
{
    assert(l->dims <= HD_TENSOR_DIMS);
    unsigned taken = 0;
    p->ni = (uint32_t)i->count;
    p->nj = (uint32_t)j->count;
    p->src_step = l->src_stride[i->dims[0]];
    p->dst_step = l->dst_stride[j->dims[0]];
    p->i_digits = (uint32_t)i->n;
    p->j_digits = (uint32_t)j->n;
    for (int k = 0; k < i->n; k++) {
        taken |= 1u << i->dims[k];
        p->i_row[k].by = plan_divisor((uint32_t)l->shape[i->dims[k]]);
        p->i_row[k].step = l->dst_stride[i->dims[k]];
    }
    for (int k = 0; k < j->n; k++) {
        taken |= 1u << j->dims[k];
        p->j_row[k].by = plan_divisor((uint32_t)l->shape[j->dims[k]]);
        p->j_row[k].step = l->src_stride[j->dims[k]];
    }
    /* Orders the other dimensions. The first ones continue the matrix on the side where its runs
     * are shorter. So blocks that run at the same time make long runs on both sides. */
    bool by_src = plan_group_run(l, i, j, l->src_stride) < plan_group_run(l, j, i, l->dst_stride);
    for (;;) {
        int next = by_src ? plan_nearest_dim(l, taken) : -1;
        for (int k = l->dims - 1; k >= 0 && next < 0; k--) {
            next = taken >> k & 1 ? -1 : k;
        }
        if (next < 0) {
            return;
        }
        taken |= 1u << next;
        p->batch[p->batch_digits++] = plan_digit(l, next);
    }
}

/* Sets the divisors by which a block finds its tile. The matrix has at most COUNT_MOST tiles. */
static void plan_number_tiles(hd_tensor_tile *p)
{
    p->across[0] = plan_divisor(p->group);
    p->across[1] = plan_divisor((p->tiles_j - 1) % p->group + 1);
    p->strip = plan_divisor(p->group * p->tiles_i);
    p->matrix = plan_divisor(p->tiles_i * p->tiles_j);
}

static hdi_plan_kind plan_tiles(const hdi_layout *l, int s, bool is_gpu, const hdi_plan_wish *wish, hdi_plan *out)
{
    hd_tensor_tile *p = &out->tile;
    memset(p, 0, sizeof *p);
    int d = l->dims - 1, row = 0;
    while (cpu_tiles[row].element != l->element) {
        row++;
    }
    uint32_t group_most = is_gpu ? GPU_GROUP : CPU_GROUP;
    int usual = plan_find_tile(gpu_tiles[row].kernel[HD_TENSOR_TILE_PLAIN]);
    usual = wish && wish->kernel && plan_find_tile(wish->kernel) >= 0 ? plan_find_tile(wish->kernel) : usual;
    p->size_i = is_gpu ? tile_kinds[usual].size_i : cpu_tiles[row].size_i;
    p->size_j = is_gpu ? tile_kinds[usual].size_j : cpu_tiles[row].size_j;
    group i = {.dims = {s}, .n = 1, .count = l->shape[s]}, j = {.dims = {d}, .n = 1, .count = l->shape[d]};
    plan_grow_groups(l, &i, &j, p->size_i, p->size_j);
    uint64_t least = is_gpu ? GPU_TILE_LEAST : CPU_TILE_LEAST;
    bool few = i.count < least || j.count < least || (is_gpu && i.count <= FEW && j.count <= FEW);
    if (few && !(wish && wish->kernel)) {
        return HDI_PLAN_NONE;
    }
    bool no_gaps_in = l->src_stride[s] == (int64_t)l->element, no_gaps_out = l->dst_stride[d] == (int64_t)l->element;
    bool wide_loads = plan_group_is_wide(l, l->src, l->src_stride, &i),
         wide_stores = plan_group_is_wide(l, l->dst, l->dst_stride, &j);
    out->number = plan_choose_tile(l, &i, &j, wide_stores && (wide_loads || !no_gaps_in), is_gpu, wish);
    if (out->number < 0) {
        return HDI_PLAN_NONE;
    }
    uint32_t margin = 0;
    if (is_gpu) {
        const hdi_tile_kind *kind = &tile_kinds[out->number];
        p->size_i = kind->size_i;
        p->size_j = kind->size_j;
        out->block = kind->threads;
        if (kind->kind == HD_TENSOR_TILE_SHIFTED) {
            margin = 32 / l->element - 1;
            wide_loads = no_gaps_in;
            wide_stores = no_gaps_out;
        }
    } else {
        out->block = 1;
        wide_loads = no_gaps_in;
        wide_stores = no_gaps_out;
    }
    p->flags = (wide_loads ? HD_TENSOR_WIDE_LOADS : 0) | (wide_stores ? HD_TENSOR_WIDE_STORES : 0);
    plan_fill_tile(l, &i, &j, p);
    p->tiles_i = (uint32_t)plan_count_tiles(i.count, p->size_i, 0);
    p->tiles_j = (uint32_t)plan_count_tiles(j.count, p->size_j, margin);
    p->group = wish && wish->group ? wish->group : group_most;
    p->group = p->group < p->tiles_j ? p->group : p->tiles_j;
    uint64_t grid = (uint64_t)p->tiles_i * p->tiles_j, elements = i.count * j.count;
    bool fits = grid <= COUNT_MOST;
    if (fits) {
        plan_number_tiles(p);
    }
    for (uint32_t k = 0; k < p->batch_digits; k++) {
        fits = fits && !__builtin_mul_overflow(grid, (uint64_t)p->batch[k].by.n, &grid);
        elements = fits ? elements * p->batch[k].by.n : UINT64_MAX;
    }
    p->flags |= !is_gpu && elements >= CPU_STREAM_BYTES / l->element ? HD_TENSOR_STREAM : 0;
    out->grid = (uint32_t)grid;
    out->kernel = tile_kernels[out->number];
    out->number += N_UNITS;
    return fits && grid <= COUNT_MOST ? HDI_PLAN_TILES : HDI_PLAN_CUT;
}

/* ---- complete plans ---- */

/* Chooses the cut of a layout that is too large for one launch. The longest dimension is cut at
 * DIM_MOST indices if it is longer, and otherwise into about two halves. A dimension of 512 or more
 * is cut at a multiple of 256, so that cache lines of both sides stay whole. */
static void plan_choose_cut(const hdi_layout *l, hdi_plan *out)
{
    int longest = 0;
    for (int i = 1; i < l->dims; i++) {
        longest = l->shape[i] > l->shape[longest] ? i : longest;
    }
    uint64_t n = l->shape[longest];
    out->kind = HDI_PLAN_CUT;
    out->cut_dim = longest;
    out->cut_at = n > DIM_MOST ? DIM_MOST : n >= 512 ? n / 2 / 256 * 256 : n / 2;
}

void hdi_plan_make(const hdi_layout *layout, const hdi_plan_device *device, const hdi_plan_wish *wish, hdi_plan *out)
{
    hdi_layout l = *layout;
    bool is_gpu = device->is_gpu, wants_units = wish && wish->kernel && strcmp(wish->kernel, "units") == 0;
    out->kind = HDI_PLAN_CUT;
    bool fits = true;
    for (int i = 0; i < l.dims; i++) {
        fits = fits && l.shape[i] <= DIM_MOST;
    }
    if (l.dims == 0) {
        l.dims = 1;
        l.shape[0] = 1;
        l.dst_stride[0] = l.src_stride[0] = (int64_t)l.element;
    }
    if (fits) {
        if (is_gpu) {
            plan_split_elements(&l);
        }
        plan_join_elements(&l, is_gpu);
        out->dst = l.dst;
        out->src = l.src;
        int s = plan_nearest_dim(&l, 0);
        bool tiles = s >= 0 && s != l.dims - 1 && l.src_stride[l.dims - 1] != 0 && !wants_units &&
                     hdi_stride_size(l.src_stride[s]) <= GATHER_FAR;
        out->kind = tiles ? plan_tiles(&l, s, is_gpu, wish, out) : HDI_PLAN_NONE;
        if (out->kind == HDI_PLAN_NONE && (!wish || !wish->kernel || wants_units)) {
            out->kind = plan_units(&l, is_gpu, wish, out);
        }
    }
    if (out->kind == HDI_PLAN_CUT) {
        plan_choose_cut(layout, out);
    }
}
