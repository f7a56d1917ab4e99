/* part.h - the tensor layer's part of each runtime, on top of the parts of the layers below.
 *
 * hd_open allocates the structure of the topmost layer, which contains all parts. So every part of
 * an hd_runtime is at a constant offset, and a layer sees only the parts of the layers that it
 * builds on.
 * Threads, locks: as the files that own the members describe.
 * Always: a part shares the address of its runtime. A part is all zeros until hd_open fills it in.
 */
#ifndef HDI_TENSOR_PART_H
#define HDI_TENSOR_PART_H

#include "kernel/part.h"

#define HDI_TENSOR_KERNELS 64 /* at most */

typedef struct hdi_tensor_part {
    hdi_kernel_part below; /* first, since all parts share the runtime's address */
    struct hdi_products *products;
    _Atomic(struct hd_kernel *) tensor_kernels[HDI_TENSOR_KERNELS]; /* NULL: not requested yet */
} hdi_tensor_part;

static inline hdi_tensor_part *hdi_tensor_of(hd_runtime *rt)
{
    return (hdi_tensor_part *)rt;
}

#endif
