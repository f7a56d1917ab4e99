/* test_port.c - the local port over the host provider: facts, memory, sharing it, pinning, modules and kernels; each driver call
 * fails in turn, and each is made with the device's context current.
 */
#include "support/check.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/options.h"
#include "base/shm.h"
#include "engine/engine.h"
#include "engine/port_local.h"

#define GRANULE ((size_t)2 << 20)
#define OK(answer) assert_answer((answer), 0, __LINE__)

enum { DEVICES = 3 };

/* ---- the driver under the port: the host provider's, which fails when asked to and looks at the current context ---- */

static const hdi_driver *real;
static struct {
    long calls, fail_at; /* the call with this number fails, 1 is the next; 0: none */
    bool for_good;       /* and all behind it */
    int code;
    const char *failed, *only; /* which was made to fail; count calls of this entry point, NULL: all */
    hdcu_context expected;     /* current in each call; NULL: not looked at */
    int astray;                /* calls in another context */
} trap;

static hdcu_result before_call(const char *name)
{
    hdcu_context now = NULL;
    bool entering = strncmp(name, "cuCtx", 5) == 0;
    if (!entering && trap.expected != NULL && real->cuCtxGetCurrent(&now) == HDCU_SUCCESS && now != trap.expected) {
        trap.astray++;
    }
    if (trap.fail_at == 0 || (trap.only != NULL && strcmp(trap.only, name) != 0)) {
        return HDCU_SUCCESS; /* nothing is written, so that threads can come by here */
    }
    trap.calls++;
    if (trap.calls < trap.fail_at || (trap.calls > trap.fail_at && !trap.for_good)) {
        return HDCU_SUCCESS;
    }
    trap.failed = trap.failed ? trap.failed : name;
    return trap.code;
}

#define TRAPPED(name, version, need, parameters, arguments)                                                             \
    static hdcu_result trapped_##name parameters                                                                        \
    {                                                                                                                   \
        hdcu_result code = before_call(#name);                                                                          \
        /* a release that reports a failure has worked all the same, as where the driver tells of an earlier failure */ \
        hdcu_result result = code == HDCU_SUCCESS || strcmp(#name, "cuMemRelease") == 0 ? real->name arguments : code;  \
        return code != HDCU_SUCCESS ? code : result;                                                                    \
    }
HDI_DRIVER_ENTRIES(TRAPPED)

static hdi_driver trapping = {
#define MEMBER(name, version, need, parameters, arguments) .name = trapped_##name,
    HDI_DRIVER_ENTRIES(MEMBER)
#undef MEMBER
};

static void set_trap(const char *only, long at, bool for_good, int code)
{
    trap.calls = 0;
    trap.fail_at = at;
    trap.for_good = for_good;
    trap.code = code;
    trap.failed = NULL;
    trap.only = only;
}

/* ---- what every test has ---- */

static hdi_options options;
static hdcu_device handles[DEVICES];
static hdcu_context contexts[DEVICES];
static hdi_port *ports[DEVICES]; /* of the runtime's devices, which the driver counts from the other end */
static hd_runtime *rt;

static void assert_answer(hdi_answer answer, int code, int line)
{
    if (answer.code != code) {
        fprintf(stderr, "test_port.c:%d: %s answered %d, expected %d\n", line, answer.call, answer.code, code);
    }
    assert_int_equal(answer.code, code);
    assert_non_null(answer.call);
}

static void begin(const char *settings)
{
    char all[128];
    snprintf(all, sizeof all, "driver=host host_devices=%d host_memory=64M %s", DEVICES, settings);
    assert_ok(hdi_options_parse(all, &options));
    assert_ok(hdi_driver_open(&options, &real));
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

static void end(void)
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
    hdi_driver_close(real);
    hdi_options_release(&options);
    hdi_local_port_destroy(NULL);
}

static uint64_t memory_free(int i)
{
    uint64_t bytes = 0;
    OK(ports[i]->calls->memory_free(ports[i], &bytes));
    return bytes;
}

/* Device memory of a host device is the processor's, too. */
static uint32_t *words(uint64_t at)
{
    return (uint32_t *)(uintptr_t)at;
}

/* ---- facts ---- */

static void tells_the_drivers_facts(void **unused)
{
    (void)unused;
    begin("host_peers=none");
    hdi_facts facts;
    memset(&facts, 0xff, sizeof facts);
    trap.expected = contexts[1];
    OK(ports[1]->calls->facts(ports[1], &facts));
    char name[128], bus_id[32];
    hdcu_uuid uuid;
    int value;
    assert_int_equal(real->cuDeviceGetName(name, sizeof name, handles[1]), 0);
    assert_int_equal(real->cuDeviceGetPCIBusId(bus_id, sizeof bus_id, handles[1]), 0);
    assert_int_equal(real->cuDeviceGetUuid(&uuid, handles[1]), 0);
    assert_string_equal(facts.name, name);
    assert_string_equal(facts.bus_id, bus_id);
    assert_memory_equal(facts.uuid, uuid.bytes, sizeof uuid.bytes);
    const struct {
        int which;
        uint64_t got;
    } same[] = {
        {HDCU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, facts.limits.threads_per_block},
        {HDCU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, facts.limits.block[0]},
        {HDCU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, facts.limits.block[2]},
        {HDCU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, facts.limits.grid[0]},
        {HDCU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, facts.limits.grid[1]},
        {HDCU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, facts.limits.shared_default},
        {HDCU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, facts.limits.shared_max},
        {HDCU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, (uint64_t)facts.compute_major},
        {HDCU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, (uint64_t)facts.multiprocessors},
        {HDCU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, (uint64_t)facts.virtual_memory},
    };
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        assert_int_equal(real->cuDeviceGetAttribute(&value, same[i].which, handles[1]), 0);
        assert_int_equal(same[i].got, value);
    }
    assert_int_equal(facts.memory_bytes, 64 << 20);
    assert_int_equal(facts.granule, GRANULE);
    assert_int_equal(facts.peers, 0);
    assert_int_equal(memory_free(1), 64 << 20);
    end();

    begin("host_peers=all");
    OK(ports[1]->calls->facts(ports[1], &facts));
    assert_int_equal(facts.peers, 1 << 0 | 1 << 2);
    assert_int_equal(facts.peers_denied, 0);
    assert_int_equal(facts.peers_atomic, 1 << 0 | 1 << 2);
    end();
}

/* ---- memory ---- */

static void maps_and_unmaps(void **unused)
{
    (void)unused;
    begin("");
    hdi_port *p = ports[0];
    trap.expected = contexts[0];
    uint64_t a, b, all = memory_free(0);
    OK(p->calls->reserve(p, 0, 4 * GRANULE, &a));
    OK(p->calls->reserve(p, 0, 4 * GRANULE, &b));
    OK(p->calls->map(p, a + GRANULE, 2 * GRANULE));
    OK(p->calls->map(p, a, GRANULE));
    OK(p->calls->map(p, b, GRANULE));
    assert_int_equal(memory_free(0), all - 4 * GRANULE);
    words(a)[GRANULE / 4 - 1] = 1;
    words(a)[GRANULE / 4] = 2;
    words(b)[0] = 3;

    assert_answer(p->calls->map(p, a, GRANULE), HDCU_ERROR_INVALID_VALUE, __LINE__); /* taken */
    assert_answer(p->calls->map(p, 12345 * GRANULE, GRANULE), HDCU_ERROR_INVALID_VALUE, __LINE__);
    assert_answer(p->calls->map(p, a + 3 * GRANULE, 64 << 20), HDCU_ERROR_OUT_OF_MEMORY, __LINE__);
    assert_answer(p->calls->unmap(p, a + GRANULE, GRANULE), HDCU_ERROR_NOT_MAPPED, __LINE__); /* half of it */
    assert_int_equal(memory_free(0), all - 4 * GRANULE);

    OK(p->calls->unmap(p, a + GRANULE, 2 * GRANULE));
    assert_answer(p->calls->unmap(p, a + GRANULE, 2 * GRANULE), HDCU_ERROR_NOT_MAPPED, __LINE__);
    assert_int_equal(memory_free(0), all - 2 * GRANULE);
    assert_int_equal(words(a)[GRANULE / 4 - 1], 1);
    OK(p->calls->map(p, a + GRANULE, GRANULE));
    assert_int_equal(words(a)[GRANULE / 4], 0); /* other memory */

    OK(p->calls->unreserve(p, a, 4 * GRANULE));
    assert_int_equal(memory_free(0), all - GRANULE);
    assert_int_equal(words(b)[0], 3);
    assert_answer(p->calls->unreserve(p, a, 4 * GRANULE), HDCU_ERROR_INVALID_VALUE, __LINE__);
    OK(p->calls->unreserve(p, b, 4 * GRANULE));
    assert_int_equal(memory_free(0), all);

    /* the place that was just free is as good as any */
    uint64_t again = 0;
    OK(p->calls->reserve(p, b, 4 * GRANULE, &again));
    assert_true(again != 0 && again % GRANULE == 0);
    OK(p->calls->unreserve(p, again, 4 * GRANULE));
    end();
}

static void grants_to_the_runtimes_devices(void **unused)
{
    (void)unused;
    begin("host_peers=ring");
    hdi_port *p = ports[0];
    trap.expected = contexts[0];
    uint64_t at;
    OK(p->calls->reserve(p, 0, GRANULE, &at));
    OK(p->calls->map(p, at, GRANULE));
    OK(p->calls->grant(p, 2, at, GRANULE));
    OK(p->calls->grant(p, 2, at, GRANULE));
    for (int i = 0; i < DEVICES; i++) {
        unsigned long long flags = 99;
        const hdcu_mem_location who = {HDCU_MEM_LOCATION_TYPE_DEVICE, handles[i]};
        assert_int_equal(real->cuMemGetAccess(&flags, &who, at), 0);
        assert_int_equal(flags, i == 1 ? HDCU_MEM_ACCESS_NONE : HDCU_MEM_ACCESS_READWRITE);
    }
    assert_answer(p->calls->grant(p, DEVICES, at, GRANULE), HDCU_ERROR_INVALID_DEVICE, __LINE__);
    assert_answer(p->calls->grant(p, -1, at, GRANULE), HDCU_ERROR_INVALID_DEVICE, __LINE__);
    assert_answer(p->calls->grant(p, 1, at + GRANULE, GRANULE), HDCU_ERROR_INVALID_VALUE, __LINE__);
    OK(p->calls->unreserve(p, at, GRANULE));

    const hdi_local_port_config alone = {.driver = &trapping, .device = handles[1], .context = contexts[1], .index = 1};
    hdi_port *single = hdi_local_port_create(&alone);
    assert_answer(single->calls->grant(single, 0, at, GRANULE), HDCU_ERROR_INVALID_DEVICE, __LINE__);
    trap.expected = contexts[1];
    hdi_facts facts;
    OK(single->calls->facts(single, &facts));
    assert_int_equal(facts.peers, 0);
    hdi_local_port_destroy(single);
    end();
}

static void hands_memory_over(void **unused)
{
    (void)unused;
    begin("");
    hdi_port *owner = ports[0], *other = ports[1];
    uint64_t a, b, free_owner = memory_free(0), free_other = memory_free(1);
    int file = -1;
    OK(owner->calls->reserve(owner, 0, 2 * GRANULE, &a));
    OK(other->calls->reserve(other, 0, 2 * GRANULE, &b));
    OK(owner->calls->map(owner, a, GRANULE));
    words(a)[5] = 17;
    assert_answer(owner->calls->export(owner, a, 2 * GRANULE, &file), HDCU_ERROR_NOT_MAPPED, __LINE__);
    assert_answer(other->calls->export(other, a, GRANULE, &file), HDCU_ERROR_NOT_MAPPED, __LINE__);
    assert_int_equal(file, -1);
    OK(owner->calls->export(owner, a, GRANULE, &file));
    assert_true(fcntl(file, F_GETFD) & FD_CLOEXEC);
    OK(other->calls->import(other, file, b + GRANULE, GRANULE));
    close(file);
    assert_int_equal(words(b + GRANULE)[5], 17);
    words(b + GRANULE)[5] = 18;
    assert_int_equal(words(a)[5], 18);
    assert_int_equal(memory_free(1), free_other); /* charged to its owner */

    /* it lives as long as anybody has it */
    OK(owner->calls->unmap(owner, a, GRANULE));
    assert_int_equal(words(b + GRANULE)[5], 18);
    OK(other->calls->unmap(other, b + GRANULE, GRANULE));
    assert_int_equal(memory_free(0), free_owner);
    assert_answer(other->calls->unmap(other, b + GRANULE, GRANULE), HDCU_ERROR_NOT_MAPPED, __LINE__);

    int strange = memfd_create("strange", MFD_CLOEXEC);
    assert_answer(other->calls->import(other, strange, b, GRANULE), HDCU_ERROR_INVALID_VALUE, __LINE__);
    close(strange);
    OK(owner->calls->unreserve(owner, a, 2 * GRANULE));
    OK(other->calls->unreserve(other, b, 2 * GRANULE));
    end();
}

/* ---- pinned memory ---- */

static void pins_and_unpins(void **unused)
{
    (void)unused;
    begin("");
    hdi_port *p = ports[2];
    trap.expected = contexts[2];
    hdi_shm shm;
    assert_ok(hdi_shm_create("test-port", 8192, &shm));
    uint64_t address = 0;
    OK(p->calls->pin(p, shm.base, shm.bytes, shm.descriptor, &address));
    assert_int_equal(address, (uintptr_t)shm.base);
    address = 5;
    assert_answer(p->calls->pin(p, shm.base, shm.bytes, shm.descriptor, &address),
                  HDCU_ERROR_HOST_MEMORY_ALREADY_REGISTERED, __LINE__);
    assert_int_equal(address, 5);
    OK(p->calls->unpin(p, shm.base, shm.bytes));
    assert_answer(p->calls->unpin(p, shm.base, shm.bytes), HDCU_ERROR_HOST_MEMORY_NOT_REGISTERED, __LINE__);
    set_trap("cuMemHostGetDevicePointer", 1, false, HDCU_ERROR_UNKNOWN);
    assert_answer(p->calls->pin(p, shm.base, shm.bytes, shm.descriptor, &address), HDCU_ERROR_UNKNOWN, __LINE__);
    assert_answer(p->calls->unpin(p, shm.base, shm.bytes), HDCU_ERROR_HOST_MEMORY_NOT_REGISTERED, __LINE__);
    /* without its context, too */
    OK(p->calls->pin(p, shm.base, shm.bytes, shm.descriptor, &address));
    trap.expected = NULL;
    set_trap("cuCtxGetCurrent", 1, false, HDCU_ERROR_UNKNOWN);
    OK(p->calls->unpin(p, shm.base, shm.bytes));
    hdi_shm_release(&shm);
    end();
}

/* ---- lanes ---- */

static void *make_aligned(size_t bytes)
{
    size_t whole = (bytes + HDI_LINE - 1) / HDI_LINE * HDI_LINE;
    void *made = aligned_alloc(HDI_LINE, whole);
    assert_non_null(made);
    return memset(made, 0, whole);
}

static void makes_lanes_of_its_engine(void **unused)
{
    (void)unused;
    begin("");
    hdi_device *device = make_aligned(sizeof *device);
    hdi_engine *engine = make_aligned(sizeof *engine);
    rt->driver = &trapping;
    device->runtime = rt;
    device->context = contexts[2];
    engine->device = device;
    assert_ok(hdi_channel_create(64, &device->channel));
    atomic_store(&device->channel.lanes[7].done, 41); /* by an engine before this one */
    hdi_port *p = ports[2];
    trap.expected = contexts[2];
    hdi_local_port_set_engine(p, engine);
    set_trap("cuStreamCreate", 1, false, HDCU_ERROR_OUT_OF_MEMORY);
    assert_answer(p->calls->lane(p, 7, true), HDCU_ERROR_OUT_OF_MEMORY, __LINE__);
    assert_false(atomic_load(&engine->feeds[7].made));
    OK(p->calls->lane(p, 7, true));
    assert_true(atomic_load(&engine->feeds[7].made));
    assert_true(engine->feeds[7].keeps_failure);
    assert_int_equal(engine->feeds[7].issued, 41);
    assert_false(atomic_load(&engine->feeds[8].made));
    assert_int_equal(real->cuStreamDestroy(engine->feeds[7].stream), 0);
    hdi_channel_release(&device->channel);
    free(engine);
    free(device);
    end();
}

/* ---- code ---- */

static char *image;
static size_t image_bytes;

static hdi_code read_image(void)
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

/* Runs add(y, 3, 8) by the function that the table has for the kernel's number. */
static void run_add(int device, uint32_t number, uint64_t y)
{
    uint32_t value = 3, n = 8;
    void *parameters[] = {&y, &value, &n};
    hdcu_context popped;
    assert_int_equal(real->cuCtxPushCurrent(contexts[device]), 0);
    assert_int_equal(
        real->cuLaunchKernel(hdi_kernel_at(rt, number)->function[device], 1, 1, 1, 8, 1, 1, 0, NULL, parameters, NULL),
        0);
    assert_int_equal(real->cuCtxSynchronize(), 0);
    assert_int_equal(real->cuCtxPopCurrent(&popped), 0);
}

static void loads_code_and_finds_kernels(void **unused)
{
    (void)unused;
    begin("");
    hdi_code code = read_image();
    hdi_port *p = ports[1];
    trap.expected = contexts[1];
    const uint32_t number = 3 * HDI_KERNEL_CHUNK + 2; /* in a chunk that nobody has made */
    static char log[HDI_CODE_LOG_BYTES];
    static hdi_kernel_facts k;
    uint64_t module = 0;
    OK(p->calls->load(p, &code, &module, log));
    assert_true(module != 0);

    OK(p->calls->kernel(p, module, "add", number, &k));
    assert_int_equal(k.max_threads, 1024);
    assert_int_equal(k.static_shared, 0);
    assert_int_equal(k.n_params, 3);
    assert_int_equal(k.params[1].offset, 8);
    assert_int_equal(k.params[1].size, 4);
    assert_int_equal(k.params[2].offset, 12);
    assert_null(hdi_kernel_at(rt, number)->function[0]);
    uint64_t y;
    OK(p->calls->reserve(p, 0, GRANULE, &y));
    OK(p->calls->map(p, y, GRANULE));
    run_add(1, number, y);
    assert_int_equal(words(y)[7], 3);
    assert_int_equal(words(y)[8], 0);

    hdcu_function before = hdi_kernel_at(rt, number)->function[1];
    k.n_params = 77;
    assert_answer(p->calls->kernel(p, module, "subtract", number, &k), HDCU_ERROR_NOT_FOUND, __LINE__);
    assert_int_equal(k.n_params, 77);
    assert_ptr_equal(hdi_kernel_at(rt, number)->function[1], before);
    trapping.cuFuncGetParamInfo = NULL;
    hdi_answer answer = p->calls->kernel(p, module, "bounded", number + 1, &k);
    trapping.cuFuncGetParamInfo = trapped_cuFuncGetParamInfo;
    OK(answer);
    assert_int_equal(k.max_threads, 32);
    assert_int_equal(k.n_params, UINT32_MAX);
    assert_answer(p->calls->kernel(p, module, "add", HDI_KERNEL_CHUNK * HDI_KERNEL_CHUNKS, &k),
                  HDCU_ERROR_OUT_OF_MEMORY, __LINE__);

    OK(p->calls->kernel_shared(p, number, 64 << 10));
    assert_answer(p->calls->kernel_shared(p, number, UINT32_MAX), HDCU_ERROR_INVALID_VALUE, __LINE__);
    assert_answer(p->calls->kernel_shared(p, number, INT32_MAX), HDCU_ERROR_INVALID_VALUE, __LINE__);
    assert_answer(p->calls->kernel_shared(p, 7 * HDI_KERNEL_CHUNK, 1), HDCU_ERROR_INVALID_HANDLE, __LINE__);

    OK(p->calls->unload(p, module));
    assert_answer(p->calls->unload(p, module), HDCU_ERROR_INVALID_HANDLE, __LINE__);
    image[18] = 0x7f; /* not for this processor any more */
    uint64_t none = 5;
    assert_answer(p->calls->load(p, &code, &none, log), HDCU_ERROR_INVALID_IMAGE, __LINE__);
    assert_contains(log, "not a shared object for this processor");
    assert_int_equal(none, 5);
    OK(p->calls->unreserve(p, y, GRANULE));
    free(image);
    end();
}

static void *reach(void *argument)
{
    (void)argument;
    for (uint32_t i = 0; i < HDI_KERNEL_CHUNKS; i++) {
        assert_true(hdi_kernel_table_reach(rt, i * HDI_KERNEL_CHUNK + 5));
        assert_non_null(hdi_kernel_at(rt, i * HDI_KERNEL_CHUNK));
    }
    return hdi_kernel_at(rt, 0);
}

static void threads_make_one_table(void **unused)
{
    (void)unused;
    begin("");
    pthread_t threads[3];
    void *chunk;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, reach, NULL), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], &chunk);
        assert_ptr_equal(chunk, hdi_kernel_at(rt, 0));
    }
    assert_false(hdi_kernel_table_reach(rt, HDI_KERNEL_CHUNKS * HDI_KERNEL_CHUNK));
    end();
}

/* ---- failures ---- */

/* What one use of everything got hold of. */
typedef struct uses {
    uint64_t at, there, module;
    int file;
    bool pinned;
} uses;

/* One use of everything, until something fails: the answer of that. */
static hdi_answer use_everything(const hdi_shm *shm, const hdi_code *code, uses *u)
{
    static char log[HDI_CODE_LOG_BYTES];
    static hdi_kernel_facts k;
    hdi_port *p = ports[0], *other = ports[1];
    hdi_facts facts;
    uint64_t value;
    hdi_answer answer = p->calls->facts(p, &facts);
#define NEXT(call)                                                                                                     \
    if (hdi_answered(answer)) {                                                                                        \
        answer = (call);                                                                                               \
    }
    NEXT(p->calls->pin(p, shm->base, shm->bytes, shm->descriptor, &value))
    u->pinned = hdi_answered(answer);
    NEXT(p->calls->reserve(p, 0, 4 * GRANULE, &u->at))
    NEXT(p->calls->map(p, u->at, GRANULE))
    NEXT(p->calls->map(p, u->at + GRANULE, GRANULE))
    NEXT(p->calls->grant(p, 2, u->at, GRANULE))
    NEXT(p->calls->export(p, u->at, GRANULE, &u->file))
    NEXT(other->calls->reserve(other, 0, GRANULE, &u->there))
    NEXT(other->calls->import(other, u->file, u->there, GRANULE))
    NEXT(p->calls->load(p, code, &u->module, log))
    NEXT(p->calls->kernel(p, u->module, "add", 1, &k))
    NEXT(p->calls->kernel_shared(p, 1, 1000))
    NEXT(p->calls->unmap(p, u->at + GRANULE, GRANULE))
    NEXT(p->calls->memory_free(p, &value))
#undef NEXT
    return answer;
}

/* Gives all of it back, now that the driver works. */
static void give_back(const hdi_shm *shm, const uses *u)
{
    hdi_port *p = ports[0], *other = ports[1];
    if (u->module != 0) {
        OK(p->calls->unload(p, u->module));
    }
    if (u->file >= 0) {
        close(u->file);
    }
    hdi_answer answer = p->calls->unpin(p, shm->base, shm->bytes);
    assert_true(hdi_answered(answer) || (!u->pinned && answer.code == HDCU_ERROR_HOST_MEMORY_NOT_REGISTERED));
    if (u->there != 0) {
        OK(other->calls->unreserve(other, u->there, GRANULE));
    }
    if (u->at != 0) {
        OK(p->calls->unreserve(p, u->at, 4 * GRANULE));
    }
}

static void any_call_may_fail(void **unused)
{
    (void)unused;
    begin("");
    hdi_code code = read_image();
    hdi_shm shm;
    assert_ok(hdi_shm_create("test-port", 8192, &shm));
    const uint64_t all[] = {memory_free(0), memory_free(1)};
    for (int for_good = 0; for_good < 2; for_good++) {
        for (long n = 1;; n++) {
            uses u = {.file = -1};
            set_trap(NULL, n, for_good, HDCU_ERROR_ILLEGAL_ADDRESS);
            hdi_answer answer = use_everything(&shm, &code, &u);
            bool hit = trap.failed != NULL;
            set_trap(NULL, 0, false, 0);
            if (for_good) {
                assert_int_equal(real->cuCtxSetCurrent(NULL), 0); /* which the port could not do */
            }
            assert_true(hdi_answered(answer) || (hit && answer.code == HDCU_ERROR_ILLEGAL_ADDRESS));
            assert_true(hdi_answered(answer) || strncmp(answer.call, "cu", 2) == 0);
            give_back(&shm, &u);
            /* whatever could not be undone is, before anything more is mapped */
            for (int i = 0; i < 2; i++) {
                uint64_t at;
                OK(ports[i]->calls->reserve(ports[i], 0, GRANULE, &at));
                OK(ports[i]->calls->map(ports[i], at, GRANULE));
                OK(ports[i]->calls->unreserve(ports[i], at, GRANULE));
                assert_int_equal(memory_free(i), all[i]);
            }
            if (!hit) {
                assert_true(n > 50);
                break;
            }
        }
    }
    hdi_shm_release(&shm);
    free(image);
    end();
}

static void what_cannot_be_undone_is_kept_in_mind(void **unused)
{
    (void)unused;
    begin("");
    hdi_port *p = ports[0];
    uint64_t at, all = memory_free(0);
    OK(p->calls->reserve(p, 0, 2 * GRANULE, &at));
    set_trap("cuMemUnmap", 1, true, HDCU_ERROR_UNKNOWN);
    OK(p->calls->map(p, at, GRANULE));
    assert_answer(p->calls->unmap(p, at, GRANULE), HDCU_ERROR_UNKNOWN, __LINE__);
    int file = -1;
    assert_answer(p->calls->export(p, at, GRANULE, &file), HDCU_ERROR_NOT_MAPPED, __LINE__);
    /* nothing is mapped before it is gone */
    assert_answer(p->calls->map(p, at + GRANULE, GRANULE), HDCU_ERROR_UNKNOWN, __LINE__);
    assert_int_equal(memory_free(0), all - GRANULE);
    set_trap(NULL, 0, false, 0);
    OK(p->calls->map(p, at, GRANULE));
    assert_int_equal(memory_free(0), all - GRANULE);

    /* a repeated unmap does it, too */
    set_trap("cuMemUnmap", 1, false, HDCU_ERROR_UNKNOWN);
    assert_answer(p->calls->unmap(p, at, GRANULE), HDCU_ERROR_UNKNOWN, __LINE__);
    assert_int_equal(memory_free(0), all - GRANULE);
    OK(p->calls->unmap(p, at, GRANULE));
    assert_int_equal(memory_free(0), all);

    /* but no handle is released twice */
    OK(p->calls->map(p, at, GRANULE));
    set_trap("cuMemRelease", 1, false, HDCU_ERROR_UNKNOWN);
    hdi_answer answer = p->calls->unmap(p, at, GRANULE);
    assert_answer(answer, HDCU_ERROR_UNKNOWN, __LINE__);
    assert_string_equal(answer.call, "cuMemRelease");
    assert_int_equal(memory_free(0), all);

    /* and so does giving the range back */
    set_trap("cuMemSetAccess", 1, false, HDCU_ERROR_UNKNOWN);
    assert_answer(p->calls->map(p, at, GRANULE), HDCU_ERROR_UNKNOWN, __LINE__);
    assert_int_equal(memory_free(0), all);
    for (int i = 0; i < 2; i++) {
        set_trap("cuCtxPushCurrent", 2, false, HDCU_ERROR_UNKNOWN);
        OK(p->calls->map(p, at, GRANULE));
        assert_answer(p->calls->unmap(p, at, GRANULE), HDCU_ERROR_UNKNOWN, __LINE__);
        assert_int_equal(memory_free(0), all - GRANULE);
    }
    OK(p->calls->unreserve(p, at, 2 * GRANULE));
    assert_int_equal(memory_free(0), all);

    /* giving back goes on past failures and tells the first one */
    OK(p->calls->reserve(p, 0, 3 * GRANULE, &at));
    for (uint64_t i = 0; i < 3; i++) {
        OK(p->calls->map(p, at + i * GRANULE, GRANULE));
    }
    set_trap("cuMemRelease", 2, false, HDCU_ERROR_UNKNOWN);
    answer = p->calls->unreserve(p, at, 3 * GRANULE);
    assert_answer(answer, HDCU_ERROR_UNKNOWN, __LINE__);
    assert_string_equal(answer.call, "cuMemRelease");
    assert_int_equal(memory_free(0), all);
    OK(p->calls->reserve(p, 0, GRANULE, &at));
    OK(p->calls->map(p, at, GRANULE));
    assert_int_equal(memory_free(0), all - GRANULE);
    OK(p->calls->unreserve(p, at, GRANULE));
    assert_int_equal(memory_free(0), all);
    end();
}

/* ---- threads ---- */

static void *map_and_unmap(void *argument)
{
    hdi_port *p = argument;
    intptr_t errors = 0;
    uint64_t at;
    errors += !hdi_answered(p->calls->reserve(p, 0, 4 * GRANULE, &at));
    for (int i = 0; i < 200 && errors == 0; i++) {
        uint64_t there = at + (uint64_t)(i % 4) * GRANULE;
        errors += !hdi_answered(p->calls->map(p, there, GRANULE));
        errors += !hdi_answered(p->calls->grant(p, 1, there, GRANULE));
        words(there)[i] = 1;
        if (i % 5 != 4 || i < 196) {
            errors += !hdi_answered(p->calls->unmap(p, there, GRANULE));
        }
    }
    errors += !hdi_answered(p->calls->unreserve(p, at, 4 * GRANULE));
    return (void *)errors;
}

static void threads_share_a_port(void **unused)
{
    (void)unused;
    begin("");
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, map_and_unmap, ports[0]), 0);
    }
    for (int i = 0; i < 3; i++) {
        void *errors;
        pthread_join(threads[i], &errors);
        assert_null(errors);
    }
    assert_int_equal(memory_free(0), 64 << 20);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_the_drivers_facts),
        cmocka_unit_test(maps_and_unmaps),
        cmocka_unit_test(grants_to_the_runtimes_devices),
        cmocka_unit_test(hands_memory_over),
        cmocka_unit_test(pins_and_unpins),
        cmocka_unit_test(makes_lanes_of_its_engine),
        cmocka_unit_test(loads_code_and_finds_kernels),
        cmocka_unit_test(threads_make_one_table),
        cmocka_unit_test(any_call_may_fail),
        cmocka_unit_test(what_cannot_be_undone_is_kept_in_mind),
        cmocka_unit_test(threads_share_a_port),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
