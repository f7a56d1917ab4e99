/* test_split.c - the division of devices' time, and the causes of idle time.
 *
 * Promise: Windows split to the nanosecond into compute, transfer and idle with its visible cause.
 * Threads: one.
 */
#include <stdio.h>
#include "trace/scene.h"

static trace t;

#define US 1000

static void test_states(void **state)
{
    (void)state;
    scene_read(TWO_DEVICES "op 0.1:1 launch at=0 issue=1 span=2-10 done=11\n"
                           "op 0.2:1 copy at=0 issue=1 span=5-15 done=16 way=1 dst=0 bytes=100\n"
                           "op 0.1:2 launch at=1 issue=12 span=20-30 done=31\n"
                           "end at=40\n",
               &t);
    const trace_device *d = &t.devices[0];
    assert_int_equal(d->end - d->begin, 30 * US);
    assert_int_equal(d->compute, 18 * US);
    assert_int_equal(d->transfer, 5 * US);
    assert_int_equal(d->overlap, 5 * US);
    assert_int_equal(d->idle, 7 * US);
    assert_int_equal(d->cause[TRACE_CAUSE_OVERHEAD], 7 * US);
    assert_int_equal(t.devices[1].cause[TRACE_CAUSE_NOTHING], 30 * US);
    scene_check_split(&t);
    trace_release(&t);
}

/* Device 1 waits for device 0, then takes 3 us on its own way. */
static void test_for_device(void **state)
{
    (void)state;
    scene_read(TWO_DEVICES "op 0.1:1 launch at=0 span=2-100 done=101\n"
                           "op 1.1:1 launch at=10 wait=0.1:1 label=7 span=103-110 done=111\n"
                           "end at=120\n",
               &t);
    const trace_device *d = &t.devices[1];
    assert_int_equal(d->cause[TRACE_CAUSE_NOTHING], 10 * US);
    assert_int_equal(d->cause[TRACE_CAUSE_DEVICE], 90 * US);
    assert_int_equal(d->for_device[0], 90 * US);
    assert_int_equal(d->cause[TRACE_CAUSE_OVERHEAD], 3 * US);
    const trace_piece *p = &d->pieces[1];
    assert_int_equal(p->cause, TRACE_CAUSE_DEVICE);
    assert_int_equal(p->holder, trace_find_op(&t, SCRIPT_LANE(0, 1), 1));
    assert_string_equal(trace_name(&t, t.waits[p->wait].label), "weights");
    scene_check_split(&t);
    trace_release(&t);
}

/* Waits through a copy in the other device's lane, and behind an operation of its own lane. The far
 * end at each time counts. */
static void test_chain(void **state)
{
    (void)state;
    scene_read(TWO_DEVICES "op 0.1:1 launch at=0 span=0-50 done=51\n"
                           "op 0.3:1 copy at=1 wait=0.1:1 way=4 src=0 dst=1 bytes=100 span=52-80 done=81\n"
                           "op 1.1:1 launch at=2 wait=0.3:1 label=7 span=84-90 done=91\n"
                           "op 1.1:2 launch at=3 span=90-95 done=96\n"
                           "end at=120\n",
               &t);
    const trace_device *d = &t.devices[1];
    assert_int_equal(d->cause[TRACE_CAUSE_NOTHING], 2 * US);
    assert_int_equal(d->for_device[0], 48 * US);
    assert_int_equal(d->cause[TRACE_CAUSE_COPY], 30 * US); /* including 2 us on its way */
    assert_int_equal(d->cause[TRACE_CAUSE_OVERHEAD], 4 * US);
    int32_t chain[8];
    size_t n = trace_chain(&t, trace_find_op(&t, SCRIPT_LANE(1, 1), 2), chain, 8);
    assert_int_equal(n, 4);
    assert_int_equal(chain[3], trace_find_op(&t, SCRIPT_LANE(0, 1), 1));
    scene_check_split(&t);
    trace_release(&t);
}

static void test_claim(void **state)
{
    (void)state;
    scene_read(TWO_DEVICES "op 0.4:2 claim at=0 claimed=1 done=60\n"
                           "op 0.1:1 launch at=5 wait=0.4:2 label=7 span=62-70 done=71\n"
                           "end at=80\n",
               &t);
    assert_int_equal(t.devices[0].cause[TRACE_CAUSE_CLAIM], 55 * US);
    assert_int_equal(t.devices[0].cause[TRACE_CAUSE_OVERHEAD], 2 * US);
    scene_check_split(&t);
    trace_release(&t);
}

/* A position in the middle of an operation counts as that of the operation before it. */
static void test_middle(void **state)
{
    (void)state;
    scene_read(TWO_DEVICES "op 0.1:3 launch at=0 span=0-50 done=51\n"
                           "op 0.1:9 launch at=0 span=50-90 done=91\n"
                           "op 1.1:1 launch at=10 wait=0.1:5 span=60-70 done=71\n"
                           "end at=99\n",
               &t);
    assert_int_equal(t.devices[1].for_device[0], 40 * US);
    assert_int_equal(t.waits[0].other, trace_find_op(&t, SCRIPT_LANE(0, 1), 3));
    scene_check_split(&t);
    trace_release(&t);
}

/* A thread always waits for room. Its work waits in the lane and is on its way, and more room would
 * not speed it up. */
static void test_full_ring_with_work(void **state)
{
    (void)state;
    scene_read(TWO_DEVICES "op 0.1:1 launch at=0 span=0-10 done=11\n"
                           "op 0.1:2 launch at=1 span=15-20 done=21\n"
                           "pause room at=2-30 lane=0.1\n"
                           "op 0.1:3 launch at=31 span=32-40 done=41\n"
                           "end at=50\n",
               &t);
    const trace_device *d = &t.devices[0];
    assert_int_equal(d->cause[TRACE_CAUSE_OVERHEAD], 6 * US);
    assert_int_equal(d->cause[TRACE_CAUSE_RING], 10 * US);
    assert_int_equal(d->cause[TRACE_CAUSE_NOTHING], 1 * US);
    scene_check_split(&t);
    trace_release(&t);
}

/* Threads: a full ring here, one on the other device, memory, a call that writes. */
static void test_threads(void **state)
{
    (void)state;
    scene_read(TWO_DEVICES "op 0.1:1 launch at=0 span=0-10 done=11\n"
                           "op 1.1:1 launch at=0 span=0-200 done=201\n"
                           "pause room at=20-30 lane=0.1\n"
                           "pause room at=40-60 lane=1.1\n"
                           "pause map at=70-100\n"
                           "alloc 5 at=150 took=40 bytes=100\n"
                           "transfer 0.2:0 at=160 returned=170 way=7 dst=0 bytes=100\n"
                           "loss 0 at=175 it fell off\n"
                           "restart 0 at=176-180\n"
                           "op 0.1:2 launch at=190 span=190-200 done=201\n"
                           "end at=220\n",
               &t);
    const trace_device *d = &t.devices[0];
    assert_int_equal(d->cause[TRACE_CAUSE_RING], 30 * US);
    assert_int_equal(d->cause[TRACE_CAUSE_MEMORY], 70 * US);
    assert_int_equal(d->cause[TRACE_CAUSE_COPY], 10 * US);
    assert_int_equal(d->cause[TRACE_CAUSE_LOSS], 5 * US);
    assert_int_equal(d->cause[TRACE_CAUSE_NOTHING], 65 * US);
    for (size_t i = 0; i < d->n_pieces; i++) {
        if (d->pieces[i].state == TRACE_IDLE && d->pieces[i].begin == 40 * US) {
            assert_int_equal(d->pieces[i].other, 1);
        }
    }
    assert_int_equal(t.n_losses, 1);
    assert_string_equal(t.losses[0].message, "it fell off");
    scene_check_split(&t);
    trace_release(&t);
}

/* Several operations share one time. The device's clock is 3 ms ahead, and a thousandth faster. */
static void test_edges_and_clock(void **state)
{
    (void)state;
    scene_read("trace devices=1\nlane 0.1 kind=program\nname kernel 1 axpy\n"
               "clock 0 at=0 own=3000\nclock 0 at=1000000 own=1004000\n"
               "op 0.1:1 launch at=0 done=2500\n"
               "op 0.1:2 launch at=0 done=5500\n"
               "op 0.1:3 launch at=0 done=5600\n"
               "span 0.1:3 from=0 span=5002-8505\n"
               "end at=1000000\n",
               &t);
    assert_int_equal(t.n_stretches, 1);
    const trace_stretch *s = &t.stretches[0];
    assert_in_range(s->began, 1999900, 2000100);
    assert_in_range(s->ended, 5499400, 5499600);
    assert_int_equal(t.ops[0].ended, 2500 * US); /* seen done before the stretch ended */
    assert_int_equal(t.ops[2].ended, s->ended);
    assert_false(t.ops[1].measured);
    scene_check_split(&t);
    trace_release(&t);
}

/* On an idle lane a stretch begins by the host's clock, and ends by the device's clock, which is 3
 * ms ahead. */
static void test_by_clock(void **state)
{
    (void)state;
    scene_read("trace devices=1\nlane 0.1 kind=program\nclock 0 at=0 own=3000\n"
               "op 0.1:1 launch at=0 done=70\n"
               "span 0.1:1 from=0 span=20-3060 clock=1\n"
               "end at=100\n",
               &t);
    assert_int_equal(t.devices[0].compute, 40 * US);
    assert_int_equal(t.devices[0].cause[TRACE_CAUSE_OVERHEAD], 20 * US);
    scene_check_split(&t);
    trace_release(&t);
    /* if it also ends by the host's clock, clocks need no comparison; another stretch only ends by
     * it */
    scene_read("trace devices=1\nlane 0.1 kind=program\n"
               "op 0.1:1 launch at=0 done=70\n"
               "span 0.1:1 from=0 span=20-65 clock=3\n"
               "end at=100\n",
               &t);
    assert_int_equal(t.devices[0].compute, 45 * US);
    assert_int_equal(t.spans_by_clock, 1);
    scene_check_split(&t);
    trace_release(&t);
    scene_read("trace devices=1\nlane 0.1 kind=program\nclock 0 at=0 own=3000\n"
               "op 0.1:1 launch at=0 done=70\n"
               "span 0.1:1 from=0 span=3020-65 clock=2\n"
               "end at=100\n",
               &t);
    assert_int_equal(t.devices[0].compute, 45 * US);
    scene_check_split(&t);
    trace_release(&t);
}

/* Without device times, the host's times are used and counted. */
static void test_no_spans(void **state)
{
    (void)state;
    scene_read(TWO_DEVICES "op 0.1:1 launch at=0 issue=5 done=50\n"
                           "op 0.1:2 launch at=1 issue=6 done=80\n"
                           "end at=99\n",
               &t);
    assert_int_equal(t.unplaced, 2);
    assert_int_equal(t.devices[0].compute, 75 * US);
    assert_true(t.stretches[0].approximate);
    scene_check_split(&t);
    trace_release(&t);
}

/* The SUBMIT announces more waits than follow. The delay after the known wait has an unknown cause,
 * and is not overhead. */
static void test_missing_waits(void **state)
{
    (void)state;
    scene_read(TWO_DEVICES "op 0.1:1 launch at=0 span=2-50 done=51\n"
                           "op 1.1:1 launch at=10 wait=0.1:1 waits=3 label=7 span=80-90 done=91\n"
                           "op 1.1:2 launch at=20 span=95-99 done=100\n"
                           "end at=120\n",
               &t);
    const trace_device *d = &t.devices[1];
    assert_int_equal(t.lost_waits, 2);
    assert_int_equal(t.unknown_ops, 1);
    assert_int_equal(d->cause[TRACE_CAUSE_NOTHING], 10 * US);
    assert_int_equal(d->cause[TRACE_CAUSE_DEVICE], 40 * US);
    assert_int_equal(d->cause[TRACE_CAUSE_UNKNOWN], 30 * US);
    assert_int_equal(d->cause[TRACE_CAUSE_OVERHEAD], 5 * US);
    assert_int_equal(t.along[TRACE_ALONG_UNKNOWN], 30 * US);
    scene_check_split(&t);
    trace_release(&t);
}

/* A wait for an operation without SUBMIT is unknown, too, and so is the cause behind another
 * device's wait. */
static void test_unknown_waits(void **state)
{
    (void)state;
    scene_read(TWO_DEVICES "op 0.1:5 launch at=0 wait=1.2:7 span=40-50 done=51\n"
                           "op 1.1:1 launch at=10 wait=0.1:5 label=7 span=52-90 done=91\n"
                           "end at=120\n",
               &t);
    assert_int_equal(t.lost_waits, 0);
    assert_int_equal(t.unknown_ops, 1);
    assert_int_equal(t.devices[0].cause[TRACE_CAUSE_UNKNOWN], 40 * US);
    assert_int_equal(t.devices[1].cause[TRACE_CAUSE_UNKNOWN], 30 * US);
    assert_int_equal(t.devices[1].cause[TRACE_CAUSE_DEVICE], 10 * US);
    assert_int_equal(t.devices[1].cause[TRACE_CAUSE_OVERHEAD], 2 * US);
    scene_check_split(&t);
    trace_release(&t);
}

/* The file was full at 100, and its later records are incomplete. The window ends there, and no
 * operation is on its way. */
static void test_full_file(void **state)
{
    (void)state;
    scene_read(TWO_DEVICES "op 0.1:1 launch at=0 issue=1 span=2-30 done=31\n"
                           "op 0.1:2 launch at=3 issue=4\n"
                           "op 0.1:3 launch at=3 issue=5\n"
                           "op 1.1:1 launch at=40 issue=41 span=42-90 done=91\n"
                           "memory 0 at=100 use=1 held=1 limit=0\n"
                           "op 0.1:4 launch at=102\n"
                           "op 1.1:2 launch at=103\n"
                           "dropped 900 kind=2 at=5000 partial=2\n"
                           "end at=5000\n",
               &t);
    assert_true(t.ended_early);
    assert_int_equal(t.n_ops, 4);
    assert_int_equal(t.end, 100 * US);
    assert_int_equal(t.length, 100 * US);
    assert_int_equal(t.devices[0].compute, 98 * US); /* the second one counts as running on */
    assert_int_equal(t.devices[1].cause[TRACE_CAUSE_NOTHING], 50 * US);
    assert_int_equal(t.dropped, 900);
    scene_check_split(&t);
    trace_release(&t);
    /* a file that does not state how many records are incomplete */
    scene_read(TWO_DEVICES "op 0.1:1 launch at=0 issue=1 span=2-30 done=31\n"
                           "op 0.1:2 launch at=3 issue=4\n"
                           "memory 0 at=100 use=1 held=1 limit=0\n"
                           "dropped 900 kind=2 at=5000\n"
                           "end at=5000\n",
               &t);
    assert_int_equal(t.end, 100 * US);
    assert_int_equal(t.devices[0].compute, 98 * US);
    scene_check_split(&t);
    trace_release(&t);
}

/* An engine's records had no room. A later operation of the lane that was done proves that an
 * earlier one was, too. Otherwise its time is unknown. */
static void test_dropped_ends(void **state)
{
    (void)state;
    scene_read(TWO_DEVICES "op 0.1:1 launch at=0 issue=1 span=2-30 done=31\n"
                           "op 0.1:2 launch at=3\n"
                           "op 0.1:3 launch at=60 issue=61 span=62-90 done=91\n"
                           "op 1.1:1 launch at=10 issue=11 span=12-40 done=41\n"
                           "op 1.1:2 launch at=10\n"
                           "dropped 2 kind=1 device=0 at=70\n"
                           "dropped 2 kind=1 device=1 at=70\n"
                           "end at=100\n",
               &t);
    assert_int_equal(t.ops[1].done, 91 * US);
    assert_int_equal(t.devices[0].cause[TRACE_CAUSE_OVERHEAD], 2 * US);
    assert_int_equal(t.devices[1].cause[TRACE_CAUSE_UNKNOWN], 60 * US);
    assert_int_equal(t.devices[1].cause[TRACE_CAUSE_OVERHEAD], 2 * US);
    scene_check_split(&t);
    trace_release(&t);
}

static void test_critical_path(void **state)
{
    (void)state;
    scene_read(TWO_DEVICES "op 0.1:1 launch at=0 span=3-50 done=51\n"
                           "pause wait at=1-55 lane=0.1 position=1\n"
                           "op 0.2:1 copy at=60 span=62-80 done=81 way=1 dst=0 bytes=9\n"
                           "op 1.1:1 launch at=61 wait=0.2:1 span=85-95 done=96\n"
                           "op 1.1:2 launch at=61 span=95-99 done=100\n"
                           "end at=120\n",
               &t);
    assert_int_equal(t.n_critical, 4);
    assert_int_equal(t.along[TRACE_ALONG_COMPUTE], 61 * US);
    assert_int_equal(t.along[TRACE_ALONG_TRANSFER], 18 * US);
    assert_int_equal(t.along[TRACE_ALONG_HOST], 10 * US);
    assert_int_equal(t.along[TRACE_ALONG_WAY], 10 * US);
    scene_check_split(&t);
    trace_release(&t);
}

/* A call waits for a launch of 50 us; afterwards the thread submits at 70. */
static void read_call(const char *call)
{
    char text[2048];
    snprintf(text, sizeof text,
             TWO_DEVICES "op 0.1:1 launch at=0 issue=1 span=2-50 done=51\n"
                         "%s\n"
                         "op 1.1:1 launch at=70 span=70-80 done=81\n"
                         "end at=120\n",
             call);
    scene_read(text, &t);
    scene_check_split(&t);
}

/* Whichever call the thread waits in, the path continues with the work that it waited for. */
static void test_path_through_calls(void **state)
{
    (void)state;
    static const char *const calls[] = {
        "pause wait at=1-55 lane=0.1 position=1",
        "pause room at=1-55 lane=0.1 position=1",
        "pause chunk at=1-55 lane=0.1 position=1 device=0",
        "pause memory at=1-55 device=0",
    };
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        read_call(calls[i]);
        assert_int_equal(t.n_critical, 2);
        assert_int_equal(t.along[TRACE_ALONG_COMPUTE], 58 * US);
        assert_int_equal(t.along[TRACE_ALONG_HOST], 20 * US);
        trace_release(&t);
    }
    /* a read ends with its last copy to the host, which another thread may have submitted */
    read_call("op 0.2:1 copy at=1 wait=0.1:1 issue=2 span=50-54 done=55 way=2 src=0 bytes=9 thread=9\n"
              "transfer 0.0:0 at=1 returned=56 way=8 bytes=9 src=0 dst=255");
    assert_int_equal(t.n_critical, 3);
    assert_int_equal(t.along[TRACE_ALONG_COMPUTE], 58 * US);
    assert_int_equal(t.along[TRACE_ALONG_TRANSFER], 4 * US);
    assert_int_equal(t.along[TRACE_ALONG_HOST], 16 * US);
    trace_release(&t);
    /* at 60 the thread checked work that had ended long before, so it was not held up */
    read_call("op 0.2:1 copy at=0 issue=1 span=10-14 done=15 way=1 dst=0 bytes=9\n"
              "pause wait at=1-55 lane=0.1 position=1\n"
              "pause wait at=60-61 lane=0.2 position=1");
    assert_int_equal(t.n_critical, 2);
    assert_int_equal(t.along[TRACE_ALONG_COMPUTE], 58 * US);
    trace_release(&t);
    /* skips work that is not in the trace */
    read_call("pause wait at=1-55 lane=0.1 position=1\npause chunk at=56-57 device=0\npause code at=58-59 device=0");
    assert_int_equal(t.n_critical, 2);
    trace_release(&t);
}

/* Fills count as compute, also in lanes for copies; kernels that move bytes there do not. */
static void test_fills(void **state)
{
    (void)state;
    scene_read("trace devices=1 detail=full\nlane 0.1\nlane 0.2 kind=on\nclock 0 at=0 own=0\n"
               "op 0.2:1 fill at=0 span=1-11 done=12 bytes=64\n"
               "op 0.2:2 launch at=0 span=11-31 done=32\n"
               "op 0.2:3 fill at=0 done=72\n"
               "op 0.2:4 fill at=0 done=72\n"
               "span 0.2:4 from=2 op=1 span=31-71\n"
               "end at=80\n",
               &t);
    assert_int_equal(t.devices[0].compute, 50 * US);
    assert_int_equal(t.devices[0].transfer, 20 * US);
    assert_int_equal(t.along[TRACE_ALONG_COMPUTE], 50 * US);
    assert_int_equal(t.along[TRACE_ALONG_TRANSFER], 20 * US);
    scene_check_split(&t);
    trace_release(&t);
}

static const trace_loss *loss_at(int64_t us)
{
    for (size_t i = 0; i < t.n_losses; i++) {
        if (t.losses[i].time == us * US) {
            return &t.losses[i];
        }
    }
    fail_msg("no loss at %d us", (int)us);
    return NULL;
}

/* A file may list a RESTART before its LOSS, whose time is earlier. Each belongs to the last loss
 * of its device before it. */
static void test_losses(void **state)
{
    (void)state;
    scene_read(TWO_DEVICES "op 0.1:1 launch at=0 span=0-10 clock=3 done=11\n"
                           "op 1.1:1 launch at=0 span=0-200 clock=3 done=201\n"
                           "restart 0 at=60-70\n"
                           "loss 0 at=50 again\n"
                           "restart 1 at=31-35\n"
                           "restart 0 at=30-40\n"
                           "loss 1 at=25 the other\n"
                           "loss 0 at=20 first\n"
                           "op 0.1:2 launch at=90 span=90-100 clock=3 done=101\n"
                           "end at=220\n",
               &t);
    assert_int_equal(t.n_losses, 3);
    assert_int_equal(loss_at(20)->ended, 40 * US);
    assert_int_equal(loss_at(50)->ended, 70 * US);
    assert_int_equal(loss_at(25)->ended, 35 * US);
    assert_string_equal(loss_at(50)->message, "again");
    assert_int_equal(t.devices[0].cause[TRACE_CAUSE_LOSS], 40 * US);
    assert_int_equal(t.ignored, 0);
    scene_check_split(&t);
    trace_release(&t);
    /* the first restart is missing, and the second loss has none */
    scene_read(TWO_DEVICES "op 1.1:1 launch at=0 span=0-200 done=201\n"
                           "restart 0 at=10-15\n"
                           "loss 0 at=20 first\n"
                           "loss 0 at=50 again\n"
                           "end at=220\n",
               &t);
    assert_int_equal(loss_at(20)->ended, TRACE_UNSEEN);
    assert_int_equal(loss_at(50)->ended, TRACE_UNSEEN);
    assert_int_equal(t.devices[0].cause[TRACE_CAUSE_LOSS], 180 * US);
    scene_check_split(&t);
    trace_release(&t);
}

/* A loss ends the device's unfinished operations. The first one of a lane ran until then, the
 * others never did. */
static void test_lost_operations(void **state)
{
    (void)state;
    scene_read(TWO_DEVICES "op 0.1:1 launch at=0 issue=1 span=2-300 clock=3 done=301\n"
                           "op 1.1:1 launch at=0 issue=1 span=2-20 clock=3 done=21\n"
                           "op 1.1:2 launch at=3 issue=4\n"
                           "op 1.1:3 launch at=3 issue=5\n"
                           "op 1.1:4 launch at=6\n"
                           "op 0.1:2 launch at=7 wait=1.1:3 issue=60 refused=1\n"
                           "loss 1 at=50 first\n"
                           "op 1.1:5 launch at=60\n"
                           "restart 1 at=70-80\n"
                           "op 1.1:6 launch at=100 issue=101 span=102-120 clock=3 done=121\n"
                           "op 1.1:7 launch at=130\n"
                           "loss 1 at=150 again\n"
                           "end at=400\n",
               &t);
    const trace_device *d = &t.devices[1];
    size_t first = (size_t)trace_find_op(&t, SCRIPT_LANE(1, 1), 1);
    assert_int_equal(t.ops[first + 1].ended, 50 * US);
    for (size_t i = 0; i < 7; i++) {
        assert_int_equal(t.ops[first + i].lost, i != 0 && i != 5);
        assert_int_equal(t.ops[first + i].failed, i != 0 && i != 1 && i != 5);
    }
    assert_int_equal(d->compute, (18 + 30 + 18) * US);
    assert_int_equal(d->cause[TRACE_CAUSE_LOSS], (30 + 150) * US);
    assert_int_equal(d->cause[TRACE_CAUSE_OVERHEAD], (2 + 2) * US);
    assert_int_equal(d->cause[TRACE_CAUSE_NOTHING], (20 + 10 + 20) * US);
    assert_int_equal(t.unplaced, 1);
    assert_int_equal(t.lost, 5);
    assert_int_equal(t.failed, 1);
    assert_in_range((int)(d->queue_mean * 300), 197, 199); /* nothing is queued after its loss */
    scene_check_split(&t);
    trace_release(&t);
    /* after a restart, the first operation is lost again; a loss without restart ends with the next
     * restart */
    scene_read(TWO_DEVICES "op 0.1:1 launch at=0 issue=1 span=2-400 clock=3 done=401\n"
                           "op 1.1:1 launch at=0 issue=1\n"
                           "loss 1 at=50 first\n"
                           "restart 1 at=70-80\n"
                           "op 1.1:2 launch at=100 issue=101\n"
                           "op 1.1:3 launch at=102 issue=103\n"
                           "loss 1 at=150 again\n"
                           "op 1.1:4 launch at=160\n"
                           "loss 1 at=200 and again\n"
                           "restart 1 at=210-220\n"
                           "op 1.1:5 launch at=230 issue=231\n"
                           "end at=500\n",
               &t);
    first = (size_t)trace_find_op(&t, SCRIPT_LANE(1, 1), 1);
    static const int64_t done[] = {50, 150, 150, 160};
    for (size_t i = 0; i < 4; i++) {
        assert_true(t.ops[first + i].lost);
        assert_int_equal(t.ops[first + i].failed, i > 1);
        assert_int_equal(t.ops[first + i].done, done[i] * US);
    }
    assert_false(t.ops[first + 4].lost);
    assert_int_equal(t.devices[1].compute, (49 + 49) * US);
    scene_check_split(&t);
    trace_release(&t);
}

#define BEHIND_SCENE                                                                                                   \
    TWO_DEVICES "op 0.1:1 launch at=0 issue=1 span=2-30 done=31\n"                                                     \
                "op 1.1:3 launch at=10 wait=0.1:1 label=7 bytes=9 issue=26 span=83-90 done=91\n"                       \
                "op 0.1:2 launch at=20 issue=21 span=30-80 done=81\n"                                                  \
                "op 0.1:3 launch at=22 issue=50 span=80-95 done=96\n"

/* The event stands behind the second launch, which was submitted later than the waiting
 * operation. */
static void test_behind(void **state)
{
    (void)state;
    scene_read(BEHIND_SCENE "end at=120\n", &t);
    assert_int_equal(t.devices[1].cause[TRACE_CAUSE_DEVICE], 20 * US);
    assert_int_equal(t.devices[1].cause[TRACE_CAUSE_OVERHEAD], 53 * US);
    trace_release(&t);
    scene_read(BEHIND_SCENE "behind 1.1:2 at=25 other=0.1:2\nend at=120\n", &t);
    const trace_op *op = &t.ops[trace_find_op(&t, SCRIPT_LANE(1, 1), 3)];
    assert_int_equal(t.devices[1].for_device[0], 70 * US);
    assert_int_equal(t.devices[1].cause[TRACE_CAUSE_OVERHEAD], 3 * US);
    assert_int_equal(op->holder, trace_find_op(&t, SCRIPT_LANE(0, 1), 2));
    assert_true(t.waits[op->held_by].behind);
    assert_string_equal(trace_name(&t, t.waits[op->held_by].label), "weights");
    assert_int_equal(t.ignored, 0);
    scene_check_split(&t);
    trace_release(&t);
}

/* Without a matching operation or wait, or no further behind, nothing changes. Nonsense is
 * counted. */
static void test_behind_nothing(void **state)
{
    (void)state;
    scene_read(BEHIND_SCENE "behind 1.1:3 at=25 other=0.1:2\n"  /* no operation */
                            "behind 0.1:1 at=25 other=1.1:3\n"  /* no wait */
                            "behind 1.1:2 at=25 other=0.2:9\n"  /* none for that lane */
                            "behind 1.1:2 at=25 other=0.1:0\n"  /* no further */
                            "behind 31.9:2 at=25 other=0.1:2\n" /* no lane */
                            "behind 1.1:2 at=25 other=1.1:9\n"  /* its own */
                            "end at=120\n",
               &t);
    assert_int_equal(t.devices[1].cause[TRACE_CAUSE_DEVICE], 20 * US);
    assert_int_equal(t.ignored, 1);
    trace_release(&t);
    /* the trace lacks the awaited operation, but it lies in front of the event */
    scene_read(TWO_DEVICES "op 1.1:3 launch at=10 wait=0.1:1 issue=26 span=83-90 done=91\n"
                           "op 0.1:2 launch at=0 issue=21 span=30-80 done=81\n"
                           "behind 1.1:2 at=25 other=0.1:2\nend at=120\n",
               &t);
    assert_int_equal(t.unknown_ops, 0);
    assert_int_equal(t.devices[1].for_device[0], 70 * US);
    scene_check_split(&t);
    trace_release(&t);
}

/* Threads' times are within 200 ns of the clock. Here a claim seems submitted after the work that
 * waits for it, and a launch after its call. */
static void test_out_of_order(void **state)
{
    (void)state;
    scene_read(TWO_DEVICES "op 0.4:2 claim at=5.2 claimed=5.3 done=60\n"
                           "op 0.1:1 launch at=5 wait=0.4:2 label=7 issue=4.9-5.1 span=62-70 done=71\n"
                           "op 1.1:1 mark at=5.3 wait=0.1:1 done=72\n"
                           "op 1.1:2 launch at=5.1 span=73-80 done=81\n"
                           "pause wait at=75-90.3 lane=1.1 position=2\n"
                           "op 0.1:2 launch at=90 issue=89.9 span=91-95 done=96\n"
                           "pause map at=95.2-95\n"
                           "transfer 0.2:0 at=95.2 returned=95 way=7 dst=0 bytes=100\n"
                           "end at=120\n",
               &t);
    assert_int_equal(t.ignored, 0);
    assert_int_equal(t.unknown_ops, 0);
    assert_int_equal(t.unplaced, 0);
    assert_int_equal(t.n_pauses, 2);
    assert_int_equal(t.n_transfers, 1);
    assert_int_equal(t.devices[0].cause[TRACE_CAUSE_CLAIM], 55 * US);
    assert_int_equal(t.devices[1].cause[TRACE_CAUSE_CLAIM] + t.devices[1].for_device[0], 65 * US - 100);
    assert_int_equal(t.along[TRACE_ALONG_CLAIM], 55 * US - 300);
    assert_int_equal(t.devices[0].delays.issue_p50, 0);
    assert_int_equal(t.n_critical,
                     /* the claim, a launch, the other device's two, and the operation submitted
                      * after them */
                     5);
    scene_check_split(&t);
    trace_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states),          cmocka_unit_test(test_for_device),
        cmocka_unit_test(test_chain),           cmocka_unit_test(test_claim),
        cmocka_unit_test(test_middle),          cmocka_unit_test(test_full_ring_with_work),
        cmocka_unit_test(test_threads),         cmocka_unit_test(test_edges_and_clock),
        cmocka_unit_test(test_no_spans),        cmocka_unit_test(test_by_clock),
        cmocka_unit_test(test_critical_path),   cmocka_unit_test(test_path_through_calls),
        cmocka_unit_test(test_missing_waits),   cmocka_unit_test(test_unknown_waits),
        cmocka_unit_test(test_fills),           cmocka_unit_test(test_full_file),
        cmocka_unit_test(test_dropped_ends),    cmocka_unit_test(test_losses),
        cmocka_unit_test(test_lost_operations), cmocka_unit_test(test_behind),
        cmocka_unit_test(test_behind_nothing),  cmocka_unit_test(test_out_of_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
