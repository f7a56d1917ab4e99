/* alloc_workloads.c - cases of one thread: pairs, random allocations, holes, many live blocks,
 * recorded programs. It also measures the cases of the other files.
 *
 * Threads: the conductor. Locks: none.
 * Always: every allocator of a case does the same work, in turns by rounds. In a case of much live
 * memory (`apart`) each allocator runs all its rounds at once. Its idle memory might not leave
 * enough for the next one. A slice limits the time of an allocator in one round, and the completed
 * part of a sequence is reported. An allocator frees its blocks before the next one begins, except
 * those that `prepare` made.
 */
#include <stdlib.h>
#include <string.h>
#include "bench/alloc_parts.h"

enum {
    CHUNK = 16, /* fewest pairs in a stretch */
    CHUNK_MOST = 1024,
    CHUNKS_LEAST = 9, /* in a round */
    CHUNKS_MOST = 1000,
    /* one allocator runs at a time if more than 4 / APART_SHARE of the room is live */
    APART_SHARE = 32,
    EACH_MOST = 20000, /* pairs that are timed separately */
    /* blocks of cuMemAlloc on a host device; each makes two mappings in the process */
    HOST_PLAIN_MOST = 16384
};

/* PLAIN opens first, so that it reads the driver's figure of free memory before others hold
 * memory. */
static const alloc_kind opening_order[ALLOC_KINDS] = {ALLOC_PLAIN, ALLOC_ASYNC, ALLOC_HEDDLE, ALLOC_LIBC};

/* ---- cases ---- */

bool bench_alloc_takes_part(const alloc_experiment *x, alloc_kind kind, bool with_libc)
{
    return kind == ALLOC_LIBC ? x->on_host && with_libc : kind != ALLOC_ASYNC || x->pool;
}

/* Removes a rival without room from the case. */
static bool bench_settle(alloc_result *r, alloc_kind kind, alloc_end end)
{
    if (end == ALLOC_NO_ROOM && kind != ALLOC_HEDDLE) {
        r->measured = false;
        if (!r->note[0]) {
            snprintf(r->note, sizeof(r->note), "out of memory");
        }
        return true;
    }
    return end == ALLOC_DONE;
}

static bool bench_start_side(alloc_experiment *x, alloc_case *c, alloc_work *w, alloc_kind kind, alloc_side *s,
                             char *error)
{
    alloc_result *r = &c->sides[kind];
    if (!bench_alloc_takes_part(x, kind, w->with_libc)) {
        snprintf(r->note, sizeof(r->note), "%s", kind == ALLOC_ASYNC ? "the driver has no memory pools" : "left out");
        return true;
    }
    if (kind == ALLOC_PLAIN && x->on_host && w->blocks > HOST_PLAIN_MOST) {
        snprintf(r->note, sizeof(r->note), "too many mappings for a process");
        return true;
    }
    r->histogram = calloc(1, sizeof(*r->histogram));
    if (!r->histogram) {
        snprintf(error, PLAIN_ERROR, "out of memory");
        return false;
    }
    r->measured = true;
    r->part = 1;
    return bench_alloc_side_open(x, kind, w->lanes, w->settings ? w->settings : "", s, error) &&
           bench_settle(r, kind, w->prepare ? w->prepare(w, s, r, error) : ALLOC_DONE);
}

/* Runs after a failure, too, because the blocks of `prepare` must be freed. */
static bool bench_end_side(alloc_work *w, alloc_side *s, alloc_result *r, char *error)
{
    bool ok = !s->x || !w->finish ||
              (bench_alloc_side_enter(s, error) && bench_settle(r, s->kind, w->finish(w, s, r, error)));
    if (ok && r->measured) {
        r->calls = cli_stats_summarise(r->histogram);
        r->driver_calls = bench_alloc_side_driver_calls(s, r->operations);
        r->reserved_peak = w->peaks ? bench_alloc_side_peak(s) : 0;
    }
    return ok;
}

static bool bench_run_rounds(alloc_experiment *x, alloc_case *c, alloc_work *w, alloc_side *sides, char *error)
{
    for (int round = 0; round < x->rounds; round++) {
        for (int i = 0; i < ALLOC_KINDS; i++) {
            alloc_kind kind = (alloc_kind)((i + round) % ALLOC_KINDS);
            alloc_result *r = &c->sides[kind];
            if (sides[kind].x && r->measured &&
                (!bench_alloc_side_enter(&sides[kind], error) ||
                 !bench_settle(r, kind, w->round(w, &sides[kind], round, r, error)))) {
                return false;
            }
        }
    }
    return true;
}

/* Runs `count` allocators in turns, from opening_order[first] on. */
static bool bench_run_sides(alloc_experiment *x, alloc_case *c, alloc_work *w, int first, int count, char *error)
{
    alloc_side *sides = calloc(ALLOC_KINDS, sizeof(*sides));
    bool ok = sides != NULL;
    if (!ok) {
        snprintf(error, PLAIN_ERROR, "out of memory");
        return false;
    }
    for (int i = first; i < first + count && ok; i++) {
        ok = bench_start_side(x, c, w, opening_order[i], &sides[opening_order[i]], error);
    }
    ok = ok && bench_run_rounds(x, c, w, sides, error);
    for (int i = first; i < first + count; i++) {
        alloc_kind kind = opening_order[i];
        char later[PLAIN_ERROR];
        ok = bench_end_side(w, &sides[kind], &c->sides[kind], ok ? error : later) && ok;
        bench_alloc_side_close(&sides[kind]);
        free(w->slots[kind]);
        free(c->sides[kind].histogram);
        c->sides[kind].histogram = NULL;
        w->slots[kind] = NULL;
    }
    free(sides);
    return ok;
}

bool bench_alloc_case_run(alloc_experiment *x, alloc_case *c, alloc_work *w, char *error)
{
    int count = w->apart ? 1 : ALLOC_KINDS;
    for (int first = 0; first < ALLOC_KINDS; first += count) {
        if (!bench_run_sides(x, c, w, first, count, error)) {
            return false;
        }
    }
    return true;
}

static bool bench_make_slots(alloc_work *w, const alloc_side *s, size_t count, char *error)
{
    w->slots[s->kind] = calloc(count + 1, sizeof(alloc_slot));
    if (!w->slots[s->kind]) {
        snprintf(error, PLAIN_ERROR, "out of memory");
    }
    return w->slots[s->kind] != NULL;
}

/* ---- pairs ---- */

/* Allocates two blocks at once, checks and frees them. */
static alloc_end bench_pair_prepare(alloc_work *w, alloc_side *s, alloc_result *r, char *error)
{
    alloc_slot slots[2] = {{.pointer = 0}, {.pointer = 0}};
    const uint64_t bytes[2] = {w->bytes, w->bytes};
    (void)r;
    alloc_end end = bench_alloc_take(s, 0, w->bytes, &slots[0], error);
    end = end == ALLOC_DONE ? bench_alloc_take(s, 0, w->bytes, &slots[1], error) : end;
    if (end == ALLOC_DONE && !bench_alloc_check_live(s, slots, bytes, 2, error)) {
        end = ALLOC_FAILED;
    }
    return bench_alloc_give_all(s, slots, 2, error) || end != ALLOC_DONE ? end : ALLOC_FAILED;
}

/* Finds how many pairs, at least CHUNK, to make between two readings of the clock. Many such
 * stretches must fit into the time. */
static alloc_end bench_size_chunk(alloc_work *w, alloc_side *s, uint64_t *chunk, char *error)
{
    uint64_t ns = 0;
    alloc_end end = bench_alloc_pairs(s, 0, w->bytes, CHUNK, &ns, error);
    double fits = (double)s->x->slice_ns / 128 / ((double)(ns + 1) / CHUNK);
    *chunk = fits < CHUNK ? CHUNK : fits > CHUNK_MOST ? CHUNK_MOST : (uint64_t)fits;
    return end;
}

/* Half of the slice measures stretches, of which the median counts; the other half measures
 * single pairs. */
static alloc_end bench_pair_round(alloc_work *w, alloc_side *s, int round, alloc_result *r, char *error)
{
    double chunks[CHUNKS_MOST], sum = 0;
    uint64_t end = bench_alloc_slice_end(s->x, 0.5), seen = r->histogram->count, chunk = CHUNK;
    int n = 0;
    alloc_end result = bench_size_chunk(w, s, &chunk, error);
    while (result == ALLOC_DONE && n < CHUNKS_MOST && (n < CHUNKS_LEAST || cli_stats_monotonic() < end)) {
        uint64_t ns = 0;
        result = bench_alloc_pairs(s, 0, w->bytes, chunk, &ns, error);
        chunks[n] = (double)ns / (double)chunk;
        sum += chunks[n++];
    }
    if (result == ALLOC_DONE) {
        result =
            bench_alloc_pairs_each(s, 0, w->bytes, EACH_MOST, bench_alloc_slice_end(s->x, 0.5), r->histogram, error);
    }
    r->operations += 2 * (CHUNK + (uint64_t)n * chunk + r->histogram->count - seen);
    r->rounds[round] = cli_stats_spread_of(chunks, n).median;
    r->means[round] = n ? sum / n : 0;
    r->n_rounds = round + 1;
    return result;
}

bool bench_alloc_run_pair(alloc_experiment *x, const alloc_step *step, char *error)
{
    alloc_case *c = bench_alloc_case_add(x, step);
    c->unit = "pair";
    c->bytes = step->a;
    alloc_work w = {.lanes = 1,
                    .with_libc = true,
                    .blocks = 2,
                    .prepare = bench_pair_prepare,
                    .round = bench_pair_round,
                    .bytes = step->a};
    return bench_alloc_case_run(x, c, &w, error);
}

/* ---- holes ---- */

/* Makes holes half as large as the later allocations: none fits, and none can grow. */
static alloc_end bench_holes_prepare(alloc_work *w, alloc_side *s, alloc_result *r, char *error)
{
    uint64_t count = 2 * w->count, end = bench_alloc_slice_end(s->x, 20), *bytes = malloc(count * sizeof(*bytes));
    alloc_slot *slots = bench_make_slots(w, s, count, error) ? w->slots[s->kind] : NULL;
    alloc_end result = slots && bytes ? ALLOC_DONE : ALLOC_FAILED;
    for (uint64_t i = 0; i < count && result == ALLOC_DONE; i++) {
        bytes[i] = w->bytes / 2;
        result = bench_alloc_take(s, 0, bytes[i], &slots[i], error);
        if (result == ALLOC_DONE && s->kind != ALLOC_HEDDLE && i % 64 == 0 && cli_stats_monotonic() > end) {
            snprintf(r->note, sizeof(r->note), "making the holes took too long");
            result = ALLOC_NO_ROOM;
        }
    }
    if (result == ALLOC_DONE && !bench_alloc_check_live(s, slots, bytes, count, error)) {
        result = ALLOC_FAILED;
    }
    for (uint64_t i = 0; i < count && result == ALLOC_DONE; i += 2) {
        result = bench_alloc_give(s, 0, &slots[i], error) ? ALLOC_DONE : ALLOC_FAILED;
    }
    if (result == ALLOC_NO_ROOM && !bench_alloc_give_all(s, slots, count, error)) {
        result = ALLOC_FAILED;
    }
    free(bytes);
    return result;
}

static alloc_end bench_holes_finish(alloc_work *w, alloc_side *s, alloc_result *r, char *error)
{
    (void)r;
    size_t count = w->slots[s->kind] ? 2 * w->count : 0;
    return bench_alloc_give_all(s, w->slots[s->kind], count, error) ? ALLOC_DONE : ALLOC_FAILED;
}

bool bench_alloc_run_holes(alloc_experiment *x, const alloc_step *step, char *error)
{
    alloc_case *c = bench_alloc_case_add(x, step);
    c->unit = "pair";
    c->bytes = 1024;
    alloc_work w = {.lanes = 1,
                    .with_libc = true,
                    .blocks = 2 * step->a,
                    .prepare = bench_holes_prepare,
                    .round = bench_pair_round,
                    .finish = bench_holes_finish,
                    .bytes = 1024,
                    .count = step->a};
    return bench_alloc_case_run(x, c, &w, error);
}

/* ---- sequences ---- */

static void bench_raise_peak(alloc_result *r, const alloc_log *log, size_t operations)
{
    uint64_t peak = bench_alloc_log_peak(log, operations);
    r->live_peak = peak > r->live_peak ? peak : r->live_peak;
}

/* Runs the whole sequence, or as much as fits into four slices, and checks every block. */
static alloc_end bench_sequence_prepare(alloc_work *w, alloc_side *s, alloc_result *r, char *error)
{
    size_t done = 0;
    if (!bench_make_slots(w, s, w->log->slots, error)) {
        return ALLOC_FAILED;
    }
    alloc_end end =
        bench_alloc_check_replay(s, w->log, bench_alloc_slice_end(s->x, 4), w->slots[s->kind], &done, error);
    r->operations += done;
    bench_raise_peak(r, w->log, done);
    return end;
}

/* Checks the sizes of the blocks that are live after the first `count` operations. */
static bool bench_check_end(alloc_work *w, alloc_side *s, size_t count, char *error)
{
    uint64_t *bytes = calloc(w->log->slots + 1, sizeof(*bytes));
    for (size_t i = 0; i < count && bytes; i++) {
        const alloc_op *op = &w->log->ops[i];
        bytes[op->slot] = op->bytes ? op->bytes : bytes[op->slot];
    }
    if (!bytes) {
        snprintf(error, PLAIN_ERROR, "out of memory for what is verified");
        return false;
    }
    bool ok = bench_alloc_check_live(s, w->slots[s->kind], bytes, w->log->slots, error);
    free(bytes);
    return ok;
}

static alloc_end bench_sequence_round(alloc_work *w, alloc_side *s, int round, alloc_result *r, char *error)
{
    alloc_replayed did;
    alloc_slot *slots = w->slots[s->kind];
    uint64_t calls = r->histogram->count;
    alloc_end end = bench_alloc_replay(s, w->log, bench_alloc_slice_end(s->x, 1), slots, r->histogram, &did, error);
    calls = r->histogram->count - calls;
    if (end == ALLOC_DONE && round == s->x->rounds - 1 && !bench_check_end(w, s, did.operations, error)) {
        end = ALLOC_FAILED;
    }
    if (!bench_alloc_give_all(s, slots, w->log->slots, error) || end != ALLOC_DONE) {
        return end == ALLOC_DONE ? ALLOC_FAILED : end;
    }
    double part = (double)did.operations / (double)w->log->count;
    double ns = (double)did.ticks * stats_the_clock.ns_per_tick / (double)(calls ? calls : 1);
    r->rounds[round] = ns > stats_the_clock.empty_ns ? ns - stats_the_clock.empty_ns : 0;
    r->means[round] = r->rounds[round];
    r->n_rounds = round + 1;
    r->part = part < r->part ? part : r->part;
    r->operations += did.operations;
    r->refused += did.refused;
    if (s->kind != ALLOC_PLAIN) { /* for PLAIN the checked replay has sampled the peak */
        bench_raise_peak(r, w->log, did.operations);
    }
    return ALLOC_DONE;
}

static bool bench_run_sequence(alloc_experiment *x, const alloc_step *step, const alloc_log *log, char *error)
{
    alloc_case *c = bench_alloc_case_add(x, step);
    c->unit = "operation";
    c->log = step->log;
    alloc_work w = {.lanes = (int)log->lanes,
                    .with_libc = true,
                    .peaks = true,
                    .apart = log->peak_live > 4 * x->room / APART_SHARE,
                    .blocks = log->slots,
                    .prepare = bench_sequence_prepare,
                    .round = bench_sequence_round,
                    .log = log};
    return bench_alloc_case_run(x, c, &w, error);
}

/* a: number of allocations, b: largest size in MiB */
bool bench_alloc_run_random(alloc_experiment *x, const alloc_step *step, char *error)
{
    alloc_log log;
    uint64_t cap = 16000 * ALLOC_MIB < x->room ? 16000 * ALLOC_MIB : x->room;
    if (!bench_alloc_log_random(step->a, step->b * ALLOC_MIB, cap, step->a + step->b, &log, error)) {
        return false;
    }
    bool ok = bench_run_sequence(x, step, &log, error);
    bench_alloc_log_release(&log);
    return ok;
}

bool bench_alloc_run_live(alloc_experiment *x, const alloc_step *step, char *error)
{
    alloc_log log;
    if (!bench_alloc_log_live(step->a, &log, error)) {
        return false;
    }
    bool ok = bench_run_sequence(x, step, &log, error);
    bench_alloc_log_release(&log);
    return ok;
}

bool bench_alloc_run_replay(alloc_experiment *x, const alloc_step *step, char *error)
{
    return bench_run_sequence(x, step, step->log, error);
}
