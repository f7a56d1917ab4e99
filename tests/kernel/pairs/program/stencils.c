/* stencils.c - the expected results of the kernels of stencils.
 *
 * Threads: one. Blocking: none.
 */
#include "pairs.h"

static double laplace_8(const float *u, size_t i, const size_t step[3])
{
    static const double coefficients[] = {-205.0 / 72, 8.0 / 5, -1.0 / 5, 8.0 / 315, -1.0 / 560};
    double sum = 0;
    for (int d = 0; d < 3; d++) {
        sum += coefficients[0] * (double)u[i];
        for (size_t j = 1; j <= 4; j++) {
            sum += coefficients[j] * ((double)u[i - j * step[d]] + (double)u[i + j * step[d]]);
        }
    }
    return sum;
}

static void acoustic(pairs_launch *l)
{
    enum { X = 50, Y = 29, Z = 14 };
    const size_t step[3] = {1, X, X * Y};
    void *before;
    double *next = pairs_inout(l, PAIRS_F32, X * Y * Z, &before);
    const float *now = pairs_in_f32(l, X * Y * Z, -1, 1), *velocity = pairs_in_f32(l, X * Y * Z, 0.05, 0.2);
    pairs_value(l, hd_i32(X));
    pairs_value(l, hd_i32(Y));
    pairs_value(l, hd_i32(Z));
    l->grid = (hd_dims){(X - 8 + 31) / 32, (Y - 8 + 7) / 8, 1};
    l->block = (hd_dims){32, 8, 1};
    for (size_t i = 0; i < X * Y * Z; i++) {
        size_t x = i % X, y = i / X % Y, z = i / X / Y;
        bool inside = x >= 4 && x < X - 4 && y >= 4 && y < Y - 4 && z >= 4 && z < Z - 4;
        next[i] = (double)(((float *)before)[i] = pairs_random_f32(l, -1, 1));
        if (inside) {
            next[i] = 2 * (double)now[i] - next[i] + (double)velocity[i] * laplace_8(now, i, step);
        }
    }
}

static void heat_1d(pairs_launch *l)
{
    enum { N = 1000 };
    double *next = pairs_out(l, PAIRS_F32, N);
    const float *now = pairs_in_f32(l, N, 0, 100);
    pairs_value(l, hd_f32(0.24f));
    pairs_value(l, hd_i32(N));
    l->grid.x = (N + 127) / 128;
    l->block.x = 128;
    for (int i = 0; i < N; i++) {
        bool end = i == 0 || i == N - 1;
        double curve = end ? 0 : (double)now[i - 1] - 2 * (double)now[i] + (double)now[i + 1];
        next[i] = (double)now[i] + (double)0.24f * curve;
    }
}

static void jacobi_2d(pairs_launch *l)
{
    enum { W = 71, H = 43 };
    double *next = pairs_out(l, PAIRS_F64, W * H);
    double *now = pairs_in(l, PAIRS_F64, W * H), *source = pairs_in(l, PAIRS_F64, W * H);
    pairs_value(l, hd_i32(W));
    pairs_value(l, hd_i32(H));
    l->grid = (hd_dims){(W + 15) / 16, (H + 15) / 16, 1};
    l->block = (hd_dims){16, 16, 1};
    for (int i = 0; i < W * H; i++) {
        now[i] = (double)pairs_bits(l) / 4096; /* their sums are exact in any order */
        source[i] = (double)pairs_bits(l) / 4096;
    }
    for (int y = 0; y < H; y++) {
        for (int x = 0; x < W; x++) {
            int i = y * W + x;
            bool border = x == 0 || y == 0 || x == W - 1 || y == H - 1;
            next[i] = border ? now[i] : (now[i - 1] + now[i + 1] + now[i - W] + now[i + W] - source[i]) / 4;
        }
    }
}

static int clamp(int i, int n)
{
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

static void diffuse_3d(pairs_launch *l)
{
    enum { X = 21, Y = 18, Z = 11 };
    const struct {
        float x, y, z;
    } k = {0.1f, 0.125f, 0.05f};
    double *next = pairs_out(l, PAIRS_F32, X * Y * Z);
    const float *now = pairs_in_f32(l, X * Y * Z, 0, 1);
    pairs_structure(l, &k, sizeof k);
    pairs_value(l, hd_i32(X));
    pairs_value(l, hd_i32(Y));
    pairs_value(l, hd_i32(Z));
    l->grid = (hd_dims){(X + 7) / 8, (Y + 3) / 4, (Z + 1) / 2};
    l->block = (hd_dims){8, 4, 2};
    for (int i = 0; i < X * Y * Z; i++) {
        int x = i % X, y = i / X % Y, z = i / X / Y;
        double u = (double)now[i], sum = u;
        for (int side = -1; side <= 1; side += 2) {
            sum += (double)k.x * ((double)now[i - x + clamp(x + side, X)] - u);
            sum += (double)k.y * ((double)now[i + (clamp(y + side, Y) - y) * X] - u);
            sum += (double)k.z * ((double)now[i + (clamp(z + side, Z) - z) * X * Y] - u);
        }
        next[i] = sum;
    }
}

static void life(pairs_launch *l)
{
    enum { W = 61, H = 34 };
    double *next = pairs_out(l, PAIRS_U8, W * H);
    uint8_t *now = pairs_in(l, PAIRS_U8, W * H);
    pairs_value(l, hd_i32(W));
    pairs_value(l, hd_i32(H));
    l->grid = (hd_dims){(W + 31) / 32, (H + 3) / 4, 1};
    l->block = (hd_dims){32, 4, 1};
    for (int i = 0; i < W * H; i++) {
        now[i] = pairs_bits(l) % 3 == 0;
    }
    for (int i = 0; i < W * H; i++) {
        int alive = -now[i];
        for (int j = 0; j < 9; j++) {
            alive += now[(i / W + H + j / 3 - 1) % H * W + (i % W + W + j % 3 - 1) % W];
        }
        next[i] = alive == 3 || (alive == 2 && now[i] != 0);
    }
}

const pairs_row pairs_stencils[] = {
    {"stencils", "acoustic", "wave::acoustic", acoustic, 4e-6, 0,
     "25 products and sums of numbers up to 17, times 0.2"},
    {"stencils", "heat_1d", "heat_1d<128>", heat_1d, 5e-5, 0, "five operations on numbers up to 200"},
    {"stencils", "jacobi_2d", NULL, jacobi_2d, 0, 0, "it is exact"},
    {"stencils", "diffuse_3d", "diffuse_3d(float*, float const*, float3, int, int, int)", diffuse_3d, 1e-6, 0,
     "13 operations on numbers up to 2"},
    {"stencils", "life", NULL, life, 0, 0, "it is exact"},
    {0},
};
