/* kernels.cu - the kernels in the images of this folder, which the script make_images compiles with
 * nvcc. */
struct pair {
    float a;
    double b;
};
namespace ns
{
__global__ void saxpy(float *y, const float *x, float a, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] += a * x[i];
    }
}
} // namespace ns
template <class T> __global__ void scale(T *y, T a)
{
    y[threadIdx.x] *= a;
}
template <class T, unsigned N> __global__ void fill(T *y, T a)
{
    y[N] = a;
}
template __global__ void scale<float>(float *, float);
template __global__ void scale<double>(double *, double);
template __global__ void fill<int, 256>(int *, int);
__constant__ float table[4] = {1, 2, 3, 4};
__global__ void by_value(pair p, char c, float *out)
{
    *out = (float)(p.a + p.b + c + table[c & 3]);
}
extern "C" __global__ void plain(void)
{
}
