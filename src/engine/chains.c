/* chains.c - makes the executable graphs of an engine, and lends them to lanes.
 *
 * NVIDIA's driver 580 keeps memory for executable graphs. If a new graph needs more, the call that
 * makes it waits for all kernels on the device. Other calls of the process wait, too. So the engine
 * makes chains only at times without work: none of its lanes has work, and no other runtime of the
 * process has work. The engine keeps the chains until hd_close. A lane borrows at most one chain of
 * each size. A lane that used no chain for a second, and has no work in flight, gives its chains
 * back.
 *
 * Threads: the thread that runs the device's engine, with the device's context current.
 * Any thread calls hdi_chains_forget.
 * Locks: `chaining` of the engine guards the chains, because another thread may call
 * hdi_chains_forget when a module ends.
 * Always:
 * - The driver makes an executable only while no kernel of this runtime runs on the device. A
 *   kernel of another runtime may begin meanwhile, and delays the call until that kernel ends.
 * - The executable graphs of a device take at most MEMORY_MOST, according to the estimate below.
 *   The original graph of an executable graph lives as long as the executable graph, since calls
 *   name the original nodes.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "engine/chains.h"
#include "engine/rest.h"

/* The memory of an executable graph on the device: EXECUTABLE_BYTES, and NODE_BYTES for each node.
 * With driver 580.159, an executable of 8 nodes took 112 KiB, and one of 32 nodes 192 KiB. */
#define EXECUTABLE_BYTES ((uint64_t)86 << 10)
#define NODE_BYTES ((uint64_t)3500)

/* The most memory of a device for chains. It is enough for 44 lanes that are busy at the same time.
 * Any further lane issues its launches one by one, until another lane gives its chains back. */
#define MEMORY_MOST ((uint64_t)64 << 20)

/* A set is one chain of each size. To make a set took 0.8 ms on an H200. The engine makes one set
 * for each lane that exists, but at least SETS_LEAST and at most SETS_MOST. It makes this many sets
 * again whenever a lane found no spare chain. */
#define SETS_LEAST 2
#define SETS_MOST 8

#define IDLE_NS ((int64_t)1000000000) /* a lane gives its chains back after this time without use */
/* The least time between two searches for idle chains. If a lane lacks a chain, the engine takes
 * back chains that other lanes did not use for this time. */
#define TIDY_NS ((int64_t)100000000)
#define RETRY_NS ((int64_t)1000000000)
#define REFUSALS_MOST 8 /* after this many refusals in a row, no chains are used for RETRY_NS */

/* ---- making ---- */

bool hdi_launch_read(hdi_device *device, const hdi_command *c, hdi_launch *out)
{
    uint32_t number = c->kernel;
    if (!hdi_kernel_exists(device->runtime, number)) {
        return false;
    }
    out->command = c;
    out->kernel = number;
    out->bytes = c->launch.argument_bytes;
    out->extra[0] = HDCU_LAUNCH_PARAM_BUFFER_POINTER;
    out->extra[1] = (void *)(uintptr_t)c->launch.arguments;
    out->extra[2] = HDCU_LAUNCH_PARAM_BUFFER_SIZE;
    out->extra[3] = &out->bytes;
    out->extra[4] = HDCU_LAUNCH_PARAM_END;
    out->params = (hdcu_kernel_node_params){
        /* pairs with the release store of the port, which in a worker process is on another
         * thread */
        .function = atomic_load_explicit(&hdi_kernel_at(device->runtime, number)->function[device->index],
                                         memory_order_acquire),
        .grid_x = c->launch.grid_x,
        .grid_y = c->launch.grid_y,
        .grid_z = c->launch.grid_z,
        .block_x = hdi_block_x(c->launch.block),
        .block_y = hdi_block_y(c->launch.block),
        .block_z = hdi_block_z(c->launch.block),
        .shared_bytes = c->launch.shared_units * HDI_SHARED_UNIT,
        .extra = out->bytes ? out->extra : NULL,
    };
    return true;
}

static uint64_t chain_bytes_of(uint32_t size)
{
    return 2 * (EXECUTABLE_BYTES + size * NODE_BYTES);
}

void hdi_chains_start(hdi_engine *engine)
{
    const hd_runtime *rt = engine->device->runtime;
    hdi_mutex_init(&engine->chaining, HDI_RANK_CHAINS);
    bool can = rt->driver->cuGraphAddKernelNode && rt->driver->cuGraphExecKernelNodeSetParams;
    engine->chain_most = can ? (uint32_t)rt->options.chains : 0;
    engine->chains_eager = rt->provider->chains_eager;
    atomic_store_explicit(&engine->chains_lack, true, memory_order_relaxed);
}

/* `driver` NULL: this function must not call the driver. */
static void chain_unmake(hdi_engine *engine, const hdi_driver *driver, hdi_chain *c, uint32_t size)
{
    engine->chain_bytes -= chain_bytes_of(size);
    for (int i = 0; i < 2; i++) {
        if (driver && c->exec[i]) {
            /* if the executable graph still runs, the driver destroys it when it ended */
            driver->cuGraphExecDestroy(c->exec[i]);
        }
    }
    if (driver && c->graph) {
        driver->cuGraphDestroy(c->graph);
    }
    free(c->settings);
    free(c);
}

/* Fills the chain with a graph of `size` nodes in a line. */
static hdcu_result chain_make_graphs(const hdi_driver *driver, hdi_chain *c, uint32_t size,
                                     const hdcu_kernel_node_params *like)
{
    hdcu_result r = driver->cuGraphCreate(&c->graph, 0);
    for (uint32_t i = 0; i < size && r == HDCU_SUCCESS; i++) {
        r = driver->cuGraphAddKernelNode(&c->node[i], c->graph, i ? &c->node[i - 1] : NULL, i ? 1 : 0, like);
    }
    for (int i = 0; i < 2 && r == HDCU_SUCCESS; i++) {
        r = driver->cuGraphInstantiateWithFlags(&c->exec[i], c->graph, 0);
    }
    return r;
}

/* Makes a spare chain of `size` launches. */
static hdcu_result chain_make(hdi_engine *engine, uint32_t size_log2, const hdcu_kernel_node_params *like,
                              uint32_t kernel)
{
    const hdi_driver *driver = engine->device->runtime->driver;
    uint32_t size = (uint32_t)1 << size_log2;
    hdi_chain *c = calloc(1, sizeof *c);
    if (!c) {
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    engine->chain_bytes += chain_bytes_of(size);
    c->settings = calloc((size_t)2 * size, sizeof *c->settings);
    hdcu_result r = c->settings ? chain_make_graphs(driver, c, size, like) : HDCU_ERROR_OUT_OF_MEMORY;
    if (r != HDCU_SUCCESS) {
        chain_unmake(engine, driver, c, size);
        return r;
    }
    c->like = kernel;
    for (uint32_t i = 0; i < 2 * size; i++) {
        c->settings[i].kernel = kernel;
    }
    c->next = engine->chains_spare[size_log2];
    engine->chains_spare[size_log2] = c;
    return HDCU_SUCCESS;
}

void hdi_chain_refused(hdi_engine *engine, int code)
{
    if (hdi_driver_code_is_fatal(code)) {
        engine->chain_fatal = code;
    } else if (++engine->chain_refusals >= REFUSALS_MOST) {
        engine->chain_refusals = 0;
        engine->chains_again = engine->now + RETRY_NS;
    }
}

/* Keeps a copy of a launch, which becomes the pattern for the nodes of new chains. The slots of a
 * command are contiguous. In a worker process the ring may change at any time, so this function
 * checks only the copy. */
static void chains_keep_like(hdi_engine *engine, const hdi_command *launch)
{
    size_t bytes = (size_t) * (const volatile uint8_t *)&launch->slots * HDI_SLOT_BYTES;
    hdi_command *copy = bytes ? malloc(bytes) : NULL;
    if (copy) {
        memcpy(copy, launch, bytes);
    }
    if (copy && copy->op == HDI_OP_LAUNCH &&
        offsetof(hdi_command, launch.arguments) + copy->launch.argument_bytes <= bytes) {
        engine->chains_like = copy;
    } else {
        free(copy);
    }
}

/* True if no lane has unfinished work. Work of `asks` that is not issued yet does not count.
 * *lanes: the number of lanes that exist. Only this thread issues work, so no kernel of this
 * runtime begins until this thread goes on. */
static bool chains_may_be_made(const hdi_engine *engine, const hdi_stream *asks, uint32_t *lanes)
{
    *lanes = 0;
    for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
        const hdi_stream *stream = &engine->streams[i];
        if (!atomic_load_explicit(&stream->made, memory_order_acquire)) {
            continue;
        }
        /* relaxed: a command that this load misses is not issued either */
        uint64_t head = atomic_load_explicit(&engine->device->channel.lanes[i].head, memory_order_relaxed);
        if (stream->passed != stream->issued || (stream != asks && stream->issued != head)) {
            return false;
        }
        ++*lanes;
    }
    return true;
}

/* Makes `sets` chains of each size, as far as the option chain_memory allows. */
static void chains_make(hdi_engine *engine, uint32_t sets, const hdi_launch *like)
{
    for (uint32_t set = 0; set < sets; set++) {
        for (uint32_t s = 0; s < HDI_CHAIN_SIZES && (uint32_t)1 << s <= engine->chain_most; s++) {
            if (engine->chain_bytes + chain_bytes_of((uint32_t)1 << s) > MEMORY_MOST) {
                return;
            }
            hdcu_result r = chain_make(engine, s, &like->params, like->kernel);
            if (r != HDCU_SUCCESS) {
                hdi_chain_refused(engine, r);
                return;
            }
        }
    }
}

/* True if this engine's lanes allow that chains are made now. If the engine keeps no launch from
 * which to make them, it keeps `next`. Also counts the lanes. */
static bool chains_are_due(hdi_engine *engine, const hdi_stream *asks, const hdi_command *next, uint32_t *lanes)
{
    hdi_mutex_lock(&engine->chaining);
    if (!engine->chains_like && next) {
        chains_keep_like(engine, next);
    }
    bool due = engine->chains_like && chains_may_be_made(engine, asks, lanes);
    hdi_mutex_unlock(&engine->chaining);
    return due;
}

void hdi_chains_provide(hdi_engine *engine, const hdi_stream *asks, const hdi_command *next)
{
    uint32_t lanes;
    if (!engine->chain_most || engine->now < engine->chains_again || engine->now < engine->chains_asked + TIDY_NS ||
        !chains_are_due(engine, asks, next, &lanes)) {
        return;
    }
    if (!hdi_rest_is_reached_beside(engine->device->runtime)) {
        engine->chains_asked = engine->now;
        return;
    }
    hdi_launch like;
    hdi_mutex_lock(&engine->chaining);
    if (engine->chains_like) { /* a module may have ended meanwhile */
        atomic_store_explicit(&engine->chains_lack, false, memory_order_relaxed);
        if (hdi_launch_read(engine->device, engine->chains_like, &like) && like.params.function) {
            chains_make(engine, lanes < SETS_LEAST ? SETS_LEAST : lanes > SETS_MOST ? SETS_MOST : lanes, &like);
        }
    }
    hdi_mutex_unlock(&engine->chaining);
}

/* ---- lending ---- */

static void chains_return(hdi_engine *engine, hdi_stream *stream)
{
    for (uint32_t s = 0; s < HDI_CHAIN_SIZES; s++) {
        hdi_chain *c = stream->chains->of[s];
        if (c) {
            c->next = engine->chains_spare[s];
            engine->chains_spare[s] = c;
        }
    }
    free(stream->chains);
    stream->chains = NULL;
}

/* Takes back the chains of each lane that used no chain since the time `before`, and has no work in
 * flight. Leaves the chains of the lane `but`. Returns the time of the latest use of the chains
 * that lanes still have; 0: no lane has chains. */
static int64_t chains_take_back(hdi_engine *engine, const hdi_stream *but, int64_t before)
{
    int64_t latest = 0;
    for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
        hdi_stream *stream = &engine->streams[i];
        if (!stream->chains) {
            continue;
        }
        if (stream != but && stream->chains->used < before && stream->passed == stream->issued) {
            chains_return(engine, stream);
        } else if (stream->chains->used > latest) {
            latest = stream->chains->used;
        }
    }
    return latest;
}

hdi_chain *hdi_chain_get(hdi_engine *engine, hdi_stream *stream, uint32_t size_log2)
{
    hdi_chain **own = &stream->chains->of[size_log2];
    hdi_chain **spare = &engine->chains_spare[size_log2];
    if (*own) {
        return *own;
    }
    if (!*spare && engine->now >= engine->chains_searched + TIDY_NS) {
        engine->chains_searched = engine->now;
        chains_take_back(engine, stream, engine->now - TIDY_NS);
    }
    if (!*spare) {
        atomic_store_explicit(&engine->chains_lack, true, memory_order_relaxed);
        return NULL;
    }
    *own = *spare;
    *spare = (*own)->next;
    (*own)->next = NULL;
    return *own;
}

bool hdi_chains_prune(hdi_engine *engine, int64_t now)
{
    if (!engine->chains_used || now < engine->chains_pruned + TIDY_NS) {
        return engine->chains_used;
    }
    hdi_mutex_lock(&engine->chaining);
    engine->chains_pruned = now;
    engine->chains_used = chains_take_back(engine, NULL, now - IDLE_NS) != 0;
    hdi_mutex_unlock(&engine->chaining);
    return engine->chains_used;
}

/* ---- ends ---- */

static bool chain_kernel_is_among(const uint64_t kernels[HDI_KERNEL_WORDS], uint32_t kernel)
{
    return kernels[kernel / 64 % HDI_KERNEL_WORDS] >> kernel % 64 & 1;
}

static bool chain_has_any(const hdi_chain *c, uint32_t size, const uint64_t kernels[HDI_KERNEL_WORDS])
{
    bool any = chain_kernel_is_among(kernels, c->like);
    for (uint32_t i = 0; i < 2 * size && !any; i++) {
        any = chain_kernel_is_among(kernels, c->settings[i].kernel);
    }
    return any;
}

/* Ends those chains in *list that use one of these kernels. `kernels` NULL: ends all of them. */
static void chains_unmake(hdi_engine *engine, const hdi_driver *driver, hdi_chain **list, uint32_t size_log2,
                          const uint64_t *kernels)
{
    uint32_t size = (uint32_t)1 << size_log2;
    while (*list) {
        hdi_chain *c = *list;
        if (kernels && !chain_has_any(c, size, kernels)) {
            list = &c->next;
            continue;
        }
        *list = c->next;
        chain_unmake(engine, driver, c, size);
        atomic_store_explicit(&engine->chains_lack, true, memory_order_relaxed);
    }
}

static void chains_unmake_all(hdi_engine *engine, const hdi_driver *driver, const uint64_t *kernels)
{
    for (uint32_t s = 0; s < HDI_CHAIN_SIZES; s++) {
        chains_unmake(engine, driver, &engine->chains_spare[s], s, kernels);
        for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
            if (engine->streams[i].chains) {
                chains_unmake(engine, driver, &engine->streams[i].chains->of[s], s, kernels);
            }
        }
    }
}

void hdi_chains_forget(hdi_engine *engine, const uint64_t kernels[HDI_KERNEL_WORDS])
{
    hdi_mutex_lock(&engine->chaining);
    if (engine->chains_like && chain_kernel_is_among(kernels, engine->chains_like->kernel)) {
        free(engine->chains_like);
        engine->chains_like = NULL;
    }
    chains_unmake_all(engine, engine->device->runtime->driver, kernels);
    /* other kernels will get these numbers, and this engine has not seen those kernels end */
    for (int i = 0; i < HDI_KERNEL_WORDS; i++) {
        if (kernels[i]) {
            atomic_fetch_and_explicit(&engine->seen_to_end[i], ~kernels[i], memory_order_relaxed);
            atomic_fetch_and_explicit(&engine->lasting[i], ~kernels[i], memory_order_relaxed);
        }
    }
    hdi_mutex_unlock(&engine->chaining);
}

void hdi_chains_end(hdi_engine *engine, bool driver_usable)
{
    chains_unmake_all(engine, driver_usable ? engine->device->runtime->driver : NULL, NULL);
    for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
        free(engine->streams[i].chains);
        engine->streams[i].chains = NULL;
    }
    free(engine->chains_like);
    engine->chains_like = NULL;
    hdi_mutex_destroy(&engine->chaining);
}
