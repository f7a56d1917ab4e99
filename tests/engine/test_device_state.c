/* test_device_state.c - the states of a device: every transition, every pair without one, and the
 * guarantees of each state.
 *
 * Promise: A device changes state as documented only, and each state answers as documented.
 * Threads: one, and those of one case. Cases with a stopped program use a child process.
 */
#include "lost_device.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

static const struct {
    hdi_device_state from, to;
} transitions[] = {
    {HDI_DEVICE_UP, HDI_DEVICE_FAILING},         {HDI_DEVICE_FAILING, HDI_DEVICE_DRAINING},
    {HDI_DEVICE_DRAINING, HDI_DEVICE_LOST},      {HDI_DEVICE_LOST, HDI_DEVICE_STARTING},
    {HDI_DEVICE_STARTING, HDI_DEVICE_RESTORING}, {HDI_DEVICE_STARTING, HDI_DEVICE_LOST},
    {HDI_DEVICE_RESTORING, HDI_DEVICE_UP},       {HDI_DEVICE_RESTORING, HDI_DEVICE_LOST},
};

static bool is_transition(int from, int to)
{
    for (size_t i = 0; i < sizeof transitions / sizeof transitions[0]; i++) {
        if ((int)transitions[i].from == from && (int)transitions[i].to == to) {
            return true;
        }
    }
    return false;
}

static void only_the_documented_transitions_exist(void **state)
{
    (void)state;
    for (int from = 0; from <= HDI_DEVICE_STATES; from++) { /* one more than exist */
        for (int to = 0; to <= HDI_DEVICE_STATES; to++) {
            assert_int_equal(hdi_device_may_change((hdi_device_state)from, (hdi_device_state)to),
                             is_transition(from, to));
        }
    }
}

static void every_transition_is_made_once(void **state)
{
    fixture *f = *state;
    hdi_device *device = &f->devices[0];
    for (size_t i = 0; i < sizeof transitions / sizeof transitions[0]; i++) {
        atomic_store(&device->state, transitions[i].from);
        assert_true(hdi_device_change(device, transitions[i].from, transitions[i].to));
        assert_int_equal(hdi_device_state_of(device), transitions[i].to);
    }
    /* every part that notices a failure tries transition 1 */
    atomic_store(&device->state, HDI_DEVICE_UP);
    assert_true(hdi_device_change(device, HDI_DEVICE_UP, HDI_DEVICE_FAILING));
    for (int s = HDI_DEVICE_FAILING; s < HDI_DEVICE_STATES; s++) {
        atomic_store(&device->state, (uint32_t)s);
        assert_false(hdi_device_change(device, HDI_DEVICE_UP, HDI_DEVICE_FAILING));
        hdi_device_give_up(device);
        assert_int_equal(hdi_device_state_of(device), s);
    }
    atomic_store(&device->state, HDI_DEVICE_UP);
}

/* ---- pairs that are no transition ---- */

/* A debug build stops the program. Other builds change nothing. */
static void is_refused(hdi_device *device, int is, int from, int to)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGABRT, SIG_DFL); /* cmocka installs a handler */
        close(2);
        atomic_store(&device->state, (uint32_t)is);
        bool changed = hdi_device_change(device, (hdi_device_state)from, (hdi_device_state)to);
        _exit(changed || (int)hdi_device_state_of(device) != is);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    bool stopped = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
#ifdef HDI_DEBUG
    assert_true(stopped);
#else
    assert_true(stopped || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
#endif
}

static void what_is_no_transition_is_refused(void **state)
{
    fixture *f = *state;
    for (int from = 0; from < HDI_DEVICE_STATES; from++) {
        for (int to = 0; to < HDI_DEVICE_STATES; to++) {
            if (!is_transition(from, to)) {
                is_refused(&f->devices[0], from, from, to);
            }
        }
    }
    /* transitions that start from a state in which the device is not */
    is_refused(&f->devices[0], HDI_DEVICE_UP, HDI_DEVICE_FAILING, HDI_DEVICE_DRAINING);
    is_refused(&f->devices[0], HDI_DEVICE_DRAINING, HDI_DEVICE_LOST, HDI_DEVICE_STARTING);
    is_refused(&f->devices[0], HDI_DEVICE_UP, HDI_DEVICE_RESTORING, HDI_DEVICE_UP);
    /* a value from a stray write */
    is_refused(&f->devices[0], 77, HDI_DEVICE_DRAINING, HDI_DEVICE_LOST);
    is_refused(&f->devices[0], 77, 77, HDI_DEVICE_UP);
}

/* ---- the life of a device ---- */

static void answers(const hdi_device *device, hdi_device_state state, bool lost, bool given_up, bool has_driver)
{
    assert_int_equal(hdi_device_state_of(device), state);
    assert_int_equal(hdi_device_lost(device), lost);
    assert_int_equal(hdi_device_lost_by(device), lost ? HDI_GONE_CORRUPTED : 0);
    assert_int_equal(hdi_device_given_up(device), given_up);
    assert_int_equal(hdi_device_has_driver(device), has_driver);
}

static void submit(hd_lane *lane, const hdi_command *command)
{
    hdi_lane_push(lane, command);
}

/* Loses a device with work that waits for the other device, drains it, and brings it back. */
static void lives(fixture *f, uint64_t losses)
{
    hdi_device *device = &f->devices[0];
    hd_lane *lane = &f->lanes[0][0], *other = &f->lanes[1][0];
    submit(other, &(hdi_command){.op = HDI_OP_FILL, .slots = 1});
    hdi_command wait = {.op = HDI_OP_WAIT, .slots = 1};
    wait.wait.lane = other->global;
    wait.wait.position = other->head;
    submit(lane, &wait);
    submit(lane, &(hdi_command){.op = HDI_OP_FILL, .slots = 1});
    answers(device, HDI_DEVICE_UP, false, false, true);
    assert_false(hdi_device_drain(device));
    hdi_device_give_up(device);
    answers(device, HDI_DEVICE_FAILING, false, true, true);
    assert_false(hdi_device_drain(device));
    hdi_device_lose(device, HDI_GONE_CORRUPTED);
    answers(device, HDI_DEVICE_DRAINING, true, true, false);
    assert_int_equal(atomic_load(&device->losses), losses);
    assert_true(hdi_device_drain(device)); /* the other device still works on its part */
    assert_false(hdi_device_is_drained(device));
    atomic_store(&other->shared->done, other->head);
    answers(device, HDI_DEVICE_DRAINING, true, true, false);
    assert_false(hdi_device_drain(device));
    assert_true(hdi_device_is_drained(device));
    answers(device, HDI_DEVICE_LOST, true, true, false);
    hdi_device_lose(device, HDI_GONE_CLOSED); /* a lost device cannot be lost again */
    answers(device, HDI_DEVICE_LOST, true, true, false);
    assert_true(hdi_device_change(device, HDI_DEVICE_LOST, HDI_DEVICE_STARTING));
    answers(device, HDI_DEVICE_STARTING, true, true, false);
    assert_true(hdi_device_change(device, HDI_DEVICE_STARTING, HDI_DEVICE_RESTORING));
    answers(device, HDI_DEVICE_RESTORING, true, true, true);
    hdi_device_lose(device, HDI_GONE_CLOSED); /* the new worker has ended, so the restart fails */
    answers(device, HDI_DEVICE_RESTORING, true, true, true);
    assert_true(hdi_device_change(device, HDI_DEVICE_RESTORING, HDI_DEVICE_LOST));
    assert_int_equal(atomic_load(&device->losses), losses);
    bring_back(device);
    answers(device, HDI_DEVICE_UP, false, false, true);
    assert_int_equal(atomic_load(&device->restarts), losses);
}

static void a_device_goes_through_all_states_and_comes_back(void **state)
{
    fixture *f = *state;
    for (uint64_t i = 1; i <= 3; i++) {
        lives(f, i);
    }
    assert_int_equal(hdi_device_state_of(&f->devices[1]), HDI_DEVICE_UP);
}

static void an_engine_in_this_process_is_not_given_up(void **state)
{
    fixture *f = *state;
    f->runtime.is_process = false;
    hdi_device_give_up(&f->devices[0]);
    answers(&f->devices[0], HDI_DEVICE_UP, false, false, true);
}

/* ---- several threads ---- */

enum { THREADS = 4 };

static atomic_int first;

static void *gives_up(void *device)
{
    if (hdi_device_change(device, HDI_DEVICE_UP, HDI_DEVICE_FAILING)) {
        atomic_fetch_add(&first, 1);
    }
    return NULL;
}

static void *loses(void *device)
{
    hdi_device_lose(device, HDI_GONE_CORRUPTED);
    return NULL;
}

static void run_beside(void *(*does)(void *), hdi_device *device)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, does, device), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
}

static void of_several_threads_one_makes_the_transition(void **state)
{
    fixture *f = *state;
    hdi_device *device = &f->devices[0];
    for (int i = 1; i <= 100; i++) {
        run_beside(gives_up, device);
        assert_int_equal(atomic_load(&first), i);
        run_beside(loses, device);
        answers(device, HDI_DEVICE_LOST, true, true, false);
        assert_int_equal(atomic_load(&device->losses), i);
        bring_back(device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_documented_transitions_exist),
        cmocka_unit_test_setup_teardown(every_transition_is_made_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_no_transition_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_device_goes_through_all_states_and_comes_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_engine_in_this_process_is_not_given_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(of_several_threads_one_makes_the_transition, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
