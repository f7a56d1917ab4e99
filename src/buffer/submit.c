/* submit.c - the path of every operation: order, command, ring.
 *
 * 1. take the order locks that the operation needs
 * 2. collect the operation's waits: waits for earlier uses of its bytes in other lanes, except uses
 *    that are done or that this lane already waited for
 * 3. write the waits and the command into the ring, note the uses, publish `head`
 *
 * If a single check of the buffers' use records shows that the operation waits for nothing, the
 * operation takes the fast path (submit_fast.h). Every other operation takes the slow path
 * (submit_slow.c).
 *
 * Threads: any.
 * Locks: order locks by rising number. A submission holds all its locks until the operation is
 * published. So the order of two operations is the same in all buffers that both use.
 * Blocking: only on the slow path.
 * Always: changes start only after all steps that can fail.
 */
#include "base/error.h"
#include "buffer/kind.h"
#include "buffer/submit_fast.h"
#include "engine/engine.h"

/* All `hd_buffer.locks` of the operation's buffers, and the order lock of the lane's device. */
static inline uint64_t submit_collect_locks(const hd_lane *lane, const hdi_use *uses, size_t n_uses)
{
    uint64_t locks = (uint64_t)1 << lane->device->index;
    for (size_t i = 0; i < n_uses; i++) {
        locks |= uses[i].buffer->locks;
    }
    return locks;
}

static inline __attribute__((always_inline)) hd_status submit_under_locks(hd_lane *lane, const hdi_use *uses,
                                                                          size_t n_uses, const hdi_command *command,
                                                                          hdi_linked link, uint64_t locks,
                                                                          hd_ticket *out)
{
    hdi_device *device = lane->device;
    if (__builtin_expect(command->slots > lane->mask / 2, 0)) {
        return hdi_fail(HD_ERROR_LIMIT, "the arguments need %u slots of the lane's %u (option lane_slots)",
                        command->slots, (unsigned)lane->mask + 1);
    }
    hdi_submit_lock(device, locks);
    /* The slow path decides which work goes to a device that was given up. */
    if (__builtin_expect(hdi_device_given_up(device), 0) || link.after.position || link.ours ||
        (link.same && (link.same->kernel || !hdi_lane_is_same(lane, link.same))) ||
        __builtin_expect(!hdi_submit_alone(lane, uses, n_uses, command, false), 0)) {
        return hdi_submit_slow(lane, uses, n_uses, command, link, locks, out);
    }
    hdi_submit_publish(lane, uses, n_uses, command, locks, hdi_linked_quiet(&link), out);
    return HD_OK;
}

void hdi_submit_publish_recorded(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                                 uint64_t locks, bool *quiet, hd_ticket *out)
{
    int64_t now = hdi_record_now(&lane->runtime->recorder);
    hdi_submit_publish_at(lane, uses, n_uses, command, locks, quiet, now, out);
}

hd_status hdi_submit_launch_recorded(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                                     const hdi_same *same, uint64_t locks, hd_ticket *out)
{
    int64_t now = hdi_record_now(&lane->runtime->recorder);
    return hdi_submit_launch_at(lane, uses, n_uses, command, same, locks, now, out);
}

static hd_status __attribute__((noinline)) submit_by_kind(hd_lane *lane, const hdi_use *uses, size_t n_uses,
                                                          const hdi_command *command, hdi_linked link, hd_ticket *out)
{
    for (size_t i = 0; i < n_uses; i++) {
        const hdi_buffer_ops *kind = uses[i].buffer->kind;
        if (kind && kind->submit) {
            return kind->submit(lane, uses, n_uses, command, link, out);
        }
    }
    /* No buffer is of a kind with `submit`. There are two possible reasons. The buffer was freed
     * after its handle was checked: the submission will notice this. Or the structure only covers
     * the memory of a buffer, and has no kind (guard.c). */
    return hdi_submit_as_is(lane, uses, n_uses, command, link, out);
}

hd_status hdi_submit(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command, hd_ticket *out)
{
    uint64_t locks = submit_collect_locks(lane, uses, n_uses);
    const hdi_linked none = {.ours = 0};
    if (__builtin_expect((locks & HDI_KIND_BIT) != 0, 0)) {
        return submit_by_kind(lane, uses, n_uses, command, none, out);
    }
    return submit_under_locks(lane, uses, n_uses, command, none, locks, out);
}

/* Waits for a submitted launch if the option launch_wait is on. With this option, no launch takes
 * the fast path. */
static hd_status submit_await_launch(hd_lane *lane, const hdi_command *command, hd_status status, hd_ticket ticket,
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

hd_status hdi_launch_slow(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                          const hdi_same *same, uint64_t locks, bool locked, hd_ticket *out)
{
    const hdi_linked link = {.same = same};
    hd_ticket ticket = {NULL, 0};
    hd_status status = locked ? hdi_submit_slow(lane, uses, n_uses, command, link, locks, &ticket)
                              : hdi_submit_linked(lane, uses, n_uses, command, link, &ticket);
    if (status == HD_ERROR_NOT_FOUND) {
        status = hdi_buffer_of(lane->runtime)->on_changed(lane, uses, n_uses, command, same, &ticket);
    }
    return submit_await_launch(lane, command, status, ticket, out);
}

hd_status hdi_submit_linked(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                            hdi_linked link, hd_ticket *out)
{
    uint64_t locks = submit_collect_locks(lane, uses, n_uses);
    return locks & HDI_KIND_BIT ? submit_by_kind(lane, uses, n_uses, command, link, out)
                                : submit_under_locks(lane, uses, n_uses, command, link, locks, out);
}

/* Submits an operation that may be withdrawn. The slow path keeps the segments that the operation's
 * uses displace (undo.h). */
static __attribute__((noinline)) hd_status submit_to_undo(hd_lane *lane, const hdi_use *uses, size_t n_uses,
                                                          const hdi_command *command, hdi_linked link, hd_ticket *out)
{
    uint64_t locks = submit_collect_locks(lane, uses, n_uses);
    hdi_submit_lock(lane->device, locks);
    return hdi_submit_slow(lane, uses, n_uses, command, link, locks, out);
}

hd_status hdi_submit_claim(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                           hdi_linked link, hd_ticket *out)
{
    uint64_t locks = submit_collect_locks(lane, uses, n_uses);
    return locks & HDI_KIND_BIT     ? submit_by_kind(lane, uses, n_uses, command, link, out)
           : hdi_linked_undo(&link) ? submit_to_undo(lane, uses, n_uses, command, link, out)
                                    : submit_under_locks(lane, uses, n_uses, command, link, locks, out);
}

/* Takes all steps of a submission that come before its first change. */
static hd_status submit_probe_slow(hd_lane *lane, const hdi_use *uses, size_t n_uses, hdi_linked link)
{
    uint64_t locks = submit_collect_locks(lane, uses, n_uses);
    hdi_submit_lock(lane->device, locks);
    return hdi_submit_slow(lane, uses, n_uses, NULL, link, locks, NULL);
}

hd_status hdi_submit_as_is(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                           hdi_linked link, hd_ticket *out)
{
    if (hdi_linked_undo(&link)) {
        return submit_to_undo(lane, uses, n_uses, command, link, out);
    }
    return command
               ? submit_under_locks(lane, uses, n_uses, command, link, submit_collect_locks(lane, uses, n_uses), out)
               : submit_probe_slow(lane, uses, n_uses, link);
}

hd_status hdi_submit_probe(hd_lane *lane, const hdi_use *uses, size_t n_uses, hdi_probe *probe)
{
    bool of_kind = (submit_collect_locks(lane, uses, n_uses) & HDI_KIND_BIT) != 0;
    const hdi_linked link = {.parked = probe};
    probe->root = (hdi_point){0, 0};
    probe->covered = probe->n_ends;
    hd_status status =
        of_kind ? submit_by_kind(lane, uses, n_uses, NULL, link, NULL) : submit_probe_slow(lane, uses, n_uses, link);
    return status == HD_ERROR_NOT_FOUND ? HD_OK : status;
}
