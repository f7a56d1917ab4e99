/* test_capture_beside.c - the program captures its own streams into graphs while it uses the
 * runtime.
 *
 * Promise: The runtime never breaks a stream capture of the program, and no capture costs a device.
 *
 * Captures use each mode of the driver. Beside them another thread launches, allocates memory that
 * has to be mapped, reads, writes, pins and loads modules. The capturing thread does the same
 * itself, in the middle of its capture.
 *
 * Environment: HEDDLE_CAPTURES=N captures of each mode.
 *
 * Threads: one that captures, and one beside it.
 * Locks: none.
 */
#include "conformance.h"

#include <pthread.h>
#include <stdatomic.h>

enum { own_words = 1024, large = 1 << 20, mapped = 24 << 20 };
enum { mode_global, mode_thread_local, mode_relaxed, modes };

/* The driver's entry points, as the program calls them. */
typedef struct program {
    int (*cuInit)(unsigned);
    int (*cuDeviceGet)(int *, int);
    int (*cuDevicePrimaryCtxRetain)(void **, int);
    int (*cuDevicePrimaryCtxRelease)(int);
    int (*cuCtxSetCurrent)(void *);
    int (*cuMemAlloc)(unsigned long long *, size_t);
    int (*cuMemFree)(unsigned long long);
    int (*cuStreamCreate)(void **, unsigned);
    int (*cuStreamDestroy)(void *);
    int (*cuStreamSynchronize)(void *);
    int (*cuStreamBeginCapture)(void *, int);
    int (*cuStreamEndCapture)(void *, void **);
    int (*cuMemsetD32Async)(unsigned long long, unsigned, size_t, void *);
    int (*cuMemcpyDtoH)(void *, unsigned long long, size_t);
    int (*cuGraphInstantiateWithFlags)(void **, void *, unsigned long long);
    int (*cuGraphLaunch)(void *, void *);
    int (*cuGraphExecDestroy)(void *);
    int (*cuGraphDestroy)(void *);
    int device;
    void *context, *stream;
    unsigned long long memory;
} program;

static void *entry(const char *provider, const char *name)
{
    void (*function)(void) = NULL;
    CONF_OK(hd_driver_entry(provider, name, &function));
    void *address;
    memcpy(&address, &function, sizeof address);
    return address;
}

#define SUCCEEDS(call) CONF_EQUAL((call), 0)

static void program_begin(program *p, const char *provider)
{
#define ENTRY(name) *(void **)&p->name = entry(provider, #name)
    ENTRY(cuInit), ENTRY(cuDeviceGet), ENTRY(cuDevicePrimaryCtxRetain), ENTRY(cuDevicePrimaryCtxRelease);
    ENTRY(cuCtxSetCurrent), ENTRY(cuMemAlloc), ENTRY(cuMemFree), ENTRY(cuStreamCreate), ENTRY(cuStreamDestroy);
    ENTRY(cuStreamSynchronize), ENTRY(cuStreamBeginCapture), ENTRY(cuStreamEndCapture), ENTRY(cuMemsetD32Async);
    ENTRY(cuMemcpyDtoH), ENTRY(cuGraphInstantiateWithFlags), ENTRY(cuGraphLaunch), ENTRY(cuGraphExecDestroy);
    ENTRY(cuGraphDestroy);
#undef ENTRY
    SUCCEEDS(p->cuInit(0));
    SUCCEEDS(p->cuDeviceGet(&p->device, 0));
    SUCCEEDS(p->cuDevicePrimaryCtxRetain(&p->context, p->device));
    SUCCEEDS(p->cuCtxSetCurrent(p->context));
    SUCCEEDS(p->cuMemAlloc(&p->memory, own_words * 4));
    SUCCEEDS(p->cuStreamCreate(&p->stream, 1));
}

static void program_end(program *p)
{
    SUCCEEDS(p->cuStreamDestroy(p->stream));
    SUCCEEDS(p->cuMemFree(p->memory));
    SUCCEEDS(p->cuCtxSetCurrent(NULL));
    SUCCEEDS(p->cuDevicePrimaryCtxRelease(p->device));
}

/* ---- uses of the runtime ---- */

typedef struct user {
    hd_runtime *runtime;
    hd_lane *lane;
    conf_kernels k;
    hd_buffer *x, *y;
    uint8_t *memory;
} user;

static void launches(user *u)
{
    hd_ticket ticket;
    for (int i = 0; i < 8; i++) {
        CONF_OK(conf_copy(u->lane, u->k, u->y, 0, u->x, 0, large / 4, &ticket));
    }
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
}

static void allocates(user *u)
{
    hd_buffer *b = NULL;
    CONF_OK(hd_alloc(u->lane, mapped, &b));
    CONF_OK(hd_fill(b, 0, 1, mapped, NULL));
    hd_free(b);
    CONF_OK(hd_lane_wait(u->lane, 60 * CONF_SECOND));
    CONF_OK(hd_memory_trim(u->runtime, 0, 0, NULL));
}

static void transfers(user *u)
{
    CONF_OK(hd_write(u->x, 0, u->memory, large));
    CONF_OK(hd_read(u->x, 0, u->memory, large));
}

static void pins(user *u)
{
    hd_buffer *b = NULL;
    CONF_OK(hd_alloc_host(u->runtime, 4 << 20, &b));
    CONF_OK(hd_copy(b, 0, u->x, 0, large, NULL));
    CONF_OK(hd_buffer_wait(b, HD_READ, 60 * CONF_SECOND));
    hd_free(b);
    CONF_OK(hd_alloc_unified(u->lane, 1 << 20, &b));
    uint32_t *element = hd_element(b, 0, 4, HD_WRITE);
    CONF_TRUE(element != NULL);
    *element = 5;
    CONF_OK(hd_copy(u->y, 0, b, 0, 4, NULL));
    hd_free(b);
}

static void loads(user *u)
{
    static const char ptx[] = ".version 7.0\n.target sm_50\n.address_size 64\n"
                              ".visible .entry nothing()\n{\n    ret;\n}\n";
    hd_module *module = NULL;
    if (conf_on_gpus && !conf_is_process(u->runtime)) {
        CONF_OK(hd_module_load(u->runtime, ptx, sizeof ptx - 1, &module));
        hd_module_unload(module);
    }
    hd_lane *lane = NULL;
    CONF_OK(hd_lane_create(u->runtime, 0, &lane));
    CONF_OK(conf_fill(lane, u->k, u->y, 0, 64, 1, NULL));
    CONF_OK(hd_lane_wait(lane, 60 * CONF_SECOND));
    hd_lane_destroy(lane);
}

static void opens(user *u)
{
    (void)u;
    hd_runtime *second = conf_open(NULL); /* with all steps that happen only once */
    hd_lane *lane = conf_default_lane(second, 0);
    hd_buffer *b = NULL;
    CONF_OK(hd_alloc(lane, 4096, &b));
    CONF_OK(hd_write(b, 0, "abcd", 4));
    conf_close(second);
}

static void (*const acts[])(user *u) = {launches, allocates, transfers, pins, loads, opens};
enum { n_acts = sizeof acts / sizeof acts[0] };

static void user_begin(user *u, hd_runtime *runtime)
{
    *u = (user){.runtime = runtime, .k = conf_builtins(runtime), .memory = conf_memory(large)};
    memset(u->memory, 1, large);
    CONF_OK(hd_lane_create(runtime, 0, &u->lane));
    CONF_OK(hd_alloc(u->lane, large, &u->x));
    CONF_OK(hd_alloc(u->lane, large, &u->y));
    CONF_OK(hd_fill(u->x, 0, 3, large, NULL));
    CONF_OK(hd_fill(u->y, 0, 3, large, NULL));
}

static void user_end(user *u)
{
    hd_free(u->x);
    hd_free(u->y);
    hd_lane_destroy(u->lane);
    free(u->memory);
}

typedef struct beside {
    user u;
    pthread_t thread;
    atomic_bool stop;
    atomic_int acts;
} beside;

static void *acts_beside(void *argument)
{
    beside *b = argument;
    for (int i = 0; !atomic_load(&b->stop); i++) {
        acts[i % (n_acts - 1)](&b->u); /* all but opening, which takes long */
        atomic_fetch_add(&b->acts, 1);
    }
    return NULL;
}

/* ---- captures ---- */

/* Captures a graph of a few nodes, with one use of the runtime in between. The graph has to work
 * afterwards. */
static void capture(program *p, int mode, unsigned value, void (*act)(user *u), user *u)
{
    void *graph = NULL, *executable = NULL;
    uint32_t got[own_words];
    SUCCEEDS(p->cuStreamBeginCapture(p->stream, mode));
    SUCCEEDS(p->cuMemsetD32Async(p->memory, value, own_words, p->stream));
    if (act) {
        act(u);
    }
    SUCCEEDS(p->cuMemsetD32Async(p->memory, value + 1, own_words / 2, p->stream));
    SUCCEEDS(p->cuStreamEndCapture(p->stream, &graph));
    SUCCEEDS(p->cuGraphInstantiateWithFlags(&executable, graph, 0));
    SUCCEEDS(p->cuGraphLaunch(executable, p->stream));
    SUCCEEDS(p->cuStreamSynchronize(p->stream));
    SUCCEEDS(p->cuMemcpyDtoH(got, p->memory, sizeof got));
    CONF_EQUAL(got[0], value + 1);
    CONF_EQUAL(got[own_words - 1], value);
    SUCCEEDS(p->cuGraphExecDestroy(executable));
    SUCCEEDS(p->cuGraphDestroy(graph));
}

static void is_unharmed(hd_runtime *runtime)
{
    hd_device_info info = {.size = sizeof info};
    CONF_OK(hd_device_get_info(runtime, 0, &info));
    CONF_TRUE(!info.lost);
    CONF_EQUAL(info.losses, 0);
}

static void captures_on_a_thread_that_uses_the_runtime(void **state)
{
    (void)state;
    program p;
    user u;
    hd_runtime *runtime = conf_open("memory_idle=0");
    program_begin(&p, conf_is_host(runtime) ? "host" : "nvidia");
    user_begin(&u, runtime);
    for (int act = 0; act < n_acts; act++) {
        for (int mode = 0; mode < modes; mode++) {
            capture(&p, mode, (unsigned)(10 * act + mode), acts[act], &u);
        }
        is_unharmed(runtime);
    }
    user_end(&u);
    program_end(&p);
    conf_close(runtime);
}

static void captures_beside_a_busy_runtime(void **state)
{
    (void)state;
    program p;
    hd_runtime *runtime = conf_open("memory_idle=0");
    program_begin(&p, conf_is_host(runtime) ? "host" : "nvidia");
    static beside b;
    memset(&b, 0, sizeof b);
    user_begin(&b.u, runtime);
    CONF_TRUE(pthread_create(&b.thread, NULL, acts_beside, &b) == 0);
    unsigned captures = (unsigned)conf_number_from("HEDDLE_CAPTURES", 200 / CONF_SLOWNESS);
    for (int mode = 0; mode < modes; mode++) {
        int before = atomic_load(&b.acts);
        for (unsigned i = 0; i < captures || atomic_load(&b.acts) < before + 2 * n_acts; i++) {
            capture(&p, mode, i, NULL, NULL);
        }
    }
    atomic_store(&b.stop, true);
    pthread_join(b.thread, NULL);
    is_unharmed(runtime);
    user_end(&b.u);
    program_end(&p);
    conf_close(runtime);
}

/* The engine looks at the lane of a kernel that takes long during the capture. */
static void a_long_kernel_beside_a_capture(void **state)
{
    (void)state;
    program p;
    hd_runtime *runtime = conf_open(NULL);
    program_begin(&p, conf_is_host(runtime) ? "host" : "nvidia");
    conf_slow slow;
    conf_slow_make(&slow, runtime, 0);
    hd_lane *lane = NULL;
    CONF_OK(hd_lane_create(runtime, 0, &lane));
    void *graph = NULL;
    hd_ticket ticket;
    /* the engine looks at a lane without progress every millisecond */
    for (double ms = 50;; ms *= 2) {
        conf_slow_run(&slow, lane, NULL, 0, ms, &ticket);
        SUCCEEDS(p.cuStreamBeginCapture(p.stream, mode_global));
        bool before = !hd_done(ticket);
        CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
        SUCCEEDS(p.cuStreamEndCapture(p.stream, &graph));
        if (graph) {
            SUCCEEDS(p.cuGraphDestroy(graph));
        }
        if (before || ms > 5000) {
            break;
        }
    }
    is_unharmed(runtime);
    conf_slow_free(&slow);
    program_end(&p);
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_capture_beside");
    const struct CMUnitTest tests[] = {
        CONF_CASE(captures_on_a_thread_that_uses_the_runtime),
        CONF_CASE(captures_beside_a_busy_runtime),
        CONF_CASE(a_long_kernel_beside_a_capture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
