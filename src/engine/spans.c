/* spans.c - see spans.h for threads, locks and what always holds. */
#include "engine/spans.h"
#include <stdlib.h>
#include "base/wait.h"
#include "engine/activities.h"
#include "engine/stream.h"

#define STANDS_NS 500            /* a lane that has no more commands for so long: its span ends */
#define CLOCK_EVERY_NS 500000000 /* between comparisons of the device's own time with the clock */
#define CLOCK_AGAIN_NS 20000000  /* after one that gave nothing */
#define CLOCK_WAIT_NS 60000      /* for the device to pass one event: else the queue of the stream is not free */
#define CLOCK_FIRST_NS 1000000   /* the same, while there was no comparison yet */
#define CLOCK_TRIES 6
#define IDLE_NS 10000         /* without anything given or done: time to ask for times */
#define UNSETTLED_NS 20000000 /* they are asked for at least so often */
#define SETTLED_AT_ONCE 2     /* spans, in one pass: each may cost the driver several microseconds */
#define OPEN_NS 100000000     /* a span that is open for longer ends with the next signal */
#define ENDING_NS 200000000   /* for spans whose operations are not done when the trace ends */

static void put(hdi_engine *engine, hdi_record *record)
{
    record->device = (uint8_t)engine->device->index;
    hdi_ring_put(engine->device->channel.records, record);
}

static uint32_t global_of(const hdi_engine *engine, const hdi_stream *stream)
{
    return (uint32_t)engine->device->index * HDI_LANES_MAX + stream->number;
}

/* ---- the device's own time and the clock ---- */

/* An event of its own stream, read with the clock on both sides. False: the device did not come to it in time. */
static bool compare(hdi_engine *engine, hdi_record *record)
{
    const hdi_driver *driver = engine->device->runtime->driver;
    hdi_recording *recording = &engine->recording;
    hdcu_event event;
    if (hdi_times_take(engine, &event) != HDCU_SUCCESS) {
        return false;
    }
    int64_t most = recording->compared ? CLOCK_WAIT_NS : CLOCK_FIRST_NS;
    int64_t before = hdi_clock_ns(), behind = before;
    hdcu_result r = driver->cuEventRecord(event, recording->stream);
    bool asks = r == HDCU_SUCCESS;
    while (asks) {
        r = driver->cuEventQuery(event);
        behind = hdi_clock_ns();
        asks = r == HDCU_ERROR_NOT_READY && behind - before < most;
    }
    int64_t own;
    if (r != HDCU_SUCCESS || hdi_times_read(engine, event, &own) != HDI_TIME_READ) {
        hdi_times_give(engine, event);
        return false;
    }
    recording->compared = true;
    int64_t within = (behind - before) / 2;
    if (!record->clock.within || within < record->clock.within) {
        *record = (hdi_record){.clock = {.time = before + within, .own = own, .within = within ? within : 1}};
    }
    return true;
}

static void compare_clocks(hdi_engine *engine)
{
    const hdi_driver *driver = engine->device->runtime->driver;
    hdi_recording *recording = &engine->recording;
    if (!recording->stream && driver->cuStreamCreate(&recording->stream, HDCU_STREAM_NON_BLOCKING) != HDCU_SUCCESS) {
        recording->stream = NULL;
        recording->clock_at = engine->now + CLOCK_EVERY_NS;
        return;
    }
    hdi_record record = {.clock = {.within = 0}};
    bool any = false;
    for (int i = 0; i < CLOCK_TRIES && compare(engine, &record); i++) {
        any = true;
    }
    if (any) {
        record.type = HDI_RECORD_CLOCK;
        put(engine, &record);
    }
    engine->now = hdi_clock_ns();
    recording->clock_at = engine->now + (any ? CLOCK_EVERY_NS : CLOCK_AGAIN_NS);
}

/* ---- times of spans ---- */

/* False: the driver does not have the times yet. */
static bool settle_one(hdi_engine *engine, const hdi_stream *stream, const hdi_span *span)
{
    int64_t began = span->began_at, ended = 0;
    hdi_time_read found = hdi_times_read(engine, span->ended, &ended), first = HDI_TIME_READ;
    if (found == HDI_TIME_NOT_YET) {
        return false;
    }
    if (span->began) {
        first = hdi_times_read(engine, span->began, &began);
        if (first == HDI_TIME_NOT_YET) {
            hdi_times_give(engine, span->began);
        }
    }
    if (found != HDI_TIME_READ || first != HDI_TIME_READ) {
        return true;
    }
    hdi_record record = {.span = {.time = engine->now,
                                  .lane = global_of(engine, stream),
                                  .before = span->before,
                                  .position = span->position,
                                  .began = began,
                                  .ended = ended,
                                  .op = span->op,
                                  .by_clock = !span->began}};
    record.type = HDI_RECORD_SPAN;
    record.kind = span->one ? HDI_RECORD_SPAN_ONE : HDI_RECORD_SPAN_EDGES;
    put(engine, &record);
    return true;
}

/* Records the spans that the device has passed, `most` at most, whose times there are. Returns how many. */
static uint32_t settle(hdi_engine *engine, hdi_stream *stream, uint32_t most)
{
    hdi_spans *spans = stream->spans;
    uint32_t n = 0;
    while (spans->n && n < most) {
        hdi_span *span = &spans->at[spans->first];
        if (!span->ended || span->position > stream->passed || !settle_one(engine, stream, span)) {
            break;
        }
        spans->first = (spans->first + 1) % HDI_SPANS_MOST;
        spans->n--;
        engine->recording.unsettled--;
        n++;
    }
    return n;
}

static void settle_some(hdi_engine *engine)
{
    uint32_t left = SETTLED_AT_ONCE;
    for (uint32_t i = 0; i < HDI_LANES_MAX && left && engine->recording.unsettled; i++) {
        if (engine->streams[i].spans && !hdi_device_lost(engine->device)) {
            left -= settle(engine, &engine->streams[i], left);
        }
    }
    if (left) {
        engine->recording.settled_at = engine->now; /* else the rest in the next pass */
    }
}

/* ---- beginning and end ---- */

/* Leaves out the spans that are still out. */
static void forget(hdi_engine *engine, hdi_stream *stream)
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
    }
}

/* Takes in what the application wants. */
static void switch_detail(hdi_engine *engine)
{
    hdi_recording *recording = &engine->recording;
    uint32_t wanted = atomic_load_explicit(&engine->shared->recording, memory_order_acquire);
    if (wanted == recording->detail || recording->ending) {
        return;
    }
    if (wanted) {
        recording->detail = wanted;
        recording->clock_at = 0;
        recording->compared = false;
        atomic_store_explicit(&engine->shared->recorded, wanted, memory_order_release);
    } else {
        recording->ending = true;
        recording->end_by = engine->now + ENDING_NS;
        recording->clock_at = 0;
    }
}

/* Records what can be of the spans that are out. True: none is left. */
static bool end_spans(hdi_engine *engine)
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
            hdi_span_close(engine, stream);
            settle(engine, stream, HDI_SPANS_MOST);
        }
        if (lost || late) {
            forget(engine, stream);
        }
        left += stream->spans->n;
    }
    return left == 0 && (engine->recording.compared || lost || late);
}

void hdi_recording_pass(hdi_engine *engine)
{
    hdi_recording *recording = &engine->recording;
    switch_detail(engine);
    if (recording->detail && engine->now >= recording->clock_at && !hdi_device_lost(engine->device)) {
        compare_clocks(engine);
    }
    if (recording->unsettled &&
        (engine->now - recording->active_at > IDLE_NS || engine->now - recording->settled_at > UNSETTLED_NS)) {
        settle_some(engine);
    }
    if (recording->detail == HDI_RECORD_DETAIL_CUPTI) {
        hdi_engine_activities_take(engine);
    }
    if (recording->ending && end_spans(engine)) {
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
    if (driver_usable && engine->recording.stream) {
        driver->cuStreamDestroy(engine->recording.stream);
    }
    hdi_engine_activities_release(engine, driver_usable);
    engine->recording = (hdi_recording){.detail = 0};
    atomic_store_explicit(&engine->shared->recorded, 0, memory_order_release);
}

/* ---- spans ---- */

/* HDI_RECORD_OP_* of work that the device does; 0: none. */
static uint8_t op_of(unsigned op)
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

static hdi_span *last_of(hdi_spans *spans)
{
    return &spans->at[(spans->first + spans->n - 1) % HDI_SPANS_MOST];
}

/* Records an event behind what was issued. NULL: the driver refused. */
static hdcu_event mark(hdi_engine *engine, const hdi_stream *stream)
{
    hdcu_event event;
    if (hdi_times_take(engine, &event) != HDCU_SUCCESS) {
        return NULL;
    }
    hdcu_result r = engine->device->runtime->driver->cuEventRecord(event, stream->handle);
    if (r == HDCU_SUCCESS) {
        return event;
    }
    hdi_times_give(engine, event);
    if (hdi_driver_code_is_fatal(r)) {
        hdi_engine_lose(engine, r);
    }
    return NULL;
}

static void begin(hdi_engine *engine, hdi_stream *stream, uint8_t op)
{
    hdi_spans *spans = stream->spans;
    if (spans->n >= HDI_SPANS_MOST / 2) {
        settle(engine, stream, SETTLED_AT_ONCE);
    }
    bool at_rest = stream->passed == stream->issued, full = spans->n == HDI_SPANS_MOST;
    hdcu_event event = at_rest || full ? NULL : mark(engine, stream);
    if (full || (!event && !at_rest)) {
        hdi_record_ring *ring = engine->device->channel.records;
        atomic_fetch_add_explicit(&ring->dropped, 1, memory_order_relaxed);
        return;
    }
    spans->n++;
    engine->recording.unsettled++;
    spans->opened_at = engine->now;
    *last_of(spans) = (hdi_span){.began = event,
                                 .before = stream->issued,
                                 .position = stream->issued,
                                 .op = op,
                                 .one = engine->recording.detail == HDI_RECORD_DETAIL_FULL};
    spans->open = true;
}

/* Takes the last span back. */
static void drop_last(hdi_engine *engine, hdi_spans *spans)
{
    hdi_times_give(engine, last_of(spans)->began);
    spans->n--;
    spans->open = false;
    engine->recording.unsettled--;
}

void hdi_span_before(hdi_engine *engine, hdi_stream *stream, const hdi_command *c)
{
    uint8_t op = op_of(c->op);
    if (!op || engine->recording.ending || hdi_device_lost(engine->device)) {
        return;
    }
    if (!stream->spans && !(stream->spans = calloc(1, sizeof *stream->spans))) {
        return;
    }
    hdi_spans *spans = stream->spans;
    spans->stood_at = 0;
    if (spans->open && last_of(spans)->position == last_of(spans)->before) {
        drop_last(engine, spans); /* what it began with did not happen */
    }
    if (spans->open && last_of(spans)->op != op) {
        hdi_span_close(engine, stream);
    }
    if (!spans->open) {
        begin(engine, stream, op);
    }
}

void hdi_span_behind(hdi_engine *engine, hdi_stream *stream, const hdi_command *c, uint64_t end, uint32_t count,
                     int64_t given)
{
    if (!op_of(c->op)) {
        return;
    }
    int64_t returned = hdi_clock_ns();
    engine->recording.active_at = returned;
    hdi_record record = {.issue = {.time = given,
                                   .lane = global_of(engine, stream),
                                   .count = count,
                                   .before = stream->issued,
                                   .position = end,
                                   .returned = returned}};
    record.type = HDI_RECORD_ISSUE;
    record.kind = stream->failed;
    put(engine, &record);
    hdi_spans *spans = stream->spans;
    if (spans && spans->open && !stream->failed) {
        if (last_of(spans)->position == last_of(spans)->before) {
            last_of(spans)->began_at = returned;
        }
        last_of(spans)->position = end;
        if (last_of(spans)->one) {
            hdi_span_close(engine, stream);
        }
    }
}

void hdi_span_close(hdi_engine *engine, hdi_stream *stream)
{
    hdi_spans *spans = stream->spans;
    if (!spans || !spans->open || hdi_device_lost(engine->device)) {
        return;
    }
    hdi_span *span = last_of(spans);
    if (span->position == span->before && !engine->recording.ending) {
        return; /* its first operation comes next */
    }
    hdcu_event event = span->position == span->before ? NULL : mark(engine, stream);
    if (event) {
        span->ended = event;
        spans->open = false;
    } else {
        drop_last(engine, spans);
    }
}

void hdi_span_signal(hdi_engine *engine, hdi_stream *stream)
{
    const hdi_lane_shared *shared = &engine->device->channel.lanes[stream->number];
    bool goes_on = atomic_load_explicit(&shared->head, memory_order_relaxed) != stream->issued;
    if (!goes_on || (stream->spans && engine->now - stream->spans->opened_at > OPEN_NS)) {
        hdi_span_close(engine, stream);
    }
}

void hdi_span_stand(hdi_engine *engine, hdi_stream *stream, int64_t now)
{
    hdi_spans *spans = stream->spans;
    if (!spans || !spans->open || stream->entries - stream->entries_done >= engine->entries_most) {
        return; /* in the last case the device has more than enough */
    }
    bool comes_again = !engine->device->runtime->is_inline; /* soon */
    if (!spans->stood_at && comes_again) {
        spans->stood_at = now;
    } else if (!comes_again || now - spans->stood_at > STANDS_NS) {
        hdi_span_close(engine, stream);
    }
}

void hdi_record_done(hdi_engine *engine, const hdi_stream *stream, uint64_t position)
{
    hdi_record record = {
        .done = {
            .time = hdi_clock_ns(), .lane = global_of(engine, stream), .before = stream->done, .position = position}};
    record.type = HDI_RECORD_DONE;
    put(engine, &record);
}
