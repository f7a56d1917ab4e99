/* part.h - what the layer of tensors has in each runtime, behind what the layers below have there.
 *
 * hd_open allocates the last layer's structure, which contains all. So an hd_runtime has every part at a constant place,
 * and a layer sees only those below.
 * Threads, locks: as the files that own the members describe.
 * Always: a part has the address of its runtime. All zeros is its state before hd_open creates what it has.
 */
#ifndef HDI_TENSOR_PART_H
#define HDI_TENSOR_PART_H

#include "kernel/part.h"

#define HDI_TENSOR_KERNELS 64 /* at most */

typedef struct hdi_tensor_part {
    hdi_kernel_part below; /* first: the runtime's address is that of each part */
    struct hdi_products *products;
    _Atomic(struct hd_kernel *) tensor_kernels[HDI_TENSOR_KERNELS]; /* NULL: not asked for yet */
} hdi_tensor_part;

/* A const runtime does not change itself; what it leads to may. */
static inline hdi_tensor_part *hdi_tensor_of(const hd_runtime *rt)
{
    return (hdi_tensor_part *)rt;
}

#endif
