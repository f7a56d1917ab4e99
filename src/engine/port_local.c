/* port_local.c - the port to a driver in this process: facts, pinning, lanes, modules, kernels,
 * libraries. Device memory is in port_memory.c.
 *
 * Threads: any. The thread that looks a kernel up fills its entry in the runtime's table of
 * kernels, before any launch of it.
 * Locks: `lock` of the port protects its table of mappings and the properties of its memory. `lock`
 * is held across driver calls that map, unmap, export or import.
 * Always:
 * - Driver calls are made with the device's context current. Only `unreserve` and `unpin` go on if
 *   the context cannot be entered. Their driver calls name addresses and handles, which belong to
 *   the process.
 * - The table lists every mapping and every memory handle that this port got from the driver and
 *   did not give back. If it could not give a mapping back, the mapping is `doomed`. The next
 *   `map`, `import` or `unmap` first tries to clear doomed mappings.
 * - A module's number is the driver's handle for it. A chunk of the table of kernels, once made,
 *   stays.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include "base/descriptor.h"
#include "base/lock.h"
#include "engine/activities.h"
#include "engine/port_local.h"
#include "engine/stream.h"

/* ---- facts: the context is current ---- */

static hdi_answer local_ask_attributes(const hdi_local_port *p, hdi_facts *f)
{
    int32_t threads = 0, block[3] = {0}, grid[3] = {0}, shared = 0, shared_max = 0;
    const struct {
        int which;
        int32_t *value;
    } wanted[] = {
        {HDCU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &threads},
        {HDCU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, &block[0]},
        {HDCU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, &block[1]},
        {HDCU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, &block[2]},
        {HDCU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, &grid[0]},
        {HDCU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, &grid[1]},
        {HDCU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, &grid[2]},
        {HDCU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, &shared},
        {HDCU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &shared_max},
        {HDCU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &f->compute_major},
        {HDCU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &f->compute_minor},
        {HDCU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &f->multiprocessors},
        {HDCU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, &f->virtual_memory},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        hdi_answer answer = hdi_local_attribute(p, wanted[i].which, wanted[i].value);
        if (!hdi_answered(answer)) {
            return answer;
        }
    }
    f->limits.threads_per_block = (uint32_t)threads;
    for (int i = 0; i < 3; i++) {
        f->limits.block[i] = (uint32_t)block[i];
        f->limits.grid[i] = (uint32_t)grid[i];
    }
    f->limits.shared_default = (uint64_t)shared;
    f->limits.shared_max = (uint64_t)(shared_max > shared ? shared_max : shared);
    return hdi_local_good;
}

static hdi_answer local_ask_identity(const hdi_local_port *p, hdi_facts *f)
{
    const hdi_driver *driver = p->config.driver;
    hdcu_device device = p->config.device;
    hdi_answer answer = hdi_local_answer(driver->cuDeviceGetName(f->name, sizeof f->name, device), "cuDeviceGetName");
    if (hdi_answered(answer)) {
        answer =
            hdi_local_answer(driver->cuDeviceGetPCIBusId(f->bus_id, sizeof f->bus_id, device), "cuDeviceGetPCIBusId");
    }
    hdcu_uuid uuid;
    if (hdi_answered(answer)) {
        answer = hdi_local_answer(driver->cuDeviceGetUuid(&uuid, device), "cuDeviceGetUuid");
    }
    if (hdi_answered(answer)) {
        memcpy(f->uuid, uuid.bytes, sizeof f->uuid);
        size_t bytes = 0;
        answer = hdi_local_answer(driver->cuDeviceTotalMem(&bytes, device), "cuDeviceTotalMem");
        f->memory_bytes = bytes;
    }
    return answer;
}

/* An attribute of a pair of devices. If the driver does not report the attribute, the result is
 * `otherwise`. */
static int local_pair_attribute(const hdi_local_port *p, int which, hdcu_device peer, int otherwise)
{
    int value = 0;
    hdcu_result r = p->config.driver->cuDeviceGetP2PAttribute(&value, which, p->config.device, peer);
    return r == HDCU_SUCCESS ? value : otherwise;
}

/* If cuDeviceCanAccessPeer fails, the pair counts as not connected. */
static void local_ask_peers(const hdi_local_port *p, hdi_facts *f)
{
    for (int j = 0; p->config.devices != NULL && j < p->config.n_devices && j < 64; j++) {
        hdcu_device peer = p->config.devices[j];
        int can = 0;
        if (j == p->config.index ||
            p->config.driver->cuDeviceCanAccessPeer(&can, p->config.device, peer) != HDCU_SUCCESS || !can) {
            continue;
        }
        uint64_t bit = (uint64_t)1 << j;
        f->peers |= bit;
        if (!local_pair_attribute(p, HDCU_P2P_ATTRIBUTE_ACCESS_SUPPORTED, peer, 1)) {
            f->peers_denied |= bit;
        }
        if (local_pair_attribute(p, HDCU_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, peer, 0)) {
            f->peers_atomic |= bit;
        }
    }
}

static hdi_answer local_facts(hdi_port *port, hdi_facts *out)
{
    hdi_local_port *p = hdi_local_port_of(port);
    hdi_facts f;
    memset(&f, 0, sizeof f);
    hdi_current current;
    hdi_answer answer = hdi_local_enter(p, &current);
    if (!hdi_answered(answer)) {
        return answer;
    }
    answer = local_ask_attributes(p, &f);
    if (hdi_answered(answer)) {
        answer = local_ask_identity(p, &f);
    }
    if (hdi_answered(answer) && f.virtual_memory) {
        hdi_mutex_lock(&p->lock);
        answer = hdi_local_know_memory(p);
        f.granule = p->granule;
        hdi_mutex_unlock(&p->lock);
    }
    if (hdi_answered(answer)) {
        local_ask_peers(p, &f);
        *out = f;
    }
    hdi_current_leave(&current);
    return answer;
}

static hdi_answer local_memory_free(hdi_port *port, uint64_t *out)
{
    hdi_local_port *p = hdi_local_port_of(port);
    hdi_current current;
    hdi_answer answer = hdi_local_enter(p, &current);
    if (hdi_answered(answer)) {
        size_t free_bytes = 0, total = 0;
        answer = hdi_local_answer(p->config.driver->cuMemGetInfo(&free_bytes, &total), "cuMemGetInfo");
        hdi_current_leave(&current);
        if (hdi_answered(answer)) {
            *out = free_bytes;
        }
    }
    return answer;
}

/* ---- pinned memory ---- */

static hdi_answer local_pin(hdi_port *port, void *base, uint64_t bytes, int descriptor, uint64_t *address)
{
    (void)descriptor;
    hdi_local_port *p = hdi_local_port_of(port);
    const hdi_driver *driver = p->config.driver;
    hdi_current current;
    hdi_answer answer = hdi_local_enter(p, &current);
    if (!hdi_answered(answer)) {
        return answer;
    }
    answer = hdi_local_answer(
        driver->cuMemHostRegister(base, bytes, HDCU_MEMHOSTREGISTER_PORTABLE | HDCU_MEMHOSTREGISTER_DEVICEMAP),
        "cuMemHostRegister");
    if (hdi_answered(answer)) {
        hdcu_deviceptr seen = 0;
        answer = hdi_local_answer(driver->cuMemHostGetDevicePointer(&seen, base, 0), "cuMemHostGetDevicePointer");
        if (hdi_answered(answer)) {
            *address = seen;
        } else {
            /* If this call fails, too, the memory stays registered, and a later `unpin` can end the
             * registration. */
            driver->cuMemHostUnregister(base);
        }
    }
    hdi_current_leave(&current);
    return answer;
}

static hdi_answer local_unpin(hdi_port *port, void *base, uint64_t bytes)
{
    (void)bytes;
    hdi_local_port *p = hdi_local_port_of(port);
    hdi_current current;
    bool entered = hdi_answered(hdi_local_enter(p, &current));
    /* The call is made even if the context cannot be entered. Only this call ensures that no device
     * uses the memory any more. */
    hdi_answer answer = hdi_local_answer(p->config.driver->cuMemHostUnregister(base), "cuMemHostUnregister");
    if (entered) {
        hdi_current_leave(&current);
    }
    return answer;
}

/* ---- lanes ---- */

static hdi_answer local_lane(hdi_port *port, uint32_t number, bool sticky_failure)
{
    return hdi_stream_make(hdi_local_port_of(port)->engine, number, sticky_failure);
}

/* ---- modules ---- */

#define KERNELS_LOADED 64 /* the most kernels of a small module */

/* Copies all kernels of a small module to the device. A load waits for running kernels anyway, so
 * later look-ups need not wait. */
static void local_load_kernels(const hdi_driver *driver, hdcu_module module)
{
    hdcu_function functions[KERNELS_LOADED];
    unsigned n = 0;
    if (!driver->provider->lookup_waits || driver->cuFuncLoad == NULL || driver->cuModuleEnumerateFunctions == NULL ||
        driver->cuModuleGetFunctionCount == NULL || driver->cuModuleGetFunctionCount(&n, module) != HDCU_SUCCESS ||
        n > KERNELS_LOADED || driver->cuModuleEnumerateFunctions(functions, n, module) != HDCU_SUCCESS) {
        return;
    }
    for (unsigned i = 0; i < n; i++) {
        /* if this fails, the driver copies the kernel when it is looked up */
        driver->cuFuncLoad(functions[i]);
    }
}

static hdi_answer local_load(hdi_port *port, const hdi_code *code, uint64_t *out, char *log)
{
    hdi_local_port *p = hdi_local_port_of(port);
    memset(log, 0, HDI_CODE_LOG_BYTES);
    hdi_current current;
    hdi_answer answer = hdi_local_enter(p, &current);
    if (!hdi_answered(answer)) {
        return answer;
    }
    int options[] = {HDCU_JIT_ERROR_LOG_BUFFER, HDCU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)(uintptr_t)HDI_CODE_LOG_BYTES};
    hdcu_module module = NULL;
    /* the driver opens files of its compiler's cache, which must not become descriptors 0 to 2 */
    bool held = hdi_descriptors_hold();
    answer = hdi_local_answer(p->config.driver->cuModuleLoadDataEx(&module, code->bytes, 2, options, values),
                              "cuModuleLoadDataEx");
    hdi_descriptors_release(held);
    if (hdi_answered(answer)) {
        local_load_kernels(p->config.driver, module);
    }
    hdi_current_leave(&current);
    log[HDI_CODE_LOG_BYTES - 1] = '\0';
    if (hdi_answered(answer)) {
        *out = (uint64_t)(uintptr_t)module;
    }
    return answer;
}

/* Removes the module's kernels from the table, and sets their bits in `kernels`. */
static void local_leave_table(hdi_local_port *p, uint64_t module, uint64_t kernels[HDI_KERNEL_WORDS])
{
    hd_runtime *rt = p->config.runtime;
    for (uint32_t number = 0; number < HDI_KERNEL_CHUNK * HDI_KERNEL_CHUNKS; number++) {
        if (!hdi_kernel_exists(rt, number)) {
            /* the table does not contain this chunk of kernels, so the loop skips it */
            number += HDI_KERNEL_CHUNK - 1;
            continue;
        }
        _Atomic uint64_t *at = &hdi_kernel_at(rt, number)->module[p->config.index];
        /* relaxed: no thread asks for kernels of a module that is being unloaded */
        if (atomic_load_explicit(at, memory_order_relaxed) == module) {
            atomic_store_explicit(at, 0, memory_order_relaxed);
            kernels[number / 64 % HDI_KERNEL_WORDS] |= (uint64_t)1 << number % 64;
        }
    }
}

static hdi_answer local_unload(hdi_port *port, uint64_t module)
{
    hdi_local_port *p = hdi_local_port_of(port);
    hdi_current current;
    hdi_answer answer = hdi_local_enter(p, &current);
    if (hdi_answered(answer)) {
        uint64_t kernels[HDI_KERNEL_WORDS] = {0};
        local_leave_table(p, module, kernels);
        if (p->engine) {
            hdi_chains_forget(p->engine, kernels);
        }
        answer = hdi_local_answer(p->config.driver->cuModuleUnload((hdcu_module)(uintptr_t)module), "cuModuleUnload");
        hdi_current_leave(&current);
    }
    return answer;
}

/* ---- kernels ---- */

bool hdi_kernel_table_reach(struct hd_runtime *rt, uint32_t number)
{
    if (number >= HDI_KERNEL_CHUNK * HDI_KERNEL_CHUNKS) {
        return false;
    }
    _Atomic(hdi_kernel_code *) *slot = &rt->kernels[number / HDI_KERNEL_CHUNK];
    /* pairs with the release store that makes a chunk */
    if (atomic_load_explicit(slot, memory_order_acquire) != NULL) {
        return true;
    }
    hdi_kernel_code *chunk = calloc(HDI_KERNEL_CHUNK, sizeof *chunk);
    hdi_kernel_code *there = NULL;
    /* Release: pairs with the acquire load in hdi_kernel_at. Several ports share the table, so the
     * chunk that comes first stays. */
    if (chunk != NULL &&
        !atomic_compare_exchange_strong_explicit(slot, &there, chunk, memory_order_release, memory_order_relaxed)) {
        free(chunk);
    }
    return chunk != NULL;
}

/* Finds the place of each parameter. The driver returns INVALID_VALUE behind the last one. */
static hdi_answer local_ask_params(const hdi_driver *driver, hdcu_function function, hdi_kernel_facts *out)
{
    hdi_answer answer = {HDCU_SUCCESS, "cuFuncGetParamInfo"};
    if (driver->cuFuncGetParamInfo == NULL) {
        return answer;
    }
    uint32_t n = 0;
    while (n < HDI_FUNCTION_PARAMS_MAX) {
        size_t offset = 0, size = 0;
        answer.code = driver->cuFuncGetParamInfo(function, n, &offset, &size);
        if (!hdi_answered(answer)) {
            break;
        }
        out->params[n].offset = (uint16_t)offset;
        out->params[n++].size = (uint16_t)size;
    }
    if (hdi_driver_code_is_fatal(answer.code)) {
        return answer;
    }
    if (hdi_answered(answer) || answer.code == HDCU_ERROR_INVALID_VALUE) {
        out->n_params = n;
    }
    answer.code = HDCU_SUCCESS;
    return answer;
}

/* The context is current. */
static hdi_answer local_look_up_kernel(const hdi_driver *driver, hdcu_module module, const char *name, bool params,
                                       hdcu_function *function, hdi_kernel_facts *out)
{
    out->n_params = UINT32_MAX;
    int threads = 0, shared = 0;
    hdi_answer answer = hdi_local_answer(driver->cuModuleGetFunction(function, module, name), "cuModuleGetFunction");
    if (hdi_answered(answer)) {
        answer =
            hdi_local_answer(driver->cuFuncGetAttribute(&threads, HDCU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, *function),
                             "cuFuncGetAttribute");
    }
    if (hdi_answered(answer)) {
        answer = hdi_local_answer(driver->cuFuncGetAttribute(&shared, HDCU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, *function),
                                  "cuFuncGetAttribute");
    }
    if (hdi_answered(answer) && params) {
        answer = local_ask_params(driver, *function, out);
    }
    out->max_threads = (uint32_t)threads;
    out->static_shared = (uint32_t)shared;
    return answer;
}

static hdi_answer local_kernel(hdi_port *port, uint64_t module, const char *name, uint32_t number, bool params,
                               hdi_kernel_facts *out)
{
    hdi_local_port *p = hdi_local_port_of(port);
    if (!hdi_kernel_table_reach(p->config.runtime, number)) {
        return hdi_local_answer(HDCU_ERROR_OUT_OF_MEMORY, "calloc");
    }
    hdi_current current;
    hdi_answer answer = hdi_local_enter(p, &current);
    if (!hdi_answered(answer)) {
        return answer;
    }
    hdi_kernel_facts kernel;
    memset(&kernel, 0, sizeof kernel);
    hdcu_function function = NULL;
    answer = local_look_up_kernel(p->config.driver, (hdcu_module)(uintptr_t)module, name, params, &function, &kernel);
    hdi_current_leave(&current);
    if (hdi_answered(answer)) {
        hdi_kernel_code *code = hdi_kernel_at(p->config.runtime, number);
        atomic_store_explicit(&code->module[p->config.index], module, memory_order_relaxed);
        /* pairs with the acquire load of the engine at a launch */
        atomic_store_explicit(&code->function[p->config.index], function, memory_order_release);
        *out = kernel;
    }
    return answer;
}

static hdi_answer local_kernel_shared(hdi_port *port, uint32_t number, uint32_t bytes)
{
    hdi_local_port *p = hdi_local_port_of(port);
    if (!hdi_kernel_table_reach(p->config.runtime, number)) {
        return hdi_local_answer(HDCU_ERROR_OUT_OF_MEMORY, "calloc");
    }
    hdcu_function function = atomic_load_explicit(&hdi_kernel_at(p->config.runtime, number)->function[p->config.index],
                                                  memory_order_acquire);
    if (function == NULL || bytes > INT32_MAX) {
        return hdi_local_answer(function == NULL ? HDCU_ERROR_INVALID_HANDLE : HDCU_ERROR_INVALID_VALUE,
                                "cuFuncSetAttribute");
    }
    hdi_current current;
    hdi_answer answer = hdi_local_enter(p, &current);
    if (hdi_answered(answer)) {
        answer = hdi_local_answer(p->config.driver->cuFuncSetAttribute(
                                      function, HDCU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)bytes),
                                  "cuFuncSetAttribute");
        hdi_current_leave(&current);
    }
    return answer;
}

static hdi_answer local_global(hdi_port *port, uint64_t module, const char *name, hdi_global_place *out)
{
    hdi_local_port *p = hdi_local_port_of(port);
    hdi_current current;
    hdi_answer answer = hdi_local_enter(p, &current);
    if (!hdi_answered(answer)) {
        return answer;
    }
    hdcu_deviceptr address = 0;
    size_t bytes = 0;
    answer =
        hdi_local_answer(p->config.driver->cuModuleGetGlobal(&address, &bytes, (hdcu_module)(uintptr_t)module, name),
                         "cuModuleGetGlobal");
    hdi_current_leave(&current);
    if (hdi_answered(answer)) {
        *out = (hdi_global_place){.address = address, .bytes = bytes};
    }
    return answer;
}

/* ---- libraries ---- */

static hdi_answer local_blas(hdi_port *port, uint32_t number, uint64_t workspace, uint64_t bytes, hdi_blas_facts *out)
{
    hdi_local_port *p = hdi_local_port_of(port);
    hdi_stream *stream = &p->engine->streams[number];
    /* pairs with the release store in hdi_stream_make */
    if (!atomic_load_explicit(&stream->made, memory_order_acquire)) {
        return hdi_local_answer(HDCU_ERROR_INVALID_HANDLE, "blasOpen");
    }
    const hdi_blas *there = atomic_load_explicit(&stream->blas, memory_order_acquire);
    if (there != NULL) {
        *out = there->facts;
        return hdi_local_answer(HDCU_SUCCESS, "blasOpen");
    }
    hdi_current current;
    hdi_answer answer = hdi_local_enter(p, &current);
    if (!hdi_answered(answer)) {
        return answer;
    }
    hdi_blas_config config = {.driver = p->config.driver,
                              .library = p->config.runtime->options.blas,
                              .stream = stream->handle,
                              .workspace = workspace,
                              .workspace_bytes = bytes,
                              .share = p->config.runtime->is_process ? p->config.runtime->n_devices : 0};
    hdi_blas *blas = NULL;
    answer.code = hdi_blas_open(&config, &blas, out, &answer.call);
    hdi_current_leave(&current);
    /* pairs with the acquire load of the engine for a product */
    atomic_store_explicit(&stream->blas, blas, memory_order_release);
    return answer;
}

static hdi_answer local_activities(hdi_port *port, bool on, hdi_activities_facts *out)
{
    hdi_local_port *p = hdi_local_port_of(port);
    *out = (hdi_activities_facts){.works = 0};
    if (!p->engine) {
        return hdi_local_answer(HDCU_ERROR_INVALID_HANDLE, "");
    }
    if (on) {
        out->works = hdi_engine_activities_begin(p->engine, out->why);
    } else {
        hdi_engine_activities_end(p->engine);
        out->works = 1;
    }
    return hdi_local_good;
}

/* ---- the port ---- */

static const hdi_port_calls calls = {
    .facts = local_facts,
    .memory_free = local_memory_free,
    .lane = local_lane,
    .reserve = hdi_local_reserve,
    .unreserve = hdi_local_unreserve,
    .map = hdi_local_map,
    .map_each = hdi_local_map_each,
    .move = hdi_local_move,
    .map_piece = hdi_local_map_piece,
    .unmap = hdi_local_unmap,
    .grant = hdi_local_grant,
    .export = hdi_local_export_memory,
    .import = hdi_local_import_memory,
    .export_fabric = hdi_local_export_fabric,
    .import_fabric = hdi_local_import_fabric,
    .pin = local_pin,
    .unpin = local_unpin,
    .load = local_load,
    .unload = local_unload,
    .kernel = local_kernel,
    .kernel_shared = local_kernel_shared,
    .global = local_global,
    .blas = local_blas,
    .activities = local_activities,
};

hdi_port *hdi_local_port_create(const hdi_local_port_config *config)
{
    hdi_local_port *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return NULL;
    }
    p->port.calls = &calls;
    p->config = *config;
    hdi_mutex_init(&p->lock, HDI_RANK_PORT);
    return &p->port;
}

void hdi_local_port_set_engine(hdi_port *port, struct hdi_engine *engine)
{
    hdi_local_port_of(port)->engine = engine;
}

void hdi_local_port_destroy(hdi_port *port)
{
    if (port != NULL) {
        hdi_local_port *p = hdi_local_port_of(port);
        hdi_mutex_destroy(&p->lock);
        free(p->mappings);
        free(p->chains);
        free(p);
    }
}
