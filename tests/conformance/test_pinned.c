/* test_pinned.c - pinned host memory: reuse without pinning again, the limit, memory that work
 * still uses, and Heddle's own need.
 *
 * Promise: Pinned memory is reused within its limit, and not changed while a copy uses it.
 *
 * Threads: the main one, and those of the storm.
 * Locks: none.
 * Always: the next owner does not change memory that a copy still uses, however that owner begins.
 */
#include "pool.h"

#define MIB POOL_MIB

static hd_buffer *take(hd_runtime *runtime, size_t size)
{
    hd_buffer *b = NULL;
    CONF_OK(hd_alloc_host(runtime, size, &b));
    CONF_EQUAL(hd_buffer_size(b), size);
    CONF_EQUAL(hd_buffer_device(b), -1);
    return b;
}

static void *map(hd_buffer *b, hd_access access)
{
    void *p = NULL;
    CONF_OK(hd_map(b, access, &p));
    CONF_EQUAL((uintptr_t)p % 4096, 0);
    return p;
}

static void is_pinned_once(void **state)
{
    (void)state;
    /* nothing is given back meanwhile */
    hd_runtime *runtime = conf_open("pinned_limit=256M memory_idle=0");
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *x = NULL;
    CONF_OK(hd_alloc(lane, 20 * MIB, &x));
    static uint32_t got[MIB];
    uint64_t calls = 0;
    for (uint32_t i = 0; i < 200; i++) {
        size_t size = i % 3 == 0 ? 20 * MIB : 1 + i * 5000;
        hd_buffer *b = take(runtime, size);
        uint32_t *p = map(b, HD_WRITE);
        p[0] = i;
        memset((char *)p + size - 1, (int)i, 1);
        CONF_OK(hd_copy(x, 0, b, 0, size, NULL));
        CONF_OK(hd_read(x, 0, got, 4));
        CONF_EQUAL(got[0] & 0xff, i & 0xff);
        CONF_OK(hd_read(x, size - 1, got, 1));
        CONF_EQUAL(got[0] & 0xff, i & 0xff);
        hd_free(b);
        if (i == 20) {
            calls = pool_stats(runtime, HD_DEVICE_HOST).driver_calls;
        }
    }
    hd_memory_stats s = pool_stats(runtime, HD_DEVICE_HOST);
    CONF_EQUAL(s.driver_calls, calls);
    CONF_EQUAL(s.allocations, 200);
    CONF_EQUAL(s.frees, 200);
    CONF_EQUAL(s.live_count, 0);
    CONF_EQUAL(s.live_bytes, 0);
    CONF_EQUAL(s.limit_bytes, 256 * MIB);
    CONF_TRUE(s.reserved_bytes >= 20 * MIB && s.reserved_bytes <= 64 * MIB);
    conf_close(runtime);
}

static void trim_gives_idle_memory_back(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_buffer *a = take(runtime, 20 * MIB), *b = take(runtime, 30 * MIB);
    memset(map(b, HD_WRITE), 7, 30 * MIB);
    hd_free(a);
    size_t freed = 1;
    CONF_OK(hd_memory_trim(runtime, HD_DEVICE_HOST, 64 * MIB, &freed));
    CONF_EQUAL(freed, 0);
    CONF_OK(hd_memory_trim(runtime, HD_DEVICE_HOST, 0, &freed));
    CONF_EQUAL(freed, 20 * MIB);
    CONF_EQUAL(pool_stats(runtime, HD_DEVICE_HOST).returned_bytes, 20 * MIB);
    CONF_EQUAL(((char *)map(b, HD_READ))[30 * MIB - 1], 7);
    hd_free(b);
    CONF_OK(hd_memory_trim(runtime, HD_DEVICE_HOST, 0, &freed));
    CONF_EQUAL(freed, 30 * MIB);
    CONF_EQUAL(pool_stats(runtime, HD_DEVICE_HOST).reserved_bytes, 0);
    conf_close(runtime);
}

static void the_limit_says_what_is_held(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("pinned_limit=16M");
    hd_buffer *none = (hd_buffer *)(uintptr_t)0x1230;
    hd_buffer *a = take(runtime, 10 * MIB);
    CONF_FAILS_WITH(hd_alloc_host(runtime, 7 * MIB, &none), HD_ERROR_HOST_MEMORY,
                    "hd_alloc_host: pinned memory: 7 MiB: 10 MiB of at most 16 MiB are held: live 10 MiB");
    CONF_TRUE(strstr(hd_message(), "; holders: ") != NULL && strstr(hd_message(), "10 MiB in 1") != NULL);
    CONF_TRUE(none == (hd_buffer *)(uintptr_t)0x1230);
    hd_buffer *b = take(runtime, 6 * MIB);
    hd_free(a);
    a = take(runtime, 10 * MIB);
    hd_free(a);
    hd_free(b);
    a = take(runtime, 16 * MIB); /* idle memory makes room for a larger block */
    hd_memory_stats s = pool_stats(runtime, HD_DEVICE_HOST);
    CONF_EQUAL(s.reserved_bytes, 16 * MIB);
    CONF_EQUAL(s.reserved_peak_bytes, 16 * MIB);
    CONF_EQUAL(s.failures, 1);

    /* Heddle's own pinned memory counts under the same limit, and none is left for it */
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *x = NULL;
    uint32_t word = 5;
    const hd_alloc_options keep = {.size = sizeof keep, .flags = HD_ALLOC_KEEP};
    CONF_FAILS(hd_alloc_with(lane, MIB, &keep, &none), HD_ERROR_HOST_MEMORY);
    CONF_FAILS(hd_alloc_unified(lane, MIB, &none), HD_ERROR_HOST_MEMORY);
    CONF_OK(hd_alloc(lane, MIB, &x));
    CONF_FAILS(hd_write(x, 0, &word, 4), HD_ERROR_HOST_MEMORY);
    CONF_FAILS(hd_read(x, 0, &word, 4), HD_ERROR_HOST_MEMORY);
    CONF_EQUAL(pool_stats(runtime, 0).live_count, 1);
    hd_free(a);
    CONF_OK(hd_write(x, 0, &word, 4));
    CONF_OK(hd_alloc_with(lane, MIB, &keep, &a));
    CONF_OK(hd_alloc_unified(lane, MIB, &b));
    CONF_EQUAL(pool_stats(runtime, HD_DEVICE_HOST).live_count, 0);
    CONF_TRUE(pool_stats(runtime, HD_DEVICE_HOST).taken_bytes >= 3 * MIB);
    conf_close(runtime);

    runtime = conf_open("pinned_limit=50%");
    CONF_TRUE(pool_stats(runtime, HD_DEVICE_HOST).limit_bytes > 16 * MIB);
    conf_close(runtime);
}

/* ---- memory that work still uses ---- */

enum { SIZE = 4 << 20, WAYS = 7 };

/* The first use of fresh memory, which makes all of it 0x77. */
static void begin(hd_runtime *runtime, conf_kernels k, hd_buffer *b, int way, hd_buffer *other)
{
    hd_lane *lane = conf_default_lane(runtime, hd_device_count(runtime) - 1);
    static uint8_t data[SIZE];
    memset(data, 0x77, SIZE);
    switch (way) {
    case 0:
        memset(map(b, HD_WRITE), 0x77, SIZE);
        break;
    case 1:
        memset(map(b, HD_READ_WRITE), 0x77, SIZE);
        break;
    case 2:
        memset(hd_element(b, 0, SIZE, HD_WRITE), 0x77, SIZE);
        break;
    case 3:
        CONF_OK(hd_write(b, 0, data, SIZE));
        break;
    case 4:
        CONF_OK(hd_fill(b, 0, 0x77777777, SIZE, NULL));
        break;
    case 5:
        CONF_OK(conf_fill(lane, k, b, 0, SIZE / 4, 0x77777777, NULL));
        break;
    default:
        CONF_OK(hd_fill(other, 0, 0x77777777, SIZE, NULL));
        CONF_OK(hd_copy(b, 0, other, 0, SIZE, NULL));
        break;
    }
}

/* A copy out of freed memory delivers the bytes of the moment of the free, and one into it changes
 * no other buffer. */
static void memory_in_use_has_two_owners(void **state)
{
    (void)state;
    static const char *const settings[] = {"pinned_limit=4M", "pinned_limit=4M host_schedule=99",
                                           "pinned_limit=4M delay=cuMemcpyHtoDAsync:1+=3000"};
    static uint8_t old[SIZE], fresh[SIZE];
    memset(old, 0x11, SIZE);
    memset(fresh, 0x77, SIZE);
    for (size_t s = 0; s < sizeof settings / sizeof settings[0]; s++) {
        hd_runtime *runtime = conf_open(settings[s]);
        conf_slow slow;
        conf_slow_make(&slow, runtime, 0);
        hd_lane *lane = conf_default_lane(runtime, 0);
        hd_buffer *device = NULL, *other = NULL;
        CONF_OK(hd_alloc(lane, SIZE, &device));
        CONF_OK(hd_alloc(conf_default_lane(runtime, hd_device_count(runtime) - 1), SIZE, &other));
        for (int round = 0; round < 2 * WAYS; round++) {
            bool outward = round % 2 == 1; /* the device writes the memory */
            CONF_OK(hd_fill(device, 0, 0x11111111, SIZE, NULL));
            hd_buffer *b = take(runtime, SIZE);
            memset(map(b, HD_WRITE), outward ? 0x22 : 0x11, SIZE);
            CONF_OK(hd_fill(device, 0, conf_bits(0), 4, NULL));
            conf_slow_run(&slow, lane, device, 0, 5, NULL);
            if (outward) {
                CONF_OK(hd_copy(b, 4, device, 4, SIZE - 4, NULL)); /* behind the long one */
            } else {
                CONF_OK(hd_copy(device, 0, b, 0, SIZE, NULL));
            }
            hd_free(b);
            b = take(runtime, SIZE);
            begin(runtime, slow.kernels, b, round / 2, other);
            CONF_OK(hd_buffer_wait(device, HD_WRITE, POOL_WAIT));
            CONF_SAME(map(b, HD_READ), fresh, SIZE);
            hd_free(b);
            /* the limit leaves nothing for hd_read meanwhile */
            CONF_OK(hd_memory_trim(runtime, HD_DEVICE_HOST, 0, NULL));
            b = take(runtime, SIZE);
            CONF_OK(hd_copy(b, 0, device, 0, SIZE, NULL));
            CONF_SAME((uint8_t *)map(b, HD_READ) + 4, old + 4, SIZE - 4);
            hd_free(b);
        }
        CONF_TRUE(pool_stats(runtime, HD_DEVICE_HOST).from_waited > 0);
        CONF_EQUAL(pool_stats(runtime, HD_DEVICE_HOST).reserved_peak_bytes, SIZE);
        conf_slow_free(&slow);
        conf_close(runtime);
    }
}

/* At the limit an allocation waits for work that still uses freed memory, even if no free block is
 * large enough. */
static void waits_for_freed_memory(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("pinned_limit=8M memory_timeout=60000");
    conf_slow slow;
    conf_slow_make(&slow, runtime, 0);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *device = NULL, *parts[2];
    CONF_OK(hd_alloc(lane, SIZE, &device));
    for (int round = 0; round < 5; round++) {
        CONF_OK(hd_fill(device, 0, 0, SIZE, NULL));
        conf_slow_run(&slow, lane, device, 0, 5, NULL);
        for (int i = 0; i < 2; i++) {
            parts[i] = take(runtime, SIZE);
            CONF_OK(hd_copy(parts[i], 0, device, 0, SIZE, NULL));
        }
        hd_free(parts[0]);
        hd_free(parts[1]);
        hd_buffer *all = take(runtime, 2 * SIZE);
        memset(map(all, HD_WRITE), round, 2 * SIZE);
        CONF_EQUAL(((char *)map(all, HD_READ))[SIZE], round);
        hd_free(all);
    }
    CONF_TRUE(pool_stats(runtime, HD_DEVICE_HOST).reserved_peak_bytes <= 8 * MIB);
    conf_close(runtime);
}

static void closes_with_freed_memory_in_use(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    conf_slow slow;
    conf_slow_make(&slow, runtime, 0);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *device = NULL;
    CONF_OK(hd_alloc(lane, SIZE, &device));
    CONF_OK(hd_fill(device, 0, 0, SIZE, NULL));
    for (int i = 0; i < 4; i++) {
        conf_slow_run(&slow, lane, device, 0, 5, NULL);
        hd_buffer *b = take(runtime, SIZE);
        CONF_OK(hd_copy(device, 0, b, 0, SIZE, NULL));
        CONF_OK(hd_copy(b, 0, device, 0, SIZE, NULL));
        if (i % 2 == 0) {
            hd_free(b);
        }
    }
    conf_close(runtime);
}

/* ---- many threads ---- */

enum { THREADS = 16, SLOTS = 12, STEPS = CONF_TSAN ? 60 : 250 };

static _Atomic uint64_t above, refused;
static hd_buffer *shared; /* on device 0: a part for each thread */

static void *storm(void *argument)
{
    pool_thread *t = argument;
    hd_buffer *slots[SLOTS] = {NULL};
    uint8_t points[SLOTS] = {0};
    size_t sizes[SLOTS] = {0};
    for (int step = 0; step < STEPS; step++) {
        size_t i = conf_below(&t->random, SLOTS);
        if (slots[i] == NULL) {
            size_t size = pool_size(&t->random, 3 * MIB);
            hd_status status = hd_alloc_host(t->runtime, size, &slots[i]);
            if (status != HD_OK) {
                CONF_EQUAL(status, HD_ERROR_HOST_MEMORY);
                CONF_TRUE(strstr(hd_message(), "pinned_limit") != NULL);
                atomic_fetch_add(&refused, 1);
                continue;
            }
            sizes[i] = size;
            points[i] = (uint8_t)conf_next(&t->random);
            memset(map(slots[i], HD_WRITE), points[i], size);
        } else {
            const uint8_t *p = map(slots[i], HD_READ);
            CONF_TRUE(p[0] == points[i] && p[sizes[i] / 2] == points[i] && p[sizes[i] - 1] == points[i]);
            if (conf_chance(&t->random, 50)) { /* it is freed while this is under way */
                CONF_OK(hd_copy(shared, (size_t)t->number * 3 * MIB, slots[i], 0, sizes[i], NULL));
            }
            hd_free(slots[i]);
            slots[i] = NULL;
        }
        hd_memory_stats s = pool_stats(t->runtime, HD_DEVICE_HOST);
        if (s.reserved_bytes > s.limit_bytes || s.taken_bytes > s.reserved_bytes) {
            atomic_fetch_add(&above, 1);
        }
    }
    for (size_t i = 0; i < SLOTS; i++) {
        hd_free(slots[i]);
    }
    return NULL;
}

static void no_byte_above_the_limit(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("pinned_limit=24M memory_timeout=1");
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), THREADS * 3 * MIB, &shared));
    pool_thread threads[THREADS];
    pool_start(threads, THREADS, runtime, conf_number_from("HEDDLE_SEED", 5), storm, NULL);
    pool_join(threads, THREADS);
    CONF_EQUAL(atomic_load(&above), 0);
    CONF_TRUE(atomic_load(&refused) > 0);
    hd_memory_stats s = pool_stats(runtime, HD_DEVICE_HOST);
    CONF_TRUE(s.reserved_peak_bytes <= 24 * MIB && s.reserved_peak_bytes > 12 * MIB);
    CONF_EQUAL(s.live_count, 0);
    CONF_EQUAL(s.failures, atomic_load(&refused));
    pool_consistent(runtime, HD_DEVICE_HOST, true);
    CONF_OK(hd_buffer_wait(shared, HD_WRITE, POOL_WAIT));
    CONF_OK(hd_memory_trim(runtime, HD_DEVICE_HOST, 0, NULL));
    CONF_EQUAL(pool_stats(runtime, HD_DEVICE_HOST).reserved_bytes, 0);
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_pinned");
    const struct CMUnitTest tests[] = {
        CONF_CASE(is_pinned_once),
        CONF_CASE(trim_gives_idle_memory_back),
        CONF_CASE(the_limit_says_what_is_held),
        CONF_CASE(memory_in_use_has_two_owners),
        CONF_CASE(waits_for_freed_memory),
        CONF_CASE(closes_with_freed_memory_in_use),
        CONF_CASE(no_byte_above_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
