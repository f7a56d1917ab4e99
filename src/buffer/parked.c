/* parked.c - see parked.h.
 *
 * Each library lane has a list of roots (parked.h). A root gets an entry in the list if the list
 * contains no later position of the root's program lane. The entry stores the position, in the
 * library lane, of the first operation that waits for the root. Entries are in the order of these
 * positions. So the entries up to a position contain all roots of the operations up to this
 * position. `last` stores the furthest root of each program lane. To decide whether an operation
 * may enter the lane, a submission reads only `last`.
 *
 * A parking lane is made when an operation fits into no existing parking lane. So there are about
 * as many parking lanes as there are different sets of roots that transfers wait for at the same
 * time.
 */
#include "buffer/parked.h"
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/lock.h"
#include "engine/claims.h"
#include "engine/engine.h"

#define ROOM_FIRST 4
/* if a buffer has more unfinished uses, they are not checked for roots one by one */
#define POINTS_MOST 8
#define WITHOUT_ROOTS 0 /* hdi_parking_without_roots */

static hd_lane *parked_lane_of(hd_runtime *rt, uint32_t global)
{
    return hdi_lane_at(hdi_lane_owner(rt, global), global % HDI_LANES_MAX);
}

/* True if the work of the program at `root` is over, so that nothing waits for this work any
 * more. */
static bool parked_root_is_over(hd_runtime *rt, hdi_point root)
{
    const hd_lane *other = parked_lane_of(rt, root.lane);
    return hdi_point_done(rt, root) ||
           (atomic_load_explicit(&other->claim, memory_order_relaxed) && hdi_claim_is_over(other, root.position));
}

static bool parked_make_room(void **at, uint32_t *room, uint32_t wanted, size_t bytes)
{
    if (wanted <= *room) {
        return true;
    }
    uint32_t more = *room ? *room : ROOM_FIRST;
    while (more < wanted) {
        more *= 2;
    }
    void *grown = realloc(*at, more * bytes);
    if (grown) {
        *at = grown;
        *room = more;
    }
    return grown != NULL;
}

/* ---- the list of a lane; the order lock is held ---- */

/* Drops the roots that are over. */
static void parked_prune(hd_lane *lane)
{
    hdi_parked *p = &lane->parked;
    hd_runtime *rt = lane->runtime;
    if (!hdi_parked_any(lane)) {
        return;
    }
    hdi_lock_take(&p->lock);
    while (p->n && parked_root_is_over(rt, p->at[p->first].root)) {
        p->first++;
        p->n--;
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < p->n_last; i++) {
        if (!parked_root_is_over(rt, p->last[i])) {
            p->last[kept++] = p->last[i];
        }
    }
    p->n_last = kept;
    if (kept == 0) {
        p->first = p->n = 0;
        atomic_store_explicit(&lane->has_roots, false, memory_order_relaxed);
        lane->failures_known = p->failures_known;
    }
    hdi_lock_release(&p->lock);
}

/* The root in a lane of the program, among the roots that were found. NULL: no root is in that
 * lane. */
static hdi_point *parked_root_found(const hdi_roots *found, uint32_t lane)
{
    uint32_t i = found->index[lane];
    return i < found->n && found->at[i].lane == lane ? &found->at[i] : NULL;
}

static void parked_add_root(hdi_roots *found, hdi_point root)
{
    hdi_point *same = parked_root_found(found, root.lane);
    if (same) {
        same->position = same->position > root.position ? same->position : root.position;
    } else {
        found->index[root.lane] = found->n;
        found->at[found->n++] = root;
    }
}

/* Adds the roots that follow from a wait for an earlier operation. If that operation is work of the
 * program, it is the root. Otherwise its own roots are added. */
static void parked_add_roots_of(hd_lane *lane, hdi_point point)
{
    hd_runtime *rt = lane->runtime;
    hdi_roots *found = &lane->device->roots;
    hd_lane *other = parked_lane_of(rt, point.lane);
    if (!hdi_parked_may_be_in(other)) {
        if (!parked_root_is_over(rt, point)) {
            parked_add_root(found, point);
        }
        return;
    }
    if (!hdi_parked_any(other)) {
        return;
    }
    hdi_parked *p = &other->parked;
    hdi_lock_take(&p->lock);
    bool any = false;
    for (uint32_t i = p->n; i-- > 0 && !(any && p->n_last == 1);) {
        const hdi_root *at = &p->at[p->first + i];
        if (at->position <= point.position && !parked_root_is_over(rt, at->root)) {
            any = true;
            parked_add_root(found, at->root);
        }
    }
    hdi_lock_release(&p->lock);
}

void hdi_parked_find(hd_lane *lane)
{
    parked_prune(lane);
    lane->device->roots.n = 0;
    for (uint32_t i = 0; i < lane->waits.n; i++) {
        parked_add_roots_of(lane, (hdi_point){lane->waits.entries[i].lane, lane->waits.entries[i].position});
    }
}

/* True if at least half of the ring is free, so that a submission does not wait for room. */
static bool parked_lane_is_roomy(const hd_lane *lane)
{
    return lane->head - atomic_load_explicit(&lane->shared->done, memory_order_acquire) <= lane->mask / 2;
}

/* True if an operation with the roots that hdi_parked_find found may stand behind all operations in
 * the lane `to`. */
static bool parked_lane_fits(const hd_lane *to)
{
    const hdi_parked *p = &to->parked;
    const hdi_roots *found = &to->device->roots;
    bool fit = true;
    for (uint32_t i = 0; i < p->n_last && fit; i++) {
        const hdi_point *own = parked_root_found(found, p->last[i].lane);
        fit = (own && own->position >= p->last[i].position) || parked_root_is_over(to->runtime, p->last[i]);
    }
    return fit;
}

bool hdi_parked_fits(hd_lane *lane)
{
    return (parked_lane_is_roomy(lane) || !hdi_parked_any(lane)) && parked_lane_fits(lane);
}

/* True if all roots of the operation at `point` are among the roots that were found. */
static bool parked_roots_cover(const hd_lane *lane, hdi_point point)
{
    hd_runtime *rt = lane->runtime;
    const hdi_roots *found = &lane->device->roots;
    hdi_parked *p = &parked_lane_of(rt, point.lane)->parked;
    bool all = true;
    hdi_lock_take(&p->lock);
    for (uint32_t i = 0; i < p->n && p->at[p->first + i].position <= point.position && all; i++) {
        hdi_point root = p->at[p->first + i].root;
        const hdi_point *own = parked_root_found(found, root.lane);
        all = (own && own->position >= root.position) || parked_root_is_over(rt, root);
    }
    hdi_lock_release(&p->lock);
    return all;
}

void hdi_parked_answer(const hd_lane *lane, hdi_probe *probe)
{
    probe->root = lane->device->roots.at[0];
    probe->covered = 0;
    while (probe->covered < probe->n_ends && !parked_roots_cover(lane, probe->ends[probe->covered])) {
        probe->covered++;
    }
}

bool hdi_parked_reserve(hd_lane *lane)
{
    hdi_parked *p = &lane->parked;
    uint32_t more = lane->device->roots.n;
    hdi_lock_take(&p->lock);
    if (p->first && p->first + p->n + more > p->room) {
        memmove(p->at, p->at + p->first, p->n * sizeof *p->at);
        p->first = 0;
    }
    bool room = parked_make_room((void **)&p->at, &p->room, p->first + p->n + more, sizeof *p->at) &&
                parked_make_room((void **)&p->last, &p->last_room, p->n_last + more, sizeof *p->last);
    hdi_lock_release(&p->lock);
    return room;
}

void hdi_parked_note(hd_lane *lane, uint64_t position)
{
    hdi_parked *p = &lane->parked;
    hdi_roots *found = &lane->device->roots;
    hdi_lock_take(&p->lock);
    for (uint32_t i = 0; i < p->n_last; i++) {
        hdi_point *root = parked_root_found(found, p->last[i].lane);
        if (root && root->position > p->last[i].position) {
            p->at[p->first + p->n++] = (hdi_root){*root, position};
            p->last[i] = *root;
        }
        if (root) {
            root->position = 0; /* earlier work in the lane already waits for this root */
        }
    }
    for (uint32_t i = 0; i < found->n; i++) {
        if (found->at[i].position) {
            p->at[p->first + p->n++] = (hdi_root){found->at[i], position};
            p->last[p->n_last++] = found->at[i];
        }
    }
    if (p->n_last && !hdi_parked_any(lane)) {
        atomic_store_explicit(&lane->has_roots, true, memory_order_relaxed);
        p->failures_known = lane->failures_known;
        lane->failures_known = HDI_FAILURES_UNKNOWN;
    }
    hdi_lock_release(&p->lock);
}

bool hdi_parked_has_root(hd_runtime *rt, hdi_point point)
{
    hd_lane *lane = parked_lane_of(rt, point.lane);
    hdi_parked *p = &lane->parked;
    bool found = false;
    if (hdi_point_done(rt, point)) {
        return false;
    }
    hdi_lock_take(&p->lock);
    for (uint32_t i = 0; i < p->n && p->at[p->first + i].position <= point.position && !found; i++) {
        found = !parked_root_is_over(rt, p->at[p->first + i].root);
    }
    hdi_lock_release(&p->lock);
    return found;
}

bool hdi_buffer_has_root(struct hd_buffer *b)
{
    hdi_point points[POINTS_MOST];
    hd_runtime *rt = b->runtime;
    hdi_buffer_uses_lock(b);
    size_t n = hdi_uses_pending(rt, &b->uses, 0, b->bytes, true, points, POINTS_MOST);
    hdi_buffer_uses_unlock(b);
    /* with more uses than this, the function assumes that some use has a root */
    bool found = n > POINTS_MOST;
    for (size_t i = 0; i < n && !found; i++) {
        found = hdi_parked_may_be_in(parked_lane_of(rt, points[i].lane)) ? hdi_point_is_parked(rt, points[i])
                                                                         : !parked_root_is_over(rt, points[i]);
    }
    return found;
}

/* ---- parking lanes ---- */

static bool parked_lane_is_idle(const hd_lane *lane)
{
    return lane->head == atomic_load_explicit(&lane->shared->done, memory_order_acquire);
}

/* Chooses a lane for an operation without roots: an idle lane, or else a lane without roots. */
static hd_lane *parking_choose_without_roots(const hdi_device *device)
{
    hd_lane *idle = NULL, *busy = NULL;
    for (uint32_t i = WITHOUT_ROOTS + 1; i < device->n_parking && !idle; i++) {
        hd_lane *to = device->parking[i];
        if (!hdi_parked_any(to) || parked_lane_fits(to)) {
            idle = parked_lane_is_idle(to) ? to : NULL;
            busy = busy || !parked_lane_is_roomy(to) ? busy : to;
        }
    }
    return idle ? idle : busy;
}

/* Chooses a lane for an operation with roots. Prefers a lane that already waits for some of these
 * roots to a lane without roots. */
static hd_lane *parking_choose_with_roots(const hdi_device *device)
{
    hd_lane *same = NULL, *blank = NULL;
    for (uint32_t i = WITHOUT_ROOTS + 1; i < device->n_parking && !same; i++) {
        hd_lane *to = device->parking[i];
        bool any = hdi_parked_any(to);
        if (!parked_lane_is_roomy(to) || (any && !parked_lane_fits(to))) {
            continue;
        }
        if (any) {
            same = to;
        } else if (!blank || (parked_lane_is_idle(to) && !parked_lane_is_idle(blank))) {
            blank = to;
        }
    }
    return same ? same : blank;
}

hd_lane *hdi_parking_choose(hdi_device *device, bool made)
{
    if (device->roots.n) {
        return parking_choose_with_roots(device);
    }
    hd_lane *to = parking_choose_without_roots(device);
    return to || !made ? to : device->parking[WITHOUT_ROOTS];
}

/* Errors: as hdi_lane_make_parking. */
static hd_status parking_make_lane(hdi_device *device)
{
    hd_lane *lane = NULL;
    hd_status status = hdi_lane_make_parking(device, &lane);
    if (!status) {
        hdi_lock_take(&device->order);
        lane->is_copy = lane->parks = true;
        device->parking[device->n_parking++] = lane;
        hdi_lock_release(&device->order);
    }
    return status;
}

bool hdi_parking_make(hdi_device *device)
{
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    bool made = parking_make_lane(device) == HD_OK;
    hdi_attempt_end(&attempt);
    return made;
}

hd_status hdi_parking_open(hdi_device *device)
{
    size_t n_lanes = (size_t)device->runtime->n_devices * HDI_LANES_MAX;
    device->roots.at = malloc(n_lanes * sizeof *device->roots.at);
    device->roots.index = calloc(n_lanes, sizeof *device->roots.index);
    if (!device->roots.at || !device->roots.index) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    return parking_make_lane(device);
}

void hdi_parking_release(hdi_device *device)
{
    free(device->roots.at);
    free(device->roots.index);
    device->roots = (hdi_roots){.n = 0};
}
