/* test_claims_calls.c - functions of the program that Heddle calls: in lanes, with the lane's
 * stream, and on its own threads once bytes are ready.
 *
 * Promise: A function of the program runs at its turn, and its result is the outcome of its ticket.
 *
 * Its turn comes among launches and copies.
 *
 * Threads: the main one.
 * Locks: none.
 */
#include "claim_scene.h"
#include "foreign.h"

/* ---- on threads of the library ---- */

typedef struct adding {
    atomic_int calls;
    uint32_t expects; /* the value of each word; 0: any */
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
            CONF_OK(hd_launch_host(s.runtime, add, &a[i], &use, 1, NULL));
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
                /* the function adds to its bytes, so it must declare them as read */
                CONF_OK(hd_fill(large, at, 9, bytes, NULL));
                use = hd_inout_range(large, at, bytes);
                for (int j = 0; j < words; j++) {
                    model[at / 4 + (size_t)j] = 9;
                }
            }
            CONF_OK(hd_launch_host(s.runtime, add, &a[i], &use, 1, NULL));
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
    /* so that the first one has not failed when the second one is submitted */
    hd_claim *holds = NULL;
    CONF_OK(hd_claim_begin(s.runtime, &use, 1, &holds));
    CONF_OK(hd_launch_host(s.runtime, add, &bad, &use, 1, &first));
    CONF_OK(hd_launch_host(s.runtime, add, &never, uses, 2, &second));
    CONF_OK(hd_claim_end(holds, HD_OK));
    CONF_FAILS_WITH(hd_wait(first, HD_FOREVER), HD_ERROR_FAILED, "HD_ERROR_SYSTEM");
    CONF_FAILS(hd_wait(second, HD_FOREVER), HD_ERROR_FAILED);
    CONF_EQUAL(atomic_load(&never.calls), 0);
    CONF_FAILS(hd_launch_host(s.runtime, NULL, NULL, NULL, 0, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_launch_host(NULL, add, &bad, NULL, 0, NULL), HD_ERROR_HANDLE);
    hd_arg number = hd_u32(1);
    CONF_FAILS(hd_launch_host(s.runtime, add, &bad, &number, 1, NULL), HD_ERROR_ARGUMENT);
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
    CONF_OK(hd_launch_host(s.runtime, look, &right, uses, 2, &ticket));
    CONF_OK(hd_wait(ticket, HD_FOREVER));
    CONF_TRUE(right);
    end(&s);
}

/* One call waits for an action of a later call. */
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
    CONF_OK(hd_launch_host(s.runtime, waits_for_second, &m, NULL, 0, &first));
    CONF_OK(hd_launch_host(s.runtime, is_second, &m, NULL, 0, NULL));
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
        n->last = hd_launch_host(n->s->runtime, add, &n->inner[n->submitted], NULL, 0, NULL);
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
    CONF_OK(hd_launch_host(s.runtime, submits_more, n, NULL, 0, &ticket));
    CONF_OK(hd_wait(ticket, HD_FOREVER));
    CONF_EQUAL(n->last, HD_ERROR_LIMIT); /* it would wait for itself */
    CONF_EQUAL(n->submitted, 63);
    adding many[200];
    memset(many, 0, sizeof many);
    for (int i = 0; i < 200; i++) { /* once others end, there is room for one */
        CONF_OK(hd_launch_host(s.runtime, add, &many[i], NULL, 0, &ticket));
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

/* Each call submits the next one and waits for it, as deep as the limit of calls. */
typedef struct chain {
    scene *s;
    int depth, most;
    int way; /* waits for: 0: the ticket, 1: its bytes, 2: its bytes, by a claim */
    hd_status status;
} chain;

static hd_status waits_for_next(void *const *pointers, void *context)
{
    (void)pointers;
    chain *c = context;
    int depth = c->depth++;
    if (depth == c->most) {
        return HD_OK;
    }
    hd_arg use = hd_out(c->s->pinned);
    hd_ticket next;
    hd_claim *after = NULL;
    uint32_t word = 0;
    hd_status status = hd_launch_host(c->s->runtime, waits_for_next, c, c->way ? &use : NULL, c->way ? 1 : 0, &next);
    if (!status && c->way == 2) {
        use = hd_in(c->s->pinned);
        status = hd_claim_begin(c->s->runtime, &use, 1, &after);
        status = status ? status : hd_claim_wait(after, HD_FOREVER);
        status = status ? status : hd_claim_end(after, HD_OK);
    } else if (!status) {
        status = c->way ? hd_read(c->s->pinned, 0, &word, sizeof word) : hd_wait(next, HD_FOREVER);
    }
    c->status = c->status ? c->status : status;
    return HD_OK;
}

static void calls_may_wait_for_each_other(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        scene s = begin(i % 2 ? "call_threads=2" : "call_threads=1");
        chain c = {.s = &s, .most = i < 2 ? 60 : 1, .way = i < 2 ? 0 : i - 1};
        hd_ticket ticket;
        CONF_OK(hd_launch_host(s.runtime, waits_for_next, &c, NULL, 0, &ticket));
        CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
        CONF_OK(c.status);
        CONF_EQUAL(c.depth, c.most + 1);
        meeting after = {false};
        CONF_OK(hd_launch_host(s.runtime, is_second, &after, NULL, 0, &ticket));
        CONF_OK(hd_wait(ticket, HD_FOREVER));
        end(&s);
    }
}

/* Counts how many calls run at once, while some wait. */
typedef struct counted {
    scene *s;
    atomic_int runs, most;
} counted;

static hd_status is_counted(void *const *pointers, void *context)
{
    (void)pointers;
    counted *c = context;
    int now = atomic_fetch_add(&c->runs, 1) + 1;
    for (int most = atomic_load(&c->most); most < now && !atomic_compare_exchange_weak(&c->most, &most, now);) {
    }
    for (int i = 0; i < 2000; i++) {
        atomic_load(&c->runs);
    }
    atomic_fetch_sub(&c->runs, 1);
    return HD_OK;
}

static void no_more_run_than_call_threads(void **state)
{
    (void)state;
    scene s = begin("call_threads=2");
    chain deep = {.s = &s, .most = 20};
    counted c = {.s = &s};
    hd_ticket ticket, last;
    CONF_OK(hd_launch_host(s.runtime, waits_for_next, &deep, NULL, 0, &ticket));
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    for (int i = 0; i < 300; i++) { /* the threads that the chain made do not run these */
        CONF_OK(hd_launch_host(s.runtime, is_counted, &c, NULL, 0, &last));
    }
    CONF_OK(hd_wait(last, HD_FOREVER));
    end(&s);
    CONF_TRUE(atomic_load(&c.most) <= 2);
    CONF_OK(deep.status);
}

static void hd_close_waits_for_calls(void **state)
{
    (void)state;
    scene s = begin(NULL);
    adding a[30];
    memset(a, 0, sizeof a);
    for (int i = 0; i < 30; i++) {
        hd_arg use = hd_inout(s.pinned);
        CONF_OK(hd_launch_host(s.runtime, add, &a[i], &use, 1, NULL));
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
        CONF_FAILS_WITH(hd_lane_run_native(s.lane, put_fill, &f[0], &use, 1, NULL), HD_ERROR_UNSUPPORTED, "placement");
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
        CONF_OK(hd_lane_run_native(i % 2 ? s.lane : other, put_fill, &f[i], &use, 1, NULL));
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
    CONF_OK(hd_lane_run_native(s.lane, put_fill, &bad, &use, 1, &first));
    hd_status status = hd_lane_run_native(lane, put_fill, &never, &reads, 1, &second);
    CONF_TRUE(status == HD_OK || status == HD_ERROR_FAILED); /* the failure may be known already */
    CONF_FAILS_WITH(hd_wait(first, HD_FOREVER), HD_ERROR_FAILED, "the call of ");
    if (status == HD_OK) {
        CONF_FAILS_WITH(hd_wait(second, HD_FOREVER), HD_ERROR_FAILED, "HD_ERROR_SYSTEM");
    }
    CONF_EQUAL(never.calls, 0);
    CONF_FAILS(hd_lane_run_native(s.lane, put_fill, &never, NULL, 0, NULL), HD_ERROR_LANE_FAILED);
    CONF_OK(hd_lane_reset(s.lane, HD_FOREVER));
    CONF_OK(hd_lane_run_native(s.lane, put_fill, &never, NULL, 0, &first));
    CONF_OK(hd_wait(first, HD_FOREVER));
    CONF_EQUAL(never.calls, 1);
    CONF_FAILS(hd_lane_run_native(s.lane, NULL, NULL, NULL, 0, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_lane_run_native(NULL, put_fill, &never, NULL, 0, NULL), HD_ERROR_HANDLE);
    end(&s);
}

static hd_status knows_no_status(void *const *pointers, void *context)
{
    (void)pointers;
    return *(hd_status *)context;
}

static hd_status knows_no_status_in_lane(void *stream, void *context)
{
    (void)stream;
    return *(hd_status *)context;
}

static void values_that_are_no_status_are_named(void **state)
{
    (void)state;
    static hd_status values[] = {(hd_status)-999, (hd_status)7};
    scene s = begin(NULL);
    for (int i = 0; i < 2; i++) {
        const char *said = i ? " 7, which is no status" : " -999, which is no status";
        hd_ticket ticket;
        CONF_OK(hd_launch_host(s.runtime, knows_no_status, &values[i], NULL, 0, &ticket));
        CONF_FAILS_WITH(hd_wait(ticket, HD_FOREVER), HD_ERROR_FAILED, said);
        if (!conf_is_process(s.runtime)) {
            CONF_OK(hd_lane_run_native(s.lane, knows_no_status_in_lane, &values[i], NULL, 0, &ticket));
            CONF_FAILS_WITH(hd_wait(ticket, HD_FOREVER), HD_ERROR_FAILED, said);
            CONF_OK(hd_lane_reset(s.lane, HD_FOREVER));
        }
    }
    end(&s);
}

/* Calls of a function in a lane: those that submit or wait are refused, and those that ask are
 * answered. */
typedef struct inside {
    scene *s;
    hd_claim *open;
    hd_ticket never;
    int calls;
    hd_status wrong; /* the first that was not refused */
    char message[300];
    bool answers;
} inside;

static void refused(inside *in, hd_status status)
{
    in->calls++;
    if (status != HD_ERROR_HANDLE && in->wrong == HD_OK) {
        in->wrong = status ? status : 1;
    }
}

static hd_status no_host_call(void *const *pointers, void *context)
{
    (void)pointers;
    (void)context;
    return HD_OK;
}

static hd_status no_call(void *stream, void *context)
{
    (void)stream;
    (void)context;
    return HD_OK;
}

static hd_status calls_heddle(void *stream, void *context)
{
    (void)stream;
    inside *in = context;
    scene *s = in->s;
    hd_arg use = hd_inout(s->pinned), unified = hd_inout(s->unified);
    hd_claim *c = NULL;
    hd_lane *lane = NULL;
    hd_buffer *b = NULL;
    hd_runtime *runtime = NULL;
    uint32_t word = 0;
    void *p = NULL;
    refused(in, hd_wait(in->never, HD_FOREVER));
    refused(in, hd_claim_wait(in->open, HD_FOREVER));
    refused(in, hd_launch_host(s->runtime, no_host_call, NULL, &use, 1, NULL));
    snprintf(in->message, sizeof in->message, "%s", hd_message());
    refused(in, hd_fill(s->unified, 0, 1, bytes, NULL));
    refused(in, hd_fill(s->device, 0, 1, bytes, NULL));
    refused(in, hd_copy(s->device, 0, s->unified, 0, bytes, NULL));
    refused(in, hd_claim_begin(s->runtime, &unified, 1, &c));
    refused(in, hd_claim_end(in->open, HD_OK));
    refused(in, conf_fill(s->lane, s->k, s->unified, 0, words, 5, NULL));
    refused(in, hd_lane_create(s->runtime, 0, &lane));
    refused(in, hd_lane_wait(s->lane, HD_FOREVER));
    refused(in, hd_lane_run_native(s->lane, no_call, NULL, NULL, 0, NULL));
    refused(in, hd_lane_add_dependency(s->lane, in->never, NULL));
    refused(in, hd_read(s->device, 0, &word, sizeof word));
    refused(in, hd_write(s->device, 0, &word, sizeof word));
    refused(in, hd_map(s->pinned, HD_READ, &p));
    refused(in, hd_alloc(s->lane, bytes, &b));
    refused(in, hd_alloc_host(s->runtime, bytes, &b));
    refused(in, hd_alloc_unified(s->lane, bytes, &b));
    refused(in, hd_free(s->unified));
    refused(in, hd_open(NULL, &runtime));
    refused(in, hd_close(s->runtime));
    in->answers = !hd_done(in->never) && hd_claim_ready(in->open) && hd_buffer_address(s->device) != 0 &&
                  hd_buffer_size(s->device) == bytes && hd_device_count(s->runtime) > 0;
    return HD_OK;
}

static void a_lane_call_must_not_call_heddle(void **state)
{
    (void)state;
    scene s = begin(NULL);
    if (conf_is_process(s.runtime)) {
        end(&s);
        skip();
    }
    inside in = {.s = &s};
    hd_ticket ticket;
    CONF_OK(hd_claim_begin(s.runtime, NULL, 0, &in.open));
    CONF_OK(hd_claim_get_ticket(in.open, &in.never));
    for (int i = 0; i < 3; i++) { /* the thread calls Heddle again afterwards */
        CONF_OK(hd_lane_run_native(s.lane, calls_heddle, &in, NULL, 0, &ticket));
        CONF_OK(hd_wait(ticket, HD_FOREVER));
        CONF_OK(hd_fill(s.unified, 0, 1, bytes, NULL));
    }
    if (in.wrong != HD_OK) {
        conf_fail_at(__FILE__, __LINE__, "a call inside was not refused: %d", (int)in.wrong);
    }
    CONF_EQUAL(in.calls, 66);
    CONF_TRUE(in.answers);
    CONF_TRUE(strstr(in.message, "hd_launch_host: a function of hd_lane_run_native must not") != NULL);
    CONF_OK(hd_claim_end(in.open, HD_OK));
    CONF_FILLED(s.unified, 0, 1, bytes);
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
    CONF_OK(hd_lane_add_dependency(other, launched, NULL));
    CONF_OK(conf_fill(other, s.k, far, 0, words, 7, &filled));
    CONF_FAILS(hd_wait(filled, 5 * CONF_MILLISECOND), HD_ERROR_TIMEOUT);
    CONF_OK(hd_claim_end(c, HD_OK));
    CONF_OK(hd_wait(filled, HD_FOREVER));
    CONF_TRUE(hd_done(launched));
    CONF_OK(hd_copy(s.pinned, 0, s.device, 0, bytes, &copied));
    CONF_OK(hd_lane_add_dependency(s.lane, copied, &filled)); /* in a copy lane */
    CONF_OK(hd_wait(filled, HD_FOREVER));
    CONF_TRUE(hd_done(copied));
    CONF_OK(hd_lane_add_dependency(s.lane, (hd_ticket){NULL, 0}, NULL)); /* always done */
    CONF_OK(hd_lane_add_dependency(s.lane, filled, NULL));               /* in its own lane */
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
        CONF_OK(hd_lane_add_dependency(s.lane, ticket, &after));
        if (!late) {
            CONF_OK(hd_claim_end(c, HD_ERROR_FAILED));
        }
        CONF_FAILS(hd_wait(after, HD_FOREVER), HD_ERROR_FAILED);
        /* the wait depends on it, and reads nothing */
        CONF_TRUE(strstr(hd_message(), "reads") == NULL);
        CONF_OK(hd_lane_reset(s.lane, HD_FOREVER));
    }
    CONF_FAILS(hd_lane_add_dependency(NULL, (hd_ticket){NULL, 0}, NULL), HD_ERROR_HANDLE);
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
        CONF_CASE(calls_may_wait_for_each_other),
        CONF_CASE(no_more_run_than_call_threads),
        CONF_CASE(hd_close_waits_for_calls),
        CONF_CASE(lane_calls_are_launches_of_the_program),
        CONF_CASE(a_lane_call_that_fails_fails_its_lane),
        CONF_CASE(values_that_are_no_status_are_named),
        CONF_CASE(a_lane_call_must_not_call_heddle),
        CONF_CASE(a_lane_waits_for_tickets_of_any_kind),
        CONF_CASE(a_lane_fails_with_the_ticket_that_it_waits_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
