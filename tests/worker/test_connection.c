/* test_connection.c - the remote port when its worker is slow, ends, is disconnected or is
 * replaced: at every point of a request, with many threads.
 *
 * Promise: A request to a worker that is slow, dead or replaced ends within its limit.
 * Threads: the main one, those that make requests, and those that serve the worker's lines.
 */
#include "connected.h"

#include <malloc.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/wait.h"

/* A thread with one request. */
typedef struct asker {
    pthread_t thread;
    atomic_int id; /* the thread's id; 0: not known yet */
    int which;
    hdi_answer answer;
} asker;

static void *ask_once(void *argument)
{
    asker *a = argument;
    atomic_store(&a->id, (int)syscall(SYS_gettid));
    a->answer = fake_ask(port, a->which, &things);
    return NULL;
}

static void askers_start(asker *askers, int n, const int *which)
{
    for (int i = 0; i < n; i++) {
        memset(&askers[i], 0, sizeof askers[i]);
        askers[i].which = which[i];
        assert_int_equal(pthread_create(&askers[i].thread, NULL, ask_once, &askers[i]), 0);
    }
}

static void askers_join(asker *askers, int n, int expected)
{
    for (int i = 0; i < n; i++) {
        pthread_join(askers[i].thread, NULL);
        expect(askers[i].answer, expected);
    }
}

#define THREADS 8
static const int some_of_each[THREADS] = {FAKE_MAP,  FAKE_LOAD, FAKE_MAP, FAKE_MAP,
                                          FAKE_LOAD, FAKE_LOAD, FAKE_MAP, FAKE_MAP};

static void a_slow_load_does_not_hold_up_memory(void **state)
{
    (void)state;
    fake_hold(&fake, true);
    asker slow;
    askers_start(&slow, 1, (int[]){FAKE_LOAD});
    fake_await_inside(&fake, 1);
    asker second;
    askers_start(&second, 1, (int[]){FAKE_MAP});
    fake_await_inside(&fake, 2); /* the request reached the worker */
    fake_hold(&fake, false);
    askers_join(&slow, 1, 0);
    askers_join(&second, 1, 0);
}

static void without_a_worker_requests_say_so(void **state)
{
    (void)state;
    hdi_port *lonely = hdi_remote_port_create(-1, note_broken, &fake);
    for (int i = 0; i < FAKE_KINDS; i++) {
        expect(fake_ask(lonely, i, &things), HDI_GONE_CLOSED);
    }
    hdi_remote_port_disconnect(lonely);
    hdi_remote_port_destroy(lonely);
    hdi_remote_port_destroy(NULL);
    assert_int_equal(told_times, 0);
}

static void a_late_reply_ends_the_line(void **state)
{
    (void)state;
    fake_hold(&fake, true);
    int64_t start = hdi_clock_ns();
    expect(fake_ask(port, FAKE_MAP, &things), HDI_GONE_UNANSWERED);
    assert_true(hdi_clock_ns() - start >= SHORT_LIMIT);
    assert_int_equal(told_times, 1);
    assert_int_equal(told_code, HDI_GONE_UNANSWERED);
    /* the line stays dead, and failures of the other line are not reported again */
    expect(fake_ask(port, FAKE_MAP, &things), HDI_GONE_UNANSWERED);
    expect(fake_ask(port, FAKE_LOAD, &things), HDI_GONE_UNANSWERED);
    fake_hold(&fake, false);
    expect(fake_ask(port, FAKE_MAP, &things), HDI_GONE_UNANSWERED);
    assert_int_equal(told_times, 1);
    hdi_remote_port_disconnect(port);
    expect(fake_ask(port, FAKE_MAP, &things), HDI_GONE_CLOSED);
    assert_int_equal(told_times, 1);
    fake_worker_join(&worker);
    assert_int_equal(worker.results[0], 0); /* an unread reply is not the worker's failure */
    connect_worker();
}

static void who_waits_for_the_turn_ends_with_the_line(void **state)
{
    (void)state;
    fake_hold(&fake, true);
    asker askers[THREADS];
    askers_start(askers, THREADS,
                 (int[THREADS]){FAKE_MAP, FAKE_MAP, FAKE_MAP, FAKE_MAP, FAKE_MAP, FAKE_MAP, FAKE_MAP, FAKE_MAP});
    askers_join(askers, THREADS, HDI_GONE_UNANSWERED);
    assert_int_equal(told_times, 1);
}

static void a_worker_that_ends_is_noticed(void **state)
{
    (void)state;
    for (int held = 0; held < 2; held++) { /* between requests, or during one */
        for (int i = 0; i < FAKE_KINDS; i++) {
            atomic_store(&told_times, 0);
            int line = i >= FAKE_LOAD;
            asker a;
            if (held && i != FAKE_UNPIN) { /* an unpin of nothing does not reach the fake */
                fake_hold(&fake, true);
                askers_start(&a, 1, &i);
                fake_await_inside(&fake, 1);
                shutdown(worker.ends[line], SHUT_RDWR);
            } else {
                shutdown(worker.ends[line], SHUT_RDWR);
                askers_start(&a, 1, &i);
            }
            askers_join(&a, 1, HDI_GONE_CLOSED);
            assert_int_equal(told_times, 1);
            assert_int_equal(told_code, HDI_GONE_CLOSED);
            expect(fake_ask(port, i, &things), HDI_GONE_CLOSED);
            assert_int_equal(told_times, 1);
            fake_hold(&fake, false);
            /* the other line works until it is disconnected */
            expect(fake_ask(port, line ? FAKE_MAP : FAKE_LOAD, &things), 0);
            hdi_remote_port_disconnect(port);
            expect(fake_ask(port, line ? FAKE_MAP : FAKE_LOAD, &things), HDI_GONE_CLOSED);
            fake_worker_join(&worker);
            assert_int_equal(worker.results[0] | worker.results[1], 0);
            connect_worker();
            if (held && i == FAKE_PIN) { /* the pin succeeded, but its reply was lost */
                expect(fake_ask(port, FAKE_UNPIN, &things), 0);
            }
        }
    }
}

static void a_cut_ends_what_is_under_way(void **state)
{
    (void)state;
    for (int round = 0; round < 10; round++) {
        fake_hold(&fake, true);
        asker askers[THREADS];
        askers_start(askers, THREADS, some_of_each);
        fake_await_inside(&fake, 2);
        hdi_remote_port_disconnect(port);
        askers_join(askers, THREADS, HDI_GONE_CLOSED);
        expect(fake_ask(port, FAKE_MAP, &things), HDI_GONE_CLOSED);
        fake_hold(&fake, false);
        fake_worker_join(&worker);
        connect_worker();
        for (int i = 0; i < FAKE_KINDS; i++) {
            expect(fake_ask(port, i, &things), 0);
        }
    }
    assert_int_equal(told_times, 0); /* the caller that disconnects needs no report */
}

/* True if the thread sleeps until its turn on one of the port's lines. */
static bool waits_for_turn(asker *a)
{
    char path[64], text[64] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", atomic_load(&a->id));
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return false;
    }
    bool got = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    char *rest;
    /* "running", or the number and arguments of the system call */
    long number = strtol(text, &rest, 10);
    uintptr_t word = strtoull(rest, NULL, 16), from = (uintptr_t)port;
    return got && number == SYS_futex && word >= from && word < from + malloc_usable_size(port);
}

/* Returns once all but one per line wait. False: the system does not show it. */
static bool await_turns(asker *askers, int n)
{
    for (int tries = 0; tries < 20000; tries++) {
        int waiting = 0;
        for (int i = 0; i < n; i++) {
            waiting += waits_for_turn(&askers[i]);
        }
        if (waiting == n - 2) {
            return true;
        }
        if (access("/proc/self/syscall", R_OK) != 0) {
            break;
        }
        usleep(200);
    }
    return false;
}

static void no_request_goes_on_to_the_next_worker(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++) {
        fake_port next;
        fake_worker next_worker;
        fake_init(&next);
        fake_worker_start(&next_worker, &next);
        fake_hold(&fake, true);
        asker askers[THREADS];
        askers_start(askers, THREADS, some_of_each);
        fake_await_inside(&fake, 2);
        bool sure = await_turns(askers, THREADS);
        if (round % 2 == 0) {
            hdi_remote_port_disconnect(port);
        }
        hdi_remote_port_connect(port, next_worker.application[0], next_worker.application[1]);
        next_worker.application[0] = next_worker.application[1] = -1;
        if (sure) {
            askers_join(askers, THREADS, HDI_GONE_CLOSED);
            assert_int_equal(fake_calls(&next), 0);
        }
        for (int i = 0; i < THREADS && !sure; i++) {
            pthread_join(askers[i].thread, NULL);
        }
        expect(fake_ask(port, FAKE_MAP, &things), 0);
        assert_int_equal(told_times, 0);

        fake_hold(&fake, false);
        fake_worker_join(&worker);
        connect_worker();
        fake_worker_join(&next_worker); /* the connection closed its sockets */
        fake_release(&next);
    }
}

static atomic_bool keep_asking;

static void *ask_until_told(void *argument)
{
    (void)argument;
    uintptr_t strange = 0;
    for (int i = 0; atomic_load(&keep_asking); i++) {
        int which = i % FAKE_KINDS;
        if (which == FAKE_PIN || which == FAKE_UNPIN) {
            continue; /* all threads use one address */
        }
        int code = fake_ask(port, which, &things).code;
        strange += code != 0 && code != HDI_GONE_CLOSED;
    }
    return (void *)strange;
}

static void cuts_and_connections_at_any_time(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    atomic_store(&keep_asking, true);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, ask_until_told, NULL), 0);
    }
    for (int i = 0; i < 40; i++) {
        usleep(1000);
        if (i % 2 == 1) {
            shutdown(worker.ends[i / 2 % 2], SHUT_RDWR);
        }
        hdi_remote_port_disconnect(port);
        fake_worker_join(&worker);
        connect_worker();
    }
    atomic_store(&keep_asking, false);
    for (int i = 0; i < THREADS; i++) {
        void *strange;
        pthread_join(threads[i], &strange);
        assert_null(strange);
    }
    expect(fake_ask(port, FAKE_MAP, &things), 0);
}

static int reconnections;

static void reconnect(void *context, uint64_t connection, int code)
{
    (void)connection;
    assert_int_equal(code, HDI_GONE_CLOSED);
    hdi_remote_port_disconnect(*(hdi_port **)context);
    fake_worker_join(&worker);
    fake_worker_start(&worker, &fake);
    hdi_remote_port_connect(*(hdi_port **)context, worker.application[0], worker.application[1]);
    worker.application[0] = worker.application[1] = -1;
    reconnections++;
}

static void broken_may_connect_again(void **state)
{
    (void)state;
    hdi_remote_port_destroy(port);
    fake_worker_join(&worker);
    port = hdi_remote_port_create(-1, reconnect, &port);
    connect_worker();
    for (int i = 1; i <= 3; i++) {
        shutdown(worker.ends[i % 2], SHUT_RDWR);
        expect(fake_ask(port, i % 2 ? FAKE_LOAD : FAKE_MAP, &things), HDI_GONE_CLOSED);
        assert_int_equal(reconnections, i);
        expect(fake_ask(port, FAKE_MAP, &things), 0);
        expect(fake_ask(port, FAKE_LOAD, &things), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONNECTED_TEST(a_slow_load_does_not_hold_up_memory),
        CONNECTED_TEST(without_a_worker_requests_say_so),
        CONNECTED_SHORT_TEST(a_late_reply_ends_the_line),
        CONNECTED_SHORT_TEST(who_waits_for_the_turn_ends_with_the_line),
        CONNECTED_TEST(a_worker_that_ends_is_noticed),
        CONNECTED_TEST(a_cut_ends_what_is_under_way),
        CONNECTED_TEST(no_request_goes_on_to_the_next_worker),
        CONNECTED_TEST(cuts_and_connections_at_any_time),
        CONNECTED_TEST(broken_may_connect_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
