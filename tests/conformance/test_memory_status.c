/* test_memory_status.c - one driver call is out of memory while a public call maps, pins, imports
 * or exports memory, or maps it for another device.
 *
 * Promise: Lack of memory is reported as such by each call that maps or imports memory.
 *
 * The test fails each entry point that memory needs, at each of its calls in turn.
 *
 * Threads: the main one.
 * Locks: none.
 *
 * Always:
 * - a call that fails returns MEMORY or HOST_MEMORY, and changes no output
 * - its message states the cause once
 * - the other calls succeed, and close is clean
 */
#include "foreign.h"
#include "sweep.h"

enum { bytes = 1 << 16, words = bytes / 4, calls_of_each = 10 };

typedef struct run_state {
    const char *settings;
    int failures;
    hd_runtime *runtime;
    hd_lane *here, *there;
    conf_kernels k;
} run_state;

#define STEP(call) sweep_step(s->settings, &s->failures, SWEEP_LACKS_MEMORY, (call), #call)

/* A kernel of the other device writes the buffer. */
static void launch_there(run_state *s, hd_buffer *b)
{
    if (b != NULL && s->there != NULL) {
        STEP(conf_fill(s->there, s->k, b, 0, words, 7, NULL));
        STEP(hd_lane_wait(s->there, HD_FOREVER));
    }
}

static void allocate(run_state *s)
{
    hd_buffer *plain = NULL, *piece = NULL, *pinned = NULL, *unified = NULL, *kept = NULL, *mine = NULL;
    const hd_alloc_options dedicated = {.size = sizeof dedicated, .flags = HD_ALLOC_DEDICATED};
    const hd_alloc_options keep = {.size = sizeof keep, .flags = HD_ALLOC_KEEP};
    STEP(hd_alloc(s->here, bytes, &plain));
    STEP(hd_alloc_with(s->here, bytes, &dedicated, &piece));
    STEP(hd_alloc_with(s->here, bytes, &keep, &kept));
    STEP(hd_alloc_host(s->runtime, bytes, &pinned));
    STEP(hd_alloc_unified(s->here, bytes, &unified));
    launch_there(s, plain);
    hd_export e = {.size = sizeof e};
    if (piece != NULL && STEP(hd_buffer_export(piece, HD_EXPORT_DESCRIPTOR, &e))) {
        STEP(hd_import_descriptor(s->runtime, 0, &e, NULL, &mine));
        close(e.descriptor);
    }
    launch_there(s, piece);
    launch_there(s, mine);
    hd_buffer *const all[] = {plain, piece, pinned, unified, kept, mine};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        hd_free(all[i]);
    }
}

/* Memory of the program: pageable memory, and device memory that the driver gave it. */
static void import(run_state *s)
{
    foreign f;
    unsigned long long address = 0;
    hd_buffer *device = NULL, *host = NULL;
    uint8_t *memory = conf_memory(bytes);
    foreign_begin(&f, s->runtime);
    foreign_enter(&f, 0);
    CONF_EQUAL(f.cuMemAlloc(&address, bytes), 0);
    foreign_leave(&f);
    STEP(hd_import(s->runtime, 0, address, bytes, NULL, &device));
    STEP(hd_import_host(s->runtime, memory, bytes, NULL, &host));
    launch_there(s, device);
    hd_free(device);
    hd_free(host);
    STEP(hd_lane_wait(s->here, HD_FOREVER));
    CONF_EQUAL(hd_close(s->runtime), HD_OK); /* gives the memory up */
    foreign_enter(&f, 0);
    CONF_EQUAL(f.cuMemFree(address), 0);
    foreign_leave(&f);
    foreign_end(&f);
    free(memory);
}

/* Returns the number of calls that failed; -1: hd_open already failed. */
static int run(const char *settings)
{
    run_state state = {.settings = settings}, *s = &state;
    conf_watch(settings, 60);
    if (conf_try_open(settings, &s->runtime) != HD_OK) {
        return -1;
    }
    s->here = conf_default_lane(s->runtime, 0);
    s->there = hd_device_count(s->runtime) > 1 ? conf_default_lane(s->runtime, 1) : NULL;
    s->k = conf_builtins(s->runtime);
    allocate(s);
    if (conf_is_process(s->runtime)) { /* these imports need the driver in this process */
        conf_close(s->runtime);
    } else {
        import(s);
    }
    return s->failures;
}

static void fail_each(const char *const *entries, const char *plus)
{
    violations = 0;
    for (; *entries != NULL; entries++) {
        int failed = 0;
        for (int n = 1; n <= calls_of_each; n++) {
            char settings[200];
            snprintf(settings, sizeof settings,
                     "fault=%s:%d%s peers=trust host_devices=2 host_memory=64M memory_timeout=20", *entries, n, plus);
            int failures = run(settings);
            failed += failures > 0;
        }
        fprintf(stderr, "  %s%s: %d runs with failures\n", *entries, plus, failed);
    }
    CONF_EQUAL(violations, 0);
}

static const char *const entries[] = {"cuMemAddressReserve",
                                      "cuMemCreate",
                                      "cuMemMap",
                                      "cuMemSetAccess",
                                      "cuMemExportToShareableHandle",
                                      "cuMemImportFromShareableHandle",
                                      "cuMemHostRegister",
                                      "cuMemHostGetDevicePointer",
                                      "cuPointerGetAttribute",
                                      "cuCtxEnablePeerAccess",
                                      NULL};

static void one_call_is_out_of_memory(void **state)
{
    (void)state;
    CONF_EQUAL(run("fault=1000000 peers=trust host_devices=2 host_memory=64M"), 0);
    fail_each(entries, "");
}

static void all_calls_from_one_on_are_out_of_memory(void **state)
{
    (void)state;
    fail_each(entries, "+");
}

int main(void)
{
    conf_begin("test_memory_status");
    const struct CMUnitTest tests[] = {
        CONF_CASE(one_call_is_out_of_memory),
        CONF_CASE(all_calls_from_one_on_are_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
