/* port_tools.h - shared by the tests of the local port:
 *   - the ports of a runtime over the host provider
 *   - a driver between them that fails when a test asks for it
 *   - an image to load
 *
 * Threads: begin and end in the main one; the driver in every one, while no call must fail. Locks:
 * none.
 * Always: each driver call is made with the device's context current; end checks that.
 */
#ifndef TEST_ENGINE_PORT_TOOLS_H
#define TEST_ENGINE_PORT_TOOLS_H

#include "support/check.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/options.h"
#include "base/shm.h"
#include "engine/engine.h"
#include "engine/stream.h"
#include "engine/providers.h"

#define GRANULE ((size_t)2 << 20)
#define OK(answer) assert_answer((answer), 0, __LINE__)

enum { DEVICES = 3 };

/* ---- the driver under the port: the host provider's driver, which fails on demand and checks the
 * context ---- */

static const hdi_driver *real;
static struct {
    long calls, fail_at; /* the number of the failing call, 1 is the next; 0: none */
    bool for_good;       /* and all later calls */
    int code;
    /* entry point that failed; the only one whose calls count, NULL: all */
    const char *failed, *only;
    hdcu_context expected; /* must be current in each call; NULL: unchecked */
    int astray;            /* calls in another context */
} trap;

static inline hdcu_result before_call(const char *name)
{
    hdcu_context now = NULL;
    if (strcmp(name, "cuThreadExchangeStreamCaptureMode") == 0) {
        return HDCU_SUCCESS; /* needs no context, and its failure changes nothing */
    }
    bool entering = strncmp(name, "cuCtx", 5) == 0;
    if (!entering && trap.expected != NULL && real->cuCtxGetCurrent(&now) == HDCU_SUCCESS && now != trap.expected) {
        trap.astray++;
    }
    if (trap.fail_at == 0 || (trap.only != NULL && strcmp(trap.only, name) != 0)) {
        return HDCU_SUCCESS; /* writes nothing, so that threads can pass here */
    }
    trap.calls++;
    if (trap.calls < trap.fail_at || (trap.calls > trap.fail_at && !trap.for_good)) {
        return HDCU_SUCCESS;
    }
    trap.failed = trap.failed ? trap.failed : name;
    return trap.code;
}

#define TRAPPED(name, version, need, parameters, arguments)                                                            \
    static hdcu_result trapped_##name parameters                                                                       \
    {                                                                                                                  \
        hdcu_result code = before_call(#name);                                                                         \
        /* a release that reports a failure still releases, as after an earlier failure of the \
         * driver */                       \
        hdcu_result result = code == HDCU_SUCCESS || strcmp(#name, "cuMemRelease") == 0 ? real->name arguments : code; \
        return code != HDCU_SUCCESS ? code : result;                                                                   \
    }
HDI_DRIVER_ENTRIES(TRAPPED)

static hdi_driver trapping = {
#define MEMBER(name, version, need, parameters, arguments) .name = trapped_##name,
    HDI_DRIVER_ENTRIES(MEMBER)
#undef MEMBER
};

static inline void set_trap(const char *only, long at, bool for_good, int code)
{
    trap.calls = 0;
    trap.fail_at = at;
    trap.for_good = for_good;
    trap.code = code;
    trap.failed = NULL;
    trap.only = only;
}

/* ---- shared by all tests ---- */

static hdi_options options;
static hdcu_device handles[DEVICES];
static hdcu_context contexts[DEVICES];
static hdi_port *ports[DEVICES]; /* of the runtime's devices, which the driver counts in reverse */
static hd_runtime *rt;

#define assert_answer(answer, code, line) assert_answer_at((answer), (code), __FILE__, (line))

static inline void assert_answer_at(hdi_answer answer, int code, const char *file, int line)
{
    if (answer.code != code) {
        fprintf(stderr, "%s:%d: %s answered %d, expected %d\n", file, line, answer.call, answer.code, code);
    }
    assert_int_equal(answer.code, code);
    assert_non_null(answer.call);
}

static inline void begin(const char *settings)
{
    char all[128];
    snprintf(all, sizeof all, "driver=host host_devices=%d host_memory=64M %s", DEVICES, settings);
    assert_ok(hdi_options_parse(all, &options));
    assert_ok(hdi_providers_open_driver(&options, &real));
    memset(&trap, 0, sizeof trap);
    trapping.provider = real->provider;
    trapping.version = real->version;
    rt = calloc(1, sizeof *rt);
    assert_non_null(rt);
    for (int i = 0; i < DEVICES; i++) {
        assert_int_equal(real->cuDeviceGet(&handles[i], DEVICES - 1 - i), 0);
        assert_int_equal(real->cuDevicePrimaryCtxRetain(&contexts[i], handles[i]), 0);
    }
    for (int i = 0; i < DEVICES; i++) {
        const hdi_local_port_config config = {.driver = &trapping,
                                              .device = handles[i],
                                              .context = contexts[i],
                                              .index = i,
                                              .n_devices = DEVICES,
                                              .devices = handles,
                                              .runtime = rt};
        ports[i] = hdi_local_port_create(&config);
        assert_non_null(ports[i]);
    }
}

static inline void end(void)
{
    assert_int_equal(trap.astray, 0);
    hdcu_context now;
    assert_int_equal(real->cuCtxGetCurrent(&now), 0);
    assert_null(now);
    for (int i = 0; i < DEVICES; i++) {
        hdi_local_port_destroy(ports[i]);
        real->cuDevicePrimaryCtxRelease(handles[i]);
    }
    for (int i = 0; i < HDI_KERNEL_CHUNKS; i++) {
        free(atomic_load(&rt->kernels[i]));
    }
    free(rt);
    hdi_providers_close_driver(real);
    hdi_options_release(&options);
    hdi_local_port_destroy(NULL);
}

static inline uint64_t memory_free(int i)
{
    uint64_t bytes = 0;
    OK(ports[i]->calls->memory_free(ports[i], &bytes));
    return bytes;
}

/* The processor can access a host device's memory. */
static inline uint32_t *words(uint64_t at)
{
    return (uint32_t *)(uintptr_t)at;
}

static char *image;
static size_t image_bytes;

static inline hdi_code read_image(void)
{
    FILE *f = fopen(HD_TEST_KERNELS, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    image_bytes = (size_t)ftell(f);
    rewind(f);
    image = malloc(image_bytes + 1);
    assert_non_null(image);
    assert_int_equal(fread(image, 1, image_bytes, f), image_bytes);
    image[image_bytes] = 0;
    fclose(f);
    return (hdi_code){.bytes = image, .size = image_bytes, .descriptor = -1};
}

#endif
