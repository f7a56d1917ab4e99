/* spans.c - see spans.h for threads, locks and what always holds. */
#include "engine/spans.h"
#include <stdlib.h>
#include "base/wait.h"
#include "engine/stream.h"

#define STANDS_NS 500            /* a lane that has no more commands for so long: its span ends */
#define CLOCK_EVERY_NS 500000000 /* between comparisons of the device's own time with the clock */
#define CLOCK_AGAIN_NS 20000000  /* after one that gave nothing */
#define CLOCK_WAIT_NS 60000      /* for the device to pass one event: else the queue of the stream is not free */
#define CLOCK_FIRST_NS 1000000   /* the same, while there was no comparison yet */
#define CLOCK_TRIES 6
#define ENDING_NS 200000000 /* for spans whose operations are not done when the trace ends */

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
    }
    if (spans) {
        spans->open = false;
    }
}

void hdi_recording_switch(hdi_engine *engine)
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
            hdi_spans_settle(engine, stream);
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
    hdi_recording_switch(engine);
    if (recording->detail && engine->now >= recording->clock_at && !hdi_device_lost(engine->device)) {
        compare_clocks(engine);
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
            driver->cuEventDestroy(span->began);
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
static hdcu_event mark(hdi_engine *engine, const hdi_stream *stream, hdcu_event event)
{
    if (!event && hdi_times_take(engine, &event) != HDCU_SUCCESS) {
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
    hdcu_event event = spans->n < HDI_SPANS_MOST ? mark(engine, stream, NULL) : NULL;
    if (!event) {
        hdi_record_ring *ring = engine->device->channel.records;
        atomic_fetch_add_explicit(&ring->dropped, 1, memory_order_relaxed);
        return;
    }
    spans->n++;
    *last_of(spans) = (hdi_span){.began = event,
                                 .before = stream->issued,
                                 .position = stream->issued,
                                 .op = op,
                                 .one = engine->recording.detail == HDI_RECORD_DETAIL_FULL};
    spans->open = true;
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
        hdi_span *span = last_of(spans); /* what it began with did not happen */
        hdcu_event event = mark(engine, stream, span->began);
        spans->n -= !event;
        spans->open = event != NULL;
        span->before = span->position = stream->issued;
        span->op = op;
        return;
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
    hdi_record record = {.issue = {.time = given,
                                   .lane = global_of(engine, stream),
                                   .count = count,
                                   .before = stream->issued,
                                   .position = end,
                                   .returned = hdi_clock_ns()}};
    record.type = HDI_RECORD_ISSUE;
    record.kind = stream->failed;
    put(engine, &record);
    hdi_spans *spans = stream->spans;
    if (spans && spans->open && !stream->failed) {
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
    hdcu_event event = span->position == span->before ? NULL : mark(engine, stream, NULL);
    spans->open = false;
    if (event) {
        span->ended = event;
    } else {
        hdi_times_give(engine, span->began);
        spans->n--;
    }
}

void hdi_span_stand(hdi_engine *engine, hdi_stream *stream, int64_t now)
{
    hdi_spans *spans = stream->spans;
    if (!spans || !spans->open) {
        return;
    }
    bool comes_again = !engine->device->runtime->is_inline; /* soon */
    if (!spans->stood_at && comes_again) {
        spans->stood_at = now;
    } else if (!comes_again || now - spans->stood_at > STANDS_NS) {
        hdi_span_close(engine, stream);
    }
}

/* False: the driver does not have the times yet. */
static bool settle(hdi_engine *engine, const hdi_stream *stream, const hdi_span *span)
{
    int64_t began, ended;
    hdi_time_read found = hdi_times_read(engine, span->ended, &ended);
    if (found == HDI_TIME_NOT_YET) {
        return false;
    }
    hdi_time_read first = hdi_times_read(engine, span->began, &began);
    if (first == HDI_TIME_NOT_YET) {
        hdi_times_give(engine, span->began);
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
                                  .op = span->op}};
    record.type = HDI_RECORD_SPAN;
    record.kind = span->one ? HDI_RECORD_SPAN_ONE : HDI_RECORD_SPAN_EDGES;
    put(engine, &record);
    return true;
}

void hdi_spans_settle(hdi_engine *engine, hdi_stream *stream)
{
    hdi_spans *spans = stream->spans;
    while (spans && spans->n) {
        hdi_span *span = &spans->at[spans->first];
        if (!span->ended || span->position > stream->passed || !settle(engine, stream, span)) {
            return;
        }
        spans->first = (spans->first + 1) % HDI_SPANS_MOST;
        spans->n--;
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
