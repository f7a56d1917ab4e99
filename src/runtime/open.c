/* open.c - hd_open and hd_close.
 *
 * Threads: open from any; close from one, when no other thread is inside a call on the runtime. Locks: none.
 * Always: an hd_open that fails leaves nothing behind; hd_close gives everything back, except what work that never ended may still
 * be using.
 */
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/sized.h"
#include "base/thread.h"
#include "base/wait.h"
#include "data/guard.h"
#include "data/hold.h"
#include "data/copiers.h"
#include "data/copy_lanes.h"
#include "data/keeper.h"
#include "data/page.h"
#include "data/pageable_crates.h"
#include "data/reclaim.h"
#include "data/report.h"
#include "data/ring.h"
#include "data/staging.h"
#include "kernel/module.h"
#include "peer/peers.h"
#include "memory/pinned.h"
#include "memory/share.h"
#include "runtime/runtime_internal.h"
#include "tensor/matmul_library.h"
#include "worker/workers.h"

/* "all", or a list of ordinals such as "0,2,3" (also separated by ':' or ' '). */
static hd_status choose_devices(hd_runtime *rt, int count, int *ordinals, int *n)
{
    const char *list = rt->options.devices;
    *n = 0;
    if (strcmp(list, "all") == 0) {
        for (int i = 0; i < count && i < HDI_DEVICES_MAX; i++) {
            ordinals[(*n)++] = i;
        }
        return HD_OK;
    }
    bool taken[1024] = {false};
    for (const char *p = list; *p;) {
        char *end;
        long ordinal = strtol(p, &end, 10);
        if (end == p || (*end && !strchr(",: ", *end))) {
            return hdi_fail(HD_ERROR_OPTION, "hd_open: devices=%s: expected all, or numbers such as 0,2,3", list);
        }
        if (ordinal < 0 || ordinal >= count || ordinal >= 1024) {
            return hdi_fail(HD_ERROR_NO_DEVICE, "hd_open: devices=%s: there is no device %ld, the driver has %d", list,
                            ordinal, count);
        }
        if (taken[ordinal] || *n == HDI_DEVICES_MAX) {
            return hdi_fail(HD_ERROR_OPTION, "hd_open: devices=%s: %s", list,
                            taken[ordinal] ? "a device is named twice" : "too many devices");
        }
        taken[ordinal] = true;
        ordinals[(*n)++] = (int)ordinal;
        p = *end ? end + 1 : end;
    }
    return *n ? HD_OK : hdi_fail(HD_ERROR_OPTION, "hd_open: devices: no device named");
}

/* The driver in this process. */
static hd_status start_local(hd_runtime *rt, int *count)
{
    hd_status status = hdi_driver_open(&rt->options, &rt->driver);
    if (status) {
        return status;
    }
    rt->captures_before = hdi_captures_ignore(rt->driver); /* until hd_open returns */
    rt->provider = rt->driver->provider;
    rt->driver_version = rt->driver->version;
    hdcu_result r = rt->driver->cuDeviceGetCount(count);
    return r == HDCU_SUCCESS ? HD_OK
                             : hdi_fail_driver(HD_ERROR_DRIVER, r, "cuDeviceGetCount", -1,
                                               "hd_open: cuDeviceGetCount: %s", hdi_driver_code_name(r));
}

/* The driver in worker processes. The first one, which will be that of device 0, says what there is. */
static hd_status start_remote(hd_runtime *rt, int *count)
{
    hd_status status = hdi_workers_create(rt);
    status = status ? status : hdi_worker_spawn(rt, 0, "hd_open");
    hdi_probe probe;
    status = status ? status : hdi_worker_probe(rt, 0, &probe);
    if (!status) {
        rt->provider = probe.provider;
        rt->driver_version = probe.driver_version;
        *count = probe.device_count;
    }
    return status;
}

/* All workers start at the same time. */
static hd_status make_remote_devices(hd_runtime *rt)
{
    hd_status status = HD_OK;
    for (int i = 0; i < rt->n_devices && !status; i++) {
        status = hdi_device_make_remote(rt->devices[i]);
    }
    for (int i = 1; i < rt->n_devices && !status; i++) {
        status = hdi_worker_spawn(rt, i, "hd_open");
    }
    for (int i = 0; i < rt->n_devices && !status; i++) {
        status = hdi_worker_greet(rt, i, "hd_open");
    }
    for (int i = 0; i < rt->n_devices && !status; i++) {
        status = hdi_worker_await(rt, i, "hd_open");
    }
    return status;
}

static hd_status make_local_devices(hd_runtime *rt, const int *ordinals)
{
    hd_status status = hdi_attach_driver(rt, ordinals, rt->n_devices);
    for (int i = 0; i < rt->n_devices && !status; i++) {
        status = hdi_device_make_local(rt->devices[i]);
    }
    return status;
}

static hd_status create_devices(hd_runtime *rt, int count)
{
    if (count <= 0) {
        return hdi_fail(HD_ERROR_NO_DEVICE, "hd_open: the driver %s has no device", rt->provider);
    }
    int ordinals[HDI_DEVICES_MAX];
    int n;
    hd_status status = choose_devices(rt, count, ordinals, &n);
    /* `n_devices` first: lanes are sized by it. */
    rt->n_devices = status ? 0 : n;
    for (int i = 0; i < rt->n_devices && !status; i++) {
        status = hdi_device_create(rt, i, ordinals[i], &rt->devices[i]);
    }
    if (!status) {
        status = rt->is_process ? make_remote_devices(rt) : make_local_devices(rt, ordinals);
    }
    for (int i = 0; i < rt->n_devices && !status; i++) {
        status = hdi_device_equip(rt->devices[i]);
    }
    return status;
}

/* The port of a device, for pinned memory. */
static hdi_port *usable_port(void *context, int index)
{
    hd_runtime *rt = context;
    hdi_device *device = rt->devices[index];
    bool usable = device && device->port &&
                  (!hdi_device_lost(device) || atomic_load_explicit(&device->returning, memory_order_acquire));
    return usable ? device->port : NULL;
}

static void release_kernels(hd_runtime *rt)
{
    for (int i = 0; i < HDI_KERNEL_CHUNKS; i++) {
        free(atomic_load_explicit(&rt->kernels[i], memory_order_relaxed));
    }
}

/* True when all work of the device ended, or the device is lost and so its work, too. */
static bool drain(hdi_device *device, int64_t deadline)
{
    bool drained = true;
    bool has_engine = device->engine || device->runtime->workers;
    for (uint32_t i = 0; has_engine && i < HDI_LANES_MAX; i++) {
        hd_lane *lane = device->lanes[i];
        if (lane && !hdi_wait_position(device->runtime, lane->global, lane->head, deadline)) {
            drained = false;
        }
    }
    return drained;
}

#define STOP_LEAST_NS 1000000000 /* an engine that is about to return from a driver call gets this long in any case */

/* False: an engine is stuck in a driver call. `hung`: which devices have work that did not end. */
static bool stop_engines(hd_runtime *rt, bool *hung)
{
    int64_t deadline = hdi_option_deadline(rt->options.close_timeout);
    for (int i = 0; i < rt->n_devices; i++) {
        hung[i] = rt->devices[i] && !drain(rt->devices[i], deadline);
    }
    bool stopped = true;
    int64_t least = hdi_deadline(STOP_LEAST_NS);
    for (int i = 0; i < rt->n_devices; i++) {
        if (rt->devices[i] && !hdi_engine_stop(rt->devices[i], deadline > least ? deadline : least)) {
            stopped = false;
        }
    }
    return stopped;
}

/* Everything that hd_open made, in reverse; also of a runtime that is only half made, without `message`. *message: what the thread is told
 * of hd_close. */
static void tear_down(hd_runtime *rt, hd_error *message)
{
    bool hung[HDI_DEVICES_MAX] = {false};
    hdi_keeper_stop(rt);
    hdi_copiers_release(rt);
    bool stopped = stop_engines(rt, hung);
    if (message) {
        hdi_report_at_close(rt, message);
    }
    if (!stopped) {
        return; /* the stuck engine comes back to all of this, if it ever comes back */
    }
    /* With worker processes nothing hangs on: what is theirs ends with them. */
    hdi_workers_release(rt);
    bool any_hung = false;
    for (int i = 0; i < rt->n_devices; i++) {
        any_hung |= hung[i] && !rt->is_process;
    }
    bool driver_usable = !any_hung && !rt->is_process;
    hdi_modules_release(rt, driver_usable);
    hdi_products_release(rt);
    hdi_holds_release(rt);
    hdi_buffers_release(rt);
    hdi_staging_release(rt);
    hdi_rings_release(rt);
    hdi_crates_release(rt);
    hdi_peers_release(rt);
    hdi_caches_destroy(rt);
    hdi_reclaim_release(rt);
    hdi_keeper_release(rt);
    hdi_findings_release(rt);
    hdi_page_release(rt);
    hdi_host_destroy(rt, driver_usable);
    hdi_pinned_pool_destroy(rt->pinned);
    hdi_shares_release(rt);
    for (int i = 0; i < rt->n_devices; i++) {
        /* What hangs on one device may still use what the others own. */
        hdi_device_destroy(rt->devices[i], any_hung);
    }
    release_kernels(rt);
    if (driver_usable) {
        hdi_driver_close(rt->driver);
    }
    hdi_losses_release(rt);
    pthread_mutex_destroy(&rt->restarting);
    pthread_mutex_destroy(&rt->cold);
    pthread_mutex_destroy(&rt->linking);
    hdi_options_release(&rt->options);
    rt->magic = 0;
    free(rt);
}

static hd_status build(hd_runtime *rt)
{
    rt->is_inline = strcmp(rt->options.placement, "inline") == 0;
    rt->is_process = strcmp(rt->options.placement, "process") == 0;
    rt->spin_ns = hdi_spin_ns(rt->options.spin_us);
    rt->on_loss = hdi_buffers_lose;
    int count = 0;
    hd_status status = hdi_losses_create(rt);
    if (!status) {
        status = rt->is_process ? start_remote(rt, &count) : start_local(rt, &count);
    }
    status = status ? status : hdi_buffers_create(rt);
    status = status ? status : hdi_staging_create(rt);
    status = status ? status : hdi_rings_create(rt);
    status = status ? status : hdi_copiers_create(rt);
    status = status ? status : hdi_crates_create(rt);
    status = status ? status : hdi_peers_create(rt);
    status = status ? status : hdi_reclaim_create(rt);
    status = status ? status : hdi_keeper_create(rt);
    status = status ? status : hdi_holds_create(rt);
    if (!status && strcmp(rt->options.memory_debug, "on") == 0) {
        status = hdi_findings_create(rt);
    }
    if (!status) {
        hdi_caches_config caches = {.release = hdi_buffers_release_items, .context = rt};
        status = hdi_caches_create(rt, &caches);
    }
    status = status ? status : hdi_modules_create(rt);
    status = status ? status : hdi_products_create(rt);
    status = status ? status : hdi_shares_create(rt);
    status = status ? status : create_devices(rt, count);
    if (!status) {
        hdi_pinned_config config = {
            .n_devices = rt->n_devices,
            .port = usable_port,
            .context = rt,
            .everywhere = rt->is_process,
            .populate = strcmp(rt->provider, "host") != 0, /* a host device pins nothing */
        };
        status = hdi_pinned_pool_create(&config, &rt->pinned);
        status = status ? status : hdi_host_create(rt);
    }
    for (int i = 0; i < rt->n_devices && !status; i++) {
        status = hdi_copy_lanes_create(rt->devices[i]);
    }
    if (!status) {
        hdi_page_create(rt); /* without it other processes just do not see the figures */
    }
    return status ? status : hdi_runtime_add(rt);
}

hd_status hd_open(const hd_options *options, hd_runtime **out)
{
    if (!out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "hd_open: out is null");
    }
    hd_options room;
    if (options && !(options = HDI_SIZED_IN("hd_open", hd_options, options, &room))) {
        return HD_ERROR_ARGUMENT;
    }
    hd_runtime *rt = aligned_alloc(HDI_LINE, (sizeof *rt + HDI_LINE - 1) / HDI_LINE * HDI_LINE);
    if (!rt) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "hd_open: no memory");
    }
    *rt = (hd_runtime){.magic = HDI_RUNTIME_MAGIC};
    hd_status status = hdi_options_parse(options ? options->settings : NULL, &rt->options);
    if (status) {
        free(rt);
        return status;
    }
    hdi_keep_loaded(); /* with the first runtime, which may outlive the program's interest in this library */
    if (strcmp(rt->options.environment_check, "on") == 0) {
        hdi_option_check_environment();
    }
    hdi_handle_guard_forks();
    pthread_mutex_init(&rt->cold, NULL);
    pthread_mutex_init(&rt->linking, NULL);
    pthread_mutex_init(&rt->restarting, NULL);
    status = build(rt);
    const hdi_driver *driver = rt->driver;
    int captures = rt->captures_before;
    if (status) {
        hd_error cause;
        hdi_error_save(&cause);
        tear_down(rt, NULL);
        hdi_error_restore(&cause);
    } else {
        *out = rt;
    }
    if (driver) {
        hdi_captures_mind(driver, captures);
    }
    return status;
}

void hd_close(hd_runtime *rt)
{
    if (!hdi_runtime_is_open(rt)) {
        return;
    }
    hdi_runtime_remove(rt);
    const hdi_driver *driver = rt->driver;
    int captures = driver ? hdi_captures_ignore(driver) : HDI_MODE_UNKNOWN;
    hd_error before;
    hdi_error_save(&before);
    tear_down(rt, &before);
    hdi_error_restore(&before);
    if (driver) {
        hdi_captures_mind(driver, captures);
    }
}
