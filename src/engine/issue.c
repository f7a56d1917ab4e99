/* issue.c - turns commands into calls of the driver.
 *
 * For each operation in the table of channel.h, this file makes the driver call. It combines
 * launches into chains. Long kernels need short chains (kernel_time.h).
 *
 * A *chain* is an executable graph of 1, 2, 4 ... 32 kernel nodes in a line. Before the engine
 * launches the graph, each node gets the function, arguments, grid, block and shared memory of one
 * kernel launch. A chain takes a quarter to a third of the time that single launches of its kernels
 * take. Even a chain of one kernel is faster than a single launch. A lane borrows chains
 * (chains.c), each with two executable graphs of its size. So the engine can fill one graph while
 * the other one still waits on the device.
 *
 * Threads: the thread that runs the device's engine, with the device's context current.
 * Locks: `chaining` of the engine, held while the engine uses executable graphs, because another
 * thread may call hdi_chains_forget when a module ends.
 * Always:
 * - No call waits for the device. Most commands take one driver call. A chain takes one call for
 *   each node that changes, and one call for its launch.
 * - The engine never delays launches to get a longer chain.
 * - If the driver refuses a chain, the engine issues its launches one by one, so that each of them
 *   works or fails alone.
 * - A kernel becomes part of a chain only after the engine saw the kernel end once.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "base/wait.h"
#include "blas/blas.h"
#include "engine/chains.h"
#include "engine/stream.h"

/* The most launches of a chain while the kernels' time is unknown. */
#define MOST_UNMEASURED 2

/* A chain has at most this many times the launches of the chain before it. To fill four nodes takes
 * about as long as one launch call. */
#define GROWTH 4

/* ---- the call of each operation ---- */

static hdcu_result issue_launch(const hdi_engine *engine, const hdi_stream *stream, const hdi_command *c)
{
    hdi_launch l;
    if (!hdi_launch_read(engine->device, c, &l)) {
        return HDCU_ERROR_INVALID_HANDLE;
    }
    const hdcu_kernel_node_params *p = &l.params;
    return engine->device->runtime->driver->cuLaunchKernel(p->function, p->grid_x, p->grid_y, p->grid_z, p->block_x,
                                                           p->block_y, p->block_z, p->shared_bytes, stream->handle,
                                                           NULL, p->extra);
}

/* The driver calls this function on a thread of its own. The command stays in its ring until the
 * copy is done. */
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

/* The driver's own copies from host to host return only when they are done. So they would block the
 * engine, and all its lanes, until the stream's earlier work ends. */
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
    /* pairs with the release store of the port. NULL: the device was restarted after the submission
     * checked the operation */
    hdi_blas *blas = atomic_load_explicit(&stream->blas, memory_order_acquire);
    if (!blas) {
        return HDCU_ERROR_NOT_INITIALIZED;
    }
    hdi_product product;
    memcpy(&product, c, sizeof product);
    return hdi_blas_product(blas, &product);
}

/* An import may be at any address, but the driver fills words at multiples of 4. So this function
 * fills single bytes in front of the first aligned word and behind the last one. Between these
 * bytes it fills words with the rotated pattern. */
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
        return HDCU_SUCCESS; /* a MARK stands at a place in the order, and does no work */
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

/* ---- chains ---- */

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

/* True if a chain must end right behind a position: for an event, for a signal, or because a thread
 * waits for the position. */
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

/* Reads the launch at a position. False: the command there cannot be a node. */
static bool chain_read(hdi_engine *engine, const hdi_stream *stream, uint64_t at, uint64_t head, hdi_launch *out,
                       uint64_t *end)
{
    const hdi_command *c = hdi_command_at(&engine->device->channel, stream->number, at);
    uint64_t slots = *(const volatile uint8_t *)&c->slots;
    *end = at + slots;
    return c->op == HDI_OP_LAUNCH && slots - 1 < head - at && hdi_launch_read(engine->device, c, out) &&
           out->params.function && offsetof(hdi_command, launch.arguments) + out->bytes <= slots * HDI_SLOT_BYTES;
}

/* Collects launches from the stream's position on, and the end position of each launch. */
static uint32_t chain_gather(hdi_engine *engine, const hdi_stream *stream, uint64_t head, uint32_t limit,
                             hdi_launch launches[], uint64_t ends[])
{
    uint32_t n = 0;
    uint64_t at = stream->issued;
    while (n < limit && at != head && chain_read(engine, stream, at, head, &launches[n], &ends[n]) &&
           !hdi_chain_is_apart(engine, launches[n].kernel)) {
        at = ends[n++];
        if (chain_ends_at(engine, stream, at)) {
            break;
        }
    }
    return n;
}

/* Sets a node of an executable graph to a launch, unless the node is already set to an identical
 * launch. */
static hdcu_result chain_set_node(hdi_engine *engine, hdcu_graphexec exec, hdcu_graphnode node, const hdi_launch *l,
                                  hdi_chain_setting *setting)
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
static bool chain_launch(hdi_engine *engine, hdi_stream *stream, hdi_chain *c, uint32_t size,
                         const hdi_launch launches[], uint64_t end)
{
    const hdi_driver *driver = engine->device->runtime->driver;
    hdcu_graphexec exec = c->exec[c->turn];
    hdi_chain_setting *settings = &c->settings[(size_t)c->turn * size];
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
    /* `begun` moves before the call. This process may end during the call, or before `issued`
     * passes the commands. In both cases their work may have begun. */
    atomic_store_explicit(&engine->device->channel.lanes[stream->number].begun, end, memory_order_release);
    hdcu_result r = driver->cuGraphLaunch(exec, stream->handle);
    if (r != HDCU_SUCCESS) {
        hdi_chain_refused(engine, r);
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
    hdi_launch launches[HDI_CHAIN_MOST];
    uint64_t ends[HDI_CHAIN_MOST];
    if (!chain_begin(engine, stream)) {
        return 0;
    }
    uint32_t n = chain_gather(engine, stream, head, chain_limit(engine, stream, most), launches, ends);
    if (n == 0) {
        return 0;
    }
    uint32_t s = 31 - (uint32_t)__builtin_clz(n);
    hdi_chain *c;
    while ((c = hdi_chain_get(engine, stream, s)) == NULL) {
        if (s == 0) {
            return 0;
        }
        s--;
    }
    uint32_t size = (uint32_t)1 << s;
    /* size <= n. NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign) */
    uint64_t last = ends[size - 1];
    if (!chain_launch(engine, stream, c, size, launches, last)) {
        stream->chains->plain = last;
        return 0;
    }
    stream->chains->growing = size * GROWTH > HDI_CHAIN_MOST ? HDI_CHAIN_MOST : size * GROWTH;
    *end = last;
    return size;
}

uint32_t hdi_chain_issue(hdi_engine *engine, hdi_stream *stream, uint64_t head, uint32_t most, uint64_t *end)
{
    if (!engine->chain_most || engine->now < engine->chains_again) {
        return 0;
    }
    if (__builtin_expect(atomic_load_explicit(&engine->chains_lack, memory_order_relaxed), 0)) {
        hdi_chains_provide(engine, stream, hdi_command_at(&engine->device->channel, stream->number, stream->issued));
    }
    hdi_mutex_lock(&engine->chaining);
    uint32_t n = chain_issue_held(engine, stream, head, most, end);
    hdi_mutex_unlock(&engine->chaining);
    /* The loss is handled after the lock is released, because handling a loss takes many other
     * locks. */
    if (__builtin_expect(engine->chain_fatal != 0, 0)) {
        hdi_engine_lose(engine, engine->chain_fatal);
        engine->chain_fatal = 0;
    }
    return n;
}
