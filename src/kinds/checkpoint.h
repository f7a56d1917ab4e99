/* checkpoint.h - buffers with copies in pinned memory, from which they are restored after their device was lost.
 *
 * Threads: any.
 * Locks: one mutex per checkpointed buffer.
 * Blocking: see checkpoint.c.
 * Always: a copy that is known to be good stays until another one is.
 */
#ifndef HDI_KINDS_CHECKPOINT_H
#define HDI_KINDS_CHECKPOINT_H

#include "buffer/kind.h"

extern const hdi_buffer_ops hdi_checkpoint_ops;

/* Copies all of one buffer into another, in a copy lane of the device that has one of them. `to_device`: that is `dst`. Errors: as
 * hdi_submit, DEVICE_LOST. */
hd_status hdi_checkpoint_copy(struct hd_buffer *dst, struct hd_buffer *src, bool to_device, hd_ticket *out);

/* restore.c: the device works again. Gives its buffers with a checkpoint their content back. Errors: MEMORY, HOST_MEMORY, DEVICE_LOST, DRIVER,
 * FAILED, TIMEOUT. */
hd_status hdi_buffers_restore(hd_runtime *rt, hdi_device *device);

#endif
