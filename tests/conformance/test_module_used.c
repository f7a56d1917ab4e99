/* test_module_used.c - code is loaded on a device at its first use there.
 *
 * Promise: A module loads with the first launch on a device, or on all with module_loading=eager.
 *
 * The cases count, at the ports and by device, the requests to load and to look up. They also do so
 * with module_loading=eager, after a restart, and if loading fails on a device.
 *
 * Threads: the main one, and some that launch at the same time.
 * Locks: none.
 */
#include "workers.h"

#include <stdatomic.h>
#include "engine/engine.h"

enum { DEVICES = 3, words = 1000, launchers = 6 };

static atomic_int loads[HDI_DEVICES_MAX], lookups[HDI_DEVICES_MAX];
static int fails_on = -1;
static const hdi_port_calls *real;

static hdi_device *devices[HDI_DEVICES_MAX];

static int device_of(const hdi_port *port)
{
    for (int i = 0; i < HDI_DEVICES_MAX; i++) {
        if (devices[i] != NULL && devices[i]->port == port) {
            return i;
        }
    }
    return HDI_DEVICES_MAX - 1;
}

static hdi_answer load(hdi_port *port, const hdi_code *code, uint64_t *out, char *log)
{
    int device = device_of(port);
    atomic_fetch_add(&loads[device], 1);
    if (device == fails_on) {
        return (hdi_answer){HDCU_ERROR_NO_BINARY_FOR_GPU, "cuModuleLoadDataEx"};
    }
    return real->load(port, code, out, log);
}

static hdi_answer look_up(hdi_port *port, uint64_t module, const char *name, uint32_t number, bool params,
                          hdi_kernel_facts *out)
{
    atomic_fetch_add(&lookups[device_of(port)], 1);
    return real->kernel(port, module, name, number, params, out);
}

/* Opens a runtime whose ports count. */
static hd_runtime *open_counted(const char *more)
{
    static hdi_port_calls counted;
    hd_runtime *runtime = conf_open_with("host_devices=%d %s", DEVICES, more);
    for (int i = 0; i < HDI_DEVICES_MAX; i++) {
        devices[i] = i < hd_device_count(runtime) ? runtime->devices[i] : NULL;
        atomic_store(&loads[i], 0);
        atomic_store(&lookups[i], 0);
    }
    fails_on = -1;
    real = devices[0]->port->calls;
    counted = *real;
    counted.load = load;
    counted.kernel = look_up;
    for (int i = 0; i < hd_device_count(runtime); i++) {
        devices[i]->port->calls = &counted;
    }
    return runtime;
}

static void expect_counts_at(const int wanted_loads[DEVICES], const int wanted_lookups[DEVICES], int line)
{
    for (int i = 0; i < DEVICES; i++) {
        if (loads[i] != wanted_loads[i] || lookups[i] != wanted_lookups[i]) {
            conf_fail_at(__FILE__, line, "device %d: %d loads and %d look-ups, not %d and %d", i, loads[i], lookups[i],
                         wanted_loads[i], wanted_lookups[i]);
        }
    }
}

#define COUNTS(...) expect_counts_at(__VA_ARGS__, __LINE__)
#define NUMBERS(...) ((const int[DEVICES]){__VA_ARGS__})

static void fill_on(hd_runtime *runtime, int device, hd_kernel *fill, uint32_t value)
{
    hd_lane *lane = conf_default_lane(runtime, device);
    hd_buffer *x = NULL;
    CONF_OK(hd_alloc(lane, words * 4, &x));
    hd_arg args[] = {hd_out(x), hd_u64(words), hd_u32(value)};
    CONF_OK(hd_launch(lane, fill, conf_grid(words, 128), conf_dims(128, 1, 1), 0, args, 3, NULL));
    CONF_FILLED(x, 0, value, words * 4);
    hd_free(x);
}

static void code_comes_with_the_first_launch(void **state)
{
    (void)state;
    hd_runtime *runtime = open_counted("");
    CONF_NEED_DEVICES(runtime, DEVICES);
    hd_module *module = NULL;
    hd_kernel *fill = NULL, *copy = NULL;
    CONF_OK(hd_module_get_builtin(runtime, &module));
    COUNTS(NUMBERS(1, 0, 0), NUMBERS(0, 0, 0)); /* the load checks the image */
    CONF_OK(hd_kernel_get(module, "hd_fill_u32", &fill));
    COUNTS(NUMBERS(1, 0, 0), NUMBERS(1, 0, 0));
    fill_on(runtime, 2, fill, 1);
    COUNTS(NUMBERS(1, 0, 1), NUMBERS(1, 0, 1));
    for (int i = 0; i < 3; i++) {
        fill_on(runtime, 2, fill, 2);
        fill_on(runtime, 0, fill, 3);
    }
    COUNTS(NUMBERS(1, 0, 1), NUMBERS(1, 0, 1));
    CONF_OK(hd_kernel_get(module, "hd_copy_u32", &copy));
    COUNTS(NUMBERS(1, 0, 1), NUMBERS(2, 0, 1));
    fill_on(runtime, 1, fill, 4);
    COUNTS(NUMBERS(1, 1, 1), NUMBERS(2, 1, 1));
    conf_close(runtime);
    /* or at once */
    runtime = open_counted("module_loading=eager");
    CONF_OK(hd_module_get_builtin(runtime, &module));
    COUNTS(NUMBERS(1, 1, 1), NUMBERS(0, 0, 0));
    CONF_OK(hd_kernel_get(module, "hd_fill_u32", &fill));
    COUNTS(NUMBERS(1, 1, 1), NUMBERS(1, 1, 1));
    fill_on(runtime, 1, fill, 4);
    COUNTS(NUMBERS(1, 1, 1), NUMBERS(1, 1, 1));
    conf_close(runtime);
}

typedef struct launcher {
    pthread_t thread;
    hd_runtime *runtime;
    hd_kernel *fill;
    int number;
} launcher;

static void *launches(void *argument)
{
    launcher *l = argument;
    fill_on(l->runtime, 1 + l->number % 2, l->fill, (uint32_t)l->number);
    return NULL;
}

/* Several threads at once, with a module of the program that is unloaded and loaded again: its
 * structures are reused. */
static void once_for_several_threads(void **state)
{
    (void)state;
    hd_runtime *runtime = open_counted("");
    CONF_NEED_DEVICES(runtime, DEVICES);
    wk_kernels k = wk_load(runtime);
    WK_NEED_KERNELS(runtime, k);
    for (int round = 1; round <= 3; round++) {
        CONF_EQUAL(loads[1], round - 1);
        hd_buffer *y = NULL;
        CONF_OK(hd_alloc(conf_default_lane(runtime, 1), words * 4, &y));
        CONF_OK(hd_fill(y, 0, 1, words * 4, NULL));
        CONF_OK(wk_add_one(conf_default_lane(runtime, 1), k, y, words, NULL));
        CONF_FILLED(y, 0, 2, words * 4);
        CONF_EQUAL(loads[1], round);
        hd_free(y);
        hd_module_unload(k.module);
        CONF_FAILS(wk_launch_one(conf_default_lane(runtime, 2), k.hello, y, NULL), HD_ERROR_HANDLE);
        k = wk_load(runtime);
    }
    launcher all[launchers];
    hd_kernel *fill = conf_builtins(runtime).fill;
    int loads_before = loads[2], lookups_before = lookups[2];
    for (int i = 0; i < launchers; i++) {
        all[i] = (launcher){.runtime = runtime, .fill = fill, .number = i};
        CONF_EQUAL(pthread_create(&all[i].thread, NULL, launches, &all[i]), 0);
    }
    for (int i = 0; i < launchers; i++) {
        CONF_EQUAL(pthread_join(all[i].thread, NULL), 0);
    }
    CONF_EQUAL(loads[2], loads_before + 1);
    CONF_EQUAL(lookups[2], lookups_before + 1);
    conf_close(runtime);
}

/* A device that cannot load the module refuses the launch. The others work, and this one may work
 * later. */
static void a_device_that_cannot_load_says_so(void **state)
{
    (void)state;
    hd_runtime *runtime = open_counted("");
    CONF_NEED_DEVICES(runtime, DEVICES);
    hd_kernel *fill = conf_builtins(runtime).fill;
    fails_on = 1;
    for (int i = 0; i < 2; i++) {
        hd_buffer *x = NULL;
        hd_lane *lane = conf_default_lane(runtime, 1);
        CONF_OK(hd_alloc(lane, words * 4, &x));
        hd_arg args[] = {hd_out(x), hd_u64(words), hd_u32(1)};
        CONF_FAILS_WITH(hd_launch(lane, fill, conf_grid(words, 128), conf_dims(128, 1, 1), 0, args, 3, NULL),
                        HD_ERROR_IMAGE, "hd_launch: device 1 cannot load the image");
        hd_free(x);
        fill_on(runtime, 2, fill, 6);
    }
    fails_on = -1;
    fill_on(runtime, 1, fill, 7);
    fails_on = 0; /* the first one reports it for all */
    size_t size = 0;
    const void *image = wk_image(runtime, &size);
    hd_module *module = NULL;
    if (image != NULL) {
        CONF_FAILS(hd_module_load(runtime, image, size, &module), HD_ERROR_IMAGE);
    }
    conf_close(runtime);
}

/* A restart loads the modules that the device had loaded, and nothing else. */
static void a_device_comes_back_with_what_it_had(void **state)
{
    (void)state;
    hd_runtime *runtime = open_counted("");
    CONF_NEED_DEVICES(runtime, DEVICES);
    if (!conf_is_process(runtime)) {
        conf_close(runtime);
        skip();
    }
    hd_module *module = NULL;
    hd_kernel *fill = NULL, *copy = NULL;
    CONF_OK(hd_module_get_builtin(runtime, &module));
    CONF_OK(hd_kernel_get(module, "hd_fill_u32", &fill));
    CONF_OK(hd_kernel_get(module, "hd_copy_u32", &copy));
    fill_on(runtime, 1, fill, 1);
    COUNTS(NUMBERS(1, 1, 0), NUMBERS(2, 1, 0));
    for (int device = 0; device < DEVICES; device++) {
        wk_lose_now(runtime, device);
        CONF_OK(hd_device_restart(runtime, device));
    }
    COUNTS(NUMBERS(2, 2, 0), NUMBERS(4, 2, 0));
    fill_on(runtime, 1, fill, 1);
    COUNTS(NUMBERS(2, 2, 0), NUMBERS(4, 2, 0));
    fill_on(runtime, 2, fill, 1);
    COUNTS(NUMBERS(2, 2, 1), NUMBERS(4, 2, 1));
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_module_used");
    const struct CMUnitTest tests[] = {
        CONF_CASE(code_comes_with_the_first_launch),
        CONF_CASE(once_for_several_threads),
        CONF_CASE(a_device_that_cannot_load_says_so),
        CONF_CASE(a_device_comes_back_with_what_it_had),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
