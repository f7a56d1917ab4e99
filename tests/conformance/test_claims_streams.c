/* test_claims_streams.c - claims on streams of the program: its work there is in order with
 * Heddle's work, and nothing waits on the host.
 *
 * Promise: Work in a stream of the program runs at its claim's place in the order of all work.
 *
 * It runs behind the work for which its claim waits, and before the work that waits for the claim.
 *
 * Threads: the main one.
 * Locks: none.
 */
#include "foreign.h"

enum { words = 4096, bytes = words * 4 };

typedef struct scene {
    hd_runtime *runtime;
    hd_lane *lane;
    conf_kernels k;
    hd_buffer *x, *y;
    foreign f;
    void *stream;
} scene;

/* False: with worker processes the program has no driver. */
static bool begin(scene *s, const char *settings)
{
    *s = (scene){.runtime = conf_open(settings)};
    s->lane = conf_default_lane(s->runtime, 0);
    s->k = conf_builtins(s->runtime);
    CONF_OK(hd_alloc(s->lane, bytes, &s->x));
    CONF_OK(hd_alloc(s->lane, bytes, &s->y));
    CONF_OK(hd_fill(s->x, 0, 1, bytes, NULL));
    CONF_OK(hd_fill(s->y, 0, 1, bytes, NULL));
    if (conf_is_process(s->runtime)) {
        hd_claim *c = NULL;
        CONF_FAILS_WITH(hd_claim_begin_stream(s->runtime, 0, NULL, NULL, 0, NULL, &c), HD_ERROR_UNSUPPORTED,
                        "placement");
        conf_close(s->runtime);
        return false;
    }
    foreign_begin(&s->f, s->runtime);
    s->stream = foreign_stream(&s->f, 0);
    return true;
}

static void end(scene *s)
{
    hd_free(s->x);
    hd_free(s->y);
    conf_close(s->runtime);
    foreign_enter(&s->f, 0);
    CONF_EQUAL(s->f.cuStreamDestroy(s->stream), 0);
    foreign_leave(&s->f);
    foreign_end(&s->f);
}

static void put_fill(scene *s, hd_buffer *at, uint32_t word, void *stream)
{
    foreign_enter(&s->f, 0);
    CONF_EQUAL(s->f.cuMemsetD32Async(hd_buffer_address(at), word, words, stream), 0);
    foreign_leave(&s->f);
}

static void put_copy(scene *s, hd_buffer *to, hd_buffer *from, void *stream)
{
    foreign_enter(&s->f, 0);
    CONF_EQUAL(s->f.cuMemcpyDtoDAsync(hd_buffer_address(to), hd_buffer_address(from), bytes, stream), 0);
    foreign_leave(&s->f);
}

static hd_claim *claim(scene *s, const hd_arg *uses, size_t n, void *stream)
{
    hd_claim *c = NULL;
    CONF_OK(hd_claim_begin_stream(s->runtime, 0, stream, uses, n, NULL, &c));
    return c;
}

/* Kernels, the program's copies, and Heddle's copies take turns: each sees the result of the one
 * before. */
static void in_turns(scene *s, void *stream)
{
    hd_buffer *history = NULL;
    CONF_OK(hd_alloc(s->lane, 60 * bytes, &history));
    for (uint32_t i = 0; i < 60; i++) {
        CONF_OK(conf_fill(s->lane, s->k, s->x, 0, words, i, NULL));
        hd_arg uses[] = {hd_in(s->x), hd_out(s->y)};
        hd_claim *c = claim(s, uses, 2, stream);
        put_fill(s, s->y, 77, stream);
        put_copy(s, s->y, s->x, stream);
        CONF_OK(hd_claim_end(c, HD_OK));
        CONF_OK(hd_copy(history, (size_t)i * bytes, s->y, 0, bytes, NULL));
    }
    for (uint32_t i = 0; i < 60; i++) {
        CONF_FILLED(history, (size_t)i * bytes, i, bytes);
    }
    hd_free(history);
}

static void it_is_in_turns_with_lanes(void **state)
{
    (void)state;
    scene s;
    if (begin(&s, "host_schedule=3")) {
        in_turns(&s, s.stream);
        end(&s);
    }
}

static void default_streams_work_too(void **state)
{
    (void)state;
    scene s;
    if (begin(&s, "host_schedule=9")) {
        for (uintptr_t stream = 0; stream <= 2; stream++) {
            in_turns(&s, (void *)stream);
        }
        end(&s);
    }
}

static void later_work_waits_for_the_stream(void **state)
{
    (void)state;
    scene s;
    if (!begin(&s, NULL)) {
        return;
    }
    gate g = {false, false};
    hd_arg use = hd_inout(s.x);
    hd_ticket ticket, filled;
    hd_claim *c = claim(&s, &use, 1, s.stream);
    CONF_OK(hd_claim_get_ticket(c, &ticket));
    foreign_enter(&s.f, 0);
    CONF_EQUAL(s.f.cuLaunchHostFunc(s.stream, gate_stand, &g), 0);
    foreign_leave(&s.f);
    put_fill(&s, s.x, 5, s.stream);
    CONF_FAILS_WITH(hd_buffer_wait(s.x, HD_READ, 5 * CONF_MILLISECOND), HD_ERROR_TIMEOUT, "a claim on a stream of ");
    CONF_OK(hd_claim_end(c, HD_OK)); /* returns at once, although the stream is blocked */
    CONF_OK(conf_fill(s.lane, s.k, s.x, 0, words, 6, &filled));
    CONF_FAILS(hd_wait(filled, 5 * CONF_MILLISECOND), HD_ERROR_TIMEOUT);
    CONF_TRUE(!hd_done(ticket));
    atomic_store(&g.open, true);
    CONF_OK(hd_wait(filled, HD_FOREVER));
    CONF_OK(hd_wait(ticket, HD_FOREVER));
    CONF_FILLED(s.x, 0, 6, bytes);
    end(&s);
}

static void the_stream_waits_for_earlier_work(void **state)
{
    (void)state;
    scene s;
    if (!begin(&s, NULL)) {
        return;
    }
    conf_slow slow;
    conf_slow_make(&slow, s.runtime, 0);
    hd_lane *lanes[3];
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 3; i++) {
            CONF_OK(hd_lane_create(s.runtime, 0, &lanes[i]));
            conf_slow_run(&slow, lanes[i], NULL, (size_t)i * 4, 2, NULL);
            CONF_OK(hd_lane_add_dependency(s.lane, (hd_ticket){NULL, 0}, NULL));
            CONF_OK(conf_fill(lanes[i], s.k, s.x, (size_t)i * 64, 16, (uint32_t)round, NULL));
        }
        hd_arg uses[] = {hd_in(s.x), hd_out(s.y)};
        hd_claim *c = claim(&s, uses, 2, s.stream);
        put_copy(&s, s.y, s.x, s.stream);
        CONF_OK(hd_claim_end(c, HD_OK));
        for (int i = 0; i < 3; i++) {
            CONF_FILLED(s.y, (size_t)i * 64, (uint32_t)round, 64);
            hd_lane_destroy(lanes[i]);
        }
    }
    conf_slow_free(&slow);
    end(&s);
}

/* The stream waits for nothing that a failed begin names. So a later claim on it is not in order
 * with that work. */
static void a_claim_that_failed_orders_no_other(void **state)
{
    (void)state;
    scene s;
    if (!begin(&s, "submit_timeout=50")) {
        return;
    }
    hd_arg use = hd_out(s.x);
    hd_claim *first = NULL, *c = NULL;
    CONF_OK(hd_claim_begin(s.runtime, &use, 1, &first));
    for (int i = 0; i < 2; i++) {
        CONF_FAILS(hd_claim_begin_stream(s.runtime, 0, s.stream, &use, 1, NULL, &c), HD_ERROR_TIMEOUT);
    }
    CONF_OK(hd_claim_end(first, HD_OK));
    CONF_OK(conf_fill(s.lane, s.k, s.x, 0, words, 6, NULL));
    CONF_FILLED(s.x, 0, 6, bytes);
    end(&s);
}

static void other_devices_are_waited_for(void **state)
{
    (void)state;
    scene s;
    if (!begin(&s, "host_schedule=21")) {
        return;
    }
    if (hd_device_count(s.runtime) < 2) {
        end(&s);
        skip();
    }
    hd_buffer *far = NULL;
    hd_lane *other = conf_default_lane(s.runtime, 1);
    CONF_OK(hd_alloc(other, bytes, &far));
    for (uint32_t i = 0; i < 30; i++) {
        CONF_OK(conf_fill(other, s.k, far, 0, words, i, NULL));
        CONF_OK(hd_copy(s.x, 0, far, 0, bytes, NULL)); /* in a lane of either device */
        hd_arg uses[] = {hd_in(s.x), hd_out(s.y)};
        hd_claim *c = claim(&s, uses, 2, s.stream);
        put_copy(&s, s.y, s.x, s.stream);
        CONF_OK(hd_claim_end(c, HD_OK));
        CONF_OK(hd_copy(far, 0, s.y, 0, bytes, NULL));
        CONF_FILLED(far, 0, i, bytes);
    }
    hd_free(far);
    end(&s);
}

static void a_failed_end_fails_the_readers(void **state)
{
    (void)state;
    scene s;
    if (!begin(&s, NULL)) {
        return;
    }
    hd_arg use = hd_out(s.x);
    hd_claim *c = claim(&s, &use, 1, s.stream);
    put_fill(&s, s.x, 9, s.stream);
    CONF_OK(hd_claim_end(c, HD_ERROR_FAILED));
    CONF_FAILS(hd_buffer_wait(s.x, HD_READ, HD_FOREVER), HD_ERROR_FAILED);
    CONF_OK(hd_fill(s.x, 0, 2, bytes, NULL));
    CONF_FILLED(s.x, 0, 2, bytes);
    end(&s);
}

/* ---- streams that are refused ---- */

static void captures_are_refused_and_not_spoilt(void **state)
{
    (void)state;
    scene s;
    if (!begin(&s, NULL)) {
        return;
    }
    hd_arg use = hd_inout(s.x);
    hd_claim *c = NULL;
    void *graph = NULL;
    foreign_enter(&s.f, 0);
    CONF_EQUAL(s.f.cuStreamBeginCapture(s.stream, 1), 0); /* of this thread alone */
    foreign_leave(&s.f);
    CONF_FAILS_WITH(hd_claim_begin_stream(s.runtime, 0, s.stream, &use, 1, NULL, &c), HD_ERROR_UNSUPPORTED, "captured");
    foreign_enter(&s.f, 0);
    CONF_EQUAL(s.f.cuStreamEndCapture(s.stream, &graph), 0);
    CONF_EQUAL(s.f.cuGraphDestroy(graph), 0);
    foreign_leave(&s.f);

    c = claim(&s, &use, 1, s.stream);
    put_fill(&s, s.x, 4, s.stream);
    foreign_enter(&s.f, 0);
    CONF_EQUAL(s.f.cuStreamBeginCapture(s.stream, 1), 0);
    foreign_leave(&s.f);
    /* the claim gets this outcome once the capture is over */
    CONF_FAILS(hd_claim_end(c, HD_OK), HD_ERROR_UNSUPPORTED);
    foreign_enter(&s.f, 0);
    CONF_EQUAL(s.f.cuStreamEndCapture(s.stream, &graph), 0);
    CONF_EQUAL(s.f.cuGraphDestroy(graph), 0);
    foreign_leave(&s.f);
    uint32_t word;
    CONF_FAILS(hd_read(s.x, 0, &word, sizeof word), HD_ERROR_FAILED);
    CONF_OK(hd_fill(s.x, 0, 2, bytes, NULL));
    CONF_FILLED(s.x, 0, 2, bytes);
    end(&s);
}

static void wrong_streams_are_refused(void **state)
{
    (void)state;
    scene s;
    if (!begin(&s, NULL)) {
        return;
    }
    hd_claim *c = NULL;
    hd_arg use = hd_in(s.x), number = hd_u32(1);
    CONF_FAILS(hd_claim_begin_stream(s.runtime, 99, s.stream, &use, 1, NULL, &c), HD_ERROR_NO_DEVICE);
    CONF_FAILS(hd_claim_begin_stream(s.runtime, 0, s.stream, &number, 1, NULL, &c), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_claim_begin_stream(s.runtime, 0, s.stream, &use, 1, NULL, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_claim_begin_stream(NULL, 0, s.stream, &use, 1, NULL, &c), HD_ERROR_HANDLE);
    const hd_claim_options copies = {.size = sizeof copies, .copies = true};
    CONF_FAILS_WITH(hd_claim_begin_stream(s.runtime, 0, s.stream, &use, 1, &copies, &c), HD_ERROR_ARGUMENT, "copies");
    if (hd_device_count(s.runtime) > 1) {
        CONF_FAILS_WITH(hd_claim_begin_stream(s.runtime, 1, s.stream, NULL, 0, NULL, &c), HD_ERROR_ARGUMENT, "device");
    }
    end(&s);
}

/* A driver may read memory behind a handle of a destroyed stream. Host devices look handles up in a
 * table. */
static void a_stream_that_is_gone_ends_its_claim(void **state)
{
    (void)state;
    scene s;
    if (!begin(&s, NULL)) {
        return;
    }
    if (!conf_is_host(s.runtime)) {
        end(&s);
        skip();
    }
    hd_arg use = hd_out(s.x);
    void *gone = foreign_stream(&s.f, 0);
    hd_claim *c = claim(&s, &use, 1, gone);
    put_fill(&s, s.x, 9, gone);
    foreign_enter(&s.f, 0);
    CONF_EQUAL(s.f.cuStreamDestroy(gone), 0);
    foreign_leave(&s.f);
    void *next = foreign_stream(&s.f, 0); /* may get the same address */
    CONF_FAILS_WITH(hd_claim_end(c, HD_OK), HD_ERROR_HANDLE, "destroyed");
    CONF_FAILS(hd_claim_end(c, HD_OK), HD_ERROR_HANDLE);
    CONF_FAILS(hd_buffer_wait(s.x, HD_READ, HD_FOREVER), HD_ERROR_FAILED);
    foreign_enter(&s.f, 0);
    CONF_EQUAL(s.f.cuStreamDestroy(next), 0);
    foreign_leave(&s.f);
    end(&s);
}

int main(void)
{
    conf_begin("test_claims_streams");
    const struct CMUnitTest tests[] = {
        CONF_CASE(it_is_in_turns_with_lanes),           CONF_CASE(default_streams_work_too),
        CONF_CASE(later_work_waits_for_the_stream),     CONF_CASE(the_stream_waits_for_earlier_work),
        CONF_CASE(a_claim_that_failed_orders_no_other), CONF_CASE(other_devices_are_waited_for),
        CONF_CASE(a_failed_end_fails_the_readers),      CONF_CASE(captures_are_refused_and_not_spoilt),
        CONF_CASE(wrong_streams_are_refused),           CONF_CASE(a_stream_that_is_gone_ends_its_claim),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
