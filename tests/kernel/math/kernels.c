/* kernels.c - a kernel for each function of heddle/kernel_math.h, for float and for double:
 * result[i] = function(x[i], y[i]). */
#include <heddle/kernel.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include "functions.h"

#if FLT_MANT_DIG != 24 || DBL_MANT_DIG != 53 || INT_MAX != 2147483647
#error "the headers of the compiler do not fit"
#endif

#define KERNEL(type, kernel, expression)                                                                               \
    HD_KERNEL(kernel, HD_IN(type, xs), HD_IN(type, ys), HD_OUT(type, results), HD_VALUE(uint64_t, count))              \
    {                                                                                                                  \
        for (uint64_t i = hd_global_x(); i < count; i += (uint64_t)hd_grid_dim_x() * hd_block_dim_x()) {               \
            type x = xs[i], y = ys[i];                                                                                 \
            int n = 0;                                                                                                 \
            double d = 0, e = 0;                                                                                       \
            float f = 0, g = 0;                                                                                        \
            results[i] = (type)(expression);                                                                           \
            (void)y, (void)n, (void)d, (void)e, (void)f, (void)g;                                                      \
        }                                                                                                              \
    }
#define KERNELS_1(name, mpfr, bound_f32, bound_f64)                                                                    \
    KERNEL(float, f32_##name, name##f(x))                                                                              \
    KERNEL(double, f64_##name, name(x))
#define KERNELS_2(name, mpfr, bound_f32, bound_f64)                                                                    \
    KERNEL(float, f32_##name, name##f(x, y))                                                                           \
    KERNEL(double, f64_##name, name(x, y))
#define KERNELS_EXACT(name, wide, narrow)                                                                              \
    KERNEL(float, f32_##name, narrow)                                                                                  \
    KERNEL(double, f64_##name, wide)

MATH_1(KERNELS_1)
MATH_2(KERNELS_2)
MATH_EXACT(KERNELS_EXACT)
