/* arena.c - one device's memory: the address range, blocks of what is mapped, peers, figures. arena_grow.c maps and
 * unmaps.
 *
 * Threads, locks, blocking: see arena.h. The fields of hdi_arena name the lock that covers them.
 * Always: see arena_internal.h.
 */
#include "memory/arena_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/text.h"

#define GRANULE_LEAST ((size_t)2 << 20)
#define RANGE_TIMES 4 /* address space per memory, where the config has no size */

hd_status hdi_arena_status_of(hdi_answer answer)
{
    if (answer.code == HDCU_ERROR_OUT_OF_MEMORY) {
        return HD_ERROR_MEMORY;
    }
    return hdi_driver_code_is_fatal(answer.code) ? HD_ERROR_DEVICE_LOST : HD_ERROR_DRIVER;
}

hd_status hdi_arena_fail_answer(const hdi_arena *arena, hd_status status, hdi_answer answer, const char *format, ...)
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

hd_status hdi_arena_fail_empty(const hdi_arena *arena)
{
    return hdi_fail_driver(HD_ERROR_DEVICE_LOST, HDI_GONE_CLOSED, "", arena->config.index,
                           "device %d was lost, and its memory has not been set up again", arena->config.index);
}

hd_status hdi_arena_fail_host_memory(const hdi_arena *arena, size_t bytes)
{
    return hdi_fail(HD_ERROR_HOST_MEMORY, "no host memory for the bookkeeping of %s on device %d", HDI_BYTES(bytes),
                    arena->config.index);
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* ---- creating, restarting and destroying an arena --------------------------------------------------------------- */

static hd_status fail_set_up(const hdi_arena *arena, hdi_answer answer)
{
    return hdi_arena_fail_answer(arena, hdi_arena_status_of(answer), answer, "the memory of device %d cannot be set up",
                                 arena->config.index);
}

/* Sets the granule, the size of the range and the limit. */
static hd_status settle_sizes(hdi_arena *arena)
{
    const hdi_arena_config *config = &arena->config;
    uint64_t total = config->total_bytes, granule = config->granule;
    if (total == 0 || granule == 0) {
        hdi_facts facts;
        hdi_answer answer = config->port->calls->facts(config->port, &facts);
        if (!hdi_answered(answer)) {
            return fail_set_up(arena, answer);
        }
        if (!facts.virtual_memory) {
            return hdi_fail(HD_ERROR_UNSUPPORTED,
                            "device %d has no virtual memory management, which Heddle needs; leave it out of "
                            "the option devices",
                            config->index);
        }
        total = facts.memory_bytes;
        granule = facts.granule;
    }
    arena->granule = larger(granule, GRANULE_LEAST);
    size_t all = hdi_arena_round_up(total, arena->granule);
    arena->reserved = config->range_bytes != 0 ? hdi_arena_round_up(config->range_bytes, arena->granule)
                                               : (all > SIZE_MAX / 2 / RANGE_TIMES ? all : all * RANGE_TIMES);
    arena->limit = smaller(all, arena->reserved);
    if (config->limit_bytes != 0) {
        arena->limit = smaller(arena->limit, hdi_arena_round_down(config->limit_bytes, arena->granule));
    }
    return HD_OK;
}

/* Reserves the range at `address`. Where there are fewer addresses, it shrinks arena->reserved, down to `least`. */
static hd_status reserve(hdi_arena *arena, uint64_t address, size_t least, uint64_t *base)
{
    hdi_port *port = arena->config.port;
    uint64_t at = 0;
    hdi_answer answer = port->calls->reserve(port, address, arena->reserved, &at);
    while (answer.code == HDCU_ERROR_OUT_OF_MEMORY && arena->reserved > least) {
        arena->reserved = larger(hdi_arena_round_down(arena->reserved / 2, arena->granule), least);
        answer = port->calls->reserve(port, address, arena->reserved, &at);
    }
    if (!hdi_answered(answer)) {
        return fail_set_up(arena, answer);
    }
    if (arena->config.fixed && address != 0 && at != address) {
        port->calls->unreserve(port, at, arena->reserved);
        return hdi_fail(
            HD_ERROR_UNSUPPORTED,
            "the memory of device %d must lie at address 0x%llx in every process, where its %s have no room; "
            "try another placement",
            arena->config.index, (unsigned long long)address, HDI_BYTES(arena->reserved));
    }
    *base = at;
    return HD_OK;
}

/* An allocator over the range, which is one gap. */
static hd_status make_one(const hdi_arena *arena, size_t wall, hdi_blocks **out)
{
    hdi_blocks_config config = {.limit = arena->reserved,
                                .wall = wall,
                                .finished = arena->config.finished,
                                .finished_context = arena->config.finished_context};
    hd_status status = hdi_blocks_create(&config, out);
    return status != HD_OK ? status : hdi_blocks_grow_gap(*out, arena->reserved);
}

static hd_status make_blocks(const hdi_arena *arena, hdi_blocks **large, hdi_blocks **small)
{
    hd_status status = make_one(arena, 0, large);
    return status != HD_OK ? status : make_one(arena, arena->granule, small);
}

static void set_blocks(hdi_arena *arena, hdi_blocks *large, hdi_blocks *small)
{
    arena->large = large;
    arena->small = small;
    arena->large_sums = large != NULL ? hdi_blocks_get_sums(large) : NULL;
    arena->small_sums = small != NULL ? hdi_blocks_get_sums(small) : NULL;
}

static hd_status make_tables(hdi_arena *arena)
{
    const hdi_mappings_config config = {.port = arena->config.port,
                                        .limit = arena->limit,
                                        .index = arena->config.index,
                                        .share = arena->config.share,
                                        .unshare = arena->config.unshare,
                                        .share_context = arena->config.share_context};
    size_t count = arena->reserved / arena->granule;
    arena->is_span = calloc(count + 1, 1);
    if (!hdi_mappings_init(&arena->mappings, &config, arena->granule, count) || arena->is_span == NULL) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no host memory for the granules of device %d", arena->config.index);
    }
    return HD_OK;
}

hd_status hdi_arena_create(const hdi_arena_config *config, hdi_arena **out)
{
    hdi_arena *arena = calloc(1, sizeof *arena);
    if (arena == NULL) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no host memory for the arena of device %d", config->index);
    }
    arena->config = *config;
    hdi_lock_init(&arena->blocks_lock, HDI_RANKED(HDI_RANK_BLOCKS, 0));
    hdi_mutex_init(&arena->growing, HDI_RANK_ARENA_GROWING);
    hd_status status = settle_sizes(arena);
    if (status == HD_OK) {
        size_t least = config->fixed ? arena->reserved : larger(arena->limit, arena->granule);
        status = reserve(arena, config->address, least, &arena->base);
    }
    if (status == HD_OK) {
        status = make_tables(arena);
    }
    if (status == HD_OK) {
        hdi_blocks *large = NULL, *small = NULL;
        status = make_blocks(arena, &large, &small);
        set_blocks(arena, large, small);
    }
    if (status != HD_OK) {
        hdi_attempt attempt;
        hdi_attempt_begin(&attempt);
        hdi_arena_destroy(arena, false);
        hdi_attempt_end(&attempt);
        return status;
    }
    arena->mappings.base = arena->base;
    *out = arena;
    return HD_OK;
}

hd_status hdi_arena_restart(hdi_arena *arena, uint64_t address)
{
    hdi_blocks *large = NULL, *small = NULL;
    uint64_t base = 0;
    hdi_mutex_lock(&arena->growing);
    hd_status status = make_blocks(arena, &large, &small);
    if (status == HD_OK) {
        status = reserve(arena, address, arena->reserved, &base);
    }
    if (status != HD_OK) {
        hdi_blocks_destroy(large);
        hdi_blocks_destroy(small);
        large = small = NULL;
    }
    hdi_mappings_forget(&arena->mappings, base);
    hdi_lock_take(&arena->blocks_lock);
    hdi_blocks *large_before = arena->large, *small_before = arena->small;
    set_blocks(arena, large, small);
    arena->base = base;
    arena->n_spans = 0;
    memset(arena->is_span, 0, arena->reserved / arena->granule);
    hdi_arena_note(arena);
    hdi_lock_release(&arena->blocks_lock);
    hdi_mutex_unlock(&arena->growing);
    hdi_blocks_destroy(large_before);
    hdi_blocks_destroy(small_before);
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
            hdi_arena_fail_answer(arena, status, answer, "some memory of device %d could not be given back",
                                  arena->config.index);
        }
    }
    hdi_blocks_destroy(arena->large);
    hdi_blocks_destroy(arena->small);
    hdi_mappings_release(&arena->mappings);
    free(arena->is_span);
    hdi_mutex_destroy(&arena->growing);
    free(arena);
    return status;
}

uint64_t hdi_arena_base(hdi_arena *arena)
{
    hdi_lock_take(&arena->blocks_lock);
    uint64_t base = arena->base;
    hdi_lock_release(&arena->blocks_lock);
    return base;
}

/* ---- what is mapped: the caller holds blocks_lock --------------------------------------------------------------- */

size_t hdi_arena_taken(const hdi_arena *arena)
{
    return hdi_blocks_live_bytes(arena->large_sums) - arena->n_spans * arena->granule +
           hdi_blocks_live_bytes(arena->small_sums);
}

void hdi_arena_note(hdi_arena *arena)
{
    size_t ready = 0, taken = 0;
    if (arena->large != NULL) {
        taken = hdi_arena_taken(arena);
        arena->taken_peak = larger(arena->taken_peak, taken);
        ready = hdi_blocks_ready_bytes(arena->large_sums) + hdi_blocks_ready_bytes(arena->small_sums);
    }
    atomic_store_explicit(&arena->ready, ready, memory_order_relaxed);
    atomic_store_explicit(&arena->taken, taken, memory_order_relaxed);
}

hd_status hdi_arena_make_span(hdi_arena *arena, size_t offset, bool fresh, hdi_points *inherited)
{
    const hdi_point *points = hdi_points_data(inherited);
    hd_status status = hdi_blocks_fill(arena->small, offset, arena->granule, fresh, points, inherited->count);
    if (status == HD_OK) {
        arena->is_span[offset / arena->granule] = 1;
        arena->n_spans++;
    } else {
        hdi_blocks_free(arena->large, offset, points, inherited->count);
    }
    hdi_points_release(inherited);
    return status;
}

void hdi_arena_return_spans(hdi_arena *arena, size_t keep)
{
    /* No lane has this number, so a span without unfinished uses goes first. */
    const hdi_blocks_request whole = {.bytes = arena->granule, .lane = UINT32_MAX};
    while (hdi_blocks_whole(arena->small) > keep) {
        hdi_blocks_taken span;
        if (hdi_blocks_take(arena->small, &whole, &span) != HD_OK) {
            return; /* no host memory: the span stays a spare */
        }
        hdi_blocks_drop(arena->small, span.offset);
        arena->is_span[span.offset / arena->granule] = 0;
        arena->n_spans--;
        hdi_blocks_free(arena->large, span.offset, hdi_points_data(&span.inherited), span.inherited.count);
        hdi_points_release(&span.inherited);
    }
}

static hd_status take_small(hdi_arena *arena, const hdi_blocks_request *request, hdi_blocks_taken *out)
{
    hdi_blocks_request wanted = *request;
    wanted.no_wait = true;
    hd_status status = hdi_blocks_take(arena->small, &wanted, out);
    if (status != HD_ERROR_NOT_FOUND) {
        return status;
    }
    bool would_wait = out->origin == HDI_ORIGIN_WAITED;
    hdi_blocks_request whole = {
        .bytes = arena->granule, .alignment = arena->granule, .lane = request->lane, .no_wait = true};
    hdi_blocks_taken span;
    status = hdi_blocks_take(arena->large, &whole, &span);
    would_wait |= status == HD_ERROR_NOT_FOUND && span.origin == HDI_ORIGIN_WAITED;
    if (status == HD_ERROR_NOT_FOUND && !request->no_wait) {
        status = hdi_blocks_take(arena->small, request, out);
        if (status != HD_ERROR_NOT_FOUND) {
            return status;
        }
        whole.no_wait = false;
        status = hdi_blocks_take(arena->large, &whole, &span);
    }
    if (status == HD_OK) {
        status = hdi_arena_make_span(arena, span.offset, span.origin == HDI_ORIGIN_FRESH, &span.inherited);
    }
    if (status == HD_OK) {
        return hdi_blocks_take(arena->small, request, out);
    }
    out->origin = would_wait ? HDI_ORIGIN_WAITED : HDI_ORIGIN_NONE;
    return status;
}

hd_status hdi_arena_take(hdi_arena *arena, const hdi_blocks_request *request, hdi_blocks_taken *out)
{
    hd_status status = request->bytes <= HDI_SMALL_BYTES ? take_small(arena, request, out)
                                                         : hdi_blocks_take(arena->large, request, out);
    if (status == HD_OK) {
        arena->n_from[out->origin]++;
    }
    return status;
}

/* ---- memory for owners ------------------------------------------------------------------------------------------ */

/* Takes a block of what is mapped and free. NOT_FOUND records no message. */
static hd_status alloc_mapped(hdi_arena *arena, uint32_t lane, size_t bytes, hdcu_deviceptr *out, hdi_points *inherited)
{
    const hdi_blocks_request request = {.bytes = bytes, .lane = lane, .no_wait = true};
    hdi_blocks_taken taken;
    hdi_lock_take(&arena->blocks_lock);
    bool empty = arena->large == NULL;
    hd_status status = empty ? HD_ERROR_DEVICE_LOST : hdi_arena_take(arena, &request, &taken);
    if (status == HD_OK) {
        *out = arena->base + taken.offset;
        *inherited = taken.inherited;
        hdi_arena_note(arena);
    }
    hdi_lock_release(&arena->blocks_lock);
    if (empty) {
        return hdi_arena_fail_empty(arena);
    }
    return status == HD_ERROR_HOST_MEMORY ? hdi_arena_fail_host_memory(arena, bytes) : status;
}

hd_status hdi_arena_alloc(hdi_arena *arena, uint32_t lane, size_t bytes, hdcu_deviceptr *out, hdi_points *inherited)
{
    if (bytes == 0) {
        return hdi_fail(HD_ERROR_ARGUMENT, "a block of 0 bytes");
    }
    hd_status status = alloc_mapped(arena, lane, bytes, out, inherited);
    if (status == HD_ERROR_NOT_FOUND && arena->config.relieve != NULL &&
        arena->config.relieve(arena->config.relieve_context)) {
        status = alloc_mapped(arena, lane, bytes, out, inherited);
    }
    if (status == HD_ERROR_NOT_FOUND) {
        hdi_mutex_lock(&arena->growing);
        status = hdi_arena_grow(arena, lane, bytes, out, inherited);
        hdi_mutex_unlock(&arena->growing);
    }
    return status;
}

size_t hdi_arena_alloc_more(hdi_arena *arena, uint32_t lane, size_t bytes, size_t count, hdcu_deviceptr *out,
                            hdi_points *inherited)
{
    const hdi_blocks_request request = {.bytes = bytes, .lane = lane, .no_wait = true};
    size_t n = 0;
    if (bytes == 0) {
        return 0;
    }
    hdi_lock_take(&arena->blocks_lock);
    hdi_blocks_taken taken;
    while (n < count && arena->large != NULL && hdi_arena_take(arena, &request, &taken) == HD_OK) {
        out[n] = arena->base + taken.offset;
        inherited[n] = taken.inherited;
        arena->n_from[taken.origin]--; /* counts only when it leaves the magazine */
        n++;
    }
    hdi_arena_note(arena);
    hdi_lock_release(&arena->blocks_lock);
    return n;
}

void hdi_arena_free(hdi_arena *arena, hdcu_deviceptr pointer, const hdi_point *points, size_t n_points)
{
    hdi_lock_take(&arena->blocks_lock);
    if (arena->large != NULL && pointer >= arena->base && pointer - arena->base < arena->reserved) {
        size_t offset = (size_t)(pointer - arena->base);
        bool small = arena->is_span[offset / arena->granule] != 0;
        if (hdi_blocks_free(small ? arena->small : arena->large, offset, points, n_points)) {
            if (small) {
                hdi_arena_return_spans(arena, HDI_SPARE_SPANS);
            }
            hdi_arena_note(arena);
            atomic_fetch_add_explicit(&arena->freed, 1, memory_order_release);
        }
    }
    hdi_lock_release(&arena->blocks_lock);
}

uint64_t hdi_arena_freed(const hdi_arena *arena)
{
    return atomic_load_explicit(&arena->freed, memory_order_acquire);
}

size_t hdi_arena_free_bytes(const hdi_arena *arena)
{
    return atomic_load_explicit(&arena->ready, memory_order_relaxed);
}

size_t hdi_arena_limit(const hdi_arena *arena)
{
    return arena->limit;
}

size_t hdi_arena_mapped_bytes(const hdi_arena *arena)
{
    return atomic_load_explicit(&arena->mappings.mapped, memory_order_relaxed);
}

uint64_t hdi_arena_mapped_total(const hdi_arena *arena)
{
    return atomic_load_explicit(&arena->mappings.mapped_total, memory_order_relaxed);
}

size_t hdi_arena_taken_bytes(const hdi_arena *arena)
{
    return atomic_load_explicit(&arena->taken, memory_order_relaxed);
}

/* ---- peers ------------------------------------------------------------------------------------------------------ */

hd_status hdi_arena_grant(hdi_arena *arena, int device)
{
    if (device == arena->config.index) {
        return HD_OK;
    }
    if (device < 0 || device >= HDI_PEERS_MAX) {
        return hdi_fail(HD_ERROR_ARGUMENT, "peers: device %d", device);
    }
    hd_status status = HD_OK;
    hdi_mutex_lock(&arena->growing);
    if (arena->large == NULL) { /* `large` changes under `growing` only */
        status = hdi_arena_fail_empty(arena);
    } else if ((arena->mappings.granted >> device & 1) == 0) {
        hdi_answer answer = hdi_mappings_grant(&arena->mappings, device);
        if (!hdi_answered(answer)) {
            status = hdi_arena_fail_answer(arena, hdi_arena_status_of(answer), answer,
                                           "peers: the memory of device %d cannot be made accessible to device %d",
                                           arena->config.index, device);
        }
    }
    hdi_mutex_unlock(&arena->growing);
    return status;
}

void hdi_arena_revoke(hdi_arena *arena, int device)
{
    if (device >= 0 && device < HDI_PEERS_MAX) {
        hdi_mutex_lock(&arena->growing);
        hdi_mappings_revoke(&arena->mappings, device);
        hdi_mutex_unlock(&arena->growing);
    }
}

/* ---- figures ---------------------------------------------------------------------------------------------------- */

/* The caller holds both locks. */
static void count_blocks(hdi_arena *arena, hdi_arena_info *out)
{
    hdi_blocks_prune(arena->large);
    hdi_blocks_prune(arena->small);
    hdi_arena_note(arena);
    hdi_blocks_info large, small;
    hdi_blocks_get_info(arena->large, &large);
    hdi_blocks_get_info(arena->small, &small);
    out->taken_bytes = hdi_arena_taken(arena);
    out->taken_blocks = large.live_blocks - arena->n_spans + small.live_blocks;
    out->waiting_bytes = large.waiting_bytes + small.waiting_bytes;
    out->idle_bytes = hdi_arena_idle(arena);
    out->largest_free = larger(large.largest_free, small.largest_free);
    out->retired_bytes = large.retired_bytes + small.retired_bytes;
}

void hdi_arena_get_info(hdi_arena *arena, hdi_arena_info *out)
{
    *out = (hdi_arena_info){.granule = arena->granule, .reserved_bytes = arena->reserved, .limit_bytes = arena->limit};
    hdi_mutex_lock(&arena->growing);
    out->mapped_bytes = arena->mappings.mapped;
    out->mapped_peak_bytes = arena->mappings.peak;
    out->driver_calls = arena->mappings.calls;
    out->mapped_total = arena->mappings.mapped_total;
    out->moved_bytes = arena->moved_bytes;
    out->returned_bytes = arena->returned_bytes;
    out->ahead_bytes = arena->ahead_bytes;
    hdi_lock_take(&arena->blocks_lock);
    out->taken_peak_bytes = arena->taken_peak;
    out->from_same_lane = arena->n_from[HDI_ORIGIN_SAME_LANE];
    out->from_finished = arena->n_from[HDI_ORIGIN_FINISHED];
    out->from_waited = arena->n_from[HDI_ORIGIN_WAITED];
    out->from_fresh = arena->n_from[HDI_ORIGIN_FRESH];
    if (arena->large != NULL) {
        count_blocks(arena, out);
    }
    hdi_lock_release(&arena->blocks_lock);
    hdi_mutex_unlock(&arena->growing);
}
