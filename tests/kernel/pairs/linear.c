/* linear.c - vectors, matrices, and bodies that attract each other, as kernel source. linear.cu is
 * the same in CUDA C++. */
#include <heddle/kernel.h>

typedef struct vector3 {
    float x, y, z;
} vector3;
typedef struct vector4 {
    float x, y, z, w;
} vector4;

#define FUSED(a, b, c) ((a) * (b) + (c))
#define AXPY(name, type, fma)                                                                                          \
    HD_KERNEL(name, HD_INOUT(type, y), HD_IN(type, x), HD_VALUE(type, a), HD_VALUE(uint64_t, n))                       \
    {                                                                                                                  \
        uint64_t i = hd_global_x();                                                                                    \
        if (i < n) {                                                                                                   \
            y[i] = fma(a, x[i], y[i]);                                                                                 \
        }                                                                                                              \
    }
AXPY(axpy_f32, float, FUSED)
AXPY(axpy_f64, double, FUSED)
AXPY(axpy_i32, int, FUSED)
AXPY(axpy_f16, hd_f16, hd_f16_fma)
AXPY(axpy_bf16, hd_bf16, hd_bf16_fma)

/* A grid-stride loop; the block's sum in shared memory. */
HD_KERNEL_BOUNDS(dot, 128, HD_INOUT(double, result), HD_IN(double, x), HD_IN(double, y), HD_VALUE(uint64_t, n))
{
    HD_SHARED double products[128];
    uint32_t t = hd_thread_x();
    double sum = 0;
    for (uint64_t i = hd_global_x(); i < n; i += (uint64_t)hd_grid_dim_x() * hd_block_dim_x()) {
        sum += x[i] * y[i];
    }
    products[t] = sum;
    hd_barrier();
    for (uint32_t s = 64; s > 0; s /= 2) {
        if (t < s) {
            products[t] += products[t + s];
        }
        hd_barrier();
    }
    if (t == 0) {
        hd_atomic_add_f64(result, products[0]);
    }
}

/* A warp for each row. */
HD_KERNEL(matvec, HD_OUT(float, y), HD_IN(float, a), HD_IN(float, x), HD_VALUE(int, rows), HD_VALUE(int, columns))
{
    int row = (int)(hd_global_x() / 32), lane = (int)hd_lane_index();
    if (row >= rows) {
        return;
    }
    float sum = 0;
    for (int c = lane; c < columns; c += 32) {
        sum += a[(size_t)row * columns + c] * x[c];
    }
    for (uint32_t offset = 16; offset > 0; offset >>= 1) {
        sum += hd_warp_shuffle_down_f32(sum, offset);
    }
    if (lane == 0) {
        y[row] = sum;
    }
}

#define TILE 16
HD_KERNEL(matmul_tiled, HD_OUT(float, c), HD_IN(float, a), HD_IN(float, b), HD_VALUE(int, m), HD_VALUE(int, n),
          HD_VALUE(int, k))
{
    HD_SHARED float as[TILE][TILE], bs[TILE][TILE];
    int tx = (int)hd_thread_x(), ty = (int)hd_thread_y();
    int row = (int)hd_block_y() * TILE + ty, column = (int)hd_block_x() * TILE + tx;
    float sum = 0;
    for (int t = 0; t < k; t += TILE) {
        as[ty][tx] = row < m && t + tx < k ? a[row * k + t + tx] : 0;
        bs[ty][tx] = column < n && t + ty < k ? b[(t + ty) * n + column] : 0;
        hd_barrier();
        for (int i = 0; i < TILE; i++) {
            sum += as[ty][i] * bs[i][tx];
        }
        hd_barrier();
    }
    if (row < m && column < n) {
        c[row * n + column] = sum;
    }
}

/* Rows of a sparse matrix, compressed. */
HD_KERNEL(spmv_csr, HD_OUT(double, y), HD_IN(int, begin), HD_IN(int, column), HD_IN(double, value), HD_IN(double, x),
          HD_VALUE(int, rows))
{
    for (int row = (int)hd_global_x(); row < rows; row += (int)(hd_grid_dim_x() * hd_block_dim_x())) {
        double sum = 0;
        for (int i = begin[row]; i < begin[row + 1]; i++) {
            sum += value[i] * x[column[i]];
        }
        y[row] = sum;
    }
}

/* A step of Jacobi's method, and the largest change: positive numbers and their bits sort alike. */
HD_KERNEL(jacobi, HD_OUT(float, next), HD_INOUT(uint32_t, change), HD_IN(float, a), HD_IN(float, b), HD_IN(float, x),
          HD_VALUE(int, n))
{
    int row = (int)hd_global_x();
    if (row < n) {
        float sum = b[row];
        for (int c = 0; c < n; c++) {
            if (c != row) {
                sum -= a[row * n + c] * x[c];
            }
        }
        next[row] = sum / a[row * n + row];
        hd_atomic_max_u32(change, hd_bits_from_f32(fabsf(next[row] - x[row]) > 0.5f ? 1.0f : 0.0f));
    }
}

/* Accelerations, with tiles of bodies in shared memory. */
HD_KERNEL(n_body, HD_OUT(vector3, acceleration), HD_IN(vector4, body), HD_VALUE(int, n), HD_VALUE(float, softening))
{
    HD_DYNAMIC_SHARED(vector4, tile);
    int i = (int)hd_global_x(), t = (int)hd_thread_x(), size = (int)hd_block_dim_x();
    vector4 none = {0, 0, 0, 0}, me = i < n ? body[i] : none;
    vector3 sum = {0, 0, 0};
    for (int first = 0; first < n; first += size) {
        tile[t] = first + t < n ? body[first + t] : none;
        hd_barrier();
        for (int k = 0; k < size; k++) {
            float dx = tile[k].x - me.x, dy = tile[k].y - me.y, dz = tile[k].z - me.z;
            float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + softening);
            float factor = tile[k].w * inverse * inverse * inverse;
            sum.x += dx * factor;
            sum.y += dy * factor;
            sum.z += dz * factor;
        }
        hd_barrier();
    }
    if (i < n) {
        acceleration[i] = sum;
    }
}
