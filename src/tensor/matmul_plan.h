/* matmul_plan.h - how a matrix product is made: a pure function from tensors and what is known of a library to calls of that library or one
 * launch of the built-in kernel, tested as a table. Any thread; no locks, no driver.
 *
 * Operands are numbered HDI_A, HDI_B, HDI_C.
 */
#ifndef HDI_TENSOR_MATMUL_PLAN_H
#define HDI_TENSOR_MATMUL_PLAN_H

#include "driver/product.h"
#include "kernel/builtin/matmul.h"
#include "tensor/tensor.h"

enum { HDI_A, HDI_B, HDI_C, HDI_OPERANDS };

/* A product of matrices: m x k times k x n, for every index of the batch. Strides count elements. */
typedef struct hdi_matmul_problem {
    hd_type type;
    uint64_t m, n, k;
    int64_t row[HDI_OPERANDS], column[HDI_OPERANDS];
    uint32_t dims; /* of the batch */
    uint64_t batch[HDI_MATMUL_BATCH];
    int64_t step[HDI_OPERANDS][HDI_MATMUL_BATCH];
    uint64_t offset[HDI_OPERANDS]; /* bytes from the buffer's start to the element with all indices 0 */
    uint64_t low[HDI_OPERANDS],
        high[HDI_OPERANDS]; /* bytes of the buffer that the operand covers; empty without elements */
    double alpha, beta;
} hdi_matmul_problem;

typedef enum hdi_matmul_kind {
    HDI_MATMUL_NOTHING, /* c has no elements */
    HDI_MATMUL_LIBRARY,
    HDI_MATMUL_BUILTIN
} hdi_matmul_kind;

/* What is known of a library. */
typedef struct hdi_matmul_facts {
    uint32_t types; /* bit t: it takes hd_type t; 0: there is none */
    uint64_t most;  /* sizes and pitches, at most */
    uint64_t most_count;
    bool gpu;      /* what the built-in kernel's tiles are for */
    bool can_pack; /* operands may be copied first */
} hdi_matmul_facts;

typedef struct hdi_matmul_plan {
    hdi_matmul_kind kind;
    bool reads_factors; /* a and b are looked at */
    /* Operands that have to be copied to dense temporary tensors before anything else; then the plan is to be made again. */
    bool pack[HDI_OPERANDS];
    /* LIBRARY: one call for each index of these dimensions; `a`, `b` and `c` of the product are offsets in bytes in the buffers of the
     * operands `first`, `second` and c. */
    hdi_product product;
    int first, second;
    uint32_t loops;
    uint64_t calls, loop[HDI_MATMUL_BATCH];
    int64_t step[HDI_OPERANDS][HDI_MATMUL_BATCH]; /* bytes */
    /* BUILTIN: pointers are to the buffers' bytes `low` */
    hdi_matmul_shape shape;
    uint64_t tiles;
} hdi_matmul_plan;

/* Checks how the operands, which are sound by themselves and lie in these bytes, fit together, and reads them. Errors: ARGUMENT. */
hd_status hdi_matmul_read(const hd_tensor operands[HDI_OPERANDS], const hdi_extent extents[HDI_OPERANDS], double alpha,
                          double beta, hdi_matmul_problem *out);

void hdi_matmul_make_plan(const hdi_matmul_problem *problem, const hdi_matmul_facts *facts, hdi_matmul_plan *out);

/* The offsets of call `number` of a plan for a library. */
hdi_product hdi_matmul_call(const hdi_matmul_plan *plan, uint64_t number);

#endif
