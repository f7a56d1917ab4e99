/* shared_kernels.c - kernels with much static shared memory. Compiled as a shared object with
 * HD_CPU_MODULE defined. */
#include "shared_kernels.h"

#include <heddle/kernel.h>

HD_SHARED unsigned char large[LARGE_BYTES];
HD_SHARED uint32_t begins = BEGINS;
HD_SHARED __attribute__((aligned(128))) uint32_t tile[64];

/* Each block writes its value into both ends of the memory, then returns the values that it reads
 * there. */
HD_KERNEL_BOUNDS(ends, 64, HD_OUT(uint32_t, y), HD_VALUE(uint32_t, value))
{
    uint32_t i = hd_thread_x();
    tile[i] = value + hd_block_x() + i;
    if (i == 0) {
        large[0] = (unsigned char)hd_block_x();
        large[LARGE_BYTES - 1] = (unsigned char)value;
    }
    hd_barrier();
    y[hd_block_x() * 64 + i] = tile[63 - i] + large[0] + large[LARGE_BYTES - 1];
}

HD_KERNEL_BOUNDS(first_value, 1, HD_OUT(uint64_t, y))
{
    y[0] = begins;
    y[1] = (uint64_t)(uintptr_t)tile % 128;
}
