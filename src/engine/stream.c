/* stream.c - gives one lane's commands to the driver. progress.c follows what becomes of them.
 *
 * Threads: the thread that runs the device's engine. That is its own thread or, in the placement inline, the holder of
 * `running`. The device's context is current.
 * Locks: none. Other engines read event positions, and find everything else in the shared channel.
 * Always:
 * - a lane's commands are issued in order
 * - a failed command is recorded before `issued` passes it
 * - every event position stands for an event that is already recorded behind that position, so waits for events close
 *   no circle
 */
#include "engine/stream.h"

#include <assert.h>
#include "base/wait.h"

#define VISIT_NS 8000 /* of a visit: a call takes one to ten microseconds; a chain of 32 takes as long as a visit */
#define VISIT_NS_IN_COMPANY 4000
#define EVENTS_PER_VISIT (HDI_EVENTS_PER_LANE / 2)
#define LINGER_NS 10000 /* an empty lane is signalled this long after it ran empty, sooner if a thread waits */

/* ---- failure ---- */

static void blame(hdi_engine *engine, const hdi_stream *stream, const hdi_command *c, uint64_t end, int code,
                  hdi_failure *cause)
{
    *cause = (hdi_failure){
        .position = end,
        .lane = (uint32_t)engine->device->index * HDI_LANES_MAX + stream->number,
        .driver_code = code,
        .kernel = c && c->op == HDI_OP_LAUNCH ? c->kernel : 0,
        .op = c ? c->op : 0,
    };
}

/* Records that positions from..to failed by stream->cause. */
static void record_failure(hdi_engine *engine, hdi_stream *stream, uint64_t from, uint64_t to)
{
    hdi_lane_shared *shared = &engine->device->channel.lanes[stream->number];
    stream->cause.from = from;
    stream->cause.to = to;
    hdi_failure_add(&engine->device->channel, stream->number, &stream->cause);
    stream->failed = true;
    if (stream->sticky_failure) {
        /* pairs with the load in the submit path, which refuses; late is fine, as the engine passes over later
         * commands */
        atomic_store_explicit(&shared->failed, 1, memory_order_release);
    }
}

/* Records, once, that everything of the lane that is not done fails, now and later. */
static void record_loss(hdi_engine *engine, hdi_stream *stream, int code)
{
    if (!stream->loss_recorded) {
        stream->loss_recorded = true;
        stream->failed = true;
        hdi_lane_lose(engine->device, stream->number, code);
    }
}

/* Takes in what the device has written so far. A signal that it has not passed stands in front of what came later, so
 * that had not begun. */
static void settle(hdi_engine *engine, hdi_stream *stream)
{
    hdi_stream_read_flag(engine, stream);
    hdi_stream_pass_signals(engine, stream);
    uint64_t begun =
        stream->n_signals ? stream->signals[stream->first_signal].position : stream->issued + stream->in_call;
    atomic_store_explicit(&engine->device->channel.lanes[stream->number].begun, begun, memory_order_release);
}

void hdi_engine_lose(hdi_engine *engine, int code)
{
    for (uint32_t i = 0; i < HDI_LANES_MAX && !hdi_device_lost(engine->device); i++) {
        if (atomic_load_explicit(&engine->streams[i].made, memory_order_acquire)) {
            settle(engine, &engine->streams[i]);
        }
    }
    if (engine->device->runtime->end_process) {
        engine->device->runtime->end_process(engine->device, code);
        return;
    }
    if (hdi_device_lost(engine->device)) {
        return;
    }
    hdi_device_change(engine->device, HDI_DEVICE_UP, HDI_DEVICE_FAILING);
    hdi_loss_suspect(engine->device, code);
    for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
        hdi_stream *stream = &engine->streams[i];
        if (atomic_load_explicit(&stream->made, memory_order_acquire)) {
            record_loss(engine, stream, code);
        }
    }
    atomic_store_explicit(&engine->device->lost_by, code, memory_order_relaxed);
    hdi_device_change(engine->device, HDI_DEVICE_FAILING, HDI_DEVICE_DRAINING);
    hdi_loss_note(engine->device, code);
}

/* A driver call for this lane failed. Unless that killed the device, the command ending at `end` did not happen. */
static void command_failed(hdi_engine *engine, hdi_stream *stream, const hdi_command *c, uint64_t begin, int code)
{
    if (hdi_driver_code_is_fatal(code)) {
        /* A library for products makes several calls, so some of its work may be the cause. */
        stream->in_call = c->op == HDI_OP_MATMUL ? c->slots : 0;
        hdi_engine_lose(engine, code);
        stream->in_call = 0;
        return;
    }
    uint64_t end = begin + c->slots;
    blame(engine, stream, c, end, code, &stream->cause);
    record_failure(engine, stream, begin + 1, end);
}

void hdi_stream_inherit(hdi_engine *engine, hdi_stream *stream, const hdi_failure *other, uint64_t from, uint64_t to)
{
    stream->cause = *other;
    stream->cause.inherited = 1;
    record_failure(engine, stream, from, to);
}

/* ---- issuing ---- */

/* Records an event behind everything issued so far, for other lanes to wait for. */
static void record_event(hdi_engine *engine, hdi_stream *stream)
{
    const hdi_driver *driver = engine->device->runtime->driver;
    uint32_t i = stream->event_next;
    /* Other engines that still use the old position get the new, later record. They wait for more than they need, never
     * for less. */
    hdcu_result r = HDCU_SUCCESS;
    if (!stream->event[i]) {
        r = driver->cuEventCreate(&stream->event[i], HDCU_EVENT_DISABLE_TIMING);
    }
    if (r == HDCU_SUCCESS) {
        r = driver->cuEventRecord(stream->event[i], stream->handle);
    }
    stream->event_last = stream->issued;
    if (r == HDCU_SUCCESS) {
        /* pairs with the acquire load in find_event: the event is recorded before its position is visible */
        atomic_store_explicit(&stream->event_position[i], stream->issued, memory_order_release);
        stream->event_next = (i + 1) % HDI_EVENTS_PER_LANE;
        hdi_engine_count(&engine->shared->events);
    } else if (hdi_driver_code_is_fatal(r)) {
        hdi_engine_lose(engine, r);
    } else {
        /* Without an event the waiting lane goes on when this one is done: see stream_wait.c. */
        hdi_want(&engine->device->channel.lanes[stream->number].wanted_host, stream->issued);
    }
}

/* The kind of work that the lane ends in behind this command. */
static uint8_t tail_of(const hdi_command *c)
{
    int kind = c->kind & HDI_COPY_KIND;
    if ((c->op != HDI_OP_COPY && c->op != HDI_OP_COPY_BOX) || kind == HDI_COPY_ON_DEVICE) {
        return HDI_TAIL_KERNEL;
    }
    if (kind == HDI_COPY_TO_DEVICE && c->op == HDI_OP_COPY && c->copy.bytes <= HDI_SENT_ALONG_MOST) {
        return HDI_TAIL_KERNEL;
    }
    return HDI_TAIL_COPY;
}

/* How many entries of the driver's queue an operation takes. */
static uint64_t entries_of(const hdi_command *c)
{
    static const uint8_t entries_of_op[HDI_OPS] = {
#define ENTRIES(op, call, name, entries, rank) [HDI_OP_##op] = (entries),
        HDI_OP_MAP(ENTRIES)
#undef ENTRIES
    };
    uint8_t op = *(const volatile uint8_t *)&c->op; /* loaded once, since it is used twice */
    return hdi_op_is_work(op) ? entries_of_op[op] : 1;
}

/* Issues one command. False: the lane cannot go on yet. */
static bool issue(hdi_engine *engine, hdi_stream *stream, const hdi_command *c)
{
    hdcu_result r = HDCU_SUCCESS;
    /* Waits are made after a failure, too: later operations, and uses of the same buffers elsewhere, rely on them. */
    if (stream->failed && c->op != HDI_OP_RESUME && c->op != HDI_OP_WAIT) {
        record_failure(engine, stream, stream->issued + 1, stream->issued + c->slots);
        if (hdi_op_is_work(c->op) && !stream->sticky_failure) {
            stream->failed = false; /* only what depended on the failed result fails */
        }
        return true;
    }
    hdi_command own; /* a copy stays the same, whatever is written into the ring meanwhile */
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
    case HDI_OP_SOURCES:
        own = *c;
        return hdi_stream_sources(engine, stream, &own);
    default:
        /* If this process ends in the call, or before `issued` passes the command, its work may have begun. */
        atomic_store_explicit(&engine->device->channel.lanes[stream->number].begun, stream->issued + c->slots,
                              memory_order_release);
        r = hdi_issue(engine, stream, c);
        break;
    }
    stream->tail = tail_of(c);
    stream->entries += entries_of(c);
    hdi_engine_count(&engine->shared->operations);
    if (__builtin_expect(r != HDCU_SUCCESS, 0)) {
        command_failed(engine, stream, c, stream->issued, r);
        if (!stream->sticky_failure) {
            stream->failed = false; /* only this command fails */
        }
    }
    return true;
}

/* Drains a lane of a lost device: its work ends without success, up to its first wait for others. True when something
 * moved. Not in a worker process, which ends instead. */
static bool drain(hdi_engine *engine, hdi_stream *stream)
{
    uint64_t head = hdi_lane_submitted(engine->device, stream->number);
    hdi_lane_shared *shared = &engine->device->channel.lanes[stream->number];
    /* The lane may have been made while the device was being lost. */
    record_loss(engine, stream, hdi_device_lost_by(engine->device));
    bool moved = stream->issued != head;
    stream->issued = stream->passed = stream->signalled = head;
    stream->first_dependency = stream->n_dependencies = 0;
    atomic_store_explicit(&shared->issued, head, memory_order_release);
    uint64_t reach = hdi_lane_reach(engine->device, stream->number, stream->done, head);
    if (stream->done < reach) {
        hdi_stream_store_done(engine, stream, reach);
        moved = true;
    }
    return moved;
}

/* Signals the end of what was issued last, for other lanes. By an event and, where other devices' lanes are in other
 * processes, by a completion write, too. */
static void signal_end(hdi_engine *engine, hdi_stream *stream)
{
    record_event(engine, stream);
    if (engine->device->runtime->is_process) {
        hdi_stream_signal(engine, stream);
    }
}

/* Records events and signals that are due right behind a command, or behind a chain that ends with it. */
static void follow_up(hdi_engine *engine, hdi_stream *stream, hdi_lane_shared *shared, const hdi_command *c,
                      bool signalled)
{
    /* The watchdog needs the end of every operation. */
    uint64_t signal_every = engine->watchdog_ns ? 1 : engine->device->channel.slots / 8;
    bool ask = signalled || (c->op == HDI_OP_COPY && c->copy.signalled);
    bool awaited = (c->op == HDI_OP_COPY || c->op == HDI_OP_COPY_BOX) && (c->kind & HDI_COPY_AWAITED);
    /* relaxed: a wish seen late is seen at the next visit */
    uint64_t wanted = atomic_load_explicit(&shared->wanted_event, memory_order_relaxed);
    unsigned asked = hdi_take_requests(&engine->device->channel, stream->number, stream->issued);
    if (__builtin_expect(awaited, 0)) {
        signal_end(engine, stream);
    } else if (__builtin_expect(
                   (wanted > stream->event_last && wanted <= stream->issued) || (asked & HDI_REQUEST_EVENT), 0)) {
        record_event(engine, stream);
    }
    ask |= (asked & HDI_REQUEST_FLAG) && stream->signalled != stream->issued;
    if (__builtin_expect(ask || stream->issued - stream->signalled >= signal_every ||
                             stream->entries - stream->entries_signalled >= engine->entries_most / 4,
                         0)) {
        hdi_stream_signal(engine, stream);
    }
}

/* Issues one launch by itself. A kernel that was never seen to end is put between two signals (*signalled). If it never
 * ends, the signals show that it was this one. */
static bool issue_launch(hdi_engine *engine, hdi_stream *stream, const hdi_command *c, bool *signalled)
{
    uint32_t kernel = c->kernel;
    uint64_t end = stream->issued + c->slots;
    *signalled = engine->chain_most && !stream->failed && hdi_chain_is_new(engine, kernel);
    if (*signalled && stream->issued != stream->signalled && stream->issued != stream->passed) {
        hdi_stream_signal(engine, stream);
    }
    const hdi_lane_shared *shared = &engine->device->channel.lanes[stream->number];
    uint64_t changes = atomic_load_explicit(&shared->failure_changes, memory_order_relaxed);
    bool issued = issue(engine, stream, c);
    if (*signalled && atomic_load_explicit(&shared->failure_changes, memory_order_relaxed) == changes) {
        hdi_chain_note(engine, stream, kernel, end);
    }
    return issued;
}

/* Issues the next command, or several launches together. *end: where they end. Returns how many; 0: the lane cannot go
 * on yet. */
static uint32_t issue_next(hdi_engine *engine, hdi_stream *stream, uint64_t head, uint32_t most, uint64_t *end,
                           bool *signalled)
{
    const hdi_command *c = hdi_command_at(&engine->device->channel, stream->number, stream->issued);
    if (c->op != HDI_OP_LAUNCH) {
        return issue(engine, stream, c);
    }
    uint32_t n = stream->failed ? 0 : hdi_chain_issue(engine, stream, head, most, end);
    if (n == 0) {
        return hdi_device_lost(engine->device) ? 1 : issue_launch(engine, stream, c, signalled);
    }
    stream->tail = HDI_TAIL_KERNEL;
    stream->entries++;
    hdi_engine_count_some(&engine->shared->operations, n);
    return n;
}

/* Gives the driver what it can take. True when something was issued. */
static bool issue_some(hdi_engine *engine, hdi_stream *stream, hdi_lane_shared *shared, uint64_t head)
{
    bool any = false;
    atomic_store_explicit(&stream->blocked, false, memory_order_relaxed);
    /* Not all in one visit: a lane that waits for the first of them is visited before that event is recorded again. */
    uint64_t events = 0;
    engine->now = hdi_clock_ns();
    int64_t until = engine->now + (engine->has_company ? VISIT_NS_IN_COMPANY : VISIT_NS);
    for (uint32_t left = engine->has_company ? HDI_COMMANDS_IN_COMPANY : HDI_COMMANDS_PER_VISIT;
         left > 0 && stream->issued != head && events < EVENTS_PER_VISIT;) {
        if (stream->entries - stream->entries_done >= engine->entries_most) {
            atomic_store_explicit(&stream->blocked, true, memory_order_relaxed);
            break; /* one more call might wait for the device, and block all lanes */
        }
        uint64_t event_before = stream->event_last;
        const hdi_command *c = hdi_command_at(&engine->device->channel, stream->number, stream->issued);
        uint64_t slots = *(const volatile uint8_t *)&c->slots;
        if (__builtin_expect(slots - 1 >= head - stream->issued, 0)) { /* none, or more than there are */
            hdi_engine_lose(engine, HDI_GONE_CORRUPTED);
            return true;
        }
        uint64_t end = stream->issued + slots;
        bool signalled = false, launches = c->op == HDI_OP_LAUNCH;
        int64_t before = engine->now;
        uint32_t n = issue_next(engine, stream, head, left, &end, &signalled);
        if (n == 0) {
            atomic_store_explicit(&stream->blocked, true, memory_order_relaxed);
            break;
        }
        if (hdi_device_lost(engine->device)) {
            return true;
        }
        left -= n;
        stream->issued = end;
        any = true;
        /* pairs with the acquire load in hdi_stream_wait of other engines */
        atomic_store_explicit(&shared->issued, stream->issued, memory_order_release);
        engine->now = hdi_clock_ns();
        hdi_kernel_time_give(&stream->timing, launches ? n : 0, before, engine->now);
        follow_up(engine, stream, shared, c, signalled);
        if (launches && hdi_kernel_time_wants_signal(&stream->timing, n, engine->chain_most, engine->now) &&
            stream->signalled != stream->issued) {
            hdi_stream_signal(engine, stream);
        }
        events += stream->event_last != event_before;
        if (engine->now >= until) {
            break;
        }
    }
    return any;
}

/* Applies the watchdog: an operation has been at the front of its lane for too long, so its device is lost. */
static void watch(hdi_engine *engine, hdi_stream *stream, const hdi_pass *pass)
{
    if (stream->issued == stream->done || stream->front != stream->done || !stream->front_since) {
        stream->front = stream->done;
        stream->front_since = stream->issued == stream->done ? 0 : pass->now;
    } else if (pass->now - stream->front_since > engine->watchdog_ns) {
        if (hdi_lane_waits(engine->device, stream->number, stream->done, stream->issued)) {
            stream->front_since = pass->now;
        } else {
            atomic_store_explicit(&engine->shared->overdue, stream->number + 1, memory_order_release);
            hdi_engine_lose(engine, HDI_GONE_WATCHDOG);
        }
    }
}

#ifdef HDI_DEBUG
/* Checks what always holds of a stream between two visits. */
static void check_stream(hdi_engine *engine, const hdi_stream *stream, uint64_t head)
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

bool hdi_stream_visit(hdi_engine *engine, hdi_stream *stream, hdi_pass *pass)
{
    if (!atomic_load_explicit(&stream->made, memory_order_acquire)) {
        /* Never false: pairs with the release store in hdi_stream_make, which precedes the lane's first command. */
        return false;
    }
    hdi_lane_shared *shared = &engine->device->channel.lanes[stream->number];
    /* pairs with the submitters' store: the commands are written before `head` shows them */
    uint64_t head = atomic_load_explicit(&shared->head, memory_order_acquire);
    if (__builtin_expect(head - stream->done > engine->device->channel.slots || head < stream->issued, 0)) {
        hdi_engine_lose(engine, HDI_GONE_CORRUPTED); /* more than the ring holds, or less than before */
    }
    if (!hdi_device_lost(engine->device)) {
        if (stream->issued != head) {
            if (stream->issued == stream->done) {
                stream->checked = pass->now;
                if (!atomic_load_explicit(&stream->blocked, memory_order_relaxed)) {
                    atomic_store_explicit(&shared->moved, pass->now, memory_order_relaxed); /* only for messages */
                }
            }
            if (issue_some(engine, stream, shared, head)) {
                stream->idle_since = 0;
                pass->progress = true;
            }
        }
        uint64_t wanted = atomic_load_explicit(&shared->wanted_event, memory_order_relaxed);
        bool late = wanted > stream->event_last && wanted <= stream->issued && wanted > stream->done;
        uint64_t wanted_now = atomic_load_explicit(&shared->wanted_now, memory_order_relaxed);
        if (late || (wanted_now > stream->event_last && wanted_now <= stream->issued)) {
            record_event(engine, stream); /* the wish came after the command had been issued */
        }
        if (stream->issued != stream->signalled) {
            uint64_t host = atomic_load_explicit(&shared->wanted_host, memory_order_relaxed);
            bool stands = stream->issued == head || atomic_load_explicit(&stream->blocked, memory_order_relaxed);
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
            watch(engine, stream, pass);
        }
    }
    if (hdi_device_lost(engine->device)) {
        pass->progress |= drain(engine, stream);
    }
#ifdef HDI_DEBUG
    if (!hdi_device_lost(engine->device)) {
        check_stream(engine, stream, head);
    }
#endif
    pass->in_flight |= stream->done != head;
    return stream->issued != head && !atomic_load_explicit(&stream->blocked, memory_order_relaxed);
}

hdi_answer hdi_stream_make(hdi_engine *engine, uint32_t number, bool sticky_failure)
{
    hdi_device *device = engine->device;
    hdi_stream *stream = &engine->streams[number];
    hdi_current current;
    hdi_answer answer = {.call = ""};
    answer.code = hdi_current_enter(device->runtime->driver, device->context, &current, &answer.call);
    if (!hdi_answered(answer)) {
        return answer;
    }
    if (!stream->handle) {
        answer.call = "cuStreamCreate";
        answer.code = device->runtime->driver->cuStreamCreate(&stream->handle, HDCU_STREAM_NON_BLOCKING);
    }
    hdi_current_leave(&current);
    if (!hdi_answered(answer)) {
        stream->handle = NULL;
        return answer;
    }
    /* Not 0 where a former engine was lost. */
    uint64_t position = atomic_load_explicit(&device->channel.lanes[number].done, memory_order_acquire);
    stream->number = number;
    stream->issued = stream->done = stream->passed = stream->signalled = stream->event_last = position;
    atomic_store_explicit(&device->channel.flags[number].position, (uint32_t)position, memory_order_relaxed);
    stream->tail = HDI_TAIL_KERNEL;
    stream->sticky_failure = sticky_failure;
    /* pairs with the acquire load in hdi_engine_lose, and precedes the first command of the lane */
    atomic_store_explicit(&stream->made, true, memory_order_release);
    return answer;
}
