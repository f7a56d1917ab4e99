/* matmul.h - matrix products: their plans, and the libraries and kernels that execute them in each
 * lane.
 *
 * A plan consists of calls of a library, or of one launch of the built-in kernel. The plan depends
 * only on the tensors and the library's facts, so tests can check plans by a table. The library
 * that a lane's engine opened, and the built-in kernels, execute the products of the lane.
 *
 * Threads: any; the functions of plans are pure.
 * Locks: one per device while a library is opened (rank MATMUL_LIBRARY). A thread allocates memory
 * before it takes this lock.
 * Blocking: the first call for a lane waits while a library is opened. The same is true of the
 * first call after a restart of the lane's device.
 * Always:
 * - Operands are numbered HDI_A, HDI_B, HDI_C.
 * - The facts of a lane's library stay at their address until hd_close.
 */
#ifndef HDI_TENSOR_MATMUL_H
#define HDI_TENSOR_MATMUL_H

#include "blas/blas.h"
#include "engine/runtime.h"
#include "kernel/builtin/matmul.h"
#include "kernel/module.h"
#include "tensor/tensor.h"

/* ---- plans ---- */

enum { HDI_A, HDI_B, HDI_C, HDI_OPERANDS };

/* Products of matrices: m x k times k x n, one product for each index of the batch. Strides and
 * steps count elements. */
typedef struct hdi_matmul_problem {
    hd_type type;
    uint64_t m, n, k;
    int64_t row[HDI_OPERANDS], column[HDI_OPERANDS];
    uint32_t dims; /* dimensions of the batch */
    uint64_t batch[HDI_MATMUL_BATCH];
    int64_t step[HDI_OPERANDS][HDI_MATMUL_BATCH];
    /* The bytes from the buffer's start to the element with all indices 0. */
    uint64_t offset[HDI_OPERANDS];
    /* The range of the operand's bytes in its buffer; empty if the operand contains no elements. */
    uint64_t low[HDI_OPERANDS], high[HDI_OPERANDS];
    double alpha, beta;
} hdi_matmul_problem;

typedef enum hdi_matmul_kind {
    HDI_MATMUL_NOTHING, /* c has no elements */
    HDI_MATMUL_LIBRARY,
    HDI_MATMUL_BUILTIN
} hdi_matmul_kind;

/* The facts of a library, and the parts of it that the plan may use. */
typedef struct hdi_matmul_facts {
    uint32_t types; /* bit t: the library takes hd_type t; 0: no library */
    uint64_t most;  /* the largest size and pitch */
    uint64_t most_count;
    bool gpu;      /* selects the built-in kernel's tiles */
    bool can_pack; /* the plan may first copy operands to dense tensors */
} hdi_matmul_facts;

typedef struct hdi_matmul_plan {
    hdi_matmul_kind kind;
    bool reads_factors; /* the elements of a and b are read */
    /* Operands that must be copied to dense temporary tensors first. Then the caller makes another
     * plan, for the copies. */
    bool pack[HDI_OPERANDS];
    /* LIBRARY: the plan makes one call for each index of the dimensions `loop`. `a`, `b` and `c` of
     * the product are offsets in bytes, in the buffers of the operands `first` and `second`, and of
     * c. */
    hdi_product product;
    int first, second;
    uint32_t loops;
    uint64_t calls, loop[HDI_MATMUL_BATCH];
    int64_t step[HDI_OPERANDS][HDI_MATMUL_BATCH]; /* the steps of each operand, in bytes */
    /* BUILTIN: the kernel's pointers point to byte `low` of each operand's buffer */
    hdi_matmul_shape shape;
    uint64_t tiles;
} hdi_matmul_plan;

/* Checks that the operands fit together, and converts them to a problem. Each operand passed
 * hdi_tensor_check, which made its extent.
 * Errors: ARGUMENT. */
hd_status hdi_matmul_read(const hd_tensor operands[HDI_OPERANDS], const hdi_extent extents[HDI_OPERANDS], double alpha,
                          double beta, hdi_matmul_problem *out);

void hdi_matmul_make_plan(const hdi_matmul_problem *problem, const hdi_matmul_facts *facts, hdi_matmul_plan *out);

/* The product of call `number`, counted from 0, of a plan for a library, with its offsets. */
hdi_product hdi_matmul_call(const hdi_matmul_plan *plan, uint64_t number);

/* ---- matmul_library.c: libraries of lanes ---- */

extern const hdi_lifetime hdi_products_lifetime;

/* Returns the facts of the lane's library. Opens the library if it is not open yet.
 * Blocking: the call waits while the library is opened.
 * Errors:
 * - OPTION: the library that the option blas names does not open, or offers no products
 * - MEMORY, HOST_MEMORY, DRIVER, DEVICE_LOST */
hd_status hdi_products_library(hd_lane *lane, const hdi_blas_facts **out);

/* Between hdi_products_hold and hdi_products_resume, no thread opens a library on the device. A
 * restart holds before the step that makes the device work again, and resumes after this step. So a
 * library and its workspace always belong to the same worker. */
void hdi_products_hold(hd_runtime *rt, int device);
void hdi_products_resume(hd_runtime *rt, int device);

/* The built-in kernel for products of a type. Errors: as hd_module_get_builtin and
 * hd_kernel_get. */
hd_status hdi_products_kernel(hd_runtime *rt, hd_type type, struct hd_kernel **out);

#endif
