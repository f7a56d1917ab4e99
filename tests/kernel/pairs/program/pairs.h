/* pairs.h - kernels that exist twice, as CUDA C++ and as kernel source: the arguments of a launch,
 * and its expected results.
 *
 * A row is a kernel. Its function makes the arguments of one launch, and computes the expected
 * results in plain C, in double. It shares no text with the kernels.
 *
 * Threads: one. Blocking: none.
 */
#ifndef HDI_TEST_PAIRS_H
#define HDI_TEST_PAIRS_H

#include <heddle.h>
#include <stdbool.h>

typedef enum pairs_type {
    PAIRS_U8,
    PAIRS_I32,
    PAIRS_U32,
    PAIRS_U64,
    PAIRS_F16,
    PAIRS_BF16,
    PAIRS_F32,
    PAIRS_F64
} pairs_type;

enum {
    PAIRS_ARGUMENTS_MOST = 12,
    PAIRS_BYTES_MOST = 64,
    PAIRS_GUARD = 64 /* bytes behind each array, which no kernel may change */
};

/* One argument: an array, or a value. */
typedef struct pairs_argument {
    hd_arg value;     /* of a value; a structure is in `bytes` */
    uint32_t access;  /* of an array; 0: a value */
    pairs_type type;  /* of an array's elements, as the next fields */
    size_t count;     /* elements */
    void *before;     /* owned: the array before the launch */
    double *expected; /* owned: the expected array after it; NULL: unchanged */
    double *slack;    /* owned: additional error allowed per element; NULL: none */
    bool any_order;   /* the elements may be in any order */
    size_t bytes;     /* size of a value */
    unsigned char structure[PAIRS_BYTES_MOST];
} pairs_argument;

typedef struct pairs_launch {
    hd_dims grid, block;
    size_t shared;
    size_t n_arguments;
    pairs_argument arguments[PAIRS_ARGUMENTS_MOST];
    uint64_t random;
} pairs_launch;

typedef struct pairs_row {
    const char *file;   /* the kernel's file, without its suffix */
    const char *kernel; /* its name in kernel source */
    const char *cuda;   /* its name in CUDA C++; NULL: the same */
    void (*make)(pairs_launch *launch);
    double absolute, relative; /* allowed error: absolute + relative * |expected|; 0, 0: exact */
    const char *because;       /* the reason for this error */
} pairs_row;

/* One table for each file; it ends with a row without a file. */
extern const pairs_row pairs_reductions[], pairs_neural[], pairs_stencils[], pairs_transforms[], pairs_random[],
    pairs_linear[], pairs_images[], pairs_half[];

/* All of these tables, then NULL. */
extern const pairs_row *const pairs_all[];

/* ---- making a launch; arguments come in their order ---- */

/* Adds an array that the kernel reads. The caller fills in its `count` elements. */
void *pairs_in(pairs_launch *launch, pairs_type type, size_t count);
/* Adds an array that the kernel writes, undefined before the launch. Returns the expected elements
 * for the caller to fill in. */
double *pairs_out(pairs_launch *launch, pairs_type type, size_t count);
/* Adds an array that the kernel reads and writes. Returns the expected elements, and in *before
 * those before the launch, which are 0 unless the caller sets them. */
double *pairs_inout(pairs_launch *launch, pairs_type type, size_t count, void **before);
/* Returns the additional error that each element of the last array may have. The caller fills it
 * in. */
double *pairs_slack(pairs_launch *launch);
/* The last array's elements may come in any order. */
void pairs_any_order(pairs_launch *launch);
void pairs_value(pairs_launch *launch, hd_arg value);
void pairs_structure(pairs_launch *launch, const void *bytes, size_t size);
void pairs_release(pairs_launch *launch);

/* Numbers that are the same in every run: 32 bits; a float from low (included) to high. */
uint32_t pairs_bits(pairs_launch *launch);
float pairs_random_f32(pairs_launch *launch, double low, double high);
/* Adds an array of such floats that the kernel reads. */
float *pairs_in_f32(pairs_launch *launch, size_t count, double low, double high);

/* ---- elements ---- */

size_t pairs_type_bytes(pairs_type type);
bool pairs_type_is_float(pairs_type type);
double pairs_get(pairs_type type, const void *array, size_t index);
void pairs_set(pairs_type type, void *array, size_t index, double value); /* rounded to the type */

#endif
