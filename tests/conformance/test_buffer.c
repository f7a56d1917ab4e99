/* test_buffer.c - tracked memory: allocation, sizes and offsets of every kind, ranges, handles,
 * mapping. test_buffer_in_use.c tests memory that work still uses.
 *
 * Promise: A buffer returns the bytes written, for every size, offset and kind; bad calls fail.
 *
 * Bad calls pass a bad range or handle.
 *
 * Threads: the main one.
 * Locks: none.
 * Always: a read returns the bytes that were written.
 */
#include "conformance.h"
#include <sys/mman.h>

static void facts_of_buffers(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    static const size_t sizes[] = {1, 3, 4, 255, 256, 257, 4096, 65537, 2097152, 2097153, 5000000};
    enum { n = sizeof sizes / sizeof *sizes };
    for (int d = 0; d < hd_device_count(runtime); d++) {
        hd_buffer *buffers[n];
        for (int i = 0; i < n; i++) {
            CONF_OK(hd_alloc(conf_default_lane(runtime, d), sizes[i], &buffers[i]));
            CONF_EQUAL(hd_buffer_size(buffers[i]), sizes[i]);
            CONF_EQUAL(hd_buffer_device(buffers[i]), d);
            CONF_TRUE(hd_buffer_address(buffers[i]) != 0);
            CONF_EQUAL(hd_buffer_address(buffers[i]) % 256, 0);
            for (int j = 0; j < i; j++) { /* they do not overlap */
                uint64_t a = hd_buffer_address(buffers[i]), b = hd_buffer_address(buffers[j]);
                CONF_TRUE(a + sizes[i] <= b || b + sizes[j] <= a);
            }
        }
        for (int i = 0; i < n; i++) {
            hd_free(buffers[i]);
            CONF_EQUAL(hd_buffer_size(buffers[i]), 0);
            CONF_EQUAL(hd_buffer_device(buffers[i]), -2);
            CONF_EQUAL(hd_buffer_address(buffers[i]), 0);
        }
    }
    hd_buffer *pinned = NULL;
    CONF_OK(hd_alloc_host(runtime, 1000, &pinned));
    CONF_EQUAL(hd_buffer_size(pinned), 1000);
    CONF_EQUAL(hd_buffer_device(pinned), -1);
    CONF_TRUE(hd_buffer_address(pinned) != 0);
    void *p = NULL;
    CONF_OK(hd_map(pinned, HD_READ_WRITE, &p));
    CONF_EQUAL((uintptr_t)p % 4096, 0);
    hd_unmap(pinned);
    hd_free(pinned);
    CONF_EQUAL(hd_buffer_size(pinned), 0);
    conf_close(runtime);
}

/* Every combination of some offsets and sizes, in a device buffer and a pinned one. */
static void writes_and_reads_ranges(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    enum { size = 300000 };
    static const size_t offsets[] = {0, 1, 2, 3, 4, 7, 255, 256, 4095, 4096, 65535, 131072, 299999};
    static const size_t lengths[] = {0, 1, 2, 3, 4, 5, 8, 63, 64, 65, 4096, 4097, 100001, 168928};
    hd_buffer *buffers[2];
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), size, &buffers[0]));
    CONF_OK(hd_alloc_host(runtime, size, &buffers[1]));
    uint8_t *model = conf_memory(size), *data = conf_memory(size + 64), *got = conf_memory(size + 64);
    for (int b = 0; b < 2; b++) {
        conf_pattern(model, size, 1);
        CONF_OK(hd_write(buffers[b], 0, model, size));
        uint64_t seed = 2;
        for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
            for (size_t j = 0; j < sizeof lengths / sizeof *lengths; j++) {
                size_t offset = offsets[i], length = lengths[j];
                if (offset + length > size) {
                    continue;
                }
                /* from an odd place in the program's memory too */
                uint8_t *source = data + seed % 3;
                conf_pattern(source, length, ++seed);
                CONF_OK(hd_write(buffers[b], offset, source, length));
                memcpy(model + offset, source, length);
                memset(source, 0xdd, length); /* the call returned, so the program may reuse it */
                uint8_t *target = got + 1 + seed % 5;
                target[-1] = 0x77, target[length] = 0x78;
                CONF_OK(hd_read(buffers[b], offset, target, length));
                CONF_SAME(target, model + offset, length);
                CONF_TRUE(target[-1] == 0x77 && target[length] == 0x78);
            }
            CONF_HOLDS(buffers[b], 0, model, size);
        }
    }
    free(model), free(data), free(got);
    conf_close(runtime);
}

static void large_writes_and_reads(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    enum { size = (40 << 20) + 13 };
    hd_buffer *device = NULL, *other = NULL, *pinned = NULL;
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), size, &device));
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), size, &other));
    CONF_OK(hd_alloc_host(runtime, size, &pinned));
    uint8_t *data = conf_memory(size), *copy = conf_memory(size);
    conf_pattern(data, size, 3);
    memcpy(copy, data, size);
    CONF_OK(hd_write(device, 0, copy, size));
    memset(copy, 0, size);
    CONF_HOLDS(device, 0, data, size);
    CONF_OK(hd_write(device, 7, data, size - 7));
    CONF_HOLDS(device, 7, data, size - 7);
    CONF_HOLDS(device, 0, data, 7);
    CONF_OK(hd_write(device, 0, data, size));
    CONF_OK(hd_copy(pinned, 1, device, 0, size - 1, NULL));
    CONF_OK(hd_copy(other, 0, pinned, 1, size - 1, NULL));
    CONF_HOLDS(other, 0, data, size - 1);
    CONF_OK(hd_copy(other, 3, device, 5, size - 5, NULL));
    CONF_HOLDS(other, 3, data + 5, size - 5);
    CONF_OK(hd_fill(other, 4, 0x01020304u, (size_t)size / 4 * 4 - 8, NULL));
    CONF_FILLED(other, 4, 0x01020304u, (size_t)size / 4 * 4 - 8);
    free(data), free(copy);
    conf_close(runtime);
}

static void zero_bytes_are_nothing(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_buffer *a = NULL, *b = NULL;
    uint8_t byte = 0x5a;
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), 64, &a));
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), 64, &b));
    CONF_OK(hd_fill(a, 0, 0x0a0a0a0au, 64, NULL));
    CONF_OK(hd_write(a, 0, &byte, 0));
    CONF_OK(hd_write(a, 64, &byte, 0)); /* at the end: inside */
    CONF_OK(hd_read(a, 64, &byte, 0));
    CONF_EQUAL(byte, 0x5a);
    hd_ticket ticket = {NULL, 0};
    CONF_OK(hd_copy(b, 64, a, 0, 0, &ticket));
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    CONF_OK(hd_copy(a, 8, a, 8, 0, NULL)); /* nothing overlaps */
    CONF_OK(hd_fill(a, 64, 1, 0, &ticket));
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    CONF_FILLED(a, 0, 0x0a0a0a0au, 64);
    conf_close(runtime);
}

static void ranges_are_checked(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_buffer *a = NULL, *b = NULL, *pinned = NULL;
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), 1000, &a));
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), 2000, &b));
    CONF_OK(hd_alloc_host(runtime, 1000, &pinned));
    CONF_OK(hd_fill(a, 0, 0x0a0a0a0au, 1000, NULL));
    CONF_OK(hd_fill(b, 0, 0x0b0b0b0bu, 2000, NULL));
    CONF_OK(hd_fill(pinned, 0, 0x0c0c0c0cu, 1000, NULL));
    static const struct {
        size_t offset, bytes;
    } outside[] = {{0, 1001},        {1, 1000},
                   {999, 2},         {1000, 1},
                   {1001, 1},        {SIZE_MAX, 1},
                   {1, SIZE_MAX},    {SIZE_MAX, SIZE_MAX},
                   {0, SIZE_MAX},    {500, SIZE_MAX - 499},
                   {SIZE_MAX - 1, 4}};
    uint8_t *bytes = conf_memory(4096);
    memset(bytes, 0x33, 4096);
    hd_ticket ticket = {NULL, 55};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        size_t o = outside[i].offset, n = outside[i].bytes;
        CONF_FAILS(hd_write(a, o, bytes, n), HD_ERROR_RANGE);
        CONF_FAILS(hd_read(a, o, bytes, n), HD_ERROR_RANGE);
        CONF_FAILS(hd_write(pinned, o, bytes, n), HD_ERROR_RANGE);
        CONF_FAILS(hd_read(pinned, o, bytes, n), HD_ERROR_RANGE);
        if (n <= 2000) {
            CONF_FAILS(hd_copy(a, o, b, 0, n, &ticket), HD_ERROR_RANGE);
            CONF_FAILS(hd_copy(b, 0, a, o, n, &ticket), HD_ERROR_RANGE);
        } else {
            CONF_FAILS(hd_copy(a, o, b, o, n, &ticket), HD_ERROR_RANGE);
        }
        if (o % 4 == 0 && n % 4 == 0) {
            CONF_FAILS(hd_fill(a, o, 1, n, &ticket), HD_ERROR_RANGE);
        }
    }
    CONF_FAILS(hd_fill(a, 1000, 1, 4, &ticket), HD_ERROR_RANGE);
    CONF_FAILS(hd_fill(a, 0, 1, 1004, &ticket), HD_ERROR_RANGE);
    CONF_FAILS(hd_fill(a, 4, 1, SIZE_MAX - 3, &ticket), HD_ERROR_RANGE);
    CONF_TRUE(ticket.lane == NULL && ticket.sequence == 55);
    for (int i = 0; i < 4096; i++) {
        CONF_EQUAL(bytes[i], 0x33);
    }
    CONF_FILLED(a, 0, 0x0a0a0a0au, 1000);
    CONF_FILLED(b, 0, 0x0b0b0b0bu, 2000);
    CONF_FILLED(pinned, 0, 0x0c0c0c0cu, 1000);
    free(bytes);
    conf_close(runtime);
}

static void copies_in_one_buffer(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_buffer *buffers[2];
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), 10000, &buffers[0]));
    CONF_OK(hd_alloc_host(runtime, 10000, &buffers[1]));
    uint8_t model[10000];
    for (int b = 0; b < 2; b++) {
        conf_pattern(model, sizeof model, 5 + (uint64_t)b);
        CONF_OK(hd_write(buffers[b], 0, model, sizeof model));
        hd_ticket ticket = {NULL, 55};
        CONF_FAILS(hd_copy(buffers[b], 0, buffers[b], 0, 1, &ticket), HD_ERROR_ARGUMENT);
        CONF_FAILS(hd_copy(buffers[b], 0, buffers[b], 99, 100, &ticket), HD_ERROR_ARGUMENT);
        CONF_FAILS(hd_copy(buffers[b], 99, buffers[b], 0, 100, &ticket), HD_ERROR_ARGUMENT);
        CONF_FAILS(hd_copy(buffers[b], 0, buffers[b], 1, 9999, &ticket), HD_ERROR_ARGUMENT);
        CONF_TRUE(ticket.lane == NULL && ticket.sequence == 55);
        CONF_OK(hd_copy(buffers[b], 0, buffers[b], 100, 100, NULL));
        memcpy(model, model + 100, 100);
        CONF_OK(hd_copy(buffers[b], 5000, buffers[b], 1, 4999, NULL));
        memcpy(model + 5000, model + 1, 4999);
        CONF_HOLDS(buffers[b], 0, model, sizeof model);
    }
    conf_close(runtime);
}

static void fills(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    enum { size = 100000 };
    hd_buffer *buffers[2];
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), size, &buffers[0]));
    CONF_OK(hd_alloc_host(runtime, size, &buffers[1]));
    static uint32_t model[size / 4];
    for (int b = 0; b < 2; b++) {
        hd_ticket ticket = {NULL, 0};
        CONF_OK(hd_fill(buffers[b], 0, 0, size, &ticket));
        memset(model, 0, size);
        conf_random r = {9};
        for (uint32_t i = 1; i <= 60; i++) {
            size_t offset = conf_below(&r, size / 4), n = conf_below(&r, size / 4 - offset + 1);
            n = i % 3 == 0 && n > 5 ? 5 : n;
            uint32_t word = i * 0x01234567u;
            CONF_OK(hd_fill(buffers[b], offset * 4, word, n * 4, &ticket));
            for (size_t j = 0; j < n; j++) {
                model[offset + j] = word;
            }
        }
        CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
        CONF_HOLDS(buffers[b], 0, model, size);
    }
    conf_close(runtime);
}

static void handles_go_stale(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_lane *lane = conf_default_lane(runtime, 0);
    conf_kernels k = conf_builtins(runtime);
    uint8_t bytes[64];
    for (int round = 0; round < 50; round++) {
        hd_buffer *stale = NULL, *fresh = NULL;
        if (round % 2 == 0) {
            CONF_OK(hd_alloc(lane, 64, &stale));
        } else {
            CONF_OK(hd_alloc_host(runtime, 64, &stale));
        }
        CONF_OK(hd_fill(stale, 0, 1, 64, NULL));
        hd_free(stale);
        hd_free(stale);
        CONF_OK(hd_alloc(lane, 64, &fresh)); /* may get the same place */
        CONF_TRUE(fresh != stale);
        CONF_OK(hd_fill(fresh, 0, 0x22222222u, 64, NULL));
        hd_free(stale);
        CONF_FAILS(hd_write(stale, 0, bytes, 1), HD_ERROR_HANDLE);
        CONF_FAILS(hd_read(stale, 0, bytes, 1), HD_ERROR_HANDLE);
        CONF_FAILS(hd_fill(stale, 0, 7, 4, NULL), HD_ERROR_HANDLE);
        CONF_FAILS(hd_copy(stale, 0, fresh, 0, 4, NULL), HD_ERROR_HANDLE);
        CONF_FAILS(hd_copy(fresh, 0, stale, 0, 4, NULL), HD_ERROR_HANDLE);
        CONF_FAILS(hd_buffer_wait(stale, HD_READ, 0), HD_ERROR_HANDLE);
        CONF_FAILS(conf_fill(lane, k, stale, 0, 4, 7, NULL), HD_ERROR_HANDLE);
        void *p = bytes;
        CONF_FAILS(hd_map(stale, HD_READ, &p), HD_ERROR_HANDLE);
        hd_unmap(stale);
        CONF_TRUE(p == bytes);
        CONF_EQUAL(hd_buffer_size(stale), 0);
        CONF_EQUAL(hd_buffer_device(stale), -2);
        CONF_EQUAL(hd_buffer_address(stale), 0);
        CONF_EQUAL(hd_buffer_size(fresh), 64);
        CONF_FILLED(fresh, 0, 0x22222222u, 64);
        hd_free(fresh);
    }
    /* a lane or a kernel is no buffer, and read-only memory is no destination */
    CONF_FAILS(hd_read((hd_buffer *)(void *)k.fill, 0, bytes, 1), HD_ERROR_HANDLE);
    void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CONF_TRUE(page != MAP_FAILED);
    hd_free(page);
    munmap(page, 4096);
    conf_close(runtime);
}

static void memory_is_reused(void **state)
{
    (void)state;
    /* far more than the memory of the device in all, but not at once */
    hd_runtime *runtime = conf_open("host_memory=64M");
    hd_device_info info = {.size = sizeof info};
    hd_lane *lane = conf_default_lane(runtime, 0);
    size_t most = 0;
    for (uint32_t i = 0; i < (CONF_TSAN ? 20 : 100); i++) {
        hd_buffer *buffer = NULL;
        CONF_OK(hd_alloc(lane, 12000000, &buffer));
        CONF_OK(hd_fill(buffer, 0, i, 12000000, NULL));
        if (i % 10 == 0) {
            CONF_FILLED(buffer, 11999000, i, 1000);
        }
        hd_free(buffer);
        CONF_OK(hd_device_get_info(runtime, 0, &info));
        most = info.memory_mapped_bytes > most ? info.memory_mapped_bytes : most;
    }
    CONF_TRUE(most >= 12000000);
    CONF_TRUE(most <= 64u << 20 || !info.is_host);
    conf_close(runtime);
}

static void out_of_memory_is_an_error_and_passes(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_memory=64M");
    if (!conf_is_host(runtime)) {
        conf_close(runtime);
        skip(); /* would take memory of a GPU that others may use */
    }
    hd_lane *lane = conf_default_lane(runtime, 0);
    for (int round = 0; round < 3; round++) {
        hd_buffer *buffers[100], *none = NULL;
        int n = 0;
        hd_status status = HD_OK;
        while (n < 100 && (status = hd_alloc(lane, 4 << 20, &buffers[n])) == HD_OK) {
            CONF_OK(hd_fill(buffers[n], 0, (uint32_t)n, 4 << 20, NULL));
            n++;
        }
        CONF_FAILS(status, HD_ERROR_MEMORY);
        CONF_TRUE(n >= 12 && n <= 16);
        CONF_FAILS(hd_alloc(lane, 65 << 20, &none), HD_ERROR_MEMORY);
        CONF_TRUE(none == NULL);
        for (int i = 0; i < n; i++) {
            CONF_FILLED(buffers[i], (4 << 20) - 64, (uint32_t)i, 64);
        }
        hd_free(buffers[3]);
        CONF_OK(hd_alloc(lane, 4 << 20, &buffers[3]));
        for (int i = 0; i < n; i++) {
            hd_free(buffers[i]);
        }
    }
    conf_close(runtime);
}

static void maps_pinned_memory(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    conf_slow slow;
    conf_slow_make(&slow, runtime, 0);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *pinned = NULL, *device = NULL;
    enum { words = 5000 };
    CONF_OK(hd_alloc_host(runtime, words * 4, &pinned));
    CONF_OK(hd_alloc(lane, words * 4, &device));
    for (uint32_t round = 1; round < 10; round++) {
        uint32_t *p = NULL;
        /* a kernel reads the bytes that the program writes */
        CONF_OK(hd_map(pinned, HD_WRITE, (void **)&p));
        for (uint32_t i = 0; i < words; i++) {
            p[i] = round * 10000 + i;
        }
        hd_unmap(pinned);
        CONF_OK(hd_fill(device, 0, 0, words * 4, NULL));
        conf_slow_run(&slow, lane, device, 0, 2, NULL);
        CONF_OK(conf_copy(lane, slow.kernels, device, 0, pinned, 0, words, NULL));
        /* mapping to write waits for the reader */
        CONF_OK(hd_map(pinned, HD_READ_WRITE, (void **)&p));
        CONF_EQUAL(p[words - 1], round * 10000 + words - 1);
        memset(p, 0xff, words * 4);
        hd_unmap(pinned);
        CONF_OK(conf_copy(lane, slow.kernels, pinned, 4, device, 0, words - 1, NULL));
        /* mapping to read waits for the writer */
        CONF_OK(hd_map(pinned, HD_READ, (void **)&p));
        CONF_EQUAL(p[0], 0xffffffffu);
        for (uint32_t i = 1; i < words; i++) {
            CONF_EQUAL(p[i], round * 10000 + i - 1);
        }
        hd_unmap(pinned);
        CONF_OK(hd_buffer_wait(pinned, HD_READ_WRITE, 0));
    }
    /* mapped several times, freed while mapped */
    void *a = NULL, *b = NULL;
    CONF_OK(hd_map(pinned, HD_READ, &a));
    CONF_OK(hd_map(pinned, HD_READ, &b));
    CONF_TRUE(a == b);
    hd_unmap(pinned);
    hd_free(pinned);
    hd_unmap(pinned);
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_buffer");
    const struct CMUnitTest tests[] = {
        CONF_CASE(facts_of_buffers),
        CONF_CASE(writes_and_reads_ranges),
        CONF_CASE(large_writes_and_reads),
        CONF_CASE(zero_bytes_are_nothing),
        CONF_CASE(ranges_are_checked),
        CONF_CASE(copies_in_one_buffer),
        CONF_CASE(fills),
        CONF_CASE(handles_go_stale),
        CONF_CASE(memory_is_reused),
        CONF_CASE(out_of_memory_is_an_error_and_passes),
        CONF_CASE(maps_pinned_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
