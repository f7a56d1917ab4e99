/* test_findings.c - the first finding in traces of programs with one fault each.
 *
 * Promise: Each planted fault is the first finding, once, with gain and remedy; else none is found.
 * Threads: one.
 */
#include "trace/scene.h"

#include <stdbool.h>
#include <stdio.h>
#include "cli/trace/parts.h"
#include "trace/planted.h"

static trace t;

/* True if the finding leads to a place: a gap of its own cause that is a piece of the device, or an
 * operation. */
static bool has_place(const trace_finding *f)
{
    static const struct {
        const char *id;
        trace_cause cause;
    } causes[] = {{"losses", TRACE_CAUSE_LOSS},
                  {"idle-for-device", TRACE_CAUSE_DEVICE},
                  {"program-memory", TRACE_CAUSE_COPY},
                  {"staged-peer", TRACE_CAUSE_COPY},
                  {"idle-for-claim", TRACE_CAUSE_CLAIM},
                  {"ring-full", TRACE_CAUSE_RING},
                  {"memory-pauses", TRACE_CAUSE_MEMORY},
                  {"host-wait", TRACE_CAUSE_NOTHING},
                  {"idle-nothing-submitted", TRACE_CAUSE_NOTHING},
                  {"missing-waits", TRACE_CAUSE_UNKNOWN}};
    bool by_path = strcmp(f->id, "slow-path") == 0 || strcmp(f->id, "small-transfers") == 0;
    if (f->gap.part == 0) {
        return f->op != TRACE_NONE && (by_path || strcmp(f->id, "staged-peer") == 0 || strcmp(f->id, "losses") == 0);
    }
    const trace_device *d = &t.devices[f->gap.device];
    size_t i = 0;
    while (i < d->n_pieces && d->pieces[i].begin != f->gap.begin) {
        i++;
    }
    bool copies = strcmp(f->id, "idle-for-copy") == 0; /* includes those that ran alone */
    bool good = i < d->n_pieces && d->pieces[i].end == f->gap.end &&
                (d->pieces[i].state == TRACE_IDLE || (copies && d->pieces[i].state == TRACE_TRANSFER)) &&
                f->gap.part <= f->gap.end - f->gap.begin;
    for (size_t c = 0; c < sizeof causes / sizeof causes[0]; c++) {
        good = good && (strcmp(f->id, causes[c].id) != 0 || d->pieces[i].cause == causes[c].cause);
    }
    return good;
}

static void test_planted(void **state)
{
    (void)state;
    int wrong = 0;
    for (int i = 0; i < planted_count; i++) {
        const planted *p = &planted_traces[i];
        script s;
        char error[512];
        planted_make(&s, p);
        assert_true(trace_read_bytes(s.records, s.n * sizeof *s.records, &t, error));
        scene_check_split(&t);
        const trace_finding *first = t.n_findings > 0 ? &t.findings[0] : NULL;
        bool right = p->id ? first && strcmp(first->id, p->id) == 0 : !first;
        if (!right) {
            print_error("%s: the first finding is %s (%s)\n", p->name, first ? first->id : "none",
                        first ? first->title : "");
            wrong++;
        }
        for (size_t f = 0; f < t.n_findings; f++) {
            assert_in_range(t.findings[f].gain, 0, t.end - t.begin);
            assert_int_not_equal(trace_finding_number(t.findings[f].id), TRACE_NONE);
            assert_null(strstr(t.findings[f].evidence, "no operation"));
            if (!has_place(&t.findings[f])) {
                print_error("%s: %s has no place\n", p->name, t.findings[f].id);
                wrong++;
            }
            assert_true(t.findings[f].title[0] && t.findings[f].evidence[0] && t.findings[f].remedy[0]);
            assert_true(f == 0 || t.findings[f].gain <= t.findings[f - 1].gain);
        }
        trace_release(&t);
        script_release(&s);
    }
    assert_int_equal(wrong, 0);
}

/* The finding about a full ring names the ring's device. */
static void test_ring_of_other(void **state)
{
    (void)state;
    scene_read(TWO_DEVICES "op 1.1:1 launch at=0 span=1-5000 done=5001\n"
                           "op 0.1:1 launch at=1 span=2-1000 done=1001\n"
                           "pause room at=900-4000 lane=1.1\n"
                           "op 0.1:2 launch at=4000 span=4001-9000 done=9001\n"
                           "end at=9010\n",
               &t);
    const trace_finding *f = scene_find(&t, "ring-full");
    assert_int_equal(f->device, 0);
    assert_string_equal(f->title,
                        "device 0 stood still for 3 ms (33 %): a thread waited for room in a lane's ring of device 1");
    trace_release(&t);
}

/* Checks the numbers and names in a finding. */
static void test_evidence(void **state)
{
    (void)state;
    script s;
    char error[512];
    script_begin(&s);
    planted_make(&s, &planted_traces[1]);
    assert_true(trace_read_bytes(s.records, s.n * sizeof *s.records, &t, error));
    const trace_finding *f = scene_find(&t, "idle-nothing-submitted");
    assert_non_null(f);
    assert_int_equal(f->device, 0);
    assert_in_range(f->gain, 48000000, 50000000);
    assert_non_null(strstr(f->evidence, "'load'"));
    trace_release(&t);
    script_release(&s);

    planted_make(&s, &planted_traces[2]);
    assert_true(trace_read_bytes(s.records, s.n * sizeof *s.records, &t, error));
    f = scene_find(&t, "idle-for-device");
    assert_non_null(f);
    assert_int_equal(f->device, 1);
    assert_int_equal(f->other, 0);
    assert_non_null(strstr(f->evidence, "'weights'"));
    assert_non_null(strstr(f->evidence, "axpy"));
    trace_release(&t);
    script_release(&s);
}

static void read_planted(const char *name)
{
    script s;
    char error[512];
    const planted *p = planted_traces;
    while (strcmp(p->name, name) != 0) {
        assert_true(++p < planted_traces + planted_count);
    }
    planted_make(&s, p);
    assert_true(trace_read_bytes(s.records, s.n * sizeof *s.records, &t, error));
    script_release(&s);
}

/* Devices 1 and 3 wait for the slow device 2, and device 0 waits for them. Only the imbalance is a
 * finding. */
static void test_bystanders(void **state)
{
    (void)state;
    script s;
    char error[512], line[200];
    script_begin(&s);
    script_run(&s, "trace devices=4 detail=full\nlane 0.1\nlane 1.1\nlane 2.1\nlane 3.1\nname kernel 1 axpy\n"
                   "clock 0 at=0 own=0\nclock 1 at=0 own=0\nclock 2 at=0 own=0\nclock 3 at=0 own=0\n");
    for (int i = 0; i < 40; i++) {
        static const int behind[4] = {3008, 2004, 0, 2004}, waits_for[4] = {1, 2, 2, 2};
        for (int d = 0; d < 4; d++) {
            int begin = 2000 * i + behind[d], end = begin + (d == 2 ? 2000 : 1000);
            char wait[32] = "";
            if (d != 2) {
                snprintf(wait, sizeof wait, "wait=%d.1:%d", waits_for[d], i + 1);
            }
            snprintf(line, sizeof line, "op %d.1:%d launch at=%d span=%d-%d done=%d %s\n", d, i + 1, i, begin, end,
                     end + 1, wait);
            script_run(&s, line);
        }
    }
    assert_true(trace_read_bytes(s.records, s.n * sizeof *s.records, &t, error));
    scene_check_split(&t);
    assert_true(t.devices[0].for_device[1] > (t.end - t.begin) / 3);
    assert_int_equal(t.n_findings, 1);
    assert_string_equal(t.findings[0].id, "imbalance");
    assert_int_equal(t.findings[0].other, 2);
    assert_int_not_equal(t.findings[0].device, 2);
    assert_non_null(strstr(t.findings[0].evidence, "waited for other devices for"));
    trace_release(&t);
    script_release(&s);
}

/* A fault is stated once: a general finding leaves out everything that a more exact one
 * explains. */
static void test_once(void **state)
{
    (void)state;
    read_planted("near-limit");
    assert_null(scene_find(&t, "memory-pauses"));
    assert_in_range(scene_find(&t, "memory-near-limit")->gain, 13000000, 14500000);
    assert_non_null(strstr(scene_find(&t, "memory-near-limit")->evidence, "990 bytes of 1000 bytes"));
    trace_release(&t);

    read_planted("fragmented");
    assert_null(scene_find(&t, "memory-pauses"));
    assert_int_equal(scene_find(&t, "memory-fragmented")->device, 1);
    assert_in_range(scene_find(&t, "memory-fragmented")->gain, 13000000, 14500000);
    trace_release(&t);

    read_planted("staged-pieces");
    assert_null(scene_find(&t, "slow-path"));
    assert_null(scene_find(&t, "small-transfers"));
    assert_int_equal(scene_find(&t, "staged-peer")->other, 0);
    trace_release(&t);
}

/* Returns the copy path, or NULL. */
static const trace_link *find_link(int way)
{
    for (size_t i = 0; i < t.n_links; i++) {
        if (t.links[i].way == way) {
            return &t.links[i];
        }
    }
    return NULL;
}

/* A copy by an engine between pinned buffers is an operation and a call, but one copy. A copy by
 * the host within the call is one, too. */
static void test_host_copies(void **state)
{
    (void)state;
    scene_read(TWO_DEVICES "op 0.2:1 copy at=1 issue=2 span=3-1000 done=1001 bytes=1000000 way=5\n"
                           "transfer 0.2:1 at=1 returned=2 way=5 bytes=1000000\n"
                           "transfer 0.2:0 at=2000 returned=3000 way=5 bytes=500000\n"
                           "end at=3010\n",
               &t);
    const trace_link *l = find_link(HDI_RECORD_WAY_HOST);
    assert_non_null(l);
    assert_int_equal(l->count, 2);
    assert_int_equal(l->bytes, 1500000);
    trace_release(&t);
}

/* If some copies of a pair go directly, one device can reach the other; this was not known yet. */
static void test_untested_pair(void **state)
{
    (void)state;
    for (int direct = 0; direct < 2; direct++) {
        script s;
        char error[512];
        script_begin(&s);
        script_run(&s,
                   TWO_DEVICES "op 1.2:1 copy at=0 issue=1 span=2-9000 done=9001 bytes=3000000 way=1 dst=1 thread=9\n"
                               "transfer 1.2:1 at=0 returned=1 way=6 src=0 dst=1 bytes=3000000 thread=9\n"
                               "op 1.1:1 launch at=2 issue=9002 span=9003-19000 done=19001 wait=1.2:1\n");
        script_run(&s, direct ? "op 1.3:1 copy at=3 issue=19001 span=19002-20000 done=20001 bytes=3000000 way=4 src=0 "
                                "dst=1 thread=9\nend at=20010\n"
                              : "end at=20010\n");
        assert_true(trace_read_bytes(s.records, s.n * sizeof *s.records, &t, error));
        const trace_finding *f = scene_find(&t, "staged-peer");
        assert_non_null(f);
        assert_int_equal(strstr(f->remedy, "hd_peers_check") != NULL, direct);
        assert_int_equal(strstr(f->remedy, "does not reach") != NULL, !direct);
        assert_int_equal(strstr(f->evidence, "; 1 other of this pair went directly") != NULL, direct);
        trace_release(&t);
        script_release(&s);
    }
}

/* Threads that alternate by a lock leave no trace of it. The evidence is that the devices never
 * work at the same time. */
static void test_turns_by_lock(void **state)
{
    (void)state;
    script s;
    char error[512], line[160];
    script_begin(&s);
    script_run(&s, TWO_DEVICES);
    for (int i = 0; i < 20; i++) {
        int at = 1000 * i;
        snprintf(line, sizeof line, "op %d.1:%d launch at=%d issue=%d span=%d-%d done=%d thread=%d\n", i % 2, i / 2 + 1,
                 at, at + 1, at + 2, at + 950, at + 951, 5 + i % 2);
        script_run(&s, line);
    }
    script_run(&s, "end at=20000\n");
    assert_true(trace_read_bytes(s.records, s.n * sizeof *s.records, &t, error));
    const trace_finding *f = scene_find(&t, "idle-nothing-submitted");
    assert_non_null(f);
    assert_non_null(strstr(f->evidence, f->device == 0 ? "; device 1 worked for 9" : "; device 0 worked for 9"));
    trace_release(&t);
    script_release(&s);
}

/* Eight copies of 2 MB take 100 us each. One seems to begin too late: its call took longer, or the
 * clocks differ. The path counts only as fast as such a copy shows. */
static void test_best(void **state)
{
    (void)state;
    static const char *const late[] = {"issue=500-590 span=520-600", "issue=589-590 span=590-600 clock=1"};
    for (int i = 0; i < 2; i++) {
        script s;
        char error[512], line[160];
        script_begin(&s);
        script_run(&s, "trace devices=1 detail=full\nlane 0.2 kind=in\n");
        script_run(&s, i == 0 ? "clock 0 at=0 own=0\n" : "clock 0 at=0 own=0 within=90000\n");
        for (int n = 0; n < 8; n++) {
            int at = 200 * n + 100;
            snprintf(line, sizeof line,
                     "op 0.2:%d copy at=0 issue=%d-%d span=%d-%d done=%d bytes=2000000 way=1 dst=0\n", n + 1, at - 1,
                     at, at, at + 100, at + 101);
            if (n == 2) {
                snprintf(line, sizeof line, "op 0.2:3 copy at=0 %s done=601 bytes=2000000 way=1 dst=0\n", late[i]);
            }
            script_run(&s, line);
        }
        script_run(&s, "end at=2000\n");
        assert_true(trace_read_bytes(s.records, s.n * sizeof *s.records, &t, error));
        const trace_link *l = find_link(HDI_RECORD_WAY_TO_DEVICE);
        assert_non_null(l);
        assert_true(l->best >= l->rate);
        assert_true(l->best < 26e9);
        trace_release(&t);
        script_release(&s);
    }
}

/* Full memory costs nothing while the devices compute. */
static void test_full_but_busy(void **state)
{
    (void)state;
    scene_read(TWO_DEVICES "memory 0 at=1 use=990 held=1000 limit=1000\n"
                           "op 0.1:1 launch at=0 span=3-50000 done=50001\n"
                           "pause memory at=10-49000\n"
                           "op 0.1:2 launch at=49100 span=50000-60000 done=60001\n"
                           "end at=60000\n",
               &t);
    assert_null(scene_find(&t, "memory-near-limit"));
    trace_release(&t);
}

/* 60 launches, 5 us apart, each `way` us on its way, but each kernel's first one 20 ms. */
static void read_first_launches(int way)
{
    script s;
    char error[512], line[160];
    script_begin(&s);
    script_run(&s,
               "trace devices=1 detail=full\nlane 0.1\nname kernel 1 axpy\nname kernel 2 reduce\nclock 0 at=0 own=0\n");
    for (int i = 0, at = 0; i < 60; i++) {
        int begin = at + (i < 2 ? 20000 : way);
        snprintf(line, sizeof line, "op 0.1:%d launch at=%d issue=%d-%d span=%d-%d done=%d kernel=%d\n", i + 1, at,
                 at + 1, begin - 1, begin, begin + 500, begin + 501, 1 + i % 2);
        script_run(&s, line);
        at = begin + 505;
    }
    script_run(&s, "end at=200000\n");
    assert_true(trace_read_bytes(s.records, s.n * sizeof *s.records, &t, error));
    script_release(&s);
}

/* The extra time of a first launch is not launch overhead, but loading of code. */
static void test_first_launches(void **state)
{
    (void)state;
    read_first_launches(6);
    assert_true(t.devices[0].cause[TRACE_CAUSE_OVERHEAD] > 40000000);
    assert_null(scene_find(&t, "launch-overhead"));
    assert_non_null(scene_find(&t, "code-loading"));
    assert_int_equal(scene_find(&t, "code-loading")->gain, 2 * (20000000 - 6000));
    trace_release(&t);
    read_first_launches(200);
    assert_in_range(scene_find(&t, "launch-overhead")->gain, 11000000, 13000000);
    assert_int_equal(scene_find(&t, "code-loading")->gain, 2 * (20000000 - 200000));
    trace_release(&t);
    read_first_launches(20000);
    assert_null(scene_find(&t, "code-loading"));
    trace_release(&t);
}

/* The finding names the slowest operation, with its time. */
static void test_first_evidence(void **state)
{
    (void)state;
    read_planted("first-launch");
    const trace_finding *f = scene_find(&t, "code-loading");
    assert_non_null(f);
    assert_string_equal(f->title, "device 0 had nothing to do for 20 ms (25 %): kernels' code was being loaded");
    assert_non_null(strstr(f->evidence, "; the first launch of reduce was on its way for 20 ms"));
    assert_int_equal(t.ops[f->op].position, 2);
    assert_null(scene_find(&t, "launch-overhead"));
    trace_release(&t);

    read_planted("first-product");
    f = scene_find(&t, "code-loading");
    assert_non_null(strstr(f->evidence, "; the first launch of a matrix product was on its way for 82 ms"));
    assert_in_range(f->gain, 81900000, 82000000);
    trace_release(&t);

    read_planted("second-launch");
    assert_null(scene_find(&t, "code-loading"));
    trace_release(&t);

    read_planted("few");
    f = scene_find(&t, "launch-overhead");
    assert_non_null(f);
    assert_string_equal(f->title, "device 0 waited 20 ms (67 %) while the driver took operations");
    assert_string_equal(f->evidence, "10 operations; the longest call was for 0.1:4 reduce: 20 ms");
    trace_release(&t);

    read_planted("code");
    f = scene_find(&t, "code-loading");
    assert_null(strstr(f->evidence, "first launch"));
    assert_int_equal(f->op, TRACE_NONE);
    trace_release(&t);
}

/* Launches of 2 ms are not too short, even if a few are long on their way. */
static void test_long_operations(void **state)
{
    (void)state;
    script s;
    char line[128], error[512];
    script_begin(&s);
    script_run(&s, TWO_DEVICES);
    for (int i = 1, at = 0; i <= 60; i++) {
        int way = i == 30 ? 15000 : i % 20 == 0 ? 5000 : 5;
        snprintf(line, sizeof line, "op 0.1:%d launch at=%d kernel=1 issue=%d-%d span=%d-%d done=%d\n", i, at, at + 1,
                 at + way, at + way, at + way + 2000, at + way + 2001);
        script_run(&s, line);
        at += way + 2010;
    }
    assert_true(trace_read_bytes(s.records, s.n * sizeof *s.records, &t, error));
    script_release(&s);
    const trace_finding *f = scene_find(&t, "launch-overhead");
    assert_non_null(f);
    assert_non_null(strstr(f->title, "while operations were on their way to it"));
    assert_string_equal(f->evidence, "60 operations with 2 ms of computing each, and 59 short gaps before submits; the "
                                     "longest way was that of 0.1:30 axpy: 15 ms");
    assert_null(strstr(f->remedy, "larger grids"));
    assert_int_equal(t.ops[f->op].position, 30);
    trace_release(&t);
}

/* Two threads load code at once, also while a third thread's launch is on its way: no time counts
 * twice. */
static void test_code_once(void **state)
{
    (void)state;
    scene_read(TWO_DEVICES "lane 0.5 kind=program\n"
                           "op 0.1:1 launch at=0 span=3-1000 done=1001\n"
                           "pause code at=1000-5000 thread=5\n"
                           "pause code at=2000-5000 thread=6\n"
                           "pause code at=6000-11000 thread=5\n"
                           "op 0.5:1 launch at=6000 span=21000-50000 done=50001 kernel=2 thread=7\n"
                           "end at=50010\n",
               &t);
    const trace_finding *f = scene_find(&t, "code-loading");
    assert_non_null(f);
    assert_int_equal(f->gain, 4000000 + 15000000 + 3000);
    assert_int_equal(t.n_findings, 1);
    trace_release(&t);
}

/* Two threads that feed one device wait for another one at once. */
static void test_turns_once(void **state)
{
    (void)state;
    scene_read(TWO_DEVICES "lane 0.5 kind=program\n"
                           "op 1.1:1 launch at=0 span=3-30000 done=30001 thread=5\n"
                           "op 0.1:1 launch at=0 span=3-1000 done=1001 thread=5\n"
                           "op 0.5:1 launch at=0 span=3-900 done=901 thread=6\n"
                           "pause wait at=1000-20000 lane=1.1 position=1 thread=5\n"
                           "pause wait at=1000-20000 lane=1.1 position=1 thread=6\n"
                           "op 0.1:2 launch at=40000 span=40003-41000 done=41001 thread=5\n"
                           "end at=41010\n",
               &t);
    const trace_finding *f = scene_find(&t, "serialized-devices");
    assert_non_null(f);
    assert_string_equal(f->title, "device 0 had no work for 19 ms (46 %) while its thread waited for device 1");
    trace_release(&t);
}

/* A first launch holds up the operation that waits for it. */
static void test_waits_for_first(void **state)
{
    (void)state;
    scene_read(TWO_DEVICES "lane 0.5 kind=program\n"
                           "op 0.1:1 launch at=0 span=3-1000 done=1001\n"
                           "op 0.5:1 launch at=900 wait=0.1:2 span=31010-50000 done=50001\n"
                           "op 0.1:2 launch at=1000 span=30000-31000 done=31001 kernel=2\n"
                           "end at=50010\n",
               &t);
    const trace_finding *f = scene_find(&t, "code-loading");
    assert_non_null(f);
    assert_in_range(f->gain, 28990000, 29010000);
    assert_non_null(strstr(f->evidence, "the first launch of reduce"));
    trace_release(&t);
}

/* Findings with the same id on several devices form a group; the one with the largest gain comes
 * first. */
static void test_groups(void **state)
{
    (void)state;
    script s;
    char error[512], line[128];
    script_begin(&s);
    script_run(&s, "trace devices=3 detail=full\nlane 0.1\nlane 1.1\nlane 2.1\nname kernel 1 axpy\n"
                   "clock 0 at=0 own=0\nclock 1 at=0 own=0\nclock 2 at=0 own=0\n");
    /* each takes 3 ms and computes 1 ms, longer than the one before */
    for (int i = 0; i < 60; i++) {
        int d = i % 3, at = 1000 * i;
        snprintf(line, sizeof line, "op %d.1:%d launch at=%d span=%d-%d done=%d thread=%d\n", d, i / 3 + 1, at, at + 3,
                 at + 900 + 30 * d, at + 990, 5 + d);
        script_run(&s, line);
    }
    script_run(&s, "end at=61000\n");
    assert_true(trace_read_bytes(s.records, s.n * sizeof *s.records, &t, error));
    uint32_t devices = 0;
    int32_t first = TRACE_NONE;
    size_t n = 0;
    for (size_t i = 0; i < t.n_findings; i++) {
        bool leads = t.findings[i].first == (int32_t)i;
        assert_string_equal(t.findings[t.findings[i].first].id, t.findings[i].id);
        if (strcmp(t.findings[i].id, "idle-nothing-submitted") == 0) {
            assert_int_equal(leads, n == 0);
            first = n == 0 ? (int32_t)i : first;
            n++;
        }
    }
    assert_int_equal(n, 3);
    for (int32_t i = first; i != TRACE_NONE; i = t.findings[i].next) {
        devices |= 1u << t.findings[i].device;
        n--;
    }
    assert_int_equal(n, 0);
    assert_int_equal(devices, 7);
    trace_release(&t);
    script_release(&s);
}

/* A thread that waits for memory asks the program meanwhile, and maps some. Its time counts once;
 * that of two threads counts twice. */
static void test_nested_pauses(void **state)
{
    (void)state;
    scene_read(TWO_DEVICES "memory 0 at=1 use=990 held=1000 limit=1000\n"
                           "pause memory at=-500-0\n" /* before the window */
                           "op 0.1:1 launch at=0 span=3-1000 done=1001\n"
                           "pause callback at=1100-60000\n"
                           "pause map at=2000-3000 detail=1\n"
                           "pause memory at=1000-81000\n"
                           "pause callback at=70000-80000\n"
                           "pause memory at=90000-91000 thread=6\n"
                           "pause memory at=90000-91000 thread=7\n"
                           "op 0.1:2 launch at=91100 span=91110-92000 done=92001\n"
                           "end at=92100\n",
               &t);
    const trace_finding *f = scene_find(&t, "memory-near-limit");
    assert_non_null(f);
    assert_non_null(strstr(f->title, "threads waited 82 ms"));
    assert_string_equal(f->evidence, "buffers had up to 990 bytes of 1000 bytes");
    trace_release(&t);
}

/* 32 devices compute alternately, and each waits for all others: all findings are listed. */
static void test_many(void **state)
{
    (void)state;
    enum { N = 32, TURN = 2000 };
    script s;
    char error[512], line[200];
    script_begin(&s);
    script_run(&s, "trace devices=32 detail=full\nname kernel 1 axpy\n");
    for (int d = 0; d < N; d++) {
        char wait[32] = "";
        if (d > 0) {
            snprintf(wait, sizeof wait, "wait=%d.1:1", d - 1);
        }
        snprintf(line, sizeof line, "lane %d.1\nclock %d at=0 own=0\nop %d.1:1 launch at=0 span=%d-%d done=%d %s\n", d,
                 d, d, d * TURN, (d + 1) * TURN, (d + 1) * TURN, wait);
        script_run(&s, line);
        snprintf(line, sizeof line, "op %d.1:2 launch at=0 span=%d-%d done=%d wait=%d.1:1\n", d, N * TURN, N * TURN + 9,
                 N * TURN + 9, N - 1);
        script_run(&s, line);
    }
    script_run(&s, "end at=99999\n");
    assert_true(trace_read_bytes(s.records, s.n * sizeof *s.records, &t, error));
    size_t pairs = 0, listed = 0;
    for (size_t i = 0; i < t.n_findings; i++) {
        pairs += strcmp(t.findings[i].id, "idle-for-device") == 0;
    }
    assert_int_equal(pairs, N * (N - 1));
    const trace_finding *f = scene_find(&t, "idle-for-device");
    assert_int_equal(f->first, f - t.findings);
    for (int32_t i = f->first; i != TRACE_NONE; i = t.findings[i].next) {
        listed++;
    }
    assert_int_equal(listed, pairs);
    trace_release(&t);
    script_release(&s);
}

/* 32 devices compute one after the other, then all at once for so long that each earlier turn is
 * below 3 % of the window. Each waits for the previous device's result, or a thread waits for it
 * before it submits to the next. */
static void read_many_short(bool by_host)
{
    enum { N = 32, TURN = 2000, LAST = 4 * TURN };
    script s;
    char error[512], line[256];
    script_begin(&s);
    script_run(&s, "trace devices=32 detail=full\nname kernel 1 axpy\n");
    for (int d = 0; d < N; d++) {
        int at = by_host ? d * TURN : 0, begin = d * TURN + 3, end = (d + 1) * TURN;
        char wait[32] = "";
        if (d > 0 && !by_host) {
            snprintf(wait, sizeof wait, "wait=%d.1:1", d - 1);
        }
        snprintf(line, sizeof line, "lane %d.1\nclock %d at=0 own=0\nop %d.1:1 launch at=%d span=%d-%d done=%d %s\n", d,
                 d, d, at, begin, end, end, wait);
        script_run(&s, line);
        if (by_host) {
            snprintf(line, sizeof line, "pause wait at=%d-%d lane=%d.1 position=1\n", at + 1, end, d);
            script_run(&s, line);
        }
        snprintf(line, sizeof line, "op %d.1:2 launch at=%d span=%d-%d done=%d wait=%d.1:1\n", d,
                 by_host ? N * TURN : 0, N * TURN + 3, N * TURN + LAST, N * TURN + LAST, N - 1);
        script_run(&s, line);
    }
    script_run(&s, "end at=99999\n");
    assert_true(trace_read_bytes(s.records, s.n * sizeof *s.records, &t, error));
    script_release(&s);
}

/* Waiting for many devices is a finding, even if it is short for each of them. */
static void test_many_short(void **state)
{
    (void)state;
    for (int by_host = 0; by_host < 2; by_host++) {
        read_many_short(by_host);
        scene_check_split(&t);
        const trace_finding *f = scene_find(&t, by_host ? "serialized-devices" : "idle-for-device");
        uint32_t devices = 0;
        for (; f; f = f->next != TRACE_NONE ? &t.findings[f->next] : NULL) {
            devices |= UINT32_C(1) << f->device;
            assert_non_null(strstr(f->title, "31 other devices"));
        }
        assert_int_equal(devices, UINT32_MAX);
        trace_release(&t);
    }
}

static const char *time_text(int64_t ns)
{
    static char out[HDI_AMOUNT_BYTES];
    return trace_time_text(ns, out);
}

/* Numbers are rounded as on the page. */
static void test_rounding(void **state)
{
    (void)state;
    char out[HDI_AMOUNT_BYTES];
    assert_string_equal(time_text(0), "0 ns");
    assert_string_equal(time_text(999), "999 ns");
    assert_string_equal(time_text(12860), "12.9 us");
    assert_string_equal(time_text(12849), "12.8 us");
    assert_string_equal(time_text(12030), "12 us");
    assert_string_equal(time_text(999960), "1 ms");
    assert_string_equal(time_text(INT64_C(1290000000)), "1.3 s");
    assert_string_equal(trace_bytes_text(40898, out), "39.9 KiB");
    assert_string_equal(trace_bytes_text(1048575, out), "1 MiB");
    assert_string_equal(trace_bytes_text(1000, out), "1000 bytes");
    assert_non_null(trace_bytes_text(UINT64_MAX, out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_planted),
                                       cmocka_unit_test(test_ring_of_other),
                                       cmocka_unit_test(test_evidence),
                                       cmocka_unit_test(test_bystanders),
                                       cmocka_unit_test(test_groups),
                                       cmocka_unit_test(test_once),
                                       cmocka_unit_test(test_host_copies),
                                       cmocka_unit_test(test_best),
                                       cmocka_unit_test(test_turns_by_lock),
                                       cmocka_unit_test(test_untested_pair),
                                       cmocka_unit_test(test_full_but_busy),
                                       cmocka_unit_test(test_first_launches),
                                       cmocka_unit_test(test_first_evidence),
                                       cmocka_unit_test(test_long_operations),
                                       cmocka_unit_test(test_code_once),
                                       cmocka_unit_test(test_turns_once),
                                       cmocka_unit_test(test_waits_for_first),
                                       cmocka_unit_test(test_nested_pauses),
                                       cmocka_unit_test(test_many),
                                       cmocka_unit_test(test_many_short),
                                       cmocka_unit_test(test_rounding)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
