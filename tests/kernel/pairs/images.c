/* images.c - pictures: filters, colours, sizes, a fractal, as kernel source. images.cu is the same
 * in CUDA C++. */
#include <heddle/kernel.h>

#define FILTER_RADIUS 2

typedef struct pixel {
    uint8_t x, y, z, w;
} pixel;
typedef struct extent {
    int x, y;
} extent;

/* Binomial weights, whose sum is 256. */
HD_CONSTANT int binomial[2 * FILTER_RADIUS + 1] = {1, 4, 6, 4, 1};

HD_DEVICE int within(int i, int n)
{
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

HD_KERNEL(grayscale, HD_OUT(uint8_t, gray), HD_IN(pixel, colour), HD_VALUE(int, n))
{
    int i = (int)hd_global_x();
    if (i < n) {
        pixel c = colour[i];
        gray[i] = (uint8_t)((77 * c.x + 150 * c.y + 29 * c.z + 128) >> 8);
    }
}

/* 5 x 5 points, from a tile with a border in shared memory. */
#define W 16
#define H 8
#define R FILTER_RADIUS
HD_KERNEL(blur, HD_OUT(uint8_t, out), HD_IN(uint8_t, in), HD_VALUE(int, width), HD_VALUE(int, height))
{
    HD_SHARED uint8_t tile[H + 2 * R][W + 2 * R];
    int left = (int)hd_block_x() * W - R, top = (int)hd_block_y() * H - R;
    int tx = (int)hd_thread_x(), ty = (int)hd_thread_y();
    for (int i = ty * W + tx; i < (W + 2 * R) * (H + 2 * R); i += W * H) {
        int x = within(left + i % (W + 2 * R), width), y = within(top + i / (W + 2 * R), height);
        tile[i / (W + 2 * R)][i % (W + 2 * R)] = in[y * width + x];
    }
    hd_barrier();
    int x = left + R + tx, y = top + R + ty;
    if (x < width && y < height) {
        int sum = 0;
        for (int dy = 0; dy <= 2 * R; dy++) {
            for (int dx = 0; dx <= 2 * R; dx++) {
                sum += binomial[dy] * binomial[dx] * tile[ty + dy][tx + dx];
            }
        }
        out[y * width + x] = (uint8_t)((sum + 128) / 256);
    }
}

HD_KERNEL(sobel, HD_OUT(float, edge), HD_IN(uint8_t, in), HD_VALUE(int, width), HD_VALUE(int, height))
{
    int x = (int)hd_global_x(), y = (int)hd_global_y();
    if (x >= width || y >= height) {
        return;
    }
    float strength = 0;
    if (x > 0 && y > 0 && x < width - 1 && y < height - 1) {
        const uint8_t *p = in + y * width + x;
        int gx = p[1 - width] + 2 * p[1] + p[1 + width] - p[-1 - width] - 2 * p[-1] - p[-1 + width];
        int gy = p[width - 1] + 2 * p[width] + p[width + 1] - p[-width - 1] - 2 * p[-width] - p[-width + 1];
        strength = sqrtf((float)(gx * gx + gy * gy));
    }
    edge[y * width + x] = strength;
}

/* The median of 3 x 3 points, by exchanges. */
HD_DEVICE void exchange(uint8_t *a, uint8_t *b)
{
    uint8_t least = *a < *b ? *a : *b;
    *b = *a < *b ? *b : *a;
    *a = least;
}
HD_KERNEL(median3, HD_OUT(uint8_t, out), HD_IN(uint8_t, in), HD_VALUE(int, width), HD_VALUE(int, height))
{
    int x = (int)hd_global_x(), y = (int)hd_global_y();
    if (x >= width || y >= height) {
        return;
    }
    uint8_t v[9];
    for (int i = 0; i < 9; i++) {
        int nx = within(x + i % 3 - 1, width), ny = within(y + i / 3 - 1, height);
        v[i] = in[ny * width + nx];
    }
    for (int last = 8; last >= 4; last--) {
        for (int i = 0; i < last; i++) {
            exchange(&v[i], &v[i + 1]);
        }
    }
    out[y * width + x] = v[4];
}

HD_KERNEL(resize_bilinear, HD_OUT(float, out), HD_IN(float, in), HD_VALUE(extent, to), HD_VALUE(extent, from))
{
    int x = (int)hd_global_x(), y = (int)hd_global_y();
    if (x >= to.x || y >= to.y) {
        return;
    }
    float fx = fmaxf((x + 0.5f) * from.x / to.x - 0.5f, 0.0f), fy = fmaxf((y + 0.5f) * from.y / to.y - 0.5f, 0.0f);
    int x0 = (int)floorf(fx), y0 = (int)floorf(fy), x1 = within(x0 + 1, from.x), y1 = within(y0 + 1, from.y);
    float wx = fx - x0, wy = fy - y0;
    float top = in[y0 * from.x + x0] * (1 - wx) + in[y0 * from.x + x1] * wx;
    float bottom = in[y1 * from.x + x0] * (1 - wx) + in[y1 * from.x + x1] * wx;
    out[y * to.x + x] = top * (1 - wy) + bottom * wy;
}

/* The number of steps that each point of the plane stays near 0. */
HD_KERNEL(mandelbrot, HD_OUT(int, steps), HD_VALUE(float, left), HD_VALUE(float, top), HD_VALUE(float, step),
          HD_VALUE(int, width), HD_VALUE(int, height), HD_VALUE(int, most))
{
    int x = (int)hd_global_x(), y = (int)hd_global_y();
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
