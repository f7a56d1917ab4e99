/* alloc_beside.c - measures allocations beside kernels: in parallel streams, frees while a kernel
 * runs, and how much another thread's allocations slow the kernels of a lane.
 *
 * Threads: the conductor submits; one other thread allocates. Locks: none.
 * Always: every side runs the same kernels and allocations. The kernels' results are checked.
 */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "bench/alloc_parts.h"

enum {
    STREAM_KERNELS = 4, /* kernels in one run */
    STREAM_RUNS = 20,   /* most runs in a round */
    BUSY_TRIES = 5,
    BATCH = 16, /* launches between two readings of the clock; at most two batches are in flight */
    FILL_WORDS = 1024,
    GROWTH_MOST = 32,
    RANDOM_ALLOCATIONS = 2000
};

/* ---- streams ---- */

typedef struct stream_side {
    alloc_kernels kernels;
    alloc_spin spin;
    alloc_slot keep[STREAM_KERNELS]; /* keeps the results for the check */
} stream_side;

typedef struct stream_more {
    bool cold;
    double kernel_ns;
    stream_side sides[ALLOC_KINDS];
} stream_more;

/* Allocates a buffer for each kernel, and frees it behind the kernel in its stream. Measures the
 * time until everything is done, in nanoseconds. */
static alloc_end bench_stream_run(alloc_work *w, alloc_side *s, uint64_t *ticks, char *error)
{
    stream_side *m = &((stream_more *)w->more)->sides[s->kind];
    uint64_t begin = cli_stats_tick_begin();
    for (int i = 0; i < STREAM_KERNELS; i++) {
        uint32_t lane = (uint32_t)(i % w->lanes);
        alloc_slot c;
        alloc_end end = bench_alloc_take(s, lane, w->bytes, &c, error);
        if (end != ALLOC_DONE) {
            return end;
        }
        bool ok = alloc_spin_launch(&m->spin, lane, c, error) &&
                  alloc_launch_copy(&m->kernels, lane, m->keep[i], c, ALLOC_SPIN_BYTES / 4, error);
        char later[PLAIN_ERROR];
        if (!bench_alloc_give(s, lane, &c, ok ? error : later) || !ok) {
            return ALLOC_FAILED;
        }
    }
    for (int lane = 0; lane < w->lanes; lane++) {
        if (!bench_alloc_wait(s, (uint32_t)lane, error)) {
            return ALLOC_FAILED;
        }
    }
    *ticks = cli_stats_tick_end() - begin;
    return ALLOC_DONE;
}

static alloc_end bench_streams_prepare(alloc_work *w, alloc_side *s, alloc_result *r, char *error)
{
    stream_more *more = w->more;
    stream_side *m = &more->sides[s->kind];
    uint64_t ticks;
    (void)r;
    if (!alloc_kernels_open(s, &m->kernels, error) || !alloc_spin_open(&m->kernels, more->kernel_ns, &m->spin, error)) {
        return ALLOC_FAILED;
    }
    for (int i = 0; i < STREAM_KERNELS; i++) {
        alloc_end end = bench_alloc_take(s, 0, ALLOC_SPIN_BYTES, &m->keep[i], error);
        if (end != ALLOC_DONE) {
            return end;
        }
    }
    return bench_stream_run(w, s, &ticks, error); /* warms up: loads code and grows memory */
}

static alloc_end bench_streams_round(alloc_work *w, alloc_side *s, int round, alloc_result *r, char *error)
{
    stream_more *more = w->more;
    stream_side *m = &more->sides[s->kind];
    uint64_t end = bench_alloc_slice_end(s->x, 1), sum = 0;
    int runs = 0;
    for (; runs < STREAM_RUNS && (runs == 0 || cli_stats_monotonic() < end); runs++) {
        uint64_t ticks = 0;
        if (more->cold && !bench_alloc_side_trim(s, error)) {
            return ALLOC_FAILED;
        }
        alloc_end result = bench_stream_run(w, s, &ticks, error);
        if (result != ALLOC_DONE) {
            return result;
        }
        cli_stats_record(r->histogram, ticks);
        sum += ticks;
    }
    for (int i = 0; i < STREAM_KERNELS; i++) {
        if (!alloc_spin_check(&m->spin, 0, m->keep[i], error)) {
            return ALLOC_FAILED;
        }
    }
    r->rounds[round] = r->means[round] = (double)sum * stats_the_clock.ns_per_tick / runs;
    r->n_rounds = round + 1;
    r->operations += (uint64_t)runs * STREAM_KERNELS * 2;
    return ALLOC_DONE;
}

static alloc_end bench_streams_finish(alloc_work *w, alloc_side *s, alloc_result *r, char *error)
{
    stream_side *m = &((stream_more *)w->more)->sides[s->kind];
    (void)r;
    bool ok = bench_alloc_give_all(s, m->keep, STREAM_KERNELS, error);
    alloc_spin_close(&m->spin);
    alloc_kernels_close(&m->kernels);
    return ok ? ALLOC_DONE : ALLOC_FAILED;
}

/* a: the number of streams; b: 1 if every run starts without memory */
bool bench_alloc_run_streams(alloc_experiment *x, const alloc_step *step, char *error)
{
    stream_more *more = calloc(1, sizeof(*more));
    if (!more) {
        snprintf(error, PLAIN_ERROR, "out of memory");
        return false;
    }
    more->cold = step->b != 0;
    more->kernel_ns = x->on_host ? 1e6 : 0.5e6; /* about a million cycles on a GPU */
    alloc_case *c = bench_alloc_case_add(x, step);
    c->unit = "run";
    c->bytes = ALLOC_MIB;
    alloc_work w = {.lanes = (int)step->a,
                    .prepare = bench_streams_prepare,
                    .round = bench_streams_round,
                    .finish = bench_streams_finish,
                    .bytes = ALLOC_MIB,
                    .more = more};
    bool ok = bench_alloc_case_run(x, c, &w, error);
    free(more);
    return ok;
}

/* ---- frees while a kernel runs ---- */

typedef struct busy_side {
    alloc_side side;
    alloc_kernels kernels;
    alloc_spin spin;
    alloc_slot keep;
} busy_side;

static bool bench_open_busy(alloc_experiment *x, alloc_kind kind, double ns, busy_side *b, char *error)
{
    return bench_alloc_side_open(x, kind, 2, "", &b->side, error) && alloc_kernels_open(&b->side, &b->kernels, error) &&
           alloc_spin_open(&b->kernels, ns, &b->spin, error) &&
           bench_alloc_take(&b->side, 0, ALLOC_SPIN_BYTES, &b->keep, error) == ALLOC_DONE;
}

static bool bench_close_busy(busy_side *b, char *error)
{
    bool ok = !b->side.x || bench_alloc_give(&b->side, 0, &b->keep, error);
    alloc_spin_close(&b->spin);
    alloc_kernels_close(&b->kernels);
    bench_alloc_side_close(&b->side);
    return ok;
}

/* Frees a block of 8 MiB while a kernel runs: the block that the kernel writes (in its lane), or
 * an unused one (in another lane). *ns is NaN if the kernel had ended before the free. */
static bool bench_free_beside(busy_side *b, bool used, double *ns, char *error)
{
    alloc_side *s = &b->side;
    alloc_slot block;
    uint32_t lane = used ? 0 : 1;
    if (bench_alloc_take(s, lane, 8 * ALLOC_MIB, &block, error) != ALLOC_DONE ||
        !alloc_spin_launch(&b->spin, 0, used ? block : b->keep, error) ||
        (used && !alloc_launch_copy(&b->kernels, 0, b->keep, block, ALLOC_SPIN_BYTES / 4, error))) {
        return false;
    }
    bool running = bench_alloc_is_busy(s, 0);
    uint64_t begin = cli_stats_tick_begin();
    bool ok = bench_alloc_give(s, lane, &block, error);
    uint64_t ticks = cli_stats_tick_end() - begin;
    double took = (double)ticks * stats_the_clock.ns_per_tick - stats_the_clock.empty_ns;
    *ns = running ? (took > 0 ? took : 0) : NAN;
    return ok && bench_alloc_wait(s, 0, error) && alloc_spin_check(&b->spin, 0, b->keep, error);
}

static bool bench_busy_round(busy_side *b, int round, alloc_busy *out, char *error)
{
    alloc_kind kind = b->side.kind;
    if (!bench_alloc_side_enter(&b->side, error)) {
        return false;
    }
    for (int used = 0; used < 2; used++) {
        double ns = NAN;
        for (int i = 0; i < BUSY_TRIES && isnan(ns); i++) {
            if (!bench_free_beside(b, used != 0, &ns, error)) {
                return false;
            }
        }
        if (isnan(ns)) {
            snprintf(error, PLAIN_ERROR, "%s: the kernel is always over before the free begins",
                     alloc_kind_names[kind]);
            return false;
        }
        (used ? out->used : out->unused)[kind][round] = ns;
    }
    return true;
}

/* a: duration of the kernel in milliseconds */
bool bench_alloc_run_busy(alloc_experiment *x, const alloc_step *step, char *error)
{
    busy_side *sides = calloc(ALLOC_KINDS, sizeof(*sides));
    bool ok = sides != NULL;
    alloc_busy *out = &x->busy;
    if (!ok) {
        snprintf(error, PLAIN_ERROR, "out of memory");
        return false;
    }
    for (int k = 0; k < ALLOC_KINDS && ok; k++) {
        out->measured[k] = bench_alloc_takes_part(x, (alloc_kind)k, false);
        ok = !out->measured[k] || bench_open_busy(x, (alloc_kind)k, (double)step->a * 1e6, &sides[k], error);
    }
    out->kernel_ms = sides[ALLOC_HEDDLE].spin.ns * 1e-6;
    for (int round = 0; round < x->rounds && ok; round++) {
        for (int i = 0; i < ALLOC_KINDS && ok; i++) {
            int k = (i + round) % ALLOC_KINDS;
            ok = !out->measured[k] || bench_busy_round(&sides[k], round, out, error);
        }
        out->rounds = round + ok;
    }
    for (int k = 0; k < ALLOC_KINDS; k++) {
        char later[PLAIN_ERROR];
        ok = bench_close_busy(&sides[k], ok ? error : later) && ok;
    }
    free(sides);
    return ok;
}

/* ---- kernels beside allocations ---- */

/* The thread that allocates, in lane 1. */
typedef struct allocating {
    alloc_side *side;
    alloc_storm_kind kind;
    const alloc_log *log;
    alloc_slot *slots; /* log->slots, or GROWTH_MOST */
    uint64_t block_bytes;
    int blocks;
    uint64_t deadline; /* of a replay */
    _Atomic bool stop;
    uint64_t done;
    bool ok;
    char error[PLAIN_ERROR];
} allocating;

/* Grows from nothing to many blocks, and back. */
static bool bench_grow_and_trim(allocating *a, bool check)
{
    alloc_side *s = a->side;
    uint64_t bytes[GROWTH_MOST];
    bool ok = true;
    for (int i = 0; i < a->blocks && ok; i++) {
        bytes[i] = a->block_bytes;
        ok = bench_alloc_take(s, 1, a->block_bytes, &a->slots[i], a->error) == ALLOC_DONE;
    }
    ok = ok && (!check || bench_alloc_check_live(s, a->slots, bytes, (size_t)a->blocks, a->error));
    for (int i = 0; i < a->blocks; i++) {
        ok = bench_alloc_give(s, 1, &a->slots[i], a->error) && ok;
    }
    a->done++;
    return ok && bench_alloc_wait(s, 1, a->error) && bench_alloc_side_trim(s, a->error);
}

static bool bench_replay_once(allocating *a, stats_histogram *ignored)
{
    alloc_replayed did;
    bool ok = bench_alloc_replay(a->side, a->log, a->deadline, a->slots, ignored, &did, a->error) == ALLOC_DONE;
    a->done += did.operations;
    for (uint32_t i = 0; i < a->log->slots; i++) {
        ok = bench_alloc_give(a->side, 1, &a->slots[i], a->error) && ok;
    }
    return ok;
}

static void *bench_allocate_main(void *argument)
{
    allocating *a = argument;
    stats_histogram *ignored = calloc(1, sizeof(*ignored));
    a->ok = ignored && bench_alloc_side_enter(a->side, a->error);
    /* publishes nothing else */
    while (a->ok && !atomic_load_explicit(&a->stop, memory_order_relaxed)) {
        a->ok = a->kind == ALLOC_BESIDE_GROWTH ? bench_grow_and_trim(a, false) : bench_replay_once(a, ignored);
    }
    free(ignored);
    return NULL;
}

typedef struct pace_side {
    alloc_side side;
    alloc_kernels kernels;
    alloc_slot y;
    hdcu_event event[2];
    allocating allocating;
} pace_side;

static bool bench_mark_batch(pace_side *p, hd_ticket *ticket, uint64_t batch, char *error)
{
    alloc_side *s = &p->side;
    if (s->kind == ALLOC_HEDDLE) {
        return cli_report_check(hd_lane_get_ticket(s->lane[0], &ticket[batch & 1]), "hd_lane_get_ticket", error);
    }
    return DRIVER_TRY(s->d, error, cuEventRecord, (p->event[batch & 1], s->stream[0]));
}

static bool bench_await_batch(pace_side *p, const hd_ticket *ticket, uint64_t batch, char *error)
{
    alloc_side *s = &p->side;
    if (s->kind == ALLOC_HEDDLE) {
        return cli_report_check(hd_wait(ticket[batch & 1], ALLOC_TIMEOUT_NS), "hd_wait", error);
    }
    return DRIVER_TRY(s->d, error, cuEventSynchronize, (p->event[batch & 1]));
}

/* Launches until the slices end. */
static bool bench_measure_pace(pace_side *p, double slices, alloc_pace *out, char *error)
{
    static stats_histogram submits; /* not reentrant */
    hd_ticket ticket[2] = {{NULL, 0}, {NULL, 0}};
    uint64_t batches = 0, begin = cli_stats_monotonic(), last = begin, longest = 0, now;
    uint64_t end = bench_alloc_slice_end(p->side.x, slices);
    uint32_t value = 0, found = 0;
    memset(&submits, 0, sizeof(submits));
    do {
        for (int i = 0; i < BATCH; i++) {
            uint64_t tick = cli_stats_tick_begin();
            bool ok = alloc_launch_fill(&p->kernels, 0, p->y, FILL_WORDS, ++value, error);
            cli_stats_record(&submits, cli_stats_tick_end() - tick);
            if (!ok) {
                return false;
            }
        }
        if (!bench_mark_batch(p, ticket, batches++, error) ||
            (batches > 1 && !bench_await_batch(p, ticket, batches, error))) {
            return false;
        }
        now = cli_stats_monotonic();
        longest = batches > 1 && now - last > longest ? now - last : longest;
        last = now;
    } while (now < end);
    if (!bench_alloc_read(&p->side, 0, p->y, 4 * (FILL_WORDS - 1), &found, sizeof(found), error)) {
        return false;
    }
    stats_calls calls = cli_stats_summarise(&submits);
    *out = (alloc_pace){.kernels_per_s = (double)(batches * BATCH) * 1e9 / (double)(now - begin),
                        .longest_gap_ns = (double)longest,
                        .submit_p99_ns = calls.p99_ns,
                        .submit_max_ns = calls.max_ns};
    p->side.x->results += found == value;
    if (found != value) {
        snprintf(error, PLAIN_ERROR, "%s: a kernel left %u and not %u", alloc_kind_names[p->side.kind], found, value);
    }
    return found == value;
}

/* Measures alone, then beside the allocating thread. */
static bool bench_pace_round(pace_side *p, int round, alloc_beside *out, char *error)
{
    allocating *a = &p->allocating;
    alloc_kind kind = p->side.kind;
    pthread_t thread;
    if (!bench_alloc_side_enter(&p->side, error) || !bench_measure_pace(p, 2, &out->alone[kind][round], error)) {
        return false;
    }
    a->done = 0;
    a->deadline = bench_alloc_slice_end(p->side.x, 5);
    /* the thread has not started yet */
    atomic_store_explicit(&a->stop, false, memory_order_relaxed);
    int failed = pthread_create(&thread, NULL, bench_allocate_main, a);
    if (failed) {
        snprintf(error, PLAIN_ERROR, "pthread_create: %s", strerror(failed));
        return false;
    }
    uint64_t begin = cli_stats_monotonic();
    bool ok = bench_measure_pace(p, 4, &out->beside[kind][round], error);
    atomic_store_explicit(&a->stop, true, memory_order_relaxed); /* the join orders the rest */
    pthread_join(thread, NULL);
    out->cycles_per_s[kind][round] = (double)a->done * 1e9 / (double)(cli_stats_monotonic() - begin);
    if (ok && !a->ok) {
        memcpy(error, a->error, PLAIN_ERROR);
    }
    return ok && a->ok;
}

static bool bench_open_pace(alloc_experiment *x, alloc_kind kind, alloc_storm_kind storm, const alloc_log *log,
                            pace_side *p, char *error)
{
    allocating *a = &p->allocating;
    size_t slots = storm == ALLOC_BESIDE_GROWTH ? GROWTH_MOST : log->slots;
    if (!bench_alloc_side_open(x, kind, 2, "", &p->side, error) || !alloc_kernels_open(&p->side, &p->kernels, error) ||
        bench_alloc_take(&p->side, 0, 4 * FILL_WORDS, &p->y, error) != ALLOC_DONE) {
        return false;
    }
    for (int i = 0; i < 2 && kind != ALLOC_HEDDLE; i++) {
        if (!DRIVER_TRY(x->driver, error, cuEventCreate, (&p->event[i], HDCU_EVENT_DISABLE_TIMING))) {
            return false;
        }
    }
    *a = (allocating){.side = &p->side, .kind = storm, .log = log};
    a->slots = calloc(slots, sizeof(*a->slots));
    a->blocks = x->on_host ? 8 : GROWTH_MOST;
    a->block_bytes = (x->on_host ? 8 : 32) * ALLOC_MIB;
    while (a->block_bytes > 64 << 10 && a->block_bytes * (uint64_t)a->blocks > x->room) {
        a->block_bytes /= 2;
    }
    if (!a->slots) {
        snprintf(error, PLAIN_ERROR, "out of memory");
        return false;
    }
    if (storm == ALLOC_BESIDE_GROWTH && !bench_grow_and_trim(a, true)) {
        memcpy(error, a->error, PLAIN_ERROR);
        return false;
    }
    return true;
}

static bool bench_close_pace(pace_side *p, char *error)
{
    bool ok = !p->side.x || bench_alloc_give(&p->side, 0, &p->y, error);
    for (int i = 0; i < 2; i++) {
        if (p->event[i]) {
            p->side.d->cuEventDestroy(p->event[i]);
        }
    }
    alloc_kernels_close(&p->kernels);
    bench_alloc_side_close(&p->side);
    free(p->allocating.slots);
    return ok;
}

static bool bench_run_paces(alloc_experiment *x, alloc_storm_kind storm, const alloc_log *log, char *error)
{
    alloc_beside *out = &x->beside[storm];
    for (int round = 0; round < x->rounds; round++) {
        for (int i = 0; i < ALLOC_KINDS; i++) {
            alloc_kind kind = (alloc_kind)((i + round) % ALLOC_KINDS);
            pace_side p;
            char later[PLAIN_ERROR];
            memset(&p, 0, sizeof(p));
            out->measured[kind] = bench_alloc_takes_part(x, kind, false);
            bool ok = !out->measured[kind] ||
                      (bench_open_pace(x, kind, storm, log, &p, error) && bench_pace_round(&p, round, out, error));
            if (!bench_close_pace(&p, ok ? error : later) || !ok) {
                return false;
            }
        }
        out->rounds = round + 1;
    }
    return true;
}

/* a: alloc_storm_kind */
bool bench_alloc_run_beside(alloc_experiment *x, const alloc_step *step, char *error)
{
    alloc_log log;
    uint64_t largest = x->on_host ? 4 * ALLOC_MIB : 64 * ALLOC_MIB;
    if (!bench_alloc_log_random(RANDOM_ALLOCATIONS, largest, x->room < 4096 * ALLOC_MIB ? x->room : 4096 * ALLOC_MIB, 1,
                                &log, error)) {
        return false;
    }
    for (size_t i = 0; i < log.count; i++) {
        log.ops[i].lane = 1;
    }
    bool ok = bench_run_paces(x, (alloc_storm_kind)step->a, &log, error);
    bench_alloc_log_release(&log);
    return ok;
}
