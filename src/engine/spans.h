/* spans.h - an engine's records for a trace: when it gave work to the driver, when the device ran
 * it, and when its end was seen.
 *
 * A *span* is a stretch of a lane's work between two places at which the device may lack work of
 * the lane. At such a place the lane was at rest, waited for another lane, or had no more commands.
 * With HDI_RECORD_DETAIL_FULL each operation is its own span. Both ends are events with timing,
 * except that a lane at rest begins its span by the clock, when its first operation reached the
 * device. The first operation reaches the device some time after the driver's call returns; that
 * time is measured with an event. A call of a library returns later by about that time. The device
 * would pass an event in front of the operation while the call still runs, microseconds too early.
 *
 * If one span begins right behind another, one event is the end of both: no signal and no wait
 * stands between them.
 *
 * An event costs the engine some microseconds: to record it, and to ask for its time. So without
 * HDI_RECORD_DETAIL_FULL events get a budget, a share of all time. Once it is spent, a span that
 * began by the clock also ends by the clock: when the engine saw the signal behind the span. Later
 * work then belongs to the same span, unless the engine saw the lane at rest or the lane waits for
 * another lane. Between two kinds of work, and behind a wait for another lane, only an event shows
 * an edge. For such edges the budget is twenty times as large. Beyond that, such work is in no
 * span. A reader of the trace still gets its ISSUE and DONE, and the ends of the work that it
 * waited for.
 *
 * The call for the first launch of a kernel, or for the first product of a lane, may load code for
 * a long time. So a span ends in front of it. Otherwise the span would include time in which the
 * device does nothing.
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
 * - An open span has its first event, and not yet its second one. At most HDI_SPANS_MOST spans of a
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
    /* the span's operations are those behind `before`, up to `position` */
    uint64_t before, position;
    uint8_t op; /* HDI_RECORD_OP_* */
    bool one;
    bool follows; /* the span begins with the event that ends the span before */
    /* A library or the program gave its first operation to the driver, and returned some time
     * later. */
    bool by_library;
} hdi_span;

/* The spans of a stream. */
typedef struct hdi_spans {
    uint32_t first, n;
    bool open;         /* the last one is open */
    bool cut;          /* the lane waits for another lane behind the last span */
    bool has_product;  /* the driver got a product of the lane */
    int64_t stood_at;  /* clock when the lane was first seen without commands; 0: it has some */
    int64_t opened_at; /* clock */
    /* The span that got its times last ended at `ended_at`, in the device's own time. */
    bool has_ended;
    int64_t ended_at;
    hdi_span at[HDI_SPANS_MOST];
    uint32_t first_clocked, n_clocked; /* spans that end by the clock, which are not in `at` */
    hdi_span clocked[HDI_SPANS_CLOCKED];
} hdi_spans;

/* The recording of an engine. */
typedef struct hdi_recording {
    uint32_t detail;    /* 0: record nothing */
    uint32_t unsettled; /* spans of all lanes without times yet */
    int64_t active_at;  /* clock when work was last given to the driver, or seen done */
    int64_t settled_at; /* clock when spans last got their times */
    /* The budget: the time of its start, the cost of events so far, the cost of asking for one
     * event. */
    int64_t since, spent, each;
    bool ending;      /* open spans are still recorded, and no others begin */
    int64_t end_by;   /* clock: spans without times by then are left out */
    int64_t clock_at; /* when to compare the device's own time with the clock next */
    /* The delay after a comparison that was not close; 0: the last one was close. */
    int64_t clock_again;
    bool compared; /* in this trace */
    /* The least time between two events without work between them, in this trace. */
    int64_t apart;
    /* From the return of the call for an event until the device passed it, in the best
     * comparison. */
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
 * engine records, this compares the clocks when it is time, and finishes a trace that ends. */
void hdi_recording_pass(hdi_engine *engine);
/* Called by hd_close. The engine is stopped. */
void hdi_recording_end(hdi_engine *engine, bool driver_usable);

/* Call it in front of a command that is about to go to the driver. If `engine->now` was up to date,
 * it still is on return. */
void hdi_span_before(hdi_engine *engine, struct hdi_stream *stream, const hdi_command *c);
/* Call it behind the command, or behind a chain that begins with it, up to `stream->issued`.
 * `engine->now`: the clock behind the call. False: the command is no work of the device, and gets
 * no ISSUE. */
bool hdi_span_behind(hdi_engine *engine, struct hdi_stream *stream, const hdi_command *c);
/* Records that one call gave work to the driver: `count` operations from behind `from` up to
 * `stream->issued`. `given` and `returned` are the clock before and after the call. */
void hdi_record_issue(hdi_engine *engine, const struct hdi_stream *stream, uint64_t from, uint32_t count, int64_t given,
                      int64_t returned);
/* The lane waits for another lane, or for the program, behind all issued work. */
void hdi_span_cut(hdi_engine *engine, struct hdi_stream *stream);
/* Ends the spans that end by the clock and that the device passed. `engine->now`: when the engine
 * saw that. Called by hdi_span_passed. */
void hdi_spans_end(hdi_engine *engine, struct hdi_stream *stream);
/* A signal stands behind all issued work. With HDI_RECORD_DETAIL_FULL this is also called in front
 * of the signal. Without it, the event that ends the span comes behind the signal, about a
 * microsecond late, since a thread may wait for the signal. */
void hdi_span_signal(hdi_engine *engine, struct hdi_stream *stream);
/* The lane ran out of commands, or cannot go on. */
void hdi_span_stand(hdi_engine *engine, struct hdi_stream *stream, int64_t now);
/* The lane will wait for a position of another lane, behind the wait that ends at `before`. */
void hdi_record_behind(hdi_engine *engine, const struct hdi_stream *stream, uint64_t before, uint32_t other_lane,
                       uint64_t other_position);
/* `done` moved on from `before`. `engine->now`: when the engine saw that. */
void hdi_record_done(hdi_engine *engine, const struct hdi_stream *stream, uint64_t before);

#endif
