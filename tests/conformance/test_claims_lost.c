/* test_claims_lost.c - claims whose device is lost: the program keeps the claimed bytes until it
 * ends the claim, and nothing hangs.
 *
 * Promise: A loss fails claims of the device, keeps their bytes claimed, and allows a restart.
 *
 * The bytes stay claimed until the program ends the claim. The device restarts while claims are
 * open.
 *
 * Threads: the main one.
 * Locks: none. The cases run on host devices and with workers: a GPU that faults takes down the
 * driver of the whole process.
 */
#include <stdatomic.h>
#include "conformance.h"

enum { words = 4096, bytes = words * 4 };

typedef struct scene {
    hd_runtime *runtime;
    hd_lane *lane;
    conf_kernels k;
    hd_buffer *x, *pinned;
} scene;

static void begin(scene *s, const char *settings)
{
    *s = (scene){.runtime = conf_open(settings)};
    if (!conf_isolates(s->runtime)) {
        conf_close(s->runtime);
        skip();
    }
    s->lane = conf_default_lane(s->runtime, 0);
    s->k = conf_builtins(s->runtime);
    CONF_OK(hd_alloc(s->lane, bytes, &s->x));
    CONF_OK(hd_alloc_host(s->runtime, bytes, &s->pinned));
    CONF_OK(hd_fill(s->x, 0, 1, bytes, NULL));
    CONF_OK(hd_fill(s->pinned, 0, 1, bytes, NULL));
    CONF_OK(hd_buffer_wait(s->x, HD_READ, HD_FOREVER));
    CONF_OK(hd_buffer_wait(s->pinned, HD_READ, HD_FOREVER));
}

/* Reads far past the end of all mapped memory. */
static void lose(scene *s)
{
    hd_lane *lane = NULL;
    hd_buffer *total = NULL;
    hd_ticket ticket;
    CONF_OK(hd_lane_create(s->runtime, 0, &lane));
    CONF_OK(hd_alloc(lane, 4096, &total));
    hd_arg args[] = {hd_inout_range(total, 0, 4), hd_in(total), hd_u64(UINT64_C(1) << 38)};
    CONF_OK(hd_launch(lane, s->k.sum, conf_dims(2, 1, 1), conf_dims(256, 1, 1), 0, args, 3, &ticket));
    CONF_FAILS(hd_wait(ticket, HD_FOREVER), HD_ERROR_DEVICE_LOST);
    hd_free(total);
    hd_lane_destroy(lane);
}

static void an_open_claim_keeps_its_bytes(void **state)
{
    (void)state;
    scene s;
    begin(&s, NULL);
    hd_arg uses[] = {hd_inout(s.x), hd_inout(s.pinned)};
    hd_claim *c = NULL, *next = NULL;
    hd_ticket ticket;
    uint32_t *p = NULL;
    CONF_OK(hd_claim_begin(s.runtime, uses, 2, &c)); /* on the device that will be lost */
    CONF_OK(hd_claim_wait(c, HD_FOREVER));
    CONF_OK(hd_claim_get_ticket(c, &ticket));
    CONF_OK(hd_claim_get_pointer(c, 1, (void **)&p));
    lose(&s);
    CONF_FAILS_WITH(hd_claim_wait(c, HD_FOREVER), HD_ERROR_DEVICE_LOST, "this operation was under way, too");
    CONF_TRUE(!hd_done(ticket)); /* the program may still use the pinned bytes */
    int last = hd_device_count(s.runtime) - 1;
    hd_ticket filled = {NULL, 0};
    if (last > 0) {
        CONF_OK(
            conf_fill(conf_default_lane(s.runtime, last), conf_builtins(s.runtime), s.pinned, 0, words, 5, &filled));
        CONF_FAILS(hd_wait(filled, 5 * CONF_MILLISECOND), HD_ERROR_TIMEOUT);
    }
    p[0] = 3;
    CONF_OK(hd_claim_end(c, HD_OK));
    CONF_FAILS(hd_wait(ticket, HD_FOREVER), HD_ERROR_DEVICE_LOST);
    if (last > 0) {
        CONF_OK(hd_wait(filled, HD_FOREVER));
        hd_arg use = hd_in(s.pinned);
        CONF_OK(hd_claim_begin(s.runtime, &use, 1, &next)); /* in a lane of a healthy device */
        CONF_OK(hd_claim_wait(next, HD_FOREVER));
        CONF_OK(hd_claim_end(next, HD_OK));
    }
    conf_close(s.runtime);
}

static void a_claim_that_was_not_ready_never_is(void **state)
{
    (void)state;
    scene s;
    begin(&s, NULL);
    hd_arg writes = hd_out(s.x), reads = hd_in(s.x);
    hd_claim *first = NULL, *second = NULL;
    hd_ticket ticket;
    CONF_OK(hd_claim_begin(s.runtime, &writes, 1, &first));
    CONF_OK(hd_claim_begin(s.runtime, &reads, 1, &second));
    CONF_OK(hd_claim_get_ticket(second, &ticket));
    lose(&s);
    CONF_OK(hd_claim_end(first, HD_OK));
    CONF_FAILS(hd_claim_wait(second, HD_FOREVER), HD_ERROR_DEVICE_LOST);
    CONF_OK(hd_claim_end(second, HD_OK));
    CONF_FAILS(hd_wait(ticket, HD_FOREVER), HD_ERROR_DEVICE_LOST);
    hd_claim *third = NULL;
    CONF_FAILS(hd_claim_begin(s.runtime, &reads, 1, &third), HD_ERROR_DEVICE_LOST);
    conf_close(s.runtime);
}

typedef struct stage {
    atomic_bool runs, lost;
} stage;

static hd_status runs_until_the_loss(void *const *pointers, void *context)
{
    (void)pointers;
    stage *now = context;
    atomic_store(&now->runs, true);
    while (!atomic_load(&now->lost)) {
        conf_sleep_ms(1);
    }
    return HD_OK;
}

static void a_function_that_runs_was_under_way(void **state)
{
    (void)state;
    scene s;
    begin(&s, NULL);
    /* two functions: one waited for nothing, one waited for another one */
    for (int behind = 0; behind < 2; behind++) {
        hd_arg use = hd_inout(s.pinned);
        hd_ticket ticket;
        stage first = {.lost = true}, second = {.lost = false};
        if (behind) {
            CONF_OK(hd_launch_host(s.runtime, runs_until_the_loss, &first, &use, 1, NULL));
        }
        CONF_OK(hd_launch_host(s.runtime, runs_until_the_loss, &second, &use, 1, &ticket));
        while (!atomic_load(&second.runs)) {
            conf_sleep_ms(1);
        }
        lose(&s);
        atomic_store(&second.lost, true);
        CONF_FAILS_WITH(hd_wait(ticket, HD_FOREVER), HD_ERROR_DEVICE_LOST, "this operation was under way, too");
        conf_close(s.runtime);
        if (!behind) {
            begin(&s, NULL);
        }
    }
}

/* Bytes stay claimed until the program ends the claim, and the device restarts before that. */
static void the_device_comes_back_around_them(void **state)
{
    (void)state;
    scene s;
    begin(&s, NULL);
    if (!conf_is_process(s.runtime)) {
        conf_close(s.runtime);
        skip();
    }
    hd_arg uses[] = {hd_inout(s.x), hd_inout(s.pinned)};
    hd_claim *c = NULL, *next = NULL;
    hd_ticket ticket, filled;
    CONF_OK(hd_claim_begin(s.runtime, uses, 2, &c));
    CONF_OK(hd_claim_wait(c, HD_FOREVER));
    CONF_OK(hd_claim_get_ticket(c, &ticket));
    lose(&s);
    CONF_OK(hd_device_restart(s.runtime, 0));
    hd_free(s.x);
    CONF_OK(hd_alloc(s.lane, bytes, &s.x));
    /* claims on it work again, also in lanes that held claims before */
    for (int i = 0; i < 40; i++) {
        hd_arg use = hd_inout(s.x);
        CONF_OK(hd_claim_begin(s.runtime, &use, 1, &next));
        CONF_OK(hd_claim_wait(next, HD_FOREVER));
        CONF_OK(hd_claim_end(next, HD_OK));
        CONF_OK(conf_fill(s.lane, s.k, s.x, 0, words, (uint32_t)i, NULL));
        CONF_FILLED(s.x, 0, (uint32_t)i, bytes);
    }
    CONF_OK(conf_fill(s.lane, s.k, s.pinned, 0, words, 9, &filled));
    /* the program still claims these bytes */
    CONF_FAILS(hd_wait(filled, 5 * CONF_MILLISECOND), HD_ERROR_TIMEOUT);
    CONF_TRUE(!hd_done(ticket));
    CONF_OK(hd_claim_end(c, HD_OK));
    CONF_FAILS(hd_wait(ticket, HD_FOREVER), HD_ERROR_DEVICE_LOST);
    CONF_OK(hd_wait(filled, HD_FOREVER));
    CONF_FILLED(s.pinned, 0, 9, bytes);
    conf_close(s.runtime);
}

static hd_status none(void *const *pointers, void *context)
{
    (void)pointers;
    atomic_fetch_add((atomic_int *)context, 1);
    return HD_OK;
}

static void host_calls_on_a_lost_device_fail(void **state)
{
    (void)state;
    scene s;
    begin(&s, NULL);
    atomic_int calls = 0;
    hd_arg writes = hd_out(s.x), reads = hd_in(s.x);
    hd_claim *c = NULL;
    hd_ticket ticket;
    CONF_OK(hd_claim_begin(s.runtime, &writes, 1, &c));
    CONF_OK(hd_launch_host(s.runtime, none, &calls, &reads, 1, &ticket));
    lose(&s);
    CONF_OK(hd_claim_end(c, HD_OK));
    CONF_FAILS(hd_wait(ticket, HD_FOREVER), HD_ERROR_DEVICE_LOST);
    CONF_EQUAL(atomic_load(&calls), 0);
    conf_close(s.runtime);
}

int main(void)
{
    conf_begin("test_claims_lost");
    const struct CMUnitTest tests[] = {
        CONF_CASE(an_open_claim_keeps_its_bytes),      CONF_CASE(a_claim_that_was_not_ready_never_is),
        CONF_CASE(a_function_that_runs_was_under_way), CONF_CASE(the_device_comes_back_around_them),
        CONF_CASE(host_calls_on_a_lost_device_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
