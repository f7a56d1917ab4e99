/* graph.c - graphs made by capture, and their launches.
 *
 * Entry points run on any thread, hdi_host_graph_run on stream threads; both under the host lock, which is released
 * while a node does its work. Always: a graph does not change once its capture has ended; it lives until its handle,
 * its executable graphs and queued launches are all gone. Launches of one executable graph run one after the other.
 */
#include <stdlib.h>
#include "driver/host/host.h"

typedef struct executable {
    uint64_t handle;
    hdi_host_graph *graph;
    hdi_host_mark *last; /* the end of its last launch; NULL: not launched */
} executable;

void hdi_host_graph_release(hdi_host_graph *graph)
{
    if (--graph->references > 0) {
        return;
    }
    for (size_t i = 0; i < graph->count; i++) {
        hdi_host_op_release(&graph->nodes[i].op, HDCU_SUCCESS);
        free(graph->nodes[i].before);
    }
    free(graph->nodes);
    free(graph);
}

static void destroy_graph(hdi_host_graph *g)
{
    hdi_host_handle_drop(g->handle);
    g->handle = 0;
    hdi_host_graph_release(g);
}

static void destroy_executable(executable *e)
{
    hdi_host_handle_drop(e->handle);
    hdi_host_graph_release(e->graph);
    hdi_host_mark_release(e->last);
    free(e);
}

void hdi_host_graphs_release(void)
{
    uint32_t position = 0;
    hdi_host_graph *g;
    while ((g = hdi_host_handle_next(HDI_HOST_GRAPH, &position))) {
        destroy_graph(g);
    }
    position = 0;
    executable *e;
    while ((e = hdi_host_handle_next(HDI_HOST_GRAPHEXEC, &position))) {
        destroy_executable(e);
    }
}

/* ---------------------------------------------------------------------------------------------------- running -- */

/* Nothing more is done in a context that has faulted or is being taken down, or in the child of a host function that
 * forked. */
static void run_node(uint64_t random, const hdi_host_node *node)
{
    if (hdi_driver_was_forked()) {
        return;
    }
    const hdi_host_context *context = hdi_host_handle_find(HDI_HOST_CONTEXT, node->context);
    if (context && context->error == HDCU_SUCCESS) {
        hdi_host_run(node->context, node->device, random, &node->op);
    }
}

static bool is_ready(const hdi_host_node *node, const bool *done)
{
    for (size_t i = 0; i < node->before_count; i++) {
        if (!done[node->before[i]]) {
            return false;
        }
    }
    return true;
}

/* Some order that the dependencies allow: each time, the first node that is ready at or after a random one. */
static void run_in_random_order(uint64_t random, const hdi_host_graph *graph, bool *done)
{
    for (size_t left = graph->count; left > 0; left--) {
        size_t n = hdi_host_random(&random) % graph->count;
        while (done[n] || !is_ready(&graph->nodes[n], done)) {
            n = (n + 1) % graph->count;
        }
        run_node(hdi_host_random(&random) | 1, &graph->nodes[n]);
        done[n] = true;
    }
}

void hdi_host_graph_run(uint64_t random, const hdi_host_graph *graph)
{
    bool *done = random ? calloc(graph->count + 1, sizeof *done) : NULL;
    if (done) {
        run_in_random_order(random, graph, done);
        free(done);
        return;
    }
    for (size_t n = 0; n < graph->count; n++) {
        run_node(random, &graph->nodes[n]);
    }
}

/* ---------------------------------------------------------------------------------------------------- entry points
 * -- */

hdcu_result hdi_host_cuGraphInstantiateWithFlags(hdcu_graphexec *exec, hdcu_graph graph, unsigned long long flags)
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
            g->references++;
            *e = (executable){handle, g, NULL};
            *exec = (hdcu_graphexec)(uintptr_t)handle;
        }
    }
    return hdi_host_leave(r);
}

/* The contexts that the nodes run in must all be there and well. */
static hdcu_result check_contexts(const hdi_host_graph *g)
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

static hdcu_result launch(executable *e, hdi_host_stream *stream)
{
    hdi_host_op work = {.kind = HDI_HOST_OP_GRAPH, .u.graph = e->graph};
    e->graph->references++;
    if (stream->capture) {
        return hdi_host_submit(stream, &work); /* a node of another graph */
    }
    hdi_host_mark *mark = hdi_host_mark_make();
    hdcu_result r = mark ? HDCU_SUCCESS : HDCU_ERROR_OUT_OF_MEMORY;
    if (r == HDCU_SUCCESS && e->last && e->last->pending > 0) {
        hdi_host_op wait = {.kind = HDI_HOST_OP_WAIT, .u.mark = e->last};
        e->last->references++;
        r = hdi_host_submit(stream, &wait);
    }
    if (r != HDCU_SUCCESS) {
        hdi_host_op_release(&work, r);
        hdi_host_mark_release(mark);
        return r;
    }
    r = hdi_host_submit(stream, &work);
    if (r == HDCU_SUCCESS) {
        hdi_host_op record = {.kind = HDI_HOST_OP_RECORD, .u.mark = mark};
        mark->pending = 1;
        mark->references++;
        r = hdi_host_submit(stream, &record);
    }
    if (r != HDCU_SUCCESS) {
        hdi_host_mark_release(mark);
        return r;
    }
    hdi_host_mark_release(e->last);
    e->last = mark;
    return HDCU_SUCCESS;
}

hdcu_result hdi_host_cuGraphLaunch(hdcu_graphexec exec, hdcu_stream stream_handle)
{
    hdi_host_stream *stream;
    hdcu_result r = hdi_host_enter_work(stream_handle, &stream);
    if (r == HDCU_SUCCESS) {
        executable *e = hdi_host_handle_find(HDI_HOST_GRAPHEXEC, (uintptr_t)exec);
        r = e ? check_contexts(e->graph) : HDCU_ERROR_INVALID_VALUE;
        if (r == HDCU_SUCCESS) {
            r = launch(e, stream);
        }
    }
    return hdi_host_leave(r);
}

hdcu_result hdi_host_cuGraphExecDestroy(hdcu_graphexec exec)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        executable *e = hdi_host_handle_find(HDI_HOST_GRAPHEXEC, (uintptr_t)exec);
        if (e) {
            destroy_executable(e);
        } else {
            r = HDCU_ERROR_INVALID_VALUE;
        }
    }
    return hdi_host_leave(r);
}

hdcu_result hdi_host_cuGraphDestroy(hdcu_graph graph)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        hdi_host_graph *g = hdi_host_handle_find(HDI_HOST_GRAPH, (uintptr_t)graph);
        if (g) {
            destroy_graph(g);
        } else {
            r = HDCU_ERROR_INVALID_VALUE;
        }
    }
    return hdi_host_leave(r);
}
