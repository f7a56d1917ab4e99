/* memory_wait.c - see memory_wait.h. */
#include "buffer/memory_wait.h"

#include <stdio.h>
#include "base/presence.h"
#include "base/text.h"
#include "base/wait.h"

#define SLEEP_LEAST_NS 50000
#define SLEEP_MOST_NS 1000000
#define SLEEP_SHARE 64        /* of the time without anything that moves */
#define ASK_AGAIN_NS 10000000 /* a look at all threads takes a lock */

hdi_memory_wait hdi_memory_wait_begin(hd_runtime *rt)
{
    int64_t now = hdi_clock_ns(), allowed = rt->options.memory_timeout * 1000000;
    return (hdi_memory_wait){
        .runtime = rt, .allowed = allowed, .begin = now, .moved = now, .asked = now - ASK_AGAIN_NS};
}

void hdi_memory_wait_moved(hdi_memory_wait *p)
{
    p->moved = hdi_clock_ns();
}

bool hdi_memory_wait_too_long(const hdi_memory_wait *p)
{
    return hdi_is_closing(p->runtime) || hdi_clock_ns() - p->begin >= HDI_MEMORY_WAIT_TIMES * p->allowed;
}

bool hdi_memory_wait_over(hdi_memory_wait *p, bool quiet)
{
    int64_t now = hdi_clock_ns();
    if (hdi_is_closing(p->runtime)) {
        p->end = HDI_MEMORY_WAIT_CLOSED;
    } else if (now - p->moved >= p->allowed) {
        p->end = HDI_MEMORY_WAIT_STILL;
    } else if (hdi_memory_wait_too_long(p)) {
        p->end = HDI_MEMORY_WAIT_LONG;
    } else if (quiet && now - p->asked >= ASK_AGAIN_NS) {
        p->asked = now;
        p->end = hdi_presence_has_others() ? HDI_MEMORY_WAIT_NONE : HDI_MEMORY_WAIT_ALONE;
    }
    return p->end != HDI_MEMORY_WAIT_NONE;
}

void hdi_memory_wait_sleep(const hdi_memory_wait *p)
{
    int64_t sleep_ns = (hdi_clock_ns() - p->moved) / SLEEP_SHARE;
    hdi_sleep_for(sleep_ns < SLEEP_LEAST_NS ? SLEEP_LEAST_NS : sleep_ns > SLEEP_MOST_NS ? SLEEP_MOST_NS : sleep_ns);
}

const char *hdi_memory_wait_text(const hdi_memory_wait *p, char out[HDI_MEMORY_WAIT_TEXT])
{
    char amount[HDI_AMOUNT_BYTES];
    uint64_t allowed = (uint64_t)p->allowed;
    out[0] = 0;
    switch (p->end) {
    case HDI_MEMORY_WAIT_NONE:
    case HDI_MEMORY_WAIT_CLOSED: /* the call's own text reports that */
        break;
    case HDI_MEMORY_WAIT_STILL:
        if (allowed == 0) {
            snprintf(out, HDI_MEMORY_WAIT_TEXT, "other threads were not waited for (option memory_timeout is 0)");
        } else {
            snprintf(out, HDI_MEMORY_WAIT_TEXT, "nothing was freed or finished for %s (option memory_timeout)",
                     hdi_duration_text(allowed, amount));
        }
        break;
    case HDI_MEMORY_WAIT_LONG:
        snprintf(out, HDI_MEMORY_WAIT_TEXT,
                 "others freed or finished something, but made no room in %s (%d times the option "
                 "memory_timeout)",
                 hdi_duration_text(HDI_MEMORY_WAIT_TIMES * allowed, amount), HDI_MEMORY_WAIT_TIMES);
        break;
    case HDI_MEMORY_WAIT_ALONE:
        snprintf(out, HDI_MEMORY_WAIT_TEXT, "nothing is unfinished, and no other thread uses the library");
        break;
    }
    return out;
}
