/* loss.c - lost devices: the operations that may be the cause, the ends of lanes, the report of a
 * loss.
 *
 * Threads:
 * - hdi_lane_lose and hdi_loss_note run on the thread that notices the loss. That is the engine or,
 *   if a worker process is gone, the thread that watches it.
 * - Suspects are collected on the thread that runs the device's engine, or under the device's order
 *   lock, so that no submission overwrites the commands meanwhile.
 * - The rest runs on any thread.
 * Locks:
 * - The device's order lock, to end the lanes of a dead worker, so that no submission comes in
 *   between.
 * - The mutex of the losses, to note a loss and to end lanes. No lock is taken under it.
 * Always:
 * - A position fails before it is done. hd_loss_next reports a loss once.
 * - No operation is a suspect if it was seen to end before. An operation that the driver never got
 *   is a suspect only if the driver got no other one.
 * - Each walk in search of suspects visits a position of a lane once. So a walk ends even if lanes
 *   wait for each other in a circle. Numbers that an engine in another process wrote are checked
 *   before use.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "base/descriptor.h"
#include "base/error.h"
#include "base/lock.h"
#include "base/sized.h"
#include "base/wait.h"
#include "engine/claims.h"
#include "engine/engine.h"

/* ---- suspects: operations that may be the cause ---- */

#define NOTED_SLEEP_NS 20000

/* The last rank is for operations that cannot kill a device, but that others may wait for. */
enum { RANKS = HDI_RANK_INNOCENT + 1 };

const hdi_command *hdi_lane_operation(const hdi_channel *channel, uint32_t lane, uint64_t position, uint64_t limit,
                                      uint64_t *end)
{
    while (position < limit) {
        const hdi_command *c = hdi_command_at(channel, lane, position);
        if (c->slots == 0) {
            return NULL; /* a dead process left it half written */
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
    /* true: look for the first operation that the driver did not get; false: for all that it got */
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
    /* Work up to `from` was seen to end. Work behind it, up to `begun`, may be under way. */
    uint64_t from, begun, head;
    uint64_t lost_to; /* work up to here went to a former worker */
} stretch;

/* How far a lane is, even if its engine did not look yet. */
static stretch suspect_stretch(const hdi_device *device, uint32_t number)
{
    const hdi_lane_shared *lane = &device->channel.lanes[number];
    uint64_t slots = device->channel.slots;
    uint64_t head = hdi_lane_submitted(device, number);
    uint64_t done = atomic_load_explicit(&lane->done, memory_order_acquire);
    uint64_t issued = atomic_load_explicit(&lane->issued, memory_order_acquire);
    done = head - done > slots ? head : done;
    issued = issued - done > head - done ? head : issued;
    /* The device writes the low half of a position that it passed. A position older than `done`
     * would seem far ahead. */
    uint32_t low = atomic_load_explicit(&device->channel.flags[number].position, memory_order_acquire);
    uint32_t further = low - (uint32_t)done;
    uint64_t from = further <= issued - done ? done + further : done;
    uint64_t begun = atomic_load_explicit(&lane->begun, memory_order_acquire);
    /* A claim that the program got at once is under way, even if its engine did not look at it. */
    const hd_lane *own = hdi_lane_at(device, number);
    uint64_t held = own ? atomic_load_explicit(&own->claim_held, memory_order_relaxed) : 0;
    begun = held > begun && held > from && held <= head ? held - 1 : begun;
    uint64_t lost_to = atomic_load_explicit(&lane->lost_to, memory_order_relaxed);
    return (stretch){from, begun > from && begun <= head ? begun : issued, head, lost_to};
}

/* How far the lane may have begun. Work behind that position was not under way. */
static uint64_t suspects_begun(const hdi_device *device, uint32_t number)
{
    return suspect_stretch(device, number).begun;
}

/* Adds a suspect. Joins it to one of the same kind in the same lane. */
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

/* True if an operation was lost with a former worker, so that nothing of it is under way. This
 * excludes claims, which still belong to the program. */
static bool suspect_was_lost(const hdi_command *c, uint64_t end, const stretch *s)
{
    return end <= s->lost_to && c->op != HDI_OP_CLAIM && c->op != HDI_OP_CLAIMED;
}

/* Walks through a lane up to `limit`, and before each of its operations through the work that the
 * operation waits for. The recursion ends, since `walked` only rises. True: the walk found
 * enough. */
/* NOLINTNEXTLINE(misc-no-recursion) */
static bool suspects_walk_lane(walk *w, uint32_t number, uint64_t limit)
{
    stretch s = suspect_stretch(w->device, number);
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

/* Adds the operation that the watchdog names: the first operation of a lane, if it took too long.
 * False: the watchdog names none. */
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

/* Collects the suspects of a device that was lost with `code`; 0: it is not lost yet. */
static void suspects_collect(const hdi_device *device, int code, hdi_suspects *out)
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

/* Finds the first suspect in a lane, and among the work that its operations wait for on the same
 * device. False: none there, and *out is the device's first suspect. */
static bool suspects_of_lane(const hdi_device *device, uint32_t number, const hdi_suspects *all, hdi_suspect *out)
{
    hdi_suspects found = {.count = 0};
    walk w = {.device = device, .one = true, .next = !all->begun, .out = &found};
    if (all->count && !all->certain) {
        /* The rank is that of the device's suspects: a copy here is no suspect while a kernel is
         * under way in another lane. */
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

/* ---- the losses of a runtime ---- */

typedef struct loss {
    int code;       /* 0: nothing to report */
    uint64_t order; /* the order of this loss among several */
    uint64_t losses;
    /* Set before the latest loss is visible: its number, the operations that may be to blame, and
     * its message. */
    uint64_t suspected;
    hdi_suspects suspects;
    hd_error error;
} loss;

struct hdi_losses {
    hdi_mutex lock;
    int descriptor; /* a descriptor that is readable while hd_loss_next can report something */
    uint64_t order;
    loss of[HDI_DEVICES_MAX];
};

hd_status hdi_losses_create(hd_runtime *rt)
{
    struct hdi_losses *losses = calloc(1, sizeof *losses);
    if (!losses) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    losses->descriptor = hdi_descriptor_event(EFD_NONBLOCK);
    if (losses->descriptor < 0) {
        free(losses);
        return hdi_fail(HD_ERROR_SYSTEM, "no file descriptor is left; close some, or raise their limit");
    }
    hdi_mutex_init(&losses->lock, HDI_RANK_LOSSES);
    rt->losses = losses;
    return HD_OK;
}

void hdi_losses_release(hd_runtime *rt)
{
    if (rt->losses) {
        close(rt->losses->descriptor);
        hdi_mutex_destroy(&rt->losses->lock);
        free(rt->losses);
        rt->losses = NULL;
    }
}

/* ---- lanes ---- */

/* True if a WAIT of a lane is for another lane that did not reach the target. */
static bool loss_lane_waits(const hdi_device *device, uint32_t number, const hdi_command *c)
{
    uint32_t own = (uint32_t)device->index * HDI_LANES_MAX + number;
    uint32_t lane = c->wait.lane;
    uint64_t position = c->wait.position;
    hd_runtime *rt = device->runtime;
    if (lane == own || lane >= (uint32_t)rt->n_devices * HDI_LANES_MAX) {
        return false;
    }
    /* A WAIT for a position that was never submitted means that the command was overwritten. Only
     * the application's process can determine that. */
    bool known = rt->end_process || position <= hdi_lane_submitted(hdi_lane_owner(rt, lane), lane % HDI_LANES_MAX);
    return known && !hdi_point_done(rt, (hdi_point){lane, position});
}

bool hdi_lane_waits(const hdi_device *device, uint32_t number, uint64_t from, uint64_t to)
{
    for (uint64_t at = from; at < to;) {
        const hdi_command *c = hdi_command_at(&device->channel, number, at);
        uint8_t slots = c->slots;
        if (c->op == HDI_OP_WAIT) {
            if (loss_lane_waits(device, number, c)) {
                return true;
            }
        } else if (c->op == HDI_OP_CLAIMED) {
            return true; /* the program decides when its claim ends */
        } else if (c->op != HDI_OP_SKIP && c->op != HDI_OP_SOURCES) {
            return false;
        }
        if (slots == 0) {
            return false; /* the command was overwritten */
        }
        at += slots;
    }
    return false;
}

/* Replaces impossible positions of a lane by possible ones, since the engine's process ended and
 * may have written anything. If in doubt, less counts as done. Order lock held. */
static void loss_mend_positions(hdi_device *device, hd_lane *of)
{
    hdi_lane_shared *lane = of->shared;
    uint64_t head = of->head;
    uint64_t slots = device->channel.slots;
    uint64_t least = atomic_load_explicit(&of->done_least, memory_order_relaxed);
    uint64_t done = atomic_load_explicit(&lane->done, memory_order_acquire);
    uint64_t issued = atomic_load_explicit(&lane->issued, memory_order_acquire);
    atomic_store_explicit(&lane->head, head, memory_order_release);
    if (done < least || done > head || head - done > slots) {
        uint64_t fits = head > slots ? head - slots : 0;
        done = fits > least ? fits : least;
        atomic_store_explicit(&lane->done, done, memory_order_release);
    }
    if (issued - done > head - done) {
        atomic_store_explicit(&lane->issued, head, memory_order_release);
    }
    atomic_store_explicit(&of->done_least, done, memory_order_relaxed);
}

/* Copies the operation to blame. Without a suspect the failure stays unchanged. */
static void loss_blame(hdi_failure *failure, const hdi_suspect *s)
{
    if (s->count) {
        failure->position = s->position;
        failure->lane = s->lane;
        failure->kernel = s->kernel;
        failure->op = s->op;
    }
}

void hdi_loss_suspect(hdi_device *device, int code)
{
    hd_runtime *rt = device->runtime;
    loss *l = &rt->losses->of[device->index];
    hdi_failure failure = {.lane = (uint32_t)device->index * HDI_LANES_MAX, .driver_code = code, .lost = 1};
    hdi_suspects suspects;
    hd_error error;
    suspects_collect(device, code, &suspects);
    loss_blame(&failure, &suspects.named[0]);
    hdi_loss_describe(rt, &failure, &suspects, &error);
    hdi_mutex_lock(&rt->losses->lock);
    l->suspected++;
    l->suspects = suspects;
    l->error = error;
    hdi_mutex_unlock(&rt->losses->lock);
}

uint64_t hdi_loss_suspects(hd_runtime *rt, int device, hdi_suspects *out)
{
    struct hdi_losses *losses = rt->losses;
    hdi_mutex_lock(&losses->lock);
    uint64_t number = losses->of[device].suspected;
    *out = losses->of[device].suspects;
    hdi_mutex_unlock(&losses->lock);
    return number;
}

/* Records that all unfinished work of a lane fails, and all work that comes later. All work from
 * position `from` on fails, too. */
static void loss_end_lane_from(hdi_device *device, uint32_t number, int code, uint64_t from)
{
    const hdi_channel *channel = &device->channel;
    hdi_lane_shared *lane = &channel->lanes[number];
    uint64_t done = atomic_load_explicit(&lane->done, memory_order_acquire);
    hdi_failure failure;
    if (hdi_failure_logged(channel, number, UINT64_MAX, &failure) == HDI_LOGGED_YES) {
        return; /* recorded before */
    }
    hdi_suspects suspects;
    hdi_suspect own = {.count = 0};
    uint64_t loss_number = hdi_loss_suspects(device->runtime, device->index, &suspects);
    bool waited = suspects_of_lane(device, number, &suspects, &own);
    failure = (hdi_failure){
        .from = from <= done ? from : done + 1,
        .to = UINT64_MAX,
        .position = done,
        .lane = (uint32_t)device->index * HDI_LANES_MAX + number,
        .driver_code = code,
        .lost = 1,
        .loss = loss_number,
        .begun = suspects_begun(device, number),
    };
    failure.waited = waited && own.lane != failure.lane;
    loss_blame(&failure, &own);
    hdi_failure_add(channel, number, &failure);
    /* pairs with the load in the submit path */
    atomic_store_explicit(&lane->failed, 1, memory_order_release);
}

void hdi_lane_lose(hdi_device *device, uint32_t number, int code)
{
    loss_end_lane_from(device, number, code, UINT64_MAX);
}

uint64_t hdi_lane_reach(const hdi_device *device, uint32_t number, uint64_t from, uint64_t head)
{
    const hd_lane *lane = hdi_lane_at(device, number);
    if (lane && lane->claim) {
        hdi_biased_barrier(); /* after the device's state was stored; pairs with hdi_claim_fence */
    }
    while (from < head) {
        const hdi_command *c = hdi_command_at(&device->channel, number, from);
        if (c->slots == 0) {
            return head; /* a dead process left it half written */
        }
        bool claims = c->op == HDI_OP_CLAIM || c->op == HDI_OP_CLAIMED;
        if ((c->op == HDI_OP_WAIT && loss_lane_waits(device, number, c)) ||
            (claims && hdi_claim_is_open(lane, c->op, from + c->slots))) {
            return from;
        }
        from += c->slots;
    }
    return head;
}

/* Drains a lane of a lost device: its work ends without success, up to its first wait for work that
 * goes on. It stops there, since later work relies on the end of all work in front of it. True if
 * something moved. */
static bool loss_drain_lane(hdi_device *device, uint32_t number)
{
    hdi_lane_shared *lane = &device->channel.lanes[number];
    hd_lane *of = hdi_lane_at(device, number);
    uint64_t head = hdi_lane_submitted(device, number);
    uint64_t done = atomic_load_explicit(&of->done_least, memory_order_relaxed);
    uint64_t reach = hdi_lane_reach(device, number, done, head);
    atomic_store_explicit(&lane->issued, head, memory_order_release);
    if (reach == done) {
        return false;
    }
    /* This does what stream_store_done does. `done_least` comes first, since only the application
     * writes it: see hdi_wait_position. */
    atomic_store_explicit(&of->done_least, reach, memory_order_release);
    /* the program may end a claim at the same time (hdi_claim_end_lane) */
    hdi_raise(&lane->done, reach);
    atomic_fetch_add_explicit(&lane->wake, 1, memory_order_release);
    hdi_futex_wake(&lane->wake, INT32_MAX);
    hdi_lane_ring_watchers(device->runtime, lane);
    if (of->claim) {
        hdi_claim_ring(device->channel.engine);
    }
    return true;
}

bool hdi_device_is_drained(const hdi_device *device)
{
    uint32_t made = atomic_load_explicit(&device->lanes_made, memory_order_acquire);
    bool lost = hdi_device_lost(device);
    for (uint32_t i = 0; i < made; i++) {
        /* In the lanes of a dead engine only the application's own record counts. */
        uint64_t done = atomic_load_explicit(
            lost ? &hdi_lane_at(device, i)->done_least : &device->channel.lanes[i].done, memory_order_acquire);
        if (done < hdi_lane_submitted(device, i)) {
            return false;
        }
    }
    return true;
}

/* The mutex of the losses is held, so one thread at a time does this. */
static void loss_drain(hdi_device *device)
{
    uint32_t made = atomic_load_explicit(&device->lanes_made, memory_order_acquire);
    /* lanes of lost devices may wait for each other, so this repeats */
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t i = 0; i < made; i++) {
            moved |= loss_drain_lane(device, i);
        }
    }
    if (hdi_device_is_drained(device) && hdi_device_state_of(device) == HDI_DEVICE_DRAINING) {
        hdi_device_change(device, HDI_DEVICE_DRAINING, HDI_DEVICE_LOST);
    }
}

/* True if some work of the device is unfinished, and no restart took it over. A restart that fails
 * gives the work back. */
static bool loss_is_draining(const hdi_device *device)
{
    hdi_device_state state = hdi_device_state_of(device);
    return state == HDI_DEVICE_DRAINING || (state == HDI_DEVICE_LOST && !hdi_device_is_drained(device));
}

/* True once the loss is noted: see loss_note_in_turn. Draining begins after that. */
static bool loss_is_noted(const hdi_device *device)
{
    const loss *l = &device->runtime->losses->of[device->index];
    return l->losses == l->suspected;
}

bool hdi_device_drain(hdi_device *device)
{
    struct hdi_losses *losses = device->runtime->losses;
    hdi_mutex_lock(&losses->lock);
    bool draining = loss_is_draining(device);
    if (draining && loss_is_noted(device)) {
        loss_drain(device);
        draining = loss_is_draining(device);
    }
    hdi_mutex_unlock(&losses->lock);
    return draining;
}

void hdi_device_end_draining(hdi_device *device)
{
    struct hdi_losses *losses = device->runtime->losses;
    hdi_mutex_lock(&losses->lock);
    while (!loss_is_noted(device)) { /* the thread that notes the loss is about to do so */
        hdi_mutex_unlock(&losses->lock);
        hdi_sleep_for(NOTED_SLEEP_NS);
        hdi_mutex_lock(&losses->lock);
    }
    loss_drain(device);
    if (hdi_device_state_of(device) == HDI_DEVICE_DRAINING) {
        hdi_device_change(device, HDI_DEVICE_DRAINING, HDI_DEVICE_LOST);
    }
    hdi_device_change(device, HDI_DEVICE_LOST, HDI_DEVICE_STARTING);
    hdi_mutex_unlock(&losses->lock);
}

/* ---- reporting ---- */

/* For a trace. */
static void loss_record(hdi_device *device, const loss *l)
{
    hdi_recorder *recorder = &device->runtime->recorder;
    if (!hdi_records(recorder)) {
        return;
    }
    hdi_suspects suspects = l->suspects;
    hdi_suspect first = suspects.n_named ? suspects.named[0] : (hdi_suspect){.count = 0};
    hdi_record r = {.loss = {.time = hdi_record_now(recorder),
                             .code = l->code,
                             .lane = first.lane,
                             .kernel = first.kernel,
                             .position = first.position}};
    r.type = HDI_RECORD_LOSS;
    r.device = (uint8_t)device->index;
    hdi_record_put_text(recorder, &r, l->error.message);
}

/* Notes a loss. With `drains`, also drains the device. Both happen under the mutex, which
 * guarantees two things:
 * - A thread that waited for a ticket finds the loss reported.
 * - A thread that read the loss finds all tickets done. */
static void loss_note_in_turn(hdi_device *device, int code, bool drains)
{
    hd_runtime *rt = device->runtime;
    struct hdi_losses *losses = rt->losses;
    uint64_t count = atomic_fetch_add_explicit(&device->losses, 1, memory_order_acq_rel) + 1;
    if (rt->on_loss) {
        rt->on_loss(rt, device);
    }
    HDI_UNCANCELLED;
    hdi_mutex_lock(&losses->lock);
    loss *l = &losses->of[device->index];
    l->code = code;
    l->order = ++losses->order;
    l->losses = count;
    loss_record(device, l);
    if (drains) {
        loss_drain(device);
    }
    uint64_t one = 1;
    ssize_t written = write(losses->descriptor, &one, sizeof one);
    (void)written; /* the write fails only if the descriptor is readable already */
    hdi_mutex_unlock(&losses->lock);
}

void hdi_loss_note(hdi_device *device, int code)
{
    loss_note_in_turn(device, code, false);
}

void hdi_device_lose(hdi_device *device, int code)
{
    hdi_engine_shared *engine = device->channel.engine;
    /* This comes before the lock is taken: a submitter that holds it may be reading a record that a
     * dead engine left half written. */
    uint32_t made = atomic_load_explicit(&device->lanes_made, memory_order_acquire);
    for (uint32_t i = 0; i < made; i++) {
        hdi_failure_repair(&device->channel, i);
    }
    /* No thread submits while this one holds the lock. Later submitters see the device lost. */
    hdi_lock_take(&device->order);
    bool first = !hdi_device_lost(device);
    if (first) {
        hdi_device_change(device, HDI_DEVICE_UP, HDI_DEVICE_FAILING);
        for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
            if (device->lanes[i]) {
                loss_mend_positions(device, device->lanes[i]);
            }
        }
        hdi_loss_suspect(device, code);
        for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
            if (device->lanes[i]) {
                loss_end_lane_from(device, i, code, hdi_failure_mend(device->lanes[i]));
            }
        }
        atomic_store_explicit(&device->lost_by, code, memory_order_relaxed);
        hdi_device_change(device, HDI_DEVICE_FAILING, HDI_DEVICE_DRAINING);
    }
    hdi_lock_release(&device->order);
    if (!first) {
        return;
    }
    /* This comes before the loss is noted, because a restart may then prepare the channel for a
     * fresh engine. */
    for (int i = 0; i < HDI_LANES_MAX / 64; i++) {
        atomic_store_explicit(&engine->active[i], 0, memory_order_seq_cst);
    }
    loss_note_in_turn(device, code, true);
    /* Wakes threads even if nothing moved, since a dead engine may have moved `done` without waking
     * them. */
    for (uint32_t i = 0; i < made; i++) {
        hdi_lane_shared *lane = &device->channel.lanes[i];
        atomic_fetch_add_explicit(&lane->wake, 1, memory_order_release);
        hdi_futex_wake(&lane->wake, INT32_MAX);
    }
}

void hdi_device_reactivate(hdi_device *device)
{
    hdi_lock_take(&device->order);
    for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
        if (device->lanes[i]) {
            hdi_lane_shared *lane = &device->channel.lanes[i];
            hdi_failure_close(&device->channel, i, device->lanes[i]->head);
            atomic_store_explicit(&lane->failed, 0, memory_order_release);
            atomic_store_explicit(&lane->begun, 0, memory_order_relaxed);
            /* Lost work may still wait for other work. Results behind it do not show that it is
             * over. */
            atomic_store_explicit(&device->lanes[i]->resumed, device->lanes[i]->head, memory_order_relaxed);
            /* The lane never made the waits that are left in its ring, so they do not count as
             * made. */
            size_t n_lanes = (size_t)device->runtime->n_devices * HDI_LANES_MAX;
            memset(device->lanes[i]->seen, 0, n_lanes * sizeof device->lanes[i]->seen[0]);
            memset(device->lanes[i]->seen_source, 0, n_lanes * sizeof device->lanes[i]->seen_source[0]);
        }
    }
    atomic_store_explicit(&device->channel.engine->overdue, 0, memory_order_relaxed);
    /* This comes first, so that a thread that sees the device back also sees this count. */
    atomic_fetch_add_explicit(&device->restarts, 1, memory_order_relaxed);
    hdi_device_change(device, HDI_DEVICE_RESTORING, HDI_DEVICE_UP);
    hdi_lock_release(&device->order);
}

/* The error of the device's latest loss. False: none. */
static bool loss_latest(hd_runtime *rt, int device, hd_error *out)
{
    struct hdi_losses *losses = rt->losses;
    hdi_mutex_lock(&losses->lock);
    bool known = device >= 0 && losses->of[device].suspected != 0;
    *out = known ? losses->of[device].error : hdi_error_blank(HD_ERROR_DEVICE_LOST);
    hdi_mutex_unlock(&losses->lock);
    return known;
}

/* "WHAT: device 0 is lost: ..." */
static hd_status loss_fail_as(hd_error *error, const char *what)
{
    char cause[sizeof error->message];
    memcpy(cause, error->message, sizeof cause);
    snprintf(error->message, sizeof error->message, "%s%s%.420s", what, what[0] && cause[0] ? ": " : "", cause);
    return hdi_fail_error(error);
}

hd_status hdi_loss_fail(hd_runtime *rt, int device, const char *what)
{
    hd_error error;
    loss_latest(rt, device, &error);
    error.device = device;
    return loss_fail_as(&error, what);
}

hd_status hdi_loss_refuse(hd_runtime *rt, int device, hd_status status, const char *what)
{
    hd_error error;
    if (!loss_latest(rt, device, &error)) {
        return hdi_fail(status, "%s", what);
    }
    error.status = status;
    return loss_fail_as(&error, what);
}

hd_status hdi_loss_fail_call(hdi_device *device, int code, const char *entry_point)
{
    hd_runtime *rt = device->runtime;
    hd_error error;
    if (rt->losses && hdi_device_lost(device) && loss_latest(rt, device->index, &error)) {
        return loss_fail_as(&error, "");
    }
    if (code < 0 || !rt->losses) {
        return hdi_fail_driver(HD_ERROR_DEVICE_LOST, code, entry_point, device->index, "device %d is lost: %s",
                               device->index, hdi_driver_code_name(code));
    }
    /* The engine did not notice the loss yet, so this thread looks for the suspects. */
    hdi_suspects suspects;
    hdi_lock_take(&device->order);
    suspects_collect(device, code, &suspects);
    hdi_lock_release(&device->order);
    hdi_failure failure = {.lane = (uint32_t)device->index * HDI_LANES_MAX, .driver_code = code, .lost = 1};
    loss_blame(&failure, &suspects.named[0]);
    hdi_loss_describe(rt, &failure, &suspects, &error);
    if (entry_point[0]) {
        char cause[sizeof error.message];
        memcpy(cause, error.message, sizeof cause);
        snprintf(error.message, sizeof error.message, "%.60s: %.420s", entry_point, cause);
    }
    if (!suspects.count) {
        snprintf(error.operation, sizeof error.operation, "%s", entry_point);
    }
    return hdi_fail_error(&error);
}

static hd_status loss_check_call(hd_runtime *rt, const void *out)
{
    if (!out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "out is null");
    }
    return hdi_runtime_is_open(rt) ? HD_OK : hdi_runtime_refused(rt);
}

hd_status hd_loss_descriptor(hd_runtime *rt, int *out)
{
    HDI_INSIDE(rt);
    hd_status status = loss_check_call(rt, out);
    if (!status) {
        *out = rt->losses->descriptor;
    }
    return status;
}

static hd_loss_cause loss_cause_of(int code)
{
    switch (code) {
    case HDI_GONE_WATCHDOG:
        return HD_LOSS_WATCHDOG;
    case HDI_GONE_STUCK:
    case HDI_GONE_UNANSWERED:
        return HD_LOSS_WORKER_STUCK;
    default:
        return code < 0 ? HD_LOSS_WORKER_ENDED : HD_LOSS_DRIVER;
    }
}

hd_status hd_loss_next(hd_runtime *rt, hd_device_loss *out)
{
    HDI_INSIDE(rt);
    hd_status status = loss_check_call(rt, out);
    if (status) {
        return status;
    }
    status = HDI_SIZED_CHECK(hd_device_loss, out);
    if (status) {
        return status;
    }
    struct hdi_losses *losses = rt->losses;
    loss *oldest = NULL;
    int waiting = 0;
    hd_device_loss told = {.size = sizeof told};
    hdi_mutex_lock(&losses->lock);
    for (int i = 0; i < rt->n_devices; i++) {
        loss *l = &losses->of[i];
        if (l->code) {
            waiting++;
            oldest = !oldest || l->order < oldest->order ? l : oldest;
        }
    }
    if (oldest) {
        told.device = (int)(oldest - losses->of);
        told.cause = loss_cause_of(oldest->code);
        told.driver_code = oldest->code > 0 ? oldest->code : 0;
        told.signal = oldest->code <= HDI_GONE_SIGNAL ? HDI_GONE_SIGNAL - oldest->code : 0;
        told.losses = oldest->losses;
        memcpy(told.message, oldest->error.message, sizeof told.message);
        oldest->code = 0;
    }
    if (waiting <= 1) {
        uint64_t count;
        ssize_t n = read(losses->descriptor, &count, sizeof count);
        (void)n; /* the read fails if there was nothing to read */
    }
    hdi_mutex_unlock(&losses->lock);
    if (!oldest) {
        return hdi_fail(HD_ERROR_NOT_FOUND, "no device was lost since the last one that it returned");
    }
    HDI_SIZED_OUT(hd_device_loss, out, &told);
    return HD_OK;
}
