/* graph.c - recorded work: captures of streams, graphs (from a capture, or made node by node), and
 * launches of graphs.
 *
 * Work that is submitted to a capturing stream becomes nodes of a graph.
 * Threads: entry points run on any thread, hdi_host_graph_run on stream threads. Locks: entry
 * points take the host lock, and all other functions run under it. The lock is released while a
 * node does its work.
 * Blocking: a launch waits while its stream is full.
 * Always: a capture begins in one stream and spreads to streams that wait for an event recorded in
 * the capture. A capture ends in the stream in which it began, and every node must lead to that
 * stream's last nodes. A misuse makes the capture invalid, and the capture then ends without a
 * graph. A stream's tails are the nodes for which its next node waits.
 * A graph does not change while executable graphs or queued launches refer to it. A graph lives
 * until its handle, its executable graphs and its queued launches are all gone. If the program sets
 * nodes of an executable graph, the executable graph gets its own copy of the graph. If launches of
 * that copy are queued, it gets another copy, so that the queued launches run unchanged. Launches
 * of one executable graph run one after the other.
 */
#include <stdlib.h>
#include <string.h>
#include "simulator/host.h"

typedef struct graph_node {
    hdi_host_op op;
    uint64_t context;
    int device;
    size_t *before; /* the nodes that this node waits for; all have smaller numbers */
    size_t before_count;
    /* the handle of a node that was added by itself; 0 in captured graphs and in copies */
    uint64_t handle;
} graph_node;

/* Something of the program that lives as long as references to it. When the last reference ends,
 * the destructor runs under the host lock, so it must not call the driver. */
typedef struct user_object {
    uint64_t handle;
    void *pointer;
    hdcu_host_fn destroy;
    size_t references;
} user_object;

/* The references of a graph to one object. */
typedef struct graph_object {
    struct graph_object *next;
    user_object *object;
    unsigned count;
} graph_object;

/* Nodes in the order of capture or addition: each node comes after the nodes for which it waits.
 * While an executable graph or a launch refers to a graph, the graph may not change, but its handle
 * may end. */
struct hdi_host_graph {
    /* 0: the graph is destroyed, still being captured, or owned by an executable graph */
    uint64_t handle;
    unsigned references;
    graph_node *nodes;
    size_t count, capacity;
    graph_object *objects; /* what the graph retains until it is released */
};

struct hdi_host_capture {
    hdi_host_capture *next; /* the next one of all captures that began and did not end yet */
    uint64_t id;
    hdi_host_stream *origin;
    int mode;
    pthread_t thread;
    bool invalid;
    hdi_host_graph *graph;
};

/* ---- captures ---- */

static hdi_host_capture *live_captures;
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

static hdi_host_capture *host_capture_of(uint64_t id)
{
    hdi_host_capture *c = live_captures;
    while (c && c->id != id) {
        c = c->next;
    }
    return c;
}

static void host_capture_leave(hdi_host_stream *s)
{
    s->capture = NULL;
    free(s->tails);
    s->tails = NULL;
    s->tail_count = 0;
}

/* Ends the capture: all its streams leave it. The graph stays only if another reference to it
 * exists. */
static void host_capture_end(hdi_host_capture *c)
{
    for (int i = 0; i < HDI_HOST_DEVICES_MAX; i++) {
        hdi_host_context *context = hdi_host.devices[i].context;
        for (hdi_host_stream *s = context ? context->streams : NULL; s; s = s->next) {
            if (s->capture == c) {
                host_capture_leave(s);
            }
        }
    }
    hdi_host_capture **link = &live_captures;
    while (*link != c) {
        link = &(*link)->next;
    }
    *link = c->next;
    if (c->graph->references == 1 && c->graph->handle) {
        /* the capture failed, but the program got the handle */
        hdi_host_handle_drop(c->graph->handle);
    }
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
        host_capture_end(c);
    } else {
        c->invalid = true;
        host_capture_leave(stream);
    }
}

/* Copies a list of nodes. NULL: the list is empty, or no memory is left for the copy (*failed). */
static size_t *host_graph_copy_list(const size_t *list, size_t count, bool *failed)
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
        graph_node *grown = realloc(g->nodes, capacity * sizeof *grown);
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
    g->nodes[g->count++] = (graph_node){.op = *op,
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
    size_t *nodes = host_graph_copy_list(stream->tails, stream->tail_count, &failed);
    if (failed) {
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    hdi_host_captured_clear(captured);
    *captured = (hdi_host_captured){stream->capture->id, nodes, stream->tail_count};
    return HDCU_SUCCESS;
}

static hdcu_result host_capture_join(hdi_host_stream *stream, const hdi_host_captured *captured)
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
    hdi_host_capture *c = host_capture_of(captured->capture);
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
    hdcu_result r = host_capture_join(stream, captured);
    if (r == HDCU_SUCCESS) {
        stream->capture = c;
    }
    return r;
}

/* ---- calls that captures forbid ---- */

/* During a capture the driver (580.159) refuses these calls, and each of them invalidates the
 * capture:
 * - allocating and freeing memory, and pinning memory with the older calls
 * - queries of events and streams
 * - unloading modules
 * It permits mapping memory, loading modules, making streams and submitting work.
 *
 * The mode of the calling thread decides which captures forbid its calls. The thread's own captures
 * forbid them unless the captures are relaxed.
 * - GLOBAL: the thread's own captures, and every capture begun in this mode.
 * - THREAD_LOCAL: only its own captures.
 * - RELAXED: no capture. */
static _Thread_local int thread_mode; /* HDCU_STREAM_CAPTURE_MODE_*; GLOBAL (0) at first */

static bool host_capture_minds(const hdi_host_capture *c)
{
    bool own = pthread_equal(c->thread, pthread_self());
    return thread_mode != HDCU_STREAM_CAPTURE_MODE_RELAXED &&
           ((own && c->mode != HDCU_STREAM_CAPTURE_MODE_RELAXED) ||
            (thread_mode == HDCU_STREAM_CAPTURE_MODE_GLOBAL && c->mode == HDCU_STREAM_CAPTURE_MODE_GLOBAL));
}

hdcu_result hdi_host_capture_forbids(void)
{
    hdcu_result r = HDCU_SUCCESS;
    for (hdi_host_capture *c = live_captures; c; c = c->next) {
        if (host_capture_minds(c)) {
            c->invalid = true;
            r = HDCU_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return r;
}

/* Invalidates every capture in the context's streams, or in its blocking streams. Returns `code` if
 * it found one. */
static hdcu_result host_capture_forbid_in(hdi_host_context *context, bool blocking_only, hdcu_result code)
{
    hdcu_result r = HDCU_SUCCESS;
    for (hdi_host_stream *s = live_captures ? context->streams : NULL; s; s = s->next) {
        if (s->capture && !(blocking_only && s->non_blocking)) {
            s->capture->invalid = true;
            r = code;
        }
    }
    return r;
}

hdcu_result hdi_host_capture_forbids_drain(hdi_host_context *context)
{
    hdcu_result r = host_capture_forbid_in(context, false, HDCU_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    return r == HDCU_SUCCESS ? hdi_host_capture_forbids() : r;
}

hdcu_result hdi_host_capture_forbids_null(hdi_host_context *context)
{
    return host_capture_forbid_in(context, true, HDCU_ERROR_STREAM_CAPTURE_IMPLICIT);
}

/* ---- captures: calls ---- */

static hdcu_result host_capture_begin(hdi_host_stream *stream, int mode)
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
    c->next = live_captures;
    live_captures = c;
    stream->capture = c;
    return HDCU_SUCCESS;
}

static hdcu_result cuStreamBeginCapture(hdcu_stream handle, int mode)
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
        r = host_capture_begin(stream, mode);
    }
    return hdi_host_leave(r);
}

/* SUCCESS if every node of the graph is one of `tails` or comes before one of them.
 * Errors: STREAM_CAPTURE_UNJOINED, OUT_OF_MEMORY. */
static hdcu_result host_capture_check_joined(const hdi_host_graph *g, const size_t *tails, size_t tail_count)
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

/* Gives the graph of a capture a handle, if it lacks one. */
static hdcu_result host_capture_show_graph(hdi_host_capture *c)
{
    if (!c->graph->handle) {
        c->graph->handle = hdi_host_handle_make(HDI_HOST_GRAPH, c->graph);
    }
    return c->graph->handle ? HDCU_SUCCESS : HDCU_ERROR_OUT_OF_MEMORY;
}

static hdcu_result host_capture_finish(hdi_host_stream *stream, hdcu_graph *out)
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
    hdcu_result r = c->invalid ? HDCU_ERROR_STREAM_CAPTURE_INVALIDATED
                               : host_capture_check_joined(c->graph, stream->tails, stream->tail_count);
    r = r == HDCU_SUCCESS ? host_capture_show_graph(c) : r;
    if (r == HDCU_SUCCESS) {
        c->graph->references++;
        *out = (hdcu_graph)(uintptr_t)c->graph->handle;
    }
    host_capture_end(c);
    return r;
}

static hdcu_result cuStreamEndCapture(hdcu_stream handle, hdcu_graph *graph)
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
        r = host_capture_finish(stream, graph);
    }
    return hdi_host_leave(r);
}

static hdcu_result cuThreadExchangeStreamCaptureMode(int *mode)
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

static int host_capture_status(const hdi_host_capture *c)
{
    return !c           ? HDCU_STREAM_CAPTURE_STATUS_NONE
           : c->invalid ? HDCU_STREAM_CAPTURE_STATUS_INVALIDATED
                        : HDCU_STREAM_CAPTURE_STATUS_ACTIVE;
}

static hdcu_result cuStreamIsCapturing(hdcu_stream handle, int *status)
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
        *status = host_capture_status(stream->capture);
    }
    return hdi_host_leave(r);
}

/* The simulator does not report the nodes behind which the stream's next node would come. */
static hdcu_result cuStreamGetCaptureInfo(hdcu_stream handle, int *status, unsigned long long *id, hdcu_graph *graph,
                                          const hdcu_graphnode **dependencies, size_t *count)
{
    hdi_host_stream *stream;
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS && (!status || dependencies || count)) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        r = hdi_host_stream_find(handle, &stream);
    }
    hdi_host_capture *c = r == HDCU_SUCCESS ? stream->capture : NULL;
    if (r == HDCU_SUCCESS) {
        *status = host_capture_status(c);
    }
    if (c && !c->invalid) {
        r = graph ? host_capture_show_graph(c) : r;
        if (id) {
            *id = c->id;
        }
        if (graph) {
            *graph = (hdcu_graph)(uintptr_t)c->graph->handle;
        }
    }
    return hdi_host_leave(r);
}

/* ---- graphs ---- */

typedef struct executable {
    uint64_t handle;
    hdi_host_graph *origin; /* the graph from which the executable graph was made */
    /* The graph that its launches run: `origin`, or a copy with other parameters. */
    hdi_host_graph *graph;
    hdi_host_point *last; /* the end of its last launch; NULL: not launched */
} executable;

static void host_user_object_drop(user_object *o, size_t count)
{
    o->references -= count;
    if (o->references == 0) {
        hdi_host_handle_drop(o->handle);
        o->destroy(o->pointer);
        free(o);
    }
}

void hdi_host_graph_release(hdi_host_graph *graph)
{
    if (--graph->references > 0) {
        return;
    }
    for (size_t i = 0; i < graph->count; i++) {
        hdi_host_op_release(&graph->nodes[i].op, HDCU_SUCCESS);
        hdi_host_handle_drop(graph->nodes[i].handle);
        free(graph->nodes[i].before);
    }
    while (graph->objects) {
        graph_object *o = graph->objects;
        graph->objects = o->next;
        host_user_object_drop(o->object, o->count);
        free(o);
    }
    free(graph->nodes);
    free(graph);
}

static void host_graph_destroy(hdi_host_graph *g)
{
    hdi_host_handle_drop(g->handle);
    g->handle = 0;
    hdi_host_graph_release(g);
}

static void host_graph_exec_destroy(executable *e)
{
    hdi_host_handle_drop(e->handle);
    hdi_host_graph_release(e->graph);
    hdi_host_graph_release(e->origin);
    hdi_host_point_release(e->last);
    free(e);
}

void hdi_host_graphs_release(void)
{
    uint32_t position = 0;
    hdi_host_graph *g;
    while ((g = hdi_host_handle_next(HDI_HOST_GRAPH, &position))) {
        host_graph_destroy(g);
    }
    position = 0;
    executable *e;
    while ((e = hdi_host_handle_next(HDI_HOST_GRAPHEXEC, &position))) {
        host_graph_exec_destroy(e);
    }
}

/* ---- running graphs ---- */

/* Runs a node. Does nothing if the node's context faulted or is being taken down, or in a child
 * that a host function forked. */
static void host_graph_run_node(uint64_t random, const graph_node *node)
{
    if (hdi_driver_was_forked()) {
        return;
    }
    const hdi_host_context *context = hdi_host_handle_find(HDI_HOST_CONTEXT, node->context);
    if (random && context && context->error == HDCU_SUCCESS) {
        hdi_host_perturb(random);
        /* The lock was released meanwhile. */
        context = hdi_host_handle_find(HDI_HOST_CONTEXT, node->context);
    }
    if (context && context->error == HDCU_SUCCESS) {
        hdi_host_run(node->context, node->device, random, &node->op);
    }
}

static bool host_graph_node_is_ready(const graph_node *node, const bool *done)
{
    for (size_t i = 0; i < node->before_count; i++) {
        if (!done[node->before[i]]) {
            return false;
        }
    }
    return true;
}

/* Runs the nodes in some order that the dependencies allow. Each step takes the first ready node at
 * or after a random one. */
static void host_graph_run_in_random_order(uint64_t random, const hdi_host_graph *graph, bool *done)
{
    for (size_t left = graph->count; left > 0; left--) {
        size_t n = hdi_random(&random) % graph->count;
        while (done[n] || !host_graph_node_is_ready(&graph->nodes[n], done)) {
            n = (n + 1) % graph->count;
        }
        host_graph_run_node(hdi_random(&random) | 1, &graph->nodes[n]);
        done[n] = true;
    }
}

void hdi_host_graph_run(uint64_t random, const hdi_host_graph *graph)
{
    bool *done = random ? calloc(graph->count + 1, sizeof *done) : NULL;
    if (done) {
        host_graph_run_in_random_order(random, graph, done);
        free(done);
        return;
    }
    for (size_t n = 0; n < graph->count; n++) {
        host_graph_run_node(random, &graph->nodes[n]);
    }
}

/* ---- changing graphs ---- */

/* Copies a node. False: out of memory; the caller still releases *to. */
static bool host_graph_copy_node(graph_node *to, const graph_node *from)
{
    *to = *from;
    to->handle = 0;
    to->op.data_heap = NULL;
    to->before = from->before_count ? malloc(from->before_count * sizeof *to->before) : NULL;
    bool copied = to->before || !from->before_count;
    if (to->before) {
        memcpy(to->before, from->before, from->before_count * sizeof *to->before);
    }
    if (from->op.kind == HDI_HOST_OP_KERNEL) {
        from->op.u.kernel.module->references++;
    } else if (from->op.kind == HDI_HOST_OP_GRAPH) {
        from->op.u.graph->references++;
    }
    if (from->op.data_heap) {
        void *data = hdi_host_op_data(&to->op, from->op.data_bytes);
        if (!data) {
            return false;
        }
        memcpy(data, from->op.data_heap, from->op.data_bytes);
    }
    return copied;
}

static hdi_host_graph *host_graph_copy(const hdi_host_graph *graph)
{
    hdi_host_graph *copy = calloc(1, sizeof *copy);
    graph_node *nodes = calloc(graph->count + 1, sizeof *nodes);
    bool copied = copy && nodes;
    if (!copied) {
        free(copy);
        free(nodes);
        return NULL;
    }
    *copy = (hdi_host_graph){.references = 1, .nodes = nodes, .capacity = graph->count + 1};
    while (copied && copy->count < graph->count) {
        copied = host_graph_copy_node(&nodes[copy->count], &graph->nodes[copy->count]);
        copy->count++;
    }
    if (!copied) {
        hdi_host_graph_release(copy);
        return NULL;
    }
    return copy;
}

/* Returns the node's number in the graph; graph->count if the node is not in it. */
static size_t host_graph_find_node(const hdi_host_graph *graph, hdcu_graphnode node)
{
    size_t n = 0;
    while (n < graph->count && (graph->nodes[n].handle == 0 || graph->nodes[n].handle != (uintptr_t)node)) {
        n++;
    }
    return n;
}

static hdcu_result host_graph_add_node(hdi_host_graph *g, graph_node *node, hdcu_graphnode *out)
{
    if (g->count == g->capacity) {
        size_t capacity = g->capacity ? g->capacity * 2 : 16;
        graph_node *grown = realloc(g->nodes, capacity * sizeof *grown);
        if (!grown) {
            return HDCU_ERROR_OUT_OF_MEMORY;
        }
        g->nodes = grown;
        g->capacity = capacity;
    }
    node->handle = hdi_host_handle_make(HDI_HOST_GRAPHNODE, g);
    if (!node->handle) {
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    g->nodes[g->count++] = *node;
    *out = (hdcu_graphnode)(uintptr_t)node->handle;
    return HDCU_SUCCESS;
}

/* Finds the nodes that `node` will wait for. After a failure the caller frees node->before. */
static hdcu_result host_graph_find_before(const hdi_host_graph *g, const hdcu_graphnode *before, size_t count,
                                          graph_node *node)
{
    node->before = count ? malloc(count * sizeof *node->before) : NULL;
    if (count && !node->before) {
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        node->before[i] = host_graph_find_node(g, before[i]);
        if (node->before[i] == g->count) {
            return HDCU_ERROR_INVALID_VALUE;
        }
    }
    node->before_count = count;
    return HDCU_SUCCESS;
}

static hdcu_result host_graph_exec_set_node(executable *e, size_t n, const hdcu_kernel_node_params *params)
{
    const graph_node *node = &e->graph->nodes[n];
    const hdi_host_context *context = hdi_host_handle_find(HDI_HOST_CONTEXT, node->context);
    hdi_host_op op;
    if (!context || node->op.kind != HDI_HOST_OP_KERNEL) {
        return HDCU_ERROR_INVALID_VALUE;
    }
    hdcu_result r = hdi_host_kernel_op(params, context, &op);
    if (r != HDCU_SUCCESS) {
        return r;
    }
    if (e->graph == e->origin || e->graph->references > 1) {
        hdi_host_graph *copy = host_graph_copy(e->graph);
        if (!copy) {
            hdi_host_op_release(&op, HDCU_ERROR_OUT_OF_MEMORY);
            return HDCU_ERROR_OUT_OF_MEMORY;
        }
        hdi_host_graph_release(e->graph);
        e->graph = copy;
    }
    hdi_host_op_release(&e->graph->nodes[n].op, HDCU_SUCCESS);
    e->graph->nodes[n].op = op;
    return HDCU_SUCCESS;
}

/* ---- graphs: calls ---- */

static hdcu_result cuGraphCreate(hdcu_graph *graph, unsigned flags)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS && (!graph || flags != 0)) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        hdi_host_graph *g = calloc(1, sizeof *g);
        uint64_t handle = g ? hdi_host_handle_make(HDI_HOST_GRAPH, g) : 0;
        if (handle == 0) {
            free(g);
            r = HDCU_ERROR_OUT_OF_MEMORY;
        } else {
            g->handle = handle;
            g->references = 1;
            *graph = (hdcu_graph)(uintptr_t)handle;
        }
    }
    return hdi_host_leave(r);
}

static hdcu_result cuGraphAddKernelNode(hdcu_graphnode *out, hdcu_graph graph, const hdcu_graphnode *before,
                                        size_t count, const hdcu_kernel_node_params *params)
{
    hdi_host_context *context;
    hdcu_result r = hdi_host_enter_context(&context);
    if (r != HDCU_SUCCESS) {
        return hdi_host_leave(r);
    }
    hdi_host_graph *g = hdi_host_handle_find(HDI_HOST_GRAPH, (uintptr_t)graph);
    if (!out || !g || !params || (count && !before) || g->references > 1) {
        return hdi_host_leave(HDCU_ERROR_INVALID_VALUE);
    }
    graph_node node = {.context = context->handle, .device = context->device};
    r = hdi_host_kernel_op(params, context, &node.op);
    if (r != HDCU_SUCCESS) {
        return hdi_host_leave(r);
    }
    r = host_graph_find_before(g, before, count, &node);
    if (r == HDCU_SUCCESS) {
        r = host_graph_add_node(g, &node, out);
    }
    if (r != HDCU_SUCCESS) {
        hdi_host_op_release(&node.op, r);
        free(node.before);
    }
    return hdi_host_leave(r);
}

static hdcu_result cuGraphExecKernelNodeSetParams(hdcu_graphexec exec, hdcu_graphnode node,
                                                  const hdcu_kernel_node_params *params)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        executable *e = hdi_host_handle_find(HDI_HOST_GRAPHEXEC, (uintptr_t)exec);
        size_t n = e ? host_graph_find_node(e->origin, node) : 0;
        r = e && params && n < e->origin->count ? host_graph_exec_set_node(e, n, params) : HDCU_ERROR_INVALID_VALUE;
    }
    return hdi_host_leave(r);
}

static hdcu_result cuGraphInstantiateWithFlags(hdcu_graphexec *exec, hdcu_graph graph, unsigned long long flags)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS && (!exec || flags > 15)) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        hdi_host_graph *g = hdi_host_handle_find(HDI_HOST_GRAPH, (uintptr_t)graph);
        executable *e = g ? calloc(1, sizeof *e) : NULL;
        uint64_t handle = e ? hdi_host_handle_make(HDI_HOST_GRAPHEXEC, e) : 0;
        if (handle == 0) {
            free(e);
            r = g ? HDCU_ERROR_OUT_OF_MEMORY : HDCU_ERROR_INVALID_VALUE;
        } else {
            g->references += 2;
            *e = (executable){handle, g, g, NULL};
            *exec = (hdcu_graphexec)(uintptr_t)handle;
        }
    }
    return hdi_host_leave(r);
}

/* Fails unless the contexts of all nodes exist and are without a fault. */
static hdcu_result host_graph_check_contexts(const hdi_host_graph *g)
{
    for (size_t i = 0; i < g->count; i++) {
        const hdi_host_context *c = hdi_host_handle_find(HDI_HOST_CONTEXT, g->nodes[i].context);
        if (!c) {
            return HDCU_ERROR_INVALID_CONTEXT;
        }
        if (c->error != HDCU_SUCCESS) {
            return c->error;
        }
    }
    return HDCU_SUCCESS;
}

static hdcu_result host_graph_exec_launch(executable *e, hdi_host_stream *stream)
{
    hdi_host_op work = {.kind = HDI_HOST_OP_GRAPH, .u.graph = e->graph};
    e->graph->references++;
    if (stream->capture) {
        /* during a capture, the launch becomes a node of another graph */
        return hdi_host_submit(stream, &work);
    }
    hdi_host_point *point = hdi_host_point_make();
    hdcu_result r = point ? HDCU_SUCCESS : HDCU_ERROR_OUT_OF_MEMORY;
    if (r == HDCU_SUCCESS && e->last && e->last->pending > 0) {
        hdi_host_op wait = {.kind = HDI_HOST_OP_WAIT, .u.point = e->last};
        e->last->references++;
        r = hdi_host_submit(stream, &wait);
    }
    if (r != HDCU_SUCCESS) {
        hdi_host_op_release(&work, r);
        hdi_host_point_release(point);
        return r;
    }
    r = hdi_host_submit(stream, &work);
    if (r == HDCU_SUCCESS) {
        hdi_host_op record = {.kind = HDI_HOST_OP_RECORD, .u.point = point};
        point->pending = 1;
        point->references++;
        r = hdi_host_submit(stream, &record);
    }
    if (r != HDCU_SUCCESS) {
        hdi_host_point_release(point);
        return r;
    }
    hdi_host_point_release(e->last);
    e->last = point;
    return HDCU_SUCCESS;
}

static hdcu_result cuGraphLaunch(hdcu_graphexec exec, hdcu_stream stream_handle)
{
    hdi_host_stream *stream;
    hdcu_result r = hdi_host_enter_work(stream_handle, &stream);
    if (r == HDCU_SUCCESS) {
        executable *e = hdi_host_handle_find(HDI_HOST_GRAPHEXEC, (uintptr_t)exec);
        r = e ? host_graph_check_contexts(e->graph) : HDCU_ERROR_INVALID_VALUE;
        if (r == HDCU_SUCCESS) {
            r = host_graph_exec_launch(e, stream);
        }
    }
    return hdi_host_leave(r);
}

static hdcu_result cuGraphExecDestroy(hdcu_graphexec exec)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        executable *e = hdi_host_handle_find(HDI_HOST_GRAPHEXEC, (uintptr_t)exec);
        if (e) {
            host_graph_exec_destroy(e);
        } else {
            r = HDCU_ERROR_INVALID_VALUE;
        }
    }
    return hdi_host_leave(r);
}

static hdcu_result cuGraphDestroy(hdcu_graph graph)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        hdi_host_graph *g = hdi_host_handle_find(HDI_HOST_GRAPH, (uintptr_t)graph);
        if (g) {
            host_graph_destroy(g);
        } else {
            r = HDCU_ERROR_INVALID_VALUE;
        }
    }
    return hdi_host_leave(r);
}

/* ---- user objects: calls ---- */

static hdcu_result cuUserObjectCreate(hdcu_userobject *object, void *pointer, hdcu_host_fn destroy, unsigned references,
                                      unsigned flags)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS && (!object || !destroy || references == 0 || flags != HDCU_USER_OBJECT_NO_DESTRUCTOR_SYNC)) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        user_object *o = calloc(1, sizeof *o);
        uint64_t handle = o ? hdi_host_handle_make(HDI_HOST_USER_OBJECT, o) : 0;
        if (handle == 0) {
            free(o);
            r = HDCU_ERROR_OUT_OF_MEMORY;
        } else {
            *o = (user_object){handle, pointer, destroy, references};
            *object = (hdcu_userobject)(uintptr_t)handle;
        }
    }
    return hdi_host_leave(r);
}

/* Without the flag MOVE, the graph makes references of its own, and the caller keeps its own. */
static hdcu_result cuGraphRetainUserObject(hdcu_graph graph, hdcu_userobject object, unsigned count, unsigned flags)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        hdi_host_graph *g = hdi_host_handle_find(HDI_HOST_GRAPH, (uintptr_t)graph);
        user_object *o = hdi_host_handle_find(HDI_HOST_USER_OBJECT, (uintptr_t)object);
        bool moves = flags == HDCU_GRAPH_USER_OBJECT_MOVE;
        bool valid = g && o && count > 0 && (flags == 0 || (moves && o->references >= count));
        graph_object *held = valid ? malloc(sizeof *held) : NULL;
        r = held ? HDCU_SUCCESS : valid ? HDCU_ERROR_OUT_OF_MEMORY : HDCU_ERROR_INVALID_VALUE;
        if (held) {
            *held = (graph_object){g->objects, o, count};
            g->objects = held;
            o->references += moves ? 0 : count;
        }
    }
    return hdi_host_leave(r);
}

/* ---- the entry points ---- */

const hdi_driver hdi_host_graph_entries = {
    .cuStreamBeginCapture = cuStreamBeginCapture,
    .cuStreamEndCapture = cuStreamEndCapture,
    .cuThreadExchangeStreamCaptureMode = cuThreadExchangeStreamCaptureMode,
    .cuStreamIsCapturing = cuStreamIsCapturing,
    .cuStreamGetCaptureInfo = cuStreamGetCaptureInfo,
    .cuUserObjectCreate = cuUserObjectCreate,
    .cuGraphRetainUserObject = cuGraphRetainUserObject,
    .cuGraphCreate = cuGraphCreate,
    .cuGraphAddKernelNode = cuGraphAddKernelNode,
    .cuGraphExecKernelNodeSetParams = cuGraphExecKernelNodeSetParams,
    .cuGraphInstantiateWithFlags = cuGraphInstantiateWithFlags,
    .cuGraphLaunch = cuGraphLaunch,
    .cuGraphExecDestroy = cuGraphExecDestroy,
    .cuGraphDestroy = cuGraphDestroy,
};
