/* kernels.c - kernels with 1, 3 and 8 buffers for hot_paths.c, which counts the cost of their
 * launches for the submitting thread. */
#include <heddle/kernel.h>

HD_KERNEL(uses_1, HD_INOUT(float, a))
{
    a[0] += 1;
}

HD_KERNEL(uses_3, HD_OUT(float, a), HD_IN(float, b), HD_IN(float, c))
{
    a[0] = b[0] + c[0];
}

HD_KERNEL(uses_8, HD_OUT(float, a), HD_INOUT(float, b), HD_IN(float, c), HD_IN(float, d), HD_IN(float, e),
          HD_IN(float, f), HD_IN(float, g), HD_IN(float, h))
{
    b[0] += 1;
    a[0] = b[0] + c[0] + d[0] + e[0] + f[0] + g[0] + h[0];
}
