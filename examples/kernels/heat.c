/* heat.c - one step of the 2-D heat equation with the stencil of 5 points, for h rows of w cells.
 *
 * A row consists of w + 2 cells: the first and the last cell belong to the neighbours, or are the
 * border of the grid. `u` begins one row before `next`, and contains h + 2 rows. */
#include <heddle/kernel.h>

HD_DEVICE void heat_cell(float *next, const float *u, uint64_t row, uint64_t at, float k)
{
    const float *c = u + row + at;
    next[at] = c[0] + k * (c[-1] + c[1] + c[-(int64_t)row] + c[row] - 4 * c[0]);
}

/* The cells that neighbours need: those at the edges. */
HD_KERNEL(heat_edges, HD_INOUT(float, next), HD_IN(float, u), HD_VALUE(uint32_t, w), HD_VALUE(uint32_t, h),
          HD_VALUE(float, k))
{
    const uint64_t row = w + 2u;
    const uint32_t i = (uint32_t)hd_global_x();
    if (i < w) {
        heat_cell(next, u, row, 1 + i, k);
        heat_cell(next, u, row, (h - 1) * row + 1 + i, k);
    }
    if (i < h) {
        heat_cell(next, u, row, i * row + 1, k);
        heat_cell(next, u, row, i * row + w, k);
    }
}

/* All columns but the first one and the last one. */
HD_KERNEL(heat_interior, HD_INOUT(float, next), HD_IN(float, u), HD_VALUE(uint32_t, w), HD_VALUE(uint32_t, h),
          HD_VALUE(float, k))
{
    const uint32_t x = 2 + (uint32_t)hd_global_x(), y = (uint32_t)hd_global_y();
    if (x < w && y < h) {
        heat_cell(next, u, w + 2u, y * (w + 2ull) + x, k);
    }
}
