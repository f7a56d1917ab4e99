/* test_random.c - random traces, whole and damaged: properties of every trace.
 *
 * Promise: Analysis of any file ends, windows split to the nanosecond, waits lead back in time.
 * Threads: one.
 */
#include "trace/scene.h"

#include <stdio.h>
#include <stdlib.h>
#include "cli/trace/output.h"
#include "trace/random.h"

static trace t;

/* Writes all output of a trace to /dev/null. */
static void put_all(const trace *one)
{
    FILE *out = fopen("/dev/null", "we");
    char error[512];
    assert_non_null(out);
    trace_put_text(one, false, out);
    trace_put_text(one, true, out);
    trace_put_json(one, out);
    trace_export_chrome(one, out);
    trace_export_hta(one, 0, out);
    trace_export_snapshot(one, out);
    trace_check(one, "idle < 5 %\ngap.max < 1 ms\ntransfer.rate(host->0) > 1 GB/s\nfindings == 0\n", out, error);
    fclose(out);
}

static void check(const script *s, size_t bytes)
{
    char error[512];
    /* memory that ends with the file */
    void *copy = malloc(bytes ? bytes : 1);
    assert_non_null(copy);
    memcpy(copy, s->records, bytes);
    if (trace_read_bytes(copy, bytes, &t, error)) {
        scene_check_split(&t);
        int32_t chain[64];
        for (size_t i = 0; i < t.n_ops; i++) {
            size_t n = trace_chain(&t, (int32_t)i, chain, 64);
            assert_in_range(n, 1, 64);
        }
        put_all(&t);
    }
    trace_release(&t);
    free(copy);
}

static void test_sane(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        script s;
        random_trace(&s, seed, 1 + (int)(seed % 4), 60 + (int)(seed % 80), 1);
        check(&s, s.n * sizeof *s.records);
        script_release(&s);
    }
}

static void test_wild(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 600; seed++) {
        script s;
        random_trace(&s, seed, 1 + (int)(seed % 4), 60, 0);
        check(&s, s.n * sizeof *s.records);
        script_release(&s);
    }
}

static void test_cut(void **state)
{
    (void)state;
    script s;
    random_trace(&s, 77, 2, 30, 1);
    for (size_t bytes = 0; bytes <= s.n * sizeof *s.records; bytes++) {
        check(&s, bytes);
    }
    script_release(&s);
}

/* Operations that wait for each other in a circle, which no recorder writes. */
static void test_circle(void **state)
{
    (void)state;
    int32_t chain[50];
    scene_read(TWO_DEVICES "op 0.1:1 launch at=0 wait=1.1:9 span=90-95\n"
                           "op 1.1:1 launch at=0 wait=0.1:9 span=90-95\n"
                           "op 0.1:2 launch at=0 wait=1.1:9\n"
                           "op 1.1:2 launch at=0 wait=0.1:9\n"
                           "end at=100\n",
               &t);
    assert_in_range(trace_chain(&t, 0, chain, 50), 1, 50);
    scene_check_split(&t);
    put_all(&t);
    trace_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sane), cmocka_unit_test(test_wild),
                                       cmocka_unit_test(test_cut), cmocka_unit_test(test_circle)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
