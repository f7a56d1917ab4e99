/* images.cu - pictures: filters, colours, sizes, a fractal, in CUDA C++. images.c is the same as
 * kernel source. */
#define FILTER_RADIUS 2

// Binomial weights, whose sum is 256.
__constant__ int binomial[2 * FILTER_RADIUS + 1] = {1, 4, 6, 4, 1};

__global__ void grayscale(unsigned char *gray, const uchar4 *colour, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        uchar4 c = colour[i];
        gray[i] = (77 * c.x + 150 * c.y + 29 * c.z + 128) >> 8;
    }
}

// 5 x 5 points, from a tile with a border in shared memory.
template <int W, int H> __global__ void blur(unsigned char *out, const unsigned char *in, int width, int height)
{
    constexpr int R = FILTER_RADIUS;
    __shared__ unsigned char tile[H + 2 * R][W + 2 * R];
    int left = blockIdx.x * W - R, top = blockIdx.y * H - R;
    for (int i = threadIdx.y * W + threadIdx.x; i < (W + 2 * R) * (H + 2 * R); i += W * H) {
        int x = min(max(left + i % (W + 2 * R), 0), width - 1), y = min(max(top + i / (W + 2 * R), 0), height - 1);
        tile[i / (W + 2 * R)][i % (W + 2 * R)] = in[y * width + x];
    }
    __syncthreads();
    int x = left + R + threadIdx.x, y = top + R + threadIdx.y;
    if (x < width && y < height) {
        int sum = 0;
#pragma unroll
        for (int dy = 0; dy <= 2 * R; dy++) {
#pragma unroll
            for (int dx = 0; dx <= 2 * R; dx++) {
                sum += binomial[dy] * binomial[dx] * tile[threadIdx.y + dy][threadIdx.x + dx];
            }
        }
        out[y * width + x] = (sum + 128) / 256;
    }
}
template __global__ void blur<16, 8>(unsigned char *, const unsigned char *, int, int);

__global__ void sobel(float *edge, const unsigned char *in, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) {
        return;
    }
    float strength = 0.0f;
    if (x > 0 && y > 0 && x < width - 1 && y < height - 1) {
        const unsigned char *p = in + y * width + x;
        int gx = p[1 - width] + 2 * p[1] + p[1 + width] - p[-1 - width] - 2 * p[-1] - p[-1 + width];
        int gy = p[width - 1] + 2 * p[width] + p[width + 1] - p[-width - 1] - 2 * p[-width] - p[-width + 1];
        strength = sqrtf(gx * gx + gy * gy);
    }
    edge[y * width + x] = strength;
}

// The median of 3 x 3 points, by exchanges.
__device__ __forceinline__ void exchange(unsigned char &a, unsigned char &b)
{
    unsigned char least = min(a, b);
    b = max(a, b);
    a = least;
}
__global__ void median3(unsigned char *out, const unsigned char *in, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) {
        return;
    }
    unsigned char v[9];
    for (int i = 0; i < 9; i++) {
        int nx = min(max(x + i % 3 - 1, 0), width - 1), ny = min(max(y + i / 3 - 1, 0), height - 1);
        v[i] = in[ny * width + nx];
    }
    for (int last = 8; last >= 4; last--) {
        for (int i = 0; i < last; i++) {
            exchange(v[i], v[i + 1]);
        }
    }
    out[y * width + x] = v[4];
}

__global__ void resize_bilinear(float *out, const float *in, int2 to, int2 from)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= to.x || y >= to.y) {
        return;
    }
    float fx = fmaxf((x + 0.5f) * from.x / to.x - 0.5f, 0.0f), fy = fmaxf((y + 0.5f) * from.y / to.y - 0.5f, 0.0f);
    int x0 = (int)floorf(fx), y0 = (int)floorf(fy), x1 = min(x0 + 1, from.x - 1), y1 = min(y0 + 1, from.y - 1);
    float wx = fx - x0, wy = fy - y0;
    float top = in[y0 * from.x + x0] * (1 - wx) + in[y0 * from.x + x1] * wx;
    float bottom = in[y1 * from.x + x0] * (1 - wx) + in[y1 * from.x + x1] * wx;
    out[y * to.x + x] = top * (1 - wy) + bottom * wy;
}

// The number of steps that each point of the plane stays near 0.
__global__ void mandelbrot(int *steps, float left, float top, float step, int width, int height, int most)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) {
        return;
    }
    float cx = left + x * step, cy = top + y * step, zx = 0, zy = 0;
    int n = 0;
    while (n < most && zx * zx + zy * zy <= 4.0f) {
        float next = zx * zx - zy * zy + cx;
        zy = 2.0f * zx * zy + cy;
        zx = next;
        n++;
    }
    steps[y * width + x] = n;
}
