/* read.c - reads the records of a trace file, checks them, and fills the tables of model.h: lanes,
 * operations, waits.
 *
 * Threads, Locks: see model.h.
 * Always: an invalid record is counted and dropped. The work grows as n log n in the number of
 * records.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "cli/process.h"
#include "cli/trace/parts.h"

void *trace_table(size_t n, size_t item)
{
    return calloc(n > 0 ? n : 1, item);
}

int trace_lane_device(uint32_t lane)
{
    return lane / HDI_RECORD_LANES < TRACE_DEVICES ? (int)(lane / HDI_RECORD_LANES) : TRACE_NONE;
}

uint64_t trace_position(const trace_source *s, uint64_t position)
{
    return position | s->run << TRACE_POSITION_BITS;
}

int64_t trace_time(trace_source *s, int64_t clock)
{
    int64_t since;
    if (__builtin_sub_overflow(clock, s->begin, &since) || since > TRACE_TIME_MOST || since < -TRACE_TIME_MOST) {
        s->t->ignored++;
        return TRACE_UNSEEN;
    }
    s->last = trace_most(s->last, since);
    return since;
}

/* ---- texts ---- */

/* Replaces control characters and invalid UTF-8 by question marks, in place. */
static void trace_read_make_plain(char *text)
{
    for (unsigned char *at = (unsigned char *)text; *at;) {
        int length = hdi_utf8_length(at);
        bool control = length == 1 ? at[0] < 0x20 || at[0] == 0x7f : length == 2 && at[0] == 0xc2 && at[1] < 0xa0;
        if (length == 0 || control) {
            length = length > 0 ? length : 1;
            memset(at, '?', (size_t)length);
        }
        at += length;
    }
}

void trace_text(const trace_source *s, size_t index, char *out, size_t room)
{
    hdi_record r = trace_record(s, index);
    size_t length = 0;
    for (size_t i = 1; i <= r.texts && index + i < s->n; i++) {
        hdi_record more = trace_record(s, index + i);
        if (more.type != HDI_RECORD_TEXT) {
            break;
        }
        size_t bytes = more.text.bytes < HDI_RECORD_TEXT_BYTES ? more.text.bytes : HDI_RECORD_TEXT_BYTES;
        bytes = bytes < room - 1 - length ? bytes : room - 1 - length;
        memcpy(out + length, more.text.text, bytes);
        length += bytes;
    }
    out[length] = 0;
    trace_read_make_plain(out);
}

const char *trace_name(const trace *t, int32_t name)
{
    return name >= 0 && (size_t)name < t->n_names ? t->names[name] : "";
}

/* ---- head, devices ---- */

/* True if a file that begins so is a trace; else `error` explains why not. */
static bool trace_read_is_trace(const void *bytes, size_t n, void *error)
{
    hdi_record first = {.type = 0};
    memcpy(&first, bytes, n < sizeof first ? 0 : sizeof first);
    if (first.type != HDI_RECORD_TRACE || first.trace.magic != HDI_RECORD_MAGIC) {
        bool turned = first.trace.magic == __builtin_bswap64(HDI_RECORD_MAGIC);
        snprintf(error, 512, "%s",
                 turned ? "it is a trace of a machine with another byte order; read it on such a machine"
                        : "it is no trace of Heddle; HEDDLE_TRACE=FILE makes one");
        return false;
    }
    if (first.trace.version != HDI_RECORD_VERSION) {
        snprintf(error, 512, "its version is %u, and this tool reads version %d; use the tool of the same release",
                 first.trace.version, HDI_RECORD_VERSION);
        return false;
    }
    return true;
}

static void trace_read_head(trace_source *s)
{
    const hdi_record first = trace_record(s, 0);
    s->begin = first.time;
    trace *t = s->t;
    t->clock = first.time;
    t->rank = t->ranks = TRACE_NONE;
    t->detail = first.kind;
    t->placement = (int)(first.trace.placement <= 2 ? first.trace.placement : 0);
    t->process = first.trace.process;
    t->since_1970 = first.trace.since_1970;
    t->n_devices = first.device <= TRACE_DEVICES ? first.device : TRACE_DEVICES;
    t->runs = 1;
}

static void trace_read_device(trace_source *s, size_t index, const hdi_record *r)
{
    if (r->device >= TRACE_DEVICES) {
        s->t->ignored++;
        return;
    }
    trace_device *d = &s->t->devices[r->device];
    trace_text(s, index, d->name, sizeof d->name);
    memcpy(d->bus, r->a_device.bus, sizeof d->bus);
    d->bus[sizeof d->bus - 1] = 0;
    trace_read_make_plain(d->bus);
    d->is_host = r->kind == 1;
    d->memory = r->a_device.memory;
    s->t->n_devices = r->device >= s->t->n_devices ? r->device + 1 : s->t->n_devices;
}

/* ---- operations ---- */

static void trace_read_submit(trace_source *s, const hdi_record *r)
{
    trace *t = s->t;
    int device = trace_lane_device(r->submit.lane);
    int64_t time = trace_time(s, r->time);
    if (device == TRACE_NONE || r->kind < HDI_RECORD_OP_LAUNCH || r->kind >= HDI_RECORD_OPS || time == TRACE_UNSEEN ||
        r->submit.position >> TRACE_POSITION_BITS != 0) {
        t->ignored += time != TRACE_UNSEEN;
        return;
    }
    bool copies = r->kind == HDI_RECORD_OP_COPY;
    t->ops[s->places[TRACE_ROW_SUBMIT].end[r->submit.lane]++] = (trace_op){
        .lane = r->submit.lane,
        .kind = r->kind,
        .way = (uint8_t)(copies && r->submit.kernel < HDI_RECORD_WAYS ? r->submit.kernel : 0),
        .src = copies ? r->submit.src : HDI_RECORD_NO_DEVICE,
        .dst = copies ? r->submit.dst : HDI_RECORD_NO_DEVICE,
        .chunk = copies && r->submit.blocks == 1,
        .position = trace_position(s, r->submit.position),
        .kernel = r->kind == HDI_RECORD_OP_LAUNCH ? trace_lookup(s, HDI_RECORD_NAME_KERNEL, r->submit.kernel, time)
                                                  : TRACE_NONE,
        .thread = r->thread,
        .blocks = r->submit.blocks,
        .threads = r->submit.threads,
        .ring = r->submit.ring,
        .bytes = r->submit.bytes,
        .submitted = time,
        .issued = TRACE_UNSEEN,
        .returned = TRACE_UNSEEN,
        .began = TRACE_UNSEEN,
        .ended = TRACE_UNSEEN,
        .done = TRACE_UNSEEN,
        .ready = TRACE_UNSEEN,
        /* the number that the submit announced, until the waits are found */
        .n_waits = r->submit.waits,
        .before = TRACE_NONE,
        .stretch = TRACE_NONE,
        .holder = TRACE_NONE,
        .held_by = TRACE_NONE,
    };
    t->n_devices = device >= t->n_devices ? device + 1 : t->n_devices;
}

/* False if the ends of a span on one clock are out of order, or an end by the clock is outside
 * the trace. */
static bool trace_read_run_has_sense(const bench_trace_run *span)
{
    bool began = span->by_clock & HDI_RECORD_SPAN_BEGAN_BY_CLOCK,
         ended = span->by_clock & HDI_RECORD_SPAN_ENDED_BY_CLOCK;
    return !(began && span->began == TRACE_UNSEEN) && !(ended && span->ended == TRACE_UNSEEN) &&
           (began != ended || span->began <= span->ended);
}

/* The table of a record's type. TRACE_ROWS: the record belongs to no lane's table. */
static trace_row trace_read_row_of_type(uint8_t type)
{
    return type == HDI_RECORD_SUBMIT  ? TRACE_ROW_SUBMIT
           : type == HDI_RECORD_ISSUE ? TRACE_ROW_ISSUE
           : type == HDI_RECORD_SPAN  ? TRACE_ROW_SPAN
           : type == HDI_RECORD_DONE  ? TRACE_ROW_DONE
                                      : TRACE_ROWS;
}

static void trace_read_run(trace_source *s, const hdi_record *r)
{
    bench_trace_run run = {.kind = r->kind, .lane = r->span.lane};
    bool is_span = r->type == HDI_RECORD_SPAN;
    run.before = r->type == HDI_RECORD_ISSUE ? r->issue.before : is_span ? r->span.before : r->done.before;
    run.position = r->type == HDI_RECORD_ISSUE ? r->issue.position : is_span ? r->span.position : r->done.position;
    run.time = trace_time(s, r->time);
    run.by_clock = is_span ? r->span.by_clock & (HDI_RECORD_SPAN_BEGAN_BY_CLOCK | HDI_RECORD_SPAN_ENDED_BY_CLOCK) : 0;
    run.ended = r->type == HDI_RECORD_ISSUE ? trace_end_of(run.time, trace_time(s, r->issue.returned))
                : run.by_clock & HDI_RECORD_SPAN_ENDED_BY_CLOCK ? trace_time(s, r->span.ended)
                                                                : r->span.ended;
    run.began = run.by_clock & HDI_RECORD_SPAN_BEGAN_BY_CLOCK ? trace_time(s, r->span.began) : r->span.began;
    run.way = is_span ? r->span.way : 0;
    run.op = (uint8_t)(is_span && r->span.op < HDI_RECORD_OPS ? r->span.op : 0);
    bool sense = trace_lane_device(run.lane) != TRACE_NONE && run.before < run.position &&
                 run.position >> TRACE_POSITION_BITS == 0 && (r->type != HDI_RECORD_ISSUE || run.ended >= run.time);
    if (!sense || run.time == TRACE_UNSEEN || (is_span && (run.op == 0 || !trace_read_run_has_sense(&run)))) {
        s->t->ignored += run.time != TRACE_UNSEEN;
        return;
    }
    run.before = trace_position(s, run.before);
    run.position = trace_position(s, run.position);
    trace_row row = trace_read_row_of_type(r->type);
    bench_trace_run *tables[TRACE_ROWS] = {NULL, s->issues, s->spans, s->dones};
    tables[row][s->places[row].end[run.lane]++] = run;
}

static void trace_read_lane(trace_source *s, const hdi_record *r)
{
    int device = trace_lane_device(r->a_lane.lane);
    if (device == TRACE_NONE) {
        s->t->ignored++;
        return;
    }
    s->t->lanes[s->t->n_lanes++] =
        (trace_lane){.lane = r->a_lane.lane, .kind = r->kind, .slots = r->a_lane.slots, .first_op = 0};
    s->t->n_devices = device >= s->t->n_devices ? device + 1 : s->t->n_devices;
}

static void trace_read_clock(trace_source *s, const hdi_record *r)
{
    int64_t time = trace_time(s, r->time);
    if (r->device >= TRACE_DEVICES || time == TRACE_UNSEEN) {
        s->t->ignored += time != TRACE_UNSEEN;
        return;
    }
    s->clocks[s->n_clocks++] =
        (trace_clock){.device = r->device, .run = s->run, .time = time, .own = r->clock.own, .within = r->clock.within};
}

enum { OF_FILE = 2 }; /* DROPPED */

/* A report follows its work, so a report that an engine dropped concerns work that had begun. */
static void trace_read_dropped(trace_source *s, const hdi_record *r)
{
    enum { OF_ENGINE = 1 };
    /* the file's own DROPPED of a full file has a time behind the trace's end */
    bool lasts = !(s->is_full && r->kind == OF_FILE);
    int64_t time = lasts ? trace_time(s, r->time) : TRACE_UNSEEN;
    trace_count(&s->t->dropped, r->dropped.count);
    for (int d = 0; d < TRACE_DEVICES && r->dropped.count > 0; d++) {
        s->t->devices[d].incomplete |= r->kind == OF_ENGINE && d == r->device;
        bool engines = r->kind == OF_ENGINE && time != TRACE_UNSEEN;
        int64_t until = !engines ? INT64_MAX : d == r->device ? time : INT64_MIN;
        s->incomplete_until[d] = trace_most(s->incomplete_until[d], until);
    }
}

/* Finds out if the file ran out of room. */
static void trace_read_find_end(trace_source *s)
{
    /* looks at END, and at the record before it */
    for (size_t back = 1; back <= 2 && back < s->n; back++) {
        hdi_record r = trace_record(s, s->n - back);
        if (r.type == HDI_RECORD_DROPPED && r.kind == OF_FILE && r.dropped.count > 0) {
            s->is_full = true;
            s->last_partial = s->n - back;
            s->first_partial = s->last_partial - (r.dropped.partial < s->last_partial ? r.dropped.partial : 0);
        }
    }
    s->t->ended_early = s->is_full;
}

static bool trace_read_is_partial(const trace_source *s, size_t index)
{
    return index >= s->first_partial && index < s->last_partial;
}

/* records.c reads the rest of a RESTART, and counts an invalid one. */
static void trace_read_restart(trace_source *s, const hdi_record *r)
{
    int64_t since;
    if (r->device < TRACE_DEVICES && !__builtin_sub_overflow(r->time, s->begin, &since)) {
        s->restarts[s->n_restarts++] = (trace_restart){.device = r->device, .time = since};
    }
}

void trace_first_run(trace_source *s)
{
    const hdi_record first = trace_record(s, 0);
    s->run = 0;
    s->run_process = first.trace.process;
    s->run_number = first.trace.run;
}

/* Two processes may use the same runtime numbers. */
bool trace_next_run(trace_source *s, const hdi_record *r)
{
    bool next = r->type == HDI_RECORD_TRACE && r->trace.magic == HDI_RECORD_MAGIC &&
                (r->trace.run != s->run_number || r->trace.process != s->run_process) &&
                s->run + 1 < UINT64_C(1) << (63 - TRACE_POSITION_BITS);
    if (next) {
        s->run_process = r->trace.process;
        s->run_number = r->trace.run;
        s->run++;
    }
    return next;
}

static void trace_read_again(trace_source *s, const hdi_record *r)
{
    if (r->trace.magic != HDI_RECORD_MAGIC || r->trace.version != HDI_RECORD_VERSION) {
        s->t->ignored++;
        return;
    }
    s->t->detail = r->kind > s->t->detail ? r->kind : s->t->detail;
    s->t->runs += trace_next_run(s, r);
    s->t->ended = false; /* the trace continues */
}

/* Reads the records about operations and times. records.c reads the others. */
static void trace_read_operations(trace_source *s)
{
    trace_first_run(s);
    for (int d = 0; d < TRACE_DEVICES; d++) {
        s->incomplete_until[d] = INT64_MIN;
    }
    for (size_t i = 1; i < s->n; i++) {
        hdi_record r = trace_record(s, i);
        switch (trace_read_is_partial(s, i) ? HDI_RECORD_NONE : r.type) {
        case HDI_RECORD_TRACE:
            trace_read_again(s, &r);
            break;
        case HDI_RECORD_DEVICE:
            trace_read_device(s, i, &r);
            break;
        case HDI_RECORD_LANE:
            trace_read_lane(s, &r);
            break;
        case HDI_RECORD_SUBMIT:
            trace_read_submit(s, &r);
            break;
        case HDI_RECORD_ISSUE:
        case HDI_RECORD_SPAN:
        case HDI_RECORD_DONE:
            trace_read_run(s, &r);
            break;
        case HDI_RECORD_CLOCK:
            trace_read_clock(s, &r);
            break;
        case HDI_RECORD_RESTART:
            trace_read_restart(s, &r);
            break;
        case HDI_RECORD_DROPPED:
            trace_read_dropped(s, &r);
            break;
        case HDI_RECORD_END:
            if (!s->is_full) {
                trace_time(s, r.time); /* extends the trace to its end */
            }
            s->t->ended = true;
            break;
        default:
            break;
        }
    }
}

/* ---- order, by lanes ---- */

static int trace_read_compare_ops(const void *a, const void *b)
{
    const trace_op *x = a, *y = b;
    return x->lane != y->lane ? (x->lane < y->lane ? -1 : 1)
                              : (x->position > y->position) - (x->position < y->position);
}

static int trace_read_compare_lanes(const void *a, const void *b)
{
    const trace_lane *x = a, *y = b;
    return x->lane != y->lane ? (x->lane < y->lane ? -1 : 1) : (x->kind < y->kind) - (x->kind > y->kind);
}

const trace_lane *trace_find_lane(const trace *t, uint32_t lane)
{
    uint32_t at = lane < TRACE_LANE_NUMBERS ? t->lane_at[lane] : 0;
    return at > 0 ? &t->lanes[at - 1] : NULL;
}

size_t trace_first_op(const trace *t, int device)
{
    for (size_t i = 0; i < t->n_lanes; i++) {
        if (trace_lane_device(t->lanes[i].lane) >= device) {
            return (size_t)t->lanes[i].first_op;
        }
    }
    return t->n_ops;
}

size_t trace_op_behind(const trace *t, const trace_lane *lane, uint64_t position)
{
    size_t low = (size_t)lane->first_op, high = low + (size_t)lane->n_ops;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (t->ops[middle].position <= position) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

int32_t trace_find_op(const trace *t, uint32_t lane, uint64_t position)
{
    const trace_lane *l = trace_find_lane(t, lane);
    size_t behind = l ? trace_op_behind(t, l, position) : 0;
    bool is_it = l && behind > (size_t)l->first_op && t->ops[behind - 1].position == position;
    return is_it ? (int32_t)(behind - 1) : TRACE_NONE;
}

/* Collects the lanes of LANE records, and those of operations and spans, whose LANE may be
 * missing. */
static void trace_read_order_lanes(trace_source *s)
{
    trace *t = s->t;
    const trace_places *ops = &s->places[TRACE_ROW_SUBMIT], *spans = &s->places[TRACE_ROW_SPAN];
    for (uint32_t lane = 0; lane < TRACE_LANE_NUMBERS; lane++) {
        if (ops->end[lane] > ops->begin[lane] || spans->end[lane] > spans->begin[lane]) {
            t->lanes[t->n_lanes++].lane = lane;
        }
    }
    trace_sort(t->lanes, t->n_lanes, sizeof t->lanes[0], trace_read_compare_lanes);
    size_t lanes = 0;
    for (size_t i = 0; i < t->n_lanes; i++) {
        if (lanes == 0 || t->lanes[lanes - 1].lane != t->lanes[i].lane) {
            t->lanes[lanes] = t->lanes[i];
            t->lane_at[t->lanes[lanes].lane] = (uint16_t)(lanes + 1);
            lanes++;
        }
    }
    t->n_lanes = lanes;
}

/* Sorts each lane's operations, and drops repeated positions. */
static void trace_read_order_operations(trace_source *s)
{
    trace *t = s->t;
    const trace_places *places = &s->places[TRACE_ROW_SUBMIT];
    size_t kept = 0;
    for (size_t l = 0; l < t->n_lanes; l++) {
        trace_lane *lane = &t->lanes[l];
        size_t begin = places->begin[lane->lane], end = places->end[lane->lane], first = kept;
        trace_sort(t->ops + begin, end - begin, sizeof t->ops[0], trace_read_compare_ops);
        for (size_t i = begin; i < end; i++) {
            if (kept > first && t->ops[kept - 1].position == t->ops[i].position) {
                t->ignored++;
                continue;
            }
            if (kept != i) {
                t->ops[kept] = t->ops[i];
            }
            bool follows =
                kept > first && trace_run_of(t->ops[kept - 1].position) == trace_run_of(t->ops[kept].position);
            t->ops[kept].before = follows ? (int32_t)kept - 1 : TRACE_NONE;
            kept++;
        }
        lane->first_op = (int32_t)first;
        lane->n_ops = (int32_t)(kept - first);
    }
    t->n_ops = kept;
}

static int trace_read_compare_runs(const void *a, const void *b)
{
    const bench_trace_run *x = a, *y = b;
    return x->position != y->position ? (x->position < y->position ? -1 : 1)
                                      : (x->before > y->before) - (x->before < y->before);
}

/* Sorts each lane's runs by position. Returns their number. */
static size_t trace_read_order_runs(const trace_places *places, bench_trace_run *runs)
{
    size_t n = 0;
    for (size_t lane = 0; lane < TRACE_LANE_NUMBERS; lane++) {
        size_t begin = places->begin[lane], count = places->end[lane] - begin;
        if (count > 0) {
            trace_sort(runs + begin, count, sizeof runs[0], trace_read_compare_runs);
            memmove(runs + n, runs + begin, n != begin ? count * sizeof runs[0] : 0);
            n += count;
        }
    }
    return n;
}

/* ---- waits ---- */

/* Like trace_op_behind. `hint` is the last answer for the lane; the next answer is usually
 * close. */
static size_t trace_read_behind_near(const trace *t, const trace_lane *lane, uint64_t position, uint32_t *hint)
{
    size_t begin = (size_t)lane->first_op, end = begin + (size_t)lane->n_ops, at = begin + *hint;
    for (int steps = 0; steps < 16; steps++) {
        if (at > begin && t->ops[at - 1].position > position) {
            at--;
        } else if (at < end && t->ops[at].position <= position) {
            at++;
        } else {
            *hint = (uint32_t)(at - begin);
            return at;
        }
    }
    at = trace_op_behind(t, lane, position);
    *hint = (uint32_t)(at - begin);
    return at;
}

/* The operation before `behind` in its lane, if it belongs to the current runtime, else
 * TRACE_NONE. */
static int32_t trace_read_own_op_before(const trace_source *s, const trace_lane *lane, size_t behind)
{
    bool has = behind > (size_t)lane->first_op && trace_run_of(s->t->ops[behind - 1].position) == s->run;
    return has ? (int32_t)(behind - 1) : TRACE_NONE;
}

/* `hints`: one for each lane number. */
static void trace_read_wait(trace_source *s, const hdi_record *r, trace_wait *out, uint32_t *hints)
{
    trace *t = s->t;
    bool sense = r->wait.position >> TRACE_POSITION_BITS == 0 && r->wait.other_position >> TRACE_POSITION_BITS == 0;
    const trace_lane *lane = sense ? trace_find_lane(t, r->wait.lane) : NULL;
    uint64_t position = trace_position(s, r->wait.position);
    size_t behind = lane ? trace_read_behind_near(t, lane, position, &hints[r->wait.lane]) : 0;
    if (!lane || behind == (size_t)lane->first_op || t->ops[behind - 1].position != position) {
        t->ignored++; /* the operation's SUBMIT was dropped, or the record is invalid */
        return;
    }
    int32_t op = (int32_t)behind - 1;
    lane = trace_find_lane(t, r->wait.other_lane);
    position = trace_position(s, r->wait.other_position);
    behind = lane ? trace_read_behind_near(t, lane, position, &hints[r->wait.other_lane]) : 0;
    int32_t other = lane ? trace_read_own_op_before(s, lane, behind) : TRACE_NONE;
    if (other != TRACE_NONE && t->ops[other].lane == t->ops[op].lane && other >= op) {
        t->ignored++; /* no operation waits for a later operation of its lane */
        return;
    }
    t->ops[op].first_wait++; /* a count until the waits have their places, then an index */
    out[t->n_waits++] = (trace_wait){
        .op = op,
        .other = other,
        .reads = r->kind == 1,
        .lane = r->wait.other_lane,
        .buffer = r->wait.buffer,
        .label =
            r->wait.label ? trace_lookup(s, HDI_RECORD_NAME_LABEL, r->wait.label, t->ops[op].submitted) : TRACE_NONE,
        .low = (uint64_t)r->wait.low_unit * r->wait.unit,
        .high = (uint64_t)r->wait.high_unit * r->wait.unit,
    };
}

/* Of two waits for one operation, an extended one (`behind`) comes first. */
static int trace_read_compare_waits(const void *a, const void *b)
{
    const trace_wait *x = a, *y = b;
    int order = (x->other > y->other) - (x->other < y->other);
    return order ? order : y->behind - x->behind;
}

/* Sorts an operation's waits by the operation waited for. */
static void trace_read_sort_waits(trace *t, const trace_op *op)
{
    if (op->n_waits > 1) {
        trace_sort(t->waits + op->first_wait, op->n_waits, sizeof *t->waits, trace_read_compare_waits);
    }
}

/* Groups the waits by operation, and sorts each group by the operation waited for. */
static void trace_read_place_waits(trace *t, const trace_wait *waits)
{
    size_t at = 0;
    for (size_t i = 0; i < t->n_ops; i++) {
        trace_op *op = &t->ops[i];
        uint32_t announced = op->n_waits, n = op->first_wait;
        uint32_t lost = announced > n ? announced - n : 0;
        op->first_wait = (uint32_t)at;
        op->n_waits = 0;
        op->unknown_waits = lost;
        t->lost_waits += lost;
        at += n;
    }
    for (size_t i = 0; i < t->n_waits; i++) {
        trace_op *op = &t->ops[waits[i].op];
        t->waits[op->first_wait + op->n_waits++] = waits[i];
        op->unknown_waits += waits[i].other == TRACE_NONE;
    }
    for (size_t i = 0; i < t->n_ops; i++) {
        trace_read_sort_waits(t, &t->ops[i]);
    }
}

/* An extension: the operation's wait for a lane reaches to `to`. */
typedef struct further {
    int32_t op, to;
    uint32_t lane;
} further;

/* Within a lane, the entry that reaches furthest comes last. */
static int trace_read_compare_further(const void *a, const void *b)
{
    const further *x = a, *y = b;
    int order = (x->op > y->op) - (x->op < y->op);
    order = order ? order : (x->lane > y->lane) - (x->lane < y->lane);
    return order ? order : (x->to > y->to) - (x->to < y->to);
}

/* The index of one of an operation's waits, and its lane. */
typedef struct numbered {
    uint32_t lane, number;
} numbered;

static int trace_read_compare_numbered(const void *a, const void *b)
{
    const numbered *x = a, *y = b;
    int order = (x->lane > y->lane) - (x->lane < y->lane);
    return order ? order : (x->number > y->number) - (x->number < y->number);
}

/* Reads a wait that extends to the lane's next event. Missing operations or waits are counted
 * elsewhere. False: the record is invalid, or an operation or a lane of the record is missing. */
static bool trace_read_behind(trace_source *s, const hdi_record *r, further *out)
{
    trace *t = s->t;
    const trace_lane *lane = trace_find_lane(t, r->behind.lane), *other = trace_find_lane(t, r->behind.other_lane);
    if (lane == other || r->behind.before >> TRACE_POSITION_BITS != 0 ||
        r->behind.other_position >> TRACE_POSITION_BITS != 0) {
        t->ignored += lane != NULL;
        return false;
    }
    size_t at = lane ? trace_op_behind(t, lane, trace_position(s, r->behind.before)) : 0;
    if (!lane || !other || at == (size_t)lane->first_op + (size_t)lane->n_ops ||
        trace_run_of(t->ops[at].position) != s->run) {
        return false;
    }
    int32_t to =
        trace_read_own_op_before(s, other, trace_op_behind(t, other, trace_position(s, r->behind.other_position)));
    *out = (further){.op = (int32_t)at, .to = to, .lane = other->lane};
    return true;
}

/* For each lane, extends the furthest wait of an operation. `list` is sorted and concerns one
 * operation. `room` has one entry for each wait of that operation. */
static void trace_read_extend_waits(trace *t, const further *list, size_t n, numbered *room)
{
    trace_op *op = &t->ops[list[0].op];
    trace_wait *waits = t->waits + op->first_wait;
    for (uint32_t i = 0; i < op->n_waits; i++) {
        room[i] = (numbered){.lane = waits[i].lane, .number = i};
    }
    trace_sort(room, op->n_waits, sizeof *room, trace_read_compare_numbered);
    size_t k = 0;
    for (uint32_t i = 0; i < op->n_waits; i++) {
        if (i + 1 < op->n_waits && room[i + 1].lane == room[i].lane) {
            continue;
        }
        while (k < n && list[k].lane < room[i].lane) {
            k++;
        }
        int32_t to = TRACE_NONE;
        for (; k < n && list[k].lane == room[i].lane; k++) {
            to = list[k].to;
        }
        trace_wait *w = &waits[room[i].number];
        if (to > w->other) {
            /* the missing operation ends before `other`, so its wait is no longer unknown */
            op->unknown_waits -= w->other == TRACE_NONE;
            w->other = to;
            w->behind = true;
        }
    }
    trace_read_sort_waits(t, op);
}

/* False: out of memory. */
static bool trace_read_behinds(trace_source *s)
{
    size_t n = 0;
    if (s->count[HDI_RECORD_BEHIND] == 0) {
        return true;
    }
    further *list = trace_table(s->count[HDI_RECORD_BEHIND], sizeof *list);
    numbered *room = trace_table(s->t->n_waits, sizeof *room);
    trace_first_run(s);
    for (size_t k = 0; list && room && k < s->n_others; k++) {
        hdi_record r = trace_record(s, s->others[k]);
        trace_next_run(s, &r);
        if (r.type == HDI_RECORD_BEHIND) {
            n += trace_read_behind(s, &r, &list[n]);
        }
    }
    if (list && room) {
        trace_sort(list, n, sizeof *list, trace_read_compare_further);
    }
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && list[end].op == list[i].op; end++) {
        }
        trace_read_extend_waits(s->t, list + i, end - i, room);
    }
    bool ok = list && room;
    free(list);
    free(room);
    return ok;
}

static bool trace_read_waits(trace_source *s)
{
    trace_wait *waits = trace_table(s->count[HDI_RECORD_WAIT], sizeof *waits);
    uint32_t *hints = trace_table(TRACE_LANE_NUMBERS, sizeof *hints);
    trace_first_run(s);
    for (size_t i = 0; waits && hints && i < s->n_waits_at; i++) {
        hdi_record r = trace_record(s, s->waits_at[i]);
        if (r.type == HDI_RECORD_WAIT) {
            trace_read_wait(s, &r, waits, hints);
        } else {
            trace_next_run(s, &r);
        }
    }
    bool ok = waits && hints;
    if (ok) {
        trace_read_place_waits(s->t, waits);
        ok = trace_read_behinds(s);
    }
    for (size_t i = 0; i < s->t->n_ops; i++) {
        s->t->unknown_ops += s->t->ops[i].unknown_waits > 0;
    }
    free(waits);
    free(hints);
    return ok;
}

/* ---- whole ---- */

/* Counts the records by type, and reserves each lane's range of rows. */
static bool trace_read_count_records(trace_source *s)
{
    s->places = trace_table(TRACE_ROWS, sizeof s->places[0]);
    s->waits_at = malloc(s->n * sizeof s->waits_at[0]);
    s->others = malloc(s->n * sizeof s->others[0]);
    if (!s->places || !s->waits_at || !s->others) {
        return false;
    }
    for (size_t i = 0; i < s->n; i++) {
        uint8_t type = s->bytes[i * HDI_RECORD_BYTES];
        if (trace_read_is_partial(s, i)) {
            continue;
        }
        s->t->ignored += type == HDI_RECORD_NONE;
        if (type >= HDI_RECORD_TYPES) {
            continue;
        }
        s->count[type]++;
        trace_row row = trace_read_row_of_type(type);
        if (row != TRACE_ROWS) {
            uint32_t lane; /* at the same offset in all four types */
            memcpy(&lane, s->bytes + i * HDI_RECORD_BYTES + offsetof(hdi_record, submit.lane), sizeof lane);
            s->places[row].end[lane < TRACE_LANE_NUMBERS ? lane : 0] += lane < TRACE_LANE_NUMBERS;
        } else if (type != HDI_RECORD_WAIT && type != HDI_RECORD_TEXT) {
            s->others[s->n_others++] = (uint32_t)i;
        }
        if (type == HDI_RECORD_WAIT || type == HDI_RECORD_TRACE) {
            s->waits_at[s->n_waits_at++] = (uint32_t)i;
        }
    }
    for (int row = 0; row < TRACE_ROWS; row++) {
        trace_places *p = &s->places[row];
        uint32_t sum = 0;
        for (size_t lane = 0; lane < TRACE_LANE_NUMBERS; lane++) {
            uint32_t count = p->end[lane];
            p->begin[lane] = p->end[lane] = sum;
            sum += count;
        }
    }
    return true;
}
_Static_assert(offsetof(hdi_record, submit.lane) == offsetof(hdi_record, issue.lane) &&
                   offsetof(hdi_record, submit.lane) == offsetof(hdi_record, span.lane) &&
                   offsetof(hdi_record, submit.lane) == offsetof(hdi_record, done.lane),
               "a lane is at one place");

static bool trace_read_make_tables(trace_source *s)
{
    trace *t = s->t;
    if (!trace_read_count_records(s)) {
        return false;
    }
    t->ops = trace_table(s->count[HDI_RECORD_SUBMIT], sizeof t->ops[0]);
    t->waits = trace_table(s->count[HDI_RECORD_WAIT], sizeof t->waits[0]);
    t->lanes = trace_table(s->count[HDI_RECORD_LANE] + TRACE_LANE_NUMBERS, sizeof t->lanes[0]);
    s->issues = trace_table(s->count[HDI_RECORD_ISSUE], sizeof s->issues[0]);
    s->spans = trace_table(s->count[HDI_RECORD_SPAN], sizeof s->spans[0]);
    s->dones = trace_table(s->count[HDI_RECORD_DONE], sizeof s->dones[0]);
    s->clocks = trace_table(s->count[HDI_RECORD_CLOCK], sizeof s->clocks[0]);
    s->restarts = trace_table(s->count[HDI_RECORD_RESTART], sizeof s->restarts[0]);
    return t->ops && t->waits && t->lanes && s->issues && s->spans && s->dones && s->clocks && s->restarts;
}

static bool trace_read_all(trace_source *s)
{
    if (!trace_read_make_tables(s) || !trace_read_names(s)) {
        return false;
    }
    trace_read_operations(s);
    trace_read_order_lanes(s);
    trace_read_order_operations(s);
    s->n_issues = trace_read_order_runs(&s->places[TRACE_ROW_ISSUE], s->issues);
    s->n_spans = trace_read_order_runs(&s->places[TRACE_ROW_SPAN], s->spans);
    s->n_dones = trace_read_order_runs(&s->places[TRACE_ROW_DONE], s->dones);
    for (size_t i = 0; i < s->t->n_lanes; i++) { /* all of them belong to a device */
        int device = trace_lane_device(s->t->lanes[i].lane);
        s->t->n_devices = device >= s->t->n_devices ? device + 1 : s->t->n_devices;
    }
    return trace_read_waits(s) && trace_read_tables(s) && trace_place(s);
}

static bool trace_read_analyse(const void *bytes, size_t n, const trace_peaks *peaks, trace *out, char error[512])
{
    trace_source s = {.bytes = bytes, .n = n / HDI_RECORD_BYTES, .t = out};
    out->cut = n % HDI_RECORD_BYTES != 0;
    out->n_records = s.n;
    error[0] = 0;
    if (s.n > INT32_MAX / 4) {
        snprintf(error, 512, "it has %zu records, and this tool reads %d at most; trace a shorter time", s.n,
                 INT32_MAX / 4);
        return false;
    }
    if (!trace_read_is_trace(bytes, n, error)) {
        return false;
    }
    trace_read_head(&s);
    trace_read_find_end(&s);
    bool ok = trace_read_all(&s);
    out->length = s.last;
    ok = ok && trace_split(out) && trace_blame_messages(out) && trace_path(out) && trace_launches(out) &&
         trace_figures(out, peaks, error) && trace_find(out);
    if (!ok && error[0] == 0) {
        snprintf(error, 512, "there is no memory for its %zu records", s.n);
    }
    free(s.issues);
    free(s.spans);
    free(s.dones);
    free(s.clocks);
    free(s.restarts);
    free(s.places);
    free(s.waits_at);
    free(s.others);
    for (size_t i = 0; s.namings && i < s.n_namings; i++) {
        free(s.namings[i].text);
    }
    free(s.namings);
    return ok;
}

static bool trace_read_or_release(const void *bytes, size_t n, const trace_peaks *peaks, trace *out, char error[512])
{
    bool ok = trace_read_analyse(bytes, n, peaks, out, error);
    if (!ok) {
        trace_release(out);
    }
    return ok;
}

bool trace_read_bytes(const void *bytes, size_t n, trace *out, char error[512])
{
    memset(out, 0, sizeof *out);
    return trace_read_or_release(bytes, n, NULL, out, error);
}

bool trace_read_content(const char *file, const void *bytes, size_t n, const trace_peaks *peaks, trace *out,
                        char error[512])
{
    char what[512] = "";
    memset(out, 0, sizeof *out);
    snprintf(out->file, sizeof out->file, "%s", cli_file_name(file));
    bool ok = trace_read_or_release(bytes, n, peaks, out, what);
    if (!ok) {
        snprintf(error, 512, "%.200s: %.300s", cli_file_name(file), what);
    }
    return ok;
}

bool trace_read(const char *file, const char *peaks, trace *out, char error[512])
{
    size_t n = 0;
    char what[512] = "", *text = NULL;
    bool ok = false;
    /* reading a device might never end */
    void *bytes = cli_read_file_if(file, &n, HDI_RECORD_BYTES, trace_read_is_trace, what);
    if (!bytes) {
        snprintf(error, 512, "%.200s: %.300s", cli_file_name(file), what[0] ? what : strerror(errno));
        return false;
    }
    trace_peaks measured = {.file = peaks};
    if (peaks && !(measured.text = text = cli_read_file(peaks, &measured.bytes))) {
        snprintf(error, 512, "--peaks %.300s: %s", peaks, strerror(errno));
    } else {
        ok = trace_read_content(file, bytes, n, peaks ? &measured : NULL, out, error);
    }
    free(text);
    free(bytes);
    return ok;
}

void trace_release(trace *t)
{
    for (int i = 0; i < TRACE_DEVICES; i++) {
        free(t->devices[i].pieces);
    }
    for (size_t i = 0; t->names && i < t->n_names; i++) {
        free(t->names[i]);
    }
    void *tables[] = {t->intervals, t->names,    t->lanes,    t->ops,      t->waits,      t->stretches,
                      t->transfers, t->memory,   t->figures,  t->pauses,   t->losses,     t->ranges,
                      t->links,     t->launches, t->findings, t->critical, t->activities, t->threads,
                      t->labels,    t->options,  t->offsets,  t->messages};
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        free(tables[i]);
    }
    memset(t, 0, sizeof *t);
}
