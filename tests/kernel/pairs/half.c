/* half.c - numbers of 16 bits, as kernel source. half.cu is the same in CUDA C++. */
#include <heddle/kernel.h>

/* Products of halves as float, by warps. */
HD_KERNEL(dot_half, HD_INOUT(float, result), HD_IN(hd_f16, x), HD_IN(hd_f16, y), HD_VALUE(int, n))
{
    float sum = 0;
    for (int i = (int)hd_global_x(); i < n; i += (int)(hd_grid_dim_x() * hd_block_dim_x())) {
        sum = fmaf(hd_f16_to_f32(x[i]), hd_f16_to_f32(y[i]), sum);
    }
    for (uint32_t offset = hd_warp_size / 2; offset > 0; offset /= 2) {
        sum += hd_warp_shuffle_down_f32(sum, offset);
    }
    if (hd_lane_index() == 0) {
        hd_atomic_add_f32(result, sum);
    }
}

/* A polynomial, two values at once. */
HD_KERNEL(polynomial_half2, HD_OUT(hd_f16x2, y), HD_IN(hd_f16x2, x), HD_VALUE(hd_f16x2, a), HD_VALUE(hd_f16x2, b),
          HD_VALUE(hd_f16x2, c), HD_VALUE(int, pairs))
{
    int i = (int)hd_global_x();
    if (i < pairs) {
        y[i] = hd_f16x2_fma(hd_f16x2_fma(a, x[i], b), x[i], c);
    }
}

HD_KERNEL(relu_half, HD_INOUT(hd_f16, x), HD_VALUE(int, n))
{
    int i = (int)hd_global_x();
    hd_f16 zero = hd_f16_from_f32(0);
    if (i < n && hd_f16_lt(x[i], zero)) {
        x[i] = zero;
    }
}

HD_KERNEL(to_bf16, HD_OUT(hd_bf16, y), HD_IN(float, x), HD_VALUE(int, n))
{
    int i = (int)hd_global_x();
    if (i < n) {
        y[i] = hd_bf16_from_f32(x[i]);
    }
}
HD_KERNEL(from_half, HD_OUT(float, y), HD_IN(hd_f16, x), HD_VALUE(int, n))
{
    int i = (int)hd_global_x();
    if (i < n) {
        y[i] = hd_f16_to_f32(x[i]);
    }
}

/* The largest of each block, in bfloat16. */
HD_KERNEL_BOUNDS(max_bf16, 64, HD_OUT(hd_bf16, most), HD_IN(hd_bf16, x), HD_VALUE(int, n))
{
    HD_SHARED hd_bf16 s[64];
    int i = (int)hd_global_x(), t = (int)hd_thread_x();
    s[t] = i < n ? x[i] : hd_bf16_from_f32(-INFINITY);
    hd_barrier();
    for (int d = 32; d > 0; d /= 2) {
        if (t < d) {
            s[t] = hd_bf16_max(s[t], s[t + d]);
        }
        hd_barrier();
    }
    if (t == 0) {
        most[hd_block_x()] = s[0];
    }
}

/* Sums of halves by an atomic; all of them are small whole numbers. */
HD_KERNEL(count_half, HD_INOUT(hd_f16, bins), HD_IN(uint8_t, x), HD_VALUE(int, n))
{
    int i = (int)hd_global_x();
    if (i < n) {
        hd_atomic_add_f16(&bins[x[i]], hd_f16_from_f32(1));
    }
}
