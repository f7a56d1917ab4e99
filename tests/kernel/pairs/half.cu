/* half.cu - numbers of 16 bits, in CUDA C++. half.c is the same as kernel source. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// Products of halves as float, by warps.
__global__ void dot_half(float *result, const __half *x, const __half *y, int n)
{
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        sum = fmaf(__half2float(x[i]), __half2float(y[i]), sum);
    }
    for (int offset = warpSize / 2; offset > 0; offset /= 2) {
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    }
    if (threadIdx.x % warpSize == 0) {
        atomicAdd(result, sum);
    }
}

// A polynomial, two values at once.
__global__ void polynomial_half2(__half2 *y, const __half2 *x, __half2 a, __half2 b, __half2 c, int pairs)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < pairs) {
        y[i] = __hfma2(__hfma2(a, x[i], b), x[i], c);
    }
}

__global__ void relu_half(__half *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && __hlt(x[i], __float2half(0.0f))) {
        x[i] = __float2half(0.0f);
    }
}

template <typename To, typename From> __global__ void convert(To *y, const From *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = static_cast<To>(x[i]);
    }
}
template __global__ void convert<__nv_bfloat16, float>(__nv_bfloat16 *, const float *, int);
template __global__ void convert<float, __half>(float *, const __half *, int);

// The largest of each block, in bfloat16.
__global__ void max_bf16(__nv_bfloat16 *most, const __nv_bfloat16 *x, int n)
{
    __shared__ __nv_bfloat16 s[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = i < n ? x[i] : __float2bfloat16(-INFINITY);
    __syncthreads();
    for (int d = 32; d > 0; d /= 2) {
        if (threadIdx.x < d) {
            s[threadIdx.x] = __hmax(s[threadIdx.x], s[threadIdx.x + d]);
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        most[blockIdx.x] = s[0];
    }
}

// Sums of halves by an atomic; all of them are small whole numbers.
__global__ void count_half(__half *bins, const unsigned char *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        atomicAdd(&bins[x[i]], __float2half(1.0f));
    }
}
