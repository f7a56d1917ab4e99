/* spans.h - an engine's records for a trace: when work went to the driver, when it ran, and when
 * the engine saw its end.
 *
 * A *span* is a stretch of a lane's work between two places at which the device may lack work of
 * the lane. At such a place the lane was at rest, waited for another lane, or had no more commands.
 * With HDI_RECORD_DETAIL_FULL each operation is its own span. Events with timing mark the begin and
 * the end of a span. The exception is the first span of a lane at rest: it begins by the clock,
 * when its first operation reached the device. The first operation reaches the device some time
 * after the driver's call returns. The engine measures this time with an event. A call of a library
 * returns later, by about this time. An event in front of the operation would be wrong: the device
 * passes it while the call still runs, microseconds too early.
 *
 * If one span begins right behind another span, no signal and no wait stands between them. Then one
 * event marks the end of the first span and the begin of the second.
 *
 * An event costs the engine some microseconds, since the engine records it and asks for its time.
 * So without HDI_RECORD_DETAIL_FULL, events have a budget: they may cost only a fixed share of all
 * time. Once the budget is spent, a span that began by the clock also ends by the clock. Its end is
 * then the time at which the engine saw the signal behind the span. Later work then belongs to the
 * same span, unless the engine saw the lane at rest, or the lane waits for another lane. Between
 * two kinds of work, and behind a wait for another lane, only an event shows where one span ends
 * and the next one begins. For such events the budget is BUDGET_WITHIN (spans.c) times as large.
 * Once this larger budget is spent, work that needs such an event is in no span. For this work, a
 * reader of the trace still gets ISSUE and DONE, and the ends of the work in front of it.
 *
 * The call for the first launch of a kernel, or for the first product of a lane, may load code for
 * a long time. So a span ends in front of such a call. Otherwise the span would include time in
 * which the device does nothing.
 *
 * Events show a device's own time (times.h). So now and then the engine compares an event in a
 * separate stream with the clock. If the processor was busy, the comparison is not close, and the
 * engine repeats it soon.
 *
 * Threads: the thread that runs the device's engine, with the device's context current.
 * Locks: none.
 * Always:
 * - Nothing waits for the device. The engine asks the driver for times when it has nothing else to
 *   do, or after some time.
 * - An engine that records nothing pays one load for each pass, and one comparison for each driver
 *   call.
 * - In an open span, the begin is marked, but the end is not. At most HDI_SPANS_MOST spans of a
 *   lane wait for their times; further spans are left out, and count as dropped.
 * - If a span gets no times, for example on a lost device, its operations are in no SPAN. A reader
 *   counts such operations.
 * - A signal stands behind each span that ends by the clock.
 */
#ifndef HDI_ENGINE_SPANS_H
#define HDI_ENGINE_SPANS_H

#include "engine/engine.h"

struct hdi_stream;

#define HDI_SPANS_MOST 1024
#define HDI_SPANS_CLOCKED 8

typedef struct hdi_span {
    /* `began` NULL: the span begins at `began_at`, or at the end of the span before. `ended` NULL:
     * the span is open. */
    hdcu_event began, ended;
    int64_t began_at; /* clock; 0: the span's first operation comes next */
    /* the operations of the span end behind `before`, and not behind `position` */
    uint64_t before, position;
    uint8_t op; /* HDI_RECORD_OP_* */
    bool one;
    bool follows; /* the span begins with the event that ends the span before */
    /* A library or the program gave the span's first operation to the driver, and returned some
     * time later. */
    bool by_library;
} hdi_span;

/* The spans of a stream. */
typedef struct hdi_spans {
    uint32_t first, n;
    bool open;         /* the last span is open */
    bool cut;          /* the lane waits for another lane behind the last span */
    bool has_product;  /* the driver got a product of the lane */
    int64_t stood_at;  /* clock when the lane was first seen without commands; 0: it has some */
    int64_t opened_at; /* clock */
    /* Set: `ended_at` is the end, in the device's own time, of the last span that got its times. */
    bool has_ended;
    int64_t ended_at;
    hdi_span at[HDI_SPANS_MOST];
    uint32_t first_clocked, n_clocked; /* spans that end by the clock, which are not in `at` */
    hdi_span clocked[HDI_SPANS_CLOCKED];
} hdi_spans;

/* The recording of an engine. */
typedef struct hdi_recording {
    uint32_t detail;    /* 0: record nothing */
    uint32_t unsettled; /* the number of spans of all lanes that have no times yet */
    int64_t active_at;  /* clock when work was last given to the driver, or seen done */
    int64_t settled_at; /* clock when spans last got their times */
    /* About the budget: the time when it began, the cost of all events so far, the cost of asking
     * for the time of one event. */
    int64_t since, spent, each;
    bool ending;      /* open spans are still recorded, and no others begin */
    int64_t end_by;   /* clock: spans without times by then are left out */
    int64_t clock_at; /* when to compare the device's own time with the clock next */
    /* The delay after a comparison that was not close; 0: the last one was close. */
    int64_t clock_again;
    bool compared; /* the clocks were compared in this trace */
    /* The least time in this trace between two events that have no work between them. */
    int64_t apart;
    /* In the best comparison: the time from the return of the call that records an event until the
     * device passed the event. */
    int64_t way;
    int64_t way_within;                   /* how exact that comparison is; 0: none in this trace */
    hdcu_stream stream;                   /* the stream for comparisons; NULL: not made */
    _Atomic(hdi_activities *) activities; /* activities.h; NULL: not requested */
    uint64_t *named;                      /* bit per recorded kernel name */
    uint32_t named_words;
    uint64_t named_in; /* the session that `named` is about */
} hdi_recording;

static inline bool hdi_recording_is_wanted(const hdi_engine_shared *shared, const hdi_recording *recording)
{
    return __builtin_expect(
        atomic_load_explicit(&shared->recording, memory_order_relaxed) != recording->detail || recording->detail, 0);
}
/* Called at the beginning of a pass. Takes over the detail that the application wants. While the
 * engine records, this function compares the clocks when it is time, and finishes a trace that
 * ends. */
void hdi_recording_pass(hdi_engine *engine);
/* Called by hd_close. The engine is stopped. */
void hdi_recording_end(hdi_engine *engine, bool driver_usable);

/* Call this just before a command goes to the driver. If `engine->now` was up to date, it is also
 * up to date on return. */
void hdi_span_before(hdi_engine *engine, struct hdi_stream *stream, const hdi_command *c);
/* Call this after the command `c` went to the driver, or a chain that begins with `c`. The work
 * ends at `stream->issued`. `engine->now`: the clock behind the call. False: the command is no work
 * of the device, and gets no ISSUE. */
bool hdi_span_behind(hdi_engine *engine, struct hdi_stream *stream, const hdi_command *c);
/* Records that one call gave work to the driver: `count` operations from behind `from` up to
 * `stream->issued`. `given` and `returned` are the clock before and after the call. */
void hdi_span_record_issue(hdi_engine *engine, const struct hdi_stream *stream, uint64_t from, uint32_t count,
                           int64_t given, int64_t returned);
/* Notes that, behind all issued work, the lane waits for another lane or for the program. */
void hdi_span_cut(hdi_engine *engine, struct hdi_stream *stream);
/* Ends the spans that end by the clock and that the device passed. `engine->now`: when the engine
 * saw that. Called by hdi_span_passed. */
void hdi_spans_end(hdi_engine *engine, struct hdi_stream *stream);
/* Call this after the engine put a signal behind all issued work. With HDI_RECORD_DETAIL_FULL, also
 * call it before the signal. Without that detail, the event that ends the span comes behind the
 * signal, about a microsecond late, since a thread may wait for the signal. */
void hdi_span_signal(hdi_engine *engine, struct hdi_stream *stream);
/* Notes that the lane ran out of commands, or cannot go on. */
void hdi_span_stand(hdi_engine *engine, struct hdi_stream *stream, int64_t now);
/* Records that the lane will wait for a position of another lane, behind the wait that ends at
 * `before`. */
void hdi_span_record_behind(hdi_engine *engine, const struct hdi_stream *stream, uint64_t before, uint32_t other_lane,
                            uint64_t other_position);
/* Records that `done` moved on from `before`. `engine->now`: when the engine saw that. */
void hdi_span_record_done(hdi_engine *engine, const struct hdi_stream *stream, uint64_t before);

#endif
