/* spans.c - see spans.h for threads, locks and invariants. */
#include "engine/spans.h"
#include <stdlib.h>
#include "base/wait.h"
#include "engine/activities.h"
#include "engine/stream.h"
#include "engine/stream_pool.h"

#define STANDS_NS 500 /* a span ends once its lane was without commands for this time */
/* the time between two comparisons of the device's own time with the clock */
#define CLOCK_EVERY_NS 500000000
/* The delay after a comparison that failed or was not close; it doubles each time. */
#define CLOCK_AGAIN_NS 20000000
/* a comparison that is at least this exact counts as close, and need not be repeated soon */
#define CLOCK_CLOSE_NS 20000
/* The device gets this long to pass one event. If the device needs longer, other work occupies the
 * stream's queue. */
#define CLOCK_WAIT_NS 60000
#define CLOCK_FIRST_NS 1000000 /* the same limit, until a comparison succeeded */
/* the same limit at the end of a trace: without any comparison no span gets a time */
#define CLOCK_LAST_NS 20000000
#define CLOCK_TRIES 6
/* The longest time between two events that have no work between them. If two events are farther
 * apart, there was work in between. */
#define APART_MOST_NS 4000
/* On H200s, a kernel begins this much later than the event in front of it. */
#define KERNEL_NS 700
/* The longest time from the return of a call until the device passes its event. If it takes longer,
 * other work was in front of the event. */
#define WAY_MOST_NS 6000
#define CLOCK_COST_NS 100000 /* a comparison that took this long is not tried again */
/* the engine asks for times once no work was given or done for this time */
#define IDLE_NS 10000
/* The engine asks for times at least this often. Then it asks in each pass, until all spans have
 * their times. */
#define UNSETTLED_NS 20000000
/* if the budget limits events, the engine asks for the time of one event this often */
#define SETTLE_ONE_NS 200000
/* For this time after a call, the engine assumes that the device is busy, and that no thread waits
 * for the engine. */
#define GIVEN_NS 1000
/* The most spans that get times in one pass: each may cost the driver several microseconds. */
#define SETTLED_AT_ONCE 2
#define OPEN_NS 100000000 /* a span that is open for longer than this ends with the next signal */
/* how long the end of a trace waits for spans whose operations are not done */
#define ENDING_NS 200000000
/* the budget for events at first; 1 / BUDGET_SHARE of all time is added to it */
#define BUDGET_FIRST_NS 1000000
#define BUDGET_SHARE 200
/* If a busy lane begins another span, the budget is this many times as large, since no signal shows
 * where that span begins. */
#define BUDGET_WITHIN 20
#define EACH_NS 3000 /* the assumed cost of asking for one event, until it is measured */

/* ---- the budget ---- */

/* In the placement inline the budget does not apply. There the engine sees an end only when the
 * program calls, which may be long after the end. */
static bool spans_are_limited(const hdi_engine *engine)
{
    return engine->recording.detail != HDI_RECORD_DETAIL_FULL && !engine->device->runtime->is_inline;
}

/* True if one more event fits into `times` times the budget. */
static bool spans_can_spend(const hdi_engine *engine, int64_t times)
{
    const hdi_recording *r = &engine->recording;
    int64_t most = times * (BUDGET_FIRST_NS + (engine->now - r->since) / BUDGET_SHARE);
    return !spans_are_limited(engine) || r->spent + (int64_t)r->unsettled * r->each < most;
}

/* Adds the time since `from` to the part of the budget that is spent. */
static void spans_spend(hdi_engine *engine, int64_t from)
{
    engine->now = hdi_clock_ns();
    engine->recording.spent += engine->now - from;
}

/* ---- records ---- */

static void spans_put(hdi_engine *engine, hdi_record *record)
{
    hdi_record_ring *ring = engine->device->channel.records;
    record->device = (uint8_t)engine->device->index;
    hdi_ring_put(ring, record);
}

static uint32_t spans_global_lane(const hdi_engine *engine, const hdi_stream *stream)
{
    return (uint32_t)engine->device->index * HDI_LANES_MAX + stream->number;
}

/* ---- the device's own time and the clock ---- */

/* Reads the time of an event, which is then unused again. False: the event got no time. */
static bool spans_take_time(hdi_engine *engine, hdcu_event event, int64_t *ns)
{
    hdi_time_read found = hdi_times_read(engine, event, ns);
    if (found == HDI_TIME_NOT_YET) {
        hdi_times_give(engine, event);
    }
    return found == HDI_TIME_READ;
}

/* Records two events in a separate stream, one right behind the other. Reads the second one with
 * the clock on both sides. False: the device did not reach it in time. */
static bool spans_measure_clocks(hdi_engine *engine, hdi_record *record)
{
    const hdi_driver *driver = engine->device->runtime->driver;
    hdi_recording *recording = &engine->recording;
    hdcu_event first = NULL, event = NULL;
    if (hdi_times_take(engine, &first) != HDCU_SUCCESS || hdi_times_take(engine, &event) != HDCU_SUCCESS) {
        hdi_times_give(engine, first);
        return false;
    }
    int64_t most = recording->compared ? CLOCK_WAIT_NS : recording->ending ? CLOCK_LAST_NS : CLOCK_FIRST_NS;
    hdcu_result r = driver->cuEventRecord(first, recording->stream);
    int64_t before = hdi_clock_ns(), behind = before;
    r = r == HDCU_SUCCESS ? driver->cuEventRecord(event, recording->stream) : r;
    int64_t returned = hdi_clock_ns();
    bool asks = r == HDCU_SUCCESS;
    while (asks) {
        r = driver->cuEventQuery(event);
        behind = hdi_clock_ns();
        asks = r == HDCU_ERROR_NOT_READY && behind - before < most;
    }
    if (r != HDCU_SUCCESS) {
        hdi_times_give(engine, first);
        hdi_times_give(engine, event);
        return false;
    }
    int64_t own, own_first;
    bool has_first = spans_take_time(engine, first, &own_first);
    if (!spans_take_time(engine, event, &own) || !has_first) {
        return false;
    }
    recording->compared = true;
    recording->apart = own - own_first < recording->apart ? own - own_first : recording->apart;
    int64_t within = (behind - before) / 2;
    if (!recording->way_within || within < recording->way_within) {
        recording->way_within = within;
        recording->way = before + within - returned;
    }
    if (!record->clock.within || within < record->clock.within) {
        *record = (hdi_record){.clock = {.time = before + within, .own = own, .within = within ? within : 1}};
    }
    return true;
}

static void spans_compare_clocks(hdi_engine *engine)
{
    hdi_recording *recording = &engine->recording;
    if (!recording->stream && hdi_stream_pool_take(engine->device, &recording->stream) != HDCU_SUCCESS) {
        recording->stream = NULL;
        recording->clock_at = engine->now + CLOCK_EVERY_NS;
        return;
    }
    hdi_record record = {.clock = {.within = 0}};
    bool any = false, is_first = !recording->clock_at;
    int64_t from = hdi_clock_ns();
    for (int i = 0;
         i < CLOCK_TRIES && (i == 0 || engine->now - from < CLOCK_COST_NS) && spans_measure_clocks(engine, &record);
         i++) {
        any = true;
        engine->now = hdi_clock_ns();
    }
    if (any) {
        record.type = HDI_RECORD_CLOCK;
        spans_put(engine, &record);
    }
    spans_spend(engine, from);
    if (is_first) {
        recording->spent = 0; /* a short trace needs the budget for its spans */
    }
    bool close = any && record.clock.within < CLOCK_CLOSE_NS;
    int64_t again = any && recording->clock_again ? 2 * recording->clock_again : CLOCK_AGAIN_NS;
    again = close || again > CLOCK_EVERY_NS ? CLOCK_EVERY_NS : again;
    recording->clock_again = close ? 0 : again;
    recording->clock_at = engine->now + again;
}

/* ---- times of spans ---- */

/* Puts a span whose begin and end are known into the trace. The device passes an event in front of
 * work too early, and an event behind the work too late. The sum of both errors is the time between
 * two events that have no work between them. So this function moves the begin and the end by half
 * of that time. The begin of a kernel moves further. If the lane was idle, the span begins when the
 * work reached the device. */
static void span_put(hdi_engine *engine, const hdi_stream *stream, const hdi_span *span, int64_t began, int64_t ended)
{
    const hdi_recording *r = &engine->recording;
    int64_t half = r->apart < APART_MOST_NS ? r->apart / 2 : 0;
    bool by_event = span->began || span->follows, is_host = engine->device->runtime->provider->is_host;
    bool has_way = !is_host && !span->by_library && r->way < WAY_MOST_NS && r->way > half;
    bool by_kernel = !is_host && span->op == HDI_RECORD_OP_LAUNCH;
    int64_t way = has_way ? r->way - half : 0;
    began += by_event ? half + (by_kernel ? KERNEL_NS : 0) : way;
    ended -= span->ended ? half : 0;
    began = by_event == (span->ended != NULL) && began > ended ? ended : began;
    hdi_record record = {.span = {.time = engine->now,
                                  .lane = spans_global_lane(engine, stream),
                                  .way = (uint32_t)way,
                                  .before = span->before,
                                  .position = span->position,
                                  .began = began,
                                  .ended = ended,
                                  .op = span->op,
                                  .by_clock = (by_event ? 0 : HDI_RECORD_SPAN_BEGAN_BY_CLOCK) |
                                              (span->ended ? 0 : HDI_RECORD_SPAN_ENDED_BY_CLOCK)}};
    record.type = HDI_RECORD_SPAN;
    record.kind = span->one ? HDI_RECORD_SPAN_ONE : HDI_RECORD_SPAN_EDGES;
    spans_put(engine, &record);
}

/* False: the driver does not know the times yet. */
static bool span_settle(hdi_engine *engine, const hdi_stream *stream, const hdi_span *span)
{
    hdi_spans *spans = stream->spans;
    int64_t began = span->follows ? spans->ended_at : span->began_at, ended = 0;
    hdi_time_read found = hdi_times_read(engine, span->ended, &ended);
    if (found == HDI_TIME_NOT_YET) {
        return false;
    }
    bool has_first = span->follows ? spans->has_ended : !span->began || spans_take_time(engine, span->began, &began);
    spans->has_ended = found == HDI_TIME_READ;
    spans->ended_at = ended;
    if (found == HDI_TIME_READ && has_first) {
        span_put(engine, stream, span, began, ended);
    }
    return true;
}

/* Records up to `most` spans that the device passed and whose times are known. Returns their
 * number. */
static uint32_t spans_settle(hdi_engine *engine, hdi_stream *stream, uint32_t most)
{
    hdi_spans *spans = stream->spans;
    uint32_t n = 0;
    while (spans->n && n < most) {
        hdi_span *span = &spans->at[spans->first];
        if (!span->ended || span->position > stream->passed || !span_settle(engine, stream, span)) {
            break;
        }
        spans->first = (spans->first + 1) % HDI_SPANS_MOST;
        spans->n--;
        engine->recording.unsettled--;
        n++;
    }
    return n;
}

/* Calls spans_settle for all lanes, for up to `most` spans in all. */
static void spans_settle_some(hdi_engine *engine, uint32_t most)
{
    hdi_recording *r = &engine->recording;
    int64_t from = hdi_clock_ns();
    uint32_t left = most;
    for (uint32_t i = 0; i < HDI_LANES_MAX && left && engine->recording.unsettled; i++) {
        if (engine->streams[i].spans && !hdi_device_lost(engine->device)) {
            left -= spans_settle(engine, &engine->streams[i], left);
        }
    }
    spans_spend(engine, from);
    if (left < most) {
        r->each += ((engine->now - from) / (most - left) - r->each) / 4;
    }
    if (left || spans_are_limited(engine)) {
        r->settled_at = engine->now; /* if some are left, they follow in the next pass */
    }
}

/* Asks the driver for times of spans, if it is time to do so. */
static void spans_settle_in_time(hdi_engine *engine)
{
    const hdi_recording *r = &engine->recording;
    int64_t since = engine->now - r->settled_at, quiet = engine->now - r->active_at;
    if (quiet > IDLE_NS || (!spans_are_limited(engine) && since > UNSETTLED_NS)) {
        spans_settle_some(engine, SETTLED_AT_ONCE);
    } else if (spans_are_limited(engine) && since > SETTLE_ONE_NS && (quiet < GIVEN_NS || since > UNSETTLED_NS)) {
        spans_settle_some(engine, 1);
    }
}

/* ---- spans ---- */

/* HDI_RECORD_OP_* of the device's work; 0: none. */
static uint8_t span_op(unsigned op)
{
    switch (op) {
    case HDI_OP_LAUNCH:
    case HDI_OP_FILL:
    case HDI_OP_MATMUL:
    case HDI_OP_CALL:
        return HDI_RECORD_OP_LAUNCH;
    case HDI_OP_COPY:
    case HDI_OP_COPY_BOX:
        return HDI_RECORD_OP_COPY;
    default:
        return 0;
    }
}

static hdi_span *spans_last(hdi_spans *spans)
{
    return &spans->at[(spans->first + spans->n - 1) % HDI_SPANS_MOST];
}

static bool span_has_begun(const hdi_span *span)
{
    return span->position != span->before;
}

/* Records an event behind all issued work. NULL: the driver refused. */
static hdcu_event span_mark(hdi_engine *engine, const hdi_stream *stream)
{
    hdcu_event event;
    if (hdi_times_take(engine, &event) != HDCU_SUCCESS) {
        return NULL;
    }
    int64_t from = hdi_clock_ns();
    hdcu_result r = engine->device->runtime->driver->cuEventRecord(event, stream->handle);
    spans_spend(engine, from);
    if (r == HDCU_SUCCESS) {
        return event;
    }
    hdi_times_give(engine, event);
    if (hdi_driver_code_is_fatal(r)) {
        hdi_engine_lose(engine, r);
    }
    return NULL;
}

static hdi_span *spans_last_clocked(hdi_spans *spans)
{
    return &spans->clocked[(spans->first_clocked + spans->n_clocked - 1) % HDI_SPANS_CLOCKED];
}

/* If the engine has not seen the end of the last span, adds the work to that span. False: there is
 * no such span, or an event can mark the begin of a new span. */
static bool span_go_on(hdi_engine *engine, const hdi_stream *stream, uint8_t op)
{
    hdi_spans *spans = stream->spans;
    const hdi_span *last = spans->n_clocked ? spans_last_clocked(spans) : NULL;
    if (!last || spans->cut || last->op != op || last->position != stream->issued || spans_can_spend(engine, 1)) {
        return false;
    }
    spans->n++;
    engine->recording.unsettled++;
    *spans_last(spans) = *last;
    spans->n_clocked--;
    return spans->open = true;
}

/* True if the event that ends the last span is the last thing in the lane's stream. */
static bool span_ends_here(const hdi_stream *stream)
{
    hdi_spans *spans = stream->spans;
    const hdi_span *last = spans->n && !spans->open && !spans->cut ? spans_last(spans) : NULL;
    return last && last->ended && last->position == stream->issued && stream->signalled != stream->issued &&
           stream->event_last != stream->issued;
}

/* Begins a span. In a busy lane it begins with an event; without an event there is no span. */
static void span_begin(hdi_engine *engine, hdi_stream *stream, uint8_t op)
{
    hdi_spans *spans = stream->spans;
    if (spans->n >= HDI_SPANS_MOST / 2) {
        spans_settle(engine, stream, SETTLED_AT_ONCE);
    }
    bool at_rest = stream->passed == stream->issued;
    if (spans->n == HDI_SPANS_MOST) {
        hdi_record_ring *ring = engine->device->channel.records;
        atomic_fetch_add_explicit(&ring->dropped, 1, memory_order_relaxed);
        return;
    }
    if (!at_rest && (span_go_on(engine, stream, op) || !spans_can_spend(engine, BUDGET_WITHIN))) {
        return;
    }
    bool follows = !at_rest && span_ends_here(stream);
    hdcu_event event = at_rest || follows ? NULL : span_mark(engine, stream);
    if (!event && !at_rest && !follows) {
        return;
    }
    spans->n++;
    engine->recording.unsettled++;
    spans->opened_at = engine->now;
    *spans_last(spans) = (hdi_span){.began = event,
                                    .before = stream->issued,
                                    .position = stream->issued,
                                    .op = op,
                                    .follows = follows,
                                    .one = engine->recording.detail == HDI_RECORD_DETAIL_FULL};
    spans->open = true;
}

/* Removes the last span. */
static void spans_drop_last(hdi_engine *engine, hdi_spans *spans)
{
    hdi_times_give(engine, spans_last(spans)->began);
    spans->n--;
    spans->open = false;
    engine->recording.unsettled--;
}

/* Ends the last span by the clock: at the time when the engine sees the signal behind the span, or
 * now. */
static void span_close_by_clock(hdi_engine *engine, hdi_stream *stream)
{
    hdi_spans *spans = stream->spans;
    spans->n_clocked++;
    *spans_last_clocked(spans) = *spans_last(spans);
    spans_drop_last(engine, spans);
    if (spans_last_clocked(spans)->position <= stream->passed) {
        hdi_spans_end(engine, stream);
    } else if (stream->signalled != stream->issued) {
        hdi_stream_signal(engine, stream);
    }
}

/* Ends the last span: from here on the device may lack work of the lane. */
static void span_close(hdi_engine *engine, hdi_stream *stream)
{
    hdi_spans *spans = stream->spans;
    if (!spans || !spans->open || hdi_device_lost(engine->device)) {
        return;
    }
    hdi_span *span = spans_last(spans);
    if (!span_has_begun(span) && !engine->recording.ending) {
        return; /* the span's first operation comes next */
    }
    if (span_has_begun(span) && !span->began && !span->follows && spans->n_clocked < HDI_SPANS_CLOCKED &&
        !spans_can_spend(engine, 1)) {
        span_close_by_clock(engine, stream);
        return;
    }
    hdcu_event event = span_has_begun(span) ? span_mark(engine, stream) : NULL;
    if (event) {
        span->ended = event;
        spans->open = false;
    } else {
        spans_drop_last(engine, spans);
    }
}

/* True if the driver may load code in its call for the command. A kernel may have been launched
 * before, but as long as no launch was seen to end, it counts as new. */
static bool spans_may_load(const hdi_engine *engine, const hdi_stream *stream, const hdi_command *c)
{
    hdi_spans *spans = stream->spans;
    bool first_product = c->op == HDI_OP_MATMUL && !spans->has_product;
    spans->has_product |= first_product;
    bool first_launch = c->op == HDI_OP_LAUNCH && engine->chain_most && hdi_chain_is_new(engine, c->kernel);
    for (uint32_t i = 0; i < stream->n_new && first_launch; i++) {
        first_launch = stream->new_kernels[i].kernel != c->kernel;
    }
    return first_product || first_launch;
}

void hdi_span_before(hdi_engine *engine, hdi_stream *stream, const hdi_command *c)
{
    uint8_t op = span_op(c->op);
    stream->refused = false;
    if (!op || stream->failed || engine->recording.ending || hdi_device_lost(engine->device)) {
        return;
    }
    if (!stream->spans && !(stream->spans = calloc(1, sizeof *stream->spans))) {
        return;
    }
    hdi_spans *spans = stream->spans;
    spans->stood_at = 0;
    if (spans->open && !span_has_begun(spans_last(spans))) {
        spans_drop_last(engine, spans); /* the first operation of the span was not issued */
    }
    bool loads = spans_may_load(engine, stream, c);
    if (spans->open && (loads || spans_last(spans)->op != op)) {
        span_close(engine, stream);
    }
    if (!spans->open) {
        span_begin(engine, stream, op);
    }
    spans->cut = false;
}

bool hdi_span_behind(hdi_engine *engine, hdi_stream *stream, const hdi_command *c)
{
    hdi_spans *spans = stream->spans;
    bool is_work = span_op(c->op) != 0;
    if (!is_work || !spans || !spans->open || stream->refused) {
        return is_work;
    }
    hdi_span *last = spans_last(spans);
    if (!span_has_begun(last)) {
        last->began_at = engine->now;
        last->by_library = c->op == HDI_OP_MATMUL || c->op == HDI_OP_CALL;
    }
    last->position = stream->issued;
    if (last->one) {
        span_close(engine, stream);
    }
    return true;
}

void hdi_span_record_issue(hdi_engine *engine, const hdi_stream *stream, uint64_t from, uint32_t count, int64_t given,
                           int64_t returned)
{
    engine->recording.active_at = returned;
    hdi_record record = {.issue = {.time = given,
                                   .lane = spans_global_lane(engine, stream),
                                   .count = count,
                                   .before = from,
                                   .position = stream->issued,
                                   .returned = returned}};
    record.type = HDI_RECORD_ISSUE;
    record.kind = stream->refused;
    spans_put(engine, &record);
}

void hdi_span_cut(hdi_engine *engine, hdi_stream *stream)
{
    span_close(engine, stream);
    if (stream->spans) {
        stream->spans->cut = true;
    }
}

void hdi_spans_end(hdi_engine *engine, hdi_stream *stream)
{
    hdi_spans *spans = stream->spans;
    while (spans->n_clocked && spans->clocked[spans->first_clocked].position <= stream->passed) {
        const hdi_span *span = &spans->clocked[spans->first_clocked];
        span_put(engine, stream, span, span->began_at, engine->now);
        spans->first_clocked = (spans->first_clocked + 1) % HDI_SPANS_CLOCKED;
        spans->n_clocked--;
    }
}

void hdi_span_signal(hdi_engine *engine, hdi_stream *stream)
{
    const hdi_lane_shared *shared = &engine->device->channel.lanes[stream->number];
    bool goes_on = atomic_load_explicit(&shared->head, memory_order_relaxed) != stream->issued;
    if (!goes_on || (stream->spans && engine->now - stream->spans->opened_at > OPEN_NS)) {
        span_close(engine, stream);
    }
}

void hdi_span_stand(hdi_engine *engine, hdi_stream *stream, int64_t now)
{
    hdi_spans *spans = stream->spans;
    if (!spans || !spans->open || stream->entries - stream->entries_done >= engine->entries_most) {
        return; /* if the queue is full, the device has more than enough work */
    }
    bool comes_again = !engine->device->runtime->is_inline; /* the engine soon visits again */
    if (!spans->stood_at && comes_again) {
        spans->stood_at = now;
    } else if ((!comes_again || now - spans->stood_at > STANDS_NS) && spans_can_spend(engine, 1)) {
        /* In the other case the span ends with the signal that a standing lane soon gets. */
        span_close(engine, stream);
    }
}

void hdi_span_record_behind(hdi_engine *engine, const hdi_stream *stream, uint64_t before, uint32_t other_lane,
                            uint64_t other_position)
{
    hdi_record record = {.behind = {.time = engine->now,
                                    .lane = spans_global_lane(engine, stream),
                                    .other_lane = other_lane,
                                    .before = before,
                                    .other_position = other_position}};
    record.type = HDI_RECORD_BEHIND;
    spans_put(engine, &record);
}

void hdi_span_record_done(hdi_engine *engine, const hdi_stream *stream, uint64_t before)
{
    hdi_record record = {.done = {.time = engine->now,
                                  .lane = spans_global_lane(engine, stream),
                                  .before = before,
                                  .position = stream->done}};
    record.type = HDI_RECORD_DONE;
    spans_put(engine, &record);
}

/* ---- beginning and end ---- */

/* Drops the spans that are still open or without times. */
static void spans_forget(hdi_engine *engine, hdi_stream *stream)
{
    hdi_spans *spans = stream->spans;
    for (; spans && spans->n; spans->n--) {
        hdi_span *span = &spans->at[spans->first];
        hdi_times_give(engine, span->began);
        hdi_times_give(engine, span->ended);
        spans->first = (spans->first + 1) % HDI_SPANS_MOST;
        engine->recording.unsettled--;
    }
    if (spans) {
        spans->open = false;
        spans->n_clocked = 0;
    }
}

/* Takes over the detail that the application wants. */
static void spans_switch_detail(hdi_engine *engine)
{
    hdi_recording *recording = &engine->recording;
    uint32_t wanted = atomic_load_explicit(&engine->shared->recording, memory_order_acquire);
    if (wanted == recording->detail || recording->ending) {
        return;
    }
    if (wanted) {
        recording->detail = wanted;
        recording->since = engine->now;
        recording->spent = 0;
        recording->each = EACH_NS;
        recording->clock_at = recording->clock_again = 0;
        recording->compared = false;
        recording->apart = recording->way = INT64_MAX;
        recording->way_within = 0;
        atomic_store_explicit(&engine->shared->recorded, wanted, memory_order_release);
    } else {
        recording->ending = true;
        recording->end_by = engine->now + ENDING_NS;
        recording->clock_at = 0;
    }
}

/* Records the remaining spans, if possible. True: no span is left. */
static bool spans_end_all(hdi_engine *engine)
{
    bool lost = hdi_device_lost(engine->device);
    bool late = engine->now >= engine->recording.end_by;
    uint32_t left = 0;
    for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
        hdi_stream *stream = &engine->streams[i];
        if (!stream->spans) {
            continue;
        }
        if (!lost) {
            span_close(engine, stream);
            spans_settle(engine, stream, HDI_SPANS_MOST);
        }
        if (lost || late) {
            spans_forget(engine, stream);
        }
        left += stream->spans->n + stream->spans->n_clocked;
    }
    return left == 0 && (engine->recording.compared || lost || late);
}

void hdi_recording_pass(hdi_engine *engine)
{
    hdi_recording *recording = &engine->recording;
    spans_switch_detail(engine);
    if (recording->detail && engine->now >= recording->clock_at && !hdi_device_lost(engine->device)) {
        spans_compare_clocks(engine);
    }
    if (recording->unsettled) {
        spans_settle_in_time(engine);
    }
    if (recording->detail == HDI_RECORD_DETAIL_CUPTI) {
        hdi_engine_activities_take(engine);
    }
    if (recording->ending && spans_end_all(engine)) {
        recording->ending = false;
        recording->detail = 0;
        atomic_store_explicit(&engine->shared->recorded, 0, memory_order_release);
    }
}

void hdi_recording_end(hdi_engine *engine, bool driver_usable)
{
    const hdi_driver *driver = engine->device->runtime->driver;
    for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
        hdi_spans *spans = engine->streams[i].spans;
        for (uint32_t s = 0; driver_usable && spans && s < spans->n; s++) {
            hdi_span *span = &spans->at[(spans->first + s) % HDI_SPANS_MOST];
            if (span->began) {
                driver->cuEventDestroy(span->began);
            }
            if (span->ended) {
                driver->cuEventDestroy(span->ended);
            }
        }
        free(spans);
        engine->streams[i].spans = NULL;
    }
    hdi_stream_pool_put(engine->device, engine->recording.stream, driver_usable);
    hdi_engine_activities_release(engine, driver_usable);
    engine->recording = (hdi_recording){.detail = 0};
    atomic_store_explicit(&engine->shared->recorded, 0, memory_order_release);
}
