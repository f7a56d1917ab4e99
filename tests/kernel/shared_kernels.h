/* shared_kernels.h - what shared_kernels.c and its test have in common. Only macros. */
#ifndef HD_TESTS_KERNEL_SHARED_KERNELS_H
#define HD_TESTS_KERNEL_SHARED_KERNELS_H

#define LARGE_BYTES (96u << 20) /* more than any heap of the C library's has left */
#define BEGINS 4711u

#endif
