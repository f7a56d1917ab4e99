/* allreduce.c - steps of a training on all devices: kernels compute gradients, and NCCL adds them
 * up in a lane call for each device.
 *
 * usage: allreduce
 *
 * Each rank is a device with a lane. Buffers order the work, and no call waits: the next step is
 * submitted while NCCL still adds. The kernels of NCCL's ranks wait for each other, which no buffer
 * shows. Two rules keep them from waiting in a circle:
 *   - All calls of a communicator stand in one lane per device, in the same order everywhere.
 *   - The calls of all ranks are submitted one after the other, with nothing in between.
 *
 * Engines call ncclAllReduce, each for its own rank, without a group. While NCCL makes connections,
 * such a call would wait for the other ranks on the CPU. So ncclCommInitAll makes all connections
 * (NCCL_RUNTIME_CONNECT=0). Then placement=inline works, too, if one thread makes all calls. On
 * host devices the host call adds. The program checks every value. Exit status: 0, or 1 after a
 * failure, or 77 if there are GPUs and no NCCL. */
#include <dlfcn.h>
#include <heddle.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 1 << 18, STEPS = 10, RANKS_MOST = 32 };

static struct rank {
    hd_lane *lane;
    hd_buffer *x, *gradient, *weights; /* each rank keeps all weights */
    float *at;                         /* the gradient's address on the device */
    void *comm;                        /* NCCL's communicator */
} ranks[RANKS_MOST];
static int n;
static hd_kernel *axpy;

static void must(hd_status status)
{
    if (status != HD_OK) {
        fprintf(stderr, "allreduce: %s\n", hd_message());
        exit(1);
    }
}

/* NCCL, as nccl.h of version 2 declares it. */
enum { NCCL_SUM = 0, NCCL_FLOAT = 7 };
static int (*ncclCommInitAll)(void **comms, int n, const int *ordinals);
static int (*ncclAllReduce)(const void *from, void *to, size_t count, int type, int operation, void *comm,
                            void *stream);
static int (*ncclCommDestroy)(void *comm);

static void succeed(int result, const char *what)
{
    if (result != 0) {
        fprintf(stderr, "allreduce: %s: error %d\n", what, result);
        exit(1);
    }
}

static void load(void *library, const char *name, void *function)
{
    void *address = dlsym(library, name);
    succeed(address == NULL, name);
    memcpy(function, &address, sizeof address);
}

/* CUDA's ordinal of a device. It may differ from Heddle's number, by the option `devices`. */
static int ordinal_of(const char *bus_id)
{
    void (*entry)(void);
    char found[32] = "";
    int i = 0;
    must(hd_driver_entry("nvidia", "cuDeviceGetPCIBusId", &entry));
    while (strcmp(found, bus_id) != 0) {
        succeed(((int (*)(char *, int, int))entry)(found, sizeof found, i++), "cuDeviceGetPCIBusId");
    }
    return i - 1;
}

static void open_nccl(hd_runtime *runtime)
{
    int ordinals[RANKS_MOST];
    void *comms[RANKS_MOST], *library = dlopen("libnccl.so.2", RTLD_NOW);
    if (library == NULL) {
        printf("skipped: %s\n", dlerror());
        exit(77);
    }
    load(library, "ncclCommInitAll", &ncclCommInitAll);
    load(library, "ncclCommDestroy", &ncclCommDestroy);
    load(library, "ncclAllReduce", &ncclAllReduce);
    for (int i = 0; i < n; i++) {
        hd_device_info info = {.size = sizeof info};
        must(hd_device_get_info(runtime, i, &info));
        ordinals[i] = ordinal_of(info.bus_id);
    }
    setenv("NCCL_RUNTIME_CONNECT", "0", 1);
    succeed(ncclCommInitAll(comms, n, ordinals), "ncclCommInitAll");
    for (int i = 0; i < n; i++) {
        ranks[i].comm = comms[i];
    }
}

/* A lane call: one rank's part, on its device. */
static hd_status add_rank(void *stream, void *context)
{
    const struct rank *r = context;
    return ncclAllReduce(r->at, r->at, N, NCCL_FLOAT, NCCL_SUM, r->comm, stream) ? HD_ERROR_DRIVER : HD_OK;
}

/* A host call, once the bytes of all ranks are there. Host devices use the CPU's memory, so it may
 * use their addresses. */
static hd_status add_ranks(void *const *pointers, void *context)
{
    (void)pointers, (void)context;
    for (int i = 0; i < N; i++) {
        float sum = 0;
        for (int j = 0; j < n; j++) {
            sum += ranks[j].at[i];
        }
        for (int j = 0; j < n; j++) {
            ranks[j].at[i] = sum;
        }
    }
    return HD_OK;
}

static void all_reduce(hd_runtime *runtime)
{
    hd_arg uses[RANKS_MOST];
    for (int i = 0; i < n; i++) {
        uses[i] = hd_inout(ranks[i].gradient);
    }
    if (ncclAllReduce == NULL) {
        must(hd_launch_host(runtime, add_ranks, NULL, uses, (size_t)n, NULL));
        return;
    }
    for (int i = 0; i < n; i++) {
        must(hd_lane_run_native(ranks[i].lane, add_rank, &ranks[i], &uses[i], 1, NULL));
    }
}

static void add(hd_lane *lane, hd_buffer *to, float factor, hd_buffer *from)
{
    const hd_arg args[] = {hd_inout(to), hd_in(from), hd_f32(factor), hd_u64(N)};
    must(hd_launch(lane, axpy, (hd_dims){.x = N / 256}, (hd_dims){.x = 256}, 0, args, 4, NULL));
}

static void begin(hd_runtime *runtime, struct rank *r, int device, const float *x)
{
    must(hd_lane_get_default(runtime, device, &r->lane));
    must(hd_alloc(r->lane, N * sizeof *x, &r->x));
    must(hd_alloc(r->lane, N * sizeof *x, &r->gradient));
    must(hd_alloc(r->lane, N * sizeof *x, &r->weights));
    must(hd_write(r->x, 0, x, N * sizeof *x));
    must(hd_fill(r->weights, 0, 0, N * sizeof *x, NULL));
    r->at = (float *)(uintptr_t)hd_buffer_address(r->gradient);
}

static void step(hd_runtime *runtime)
{
    for (int i = 0; i < n; i++) {
        must(hd_fill(ranks[i].gradient, 0, 0, N * sizeof(float), NULL));
        add(ranks[i].lane, ranks[i].gradient, (float)(i + 1), ranks[i].x);
    }
    all_reduce(runtime);
    for (int i = 0; i < n; i++) {
        add(ranks[i].lane, ranks[i].weights, 1, ranks[i].gradient);
    }
}

int main(void)
{
    static float x[N], weights[N];
    const hd_options options = {sizeof options,
                                /* Or inline; a worker process does not contain the program's
                                 * NCCL. */
                                "placement=thread"};
    hd_runtime *runtime;
    hd_module *builtin;
    hd_device_info info = {.size = sizeof info};
    int wrong = 0;
    must(hd_open(&options, &runtime));
    n = hd_device_count(runtime) < RANKS_MOST ? hd_device_count(runtime) : RANKS_MOST;
    must(hd_device_get_info(runtime, 0, &info));
    if (!info.is_host) {
        open_nccl(runtime);
    }
    must(hd_module_get_builtin(runtime, &builtin));
    must(hd_kernel_get(builtin, "hd_axpy_f32", &axpy));
    for (int i = 0; i < N; i++) {
        x[i] = (float)(i % 16);
    }
    for (int i = 0; i < n; i++) {
        begin(runtime, &ranks[i], i, x);
    }
    for (int i = 0; i < STEPS; i++) {
        step(runtime);
    }
    for (int i = 0; i < n; i++) {
        must(hd_read(ranks[i].weights, 0, weights, sizeof weights));
        for (int j = 0; j < N; j++) {
            wrong += weights[j] != STEPS * (float)(n * (n + 1) / 2) * x[j];
        }
    }
    printf("%d steps on %d devices, summed by %s: %d wrong weights\n", STEPS, n, info.is_host ? "a host call" : "NCCL",
           wrong);
    for (int i = 0; i < n && ncclCommDestroy != NULL; i++) {
        succeed(ncclCommDestroy(ranks[i].comm), "ncclCommDestroy");
    }
    must(hd_close(runtime));
    return wrong > 0;
}
