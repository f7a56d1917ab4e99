/* argument_kinds.c - kernels with a parameter of each kind, for tests/cpp/test_launch.cpp. */
#include <heddle/kernel.h>

struct numbers {
    float scale;
    int32_t shift[3];
    double last;
};

HD_KERNEL(every_kind, HD_OUT(double, y), HD_IN(float, x), HD_VALUE(int8_t, i8), HD_VALUE(uint8_t, u8),
          HD_VALUE(int16_t, i16), HD_VALUE(uint16_t, u16), HD_VALUE(int32_t, i32), HD_VALUE(uint32_t, u32),
          HD_VALUE(int64_t, i64), HD_VALUE(uint64_t, u64), HD_VALUE(float, f32), HD_VALUE(double, f64),
          HD_VALUE(struct numbers, s))
{
    if (hd_global_x() == 0) {
        y[0] = x[0];
        y[1] = i8;
        y[2] = u8;
        y[3] = i16;
        y[4] = u16;
        y[5] = i32;
        y[6] = u32;
        y[7] = (double)i64;
        y[8] = (double)u64;
        y[9] = f32;
        y[10] = f64;
        y[11] = s.scale + s.shift[2] + s.last;
    }
}

HD_GLOBAL_CONSTANT float coefficients[4] = {1, 2, 3, 4};
HD_GLOBAL uint32_t runs;

/* Uses the coefficients that the program sets. */
HD_KERNEL(weigh, HD_INOUT(float, y))
{
    uint32_t i = hd_thread_x();
    y[i] *= coefficients[i % 4];
    if (i == 0) {
        runs++;
    }
}

HD_KERNEL(nothing)
{
}

/* Reverses the block's numbers in dynamic shared memory. */
HD_KERNEL(turn, HD_INOUT(int32_t, y))
{
    HD_DYNAMIC_SHARED(int32_t, kept);
    uint32_t t = hd_thread_x(), n = hd_block_dim_x();
    kept[t] = y[t];
    hd_barrier();
    y[t] = kept[n - 1 - t];
}

/* Stores the place of each thread in a grid with three dimensions. */
HD_KERNEL(places, HD_OUT(uint32_t, y))
{
    uint64_t at =
        (hd_global_z() * (hd_grid_dim_y() * hd_block_dim_y()) + hd_global_y()) * (hd_grid_dim_x() * hd_block_dim_x()) +
        hd_global_x();
    y[at] = (uint32_t)(100 * hd_global_z() + 10 * hd_global_y() + hd_global_x());
}

/* A kernel for each type of element. */
struct three {
    float x, y, z;
};
HD_KERNEL(of_i8, HD_INOUT(int8_t, y))
{
    (void)y;
}
HD_KERNEL(of_u8, HD_INOUT(uint8_t, y))
{
    (void)y;
}
HD_KERNEL(of_i16, HD_INOUT(int16_t, y))
{
    (void)y;
}
HD_KERNEL(of_u16, HD_INOUT(uint16_t, y))
{
    (void)y;
}
HD_KERNEL(of_i32, HD_INOUT(int32_t, y))
{
    (void)y;
}
HD_KERNEL(of_u32, HD_INOUT(uint32_t, y))
{
    (void)y;
}
HD_KERNEL(of_i64, HD_INOUT(int64_t, y))
{
    (void)y;
}
HD_KERNEL(of_u64, HD_INOUT(uint64_t, y))
{
    (void)y;
}
HD_KERNEL(of_f32, HD_INOUT(float, y))
{
    (void)y;
}
HD_KERNEL(of_f64, HD_INOUT(double, y))
{
    (void)y;
}
HD_KERNEL(of_three, HD_INOUT(struct three, y))
{
    (void)y;
}
HD_KERNEL(of_half, HD_INOUT(hd_f16, y))
{
    (void)y;
}
HD_KERNEL(of_void, HD_INOUT(void, y))
{
    (void)y;
}
