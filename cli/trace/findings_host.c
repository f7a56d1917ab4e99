/* findings_host.c - findings on idle time in which nothing was submitted, or in which work was on
 * its way to the device.
 *
 * This idle time is divided by what the device's engine, and the threads that submit to the device,
 * did meanwhile:
 *    loading code      a kernel or library is used for the first time; its launch may be slow
 *    slow functions    a function of hd_lane_run_native holds up the engine, which feeds the device
 *    waiting elsewhere the threads wait for another device's work: the devices take turns
 *    waiting here      the threads wait for the previous operation before they submit the next one
 *    between launches  the gaps are so short that the cost of a launch explains them
 *    the rest          the threads do something else
 *
 * Threads, Locks: see model.h.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/trace/findings.h"

/* SOON_NS: a thread that submits later than this after a wait did something else first. SHORT_NS:
 * the cost of a launch explains a gap up to this length; a longer function counts as slow.
 * MANY_OPERATIONS: with fewer operations, only slow driver calls are a finding about launches. */
enum { SOON_NS = 200000, SHORT_NS = 50000, MANY_OPERATIONS = 50 };

/* Operations that compute this long are not too short: no driver needs a twentieth of this time for
 * an operation. */
enum { LONG_OPERATION_NS = 1000000 };

/* If another device works for this share of the idle time, that device may be the cause. For
 * example, threads may share a lock, and nothing else in a trace shows this. */
enum { TURNS_PERCENT = 80 };

/* Every program has first launches. In a short, healthy program they take a few milliseconds,
 * which is a large share. */
enum { LONG_WAYS_NS = 5000000, LONG_WAYS_PERCENT = 5 };

#define PUT(into, ...) snprintf((into), sizeof(into), __VA_ARGS__)

/* A wait of a thread. device: whose work it waited for. */
typedef struct stay {
    int64_t begin, end;
    int device;
} stay;

typedef struct sums {
    int64_t code, here, brief, rest;
    trace_gap code_gap, here_gap, brief_gap, rest_gap, way_gap, call_gap, first_gap, turns_gap[TRACE_DEVICES];
    int64_t way;  /* work was on its way, for a normal time */
    int64_t call; /* the part of `way` in the driver's launch calls */
    /* of first launches: the time beyond a normal way, and the longest way of one launch */
    int64_t first, first_most;
    /* the first launch with the longest way, and the number of first launches */
    int32_t first_op, n_first;
    int32_t call_op, way_op; /* the operation whose call, or way, has the longest piece */
    int64_t held;            /* part of `way` within long functions of hd_lane_run_native */
    trace_gap held_gap;      /* its longest piece */
    int64_t held_most;       /* how long the longest of those functions ran */
    int32_t held_op;         /* the operation of that function */
    uint64_t n_held;         /* the number of those functions */
    int64_t turns[TRACE_DEVICES];
    uint64_t n_here, n_brief, n_rest;
} sums;

static bool trace_finding_host_piece_is_empty(const trace_piece *p)
{
    return p->state == TRACE_IDLE && p->cause == TRACE_CAUSE_NOTHING;
}

bool trace_finding_measure(const trace_device *d, trace_cause cause, measure *out)
{
    *out = (measure){d, cause, trace_table(d->n_pieces + 1, sizeof(int64_t)), d->end};
    for (size_t i = 0; out->before && i < d->n_pieces; i++) {
        const trace_piece *p = &d->pieces[i];
        bool is = p->state == TRACE_IDLE && p->cause == cause;
        out->before[i + 1] = out->before[i] + (is ? p->end - p->begin : 0);
        out->last = is ? p->begin : p->end;
    }
    return out->before != NULL;
}

/* The first piece that ends after the time. */
static size_t trace_finding_host_piece_at(const measure *m, int64_t time)
{
    size_t low = 0, high = m->d->n_pieces;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (m->d->pieces[middle].end <= time) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The measured time before a time. */
static int64_t trace_finding_host_measured_before(const measure *m, int64_t time)
{
    size_t low = trace_finding_host_piece_at(m, time);
    if (low == m->d->n_pieces) {
        return m->before[low];
    }
    const trace_piece *p = &m->d->pieces[low];
    bool is = p->state == TRACE_IDLE && p->cause == m->cause;
    return m->before[low] + (is && time > p->begin ? time - p->begin : 0);
}

int64_t trace_finding_within(const measure *m, int64_t begin, int64_t end)
{
    return begin < end ? trace_finding_host_measured_before(m, end) - trace_finding_host_measured_before(m, begin) : 0;
}

void trace_finding_longest(trace_gap *gap, int device, const measure *m, int64_t begin, int64_t end)
{
    for (size_t i = begin < end ? trace_finding_host_piece_at(m, begin) : m->d->n_pieces; i < m->d->n_pieces; i++) {
        const trace_piece *p = &m->d->pieces[i];
        if (p->begin >= end) {
            break;
        }
        bool is = p->state == TRACE_IDLE && p->cause == m->cause;
        trace_finding_longer(gap, device, p, is ? trace_least(p->end, end) - trace_most(p->begin, begin) : 0);
    }
}

static bool trace_finding_host_thread_feeds(const trace *t, uint32_t thread, int device)
{
    for (size_t i = 0; i < t->n_threads; i++) {
        if (t->threads[i].thread == thread) {
            return (t->threads[i].devices >> device & 1) != 0;
        }
    }
    return false;
}

/* The last answer of trace_finding_host_thread_feeds, kept because neighbours in a table mostly
 * come from one thread. */
typedef struct feeder {
    uint32_t thread;
    bool valid, feeds;
} feeder;

static bool trace_finding_host_thread_asks(feeder *last, const trace *t, uint32_t thread, int device)
{
    if (!last->valid || last->thread != thread) {
        *last = (feeder){thread, true, trace_finding_host_thread_feeds(t, thread, device)};
    }
    return last->feeds;
}

/* Adds the part of a pause after `until`, up to which earlier pauses of its kind reach. Several
 * threads may pause at once. */
static void trace_finding_host_add_pause(const measure *m, int device, int64_t begin, int64_t end, int64_t *until,
                                         int64_t *sum, trace_gap *gap)
{
    trace_finding_longest(gap, device, m, trace_most(begin, *until), end);
    trace_add(sum, trace_finding_within(m, trace_most(begin, *until), end));
    *until = trace_most(*until, end);
}

/* Collects the waits of the device's threads: first pauses, then reads, which wait for their
 * bytes. */
static size_t trace_finding_host_collect_waits(const trace *t, int device, const measure *m, sums *s, stay *out)
{
    size_t n = 0;
    feeder last = {0, false, false};
    int64_t code = INT64_MIN, turns[TRACE_DEVICES];
    for (int e = 0; e < TRACE_DEVICES; e++) {
        turns[e] = INT64_MIN;
    }
    for (size_t i = 0; i < t->n_pauses; i++) { /* sorted by begin */
        const trace_pause *p = &t->pauses[i];
        bool mine = trace_finding_host_thread_asks(&last, t, p->thread, device);
        if (p->kind == HDI_RECORD_PAUSE_CODE && (mine || p->device == device)) {
            trace_finding_host_add_pause(m, device, p->begin, p->end, &code, &s->code, &s->code_gap);
        } else if (p->kind == HDI_RECORD_PAUSE_WAIT && mine) {
            int other = trace_lane_device(p->lane);
            if (other != device && other >= 0 && other < t->n_devices) {
                trace_finding_host_add_pause(m, device, p->begin, trace_least(p->end, m->last), &turns[other],
                                             &s->turns[other], &s->turns_gap[other]);
            } else {
                out[n++] = (stay){p->begin, p->end, device};
            }
        }
    }
    for (size_t i = 0; i < t->n_transfers; i++) {
        const trace_transfer *x = &t->transfers[i];
        if (x->way == HDI_RECORD_WAY_READ && trace_finding_host_thread_asks(&last, t, x->thread, device)) {
            out[n++] = (stay){x->called, x->returned, device};
        }
    }
    return n;
}

static int trace_finding_host_compare_stays(const void *a, const void *b)
{
    const stay *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Classifies each gap: was a thread waiting when the gap began, and did it submit soon after its
 * wait? */
static void trace_finding_host_classify_gaps(const trace_device *d, int device, const stay *stays, size_t n, sums *s)
{
    size_t at = 0;
    int64_t waited = INT64_MIN; /* latest end of the waits that began before the gap */
    int64_t started = INT64_MIN;
    /* largest difference between device times and thread times */
    int64_t within = d->clock_within + TRACE_THREADS_NS;
    for (size_t i = 0; i < d->n_pieces; i++) {
        const trace_piece *p = &d->pieces[i];
        if (!trace_finding_host_piece_is_empty(p)) {
            continue;
        }
        for (; at < n && stays[at].begin <= p->begin + within; at++) {
            if (stays[at].end > waited) {
                waited = stays[at].end;
                started = stays[at].begin;
            }
        }
        int64_t ns = p->end - p->begin;
        bool last = p->end == d->end;
        bool after_wait = started <= p->begin + within && waited >= p->begin && waited < p->end + within && !last;
        if (after_wait && p->end - waited <= SOON_NS) {
            s->here += ns;
            s->n_here++;
            trace_finding_longer(&s->here_gap, device, p, ns);
        } else if (ns <= SHORT_NS && !after_wait) {
            s->brief += ns;
            s->n_brief++;
            trace_finding_longer(&s->brief_gap, device, p, ns);
        } else {
            s->rest += ns;
            s->n_rest++;
            trace_finding_longer(&s->rest_gap, device, p, ns);
        }
    }
}

/* Finds the program's range with most of the idle time, and that time. */
static int32_t trace_finding_host_find_range(const finder *f, int device, const measure *m, int64_t *ns)
{
    const trace *t = f->t;
    int32_t best = TRACE_NONE;
    feeder last = {0, false, false};
    memset(f->by_name, 0, (t->n_names + 1) * sizeof *f->by_name);
    *ns = 0;
    for (size_t i = 0; i < t->n_ranges; i++) {
        const trace_range *r = &t->ranges[i];
        if (r->name == TRACE_NONE || !trace_finding_host_thread_asks(&last, t, r->thread, device)) {
            continue;
        }
        trace_add(&f->by_name[r->name], trace_finding_within(m, r->begin, r->end));
        /* of nested ranges, the inner one counts */
        if (f->by_name[r->name] >= *ns && f->by_name[r->name] > 0) {
            *ns = f->by_name[r->name];
            best = r->name;
        }
    }
    return best;
}

/* Takes at most `ns` from the remaining time. Several threads may overlap, so without this limit
 * time would count twice. */
static int64_t trace_finding_host_take_share(int64_t *left, int64_t ns)
{
    ns = trace_least(ns, *left);
    *left -= ns;
    return ns;
}

static bool trace_finding_host_is_long(const finder *f, int64_t ways)
{
    return ways >= LONG_WAYS_NS && trace_finding_counts(f, ways, LONG_WAYS_PERCENT);
}

/* `n`: the number of devices that device `d` waited for; `e`: one of them. */
static void trace_finding_host_put_turns(finder *f, int d, int e, int n, int64_t ns, const trace_gap *gap)
{
    char time[HDI_AMOUNT_BYTES], whom[32];
    trace_finding *one = trace_finding_add(f, "serialized-devices", d, e, trace_finding_bound(f, ns));
    one->gap = *gap;
    if (n > 1) {
        PUT(whom, "%d other devices", n);
    } else {
        PUT(whom, "device %d", e);
    }
    PUT(one->title, "device %d had no work for %s (%d %%) while its thread waited for %s", d, trace_time_text(ns, time),
        trace_finding_percent(ns, f->window), whom);
    PUT(one->evidence, "the thread that submits to device %d was in hd_wait, hd_read or hd_map for %s meanwhile", d,
        whom);
    PUT(one->remedy,
        "Submit the work of all devices first, and wait afterwards. The program need not wait for dependencies: the "
        "devices wait for the bytes that an operation uses.");
}

/* Short waits for several devices count together. */
static void trace_finding_host_take_turns(finder *f, int d, const sums *s, int64_t *left)
{
    int64_t rest = 0;
    int others = 0, most = TRACE_NONE;
    for (int e = 0; e < f->t->n_devices; e++) {
        int64_t ns = trace_finding_host_take_share(left, s->turns[e]);
        if (trace_finding_counts(f, ns, 3)) {
            trace_finding_host_put_turns(f, d, e, 1, ns, &s->turns_gap[e]);
        } else if (ns > 0) {
            rest += ns;
            others++;
            most = most == TRACE_NONE || s->turns[e] > s->turns[most] ? e : most;
        }
    }
    if (others > 1 && trace_finding_counts(f, rest, 3)) {
        trace_finding_host_put_turns(f, d, most, others, rest, &s->turns_gap[most]);
    }
}

static void trace_finding_host_put_host_wait(finder *f, int d, int64_t ns, const sums *s)
{
    char time[HDI_AMOUNT_BYTES], each[HDI_AMOUNT_BYTES];
    uint64_t n = s->n_here;
    trace_finding *one = trace_finding_add(f, "host-wait", d, TRACE_NONE, trace_finding_bound(f, ns));
    one->gap = s->here_gap;
    PUT(one->title, "device %d stood still for %s (%d %%): its thread waits for each operation before the next", d,
        trace_time_text(ns, time), trace_finding_percent(ns, f->window));
    PUT(one->evidence, "%" PRIu64 " gaps of %s each, from the end of work that a thread waited for to the next submit",
        n, trace_time_text(ns / (int64_t)(n > 0 ? n : 1), each));
    PUT(one->remedy,
        "Submit the next operations before hd_wait. Instead of hd_read, call hd_copy into pinned memory, and ask "
        "hd_done whether the copy is finished.");
}

static uint64_t trace_finding_host_count_operations(const trace *t, int d)
{
    uint64_t count = 0;
    for (size_t i = 0; i < t->n_lanes; i++) {
        count += trace_lane_device(t->lanes[i].lane) == d ? (uint64_t)t->lanes[i].n_ops : 0;
    }
    return count;
}

/* The operations that compute: see trace_moves. */
static uint64_t trace_finding_host_count_computing(const trace *t, int d)
{
    uint64_t count = 0;
    for (size_t i = trace_first_op(t, d), end = trace_first_op(t, d + 1); i < end; i++) {
        count += trace_is_work(t->ops[i].kind) && !trace_moves(t, t->ops[i].lane, t->ops[i].kind);
    }
    return count;
}

/* The mean time that one of the device's operations computes; 0 if none computes. */
static int64_t trace_finding_host_mean_computing(const trace *t, int d, uint64_t launches)
{
    return launches > 0 ? t->devices[d].compute / (int64_t)launches : 0;
}

static bool trace_finding_host_are_long(const trace *t, int d)
{
    return trace_finding_host_mean_computing(t, d, trace_finding_host_count_computing(t, d)) >= LONG_OPERATION_NS;
}

/* `ns`: includes short gaps before submits. `on_the_way`: excludes functions that held
 * operations up. */
static void trace_finding_host_put_launches(finder *f, int d, int64_t ns, int64_t on_the_way, const sums *s)
{
    const trace *t = f->t;
    char time[HDI_AMOUNT_BYTES], way[HDI_AMOUNT_BYTES], each[HDI_AMOUNT_BYTES], computing[128];
    trace_finding *one = trace_finding_add(f, "launch-overhead", d, TRACE_NONE, trace_finding_bound(f, ns));
    one->gap = s->way_gap.part > s->brief_gap.part ? s->way_gap : s->brief_gap;
    uint64_t launches = trace_finding_host_count_computing(t, d);
    PUT(one->title, "device %d waited %s (%d %%) between operations: they are too short", d, trace_time_text(ns, time),
        trace_finding_percent(ns, f->window));
    if (launches > 0) {
        snprintf(computing, sizeof computing, "%" PRIu64 " operations with %s of computing each", launches,
                 trace_time_text(trace_finding_host_mean_computing(t, d, launches), each));
    } else {
        snprintf(computing, sizeof computing, "%" PRIu64 " operations, none of which computes",
                 trace_finding_host_count_operations(t, d));
    }
    PUT(one->evidence, "%s; %s on the way to the device, and %" PRIu64 " short gaps before submits", computing,
        trace_time_text(on_the_way, way), s->n_brief);
    PUT(one->remedy,
        "Do more in each launch: larger grids, or one kernel for several steps. If one thread cannot keep up, submit "
        "from several threads. Leave the option chains on.");
}

/* Adds the finding that some of the device's long operations took long to reach the device. `ns`:
 * includes short gaps before submits. */
static void trace_finding_host_put_long_ways(finder *f, int d, const sums *s, int64_t ns)
{
    const trace *t = f->t;
    char time[HDI_AMOUNT_BYTES], most[HDI_AMOUNT_BYTES], each[HDI_AMOUNT_BYTES], name[TRACE_TEXT], way[TRACE_TEXT + 64];
    uint64_t launches = trace_finding_host_count_computing(t, d);
    trace_finding *one = trace_finding_add(f, "launch-overhead", d, TRACE_NONE, trace_finding_bound(f, ns));
    one->op = s->way_op;
    one->gap = s->way_gap.part > s->brief_gap.part ? s->way_gap : s->brief_gap;
    PUT(one->title, "device %d waited %s (%d %%) while operations were on their way to it", d,
        trace_time_text(ns, time), trace_finding_percent(ns, f->window));
    way[0] = 0;
    if (s->way_op != TRACE_NONE) {
        PUT(way, "; the longest way was that of %s: %s", trace_op_name(t, s->way_op, name),
            trace_time_text(s->way_gap.part, most));
    }
    PUT(one->evidence, "%" PRIu64 " operations with %s of computing each, and %" PRIu64 " short gaps before submits%s",
        launches, trace_time_text(trace_finding_host_mean_computing(t, d, launches), each), s->n_brief, way);
    PUT(one->remedy, "Submit the next operations before the thread waits (hd_wait, hd_read, hd_map). They then reach "
                     "the device while it computes. `--all` shows how long launches take to reach the device.");
}

/* Adds the finding about few operations with slow driver calls. */
static void trace_finding_host_put_ways(finder *f, int d, const sums *s)
{
    char time[HDI_AMOUNT_BYTES], most[HDI_AMOUNT_BYTES], name[TRACE_TEXT];
    trace_finding *one = trace_finding_add(f, "launch-overhead", d, TRACE_NONE, trace_finding_bound(f, s->call));
    one->op = s->call_op;
    one->gap = s->call_gap;
    PUT(one->title, "device %d waited %s (%d %%) while the driver took operations", d, trace_time_text(s->call, time),
        trace_finding_percent(s->call, f->window));
    PUT(one->evidence, "%" PRIu64 " operations; the longest call was for %s: %s",
        trace_finding_host_count_operations(f->t, d), trace_op_name(f->t, s->call_op, name),
        trace_time_text(s->call_gap.part, most));
    PUT(one->remedy,
        "Submit the next operations while the device still computes: the driver calls then overlap its work. `--all` "
        "shows how long launches take to reach the device.");
}

/* Finds the device that worked longest while device `d` had no work. *most: for how long.
 * TRACE_NONE: no device worked then. */
static int trace_finding_host_find_other(const trace *t, const measure *m, int64_t *most)
{
    int other = TRACE_NONE;
    *most = 0;
    for (int e = 0; e < t->n_devices; e++) {
        const trace_device *d = &t->devices[e];
        int64_t sum = 0;
        for (size_t i = 0; d != m->d && i < d->n_pieces; i++) {
            sum += d->pieces[i].state != TRACE_IDLE ? trace_finding_within(m, d->pieces[i].begin, d->pieces[i].end) : 0;
        }
        other = sum > *most ? e : other;
        *most = trace_most(*most, sum);
    }
    return other;
}

static void trace_finding_host_put_rest(finder *f, int d, const sums *s, int64_t ns, const measure *m)
{
    char time[HDI_AMOUNT_BYTES], longest[HDI_AMOUNT_BYTES], range[TRACE_TEXT] = "", turns[64] = "";
    int64_t within;
    int32_t name = trace_finding_host_find_range(f, d, m, &within);
    trace_finding *one = trace_finding_add(f, "idle-nothing-submitted", d, TRACE_NONE, trace_finding_bound(f, ns));
    if (name != TRACE_NONE) {
        PUT(range, "; %d %% of it within the range '%.80s'",
            trace_finding_percent(trace_least(within, m->before[m->d->n_pieces]), m->before[m->d->n_pieces]),
            trace_name(f->t, name));
    }
    PUT(one->title, "device %d had nothing to do for %s (%d %%): nothing was submitted", d, trace_time_text(ns, time),
        trace_finding_percent(ns, f->window));
    one->gap = s->rest_gap;
    int64_t worked, all = m->before[m->d->n_pieces];
    int other = trace_finding_host_find_other(f->t, m, &worked);
    if (other != TRACE_NONE && trace_finding_percent(worked, all) >= TURNS_PERCENT) {
        PUT(turns, "; device %d worked for %d %% of that time", other, trace_finding_percent(worked, all));
    }
    PUT(one->evidence, "%" PRIu64 " gaps, the longest one %s%s%s", s->n_rest,
        trace_time_text(s->rest_gap.part, longest), range, turns);
    PUT(one->remedy,
        "Submit operations before the program does its own work, or do that work on another thread "
        "(hd_launch_host). With hd_range_push and hd_range_pop, the trace shows what the program does meanwhile.");
}

/* `first`: how much of this time first launches caused. */
static void trace_finding_host_put_code(finder *f, int d, const sums *s, int64_t ns, int64_t first)
{
    const trace *t = f->t;
    char time[HDI_AMOUNT_BYTES], way[HDI_AMOUNT_BYTES], most[48] = "";
    trace_finding *one = trace_finding_add(f, "code-loading", d, TRACE_NONE, trace_finding_bound(f, ns));
    PUT(one->title, "device %d had nothing to do for %s (%d %%): kernels' code was being loaded", d,
        trace_time_text(ns, time), trace_finding_percent(ns, f->window));
    one->gap = first > s->code ? s->first_gap : s->code_gap;
    PUT(one->evidence, "a device loads the code of a kernel at the kernel's first use there");
    if (first > 0) {
        const trace_op *op = &t->ops[s->first_op];
        one->op = s->first_op;
        if (s->n_first > 1) {
            PUT(most, ", the longest of %" PRId32, s->n_first);
        }
        PUT(one->evidence,
            "a device loads the code of a kernel at the kernel's first use there; the first launch of %.100s was on "
            "its way for %s%s",
            op->kind == HDI_RECORD_OP_MATMUL ? "a matrix product" : trace_name(t, op->kernel),
            trace_time_text(s->first_most, way), most);
    }
    PUT(one->remedy,
        "Launch each kernel once before the loop, and compute a product there, too: the first product opens a "
        "library, which loads its own code. With the option module_loading=eager (HEDDLE_MODULE_LOADING), "
        "hd_module_load loads the code of modules.");
}

/* Returns the part of the way to the device that the functions explain. */
static int64_t trace_finding_host_put_functions(finder *f, int d, const sums *s)
{
    char time[HDI_AMOUNT_BYTES], most[HDI_AMOUNT_BYTES], name[TRACE_TEXT];
    if (!trace_finding_counts(f, s->held, 3)) {
        return 0;
    }
    trace_finding *one = trace_finding_add(f, "slow-function", d, TRACE_NONE, trace_finding_bound(f, s->held));
    one->op = s->held_op;
    one->gap = s->held_gap;
    PUT(one->title, "device %d stood still for %s (%d %%) while functions of hd_lane_run_native ran", d,
        trace_time_text(s->held, time), trace_finding_percent(s->held, f->window));
    PUT(one->evidence, "meanwhile the device gets no work; the longest of %" PRIu64 " long functions took %s: %s",
        s->n_held, trace_time_text(s->held_most, most), trace_op_name(f->t, s->held_op, name));
    PUT(one->remedy, "Such a function should only give its work to the driver, and return. Wait or compute before "
                     "hd_lane_run_native, or in hd_launch_host, which runs on a thread of its own.");
    return s->held;
}

static void trace_finding_host_put_all(finder *f, int d, const sums *s, const measure *m)
{
    int64_t left = m->before[m->d->n_pieces], code = trace_finding_host_take_share(&left, s->code);
    /* `left` does not include `first`, because the cause of `first` differs */
    int64_t first = trace_finding_host_is_long(f, s->first) ? s->first : 0;
    trace_add(&code, first);
    if (trace_finding_counts(f, code, 3)) {
        trace_finding_host_put_code(f, d, s, code, first);
    }
    trace_finding_host_take_turns(f, d, s, &left);
    int64_t here = trace_finding_host_take_share(&left, s->here),
            brief = trace_finding_host_take_share(&left, s->brief);
    if (trace_finding_counts(f, here, 3)) {
        trace_finding_host_put_host_wait(f, d, here, s);
    }
    int64_t launch = brief, way = s->way - trace_finding_host_put_functions(f, d, s);
    trace_add(&launch, way);
    if (trace_finding_host_count_operations(f->t, d) < MANY_OPERATIONS) {
        if (trace_finding_host_is_long(f, s->call)) {
            trace_finding_host_put_ways(f, d, s);
        }
    } else if (trace_finding_counts(f, launch, 5) && trace_finding_host_are_long(f->t, d)) {
        trace_finding_host_put_long_ways(f, d, s, launch);
    } else if (trace_finding_counts(f, launch, 5)) {
        trace_finding_host_put_launches(f, d, launch, way, s);
    }
    if (trace_finding_counts(f, left, 3) && trace_finding_counts(f, trace_finding_bound(f, left), 3)) {
        trace_finding_host_put_rest(f, d, s, left, m);
    }
}

/* The index of an operation in the table of first launches: its kernel, or the last entry for
 * products. */
static size_t trace_finding_host_row_of(const trace *t, const trace_op *op)
{
    return op->kind == HDI_RECORD_OP_LAUNCH && op->kernel != TRACE_NONE ? (size_t)op->kernel
           : op->kind == HDI_RECORD_OP_MATMUL                           ? t->n_names
                                                                        : SIZE_MAX;
}

/* Finds the first launch of each kernel on a device, and the first product: they load code.
 * Returns the number of later launches and products. */
static uint64_t trace_finding_host_find_first(const trace *t, int device, int32_t *first)
{
    uint64_t later = 0;
    for (size_t i = 0; i <= t->n_names; i++) {
        first[i] = TRACE_NONE;
    }
    for (size_t i = trace_first_op(t, device), end = trace_first_op(t, device + 1); i < end; i++) {
        size_t row = trace_finding_host_row_of(t, &t->ops[i]);
        if (row == SIZE_MAX) {
            continue;
        }
        later += first[row] != TRACE_NONE;
        if (first[row] == TRACE_NONE || t->ops[i].submitted < t->ops[first[row]].submitted) {
            first[row] = (int32_t)i;
        }
    }
    return later;
}

/* A run of a function of hd_lane_run_native. */
typedef struct function {
    int64_t begin, end;
    int32_t op;
} function;

/* A device's long functions, sorted; `at`: the first one that ends after the last query. */
typedef struct functions {
    function *list;
    size_t n, at;
} functions;

static int trace_finding_host_compare_functions(const void *a, const void *b)
{
    const function *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* False: out of memory. */
static bool trace_finding_host_find_functions(const trace *t, int device, functions *out)
{
    size_t first = trace_first_op(t, device), end = trace_first_op(t, device + 1);
    *out = (functions){.list = trace_table(end - first, sizeof(function))};
    for (size_t i = first; out->list && i < end; i++) {
        const trace_op *op = &t->ops[i];
        bool ran = op->kind == HDI_RECORD_OP_CALL && op->issued != TRACE_UNSEEN && op->returned != TRACE_UNSEEN;
        if (ran && op->returned - op->issued > SHORT_NS) {
            out->list[out->n++] = (function){op->issued, op->returned, (int32_t)i};
        }
    }
    if (out->list) {
        trace_sort(out->list, out->n, sizeof *out->list, trace_finding_host_compare_functions);
    }
    return out->list != NULL;
}

/* Adds the part of a piece that lies within long functions, of which an engine runs one at a time.
 * Call it in the order of pieces. */
static void trace_finding_host_add_functions(sums *s, int device, const trace_piece *p, functions *all)
{
    int64_t sum = 0;
    while (all->at < all->n && all->list[all->at].end <= p->begin) {
        all->at++;
    }
    for (size_t i = all->at; i < all->n && all->list[i].begin < p->end; i++) {
        const function *one = &all->list[i];
        sum += trace_most(0, trace_least(one->end, p->end) - trace_most(one->begin, p->begin));
        s->held_op = one->end - one->begin > s->held_most ? one->op : s->held_op;
        s->held_most = trace_most(s->held_most, one->end - one->begin);
    }
    s->held += trace_least(sum, p->end - p->begin);
    trace_finding_longer(&s->held_gap, device, p, trace_least(sum, p->end - p->begin));
}

/* Adds an operation's way from the driver's call on. Before that call, the engine gave other work
 * to the driver, or got no processor. */
static void trace_finding_host_add_call(sums *s, int device, const trace_piece *p, const trace_op *op)
{
    int64_t ns = op->issued != TRACE_UNSEEN && op->kind != HDI_RECORD_OP_COPY && op->kind != HDI_RECORD_OP_CALL
                     ? trace_most(0, p->end - trace_most(p->begin, op->issued))
                     : 0;
    s->call += ns;
    s->call_op = ns > s->call_gap.part ? p->holder : s->call_op;
    trace_finding_longer(&s->call_gap, device, p, ns);
}

/* True if a finding about copies already reports that operation's way. */
static bool trace_finding_host_is_stated(const finder *f, int device, const trace_op *op)
{
    bool own = op->chunk && !op->leg;
    return op->kind == HDI_RECORD_OP_COPY && (own ? f->own_stated[device] : f->ways_stated[device]);
}

/* Divides the time of work on its way to the device. First launches load code if they take longer
 * than later launches. Ways of copies that another finding reports are left out. `first` holds one
 * entry for each name and one more. */
static void trace_finding_host_sum_ways(const finder *f, int device, int32_t *first, functions *all, sums *s)
{
    const trace *t = f->t;
    const trace_device *d = &t->devices[device];
    uint64_t later = trace_finding_host_find_first(t, device, first);
    int64_t launches = 0; /* time of later launches */
    memset(f->by_name, 0, (t->n_names + 1) * sizeof *f->by_name);
    for (size_t i = 0; i < d->n_pieces; i++) {
        const trace_piece *p = &d->pieces[i];
        if (p->state != TRACE_IDLE || p->cause != TRACE_CAUSE_OVERHEAD || p->holder == TRACE_NONE) {
            continue;
        }
        /* the operation on its way, for which others may have waited */
        const trace_op *op = &t->ops[p->holder];
        size_t row = trace_finding_host_row_of(t, op);
        int64_t ns = p->end - p->begin;
        if (row != SIZE_MAX && first[row] == p->holder) {
            f->by_name[row] += ns;
            trace_finding_longer(&s->first_gap, device, p, ns);
        } else if (!trace_finding_host_is_stated(f, device, op)) {
            s->way += ns;
            s->way_op = ns > s->way_gap.part ? p->holder : s->way_op;
            launches += row != SIZE_MAX ? ns : 0;
            trace_finding_host_add_call(s, device, p, op);
            trace_finding_longer(&s->way_gap, device, p, ns);
            trace_finding_host_add_functions(s, device, p, all);
        }
    }
    int64_t usual = later > 0 ? launches / (int64_t)later : 0;
    for (size_t i = 0; i <= t->n_names; i++) {
        int64_t ns = f->by_name[i], longer = trace_most(0, ns - usual);
        s->way += ns - longer;
        s->first += longer;
        s->n_first += longer > 0;
        if (longer > 0 && ns > s->first_most) {
            s->first_most = ns;
            s->first_op = first[i];
        }
    }
}

bool trace_finding_idle_host(finder *f, int device)
{
    const trace *t = f->t;
    const trace_device *d = &t->devices[device];
    measure m;
    bool ok = trace_finding_measure(d, TRACE_CAUSE_NOTHING, &m);
    stay *stays = trace_table(t->n_pauses + t->n_transfers, sizeof *stays);
    int32_t *first = trace_table(t->n_names + 1, sizeof *first);
    functions all;
    ok = trace_finding_host_find_functions(t, device, &all) && ok && stays && first;
    if (ok) {
        sums s = {.first_op = TRACE_NONE,
                  .call_op = TRACE_NONE,
                  .way_op = TRACE_NONE,
                  .held_op = TRACE_NONE,
                  .n_held = all.n};
        trace_finding_host_sum_ways(f, device, first, &all, &s);
        size_t n = trace_finding_host_collect_waits(t, device, &m, &s, stays);
        trace_sort(stays, n, sizeof *stays, trace_finding_host_compare_stays);
        trace_finding_host_classify_gaps(d, device, stays, n, &s);
        trace_finding_host_put_all(f, device, &s, &m);
    }
    free(all.list);
    free(first);
    free(m.before);
    free(stays);
    return ok;
}
