/* wave.c - one step of the acoustic wave equation in 8th order, for planes of a field.
 *
 * `next` contains the field before this step at first, and the one after it at last. Its first
 * plane is plane R of `u`. */
#include <heddle/kernel.h>

enum { NX = 64, NY = 64, R = 4 };

HD_CONSTANT float weight[R + 1] = {-205.0f / 72, 8.0f / 5, -1.0f / 5, 8.0f / 315, -1.0f / 560};

HD_KERNEL(wave, HD_INOUT(float, next), HD_IN(float, u), HD_VALUE(float, speed))
{
    int x = (int)hd_global_x(), y = (int)hd_global_y(), z = (int)hd_global_z();
    if (x < R || x >= NX - R || y < R || y >= NY - R) {
        return;
    }
    const int at = (z * NY + y) * NX + x;
    const float *c = u + at + R * NY * NX;
    float sum = 3 * weight[0] * c[0];
    for (int i = 1; i <= R; i++) {
        sum += weight[i] * (c[i] + c[-i] + c[i * NX] + c[-i * NX] + c[i * NX * NY] + c[-i * NX * NY]);
    }
    next[at] = 2 * c[0] - next[at] + speed * sum;
}
