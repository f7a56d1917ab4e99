/* test_host_fork.c - calls of a forked child on a driver that its parent uses: all fail at once,
 * without harm.
 *
 * Promise: A forked child is refused every call on its parent's driver, at once and without harm.
 * Threads: the main one and the host provider's own; each case forks.
 *
 * Children report with their exit status, since a failed assertion would continue the parent's test
 * in them. Each child gets a minute, so one that hangs fails.
 */
#include "host_support.h"
#include <pthread.h>

#define SETTINGS "host_devices=2 host_memory=16M"
/* through the fault wrapper, which uses a lock of its own */
#define WRAPPED SETTINGS " fault=cuGraphLaunch:1000000=999"

enum { GOOD = 0, CHILD_SECONDS = 60 };

#if TEST_ASAN
/* Turns off leak checks: at the end of a child they would not see references that only stacks of
 * the parent's threads hold. The sanitizer's library looks for this function by name. */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return 1;
}
#endif

/* Runs `child` in a forked process, which ends with its result by _exit or exit. Returns waitpid's
 * status. */
static int in_child(int (*child)(void), bool with_exit_functions)
{
    int status = -1;
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(CHILD_SECONDS);
        int code = child();
        if (with_exit_functions) {
            exit(code);
        }
        _exit(code);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

#define CHECK(condition)                                                                                               \
    if (!(condition)) {                                                                                                \
        fprintf(stderr, "child: line %d: %s\n", __LINE__, #condition);                                                 \
        return 1;                                                                                                      \
    }
#define REFUSED(call) CHECK((call) == HDCU_ERROR_NOT_INITIALIZED)

static void on_stream(void *data)
{
    (void)data;
}

/* ---- before any other use of a driver ---- */

static int uses_a_driver_of_its_own(void)
{
    uint32_t word = 0;
    hdcu_context context;
    hdcu_deviceptr p;
    CHECK(!hdi_driver_was_forked());
    CHECK(open_with(SETTINGS, &d) == HD_OK);
    CHECK(!d->cuDevicePrimaryCtxRetain(&context, 0) && !d->cuCtxSetCurrent(context) && !d->cuMemAlloc(&p, 4096));
    CHECK(!d->cuMemsetD32Async(p, 9, 1024, NULL) && !d->cuMemcpyDtoH(&word, p + 4092, 4) && word == 9);
    CHECK(!d->cuDevicePrimaryCtxRelease(0));
    hdi_providers_close_driver(d);
    return GOOD;
}

static void a_child_of_a_process_without_driver_is_free(void **state)
{
    (void)state;
    assert_int_equal(in_child(uses_a_driver_of_its_own, false), GOOD);
    /* a failed open leaves no driver */
    const hdi_driver *none;
    assert_int_equal(open_with("fault=cuInit:1=999", &none), HD_ERROR_NO_DRIVER);
    assert_int_equal(in_child(uses_a_driver_of_its_own, true), GOOD);
}

/* ---- with a driver ---- */

static hdcu_context context;
static hdcu_stream stream;
static hdcu_event event;
static hdcu_module module;
static hdcu_function function;
static hdcu_memhandle handle;
static hdcu_deviceptr pointer;

static void begin(const char *settings)
{
    hdcu_mem_prop prop = {.type = HDCU_MEM_ALLOCATION_TYPE_PINNED, .location = {HDCU_MEM_LOCATION_TYPE_DEVICE, 0}};
    open_host(settings);
    context = use_device(0);
    OK(d->cuStreamCreate(&stream, HDCU_STREAM_NON_BLOCKING));
    OK(d->cuEventCreate(&event, 0));
    OK(d->cuMemCreate(&handle, GRANULE, &prop, 0));
    OK(d->cuMemAlloc(&pointer, 4096));
    module = load_kernels();
    function = kernel_of(module, "add");
    OK(d->cuMemsetD8Async(pointer, 0, 4096, stream));
    OK(launch_add(function, stream, pointer, 1, 256));
    OK(d->cuEventRecord(event, stream));
    OK(d->cuStreamSynchronize(stream));
}

/* Checks that everything still works in the parent. */
static void end(void)
{
    uint32_t word = 0;
    assert_false(hdi_driver_was_forked());
    OK(launch_add(function, stream, pointer, 41, 256));
    OK(d->cuStreamSynchronize(stream));
    OK(d->cuMemcpyDtoH(&word, pointer + 255 * 4, 4));
    assert_int_equal(word, 42);
    leave_device(0);
    hdi_providers_close_driver(d);
}

static int devices_and_contexts(void)
{
    hdcu_context c;
    hdcu_uuid uuid;
    char name[64];
    size_t n;
    int value;
    REFUSED(d->cuInit(0));
    REFUSED(d->cuDeviceGetCount(&value));
    REFUSED(d->cuDeviceGet(&value, 0));
    REFUSED(d->cuDeviceGetName(name, sizeof name, 0));
    REFUSED(d->cuDeviceGetUuid(&uuid, 0));
    REFUSED(d->cuDeviceGetPCIBusId(name, sizeof name, 0));
    REFUSED(d->cuDeviceTotalMem(&n, 0));
    REFUSED(d->cuDeviceGetAttribute(&value, HDCU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0));
    REFUSED(d->cuDeviceCanAccessPeer(&value, 0, 1));
    REFUSED(d->cuDeviceGetP2PAttribute(&value, HDCU_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
    REFUSED(d->cuDevicePrimaryCtxRetain(&c, 0));
    REFUSED(d->cuDevicePrimaryCtxRelease(0));
    REFUSED(d->cuCtxSetCurrent(context));
    REFUSED(d->cuCtxSetCurrent(NULL));
    REFUSED(d->cuCtxGetCurrent(&c));
    REFUSED(d->cuCtxPushCurrent(context));
    REFUSED(d->cuCtxPopCurrent(&c));
    REFUSED(d->cuCtxSynchronize());
    REFUSED(d->cuCtxEnablePeerAccess(context, 0));
    REFUSED(d->cuCtxDisablePeerAccess(context));
    REFUSED(d->cuMemGetInfo(&n, &n));
    return GOOD;
}

static int memory(void)
{
    hdcu_mem_prop prop = {.type = HDCU_MEM_ALLOCATION_TYPE_PINNED, .location = {HDCU_MEM_LOCATION_TYPE_DEVICE, 0}};
    hdcu_mem_access_desc access = {{HDCU_MEM_LOCATION_TYPE_DEVICE, 0}, HDCU_MEM_ACCESS_READWRITE};
    hdcu_memhandle h;
    hdcu_deviceptr p;
    unsigned long long flags;
    void *host;
    size_t n;
    int descriptor;
    char bytes[64];
    REFUSED(d->cuMemAlloc(&p, 4096));
    REFUSED(d->cuMemFree(pointer));
    REFUSED(d->cuMemFree(0));
    REFUSED(d->cuMemHostAlloc(&host, 4096, 0));
    REFUSED(d->cuMemFreeHost(bytes));
    REFUSED(d->cuMemFreeHost(NULL));
    REFUSED(d->cuMemHostRegister(bytes, sizeof bytes, 0));
    REFUSED(d->cuMemHostUnregister(bytes));
    REFUSED(d->cuMemHostGetDevicePointer(&p, bytes, 0));
    REFUSED(d->cuMemAddressReserve(&p, GRANULE, 0, 0, 0));
    REFUSED(d->cuMemAddressFree(GRANULE, GRANULE));
    REFUSED(d->cuMemCreate(&h, GRANULE, &prop, 0));
    REFUSED(d->cuMemRelease(handle));
    REFUSED(d->cuMemMap(GRANULE, GRANULE, 0, handle, 0));
    REFUSED(d->cuMemUnmap(GRANULE, GRANULE));
    REFUSED(d->cuMemSetAccess(GRANULE, GRANULE, &access, 1));
    REFUSED(d->cuMemGetAccess(&flags, &access.location, GRANULE));
    REFUSED(d->cuMemGetAllocationGranularity(&n, &prop, 0));
    REFUSED(d->cuMemExportToShareableHandle(&descriptor, handle, 1, 0));
    REFUSED(d->cuMemImportFromShareableHandle(&h, NULL, 1));
    REFUSED(d->cuMemcpyHtoD(pointer, bytes, 4));
    REFUSED(d->cuMemcpyDtoH(bytes, pointer, 4));
    REFUSED(d->cuMemcpyAsync(pointer, pointer + 64, 4, stream));
    REFUSED(d->cuMemcpyHtoDAsync(pointer, bytes, 4, stream));
    REFUSED(d->cuMemcpyDtoHAsync(bytes, pointer, 4, stream));
    REFUSED(d->cuMemcpyDtoDAsync(pointer, pointer + 64, 4, stream));
    REFUSED(d->cuMemcpy2DAsync(&(hdcu_memcpy2d){.rows = 1}, stream));
    REFUSED(d->cuMemcpyPeerAsync(pointer, context, pointer + 64, context, 4, stream));
    REFUSED(d->cuMemsetD8Async(pointer, 1, 1, stream));
    REFUSED(d->cuMemsetD32Async(pointer, 1, 1, stream));
    return GOOD;
}

static int streams_and_code(void)
{
    hdcu_stream s;
    hdcu_event e;
    hdcu_module m;
    hdcu_function f;
    hdcu_graph graph;
    hdcu_graphnode node;
    hdcu_graphexec exec;
    hdcu_userobject object;
    const char *name;
    float milliseconds;
    size_t n;
    unsigned count;
    int value;
    REFUSED(d->cuStreamCreate(&s, 0));
    REFUSED(d->cuStreamDestroy(stream));
    REFUSED(d->cuStreamQuery(stream));
    REFUSED(d->cuStreamSynchronize(stream));
    REFUSED(d->cuStreamSynchronize(NULL));
    REFUSED(d->cuStreamWaitEvent(stream, event, 0));
    REFUSED(d->cuEventCreate(&e, 0));
    REFUSED(d->cuEventDestroy(event));
    REFUSED(d->cuEventRecord(event, stream));
    REFUSED(d->cuEventQuery(event));
    REFUSED(d->cuEventSynchronize(event));
    REFUSED(d->cuEventElapsedTime(&milliseconds, event, event));
    REFUSED(d->cuModuleLoadDataEx(&m, "no image", 0, NULL, NULL));
    REFUSED(d->cuModuleUnload(module));
    REFUSED(d->cuModuleGetFunction(&f, module, "add"));
    REFUSED(d->cuModuleGetFunctionCount(&count, module));
    REFUSED(d->cuModuleEnumerateFunctions(&f, 1, module));
    REFUSED(d->cuFuncGetName(&name, function));
    REFUSED(d->cuFuncGetAttribute(&value, 0, function));
    REFUSED(d->cuFuncSetAttribute(function, HDCU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1));
    REFUSED(d->cuGraphCreate(&graph, 0));
    REFUSED(d->cuFuncGetParamInfo(function, 0, &n, &n));
    REFUSED(launch_add(function, stream, pointer, 1, 1));
    REFUSED(d->cuLaunchHostFunc(stream, on_stream, NULL));
    REFUSED(d->cuStreamBeginCapture(stream, HDCU_STREAM_CAPTURE_MODE_RELAXED));
    REFUSED(d->cuStreamEndCapture(stream, &graph));
    REFUSED(d->cuStreamIsCapturing(stream, &value));
    REFUSED(d->cuStreamGetCaptureInfo(stream, &value, NULL, NULL, NULL, NULL));
    REFUSED(d->cuUserObjectCreate(&object, NULL, on_stream, 1, HDCU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    REFUSED(d->cuGraphRetainUserObject(NULL, NULL, 1, HDCU_GRAPH_USER_OBJECT_MOVE));
    REFUSED(d->cuGraphCreate(&graph, 0));
    REFUSED(d->cuGraphAddKernelNode(&node, NULL, NULL, 0, NULL));
    REFUSED(d->cuGraphExecKernelNodeSetParams(NULL, NULL, NULL));
    REFUSED(d->cuGraphInstantiateWithFlags(&exec, NULL, 0));
    REFUSED(d->cuGraphLaunch(NULL, stream));
    REFUSED(d->cuGraphExecDestroy(NULL));
    REFUSED(d->cuGraphDestroy(NULL));
    return GOOD;
}

static const char *const settings_to_try[] = {"driver=host", "driver=nvidia", "driver=auto",
                                              "driver=host host_devices=3 fault=cuInit:5=999"};
enum { N_SETTINGS = sizeof settings_to_try / sizeof settings_to_try[0] };

/* Parsed in the parent: the sanitizers forbid the heap in a forked child of a program with
 * threads. */
static hdi_options options_to_try[N_SETTINGS];

static int opens_fail(void)
{
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const hdi_driver *none = NULL;
        CHECK(hdi_providers_open_driver(&options_to_try[i], &none) == HD_ERROR_UNSUPPORTED);
        CHECK(!none && strstr(hd_message(), "fork") && strstr(hd_message(), "placement=process"));
    }
    hdi_providers_close_driver(d);
    return GOOD;
}

static int everything(void)
{
    CHECK(hdi_driver_was_forked());
    return devices_and_contexts() || memory() || streams_and_code() || opens_fail();
}

static int in_a_grandchild(void)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        _exit(everything());
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == GOOD);
    return GOOD;
}

static void a_child_is_refused(void **state)
{
    (void)state;
    begin(SETTINGS);
    assert_int_equal(in_child(everything, false), GOOD);
    assert_int_equal(in_child(everything, true), GOOD);
    assert_int_equal(in_child(in_a_grandchild, true), GOOD);
    end();
    begin(WRAPPED);
    assert_int_equal(in_child(everything, false), GOOD);
    assert_int_equal(in_child(everything, true), GOOD);
    end();
    /* the same with every driver closed */
    assert_int_equal(in_child(opens_fail, false), GOOD);
}

/* ---- while other threads use the driver ---- */

static atomic_int busy;

static void *use_driver(void *unused)
{
    (void)unused;
    OK(d->cuCtxSetCurrent(context));
    for (unsigned i = 0; atomic_load(&busy); i++) {
        size_t n;
        OK(d->cuMemGetInfo(&n, &n));
        OK(d->cuMemsetD8Async(pointer, 0, 4096, stream));
        if (i % 64 == 0) {
            OK(d->cuStreamSynchronize(stream));
        }
    }
    OK(d->cuStreamSynchronize(stream));
    return NULL;
}

static void *open_and_close(void *unused)
{
    const hdi_driver *again;
    (void)unused;
    while (atomic_load(&busy)) {
        assert_int_equal(open_with(WRAPPED, &again), HD_OK);
        hdi_providers_close_driver(again);
    }
    return NULL;
}

static int some(void)
{
    size_t n;
    CHECK(hdi_driver_was_forked());
    REFUSED(d->cuMemGetInfo(&n, &n));
    REFUSED(d->cuStreamSynchronize(stream));
    REFUSED(d->cuMemFree(pointer));
    return opens_fail();
}

static void a_child_does_not_wait_for_threads_of_its_parent(void **state)
{
    (void)state;
    pthread_t threads[2];
    begin(WRAPPED);
    atomic_store(&busy, 1);
    assert_int_equal(pthread_create(&threads[0], NULL, use_driver, NULL), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, open_and_close, NULL), 0);
    for (int i = 0; i < 60; i++) {
        assert_int_equal(in_child(some, false), GOOD);
    }
    atomic_store(&busy, 0);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    OK(d->cuMemsetD8Async(pointer, 0, 4096, stream));
    OK(launch_add(function, stream, pointer, 1, 256));
    end();
}

/* ---- on a stream's own thread ---- */

typedef struct forker {
    pid_t pid;
    int status;
} forker;

/* The child returns from here, and ends with its only thread. */
static void fork_and_return(void *data)
{
    forker *f = data;
    sigset_t alarm_signal;
    f->pid = fork();
    if (f->pid == 0) {
        sigemptyset(&alarm_signal); /* streams' threads block SIGALRM */
        sigaddset(&alarm_signal, SIGALRM);
        pthread_sigmask(SIG_UNBLOCK, &alarm_signal, NULL);
        alarm(CHILD_SECONDS);
        return;
    }
    waitpid(f->pid, &f->status, 0);
}

static void a_host_function_may_fork(void **state)
{
    (void)state;
    forker a = {0, -1}, b = {0, -1};
    hdcu_graph graph;
    hdcu_graphexec exec;
    begin(SETTINGS);
    OK(d->cuLaunchHostFunc(stream, fork_and_return, &a));
    OK(d->cuStreamSynchronize(stream));
    OK(d->cuStreamBeginCapture(stream, HDCU_STREAM_CAPTURE_MODE_RELAXED));
    OK(d->cuLaunchHostFunc(stream, fork_and_return, &b));
    OK(launch_add(function, stream, pointer, 0, 256));
    OK(d->cuStreamEndCapture(stream, &graph));
    OK(d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(d->cuGraphLaunch(exec, stream));
    OK(d->cuStreamSynchronize(stream));
    assert_true(a.pid > 0 && b.pid > 0);
    assert_int_equal(a.status, 0);
    assert_int_equal(b.status, 0);
    end();
}

/* ---- exec starts afresh ---- */

static void a_program_started_anew_is_free(void **state)
{
    (void)state;
    begin(SETTINGS);
    role_process p = role_start("anew", "");
    assert_int_equal(role_end(&p, false), GOOD);
    int status = -1;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", "role", "anew", "", (char *)NULL);
        _exit(1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, GOOD);
    end();
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "anew") == 0) {
        alarm(CHILD_SECONDS);
        return uses_a_driver_of_its_own();
    }
    for (size_t i = 0; i < N_SETTINGS; i++) {
        if (hdi_options_parse(settings_to_try[i], &options_to_try[i]) != HD_OK) {
            return 1;
        }
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_of_a_process_without_driver_is_free), /* must be the first */
        cmocka_unit_test(a_child_is_refused),
        cmocka_unit_test(a_child_does_not_wait_for_threads_of_its_parent),
        cmocka_unit_test(a_host_function_may_fork),
        cmocka_unit_test(a_program_started_anew_is_free),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (size_t i = 0; i < N_SETTINGS; i++) {
        hdi_options_release(&options_to_try[i]);
    }
    return failed;
}
