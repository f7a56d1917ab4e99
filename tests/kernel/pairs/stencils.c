/* stencils.c - grids whose points read their neighbours' values, as kernel source. stencils.cu is
 * the same in CUDA C++. */
#include <heddle/kernel.h>

#define RADIUS 4
#define TILE_X 32
#define TILE_Y 8

/* The second derivative, of 8th order. */
HD_CONSTANT float derivative[RADIUS + 1] = {-205.0f / 72, 8.0f / 5, -1.0f / 5, 8.0f / 315, -1.0f / 560};

typedef struct vector3 {
    float x, y, z;
} vector3;

HD_DEVICE int lesser(int a, int b)
{
    return a < b ? a : b;
}

/* A step of the acoustic wave equation: a column of points along z in registers, their plane in
 * shared memory. */
HD_KERNEL(acoustic, HD_INOUT(float, next), HD_IN(float, now), HD_IN(float, velocity), HD_VALUE(int, nx),
          HD_VALUE(int, ny), HD_VALUE(int, nz))
{
    HD_SHARED float plane[TILE_Y + 2 * RADIUS][TILE_X + 2 * RADIUS];
    const int thread_x = (int)hd_thread_x(), thread_y = (int)hd_thread_y();
    const int x = (int)hd_block_x() * TILE_X + thread_x + RADIUS, y = (int)hd_block_y() * TILE_Y + thread_y + RADIUS;
    const int tx = thread_x + RADIUS, ty = thread_y + RADIUS;
    const int inside = x < nx - RADIUS && y < ny - RADIUS;
    const int cx = lesser(x, nx - 1), cy = lesser(y, ny - 1), size = nx * ny;
    float column[2 * RADIUS + 1];
    int at = cy * nx + cx;
    for (int i = 0; i < 2 * RADIUS; i++) {
        column[i + 1] = now[at + i * size];
    }
    for (int z = RADIUS; z < nz - RADIUS; z++) {
        for (int i = 0; i < 2 * RADIUS; i++) {
            column[i] = column[i + 1];
        }
        column[2 * RADIUS] = now[at + (z + RADIUS) * size];
        hd_barrier();
        plane[ty][tx] = column[RADIUS];
        if (thread_y < RADIUS) {
            plane[thread_y][tx] = now[z * size + (y - RADIUS) * nx + cx];
            plane[ty + TILE_Y][tx] = now[z * size + lesser(y + TILE_Y, ny - 1) * nx + cx];
        }
        if (thread_x < RADIUS) {
            plane[ty][thread_x] = now[z * size + cy * nx + x - RADIUS];
            plane[ty][tx + TILE_X] = now[z * size + cy * nx + lesser(x + TILE_X, nx - 1)];
        }
        hd_barrier();
        float sum = 3 * derivative[0] * column[RADIUS];
        for (int i = 1; i <= RADIUS; i++) {
            sum += derivative[i] * (column[RADIUS - i] + column[RADIUS + i] + plane[ty][tx - i] + plane[ty][tx + i] +
                                    plane[ty - i][tx] + plane[ty + i][tx]);
        }
        if (inside) {
            const int i = at + z * size;
            next[i] = 2 * column[RADIUS] - next[i] + velocity[i] * sum;
        }
    }
}

/* With a border in shared memory; the ends keep their values. */
HD_KERNEL_BOUNDS(heat_1d, 128, HD_OUT(float, next), HD_IN(float, now), HD_VALUE(float, k), HD_VALUE(int, n))
{
    HD_SHARED float u[128 + 2];
    int i = (int)hd_global_x(), t = (int)hd_thread_x() + 1;
    u[t] = i < n ? now[i] : 0;
    if (t == 1) {
        u[0] = i > 0 ? now[i - 1] : 0;
    }
    if (t == 128) {
        u[129] = i + 1 < n ? now[i + 1] : 0;
    }
    hd_barrier();
    if (i < n) {
        next[i] = i == 0 || i == n - 1 ? u[t] : u[t] + k * (u[t - 1] - 2 * u[t] + u[t + 1]);
    }
}

HD_KERNEL(jacobi_2d, HD_OUT(double, next), HD_IN(double, now), HD_IN(double, source), HD_VALUE(int, width),
          HD_VALUE(int, height))
{
    int x = (int)hd_global_x(), y = (int)hd_global_y();
    if (x >= width || y >= height) {
        return;
    }
    int i = y * width + x;
    int border = x == 0 || y == 0 || x == width - 1 || y == height - 1;
    next[i] = border ? now[i] : 0.25 * (now[i - 1] + now[i + 1] + now[i - width] + now[i + width] - source[i]);
}

HD_KERNEL(diffuse_3d, HD_OUT(float, next), HD_IN(float, now), HD_VALUE(vector3, k), HD_VALUE(int, nx),
          HD_VALUE(int, ny), HD_VALUE(int, nz))
{
    int x = (int)hd_global_x(), y = (int)hd_global_y(), z = (int)hd_global_z();
    if (x >= nx || y >= ny || z >= nz) {
        return;
    }
    int i = (z * ny + y) * nx + x;
    float u = now[i];
    float west = x > 0 ? now[i - 1] : u, east = x < nx - 1 ? now[i + 1] : u;
    float north = y > 0 ? now[i - nx] : u, south = y < ny - 1 ? now[i + nx] : u;
    float below = z > 0 ? now[i - nx * ny] : u, above = z < nz - 1 ? now[i + nx * ny] : u;
    next[i] = u + k.x * (west - 2 * u + east) + k.y * (north - 2 * u + south) + k.z * (below - 2 * u + above);
}

/* Conway's game, on a torus. */
HD_KERNEL(life, HD_OUT(uint8_t, next), HD_IN(uint8_t, now), HD_VALUE(int, width), HD_VALUE(int, height))
{
    int x = (int)hd_global_x(), y = (int)hd_global_y();
    if (x >= width || y >= height) {
        return;
    }
    int west = (x + width - 1) % width, east = (x + 1) % width;
    int north = (y + height - 1) % height * width, south = (y + 1) % height * width, row = y * width;
    int neighbours = now[north + west] + now[north + x] + now[north + east] + now[row + west] + now[row + east] +
                     now[south + west] + now[south + x] + now[south + east];
    next[row + x] = neighbours == 3 || (neighbours == 2 && now[row + x]);
}
