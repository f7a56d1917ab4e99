/* instructions.c - what GPU code asks of the processor, for running libclc's functions on the CPU. The script test_math.sh
 * renames the intrinsics of LLVM to these. */
#include <math.h>
#include <stdint.h>
#include <string.h>

float gpu_rsqrt_approx_f(float x);
double gpu_lohi_i2d(int low, int high);
int gpu_read_ptx_sreg_tid_x(void);
int gpu_read_ptx_sreg_ctaid_x(void);
int gpu_read_ptx_sreg_ntid_x(void);
int gpu_read_ptx_sreg_nctaid_x(void);

float gpu_rsqrt_approx_f(float x)
{
    return (float)(1 / sqrt((double)x));
}
double gpu_lohi_i2d(int low, int high)
{
    uint64_t bits = (uint64_t)(uint32_t)high << 32 | (uint32_t)low;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
/* A launch of one thread. */
int gpu_read_ptx_sreg_tid_x(void)
{
    return 0;
}
int gpu_read_ptx_sreg_ctaid_x(void)
{
    return 0;
}
int gpu_read_ptx_sreg_ntid_x(void)
{
    return 1;
}
int gpu_read_ptx_sreg_nctaid_x(void)
{
    return 1;
}
