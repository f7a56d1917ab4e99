/* test_unified.c - unified buffers: both the CPU and the GPU find the newest bytes.
 *
 * Promise: Any reader of a unified buffer gets the bytes written last, on the CPU or a GPU.
 *
 * Heddle leaves mapped buffers alone. Other cases test how such buffers count, and several threads
 * with one of them. test_unified_trouble.c tests failures, test_unified_model.c runs at random.
 *
 * Threads: the main one, and those of the last case, each with a part of one buffer.
 * Locks: none.
 * Always: every read gets the bytes written last.
 */
#include "unified.h"

/* ---- both sides find the bytes ---- */

static void goes_back_and_forth(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane = conf_default_lane(runtime, 0);
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

/* Operations of every kind find the host's writes, and the host finds theirs, also in parts of
 * chunks. */
static void every_operation_takes_it(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane = conf_default_lane(runtime, 0);
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
        case 0: /* around and behind the host's writes */
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

/* Kernels of another device that reaches the buffer, and copies from there. */
static void a_peer_uses_it(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    CONF_NEED_DEVICES(runtime, 2);
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane = conf_default_lane(runtime, 0), *other = conf_default_lane(runtime, 1);
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

/* ---- refusals ---- */

static void elements_are_checked(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_lane *lane = conf_default_lane(runtime, 0);
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
        hd_error error = {.size = sizeof error};
        CONF_TRUE(hd_get_u32(both[i], 25, &word) == false);
        hd_last_error(&error);
        CONF_TRUE(error.status == HD_ERROR_RANGE && strstr(hd_message(), "100") != NULL);
        CONF_TRUE(hd_get_u32(both[i], SIZE_MAX / 2, &word) == false);
        CONF_EQUAL(word, 77);
        CONF_TRUE(hd_put_u32(both[i], 24, 5) == true);
        CONF_TRUE(hd_put_u32(both[i], 25, 1) == false);
        hd_last_error(&error);
        CONF_EQUAL(error.status, HD_ERROR_RANGE);
        CONF_TRUE(hd_get_u32(both[i], 24, &word) == true && word == 5);
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
    hd_lane *lane = conf_default_lane(runtime, 0);
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
    CONF_OK(hd_unmap(x));
    CONF_FAILS_WITH(hd_unmap(x), HD_ERROR_ARGUMENT, "hd_unmap: the buffer is not mapped");
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
        if (hd_done(first)) { /* too fast to show it */
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
    CONF_OK(hd_lane_wait(conf_default_lane(runtime, 0), 60 * CONF_SECOND));
    CONF_OK(hd_buffer_wait(x, HD_WRITE, 60 * CONF_SECOND)); /* the requested copies, too */
    while (hd_element(x, 0, 4, HD_READ) == NULL) {
        CONF_EQUAL(last_status(), HD_ERROR_TIMEOUT);
    }
    CONF_EQUAL(word_of(x, 0), 6);
    CONF_EQUAL(word_of(x, 1023), 7);
    CONF_EQUAL(word_of(pinned, 0), 8);
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
    hd_lane *lane = conf_default_lane(runtime, 0);
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
    /* its memory gets another owner at once, but not before its work is done */
    for (uint32_t i = 0; i < 100; i++) {
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
    hd_lane *lane = conf_default_lane(p->runtime, 0);
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

/* Parts share chunks, and now and then the host's bytes are newer for all. */
static void threads_work_on_parts(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_schedule=7");
    hd_buffer *whole = make(conf_default_lane(runtime, 0), 4 * PARTS * PART_WORDS);
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
        CONF_CASE(counts_once_and_goes_with_its_work),
        CONF_CASE(threads_work_on_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
