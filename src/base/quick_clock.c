/* quick_clock.c - see quick_clock.h for threads and what always holds. */
#include "base/quick_clock.h"
#include <stdio.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define TRIES 5             /* of which the shortest counts */
#define LEAST_NS 1000000    /* for the first rate */
#define AGAIN_NS 1000000000 /* the rate is that of the last one to two of these */
#define GOOD_FOR 2          /* times as long as the rate was measured in: both moments are within some 50 ns */
#define JUMP 0.001          /* a rate that changes by more is none: the counter jumped, or the clock */

/* Whether the system itself takes its time from the counter: it does so only where all processors count alike. */
static bool system_uses_it(void)
{
    static const char *const counters[] = {"tsc", "kvm-clock", "hyperv_clocksource_tsc_page"};
    char name[64] = "";
    FILE *file = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
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

/* Whether the counter goes on at one rate, whatever the processor does. */
static bool is_invariant(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007u, &a, &b, &c, &d) && (d & (1u << 8));
#else
    return false;
#endif
}

static hdi_quick_moment moment(void)
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
    clock->usable = is_invariant() && system_uses_it();
    clock->rate = 0;
    if (clock->usable) {
        clock->from = clock->next = moment();
    }
}

/* From here on a look takes this one. */
static void put_relation(hdi_quick_clock *clock, hdi_quick_moment now, double rate, uint64_t good)
{
    uint32_t turn = atomic_load_explicit(&clock->turn, memory_order_relaxed) + 1;
    turn += turn == 0; /* which is none */
    hdi_quick_relation *r = &clock->relations[turn % HDI_QUICK_RELATIONS];
    atomic_store_explicit(&r->ticks, now.ticks, memory_order_relaxed);
    atomic_store_explicit(&r->ns, now.ns, memory_order_relaxed);
    atomic_store_explicit(&r->rate, (int64_t)(rate * (double)((int64_t)1 << HDI_QUICK_SHIFT)), memory_order_relaxed);
    atomic_store_explicit(&r->good, good, memory_order_relaxed);
    atomic_store_explicit(&clock->turn, turn, memory_order_release); /* pairs with hdi_quick_ns */
}

static void measure_anew(hdi_quick_clock *clock, hdi_quick_moment now)
{
    clock->from = clock->next = now;
    clock->rate = 0;
    put_relation(clock, now, 0, 0);
}

void hdi_quick_relate(hdi_quick_clock *clock)
{
    if (!clock->usable) {
        return;
    }
    hdi_quick_moment now = moment();
    if (now.ticks <= clock->from.ticks) {
        measure_anew(clock, now);
        return;
    }
    if (now.ns - clock->from.ns < LEAST_NS) {
        return;
    }
    uint64_t ticks = (uint64_t)(now.ticks - clock->from.ticks);
    double rate = (double)(now.ns - clock->from.ns) / (double)ticks, change = rate - clock->rate;
    if (clock->rate > 0 && (change > JUMP * clock->rate || -change > JUMP * clock->rate)) {
        measure_anew(clock, now);
        return;
    }
    clock->rate = rate;
    put_relation(clock, now, rate, GOOD_FOR * ticks);
    if (now.ns - clock->next.ns > AGAIN_NS) {
        clock->from = clock->next;
        clock->next = now;
    }
}
