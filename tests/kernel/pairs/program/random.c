/* random.c - the expected results of the kernels of random.
 *
 * Threads: one. Blocking: none.
 */
#include "pairs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Philox 4x32-10 by its authors' description: two multiplications, exchanged words, and a raised
 * key in each round. */
static void philox(const uint32_t from[4], const uint32_t with[2], uint32_t out[4])
{
    uint32_t key[2] = {with[0], with[1]};
    memcpy(out, from, 4 * sizeof *out);
    for (int round = 0; round < 10; round++) {
        const uint64_t even = (uint64_t)out[0] * 0xD2511F53u, odd = (uint64_t)out[2] * 0xCD9E8D57u;
        const uint32_t next[4] = {(uint32_t)(odd >> 32) ^ out[1] ^ key[0], (uint32_t)odd,
                                  (uint32_t)(even >> 32) ^ out[3] ^ key[1], (uint32_t)even};
        memcpy(out, next, sizeof next);
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
}

/* Checks the published result for a counter and a key of zeros. */
static void check_generator(void)
{
    static const uint32_t zeros[4], published[4] = {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u};
    uint32_t out[4];
    philox(zeros, zeros, out);
    if (memcmp(out, published, sizeof out) != 0) {
        fprintf(stderr, "pairs: the generator differs from what its authors published\n");
        exit(2);
    }
}

static const uint64_t seed = 0x123456789abcdefu;
static const uint32_t seeds[2] = {0x89abcdefu, 0x1234567u};

static void philox_bits(pairs_launch *l)
{
    enum { N = 1001 };
    double *out = pairs_out(l, PAIRS_U32, 4 * N);
    pairs_value(l, hd_u64(seed));
    pairs_value(l, hd_i32(N));
    l->grid.x = (N + 127) / 128;
    l->block.x = 128;
    check_generator();
    for (uint32_t i = 0; i < N; i++) {
        uint32_t counter[4] = {i, 0, 0, 0}, bits[4];
        philox(counter, seeds, bits);
        for (uint32_t j = 0; j < 4; j++) {
            out[4 * i + j] = bits[j];
        }
    }
}

static void box_muller(pairs_launch *l)
{
    enum { N = 1500 };
    double *out = pairs_out(l, PAIRS_F32, 4 * N);
    pairs_value(l, hd_u64(seed));
    pairs_value(l, hd_i32(N));
    l->grid.x = (N + 127) / 128;
    l->block.x = 128;
    for (uint32_t i = 0; i < N; i++) {
        uint32_t counter[4] = {i, 1, 0, 0}, bits[4];
        philox(counter, seeds, bits);
        for (uint32_t j = 0; j < 4; j += 2) {
            double radius = sqrt(-2 * log(((bits[j] >> 8) + 1) / 16777216.0));
            double angle = 2 * acos(-1) * (bits[j + 1] >> 8) / 16777216.0;
            out[4 * i + j] = radius * cos(angle);
            out[4 * i + j + 1] = radius * sin(angle);
        }
    }
}

static void monte_carlo_pi(pairs_launch *l)
{
    enum { GRID = 5, BLOCK = 96, EACH = 20 };
    double *hits = pairs_inout(l, PAIRS_U64, 1, NULL);
    pairs_value(l, hd_u32(77));
    pairs_value(l, hd_i32(EACH));
    l->grid.x = GRID;
    l->block.x = BLOCK;
    for (uint32_t i = 0; i < GRID * BLOCK * EACH; i++) {
        uint32_t counter[4] = {i / EACH, i % EACH, 0, 2}, key[2] = {77, 0}, bits[4];
        philox(counter, key, bits);
        uint64_t x = bits[0] / 2, y = bits[1] / 2;
        *hits += (x * x + y * y) >> 62 == 0;
    }
}

static void dropout(pairs_launch *l)
{
    enum { N = 3003 };
    const uint32_t threshold = 0x40000000u, with[2] = {4711, 4711 ^ 0x5bd1e995u};
    double *y = pairs_out(l, PAIRS_F32, N);
    const float *x = pairs_in_f32(l, N, -1, 1);
    pairs_value(l, hd_u32(threshold));
    pairs_value(l, hd_f32(4.0f / 3));
    pairs_value(l, hd_u32(with[0]));
    pairs_value(l, hd_i32(N));
    l->grid.x = (N + 511) / 512;
    l->block.x = 128;
    for (uint32_t i = 0; i < N; i++) {
        uint32_t counter[4] = {i / 4, 0, 0, 3}, bits[4];
        philox(counter, with, bits);
        /* a product of floats, rounded once */
        y[i] = bits[i % 4] < threshold ? 0 : (double)(x[i] * (4.0f / 3));
    }
}

static double normal_below(double d)
{
    return erfc(-d / sqrt(2)) / 2;
}

static void black_scholes(pairs_launch *l)
{
    enum { N = 2000 };
    const struct {
        float rate, volatility;
    } m = {0.02f, 0.3f};
    double *call = pairs_out(l, PAIRS_F32, N), *put = pairs_out(l, PAIRS_F32, N);
    const float *spot = pairs_in_f32(l, N, 5, 30), *strike = pairs_in_f32(l, N, 1, 100),
                *years = pairs_in_f32(l, N, 0.25, 10);
    pairs_structure(l, &m, sizeof m);
    pairs_value(l, hd_i32(N));
    l->grid.x = 4;
    l->block.x = 128;
    const double rate = (double)m.rate, volatility = (double)m.volatility;
    for (int i = 0; i < N; i++) {
        double s = (double)spot[i], k = (double)strike[i], t = (double)years[i], spread = volatility * sqrt(t);
        double d = (log(s / k) + (rate + volatility * volatility / 2) * t) / spread, now = k * exp(-rate * t);
        call[i] = s * normal_below(d) - now * normal_below(d - spread);
        put[i] = now * normal_below(spread - d) - s * normal_below(-d);
    }
}

const pairs_row pairs_random[] = {
    {"random", "philox_bits", "philox_bits(uint4*, unsigned long long, int)", philox_bits, 0, 0, "it is exact"},
    {"random", "box_muller", NULL, box_muller, 5e-7, 1e-6,
     "logf is 1 ULP off and halved by the root, sinpif and cospif 2 ULP; numbers up to 6"},
    {"random", "monte_carlo_pi", NULL, monte_carlo_pi, 0, 0, "it is exact"},
    {"random", "dropout", "dropout<float>", dropout, 0, 0, "it is exact"},
    {"random", "black_scholes", "finance::black_scholes", black_scholes, 1e-4, 0,
     "differences of numbers up to 100, whose normal distribution has 5e-7 of d, which is up to 30 and 5e-7 off"},
    {0},
};
