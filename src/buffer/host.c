/* host.c - memory for the host: access by hd_map, hd_unmap and hd_element, and pinned buffers from
 * the pool of blocks (host_pool.h).
 *
 * The fields `readable` and `writable` of a buffer (buffer.h) show whether work is pending. If no
 * work is pending, hd_element needs only a few loads. Otherwise hd_element waits for the work, and
 * then sets the two fields.
 *
 * Threads: any.
 * Locks: the pool's locks, the order lock of a pinned buffer (for its use record), and the mirror's
 * lock of a unified buffer.
 * Blocking: hd_map and hd_element wait until work on the bytes is done (option transfer_timeout).
 * An allocation at the limit waits until work no longer uses freed memory, or until other threads
 * free memory (limit.h).
 * Always: hd_element takes no lock while no work is pending. If work still uses a block, the next
 * owner's use record contains the points of that work.
 */
#include <heddle/unified.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/error.h"
#include "base/handle.h"
#include "base/text.h"
#include "buffer/buffer.h"
#include "buffer/kind.h"
#include "buffer/part.h"
#include "buffer/freed.h"
#include "buffer/limit.h"
#include "buffer/line.h"
#include "buffer/reclaim.h"
#include "buffer/recorded.h"
#include "buffer/region.h"
#include "engine/engine.h"
#include "memory/part.h"

static hd_status host_buffer_fail_device(const struct hd_buffer *b, const hd_buffer *handle)
{
    int owner = b->owner;
    if (hdi_buffer_is_gone(b, handle)) {
        return hdi_buffer_refused(handle);
    }
    return hdi_fail(HD_ERROR_ACCESS,
                    "this is memory of device %d, which the CPU cannot use: hd_read and hd_write copy it; both can "
                    "use memory of hd_alloc_unified",
                    owner);
}

/* The access for hdi_buffer_settle: with HD_WRITE alone the host replaces the bytes, so it does not
 * matter if their last writer failed. */
static unsigned host_buffer_access(hd_access access)
{
    return access == HD_WRITE ? HD_WRITE | HDI_ACCESS_REPLACES : (unsigned)access;
}

static int64_t host_buffer_deadline(const struct hd_buffer *b)
{
    return hdi_option_deadline(b->runtime->options.transfer_timeout);
}

/* ---- mapping ---- */

hd_status hdi_buffer_host_map(struct hd_buffer *b, hd_access access, int64_t deadline)
{
    return hdi_buffer_settle(b, NULL, 0, b->bytes, host_buffer_access(access), deadline);
}

hd_status hd_map(hd_buffer *handle, hd_access access, void **out)
{
    HDI_INSIDE(hdi_buffer_runtime(handle));
    struct hd_buffer *b = NULL;
    hd_status status = hdi_buffer_check(handle, 0, 0, &b);
    status = status ? status : hdi_access_check(access);
    if (status) {
        return status;
    }
    if (!out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "out is null");
    }
    const hdi_buffer_ops *kind = b->kind;
    if (!kind || !kind->map) {
        return host_buffer_fail_device(b, handle);
    }
    if (!hdi_hold_begin(b, hdi_self_word(handle))) {
        return hdi_buffer_refused(handle);
    }
    status = kind->map(b, access, host_buffer_deadline(b));
    if (!status) {
        *out = b->host;
    }
    hdi_hold_end(b);
    return status;
}

hd_status hd_unmap(hd_buffer *handle)
{
    HDI_INSIDE(hdi_buffer_runtime(handle));
    struct hd_buffer *b = hdi_buffer_from_any_handle(handle);
    if (!b) {
        return hdi_buffer_refused(handle);
    }
    const hdi_buffer_ops *kind = b->kind;
    if (!kind || !kind->map) {
        return host_buffer_fail_device(b, handle);
    }
    bool mapped = true; /* pinned memory does not count its mappings */
    if (kind->unmap && hdi_hold_begin(b, hdi_self_word(handle))) {
        mapped = kind->unmap(b);
        hdi_hold_end(b);
    }
    return mapped ? HD_OK : hdi_fail(HD_ERROR_ARGUMENT, "the buffer is not mapped; call hd_unmap once for each hd_map");
}

/* ---- elements ---- */

/* Sets `readable` and `writable` of a pinned buffer, as far as no pending work forbids it. */
static void host_buffer_note_pinned(struct hd_buffer *b, const hd_buffer *handle)
{
    if (!hdi_buffer_uses_lock_of(b, handle)) {
        return;
    }
    /* If the record has several segments, a walk over all of them for each element would take too
     * long. So each call prunes only a few segments. After some calls, the record of a buffer
     * without work is one segment again. */
    hdi_uses_prune(b->runtime, &b->uses, b->order);
    unsigned state = b->uses.parts ? HDI_USES_WRITTEN : hdi_uses_state(b->runtime, &b->uses, 0, b->bytes);
    /* these stores pair with the acquire loads of hd_element, which then sees the results of the
     * work */
    if (!(state & (HDI_USES_WRITTEN | HDI_USES_FAILED))) {
        atomic_store_explicit(&b->readable, 1, memory_order_release);
        atomic_store_explicit(&b->writable, !(state & HDI_USES_READ), memory_order_release);
    }
    hdi_buffer_uses_unlock(b);
}

hd_status hdi_buffer_host_bring(struct hd_buffer *b, const hd_buffer *handle, uint64_t low, uint64_t high,
                                hd_access access, int64_t deadline)
{
    hd_status status = hdi_buffer_settle(b, handle, low, high, host_buffer_access(access), deadline);
    if (!status) {
        host_buffer_note_pinned(b, handle);
    }
    return status;
}

static const hdi_buffer_ops pinned_ops = {.map = hdi_buffer_host_map, .bring = hdi_buffer_host_bring};

static hd_status host_buffer_bring(struct hd_buffer *b, const hd_buffer *handle, uint64_t low, uint64_t high,
                                   hd_access access)
{
    const hdi_buffer_ops *kind = b->kind;
    if (!kind || !kind->bring) {
        return host_buffer_fail_device(b, handle);
    }
    return kind->bring(b, handle, low, high, access, host_buffer_deadline(b));
}

/* True if all chunks of [low, high) are in the mask. */
static bool host_buffer_has_all(const struct hd_buffer *b, uint64_t ready, uint64_t low, uint64_t high)
{
    uint64_t first = low >> b->chunk_shift, last = (high - 1) >> b->chunk_shift;
    uint64_t wanted = (UINT64_MAX >> (63 - last)) & (UINT64_MAX << first);
    return (ready & wanted) == wanted;
}

static void *__attribute__((noinline))
host_buffer_element_slow(hd_buffer *handle, size_t offset, size_t bytes, hd_access access)
{
    HDI_REFUSE_IN_LANE_AS("hd_element", NULL)
    HDI_IS_INSIDE(hdi_buffer_runtime(handle), "hd_element");
    struct hd_buffer *b = NULL;
    hd_status status = hdi_buffer_check(handle, offset, bytes, &b);
    status = status ? status : hdi_access_check(access);
    if (!status && bytes == 0) {
        status = hdi_fail(HD_ERROR_ARGUMENT, "bytes is 0");
    }
    if (status) {
        return NULL;
    }
    uint64_t ready = atomic_load_explicit(access & HD_WRITE ? &b->writable : &b->readable, memory_order_acquire);
    if (!host_buffer_has_all(b, ready, offset, offset + bytes) &&
        host_buffer_bring(b, handle, offset, offset + bytes, access)) {
        return NULL;
    }
    unsigned char *host = b->host;
    if (hdi_buffer_is_gone(b, handle)) {
        hdi_buffer_refused(handle);
        return NULL;
    }
    return host + offset;
}

void *hd_element(hd_buffer *handle, size_t offset, size_t bytes, hd_access access)
{
    struct hd_buffer *b = hdi_buffer_from_handle(handle);
    if (__builtin_expect(b && (offset < b->bytes) & (bytes - 1 < b->bytes - offset) & ((unsigned)access - 1 < 3), 1)) {
        uint64_t first = offset >> b->chunk_shift, last = (offset + bytes - 1) >> b->chunk_shift;
        /* pairs with the release store that marks the chunk as idle */
        uint64_t ready = atomic_load_explicit(access & HD_WRITE ? &b->writable : &b->readable, memory_order_acquire);
        if (__builtin_expect((first == last) & (ready >> first & 1), 1)) {
            return b->host + offset;
        }
    }
    return host_buffer_element_slow(handle, offset, bytes, access);
}

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

/* True if the work of a point no longer uses its memory. After a loss of a device in this process,
 * the device's work counts as done, but may still run. */
static bool host_buffer_is_finished(void *context, hdi_point point)
{
    hd_runtime *rt = context;
    if (!hdi_point_done(rt, point)) {
        return false;
    }
    if (rt->is_process || !hdi_device_lost(hdi_lane_owner(rt, point.lane))) {
        return true;
    }
    hdi_failure failure;
    return !(hdi_failure_find(rt, point.lane, point.position, &failure) && failure.lost);
}

static uint64_t host_buffer_lost_devices(void *context)
{
    hd_runtime *rt = context;
    uint64_t lost = 0;
    for (int i = 0; i < rt->n_devices; i++) {
        lost |= (uint64_t)hdi_device_lost(rt->devices[i]) << i;
    }
    return lost;
}

static bool host_buffer_may_unpin(void *context)
{
    hd_runtime *rt = context;
    return hdi_rest_is_near(&hdi_memory_of(rt)->rest, rt);
}

static uint64_t host_buffer_limit(const hd_runtime *rt)
{
    const hdi_option_AMOUNT *limit = &rt->options.pinned_limit;
    double machine = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    return limit->share != 0 ? (uint64_t)(limit->share * machine) : (uint64_t)limit->bytes;
}

/* The port of a device for pinned memory. NULL: the device is unusable now. */
static hdi_port *host_buffer_usable_port(void *context, int index)
{
    hd_runtime *rt = context;
    hdi_device *device = rt->devices[index];
    bool usable = device && device->port && hdi_device_has_driver(device);
    return usable ? device->port : NULL;
}

static hd_status host_buffer_ready(hd_runtime *rt)
{
    const hdi_pinned_config pinned = {
        .n_devices = rt->n_devices,
        .port = host_buffer_usable_port,
        .context = rt,
        .everywhere = rt->is_process,
        .populate = rt->provider->pins_memory,
    };
    hd_status status = hdi_pinned_pool_create(&pinned, &hdi_memory_of(rt)->pinned);
    if (status) {
        return status;
    }
    const hdi_host_pool_config config = {
        .pinned = hdi_memory_of(rt)->pinned,
        .limit_bytes = host_buffer_limit(rt),
        .finished = host_buffer_is_finished,
        /* with worker processes, a lost device writes nothing, since its worker ended before the
         * device counted as lost */
        .lost = rt->is_process ? NULL : host_buffer_lost_devices,
        .may_unpin = host_buffer_may_unpin,
        .context = rt,
    };
    return hdi_host_pool_create(&config, &hdi_memory_of(rt)->host_pool);
}

/* The pool of a closed runtime whose program never ended a claim. The program may still use the
 * pool's memory. This list keeps the pool reachable, so that leak checkers do not report it. */
typedef struct left_pool {
    struct left_pool *next;
    hdi_host_pool *pool;
} left_pool;

static _Atomic(left_pool *) left_pools;

static void host_buffer_leave(hdi_host_pool *pool)
{
    left_pool *left = malloc(sizeof *left);
    if (left) { /* without memory for an entry, the pool stays, too, but is not in the list */
        *left = (left_pool){atomic_load_explicit(&left_pools, memory_order_relaxed), pool};
        while (!atomic_compare_exchange_weak(&left_pools, &left->next, left)) {
        }
    }
}

static void host_buffer_release(hd_runtime *rt)
{
    if (rt->hung) {
        return; /* a kernel that still runs may use the memory */
    }
    if (rt->claimed) {
        host_buffer_leave(hdi_memory_of(rt)->host_pool); /* the program may still use it */
        return;
    }
    hdi_host_pool_destroy(hdi_memory_of(rt)->host_pool, !hdi_driver_is_usable(rt));
    hdi_memory_of(rt)->host_pool = NULL;
    hdi_rest_end(&hdi_memory_of(rt)->rest);
    hdi_pinned_pool_destroy(hdi_memory_of(rt)->pinned);
}

const hdi_lifetime hdi_host_lifetime = {.ready = host_buffer_ready, .release = host_buffer_release};

/* The ways in which memory can become free for an allocation at the limit. */
typedef struct prospect {
    /* work, or the library itself, uses memory that becomes free without an action of the
     * program */
    bool comes_back;
    bool held;    /* idle memory cannot be unpinned yet, because devices have work */
    bool claimed; /* claims of the program use freed memory */
    bool live;    /* the program owns buffers that it may free */
    /* a number that changes when work ends its use of memory, or when memory is freed */
    uint64_t number;
} prospect;

/* A request for a block. */
typedef struct host_request {
    hd_runtime *runtime;
    size_t bytes;
    /* the library's own request for a transfer; it waits neither in the line nor for the program to
     * free buffers */
    bool own;
    hdi_in_line *place; /* NULL: not in the line */
    bool tried;         /* the last attempt had its turn, and set the message */
    hdi_host_block *out;
    hdi_points *inherited;
} host_request;

/* Frees idle chunks. Then finds the ways in which more memory can become free. */
static prospect host_buffer_look(const host_request *r)
{
    hd_runtime *rt = r->runtime;
    hdi_shrink(rt);
    bool in_use = hdi_shrinkers_in_use(rt);
    hdi_host_pool_info info;
    hdi_freed freed = {.of_claims = 0};
    hdi_host_pool_get_info(hdi_memory_of(rt)->host_pool, &info);
    if (info.waiting_bytes) {
        hdi_freed_get(rt, HD_DEVICE_HOST, &freed);
    }
    uint64_t unpinned;
    bool unpins = hdi_regions_unpin(rt, &unpinned);
    bool held = info.idle_bytes != 0 && !hdi_rest_is_reached(rt);
    return (prospect){.comes_back = freed.of_work || in_use || unpins || held,
                      .held = held,
                      .claimed = freed.of_claims != 0,
                      .live = info.live_count != 0 && !r->own,
                      .number = info.waiting_bytes + info.own_bytes + info.frees + unpinned +
                                hdi_line_left(hdi_line_of(rt, HD_DEVICE_HOST))};
}

/* Makes an attempt if it is this allocation's turn. Otherwise returns HOST_MEMORY without a
 * message. */
static hd_status host_buffer_try(host_request *r)
{
    hd_runtime *rt = r->runtime;
    bool in_turn = r->place || (!r->own && !hdi_line_is_empty(hdi_line_of(rt, HD_DEVICE_HOST)));
    in_turn = in_turn && !hdi_reclaim_is_inside();
    r->tried = !in_turn || hdi_line_enter(rt, HD_DEVICE_HOST, r->place, r->bytes);
    if (!r->tried) {
        return HD_ERROR_HOST_MEMORY;
    }
    hd_status status = hdi_host_pool_take(hdi_memory_of(rt)->host_pool, r->bytes, r->own, r->out, r->inherited);
    if (in_turn) {
        hdi_line_exit(rt, HD_DEVICE_HOST, r->bytes);
    }
    return status;
}

/* Waits until memory in use becomes free, or until other threads free memory. Tries again whenever
 * memory was freed. */
static hd_status host_buffer_wait_for(host_request *r, hdi_memory_wait *p)
{
    hd_runtime *rt = r->runtime;
    const hdi_line *line = hdi_line_of(rt, HD_DEVICE_HOST);
    uint64_t chances = hdi_line_chances(line);
    prospect seen = host_buffer_look(r);
    /* this attempt may get chunks that host_buffer_look freed */
    hd_status status = host_buffer_try(r);
    while (status == HD_ERROR_HOST_MEMORY && (seen.comes_back || seen.claimed || seen.live || !r->tried) &&
           !hdi_memory_wait_over(p, !seen.comes_back)) {
        for (int i = 0; rt->is_inline && i < rt->n_devices; i++) {
            hdi_engine_run_inline(rt->devices[i]);
        }
        hdi_memory_wait_sleep(p);
        prospect now = host_buffer_look(r);
        uint64_t before = chances;
        chances = hdi_line_chances(line);
        if (now.number != seen.number) {
            hdi_memory_wait_moved(p);
        }
        if (now.number != seen.number || chances != before || seen.held) {
            status = host_buffer_try(r);
        }
        seen = now;
    }
    if (status == HD_ERROR_HOST_MEMORY && (p->end == HDI_MEMORY_WAIT_ALONE || !r->tried)) {
        /* This last attempt ignores the line. A thread may have freed memory just before the wait
         * ended. Or the free memory is too little for the earlier allocations, but enough for this
         * one. */
        status = hdi_host_pool_take(hdi_memory_of(rt)->host_pool, r->bytes, r->own, r->out, r->inherited);
    }
    return status;
}

/* Waits in the line. A request for a transfer waits without the line. */
static hd_status host_buffer_wait_in_line(host_request *r, hdi_memory_wait *p)
{
    hdi_in_line place;
    if (r->own || hdi_reclaim_is_inside()) {
        return host_buffer_wait_for(r, p);
    }
    hdi_line_join(r->runtime, HD_DEVICE_HOST, &place, r->bytes);
    r->place = &place;
    hd_status status = host_buffer_wait_for(r, p);
    r->place = NULL;
    hdi_line_leave(r->runtime, HD_DEVICE_HOST, &place, status == HD_OK);
    return status;
}

/* Takes a block. `wait`: waits at the limit; *p gives the reason why the wait ended. */
static hd_status host_buffer_take(hd_runtime *rt, size_t bytes, bool own, bool wait, hdi_host_block *out,
                                  hdi_points *inherited, hdi_memory_wait *p)
{
    host_request r = {.runtime = rt, .bytes = bytes, .own = own, .out = out, .inherited = inherited};
    /* if the call succeeds after a wait, its failed attempts leave no message */
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    *p = hdi_memory_wait_begin(rt);
    hd_status status = host_buffer_try(&r);
    bool possible = hdi_host_pool_allows(hdi_memory_of(rt)->host_pool, bytes);
    if (status == HD_ERROR_HOST_MEMORY && possible && hdi_shrink(rt)) {
        status = host_buffer_try(&r);
    }
    if (status == HD_ERROR_HOST_MEMORY && wait && possible) {
        status = host_buffer_wait_in_line(&r, p);
    } else if (status == HD_ERROR_HOST_MEMORY && !r.tried) {
        /* sets the message */
        status = hdi_host_pool_take(hdi_memory_of(rt)->host_pool, bytes, own, out, inherited);
    }
    return hdi_attempt_result(&attempt, status);
}

/* ---- buffers ---- */

static void host_buffer_settle_block(struct hd_buffer *b, size_t bytes, const hdi_host_block *block,
                                     const hdi_buffer_ops *kind)
{
    HDI_HANDOVER_BEGIN();
    b->owner = HDI_OWNER_HOST;
    b->address = block->device;
    b->bytes = bytes;
    b->host = block->host;
    b->pinned = *block;
    b->special = block->own ? HDI_BUFFER_OWN : 0;
    b->locks = (uint64_t)1 << b->order | (block->own ? 0 : HDI_DIRECT_BIT);
    HDI_HANDOVER_END();
    hdi_buffer_set_kind(b, kind, NULL);
    atomic_store_explicit(&b->losses, 0, memory_order_release);
}

/* Gives the buffer a block. False: no host memory. */
static bool host_buffer_settle_in(struct hd_buffer *b, size_t bytes, const hdi_host_block *block,
                                  const hdi_points *inherited)
{
    hdi_uses_init(&b->uses, bytes);
    for (size_t i = 0; i < inherited->count; i++) {
        if (!hdi_uses_inherit(b->runtime, &b->uses, hdi_points_data(inherited)[i])) {
            hdi_uses_release(&b->uses);
            return false;
        }
    }
    host_buffer_settle_block(b, bytes, block, &pinned_ops);
    return true;
}

void hdi_buffer_take_host(struct hd_buffer *b, void *host, uint64_t address, uint64_t bytes, const hdi_buffer_ops *kind)
{
    const hdi_host_block block = {.host = host, .device = address, .bytes = bytes};
    hdi_uses_init(&b->uses, bytes);
    host_buffer_settle_block(b, bytes, &block, kind);
    b->special |= HDI_BUFFER_IMPORTED;
}

hd_status hdi_buffer_host_fail_take(hd_runtime *rt, uint64_t bytes, const hdi_memory_wait *p)
{
    if (p->end == HDI_MEMORY_WAIT_CLOSED) {
        return hdi_closed_meanwhile();
    }
    hdi_device *device = hdi_any_device(rt);
    int lost = rt->is_process ? HDI_GONE_CLOSED : hdi_device_lost_by(device);
    hd_error error;
    hdi_error_get(&error);
    if (error.status == HD_ERROR_DEVICE_LOST && lost) {
        return hdi_driver_failed(device, lost, "");
    }
    char text[sizeof error.message * 2], why[HDI_MEMORY_WAIT_TEXT], freed[HDI_FREED_TEXT];
    bool full = error.status == HD_ERROR_HOST_MEMORY;
    hdi_host_pool_info info;
    hdi_host_pool_get_info(hdi_memory_of(rt)->host_pool, &info);
    /* only a higher limit helps an allocation above the limit */
    bool possible = hdi_host_pool_allows(hdi_memory_of(rt)->host_pool, bytes);
    const char *frees = !possible                               ? ""
                        : info.live_count && info.outside_bytes ? "free buffers or imports, or "
                        : info.live_count                       ? "free buffers or "
                        : info.outside_bytes                    ? "free imports or "
                                                                : "";
    hdi_memory_wait_text(p, why);
    freed[0] = 0;
    if (possible) {
        hdi_freed_text(rt, HD_DEVICE_HOST, freed);
    }
    int length = snprintf(text, sizeof text, "%s", error.message);
    if (full && length > 0 && (size_t)length < sizeof error.message) {
        length += snprintf(
            text + length, sizeof text - (size_t)length, "%s%s%s; %sraise pinned_limit (%s)%s", why[0] ? "; " : "", why,
            freed, frees, HDI_BYTES(info.limit_bytes),
            p->end == HDI_MEMORY_WAIT_STILL ? "; a consumer that takes longer needs a longer memory_timeout" : "");
    }
    bool held = info.live_count || !info.outside_bytes; /* the list contains no imports */
    if (full && possible && held && length > 0 && (size_t)length < sizeof error.message) {
        hdi_buffer_of(rt)->on_full(rt, HD_DEVICE_HOST, text + length, sizeof error.message - (size_t)length);
    }
    memcpy(error.message, text, sizeof error.message);
    error.message[sizeof error.message - 1] = 0;
    return hdi_fail_error(&error);
}

/* Makes a buffer without a handle. */
static hd_status host_buffer_make(hd_runtime *rt, size_t bytes, bool own, bool wait, struct hd_buffer **out)
{
    struct hd_buffer *b = hdi_buffer_take(rt);
    if (!b) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for a handle");
    }
    hdi_host_block block;
    hdi_points inherited;
    hdi_memory_wait waited;
    hd_status status = host_buffer_take(rt, bytes, own, wait, &block, &inherited, &waited);
    if (status) {
        hdi_buffer_give(rt, b);
        if (!own) {
            hdi_host_pool_count_failure(hdi_memory_of(rt)->host_pool);
        }
        return hdi_fail_pass(hdi_buffer_host_fail_take(rt, bytes, &waited));
    }
    if (!host_buffer_settle_in(b, bytes, &block, &inherited)) {
        hdi_host_pool_give(hdi_memory_of(rt)->host_pool, &block, hdi_points_data(&inherited), inherited.count);
        hdi_buffer_give(rt, b);
        status = hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for use records");
    }
    hdi_points_release(&inherited);
    *out = b;
    return status;
}

hd_status hdi_buffer_make_host(hd_runtime *rt, size_t bytes, bool wait, struct hd_buffer **out)
{
    struct hd_buffer *b = NULL;
    hd_status status = host_buffer_make(rt, bytes, true, wait, &b);
    if (status) {
        return status;
    }
    status = hdi_buffer_settle(b, NULL, 0, bytes, HD_WRITE, hdi_option_deadline(rt->options.transfer_timeout));
    if (status) {
        hdi_attempt attempt;
        hdi_attempt_begin(&attempt);
        hdi_buffer_release_memory(b);
        hdi_buffer_give(rt, b);
        hdi_attempt_end(&attempt);
        return status;
    }
    hdi_buffer_make_live(b);
    *out = b;
    return HD_OK;
}

hd_status hd_alloc_host(hd_runtime *rt, size_t bytes, hd_buffer **out)
{
    HDI_INSIDE(rt);
    if (!out || bytes == 0) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%s", out ? "bytes is 0" : "out is null");
    }
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    struct hd_buffer *b = NULL;
    int64_t began = hdi_record_began(&rt->recorder);
    hd_status status = host_buffer_make(rt, bytes, false, true, &b);
    if (!status) {
        b->call_site = __builtin_return_address(0);
        hdi_buffer_make_live(b);
        if (hdi_records(&rt->recorder)) {
            hdi_buffer_record_allocation(b, bytes, began);
        }
        *out = hdi_buffer_handle(b);
        hdi_maintenance_look_at_pinned(rt);
    }
    return status;
}

void hdi_buffer_host_release(struct hd_buffer *b, const hdi_point *points, size_t n_points)
{
    hdi_host_pool_give(hdi_memory_of(b->runtime)->host_pool, &b->pinned, points, n_points);
}
