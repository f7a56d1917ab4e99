/* arena_grow.c - where physical memory comes from and where it goes: places that lack some, idle mappings that move
 * there, memory mapped ahead of need, memory given back.
 *
 * An allocation that grows works in three steps. Under blocks_lock it makes a plan: claims the place, and the idle
 * mappings that are to move, so that nobody else can have either. Without blocks_lock it asks the port: first unmaps,
 * then maps. Under blocks_lock again it finishes the block, or gives everything back.
 *
 * Threads, locks: see arena.h. Only what is in `mappings` is touched while requests are under way.
 * Always: see arena_internal.h. Everything that needs host memory is in the first step.
 */
#include "memory/arena_internal.h"

#include <stdio.h>
#include "base/clock.h"
#include "base/amount.h"
#include "base/error.h"

#define SLACK ((size_t)256 << 20) /* what may be mapped in place of waiting, beside a quarter of what was ever taken */
#define ALWAYS ((size_t)64 << 20) /* up to here there is no need to move anything */
#define SLACK_PART 80             /* of what was ever taken may be mapped beyond it, and nothing moves */
#define BATCH_MOST ((size_t)16 << 20)      /* is mapped at once for small blocks, */
#define BATCH_PART 32                      /* and no more than this part of what they have */
#define MOVED_FREE 20                      /* so many times all memory is moved before that counts as too often */
#define MOVED_HALF_NS INT64_C(10000000000) /* after this time what was moved counts half */
#define TRIM_BATCH ((size_t)256 << 20)     /* claimed at a time, so that an allocation meanwhile finds the rest */

/* How an allocation will be served. */
typedef struct plan {
    hdi_run place;
    hdi_block *claim;     /* of the place */
    hdi_block *leaving;   /* claims of the mappings that will be unmapped first */
    hdi_points inherited; /* of the place */
    size_t lacks;         /* bytes to be mapped */
    size_t batch;         /* for small blocks: the bytes of several granules, of which one is needed now; else 0 */
} plan;

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* ---- idle mappings: both locks are held --------------------------------------------------------------------------- */

typedef struct pick {
    const hdi_mappings *mappings;
    size_t wanted, got; /* bytes */
} pick;

/* Takes whole mappings, from the end of the block, until there are enough. */
static hdi_choice pick_mappings(void *context, size_t *from, size_t *to)
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

static hdi_choice count_mappings(void *context, size_t *from, size_t *to)
{
    pick *p = context;
    p->got += hdi_mappings_within(p->mappings, from, to) ? *to - *from : 0;
    return HDI_CHOICE_SKIP;
}

size_t hdi_arena_idle(hdi_arena *arena)
{
    pick p = {.mappings = &arena->mappings};
    hdi_block *none = NULL;
    hdi_blocks_claim_finished(arena->large, arena->granule, false, count_mappings, &p, &none);
    return p.got;
}

/* Gives claims of mappings back: gaps below `gone_to`, which is in `last` or at its end; those from `last` on are still
 * mapped. */
static void vacate(hdi_arena *arena, hdi_block *list, const hdi_block *last, size_t gone_to)
{
    bool gone = list != last;
    while (list != NULL) {
        size_t from, to;
        hdi_blocks_claimed(list, &from, &to);
        if (list == last) {
            list = hdi_blocks_vacate(arena->large, list, gone_to);
            gone = false;
        } else {
            list = hdi_blocks_vacate(arena->large, list, gone ? to : from);
        }
    }
}

/* Unmaps what a list of claims covers. *last: the claim that made trouble, unmapped below *gone_to; NULL: none did.
 * `growing` is held, blocks_lock is not. */
static hdi_answer unmap_list(hdi_arena *arena, hdi_block *list, hdi_block **last, size_t *gone_to, uint64_t *counter)
{
    hdi_answer answer = {HDCU_SUCCESS, ""};
    *last = NULL;
    *gone_to = 0;
    for (hdi_block *claim = list, *next; claim != NULL; claim = next) {
        size_t from, to;
        next = hdi_blocks_claimed(claim, &from, &to);
        answer = hdi_mappings_unmap(&arena->mappings, from, to, gone_to);
        *counter += *gone_to - from;
        if (!hdi_answered(answer)) {
            *last = claim;
            break;
        }
    }
    return answer;
}

/* ---- plans: both locks are held --------------------------------------------------------------------------------- */

static void drop_plan(hdi_arena *arena, plan *p)
{
    vacate(arena, p->leaving, p->leaving, 0);
    hdi_blocks_settle(arena->large, p->claim, p->place.to, p->place.from);
    hdi_points_release(&p->inherited);
}

/* Whether the place can be had: claims it, and as many idle mappings as have to move so that no more than `target` is
 * mapped, or as there are. NOT_FOUND: more than `bound` would be mapped. */
static hd_status try_place(hdi_arena *arena, const hdi_run *place, size_t target, size_t bound, plan *out)
{
    plan p = {.place = *place};
    if (hdi_blocks_claim_run(arena->large, place, &p.inherited, &p.claim) != HD_OK) {
        return HD_ERROR_HOST_MEMORY;
    }
    p.lacks = hdi_mappings_missing(&arena->mappings, place->from, place->to);
    size_t mapped = arena->mappings.mapped + p.lacks;
    pick idle = {.mappings = &arena->mappings, .wanted = mapped > target ? smaller(p.lacks, mapped - target) : 0};
    hd_status status = HD_OK;
    if (idle.wanted != 0) {
        status = hdi_blocks_claim_finished(arena->large, arena->granule, false, pick_mappings, &idle, &p.leaving);
    }
    if (status == HD_OK && mapped - idle.got > bound) {
        status = HD_ERROR_NOT_FOUND;
    }
    if (status == HD_OK) {
        *out = p;
    } else {
        drop_plan(arena, &p);
    }
    return status;
}

/* The place that lacks the fewest bytes when all idle mappings have left theirs: of use where everything has to move. */
static bool find_place_without_idle(hdi_arena *arena, const hdi_blocks_request *request, hdi_run *place)
{
    pick all = {.mappings = &arena->mappings, .wanted = SIZE_MAX};
    hdi_block *idle = NULL;
    bool found = hdi_blocks_claim_finished(arena->large, arena->granule, false, pick_mappings, &all, &idle) == HD_OK &&
                 idle != NULL && hdi_blocks_find_run(arena->large, request, arena->granule, idle, place);
    vacate(arena, idle, idle, 0);
    return found;
}

/* How much more than `ever` may be mapped before anything is moved: an eightieth, and as much again for each time that all of it was
 * moved of late, beyond the fourth, up to a quarter. So a program whose sizes leave holes that nothing fits pays with memory, which it has,
 * instead of time. `growing` is held. */
static size_t slack(hdi_arena *arena, size_t ever)
{
    int64_t now = hdi_clock_ns();
    for (; now - arena->moved_since >= MOVED_HALF_NS && arena->moved_lately != 0; arena->moved_since += MOVED_HALF_NS) {
        arena->moved_lately /= 2;
    }
    arena->moved_since = arena->moved_lately == 0 ? now : arena->moved_since;
    uint64_t times = ever != 0 ? arena->moved_lately / ever : 0;
    uint64_t parts = times > MOVED_FREE ? 1 + times - MOVED_FREE : 1;
    return smaller(ever / SLACK_PART * (size_t)(parts < SLACK_PART / 4 ? parts : SLACK_PART / 4), ever / 4);
}

/* Small blocks need one granule at a time, but a call of the driver for each would keep all threads of a growing program waiting for each
 * other. So a place of several that are all missing is taken, a small part of what small blocks have already. NOT_FOUND: there is none. */
static hd_status plan_batch(hdi_arena *arena, uint32_t lane, size_t ceiling, plan *out)
{
    size_t mapped = arena->mappings.mapped;
    size_t bytes = smaller(arena->n_spans * arena->granule / BATCH_PART, BATCH_MOST);
    bytes = hdi_arena_round_down(smaller(bytes, ceiling > mapped ? ceiling - mapped : 0), arena->granule);
    hdi_blocks_request many = {.bytes = bytes, .alignment = arena->granule, .lane = lane, .no_wait = true};
    hdi_run place;
    if (bytes <= arena->granule || !hdi_blocks_find_run(arena->large, &many, arena->granule, NULL, &place) ||
        place.lacks != place.to - place.from) {
        return HD_ERROR_NOT_FOUND;
    }
    hd_status status = try_place(arena, &place, ceiling, ceiling, out);
    if (status == HD_OK) {
        out->batch = bytes;
    }
    return status;
}

/* Where the block will lie. `many`: for a small one, and more to come. `ceiling`: most that may be mapped. `would_wait`: there is a block that another lane
 * uses. NOT_FOUND: there is no such place, or it is not worth the memory. */
static hd_status make_plan(hdi_arena *arena, uint32_t lane, size_t bytes, bool would_wait, bool many, size_t ceiling,
                           plan *out)
{
    const bool span = bytes <= HDI_SMALL_BYTES;
    hdi_blocks_request request = {
        .bytes = span ? arena->granule : bytes, .alignment = span ? arena->granule : 0, .lane = lane, .no_wait = true};
    if (request.bytes > arena->reserved) {
        return HD_ERROR_NOT_FOUND;
    }
    const size_t taken = hdi_arena_taken(arena) + hdi_arena_round_up(bytes, HDI_BLOCKS_GRANULE);
    const size_t ever = larger(taken, arena->taken_peak);
    const size_t target = smaller(ceiling, larger(ever + slack(arena, ever), ALWAYS));
    const size_t loose = smaller(ceiling, ever + ever / 4 + SLACK);
    hdi_run place;
    arena->mappings.needed = ever;
    if (span && many) {
        hd_status status = plan_batch(arena, lane, loose, out);
        if (status != HD_ERROR_NOT_FOUND) {
            return status;
        }
    }
    if (hdi_blocks_find_run(arena->large, &request, arena->granule, NULL, &place)) {
        hd_status status = try_place(arena, &place, target, loose, out);
        if (status != HD_ERROR_NOT_FOUND) {
            return status;
        }
    }
    if (would_wait) {
        return HD_ERROR_NOT_FOUND;
    }
    request.no_wait = false;
    if (hdi_blocks_find_run(arena->large, &request, arena->granule, NULL, &place)) {
        hd_status status = try_place(arena, &place, target, ceiling, out);
        if (status != HD_ERROR_NOT_FOUND) {
            return status;
        }
    }
    return find_place_without_idle(arena, &request, &place) ? try_place(arena, &place, target, ceiling, out)
                                                            : HD_ERROR_NOT_FOUND;
}

/* ---- allocation ------------------------------------------------------------------------------------------------- */

/* The one failure of an allocation for want of device memory. `answer`: what the port said, or success when it was not
 * asked. `growing` is held. */
static hd_status fail_full(hdi_arena *arena, size_t bytes, hdi_answer answer)
{
    hdi_blocks_info large, small;
    hdi_lock_take(&arena->blocks_lock);
    hdi_blocks_get_info(arena->large, &large);
    hdi_blocks_get_info(arena->small, &small);
    size_t taken = hdi_arena_taken(arena);
    hdi_lock_release(&arena->blocks_lock);

    bool asked = !hdi_answered(answer);
    hd_status status = asked ? hdi_arena_status_of(answer) : HD_ERROR_MEMORY;
    hd_error error = hdi_error_blank(status);
    snprintf(error.message, sizeof error.message,
             "hd_alloc: %s on device %d: %s of at most %s are held, %s in use, largest free block %s", HDI_BYTES(bytes),
             arena->config.index, HDI_BYTES(arena->mappings.mapped), HDI_BYTES(arena->limit), HDI_BYTES(taken),
             HDI_BYTES(larger(large.largest_free, small.largest_free)));
    if (asked) {
        return hdi_arena_fail_answer(arena, status, answer, "%s", error.message);
    }
    error.device = arena->config.index;
    snprintf(error.operation, sizeof error.operation, "alloc");
    return hdi_fail_error(&error);
}

/* There is new memory, but a device that may use all memory of this one could not be given it. */
static hd_status fail_share(const hdi_arena *arena, size_t bytes, hdi_trouble t)
{
    return hdi_arena_fail_answer(arena, hdi_arena_status_of(t.answer), t.answer,
                                 "hd_alloc: %s on device %d: new memory cannot be shared with device %d, which "
                                 "uses this device's memory",
                                 HDI_BYTES(bytes), arena->config.index, t.peer);
}

/* Where a block came from that a plan made. */
static hdi_origin origin_of(const plan *p, uint32_t lane)
{
    if (p->lacks != 0 || p->inherited.count == 0) {
        return p->lacks != 0 ? HDI_ORIGIN_FRESH : HDI_ORIGIN_FINISHED;
    }
    bool own = p->inherited.count == 1 && hdi_points_data(&p->inherited)->lane == lane;
    return own ? HDI_ORIGIN_SAME_LANE : HDI_ORIGIN_WAITED;
}

/* All of the plan is mapped: makes the block. Both locks are held. */
static hd_status finish_plan(hdi_arena *arena, plan *p, const hdi_blocks_request *request, hdi_blocks_taken *out)
{
    out->origin = origin_of(p, request->lane);
    out->offset = p->place.from;
    out->inherited = p->inherited;
    if (request->bytes > HDI_SMALL_BYTES) {
        hdi_blocks_finish(arena->large, p->claim, p->place.to, request->bytes);
        arena->n_from[out->origin]++;
        return HD_OK;
    }
    hdi_blocks_finish(arena->large, p->claim, p->place.to, arena->granule);
    hd_status status = hdi_arena_make_span(arena, p->place.from, true, &p->inherited);
    if (status == HD_OK) {
        status = hdi_blocks_take(arena->small, request, out);
        arena->n_from[out->origin] += status == HD_OK;
    }
    return status;
}

/* Does what the plan says. Otherwise all is as it was, except that mappings that were to move, or were mapped, may be
 * free memory now, or none. `growing` is held. */
static hd_status carry_out(hdi_arena *arena, plan *p, const hdi_blocks_request *request, hdi_blocks_taken *out,
                           hdi_trouble *t)
{
    hdi_block *last = NULL;
    size_t gone_to = 0, mapped_to = p->place.from;
    *t = (hdi_trouble){.peer = -1};
    uint64_t before = arena->moved_bytes;
    t->answer = unmap_list(arena, p->leaving, &last, &gone_to, &arena->moved_bytes);
    arena->moved_lately += arena->moved_bytes - before;
    if (!hdi_is_trouble(*t)) {
        *t = hdi_mappings_map(&arena->mappings, p->place.from, p->place.to, p->batch, &mapped_to);
    }
    hd_status status = HD_OK;
    hdi_lock_take(&arena->blocks_lock);
    vacate(arena, p->leaving, last, gone_to);
    if (hdi_is_trouble(*t)) {
        hdi_blocks_settle(arena->large, p->claim, p->place.to, larger(mapped_to, p->place.from));
        hdi_points_release(&p->inherited);
    } else {
        status = finish_plan(arena, p, request, out);
    }
    hdi_arena_note(arena);
    hdi_lock_release(&arena->blocks_lock);
    return status;
}

/* From what is mapped, or a plan for what is not; the second where out->origin is NONE. */
static hd_status take_or_plan(hdi_arena *arena, const hdi_blocks_request *request, bool many, size_t ceiling,
                              hdi_blocks_taken *out, plan *p)
{
    const bool span = request->bytes <= HDI_SMALL_BYTES;
    if (!span) {
        hdi_blocks_join_whole(arena->small);
        hdi_arena_return_spans(arena, 0);
    }
    hdi_blocks_prune(span ? arena->small : arena->large);
    hdi_blocks_request wanted = *request;
    wanted.no_wait = true;
    /* again: blocks may have been joined just now, or freed and mapped by others while this thread waited for
     * `growing` */
    hd_status status = hdi_arena_take(arena, &wanted, out);
    if (status != HD_ERROR_NOT_FOUND) {
        return status;
    }
    bool would_wait = out->origin == HDI_ORIGIN_WAITED;
    out->origin = HDI_ORIGIN_NONE;
    status = make_plan(arena, request->lane, request->bytes, would_wait, many, ceiling, p);
    if (status == HD_ERROR_NOT_FOUND) {
        status = hdi_arena_take(arena, request, out);
    }
    if (status == HD_ERROR_NOT_FOUND && span) {
        /* the last bytes: between large blocks */
        status = hdi_blocks_take(arena->large, request, out);
        arena->n_from[out->origin] += status == HD_OK;
    }
    return status;
}

hd_status hdi_arena_grow(hdi_arena *arena, uint32_t lane, size_t bytes, hdcu_deviceptr *out, hdi_points *inherited)
{
    const hdi_blocks_request request = {.bytes = bytes, .lane = lane};
    size_t ceiling = arena->limit;
    bool many = true;
    hdi_answer refused = {HDCU_SUCCESS, ""};
    for (;;) {
        if (arena->large == NULL) { /* it changes under `growing` only */
            return hdi_arena_fail_empty(arena, "hd_alloc");
        }
        plan p = {.batch = 0};
        hdi_blocks_taken taken;
        hdi_trouble t = {.peer = -1};
        hdi_lock_take(&arena->blocks_lock);
        hd_status status = take_or_plan(arena, &request, many, ceiling, &taken, &p);
        hdi_arena_note(arena);
        hdi_lock_release(&arena->blocks_lock);
        if (status == HD_OK && taken.origin == HDI_ORIGIN_NONE) {
            status = carry_out(arena, &p, &request, &taken, &t);
        }
        if (status == HD_ERROR_HOST_MEMORY) {
            return hdi_arena_fail_host_memory(arena, bytes);
        }
        if (status == HD_ERROR_NOT_FOUND) {
            return fail_full(arena, bytes, refused);
        }
        if (!hdi_is_trouble(t)) {
            *out = arena->base + taken.offset;
            *inherited = taken.inherited;
            return HD_OK;
        }
        if (t.peer >= 0) {
            return fail_share(arena, bytes, t);
        }
        if (t.answer.code != HDCU_ERROR_OUT_OF_MEMORY) {
            return fail_full(arena, bytes, t.answer);
        }
        if (p.batch != 0) {
            many = false; /* one granule may still be had */
            continue;
        }
        /* The device has no more than this; with it, what is idle can still move, and lanes can wait. */
        refused = t.answer;
        ceiling = arena->mappings.mapped;
    }
}

/* ---- ahead of need, and back ------------------------------------------------------------------------------------ */

/* `growing` is held. */
static hd_status grow_ahead(hdi_arena *arena, size_t bytes, size_t *grown)
{
    if (arena->large == NULL) {
        return hdi_arena_fail_empty(arena, "hd_alloc");
    }
    size_t more = smaller(hdi_arena_round_up(bytes, arena->granule), arena->limit - arena->mappings.mapped);
    hdi_run place;
    hdi_block *claim = NULL;
    hdi_points none;
    hd_status status = HD_ERROR_NOT_FOUND;
    hdi_lock_take(&arena->blocks_lock);
    if (more != 0 && hdi_blocks_find_gap(arena->large, more, &place)) {
        place.to = smaller(place.to, place.from + more);
        status = hdi_blocks_claim_run(arena->large, &place, &none, &claim);
    }
    hdi_lock_release(&arena->blocks_lock);
    if (status != HD_OK) {
        return status == HD_ERROR_NOT_FOUND ? HD_OK : hdi_arena_fail_host_memory(arena, bytes);
    }
    size_t mapped_to = place.from;
    hdi_trouble t = hdi_mappings_map(&arena->mappings, place.from, place.to, 0, &mapped_to);
    hdi_lock_take(&arena->blocks_lock);
    hdi_blocks_settle(arena->large, claim, place.to, mapped_to);
    hdi_arena_note(arena);
    hdi_lock_release(&arena->blocks_lock);
    *grown = mapped_to - place.from;
    arena->ahead_bytes += *grown;
    if (!hdi_is_trouble(t)) {
        return HD_OK;
    }
    return t.peer >= 0 ? fail_share(arena, bytes, t) : fail_full(arena, bytes, t.answer);
}

hd_status hdi_arena_grow_ahead(hdi_arena *arena, size_t bytes, size_t *grown)
{
    size_t more = 0;
    hdi_mutex_lock(&arena->growing);
    hd_status status = grow_ahead(arena, bytes, &more);
    hdi_mutex_unlock(&arena->growing);
    if (grown != NULL) {
        *grown = more;
    }
    return status;
}

/* Unmaps some idle mappings; *wanted becomes what is still to be had. `growing` is held. */
static hd_status trim_some(hdi_arena *arena, size_t keep, size_t most, size_t *got)
{
    pick p = {.mappings = &arena->mappings};
    hdi_block *leaving = NULL, *last;
    hd_status status = HD_OK;
    hdi_lock_take(&arena->blocks_lock);
    if (arena->large != NULL) {
        hdi_blocks_prune(arena->small);
        hdi_arena_return_spans(arena, 0);
        size_t idle = hdi_arena_idle(arena);
        p.wanted = idle > keep ? smaller(smaller(idle - keep, most), TRIM_BATCH) : 0;
        status = hdi_blocks_claim_finished(arena->large, arena->granule, true, pick_mappings, &p, &leaving);
        hdi_arena_note(arena);
    }
    hdi_lock_release(&arena->blocks_lock);

    size_t gone_to;
    uint64_t returned = 0;
    hdi_answer answer = unmap_list(arena, leaving, &last, &gone_to, &returned);
    if (leaving != NULL) {
        hdi_lock_take(&arena->blocks_lock);
        vacate(arena, leaving, last, gone_to);
        hdi_arena_note(arena);
        hdi_lock_release(&arena->blocks_lock);
        atomic_fetch_add_explicit(&arena->freed, 1, memory_order_release);
    }
    arena->returned_bytes += returned;
    *got = (size_t)returned;
    if (!hdi_answered(answer)) {
        status = hdi_driver_code_is_fatal(answer.code) ? HD_ERROR_DEVICE_LOST : HD_ERROR_DRIVER;
        hdi_arena_fail_answer(arena, status, answer, "hd_memory_trim: memory of device %d could not be given back",
                              arena->config.index);
    }
    return status == HD_ERROR_HOST_MEMORY ? HD_OK : status; /* what could be claimed is gone */
}

hd_status hdi_arena_trim(hdi_arena *arena, size_t keep_bytes, size_t most_bytes, size_t *returned)
{
    size_t sum = 0, got = 0;
    hd_status status;
    do { /* others may map in between */
        hdi_mutex_lock(&arena->growing);
        status = trim_some(arena, keep_bytes, most_bytes - sum, &got);
        hdi_mutex_unlock(&arena->growing);
        sum += got;
    } while (status == HD_OK && got != 0 && sum < most_bytes);
    if (returned != NULL) {
        *returned = sum;
    }
    return status;
}
