/* submit_waits.h - writes an operation's waits as commands into its lane's ring. The functions are
 * inlined, since their calls would slow down operations with waits.
 *
 * If the waiting engine can use events of the awaited lane, the functions here request an event in
 * the awaited lane. Otherwise they request that the awaited lane publishes its position without
 * delay.
 *
 * Threads: the threads that submit work.
 * Locks: the caller holds the order lock of the lane's device.
 * Blocking: never.
 * Always: a caller counts the slots and then writes them, without releasing the lock in between.
 */
#ifndef HDI_BUFFER_SUBMIT_WAITS_H
#define HDI_BUFFER_SUBMIT_WAITS_H

#include <stdlib.h>
#include "engine/engine.h"

static inline int hdi_waits_by_lane(const void *a, const void *b)
{
    const hdi_point *x = a, *y = b;
    if (x->lane != y->lane) {
        return x->lane < y->lane ? -1 : 1;
    }
    return x->position < y->position ? -1 : x->position > y->position;
}

/* True if the sources rise without repetition, which is the usual case. */
static inline bool hdi_waits_are_sorted(const hdi_point *sources, uint32_t n)
{
    bool sorted = true;
    for (uint32_t i = 1; i < n && sorted; i++) {
        sorted = hdi_waits_by_lane(&sources[i - 1], &sources[i]) < 0;
    }
    return sorted;
}

/* The number of sorted sources that fit into one command. */
static inline uint32_t hdi_waits_fitting(const hdi_point *sources, uint32_t n)
{
    uint32_t count = 1;
    while (count < n && count < HDI_SOURCES_MOST && sources[count].lane == sources[0].lane &&
           sources[count].position - sources[0].position <= UINT32_MAX) {
        count++;
    }
    return count;
}

/* The slots of the waits in the ring. Sorts the sources. */
static inline uint32_t hdi_waits_slots(hdi_waits *waits)
{
    uint32_t slots = waits->n;
    if (!hdi_waits_are_sorted(waits->sources, waits->n_sources)) {
        qsort(waits->sources, waits->n_sources, sizeof(hdi_point), hdi_waits_by_lane);
        uint32_t kept = 1;
        for (uint32_t i = 1; i < waits->n_sources; i++) {
            if (hdi_waits_by_lane(&waits->sources[kept - 1], &waits->sources[i]) != 0) {
                waits->sources[kept++] = waits->sources[i];
            }
        }
        waits->n_sources = kept;
    }
    for (uint32_t i = 0; i < waits->n_sources; i += hdi_waits_fitting(&waits->sources[i], waits->n_sources - i)) {
        slots++;
    }
    return slots;
}

static inline void hdi_write_wait(hd_runtime *rt, hd_lane *lane, const hdi_wait_entry *w)
{
    hdi_command *c = &lane->ring[lane->head & lane->mask];
    c->op = HDI_OP_WAIT;
    c->slots = 1;
    c->kind = 0;
    c->wait.lane = w->lane;
    c->wait.position = w->position;
    c->wait.source = w->source;
    lane->head++;
    if (w->lane == lane->global) {
        return;
    }
    hdi_device *owner = hdi_lane_owner(rt, w->lane);
    hdi_lane_shared *other = &owner->channel.lanes[w->lane % HDI_LANES_MAX];
    lane->seen[w->lane] = lane->seen[w->lane] > w->position ? lane->seen[w->lane] : w->position;
    lane->seen_source[w->lane] = w->source ? w->source : lane->seen_source[w->lane];
    /* An engine in another process cannot use the event: it waits for `done`. */
    bool by_event = !rt->is_process || owner == lane->device;
    /* A dependency on another device's result ends only when the awaited lane's `done` passes the
     * result. So the wait asks for a completion flag in addition to the event. */
    bool by_word = !by_event || (owner != lane->device && w->source);
    hdi_request_completion(&owner->channel, w->lane % HDI_LANES_MAX, w->position,
                           (by_event ? HDI_REQUEST_EVENT : 0) | (by_word ? HDI_REQUEST_FLAG : 0));
    hdi_raise(by_event ? &other->wanted_event : &other->wanted_host, w->position);
    hdi_engine_notify(owner->channel.engine, w->lane % HDI_LANES_MAX);
}

static inline void hdi_write_sources(hd_lane *lane, const hdi_point *sources, uint32_t n)
{
    hdi_command *c = &lane->ring[lane->head & lane->mask];
    c->op = HDI_OP_SOURCES;
    c->slots = 1;
    c->kind = 0;
    c->sources.lane = sources[0].lane;
    c->sources.position = sources[0].position;
    for (uint32_t i = 1; i < HDI_SOURCES_MOST; i++) {
        c->sources.behind[i - 1] = i < n ? (uint32_t)(sources[i].position - sources[0].position) : 0;
    }
    lane->head++;
}

/* Writes the lane's waits into its ring. The caller checked that they fit. Requests events, or
 * completion without delay, in the other lanes. */
static inline void hdi_waits_write(hd_runtime *rt, hd_lane *lane)
{
    const hdi_waits *waits = &lane->waits;
    for (uint32_t i = 0; i < waits->n; i++) {
        hdi_write_wait(rt, lane, &waits->entries[i]);
    }
    for (uint32_t i = 0, n; i < waits->n_sources; i += n) {
        n = hdi_waits_fitting(&waits->sources[i], waits->n_sources - i);
        hdi_write_sources(lane, &waits->sources[i], n);
    }
}

#endif
