/* outcomes.c - names claims in messages, and numbers the failed outcomes of claims and calls. See
 * claims.h.
 *
 * A table keeps one outcome for each label, call site and failed status. The table lives as long as
 * the runtime, since the program may keep tickets that long.
 *
 * Blocking: none.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/lock.h"
#include "base/text.h"
#include "engine/claims.h"

enum { OUTCOMES_MOST = 4096 }; /* all outcomes beyond this number share the last number */

typedef struct outcome {
    char label[HD_LABEL_BYTES], reason[HD_REASON_BYTES];
    const void *site;
    hd_status status;
    bool of_call, on_stream;
    char text[HDI_CLAIM_TEXT]; /* written before the table's lock is taken */
} outcome;

struct hdi_outcomes {
    outcome *of;
    uint32_t n, room;
};

/* ---- the name of a lane's claim ---- */

void hdi_outcome_note_claim(hd_lane *lane, const char *label, const void *site)
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

static void outcome_label(const hd_lane *lane, char out[HD_LABEL_BYTES])
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

static void outcome_write_text(const char *label, bool on_stream, const void *site, char out[HDI_CLAIM_TEXT])
{
    char where[HDI_SITE_BYTES];
    hdi_site_text(site, where);
    snprintf(out, HDI_CLAIM_TEXT, "%s%s%s%s of %s", label[0] ? "claim '" : "a claim", label, label[0] ? "'" : "",
             on_stream ? " on a stream" : "", where);
}

void hdi_outcome_claim_text(hd_runtime *rt, uint32_t global, uint64_t position, char out[HDI_CLAIM_TEXT])
{
    const hdi_device *device = hdi_lane_owner(rt, global);
    uint32_t number = global % HDI_LANES_MAX;
    bool made = number < atomic_load_explicit(&device->lanes_made, memory_order_acquire);
    const hd_lane *lane = made ? hdi_lane_at(device, number) : NULL;
    snprintf(out, HDI_CLAIM_TEXT, "a claim");
    /* A claim's command is the last one in its lane. */
    if (lane && position + 1 >= hdi_lane_submitted(device, number)) {
        char label[HD_LABEL_BYTES];
        outcome_label(lane, label);
        outcome_write_text(label, atomic_load_explicit(&lane->claim_on_stream, memory_order_relaxed),
                           atomic_load_explicit(&lane->claim_site, memory_order_relaxed), out);
    }
}

/* ---- the table ---- */

static bool outcome_is_same(const outcome *a, const outcome *b)
{
    return a->site == b->site && a->status == b->status && a->of_call == b->of_call && a->on_stream == b->on_stream &&
           strcmp(a->label, b->label) == 0 && strcmp(a->reason, b->reason) == 0;
}

/* Returns the index of the outcome, and adds the outcome if it is missing. UINT32_MAX: no memory.
 * The table's lock is held. */
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

uint32_t hdi_outcome_of_claim(const hd_lane *lane, hd_status status, const char *reason)
{
    outcome wanted = {.site = atomic_load_explicit(&lane->claim_site, memory_order_relaxed), .status = status};
    outcome_label(lane, wanted.label);
    hdi_utf8_copy(wanted.reason, sizeof wanted.reason, reason ? reason : "");
    for (char *at = wanted.reason; *at; at++) {
        *at = (unsigned char)*at < ' ' ? ' ' : *at;
    }
    wanted.on_stream = atomic_load_explicit(&lane->claim_on_stream, memory_order_relaxed);
    outcome_write_text(wanted.label, wanted.on_stream, wanted.site, wanted.text);
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
        snprintf(why, HDI_OUTCOME_TEXT, "%s %s%s%s", how, hd_status_name(found.status), found.reason[0] ? ": " : "",
                 found.reason);
    } else { /* the outcome of a function of the program */
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
