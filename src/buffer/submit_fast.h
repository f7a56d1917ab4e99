/* submit_fast.h - the fast path of an operation, inlined where it is taken.
 *
 * Threads: the one that submits.
 * Locks: the order locks of the operation.
 * Blocking: never; an operation that has to wait takes the slow path.
 * Always: nothing is changed before it is certain that the operation can take this path.
 */
#ifndef HDI_DATA_SUBMIT_USUAL_H
#define HDI_DATA_SUBMIT_USUAL_H

#include "buffer/submit_slow.h"

/* Whether the failures of the lane allow the fast path. A lane whose failures are not sticky may have many. Then the slow path makes room for
 * more. */
static inline bool hdi_failures_are_settled(const hd_lane *lane)
{
    uint64_t changes = atomic_load_explicit(&lane->shared->failure_changes, memory_order_acquire);
    return changes == lane->failures_known && (lane->sticky_failure || changes == 0 || !hdi_failures_are_many(lane));
}

/* Submits an operation on whole buffers that only this lane has used since they were settled. So there is nothing to wait for, and no failure
 * that was not seen. Else, or where the ring has no room, it returns false. It does all that submit_slow would do.
 * `keeps`: failures of the lane have to be sticky. Without sticky failures each result that is read has to be waited for. */
static inline __attribute__((always_inline)) bool hdi_submit_alone(hd_lane *lane, const hdi_use *uses, size_t n_uses,
                                                                   const hdi_command *command, bool keeps)
{
    uint32_t global = lane->global;
    uint64_t failed_to = lane->failed_to;
    bool settled = keeps ? lane->sticky_failure && atomic_load_explicit(&lane->shared->failure_changes,
                                                                        memory_order_acquire) == lane->failures_known
                         : hdi_failures_are_settled(lane);
    if (!settled) {
        return false;
    }
    keeps = keeps || lane->sticky_failure;
    for (size_t i = 0; i < n_uses; i++) {
        const hdi_use *use = &uses[i];
        const struct hd_buffer *b = use->buffer;
        if (!use->whole || !hdi_use_is_same(use) || hdi_buffer_losses(b) != use->losses ||
            !hdi_uses_only_in(&b->uses, global, failed_to) ||
            (!keeps && use->read && b->uses.whole.writer.position != 0)) {
            return false;
        }
    }
    if (lane->head + 2 * (uint64_t)command->slots - lane->done_seen > lane->mask + 1) {
        return false;
    }
    uint64_t gap;
    hdi_submit_slots(lane, 0, command->slots, &gap);
    hdi_submit_write(lane, command, gap);
    hdi_point point = {lane->global, lane->head};
    for (size_t i = 0; i < n_uses; i++) {
        hdi_uses_commit_only_in(&uses[i].buffer->uses, uses[i].write, point);
    }
    return true;
}

/* A launch that cannot take the fast path. `locked`: this was found with the locks held, which are released here. Blocking, errors: as
 * hdi_submit_launch. */
hd_status hdi_launch_slow(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                          const hdi_same *same, uint64_t locks, bool locked, hd_ticket *out);

/* hdi_submit for hd_launch: the program's kernel in the program's lane. `locks`: `hd_buffer.locks` of its buffers, together. Errors: as
 * hdi_submit, and HANDLE (unloaded or destroyed meanwhile). */
static inline __attribute__((always_inline)) hd_status hdi_submit_launch(hd_lane *lane, const hdi_use *uses,
                                                                         size_t n_uses, const hdi_command *command,
                                                                         const hdi_same *same, uint64_t locks,
                                                                         hd_ticket *out)
{
    hdi_device *device = lane->device;
    locks |= (uint64_t)1 << device->index;
    if (__builtin_expect(((locks & HDI_KIND_BIT) != 0) | (command->slots > lane->mask / 2), 0)) {
        return hdi_launch_slow(lane, uses, n_uses, command, same, locks, false, out);
    }
    hdi_submit_lock(device, locks);
    if (__builtin_expect(!hdi_kernel_is_same(same) || !hdi_lane_is_same(lane, same) || hdi_device_lost(device), 0) ||
        __builtin_expect(!hdi_submit_alone(lane, uses, n_uses, command, true), 0)) {
        return hdi_launch_slow(lane, uses, n_uses, command, same, locks, true, out);
    }
    hdi_submit_publish(lane, uses, n_uses, locks, out);
    return HD_OK;
}

#endif
