/* arena.c - one device's memory: its address range, the mapped granules in it, peers, and figures.
 *
 * arena_alloc.c decides which place an owner gets, and which memory is mapped and unmapped for that
 * place.
 *
 * Threads, locks, blocking: see arena.h. The fields of hdi_arena name the lock that covers them.
 * Always: see arena_internal.h.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/shortage.h"
#include "base/number.h"
#include "base/text.h"
#include "memory/arena_internal.h"

#define GRANULE_LEAST ((size_t)2 << 20)
/* An arena of at least LARGE_LIMIT uses granules of GRANULE_LARGE. The driver's time to map and
 * unmap a granule does not depend on its size. So larger granules halve the time of moves in a
 * program whose blocks change their sizes. Partly used granules then waste more bytes, but these
 * are a small fraction of such an arena. */
#define GRANULE_LARGE ((size_t)4 << 20)
#define LARGE_LIMIT ((size_t)32 << 30)
/* Mappings of at least this many granules move as a whole, and mappings of one granule move in
 * runs. A mapping of two granules is unmapped, and the new place gets other mappings. If mappings
 * of two granules moved, recorded programs became slower. */
#define MOVING_LEAST 3
/* If the config gives no size, the range is this many times the device's memory. docs/design.md
 * gives the reason. */
#define RANGE_TIMES 16

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

/* ---- which granules are mapped: the caller holds `growing` ----------------------------------- */

/* Makes a table with nothing mapped. False: no host memory. */
static bool mappings_init(hdi_mappings *p, const hdi_mappings_config *config, size_t granule, size_t count)
{
    *p = (hdi_mappings){.config = *config, .granule = granule, .count = count};
    p->of = count < UINT32_MAX ? calloc(count + 1, sizeof *p->of) : NULL;
    return p->of != NULL;
}

static void mappings_release(hdi_mappings *p)
{
    free(p->of);
    p->of = NULL;
}

/* Drops all mappings and grants without a request. The range lies at `base` from then on. */
static void mappings_forget(hdi_mappings *p, uint64_t base)
{
    if (p->end != 0) {
        memset(p->of, 0, p->end * sizeof *p->of);
    }
    p->unmapped_total += p->mapped;
    p->mapped = 0;
    p->end = 0;
    p->granted = 0;
    p->base = base;
}

size_t hdi_mappings_missing(const hdi_mappings *p, size_t from, size_t to)
{
    size_t missing = 0;
    for (size_t g = from / p->granule; g * p->granule < to; g++) {
        missing += p->of[g].first == 0;
    }
    return missing * p->granule;
}

/* ---- one mapping ----------------------------------------------------------------------------- */

static hdi_answer mappings_share_range(const hdi_mappings *p, int device, size_t first, size_t count)
{
    const hdi_mappings_config *c = &p->config;
    uint64_t at = p->base + first * p->granule, bytes = count * p->granule;
    return c->share != NULL ? c->share(c->share_context, device, at, bytes)
                            : c->port->calls->grant(c->port, device, at, bytes);
}

/* Lets a device use a run of mappings. */
static hdi_answer mappings_share_run(hdi_mappings *p, int device, size_t first, size_t count)
{
    hdi_answer answer = {HDCU_SUCCESS, ""};
    const bool together = p->config.share == NULL;
    if (together) {
        answer = mappings_share_range(p, device, first, count);
    }
    for (size_t g = first; g < first + count && hdi_answered(answer); g += p->of[g].count) {
        answer = together ? answer : mappings_share_range(p, device, g, p->of[g].count);
        p->of[g].shared |= hdi_answered(answer) ? hdi_device_bit(device) : 0;
    }
    return answer;
}

/* Removes a run of mappings from all peers. */
static void mappings_unshare_run(hdi_mappings *p, size_t first, size_t count)
{
    const hdi_mappings_config *c = &p->config;
    for (size_t g = first; g < first + count; g += p->of[g].count) {
        for (uint64_t left = p->of[g].shared; c->unshare != NULL && left != 0; left &= left - 1) {
            c->unshare(c->share_context, __builtin_ctzll(left), p->base + g * p->granule, p->of[g].count * p->granule);
        }
        p->of[g].shared = 0;
    }
}

/* Records a run of `count` granules, which consists of mappings of `each` granules. */
static void mappings_note_run(hdi_mappings *p, size_t first, size_t count, size_t each)
{
    for (size_t g = first; g < first + count; g++) {
        size_t begin = g - (g - first) % each;
        p->of[g] = (hdi_mapping){.first = (uint32_t)begin + 1, .count = g == begin ? (uint32_t)each : 0};
    }
    p->end = p->end > first + count ? p->end : first + count;
}

/* Ends a run of mappings, which no peer has mapped any more. */
static hdi_answer mappings_end_run(hdi_mappings *p, size_t first, size_t count)
{
    hdi_port *port = p->config.port;
    p->calls++;
    hdi_answer answer = port->calls->unmap(port, p->base + first * p->granule, count * p->granule);
    memset(&p->of[first], 0, count * sizeof *p->of);
    p->mapped -= count * p->granule;
    return answer;
}

/* Gives a new run of mappings to all peers. On failure the run is ended. */
static hdi_trouble mappings_share_new(hdi_mappings *p, size_t first, size_t count)
{
    hdi_trouble t = {.peer = -1};
    for (uint64_t left = p->granted; left != 0 && !hdi_is_trouble(t); left &= left - 1) {
        int device = __builtin_ctzll(left);
        t.answer = mappings_share_run(p, device, first, count);
        t.peer = hdi_is_trouble(t) ? device : -1;
    }
    if (hdi_is_trouble(t)) {
        mappings_unshare_run(p, first, count);
        mappings_end_run(p, first, count);
    } else {
        p->mapped_total += count * p->granule;
    }
    return t;
}

/* Makes a run of mappings of `each` granules by one request. */
static hdi_trouble mappings_map_run(hdi_mappings *p, size_t first, size_t count, size_t each)
{
    hdi_port *port = p->config.port;
    uint64_t at = p->base + first * p->granule, bytes = count * p->granule;
    hdi_trouble t = {.peer = -1};
    p->mapped += bytes;
    p->calls++;
    t.answer =
        count == each ? port->calls->map(port, at, bytes) : port->calls->map_each(port, at, bytes, each * p->granule);
    if (hdi_is_trouble(t)) {
        p->mapped -= bytes;
        return t;
    }
    mappings_note_run(p, first, count, each);
    p->peak = hdi_larger(p->peak, p->mapped + p->pieces);
    return mappings_share_new(p, first, count);
}

/* Moves a run of mappings of `each` granules. On failure these mappings are gone. */
static hdi_trouble mappings_move_run(hdi_mappings *p, size_t from, size_t to, size_t count, size_t each)
{
    hdi_port *port = p->config.port;
    hdi_trouble t = {.peer = -1};
    mappings_unshare_run(p, from, count);
    p->calls++;
    p->unmapped_total += count * p->granule;
    t.answer = port->calls->move(port, p->base + from * p->granule, p->base + to * p->granule, count * p->granule);
    memset(&p->of[from], 0, count * sizeof *p->of);
    if (hdi_is_trouble(t)) {
        p->mapped -= count * p->granule;
        return t;
    }
    mappings_note_run(p, to, count, each);
    return mappings_share_new(p, to, count);
}

/* ---- areas ----------------------------------------------------------------------------------- */

/* Granules per mapping for a block that lacks `missing` bytes.
 * Large mappings take less time, since the driver's time for a mapping does not depend on its size.
 * But a large mapping is more likely to be divided later, and the division takes time. A mapping of
 * a thirty-second of the missing bytes is a compromise. */
static size_t mappings_granules_each(const hdi_mappings *p, size_t missing)
{
    size_t bytes = hdi_smaller(missing / 32, HDI_MAPPING_MOST);
    return bytes != 0 ? (bytes - 1) / p->granule + 1 : 1;
}

/* The number of consecutive unmapped granules from `g` on, before `end`. */
static size_t mappings_missing_run(const hdi_mappings *p, size_t g, size_t end)
{
    size_t count = 0;
    while (g + count < end && p->of[g + count].first == 0) {
        count++;
    }
    return count;
}

hdi_trouble hdi_mappings_map_one(hdi_mappings *p, size_t from, size_t to)
{
    size_t count = (to - from) / p->granule;
    return mappings_map_run(p, from / p->granule, count, count);
}

hdi_trouble hdi_mappings_map(hdi_mappings *p, size_t from, size_t to, size_t whole_to, size_t *mapped_to)
{
    size_t most = mappings_granules_each(p, hdi_mappings_missing(p, from, to)), together = SIZE_MAX;
    const size_t end = to / p->granule, whole_end = whole_to / p->granule;
    hdi_trouble t = {.peer = -1};
    for (size_t g = from / p->granule; g < end;) {
        size_t count = hdi_smaller(mappings_missing_run(p, g, g < whole_end ? whole_end : end), together);
        size_t each = g < whole_end ? hdi_smaller(most, count) : 1;
        if (count == 0) {
            g++;
            continue;
        }
        count -= count % each;
        t = mappings_map_run(p, g, count, each);
        if (t.answer.code == HDCU_ERROR_OUT_OF_MEMORY && t.peer < 0 && count > 1) {
            /* granule by granule, since the device may still give memory for some of them */
            most = together = 1;
            continue;
        }
        if (hdi_is_trouble(t)) {
            *mapped_to = g * p->granule;
            return t;
        }
        g += count;
    }
    *mapped_to = to;
    return t;
}

/* The number of consecutive mappings of one granule from `g` on, before `end`. */
static size_t mappings_single_run(const hdi_mappings *p, size_t g, size_t end)
{
    size_t count = 0;
    while (g + count < end && p->of[g + count].count == 1) {
        count++;
    }
    return count;
}

/* The number of granules from `g` on that one request moves to the unmapped granules from `k` on.
 * The request moves a run of mappings of one granule, or one large mapping. A large mapping moves
 * only to the part below `whole_end`, which is for one block. 0: nothing can move. */
static size_t mappings_moving_run(const hdi_mappings *p, size_t g, size_t end, size_t k, size_t into_end,
                                  size_t whole_end)
{
    size_t each = p->of[g].count;
    if (each == 1) {
        return hdi_smaller(mappings_single_run(p, g, end), mappings_missing_run(p, k, into_end));
    }
    return each >= MOVING_LEAST && mappings_missing_run(p, k, whole_end) >= each ? each : 0;
}

static void mappings_lower_end(hdi_mappings *p)
{
    while (p->end > 0 && p->of[p->end - 1].first == 0) {
        p->end--;
    }
}

hdi_trouble hdi_mappings_move(hdi_mappings *p, size_t from, size_t to, size_t *gone_to, const hdi_target *into,
                              size_t *mapped_to)
{
    const size_t end = to / p->granule, into_end = into->to / p->granule, whole_end = into->whole_to / p->granule;
    size_t g = from / p->granule, k = *mapped_to / p->granule;
    hdi_trouble t = {.peer = -1};
    while (g < end && !hdi_is_trouble(t)) {
        while (k < into_end && p->of[k].first != 0) {
            k++;
        }
        size_t each = p->of[g].count, count = mappings_moving_run(p, g, end, k, into_end, whole_end);
        if (count != 0) {
            t = mappings_move_run(p, g, k, count, each);
            k += hdi_is_trouble(t) ? 0 : count;
        } else {
            /* If the place lacks nothing more, unmaps the rest of the area. Otherwise unmaps a
             * mapping that does not move. */
            count = mappings_missing_run(p, k, into_end) == 0 ? end - g : each;
            mappings_unshare_run(p, g, count);
            t.answer = mappings_end_run(p, g, count);
            p->unmapped_total += count * p->granule;
        }
        g += count;
    }
    mappings_lower_end(p);
    *gone_to = g * p->granule;
    *mapped_to = k * p->granule;
    return t;
}

bool hdi_mappings_at(const hdi_mappings *p, size_t offset, size_t *from, size_t *to)
{
    size_t first = p->of[offset / p->granule].first - 1, count = p->of[first].count;
    *from = first * p->granule;
    *to = (first + count) * p->granule;
    return count > 1;
}

bool hdi_mappings_within(const hdi_mappings *p, size_t *from, size_t *to)
{
    size_t g = (*from + p->granule - 1) / p->granule, end = *to / p->granule;
    if (g >= end) {
        return false;
    }
    /* Leaves out a mapping that begins before the area, and a mapping that ends behind the area. */
    size_t first = p->of[g].first - 1, last = p->of[end - 1].first - 1;
    g = first < g ? first + p->of[first].count : g;
    end = last + p->of[last].count > end ? last : end;
    if (g >= end) {
        return false;
    }
    *from = g * p->granule;
    *to = end * p->granule;
    return true;
}

size_t hdi_mappings_last(const hdi_mappings *p, size_t to)
{
    return (p->of[to / p->granule - 1].first - 1) * p->granule;
}

hdi_answer hdi_mappings_unmap(hdi_mappings *p, size_t from, size_t to, size_t *gone_to)
{
    const hdi_target nowhere = {.to = 0};
    size_t none = 0;
    return hdi_mappings_move(p, from, to, gone_to, &nowhere, &none).answer;
}

/* ---- mappings of peers: the caller holds `growing` ------------------------------------------- */

/* The first granule of the first mapping from `g` on; p->end: none. */
static size_t mappings_next(const hdi_mappings *p, size_t g)
{
    while (g < p->end && p->of[g].first == 0) {
        g++;
    }
    return g;
}

/* Gives a device all mappings that it lacks, and all later ones. On failure the device is not
 * granted, but keeps the mappings that it got. */
static hdi_answer mappings_grant(hdi_mappings *p, int device)
{
    hdi_answer answer = {HDCU_SUCCESS, ""};
    for (size_t g = mappings_next(p, 0); g < p->end; g = mappings_next(p, g + p->of[g].count)) {
        if ((p->of[g].shared & hdi_device_bit(device)) == 0) {
            answer = mappings_share_range(p, device, g, p->of[g].count);
            if (!hdi_answered(answer)) {
                return answer;
            }
            p->of[g].shared |= hdi_device_bit(device);
        }
    }
    p->granted |= hdi_device_bit(device);
    return answer;
}

/* Drops a device's grant and all its mappings, without a request. */
static void mappings_revoke(hdi_mappings *p, int device)
{
    for (size_t g = mappings_next(p, 0); g < p->end; g = mappings_next(p, g + p->of[g].count)) {
        p->of[g].shared &= ~hdi_device_bit(device);
    }
    p->granted &= ~hdi_device_bit(device);
}

/* ---- creating, restarting and destroying an arena -------------------------------------------- */

static hd_status arena_fail_set_up(const hdi_arena *arena, hdi_answer answer)
{
    const char *why = hdi_shortage_text();
    return hdi_arena_fail_answer(arena, hdi_arena_status_of(answer), answer,
                                 "the memory of device %d cannot be set up%s%s", arena->config.index, why ? "; " : "",
                                 why ? why : "");
}

/* Sets the granule, the size of the range and the limit. */
static hd_status arena_settle_sizes(hdi_arena *arena)
{
    const hdi_arena_config *config = &arena->config;
    uint64_t total = config->total_bytes, granule = config->granule;
    if (total == 0 || granule == 0) {
        hdi_facts facts;
        hdi_answer answer = config->port->calls->facts(config->port, &facts);
        if (!hdi_answered(answer)) {
            return arena_fail_set_up(arena, answer);
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
    const size_t wanted = config->limit_bytes != 0 ? hdi_smaller(total, config->limit_bytes) : total;
    arena->granule = hdi_larger(granule, wanted >= LARGE_LIMIT ? GRANULE_LARGE : GRANULE_LEAST);
    size_t all = hdi_arena_round_up(total, arena->granule);
    arena->reserved = config->range_bytes != 0 ? hdi_arena_round_up(config->range_bytes, arena->granule)
                                               : (all > SIZE_MAX / 2 / RANGE_TIMES ? all : all * RANGE_TIMES);
    arena->limit = hdi_smaller(all, arena->reserved);
    if (config->limit_bytes != 0) {
        arena->limit = hdi_smaller(arena->limit, hdi_arena_round_down(config->limit_bytes, arena->granule));
    }
    return HD_OK;
}

/* Reserves the range at `address`. If too few addresses are free, this function lowers
 * arena->reserved, down to `least`. */
static hd_status arena_reserve_range(hdi_arena *arena, uint64_t address, size_t least, uint64_t *base)
{
    hdi_port *port = arena->config.port;
    uint64_t at = 0;
    hdi_answer answer = port->calls->reserve(port, address, arena->reserved, &at);
    while (answer.code == HDCU_ERROR_OUT_OF_MEMORY && arena->reserved > least) {
        arena->reserved = hdi_larger(hdi_arena_round_down(arena->reserved / 2, arena->granule), least);
        answer = port->calls->reserve(port, address, arena->reserved, &at);
    }
    if (!hdi_answered(answer)) {
        return arena_fail_set_up(arena, answer);
    }
    if (arena->config.fixed && address != 0 && at != address) {
        port->calls->unreserve(port, at, arena->reserved);
        return hdi_fail(
            HD_ERROR_UNSUPPORTED,
            "the memory of device %d must lie at address 0x%llx in every process, but its %s do not fit there; "
            "try another placement",
            arena->config.index, (unsigned long long)address, HDI_BYTES(arena->reserved));
    }
    *base = at;
    return HD_OK;
}

/* The callback `mapping` of `large`. If the caller holds only blocks_lock, the callback reads only
 * the mappings of free blocks, since mappings under pledges may change meanwhile. */
static bool arena_mapping_of(void *context, size_t offset, size_t *from, size_t *to)
{
    return hdi_mappings_at(context, offset, from, to);
}

/* Makes an allocator over the range, which is one gap. */
static hd_status arena_make_allocator(hdi_arena *arena, size_t wall, hdi_blocks **out)
{
    hdi_blocks_config config = {.limit = arena->reserved,
                                .wall = wall,
                                .mapping = wall == 0 ? arena_mapping_of : NULL,
                                .mapping_context = &arena->mappings,
                                .finished = arena->config.finished,
                                .finished_context = arena->config.finished_context};
    hd_status status = hdi_blocks_create(&config, out);
    return status != HD_OK ? status : hdi_blocks_grow_gap(*out, arena->reserved);
}

static hd_status arena_make_blocks(hdi_arena *arena, hdi_blocks **large, hdi_blocks **small)
{
    hd_status status = arena_make_allocator(arena, 0, large);
    return status != HD_OK ? status : arena_make_allocator(arena, arena->granule, small);
}

static void arena_set_blocks(hdi_arena *arena, hdi_blocks *large, hdi_blocks *small)
{
    arena->large = large;
    arena->small = small;
    arena->large_sums = large != NULL ? hdi_blocks_get_sums(large) : NULL;
    arena->small_sums = small != NULL ? hdi_blocks_get_sums(small) : NULL;
}

static hd_status arena_make_tables(hdi_arena *arena)
{
    const hdi_mappings_config config = {.port = arena->config.port,
                                        .limit = arena->limit,
                                        .index = arena->config.index,
                                        .share = arena->config.share,
                                        .unshare = arena->config.unshare,
                                        .share_context = arena->config.share_context};
    size_t count = arena->reserved / arena->granule;
    arena->is_span = calloc(count + 1, 1);
    if (!mappings_init(&arena->mappings, &config, arena->granule, count) || arena->is_span == NULL) {
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
    hd_status status = arena_settle_sizes(arena);
    if (status == HD_OK) {
        size_t least = config->fixed ? arena->reserved : hdi_larger(arena->limit, arena->granule);
        status = arena_reserve_range(arena, config->address, least, &arena->base);
    }
    if (status == HD_OK) {
        status = arena_make_tables(arena);
    }
    if (status == HD_OK) {
        hdi_blocks *large = NULL, *small = NULL;
        status = arena_make_blocks(arena, &large, &small);
        arena_set_blocks(arena, large, small);
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
    hd_status status = arena_make_blocks(arena, &large, &small);
    if (status == HD_OK) {
        status = arena_reserve_range(arena, address, arena->reserved, &base);
    }
    if (status != HD_OK) {
        hdi_blocks_destroy(large);
        hdi_blocks_destroy(small);
        large = small = NULL;
    }
    hdi_lock_take(&arena->blocks_lock);
    arena->mappings.pieces = 0;
    arena->returned_bytes += arena->mappings.mapped; /* the device took all memory back */
    mappings_forget(&arena->mappings, base);
    hdi_blocks *large_before = arena->large, *small_before = arena->small;
    arena_set_blocks(arena, large, small);
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

hd_status hdi_arena_give_back(hdi_arena *arena)
{
    if (arena == NULL || arena->base == 0 || arena->given_back) {
        return HD_OK;
    }
    hd_status status = HD_OK;
    hdi_port *port = arena->config.port;
    hdi_answer answer = port->calls->unreserve(port, arena->base, arena->reserved);
    if (!hdi_answered(answer)) {
        status = hdi_driver_code_is_fatal(answer.code) ? HD_ERROR_DEVICE_LOST : HD_ERROR_DRIVER;
        hdi_arena_fail_answer(arena, status, answer, "some memory of device %d could not be given back",
                              arena->config.index);
    }
    arena->given_back = true;
    return status;
}

hd_status hdi_arena_destroy(hdi_arena *arena, bool abandoned)
{
    if (arena == NULL) {
        return HD_OK;
    }
    hd_status status = abandoned ? HD_OK : hdi_arena_give_back(arena);
    hdi_blocks_destroy(arena->large);
    hdi_blocks_destroy(arena->small);
    mappings_release(&arena->mappings);
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

bool hdi_arena_overlaps(hdi_arena *arena, uint64_t at, uint64_t bytes)
{
    uint64_t base = hdi_arena_base(arena);
    return base != 0 && at < base + arena->reserved && base < at + bytes;
}

/* ---- peers ----------------------------------------------------------------------------------- */

hd_status hdi_arena_grant(hdi_arena *arena, int peer)
{
    if (peer == arena->config.index) {
        return HD_OK;
    }
    if (peer < 0 || peer >= HDI_PEERS_MAX) {
        return hdi_fail(HD_ERROR_ARGUMENT, "peers: device %d", peer);
    }
    hd_status status = HD_OK;
    hdi_mutex_lock(&arena->growing);
    if (arena->large == NULL) { /* `large` changes under `growing` only */
        status = hdi_arena_fail_empty(arena);
    } else if ((arena->mappings.granted >> peer & 1) == 0) {
        hdi_answer answer = mappings_grant(&arena->mappings, peer);
        if (!hdi_answered(answer)) {
            status = hdi_arena_fail_answer(arena, hdi_arena_status_of(answer), answer,
                                           "peers: the memory of device %d cannot be made accessible to device %d",
                                           arena->config.index, peer);
        }
    }
    hdi_mutex_unlock(&arena->growing);
    return status;
}

void hdi_arena_revoke(hdi_arena *arena, int peer)
{
    if (peer >= 0 && peer < HDI_PEERS_MAX) {
        hdi_mutex_lock(&arena->growing);
        mappings_revoke(&arena->mappings, peer);
        hdi_mutex_unlock(&arena->growing);
    }
}

/* ---- figures --------------------------------------------------------------------------------- */

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

/* The caller holds both locks. */
static void arena_count_blocks(hdi_arena *arena, hdi_arena_info *out)
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
    out->largest_free = hdi_larger(large.largest_free, small.largest_free);
    out->retired_bytes = large.retired_bytes + small.retired_bytes;
}

void hdi_arena_get_info(hdi_arena *arena, hdi_arena_info *out)
{
    *out = (hdi_arena_info){.granule = arena->granule, .reserved_bytes = arena->reserved, .limit_bytes = arena->limit};
    hdi_mutex_lock(&arena->growing);
    out->mapped_bytes = arena->mappings.mapped + arena->mappings.pieces;
    out->pieces_bytes = arena->mappings.pieces;
    out->mapped_peak_bytes = arena->mappings.peak;
    out->driver_calls = arena->mappings.calls;
    out->mapped_total = arena->mappings.mapped_total + arena->pieces_total;
    /* all that was unmapped, but not returned, was mapped again at once */
    out->moved_bytes = arena->mappings.unmapped_total - arena->returned_bytes;
    out->returned_bytes = arena->returned_bytes + arena->pieces_total - arena->mappings.pieces;
    out->ahead_bytes = arena->ahead_bytes;
    hdi_lock_take(&arena->blocks_lock);
    out->taken_peak_bytes = arena->taken_peak;
    out->held_peak_bytes = arena->held_peak;
    out->from_same_lane = arena->n_from[HDI_ORIGIN_SAME_LANE];
    out->from_finished = arena->n_from[HDI_ORIGIN_FINISHED];
    out->from_waited = arena->n_from[HDI_ORIGIN_WAITED];
    out->from_fresh = arena->n_from[HDI_ORIGIN_FRESH];
    if (arena->large != NULL) {
        arena_count_blocks(arena, out);
    }
    hdi_lock_release(&arena->blocks_lock);
    hdi_mutex_unlock(&arena->growing);
}

size_t hdi_arena_waiting_of(hdi_arena *arena, hdi_of_point of, void *context)
{
    size_t bytes = 0;
    hdi_lock_take(&arena->blocks_lock);
    if (arena->large != NULL) {
        bytes = hdi_blocks_waiting_of(arena->large, of, context) + hdi_blocks_waiting_of(arena->small, of, context);
    }
    hdi_lock_release(&arena->blocks_lock);
    return bytes;
}

/* ---- verification: changes nothing ----------------------------------------------------------- */

static bool mappings_check(const hdi_mappings *p, char *why, size_t why_bytes)
{
    size_t mapped = 0;
    for (size_t g = 0; g < p->count;) {
        const hdi_mapping *mapping = &p->of[g];
        if (mapping->first == 0) {
            g++;
            continue;
        }
        if (mapping->first != g + 1 || mapping->count == 0 || g + mapping->count > p->end) {
            snprintf(why, why_bytes, "granule %zu: in a mapping that does not begin there", g);
            return false;
        }
        if ((mapping->shared & p->granted) != p->granted) {
            snprintf(why, why_bytes, "mapping at granule %zu: a granted peer has not been given it", g);
            return false;
        }
        for (size_t i = 1; i < mapping->count; i++) {
            if (p->of[g + i].first != mapping->first) {
                snprintf(why, why_bytes, "granule %zu: not in the mapping that it lies in", g + i);
                return false;
            }
        }
        mapped += mapping->count * p->granule;
        g += mapping->count;
    }
    if (mapped != p->mapped || p->mapped_total - p->unmapped_total != p->mapped) {
        snprintf(why, why_bytes, "mappings of %zu bytes, %zu counted, %llu mapped less unmapped", mapped, p->mapped,
                 (unsigned long long)(p->mapped_total - p->unmapped_total));
        return false;
    }
    return true;
}

/* A walk that checks the gaps and spans of an allocator. */
typedef struct audit {
    const hdi_arena *arena;
    size_t n_spans;
    char *why;
    size_t why_bytes;
} audit;

/* True if mapped memory has no gap in `large`, and every span is one live block there. */
static bool arena_audit_large(void *context, size_t from, size_t to, hdi_block_kind kind)
{
    audit *a = context;
    const hdi_arena *arena = a->arena;
    for (size_t g = from / arena->granule; g * arena->granule < to; g++) {
        bool mapped = arena->mappings.of[g].first != 0;
        bool span = arena->is_span[g] != 0;
        bool is_block = kind == HDI_BLOCK_LIVE && from == g * arena->granule && to == from + arena->granule;
        if (mapped == (kind == HDI_BLOCK_GAP) || kind == HDI_BLOCK_PLEDGED || (span && !is_block)) {
            snprintf(a->why, a->why_bytes, "granule %zu: mapped %d, span %d, in a block of kind %d from %zu to %zu", g,
                     mapped, span, (int)kind, from, to);
            return false;
        }
        a->n_spans += span;
    }
    return true;
}

/* True if `small` has gaps exactly outside the spans. */
static bool arena_audit_small(void *context, size_t from, size_t to, hdi_block_kind kind)
{
    audit *a = context;
    for (size_t g = from / a->arena->granule; g * a->arena->granule < to; g++) {
        if ((a->arena->is_span[g] != 0) == (kind == HDI_BLOCK_GAP)) {
            snprintf(a->why, a->why_bytes, "granule %zu: small blocks of kind %d", g, (int)kind);
            return false;
        }
    }
    return true;
}

static bool arena_check_empty(const hdi_arena *arena, char *why, size_t why_bytes)
{
    bool good = arena->base == 0 && arena->small == NULL && arena->mappings.mapped == 0 && arena->n_spans == 0;
    if (!good) {
        snprintf(why, why_bytes, "an arena without a range: base %llu, mapped %zu", (unsigned long long)arena->base,
                 arena->mappings.mapped);
    }
    return good;
}

/* The caller holds both locks. */
static bool arena_check_all(hdi_arena *arena, char *why, size_t why_bytes)
{
    if (!mappings_check(&arena->mappings, why, why_bytes)) {
        return false;
    }
    if (arena->large == NULL) {
        return arena_check_empty(arena, why, why_bytes);
    }
    audit a = {.arena = arena, .why = why, .why_bytes = why_bytes};
    if (!hdi_blocks_check(arena->large, why, why_bytes) || !hdi_blocks_check(arena->small, why, why_bytes) ||
        !hdi_blocks_each(arena->large, arena_audit_large, &a) ||
        !hdi_blocks_each(arena->small, arena_audit_small, &a)) {
        return false;
    }
    size_t taken = hdi_arena_taken(arena), mapped = arena->mappings.mapped;
    if (a.n_spans != arena->n_spans || mapped + arena->mappings.pieces > arena->limit || taken > mapped ||
        taken > arena->taken_peak || arena->mappings.peak < mapped + arena->mappings.pieces ||
        arena->mappings.peak > arena->limit || arena->mappings.base != arena->base) {
        snprintf(why, why_bytes, "spans %zu of %zu, mapped %zu of %zu, taken %zu of %zu", a.n_spans, arena->n_spans,
                 mapped, arena->limit, taken, arena->taken_peak);
        return false;
    }
    return true;
}

bool hdi_arena_check(hdi_arena *arena, char *why, size_t why_bytes)
{
    hdi_mutex_lock(&arena->growing);
    hdi_lock_take(&arena->blocks_lock);
    bool good = arena_check_all(arena, why, why_bytes);
    hdi_lock_release(&arena->blocks_lock);
    hdi_mutex_unlock(&arena->growing);
    return good;
}
