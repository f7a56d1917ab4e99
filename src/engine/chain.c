/* chain.c - makes chains of launches, fills them and gives them back.
 *
 * Threads, Locks: see chain.h.
 * Always: the executables of all lanes together take no more memory, as counted here, than the option chain_memory. The
 * graph of an executable lives as long as the executable, since the graph's nodes name those of the executable.
 */
#include "engine/chain.h"

#include <stddef.h>
#include <stdlib.h>
#include "base/wait.h"

/* The memory of an executable on the device. Measured with 580.159: 112 KiB with 8 nodes and 192 KiB with 32. */
#define EXECUTABLE_BYTES ((uint64_t)86 << 10)
#define NODE_BYTES ((uint64_t)3500)

/* Chains are short where the kernels' time is not measured. */
#define MOST_UNMEASURED 2

/* A chain is at most so many times as long as the one before it. Filling four nodes takes about as long as the call
 * before did. */
#define GROWTH 4

#define SLOTS_KEPT 2 /* of a command: nodes of longer ones are set each time */

#define WANTED_BEFORE_MADE 8          /* making one takes as long as some tens of launches */
#define IDLE_NS ((int64_t)1000000000) /* given back when not used for so long */
#define TIDY_NS ((int64_t)100000000)  /* between searches for idle ones */
#define RETRY_NS ((int64_t)1000000000)
#define REFUSALS_MOST 8 /* in a row: then no chains are used for RETRY_NS */

/* What a node was set to last. An identical launch needs no call. Programs repeat themselves, and setting the nodes is
 * the larger part of a chain's cost. */
typedef struct node_setting {
    hdcu_function function; /* NULL: not recorded, or too long to be kept */
    hdi_command command[SLOTS_KEPT];
} node_setting;

typedef struct chain {
    hdcu_graph graph;
    hdcu_graphexec exec[2];
    node_setting *settings; /* of the nodes of both executables; NULL: there was no memory */
    uint32_t turn, wanted;
    hdcu_graphnode node[HDI_CHAIN_MOST];
} chain;

struct hdi_chains {
    chain of[HDI_CHAIN_SIZES];
    int64_t used;     /* clock */
    uint64_t plain;   /* up to this position launches are issued one by one, since the driver refused one of them */
    uint32_t growing; /* a lane that was empty begins with one launch, so that the device has it at once */
};

static uint64_t bytes_of(uint32_t size)
{
    return 2 * (EXECUTABLE_BYTES + size * NODE_BYTES);
}

static bool is_made(const chain *c)
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

/* ---- making and giving back ---- */

static void unmake(hdi_engine *engine, chain *c, uint32_t size)
{
    const hdi_driver *driver = engine->device->runtime->driver;
    if (is_made(c)) {
        engine->chain_bytes -= bytes_of(size);
    }
    for (int i = 0; i < 2; i++) {
        if (c->exec[i]) {
            driver->cuGraphExecDestroy(c->exec[i]); /* one that is under way goes when it has ended */
        }
    }
    if (c->graph) {
        driver->cuGraphDestroy(c->graph);
    }
    free(c->settings);
    *c = (chain){.graph = NULL};
}

static void unmake_all(hdi_engine *engine, hdi_stream *stream)
{
    for (uint32_t s = 0; stream->chains && s < HDI_CHAIN_SIZES; s++) {
        unmake(engine, &stream->chains->of[s], (uint32_t)1 << s);
    }
}

/* Gives back what no lane has used since `before`. Returns the latest use of what is left; 0: nothing is. */
static int64_t give_back(hdi_engine *engine, int64_t before)
{
    int64_t latest = 0;
    for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
        hdi_stream *stream = &engine->streams[i];
        if (!stream->chains) {
            continue;
        }
        if (stream->chains->used < before && stream->passed == stream->issued) {
            unmake_all(engine, stream);
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
    engine->chains_used = give_back(engine, now - IDLE_NS) != 0;
    hdi_mutex_unlock(&engine->chaining);
    return engine->chains_used;
}

void hdi_chains_forget(hdi_engine *engine)
{
    hdi_mutex_lock(&engine->chaining);
    for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
        unmake_all(engine, &engine->streams[i]);
    }
    /* The numbers of the module's kernels will be given to others. */
    for (int i = 0; i < HDI_KERNEL_WORDS; i++) {
        atomic_store_explicit(&engine->seen_to_end[i], 0, memory_order_relaxed);
    }
    hdi_mutex_unlock(&engine->chaining);
}

void hdi_chains_end(hdi_engine *engine, bool driver_usable)
{
    for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
        if (driver_usable) {
            unmake_all(engine, &engine->streams[i]);
        }
        free(engine->streams[i].chains);
        engine->streams[i].chains = NULL;
    }
    hdi_mutex_destroy(&engine->chaining);
}

/* Makes a graph of `size` nodes in a line, each a launch like this one. */
static hdcu_result make(hdi_engine *engine, chain *c, uint32_t size, const hdi_launch *like)
{
    const hdi_driver *driver = engine->device->runtime->driver;
    hdcu_result r = driver->cuGraphCreate(&c->graph, 0);
    for (uint32_t i = 0; i < size && r == HDCU_SUCCESS; i++) {
        r = driver->cuGraphAddKernelNode(&c->node[i], c->graph, i ? &c->node[i - 1] : NULL, i ? 1 : 0, &like->params);
    }
    for (int i = 0; i < 2 && r == HDCU_SUCCESS; i++) {
        r = driver->cuGraphInstantiateWithFlags(&c->exec[i], c->graph, 0);
    }
    if (r != HDCU_SUCCESS) {
        if (!is_made(c)) {
            unmake(engine, c, size);
        }
        return r;
    }
    c->settings = calloc((size_t)2 * size, sizeof *c->settings);
    engine->chain_bytes += bytes_of(size);
    return HDCU_SUCCESS;
}

/* The driver refused something that concerns chains, not a launch. */
static void refused(hdi_engine *engine, int code)
{
    if (hdi_driver_code_is_fatal(code)) {
        engine->chain_fatal = code;
    } else if (++engine->chain_refusals >= REFUSALS_MOST) {
        engine->chain_refusals = 0;
        engine->chains_again = engine->now + RETRY_NS;
    }
}

/* Whether there is a chain of this size, or one can be made now. */
static bool have(hdi_engine *engine, hdi_stream *stream, uint32_t s, const hdi_launch *like)
{
    chain *c = &stream->chains->of[s];
    uint32_t size = (uint32_t)1 << s;
    if (is_made(c)) {
        return true;
    }
    if (!engine->chains_eager && ++c->wanted < WANTED_BEFORE_MADE) {
        return false;
    }
    uint64_t most = (uint64_t)engine->device->runtime->options.chain_memory;
    if (engine->chain_bytes + bytes_of(size) > most) {
        c->wanted = 0;
        give_back(engine, engine->now - TIDY_NS);
        if (!stream->chains || engine->chain_bytes + bytes_of(size) > most) {
            return false;
        }
    }
    c->wanted = 0;
    hdcu_result r = make(engine, c, size, like);
    if (r != HDCU_SUCCESS) {
        refused(engine, r);
    }
    return r == HDCU_SUCCESS;
}

/* ---- what goes into a chain ---- */

bool hdi_chain_is_new(const hdi_engine *engine, uint32_t kernel)
{
    /* relaxed: a number is given to another kernel long after the launches of the former one */
    uint64_t word = atomic_load_explicit(&engine->seen_to_end[kernel / 64 % HDI_KERNEL_WORDS], memory_order_relaxed);
    return !(word >> kernel % 64 & 1);
}

void hdi_chain_note(hdi_engine *engine, hdi_stream *stream, uint32_t kernel, uint64_t position)
{
    if (hdi_chain_is_new(engine, kernel) && stream->n_new < HDI_STREAM_NEW) {
        stream->new_kernels[stream->n_new].kernel = kernel;
        stream->new_kernels[stream->n_new].position = position;
        stream->n_new++;
    }
}

void hdi_chain_learn(hdi_engine *engine, hdi_stream *stream)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < stream->n_new; i++) {
        if (stream->new_kernels[i].position <= stream->passed) {
            uint32_t kernel = stream->new_kernels[i].kernel;
            atomic_fetch_or_explicit(&engine->seen_to_end[kernel / 64 % HDI_KERNEL_WORDS], (uint64_t)1 << kernel % 64,
                                     memory_order_relaxed);
        } else {
            stream->new_kernels[left++] = stream->new_kernels[i];
        }
    }
    stream->n_new = left;
}

/* The most launches that may be given together now. */
static uint32_t limit_of(const hdi_engine *engine, const hdi_stream *stream, uint32_t most)
{
    uint32_t limit = most < engine->chain_most ? most : engine->chain_most;
    if (!engine->chains_eager) {
        int64_t fit = stream->timing.kernel_ns ? HDI_KERNEL_TIME_SPAN_NS / stream->timing.kernel_ns : MOST_UNMEASURED;
        fit = fit < 1 ? 1 : fit;
        limit = fit < limit ? (uint32_t)fit : limit;
    }
    return stream->chains->growing < limit ? stream->chains->growing : limit;
}

/* Whether something is due right behind a position: an event, a signal, or the end of a thread's wait. */
static bool ends_at(const hdi_engine *engine, const hdi_stream *stream, uint64_t position)
{
    const hdi_channel *channel = &engine->device->channel;
    const hdi_lane_shared *shared = &channel->lanes[stream->number];
    uint64_t event = atomic_load_explicit(&shared->wanted_event, memory_order_relaxed);
    uint64_t host = atomic_load_explicit(&shared->wanted_host, memory_order_relaxed);
    uint64_t signal_every = engine->watchdog_ns ? 1 : channel->slots / 8;
    return (event > stream->event_last && event <= position) || (host > stream->signalled && host <= position) ||
           position - stream->signalled >= signal_every || hdi_is_requested(channel, stream->number, position);
}

/* Collects launches from where the stream is, and where each ends. */
static uint32_t gather(hdi_engine *engine, const hdi_stream *stream, uint64_t head, uint32_t limit,
                       hdi_launch launches[], uint64_t ends[])
{
    const hdi_channel *channel = &engine->device->channel;
    uint32_t n = 0;
    uint64_t at = stream->issued;
    while (n < limit && at != head) {
        const hdi_command *c = hdi_command_at(channel, stream->number, at);
        uint64_t slots = *(const volatile uint8_t *)&c->slots;
        if (c->op != HDI_OP_LAUNCH || slots - 1 >= head - at || hdi_chain_is_new(engine, c->kernel) ||
            !hdi_launch_fill(engine->device, c, &launches[n]) || !launches[n].params.function ||
            offsetof(hdi_command, launch.arguments) + launches[n].bytes > slots * HDI_SLOT_BYTES) {
            break;
        }
        at += slots;
        ends[n++] = at;
        if (ends_at(engine, stream, at)) {
            break;
        }
    }
    return n;
}

/* Sets a node of an executable to a launch, unless it has it already. */
static hdcu_result set(hdi_engine *engine, hdcu_graphexec exec, hdcu_graphnode node, const hdi_launch *l,
                       node_setting *setting)
{
    size_t bytes = offsetof(hdi_command, launch.arguments) + l->bytes;
    bool keeps = setting && bytes <= sizeof setting->command;
    if (keeps && setting->function == l->params.function && memcmp(setting->command, l->command, bytes) == 0) {
        return HDCU_SUCCESS;
    }
    hdcu_result r = engine->device->runtime->driver->cuGraphExecKernelNodeSetParams(exec, node, &l->params);
    if (setting) {
        setting->function = keeps && r == HDCU_SUCCESS ? l->params.function : NULL;
    }
    if (keeps) {
        memcpy(setting->command, l->command, bytes);
    }
    return r;
}

/* Fills a chain and launches it. False: the driver refused, and nothing of it was issued. */
static bool launch(hdi_engine *engine, hdi_stream *stream, chain *c, uint32_t size, const hdi_launch launches[],
                   uint64_t end)
{
    const hdi_driver *driver = engine->device->runtime->driver;
    hdcu_graphexec exec = c->exec[c->turn];
    node_setting *settings = c->settings ? &c->settings[(size_t)c->turn * size] : NULL;
    c->turn ^= 1;
    for (uint32_t i = 0; i < size; i++) {
        hdcu_result r = set(engine, exec, c->node[i], &launches[i], settings ? &settings[i] : NULL);
        if (r != HDCU_SUCCESS) {
            if (hdi_driver_code_is_fatal(r)) {
                engine->chain_fatal = r;
            }
            return false; /* a failure of the launch itself: it fails, or works, by itself */
        }
    }
    /* If this process ends in the call, or before `issued` passes the commands, their work may have begun. */
    atomic_store_explicit(&engine->device->channel.lanes[stream->number].begun, end, memory_order_release);
    hdcu_result r = driver->cuGraphLaunch(exec, stream->handle);
    if (r != HDCU_SUCCESS) {
        refused(engine, r);
    } else {
        engine->chain_refusals = 0;
    }
    return r == HDCU_SUCCESS;
}

static bool begin(hdi_engine *engine, hdi_stream *stream)
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
static uint32_t issue(hdi_engine *engine, hdi_stream *stream, uint64_t head, uint32_t most, uint64_t *end)
{
    hdi_launch launches[HDI_CHAIN_MOST];
    uint64_t ends[HDI_CHAIN_MOST];
    if (!begin(engine, stream)) {
        return 0;
    }
    uint32_t n = gather(engine, stream, head, limit_of(engine, stream, most), launches, ends);
    if (n == 0) {
        return 0;
    }
    uint32_t s = 31 - (uint32_t)__builtin_clz(n);
    while (!have(engine, stream, s, &launches[0])) {
        if (s == 0 || !stream->chains || engine->chain_fatal) {
            return 0;
        }
        s--;
    }
    uint32_t size = (uint32_t)1 << s;
    if (!launch(engine, stream, &stream->chains->of[s], size, launches, ends[size - 1])) {
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
    uint32_t n = issue(engine, stream, head, most, end);
    hdi_mutex_unlock(&engine->chaining);
    if (__builtin_expect(engine->chain_fatal != 0, 0)) { /* not under the lock: a loss takes many others */
        hdi_engine_lose(engine, engine->chain_fatal);
        engine->chain_fatal = 0;
    }
    return n;
}
