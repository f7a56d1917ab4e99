/* transforms.cu - Fourier and other transforms, sorting and transposition, in CUDA C++.
 * transforms.c is the same as kernel source. */

// A step of a Stockham FFT of radix 2; p is 1, 2, 4 ... n / 2.
__global__ void fft_radix2(float2 *y, const float2 *x, int n, int p)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n / 2) {
        return;
    }
    int k = i & (p - 1), j = ((i - k) << 1) + k;
    float sine, cosine;
    sincosf(-3.14159265358979f * k / p, &sine, &cosine);
    float2 a = x[i], b = x[i + n / 2];
    float2 t = make_float2(b.x * cosine - b.y * sine, b.x * sine + b.y * cosine);
    y[j] = make_float2(a.x + t.x, a.y + t.y);
    y[j + p] = make_float2(a.x - t.x, a.y - t.y);
}

// The usual operators for complex numbers.
__device__ __forceinline__ double2 operator+(double2 a, double2 b)
{
    return make_double2(a.x + b.x, a.y + b.y);
}
__device__ __forceinline__ double2 operator-(double2 a, double2 b)
{
    return make_double2(a.x - b.x, a.y - b.y);
}
__device__ __forceinline__ double2 operator*(double2 a, double2 b)
{
    return make_double2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}
// The same with radix 4, in double; p is 1, 4, 16 ... n / 4.
__global__ void fft_radix4(double2 *y, const double2 *x, int n, int p)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, quarter = n / 4;
    if (i >= quarter) {
        return;
    }
    int k = i & (p - 1), j = ((i - k) << 2) + k;
    double2 u[4];
    for (int m = 0; m < 4; m++) {
        double2 w;
        sincospi(-0.5 * k * m / p, &w.y, &w.x);
        u[m] = w * x[i + m * quarter];
    }
    double2 a = u[0] + u[2], b = u[0] - u[2], c = u[1] + u[3], d = u[1] - u[3];
    double2 turned = make_double2(d.y, -d.x);
    y[j] = a + c;
    y[j + p] = b + turned;
    y[j + 2 * p] = a - c;
    y[j + 3 * p] = b - turned;
}

// A step of a bitonic sort.
__global__ void bitonic_step(unsigned *x, unsigned j, unsigned k)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, other = i ^ j;
    if (other > i) {
        unsigned a = x[i], b = x[other];
        bool up = (i & k) == 0;
        if ((a > b) == up) {
            x[i] = b;
            x[other] = a;
        }
    }
}

// Each block sorts its keys, with their values.
template <typename Key, int N> __global__ void __launch_bounds__(N / 2) bitonic_block(Key *key, int *value)
{
    __shared__ Key k_[N];
    __shared__ int v_[N];
    key += blockIdx.x * N;
    value += blockIdx.x * N;
    for (int i = threadIdx.x; i < N; i += blockDim.x) {
        k_[i] = key[i];
        v_[i] = value[i];
    }
    for (int size = 2; size <= N; size *= 2) {
        for (int stride = size / 2; stride > 0; stride /= 2) {
            __syncthreads();
            int i = 2 * threadIdx.x - (threadIdx.x & (stride - 1)), other = i + stride;
            bool up = (i & size) == 0;
            if ((k_[i] > k_[other]) == up) {
                Key k = k_[i];
                k_[i] = k_[other];
                k_[other] = k;
                int v = v_[i];
                v_[i] = v_[other];
                v_[other] = v;
            }
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < N; i += blockDim.x) {
        key[i] = k_[i];
        value[i] = v_[i];
    }
}
template __global__ void bitonic_block<float, 512>(float *, int *);

// Uses a tile in shared memory. Its rows are one element longer, so that a column's elements are in
// different banks.
template <typename T, int TILE, int ROWS> __global__ void transpose(T *y, const T *x, int width, int height)
{
    __shared__ T tile[TILE][TILE + 1];
    int c = blockIdx.x * TILE + threadIdx.x, r = blockIdx.y * TILE + threadIdx.y;
    for (int i = 0; i < TILE; i += ROWS) {
        if (c < width && r + i < height) {
            tile[threadIdx.y + i][threadIdx.x] = x[(r + i) * width + c];
        }
    }
    __syncthreads();
    c = blockIdx.y * TILE + threadIdx.x;
    r = blockIdx.x * TILE + threadIdx.y;
    for (int i = 0; i < TILE; i += ROWS) {
        if (c < height && r + i < width) {
            y[(r + i) * height + c] = tile[threadIdx.x][threadIdx.y + i];
        }
    }
}
template __global__ void transpose<float, 32, 8>(float *, const float *, int, int);
template __global__ void transpose<double, 16, 4>(double *, const double *, int, int);

// The fast Walsh-Hadamard transform of each block, in dynamic shared memory.
extern "C" __global__ void walsh_hadamard(int *x, int n)
{
    extern __shared__ int s[];
    x += blockIdx.x * n;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        s[i] = x[i];
    }
    for (int h = 1; h < n; h *= 2) {
        __syncthreads();
        for (int t = threadIdx.x; t < n / 2; t += blockDim.x) {
            int i = t / h * 2 * h + t % h, a = s[i], b = s[i + h];
            s[i] = a + b;
            s[i + h] = a - b;
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        x[i] = s[i];
    }
}

__global__ void bit_reverse(unsigned *y, const unsigned *x, int bits)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < 1u << bits) {
        y[__brev(i) >> (32 - bits)] = x[i];
    }
}
