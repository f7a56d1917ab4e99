/* reductions.c - the expected results of the kernels of reductions.
 *
 * Threads: one. Blocking: none.
 */
#include "pairs.h"

#include <math.h>

static void sum_shuffle(pairs_launch *l)
{
    enum { N = 20011 };
    double *total = pairs_inout(l, PAIRS_F32, 1, NULL);
    const float *x = pairs_in_f32(l, N, 0, 1);
    pairs_value(l, hd_i32(N));
    l->grid.x = 7;
    l->block.x = 192;
    for (int i = 0; i < N; i++) {
        *total += (double)x[i];
    }
}

static void sum_tree_f64(pairs_launch *l)
{
    enum { N = 5000, BLOCK = 256, BLOCKS = (N + BLOCK - 1) / BLOCK };
    double *partial = pairs_out(l, PAIRS_F64, BLOCKS);
    double *x = pairs_in(l, PAIRS_F64, N);
    pairs_value(l, hd_i32(N));
    l->grid.x = BLOCKS;
    l->block.x = BLOCK;
    l->shared = BLOCK * sizeof(double);
    for (int i = 0; i < N; i++) {
        x[i] = (double)pairs_bits(l) / 4096; /* their sums are exact in any order */
        partial[i / BLOCK] += x[i];
    }
}

static void sum_tree_i32(pairs_launch *l)
{
    enum { N = 3001, BLOCK = 128, BLOCKS = (N + BLOCK - 1) / BLOCK };
    double *partial = pairs_out(l, PAIRS_I32, BLOCKS);
    int *x = pairs_in(l, PAIRS_I32, N);
    pairs_value(l, hd_i32(N));
    l->grid.x = BLOCKS;
    l->block.x = BLOCK;
    l->shared = BLOCK * sizeof(int);
    for (int i = 0; i < N; i++) {
        x[i] = (int)(pairs_bits(l) >> 8) - (1 << 23);
        partial[i / BLOCK] += x[i];
    }
}

static void max_cas(pairs_launch *l)
{
    enum { N = 3333 };
    void *before;
    double *most = pairs_inout(l, PAIRS_F32, 1, &before);
    const float *x = pairs_in_f32(l, N, -50, 50);
    pairs_value(l, hd_i32(N));
    l->grid.x = (N + 255) / 256;
    l->block.x = 256;
    pairs_set(PAIRS_F32, before, 0, -1000);
    *most = -1000;
    for (int i = 0; i < N; i++) {
        *most = fmax(*most, (double)x[i]);
    }
}

static void argmax_rows(pairs_launch *l)
{
    enum { ROWS = 37, COLUMNS = 150 };
    double *where = pairs_out(l, PAIRS_I32, ROWS), *best = pairs_out(l, PAIRS_F32, ROWS);
    float *x = pairs_in(l, PAIRS_F32, ROWS * COLUMNS);
    pairs_value(l, hd_i32(ROWS));
    pairs_value(l, hd_i32(COLUMNS));
    l->grid.x = (ROWS + 3) / 4;
    l->block.x = 128;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        /* every other row contains equal elements */
        x[i] = (float)(pairs_bits(l) % (i / COLUMNS % 2 ? 20 : 1000000));
    }
    for (int r = 0; r < ROWS; r++) {
        int at = 0;
        for (int c = 1; c < COLUMNS; c++) {
            at = x[r * COLUMNS + c] > x[r * COLUMNS + at] ? c : at;
        }
        where[r] = at;
        best[r] = (double)x[r * COLUMNS + at];
    }
}

static void histogram256(pairs_launch *l)
{
    enum { N = 30001 };
    double *bins = pairs_inout(l, PAIRS_U32, 256, NULL);
    uint8_t *x = pairs_in(l, PAIRS_U8, N);
    pairs_value(l, hd_i32(N));
    l->grid.x = 6;
    l->block.x = 160;
    for (int i = 0; i < N; i++) {
        x[i] = (uint8_t)(pairs_bits(l) & pairs_bits(l));
        bins[x[i]]++;
    }
}

static void scan_block(pairs_launch *l)
{
    enum { N = 2500, BLOCK = 256, BLOCKS = (N + BLOCK - 1) / BLOCK };
    double *out = pairs_out(l, PAIRS_I32, N), *sums = pairs_out(l, PAIRS_I32, BLOCKS);
    int *x = pairs_in(l, PAIRS_I32, N);
    pairs_value(l, hd_i32(N));
    l->grid.x = BLOCKS;
    l->block.x = BLOCK;
    for (int i = 0; i < N; i++) {
        x[i] = (int)(pairs_bits(l) % 2001) - 1000;
        out[i] = sums[i / BLOCK] += x[i];
    }
}

static void scan_segments(pairs_launch *l)
{
    enum { N = 1024 };
    double *out = pairs_out(l, PAIRS_I32, N), sum = 0;
    int *x = pairs_in(l, PAIRS_I32, N);
    uint8_t *head = pairs_in(l, PAIRS_U8, N);
    l->grid.x = N / 256;
    l->block.x = 256;
    for (int i = 0; i < N; i++) {
        x[i] = (int)(pairs_bits(l) % 100);
        head[i] = pairs_bits(l) % 9 == 0;
        sum = head[i] || i % 32 == 0 ? x[i] : sum + x[i];
        out[i] = sum;
    }
}

static void compact(pairs_launch *l)
{
    enum { N = 4001 };
    static float x[N];
    unsigned kept = 0;
    for (int i = 0; i < N; i++) {
        x[i] = (float)(pairs_bits(l) % 64) / 64; /* some equal the threshold */
        kept += x[i] >= 0.75f;
    }
    double *out = pairs_out(l, PAIRS_F32, kept);
    pairs_any_order(l);
    *pairs_inout(l, PAIRS_U32, 1, NULL) = kept;
    float *copy = pairs_in(l, PAIRS_F32, N);
    for (int i = 0; i < N; i++) {
        copy[i] = x[i];
        if (x[i] >= 0.75f) {
            *out++ = (double)x[i];
        }
    }
    pairs_value(l, hd_f32(0.75f));
    pairs_value(l, hd_i32(N));
    l->grid.x = (N + 127) / 128;
    l->block.x = 128;
}

static void warp_votes(pairs_launch *l)
{
    enum { N = 2048 };
    double *votes = pairs_out(l, PAIRS_U32, N / 32);
    int *x = pairs_in(l, PAIRS_I32, N);
    l->grid.x = N / 512;
    l->block.x = 512;
    for (int w = 0; w < N / 32; w++) {
        int negative = 0;
        for (int i = 0; i < 32; i++) {
            x[32 * w + i] = (int)(pairs_bits(l) % 32) - w % 34; /* all, none, or some */
            negative += x[32 * w + i] < 0;
        }
        votes[w] = (negative > 0) | (negative == 32) << 1 | negative << 2;
    }
}

static const char exact[] = "it is exact";

const pairs_row pairs_reductions[] = {
    {"reductions", "sum_shuffle", "sum_shuffle(float*, float const*, int)", sum_shuffle, 0, 4e-6,
     "positive numbers: 15 + 10 + 7 additions follow each other, each within 6e-8 of the sum"},
    {"reductions", "sum_tree_f64", "sum_tree<double>", sum_tree_f64, 0, 0, exact},
    {"reductions", "sum_tree_i32", "_Z8sum_treeIiEvPT_PKS0_i", sum_tree_i32, 0, 0, exact},
    {"reductions", "max_cas", NULL, max_cas, 0, 0, exact},
    {"reductions", "argmax_rows", NULL, argmax_rows, 0, 0, exact},
    {"reductions", "histogram256", "histogram256(unsigned int*, unsigned char const*, int)", histogram256, 0, 0, exact},
    {"reductions", "scan_block", NULL, scan_block, 0, 0, exact},
    {"reductions", "scan_segments", NULL, scan_segments, 0, 0, exact},
    {"reductions", "compact", NULL, compact, 0, 0, exact},
    {"reductions", "warp_votes", NULL, warp_votes, 0, 0, exact},
    {0},
};
