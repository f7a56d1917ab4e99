/* report.c - figures about memory: hd_memory_get_stats, hd_memory_get_lanes, and reports with all
 * figures.
 *
 * This file collects a report, and writes it as text for people or as JSON. hd_memory_report calls
 * it, and hd_close calls it if the option `stats` requests a report. With memory_debug the report
 * at hd_close lists the leaks, which also become findings.
 *
 * Threads: any; hdi_report_at_close runs on the thread that closes.
 * Locks: none of its own. It takes the locks of the arena, the caches and the list of buffers, one
 * at a time. It makes no request to a device.
 * Blocking: at hd_close it waits while a pipe accepts nothing, at most for the option
 * close_timeout.
 * Always: the text contains no control characters, whatever labels and names contain, and the
 * program's locale changes nothing. A name may fill its array, without a zero at the end. At
 * hd_close nothing is written unless `stats` or memory_debug=report requests it, and a broken pipe
 * raises no signal.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"
#include "base/sized.h"
#include "base/text.h"
#include "buffer/buffer.h"
#include "claim/claim.h"
#include "engine/engine.h"
#include "kinds/kinds.h"
#include "kinds/part.h"
#include "memory/arena.h"
#include "memory/host_pool.h"
#include "buffer/region.h"
#include "memory/part.h"
#include "stats/report.h"

static uint64_t report_load_counter(_Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* The difference of two counters; 0 if it is negative. Counters of different threads are read one
 * after the other, so for a moment more may seem freed than allocated. */
static uint64_t report_difference(uint64_t more, uint64_t less)
{
    return more > less ? more - less : 0;
}

static void report_device_stats(hdi_device *device, hd_memory_stats *out)
{
    hdi_arena_info arena;
    hdi_thread_cache_sums sums;
    hdi_memory_counts *counts = device->memory;
    hdi_arena_get_info(device->arena, &arena);
    hdi_thread_caches_sum(device->runtime, device->index, &sums);
    hdi_region_info imported;
    hdi_regions_get_info(device->runtime, device->index, &imported);
    *out = (hd_memory_stats){
        .size = sizeof *out,
        .imported_bytes = imported.bytes,
        .imported_count = imported.count,
        .limit_bytes = arena.limit_bytes,
        .reserved_bytes = arena.mapped_bytes,
        .reserved_peak_bytes = arena.mapped_peak_bytes,
        .live_bytes = report_difference(sums.allocated_bytes, sums.freed_bytes),
        .live_count = report_difference(sums.allocations, sums.frees),
        .taken_bytes = arena.taken_bytes + arena.pieces_bytes,
        .taken_peak_bytes = arena.held_peak_bytes,
        .cached_bytes = sums.cached_bytes,
        .waiting_bytes = arena.waiting_bytes,
        .held_bytes = report_load_counter(&counts->held_bytes),
        .allocations = sums.allocations,
        .frees = sums.frees,
        .failures = report_load_counter(&counts->failures),
        .from_magazine = sums.from_magazine,
        .from_same_lane = arena.from_same_lane,
        .from_finished = arena.from_finished,
        .from_waited = arena.from_waited,
        .from_fresh = arena.from_fresh + report_load_counter(&counts->pieces),
        .frees_elsewhere = sums.frees_elsewhere,
        .driver_calls = arena.driver_calls + report_load_counter(&counts->piece_calls),
        .mapped_bytes = arena.mapped_total,
        .moved_bytes = arena.moved_bytes,
        .returned_bytes = arena.returned_bytes,
        .ahead_bytes = arena.ahead_bytes,
        .drains = report_load_counter(&counts->drains),
        .waits = report_load_counter(&counts->waits),
        .wait_ns = report_load_counter(&counts->wait_ns),
        .early_reclaims = report_load_counter(&counts->early_reclaims),
        .early_reclaim_ns = report_load_counter(&counts->early_reclaim_ns),
        .limit_reclaims = report_load_counter(&counts->limit_reclaims),
        .limit_reclaim_ns = report_load_counter(&counts->limit_reclaim_ns),
        .longest_pause_ns = report_load_counter(&counts->longest_pause_ns),
        .double_frees = report_load_counter(&counts->double_frees),
        .overruns = report_load_counter(&counts->overruns),
    };
}

static void report_pinned_stats(hd_runtime *rt, hd_memory_stats *out)
{
    hdi_host_pool_info pool;
    hdi_host_pool_get_info(hdi_memory_of(rt)->host_pool, &pool);
    hdi_region_info imported;
    hdi_regions_get_info(rt, HDI_OWNER_HOST, &imported);
    *out = (hd_memory_stats){
        .size = sizeof *out,
        .imported_bytes = imported.bytes,
        .imported_count = imported.count,
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
        .mapped_bytes = pool.pinned_bytes + pool.outside_total,
        .returned_bytes = pool.returned_bytes + pool.outside_total - pool.outside_bytes,
        .double_frees = hdi_findings_of_pinned(rt),
    };
}

static hd_status report_check_device(hd_runtime *rt, int device)
{
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    if (device != HD_DEVICE_HOST && (device < 0 || device >= rt->n_devices)) {
        return hdi_device_refused(rt, device);
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
    status = status ? status : report_check_device(rt, device);
    if (!status) {
        hd_memory_stats stats;
        if (device == HD_DEVICE_HOST) {
            report_pinned_stats(rt, &stats);
        } else {
            report_device_stats(rt->devices[device], &stats);
        }
        HDI_SIZED_OUT(hd_memory_stats, out, &stats);
    }
    return status;
}

/* Lists lanes with cached memory by rising number, as many as fit. Returns how many such lanes
 * there are; 0 also if host memory ran out. */
static size_t report_list_lanes(hd_runtime *rt, int device, hd_lane_memory *out, size_t room)
{
    uint64_t *bytes = malloc(2 * HDI_LANES_MAX * sizeof *bytes),
             /* on the heap, since the arrays are too large for small stacks */
        *items = bytes + HDI_LANES_MAX;
    size_t n = 0;
    if (!bytes) {
        return 0;
    }
    hdi_thread_caches_lanes(rt, device, bytes, items);
    for (int i = 0; i < HDI_LANES_MAX; i++) {
        if (items[i] && n++ < room) {
            out[n - 1] = (hd_lane_memory){.lane = i, .cached_bytes = bytes[i], .cached_count = items[i]};
        }
    }
    free(bytes);
    return n;
}

hd_status hd_memory_get_lanes(hd_runtime *rt, int device, hd_lane_memory *out, size_t room, size_t *count)
{
    HDI_INSIDE(rt);
    if (!count || (!out && room)) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%s is null", count ? "out" : "count");
    }
    hd_status status = report_check_device(rt, device);
    if (!status) {
        *count = device == HD_DEVICE_HOST ? 0 : report_list_lanes(rt, device, out, room);
    }
    return status;
}

/* ---- everything together ---- */

static int report_compare_lanes(const void *a, const void *b)
{
    const hd_lane_memory *x = a, *y = b;
    return (x->cached_bytes < y->cached_bytes) - (x->cached_bytes > y->cached_bytes);
}

/* Collects the lanes with the most cached memory. */
static void report_collect_lanes(hd_runtime *rt, hdi_report_device *d)
{
    hd_lane_memory *all = malloc(HDI_LANES_MAX * sizeof *all);
    size_t n = !all || d->device == HD_DEVICE_HOST ? 0 : report_list_lanes(rt, d->device, all, HDI_LANES_MAX);
    if (n) {
        qsort(all, n, sizeof all[0], report_compare_lanes);
    }
    d->n_lanes = (uint32_t)(n < HDI_REPORT_LANES ? n : HDI_REPORT_LANES);
    if (n) {
        memcpy(d->lanes, all, d->n_lanes * sizeof all[0]);
    }
    d->other_lanes = n - d->n_lanes;
    d->other_lanes_bytes = 0;
    for (size_t i = d->n_lanes; i < n; i++) {
        d->other_lanes_bytes += all[i].cached_bytes;
    }
    free(all);
}

static void report_add_holder(hdi_report_device *d, const hdi_holder *h)
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

static hd_status report_collect_holders(hd_runtime *rt, hdi_report *r)
{
    hdi_holder *holders = NULL;
    size_t n = 0;
    hd_status status = hdi_holders_collect(rt, HDI_HOLDERS, &holders, &n);
    for (uint32_t i = 0; i < r->n_devices; i++) {
        hdi_report_device *d = &r->devices[i];
        report_collect_lanes(rt, d);
        d->n_holders = 0;
        d->other_holders = d->others_bytes = d->others_count = 0;
        for (size_t h = 0; h < n; h++) {
            if (holders[h].device == d->device) {
                report_add_holder(d, &holders[h]);
            }
        }
    }
    free(holders);
    return status;
}

static void report_copy_text(char *out, size_t room, const char *text)
{
    memset(out, 0, room);
    memcpy(out, text, strnlen(text, room - 1));
}

static void report_add_claim(void *context, const char *text)
{
    hdi_report *r = context;
    if (r->n_claims < HDI_REPORT_CLAIMS) {
        report_copy_text(r->claim[r->n_claims++], HDI_CLAIM_TEXT, text);
    }
    r->claims++;
}

static void report_collect_claims(hd_runtime *rt, hdi_report *r)
{
    r->n_claims = 0;
    r->claims = 0;
    for (int i = 0; i < rt->n_devices; i++) {
        hdi_claims_each_open(rt, i, report_add_claim, r);
    }
}

hd_status hdi_report_collect(hd_runtime *rt, bool with_holders, hdi_report *r)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    r->pid = getpid();
    r->time = now.tv_sec;
    r->holders_age_ns = 0;
    report_copy_text(r->version, sizeof r->version, hd_version());
    report_copy_text(r->driver, sizeof r->driver, __atomic_load_n(&rt->provider, __ATOMIC_RELAXED)->name);
    report_copy_text(r->placement, sizeof r->placement, HDI_OPTION_TEXT(&rt->options, placement));
    report_copy_text(r->program, sizeof r->program, program_invocation_short_name);
    r->debug = hdi_kinds_of(rt)->findings != NULL;
    r->n_devices = (uint32_t)rt->n_devices + 1;
    for (int i = 0; i <= rt->n_devices; i++) {
        hdi_report_device *d = &r->devices[i];
        if (i < rt->n_devices) {
            d->device = i;
            d->lost = hdi_device_lost(rt->devices[i]);
            report_copy_text(d->name, sizeof d->name, rt->devices[i]->facts.name);
            report_device_stats(rt->devices[i], &d->stats);
        } else {
            d->device = HD_DEVICE_HOST;
            d->lost = 0;
            report_copy_text(d->name, sizeof d->name, "pinned host memory");
            report_pinned_stats(rt, &d->stats);
        }
    }
    r->n_findings = hdi_findings_copy(rt, r->finding, &r->findings);
    report_collect_claims(rt, r);
    return with_holders ? report_collect_holders(rt, r) : HD_OK;
}

/* ---- as text for people ---- */

/* This function does not use the C library, which opens the file of the time zone. An era is 400
 * years long; its years begin with March. */
const char *hdi_date_text(int64_t seconds, char out[HDI_AMOUNT_BYTES])
{
    /* `most`: the end of the year 9999. */
    const int64_t day_seconds = 86400, era_days = 146097, most = INT64_C(253402300799);
    if (seconds < 0 || seconds > most) {
        snprintf(out, HDI_AMOUNT_BYTES, "unknown");
        return out;
    }
    /* The days since the first of March of year 0. */
    int64_t days = seconds / day_seconds + 719468, of_day = seconds % day_seconds;
    int64_t in_era = days % era_days;
    int64_t years = (in_era - in_era / 1460 + in_era / 36524 - in_era / 146096) / 365;
    int64_t in_year = in_era - (365 * years + years / 4 - years / 100), month = (5 * in_year + 2) / 153;
    int day = (int)(in_year - (153 * month + 2) / 5 + 1);
    years += days / era_days * 400 + (month >= 10);
    snprintf(out, HDI_AMOUNT_BYTES, "%04d-%02d-%02dT%02d:%02d:%02dZ", (int)years,
             (int)(month < 10 ? month + 3 : month - 9), day, (int)(of_day / 3600), (int)(of_day / 60 % 60),
             (int)(of_day % 60));
    return out;
}

/* Prints up to `room` characters of a text that may hold anything, without control characters. */
static void report_print_clean(FILE *out, const char *text, size_t room)
{
    size_t length = strnlen(text, room);
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        /* also the control characters above 0x7f, in UTF-8 */
        bool control =
            c < 0x20 || c == 0x7f || (c == 0xc2 && i + 1 < length && ((unsigned char)text[i + 1] & 0xe0) == 0x80);
        fputc(control ? '?' : c, out);
        i += control && c == 0xc2;
    }
}

static const char *report_plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

static void report_print_lanes(FILE *out, const hdi_report_device *d)
{
    char bytes[HDI_AMOUNT_BYTES];
    for (uint32_t i = 0; i < d->n_lanes; i++) {
        fprintf(out, "%s lane %d: %s in %" PRIu64, i ? "," : ";", d->lanes[i].lane,
                hdi_bytes_text(d->lanes[i].cached_bytes, bytes), d->lanes[i].cached_count);
    }
    if (d->other_lanes) {
        fprintf(out, ", %" PRIu64 " more lane%s: %s", d->other_lanes, report_plural(d->other_lanes),
                hdi_bytes_text(d->other_lanes_bytes, bytes));
    }
}

/* "12.3 % from magazines, 80 % never used or just mapped": the sources of allocations. */
static void report_print_sources(FILE *out, const hd_memory_stats *s)
{
    const struct {
        uint64_t count;
        const char *name;
    } sources[] = {
        {s->from_magazine, "from magazines"},
        {s->from_same_lane, "freed by the same lane"},
        {s->from_finished, "finished"},
        {s->from_waited, "still in use, with a wait in the lane"},
        {s->from_fresh, "never used or just mapped"},
    };
    uint64_t sum = 0;
    bool first = true;
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        sum += sources[i].count;
    }
    if (sum == 0) {
        return;
    }
    fprintf(out, "  sources   ");
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        if (sources[i].count) {
            char share[24];
            /* to the nearest tenth of a percent */
            hdi_tenths_text((uint64_t)(((unsigned __int128)sources[i].count * 1000 + sum / 2) / sum), 10, share,
                            sizeof share);
            fprintf(out, "%s%s %% %s", first ? "" : ", ", share, sources[i].name);
            first = false;
        }
    }
    fputc('\n', out);
}

static void report_print_scarcity(FILE *out, const hd_memory_stats *s)
{
    char waited[HDI_AMOUNT_BYTES], early[HDI_AMOUNT_BYTES], limit[HDI_AMOUNT_BYTES];
    if (s->drains || s->waits || s->early_reclaims || s->limit_reclaims || s->failures) {
        fprintf(out,
                "  scarcity  %" PRIu64 " drain%s of magazines, %" PRIu64 " wait%s (%s), callbacks: %" PRIu64
                " early (%s), %" PRIu64 " at the limit (%s); %" PRIu64 " allocation%s failed\n",
                s->drains, report_plural(s->drains), s->waits, report_plural(s->waits),
                hdi_duration_text(s->wait_ns, waited), s->early_reclaims, hdi_duration_text(s->early_reclaim_ns, early),
                s->limit_reclaims, hdi_duration_text(s->limit_reclaim_ns, limit), s->failures,
                report_plural(s->failures));
    }
}

static void report_print_holders(FILE *out, const hdi_report_device *d)
{
    char bytes[HDI_AMOUNT_BYTES];
    for (uint32_t i = 0; i < d->n_holders; i++) {
        const hdi_report_holder *h = &d->holders[i];
        fprintf(out, "  %-9s %10s in %-7" PRIu64 " ", i ? "" : "holders", hdi_bytes_text(h->bytes, bytes), h->count);
        if (h->label[0]) {
            fputc('\'', out);
            report_print_clean(out, h->label, sizeof h->label);
            fputs("'\n", out);
        } else {
            report_print_clean(out, h->site, sizeof h->site);
            fputc('\n', out);
        }
    }
    if (d->other_holders) {
        fprintf(out, "  %-9s %10s in %-7" PRIu64 " %" PRIu64 " other%s\n", "", hdi_bytes_text(d->others_bytes, bytes),
                d->others_count, d->other_holders, report_plural(d->other_holders));
    }
}

static void report_print_device(FILE *out, const hdi_report_device *d, bool debug)
{
    const hd_memory_stats *s = &d->stats;
    char a[HDI_AMOUNT_BYTES], b[HDI_AMOUNT_BYTES], c[HDI_AMOUNT_BYTES], e[HDI_AMOUNT_BYTES];
    if (d->device == HD_DEVICE_HOST) {
        fputs("\npinned host memory\n", out);
    } else {
        fprintf(out, "\ndevice %-4d ", d->device);
        report_print_clean(out, d->name, sizeof d->name);
        fprintf(out, "%s\n", d->lost ? " LOST" : "");
    }
    fprintf(out, "  held      %s of %s, peak %s\n", hdi_bytes_text(s->reserved_bytes, a),
            hdi_bytes_text(s->limit_bytes, b), hdi_bytes_text(s->reserved_peak_bytes, c));
    fprintf(out, "  live      %s in %" PRIu64 " buffer%s; with rounding and magazines %s, peak %s\n",
            hdi_bytes_text(s->live_bytes, a), s->live_count, report_plural(s->live_count),
            hdi_bytes_text(s->taken_bytes, b), hdi_bytes_text(s->taken_peak_bytes, c));
    /* other lines are printed only if they show figures */
    if (s->cached_bytes || d->n_lanes) {
        fprintf(out, "  cached    %s in magazines", hdi_bytes_text(s->cached_bytes, a));
        report_print_lanes(out, d);
        fputc('\n', out);
    }
    if (s->waiting_bytes || s->held_bytes) {
        fprintf(out, "  waiting   %s that unfinished work uses, %s in holds\n", hdi_bytes_text(s->waiting_bytes, a),
                hdi_bytes_text(s->held_bytes, b));
    }
    if (s->imported_count) {
        fprintf(out, "  imported  %s in %" PRIu64 " buffer%s of the program's own memory\n",
                hdi_bytes_text(s->imported_bytes, a), s->imported_count, report_plural(s->imported_count));
    }
    if (s->allocations || s->frees) {
        fprintf(out,
                "  calls     %" PRIu64 " allocation%s, %" PRIu64 " free%s, %" PRIu64 " of them by another thread\n",
                s->allocations, report_plural(s->allocations), s->frees, report_plural(s->frees), s->frees_elsewhere);
    }
    report_print_sources(out, s);
    if (s->driver_calls) {
        fprintf(out, "  driver    %" PRIu64 " request%s: %s mapped, %s of it ahead of need, %s moved, %s given back\n",
                s->driver_calls, report_plural(s->driver_calls), hdi_bytes_text(s->mapped_bytes, a),
                hdi_bytes_text(s->ahead_bytes, b), hdi_bytes_text(s->moved_bytes, c),
                hdi_bytes_text(s->returned_bytes, e));
    }
    report_print_scarcity(out, s);
    if (s->longest_pause_ns) {
        fprintf(out, "  pause     %s at most\n", hdi_duration_text(s->longest_pause_ns, a));
    }
    if (debug || s->double_frees || s->overruns) {
        fprintf(out, "  mistakes  %" PRIu64 " double free%s, %" PRIu64 " overrun%s\n", s->double_frees,
                report_plural(s->double_frees), s->overruns, report_plural(s->overruns));
    }
    report_print_holders(out, d);
}

static void report_print_leaks(FILE *out, const hdi_leaks *leaks)
{
    char bytes[HDI_AMOUNT_BYTES], site[HDI_SITE_BYTES];
    if (leaks->n == 0) {
        fputs("\nleaks       none\n", out);
        return;
    }
    fputs("\nleaks       buffers that were not freed\n", out);
    for (size_t i = 0; i < leaks->n; i++) {
        const hdi_holder *h = &leaks->list[i];
        if (h->device == HD_DEVICE_HOST) {
            fprintf(out, "  pinned    ");
        } else {
            fprintf(out, "  device %-2d ", h->device);
        }
        fprintf(out, "%10s in %-7" PRIu64 " ", hdi_bytes_text(h->bytes, bytes), h->count);
        if (h->label[0]) {
            fputc('\'', out);
            report_print_clean(out, h->label, sizeof h->label);
            fputs("' ", out);
        }
        hdi_site_text(h->site, site);
        fputs("from ", out);
        report_print_clean(out, site, sizeof site);
        fputc('\n', out);
    }
}

/* Prints a list of `total` lines, of which the first `n` are given. Each is a text of at most
 * `room` bytes, `stride` bytes behind the text before. */
static void report_print_list(FILE *out, const char *name, uint64_t total, uint32_t n, const char *first, size_t stride,
                              size_t room)
{
    if (total == 0) {
        return;
    }
    fprintf(out, "\n%-11s %" PRIu64 "\n", name, total);
    for (uint32_t i = 0; i < n; i++) {
        fputs("  ", out);
        report_print_clean(out, first + i * stride, room);
        fputc('\n', out);
    }
    if (total > n) {
        fprintf(out, "  and %" PRIu64 " more\n", total - n);
    }
}

static void report_print(FILE *out, const hdi_report *r, const hdi_leaks *leaks)
{
    char date[HDI_AMOUNT_BYTES];
    fputs("memory      process ", out);
    fprintf(out, "%" PRId64 " (", r->pid);
    report_print_clean(out, r->program, sizeof r->program);
    fputs("), Heddle ", out);
    report_print_clean(out, r->version, sizeof r->version);
    fputs(", driver ", out);
    report_print_clean(out, r->driver, sizeof r->driver);
    fputs(", placement ", out);
    report_print_clean(out, r->placement, sizeof r->placement);
    fprintf(out, ", %s\n", hdi_date_text(r->time, date));
    for (uint32_t i = 0; i < r->n_devices; i++) {
        report_print_device(out, &r->devices[i], r->debug != 0);
    }
    if (r->holders_age_ns) {
        fprintf(out, "\nholders and lanes are %s older than the other figures\n",
                hdi_duration_text(r->holders_age_ns, date));
    }
    report_print_list(out, "findings", r->findings, r->n_findings, r->finding[0].text, sizeof r->finding[0],
                      HDI_FINDING_BYTES);
    report_print_list(out, "not ended", r->claims, r->n_claims, r->claim[0], sizeof r->claim[0], HDI_CLAIM_TEXT);
    if (leaks) {
        report_print_leaks(out, leaks);
    }
}

/* ---- as JSON ---- */

static void report_put_uint(hdi_json *j, const char *key, uint64_t value)
{
    hdi_json_key(j, key);
    hdi_json_integer(j, (int64_t)(value > INT64_MAX ? INT64_MAX : value));
}

/* Writes a text that may fill its array; null if empty. */
static void report_put_value(hdi_json *j, const char *text, size_t room)
{
    char copy[HDI_FINDING_BYTES];
    size_t length = strnlen(text, room < sizeof copy ? room : sizeof copy - 1);
    memcpy(copy, text, length);
    copy[length] = 0;
    hdi_json_string(j, length ? copy : NULL);
}

static void report_put_text(hdi_json *j, const char *key, const char *text, size_t room)
{
    hdi_json_key(j, key);
    report_put_value(j, text, room);
}

static void report_put_device_number(hdi_json *j, int device)
{
    hdi_json_key(j, "device");
    hdi_json_integer(j, device);
}

static void report_put_device(hdi_json *j, const hdi_report_device *d)
{
    hdi_json_object(j);
    report_put_device_number(j, d->device);
    hdi_json_key(j, "pinned");
    hdi_json_bool(j, d->device == HD_DEVICE_HOST);
    report_put_text(j, "name", d->name, sizeof d->name);
    hdi_json_key(j, "lost");
    hdi_json_bool(j, d->lost != 0);
#define PUT_FIGURE(field) report_put_uint(j, #field, d->stats.field);
    HDI_STATS_MAP(PUT_FIGURE)
#undef PUT_FIGURE
    hdi_json_key(j, "lanes");
    hdi_json_array(j);
    for (uint32_t i = 0; i < d->n_lanes; i++) {
        hdi_json_object(j);
        hdi_json_key(j, "lane");
        hdi_json_integer(j, d->lanes[i].lane);
        report_put_uint(j, "cached_bytes", d->lanes[i].cached_bytes);
        report_put_uint(j, "cached_count", d->lanes[i].cached_count);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
    report_put_uint(j, "other_lanes", d->other_lanes);
    report_put_uint(j, "other_lanes_bytes", d->other_lanes_bytes);
    hdi_json_key(j, "holders");
    hdi_json_array(j);
    for (uint32_t i = 0; i < d->n_holders; i++) {
        hdi_json_object(j);
        report_put_text(j, "label", d->holders[i].label, sizeof d->holders[i].label);
        report_put_text(j, "call_site", d->holders[i].site, sizeof d->holders[i].site);
        report_put_uint(j, "bytes", d->holders[i].bytes);
        report_put_uint(j, "count", d->holders[i].count);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
    report_put_uint(j, "other_holders", d->other_holders);
    report_put_uint(j, "other_holders_bytes", d->others_bytes);
    report_put_uint(j, "other_holders_count", d->others_count);
    hdi_json_object_end(j);
}

static const char *report_kind_name(int kind)
{
    switch (kind) {
    case HD_FINDING_OVERRUN:
        return "overrun";
    case HD_FINDING_DOUBLE_FREE:
        return "double free";
    case HD_FINDING_USE_AFTER_FREE:
        return "use after free";
    default:
        return "unknown";
    }
}

static void report_put_findings(hdi_json *j, const hdi_report *r)
{
    report_put_uint(j, "findings_count", r->findings);
    hdi_json_key(j, "findings");
    hdi_json_array(j);
    for (uint32_t i = 0; i < r->n_findings; i++) {
        hdi_json_object(j);
        hdi_json_key(j, "kind");
        hdi_json_string(j, report_kind_name(r->finding[i].kind));
        report_put_device_number(j, r->finding[i].device);
        report_put_text(j, "message", r->finding[i].text, sizeof r->finding[i].text);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
}

static void report_put_claims(hdi_json *j, const hdi_report *r)
{
    report_put_uint(j, "claims_count", r->claims);
    hdi_json_key(j, "claims");
    hdi_json_array(j);
    for (uint32_t i = 0; i < r->n_claims; i++) {
        report_put_value(j, r->claim[i], sizeof r->claim[i]);
    }
    hdi_json_array_end(j);
}

static void report_put_leaks(hdi_json *j, const hdi_leaks *leaks)
{
    hdi_json_key(j, "leaks");
    hdi_json_array(j);
    for (size_t i = 0; i < leaks->n; i++) {
        const hdi_holder *h = &leaks->list[i];
        char site[HDI_SITE_BYTES];
        hdi_site_text(h->site, site);
        hdi_json_object(j);
        report_put_device_number(j, h->device);
        report_put_text(j, "label", h->label, sizeof h->label);
        report_put_text(j, "call_site", site, sizeof site);
        report_put_uint(j, "bytes", h->bytes);
        report_put_uint(j, "count", h->count);
        hdi_json_object_end(j);
    }
    hdi_json_array_end(j);
}

static void report_put(hdi_json *j, const hdi_report *r, const hdi_leaks *leaks)
{
    char date[HDI_AMOUNT_BYTES];
    hdi_json_object(j);
    report_put_text(j, "heddle", r->version, sizeof r->version);
    hdi_json_key(j, "pid");
    hdi_json_integer(j, r->pid);
    report_put_text(j, "program", r->program, sizeof r->program);
    report_put_text(j, "date", hdi_date_text(r->time, date), sizeof date);
    report_put_text(j, "driver", r->driver, sizeof r->driver);
    report_put_text(j, "placement", r->placement, sizeof r->placement);
    hdi_json_key(j, "memory_debug");
    hdi_json_bool(j, r->debug != 0);
    report_put_uint(j, "holders_age_ns", r->holders_age_ns);
    hdi_json_key(j, "devices");
    hdi_json_array(j);
    for (uint32_t i = 0; i < r->n_devices; i++) {
        report_put_device(j, &r->devices[i]);
    }
    hdi_json_array_end(j);
    report_put_findings(j, r);
    report_put_claims(j, r);
    if (leaks) {
        report_put_leaks(j, leaks);
    }
    hdi_json_object_end(j);
}

/* ---- in both formats ---- */

hd_status hdi_report_write(const hdi_report *report, const hdi_leaks *leaks, hd_report_format format, char **text,
                           size_t *length)
{
    hdi_text t;
    FILE *stream = hdi_text_open(&t);
    if (stream && format == HD_REPORT_JSON) {
        hdi_json j;
        hdi_json_begin(&j, stream);
        report_put(&j, report, leaks);
        hdi_json_end(&j);
    } else if (stream) {
        report_print(stream, report, leaks);
    }
    return hdi_text_close(&t, text, length) ? HD_OK
                                            : hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for a report on memory");
}

static void report_print_all(FILE *out, const hdi_report *reports, size_t n, hd_report_format format)
{
    if (format == HD_REPORT_JSON) {
        hdi_json j;
        hdi_json_begin(&j, out);
        hdi_json_object(&j);
        hdi_json_key(&j, "programs");
        hdi_json_array(&j);
        for (size_t i = 0; i < n; i++) {
            report_put(&j, &reports[i], NULL);
        }
        hdi_json_array_end(&j);
        hdi_json_object_end(&j);
        hdi_json_end(&j);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (i) {
            fputs("\n\n", out);
        }
        report_print(out, &reports[i], NULL);
    }
    if (n == 0) {
        fputs("No program of this user has a runtime of this version of Heddle open.\n", out);
    }
}

hd_status hdi_reports_write(const hdi_report *reports, size_t n, hd_report_format format, char **text, size_t *length)
{
    hdi_text t;
    FILE *stream = hdi_text_open(&t);
    if (stream) {
        report_print_all(stream, reports, n, format);
    }
    return hdi_text_close(&t, text, length) ? HD_OK : hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
}

void hdi_report_hand_out(const char *text, size_t length, char *out, size_t room, size_t *needed)
{
    if (room) {
        size_t n = length < room - 1 ? length : room - 1;
        memcpy(out, text, n);
        out[n] = 0;
    }
    if (needed) {
        *needed = length + 1;
    }
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

/* ---- at hd_close ---- */

static bool report_path_ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* Makes a JSON object one line. Line breaks and the blanks behind them are only layout, since
 * strings escape them. */
static size_t report_join_lines(char *text, size_t length)
{
    size_t kept = 0;
    for (size_t i = 0; i < length;) {
        if (text[i] == '\n') {
            i += 1 + strspn(text + i + 1, " ");
        } else {
            text[kept++] = text[i++];
        }
    }
    text[kept++] = '\n'; /* takes the place of the last line break */
    return kept;
}

static hd_status report_append_file(hd_runtime *rt, const hdi_report *report, const hdi_leaks *leaks)
{
    const char *where = rt->options.stats;
    bool json = report_path_ends_with(where, ".json");
    char *text = NULL;
    size_t length = 0;
    hd_status status = hdi_report_write(report, leaks, json ? HD_REPORT_JSON : HD_REPORT_TEXT, &text, &length);
    if (status) {
        return status;
    }
    if (json) {
        length = report_join_lines(text, length);
    }
    int64_t deadline = hdi_option_deadline(rt->options.close_timeout);
    bool to_stderr = strcmp(where, "1") == 0;
    /* O_NONBLOCK: a pipe must not block */
    int descriptor = to_stderr
                         ? STDERR_FILENO
                         : hdi_descriptor_open(where, O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_NOCTTY, 0666);
    bool ok = descriptor >= 0 && hdi_write_quietly(descriptor, text, length, deadline);
    if (!ok) {
        status = hdi_fail(HD_ERROR_SYSTEM, "the report on memory was not written (option stats=%s): %s", where,
                          strerror(errno));
    }
    if (descriptor >= 0 && !to_stderr && close(descriptor) != 0 && ok) {
        status = hdi_fail(HD_ERROR_SYSTEM, "the report on memory was not written (option stats=%s): %s", where,
                          strerror(errno));
    }
    free(text);
    return status;
}

/* Fails with the message about leaks, which names the largest group. */
static hd_status report_fail_leaks(const hdi_leaks *leaks)
{
    uint64_t bytes = 0, count = 0;
    const hdi_holder *largest = &leaks->list[0];
    for (size_t i = 0; i < leaks->n; i++) {
        bytes += leaks->list[i].bytes;
        count += leaks->list[i].count;
        largest = leaks->list[i].bytes > largest->bytes ? &leaks->list[i] : largest;
    }
    char all[HDI_AMOUNT_BYTES], most[HDI_AMOUNT_BYTES], site[HDI_SITE_BYTES];
    hdi_site_text(largest->site, site);
    bool named = largest->label[0] != 0;
    return hdi_fail(HD_ERROR_ACCESS,
                    "%" PRIu64 " buffer%s of %s %s not freed; the most: %" PRIu64 " of %s, %s%.*s%sfrom %s", count,
                    count == 1 ? "" : "s", hdi_bytes_text(bytes, all), count == 1 ? "was" : "were", largest->count,
                    hdi_bytes_text(largest->bytes, most), named ? "'" : "", (int)sizeof largest->label, largest->label,
                    named ? "' " : "", site);
}

static void report_find_leaks(hd_runtime *rt, const hdi_leaks *leaks)
{
    uint64_t buffers = 0, bytes = 0;
    for (size_t i = 0; i < leaks->n; i++) {
        const hdi_holder *h = &leaks->list[i];
        hd_finding leak = {.device = h->device, .bytes = h->bytes, .count = h->count, .call_site = h->site};
        memcpy(leak.label, h->label, sizeof leak.label);
        hdi_findings_leak(rt, &leak, i);
        buffers += h->count;
        bytes += h->bytes;
    }
    hdi_findings_end(rt, buffers, bytes);
}

void hdi_report_at_close(hd_runtime *rt, hd_error *message)
{
    bool wanted = strcmp(rt->options.stats, "0") != 0 && rt->options.stats[0] != 0;
    bool debug = hdi_kinds_of(rt)->findings != NULL;
    if (!wanted && !debug) {
        return;
    }
    hdi_holder *list = NULL;
    size_t n = 0;
    hd_status status = debug ? hdi_holders_collect(rt, HDI_LEAKS, &list, &n) : HD_OK;
    hdi_leaks leaks = {list, n};
    if (!status && wanted) {
        hdi_report *report = calloc(1, sizeof *report);
        status = report ? hdi_report_collect(rt, true, report)
                        : hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for the report on memory");
        status = status ? status : report_append_file(rt, report, debug ? &leaks : NULL);
        free(report);
    }
    if (n) {
        status = report_fail_leaks(&leaks);
    }
    if (debug) {
        report_find_leaks(rt, &leaks);
    }
    if (status) {
        hdi_error_get(message);
    }
    free(list);
}
