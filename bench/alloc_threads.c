/* alloc_threads.c - the cases of several threads: pairs, random allocations, blocks that another
 * thread frees, and the storm under a limit.
 *
 * Threads: the conductor makes a team for each round and joins it. A member works in its own lane
 * and writes its own results, which the conductor reads after the join.
 * Locks: the lock around the checker, in a verified hand-over.
 * Always: a team begins when all members are ready. After they end, their live blocks are checked
 * together and then freed.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/wait.h"
#include "bench/alloc_parts.h"

enum {
    WARM = 256,        /* pairs of a member before its team begins */
    CHUNK = 64,        /* pairs between two readings of the clock */
    EACH_MOST = 20000, /* pairs of a member that are timed separately */
    RING = 256,        /* blocks on their way from one thread to the other */
    CHECKED_PAIRS = 2000,
    STORM_BLOCKS = 64, /* for each thread */
    STORM_SMALL = 64 << 10,
    STORM_FILL = 64 << 10,
    SAMPLE_NS = 500 * 1000
};

typedef enum gate { GATE_CLOSED, GATE_OPEN, GATE_CANCELLED } gate;

typedef struct team team;

typedef struct member {
    team *team;
    int index; /* also its lane */
    pthread_t thread;
    alloc_end end;
    char error[PLAIN_ERROR];
    uint64_t done, ns; /* number of pairs or operations, and their total time */
    uint64_t refused;
    stats_histogram each;    /* single pairs or operations, in ticks */
    stats_histogram stretch; /* CHUNK pairs, in nanoseconds */
    alloc_slot *slots;       /* this member's part of the team's slots */
    uint64_t *bytes;
    size_t n_slots;
    const alloc_log *log;
} member;

typedef struct ring {
    alloc_slot slots[RING];
    /* release: the slot is written; pairs with the consumer's acquire */
    _Alignas(64) _Atomic uint64_t pushed;
    /* release: the slot is read; pairs with the producer's acquire */
    _Alignas(64) _Atomic uint64_t popped;
    _Atomic bool ended;
    pthread_mutex_t lock; /* protects the checker, if there is one */
    alloc_checker *checker;
    uint64_t limit; /* pairs; 0: until the deadline */
} ring;

struct team {
    alloc_side *side;
    alloc_end (*work)(member *m);
    int n;
    member *members;
    alloc_slot *slots;
    uint64_t *bytes;
    size_t n_slots; /* for each member */
    uint64_t pair_bytes, deadline, each_until;
    ring *ring;
    _Atomic int ready, gate; /* gate: the conductor's release publishes the deadline */
};

/* ---- teams ---- */

static void *bench_member_main(void *argument)
{
    member *m = argument;
    team *t = m->team;
    m->end = bench_alloc_side_enter(t->side, m->error) ? ALLOC_DONE : ALLOC_FAILED;
    if (m->end == ALLOC_DONE && t->pair_bytes && !t->ring) {
        uint64_t ns;
        m->end = bench_alloc_pairs(t->side, (uint32_t)m->index, t->pair_bytes, WARM, &ns, m->error);
    }
    atomic_fetch_add_explicit(&t->ready, 1, memory_order_relaxed);
    int gate_state;
    while ((gate_state = atomic_load_explicit(&t->gate, memory_order_acquire)) == GATE_CLOSED) {
        hdi_spin_turn();
    }
    if (gate_state == GATE_OPEN && m->end == ALLOC_DONE) {
        m->end = t->work(m);
    }
    return NULL;
}

static bool bench_make_team(team *t, alloc_side *s, int n, size_t n_slots, char *error)
{
    *t = (team){.side = s, .n = n, .n_slots = n_slots};
    t->members = calloc((size_t)n, sizeof(*t->members));
    t->slots = calloc((size_t)n * n_slots, sizeof(*t->slots));
    t->bytes = calloc((size_t)n * n_slots, sizeof(*t->bytes));
    if (!t->members || !t->slots || !t->bytes) {
        snprintf(error, PLAIN_ERROR, "out of memory");
        return false;
    }
    for (int i = 0; i < n; i++) {
        t->members[i].team = t;
        t->members[i].index = i;
        t->members[i].slots = t->slots + (size_t)i * n_slots;
        t->members[i].bytes = t->bytes + (size_t)i * n_slots;
        t->members[i].n_slots = n_slots;
    }
    return true;
}

static void bench_release_team(team *t)
{
    free(t->members);
    free(t->slots);
    free(t->bytes);
}

/* Starts the members, which work for `slices` slices, and opens the gate. bench_end_team joins
 * them. */
static bool bench_start_team(team *t, double slices, int *started, char *error)
{
    int failed = 0;
    for (*started = 0; *started < t->n && !failed; *started += !failed) {
        failed = pthread_create(&t->members[*started].thread, NULL, bench_member_main, &t->members[*started]);
    }
    while (!failed && atomic_load_explicit(&t->ready, memory_order_relaxed) < t->n) {
        hdi_sleep_for(50 * 1000);
    }
    t->deadline = bench_alloc_slice_end(t->side->x, slices);
    t->each_until = bench_alloc_slice_end(t->side->x, slices / 4);
    atomic_store_explicit(&t->gate, failed ? GATE_CANCELLED : GATE_OPEN, memory_order_release);
    if (failed) {
        snprintf(error, PLAIN_ERROR, "pthread_create: %s", strerror(failed));
    }
    return !failed;
}

/* Returns the worst end of all; `error` comes from that member. */
static alloc_end bench_end_team(team *t, int started, char *error)
{
    alloc_end end = ALLOC_DONE;
    for (int i = 0; i < started; i++) {
        pthread_join(t->members[i].thread, NULL);
        if (t->members[i].end > end) {
            end = t->members[i].end;
            memcpy(error, t->members[i].error, PLAIN_ERROR);
        }
    }
    return end;
}

/* Checks the live blocks of all members together, then frees them. */
static bool bench_settle_team(team *t, char *error)
{
    size_t count = (size_t)t->n * t->n_slots;
    bool ok = bench_alloc_check_live(t->side, t->slots, t->bytes, count, error);
    char later[PLAIN_ERROR];
    return bench_alloc_give_all(t->side, t->slots, count, ok ? error : later) && ok;
}

static alloc_end bench_run_team(team *t, double slices, char *error)
{
    int started;
    bool ok = bench_start_team(t, slices, &started, error);
    char later[PLAIN_ERROR];
    alloc_end end = bench_end_team(t, started, ok ? error : later);
    return !ok || !bench_settle_team(t, end == ALLOC_DONE ? error : later) ? ALLOC_FAILED : end;
}

/* Takes one thread's nanoseconds per pair or operation. If there are stretches, it takes the
 * median of all threads' stretches. */
static void bench_take_results(const team *t, int round, bool pairs, alloc_result *r)
{
    static stats_histogram stretches; /* static, because only the conductor comes here */
    uint64_t done = 0, ns = 0;
    memset(&stretches, 0, sizeof(stretches));
    for (int i = 0; i < t->n; i++) {
        const member *m = &t->members[i];
        done += m->done;
        ns += m->ns;
        cli_stats_merge(r->histogram, &m->each);
        cli_stats_merge(&stretches, &m->stretch);
        r->operations += pairs ? 2 * (m->done + m->each.count) : m->done;
        r->refused += m->refused;
    }
    r->means[round] = done ? (double)ns / (double)done : 0;
    r->rounds[round] = stretches.count ? cli_stats_quantile(&stretches, 0.5) / CHUNK : r->means[round];
    r->n_rounds = round + 1;
}

/* ---- pairs ---- */

static alloc_end bench_work_pairs(member *m)
{
    team *t = m->team;
    uint32_t lane = (uint32_t)m->index;
    alloc_end end = bench_alloc_pairs_each(t->side, lane, t->pair_bytes, EACH_MOST, t->each_until, &m->each, m->error);
    while (end == ALLOC_DONE && (m->done == 0 || cli_stats_monotonic() < t->deadline)) {
        uint64_t ns = 0;
        end = bench_alloc_pairs(t->side, lane, t->pair_bytes, CHUNK, &ns, m->error);
        m->done += CHUNK;
        m->ns += ns;
        cli_stats_record(&m->stretch, ns);
    }
    if (end == ALLOC_DONE) { /* keeps one for the check */
        m->bytes[0] = t->pair_bytes;
        end = bench_alloc_take(t->side, lane, t->pair_bytes, &m->slots[0], m->error);
    }
    return end;
}

static alloc_end bench_thread_pairs_round(alloc_work *w, alloc_side *s, int round, alloc_result *r, char *error)
{
    team t;
    alloc_end end = ALLOC_FAILED;
    if (bench_make_team(&t, s, w->lanes, 1, error)) {
        t.work = bench_work_pairs;
        t.pair_bytes = w->bytes;
        end = bench_run_team(&t, 1, error);
        bench_take_results(&t, round, true, r);
    }
    bench_release_team(&t);
    return end;
}

/* a: threads, b: bytes */
bool bench_alloc_run_thread_pairs(alloc_experiment *x, const alloc_step *step, char *error)
{
    alloc_case *c = bench_alloc_case_add(x, step);
    c->unit = "pair";
    c->threads = (int)step->a;
    c->bytes = step->b;
    alloc_work w = {.lanes = (int)step->a,
                    .with_libc = true,
                    .blocks = step->a,
                    .round = bench_thread_pairs_round,
                    .bytes = step->b};
    return bench_alloc_case_run(x, c, &w, error);
}

/* ---- random ---- */

static alloc_end bench_work_random(member *m)
{
    team *t = m->team;
    alloc_replayed did;
    alloc_end end = bench_alloc_replay(t->side, m->log, t->deadline, m->slots, &m->each, &did, m->error);
    double ns = (double)did.ticks * stats_the_clock.ns_per_tick - (double)m->each.count * stats_the_clock.empty_ns;
    m->done = m->each.count;
    m->ns = ns > 0 ? (uint64_t)ns : 0;
    m->refused = did.refused;
    for (size_t i = 0; i < did.operations; i++) {
        const alloc_op *op = &m->log->ops[i];
        m->bytes[op->slot] = op->bytes ? op->bytes : m->bytes[op->slot];
    }
    return end;
}

static alloc_end bench_thread_random_round(alloc_work *w, alloc_side *s, int round, alloc_result *r, char *error)
{
    const alloc_log *logs = w->more;
    uint32_t slots = 0;
    for (int i = 0; i < w->lanes; i++) {
        slots = logs[i].slots > slots ? logs[i].slots : slots;
    }
    team t;
    alloc_end end = ALLOC_FAILED;
    if (bench_make_team(&t, s, w->lanes, slots, error)) {
        t.work = bench_work_random;
        for (int i = 0; i < t.n; i++) {
            t.members[i].log = &logs[i];
        }
        end = bench_run_team(&t, 1, error);
        bench_take_results(&t, round, false, r);
    }
    bench_release_team(&t);
    return end;
}

/* a: threads, b: allocations of each thread, up to 1 MiB */
bool bench_alloc_run_thread_random(alloc_experiment *x, const alloc_step *step, char *error)
{
    alloc_log logs[ALLOC_THREADS_MAX] = {{.count = 0}};
    uint64_t cap = x->room / step->a;
    bool ok = true;
    alloc_case *c = bench_alloc_case_add(x, step);
    c->unit = "operation";
    c->threads = (int)step->a;
    alloc_work w = {.lanes = (int)step->a, .with_libc = true, .round = bench_thread_random_round, .more = logs};
    for (uint64_t i = 0; i < step->a && ok; i++) {
        ok = bench_alloc_log_random(step->b, ALLOC_MIB, cap, i + 1, &logs[i], error);
        for (size_t k = 0; k < logs[i].count; k++) {
            logs[i].ops[k].lane = (uint32_t)i;
        }
        w.blocks += logs[i].slots;
    }
    ok = ok && bench_alloc_case_run(x, c, &w, error);
    for (uint64_t i = 0; i < step->a; i++) {
        bench_alloc_log_release(&logs[i]);
    }
    return ok;
}

/* ---- hand over ---- */

static bool bench_check_handed(member *m, const alloc_slot *slot, bool taken)
{
    team *t = m->team;
    ring *g = t->ring;
    bool ok = true;
    if (g->checker) {
        pthread_mutex_lock(&g->lock);
        if (taken) {
            ok = bench_alloc_checker_add(g->checker, bench_alloc_address(t->side, slot), t->pair_bytes, m->error);
        } else {
            bench_alloc_checker_remove(g->checker, bench_alloc_address(t->side, slot), t->pair_bytes);
        }
        pthread_mutex_unlock(&g->lock);
    }
    return ok;
}

static alloc_end bench_produce(member *m)
{
    team *t = m->team;
    ring *g = t->ring;
    alloc_end end = ALLOC_DONE;
    uint64_t begin = cli_stats_monotonic(), n = 0;
    while (end == ALLOC_DONE &&
           (g->limit ? n < g->limit : n == 0 || n % CHUNK || cli_stats_monotonic() < t->deadline)) {
        if (n - atomic_load_explicit(&g->popped, memory_order_acquire) == RING) {
            hdi_spin_turn();
            continue;
        }
        alloc_slot *slot = &g->slots[n % RING];
        end = bench_alloc_take(t->side, 0, t->pair_bytes, slot, m->error);
        if (end == ALLOC_DONE) {
            end = bench_check_handed(m, slot, true) ? ALLOC_DONE : ALLOC_FAILED;
            atomic_store_explicit(&g->pushed, ++n, memory_order_release);
        }
    }
    atomic_store_explicit(&g->ended, true, memory_order_release); /* after the last push */
    m->done = n;
    m->ns = cli_stats_monotonic() - begin;
    return end;
}

static alloc_end bench_consume(member *m)
{
    team *t = m->team;
    ring *g = t->ring;
    bool ok = true;
    for (uint64_t n = 0;;) {
        bool ended = atomic_load_explicit(&g->ended, memory_order_acquire);
        if (n == atomic_load_explicit(&g->pushed, memory_order_acquire)) {
            if (ended) {
                return ok ? ALLOC_DONE : ALLOC_FAILED;
            }
            hdi_spin_turn();
            continue;
        }
        alloc_slot *slot = &g->slots[n % RING];
        uint64_t begin = cli_stats_tick_begin();
        bench_check_handed(m, slot, false);
        /* continues after a failure, so that the producer does not wait forever */
        ok = bench_alloc_give(t->side, 0, slot, m->error) && ok;
        cli_stats_record(&m->each, cli_stats_tick_end() - begin);
        atomic_store_explicit(&g->popped, ++n, memory_order_release);
    }
}

static alloc_end bench_work_hand_over(member *m)
{
    return m->index == 0 ? bench_produce(m) : bench_consume(m);
}

static alloc_end bench_hand_over(alloc_work *w, alloc_side *s, uint64_t pairs, alloc_checker *checker, int round,
                                 alloc_result *r, char *error)
{
    team t;
    alloc_end end = ALLOC_FAILED;
    ring *g = calloc(1, sizeof(*g));
    bool made = bench_make_team(&t, s, 2, 1, error);
    if (made && g) {
        pthread_mutex_init(&g->lock, NULL);
        g->limit = pairs;
        g->checker = checker;
        t.work = bench_work_hand_over;
        t.pair_bytes = w->bytes;
        t.ring = g;
        end = bench_run_team(&t, 1, error);
        if (!checker) {
            bench_take_results(&t, round, false, r);
        }
        r->operations += (checker ? 2 : 1) * t.members[0].done;
        pthread_mutex_destroy(&g->lock);
    } else if (made) {
        snprintf(error, PLAIN_ERROR, "out of memory");
    }
    free(g);
    bench_release_team(&t);
    return end;
}

static alloc_end bench_hand_over_prepare(alloc_work *w, alloc_side *s, alloc_result *r, char *error)
{
    alloc_checker checker = {.tree = NULL};
    alloc_end end = bench_hand_over(w, s, CHECKED_PAIRS, &checker, 0, r, error);
    s->x->checked += checker.checked;
    bench_alloc_checker_release(&checker);
    return end;
}

static alloc_end bench_hand_over_round(alloc_work *w, alloc_side *s, int round, alloc_result *r, char *error)
{
    return bench_hand_over(w, s, 0, NULL, round, r, error);
}

/* a: bytes */
bool bench_alloc_run_hand_over(alloc_experiment *x, const alloc_step *step, char *error)
{
    alloc_case *c = bench_alloc_case_add(x, step);
    c->unit = "pair";
    c->threads = 2;
    c->bytes = step->a;
    alloc_work w = {.lanes = 1,
                    .with_libc = true,
                    .blocks = RING,
                    .prepare = bench_hand_over_prepare,
                    .round = bench_hand_over_round,
                    .bytes = step->a};
    return bench_alloc_case_run(x, c, &w, error);
}

/* ---- storm ---- */

/* Sometimes uses the blocks in the lane, so that blocks are freed while in use. */
static bool bench_storm_use(member *m, size_t i)
{
    size_t bytes = m->bytes[i] < STORM_FILL ? m->bytes[i] & ~(size_t)3 : STORM_FILL;
    return bytes == 0 ||
           cli_report_check(hd_fill(m->slots[i].buffer, 0, (uint32_t)i, bytes, NULL), "hd_fill", m->error);
}

static alloc_end bench_work_storm(member *m)
{
    team *t = m->team;
    uint32_t lane = (uint32_t)m->index;
    uint64_t random = (uint64_t)m->index * 2 + 1, n = 0;
    while (cli_stats_monotonic() < t->deadline) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        size_t i = (size_t)(random >> 33) % m->n_slots;
        if (bench_alloc_is_live(&m->slots[i])) {
            bench_alloc_give(t->side, lane, &m->slots[i], m->error);
            continue;
        }
        uint64_t most = random >> 32 & 1 ? STORM_SMALL : t->pair_bytes;
        m->bytes[i] = 1 + (random >> 12) % most;
        alloc_end end = bench_alloc_take(t->side, lane, m->bytes[i], &m->slots[i], m->error);
        if (end == ALLOC_FAILED) {
            return end;
        }
        if (end == ALLOC_NO_ROOM) {
            m->refused++;
            bench_alloc_give_all(t->side, m->slots + (m->refused & 1 ? 0 : m->n_slots / 2), m->n_slots / 2, m->error);
            continue;
        }
        m->done++;
        if (n++ % 16 == 0 && !bench_storm_use(m, i)) {
            return ALLOC_FAILED;
        }
    }
    return ALLOC_DONE;
}

/* Watches the storm until it ends, and notes the memory that Heddle and the driver report as
 * held. */
static bool bench_watch_storm(team *t, alloc_limit *out, uint64_t driver_before, uint64_t reserved_before, char *error)
{
    while (cli_stats_monotonic() < t->deadline) {
        hd_memory_stats stats = {.size = sizeof(stats)};
        size_t now = 0, total;
        if (!cli_report_check(hd_memory_get_stats(t->side->runtime, 0, &stats), "hd_memory_get_stats", error)) {
            return false;
        }
        out->reserved_peak = stats.reserved_bytes > out->reserved_peak ? stats.reserved_bytes : out->reserved_peak;
        if (t->side->d->cuMemGetInfo(&now, &total) == HDCU_SUCCESS && now < driver_before) {
            uint64_t held = driver_before - now + reserved_before;
            out->driver_peak = held > out->driver_peak ? held : out->driver_peak;
        }
        hdi_sleep_for(SAMPLE_NS);
    }
    return true;
}

static bool bench_finish_storm(const team *t, alloc_limit *out, char *error)
{
    hd_memory_stats stats = {.size = sizeof(stats)};
    if (!cli_report_check(hd_memory_get_stats(t->side->runtime, 0, &stats), "hd_memory_get_stats", error)) {
        return false;
    }
    for (int i = 0; i < t->n; i++) {
        out->allocations += t->members[i].done;
        out->refused += t->members[i].refused;
    }
    out->waits = stats.waits;
    out->drains = stats.drains;
    out->reserved_peak =
        stats.reserved_peak_bytes > out->reserved_peak ? stats.reserved_peak_bytes : out->reserved_peak;
    out->measured = true;
    bool exact = t->side->x->on_host && strcmp(t->side->x->info.placement, "process") != 0;
    uint64_t most = exact && out->driver_peak > out->reserved_peak ? out->driver_peak : out->reserved_peak;
    if (most > out->limit) {
        snprintf(error, PLAIN_ERROR, "the limit of %llu bytes was exceeded: %llu were held",
                 (unsigned long long)out->limit, (unsigned long long)most);
    }
    return most <= out->limit;
}

static bool bench_storm(alloc_side *s, double slices, alloc_limit *out, char *error)
{
    team t;
    size_t before = 0, total;
    hd_memory_stats stats = {.size = sizeof(stats)};
    int started = 0;
    bool ok = bench_alloc_side_enter(s, error) && DRIVER_TRY(s->d, error, cuCtxSetCurrent, (s->x->context)) &&
              DRIVER_TRY(s->d, error, cuMemGetInfo, (&before, &total)) &&
              cli_report_check(hd_memory_get_stats(s->runtime, 0, &stats), "hd_memory_get_stats", error);
    if (!ok) {
        return false;
    }
    ok = bench_make_team(&t, s, out->threads, STORM_BLOCKS, error);
    if (ok) {
        t.work = bench_work_storm;
        /* half of the blocks are live, and half of the live ones are large: together they ask for
         * twice the limit */
        t.pair_bytes = 2 * out->limit * 8 / ((uint64_t)out->threads * STORM_BLOCKS);
        out->asked = (uint64_t)out->threads * STORM_BLOCKS / 4 * (t.pair_bytes / 2 + STORM_SMALL / 2);
        uint64_t begin = cli_stats_monotonic();
        ok = bench_start_team(&t, slices, &started, error) &&
             bench_watch_storm(&t, out, before, stats.reserved_bytes, error);
        char later[PLAIN_ERROR];
        ok = bench_end_team(&t, started, ok ? error : later) == ALLOC_DONE && ok;
        out->seconds = (double)(cli_stats_monotonic() - begin) * 1e-9;
        ok = ok && bench_finish_storm(&t, out, error) && bench_settle_team(&t, error);
    }
    bench_release_team(&t);
    return ok;
}

/* a: threads, b: the limit in bytes; fixed_s: the duration */
bool bench_alloc_run_limit(alloc_experiment *x, const alloc_step *step, char *error)
{
    alloc_side side;
    char settings[96];
    x->limit = (alloc_limit){.threads = (int)step->a, .limit = step->b};
    snprintf(settings, sizeof(settings), "memory_limit=%llu memory_timeout=50", (unsigned long long)step->b);
    if (!bench_alloc_side_open(x, ALLOC_HEDDLE, x->limit.threads, settings, &side, error)) {
        return false;
    }
    bool ok = bench_storm(&side, step->fixed_s * 1e9 / (double)x->slice_ns, &x->limit, error);
    bench_alloc_side_close(&side);
    return ok;
}
