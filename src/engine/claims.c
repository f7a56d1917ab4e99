/* claims.c - see claims.h.
 *
 * A table keeps one outcome for each label, call site and failed status. The table lives as long as
 * the runtime, since the program may keep tickets that long.
 */
#include "engine/claims.h"
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/lock.h"
#include "base/text.h"
#include "base/wait.h"
#include "engine/engine.h"

enum { OUTCOMES_MOST = 4096 }; /* any more outcomes share the last number */

typedef struct outcome {
    char label[HD_LABEL_BYTES];
    const void *site;
    hd_status status;
    bool of_call, on_stream;
    char text[HDI_CLAIM_TEXT]; /* made before any lock is taken */
} outcome;

struct hdi_outcomes {
    outcome *of;
    uint32_t n, room;
};

/* ---- the name of a lane's claim ---- */

void hdi_claim_note(hd_lane *lane, const char *label, const void *site)
{
    uint64_t words[HDI_CLAIM_LABEL_WORDS] = {0};
    if (label) {
        hdi_utf8_copy((char *)words, sizeof words, label);
    }
    for (size_t i = 0; i < HDI_CLAIM_LABEL_WORDS; i++) {
        atomic_store_explicit(&lane->claim_label[i], words[i], memory_order_relaxed);
        if (words[i] == 0) {
            break;
        }
    }
    atomic_store_explicit(&lane->claim_site, site, memory_order_relaxed);
}

static void lane_claim_label(const hd_lane *lane, char out[HD_LABEL_BYTES])
{
    uint64_t words[HDI_CLAIM_LABEL_WORDS] = {0};
    for (size_t i = 0; i < HDI_CLAIM_LABEL_WORDS; i++) {
        words[i] = atomic_load_explicit(&lane->claim_label[i], memory_order_relaxed);
        if (words[i] == 0) {
            break;
        }
    }
    memcpy(out, words, HD_LABEL_BYTES);
    out[HD_LABEL_BYTES - 1] = 0;
}

static void lane_claim_write_text(const char *label, bool on_stream, const void *site, char out[HDI_CLAIM_TEXT])
{
    char where[HDI_SITE_BYTES];
    hdi_site_text(site, where);
    snprintf(out, HDI_CLAIM_TEXT, "%s%s%s%s of %s", label[0] ? "claim '" : "a claim", label, label[0] ? "'" : "",
             on_stream ? " on a stream" : "", where);
}

void hdi_claim_text(hd_runtime *rt, uint32_t global, uint64_t position, char out[HDI_CLAIM_TEXT])
{
    const hdi_device *device = hdi_lane_owner(rt, global);
    uint32_t number = global % HDI_LANES_MAX;
    bool made = number < atomic_load_explicit(&device->lanes_made, memory_order_acquire);
    const hd_lane *lane = made ? hdi_lane_at(device, number) : NULL;
    snprintf(out, HDI_CLAIM_TEXT, "a claim");
    /* A claim's command is the last one in its lane. */
    if (lane && position + 1 >= hdi_lane_submitted(device, number)) {
        char label[HD_LABEL_BYTES];
        lane_claim_label(lane, label);
        lane_claim_write_text(label, atomic_load_explicit(&lane->claim_on_stream, memory_order_relaxed),
                              atomic_load_explicit(&lane->claim_site, memory_order_relaxed), out);
    }
}

/* ---- ends ---- */

/* Publishes the commands up to `end`, unless they are published already. */
static void lane_claim_publish(hd_lane *lane, uint64_t end)
{
    if (atomic_load_explicit(&lane->shared->head, memory_order_relaxed) != end) {
        hdi_engine_publish(lane->device->channel.engine, &lane->shared->head, end);
    }
}

static void lane_claim_look(hd_lane *lane)
{
    hdi_device *device = lane->device;
    hdi_engine_notify(device->channel.engine, lane->number);
    if (device->runtime->is_inline) {
        hdi_engine_run_inline(device);
    } else if (hdi_device_lost(device)) {
        hdi_device_drain(device);
    }
}

void hdi_claim_notify(hd_lane *lane, uint64_t end)
{
    lane_claim_publish(lane, end);
    lane_claim_look(lane);
}

bool hdi_claims_are_open(const hd_runtime *rt)
{
    bool any = false;
    for (int d = 0; d < rt->n_devices && !any; d++) {
        uint32_t made = atomic_load_explicit(&rt->devices[d]->lanes_made, memory_order_acquire);
        for (uint32_t i = 0; i < made && !any; i++) {
            any = hdi_claim_has_open(hdi_lane_at(rt->devices[d], i));
        }
    }
    return any;
}

bool hdi_point_is_left_to_program(hd_runtime *rt, hdi_point point)
{
    const hdi_device *device = hdi_lane_owner(rt, point.lane);
    uint32_t number = point.lane % HDI_LANES_MAX;
    if (number >= atomic_load_explicit(&device->lanes_made, memory_order_acquire)) {
        return false;
    }
    const hd_lane *lane = hdi_lane_at(device, number);
    return point.position > atomic_load_explicit(&lane->claim_ended, memory_order_relaxed) &&
           hdi_claim_is_left_to_program(lane);
}

/* True if a lane or a thread may wait for the claim that ends at a position. A waiter stores its
 * wish before it notifies or runs the engine. */
static bool lane_claim_is_wanted(const hdi_lane_shared *lane, uint64_t end)
{
    uint64_t first = end - HDI_CLAIM_SLOTS + 1;
    return atomic_load_explicit(&lane->wanted_host, memory_order_seq_cst) >= first ||
           atomic_load_explicit(&lane->wanted_event, memory_order_seq_cst) >= first ||
           atomic_load_explicit(&lane->wanted_now, memory_order_seq_cst) >= first;
}

/* True if no engine saw the claim: it was not published, and all work in front of it is done. After
 * a loss, an engine may be draining the lane at the same time. */
static bool lane_claim_is_unseen(const hd_lane *lane, uint64_t end)
{
    uint64_t head = atomic_load_explicit(&lane->shared->head, memory_order_relaxed);
    return head != end && atomic_load_explicit(&lane->shared->done, memory_order_acquire) == head &&
           !hdi_device_lost(lane->device);
}

/* For a trace: no engine saw the end. */
static void lane_claim_record_end(hd_lane *lane, uint64_t end)
{
    hdi_record record = {.done = {.time = hdi_record_now(&lane->runtime->recorder),
                                  .lane = lane->global,
                                  .before = end - 1,
                                  .position = end}};
    record.type = HDI_RECORD_DONE;
    record.device = (uint8_t)lane->device->index;
    hdi_record_put(&lane->runtime->recorder, &record);
}

/* Ends a claim that no engine saw. When a later command comes, the engine catches up with the lane
 * in its next visit (hdi_stream_visit). So all cache lines of the claim stay with the program.
 * Stores `issued` before `done`, and `head` last: after that, another claim may get the lane. */
static void lane_claim_end_unseen(hd_lane *lane, uint64_t end)
{
    hdi_lane_shared *shared = lane->shared;
    hdi_device *device = lane->device;
    uint64_t before = atomic_load_explicit(&shared->head, memory_order_relaxed);
    if (hdi_records(&device->runtime->recorder)) {
        lane_claim_record_end(lane, end);
    }
    atomic_store_explicit(&shared->issued, end, memory_order_relaxed);
    /* Sequentially consistent with threads and lanes that store their wish and then load `done`.
     * Releases the program's writes. */
    hdi_raise(&shared->done, end);
    atomic_store_explicit(&shared->head, end, memory_order_release);
    atomic_store_explicit(&lane->claim_over, end, memory_order_release);
    hdi_lane_wake(shared, before, end);
    hdi_lane_ring_watchers(device->runtime, shared);
    hdi_claim_ring(device->channel.engine);
    /* The thread that drains a lost device may have stopped at the claim. */
    if (lane_claim_is_wanted(shared, end) || hdi_device_lost(device)) {
        lane_claim_look(lane);
    }
}

void hdi_claim_end_late(hd_lane *lane, uint64_t end, bool recorded)
{
    atomic_store_explicit(&lane->claim_in_stream, recorded ? end : 0, memory_order_relaxed);
    atomic_store_explicit(&lane->claim_late_end, 0, memory_order_relaxed);
    atomic_store_explicit(&lane->claim_ended, end, memory_order_release);
}

bool hdi_claim_end_unseen(hd_lane *lane, uint64_t end)
{
    bool unseen = lane_claim_is_unseen(lane, end);
    if (unseen) {
        atomic_store_explicit(&lane->claim_ended, end, memory_order_release);
        lane_claim_end_unseen(lane, end);
    }
    return unseen;
}

void hdi_claim_end_lane(hd_lane *lane, uint64_t end, const hdi_claim_ending *how)
{
    bool at_once = how->ready && !how->event && !how->outcome && !how->late;
    if (at_once && hdi_claim_end_unseen(lane, end)) {
        return;
    }
    if (how->event) {
        atomic_store_explicit(&lane->claim_event, how->event, memory_order_relaxed);
        atomic_store_explicit(&lane->claim_in_stream, how->late ? 0 : end, memory_order_relaxed);
    }
    if (how->outcome) {
        atomic_store_explicit(&lane->shared->failed_as, how->outcome, memory_order_relaxed);
        atomic_store_explicit(&lane->shared->failed_at, end, memory_order_relaxed);
    }
    if (how->late) {
        atomic_store_explicit(&lane->claim_late, how->late, memory_order_relaxed);
        atomic_store_explicit(&lane->claim_late_end, end, memory_order_release);
    } else {
        atomic_store_explicit(&lane->claim_late_end, 0, memory_order_relaxed);
        atomic_store_explicit(&lane->claim_ended, end, memory_order_release);
    }
    lane_claim_publish(lane, end);
    /* Publishes the event and the outcome. */
    hdi_engine_publish(lane->device->channel.engine, &lane->shared->ended, end);
    if (at_once) { /* last, since another claim may get the lane after this store */
        atomic_store_explicit(&lane->claim_over, end, memory_order_release);
    }
    if (at_once && lane->device->runtime->is_inline && !lane_claim_is_wanted(lane->shared, end)) {
        /* In the placement inline, the next call that submits or waits runs the engine. */
        hdi_engine_notify(lane->device->channel.engine, lane->number);
    } else {
        lane_claim_look(lane);
    }
}

static bool outcome_is_same(const outcome *a, const outcome *b)
{
    return a->site == b->site && a->status == b->status && a->of_call == b->of_call && a->on_stream == b->on_stream &&
           strcmp(a->label, b->label) == 0;
}

/* Returns the index; UINT32_MAX: no memory. The table's lock is held. */
static uint32_t outcome_find_or_add(struct hdi_outcomes *all, const outcome *wanted)
{
    for (uint32_t i = 0; i < all->n; i++) {
        if (outcome_is_same(&all->of[i], wanted)) {
            return i;
        }
    }
    if (all->n == OUTCOMES_MOST) {
        return all->n - 1;
    }
    if (all->n == all->room) {
        uint32_t room = all->room ? 2 * all->room : 16;
        outcome *more = realloc(all->of, room * sizeof *more);
        if (!more) {
            return UINT32_MAX;
        }
        all->of = more;
        all->room = room;
    }
    all->of[all->n] = *wanted;
    return all->n++;
}

/* The number of the outcome. */
static uint32_t outcome_number(hd_runtime *rt, const outcome *wanted)
{
    hdi_lock_take(&rt->outcomes_lock);
    rt->outcomes = rt->outcomes ? rt->outcomes : calloc(1, sizeof *rt->outcomes);
    uint32_t index = rt->outcomes ? outcome_find_or_add(rt->outcomes, wanted) : UINT32_MAX;
    hdi_lock_release(&rt->outcomes_lock);
    return index == UINT32_MAX ? UINT32_MAX : index + 1;
}

uint32_t hdi_outcome_of_claim(const hd_lane *lane, hd_status status)
{
    outcome wanted = {.site = atomic_load_explicit(&lane->claim_site, memory_order_relaxed), .status = status};
    lane_claim_label(lane, wanted.label);
    wanted.on_stream = atomic_load_explicit(&lane->claim_on_stream, memory_order_relaxed);
    lane_claim_write_text(wanted.label, wanted.on_stream, wanted.site, wanted.text);
    return outcome_number(lane->runtime, &wanted);
}

uint32_t hdi_outcome_of_call(hd_runtime *rt, hdi_lane_function *function, hd_status status)
{
    outcome wanted = {.site = (const void *)(uintptr_t)function, .status = status, .of_call = true};
    char where[HDI_SITE_BYTES];
    hdi_site_text(wanted.site, where);
    snprintf(wanted.text, sizeof wanted.text, "the call of %s", where);
    return outcome_number(rt, &wanted);
}

void hdi_outcome_text(hd_runtime *rt, uint32_t number, char what[HDI_CLAIM_TEXT], char why[HDI_OUTCOME_TEXT])
{
    outcome found = {.status = HD_ERROR_FAILED, .text = "a claim or a call"};
    hdi_lock_take(&rt->outcomes_lock);
    if (rt->outcomes && number - 1 < rt->outcomes->n) {
        found = rt->outcomes->of[number - 1];
    }
    hdi_lock_release(&rt->outcomes_lock);
    memcpy(what, found.text, HDI_CLAIM_TEXT);
    const char *how = found.of_call ? "it returned" : "it was ended with";
    if (hdi_status_is_known(found.status)) {
        snprintf(why, HDI_OUTCOME_TEXT, "%s %s", how, hd_status_name(found.status));
    } else { /* from a function of the program */
        snprintf(why, HDI_OUTCOME_TEXT, "%s %d, which is no status", how, (int)found.status);
    }
}

void hdi_outcomes_release(hd_runtime *rt)
{
    if (rt->outcomes) {
        free(rt->outcomes->of);
        free(rt->outcomes);
        rt->outcomes = NULL;
    }
}
