/* limit.c - allocations at a memory limit: their waits, and the steps before an allocation fails.
 *
 * The arena first tries mapped memory, idle granules and fresh memory up to the limit
 * (hdi_arena_alloc).
 * If that fails, an allocation above the limit fails at once. Otherwise the out-of-memory fallback
 * joins the line of the device (line.h). The fallback takes these steps in order, and attempts the
 * allocation again after each step:
 * - empty the magazines of all threads; magazines are closed while allocations wait
 * - wait for the work in flight, and for freed pieces to come back (piece.c)
 * - call the program's callback, as long as it frees memory
 * - wait for other threads, as long as something is freed or finished (limit.h)
 *
 * One time limit covers both waits together. Only the program can end a claim, so an allocation
 * waits for claims only in the last step.
 *
 * If a producer allocates faster than its consumer frees, these waits slow the producer down.
 *
 * Threads: any.
 * Locks: the lock of the line, for a moment; no lock is held during an attempt, a wait or a call of
 * the program.
 * Blocking: an allocation, during the two waits and the program's callback.
 * Always: one allocation calls the callback at most CALLS_MOST times.
 */
#include "buffer/limit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/shortage.h"
#include "base/presence.h"
#include "base/text.h"
#include "base/wait.h"
#include "buffer/buffer.h"
#include "buffer/freed.h"
#include "buffer/line.h"
#include "buffer/part.h"
#include "buffer/reclaim.h"
#include "engine/claims.h"
#include "engine/engine.h"
#include "memory/part.h"
#include "memory/share.h"
#include "memory/thread_cache.h"

/* ---- waits at a limit ---- */

#define SLEEP_LEAST_NS 50000
#define SLEEP_MOST_NS 1000000
/* a sleep takes 1/SLEEP_SHARE of the time since something was last freed or finished */
#define SLEEP_SHARE 64
/* the least time between two checks whether other threads are alive */
#define ASK_AGAIN_NS 10000000

hdi_memory_wait hdi_memory_wait_begin(hd_runtime *rt)
{
    int64_t now = hdi_clock_ns(), allowed = rt->options.memory_timeout * 1000000;
    return (hdi_memory_wait){
        .runtime = rt, .allowed = allowed, .begin = now, .moved = now, .asked = now - ASK_AGAIN_NS};
}

void hdi_memory_wait_moved(hdi_memory_wait *p)
{
    p->moved = hdi_clock_ns();
    p->any = true;
}

/* Notes that the program's callback ran since the clock time `began`. The time since then does not
 * count as waiting. */
static void memory_wait_apart(hdi_memory_wait *p, int64_t began)
{
    int64_t passed = hdi_clock_ns() - began;
    p->begin += passed;
    p->moved += passed;
}

/* True if the wait lasted for the longest time that is allowed in all, or if the runtime is
 * being closed. */
static bool memory_wait_is_too_long(const hdi_memory_wait *p)
{
    return hdi_is_closing(p->runtime) || hdi_clock_ns() - p->begin >= HDI_MEMORY_WAIT_TIMES * p->allowed;
}

bool hdi_memory_wait_over(hdi_memory_wait *p, bool quiet)
{
    int64_t now = hdi_clock_ns();
    p->end = HDI_MEMORY_WAIT_NONE;
    if (hdi_is_closing(p->runtime)) {
        p->end = HDI_MEMORY_WAIT_CLOSED;
    } else if (now - p->moved >= p->allowed) {
        p->end = HDI_MEMORY_WAIT_STILL;
    } else if (memory_wait_is_too_long(p)) {
        p->end = HDI_MEMORY_WAIT_LONG;
    } else if (quiet && now - p->asked >= ASK_AGAIN_NS) {
        p->asked = now;
        p->end = hdi_presence_has_others() ? HDI_MEMORY_WAIT_NONE : HDI_MEMORY_WAIT_ALONE;
    }
    return p->end != HDI_MEMORY_WAIT_NONE;
}

void hdi_memory_wait_sleep(const hdi_memory_wait *p)
{
    HDI_CALLER_WAITS();
    int64_t sleep_ns = (hdi_clock_ns() - p->moved) / SLEEP_SHARE;
    hdi_sleep_for(sleep_ns < SLEEP_LEAST_NS ? SLEEP_LEAST_NS : sleep_ns > SLEEP_MOST_NS ? SLEEP_MOST_NS : sleep_ns);
}

const char *hdi_memory_wait_text(const hdi_memory_wait *p, char out[HDI_MEMORY_WAIT_TEXT])
{
    char amount[HDI_AMOUNT_BYTES];
    uint64_t allowed = (uint64_t)p->allowed;
    out[0] = 0;
    switch (p->end) {
    case HDI_MEMORY_WAIT_NONE:
    case HDI_MEMORY_WAIT_CLOSED: /* the message of the call reports that the runtime is closing */
        break;
    case HDI_MEMORY_WAIT_STILL:
        if (allowed == 0) {
            snprintf(out, HDI_MEMORY_WAIT_TEXT, "other threads were not waited for (option memory_timeout is 0)");
        } else {
            char before[HDI_AMOUNT_BYTES];
            int length =
                snprintf(out, HDI_MEMORY_WAIT_TEXT, "nothing was freed or finished for %s (option memory_timeout)",
                         hdi_duration_text(allowed, amount));
            if (p->any) {
                snprintf(out + length, HDI_MEMORY_WAIT_TEXT - (size_t)length, ", after %s in which something was",
                         hdi_duration_text((uint64_t)(p->moved - p->begin), before));
            }
        }
        break;
    case HDI_MEMORY_WAIT_LONG:
        snprintf(out, HDI_MEMORY_WAIT_TEXT,
                 "others freed or finished something, but made no room in %s (%d times the option "
                 "memory_timeout)",
                 hdi_duration_text(HDI_MEMORY_WAIT_TIMES * allowed, amount), HDI_MEMORY_WAIT_TIMES);
        break;
    case HDI_MEMORY_WAIT_ALONE:
        snprintf(out, HDI_MEMORY_WAIT_TEXT, "nothing is unfinished, and no other thread uses the library");
        break;
    }
    return out;
}

/* ---- the out-of-memory fallback ---- */
/* the most calls of the callback for one allocation, since a callback may return true every time */

#define CALLS_MOST 1000

typedef struct climb {
    hdi_device *device;
    size_t bytes;
    hdi_take take;
    void *context;   /* of `take` */
    uint64_t losses; /* of the device before the first attempt */
    /* the memory limit is at least as high as the bytes that the allocation wants */
    bool possible;
    /* the driver refused, and the device's mapped memory is less than the allocation wants */
    bool hopeless;
    bool in_line; /* the allocation joined the line at `place` */
    bool tried;   /* the last attempt had its turn, and set the message */
    bool waited;  /* the allocation slept at least once */
    hdi_in_line place;
    uint64_t seen, chances; /* values at the last look */
    hdi_memory_wait wait;
} climb;

/* True if the device was lost since the allocation began. The memory that the allocation waits for
 * is then gone, even if the device was restarted. */
static bool fallback_is_in_vain(const climb *c)
{
    return hdi_device_lost_since(c->device, c->losses);
}

/* Makes an attempt if it is this allocation's turn. Otherwise returns MEMORY without a message. */
static hd_status fallback_try_again(climb *c)
{
    hd_runtime *rt = c->device->runtime;
    int device = c->device->index;
    c->tried = !c->in_line || hdi_line_enter(rt, device, &c->place, c->bytes);
    if (!c->tried) {
        return HD_ERROR_MEMORY;
    }
    hd_status status = c->take(c->device, c->bytes, c->context);
    if (c->in_line) {
        hdi_line_exit(rt, device, c->bytes);
    }
    return status;
}

/* A number that changes when work finishes, memory is freed, or an allocation leaves the line. The
 * number covers the work of all devices, since each of them may use this device's memory. */
static uint64_t fallback_look(const climb *c)
{
    hd_runtime *rt = c->device->runtime;
    uint64_t sum = hdi_arena_freed(c->device->arena) + hdi_line_left(hdi_line_of(rt, c->device->index));
    for (int d = 0; d < rt->n_devices; d++) {
        uint32_t lanes = atomic_load_explicit(&rt->devices[d]->lanes_made, memory_order_acquire);
        for (uint32_t i = 0; i < lanes; i++) {
            sum += atomic_load_explicit(&rt->devices[d]->channel.lanes[i].done, memory_order_acquire);
        }
    }
    return sum;
}

/* Stores the last submitted position of each lane in heads[n_devices * HDI_LANES_MAX]; 0 for lanes
 * that do not exist. */
static void fallback_note_heads(hd_runtime *rt, uint64_t *heads)
{
    for (int d = 0; d < rt->n_devices; d++) {
        uint32_t lanes = atomic_load_explicit(&rt->devices[d]->lanes_made, memory_order_acquire);
        for (uint32_t i = 0; i < lanes; i++) {
            heads[d * HDI_LANES_MAX + (int)i] = hdi_lane_submitted(rt->devices[d], i);
        }
    }
}

/* True if some work up to `heads` is unfinished, and can end without a thread of the program.
 * Requests that the lanes of such work publish their ends without delay. With placement inline,
 * runs the engines. */
static bool fallback_press(hd_runtime *rt, const uint64_t *heads)
{
    for (int i = 0; rt->is_inline && i < rt->n_devices; i++) {
        hdi_engine_run_inline(rt->devices[i]);
    }
    bool unfinished = false;
    for (uint32_t i = 0; i < (uint32_t)rt->n_devices * HDI_LANES_MAX; i++) {
        hdi_point last = {i, heads[i]};
        if (heads[i] != 0 && !hdi_point_done(rt, last) && !hdi_point_is_left_to_program(rt, last)) {
            hdi_raise(&hdi_lane_shared_of(rt, i)->wanted_host, heads[i]);
            hdi_engine_notify(hdi_lane_owner(rt, i)->channel.engine, i % HDI_LANES_MAX);
            unfinished = true;
        }
    }
    return unfinished;
}

/* Notes what was freed or finished since the last look. Returns true if there is a reason for
 * another attempt. */
static bool fallback_moves(climb *c)
{
    uint64_t seen = fallback_look(c), chances = hdi_line_chances(hdi_line_of(c->device->runtime, c->device->index));
    bool moved = seen != c->seen, chance = chances != c->chances;
    if (moved) {
        hdi_memory_wait_moved(&c->wait);
    }
    c->seen = seen;
    c->chances = chances;
    return moved || chance;
}

static hd_status fallback_drain_and_try(climb *c)
{
    hd_runtime *rt = c->device->runtime;
    fallback_moves(c);
    hdi_counts_add(&c->device->memory->drains, 1);
    hdi_thread_caches_drain(rt, c->device->index);
    hdi_record_add_rung(&rt->recorder, HDI_RECORD_RUNG_CACHES);
    if (rt->is_process) {
        /* unmap memory of this device from before its restart, which peers still had mapped */
        hdi_shares_reap(rt);
    }
    /* memory that this function itself drained from magazines does not count as freed */
    c->seen = fallback_look(c);
    return fallback_try_again(c);
}

/* True if the library will give back freed memory of the device without the program, once the work
 * on it is done. Acquire: pairs with the release of hdi_memory_left, so the next look finds memory
 * that came back. */
static bool fallback_memory_leaves(const climb *c)
{
    uint64_t leaving = atomic_load_explicit(&c->device->memory->leaving, memory_order_acquire);
    hdi_freed freed = {.pieces = 0};
    if (leaving != 0) {
        hdi_freed_get(c->device->runtime, c->device->index, &freed);
    }
    return leaving > freed.pieces;
}

/* True if the driver refused the last attempt, and the device's mapped memory is less than the
 * allocation wants. Then neither the end of work nor hd_free can make room. */
static bool fallback_is_hopeless(const climb *c)
{
    hd_error error;
    hdi_arena_info info;
    hdi_error_get(&error);
    hdi_arena_get_info(c->device->arena, &info);
    return c->tried && error.driver_code == HDCU_ERROR_OUT_OF_MEMORY && c->bytes > info.mapped_bytes;
}

/* Waits for the work in flight, and for freed memory that the library gives back. `others`: also
 * waits for other threads. Tries the allocation again after each event that frees memory or
 * finishes work. */
static hd_status fallback_wait_for(climb *c, bool others)
{
    hd_runtime *rt = c->device->runtime;
    uint64_t *heads = calloc((size_t)rt->n_devices * HDI_LANES_MAX, sizeof *heads);
    if (!heads) {
        return HD_ERROR_MEMORY; /* the last attempt sets the message */
    }
    fallback_note_heads(rt, heads);
    hd_status status = HD_ERROR_MEMORY;
    bool waited = false;
    for (;;) {
        bool moves = fallback_press(rt, heads);
        moves |= fallback_memory_leaves(c);
        if (fallback_moves(c)) {
            status = fallback_try_again(c);
        }
        if (status != HD_ERROR_MEMORY || fallback_is_in_vain(c) || (!others && !moves) ||
            hdi_memory_wait_over(&c->wait, !moves)) {
            break;
        }
        waited = true;
        hdi_memory_wait_sleep(&c->wait);
        if (hdi_thread_caches_cached(rt, c->device->index)) {
            /* other threads free buffers into their magazines, from where this allocation cannot
             * take them */
            hdi_thread_caches_drain(rt, c->device->index);
        }
    }
    free(heads);
    if (status == HD_ERROR_MEMORY && !fallback_is_in_vain(c)) {
        /* memory may have been freed after the last attempt, and this attempt finds it */
        status = fallback_drain_and_try(c);
    }
    if (waited) {
        hdi_record_add_rung(&rt->recorder, HDI_RECORD_RUNG_WAITED);
        c->waited = true;
    }
    return status;
}

/* ---- the fallback's message ---- */

/* Writes advice for the program, or the reason why the program cannot get more memory. */
static void fallback_advise(const climb *c, char *out, size_t room)
{
    hd_runtime *rt = c->device->runtime;
    hdi_arena *arena = c->device->arena;
    hdi_thread_cache_sums sums;
    hdi_thread_caches_sum(rt, c->device->index, &sums);
    size_t limit = hdi_arena_limit(arena);
    bool is_device = limit >= c->device->facts.memory_bytes;
    hd_error error;
    hdi_error_get(&error);
    /* the driver refused */
    bool refused = c->possible && error.driver_code == HDCU_ERROR_OUT_OF_MEMORY;
    const char *shortage = refused ? hdi_shortage_text() : NULL;
    bool frees = !shortage && c->possible && !c->hopeless && sums.allocated_bytes > sums.freed_bytes;
    bool raises = !is_device && !refused;
    bool waited = c->wait.end == HDI_MEMORY_WAIT_STILL && frees;
    char raise[HDI_AMOUNT_BYTES + 56] = "";
    if (raises) {
        snprintf(raise, sizeof raise, "%sraise memory_limit (%s)",
                 c->possible ? "" : "the size exceeds the limit: ", HDI_BYTES(limit));
    }
    const char *first = frees      ? "free buffers"
                        : raises   ? raise
                        : shortage ? shortage
                        : refused  ? "others hold the rest of the device"
                                   : "the device has no more";
    snprintf(out, room, "; %s%s%s%s", first, frees && raises ? " or " : "", frees ? raise : "",
             waited ? "; a consumer that takes longer needs a longer memory_timeout" : "");
}

/* Fails. Adds to the arena's message the reason why the wait ended, freed memory that is still in
 * use, a remedy, and the largest holders. */
static hd_status fallback_fail_full(const climb *c)
{
    hd_error error;
    hdi_error_get(&error);
    char why[HDI_MEMORY_WAIT_TEXT], advice[360], freed[HDI_FREED_TEXT], text[sizeof error.message * 2];
    hdi_memory_wait_text(&c->wait, why);
    hdi_freed_text(c->device->runtime, c->device->index, freed);
    fallback_advise(c, advice, sizeof advice);
    int length = snprintf(text, sizeof text, "%s%s%s%s%s", error.message, why[0] ? "; " : "", why,
                          c->possible ? freed : "", advice);
    if (length > 0 && (size_t)length < sizeof error.message) {
        memcpy(error.message, text, (size_t)length + 1);
        if (c->possible) {
            hdi_buffer_of(c->device->runtime)
                ->on_full(c->device->runtime, c->device->index, error.message + length,
                          sizeof error.message - (size_t)length);
        }
    }
    return hdi_fail_error(&error);
}

/* True if it is possible that an allocation gets memory later. */
static bool fallback_has_hope(climb *c, hd_status status)
{
    c->hopeless = status == HD_ERROR_MEMORY && fallback_is_hopeless(c);
    return status == HD_ERROR_MEMORY && c->possible && !c->hopeless && !fallback_is_in_vain(c);
}

/* The steps between joining the line and leaving it. */
static hd_status fallback_take_steps(climb *c)
{
    hdi_device *device = c->device;
    if (!c->possible) {
        return HD_ERROR_MEMORY; /* no step can help; the first attempt set the message */
    }
    hd_status status = fallback_drain_and_try(c);
    if (fallback_has_hope(c, status)) {
        status = fallback_wait_for(c, false);
    }
    for (unsigned attempt = 0; status == HD_ERROR_MEMORY && attempt < CALLS_MOST && !hdi_is_closing(device->runtime) &&
                               !fallback_is_in_vain(c);
         attempt++) {
        int64_t began = hdi_clock_ns();
        bool freed = hdi_reclaim_at_limit(device->runtime, device, c->bytes, attempt);
        memory_wait_apart(&c->wait, began);
        if (!freed) {
            break;
        }
        status = fallback_drain_and_try(c);
        if (fallback_has_hope(c, status)) {
            status = fallback_wait_for(c, false); /* freed memory may still be in use by work */
        }
    }
    if (status == HD_ERROR_MEMORY && c->possible && !c->hopeless && !fallback_is_in_vain(c)) {
        status = fallback_wait_for(c, true);
    }
    return status;
}

static hd_status fallback_climb(hdi_device *device, size_t bytes, uint64_t losses, hdi_take take, void *context)
{
    hd_runtime *rt = device->runtime;
    climb c = {.device = device, .bytes = bytes, .losses = losses, .take = take, .context = context};
    c.possible = bytes <= hdi_arena_limit(device->arena);
    c.in_line = c.possible && !hdi_reclaim_is_inside();
    if (c.in_line) {
        hdi_line_join(rt, device->index, &c.place, bytes);
    }
    c.wait = hdi_memory_wait_begin(rt);
    c.seen = fallback_look(&c);
    c.chances = hdi_line_chances(hdi_line_of(rt, device->index));
    hd_status status = fallback_take_steps(&c);
    if (c.waited) {
        /* from the time from which memory_timeout counts, so no wait that failed is shorter */
        hdi_counts_add(&device->memory->waits, 1);
        hdi_counts_add(&device->memory->wait_ns, (uint64_t)(hdi_clock_ns() - c.wait.begin));
    }
    if (c.in_line && status == HD_ERROR_MEMORY && !c.tried && !fallback_is_in_vain(&c)) {
        /* This last attempt ignores the line: the free memory is too little for the earlier
         * allocations. */
        status = take(device, bytes, context);
    }
    if (c.in_line) {
        hdi_line_leave(rt, device->index, &c.place, status == HD_OK);
    }
    if (status != HD_ERROR_MEMORY || fallback_is_in_vain(&c)) {
        return status;
    }
    return hdi_is_closing(rt) ? hdi_closed_meanwhile() : fallback_fail_full(&c);
}

/* Makes the first attempt. If other allocations wait, the attempt takes its turn in the line. An
 * attempt above the limit cannot succeed, and takes no turn. */
static hd_status fallback_try_first(hdi_device *device, size_t bytes, hdi_take take, void *context)
{
    hd_runtime *rt = device->runtime;
    if (hdi_line_is_empty(hdi_line_of(rt, device->index)) || hdi_reclaim_is_inside() ||
        bytes > hdi_arena_limit(device->arena)) {
        return take(device, bytes, context);
    }
    if (!hdi_line_enter(rt, device->index, NULL, bytes)) {
        return HD_ERROR_MEMORY; /* the fallback sets the message */
    }
    hd_status status = take(device, bytes, context);
    hdi_line_exit(rt, device->index, bytes);
    return status;
}

hd_status hdi_take_or_wait(hdi_device *device, size_t bytes, uint64_t losses, hdi_take take, void *context)
{
    hd_status status = fallback_try_first(device, bytes, take, context);
    if (status == HD_ERROR_MEMORY) {
        int64_t began = hdi_record_began(&device->runtime->recorder);
        status = fallback_climb(device, bytes, losses, take, context);
        hdi_pause_end(&device->runtime->recorder, began,
                      (hdi_pause){.kind = HDI_RECORD_PAUSE_MEMORY, .device = (uint8_t)device->index, .bytes = bytes});
    }
    if (status && status != HD_ERROR_HOST_MEMORY && hdi_device_lost_since(device, losses)) {
        return hdi_loss_fail(device->runtime, device->index, "");
    }
    return status;
}
