/* copy.h - the steps of a copy of elements, which several files use.
 *
 * Threads: any.
 * Locks: none.
 * Blocking: while a lane is full; hdi_tensor_scratch as hd_alloc.
 * Always: a job has the buffers and addresses of the moment at which their handles were checked. Each submission checks
 * the handles again.
 */
#ifndef HDI_TENSOR_COPY_H
#define HDI_TENSOR_COPY_H

#include "transfer/transfer.h"
#include "tensor/plan.h"
#include "tensor/tensor.h"

typedef struct hdi_tensor_job {
    hd_runtime *rt;
    const hdi_plan_wish *wish; /* NULL: none */
    hdi_place dst, src;
    uint64_t dst_address, src_address; /* of the buffers' first bytes */
    bool packed;                       /* the source was packed by another part of this copy */
} hdi_tensor_job;

/* The lane for kernels that move so many bytes on a device. Small copies have other lanes than large ones, so they do
 * not wait behind them. */
hd_lane *hdi_tensor_lane(hdi_device *device, uint64_t bytes);

/* Moves the elements of a layout by kernels. The layout need not be canonical. The lane's device reaches both buffers.
 * *after: the point that the first launch comes after, as one of several parts (hdi_linked). Becomes the last launch.
 * *out: the ticket of the last launch.
 * Errors: as hdi_launch_linked and hd_kernel_get; UNSUPPORTED: the wish cannot be granted. */
hd_status hdi_tensor_run(const hdi_tensor_job *job, hdi_layout layout, hd_lane *lane, hdi_point *after, hd_ticket *out);

/* Moves a run of bytes, as hd_copy does. `dst_at`, `src_at`: offsets in the buffers. Errors: as hd_copy. */
hd_status hdi_tensor_run_bytes(const hdi_tensor_job *job, uint64_t dst_at, uint64_t src_at, uint64_t bytes,
                               hdi_point *after, hd_ticket *out);

/* staged.c: moves elements between buffers that no device reaches both of. Packs a part on device `from`, copies it to
 * device `to`, and unpacks it there.
 * Errors: as hd_tensor_copy. */
hd_status hdi_tensor_run_staged(const hdi_tensor_job *job, hdi_layout layout, int to, int from, hd_ticket *out);

/* hd_tensor_copy; `who` begins the messages. */
hd_status hdi_tensor_copy(const hd_tensor *dst, const hd_tensor *src, const hdi_plan_wish *wish, hd_ticket *out);

/* Allocates temporary device memory for elements. Errors: as hd_alloc. */
hd_status hdi_tensor_scratch(hdi_device *device, uint64_t bytes, hd_buffer **out);

#endif
