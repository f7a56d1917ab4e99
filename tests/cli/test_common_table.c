/* test_common_table.c - the tables that the benchmarks' JSON becomes.
 *
 * Promise: A table shows each row with figures in their units, reasons and goals, in 120 columns.
 * Threads: one. Locks: none.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "cli/common/table.h"

/* The tables of these members of a record; free them. */
static char *printed(const char *members)
{
    char record[8192], *out = NULL;
    hdi_json_tree tree;
    hdi_text text;
    size_t length;
    snprintf(record, sizeof(record),
             "{\"benchmark\": \"made_up\", \"took_s\": 3,"
             " \"machine\": {\"processors\": 4},"
             " \"runtime\": {\"driver\": \"host\", \"driver_version\": \"13.0\", \"placement\": \"thread\","
             " \"devices\": [{\"name\": \"one\"}, {\"name\": \"two\"}]}, %s}",
             members);
    if (!hdi_json_read(record, strlen(record), &tree)) {
        fail_msg("%s", tree.error);
    }
    FILE *file = hdi_text_open(&text);
    assert_non_null(file);
    cli_table_print(tree.root, file);
    hdi_json_release(&tree);
    assert_true(hdi_text_close(&text, &out, &length));
    for (const char *at = out; *at; at += strcspn(at, "\n") + 1) {
        if (strcspn(at, "\n") > 120) {
            fail_msg("a line is too wide: %s", out);
        }
    }
    return out;
}

static void prints(const char *members, const char *expected)
{
    char *out = printed(members);
    if (!strstr(out, expected)) {
        fail_msg("prints\n%s\nwithout\n%s", out, expected);
    }
    free(out);
}

static void names_the_machine_and_the_run(void **state)
{
    (void)state;
    prints(
        "\"run\": {\"rounds\": 3, \"segment_s\": 0.5, \"placements\": [\"thread\", \"process\"], \"clock\": \"tsc\"}",
        "made_up: 2 x one, driver host 13.0, placement thread; 4 processors\n"
        "run: rounds 3, segment 500 ms, placements thread process, clock tsc\n");
    prints("\"note\": \"sizes are cut\"", "\nsizes are cut\n");
    prints("\"shown\": \"what a run showed\"", "\nshown: what a run showed\nTook 3 s.\n");
}

static void keys_give_units(void **state)
{
    (void)state;
    prints(
        "\"rows\": [{\"id\": \"a\", \"wait_ns\": {\"median\": 1500, \"min\": 900, \"max\": 2e6, \"rounds\": [1, 2]},"
        " \"us_per_kernel\": 21.75, \"more_ns\": -30, \"heddle_gb_per_s\": 55.25, \"launches_per_s\": 1.5e6,"
        " \"peak_bytes\": 2097152, \"operations\": 12, \"heddle_over_driver\": 0.5, \"missing_ns\": null}]",
        "                                                                                         heddle\n"
        "                 wait     wait      per                     launches                       over\n"
        "rows     wait     min      max   kernel    more     heddle     per s   peak  operations  driver  missing\n"
        "  a   1.50 us  900 ns  2.00 ms  21.8 us  -30 ns  55.2 GB/s    1.50 M  2 MiB          12   0.500        -\n");
}

static void members_are_rows(void **state)
{
    (void)state;
    prints("\"pinned\": {\"bytes\": 1024, \"heddle_ns\": {\"median\": 5, \"min\": 4, \"max\": 6},"
           " \"driver_us\": {\"median\": 5, \"min\": 4, \"max\": 6}}",
           "\npinned: bytes 1 KiB\n"
           "           median      min      max\n"
           "  heddle     5 ns     4 ns     6 ns\n"
           "  driver  5.00 us  4.00 us  6.00 us\n");
}

static void reasons_stand_below_their_row(void **state)
{
    (void)state;
    prints("\"rows\": [{\"id\": \"a\", \"left_out\": \"there is one device\"},"
           " {\"id\": \"b\", \"plain\": {\"not_measured\": \"it took too long\"}, \"heddle\": {\"ns\": 7},"
           " \"async\": {\"not_measured\": \"left out\"}}]",
           "rows  heddle\n"
           "  a\n"
           "      left out: there is one device\n"
           "  b     7 ns\n"
           "      plain: not measured: it took too long\n"
           "\n");
}

static void parts_have_tables_and_rounds_have_none(void **state)
{
    (void)state;
    prints(
        "\"rows\": [{\"id\": \"a\", \"part\": \"one\", \"x_ns\": 1}, {\"id\": \"b\", \"part\": \"two\", \"y_ns\": 2}],"
        " \"faults\": [{\"round\": 0, \"kind\": \"c\", \"z_ns\": 3}]",
        "\none     x\n  a  1 ns\n\ntwo     y\n  b  2 ns\n\nTook");
}

/* Twenty figures of each of two sides do not fit beside each other. */
static void what_does_not_fit_takes_lines(void **state)
{
    (void)state;
    char members[4096] = "\"rows\": [{\"id\": \"a\"";
    static const char *const sides[] = {"heddle", "driver"};
    for (int side = 0; side < 2; side++) {
        size_t used = strlen(members);
        used += (size_t)snprintf(members + used, sizeof(members) - used, ", \"%s\": {", sides[side]);
        for (int i = 0; i < 9; i++) {
            used += (size_t)snprintf(members + used, sizeof(members) - used, "%s\"figure%d_ns\": {\"median\": %d5}",
                                     i ? ", " : "", i, i + 1);
        }
        snprintf(members + used, sizeof(members) - used, "}");
    }
    strcat(members, "}]");
    prints(members, "  a\n"
                    "    heddle    15 ns    25 ns    35 ns    45 ns    55 ns    65 ns    75 ns    85 ns    95 ns\n"
                    "    driver    15 ns");
}

static void goals_have_verdicts(void **state)
{
    (void)state;
#define GOALS                                                                                                          \
    "\"goals\": [{\"text\": \"a wait\", \"relation\": \"<=\", \"limit\": 50, \"value\": 60, \"unit\": \"ns\"},"        \
    " {\"text\": \"a share\", \"relation\": \">=\", \"limit\": 0.5, \"value\": 0.75, \"unit\": \"\"},"                 \
    " {\"text\": \"more\", \"of\": \"placement process\", \"relation\": \"<=\", \"limit\": 1, \"value\": null,"        \
    " \"unit\": \"\"}], \"goals_apply\": "
    prints(GOALS "true", "\ngoals\n  not reached  a wait ");
    prints(GOALS "true", "     60 ns  (at most 50 ns)\n  reached      a share ");
    prints(GOALS "true", "     0.750  (at least 0.50)\n\ngoals: placement process\n  not measured more ");
    prints(GOALS "false", "\nfigures that have goals on GPUs\n  a wait ");
    prints("\"verified\": {\"bytes\": 2048, \"results\": 7}", "\nverified: bytes 2 KiB, results 7\nTook 3 s.\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_the_machine_and_the_run),
        cmocka_unit_test(keys_give_units),
        cmocka_unit_test(members_are_rows),
        cmocka_unit_test(reasons_stand_below_their_row),
        cmocka_unit_test(parts_have_tables_and_rounds_have_none),
        cmocka_unit_test(what_does_not_fit_takes_lines),
        cmocka_unit_test(goals_have_verdicts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
