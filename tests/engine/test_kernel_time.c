/* test_kernel_time.c - how long kernels take, as measured by an engine that also visits other
 * lanes. The test simulates device and engine.
 *
 * Promise: The estimate of a kernel's time follows the device, whatever else the engine visits.
 *
 * Threads: one. Locks: none. Always: clocks are numbers; nothing is timed.
 */
#include "support/check.h"

#include "engine/stream.h"

enum { LANES_MOST = 16, BURST = 256, ROUNDS = 40, CHAIN_MOST = 16 };

#define SPAN HDI_KERNEL_TIME_SPAN_NS

typedef struct lane {
    hdi_kernel_time timing;
    hdi_kernel_time_signal signal;
    uint32_t left;   /* launches of the burst not yet given to the device */
    uint32_t grown;  /* twice the launches of the previous chain */
    int64_t free_at; /* when the device finishes its work */
    int64_t end;     /* when the signal is passed; 0: no signal */
    int rounds;
} lane;

typedef struct play {
    lane lanes[LANES_MOST];
    uint32_t count, turn;
    int64_t now, kernel_ns, set_ns; /* set_ns: time to fill a node */
    uint64_t launches;
    int64_t longest; /* longest time of a chain on the device, in the second half of the rounds */
} play;

static uint32_t length_of(const lane *l)
{
    int64_t fit = l->timing.kernel_ns ? SPAN / l->timing.kernel_ns : 2;
    uint32_t most = fit < 1 ? 1 : fit > CHAIN_MOST ? CHAIN_MOST : (uint32_t)fit;
    most = most < l->grown ? most : l->grown;
    most = most < l->left ? most : l->left;
    return (uint32_t)1 << (31 - __builtin_clz(most));
}

/* Gives a chain of the lane to the device. */
static void give(play *p, lane *l)
{
    uint32_t n = length_of(l);
    int64_t before = p->now;
    p->now += 1900 + p->set_ns * (int64_t)n;
    hdi_kernel_time_give(&l->timing, n, before, p->now);
    int64_t begin = l->free_at > p->now + 2000 ? l->free_at : p->now + 2000;
    l->free_at = begin + n * p->kernel_ns;
    l->left -= n;
    l->grown = 2 * n;
    p->launches += n;
    if (l->rounds > ROUNDS / 2 && n * p->kernel_ns > p->longest) {
        p->longest = n * p->kernel_ns;
    }
    bool wants = hdi_kernel_time_wants_signal(&l->timing, n, CHAIN_MOST, p->now);
    if (l->left == 0 || (wants && !l->end)) {
        p->now += 1300;
        hdi_kernel_time_put_signal(&l->timing, &l->signal);
        l->end = (l->free_at > p->now ? l->free_at : p->now) + 1000;
    }
}

/* Visits the next lane that has launches to issue. */
static void visit(play *p)
{
    for (uint32_t i = 0; i < p->count; i++) {
        lane *l = &p->lanes[p->turn++ % p->count];
        if (l->left) {
            give(p, l);
            return;
        }
    }
    p->now += 200;
}

static void look(play *p)
{
    for (uint32_t i = 0; i < p->count; i++) {
        lane *l = &p->lanes[i];
        if (l->end && p->now >= l->end) {
            l->end = 0;
            hdi_kernel_time_pass(&l->timing, &l->signal, &l->signal, l->signal.others, p->now);
            if (l->left == 0) {
                l->left = BURST;
                l->grown = 1;
                l->rounds++;
            }
        }
    }
}

static play run(uint32_t lanes, int64_t kernel_ns, int64_t set_ns)
{
    play p = {.count = lanes, .kernel_ns = kernel_ns, .set_ns = set_ns, .now = 1000000};
    for (uint32_t i = 0; i < lanes; i++) {
        p.lanes[i].left = BURST;
        p.lanes[i].grown = 1;
    }
    while (p.lanes[0].rounds < ROUNDS) {
        visit(&p);
        look(&p);
    }
    return p;
}

/* An engine's visits of other lanes never look like slow kernels, whatever their number. Nor do the
 * last launches of a burst, behind longer chains. */
static void kernels_take_what_they_take(void **state)
{
    (void)state;
    static const uint32_t lanes[] = {1, 2, 4, 8, 16};
    static const int64_t kernels[] = {1200, 3000, 20000, 200000};
    for (size_t i = 0; i < sizeof lanes / sizeof *lanes; i++) {
        for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++) {
            play p = run(lanes[i], kernels[k], 200);
            for (uint32_t j = 0; j < lanes[i]; j++) {
                int64_t found = p.lanes[j].timing.kernel_ns;
                if (found < kernels[k] * 3 / 4 || found > kernels[k] * 3 / 2 + 1500) {
                    fail_msg("%u lanes, kernels of %lld ns: lane %u has %lld", lanes[i], (long long)kernels[k], j,
                             (long long)found);
                }
            }
            assert_true(kernels[k] > 1200 || SPAN / p.lanes[0].timing.kernel_ns >= CHAIN_MOST * 7 / 8);
            assert_true(p.longest <= SPAN * 3 / 2 || p.longest <= kernels[k]);
        }
    }
}

/* If the engine itself is slow and lanes wait long for their turns, chains stay long, or it would
 * be slower still. */
static void a_slow_engine_keeps_chains_long(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= LANES_MOST; n *= 2) {
        play p = run(n, 1500, 400);
        for (uint32_t i = 0; i < n; i++) {
            if (SPAN / p.lanes[i].timing.kernel_ns < CHAIN_MOST * 7 / 8) {
                fail_msg("%u lanes: %lld ns", n, (long long)p.lanes[i].timing.kernel_ns);
            }
        }
    }
}

/* The estimate follows slower kernels within a few bursts, faster ones some time later. */
static void it_follows_the_kernels(void **state)
{
    (void)state;
    play p = run(2, 1200, 200);
    p.kernel_ns = 50000;
    p.lanes[0].rounds = ROUNDS - 6;
    while (p.lanes[0].rounds < ROUNDS) {
        visit(&p);
        look(&p);
    }
    assert_true(p.lanes[0].timing.kernel_ns > 40000);
    p.kernel_ns = 1200;
    p.lanes[0].rounds = 0;
    while (p.lanes[0].rounds < ROUNDS) {
        visit(&p);
        look(&p);
    }
    assert_true(p.lanes[0].timing.kernel_ns < 3000);
}

/* A signal behind other work than launches does not count, and no measurement starts in front of
 * it. */
static void only_launches_count(void **state)
{
    (void)state;
    hdi_kernel_time timing = {.kernel_ns = 0};
    hdi_kernel_time_signal signal;
    hdi_kernel_time_give(&timing, 4, 1000, 2000);
    hdi_kernel_time_give(&timing, 0, 2000, 3000);
    hdi_kernel_time_put_signal(&timing, &signal);
    assert_true(signal.others);
    hdi_kernel_time_pass(&timing, &signal, &signal, signal.others, 900000000);
    assert_int_equal(timing.kernel_ns, 0);
    hdi_kernel_time_give(&timing, 4, 900100000, 900102000);
    hdi_kernel_time_put_signal(&timing, &signal);
    assert_false(signal.others);
    hdi_kernel_time_pass(&timing, &signal, &signal, signal.others, 900202000);
    assert_in_range(timing.kernel_ns, 20000, 26000);
    /* A signal with nothing in front of it. */
    hdi_kernel_time_put_signal(&timing, &signal);
    hdi_kernel_time_pass(&timing, &signal, &signal, signal.others, 990000000);
    assert_in_range(timing.kernel_ns, 20000, 26000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_take_what_they_take),
        cmocka_unit_test(a_slow_engine_keeps_chains_long),
        cmocka_unit_test(it_follows_the_kernels),
        cmocka_unit_test(only_launches_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
