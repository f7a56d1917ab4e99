/* export_chrome.c - a trace in Chrome's trace format for other tools: one file for Perfetto, one
 * for each device for HTA.
 *
 * For Perfetto a device is a process and a lane is a thread; the program is a process with its
 * threads. Arrows lead from a submit to its run, and from an operation to the operations that
 * waited for it. Memory is a counter. A file of several ranks contains the processes of all ranks,
 * on one clock, and arrows for messages. For HTA a file is one rank. In such a file, streams count
 * from HTA_FIRST_STREAM, each run names its launch, and launches use the names of CUDA's runtime.
 * The file leaves out runs without times of their own, so that no time is invented.
 *
 * Threads, Locks: see model.h.
 * Always: times are decimal microseconds, computed with integers. A stretch whose operations have
 * no times of their own is one event.
 */
#include <inttypes.h>
#include <string.h>
#include "base/json.h"
#include "cli/trace/output.h"
#include "cli/trace/parts.h"
#include "cli/trace/ranks.h"

/* A device appears as a process, with a number far above those of real processes. */
enum { DEVICE_PROCESS = 1000000000, HTA_FIRST_STREAM = 7 };
/* With several ranks, the process numbers of different machines may be equal, so the program of a
 * rank gets a number, too. Its messages are in one row. */
enum { RANK_PROCESS = 2000000000, MESSAGE_THREAD = 1 };

typedef struct writer {
    const trace *t;
    FILE *out;
    bool hta, some; /* hta: the file is for HTA; some: an event was written */
    uint64_t flows;
    const trace_ranks *ranks; /* NULL: the file is about one trace */
    int file;                 /* the index of the trace among those of the ranks */
} writer;

static int64_t trace_export_chrome_program_pid(const writer *w)
{
    return w->ranks ? (int64_t)RANK_PROCESS + w->t->rank : w->t->process;
}

/* A time of the trace, as a time of the file. */
static int64_t trace_export_chrome_time(const writer *w, int64_t time)
{
    return w->ranks ? trace_ranks_time(w->ranks, w->file, time) : time;
}

static void trace_export_chrome_put_string(writer *w, const char *text)
{
    hdi_json j; /* writes single values with the usual quotes and escapes */
    hdi_json_begin(&j, w->out);
    hdi_json_string(&j, text);
}

/* Decimal microseconds. */
static void trace_export_chrome_put_us(writer *w, const char *key, int64_t ns)
{
    int64_t whole = ns / 1000, part = ns % 1000;
    fprintf(w->out, ", \"%s\": %s%" PRId64 ".%03" PRId64, key, ns < 0 && whole == 0 ? "-" : "", whole,
            part < 0 ? -part : part);
}

/* Starts an event, which trace_export_chrome_put_end ends. */
static void trace_export_chrome_put_event(writer *w, const char *phase, const char *category, const char *name,
                                          int64_t pid, int64_t tid, int64_t at)
{
    fprintf(w->out, "%s\n{\"ph\": \"%s\", \"cat\": \"%s\", \"name\": ", w->some ? "," : "", phase, category);
    w->some = true;
    trace_export_chrome_put_string(w, name);
    fprintf(w->out, ", \"pid\": %" PRId64 ", \"tid\": %" PRId64, pid, tid);
    trace_export_chrome_put_us(w, "ts", trace_export_chrome_time(w, at));
}

static void trace_export_chrome_put_end(writer *w)
{
    fprintf(w->out, "}");
}

static void trace_export_chrome_put_meta(writer *w, const char *what, int64_t pid, int64_t tid, const char *name)
{
    fprintf(w->out,
            "%s\n{\"ph\": \"M\", \"name\": \"%s\", \"pid\": %" PRId64 ", \"tid\": %" PRId64 ", \"args\": {\"name\": ",
            w->some ? "," : "", what, pid, tid);
    w->some = true;
    trace_export_chrome_put_string(w, name);
    fprintf(w->out, "}}");
}

static int64_t trace_export_chrome_device_pid(const writer *w, int device)
{
    int64_t first = w->ranks ? (int64_t)TRACE_DEVICES * w->t->rank : 0;
    return w->hta ? device : DEVICE_PROCESS + first + device;
}

static int64_t trace_export_chrome_lane_tid(const writer *w, uint32_t lane)
{
    return (int64_t)(lane % HDI_RECORD_LANES) + (w->hta ? HTA_FIRST_STREAM : 0);
}

/* ---- runs ---- */

static const char *trace_export_chrome_memory_text(uint8_t device)
{
    return device < TRACE_DEVICES ? "Device" : "Pinned";
}

/* The name of a copy in CUDA's own tools. */
static void trace_export_chrome_copy_name(const trace_op *op, char out[TRACE_TEXT])
{
    const char *how = op->way == HDI_RECORD_WAY_TO_DEVICE   ? "HtoD"
                      : op->way == HDI_RECORD_WAY_TO_HOST   ? "DtoH"
                      : op->way == HDI_RECORD_WAY_PEER      ? "PtoP"
                      : op->way == HDI_RECORD_WAY_ON_DEVICE ? "DtoD"
                                                            : "HtoH";
    snprintf(out, TRACE_TEXT, "Memcpy %s (%s -> %s)", how, trace_export_chrome_memory_text(op->src),
             trace_export_chrome_memory_text(op->dst));
}

static const char *trace_export_chrome_run_name(const trace *t, const trace_op *op, char out[TRACE_TEXT])
{
    const char *name = trace_name(t, op->kernel);
    if (op->kind == HDI_RECORD_OP_COPY) {
        trace_export_chrome_copy_name(op, out);
    } else if (op->kind == HDI_RECORD_OP_FILL) {
        snprintf(out, TRACE_TEXT, "Memset (Device)");
    } else {
        snprintf(out, TRACE_TEXT, "%.150s", name[0] ? name : trace_op_text(op->kind));
    }
    return out;
}

/* Uses the categories of the analysis: kernels that move bytes in copy lanes are copies. For HTA
 * they stay kernels, because HTA decides by the name. */
static const char *trace_export_chrome_run_category(const writer *w, const trace_op *op)
{
    bool moves = op->kind == HDI_RECORD_OP_COPY || (!w->hta && trace_moves(w->t, op->lane, op->kind));
    return moves ? "gpu_memcpy" : op->kind == HDI_RECORD_OP_FILL ? "gpu_memset" : "kernel";
}

/* Correlations count from 1. */
static uint64_t trace_export_chrome_correlation_of(int32_t op)
{
    return (uint64_t)op + 1;
}

static void trace_export_chrome_put_run(writer *w, int32_t index)
{
    const trace_op *op = &w->t->ops[index];
    char name[TRACE_TEXT];
    int device = trace_lane_device(op->lane);
    int64_t took = op->ended - op->began;
    trace_export_chrome_put_event(
        w, "X", trace_export_chrome_run_category(w, op), trace_export_chrome_run_name(w->t, op, name),
        trace_export_chrome_device_pid(w, device), trace_export_chrome_lane_tid(w, op->lane), op->began);
    trace_export_chrome_put_us(w, "dur", took);
    fprintf(w->out, ", \"args\": {\"device\": %d, \"context\": 1, \"stream\": %" PRId64 ", \"correlation\": %" PRIu64,
            device, trace_export_chrome_lane_tid(w, op->lane), trace_export_chrome_correlation_of(index));
    if (op->kind == HDI_RECORD_OP_COPY || op->kind == HDI_RECORD_OP_FILL) {
        double rate = took > 0 ? (double)op->bytes / (double)took : 0;
        fprintf(w->out, ", \"bytes\": %" PRIu64 ", \"memory bandwidth (GB/s)\": ", op->bytes);
        hdi_json j;
        hdi_json_begin(&j, w->out);
        hdi_json_number(&j, rate);
    } else {
        fprintf(w->out, ", \"grid\": [%" PRIu32 ", 1, 1], \"block\": [%" PRIu32 ", 1, 1]", op->blocks, op->threads);
    }
    fprintf(w->out, "}");
    trace_export_chrome_put_end(w);
}

/* Writes several operations that share one time. */
static void trace_export_chrome_put_stretch(writer *w, const trace_stretch *s)
{
    char name[TRACE_TEXT] = "work whose submits are missing", first[TRACE_TEXT];
    int device = trace_lane_device(s->lane);
    uint8_t kind = s->first_op != TRACE_NONE ? w->t->ops[s->first_op].kind : s->op;
    const char *category = trace_moves(w->t, s->lane, kind) ? "gpu_memcpy" : "kernel";
    if (s->first_op != TRACE_NONE) {
        const trace_op *op = &w->t->ops[s->first_op];
        bool same = true;
        uint64_t count = 0;
        for (int32_t i = s->first_op; i <= s->last_op; i++) {
            count += trace_is_work(w->t->ops[i].kind);
            same = same && w->t->ops[i].kind == op->kind && w->t->ops[i].kernel == op->kernel;
        }
        trace_export_chrome_run_name(w->t, op, first);
        if (count == 1) {
            snprintf(name, sizeof name, "%.150s", first);
        } else {
            snprintf(name, sizeof name, "%" PRIu64 " operations: %.100s%s", count, first, same ? "" : " and others");
        }
    }
    trace_export_chrome_put_event(w, "X", category, name, trace_export_chrome_device_pid(w, device),
                                  trace_export_chrome_lane_tid(w, s->lane), s->began);
    trace_export_chrome_put_us(w, "dur", s->ended - s->began);
    fprintf(w->out, ", \"args\": {\"device\": %d, \"approximate\": %s}", device,
            s->approximate || s->coarse ? "true" : "false");
    trace_export_chrome_put_end(w);
}

static const char *trace_export_chrome_launch_name(const trace_op *op)
{
    return op->kind == HDI_RECORD_OP_COPY   ? "cudaMemcpyAsync"
           : op->kind == HDI_RECORD_OP_FILL ? "cudaMemsetAsync"
                                            : "cudaLaunchKernel";
}

/* For Perfetto, writes the operation's submit. For HTA, writes the call that gave the operation to
 * the driver, or the submit if the call was not recorded. */
static void trace_export_chrome_put_launch(writer *w, int32_t index, int64_t pid)
{
    const trace_op *op = &w->t->ops[index];
    int64_t at = op->issued != TRACE_UNSEEN && w->hta ? op->issued : op->submitted;
    char name[TRACE_TEXT];
    trace_export_chrome_put_event(w, "X", "cuda_runtime",
                                  w->hta ? trace_export_chrome_launch_name(op) : trace_op_name(w->t, index, name), pid,
                                  op->thread, at);
    trace_export_chrome_put_us(w, "dur", w->hta ? 1000 : 0);
    fprintf(w->out, ", \"args\": {\"correlation\": %" PRIu64 "}", trace_export_chrome_correlation_of(index));
    trace_export_chrome_put_end(w);
}

/* ---- arrows ---- */

static void trace_export_chrome_put_arrow(writer *w, const char *name, int64_t from_pid, int64_t from_tid, int64_t from,
                                          int64_t to_pid, int64_t to_tid, int64_t to)
{
    w->flows++;
    trace_export_chrome_put_event(w, "s", name, name, from_pid, from_tid, from);
    fprintf(w->out, ", \"id\": %" PRIu64, w->flows);
    trace_export_chrome_put_end(w);
    trace_export_chrome_put_event(w, "f", name, name, to_pid, to_tid, to);
    fprintf(w->out, ", \"id\": %" PRIu64 ", \"bp\": \"e\"", w->flows);
    trace_export_chrome_put_end(w);
}

static void trace_export_chrome_put_arrows(writer *w, int32_t index)
{
    const trace_op *op = &w->t->ops[index];
    int64_t pid = trace_export_chrome_device_pid(w, trace_lane_device(op->lane)),
            tid = trace_export_chrome_lane_tid(w, op->lane);
    if (op->began == TRACE_UNSEEN || !trace_is_work(op->kind)) {
        return;
    }
    trace_export_chrome_put_arrow(w, "ac2g", trace_export_chrome_program_pid(w), op->thread, op->submitted, pid, tid,
                                  op->began);
    for (uint32_t i = 0; i < op->n_waits; i++) {
        int32_t other = w->t->waits[op->first_wait + i].other;
        const trace_op *o = other == TRACE_NONE ? NULL : &w->t->ops[other];
        if (o && o->ended != TRACE_UNSEEN && o->began != TRACE_UNSEEN && trace_is_work(o->kind)) {
            int64_t at = o->ended > o->began ? o->ended - 1 : o->began; /* inside its event */
            trace_export_chrome_put_arrow(w, "wait", trace_export_chrome_device_pid(w, trace_lane_device(o->lane)),
                                          trace_export_chrome_lane_tid(w, o->lane), at, pid, tid, op->began);
        }
    }
}

/* ---- chrome ---- */

static const char *trace_export_chrome_lane_text(uint8_t kind)
{
    static const char *const texts[] = {
        "lane",   "lane",         "copies to the device", "copies to the host", "copies on it", "copies to peers",
        "claims", "the library's"};
    return kind < sizeof texts / sizeof texts[0] ? texts[kind] : texts[0];
}

static void trace_export_chrome_put_names(writer *w)
{
    const trace *t = w->t;
    char text[TRACE_TEXT], of[32] = "";
    if (w->ranks) {
        snprintf(of, sizeof of, "rank %" PRId32 ", ", t->rank);
    }
    snprintf(text, sizeof text, "%sprogram", of);
    trace_export_chrome_put_meta(w, "process_name", trace_export_chrome_program_pid(w), 0, text);
    for (size_t i = 0; i < t->n_threads; i++) {
        const char *name = trace_name(t, t->threads[i].name);
        snprintf(text, sizeof text, "%.140s", name[0] ? name : "thread");
        trace_export_chrome_put_meta(w, "thread_name", trace_export_chrome_program_pid(w), t->threads[i].thread, text);
    }
    for (int d = 0; d < t->n_devices; d++) {
        snprintf(text, sizeof text, "%sdevice %d: %s", of, d, t->devices[d].name);
        trace_export_chrome_put_meta(w, "process_name", trace_export_chrome_device_pid(w, d), 0, text);
    }
    for (size_t i = 0; i < t->n_lanes; i++) {
        snprintf(text, sizeof text, "%s %" PRIu32, trace_export_chrome_lane_text(t->lanes[i].kind),
                 t->lanes[i].lane % HDI_RECORD_LANES);
        trace_export_chrome_put_meta(w, "thread_name",
                                     trace_export_chrome_device_pid(w, trace_lane_device(t->lanes[i].lane)),
                                     trace_export_chrome_lane_tid(w, t->lanes[i].lane), text);
    }
}

static void trace_export_chrome_put_memory(writer *w)
{
    for (size_t i = 0; i < w->t->n_figures; i++) {
        const trace_figure *f = &w->t->figures[i];
        trace_export_chrome_put_event(w, "C", "memory", "memory", trace_export_chrome_device_pid(w, f->device), 0,
                                      f->time);
        fprintf(w->out, ", \"args\": {\"in use\": %" PRIu64 ", \"held\": %" PRIu64 "}", f->in_use, f->held);
        trace_export_chrome_put_end(w);
    }
}

/* Writes the causes of idle time in a separate row. */
static void trace_export_chrome_put_gaps(writer *w)
{
    for (int d = 0; d < w->t->n_devices; d++) {
        const trace_device *x = &w->t->devices[d];
        trace_export_chrome_put_meta(w, "thread_name", trace_export_chrome_device_pid(w, d), HDI_RECORD_LANES,
                                     "why it stood still");
        for (size_t i = 0; i < x->n_pieces; i++) {
            const trace_piece *p = &x->pieces[i];
            if (p->state == TRACE_IDLE) {
                trace_export_chrome_put_event(w, "X", "idle", trace_cause_text((trace_cause)p->cause),
                                              trace_export_chrome_device_pid(w, d), HDI_RECORD_LANES, p->begin);
                trace_export_chrome_put_us(w, "dur", p->end - p->begin);
                trace_export_chrome_put_end(w);
            }
        }
    }
}

static void trace_export_chrome_put_threads(writer *w)
{
    static const char *const pauses[HDI_RECORD_PAUSES] = {
        "pause",      "waits for room in a lane", "waits for work", "waits for memory", "maps memory",
        "loads code", "waits for a chunk",        "reclaims memory"};
    const trace *t = w->t;
    for (size_t i = 0; i < t->n_ranges; i++) {
        const trace_range *r = &t->ranges[i];
        trace_export_chrome_put_event(w, "X", "user_annotation", trace_name(t, r->name),
                                      trace_export_chrome_program_pid(w), r->thread, r->begin);
        trace_export_chrome_put_us(w, "dur", r->end - r->begin);
        trace_export_chrome_put_end(w);
    }
    for (size_t i = 0; i < t->n_pauses; i++) {
        const trace_pause *p = &t->pauses[i];
        trace_export_chrome_put_event(w, "X", "pause", pauses[p->kind], trace_export_chrome_program_pid(w), p->thread,
                                      p->begin);
        trace_export_chrome_put_us(w, "dur", p->end - p->begin);
        trace_export_chrome_put_end(w);
    }
    /* activities without an operation, in rows beside the lanes */
    for (size_t i = 0; i < t->n_activities; i++) {
        const trace_activity *a = &t->activities[i];
        if (a->op != TRACE_NONE) {
            continue; /* the operation stands for it */
        }
        trace_export_chrome_put_event(w, "X", "cupti", trace_name(t, a->name),
                                      trace_export_chrome_device_pid(w, a->device),
                                      (int64_t)HDI_RECORD_LANES + 1 + a->stream, a->begin);
        trace_export_chrome_put_us(w, "dur", a->end - a->begin);
        trace_export_chrome_put_end(w);
    }
}

/* Writes the intervals with numbers, because intervals may overlap and end in another thread. */
static void trace_export_chrome_put_intervals(writer *w)
{
    const trace *t = w->t;
    for (size_t i = 0; i < t->n_intervals; i++) {
        const trace_interval *x = &t->intervals[i];
        for (int ends = 0; ends < 2; ends++) {
            trace_export_chrome_put_event(w, ends ? "e" : "b", "interval", trace_name(t, x->name),
                                          trace_export_chrome_program_pid(w), ends ? x->ended_by : x->began_by,
                                          ends ? x->end : x->begin);
            fprintf(w->out, ", \"id\": %zu", ((size_t)w->file << 32) + i + 1);
            trace_export_chrome_put_end(w);
        }
    }
}

static void trace_export_chrome_put_top(writer *w, int rank)
{
    const trace *t = w->t;
    fprintf(w->out, "{\"schemaVersion\": 1,\n");
    if (w->hta) {
        fprintf(w->out, "\"distributedInfo\": {\n\"rank\": %d\n},\n", rank);
    }
    fprintf(w->out,
            "\"displayTimeUnit\": \"ns\",\n\"baseTimeNanoseconds\": %" PRId64 ",\n\"dropped\": %" PRIu64
            ",\n\"deviceProperties\": [",
            t->since_1970, t->dropped);
    for (int d = 0; d < t->n_devices; d++) {
        if (!w->hta || d == rank) {
            fprintf(w->out, "%s{\"id\": %d, \"name\": ", d == 0 || w->hta ? "" : ", ", d);
            trace_export_chrome_put_string(w, t->devices[d].name);
            fprintf(w->out, ", \"totalGlobalMem\": %" PRIu64 "}", t->devices[d].memory);
        }
    }
    fprintf(w->out, "],\n\"traceEvents\": [");
}

/* Writes the events of one trace. */
static void trace_export_chrome_put_trace(writer *w)
{
    const trace *t = w->t;
    trace_export_chrome_put_names(w);
    for (size_t i = 0; i < t->n_stretches; i++) {
        const trace_stretch *s = &t->stretches[i];
        if (s->one && s->first_op != TRACE_NONE && s->first_op == s->last_op) {
            trace_export_chrome_put_run(w, s->first_op);
        } else {
            trace_export_chrome_put_stretch(w, s);
        }
    }
    for (size_t i = 0; i < t->n_ops; i++) {
        trace_export_chrome_put_launch(w, (int32_t)i, trace_export_chrome_program_pid(w));
        trace_export_chrome_put_arrows(w, (int32_t)i);
    }
    trace_export_chrome_put_threads(w);
    trace_export_chrome_put_intervals(w);
    trace_export_chrome_put_gaps(w);
    trace_export_chrome_put_memory(w);
}

void trace_export_chrome(const trace *t, FILE *out)
{
    writer w = {.t = t, .out = out};
    trace_export_chrome_put_top(&w, 0);
    trace_export_chrome_put_trace(&w);
    fprintf(out, "\n]}\n");
}

/* ---- several ranks ---- */

/* Messages may overlap, so each is an event with a number. */
static void trace_export_chrome_put_messages(writer *w)
{
    char name[TRACE_TEXT];
    trace_export_chrome_put_meta(w, "thread_name", trace_export_chrome_program_pid(w), MESSAGE_THREAD, "messages");
    for (size_t i = 0; i < w->t->n_messages; i++) {
        const trace_message *m = &w->t->messages[i];
        if (m->kind <= HDI_RECORD_MESSAGE_RECEIVE) {
            snprintf(name, sizeof name, "%s, rank %" PRId32 ", tag %" PRId32, trace_message_text(m->kind), m->peer,
                     m->tag);
        } else {
            snprintf(name, sizeof name, "%s", trace_message_text(m->kind));
        }
        for (int ends = 0; ends < 2; ends++) {
            trace_export_chrome_put_event(w, ends ? "e" : "b", "message", name, trace_export_chrome_program_pid(w),
                                          MESSAGE_THREAD, ends ? m->ended : m->posted);
            fprintf(w->out, ", \"id\": %zu, \"args\": {\"bytes\": %" PRIu64 "}", ((size_t)w->file << 32) + i + 1,
                    m->bytes);
            trace_export_chrome_put_end(w);
        }
    }
}

/* Writes one end of a message's arrow: a moment in the row of messages, and the arrow's begin or
 * end there. */
static void trace_export_chrome_put_message_end(writer *w, const trace_side *side, bool arrives)
{
    w->file = side->file;
    w->t = w->ranks->files[side->file];
    const trace_message *m = &w->t->messages[side->message];
    int64_t pid = trace_export_chrome_program_pid(w), at = arrives ? m->ended : m->posted;
    const char *name = arrives ? "received" : "sent";
    trace_export_chrome_put_event(w, "X", "message", name, pid, MESSAGE_THREAD, at);
    trace_export_chrome_put_us(w, "dur", 0);
    trace_export_chrome_put_end(w);
    trace_export_chrome_put_event(w, arrives ? "f" : "s", "message", "message", pid, MESSAGE_THREAD, at);
    fprintf(w->out, ", \"id\": %" PRIu64 "%s", w->flows, arrives ? ", \"bp\": \"e\"" : "");
    trace_export_chrome_put_end(w);
}

void trace_ranks_export_chrome(const trace_ranks *r, FILE *out)
{
    writer w = {.t = r->files[0], .out = out, .ranks = r};
    trace_export_chrome_put_top(&w, 0);
    for (int f = 0; f < r->n; f++) {
        w.t = r->files[f];
        w.file = f;
        trace_export_chrome_put_trace(&w);
        trace_export_chrome_put_messages(&w);
    }
    for (size_t i = 0; i < r->n_met; i++) {
        w.flows++;
        trace_export_chrome_put_message_end(&w, &r->met[i].sent, false);
        trace_export_chrome_put_message_end(&w, &r->met[i].received, true);
    }
    fprintf(out, "\n]}\n");
}

/* ---- HTA ---- */

static bool trace_export_chrome_hta_takes(const trace_op *op, int device)
{
    return trace_lane_device(op->lane) == device && op->measured && trace_is_work(op->kind);
}

bool trace_hta_has(const trace *t, int device)
{
    for (size_t i = 0; i < t->n_ops; i++) {
        if (trace_export_chrome_hta_takes(&t->ops[i], device)) {
            return true;
        }
    }
    return false;
}

void trace_export_hta(const trace *t, int device, FILE *out)
{
    writer w = {.t = t, .out = out, .hta = true};
    trace_export_chrome_put_top(&w, device);
    /* HTA links no event whose index is 0 */
    trace_export_chrome_put_event(&w, "X", "cpu_op", "begin", t->process, t->process, t->begin);
    trace_export_chrome_put_us(&w, "dur", 0);
    trace_export_chrome_put_end(&w);
    for (size_t i = 0; i < t->n_ops; i++) {
        if (trace_export_chrome_hta_takes(&t->ops[i], device)) {
            trace_export_chrome_put_launch(&w, (int32_t)i, t->process);
            trace_export_chrome_put_run(&w, (int32_t)i);
        }
    }
    fprintf(out, "\n]}\n");
}
