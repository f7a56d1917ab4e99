/* host.c - pinned host memory: buffers over the pool of blocks.
 *
 * Threads: any. Locks: those of the pool; the order lock of a buffer, for its use record. Blocking: at the limit, for
 * work that still uses freed memory, as long as some of it is finished every so often (option memory_patience).
 * Always: a block that work still uses goes to its next owner with the marks of that work in the use record.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/error.h"
#include "base/wait.h"
#include "data/buffer.h"
#include "data/pageable_crates.h"
#include "data/report.h"
#include "data/staging.h"
#include "engine/engine.h"

hdi_device *hdi_any_device(hd_runtime *rt)
{
    for (int i = 0; i < rt->n_devices; i++) {
        if (!hdi_device_lost(rt->devices[i])) {
            return rt->devices[i];
        }
    }
    return rt->devices[0];
}

/* ---- the pool ---- */

/* A device that was lost in this process may go on with work that counts as finished by that. */
static bool is_finished(void *context, hdi_mark mark)
{
    hd_runtime *rt = context;
    if (!hdi_mark_done(rt, mark)) {
        return false;
    }
    if (rt->is_process || !hdi_device_lost(hdi_lane_owner(rt, mark.lane))) {
        return true;
    }
    hdi_failure failure;
    return !(hdi_failure_find(rt, mark.lane, mark.position, &failure) && failure.lost);
}

static uint64_t lost_devices(void *context)
{
    hd_runtime *rt = context;
    uint64_t lost = 0;
    for (int i = 0; i < rt->n_devices; i++) {
        lost |= (uint64_t)(hdi_device_lost(rt->devices[i]) != 0) << i;
    }
    return lost;
}

static uint64_t limit_of(const hd_runtime *rt)
{
    const hdi_option_AMOUNT *limit = &rt->options.pinned_limit;
    double machine = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    return limit->share != 0 ? (uint64_t)(limit->share * machine) : (uint64_t)limit->bytes;
}

hd_status hdi_host_create(hd_runtime *rt)
{
    const hdi_host_pool_config config = {
        .pinned = rt->pinned,
        .limit_bytes = limit_of(rt),
        .finished = is_finished,
        .lost = rt->is_process ? NULL : lost_devices, /* a worker has ended before its device counts as lost */
        .context = rt,
    };
    return hdi_host_pool_create(&config, &rt->host_pool);
}

void hdi_host_destroy(hd_runtime *rt, bool driver_usable)
{
    hdi_host_pool_destroy(rt->host_pool, !driver_usable);
    rt->host_pool = NULL;
}

#define NAP_NS 50000

/* Gives up chunks that nobody uses. A number that changes when freed memory, or a chunk, is not used any more, or more is freed; 0: none of
 * them is in use. */
static uint64_t look(hd_runtime *rt)
{
    bool in_use = hdi_staging_trim(rt);
    hdi_crates_relieve(rt);
    in_use |= hdi_crates_in_use(rt);
    hdi_host_pool_info info;
    hdi_host_pool_get_info(rt->host_pool, &info);
    return info.waiting_bytes || in_use ? info.waiting_bytes + info.own_bytes + info.frees + 1 : 0;
}

/* `patient`: waits for memory that is in use, for the option memory_patience. */
static hd_status take(hd_runtime *rt, size_t bytes, bool own, bool patient, hdi_host_block *out, hdi_marks *inherited)
{
    hd_error before;
    hdi_error_save(&before);
    hd_status status = hdi_host_pool_take(rt->host_pool, bytes, own, out, inherited);
    if (status == HD_ERROR_HOST_MEMORY && hdi_crates_relieve(rt)) {
        status = hdi_host_pool_take(rt->host_pool, bytes, own, out, inherited);
        if (!status) {
            hdi_error_restore(&before);
        }
    }
    if (status != HD_ERROR_HOST_MEMORY) {
        return status;
    }
    int64_t patience = patient ? rt->options.memory_patience * 1000000 : 0;
    int64_t moved = hdi_clock_ns();
    int64_t end = moved + HDI_PATIENCE_TIMES * patience;
    uint64_t seen = look(rt), now;
    status = hdi_host_pool_take(rt->host_pool, bytes, own, out, inherited); /* what was given up */
    for (; status == HD_ERROR_HOST_MEMORY && patient && seen != 0 && hdi_clock_ns() - moved <= patience &&
           hdi_clock_ns() < end;
         seen = now) {
        for (int i = 0; rt->is_inline && i < rt->n_devices; i++) {
            hdi_engine_run_inline(rt->devices[i]);
        }
        hdi_nap(NAP_NS);
        now = look(rt);
        if (now != seen) {
            moved = hdi_clock_ns();
            status = hdi_host_pool_take(rt->host_pool, bytes, own, out, inherited);
        }
    }
    if (!status) {
        hdi_error_restore(&before);
    }
    return status;
}

/* ---- buffers ---- */

/* Makes a block the buffer's; false: no host memory. */
static bool settle_in(struct hd_buffer *b, size_t bytes, const hdi_host_block *block, const hdi_marks *inherited)
{
    hdi_uses_init(&b->uses, bytes);
    for (size_t i = 0; i < inherited->count; i++) {
        if (!hdi_uses_inherit(b->runtime, &b->uses, hdi_marks_data(inherited)[i])) {
            hdi_uses_release(&b->uses);
            return false;
        }
    }
    b->owner = HDI_OWNER_HOST;
    b->address = block->device;
    b->bytes = bytes;
    b->host = block->host;
    b->pinned = *block;
    b->special = HDI_BUFFER_PINNED | (block->own ? HDI_BUFFER_OWN : 0);
    b->locks = (uint64_t)1 << b->order | (block->own ? 0 : HDI_DIRECT_BIT);
    atomic_store_explicit(&b->losses, 0, memory_order_release);
    return true;
}

/* The pool's failure, in the name of the call, with who holds the memory. */
static hd_status fail_take(hd_runtime *rt, const char *who)
{
    hdi_device *device = hdi_any_device(rt);
    int lost = rt->is_process ? HDI_GONE_CLOSED : hdi_device_lost(device);
    hd_error error;
    hdi_error_save(&error);
    if (error.status == HD_ERROR_DEVICE_LOST && lost) {
        return hdi_driver_failed(device, lost, "", who);
    }
    char text[sizeof error.message + 64];
    bool full = error.status == HD_ERROR_HOST_MEMORY;
    int length = snprintf(text, sizeof text, "%s: %s%s", who, error.message, full ? "; holders: " : "");
    if (full && length > 0 && (size_t)length < sizeof text) {
        hdi_report_holders(rt, HD_DEVICE_HOST, text + length, sizeof text - (size_t)length);
    }
    memcpy(error.message, text, sizeof error.message);
    error.message[sizeof error.message - 1] = 0;
    return hdi_fail_error(&error);
}

/* A buffer without a handle. */
static hd_status make(hd_runtime *rt, size_t bytes, bool own, bool patient, const char *who, struct hd_buffer **out)
{
    struct hd_buffer *b = hdi_buffer_take(rt);
    if (!b) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "%s: no memory for a handle", who);
    }
    hdi_host_block block;
    hdi_marks inherited;
    hd_status status = take(rt, bytes, own, patient, &block, &inherited);
    if (status) {
        hdi_buffer_give(rt, b);
        if (!own) {
            hdi_host_pool_count_failure(rt->host_pool);
        }
        return fail_take(rt, who);
    }
    if (!settle_in(b, bytes, &block, &inherited)) {
        hdi_host_pool_give(rt->host_pool, &block, hdi_marks_data(&inherited), inherited.count);
        hdi_buffer_give(rt, b);
        status = hdi_fail(HD_ERROR_HOST_MEMORY, "%s: no memory for use records", who);
    }
    hdi_marks_release(&inherited);
    *out = b;
    return status;
}

hd_status hdi_buffer_make_host(hd_runtime *rt, size_t bytes, bool patient, const char *who, struct hd_buffer **out)
{
    struct hd_buffer *b = NULL;
    hd_status status = make(rt, bytes, true, patient, who, &b);
    if (status) {
        return status;
    }
    status = hdi_buffer_settle(b, NULL, 0, bytes, HD_WRITE, hdi_option_deadline(rt->options.transfer_timeout), who);
    if (status) {
        hd_error cause;
        hdi_error_save(&cause);
        hdi_buffer_release_memory(b);
        hdi_buffer_give(rt, b);
        hdi_error_restore(&cause);
        return status;
    }
    hdi_buffer_make_live(b);
    *out = b;
    return HD_OK;
}

hd_status hd_alloc_host(hd_runtime *rt, size_t bytes, hd_buffer **out)
{
    if (!out || bytes == 0) {
        return hdi_fail(HD_ERROR_ARGUMENT, "hd_alloc_host: %s", out ? "bytes is 0" : "out is null");
    }
    if (!hdi_runtime_is_open(rt)) {
        return hdi_fail(HD_ERROR_HANDLE, "hd_alloc_host: not an open runtime");
    }
    struct hd_buffer *b = NULL;
    hd_status status = make(rt, bytes, false, true, "hd_alloc_host", &b);
    if (!status) {
        b->call_site = __builtin_return_address(0);
        hdi_buffer_make_live(b);
        *out = hdi_buffer_handle(b);
    }
    return status;
}

void hdi_host_release(struct hd_buffer *b, const hdi_mark *marks, size_t n_marks)
{
    hdi_host_pool_give(b->runtime->host_pool, &b->pinned, marks, n_marks);
}
