/* test_worker_dies.c - a worker dies at its Nth driver call or message, for every N of a program
 * that uses most of the library.
 *
 * Promise: A worker's death anywhere is a loss, nothing else; a restart brings the device back.
 * Tier: stress.
 *
 * Threads: the main one starts a process for each N, which runs the scenario; its workers are
 * tests/sweeps/worker/dying.c. Locks: none.
 * Always: it is a loss and nothing else.
 *   - Calls succeed or report that a device was lost.
 *   - Bytes that were read are right.
 *   - hd_device_restart brings the device back with its kept buffers, and nothing is left over.
 *   - If the worker dies during hd_open, hd_open fails, and the next one works.
 *
 * The test tries every N with HEDDLE_TEST_SWEEP=all, otherwise one in some; HEDDLE_TEST_SWEEP=N
 * tries only that one.
 */
#include "support/check.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <unistd.h>
#include "scenario.h"
#include "support/sanitizers.h"
#include "worker/dying.h"

enum { ONE_IN = TEST_ASAN ? 41 : 17, LEAST = 300 };

static dying_points *points;

#define NOBODY INT_MAX /* no worker dies */

/* Runs in a process of its own. */
static void run_scenario(const void *settings)
{
    scenario s = {.only_losses = true};
    scenario_things before = scenario_count();
    if (scenario_open(&s, settings)) {
        scenario_work(&s);
        scenario_restart(&s);
        int left = atomic_exchange(&points->left, NOBODY);
        bool died = left <= 0;
        while (died && s.losses == 0) {
            scenario_restart(&s); /* it has just died */
        }
        if (s.losses != died) {
            scenario_wrong(&s, "hd_loss_next reported %d losses", s.losses);
        }
        if (!died && s.failures > 0) {
            scenario_wrong(&s, "no worker died, but: %s", hd_message());
        }
        scenario_check_devices(&s);
        atomic_store(&points->left, left);
        scenario_close(&s);
    } else if (atomic_load(&points->left) > 0) {
        scenario_wrong(&s, "no worker died, but: %s", hd_message());
    }
    atomic_store(&points->left, NOBODY);
    if (scenario_open(&s, settings)) {
        scenario_check_devices(&s);
        scenario_close(&s);
    } else {
        scenario_wrong(&s, "hd_open afterwards: %s", hd_message());
    }
    scenario_check_things(&s, before);
    exit(s.wrong == 0 ? 0 : 1);
}

/* Returns true if the run was right. */
static bool run(int n, const char *settings)
{
    atomic_store(&points->passed, 0);
    atomic_store(&points->left, n);
    memset(points->name, 0, sizeof points->name);
    bool good = scenario_apart(run_scenario, settings);
    if (!good) {
        fprintf(stderr, "  WRONG: a worker dies at point %d (%s): %s\n", n, points->name, settings);
    }
    return good;
}

static void a_worker_dies_at_any_point(void **state)
{
    scenario_choice choice = scenario_choose(ONE_IN);
    int wrong = 0, runs = 0, n = choice.first;
    do {
        wrong += !run(n, *state);
        n += choice.step;
        runs++;
    } while (!choice.single && points->name[0] != 0 && wrong <= 20);
    printf("    %d runs of %d points\n", runs, atomic_load(&points->passed));
    assert_int_equal(wrong, 0);
    assert_true(choice.single || n > LEAST);
}

int main(void)
{
    if (TEST_TSAN) {
        return test_skip("the thread sanitizer does not follow a process into its children");
    }
    static char path[64], direct[256], staged[256];
    int file = memfd_create("dying", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, sizeof *points) != 0) {
        return 1;
    }
    points = mmap(NULL, sizeof *points, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), file);
    setenv("HEDDLE_TEST_DYING", path, 1);
    snprintf(staged, sizeof staged, "placement=process peers=off worker=%s", HD_TEST_DYING_WORKER);
    snprintf(direct, sizeof direct, "placement=process peers=trust worker=%s", HD_TEST_DYING_WORKER);
    const struct CMUnitTest tests[] = {{"staged", a_worker_dies_at_any_point, NULL, NULL, staged},
                                       {"direct", a_worker_dies_at_any_point, NULL, NULL, direct}};
    return points == MAP_FAILED ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
