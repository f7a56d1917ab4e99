/* test_buffer_in_use.c - memory that work still uses: frees, waits, and transfers that reach a
 * limit.
 *
 * Promise: Work on freed memory never changes a later allocation; waits for it obey their limit.
 *
 * Threads: the main one.
 * Locks: none.
 * Always: work on memory that was freed in use never writes to later allocations. If work ends
 * before the test sees it run, the test makes it longer.
 */
#include "conformance.h"

/* Frees a buffer while a long kernel runs in front of work that uses it. That work must never write
 * to later allocations, of any size, in the same lane or in others. */
static void frees_while_in_use(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    conf_slow slow;
    conf_slow_make(&slow, runtime, 0);
    hd_lane *lanes[3];
    for (int i = 0; i < 3; i++) {
        CONF_OK(hd_lane_create(runtime, 0, &lanes[i]));
    }
    conf_random r = {11};
    enum { rounds = CONF_TSAN ? 60 : 200, kept = 8 };
    static const size_t sizes[] = {256, 1024, 4096, 20000, 262144};
    hd_buffer *later[kept] = {NULL};
    size_t later_bytes[kept] = {0};
    uint32_t later_word[kept] = {0};
    for (uint32_t i = 0; i < rounds; i++) {
        size_t bytes = sizes[conf_below(&r, 5)];
        hd_lane *lane = lanes[conf_below(&r, 3)], *writer = lanes[conf_below(&r, 3)];
        hd_buffer *gone = NULL;
        CONF_OK(hd_alloc(lane, bytes, &gone));
        if (i % 4 == 0) {
            conf_slow_run(&slow, writer, NULL, 16, 2, NULL);
        }
        CONF_OK(conf_fill(writer, slow.kernels, gone, 0, bytes / 4, 0xdeadbeefu, NULL));
        CONF_OK(hd_fill(gone, 0, 0xdeadbeefu, bytes, NULL));
        CONF_OK(conf_fill(writer, slow.kernels, gone, 0, bytes / 4, 0xdeadbeefu, NULL));
        hd_free(gone);
        int at = (int)conf_below(&r, kept);
        if (later[at] != NULL) {
            CONF_FILLED(later[at], 0, later_word[at], later_bytes[at]);
            hd_free(later[at]);
        }
        later_bytes[at] = conf_chance(&r, 60) ? bytes : sizes[conf_below(&r, 5)];
        later_word[at] = 0x1000 + i;
        hd_lane *user = lanes[conf_below(&r, 3)];
        CONF_OK(hd_alloc(user, later_bytes[at], &later[at]));
        switch (conf_below(&r, 3)) {
        case 0:
            CONF_OK(conf_fill(lanes[conf_below(&r, 3)], slow.kernels, later[at], 0, later_bytes[at] / 4, later_word[at],
                              NULL));
            break;
        case 1:
            CONF_OK(hd_fill(later[at], 0, later_word[at], later_bytes[at], NULL));
            break;
        default: {
            uint32_t *words = conf_memory(later_bytes[at]);
            for (size_t j = 0; j < later_bytes[at] / 4; j++) {
                words[j] = later_word[at];
            }
            CONF_OK(hd_write(later[at], 0, words, later_bytes[at]));
            free(words);
        }
        }
    }
    for (int at = 0; at < kept; at++) {
        if (later[at] != NULL) {
            CONF_FILLED(later[at], 0, later_word[at], later_bytes[at]);
        }
    }
    conf_close(runtime);
}

/* Pinned memory too: its pages must stay until the copies in flight are done. */
static void frees_pinned_memory_while_in_use(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    conf_slow slow;
    conf_slow_make(&slow, runtime, 0);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *device = NULL;
    enum { size = 100000 };
    CONF_OK(hd_alloc(lane, size, &device));
    for (uint32_t i = 0; i < 10; i++) {
        hd_buffer *from = NULL, *to = NULL;
        CONF_OK(hd_alloc_host(runtime, size, &from));
        CONF_OK(hd_alloc_host(runtime, size, &to));
        CONF_OK(hd_fill(from, 0, i, size, NULL));
        CONF_OK(hd_fill(device, 0, conf_bits(0), 4, NULL));
        conf_slow_run(&slow, lane, device, 0, 5, NULL);
        CONF_OK(hd_copy(device, 0, from, 0, size, NULL)); /* waits for the long one */
        CONF_OK(hd_copy(to, 0, device, 0, size, NULL));
        hd_free(from);
        hd_free(to);
        CONF_FILLED(device, 0, i, size);
    }
    conf_close(runtime);
}

static void buffer_waits(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    conf_slow slow;
    conf_slow_make(&slow, runtime, 0);
    hd_lane *lane = NULL;
    hd_buffer *written = NULL, *total = NULL;
    CONF_OK(hd_lane_create(runtime, 0, &lane));
    CONF_OK(hd_alloc(lane, 4096, &written));
    CONF_OK(hd_alloc(lane, 64, &total));
    CONF_OK(hd_fill(written, 0, 0, 4096, NULL));
    CONF_OK(hd_fill(total, 0, 0, 64, NULL));
    CONF_OK(hd_buffer_wait(written, HD_READ_WRITE, 60 * CONF_SECOND));
    bool seen = false;
    for (double ms = 100; !seen && ms <= 25600; ms *= 2) {
        hd_ticket ticket;
        conf_slow_run(&slow, lane, written, 0, ms, &ticket);
        hd_status status = hd_buffer_wait(written, HD_READ, 0);
        /* a reader need not wait for its readers */
        hd_status other = hd_buffer_wait(slow.zeros, HD_READ, 0);
        hd_status writer = hd_buffer_wait(slow.zeros, HD_WRITE, 0); /* but a writer must */
        if (hd_done(ticket)) {
            continue;
        }
        CONF_EQUAL(status, HD_ERROR_TIMEOUT);
        CONF_EQUAL(other, HD_OK);
        CONF_EQUAL(writer, HD_ERROR_TIMEOUT);
        seen = true;
        CONF_OK(hd_buffer_wait(written, HD_READ, 60 * CONF_SECOND));
        CONF_TRUE(hd_done(ticket));
        CONF_OK(hd_buffer_wait(slow.zeros, HD_WRITE, 0));
    }
    CONF_TRUE(seen);
    conf_close(runtime);
}

/* The option transfer_timeout limits every call that waits for earlier work; later the same calls
 * succeed. */
static void transfers_time_out(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("transfer_timeout=20");
    conf_slow slow;
    conf_slow_make(&slow, runtime, 0);
    hd_lane *lane = NULL;
    hd_buffer *x = NULL, *pinned = NULL;
    CONF_OK(hd_lane_create(runtime, 0, &lane));
    CONF_OK(hd_alloc(lane, 4096, &x));
    CONF_OK(hd_alloc_host(runtime, 4096, &pinned));
    CONF_OK(hd_fill(x, 0, 5, 4096, NULL));
    CONF_OK(hd_fill(pinned, 0, 6, 4096, NULL));
    CONF_OK(hd_buffer_wait(pinned, HD_READ, 60 * CONF_SECOND));
    conf_kernels k = conf_builtins(runtime);
    uint32_t got[1024];
    void *p = NULL;
    bool seen = false;
    for (double ms = 200; !seen && ms <= 25600; ms *= 2) {
        hd_ticket first, last;
        conf_slow_run(&slow, lane, NULL, 0, ms, NULL);
        CONF_OK(conf_fill(lane, k, x, 0, 1024, 7, &first));
        CONF_OK(conf_fill(lane, k, pinned, 0, 1024, 8, &last));
        hd_status read = hd_read(x, 0, got, 4096), map = hd_map(pinned, HD_READ, &p);
        hd_status write = hd_write(pinned, 0, got, 16);
        if (hd_done(first)) { /* it ended too fast */
            if (map == HD_OK) {
                hd_unmap(pinned);
                p = NULL;
            }
            CONF_OK(hd_wait(last, 60 * CONF_SECOND));
            continue;
        }
        CONF_EQUAL(read, HD_ERROR_TIMEOUT);
        CONF_EQUAL(map, HD_ERROR_TIMEOUT);
        CONF_EQUAL(write, HD_ERROR_TIMEOUT);
        CONF_TRUE(p == NULL);
        seen = true;
    }
    CONF_TRUE(seen);
    CONF_OK(hd_lane_wait(lane, 60 * CONF_SECOND));
    CONF_OK(hd_buffer_wait(x, HD_READ, 60 * CONF_SECOND));
    hd_status status;
    do { /* the limit is short for a busy machine */
        status = hd_read(x, 0, got, 4096);
    } while (status == HD_ERROR_TIMEOUT);
    CONF_OK(status);
    for (size_t i = 0; i < 1024; i++) {
        CONF_EQUAL(got[i], 7);
    }
    do {
        status = hd_map(pinned, HD_READ, &p);
    } while (status == HD_ERROR_TIMEOUT);
    CONF_OK(status);
    CONF_EQUAL(((uint32_t *)p)[1023], 8);
    hd_unmap(pinned);
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_buffer_in_use");
    const struct CMUnitTest tests[] = {
        CONF_CASE(frees_while_in_use),
        CONF_CASE(frees_pinned_memory_while_in_use),
        CONF_CASE(buffer_waits),
        CONF_CASE(transfers_time_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
