/* test_findings.c - traces of programs with one fault each: which finding is the first.
 *
 * Promise: Each planted fault is the first finding, stated once, with gain and remedy; a program without a fault has none.
 * Threads: one.
 */
#include "trace/scene.h"

#include <stdbool.h>
#include <stdio.h>
#include "trace/planted.h"

static trace t;

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
            assert_true(t.findings[f].title[0] && t.findings[f].evidence[0] && t.findings[f].remedy[0]);
            assert_true(f == 0 || t.findings[f].gain <= t.findings[f - 1].gain);
        }
        trace_release(&t);
        script_release(&s);
    }
    assert_int_equal(wrong, 0);
}

/* What stands in a finding: numbers and names of the trace. */
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

/* A fault is stated once: what a more exact finding explains is left out of the more general one. */
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

/* Memory that is full costs nothing while the devices compute. */
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

/* 60 launches 5 us apart, each of which was on its way for `way` us, the first one of each kernel for 20 ms. */
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

static void test_first_launches(void **state)
{
    (void)state;
    read_first_launches(6);
    assert_true(t.devices[0].cause[TRACE_CAUSE_OVERHEAD] > 40000000);
    assert_null(scene_find(&t, "launch-overhead"));
    trace_release(&t);
    read_first_launches(200);
    assert_in_range(scene_find(&t, "launch-overhead")->gain, 11000000, 13000000);
    trace_release(&t);
}

/* Findings of one id on several devices are a group: the one with the largest gain stands first. */
static void test_groups(void **state)
{
    (void)state;
    script s;
    char error[512], line[128];
    script_begin(&s);
    script_run(&s, "trace devices=3 detail=full\nlane 0.1\nlane 1.1\nlane 2.1\nname kernel 1 axpy\n"
                   "clock 0 at=0 own=0\nclock 1 at=0 own=0\nclock 2 at=0 own=0\n");
    for (int i = 0; i < 60; i++) { /* of 3 ms each computes 1 ms, and each for longer than the one before */
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_planted),       cmocka_unit_test(test_evidence),
                                       cmocka_unit_test(test_groups),        cmocka_unit_test(test_once),
                                       cmocka_unit_test(test_full_but_busy), cmocka_unit_test(test_first_launches)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
