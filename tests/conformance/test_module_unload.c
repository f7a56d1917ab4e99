/* test_module_unload.c - remains of unloaded modules while a lane is busy.
 *
 * Promise: An unloaded module goes after its launches; parameters stay while threads read them.
 *
 * The cases count this process's descriptors (one for each module) and the
 * requests to load and to unload at the ports.
 *
 * Threads: the main one.
 * Locks: none.
 */
#include "workers.h"

#include "driver/provider.h"
#include "kernel/module.h"
#include "engine/engine.h"
#include "side.h"

enum { rounds = 40, few = 1000 }; /* words to which the launches add */

static const hdi_port_calls *real;
static int loaded; /* modules on all devices, as the ports see it */
/* how many loads will fail for lack of memory; an unload sets it to 0 */
static int refusals;
static void (*at_refusal)(void);

static hdi_answer load(hdi_port *port, const hdi_code *code, uint64_t *out, char *log)
{
    if (refusals > 0) {
        refusals--;
        at_refusal();
        return (hdi_answer){HDCU_ERROR_OUT_OF_MEMORY, "cuModuleLoadDataEx"};
    }
    hdi_answer answer = real->load(port, code, out, log);
    loaded += hdi_answered(answer);
    return answer;
}

static hdi_answer unload(hdi_port *port, uint64_t module)
{
    loaded--;
    refusals = 0;
    return real->unload(port, module);
}

/* A runtime whose ports count, with a lane that is busy until the gate opens, and a lane beside
 * it. */
typedef struct scene {
    hd_runtime *runtime;
    wk_kernels kernels; /* of a module that stays, and ran already */
    hd_lane *busy, *free;
    wk_gate gate;
    hd_buffer *y;
    int loaded, descriptors; /* after an unload with nothing in flight */
} scene;

static int descriptors(void)
{
    return wk_entries("/proc/self/fd");
}

/* `gpus_too`: the case loads nothing while the gate is shut. On GPUs the driver would wait for
 * it. */
static void begin_open(scene *s, bool gpus_too)
{
    static hdi_port_calls counted;
    /* idle memory stays until something gives it back */
    s->runtime = conf_open_with("memory_idle=0");
    s->kernels = wk_load(s->runtime);
    if (s->kernels.module == NULL || !(gpus_too || conf_is_host(s->runtime))) {
        conf_close(s->runtime);
        skip();
    }
    wk_warm(s->runtime, 0, s->kernels);
    loaded = 0;
    real = s->runtime->devices[0]->port->calls;
    counted = *real;
    counted.load = load;
    counted.unload = unload;
    for (int i = 0; i < hd_device_count(s->runtime); i++) {
        s->runtime->devices[i]->port->calls = &counted;
    }
    s->busy = conf_default_lane(s->runtime, 0);
    CONF_OK(hd_lane_create(s->runtime, 0, &s->free));
    CONF_OK(hd_alloc(s->free, few * 4, &s->y));
    CONF_OK(hd_fill(s->y, 0, 1, few * 4, NULL));
    CONF_FILLED(s->y, 0, 1, few * 4);
}

static void shut(scene *s)
{
    wk_gate_shut(&s->gate, s->runtime, s->busy, s->kernels);
    s->loaded = loaded;
    s->descriptors = descriptors();
}

static void begin(scene *s)
{
    begin_open(s, false);
    shut(s);
}

static void end(scene *s)
{
    wk_gate_open(&s->gate);
    CONF_OK(hd_lane_wait(s->busy, 60 * CONF_SECOND));
    conf_close(s->runtime);
}

static hd_module *load_one(const scene *s)
{
    size_t size = 0;
    const void *image = wk_image(s->runtime, &size);
    hd_module *module = NULL;
    CONF_OK(hd_module_load(s->runtime, image, size, &module));
    return module;
}

static void add_one(const scene *s, hd_lane *lane, hd_module *module, hd_ticket *out)
{
    wk_kernels k = {.module = module};
    CONF_OK(hd_kernel_get(module, "add_one", &k.add_one));
    CONF_OK(wk_add_one(lane, k, s->y, few, out));
}

/* Also on GPUs: neither the call nor the next work of other lanes waits for the busy lane. The
 * modules go with the next load. */
static void an_unload_waits_for_no_lane(void **state)
{
    (void)state;
    scene s;
    begin_open(&s, true);
    int before = loaded;
    hd_ticket ticket;
    hd_module *used = load_one(&s), *idle = load_one(&s);
    add_one(&s, s.free, used, &ticket);
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    CONF_TRUE(loaded > before);
    shut(&s);
    CONF_OK(hd_module_unload(used));
    CONF_OK(hd_module_unload(idle));
    CONF_EQUAL(loaded, s.runtime->provider->unload_waits ? s.loaded : before);
    CONF_OK(wk_add_one(s.free, s.kernels, s.y, few, &ticket));
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    wk_gate_open(&s.gate);
    CONF_OK(hd_lane_wait(s.busy, 60 * CONF_SECOND));
    CONF_OK(hd_module_unload(load_one(&s)));
    CONF_EQUAL(loaded, before);
    CONF_FILLED(s.y, 0, 3, few * 4);
    end(&s);
}

static const hdi_params *params_of_one(const scene *s, const char *name)
{
    hd_module *module = load_one(s);
    hd_kernel *kernel;
    CONF_OK(hd_kernel_get(module, name, &kernel));
    const hdi_params *params = hdi_kernel_params(hdi_kernel_from_handle(kernel));
    CONF_OK(hd_module_unload(module));
    return params;
}

/* A thread in hd_launch may read the parameters of a kernel whose module is unloaded meanwhile, so
 * other parameters do not take their place. */
static void parameters_stay_as_they_are(void **state)
{
    (void)state;
    scene s;
    begin_open(&s, false); /* on GPUs these two kernels take the same parameters */
    const hdi_params *first = params_of_one(&s, "stray");
    hdi_param before[2];
    CONF_EQUAL(first->n, 2);
    memcpy(before, first->of, sizeof before);
    const hdi_params *other = params_of_one(&s, "add_one"); /* as many */
    CONF_TRUE(other != first);
    CONF_EQUAL(first->n, 2);
    CONF_TRUE(memcmp(before, first->of, sizeof before) == 0);
    for (int i = 0; i < rounds; i++) { /* loaded again and again, they take no more memory */
        CONF_TRUE(params_of_one(&s, "stray") == first);
        CONF_TRUE(params_of_one(&s, "add_one") == other);
    }
    conf_close(s.runtime);
}

static void nothing_is_left_while_another_lane_is_busy(void **state)
{
    (void)state;
    scene s;
    begin(&s);
    for (int i = 0; i < rounds; i++) { /* nothing of these was ever launched */
        hd_module *module = load_one(&s);
        hd_kernel *kernel = NULL;
        CONF_OK(i % 2 ? hd_kernel_get(module, "add_one", &kernel) : HD_OK);
        CONF_OK(hd_module_unload(module));
        CONF_EQUAL(loaded, s.loaded);
        CONF_EQUAL(descriptors(), s.descriptors);
    }
    for (int i = 0; i < rounds; i++) { /* the launches of these are done */
        hd_module *module = load_one(&s);
        hd_ticket ticket;
        add_one(&s, s.free, module, &ticket);
        CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
        CONF_OK(hd_module_unload(module));
        CONF_EQUAL(loaded, s.loaded);
        CONF_EQUAL(descriptors(), s.descriptors);
    }
    CONF_FILLED(s.y, 0, 1 + rounds, few * 4);
    end(&s);
}

/* Launches stand in the busy lane, among launches of other modules. They are more than one look
 * covers. */
static void code_stays_while_its_launches_are_in_flight(void **state)
{
    (void)state;
    enum { kept = 3, launches = 200 };
    scene s;
    begin(&s);
    hd_lane *busy[kept];
    for (int i = 0; i < kept; i++) {
        busy[i] = s.busy;
        if (i == 0) { /* a lane that waits for the busy one */
            CONF_OK(hd_lane_create(s.runtime, 0, &busy[i]));
        }
        hd_module *module = load_one(&s);
        for (int n = 0; n < launches; n++) {
            CONF_OK(wk_add_one(s.busy, s.kernels, s.y, few, NULL));
        }
        add_one(&s, busy[i], module, NULL);
        CONF_OK(hd_module_unload(module));
        CONF_EQUAL(loaded, s.loaded + 1 + i);
    }
    for (int i = 0; i < rounds; i++) {
        CONF_OK(hd_module_unload(load_one(&s)));
        CONF_EQUAL(loaded, s.loaded + kept);
    }
    CONF_TRUE(descriptors() <= s.descriptors + kept);
    wk_gate_open(&s.gate);
    CONF_FILLED(s.y, 0, 1 + kept * (launches + 1), few * 4);
    for (int i = 0; i < kept; i++) {
        CONF_OK(hd_lane_wait(busy[i], 60 * CONF_SECOND));
    }
    CONF_OK(hd_module_unload(load_one(&s)));
    CONF_EQUAL(loaded, s.loaded);
    end(&s);
}

/* The driver waits for everything that runs: while work is in flight on the device, no unload calls
 * it. */
static void a_driver_that_waits_is_called_later(void **state)
{
    (void)state;
    scene s;
    begin(&s);
    hdi_provider waiting = *s.runtime->provider;
    waiting.unload_waits = true;
    __atomic_store_n(&s.runtime->provider, &waiting, __ATOMIC_RELAXED);
    CONF_OK(hd_module_unload(load_one(&s)));
    CONF_EQUAL(loaded, s.loaded + 1);
    CONF_OK(hd_module_unload(load_one(&s)));
    CONF_EQUAL(loaded, s.loaded + 2);
    hd_module *third = load_one(&s);
    wk_gate_open(&s.gate);
    CONF_OK(hd_lane_wait(s.busy, 60 * CONF_SECOND));
    CONF_OK(hd_module_unload(third));
    CONF_EQUAL(loaded, s.loaded);
    CONF_EQUAL(descriptors(), s.descriptors);
    end(&s);
}

/* Without descriptors a load fails for lack of memory, and does not blame the image. */
static void a_load_without_room_says_so(void **state)
{
    (void)state;
    scene s;
    begin(&s);
    size_t size = 0;
    const void *image = wk_image(s.runtime, &size);
    hd_module *module = NULL;
    if (!conf_is_process(s.runtime)) { /* there a worker opens the object */
        for (int spare = 0; spare < 2; spare++) {
            int held = spare ? dup(2) : -1;
            /* with one to spare, the dynamic loader lacks it */
            struct rlimit before = take_descriptors();
            CONF_TRUE(!spare || close(held) == 0);
            hd_status status = hd_module_load(s.runtime, image, size, &module);
            give_descriptors(before);
            CONF_FAILS_WITH(status, HD_ERROR_MEMORY, "hd_module_load: device 0 has no room for the code");
            CONF_EQUAL(loaded, s.loaded);
        }
    }
    CONF_OK(hd_module_unload(load_one(&s)));
    CONF_EQUAL(descriptors(), s.descriptors);
    end(&s);
}

static scene *refused_in;

static void nothing(void)
{
}

/* The work of the busy lane ends during the load. */
static void the_lane_gets_done(void)
{
    hdi_device *device = refused_in->runtime->devices[0];
    wk_gate_open(&refused_in->gate);
    while (!hdi_device_is_drained(device)) {
        if (refused_in->runtime->is_inline) {
            hdi_engine_run_inline(device);
        }
        conf_sleep_ms(1);
    }
}

static void a_load_gives_back_what_it_can(void **state)
{
    (void)state;
    scene s;
    begin(&s);
    refused_in = &s;
    size_t size = 0;
    const void *image = wk_image(s.runtime, &size);
    hd_buffer *large = NULL;
    hd_module *module = NULL, *used = load_one(&s);
    /* idle memory of the device */
    CONF_OK(hd_alloc(s.free, (size_t)64 << 20, &large));
    hd_free(large);
    refusals = 1;
    at_refusal = nothing;
    CONF_OK(hd_module_load(s.runtime, image, size, &module));
    CONF_EQUAL(refusals, 0);
    CONF_OK(hd_module_unload(module));
    /* At first no module can be unloaded, and no memory freed unless the runtime mapped some ahead.
     * Then a second load is refused, too. */
    refusals = 2;
    CONF_FAILS_WITH(hd_module_load(s.runtime, image, size, &module), HD_ERROR_MEMORY,
                    "hd_module_load: device 0 has no room for the code");
    refusals = 0;
    CONF_EQUAL(loaded, s.loaded + 1);
    /* a module that was unloaded while its launch was in flight */
    add_one(&s, s.busy, used, NULL);
    CONF_OK(hd_module_unload(used));
    CONF_EQUAL(loaded, s.loaded + 1);
    refusals = rounds;
    at_refusal = the_lane_gets_done;
    CONF_OK(hd_module_load(s.runtime, image, size, &module));
    CONF_EQUAL(loaded, s.loaded + 1);
    end(&s);
}

int main(void)
{
    conf_begin("test_module_unload");
    const struct CMUnitTest tests[] = {
        CONF_CASE(an_unload_waits_for_no_lane),
        CONF_CASE(parameters_stay_as_they_are),
        CONF_CASE(nothing_is_left_while_another_lane_is_busy),
        CONF_CASE(code_stays_while_its_launches_are_in_flight),
        CONF_CASE(a_driver_that_waits_is_called_later),
        CONF_CASE(a_load_without_room_says_so),
        CONF_CASE(a_load_gives_back_what_it_can),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
