/* transforms.c - Fourier and other transforms, sorting and transposition, as kernel source.
 * transforms.cu is the same in CUDA C++. */
#include <heddle/kernel.h>

typedef struct complex32 {
    float x, y;
} complex32;
typedef struct complex64 {
    double x, y;
} complex64;

/* A step of a Stockham FFT of radix 2; p is 1, 2, 4 ... n / 2. */
HD_KERNEL(fft_radix2, HD_OUT(complex32, y), HD_IN(complex32, x), HD_VALUE(int, n), HD_VALUE(int, p))
{
    int i = (int)hd_global_x();
    if (i >= n / 2) {
        return;
    }
    int k = i & (p - 1), j = ((i - k) << 1) + k;
    float sine, cosine;
    sincosf(-3.14159265358979f * k / p, &sine, &cosine);
    complex32 a = x[i], b = x[i + n / 2];
    complex32 t = {b.x * cosine - b.y * sine, b.x * sine + b.y * cosine};
    complex32 sum = {a.x + t.x, a.y + t.y}, difference = {a.x - t.x, a.y - t.y};
    y[j] = sum;
    y[j + p] = difference;
}

HD_DEVICE complex64 sum_of(complex64 a, complex64 b)
{
    complex64 c = {a.x + b.x, a.y + b.y};
    return c;
}
HD_DEVICE complex64 difference_of(complex64 a, complex64 b)
{
    complex64 c = {a.x - b.x, a.y - b.y};
    return c;
}
HD_DEVICE complex64 product_of(complex64 a, complex64 b)
{
    complex64 c = {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x};
    return c;
}
/* The same with radix 4, in double; p is 1, 4, 16 ... n / 4. */
HD_KERNEL(fft_radix4, HD_OUT(complex64, y), HD_IN(complex64, x), HD_VALUE(int, n), HD_VALUE(int, p))
{
    int i = (int)hd_global_x(), quarter = n / 4;
    if (i >= quarter) {
        return;
    }
    int k = i & (p - 1), j = ((i - k) << 2) + k;
    complex64 u[4];
    for (int m = 0; m < 4; m++) {
        double angle = -0.5 * k * m / p;
        complex64 w = {cospi(angle), sinpi(angle)};
        u[m] = product_of(w, x[i + m * quarter]);
    }
    complex64 a = sum_of(u[0], u[2]), b = difference_of(u[0], u[2]);
    complex64 c = sum_of(u[1], u[3]), d = difference_of(u[1], u[3]);
    complex64 turned = {d.y, -d.x};
    y[j] = sum_of(a, c);
    y[j + p] = sum_of(b, turned);
    y[j + 2 * p] = difference_of(a, c);
    y[j + 3 * p] = difference_of(b, turned);
}

/* A step of a bitonic sort. */
HD_KERNEL(bitonic_step, HD_INOUT(uint32_t, x), HD_VALUE(uint32_t, j), HD_VALUE(uint32_t, k))
{
    uint32_t i = (uint32_t)hd_global_x(), other = i ^ j;
    if (other > i) {
        uint32_t a = x[i], b = x[other];
        int up = (i & k) == 0;
        if ((a > b) == up) {
            x[i] = b;
            x[other] = a;
        }
    }
}

/* Each block sorts its keys, with their values. */
#define KEYS 512
HD_KERNEL_BOUNDS(bitonic_block, KEYS / 2, HD_INOUT(float, key), HD_INOUT(int, value))
{
    HD_SHARED float k_[KEYS];
    HD_SHARED int v_[KEYS];
    int t = (int)hd_thread_x();
    key += hd_block_x() * KEYS;
    value += hd_block_x() * KEYS;
    for (int i = t; i < KEYS; i += (int)hd_block_dim_x()) {
        k_[i] = key[i];
        v_[i] = value[i];
    }
    for (int size = 2; size <= KEYS; size *= 2) {
        for (int stride = size / 2; stride > 0; stride /= 2) {
            hd_barrier();
            int i = 2 * t - (t & (stride - 1)), other = i + stride;
            int up = (i & size) == 0;
            if ((k_[i] > k_[other]) == up) {
                float k = k_[i];
                k_[i] = k_[other];
                k_[other] = k;
                int v = v_[i];
                v_[i] = v_[other];
                v_[other] = v;
            }
        }
    }
    hd_barrier();
    for (int i = t; i < KEYS; i += (int)hd_block_dim_x()) {
        key[i] = k_[i];
        value[i] = v_[i];
    }
}

/* Uses a tile in shared memory. Its rows are one element longer, so that a column's elements are in
 * different banks. */
#define TRANSPOSE(name, type, TILE, ROWS)                                                                              \
    HD_KERNEL(name, HD_OUT(type, y), HD_IN(type, x), HD_VALUE(int, width), HD_VALUE(int, height))                      \
    {                                                                                                                  \
        HD_SHARED type tile[TILE][TILE + 1];                                                                           \
        int tx = (int)hd_thread_x(), ty = (int)hd_thread_y(), bx = (int)hd_block_x(), by = (int)hd_block_y();          \
        int c = bx * TILE + tx, r = by * TILE + ty;                                                                    \
        for (int i = 0; i < TILE; i += ROWS) {                                                                         \
            if (c < width && r + i < height) {                                                                         \
                tile[ty + i][tx] = x[(r + i) * width + c];                                                             \
            }                                                                                                          \
        }                                                                                                              \
        hd_barrier();                                                                                                  \
        c = by * TILE + tx;                                                                                            \
        r = bx * TILE + ty;                                                                                            \
        for (int i = 0; i < TILE; i += ROWS) {                                                                         \
            if (c < height && r + i < width) {                                                                         \
                y[(r + i) * height + c] = tile[tx][ty + i];                                                            \
            }                                                                                                          \
        }                                                                                                              \
    }
TRANSPOSE(transpose_f32, float, 32, 8)
TRANSPOSE(transpose_f64, double, 16, 4)

/* The fast Walsh-Hadamard transform of each block, in dynamic shared memory. */
HD_KERNEL(walsh_hadamard, HD_INOUT(int, x), HD_VALUE(int, n))
{
    HD_DYNAMIC_SHARED(int, s);
    int first = (int)hd_thread_x(), step = (int)hd_block_dim_x();
    x += hd_block_x() * n;
    for (int i = first; i < n; i += step) {
        s[i] = x[i];
    }
    for (int h = 1; h < n; h *= 2) {
        hd_barrier();
        for (int t = first; t < n / 2; t += step) {
            int i = t / h * 2 * h + t % h, a = s[i], b = s[i + h];
            s[i] = a + b;
            s[i + h] = a - b;
        }
    }
    hd_barrier();
    for (int i = first; i < n; i += step) {
        x[i] = s[i];
    }
}

HD_KERNEL(bit_reverse, HD_OUT(uint32_t, y), HD_IN(uint32_t, x), HD_VALUE(int, bits))
{
    uint32_t i = (uint32_t)hd_global_x();
    if (i < 1u << bits) {
        y[hd_bits_reverse_u32(i) >> (32 - bits)] = x[i];
    }
}
