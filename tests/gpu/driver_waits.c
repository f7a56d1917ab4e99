/* driver_waits.c - finds the calls of NVIDIA's driver that wait for a kernel that runs.
 *
 * usage: driver_waits
 *
 * An engine must make none of them, since all lanes of its device would stand still
 * (docs/design.md). The program makes each call many times on a second thread while a kernel runs
 * that the program ends. A call that does not return within a second waits. For each kind of call,
 * the program prints a JSON line. It contains the number of calls, the number that returned while
 * the kernel ran, and the longest one of these.
 * Streams that wait for the kernel then occupy hardware queues, and each other stream gets an
 * operation. A line tells how many of these do not end.
 * Exit status: 0; 1 if a call fails.
 *
 * Environment: CUDA_DEVICE_MAX_CONNECTIONS (default: 32), the number of hardware queues.
 *
 * Threads: the main one, and one that makes the calls. Locks: none.
 * Always: the kernel runs until the calls returned, or a second passed.
 */
#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { STREAMS = 200, MANY = 3000, GRANULES = 64, STREAMS_BESIDE = 128, NODES = 8, EXECUTABLES = 600 };
#define GRANULE ((size_t)2 << 20)
#define SMALL ((size_t)4096)

static const char ptx[] = ".version 6.3\n"
                          ".target sm_70\n"
                          ".address_size 64\n"
                          ".visible .entry hold(.param .u64 flag)\n"
                          "{\n"
                          "    .reg .u64 at;\n"
                          "    .reg .u32 word;\n"
                          "    .reg .pred open;\n"
                          "    ld.param.u64 at, [flag];\n"
                          "again:\n"
                          "    ld.volatile.global.u32 word, [at];\n"
                          "    setp.eq.u32 open, word, 0;\n"
                          "    @open bra again;\n"
                          "    ret;\n"
                          "}\n"
                          ".visible .entry touch(.param .u64 y)\n"
                          "{\n"
                          "    .reg .u64 at;\n"
                          "    ld.param.u64 at, [y];\n"
                          "    st.global.u32 [at], 7;\n"
                          "    ret;\n"
                          "}\n";

static CUcontext context;
static CUfunction hold, touch;
static CUstream holding, behind;
static uint32_t *flag; /* pinned; 1 ends the kernel */
static CUdeviceptr device_memory;
static char *pinned[2];

#define NEED(call) need((call), #call)

static void need(CUresult code, const char *call)
{
    if (code != CUDA_SUCCESS) {
        fprintf(stderr, "driver_waits: %s: error %d\n", call, (int)code);
        exit(1);
    }
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void kernel_begin(CUstream stream)
{
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)flag;
    void *arguments[] = {&at};
    __atomic_store_n(flag, 0, __ATOMIC_RELEASE);
    NEED(cuLaunchKernel(hold, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
    usleep(20000);
}

static void kernel_end(void)
{
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
}

/* ---- the calls: each is one of n, and may use the results of those before it ---- */

static CUstream streams[STREAMS];
static CUevent events[MANY];
static char *pages[GRANULES];
static void *allocated[GRANULES];
static CUmemGenericAllocationHandle pieces[GRANULES];
static CUdeviceptr range, of_driver;
static CUgraph graph;
static CUgraphNode nodes[NODES];
static CUgraphExec executables[EXECUTABLES];
static CUmemAllocationProp property = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
};

static CUresult make_stream(int i)
{
    return cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING);
}

static CUresult end_stream(int i)
{
    return cuStreamDestroy(streams[i]);
}

static CUresult make_event(int i)
{
    return cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING);
}

static CUresult register_pages(int i)
{
    return cuMemHostRegister(pages[i], 2 * GRANULE, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
}

static CUresult unregister_pages(int i)
{
    return cuMemHostUnregister(pages[i]);
}

static CUresult allocate_pinned(int i)
{
    return cuMemHostAlloc(&allocated[i], 2 * GRANULE, CU_MEMHOSTALLOC_PORTABLE);
}

static CUresult make_piece(int i)
{
    return cuMemCreate(&pieces[i], GRANULE, &property, 0);
}

static CUresult map_piece(int i)
{
    return cuMemMap(range + (uint64_t)i * GRANULE, GRANULE, 0, pieces[i], 0);
}

static CUresult give_access(int i)
{
    const CUmemAccessDesc access = {.location = property.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return cuMemSetAccess(range + (uint64_t)i * GRANULE, GRANULE, &access, 1);
}

static CUresult unmap_piece(int i)
{
    return cuMemUnmap(range + (uint64_t)i * GRANULE, GRANULE);
}

static CUresult release_piece(int i)
{
    return cuMemRelease(pieces[i]);
}

static CUresult allocate(int i)
{
    (void)i;
    return cuMemAlloc(&of_driver, GRANULE);
}

static CUresult free_it(int i)
{
    (void)i;
    return cuMemFree(of_driver);
}

static CUresult load_module(int i)
{
    CUmodule module;
    (void)i;
    return cuModuleLoadDataEx(&module, ptx, 0, NULL, NULL);
}

static CUDA_KERNEL_NODE_PARAMS kernel_node(void **arguments)
{
    return (CUDA_KERNEL_NODE_PARAMS){.func = touch,
                                     .gridDimX = 1,
                                     .gridDimY = 1,
                                     .gridDimZ = 1,
                                     .blockDimX = 1,
                                     .blockDimY = 1,
                                     .blockDimZ = 1,
                                     .kernelParams = arguments};
}

static CUresult make_executable(int i)
{
    return cuGraphInstantiate(&executables[i], graph, 0);
}

static CUresult launch_executable(int i)
{
    return cuGraphLaunch(executables[i % EXECUTABLES], behind);
}

static CUresult set_executable(int i)
{
    void *arguments[] = {&device_memory};
    const CUDA_KERNEL_NODE_PARAMS p = kernel_node(arguments);
    return cuGraphExecKernelNodeSetParams(executables[i % EXECUTABLES], nodes[i % NODES], &p);
}

static CUresult end_executable(int i)
{
    return cuGraphExecDestroy(executables[i]);
}

static CUresult copy_in(int i)
{
    (void)i;
    return cuMemcpyHtoDAsync(device_memory, pinned[0], SMALL, behind);
}

static CUresult copy_out(int i)
{
    (void)i;
    return cuMemcpyDtoHAsync(pinned[0], device_memory, SMALL, behind);
}

static CUresult copy_on(int i)
{
    (void)i;
    return cuMemcpyDtoDAsync(device_memory, device_memory + SMALL, SMALL, behind);
}

static CUresult copy_host(int i)
{
    (void)i;
    return cuMemcpyAsync((CUdeviceptr)(uintptr_t)pinned[0], (CUdeviceptr)(uintptr_t)pinned[1], SMALL, behind);
}

static CUresult fill(int i)
{
    (void)i;
    return cuMemsetD32Async(device_memory, 1, 100, behind);
}

static void do_nothing(void *unused)
{
    (void)unused;
}

static CUresult run_function(int i)
{
    (void)i;
    return cuLaunchHostFunc(behind, do_nothing, NULL);
}

static CUresult wait_for_event(int i)
{
    return cuStreamWaitEvent(behind, events[i % 1000], 0);
}

static CUresult record_event(int i)
{
    return cuEventRecord(events[i % 1000], behind);
}

static const struct call {
    const char *name;
    CUresult (*make)(int i);
    int n;
    bool behind; /* the stream runs the kernel, else another stream does */
} calls[] = {
    {"cuStreamCreate", make_stream, STREAMS, false},
    {"cuStreamDestroy", end_stream, STREAMS, false},
    {"cuEventCreate", make_event, 1000, false},
    {"cuMemHostRegister", register_pages, GRANULES, false},
    {"cuMemHostUnregister", unregister_pages, GRANULES, false},
    {"cuMemHostAlloc", allocate_pinned, GRANULES / 2, false},
    {"cuMemCreate", make_piece, GRANULES, false},
    {"cuMemMap", map_piece, GRANULES, false},
    {"cuMemSetAccess", give_access, GRANULES, false},
    {"cuMemUnmap", unmap_piece, GRANULES, false},
    {"cuMemRelease", release_piece, GRANULES, false},
    {"cuMemAlloc", allocate, 1, false},
    {"cuMemFree", free_it, 1, false},
    {"cuModuleLoadDataEx", load_module, 8, false},
    {"cuGraphInstantiate", make_executable, EXECUTABLES, false},
    {"cuGraphLaunch", launch_executable, 100, true},
    {"cuGraphExecKernelNodeSetParams", set_executable, MANY, true},
    {"cuGraphExecDestroy", end_executable, EXECUTABLES, false},
    {"cuGraphInstantiate after cuGraphExecDestroy", make_executable, EXECUTABLES, false},
    {"cuMemcpyHtoDAsync", copy_in, MANY, true},
    {"cuMemcpyDtoHAsync", copy_out, MANY, true},
    {"cuMemcpyDtoDAsync", copy_on, MANY, true},
    {"cuMemcpyAsync from host to host", copy_host, 10, true},
    {"cuMemsetD32Async", fill, MANY, true},
    {"cuLaunchHostFunc", run_function, MANY, true},
    {"cuStreamWaitEvent", wait_for_event, MANY, true},
    {"cuEventRecord", record_event, MANY, true},
};

/* ---- making them beside the kernel ---- */

static struct {
    const struct call *call;
    atomic_int returned;
    double longest_ms; /* read once the thread ended, or `returned` shows it */
    int code;
} under_way;

static void *make_calls(void *unused)
{
    (void)unused;
    NEED(cuCtxSetCurrent(context));
    for (int i = 0; i < under_way.call->n; i++) {
        double began = now_ms();
        CUresult code = under_way.call->make(i);
        double took = now_ms() - began;
        under_way.code = under_way.code != 0 ? under_way.code : (int)code;
        under_way.longest_ms = took > under_way.longest_ms ? took : under_way.longest_ms;
        atomic_store(&under_way.returned, i + 1);
    }
    return NULL;
}

static bool try_call(const struct call *call)
{
    pthread_t thread;
    under_way.call = call;
    atomic_store(&under_way.returned, 0);
    under_way.longest_ms = 0;
    under_way.code = 0;
    kernel_begin(call->behind ? behind : holding);
    if (pthread_create(&thread, NULL, make_calls, NULL) != 0) {
        fprintf(stderr, "driver_waits: no thread\n");
        exit(1);
    }
    for (int i = 0; i < 100 && atomic_load(&under_way.returned) < call->n; i++) {
        usleep(10000);
    }
    int returned = atomic_load(&under_way.returned);
    kernel_end();
    pthread_join(thread, NULL);
    NEED(cuCtxSynchronize());
    printf("{\"call\": \"%s\", \"returned\": %d, \"of\": %d, \"waits\": %s, \"longest_ms\": %.3f, \"code\": %d}\n",
           call->name, returned, call->n, returned < call->n ? "true" : "false", under_way.longest_ms, under_way.code);
    fflush(stdout);
    return under_way.code == 0;
}

/* ---- queues ---- */

static CUresult operation(const char *kind, CUstream stream)
{
    void *arguments[] = {&device_memory};
    if (strcmp(kind, "kernel") == 0) {
        return cuLaunchKernel(touch, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
    }
    return strcmp(kind, "out") == 0 ? cuMemcpyDtoHAsync(pinned[0], device_memory, SMALL, stream)
                                    : cuMemcpyHtoDAsync(device_memory, pinned[0], SMALL, stream);
}

/* How many streams stand still while others wait for the kernel. */
static void try_queues(int waiting, const char *kind)
{
    static CUstream beside[STREAMS_BESIDE];
    CUevent event;
    int stuck = 0;
    NEED(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < STREAMS_BESIDE; i++) {
        NEED(cuStreamCreate(&beside[i], CU_STREAM_NON_BLOCKING));
        NEED(operation(kind, beside[i]));
    }
    NEED(cuCtxSynchronize());
    kernel_begin(holding);
    NEED(cuEventRecord(event, holding));
    for (int i = 0; i < waiting; i++) {
        NEED(cuStreamWaitEvent(beside[i], event, 0));
        NEED(operation(kind, beside[i]));
    }
    usleep(10000);
    for (int i = waiting; i < STREAMS_BESIDE; i++) {
        NEED(operation(kind, beside[i]));
    }
    usleep(200000);
    for (int i = waiting; i < STREAMS_BESIDE; i++) {
        stuck += cuStreamQuery(beside[i]) == CUDA_ERROR_NOT_READY;
    }
    kernel_end();
    NEED(cuCtxSynchronize());
    printf("{\"queues\": %s, \"waiting\": %d, \"operation\": \"%s\", \"others\": %d, \"stuck\": %d}\n",
           getenv("CUDA_DEVICE_MAX_CONNECTIONS"), waiting, kind, STREAMS_BESIDE - waiting, stuck);
    fflush(stdout);
    for (int i = 0; i < STREAMS_BESIDE; i++) {
        NEED(cuStreamDestroy(beside[i]));
    }
    NEED(cuEventDestroy(event));
}

/* ---- the world ---- */

static void make_graph(void)
{
    void *arguments[] = {&device_memory};
    const CUDA_KERNEL_NODE_PARAMS p = kernel_node(arguments);
    NEED(cuGraphCreate(&graph, 0));
    for (int i = 0; i < NODES; i++) {
        NEED(cuGraphAddKernelNode(&nodes[i], graph, i > 0 ? &nodes[i - 1] : NULL, i > 0, &p));
    }
}

static void make_world(void)
{
    CUdevice device;
    CUmodule module;
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    NEED(cuInit(0));
    NEED(cuDeviceGet(&device, 0));
    NEED(cuDevicePrimaryCtxRetain(&context, device));
    NEED(cuCtxSetCurrent(context));
    NEED(cuModuleLoadDataEx(&module, ptx, 0, NULL, NULL));
    NEED(cuModuleGetFunction(&hold, module, "hold"));
    NEED(cuModuleGetFunction(&touch, module, "touch"));
    NEED(cuMemHostAlloc((void **)&flag, SMALL, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    NEED(cuMemAlloc(&device_memory, 2 * SMALL));
    for (int i = 0; i < 2; i++) {
        NEED(cuMemHostAlloc((void **)&pinned[i], SMALL, CU_MEMHOSTALLOC_PORTABLE));
    }
    for (int i = 0; i < GRANULES; i++) {
        pages[i] = mmap(NULL, 2 * GRANULE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pages[i] == MAP_FAILED) {
            fprintf(stderr, "driver_waits: no memory\n");
            exit(1);
        }
    }
    NEED(cuMemAddressReserve(&range, GRANULES * GRANULE, 0, 0, 0));
    NEED(cuStreamCreate(&holding, CU_STREAM_NON_BLOCKING));
    NEED(cuStreamCreate(&behind, CU_STREAM_NON_BLOCKING));
    make_graph();
}

int main(void)
{
    bool good = true;
    make_world();
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        good = try_call(&calls[i]) && good;
    }
    int queues = atoi(getenv("CUDA_DEVICE_MAX_CONNECTIONS"));
    for (int eighths = 2; eighths <= 6; eighths++) {
        try_queues(queues * eighths / 8, "kernel");
        try_queues(queues * eighths / 8, "out");
        try_queues(queues * eighths / 8, "in");
    }
    return good ? 0 : 1;
}
