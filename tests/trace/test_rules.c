/* test_rules.c - rules about devices, in traces with and without work.
 *
 * Promise: A trace without work breaks every rule about devices, with and without a device number.
 * Threads: one.
 */
#include "trace/scene.h"

#include <stdio.h>
#include <stdlib.h>
#include "cli/common/command.h"
#include "cli/trace/output.h"

/* Each of these figures is 0 without work, so each rule would hold. */
static const char *const rules[] = {"compute%s >= 0 %%",         "transfer%s < 5 %%", "idle%s < 100 %%",
                                    "idle.device%s < 5 %%",      "overlap%s < 5 %%",  "gap.max%s < 1 s",
                                    "queue.mean%s < 9",          "queue.most%s < 9",  "memory.peak%s < 1 GiB",
                                    "issue-to-begin.p50%s < 1 s"};

/* Checks one rule. `%s` in `format` stands for `suffix`. */
static int check(const char *scene, const char *format, const char *suffix, char text[512])
{
    trace t;
    char rule[64], error[512];
    FILE *out = fmemopen(text, 512, "w");
    assert_non_null(out);
    scene_read(scene, &t);
    snprintf(rule, sizeof rule, format, suffix);
    int status = trace_check(&t, rule, out, error);
    fclose(out);
    trace_release(&t);
    return status;
}

static void test_no_work(void **state)
{
    (void)state;
    static const char *const scenes[] = {TWO_DEVICES "end at=100\n",
                                         TWO_DEVICES "alloc 1 at=5 bytes=100 label=7 device=0\nend at=100\n"};
    char text[512];
    for (size_t s = 0; s < sizeof scenes / sizeof scenes[0]; s++) {
        for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
            assert_int_equal(check(scenes[s], rules[i], "", text), CLI_FAILED);
            assert_non_null(strstr(text, "no device has operations"));
            assert_int_equal(check(scenes[s], rules[i], ".0", text), CLI_FAILED);
            assert_non_null(strstr(text, "no device has operations"));
            assert_int_equal(check(scenes[s], rules[i], ".1", text), CLI_FAILED);
            assert_non_null(strstr(text, "no device has operations"));
        }
    }
    assert_int_equal(check(scenes[0], "compute%s >= 0 %%", ".2", text), CLI_FAILED);
    assert_non_null(strstr(text, "the trace has 2 devices"));
    assert_int_equal(check(scenes[0], "operations%s == 0", "", text), CLI_OK);
}

/* If one device worked, a rule may say that another one did not. */
static void test_one_device_works(void **state)
{
    (void)state;
    static const char scene[] = TWO_DEVICES "op 0.1:1 launch at=0 issue=4-5 span=10-20 done=21\nend at=100\n";
    char text[512];
    assert_int_equal(check(scene, "compute%s > 0 %%", "", text), CLI_OK);
    assert_int_equal(check(scene, "compute%s > 0 %%", ".0", text), CLI_OK);
    assert_int_equal(check(scene, "compute%s == 0 %%", ".1", text), CLI_OK);
    assert_int_equal(check(scene, "compute%s > 0 %%", ".1", text), CLI_FAILED);
    assert_non_null(strstr(text, "device 1 has 0%"));
    assert_int_equal(check(scene, "memory.peak%s < 1 GiB", ".1", text), CLI_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_work), cmocka_unit_test(test_one_device_works)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
