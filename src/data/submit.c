/* submit.c - the path that every operation takes: order, command, ring.
 *
 *   1. take the order locks that the operation needs
 *   2. gather what has to be waited for: earlier uses of the same bytes in other lanes that are not done and
 *      that this lane has not waited for before
 *   3. write the waits and the command into the ring, note the uses, publish `head`
 *
 * The usual operation has nothing to wait for, which one look at its buffers' records shows; it is done here. Everything else is in
 * submit_care.c.
 *
 * Threads: any. Locks: order locks by rising number; all are held until the operation is published, so that two operations that
 * share several buffers are ordered the same way at all of them.
 * Always: nothing is changed before everything that can fail has succeeded.
 */
#include "data/submit_care.h"

#include "base/error.h"
#include "data/unified.h"
#include "engine/engine.h"

/* Whether nothing that is known of the lane's failures keeps operations from the usual way. One that does not keep its failures may see many, and
 * then makes room for them in the careful way. */
static inline bool failures_are_settled(const hd_lane *lane)
{
    uint64_t changes = atomic_load_explicit(&lane->shared->failure_changes, memory_order_acquire);
    return changes == lane->failures_known && (lane->keeps_failure || changes == 0 || !hdi_failures_are_many(lane));
}

/* The usual operation: it uses whole buffers that only this lane has used since they were settled, so there is nothing to wait for and
 * nothing that could have failed unseen; and the ring has room. Then this does all that submit_with_care would do. `keeps`: the lane is known to
 * keep its failures; else it may be one where each result that is read has to be waited for. */
static inline __attribute__((always_inline)) bool submit_alone(hd_lane *lane, const hdi_use *uses, size_t n_uses,
                                                               const hdi_command *command, bool keeps)
{
    bool alone = keeps ? lane->keeps_failure & (atomic_load_explicit(&lane->shared->failure_changes,
                                                                     memory_order_acquire) == lane->failures_known)
                       : failures_are_settled(lane);
    keeps = keeps || lane->keeps_failure;
    for (size_t i = 0; i < n_uses; i++) {
        const hdi_uses *u = &uses[i].buffer->uses;
        alone &= uses[i].whole & hdi_use_is_same(&uses[i]) & (hdi_buffer_losses(uses[i].buffer) == uses[i].losses) &&
                 hdi_uses_only_in(u, lane->global, lane->failed_to) &&
                 (keeps || !uses[i].read || u->whole.writer.position == 0);
    }
    if (!alone || lane->head + 2 * (uint64_t)command->slots - lane->done_seen > lane->mask + 1) {
        return false;
    }
    uint64_t gap;
    hdi_submit_slots(lane, 0, command->slots, &gap);
    hdi_submit_write(lane, command, gap);
    hdi_mark mark = {lane->global, lane->head};
    for (size_t i = 0; i < n_uses; i++) {
        hdi_uses_commit_only_in(&uses[i].buffer->uses, uses[i].write, mark);
    }
    return true;
}

/* What the locks and buffers of an operation say in `hd_buffer.locks`, together. */
static inline uint64_t gather_locks(const hd_lane *lane, const hdi_use *uses, size_t n_uses)
{
    uint64_t locks = (uint64_t)1 << lane->device->index;
    for (size_t i = 0; i < n_uses; i++) {
        locks |= uses[i].buffer->locks;
    }
    return locks;
}

static inline __attribute__((always_inline)) hd_status submit(hd_lane *lane, const hdi_use *uses, size_t n_uses,
                                                              const hdi_command *command, hdi_among among,
                                                              uint64_t locks, const char *who, hd_ticket *out)
{
    hdi_device *device = lane->device;
    hd_runtime *rt = device->runtime;
    if (__builtin_expect(command->slots > lane->mask / 2, 0)) {
        return hdi_fail(HD_ERROR_LIMIT, "%s: the arguments need %u slots of the lane's %u (option lane_slots)", who,
                        command->slots, (unsigned)lane->mask + 1);
    }
    hdi_submit_lock(rt, locks);
    if (__builtin_expect(hdi_device_lost(device) != 0, 0) || among.after.position || among.ours ||
        (among.same && (among.same->kernel || !hdi_lane_is_same(lane, among.same))) ||
        __builtin_expect(!submit_alone(lane, uses, n_uses, command, false), 0)) {
        return hdi_submit_with_care(lane, uses, n_uses, command, among, locks, who, out);
    }
    hdi_submit_publish(lane, uses, n_uses, locks, out);
    return HD_OK;
}

hd_status hdi_submit(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command, const char *who,
                     hd_ticket *out)
{
    uint64_t locks = gather_locks(lane, uses, n_uses);
    const hdi_among none = {.ours = 0};
    if (__builtin_expect((locks & HDI_UNIFIED_BIT) != 0, 0)) {
        return hdi_unified_submit(lane, uses, n_uses, command, none, who, out);
    }
    return submit(lane, uses, n_uses, command, none, locks, who, out);
}

/* With the option launch_wait no launch is usual, and each is waited for. */
static hd_status await_launch(hd_lane *lane, const hdi_command *command, hd_status status, hd_ticket ticket,
                              hd_ticket *out)
{
    hd_runtime *rt = lane->device->runtime;
    if (!status && rt->on_launched) {
        status = rt->on_launched(lane, command, ticket.sequence);
    }
    if (!status && out) {
        *out = ticket;
    }
    return status;
}

/* Launches that are not usual, before and after the locks were taken. */
static hd_status __attribute__((noinline))
launch_among(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command, const hdi_same *same,
             hd_ticket *out)
{
    const hdi_among among = {.same = same};
    hd_ticket ticket = {NULL, 0};
    hd_status status = hdi_submit_among(lane, uses, n_uses, command, among, "hd_launch", &ticket);
    return await_launch(lane, command, status, ticket, out);
}

static hd_status __attribute__((noinline))
launch_with_care(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command, const hdi_same *same,
                 uint64_t locks, hd_ticket *out)
{
    const hdi_among among = {.same = same};
    hd_ticket ticket = {NULL, 0};
    hd_status status = hdi_submit_with_care(lane, uses, n_uses, command, among, locks, "hd_launch", &ticket);
    return await_launch(lane, command, status, ticket, out);
}

hd_status hdi_submit_launch(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                            const hdi_same *same, hd_ticket *out)
{
    uint64_t locks = gather_locks(lane, uses, n_uses);
    if (__builtin_expect(((locks & HDI_UNIFIED_BIT) != 0) | (command->slots > lane->mask / 2), 0)) {
        return launch_among(lane, uses, n_uses, command, same, out);
    }
    hdi_submit_lock(lane->device->runtime, locks);
    if (__builtin_expect(
            !hdi_kernel_is_same(same) || !hdi_lane_is_same(lane, same) || hdi_device_lost(lane->device) != 0, 0) ||
        __builtin_expect(!submit_alone(lane, uses, n_uses, command, true), 0)) {
        return launch_with_care(lane, uses, n_uses, command, same, locks, out);
    }
    hdi_submit_publish(lane, uses, n_uses, locks, out);
    return HD_OK;
}

hd_status hdi_submit_among(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                           hdi_among among, const char *who, hd_ticket *out)
{
    uint64_t locks = gather_locks(lane, uses, n_uses);
    return locks & HDI_UNIFIED_BIT ? hdi_unified_submit(lane, uses, n_uses, command, among, who, out)
                                   : submit(lane, uses, n_uses, command, among, locks, who, out);
}

hd_status hdi_submit_as_is(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                           hdi_among among, const char *who, hd_ticket *out)
{
    return submit(lane, uses, n_uses, command, among, gather_locks(lane, uses, n_uses), who, out);
}
