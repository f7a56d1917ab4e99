/* test_schedule.c - lanes with little work go before lanes with much, and no lane starves. The test
 * counts launches of flooding lanes that the driver gets between another lane's launch and its
 * turn.
 *
 * Promise: A lane with little to do waits for a bounded number of launches, and no lane starves.
 *
 * Threads: the main one, the device's engine, one that always waits. Locks: `gate`, which holds up
 * the engine inside the driver.
 * Always: nothing is timed; the test counts the engine's calls while it is known to be busy.
 */
#include "support/check.h"

#include <pthread.h>
#include <stdatomic.h>
#include "conformance/work.h"
#include "driver/driver.h"
#include "gate.h"
#include "support/changed_driver.h"

enum { MOST_LANES = 200, SLOTS = 64, BACKLOG = 48, BYSTANDER = 5, ROUNDS = 6, BOUND = 40 };

static _Atomic uint64_t floods, bystanders,
    /* launches given to the driver; floods_before: floods before the last bystander */
    floods_before;

/* Counts a kernel that the driver is about to get. Its grid shows which lane it belongs to. */
static void given(unsigned grid)
{
    if (grid == BYSTANDER) {
        atomic_store(&floods_before, atomic_load(&floods));
        atomic_fetch_add(&bystanders, 1);
        return;
    }
    atomic_fetch_add(&floods, 1);
    pass_gate();
}

static hdcu_result launch_kernel(hdcu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                 unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                 hdcu_stream stream, void **parameters, void **extra)
{
    given(grid_x);
    return real->cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
                                parameters, extra);
}

static hdcu_result set_params(hdcu_graphexec exec, hdcu_graphnode node, const hdcu_kernel_node_params *params)
{
    given(params->grid_x);
    return real->cuGraphExecKernelNodeSetParams(exec, node, params);
}

static void change_table(hdi_driver *table)
{
    table->cuLaunchKernel = launch_kernel;
    table->cuGraphExecKernelNodeSetParams = set_params;
}

hd_status __wrap_hdi_driver_host(const hdi_driver **out)
{
    return give_changed(out);
}

typedef struct lane {
    hd_lane *lane;
    hd_buffer *y;
} lane;

static hd_runtime *runtime;
static conf_kernels kernels;
static lane bystander, flooding[MOST_LANES];

static void make(lane *l)
{
    assert_ok(hd_lane_create(runtime, 0, &l->lane));
    assert_ok(hd_alloc(l->lane, 64, &l->y));
}

static hd_ticket launch(const lane *l, uint32_t grid)
{
    /* differs in each launch, so that every node of a chain must be set */
    static _Atomic uint32_t value;
    hd_ticket ticket;
    hd_arg args[] = {hd_out(l->y), hd_u64(16), hd_u32(value++)};
    assert_ok(hd_launch(l->lane, kernels.fill, conf_dims(grid, 1, 1), conf_dims(1, 1, 1), 0, args, 3, &ticket));
    return ticket;
}

static int set_up(void **state)
{
    (void)state;
    hd_options options = {sizeof options, "driver=host placement=thread host_devices=1 lane_slots=64"};
    assert_ok(hd_open(&options, &runtime));
    kernels = conf_builtins(runtime);
    make(&bystander);
    for (int i = 0; i < MOST_LANES; i++) {
        make(&flooding[i]);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    hd_close(runtime);
    return 0;
}

/* Gives `n` lanes more work than one visit each, and holds up the engine in the first launch of
 * one. Then the other lane submits. */
static uint64_t floods_between(int n)
{
    set_gate(true);
    for (int k = 0; k < BACKLOG; k++) {
        for (int i = 0; i < n; i++) {
            launch(&flooding[i], 1);
        }
    }
    await_engine_at_gate();
    uint64_t before = atomic_load(&floods);
    hd_ticket ticket = launch(&bystander, BYSTANDER);
    set_gate(false);
    assert_ok(hd_wait(ticket, HD_FOREVER));
    uint64_t between = atomic_load(&floods_before) - before;
    for (int i = 0; i < n; i++) {
        assert_ok(hd_lane_wait(flooding[i].lane, HD_FOREVER));
    }
    return between;
}

static void a_lane_with_little_to_do_waits_for_one_visit(void **state)
{
    (void)state;
    const int counts[] = {1, 4, 8, MOST_LANES};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        for (int round = 0; round < ROUNDS; round++) {
            uint64_t between = floods_between(counts[c]);
            if (between > BOUND) {
                fail_msg("%d flooding lanes: %llu of their launches before the one of the other lane", counts[c],
                         (unsigned long long)between);
            }
        }
    }
}

static _Atomic bool enough;

static void *wait_for_ever(void *unused)
{
    (void)unused;
    while (!atomic_load(&enough)) {
        assert_ok(hd_wait(launch(&bystander, BYSTANDER), HD_FOREVER));
    }
    return NULL;
}

/* A thread always waits for one of several full lanes. Another lane always has one launch, and a
 * thread that waits for it. */
static void no_lane_starves(void **state)
{
    (void)state;
    enum { LANES = 8, ALWAYS = 60 };
    pthread_t thread;
    atomic_store(&enough, false);
    uint64_t before = atomic_load(&bystanders);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_ever, NULL), 0);
    for (int k = 0; k < 20 * SLOTS; k++) {
        hd_ticket first = launch(&flooding[0], 1);
        for (int i = 1; i < LANES; i++) {
            launch(&flooding[i], 1);
        }
        if (k % SLOTS == ALWAYS) {
            assert_ok(hd_wait(first, HD_FOREVER));
        }
    }
    for (int i = 0; i < LANES; i++) {
        assert_ok(hd_lane_wait(flooding[i].lane, HD_FOREVER));
    }
    while (atomic_load(&bystanders) == before) {
        sched_yield();
    }
    atomic_store(&enough, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lane_with_little_to_do_waits_for_one_visit),
        cmocka_unit_test(no_lane_starves),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
