/* test_hostile.c - traces whose operations wait for very many others, in orders that no program
 * makes.
 *
 * Promise: The time to read any trace grows only with its records and their logarithm.
 *
 * Random waits, with events further behind, are also compared with a simple model of the waits of
 * each operation.
 * Threads: one.
 */
#include "trace/scene.h"

#include <stdlib.h>
#include <time.h>
#include "record/format.h"

typedef struct list {
    hdi_record *records;
    size_t n, room;
} list;

static hdi_record *add(list *l, uint8_t type, uint8_t kind)
{
    if (l->n == l->room) {
        l->room = l->room ? 2 * l->room : 1024;
        l->records = realloc(l->records, l->room * sizeof *l->records);
        assert_non_null(l->records);
    }
    hdi_record *r = &l->records[l->n++];
    memset(r, 0, sizeof *r);
    r->type = type;
    r->kind = kind;
    r->time = 1000 + (int64_t)l->n;
    return r;
}

enum { lanes = 4, waits_in = 9 }; /* operations of lane 9 wait for those of lanes 1 to 4 */

static void begin(list *l)
{
    hdi_record *r = add(l, HDI_RECORD_TRACE, HDI_RECORD_DETAIL_FULL);
    r->device = 1;
    r->trace.magic = HDI_RECORD_MAGIC;
    r->trace.version = HDI_RECORD_VERSION;
    r->trace.process = 42;
    r->trace.placement = 1;
    r->trace.run = 1;
    for (uint32_t lane = 1; lane <= waits_in; lane += lane < lanes ? 1 : waits_in - lanes) {
        r = add(l, HDI_RECORD_LANE, HDI_RECORD_LANE_PROGRAM);
        r->a_lane.lane = lane;
        r->a_lane.slots = 1024;
    }
}

static void submit(list *l, uint32_t lane, uint64_t position, size_t waits)
{
    hdi_record *r = add(l, HDI_RECORD_SUBMIT, HDI_RECORD_OP_FILL);
    r->submit.lane = lane;
    r->submit.position = position;
    r->submit.before = position - 1;
    r->submit.waits = (uint16_t)(waits < UINT16_MAX ? waits : UINT16_MAX);
    r->submit.src = r->submit.dst = HDI_RECORD_NO_DEVICE;
}

static void wait_for(list *l, uint64_t position, uint32_t lane, uint64_t other)
{
    hdi_record *r = add(l, HDI_RECORD_WAIT, 1);
    r->wait.lane = waits_in;
    r->wait.position = position;
    r->wait.other_lane = lane;
    r->wait.other_position = other;
    r->wait.high_unit = r->wait.unit = 1;
}

static void behind(list *l, uint64_t position, uint32_t lane, uint64_t other)
{
    hdi_record *r = add(l, HDI_RECORD_BEHIND, 0);
    r->behind.lane = waits_in;
    r->behind.before = position - 1;
    r->behind.other_lane = lane;
    r->behind.other_position = other;
}

static void read_it(list *l, trace *t)
{
    char error[512] = "";
    add(l, HDI_RECORD_END, 0);
    if (!trace_read_bytes(l->records, l->n * sizeof *l->records, t, error)) {
        fail_msg("%s", error);
    }
}

/* ---- the time taken ---- */

typedef void shape(list *l, size_t n);

/* One operation waits for n others, the last one first. */
static void falling(list *l, size_t n)
{
    for (uint64_t i = 1; i <= n; i++) {
        submit(l, 1, i, 0);
    }
    for (uint64_t i = n; i > 0; i--) {
        wait_for(l, 1, 1, i);
    }
    submit(l, waits_in, 1, n);
}

/* One operation with very many waits, and as many events of a lane that it does not wait for. */
static void elsewhere(list *l, size_t n)
{
    for (uint64_t i = 1; i <= n; i++) {
        submit(l, 1, i, 0);
    }
    submit(l, 2, 1, 0);
    for (uint64_t i = 1; i <= n; i++) {
        wait_for(l, 1, 1, i);
    }
    submit(l, waits_in, 1, n);
    for (uint64_t i = 0; i < n; i++) {
        behind(l, 1, 2, 1);
    }
}

/* One operation waits for the first of one lane and for all of another. The events advance in small
 * steps. */
static void step_by_step(list *l, size_t n)
{
    for (uint64_t i = 1; i <= n; i++) {
        submit(l, 1, i, 0);
        submit(l, 2, i, 0);
    }
    wait_for(l, 1, 2, 1);
    for (uint64_t i = 1; i <= n; i++) {
        wait_for(l, 1, 1, i);
    }
    submit(l, waits_in, 1, n + 1);
    for (uint64_t i = 1; i <= n; i++) {
        behind(l, 1, 1 + i % 2, i);
    }
}

/* Returns the processor time in ns, which a busy machine changes little. */
static double cost_of(shape *fill, size_t n)
{
    list l = {NULL, 0, 0};
    begin(&l);
    fill(&l, n);
    trace t;
    struct timespec begun, ended;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begun);
    read_it(&l, &t);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ended);
    assert_int_equal(t.ignored, 0);
    trace_release(&t);
    free(l.records);
    return 1e9 * (double)(ended.tv_sec - begun.tv_sec) + (double)(ended.tv_nsec - begun.tv_nsec);
}

static void test_costs(void **state)
{
    (void)state;
    static shape *const shapes[] = {falling, elsewhere, step_by_step};
    enum { few = 10000, times = 16 }; /* quadratic time would grow by 256 */
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        double least = 1e30;
        for (int k = 0; k < 5 && least > 64; k++) {
            double ratio = cost_of(shapes[i], few * times) / cost_of(shapes[i], few);
            least = ratio < least ? ratio : least;
        }
        if (least > 64) {
            fail_msg("shape %zu: %d times the records take %.0f times as long", i, times, least);
        }
    }
}

/* ---- the result ---- */

typedef struct waiting {
    uint32_t lane;
    uint64_t other;
    bool behind;
} waiting;

static int compare_waiting(const void *a, const void *b)
{
    const waiting *x = a, *y = b;
    int order = (x->lane > y->lane) - (x->lane < y->lane);
    order = order ? order : (x->other > y->other) - (x->other < y->other);
    return order ? order : x->behind - y->behind;
}

static uint64_t random_state = 1;

static uint64_t below(uint64_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 33) % n;
}

enum { positions = 20, waiters = 5, waits_most = 12 };

/* Advances the furthest wait for the lane. */
static void go_on(waiting *of, size_t n, uint32_t lane, uint64_t to)
{
    waiting *furthest = NULL;
    for (size_t i = 0; i < n; i++) {
        if (of[i].lane == lane && (!furthest || of[i].other >= furthest->other)) {
            furthest = &of[i];
        }
    }
    if (furthest && to > furthest->other) {
        furthest->other = to;
        furthest->behind = true;
    }
}

static void compare(const trace *t, const trace_op *op, waiting *expected, size_t n)
{
    waiting got[waits_most];
    assert_int_equal(op->n_waits, n);
    for (size_t i = 0; i < n; i++) {
        const trace_wait *w = &t->waits[op->first_wait + i];
        assert_true(i == 0 || t->waits[op->first_wait + i - 1].other <= w->other);
        got[i] = (waiting){w->lane, t->ops[w->other].position & 0xffff, w->behind};
    }
    qsort(got, n, sizeof got[0], compare_waiting);
    qsort(expected, n, sizeof expected[0], compare_waiting);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(got[i].lane, expected[i].lane);
        assert_int_equal(got[i].other, expected[i].other);
        assert_int_equal(got[i].behind, expected[i].behind);
    }
}

static void test_against_the_model(void **state)
{
    (void)state;
    for (int round = 0; round < 300; round++) {
        list l = {NULL, 0, 0};
        waiting of[waiters][waits_most];
        size_t n[waiters];
        begin(&l);
        for (uint32_t lane = 1; lane <= lanes; lane++) {
            for (uint64_t i = 1; i <= positions; i++) {
                submit(&l, lane, i, 0);
            }
        }
        for (uint64_t w = 0; w < waiters; w++) {
            n[w] = below(waits_most + 1);
            for (size_t i = 0; i < n[w]; i++) {
                of[w][i] = (waiting){1 + (uint32_t)below(lanes), 1 + below(positions), false};
                wait_for(&l, w + 1, of[w][i].lane, of[w][i].other);
            }
            submit(&l, waits_in, w + 1, n[w]);
        }
        for (uint64_t events = below(30); events > 0; events--) {
            uint64_t w = below(waiters), to = 1 + below(positions);
            uint32_t lane = 1 + (uint32_t)below(lanes);
            behind(&l, w + 1, lane, to);
            go_on(of[w], n[w], lane, to);
        }
        trace t;
        read_it(&l, &t);
        for (size_t i = 0, w = 0; i < t.n_ops; i++) {
            if (t.ops[i].lane == waits_in) {
                compare(&t, &t.ops[i], of[w], n[w]);
                w++;
            }
        }
        trace_release(&t);
        free(l.records);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_costs),
        cmocka_unit_test(test_against_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
