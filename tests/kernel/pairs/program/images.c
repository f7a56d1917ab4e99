/* images.c - the expected results of the kernels of images.
 *
 * Threads: one. Blocking: none.
 */
#include "pairs.h"

#include <complex.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { WIDTH = 77, HEIGHT = 53 };

static void cover(pairs_launch *l, int width, int height, uint32_t x, uint32_t y)
{
    l->grid = (hd_dims){((uint32_t)width + x - 1) / x, ((uint32_t)height + y - 1) / y, 1};
    l->block = (hd_dims){x, y, 1};
}

/* Adds a picture with edges and noise. */
static const uint8_t *add_picture(pairs_launch *l)
{
    uint8_t *in = pairs_in(l, PAIRS_U8, WIDTH * HEIGHT);
    pairs_value(l, hd_i32(WIDTH));
    pairs_value(l, hd_i32(HEIGHT));
    for (int i = 0; i < WIDTH * HEIGHT; i++) {
        in[i] = (uint8_t)((i % WIDTH / 9 + i / WIDTH / 7) % 2 * 150 + (int)(pairs_bits(l) % 100));
    }
    return in;
}

/* Returns the point beside i, or the nearest one inside the picture. */
static int point(const uint8_t *in, int i, int dx, int dy)
{
    int x = i % WIDTH + dx, y = i / WIDTH + dy;
    x = x < 0 ? 0 : x >= WIDTH ? WIDTH - 1 : x;
    y = y < 0 ? 0 : y >= HEIGHT ? HEIGHT - 1 : y;
    return in[y * WIDTH + x];
}

static void grayscale(pairs_launch *l)
{
    enum { N = 3000 };
    double *gray = pairs_out(l, PAIRS_U8, N);
    uint8_t *colour = pairs_in(l, PAIRS_U8, 4 * N);
    pairs_value(l, hd_i32(N));
    l->grid.x = (N + 255) / 256;
    l->block.x = 256;
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < 4; j++) {
            colour[4 * i + j] = (uint8_t)pairs_bits(l);
        }
        gray[i] = floor((77.0 * colour[4 * i] + 150.0 * colour[4 * i + 1] + 29.0 * colour[4 * i + 2]) / 256 + 0.5);
    }
}

static void blur(pairs_launch *l)
{
    static const double weight[] = {6, 4, 1};
    double *out = pairs_out(l, PAIRS_U8, WIDTH * HEIGHT);
    const uint8_t *in = add_picture(l);
    cover(l, WIDTH, HEIGHT, 16, 8);
    for (int i = 0; i < WIDTH * HEIGHT; i++) {
        double sum = 0;
        for (int dy = -2; dy <= 2; dy++) {
            for (int dx = -2; dx <= 2; dx++) {
                sum += weight[abs(dx)] * weight[abs(dy)] * point(in, i, dx, dy);
            }
        }
        out[i] = floor(sum / 256 + 0.5);
    }
}

static void sobel(pairs_launch *l)
{
    double *edge = pairs_out(l, PAIRS_F32, WIDTH * HEIGHT);
    const uint8_t *in = add_picture(l);
    cover(l, WIDTH, HEIGHT, 32, 4);
    for (int i = 0; i < WIDTH * HEIGHT; i++) {
        int x = i % WIDTH, y = i / WIDTH, across = 0, down = 0;
        for (int j = -1; j <= 1; j++) {
            across += (2 - abs(j)) * (point(in, i, 1, j) - point(in, i, -1, j));
            down += (2 - abs(j)) * (point(in, i, j, 1) - point(in, i, j, -1));
        }
        bool border = x == 0 || y == 0 || x == WIDTH - 1 || y == HEIGHT - 1;
        edge[i] = border ? 0 : (double)(float)hypot(across, down);
    }
}

static int by_size(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static void median3(pairs_launch *l)
{
    double *out = pairs_out(l, PAIRS_U8, WIDTH * HEIGHT);
    const uint8_t *in = add_picture(l);
    cover(l, WIDTH, HEIGHT, 16, 16);
    for (int i = 0; i < WIDTH * HEIGHT; i++) {
        int v[9];
        for (int j = 0; j < 9; j++) {
            v[j] = point(in, i, j % 3 - 1, j / 3 - 1);
        }
        qsort(v, 9, sizeof v[0], by_size);
        out[i] = v[4];
    }
}

/* Returns a larger picture's point as a place in the smaller one: the first of two points, and the
 * second one's weight. */
static int place(int i, int to, int from, double *weight)
{
    double at = fmax((i + 0.5) * from / to - 0.5, 0);
    *weight = at - floor(at);
    return (int)floor(at);
}

static void resize_bilinear(pairs_launch *l)
{
    enum { X = 90, Y = 41, FROM_X = 37, FROM_Y = 59 };
    const struct {
        int x, y;
    } to = {X, Y}, from = {FROM_X, FROM_Y};
    double *out = pairs_out(l, PAIRS_F32, X * Y);
    const float *in = pairs_in_f32(l, FROM_X * FROM_Y, 0, 1);
    pairs_structure(l, &to, sizeof to);
    pairs_structure(l, &from, sizeof from);
    cover(l, X, Y, 32, 8);
    for (int i = 0; i < X * Y; i++) {
        double wx, wy;
        int x = place(i % X, X, FROM_X, &wx), y = place(i / X, Y, FROM_Y, &wy);
        for (int j = 0; j < 4; j++) {
            int at_x = x + j % 2 < FROM_X ? x + j % 2 : x, at_y = y + j / 2 < FROM_Y ? y + j / 2 : y;
            out[i] += (j % 2 ? wx : 1 - wx) * (j / 2 ? wy : 1 - wy) * (double)in[at_y * FROM_X + at_x];
        }
    }
}

static int steps_of(double complex c, int most)
{
    double complex z = 0;
    int n = 0;
    while (n < most && cabs(z) <= 2) {
        z = z * z + c;
        n++;
    }
    return n;
}

/* Rounding moves a point slightly, so the step count of any nearby point is right. For most points,
 * these counts agree. */
static void mandelbrot(pairs_launch *l)
{
    enum { X = 96, Y = 64, MOST = 40 };
    const double near = 2e-6;
    int doubtful = 0;
    double *steps = pairs_out(l, PAIRS_I32, X * Y), *slack = pairs_slack(l);
    pairs_value(l, hd_f32(-2.125f));
    pairs_value(l, hd_f32(-1.0625f));
    pairs_value(l, hd_f32(0.03125f)); /* all points are floats */
    pairs_value(l, hd_i32(X));
    pairs_value(l, hd_i32(Y));
    pairs_value(l, hd_i32(MOST));
    cover(l, X, Y, 16, 16);
    for (int i = 0; i < X * Y; i++) {
        double complex c = CMPLX(-2.125 + 0.03125 * (i % X), -1.0625 + 0.03125 * (i / X));
        steps[i] = steps_of(c, MOST);
        for (int j = 0; j < 9; j++) {
            int beside = steps_of(c + CMPLX(near * (j % 3 - 1), near * (j / 3 - 1)), MOST);
            slack[i] = fmax(slack[i], fabs(beside - steps[i]));
        }
        doubtful += slack[i] > 0;
    }
    if (doubtful > X * Y / 50) {
        fprintf(stderr, "pairs: %d of %d points of the fractal have no certain result\n", doubtful, X * Y);
        exit(2);
    }
}

const pairs_row pairs_images[] = {
    {"images", "grayscale", "grayscale(unsigned char*, uchar4 const*, int)", grayscale, 0, 0, "it is exact"},
    {"images", "blur", "blur<16, 8>", blur, 0, 0, "it is exact"},
    {"images", "sobel", NULL, sobel, 0, 0, "it is exact: the root is rounded once"},
    {"images", "median3", NULL, median3, 0, 0, "it is exact"},
    {"images", "resize_bilinear", "resize_bilinear(float*, float const*, int2, int2)", resize_bilinear, 2e-5, 0,
     "places up to 60, where an ULP is 4e-6, are three operations off"},
    {"images", "mandelbrot", NULL, mandelbrot, 0, 0, "it is exact, but for points near the edge of their area"},
    {0},
};
