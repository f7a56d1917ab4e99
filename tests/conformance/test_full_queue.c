/* test_full_queue.c - a lane that is blocked, with more work behind it than the driver takes ahead,
 * holds up no other lane of its device.
 *
 * Promise: A blocked lane with a full queue holds up no other lane of its device.
 *
 * Threads: the main one.
 * Locks: none.
 * Always: the waits for other lanes end while the kernel in front of the full lane still runs.
 */
#include "workers.h"

enum { BEHIND = 3000, WORDS = 64, BYTES = WORDS * 4, NEIGHBOURS = 3 };

typedef struct scene {
    hd_runtime *runtime;
    wk_kernels k;
    conf_kernels builtin;
    hd_lane *full;
    hd_buffer *x, *floats;
    wk_gate gate;
} scene;

static hd_status add_one(scene *s, hd_lane *lane)
{
    hd_arg args[] = {hd_inout(s->x), hd_u64(WORDS)};
    return hd_launch(lane, s->k.add_one, conf_dims(1, 1, 1), conf_dims(WORDS, 1, 1), 0, args, 2, NULL);
}

static hd_status launch_behind(scene *s, int i)
{
    (void)i;
    return add_one(s, s->full);
}

static hd_status of_two_kernels(scene *s, int i)
{
    return i % 2 ? add_one(s, s->full)
                 : conf_axpy(s->full, s->builtin, s->floats, 0, s->floats, BYTES / 2, 1, WORDS / 2, NULL);
}

/* Each launch needs an event of another lane. */
static hd_status launch_behind_waits(scene *s, int i)
{
    hd_lane *other = conf_default_lane(s->runtime, 0);
    return add_one(s, i % 2 ? s->full : other);
}

/* Work of the neighbours while the lane is blocked. */
static void neighbours_work(scene *s)
{
    for (int n = 0; n < NEIGHBOURS; n++) {
        hd_lane *lane;
        hd_buffer *y;
        hd_ticket ticket;
        CONF_OK(hd_lane_create(s->runtime, 0, &lane));
        CONF_OK(hd_alloc(lane, BYTES, &y));
        CONF_OK(conf_fill(lane, s->builtin, y, 0, WORDS, 7, &ticket));
        CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
        CONF_FILLED(y, 0, 7, BYTES);
        hd_free(y);
        hd_lane_destroy(lane);
    }
}

static void stand_still(hd_status (*behind)(scene *s, int i), int n, uint32_t added)
{
    scene s = {.runtime = conf_open_with("host_devices=1 lane_slots=8192")};
    s.k = wk_load(s.runtime);
    WK_NEED_KERNELS(s.runtime, s.k);
    s.builtin = conf_builtins(s.runtime);
    CONF_OK(hd_lane_create(s.runtime, 0, &s.full));
    CONF_OK(hd_alloc(s.full, BYTES, &s.x));
    CONF_OK(hd_alloc(s.full, BYTES, &s.floats));
    CONF_OK(hd_fill(s.x, 0, 0, BYTES, NULL));
    CONF_OK(hd_fill(s.floats, 0, 0, BYTES, NULL));
    neighbours_work(&s); /* the work of a first use is over */
    wk_gate_shut(&s.gate, s.runtime, s.full, s.k);
    for (int i = 0; i < n; i++) {
        CONF_OK(behind(&s, i));
    }
    neighbours_work(&s);
    CONF_TRUE(!hd_done(s.gate.ticket));
    wk_gate_open(&s.gate);
    CONF_OK(hd_lane_wait(s.full, 60 * CONF_SECOND));
    uint32_t word = 0;
    CONF_OK(hd_read(s.x, 0, &word, 4));
    CONF_EQUAL(word, added);
    conf_close(s.runtime);
}

static void launches_hold_nobody_up(void **state)
{
    (void)state;
    stand_still(launch_behind, BEHIND, BEHIND);
}

static void launches_of_two_kernels_hold_nobody_up(void **state)
{
    (void)state;
    stand_still(of_two_kernels, BEHIND, BEHIND / 2);
}

static void launches_behind_waits_hold_nobody_up(void **state)
{
    (void)state;
    stand_still(launch_behind_waits, BEHIND / 2, BEHIND / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launches_hold_nobody_up),
        cmocka_unit_test(launches_of_two_kernels_hold_nobody_up),
        cmocka_unit_test(launches_behind_waits_hold_nobody_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
