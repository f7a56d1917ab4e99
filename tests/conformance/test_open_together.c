/* test_open_together.c - hd_open and hd_close make and give back the contexts of all devices at the
 * same time.
 *
 * Promise: hd_open and hd_close work on all devices at once; a device that fails leaves no trace.
 *
 * The steps of the devices meet in the wrapped functions: none continues before all have begun.
 *
 * Threads: the main one, and those of the library in the wrapped functions.
 * Locks: none. The threads share only atomic data.
 */
#include "workers.h"

#include <stdatomic.h>
#include "base/error.h"
#include "engine/engine.h"
#include "memory/arena.h"

enum { DEVICES = 3 };

/* A step of all devices. */
typedef struct meeting {
    atomic_int begun;
    bool wanted; /* they wait for each other */
    int fails;   /* the device that fails; -1: none */
} meeting;

static meeting making = {.fails = -1}, equipping = {.fails = -1}, destroying = {.fails = -1};

static void expect_all(meeting *m, bool wanted, int fails)
{
    atomic_store(&m->begun, 0);
    m->wanted = wanted;
    m->fails = fails;
}

/* True: this device must fail. */
static bool meet(meeting *m, int device)
{
    atomic_fetch_add(&m->begun, 1);
    while (m->wanted && atomic_load(&m->begun) < DEVICES) {
        conf_sleep_ms(1);
    }
    return m->fails == device;
}

hd_status __real_hdi_device_attach(hdi_device *device);
hd_status __real_hdi_arena_create(const hdi_arena_config *config, hdi_arena **out);
hd_status __real_hdi_arena_destroy(hdi_arena *arena, bool abandoned);
hd_status __wrap_hdi_device_attach(hdi_device *device);
hd_status __wrap_hdi_arena_create(const hdi_arena_config *config, hdi_arena **out);
hd_status __wrap_hdi_arena_destroy(hdi_arena *arena, bool abandoned);

/* A device is made. */
hd_status __wrap_hdi_device_attach(hdi_device *device)
{
    bool fails = meet(&making, device->index);
    return fails ? hdi_fail(HD_ERROR_DRIVER, "hd_open: device %d is not made", device->index)
                 : __real_hdi_device_attach(device);
}

/* The device gets its arena. */
hd_status __wrap_hdi_arena_create(const hdi_arena_config *config, hdi_arena **out)
{
    bool fails = meet(&equipping, config->index);
    hd_status status = __real_hdi_arena_create(config, out);
    return fails ? hdi_fail(HD_ERROR_MEMORY, "hd_open: device %d is not equipped", config->index) : status;
}

/* The device's arena is given back. */
hd_status __wrap_hdi_arena_destroy(hdi_arena *arena, bool abandoned)
{
    meet(&destroying, 0);
    return __real_hdi_arena_destroy(arena, abandoned);
}

static void all_devices_at_the_same_time(void **state)
{
    (void)state;
    if (conf_on_gpus) { /* the machine may provide fewer of them */
        skip();
    }
    const char *placement = getenv("HEDDLE_PLACEMENT");
    bool threads = placement == NULL || strcmp(placement, "inline") != 0,
         workers = threads && placement != NULL && strcmp(placement, "process") == 0;
    expect_all(&making, threads, -1);
    expect_all(&equipping, threads, -1);
    expect_all(&destroying, false, -1);
    hd_runtime *runtime = conf_open_with("host_devices=%d devices=0:1:2", DEVICES);
    CONF_EQUAL(atomic_load(&making.begun), workers ? 0 : DEVICES);
    CONF_EQUAL(atomic_load(&equipping.begun), DEVICES);
    for (int d = 0; d < DEVICES; d++) {
        wk_works(runtime, d);
    }
    expect_all(&destroying, threads, -1);
    conf_close(runtime);
    CONF_EQUAL(atomic_load(&destroying.begun), DEVICES);
}

/* Each device fails in turn, in each step. The message is that of the failed device; if several
 * fail, of the first one. */
static void one_that_fails_leaves_nothing_behind(void **state)
{
    (void)state;
    if (conf_on_gpus) { /* the machine may provide fewer of them */
        skip();
    }
    const char *placement = getenv("HEDDLE_PLACEMENT");
    bool workers = placement != NULL && strcmp(placement, "process") == 0;
    wk_usage before = wk_use();
    for (int fails = 0; fails < 2 * DEVICES + 1; fails++) {
        int device = fails % DEVICES;
        bool equips = workers || fails >= DEVICES;
        char text[64], settings[64];
        expect_all(&making, false, equips ? -1 : device);
        expect_all(&equipping, false, equips ? device : -1);
        snprintf(text, sizeof text, "device %d is not %s", device, equips ? "equipped" : "made");
        snprintf(settings, sizeof settings, "host_devices=%d", DEVICES);
        hd_runtime *runtime = NULL;
        CONF_FAILS_WITH(conf_try_open(settings, &runtime), equips ? HD_ERROR_MEMORY : HD_ERROR_DRIVER, text);
        wk_await_threads(before.threads);
        wk_usage after = wk_use();
        CONF_EQUAL(after.descriptors, before.descriptors);
        CONF_EQUAL(after.children, before.children);
    }
    expect_all(&making, false, -1);
    expect_all(&equipping, false, -1);
    hd_runtime *runtime = conf_open("");
    wk_works(runtime, 0);
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_open_together");
    const struct CMUnitTest tests[] = {
        CONF_CASE(all_devices_at_the_same_time),
        CONF_CASE(one_that_fails_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
