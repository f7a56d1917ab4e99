/* tensor.c - kernels that move tensors between layouts. tensor.h describes their parameters, and
 * src/tensor/plan.c chooses the kernel. */
#include <heddle/kernel.h>

#if HD_KERNEL_GPU
#include "tensor_tiles_gpu.h"
#else
#include "tensor_cpu.h"
#endif
