/* test_times.c - when operations began and ended, on the clock of the trace.
 *
 * Promise: A span begins when the device got its work, and ends later; eras have their own clocks.
 * Threads: one.
 */
#include <stdio.h>
#include "trace/scene.h"

static trace t;

#define US 1000

#define ONE_DEVICE                                                                                                     \
    "trace devices=1 detail=full\n"                                                                                    \
    "lane 0.1 kind=program\n"                                                                                          \
    "lane 0.2 kind=in\n"                                                                                               \
    "name kernel 1 axpy\n"

static const trace_op *op_at(uint32_t lane, uint64_t position)
{
    int32_t op = trace_find_op(&t, lane, position);
    assert_int_not_equal(op, TRACE_NONE);
    return &t.ops[op];
}

/* The event in front of a launch is passed before the call for the launch returns. */
static void test_event_was_early(void **state)
{
    (void)state;
    scene_read(ONE_DEVICE "clock 0 at=0 own=0\n"
                          "op 0.1:1 launch at=0 issue=10-20 span=12-50 done=51\n"
                          "op 0.1:2 launch at=0 issue=60-70 span=55-90 done=91\n"
                          "end at=100\n",
               &t);
    assert_int_equal(t.ops[0].began, 20 * US);
    assert_int_equal(t.ops[0].ended, 50 * US);
    assert_int_equal(t.ops[1].began, 70 * US);
    assert_int_equal(t.devices[0].compute, 50 * US);
    assert_int_equal(t.devices[0].cause[TRACE_CAUSE_OVERHEAD], 40 * US);
    scene_check_split(&t);
    trace_release(&t);
}

/* A span states how long a launch takes to an idle device. */
static void test_way(void **state)
{
    (void)state;
    scene_read(ONE_DEVICE "clock 0 at=0 own=0\n"
                          "op 0.1:1 launch at=0 issue=10-20 span=12-50 arrives=2 done=51\n"
                          "op 0.1:2 launch at=0 issue=40-45 span=50-60 arrives=2 done=61\n"
                          "op 0.1:3 launch at=0 issue=70-80 span=62-81 arrives=2 done=83\n"
                          "op 0.1:4 launch at=0 issue=90-95 span=98-99 arrives=2 done=100\n"
                          "op 0.1:5 launch at=0 issue=97-110 span=99-120 arrives=2 done=121\n"
                          "end at=130\n",
               &t);
    assert_int_equal(t.ops[0].began, 22 * US);
    /* it was on the device when the previous work ended */
    assert_int_equal(t.ops[1].began, 50 * US);
    assert_int_equal(t.ops[2].began, 81 * US);  /* no later than its end */
    assert_int_equal(t.ops[3].began, 98 * US);  /* the event is right */
    assert_int_equal(t.ops[4].began, 112 * US); /* the lane became idle during the call */
    scene_check_split(&t);
    trace_release(&t);
}

/* On a busy lane, the begin of the call bounds the begin of the work, its end does not. */
static void test_lane_at_work(void **state)
{
    (void)state;
    scene_read(ONE_DEVICE "clock 0 at=0 own=0\n"
                          "op 0.1:1 launch at=0 issue=10-20 span=25-50 done=51\n"
                          "op 0.1:2 launch at=0 issue=40-60 span=50-90 done=91\n"
                          "op 0.1:3 launch at=0 issue=88-99 span=85-120 done=121\n"
                          "end at=130\n",
               &t);
    assert_int_equal(t.ops[0].began, 25 * US); /* after the call: the event is right */
    assert_int_equal(t.ops[1].began, 50 * US);
    assert_int_equal(t.ops[2].began, 90 * US); /* when the previous work ended */
    scene_check_split(&t);
    trace_release(&t);
}

/* The lane becomes idle while the driver loads the next kernel's code, so the event in front of
 * that kernel is passed then. */
static void test_long_call(void **state)
{
    (void)state;
    scene_read(ONE_DEVICE "clock 0 at=0 own=0\n"
                          "op 0.1:1 launch at=0 issue=10-20 span=25-500 done=501\n"
                          "op 0.1:2 launch at=0 issue=30-9000 span=500-9100 done=9101\n"
                          "op 0.1:3 launch at=0 issue=9010-9200 span=9100-9150 done=9201\n"
                          "op 0.1:4 launch at=0 issue=9210-9220 span=9225-10000 done=10001\n"
                          "op 0.1:5 launch at=0 issue=9230-9400 span=10000-10500 done=10501\n"
                          "end at=10600\n",
               &t);
    assert_int_equal(t.ops[1].began, 9000 * US);
    /* it ended before the call returned: somewhere within the call */
    assert_int_equal(t.ops[2].began, 9150 * US);
    assert_int_equal(t.ops[4].began, 10000 * US); /* the lane was busy meanwhile */
    assert_int_equal(t.devices[0].compute, (475 + 100 + 775 + 500) * US);
    scene_check_split(&t);
    trace_release(&t);
}

/* The engine saw the first two ends late, after the event in front of the next launch was passed.
 * The lane never ran two at a time. */
static void test_late_ends(void **state)
{
    (void)state;
    scene_read(ONE_DEVICE "clock 0 at=0 own=0\n"
                          "op 0.1:1 launch at=0 issue=10-11 done=47\n"
                          "span 0.1:1 from=0 span=12-47 clock=2\n"
                          "op 0.1:2 launch at=0 issue=12-13 done=60\n"
                          "span 0.1:2 from=1 span=40-60 clock=2\n"
                          "op 0.1:3 launch at=0 issue=57-58 span=55-80 done=81\n"
                          "op 0.1:4 launch at=0 issue=59-60 span=75-99 clock=1 done=99\n"
                          "end at=130\n",
               &t);
    assert_int_equal(t.ops[0].ended, 40 * US);
    assert_int_equal(t.ops[1].began, 40 * US);
    assert_int_equal(t.ops[1].ended, 57 * US); /* the third one was not on the device before */
    assert_int_equal(t.ops[2].began, 57 * US);
    assert_int_equal(t.ops[2].ended, 80 * US);
    assert_int_equal(t.ops[3].began, 80 * US); /* this begin is an estimate */
    assert_int_equal(t.devices[0].compute, (99 - 12) * US);
    scene_check_split(&t);
    trace_release(&t);
}

/* The device's clock is 20 us late. An operation had ended when the host saw it done, and its
 * length is that of the device's times. */
static void test_clock_is_off(void **state)
{
    (void)state;
    scene_read(ONE_DEVICE "clock 0 at=0 own=20\n"
                          "op 0.1:1 launch at=0 issue=10-11 span=60-80 done=46\n"
                          "op 0.1:2 launch at=0 issue=47-48 done=90\n"
                          "op 0.1:3 launch at=0 issue=47-48 done=105\n"
                          "span 0.1:3 from=1 span=120-140\n"
                          "op 0.1:4 launch at=106 issue=106-107 span=108-160 clock=1 done=130\n"
                          /* only the end of the next one shows its end */
                          "op 0.1:5 launch at=106 issue=106-107\n"
                          "span 0.1:5 from=4 span=165-175\n"
                          "op 0.1:6 launch at=106 issue=106-107 span=175-185 done=150\n"
                          "end at=200\n",
               &t);
    assert_int_equal(op_at(SCRIPT_LANE(0, 1), 1)->began, 26 * US);
    assert_int_equal(op_at(SCRIPT_LANE(0, 1), 1)->ended, 46 * US);
    /* the stretch of both: 100 to 120, 15 us too late */
    assert_int_equal(op_at(SCRIPT_LANE(0, 1), 2)->began, 85 * US);
    assert_int_equal(op_at(SCRIPT_LANE(0, 1), 2)->ended, 90 * US);
    assert_int_equal(op_at(SCRIPT_LANE(0, 1), 3)->ended, 105 * US);
    assert_int_equal(op_at(SCRIPT_LANE(0, 1), 4)->began, 108 * US); /* by the host's clock */
    assert_int_equal(op_at(SCRIPT_LANE(0, 1), 4)->ended, 130 * US);
    /* it stood behind the previous one all the time */
    assert_int_equal(op_at(SCRIPT_LANE(0, 1), 5)->began, 130 * US);
    assert_int_equal(op_at(SCRIPT_LANE(0, 1), 5)->ended, 140 * US);
    assert_int_equal(op_at(SCRIPT_LANE(0, 1), 6)->began, 140 * US);
    assert_int_equal(op_at(SCRIPT_LANE(0, 1), 6)->ended, 150 * US);
    scene_check_split(&t);
    trace_release(&t);
}

/* Without a span, only the host's observation of the first end counts. */
static void test_late_done(void **state)
{
    (void)state;
    scene_read(ONE_DEVICE "clock 0 at=0 own=0\n"
                          "op 0.1:1 launch at=0 issue=10-11 done=47\n"
                          "op 0.1:2 launch at=0 issue=12-13 span=40-60 done=61\n"
                          "end at=130\n",
               &t);
    assert_int_equal(t.ops[0].began, 10 * US);
    assert_int_equal(t.ops[0].ended, 40 * US);
    assert_int_equal(t.ops[1].began, 40 * US);
    scene_check_split(&t);
    trace_release(&t);
}

static void assert_ran(uint64_t position, int64_t from, int64_t to)
{
    const trace_op *op = op_at(SCRIPT_LANE(0, 1), position);
    assert_int_equal(op->began, from * US);
    assert_int_equal(op->ended, to * US);
    assert_true(t.stretches[op->stretch].approximate);
}

/* Operations without a span take their kind's mean and wait for each other. The host saw all of
 * them done late, at once. Measured times stay. */
static void test_estimates(void **state)
{
    (void)state;
    char text[4096];
    size_t n = (size_t)snprintf(text, sizeof text, ONE_DEVICE "clock 0 at=0 own=0\n");
    for (int i = 1; i <= 8; i++) { /* copies of 2 us, launches of 8 us */
        n += (size_t)snprintf(text + n, sizeof text - n,
                              "op 0.2:%d copy at=0 issue=0-1 done=70 way=1 dst=0 bytes=100\n"
                              "op 0.1:%d launch at=0 issue=0-1 done=70\n",
                              i, i);
    }
    snprintf(text + n, sizeof text - n, "%s",
             "span 0.2:8 from=0 span=2-18 op=2\n"
             "span 0.1:8 from=0 span=2-66\n"
             "op 0.2:9 copy at=0 issue=70-71 done=140 way=1 dst=0 bytes=100\n"
             "op 0.1:9 launch at=0 issue=71-72 wait=0.2:9 done=140\n"
             "op 0.1:10 launch at=0 issue=72-73 done=140\n"
             "op 0.2:10 copy at=0 issue=73-74 wait=0.1:9 done=140 way=1 dst=0 bytes=100\n"
             "op 0.1:11 launch at=0 issue=90-91 span=110-118 done=140\n"
             "op 0.2:11 copy at=0 issue=91-92 span=120-122 done=140 way=1 dst=0 bytes=100\n"
             "op 0.1:12 launch at=0 issue=91-92 wait=0.2:10 done=124\n"
             "end at=150\n");
    scene_read(text, &t);
    assert_ran(9, 72, 80);
    assert_ran(10, 80, 88);
    assert_ran(12, 118, 124); /* no later than it was seen done */
    const trace_op *copy = op_at(SCRIPT_LANE(0, 2), 10), *measured = op_at(SCRIPT_LANE(0, 1), 11);
    assert_int_equal(copy->began, 80 * US);
    assert_int_equal(copy->ended, 82 * US);
    assert_int_equal(measured->began, 110 * US);
    assert_int_equal(measured->ended, 118 * US);
    assert_int_equal(t.unplaced, 5);
    assert_int_equal(t.devices[0].compute, (64 + 16 + 8 + 6) * US);
    assert_int_equal(t.launches[0].measured, 1); /* the others share stretches, or are estimates */
    scene_check_split(&t);
    trace_release(&t);
}

/* The host saw the copy done late. The launch that waited for it had already run, as the lane's
 * next span shows. */
static void test_late_wait(void **state)
{
    (void)state;
    scene_read(ONE_DEVICE "clock 0 at=0 own=0\n"
                          "op 0.2:1 copy at=0 issue=0-1 done=40 way=1 dst=0 bytes=100\n"
                          "op 0.1:1 launch at=0 issue=1-2 wait=0.2:1 done=40\n"
                          "op 0.1:2 launch at=0 issue=2-3 span=20-30 done=40\n"
                          "end at=50\n",
               &t);
    const trace_op *measured = op_at(SCRIPT_LANE(0, 1), 2);
    assert_int_equal(measured->began, 20 * US);
    assert_int_equal(measured->ended, 30 * US);
    assert_ran(1, 20, 20);
    scene_check_split(&t);
    trace_release(&t);
}

/* A comparison of clocks that is 400 us off: a length across both clocks does not count as
 * measured. A length on a single clock counts, and so does one that is much longer than the
 * error. */
static void test_coarse(void **state)
{
    (void)state;
    scene_read(ONE_DEVICE "clock 0 at=0 own=0 within=400000\n"
                          "op 0.1:1 launch at=0 issue=10-11 done=1100\n"
                          "op 0.1:2 launch at=2000 issue=2001-2002 done=12000\n"
                          "op 0.1:3 launch at=2003 issue=2004-2005 done=13000\n"
                          "span 0.1:1 from=0 at=1100 span=11-1000 clock=1\n"
                          "span 0.1:2 from=1 at=12000 span=2002-11000 clock=1\n"
                          "span 0.1:3 from=2 at=13000 span=11000-12900\n"
                          "end at=13001\n",
               &t);
    assert_int_equal(t.spans_coarse, 1);
    assert_int_equal(t.launches[0].measured, 2);
    assert_true(t.launches[0].mixed);
    assert_int_equal(t.launches[0].least, 1900 * US);
    assert_int_equal(t.devices[0].clock_within, 400000);
    trace_release(&t);

    /* A closer comparison soon after replaces it. */
    scene_read(ONE_DEVICE "clock 0 at=0 own=0 within=400000\n"
                          "op 0.1:1 launch at=0 issue=10-11 done=1100\n"
                          "clock 0 at=500 own=500 within=2000\n"
                          "span 0.1:1 from=0 at=1100 span=11-1000 clock=1\n"
                          "clock 0 at=1000000 own=1000000 within=400000\n"
                          "clock 0 at=1020000 own=1020000 within=2000\n"
                          "end at=1020001\n",
               &t);
    assert_int_equal(t.spans_coarse, 0);
    assert_int_equal(t.launches[0].measured, 1);
    assert_int_equal(t.devices[0].clock_within, 2000);
    trace_release(&t);
}

/* Without spans: operations that the host saw done together ran one after the other. A kind's row
 * is one stretch. */
static void test_host_times(void **state)
{
    (void)state;
    scene_read(ONE_DEVICE "clock 0 at=0 own=0\n"
                          "op 0.1:1 launch at=0 issue=10-11 done=90\n"
                          "op 0.1:2 copy at=0 issue=12-13 done=90\n"
                          "op 0.1:3 launch at=0 issue=14-15 done=90\n"
                          "op 0.1:4 launch at=0 issue=16-17 done=90\n"
                          "op 0.1:5 copy at=0 issue=80-81 done=90\n"
                          "op 0.1:6 copy at=0 issue=82-83 done=100\n"
                          "end at=100\n",
               &t);
    assert_ran(1, 10, 26);
    assert_ran(2, 26, 42);
    assert_ran(3, 42, 80); /* two shares end at 74, and the next operation was issued at 80 */
    assert_ran(4, 42, 80);
    assert_ran(5, 80, 90);
    assert_ran(6, 90, 100);
    assert_int_equal(t.unplaced, 6);
    assert_int_equal(t.devices[0].compute, (16 + 38) * US);
    assert_int_equal(t.devices[0].transfer, (16 + 20) * US);
    scene_check_split(&t);
    trace_release(&t);
}

/* An operation that waits for another lane begins after that wait. Its lane is idle meanwhile. */
static void test_host_times_with_waits(void **state)
{
    (void)state;
    scene_read(ONE_DEVICE "clock 0 at=0 own=0\n"
                          "op 0.2:1 launch at=0 issue=0-1 span=1-50 done=60\n"
                          "op 0.1:1 launch at=0 issue=10-11 done=90\n"
                          "op 0.1:2 launch at=0 issue=12-13 done=90 wait=0.2:1\n"
                          "op 0.1:3 launch at=0 issue=14-15\n"
                          "op 0.1:4 launch at=0 issue=14-15 done=90\n"
                          "end at=100\n",
               &t);
    assert_ran(1, 10, 50);
    assert_ran(2, 60, 90);
    assert_ran(4, 90, 90);
    scene_check_split(&t);
    trace_release(&t);
}

/* An operation that the device did not get took no device time: neither by the host's times, nor
 * within a span around it. */
static void test_refused(void **state)
{
    (void)state;
    scene_read(ONE_DEVICE "clock 0 at=0 own=0\n"
                          "op 0.1:1 launch at=0 issue=10-11 done=50\n"
                          "op 0.1:2 launch at=0 issue=12-13 refused=1 done=90\n"
                          "op 0.1:3 launch at=0 issue=60-61 done=90\n"
                          "op 0.2:1 launch at=0 issue=10-11 done=50\n"
                          "op 0.2:2 launch at=0 issue=12-13 refused=1 done=50\n"
                          "op 0.2:3 launch at=0 issue=14-15 done=50\n"
                          "span 0.2:3 from=0 span=20-45\n"
                          "end at=100\n",
               &t);
    assert_ran(1, 10, 50);
    assert_ran(3, 60, 90);
    for (uint32_t lane = 1; lane <= 2; lane++) {
        const trace_op *op = op_at(SCRIPT_LANE(0, lane), 2);
        assert_true(op->failed);
        assert_int_equal(op->stretch, TRACE_NONE);
        assert_int_equal(op->began, TRACE_UNSEEN);
    }
    assert_int_equal(op_at(SCRIPT_LANE(0, 2), 3)->ended, 45 * US);
    scene_check_split(&t);
    trace_release(&t);
}

/* Clocks differ slightly: by its device's time, work ended before its call returned, before its
 * call was made, or before it began. */
static void test_ends(void **state)
{
    (void)state;
    scene_read(ONE_DEVICE "clock 0 at=0 own=0\n"
                          "op 0.1:1 launch at=0 issue=10-20 span=12-15 done=21\n"
                          "op 0.1:2 launch at=0 issue=30-40 span=26-28 done=41\n"
                          "op 0.2:1 copy at=0 done=90\n"
                          "span 0.2:1 from=0 span=80-60 clock=1 op=2\n"
                          "op 0.3:1 launch at=0 issue=50-52 done=60\n"
                          "span 0.3:1 from=0 span=55-54 clock=1\n"
                          "end at=100\n",
               &t);
    assert_int_equal(t.ops[0].began, 15 * US);
    assert_int_equal(t.ops[0].ended, 15 * US);
    assert_int_equal(t.ops[1].began, 30 * US);
    assert_int_equal(t.ops[1].ended, 30 * US);
    assert_int_equal(op_at(SCRIPT_LANE(0, 2), 1)->began, 80 * US);
    assert_int_equal(op_at(SCRIPT_LANE(0, 2), 1)->ended, 80 * US);
    /* the way to the device was an estimate */
    assert_int_equal(op_at(SCRIPT_LANE(0, 3), 1)->began, 54 * US);
    assert_int_equal(op_at(SCRIPT_LANE(0, 3), 1)->ended, 54 * US);
    scene_check_split(&t);
    trace_release(&t);
}

/* The first CLOCK after the restart is 20 ms late, and the new zero point makes both rows look like
 * one. */
static void test_restart(void **state)
{
    (void)state;
    scene_read(ONE_DEVICE "clock 0 at=0 own=1000000\n"
                          "clock 0 at=10000 own=1010000\n"
                          "op 0.1:1 launch at=100 span=1000200-1000300 written=400 done=401\n"
                          "loss 0 at=20000 it fell off\n"
                          "restart 0 at=30000-31000\n"
                          "op 0.1:2 launch at=31000 span=1031200-1031700 written=32000 done=32001\n"
                          "op 0.1:3 launch at=60000 span=1060700-1060900 written=62000 done=62001\n"
                          "clock 0 at=51000 own=1051100\n"
                          "clock 0 at=61000 own=1061100\n"
                          "end at=70000\n",
               &t);
    assert_int_equal(t.ops[0].began, 200 * US);
    assert_int_equal(t.ops[1].began, 31100 * US); /* by the row before, 31200 */
    assert_int_equal(t.ops[1].ended, 31600 * US);
    assert_int_equal(t.ops[2].began, 60600 * US);
    assert_int_equal(t.ignored, 0);
    scene_check_split(&t);
    trace_release(&t);
}

/* Without a CLOCK after the restart, its times have no relation to the clock. */
static void test_restart_without_clock(void **state)
{
    (void)state;
    scene_read(ONE_DEVICE "clock 0 at=0 own=1000000\n"
                          "op 0.1:1 launch at=100 span=1000200-1000300 written=400 done=401\n"
                          "loss 0 at=20000 it fell off\n"
                          "restart 0 at=30000-31000\n"
                          "op 0.1:2 launch at=31000 issue=31010-31020 span=200-700 written=32000 done=31800\n"
                          "end at=70000\n",
               &t);
    assert_int_equal(t.ignored, 1);
    assert_int_equal(t.unplaced, 1);
    assert_int_equal(t.ops[1].began, 31010 * US);
    assert_int_equal(t.ops[1].ended, 31800 * US);
    scene_check_split(&t);
    trace_release(&t);
}

/* A second runtime continues the file: its device's time, positions and lanes start again, and the
 * trace may end there. */
static void test_two_runtimes(void **state)
{
    (void)state;
    scene_read(ONE_DEVICE "clock 0 at=0 own=5000\n"
                          "clock 0 at=1000 own=6000\n"
                          "op 0.1:1 launch at=100 span=5200-5300 written=400 done=401\n"
                          "end at=1500\n"
                          "trace devices=1 detail=full run=2 at=2000\n"
                          "op 0.1:1 launch at=2100 span=7150-7250 written=2400 done=2401\n"
                          "clock 0 at=3000 own=8000\n",
               &t);
    assert_int_equal(t.runs, 2);
    assert_false(t.ended);
    assert_int_equal(t.n_ops, 2);
    assert_int_equal(t.ignored, 0);
    assert_int_equal(t.ops[0].began, 200 * US);
    assert_int_equal(t.ops[1].began, 2150 * US);
    assert_int_equal(t.ops[1].ended, 2250 * US);
    scene_check_split(&t);
    trace_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_event_was_early),
        cmocka_unit_test(test_way),
        cmocka_unit_test(test_lane_at_work),
        cmocka_unit_test(test_long_call),
        cmocka_unit_test(test_late_wait),
        cmocka_unit_test(test_estimates),
        cmocka_unit_test(test_coarse),
        cmocka_unit_test(test_host_times),
        cmocka_unit_test(test_host_times_with_waits),
        cmocka_unit_test(test_late_ends),
        cmocka_unit_test(test_late_done),
        cmocka_unit_test(test_clock_is_off),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_restart),
        cmocka_unit_test(test_restart_without_clock),
        cmocka_unit_test(test_two_runtimes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
