/* submit_fast.h - the fast path of an operation, inlined into its callers, and the steps that both
 * paths share.
 *
 * Threads: the thread that submits.
 * Locks: the order locks of the operation, as each function states.
 * Blocking: only hdi_submit_slow and hdi_launch_slow block. An operation that must wait takes the
 * slow path (submit_slow.c).
 * Always: nothing changes before it is certain that the operation can take this path. The engine
 * sees a command only when it is complete.
 */
#ifndef HDI_BUFFER_SUBMIT_FAST_H
#define HDI_BUFFER_SUBMIT_FAST_H

#include <assert.h>
#include <string.h>
#include "base/thread.h"
#include "buffer/recorded.h"
#include "buffer/submit.h"
#include "engine/claims.h"
#include "engine/engine.h"

/* ---- steps of both paths ---- */

#define HDI_PREFETCH_SLOTS 8

/* These two functions take and release order locks, by rising number. Most operations need only the
 * lock of the lane's device. */
static inline void hdi_submit_lock(hdi_device *device, uint64_t locks)
{
    locks &= HDI_ORDER_BITS;
    if (__builtin_expect(locks == (uint64_t)1 << device->index, 1)) {
        hdi_lock_take(&device->order);
        return;
    }
    for (uint64_t left = locks; left; left &= left - 1) {
        hdi_lock_take(hdi_order_lock(device->runtime, (unsigned)__builtin_ctzll(left)));
    }
}

static inline void hdi_submit_unlock(hdi_device *device, uint64_t locks)
{
    locks &= HDI_ORDER_BITS;
    if (__builtin_expect(locks == (uint64_t)1 << device->index, 1)) {
        hdi_lock_release(&device->order);
        return;
    }
    for (uint64_t left = locks; left; left &= left - 1) {
        hdi_lock_release(hdi_order_lock(device->runtime, (unsigned)__builtin_ctzll(left)));
    }
}

/* True if the buffer is still the one whose handle was checked: another thread may have freed it
 * since. The buffer's order lock is held. Seq_cst, see hd_free. */
static inline bool hdi_use_is_same(const hdi_use *use)
{
    return (use->word == 0) | (atomic_load_explicit(&use->buffer->self.word, memory_order_seq_cst) == use->word);
}

/* True if the kernel's handle is still good. hd_module_unload makes the handle stale, and then
 * waits for threads that hold the lock. */
static inline bool hdi_kernel_is_same(const hdi_same *same)
{
    return atomic_load_explicit(&same->kernel->word, memory_order_acquire) == same->kernel_word;
}

/* True if the kernel's handle is still good, but the kernel now needs more uses
 * (hdi_buffer_part.on_changed). */
static inline bool hdi_kernel_is_changed(const hdi_same *same)
{
    uint64_t word = atomic_load_explicit(&same->kernel->word, memory_order_acquire);
    return word != same->kernel_word && hdi_handle_word_is_good(word, same->kernel_word);
}

/* True if the lane's handle is still good. hd_lane_destroy makes it stale under the order lock.
 * Afterwards another owner may get the lane. */
static inline bool hdi_lane_is_same(const hd_lane *lane, const hdi_same *same)
{
    return atomic_load_explicit(&lane->handle.word, memory_order_relaxed) == same->lane;
}

/* The number of slots that the waits and the command need from `head` on. Includes the gap at the
 * ring's end if the command does not fit in front of it. The lane's lock is held. */
static inline uint64_t hdi_submit_slots(const hd_lane *lane, uint32_t wait_slots, uint32_t slots, uint64_t *gap)
{
    uint64_t at = (lane->head + wait_slots) & lane->mask;
    *gap = at + slots > lane->mask + 1 ? lane->mask + 1 - at : 0;
    return wait_slots + *gap + slots;
}

/* Puts the command into the ring. The caller checked that it fits. The lane's lock is held. */
static inline void hdi_submit_write(hd_lane *lane, const hdi_command *command, uint64_t gap)
{
    if (gap) {
        hdi_command *skip = &lane->ring[lane->head & lane->mask];
        skip->op = HDI_OP_SKIP;
        skip->slots = (uint8_t)gap;
        lane->head += gap;
    }
    hdi_command *c = &lane->ring[lane->head & lane->mask];
    if (command->slots == 1) {
        *c = *command;
    } else {
        memcpy(c, command, (size_t)command->slots * HDI_SLOT_BYTES);
    }
    lane->head += command->slots;
    /* The engine read the next slots when the ring last contained them. To fetch their cache lines
     * now saves the next submission a wait. */
    hdi_prefetch_to_write(&lane->ring[(lane->head + HDI_PREFETCH_SLOTS) & lane->mask]);
}

#ifdef HDI_DEBUG
/* Checks the invariants of a lane and of a submission's records, just before it is published. Locks
 * held. */
static inline void hdi_submit_check(hd_lane *lane, const hdi_use *uses, size_t n_uses)
{
    uint64_t done = atomic_load_explicit(&lane->shared->done, memory_order_acquire);
    uint64_t issued = atomic_load_explicit(&lane->shared->issued, memory_order_acquire);
    /* A worker process may report any position; ticket.c checks the positions. */
    assert(lane->device->runtime->is_process || (done <= issued && issued <= lane->head));
    assert(lane->done_seen <= lane->head && lane->head - lane->done_seen <= lane->mask + 1);
    for (size_t i = 0; i < n_uses; i++) {
        assert(uses[i].low < uses[i].high && uses[i].high <= uses[i].buffer->bytes);
        assert(hdi_uses_check(&uses[i].buffer->uses, uses[i].buffer->bytes));
    }
}
#endif

/* Ends the program's direct access to pinned memory, so that hd_element checks the record again.
 * Locks held. */
static inline void hdi_submit_end_access(const hdi_use *uses, size_t n_uses)
{
    for (size_t i = 0; i < n_uses; i++) {
        struct hd_buffer *b = uses[i].buffer;
        if (b->locks & HDI_DIRECT_BIT) {
            atomic_store_explicit(&b->writable, 0, memory_order_relaxed);
            if (uses[i].write) {
                atomic_store_explicit(&b->readable, 0, memory_order_relaxed);
            }
        }
    }
}

/* hdi_submit_publish with the time of the submission, for a trace; 0: no trace. */
static inline __attribute__((always_inline)) void hdi_submit_publish_at(hd_lane *lane, const hdi_use *uses,
                                                                        size_t n_uses, const hdi_command *command,
                                                                        uint64_t locks, bool *quiet, int64_t recorded,
                                                                        hd_ticket *out)
{
    hdi_device *device = lane->device;
    hd_runtime *rt = device->runtime;
#ifdef HDI_DEBUG
    hdi_submit_check(lane, uses, n_uses);
#endif
    if (__builtin_expect((locks & HDI_DIRECT_BIT) != 0, 0)) {
        hdi_submit_end_access(uses, n_uses);
    }
    uint64_t position = lane->head;
    hdi_submitted submitted;
    if (__builtin_expect(recorded != 0, 0)) {
        hdi_submitted_note(lane, recorded, &submitted);
    }
    /* The position is stored before the engine can run any of the commands. Pairs with the acquire
     * load in hdi_lane_submitted. */
    atomic_store_explicit(&lane->submitted, position, memory_order_release);
    hdi_engine_shared *engine = device->channel.engine;
    if (!quiet) {
        hdi_engine_publish(engine, &lane->shared->head, position);
    }
    hdi_submit_unlock(device, locks);
    if (!quiet) {
        hdi_engine_notify(engine, lane->number);
    }
    if (out) {
        out->lane = hdi_lane_handle(lane);
        out->sequence = position;
    }
    if (__builtin_expect(recorded != 0, 0)) {
        hdi_buffer_record_submission(lane, uses, n_uses, command, &submitted);
    }
    if (quiet) {
        *quiet = true;
    } else if (__builtin_expect(rt->is_inline, 0)) {
        hdi_engine_run_inline(device);
    }
}

/* hdi_submit_publish while a trace is written. */
void hdi_submit_publish_recorded(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                                 uint64_t locks, bool *quiet, hd_ticket *out);

/* Publishes the commands in the ring, and so hands them to the engine. `command`: the operation
 * among them. Releases the locks. `quiet`: as in hdi_link_of_claim. */
static inline __attribute__((always_inline)) void hdi_submit_publish(hd_lane *lane, const hdi_use *uses, size_t n_uses,
                                                                     const hdi_command *command, uint64_t locks,
                                                                     bool *quiet, hd_ticket *out)
{
    /* read the runtime through the device, since the code below loads the device anyway */
    if (hdi_records(&lane->device->runtime->recorder)) {
        hdi_submit_publish_recorded(lane, uses, n_uses, command, locks, quiet, out);
    } else {
        hdi_submit_publish_at(lane, uses, n_uses, command, locks, quiet, 0, out);
    }
}

/* Submits an operation that cannot take the fast path. Releases the locks that the caller holds. On
 * failure nothing was submitted. Blocking, errors: as hdi_submit. */
hd_status hdi_submit_slow(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                          hdi_linked link, uint64_t locks, hd_ticket *out);

/* ---- the fast path ---- */

/* True if the failures of the lane allow the fast path. A lane without sticky failures may record
 * many failures, and the slow path makes room for more of them. */
static inline bool hdi_failures_are_settled(const hd_lane *lane)
{
    uint64_t changes = atomic_load_explicit(&lane->shared->failure_changes, memory_order_acquire);
    return changes == lane->failures_known && (lane->sticky_failure || changes == 0 || !hdi_failures_are_many(lane));
}

/* True if the result at this position needs no wait: the position is 0, or belongs to a claim that
 * succeeded. */
static inline bool hdi_result_is_settled(const hd_lane *lane, uint64_t position)
{
    return position == 0 || hdi_claim_is_over(lane, position);
}

/* Submits an operation on whole buffers that only this lane used since they were settled. Such an
 * operation waits for nothing, and depends on no failed operation. False: the operation must take
 * the slow path, for example since other lanes used the buffers, or the ring is full. On success
 * this function does everything that the slow path would do. `keeps`: failures of the lane are
 * sticky. Otherwise the operation would need a wait for each unfinished result that it reads. */
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
            (!keeps && use->read && !hdi_result_is_settled(lane, b->uses.whole.writer.position))) {
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

/* Submits a launch that cannot take the fast path. `locked`: the locks are held, and this function
 * releases them.
 * Blocking, errors: as hdi_submit_launch. */
hd_status hdi_launch_slow(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                          const hdi_same *same, uint64_t locks, bool locked, hd_ticket *out);

/* hdi_submit for hd_launch: a kernel of the program in a lane of the program. `locks`:
 * `hd_buffer.locks` of its buffers, together. `recorded`: as in hdi_submit_publish_at. Errors: as
 * hdi_submit, and HANDLE (unloaded or destroyed during the call). */
static inline __attribute__((always_inline)) hd_status hdi_submit_launch_at(hd_lane *lane, const hdi_use *uses,
                                                                            size_t n_uses, const hdi_command *command,
                                                                            const hdi_same *same, uint64_t locks,
                                                                            int64_t recorded, hd_ticket *out)
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
    hdi_submit_publish_at(lane, uses, n_uses, command, locks, NULL, recorded, out);
    return HD_OK;
}

/* hdi_submit_launch while a trace is written. Reads the clock before it takes the locks, so that
 * other threads do not wait for the clock. */
hd_status hdi_submit_launch_recorded(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                                     const hdi_same *same, uint64_t locks, hd_ticket *out);

static inline __attribute__((always_inline)) hd_status hdi_submit_launch(hd_lane *lane, const hdi_use *uses,
                                                                         size_t n_uses, const hdi_command *command,
                                                                         const hdi_same *same, uint64_t locks,
                                                                         hd_ticket *out)
{
    return hdi_records(&lane->runtime->recorder)
               ? hdi_submit_launch_recorded(lane, uses, n_uses, command, same, locks, out)
               : hdi_submit_launch_at(lane, uses, n_uses, command, same, locks, 0, out);
}

#endif
