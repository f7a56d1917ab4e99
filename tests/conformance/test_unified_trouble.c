/* test_unified_trouble.c - failures with unified buffers, and with elements of pinned memory.
 *
 * Promise: A failure damages no bytes of a unified buffer that still exist somewhere.
 *
 * A copy in one direction fails, a lane failed before or fails later, any driver call fails, or the
 * device is lost.
 *
 * Threads: the main one.
 * Locks: none.
 * Always: failures damage no bytes that still exist somewhere.
 */
#include <signal.h>
#include "unified.h"

/* A failed copy to the host only has to be repeated. */
static void a_failed_copy_to_the_host(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("fault=cuMemcpyDtoHAsync:2=1");
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane = conf_default_lane(runtime, 0);
    enum { n = 50000 };
    hd_buffer *x = make(lane, 4 * n);
    put_word(x, n - 1, 3);
    CONF_OK(conf_fill(lane, k, x, 0, n - 1, 5, NULL));
    CONF_EQUAL(word_of(x, 0), 5);
    NO_ELEMENT(hd_element(x, 4 * (n - 1), 4, HD_READ), HD_ERROR_FAILED, "hd_element");
    CONF_EQUAL(word_of(x, n - 1), 3);
    CONF_EQUAL(word_of(x, n - 2), 5);
    put_word(x, 0, 6);
    CONF_EQUAL(word_of(x, 0), 6);
    conf_close(runtime);
}

/* A failed copy to the device fails the operation, but not the bytes. */
static void a_failed_copy_to_the_device(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("fault=cuMemcpyHtoDAsync:1=1");
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane = NULL;
    CONF_OK(hd_lane_create(runtime, 0, &lane));
    enum { n = 50000 };
    hd_buffer *x = make(lane, 4 * n), *y = make(lane, 4 * n);
    for (size_t i = 0; i < n; i++) {
        put_word(x, i, (uint32_t)i);
    }
    hd_ticket ticket = {NULL, 0};
    hd_status status = conf_copy(lane, k, y, 0, x, 0, n, &ticket);
    bool refused = status != HD_OK; /* if the copy failed by then */
    CONF_EQUAL(refused ? status : hd_wait(ticket, 60 * CONF_SECOND), HD_ERROR_FAILED);
    CONF_EQUAL(word_of(x, 7), 7);
    CONF_EQUAL(hd_put_u32(y, 0, 0), refused); /* otherwise the bytes never arrived */
    CONF_OK(hd_lane_reset(lane, 60 * CONF_SECOND));
    CONF_OK(conf_copy(lane, k, y, 0, x, 0, n, NULL));
    for (size_t i = 0; i < n; i += 501) {
        CONF_EQUAL(word_of(y, i), i);
        CONF_EQUAL(word_of(x, i), i);
    }
    conf_close(runtime);
}

/* The next operation repeats copies to the device that a failed lane passed over. */
static void a_lane_that_failed_before(void **state)
{
    (void)state;
    /* the failing launch is late, so that the others are submitted behind it */
    hd_runtime *runtime = conf_open("fault=cuLaunchKernel:1=1 delay=cuLaunchKernel:1=100000");
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane = NULL;
    CONF_OK(hd_lane_create(runtime, 0, &lane));
    enum { n = 50000 };
    hd_buffer *x = make(lane, 4 * n), *y = make(lane, 4 * n), *z = make(lane, 4 * n);
    put_word(x, 0, 11);
    put_word(x, n - 1, 12);
    CONF_OK(conf_fill(lane, k, z, 0, n, 1, NULL)); /* fails */
    hd_status status = conf_copy(lane, k, y, 0, x, 0, n, NULL);
    CONF_TRUE(status == HD_OK || status == HD_ERROR_LANE_FAILED);
    hd_lane_wait(lane, 60 * CONF_SECOND);
    CONF_OK(hd_lane_reset(lane, 60 * CONF_SECOND));
    CONF_EQUAL(word_of(x, 0), 11);
    CONF_OK(conf_copy(lane, k, y, 0, x, 0, n, NULL));
    CONF_EQUAL(word_of(y, 0), 11);
    CONF_EQUAL(word_of(y, n - 1), 12);
    /* and bytes that the failed operation should have written are bad until something writes
     * them */
    void *p = NULL;
    NO_ELEMENT(hd_element(z, 0, 4, HD_READ), HD_ERROR_FAILED, "hd_fill_u32");
    NO_ELEMENT(hd_element(z, 0, 4, HD_WRITE), HD_ERROR_FAILED, "hd_fill_u32");
    CONF_FAILS(hd_map(z, HD_READ, &p), HD_ERROR_FAILED);
    CONF_FAILS(hd_map(z, HD_WRITE, &p), HD_ERROR_FAILED);
    CONF_OK(hd_fill(z, 0, 4, 4 * n, NULL));
    CONF_EQUAL(word_of(z, n - 1), 4);
    conf_close(runtime);
}

enum { words_of_chunk = CHUNK / 4 };

static hd_status copy_word(void *const *pointers, void *unused)
{
    (void)unused;
    *(uint32_t *)pointers[0] = *(const uint32_t *)pointers[1];
    return HD_OK;
}

static hd_ticket call_copy_word(hd_runtime *runtime, hd_buffer *to, hd_arg from)
{
    hd_ticket ticket = {NULL, 0};
    hd_arg uses[] = {hd_out(to), from};
    CONF_OK(hd_launch_host(runtime, copy_word, NULL, uses, 2, &ticket));
    return ticket;
}

/* A lane that fails later needs unified memory on the device, and so does another lane. The bytes
 * are good, so neither the other lane nor a reader of them fails. */
static void a_lane_that_fails_later(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("");
    conf_kernels k = conf_builtins(runtime);
    hd_lane *bad = NULL, *good = NULL;
    CONF_OK(hd_lane_create(runtime, 0, &bad));
    CONF_OK(hd_lane_create(runtime, 0, &good));
    hd_buffer *x = make(bad, 4 * words_of_chunk), *y = make(bad, 4), *z = make(good, 4);
    put_word(x, 0, 5);
    hd_claim *claim = NULL;
    hd_ticket first, fails, works;
    CONF_OK(hd_claim_begin(runtime, NULL, 0, &claim));
    CONF_OK(hd_claim_get_ticket(claim, &first));
    CONF_OK(hd_lane_add_dependency(bad, first, NULL));
    CONF_OK(conf_copy(bad, k, y, 0, x, 0, 1, &fails));
    CONF_OK(conf_copy(good, k, z, 0, x, 0, 1, &works));
    CONF_OK(hd_claim_end(claim, HD_ERROR_SYSTEM));
    CONF_OK(hd_wait(works, 60 * CONF_SECOND));
    CONF_FAILS(hd_wait(fails, 60 * CONF_SECOND), HD_ERROR_FAILED);
    CONF_EQUAL(word_of(z, 0), 5);
    uint32_t word = 0;
    CONF_OK(hd_read(x, 0, &word, 4));
    CONF_EQUAL(word, 5);
    CONF_OK(hd_lane_wait(good, 60 * CONF_SECOND));
    conf_close(runtime);
}

/* One operation needs two neighbouring chunks, and another operation needs one of them. The writer
 * of the other chunk fails. */
static void a_failure_stays_in_its_chunk(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("");
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane[2] = {NULL, NULL};
    CONF_OK(hd_lane_create(runtime, 0, &lane[0]));
    CONF_OK(hd_lane_create(runtime, 0, &lane[1]));
    enum { n = 2 * words_of_chunk };
    hd_buffer *x = make(lane[0], 4 * n), *y = make(lane[0], 4 * n), *z = make(lane[0], 4), *host = NULL;
    CONF_OK(hd_alloc_host(runtime, 4, &host));
    hd_claim *claim = NULL;
    hd_ticket first, fails, works;

    /* the chunks are newer on the host: they go to the device */
    put_word(x, 0, 7);
    put_word(x, n - 1, 8);
    hd_arg second_chunk = hd_out_range(x, CHUNK, CHUNK);
    CONF_OK(hd_claim_begin(runtime, &second_chunk, 1, &claim));
    CONF_OK(conf_copy(lane[0], k, y, 0, x, 0, n, &fails));
    CONF_OK(conf_copy(lane[1], k, z, 0, x, 0, 1, &works));
    CONF_OK(hd_claim_end(claim, HD_ERROR_SYSTEM));
    CONF_OK(hd_wait(works, 60 * CONF_SECOND));
    CONF_FAILS(hd_wait(fails, 60 * CONF_SECOND), HD_ERROR_FAILED);
    CONF_EQUAL(word_of(z, 0), 7);
    CONF_OK(hd_lane_reset(lane[0], 60 * CONF_SECOND));

    /* they are newer on the device: they come to the host */
    CONF_OK(hd_claim_begin(runtime, NULL, 0, &claim));
    CONF_OK(hd_claim_get_ticket(claim, &first));
    CONF_OK(conf_fill(lane[1], k, x, 0, words_of_chunk, 9, NULL));
    CONF_OK(hd_lane_add_dependency(lane[0], first, NULL));
    CONF_OK(conf_fill(lane[0], k, x, CHUNK, words_of_chunk, 10, NULL));
    fails = call_copy_word(runtime, z, hd_in(x));
    works = call_copy_word(runtime, host, hd_in_range(x, 0, CHUNK));
    CONF_OK(hd_claim_end(claim, HD_ERROR_SYSTEM));
    CONF_OK(hd_wait(works, 60 * CONF_SECOND));
    CONF_FAILS(hd_wait(fails, 60 * CONF_SECOND), HD_ERROR_FAILED);
    CONF_EQUAL(word_of(host, 0), 9);
    CONF_EQUAL(word_of(x, 0), 9);
    conf_close(runtime);
}

/* Elements of pinned memory whose last write failed can be written, and then read. */
static void elements_of_failed_pinned_memory(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("fault=cuMemcpyDtoHAsync:1=1");
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *pinned = NULL, *x = NULL;
    CONF_OK(hd_alloc_host(runtime, 4096, &pinned));
    CONF_OK(hd_alloc(lane, 4096, &x));
    CONF_OK(hd_fill(x, 0, 5, 4096, NULL));
    CONF_OK(hd_copy(pinned, 0, x, 0, 4096, NULL));
    NO_ELEMENT(hd_element(pinned, 0, 4, HD_READ), HD_ERROR_FAILED, "hd_element");
    uint32_t *at = hd_element(pinned, 8, 4, HD_WRITE);
    CONF_TRUE(at != NULL);
    *at = 3;
    CONF_EQUAL(word_of(pinned, 2), 3);
    NO_ELEMENT(hd_element(pinned, 0, 4, HD_READ), HD_ERROR_FAILED, "hd_element");
    CONF_TRUE(hd_element(pinned, 0, 4096, HD_WRITE) != NULL);
    CONF_EQUAL(word_of(pinned, 2), 3);
    CONF_TRUE(hd_element(pinned, 0, 4, HD_READ) != NULL);
    conf_close(runtime);
}

/* Makes one round of everything. Successful calls must give the right bytes. Returns the number of
 * failed calls. */
static int round_of_everything(hd_runtime *runtime)
{
    enum { n = 20000 };
    int failed = 0;
    hd_module *module = NULL;
    hd_kernel *copy = NULL;
    hd_lane *lane = NULL;
    hd_buffer *x = NULL, *y = NULL, *pinned = NULL;
    uint32_t *p = NULL, got = 0;
    hd_status status = hd_module_get_builtin(runtime, &module);
    status = status ? status : hd_kernel_get(module, "hd_copy_u32", &copy);
    status = status ? status : hd_lane_create(runtime, 0, &lane);
    status = status ? status : hd_alloc_unified(lane, 4 * n, &x);
    status = status ? status : hd_alloc_unified(lane, 4 * n, &y);
    status = status ? status : hd_alloc_host(runtime, 4 * n, &pinned);
    failed += status != HD_OK;
    for (uint32_t i = 1; i <= 3 && status == HD_OK; i++) {
        bool good = hd_map(x, HD_READ_WRITE, (void **)&p) == HD_OK;
        if (good) {
            p[0] = p[n - 1] = i;
            hd_unmap(x);
            hd_arg args[] = {hd_out(y), hd_in(x), hd_u64(n)};
            good = hd_launch(lane, copy, conf_grid(n, 128), conf_dims(128, 1, 1), 0, args, 3, NULL) == HD_OK;
            good = hd_copy(pinned, 0, x, 4 * (n - 1), 4, NULL) == HD_OK && good;
            if (hd_get_u32(x, n - 1, &got)) {
                CONF_EQUAL(got, i);
            }
            if (good && hd_get_u32(y, n - 1, &got)) {
                CONF_EQUAL(got, i);
            } else {
                good = false;
            }
            if (good && hd_get_u32(pinned, 0, &got)) {
                CONF_EQUAL(got, i);
            }
            good = hd_put_u32(x, 0, 100 * i) && good;
            if (hd_read(x, 0, &got, 4) == HD_OK) {
                CONF_TRUE(!good || got == 100 * i);
            }
        }
        failed += !good;
        hd_lane_reset(lane, 60 * CONF_SECOND);
    }
    hd_free(x);
    hd_free(y);
    hd_free(pinned);
    return failed;
}

static void calls_of_the_driver_fail(void **state)
{
    (void)state;
    static const char *const calls[] = {"cuMemHostRegister", "cuMemHostUnregister", "cuMemcpyHtoDAsync",
                                        "cuMemcpyDtoHAsync", "cuLaunchHostFunc",    "cuLaunchKernel",
                                        "cuMemCreate",       "cuStreamWaitEvent",   "cuEventRecord"};
    int opened = 0, hit = 0, most = conf_on_gpus ? 1 : 4; /* a GPU is opened in a second */
    for (size_t c = 0; c < sizeof calls / sizeof calls[0]; c++) {
        for (int from = 1; from <= most; from++) {
            for (int onward = 0; onward < 2; onward++) {
                char settings[128];
                snprintf(settings, sizeof settings, "fault=%s:%d%s=1 host_devices=1 memory_timeout=1", calls[c], from,
                         onward ? "+" : "");
                hd_runtime *runtime = NULL;
                if (conf_try_open(settings, &runtime) != HD_OK) {
                    continue;
                }
                opened++;
                hit += round_of_everything(runtime) != 0;
                conf_close(runtime);
            }
        }
    }
    CONF_TRUE(opened > 10 * most);
    CONF_TRUE(hit > 2 * most && hit < opened);
}

static void its_device_is_lost(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    if (!conf_is_process(runtime)) {
        conf_close(runtime);
        skip();
    }
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *x = make(lane, MIB), *pinned = NULL;
    CONF_OK(hd_alloc_host(runtime, 4096, &pinned));
    put_word(x, 0, 1);
    put_word(pinned, 5, 50);
    CONF_OK(conf_fill(lane, k, x, 0, 1000, 7, NULL));
    CONF_EQUAL(word_of(x, 999), 7);
    hd_device_info info = {.size = sizeof info};
    CONF_OK(hd_device_get_info(runtime, 0, &info));
    CONF_EQUAL(kill(info.worker_pid, SIGKILL), 0);
    hd_device_loss loss = {.size = sizeof loss};
    while (hd_loss_next(runtime, &loss) != HD_OK) {
        conf_sleep_ms(1);
    }
    void *p = NULL;
    NO_ELEMENT(hd_element(x, 0, 4, HD_READ), HD_ERROR_DEVICE_LOST, "hd_element");
    NO_ELEMENT(hd_element(x, 0, 4, HD_WRITE), HD_ERROR_DEVICE_LOST, "hd_element");
    CONF_FAILS(hd_map(x, HD_READ, &p), HD_ERROR_DEVICE_LOST);
    hd_unmap(x);
    CONF_EQUAL(word_of(pinned, 5), 50);
    CONF_FAILS(hd_alloc_unified(lane, 4, &x), HD_ERROR_DEVICE_LOST);
    CONF_OK(hd_device_restart(runtime, 0));
    NO_ELEMENT(hd_element(x, 0, 4, HD_READ), HD_ERROR_DEVICE_LOST, "hd_element");
    hd_free(x);
    x = make(lane, MIB);
    put_word(x, 3, 4);
    CONF_OK(conf_copy(lane, k, pinned, 20, x, 12, 1, NULL));
    CONF_EQUAL(word_of(pinned, 5), 4);
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_unified_trouble");
    const struct CMUnitTest tests[] = {
        CONF_CASE(a_failed_copy_to_the_host),    CONF_CASE(a_failed_copy_to_the_device),
        CONF_CASE(a_lane_that_failed_before),    CONF_CASE(a_lane_that_fails_later),
        CONF_CASE(a_failure_stays_in_its_chunk), CONF_CASE(elements_of_failed_pinned_memory),
        CONF_CASE(calls_of_the_driver_fail),     CONF_CASE(its_device_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
