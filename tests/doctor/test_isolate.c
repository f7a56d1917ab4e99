/* test_isolate.c - a source of facts in a child process: its facts, and a source that crashes,
 * hangs or ends.
 *
 * Promise: A source that crashes or hangs loses only its facts, and its processes end with it.
 * Threads: one. Locks: none.
 */
#include "support/check.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cli/doctor/collect.h"

enum { AMPLE_S = 120 };

static void find(void *context, doctor_snapshot *s)
{
    printf("a library prints\n");
    doctor_put_number(s, *(int *)context, "found");
    doctor_miss(s, "no reason", "lost");
    for (int i = 0; i < 20000; i++) { /* more than fits into a pipe */
        doctor_put_number(s, i, "n.%d", i);
    }
}

static void crash(void *context, doctor_snapshot *s)
{
    (void)context;
    doctor_put(s, "yes", "found");
    signal(SIGABRT, SIG_DFL);
    raise(SIGABRT);
}

static void leave(void *context, doctor_snapshot *s)
{
    (void)context, (void)s;
    _exit(7);
}

static void hang(void *context, doctor_snapshot *s)
{
    (void)context, (void)s;
    for (;;) {
        pause();
    }
}

/* The source first starts a process that keeps all descriptors, including the pipe; it ends with
 * `kept[1]`. Then the source runs `then`. */
typedef struct family {
    int kept[2];
    doctor_source then;
} family;

static void start_another(void *context, doctor_snapshot *s)
{
    family *f = context;
    if (fork() == 0) {
        char byte;
        close(f->kept[1]);
        _exit(read(f->kept[0], &byte, 1) == 0 ? 0 : 1);
    }
    f->then(&(int){42}, s);
}

static void expect_end(doctor_source source, void *context, int limit_s, const char *end)
{
    doctor_snapshot s = {0};
    doctor_isolate("it", source, context, limit_s, &s);
    const doctor_fact *f = doctor_find(&s, "it.end");
    assert_non_null(f);
    assert_string_equal(f->value, end);
    doctor_release(&s);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
}

static void takes_over_what_is_found(void **unused)
{
    (void)unused;
    int value = 42;
    doctor_snapshot s = {0};
    doctor_isolate("it", find, &value, AMPLE_S, &s);
    assert_string_equal(doctor_find(&s, "it.end")->value, "ordinary");
    assert_string_equal(doctor_find(&s, "found")->value, "42");
    assert_string_equal(doctor_find(&s, "lost")->reason, "no reason");
    assert_string_equal(doctor_find(&s, "n.19999")->value, "19999");
    doctor_release(&s);
}

static void says_how_it_ended(void **unused)
{
    (void)unused;
    expect_end(crash, NULL, AMPLE_S, "crashed with signal 6");
    expect_end(leave, NULL, AMPLE_S, "ended with status 7");
    expect_end(hang, NULL, 1, "no answer within 1 s");
}

/* After the child's end, doctor_isolate does not wait for the limit, although a process of the
 * child holds the pipe open. */
static void what_it_has_started_ends_with_it(void **unused)
{
    (void)unused;
    static const struct {
        doctor_source then;
        const char *end;
        int limit_s;
    } cases[] = {
        {find, "ordinary", AMPLE_S}, {leave, "ended with status 7", AMPLE_S}, {hang, "no answer within 1 s", 1}};
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* the orphan becomes a child of this process */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int status = 0;
        family f = {.then = cases[i].then};
        doctor_snapshot s = {0};
        assert_int_equal(pipe(f.kept), 0);
        doctor_isolate("it", start_another, &f, cases[i].limit_s, &s);
        close(f.kept[1]);
        assert_true(waitpid(-1, &status, 0) > 0);
        close(f.kept[0]);
        assert_string_equal(doctor_find(&s, "it.end")->value, cases[i].end);
        assert_int_equal(doctor_find(&s, "n.19999") != NULL, cases[i].then == find);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        doctor_release(&s);
    }
    prctl(PR_SET_CHILD_SUBREAPER, 0);
}

/* The terminal shows the reason for the wait. */
static void a_long_wait_is_announced(void **unused)
{
    (void)unused;
    char text[256] = "";
    FILE *file = tmpfile();
    int before = dup(2);
    assert_true(file && before >= 0);
    dup2(fileno(file), 2);
    expect_end(hang, NULL, 1, "no answer within 1 s");
    dup2(before, 2);
    close(before);
    rewind(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    assert_contains(text, "it does not answer; waiting for at most 1 s");
    fclose(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_over_what_is_found),
        cmocka_unit_test(says_how_it_ended),
        cmocka_unit_test(what_it_has_started_ends_with_it),
        cmocka_unit_test(a_long_wait_is_announced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
