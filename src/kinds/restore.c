/* restore.c - buffers with a checkpoint get their content back after their device was restarted.
 *
 * Threads: the one that restarts a device.
 * Locks: the order lock of the device, for a moment.
 * Blocking: for the copy of each buffer (option transfer_timeout).
 * Always: a buffer becomes live only when its content is restored.
 */
#include "base/wait.h"
#include "base/error.h"
#include "kinds/checkpoint.h"
#include "buffer/list.h"
#include "buffer/reclaim.h"
#include "engine/engine.h"

/* Copies the checkpoint into fresh memory. The handle is lost, and hd_free waits. But an operation that was checked before the loss may still
 * come. Under the order lock it finds other `losses` than it was checked with. */
static hd_status restore(hd_runtime *rt, hdi_device *device, struct hd_buffer *b, struct hd_buffer *content)
{
    struct hd_buffer fresh = {.runtime = rt};
    hd_status status = hdi_buffer_place(&fresh, device->lane_in, b->bytes);
    if (status) {
        return status;
    }
    hdi_record_lock(b);
    hdi_uses_release(&b->uses);
    b->uses = fresh.uses;
    b->address = fresh.address;
    b->block = fresh.block;
    b->item = fresh.item;
    atomic_store_explicit(&b->losses, hdi_buffer_losses(&fresh), memory_order_release);
    hdi_record_unlock(b);
    hd_ticket ticket;
    status = hdi_checkpoint_copy(b, content, true, &ticket);
    if (!status) {
        uint32_t lane = device->lane_in->global;
        int64_t deadline = hdi_option_deadline(rt->options.transfer_timeout);
        status = hdi_wait_position(rt, lane, ticket.sequence, deadline)
                     ? hdi_position_status(rt, lane, ticket.sequence)
                     : hdi_fail(HD_ERROR_TIMEOUT, "a checkpointed buffer is not restored yet (option "
                                                  "transfer_timeout)");
    }
    if (!status) {
        hdi_buffer_make_live(b);
    }
    return status;
}

hd_status hdi_buffers_restore(hd_runtime *rt, hdi_device *device)
{
    hd_status status = HD_OK;
    hdi_reclaim_forbid(
        true); /* hd_free of a buffer that is being restored waits for the restart, which this thread runs */
    for (struct hd_buffer *b = NULL; !status && (b = hdi_buffers_next_to_restore(rt, device->index, b)) != NULL;) {
        struct hd_buffer *content = b->kind->content(b);
        status = content ? restore(rt, device, b, content) : HD_OK;
        hdi_buffers_restored(rt, b);
    }
    hdi_reclaim_forbid(false);
    return status;
}
