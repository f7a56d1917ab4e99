/* ticket.c - waits for positions in lanes, and checks whether reported positions are possible.
 *
 * A worker shares memory with the application, and may write anything there: a kernel on the CPU,
 * or the driver, may use a wrong address. The process may even run a program other than
 * heddle-worker. So this file compares the worker's reports about lanes with the application's own
 * records. After an impossible report, this file gives the device up (hdi_device_give_up). The
 * thread that watches the workers sees this, and kills the worker. Then the device is lost, as
 * after any other end of a worker.
 *
 * Threads: hdi_device_report_can_be runs on the thread that watches the workers, the rest on any.
 * Locks: none.
 * Always:
 * - Only hdi_wait_position and its callers block. hdi_wait_position first spins for the option
 *   spin_us. Then it sleeps on the lane's futex word, or runs the engines itself in the placement
 *   inline.
 * - A worker without fault is never given up, however slow it is: this file loads each count before
 *   the count that limits it. A worker that falsely reports possible positions or failures cannot
 *   be detected.
 */
#include "base/error.h"
#include "base/thread.h"
#include "base/wait.h"
#include "engine/claims.h"
#include "engine/engine.h"

#define DOUBT_SLEEP_NS 1000000
/* The longest sleep in the placement process. After the sleep the thread checks again: perhaps the
 * worker failed to wake this thread, or this thread failed to wake the worker. */
#define LOOK_NS 1000000000
/* If the deadline is this close, the caller only checks the position. So a trace shows no pause for
 * such a call. */
#define LOOK_MOST_NS 1000
/* No living writer takes this long for a record of the log. A log counts as half written only after
 * this time and after UNSETTLED_LOOKS looks. The time alone is not enough, since the application
 * may have been stopped for a while. */
#define UNSETTLED_NS 1000000000
#define UNSETTLED_LOOKS 8

/* ---- reports of a worker process ---- */

/* True if the lane's `done` is no greater than the position up to which the lane was filled. */
static bool ticket_report_can_be(const hdi_device *device, uint32_t number)
{
    uint64_t done = atomic_load_explicit(&device->channel.lanes[number].done, memory_order_acquire);
    return done <= hdi_lane_submitted(device, number);
}

/* True if the application drained the lane of a lost device up to `position`, whatever its channel
 * shows. */
static bool ticket_lane_is_drained_to(const hdi_device *device, uint32_t number, uint64_t position)
{
    /* pairs with the release store in loss_drain_lane */
    return hdi_device_lost(device) && device->lanes[number] &&
           atomic_load_explicit(&device->lanes[number]->done_least, memory_order_acquire) >= position;
}

/* `done`, `issued`, `submitted` in this order: each is never behind the one before it. */
static bool ticket_positions_can_be(hd_lane *lane)
{
    uint64_t least = atomic_load_explicit(&lane->done_least, memory_order_relaxed);
    uint64_t done = atomic_load_explicit(&lane->shared->done, memory_order_acquire);
    uint64_t issued = atomic_load_explicit(&lane->shared->issued, memory_order_acquire);
    uint64_t submitted = atomic_load_explicit(&lane->submitted, memory_order_acquire);
    if (done < least || issued < done || submitted < issued) {
        return false;
    }
    atomic_store_explicit(&lane->done_least, done, memory_order_relaxed);
    return true;
}

/* True if the counts of the lane's log did not go back, and the log was not half written for
 * long. */
static bool ticket_log_can_be(hd_lane *lane, int64_t now)
{
    uint64_t least = atomic_load_explicit(&lane->changes_least, memory_order_relaxed);
    uint64_t changes = atomic_load_explicit(&lane->shared->failure_changes, memory_order_acquire);
    if (changes < least) {
        return false;
    }
    if (changes % 2 == 0 || changes != least) {
        lane->unsettled_since = now;
        lane->unsettled_looks = 0;
    }
    atomic_store_explicit(&lane->changes_least, changes, memory_order_relaxed);
    return ++lane->unsettled_looks < UNSETTLED_LOOKS || now - lane->unsettled_since < UNSETTLED_NS;
}

bool hdi_device_report_can_be(hdi_device *device, int64_t now)
{
    bool can_be = true;
    uint32_t made = atomic_load_explicit(&device->lanes_made, memory_order_acquire);
    for (uint32_t i = 0; i < made; i++) {
        hd_lane *lane = device->lanes[i];
        /* A structure that the lane does not use any more does not count. */
        if ((!ticket_positions_can_be(lane) || !ticket_log_can_be(lane, now)) && !hdi_lane_is_past(lane)) {
            can_be = false;
        }
    }
    return can_be;
}

/* ---- waiting ---- */

static bool ticket_position_is_done(const hdi_lane_shared *shared, uint64_t position)
{
    /* pairs with stream_store_done in progress.c */
    return atomic_load_explicit(&shared->done, memory_order_acquire) >= position;
}

static bool ticket_wait_inline(hd_runtime *rt, const hdi_lane_shared *shared, uint64_t position, int64_t deadline)
{
    int64_t quiet_since = hdi_clock_ns();
    for (;;) {
        bool progress = false;
        for (int i = 0; i < rt->n_devices; i++) {
            progress |= hdi_engine_run_inline(rt->devices[i]);
        }
        if (ticket_position_is_done(shared, position)) {
            return true;
        }
        int64_t now = hdi_clock_ns();
        if (now >= deadline || hdi_is_closing(rt)) {
            return false;
        }
        quiet_since = progress ? now : quiet_since;
        if (now - quiet_since > rt->spin_ns) {
            int64_t sleep_ns = hdi_engine_sleep_after(now - quiet_since);
            hdi_sleep_for(deadline - now < sleep_ns ? deadline - now : sleep_ns);
        } else {
            hdi_spin_turn();
        }
    }
}

static bool ticket_wait_asleep(hd_runtime *rt, hdi_lane_shared *shared, uint64_t position, int64_t deadline)
{
    uint32_t bit = hdi_awaited_bit(position);
    bool in_time = true;
    /* Sequentially consistent with the engine's store of `done` followed by its load of
     * `sleepers`. */
    atomic_fetch_add_explicit(&shared->sleepers, 1, memory_order_seq_cst);
    for (;;) {
        /* `wake` is loaded before the bit is set: a thread that wakes sleepers first clears the
         * bit, and then changes `wake`. */
        uint32_t wake = atomic_load_explicit(&shared->wake, memory_order_acquire);
        atomic_fetch_or_explicit(&shared->awaited, bit, memory_order_seq_cst);
        if (atomic_load_explicit(&shared->done, memory_order_seq_cst) >= position) {
            break;
        }
        if (!in_time || hdi_is_closing(rt)) {
            break;
        }
        in_time = hdi_futex_wait_bits(&shared->wake, wake, bit, deadline);
    }
    atomic_fetch_sub_explicit(&shared->sleepers, 1, memory_order_seq_cst);
    return ticket_position_is_done(shared, position);
}

/* False: the deadline passed. */
static bool ticket_wait_done(hd_runtime *rt, uint32_t lane, uint64_t position, int64_t deadline)
{
    hdi_lane_shared *shared = hdi_lane_shared_of(rt, lane);
    if (ticket_position_is_done(shared, position)) {
        return true;
    }
    hdi_raise(&shared->wanted_host, position);
    if (rt->is_inline) {
        return ticket_wait_inline(rt, shared, position, deadline);
    }
    hdi_engine_hurry(hdi_lane_owner(rt, lane)->channel.engine, lane % HDI_LANES_MAX);
    int64_t start = hdi_clock_ns();
    int64_t spin_end = start + rt->spin_ns < deadline ? start + rt->spin_ns : deadline;
    for (int64_t now = start; now < spin_end; now = hdi_clock_ns()) {
        for (int i = 0; i < 8; i++) {
            if (ticket_position_is_done(shared, position)) {
                return true;
            }
            hdi_spin_turn();
        }
    }
    for (;;) {
        int64_t look = rt->is_process && deadline - LOOK_NS > hdi_clock_ns() ? hdi_clock_ns() + LOOK_NS : deadline;
        if (ticket_wait_asleep(rt, shared, position, look) ||
            (rt->is_process && ticket_lane_is_drained_to(hdi_lane_owner(rt, lane), lane % HDI_LANES_MAX, position))) {
            return true;
        }
        if (look == deadline || hdi_is_closing(rt)) {
            return false;
        }
        hdi_engine_notify(hdi_lane_owner(rt, lane)->channel.engine, lane % HDI_LANES_MAX);
        hdi_engine_ring(hdi_lane_owner(rt, lane)->channel.engine);
    }
}

static bool ticket_wait_position(hd_runtime *rt, uint32_t lane, uint64_t position, int64_t deadline)
{
    hdi_device *device = hdi_lane_owner(rt, lane);
    uint32_t number = lane % HDI_LANES_MAX;
    bool in_time = ticket_wait_done(rt, lane, position, deadline);
    /* While a worker's report is impossible, none of its reports count. The wait goes on until the
     * worker is gone. */
    while (in_time && rt->is_process && !ticket_report_can_be(device, number) &&
           !ticket_lane_is_drained_to(device, number, position)) {
        hdi_device_give_up(device);
        hdi_sleep_for(DOUBT_SLEEP_NS);
        in_time = hdi_clock_ns() < deadline && ticket_wait_done(rt, lane, position, deadline);
    }
    return in_time;
}

/* Waits inside a function of the program that the library calls. */
static bool __attribute__((noinline))
ticket_wait_in_call(hd_runtime *rt, uint32_t lane, uint64_t position, int64_t deadline)
{
    if (hdi_calling_here == HDI_CALLS_LANE || ticket_position_is_done(hdi_lane_shared_of(rt, lane), position)) {
        /* The call cannot wait for the engine, which runs on this very thread. */
        return ticket_position_is_done(hdi_lane_shared_of(rt, lane), position);
    }
    HDI_CALLER_WAITS();
    return ticket_wait_position(rt, lane, position, deadline);
}

bool hdi_wait_position_unrecorded(hd_runtime *rt, uint32_t lane, uint64_t position, int64_t deadline)
{
    return __builtin_expect(hdi_calling_here != HDI_CALLS_NONE, 0) ? ticket_wait_in_call(rt, lane, position, deadline)
                                                                   : ticket_wait_position(rt, lane, position, deadline);
}

static bool ticket_wait_at_leisure(hd_runtime *rt, uint32_t lane, uint64_t position, int64_t deadline)
{
    void (*on_block)(hd_runtime *) = atomic_load_explicit(&rt->on_block, memory_order_relaxed);
    if (on_block && !ticket_position_is_done(hdi_lane_shared_of(rt, lane), position)) {
        int64_t spin_end = hdi_clock_ns() + rt->spin_ns;
        if (hdi_wait_position_unrecorded(rt, lane, position, spin_end < deadline ? spin_end : deadline)) {
            return true;
        }
        if (spin_end < deadline) {
            on_block(rt);
        }
    }
    return hdi_wait_position_unrecorded(rt, lane, position, deadline);
}

/* A wait while a trace is written. */
static __attribute__((noinline)) bool
ticket_wait_recorded(hd_runtime *rt, uint32_t lane, uint64_t position, int64_t deadline,
                     bool (*wait)(hd_runtime *rt, uint32_t lane, uint64_t position, int64_t deadline))
{
    int64_t began = ticket_position_is_done(hdi_lane_shared_of(rt, lane), position) ? 0 : hdi_record_now(&rt->recorder);
    bool in_time = wait(rt, lane, position, deadline);
    hdi_pause_end(&rt->recorder, deadline - began > LOOK_MOST_NS ? began : 0,
                  (hdi_pause){.kind = HDI_RECORD_PAUSE_WAIT,
                              .device = (uint8_t)(lane / HDI_LANES_MAX),
                              .lane = lane,
                              .position = position});
    return in_time;
}

bool hdi_wait_position(hd_runtime *rt, uint32_t lane, uint64_t position, int64_t deadline)
{
    return hdi_records(&rt->recorder) ? ticket_wait_recorded(rt, lane, position, deadline, hdi_wait_position_unrecorded)
                                      : hdi_wait_position_unrecorded(rt, lane, position, deadline);
}

bool hdi_wait_position_at_leisure(hd_runtime *rt, uint32_t lane, uint64_t position, int64_t deadline)
{
    return hdi_records(&rt->recorder) ? ticket_wait_recorded(rt, lane, position, deadline, ticket_wait_at_leisure)
                                      : ticket_wait_at_leisure(rt, lane, position, deadline);
}

/* A program that asks whether work is done waits for it, so the engine publishes the end of the
 * work without delay. The call does not wake the engine, since hd_done makes no system call. */
static __attribute__((noinline)) void ticket_ask(hd_lane *lane, uint64_t position)
{
    hdi_lane_shared *shared = lane->shared;
    if (atomic_load_explicit(&shared->wanted_host, memory_order_relaxed) < position &&
        position <= atomic_load_explicit(&lane->submitted, memory_order_acquire)) {
        hdi_raise(&shared->wanted_host, position);
        hdi_engine_prefer(hdi_lane_owner(lane->runtime, lane->global)->channel.engine, lane->number);
    }
}

bool hd_done(hd_ticket ticket)
{
    HDI_INSIDE_QUERY(hdi_lane_runtime(ticket.lane));
    hd_lane *lane = hdi_lane_any(ticket.lane);
    if (!lane || __builtin_expect(ticket_position_is_done(lane->shared, ticket.sequence), 1)) {
        return true;
    }
    ticket_ask(lane, ticket.sequence);
    return false;
}

hd_status hdi_ticket_refused(hd_ticket ticket)
{
    const hd_lane *lane = hdi_lane_any(ticket.lane);
    return lane ? hdi_fail(HD_ERROR_ARGUMENT, "ticket %llu was never given out by lane %u of device %d",
                           (unsigned long long)ticket.sequence, lane->number, lane->device->index)
                : hdi_fail(HD_ERROR_ARGUMENT, "ticket %llu has no lane; only {NULL, 0} names no work",
                           (unsigned long long)ticket.sequence);
}

/* The part of hd_wait for work that is not done, or that failed. */
static __attribute__((noinline)) hd_status ticket_wait_slow(hd_ticket ticket, int64_t timeout_ns)
{
    HDI_INSIDE_AS(hdi_lane_runtime(ticket.lane), "hd_wait");
    hd_lane *lane = hdi_lane_any(ticket.lane);
    if (!lane && ticket.lane) {
        return hdi_handle_refused(ticket.lane, "ticket", "its runtime was closed");
    }
    if (!lane) {
        return ticket.sequence ? hdi_ticket_refused(ticket) : HD_OK;
    }
    if (ticket.sequence > atomic_load_explicit(&lane->submitted, memory_order_acquire)) {
        return hdi_ticket_refused(ticket);
    }
    hd_runtime *rt = lane->runtime;
    if (!hdi_wait_position_at_leisure(rt, lane->global, ticket.sequence, hdi_limit_deadline(timeout_ns))) {
        if (timeout_ns < HD_FOREVER) {
            return hdi_limit_refused(timeout_ns);
        }
        /* A caller that only checks may do so often, so its message is short. */
        return hdi_not_done(rt, lane->global, timeout_ns ? ticket.sequence : 0,
                            "ticket %llu of lane %u on device %d is not done after %lld ns",
                            (unsigned long long)ticket.sequence, lane->number, lane->device->index,
                            (long long)timeout_ns);
    }
    return hdi_ticket_status(rt, lane->global, ticket.sequence);
}

/* True in the usual case: the position is done, `done` does not exceed the last submitted position,
 * and nothing in the lane ever failed. Loads `done` before the two other words. */
static inline bool ticket_is_done_and_well(hd_ticket ticket)
{
    HDI_INSIDE_QUERY(hdi_lane_runtime(ticket.lane));
    const hd_lane *lane = hdi_lane_any(ticket.lane);
    if (!lane) {
        return false;
    }
    uint64_t done = atomic_load_explicit(&lane->shared->done, memory_order_acquire);
    return done >= ticket.sequence && done <= atomic_load_explicit(&lane->submitted, memory_order_acquire) &&
           atomic_load_explicit(&lane->shared->failure_changes, memory_order_acquire) == 0;
}

hd_status hd_wait(hd_ticket ticket, int64_t timeout_ns)
{
    return __builtin_expect(ticket_is_done_and_well(ticket), 1) ? HD_OK : ticket_wait_slow(ticket, timeout_ns);
}
