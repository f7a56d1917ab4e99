/* report.c - figures about memory: hd_memory_get_stats, hd_memory_get_lanes, and all of them together for reports.
 *
 * Threads: any. Locks: none of its own; those of the arena, the caches and the list, one at a time. No request to a device.
 */
#include "stats/report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/error.h"
#include "base/sized.h"
#include "buffer/buffer.h"
#include "kinds/kinds.h"
#include "engine/engine.h"
#include "memory/arena.h"
#include "memory/host_pool.h"

static uint64_t load(_Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* Counters of different threads are read one after the other, so for a moment more may be freed than allocated. */
static uint64_t difference(uint64_t more, uint64_t less)
{
    return more > less ? more - less : 0;
}

static void device_stats(hdi_device *device, hd_memory_stats *out)
{
    hdi_arena_info arena;
    hdi_thread_cache_sums sums;
    hdi_memory_counts *counts = device->memory;
    hdi_arena_get_info(device->arena, &arena);
    hdi_thread_caches_sum(device->runtime, device->index, &sums);
    *out = (hd_memory_stats){
        .size = sizeof *out,
        .limit_bytes = arena.limit_bytes,
        .reserved_bytes = arena.mapped_bytes,
        .reserved_peak_bytes = arena.mapped_peak_bytes,
        .live_bytes = difference(sums.allocated_bytes, sums.freed_bytes),
        .live_count = difference(sums.allocations, sums.frees),
        .taken_bytes = arena.taken_bytes,
        .taken_peak_bytes = arena.taken_peak_bytes,
        .cached_bytes = sums.cached_bytes,
        .waiting_bytes = arena.waiting_bytes,
        .held_bytes = load(&counts->held_bytes),
        .allocations = sums.allocations,
        .frees = sums.frees,
        .failures = load(&counts->failures),
        .from_magazine = sums.from_magazine,
        .from_same_lane = arena.from_same_lane,
        .from_finished = arena.from_finished,
        .from_waited = arena.from_waited,
        .from_fresh = arena.from_fresh,
        .frees_elsewhere = sums.frees_elsewhere,
        .driver_calls = arena.driver_calls,
        .mapped_bytes = arena.mapped_total,
        .moved_bytes = arena.moved_bytes,
        .returned_bytes = arena.returned_bytes,
        .ahead_bytes = arena.ahead_bytes,
        .drains = load(&counts->drains),
        .waits = load(&counts->waits),
        .wait_ns = load(&counts->wait_ns),
        .early_reclaims = load(&counts->early_reclaims),
        .early_reclaim_ns = load(&counts->early_reclaim_ns),
        .limit_reclaims = load(&counts->limit_reclaims),
        .limit_reclaim_ns = load(&counts->limit_reclaim_ns),
        .longest_pause_ns = load(&counts->longest_pause_ns),
        .double_frees = load(&counts->double_frees),
        .overruns = load(&counts->overruns),
    };
}

static void pinned_stats(hd_runtime *rt, hd_memory_stats *out)
{
    hdi_host_pool_info pool;
    hdi_host_pool_get_info(rt->host_pool, &pool);
    *out = (hd_memory_stats){
        .size = sizeof *out,
        .limit_bytes = pool.limit_bytes,
        .reserved_bytes = pool.reserved_bytes,
        .reserved_peak_bytes = pool.reserved_peak_bytes,
        .live_bytes = pool.live_bytes,
        .live_count = pool.live_count,
        .taken_bytes = pool.taken_bytes,
        .taken_peak_bytes = pool.taken_peak_bytes,
        .waiting_bytes = pool.waiting_bytes,
        .allocations = pool.allocations,
        .frees = pool.frees,
        .failures = pool.failures,
        .from_finished = pool.from_finished,
        .from_waited = pool.from_waited,
        .from_fresh = pool.from_fresh,
        .driver_calls = pool.driver_calls,
        .mapped_bytes = pool.pinned_bytes,
        .returned_bytes = pool.returned_bytes,
        .double_frees = hdi_findings_of_pinned(rt),
    };
}

static hd_status check(hd_runtime *rt, int device)
{
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    if (device != HD_DEVICE_HOST && (device < 0 || device >= rt->n_devices)) {
        return hdi_fail(HD_ERROR_NO_DEVICE, "device %d of %d", device, rt->n_devices);
    }
    return HD_OK;
}

hd_status hd_memory_get_stats(hd_runtime *rt, int device, hd_memory_stats *out)
{
    HDI_INSIDE(rt);
    if (!out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "out is null");
    }
    hd_status status = HDI_SIZED_CHECK(hd_memory_stats, out);
    status = status ? status : check(rt, device);
    if (!status) {
        hd_memory_stats stats;
        if (device == HD_DEVICE_HOST) {
            pinned_stats(rt, &stats);
        } else {
            device_stats(rt->devices[device], &stats);
        }
        HDI_SIZED_OUT(hd_memory_stats, out, &stats);
    }
    return status;
}

/* Lanes with cached memory by rising number, those that fit; *sums: what the others hold. Returns how many there are. */
static size_t list_lanes(hd_runtime *rt, int device, hd_lane_memory *out, size_t room)
{
    uint64_t bytes[HDI_LANES_MAX], items[HDI_LANES_MAX];
    size_t n = 0;
    hdi_thread_caches_lanes(rt, device, bytes, items);
    for (int i = 0; i < HDI_LANES_MAX; i++) {
        if (items[i] && n++ < room) {
            out[n - 1] = (hd_lane_memory){.lane = i, .cached_bytes = bytes[i], .cached_count = items[i]};
        }
    }
    return n;
}

hd_status hd_memory_get_lanes(hd_runtime *rt, int device, hd_lane_memory *out, size_t room, size_t *count)
{
    HDI_INSIDE(rt);
    if (!count || (!out && room)) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%s is null", count ? "out" : "count");
    }
    hd_status status = check(rt, device);
    if (!status) {
        *count = device == HD_DEVICE_HOST ? 0 : list_lanes(rt, device, out, room);
    }
    return status;
}

/* ---- all together ---- */

static int larger_lane(const void *a, const void *b)
{
    const hd_lane_memory *x = a, *y = b;
    return (x->cached_bytes < y->cached_bytes) - (x->cached_bytes > y->cached_bytes);
}

/* The largest ones. */
static void collect_lanes(hd_runtime *rt, hdi_report_device *d)
{
    hd_lane_memory all[HDI_LANES_MAX];
    size_t n = d->device == HD_DEVICE_HOST ? 0 : list_lanes(rt, d->device, all, HDI_LANES_MAX);
    qsort(all, n, sizeof all[0], larger_lane);
    d->n_lanes = (uint32_t)(n < HDI_REPORT_LANES ? n : HDI_REPORT_LANES);
    memcpy(d->lanes, all, d->n_lanes * sizeof all[0]);
    d->other_lanes = n - d->n_lanes;
    d->other_lanes_bytes = 0;
    for (size_t i = d->n_lanes; i < n; i++) {
        d->other_lanes_bytes += all[i].cached_bytes;
    }
}

static void add_holder(hdi_report_device *d, const hdi_holder *h)
{
    if (d->n_holders == HDI_REPORT_HOLDERS) {
        d->other_holders++;
        d->others_bytes += h->bytes;
        d->others_count += h->count;
        return;
    }
    hdi_report_holder *to = &d->holders[d->n_holders++];
    memcpy(to->label, h->label, sizeof to->label);
    to->bytes = h->bytes;
    to->count = h->count;
    hdi_site_text(h->site, to->site);
}

static hd_status collect_holders(hd_runtime *rt, hdi_report *r)
{
    hdi_holder *holders = NULL;
    size_t n = 0;
    hd_status status = hdi_holders_collect(rt, HDI_HOLDERS, &holders, &n);
    for (uint32_t i = 0; i < r->n_devices; i++) {
        hdi_report_device *d = &r->devices[i];
        collect_lanes(rt, d);
        d->n_holders = 0;
        d->other_holders = d->others_bytes = d->others_count = 0;
        for (size_t h = 0; h < n; h++) {
            if (holders[h].device == d->device) {
                add_holder(d, &holders[h]);
            }
        }
    }
    free(holders);
    return status;
}

static void put_text(char *out, size_t room, const char *text)
{
    memset(out, 0, room);
    memcpy(out, text, strnlen(text, room - 1));
}

hd_status hdi_report_collect(hd_runtime *rt, bool with_holders, hdi_report *r)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    r->pid = getpid();
    r->time = now.tv_sec;
    put_text(r->version, sizeof r->version, hd_version());
    put_text(r->driver, sizeof r->driver, rt->provider->name);
    put_text(r->placement, sizeof r->placement, HDI_OPTION_TEXT(&rt->options, placement));
    put_text(r->program, sizeof r->program, program_invocation_short_name);
    r->debug = rt->findings != NULL;
    r->reserved = 0;
    r->n_devices = (uint32_t)rt->n_devices + 1;
    for (int i = 0; i <= rt->n_devices; i++) {
        hdi_report_device *d = &r->devices[i];
        if (i < rt->n_devices) {
            d->device = i;
            d->lost = hdi_device_lost(rt->devices[i]);
            put_text(d->name, sizeof d->name, rt->devices[i]->facts.name);
            device_stats(rt->devices[i], &d->stats);
        } else {
            d->device = HD_DEVICE_HOST;
            d->lost = 0;
            put_text(d->name, sizeof d->name, "pinned host memory");
            pinned_stats(rt, &d->stats);
        }
    }
    r->n_findings = hdi_findings_copy(rt, r->finding, &r->findings);
    return with_holders ? collect_holders(rt, r) : HD_OK;
}

hd_status hd_memory_report(hd_runtime *rt, hd_report_format format, char *out, size_t room, size_t *needed)
{
    HDI_INSIDE(rt);
    if ((format != HD_REPORT_TEXT && format != HD_REPORT_JSON) || (!out && room)) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%s", !out && room ? "out is null" : "no such format");
    }
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    hdi_report *report = calloc(1, sizeof *report);
    hd_status status = report ? hdi_report_collect(rt, true, report) : hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    char *text = NULL;
    size_t length = 0;
    if (!status) {
        status = hdi_report_write(report, NULL, format, &text, &length);
    }
    if (!status) {
        hdi_report_hand_out(text, length, out, room, needed);
    }
    free(text);
    free(report);
    return status;
}
