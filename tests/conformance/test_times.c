/* test_times.c - lanes that keep times: hd_lane_keep_times and hd_ticket_get_elapsed.
 *
 * Promise: Times between tickets agree with the order of work and with the program's clock.
 *
 * A ticket without a time is refused by name.
 *
 * Threads: the main one, and those of one case.
 * Locks: none.
 * Always: no check measures how long something takes. Times that are compared with the program's
 * clock lie between two of its readings.
 */
#include "claim_scene.h"

#include <sched.h>
#include <stdatomic.h>

/* Returns a ticket that ends as soon as the lane gets there. */
static hd_ticket mark(hd_lane *lane)
{
    hd_ticket ticket;
    CONF_OK(hd_lane_add_dependency(lane, (hd_ticket){NULL, 0}, &ticket));
    return ticket;
}

static int64_t elapsed(hd_ticket from, hd_ticket to)
{
    int64_t ns = INT64_MIN;
    CONF_OK(hd_ticket_get_elapsed(from, to, &ns));
    CONF_TRUE(ns != INT64_MIN);
    return ns;
}

static hd_lane *timed_lane(hd_runtime *runtime, int device)
{
    hd_lane *lane = NULL;
    CONF_OK(hd_lane_create(runtime, device, &lane));
    CONF_OK(hd_lane_keep_times(lane, true));
    return lane;
}

/* Two clocks may differ by this much, and round. */
static int64_t slack(int64_t ns)
{
    return ns / 1000 + 5000;
}

static void times_agree_with_the_program_s_clock(void **state)
{
    (void)state;
    scene s = begin(NULL);
    enum { marks = 8 };
    hd_lane *lane = timed_lane(s.runtime, 0);
    hd_ticket of[marks];
    int64_t before[marks], behind[marks];
    for (int i = 0; i < marks; i++) {
        before[i] = conf_now();
        of[i] = mark(lane);
        CONF_OK(hd_wait(of[i], HD_FOREVER));
        behind[i] = conf_now();
        /* near the last one, and so far that the engine measures from another event */
        conf_sleep_ms(i % 2 ? 60 : 1);
    }
    for (int i = 0; i < marks; i++) {
        for (int j = i; j < marks; j++) {
            int64_t ns = elapsed(of[i], of[j]), most = behind[j] - before[i], least = j > i ? before[j] - behind[i] : 0;
            CONF_TRUE(ns >= least - slack(least) && ns <= most + slack(most));
            CONF_EQUAL(elapsed(of[j], of[i]), -ns);
            CONF_EQUAL(elapsed(of[0], of[i]) + ns, elapsed(of[0], of[j]));
        }
    }
    CONF_OK(hd_lane_destroy(lane));
    end(&s);
}

static void lanes_of_a_device_have_one_clock(void **state)
{
    (void)state;
    scene s = begin("host_schedule=3");
    hd_lane *a = timed_lane(s.runtime, 0), *b = timed_lane(s.runtime, 0);
    hd_ticket of[60];
    for (int i = 0; i < 60; i++) {
        hd_lane *lane = i % 3 ? a : b;
        /* behind the one before */
        CONF_OK(conf_fill(lane, s.k, s.device, 0, words, (uint32_t)i, &of[i]));
    }
    CONF_OK(hd_lane_wait(a, HD_FOREVER));
    /* bytes that are only overwritten may show as done a moment later */
    CONF_OK(hd_lane_wait(b, HD_FOREVER));
    for (int i = 1; i < 60; i++) {
        CONF_TRUE(elapsed(of[i - 1], of[i]) >= 0);
    }
    CONF_FILLED(s.device, 0, 59, bytes);
    end(&s);
}

/* Delays by the program show: a claim, and a copy for which a timed lane waits. */
static void work_of_others_is_timed_by_marks(void **state)
{
    (void)state;
    scene s = begin(NULL);
    hd_lane *lane = timed_lane(s.runtime, 0);
    hd_ticket start = mark(lane), copied, behind;
    hd_claim *claim = NULL;
    hd_arg use = hd_inout(s.device);
    CONF_OK(hd_wait(start, HD_FOREVER));
    CONF_OK(hd_claim_begin(s.runtime, &use, 1, &claim));
    CONF_OK(hd_copy(s.pinned, 0, s.device, 0, bytes, &copied));
    CONF_OK(hd_lane_add_dependency(lane, copied, &behind));
    int64_t held = conf_now();
    conf_sleep_ms(20);
    held = conf_now() - held;
    CONF_OK(hd_claim_end(claim, HD_OK));
    CONF_OK(hd_wait(behind, HD_FOREVER));
    CONF_TRUE(elapsed(start, behind) >= held - slack(held));
    int64_t ns;
    CONF_FAILS_WITH(hd_ticket_get_elapsed(start, copied, &ns), HD_ERROR_NOT_FOUND, "hd_lane_keep_times");
    CONF_FAILS_WITH(hd_lane_keep_times(copied.lane, true), HD_ERROR_ARGUMENT, "library's own");
    end(&s);
}

static void tickets_without_a_time_are_refused(void **state)
{
    (void)state;
    scene s = begin(NULL);
    hd_runtime *elsewhere = conf_open(NULL);
    hd_lane *lane = timed_lane(s.runtime, 0), *plain = NULL;
    hd_ticket good = mark(lane), never, none, fresh;
    int64_t ns = 77;
    CONF_OK(hd_lane_create(s.runtime, 0, &plain));
    CONF_OK(hd_lane_get_ticket(plain, &fresh));
    none = mark(plain);
    CONF_OK(hd_wait(good, HD_FOREVER));
    CONF_OK(hd_wait(none, HD_FOREVER));
    CONF_FAILS(hd_ticket_get_elapsed(good, good, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_ticket_get_elapsed((hd_ticket){NULL, 0}, good, &ns), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_ticket_get_elapsed(good, (hd_ticket){NULL, 0}, &ns), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_ticket_get_elapsed(good, (hd_ticket){lane, UINT64_MAX}, &ns), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_ticket_get_elapsed(good, (hd_ticket){(hd_lane *)(void *)s.device, 1}, &ns), HD_ERROR_HANDLE);
    CONF_FAILS_WITH(hd_ticket_get_elapsed(good, none, &ns), HD_ERROR_NOT_FOUND, "hd_lane_keep_times");
    CONF_FAILS(hd_ticket_get_elapsed(fresh, good, &ns), HD_ERROR_NOT_FOUND); /* between no times */
    never = mark(conf_default_lane(elsewhere, 0));
    CONF_OK(hd_wait(never, HD_FOREVER));
    CONF_FAILS_WITH(hd_ticket_get_elapsed(good, never, &ns), HD_ERROR_ARGUMENT, "two runtimes");
    if (hd_device_count(s.runtime) > 1) {
        hd_lane *far = timed_lane(s.runtime, 1);
        hd_ticket there = mark(far);
        CONF_OK(hd_wait(there, HD_FOREVER));
        CONF_FAILS_WITH(hd_ticket_get_elapsed(good, there, &ns), HD_ERROR_UNSUPPORTED, "devices 0 and 1");
    }
    hd_claim *claim = NULL;
    hd_ticket claimed, waits;
    CONF_OK(hd_claim_begin(s.runtime, NULL, 0, &claim));
    CONF_OK(hd_claim_get_ticket(claim, &claimed));
    CONF_OK(hd_lane_add_dependency(lane, claimed, &waits));
    CONF_FAILS_WITH(hd_ticket_get_elapsed(good, waits, &ns), HD_ERROR_TIMEOUT, "not done");
    CONF_OK(hd_claim_end(claim, HD_ERROR_FAILED));
    CONF_FAILS(hd_wait(waits, HD_FOREVER), HD_ERROR_FAILED);
    CONF_FAILS(hd_ticket_get_elapsed(waits, good, &ns), HD_ERROR_FAILED);
    CONF_OK(hd_lane_reset(lane, HD_FOREVER));
    CONF_OK(hd_lane_get_ticket(lane, &fresh)); /* of the command that resumes */
    CONF_TRUE(elapsed(good, fresh) >= 0);
    CONF_EQUAL(ns, 77);
    conf_close(elsewhere);
    CONF_FAILS(hd_ticket_get_elapsed(good, never, &ns), HD_ERROR_HANDLE);
    CONF_FAILS(hd_ticket_get_elapsed(never, good, &ns), HD_ERROR_HANDLE);
    CONF_FAILS(hd_lane_keep_times(NULL, true), HD_ERROR_HANDLE);
    CONF_FAILS(hd_lane_keep_times((hd_lane *)(void *)s.device, true), HD_ERROR_HANDLE);
    end(&s);
}

static void a_lane_keeps_as_many_times_as_it_has_slots(void **state)
{
    (void)state;
    scene s = begin("lane_slots=64");
    hd_lane *lane = timed_lane(s.runtime, 0);
    enum { n = 300 };
    hd_ticket of[n];
    for (int i = 0; i < n; i++) {
        CONF_OK(conf_fill(lane, s.k, s.device, 0, words, (uint32_t)i, &of[i]));
    }
    CONF_OK(hd_lane_wait(lane, HD_FOREVER));
    for (int i = n - 60; i < n; i++) {
        CONF_TRUE(elapsed(of[i - 1], of[i]) >= 0);
    }
    int64_t ns;
    for (int i = 0; i < n - 70; i++) {
        CONF_FAILS_WITH(hd_ticket_get_elapsed(of[i], of[n - 1], &ns), HD_ERROR_NOT_FOUND, "lane_slots");
    }
    end(&s);
}

static void times_end_with_the_lane_and_when_they_are_turned_off(void **state)
{
    (void)state;
    scene s = begin(NULL);
    int64_t ns;
    hd_lane *lane = timed_lane(s.runtime, 0);
    hd_ticket on = mark(lane), off, again;
    CONF_OK(hd_lane_wait(lane, HD_FOREVER));
    CONF_OK(hd_lane_keep_times(lane, false));
    off = mark(lane);
    CONF_OK(hd_lane_wait(lane, HD_FOREVER));
    CONF_OK(hd_lane_keep_times(lane, true));
    CONF_OK(hd_lane_keep_times(lane, true));
    again = mark(lane);
    CONF_OK(hd_lane_wait(lane, HD_FOREVER));
    CONF_TRUE(elapsed(on, again) >= 0);
    CONF_FAILS(hd_ticket_get_elapsed(on, off, &ns), HD_ERROR_NOT_FOUND);
    int number = hd_lane_number(lane);
    CONF_OK(hd_lane_destroy(lane));
    CONF_FAILS(hd_lane_keep_times(lane, true), HD_ERROR_HANDLE);
    CONF_TRUE(elapsed(on, again) >= 0); /* tickets stay valid */
    hd_lane *next = NULL;
    CONF_OK(hd_lane_create(s.runtime, 0, &next));
    CONF_EQUAL(hd_lane_number(next), number); /* the same lane, for its next owner */
    off = mark(next);
    CONF_OK(hd_wait(off, HD_FOREVER));
    CONF_FAILS(hd_ticket_get_elapsed(on, off, &ns), HD_ERROR_NOT_FOUND);
    end(&s);
}

/* Answers of the driver to a query for a time. */
static void a_driver_that_gives_no_time_loses_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *fault;
        hd_status status;
    } of[] = {{"fault=cuEventElapsedTime:~2=600", HD_OK}, /* not ready: the engine asks again */
              {"fault=cuEventElapsedTime:1+=801", HD_ERROR_DRIVER},
              /* fatal, but the work was done before */
              {"fault=cuEventElapsedTime:1+=700", HD_ERROR_DRIVER},
              {"fault=cuEventCreate:1+=2", HD_ERROR_DRIVER},
              {"fault=cuEventRecord:1+=801", HD_ERROR_DRIVER}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        scene s = begin(of[i].fault);
        hd_lane *lane = timed_lane(s.runtime, 0);
        hd_ticket first = mark(lane), filled[20];
        for (int n = 0; n < 20; n++) {
            CONF_OK(conf_fill(lane, s.k, s.device, 0, words, (uint32_t)n, &filled[n]));
        }
        CONF_OK(hd_wait(filled[19], HD_FOREVER));
        for (int n = 0; n < 20; n++) {
            int64_t ns = -1;
            hd_status status = hd_ticket_get_elapsed(first, filled[n], &ns);
            CONF_EQUAL(status, of[i].status);
            CONF_TRUE(status != HD_OK || ns >= 0);
        }
        CONF_FILLED(s.device, 0, 19, bytes);
        end(&s);
    }
}

static void a_restart_drops_times(void **state)
{
    (void)state;
    scene s = begin(NULL);
    hd_lane *lane = timed_lane(s.runtime, 0);
    hd_ticket old = mark(lane), lost, next;
    CONF_OK(hd_wait(old, HD_FOREVER));
    if (!conf_is_process(s.runtime)) {
        end(&s);
        skip();
    }
    hd_device_info info = {.size = sizeof info};
    CONF_OK(hd_device_get_info(s.runtime, 0, &info));
    CONF_EQUAL(kill(info.worker_pid, SIGSTOP), 0);
    lost = mark(lane);
    CONF_EQUAL(kill(info.worker_pid, SIGKILL), 0);
    int64_t ns;
    CONF_FAILS(hd_wait(lost, HD_FOREVER), HD_ERROR_DEVICE_LOST);
    CONF_FAILS(hd_ticket_get_elapsed(old, lost, &ns), HD_ERROR_DEVICE_LOST);
    CONF_EQUAL(elapsed(old, old), 0);
    CONF_OK(hd_device_restart(s.runtime, 0));
    next = mark(lane);
    CONF_OK(hd_wait(next, HD_FOREVER));
    CONF_EQUAL(elapsed(next, next), 0); /* the lane still keeps times */
    CONF_FAILS_WITH(hd_ticket_get_elapsed(old, next, &ns), HD_ERROR_NOT_FOUND, "restarted");
    end(&s);
}

/* ---- threads ---- */

enum { threads = 4, rounds = 300 };

typedef struct asker {
    scene *s;
    hd_lane *lane;
    hd_ticket start;
    atomic_int done; /* operations of the other thread whose times can be queried */
    hd_ticket of[rounds];
} asker;

static void *submits(void *context)
{
    asker *a = context;
    for (int i = 0; i < rounds; i++) {
        CONF_OK(hd_lane_add_dependency(a->lane, (hd_ticket){NULL, 0}, &a->of[i]));
        CONF_OK(hd_wait(a->of[i], HD_FOREVER));
        atomic_store(&a->done, i + 1);
    }
    return NULL;
}

static void *asks(void *context)
{
    asker *a = context;
    int64_t last = 0;
    while (atomic_load(&a->done) < rounds) {
        int n = atomic_load(&a->done);
        int64_t ns = 0;
        hd_status status = n ? hd_ticket_get_elapsed(a->start, a->of[n - 1], &ns) : HD_ERROR_NOT_FOUND;
        /* its time may be dropped by now */
        CONF_TRUE(status == HD_ERROR_NOT_FOUND || (status == HD_OK && ns >= last));
        last = status == HD_OK ? ns : last;
        sched_yield();
    }
    return NULL;
}

static void threads_ask_while_others_submit(void **state)
{
    (void)state;
    scene s = begin("lane_slots=64");
    asker *of = conf_memory(threads * sizeof *of);
    memset(of, 0, threads * sizeof *of);
    pthread_t submitting[threads], asking[threads];
    hd_lane *starts = timed_lane(s.runtime, 0);
    hd_ticket start = mark(starts);
    CONF_OK(hd_wait(start, HD_FOREVER));
    for (int i = 0; i < threads; i++) {
        of[i].s = &s;
        of[i].lane = timed_lane(s.runtime, 0);
        of[i].start = start;
        CONF_EQUAL(pthread_create(&submitting[i], NULL, submits, &of[i]), 0);
        CONF_EQUAL(pthread_create(&asking[i], NULL, asks, &of[i]), 0);
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(submitting[i], NULL);
        pthread_join(asking[i], NULL);
        for (int j = rounds - 20; j < rounds; j++) {
            CONF_TRUE(elapsed(of[i].of[j - 1], of[i].of[j]) >= 0);
        }
    }
    free(of);
    end(&s);
}

int main(void)
{
    conf_begin("test_times");
    const struct CMUnitTest tests[] = {
        CONF_CASE(times_agree_with_the_program_s_clock),
        CONF_CASE(lanes_of_a_device_have_one_clock),
        CONF_CASE(work_of_others_is_timed_by_marks),
        CONF_CASE(tickets_without_a_time_are_refused),
        CONF_CASE(a_lane_keeps_as_many_times_as_it_has_slots),
        CONF_CASE(times_end_with_the_lane_and_when_they_are_turned_off),
        CONF_CASE(a_driver_that_gives_no_time_loses_nothing),
        CONF_CASE(a_restart_drops_times),
        CONF_CASE(threads_ask_while_others_submit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
