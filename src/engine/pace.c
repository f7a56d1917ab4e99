/* pace.c - how long the kernels of a lane take. What it is, threads, locks: see pace.h. */
#include "engine/pace.h"

/* From the return of a call until a completion write behind the shortest kernel is seen; measured with 580.159 on H200: 4.3 us, of which 1.2 are the kernel's. Not
 * taken off where few launches would have to share it: where it is less they would seem faster than they are. */
#define SEEN_NS 3000

/* A signal costs as much as filling half a chain does; behind a single launch it says little. */
#define ASKED_LEAST 4
#define ASKED_EVERY_NS 200000

void hdi_pace_give(hdi_pace *pace, uint32_t launches, int64_t before, int64_t behind)
{
    hdi_pace_signal *next = &pace->next;
    if (launches == 0) {
        next->others = true;
        return;
    }
    next->since = next->since ? next->since : before;
    next->batches[pace->next_batch++ % HDI_PACE_BATCHES] = (hdi_pace_batch){.before = next->launches, .given = behind};
    next->launches += launches;
}

bool hdi_pace_wants_signal(hdi_pace *pace, uint32_t launches, uint32_t most, int64_t now)
{
    if (launches < ASKED_LEAST || 2 * pace->kernel_ns * most <= HDI_PACE_SPAN_NS ||
        now - pace->asked_at < ASKED_EVERY_NS) {
        return false;
    }
    pace->asked_at = now;
    return true;
}

void hdi_pace_put_signal(hdi_pace *pace, hdi_pace_signal *signal)
{
    *signal = pace->next;
    pace->next.since = 0;
    pace->next.others = false;
}

/* What a launch takes at most, of a stretch of so many. */
static int64_t each_of(int64_t from, int64_t to, uint64_t launches)
{
    return to > from ? (to - from) / (int64_t)launches + 1 : 1;
}

/* The least that the stretches which end at the signal say. */
static int64_t least_of(const hdi_pace *pace, int64_t since, const hdi_pace_signal *signal, int64_t seen)
{
    int64_t from = since > pace->passed_at ? since : pace->passed_at;
    int64_t least = each_of(from, seen, signal->launches - pace->passed);
    for (int i = 0; i < HDI_PACE_BATCHES; i++) {
        const hdi_pace_batch *b = &signal->batches[i];
        if (b->given && b->before >= pace->passed) {
            uint64_t launches = signal->launches - b->before;
            int64_t each = each_of(b->given + (launches < ASKED_LEAST ? 0 : SEEN_NS), seen, launches);
            least = each < least ? each : least;
        }
    }
    return least;
}

void hdi_pace_pass(hdi_pace *pace, const hdi_pace_signal *first, const hdi_pace_signal *last, bool others, int64_t now)
{
    if (!others && last->launches > pace->passed) {
        int64_t each = least_of(pace, first->since, last, now);
        int64_t old = pace->kernel_ns ? pace->kernel_ns : each;
        /* All say too much rather than too little, so less counts more; yet what takes much longer counts soon. */
        pace->kernel_ns = each < old ? (old + 3 * each) / 4 : each > 2 * old ? (old + each) / 2 : (3 * old + each) / 4;
    }
    pace->passed = last->launches;
    pace->passed_at = now;
}
