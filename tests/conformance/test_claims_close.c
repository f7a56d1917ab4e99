/* test_claims_close.c - hd_close while claims and functions of the program are under way, and
 * hd_close in such a function.
 *
 * Promise: hd_close waits for submitted functions and open claims, and fails inside a function.
 *
 * Threads: the main one, which closes, and one that ends claims meanwhile.
 * Locks: none.
 */
#include "claim_scene.h"
#include <pthread.h>
#include <stdatomic.h>

/* ---- calls under way while it closes ---- */

enum { CALLS = 12 };

typedef struct beside {
    scene s;
    hd_claim *gate; /* in front of all calls */
    atomic_int ran, failed;
    hd_status ended, refused;
} beside;

static void expect(beside *b, hd_status status)
{
    if (status) {
        fprintf(stderr, "%s\n", hd_message());
        atomic_fetch_add(&b->failed, 1);
    }
}

static hd_status last_work(void *const *pointers, void *context)
{
    (void)pointers;
    beside *b = context;
    atomic_fetch_add(&b->ran, 1);
    return HD_OK;
}

/* Uses Heddle as any function may. */
static void work(beside *b)
{
    hd_buffer *mine = NULL;
    hd_ticket ticket;
    hd_lane *lane = NULL, *own = NULL;
    hd_claim *claim = NULL;
    uint32_t word = 0;
    expect(b, hd_lane_create(b->s.runtime, 0, &lane));
    expect(b, hd_alloc(lane, bytes, &mine));
    expect(b, hd_fill(mine, 0, 7, bytes, NULL));
    expect(b, conf_fill(lane, b->s.k, mine, 0, words, 9, &ticket));
    expect(b, hd_wait(ticket, HD_FOREVER));
    expect(b, hd_read(mine, 0, &word, sizeof word));
    expect(b, word == 9 ? HD_OK : HD_ERROR_FAILED);
    hd_arg use = hd_inout(mine);
    expect(b, hd_claim_begin(b->s.runtime, &use, 1, &claim));
    expect(b, hd_claim_wait(claim, HD_FOREVER));
    expect(b, hd_claim_end(claim, HD_OK));
    expect(b, hd_lane_get_default(b->s.runtime, 0, &own));
    expect(b, hd_free(mine));
    expect(b, hd_lane_destroy(lane));
    expect(b, hd_launch_host(b->s.runtime, last_work, b, NULL, 0, NULL));
    atomic_fetch_add(&b->ran, 1);
}

static hd_status works(void *const *pointers, void *context)
{
    (void)pointers;
    work(context);
    return HD_OK;
}

static void is_ready(hd_claim *claim, hd_status status, void *context)
{
    beside *b = context;
    expect(b, status);
    work(b);
    expect(b, hd_claim_end(claim, HD_OK));
}

/* Ends the claim that holds up all others, once hd_close has begun. */
static void *ends_gate(void *context)
{
    beside *b = context;
    hd_claim *none = NULL;
    while ((b->refused = hd_claim_begin(b->s.runtime, NULL, 0, &none)) == HD_OK) {
        CONF_OK(hd_claim_end(none, HD_OK));
        conf_sleep_ms(1);
    }
    b->ended = hd_claim_end(b->gate, HD_OK);
    return NULL;
}

static void functions_run_to_their_end(void **state)
{
    (void)state;
    for (int threads = 1; threads < 4; threads += 2) {
        beside b = {.s = begin(threads == 1 ? "call_threads=1" : "call_threads=3")};
        hd_arg use = hd_inout(b.s.pinned), reads = hd_in(b.s.pinned);
        CONF_OK(hd_claim_begin(b.s.runtime, &use, 1, &b.gate));
        for (int i = 0; i < CALLS; i++) {
            CONF_OK(hd_launch_host(b.s.runtime, works, &b, &use, 1, NULL));
            hd_claim *c = NULL;
            CONF_OK(hd_claim_begin(b.s.runtime, &reads, 1, &c));
            CONF_OK(hd_claim_on_ready(c, is_ready, &b));
        }
        pthread_t thread;
        CONF_EQUAL(pthread_create(&thread, NULL, ends_gate, &b), 0);
        conf_close(b.s.runtime);
        CONF_EQUAL(pthread_join(thread, NULL), 0);
        CONF_EQUAL(b.refused, HD_ERROR_HANDLE);
        CONF_OK(b.ended);
        CONF_EQUAL(atomic_load(&b.failed), 0);
        CONF_EQUAL(atomic_load(&b.ran), 4 * CALLS);
    }
}

/* No call waits behind this claim: hd_close continues only once the thread ends it. */
static void a_claim_may_be_ended_while_it_closes(void **state)
{
    (void)state;
    beside b = {.s = begin("close_timeout=60000")};
    hd_arg use = hd_inout(b.s.device);
    hd_ticket filled;
    CONF_OK(hd_claim_begin(b.s.runtime, &use, 1, &b.gate));
    CONF_OK(conf_fill(b.s.lane, b.s.k, b.s.device, 0, words, 3, &filled));
    pthread_t thread;
    CONF_EQUAL(pthread_create(&thread, NULL, ends_gate, &b), 0);
    conf_close(b.s.runtime);
    CONF_EQUAL(pthread_join(thread, NULL), 0);
    CONF_OK(b.ended);
}

/* Makes the calls that need no lock on their way, once hd_close began. Then ends the claim. */
static void *calls_with_the_runtime(void *context)
{
    beside *b = context;
    hd_runtime *rt = b->s.runtime;
    hd_buffer *x = NULL;
    hd_claim *c = NULL;
    hd_lane *lane = NULL;
    hd_claim_options options = {.size = sizeof options, .copies = true};
    hd_arg use = hd_inout(b->s.pinned);
    while (hd_alloc_host(rt, bytes, &x) == HD_OK) {
        CONF_OK(hd_free(x));
        conf_sleep_ms(1);
    }
    CONF_FAILS_WITH(hd_claim_begin(rt, &use, 1, &c), HD_ERROR_HANDLE, "hd_claim_begin: ");
    CONF_FAILS(hd_claim_begin(rt, NULL, 0, &c), HD_ERROR_HANDLE);
    CONF_FAILS(hd_claim_begin_with(rt, &use, 1, NULL, &c), HD_ERROR_HANDLE);
    CONF_FAILS(hd_claim_begin_with(rt, &use, 1, &options, &c), HD_ERROR_HANDLE);
    CONF_FAILS(hd_claim_begin_stream(rt, 0, NULL, &use, 1, NULL, &c), HD_ERROR_HANDLE);
    CONF_FAILS(hd_lane_get_default(rt, 0, &lane), HD_ERROR_HANDLE);
    CONF_FAILS(hd_lane_create(rt, 0, &lane), HD_ERROR_HANDLE);
    CONF_OK(hd_fill(b->s.pinned, 0, 3, bytes, NULL)); /* calls with a buffer still work */
    b->ended = hd_claim_end(b->gate, HD_OK);
    return NULL;
}

static void calls_with_the_runtime_are_refused_meanwhile(void **state)
{
    (void)state;
    beside b = {.s = begin("close_timeout=60000")};
    hd_arg use = hd_inout(b.s.device);
    CONF_OK(hd_claim_begin(b.s.runtime, &use, 1, &b.gate));
    pthread_t thread;
    conf_failure_ends_program = true; /* cmocka's checks work only on the main thread */
    CONF_EQUAL(pthread_create(&thread, NULL, calls_with_the_runtime, &b), 0);
    conf_close(b.s.runtime);
    CONF_EQUAL(pthread_join(thread, NULL), 0);
    conf_failure_ends_program = false;
    CONF_OK(b.ended);
}

static int threads_now(void)
{
    char line[128] = "";
    int n = 0;
    FILE *file = fopen("/proc/self/status", "r");
    CONF_TRUE(file != NULL);
    while (n == 0 && fgets(line, sizeof line, file)) {
        sscanf(line, "Threads: %d", &n);
    }
    fclose(file);
    return n;
}

static void a_forgotten_claim_has_the_time_of_work(void **state)
{
    (void)state;
    int before = threads_now();
    scene s = begin("close_timeout=100");
    hd_claim_options options = {.size = sizeof options, .label = "forgotten"};
    hd_arg use = hd_inout(s.device);
    hd_claim *c = NULL;
    CONF_OK(hd_claim_begin_with(s.runtime, &use, 1, &options, &c));
    conf_track(s.runtime, NULL);
    int64_t begin_ns = conf_now();
    CONF_FAILS_WITH(hd_close(s.runtime), HD_ERROR_TIMEOUT, "claim 'forgotten' of ");
    CONF_TRUE(conf_now() - begin_ns >= 100 * CONF_MILLISECOND);
    CONF_FAILS(hd_claim_end(c, HD_OK), HD_ERROR_HANDLE);
    /* memory may remain, but no thread; the watchdog ends the case */
    while (threads_now() > before) {
        conf_sleep_ms(1);
    }
}

static void all_forgotten_claims_are_named(void **state)
{
    (void)state;
    scene s = begin("close_timeout=100");
    const char *labels[] = {"north", "south", "east", "west", "up"};
    for (int i = 0; i < 5; i++) {
        hd_claim_options options = {.size = sizeof options, .label = labels[i]};
        hd_claim *c = NULL;
        CONF_OK(hd_claim_begin_with(s.runtime, NULL, 0, &options, &c));
    }
    conf_track(s.runtime, NULL);
    CONF_FAILS_WITH(hd_close(s.runtime), HD_ERROR_TIMEOUT, "claim 'north' of ");
    CONF_TRUE(strstr(hd_message(), "claim 'south' of ") != NULL);
    CONF_TRUE(strstr(hd_message(), " more were never ended") != NULL);
}

/* ---- hd_close inside ---- */

typedef struct closing {
    hd_runtime *runtime;
    atomic_int refused;
    atomic_bool named;
} closing;

static void close_inside(closing *c)
{
    if (hd_close(c->runtime) == HD_ERROR_HANDLE) {
        atomic_fetch_add(&c->refused, 1);
    }
    atomic_store(&c->named, strstr(hd_message(), "hd_close: ") != NULL);
}

static hd_status closes(void *const *pointers, void *context)
{
    (void)pointers;
    close_inside(context);
    return HD_OK;
}

static void closes_when_ready(hd_claim *claim, hd_status status, void *context)
{
    (void)status;
    close_inside(context);
    hd_claim_end(claim, HD_OK);
}

static hd_status closes_in_lane(void *stream, void *context)
{
    (void)stream;
    close_inside(context);
    return HD_OK;
}

static void it_is_refused_in_functions(void **state)
{
    (void)state;
    scene s = begin(NULL);
    closing c = {.runtime = s.runtime};
    hd_ticket ticket;
    CONF_OK(hd_launch_host(s.runtime, closes, &c, NULL, 0, &ticket));
    CONF_OK(hd_wait(ticket, HD_FOREVER));
    CONF_EQUAL(atomic_load(&c.refused), 1);
    CONF_TRUE(atomic_load(&c.named));
    hd_claim *claim = NULL;
    CONF_OK(hd_claim_begin(s.runtime, NULL, 0, &claim));
    CONF_OK(hd_claim_get_ticket(claim, &ticket));
    CONF_OK(hd_claim_on_ready(claim, closes_when_ready, &c));
    CONF_OK(hd_wait(ticket, HD_FOREVER));
    CONF_EQUAL(atomic_load(&c.refused), 2);
    if (!conf_is_process(s.runtime)) {
        CONF_OK(hd_lane_run_native(s.lane, closes_in_lane, &c, NULL, 0, &ticket));
        CONF_OK(hd_wait(ticket, HD_FOREVER));
        CONF_EQUAL(atomic_load(&c.refused), 3);
    }
    CONF_OK(hd_fill(s.device, 0, 2, bytes, NULL)); /* nothing happened */
    CONF_FILLED(s.device, 0, 2, bytes);
    end(&s);
}

/* A function of one runtime may close another one. */
static void another_runtime_may_be_closed_there(void **state)
{
    (void)state;
    scene s = begin(NULL);
    closing c = {.runtime = NULL};
    hd_ticket ticket;
    CONF_OK(hd_open(NULL, &c.runtime));
    CONF_OK(hd_launch_host(s.runtime, closes, &c, NULL, 0, &ticket));
    CONF_OK(hd_wait(ticket, HD_FOREVER));
    CONF_EQUAL(atomic_load(&c.refused), 0);
    CONF_FAILS(hd_close(c.runtime), HD_ERROR_HANDLE);
    end(&s);
}

int main(void)
{
    conf_begin("test_claims_close");
    const struct CMUnitTest tests[] = {
        CONF_CASE(functions_run_to_their_end),
        CONF_CASE(a_claim_may_be_ended_while_it_closes),
        CONF_CASE(calls_with_the_runtime_are_refused_meanwhile),
        CONF_CASE(a_forgotten_claim_has_the_time_of_work),
        CONF_CASE(all_forgotten_claims_are_named),
        CONF_CASE(it_is_refused_in_functions),
        CONF_CASE(another_runtime_may_be_closed_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
