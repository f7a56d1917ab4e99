/* trace.c - hd_trace_start and hd_trace_stop, the option `trace`, and ranges.
 *
 * A trace begins with the file and its writer. After that, engines and threads record. A trace ends
 * in the reverse order: threads stop recording, engines hand over their records, and the writer
 * takes the remaining records.
 *
 * Threads: any. Locks: the tracer's mutex, while a trace begins or ends.
 * Blocking: as heddle/trace.h states.
 * Always: a runtime writes one trace at a time. The end of a trace does not wait for an engine
 * longer than GIVE_NS.
 */
#include "trace/trace.h"
#include <heddle/trace.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/lock.h"
#include "base/sized.h"
#include "base/wait.h"
#include "engine/engine.h"
#include "trace/nvtx.h"
#include "trace/writer.h"

#define GIVE_NS 1000000000 /* the time that engines get at the end of a trace */
#define LOOK_NS 200000

/* ---- engines ---- */

static void trace_tell_engines(hd_runtime *rt, uint32_t detail)
{
    for (int i = 0; i < rt->n_devices; i++) {
        hdi_engine_shared *engine = rt->devices[i]->channel.engine;
        /* seq_cst with the engine's last look before it sleeps */
        atomic_store_explicit(&engine->recording, detail, memory_order_seq_cst);
        hdi_engine_ring(engine);
        if (rt->is_inline) {
            hdi_engine_run_inline(rt->devices[i]);
        }
    }
}

/* Waits until the engine records with this detail; 0: until it stopped recording. */
static void trace_await_engine(hdi_device *device, uint32_t detail, int64_t deadline)
{
    const hdi_engine_shared *engine = device->channel.engine;
    while (atomic_load_explicit(&engine->recorded, memory_order_acquire) != detail && !hdi_device_lost(device) &&
           hdi_clock_ns() < deadline) {
        if (device->runtime->is_inline) {
            hdi_engine_run_inline(device);
        }
        hdi_sleep_for(LOOK_NS);
    }
}

static void trace_set_engines(hd_runtime *rt, uint32_t detail)
{
    int64_t deadline = hdi_deadline(GIVE_NS);
    trace_tell_engines(rt, detail);
    for (int i = 0; i < rt->n_devices; i++) {
        trace_await_engine(rt->devices[i], detail, deadline);
    }
}

/* ---- CUPTI's reports ---- */

/* Ends CUPTI's reports. A failure means that the device or its worker is lost. */
static void trace_end_reports(hd_runtime *rt, int n)
{
    hdi_activities_facts unused;
    for (int i = 0; i < n; i++) {
        hdi_port *port = rt->devices[i]->port;
        if (!rt->is_process || !hdi_device_lost(rt->devices[i])) {
            port->calls->activities(port, false, &unused);
        }
    }
}

static hd_status trace_begin_report(hdi_device *device)
{
    hdi_activities_facts facts;
    hdi_answer answer = device->port->calls->activities(device->port, true, &facts);
    if (!hdi_answered(answer)) {
        return hdi_device_lost(device) ? HD_OK : hdi_answer_failed(device, answer);
    }
    return facts.works ? HD_OK
                       : hdi_fail(HD_ERROR_UNSUPPORTED, "detail cupti: CUPTI does not work for device %d (%.400s)",
                                  device->index, facts.why);
}

static hd_status trace_begin_reports(hd_runtime *rt)
{
    for (int i = 0; i < rt->n_devices; i++) {
        hd_status status = hdi_device_lost(rt->devices[i]) ? HD_OK : trace_begin_report(rt->devices[i]);
        if (status) {
            hdi_attempt attempt;
            hdi_attempt_begin(&attempt);
            trace_end_reports(rt, i);
            hdi_attempt_end(&attempt);
            return status;
        }
    }
    return HD_OK;
}

void hdi_trace_restarted(hdi_device *device)
{
    hdi_tracer *tracer = &hdi_trace_of(device->runtime)->tracer;
    hdi_mutex_lock(&tracer->lock);
    if (tracer->writer && tracer->detail == HDI_RECORD_DETAIL_CUPTI) {
        hdi_attempt attempt; /* the trace goes on without CUPTI's reports */
        hdi_attempt_begin(&attempt);
        trace_begin_report(device);
        hdi_attempt_end(&attempt);
    }
    hdi_mutex_unlock(&tracer->lock);
}

/* ---- beginning and ending ---- */

static hd_status trace_start_file(hd_runtime *rt, const char *file, _Atomic unsigned *number, uint32_t detail,
                                  uint64_t limit)
{
    hdi_tracer *tracer = &hdi_trace_of(rt)->tracer;
    if (tracer->writer) {
        return hdi_fail(HD_ERROR_ARGUMENT, "the trace '%s' is being written; call hd_trace_stop first",
                        hdi_writer_file(tracer->writer));
    }
    bool reports = detail == HDI_RECORD_DETAIL_CUPTI;
    hd_status status = hdi_recorder_prepare(&rt->recorder);
    status = !status && reports ? trace_begin_reports(rt) : status;
    if (status) {
        return status;
    }
    status = hdi_writer_start(rt, file, number, detail, limit, &tracer->writer);
    if (!status) {
        tracer->detail = detail;
        trace_set_engines(rt, detail);
        atomic_store_explicit(&rt->recorder.detail, detail, memory_order_seq_cst);
        hdi_nvtx_listen(&rt->recorder);
    } else if (reports) {
        hdi_attempt attempt;
        hdi_attempt_begin(&attempt);
        trace_end_reports(rt, rt->n_devices);
        hdi_attempt_end(&attempt);
    }
    return status;
}

static hd_status trace_stop_file(hd_runtime *rt, hd_trace_info *info)
{
    hdi_tracer *tracer = &hdi_trace_of(rt)->tracer;
    hdi_nvtx_leave(&rt->recorder);
    atomic_store_explicit(&rt->recorder.detail, 0, memory_order_seq_cst);
    if (tracer->detail == HDI_RECORD_DETAIL_CUPTI) {
        /* the reports end before the engines stop recording, since engines record the reports */
        trace_end_reports(rt, rt->n_devices);
    }
    trace_set_engines(rt, 0);
    hdi_writer *writer = tracer->writer;
    tracer->writer = NULL;
    return hdi_writer_stop(writer, info);
}

hd_status hd_trace_start(hd_runtime *rt, const char *file, const hd_trace_options *options)
{
    HDI_INSIDE(rt);
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    hd_trace_options room;
    if (options && !(options = HDI_SIZED_IN(hd_trace_options, options, &room))) {
        return HD_ERROR_ARGUMENT;
    }
    if (!file || !file[0]) {
        return hdi_fail(HD_ERROR_ARGUMENT, "file is %s; give the path of a file", file ? "empty" : "null");
    }
    hd_trace_detail detail = options ? options->detail : HD_TRACE_DEFAULT;
    if (detail != HD_TRACE_DEFAULT && detail != HD_TRACE_EDGES && detail != HD_TRACE_FULL && detail != HD_TRACE_CUPTI) {
        return hdi_fail(HD_ERROR_ARGUMENT,
                        "detail is %d; give one of HD_TRACE_DEFAULT, HD_TRACE_EDGES, HD_TRACE_FULL, HD_TRACE_CUPTI",
                        (int)detail);
    }
    uint64_t limit = options && options->file_limit ? options->file_limit : (uint64_t)rt->options.trace_limit;
    uint32_t as_option = (uint32_t)rt->options.trace_detail + HDI_RECORD_DETAIL_EDGES;
    hdi_tracer *tracer = &hdi_trace_of(rt)->tracer;
    hdi_mutex_lock(&tracer->lock);
    hd_status status = trace_start_file(rt, file, NULL, detail ? (uint32_t)detail : as_option, limit);
    hdi_mutex_unlock(&tracer->lock);
    return status;
}

hd_status hd_trace_stop(hd_runtime *rt, hd_trace_info *out)
{
    HDI_INSIDE(rt);
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    hd_trace_info info = {.size = sizeof info};
    if (out && HDI_SIZED_CHECK(hd_trace_info, out)) {
        return HD_ERROR_ARGUMENT;
    }
    hdi_tracer *tracer = &hdi_trace_of(rt)->tracer;
    hdi_mutex_lock(&tracer->lock);
    hd_status status = tracer->writer ? trace_stop_file(rt, &info)
                                      : hdi_fail(HD_ERROR_NOT_FOUND, "no trace is being written; call hd_trace_start");
    hdi_mutex_unlock(&tracer->lock);
    if (out && status != HD_ERROR_NOT_FOUND) {
        HDI_SIZED_OUT(hd_trace_info, out, &info);
    }
    return status;
}

/* ---- with the runtime ---- */

static void trace_init(hd_runtime *rt)
{
    hdi_mutex_init(&hdi_trace_of(rt)->tracer.lock, HDI_RANK_TRACER);
}

/* Returns the name of a rank's file: the number stands before the ending, so "run.trace" becomes
 * "run.3.trace". The caller frees it. NULL: no memory. */
static char *trace_name_of_rank(const char *file, int64_t rank)
{
    const char *slash = strrchr(file, '/'), *base = slash ? slash + 1 : file, *dot = strrchr(base, '.');
    const char *ending = dot && dot > base ? dot : base + strlen(base);
    char *name = NULL;
    return asprintf(&name, "%.*s.%lld%s", (int)(ending - file), file, (long long)rank, ending) < 0 ? NULL : name;
}

/* Starts the trace that the option `trace` requests. */
static hd_status trace_ready(hd_runtime *rt)
{
    static _Atomic unsigned traced; /* how many names this process used or found in use */
    const char *file = rt->options.trace;
    if (!file[0]) {
        return HD_OK;
    }
    char *of_rank = NULL;
    if (rt->options.trace_rank >= 0 && !(file = of_rank = trace_name_of_rank(file, rt->options.trace_rank))) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for the name of the trace");
    }
    hd_status status = trace_start_file(rt, file, &traced, (uint32_t)rt->options.trace_detail + HDI_RECORD_DETAIL_EDGES,
                                        (uint64_t)rt->options.trace_limit);
    free(of_rank);
    if (!status) {
        hdi_nvtx_offer();
    }
    return status;
}

void hdi_trace_close(hd_runtime *rt, hd_error *left)
{
    if (hdi_trace_of(rt)->tracer.writer) {
        hdi_attempt attempt;
        hdi_attempt_begin(&attempt);
        hd_status status = trace_stop_file(rt, NULL);
        if (status && left && left->status == HD_OK) {
            hdi_error_get(left);
        }
        hdi_attempt_end(&attempt);
    }
}

static void trace_release(hd_runtime *rt)
{
    hdi_trace_close(rt, NULL);
    hdi_mutex_destroy(&hdi_trace_of(rt)->tracer.lock);
    hdi_recorder_release(&rt->recorder);
}

const hdi_lifetime hdi_trace_lifetime = {.init = trace_init, .ready = trace_ready, .release = trace_release};

/* ---- ranges ---- */

hd_status hd_range_push(hd_runtime *rt, const char *name)
{
    HDI_INSIDE_OFTEN(rt);
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    if (!name) {
        return hdi_fail(HD_ERROR_ARGUMENT, "name is null; give the range a name");
    }
    if (hdi_records(&rt->recorder)) {
        hdi_record record = {.range = {.time = hdi_record_now(&rt->recorder), .name = hdi_record_number(name)}};
        record.type = HDI_RECORD_PUSH;
        hdi_record_push(&rt->recorder, &record, name);
    }
    return HD_OK;
}

hd_status hd_range_pop(hd_runtime *rt)
{
    HDI_INSIDE_OFTEN(rt);
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    if (hdi_records(&rt->recorder)) {
        hdi_record record = {.range = {.time = hdi_record_now(&rt->recorder)}};
        record.type = HDI_RECORD_POP;
        hdi_record_pop(&rt->recorder, &record);
    }
    return HD_OK;
}
