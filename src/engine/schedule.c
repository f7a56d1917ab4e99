/* schedule.c - in which order an engine visits its lanes.
 *
 * A lane that has more than a few commands to issue is *full*. A pass visits all other lanes, then one or a few of the
 * full ones. So a lane with little to do waits for one short visit, however many lanes are full. Full lanes take turns.
 * Every second turn goes to a full lane that a thread waits for.
 *
 * Threads: the thread that runs the device's engine, with the device's context current.
 * Locks: none.
 * Always: a full lane gets its turn after at most twice as many visits as there are full lanes. A lane that is not
 * active is not full.
 */
#include "engine/stream.h"

#include "base/wait.h"

#define WORDS (HDI_LANES_MAX / 64)
#define LITTLE 8          /* commands: a lane that has no more to issue is not full */
#define LOOKED_AT 16      /* full lanes whose progress is checked beside each turn */
#define LIGHT_PER_TURN 32 /* visits of other lanes for each turn of a full one: many of them leave time for it */
#define QUIET_NS 10000000 /* a lane is active for so long after its work is done */
/* Visits of full lanes are short for so long after another lane was there: it may come again. */
#define COMPANY_NS 1000000

static void put(uint64_t *bits, uint32_t lane, bool value)
{
    uint64_t bit = (uint64_t)1 << lane % 64;
    bits[lane / 64] = value ? bits[lane / 64] | bit : bits[lane / 64] & ~bit;
}

/* Whether a thread waits for the lane. A thread that begins to wait stores the wish, then sets the bit. The engine
 * clears the bit before its last load of the wish. It does so only here, where a turn depends on it: a bit that stays
 * set saves the next waiter an atomic operation. */
static bool is_awaited(hdi_engine *engine, uint32_t lane)
{
    _Atomic uint64_t *word = &engine->shared->awaited[lane / 64];
    uint64_t bit = (uint64_t)1 << lane % 64;
    if (!(atomic_load_explicit(word, memory_order_acquire) & bit)) {
        return false;
    }
    const hdi_lane_shared *shared = &engine->device->channel.lanes[lane];
    uint64_t done = engine->streams[lane].done;
    if (atomic_load_explicit(&shared->wanted_host, memory_order_relaxed) > done) {
        return true;
    }
    atomic_fetch_and_explicit(word, ~bit, memory_order_seq_cst);
    if (atomic_load_explicit(&shared->wanted_host, memory_order_seq_cst) > done) {
        atomic_fetch_or_explicit(word, bit, memory_order_seq_cst);
        return true;
    }
    return false;
}

static void visit(hdi_engine *engine, uint32_t lane, hdi_pass *pass)
{
    hdi_stream *stream = &engine->streams[lane];
    bool more = hdi_stream_visit(engine, stream, pass);
    /* The rest of a backlog does not wait for another turn. It counts slots, since counting commands would mean reading
     * them. */
    uint64_t head = atomic_load_explicit(&engine->device->channel.lanes[lane].head, memory_order_relaxed);
    put(engine->full, lane, more && head - stream->issued > LITTLE);
}

/* The next full lane behind `last`; HDI_LANES_MAX: there is none. */
static uint32_t next_full(hdi_engine *engine, uint32_t last, bool awaited)
{
    for (uint32_t i = 1; i <= HDI_LANES_MAX; i++) {
        uint32_t lane = (last + i) % HDI_LANES_MAX;
        uint64_t left = engine->full[lane / 64] >> lane % 64;
        if (!left) {
            i += 63 - lane % 64;
        } else if (left & 1 && (!awaited || is_awaited(engine, lane))) {
            return lane;
        }
    }
    return HDI_LANES_MAX;
}

/* A turn of a full lane. False: there is none. */
static bool turn(hdi_engine *engine, hdi_pass *pass)
{
    uint32_t lane = HDI_LANES_MAX;
    engine->turns++;
    if (engine->turns % 2) {
        lane = next_full(engine, engine->awaited_turn, true);
        engine->awaited_turn = lane < HDI_LANES_MAX ? lane : engine->awaited_turn;
    }
    if (lane == HDI_LANES_MAX) {
        lane = next_full(engine, engine->full_turn, false);
        engine->full_turn = lane < HDI_LANES_MAX ? lane : engine->full_turn;
    }
    if (lane == HDI_LANES_MAX) {
        return false;
    }
    visit(engine, lane, pass);
    return true;
}

/* Whether a lane that was not full has become so. It gets its first turn like the others. */
static bool has_filled(const hdi_engine *engine, uint32_t lane)
{
    const hdi_stream *stream = &engine->streams[lane];
    const hdi_channel *channel = &engine->device->channel;
    if (!atomic_load_explicit(&stream->made, memory_order_acquire) ||
        atomic_load_explicit(&stream->blocked, memory_order_relaxed)) {
        return false;
    }
    uint64_t head = atomic_load_explicit(&channel->lanes[lane].head, memory_order_acquire);
    uint64_t at = stream->issued;
    if (head - at <= LITTLE || head - at > channel->slots) {
        return false; /* the visit checks for impossible values */
    }
    for (int i = 0; i < LITTLE && at < head; i++) {
        at += *(const volatile uint8_t *)&hdi_command_at(channel, lane, at)->slots;
    }
    return at < head;
}

/* Whether all of the lane is done. */
static bool is_quiet(const hdi_engine *engine, uint32_t lane)
{
    const hdi_stream *stream = &engine->streams[lane];
    return atomic_load_explicit(&stream->made, memory_order_acquire) &&
           atomic_load_explicit(&engine->device->channel.lanes[lane].head, memory_order_acquire) == stream->done;
}

/* Takes lanes off the active ones that have been quiet for a while. Not at once: most have work again soon, and their
 * submitter then finds the lane active. */
static void retire(hdi_engine *engine, const uint64_t *active, hdi_pass *pass)
{
    uint64_t off[WORDS] = {0};
    bool any = false;
    engine->retired_at = pass->now;
    for (uint32_t w = 0; w < WORDS; w++) {
        for (uint64_t bits = active[w] & ~engine->full[w]; bits; bits &= bits - 1) {
            uint32_t lane = w * 64 + (uint32_t)__builtin_ctzll(bits);
            const hdi_stream *stream = &engine->streams[lane];
            if (stream->quiet_since && pass->now - stream->quiet_since > QUIET_NS && is_quiet(engine, lane)) {
                put(off, lane, true);
                any = true;
            }
        }
        if (off[w]) {
            /* Cleared before the last look at `head`, see hdi_engine_notify. */
            atomic_fetch_and_explicit(&engine->shared->active[w], ~off[w], memory_order_seq_cst);
        }
    }
    if (!any) {
        return;
    }
    hdi_engine_see_heads(engine);
    for (uint32_t w = 0; w < WORDS; w++) {
        for (uint64_t bits = off[w]; bits; bits &= bits - 1) {
            uint32_t lane = w * 64 + (uint32_t)__builtin_ctzll(bits);
            if (atomic_load_explicit(&engine->device->channel.lanes[lane].head, memory_order_seq_cst) !=
                engine->streams[lane].done) {
                atomic_fetch_or_explicit(&engine->shared->active[w], bits & -bits, memory_order_seq_cst);
                pass->progress = true;
            }
        }
    }
}

/* Visits the lanes that have little to do. Returns how many there are. */
static uint32_t visit_light(hdi_engine *engine, const uint64_t *active, hdi_pass *pass)
{
    uint32_t n = 0;
    for (uint32_t w = 0; w < WORDS; w++) {
        for (uint64_t bits = active[w] & ~engine->full[w]; bits; bits &= bits - 1) {
            uint32_t lane = w * 64 + (uint32_t)__builtin_ctzll(bits);
            hdi_stream *stream = &engine->streams[lane];
            if (is_quiet(engine, lane)) {
                stream->quiet_since = stream->quiet_since ? stream->quiet_since : pass->now;
                continue;
            }
            stream->quiet_since = 0;
            if (has_filled(engine, lane)) {
                put(engine->full, lane, true);
            } else {
                visit(engine, lane, pass);
                n++;
            }
        }
    }
    return n;
}

/* Checks some of the full lanes, in turn, so that what is finished there is noticed long before their next visit. */
static void look_at_full(hdi_engine *engine, hdi_pass *pass)
{
    uint32_t first = HDI_LANES_MAX;
    for (int i = 0; i < LOOKED_AT; i++) {
        uint32_t lane = next_full(engine, engine->looked_at, false);
        if (lane == HDI_LANES_MAX || lane == first) {
            return;
        }
        first = first == HDI_LANES_MAX ? lane : first;
        engine->looked_at = lane;
        hdi_stream *stream = &engine->streams[lane];
        if (stream->signalled > stream->done && !hdi_device_lost(engine->device)) {
            hdi_stream_reap(engine, stream, pass);
        }
    }
}

hdi_pass hdi_engine_pass(hdi_engine *engine)
{
    hdi_pass pass = {.now = hdi_clock_ns()};
    engine->now = pass.now;
    /* one writer; relaxed: a reader of it waits far longer than a store takes to become visible */
    atomic_store_explicit(&engine->shared->heartbeat,
                          atomic_load_explicit(&engine->shared->heartbeat, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    uint64_t active[WORDS];
    for (uint32_t w = 0; w < WORDS; w++) {
        active[w] = atomic_load_explicit(&engine->shared->active[w], memory_order_seq_cst);
    }
    uint32_t light = visit_light(engine, active, &pass);
    uint32_t lanes = light;
    for (uint32_t w = 0; w < WORDS; w++) {
        lanes += (uint32_t)__builtin_popcountll(engine->full[w]);
    }
    if (light && lanes > 1) {
        engine->company_at = pass.now;
    }
    engine->has_company = pass.now - engine->company_at < COMPANY_NS;
    for (uint32_t turns = 0; turns <= light / LIGHT_PER_TURN && turn(engine, &pass); turns++) {
    }
    look_at_full(engine, &pass);
    if (pass.now - engine->retired_at > QUIET_NS) {
        retire(engine, active, &pass);
    }
    for (uint32_t w = 0; w < WORDS; w++) {
        pass.progress |= engine->full[w] != 0;
        pass.in_flight |= engine->full[w] != 0;
    }
    return pass;
}
