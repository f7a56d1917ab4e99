/* plans.h - runs the planner's plans on host memory, with the kernels for CPUs and those for GPUs.
 * The GPU algorithms are compiled for the CPU here, and every access is checked.
 *
 * Threads: one at a time. Locks: none.
 */
#ifndef TEST_TENSOR_PLANS_H
#define TEST_TENSOR_PLANS_H

#include <heddle/kernel.h>
#include "tensor/plan.h"

/* Returns the kernel of that name in its CPU or GPU form; NULL if there is none. */
const hd_cpu_kernel *plans_cpu_kernel(const char *name);
const hd_cpu_kernel *plans_gpu_kernel(const char *name);

/* How GPU kernels must access memory, and how they did. */
typedef struct plans_accesses {
    uint32_t first_block; /* added to the number of every block */
    /* no memory is accessed: plans_byte gives the bytes to read, `wrote` gets written ones */
    bool pretend;
    void (*wrote)(uint64_t address, const unsigned char *bytes, uint32_t n);
    /* The source: `element_bytes` bytes from `elements` on; `belongs` is not 0 for bytes of
     * elements. NULL: unchecked. */
    const unsigned char *elements, *belongs;
    uint64_t element_bytes;
    /* reads below 16 bytes with other bytes than elements, or of 16 bytes without any element */
    _Atomic uint64_t strange;
    _Atomic uint64_t unaligned; /* unaligned accesses, which fault on a GPU */
    _Atomic uint64_t wide;      /* accesses of 16 bytes */
    _Atomic uint64_t narrow;    /* smaller accesses */
} plans_accesses;
extern plans_accesses plans_seen;

/* Returns the byte at an address of memory that does not exist. */
static inline unsigned char plans_byte(uint64_t address)
{
    uint64_t z = (address + 1) * UINT64_C(0x9e3779b97f4a7c15);
    return (unsigned char)(z >> 56 ^ z >> 37);
}

/* Runs blocks of one launch: all of them, or `blocks` from `first` on (GPU only). */
void plans_launch(const hdi_plan *plan, bool is_gpu, uint32_t first, uint32_t blocks);

/* Moves the elements as a copy does: plans, cuts, runs. Returns the number of launches; 0 if the
 * wish is impossible. *kinds (may be NULL) gets the kinds of all plans as bits. */
int plans_run(const hdi_layout *layout, bool is_gpu, const hdi_plan_wish *wish, unsigned *kinds);

/* Moves one element after another. */
void plans_run_simply(const hdi_layout *layout);

#endif
