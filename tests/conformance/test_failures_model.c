/* test_failures_model.c - no operation that depends on a failed one ever succeeds, and nothing that does not depend on one ever fails.
 *
 * Promise: In random traffic an operation fails exactly when it, or one that it depends on, was made to fail.
 *
 * The traffic has launches, copies, fills and reads on parts of buffers, in several lanes of up to two devices. One launch in fifty fails.
 * A model has what each operation reads. It takes from the launches themselves which of them fail on their own: such a failure names the
 * launch itself. Everything else follows. Tickets of long ago still report the same at the end.
 *
 * Environment: HEDDLE_FAILURE_OPERATIONS=N operations of each thread, HEDDLE_SEED=N.
 *
 * Threads: two, each with buffers and lanes of its own, and a model that has nothing of the other's. They share the lanes for copies.
 * Locks: none.
 */
#include "conformance.h"

#include <pthread.h>

enum {
    threads = 2,
    n_buffers = 8,
    n_lanes = 4,
    quarters = 4,
    words = 64,       /* of a quarter */
    most_open = 2000, /* operations whose tickets have not been waited for */
    kept_every = 61,
    most_kept = 4096,
    most_operations = 1 << 22
};
enum { quarter_bytes = 4 * words, buffer_bytes = quarters * quarter_bytes };

typedef enum kind { LAUNCH, TRANSFER, REFUSED_BY_LANE, REFUSED_BY_SOURCE, RESET } kind;

typedef struct operation {
    kind kind;
    int lane; /* of the traffic; -1: none of these */
    hd_ticket ticket;
    uint32_t reads[2 * quarters]; /* operations whose results it reads */
    int n_reads;
    bool failed;
    bool known[quarters]; /* of the buffer that it writes: whether `value` is what is there then */
    uint32_t value[quarters];
    int source[quarters]; /* quarter of reads[] that a copy takes its value from; -1: none */
} operation;

typedef struct kept {
    hd_ticket ticket;
    bool failed;
} kept;

typedef struct traffic {
    hd_runtime *runtime;
    conf_kernels k;
    conf_random random;
    pthread_t thread;
    int devices;
    uint64_t steps;
    hd_lane *lanes[n_lanes];
    bool lane_failed[n_lanes]; /* as far as the operations are settled */
    hd_buffer *buffers[n_buffers];
    uint32_t writer[n_buffers][quarters]; /* operation number */
    operation *operations;                /* a ring of the last ones */
    uint32_t begun, settled;
    kept kept[most_kept];
    int n_kept;
    uint64_t failures, own_failures;
} traffic;

enum { ring = 1 << 16 };

static operation *at(traffic *t, uint32_t number)
{
    return &t->operations[number % ring];
}

static int device_of_buffer(const traffic *t, int b)
{
    return b == n_buffers - 1 ? -1 : b % t->devices; /* the last one is pinned memory */
}

/* ---- settling ---- */

static bool reads_failure(traffic *t, const operation *o)
{
    bool any = false;
    for (int i = 0; i < o->n_reads && !any; i++) {
        any = at(t, o->reads[i])->failed;
    }
    return any;
}

/* A failure that nothing explains has to be the operation's own, and name it. */
static void is_own_failure(const operation *o, uint32_t number)
{
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    bool own = o->kind == LAUNCH && error.driver_code == 701 && error.lane == hd_lane_number(o->ticket.lane) &&
               error.device == hd_lane_device(o->ticket.lane) && error.ticket == o->ticket.sequence && error.kernel[0];
    if (!own) {
        conf_fail_at(
            __FILE__, __LINE__,
            "operation %u (%s, lane %d of the traffic; device %d, lane %d, ticket %llu) failed, and depends on no "
            "failed one: %s",
            number, o->kind == LAUNCH ? "a launch" : "a transfer", o->lane, hd_lane_device(o->ticket.lane),
            hd_lane_number(o->ticket.lane), (unsigned long long)o->ticket.sequence, hd_message());
    }
}

static void settle_values(traffic *t, operation *o)
{
    for (int q = 0; q < quarters; q++) {
        if (o->source[q] >= 0) {
            const operation *from = at(t, o->reads[o->source[q] / quarters]);
            o->known[q] = from->known[o->source[q] % quarters];
            o->value[q] = from->value[o->source[q] % quarters];
        }
    }
}

static void settle_one(traffic *t, uint32_t number)
{
    operation *o = at(t, number);
    bool lane_failed = o->lane >= 0 && t->lane_failed[o->lane];
    if (o->kind == RESET) {
        t->lane_failed[o->lane] = false;
        return;
    }
    if (o->kind == REFUSED_BY_LANE) {
        CONF_TRUE(lane_failed);
        return;
    }
    if (o->kind == REFUSED_BY_SOURCE) {
        CONF_TRUE(reads_failure(t, o));
        return;
    }
    bool must_fail = lane_failed || reads_failure(t, o);
    hd_status status = hd_wait(o->ticket, 60 * CONF_SECOND);
    CONF_TRUE(status == HD_OK || status == HD_ERROR_FAILED);
    o->failed = status != HD_OK;
    if (must_fail && !o->failed) {
        conf_fail_at(__FILE__, __LINE__, "operation %u succeeded, and depends on a failed one (lane failed: %d)",
                     number, lane_failed);
    }
    if (o->failed && !must_fail) {
        is_own_failure(o, number);
        t->own_failures++;
    }
    t->failures += o->failed;
    if (o->lane >= 0) {
        t->lane_failed[o->lane] |= o->failed;
    }
    settle_values(t, o);
    if (number % kept_every == 0) {
        /* of old ones, too, some from the beginning stay */
        int i = t->n_kept < most_kept ? t->n_kept++ : (int)conf_below(&t->random, most_kept);
        t->kept[i] = (kept){o->ticket, o->failed};
    }
}

static void settle(traffic *t)
{
    for (; t->settled != t->begun; t->settled++) {
        settle_one(t, t->settled);
    }
}

/* ---- traffic ---- */

static operation *begin(traffic *t)
{
    if (t->begun - t->settled >= most_open) {
        settle(t);
    }
    operation *o = at(t, t->begun);
    *o = (operation){.lane = -1};
    for (int q = 0; q < quarters; q++) {
        o->source[q] = -1;
    }
    return o;
}

static void add_reads(traffic *t, operation *o, int buffer, int quarter, int n)
{
    for (int q = 0; q < n; q++) {
        o->reads[o->n_reads++] = t->writer[buffer][quarter + q];
    }
}

/* `status` is that of the call which submitted it; it writes so many quarters. */
static void end(traffic *t, operation *o, hd_status status, int buffer, int quarter, int n)
{
    if (status == HD_ERROR_LANE_FAILED && o->lane >= 0) {
        o->kind = REFUSED_BY_LANE;
    } else if (status == HD_ERROR_FAILED && o->n_reads > 0) {
        o->kind = REFUSED_BY_SOURCE;
    } else {
        CONF_OK(status);
        for (int q = 0; q < n; q++) {
            t->writer[buffer][quarter + q] = t->begun;
        }
    }
    t->begun++;
}

static void fill(traffic *t, int y, int quarter, int n)
{
    operation *o = begin(t);
    uint32_t value = (uint32_t)conf_below(&t->random, UINT32_MAX);
    o->kind = TRANSFER;
    for (int q = quarter; q < quarter + n; q++) {
        o->known[q] = true;
        o->value[q] = value;
    }
    hd_status status =
        hd_fill(t->buffers[y], (size_t)quarter * quarter_bytes, value, (size_t)n * quarter_bytes, &o->ticket);
    end(t, o, status, y, quarter, n);
}

static void take_values(operation *o, int yq, int xq, int n, int first_read)
{
    for (int q = 0; q < n; q++) {
        o->source[yq + q] = (first_read + q) * quarters + xq + q;
    }
}

static void copy(traffic *t, int y, int yq, int x, int xq, int n)
{
    operation *o = begin(t);
    o->kind = TRANSFER;
    add_reads(t, o, x, xq, n);
    take_values(o, yq, xq, n, 0);
    hd_status status = hd_copy(t->buffers[y], (size_t)yq * quarter_bytes, t->buffers[x], (size_t)xq * quarter_bytes,
                               (size_t)n * quarter_bytes, &o->ticket);
    end(t, o, status, y, yq, n);
}

static void launch(traffic *t, int y, int yq, int x, int xq, int n)
{
    operation *o = begin(t);
    int device = device_of_buffer(t, y);
    o->kind = LAUNCH;
    do {
        o->lane = (int)conf_below(&t->random, n_lanes);
    } while (o->lane % t->devices != device);
    size_t from = (size_t)xq * quarter_bytes, to = (size_t)yq * quarter_bytes;
    hd_lane *lane = t->lanes[o->lane];
    uint64_t count = (uint64_t)n * words;
    hd_status status;
    switch (conf_below(&t->random, 3)) {
    case 0: {
        uint32_t value = (uint32_t)conf_below(&t->random, UINT32_MAX);
        for (int q = yq; q < yq + n; q++) {
            o->known[q] = true;
            o->value[q] = value;
        }
        status = conf_fill(lane, t->k, t->buffers[y], to, count, value, &o->ticket);
        break;
    }
    case 1:
        add_reads(t, o, x, xq, n);
        take_values(o, yq, xq, n, 0);
        status = conf_copy(lane, t->k, t->buffers[y], to, t->buffers[x], from, count, &o->ticket);
        break;
    default: /* what comes of it is not known to the model */
        add_reads(t, o, x, xq, n);
        add_reads(t, o, y, yq, n);
        status = conf_axpy(lane, t->k, t->buffers[y], to, t->buffers[x], from, 0, count, &o->ticket);
    }
    end(t, o, status, y, yq, n);
}

static void read_back(traffic *t, int b, int quarter, int n)
{
    uint32_t got[quarters * words];
    hd_status status = hd_read(t->buffers[b], (size_t)quarter * quarter_bytes, got, (size_t)n * quarter_bytes);
    settle(t);
    bool failed = false;
    for (int q = quarter; q < quarter + n; q++) {
        failed |= at(t, t->writer[b][q])->failed;
    }
    CONF_TRUE(status == (failed ? HD_ERROR_FAILED : HD_OK));
    for (int q = 0; q < n && !failed; q++) {
        const operation *o = at(t, t->writer[b][quarter + q]);
        for (int w = 0; w < words && o->known[quarter + q]; w++) {
            CONF_TRUE(got[q * words + w] == o->value[quarter + q]);
        }
    }
}

static void allocate(traffic *t, int b)
{
    int device = device_of_buffer(t, b);
    if (device < 0) {
        CONF_OK(hd_alloc_host(t->runtime, buffer_bytes, &t->buffers[b]));
    } else {
        CONF_OK(hd_alloc(conf_default_lane(t->runtime, device), buffer_bytes, &t->buffers[b]));
    }
    fill(t, b, 0, quarters);
}

static void reset_some_lane(traffic *t)
{
    int lane = (int)conf_below(&t->random, n_lanes);
    hd_lane_wait(t->lanes[lane], 60 * CONF_SECOND); /* whatever it returns */
    CONF_OK(hd_lane_reset(t->lanes[lane], 60 * CONF_SECOND));
    operation *o = begin(t);
    o->kind = RESET;
    o->lane = lane;
    t->begun++;
}

static void step(traffic *t)
{
    int n = 1 + (int)conf_below(&t->random, quarters);
    int yq = (int)conf_below(&t->random, (uint64_t)(quarters - n) + 1);
    int xq = (int)conf_below(&t->random, (uint64_t)(quarters - n) + 1);
    int y = (int)conf_below(&t->random, n_buffers - 1), x; /* pinned memory is only read, and written by copies */
    uint64_t what = conf_below(&t->random, 100);
    do {
        x = (int)conf_below(&t->random, n_buffers);
    } while (x == y || (what < 55 && device_of_buffer(t, x) >= 0 && device_of_buffer(t, x) != device_of_buffer(t, y)));
    if (what < 55) {
        launch(t, y, yq, x, xq, n);
    } else if (what < 75) {
        bool swapped = conf_below(&t->random, 2);
        copy(t, swapped ? x : y, yq, swapped ? y : x, xq, n);
    } else if (what < 85) {
        fill(t, x, yq, n);
    } else if (what < 92) {
        reset_some_lane(t);
    } else if (what < 94) {
        hd_free(t->buffers[x]);
        allocate(t, x);
    } else if (conf_below(&t->random, 10) == 0) {
        read_back(t, x, xq, n);
    }
}

/* Writes everything anew, now and then. Otherwise the result of an operation might still be read when its record in
 * the ring is used again. */
static void renew(traffic *t)
{
    for (int b = 0; b < n_buffers; b++) {
        fill(t, b, 0, quarters);
    }
}

static void *run(void *argument)
{
    traffic *t = argument;
    for (int b = 0; b < n_buffers; b++) {
        allocate(t, b);
    }
    uint32_t renewed = 0;
    for (uint64_t i = 0; i < t->steps; i++) {
        step(t);
        if (t->begun - renewed > ring / 2) {
            settle(t);
            renew(t);
            renewed = t->begun;
        }
    }
    settle(t);
    for (int i = 0; i < t->n_kept; i++) {
        CONF_TRUE((hd_wait(t->kept[i].ticket, 60 * CONF_SECOND) != HD_OK) == t->kept[i].failed);
    }
    return NULL;
}

static void what_depends_on_a_failure_fails_and_nothing_else(void **state)
{
    (void)state;
    uint64_t seed = conf_number_from("HEDDLE_SEED", 1);
    hd_runtime *runtime = conf_open_with("fault=cuLaunchKernel:~50=701 memory_idle=0 %s%llu",
                                         conf_on_gpus ? "host_schedule=0" : "host_schedule=", (unsigned long long)seed);
    static traffic all[threads];
    uint64_t failures = 0, own = 0;
    for (int i = 0; i < threads; i++) {
        traffic *t = &all[i];
        *t = (traffic){
            .runtime = runtime,
            .k = conf_builtins(runtime),
            .random = {seed * threads + (uint64_t)i},
            .devices = hd_device_count(runtime) < 2 ? 1 : 2,
            .steps = conf_number_from("HEDDLE_FAILURE_OPERATIONS", 20000 / CONF_SLOWNESS),
            .operations = calloc(ring, sizeof(operation)),
            .begun = 1,
            .settled = 1,
        };
        CONF_TRUE(t->operations != NULL);
        for (int l = 0; l < n_lanes; l++) {
            CONF_OK(hd_lane_create(runtime, l % t->devices, &t->lanes[l]));
        }
    }
    for (int i = 0; i < threads; i++) {
        CONF_TRUE(pthread_create(&all[i].thread, NULL, run, &all[i]) == 0);
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(all[i].thread, NULL);
        failures += all[i].failures;
        own += all[i].own_failures;
        free(all[i].operations);
    }
    CONF_TRUE(own > 0 && failures > own);
    print_message("  seed %llu: %u operations, %llu failed, %llu of them by themselves\n", (unsigned long long)seed,
                  all[0].begun + all[1].begun, (unsigned long long)failures, (unsigned long long)own);
    conf_close(runtime);
}

/* More failures than a lane's log holds, one after the other in one lane. Each must be reported, refused to readers, and over after a reset. */
static void the_last_failure_counts_like_the_first(void **state)
{
    (void)state;
    enum { rounds = 4200 / CONF_SLOWNESS };
    hd_runtime *runtime = conf_open("fault=cuLaunchKernel:~2=701");
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane = NULL;
    hd_buffer *x = NULL, *y = NULL;
    hd_ticket good = {NULL, 0}, bad = {NULL, 0};
    CONF_OK(hd_lane_create(runtime, 0, &lane));
    CONF_OK(hd_alloc(lane, quarter_bytes, &x));
    CONF_OK(hd_alloc(lane, quarter_bytes, &y));
    for (int failed = 0; failed < rounds;) {
        hd_ticket ticket;
        CONF_OK(conf_fill(lane, k, x, 0, words, 7, &ticket));
        hd_status status = hd_wait(ticket, 60 * CONF_SECOND);
        if (status == HD_OK) {
            good = good.lane ? good : ticket;
            continue;
        }
        CONF_TRUE(status == HD_ERROR_FAILED);
        bad = bad.lane ? bad : ticket;
        CONF_FAILS(conf_copy(lane, k, y, 0, x, 0, words, NULL), HD_ERROR_LANE_FAILED);
        CONF_OK(hd_lane_reset(lane, 60 * CONF_SECOND));
        CONF_FAILS(conf_copy(lane, k, y, 0, x, 0, words, NULL), HD_ERROR_FAILED);
        failed++;
    }
    CONF_OK(hd_wait(good, 60 * CONF_SECOND));
    CONF_FAILS(hd_wait(bad, 60 * CONF_SECOND), HD_ERROR_FAILED);
    conf_close(runtime);
}

/* A launch fails while others are being submitted behind it. No operation reads the result of one that was accepted and failed, also after
 * the lane has been reset. Each of the others uses a buffer in pieces, so that its submission takes a while. */
static void what_failed_during_a_submission_is_not_read(void **state)
{
    (void)state;
    enum { n = 4, pieces = 60, rounds = 600 / CONF_SLOWNESS, bytes = pieces * quarter_bytes };
    hd_runtime *runtime = conf_open("fault=cuLaunchKernel:~4=701");
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane = NULL;
    hd_buffer *x[n], *y[n], *z = NULL;
    CONF_OK(hd_lane_create(runtime, 0, &lane));
    CONF_OK(hd_alloc(lane, quarter_bytes, &z));
    for (int i = 0; i < n; i++) {
        CONF_OK(hd_alloc(lane, quarter_bytes, &x[i]));
        CONF_OK(hd_alloc(lane, bytes, &y[i]));
    }
    for (int round = 0; round < rounds; round++) {
        hd_ticket tickets[n];
        bool accepted[n];
        for (int i = 0; i < n; i++) {
            for (int p = 0; p < pieces; p++) {
                CONF_OK(hd_fill(y[i], (size_t)p * quarter_bytes, (uint32_t)round, quarter_bytes, NULL));
            }
            CONF_OK(hd_buffer_wait(y[i], HD_READ_WRITE, 60 * CONF_SECOND));
        }
        conf_fill(lane, k, z, 0, words, 1, NULL);
        for (volatile int d = 0; d < round * 37 % 2000; d++) {
        }
        for (int i = 0; i < n; i++) {
            hd_arg args[] = {hd_out(x[i]), hd_in(y[i]), hd_u64(words)};
            accepted[i] =
                hd_launch(lane, k.copy, conf_dims(1, 1, 1), conf_dims(words, 1, 1), 0, args, 3, &tickets[i]) == HD_OK;
        }
        hd_lane_wait(lane, 60 * CONF_SECOND); /* whatever it returns */
        CONF_OK(hd_lane_reset(lane, 60 * CONF_SECOND));
        for (int i = 0; i < n; i++) {
            if (accepted[i] && hd_wait(tickets[i], 60 * CONF_SECOND) != HD_OK) {
                hd_arg args[] = {hd_out(z), hd_in(x[i]), hd_u64(words)};
                CONF_FAILS(hd_launch(lane, k.copy, conf_dims(1, 1, 1), conf_dims(words, 1, 1), 0, args, 3, NULL),
                           HD_ERROR_FAILED);
            }
        }
        for (int i = 0; i < n; i++) {
            CONF_OK(hd_fill(x[i], 0, 0, quarter_bytes, NULL));
        }
    }
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_failures_model");
    const struct CMUnitTest tests[] = {
        CONF_CASE(what_depends_on_a_failure_fails_and_nothing_else),
        CONF_CASE(the_last_failure_counts_like_the_first),
        CONF_CASE(what_failed_during_a_submission_is_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
