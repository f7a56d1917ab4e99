/* test_lane.c - lanes and tickets: default lanes, making and giving back, limits, waiting, full
 * rings, many threads.
 *
 * Promise: A ticket is truthful even after its lane ended; lanes keep their limits.
 *
 * Threads: up to 8 at once that submit to one lane or to their own. Shared data is atomic or
 * joined.
 * Locks: none.
 * Always: a ticket reports its work truthfully, also after its lane was given back and the place
 * was used again.
 */
#include "conformance.h"

#include <pthread.h>
#include <sys/resource.h>
#include <stdatomic.h>

/* Opens a runtime with kernels that take long, and a lane that nothing else uses. */
static hd_runtime *open_with_lane(conf_slow *slow, hd_lane **lane)
{
    hd_runtime *runtime = conf_open(NULL);
    conf_slow_make(slow, runtime, 0);
    *lane = NULL;
    CONF_OK(hd_lane_create(runtime, 0, lane));
    return runtime;
}

/* Runs the function in `n` threads, each with its element of `arguments`, and joins them. */
static void run_threads(int n, void *(*function)(void *), void *arguments, size_t each)
{
    pthread_t threads[8];
    CONF_TRUE(n <= 8);
    for (int i = 0; i < n; i++) {
        CONF_EQUAL(pthread_create(&threads[i], NULL, function, (char *)arguments + (size_t)i * each), 0);
    }
    for (int i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
    }
}

/* Makes two buffers of `bytes`: zeros to add to, and ones. */
static void make_sum(hd_lane *lane, size_t bytes, hd_buffer **sum, hd_buffer **ones)
{
    CONF_OK(hd_alloc(lane, bytes, sum));
    CONF_OK(hd_alloc(lane, bytes, ones));
    CONF_OK(hd_fill(*sum, 0, conf_bits(0), bytes, NULL));
    CONF_OK(hd_fill(*ones, 0, conf_bits(1), bytes, NULL));
}

static void facts_of_lanes(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    int count = hd_device_count(runtime);
    for (int d = 0; d < count; d++) {
        hd_lane *mine = conf_default_lane(runtime, d), *a = NULL, *b = NULL;
        CONF_TRUE(mine != NULL && conf_default_lane(runtime, d) == mine);
        CONF_OK(hd_lane_create(runtime, d, &a));
        CONF_OK(hd_lane_create(runtime, d, &b));
        CONF_TRUE(a != b && a != mine && b != mine);
        CONF_EQUAL(hd_lane_device(mine), d);
        CONF_EQUAL(hd_lane_device(a), d);
        CONF_TRUE(hd_lane_number(a) >= 0 && hd_lane_number(a) < 256);
        CONF_TRUE(hd_lane_number(a) != hd_lane_number(b) && hd_lane_number(a) != hd_lane_number(mine));
        CONF_OK(hd_lane_wait(a, 0)); /* the lane is empty: done */
        CONF_OK(hd_lane_wait(mine, HD_FOREVER));
        hd_ticket ticket = conf_lane_ticket(a);
        CONF_TRUE(hd_done(ticket));
        CONF_OK(hd_wait(ticket, 0));
        CONF_OK(hd_lane_reset(a, HD_FOREVER)); /* nothing failed: no harm */
        hd_lane_destroy(mine);                 /* a default lane: ignored */
        CONF_TRUE(conf_default_lane(runtime, d) == mine);
        CONF_EQUAL(hd_lane_device(mine), d);
        hd_lane_destroy(a);
        hd_lane_destroy(a); /* a bad handle now */
        CONF_EQUAL(hd_lane_device(a), -1);
        CONF_EQUAL(hd_lane_number(a), -1);
        CONF_FAILS(hd_lane_wait(a, 0), HD_ERROR_HANDLE);
        CONF_FAILS(hd_lane_reset(a, 0), HD_ERROR_HANDLE);
        ticket = conf_lane_ticket(a);
        CONF_TRUE(ticket.lane == NULL && ticket.sequence == 0);
        hd_buffer *buffer = NULL;
        CONF_FAILS(hd_alloc(a, 64, &buffer), HD_ERROR_HANDLE);
        CONF_OK(hd_alloc(b, 64, &buffer));
        conf_kernels k = conf_builtins(runtime);
        CONF_FAILS(conf_fill(a, k, buffer, 0, 16, 1, NULL), HD_ERROR_HANDLE);
        hd_lane_destroy(b);
    }
    conf_close(runtime);
}

typedef struct default_lanes {
    hd_runtime *runtime;
    hd_lane *lanes[8];
    pthread_barrier_t barrier;
    atomic_int next;
} default_lanes;

static void *takes_default_lanes(void *argument)
{
    default_lanes *shared = argument;
    int me = atomic_fetch_add(&shared->next, 1);
    shared->lanes[me] = conf_default_lane(shared->runtime, 0);
    CONF_TRUE(shared->lanes[me] != NULL);
    CONF_TRUE(conf_default_lane(shared->runtime, 0) == shared->lanes[me]);
    pthread_barrier_wait(&shared->barrier); /* all alive at once */
    return NULL;
}

static void default_lanes_belong_to_threads(void **state)
{
    (void)state;
    static default_lanes shared;
    memset(&shared, 0, sizeof shared);
    shared.runtime = conf_open(NULL);
    pthread_barrier_init(&shared.barrier, NULL, 8);
    run_threads(8, takes_default_lanes, &shared, 0);
    for (int i = 0; i < 8; i++) {
        for (int j = 0; j < i; j++) {
            CONF_TRUE(shared.lanes[i] != shared.lanes[j]);
        }
    }
    pthread_barrier_destroy(&shared.barrier);
    conf_close(shared.runtime);
}

typedef struct ending {
    hd_runtime *runtime;
    const conf_slow *slow;
    hd_buffer *buffer;
    size_t offset;
    uint32_t value;
    double ms;
    hd_ticket ticket;
} ending;

static void *ends_with_work(void *argument)
{
    ending *e = argument;
    hd_lane *lane = conf_default_lane(e->runtime, 0);
    CONF_TRUE(lane != NULL);
    if (e->ms > 0) {
        conf_slow_run(e->slow, lane, NULL, e->offset % 4096, e->ms, NULL);
    }
    CONF_OK(conf_fill(lane, e->slow->kernels, e->buffer, e->offset, 1, e->value, &e->ticket));
    return NULL;
}

/* More threads than there can be lanes, one after the other and several at once. */
static void threads_end_while_their_lane_works(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    conf_slow slow;
    conf_slow_make(&slow, runtime, 0);
    enum { rounds = CONF_TSAN ? 40 : 80, at_once = 4 };
    hd_buffer *buffer = NULL;
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), rounds * at_once * 4, &buffer));
    CONF_OK(hd_fill(buffer, 0, 0xffffffffu, rounds * at_once * 4, NULL));
    static ending endings[rounds * at_once];
    for (int r = 0; r < rounds; r++) {
        for (int i = 0; i < at_once; i++) {
            int n = r * at_once + i;
            endings[n] = (ending){.runtime = runtime,
                                  .slow = &slow,
                                  .buffer = buffer,
                                  .offset = (size_t)n * 4,
                                  .value = (uint32_t)n,
                                  .ms = r % 10 == 0 ? 5 : 0};
        }
        run_threads(at_once, ends_with_work, &endings[r * at_once], sizeof endings[0]);
        if (r % 3 == 0) {
            CONF_OK(hd_wait(endings[r * at_once].ticket, 60 * CONF_SECOND));
        }
    }
    for (int n = 0; n < rounds * at_once; n++) {
        CONF_OK(hd_wait(endings[n].ticket, 60 * CONF_SECOND));
        CONF_TRUE(hd_done(endings[n].ticket));
    }
    uint32_t got[rounds * at_once];
    CONF_OK(hd_read(buffer, 0, got, sizeof got));
    for (int n = 0; n < rounds * at_once; n++) {
        CONF_EQUAL(got[n], n);
    }
    conf_close(runtime);
}

static void lanes_are_made_and_given_back_many_times(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    conf_kernels k = conf_builtins(runtime);
    enum { many = CONF_TSAN ? 300 : 1000 };
    hd_buffer *buffer = NULL;
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), many * 4, &buffer));
    CONF_OK(hd_fill(buffer, 0, 0xffffffffu, many * 4, NULL));
    static hd_ticket tickets[many];
    for (uint32_t i = 0; i < many; i++) {
        hd_lane *lane = NULL;
        CONF_OK(hd_lane_create(runtime, 0, &lane));
        CONF_OK(conf_fill(lane, k, buffer, (size_t)i * 4, 1, i, &tickets[i]));
        hd_lane_destroy(lane);
    }
    for (uint32_t i = 0; i < many; i++) {
        CONF_OK(hd_wait(tickets[i], 60 * CONF_SECOND));
    }
    for (uint32_t i = 0; i < many; i++) {
        CONF_TRUE(hd_done(tickets[i]));
    }
    static uint32_t got[many];
    CONF_OK(hd_read(buffer, 0, got, sizeof got));
    for (uint32_t i = 0; i < many; i++) {
        CONF_EQUAL(got[i], i);
    }
    conf_close(runtime);
}

/* A ticket of a lane that ended, while others take its place. */
static void tickets_outlive_lanes(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    conf_slow slow;
    conf_slow_make(&slow, runtime, 0);
    for (int round = 0; round < 5; round++) {
        hd_lane *lane = NULL;
        hd_ticket late, early;
        CONF_OK(hd_lane_create(runtime, 0, &lane));
        conf_slow_run(&slow, lane, NULL, 0, 2, &early);
        conf_slow_run(&slow, lane, NULL, 0, 30, &late);
        hd_lane_destroy(lane);
        for (int i = 0; i < 20; i++) {
            hd_lane *other = NULL;
            hd_ticket ticket;
            CONF_OK(hd_lane_create(runtime, 0, &other));
            conf_slow_run(&slow, other, NULL, 4, 0, &ticket);
            hd_lane_destroy(other);
            CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
            if (hd_done(late)) {
                CONF_TRUE(hd_done(early));
            }
        }
        CONF_OK(hd_wait(late, 60 * CONF_SECOND));
        CONF_TRUE(hd_done(early) && hd_done(late));
        CONF_OK(hd_wait(early, 0));
        CONF_OK(hd_wait(late, 0));
    }
    conf_close(runtime);
}

static void there_is_a_limit_of_lanes(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    static hd_lane *lanes[300];
    int made = 0;
    hd_status status = HD_OK;
    while (made < 300 && (status = hd_lane_create(runtime, 0, &lanes[made])) == HD_OK) {
        made++;
    }
    CONF_FAILS_WITH(status, HD_ERROR_LIMIT, "256");
    CONF_TRUE(made <= 256 && made >= 200);
    hd_lane *none = (hd_lane *)(uintptr_t)0x1234;
    CONF_FAILS(hd_lane_create(runtime, 0, &none), HD_ERROR_LIMIT);
    CONF_TRUE(none == (hd_lane *)(uintptr_t)0x1234);
    /* all of them work */
    conf_kernels k = conf_builtins(runtime);
    hd_buffer *buffer = NULL;
    CONF_OK(hd_alloc(lanes[0], 300 * 4, &buffer));
    for (int i = 0; i < made; i++) {
        CONF_OK(conf_fill(lanes[i], k, buffer, (size_t)i * 4, 1, (uint32_t)i, NULL));
    }
    uint32_t got[300];
    CONF_OK(hd_read(buffer, 0, got, (size_t)made * 4));
    for (int i = 0; i < made; i++) {
        CONF_EQUAL(got[i], i);
        CONF_OK(hd_lane_wait(lanes[i], 60 * CONF_SECOND));
    }
    /* lanes that were given back can be made again */
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < made; i++) {
            hd_lane_destroy(lanes[i]);
        }
        for (int i = 0; i < made; i++) {
            CONF_OK(hd_lane_create(runtime, 0, &lanes[i]));
        }
    }
    CONF_FAILS(hd_lane_create(runtime, 0, &none), HD_ERROR_LIMIT);
    conf_close(runtime);
}

static void waits_end_in_time(void **state)
{
    (void)state;
    conf_slow slow;
    hd_lane *lane;
    hd_runtime *runtime = open_with_lane(&slow, &lane);
    bool seen = false;
    for (double ms = 100; !seen && ms <= 25600; ms *= 2) {
        hd_ticket ticket = {NULL, 0};
        conf_slow_run(&slow, lane, NULL, 0, ms, &ticket);
        CONF_TRUE(ticket.lane != NULL);
        if (hd_wait(ticket, 0) == HD_OK) {
            continue; /* meanwhile the thread was not scheduled: submit more work */
        }
        CONF_FAILS(HD_ERROR_TIMEOUT, HD_ERROR_TIMEOUT);
        if (hd_done(ticket) || hd_wait(ticket, CONF_MILLISECOND) == HD_OK) {
            continue;
        }
        CONF_FAILS(HD_ERROR_TIMEOUT, HD_ERROR_TIMEOUT);
        hd_status status = hd_lane_wait(lane, CONF_MILLISECOND);
        if (status == HD_OK) {
            continue;
        }
        CONF_FAILS(status, HD_ERROR_TIMEOUT);
        status = hd_lane_reset(lane, 0);
        CONF_TRUE(status == HD_ERROR_TIMEOUT || status == HD_OK);
        seen = true;
        CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
        CONF_TRUE(hd_done(ticket));
        CONF_OK(hd_wait(ticket, 0));
        CONF_OK(hd_lane_wait(lane, 0));
    }
    CONF_TRUE(seen);
    conf_close(runtime);
}

static void tickets_are_done_in_order(void **state)
{
    (void)state;
    conf_slow slow;
    hd_lane *lane;
    hd_runtime *runtime = open_with_lane(&slow, &lane);
    hd_ticket tickets[40];
    for (int i = 0; i < 40; i++) {
        conf_slow_run(&slow, lane, NULL, 0, 1, &tickets[i]);
        if (i > 0) {
            CONF_TRUE(tickets[i].sequence > tickets[i - 1].sequence);
        }
    }
    hd_ticket all = conf_lane_ticket(lane);
    CONF_TRUE(all.sequence >= tickets[39].sequence);
    int done = 0;
    while (done < 40) {
        int now = 0;
        /* from the last one: if one is done, all before it are done */
        for (int i = 39; i >= 0; i--) {
            if (hd_done(tickets[i])) {
                now = i + 1;
                break;
            }
        }
        for (int i = 0; i < now; i++) {
            CONF_TRUE(hd_done(tickets[i]));
        }
        CONF_TRUE(now >= done);
        if (now == done) {
            CONF_OK(hd_wait(tickets[done], 60 * CONF_SECOND));
        }
        done = now > done ? now : done;
    }
    CONF_OK(hd_wait(all, 60 * CONF_SECOND));
    conf_close(runtime);
}

typedef struct crowd {
    hd_lane *lane;
    hd_ticket ticket;
    conf_kernels kernels;
    hd_buffer *counter, *ones, *own;
    int number, launches;
    hd_status status;
} crowd;

static void *waits_for_one(void *argument)
{
    crowd *c = argument;
    c->status = hd_wait(c->ticket, 60 * CONF_SECOND);
    return NULL;
}

static void many_threads_wait_for_one_ticket(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    conf_slow slow;
    conf_slow_make(&slow, runtime, 0);
    for (int round = 0; round < 10; round++) {
        hd_ticket ticket;
        conf_slow_run(&slow, conf_default_lane(runtime, 0), NULL, 0, round, &ticket);
        crowd crowds[8];
        for (int i = 0; i < 8; i++) {
            crowds[i] = (crowd){.ticket = ticket, .status = HD_ERROR_SYSTEM};
        }
        run_threads(8, waits_for_one, crowds, sizeof crowds[0]);
        for (int i = 0; i < 8; i++) {
            CONF_EQUAL(crowds[i].status, HD_OK);
        }
    }
    conf_close(runtime);
}

typedef struct sleeper {
    hd_ticket ticket;
    pthread_t thread;
    hd_status status;
    long sleeps; /* times that the thread slept */
} sleeper;

static void *sleeps_for_one(void *argument)
{
    sleeper *s = argument;
    struct rusage before, after;
    getrusage(RUSAGE_THREAD, &before);
    s->status = hd_wait(s->ticket, 60 * CONF_SECOND);
    getrusage(RUSAGE_THREAD, &after);
    s->sleeps = after.ru_nvcsw - before.ru_nvcsw;
    return NULL;
}

/* Operations in front of the last one do not wake a thread that sleeps for the last one. */
static void a_sleeper_is_woken_for_its_own_ticket(void **state)
{
    (void)state;
    enum { operations = 600 };
    /* with a watchdog the engine sees each operation end */
    hd_runtime *runtime = conf_open("watchdog=100000");
    if (conf_is_inline(runtime)) { /* with this placement the thread that waits does the work */
        conf_close(runtime);
        skip();
    }
    conf_slow slow;
    conf_slow_make(&slow, runtime, 0);
    hd_lane *lane = NULL;
    CONF_OK(hd_lane_create(runtime, 0, &lane));
    static hd_ticket tickets[operations];
    for (int i = 0; i < operations; i++) {
        CONF_OK(conf_sum(lane, slow.kernels, slow.sink, 0, slow.zeros, 0, slow.n / 8, 1, &tickets[i]));
    }
    sleeper s = {.ticket = tickets[operations - 1]};
    CONF_EQUAL(pthread_create(&s.thread, NULL, sleeps_for_one, &s), 0);
    for (int i = 0; i < operations; i++) { /* each is reported as soon as it is done */
        CONF_OK(hd_wait(tickets[i], 60 * CONF_SECOND));
    }
    pthread_join(s.thread, NULL);
    CONF_OK(s.status);
    CONF_TRUE(s.sleeps < operations / 4);
    conf_slow_free(&slow);
    conf_close(runtime);
}

static void *adds_ones(void *argument)
{
    crowd *c = argument;
    hd_ticket before = {NULL, 0};
    for (int i = 0; i < c->launches; i++) {
        hd_ticket ticket;
        CONF_OK(conf_axpy(c->lane, c->kernels, c->counter, 0, c->ones, 0, 1.0f, 64, &ticket));
        CONF_OK(conf_axpy(c->lane, c->kernels, c->own, (size_t)c->number * 256, c->ones, 0, 1.0f, 64, NULL));
        CONF_TRUE(ticket.sequence > before.sequence);
        before = ticket;
    }
    return NULL;
}

static void eight_threads_submit_to_one_lane(void **state)
{
    (void)state;
    /* also with a ring that is always full */
    static const char *const settings[] = {NULL, "lane_slots=128"};
    for (int s = 0; s < 2; s++) {
        hd_runtime *runtime = conf_open(settings[s]);
        hd_lane *lane = NULL;
        CONF_OK(hd_lane_create(runtime, 0, &lane));
        hd_buffer *counter = NULL, *ones = NULL, *own = NULL;
        make_sum(lane, 256, &counter, &ones);
        CONF_OK(hd_alloc(lane, 8 * 256, &own));
        CONF_OK(hd_fill(own, 0, conf_bits(0), 8 * 256, NULL));
        enum { launches = CONF_TSAN ? 100 : 500 };
        crowd crowds[8];
        for (int i = 0; i < 8; i++) {
            crowds[i] = (crowd){.lane = lane,
                                .kernels = conf_builtins(runtime),
                                .counter = counter,
                                .ones = ones,
                                .own = own,
                                .number = i,
                                .launches = launches};
        }
        run_threads(8, adds_ones, crowds, sizeof crowds[0]);
        CONF_OK(hd_lane_wait(lane, 60 * CONF_SECOND));
        CONF_FILLED(counter, 0, conf_bits(8.0f * launches), 256);
        CONF_FILLED(own, 0, conf_bits((float)launches), 8 * 256);
        conf_close(runtime);
    }
}

static void a_full_ring_blocks_and_goes_on(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("lane_slots=128");
    conf_slow slow;
    conf_slow_make(&slow, runtime, 0);
    hd_lane *lane = NULL;
    CONF_OK(hd_lane_create(runtime, 0, &lane));
    hd_buffer *y = NULL, *ones = NULL;
    make_sum(lane, 4, &y, &ones);
    hd_device_stats before = {.size = sizeof before}, after = before;
    CONF_OK(hd_device_get_stats(runtime, 0, &before));
    conf_slow_run(&slow, lane, NULL, 0, 20, NULL);
    enum { launches = CONF_TSAN ? 500 : 3000 };
    hd_ticket ticket;
    for (int i = 0; i < launches; i++) {
        CONF_OK(conf_axpy(lane, slow.kernels, y, 0, ones, 0, 1.0f, 1, &ticket));
    }
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    CONF_FILLED(y, 0, conf_bits((float)launches), 4);
    CONF_OK(hd_device_get_stats(runtime, 0, &after));
    CONF_TRUE(after.ring_full_stalls > before.ring_full_stalls);
    conf_close(runtime);
}

/* Full rings of several lanes that wait for each other. */
static void full_rings_that_depend_on_each_other(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("lane_slots=128");
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lanes[3];
    hd_buffer *y = NULL, *ones = NULL;
    for (int i = 0; i < 3; i++) {
        CONF_OK(hd_lane_create(runtime, 0, &lanes[i]));
    }
    make_sum(lanes[0], 400, &y, &ones);
    enum { launches = CONF_TSAN ? 600 : 3000 };
    for (int i = 0; i < launches; i++) {
        CONF_OK(conf_axpy(lanes[i % 3], k, y, 0, ones, 0, 1.0f, 100, NULL));
    }
    CONF_FILLED(y, 0, conf_bits((float)launches), 400);
    conf_close(runtime);
}

static void a_lane_wait_covers_what_was_submitted(void **state)
{
    (void)state;
    conf_slow slow;
    hd_lane *lane;
    hd_runtime *runtime = open_with_lane(&slow, &lane);
    for (int i = 0; i < 20; i++) {
        hd_ticket tickets[4];
        for (int j = 0; j < 4; j++) {
            conf_slow_run(&slow, lane, NULL, 0, 0.5, &tickets[j]);
        }
        CONF_OK(hd_lane_wait(lane, HD_FOREVER));
        for (int j = 0; j < 4; j++) {
            CONF_TRUE(hd_done(tickets[j]));
        }
    }
    conf_close(runtime);
}

static void made_up_tickets_are_refused(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *x = NULL;
    CONF_OK(hd_alloc(lane, 4096, &x));
    CONF_OK(conf_fill(lane, conf_builtins(runtime), x, 0, 1024, 1, NULL));
    hd_ticket last = conf_lane_ticket(lane);
    hd_ticket made_up[] = {{lane, last.sequence + 1}, {lane, last.sequence + 100}, {lane, UINT64_MAX}, {NULL, 5}};
    for (int i = 0; i < 4; i++) {
        CONF_FAILS_WITH(hd_wait(made_up[i], HD_FOREVER), HD_ERROR_ARGUMENT, "hd_wait: ticket ");
        CONF_FAILS_WITH(hd_wait(made_up[i], 0), HD_ERROR_ARGUMENT, "hd_wait: ticket ");
        CONF_FAILS(hd_lane_add_dependency(lane, made_up[i], NULL), HD_ERROR_ARGUMENT);
    }
    CONF_OK(hd_wait(last, HD_FOREVER));
    conf_close(runtime);
}

/* A claim holds up a fill in the lane, and a second claim. */
static void bad_limits_do_not_wait(void **state)
{
    (void)state;
    const int64_t bad[] = {-2, -1000000, INT64_MIN};
    hd_runtime *runtime = conf_open(NULL);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *x = NULL;
    hd_claim *first = NULL, *second = NULL;
    hd_ticket ticket;
    CONF_OK(hd_alloc(lane, 4096, &x));
    hd_arg use = hd_inout(x);
    CONF_OK(hd_claim_begin(runtime, &use, 1, &first));
    CONF_OK(conf_fill(lane, conf_builtins(runtime), x, 0, 1024, 1, &ticket));
    CONF_OK(hd_claim_begin(runtime, &use, 1, &second));
    for (int i = 0; i < 3; i++) {
        CONF_FAILS_WITH(hd_wait(ticket, bad[i]), HD_ERROR_ARGUMENT, "HD_FOREVER");
        CONF_FAILS_WITH(hd_lane_wait(lane, bad[i]), HD_ERROR_ARGUMENT, "HD_FOREVER");
        CONF_FAILS_WITH(hd_lane_reset(lane, bad[i]), HD_ERROR_ARGUMENT, "HD_FOREVER");
        CONF_FAILS_WITH(hd_buffer_wait(x, HD_READ, bad[i]), HD_ERROR_ARGUMENT, "HD_FOREVER");
        CONF_FAILS_WITH(hd_claim_wait(second, bad[i]), HD_ERROR_ARGUMENT, "HD_FOREVER");
    }
    CONF_OK(hd_claim_end(first, HD_OK));
    CONF_OK(hd_claim_wait(second, HD_FOREVER));
    CONF_OK(hd_claim_end(second, HD_OK));
    CONF_OK(hd_wait(ticket, HD_FOREVER));
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_lane");
    const struct CMUnitTest tests[] = {
        CONF_CASE(facts_of_lanes),
        CONF_CASE(default_lanes_belong_to_threads),
        CONF_CASE(threads_end_while_their_lane_works),
        CONF_CASE(lanes_are_made_and_given_back_many_times),
        CONF_CASE(tickets_outlive_lanes),
        CONF_CASE(there_is_a_limit_of_lanes),
        CONF_CASE(waits_end_in_time),
        CONF_CASE(tickets_are_done_in_order),
        CONF_CASE(many_threads_wait_for_one_ticket),
        CONF_CASE(a_sleeper_is_woken_for_its_own_ticket),
        CONF_CASE(eight_threads_submit_to_one_lane),
        CONF_CASE(a_full_ring_blocks_and_goes_on),
        CONF_CASE(full_rings_that_depend_on_each_other),
        CONF_CASE(a_lane_wait_covers_what_was_submitted),
        CONF_CASE(made_up_tickets_are_refused),
        CONF_CASE(bad_limits_do_not_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
