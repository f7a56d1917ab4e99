/* host_kernels.c - kernels for the tests of the host provider, well-behaved ones first. Compiled as
 * a shared object, with HD_CPU_MODULE defined. */
#include <signal.h>
#include <stdlib.h>
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

/* Kernels with every kind of fault. */

HD_KERNEL(divide, HD_INOUT(int32_t, y), HD_VALUE(int32_t, by))
{
    y[0] /= by;
}

HD_KERNEL(illegal)
{
#if defined(__x86_64__)
    __asm__ volatile("ud2");
#elif defined(__aarch64__)
    __asm__ volatile(".inst 0");
#else
    __builtin_trap();
#endif
}

static __attribute__((noinline)) uint32_t deeper(volatile uint32_t *y, uint32_t depth)
{
    volatile uint32_t frame[64];
    frame[depth % 64] = y[0] + depth;
    return depth == UINT32_MAX ? 0 : deeper(y, depth + 1) + frame[depth % 64];
}

HD_KERNEL(recurse, HD_INOUT(uint32_t, y))
{
    y[0] = deeper(y, 1);
}

HD_KERNEL(send_signal, HD_VALUE(int32_t, number))
{
    raise(number);
}

HD_KERNEL(end_process, HD_VALUE(int32_t, code))
{
    exit(code);
}

HD_KERNEL(give_up, HD_VALUE(int32_t, unused))
{
    (void)unused;
    abort();
}

HD_GLOBAL uint32_t total[4] = {11, 22, 33, 44};
HD_CONSTANT uint32_t hidden[1] = {1};
