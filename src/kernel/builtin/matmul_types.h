/* matmul_types.h - the CPU's matrix products of all types for one set of instructions. matmul.c
 * includes this file once for each set. Before that, it defines SET(name), which makes the names of
 * functions, and TARGET and VECTOR as in matmul_cpu.h.
 */

#define PARTS 1
#define STORE(at, re, im) (*(at) = STORED(re))
#define COLUMNS HDI_MATMUL_CPU_COLUMNS
#define REAL float

#define FUNCTION SET(f16)
#define ELEMENT uint16_t
#define PART_OF(at, part) hd_f16_to_f32((hd_f16){*(at)})
#define STORED(x) (hd_f16_from_f32(x).bits)
#include "matmul_cpu.h"
#undef FUNCTION
#undef PART_OF
#undef STORED

#define FUNCTION SET(bf16)
#define PART_OF(at, part) hd_bf16_to_f32((hd_bf16){*(at)})
#define STORED(x) (hd_bf16_from_f32(x).bits)
#include "matmul_cpu.h"
#undef FUNCTION
#undef ELEMENT
#undef PART_OF
#undef STORED

#define PART_OF(at, part) (*(at))
#define STORED(x) (x)

#define FUNCTION SET(f32)
#define ELEMENT float
#include "matmul_cpu.h"
#undef FUNCTION
#undef ELEMENT
#undef REAL

#define REAL double
#define FUNCTION SET(f64)
#define ELEMENT double
#include "matmul_cpu.h"
#undef FUNCTION
#undef ELEMENT
#undef REAL
#undef PART_OF
#undef STORED
#undef STORE
#undef PARTS

#define PARTS 2
#define PART_OF(at, part) ((part) == 0 ? (at)->re : (at)->im)
#define STORE(at, real, imaginary) ((at)->re = (real), (at)->im = (imaginary))

#define REAL float
#define FUNCTION SET(c64)
#define ELEMENT hdk_c64
#include "matmul_cpu.h"
#undef FUNCTION
#undef ELEMENT
#undef REAL
#undef COLUMNS

#define COLUMNS HDI_MATMUL_CPU_COLUMNS_LARGE
#define REAL double
#define FUNCTION SET(c128)
#define ELEMENT hdk_c128
#include "matmul_cpu.h"
#undef FUNCTION
#undef ELEMENT
#undef REAL
#undef COLUMNS
#undef PART_OF
#undef STORE
#undef PARTS
