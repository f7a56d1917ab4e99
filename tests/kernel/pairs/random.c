/* random.c - counter-based random numbers and their uses, as kernel source. random.cu is the same
 * in CUDA C++. */
#include <heddle/kernel.h>

typedef struct words4 {
    uint32_t x, y, z, w;
} words4;
typedef struct vector4 {
    float x, y, z, w;
} vector4;
typedef struct market {
    float rate, volatility;
} market;

HD_DEVICE words4 words_of(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    words4 words = {x, y, z, w};
    return words;
}

/* Philox 4x32-10: 128 random bits of a counter and a key. */
HD_DEVICE words4 philox(words4 counter, uint32_t key_x, uint32_t key_y)
{
    for (int round = 0; round < 10; round++) {
        uint64_t product0 = (uint64_t)0xD2511F53u * counter.x, product1 = (uint64_t)0xCD9E8D57u * counter.z;
        counter = words_of((uint32_t)(product1 >> 32) ^ counter.y ^ key_x, (uint32_t)product1,
                           (uint32_t)(product0 >> 32) ^ counter.w ^ key_y, (uint32_t)product0);
        key_x += 0x9E3779B9u;
        key_y += 0xBB67AE85u;
    }
    return counter;
}

HD_KERNEL(philox_bits, HD_OUT(words4, out), HD_VALUE(uint64_t, seed), HD_VALUE(int, n))
{
    int i = (int)hd_global_x();
    if (i < n) {
        out[i] = philox(words_of((uint32_t)i, 0, 0, 0), (uint32_t)seed, (uint32_t)(seed >> 32));
    }
}

/* Normally distributed numbers, four for each counter. */
HD_KERNEL(box_muller, HD_OUT(vector4, out), HD_VALUE(uint64_t, seed), HD_VALUE(int, n))
{
    int i = (int)hd_global_x();
    if (i >= n) {
        return;
    }
    words4 r = philox(words_of((uint32_t)i, 1, 0, 0), (uint32_t)seed, (uint32_t)(seed >> 32));
    const float scale = 1.0f / 16777216.0f;
    /* in (0, 1] and in [0, 1): no logarithm of 0 */
    float u1 = ((r.x >> 8) + 1) * scale, v1 = (r.y >> 8) * scale;
    float u2 = ((r.z >> 8) + 1) * scale, v2 = (r.w >> 8) * scale;
    float radius1 = sqrtf(-2 * logf(u1)), radius2 = sqrtf(-2 * logf(u2));
    vector4 normal = {radius1 * cospif(2 * v1), radius1 * sinpif(2 * v1), radius2 * cospif(2 * v2),
                      radius2 * sinpif(2 * v2)};
    out[i] = normal;
}

/* Counts the points of a square that lie in the circle, in whole numbers. */
HD_KERNEL(monte_carlo_pi, HD_INOUT(uint64_t, hits), HD_VALUE(uint32_t, seed), HD_VALUE(int, per_thread))
{
    HD_SHARED uint64_t block_hits;
    if (hd_thread_x() == 0) {
        block_hits = 0;
    }
    hd_barrier();
    uint64_t mine = 0;
    for (int i = 0; i < per_thread; i++) {
        words4 r = philox(words_of((uint32_t)hd_global_x(), (uint32_t)i, 0, 2), seed, 0);
        uint64_t x = r.x >> 1, y = r.y >> 1;
        mine += x * x + y * y < (uint64_t)1 << 62;
    }
    hd_atomic_add_u64(&block_hits, mine);
    hd_barrier();
    if (hd_thread_x() == 0) {
        hd_atomic_add_u64(hits, block_hits);
    }
}

/* Drops elements with a probability of threshold / 2^32, and scales the others. */
HD_KERNEL(dropout, HD_OUT(float, y), HD_IN(float, x), HD_VALUE(uint32_t, threshold), HD_VALUE(float, scale),
          HD_VALUE(uint32_t, seed), HD_VALUE(int, n))
{
    int i = (int)hd_global_x();
    if (4 * i < n) {
        words4 r = philox(words_of((uint32_t)i, 0, 0, 3), seed, seed ^ 0x5bd1e995u);
        uint32_t bits[4] = {r.x, r.y, r.z, r.w};
        for (int j = 0; j < 4; j++) {
            if (4 * i + j < n) {
                y[4 * i + j] = bits[j] < threshold ? 0 : x[4 * i + j] * scale;
            }
        }
    }
}

HD_DEVICE float cumulative_normal(float d)
{
    return 0.5f * erfcf(-d * 0.707106781f);
}
/* Prices of European options. */
HD_KERNEL(black_scholes, HD_OUT(float, call), HD_OUT(float, put), HD_IN(float, spot), HD_IN(float, strike),
          HD_IN(float, years), HD_VALUE(market, m), HD_VALUE(int, n))
{
    for (int i = (int)hd_global_x(); i < n; i += (int)(hd_block_dim_x() * hd_grid_dim_x())) {
        float spread = m.volatility * sqrtf(years[i]);
        float d1 = (logf(spot[i] / strike[i]) + (m.rate + 0.5f * m.volatility * m.volatility) * years[i]) / spread;
        float d2 = d1 - spread, discounted = strike[i] * expf(-m.rate * years[i]);
        call[i] = spot[i] * cumulative_normal(d1) - discounted * cumulative_normal(d2);
        put[i] = discounted * cumulative_normal(-d2) - spot[i] * cumulative_normal(-d1);
    }
}
