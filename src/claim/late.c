/* late.c - ends of claims that must not be refused: their holders run on any thread, and no failure can be returned to them.
 *
 * hd_claim_end is refused while the claim's stream is being captured, since no event of the program's can be recorded there.
 * Such claims are kept in a list, and one host call of the runtime ends them, as soon as each can be.
 *
 * Threads: any; the host call on a caller of the library's (host_call.c).
 * Locks: one for the list, shortly; none while a claim is ended.
 * Blocking: nothing. The host call sleeps between two tries.
 * Always: one host call at a time. Once hd_close has begun it leaves what is left, which is then never ended and is named like any other.
 */
#include <stdlib.h>
#include "base/error.h"
#include "base/wait.h"
#include "claim/claim.h"
#include "engine/engine.h"

#define TRY_SLEEP_NS 1000000

typedef struct late {
    struct late *next;
    hd_claim *handle;
} late;

struct hdi_late_ends {
    hdi_mutex lock;
    late *first;
    bool under_way; /* the host call */
};

/* Whether the handle leads to no open claim any more. */
static bool end_now(hd_claim *handle)
{
    hd_status status = hd_claim_end(handle, HD_OK);
    struct hd_claim *c = hdi_claim_from_handle(handle);
    if (c && status == HD_ERROR_ARGUMENT && hdi_claim_end_behind_all(c) == HD_OK) {
        hd_claim_end(handle, HD_OK);
    }
    return hdi_claim_from_handle(handle) == NULL;
}

static void put(struct hdi_late_ends *ends, late *l)
{
    hdi_mutex_lock(&ends->lock);
    l->next = ends->first;
    ends->first = l;
    hdi_mutex_unlock(&ends->lock);
}

/* All of the list; NULL: the host call is over. */
static late *take(struct hdi_late_ends *ends)
{
    hdi_mutex_lock(&ends->lock);
    late *all = ends->first;
    ends->first = NULL;
    ends->under_way = all != NULL;
    hdi_mutex_unlock(&ends->lock);
    return all;
}

static hd_status end_all(void *const *pointers, void *context)
{
    (void)pointers;
    hd_runtime *rt = context;
    struct hdi_late_ends *ends = hdi_claim_of(rt)->late;
    for (late *l; (l = take(ends)) != NULL;) {
        for (late *next; l; l = next) {
            next = l->next;
            if (hdi_is_closing(rt) || end_now(l->handle)) {
                free(l);
            } else {
                put(ends, l);
            }
        }
        hdi_sleep_for(TRY_SLEEP_NS);
    }
    return HD_OK;
}

/* Has the claim ended later. Without memory it is never ended. */
static void end_later(hd_runtime *rt, hd_claim *handle)
{
    struct hdi_late_ends *ends = hdi_claim_of(rt)->late;
    late *l = malloc(sizeof *l);
    if (!l) {
        return;
    }
    l->handle = handle;
    put(ends, l);
    hdi_mutex_lock(&ends->lock);
    bool begin = !ends->under_way && ends->first;
    ends->under_way = ends->under_way || begin;
    hdi_mutex_unlock(&ends->lock);
    if (begin && hd_host_call(rt, end_all, rt, NULL, 0, NULL) != HD_OK) {
        hdi_mutex_lock(&ends->lock);
        ends->under_way = false; /* the next one tries it for all */
        hdi_mutex_unlock(&ends->lock);
    }
}

void hdi_claim_end_surely(hd_claim *handle)
{
    HDI_INSIDE_STILL(hdi_claim_runtime(handle));
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    if (!end_now(handle)) {
        struct hd_claim *c = hdi_claim_from_handle(handle);
        if (c) {
            end_later(c->runtime, handle);
        }
    }
    hdi_attempt_end(&attempt);
}

/* ---- beginning and end ---- */

static hd_status late_create(hd_runtime *rt)
{
    struct hdi_late_ends *ends = calloc(1, sizeof *ends);
    if (!ends) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    hdi_mutex_init(&ends->lock, HDI_RANK_LATE_ENDS);
    hdi_claim_of(rt)->late = ends;
    return HD_OK;
}

static void late_release(hd_runtime *rt)
{
    struct hdi_late_ends *ends = hdi_claim_of(rt)->late;
    if (!ends) {
        return;
    }
    for (late *l; (l = take(ends)) != NULL;) {
        for (late *next; l; l = next) {
            next = l->next;
            free(l);
        }
    }
    hdi_mutex_destroy(&ends->lock);
    free(ends);
    hdi_claim_of(rt)->late = NULL;
}

const hdi_lifetime hdi_late_ends_lifetime = {.create = late_create, .release = late_release};
