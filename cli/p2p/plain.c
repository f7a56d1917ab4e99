/* plain.c - the driver's own calls behind parts.h: provider, devices, memory, kernels, peer access.
 *
 * Threads: the conductor. Locks: none.
 * Always: these functions use the devices' primary contexts, as a runtime in this process does.
 * Peer access between the contexts is enabled only from p2p_connect to p2p_disconnect, so copies at
 * other times are staged.
 */
#include <stdarg.h>
#include <string.h>
#include "cli/p2p/parts.h"
#include "engine/providers.h"

/* The kernel file embedded in the tool. */
extern const unsigned char p2p_image_bytes[], p2p_image_bytes_end[];

bool p2p_check(p2p_experiment *x, hdcu_result result, const char *entry, char *error)
{
    if (result == HDCU_SUCCESS) {
        return true;
    }
    x->code = result;
    snprintf(error, PLAIN_ERROR, "%s: %s (%d)", entry, hdi_driver_code_name(result), result);
    return false;
}

bool p2p_enter(p2p_experiment *x, int device, char *error)
{
    return P2P_TRY(x, error, cuCtxSetCurrent, (x->devices[device].context));
}

/* ---- open and close ---- */

/* Opens the provider in this process with the runtime's settings, because Heddle's engines may run
 * in other processes. */
static bool p2p_plain_open_provider(p2p_experiment *x, char *error)
{
    char settings[sizeof(x->settings) + 32];
    hdi_options options;
    snprintf(settings, sizeof(settings), "%s driver=%s", x->settings, x->info.driver);
    if (!cli_report_check(hdi_options_parse(settings, &options), "options", error)) {
        return false;
    }
    bool ok = cli_report_check(hdi_providers_open_driver(&options, &x->driver), "driver", error);
    hdi_options_release(&options);
    return ok;
}

static bool p2p_plain_find_ordinal(p2p_experiment *x, p2p_device *p, char *error)
{
    int count = 0;
    if (!P2P_TRY(x, error, cuDeviceGetCount, (&count))) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        hdcu_uuid uuid;
        if (!P2P_TRY(x, error, cuDeviceGet, (&p->ordinal, i)) ||
            !P2P_TRY(x, error, cuDeviceGetUuid, (&uuid, p->ordinal))) {
            return false;
        }
        if (memcmp(uuid.bytes, p->info.uuid, 16) == 0) {
            return true;
        }
    }
    snprintf(error, PLAIN_ERROR, "the driver shows %d devices, none of them \"%.100s\" that Heddle opened", count,
             p->info.name);
    return false;
}

static bool p2p_plain_open_kernels(p2p_experiment *x, p2p_device *p, char *error)
{
    int processors = 0;
    if (!P2P_TRY(x, error, cuModuleLoadDataEx, (&p->module, x->image.driver, 0, NULL, NULL)) ||
        !P2P_TRY(x, error, cuModuleGetFunction, (&p->copy, p->module, "hd_p2p_copy")) ||
        !P2P_TRY(x, error, cuModuleGetFunction, (&p->chase, p->module, "hd_p2p_chase")) ||
        !P2P_TRY(x, error, cuModuleGetFunction, (&p->fill, p->module, "hd_p2p_fill")) ||
        !P2P_TRY(x, error, cuModuleGetFunction, (&p->check, p->module, "hd_p2p_check")) ||
        !P2P_TRY(x, error, cuModuleGetFunction, (&p->gate, p->module, "hd_p2p_gate")) ||
        !P2P_TRY(x, error, cuDeviceGetAttribute,
                 (&processors, HDCU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, p->ordinal))) {
        return false;
    }
    p->multiprocessors = processors > 0 ? (uint32_t)processors : 1;
    return true;
}

static bool p2p_plain_open_device(p2p_experiment *x, p2p_device *p, char *error)
{
    if (!p2p_plain_find_ordinal(x, p, error) ||
        !P2P_TRY(x, error, cuDevicePrimaryCtxRetain, (&p->context, p->ordinal))) {
        p->context = NULL;
        return false;
    }
    bool ok = P2P_TRY(x, error, cuCtxSetCurrent, (p->context)) && P2P_TRY(x, error, cuMemAlloc, (&p->count, 64)) &&
              p2p_plain_open_kernels(x, p, error);
    for (int i = 0; i < P2P_STREAMS && ok; i++) {
        ok = P2P_TRY(x, error, cuStreamCreate, (&p->stream[i], HDCU_STREAM_NON_BLOCKING)) &&
             P2P_TRY(x, error, cuEventCreate, (&p->start[i], HDCU_EVENT_DEFAULT)) &&
             P2P_TRY(x, error, cuEventCreate, (&p->end[i], HDCU_EVENT_DEFAULT));
    }
    return ok;
}

/* Runs every kernel once, so that the driver does not load one while a gate is closed. */
static bool p2p_plain_warm_up(p2p_experiment *x, int device, char *error)
{
    p2p_device *p = &x->devices[device];
    p2p_memory m = {.device = device};
    uint64_t quads = 1, looks = 1, chain;
    uint32_t once = 1, none = 0;
    if (!p2p_take(x, device, 4096, &m, error)) {
        return false;
    }
    chain = m.address;
    hdcu_deviceptr to = m.address + 256;
    void *copy[4] = {&to, &m.address, &quads, &once}, *chase[4] = {&p->count, &m.address, &once, &none},
         *gate[2] = {&x->gate_address, &looks};
    uint64_t wrong;
    x->gate[0] = 1;
    bool ok = P2P_TRY(x, error, cuMemcpyHtoD, (m.address, &chain, sizeof(chain))) &&
              P2P_TRY(x, error, cuLaunchKernel, (p->chase, 1, 1, 1, 1, 1, 1, 0, p->stream[0], chase, NULL)) &&
              P2P_TRY(x, error, cuLaunchKernel, (p->copy, 1, 1, 1, P2P_BLOCK, 1, 1, 0, p->stream[0], copy, NULL)) &&
              P2P_TRY(x, error, cuLaunchKernel, (p->gate, 1, 1, 1, 1, 1, 1, 0, p->stream[0], gate, NULL)) &&
              P2P_TRY(x, error, cuStreamSynchronize, (p->stream[0])) && p2p_fill(x, device, &m, m.bytes, 1, error) &&
              p2p_compare(x, device, &m, m.bytes, 1, &wrong, error);
    if (ok && wrong) {
        snprintf(error, PLAIN_ERROR, "device %d: %llu words of its own memory are not as its own kernel wrote them",
                 device, (unsigned long long)wrong);
        ok = false;
    }
    p2p_give(x, &m);
    return ok;
}

bool p2p_plain_open(p2p_experiment *x, char *error)
{
    void *gate = NULL;
    bool ok = p2p_plain_open_provider(x, error) &&
              cli_plain_kernels(x->info.driver, p2p_image_bytes, (size_t)(p2p_image_bytes_end - p2p_image_bytes),
                                "the tool's kernels", &x->image, error);
    for (int i = 0; i < x->n && ok; i++) {
        ok = p2p_plain_open_device(x, &x->devices[i], error);
    }
    ok = ok &&
         P2P_TRY(x, error, cuMemHostAlloc, (&gate, 4096, HDCU_MEMHOSTALLOC_PORTABLE | HDCU_MEMHOSTALLOC_DEVICEMAP));
    x->gate = gate;
    ok = ok && P2P_TRY(x, error, cuMemHostGetDevicePointer, (&x->gate_address, gate, 0));
    for (int i = 0; i < x->n && ok; i++) {
        ok = p2p_plain_warm_up(x, i, error);
    }
    return ok;
}

static void p2p_plain_close_device(p2p_experiment *x, p2p_device *p)
{
    const hdi_driver *d = x->driver;
    d->cuCtxSetCurrent(p->context);
    for (int i = 0; i < P2P_STREAMS; i++) {
        if (p->stream[i]) {
            d->cuStreamSynchronize(p->stream[i]);
            d->cuStreamDestroy(p->stream[i]);
        }
        if (p->start[i]) {
            d->cuEventDestroy(p->start[i]);
        }
        if (p->end[i]) {
            d->cuEventDestroy(p->end[i]);
        }
    }
    if (p->module) {
        d->cuModuleUnload(p->module);
    }
    if (p->count) {
        d->cuMemFree(p->count);
    }
    d->cuCtxSetCurrent(NULL);
    d->cuDevicePrimaryCtxRelease(p->ordinal);
}

void p2p_plain_close(p2p_experiment *x)
{
    char ignored[PLAIN_ERROR];
    if (!x->driver) {
        return;
    }
    if (x->gate) { /* no kernel waits at the gate any more when it is freed */
        *(volatile uint32_t *)x->gate = 1;
        for (int i = 0; i < x->n; i++) {
            for (int k = 0; k < P2P_STREAMS && p2p_enter(x, i, ignored); k++) {
                x->driver->cuStreamSynchronize(x->devices[i].stream[k]);
            }
        }
        x->driver->cuMemFreeHost(x->gate);
        x->gate = NULL;
    }
    for (int i = 0; i < x->n; i++) {
        if (x->devices[i].context) {
            p2p_plain_close_device(x, &x->devices[i]);
            x->devices[i].context = NULL;
        }
    }
    hdi_providers_close_driver(x->driver);
    x->driver = NULL;
}

/* ---- memory ---- */

bool p2p_take(p2p_experiment *x, int device, size_t bytes, p2p_memory *out, char *error)
{
    *out = (p2p_memory){.device = device, .bytes = bytes};
    if (device >= 0) {
        if (!p2p_enter(x, device, error) || !P2P_TRY(x, error, cuMemAlloc, (&out->address, bytes))) {
            out->address = 0;
            return false;
        }
        return true;
    }
    /* nvbandwidth (memcpy.cpp, HostBuffer): pinned memory for all devices */
    if (!P2P_TRY(x, error, cuMemHostAlloc,
                 (&out->host, bytes, HDCU_MEMHOSTALLOC_PORTABLE | HDCU_MEMHOSTALLOC_DEVICEMAP))) {
        out->host = NULL;
        return false;
    }
    if (!P2P_TRY(x, error, cuMemHostGetDevicePointer, (&out->address, out->host, 0))) {
        p2p_give(x, out);
        return false;
    }
    return true;
}

void p2p_give(p2p_experiment *x, p2p_memory *m)
{
    char ignored[PLAIN_ERROR];
    if (m->host) {
        x->driver->cuMemFreeHost(m->host);
    } else if (m->address && p2p_enter(x, m->device, ignored)) {
        x->driver->cuMemFree(m->address);
    }
    m->host = NULL;
    m->address = 0;
}

bool p2p_fill(p2p_experiment *x, int device, const p2p_memory *m, size_t bytes, uint32_t seed, char *error)
{
    p2p_device *p = &x->devices[device];
    hdcu_deviceptr y = m->address;
    uint64_t n = bytes / 4;
    void *parameters[3] = {&y, &n, &seed};
    return p2p_enter(x, device, error) &&
           P2P_TRY(x, error, cuLaunchKernel,
                   (p->fill, p->multiprocessors, 1, 1, P2P_BLOCK, 1, 1, 0, p->stream[0], parameters, NULL)) &&
           P2P_TRY(x, error, cuStreamSynchronize, (p->stream[0]));
}

bool p2p_compare(p2p_experiment *x, int device, const p2p_memory *m, size_t bytes, uint32_t seed, uint64_t *wrong,
                 char *error)
{
    p2p_device *p = &x->devices[device];
    hdcu_deviceptr y = m->address;
    uint64_t n = bytes / 4;
    void *parameters[4] = {&p->count, &y, &n, &seed};
    return p2p_enter(x, device, error) && P2P_TRY(x, error, cuMemsetD32Async, (p->count, 0, 2, p->stream[0])) &&
           P2P_TRY(x, error, cuLaunchKernel,
                   (p->check, p->multiprocessors, 1, 1, P2P_BLOCK, 1, 1, 0, p->stream[0], parameters, NULL)) &&
           P2P_TRY(x, error, cuStreamSynchronize, (p->stream[0])) &&
           P2P_TRY(x, error, cuMemcpyDtoH, (wrong, p->count, sizeof(*wrong)));
}

/* ---- peer access ---- */

bool p2p_connect(p2p_experiment *x, int d, int o, char *error)
{
    if (!p2p_enter(x, d, error)) {
        return false;
    }
    hdcu_result result = x->driver->cuCtxEnablePeerAccess(x->devices[o].context, 0);
    return result == HDCU_ERROR_PEER_ACCESS_ALREADY_ENABLED || p2p_check(x, result, "cuCtxEnablePeerAccess", error);
}

void p2p_disconnect(p2p_experiment *x, int d, int o)
{
    char ignored[PLAIN_ERROR];
    if (p2p_enter(x, d, ignored)) {
        x->driver->cuCtxDisablePeerAccess(x->devices[o].context);
    }
}
