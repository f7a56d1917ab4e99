/* spans.h - what an engine records of a trace: when it gave work to the driver, when the device ran it, when it was seen done.
 *
 * A *span* is a stretch of a lane's work. It lies between two places where the device may have had nothing of the lane.
 * There the lane was at rest, waited for another one, or had no more commands.
 * With HDI_RECORD_DETAIL_FULL each operation is a span of its own.
 * Both ends are events with timing. But where the lane was at rest, the span begins by the clock, when its first operation had come to the
 * device. That is behind the return of the driver's call by as much as an event needs; a library returns later by about that. An event in
 * front would be passed while that call still runs, microseconds too early.
 *
 * Where one span begins right behind another, one event is the end of both: no signal and no wait stands between them.
 *
 * An event costs the engine some microseconds: to record it, and to ask for its time. So without HDI_RECORD_DETAIL_FULL there is a budget, a
 * share of all time. Where it is spent, a span that began by the clock also ends by it: when the engine saw the signal that stands behind it.
 * What follows then belongs to the same span, unless the engine saw the lane at rest, or it waits for another one.
 * Between works of two kinds, and behind a wait for another lane, only an event shows an edge. There the budget is twenty times as large.
 * Beyond that such work is in no span. Its reader has ISSUE, DONE and the ends of what it waited for.
 *
 * A call for the first launch of a kernel, or the first product of a lane, may load code for long. So a span ends in front of it. Else the
 * time for which the device has nothing would be within one.
 *
 * Events give a device's own time (times.h). So now and then an event in a stream of its own is read together with the clock.
 * Where the processor was busy both are far apart, and it is done again soon.
 *
 * Threads: the thread that runs the device's engine, with the device's context current.
 * Locks: none.
 * Always:
 * - Nothing waits for the device. The driver is asked for times when the engine has nothing else to do, or after some time.
 * - An engine that records nothing pays one load for a pass, and a comparison for each call of the driver.
 * - An open span has its first event recorded, and no second one. At most HDI_SPANS_MOST of a lane wait for their times; more are left out,
 *   and count as dropped.
 * - Operations whose span has no times, as those of a lost device, are in no SPAN. A reader counts such operations.
 * - A signal stands behind each span that ends by the clock.
 */
#ifndef HDI_ENGINE_SPANS_H
#define HDI_ENGINE_SPANS_H

#include "engine/engine.h"

struct hdi_stream;

#define HDI_SPANS_MOST 1024
#define HDI_SPANS_CLOCKED 8

typedef struct hdi_span {
    hdcu_event began, ended;   /* began NULL: at `began_at`, or where the span before ends; ended NULL: it is open */
    int64_t began_at;          /* clock; 0: its first operation comes next */
    uint64_t before, position; /* operations from behind `before` up to here */
    uint8_t op;                /* HDI_RECORD_OP_* */
    bool one;
    bool follows;    /* it begins with the event that ends the span before */
    bool by_library; /* a library or the program gave its first operation to the driver, and returned some time later */
} hdi_span;

/* Of a stream. */
typedef struct hdi_spans {
    uint32_t first, n;
    bool open;         /* the last one is */
    bool cut;          /* the lane waits for another one behind the last span */
    bool has_product;  /* one was given to the driver */
    int64_t stood_at;  /* clock when the lane was first seen to have no more commands; 0: it has */
    int64_t opened_at; /* clock */
    bool has_ended;    /* the span that got its times last has an end: at `ended_at`, in the device's own time */
    int64_t ended_at;
    hdi_span at[HDI_SPANS_MOST];
    uint32_t first_clocked, n_clocked; /* those that end by the clock, which are not in `at` */
    hdi_span clocked[HDI_SPANS_CLOCKED];
} hdi_spans;

/* Of an engine. */
typedef struct hdi_recording {
    uint32_t detail;            /* 0: nothing is recorded */
    uint32_t unsettled;         /* spans of all lanes that have no times yet */
    int64_t active_at;          /* clock when something was last given to the driver, or seen done */
    int64_t settled_at;         /* clock when spans last got their times */
    int64_t since, spent, each; /* the budget: since when, what events took so far, and what asking for one takes */
    bool ending;                /* spans that are still out are recorded, and no others begin */
    int64_t end_by;             /* clock: what is out then is left out */
    int64_t clock_at;           /* when the device's own time is next compared with the clock */
    int64_t clock_again;        /* how long that is after one that was not close; 0: the last one was */
    bool compared;              /* it was, in this trace */
    int64_t apart;              /* the least time between two events without work in between, in this trace */
    int64_t way; /* from the return of the call for an event until the device passed it, in the best comparison */
    int64_t way_within;                   /* how exact that comparison is; 0: there was none in this trace */
    hdcu_stream stream;                   /* for that; NULL: not made */
    _Atomic(hdi_activities *) activities; /* activities.h; NULL: none was asked for */
    uint64_t *named;                      /* bit per kernel name that was recorded */
    uint32_t named_words;
    uint64_t named_in; /* the session of those */
} hdi_recording;

static inline bool hdi_recording_is_wanted(const hdi_engine_shared *shared, const hdi_recording *recording)
{
    return __builtin_expect(
        atomic_load_explicit(&shared->recording, memory_order_relaxed) != recording->detail || recording->detail, 0);
}
/* At the beginning of a pass: takes in what the application wants. While something is recorded it compares the clocks when it is time, and ends
 * what is ending. */
void hdi_recording_pass(hdi_engine *engine);
/* Called by hd_close. The engine has stopped. */
void hdi_recording_end(hdi_engine *engine, bool driver_usable);

/* In front of a command that is about to be given to the driver. `engine->now` is the clock when it returns, if it was when called. */
void hdi_span_before(hdi_engine *engine, struct hdi_stream *stream, const hdi_command *c);
/* Behind it, or behind a chain that begins with it, up to `stream->issued`. `engine->now`: the clock behind the call. False: it is no work of the
 * device, and no ISSUE. */
bool hdi_span_behind(hdi_engine *engine, struct hdi_stream *stream, const hdi_command *c);
/* What was given to the driver in one call: `count` operations from behind `from` up to `stream->issued`. By the clock: `given` in front of the
 * call, `returned` behind it. */
void hdi_record_issue(hdi_engine *engine, const struct hdi_stream *stream, uint64_t from, uint32_t count, int64_t given,
                      int64_t returned);
/* The lane waits for another one, or for the program, behind what was issued. */
void hdi_span_cut(hdi_engine *engine, struct hdi_stream *stream);
/* Ends those that end by the clock and that the device has passed. `engine->now`: when that was seen. Called by hdi_span_passed. */
void hdi_spans_end(hdi_engine *engine, struct hdi_stream *stream);
/* A signal stands behind what was issued. With HDI_RECORD_DETAIL_FULL also called in front of it. Else the event that ends the span comes behind
 * it, about a microsecond late, since a thread may wait for the signal. */
void hdi_span_signal(hdi_engine *engine, struct hdi_stream *stream);
/* The lane has no more commands, or cannot go on. */
void hdi_span_stand(hdi_engine *engine, struct hdi_stream *stream, int64_t now);
/* The lane is going to wait for a position of another one: behind the wait, which ends at `before`. */
void hdi_record_behind(hdi_engine *engine, const struct hdi_stream *stream, uint64_t before, uint32_t other_lane,
                       uint64_t other_position);
/* `done` has moved on from `before`. `engine->now`: when that was seen. */
void hdi_record_done(hdi_engine *engine, const struct hdi_stream *stream, uint64_t before);

#endif
