/* arena_alloc.c - allocation in an arena: which place of the address range a block gets, and which
 * physical memory is mapped and unmapped for the block.
 *
 * An allocation takes a free block of mapped memory. If none fits, the arena grows, in three steps:
 * 1. Under blocks_lock it makes a plan: it pledges the place, and the idle mappings that will move.
 *    No other thread can take a pledged place or mapping.
 * 2. Without blocks_lock it makes its requests to the port: it unmaps first, then maps.
 * 3. Under blocks_lock it finishes the block, or gives everything back.
 *
 * This file also maps memory before a program needs it, and gives memory back.
 *
 * Threads, locks, blocking: see arena.h. While a request runs, its thread uses only `mappings` and
 * the pledges of the plan.
 * Always: see arena_internal.h. After step 1, only a new span for small blocks needs more host
 * memory.
 */
#include <stdio.h>
#include "base/error.h"
#include "base/number.h"
#include "base/text.h"
#include "base/wait.h"
#include "memory/arena_internal.h"

/* Before the arena lets a lane wait for other lanes, it maps up to 5/4 of the peak of taken bytes,
 * plus this many bytes. */
#define SLACK ((size_t)256 << 20)
/* No mapping moves while at most ALWAYS bytes are mapped, if the limit and the driver allow more
 * memory. */
#define ALWAYS ((size_t)64 << 20)
/* Also no mapping moves while the mapped bytes exceed the peak of taken bytes by at most a
 * fortieth. This slack may grow (arena_slack_bytes). */
#define SLACK_PART 40
#define BATCH_MOST ((size_t)16 << 20) /* the most bytes to map at once for small blocks */
#define BATCH_PART 32                 /* at most a thirty-second of the memory of small blocks */
/* The slack grows only once the bytes that lately moved exceed this many times the peak of taken
 * bytes. */
#define MOVED_FREE 8
#define MOVED_HALF_NS INT64_C(10000000000) /* the count of moved bytes is halved after this time */
/* A trim pledges this many bytes at a time, rounded up to whole mappings. Meanwhile other threads
 * can allocate from the remaining idle memory. */
#define TRIM_BATCH ((size_t)256 << 20)

/* A way to serve an allocation. */
typedef struct plan {
    hdi_run place;
    hdi_block *pledge;    /* of the place */
    hdi_block *leaving;   /* pledges of idle mappings, which are moved or unmapped first */
    hdi_points inherited; /* the points to wait for before the first use of the place */
    /* The part of the place below this offset is for one block, so mappings there may span several
     * granules. */
    size_t whole_to;
    size_t lacks; /* bytes to be mapped */
    /* If not empty, this plan makes no block. The arena only divides this mapping at the edges of
     * `place`, and then makes another plan. `leaving` is the pledge of the mapping. */
    hdi_run divides;
    /* For small blocks: the bytes of several granules, of which the request needs only one; else
     * 0. */
    size_t batch;
} plan;

static hd_status arena_fail_host_memory(const hdi_arena *arena, size_t bytes)
{
    return hdi_fail(HD_ERROR_HOST_MEMORY, "no host memory for the bookkeeping of %s on device %d", HDI_BYTES(bytes),
                    arena->config.index);
}

/* ---- mapped memory: the caller holds blocks_lock --------------------------------------------- */

void hdi_arena_note(hdi_arena *arena)
{
    size_t ready = 0, taken = 0;
    if (arena->large != NULL) {
        taken = hdi_arena_taken(arena);
        arena->taken_peak = hdi_larger(arena->taken_peak, taken);
        arena->held_peak = hdi_larger(arena->held_peak, taken + arena->mappings.pieces);
        ready = hdi_blocks_ready_bytes(arena->large_sums) + hdi_blocks_ready_bytes(arena->small_sums);
    }
    atomic_store_explicit(&arena->ready, ready, memory_order_relaxed);
    atomic_store_explicit(&arena->taken, taken, memory_order_relaxed);
}

/* Turns a live block of `large` into a span of `small`, and releases `inherited`. On failure
 * (HOST_MEMORY, no message) the block is free again. */
static hd_status arena_make_span(hdi_arena *arena, size_t offset, bool fresh, hdi_points *inherited)
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

/* Gives free spans back to `large`, until only `keep` free spans are left. */
static void arena_return_spans(hdi_arena *arena, size_t keep)
{
    /* A span without unfinished uses goes first. */
    const hdi_blocks_request whole = {.bytes = arena->granule, .lane = HDI_NO_LANE};
    while (hdi_blocks_whole(arena->small) > keep) {
        hdi_blocks_taken span;
        if (hdi_blocks_take(arena->small, &whole, &span) != HD_OK) {
            return; /* no host memory: the span stays with `small` */
        }
        hdi_blocks_drop(arena->small, span.offset);
        arena->is_span[span.offset / arena->granule] = 0;
        arena->n_spans--;
        hdi_blocks_free(arena->large, span.offset, hdi_points_data(&span.inherited), span.inherited.count);
        hdi_points_release(&span.inherited);
    }
}

static hd_status arena_take_small(hdi_arena *arena, const hdi_blocks_request *request, hdi_blocks_taken *out)
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
        status = arena_make_span(arena, span.offset, span.origin == HDI_ORIGIN_FRESH, &span.inherited);
    }
    if (status == HD_OK) {
        return hdi_blocks_take(arena->small, request, out);
    }
    out->origin = would_wait ? HDI_ORIGIN_WAITED : HDI_ORIGIN_NONE;
    return status;
}

/* Takes a block from mapped memory. NOT_FOUND and HOST_MEMORY record no message. */
static hd_status arena_take_block(hdi_arena *arena, const hdi_blocks_request *request, hdi_blocks_taken *out)
{
    hd_status status = request->bytes <= HDI_SMALL_BYTES ? arena_take_small(arena, request, out)
                                                         : hdi_blocks_take(arena->large, request, out);
    if (status == HD_OK) {
        arena->n_from[out->origin]++;
    }
    return status;
}

/* ---- idle mappings: the caller holds both locks ---------------------------------------------- */

typedef struct pick {
    const hdi_mappings *mappings;
    size_t wanted, got; /* bytes */
} pick;

/* Chooses whole mappings, from the end of the block backwards, until `wanted` bytes are chosen. */
static hdi_choice arena_pick_mappings(void *context, size_t *from, size_t *to)
{
    pick *p = context;
    if (p->got >= p->wanted) {
        return HDI_CHOICE_STOP;
    }
    if (!hdi_mappings_within(p->mappings, from, to)) {
        return HDI_CHOICE_SKIP;
    }
    size_t start = *to;
    while (start > *from && *to - start < p->wanted - p->got) {
        start = hdi_mappings_last(p->mappings, start);
    }
    *from = start;
    p->got += *to - *from;
    return HDI_CHOICE_TAKE;
}

static hdi_choice arena_count_mappings(void *context, size_t *from, size_t *to)
{
    pick *p = context;
    p->got += hdi_mappings_within(p->mappings, from, to) ? *to - *from : 0;
    return HDI_CHOICE_SKIP;
}

size_t hdi_arena_idle(hdi_arena *arena)
{
    pick p = {.mappings = &arena->mappings};
    hdi_block *none = NULL;
    hdi_blocks_pledge_finished(arena->large, arena->granule, false, arena_count_mappings, &p, &none);
    return p.got;
}

/* Gives a list of pledges back: unmapped memory becomes a gap, and mapped memory becomes free.
 * `last`: the first pledge that is not wholly unmapped; only its memory below `gone_to` is
 * unmapped. All pledges behind `last` are still mapped. If `last` is NULL, all pledges of the list
 * are unmapped. */
static void arena_vacate_pledges(hdi_arena *arena, hdi_block *list, const hdi_block *last, size_t gone_to)
{
    bool gone = list != last;
    while (list != NULL) {
        size_t from, to;
        hdi_blocks_pledged(list, &from, &to);
        if (list == last) {
            list = hdi_blocks_vacate(arena->large, list, gone_to);
            gone = false;
        } else {
            list = hdi_blocks_vacate(arena->large, list, gone ? to : from);
        }
    }
}

/* Unmaps the memory of a list of pledges, up to the first failure, and moves it to the unmapped
 * parts of a place. *mapped_to: the place is mapped up to this offset. *last: the pledge that
 * failed, unmapped below *gone_to; NULL: none. Adds the unmapped bytes to *counter. The caller
 * holds `growing`, and not blocks_lock. */
static hdi_trouble arena_unmap_list(hdi_arena *arena, hdi_block *list, hdi_block **last, size_t *gone_to,
                                    size_t *mapped_to, const hdi_target *into, uint64_t *counter)
{
    hdi_trouble t = {.peer = -1};
    *last = NULL;
    *gone_to = 0;
    for (hdi_block *pledge = list, *next; pledge != NULL; pledge = next) {
        size_t from, to;
        next = hdi_blocks_pledged(pledge, &from, &to);
        t = hdi_mappings_move(&arena->mappings, from, to, gone_to, into, mapped_to);
        *counter += *gone_to - from;
        if (hdi_is_trouble(t)) {
            *last = pledge;
            break;
        }
    }
    return t;
}

/* ---- plans: the caller holds both locks ------------------------------------------------------ */

static void arena_plan_drop(hdi_arena *arena, plan *p)
{
    arena_vacate_pledges(arena, p->leaving, p->leaving, 0);
    hdi_blocks_settle(arena->large, p->pledge, p->place.to, p->place.from);
    hdi_points_release(&p->inherited);
}

/* Makes a plan for a place: pledges the place, and idle mappings that will move. If the place would
 * raise the mapped bytes above `target`, idle mappings make up for the excess, as far as they
 * suffice. NOT_FOUND: more than `bound` would be mapped. */
static hd_status arena_plan_try_place(hdi_arena *arena, const hdi_run *place, size_t target, size_t bound, plan *out)
{
    plan p = {.place = *place};
    if (hdi_blocks_pledge_run(arena->large, place, &p.inherited, &p.pledge) != HD_OK) {
        return HD_ERROR_HOST_MEMORY;
    }
    p.lacks = hdi_mappings_missing(&arena->mappings, place->from, place->to);
    size_t mapped = arena->mappings.mapped + p.lacks;
    pick idle = {.mappings = &arena->mappings, .wanted = mapped > target ? hdi_smaller(p.lacks, mapped - target) : 0};
    hd_status status = HD_OK;
    if (idle.wanted != 0) {
        status =
            hdi_blocks_pledge_finished(arena->large, arena->granule, false, arena_pick_mappings, &idle, &p.leaving);
    }
    if (status == HD_OK && mapped - idle.got > bound) {
        status = HD_ERROR_NOT_FOUND;
    }
    if (status == HD_OK) {
        *out = p;
    } else {
        arena_plan_drop(arena, &p);
    }
    return status;
}

/* Finds the place that lacks the fewest bytes. False: none exists. */
static bool arena_find_place(hdi_arena *arena, const hdi_blocks_request *request, hdi_run *place)
{
    hdi_run other;
    bool found = hdi_blocks_find_run(arena->large, request, arena->granule, NULL, place);
    if ((!found || place->lacks != 0) && hdi_blocks_find_free(arena->large, request, &other) &&
        (!found || other.lacks < place->lacks)) {
        *place = other;
        found = true;
    }
    return found;
}

/* Finds the place that would lack the fewest bytes if all idle mappings were unmapped. Serves as a
 * last resort when arena_find_place found no place that the limit allows. */
static bool arena_find_place_without_idle(hdi_arena *arena, const hdi_blocks_request *request, hdi_run *place)
{
    pick all = {.mappings = &arena->mappings, .wanted = SIZE_MAX};
    hdi_block *idle = NULL;
    bool found =
        hdi_blocks_pledge_finished(arena->large, arena->granule, false, arena_pick_mappings, &all, &idle) == HD_OK &&
        idle != NULL && hdi_blocks_find_run(arena->large, request, arena->granule, idle, place);
    arena_vacate_pledges(arena, idle, idle, 0);
    return found;
}

static hdi_choice arena_pick_one_mapping(void *context, size_t *from, size_t *to)
{
    const hdi_run *one = context;
    if (one->from < *from || one->to > *to) {
        return HDI_CHOICE_SKIP;
    }
    *from = one->from;
    *to = one->to;
    return HDI_CHOICE_TAKE;
}

/* As arena_plan_try_place, unless the block would take only a part of an unused mapping. In that
 * case the plan unmaps the mapping, and maps the same addresses again, divided at the edges of the
 * block. Then the block keeps only the granules that it touches. */
static hd_status arena_plan_place(hdi_arena *arena, const hdi_run *place, size_t bytes, size_t target, size_t bound,
                                  plan *out)
{
    hdi_run whole = {.lacks = 0};
    if (!hdi_blocks_divided(arena->large, place, bytes, &whole.from, &whole.to)) {
        hd_status status = arena_plan_try_place(arena, place, target, bound, out);
        out->whole_to = hdi_arena_round_down(place->from + bytes, arena->granule);
        return status;
    }
    size_t mapped = arena->mappings.mapped + hdi_mappings_missing(&arena->mappings, place->from, place->to);
    if (mapped > bound && mapped - bound > hdi_arena_idle(arena)) {
        return HD_ERROR_NOT_FOUND;
    }
    *out = (plan){.divides = whole, .place = {.from = place->from, .to = place->from + bytes}};
    hd_status status =
        hdi_blocks_pledge_finished(arena->large, arena->granule, false, arena_pick_one_mapping, &whole, &out->leaving);
    /* If `leaving` is empty, the free parts of the mapping have not joined yet, so the mapping
     * cannot be divided. */
    return status == HD_OK && out->leaving == NULL ? HD_ERROR_NOT_FOUND : status;
}

/* The number of bytes by which the mapped bytes may exceed `ever` before a mapping moves. `ever` is
 * the peak of taken bytes, including the request. The result is a fortieth of `ever`. Once the
 * bytes that moved lately exceed MOVED_FREE * ever, each further multiple of `ever` adds a
 * fortieth, up to a quarter. So a program whose free blocks are too small for its requests uses
 * more memory, and spends less time on moves. The caller holds `growing`. */
static size_t arena_slack_bytes(hdi_arena *arena, size_t ever)
{
    int64_t now = hdi_clock_ns();
    for (; now - arena->moved_since >= MOVED_HALF_NS && arena->moved_lately != 0; arena->moved_since += MOVED_HALF_NS) {
        arena->moved_lately /= 2;
    }
    arena->moved_since = arena->moved_lately == 0 ? now : arena->moved_since;
    uint64_t times = ever != 0 ? arena->moved_lately / ever : 0;
    uint64_t parts = times > MOVED_FREE ? 1 + times - MOVED_FREE : 1;
    return hdi_smaller(ever / SLACK_PART * (size_t)(parts < SLACK_PART / 4 ? parts : SLACK_PART / 4), ever / 4);
}

/* Plans to map several granules for small blocks at once. A small block needs only one granule. But
 * if every granule needed a request of its own, all threads of a growing program would wait for
 * these requests. The place must be entirely unmapped. Its size is a small fraction of the memory
 * that small blocks already occupy. NOT_FOUND: no such place. */
static hd_status arena_plan_batch(hdi_arena *arena, uint32_t lane, size_t ceiling, plan *out)
{
    size_t mapped = arena->mappings.mapped;
    size_t bytes = hdi_smaller(arena->n_spans * arena->granule / BATCH_PART, BATCH_MOST);
    bytes = hdi_arena_round_down(hdi_smaller(bytes, ceiling > mapped ? ceiling - mapped : 0), arena->granule);
    hdi_blocks_request many = {.bytes = bytes, .alignment = arena->granule, .lane = lane, .no_wait = true};
    hdi_run place;
    if (bytes <= arena->granule || !hdi_blocks_find_run(arena->large, &many, arena->granule, NULL, &place) ||
        hdi_mappings_missing(&arena->mappings, place.from, place.to) != place.to - place.from) {
        return HD_ERROR_NOT_FOUND;
    }
    hd_status status = arena_plan_try_place(arena, &place, ceiling, ceiling, out);
    if (status == HD_OK) {
        out->batch = bytes;
    }
    return status;
}

/* Chooses the place for the block of a request. NOT_FOUND: no place exists, or it is not worth the
 * memory.
 * - `request`: the request to `large`, which for a small block is one granule.
 * - request.divide: the block may also take a part of a larger free mapping that work still uses.
 *   Only a second attempt sets it.
 * - `many`: a small block may get more granules than it needs, for later small blocks.
 * - `ceiling`: the most bytes that may be mapped.
 * - `would_wait`: a mapped block fits, but another lane still uses it. */
static hd_status arena_plan_make(hdi_arena *arena, hdi_blocks_request request, bool would_wait, bool many,
                                 size_t ceiling, plan *out)
{
    const size_t taken = hdi_arena_taken(arena) + hdi_arena_round_up(request.bytes, HDI_BLOCKS_GRANULE);
    const size_t ever = hdi_larger(taken, arena->taken_peak);
    const size_t target = hdi_smaller(ceiling, hdi_larger(ever + arena_slack_bytes(arena, ever), ALWAYS));
    const size_t loose = hdi_smaller(ceiling, ever + ever / 4 + SLACK);
    hdi_run place;
    if (many) {
        hd_status status = arena_plan_batch(arena, request.lane, loose, out);
        if (status != HD_ERROR_NOT_FOUND) {
            return status;
        }
    }
    request.no_wait = true;
    if (arena_find_place(arena, &request, &place)) {
        hd_status status = arena_plan_place(arena, &place, request.bytes, target, loose, out);
        if (status != HD_ERROR_NOT_FOUND) {
            return status;
        }
    }
    if (would_wait) {
        return HD_ERROR_NOT_FOUND;
    }
    request.no_wait = false;
    if (arena_find_place(arena, &request, &place)) {
        hd_status status = arena_plan_place(arena, &place, request.bytes, target, ceiling, out);
        if (status != HD_ERROR_NOT_FOUND) {
            return status;
        }
    }
    return arena_find_place_without_idle(arena, &request, &place)
               ? arena_plan_place(arena, &place, request.bytes, target, ceiling, out)
               : HD_ERROR_NOT_FOUND;
}

/* ---- growing: the caller holds `growing` ----------------------------------------------------- */

/* Reports that no device memory is left for an allocation. `answer`: the port's refusal, or success
 * if the port got no request. The caller holds `growing`. */
static hd_status arena_fail_full(hdi_arena *arena, size_t bytes, hdi_answer answer)
{
    hdi_blocks_info large, small;
    hdi_lock_take(&arena->blocks_lock);
    hdi_blocks_prune(arena->large);
    hdi_blocks_prune(arena->small);
    hdi_blocks_get_info(arena->large, &large);
    hdi_blocks_get_info(arena->small, &small);
    size_t taken = hdi_arena_taken(arena), held = arena->mappings.mapped;
    size_t movable = taken + hdi_arena_idle(arena) + large.waiting_bytes + small.waiting_bytes;
    hdi_lock_release(&arena->blocks_lock);

    bool asked = !hdi_answered(answer);
    hd_status status = asked ? hdi_arena_status_of(answer) : HD_ERROR_MEMORY;
    hd_error error = hdi_error_blank(status);
    snprintf(error.message, sizeof error.message,
             "%s on device %d: %s of at most %s are held, %s in use, %s kept by blocks, "
             "largest free block %s",
             HDI_BYTES(bytes), arena->config.index, HDI_BYTES(held + arena->mappings.pieces), HDI_BYTES(arena->limit),
             HDI_BYTES(taken + arena->mappings.pieces), HDI_BYTES(held > movable ? held - movable : 0),
             HDI_BYTES(hdi_larger(large.largest_free, small.largest_free)));
    if (asked) {
        return hdi_arena_fail_answer(arena, status, answer, "%s", error.message);
    }
    error.device = arena->config.index;
    snprintf(error.operation, sizeof error.operation, "alloc");
    return hdi_fail_error(&error);
}

/* Reports that new memory could not be shared with a peer that was granted access to this device's
 * memory. */
static hd_status arena_fail_share(const hdi_arena *arena, size_t bytes, hdi_trouble t)
{
    return hdi_arena_fail_answer(arena, hdi_arena_status_of(t.answer), t.answer,
                                 "%s on device %d: new memory cannot be shared with device %d, which "
                                 "uses this device's memory",
                                 HDI_BYTES(bytes), arena->config.index, t.peer);
}

/* The origin of a block that a plan made. */
static hdi_origin arena_plan_origin(const plan *p, uint32_t lane)
{
    if (p->lacks != 0 || p->inherited.count == 0) {
        return p->lacks != 0 ? HDI_ORIGIN_FRESH : HDI_ORIGIN_FINISHED;
    }
    bool own = p->inherited.count == 1 && hdi_points_data(&p->inherited)->lane == lane;
    return own ? HDI_ORIGIN_SAME_LANE : HDI_ORIGIN_WAITED;
}

/* Makes the block of a plan. All memory of the place is mapped. The caller holds both locks. */
static hd_status arena_plan_finish(hdi_arena *arena, plan *p, const hdi_blocks_request *request, hdi_blocks_taken *out)
{
    out->origin = arena_plan_origin(p, request->lane);
    out->offset = p->place.from;
    out->inherited = p->inherited;
    if (request->bytes > HDI_SMALL_BYTES) {
        hdi_blocks_finish(arena->large, p->pledge, p->place.to, request->bytes);
        arena->n_from[out->origin]++;
        return HD_OK;
    }
    hdi_blocks_finish(arena->large, p->pledge, p->place.to, arena->granule);
    hd_status status = arena_make_span(arena, p->place.from, true, &p->inherited);
    if (status == HD_OK) {
        status = hdi_blocks_take(arena->small, request, out);
        arena->n_from[out->origin] += status == HD_OK;
    }
    return status;
}

/* Maps an unmapped area of which a block will use a part. The granules that lie wholly inside the
 * block share one mapping. The granules in front of the block share a second mapping, and the
 * granules behind the block share a third. A granule that the block uses only partly gets a mapping
 * of its own. *mapped_to: the area is mapped below this offset. */
static hdi_trouble arena_map_around(hdi_arena *arena, const hdi_run *area, const hdi_run *block, size_t *mapped_to)
{
    const size_t granule = arena->granule;
    const size_t ends[] = {hdi_arena_round_down(block->from, granule), hdi_arena_round_up(block->from, granule),
                           hdi_arena_round_down(block->to, granule), hdi_arena_round_up(block->to, granule), area->to};
    hdi_trouble t = {.peer = -1};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0] && !hdi_is_trouble(t); i++) {
        size_t end = hdi_smaller(ends[i], area->to);
        if (end > *mapped_to) {
            t = hdi_mappings_map_one(&arena->mappings, *mapped_to, end);
            *mapped_to = hdi_is_trouble(t) ? *mapped_to : end;
        }
    }
    return t;
}

/* Divides a mapping at the edges of the place of a block. On failure the mapping is unmapped. The
 * caller holds `growing`. */
static hdi_trouble arena_plan_divide_mapping(hdi_arena *arena, const plan *p)
{
    const hdi_run *whole = &p->divides;
    hdi_trouble t = {.peer = -1};
    size_t gone_to = whole->to, mapped_to = whole->from;
    t.answer = hdi_mappings_unmap(&arena->mappings, whole->from, whole->to, &gone_to);
    if (!hdi_is_trouble(t)) {
        t = arena_map_around(arena, whole, &p->place, &mapped_to);
        if (hdi_is_trouble(t)) {
            hdi_mappings_unmap(&arena->mappings, whole->from, mapped_to, &gone_to);
        }
    }
    hdi_lock_take(&arena->blocks_lock);
    hdi_blocks_vacate(arena->large, p->leaving, hdi_is_trouble(t) ? whole->to : whole->from);
    hdi_arena_note(arena);
    hdi_lock_release(&arena->blocks_lock);
    return t;
}

/* Carries a plan out. On failure the former state returns, except for the mappings that the plan
 * should move or map: each of these is free or unmapped afterwards. The caller holds `growing`. */
static hd_status arena_plan_carry_out(hdi_arena *arena, plan *p, const hdi_blocks_request *request,
                                      hdi_blocks_taken *out, hdi_trouble *t)
{
    hdi_block *last = NULL;
    size_t gone_to = 0, mapped_to = p->place.from;
    *t = (hdi_trouble){.peer = -1};
    if (p->divides.to != 0) {
        *t = arena_plan_divide_mapping(arena, p);
        return HD_OK;
    }
    uint64_t before = arena->moved_bytes;
    const hdi_target into = {.to = p->place.to, .whole_to = hdi_smaller(p->place.to, p->whole_to)};
    *t = arena_unmap_list(arena, p->leaving, &last, &gone_to, &mapped_to, &into, &arena->moved_bytes);
    arena->moved_lately += arena->moved_bytes - before;
    if (!hdi_is_trouble(*t)) {
        *t = hdi_mappings_map(&arena->mappings, p->place.from, p->place.to, p->whole_to, &mapped_to);
    }
    hd_status status = HD_OK;
    hdi_lock_take(&arena->blocks_lock);
    arena_vacate_pledges(arena, p->leaving, last, gone_to);
    if (hdi_is_trouble(*t)) {
        hdi_blocks_settle(arena->large, p->pledge, p->place.to, hdi_larger(mapped_to, p->place.from));
        hdi_points_release(&p->inherited);
    } else {
        status = arena_plan_finish(arena, p, request, out);
    }
    hdi_arena_note(arena);
    hdi_lock_release(&arena->blocks_lock);
    return status;
}

/* Takes a block of mapped memory that no other lane still uses. If none fits, tries to make a plan,
 * and only then takes a block that other lanes still use. After a plan was made, out->origin is
 * NONE. The caller holds both locks. */
static hd_status arena_take_or_plan(hdi_arena *arena, const hdi_blocks_request *request, bool many, size_t ceiling,
                                    hdi_blocks_taken *out, plan *p)
{
    const bool span = request->bytes <= HDI_SMALL_BYTES;
    hdi_blocks_request wanted = *request, place = *request;
    place.bytes = span ? arena->granule : request->bytes;
    place.alignment = span ? arena->granule : 0;
    if (!span) {
        hdi_blocks_join_whole(arena->small);
        arena_return_spans(arena, 0);
    }
    if (span) {
        hdi_blocks_prune(arena->small);
    }
    hdi_blocks_prune(arena->large); /* so that the free parts of a mapping join */
    wanted.no_wait = true;
    /* This attempt may succeed, because blocks may just have joined. Other threads may also have
     * freed and mapped memory while this thread waited for `growing`. */
    hd_status status = arena_take_block(arena, &wanted, out);
    bool would_wait = out->origin == HDI_ORIGIN_WAITED;
    wanted.no_wait = false;
    for (int last = 0; last < 2 && status == HD_ERROR_NOT_FOUND; last++) {
        wanted.divide = place.divide = last;
        out->origin = HDI_ORIGIN_NONE;
        status = place.bytes <= arena->reserved ? arena_plan_make(arena, place, would_wait, span && many, ceiling, p)
                                                : HD_ERROR_NOT_FOUND;
        if (status == HD_ERROR_NOT_FOUND) {
            status = arena_take_block(arena, &wanted, out);
        }
    }
    if (status == HD_ERROR_NOT_FOUND && span) {
        /* As a last resort, a small block gets memory between large blocks. */
        status = hdi_blocks_take(arena->large, &wanted, out);
        arena->n_from[out->origin] += status == HD_OK;
    }
    return status;
}

/* Serves an allocation that fits in no free mapped memory. The caller holds `growing`. */
static hd_status arena_grow(hdi_arena *arena, uint32_t lane, size_t bytes, hdcu_deviceptr *out, hdi_points *inherited)
{
    const hdi_blocks_request request = {.bytes = bytes, .lane = lane};
    size_t ceiling = arena->limit - arena->mappings.pieces;
    bool many = true;
    hdi_answer refused = {HDCU_SUCCESS, ""};
    for (;;) {
        if (arena->large == NULL) { /* `large` changes under `growing` only */
            return hdi_arena_fail_empty(arena);
        }
        plan p = {.batch = 0};
        hdi_blocks_taken taken;
        hdi_trouble t = {.peer = -1};
        hdi_lock_take(&arena->blocks_lock);
        hd_status status = arena_take_or_plan(arena, &request, many, ceiling, &taken, &p);
        hdi_arena_note(arena);
        hdi_lock_release(&arena->blocks_lock);
        if (status == HD_OK && taken.origin == HDI_ORIGIN_NONE) {
            status = arena_plan_carry_out(arena, &p, &request, &taken, &t);
        }
        if (status == HD_ERROR_HOST_MEMORY) {
            return arena_fail_host_memory(arena, bytes);
        }
        if (status == HD_ERROR_NOT_FOUND) {
            return arena_fail_full(arena, bytes, refused);
        }
        if (!hdi_is_trouble(t) && p.divides.to != 0) {
            continue;
        }
        if (!hdi_is_trouble(t)) {
            *out = arena->base + taken.offset;
            *inherited = taken.inherited;
            return HD_OK;
        }
        if (t.peer >= 0) {
            return arena_fail_share(arena, bytes, t);
        }
        if (t.answer.code != HDCU_ERROR_OUT_OF_MEMORY) {
            return arena_fail_full(arena, bytes, t.answer);
        }
        if (p.batch != 0) {
            many = false; /* one granule may still be free */
            continue;
        }
        /* The device can give no more memory than is mapped now. Idle mappings can still move, and
         * lanes can wait. */
        refused = t.answer;
        ceiling = arena->mappings.mapped;
    }
}

/* ---- allocation and free --------------------------------------------------------------------- */

/* Takes a block of free mapped memory. NOT_FOUND records no message. */
static hd_status arena_alloc_mapped(hdi_arena *arena, uint32_t lane, size_t bytes, hdcu_deviceptr *out,
                                    hdi_points *inherited)
{
    const hdi_blocks_request request = {.bytes = bytes, .lane = lane, .no_wait = true};
    hdi_blocks_taken taken;
    hdi_lock_take(&arena->blocks_lock);
    bool empty = arena->large == NULL;
    hd_status status = empty ? HD_ERROR_DEVICE_LOST : arena_take_block(arena, &request, &taken);
    if (status == HD_OK) {
        *out = arena->base + taken.offset;
        *inherited = taken.inherited;
        hdi_arena_note(arena);
    }
    hdi_lock_release(&arena->blocks_lock);
    if (empty) {
        return hdi_arena_fail_empty(arena);
    }
    return status == HD_ERROR_HOST_MEMORY ? arena_fail_host_memory(arena, bytes) : status;
}

hd_status hdi_arena_alloc(hdi_arena *arena, uint32_t lane, size_t bytes, hdcu_deviceptr *out, hdi_points *inherited)
{
    if (bytes == 0) {
        return hdi_fail(HD_ERROR_ARGUMENT, "a block of 0 bytes");
    }
    hd_status status = arena_alloc_mapped(arena, lane, bytes, out, inherited);
    if (status == HD_ERROR_NOT_FOUND && arena->config.relieve != NULL &&
        arena->config.relieve(arena->config.relieve_context)) {
        status = arena_alloc_mapped(arena, lane, bytes, out, inherited);
    }
    if (status == HD_ERROR_NOT_FOUND) {
        hdi_mutex_lock(&arena->growing);
        status = arena_grow(arena, lane, bytes, out, inherited);
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
    while (n < count && arena->large != NULL && arena_take_block(arena, &request, &taken) == HD_OK) {
        out[n] = arena->base + taken.offset;
        inherited[n] = taken.inherited;
        /* the block goes into a magazine, and counts only when it leaves that magazine */
        arena->n_from[taken.origin]--;
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
                arena_return_spans(arena, HDI_SPARE_SPANS);
            }
            hdi_arena_note(arena);
            atomic_fetch_add_explicit(&arena->freed, 1, memory_order_release);
        }
    }
    hdi_lock_release(&arena->blocks_lock);
}

/* ---- mapping ahead of need, and giving back -------------------------------------------------- */

/* The caller holds `growing`. */
static hd_status arena_map_ahead(hdi_arena *arena, size_t bytes, size_t *grown)
{
    if (arena->large == NULL) {
        return hdi_arena_fail_empty(arena);
    }
    size_t more = hdi_smaller(hdi_arena_round_up(bytes, arena->granule),
                              arena->limit - arena->mappings.pieces - arena->mappings.mapped);
    hdi_run place;
    hdi_block *pledge = NULL;
    hdi_points none;
    hd_status status = HD_ERROR_NOT_FOUND;
    hdi_lock_take(&arena->blocks_lock);
    if (more != 0 && hdi_blocks_find_gap(arena->large, more, &place)) {
        place.to = hdi_smaller(place.to, place.from + more);
        status = hdi_blocks_pledge_run(arena->large, &place, &none, &pledge);
    }
    hdi_lock_release(&arena->blocks_lock);
    if (status != HD_OK) {
        return status == HD_ERROR_NOT_FOUND ? HD_OK : arena_fail_host_memory(arena, bytes);
    }
    size_t mapped_to = place.from;
    hdi_trouble t = hdi_mappings_map(&arena->mappings, place.from, place.to, 0, &mapped_to);
    hdi_lock_take(&arena->blocks_lock);
    hdi_blocks_settle(arena->large, pledge, place.to, mapped_to);
    hdi_arena_note(arena);
    hdi_lock_release(&arena->blocks_lock);
    *grown = mapped_to - place.from;
    arena->ahead_bytes += *grown;
    if (!hdi_is_trouble(t)) {
        return HD_OK;
    }
    return t.peer >= 0 ? arena_fail_share(arena, bytes, t) : arena_fail_full(arena, bytes, t.answer);
}

/* Sets the bytes of all pieces. The caller holds `growing`. */
static void arena_set_pieces(hdi_arena *arena, size_t bytes)
{
    hdi_lock_take(&arena->blocks_lock);
    arena->mappings.pieces = bytes;
    arena->mappings.peak = hdi_larger(arena->mappings.peak, bytes + arena->mappings.mapped);
    hdi_arena_note(arena);
    hdi_lock_release(&arena->blocks_lock);
}

/* Counts a piece of `bytes` if the limit allows it. False: *lacks is the number of bytes to unmap
 * first. */
static bool arena_admit_piece(hdi_arena *arena, size_t bytes, size_t *lacks)
{
    hdi_mutex_lock(&arena->growing);
    size_t held = arena->mappings.pieces + arena->mappings.mapped;
    bool fits = bytes <= arena->limit && held <= arena->limit - bytes;
    if (fits) {
        arena_set_pieces(arena, arena->mappings.pieces + bytes);
        arena->pieces_total += bytes;
    }
    *lacks = fits ? 0 : held + bytes - arena->limit;
    hdi_mutex_unlock(&arena->growing);
    return fits;
}

hd_status hdi_arena_count_piece(hdi_arena *arena, size_t bytes)
{
    size_t lacks, got = 1;
    hd_status status = HD_OK;
    bool fits = arena_admit_piece(arena, bytes, &lacks);
    while (!fits && !status && got != 0 && bytes <= arena->limit) {
        status = hdi_arena_trim(arena, 0, lacks, &got);
        fits = status == HD_OK && arena_admit_piece(arena, bytes, &lacks);
    }
    if (fits || status) {
        return status;
    }
    hdi_mutex_lock(&arena->growing);
    status = arena->large == NULL ? hdi_arena_fail_empty(arena)
                                  : arena_fail_full(arena, bytes, (hdi_answer){HDCU_SUCCESS, ""});
    hdi_mutex_unlock(&arena->growing);
    return status;
}

void hdi_arena_uncount_piece(hdi_arena *arena, size_t bytes, bool used)
{
    hdi_mutex_lock(&arena->growing);
    /* After a restart, fewer bytes may be counted, since a restart drops all pieces. */
    arena_set_pieces(arena, arena->mappings.pieces - hdi_smaller(bytes, arena->mappings.pieces));
    arena->pieces_total -= used ? 0 : bytes; /* the piece was never made */
    hdi_mutex_unlock(&arena->growing);
    if (used) {
        atomic_fetch_add_explicit(&arena->freed, 1, memory_order_release);
    }
}

hd_status hdi_arena_grow_ahead(hdi_arena *arena, size_t bytes, size_t *grown)
{
    size_t more = 0;
    hdi_mutex_lock(&arena->growing);
    hd_status status = arena_map_ahead(arena, bytes, &more);
    hdi_mutex_unlock(&arena->growing);
    if (grown != NULL) {
        *grown = more;
    }
    return status;
}

/* Unmaps idle mappings while more than `keep` bytes are idle, up to TRIM_BATCH and `most` bytes.
 * The last mapping may exceed these bounds. *got: the bytes unmapped. The caller holds
 * `growing`. */
static hd_status arena_trim_some(hdi_arena *arena, size_t keep, size_t most, size_t *got)
{
    pick p = {.mappings = &arena->mappings};
    hdi_block *leaving = NULL, *last;
    hd_status status = HD_OK;
    hdi_lock_take(&arena->blocks_lock);
    if (arena->large != NULL) {
        hdi_blocks_prune(arena->small);
        arena_return_spans(arena, 0);
        size_t idle = hdi_arena_idle(arena);
        p.wanted = idle > keep ? hdi_smaller(hdi_smaller(idle - keep, most), TRIM_BATCH) : 0;
        status = hdi_blocks_pledge_finished(arena->large, arena->granule, true, arena_pick_mappings, &p, &leaving);
        hdi_arena_note(arena);
    }
    hdi_lock_release(&arena->blocks_lock);

    size_t gone_to, none = 0;
    uint64_t returned = 0;
    const hdi_target nowhere = {.to = 0};
    hdi_answer answer = arena_unmap_list(arena, leaving, &last, &gone_to, &none, &nowhere, &returned).answer;
    if (leaving != NULL) {
        hdi_lock_take(&arena->blocks_lock);
        arena_vacate_pledges(arena, leaving, last, gone_to);
        hdi_arena_note(arena);
        hdi_lock_release(&arena->blocks_lock);
        atomic_fetch_add_explicit(&arena->freed, 1, memory_order_release);
    }
    arena->returned_bytes += returned;
    *got = (size_t)returned;
    if (!hdi_answered(answer)) {
        status = hdi_driver_code_is_fatal(answer.code) ? HD_ERROR_DEVICE_LOST : HD_ERROR_DRIVER;
        hdi_arena_fail_answer(arena, status, answer, "memory of device %d could not be given back",
                              arena->config.index);
    }
    /* If host memory ran out, fewer mappings were pledged. The pledged mappings are unmapped, so
     * the trim succeeded. */
    return status == HD_ERROR_HOST_MEMORY ? HD_OK : status;
}

hd_status hdi_arena_trim(hdi_arena *arena, size_t keep_bytes, size_t most_bytes, size_t *returned)
{
    size_t sum = 0, got = 0;
    hd_status status;
    do { /* between the rounds, other threads may map memory */
        hdi_mutex_lock(&arena->growing);
        status = arena_trim_some(arena, keep_bytes, most_bytes - sum, &got);
        hdi_mutex_unlock(&arena->growing);
        sum += got;
    } while (status == HD_OK && got != 0 && sum < most_bytes);
    if (returned != NULL) {
        *returned = sum;
    }
    return status;
}
