/* test_tensor_trouble.c - copies of elements during failures and other work.
 *
 * Promise: A successful copy of elements is right despite failing calls and lanes, and frees.
 *
 * - sources that were never made, and driver calls that fail
 * - buffers that are freed, and lanes that failed
 * - many threads
 *
 * Threads: as many as a case needs. A failed check in one of them ends the program.
 * Locks: none.
 * Always: a copy that succeeds delivers the right content, and one that fails names the failure.
 * Nothing leaks (the address sanitizer looks).
 */
#include "sweep.h"
#include "tensors.h"

#include <stdatomic.h>

enum { n = 96, words = n * n, bytes = 4 * words };
static const uint64_t square[] = {n, n};

/* ---- failures that reach a copy ---- */

/* A failed operation made the source's content, so the copy's content fails, and nothing else. */
static void a_failed_source_fails_the_copy(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("fault=cuMemcpyHtoDAsync:1=1");
    hd_lane *lane = conf_default_lane(runtime, 0);
    static uint32_t content[words], got[words];
    hd_tensor bad, good, x, y, view;
    CONF_OK(hd_tensor_alloc(lane, HD_TYPE_U32, 2, square, &bad));
    CONF_OK(hd_tensor_alloc(lane, HD_TYPE_U32, 2, square, &good));
    CONF_OK(hd_tensor_alloc(lane, HD_TYPE_U32, 2, square, &x));
    CONF_OK(hd_tensor_alloc(lane, HD_TYPE_U32, 2, square, &y));
    CONF_OK(hd_fill(x.buffer, 0, 4, bytes, NULL));
    CONF_OK(hd_fill(good.buffer, 0, 5, bytes, NULL));
    CONF_OK(hd_buffer_wait(x.buffer, HD_READ, 60 * CONF_SECOND));
    CONF_OK(hd_write(bad.buffer, 0, content, bytes)); /* fails, which nobody notices yet */
    CONF_OK(hd_tensor_transpose(&bad, 0, 1, &view));
    hd_ticket ticket = {NULL, 0};
    hd_status status = hd_tensor_copy(&x, &view, &ticket);
    if (status == HD_OK) {
        CONF_FAILS(hd_wait(ticket, 60 * CONF_SECOND), HD_ERROR_FAILED);
        CONF_FAILS(hd_read(x.buffer, 0, got, bytes), HD_ERROR_FAILED);
    } else {
        CONF_EQUAL(status, HD_ERROR_FAILED);
        CONF_FILLED(x.buffer, 0, 4, bytes);
    }
    /* By now it is known: nothing is submitted. */
    CONF_OK(hd_fill(y.buffer, 0, 6, bytes, NULL));
    CONF_FAILS_WITH(hd_tensor_copy(&y, &view, &ticket), HD_ERROR_FAILED, "hd_tensor_copy");
    CONF_FAILS(hd_tensor_read(&view, got), HD_ERROR_FAILED);
    CONF_FILLED(y.buffer, 0, 6, bytes);
    /* Other copies in the same lane succeed, and new content heals. */
    CONF_OK(hd_tensor_transpose(&good, 0, 1, &view));
    CONF_OK(hd_tensor_copy(&y, &view, NULL));
    CONF_FILLED(y.buffer, 0, 5, bytes);
    CONF_OK(hd_fill(bad.buffer, 0, 7, bytes, NULL));
    CONF_OK(hd_tensor_transpose(&bad, 0, 1, &view));
    CONF_OK(hd_tensor_copy(&y, &view, NULL));
    CONF_FILLED(y.buffer, 0, 7, bytes);
    conf_close(runtime);
}

/* The launch itself fails: the ticket and the destination report it. */
static void a_failed_launch_fails_its_readers(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("fault=cuLaunchKernel:1=1");
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_tensor x, y, view;
    uint32_t got[4];
    hd_ticket ticket;
    CONF_OK(hd_tensor_alloc(lane, HD_TYPE_U32, 2, square, &x));
    CONF_OK(hd_tensor_alloc(lane, HD_TYPE_U32, 2, square, &y));
    CONF_OK(hd_fill(x.buffer, 0, 1, bytes, NULL));
    CONF_OK(hd_tensor_transpose(&x, 0, 1, &view));
    CONF_OK(hd_tensor_copy(&y, &view, &ticket));
    CONF_FAILS(hd_wait(ticket, 60 * CONF_SECOND), HD_ERROR_FAILED);
    CONF_FAILS_WITH(hd_read(y.buffer, 0, got, sizeof got), HD_ERROR_FAILED, "hd_tensor_");
    CONF_OK(hd_tensor_copy(&y, &view, &ticket));
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    CONF_FILLED(y.buffer, 0, 1, bytes);
    conf_close(runtime);
}

/* A copy reports a driver that is too old for the built-in kernels, and moves nothing. */
static void kernels_that_do_not_load_are_said(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("fault=cuModuleLoadDataEx:1+=222");
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_tensor x, y, view;
    hd_ticket ticket = {NULL, 77};
    CONF_OK(hd_tensor_alloc(lane, HD_TYPE_U32, 2, square, &x));
    CONF_OK(hd_tensor_alloc(lane, HD_TYPE_U32, 2, square, &y));
    CONF_OK(hd_fill(x.buffer, 0, 1, bytes, NULL));
    CONF_OK(hd_fill(y.buffer, 0, 2, bytes, NULL));
    CONF_OK(hd_tensor_transpose(&x, 0, 1, &view));
    CONF_FAILS_WITH(hd_tensor_copy(&y, &view, &ticket), HD_ERROR_IMAGE, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION");
    CONF_TRUE(ticket.lane == NULL && ticket.sequence == 77);
    CONF_FILLED(y.buffer, 0, 2, bytes);
    CONF_OK(hd_tensor_copy(&y, &x, NULL)); /* runs of bytes need no kernel */
    CONF_FILLED(y.buffer, 0, 1, bytes);
    conf_close(runtime);
}

/* The program's own lanes failed: copies do not use them. */
static void failed_lanes_of_the_program_do_not_matter(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("fault=cuLaunchKernel:1=1");
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_tensor x, y, z, view;
    hd_ticket ticket;
    CONF_OK(hd_tensor_alloc(lane, HD_TYPE_U32, 2, square, &x));
    CONF_OK(hd_tensor_alloc(lane, HD_TYPE_U32, 2, square, &y));
    CONF_OK(hd_tensor_alloc(lane, HD_TYPE_U32, 2, square, &z));
    CONF_OK(conf_fill(lane, k, z.buffer, 0, words, 1, &ticket));
    CONF_FAILS(hd_wait(ticket, 60 * CONF_SECOND), HD_ERROR_FAILED);
    CONF_FAILS(conf_fill(lane, k, z.buffer, 0, words, 1, NULL), HD_ERROR_LANE_FAILED);
    CONF_OK(hd_fill(x.buffer, 0, 3, bytes, NULL));
    CONF_OK(hd_tensor_transpose(&x, 0, 1, &view));
    CONF_OK(hd_tensor_copy(&y, &view, &ticket));
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    CONF_FILLED(y.buffer, 0, 3, bytes);
    CONF_OK(hd_lane_reset(lane, 60 * CONF_SECOND));
    conf_close(runtime);
}

/* Both buffers are freed, and their memory gets other owners, while the copy waits for its turn. */
static void freed_buffers_are_used_to_the_end(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    conf_kernels k = conf_builtins(runtime);
    conf_slow slow;
    conf_slow_make(&slow, runtime, 0);
    hd_lane *lane = NULL;
    CONF_OK(hd_lane_create(runtime, 0, &lane));
    for (int round = 0; round < 5; round++) {
        hd_tensor x, y, z, view;
        CONF_OK(hd_tensor_alloc(lane, HD_TYPE_U32, 2, square, &x));
        CONF_OK(hd_tensor_alloc(lane, HD_TYPE_U32, 2, square, &y));
        CONF_OK(hd_tensor_alloc(lane, HD_TYPE_U32, 2, square, &z));
        conf_slow_run(&slow, lane, NULL, 0, 20, NULL);
        CONF_OK(conf_fill(lane, k, x.buffer, 0, words, (uint32_t)round, NULL));
        CONF_OK(hd_tensor_transpose(&x, 0, 1, &view));
        CONF_OK(hd_tensor_copy(&y, &view, NULL));
        hd_free(x.buffer);
        CONF_OK(hd_tensor_transpose(&y, 0, 1, &view));
        CONF_OK(hd_tensor_copy(&z, &view, NULL));
        hd_free(y.buffer);
        for (int i = 0; i < 4; i++) { /* the next owner of the memory writes to it */
            CONF_OK(hd_tensor_alloc(lane, HD_TYPE_U32, 2, square, &x));
            CONF_OK(hd_fill(x.buffer, 0, 0xbad, bytes, NULL));
            hd_free(x.buffer);
        }
        CONF_FILLED(z.buffer, 0, (uint32_t)round, bytes);
        hd_free(z.buffer);
    }
    conf_slow_free(&slow);
    conf_close(runtime);
}

/* ---- any driver call fails ---- */

typedef struct outcome {
    const char *settings;
    int failures;
} outcome;

#define STEP(call) sweep_step(o->settings, &o->failures, SWEEP_DRIVER_FAILS, (call), #call)

/* Writes, transposes on the device, transposes back on another one, reads in part. Every result
 * without a failure must be right. */
static void scenario(outcome *o)
{
    hd_runtime *runtime = NULL;
    static uint32_t content[words], got[words];
    if (!STEP(conf_try_open(o->settings, &runtime))) {
        return;
    }
    for (uint32_t i = 0; i < words; i++) {
        content[i] = i * 7;
    }
    hd_lane *first = conf_default_lane(runtime, 0), *last = conf_default_lane(runtime, hd_device_count(runtime) - 1);
    hd_tensor x = {0}, y = {0}, z = {0}, view;
    if (first == NULL || last == NULL) {
        o->failures++;
    } else if (STEP(hd_tensor_alloc(first, HD_TYPE_U32, 2, square, &x)) &&
               STEP(hd_tensor_alloc(first, HD_TYPE_U32, 2, square, &y)) &&
               STEP(hd_tensor_alloc(last, HD_TYPE_U32, 2, square, &z))) {
        CONF_OK(hd_tensor_transpose(&x, 0, 1, &view));
        if (STEP(hd_tensor_write(&view, content)) && STEP(hd_tensor_copy(&y, &view, NULL)) &&
            hd_tensor_transpose(&y, 0, 1, &view) == HD_OK && STEP(hd_tensor_copy(&z, &view, NULL)) &&
            hd_tensor_transpose(&z, 0, 1, &view) == HD_OK && STEP(hd_tensor_read(&view, got)) &&
            memcmp(got, content, bytes) != 0) {
            violation(o->settings, "wrong elements, without an error");
        }
        /* A product whose operands a library does not take as they are: rows backwards. */
        hd_tensor a = x, b = x, c = y;
        a.type = b.type = c.type = HD_TYPE_F32;
        CONF_OK(hd_tensor_slice(&a, 0, n - 1, n, -1, &a));
        CONF_OK(hd_tensor_slice(&c, 0, n - 1, n, -1, &c));
        static const float two = 2;
        uint32_t pattern;
        memcpy(&pattern, &two, 4);
        if (STEP(hd_fill(x.buffer, 0, pattern, bytes, NULL)) && STEP(hd_tensor_matmul(first, &c, &a, &b, 1, 0, NULL)) &&
            STEP(hd_read(y.buffer, 0, got, bytes))) {
            static const float sum = 4 * n;
            memcpy(&pattern, &sum, 4);
            for (uint32_t i = 0; i < words; i++) {
                if (got[i] != pattern) {
                    violation(o->settings, "a wrong product, without an error");
                    break;
                }
            }
        }
    }
    hd_free(x.buffer);
    hd_free(y.buffer);
    hd_free(z.buffer);
    conf_close(runtime);
}

static void sweep(const char *plus, int code, const char *peers)
{
    violations = 0;
    conf_random r = {conf_number_from("HEDDLE_SEED", 1) + (uint64_t)code};
    double seconds = conf_sweep_seconds(8) / 4;
    int64_t start = conf_now();
    int runs = 0, clean = 0, last_hit = 0;
    for (int call = 1; call < 3000 && clean < 40;) {
        static char settings[256];
        snprintf(settings, sizeof settings, "fault=%d%s=%d %s host_devices=2 host_memory=64M", call, plus, code, peers);
        conf_watch(settings, 60);
        outcome o = {.settings = settings};
        scenario(&o);
        runs++;
        clean = o.failures > 0 ? 0 : clean + 1;
        last_hit = o.failures > 0 ? call : last_hit;
        double spent = (double)(conf_now() - start) / 1e9;
        if (spent > seconds) {
            break;
        }
        double stride = spent / runs * (300 - call > 1 ? 300 - call : 1) / (seconds - spent + 0.02);
        call += stride <= 1 ? 1 : (int)conf_below(&r, (uint64_t)(2 * stride)) + 1;
    }
    fprintf(stderr, "  fault=N%s=%d %s: %d runs, N to %d\n", plus, code, peers, runs, last_hit);
    CONF_EQUAL(violations, 0);
    CONF_TRUE(last_hit > 0);
}

static void any_driver_call_fails(void **state)
{
    (void)state;
    outcome o = {.settings = "fault=1000000 host_devices=2"};
    scenario(&o);
    CONF_EQUAL(o.failures, 0);
    sweep("", 2, "host_peers=all");
    sweep("", 999, "host_peers=none peers=off");
    /* a device with a simulated loss still works, and writes to memory that was given back */
    if (!CONF_TSAN) {
        sweep("+", 999, "host_peers=none peers=off");
    }
}

/* ---- many threads ---- */

enum { THREADS = 8 };

typedef struct worker {
    hd_runtime *runtime;
    const hd_tensor *shared; /* read by all */
    const uint8_t *shared_bytes;
    uint64_t seed;
    int rounds;
} worker;

static void *work(void *argument)
{
    const worker *w = argument;
    int devices = hd_device_count(w->runtime);
    for (int round = 0; round < w->rounds; round++) {
        conf_random r = {w->seed * 1000 + (uint64_t)round};
        tensor_layout to;
        memset(&to, 0, sizeof to);
        to.type = HD_TYPE_U32;
        to.dims = 2;
        to.shape[0] = to.shape[1] = n;
        tensor_strides(&r, conf_chance(&r, 50), &to);
        uint8_t *now = conf_memory(to.bytes), *got = conf_memory(to.bytes);
        conf_pattern(now, to.bytes, w->seed + (uint64_t)round);
        hd_buffer *b = NULL;
        hd_lane *lane = conf_default_lane(w->runtime, (int)conf_below(&r, (uint64_t)devices));
        CONF_OK(hd_alloc(lane, to.bytes, &b));
        CONF_OK(hd_write(b, 0, now, to.bytes));
        hd_tensor t = tensor_over(b, &to), source = *w->shared, back;
        if (conf_chance(&r, 50)) {
            CONF_OK(hd_tensor_transpose(&source, 0, 1, &source));
        }
        CONF_OK(hd_tensor_copy(&t, &source, NULL));
        tensor_move(&t, now, &source, w->shared_bytes);
        /* Copies to another device and back, in a buffer that is freed at once. */
        CONF_OK(hd_tensor_alloc(conf_default_lane(w->runtime, round % devices), HD_TYPE_U32, 2, square, &back));
        CONF_OK(hd_tensor_copy(&back, &t, NULL));
        CONF_OK(hd_tensor_copy(&t, &back, NULL));
        hd_free(back.buffer);
        CONF_OK(hd_read(b, 0, got, to.bytes));
        CONF_SAME(got, now, to.bytes);
        hd_free(b);
        free(now);
        free(got);
    }
    return NULL;
}

static void threads_copy(const char *settings)
{
    hd_runtime *runtime = conf_open(settings);
    static uint8_t content[bytes];
    conf_pattern(content, bytes, 1);
    hd_tensor shared;
    CONF_OK(hd_tensor_alloc(conf_default_lane(runtime, 0), HD_TYPE_U32, 2, square, &shared));
    CONF_OK(hd_write(shared.buffer, 0, content, bytes));
    pthread_t threads[THREADS];
    worker workers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){runtime, &shared, content, (uint64_t)i, 40 / CONF_SLOWNESS + 2};
        CONF_EQUAL(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    conf_close(runtime);
}

static void many_threads(void **state)
{
    (void)state;
    threads_copy(NULL);
    threads_copy("host_peers=none peers=off");
}

int main(void)
{
    conf_begin("test_tensor_trouble");
    const struct CMUnitTest tests[] = {
        CONF_CASE(a_failed_source_fails_the_copy),
        CONF_CASE(a_failed_launch_fails_its_readers),
        CONF_CASE(kernels_that_do_not_load_are_said),
        CONF_CASE(failed_lanes_of_the_program_do_not_matter),
        CONF_CASE(freed_buffers_are_used_to_the_end),
        CONF_CASE(any_driver_call_fails),
        CONF_CASE(many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
