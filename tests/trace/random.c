/* random.c - random traces. See random.h. */
#include "trace/random.h"

#include <stdbool.h>

typedef struct dice {
    uint64_t state;
} dice;

static uint64_t roll(dice *d, uint64_t sides)
{
    d->state ^= d->state << 13;
    d->state ^= d->state >> 7;
    d->state ^= d->state << 17;
    return d->state % sides;
}

enum { LANES = 5, THREADS = 3 };

typedef struct maker {
    script *s;
    dice d;
    int devices;
    bool sane;
    int64_t now, free_at[32 * LANES], ended[32 * LANES];
    uint64_t at[32 * LANES];
} maker;

static uint64_t any(maker *m, uint64_t value)
{
    return m->sane || roll(&m->d, 50) != 0 ? value : roll(&m->d, 2) ? ~roll(&m->d, 1000) : m->d.state;
}

static void head(maker *m)
{
    script_run(m->s, "trace devices=1 detail=full\nname kernel 1 axpy\nname label 7 weights\nname label 8 halo\n"
                     "name range 3 load\n");
    if (!m->sane) {
        script_run(m->s, "name activity 1 axpy\nname activity 2 another\n");
    }
    m->s->records[0].device = (uint8_t)m->devices;
    for (int d = 0; d < m->devices; d++) {
        for (int l = 0; l < LANES; l++) {
            hdi_record *r = script_add(m->s, HDI_RECORD_LANE, 0);
            r->a_lane.lane = SCRIPT_LANE(d, l);
            r->kind = (uint8_t)(l < 2 ? HDI_RECORD_LANE_PROGRAM : l == 4 ? HDI_RECORD_LANE_CLAIM : l);
        }
        hdi_record *r = script_add(m->s, HDI_RECORD_CLOCK, 0);
        r->device = (uint8_t)d;
        r->clock.own = 1000000 * d;
    }
}

static uint32_t number_of(int lane)
{
    return SCRIPT_LANE(lane / LANES, lane % LANES);
}

/* Adds waits of an operation, and returns when they have ended. */
static int64_t put_waits(maker *m, int lane, uint64_t position, uint16_t *n)
{
    int64_t ready = m->now;
    for (*n = 0; roll(&m->d, 3) == 0 && *n < 3; ++*n) {
        int other = (int)roll(&m->d, (uint64_t)m->devices * LANES);
        if (other == lane || m->at[other] == 0) {
            break;
        }
        hdi_record *r = script_add(m->s, HDI_RECORD_WAIT, m->now);
        r->thread = 1 + (uint32_t)roll(&m->d, THREADS);
        r->wait.lane = number_of(lane);
        r->wait.position = any(m, position);
        r->wait.other_lane = (uint32_t)any(m, number_of(other));
        r->wait.other_position = any(m, m->at[other]);
        r->wait.label = 7;
        ready = ready > m->ended[other] ? ready : m->ended[other];
        if (roll(&m->d, 3) == 0) { /* the event may be further behind */
            r = script_add(m->s, HDI_RECORD_BEHIND, m->now);
            r->behind.lane = (uint32_t)any(m, number_of(lane)), r->behind.before = any(m, position - 1);
            r->behind.other_lane = number_of(other);
            r->behind.other_position = any(m, m->at[other] + roll(&m->d, 9));
        }
    }
    return ready;
}

static void put_span(maker *m, int lane, uint64_t before, uint64_t position, int kind, int64_t began, int64_t ended)
{
    int64_t own = 1000000 * (int64_t)(lane / LANES);
    hdi_record *r = script_add(m->s, HDI_RECORD_SPAN, ended);
    r->kind = HDI_RECORD_SPAN_ONE;
    r->span.lane = (uint32_t)any(m, number_of(lane));
    r->span.before = any(m, before);
    r->span.position = any(m, position);
    r->span.began = (int64_t)any(m, (uint64_t)(began * 1000 + own));
    r->span.ended = (int64_t)any(m, (uint64_t)(ended * 1000 + own));
    r->span.op = (uint32_t)kind;
    if (roll(&m->d, 8) == 0) {
        r->span.by_clock = 1;
        r->span.began = SCRIPT_ZERO + began * 1000;
    }
    if (roll(&m->d, 8) == 0) {
        r->span.by_clock |= 2;
        r->span.ended = SCRIPT_ZERO + ended * 1000;
    }
}

static void put_op(maker *m)
{
    int lane = (int)roll(&m->d, (uint64_t)m->devices * LANES), part = lane % LANES;
    int kind = part == 4        ? HDI_RECORD_OP_CLAIM
               : part >= 2      ? HDI_RECORD_OP_COPY
               : roll(&m->d, 9) ? 1
                                : HDI_RECORD_OP_MARK;
    if (!m->sane && kind == HDI_RECORD_OP_LAUNCH && roll(&m->d, 4) == 0) {
        kind = HDI_RECORD_OP_MATMUL;
    }
    uint64_t before = m->at[lane], position = before + 2 + roll(&m->d, 3);
    uint16_t waits;
    int64_t ready = put_waits(m, lane, position, &waits) + (int64_t)roll(&m->d, 5);
    int64_t began = ready > m->ended[lane] ? ready : m->ended[lane], ended = began + (int64_t)roll(&m->d, 40);
    if (roll(&m->d, 40) != 0) { /* else the SUBMIT is missing */
        hdi_record *r = script_add(m->s, HDI_RECORD_SUBMIT, m->now);
        r->kind = (uint8_t)kind;
        r->thread = 1 + (uint32_t)roll(&m->d, THREADS);
        r->submit.lane = (uint32_t)any(m, number_of(lane));
        r->submit.kernel = 1;
        r->submit.position = any(m, position);
        r->submit.before = before;
        r->submit.bytes = any(m, roll(&m->d, 1 << 22));
        r->submit.src = (uint8_t)(roll(&m->d, 2) ? 255 : 0);
        r->submit.dst = (uint8_t)(lane / LANES);
        r->submit.waits = waits;
    }
    if (kind == HDI_RECORD_OP_CLAIM) {
        hdi_record *r = script_add(m->s, HDI_RECORD_DONE, began);
        r->done.lane = number_of(lane), r->done.before = before, r->done.position = position - 1;
    } else if (kind != HDI_RECORD_OP_MARK && roll(&m->d, 40) != 0) {
        put_span(m, lane, before, position, kind, began, ended);
    }
    if (roll(&m->d, 40) != 0) {
        hdi_record *r = script_add(m->s, HDI_RECORD_DONE, ended + 1);
        r->kind = roll(&m->d, 50) == 0;
        r->done.lane = number_of(lane), r->done.before = any(m, before), r->done.position = any(m, position);
    }
    m->at[lane] = position;
    m->ended[lane] = ended;
}

static void put_rest(maker *m)
{
    static const uint8_t types[] = {HDI_RECORD_TRANSFER, HDI_RECORD_ALLOC,    HDI_RECORD_FREE,    HDI_RECORD_PAUSE,
                                    HDI_RECORD_LABEL,    HDI_RECORD_PUSH,     HDI_RECORD_POP,     HDI_RECORD_LOSS,
                                    HDI_RECORD_RESTART,  HDI_RECORD_MEMORY,   HDI_RECORD_CLOCK,   HDI_RECORD_ISSUE,
                                    HDI_RECORD_ACTIVITY, HDI_RECORD_ACTIVITY, HDI_RECORD_DROPPED, HDI_RECORD_INTERVAL,
                                    HDI_RECORD_TRACE};
    uint8_t type = types[roll(&m->d, m->sane ? 6 : sizeof types)];
    int lane = (int)roll(&m->d, (uint64_t)m->devices * LANES);
    hdi_record *r = script_add(m->s, type, m->now);
    int64_t end = r->time + 1000 * (int64_t)roll(&m->d, 60);
    r->thread = 1 + (uint32_t)roll(&m->d, THREADS);
    r->device = (uint8_t)roll(&m->d, (uint64_t)m->devices);
    r->kind = (uint8_t)(1 + roll(&m->d, 7));
    if (type == HDI_RECORD_INTERVAL) {
        r->interval.name = 3, r->interval.ended = (int64_t)any(m, (uint64_t)end);
    } else if (type == HDI_RECORD_PAUSE) {
        r->pause.lane = number_of(lane), r->pause.position = any(m, m->at[lane]),
        r->pause.ended = (int64_t)any(m, (uint64_t)end);
    } else if (type == HDI_RECORD_TRANSFER) {
        r->transfer.lane = number_of(lane), r->transfer.position = any(m, m->at[lane]);
        r->transfer.returned = (int64_t)any(m, (uint64_t)end), r->transfer.dst = r->device, r->transfer.src = 255;
        r->transfer.bytes = any(m, 1 << 20);
    } else if (type == HDI_RECORD_ALLOC || type == HDI_RECORD_FREE || type == HDI_RECORD_LABEL) {
        r->kind = 0;
        r->alloc.buffer = 1 + roll(&m->d, 20), r->alloc.bytes = any(m, 1 << 20),
        r->alloc.label = 6 + (uint32_t)roll(&m->d, 3);
        r->alloc.took = (int64_t)any(m, roll(&m->d, 90000)), r->alloc.rungs = (uint32_t)roll(&m->d, 64);
    } else if (type == HDI_RECORD_ACTIVITY) {
        r->activity.ended = (int64_t)any(m, (uint64_t)end), r->activity.stream = (uint32_t)roll(&m->d, 6);
        r->activity.name = 1 + roll(&m->d, 2), r->activity.bytes = roll(&m->d, 20);
    } else if (type == HDI_RECORD_TRACE) { /* another runtime, or the same one */
        *r = m->s->records[0];
        r->time = SCRIPT_ZERO + m->now * 1000;
        r->trace.run = 1 + (uint32_t)roll(&m->d, 3);
    } else {
        r->words[2] = any(m, 3);
        r->words[3] = any(m, roll(&m->d, 100000));
    }
}

void random_trace(script *s, uint64_t seed, int devices, int ops, int sane)
{
    maker m = {.s = s, .d = {seed * UINT64_C(0x9e3779b97f4a7c15) + 1}, .devices = devices, .sane = sane != 0};
    script_begin(s);
    head(&m);
    for (int i = 0; i < ops; i++) {
        m.now += (int64_t)roll(&m.d, 12);
        put_op(&m);
        if (roll(&m.d, 5) == 0) {
            put_rest(&m);
        }
    }
    if (!sane && roll(&m.d, 4) == 0) {
        hdi_record *r = script_add(s, HDI_RECORD_DROPPED, m.now + 90);
        r->kind = 2, r->dropped.count = 9, r->dropped.partial = any(&m, roll(&m.d, (uint64_t)ops));
    }
    script_add(s, HDI_RECORD_END, m.now + 100);
}
