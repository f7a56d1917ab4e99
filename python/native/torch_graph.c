/* torch_graph.c - memory of PyTorch's allocator in captured graphs.
 *
 * A captured graph uses its memory in every replay, also after PyTorch freed the memory. So a block
 * that was allocated in a capture serves only this capture, and stays as long as the graph and its
 * executables. The driver tells the end: the graph retains a user object, executables inherit it,
 * and the driver calls the destructor after the last replay. The destructor must not call the
 * driver, so it only counts. A later call of the allocator gives the memory back.
 *
 * Threads: those of PyTorch; the destructor runs on any thread. Locks: the callers hold the lock of
 * the device; the destructor takes none.
 * Always: if the driver cannot tell the end of a graph, the memory stays until the process ends.
 */
#include <stdlib.h>
#include "torch_part.h"

enum { TORCH_CAPTURE_ACTIVE = 1, TORCH_NO_SYNC = 1, TORCH_MOVE = 1 };

/* After the store of `gone`, another thread may free the graph. */
static void torch_graph_end(void *context)
{
    torch_graph *graph = context;
    torch_device *d = graph->device;
    atomic_store_explicit(&graph->gone, true, memory_order_release);
    atomic_fetch_add_explicit(&d->graphs_gone, 1, memory_order_release);
}

bool torch_graph_of_locked(torch_device *d, void *stream, torch_graph **out)
{
    int status = 0;
    unsigned long long id = 0;
    void *captured = NULL, *object;
    *out = NULL;
    if (!hd_torch_driver.capture_info ||
        hd_torch_driver.capture_info(stream, &status, &id, &captured, NULL, NULL) != 0 ||
        status != TORCH_CAPTURE_ACTIVE) {
        return true;
    }
    torch_graph *graph = d->graphs;
    while (graph && graph->id != id) {
        graph = graph->next;
    }
    if (!graph) {
        graph = calloc(1, sizeof *graph);
        if (!graph) {
            return false;
        }
        graph->device = d;
        graph->id = id;
        graph->stream = stream;
        graph->next = d->graphs;
        d->graphs = graph;
        d->figures.graphs++;
        if (hd_torch_driver.object_create &&
            hd_torch_driver.object_create(&object, graph, torch_graph_end, 1, TORCH_NO_SYNC) == 0) {
            hd_torch_driver.graph_retain(captured, object, 1, TORCH_MOVE);
        }
    }
    *out = graph;
    return true;
}

bool torch_graphs_are_captured_locked(torch_device *d)
{
    bool captured = false;
    for (torch_graph *graph = d->graphs; graph; graph = graph->next) {
        graph->over = graph->over || !torch_is_capturing(graph->stream);
        captured = captured || !graph->over;
    }
    return captured;
}

void torch_graph_park_locked(torch_graph *graph, torch_block *block)
{
    torch_table_remove_locked(graph->device, block);
    torch_list_push(&graph->parked, block);
}

/* Moves a free block of the graph to the list `later`. */
static void torch_graph_drop_locked(torch_device *d, torch_block *block)
{
    d->figures.graph_bytes -= block->bytes;
    d->figures.cached_bytes += block->bytes;
    torch_list_push(&d->later, block);
}

/* Gives all blocks of the graph, also those in use, to the caches outside of captures. False: no
 * memory of the host is left. */
static bool torch_graph_disown_locked(torch_device *d, torch_graph *graph)
{
    for (torch_cache *c = graph->caches; c; c = c->next) {
        c->stream = torch_stream_of(c->stream.handle, torch_is_capturing(c->stream.handle));
        if (!torch_cache_of_locked(d, NULL, c->stream)) {
            return false;
        }
    }
    for (size_t i = 0; i < d->table_room; i++) {
        for (torch_block *b = d->table[i]; b; b = b->chain) {
            if (b->cache && b->cache->graph == graph) {
                b->everywhere = true;
            }
        }
    }
    return true;
}

static void torch_graph_free_locked(torch_device *d, torch_graph *graph)
{
    torch_block *block;
    while ((block = graph->parked.first)) {
        torch_list_remove(&graph->parked, block);
        block->everywhere = true;
        block->cache = torch_cache_of_locked(d, NULL, block->cache->stream);
        torch_graph_drop_locked(d, block);
    }
    while (graph->caches) {
        torch_cache *cache = graph->caches;
        torch_cache *own = torch_cache_of_locked(d, NULL, cache->stream);
        for (unsigned i = 0; i < TORCH_CLASSES; i++) {
            while ((block = torch_cache_pop_locked(cache, i))) {
                torch_table_remove_locked(d, block);
                block->cache = own;
                torch_graph_drop_locked(d, block);
            }
        }
        for (size_t i = 0; i < d->table_room; i++) {
            for (block = d->table[i]; block; block = block->chain) {
                block->cache = block->cache == cache ? own : block->cache;
            }
        }
        graph->caches = cache->next;
        free(cache);
    }
    d->figures.graphs--;
    free(graph);
}

void torch_graphs_end_locked(torch_device *d)
{
    torch_graph **link = &d->graphs;
    while (*link) {
        torch_graph *graph = *link;
        if (!atomic_load_explicit(&graph->gone, memory_order_acquire) || !torch_graph_disown_locked(d, graph)) {
            link = &graph->next;
            continue;
        }
        *link = graph->next;
        torch_graph_free_locked(d, graph);
        atomic_fetch_sub_explicit(&d->graphs_gone, 1, memory_order_relaxed);
    }
}
