/* issue.c - turns commands into calls of the driver.
 *
 * For each operation in the table of channel.h, this file makes the driver call. It combines
 * launches into chains. Long kernels need short chains (kernel_time.h).
 *
 * A *chain* is an executable graph of 1, 2, 4 ... 32 kernel nodes in a line. Before the engine
 * launches the graph, each node gets the function, arguments, grid, block and shared memory of one
 * kernel launch. A chain takes a third to a quarter of the time of single launches; even a chain of
 * one kernel is faster. Each lane keeps its own chains, with two executable graphs of each size. So
 * the engine can fill one graph while the other one still waits on the device.
 *
 * Threads: the thread that runs the device's engine, with the device's context current.
 * Any thread calls hdi_chains_forget.
 * Locks: `chaining` of the engine, held while the engine uses executable graphs, because another
 * thread may call hdi_chains_forget when a module ends.
 * Always:
 * - No call waits for the device. Most commands take one driver call. A chain takes one call for
 *   each changed node, and one call for its launch.
 * - A chain never waits to be filled.
 * - Launches that the driver refuses in a chain are issued one by one; each then works or fails
 *   alone.
 * - A kernel becomes part of a chain only after the engine saw the kernel end once.
 * - The executable graphs of all lanes together take at most the memory of the option chain_memory,
 *   as this file counts it. The original graph of an executable graph lives as long as the
 *   executable graph, since calls name the original nodes.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "base/wait.h"
#include "blas/blas.h"
#include "engine/stream.h"

#define CHAIN_SIZES 6 /* 1, 2, 4, 8, 16, 32 */

/* The memory of an executable on the device. With driver 580.159, an executable of 8 nodes took 112
 * KiB, and one of 32 nodes 192 KiB. */
#define EXECUTABLE_BYTES ((uint64_t)86 << 10)
#define NODE_BYTES ((uint64_t)3500)

/* Chains are short while the kernels' time is unknown. */
#define MOST_UNMEASURED 2

/* A chain is at most this many times as long as the chain before it. Filling four nodes takes about
 * as long as a launch call. */
#define GROWTH 4

#define SLOTS_KEPT 2 /* slots of a command; the node of a longer command is set each time */

#define WANTED_BEFORE_MADE 8          /* making one takes as long as some tens of launches */
#define IDLE_NS ((int64_t)1000000000) /* chains are given back after so long without use */
#define TIDY_NS ((int64_t)100000000)  /* between two searches for idle chains */
#define RETRY_NS ((int64_t)1000000000)
#define REFUSALS_MOST 8 /* after so many refusals in a row, no chains are used for RETRY_NS */

/* ---- the call of each operation ---- */

/* A launch as the driver takes it, with pointers into itself and into the command. */
typedef struct launch {
    hdcu_kernel_node_params params;
    const hdi_command *command;
    uint32_t kernel;
    size_t bytes;
    void *extra[5];
} launch;

/* False: no such kernel, since the command was overwritten. */
static bool issue_fill_launch(hdi_device *device, const hdi_command *c, launch *out)
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

static hdcu_result issue_launch(const hdi_engine *engine, const hdi_stream *stream, const hdi_command *c)
{
    launch l;
    if (!issue_fill_launch(engine->device, c, &l)) {
        return HDCU_ERROR_INVALID_HANDLE;
    }
    const hdcu_kernel_node_params *p = &l.params;
    return engine->device->runtime->driver->cuLaunchKernel(p->function, p->grid_x, p->grid_y, p->grid_z, p->block_x,
                                                           p->block_y, p->block_z, p->shared_bytes, stream->handle,
                                                           NULL, p->extra);
}

/* The driver calls this on a thread of its own. The command stays in its ring until it is done. */
static void issue_run_host_copy(void *command)
{
    const hdi_command *c = command;
    if (c->op == HDI_OP_COPY) {
        memcpy((void *)(uintptr_t)c->copy.dst, (const void *)(uintptr_t)c->copy.src, c->copy.bytes);
        return;
    }
    for (uint64_t i = 0; i < c->box.rows; i++) {
        memcpy((void *)(uintptr_t)(c->box.dst + i * c->box.dst_pitch),
               (const void *)(uintptr_t)(c->box.src + i * c->box.src_pitch), c->box.row);
    }
}

/* The driver's own copies from host to host return when they are done. So they would block the
 * engine, and with it its other lanes, until the stream's earlier work ends. */
static hdcu_result issue_host_copy(const hdi_engine *engine, const hdi_stream *stream, const hdi_command *c)
{
    return engine->device->runtime->driver->cuLaunchHostFunc(stream->handle, issue_run_host_copy, (void *)(uintptr_t)c);
}

static hdcu_result issue_copy(const hdi_engine *engine, const hdi_stream *stream, const hdi_command *c)
{
    const hdi_driver *driver = engine->device->runtime->driver;
    hdcu_deviceptr dst = c->copy.dst;
    hdcu_deviceptr src = c->copy.src;
    switch (c->kind & HDI_COPY_KIND) {
    case HDI_COPY_TO_DEVICE:
        return driver->cuMemcpyHtoDAsync(dst, (const void *)(uintptr_t)src, c->copy.bytes, stream->handle);
    case HDI_COPY_TO_HOST:
        return driver->cuMemcpyDtoHAsync((void *)(uintptr_t)dst, src, c->copy.bytes, stream->handle);
    case HDI_COPY_ON_DEVICE:
    case HDI_COPY_PEER:
        return driver->cuMemcpyDtoDAsync(dst, src, c->copy.bytes, stream->handle);
    default:
        return issue_host_copy(engine, stream, c);
    }
}

static hdcu_result issue_copy_box(const hdi_engine *engine, const hdi_stream *stream, const hdi_command *c)
{
    int kind = c->kind & HDI_COPY_KIND;
    if (kind == HDI_COPY_HOST) {
        return issue_host_copy(engine, stream, c);
    }
    bool from_host = kind == HDI_COPY_TO_DEVICE, to_host = kind == HDI_COPY_TO_HOST;
    /* Either side of a copy on a device may belong to a peer. The driver detects that by the
     * address. */
    int device = kind == HDI_COPY_ON_DEVICE || kind == HDI_COPY_PEER ? HDCU_MEMORYTYPE_UNIFIED : HDCU_MEMORYTYPE_DEVICE;
    const hdcu_memcpy2d rows = {
        .src_type = from_host ? HDCU_MEMORYTYPE_HOST : device,
        .src_host = from_host ? (const void *)(uintptr_t)c->box.src : NULL,
        .src_device = from_host ? 0 : c->box.src,
        .src_pitch = c->box.src_pitch,
        .dst_type = to_host ? HDCU_MEMORYTYPE_HOST : device,
        .dst_host = to_host ? (void *)(uintptr_t)c->box.dst : NULL,
        .dst_device = to_host ? 0 : c->box.dst,
        .dst_pitch = c->box.dst_pitch,
        .row_bytes = c->box.row,
        .rows = c->box.rows,
    };
    return engine->device->runtime->driver->cuMemcpy2DAsync(&rows, stream->handle);
}

_Static_assert(sizeof(hdi_product) == HDI_MATMUL_SLOTS * HDI_SLOT_BYTES, "the command is the product");

static hdcu_result issue_matmul(const hdi_engine *engine, const hdi_stream *stream, const hdi_command *c)
{
    (void)engine;
    /* pairs with the release store of the port. NULL: the device was restarted after the operation
     * was checked */
    hdi_blas *blas = atomic_load_explicit(&stream->blas, memory_order_acquire);
    if (!blas) {
        return HDCU_ERROR_NOT_INITIALIZED;
    }
    hdi_product product;
    memcpy(&product, c, sizeof product);
    return hdi_blas_product(blas, &product);
}

/* An import may be at any address, but the driver fills words at multiples of 4. So this fills the
 * bytes in front of the first such word and behind the last one separately. In between it rotates
 * the pattern. */
static hdcu_result issue_fill_unaligned(const hdi_engine *engine, const hdi_stream *stream, const hdi_command *c)
{
    const hdi_driver *driver = engine->device->runtime->driver;
    unsigned front = (unsigned)(4 - c->fill.dst % 4), turn = 8 * front;
    /* `behind` is the offset of the last bytes. */
    uint64_t bytes = 4 * (uint64_t)c->fill.words, behind = bytes - 4 + front;
    hdcu_result r = HDCU_SUCCESS;
    for (uint64_t at = 0; at < bytes && r == HDCU_SUCCESS; at = at + 1 == front && front < behind ? behind : at + 1) {
        r = driver->cuMemsetD8Async(c->fill.dst + at, (unsigned char)(c->fill.pattern >> (8 * (at % 4))), 1,
                                    stream->handle);
    }
    if (r == HDCU_SUCCESS && c->fill.words > 1) {
        r = driver->cuMemsetD32Async(c->fill.dst + front, c->fill.pattern >> turn | c->fill.pattern << (32 - turn),
                                     c->fill.words - 1, stream->handle);
    }
    return r;
}

static hdcu_result issue_fill(const hdi_engine *engine, const hdi_stream *stream, const hdi_command *c)
{
    if (c->fill.words == 0) {
        return HDCU_SUCCESS; /* marks a place in the order, without work */
    }
    if (c->fill.dst % 4 != 0) {
        return issue_fill_unaligned(engine, stream, c);
    }
    return engine->device->runtime->driver->cuMemsetD32Async(c->fill.dst, c->fill.pattern, c->fill.words,
                                                             stream->handle);
}

static hdcu_result issue_call(const hdi_engine *engine, const hdi_stream *stream, const hdi_command *c)
{
    (void)engine;
    (void)stream;
    (void)c;
    return HDCU_ERROR_NOT_SUPPORTED; /* see hdi_stream_call */
}

/* Makes no driver call: the operation ends when the work before it ends. */
static hdcu_result issue_nothing(const hdi_engine *engine, const hdi_stream *stream, const hdi_command *c)
{
    (void)engine;
    (void)stream;
    (void)c;
    return HDCU_SUCCESS;
}

hdcu_result hdi_issue(hdi_engine *engine, const hdi_stream *stream, const hdi_command *c)
{
    static hdcu_result (*const calls[HDI_OPS])(const hdi_engine *, const hdi_stream *, const hdi_command *) = {
#define CALL(op, call, name, entries, rank) [HDI_OP_##op] = issue_##call,
        HDI_OP_MAP(CALL)
#undef CALL
    };
    /* loaded once: another process may write over the ring */
    uint8_t op = *(const volatile uint8_t *)&c->op;
    return hdi_op_is_work(op) ? calls[op](engine, stream, c) : HDCU_ERROR_NOT_SUPPORTED;
}

/* ---- chains: making and giving back ---- */

/* The last setting of a node. An identical launch needs no call for the node. Programs repeat their
 * launches, and calls for nodes are most of a chain's cost. */
typedef struct node_setting {
    hdcu_function function; /* NULL: not recorded, or too long to keep */
    uint32_t kernel;        /* the kernel of the node's function */
    hdi_command command[SLOTS_KEPT];
} node_setting;

typedef struct chain {
    hdcu_graph graph;
    hdcu_graphexec exec[2];
    node_setting *settings; /* of the nodes of both executables */
    uint32_t like;          /* the kernel of the graph's own nodes */
    uint32_t turn, wanted;
    hdcu_graphnode node[HDI_CHAIN_MOST];
} chain;

struct hdi_chains {
    chain of[CHAIN_SIZES];
    int64_t used; /* clock */
    /* Up to this position launches are issued one by one, since the driver refused one. */
    uint64_t plain;
    /* The most launches of the next chain. 1 in an empty lane, so that the device gets the first
     * launch at once. */
    uint32_t growing;
};

static uint64_t chain_bytes_of(uint32_t size)
{
    return 2 * (EXECUTABLE_BYTES + size * NODE_BYTES);
}

static bool chain_is_made(const chain *c)
{
    return c->exec[1] != NULL;
}

void hdi_chains_start(hdi_engine *engine)
{
    const hd_runtime *rt = engine->device->runtime;
    hdi_mutex_init(&engine->chaining, HDI_RANK_CHAINS);
    bool can = rt->driver->cuGraphAddKernelNode && rt->driver->cuGraphExecKernelNodeSetParams;
    engine->chain_most = can ? (uint32_t)rt->options.chains : 0;
    engine->chains_eager = rt->provider->chains_eager;
}

static void chain_unmake(hdi_engine *engine, chain *c, uint32_t size)
{
    const hdi_driver *driver = engine->device->runtime->driver;
    if (chain_is_made(c)) {
        engine->chain_bytes -= chain_bytes_of(size);
    }
    for (int i = 0; i < 2; i++) {
        if (c->exec[i]) {
            /* the driver destroys an executable that still runs when it ends */
            driver->cuGraphExecDestroy(c->exec[i]);
        }
    }
    if (c->graph) {
        driver->cuGraphDestroy(c->graph);
    }
    free(c->settings);
    *c = (chain){.graph = NULL};
}

static void chains_unmake_all(hdi_engine *engine, hdi_stream *stream)
{
    for (uint32_t s = 0; stream->chains && s < CHAIN_SIZES; s++) {
        chain_unmake(engine, &stream->chains->of[s], (uint32_t)1 << s);
    }
}

/* Gives back the chains of each lane that used no chain since `before`, and has no work in flight.
 * Returns the latest use of the remaining chains; 0: none remain. */
static int64_t chains_give_back(hdi_engine *engine, int64_t before)
{
    int64_t latest = 0;
    for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
        hdi_stream *stream = &engine->streams[i];
        if (!stream->chains) {
            continue;
        }
        if (stream->chains->used < before && stream->passed == stream->issued) {
            chains_unmake_all(engine, stream);
            free(stream->chains);
            stream->chains = NULL;
        } else if (stream->chains->used > latest) {
            latest = stream->chains->used;
        }
    }
    return latest;
}

bool hdi_chains_prune(hdi_engine *engine, int64_t now)
{
    if (!engine->chains_used || now < engine->chains_pruned + TIDY_NS) {
        return engine->chains_used;
    }
    hdi_mutex_lock(&engine->chaining);
    engine->chains_pruned = now;
    engine->chains_used = chains_give_back(engine, now - IDLE_NS) != 0;
    hdi_mutex_unlock(&engine->chaining);
    return engine->chains_used;
}

static bool chain_kernel_is_among(const uint64_t kernels[HDI_KERNEL_WORDS], uint32_t kernel)
{
    return kernels[kernel / 64 % HDI_KERNEL_WORDS] >> kernel % 64 & 1;
}

static bool chain_has_any(const chain *c, uint32_t size, const uint64_t kernels[HDI_KERNEL_WORDS])
{
    bool any = chain_is_made(c) && chain_kernel_is_among(kernels, c->like);
    for (uint32_t i = 0; chain_is_made(c) && i < 2 * size && !any; i++) {
        any = chain_kernel_is_among(kernels, c->settings[i].kernel);
    }
    return any;
}

void hdi_chains_forget(hdi_engine *engine, const uint64_t kernels[HDI_KERNEL_WORDS])
{
    hdi_mutex_lock(&engine->chaining);
    for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
        struct hdi_chains *chains = engine->streams[i].chains;
        for (uint32_t s = 0; chains && s < CHAIN_SIZES; s++) {
            if (chain_has_any(&chains->of[s], (uint32_t)1 << s, kernels)) {
                chain_unmake(engine, &chains->of[s], (uint32_t)1 << s);
            }
        }
    }
    /* other kernels will get these numbers, and were not seen to end */
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
    for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
        if (driver_usable) {
            chains_unmake_all(engine, &engine->streams[i]);
        }
        free(engine->streams[i].chains);
        engine->streams[i].chains = NULL;
    }
    hdi_mutex_destroy(&engine->chaining);
}

/* Makes a graph of `size` nodes in a line, each a launch like `like`. */
static hdcu_result chain_make(hdi_engine *engine, chain *c, uint32_t size, const launch *like)
{
    const hdi_driver *driver = engine->device->runtime->driver;
    hdcu_result r = driver->cuGraphCreate(&c->graph, 0);
    for (uint32_t i = 0; i < size && r == HDCU_SUCCESS; i++) {
        r = driver->cuGraphAddKernelNode(&c->node[i], c->graph, i ? &c->node[i - 1] : NULL, i ? 1 : 0, &like->params);
    }
    c->settings = r == HDCU_SUCCESS ? calloc((size_t)2 * size, sizeof *c->settings) : NULL;
    r = r == HDCU_SUCCESS && !c->settings ? HDCU_ERROR_OUT_OF_MEMORY : r;
    for (int i = 0; i < 2 && r == HDCU_SUCCESS; i++) {
        r = driver->cuGraphInstantiateWithFlags(&c->exec[i], c->graph, 0);
    }
    if (r != HDCU_SUCCESS) {
        if (!chain_is_made(c)) {
            chain_unmake(engine, c, size);
        }
        return r;
    }
    c->like = like->kernel;
    for (uint32_t i = 0; i < 2 * size; i++) {
        c->settings[i].kernel = like->kernel;
    }
    engine->chain_bytes += chain_bytes_of(size);
    return HDCU_SUCCESS;
}

/* Called when the driver refused to make or launch a chain. No single kernel is to blame. */
static void chain_refused(hdi_engine *engine, int code)
{
    if (hdi_driver_code_is_fatal(code)) {
        engine->chain_fatal = code;
    } else if (++engine->chain_refusals >= REFUSALS_MOST) {
        engine->chain_refusals = 0;
        engine->chains_again = engine->now + RETRY_NS;
    }
}

/* Makes the chain of this size if it is missing and wanted often enough. False: there is none. */
static bool chain_have(hdi_engine *engine, hdi_stream *stream, uint32_t s, const launch *like)
{
    chain *c = &stream->chains->of[s];
    uint32_t size = (uint32_t)1 << s;
    if (chain_is_made(c)) {
        return true;
    }
    if (!engine->chains_eager && ++c->wanted < WANTED_BEFORE_MADE) {
        return false;
    }
    uint64_t most = (uint64_t)engine->device->runtime->options.chain_memory;
    if (engine->chain_bytes + chain_bytes_of(size) > most) {
        c->wanted = 0;
        chains_give_back(engine, engine->now - TIDY_NS);
        if (!stream->chains || engine->chain_bytes + chain_bytes_of(size) > most) {
            return false;
        }
    }
    c->wanted = 0;
    hdcu_result r = chain_make(engine, c, size, like);
    if (r != HDCU_SUCCESS) {
        chain_refused(engine, r);
    }
    return r == HDCU_SUCCESS;
}

/* ---- chains: filling ---- */

/* The most launches that may go to the driver together now. */
static uint32_t chain_limit(const hdi_engine *engine, const hdi_stream *stream, uint32_t most)
{
    uint32_t limit = most < engine->chain_most ? most : engine->chain_most;
    if (!engine->chains_eager) {
        int64_t fit = stream->timing.kernel_ns ? HDI_KERNEL_TIME_SPAN_NS / stream->timing.kernel_ns : MOST_UNMEASURED;
        fit = fit < 1 ? 1 : fit;
        limit = fit < limit ? (uint32_t)fit : limit;
    }
    return stream->chains->growing < limit ? stream->chains->growing : limit;
}

/* True if the engine must stop right behind a position: for an event, for a signal, or because a
 * thread waits for it. */
static bool chain_ends_at(const hdi_engine *engine, const hdi_stream *stream, uint64_t position)
{
    const hdi_channel *channel = &engine->device->channel;
    const hdi_lane_shared *shared = &channel->lanes[stream->number];
    uint64_t event = atomic_load_explicit(&shared->wanted_event, memory_order_relaxed);
    uint64_t host = atomic_load_explicit(&shared->wanted_host, memory_order_relaxed);
    uint64_t signal_every = engine->watchdog_ns ? 1 : channel->slots / 8;
    return (event > stream->event_last && event <= position) || (host > stream->signalled && host <= position) ||
           position - stream->signalled >= signal_every || hdi_is_requested(channel, stream->number, position);
}

/* Collects launches from the stream's position on, and the end of each. */
static uint32_t chain_gather(hdi_engine *engine, const hdi_stream *stream, uint64_t head, uint32_t limit,
                             launch launches[], uint64_t ends[])
{
    const hdi_channel *channel = &engine->device->channel;
    uint32_t n = 0;
    uint64_t at = stream->issued;
    while (n < limit && at != head) {
        const hdi_command *c = hdi_command_at(channel, stream->number, at);
        uint64_t slots = *(const volatile uint8_t *)&c->slots;
        if (c->op != HDI_OP_LAUNCH || slots - 1 >= head - at || hdi_chain_is_apart(engine, c->kernel) ||
            !issue_fill_launch(engine->device, c, &launches[n]) || !launches[n].params.function ||
            offsetof(hdi_command, launch.arguments) + launches[n].bytes > slots * HDI_SLOT_BYTES) {
            break;
        }
        at += slots;
        ends[n++] = at;
        if (chain_ends_at(engine, stream, at)) {
            break;
        }
    }
    return n;
}

/* Sets a node of an executable to a launch, unless it is set so already. */
static hdcu_result chain_set_node(hdi_engine *engine, hdcu_graphexec exec, hdcu_graphnode node, const launch *l,
                                  node_setting *setting)
{
    size_t bytes = offsetof(hdi_command, launch.arguments) + l->bytes;
    bool keeps = bytes <= sizeof setting->command;
    if (keeps && setting->function == l->params.function && memcmp(setting->command, l->command, bytes) == 0) {
        return HDCU_SUCCESS;
    }
    hdcu_result r = engine->device->runtime->driver->cuGraphExecKernelNodeSetParams(exec, node, &l->params);
    setting->function = keeps && r == HDCU_SUCCESS ? l->params.function : NULL;
    setting->kernel = r == HDCU_SUCCESS ? l->kernel : setting->kernel;
    if (keeps) {
        memcpy(setting->command, l->command, bytes);
    }
    return r;
}

/* Fills a chain and launches it. False: the driver refused, and no launch of the chain was
 * issued. */
static bool chain_launch(hdi_engine *engine, hdi_stream *stream, chain *c, uint32_t size, const launch launches[],
                         uint64_t end)
{
    const hdi_driver *driver = engine->device->runtime->driver;
    hdcu_graphexec exec = c->exec[c->turn];
    node_setting *settings = &c->settings[(size_t)c->turn * size];
    c->turn ^= 1;
    for (uint32_t i = 0; i < size; i++) {
        hdcu_result r = chain_set_node(engine, exec, c->node[i], &launches[i], &settings[i]);
        if (r != HDCU_SUCCESS) {
            if (hdi_driver_code_is_fatal(r)) {
                engine->chain_fatal = r;
            }
            /* the engine issues these launches one by one, so that the bad one fails alone */
            return false;
        }
    }
    /* If this process ends in the call, or before `issued` passes the commands, their work may have
     * begun. */
    atomic_store_explicit(&engine->device->channel.lanes[stream->number].begun, end, memory_order_release);
    hdcu_result r = driver->cuGraphLaunch(exec, stream->handle);
    if (r != HDCU_SUCCESS) {
        chain_refused(engine, r);
    } else {
        engine->chain_refusals = 0;
    }
    return r == HDCU_SUCCESS;
}

static bool chain_begin(hdi_engine *engine, hdi_stream *stream)
{
    if (!stream->chains) {
        stream->chains = calloc(1, sizeof *stream->chains);
    }
    if (!stream->chains || stream->issued < stream->chains->plain) {
        return false;
    }
    if (stream->issued == stream->passed || !stream->chains->growing) {
        stream->chains->growing = 1;
    }
    stream->chains->used = engine->now;
    engine->chains_used = true;
    return true;
}

/* As hdi_chain_issue. `chaining` is held. */
static uint32_t chain_issue_held(hdi_engine *engine, hdi_stream *stream, uint64_t head, uint32_t most, uint64_t *end)
{
    launch launches[HDI_CHAIN_MOST];
    uint64_t ends[HDI_CHAIN_MOST];
    if (!chain_begin(engine, stream)) {
        return 0;
    }
    uint32_t n = chain_gather(engine, stream, head, chain_limit(engine, stream, most), launches, ends);
    if (n == 0) {
        return 0;
    }
    uint32_t s = 31 - (uint32_t)__builtin_clz(n);
    while (!chain_have(engine, stream, s, &launches[0])) {
        if (s == 0 || !stream->chains || engine->chain_fatal) {
            return 0;
        }
        s--;
    }
    uint32_t size = (uint32_t)1 << s;
    if (!chain_launch(engine, stream, &stream->chains->of[s], size, launches, ends[size - 1])) {
        stream->chains->plain = ends[size - 1];
        return 0;
    }
    stream->chains->growing = size * GROWTH > HDI_CHAIN_MOST ? HDI_CHAIN_MOST : size * GROWTH;
    *end = ends[size - 1];
    return size;
}

uint32_t hdi_chain_issue(hdi_engine *engine, hdi_stream *stream, uint64_t head, uint32_t most, uint64_t *end)
{
    if (!engine->chain_most || engine->now < engine->chains_again) {
        return 0;
    }
    hdi_mutex_lock(&engine->chaining);
    uint32_t n = chain_issue_held(engine, stream, head, most, end);
    hdi_mutex_unlock(&engine->chaining);
    /* This is not done under the lock, because handling a loss takes many other locks. */
    if (__builtin_expect(engine->chain_fatal != 0, 0)) {
        hdi_engine_lose(engine, engine->chain_fatal);
        engine->chain_fatal = 0;
    }
    return n;
}
