/* test_claims_calls.c - functions of the program that Heddle calls: in lanes, with the lane's stream, and on threads of its own once bytes are there.
 *
 * Promise: A function of the program runs at its turn, among launches and copies, and what it returns is the outcome of its ticket.
 *
 * Threads: the main one.
 * Locks: none.
 */
#include "claim_scene.h"
#include "foreign.h"

/* ---- on threads of the library ---- */

typedef struct adding {
    atomic_int calls;
    uint32_t expects; /* of each word; 0: anything */
    uint32_t adds;
    bool wrong;
    hd_status returns;
} adding;

static hd_status add(void *const *pointers, void *context)
{
    adding *a = context;
    uint32_t *p = pointers[0];
    for (int i = 0; p != NULL && i < words; i++) {
        a->wrong |= a->expects != 0 && p[i] != a->expects;
        p[i] += a->adds;
    }
    atomic_fetch_add(&a->calls, 1);
    return a->returns;
}

static void host_calls_are_in_order_with_everything(void **state)
{
    (void)state;
    scene s = begin("host_schedule=7");
    hd_buffer *of[] = {s.pinned, s.unified};
    for (int b = 0; b < 2; b++) {
        adding a[20];
        uint32_t value = 1;
        for (int i = 0; i < 20; i++) {
            hd_arg use = hd_inout(of[b]);
            a[i] = (adding){.expects = value, .adds = (uint32_t)i};
            CONF_OK(hd_host_call(s.runtime, add, &a[i], &use, 1, NULL));
            value += (uint32_t)i;
            if (i % 3 == 0) {
                CONF_OK(conf_fill(s.lane, s.k, of[b], 0, words, value + 5, NULL));
                value += 5;
            }
            if (i % 4 == 0) {
                CONF_OK(hd_copy(s.device, 0, of[b], 0, bytes, NULL));
            }
        }
        CONF_FILLED(of[b], 0, value, bytes);
        for (int i = 0; i < 20; i++) {
            CONF_EQUAL(atomic_load(&a[i].calls), 1);
            CONF_TRUE(!a[i].wrong);
        }
    }
    end(&s);
}

static void parts_of_unified_memory_keep_the_rest(void **state)
{
    (void)state;
    scene s = begin(NULL);
    hd_buffer *large = NULL;
    size_t all = 1 << 20;
    CONF_OK(hd_alloc_unified(s.lane, all, &large));
    uint32_t *model = conf_memory(all), *got = conf_memory(all);
    conf_random r = {3};
    for (size_t i = 0; i < all / 4; i++) {
        model[i] = 7;
    }
    CONF_OK(conf_fill(s.lane, s.k, large, 0, all / 4, 7, NULL));
    adding a[40];
    for (int i = 0; i < 40; i++) {
        size_t at = conf_below(&r, all / bytes) * bytes / 2 / 4 * 4;
        if (conf_chance(&r, 50)) {
            hd_arg use = conf_chance(&r, 50) ? hd_inout_range(large, at, bytes) : hd_out_range(large, at, bytes);
            a[i] = (adding){.adds = 3};
            if (use.access == HD_WRITE) {
                CONF_OK(hd_fill(large, at, 9, bytes, NULL)); /* it adds to what it declares as not read */
                use = hd_inout_range(large, at, bytes);
                for (int j = 0; j < words; j++) {
                    model[at / 4 + (size_t)j] = 9;
                }
            }
            CONF_OK(hd_host_call(s.runtime, add, &a[i], &use, 1, NULL));
            for (int j = 0; j < words; j++) {
                model[at / 4 + (size_t)j] += 3;
            }
        } else {
            CONF_OK(conf_fill(s.lane, s.k, large, at, words, (uint32_t)i, NULL));
            for (int j = 0; j < words; j++) {
                model[at / 4 + (size_t)j] = (uint32_t)i;
            }
        }
    }
    CONF_OK(hd_read(large, 0, got, all));
    CONF_SAME(got, model, all);
    free(model);
    free(got);
    hd_free(large);
    end(&s);
}

static void a_function_that_fails_fails_what_it_writes(void **state)
{
    (void)state;
    scene s = begin(NULL);
    adding bad = {.returns = HD_ERROR_SYSTEM}, never = {.adds = 1};
    hd_arg use = hd_out(s.pinned), uses[] = {hd_inout(s.unified), hd_in(s.pinned)};
    hd_ticket first, second;
    hd_claim *holds = NULL; /* so that the first one has not failed yet when the second one is submitted */
    CONF_OK(hd_claim_begin(s.runtime, &use, 1, &holds));
    CONF_OK(hd_host_call(s.runtime, add, &bad, &use, 1, &first));
    CONF_OK(hd_host_call(s.runtime, add, &never, uses, 2, &second));
    CONF_OK(hd_claim_end(holds, HD_OK));
    CONF_FAILS_WITH(hd_wait(first, HD_FOREVER), HD_ERROR_FAILED, "HD_ERROR_SYSTEM");
    CONF_FAILS(hd_wait(second, HD_FOREVER), HD_ERROR_FAILED);
    CONF_EQUAL(atomic_load(&never.calls), 0);
    CONF_FAILS(hd_host_call(s.runtime, NULL, NULL, NULL, 0, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_host_call(NULL, add, &bad, NULL, 0, NULL), HD_ERROR_HANDLE);
    hd_arg number = hd_u32(1);
    CONF_FAILS(hd_host_call(s.runtime, add, &bad, &number, 1, NULL), HD_ERROR_ARGUMENT);
    end(&s);
}

static hd_status look(void *const *pointers, void *context)
{
    *(bool *)context = pointers[0] == NULL && pointers[1] != NULL;
    return HD_OK;
}

static void device_memory_has_no_pointer(void **state)
{
    (void)state;
    scene s = begin(NULL);
    bool right = false;
    hd_arg uses[] = {hd_in(s.device), hd_in_range(s.pinned, 16, 4)};
    hd_ticket ticket;
    CONF_OK(hd_host_call(s.runtime, look, &right, uses, 2, &ticket));
    CONF_OK(hd_wait(ticket, HD_FOREVER));
    CONF_TRUE(right);
    end(&s);
}

/* One call that waits for what another call, submitted later, does. */
typedef struct meeting {
    atomic_bool second_ran;
} meeting;

static hd_status waits_for_second(void *const *pointers, void *context)
{
    (void)pointers;
    meeting *m = context;
    while (!atomic_load(&m->second_ran)) {
        conf_sleep_ms(1);
    }
    return HD_OK;
}

static hd_status is_second(void *const *pointers, void *context)
{
    (void)pointers;
    atomic_store(&((meeting *)context)->second_ran, true);
    return HD_OK;
}

static void calls_run_beside_each_other(void **state)
{
    (void)state;
    scene s = begin("call_threads=2");
    meeting m = {false};
    hd_ticket first;
    CONF_OK(hd_host_call(s.runtime, waits_for_second, &m, NULL, 0, &first));
    CONF_OK(hd_host_call(s.runtime, is_second, &m, NULL, 0, NULL));
    CONF_OK(hd_wait(first, HD_FOREVER));
    end(&s);
}

typedef struct nested {
    scene *s;
    adding inner[80];
    int submitted;
    hd_status last;
} nested;

static hd_status submits_more(void *const *pointers, void *context)
{
    (void)pointers;
    nested *n = context;
    for (; n->submitted < 80; n->submitted++) {
        n->last = hd_host_call(n->s->runtime, add, &n->inner[n->submitted], NULL, 0, NULL);
        if (n->last) {
            break;
        }
    }
    return HD_OK;
}

static void a_call_may_submit_and_is_not_held_up(void **state)
{
    (void)state;
    scene s = begin("call_threads=1");
    nested *n = conf_memory(sizeof *n);
    memset(n, 0, sizeof *n);
    n->s = &s;
    hd_ticket ticket;
    CONF_OK(hd_host_call(s.runtime, submits_more, n, NULL, 0, &ticket));
    CONF_OK(hd_wait(ticket, HD_FOREVER));
    CONF_EQUAL(n->last, HD_ERROR_LIMIT); /* it would wait for itself */
    CONF_EQUAL(n->submitted, 63);
    adding many[200];
    memset(many, 0, sizeof many);
    for (int i = 0; i < 200; i++) { /* while others end, one has room */
        CONF_OK(hd_host_call(s.runtime, add, &many[i], NULL, 0, &ticket));
    }
    CONF_OK(hd_wait(ticket, HD_FOREVER));
    end(&s);
    for (int i = 0; i < 200; i++) {
        CONF_EQUAL(atomic_load(&many[i].calls), 1);
    }
    for (int i = 0; i < 63; i++) {
        CONF_EQUAL(atomic_load(&n->inner[i].calls), 1);
    }
    free(n);
}

static void hd_close_waits_for_calls(void **state)
{
    (void)state;
    scene s = begin(NULL);
    adding a[30];
    memset(a, 0, sizeof a);
    for (int i = 0; i < 30; i++) {
        hd_arg use = hd_inout(s.pinned);
        CONF_OK(hd_host_call(s.runtime, add, &a[i], &use, 1, NULL));
    }
    conf_close(s.runtime);
    for (int i = 0; i < 30; i++) {
        CONF_EQUAL(atomic_load(&a[i].calls), 1);
    }
}

/* ---- in lanes ---- */

static foreign driver;

typedef struct fill {
    unsigned long long address;
    uint32_t word;
    hd_status returns;
    int calls;
} fill;

static hd_status put_fill(void *stream, void *context)
{
    fill *f = context;
    f->calls++;
    if (f->address != 0 && driver.cuMemsetD32Async(f->address, f->word, words, stream) != 0) {
        return HD_ERROR_DRIVER;
    }
    return f->returns;
}

static void lane_calls_are_launches_of_the_program(void **state)
{
    (void)state;
    scene s = begin("host_schedule=11");
    fill f[50];
    hd_arg use = hd_inout(s.device);
    if (conf_is_process(s.runtime)) {
        CONF_FAILS_WITH(hd_lane_call(s.lane, put_fill, &f[0], &use, 1, NULL), HD_ERROR_UNSUPPORTED, "placement");
        end(&s);
        return;
    }
    foreign_begin(&driver, s.runtime);
    hd_lane *other = NULL;
    CONF_OK(hd_lane_create(s.runtime, 0, &other));
    hd_buffer *copies = NULL;
    CONF_OK(hd_alloc(s.lane, 50 * bytes, &copies));
    for (int i = 0; i < 50; i++) {
        f[i] = (fill){hd_buffer_address(s.device), (uint32_t)i, HD_OK, 0};
        CONF_OK(hd_lane_call(i % 2 ? s.lane : other, put_fill, &f[i], &use, 1, NULL));
        CONF_OK(hd_copy(copies, (size_t)i * bytes, s.device, 0, bytes, NULL));
        CONF_OK(conf_fill(i % 3 ? s.lane : other, s.k, s.device, 0, words, 1000, NULL));
    }
    for (int i = 0; i < 50; i++) {
        CONF_FILLED(copies, (size_t)i * bytes, (uint32_t)i, bytes);
        CONF_EQUAL(f[i].calls, 1);
    }
    hd_free(copies);
    foreign_end(&driver);
    end(&s);
}

static void a_lane_call_that_fails_fails_its_lane(void **state)
{
    (void)state;
    scene s = begin(NULL);
    if (conf_is_process(s.runtime)) {
        end(&s);
        skip();
    }
    fill bad = {.returns = HD_ERROR_SYSTEM}, never = {.returns = HD_OK};
    hd_arg use = hd_out(s.device), reads = hd_in(s.device);
    hd_lane *lane = NULL;
    CONF_OK(hd_lane_create(s.runtime, 0, &lane));
    hd_ticket first, second;
    CONF_OK(hd_lane_call(s.lane, put_fill, &bad, &use, 1, &first));
    hd_status status = hd_lane_call(lane, put_fill, &never, &reads, 1, &second);
    CONF_TRUE(status == HD_OK || status == HD_ERROR_FAILED); /* where the failure is known already */
    CONF_FAILS_WITH(hd_wait(first, HD_FOREVER), HD_ERROR_FAILED, "the call of ");
    if (status == HD_OK) {
        CONF_FAILS_WITH(hd_wait(second, HD_FOREVER), HD_ERROR_FAILED, "HD_ERROR_SYSTEM");
    }
    CONF_EQUAL(never.calls, 0);
    CONF_FAILS(hd_lane_call(s.lane, put_fill, &never, NULL, 0, NULL), HD_ERROR_LANE_FAILED);
    CONF_OK(hd_lane_reset(s.lane, HD_FOREVER));
    CONF_OK(hd_lane_call(s.lane, put_fill, &never, NULL, 0, &first));
    CONF_OK(hd_wait(first, HD_FOREVER));
    CONF_EQUAL(never.calls, 1);
    CONF_FAILS(hd_lane_call(s.lane, NULL, NULL, NULL, 0, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_lane_call(NULL, put_fill, &never, NULL, 0, NULL), HD_ERROR_HANDLE);
    end(&s);
}

static hd_status waits_inside(void *stream, void *context)
{
    (void)stream;
    hd_ticket *ticket = context;
    return hd_wait(*ticket, HD_FOREVER) == HD_ERROR_TIMEOUT ? HD_OK : HD_ERROR_FAILED;
}

static void no_wait_inside_of_a_lane_call_hangs(void **state)
{
    (void)state;
    scene s = begin(NULL);
    if (conf_is_process(s.runtime)) {
        end(&s);
        skip();
    }
    hd_claim *c = NULL;
    hd_ticket never, ticket;
    CONF_OK(hd_claim_begin(s.runtime, NULL, 0, &c));
    CONF_OK(hd_claim_get_ticket(c, &never));
    CONF_OK(hd_lane_call(s.lane, waits_inside, &never, NULL, 0, &ticket));
    CONF_OK(hd_wait(ticket, HD_FOREVER));
    CONF_OK(hd_claim_end(c, HD_OK));
    end(&s);
}

/* ---- lanes that wait ---- */

static void a_lane_waits_for_tickets_of_any_kind(void **state)
{
    (void)state;
    scene s = begin("host_schedule=5");
    int last = hd_device_count(s.runtime) - 1;
    hd_lane *other = NULL;
    hd_buffer *far = NULL;
    CONF_OK(hd_lane_create(s.runtime, last, &other));
    CONF_OK(hd_alloc(other, bytes, &far));
    hd_claim *c = NULL;
    hd_arg use = hd_inout(s.device);
    CONF_OK(hd_claim_begin(s.runtime, &use, 1, &c));
    hd_ticket launched, copied, filled;
    CONF_OK(conf_fill(s.lane, s.k, s.device, 0, words, 6, &launched));
    CONF_OK(hd_lane_after(other, launched, NULL));
    CONF_OK(conf_fill(other, s.k, far, 0, words, 7, &filled));
    CONF_FAILS(hd_wait(filled, 5 * CONF_MILLISECOND), HD_ERROR_TIMEOUT);
    CONF_OK(hd_claim_end(c, HD_OK));
    CONF_OK(hd_wait(filled, HD_FOREVER));
    CONF_TRUE(hd_done(launched));
    CONF_OK(hd_copy(s.pinned, 0, s.device, 0, bytes, &copied));
    CONF_OK(hd_lane_after(s.lane, copied, &filled)); /* of a copy lane */
    CONF_OK(hd_wait(filled, HD_FOREVER));
    CONF_TRUE(hd_done(copied));
    CONF_OK(hd_lane_after(s.lane, (hd_ticket){NULL, 0}, NULL)); /* is always done */
    CONF_OK(hd_lane_after(s.lane, filled, NULL));               /* its own */
    CONF_OK(hd_lane_wait(s.lane, HD_FOREVER));
    hd_free(far);
    end(&s);
}

static void a_lane_fails_with_the_ticket_that_it_waits_for(void **state)
{
    (void)state;
    scene s = begin(NULL);
    for (int late = 0; late < 2; late++) {
        hd_claim *c = NULL;
        hd_ticket ticket, after;
        CONF_OK(hd_claim_begin(s.runtime, NULL, 0, &c));
        CONF_OK(hd_claim_get_ticket(c, &ticket));
        if (late) {
            CONF_OK(hd_claim_end(c, HD_ERROR_FAILED));
            CONF_FAILS(hd_wait(ticket, HD_FOREVER), HD_ERROR_FAILED);
        }
        CONF_OK(hd_lane_after(s.lane, ticket, &after));
        if (!late) {
            CONF_OK(hd_claim_end(c, HD_ERROR_FAILED));
        }
        CONF_FAILS(hd_wait(after, HD_FOREVER), HD_ERROR_FAILED);
        CONF_OK(hd_lane_reset(s.lane, HD_FOREVER));
    }
    CONF_FAILS(hd_lane_after(NULL, (hd_ticket){NULL, 0}, NULL), HD_ERROR_HANDLE);
    end(&s);
}

int main(void)
{
    conf_begin("test_claims_calls");
    const struct CMUnitTest tests[] = {
        CONF_CASE(host_calls_are_in_order_with_everything),
        CONF_CASE(parts_of_unified_memory_keep_the_rest),
        CONF_CASE(a_function_that_fails_fails_what_it_writes),
        CONF_CASE(device_memory_has_no_pointer),
        CONF_CASE(calls_run_beside_each_other),
        CONF_CASE(a_call_may_submit_and_is_not_held_up),
        CONF_CASE(hd_close_waits_for_calls),
        CONF_CASE(lane_calls_are_launches_of_the_program),
        CONF_CASE(a_lane_call_that_fails_fails_its_lane),
        CONF_CASE(no_wait_inside_of_a_lane_call_hangs),
        CONF_CASE(a_lane_waits_for_tickets_of_any_kind),
        CONF_CASE(a_lane_fails_with_the_ticket_that_it_waits_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
