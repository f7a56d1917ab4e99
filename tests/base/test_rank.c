/* test_rank.c - the order of locks, as a debug build asserts it.
 *
 * Promise: Taking locks out of order stops a debug build with both names, even without a waiter.
 *
 * Threads: the main one, and one in a child process that the assertion ends. Locks: those of each
 * case.
 */
#include "support/check.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/lock.h"

static hdi_mutex outer = HDI_MUTEX_INIT(RESTARTING), inner = HDI_MUTEX_INIT(LOSSES);
static hdi_lock first, second, unranked;

static void in_order(void **state)
{
    (void)state;
    hdi_mutex_lock(&outer);
    hdi_lock_take(&first);
    hdi_lock_take(&second);
    hdi_mutex_lock(&inner);
    hdi_lock_release(&first); /* the order of releases is free */
    hdi_mutex_unlock(&outer);
    hdi_mutex_unlock(&inner);
    hdi_lock_release(&second);
    hdi_mutex_lock(&outer);
    hdi_mutex_unlock(&outer);
}

static void a_try_may_break_it(void **state)
{
    (void)state;
    hdi_mutex_lock(&inner);
    assert_true(hdi_mutex_try(&outer));
    assert_false(hdi_mutex_try(&outer));
    hdi_mutex_unlock(&outer);
    hdi_mutex_unlock(&inner);
}

static void takes_outer_last(void)
{
    hdi_mutex_lock(&inner);
    hdi_mutex_lock(&outer);
}

static void takes_higher_key_first(void)
{
    hdi_lock_take(&second);
    hdi_lock_take(&first);
}

static void takes_it_twice(void)
{
    hdi_mutex_lock(&outer);
    hdi_mutex_lock(&outer);
}

static void takes_one_without_a_rank(void)
{
    hdi_lock_take(&unranked);
}

static void releases_what_it_does_not_hold(void)
{
    hdi_lock_release(&first);
}

/* Checks that a child process that calls `does` prints the text and is stopped. */
static void stopped(void (*does)(void), const char *text)
{
    int ends[2];
    char printed[400] = "";
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGABRT, SIG_DFL); /* cmocka installs a handler */
        dup2(ends[1], 2);
        does();
        _exit(0);
    }
    close(ends[1]);
    size_t n = 0;
    for (ssize_t got; n < sizeof printed - 1 && (got = read(ends[0], printed + n, sizeof printed - 1 - n)) > 0;) {
        n += (size_t)got;
    }
    close(ends[0]);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    if (strstr(printed, text) == NULL) {
        fail_msg("\"%s\" lacks \"%s\"", printed, text);
    }
}

static void out_of_order(void **state)
{
    (void)state;
#ifndef HDI_DEBUG
    skip();
#endif
    stopped(takes_outer_last, "lock RESTARTING/0 is taken by a thread that holds LOSSES/0");
    stopped(takes_higher_key_first, "lock ORDER/1 is taken by a thread that holds ORDER/2");
    stopped(takes_it_twice, "lock RESTARTING/0 is taken by a thread that holds RESTARTING/0");
    stopped(takes_one_without_a_rank, "was made without a rank");
    stopped(releases_what_it_does_not_hold, "is released by a thread that does not hold it");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_order),
        cmocka_unit_test(a_try_may_break_it),
        cmocka_unit_test(out_of_order),
    };
    hdi_lock_init(&first, HDI_RANKED(HDI_RANK_ORDER, 1));
    hdi_lock_init(&second, HDI_RANKED(HDI_RANK_ORDER, 2));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
