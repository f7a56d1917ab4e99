/* test_cpus.c - sets of processors: parsing the system's lists, intersections, staying on some of
 * them.
 *
 * Promise: The system's processor lists are read exactly; a thread stays on the processors given.
 * Threads: one. Locks: none.
 */
#include "support/check.h"

#include <sched.h>
#include <unistd.h>
#include "base/thread.h"

enum { WORD_BITS = 8 * sizeof(unsigned long) };

static bool has(const hdi_cpus *set, unsigned cpu)
{
    return set->bits[cpu / WORD_BITS] >> cpu % WORD_BITS & 1;
}

static unsigned count(const hdi_cpus *set)
{
    unsigned n = 0;
    for (unsigned cpu = 0; cpu < HDI_CPUS_MOST; cpu++) {
        n += has(set, cpu);
    }
    return n;
}

static void lists_are_read(void **state)
{
    (void)state;
    hdi_cpus set;
    assert_true(hdi_cpus_parse("", &set)); /* a node without processors */
    assert_int_equal(count(&set), 0);
    assert_true(hdi_cpus_parse("0", &set));
    assert_true(has(&set, 0) && count(&set) == 1);
    assert_true(hdi_cpus_parse("0-3,8,62-65", &set));
    assert_int_equal(count(&set), 9);
    assert_true(has(&set, 3) && !has(&set, 4) && has(&set, 8) && has(&set, 62) && has(&set, 65) && !has(&set, 66));
    assert_true(hdi_cpus_parse("8191", &set));
    assert_true(has(&set, 8191) && count(&set) == 1);
    static const char *const wrong[] = {"x", "1-", "-", "3-1", "1;2", "1,x", "8192", "0-99999", "1-2-3", "-1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_false(hdi_cpus_parse(wrong[i], &set));
    }
}

static void sets_meet(void **state)
{
    (void)state;
    hdi_cpus a, b, both;
    assert_true(hdi_cpus_parse("0-9,100", &a));
    assert_true(hdi_cpus_parse("5-20,100-200", &b));
    assert_true(hdi_cpus_common(&a, &b, &both));
    assert_int_equal(count(&both), 6);
    assert_true(has(&both, 5) && has(&both, 9) && has(&both, 100));
    assert_true(hdi_cpus_parse("21-99", &a));
    assert_false(hdi_cpus_common(&a, &b, &both));
}

static void the_system_is_asked(void **state)
{
    (void)state;
    hdi_cpus own, node, one;
    assert_true(hdi_cpus_own(&own));
    cpu_set_t *known = CPU_ALLOC(HDI_CPUS_MOST);
    assert_non_null(known);
    assert_int_equal(sched_getaffinity(0, CPU_ALLOC_SIZE(HDI_CPUS_MOST), known), 0);
    assert_int_equal(count(&own), CPU_COUNT_S(CPU_ALLOC_SIZE(HDI_CPUS_MOST), known));
    CPU_FREE(known);
    /* stay on one of them, then on all again */
    unsigned first = 0;
    while (!has(&own, first)) {
        first++;
    }
    memset(&one, 0, sizeof one);
    one.bits[first / WORD_BITS] = 1ul << first % WORD_BITS;
    assert_true(hdi_cpus_stay(&one));
    assert_true(hdi_cpus_own(&node));
    assert_true(has(&node, first) && count(&node) == 1);
    assert_true(hdi_cpus_stay(&own));
    /* nodes and devices that do not exist are unknown */
    assert_int_equal(hdi_numa_node("host:0"), -1);
    assert_int_equal(hdi_numa_node("a name that is much longer than any bus id can be"), -1);
    assert_false(hdi_numa_cpus(-1, &node));
    assert_false(hdi_numa_cpus(99999, &node));
    if (access("/sys/devices/system/node/node0/cpulist", R_OK) == 0) {
        assert_true(hdi_numa_cpus(0, &node));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_read),
        cmocka_unit_test(sets_meet),
        cmocka_unit_test(the_system_is_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
