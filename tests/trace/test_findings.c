/* test_findings.c - traces of programs with one fault each: which finding is the first.
 *
 * Promise: Each planted fault is the first finding, with a gain within the window and a remedy. A program without a fault has none.
 * Threads: one.
 */
#include "trace/scene.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_planted), cmocka_unit_test(test_evidence)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
