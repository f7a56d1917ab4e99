/* feed.c - one lane's commands into the driver. What becomes of them is seen in progress.c.
 *
 * Threads: whoever runs the device's engine; its thread, or in the placement inline the holder of `running`. The device's context is
 * current. Locks: none; other engines read event positions, everything else they need is in the shared channel.
 * Always:
 *   - a lane's commands are issued in order; a failed command is recorded before `issued` passes it;
 *   - every event position stands for an event already recorded behind that position, so waiting for an event can
 *     not close a circle.
 */
#include "engine/feed.h"

#include <assert.h>
#include "base/clock.h"
#include "base/wait.h"

#define VISIT_NS 8000 /* of a visit: a call may take a microsecond, or ten. A chain of 32 takes so long */
#define VISIT_NS_IN_COMPANY 4000
#define EVENTS_PER_VISIT (HDI_EVENTS_PER_LANE / 2)
#define LINGER_NS 10000 /* an empty lane is signalled this long after it ran empty, sooner if a thread waits */

/* ---- failure ---- */

static void blame(hdi_engine *engine, const hdi_feed *feed, const hdi_command *c, uint64_t end, int code,
                  hdi_failure *cause)
{
    *cause = (hdi_failure){
        .position = end,
        .lane = (uint32_t)engine->device->index * HDI_LANES_MAX + feed->number,
        .driver_code = code,
        .kernel = c && c->op == HDI_OP_LAUNCH ? c->kernel : 0,
        .op = c ? c->op : 0,
    };
}

/* Records that positions from..to failed because of feed->cause. */
static void record_failure(hdi_engine *engine, hdi_feed *feed, uint64_t from, uint64_t to)
{
    hdi_lane_shared *shared = &engine->device->channel.lanes[feed->number];
    feed->cause.from = from;
    feed->cause.to = to;
    hdi_failure_add(&engine->device->channel, feed->number, &feed->cause);
    feed->failed = true;
    if (feed->keeps_failure) {
        /* pairs with the load in the submit path, which refuses; late is fine, the engine passes over what still comes */
        atomic_store_explicit(&shared->failed, 1, memory_order_release);
    }
}

/* Everything of the lane that is not done fails, now and later, once. */
static void record_loss(hdi_engine *engine, hdi_feed *feed, int code)
{
    if (!feed->loss_recorded) {
        feed->loss_recorded = true;
        feed->failed = true;
        hdi_lane_lose(engine->device, feed->number, code);
    }
}

/* What the device has said so far counts. A signal that it has not passed stands in front of what came later, so that had not begun. */
static void settle(hdi_engine *engine, hdi_feed *feed)
{
    hdi_feed_read_flag(engine, feed);
    hdi_feed_pass_signals(engine, feed);
    uint64_t begun = feed->n_signals ? feed->signals[feed->first_signal].position : feed->issued + feed->in_call;
    atomic_store_explicit(&engine->device->channel.lanes[feed->number].begun, begun, memory_order_release);
}

void hdi_engine_lose(hdi_engine *engine, int code)
{
    for (uint32_t i = 0; i < HDI_LANES_MAX && !hdi_device_lost(engine->device); i++) {
        if (atomic_load_explicit(&engine->feeds[i].made, memory_order_acquire)) {
            settle(engine, &engine->feeds[i]);
        }
    }
    if (engine->device->runtime->end_process) {
        engine->device->runtime->end_process(engine->device, code);
        return;
    }
    if (hdi_device_lost(engine->device)) {
        return;
    }
    hdi_loss_suspect(engine->device, code);
    for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
        hdi_feed *feed = &engine->feeds[i];
        if (atomic_load_explicit(&feed->made, memory_order_acquire)) {
            record_loss(engine, feed, code);
        }
    }
    /* pairs with the acquire load in hdi_device_lost */
    atomic_store_explicit(&engine->device->lost, code, memory_order_release);
    hdi_loss_note(engine->device, code);
}

/* A driver call for this lane failed without killing the device: the command ending at `end` did not happen. */
static void command_failed(hdi_engine *engine, hdi_feed *feed, const hdi_command *c, uint64_t begin, int code)
{
    if (hdi_driver_code_is_fatal(code)) {
        /* A library for products makes several calls, so that some of its work may be why. */
        feed->in_call = c->op == HDI_OP_MATMUL ? c->slots : 0;
        hdi_engine_lose(engine, code);
        feed->in_call = 0;
        return;
    }
    uint64_t end = begin + c->slots;
    blame(engine, feed, c, end, code, &feed->cause);
    record_failure(engine, feed, begin + 1, end);
}

void hdi_feed_inherit(hdi_engine *engine, hdi_feed *feed, const hdi_failure *other, uint64_t from, uint64_t to)
{
    feed->cause = *other;
    feed->cause.inherited = 1;
    record_failure(engine, feed, from, to);
}

/* ---- issuing ---- */

/* Puts an event behind everything issued so far, for other lanes to wait for. */
static void record_event(hdi_engine *engine, hdi_feed *feed)
{
    const hdi_driver *driver = engine->device->runtime->driver;
    uint32_t i = feed->event_next;
    /* Other engines that still use the old position get the new, later record: more than they need, never less. */
    hdcu_result r = HDCU_SUCCESS;
    if (!feed->event[i]) {
        r = driver->cuEventCreate(&feed->event[i], HDCU_EVENT_DISABLE_TIMING);
    }
    if (r == HDCU_SUCCESS) {
        r = driver->cuEventRecord(feed->event[i], feed->stream);
    }
    feed->event_last = feed->issued;
    if (r == HDCU_SUCCESS) {
        /* pairs with the acquire load in find_event: the event is recorded before its position is seen */
        atomic_store_explicit(&feed->event_position[i], feed->issued, memory_order_release);
        feed->event_next = (i + 1) % HDI_EVENTS_PER_LANE;
        hdi_engine_count(&engine->shared->events);
    } else if (hdi_driver_code_is_fatal(r)) {
        hdi_engine_lose(engine, r);
    } else {
        /* Without an event the waiting lane goes on when this one is done: see feed_wait.c. */
        hdi_want(&engine->device->channel.lanes[feed->number].wanted_host, feed->issued);
    }
}

/* What the lane ends in behind this command. */
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

/* How many entries of the driver's queue an operation takes. What a library for products does is its own business, but these are few kernels. */
static uint64_t entries_of(const hdi_command *c)
{
    return c->op == HDI_OP_MATMUL ? 8 : c->op == HDI_OP_COPY_BOX ? 4 : 1;
}

/* One command. False: the lane cannot go on yet. */
static bool issue(hdi_engine *engine, hdi_feed *feed, const hdi_command *c)
{
    hdcu_result r = HDCU_SUCCESS;
    /* Waits are made all the same: later operations, and uses of the same buffers elsewhere, count on them. */
    if (feed->failed && c->op != HDI_OP_RESUME && c->op != HDI_OP_WAIT) {
        record_failure(engine, feed, feed->issued + 1, feed->issued + c->slots);
        if (hdi_op_is_work(c->op) && !feed->keeps_failure) {
            feed->failed = false; /* only what depended on the failed result */
        }
        return true;
    }
    hdi_command own; /* what is looked at more than once stays the same, whoever writes into the ring */
    switch (c->op) {
    case HDI_OP_WAIT:
        own = *c;
        return hdi_feed_wait(engine, feed, &own);
    case HDI_OP_RESUME:
        feed->failed = false;
        atomic_store_explicit(&engine->device->channel.lanes[feed->number].failed, 0, memory_order_release);
        return true;
    case HDI_OP_SKIP:
        return true;
    case HDI_OP_SOURCES:
        own = *c;
        return hdi_feed_sources(engine, feed, &own);
    default:
        /* Where this process ends in the call, or before `issued` passes the command, its work may have begun. */
        atomic_store_explicit(&engine->device->channel.lanes[feed->number].begun, feed->issued + c->slots,
                              memory_order_release);
        r = hdi_issue(engine, feed, c);
        break;
    }
    feed->tail = tail_of(c);
    feed->entries += entries_of(c);
    hdi_engine_count(&engine->shared->operations);
    if (__builtin_expect(r != HDCU_SUCCESS, 0)) {
        command_failed(engine, feed, c, feed->issued, r);
        if (!feed->keeps_failure) {
            feed->failed = false; /* this command alone */
        }
    }
    return true;
}

/* A lost device: everything is finished, without success, as far as it does not wait for others. True when something moved. Not in a worker
 * process, which ends instead. */
static bool drop(hdi_engine *engine, hdi_feed *feed)
{
    uint64_t head = hdi_lane_submitted(engine->device, feed->number);
    hdi_lane_shared *shared = &engine->device->channel.lanes[feed->number];
    /* A lane that was made while the device was being lost. */
    record_loss(engine, feed, hdi_device_lost(engine->device));
    bool moved = feed->issued != head;
    feed->issued = feed->passed = feed->signalled = head;
    feed->first_dependency = feed->n_dependencies = 0;
    atomic_store_explicit(&shared->issued, head, memory_order_release);
    uint64_t reach = hdi_lane_reach(engine->device, feed->number, feed->done, head);
    if (feed->done < reach) {
        hdi_feed_store_done(engine, feed, reach);
        moved = true;
    }
    return moved;
}

/* Signals the end of what was issued last, for other lanes: by an event, and where those of other devices are in other processes by a completion write,
 * too. */
static void signal_end(hdi_engine *engine, hdi_feed *feed)
{
    record_event(engine, feed);
    if (engine->device->runtime->is_process) {
        hdi_feed_signal(engine, feed);
    }
}

/* What is to happen right behind a command, or a chain that ends with it. */
static void follow_up(hdi_engine *engine, hdi_feed *feed, hdi_lane_shared *shared, const hdi_command *c, bool signalled)
{
    /* The watchdog has to see every operation end. */
    uint64_t signal_every = engine->watchdog_ns ? 1 : engine->device->channel.slots / 8;
    bool ask = signalled || (c->op == HDI_OP_COPY && c->copy.signalled);
    bool awaited = (c->op == HDI_OP_COPY || c->op == HDI_OP_COPY_BOX) && (c->kind & HDI_COPY_AWAITED);
    /* relaxed: a wish seen late is seen at the next visit */
    uint64_t wanted = atomic_load_explicit(&shared->wanted_event, memory_order_relaxed);
    unsigned asked = hdi_take_requests(&engine->device->channel, feed->number, feed->issued);
    if (__builtin_expect(awaited, 0)) {
        signal_end(engine, feed);
    } else if (__builtin_expect((wanted > feed->event_last && wanted <= feed->issued) || (asked & HDI_REQUEST_EVENT),
                                0)) {
        record_event(engine, feed);
    }
    ask |= (asked & HDI_REQUEST_FLAG) && feed->signalled != feed->issued;
    if (__builtin_expect(ask || feed->issued - feed->signalled >= signal_every ||
                             feed->entries - feed->entries_signalled >= engine->entries_most / 4,
                         0)) {
        hdi_feed_signal(engine, feed);
    }
}

/* A launch by itself. Of a kernel that was never seen to end between two signals (*signalled): if it never does, it is known which one it was. */
static bool issue_launch(hdi_engine *engine, hdi_feed *feed, const hdi_command *c, bool *signalled)
{
    uint32_t kernel = c->kernel;
    uint64_t end = feed->issued + c->slots;
    *signalled = engine->chain_most && !feed->failed && hdi_chain_is_new(engine, kernel);
    if (*signalled && feed->issued != feed->signalled && feed->issued != feed->passed) {
        hdi_feed_signal(engine, feed);
    }
    const hdi_lane_shared *shared = &engine->device->channel.lanes[feed->number];
    uint64_t changes = atomic_load_explicit(&shared->failure_changes, memory_order_relaxed);
    bool issued = issue(engine, feed, c);
    if (*signalled && atomic_load_explicit(&shared->failure_changes, memory_order_relaxed) == changes) {
        hdi_chain_note(engine, feed, kernel, end);
    }
    return issued;
}

/* The next command, or several launches together. *end: where they end. Returns how many, 0: the lane cannot go on yet. */
static uint32_t issue_next(hdi_engine *engine, hdi_feed *feed, uint64_t head, uint32_t most, uint64_t *end,
                           bool *signalled)
{
    const hdi_command *c = hdi_command_at(&engine->device->channel, feed->number, feed->issued);
    if (c->op != HDI_OP_LAUNCH) {
        return issue(engine, feed, c);
    }
    uint32_t n = feed->failed ? 0 : hdi_chain_issue(engine, feed, head, most, end);
    if (n == 0) {
        return hdi_device_lost(engine->device) ? 1 : issue_launch(engine, feed, c, signalled);
    }
    feed->tail = HDI_TAIL_KERNEL;
    feed->entries++;
    hdi_engine_count_some(&engine->shared->operations, n);
    return n;
}

/* Gives the driver what it can take. True when something was issued. */
static bool issue_some(hdi_engine *engine, hdi_feed *feed, hdi_lane_shared *shared, uint64_t head)
{
    bool any = false;
    atomic_store_explicit(&feed->blocked, false, memory_order_relaxed);
    uint64_t events =
        0; /* not all in one visit: who waits for the first of them comes by before it is recorded again */
    engine->now = hdi_clock_ns();
    int64_t until = engine->now + (engine->has_company ? VISIT_NS_IN_COMPANY : VISIT_NS);
    for (uint32_t left = engine->has_company ? HDI_COMMANDS_IN_COMPANY : HDI_COMMANDS_PER_VISIT;
         left > 0 && feed->issued != head && events < EVENTS_PER_VISIT;) {
        if (feed->entries - feed->entries_done >= engine->entries_most) {
            atomic_store_explicit(&feed->blocked, true, memory_order_relaxed);
            break; /* one more call might wait for the device, and all lanes with it */
        }
        uint64_t event_before = feed->event_last;
        const hdi_command *c = hdi_command_at(&engine->device->channel, feed->number, feed->issued);
        uint64_t slots = *(const volatile uint8_t *)&c->slots;
        if (__builtin_expect(slots - 1 >= head - feed->issued, 0)) { /* none, or more than there are */
            hdi_engine_lose(engine, HDI_GONE_NONSENSE);
            return true;
        }
        uint64_t end = feed->issued + slots;
        bool signalled = false, launches = c->op == HDI_OP_LAUNCH;
        int64_t before = engine->now;
        uint32_t n = issue_next(engine, feed, head, left, &end, &signalled);
        if (n == 0) {
            atomic_store_explicit(&feed->blocked, true, memory_order_relaxed);
            break;
        }
        if (hdi_device_lost(engine->device)) {
            return true;
        }
        left -= n;
        feed->issued = end;
        any = true;
        /* pairs with the acquire load in hdi_feed_wait of other engines */
        atomic_store_explicit(&shared->issued, feed->issued, memory_order_release);
        engine->now = hdi_clock_ns();
        hdi_pace_give(&feed->pace, launches ? n : 0, before, engine->now);
        follow_up(engine, feed, shared, c, signalled);
        if (launches && hdi_pace_wants_signal(&feed->pace, n, engine->chain_most, engine->now) &&
            feed->signalled != feed->issued) {
            hdi_feed_signal(engine, feed);
        }
        events += feed->event_last != event_before;
        if (engine->now >= until) {
            break;
        }
    }
    return any;
}

/* An operation that has been at the front of its lane for too long: its device is of no more use. */
static void watch(hdi_engine *engine, hdi_feed *feed, const hdi_pass *pass)
{
    if (feed->issued == feed->done || feed->front != feed->done || !feed->front_since) {
        feed->front = feed->done;
        feed->front_since = feed->issued == feed->done ? 0 : pass->now;
    } else if (pass->now - feed->front_since > engine->watchdog_ns) {
        if (hdi_lane_waits(engine->device, feed->number, feed->done, feed->issued)) {
            feed->front_since = pass->now;
        } else {
            atomic_store_explicit(&engine->shared->overdue, feed->number + 1, memory_order_release);
            hdi_engine_lose(engine, HDI_GONE_WATCHDOG);
        }
    }
}

#ifdef HDI_DEBUG
/* What always holds of a feed between two visits. */
static void check_feed(hdi_engine *engine, const hdi_feed *feed, uint64_t head)
{
    assert(feed->done <= feed->passed && feed->passed <= feed->issued && feed->issued <= head);
    assert(feed->signalled <= feed->issued && feed->event_last <= feed->issued);
    assert(head - feed->done <= engine->device->channel.slots);
    assert(feed->first_dependency <= feed->n_dependencies && feed->n_dependencies <= feed->dependencies_room);
    for (uint32_t i = feed->first_dependency + 1; i < feed->n_dependencies; i++) {
        assert(feed->dependencies[i - 1].position <= feed->dependencies[i].position);
    }
}
#endif

bool hdi_feed_visit(hdi_engine *engine, hdi_feed *feed, hdi_pass *pass)
{
    if (!atomic_load_explicit(&feed->made, memory_order_acquire)) {
        return false; /* never: pairs with the release store in hdi_feed_make, which is before the lane's first command */
    }
    hdi_lane_shared *shared = &engine->device->channel.lanes[feed->number];
    /* pairs with the submitters' store: the commands are written before `head` shows them */
    uint64_t head = atomic_load_explicit(&shared->head, memory_order_acquire);
    if (__builtin_expect(head - feed->done > engine->device->channel.slots || head < feed->issued, 0)) {
        hdi_engine_lose(engine, HDI_GONE_NONSENSE); /* more than the ring holds, or less than there was */
    }
    if (!hdi_device_lost(engine->device)) {
        if (feed->issued != head) {
            if (feed->issued == feed->done) {
                feed->checked = pass->now;
                if (!atomic_load_explicit(&feed->blocked, memory_order_relaxed)) {
                    atomic_store_explicit(&shared->moved, pass->now, memory_order_relaxed); /* only to be told */
                }
            }
            if (issue_some(engine, feed, shared, head)) {
                feed->idle_since = 0;
                pass->progress = true;
            }
        }
        uint64_t wanted = atomic_load_explicit(&shared->wanted_event, memory_order_relaxed);
        bool late = wanted > feed->event_last && wanted <= feed->issued && wanted > feed->done;
        uint64_t wanted_now = atomic_load_explicit(&shared->wanted_now, memory_order_relaxed);
        if (late || (wanted_now > feed->event_last && wanted_now <= feed->issued)) {
            record_event(engine, feed); /* the wish came after the command had been issued */
        }
        if (feed->issued != feed->signalled) {
            uint64_t host = atomic_load_explicit(&shared->wanted_host, memory_order_relaxed);
            bool stands = feed->issued == head || atomic_load_explicit(&feed->blocked, memory_order_relaxed);
            if (stands && !feed->idle_since) {
                feed->idle_since = pass->now;
            }
            if ((host > feed->signalled && (host <= feed->issued || stands)) ||
                (stands && pass->now - feed->idle_since > LINGER_NS)) {
                hdi_feed_signal(engine, feed);
            }
        }
        hdi_feed_reap(engine, feed, pass);
        if (__builtin_expect(engine->watchdog_ns != 0, 0)) {
            watch(engine, feed, pass);
        }
    }
    if (hdi_device_lost(engine->device)) {
        pass->progress |= drop(engine, feed);
    }
#ifdef HDI_DEBUG
    if (!hdi_device_lost(engine->device)) {
        check_feed(engine, feed, head);
    }
#endif
    pass->in_flight |= feed->done != head;
    return feed->issued != head && !atomic_load_explicit(&feed->blocked, memory_order_relaxed);
}

hdi_answer hdi_feed_make(hdi_engine *engine, uint32_t number, bool keeps_failure)
{
    hdi_device *device = engine->device;
    hdi_feed *feed = &engine->feeds[number];
    hdi_current current;
    hdi_answer answer = {.call = ""};
    answer.code = hdi_current_enter(device->runtime->driver, device->context, &current, &answer.call);
    if (!hdi_answered(answer)) {
        return answer;
    }
    if (!feed->stream) {
        answer.call = "cuStreamCreate";
        answer.code = device->runtime->driver->cuStreamCreate(&feed->stream, HDCU_STREAM_NON_BLOCKING);
    }
    hdi_current_leave(&current);
    if (!hdi_answered(answer)) {
        feed->stream = NULL;
        return answer;
    }
    /* Not 0 where an engine before this one was lost. */
    uint64_t position = atomic_load_explicit(&device->channel.lanes[number].done, memory_order_acquire);
    feed->number = number;
    feed->issued = feed->done = feed->passed = feed->signalled = feed->event_last = position;
    atomic_store_explicit(&device->channel.flags[number].position, (uint32_t)position, memory_order_relaxed);
    feed->tail = HDI_TAIL_KERNEL;
    feed->keeps_failure = keeps_failure;
    /* pairs with the acquire load in hdi_engine_lose, and precedes the first command of the lane */
    atomic_store_explicit(&feed->made, true, memory_order_release);
    return answer;
}
