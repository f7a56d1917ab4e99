/* math.h - replaces <math.h> in kernel source that clang compiles for GPUs: the functions of
 * heddle/kernel_math.h.
 *
 * `heddle cc` puts this folder in front of the system's headers for the GPU's part. The system's
 * functions are of no use there.
 */
#ifndef HEDDLE_GPU_MATH_H
#define HEDDLE_GPU_MATH_H

#include <heddle/kernel_math.h>

#endif
