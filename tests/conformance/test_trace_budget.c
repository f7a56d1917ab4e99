/* test_trace_budget.c - a trace with slow events: the time that the engine spends on them, and the
 * resulting spans.
 *
 * Promise: Slow events take 0.5 % of the time, 10 % in busy lanes. Touching spans share one.
 *
 * Threads: the main one. Locks: none.
 * Always: a delayed call takes at least its delay, so their number gives the least time that they
 * took. No check measures any other time.
 */
#include "short_kernel.h"
#include "traces.h"

enum {
    words = 512,
    bytes = words * 4,
    ROUNDS = 60,
    LANES = 8,
    OPERATIONS = ROUNDS * LANES,
    AHEAD = 400,
    NEIGHBOURS = 32
};
enum { DELAY_NS = 1000000, FIRST_NS = 1000000, SHARE = 200, WITHIN = 20 };
/* Further events: one of each lane before the first one was measured, and those that compare
 * clocks. */
enum { MORE = LANES + 4 };

/* The times before the submission of an operation, and after the wait for its end. */
typedef struct operation {
    hd_ticket ticket;
    int64_t from, to;
} operation;

static void work(hd_runtime *runtime, operation *all)
{
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lanes[LANES];
    hd_buffer *buffers[LANES];
    for (int i = 0; i < LANES; i++) {
        CONF_OK(hd_lane_create(runtime, 0, &lanes[i]));
        CONF_OK(hd_alloc(lanes[i], bytes, &buffers[i]));
    }
    for (int r = 0; r < ROUNDS; r++, all += LANES) {
        for (int i = 0; i < LANES; i++) {
            all[i].from = conf_now();
            CONF_OK(conf_fill(lanes[i], k, buffers[i], 0, words, (uint32_t)r, &all[i].ticket));
        }
        for (int i = 0; i < LANES; i++) {
            CONF_OK(hd_wait(all[i].ticket, 60 * CONF_SECOND));
            all[i].to = conf_now();
        }
    }
}

/* Returns the only span that covers an operation. NULL: none covers it. */
static const hdi_record *only_span(const content *c, hd_ticket ticket)
{
    const hdi_record *found = NULL;
    size_t at = 0;
    for (const hdi_record *r; (r = next(c, HDI_RECORD_SPAN, &at)) != NULL;) {
        if (r->span.lane == global(ticket.lane) && r->span.before < ticket.sequence &&
            ticket.sequence <= r->span.position) {
            CONF_TRUE(found == NULL);
            found = r;
        }
    }
    return found;
}

/* Checks that each operation is in a span. Times by the clock lie between the program's readings,
 * and overlap nothing of their lane. */
static void check_spans(const content *c, const operation *all)
{
    int64_t ended[LANES] = {0};
    for (int i = 0; i < OPERATIONS; i++) {
        const hdi_record *span = only_span(c, all[i].ticket);
        CONF_TRUE(span != NULL);
        CONF_EQUAL(span->span.op, HDI_RECORD_OP_LAUNCH);
        CONF_TRUE(span->span.by_clock & HDI_RECORD_SPAN_BEGAN_BY_CLOCK); /* its lane was at rest */
        CONF_TRUE(all[i].from <= span->span.began && span->span.began <= all[i].to);
        CONF_TRUE(ended[i % LANES] <= span->span.began);
        if (span->span.by_clock & HDI_RECORD_SPAN_ENDED_BY_CLOCK) {
            CONF_TRUE(span->span.began <= span->span.ended && span->span.ended <= all[i].to);
            ended[i % LANES] = span->span.ended;
        }
    }
}

static void slow_events_are_few(const char *settings)
{
    hd_runtime *runtime = conf_open(settings);
    operation *all = conf_memory(OPERATIONS * sizeof *all);
    hd_trace_options options = {.size = sizeof options, .detail = HD_TRACE_EDGES};
    hd_trace_info info = {.size = sizeof info};
    CONF_OK(hd_trace_start(runtime, in_folder("t"), &options));
    int64_t from = conf_now();
    work(runtime, all);
    CONF_OK(hd_trace_stop(runtime, &info));
    int64_t took = conf_now() - from;
    CONF_EQUAL(info.dropped, 0);
    content c = read_file(file_path);
    CONF_EQUAL(count(&c, HDI_RECORD_DROPPED), 0);
    check_spans(&c, all);
    int64_t events = 0;
    size_t at = 0;
    for (const hdi_record *r; (r = next(&c, HDI_RECORD_SPAN, &at)) != NULL;) {
        events += (r->span.by_clock & HDI_RECORD_SPAN_ENDED_BY_CLOCK) == 0;
    }
    if (conf_is_inline(runtime)) {
        /* the engine sees an end only in a call of the program, so it spares nothing */
        CONF_EQUAL(events, OPERATIONS);
    } else {
        CONF_TRUE(events * DELAY_NS <= FIRST_NS + took / SHARE + MORE * DELAY_NS);
    }
    free(c.records);
    free(all);
    conf_close(runtime);
}

static void events_that_are_slow_to_record(void **state)
{
    (void)state;
    slow_events_are_few("host_devices=1 delay=cuEventRecord:1+=1000");
}

static void times_that_are_slow_to_ask_for(void **state)
{
    (void)state;
    slow_events_are_few("host_devices=1 delay=cuEventElapsedTime:1+=1000");
}

/* A copy behind each fill, in two lanes that wait for each other's bytes. Nothing waits for the
 * device before the end. */
static void work_ahead(hd_runtime *runtime, hd_ticket *tickets)
{
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lanes[2];
    hd_buffer *buffers[2];
    for (int i = 0; i < 2; i++) {
        CONF_OK(hd_lane_create(runtime, 0, &lanes[i]));
        CONF_OK(hd_alloc(lanes[i], bytes, &buffers[i]));
    }
    for (int r = 0; r < AHEAD; r++) {
        CONF_OK(conf_fill(lanes[r / 8 % 2], k, buffers[0], 0, words, (uint32_t)r, &tickets[2 * r]));
        CONF_OK(hd_copy(buffers[1], 0, buffers[0], 0, bytes, &tickets[2 * r + 1]));
    }
    for (int i = 0; i < 2; i++) {
        CONF_OK(hd_lane_wait(lanes[i], 60 * CONF_SECOND));
    }
}

static int64_t count_events(const content *c)
{
    int64_t events = 0;
    size_t at = 0;
    for (const hdi_record *r; (r = next(c, HDI_RECORD_SPAN, &at)) != NULL;) {
        events += (r->span.by_clock & HDI_RECORD_SPAN_BEGAN_BY_CLOCK) == 0;
        events += (r->span.by_clock & HDI_RECORD_SPAN_ENDED_BY_CLOCK) == 0;
    }
    return events;
}

static void lanes_that_do_not_rest(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=1 delay=cuEventRecord:1+=1000");
    if (conf_is_inline(runtime)) {
        conf_close(runtime);
        skip(); /* nothing is spared there */
    }
    hd_trace_options options = {.size = sizeof options, .detail = HD_TRACE_EDGES};
    CONF_OK(hd_trace_start(runtime, in_folder("t"), &options));
    hd_ticket tickets[2 * AHEAD];
    int64_t from = conf_now();
    work_ahead(runtime, tickets);
    CONF_OK(hd_trace_stop(runtime, NULL));
    int64_t took = conf_now() - from;
    content c = read_file(file_path);
    int64_t events = count_events(&c);
    CONF_TRUE(events * DELAY_NS <= WITHIN * (FIRST_NS + took / SHARE) + MORE * DELAY_NS);
    for (int i = 0; i < 2 * AHEAD; i++) {
        only_span(&c, tickets[i]);
    }
    CONF_TRUE(count(&c, HDI_RECORD_SPAN) > 0); /* from beginnings of lanes at rest */
    free(c.records);
    conf_close(runtime);
}

/* Traces launches that wait for a claim in one lane. Counts the spans that begin when their
 * neighbour ends. */
static int trace_neighbours(hd_runtime *runtime, hd_lane *lane, conf_kernels k, hd_buffer *buffer)
{
    hd_ticket tickets[NEIGHBOURS];
    do { /* signals surround launches until the engine saw a short one */
        CONF_OK(conf_fill(lane, k, buffer, 0, words, 0, &tickets[0]));
        CONF_OK(hd_wait(tickets[0], 60 * CONF_SECOND));
    } while (!conf_is_short(lane, k.fill));
    hd_trace_options options = {.size = sizeof options, .detail = HD_TRACE_FULL};
    CONF_OK(hd_trace_start(runtime, in_folder("t"), &options));
    hd_claim *claim; /* holds the lane up until all launches are in it */
    CONF_OK(hd_claim_begin(runtime, (hd_arg[]){hd_inout(buffer)}, 1, &claim));
    CONF_OK(hd_claim_wait(claim, 60 * CONF_SECOND));
    for (int i = 0; i < NEIGHBOURS; i++) {
        CONF_OK(conf_fill(lane, k, buffer, 0, words, (uint32_t)i, &tickets[i]));
    }
    CONF_OK(hd_claim_end(claim, HD_OK));
    CONF_OK(hd_wait(tickets[NEIGHBOURS - 1], 60 * CONF_SECOND));
    CONF_OK(hd_trace_stop(runtime, NULL));
    content c = read_file(file_path);
    int touch = 0;
    const hdi_record *before = NULL;
    for (int i = 0; i < NEIGHBOURS; i++) {
        const hdi_record *span = only_span(&c, tickets[i]);
        CONF_TRUE(span != NULL && (span->span.by_clock & HDI_RECORD_SPAN_ENDED_BY_CLOCK) == 0);
        if ((span->span.by_clock & HDI_RECORD_SPAN_BEGAN_BY_CLOCK) ==
            0) { /* otherwise its begin comes from another clock */
            CONF_TRUE(span->span.began <= span->span.ended);
            CONF_TRUE(before == NULL || before->span.ended <= span->span.began);
            touch += before != NULL && before->span.ended == span->span.began;
        }
        before = span;
    }
    free(c.records);
    return touch;
}

/* Events are at least a millisecond apart, so spans that touch share one. */
static void neighbours_share_an_event(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=1 delay=cuEventRecord:1+=1000");
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane;
    hd_buffer *buffer;
    CONF_OK(hd_lane_create(runtime, 0, &lane));
    CONF_OK(hd_alloc(lane, bytes, &buffer));
    /* A signal stands between the others. An engine on a busy machine puts more of them. */
    int touch = 0;
    for (int tries = 0; tries < 20 && touch < NEIGHBOURS / 2; tries++) {
        touch = trace_neighbours(runtime, lane, k, buffer);
    }
    CONF_TRUE(touch >= NEIGHBOURS / 2);
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_trace_budget");
    const struct CMUnitTest tests[] = {
        FOLDER_CASE(events_that_are_slow_to_record),
        FOLDER_CASE(times_that_are_slow_to_ask_for),
        FOLDER_CASE(lanes_that_do_not_rest),
        FOLDER_CASE(neighbours_share_an_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
