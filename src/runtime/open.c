/* open.c - hd_open.
 *
 * Threads: any.
 * Locks: none.
 * Always: an hd_open that fails leaves nothing behind.
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include "base/wait.h"
#include "base/error.h"
#include "base/sized.h"
#include "base/thread.h"
#include "kinds/checkpoint.h"
#include "kinds/findings.h"
#include "kinds/guard.h"
#include "buffer/hold.h"
#include "transfer/copy_pool.h"
#include "transfer/copy_lanes.h"
#include "buffer/maintenance.h"
#include "stats/page.h"
#include "buffer/reclaim.h"
#include "stats/report.h"
#include "transfer/peer_tester.h"
#include "transfer/staging.h"
#include "engine/providers.h"
#include "kernel/module.h"
#include "peer/peers.h"
#include "memory/pinned.h"
#include "memory/share.h"
#include "runtime/runtime_internal.h"
#include "tensor/matmul_library.h"
#include "worker/workers.h"

hd_status hdi_devices_choose(const char *list, int count, int *ordinals, int *n)
{
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
            return hdi_fail(HD_ERROR_OPTION, "devices=%s: expected all, or numbers such as 0,2,3", list);
        }
        if (ordinal < 0 || ordinal >= count || ordinal >= 1024) {
            return hdi_fail(HD_ERROR_NO_DEVICE, "devices=%s: there is no device %ld, the driver has %d", list, ordinal,
                            count);
        }
        if (taken[ordinal] || *n == HDI_DEVICES_MAX) {
            return hdi_fail(HD_ERROR_OPTION, "devices=%s: %s", list,
                            taken[ordinal] ? "a device is named twice" : "too many devices");
        }
        taken[ordinal] = true;
        ordinals[(*n)++] = (int)ordinal;
        p = *end ? end + 1 : end;
    }
    return *n ? HD_OK : hdi_fail(HD_ERROR_OPTION, "devices names no device; write all, or numbers such as 0,2,3");
}

/* Opens the driver in this process. */
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
                             : hdi_fail_driver(HD_ERROR_DRIVER, r, "cuDeviceGetCount", -1, "cuDeviceGetCount: %s",
                                               hdi_driver_code_name(r));
}

static int count_entries(const char *folder)
{
    int n = 0;
    DIR *entries = opendir(folder);
    for (struct dirent *e; entries && (e = readdir(entries));) {
        n += e->d_name[0] != '.';
    }
    if (entries) {
        closedir(entries);
    }
    return n;
}

static int count_parts(const char *list)
{
    int n = *list != 0;
    for (const char *p = list; *p; p++) {
        n += strchr(",: ", *p) != NULL;
    }
    return n;
}

/* The number of devices to expect, as far as it can be seen without the driver; 1 at least. A wrong number costs time,
 * or processes that are ended. */
static int expected_devices(const hd_runtime *rt)
{
    bool host = rt->options.driver == HDI_DRIVER_HOST;
    int n = host ? 0 : count_entries("/proc/driver/nvidia/gpus");
    const char *visible = secure_getenv("CUDA_VISIBLE_DEVICES");
    if (n > 0 && visible && count_parts(visible) < n) {
        n = count_parts(visible);
    }
    if (n == 0 && rt->options.driver != HDI_DRIVER_NVIDIA) {
        n = (int)rt->options.host_devices;
    }
    if (strcmp(rt->options.devices, "all") != 0 && count_parts(rt->options.devices) < n) {
        n = count_parts(rt->options.devices);
    }
    return n < 1 ? 1 : n > HDI_DEVICES_MAX ? HDI_DEVICES_MAX : n;
}

/* Starts as many workers as there will most likely be devices. Each starts the driver, which takes long. Failures of
 * workers other than the first count only when their devices turn out to be wanted. */
static hd_status begin_workers(hd_runtime *rt)
{
    int n = expected_devices(rt);
    for (int i = 0; i < n; i++) {
        hdi_attempt attempt;
        hdi_attempt_begin(&attempt);
        hd_status status = hdi_worker_spawn(rt, i);
        status = status ? status : hdi_worker_ask(rt, i);
        hdi_attempt_result(&attempt, i > 0 ? HD_OK : status);
        if (status) {
            return i > 0 ? HD_OK : status;
        }
    }
    return HD_OK;
}

/* Opens the driver in worker processes. The first one, later that of device 0, reports the devices. */
static hd_status start_remote(hd_runtime *rt, int *count)
{
    hd_status status = hdi_workers_create(rt);
    status = status ? status : begin_workers(rt);
    hdi_discovery probe;
    status = status ? status : hdi_worker_discover(rt, 0, &probe);
    if (!status) {
        rt->provider = probe.provider;
        rt->driver_version = probe.driver_version;
        *count = probe.device_count;
    }
    return status;
}

/* Makes the devices' workers ready. All start at the same time. */
static hd_status make_remote_devices(hd_runtime *rt)
{
    hd_status status = HD_OK;
    for (int i = rt->n_devices; i < HDI_DEVICES_MAX; i++) {
        if (hdi_worker_is_begun(rt, i)) {
            hdi_worker_drop(rt, i);
        }
    }
    for (int i = 0; i < rt->n_devices && !status; i++) {
        status = hdi_device_make_remote(rt->devices[i]);
    }
    for (int i = 1; i < rt->n_devices && !status; i++) {
        status = hdi_worker_is_begun(rt, i) ? HD_OK : hdi_worker_spawn(rt, i);
    }
    for (int i = 0; i < rt->n_devices && !status; i++) {
        status = hdi_worker_handshake(rt, i);
    }
    for (int i = 0; i < rt->n_devices && !status; i++) {
        status = hdi_worker_await(rt, i);
    }
    return status;
}

static hd_status make_local(hdi_device *device, void *unused)
{
    (void)unused;
    return hdi_device_make_local(device);
}

static hd_status make_local_devices(hd_runtime *rt, const int *ordinals)
{
    hd_status status = hdi_attach_driver(rt, ordinals, rt->n_devices);
    return status ? status : hdi_on_each(rt, make_local, NULL);
}

static hd_status equip(hdi_device *device, void *unused)
{
    (void)unused;
    return hdi_device_equip(device);
}

static hd_status create_devices(hd_runtime *rt, int count)
{
    if (count <= 0) {
        return hdi_fail(HD_ERROR_NO_DEVICE, "the driver %s has no device", rt->provider->name);
    }
    int ordinals[HDI_DEVICES_MAX];
    int n;
    hd_status status = hdi_devices_choose(rt->options.devices, count, ordinals, &n);
    /* `n_devices` first: lanes are sized by it. */
    rt->n_devices = status ? 0 : n;
    for (int i = 0; i < rt->n_devices && !status; i++) {
        status = hdi_device_create(rt, i, ordinals[i], &rt->devices[i]);
    }
    if (!status) {
        status = rt->is_process ? make_remote_devices(rt) : make_local_devices(rt, ordinals);
    }
    return status ? status : hdi_on_each(rt, equip, NULL);
}

static hd_status make_copy_lanes(hdi_device *device, void *unused)
{
    (void)unused;
    return hdi_copy_lanes_create(device);
}

/* The port of a device for pinned memory. NULL: the device cannot be used now. */
static hdi_port *usable_port(void *context, int index)
{
    hd_runtime *rt = context;
    hdi_device *device = rt->devices[index];
    bool usable = device && device->port && hdi_device_has_driver(device);
    return usable ? device->port : NULL;
}

static hd_status build(hd_runtime *rt)
{
    rt->is_inline = rt->options.placement == HDI_PLACEMENT_INLINE;
    rt->on_launched = rt->options.launch_wait == HDI_SWITCH_ON ? hdi_launch_await : NULL;
    rt->is_process = rt->options.placement == HDI_PLACEMENT_PROCESS;
    rt->spin_ns = hdi_spin_ns(rt->options.spin_us);
    rt->on_loss = hdi_buffers_lose;
    rt->on_closing = hdi_staging_wake;
    rt->kept = &hdi_checkpoint_ops;
    rt->on_full = hdi_report_holders;
    rt->on_tick = hdi_page_publish;
    int count = 0;
    hd_status status = hdi_losses_create(rt);
    if (!status) {
        status = rt->is_process ? start_remote(rt, &count) : start_local(rt, &count);
    }
    status = status ? status : hdi_buffers_create(rt);
    status = status ? status : hdi_staging_create(rt);
    status = status ? status : hdi_copy_pool_create(rt);
    status = status ? status : hdi_peers_create(rt, rt->is_process ? hdi_worker_program(rt) : "");
    status = status ? status : hdi_peer_tester_create(rt);
    status = status ? status : hdi_reclaim_create(rt);
    status = status ? status : hdi_maintenance_create(rt);
    status = status ? status : hdi_holds_create(rt);
    status = status ? status : hdi_holders_create(rt);
    if (!status && rt->options.memory_debug != HDI_MEMORY_DEBUG_OFF) {
        status = hdi_findings_create(rt);
        rt->guarded = status ? NULL : &hdi_guard_ops;
    }
    if (!status) {
        hdi_thread_caches_config caches = {.release = hdi_buffers_release_items, .context = rt};
        status = hdi_thread_caches_create(rt, &caches);
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
            .populate = rt->provider->pins_memory,
        };
        status = hdi_pinned_pool_create(&config, &rt->pinned);
        status = status ? status : hdi_host_create(rt);
    }
    status = status ? status : hdi_on_each(rt, make_copy_lanes, NULL);
    if (!status) {
        hdi_page_create(rt); /* without it other processes cannot read the figures */
    }
    status = status ? status : hdi_spares_want(rt);
    return status ? status : hdi_runtime_add(rt);
}

hd_status hd_open(const hd_options *options, hd_runtime **out)
{
    HDI_CALL();
    if (!out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "out is null");
    }
    hd_options room;
    if (options && !(options = HDI_SIZED_IN(hd_options, options, &room))) {
        return HD_ERROR_ARGUMENT;
    }
    hdi_stable *stable = hdi_stable_create();
    hd_runtime *rt = stable ? hdi_stable_take(stable, sizeof *rt) : NULL;
    if (!rt) {
        hdi_stable_clear(stable);
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    rt->stable = stable;
    hd_status status = hdi_options_parse(options ? options->settings : NULL, &rt->options);
    if (status) {
        hdi_stable_clear(stable);
        return status;
    }
    hdi_keep_loaded(); /* with the first runtime, which may outlive the program's use of this library */
    if (rt->options.environment_check == HDI_SWITCH_ON) {
        hdi_option_check_environment();
    }
    hdi_handle_guard_forks();
    hdi_mutex_init(&rt->cold, HDI_RANK_COLD);
    for (int i = 0; i < HDI_HOST_LOCKS; i++) {
        hdi_lock_init(&rt->host_order[i], HDI_RANKED(HDI_RANK_ORDER, HDI_DEVICES_MAX + i));
    }
    hdi_mutex_init(&rt->linking, HDI_RANK_LINKING);
    hdi_mutex_init(&rt->restarting, HDI_RANK_RESTARTING);
    status = build(rt);
    const hdi_driver *driver = rt->driver;
    int captures = rt->captures_before;
    if (status) {
        hdi_attempt attempt;
        hdi_attempt_begin(&attempt);
        hdi_runtime_tear_down(rt, NULL);
        hdi_attempt_end(&attempt);
    } else {
        HDI_INSIDE(rt); /* from now on this thread counts as a user of the library, whatever it calls next */
        *out = rt;
    }
    if (driver) {
        hdi_captures_mind(driver, captures);
    }
    return status;
}
