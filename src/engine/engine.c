/* engine.c - runs a device's engine: the placements, the order in which the engine visits lanes,
 * and how it sleeps and wakes.
 *
 * A lane with more than a few commands to issue is *full*. A pass of the engine visits all lanes
 * that are not full, and then one or a few full lanes. So a lane with few commands waits for few
 * visits of full lanes, however many lanes are full. Full lanes take turns. Every second turn goes
 * to a full lane that a thread waits for.
 *
 * Threads: in the placement `thread`, each device's engine has a thread of its own from hd_open to
 * hd_close. In the placement `inline`, threads that submit or wait run the engine, one at a time
 * per device. During a pass, the device's context is current.
 * Locks: `running`, only in the placement `inline`. If the driver refuses the context, an order
 * lock is taken under `running`.
 * Always:
 * - An engine without work sleeps. A submitter that finds the engine asleep rings its doorbell.
 *   While work is in flight, the engine sleeps for a limited time, since the device's completion
 *   flags ring no doorbell.
 * - If n lanes are full, each of them gets its turn after at most 2 n turns. An inactive lane is
 *   not full.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include "base/error.h"
#include "base/lock.h"
#include "base/thread.h"
#include "base/wait.h"
#include "blas/blas.h"
#include "engine/stream.h"
#include "engine/stream_pool.h"

/* Timed sleeps while work is in flight. A sleep lasts 1/SLEEP_PART of the time that passed without
 * progress, within the bounds below. When work ends during a sleep, the rest of the sleep is lost
 * time. On a machine with few processors a sleep is longer (1/SLEEP_PART_OF_FEW), since the
 * program's work may need the processors. */
#define SLEEP_LEAST_NS 20000
#define SLEEP_MOST_NS 500000
#define SLEEP_PART 1024
#define SLEEP_PART_OF_FEW 16
#define FEW_PROCESSORS 4
#define SPINS_PER_LOOK 4
/* For the watchdog: if two passes are farther apart than this, the engine did more than sleep in
 * between. */
#define LATE_NS 20000000
#define WATCH_PART 4 /* one gap counts for at most 1/WATCH_PART of the option watchdog */
#define SEEN_NS 1000 /* several times as long as a processor delays a store */
/* The most unfinished entries of a lane in the driver's queue. For a stream that stands still, the
 * driver accepts 1021 entries. The next call for this stream waits, and so all lanes of the engine
 * wait. With driver 580.159, a launch, a fill and a graph count as one entry each, and an event
 * counts as none. If a device has more streams than queues, streams share queues. So a lane gets a
 * quarter of a queue. In the placement inline, a driver call that waits blocks only the calling
 * thread. Also, the next call of the program may come much later. So the limit is higher there. */
#define ENTRIES_MOST 256
#define ENTRIES_MOST_INLINE 768

/* the longest sleep without work in flight, while lanes still have chains to give back */
#define TIDY_NS 500000000

/* The number of words for one bit per lane. Passes look only at the words of lanes that were
 * made. */
#define WORDS (HDI_LANES_MAX / 64)
#define LITTLE 8 /* a lane with no more commands than this to issue is not full */
/* in each turn, a pass also checks the progress of this many other full lanes */
#define LOOKED_AT 16
/* Between two turns of full lanes, the engine makes at most this many visits of other lanes. */
#define LIGHT_PER_TURN 32
#define QUIET_NS 10000000 /* a lane stays active for this time after its work is done */
/* After another lane had work, visits of full lanes stay short for this time, since the other lane
 * may soon have work again. */
#define COMPANY_NS 1000000

void hdi_engine_offer_fences(hdi_device *device)
{
    bool joined = device->runtime->is_process && hdi_biased_join();
    atomic_store_explicit(&device->channel.engine->fences, joined ? HDI_FENCES_EITHER : HDI_FENCES_SUBMITTER,
                          memory_order_relaxed);
}

/* Makes the engine fence in place of submitters, if it can. Called before the first command. A
 * submitter that still reads the former value of `fences` makes one unneeded fence. */
static void engine_take_fences(hdi_engine *engine)
{
    hd_runtime *rt = engine->device->runtime;
    _Atomic uint32_t *fences = &engine->shared->fences;
    bool takes = rt->is_process ? atomic_load_explicit(fences, memory_order_relaxed) == HDI_FENCES_EITHER &&
                                      hdi_biased_barrier_everywhere()
                                : !rt->is_inline && !hdi_biased_fenced();
    if (takes) {
        engine->fences = true;
        atomic_store_explicit(fences, HDI_FENCES_ENGINE, memory_order_relaxed);
    }
}

/* Makes submitters' stores to `head` visible to the engine. After this call, the engine sees every
 * store of a submitter that did not see the engine's last store. The call takes some microseconds,
 * and interrupts each processor that runs the application. */
static void engine_see_heads(hdi_engine *engine)
{
    if (!engine->fences) {
        return; /* submitters fence */
    }
    if (engine->device->runtime->is_process) {
        hdi_biased_barrier_everywhere();
    } else {
        hdi_biased_barrier();
    }
}

/* ---- the schedule: the order of visits to lanes ---- */

static void engine_put_bit(uint64_t *bits, uint32_t lane, bool value)
{
    uint64_t bit = (uint64_t)1 << lane % 64;
    bits[lane / 64] = value ? bits[lane / 64] | bit : bits[lane / 64] & ~bit;
}

/* True if a thread waits for the lane. A thread that begins to wait stores the wish, then sets the
 * bit. The engine clears the bit before its last load of the wish. The engine clears bits only
 * here, when it chooses a turn. A bit that stays set saves the next waiter an atomic operation. */
static bool engine_lane_is_awaited(hdi_engine *engine, uint32_t lane)
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

/* The number of words with lanes that were made. A lane is made before its first command. So a
 * thread that loaded a lane's `head` before this load finds that lane counted. */
static uint32_t engine_lane_words(const hdi_engine *engine)
{
    return atomic_load_explicit(&engine->words, memory_order_seq_cst);
}

static void engine_visit_lane(hdi_engine *engine, uint32_t lane, hdi_pass *pass)
{
    hdi_stream *stream = &engine->streams[lane];
    bool more = hdi_stream_visit(engine, stream, pass);
    /* If at most this many slots are left to issue, the lane is no longer full. This code counts
     * slots instead of commands, since it would have to read the ring to count commands. */
    uint64_t head = atomic_load_explicit(&engine->device->channel.lanes[lane].head, memory_order_relaxed);
    engine_put_bit(engine->full, lane, more && head - stream->issued > LITTLE);
}

/* The next full lane behind `last`; HDI_LANES_MAX: none. */
static uint32_t engine_next_full(hdi_engine *engine, uint32_t last, bool awaited)
{
    const uint32_t lanes = engine_lane_words(engine) * 64;
    for (uint32_t i = 1; i <= lanes; i++) {
        uint32_t lane = (last + i) % lanes;
        uint64_t left = engine->full[lane / 64] >> lane % 64;
        if (!left) {
            i += 63 - lane % 64;
        } else if (left & 1 && (!awaited || engine_lane_is_awaited(engine, lane))) {
            return lane;
        }
    }
    return HDI_LANES_MAX;
}

/* Gives a full lane a turn. False: none is full. */
static bool engine_give_turn(hdi_engine *engine, hdi_pass *pass)
{
    uint32_t lane = HDI_LANES_MAX;
    engine->turns++;
    if (engine->turns % 2) {
        lane = engine_next_full(engine, engine->awaited_turn, true);
        engine->awaited_turn = lane < HDI_LANES_MAX ? lane : engine->awaited_turn;
    }
    if (lane == HDI_LANES_MAX) {
        lane = engine_next_full(engine, engine->full_turn, false);
        engine->full_turn = lane < HDI_LANES_MAX ? lane : engine->full_turn;
    }
    if (lane == HDI_LANES_MAX) {
        return false;
    }
    engine_visit_lane(engine, lane, pass);
    return true;
}

/* True if the lane became full since its last visit. From now on the lane waits for its turn, like
 * other full lanes. */
static bool engine_lane_has_filled(hdi_engine *engine, uint32_t lane)
{
    hdi_stream *stream = &engine->streams[lane];
    const hdi_channel *channel = &engine->device->channel;
    if (!atomic_load_explicit(&stream->made, memory_order_acquire) ||
        atomic_load_explicit(&stream->blocked, memory_order_relaxed)) {
        return false;
    }
    uint64_t head = atomic_load_explicit(&channel->lanes[lane].head, memory_order_acquire);
    /* Submitters may overwrite slots in front of `done`, so the loop below must not read them. */
    hdi_stream_catch_up(engine, stream, head);
    uint64_t at = stream->issued;
    if (head - at <= LITTLE || head - at > channel->slots) {
        return false; /* the visit checks for impossible values */
    }
    for (int i = 0; i < LITTLE && at < head; i++) {
        at += *(const volatile uint8_t *)&hdi_command_at(channel, lane, at)->slots;
    }
    return at < head;
}

/* True if all work of the lane is done. A program that ends a claim without the engine moves `done`
 * first and `head` last (hdi_claim_end_unseen). If the engine sees only one of these stores, the
 * lane gets a visit. */
static bool engine_lane_is_done(const hdi_lane_shared *lane)
{
    uint64_t head = atomic_load_explicit(&lane->head, memory_order_seq_cst);
    return head == atomic_load_explicit(&lane->done, memory_order_acquire);
}

static bool engine_lane_is_quiet(const hdi_engine *engine, uint32_t lane)
{
    const hdi_stream *stream = &engine->streams[lane];
    const hdi_lane_shared *shared = &engine->device->channel.lanes[lane];
    return atomic_load_explicit(&stream->made, memory_order_acquire) &&
           (atomic_load_explicit(&shared->head, memory_order_acquire) == stream->done || engine_lane_is_done(shared));
}

/* Clears the bits in `active` of lanes that were quiet for a while. An earlier removal would not
 * pay: most lanes soon get work again, and a submission to an active lane is cheaper. */
static void engine_retire_quiet(hdi_engine *engine, const uint64_t *active, hdi_pass *pass)
{
    uint64_t off[WORDS] = {0};
    const uint32_t words = engine_lane_words(engine);
    bool any = false;
    engine->retired_at = pass->now;
    for (uint32_t w = 0; w < words; w++) {
        for (uint64_t bits = active[w] & ~engine->full[w]; bits; bits &= bits - 1) {
            uint32_t lane = w * 64 + (uint32_t)__builtin_ctzll(bits);
            const hdi_stream *stream = &engine->streams[lane];
            if (stream->quiet_since && pass->now - stream->quiet_since > QUIET_NS &&
                engine_lane_is_quiet(engine, lane)) {
                engine_put_bit(off, lane, true);
                any = true;
            }
        }
        if (off[w]) {
            /* The bit is cleared before the last look at `head`, see hdi_engine_notify. */
            atomic_fetch_and_explicit(&engine->shared->active[w], ~off[w], memory_order_seq_cst);
        }
    }
    if (!any) {
        return;
    }
    engine_see_heads(engine);
    for (uint32_t w = 0; w < words; w++) {
        for (uint64_t bits = off[w]; bits; bits &= bits - 1) {
            uint32_t lane = w * 64 + (uint32_t)__builtin_ctzll(bits);
            if (!engine_lane_is_done(&engine->device->channel.lanes[lane])) {
                atomic_fetch_or_explicit(&engine->shared->active[w], bits & -bits, memory_order_seq_cst);
                pass->progress = true;
            }
        }
    }
}

/* Visits the lanes that are not full. Returns the number of visits. */
static uint32_t engine_visit_light(hdi_engine *engine, const uint64_t *active, hdi_pass *pass)
{
    uint32_t n = 0;
    const uint32_t words = engine_lane_words(engine);
    for (uint32_t w = 0; w < words; w++) {
        for (uint64_t bits = active[w] & ~engine->full[w]; bits; bits &= bits - 1) {
            uint32_t lane = w * 64 + (uint32_t)__builtin_ctzll(bits);
            hdi_stream *stream = &engine->streams[lane];
            if (engine_lane_is_quiet(engine, lane)) {
                stream->quiet_since = stream->quiet_since ? stream->quiet_since : pass->now;
                continue;
            }
            stream->quiet_since = 0;
            if (engine_lane_has_filled(engine, lane)) {
                engine_put_bit(engine->full, lane, true);
            } else {
                engine_visit_lane(engine, lane, pass);
                n++;
            }
        }
    }
    return n;
}

/* Checks some of the full lanes, in turn, so that the engine notices finished work there long
 * before their next visit. */
static void engine_look_at_full(hdi_engine *engine, hdi_pass *pass)
{
    uint32_t first = HDI_LANES_MAX;
    for (int i = 0; i < LOOKED_AT; i++) {
        uint32_t lane = engine_next_full(engine, engine->looked_at, false);
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

/* While work is in flight, a pass comes SLEEP_MOST_NS after the previous pass at the latest. A far
 * longer gap shows that the engine could not run: the program was stopped, or the machine was too
 * busy. Perhaps the work could not run either. So the watchdog does not count such a gap. Time in a
 * driver call is no gap. With placement=inline, the work may have run during a gap, while the
 * program did something else. There a part of each gap counts, so that the watchdog notices work
 * without end after several passes. */
static void engine_watch_time(hdi_engine *engine, int64_t now)
{
    int64_t gap = engine->now ? now - engine->now : 0, part = engine->watchdog_ns / WATCH_PART;
    int64_t late = part < LATE_NS ? part : LATE_NS;
    if (engine->device->runtime->is_inline) {
        engine->unwatched += gap > part ? gap - part : 0;
    } else if (gap > late) {
        engine->unwatched += gap;
    }
}

/* One round over the lanes with any work. */
static hdi_pass engine_pass(hdi_engine *engine)
{
    hdi_pass pass = {.now = hdi_clock_ns()};
    if (__builtin_expect(engine->watchdog_ns != 0, 0)) {
        engine_watch_time(engine, pass.now);
    }
    engine->now = pass.now;
    /* one writer; relaxed: its reader waits far longer than a store takes to become visible */
    atomic_store_explicit(&engine->shared->heartbeat,
                          atomic_load_explicit(&engine->shared->heartbeat, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    if (hdi_recording_is_wanted(engine->shared, &engine->recording)) {
        hdi_recording_pass(engine);
        pass.in_flight = engine->recording.ending;
    }
    uint64_t active[WORDS] = {0}; /* words of lanes that are made meanwhile count as empty */
    const uint32_t words = engine_lane_words(engine);
    for (uint32_t w = 0; w < words; w++) {
        active[w] = atomic_load_explicit(&engine->shared->active[w], memory_order_seq_cst);
    }
    uint32_t light = engine_visit_light(engine, active, &pass);
    uint32_t lanes = light;
    for (uint32_t w = 0; w < words; w++) {
        lanes += (uint32_t)__builtin_popcountll(engine->full[w]);
    }
    if (light && lanes > 1) {
        engine->company_at = pass.now;
    }
    engine->has_company = pass.now - engine->company_at < COMPANY_NS;
    for (uint32_t turns = 0; turns <= light / LIGHT_PER_TURN && engine_give_turn(engine, &pass); turns++) {
    }
    engine_look_at_full(engine, &pass);
    if (pass.now - engine->retired_at > QUIET_NS) {
        engine_retire_quiet(engine, active, &pass);
    }
    for (uint32_t w = 0; w < words; w++) {
        pass.progress |= engine->full[w] != 0;
        pass.in_flight |= engine->full[w] != 0;
    }
    return pass;
}

/* ---- running, sleeping ---- */

/* True if the lane stands at an open claim. Like the load of `head`, this load comes after the
 * store of `asleep` and after engine_see_heads. */
static bool engine_lane_is_claimed(const hdi_stream *stream, const hdi_lane_shared *shared)
{
    uint64_t to = atomic_load_explicit(&stream->claimed_to, memory_order_relaxed);
    return to && atomic_load_explicit(&shared->ended, memory_order_seq_cst) < to;
}

/* True if some active lane could issue commands now. `timed`: the next sleep is timed. Then a
 * blocked lane does not count, since it gets a visit after the sleep. */
static bool engine_has_new_work(hdi_engine *engine, bool timed)
{
    for (uint32_t w = 0, words = engine_lane_words(engine); w < words; w++) {
        uint64_t bits = atomic_load_explicit(&engine->shared->active[w], memory_order_seq_cst);
        while (bits) {
            uint32_t lane = w * 64 + (uint32_t)__builtin_ctzll(bits);
            bits &= bits - 1;
            hdi_lane_shared *shared = &engine->device->channel.lanes[lane];
            uint64_t head = atomic_load_explicit(&shared->head, memory_order_seq_cst);
            const hdi_stream *stream = &engine->streams[lane];
            if (head != atomic_load_explicit(&shared->issued, memory_order_acquire) &&
                !engine_lane_is_claimed(stream, shared) &&
                !(timed && atomic_load_explicit(&stream->blocked, memory_order_relaxed))) {
                return true;
            }
        }
    }
    return false;
}

static bool engine_has_wishes(hdi_engine *engine)
{
    for (uint32_t w = 0, words = engine_lane_words(engine); w < words; w++) {
        uint64_t bits = atomic_load_explicit(&engine->shared->active[w], memory_order_seq_cst);
        while (bits) {
            uint32_t lane = w * 64 + (uint32_t)__builtin_ctzll(bits);
            bits &= bits - 1;
            const hdi_stream *stream = &engine->streams[lane];
            hdi_lane_shared *shared = &engine->device->channel.lanes[lane];
            /* A lane gets wishes only after commands. Another thread may have made the stream:
             * pairs with the release store in hdi_stream_make. In a worker process, the thread that
             * serves requests makes streams. */
            if (!atomic_load_explicit(&stream->made, memory_order_acquire) || engine_lane_is_done(shared)) {
                continue; /* all work of the lane is done, so its wishes are met */
            }
            if (stream->done == stream->issued && engine_lane_is_claimed(stream, shared)) {
                continue; /* the program's end of the claim rings the doorbell */
            }
            if (atomic_load_explicit(&shared->wanted_host, memory_order_seq_cst) > stream->signalled ||
                atomic_load_explicit(&shared->wanted_event, memory_order_seq_cst) > stream->event_last ||
                atomic_load_explicit(&shared->wanted_now, memory_order_seq_cst) > stream->event_last) {
                return true;
            }
        }
    }
    return false;
}

/* Gives stores of submitters time to become visible. Before a timed sleep this is enough: the sleep
 * ends by itself, so a missed store costs little. To interrupt every processor would cost more. */
static void engine_let_stores_be_seen(void)
{
    int64_t end = hdi_clock_ns() + SEEN_NS;
    while (hdi_clock_ns() < end) {
        hdi_spin_turn();
    }
}

static void engine_sleep_until_needed(hdi_engine *engine, bool in_flight, bool first, int64_t sleep_ns)
{
    uint32_t doorbell = atomic_load_explicit(&engine->shared->doorbell, memory_order_seq_cst);
    /* Sequentially consistent with the submitter's store of `head` followed by its load of
     * `asleep`. */
    atomic_store_explicit(&engine->shared->asleep, 1, memory_order_seq_cst);
    if (!in_flight) {
        engine_see_heads(engine);
    } else if (engine->fences) {
        engine_let_stores_be_seen();
    }
    uint32_t recording = atomic_load_explicit(&engine->shared->recording, memory_order_seq_cst);
    bool needed = engine_has_new_work(engine, in_flight) || (first && engine_has_wishes(engine)) ||
                  (recording != engine->recording.detail && !engine->recording.ending) ||
                  atomic_load_explicit(&engine->stop, memory_order_seq_cst);
    if (!needed) {
        atomic_fetch_add_explicit(&engine->shared->sleeps, 1, memory_order_relaxed);
        /* with CUPTI the sleep is limited, since the next pass records CUPTI's reports */
        bool for_ever = !in_flight && !engine->chains_used && engine->recording.detail != HDI_RECORD_DETAIL_CUPTI;
        hdi_futex_wait(&engine->shared->doorbell, doorbell,
                       for_ever ? INT64_MAX : hdi_clock_ns() + (in_flight ? sleep_ns : TIDY_NS));
    }
    atomic_store_explicit(&engine->shared->asleep, 0, memory_order_seq_cst);
}

int64_t hdi_engine_sleep_after(int64_t quiet)
{
    int64_t sleep_ns = quiet / (hdi_cpu_count() < FEW_PROCESSORS ? SLEEP_PART_OF_FEW : SLEEP_PART);
    return sleep_ns < SLEEP_LEAST_NS ? SLEEP_LEAST_NS : sleep_ns > SLEEP_MOST_NS ? SLEEP_MOST_NS : sleep_ns;
}

/* The last step of the thread. After it, hdi_engine_stop joins the thread without waiting for the
 * driver. */
static void engine_end_thread(hdi_engine *engine)
{
    atomic_store_explicit(&engine->started, HDI_ENGINE_ENDED, memory_order_release);
    hdi_futex_wake(&engine->started, 1);
}

/* Makes chains that lanes lack, while no lane has work. */
static void engine_make_chains(hdi_engine *engine)
{
    if (__builtin_expect(atomic_load_explicit(&engine->chains_lack, memory_order_relaxed), 0)) {
        hdi_chains_provide(engine, NULL, NULL);
        if (engine->chain_fatal) {
            hdi_engine_lose(engine, engine->chain_fatal);
            engine->chain_fatal = 0;
        }
    }
}

static void *engine_thread(void *argument)
{
    hdi_engine *engine = argument;
    hd_runtime *rt = engine->device->runtime;
    hdi_captures_ignore(rt->driver);
    hdcu_result r = rt->driver->cuCtxSetCurrent(engine->device->context);
    /* pairs with the acquire load in engine_start_thread */
    engine->start_code = r;
    atomic_store_explicit(&engine->started, HDI_ENGINE_RUNS, memory_order_release);
    hdi_futex_wake(&engine->started, 1);
    if (r != HDCU_SUCCESS) {
        engine_end_thread(engine);
        return NULL;
    }
    int64_t quiet_since = 0;
    /* the next timed sleep is the first one since the engine last made progress */
    bool first = true;
    /* Sets the timer slack of this thread only. Its timed sleeps are shorter than the usual
     * slack. */
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    while (!atomic_load_explicit(&engine->stop, memory_order_acquire)) {
        hdi_pass pass = engine_pass(engine);
        if (pass.progress) {
            quiet_since = 0;
            first = true;
            continue;
        }
        engine_make_chains(engine);
        if (!quiet_since) {
            quiet_since = pass.now;
        }
        if (pass.now - quiet_since < rt->spin_ns) {
            for (int i = 0; i < SPINS_PER_LOOK; i++) {
                hdi_spin_turn();
            }
            continue;
        }
        hdi_chains_prune(engine, pass.now);
        uint32_t doorbell = atomic_load_explicit(&engine->shared->doorbell, memory_order_relaxed);
        engine_sleep_until_needed(engine, pass.in_flight, first, hdi_engine_sleep_after(pass.now - quiet_since));
        first = !pass.in_flight || doorbell != atomic_load_explicit(&engine->shared->doorbell, memory_order_relaxed);
        quiet_since = first ? 0 : quiet_since;
    }
    rt->driver->cuCtxSetCurrent(NULL);
    engine_end_thread(engine);
    return NULL;
}

#define BAD_ENTRIES_MAX 8

/* Makes the device's context current on this thread. If the driver refuses several times in a row,
 * the device is useless, so the engine loses it. False: the driver refused, but the device is not
 * lost yet. A pass without a context then fails all awaited work. */
static bool engine_enter_inline(hdi_engine *engine, hdi_scope *scope)
{
    hdi_attempt attempt; /* this attempt leaves the caller's error message alone */
    hdi_attempt_begin(&attempt);
    hd_status status = hdi_scope_enter(engine->device, scope);
    hdi_attempt_end(&attempt);
    if (status == HD_OK) {
        engine->bad_entries = 0;
        return true;
    }
    if (hdi_driver_code_is_fatal(attempt.error.driver_code) || ++engine->bad_entries >= BAD_ENTRIES_MAX) {
        hdi_engine_lose(engine, attempt.error.driver_code);
        return true;
    }
    return false;
}

bool hdi_engine_run_inline(hdi_device *device)
{
    hdi_engine *engine = device->engine;
    hdi_scope scope;
    bool progress = false;
    do {
        if (!hdi_mutex_try(&engine->running)) {
            /* After the thread that holds `running` releases it, that thread looks for new commands
             * once more. */
            return progress;
        }
        if (!engine_enter_inline(engine, &scope)) {
            hdi_mutex_unlock(&engine->running);
            return progress; /* threads that wait try again */
        }
        while (engine_pass(engine).progress) {
            progress = true;
        }
        engine_make_chains(engine);
        hdi_chains_prune(engine, engine->now);
        hdi_scope_leave(&scope);
        hdi_mutex_unlock(&engine->running);
    } while (engine_has_new_work(engine, true));
    return progress;
}

/* ---- beginning and end ---- */

static hd_status engine_start_thread(hdi_engine *engine)
{
    hdi_device *device = engine->device;
    int error = hdi_thread_start(&engine->thread, engine_thread, engine);
    if (error) {
        return hdi_fail(HD_ERROR_SYSTEM,
                        "cannot start the engine thread of device %d: %s; allow more threads (ulimit -u), or memory "
                        "for them (ulimit -v)",
                        device->index, strerror(error));
    }
    engine->has_thread = true;
    /* pairs with the release store in engine_thread */
    while (atomic_load_explicit(&engine->started, memory_order_acquire) == 0) {
        hdi_futex_wait(&engine->started, 0, INT64_MAX);
    }
    int code = engine->start_code;
    return code == HDCU_SUCCESS ? HD_OK : hdi_driver_failed(device, code, "cuCtxSetCurrent");
}

/* Makes this engine a user of the streams that hd_open makes ahead (stream_pool.h). */
static void engine_join_streams(hdi_device *device)
{
    hdi_current current;
    const char *call = "";
    bool entered = hdi_current_enter(device->runtime->driver, device->context, &current, &call) == HDCU_SUCCESS;
    hdi_stream_pool_join(device, entered);
    if (entered) {
        hdi_current_leave(&current);
    }
}

hd_status hdi_engine_create(hdi_device *device)
{
    hdi_engine *engine = aligned_alloc(HDI_LINE, (sizeof *engine + HDI_LINE - 1) / HDI_LINE * HDI_LINE);
    if (!engine) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for the engine of device %d", device->index);
    }
    *engine = (hdi_engine){
        .device = device,
        .shared = device->channel.engine,
        .watchdog_ns = device->runtime->options.watchdog * 1000000,
        .entries_most = device->runtime->is_inline ? ENTRIES_MOST_INLINE : ENTRIES_MOST,
    };
    for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
        engine->streams[i].number = i;
    }
    hdi_mutex_init(&engine->running, HDI_RANK_ENGINE);
    hdi_chains_start(engine);
    hdi_blocked_start(engine);
    engine_take_fences(engine);
    device->engine = engine;
    engine_join_streams(device);
    if (device->runtime->is_inline) {
        return HD_OK;
    }
    return engine_start_thread(engine);
}

bool hdi_engine_stop(hdi_device *device, int64_t deadline)
{
    hdi_engine *engine = device->engine;
    if (!engine || !engine->has_thread) {
        return true;
    }
    atomic_store_explicit(&engine->stop, true, memory_order_seq_cst);
    hdi_engine_ring(engine->shared);
    for (uint32_t state; (state = atomic_load_explicit(&engine->started, memory_order_acquire)) != HDI_ENGINE_ENDED;) {
        if (!hdi_futex_wait(&engine->started, state, deadline)) {
            pthread_detach(engine->thread);
            return false;
        }
    }
    pthread_join(engine->thread, NULL);
    engine->has_thread = false;
    return true;
}

uint64_t hdi_engine_function(const hdi_device *device)
{
    return device->engine ? atomic_load_explicit(&device->engine->in_function, memory_order_relaxed) : 0;
}

bool hdi_engine_is_busy(hdi_device *device)
{
    hdi_engine *engine = device->engine;
    hdi_scope scope;
    if (!engine || hdi_scope_enter(device, &scope) != HD_OK) {
        return false; /* a context that cannot be made current does no work */
    }
    bool busy = false;
    for (uint32_t i = 0; i < HDI_LANES_MAX && !busy; i++) {
        const hdi_stream *stream = &engine->streams[i];
        busy = stream->handle && device->runtime->driver->cuStreamQuery(stream->handle) == HDCU_ERROR_NOT_READY;
    }
    hdi_scope_leave(&scope);
    return busy;
}

hdi_answer hdi_stream_make(hdi_engine *engine, uint32_t number, bool sticky_failure)
{
    hdi_device *device = engine->device;
    hdi_stream *stream = &engine->streams[number];
    hdi_current current;
    hdi_answer answer = {.call = ""};
    answer.code = hdi_current_enter(device->runtime->driver, device->context, &current, &answer.call);
    if (!hdi_answered(answer)) {
        return answer;
    }
    if (!stream->handle) {
        answer.call = "cuStreamCreate";
        answer.code = hdi_stream_pool_take(device, &stream->handle);
    }
    hdi_current_leave(&current);
    if (!hdi_answered(answer)) {
        stream->handle = NULL;
        return answer;
    }
    /* The position is not 0 if a former engine, which is gone, already did work in this lane. */
    uint64_t position = atomic_load_explicit(&device->channel.lanes[number].done, memory_order_acquire);
    stream->number = number;
    if (engine_lane_words(engine) <= number / 64) { /* the caller makes one lane at a time */
        atomic_store_explicit(&engine->words, number / 64 + 1, memory_order_seq_cst);
    }
    stream->lost_to = atomic_load_explicit(&device->channel.lanes[number].lost_to, memory_order_acquire);
    stream->issued = stream->done = stream->passed = stream->signalled = stream->event_last = position;
    atomic_store_explicit(&device->channel.flags[number].position, (uint32_t)position, memory_order_relaxed);
    stream->sticky_failure = sticky_failure;
    /* pairs with the loads in times.c; times of a former engine had another zero point */
    atomic_store_explicit(&device->channel.lanes[number].times_after, position, memory_order_release);
    /* pairs with the acquire load in hdi_engine_lose, and precedes the first command of the lane */
    atomic_store_explicit(&stream->made, true, memory_order_release);
    /* The lane contains commands of a former worker. No submitter rings for them, and the engine
     * may sleep. */
    if (atomic_load_explicit(&device->channel.lanes[number].head, memory_order_acquire) != position) {
        hdi_engine_ring(engine->shared);
    }
    return answer;
}

void hdi_engine_destroy(hdi_device *device, bool driver_usable)
{
    hdi_engine *engine = device->engine;
    if (!engine) {
        return;
    }
    const hdi_driver *driver = device->runtime->driver;
    hdi_chains_end(engine, driver_usable);
    hdi_recording_end(engine, driver_usable);
    hdi_times_end(engine, driver_usable);
    for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
        hdi_stream *stream = &engine->streams[i];
        for (int e = 0; driver_usable && e < HDI_EVENTS_PER_LANE; e++) {
            if (stream->event[e]) {
                driver->cuEventDestroy(stream->event[e]);
            }
        }
        /* After a loss the context does no more work, and a library promises nothing there. */
        hdi_blas_close(atomic_load_explicit(&stream->blas, memory_order_relaxed),
                       driver_usable && !hdi_device_lost(device));
        hdi_stream_pool_put(device, stream->handle, driver_usable);
        free(stream->dependencies);
    }
    hdi_stream_pool_leave(device, driver_usable);
    hdi_mutex_destroy(&engine->running);
    free(engine);
    device->engine = NULL;
}
