/* foreign_libraries.cu - random graphs of Heddle's work mixed with other GPU libraries' work,
 * compared with a model that runs the same in sequence.
 *
 * usage: foreign_libraries thread|inline [GRAPHS [SEED]]      (defaults: 1000 and 1)
 *
 * The work includes launches, fills and copies of Heddle, host calls and claims. Kernels of the
 * CUDA runtime run on the program's own streams under claims, and in lane calls. Lane calls also
 * run transforms of cuFFT, and sums over all devices by NCCL (libnccl.so.2).
 * The part foreign of tools/gpu-run builds it. It also registers a buffer of one piece with NCCL.
 * Exit status: 0 if every graph was right, 1 otherwise.
 *
 * Numbers are whole and small. So each sum is exact in any order, and a transform and its inverse
 * give the same numbers once rounded.
 *
 * Threads: the main one submits. Heddle's threads run the functions that it submits.
 * Locks: none.
 * Always: the model equals the buffers once all submitted work is done. All calls of a communicator
 * are in one lane per device, in the same order everywhere, as NCCL requires. Each kernel has run
 * once before NCCL's first, since loading one may wait for the device.
 */
#include <cuda_runtime.h>
#include <cufft.h>
#include <dlfcn.h>
#include <heddle.h>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#ifndef LAUNCH
#define LAUNCH(kernel, n, stream, ...) kernel<<<((n) + 255) / 256, 256, 0, (cudaStream_t)(stream)>>>(__VA_ARGS__)
#endif

enum { words = 1 << 14, per_device = 5, pinned = 3, operations = 48, transform = 1024, batch = 4, devices_most = 16 };
static const float limit = 1 << 20; /* of a number; sums over all devices stay exact */

struct Device {
    int ordinal; /* CUDA's number */
    hd_lane *lanes[2];
    hd_lane *collective;     /* for all NCCL work */
    cudaStream_t streams[2]; /* the program's own */
    cufftHandle plan;
    hd_buffer *scratch; /* `batch` transforms, then the plan's work area */
    cufftComplex *scratch_at;
    void *comm;
};

struct Item {
    hd_buffer *buffer;
    int device; /* -1: pinned */
    float *at;  /* the address for devices */
    std::vector<float> model;
};

static hd_runtime *runtime;
static hd_kernel *axpy, *copy;
static int n_devices;
static Device devices[devices_most];
static std::vector<Item> items;
static hd_ticket last; /* of the latest operation that returns one */
static std::mt19937_64 generator;
static std::vector<std::string> steps; /* of this graph */

static void must_(hd_status status, const char *call, int line)
{
    if (status != HD_OK) {
        fprintf(stderr, "foreign_libraries.cu:%d: %s: %s: %s\n", line, call, hd_status_name(status), hd_message());
        _Exit(1); /* work may hang */
    }
}
#define must(call) must_(call, #call, __LINE__)

static void zero_(int result, const char *call, int line)
{
    if (result != 0) {
        fprintf(stderr, "foreign_libraries.cu:%d: %s: error %d\n", line, call, result);
        _Exit(1);
    }
}
#define zero(call) zero_((int)(call), #call, __LINE__)

__attribute__((format(printf, 1, 2))) static void note(const char *format, ...)
{
    char text[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    steps.push_back(text);
}

static int below(int n)
{
    return (int)(generator() % (uint64_t)n);
}

/* ---- kernels and the CPU ---- */

/* Maps a whole number to -512..511. */
__host__ __device__ static float wrapped(float x)
{
    return (float)((((int)x + 512) & 1023) - 512);
}

__global__ static void combine(float *y, const float *x, float factor, int n)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) {
        y[i] = wrapped(y[i] + factor * x[i]);
    }
}

static void combine_here(float *y, const float *x, float factor, int n)
{
    for (int i = 0; i < n; i++) {
        y[i] = wrapped(y[i] + factor * x[i]);
    }
}

/* Real numbers to complex ones, and back with the scale of a transform and its inverse. */
__global__ static void widen(cufftComplex *to, const float *from, int n)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) {
        to[i].x = wrapped(from[i]);
        to[i].y = 0;
    }
}

__global__ static void narrow(float *to, const cufftComplex *from, int n)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) {
        to[i] = rintf(from[i].x / transform);
    }
}

/* Multiplies every second frequency by -1, which moves each number by half of the transform's
 * length. */
__global__ static void turn(cufftComplex *x, int n)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n && i % 2 == 1) {
        x[i].x = -x[i].x;
        x[i].y = -x[i].y;
    }
}

static void transform_model(float *x)
{
    for (int i = 0; i < batch * transform; i++) {
        x[i] = wrapped(x[i]);
    }
    for (int block = 0; block < batch; block++) {
        for (int i = 0; i < transform / 2; i++) {
            std::swap(x[block * transform + i], x[block * transform + i + transform / 2]);
        }
    }
}

/* ---- choices ---- */

struct Range {
    int item, from, n;
    float *model() const
    {
        return items[(size_t)item].model.data() + from;
    }
    float *at() const
    {
        return items[(size_t)item].at + from;
    }
    hd_arg use(hd_access access) const
    {
        return hd_arg_buffer(items[(size_t)item].buffer, access, (size_t)from * 4, (size_t)n * 4);
    }
};

static Range part(int item, int n)
{
    return {item, below(words - n + 1), n};
}

static int some_length()
{
    const int n = 1 + below(below(2) ? words : 256);
    return below(4) ? n : words;
}

static int some_item(int device) /* -1: pinned */
{
    return device < 0 ? n_devices * per_device + below(pinned) : device * per_device + below(per_device);
}

/* Picks two ranges of one length: y on the device, x there or pinned. False: both are in one
 * buffer. */
static bool some_pair(int device, Range *y, Range *x)
{
    const int n = some_length();
    *y = part(some_item(device), n);
    *x = part(some_item(below(3) ? device : -1), n);
    return y->item != x->item;
}

static float some_factor()
{
    static const float factors[] = {-2, -1, 1, 2};
    return factors[below(4)];
}

static hd_lane *some_lane(int device)
{
    return devices[device].lanes[below(2)];
}

static bool within_limit(const float *x, int n)
{
    for (int i = 0; i < n; i++) {
        if (x[i] > limit || x[i] < -limit) {
            return false;
        }
    }
    return true;
}

/* ---- Heddle's own work ---- */

/* Each function submits one operation that involves the device, and does it on the model. It
 * returns false if this choice is impossible. */

static bool do_axpy(int device)
{
    Range y, x;
    if (!some_pair(device, &y, &x) || !within_limit(y.model(), y.n) || !within_limit(x.model(), x.n)) {
        return false;
    }
    const float factor = some_factor();
    const hd_arg args[] = {y.use(HD_READ_WRITE), x.use(HD_READ), hd_f32(factor), hd_u64((uint64_t)y.n)};
    const hd_dims grid = {(uint32_t)(y.n + 255) / 256, 1, 1}, block = {256, 1, 1};
    must(hd_launch(some_lane(device), axpy, grid, block, 0, args, 4, &last));
    for (int i = 0; i < y.n; i++) {
        y.model()[i] += factor * x.model()[i];
    }
    note("axpy of %d [%d, %d) with %d at %d, device %d", y.item, y.from, y.from + y.n, x.item, x.from, device);
    return true;
}

static bool do_copy_kernel(int device)
{
    Range y, x;
    if (!some_pair(device, &y, &x)) {
        return false;
    }
    const hd_arg args[] = {y.use(HD_WRITE), x.use(HD_READ), hd_u64((uint64_t)y.n)};
    const hd_dims grid = {(uint32_t)(y.n + 127) / 128, 1, 1}, block = {128, 1, 1};
    must(hd_launch(some_lane(device), copy, grid, block, 0, args, 3, &last));
    memcpy(y.model(), x.model(), (size_t)y.n * 4);
    note("copy kernel to %d [%d, %d) from %d at %d, device %d", y.item, y.from, y.from + y.n, x.item, x.from, device);
    return true;
}

static bool do_copy(int device)
{
    const int n = some_length();
    const Range y = part(below((int)items.size()), n), x = part(some_item(device), n);
    if (y.item == x.item) {
        return false;
    }
    must(hd_copy(items[(size_t)y.item].buffer, (size_t)y.from * 4, items[(size_t)x.item].buffer, (size_t)x.from * 4,
                 (size_t)n * 4, &last));
    memcpy(y.model(), x.model(), (size_t)n * 4);
    note("hd_copy to %d [%d, %d) from %d at %d", y.item, y.from, y.from + n, x.item, x.from);
    return true;
}

static bool do_fill(int device)
{
    const Range y = part(some_item(device), some_length());
    const float value = (float)(below(101) - 50);
    uint32_t word;
    memcpy(&word, &value, 4);
    must(hd_fill(items[(size_t)y.item].buffer, (size_t)y.from * 4, word, (size_t)y.n * 4, &last));
    std::fill(y.model(), y.model() + y.n, value);
    note("hd_fill of %d [%d, %d), %g", y.item, y.from, y.from + y.n, value);
    return true;
}

/* ---- work of the program on the CPU ---- */

struct Combine {
    float *y;
    const float *x;
    float factor;
    int n;
    int device;
};

static hd_status host_combine(void *const *pointers, void *context)
{
    const std::unique_ptr<Combine> c((Combine *)context);
    combine_here((float *)pointers[0], (const float *)pointers[1], c->factor, c->n);
    return HD_OK;
}

static bool do_host_call(int)
{
    const int n = some_length();
    const Range y = part(some_item(-1), n), x = part(some_item(-1), n);
    if (y.item == x.item) {
        return false;
    }
    const hd_arg uses[] = {y.use(HD_READ_WRITE), x.use(HD_READ)};
    Combine *c = new Combine{NULL, NULL, some_factor(), n, -1};
    combine_here(y.model(), x.model(), c->factor, n);
    must(hd_launch_host(runtime, host_combine, c, uses, 2, &last));
    note("host call: %d [%d, %d) with %d at %d", y.item, y.from, y.from + n, x.item, x.from);
    return true;
}

/* The bytes belong to the program now: adds, and ends the claim. */
static void on_ready(hd_claim *claim, hd_status status, void *context)
{
    const std::unique_ptr<Combine> c((Combine *)context);
    void *y, *x;
    must(status);
    must(hd_claim_get_pointer(claim, 0, &y));
    must(hd_claim_get_pointer(claim, 1, &x));
    combine_here((float *)y, (const float *)x, c->factor, c->n);
    must(hd_claim_end(claim, HD_OK));
}

static bool do_claim(int)
{
    const int n = some_length();
    const Range y = part(some_item(-1), n), x = part(some_item(-1), n);
    if (y.item == x.item) {
        return false;
    }
    const hd_arg uses[] = {y.use(HD_READ_WRITE), x.use(HD_READ)};
    Combine *c = new Combine{NULL, NULL, some_factor(), n, -1};
    hd_claim *claim;
    combine_here(y.model(), x.model(), c->factor, n);
    must(hd_claim_begin(runtime, uses, 2, &claim));
    must(hd_claim_get_ticket(claim, &last));
    must(hd_claim_on_ready(claim, on_ready, c));
    note("claim: %d [%d, %d) with %d at %d", y.item, y.from, y.from + n, x.item, x.from);
    return true;
}

/* ---- streams of the program, and libraries ---- */

static bool do_stream(int device)
{
    Range y, x;
    if (!some_pair(device, &y, &x)) {
        return false;
    }
    const Device *d = &devices[device];
    cudaStream_t stream = below(4) ? d->streams[below(2)] : below(2) ? cudaStreamLegacy : cudaStreamPerThread;
    const float factor = some_factor();
    const hd_arg uses[] = {y.use(HD_READ_WRITE), x.use(HD_READ)};
    hd_claim *claim;
    zero(cudaSetDevice(d->ordinal));
    must(hd_claim_begin_stream(runtime, device, stream, uses, 2, NULL, &claim));
    must(hd_claim_get_ticket(claim, &last));
    LAUNCH(combine, y.n, stream, y.at(), x.at(), factor, y.n);
    zero(cudaGetLastError());
    must(hd_claim_end(claim, HD_OK));
    combine_here(y.model(), x.model(), factor, y.n);
    note("stream %p of device %d: %d [%d, %d) with %d at %d", (void *)stream, device, y.item, y.from, y.from + y.n,
         x.item, x.from);
    return true;
}

static hd_status lane_combine(void *stream, void *context)
{
    const std::unique_ptr<Combine> c((Combine *)context);
    LAUNCH(combine, c->n, stream, c->y, c->x, c->factor, c->n);
    return cudaGetLastError() == cudaSuccess ? HD_OK : HD_ERROR_DRIVER;
}

static bool do_lane_kernel(int device)
{
    Range y, x;
    if (!some_pair(device, &y, &x)) {
        return false;
    }
    const hd_arg uses[] = {y.use(HD_READ_WRITE), x.use(HD_READ)};
    Combine *c = new Combine{y.at(), x.at(), some_factor(), y.n, device};
    combine_here(y.model(), x.model(), c->factor, y.n);
    must(hd_lane_run_native(some_lane(device), lane_combine, c, uses, 2, &last));
    note("lane call: %d [%d, %d) with %d at %d, device %d", y.item, y.from, y.from + y.n, x.item, x.from, device);
    return true;
}

/* The plan belongs to the device's engine, which calls for one lane after the other. */
static hd_status lane_transform(void *stream, void *context)
{
    const std::unique_ptr<Combine> c((Combine *)context);
    const Device *d = &devices[c->device];
    cufftComplex *x = d->scratch_at;
    LAUNCH(widen, c->n, stream, x, c->y, c->n);
    int failed = cufftSetStream(d->plan, (cudaStream_t)stream) || cufftExecC2C(d->plan, x, x, CUFFT_FORWARD);
    LAUNCH(turn, c->n, stream, x, c->n);
    failed = failed || cufftExecC2C(d->plan, x, x, CUFFT_INVERSE);
    LAUNCH(narrow, c->n, stream, c->y, x, c->n);
    return !failed && cudaGetLastError() == cudaSuccess ? HD_OK : HD_ERROR_DRIVER;
}

static bool do_transform(int device)
{
    const Range y = part(some_item(device), batch * transform);
    const hd_arg uses[] = {y.use(HD_READ_WRITE), hd_inout(devices[device].scratch)};
    must(hd_lane_run_native(some_lane(device), lane_transform, new Combine{y.at(), NULL, 0, y.n, device}, uses, 2,
                            &last));
    transform_model(y.model());
    note("cuFFT: %d [%d, %d), device %d", y.item, y.from, y.from + y.n, device);
    return true;
}

/* NCCL, as nccl.h of version 2 declares it. */
enum { nccl_sum = 0, nccl_float = 7 };
static int (*nccl_init_all)(void **comms, int n, const int *ordinals);
static int (*nccl_all_reduce)(const void *from, void *to, size_t n, int type, int operation, void *comm, void *stream);
static int (*nccl_destroy)(void *comm);
static int (*nccl_register)(void *comm, void *memory, size_t bytes, void **out);
static int (*nccl_deregister)(void *comm, void *registration);

static hd_status lane_all_reduce(void *stream, void *context)
{
    const std::unique_ptr<Combine> c((Combine *)context);
    const int result = nccl_all_reduce(c->y, c->y, (size_t)c->n, nccl_float, nccl_sum, devices[c->device].comm, stream);
    return result == 0 ? HD_OK : HD_ERROR_DRIVER;
}

static hd_status nothing(void *const *, void *)
{
    return HD_OK;
}

/* NCCL's kernels wait for each other, which no buffer shows, and a lane may wait for more of
 * another lane than needed. Therefore the CPU first waits for all bytes. Then none of these kernels
 * is behind something that waits for another one. */
static void meet(const std::vector<Range> &parts)
{
    std::vector<hd_arg> uses;
    for (const Range &p : parts) {
        uses.push_back(p.use(HD_READ_WRITE));
    }
    must(hd_launch_host(runtime, nothing, NULL, uses.data(), uses.size(), NULL));
}

static bool do_all_reduce(int)
{
    const int n = some_length();
    std::vector<Range> parts;
    for (int d = 0; d < n_devices; d++) {
        parts.push_back(part(some_item(d), n));
        if (!within_limit(parts[(size_t)d].model(), n)) {
            return false;
        }
    }
    for (int i = 0; i < n; i++) {
        float sum = 0;
        for (const Range &p : parts) {
            sum += p.model()[i];
        }
        for (const Range &p : parts) {
            p.model()[i] = sum;
        }
    }
    meet(parts);
    for (int d = 0; d < n_devices; d++) {
        const Range &p = parts[(size_t)d];
        const hd_arg use = p.use(HD_READ_WRITE);
        must(hd_lane_run_native(devices[d].collective, lane_all_reduce, new Combine{p.at(), NULL, 0, n, d}, &use, 1,
                                &last));
        note("NCCL: %d [%d, %d), device %d of %d", p.item, p.from, p.from + n, d, n_devices);
    }
    return true;
}

static bool do_after(int device)
{
    must(hd_lane_add_dependency(some_lane(device), last, NULL));
    return true;
}

/* ---- graphs ---- */

static struct Kind {
    const char *name;
    bool (*run)(int device);
    int weight;
    long done;
} kinds[] = {
    {"axpy", do_axpy, 14, 0},
    {"copy kernel", do_copy_kernel, 10, 0},
    {"hd_copy", do_copy, 12, 0},
    {"hd_fill", do_fill, 6, 0},
    {"host call", do_host_call, 7, 0},
    {"claim", do_claim, 7, 0},
    {"kernel on a stream", do_stream, 16, 0},
    {"kernel in a lane", do_lane_kernel, 12, 0},
    {"cuFFT", do_transform, 8, 0},
    {"after", do_after, 4, 0},
    {"NCCL", do_all_reduce, 8, 0}, /* must be the last */
};
enum { n_kinds = sizeof kinds / sizeof *kinds };

static Kind *some_kind()
{
    int total = 0;
    for (const Kind &k : kinds) {
        total += k.weight;
    }
    int pick = below(total);
    Kind *k = kinds;
    while (pick >= k->weight) {
        pick -= k++->weight;
    }
    return k;
}

/* True if all buffers equal the model. */
static bool compare(long graph)
{
    std::vector<float> found(words);
    for (size_t at = 0; at < items.size(); at++) {
        must(hd_read(items[at].buffer, 0, found.data(), words * 4));
        for (int i = 0; i < words; i++) {
            const float wanted = items[at].model[(size_t)i];
            if (found[(size_t)i] != wanted) {
                fprintf(stderr, "graph %ld: buffer %zu (device %d), number %d is %g, not %g; the graph:\n", graph, at,
                        items[at].device, i, (double)found[(size_t)i], (double)wanted);
                for (const std::string &step : steps) {
                    fprintf(stderr, "    %s\n", step.c_str());
                }
                return false;
            }
        }
    }
    return true;
}

static void begin_graph()
{
    steps.clear();
    for (Item &item : items) {
        for (float &x : item.model) {
            x = (float)(below(101) - 50);
        }
        must(hd_write(item.buffer, 0, item.model.data(), words * 4));
    }
}

static bool run_graph(long graph)
{
    begin_graph();
    for (int i = 0; i < operations; i++) {
        Kind *k = some_kind();
        k->done += k->run(below(n_devices));
    }
    return compare(graph);
}

/* Runs each kind at least once on each device, NCCL last and alone, so that code is loaded and
 * memory allocated here. */
static bool warm_up()
{
    begin_graph();
    for (int kind = 0; kind < n_kinds; kind++) {
        if (kind == n_kinds - 1 && !compare(-1)) {
            return false;
        }
        for (int i = 0; i < 8 * n_devices; i++) {
            (void)kinds[kind].run(i % n_devices);
        }
    }
    return compare(-1);
}

/* ---- begin and end ---- */

static void load(void *library, const char *name, void *function)
{
    void *address = dlsym(library, name);
    zero(address == NULL);
    memcpy(function, &address, sizeof address);
}

static void open_nccl()
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW), *comms[devices_most];
    int ordinals[devices_most];
    if (library == NULL) {
        fprintf(stderr, "foreign_libraries: %s; set LD_LIBRARY_PATH to NCCL's folder\n", dlerror());
        _Exit(1);
    }
    load(library, "ncclCommInitAll", &nccl_init_all);
    load(library, "ncclAllReduce", &nccl_all_reduce);
    load(library, "ncclCommDestroy", &nccl_destroy);
    load(library, "ncclCommRegister", &nccl_register);
    load(library, "ncclCommDeregister", &nccl_deregister);
    for (int d = 0; d < n_devices; d++) {
        ordinals[d] = devices[d].ordinal;
    }
    zero(nccl_init_all(comms, n_devices, ordinals));
    for (int d = 0; d < n_devices; d++) {
        devices[d].comm = comms[d];
    }
}

static void open_device(int device)
{
    Device *d = &devices[device];
    hd_device_info info = {};
    size_t work = 0;
    info.size = sizeof info;
    must(hd_device_get_info(runtime, device, &info));
    zero(cudaDeviceGetByPCIBusId(&d->ordinal, info.bus_id));
    zero(cudaSetDevice(d->ordinal));
    for (int i = 0; i < 2; i++) {
        must(hd_lane_create(runtime, device, &d->lanes[i]));
        zero(cudaStreamCreateWithFlags(&d->streams[i], cudaStreamNonBlocking));
    }
    must(hd_lane_create(runtime, device, &d->collective));
    zero(cufftCreate(&d->plan));
    zero(cufftSetAutoAllocation(d->plan, 0));
    zero(cufftMakePlan1d(d->plan, transform, CUFFT_C2C, batch, &work));
    const size_t complexes = batch * transform * sizeof(cufftComplex);
    must(hd_alloc(d->lanes[0], complexes + work + 1, &d->scratch));
    d->scratch_at = (cufftComplex *)hd_buffer_address(d->scratch);
    zero(cufftSetWorkArea(d->plan, (char *)d->scratch_at + complexes));
    for (int i = 0; i < per_device; i++) {
        hd_buffer *buffer;
        must(hd_alloc(d->lanes[0], words * 4, &buffer));
        items.push_back({buffer, device, (float *)hd_buffer_address(buffer), std::vector<float>(words)});
    }
}

static void open_all(const char *placement)
{
    hd_module *builtin;
    char settings[200];
    snprintf(settings, sizeof settings,
             "placement=%s driver=nvidia hw_queues=32 transfer_timeout=60000 submit_timeout=60000", placement);
    const hd_options options = {sizeof options, settings};
    must(hd_open(&options, &runtime));
    must(hd_peers_check(runtime, 0, NULL, NULL));
    must(hd_module_get_builtin(runtime, &builtin));
    must(hd_kernel_get(builtin, "hd_axpy_f32", &axpy));
    must(hd_kernel_get(builtin, "hd_copy_u32", &copy));
    n_devices = hd_device_count(runtime) < devices_most ? hd_device_count(runtime) : devices_most;
    for (int d = 0; d < n_devices; d++) {
        open_device(d);
    }
    for (int i = 0; i < pinned; i++) {
        hd_buffer *buffer;
        must(hd_alloc_host(runtime, words * 4, &buffer));
        items.push_back({buffer, -1, (float *)hd_buffer_address(buffer), std::vector<float>(words)});
    }
    open_nccl();
}

/* NCCL registers buffers of one piece, and adds in them. */
static bool registered_buffers()
{
    std::vector<Item> usual;
    void *registrations[devices_most];
    const hd_alloc_options one_piece = {sizeof one_piece, HD_ALLOC_DEDICATED, "registered"};
    for (Item &item : items) { /* the first buffer of each device */
        if (item.device >= 0 && (usual.empty() || usual.back().device != item.device)) {
            usual.push_back(item);
            must(hd_alloc_with(devices[item.device].lanes[0], words * 4, &one_piece, &item.buffer));
            item.at = (float *)hd_buffer_address(item.buffer);
            zero(nccl_register(devices[item.device].comm, item.at, words * 4, &registrations[item.device]));
        }
    }
    bool good = true;
    for (long graph = 0; graph < 20 && good; graph++) {
        good = run_graph(graph);
    }
    for (const Item &item : usual) {
        Item *registered = &items[(size_t)(item.device * per_device)];
        must(hd_buffer_wait(registered->buffer, HD_READ_WRITE, HD_FOREVER));
        zero(nccl_deregister(devices[item.device].comm, registrations[item.device]));
        must(hd_free(registered->buffer));
        *registered = item;
    }
    printf("ncclCommRegister took a buffer of one piece on each of %d devices\n", n_devices);
    return good;
}

static void close_all()
{
    for (int d = 0; d < n_devices; d++) {
        zero(nccl_destroy(devices[d].comm));
        zero(cudaSetDevice(devices[d].ordinal));
        zero(cufftDestroy(devices[d].plan));
        zero(cudaStreamDestroy(devices[d].streams[0]));
        zero(cudaStreamDestroy(devices[d].streams[1]));
    }
    must(hd_close(runtime));
}

int main(int argc, char **argv)
{
    if (argc < 2 || (strcmp(argv[1], "thread") != 0 && strcmp(argv[1], "inline") != 0)) {
        fprintf(stderr, "usage: foreign_libraries thread|inline [GRAPHS [SEED]]\n");
        return 2;
    }
    const long graphs = argc > 2 ? atol(argv[2]) : 1000;
    const unsigned long long seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    /* ncclAllReduce does not wait for the other ranks on the CPU */
    setenv("NCCL_RUNTIME_CONNECT", "0", 1);
    generator.seed(seed);
    open_all(argv[1]);
    bool good = warm_up();
    long graph = 0;
    for (; graph < graphs && good; graph++) {
        good = run_graph(graph);
    }
    good = good && registered_buffers();
    printf("foreign_libraries: placement %s, %d devices, seed %llu: %ld graphs, %s\n", argv[1], n_devices, seed, graph,
           good ? "all as the model" : "the last one WRONG");
    for (const Kind &k : kinds) {
        printf("    %ld of %s\n", k.done, k.name);
        good = good && (k.done > 0 || graphs < 20);
    }
    close_all();
    return !good;
}
