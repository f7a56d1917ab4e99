/* port_kernels.c - kernels for the tests of the local port. Compiled as a shared object with
 * HD_CPU_MODULE defined. */
#include <heddle/kernel.h>

HD_GLOBAL uint32_t total[4] = {11, 22};
HD_CONSTANT uint32_t hidden[2] = {1, 2};

HD_KERNEL(add, HD_INOUT(uint32_t, y), HD_VALUE(uint32_t, value), HD_VALUE(uint32_t, n))
{
    uint64_t i = hd_global_x();
    if (i < n) {
        y[i] += value;
    }
}

HD_KERNEL_BOUNDS(bounded, 32, HD_OUT(uint32_t, y))
{
    y[hd_thread_x()] = 7 + total[0] - 11 + hidden[0] - 1;
}
