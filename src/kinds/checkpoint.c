/* checkpoint.c - copies of a device buffer in pinned host memory, which restore the buffer after a
 * loss of its device.
 *
 * Threads: any; the thread that restarts a device restores its buffers.
 * Locks: one mutex per checkpointed buffer, held while a save is submitted, but not during a wait
 * for a save. The order lock of the device is held for a moment.
 * Blocking: hd_buffer_save waits for the previous save. A restart waits until each buffer is
 * restored (option transfer_timeout).
 * Always: each buffer has two copies. A save never overwrites the newest copy that is known to be
 * good. So if a save fails, this good copy is still there. A save begins only after the previous
 * save is finished. A buffer becomes live again only after its content is restored.
 */
#include <stdlib.h>
#include "base/error.h"
#include "base/handle.h"
#include "base/lock.h"
#include "buffer/buffer.h"
#include "buffer/reclaim.h"
#include "engine/engine.h"
#include "kinds/kinds.h"

static const hdi_buffer_ops checkpoint_ops;

struct hdi_checkpoint {
    hdi_mutex lock;
    struct hd_buffer *copy[2];
    hdi_point saved[2]; /* the last save into each copy; position 0: none */
    bool good[2];       /* this copy is good: its last save succeeded */
    int newest;         /* the copy of the last save */
};

static struct hdi_checkpoint *checkpoint_of(const struct hd_buffer *b)
{
    return b->of_kind;
}

/* ---- the buffer ---- */

static void checkpoint_destroy(struct hdi_checkpoint *checkpoint)
{
    hdi_mutex_destroy(&checkpoint->lock);
    free(checkpoint);
}

static void checkpoint_release_all(struct hdi_checkpoint *checkpoint)
{
    for (int i = 0; i < 2; i++) {
        if (checkpoint->copy[i]) {
            hdi_free(hdi_buffer_handle(checkpoint->copy[i]));
        }
    }
    checkpoint_destroy(checkpoint);
}

static hd_status checkpoint_make(struct hd_buffer *b)
{
    struct hdi_checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
    if (!checkpoint) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    hdi_mutex_init(&checkpoint->lock, HDI_RANK_CHECKPOINT);
    for (int i = 0; i < 2; i++) {
        hd_status status = hdi_buffer_make_host(b->runtime, b->bytes, true, &checkpoint->copy[i]);
        if (status) {
            hdi_attempt attempt;
            hdi_attempt_begin(&attempt);
            checkpoint->copy[i] = NULL;
            checkpoint_release_all(checkpoint);
            hdi_attempt_end(&attempt);
            return status;
        }
    }
    hdi_buffer_set_kind(b, &checkpoint_ops, checkpoint);
    return HD_OK;
}

static void checkpoint_drop(struct hd_buffer *b)
{
    HDI_HANDOVER_BEGIN();
    b->of_kind = NULL;
    HDI_HANDOVER_END();
}

static void checkpoint_forget(struct hd_buffer *b)
{
    checkpoint_destroy(checkpoint_of(b));
    checkpoint_drop(b);
}

static void checkpoint_release(struct hd_buffer *b)
{
    checkpoint_release_all(checkpoint_of(b));
    checkpoint_drop(b);
}

/* ---- saves ---- */

/* Copies the whole content of one buffer into another one, in a lane of the device that owns one of
 * the two. `to_device`: the device owns `dst`. Errors: as hdi_submit, DEVICE_LOST. */
static hd_status checkpoint_copy_all(hd_lane *lane, struct hd_buffer *dst, struct hd_buffer *src, bool to_device,
                                     hd_ticket *out)
{
    const struct hd_buffer *owned = to_device ? dst : src;
    uint64_t bytes = owned->bytes;
    const hdi_use uses[2] = {
        {.buffer = src, .losses = hdi_buffer_losses(src), .high = bytes, .read = true, .whole = bytes == src->bytes},
        {.buffer = dst, .losses = hdi_buffer_losses(dst), .high = bytes, .write = true, .whole = bytes == dst->bytes},
    };
    if (uses[to_device].losses == HDI_LOST) {
        return hdi_loss_fail(owned->runtime, owned->owner, "a buffer's content was lost meanwhile");
    }
    hdi_command command = {.op = HDI_OP_COPY, .kind = to_device ? HDI_COPY_TO_DEVICE : HDI_COPY_TO_HOST, .slots = 1};
    command.copy.src = src->address;
    command.copy.dst = dst->address;
    command.copy.bytes = bytes;
    return hdi_submit(lane, uses, 2, &command, out);
}

static bool checkpoint_is_finished(hd_runtime *rt, hdi_point point)
{
    return point.position == 0 || hdi_point_done(rt, point);
}

/* Notes whether a finished save into copy `i` succeeded. The lock is held. */
static void checkpoint_settle(struct hdi_checkpoint *checkpoint, hd_runtime *rt, int i)
{
    hdi_failure failure;
    hdi_point point = checkpoint->saved[i];
    if (point.position && !checkpoint->good[i] && hdi_point_done(rt, point)) {
        bool failed = hdi_failure_find(rt, point.lane, point.position, &failure);
        if (failed && failure.driver_code == HDI_FAILURE_FORGOTTEN) { /* the record still knows */
            struct hd_buffer *copy = checkpoint->copy[i];
            failed = (hdi_buffer_state(copy, 0, copy->bytes) & HDI_USES_FAILED) != 0;
        }
        checkpoint->good[i] = !failed;
    }
}

/* The copy of the last save that succeeded; NULL: no save succeeded. No thread may submit a save
 * during this call. */
static struct hd_buffer *checkpoint_content(struct hd_buffer *b)
{
    struct hdi_checkpoint *checkpoint = checkpoint_of(b);
    hdi_mutex_lock(&checkpoint->lock);
    int newest = checkpoint->newest;
    checkpoint_settle(checkpoint, b->runtime, newest);
    int chosen = checkpoint->good[newest] ? newest : 1 - newest;
    struct hd_buffer *copy = checkpoint->good[chosen] ? checkpoint->copy[chosen] : NULL;
    hdi_mutex_unlock(&checkpoint->lock);
    return copy;
}

/* Submits a save, unless an earlier save must finish first. *wait: that earlier save; position 0:
 * the save was submitted. */
static hd_status checkpoint_save(struct hd_buffer *b, hdi_point *wait, hd_ticket *out)
{
    struct hdi_checkpoint *checkpoint = checkpoint_of(b);
    hd_runtime *rt = b->runtime;
    hd_status status = HD_OK;
    hdi_mutex_lock(&checkpoint->lock);
    int newest = checkpoint->newest;
    *wait = checkpoint_is_finished(rt, checkpoint->saved[newest]) ? (hdi_point){0, 0} : checkpoint->saved[newest];
    if (!wait->position) {
        checkpoint_settle(checkpoint, rt, newest);
        int target = checkpoint->good[newest] ? 1 - newest : newest;
        hd_ticket ticket = {NULL, 0};
        status =
            checkpoint_copy_all(b->runtime->devices[b->owner]->lane_out, checkpoint->copy[target], b, false, &ticket);
        if (!status) {
            checkpoint->good[target] = false;
            checkpoint->saved[target] = hdi_ticket_point(ticket);
            checkpoint->newest = target;
            *out = ticket;
        }
    }
    hdi_mutex_unlock(&checkpoint->lock);
    return status;
}

/* Submits a save once the previous save is finished. */
static hd_status checkpoint_save_in_turn(struct hd_buffer *b, hd_ticket *out)
{
    int64_t deadline = hdi_option_deadline(b->runtime->options.transfer_timeout);
    hdi_point wait;
    hd_status status;
    while (!(status = checkpoint_save(b, &wait, out)) && wait.position) {
        if (!hdi_wait_position(b->runtime, wait.lane, wait.position, deadline)) {
            return hdi_not_done(b->runtime, wait.lane, wait.position,
                                "the save before this one is not finished (option transfer_timeout)");
        }
    }
    return status;
}

static const hdi_buffer_ops checkpoint_ops = {
    .create = checkpoint_make,
    .release = checkpoint_release,
    .forget = checkpoint_forget,
    .content = checkpoint_content,
};

static hd_status checkpoint_create(hd_runtime *rt)
{
    hdi_buffer_of(rt)->kept = &checkpoint_ops;
    return HD_OK;
}

const hdi_lifetime hdi_checkpoint_lifetime = {.create = checkpoint_create};

hd_status hd_buffer_save(hd_buffer *handle, hd_ticket *out)
{
    HDI_INSIDE(hdi_buffer_runtime(handle));
    struct hd_buffer *b = NULL;
    hd_status status = hdi_buffer_check(handle, 0, 0, &b);
    if (!status && b->kind != &checkpoint_ops) {
        if (hdi_buffer_is_gone(b, handle)) {
            return hdi_buffer_refused(handle);
        }
        status =
            hdi_fail(HD_ERROR_ARGUMENT, "the buffer keeps no copy: allocate it by hd_alloc_with and HD_ALLOC_KEEP");
    }
    if (status) {
        return status;
    }
    if (!hdi_hold_begin(b, hdi_self_word(handle))) {
        return hdi_buffer_refused(handle);
    }
    hd_ticket ticket = {NULL, 0};
    status = checkpoint_save_in_turn(b, &ticket);
    hdi_hold_end(b);
    if (!status && out) {
        *out = ticket;
    }
    return status;
}

/* ---- restoring ---- */

/* Copies the checkpoint into fresh memory. Until the copy is done, the buffer counts as lost, and
 * hd_free waits. Another thread may still try to submit an operation that it checked before the
 * loss. The submission fails, since it finds under the order lock that `losses` changed. */
static hd_status checkpoint_restore(hd_lane *lane, struct hd_buffer *b, struct hd_buffer *content)
{
    hd_runtime *rt = b->runtime;
    struct hd_buffer fresh = {.runtime = rt};
    hd_status status = hdi_buffer_place(&fresh, lane, b->bytes);
    if (status) {
        return status;
    }
    hdi_buffer_uses_lock(b);
    hdi_uses_release(&b->uses);
    b->uses = fresh.uses;
    b->address = fresh.address;
    b->block = fresh.block;
    b->item = fresh.item;
    atomic_store_explicit(&b->losses, hdi_buffer_losses(&fresh), memory_order_release);
    hdi_buffer_uses_unlock(b);
    hd_ticket ticket = {NULL, 0};
    status = checkpoint_copy_all(lane, b, content, true, &ticket);
    if (!status) {
        hdi_point saved = hdi_ticket_point(ticket);
        int64_t deadline = hdi_option_deadline(rt->options.transfer_timeout);
        status = hdi_wait_position(rt, saved.lane, saved.position, deadline)
                     ? hdi_position_status(rt, saved.lane, saved.position)
                     : hdi_fail(HD_ERROR_TIMEOUT, "a checkpointed buffer is not restored yet (option "
                                                  "transfer_timeout)");
    }
    if (!status) {
        hdi_buffer_make_live(b);
    }
    return status;
}

/* Takes a lane without unfinished work. A copy lane may contain work from before the loss that
 * still waits for an action of the program. *own: the lane was made for this call, and the caller
 * destroys it. */
static hd_status checkpoint_take_lane(hdi_device *device, hd_lane **out, bool *own)
{
    hd_lane *lane = device->lane_in;
    *out = lane;
    *own = !hdi_point_done(device->runtime, (hdi_point){lane->global, hdi_lane_submitted(device, lane->number)});
    hd_status status = *own ? hdi_lane_make(device, false, false, out) : HD_OK;
    *own &= !status;
    return status;
}

static hd_status checkpoint_restore_all(hd_runtime *rt, hdi_device *device)
{
    hd_lane *lane = NULL;
    bool own = false;
    hd_status status = HD_OK;
    for (struct hd_buffer *b = NULL; !status && (b = hdi_buffers_next_to_restore(rt, device->index, b)) != NULL;) {
        struct hd_buffer *content = b->kind->content(b);
        status = content && !lane ? checkpoint_take_lane(device, &lane, &own) : HD_OK;
        status = content && !status ? checkpoint_restore(lane, b, content) : status;
        hdi_buffers_restored(rt, b);
    }
    if (own && lane) {
        hdi_attempt attempt;
        hdi_attempt_begin(&attempt);
        hd_lane_destroy(hdi_lane_handle(lane));
        hdi_attempt_end(&attempt);
    }
    return status;
}

hd_status hdi_buffers_restore(hd_runtime *rt, hdi_device *device)
{
    /* this thread must not run the reclaim callback: an hd_free in the callback could wait for the
     * restart that this thread runs */
    hdi_reclaim_forbid(true);
    hd_status status = checkpoint_restore_all(rt, device);
    hdi_reclaim_forbid(false);
    return status;
}
