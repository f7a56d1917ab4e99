/* random.cu - counter-based random numbers and their uses, in CUDA C++. random.c is the same as
 * kernel source. */

// Philox 4x32-10: 128 random bits of a counter and a key.
__device__ uint4 philox(uint4 counter, uint2 key)
{
    for (int round = 0; round < 10; round++) {
        unsigned high0 = __umulhi(0xD2511F53u, counter.x), low0 = 0xD2511F53u * counter.x;
        unsigned high1 = __umulhi(0xCD9E8D57u, counter.z), low1 = 0xCD9E8D57u * counter.z;
        counter = make_uint4(high1 ^ counter.y ^ key.x, low1, high0 ^ counter.w ^ key.y, low0);
        key.x += 0x9E3779B9u;
        key.y += 0xBB67AE85u;
    }
    return counter;
}

__global__ void philox_bits(uint4 *out, unsigned long long seed, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = philox(make_uint4(i, 0, 0, 0), make_uint2((unsigned)seed, (unsigned)(seed >> 32)));
    }
}

// Normally distributed numbers, four for each counter.
__global__ void box_muller(float4 *out, unsigned long long seed, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) {
        return;
    }
    uint4 r = philox(make_uint4(i, 1, 0, 0), make_uint2((unsigned)seed, (unsigned)(seed >> 32)));
    const float scale = 1.0f / 16777216.0f;
    // in (0, 1] and in [0, 1): no logarithm of 0
    float u1 = ((r.x >> 8) + 1) * scale, v1 = (r.y >> 8) * scale;
    float u2 = ((r.z >> 8) + 1) * scale, v2 = (r.w >> 8) * scale;
    float radius1 = sqrtf(-2.0f * logf(u1)), radius2 = sqrtf(-2.0f * logf(u2));
    float4 normal;
    sincospif(2.0f * v1, &normal.y, &normal.x);
    sincospif(2.0f * v2, &normal.w, &normal.z);
    out[i] = make_float4(radius1 * normal.x, radius1 * normal.y, radius2 * normal.z, radius2 * normal.w);
}

// Counts the points of a square that lie in the circle, in whole numbers.
__global__ void monte_carlo_pi(unsigned long long *hits, unsigned seed, int per_thread)
{
    __shared__ unsigned long long block_hits;
    if (threadIdx.x == 0) {
        block_hits = 0;
    }
    __syncthreads();
    unsigned long long mine = 0;
    for (int i = 0; i < per_thread; i++) {
        uint4 r = philox(make_uint4(blockIdx.x * blockDim.x + threadIdx.x, i, 0, 2), make_uint2(seed, 0));
        unsigned long long x = r.x >> 1, y = r.y >> 1;
        mine += x * x + y * y < 1ull << 62;
    }
    atomicAdd(&block_hits, mine);
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd(hits, block_hits);
    }
}

// Drops elements with a probability of threshold / 2^32, and scales the others.
template <typename T>
__global__ void dropout(T *__restrict__ y, const T *__restrict__ x, unsigned threshold, T scale, unsigned seed, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (4 * i < n) {
        uint4 r = philox(make_uint4(i, 0, 0, 3), make_uint2(seed, seed ^ 0x5bd1e995u));
        unsigned bits[4] = {r.x, r.y, r.z, r.w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (4 * i + j < n) {
                y[4 * i + j] = bits[j] < threshold ? T(0) : x[4 * i + j] * scale;
            }
        }
    }
}
template __global__ void dropout<float>(float *, const float *, unsigned, float, unsigned, int);

namespace finance
{
struct market {
    float rate, volatility;
};
__device__ inline float cumulative_normal(float d)
{
    return 0.5f * erfcf(-d * 0.707106781f);
}
// Prices of European options.
__global__ void black_scholes(float *call, float *put, const float *spot, const float *strike, const float *years,
                              market m, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        float spread = m.volatility * sqrtf(years[i]);
        float d1 = (logf(spot[i] / strike[i]) + (m.rate + 0.5f * m.volatility * m.volatility) * years[i]) / spread;
        float d2 = d1 - spread, discounted = strike[i] * expf(-m.rate * years[i]);
        call[i] = spot[i] * cumulative_normal(d1) - discounted * cumulative_normal(d2);
        put[i] = discounted * cumulative_normal(-d2) - spot[i] * cumulative_normal(-d1);
    }
}
} // namespace finance
