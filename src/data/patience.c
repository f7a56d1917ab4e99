/* patience.c - see patience.h. */
#include "data/patience.h"

#include <stdio.h>
#include "base/amount.h"
#include "base/clock.h"
#include "base/presence.h"
#include "base/wait.h"

#define SLEEP_LEAST_NS 50000
#define SLEEP_MOST_NS 1000000
#define SLEEP_SHARE 64        /* of the time without anything that moves */
#define ASK_AGAIN_NS 10000000 /* a look at all threads takes a lock */

hdi_patience hdi_patience_begin(hd_runtime *rt)
{
    int64_t now = hdi_clock_ns(), allowed = rt->options.memory_patience * 1000000;
    return (hdi_patience){.runtime = rt, .allowed = allowed, .begin = now, .moved = now, .asked = now - ASK_AGAIN_NS};
}

void hdi_patience_moved(hdi_patience *p)
{
    p->moved = hdi_clock_ns();
}

bool hdi_patience_too_long(const hdi_patience *p)
{
    return hdi_is_closing(p->runtime) || hdi_clock_ns() - p->begin >= HDI_PATIENCE_TIMES * p->allowed;
}

bool hdi_patience_over(hdi_patience *p, bool quiet)
{
    int64_t now = hdi_clock_ns();
    if (hdi_is_closing(p->runtime)) {
        p->end = HDI_PATIENCE_CLOSED;
    } else if (now - p->moved >= p->allowed) {
        p->end = HDI_PATIENCE_STILL;
    } else if (hdi_patience_too_long(p)) {
        p->end = HDI_PATIENCE_LONG;
    } else if (quiet && now - p->asked >= ASK_AGAIN_NS) {
        p->asked = now;
        p->end = hdi_presence_has_others() ? HDI_PATIENCE_NONE : HDI_PATIENCE_ALONE;
    }
    return p->end != HDI_PATIENCE_NONE;
}

void hdi_patience_sleep(const hdi_patience *p)
{
    int64_t sleep_ns = (hdi_clock_ns() - p->moved) / SLEEP_SHARE;
    hdi_sleep_for(sleep_ns < SLEEP_LEAST_NS ? SLEEP_LEAST_NS : sleep_ns > SLEEP_MOST_NS ? SLEEP_MOST_NS : sleep_ns);
}

const char *hdi_patience_text(const hdi_patience *p, char out[HDI_PATIENCE_TEXT])
{
    char amount[HDI_AMOUNT_BYTES];
    uint64_t allowed = (uint64_t)p->allowed;
    out[0] = 0;
    switch (p->end) {
    case HDI_PATIENCE_NONE:
    case HDI_PATIENCE_CLOSED: /* the call says so itself */
        break;
    case HDI_PATIENCE_STILL:
        if (allowed == 0) {
            snprintf(out, HDI_PATIENCE_TEXT, "other threads were not waited for (option memory_patience is 0)");
        } else {
            snprintf(out, HDI_PATIENCE_TEXT, "nothing was freed or finished for %s (option memory_patience)",
                     hdi_duration_text(allowed, amount));
        }
        break;
    case HDI_PATIENCE_LONG:
        snprintf(out, HDI_PATIENCE_TEXT,
                 "others freed or finished something, but made no room in %s (%d times the option "
                 "memory_patience)",
                 hdi_duration_text(HDI_PATIENCE_TIMES * allowed, amount), HDI_PATIENCE_TIMES);
        break;
    case HDI_PATIENCE_ALONE:
        snprintf(out, HDI_PATIENCE_TEXT, "nothing is unfinished, and no other thread uses the library");
        break;
    }
    return out;
}
