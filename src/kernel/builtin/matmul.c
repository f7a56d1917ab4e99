/* matmul.c - the built-in matrix product: c = alpha a b + beta c for all matrices of a batch, with
 * any strides. Types are f16, bf16, f32, f64, c64 and c128. Heddle uses this kernel if no library
 * can be opened, and for products that the library does not make.
 *
 * On a GPU the kernel runs in blocks of HDI_MATMUL_THREADS threads (matmul_gpu.h). On the CPU it
 * runs in blocks of one thread without barriers (matmul_cpu.h), with the best instructions of the
 * processor.
 * The script tools/make-builtin-ptx makes generated/matmul.ptx from this file. The repository
 * contains the result; run the script after every change here or in the headers.
 */
#include "matmul.h"
#include "matmul_tile.h"

typedef struct hdk_c64 {
    float re, im;
} hdk_c64;
typedef struct hdk_c128 {
    double re, im;
} hdk_c128;

#if HD_KERNEL_GPU

/* ---- GPU ---- */

/* 16 aligned bytes of shared memory, for one access. */
typedef float hdk_four __attribute__((vector_size(16)));
typedef double hdk_two __attribute__((vector_size(16)));

HD_DEVICE void hdk_take_f32(float *to, const float *from)
{
    hdk_four v = *(const hdk_four *)from;
    to[0] = v[0];
    to[1] = v[1];
    to[2] = v[2];
    to[3] = v[3];
}

HD_DEVICE void hdk_take_f64(double *to, const double *from)
{
    hdk_two v = *(const hdk_two *)from;
    to[0] = v[0];
    to[1] = v[1];
}

#define MULTIPLY(sum, x, y) ((sum) += (x) * (y))
#define SCALE(sum, alpha) ((alpha) * (sum))
#define FINISH(sum, before, alpha, beta) ((alpha) * (sum) + (beta) * (before))
#define ELEMENT_ZERO ((ELEMENT)0)
#define TILE HDI_MATMUL_GPU_TILE_SMALL
#define PIECE HDI_MATMUL_GPU_PIECE_SMALL
#define UNROLL 2
#define PACK 4
#define TAKE(to, from) hdk_take_f32(to, from)
#define NUMBER float
#define SCALAR float

#define NAME hd_product_f16
#define ELEMENT uint16_t
#define NUMBER_OF(x) hd_f16_to_f32((hd_f16){x})
#define ELEMENT_OF(x) (hd_f16_from_f32(x).bits)
#include "matmul_gpu.h"
#undef NAME
#undef NUMBER_OF
#undef ELEMENT_OF

#define NAME hd_product_bf16
#define NUMBER_OF(x) hd_bf16_to_f32((hd_bf16){x})
#define ELEMENT_OF(x) (hd_bf16_from_f32(x).bits)
#include "matmul_gpu.h"
#undef NAME
#undef ELEMENT
#undef NUMBER_OF
#undef ELEMENT_OF

#define NUMBER_OF(x) (x)
#define ELEMENT_OF(x) (x)

#define NAME hd_product_f32
#define ELEMENT float
#include "matmul_gpu.h"
#undef NAME
#undef ELEMENT
#undef TILE
#undef PIECE
#undef NUMBER
#undef SCALAR
#undef PACK
#undef TAKE

#define PACK 2
#define TAKE(to, from) hdk_take_f64(to, from)
#define TILE HDI_MATMUL_GPU_TILE
#define PIECE HDI_MATMUL_GPU_PIECE
#define NUMBER double
#define SCALAR double
#define NAME hd_product_f64
#define ELEMENT double
#include "matmul_gpu.h"
#undef NAME
#undef ELEMENT
#undef NUMBER
#undef SCALAR
#undef MULTIPLY
#undef SCALE
#undef FINISH
#undef ELEMENT_ZERO
#undef PACK
#undef TAKE

#define PACK 1
#define TAKE(to, from) (*(to) = *(from))
#define MULTIPLY(sum, x, y)                                                                                            \
    ((sum).re += (x).re * (y).re, (sum).re -= (x).im * (y).im, (sum).im += (x).re * (y).im, (sum).im += (x).im * (y).re)

HD_DEVICE hdk_c64 hdk_make_c64(float re, float im)
{
    hdk_c64 z;
    z.re = re;
    z.im = im;
    return z;
}

HD_DEVICE hdk_c128 hdk_make_c128(double re, double im)
{
    hdk_c128 z;
    z.re = re;
    z.im = im;
    return z;
}

#define SCALE(sum, alpha) MAKE((alpha) * (sum).re, (alpha) * (sum).im)
#define FINISH(sum, before, alpha, beta)                                                                               \
    MAKE((alpha) * (sum).re + (beta) * (before).re, (alpha) * (sum).im + (beta) * (before).im)
#define ELEMENT_ZERO MAKE(0, 0)

#undef UNROLL
#define UNROLL 2
#define NAME hd_product_c64
#define ELEMENT hdk_c64
#define NUMBER hdk_c64
#define SCALAR float
#define MAKE hdk_make_c64
#include "matmul_gpu.h"
#undef NAME
#undef ELEMENT
#undef NUMBER
#undef SCALAR
#undef MAKE

#undef UNROLL
#define UNROLL 1
#define NAME hd_product_c128
#define ELEMENT hdk_c128
#define NUMBER hdk_c128
#define SCALAR double
#define MAKE hdk_make_c128
#include "matmul_gpu.h"

#else

/* ---- CPU ---- */

#define WORK_BYTES (384 * 1024)

/* The thread's own work memory; its stack would be too small. */
HD_SHARED __attribute__((aligned(64))) unsigned char work[WORK_BYTES];

#define SET(type) plain_##type
#define TARGET
#define VECTOR 16
#include "matmul_types.h"
#undef SET
#undef TARGET
#undef VECTOR

#if defined(__x86_64__)
#define SET(type) avx2_##type
#define TARGET __attribute__((target("avx2,fma")))
#define VECTOR 32
#include "matmul_types.h"
#undef SET
#undef TARGET
#undef VECTOR

#define SET(type) avx512_##type
#define TARGET __attribute__((target("avx512f,avx2,fma")))
#define VECTOR 64
#include "matmul_types.h"
#undef SET
#undef TARGET
#undef VECTOR

#define BEST(type)                                                                                                     \
    (__builtin_cpu_supports("avx512f")                                 ? avx512_##type                                 \
     : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? avx2_##type                                   \
                                                                       : plain_##type)
#else
#define BEST(type) plain_##type
#endif

#define PRODUCT(name, type, element, columns)                                                                          \
    HD_KERNEL_BOUNDS(name, HDI_MATMUL_THREADS, HD_INOUT(element, c), HD_IN(element, a), HD_IN(element, b),             \
                     HD_VALUE(hdi_matmul_shape, s))                                                                    \
    {                                                                                                                  \
        uint64_t tiles = hdk_tile_count(&s, HDI_MATMUL_CPU_ROWS, columns);                                             \
        for (uint64_t number = hd_block_x(); number < tiles && hd_thread_x() == 0; number += hd_grid_dim_x()) {        \
            BEST(type)(c, a, b, &s, number, work);                                                                     \
        }                                                                                                              \
    }

PRODUCT(hd_product_f16, f16, uint16_t, HDI_MATMUL_CPU_COLUMNS)
PRODUCT(hd_product_bf16, bf16, uint16_t, HDI_MATMUL_CPU_COLUMNS)
PRODUCT(hd_product_f32, f32, float, HDI_MATMUL_CPU_COLUMNS)
PRODUCT(hd_product_f64, f64, double, HDI_MATMUL_CPU_COLUMNS)
PRODUCT(hd_product_c64, c64, hdk_c64, HDI_MATMUL_CPU_COLUMNS)
PRODUCT(hd_product_c128, c128, hdk_c128, HDI_MATMUL_CPU_COLUMNS_LARGE)

#endif
