/* time.c - how fast copies to the owner's memory are, directly and through pinned memory.
 *
 * Both ways take turns, and the best of each counts, so that what else the machine does disturbs neither more than the other.
 */
#include "base/wait.h"
#include "engine/runtime.h"
#include "programs/probe/probe.h"

#define PROBE_BYTES ((size_t)1 << 20) /* the first copy, which shows how much is worth measuring */
#define TURN_NS 8000000.0             /* a turn is to take about so long */
#define ROUNDS 4
#define TURN_COPIES_MOST 256

/* `n` copies one behind the other. Nanoseconds in all; below 0: one failed. */
static double copy_some(hdi_subject *s, size_t bytes, int n)
{
    hd_ticket ticket = {0};
    int64_t start = hdi_clock_ns();
    hd_status status = HD_OK;
    for (int i = 0; i < n && !status; i++) {
        status = hd_copy(s->far, 0, s->near, 0, bytes, &ticket);
    }
    status = status ? status : hd_wait(ticket, HD_FOREVER);
    if (status) {
        hdi_record_failed(s->runtime);
        return -1;
    }
    return (double)(hdi_clock_ns() - start);
}

/* hd_copy goes directly, or through pinned memory, from here on. What is granted stays so. */
static void go(hdi_subject *s, bool directly)
{
    uint8_t answer = directly ? HDI_PEERS_YES : HDI_PEERS_NO;
    atomic_store(&s->runtime->devices[s->device]->peer_access[s->owner], answer);
    atomic_store(&s->runtime->devices[s->owner]->peer_access[s->device], HDI_PEERS_NO);
}

typedef struct way {
    bool directly;
    size_t bytes; /* of a copy */
    int copies;   /* of a turn */
    double best;  /* bytes per second */
} way;

/* How much a turn copies, from one small copy, which also warms everything up. */
static bool size_up(hdi_subject *s, way *w)
{
    size_t most = s->room + HDI_MARGIN;
    size_t first = PROBE_BYTES < most ? PROBE_BYTES : most;
    go(s, w->directly);
    if (copy_some(s, first, 1) < 0) {
        return false;
    }
    double ns = copy_some(s, first, 1);
    if (ns < 0) {
        return false;
    }
    double wanted = (double)first * (TURN_NS / (ns > 1 ? ns : 1));
    w->bytes = wanted < (double)first ? first : wanted < (double)most ? (size_t)wanted / 4096 * 4096 : most;
    double copies = wanted / (double)w->bytes;
    w->copies = copies < 1 ? 1 : copies < TURN_COPIES_MOST ? (int)copies : TURN_COPIES_MOST;
    return true;
}

static bool take_turn(hdi_subject *s, way *w)
{
    go(s, w->directly);
    double ns = copy_some(s, w->bytes, w->copies);
    if (ns < 0) {
        return false;
    }
    double rate = (double)w->bytes * w->copies * 1e9 / (ns > 1 ? ns : 1);
    w->best = rate > w->best ? rate : w->best;
    return true;
}

hdi_outcome hdi_time(hdi_subject *s)
{
    way ways[] = {{.directly = true}, {.directly = false}};
    static const hdi_step steps[] = {HDI_STEP_TIME_DIRECT, HDI_STEP_TIME_STAGED};
    bool good = true;
    for (int w = 0; w < 2 && good; w++) {
        hdi_record_step(steps[w], 0);
        good = size_up(s, &ways[w]);
    }
    for (int round = 0; round < ROUNDS && good; round++) {
        for (int w = 0; w < 2 && good; w++) {
            hdi_record_step(steps[w], ways[w].bytes);
            good = take_turn(s, &ways[w]);
        }
    }
    go(s, true);
    if (!good) {
        return HDI_OUTCOME_FAILED;
    }
    hdi_record_rates(ways[0].best, ways[1].best);
    return HDI_OUTCOME_GOOD;
}
