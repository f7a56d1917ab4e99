/* copy.h - the parts of a copy of elements that several files share.
 *
 * Threads: any. Locks: none. A job names the buffers as they were when their handles were checked; its layouts have the buffers' addresses
 * of that moment, which each submission looks at again.
 */
#ifndef HDI_TENSOR_COPY_H
#define HDI_TENSOR_COPY_H

#include "data/transfer.h"
#include "tensor/plan.h"
#include "tensor/tensor.h"

typedef struct hdi_tensor_job {
    hd_runtime *rt;
    const char *who;
    const hdi_plan_wish *wish; /* NULL: none */
    hdi_place dst, src;
    uint64_t dst_address, src_address; /* of the buffers */
    bool packed;                       /* the source was made by another part of the same copy */
} hdi_tensor_job;

/* The lane for kernels that move so many bytes on a device: those of small copies do not queue up behind large ones. */
hd_lane *hdi_tensor_lane(hdi_device *device, uint64_t bytes);

/* Moves the elements of a layout, which need not be canonical, by kernels in a lane whose device reaches both buffers. *after: what the first launch
 * comes after, as one of several parts (hdi_linked), and then the last launch. *out: the last one's ticket.
 * Errors: as hdi_launch_linked and hd_kernel_get; UNSUPPORTED: a wish that cannot be granted. */
hd_status hdi_tensor_run(const hdi_tensor_job *job, hdi_layout layout, hd_lane *lane, hdi_point *after, hd_ticket *out);

/* Moves a run of bytes, as hd_copy does: `dst_at` and `src_at` in the buffers. Errors: as hd_copy. */
hd_status hdi_tensor_run_bytes(const hdi_tensor_job *job, uint64_t dst_at, uint64_t src_at, uint64_t bytes,
                               hdi_point *after, hd_ticket *out);

/* staged.c: the same where no device reaches both buffers: through memory on either device, so much at a time, and a copy between the two.
 * `to`, `from`: the devices. Errors: as hd_tensor_copy. */
hd_status hdi_tensor_run_staged(const hdi_tensor_job *job, hdi_layout layout, int to, int from, hd_ticket *out);

/* hd_tensor_copy; `who` for messages. */
hd_status hdi_tensor_copy(const hd_tensor *dst, const hd_tensor *src, const hdi_plan_wish *wish, const char *who,
                          hd_ticket *out);

/* Device memory for elements on their way. Errors: as hd_alloc. */
hd_status hdi_tensor_scratch(hdi_device *device, uint64_t bytes, const char *who, hd_buffer **out);

#endif
