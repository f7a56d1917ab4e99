/* stream.c - gives one lane's commands to the driver. stream_waits.c makes a lane wait for other
 * lanes, and progress.c follows the device's progress in the lane.
 *
 * Threads: the thread that runs the device's engine, with the device's context current. In the
 * placement inline, this is the holder of `running`; otherwise the engine has a thread of its own.
 * Locks: none. Other engines read the positions of events from the stream, and everything else from
 * the shared channel.
 * Always:
 * - No call blocks: if a lane cannot go on, the engine visits the lane again later.
 * - A lane's commands are issued in order. The failure of a command is recorded before `issued`
 *   passes the command.
 */
#include <assert.h>
#include "base/wait.h"
#include "engine/stream.h"

/* The end of a copy to the device of at most this many bytes is signalled like the end of a
 * kernel. */
#define SENT_ALONG_MOST ((uint64_t)16 << 10)

/* The most commands that one visit issues, while other lanes wait. */
#define COMMANDS_PER_VISIT HDI_CHAIN_MOST
/* the most commands of a visit while lanes with few commands have work */
#define COMMANDS_IN_COMPANY (HDI_CHAIN_MOST / 2)

/* The length of a visit. A driver call takes one to ten microseconds; a chain of 32 takes as long
 * as a visit. */
#define VISIT_NS 8000
#define VISIT_NS_IN_COMPANY 4000
#define EVENTS_PER_VISIT (HDI_EVENTS_PER_LANE / 2)
#define LINGER_NS 10000 /* an empty lane gets a signal after this time; sooner if a thread waits */

/* ---- issuing ---- */

/* The kind of the lane's last work once this command is issued. */
static uint8_t stream_tail_of(const hdi_command *c)
{
    int kind = c->kind & HDI_COPY_KIND;
    if ((c->op != HDI_OP_COPY && c->op != HDI_OP_COPY_BOX) || kind == HDI_COPY_ON_DEVICE) {
        return HDI_TAIL_KERNEL;
    }
    if (kind == HDI_COPY_TO_DEVICE && c->op == HDI_OP_COPY && c->copy.bytes <= SENT_ALONG_MOST) {
        return HDI_TAIL_KERNEL;
    }
    return HDI_TAIL_COPY;
}

/* How many entries of the driver's queue an operation takes. */
static uint64_t stream_entries_of(const hdi_command *c)
{
    static const uint8_t entries_of_op[HDI_OPS] = {
#define ENTRIES(op, call, name, entries, rank) [HDI_OP_##op] = (entries),
        HDI_OP_MAP(ENTRIES)
#undef ENTRIES
    };
    /* `volatile`: loaded once, since it is used twice */
    uint8_t op = *(const volatile uint8_t *)&c->op;
    return hdi_op_is_work(op) ? entries_of_op[op] : 1;
}

/* If the submitter of a MARK saw that a dependency of the MARK failed, makes the MARK fail. */
static void stream_fail_mark(hdi_engine *engine, hdi_stream *stream, const hdi_command *c)
{
    const hdi_failure failure = {
        .position = c->mark.position,
        .lane = c->mark.lane,
        .driver_code = c->mark.driver_code,
        .kernel = c->mark.kernel,
        .op = c->mark.op,
        .lost = c->mark.lost,
        .waited = c->mark.waited,
    };
    hdi_stream_inherit(engine, stream, &failure, stream->issued + 1, stream->issued + c->slots);
}

/* Issues one command. False: the lane cannot go on yet. */
static bool stream_issue(hdi_engine *engine, hdi_stream *stream, const hdi_command *c)
{
    hdcu_result r = HDCU_SUCCESS;
    /* After a failure the lane still makes its waits. Later operations rely on them, and so do
     * other lanes that use the same buffers. */
    if (stream->failed && c->op != HDI_OP_RESUME && c->op != HDI_OP_WAIT && c->op != HDI_OP_CLAIMED) {
        hdi_stream_record_failure(engine, stream, stream->issued + 1, stream->issued + c->slots);
        stream->refused = true;
        if (hdi_op_is_work(c->op) && !stream->sticky_failure) {
            stream->failed = false; /* only dependents of the failed result fail */
        }
        return true;
    }
    /* this copy of the command does not change if something writes into the ring */
    hdi_command own;
    switch (c->op) {
    case HDI_OP_WAIT:
        own = *c;
        return hdi_stream_wait(engine, stream, &own);
    case HDI_OP_RESUME:
        stream->failed = false;
        atomic_store_explicit(&engine->device->channel.lanes[stream->number].failed, 0, memory_order_release);
        return true;
    case HDI_OP_SKIP:
        return true;
    case HDI_OP_CLAIMED:
        return hdi_stream_end_claim(engine, stream, c);
    case HDI_OP_SOURCES:
        own = *c;
        return hdi_stream_sources(engine, stream, &own);
    case HDI_OP_MARK:
        own = *c;
        if (own.mark.inherits) {
            stream_fail_mark(engine, stream, &own);
            return true;
        }
        __attribute__((fallthrough));
    default:
        /* `begun` moves before the call. This process may end during the call, or before `issued`
         * passes the command. In both cases the command's work may have begun. */
        atomic_store_explicit(&engine->device->channel.lanes[stream->number].begun, stream->issued + c->slots,
                              memory_order_release);
        if (c->op == HDI_OP_CALL) {
            hdi_stream_cut(engine, stream, true);
        }
        r = c->op == HDI_OP_CALL ? hdi_stream_call(engine, stream, c) : hdi_issue(engine, stream, c);
        break;
    }
    stream->tail = stream_tail_of(c);
    stream->entries += stream_entries_of(c);
    hdi_engine_count(&engine->shared->operations);
    if (__builtin_expect(r != HDCU_SUCCESS, 0)) {
        hdi_stream_command_failed(engine, stream, c, stream->issued, r);
        if (!stream->sticky_failure) {
            stream->failed = false; /* only this command fails */
        }
    }
    return true;
}

/* Skips a command of a former worker, whose failure is recorded. Waits are still handled, since
 * later work relies on them. Claims are still handled, since the program relies on them. False: the
 * lane cannot go on yet. */
static bool stream_pass_lost(hdi_engine *engine, hdi_stream *stream, const hdi_command *c)
{
    const hdi_lane_shared *shared = &engine->device->channel.lanes[stream->number];
    const hdi_command own = *c;
    uint32_t self = (uint32_t)engine->device->index * HDI_LANES_MAX + stream->number;
    if (own.op == HDI_OP_CLAIMED) { /* pairs with hdi_claim_end_lane */
        return atomic_load_explicit(&shared->ended, memory_order_acquire) >= stream->issued + own.slots;
    }
    if (own.op != HDI_OP_WAIT || own.wait.lane == self || !hdi_stream_lane_exists(engine, own.wait.lane)) {
        return true;
    }
    hdi_lane_shared *other = hdi_lane_shared_of(engine->device->runtime, own.wait.lane);
    return atomic_load_explicit(&other->done, memory_order_acquire) >= own.wait.position ||
           hdi_stream_wait_host(engine, other, own.wait.lane, own.wait.position);
}

/* The requests that the command carries itself, as HDI_REQUEST_*. */
static unsigned stream_requests_of(const hdi_command *c)
{
    return c->op == HDI_OP_COPY || c->op == HDI_OP_COPY_BOX ? (unsigned)c->kind >> HDI_COPY_REQUESTS : 0;
}

/* Makes the events and signals that are due right behind a command, or behind a chain that ends
 * with it. */
static void stream_follow_up(hdi_engine *engine, hdi_stream *stream, hdi_lane_shared *shared, const hdi_command *c,
                             bool signalled)
{
    /* The watchdog needs the end of every operation. */
    uint64_t signal_every = engine->watchdog_ns ? 1 : engine->device->channel.slots / 8;
    bool ask =
        signalled || (c->op == HDI_OP_CLAIM && c->kind != HDI_CLAIM_ON_STREAM && stream->signalled != stream->issued);
    /* relaxed: the next visit sees a wish that this one misses */
    uint64_t wanted = atomic_load_explicit(&shared->wanted_event, memory_order_relaxed);
    unsigned asked =
        hdi_take_requests(&engine->device->channel, stream->number, stream->issued) | stream_requests_of(c);
    if (__builtin_expect((wanted > stream->event_last && wanted <= stream->issued) || (asked & HDI_REQUEST_EVENT), 0)) {
        hdi_stream_record_event(engine, stream);
    }
    ask |= (asked & HDI_REQUEST_FLAG) && stream->signalled != stream->issued;
    if (__builtin_expect(ask || stream->issued - stream->signalled >= signal_every ||
                             stream->entries - stream->entries_signalled >= engine->entries_most / 4,
                         0)) {
        hdi_stream_signal(engine, stream);
    }
}

/* Issues one launch by itself. Puts the launch between two signals (*signalled) if its kernel was
 * never seen to end, or ran long the last time. If the kernel does not end, the signals show this.
 * They also show that the work in front of the kernel ended. */
static bool stream_issue_launch(hdi_engine *engine, hdi_stream *stream, const hdi_command *c, bool *signalled)
{
    uint32_t kernel = c->kernel;
    uint64_t end = stream->issued + c->slots;
    *signalled = !stream->failed && hdi_chain_is_apart(engine, kernel);
    if (*signalled) {
        hdi_stream_cut(engine, stream, true);
    }
    const hdi_lane_shared *shared = &engine->device->channel.lanes[stream->number];
    uint64_t changes = atomic_load_explicit(&shared->failure_changes, memory_order_relaxed);
    bool issued = stream_issue(engine, stream, c);
    if (*signalled && atomic_load_explicit(&shared->failure_changes, memory_order_relaxed) == changes) {
        hdi_kernel_time_note(stream, kernel, end - c->slots, end);
    }
    return issued;
}

/* Issues the next command, or several launches together. *end: the end of what it issued. Returns
 * the number of commands; 0: the lane cannot go on yet. */
static uint32_t stream_issue_next(hdi_engine *engine, hdi_stream *stream, uint64_t head, uint32_t most, uint64_t *end,
                                  bool *signalled)
{
    const hdi_command *c = hdi_command_at(&engine->device->channel, stream->number, stream->issued);
    if (c->op == HDI_OP_CLAIM) {
        hdi_stream_begin_claim(engine, stream);
        *end = stream->issued + 1;
        return 1;
    }
    if (__builtin_expect(stream->issued < stream->lost_to, 0)) {
        return stream_pass_lost(engine, stream, c);
    }
    if (c->op != HDI_OP_LAUNCH) {
        return stream_issue(engine, stream, c);
    }
    bool alone = stream->failed || hdi_times_are_kept(&engine->device->channel.lanes[stream->number]) ||
                 engine->recording.detail == HDI_RECORD_DETAIL_FULL;
    uint32_t n = alone ? 0 : hdi_chain_issue(engine, stream, head, most, end);
    if (n == 0) {
        return hdi_device_lost(engine->device) ? 1 : stream_issue_launch(engine, stream, c, signalled);
    }
    stream->tail = HDI_TAIL_KERNEL;
    stream->entries++;
    hdi_engine_count_some(&engine->shared->operations, n);
    return n;
}

/* Called when the lane cannot go on. Notes whether the lane stands at an open claim. In that case
 * the engine need not check the device for this lane. */
static void stream_note_claimed(hdi_stream *stream, const hdi_lane_shared *shared, const hdi_command *c, uint64_t end)
{
    bool open = c->op == HDI_OP_CLAIMED && atomic_load_explicit(&shared->ended, memory_order_relaxed) < end;
    atomic_store_explicit(&stream->claimed_to, open ? end : 0, memory_order_relaxed);
}

/* True if a ticket may name the end of this command. */
static bool stream_command_is_named(const hdi_command *c)
{
    /* If a RESUME is the lane's last command, hd_lane_get_ticket names it. */
    return hdi_op_is_work(c->op) || c->op == HDI_OP_RESUME;
}

/* Handles a command that cannot be issued now. It ends at `end`. */
static void stream_block(hdi_engine *engine, hdi_stream *stream, const hdi_lane_shared *shared, const hdi_command *c,
                         uint64_t end, bool records)
{
    atomic_store_explicit(&stream->blocked, true, memory_order_relaxed);
    stream_note_claimed(stream, shared, c, end);
    if (records) {
        hdi_span_cut(engine, stream);
    }
}

/* Notes that the commands from `c` up to `end` are issued. `rests`: none of these commands went to
 * the device. */
static void stream_pass_issued(hdi_engine *engine, hdi_stream *stream, hdi_lane_shared *shared, const hdi_command *c,
                               uint64_t end, bool rests, bool lost)
{
    stream->issued = end;
    if (__builtin_expect(hdi_times_are_kept(shared), 0) && stream_command_is_named(c) && !lost) {
        hdcu_result r = hdi_times_record(engine, stream, end);
        if (hdi_driver_code_is_fatal(r)) {
            hdi_engine_lose(engine, r);
        }
    }
    if (rests) {
        hdi_stream_rest(engine, stream, end);
    }
    /* pairs with the acquire load in hdi_stream_wait of other engines */
    atomic_store_explicit(&shared->issued, end, memory_order_release);
    engine->now = hdi_clock_ns();
}

/* Puts a signal behind `n` launches if the timing of kernels needs one. */
static void stream_time_launches(hdi_engine *engine, hdi_stream *stream, uint32_t n)
{
    if (hdi_kernel_time_wants_signal(&stream->timing, n, engine->chain_most, engine->now) &&
        stream->signalled != stream->issued) {
        hdi_stream_signal(engine, stream);
    }
}

/* Issues as many commands as a visit and the driver's queue allow. True if something was issued. */
static bool stream_issue_some(hdi_engine *engine, hdi_stream *stream, hdi_lane_shared *shared, uint64_t head)
{
    bool any = false;
    atomic_store_explicit(&stream->blocked, false, memory_order_relaxed);
    atomic_store_explicit(&stream->claimed_to, 0, memory_order_relaxed);
    /* A visit records at most HDI_EVENTS_PER_LANE events. So if another lane waits for the first of
     * these events, it gets a visit before the engine records this event again. */
    uint64_t events = 0;
    engine->now = hdi_clock_ns();
    int64_t until = engine->now + (engine->has_company ? VISIT_NS_IN_COMPANY : VISIT_NS);
    for (uint32_t left = engine->has_company ? COMMANDS_IN_COMPANY : COMMANDS_PER_VISIT;
         left > 0 && stream->issued != head && events < EVENTS_PER_VISIT;) {
        if (stream->entries - stream->entries_done >= engine->entries_most) {
            atomic_store_explicit(&stream->blocked, true, memory_order_relaxed);
            break; /* one more call might wait for the device, and block all lanes */
        }
        uint64_t event_before = stream->event_last;
        const hdi_command *c = hdi_command_at(&engine->device->channel, stream->number, stream->issued);
        uint64_t slots = *(const volatile uint8_t *)&c->slots;
        /* The ring was overwritten: the command's number of slots is 0, or larger than the slots
         * that were submitted. */
        if (__builtin_expect(slots - 1 >= head - stream->issued, 0)) {
            hdi_engine_lose(engine, HDI_GONE_CORRUPTED);
            return true;
        }
        uint64_t end = stream->issued + slots;
        bool signalled = false, launches = c->op == HDI_OP_LAUNCH;
        bool at_rest = stream->passed == stream->issued;
        uint64_t entries = stream->entries, from = stream->issued;
        bool lost = stream->issued < stream->lost_to;
        bool records = __builtin_expect(engine->recording.detail != 0, 0) && !lost;
        if (records) {
            hdi_span_before(engine, stream, c);
        }
        int64_t before = engine->now;
        uint32_t n = stream_issue_next(engine, stream, head, left, &end, &signalled);
        if (n == 0) {
            stream_block(engine, stream, shared, c, end, records);
            break;
        }
        if (hdi_device_lost(engine->device)) {
            return true;
        }
        left -= n;
        any = true;
        stream_pass_issued(engine, stream, shared, c, end, at_rest && stream->entries == entries, lost);
        int64_t behind = engine->now;
        records = records && hdi_span_behind(engine, stream, c);
        hdi_kernel_time_give(&stream->timing, launches ? n : 0, before, behind);
        stream_follow_up(engine, stream, shared, c, signalled);
        if (records) {
            /* The record comes after the signal, since a thread may wait for the signal. */
            hdi_span_record_issue(engine, stream, from, n, before, behind);
        }
        if (launches) {
            stream_time_launches(engine, stream, n);
        }
        events += stream->event_last != event_before;
        if (engine->now >= until) {
            break;
        }
    }
    return any;
}

/* ---- a visit ---- */

/* The watchdog: if an operation is the first unfinished one of its lane for too long, this function
 * loses the device. */
static void stream_watch(hdi_engine *engine, hdi_stream *stream, const hdi_pass *pass)
{
    int64_t now = pass->now - engine->unwatched;
    if (stream->issued == stream->done || stream->front != stream->done || !stream->front_since) {
        stream->front = stream->done;
        stream->front_since = stream->issued == stream->done ? 0 : now;
    } else if (now - stream->front_since > engine->watchdog_ns) {
        if (hdi_lane_waits(engine->device, stream->number, stream->done, stream->issued)) {
            stream->front_since = now;
        } else {
            atomic_store_explicit(&engine->shared->overdue, stream->number + 1, memory_order_release);
            hdi_engine_lose(engine, HDI_GONE_WATCHDOG);
        }
    }
}

#ifdef HDI_DEBUG
/* Checks the invariants of a stream between two visits. */
static void stream_check(hdi_engine *engine, const hdi_stream *stream, uint64_t head)
{
    assert(stream->done <= stream->passed && stream->passed <= stream->issued && stream->issued <= head);
    assert(stream->signalled <= stream->issued && stream->event_last <= stream->issued);
    assert(head - stream->done <= engine->device->channel.slots);
    assert(stream->first_dependency <= stream->n_dependencies && stream->n_dependencies <= stream->dependencies_room);
    for (uint32_t i = stream->first_dependency + 1; i < stream->n_dependencies; i++) {
        assert(stream->dependencies[i - 1].position <= stream->dependencies[i].position);
    }
}
#endif

/* Records the event that another lane wants. This is needed if the other lane requested the event
 * only after the command was issued. */
static void stream_grant_events(hdi_engine *engine, hdi_stream *stream, const hdi_lane_shared *shared)
{
    uint64_t wanted = atomic_load_explicit(&shared->wanted_event, memory_order_relaxed);
    bool late = wanted > stream->event_last && wanted <= stream->issued && wanted > stream->done;
    uint64_t wanted_now = atomic_load_explicit(&shared->wanted_now, memory_order_relaxed);
    if (late || (wanted_now > stream->event_last && wanted_now <= stream->issued)) {
        hdi_stream_record_event(engine, stream);
    }
}

bool hdi_stream_visit(hdi_engine *engine, hdi_stream *stream, hdi_pass *pass)
{
    if (!atomic_load_explicit(&stream->made, memory_order_acquire)) {
        /* `made` is always true here. The load pairs with the release store in hdi_stream_make,
         * which precedes the lane's first command. */
        return false;
    }
    hdi_lane_shared *shared = &engine->device->channel.lanes[stream->number];
    /* pairs with the submitters' store: commands are written before `head` shows them */
    uint64_t head = atomic_load_explicit(&shared->head, memory_order_acquire);
    hdi_stream_catch_up(engine, stream, head);
    if (__builtin_expect(head - stream->done > engine->device->channel.slots || head < stream->issued, 0)) {
        /* `head` shows more commands than fit into the ring, or fewer than before. */
        hdi_engine_lose(engine, HDI_GONE_CORRUPTED);
    }
    if (!hdi_device_lost(engine->device)) {
        if (stream->issued != head) {
            if (stream->issued == stream->done) {
                stream->checked = pass->now;
                if (!atomic_load_explicit(&stream->blocked, memory_order_relaxed)) {
                    /* Only for messages. */
                    atomic_store_explicit(&shared->moved, pass->now, memory_order_relaxed);
                }
            }
            if (stream_issue_some(engine, stream, shared, head)) {
                stream->idle_since = 0;
                pass->progress = true;
            }
        }
        stream_grant_events(engine, stream, shared);
        if (stream->issued != stream->signalled) {
            uint64_t host = atomic_load_explicit(&shared->wanted_host, memory_order_relaxed);
            bool stands = stream->issued == head || atomic_load_explicit(&stream->blocked, memory_order_relaxed);
            if (__builtin_expect(engine->recording.detail != 0, 0) && stands) {
                hdi_span_stand(engine, stream, pass->now);
            }
            if (stands && !stream->idle_since) {
                stream->idle_since = pass->now;
            }
            if ((host > stream->signalled && (host <= stream->issued || stands)) ||
                (stands && pass->now - stream->idle_since > LINGER_NS)) {
                hdi_stream_signal(engine, stream);
            }
        }
        hdi_stream_reap(engine, stream, pass);
        if (__builtin_expect(engine->watchdog_ns != 0, 0)) {
            stream_watch(engine, stream, pass);
        }
    }
    if (hdi_device_lost(engine->device)) {
        pass->progress |= hdi_stream_drain(engine, stream);
    }
#ifdef HDI_DEBUG
    if (!hdi_device_lost(engine->device)) {
        stream_check(engine, stream, head);
    }
#endif
    bool stands = atomic_load_explicit(&stream->claimed_to, memory_order_relaxed) && stream->done == stream->issued;
    pass->in_flight |= stream->done != head && !stands;
    return stream->issued != head && !atomic_load_explicit(&stream->blocked, memory_order_relaxed);
}
