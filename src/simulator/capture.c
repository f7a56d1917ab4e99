/* capture.c - stream capture: work submitted to a capturing stream becomes nodes of a graph.
 *
 * Threads: any. Locks: entry points take the host lock; all else runs under it. Blocking: none.
 * Always: a capture begins in one stream and spreads to streams that wait for an event recorded in it. It ends in the
 * stream it began in, when every node leads there. A misuse makes it invalid; it then ends without a graph. A stream's
 * tails are the nodes that its next node waits for.
 */
#include <stdlib.h>
#include <string.h>
#include "simulator/host.h"

static hdi_host_capture *live;
static uint64_t captures_begun;

void hdi_host_captured_clear(hdi_host_captured *captured)
{
    free(captured->nodes);
    *captured = (hdi_host_captured){0};
}

void hdi_host_capture_invalidate(hdi_host_capture *capture)
{
    capture->invalid = true;
}

static hdi_host_capture *capture_of(uint64_t id)
{
    hdi_host_capture *c = live;
    while (c && c->id != id) {
        c = c->next;
    }
    return c;
}

static void leave_capture(hdi_host_stream *s)
{
    s->capture = NULL;
    free(s->tails);
    s->tails = NULL;
    s->tail_count = 0;
}

/* Ends the capture: all its streams leave it. The graph stays only where another reference to it was taken. */
static void end(hdi_host_capture *c)
{
    for (int i = 0; i < HDI_HOST_DEVICES_MAX; i++) {
        hdi_host_context *context = hdi_host.devices[i].context;
        for (hdi_host_stream *s = context ? context->streams : NULL; s; s = s->next) {
            if (s->capture == c) {
                leave_capture(s);
            }
        }
    }
    hdi_host_capture **link = &live;
    while (*link != c) {
        link = &(*link)->next;
    }
    *link = c->next;
    hdi_host_graph_release(c->graph);
    free(c);
}

void hdi_host_capture_abandon(hdi_host_stream *stream)
{
    hdi_host_capture *c = stream->capture;
    if (!c) {
        return;
    }
    if (c->origin == stream) {
        end(c);
    } else {
        c->invalid = true;
        leave_capture(stream);
    }
}

/* A copy of a list of nodes. NULL: the list is empty, or there is no memory for the copy (*failed). */
static size_t *copy_list(const size_t *list, size_t count, bool *failed)
{
    size_t *copy = count ? malloc(count * sizeof *copy) : NULL;
    if (count && copy) {
        memcpy(copy, list, count * sizeof *copy);
    }
    *failed = count && !copy;
    return copy;
}

hdcu_result hdi_host_capture_add(hdi_host_stream *stream, hdi_host_op *op)
{
    hdi_host_capture *c = stream->capture;
    hdi_host_graph *g = c->graph;
    if (c->invalid) {
        hdi_host_op_release(op, HDCU_ERROR_STREAM_CAPTURE_INVALIDATED);
        return HDCU_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    size_t *tail = malloc(sizeof *tail);
    if (tail && g->count == g->capacity) {
        size_t capacity = g->capacity ? g->capacity * 2 : 16;
        hdi_host_node *grown = realloc(g->nodes, capacity * sizeof *grown);
        if (grown) {
            g->nodes = grown;
            g->capacity = capacity;
        }
    }
    if (!tail || g->count == g->capacity) {
        free(tail);
        c->invalid = true;
        hdi_host_op_release(op, HDCU_ERROR_OUT_OF_MEMORY);
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    *tail = g->count;
    g->nodes[g->count++] = (hdi_host_node){.op = *op,
                                           .context = stream->context->handle,
                                           .device = stream->context->device,
                                           .before = stream->tails,
                                           .before_count = stream->tail_count};
    stream->tails = tail;
    stream->tail_count = 1;
    return HDCU_SUCCESS;
}

hdcu_result hdi_host_capture_record(hdi_host_stream *stream, hdi_host_captured *captured)
{
    bool failed;
    if (stream->capture->invalid) {
        return HDCU_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    size_t *nodes = copy_list(stream->tails, stream->tail_count, &failed);
    if (failed) {
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    hdi_host_captured_clear(captured);
    *captured = (hdi_host_captured){stream->capture->id, nodes, stream->tail_count};
    return HDCU_SUCCESS;
}

static hdcu_result join(hdi_host_stream *stream, const hdi_host_captured *captured)
{
    size_t count = stream->tail_count;
    size_t *tails = malloc((count + captured->count + 1) * sizeof *tails);
    if (!tails) {
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    if (count) {
        memcpy(tails, stream->tails, count * sizeof *tails);
    }
    for (size_t i = 0; i < captured->count; i++) {
        size_t seen = 0;
        while (seen < count && tails[seen] != captured->nodes[i]) {
            seen++;
        }
        if (seen == count) {
            tails[count++] = captured->nodes[i];
        }
    }
    free(stream->tails);
    stream->tails = tails;
    stream->tail_count = count;
    return HDCU_SUCCESS;
}

hdcu_result hdi_host_capture_wait(hdi_host_stream *stream, const hdi_host_captured *captured)
{
    hdi_host_capture *c = capture_of(captured->capture);
    if (!c) {
        if (stream->capture) {
            stream->capture->invalid = true;
            return HDCU_ERROR_STREAM_CAPTURE_ISOLATION;
        }
        return HDCU_ERROR_CAPTURED_EVENT;
    }
    if (stream->capture && stream->capture != c) {
        stream->capture->invalid = c->invalid = true;
        return HDCU_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (c->invalid) {
        return HDCU_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    if (stream == stream->context->null_stream) {
        c->invalid = true;
        return HDCU_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    hdcu_result r = join(stream, captured);
    if (r == HDCU_SUCCESS) {
        stream->capture = c;
    }
    return r;
}

/* ------------------------------------------------------------------------------------------------ what is forbidden -- */

/* What the driver (580.159) refuses during a capture, which also spoils the capture:
 * - allocating and freeing memory, and pinning memory by the older calls
 * - queries of events and streams
 * - unloading modules
 * It permits mapping memory, loading modules, making streams and submitting work.
 *
 * The mode of the calling thread decides which captures bind it. Captures of the thread's own bind it unless they are
 * relaxed.
 * - GLOBAL: its own, and every capture that was begun in this mode.
 * - THREAD_LOCAL: only its own.
 * - RELAXED: none. */
static _Thread_local int thread_mode; /* HDCU_STREAM_CAPTURE_MODE_*; GLOBAL (0) at first */

static bool minds(const hdi_host_capture *c)
{
    bool own = pthread_equal(c->thread, pthread_self());
    return thread_mode != HDCU_STREAM_CAPTURE_MODE_RELAXED &&
           ((own && c->mode != HDCU_STREAM_CAPTURE_MODE_RELAXED) ||
            (thread_mode == HDCU_STREAM_CAPTURE_MODE_GLOBAL && c->mode == HDCU_STREAM_CAPTURE_MODE_GLOBAL));
}

hdcu_result hdi_host_capture_forbids(void)
{
    hdcu_result r = HDCU_SUCCESS;
    for (hdi_host_capture *c = live; c; c = c->next) {
        if (minds(c)) {
            c->invalid = true;
            r = HDCU_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return r;
}

/* Invalidates every capture in the context's streams, or in its blocking streams. Returns `code` where there was one. */
static hdcu_result forbid_in(hdi_host_context *context, bool blocking_only, hdcu_result code)
{
    hdcu_result r = HDCU_SUCCESS;
    for (hdi_host_stream *s = live ? context->streams : NULL; s; s = s->next) {
        if (s->capture && !(blocking_only && s->non_blocking)) {
            s->capture->invalid = true;
            r = code;
        }
    }
    return r;
}

hdcu_result hdi_host_capture_forbids_drain(hdi_host_context *context)
{
    hdcu_result r = forbid_in(context, false, HDCU_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    return r == HDCU_SUCCESS ? hdi_host_capture_forbids() : r;
}

hdcu_result hdi_host_capture_forbids_null(hdi_host_context *context)
{
    return forbid_in(context, true, HDCU_ERROR_STREAM_CAPTURE_IMPLICIT);
}

/* ----------------------------------------------------------------------------------------------------- entry points -- */

static hdcu_result begin(hdi_host_stream *stream, int mode)
{
    if (stream == stream->context->null_stream) {
        return HDCU_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (stream->capture) {
        return HDCU_ERROR_ILLEGAL_STATE;
    }
    hdi_host_capture *c = calloc(1, sizeof *c);
    hdi_host_graph *g = calloc(1, sizeof *g);
    if (!c || !g) {
        free(c);
        free(g);
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    g->references = 1;
    c->id = ++captures_begun;
    c->origin = stream;
    c->mode = mode;
    c->thread = pthread_self();
    c->graph = g;
    c->next = live;
    live = c;
    stream->capture = c;
    return HDCU_SUCCESS;
}

hdcu_result hdi_host_cuStreamBeginCapture(hdcu_stream handle, int mode)
{
    hdi_host_stream *stream;
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS && (mode < HDCU_STREAM_CAPTURE_MODE_GLOBAL || mode > HDCU_STREAM_CAPTURE_MODE_RELAXED)) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        r = hdi_host_stream_find(handle, &stream);
    }
    if (r == HDCU_SUCCESS) {
        r = begin(stream, mode);
    }
    return hdi_host_leave(r);
}

/* SUCCESS when every node of the graph is one of `tails` or comes before one of them.
 * Errors: STREAM_CAPTURE_UNJOINED, OUT_OF_MEMORY. */
static hdcu_result check_joined(const hdi_host_graph *g, const size_t *tails, size_t tail_count)
{
    bool *leads = calloc(g->count + 1, sizeof *leads);
    if (!leads) {
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < tail_count; i++) {
        leads[tails[i]] = true;
    }
    hdcu_result r = HDCU_SUCCESS;
    for (size_t n = g->count; n-- > 0 && r == HDCU_SUCCESS;) {
        if (!leads[n]) {
            r = HDCU_ERROR_STREAM_CAPTURE_UNJOINED;
        }
        for (size_t i = 0; i < g->nodes[n].before_count; i++) {
            leads[g->nodes[n].before[i]] = true;
        }
    }
    free(leads);
    return r;
}

static hdcu_result finish(hdi_host_stream *stream, hdcu_graph *out)
{
    hdi_host_capture *c = stream->capture;
    if (!c) {
        return HDCU_ERROR_ILLEGAL_STATE;
    }
    if (c->mode != HDCU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(c->thread, pthread_self())) {
        return HDCU_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    }
    if (c->origin != stream) {
        c->invalid = true;
        return HDCU_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    *out = NULL;
    hdcu_result r =
        c->invalid ? HDCU_ERROR_STREAM_CAPTURE_INVALIDATED : check_joined(c->graph, stream->tails, stream->tail_count);
    if (r == HDCU_SUCCESS) {
        c->graph->handle = hdi_host_handle_make(HDI_HOST_GRAPH, c->graph);
        r = c->graph->handle ? HDCU_SUCCESS : HDCU_ERROR_OUT_OF_MEMORY;
    }
    if (r == HDCU_SUCCESS) {
        c->graph->references++;
        *out = (hdcu_graph)(uintptr_t)c->graph->handle;
    }
    end(c);
    return r;
}

hdcu_result hdi_host_cuStreamEndCapture(hdcu_stream handle, hdcu_graph *graph)
{
    hdi_host_stream *stream;
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS && !graph) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        r = hdi_host_stream_find(handle, &stream);
    }
    if (r == HDCU_SUCCESS) {
        r = finish(stream, graph);
    }
    return hdi_host_leave(r);
}

hdcu_result hdi_host_cuThreadExchangeStreamCaptureMode(int *mode)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS &&
        (!mode || *mode < HDCU_STREAM_CAPTURE_MODE_GLOBAL || *mode > HDCU_STREAM_CAPTURE_MODE_RELAXED)) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        int before = thread_mode;
        thread_mode = *mode;
        *mode = before;
    }
    return hdi_host_leave(r);
}

hdcu_result hdi_host_cuStreamIsCapturing(hdcu_stream handle, int *status)
{
    hdi_host_stream *stream;
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS && !status) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        r = hdi_host_stream_find(handle, &stream);
    }
    if (r == HDCU_SUCCESS) {
        *status = !stream->capture           ? HDCU_STREAM_CAPTURE_STATUS_NONE
                  : stream->capture->invalid ? HDCU_STREAM_CAPTURE_STATUS_INVALIDATED
                                             : HDCU_STREAM_CAPTURE_STATUS_ACTIVE;
    }
    return hdi_host_leave(r);
}
