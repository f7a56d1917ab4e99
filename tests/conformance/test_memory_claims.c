/* test_memory_claims.c - the option memory_debug if a buffer is freed while a claim or a call of
 * the program is open.
 *
 * Promise: hd_free waits for no claim; guards are checked after the claims and the work behind.
 *
 * Threads: the main one, the library's checker, which finds overruns, and one that ends a claim.
 * Locks: none.
 * Processes: in the placement process the workers, one of which is lost.
 * Always: a program without mistakes gets no finding.
 */
#include <pthread.h>
#include <stdatomic.h>
#include "debug.h"
#include "foreign.h"

enum { MOST = 16, BYTES = 400, WORDS_TOO_MANY = 103 }; /* 412 bytes */

typedef struct told {
    hd_finding findings[MOST];
    atomic_int taken, count; /* `count` of them are written */
} told;

typedef struct scene {
    hd_runtime *runtime;
    hd_lane *lane;
    conf_kernels k;
    told *told;
} scene;

static void tells(void *context, const hd_finding *finding)
{
    told *t = context;
    int at = atomic_fetch_add(&t->taken, 1);
    CONF_TRUE(at < MOST && finding->size == sizeof *finding);
    t->findings[at] = *finding;
    atomic_fetch_add(&t->count, 1);
}

static scene begin(const char *settings)
{
    static told all;
    memset(&all, 0, sizeof all);
    scene s = {.runtime = conf_open_with(DEBUG " %s", settings), .told = &all};
    s.lane = conf_default_lane(s.runtime, 0);
    s.k = conf_builtins(s.runtime);
    CONF_OK(hd_memory_on_finding(s.runtime, tells, &all));
    return s;
}

/* The figures and the counters change together; the callback comes after them. */
static void await_overruns(const scene *s, int device, uint64_t count)
{
    while (stats_of(s->runtime, device).overruns < count || atomic_load(&s->told->count) < (int)count) {
        conf_sleep_ms(1); /* the watchdog ends the case */
    }
    CONF_EQUAL(stats_of(s->runtime, device).overruns, count);
    CONF_EQUAL(atomic_load(&s->told->count), count);
}

static void await_nothing_held(const scene *s, int device)
{
    while (stats_of(s->runtime, device).held_bytes != 0) {
        conf_sleep_ms(1);
    }
}

static void nothing_is_found(const scene *s)
{
    for (int d = 0; d < hd_device_count(s->runtime); d++) {
        hd_memory_stats stats = stats_of(s->runtime, d);
        CONF_TRUE(stats.overruns == 0 && stats.double_frees == 0 && stats.live_bytes == 0);
    }
    CONF_EQUAL(atomic_load(&s->told->count), 0);
}

static hd_claim *claim(const scene *s, hd_arg use)
{
    hd_claim *c = NULL;
    CONF_OK(hd_claim_begin(s->runtime, &use, 1, &c));
    return c;
}

/* Declares BYTES, and writes 12 bytes behind them. */
static hd_ticket overrun(const scene *s, hd_lane *lane, hd_buffer *b)
{
    hd_ticket ticket;
    hd_arg args[] = {hd_out(b), hd_u64(WORDS_TOO_MANY), hd_u32(9)};
    CONF_OK(hd_launch(lane, s->k.fill, conf_grid(WORDS_TOO_MANY, 128), conf_dims(128, 1, 1), 0, args, 3, &ticket));
    return ticket;
}

/* ---- mistakes ---- */

static void an_overrun_is_found_once_the_claim_is_over(void **state)
{
    (void)state;
    const hd_status outcomes[] = {HD_OK, HD_ERROR_SYSTEM};
    scene s = begin("");
    int last = hd_device_count(s.runtime) - 1;
    hd_lane *lane = conf_default_lane(s.runtime, last);
    for (int i = 0; i < 2; i++) {
        hd_buffer *b = labelled(lane, BYTES, "too short");
        hd_ticket ticket = overrun(&s, lane, b); /* before the claim */
        hd_claim *c = claim(&s, hd_inout(b));
        CONF_OK(hd_wait(ticket, HD_FOREVER));
        leave_message();
        CONF_OK(hd_free(b)); /* this thread must end the claim */
        CONF_TRUE(message_is_left());
        CONF_EQUAL(stats_of(s.runtime, last).overruns, (uint64_t)i);
        CONF_OK(hd_claim_end(c, outcomes[i]));
        await_overruns(&s, last, (uint64_t)i + 1);
        const hd_finding *f = &s.told->findings[i];
        CONF_TRUE(f->kind == HD_FINDING_OVERRUN && f->device == last && f->bytes == BYTES && f->count == 1);
        CONF_TRUE(strcmp(f->label, "too short") == 0 && f->call_site != NULL);
        CONF_TRUE(strncmp(f->message, "hd_free: ", 9) == 0);
        CONF_TRUE(strstr(f->message, "12 from offset 400 to 411") != NULL && strstr(f->message, "+0x") != NULL);
        CONF_TRUE(message_is_left()); /* another thread set that message */
    }
    await_nothing_held(&s, last);
    char *json = json_of(s.runtime);
    CONF_EQUAL(json_count_at(json, "findings"), 2);
    free(json);
    conf_close(s.runtime);
}

/* Work that was submitted behind the claim runs after hd_free. */
static void so_is_one_by_work_behind_the_claim(void **state)
{
    (void)state;
    scene s = begin("");
    hd_buffer *b = labelled(s.lane, BYTES, "later");
    hd_claim *c = claim(&s, hd_inout(b));
    hd_ticket ticket = overrun(&s, s.lane, b);
    CONF_OK(hd_free(b));
    CONF_TRUE(!hd_done(ticket));
    CONF_EQUAL(atomic_load(&s.told->count), 0);
    CONF_OK(hd_claim_end(c, HD_OK));
    await_overruns(&s, 0, 1);
    CONF_TRUE(hd_done(ticket));

    /* the buffer's own use waits for a claim of other bytes */
    hd_buffer *other = labelled(s.lane, BYTES, "of the claim");
    b = labelled(s.lane, BYTES, "by order");
    c = claim(&s, hd_inout(other));
    hd_ticket of_claim;
    CONF_OK(hd_claim_get_ticket(c, &of_claim));
    CONF_OK(hd_lane_add_dependency(s.lane, of_claim, NULL));
    ticket = overrun(&s, s.lane, b);
    CONF_OK(hd_free(b));
    CONF_TRUE(!hd_done(ticket));
    CONF_OK(hd_claim_end(c, HD_OK));
    await_overruns(&s, 0, 2);
    CONF_TRUE(strcmp(s.told->findings[1].label, "by order") == 0);
    CONF_OK(hd_free(other));
    conf_close(s.runtime);
}

/* Several claims: the last one decides. */
static void the_last_claim_decides(void **state)
{
    (void)state;
    scene s = begin("");
    hd_buffer *b = labelled(s.lane, BYTES, "shared"), *other = labelled(s.lane, BYTES, "free at once");
    CONF_OK(hd_wait(overrun(&s, s.lane, b), HD_FOREVER));
    hd_claim *first = claim(&s, hd_in(b)), *second = claim(&s, hd_in(b)), *apart = claim(&s, hd_in(other));
    CONF_OK(hd_free(b));
    CONF_OK(hd_free(other));
    CONF_OK(hd_claim_end(second, HD_OK));
    CONF_OK(hd_claim_end(apart, HD_OK));
    while (stats_of(s.runtime, 0).held_bytes != BYTES) { /* the claim of `other` is over */
        conf_sleep_ms(1);
    }
    CONF_EQUAL(atomic_load(&s.told->count), 0);
    CONF_OK(hd_claim_end(first, HD_OK));
    await_overruns(&s, 0, 1);
    conf_close(s.runtime);
}

/* hd_free checks a buffer that no claim uses, even while the thread's copies wait for the claim. */
static void others_are_checked_at_once(void **state)
{
    (void)state;
    scene s = begin("");
    hd_buffer *claimed = labelled(s.lane, BYTES, "claimed"), *b = labelled(s.lane, BYTES, "apart"), *pinned = NULL;
    CONF_OK(hd_alloc_host(s.runtime, BYTES, &pinned));
    hd_buffer *on = labelled(s.lane, BYTES, "copy");
    CONF_OK(hd_wait(overrun(&s, s.lane, b), HD_FOREVER));
    CONF_OK(hd_fill(claimed, 0, 1, BYTES, NULL));
    hd_claim *c = claim(&s, hd_inout(claimed));
    hd_ticket out, in_device;
    CONF_OK(hd_copy(pinned, 0, claimed, 0, BYTES, &out));
    CONF_OK(hd_copy(on, 0, claimed, 0, BYTES, &in_device));
    CONF_OK(hd_free(b));
    CONF_FAILS_WITH(HD_ERROR_ACCESS, HD_ERROR_ACCESS, "'apart'");
    CONF_EQUAL(atomic_load(&s.told->count), 1);
    CONF_TRUE(!hd_done(out) && !hd_done(in_device));
    b = labelled(s.lane, BYTES, "next"); /* its guards are written, too */
    hd_ticket filled;
    CONF_OK(conf_fill(s.lane, s.k, b, 0, BYTES / 4, 7, &filled));
    CONF_OK(hd_wait(filled, HD_FOREVER));
    CONF_OK(hd_free(b));
    CONF_EQUAL(atomic_load(&s.told->count), 1);
    CONF_OK(hd_claim_end(c, HD_OK));
    CONF_OK(hd_free(on));
    CONF_OK(hd_free(pinned));
    CONF_OK(hd_free(claimed));
    conf_close(s.runtime);
}

/* ---- calls of the program, and its streams ---- */

typedef struct call {
    const scene *s;
    hd_buffer *frees;
    atomic_bool goes_on, failed;
} call;

static hd_status waits(void *const *pointers, void *context)
{
    (void)pointers;
    call *w = context;
    while (!atomic_load(&w->goes_on)) {
        conf_sleep_ms(1);
    }
    return HD_OK;
}

static hd_status frees(void *const *pointers, void *context)
{
    (void)pointers;
    call *w = context;
    /* only the earlier one */
    bool good = hd_free(w->frees) == HD_OK && atomic_load(&w->s->told->count) == 1;
    atomic_store(&w->failed, !good);
    return HD_OK;
}

static void host_calls_are_claims(void **state)
{
    (void)state;
    scene s = begin("");
    call w = {.s = &s};
    hd_buffer *b = labelled(s.lane, BYTES, "of a call");
    hd_arg use = hd_inout(b);
    CONF_OK(hd_launch_host(s.runtime, waits, &w, &use, 1, NULL));
    hd_ticket ticket = overrun(&s, s.lane, b);
    CONF_OK(hd_free(b));
    CONF_TRUE(!hd_done(ticket));
    atomic_store(&w.goes_on, true);
    await_overruns(&s, 0, 1);

    /* a function frees a buffer that it uses itself */
    w.frees = labelled(s.lane, BYTES, "own");
    overrun(&s, s.lane, w.frees);
    use = hd_inout(w.frees);
    CONF_OK(hd_launch_host(s.runtime, frees, &w, &use, 1, &ticket));
    CONF_OK(hd_wait(ticket, HD_FOREVER));
    CONF_TRUE(!atomic_load(&w.failed));
    await_overruns(&s, 0, 2);
    CONF_TRUE(strcmp(s.told->findings[1].label, "own") == 0);
    conf_close(s.runtime);
}

typedef struct beyond {
    foreign f;
    uint64_t address;
} beyond;

static hd_status puts_beyond(void *stream, void *context)
{
    beyond *w = context;
    return w->f.cuMemsetD32Async(w->address, 9, WORDS_TOO_MANY, stream) ? HD_ERROR_DRIVER : HD_OK;
}

static void streams_and_lane_calls_too(void **state)
{
    (void)state;
    scene s = begin("");
    if (conf_is_process(s.runtime)) {
        conf_close(s.runtime);
        skip();
    }
    beyond w;
    foreign_begin(&w.f, s.runtime);
    void *stream = foreign_stream(&w.f, 0);
    hd_buffer *b = labelled(s.lane, BYTES, "in a stream");
    hd_arg use = hd_inout(b);
    hd_claim *c = NULL;
    CONF_OK(hd_claim_begin_stream(s.runtime, 0, stream, &use, 1, NULL, &c));
    w.address = hd_buffer_address(b);
    CONF_OK(hd_free(b));
    foreign_enter(&w.f, 0);
    CONF_OK(puts_beyond(stream, &w)); /* the claim uses the memory until its end */
    foreign_leave(&w.f);
    CONF_EQUAL(atomic_load(&s.told->count), 0);
    CONF_OK(hd_claim_end(c, HD_OK));
    await_overruns(&s, 0, 1);
    CONF_TRUE(strcmp(s.told->findings[0].label, "in a stream") == 0);

    /* a call in a lane is ordinary work: hd_free waits for it */
    b = labelled(s.lane, BYTES, "in a lane");
    w.address = hd_buffer_address(b);
    use = hd_inout(b);
    CONF_OK(hd_lane_run_native(s.lane, puts_beyond, &w, &use, 1, NULL));
    CONF_OK(hd_free(b));
    CONF_FAILS_WITH(HD_ERROR_ACCESS, HD_ERROR_ACCESS, "'in a lane'");
    CONF_EQUAL(atomic_load(&s.told->count), 2);

    /* unless the call waits for a claim */
    b = labelled(s.lane, BYTES, "behind a claim");
    w.address = hd_buffer_address(b);
    use = hd_inout(b);
    c = claim(&s, use);
    CONF_OK(hd_lane_run_native(s.lane, puts_beyond, &w, &use, 1, NULL));
    CONF_OK(hd_free(b));
    CONF_EQUAL(atomic_load(&s.told->count), 2);
    CONF_OK(hd_claim_end(c, HD_OK));
    await_overruns(&s, 0, 3);
    conf_close(s.runtime);
    foreign_enter(&w.f, 0);
    CONF_EQUAL(w.f.cuStreamDestroy(stream), 0);
    foreign_leave(&w.f);
    foreign_end(&w.f);
}

/* ---- memory ---- */

static bool find_held(void *context, const hd_memory_block *block)
{
    if (block->held && strcmp(block->label, "kept") == 0) {
        ++*(int *)context;
    }
    return true;
}

static void memory_is_kept_until_it_was_checked(void **state)
{
    (void)state;
    enum { large = 3 << 20 };
    scene s = begin("");
    hd_buffer *b = labelled(s.lane, large, "kept"), *many[20];
    uint64_t address = hd_buffer_address(b);
    hd_claim *c = claim(&s, hd_inout(b));
    CONF_OK(hd_free(b));
    CONF_FAILS_WITH(hd_free(b), HD_ERROR_HANDLE, "'kept'"); /* the structure still describes it */
    CONF_EQUAL(stats_of(s.runtime, 0).held_bytes, large);
    CONF_EQUAL(stats_of(s.runtime, 0).live_bytes, 0);
    int held = 0;
    CONF_OK(hd_memory_each(s.runtime, find_held, &held));
    CONF_EQUAL(held, 1);
    for (int i = 0; i < 20; i++) {
        many[i] = labelled(s.lane, large, "other");
        uint64_t at = hd_buffer_address(many[i]);
        CONF_TRUE(at + large <= address || address + large <= at);
    }
    for (int i = 0; i < 20; i++) {
        CONF_OK(hd_free(many[i]));
    }
    CONF_OK(hd_claim_end(c, HD_OK));
    await_nothing_held(&s, 0);
    held = 0;
    CONF_OK(hd_memory_each(s.runtime, find_held, &held));
    CONF_EQUAL(held, 0);
    CONF_EQUAL(stats_of(s.runtime, 0).overruns, 0);
    conf_close(s.runtime);
}

static void *ends(void *context)
{
    conf_sleep_ms(5); /* the allocation may wait by now or not */
    CONF_OK(hd_claim_end(context, HD_OK));
    return NULL;
}

/* An allocation that needs that memory waits for the claim's end and the check. */
static void an_allocation_at_the_limit_gets_it(void **state)
{
    (void)state;
    enum { most = 40 << 20 };
    scene s = begin("host_memory=256M memory_limit=64M memory_timeout=60000");
    for (int i = 0; i < 3; i++) {
        hd_buffer *b = labelled(s.lane, most, "first"), *next = NULL;
        hd_claim *c = claim(&s, hd_inout(b));
        CONF_OK(hd_free(b));
        pthread_t thread;
        CONF_EQUAL(pthread_create(&thread, NULL, ends, c), 0);
        CONF_OK(hd_alloc(s.lane, most, &next));
        CONF_FILLED(next, most - 4096, fresh_word, 4096);
        CONF_EQUAL(pthread_join(thread, NULL), 0);
        CONF_OK(hd_free(next));
    }
    nothing_is_found(&s);
    conf_close(s.runtime);
}

/* ---- programs without mistakes ---- */

static void correct_programs_are_told_nothing(void **state)
{
    (void)state;
    scene s = begin("");
    int n = hd_device_count(s.runtime);
    conf_random r = {11};
    hd_claim *open[8] = {NULL};
    for (int round = 0; round < 120; round++) {
        hd_lane *lane = conf_default_lane(s.runtime, (int)conf_below(&r, (uint64_t)n));
        size_t bytes = 4 + conf_below(&r, 20000);
        hd_buffer *b = NULL;
        hd_alloc_options keep = {.size = sizeof keep, .flags = round % 3 == 1 ? HD_ALLOC_KEEP : 0};
        CONF_OK(round % 3 ? hd_alloc_with(lane, bytes, &keep, &b) : hd_alloc_unified(lane, bytes, &b));
        CONF_OK(conf_fill(lane, s.k, b, 0, bytes / 4, 5, NULL));
        hd_claim **place = &open[conf_below(&r, 8)];
        if (*place) {
            CONF_OK(hd_claim_end(*place, HD_OK));
        }
        *place = claim(&s, hd_inout(b));
        if (conf_below(&r, 2)) {
            CONF_OK(conf_fill(lane, s.k, b, 0, bytes / 4, 6, NULL));
        }
        CONF_OK(hd_free(b));
    }
    for (int i = 0; i < 8; i++) {
        CONF_TRUE(!open[i] || hd_claim_end(open[i], HD_OK) == HD_OK);
    }
    for (int d = 0; d < n; d++) {
        await_nothing_held(&s, d);
    }
    nothing_is_found(&s);
    conf_close(s.runtime);
}

/* ---- losses ---- */

static void a_lost_device_is_left_alone(void **state)
{
    (void)state;
    scene s = begin("");
    if (!conf_is_process(s.runtime)) {
        conf_close(s.runtime);
        skip();
    }
    hd_buffer *b = labelled(s.lane, BYTES, "lost");
    CONF_OK(hd_wait(overrun(&s, s.lane, b), HD_FOREVER));
    hd_claim *c = claim(&s, hd_inout(b));
    CONF_OK(hd_claim_wait(c, HD_FOREVER));
    CONF_OK(hd_free(b));
    wk_lose_now(s.runtime, 0);
    CONF_OK(hd_claim_end(c, HD_OK));
    CONF_OK(hd_device_restart(s.runtime, 0));
    b = labelled(s.lane, BYTES, "again");
    CONF_FILLED(b, 0, fresh_word, BYTES);
    c = claim(&s, hd_inout(b));
    hd_ticket of_claim;
    CONF_OK(hd_claim_get_ticket(c, &of_claim));
    overrun(&s, s.lane, b);
    CONF_OK(hd_free(b));
    CONF_OK(hd_claim_end(c, HD_OK));
    await_overruns(&s, 0, 1); /* the lane for guards works again */
    CONF_TRUE(strcmp(s.told->findings[0].label, "again") == 0);
    await_nothing_held(&s, 0);
    conf_close(s.runtime);
}

/* ---- hd_close ---- */

/* Either the checker or hd_close itself may come first. */
static void what_is_left_is_found_by_hd_close(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        scene s = begin("");
        hd_buffer *b = labelled(s.lane, BYTES, "last");
        hd_claim *c = claim(&s, hd_inout(b));
        overrun(&s, s.lane, b);
        CONF_OK(hd_free(b));
        CONF_OK(hd_claim_end(c, HD_OK));
        conf_close(s.runtime);
        CONF_EQUAL(atomic_load(&s.told->count), 1);
        CONF_TRUE(s.told->findings[0].kind == HD_FINDING_OVERRUN && strcmp(s.told->findings[0].label, "last") == 0);
    }
}

/* The program may still use memory behind a claim that it never ends. */
static void what_is_never_ended_is_left_alone(void **state)
{
    (void)state;
    scene s = begin("close_timeout=100");
    hd_buffer *b = labelled(s.lane, BYTES, "left"), *other = labelled(s.lane, BYTES, "over");
    CONF_OK(hd_wait(overrun(&s, s.lane, b), HD_FOREVER));
    claim(&s, hd_inout(b));
    hd_claim *c = claim(&s, hd_inout(other));
    overrun(&s, s.lane, other);
    CONF_OK(hd_free(b));
    CONF_OK(hd_free(other));
    CONF_OK(hd_claim_end(c, HD_OK));
    await_overruns(&s, 0, 1);
    conf_track(s.runtime, NULL);
    CONF_FAILS_WITH(hd_close(s.runtime), HD_ERROR_TIMEOUT, "was never ended");
    CONF_EQUAL(atomic_load(&s.told->count), 1);
    CONF_TRUE(strcmp(s.told->findings[0].label, "over") == 0);
}

int main(void)
{
    conf_begin("test_memory_claims");
    const struct CMUnitTest tests[] = {
        CONF_CASE(an_overrun_is_found_once_the_claim_is_over),
        CONF_CASE(so_is_one_by_work_behind_the_claim),
        CONF_CASE(the_last_claim_decides),
        CONF_CASE(others_are_checked_at_once),
        CONF_CASE(host_calls_are_claims),
        CONF_CASE(streams_and_lane_calls_too),
        CONF_CASE(memory_is_kept_until_it_was_checked),
        CONF_CASE(an_allocation_at_the_limit_gets_it),
        CONF_CASE(correct_programs_are_told_nothing),
        CONF_CASE(a_lost_device_is_left_alone),
        CONF_CASE(what_is_left_is_found_by_hd_close),
        CONF_CASE(what_is_never_ended_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
