/* freed.c - see freed.h.
 *
 * Threads, locks, blocking, and guarantees: see freed.h.
 */
#include "buffer/freed.h"
#include <stdio.h>
#include <string.h>
#include "base/text.h"
#include "buffer/region.h"
#include "engine/claims.h"
#include "memory/arena.h"
#include "memory/host_pool.h"
#include "memory/part.h"

typedef struct search {
    hd_runtime *runtime;
    hdi_freed *found;
} search;

static bool freed_is_of_claim(void *context, hdi_point point)
{
    const search *s = context;
    if (!hdi_point_is_left_to_program(s->runtime, point)) {
        return false;
    }
    hdi_freed *found = s->found;
    found->several |= found->claim.position != 0 && found->claim.lane != point.lane;
    found->claim = found->claim.position != 0 ? found->claim : point;
    return true;
}

static bool freed_is_in_use(void *context, hdi_point point)
{
    (void)context;
    (void)point;
    return true;
}

void hdi_freed_get(hd_runtime *rt, int device, hdi_freed *out)
{
    *out = (hdi_freed){.of_claims = 0};
    search s = {.runtime = rt, .found = out};
    uint64_t all;
    if (device == HD_DEVICE_HOST) {
        hdi_host_pool *pool = hdi_memory_of(rt)->host_pool;
        out->of_claims = hdi_host_pool_waiting_of(pool, freed_is_of_claim, &s);
        all = hdi_host_pool_waiting_of(pool, freed_is_in_use, NULL);
    } else {
        hdi_arena *arena = rt->devices[device]->arena;
        hdi_region_leaving of_claims, leaving;
        hdi_regions_get_leaving(rt, device, freed_is_of_claim, &s, &of_claims);
        hdi_regions_get_leaving(rt, device, freed_is_in_use, NULL, &leaving);
        out->pieces = of_claims.count;
        memcpy(out->label, of_claims.label, sizeof out->label);
        out->of_claims = of_claims.bytes + hdi_arena_waiting_of(arena, freed_is_of_claim, &s);
        all = leaving.bytes + hdi_arena_waiting_of(arena, freed_is_in_use, NULL);
    }
    /* work and claims may end between the two counts */
    out->of_work = all > out->of_claims ? all - out->of_claims : 0;
}

const char *hdi_freed_text(hd_runtime *rt, int device, char out[HDI_FREED_TEXT])
{
    hdi_freed f;
    char bytes[HDI_AMOUNT_BYTES], claim[HDI_CLAIM_TEXT];
    hdi_freed_get(rt, device, &f);
    out[0] = 0;
    int length = 0;
    if (f.of_claims != 0) {
        hdi_outcome_claim_text(rt, f.claim.lane, f.claim.position, claim);
        const char *quote = f.label[0] ? "'" : "";
        length = snprintf(out, HDI_FREED_TEXT, "; %s%s%s%s%s were freed, but %s%s them until %s",
                          hdi_bytes_text(f.of_claims, bytes), f.label[0] ? " " : "", quote, f.label, quote, claim,
                          f.several ? " and others use" : " uses", f.several ? "they end" : "it ends");
    }
    if (f.of_work != 0) {
        snprintf(out + length, HDI_FREED_TEXT - (size_t)length, "; %s were freed, but unfinished work uses them",
                 hdi_bytes_text(f.of_work, bytes));
    }
    return out;
}
