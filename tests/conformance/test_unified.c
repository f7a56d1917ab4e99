/* test_unified.c - buffers that the CPU and the GPU both use: what is newer is where it is needed, whoever asks; mapped
 * buffers are left alone; failures damage nothing that is still somewhere; elements of pinned memory; and a random run
 * against plain arrays.
 *
 * Threads: the main one, and those of the last cases, each with buffers of its own or with a part of one. Locks: none.
 */
#include <signal.h>
#include "pool.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define CHUNK (64 * KIB)

static hd_buffer *make(hd_lane *lane, size_t size)
{
    hd_buffer *b = NULL;
    CONF_OK(hd_alloc_unified(lane, size, &b));
    CONF_EQUAL(hd_buffer_size(b), size);
    return b;
}

static uint32_t word_of(hd_buffer *b, size_t index)
{
    uint32_t value = 0xeeeeeeee;
    if (!hd_get_u32(b, index, &value)) {
        conf_fail_at(__FILE__, __LINE__, "hd_get_u32(%zu): %s", index, hd_message());
    }
    return value;
}

static void put_word(hd_buffer *b, size_t index, uint32_t value)
{
    if (!hd_put_u32(b, index, value)) {
        conf_fail_at(__FILE__, __LINE__, "hd_put_u32(%zu): %s", index, hd_message());
    }
}

static hd_status last_status(void)
{
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    return error.status;
}

/* hd_element must fail like this. */
#define NO_ELEMENT(call, status, word)                                                                                 \
    do {                                                                                                               \
        CONF_TRUE((call) == NULL);                                                                                     \
        CONF_EQUAL(last_status(), (status));                                                                           \
        CONF_TRUE(strstr(hd_message(), (word)) != NULL);                                                               \
    } while (0)

/* ---- the bytes are where they are needed ---- */

static void goes_back_and_forth(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane = hd_default_lane(runtime, 0);
    const size_t sizes[] = {4, 4096, CHUNK, CHUNK + 4, 5 * MIB + 12};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        size_t size = sizes[s], n = size / 4;
        hd_buffer *x = make(lane, size), *y = make(lane, size);
        CONF_EQUAL(hd_buffer_device(x), 0);
        uint32_t *p = NULL;
        CONF_OK(hd_map(x, HD_WRITE, (void **)&p));
        for (size_t i = 0; i < n; i++) {
            p[i] = conf_bits((float)(i % 1000));
        }
        hd_unmap(x);
        CONF_OK(conf_fill(lane, k, y, 0, n, conf_bits(1), NULL));
        CONF_OK(conf_axpy(lane, k, y, 0, x, 0, 2, n, NULL)); /* y = 1 + 2x */
        for (size_t i = 0; i < n; i += 1 + n / 97) {
            CONF_EQUAL(word_of(y, i), conf_bits(1 + 2 * (float)(i % 1000)));
            CONF_EQUAL(word_of(x, i), conf_bits((float)(i % 1000)));
        }
        put_word(x, n - 1, conf_bits(7));
        put_word(y, n / 2, conf_bits(100));
        CONF_OK(conf_axpy(lane, k, y, 0, x, 0, 1, n, NULL));
        CONF_OK(hd_map(y, HD_READ, (void **)&p));
        for (size_t i = 0; i < n; i++) {
            float of_x = i == n - 1 ? 7 : (float)(i % 1000);
            float of_y = i == n / 2 ? 100 : 1 + 2 * (float)(i % 1000);
            if (p[i] != conf_bits(of_x + of_y)) {
                conf_fail_at(__FILE__, __LINE__, "size %zu, word %zu: %08x", size, i, p[i]);
            }
        }
        hd_unmap(y);
        hd_free(x);
        hd_free(y);
    }
    conf_close(runtime);
}

/* Operations of every kind find what the host wrote, and the host what they wrote, also in parts of chunks. */
static void every_operation_takes_it(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane = hd_default_lane(runtime, 0);
    enum { n = 100000 };
    static uint32_t model[n], got[n];
    hd_buffer *x = make(lane, sizeof model), *plain = NULL, *pinned = NULL;
    CONF_OK(hd_alloc(lane, sizeof model, &plain));
    CONF_OK(hd_alloc_host(runtime, sizeof model, &pinned));
    conf_pattern(model, sizeof model, 1);
    CONF_OK(hd_write(x, 0, model, sizeof model));
    CONF_HOLDS(x, 0, model, sizeof model);
    for (uint32_t round = 0; round < 20; round++) {
        size_t at = round * 4001 % (n - 5000);
        put_word(x, at + 2000, model[at + 2000] = round);
        switch (round % 5) {
        case 0: /* around and behind what the host wrote */
            CONF_OK(hd_fill(x, 4 * at, round, 4 * 1000, NULL));
            break;
        case 1:
            CONF_OK(conf_fill(lane, k, x, 4 * at, 1000, round, NULL));
            break;
        case 2:
            memset(got, (int)round, 4 * 1000);
            CONF_OK(hd_write(x, 4 * at, got, 4 * 1000));
            break;
        case 3:
            CONF_OK(hd_fill(plain, 0, round, 4 * 1000, NULL));
            CONF_OK(hd_copy(x, 4 * at, plain, 0, 4 * 1000, NULL));
            break;
        default:
            CONF_OK(hd_fill(pinned, 0, round, 4 * 1000, NULL));
            CONF_OK(hd_copy(x, 4 * at, pinned, 0, 4 * 1000, NULL));
            break;
        }
        for (size_t i = 0; i < 1000; i++) {
            model[at + i] = round % 5 == 2 ? round * 0x01010101u : round;
        }
        CONF_EQUAL(word_of(x, at + 999), model[at + 999]);
        put_word(x, at, model[at] = 5);
        CONF_OK(hd_copy(plain, 0, x, 0, sizeof model, NULL));
        CONF_HOLDS(plain, 0, model, sizeof model);
        CONF_OK(hd_copy(pinned, 0, x, 0, sizeof model, NULL));
        CONF_HOLDS(pinned, 0, model, sizeof model);
        CONF_HOLDS(x, 0, model, sizeof model);
    }
    conf_close(runtime);
}

/* Kernels of another device, where they reach it, and copies from there. */
static void a_peer_uses_it(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    CONF_NEED_DEVICES(runtime, 2);
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane = hd_default_lane(runtime, 0), *other = hd_default_lane(runtime, 1);
    enum { n = 50000 };
    hd_buffer *x = make(lane, 4 * n), *y = make(other, 4 * n);
    for (uint32_t round = 1; round < 10; round++) {
        put_word(x, n - 1, round);
        if (conf_reaches(runtime, 1, 0)) {
            CONF_OK(conf_copy(other, k, y, 4 * (n - 1), x, 4 * (n - 1), 1, NULL));
        } else {
            CONF_OK(hd_copy(y, 4 * (n - 1), x, 4 * (n - 1), 4, NULL));
        }
        CONF_EQUAL(word_of(y, n - 1), round);
        put_word(y, 0, round + 1000);
        CONF_OK(hd_copy(x, 0, y, 0, 4, NULL));
        CONF_EQUAL(word_of(x, 0), round + 1000);
    }
    conf_close(runtime);
}

/* ---- what is refused ---- */

static void elements_are_checked(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_lane *lane = hd_default_lane(runtime, 0);
    hd_buffer *x = make(lane, 100), *plain = NULL, *pinned = NULL, *none = (hd_buffer *)(uintptr_t)0x1230;
    CONF_OK(hd_alloc(lane, 100, &plain));
    CONF_OK(hd_alloc_host(runtime, 100, &pinned));
    hd_buffer *const both[] = {x, pinned};
    for (int i = 0; i < 2; i++) {
        CONF_TRUE(hd_element(both[i], 0, 100, HD_READ_WRITE) != NULL);
        CONF_TRUE((char *)hd_element(both[i], 99, 1, HD_READ) == (char *)hd_element(both[i], 0, 1, HD_READ) + 99);
        NO_ELEMENT(hd_element(both[i], 100, 1, HD_READ), HD_ERROR_RANGE, "100");
        NO_ELEMENT(hd_element(both[i], 97, 4, HD_READ), HD_ERROR_RANGE, "97");
        NO_ELEMENT(hd_element(both[i], 1, SIZE_MAX, HD_READ), HD_ERROR_RANGE, "hd_element");
        NO_ELEMENT(hd_element(both[i], SIZE_MAX, 1, HD_READ), HD_ERROR_RANGE, "hd_element");
        NO_ELEMENT(hd_element(both[i], 0, 0, HD_READ), HD_ERROR_ARGUMENT, "bytes is 0");
        NO_ELEMENT(hd_element(both[i], 0, 4, (hd_access)0), HD_ERROR_ARGUMENT, "access");
        NO_ELEMENT(hd_element(both[i], 0, 4, (hd_access)4), HD_ERROR_ARGUMENT, "access");
        uint32_t word = 77;
        CONF_TRUE(!hd_get_u32(both[i], 25, &word));
        CONF_TRUE(!hd_get_u32(both[i], SIZE_MAX / 2, &word));
        CONF_EQUAL(word, 77);
        CONF_TRUE(!hd_put_u32(both[i], 25, 1));
        CONF_TRUE(hd_put_f64(both[i], 11, 2.5) && hd_put_i8(both[i], 99, -3) && hd_put_u64(both[i], 3, 1ull << 60));
        double d = 0;
        int8_t c = 0;
        uint64_t u = 0;
        CONF_TRUE(hd_get_f64(both[i], 11, &d) && hd_get_i8(both[i], 99, &c) && hd_get_u64(both[i], 3, &u));
        CONF_TRUE(d == 2.5 && c == -3 && u == 1ull << 60);
    }
    NO_ELEMENT(hd_element(plain, 0, 4, HD_READ), HD_ERROR_ACCESS, "hd_alloc_unified");
    NO_ELEMENT(hd_element(plain, 0, 4, HD_READ_WRITE), HD_ERROR_ACCESS, "hd_read");
    void *p = NULL;
    CONF_FAILS_WITH(hd_map(plain, HD_READ, &p), HD_ERROR_ACCESS, "hd_alloc_unified");
    hd_unmap(plain);
    NO_ELEMENT(hd_element(NULL, 0, 4, HD_READ), HD_ERROR_HANDLE, "null");
    hd_free(x);
    hd_free(pinned);
    NO_ELEMENT(hd_element(x, 0, 4, HD_READ), HD_ERROR_HANDLE, "hd_element");
    NO_ELEMENT(hd_element(pinned, 0, 4, HD_READ), HD_ERROR_HANDLE, "hd_element");
    hd_unmap(x);
    CONF_FAILS(hd_alloc_unified(lane, 0, &none), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_alloc_unified(lane, 4, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_alloc_unified(NULL, 4, &none), HD_ERROR_HANDLE);
    CONF_FAILS(hd_alloc_unified(lane, (size_t)1 << 60, &none), HD_ERROR_MEMORY);
    CONF_TRUE(none == (hd_buffer *)(uintptr_t)0x1230);
    conf_close(runtime);
}

static void mapped_buffers_are_left_alone(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane = hd_default_lane(runtime, 0);
    enum { n = 40000 };
    hd_buffer *x = make(lane, 4 * n), *y = NULL;
    uint32_t got[4] = {0}, *p = NULL;
    CONF_OK(hd_alloc(lane, 4 * n, &y));
    CONF_OK(hd_fill(y, 0, 9, 4 * n, NULL));
    CONF_OK(hd_fill(x, 0, 1, 4 * n, NULL));

    CONF_OK(hd_map(x, HD_WRITE, (void **)&p));
    p[0] = 2;
    CONF_FAILS_WITH(conf_fill(lane, k, x, 0, n, 3, NULL), HD_ERROR_ACCESS, "mapped for writing");
    CONF_FAILS_WITH(conf_copy(lane, k, y, 0, x, 0, n, NULL), HD_ERROR_ACCESS, "hd_unmap");
    CONF_FAILS(hd_fill(x, 4, 3, 4, NULL), HD_ERROR_ACCESS);
    CONF_FAILS(hd_copy(x, 0, y, 0, 4, NULL), HD_ERROR_ACCESS);
    CONF_FAILS(hd_copy(y, 0, x, 0, 4, NULL), HD_ERROR_ACCESS);
    CONF_FAILS(hd_read(x, 0, got, 4), HD_ERROR_ACCESS);
    CONF_FAILS(hd_write(x, 0, got, 4), HD_ERROR_ACCESS);
    CONF_EQUAL(word_of(x, 1), 1);
    put_word(x, 1, 4);
    CONF_EQUAL(p[1], 4);
    hd_unmap(x);
    CONF_OK(conf_copy(lane, k, y, 0, x, 0, n, NULL));
    CONF_OK(hd_read(y, 0, got, 12));
    CONF_TRUE(got[0] == 2 && got[1] == 4 && got[2] == 1);

    CONF_OK(hd_map(x, HD_READ, (void **)&p));
    CONF_OK(conf_copy(lane, k, y, 4, x, 0, n - 1, NULL));
    CONF_OK(hd_read(x, 0, got, 4));
    CONF_FAILS_WITH(conf_fill(lane, k, x, 0, n, 3, NULL), HD_ERROR_ACCESS, "mapped for reading");
    CONF_FAILS(hd_write(x, 0, got, 4), HD_ERROR_ACCESS);
    CONF_OK(hd_map(x, HD_READ_WRITE, (void **)&p)); /* for writing as long as one of them lasts */
    hd_unmap(x);
    CONF_FAILS(hd_read(x, 0, got, 4), HD_ERROR_ACCESS);
    hd_unmap(x);
    hd_unmap(x); /* one too many */
    CONF_OK(conf_fill(lane, k, x, 0, n, 3, NULL));
    CONF_FILLED(x, 0, 3, 4 * n);
    CONF_FAILS(hd_map(x, (hd_access)0, (void **)&p), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_map(x, HD_READ, NULL), HD_ERROR_ARGUMENT);
    CONF_OK(conf_fill(lane, k, x, 0, n, 5, NULL)); /* neither counts as mapped */

    CONF_OK(hd_map(x, HD_READ, (void **)&p)); /* freed while it is mapped */
    hd_free(x);
    conf_close(runtime);
}

static void waits_and_times_out(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("transfer_timeout=20");
    conf_slow slow;
    conf_slow_make(&slow, runtime, 0);
    hd_lane *lane = NULL;
    CONF_OK(hd_lane_create(runtime, 0, &lane));
    hd_buffer *x = make(lane, 4096), *pinned = NULL;
    CONF_OK(hd_alloc_host(runtime, 4096, &pinned));
    put_word(x, 0, 1);
    put_word(pinned, 0, 1);
    void *p = NULL;
    bool seen = false;
    for (double ms = 200; !seen && ms <= 25600; ms *= 2) {
        hd_ticket first, last;
        conf_slow_run(&slow, lane, NULL, 0, ms, NULL);
        CONF_OK(conf_fill(lane, slow.kernels, x, 0, 1024, 7, &first));
        CONF_OK(conf_fill(lane, slow.kernels, pinned, 0, 1024, 8, &last));
        void *word = hd_element(x, 0, 4, HD_READ);
        hd_status word_status = last_status();
        void *other = hd_element(pinned, 0, 4, HD_WRITE);
        hd_status other_status = last_status(), map = hd_map(x, HD_WRITE, &p);
        if (hd_done(first)) { /* too fast to tell */
            if (map == HD_OK) {
                hd_unmap(x);
            }
            CONF_OK(hd_wait(last, 60 * CONF_SECOND));
            continue;
        }
        CONF_TRUE(word == NULL && other == NULL);
        CONF_EQUAL(word_status, HD_ERROR_TIMEOUT);
        CONF_EQUAL(other_status, HD_ERROR_TIMEOUT);
        CONF_EQUAL(map, HD_ERROR_TIMEOUT);
        seen = true;
    }
    CONF_TRUE(seen);
    CONF_OK(conf_fill(lane, slow.kernels, x, 0, 1, 6, NULL)); /* it is not mapped */
    CONF_OK(hd_lane_wait(lane, 60 * CONF_SECOND));
    CONF_OK(hd_lane_wait(hd_default_lane(runtime, 0), 60 * CONF_SECOND));
    CONF_OK(hd_buffer_wait(x, HD_WRITE, 60 * CONF_SECOND)); /* the copies that were asked for, too */
    while (hd_element(x, 0, 4, HD_READ) == NULL) {
        CONF_EQUAL(last_status(), HD_ERROR_TIMEOUT);
    }
    CONF_EQUAL(word_of(x, 0), 6);
    CONF_EQUAL(word_of(x, 1023), 7);
    CONF_EQUAL(word_of(pinned, 0), 8);
    conf_close(runtime);
}

/* ---- failures ---- */

/* A copy to the host that fails has to be made again, no more. */
static void a_failed_copy_to_the_host(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("fault=cuMemcpyDtoHAsync:2=1");
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane = hd_default_lane(runtime, 0);
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

/* A copy to the device that fails takes the operation with it, but not the bytes. */
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
    status = status == HD_OK ? hd_wait(ticket, 60 * CONF_SECOND) : status;
    CONF_TRUE(status == HD_ERROR_FAILED || status == HD_ERROR_LANE_FAILED);
    CONF_EQUAL(word_of(x, 7), 7);
    CONF_TRUE(status == HD_ERROR_LANE_FAILED || !hd_put_u32(y, 0, 0)); /* what should have come there did not */
    CONF_OK(hd_lane_reset(lane, 60 * CONF_SECOND));
    CONF_OK(conf_copy(lane, k, y, 0, x, 0, n, NULL));
    for (size_t i = 0; i < n; i += 501) {
        CONF_EQUAL(word_of(y, i), i);
        CONF_EQUAL(word_of(x, i), i);
    }
    conf_close(runtime);
}

/* Copies to the device that a failed lane passed over are made again by the next operation. */
static void a_lane_that_failed_before(void **state)
{
    (void)state;
    /* the launch that fails is late, so that the others are submitted behind it */
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
    /* and what the failed operation should have written is bad until something writes it */
    void *p = NULL;
    NO_ELEMENT(hd_element(z, 0, 4, HD_READ), HD_ERROR_FAILED, "hd_fill_u32");
    NO_ELEMENT(hd_element(z, 0, 4, HD_WRITE), HD_ERROR_FAILED, "hd_fill_u32");
    CONF_FAILS(hd_map(z, HD_READ, &p), HD_ERROR_FAILED);
    CONF_FAILS(hd_map(z, HD_WRITE, &p), HD_ERROR_FAILED);
    CONF_OK(hd_fill(z, 0, 4, 4 * n, NULL));
    CONF_EQUAL(word_of(z, n - 1), 4);
    conf_close(runtime);
}

/* Elements of pinned memory whose last write failed can be written, and read after that. */
static void elements_of_failed_pinned_memory(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("fault=cuMemcpyDtoHAsync:1=1");
    hd_lane *lane = hd_default_lane(runtime, 0);
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

/* One round of everything; whatever succeeds must have the right bytes. Returns how many calls failed. */
static int round_of_everything(hd_runtime *runtime)
{
    enum { n = 20000 };
    int failed = 0;
    hd_module *module = NULL;
    hd_kernel *copy = NULL;
    hd_lane *lane = NULL;
    hd_buffer *x = NULL, *y = NULL, *pinned = NULL;
    uint32_t *p = NULL, got = 0;
    hd_status status = hd_builtin_module(runtime, &module);
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
                                        "cuMemcpyDtoHAsync", "cuMemcpyAsync",       "cuLaunchKernel",
                                        "cuMemCreate",       "cuStreamWaitEvent",   "cuEventRecord"};
    int opened = 0, hit = 0;
    for (size_t c = 0; c < sizeof calls / sizeof calls[0]; c++) {
        for (int from = 1; from <= 4; from++) {
            for (int onward = 0; onward < 2; onward++) {
                char settings[128];
                snprintf(settings, sizeof settings, "fault=%s:%d%s=1 host_devices=1 memory_patience=1", calls[c], from,
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
    CONF_TRUE(opened > 40);
    CONF_TRUE(hit > 10 && hit < opened);
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
    hd_lane *lane = hd_default_lane(runtime, 0);
    hd_buffer *x = make(lane, MIB), *pinned = NULL;
    CONF_OK(hd_alloc_host(runtime, 4096, &pinned));
    put_word(x, 0, 1);
    put_word(pinned, 5, 50);
    CONF_OK(conf_fill(lane, k, x, 0, 1000, 7, NULL));
    CONF_EQUAL(word_of(x, 999), 7);
    hd_device_info_t info = {.size = sizeof info};
    CONF_OK(hd_device_info(runtime, 0, &info));
    CONF_EQUAL(kill(info.worker_pid, SIGKILL), 0);
    hd_device_loss loss = {.size = sizeof loss};
    while (hd_loss_next(runtime, &loss) != HD_OK) {
        conf_nap_ms(1);
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

/* ---- memory ---- */

static bool see_unified(void *context, const hd_memory_block *block)
{
    int *seen = context;
    seen[0]++;
    seen[1] += block->unified && block->bytes == 3 * MIB && block->device == 0;
    return true;
}

static void counts_once_and_goes_with_its_work(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane = hd_default_lane(runtime, 0);
    int seen[2] = {0};
    hd_buffer *x = make(lane, 3 * MIB);
    CONF_OK(hd_memory_each(runtime, see_unified, seen));
    CONF_TRUE(seen[0] == 1 && seen[1] == 1);
    CONF_EQUAL(pool_stats(runtime, 0).live_bytes, 3 * MIB);
    CONF_EQUAL(pool_stats(runtime, HD_DEVICE_HOST).live_bytes, 0);
    CONF_TRUE(pool_stats(runtime, HD_DEVICE_HOST).taken_bytes >= 3 * MIB);
    hd_free(x);
    hd_buffer *sum = NULL;
    CONF_OK(hd_alloc(lane, 400, &sum));
    for (uint32_t i = 0; i < 100; i++) { /* its memory is somebody else's at once, but not before its work is done */
        x = make(lane, 3 * MIB);
        put_word(x, 700000, i);
        CONF_OK(conf_copy(lane, k, sum, 4 * i, x, 2800000, 1, NULL));
        hd_free(x);
    }
    uint32_t got[100];
    CONF_OK(hd_read(sum, 0, got, sizeof got));
    for (uint32_t i = 0; i < 100; i++) {
        CONF_EQUAL(got[i], i);
    }
    CONF_EQUAL(pool_stats(runtime, 0).live_count, 1);
    conf_close(runtime);
}

/* ---- several threads with one buffer ---- */

enum { PARTS = 4, PART_WORDS = 30000, PART_ROUNDS = 60 };

typedef struct part {
    hd_runtime *runtime;
    hd_buffer *whole;
    conf_kernels kernels;
    uint32_t number;
    int errors;
} part;

static void *work_on_part(void *argument)
{
    part *p = argument;
    hd_lane *lane = hd_default_lane(p->runtime, 0);
    size_t low = (size_t)p->number * PART_WORDS;
    hd_buffer *mine = NULL;
    p->errors += hd_alloc(lane, 4 * PART_WORDS, &mine) != HD_OK;
    for (uint32_t i = 0; i < PART_ROUNDS && p->errors == 0; i++) {
        uint32_t value = p->number << 16 | i, got[2] = {0};
        p->errors += conf_fill(lane, p->kernels, p->whole, 4 * low, PART_WORDS, value, NULL) != HD_OK;
        p->errors += conf_copy(lane, p->kernels, mine, 0, p->whole, 4 * low, PART_WORDS, NULL) != HD_OK;
        p->errors += hd_read(mine, 0, got, 4) != HD_OK;
        p->errors += hd_read(p->whole, 4 * (low + PART_WORDS - 1), got + 1, 4) != HD_OK;
        p->errors += got[0] != value || got[1] != value;
    }
    hd_free(mine);
    return NULL;
}

/* Parts share chunks, and now and then the host has the newer bytes of all. */
static void threads_work_on_parts(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_schedule=7");
    hd_buffer *whole = make(hd_default_lane(runtime, 0), 4 * PARTS * PART_WORDS);
    conf_kernels k = conf_builtins(runtime);
    for (int round = 0; round < 3; round++) {
        uint32_t *p = NULL;
        CONF_OK(hd_map(whole, HD_READ_WRITE, (void **)&p));
        for (size_t i = 0; i < PARTS * PART_WORDS; i++) {
            CONF_TRUE(round == 0 || p[i] == ((uint32_t)(i / PART_WORDS) << 16 | (PART_ROUNDS - 1)));
            p[i] = 0xffffffff;
        }
        hd_unmap(whole);
        part parts[PARTS];
        pthread_t threads[PARTS];
        for (uint32_t i = 0; i < PARTS; i++) {
            parts[i] = (part){runtime, whole, k, i, 0};
            CONF_EQUAL(pthread_create(&threads[i], NULL, work_on_part, &parts[i]), 0);
        }
        for (uint32_t i = 0; i < PARTS; i++) {
            pthread_join(threads[i], NULL);
            CONF_EQUAL(parts[i].errors, 0);
        }
    }
    conf_close(runtime);
}

/* ---- a random run against plain arrays ---- */

enum { BUFFERS = 7, RUNNERS = 3, STEPS = CONF_TSAN ? 250 : 1200, WORDS_MOST = 1600003 };

typedef struct modelled {
    hd_buffer *buffer;
    uint32_t *model;
    size_t words;
    int device; /* -1: pinned */
    bool unified;
} modelled;

typedef struct runner {
    hd_runtime *runtime;
    conf_kernels kernels;
    conf_random random;
    modelled buffers[BUFFERS];
    hd_lane *lanes[4];
    int lane_device[4], n_lanes;
    int number;
} runner;

static void renew(runner *r, modelled *m)
{
    static const size_t sizes[] = {1, 1000, 16384, 16387, 100000, 300001};
    uint64_t choice = conf_below(&r->random, 32);
    size_t words = choice == 0 ? WORDS_MOST : sizes[choice % 6];
    hd_free(m->buffer);
    free(m->model);
    *m = (modelled){.words = words, .model = conf_memory(4 * words)};
    int device = (int)conf_below(&r->random, (uint64_t)hd_device_count(r->runtime));
    hd_lane *lane = hd_default_lane(r->runtime, device);
    uint64_t kind = conf_below(&r->random, 5);
    m->device = kind == 0 ? -1 : device;
    m->unified = kind > 1;
    if (kind == 0) {
        CONF_OK(hd_alloc_host(r->runtime, 4 * words, &m->buffer));
    } else if (kind == 1) {
        CONF_OK(hd_alloc(lane, 4 * words, &m->buffer));
    } else {
        CONF_OK(hd_alloc_unified(lane, 4 * words, &m->buffer));
    }
    uint32_t value = (uint32_t)conf_next(&r->random);
    if (kind != 1 && conf_chance(&r->random, 50)) {
        uint32_t *p = NULL;
        CONF_OK(hd_map(m->buffer, HD_WRITE, (void **)&p));
        for (size_t i = 0; i < words; i++) {
            p[i] = value;
        }
        hd_unmap(m->buffer);
    } else {
        CONF_OK(hd_fill(m->buffer, 0, value, 4 * words, NULL));
    }
    for (size_t i = 0; i < words; i++) {
        m->model[i] = value;
    }
}

/* A lane whose device reaches both; NULL: not found. */
static hd_lane *lane_for(runner *r, const modelled *a, const modelled *b)
{
    int i = (int)conf_below(&r->random, (uint64_t)r->n_lanes);
    bool reaches = conf_reaches(r->runtime, r->lane_device[i], a->device) &&
                   conf_reaches(r->runtime, r->lane_device[i], b->device);
    return reaches ? r->lanes[i] : NULL;
}

static void expect(const runner *r, const modelled *m, size_t at, uint32_t got, const char *how, int step)
{
    if (got != m->model[at]) {
        conf_fail_at(__FILE__, __LINE__,
                     "runner %d, step %d, %s: word %zu of %zu of a %s buffer of device %d is %08x, not %08x", r->number,
                     step, how, at, m->words, m->unified ? "unified" : "plain", m->device, got, m->model[at]);
    }
}

static void set_all(modelled *m, size_t low, size_t n, uint32_t value)
{
    for (size_t i = 0; i < n; i++) {
        m->model[low + i] = value;
    }
}

static void step_operation(runner *r, modelled *m, modelled *other, size_t low, size_t n)
{
    uint32_t value = (uint32_t)conf_next(&r->random);
    size_t from = conf_below(&r->random, other->words);
    size_t both = n < other->words - from ? n : other->words - from;
    hd_lane *lane = lane_for(r, m, other);
    switch (conf_below(&r->random, 4)) {
    case 0:
        if (lane != NULL) {
            CONF_OK(conf_fill(lane, r->kernels, m->buffer, 4 * low, n, value, NULL));
            set_all(m, low, n, value);
        }
        break;
    case 1:
        if (lane != NULL && m != other) {
            CONF_OK(conf_copy(lane, r->kernels, m->buffer, 4 * low, other->buffer, 4 * from, both, NULL));
            memcpy(m->model + low, other->model + from, 4 * both);
        }
        break;
    case 2:
        CONF_OK(hd_fill(m->buffer, 4 * low, value, 4 * n, NULL));
        set_all(m, low, n, value);
        break;
    default:
        if (m != other) {
            CONF_OK(hd_copy(m->buffer, 4 * low, other->buffer, 4 * from, 4 * both, NULL));
            memcpy(m->model + low, other->model + from, 4 * both);
        }
        break;
    }
}

static void step_transfer(runner *r, modelled *m, size_t low, size_t n, int step)
{
    uint32_t *data = conf_memory(4 * n);
    if (conf_chance(&r->random, 50)) {
        conf_pattern(data, 4 * n, conf_next(&r->random));
        CONF_OK(hd_write(m->buffer, 4 * low, data, 4 * n));
        memcpy(m->model + low, data, 4 * n);
    } else {
        CONF_OK(hd_read(m->buffer, 4 * low, data, 4 * n));
        for (size_t i = 0; i < n; i++) {
            expect(r, m, low + i, data[i], "hd_read", step);
        }
    }
    free(data);
}

static void step_map(runner *r, modelled *m, size_t low, size_t n, int step)
{
    hd_access access = (hd_access)(1 + conf_below(&r->random, 3));
    uint32_t *p = NULL;
    CONF_OK(hd_map(m->buffer, access, (void **)&p));
    for (size_t i = 0; access != HD_WRITE && i < m->words; i++) {
        expect(r, m, i, p[i], "hd_map", step);
    }
    for (size_t i = 0; (access & HD_WRITE) && i < n; i++) {
        p[low + i] = m->model[low + i] = (uint32_t)(low + i) * 3;
    }
    hd_unmap(m->buffer);
}

static void step_elements(runner *r, modelled *m, size_t low, size_t n, int step)
{
    n = n < 20 ? n : 20;
    for (size_t i = low; i < low + n; i++) {
        if (conf_chance(&r->random, 60)) {
            expect(r, m, i, word_of(m->buffer, i), "hd_get_u32", step);
        } else {
            put_word(m->buffer, i, m->model[i] = (uint32_t)conf_next(&r->random));
        }
    }
}

static void *run(void *argument)
{
    runner *r = argument;
    for (int i = 0; i < BUFFERS; i++) {
        renew(r, &r->buffers[i]);
    }
    for (int step = 0; step < STEPS; step++) {
        modelled *m = &r->buffers[conf_below(&r->random, BUFFERS)];
        modelled *other = &r->buffers[conf_below(&r->random, BUFFERS)];
        size_t low = conf_below(&r->random, m->words);
        size_t n = 1 + conf_below(&r->random, m->words - low);
        if (conf_chance(&r->random, 20)) { /* all of it */
            low = 0;
            n = m->words;
        }
        bool host = m->unified || m->device < 0;
        uint64_t what = conf_below(&r->random, 100);
        if (what < 45) {
            step_operation(r, m, other, low, n);
        } else if (what < 60) {
            step_transfer(r, m, low, n, step);
        } else if (what < 68 && host) {
            step_map(r, m, low, n, step);
        } else if (what < 97 && host) {
            step_elements(r, m, low, n, step);
        } else if (what >= 97) {
            renew(r, m);
        }
    }
    for (int i = 0; i < BUFFERS; i++) {
        modelled *m = &r->buffers[i];
        CONF_HOLDS(m->buffer, 0, m->model, 4 * m->words);
        hd_free(m->buffer);
        free(m->model);
    }
    return NULL;
}

static void agrees_with_plain_arrays(void **state)
{
    (void)state;
    static const char *const settings[] = {"host_schedule=0", "host_schedule=12345",
                                           "host_peers=none host_schedule=77"};
    uint64_t seed = conf_number_from("HEDDLE_SEED", 1);
    conf_failure_ends_program = true;
    for (size_t s = 0; s < sizeof settings / sizeof settings[0]; s++) {
        hd_runtime *runtime = conf_open(settings[s]);
        static runner runners[RUNNERS];
        pthread_t threads[RUNNERS];
        for (int i = 0; i < RUNNERS; i++) {
            runners[i] = (runner){.runtime = runtime,
                                  .kernels = conf_builtins(runtime),
                                  .random = {seed * 1000 + s * 10 + (uint64_t)i},
                                  .n_lanes = 4,
                                  .number = i};
            for (int l = 0; l < 4; l++) {
                runners[i].lane_device[l] = l % hd_device_count(runtime);
                CONF_OK(hd_lane_create(runtime, runners[i].lane_device[l], &runners[i].lanes[l]));
            }
            CONF_EQUAL(pthread_create(&threads[i], NULL, run, &runners[i]), 0);
        }
        for (int i = 0; i < RUNNERS; i++) {
            pthread_join(threads[i], NULL);
        }
        CONF_EQUAL(pool_stats(runtime, HD_DEVICE_HOST).live_count, 0);
        conf_close(runtime);
    }
    conf_failure_ends_program = false;
}

int main(void)
{
    conf_begin("test_unified");
    const struct CMUnitTest tests[] = {
        CONF_CASE(goes_back_and_forth),
        CONF_CASE(every_operation_takes_it),
        CONF_CASE(a_peer_uses_it),
        CONF_CASE(elements_are_checked),
        CONF_CASE(mapped_buffers_are_left_alone),
        CONF_CASE(waits_and_times_out),
        CONF_CASE(a_failed_copy_to_the_host),
        CONF_CASE(a_failed_copy_to_the_device),
        CONF_CASE(a_lane_that_failed_before),
        CONF_CASE(elements_of_failed_pinned_memory),
        CONF_CASE(calls_of_the_driver_fail),
        CONF_CASE(its_device_is_lost),
        CONF_CASE(counts_once_and_goes_with_its_work),
        CONF_CASE(threads_work_on_parts),
        CONF_CASE(agrees_with_plain_arrays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
