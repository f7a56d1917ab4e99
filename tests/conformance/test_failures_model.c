/* test_failures_model.c - an operation that depends on a failed one never succeeds, and no other
 * operation ever fails.
 *
 * Promise: In random traffic, exactly the operations made to fail and their dependents fail.
 *
 * The traffic consists of launches, copies, fills, reads and functions on the CPU, on parts of
 * buffers, in several lanes of up to two devices. One launch in fifty fails, and one function in
 * eight. Two of the buffers are unified, so Heddle moves their bytes meanwhile, without any
 * operation. Operations write them as a whole, or a quarter is one of the chunks that move. A model
 * knows the sources of each operation. It learns from the launches themselves which of them fail on
 * their own: such a failure names the launch itself. The rest follows. At the end, old tickets
 * still report the same.
 *
 * Environment: HEDDLE_FAILURE_OPERATIONS=N operations of each thread, HEDDLE_SEED=N.
 *
 * Threads: two, each with its own buffers, lanes and model. They share the lanes for copies.
 * Locks: none.
 */
#include "conformance.h"

#include <pthread.h>

enum {
    threads = 2,
    n_buffers = 10, /* the last one is pinned, and the two before it are unified */
    n_lanes = 4,
    quarters = 4,
    words = 64,          /* of a quarter */
    chunk_words = 16384, /* in a quarter that is a chunk of unified memory */
    most_open = 2000,    /* operations for whose tickets nobody waited yet */
    kept_every = 61,
    most_kept = 4096,
    most_operations = 1 << 22
};
enum { quarter_bytes = 4 * words };

typedef enum kind { LAUNCH, TRANSFER, FUNCTION, MAPPED, REFUSED_BY_LANE, REFUSED_BY_SOURCE, RESET } kind;

typedef struct operation {
    kind kind;
    int lane; /* of the traffic; -1: none of these */
    hd_ticket ticket;
    uint32_t reads[2 * quarters]; /* operations whose results it reads */
    int n_reads;
    bool failed;
    bool known[quarters]; /* for the buffer that it writes: true if it leaves `value` there */
    uint32_t value[quarters];
    int source[quarters]; /* quarter of reads[] from which a copy takes its value; -1: none */
    /* for a function on the CPU */
    bool own_failure;
    uint32_t sets;
    size_t n_words;
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
    size_t words; /* of a quarter */
    uint64_t steps;
    hd_lane *lanes[n_lanes];
    bool lane_failed[n_lanes]; /* as far as operations are settled */
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
    return b == n_buffers - 1 ? -1 : b % t->devices;
}

static bool is_unified(int b)
{
    return b == n_buffers - 2 || b == n_buffers - 3;
}

/* A write to part of a chunk depends on the rest, so operations write these buffers as a whole. */
static bool is_written_whole(const traffic *t, int b)
{
    return is_unified(b) && t->words != chunk_words;
}

static size_t offset_of(const traffic *t, int quarter)
{
    return (size_t)quarter * 4 * t->words;
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

/* A failure that nothing explains must be the operation's own, and name it. */
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
    if (o->kind == MAPPED) {
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
    if (o->own_failure && !o->failed) {
        conf_fail_at(__FILE__, __LINE__, "operation %u succeeded, and its function failed", number);
    }
    if (o->failed && !must_fail) {
        if (!o->own_failure) {
            is_own_failure(o, number);
        }
        t->own_failures++;
    }
    t->failures += o->failed;
    if (o->lane >= 0) {
        t->lane_failed[o->lane] |= o->failed;
    }
    settle_values(t, o);
    if (number % kept_every == 0) {
        /* also of old ones: some from the beginning stay */
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

/* `status`: that of the submitting call. The operation writes `n` quarters. */
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
    hd_status status = hd_fill(t->buffers[y], offset_of(t, quarter), value, offset_of(t, n), &o->ticket);
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
    hd_status status =
        hd_copy(t->buffers[y], offset_of(t, yq), t->buffers[x], offset_of(t, xq), offset_of(t, n), &o->ticket);
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
    size_t from = offset_of(t, xq), to = offset_of(t, yq);
    hd_lane *lane = t->lanes[o->lane];
    uint64_t count = (uint64_t)n * t->words;
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
    default: /* the model does not know the outcome */
        add_reads(t, o, x, xq, n);
        add_reads(t, o, y, yq, n);
        status = conf_axpy(lane, t->k, t->buffers[y], to, t->buffers[x], from, 0, count, &o->ticket);
    }
    end(t, o, status, y, yq, n);
}

/* pointers[0]: its destination; pointers[1], if present: the source that it copies. */
static hd_status on_the_cpu(void *const *pointers, void *context)
{
    const operation *o = context;
    uint32_t *to = pointers[0];
    for (size_t w = 0; w < o->n_words; w++) {
        to[w] = o->n_reads > 0 ? ((const uint32_t *)pointers[1])[w] : o->sets;
    }
    return o->own_failure ? HD_ERROR_SYSTEM : HD_OK;
}

static void call_function(traffic *t, int y, int yq, int x, int xq, int n)
{
    operation *o = begin(t);
    o->kind = FUNCTION;
    o->own_failure = conf_below(&t->random, 8) == 0;
    o->sets = (uint32_t)conf_below(&t->random, UINT32_MAX);
    o->n_words = (size_t)n * t->words;
    hd_arg uses[] = {hd_out_range(t->buffers[y], offset_of(t, yq), offset_of(t, n)),
                     hd_in_range(t->buffers[x], offset_of(t, xq), offset_of(t, n))};
    bool copies = conf_chance(&t->random, 50);
    if (copies) {
        add_reads(t, o, x, xq, n);
        take_values(o, yq, xq, n, 0);
    }
    for (int q = yq; q < yq + n && !copies; q++) {
        o->known[q] = true;
        o->value[q] = o->sets;
    }
    end(t, o, hd_launch_host(t->runtime, on_the_cpu, o, uses, copies ? 2 : 1, &o->ticket), y, yq, n);
}

/* `status`: that of a call that waited for these bytes and read them. */
static bool is_read(traffic *t, hd_status status, int b, int quarter, int n)
{
    settle(t);
    bool failed = false;
    for (int q = quarter; q < quarter + n; q++) {
        failed |= at(t, t->writer[b][q])->failed;
    }
    if (status != (failed ? HD_ERROR_FAILED : HD_OK)) {
        conf_fail_at(__FILE__, __LINE__, "reading %s quarters %d to %d of buffer %d is %s: %s",
                     failed ? "failed" : "good", quarter, quarter + n - 1, b, hd_status_name(status), hd_message());
    }
    return !failed;
}

static void is_value_of(traffic *t, int b, int quarter, uint32_t got)
{
    const operation *o = at(t, t->writer[b][quarter]);
    CONF_TRUE(!o->known[quarter] || got == o->value[quarter]);
}

static void read_back(traffic *t, int b, int quarter, int n)
{
    uint32_t *got = conf_memory(offset_of(t, n));
    if (is_read(t, hd_read(t->buffers[b], offset_of(t, quarter), got, offset_of(t, n)), b, quarter, n)) {
        for (int q = 0; q < n; q++) {
            for (size_t w = 0; w < t->words; w++) {
                is_value_of(t, b, quarter + q, got[(size_t)q * t->words + w]);
            }
        }
    }
    free(got);
}

static void read_element(traffic *t, int b, int quarter)
{
    const uint32_t *at = hd_element(t->buffers[b], offset_of(t, quarter), 4, HD_READ);
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    uint32_t got = at ? *at : 0;
    if (is_read(t, at ? HD_OK : error.status, b, quarter, 1)) {
        is_value_of(t, b, quarter, got);
    }
}

/* Writes a whole buffer by a pointer. From then on the host's bytes are newer. */
static void write_mapped(traffic *t, int b)
{
    uint32_t *p = NULL;
    if (!is_read(t, hd_map(t->buffers[b], HD_READ_WRITE, (void **)&p), b, 0, quarters)) {
        return;
    }
    operation *o = begin(t);
    o->kind = MAPPED;
    o->sets = (uint32_t)conf_below(&t->random, UINT32_MAX);
    for (int q = 0; q < quarters; q++) {
        is_value_of(t, b, q, p[(size_t)q * t->words]);
        o->known[q] = true;
        o->value[q] = o->sets;
    }
    for (size_t w = 0; w < quarters * t->words; w++) {
        p[w] = o->sets;
    }
    CONF_OK(hd_unmap(t->buffers[b]));
    end(t, o, HD_OK, b, 0, quarters);
}

static void allocate(traffic *t, int b)
{
    int device = device_of_buffer(t, b);
    size_t bytes = offset_of(t, quarters);
    if (device < 0) {
        CONF_OK(hd_alloc_host(t->runtime, bytes, &t->buffers[b]));
    } else if (is_unified(b)) {
        CONF_OK(hd_alloc_unified(conf_default_lane(t->runtime, device), bytes, &t->buffers[b]));
    } else {
        CONF_OK(hd_alloc(conf_default_lane(t->runtime, device), bytes, &t->buffers[b]));
    }
    fill(t, b, 0, quarters);
}

static void reset_some_lane(traffic *t)
{
    int lane = (int)conf_below(&t->random, n_lanes);
    hd_lane_wait(t->lanes[lane], 60 * CONF_SECOND); /* with any result */
    CONF_OK(hd_lane_reset(t->lanes[lane], 60 * CONF_SECOND));
    operation *o = begin(t);
    o->kind = RESET;
    o->lane = lane;
    t->begun++;
}

static void step_on_host(traffic *t, int xq, int n)
{
    int x, b = n_buffers - 1 - (int)conf_below(&t->random, 3); /* buffers that the host can use */
    uint64_t what = conf_below(&t->random, 100);
    do {
        x = n_buffers - 1 - (int)conf_below(&t->random, 3);
    } while (x == b);
    if (what < 85) {
        bool whole = is_written_whole(t, b) || is_written_whole(t, x);
        call_function(t, b, whole ? 0 : xq, x, whole ? 0 : xq, whole ? quarters : n);
    } else if (what < 95) {
        write_mapped(t, b);
    } else {
        read_element(t, b, xq);
    }
}

static void step(traffic *t)
{
    /* pinned memory is only read, and written by copies */
    int y = (int)conf_below(&t->random, n_buffers - 1), x;
    uint64_t what = conf_below(&t->random, 100);
    do {
        x = (int)conf_below(&t->random, n_buffers);
    } while (x == y || (what < 52 && device_of_buffer(t, x) >= 0 && device_of_buffer(t, x) != device_of_buffer(t, y)));
    bool whole = is_written_whole(t, y) || is_written_whole(t, x);
    int n = whole ? quarters : 1 + (int)conf_below(&t->random, quarters);
    int yq = (int)conf_below(&t->random, (uint64_t)(quarters - n) + 1);
    int xq = (int)conf_below(&t->random, (uint64_t)(quarters - n) + 1);
    if (what < 52) {
        launch(t, y, yq, x, xq, n);
    } else if (what < 66) {
        bool swapped = conf_below(&t->random, 2);
        copy(t, swapped ? x : y, yq, swapped ? y : x, xq, n);
    } else if (what < 72) {
        fill(t, x, yq, n);
    } else if (what < 87) {
        step_on_host(t, xq, n);
    } else if (what < 92) {
        reset_some_lane(t);
    } else if (what < 94) {
        hd_free(t->buffers[x]);
        allocate(t, x);
    } else if (conf_below(&t->random, 10) == 0) {
        read_back(t, x, xq, n);
    }
}

/* Writes everything anew, now and then. Otherwise an operation's result might still be read when
 * its record in the ring is reused. */
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

static void compare_with_the_model(size_t of_a_quarter, uint64_t steps)
{
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
            .words = of_a_quarter,
            .steps = conf_number_from("HEDDLE_FAILURE_OPERATIONS", steps / CONF_SLOWNESS),
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

static void what_depends_on_a_failure_fails_and_nothing_else(void **state)
{
    (void)state;
    compare_with_the_model(words, 20000);
}

/* A failure in one chunk of unified memory leaves the others alone, even if they move together. */
static void a_failure_stays_in_its_chunk(void **state)
{
    (void)state;
    compare_with_the_model(chunk_words, 1500);
}

/* More failures than a lane's log can keep, one after the other in one lane. Each must be reported,
 * fail its readers, and end with a reset. */
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

/* A launch fails while others are being submitted behind it. No accepted operation may read the
 * failed result, not even after a reset of the lane. Each of the others uses a buffer in pieces, so
 * that its submission takes a while. */
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
        hd_lane_wait(lane, 60 * CONF_SECOND); /* with any result */
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
        CONF_CASE(a_failure_stays_in_its_chunk),
        CONF_CASE(the_last_failure_counts_like_the_first),
        CONF_CASE(what_failed_during_a_submission_is_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
