/* test_failing_calls.c - the Nth call for memory, a mapping, a descriptor, a thread or a process
 * fails: once, or from then on for good. The test tries every N of a program that uses most of the
 * library.
 *
 * Promise: Whichever system call fails, the program ends in order, reads right, leaves nothing.
 * Tier: stress.
 *
 * Threads: the main one starts a process for each N, which runs the scenario. Any thread there, or
 * in its workers, makes the calls (worker/failing.c). Locks: none.
 * Always: each run ends in order.
 *   - Calls succeed, or fail with a message.
 *   - Bytes that were read are right.
 *   - Nothing is left open, running or allocated (the address sanitizer checks allocations).
 *   - Everything works once calls succeed again.
 *
 * The test tries every N with HEDDLE_TEST_SWEEP=all, otherwise one in some. HEDDLE_TEST_SWEEP=N
 * tries only that one, and shows where the call was made. An argument chooses the case, such as
 * memory_process.
 */
#include "support/check.h"

#include "base/wait.h"
#include "scenario.h"
#include "support/sanitizers.h"
#include "worker/failing.h"

/* ---- one run ---- */

static bool shows; /* prints where the failing call was made */

typedef struct sweep {
    failing_kind k;
    bool good;      /* for good */
    bool in_worker; /* not in the application */
    const char *settings;
    int one_in;       /* one N in this many is tried, unless all are tried */
    int least;        /* the least number of calls */
    bool tests_peers; /* also in a process that tests pairs of devices */
} sweep;

/* Runs in a process of its own. */
static void run_scenario(const void *context)
{
    const sweep *w = context;
    bool clean = failing->first == 0;
    scenario s = {.tests_peers = w->tests_peers};
    scenario_things before = scenario_count();
    atomic_store(&failing->kind, w->k);
    scenario_run(&s, w->settings);
    atomic_store(&failing->kind, FAILING_NONE);
    if (clean && s.failures > 0) {
        scenario_wrong(&s, "nothing fails, but: %s", hd_message());
    }
    if (s.lost && w->k == FAILING_MEMORY && strstr(w->settings, "placement=thread") != NULL) {
        scenario_wrong(&s, "allocations failed, and a device was lost");
    }
    if (scenario_open(&s, w->settings)) { /* calls succeed again */
        scenario_check_devices(&s);
        scenario_close(&s);
    } else {
        scenario_wrong(&s, "hd_open afterwards: %s", hd_message());
    }
    scenario_check_things(&s, before);
    exit(s.wrong == 0 ? 0 : 1);
}

/* Runs with failure number n; 0: none fails. Returns true if the run was right. */
static bool run(int n, const sweep *w)
{
    *failing = (failing_calls){.first = n, .for_good = w->good, .in_worker = w->in_worker, .shows = shows};
    return scenario_apart(run_scenario, w);
}

/* ---- all of them ---- */

typedef struct tally {
    int runs, wrong, longest_n;
    int64_t longest_ns;
} tally;

static void try_one(int n, const sweep *w, tally *sums)
{
    int64_t before = hdi_clock_ns();
    if (!run(n, w)) {
        fprintf(stderr, "  WRONG: call %d (%s) fails %s: %s\n", n, failing->name, w->good ? "for good" : "once",
                w->settings);
        sums->wrong++;
    }
    int64_t took = hdi_clock_ns() - before;
    if (took > sums->longest_ns) {
        sums->longest_ns = took;
        sums->longest_n = n;
    }
    sums->runs++;
}

static void go_through(void **state)
{
    const sweep *w = *state;
    scenario_choice choice = scenario_choose(w->one_in);
    tally sums = {0};
    shows = choice.single;
    assert_true(run(0, w));
    int n = choice.first;
    do {
        try_one(n, w, &sums);
        n += choice.step;
    } while (!choice.single && failing->name[0] != 0 && sums.wrong <= 20);
    printf("    %d runs of %d calls; the longest took %.1f s, with N %d\n", sums.runs, atomic_load(&failing->calls),
           (double)sums.longest_ns / 1e9, sums.longest_n);
    assert_int_equal(sums.wrong, 0);
    assert_true(choice.single || n > w->least);
}

#define SLOW (TEST_ASAN ? 3 : 1)

/* With placement=thread, in the application with workers, and in the workers. */
#define IN(name, kind_, in_worker_, settings_, one_in_, least_, tests_peers_)                                          \
    static sweep name = {kind_, false, in_worker_, settings_, one_in_, least_, tests_peers_};                          \
    static sweep name##_good = {kind_, true, in_worker_, settings_, one_in_, least_, tests_peers_};
#define THREADS "placement=thread peers=off"
#define WORKERS "placement=process peers=off worker=" HD_TEST_FAILING_WORKER
IN(memory_thread, FAILING_MEMORY, false, THREADS, 7 * SLOW, 200, false)
IN(memory_process, FAILING_MEMORY, false, WORKERS, 7 * SLOW, 150, false)
IN(memory_worker, FAILING_MEMORY, true, WORKERS, 11 * SLOW, 50, false)
IN(mapping_thread, FAILING_MAPPING, false, THREADS, 3 * SLOW, 30, false)
IN(mapping_process, FAILING_MAPPING, false, WORKERS, 3, 15, false)
IN(mapping_worker, FAILING_MAPPING, true, WORKERS, 5, 10, false)
IN(descriptor_thread, FAILING_DESCRIPTOR, false, THREADS, 2 * SLOW, 20, true)
IN(descriptor_process, FAILING_DESCRIPTOR, false, WORKERS, 2 * SLOW, 20, false)
IN(descriptor_worker, FAILING_DESCRIPTOR, true, WORKERS, 3, 5, false)
IN(thread_thread, FAILING_THREAD, false, THREADS, SLOW, 6, true)
IN(thread_process, FAILING_THREAD, false, WORKERS, 1, 2, false)
IN(thread_worker, FAILING_THREAD, true, WORKERS, 2, 4, false)
IN(process_thread, FAILING_PROCESS, false, THREADS, 1, 1, true)
IN(process_process, FAILING_PROCESS, false, WORKERS, 1, 3, false)

#define SWEEP(which)                                                                                                   \
    {                                                                                                                  \
#which, go_through, NULL, NULL, &which                                                                         \
    }
#define BOTH(name) SWEEP(name), SWEEP(name##_good)

int main(int argc, char **argv)
{
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    if (TEST_TSAN) {
        return test_skip("the thread sanitizer does not follow a process into its children");
    }
    const struct CMUnitTest tests[] = {
        BOTH(memory_thread),     BOTH(memory_process),  BOTH(memory_worker),     BOTH(mapping_thread),
        BOTH(mapping_process),   BOTH(mapping_worker),  BOTH(descriptor_thread), BOTH(descriptor_process),
        BOTH(descriptor_worker), BOTH(thread_thread),   BOTH(thread_process),    BOTH(thread_worker),
        BOTH(process_thread),    BOTH(process_process),
    };
    return failing_begin() ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
