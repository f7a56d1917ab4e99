/* test_arena_threads.c - an arena that many threads use, over the fake driver and the host
 * provider.
 *
 * Promise: Threads that share an arena never get overlapping blocks.
 * Threads: up to 16, each with a lane, that take and give; the main one reads the figures
 * meanwhile. Locks: the arena's lock.
 */
#include "arena_tools.h"

#include <pthread.h>
#include <unistd.h>
#include "base/options.h"
#include "base/wait.h"
#include "driver/driver.h"
#include "engine/providers.h"

enum { THREADS = 16, HELD = 16 };
#define RANGE_MOST ((size_t)4 << 30) /* of the arenas in this file */

typedef struct worker {
    hdi_arena *arena;
    uint32_t lane;
    int rounds;
    size_t most; /* bytes of a block */
    bool may_fail;
    int errors, failures;
} worker;

/* The owner of each 256 bytes. Only the owner writes its entry; the thread sanitizer checks that,
 * too. */
static uint8_t owner_of[RANGE_MOST / 256];
static hdcu_deviceptr arena_base;

/* Marks bytes that the worker takes or gives back. Taken bytes must be free, given ones must be its
 * own. */
static void own(worker *w, hdcu_deviceptr at, size_t bytes, bool takes)
{
    size_t from = (size_t)(at - arena_base) / 256;
    for (size_t u = from; u < from + (bytes + 255) / 256; u++) {
        w->errors += owner_of[u] != (takes ? 0 : w->lane + 1);
        owner_of[u] = takes ? (uint8_t)(w->lane + 1) : 0;
    }
}

static void *allocate_and_free(void *argument)
{
    worker *w = argument;
    uint64_t seed = w->lane * 77 + 1, position = 0;
    struct {
        hdcu_deviceptr at;
        size_t bytes;
    } held[HELD] = {{0, 0}};
    for (int i = 0; i < w->rounds + HELD; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        size_t slot = i < w->rounds ? (seed >> 33) % HELD : (size_t)(i - w->rounds);
        if (held[slot].at != 0) {
            own(w, held[slot].at, held[slot].bytes, false);
            hdi_point point = {w->lane, ++position};
            hdi_arena_free(w->arena, held[slot].at, &point, 1);
            atomic_store_explicit(&tool_finished_to[w->lane], position - position % 3, memory_order_release);
            held[slot].at = 0;
        } else if (i < w->rounds) {
            size_t bytes = 256 * (1 + (seed >> 40) % ((seed >> 20) % 16 == 0 ? w->most / 256 : 64)) - (seed >> 60);
            hdi_points points;
            if (hdi_arena_alloc(w->arena, w->lane, bytes, &held[slot].at, &points) == HD_OK) {
                hdi_points_release(&points);
                held[slot].bytes = bytes;
                own(w, held[slot].at, bytes, true);
            } else {
                held[slot].at = 0;
                w->failures++;
                w->errors += !w->may_fail;
            }
        }
        if (w->may_fail && i % 128 == 7) {
            w->errors += w->lane % 2 == 0 && hdi_arena_trim(w->arena, 0, SIZE_MAX, NULL) != HD_OK;
            w->errors += w->lane % 4 == 1 && hdi_arena_grow_ahead(w->arena, 4 * MIB, NULL) != HD_OK;
        }
    }
    return NULL;
}

static int run_threads(hdi_arena *arena, int threads, int rounds, size_t most, bool may_fail)
{
    pthread_t ids[THREADS];
    worker workers[THREADS];
    memset(owner_of, 0, sizeof owner_of);
    arena_base = hdi_arena_base(arena);
    assert_true(tool_info(arena).reserved_bytes <= RANGE_MOST);
    for (uint32_t i = 0; i < (uint32_t)threads; i++) {
        workers[i] = (worker){.arena = arena, .lane = i, .rounds = rounds, .most = most, .may_fail = may_fail};
        assert_int_equal(pthread_create(&ids[i], NULL, allocate_and_free, &workers[i]), 0);
    }
    for (int i = 0; i < 50; i++) {
        tool_check(arena);
        hdi_arena_info info = tool_info(arena);
        assert_true(info.taken_bytes + info.waiting_bytes + info.idle_bytes <= info.mapped_bytes);
        assert_true(info.mapped_bytes <= info.limit_bytes && info.mapped_peak_bytes <= info.limit_bytes);
        if (i == 25) {
            assert_ok(hdi_arena_grant(arena, 0));
        }
    }
    int failures = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        assert_int_equal(workers[i].errors, 0);
        failures += workers[i].failures;
    }
    tool_check(arena);
    assert_int_equal(tool_info(arena).taken_blocks, 0);
    return failures;
}

static void threads_share_it(void **unused)
{
    (void)unused;
    hdi_arena *arena = tool_make(256 * MIB, 0);
    run_threads(arena, 4, 3000, 2 * MIB, false);
    tool_end(arena);
}

/* The fake driver checks in each call that no more than the limit exists. */
static void the_limit_holds_in_a_storm(void **unused)
{
    (void)unused;
    hdi_arena *arena = tool_make(256 * MIB, 16 * MIB);
    int failures = run_threads(arena, THREADS, 4000, 6 * MIB, true);
    hdi_arena_info info = tool_info(arena);
    assert_true(failures > 0);
    assert_true(info.returned_bytes > 0);
    assert_true(info.mapped_peak_bytes > 12 * MIB);
    assert_int_equal(fake.misuses, 0);
    for (int i = 0; i < TOOL_LANES; i++) {
        atomic_store(&tool_finished_to[i], UINT64_MAX);
    }
    hdcu_deviceptr all;
    assert_ok(tool_take(arena, 16 * MIB, &all)); /* no memory is lost */
    tool_end(arena);
}

static void *grow(void *argument)
{
    worker *w = argument;
    hdcu_deviceptr at;
    w->errors = tool_take(w->arena, 2 * MIB, &at) != HD_OK;
    return NULL;
}

/* While one thread is inside a slow driver call, others free, and allocate blocks that fit. */
static void growth_holds_nobody_up(void **unused)
{
    (void)unused;
    hdi_arena *arena = tool_make(256 * MIB, 0);
    hdcu_deviceptr at;
    assert_ok(tool_take(arena, MIB, &at));
    worker w = {.arena = arena};
    pthread_t thread;
    atomic_store(&fake.slow_us, 500000);
    assert_int_equal(pthread_create(&thread, NULL, grow, &w), 0);
    int64_t deadline = hdi_deadline(20000000000);
    while (atomic_load(&fake.calls_under_way) == 0) {
        assert_true(hdi_clock_ns() < deadline);
        usleep(100);
    }
    for (int i = 0; i < 100; i++) {
        hdi_arena_free(arena, at, NULL, 0);
        assert_ok(tool_take(arena, MIB, &at));
    }
    /* the slow call has not returned yet */
    assert_int_equal(atomic_load(&fake.calls_under_way), 1);
    pthread_join(thread, NULL);
    assert_int_equal(w.errors, 0);
    tool_end(arena);
}

/* ---- on the host provider -------------------------------------------------------------------- */

static void works_on_the_host_provider(void **unused)
{
    (void)unused;
    hdi_options options;
    const hdi_driver *driver;
    assert_ok(hdi_options_parse("driver=host host_devices=2 host_memory=256M", &options));
    assert_ok(hdi_providers_open_driver(&options, &driver));
    hdcu_device devices[2];
    hdcu_context context;
    assert_int_equal(driver->cuDeviceGet(&devices[0], 0), 0);
    assert_int_equal(driver->cuDeviceGet(&devices[1], 1), 0);
    assert_int_equal(driver->cuDevicePrimaryCtxRetain(&context, devices[1]), 0);
    const hdi_local_port_config local = {
        .driver = driver, .device = devices[1], .context = context, .index = 1, .n_devices = 2, .devices = devices};
    tool_port = hdi_local_port_create(&local);
    assert_non_null(tool_port);
    hdi_arena_config config = {.port = tool_port, .index = 1, .finished = tool_finished};

    hdi_arena *arena;
    assert_ok(hdi_arena_create(&config, &arena));
    run_threads(arena, 4, 3000, 2 * MIB, false);
    hdcu_deviceptr at;
    assert_ok(tool_take(arena, 200 * MIB, &at));
    assert_int_equal(driver->cuCtxPushCurrent(context), 0);
    uint32_t wrote = 0x12345678, read = 0;
    assert_int_equal(driver->cuMemcpyHtoD(at + 150 * MIB, &wrote, sizeof wrote), 0);
    assert_int_equal(driver->cuMemcpyDtoH(&read, at + 150 * MIB, sizeof read), 0);
    assert_int_equal(read, wrote);
    hdcu_context popped;
    assert_int_equal(driver->cuCtxPopCurrent(&popped), 0);
    assert_status(tool_take(arena, 100 * MIB, &at), HD_ERROR_MEMORY);
    tool_check(arena);
    assert_ok(hdi_arena_destroy(arena, false));
    tool_drop_port();
    driver->cuDevicePrimaryCtxRelease(devices[1]);
    hdi_providers_close_driver(driver);
    hdi_options_release(&options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_share_it),
        cmocka_unit_test(the_limit_holds_in_a_storm),
        cmocka_unit_test(growth_holds_nobody_up),
        cmocka_unit_test(works_on_the_host_provider),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
