/* plans.h - runs the planner's plans on host memory, with the kernels for the CPU and with those for GPUs. The algorithm of the latter is
 * compiled for the CPU here, and their accesses are looked at.
 *
 * Threads: one at a time. Locks: none.
 */
#ifndef TEST_TENSOR_PLANS_H
#define TEST_TENSOR_PLANS_H

#include <heddle/kernel.h>
#include "tensor/plan.h"

/* The kernel of that name, as CPUs or GPUs run it. NULL: there is none. */
const hd_cpu_kernel *plans_cpu_kernel(const char *name);
const hd_cpu_kernel *plans_gpu_kernel(const char *name);

/* What the accesses of GPU kernels are to do and were. */
typedef struct plans_accesses {
    uint32_t first_block; /* added to the number of every block */
    bool pretend;         /* no memory is touched: plans_byte gives what is read, `wrote` gets what is written */
    void (*wrote)(uint64_t address, const unsigned char *bytes, uint32_t n);
    /* The source: `element_bytes` bytes from `elements` on, and which of them belong to elements (not 0). NULL: it is not checked. */
    const unsigned char *elements, *belongs;
    uint64_t element_bytes;
    _Atomic uint64_t strange; /* reads of less than 16 bytes that are not all elements', or 16 bytes none of which is */
    _Atomic uint64_t unaligned; /* accesses to what is no multiple of their size: a fault on a GPU */
    _Atomic uint64_t wide;      /* of 16 bytes */
    _Atomic uint64_t narrow;    /* of less */
} plans_accesses;
extern plans_accesses plans_seen;

/* What memory that is not there holds at an address. */
static inline unsigned char plans_byte(uint64_t address)
{
    uint64_t z = (address + 1) * UINT64_C(0x9e3779b97f4a7c15);
    return (unsigned char)(z >> 56 ^ z >> 37);
}

/* Runs blocks of one launch: all of them, or `blocks` from `first` on (GPU only). */
void plans_launch(const hdi_plan *plan, bool is_gpu, uint32_t first, uint32_t blocks);

/* Moves the elements as a copy does: plans, cuts, runs. Returns the number of launches; 0: the wish cannot be granted. The kinds of all plans go
 * to *kinds (may be NULL) as bits. */
int plans_run(const hdi_layout *layout, bool is_gpu, const hdi_plan_wish *wish, unsigned *kinds);

/* One element after another. */
void plans_run_simply(const hdi_layout *layout);

#endif
