/* test_watchdog.c - the option watchdog, and time in which the program did not run.
 *
 * Promise: The watchdog does not count time in which the whole program was stopped.
 *
 * It still counts the time before and after, and gives up work that does not end.
 *
 * Threads: the main one.
 * Locks: none.
 * Processes: in the placement process the workers, stopped like the program.
 */
#include "workers.h"

/* The kernel runs before and after the stop, each time for less than the limit. */
static void a_stop_of_the_program_does_not_count(void **state)
{
    (void)state;
    CONF_EQUAL(setpgid(0, 0), 0);
    hd_runtime *runtime = conf_open_with("watchdog=%d", wk_watchdog_ms());
    wk_kernels k = wk_load(runtime);
    WK_NEED_KERNELS(runtime, k);
    hd_lane *lane = conf_default_lane(runtime, 0);
    pid_t worker = wk_info(runtime, 0).worker_pid; /* 0: none */
    for (int i = 0; i < 2; i++) {
        wk_gate gate;
        wk_gate_shut(&gate, runtime, lane, k);
        /* with placement=inline this looks once */
        CONF_FAILS(hd_wait(gate.ticket, 0), HD_ERROR_TIMEOUT);
        wk_stop_all(2 * wk_watchdog_ms(), worker);
        hd_status status = hd_wait(gate.ticket, CONF_MILLISECOND);
        wk_gate_open(&gate);
        CONF_FAILS(status, HD_ERROR_TIMEOUT);
        CONF_OK(hd_wait(gate.ticket, 60 * CONF_SECOND));
        hd_free(gate.pinned);
    }
    wk_no_loss(runtime);
    conf_close(runtime);
}

/* After a stop, the limit is the same. */
static void work_without_end_is_given_up_after_a_stop(void **state)
{
    (void)state;
    CONF_EQUAL(setpgid(0, 0), 0);
    hd_runtime *runtime = conf_open_with("watchdog=%d close_timeout=300", wk_watchdog_ms());
    wk_kernels k = wk_load(runtime);
    WK_NEED_KERNELS(runtime, k);
    if (!conf_isolates(runtime)) {
        conf_close(runtime);
        skip();
    }
    wk_gate gate;
    wk_gate_shut(&gate, runtime, conf_default_lane(runtime, 0), k);
    wk_stop_all(wk_watchdog_ms() / 2, 0);
    CONF_FAILS_WITH(hd_wait(gate.ticket, 60 * CONF_SECOND * CONF_SLOWNESS), HD_ERROR_DEVICE_LOST, "watchdog");
    wk_gate_open(&gate); /* in this process the kernel goes on */
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_watchdog");
    const struct CMUnitTest tests[] = {
        CONF_CASE(a_stop_of_the_program_does_not_count),
        CONF_CASE(work_without_end_is_given_up_after_a_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
