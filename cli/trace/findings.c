/* findings.c - finds the problems in a trace that are worth a person's time, and ranks them by how
 * much the window may shrink. See model.h.
 *
 * A finding of a trace needs evidence. One about time needs both a share of the window and an
 * absolute time, so a healthy program has none. The gain of a finding is an upper bound. The
 * busiest device still must do its work, so no use of idle time makes the window shorter than that
 * work. Only a move of work to another device can do so, and the finding about imbalance proposes
 * that. So devices that wait for a slow device are no findings by themselves. The file
 * findings_host.c divides idle time without submitted work by what the program's threads did
 * meanwhile.
 *
 * Threads, Locks: see model.h.
 */
#include "cli/trace/findings.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"

enum { LEAST_NS = 1000000 };

int trace_finding_percent(int64_t part, int64_t of)
{
    return of > 0 ? (int)((double)part * 100 / (double)of + 0.5) : 0;
}

bool trace_finding_counts(const finder *f, int64_t ns, int percent)
{
    return ns >= LEAST_NS && (double)ns >= (double)f->window * percent / 100;
}

trace_finding *trace_finding_add(finder *f, const char *id, int device, int other, int64_t gain)
{
    trace *t = f->t;
    if (t->n_findings == f->room) {
        size_t room = f->room ? 2 * f->room : 64;
        trace_finding *more = realloc(t->findings, room * sizeof *more);
        if (!more) {
            f->failed = true;
            return &f->spare;
        }
        t->findings = more;
        f->room = room;
    }
    trace_finding *one = &t->findings[t->n_findings++];
    *one = (trace_finding){.id = id,
                           .device = (int16_t)device,
                           .other = (int16_t)other,
                           .gain = gain,
                           .op = TRACE_NONE,
                           .wait = TRACE_NONE,
                           .label = TRACE_NONE,
                           .first = TRACE_NONE,
                           .next = TRACE_NONE};
    return one;
}

void trace_finding_longer(trace_gap *gap, int device, const trace_piece *p, int64_t part)
{
    if (part > gap->part) {
        *gap = (trace_gap){.begin = p->begin, .end = p->end, .part = part, .device = (int16_t)device};
    }
}

#define PUT(into, ...) snprintf((into), sizeof(into), __VA_ARGS__)

/* ---- idle, by cause ---- */

/* The gaps of one cause: their number, the longest one with its operation, holder and wait, and the
 * label with most of the time. */
typedef struct gaps {
    uint64_t count;
    trace_gap longest;
    int32_t op, holder, wait, label;
    int64_t label_ns;
} gaps;

static gaps trace_finding_gaps_of(const finder *f, int device, trace_cause cause, int other)
{
    const trace *t = f->t;
    gaps g = {.op = TRACE_NONE, .holder = TRACE_NONE, .wait = TRACE_NONE, .label = TRACE_NONE};
    memset(f->by_name, 0, (t->n_names + 1) * sizeof *f->by_name);
    const trace_device *d = &t->devices[device];
    for (size_t i = 0; i < d->n_pieces; i++) {
        const trace_piece *p = &d->pieces[i];
        if (p->state != TRACE_IDLE || p->cause != cause || (other != TRACE_NONE && p->other != other)) {
            continue;
        }
        int64_t ns = p->end - p->begin;
        g.count++;
        if (ns > g.longest.part) {
            g.op = p->op, g.holder = p->holder, g.wait = p->wait;
            trace_finding_longer(&g.longest, device, p, ns);
        }
        int32_t label = p->wait != TRACE_NONE ? t->waits[p->wait].label : TRACE_NONE;
        if (label != TRACE_NONE) {
            f->by_name[label] += ns;
            if (f->by_name[label] > g.label_ns) {
                g.label_ns = f->by_name[label];
                g.label = label;
            }
        }
    }
    return g;
}

/* Removing idle time shrinks the window at most to the work of the busiest device. Only the finding
 * about imbalance proposes to divide that work anew. */
int64_t trace_finding_bound(const finder *f, int64_t ns)
{
    return trace_least(ns, f->window - f->most_busy);
}

/* Removing copies shrinks the window at most to the computing time, because all copies can
 * overlap it. */
static int64_t trace_finding_bound_copies(const finder *f, int64_t ns)
{
    return trace_least(ns, f->window - f->most_compute);
}

/* ", 80 % of it for the buffer 'x'", or "". */
static const char *trace_finding_of_buffer(const trace *t, const gaps *g, int64_t all, char out[TRACE_TEXT])
{
    out[0] = 0;
    if (g->label != TRACE_NONE) {
        snprintf(out, TRACE_TEXT, ", %d %% of it for the buffer '%.80s'", trace_finding_percent(g->label_ns, all),
                 trace_name(t, g->label));
    }
    return out;
}

static void trace_finding_put_gaps(trace_finding *one, const trace *t, const gaps *g, int64_t all)
{
    char name[TRACE_TEXT], holder[TRACE_TEXT], buffer[TRACE_TEXT], longest[HDI_AMOUNT_BYTES];
    one->op = g->op;
    one->wait = g->wait;
    one->label = g->label;
    one->gap = g->longest;
    bool waits = g->op != TRACE_NONE && g->holder != TRACE_NONE && g->holder != g->op;
    bool behind = waits && g->wait != TRACE_NONE && t->waits[g->wait].behind && t->waits[g->wait].other == g->holder;
    /* other work may have ended the gap, so the next operation need not have waited */
    PUT(one->evidence, "%" PRIu64 " gap%s%s; the longest took %s%s%.100s%s%.100s%s", g->count, g->count == 1 ? "" : "s",
        trace_finding_of_buffer(t, g, all, buffer), trace_time_text(g->longest.part, longest),
        g->op == TRACE_NONE ? ""
        : waits             ? ", in which "
                            : ", before ",
        g->op == TRACE_NONE ? "" : trace_op_name(t, g->op, name), waits ? " waited for " : "",
        waits ? trace_op_name(t, g->holder, holder) : "", behind ? ", because its lane has no earlier event" : "");
}

/* Adds the finding that device `d` waited for many devices, but not long for any of them. `other`:
 * the device for which it waited longest. */
static void trace_finding_put_many(finder *f, int d, int other, int n, int64_t ns)
{
    char time[HDI_AMOUNT_BYTES];
    int64_t gain = trace_finding_bound(f, ns);
    if (!trace_finding_counts(f, gain, 3)) {
        return;
    }
    trace_finding *one = trace_finding_add(f, "idle-for-device", d, other, gain);
    gaps g = trace_finding_gaps_of(f, d, TRACE_CAUSE_DEVICE, TRACE_NONE);
    trace_finding_put_gaps(one, f->t, &g, f->t->devices[d].cause[TRACE_CAUSE_DEVICE]);
    PUT(one->title, "device %d stood still for %s (%d %%), waiting for %d other devices in turn", d,
        trace_time_text(ns, time), trace_finding_percent(ns, f->window), n);
    PUT(one->remedy,
        "Divide the work so that device %d needs fewer results of other devices, and name only the bytes in use with "
        "hd_in_range. On each device, submit first the work that other devices wait for.",
        d);
}

static void trace_finding_idle_for_devices(finder *f, int d)
{
    const trace_device *device = &f->t->devices[d];
    int64_t rest = 0;
    int others = 0, most = TRACE_NONE;
    for (int e = 0; e < f->t->n_devices; e++) {
        int64_t ns = device->for_device[e], back = f->t->devices[e].for_device[d];
        if (!trace_finding_counts(f, ns, 3)) {
            rest += ns;
            others += ns > 0;
            most = ns > 0 && (most == TRACE_NONE || ns > device->for_device[most]) ? e : most;
            continue;
        }
        char time[HDI_AMOUNT_BYTES];
        bool turns = trace_finding_counts(f, back, 3) && trace_finding_counts(f, trace_least(ns, back), 15);
        if (turns && e < d) {
            continue; /* report a pair once */
        }
        int64_t gain = trace_finding_bound(f, turns ? trace_least(ns, back) : ns);
        if (!trace_finding_counts(f, gain, 3)) {
            continue; /* the busiest device needs almost the whole window */
        }
        trace_finding *one = trace_finding_add(f, turns ? "serialized-devices" : "idle-for-device", d, e, gain);
        gaps g = trace_finding_gaps_of(f, d, TRACE_CAUSE_DEVICE, e);
        trace_finding_put_gaps(one, f->t, &g, ns);
        if (turns) {
            PUT(one->title, "devices %d and %d take turns: each waits for the other for %s (%d %%) or more", d, e,
                trace_time_text(trace_least(ns, back), time), trace_finding_percent(trace_least(ns, back), f->window));
            PUT(one->remedy,
                "Divide the work so that neither device needs the last result of the other one, for example into two "
                "halves. With hd_in_range and hd_out_range an operation waits only for the bytes that it uses.");
        } else {
            PUT(one->title, "device %d stood still for %s (%d %%), waiting for device %d", d, trace_time_text(ns, time),
                trace_finding_percent(ns, f->window), e);
            PUT(one->remedy,
                "On device %d, submit first the work that device %d needs, in smaller parts. Name only the bytes in "
                "use with hd_in_range.",
                e, d);
        }
    }
    if (others > 1 && trace_finding_counts(f, rest, 3)) {
        trace_finding_put_many(f, d, most, others, rest);
    }
}

/* True if a piece is a copy without concurrent computing, or a copy on its way. */
static bool trace_finding_is_copy_alone(const trace *t, const trace_piece *p)
{
    return p->state == TRACE_TRANSFER || (p->state == TRACE_IDLE && p->cause == TRACE_CAUSE_OVERHEAD &&
                                          p->holder != TRACE_NONE && t->ops[p->holder].kind == HDI_RECORD_OP_COPY);
}

/* Device time that calls on the program's own memory take. */
typedef struct own_time {
    int64_t idle;      /* idle time within such a call, or for one of its copies */
    trace_gap longest; /* its longest piece */
    int64_t waits;     /* the part whose cause is `copy` */
    uint64_t gaps, calls, bytes;
} own_time;

/* True for a part of hd_write, hd_read or their box calls. */
static bool trace_finding_op_is_own(const trace *t, int32_t op)
{
    return op != TRACE_NONE && t->ops[op].chunk && !t->ops[op].leg;
}

static own_time trace_finding_sum_own(const trace *t, int device)
{
    own_time own = {0};
    const trace_device *d = &t->devices[device];
    for (size_t i = 0; i < d->n_pieces; i++) {
        const trace_piece *p = &d->pieces[i];
        bool waits = p->state == TRACE_IDLE && p->cause == TRACE_CAUSE_COPY;
        bool way = p->state == TRACE_IDLE && p->cause == TRACE_CAUSE_OVERHEAD;
        if ((waits && p->op == p->holder) || ((waits || way) && trace_finding_op_is_own(t, p->holder))) {
            int64_t ns = p->end - p->begin;
            own.gaps++;
            own.idle += ns;
            own.waits += waits ? ns : 0;
            trace_finding_longer(&own.longest, device, p, ns);
        }
    }
    for (size_t i = 0; i < t->n_transfers; i++) {
        const trace_transfer *x = &t->transfers[i];
        bool is = x->way == HDI_RECORD_WAY_WRITE || x->way == HDI_RECORD_WAY_READ;
        if (is && (x->src == device || x->dst == device)) {
            own.calls++;
            trace_count(&own.bytes, x->bytes);
        }
    }
    return own;
}

/* `alone`: how long the copies of these calls ran without concurrent computing. */
static void trace_finding_put_own(finder *f, int d, const own_time *own, int64_t alone)
{
    char time[HDI_AMOUNT_BYTES], most[HDI_AMOUNT_BYTES], calls[128] = "";
    int64_t all = own->idle;
    trace_add(&all, alone);
    trace_finding *one = trace_finding_add(f, "program-memory", d, TRACE_NONE, trace_finding_bound_copies(f, all));
    all = trace_least(all, f->window);
    f->own_stated[d] = true;
    one->gap = own->longest;
    PUT(one->title, "device %d computed nothing for %s (%d %%) while calls copied the program's own memory", d,
        trace_time_text(all, time), trace_finding_percent(all, f->window));
    if (own->calls > 0) {
        PUT(calls, "%" PRIu64 " calls moved %s each; ", own->calls, TRACE_BYTES(own->bytes / own->calls));
    }
    PUT(one->evidence, "%s%" PRIu64 " gaps within hd_write, hd_read or a staged copy; the longest one took %s%s%s",
        calls, own->gaps, trace_time_text(own->longest.part, most), alone > 0 ? "; their copies ran alone for " : "",
        alone > 0 ? TRACE_NS(alone) : "");
    PUT(one->remedy,
        "Allocate that memory with hd_alloc_host, or pass it to hd_import_host, and use hd_copy, which returns at "
        "once. The program can use a pinned buffer without a copy: hd_map returns its address.");
}

/* Finds copies that ran alone, if computing could have hidden them and their path is not the
 * cause. */
static void trace_finding_idle_for_copies(finder *f, int d)
{
    const trace_device *device = &f->t->devices[d];
    own_time own = trace_finding_sum_own(f->t, d);
    /* time of copies that computing could have hidden */
    int64_t hides = device->compute - device->overlap;
    int64_t own_alone = trace_least(f->own_moved[d], hides);
    own_alone = trace_finding_counts(f, own_alone, 10) ? own_alone : 0;
    int64_t all = own.idle;
    trace_add(&all, own_alone);
    if (trace_finding_counts(f, all, 3)) {
        trace_finding_put_own(f, d, &own, own_alone);
        hides -= own_alone;
    }
    gaps g = trace_finding_gaps_of(f, d, TRACE_CAUSE_COPY, TRACE_NONE);
    /* do not repeat what findings about paths explain */
    int64_t way = f->ways_stated[d] ? 0 : f->copy_way[d];
    int64_t ran = device->transfer - (f->own_stated[d] ? f->own_moved[d] : 0);
    int64_t moved = trace_most(ran + way - f->slow[d], 0);
    int64_t explained = trace_most(f->slow[d] - ran, 0);
    int64_t alone = trace_least(moved, hides);
    alone = trace_finding_counts(f, alone, 10) ? alone : 0;
    int64_t waits = trace_most(device->cause[TRACE_CAUSE_COPY] - own.waits - explained, 0), gain = waits;
    trace_add(&gain, alone);
    if (!trace_finding_counts(f, gain, 3)) {
        return;
    }
    char time[HDI_AMOUNT_BYTES], wait[HDI_AMOUNT_BYTES];
    trace_finding *one = trace_finding_add(f, "idle-for-copy", d, TRACE_NONE, trace_finding_bound_copies(f, gain));
    gain = trace_least(gain, f->window);
    trace_finding_put_gaps(one, f->t, &g, device->cause[TRACE_CAUSE_COPY]);
    PUT(one->title, "device %d computed nothing for %s (%d %%) while bytes were copied", d, trace_time_text(gain, time),
        trace_finding_percent(gain, f->window));
    if (alone > 0) {
        f->ways_stated[d] = true;
        for (size_t i = 0; i < device->n_pieces; i++) {
            const trace_piece *p = &device->pieces[i];
            trace_finding_longer(&one->gap, d, p, trace_finding_is_copy_alone(f->t, p) ? p->end - p->begin : 0);
        }
        PUT(one->evidence,
            "copies ran alone, or were on their way, for %s. Computing took %s. The device stood still for copies "
            "elsewhere for %s",
            trace_time_text(ran + way, time), TRACE_NS(device->compute), trace_time_text(waits, wait));
    }
    PUT(one->remedy, "Use two buffers in turn: submit the hd_copy of the next step before the launch of this step. "
                     "Copies run in lanes of their own, so the copy and the launch overlap.");
}

/* The device whose full lanes explain most of the idle time of device `d` with cause RING.
 * TRACE_NONE: this is device `d` itself. */
static int trace_finding_device_full_elsewhere(const trace *t, int d)
{
    int64_t by[TRACE_DEVICES] = {0};
    int most = d;
    for (size_t i = 0; i < t->devices[d].n_pieces; i++) {
        const trace_piece *p = &t->devices[d].pieces[i];
        if (p->state == TRACE_IDLE && p->cause == TRACE_CAUSE_RING) {
            int other = p->other != TRACE_NONE ? p->other : d;
            by[other] += p->end - p->begin;
            most = by[other] > by[most] ? other : most;
        }
    }
    return most == d ? TRACE_NONE : most;
}

static void trace_finding_idle_for_rest(finder *f, int d)
{
    static const struct {
        trace_cause cause;
        const char *id, *why, *remedy;
    } kinds[] = {
        {TRACE_CAUSE_CLAIM, "idle-for-claim", "its work waited for bytes that the program had claimed",
         "End the claim as soon as the program no longer uses its bytes (hd_claim_end), or claim a smaller range. A "
         "function of hd_launch_host claims its bytes until it returns: let it return sooner, or name fewer bytes."},
        {TRACE_CAUSE_RING, "ring-full", "a thread waited for room in a lane's ring",
         "Use a submitting thread for each device, raise the option lane_slots (HEDDLE_LANE_SLOTS), or submit fewer "
         "and larger operations. If the other device only has more work, divide the work in another way."},
        {TRACE_CAUSE_MEMORY, "memory-pauses", "a thread waited for memory",
         "Allocate before the loop, and reuse buffers of the same sizes. If the device's memory is full, raise "
         "memory_limit or use less memory."},
        {TRACE_CAUSE_UNKNOWN, "missing-waits", "the trace lacks some waits of its work",
         "Start the trace while no work is under way. If records had no room, raise the option trace_limit, or record "
         "less with trace_detail=edges."},
    };
    const trace_device *device = &f->t->devices[d];
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        int64_t ns = device->cause[kinds[i].cause];
        ns -= kinds[i].cause == TRACE_CAUSE_MEMORY ? f->memory[d] : 0;
        if (!trace_finding_counts(f, ns, 3)) {
            continue;
        }
        char time[HDI_AMOUNT_BYTES];
        trace_finding *one = trace_finding_add(f, kinds[i].id, d, TRACE_NONE, trace_finding_bound(f, ns));
        gaps g = trace_finding_gaps_of(f, d, kinds[i].cause, TRACE_NONE);
        trace_finding_put_gaps(one, f->t, &g, ns);
        char where[24] = "";
        int other = kinds[i].cause == TRACE_CAUSE_RING ? trace_finding_device_full_elsewhere(f->t, d) : TRACE_NONE;
        if (other != TRACE_NONE) {
            PUT(where, " of device %d", other);
        }
        PUT(one->title, "device %d stood still for %s (%d %%): %s%s", d, trace_time_text(ns, time),
            trace_finding_percent(ns, f->window), kinds[i].why, where);
        PUT(one->remedy, "%s", kinds[i].remedy);
    }
}

/* ---- losses ---- */

static void trace_finding_find_losses(finder *f)
{
    const trace *t = f->t;
    for (int d = 0; d < t->n_devices; d++) {
        const trace_loss *first = NULL;
        int n = 0;
        for (size_t i = 0; i < t->n_losses; i++) {
            if (t->losses[i].device == d) {
                first = first ? first : &t->losses[i];
                n++;
            }
        }
        if (!first) {
            continue;
        }
        f->lacks_work[d] = true;
        char time[HDI_AMOUNT_BYTES];
        int64_t down = t->devices[d].cause[TRACE_CAUSE_LOSS];
        trace_finding *one = trace_finding_add(f, "losses", d, TRACE_NONE, down);
        one->op = first->op;
        one->gap = trace_finding_gaps_of(f, d, TRACE_CAUSE_LOSS, TRACE_NONE).longest;
        PUT(one->title, "device %d was lost %d time%s, and was away for %s", d, n, n == 1 ? "" : "s",
            trace_time_text(down, time));
        PUT(one->evidence, "%.380s", first->message[0] ? first->message : "the first loss has no message");
        PUT(one->remedy,
            "Check the operation that the message names. HEDDLE_LAUNCH_WAIT=on finds the launch that causes "
            "the loss.");
    }
}

/* ---- failures ---- */

#define FAILED_ID "failed-operations"

/* This finding comes first: if work failed, all other figures describe a program that did not do
 * its work. Operations that a loss ended belong to the finding about losses. */
static void trace_finding_find_failed(finder *f)
{
    const trace *t = f->t;
    for (int d = 0; d < t->n_devices; d++) {
        int32_t first = TRACE_NONE;
        uint64_t n = 0;
        for (size_t i = trace_first_op(t, d), end = trace_first_op(t, d + 1); i < end; i++) {
            const trace_op *op = &t->ops[i];
            if (!op->failed || op->lost || !trace_is_work(op->kind)) {
                continue;
            }
            n++;
            first = first == TRACE_NONE || op->issued < t->ops[first].issued ? (int32_t)i : first;
        }
        f->lacks_work[d] = n > 0;
        if (n == 0) {
            continue;
        }
        char name[TRACE_TEXT];
        trace_finding *one = trace_finding_add(f, FAILED_ID, d, TRACE_NONE, 0);
        one->op = first;
        PUT(one->title, "%" PRIu64 " operation%s of device %d never ran, from %.80s on", n, n == 1 ? "" : "s", d,
            trace_op_name(t, first, name));
        PUT(one->evidence, "that operation failed %s into the window; after a failure, a lane skips its later work",
            TRACE_NS(trace_most(0, t->ops[first].issued - t->begin)));
        PUT(one->remedy,
            "Check the results of hd_wait and hd_lane_wait, which return the error; hd_message gives the reason. "
            "hd_lane_reset lets the lane accept work again.");
    }
}

/* ---- transfers ---- */

/* "device 1", "the host". */
static const char *trace_finding_place_text(uint8_t device, char out[32])
{
    snprintf(out, 32, device < TRACE_DEVICES ? "device %d" : "the host", device);
    return out;
}

/* The operation of a path's longest transfer. */
static int32_t trace_finding_longest_transfer(const trace *t, const trace_link *l)
{
    int64_t most = 0;
    int32_t op = TRACE_NONE;
    for (size_t i = 0; i < t->n_transfers; i++) {
        const trace_transfer *x = &t->transfers[i];
        bool of_path = x->way == l->way && x->src == l->src && x->dst == l->dst && x->op != TRACE_NONE;
        if (of_path && x->began != TRACE_UNSEEN && x->ended != TRACE_UNSEEN && x->ended - x->began > most) {
            most = x->ended - x->began;
            op = x->op;
        }
    }
    for (size_t i = 0; i < t->n_ops; i++) { /* copies without a transfer of their own */
        const trace_op *x = &t->ops[i];
        bool of_path = x->kind == HDI_RECORD_OP_COPY && x->way == l->way && x->src == l->src && x->dst == l->dst;
        if (of_path && x->began != TRACE_UNSEEN && x->ended != TRACE_UNSEEN && x->ended - x->began > most) {
            most = x->ended - x->began;
            op = (int32_t)i;
        }
    }
    return op;
}

/* For smaller copies, the way of each copy to the device counts as time of the path. */
#define SMALL_BYTES (UINT64_C(512) << 10)

/* `way`: how long, within `busy`, copies were on their way. */
static void trace_finding_put_slow_link(finder *f, const trace_link *l, double peak, int64_t way, int64_t gain)
{
    char src[32], dst[32], mean[HDI_AMOUNT_BYTES], busy[HDI_AMOUNT_BYTES];
    uint64_t each = l->bytes / l->count;
    bool small = each < SMALL_BYTES;
    int device = l->dst < TRACE_DEVICES ? l->dst : l->src < TRACE_DEVICES ? l->src : TRACE_NONE;
    int other = l->dst < TRACE_DEVICES && l->src < TRACE_DEVICES ? l->src : TRACE_NONE;
    trace_finding *one = trace_finding_add(f, small ? "small-transfers" : "slow-path", device, other, gain);
    one->op = trace_finding_longest_transfer(f->t, l);
    PUT(one->title, "%s, %s to %s: %.1f GB/s of %.1f", trace_way_text(l->way), trace_finding_place_text(l->src, src),
        trace_finding_place_text(l->dst, dst), l->rate / 1e9, peak / 1e9);
    PUT(one->evidence, "%" PRIu64 " copies of %s each kept the path busy for %s%s%s; %s", l->count,
        trace_bytes_text(each, mean), trace_time_text(l->busy - way, busy),
        way > 0 ? ", and were on their way for " : "", way > 0 ? TRACE_NS(way) : "",
        l->peak > 0 ? "the peak is that of --peaks" : "the peak is the best large copy of this trace");
    if (small) {
        PUT(one->remedy,
            "Join small copies: copy rows of one buffer with hd_copy_box, and pack several arrays into one.");
    } else {
        PUT(one->remedy,
            "`heddle p2p` measures this path and names the causes. Other transfers on the path at the same time slow "
            "it down, too.");
    }
}

/* Returns the path without the copies through chunks. */
static trace_link trace_finding_own_part_of_link(const trace_link *l)
{
    trace_link own = *l;
    own.count = l->own_count, own.bytes = l->own_bytes, own.busy = l->own_busy;
    own.rate = l->own_busy > 0 ? (double)l->own_bytes * 1e9 / (double)l->own_busy : 0;
    return own;
}

static int trace_finding_compare_paths(const void *a, const void *b)
{
    const trace_link *x = a, *y = b;
    int p = x->way << 16 | x->src << 8 | x->dst, q = y->way << 16 | y->src << 8 | y->dst;
    return p - q;
}

/* Returns, for each link, the idle time while its copies were on their way to the device. NULL: out
 * of memory. The links are sorted. */
static int64_t *trace_finding_ways_of_copies(finder *f)
{
    const trace *t = f->t;
    int64_t *ways = trace_table(t->n_links, sizeof *ways);
    for (int d = 0; ways && d < t->n_devices; d++) {
        for (size_t i = 0; i < t->devices[d].n_pieces; i++) {
            const trace_piece *p = &t->devices[d].pieces[i];
            /* the operation on its way */
            const trace_op *op = p->holder != TRACE_NONE ? &t->ops[p->holder] : NULL;
            if (p->state != TRACE_IDLE || p->cause != TRACE_CAUSE_OVERHEAD || !op || op->kind != HDI_RECORD_OP_COPY ||
                op->leg || op->chunk) {
                continue;
            }
            f->copy_way[d] += p->end - p->begin;
            const trace_link key = {.way = op->way, .src = op->src, .dst = op->dst};
            const trace_link *link = bsearch(&key, t->links, t->n_links, sizeof key, trace_finding_compare_paths);
            if (link) {
                trace_add(&ways[link - t->links], p->end - p->begin);
            }
        }
    }
    return ways;
}

typedef struct period {
    int64_t begin, end;
} period;

static int trace_finding_compare_periods(const void *a, const void *b)
{
    const period *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* How much of a device's transfer time lies within the sorted periods. Overlaps count once. */
static int64_t trace_finding_within_transfer(const trace_device *d, const period *list, size_t n)
{
    int64_t sum = 0, covered = INT64_MIN;
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        int64_t begin = trace_most(list[i].begin, covered), end = list[i].end;
        covered = trace_most(covered, end);
        while (at < d->n_pieces && d->pieces[at].end <= begin) {
            at++;
        }
        for (size_t k = at; k < d->n_pieces && d->pieces[k].begin < end; k++) {
            const trace_piece *p = &d->pieces[k];
            int64_t ns = trace_least(p->end, end) - trace_most(p->begin, begin);
            sum += p->state == TRACE_TRANSFER && ns > 0 ? ns : 0;
        }
    }
    return sum;
}

/* How long copies of the program's own memory ran on each device without concurrent computing.
 * False: out of memory. */
static bool trace_finding_sum_own_moved(finder *f)
{
    const trace *t = f->t;
    period *list = trace_table(t->n_ops, sizeof *list);
    for (int d = 0; list && d < t->n_devices; d++) {
        size_t n = 0;
        for (size_t i = trace_first_op(t, d), end = trace_first_op(t, d + 1); i < end; i++) {
            const trace_op *op = &t->ops[i];
            if (trace_finding_op_is_own(t, (int32_t)i) && op->began != TRACE_UNSEEN && op->ended != TRACE_UNSEEN) {
                list[n++] = (period){op->began, op->ended};
            }
        }
        trace_sort(list, n, sizeof *list, trace_finding_compare_periods);
        f->own_moved[d] = trace_finding_within_transfer(&t->devices[d], list, n);
    }
    bool ok = list != NULL;
    free(list);
    return ok;
}

/* Sums up staged copies to each device, and the idle time for their halves. */
static void trace_finding_sum_staged(finder *f)
{
    const trace *t = f->t;
    for (size_t i = 0; i < t->n_links; i++) {
        const trace_link *l = &t->links[i];
        if (l->way == HDI_RECORD_WAY_STAGED && l->dst < TRACE_DEVICES) {
            trace_count(&f->staged[l->dst], l->bytes);
        }
    }
    for (int d = 0; d < t->n_devices; d++) {
        for (size_t i = 0; i < t->devices[d].n_pieces; i++) {
            const trace_piece *p = &t->devices[d].pieces[i];
            bool half = p->state == TRACE_IDLE && p->cause == TRACE_CAUSE_COPY && p->holder != TRACE_NONE &&
                        t->ops[p->holder].leg;
            f->for_staged[d] += half ? p->end - p->begin : 0;
            trace_finding_longer(&f->longest_staged[d], d, p, half ? p->end - p->begin : 0);
        }
    }
}

/* Returns the number of copies of the same pair and direction that did not pass through the host's
 * memory. */
static uint64_t trace_finding_count_direct(const trace *t, const trace_link *staged)
{
    const trace_link key = {.way = HDI_RECORD_WAY_PEER, .src = staged->src, .dst = staged->dst};
    const trace_link *link = bsearch(&key, t->links, t->n_links, sizeof key, trace_finding_compare_paths);
    return link ? link->count : 0;
}

/* A staged path is in use from the first half of a copy on. Its time includes the idle time while
 * the halves are on their way to the device. */
static void trace_finding_find_staged(finder *f, const trace_link *l, uint8_t device, int64_t open)
{
    const trace *t = f->t;
    double part = f->staged[device] > 0 ? (double)l->bytes / (double)f->staged[device] : 0;
    int64_t idle = (int64_t)((double)f->for_staged[device] * (part < 1 ? part : 1));
    int64_t gain = trace_least(trace_most(l->busy, idle), open);
    char src[32], dst[32];
    if (!trace_finding_counts(f, gain, 3)) {
        return;
    }
    trace_add(&f->slow[device], gain);
    if (l->src < t->n_devices) { /* the first half of the copy */
        trace_add(&f->slow[l->src], trace_least(l->busy, t->devices[l->src].transfer));
    }
    trace_finding *one = trace_finding_add(f, "staged-peer", device, l->src, trace_finding_bound_copies(f, gain));
    one->op = trace_finding_longest_transfer(t, l);
    one->gap = f->longest_staged[device];
    PUT(one->title, "copies from %s to %s pass through the host's memory", trace_finding_place_text(l->src, src),
        trace_finding_place_text(l->dst, dst));
    uint64_t direct = trace_finding_count_direct(t, l);
    char others[64] = "";
    if (direct > 0) {
        PUT(others, "; %" PRIu64 " other%s of this pair went directly", direct, direct == 1 ? "" : "s");
    }
    PUT(one->evidence, "%" PRIu64 " cop%s, %s, %.1f GB/s, busy for %s%s%s%s", l->count, l->count == 1 ? "y" : "ies",
        TRACE_BYTES(l->bytes), l->rate / 1e9, TRACE_NS(l->busy), idle > 0 ? "; devices stood still for them for " : "",
        idle > 0 ? TRACE_NS(idle) : "", others);
    if (direct > 0) {
        PUT(one->remedy, "The first copies of a pair pass through the host's memory while Heddle tests the pair: call "
                         "hd_peers_check before the loop.");
        return;
    }
    PUT(one->remedy, "`heddle p2p` shows why device %d does not reach device %d, and what to change.", l->dst, l->src);
}

/* A path whose copies are far below its peak. */
static void trace_finding_find_slow_path(finder *f, const trace_link *l, uint8_t device, int64_t open, int64_t way)
{
    double peak = l->peak > 0 ? l->peak : l->best;
    trace_link path = trace_finding_own_part_of_link(l);
    bool small = path.count > 0 && path.bytes / path.count < SMALL_BYTES;
    if (small) {
        trace_add(&open, way);
        trace_add(&path.busy, way);
        path.rate = path.busy > 0 ? (double)path.bytes * 1e9 / (double)path.busy : 0;
    }
    bool slow = peak > 0 && path.count >= 16 && path.rate < 0.5 * peak;
    int64_t gain = slow ? trace_least((int64_t)((double)path.busy * (1 - path.rate / peak)), open) : 0;
    if (slow && trace_finding_counts(f, gain, 5)) {
        trace_add(&f->slow[device], trace_most(0, gain - (small ? way : 0)));
        f->ways_stated[device] = f->ways_stated[device] || small;
        trace_finding_put_slow_link(f, &path, peak, small ? way : 0, trace_finding_bound_copies(f, gain));
    }
}

/* Finds slow paths. Only time in which a device copies without computing, or stands idle for a
 * copy, can be gained. Slow halves of staged copies belong to the finding about staging. */
static bool trace_finding_find_slow_paths(finder *f)
{
    const trace *t = f->t;
    int64_t *ways = trace_finding_ways_of_copies(f);
    if (!ways) {
        return false;
    }
    trace_finding_sum_staged(f);
    for (size_t i = 0; i < t->n_links; i++) {
        const trace_link *l = &t->links[i];
        uint8_t device = l->dst < TRACE_DEVICES ? l->dst : l->src;
        bool own = l->way == HDI_RECORD_WAY_WRITE || l->way == HDI_RECORD_WAY_READ || l->way == HDI_RECORD_WAY_HOST;
        if (l->busy == 0 || l->count == 0 || device >= t->n_devices || own) {
            continue;
        }
        const trace_device *d = &t->devices[device];
        int64_t open = d->transfer;
        trace_add(&open, d->cause[TRACE_CAUSE_COPY]);
        if (l->way == HDI_RECORD_WAY_STAGED) {
            trace_finding_find_staged(f, l, device, open);
            continue;
        }
        trace_finding_find_slow_path(f, l, device, open, ways[i]);
    }
    free(ways);
    return true;
}

/* ---- imbalance ---- */

static void trace_finding_find_imbalance(finder *f)
{
    const trace *t = f->t;
    int most = TRACE_NONE, least = TRACE_NONE;
    for (int d = 0; d < t->n_devices; d++) {
        if (f->used[d]) {
            most = most == TRACE_NONE || f->busy[d] > f->busy[most] ? d : most;
            least = least == TRACE_NONE || f->busy[d] < f->busy[least] ? d : least;
        }
    }
    int64_t gain = most == TRACE_NONE ? 0 : f->busy[most] - f->mean_busy;
    if (f->n_used < 2 || !trace_finding_counts(f, gain, 10) || f->lacks_work[least]) {
        return;
    }
    const trace_device *light = &t->devices[least];
    int64_t waits = light->cause[TRACE_CAUSE_DEVICE];
    /* true if the device stood idle mostly because it had too little work */
    bool lacks = light->cause[TRACE_CAUSE_NOTHING] + waits >= light->idle / 2;
    if (!lacks) {
        return;
    }
    char a[HDI_AMOUNT_BYTES], b[HDI_AMOUNT_BYTES], mean[HDI_AMOUNT_BYTES];
    bool for_others = trace_finding_counts(f, waits, 3);
    trace_finding *one = trace_finding_add(f, "imbalance", least, most, gain);
    for (size_t i = 0; i < light->n_pieces; i++) {
        const trace_piece *p = &light->pieces[i];
        trace_finding_longer(&one->gap, least, p, p->state == TRACE_IDLE ? p->end - p->begin : 0);
    }
    PUT(one->title, "device %d was busy for %s, device %d for %s", most, trace_time_text(f->busy[most], a), least,
        trace_time_text(f->busy[least], b));
    int n = PUT(one->evidence, "the mean of %d devices is %s", f->n_used, trace_time_text(f->mean_busy, mean));
    if (for_others) {
        snprintf(one->evidence + n, sizeof one->evidence - (size_t)n, "; device %d waited for other devices for %s",
                 least, TRACE_NS(waits));
    }
    PUT(one->remedy,
        "Give each device work of the same duration: parts in proportion to the devices' speed, or smaller parts that "
        "the next free device takes.");
}

/* ---- whole ---- */

static void trace_finding_prepare_finder(finder *f)
{
    const trace *t = f->t;
    for (size_t i = 0; i < t->n_lanes; i++) {
        int d = trace_lane_device(t->lanes[i].lane);
        f->used[d] = f->used[d] || t->lanes[i].n_ops > 0;
    }
    int64_t sum = 0;
    for (int d = 0; d < t->n_devices; d++) {
        f->busy[d] = t->devices[d].compute + t->devices[d].transfer;
        f->n_used += f->used[d];
        trace_add(&sum, f->busy[d]);
        f->most_busy = trace_most(f->most_busy, f->busy[d]);
        f->most_compute = trace_most(f->most_compute, t->devices[d].compute);
    }
    f->mean_busy = f->n_used > 0 ? sum / f->n_used : 0;
}

static bool trace_finding_is_failure(const trace_finding *x)
{
    return strcmp(x->id, FAILED_ID) == 0;
}

static int trace_finding_compare_findings(const void *a, const void *b)
{
    const trace_finding *x = a, *y = b;
    if (trace_finding_is_failure(x) != trace_finding_is_failure(y)) {
        return trace_finding_is_failure(x) ? -1 : 1;
    }
    if (x->gain != y->gain) {
        return x->gain > y->gain ? -1 : 1;
    }
    int by_id = strcmp(x->id, y->id);
    return by_id != 0 ? by_id : x->device - y->device;
}

/* Links the findings of one id by `next`, in the order of the table. */
static void trace_finding_group_by_id(trace *t)
{
    int32_t last[TRACE_FINDING_IDS]; /* by id */
    memset(last, 0xff, sizeof last); /* sets TRACE_NONE */
    for (size_t i = 0; i < t->n_findings; i++) {
        trace_finding *one = &t->findings[i];
        int id = trace_finding_number(one->id);
        one->first = last[id] == TRACE_NONE ? (int32_t)i : t->findings[last[id]].first;
        one->next = TRACE_NONE;
        if (last[id] != TRACE_NONE) {
            t->findings[last[id]].next = (int32_t)i;
        }
        last[id] = (int32_t)i;
    }
}

bool trace_find(trace *t)
{
    finder *f = calloc(1, sizeof *f);
    if (!f) {
        return false;
    }
    f->t = t;
    f->window = t->end - t->begin;
    f->by_name = trace_table(t->n_names + 1, sizeof *f->by_name);
    bool ok = f->by_name != NULL;
    if (ok) {
        trace_finding_prepare_finder(f);
        trace_finding_find_failed(f);
        trace_finding_find_losses(f);
        ok = trace_finding_sum_own_moved(f) && trace_finding_find_slow_paths(f) && trace_finding_memory(f);
        for (int d = 0; d < t->n_devices; d++) {
            if (f->used[d]) {
                trace_finding_idle_for_devices(f, d);
                trace_finding_idle_for_copies(f, d);
                trace_finding_idle_for_rest(f, d);
                ok = ok && trace_finding_idle_host(f, d);
            }
        }
        trace_finding_find_imbalance(f);
        ok = ok && !f->failed;
        size_t kept = 0;
        for (size_t i = 0; i < t->n_findings; i++) { /* drop findings without gain */
            if (trace_finding_counts(f, t->findings[i].gain, 1) || strcmp(t->findings[i].id, "losses") == 0 ||
                trace_finding_is_failure(&t->findings[i])) {
                t->findings[kept++] = t->findings[i];
            }
        }
        t->n_findings = kept;
        trace_sort(t->findings, t->n_findings, sizeof t->findings[0], trace_finding_compare_findings);
        trace_finding_group_by_id(t);
    }
    free(f->by_name);
    free(f);
    return ok;
}
