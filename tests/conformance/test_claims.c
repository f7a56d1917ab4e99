/* test_claims.c - claims: bytes that the program uses itself, from a begin to an end that it
 * decides.
 *
 * Promise: Claimed bytes obey the order of operations in every placement; errors name open claims.
 *
 * Wrong claims are refused.
 *
 * Threads: the main one, and those that some cases begin.
 * Locks: none.
 */
#include <stdatomic.h>
#include "claim_scene.h"
#include "folder.h"

static hd_claim *claim(scene *s, hd_arg use)
{
    hd_claim *c = NULL;
    CONF_OK(hd_claim_begin(s->runtime, &use, 1, &c));
    return c;
}

static hd_ticket ticket_of(hd_claim *c)
{
    hd_ticket ticket;
    CONF_OK(hd_claim_get_ticket(c, &ticket));
    return ticket;
}

/* ---- order ---- */

static void later_work_waits_for_the_end(void **state)
{
    (void)state;
    scene s = begin(NULL);
    hd_claim *c = claim(&s, hd_inout(s.pinned));
    hd_ticket ticket = ticket_of(c), copied;
    CONF_OK(hd_claim_wait(c, HD_FOREVER));
    CONF_TRUE(hd_claim_ready(c));
    CONF_OK(hd_copy(s.device, 0, s.pinned, 0, bytes, &copied));
    uint32_t *p = NULL;
    CONF_OK(hd_claim_get_pointer(c, 0, (void **)&p));
    for (uint32_t i = 0; i < words; i++) {
        CONF_EQUAL(p[i], 1);
        p[i] = i;
    }
    CONF_FAILS(hd_wait(copied, 5 * CONF_MILLISECOND), HD_ERROR_TIMEOUT);
    CONF_TRUE(!hd_done(ticket) && !hd_done(copied));
    CONF_OK(hd_claim_end(c, HD_OK));
    CONF_OK(hd_wait(copied, HD_FOREVER));
    CONF_OK(hd_wait(ticket, HD_FOREVER));
    uint32_t *got = conf_memory(bytes);
    CONF_OK(hd_read(s.device, 0, got, bytes));
    for (uint32_t i = 0; i < words; i++) {
        CONF_EQUAL(got[i], i);
    }
    free(got);
    end(&s);
}

static void it_is_ready_when_the_bytes_are(void **state)
{
    (void)state;
    scene s = begin(NULL);
    hd_claim *first = claim(&s, hd_out(s.pinned)), *reader = claim(&s, hd_in(s.pinned));
    hd_claim *apart = claim(&s, hd_in_range(s.pinned, 0, 64));
    CONF_OK(hd_claim_wait(first, HD_FOREVER));
    CONF_TRUE(!hd_claim_ready(reader) && !hd_claim_ready(apart));
    CONF_FAILS(hd_claim_wait(reader, 0), HD_ERROR_TIMEOUT);
    CONF_OK(hd_claim_end(first, HD_OK));
    CONF_OK(hd_claim_wait(reader, HD_FOREVER)); /* readers do not wait for readers */
    CONF_OK(hd_claim_wait(apart, HD_FOREVER));
    hd_claim *writer = claim(&s, hd_out_range(s.pinned, 64, 64)), *low = claim(&s, hd_out_range(s.pinned, 0, 64));
    CONF_OK(hd_claim_end(reader, HD_OK));
    CONF_OK(hd_claim_wait(writer, HD_FOREVER)); /* nor for readers of other bytes */
    CONF_FAILS(hd_claim_wait(low, CONF_MILLISECOND), HD_ERROR_TIMEOUT);
    CONF_OK(hd_claim_end(apart, HD_OK));
    CONF_OK(hd_claim_wait(low, HD_FOREVER));
    CONF_OK(hd_claim_end(writer, HD_OK));
    CONF_OK(hd_claim_end(low, HD_OK));
    end(&s);
}

static void an_early_end_keeps_the_order(void **state)
{
    (void)state;
    scene s = begin(NULL);
    hd_claim *first = claim(&s, hd_out(s.device)), *second = claim(&s, hd_inout(s.device));
    hd_ticket early = ticket_of(second), filled;
    CONF_OK(hd_claim_end(second, HD_OK)); /* it was never ready */
    CONF_OK(hd_fill(s.device, 0, 3, bytes, &filled));
    CONF_FAILS(hd_wait(filled, 5 * CONF_MILLISECOND), HD_ERROR_TIMEOUT);
    CONF_TRUE(!hd_done(early));
    CONF_OK(hd_claim_end(first, HD_OK));
    CONF_OK(hd_wait(filled, HD_FOREVER));
    /* the fill does not read it, so its end may show a moment later */
    CONF_OK(hd_wait(early, HD_FOREVER));
    end(&s);
}

static void claims_of_many_buffers_are_one_operation(void **state)
{
    (void)state;
    scene s = begin(NULL);
    hd_buffer *other = NULL;
    int last = hd_device_count(s.runtime) - 1;
    CONF_OK(hd_alloc(conf_default_lane(s.runtime, last), bytes, &other));
    hd_arg uses[] = {hd_in(s.device), hd_out(other), hd_inout(s.pinned), hd_in_range(s.unified, 64, 128)};
    hd_claim *c = NULL;
    CONF_OK(hd_claim_begin(s.runtime, uses, 4, &c));
    CONF_OK(hd_claim_wait(c, HD_FOREVER));
    void *p = NULL, *host = NULL;
    CONF_FAILS_WITH(hd_claim_get_pointer(c, 0, &p), HD_ERROR_ACCESS, "use 0");
    CONF_OK(hd_claim_get_pointer(c, 2, &p));
    CONF_OK(hd_claim_get_pointer(c, 3, &host));
    CONF_EQUAL(*(uint32_t *)host, 1);
    CONF_FAILS(hd_claim_get_pointer(c, 4, &p), HD_ERROR_RANGE);
    hd_ticket a, b;
    CONF_OK(hd_fill(other, 0, 7, bytes, &a));
    CONF_OK(hd_fill(s.device, 0, 7, bytes, &b));
    CONF_FAILS(hd_wait(a, CONF_MILLISECOND), HD_ERROR_TIMEOUT);
    CONF_FAILS(hd_wait(b, CONF_MILLISECOND), HD_ERROR_TIMEOUT);
    CONF_OK(hd_claim_end(c, HD_OK));
    CONF_OK(hd_wait(a, HD_FOREVER));
    CONF_OK(hd_wait(b, HD_FOREVER));
    hd_free(other);
    end(&s);
}

static void one_without_bytes_orders_by_its_ticket(void **state)
{
    (void)state;
    scene s = begin(NULL);
    hd_claim *c = NULL;
    CONF_OK(hd_claim_begin(s.runtime, NULL, 0, &c));
    hd_ticket after, filled;
    CONF_OK(hd_lane_add_dependency(s.lane, ticket_of(c), &after));
    CONF_OK(conf_fill(s.lane, s.k, s.device, 0, words, 5, &filled));
    CONF_FAILS(hd_wait(filled, 5 * CONF_MILLISECOND), HD_ERROR_TIMEOUT);
    CONF_OK(hd_claim_end(c, HD_OK));
    CONF_OK(hd_wait(filled, HD_FOREVER));
    CONF_TRUE(hd_done(after));
    end(&s);
}

static void freed_memory_stays_until_the_end(void **state)
{
    (void)state;
    scene s = begin("pinned_limit=8M");
    hd_buffer *freed = NULL, *next = NULL;
    CONF_OK(hd_alloc_host(s.runtime, bytes, &freed));
    hd_claim *c = claim(&s, hd_out(freed));
    uint32_t *p = NULL;
    CONF_OK(hd_claim_get_pointer(c, 0, (void **)&p));
    hd_free(freed);
    for (int i = 0; i < 16; i++) {
        uint32_t *q = NULL;
        CONF_OK(hd_alloc_host(s.runtime, bytes, &next));
        hd_arg use = hd_out(next);
        hd_claim *mine = NULL;
        CONF_OK(hd_claim_begin(s.runtime, &use, 1, &mine));
        CONF_OK(hd_claim_get_pointer(mine, 0, (void **)&q));
        /* if it is the same memory, it waits for the claim */
        CONF_TRUE(p != q || !hd_claim_ready(mine));
        p[0] = 1;
        CONF_OK(hd_claim_end(mine, HD_OK));
        hd_free(next);
    }
    CONF_OK(hd_claim_end(c, HD_OK));
    end(&s);
}

static void freeing_claimed_memory_waits_for_nothing(void **state)
{
    (void)state;
    scene s = begin("memory_debug=on");
    hd_claim *c = claim(&s, hd_inout(s.device));
    hd_ticket behind;
    CONF_OK(hd_copy(s.pinned, 0, s.device, 0, bytes, &behind));
    hd_free(s.device); /* this thread must end the claim */
    s.device = NULL;
    CONF_TRUE(!hd_done(behind));
    CONF_OK(hd_claim_end(c, HD_OK));
    CONF_OK(hd_wait(behind, HD_FOREVER));
    end(&s);
}

/* ---- outcomes ---- */

static void a_failed_end_fails_its_readers_and_nothing_else(void **state)
{
    (void)state;
    scene s = begin(NULL);
    hd_claim_options options = {.size = sizeof options, .label = "left halo"};
    hd_arg uses[] = {hd_in(s.pinned), hd_out(s.device)};
    hd_claim *c = NULL;
    CONF_OK(hd_claim_begin_with(s.runtime, uses, 2, &options, &c));
    hd_ticket ticket = ticket_of(c), copied, read_only;
    CONF_OK(hd_copy(s.unified, 0, s.device, 0, bytes, &copied));
    CONF_OK(hd_copy(s.unified, 0, s.pinned, 0, 64, &read_only));
    CONF_OK(hd_claim_end(c, HD_ERROR_SYSTEM));
    CONF_FAILS_WITH(hd_wait(ticket, HD_FOREVER), HD_ERROR_FAILED, "claim 'left halo'");
    CONF_FAILS_WITH(hd_wait(copied, HD_FOREVER), HD_ERROR_FAILED, "HD_ERROR_SYSTEM");
    CONF_OK(hd_wait(read_only, HD_FOREVER)); /* the claim did not write that */
    uint32_t *got = conf_memory(bytes);
    CONF_FAILS_WITH(hd_read(s.device, 0, got, bytes), HD_ERROR_FAILED, "left halo");
    hd_claim *reader = NULL;
    hd_arg failed = hd_in(s.device);
    CONF_FAILS_WITH(hd_claim_begin(s.runtime, &failed, 1, &reader), HD_ERROR_FAILED, "left halo");
    CONF_OK(hd_fill(s.device, 0, 9, bytes, NULL)); /* a new writer makes the content valid */
    CONF_OK(hd_read(s.device, 0, got, bytes));
    CONF_EQUAL(got[words - 1], 9);
    free(got);
    end(&s);
}

static void messages_contain_the_reason_of_a_failure(void **state)
{
    (void)state;
    scene s = begin(NULL);
    char longest[2 * HD_REASON_BYTES];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    hd_claim *c = claim(&s, hd_out(s.device));
    hd_ticket first = ticket_of(c), second;
    CONF_OK(hd_claim_fail(c, HD_ERROR_RANGE, "100 bytes came\ninstead of 200"));
    c = claim(&s, hd_out(s.device));
    second = ticket_of(c);
    CONF_OK(hd_claim_fail(c, HD_ERROR_RANGE, longest));
    CONF_FAILS_WITH(hd_wait(first, HD_FOREVER), HD_ERROR_FAILED,
                    "it was ended with HD_ERROR_RANGE: 100 bytes came instead of 200");
    CONF_FAILS_WITH(hd_wait(second, HD_FOREVER), HD_ERROR_FAILED, "HD_ERROR_RANGE: xxx");
    longest[HD_REASON_BYTES] = 0;
    CONF_TRUE(strstr(hd_message(), longest) == NULL);
    longest[HD_REASON_BYTES - 1] = 0;
    CONF_TRUE(strstr(hd_message(), longest) != NULL);
    c = claim(&s, hd_out(s.device));
    first = ticket_of(c);
    CONF_OK(hd_claim_fail(c, HD_ERROR_SYSTEM, NULL));
    CONF_FAILS_WITH(hd_wait(first, HD_FOREVER), HD_ERROR_FAILED, "it was ended with HD_ERROR_SYSTEM");
    end(&s);
}

static void a_claim_fails_with_what_it_reads(void **state)
{
    (void)state;
    scene s = begin(NULL);
    hd_claim *first = claim(&s, hd_out(s.device)), *second = NULL;
    hd_arg uses[] = {hd_in(s.device), hd_out(s.pinned)};
    CONF_OK(hd_claim_begin(s.runtime, uses, 2, &second));
    hd_ticket ticket = ticket_of(second);
    CONF_OK(hd_claim_end(first, HD_ERROR_FAILED));
    CONF_FAILS(hd_claim_wait(second, HD_FOREVER), HD_ERROR_FAILED);
    CONF_TRUE(hd_claim_ready(second));
    CONF_TRUE(!hd_done(ticket)); /* it is over when the program ends it */
    CONF_OK(hd_claim_end(second, HD_OK));
    CONF_FAILS(hd_wait(ticket, HD_FOREVER), HD_ERROR_FAILED);
    CONF_FAILS(hd_buffer_wait(s.pinned, HD_READ, HD_FOREVER), HD_ERROR_FAILED);
    end(&s);
}

/* ---- callbacks ---- */

typedef struct told {
    atomic_int calls;
    hd_status status;
    bool ends;
} told;

static void is_ready(hd_claim *c, hd_status status, void *context)
{
    told *t = context;
    t->status = status;
    if (t->ends) {
        CONF_OK(hd_claim_end(c, HD_OK));
    }
    atomic_fetch_add(&t->calls, 1);
}

static void await(told *t)
{
    while (atomic_load(&t->calls) == 0) {
        conf_sleep_ms(1);
    }
}

static void a_callback_comes_when_it_is_ready(void **state)
{
    (void)state;
    scene s = begin(NULL);
    told first = {.ends = true}, second = {.ends = true}, never = {.ends = false};
    hd_claim *holds = claim(&s, hd_out(s.device)), *waits = claim(&s, hd_in(s.device));
    CONF_OK(hd_claim_on_ready(holds, is_ready, &first));
    await(&first);
    CONF_EQUAL(first.status, HD_OK);
    CONF_OK(hd_claim_on_ready(waits, is_ready, &second)); /* ready now, or soon */
    await(&second);
    CONF_EQUAL(second.status, HD_OK);
    holds = claim(&s, hd_out(s.device)), waits = claim(&s, hd_in(s.device));
    CONF_OK(hd_claim_on_ready(waits, is_ready, &never));
    CONF_FAILS(hd_claim_on_ready(waits, is_ready, &never), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_claim_on_ready(holds, NULL, NULL), HD_ERROR_ARGUMENT);
    CONF_OK(hd_claim_end(waits, HD_OK)); /* not ready yet: no call */
    CONF_OK(hd_claim_end(holds, HD_ERROR_FAILED));
    told failed = {.ends = true};
    CONF_FAILS(hd_claim_on_ready(waits, is_ready, &failed), HD_ERROR_HANDLE);
    hd_claim *bad = claim(&s, hd_out(s.pinned)), *reads = claim(&s, hd_in(s.pinned));
    CONF_OK(hd_claim_on_ready(reads, is_ready, &failed));
    CONF_OK(hd_claim_end(bad, HD_ERROR_FAILED));
    await(&failed);
    CONF_EQUAL(failed.status, HD_ERROR_FAILED);
    CONF_OK(hd_lane_wait(s.lane, HD_FOREVER));
    CONF_EQUAL(atomic_load(&never.calls), 0);
    end(&s);
}

/* ---- wrong claims ---- */

static void wrong_claims_are_refused(void **state)
{
    (void)state;
    scene s = begin(NULL);
    hd_runtime *elsewhere = conf_open(NULL);
    hd_buffer *foreign = NULL, *freed = NULL;
    CONF_OK(hd_alloc(conf_default_lane(elsewhere, 0), bytes, &foreign));
    CONF_OK(hd_alloc(s.lane, bytes, &freed));
    hd_claim *c = NULL;
    hd_arg number = hd_u32(3), other = hd_in(foreign), gone = hd_in(freed), far = hd_in_range(s.device, bytes, 4);
    hd_free(freed);
    CONF_FAILS_WITH(hd_claim_begin(s.runtime, &number, 1, &c), HD_ERROR_ARGUMENT, "use 0");
    CONF_FAILS(hd_claim_begin(s.runtime, &other, 1, &c), HD_ERROR_HANDLE);
    CONF_FAILS(hd_claim_begin(s.runtime, &gone, 1, &c), HD_ERROR_HANDLE);
    CONF_FAILS(hd_claim_begin(s.runtime, &far, 1, &c), HD_ERROR_RANGE);
    CONF_FAILS(hd_claim_begin(s.runtime, NULL, 1, &c), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_claim_begin(s.runtime, NULL, 0, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_claim_begin(NULL, NULL, 0, &c), HD_ERROR_HANDLE);
    hd_arg many[129];
    for (int i = 0; i < 129; i++) {
        many[i] = hd_in(s.device);
    }
    CONF_FAILS(hd_claim_begin(s.runtime, many, 129, &c), HD_ERROR_LIMIT);
    CONF_OK(hd_claim_begin(s.runtime, many, 128, &c));
    CONF_FAILS(hd_claim_end(c, (hd_status)1), HD_ERROR_ARGUMENT);
    CONF_FAILS_WITH(hd_claim_end(c, (hd_status)-999), HD_ERROR_ARGUMENT, "-999");
    CONF_FAILS_WITH(hd_claim_fail(c, HD_OK, "a reason"), HD_ERROR_ARGUMENT, "outcome 0");
    CONF_FAILS_WITH(hd_claim_fail(c, (hd_status)-999, NULL), HD_ERROR_ARGUMENT, "-999");
    CONF_OK(hd_claim_end(c, HD_OK));
    CONF_FAILS_WITH(hd_claim_end(c, HD_OK), HD_ERROR_HANDLE, "it was ended");
    CONF_FAILS(hd_claim_wait(c, 0), HD_ERROR_HANDLE);
    CONF_TRUE(hd_claim_ready(c) && hd_claim_ready(NULL));
    hd_ticket ticket;
    CONF_FAILS(hd_claim_get_ticket(c, &ticket), HD_ERROR_HANDLE);
    CONF_FAILS(hd_claim_end(NULL, HD_OK), HD_ERROR_HANDLE);
    CONF_FAILS_WITH(hd_claim_end((hd_claim *)(void *)s.device, HD_OK), HD_ERROR_HANDLE, "claim");
    c = claim(&s, hd_in(s.device));
    ticket = ticket_of(c);
    CONF_FAILS(hd_launch(ticket.lane, s.k.fill, conf_dims(1, 1, 1), conf_dims(1, 1, 1), 0, NULL, 0, NULL),
               HD_ERROR_HANDLE);
    CONF_FAILS(hd_lane_add_dependency(s.lane, (hd_ticket){s.lane, UINT64_MAX}, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_lane_add_dependency(conf_default_lane(elsewhere, 0), ticket, NULL), HD_ERROR_ARGUMENT);
    CONF_OK(hd_claim_end(c, HD_OK));
    hd_free(foreign);
    conf_close(elsewhere);
    end(&s);
}

/* Claims without work in front need no engine, others in the same lane do. In between, the case
 * fills a ring of few slots many times. */
static void some_with_the_engine_and_many_without(void **state)
{
    (void)state;
    enum { rounds = 300, quick = 100 };
    scene s = begin("lane_slots=64");
    for (int i = 0; i < rounds; i++) {
        CONF_OK(hd_fill(s.device, 0, (uint8_t)i, bytes, NULL));
        hd_claim *behind = claim(&s, hd_in(s.device));
        CONF_OK(hd_claim_wait(behind, HD_FOREVER));
        const hd_ticket ticket = ticket_of(behind);
        CONF_OK(hd_claim_end(behind, HD_OK));
        hd_ticket last = ticket;
        for (int j = 0; j < quick; j++) {
            hd_claim *c = claim(&s, hd_inout(s.pinned));
            CONF_OK(hd_claim_wait(c, HD_FOREVER));
            last = ticket_of(c);
            CONF_OK(hd_claim_end(c, HD_OK));
        }
        CONF_OK(hd_wait(last, HD_FOREVER));
        CONF_OK(hd_wait(ticket, HD_FOREVER));
    }
    end(&s);
}

static void a_mapped_unified_buffer_is_not_claimed(void **state)
{
    (void)state;
    scene s = begin(NULL);
    void *p = NULL;
    hd_claim *c = NULL;
    hd_arg use = hd_out(s.unified);
    CONF_OK(hd_map(s.unified, HD_READ, &p));
    CONF_FAILS(hd_claim_begin(s.runtime, &use, 1, &c), HD_ERROR_ACCESS);
    CONF_OK(hd_unmap(s.unified));
    CONF_OK(hd_claim_begin(s.runtime, &use, 1, &c));
    CONF_OK(hd_claim_end(c, HD_OK));
    end(&s);
}

static void open_claims_have_a_limit(void **state)
{
    (void)state;
    scene s = begin(NULL);
    hd_claim *all[200];
    int n = 0;
    hd_status status = HD_OK;
    hd_arg use = hd_in(s.device);
    while (n < 200 && (status = hd_claim_begin(s.runtime, &use, 1, &all[n])) == HD_OK) {
        n++;
    }
    CONF_FAILS(status, HD_ERROR_LIMIT);
    CONF_EQUAL(n, 160);
    hd_claim *anywhere = NULL;
    use = hd_in(s.pinned); /* if the first device has no lane left, another device still has one */
    bool many = hd_device_count(s.runtime) > 1;
    status = hd_claim_begin(s.runtime, &use, 1, &anywhere);
    CONF_EQUAL(status, many ? HD_OK : HD_ERROR_LIMIT);
    if (many) {
        CONF_OK(hd_claim_wait(anywhere, HD_FOREVER));
        CONF_OK(hd_claim_end(anywhere, HD_OK));
    }
    hd_lane *lane = NULL;
    CONF_OK(hd_lane_create(s.runtime, 0, &lane)); /* some lanes remain for the program */
    hd_lane_destroy(lane);
    for (int round = 0; round < 3; round++) {
        CONF_OK(hd_claim_end(all[round * 7], HD_OK));
        CONF_OK(hd_claim_begin(s.runtime, NULL, 0, &all[round * 7]));
    }
    while (n > 0) {
        CONF_OK(hd_claim_end(all[--n], HD_OK));
    }
    end(&s);
}

/* ---- open claims are named ---- */

static void timeouts_name_the_claim(void **state)
{
    (void)state;
    scene s = begin(NULL);
    hd_claim_options options = {.size = sizeof options, .label = "receive"};
    hd_arg use = hd_out(s.device);
    hd_claim *c = NULL;
    CONF_OK(hd_claim_begin_with(s.runtime, &use, 1, &options, &c));
    CONF_OK(hd_claim_wait(c, HD_FOREVER)); /* so that nothing else is unfinished */
    CONF_OK(hd_buffer_wait(s.pinned, HD_WRITE, HD_FOREVER));
    CONF_OK(hd_buffer_wait(s.unified, HD_WRITE, HD_FOREVER));
    CONF_FAILS_WITH(hd_buffer_wait(s.device, HD_READ, CONF_MILLISECOND), HD_ERROR_TIMEOUT, "claim 'receive' of ");
    hd_ticket copied;
    CONF_OK(hd_copy(s.pinned, 0, s.device, 0, bytes, &copied));
    CONF_FAILS_WITH(hd_wait(copied, 20 * CONF_MILLISECOND), HD_ERROR_TIMEOUT, "claim 'receive' of ");
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    CONF_TRUE(strcmp(error.operation, "claim") == 0);
    CONF_EQUAL(error.ticket, ticket_of(c).sequence);
    CONF_OK(hd_claim_end(c, HD_OK));
    CONF_OK(hd_wait(copied, HD_FOREVER));
    end(&s);
}

static bool report_has(hd_runtime *runtime, hd_report_format format, const char *text)
{
    size_t needed = 0;
    CONF_OK(hd_memory_report(runtime, format, NULL, 0, &needed));
    char *report = conf_memory(needed);
    CONF_OK(hd_memory_report(runtime, format, report, needed, NULL));
    bool has = strstr(report, text) != NULL;
    free(report);
    return has;
}

static void reports_name_open_claims(void **state)
{
    (void)state;
    scene s = begin(NULL);
    hd_claim_options options = {.size = sizeof options, .label = "to MPI"};
    hd_arg use = hd_out(s.device);
    hd_claim *c[10];
    CONF_TRUE(!report_has(s.runtime, HD_REPORT_TEXT, "not ended"));
    CONF_TRUE(report_has(s.runtime, HD_REPORT_JSON, "\"claims_count\": 0"));
    for (int i = 0; i < 10; i++) {
        CONF_OK(hd_claim_begin_with(s.runtime, &use, i == 0, &options, &c[i]));
    }
    CONF_TRUE(report_has(s.runtime, HD_REPORT_TEXT, "\nnot ended   10\n  claim 'to MPI' of "));
    CONF_TRUE(report_has(s.runtime, HD_REPORT_TEXT, "  and 2 more\n"));
    CONF_TRUE(report_has(s.runtime, HD_REPORT_JSON, "\"claims_count\": 10"));
    CONF_TRUE(report_has(s.runtime, HD_REPORT_JSON, "\"claim 'to MPI' of "));
    for (int i = 0; i < 10; i++) {
        CONF_OK(hd_claim_end(c[i], HD_OK));
    }
    CONF_TRUE(!report_has(s.runtime, HD_REPORT_TEXT, "not ended"));
    end(&s);
}

static void hd_close_names_it_and_leaves_its_memory(void **state)
{
    (void)state;
    char settings[100], line[512] = "";
    snprintf(settings, sizeof settings, "close_timeout=100 stats=%s/report", folder);
    scene s = begin(settings);
    hd_claim_options options = {.size = sizeof options, .label = "forgotten"};
    hd_arg use = hd_out(s.pinned);
    hd_claim *c = NULL;
    uint32_t *p = NULL;
    hd_ticket copied;
    CONF_OK(hd_claim_begin_with(s.runtime, &use, 1, &options, &c));
    CONF_OK(hd_claim_get_pointer(c, 0, (void **)&p));
    /* does not hold hd_close up either */
    CONF_OK(hd_copy(s.device, 0, s.pinned, 0, bytes, &copied));
    conf_track(s.runtime, NULL);
    CONF_FAILS_WITH(hd_close(s.runtime), HD_ERROR_TIMEOUT, "claim 'forgotten' of ");
    for (int i = 0; i < words; i++) {
        p[i] = 1; /* the memory still exists */
    }
    CONF_FAILS(hd_claim_end(c, HD_OK), HD_ERROR_HANDLE);
    snprintf(settings, sizeof settings, "%s/report", folder);
    FILE *report = fopen(settings, "r");
    CONF_TRUE(report != NULL);
    bool named = false;
    while (fgets(line, sizeof line, report)) {
        named |= strstr(line, "  claim 'forgotten' of ") != NULL;
    }
    fclose(report);
    CONF_TRUE(named);
}

int main(void)
{
    conf_begin("test_claims");
    const struct CMUnitTest tests[] = {
        CONF_CASE(later_work_waits_for_the_end),
        CONF_CASE(it_is_ready_when_the_bytes_are),
        CONF_CASE(an_early_end_keeps_the_order),
        CONF_CASE(claims_of_many_buffers_are_one_operation),
        CONF_CASE(one_without_bytes_orders_by_its_ticket),
        CONF_CASE(freed_memory_stays_until_the_end),
        CONF_CASE(freeing_claimed_memory_waits_for_nothing),
        CONF_CASE(a_failed_end_fails_its_readers_and_nothing_else),
        CONF_CASE(messages_contain_the_reason_of_a_failure),
        CONF_CASE(a_claim_fails_with_what_it_reads),
        CONF_CASE(a_callback_comes_when_it_is_ready),
        CONF_CASE(wrong_claims_are_refused),
        CONF_CASE(some_with_the_engine_and_many_without),
        CONF_CASE(a_mapped_unified_buffer_is_not_claimed),
        CONF_CASE(open_claims_have_a_limit),
        CONF_CASE(timeouts_name_the_claim),
        CONF_CASE(reports_name_open_claims),
        FOLDER_CASE(hd_close_names_it_and_leaves_its_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
