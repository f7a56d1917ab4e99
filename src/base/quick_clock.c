/* quick_clock.c - threads and invariants: see quick_clock.h. */
#include "base/quick_clock.h"
#include <stdio.h>
#include <string.h>
#include "base/cancel.h"
#include "base/descriptor.h"
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define TRIES 5             /* tries for one measurement; the shortest try counts */
#define LEAST_NS 1000000    /* the shortest time for the first rate */
#define AGAIN_NS 1000000000 /* the rate is measured over one to two times this time */
/* A relation is good for this multiple of the time over which its rate was measured. The two ends
 * of the measurement are exact to some 50 ns. */
#define GOOD_FOR 2
#define JUMP 0.001 /* after a larger change of the rate, the counter or the clock jumped */

/* True if the system itself takes its time from the counter. It does so only if all processors
 * count alike. */
static bool quick_system_uses_counter(void)
{
    static const char *const counters[] = {"tsc", "kvm-clock", "hyperv_clocksource_tsc_page"};
    char name[64] = "";
    HDI_UNCANCELLED;
    FILE *file = hdi_descriptor_text("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    if (!file) {
        return false;
    }
    int n = fscanf(file, "%63s", name);
    fclose(file);
    for (size_t i = 0; n == 1 && i < sizeof counters / sizeof *counters; i++) {
        if (strcmp(name, counters[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* True if the counter keeps one rate, whatever the processor does. */
static bool quick_counter_is_invariant(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007u, &a, &b, &c, &d) && (d & (1u << 8));
#else
    return false;
#endif
}

static hdi_quick_moment quick_take_moment(void)
{
    hdi_quick_moment best = {0, 0};
    int64_t least = INT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        int64_t before = hdi_ticks(), ns = hdi_clock_ns(), took = hdi_ticks() - before;
        if (took < least) {
            least = took;
            best = (hdi_quick_moment){before + took / 2, ns};
        }
    }
    return best;
}

void hdi_quick_begin(hdi_quick_clock *clock)
{
    atomic_store_explicit(&clock->turn, 0, memory_order_relaxed);
    clock->usable = quick_counter_is_invariant() && quick_system_uses_counter();
    clock->rate = 0;
    if (clock->usable) {
        clock->from = clock->next = quick_take_moment();
    }
}

/* Makes reads use this relation from here on. */
static void quick_put_relation(hdi_quick_clock *clock, hdi_quick_moment now, double rate, uint64_t good)
{
    uint32_t turn = atomic_load_explicit(&clock->turn, memory_order_relaxed) + 1;
    turn += turn == 0; /* 0 means no relation */
    hdi_quick_relation *r = &clock->relations[turn % HDI_QUICK_RELATIONS];
    atomic_store_explicit(&r->ticks, now.ticks, memory_order_relaxed);
    atomic_store_explicit(&r->ns, now.ns, memory_order_relaxed);
    atomic_store_explicit(&r->rate, (int64_t)(rate * (double)((int64_t)1 << HDI_QUICK_SHIFT)), memory_order_relaxed);
    atomic_store_explicit(&r->good, good, memory_order_relaxed);
    /* pairs with the loads in hdi_quick_ns */
    atomic_store_explicit(&clock->turn, turn, memory_order_release);
}

static void quick_measure_anew(hdi_quick_clock *clock, hdi_quick_moment now)
{
    clock->from = clock->next = now;
    clock->rate = 0;
    quick_put_relation(clock, now, 0, 0);
}

void hdi_quick_relate(hdi_quick_clock *clock)
{
    if (!clock->usable) {
        return;
    }
    hdi_quick_moment now = quick_take_moment();
    if (now.ticks <= clock->from.ticks) {
        quick_measure_anew(clock, now);
        return;
    }
    if (now.ns - clock->from.ns < LEAST_NS) {
        return;
    }
    uint64_t ticks = (uint64_t)(now.ticks - clock->from.ticks);
    double rate = (double)(now.ns - clock->from.ns) / (double)ticks, change = rate - clock->rate;
    if (clock->rate > 0 && (change > JUMP * clock->rate || -change > JUMP * clock->rate)) {
        quick_measure_anew(clock, now);
        return;
    }
    clock->rate = rate;
    quick_put_relation(clock, now, rate, GOOD_FOR * ticks);
    if (now.ns - clock->next.ns > AGAIN_NS) {
        clock->from = clock->next;
        clock->next = now;
    }
}
