/* port_code.c - the port to a driver in this process: lanes, modules, kernels, libraries. The rest of it is in
 * port_local.c.
 *
 * Threads: any.
 * Locks: none. The thread that looks a kernel up writes the entry of the kernel's number, before any launch of it.
 * Always: a module's number is the driver's handle for it. A chunk of the table of kernels, once made, stays.
 */
#include <stdlib.h>
#include <string.h>
#include "engine/engine.h"
#include "engine/chain.h"
#include "engine/port_local.h"

hdi_answer hdi_local_lane(hdi_port *port, uint32_t number, bool sticky_failure)
{
    return hdi_stream_make(hdi_local_port_of(port)->engine, number, sticky_failure);
}

/* ---- modules ---- */

hdi_answer hdi_local_load(hdi_port *port, const hdi_code *code, uint64_t *out, char *log)
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
    answer = hdi_local_answer(p->config.driver->cuModuleLoadDataEx(&module, code->bytes, 2, options, values),
                              "cuModuleLoadDataEx");
    hdi_current_leave(&current);
    log[HDI_CODE_LOG_BYTES - 1] = '\0';
    if (hdi_answered(answer)) {
        *out = (uint64_t)(uintptr_t)module;
    }
    return answer;
}

hdi_answer hdi_local_unload(hdi_port *port, uint64_t module)
{
    hdi_local_port *p = hdi_local_port_of(port);
    hdi_current current;
    hdi_answer answer = hdi_local_enter(p, &current);
    if (hdi_answered(answer)) {
        if (p->engine) {
            hdi_chains_forget(p->engine);
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
    /* pairs with the release store by which a chunk is made */
    if (atomic_load_explicit(slot, memory_order_acquire) != NULL) {
        return true;
    }
    hdi_kernel_code *chunk = calloc(HDI_KERNEL_CHUNK, sizeof *chunk);
    hdi_kernel_code *there = NULL;
    /* Release: pairs with the acquire load in hdi_kernel_at. Several ports share the table, so the first chunk
     * stays. */
    if (chunk != NULL &&
        !atomic_compare_exchange_strong_explicit(slot, &there, chunk, memory_order_release, memory_order_relaxed)) {
        free(chunk);
    }
    return chunk != NULL;
}

/* Finds where each parameter lies. The driver returns INVALID_VALUE behind the last one. */
static hdi_answer ask_params(const hdi_driver *driver, hdcu_function function, hdi_kernel_facts *out)
{
    hdi_answer answer = {HDCU_SUCCESS, "cuFuncGetParamInfo"};
    out->n_params = UINT32_MAX;
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
static hdi_answer look_up(const hdi_driver *driver, hdcu_module module, const char *name, hdcu_function *function,
                          hdi_kernel_facts *out)
{
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
    if (hdi_answered(answer)) {
        answer = ask_params(driver, *function, out);
    }
    out->max_threads = (uint32_t)threads;
    out->static_shared = (uint32_t)shared;
    return answer;
}

hdi_answer hdi_local_kernel(hdi_port *port, uint64_t module, const char *name, uint32_t number, hdi_kernel_facts *out)
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
    answer = look_up(p->config.driver, (hdcu_module)(uintptr_t)module, name, &function, &kernel);
    hdi_current_leave(&current);
    if (hdi_answered(answer)) {
        /* pairs with the acquire load where the engine launches it */
        atomic_store_explicit(&hdi_kernel_at(p->config.runtime, number)->function[p->config.index], function,
                              memory_order_release);
        *out = kernel;
    }
    return answer;
}

hdi_answer hdi_local_kernel_shared(hdi_port *port, uint32_t number, uint32_t bytes)
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

/* ---- libraries ---- */

hdi_answer hdi_local_blas(hdi_port *port, uint32_t number, uint64_t workspace, uint64_t bytes, hdi_blas_facts *out)
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
    /* pairs with the acquire load where the engine makes a product */
    atomic_store_explicit(&stream->blas, blas, memory_order_release);
    return answer;
}
