/* suspects.c - finds the operations that may be the cause of a loss or a delay. See suspects.h.
 *
 * The search walks through the commands of lanes. At a command that waits for another lane of the
 * device, the search first walks through that lane.
 *
 * Always:
 * - Each walk visits a position of a lane once. So a walk ends even if lanes wait for each other in
 *   a circle.
 * - Numbers that an engine in another process wrote are checked before use.
 */
#include "engine/suspects.h"
#include <string.h>
#include "base/lock.h"
#include "engine/engine.h"

/* The last rank is for operations that cannot kill a device. Other operations may wait for them. */
enum { RANKS = HDI_RANK_INNOCENT + 1 };

#define BEHIND_MOST 32 /* the most launches of a chain */

const hdi_command *hdi_lane_operation(const hdi_channel *channel, uint32_t lane, uint64_t position, uint64_t limit,
                                      uint64_t *end)
{
    while (position < limit) {
        const hdi_command *c = hdi_command_at(channel, lane, position);
        if (c->slots == 0) {
            return NULL; /* a dead process left the command half written */
        }
        position += c->slots;
        if (hdi_op_is_work(c->op)) {
            *end = position;
            return c;
        }
    }
    return NULL;
}

static int suspect_rank(uint8_t op)
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
    int rank; /* the rank to look for */
    /* true: look for the first operation that the driver did not get; false: look for all
     * operations that the driver got */
    bool next;
    bool one; /* stop at the first operation found */
    hdi_suspects *out;
    uint64_t walked[HDI_LANES_MAX]; /* how far the walk went through each lane */
    /* The depth of the recursion over lanes that wait for each other: a dead process may have
     * written long chains. */
    uint32_t depth;
    bool across;         /* at a WAIT for another device, continue on that device */
    hdi_point elsewhere; /* where to continue: the target of that WAIT; position 0: none */
} walk;

typedef struct stretch {
    /* Work up to `from` was seen to end. Work behind `from`, up to `begun`, may be under way. */
    uint64_t from, begun, head;
    uint64_t lost_to; /* work up to here went to a former worker */
} stretch;

/* Determines how far a lane is, even if its engine did not look yet. */
static stretch suspect_stretch(const hdi_device *device, uint32_t number)
{
    const hdi_lane_shared *lane = &device->channel.lanes[number];
    uint64_t slots = device->channel.slots;
    uint64_t head = hdi_lane_submitted(device, number);
    uint64_t done = atomic_load_explicit(&lane->done, memory_order_acquire);
    uint64_t issued = atomic_load_explicit(&lane->issued, memory_order_acquire);
    done = head - done > slots ? head : done;
    issued = issued - done > head - done ? head : issued;
    /* The device writes the low half of a position that it passed. If this position is before
     * `done`, its distance from `done` seems huge. Such a position does not count. */
    uint32_t low = atomic_load_explicit(&device->channel.flags[number].position, memory_order_acquire);
    uint32_t further = low - (uint32_t)done;
    uint64_t from = further <= issued - done ? done + further : done;
    uint64_t begun = atomic_load_explicit(&lane->begun, memory_order_acquire);
    /* A claim that the program got at once is under way, even if no engine saw it. */
    const hd_lane *own = hdi_lane_at(device, number);
    uint64_t held = own ? atomic_load_explicit(&own->claim_held, memory_order_relaxed) : 0;
    begun = held > begun && held > from && held <= head ? held - 1 : begun;
    uint64_t lost_to = atomic_load_explicit(&lane->lost_to, memory_order_relaxed);
    return (stretch){from, begun > from && begun <= head ? begun : issued, head, lost_to};
}

uint64_t hdi_suspects_begun(const hdi_device *device, uint32_t number)
{
    return suspect_stretch(device, number).begun;
}

/* Adds a suspect, or joins it to a suspect of the same kind in the same lane. */
static void suspects_add(hdi_suspects *out, const hdi_suspect *s)
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

/* The lane of this device that a WAIT targets. HDI_LANES_MAX: a lane of another device, or an
 * invalid one. */
static uint32_t suspects_awaited_lane(const hdi_device *device, const hdi_command *c)
{
    return c->wait.lane / HDI_LANES_MAX == (uint32_t)device->index ? c->wait.lane % HDI_LANES_MAX : HDI_LANES_MAX;
}

/* True if a WAIT is for a lane of another device, and that lane did not reach the target. */
static bool suspects_lead_elsewhere(walk *w, const hdi_command *c)
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

static hdi_suspect suspect_make(const hdi_device *device, uint32_t number, const hdi_command *c, uint64_t end)
{
    return (hdi_suspect){
        .position = end,
        .last = end,
        .lane = (uint32_t)device->index * HDI_LANES_MAX + number,
        .kernel = c->op == HDI_OP_LAUNCH ? c->kernel : 0,
        .count = 1,
        .op = c->op == HDI_OP_CLAIMED ? HDI_OP_CLAIM : c->op,
    };
}

/* True if an operation that ends at `end` had not begun. A claim begins with its first slot. */
static bool suspect_is_next(const hdi_command *c, uint64_t end, const stretch *s)
{
    return c->op != HDI_OP_CLAIMED && (c->op == HDI_OP_CLAIM ? end - 1 : end) > s->begun;
}

/* True if an operation was lost with a former worker, so that nothing of it is under way. Claims
 * are no such operations, since they still belong to the program. */
static bool suspect_was_lost(const hdi_command *c, uint64_t end, const stretch *s)
{
    return end <= s->lost_to && c->op != HDI_OP_CLAIM && c->op != HDI_OP_CLAIMED;
}

/* Walks through a lane up to `limit`. Before each operation, first walks through the work that this
 * operation waits for. The recursion ends, since `walked` only rises. True: the walk is over, since
 * it found enough. */
/* NOLINTNEXTLINE(misc-no-recursion) */
static bool suspects_walk_lane(walk *w, uint32_t number, uint64_t limit)
{
    stretch s = suspect_stretch(w->device, number);
    uint64_t *at = &w->walked[number];
    *at = *at < s.from ? s.from : *at;
    while (*at < s.head && *at < limit) {
        const hdi_command *c = hdi_command_at(&w->device->channel, number, *at);
        if (c->slots == 0) {
            return false; /* a dead process left the command half written */
        }
        *at += c->slots;
        uint64_t end = *at;
        if (c->op == HDI_OP_WAIT) {
            if (w->across && !w->out->count && suspects_lead_elsewhere(w, c)) {
                return true;
            }
            uint32_t other = suspects_awaited_lane(w->device, c);
            bool follow = other < HDI_LANES_MAX && other != number && w->depth < HDI_LANES_MAX;
            w->depth += follow;
            bool enough = follow && suspects_walk_lane(w, other, c->wait.position);
            w->depth -= follow;
            if (enough) {
                return true;
            }
        } else if (hdi_op_is_work(c->op) && suspect_rank(c->op) == w->rank && w->next == suspect_is_next(c, end, &s) &&
                   !suspect_was_lost(c, end, &s)) {
            hdi_suspect found = suspect_make(w->device, number, c, end);
            suspects_add(w->out, &found);
            if (w->one) {
                return true;
            }
        }
        if (w->next && hdi_op_is_work(c->op) && suspect_is_next(c, end, &s) && !suspect_was_lost(c, end, &s)) {
            return false; /* operations behind the first one are not the next ones */
        }
    }
    return false;
}

static void suspects_walk_all(walk *w)
{
    uint32_t made = atomic_load_explicit(&w->device->lanes_made, memory_order_acquire);
    memset(w->walked, 0, sizeof w->walked);
    for (uint32_t i = 0; i < made && i < HDI_LANES_MAX; i++) {
        suspects_walk_lane(w, i, UINT64_MAX);
    }
}

/* If the watchdog names a lane, adds the first unfinished operation of that lane, which took too
 * long. False: the watchdog names no lane. */
static bool suspects_add_overdue(const hdi_device *device, hdi_suspects *out)
{
    uint32_t lane = atomic_load_explicit(&device->channel.engine->overdue, memory_order_acquire) - 1;
    if (lane >= HDI_LANES_MAX) {
        return false;
    }
    stretch s = suspect_stretch(device, lane);
    uint64_t end;
    const hdi_command *c = hdi_lane_operation(&device->channel, lane, s.from, s.begun, &end);
    if (c) {
        hdi_suspect found = suspect_make(device, lane, c, end);
        suspects_add(out, &found);
    }
    return c != NULL;
}

void hdi_suspects_collect(const hdi_device *device, int code, hdi_suspects *out)
{
    *out = (hdi_suspects){.begun = true};
    if (code == HDI_GONE_WATCHDOG && suspects_add_overdue(device, out)) {
        out->certain = true;
        return;
    }
    walk w = {.device = device, .out = out};
    for (w.rank = 0; w.rank < HDI_RANK_INNOCENT && !out->count; w.rank++) {
        suspects_walk_all(&w);
    }
    w.next = true;
    for (w.rank = 0; w.rank < HDI_RANK_INNOCENT && !out->count; w.rank++) {
        out->begun = false;
        suspects_walk_all(&w);
    }
}

bool hdi_suspects_of_lane(const hdi_device *device, uint32_t number, const hdi_suspects *all, hdi_suspect *out)
{
    hdi_suspects found = {.count = 0};
    walk w = {.device = device, .one = true, .next = !all->begun, .out = &found};
    if (all->count && !all->certain) {
        /* The rank is that of the device's suspects. So a copy in this lane is no suspect if a
         * kernel is under way in another lane. */
        w.rank = suspect_rank(all->named[0].op);
        suspects_walk_lane(&w, number, UINT64_MAX);
    }
    *out = found.count ? found.named[0] : all->named[0];
    return found.count != 0;
}

/* The operation that ends at a position of a lane, if it is unfinished. */
static hdi_suspect suspect_at(const hdi_device *device, uint32_t number, uint64_t position)
{
    stretch s = suspect_stretch(device, number);
    uint64_t end = s.from;
    const hdi_command *c = NULL;
    while (end < position && (c = hdi_lane_operation(&device->channel, number, end, s.head, &end))) {
    }
    return c && end == position ? suspect_make(device, number, c, end) : (hdi_suspect){.count = 0};
}

/* Looks for awaited operations on one device. Returns the place on another device to continue at.
 * The order lock is held. */
static hdi_point suspects_look_for_awaited(const hdi_device *device, hdi_point point, hdi_suspects *out)
{
    walk w = {.device = device, .out = out, .across = true};
    out->begun = true;
    /* On a lost device nothing is under way any more, but its lanes may wait for others. */
    if (hdi_device_lost(device)) {
        w.rank = RANKS;
        suspects_walk_lane(&w, point.lane % HDI_LANES_MAX, point.position);
        return w.elsewhere;
    }
    for (int round = 0; round < 2 && !out->count && !w.elsewhere.position; round++) {
        w.next = round == 1;
        for (w.rank = 0; w.rank < RANKS && !out->count && !w.elsewhere.position; w.rank++) {
            memset(w.walked, 0, sizeof w.walked);
            suspects_walk_lane(&w, point.lane % HDI_LANES_MAX, point.position);
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
            *own = suspect_at(device, lane % HDI_LANES_MAX, position);
        }
        point = suspects_look_for_awaited(device, point, out);
        hdi_lock_release(&device->order);
    }
    return out->count != 0;
}

void hdi_suspects_behind(hd_runtime *rt, const hdi_suspects *awaited, hdi_suspects *out)
{
    const hdi_suspect *first = &awaited->named[0];
    uint64_t at = first->last;
    *out = (hdi_suspects){.begun = true};
    if (!awaited->count || !awaited->begun || first->op != HDI_OP_LAUNCH) {
        return;
    }
    for (uint32_t i = 1; i < awaited->n_named; i++) {
        const hdi_suspect *s = &awaited->named[i];
        at = s->lane == first->lane && s->last > at ? s->last : at;
    }
    hdi_device *device = hdi_lane_owner(rt, first->lane);
    uint32_t number = first->lane % HDI_LANES_MAX;
    hdi_lock_take(&device->order);
    stretch s = suspect_stretch(device, number);
    while (!hdi_device_lost(device) && at >= s.from && at < s.begun && out->count < BEHIND_MOST) {
        const hdi_command *c = hdi_command_at(&device->channel, number, at);
        if (c->op != HDI_OP_LAUNCH || c->slots == 0 || at + c->slots > s.begun) {
            break; /* the engine sees what ended in front of other work */
        }
        at += c->slots;
        hdi_suspect found = suspect_make(device, number, c, at);
        suspects_add(out, &found);
    }
    hdi_lock_release(&device->order);
}
