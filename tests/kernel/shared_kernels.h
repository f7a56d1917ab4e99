/* shared_kernels.h - macros for both shared_kernels.c and its test. */
#ifndef HD_TESTS_KERNEL_SHARED_KERNELS_H
#define HD_TESTS_KERNEL_SHARED_KERNELS_H

#define LARGE_BYTES (96u << 20) /* more than any C library's heap has free */
#define BEGINS 4711u

#endif
