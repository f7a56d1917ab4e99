/* parked.c - see parked.h.
 *
 * A parking lane is made when no other one is free or waits for the same claims. So there are about as many as claims that copies wait for.
 * Where all are taken, they take turns: claims that end in the order of their copies' submission still hold up nothing else.
 */
#include "buffer/parked.h"
#include <stdlib.h>
#include "base/error.h"
#include "base/lock.h"
#include "engine/engine.h"

#define ROOM_FIRST 4

static hd_lane *lane_of(hd_runtime *rt, uint32_t global)
{
    return hdi_lane_at(hdi_lane_owner(rt, global), global % HDI_LANES_MAX);
}

/* Whether the entry of the lane's list counts. The lists' lock is held. */
static bool counts(const hd_lane *lane, const hdi_parked_at *e)
{
    return hdi_claim_is_awaited(lane_of(lane->runtime, e->claim.lane), e->claim.position) &&
           !hdi_point_done(lane->runtime, e->claim) &&
           atomic_load_explicit(&lane->shared->done, memory_order_acquire) < e->position;
}

static uint32_t length(const hd_lane *lane)
{
    return atomic_load_explicit(&lane->parked.n, memory_order_relaxed);
}

static void set_length(hd_lane *lane, uint32_t n)
{
    bool claims = n != 0 || atomic_load_explicit(&lane->claim, memory_order_relaxed) != NULL;
    atomic_store_explicit(&lane->parked.n, n, memory_order_relaxed);
    atomic_store_explicit(&lane->claims, claims, memory_order_relaxed);
}

static bool is_among(const hdi_parked_at *at, uint32_t n, hdi_point claim)
{
    bool found = false;
    for (uint32_t i = 0; i < n && !found; i++) {
        found = at[i].claim.lane == claim.lane && at[i].claim.position == claim.position;
    }
    return found;
}

/* ---- the list of a lane: the order lock and the lists' lock are held ---- */

static void prune(hd_lane *lane)
{
    hdi_parked *p = &lane->parked;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < length(lane); i++) {
        if (counts(lane, &p->at[i])) {
            p->at[kept++] = p->at[i];
        }
    }
    set_length(lane, kept);
}

/* Puts the claim behind the list and those found before. False: no memory. */
static bool add(hd_lane *lane, hdi_point claim, uint32_t *found)
{
    hdi_parked *p = &lane->parked;
    uint32_t n = length(lane), end = n + *found;
    if (is_among(p->at + n, *found, claim)) {
        return true;
    }
    if (end == p->room) {
        uint32_t room = p->room ? 2 * p->room : ROOM_FIRST;
        hdi_parked_at *more = realloc(p->at, room * sizeof *more);
        if (!more) {
            return false;
        }
        p->at = more;
        p->room = room;
    }
    p->at[end] = (hdi_parked_at){claim, 0};
    ++*found;
    return true;
}

/* The claims that a wait for the position is for. */
static bool add_those_of(hd_lane *lane, const hdi_wait_entry *e, uint32_t *found)
{
    const hd_lane *other = lane_of(lane->runtime, e->lane);
    bool room = true;
    if (hdi_claim_is_awaited(other, e->position)) {
        room = add(lane, (hdi_point){e->lane, e->position}, found);
    }
    for (uint32_t i = 0; other != lane && i < length(other) && room; i++) {
        const hdi_parked_at *at = &other->parked.at[i];
        if (at->position <= e->position && counts(other, at)) {
            room = add(lane, at->claim, found);
        }
    }
    return room;
}

uint32_t hdi_parked_find(hd_lane *lane)
{
    hdi_lock *lists = &hdi_buffer_of(lane->runtime)->parked_lock;
    uint32_t found = 0;
    bool room = true;
    hdi_lock_take(lists);
    prune(lane);
    for (uint32_t i = 0; i < lane->waits.n && room; i++) {
        room = add_those_of(lane, &lane->waits.entries[i], &found);
    }
    hdi_lock_release(lists);
    return room ? found : HDI_PARKED_NO_MEMORY;
}

void hdi_parked_note(hd_lane *lane, uint32_t found, uint64_t position)
{
    hdi_lock *lists = &hdi_buffer_of(lane->runtime)->parked_lock;
    hdi_lock_take(lists);
    hdi_parked_at *at = lane->parked.at;
    uint32_t first = length(lane), n = first;
    for (uint32_t i = first; i < first + found; i++) {
        if (!is_among(at, first, at[i].claim)) {
            at[n++] = (hdi_parked_at){at[i].claim, position};
        }
    }
    set_length(lane, n);
    hdi_lock_release(lists);
}

/* ---- parking lanes ---- */

/* Whether half of the ring is free, so that the submission does not wait for room, and that for a claim. */
static bool is_roomy(const hd_lane *lane)
{
    return lane->head - atomic_load_explicit(&lane->shared->done, memory_order_acquire) <= lane->mask / 2;
}

/* Whether all that is parked in a parking lane waits for claims that are among those found in a lane. *empty: nothing is. The lists' lock is held. */
static bool fits(const hd_lane *to, const hd_lane *lane, uint32_t found, bool *empty)
{
    const hdi_parked *p = &to->parked;
    bool fit = is_roomy(to);
    *empty = true;
    for (uint32_t i = 0; i < length(to) && fit; i++) {
        if (counts(to, &p->at[i])) {
            *empty = false;
            fit = is_among(lane->parked.at + length(lane), found, p->at[i].claim);
        }
    }
    return fit;
}

hd_lane *hdi_parking_choose(hd_lane *lane, uint32_t found, bool any)
{
    hdi_device *device = lane->device;
    hd_lane *same = NULL, *free_one = NULL;
    hdi_lock *lists = &hdi_buffer_of(lane->runtime)->parked_lock;
    hdi_lock_take(lists);
    for (uint32_t i = 0; i < device->n_parking && !same; i++) {
        bool empty;
        if (fits(device->parking[i], lane, found, &empty)) {
            free_one = empty && !free_one ? device->parking[i] : free_one;
            same = empty ? NULL : device->parking[i];
        }
    }
    hdi_lock_release(lists);
    hd_lane *chosen = same ? same : free_one;
    if (!chosen && any && device->n_parking) {
        chosen = device->parking[device->parking_turn++ % device->n_parking];
    }
    return chosen;
}

bool hdi_parking_make(hdi_device *device)
{
    hd_lane *lane = NULL;
    hdi_lock_take(&device->order);
    bool may = device->parking_begun < HDI_PARKING_LANES;
    device->parking_begun += may;
    hdi_lock_release(&device->order);
    if (!may) {
        return false;
    }
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    bool made = hdi_lane_make(device, true, false, &lane) == HD_OK;
    hdi_attempt_end(&attempt);
    hdi_lock_take(&device->order);
    if (made) {
        lane->is_copy = lane->parks = true;
        device->parking[device->n_parking++] = lane;
    } else {
        device->parking_begun--;
    }
    hdi_lock_release(&device->order);
    return made;
}
