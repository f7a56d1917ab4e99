/* suspects.c - which operations of a device may be under way. Its purpose: see suspects.h.
 *
 * Threads, Locks: see suspects.h.
 * Always: each walk visits a position of a lane once, so walks over lanes that wait for each other in turn end. Numbers
 * that an engine in another process wrote are bounded before they are used.
 */
#include "engine/suspects.h"

#include <string.h>
#include "engine/engine.h"

enum { RANKS = 3 };

static int rank_of(uint8_t op)
{
    static const uint8_t ranks[HDI_OPS] = {
#define RANK(op, call, name, entries, rank) [HDI_OP_##op] = (rank),
        HDI_OP_MAP(RANK)
#undef RANK
    };
    return hdi_op_is_work(op) ? ranks[op] : RANKS - 1;
}
#define RANK_IS_THERE(op, call, name, entries, rank) _Static_assert((rank) < RANKS, "a rank is looked for");
HDI_OP_MAP(RANK_IS_THERE)
#undef RANK_IS_THERE

typedef struct walk {
    const hdi_device *device;
    int rank;  /* what is looked for */
    bool next; /* the first operation that was not given to the driver; else all that were */
    bool one;  /* stop at the first one */
    hdi_suspects *out;
    uint64_t walked[HDI_LANES_MAX]; /* how far each lane was gone through */
    uint32_t depth;      /* of lanes that wait for each other: what a dead process overwrote may form circles */
    bool across;         /* at a WAIT for another device, go on there */
    hdi_point elsewhere; /* then: the target of that WAIT; position 0: there is none */
} walk;

typedef struct stretch {
    uint64_t from, begun, head; /* up to `from` it was seen to end, up to `begun` it may be under way */
} stretch;

/* How far a lane is, also where its engine has not looked yet. */
static stretch stretch_of(const hdi_device *device, uint32_t number)
{
    const hdi_lane_shared *lane = &device->channel.lanes[number];
    uint64_t slots = device->channel.slots;
    uint64_t head = hdi_lane_submitted(device, number);
    uint64_t done = atomic_load_explicit(&lane->done, memory_order_acquire);
    uint64_t issued = atomic_load_explicit(&lane->issued, memory_order_acquire);
    done = head - done > slots ? head : done;
    issued = issued - done > head - done ? head : issued;
    /* The device writes the low half of a position that it has passed. One from before `done` seems to be far ahead. */
    uint32_t low = atomic_load_explicit(&device->channel.flags[number].position, memory_order_acquire);
    uint32_t further = low - (uint32_t)done;
    uint64_t from = further <= issued - done ? done + further : done;
    uint64_t begun = atomic_load_explicit(&lane->begun, memory_order_acquire);
    return (stretch){from, begun > from && begun <= head ? begun : issued, head};
}

uint64_t hdi_suspects_begun(const hdi_device *device, uint32_t number)
{
    return stretch_of(device, number).begun;
}

/* Adds a suspect. Operations of one lane that are alike are joined. */
static void add(hdi_suspects *out, const hdi_suspect *s)
{
    out->count++;
    for (uint32_t i = 0; i < out->n_named; i++) {
        hdi_suspect *known = &out->named[i];
        if (known->lane == s->lane && known->op == s->op && known->kernel == s->kernel) {
            known->last = s->position;
            known->count++;
            return;
        }
    }
    if (out->n_named < HDI_SUSPECTS_NAMED) {
        out->named[out->n_named++] = *s;
    }
}

/* The lane of this device that a WAIT is for. HDI_LANES_MAX: a lane of another device, or an invalid one. */
static uint32_t waits_for(const hdi_device *device, const hdi_command *c)
{
    return c->wait.lane / HDI_LANES_MAX == (uint32_t)device->index ? c->wait.lane % HDI_LANES_MAX : HDI_LANES_MAX;
}

/* Whether a WAIT is for another device that is not there yet. */
static bool leads_elsewhere(walk *w, const hdi_command *c)
{
    hd_runtime *rt = w->device->runtime;
    hdi_point point = {c->wait.lane, c->wait.position};
    if (point.lane >= (uint32_t)rt->n_devices * HDI_LANES_MAX || hdi_lane_owner(rt, point.lane) == w->device ||
        hdi_point_done(rt, point)) {
        return false;
    }
    w->elsewhere = point;
    return true;
}

static hdi_suspect suspect_of(const hdi_device *device, uint32_t number, const hdi_command *c, uint64_t end)
{
    return (hdi_suspect){
        .position = end,
        .last = end,
        .lane = (uint32_t)device->index * HDI_LANES_MAX + number,
        .kernel = c->op == HDI_OP_LAUNCH ? c->kernel : 0,
        .count = 1,
        .op = c->op,
    };
}

/* Walks through a lane up to `limit`, and before each of its operations through what that waits for. True: enough was
 * found. */
static bool go_through(walk *w, uint32_t number, uint64_t limit) /* NOLINT(misc-no-recursion): `walked` only rises */
{
    stretch s = stretch_of(w->device, number);
    uint64_t *at = &w->walked[number];
    *at = *at < s.from ? s.from : *at;
    while (*at < s.head && *at < limit) {
        const hdi_command *c = hdi_command_at(&w->device->channel, number, *at);
        if (c->slots == 0) {
            return false; /* a dead process left it half written */
        }
        *at += c->slots;
        uint64_t end = *at;
        if (c->op == HDI_OP_WAIT) {
            if (w->across && !w->out->count && leads_elsewhere(w, c)) {
                return true;
            }
            uint32_t other = waits_for(w->device, c);
            bool follow = other < HDI_LANES_MAX && other != number && w->depth < HDI_LANES_MAX;
            w->depth += follow;
            bool enough = follow && go_through(w, other, c->wait.position);
            w->depth -= follow;
            if (enough) {
                return true;
            }
        } else if (hdi_op_is_work(c->op) && rank_of(c->op) == w->rank && w->next == (end > s.begun)) {
            hdi_suspect found = suspect_of(w->device, number, c, end);
            add(w->out, &found);
            if (w->one) {
                return true;
            }
        }
        if (w->next && hdi_op_is_work(c->op) && end > s.begun) {
            return false; /* operations behind it are not the next ones */
        }
    }
    return false;
}

static void go_through_all(walk *w)
{
    uint32_t made = atomic_load_explicit(&w->device->lanes_made, memory_order_acquire);
    memset(w->walked, 0, sizeof w->walked);
    for (uint32_t i = 0; i < made && i < HDI_LANES_MAX; i++) {
        go_through(w, i, UINT64_MAX);
    }
}

/* Adds the operation that the watchdog names: the first one of a lane, which has taken too long. False: it names
 * none. */
static bool overdue(const hdi_device *device, hdi_suspects *out)
{
    uint32_t lane = atomic_load_explicit(&device->channel.engine->overdue, memory_order_acquire) - 1;
    if (lane >= HDI_LANES_MAX) {
        return false;
    }
    stretch s = stretch_of(device, lane);
    uint64_t end;
    const hdi_command *c = hdi_lane_operation(&device->channel, lane, s.from, s.begun, &end);
    if (c) {
        hdi_suspect found = suspect_of(device, lane, c, end);
        add(out, &found);
    }
    return c != NULL;
}

void hdi_suspects_collect(const hdi_device *device, int code, hdi_suspects *out)
{
    *out = (hdi_suspects){.begun = true};
    if (code == HDI_GONE_WATCHDOG && overdue(device, out)) {
        out->certain = true;
        return;
    }
    walk w = {.device = device, .out = out};
    for (w.rank = 0; w.rank < RANKS && !out->count; w.rank++) {
        go_through_all(&w);
    }
    w.next = true;
    for (w.rank = 0; w.rank < RANKS && !out->count; w.rank++) {
        out->begun = false;
        go_through_all(&w);
    }
}

bool hdi_suspects_of_lane(const hdi_device *device, uint32_t number, const hdi_suspects *all, hdi_suspect *out)
{
    hdi_suspects found = {.count = 0};
    walk w = {.device = device, .one = true, .next = !all->begun, .out = &found};
    if (all->count && !all->certain) {
        /* Of the rank of the device's suspects: a copy here is no suspect while another lane has a kernel under way. */
        w.rank = rank_of(all->named[0].op);
        go_through(&w, number, UINT64_MAX);
    }
    *out = found.count ? found.named[0] : all->named[0];
    return found.count != 0;
}

/* The operation that ends at a position of a lane, if it is unfinished. */
static hdi_suspect operation_at(const hdi_device *device, uint32_t number, uint64_t position)
{
    stretch s = stretch_of(device, number);
    uint64_t end = s.from;
    const hdi_command *c = NULL;
    while (end < position && (c = hdi_lane_operation(&device->channel, number, end, s.head, &end))) {
    }
    return c && end == position ? suspect_of(device, number, c, end) : (hdi_suspect){.count = 0};
}

/* Looks for awaited operations on one device. Returns where the way goes on, on another one. The order lock is held. */
static hdi_point look_for_awaited(const hdi_device *device, hdi_point point, hdi_suspects *out)
{
    walk w = {.device = device, .out = out, .across = true};
    out->begun = true;
    if (hdi_device_lost(device)) { /* nothing is under way there any more, but its lanes may wait for others */
        w.rank = RANKS;
        go_through(&w, point.lane % HDI_LANES_MAX, point.position);
        return w.elsewhere;
    }
    for (int round = 0; round < 2 && !out->count && !w.elsewhere.position; round++) {
        w.next = round == 1;
        for (w.rank = 0; w.rank < RANKS && !out->count && !w.elsewhere.position; w.rank++) {
            memset(w.walked, 0, sizeof w.walked);
            go_through(&w, point.lane % HDI_LANES_MAX, point.position);
        }
        out->begun = round == 0;
    }
    return w.elsewhere;
}

bool hdi_suspects_awaited(hd_runtime *rt, uint32_t lane, uint64_t position, hdi_suspects *out, hdi_suspect *own)
{
    hdi_point point = {lane, position};
    *out = (hdi_suspects){.count = 0};
    for (int hop = 0; hop <= rt->n_devices && point.position && !out->count; hop++) {
        hdi_device *device = hdi_lane_owner(rt, point.lane);
        hdi_lock_take(&device->order);
        if (hop == 0) {
            *own = operation_at(device, lane % HDI_LANES_MAX, position);
        }
        point = look_for_awaited(device, point, out);
        hdi_lock_release(&device->order);
    }
    return out->count != 0;
}
