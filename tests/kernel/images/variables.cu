/* variables.cu - variables of each kind, for the images that the script make_images compiles with
 * nvcc. */
#include <stdio.h>
__constant__ float coefficients[4] = {1, 2, 3, 4};
static __constant__ int factors[3];
__device__ unsigned counter = 40;
namespace ns
{
__device__ double total;
static __device__ int hidden;
} // namespace ns
namespace far
{
__device__ double total = 1;
}
template <class T> __device__ T state;
struct pair {
    int a;
    double b;
};
__device__ pair pairs[2];
extern "C" __global__ void use(double *out)
{
    out[0] = coefficients[threadIdx.x & 3] + factors[threadIdx.x % 3] + pairs[1].b + state<float> + state<int>;
    out[1] = ns::total + far::total;
    ns::total += 1;
    state<float> += 1;
    out[2] = ns::hidden++;
    atomicAdd(&counter, 1u);
    printf("%u\n", counter);
}
