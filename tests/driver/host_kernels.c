/* host_kernels.c - kernels for the tests of the host provider. Compiled as a shared object with HD_CPU_MODULE
 * defined. */
#include <heddle/kernel.h>

HD_KERNEL(add, HD_INOUT(uint32_t, y), HD_VALUE(uint32_t, value), HD_VALUE(uint32_t, n))
{
    uint64_t i = hd_global_x();
    if (i < n) {
        y[i] += value;
    }
}

HD_KERNEL(set_far, HD_OUT(uint32_t, y), HD_VALUE(uint64_t, index))
{
    y[index] = 1;
}

HD_KERNEL(reverse, HD_INOUT(uint32_t, y))
{
    HD_DYNAMIC_SHARED(uint32_t, tile);
    uint32_t i = hd_thread_x(), n = hd_block_dim_x();
    tile[i] = y[i];
    hd_barrier();
    y[i] = tile[n - 1 - i];
}

HD_KERNEL_BOUNDS(bounded, 32, HD_OUT(uint32_t, y))
{
    y[hd_thread_x()] = 7;
}

HD_KERNEL(nothing)
{
}
