/* arena.c - one device's memory: the address range, the physical memory mapped into it, and growth.
 *
 * Threads, locks: see arena.h. Fields of hdi_arena say which lock covers them.
 * Always: while `growing` is free, chunks cover [base, base + mapped) in order, one mapping each, and `blocks` manages exactly
 * these bytes; every granted peer has been given all of them. A growth that fails is undone; where even that fails, the
 * port remembers, and clears what is left before it maps anything more. Without `blocks`, after a restart that failed,
 * there is nothing at all.
 */
#include "memory/arena.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/error.h"

#define GRANULE_LEAST ((size_t)2 << 20)
#define GROWTH ((size_t)64 << 20) /* creating and mapping this much costs 0.2 ms, not much more than one granule does */

/* One mapping of physical memory. */
typedef struct chunk {
    uint64_t at, bytes;
} chunk;

typedef struct peer {
    int device;    /* number in the runtime */
    size_t shared; /* this many chunks, the first ones, were given to it */
    bool granted;  /* it gets all later ones, too */
} peer;

struct hdi_arena {
    hdi_arena_config config; /* constant, like the next line */
    size_t granule, reserved, limit;

    pthread_mutex_t growing;
    chunk *chunks; /* under growing, like all up to blocks_lock */
    size_t n_chunks, chunks_room;
    size_t mapped;
    peer *peers;
    size_t n_peers, peers_room;

    pthread_mutex_t blocks_lock;
    hdi_blocks *blocks; /* under blocks_lock, like base; these two change under both locks. NULL: a restart failed */
    uint64_t base;
};

/* A request that failed. */
typedef struct trouble {
    hdi_answer answer;
    int peer; /* of a request that was to share memory with it; -1: of another one */
} trouble;

static const trouble no_trouble = {{HDCU_SUCCESS, ""}, -1};

static bool is_trouble(trouble t)
{
    return !hdi_answered(t.answer);
}

static hd_status status_of(hdi_answer answer)
{
    if (answer.code == HDCU_ERROR_OUT_OF_MEMORY) {
        return HD_ERROR_MEMORY;
    }
    return hdi_driver_code_is_fatal(answer.code) ? HD_ERROR_DEVICE_LOST : HD_ERROR_DRIVER;
}

/* hdi_fail_driver for an answer; says in words what is not a driver's code. */
static hd_status __attribute__((format(printf, 4, 5)))
fail_answer(const hdi_arena *arena, hd_status status, hdi_answer answer, const char *format, ...)
{
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    bool gone = answer.code < 0;
    return hdi_fail_driver(status, answer.code, answer.call, arena->config.index, "%s%s%s", text, gone ? ": " : "",
                           gone ? hdi_driver_code_name(answer.code) : "");
}

static size_t round_down(size_t bytes, size_t unit)
{
    return bytes - bytes % unit;
}

/* Rounds up, but stops at the largest multiple that a size_t can hold: no range is that large, so the request fails
 * as too large instead of wrapping around. */
static size_t round_up(size_t bytes, size_t unit)
{
    size_t over = bytes % unit;
    if (over == 0) {
        return bytes;
    }
    return bytes > SIZE_MAX - (unit - over) ? round_down(SIZE_MAX, unit) : bytes + (unit - over);
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* ---- physical memory: `growing` is held ------------------------------------------------------------------------- */

static hdi_answer share(const hdi_arena *arena, int device, const chunk *c)
{
    const hdi_arena_config *config = &arena->config;
    return config->share != NULL ? config->share(config->share_context, device, c->at, c->bytes)
                                 : config->port->calls->grant(config->port, device, c->at, c->bytes);
}

/* Takes a chunk back from the first `count` peers, as far as they were granted, and unmaps it. */
static void chunk_undo(const hdi_arena *arena, const chunk *c, size_t count)
{
    const hdi_arena_config *config = &arena->config;
    for (size_t i = 0; config->unshare != NULL && i < count; i++) {
        if (arena->peers[i].granted) {
            config->unshare(config->share_context, arena->peers[i].device, c->at, c->bytes);
        }
    }
    config->port->calls->unmap(config->port, c->at, c->bytes);
}

/* Physical memory mapped at the end of what is mapped, and given to all granted peers. Undone on failure. */
static trouble chunk_make(const hdi_arena *arena, size_t bytes, chunk *out)
{
    hdi_port *port = arena->config.port;
    chunk c = {.at = arena->base + arena->mapped, .bytes = bytes};
    trouble t = no_trouble;
    t.answer = port->calls->map(port, c.at, c.bytes);
    if (is_trouble(t)) {
        return t;
    }
    for (size_t i = 0; i < arena->n_peers; i++) {
        if (!arena->peers[i].granted) {
            continue;
        }
        t.answer = share(arena, arena->peers[i].device, &c);
        if (is_trouble(t)) {
            t.peer = arena->peers[i].device;
            chunk_undo(arena, &c, i);
            return t;
        }
    }
    *out = c;
    return no_trouble;
}

static hd_status chunks_reserve(hdi_arena *arena)
{
    if (arena->n_chunks < arena->chunks_room) {
        return HD_OK;
    }
    size_t room = arena->chunks_room == 0 ? 16 : arena->chunks_room * 2;
    chunk *chunks = realloc(arena->chunks, room * sizeof *chunks);
    if (chunks == NULL) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "alloc: no host memory to note what is mapped on device %d",
                        arena->config.index);
    }
    arena->chunks = chunks;
    arena->chunks_room = room;
    return HD_OK;
}

/* ---- making, restarting and unmaking an arena ------------------------------------------------------------------- */

static hd_status fail_set_up(const hdi_arena *arena, hdi_answer answer, const char *who)
{
    return fail_answer(arena, status_of(answer), answer, "%s: the memory of device %d cannot be set up", who,
                       arena->config.index);
}

/* How large everything is. */
static hd_status settle_sizes(hdi_arena *arena)
{
    const hdi_arena_config *config = &arena->config;
    uint64_t total = config->total_bytes, granule = config->granule;
    if (total == 0 || granule == 0) {
        hdi_facts facts;
        hdi_answer answer = config->port->calls->facts(config->port, &facts);
        if (!hdi_answered(answer)) {
            return fail_set_up(arena, answer, "hd_open");
        }
        if (!facts.virtual_memory) {
            return hdi_fail(HD_ERROR_UNSUPPORTED,
                            "hd_open: device %d has no virtual memory management, which Heddle needs", config->index);
        }
        total = facts.memory_bytes;
        granule = facts.granule;
    }
    arena->granule = larger(granule, GRANULE_LEAST);
    arena->reserved = round_up(total, arena->granule);
    arena->limit = arena->reserved;
    if (config->limit_bytes != 0) {
        arena->limit = smaller(arena->limit, round_down(config->limit_bytes, arena->granule));
    }
    return HD_OK;
}

static hd_status reserve(hdi_arena *arena, uint64_t address, const char *who, uint64_t *base)
{
    hdi_port *port = arena->config.port;
    uint64_t at = 0;
    hdi_answer answer = port->calls->reserve(port, address, arena->reserved, &at);
    if (!hdi_answered(answer)) {
        return fail_set_up(arena, answer, who);
    }
    if (arena->config.fixed && address != 0 && at != address) {
        port->calls->unreserve(port, at, arena->reserved);
        return hdi_fail(
            HD_ERROR_UNSUPPORTED,
            "%s: the memory of device %d must lie at address 0x%llx, the same in every process, but the driver "
            "has room for its %zu bytes only elsewhere",
            who, arena->config.index, (unsigned long long)address, arena->reserved);
    }
    *base = at;
    return HD_OK;
}

static hd_status make_blocks(const hdi_arena *arena, hdi_blocks **out)
{
    hdi_blocks_config config = {.limit = arena->reserved,
                                .finished = arena->config.finished,
                                .finished_context = arena->config.finished_context};
    return hdi_blocks_create(&config, out);
}

hd_status hdi_arena_create(const hdi_arena_config *config, hdi_arena **out)
{
    hdi_arena *arena = calloc(1, sizeof *arena);
    if (arena == NULL) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "hd_open: no host memory for the arena of device %d", config->index);
    }
    arena->config = *config;
    pthread_mutex_init(&arena->growing, NULL);
    pthread_mutex_init(&arena->blocks_lock, NULL);
    hd_status status = settle_sizes(arena);
    if (status == HD_OK) {
        status = make_blocks(arena, &arena->blocks);
    }
    if (status == HD_OK) {
        status = reserve(arena, config->address, "hd_open", &arena->base);
    }
    if (status != HD_OK) {
        hdi_arena_destroy(arena, true); /* nothing is reserved */
        return status;
    }
    *out = arena;
    return HD_OK;
}

hd_status hdi_arena_restart(hdi_arena *arena, uint64_t address)
{
    hdi_blocks *blocks = NULL;
    uint64_t base = 0;
    pthread_mutex_lock(&arena->growing);
    arena->n_chunks = 0;
    arena->mapped = 0;
    arena->n_peers = 0;
    hd_status status = make_blocks(arena, &blocks);
    if (status == HD_OK) {
        status = reserve(arena, address, "hd_device_restart", &base);
    }
    if (status != HD_OK) {
        hdi_blocks_destroy(blocks);
        blocks = NULL;
    }
    pthread_mutex_lock(&arena->blocks_lock);
    hdi_blocks *before = arena->blocks;
    arena->blocks = blocks;
    arena->base = base;
    pthread_mutex_unlock(&arena->blocks_lock);
    pthread_mutex_unlock(&arena->growing);
    hdi_blocks_destroy(before);
    return status;
}

hd_status hdi_arena_destroy(hdi_arena *arena, bool abandoned)
{
    if (arena == NULL) {
        return HD_OK;
    }
    hd_status status = HD_OK;
    if (arena->base != 0 && !abandoned) {
        hdi_port *port = arena->config.port;
        hdi_answer answer = port->calls->unreserve(port, arena->base, arena->reserved);
        if (!hdi_answered(answer)) {
            status = hdi_driver_code_is_fatal(answer.code) ? HD_ERROR_DEVICE_LOST : HD_ERROR_DRIVER;
            fail_answer(arena, status, answer, "hd_close: some memory of device %d could not be given back",
                        arena->config.index);
        }
    }
    hdi_blocks_destroy(arena->blocks);
    free(arena->chunks);
    free(arena->peers);
    pthread_mutex_destroy(&arena->blocks_lock);
    pthread_mutex_destroy(&arena->growing);
    free(arena);
    return status;
}

uint64_t hdi_arena_base(hdi_arena *arena)
{
    pthread_mutex_lock(&arena->blocks_lock);
    uint64_t base = arena->base;
    pthread_mutex_unlock(&arena->blocks_lock);
    return base;
}

/* ---- memory for owners ------------------------------------------------------------------------------------------ */

static hd_status fail_empty(const hdi_arena *arena, const char *who)
{
    return hdi_fail_driver(HD_ERROR_DEVICE_LOST, HDI_GONE_CLOSED, "", arena->config.index,
                           "%s: device %d was lost, and its memory has not been set up again", who,
                           arena->config.index);
}

/* The one failure of an allocation for want of device memory. `answer`: what the port said, or success when it was not
 * asked. `growing` is held. */
static hd_status fail_full(hdi_arena *arena, size_t bytes, hdi_answer answer)
{
    hdi_blocks_info info;
    pthread_mutex_lock(&arena->blocks_lock);
    hdi_blocks_get_info(arena->blocks, &info);
    pthread_mutex_unlock(&arena->blocks_lock);

    bool asked = !hdi_answered(answer);
    hd_status status = asked ? status_of(answer) : HD_ERROR_MEMORY;
    hd_error error = hdi_error_blank(status);
    snprintf(error.message, sizeof error.message,
             "alloc: %zu bytes on device %d: mapped %zu of at most %zu, live %zu, largest free block %zu%s", bytes,
             arena->config.index, arena->mapped, arena->limit, info.live_bytes, info.largest_free,
             asked ? "" : "; free something, or raise the limit if there is one");
    if (asked) {
        return fail_answer(arena, status, answer, "%s", error.message);
    }
    error.device = arena->config.index;
    snprintf(error.operation, sizeof error.operation, "alloc");
    return hdi_fail_error(&error);
}

/* Growth got memory, but a device that may use all memory of this one could not be given it. */
static hd_status fail_share(const hdi_arena *arena, size_t bytes, trouble t)
{
    return fail_answer(arena, status_of(t.answer), t.answer,
                       "alloc: %zu bytes on device %d: new memory cannot be shared with device %d, which uses this "
                       "device's memory",
                       bytes, arena->config.index, t.peer);
}

/* From what is mapped. `tail`, unless NULL, gets what hdi_blocks_tail says at the same moment. */
static hd_status alloc_mapped(hdi_arena *arena, uint32_t lane, size_t bytes, hdcu_deviceptr *out, hdi_marks *inherited,
                              size_t *tail)
{
    size_t offset = 0;
    hd_status status;
    pthread_mutex_lock(&arena->blocks_lock);
    if (arena->blocks == NULL) {
        status = fail_empty(arena, "alloc");
    } else {
        status = hdi_blocks_alloc(arena->blocks, bytes, lane, &offset, inherited);
        if (tail != NULL) {
            *tail = hdi_blocks_tail(arena->blocks);
        }
    }
    if (status == HD_OK) {
        *out = arena->base + offset;
    }
    pthread_mutex_unlock(&arena->blocks_lock);
    return status;
}

/* Maps `more`, gives it to the blocks and takes one from them in the same step, so that no other thread can
 * have it in between. NOT_FOUND: the arena grew, but the free block that it would have extended was taken
 * meanwhile. Failed requests are told in `t` instead of the status. */
static hd_status extend(hdi_arena *arena, size_t more, uint32_t lane, size_t bytes, hdcu_deviceptr *out,
                        hdi_marks *inherited, trouble *t)
{
    hd_status status = chunks_reserve(arena);
    if (status != HD_OK) {
        return status;
    }
    chunk c;
    *t = chunk_make(arena, more, &c);
    if (is_trouble(*t)) {
        return HD_OK;
    }
    size_t offset = 0;
    pthread_mutex_lock(&arena->blocks_lock);
    status = hdi_blocks_grow(arena->blocks, more);
    bool grown = status == HD_OK;
    if (grown) {
        status = hdi_blocks_alloc(arena->blocks, bytes, lane, &offset, inherited);
    }
    pthread_mutex_unlock(&arena->blocks_lock);
    if (!grown) {
        chunk_undo(arena, &c, arena->n_peers);
        return status;
    }
    arena->chunks[arena->n_chunks++] = c;
    arena->mapped += more;
    for (size_t i = 0; i < arena->n_peers; i++) {
        arena->peers[i].shared += arena->peers[i].granted;
    }
    if (status == HD_OK) {
        *out = arena->base + offset;
    }
    return status;
}

/* Allocates by growing; `growing` is held. */
static hd_status grow_and_alloc(hdi_arena *arena, uint32_t lane, size_t bytes, hdcu_deviceptr *out,
                                hdi_marks *inherited)
{
    bool modest = false; /* the device could not give more than is needed */
    for (;;) {
        /* again: while this thread waited for `growing`, another one may have grown the arena, or freed something */
        size_t tail = 0;
        hd_status status = alloc_mapped(arena, lane, bytes, out, inherited, &tail);
        if (status != HD_ERROR_NOT_FOUND) {
            return status;
        }
        /* bytes > tail, else the block at the end would have been taken */
        size_t need = round_up(bytes - tail, arena->granule);
        size_t room = arena->limit - arena->mapped;
        if (need > room) {
            return fail_full(arena, bytes, no_trouble.answer);
        }
        size_t more = modest ? need : smaller(room, larger(need, GROWTH));
        trouble t = no_trouble;
        status = extend(arena, more, lane, bytes, out, inherited, &t);
        if (!is_trouble(t)) {
            if (status != HD_ERROR_NOT_FOUND) {
                return status;
            }
        } else if (t.peer >= 0) {
            return fail_share(arena, bytes, t);
        } else if (t.answer.code != HDCU_ERROR_OUT_OF_MEMORY || more == need) {
            /* the last chance: something may have been freed while the port was asked */
            status = t.answer.code == HDCU_ERROR_OUT_OF_MEMORY ? alloc_mapped(arena, lane, bytes, out, inherited, NULL)
                                                               : HD_ERROR_NOT_FOUND;
            return status == HD_ERROR_NOT_FOUND ? fail_full(arena, bytes, t.answer) : status;
        } else {
            modest = true;
        }
    }
}

hd_status hdi_arena_alloc(hdi_arena *arena, uint32_t lane, size_t bytes, hdcu_deviceptr *out, hdi_marks *inherited)
{
    hd_status status = alloc_mapped(arena, lane, bytes, out, inherited, NULL);
    if (status == HD_ERROR_NOT_FOUND) {
        pthread_mutex_lock(&arena->growing);
        status = grow_and_alloc(arena, lane, bytes, out, inherited);
        pthread_mutex_unlock(&arena->growing);
    }
    return status;
}

void hdi_arena_free(hdi_arena *arena, hdcu_deviceptr pointer, const hdi_mark *marks, size_t n_marks)
{
    pthread_mutex_lock(&arena->blocks_lock);
    if (arena->blocks != NULL && pointer >= arena->base && pointer - arena->base < arena->reserved) {
        hdi_blocks_free(arena->blocks, (size_t)(pointer - arena->base), marks, n_marks);
    }
    pthread_mutex_unlock(&arena->blocks_lock);
}

/* ---- peers: `growing` is held ----------------------------------------------------------------------------------- */

static peer *peer_find(hdi_arena *arena, int device)
{
    for (size_t i = 0; i < arena->n_peers; i++) {
        if (arena->peers[i].device == device) {
            return &arena->peers[i];
        }
    }
    return NULL;
}

static peer *peer_add(hdi_arena *arena, int device)
{
    if (arena->n_peers == arena->peers_room) {
        size_t room = arena->peers_room == 0 ? 8 : arena->peers_room * 2;
        peer *peers = realloc(arena->peers, room * sizeof *peers);
        if (peers == NULL) {
            return NULL;
        }
        arena->peers = peers;
        arena->peers_room = room;
    }
    peer *p = &arena->peers[arena->n_peers++];
    *p = (peer){.device = device};
    return p;
}

static hd_status grant(hdi_arena *arena, int device)
{
    peer *p = peer_find(arena, device);
    if (device == arena->config.index || (p != NULL && p->granted)) {
        return HD_OK;
    }
    if (arena->blocks == NULL) { /* it changes under `growing` only */
        return fail_empty(arena, "peers");
    }
    if (p == NULL && (p = peer_add(arena, device)) == NULL) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "peers: no host memory to note a peer of device %d", arena->config.index);
    }
    while (p->shared < arena->n_chunks) {
        hdi_answer answer = share(arena, device, &arena->chunks[p->shared]);
        if (!hdi_answered(answer)) {
            return fail_answer(arena, status_of(answer), answer,
                               "peers: the memory of device %d cannot be made accessible to device %d",
                               arena->config.index, device);
        }
        p->shared++;
    }
    p->granted = true;
    return HD_OK;
}

hd_status hdi_arena_grant(hdi_arena *arena, int device)
{
    pthread_mutex_lock(&arena->growing);
    hd_status status = grant(arena, device);
    pthread_mutex_unlock(&arena->growing);
    return status;
}

void hdi_arena_revoke(hdi_arena *arena, int device)
{
    pthread_mutex_lock(&arena->growing);
    peer *p = peer_find(arena, device);
    if (p != NULL) {
        *p = arena->peers[--arena->n_peers];
    }
    pthread_mutex_unlock(&arena->growing);
}

/* ---- figures ---------------------------------------------------------------------------------------------------- */

void hdi_arena_get_info(hdi_arena *arena, hdi_arena_info *out)
{
    *out = (hdi_arena_info){.granule = arena->granule, .reserved_bytes = arena->reserved, .limit_bytes = arena->limit};
    pthread_mutex_lock(&arena->growing);
    out->mapped_bytes = arena->mapped;
    pthread_mutex_lock(&arena->blocks_lock);
    if (arena->blocks != NULL) {
        hdi_blocks_get_info(arena->blocks, &out->blocks);
    }
    pthread_mutex_unlock(&arena->blocks_lock);
    pthread_mutex_unlock(&arena->growing);
}

/* Both locks are held. */
static bool chunks_are_good(const hdi_arena *arena, char *why, size_t why_bytes)
{
    size_t at = 0;
    for (size_t i = 0; i < arena->n_chunks; i++) {
        if (arena->chunks[i].at != arena->base + at) {
            snprintf(why, why_bytes, "chunk %zu: not at %zu", i, at);
            return false;
        }
        at += arena->chunks[i].bytes;
    }
    hdi_blocks_info info = {0};
    if (arena->blocks != NULL) {
        hdi_blocks_get_info(arena->blocks, &info);
    }
    if (at != arena->mapped || info.managed_bytes != arena->mapped || arena->mapped > arena->limit) {
        snprintf(why, why_bytes, "chunks: %zu bytes, mapped %zu, managed %zu", at, arena->mapped, info.managed_bytes);
        return false;
    }
    for (size_t i = 0; i < arena->n_peers; i++) {
        const peer *p = &arena->peers[i];
        if (p->shared > arena->n_chunks || (p->granted && p->shared != arena->n_chunks)) {
            snprintf(why, why_bytes, "peer %d: has %zu of %zu chunks", p->device, p->shared, arena->n_chunks);
            return false;
        }
    }
    return true;
}

bool hdi_arena_check(hdi_arena *arena, char *why, size_t why_bytes)
{
    pthread_mutex_lock(&arena->growing);
    pthread_mutex_lock(&arena->blocks_lock);
    bool good = (arena->blocks == NULL || hdi_blocks_check(arena->blocks, why, why_bytes)) &&
                chunks_are_good(arena, why, why_bytes);
    pthread_mutex_unlock(&arena->blocks_lock);
    pthread_mutex_unlock(&arena->growing);
    return good;
}
