/* graph.c - graphs made by capture or node by node, changes of executable graphs, and their launches.
 *
 * Threads: entry points run on any thread, hdi_host_graph_run on stream threads. Locks: the host lock, which is released
 * while a node does its work.
 * Blocking: a launch waits while its stream is full.
 * Always: a graph does not change while executable graphs or queued launches refer to it. It lives until its handle, its
 * executable graphs and its queued launches are all gone. An executable graph whose nodes are set gets a copy of its own.
 * It gets another copy while launches of that one are queued, so those run unchanged. Launches of one executable graph run
 * one after the other.
 */
#include <stdlib.h>
#include <string.h>
#include "simulator/host.h"

typedef struct executable {
    uint64_t handle;
    hdi_host_graph *origin; /* the graph that it was made of */
    hdi_host_graph *graph;  /* the graph that its launches run: `origin`, or a copy with other parameters */
    hdi_host_point *last;   /* the end of its last launch; NULL: not launched */
} executable;

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
    hdi_host_graph_release(e->origin);
    hdi_host_point_release(e->last);
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

/* ---------------------------------------------------------------------------------------------------------- running -- */

/* Runs a node. Does nothing in a context that has faulted or is being taken down, nor in a child that a host function
 * forked. */
static void run_node(uint64_t random, const hdi_host_node *node)
{
    if (hdi_driver_was_forked()) {
        return;
    }
    const hdi_host_context *context = hdi_host_handle_find(HDI_HOST_CONTEXT, node->context);
    if (random && context && context->error == HDCU_SUCCESS) {
        hdi_host_perturb(random);
        context = hdi_host_handle_find(HDI_HOST_CONTEXT, node->context); /* the lock was released meanwhile */
    }
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

/* Runs the nodes in some order that the dependencies allow. Each step takes the first ready node at or after a random
 * one. */
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

/* --------------------------------------------------------------------------------------------------------- changing -- */

/* False: out of memory; *to is to be released all the same. */
static bool copy_node(hdi_host_node *to, const hdi_host_node *from)
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

static hdi_host_graph *copy_graph(const hdi_host_graph *graph)
{
    hdi_host_graph *copy = calloc(1, sizeof *copy);
    hdi_host_node *nodes = calloc(graph->count + 1, sizeof *nodes);
    bool copied = copy && nodes;
    if (!copied) {
        free(copy);
        free(nodes);
        return NULL;
    }
    *copy = (hdi_host_graph){.references = 1, .nodes = nodes, .capacity = graph->count + 1};
    while (copied && copy->count < graph->count) {
        copied = copy_node(&nodes[copy->count], &graph->nodes[copy->count]);
        copy->count++;
    }
    if (!copied) {
        hdi_host_graph_release(copy);
        return NULL;
    }
    return copy;
}

/* The node's number in the graph; graph->count where the node is not in it. */
static size_t find_node(const hdi_host_graph *graph, hdcu_graphnode node)
{
    size_t n = 0;
    while (n < graph->count && (graph->nodes[n].handle == 0 || graph->nodes[n].handle != (uintptr_t)node)) {
        n++;
    }
    return n;
}

static hdcu_result add_node(hdi_host_graph *g, hdi_host_node *node, hdcu_graphnode *out)
{
    if (g->count == g->capacity) {
        size_t capacity = g->capacity ? g->capacity * 2 : 16;
        hdi_host_node *grown = realloc(g->nodes, capacity * sizeof *grown);
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

/* Finds the nodes that `node` is to wait for. After a failure node->before is to be freed. */
static hdcu_result find_before(const hdi_host_graph *g, const hdcu_graphnode *before, size_t count, hdi_host_node *node)
{
    node->before = count ? malloc(count * sizeof *node->before) : NULL;
    if (count && !node->before) {
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        node->before[i] = find_node(g, before[i]);
        if (node->before[i] == g->count) {
            return HDCU_ERROR_INVALID_VALUE;
        }
    }
    node->before_count = count;
    return HDCU_SUCCESS;
}

static hdcu_result set_node(executable *e, size_t n, const hdcu_kernel_node_params *params)
{
    const hdi_host_node *node = &e->graph->nodes[n];
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
        hdi_host_graph *copy = copy_graph(e->graph);
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

/* ----------------------------------------------------------------------------------------------------- entry points -- */

hdcu_result hdi_host_cuGraphCreate(hdcu_graph *graph, unsigned flags)
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

hdcu_result hdi_host_cuGraphAddKernelNode(hdcu_graphnode *out, hdcu_graph graph, const hdcu_graphnode *before,
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
    hdi_host_node node = {.context = context->handle, .device = context->device};
    r = hdi_host_kernel_op(params, context, &node.op);
    if (r != HDCU_SUCCESS) {
        return hdi_host_leave(r);
    }
    r = find_before(g, before, count, &node);
    if (r == HDCU_SUCCESS) {
        r = add_node(g, &node, out);
    }
    if (r != HDCU_SUCCESS) {
        hdi_host_op_release(&node.op, r);
        free(node.before);
    }
    return hdi_host_leave(r);
}

hdcu_result hdi_host_cuGraphExecKernelNodeSetParams(hdcu_graphexec exec, hdcu_graphnode node,
                                                    const hdcu_kernel_node_params *params)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        executable *e = hdi_host_handle_find(HDI_HOST_GRAPHEXEC, (uintptr_t)exec);
        size_t n = e ? find_node(e->origin, node) : 0;
        r = e && params && n < e->origin->count ? set_node(e, n, params) : HDCU_ERROR_INVALID_VALUE;
    }
    return hdi_host_leave(r);
}

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
            g->references += 2;
            *e = (executable){handle, g, g, NULL};
            *exec = (hdcu_graphexec)(uintptr_t)handle;
        }
    }
    return hdi_host_leave(r);
}

/* The contexts that the nodes run in must all exist and have no fault. */
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
        return hdi_host_submit(stream, &work); /* it becomes a node of another graph */
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
