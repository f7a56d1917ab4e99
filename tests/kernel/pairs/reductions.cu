/* reductions.cu - sums, maxima, a histogram, scans and compaction, in CUDA C++. reductions.c is the
 * same as kernel source. */
#include <climits>

// Each thread adds elements at a distance; warps add by shuffles, the block in shared memory, the
// grid by an atomic.
__global__ void sum_shuffle(float *total, const float *x, int n)
{
    __shared__ float of_warp[32];
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        sum += x[i];
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    }
    int lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;
    if (lane == 0) {
        of_warp[warp] = sum;
    }
    __syncthreads();
    if (warp == 0) {
        sum = lane < blockDim.x / warpSize ? of_warp[lane] : 0.0f;
        for (int offset = 16; offset > 0; offset /= 2) {
            sum += __shfl_down_sync(0xffffffff, sum, offset);
        }
        if (lane == 0) {
            atomicAdd(total, sum);
        }
    }
}

// A tree in dynamic shared memory.
template <typename T> __global__ void sum_tree(T *partial, const T *x, int n)
{
    extern __shared__ __align__(16) unsigned char bytes[];
    T *scratch = reinterpret_cast<T *>(bytes);
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    scratch[threadIdx.x] = i < n ? x[i] : T(0);
    __syncthreads();
    for (unsigned s = blockDim.x / 2; s > 0; s >>= 1) {
        if (threadIdx.x < s) {
            scratch[threadIdx.x] += scratch[threadIdx.x + s];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = scratch[0];
    }
}
template __global__ void sum_tree<double>(double *, const double *, int);
template __global__ void sum_tree<int>(int *, const int *, int);

// CUDA offers no atomic maximum of floats, so this uses atomicCAS.
__device__ float atomicMaxFloat(float *address, float value)
{
    int *bits = reinterpret_cast<int *>(address);
    int old = *bits, assumed;
    do {
        assumed = old;
        if (__int_as_float(assumed) >= value) {
            break;
        }
        old = atomicCAS(bits, assumed, __float_as_int(value));
    } while (old != assumed);
    return __int_as_float(old);
}
__global__ void max_cas(float *most, const float *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        atomicMaxFloat(most, x[i]);
    }
}

// A warp for each row; of several largest elements the first one counts.
__global__ void argmax_rows(int *where, float *best, const float *x, int rows, int columns)
{
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / warpSize, lane = threadIdx.x % warpSize;
    if (row >= rows) {
        return;
    }
    float mine = -INFINITY;
    int at = INT_MAX;
    for (int c = lane; c < columns; c += warpSize) {
        if (x[row * columns + c] > mine) {
            mine = x[row * columns + c];
            at = c;
        }
    }
    float most = mine;
    for (int mask = 16; mask > 0; mask >>= 1) {
        most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, mask));
    }
    unsigned holders = __ballot_sync(0xffffffff, mine == most);
    if (__popc(holders) == 1) {
        at = __shfl_sync(0xffffffff, at, __ffs(holders) - 1);
    } else {
        at = mine == most ? at : INT_MAX;
        for (int mask = 16; mask > 0; mask >>= 1) {
            at = min(at, __shfl_xor_sync(0xffffffff, at, mask));
        }
    }
    if (lane == 0) {
        where[row] = at;
        best[row] = most;
    }
}

// Bins of the block in shared memory, then of the grid.
__global__ void histogram256(unsigned *bins, const unsigned char *x, int n)
{
    __shared__ unsigned local[256];
    for (int b = threadIdx.x; b < 256; b += blockDim.x) {
        local[b] = 0;
    }
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&local[x[i]], 1u);
    }
    __syncthreads();
    for (int b = threadIdx.x; b < 256; b += blockDim.x) {
        if (local[b] != 0) {
            atomicAdd(&bins[b], local[b]);
        }
    }
}

// An inclusive scan of each block, in two alternating buffers, and the sums of the blocks.
__global__ void scan_block(int *out, int *sums, const int *x, int n)
{
    __shared__ int buffer[2][256];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t, from = 0;
    buffer[0][t] = i < n ? x[i] : 0;
    __syncthreads();
    for (int offset = 1; offset < blockDim.x; offset *= 2) {
        buffer[1 - from][t] = buffer[from][t] + (t >= offset ? buffer[from][t - offset] : 0);
        from = 1 - from;
        __syncthreads();
    }
    if (i < n) {
        out[i] = buffer[from][t];
    }
    if (t == blockDim.x - 1) {
        sums[blockIdx.x] = buffer[from][t];
    }
}

// A scan of each warp that starts again at each flag.
__global__ void scan_segments(int *out, const int *x, const unsigned char *head)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31;
    int value = x[i];
    int begun = head[i];
    for (int d = 1; d < 32; d *= 2) {
        int other = __shfl_up_sync(0xffffffff, value, d), other_begun = __shfl_up_sync(0xffffffff, begun, d);
        if (lane >= d && !begun) {
            value += other;
            begun = other_begun;
        }
    }
    out[i] = value;
}

// Elements at or above a threshold, in any order: a warp reserves room for all its elements at
// once.
__global__ void compact(float *out, unsigned *count, const float *x, float threshold, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned lane = threadIdx.x & 31;
    bool keep = i < n && x[i] >= threshold;
    unsigned keepers = __ballot_sync(0xffffffff, keep), first = 0;
    if (lane == 0) {
        first = atomicAdd(count, __popc(keepers));
    }
    first = __shfl_sync(0xffffffff, first, 0);
    if (keep) {
        out[first + __popc(keepers & ((1u << lane) - 1))] = x[i];
    }
}

// For each warp: true if some are negative, true if all are, and how many are.
__global__ void warp_votes(unsigned *votes, const int *x)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int negative = x[i] < 0;
    unsigned some = __any_sync(0xffffffff, negative), all = __all_sync(0xffffffff, negative);
    unsigned number = __popc(__ballot_sync(0xffffffff, negative));
    if ((threadIdx.x & 31) == 0) {
        votes[i / 32] = (some != 0) | (all != 0) << 1 | number << 2;
    }
}
