/* test_findings.c - traces of programs with one fault each: which finding is the first.
 *
 * Promise: Each planted fault is the first finding, with a gain within the window and a remedy. A program without a fault has none.
 * Findings of one id are linked, the largest gain first.
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_planted), cmocka_unit_test(test_evidence),
                                       cmocka_unit_test(test_groups)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
