/* test_wait_inline.c - waits of a thread that runs the engines itself.
 *
 * Promise: In placement inline a long wait leaves the processor to the work, and ends with it.
 * Placements: inline.
 *
 * Threads: the main one, and those of the host devices.
 * Locks: none.
 * Always: the test measures no time. The kernel ends once the waiting thread slept long enough, or
 * never.
 */
#include "workers.h"

#include <stdatomic.h>
#include "base/wait.h"

enum { first_ns = 20000, sleeps_most = 100000 };

static wk_gate *shut; /* NULL: no wait is checked */
static int64_t longest_ns;
static int sleeps;

void __real_hdi_sleep_for(int64_t ns);
void __wrap_hdi_sleep_for(int64_t ns);
void __wrap_hdi_sleep_for(int64_t ns)
{
    if (conf_on_main() && shut) {
        longest_ns = ns > longest_ns ? ns : longest_ns;
        if (longest_ns >= 4 * first_ns || ++sleeps == sleeps_most) {
            wk_gate_open(shut);
            shut = NULL;
        }
    }
    __real_hdi_sleep_for(ns);
}

static void sleeps_grow_with_the_wait(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=1");
    hd_lane *lane = conf_default_lane(runtime, 0);
    wk_kernels kernels = wk_load(runtime);
    WK_NEED_KERNELS(runtime, kernels);
    wk_gate gate;
    wk_gate_shut(&gate, runtime, lane, kernels);
    shut = &gate;
    CONF_OK(hd_wait(gate.ticket, 100 * CONF_SECOND));
    CONF_TRUE(shut == NULL && longest_ns >= 4 * first_ns);
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_wait_inline");
    const struct CMUnitTest tests[] = {CONF_CASE(sleeps_grow_with_the_wait)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
