/* linear.cu - vectors, matrices, and bodies that attract each other, in CUDA C++. linear.c is the
 * same as kernel source. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <typename T> __global__ void axpy(T *y, const T *x, T a, size_t n)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = a * x[i] + y[i];
    }
}
template __global__ void axpy<float>(float *, const float *, float, size_t);
template __global__ void axpy<double>(double *, const double *, double, size_t);
template __global__ void axpy<int>(int *, const int *, int, size_t);
template __global__ void axpy<__half>(__half *, const __half *, __half, size_t);
template __global__ void axpy<__nv_bfloat16>(__nv_bfloat16 *, const __nv_bfloat16 *, __nv_bfloat16, size_t);

// A grid-stride loop; the block's sum in shared memory.
__global__ void dot(double *result, const double *x, const double *y, size_t n)
{
    __shared__ double products[128];
    double sum = 0;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        sum += x[i] * y[i];
    }
    products[threadIdx.x] = sum;
    __syncthreads();
    for (int s = 64; s > 0; s /= 2) {
        if (threadIdx.x < s) {
            products[threadIdx.x] += products[threadIdx.x + s];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        atomicAdd(result, products[0]);
    }
}

// A warp for each row.
__global__ void matvec(float *__restrict__ y, const float *__restrict__ a, const float *__restrict__ x, int rows,
                       int columns)
{
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) {
        return;
    }
    float sum = 0.0f;
    for (int c = lane; c < columns; c += 32) {
        sum += a[(size_t)row * columns + c] * __ldg(&x[c]);
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) {
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    }
    if (lane == 0) {
        y[row] = sum;
    }
}

template <typename T, int TILE> __global__ void matmul_tiled(T *c, const T *a, const T *b, int m, int n, int k)
{
    __shared__ T as[TILE][TILE], bs[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    T sum = 0;
    for (int t = 0; t < k; t += TILE) {
        as[threadIdx.y][threadIdx.x] = row < m && t + threadIdx.x < k ? a[row * k + t + threadIdx.x] : T(0);
        bs[threadIdx.y][threadIdx.x] = column < n && t + threadIdx.y < k ? b[(t + threadIdx.y) * n + column] : T(0);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; i++) {
            sum += as[threadIdx.y][i] * bs[i][threadIdx.x];
        }
        __syncthreads();
    }
    if (row < m && column < n) {
        c[row * n + column] = sum;
    }
}
template __global__ void matmul_tiled<float, 16>(float *, const float *, const float *, int, int, int);

// Rows of a sparse matrix, compressed.
__global__ void spmv_csr(double *y, const int *begin, const int *column, const double *value, const double *x, int rows)
{
    for (int row = blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += gridDim.x * blockDim.x) {
        double sum = 0.0;
        for (int i = begin[row]; i < begin[row + 1]; i++) {
            sum += value[i] * x[column[i]];
        }
        y[row] = sum;
    }
}

// A step of Jacobi's method, and the largest change: positive numbers and their bits sort alike.
__global__ void jacobi(float *next, unsigned *change, const float *a, const float *b, const float *x, int n)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < n) {
        float sum = b[row];
        for (int c = 0; c < n; c++) {
            if (c != row) {
                sum -= a[row * n + c] * x[c];
            }
        }
        next[row] = sum / a[row * n + row];
        atomicMax(change, __float_as_uint(fabsf(next[row] - x[row]) > 0.5f ? 1.0f : 0.0f));
    }
}

// Accelerations, with tiles of bodies in shared memory.
__global__ void n_body(float3 *acceleration, const float4 *body, int n, float softening)
{
    extern __shared__ float4 tile[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 me = i < n ? body[i] : make_float4(0, 0, 0, 0);
    float3 sum = make_float3(0, 0, 0);
    for (int first = 0; first < n; first += blockDim.x) {
        int j = first + threadIdx.x;
        tile[threadIdx.x] = j < n ? body[j] : make_float4(0, 0, 0, 0);
        __syncthreads();
        for (int k = 0; k < blockDim.x; k++) {
            float dx = tile[k].x - me.x, dy = tile[k].y - me.y, dz = tile[k].z - me.z;
            float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + softening);
            float factor = tile[k].w * inverse * inverse * inverse;
            sum.x += dx * factor;
            sum.y += dy * factor;
            sum.z += dz * factor;
        }
        __syncthreads();
    }
    if (i < n) {
        acceleration[i] = sum;
    }
}
