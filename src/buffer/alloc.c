/* alloc.c - device memory for buffers: hd_alloc and hd_free.
 *
 * The fast path touches no memory that another thread writes. hd_alloc takes a freed buffer of the
 * wanted lane and size class, with its memory, from the thread's own list of freed buffers
 * (magazine). hd_free makes the handle stale by one compare-and-swap, and puts the buffer into the
 * magazine. All other calls go to the device's arena. If the arena is out of memory, the
 * out-of-memory fallback follows (limit.c).
 *
 * Threads: any.
 * Locks: the fast path takes no lock, with one exception: if another thread holds the order lock,
 * hd_free takes it, too. The slow path takes the locks of the arena and of the list of buffers, and
 * the device's order lock, one at a time.
 * Blocking: hd_alloc may wait in the out-of-memory fallback. hd_free waits for the order lock, and
 * for a restart that restores the buffer. For a guarded buffer, hd_free also waits for the work on
 * the buffer, unless a claim is open (guard.c).
 * Always: if work still uses memory, the next owner's use record contains the points of that work.
 * All points in the record of a buffer in a magazine belong to one lane: the magazine's lane, or a
 * copy lane. So the buffer's next owner waits for no other lane of the program.
 */
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/handle.h"
#include "base/sized.h"
#include "base/wait.h"
#include "buffer/parked.h"
#include "buffer/recorded.h"
#include "buffer/buffer.h"
#include "buffer/kind.h"
#include "buffer/part.h"
#include "buffer/piece.h"
#include "buffer/limit.h"
#include "buffer/line.h"
#include "buffer/reclaim.h"
#include "engine/engine.h"
#include "memory/arena.h"

static void alloc_release_items(void *context, int device, hdi_item *items);

#define REFILL_BYTES ((size_t)64 << 10) /* the bytes that an empty magazine gets at once */
#define REFILL_MOST 8
/* if magazines hold more than 1/RELIEVE_SHARE of the mapped memory, they are emptied before more
 * memory is mapped */
#define RELIEVE_SHARE 128

static struct hd_buffer *alloc_buffer_of(hdi_item *item)
{
    return (struct hd_buffer *)((char *)item - offsetof(struct hd_buffer, item));
}

/* ---- the fast path ---- */

/* The slow part of alloc_magazine_lane, for a record with uses by other lanes or uses of parts.
 * Reduces the record to its unfinished uses. No other thread uses the record any more. */
static uint32_t __attribute__((noinline)) alloc_settle_uses(struct hd_buffer *b)
{
    hd_runtime *rt = b->runtime;
    hdi_point last = {0, 0};
    /* The function takes the order lock because records of several segments form a ring
     * (uses.h). */
    hdi_buffer_uses_lock(b);
    bool one_lane =
        !hdi_uses_is_long(&b->uses, 0, b->bytes) && (hdi_uses_of_lane(&b->uses, b->item.lane, &last) ||
                                                     hdi_uses_pending(rt, &b->uses, 0, b->bytes, true, &last, 1) <= 1);
    if (one_lane) {
        hdi_uses_renew(&b->uses, b->bytes, last);
    }
    hdi_buffer_uses_unlock(b);
    if (!one_lane) {
        return HDI_NO_LANE;
    }
    uint32_t own_lane = b->item.lane;
    if (last.position == 0 || last.lane == own_lane) {
        return own_lane;
    }
    if (last.lane / HDI_LANES_MAX != (uint32_t)b->owner) {
        return HDI_NO_LANE;
    }
    if (hdi_lane_at(rt->devices[b->owner], last.lane % HDI_LANES_MAX)->is_copy) {
        /* Only a copy lane still uses the memory. The buffer goes into the magazine of its own
         * lane, since no program allocates in a copy lane. Its next owner waits for the copy, which
         * ends soon unless it waits for work of the program (parked.h). */
        return hdi_point_is_parked(rt, last) ? HDI_NO_LANE : own_lane;
    }
    return last.lane; /* the lane that still uses the memory */
}

/* The lane whose magazine gets the buffer: the lane of its allocation, or another lane if only that
 * lane's work still uses the buffer. HDI_NO_LANE: no magazine gets the buffer, since several lanes
 * or another device use it, or since its record is too long. */
static inline uint32_t alloc_magazine_lane(struct hd_buffer *b)
{
    const hdi_segment *s = &b->uses.whole;
    uint32_t own_lane = b->item.lane;
    bool only_own_lane = (b->uses.parts == NULL) & (s->room == 0) &
                         ((s->writer.position == 0) | (s->writer.lane == own_lane)) &
                         ((s->n_readers == 0) | ((s->n_readers == 1) & (s->readers.few[0].lane == own_lane)));
    return __builtin_expect(only_own_lane, 1) ? own_lane : alloc_settle_uses(b);
}

/* The record for a new owner. At most one lane used the memory before. */
static inline void alloc_renew_uses(hdi_uses *u, uint64_t bytes)
{
    hdi_segment *s = &u->whole;
    hdi_point last = s->writer;
    if (s->n_readers && s->readers.few[0].position > last.position) {
        last = s->readers.few[0];
    }
    s->low = 0;
    s->high = bytes;
    s->writer = (hdi_point){0, 0};
    s->failed = false;
    s->readers.few[0] = last;
    s->n_readers = last.position != 0;
}

/* The length of a large block: the requested bytes, rounded up to the unit of block sizes. */
static inline size_t alloc_block_bytes(size_t bytes)
{
    size_t over = bytes % HDI_BLOCKS_GRANULE;
    return over == 0 || bytes > SIZE_MAX - HDI_BLOCKS_GRANULE ? bytes : bytes + (HDI_BLOCKS_GRANULE - over);
}

static inline struct hd_buffer *alloc_take_cached(hd_lane *lane, size_t bytes, const char *label, const void *call_site)
{
    hd_runtime *rt = lane->device->runtime;
    hdi_thread_cache *cache = hdi_thread_cache_own_first;
    if (__builtin_expect(cache == NULL || cache->runtime_id != rt->id, 0)) {
        return NULL;
    }
    hdi_thread_cache_enter(cache);
    hdi_item *item = bytes <= HDI_SMALL_BYTES
                         ? hdi_thread_cache_take(cache, lane->global, hdi_class_of(bytes))
                         : hdi_thread_cache_take_large(cache, lane->global, alloc_block_bytes(bytes));
    if (__builtin_expect(item == NULL, 0)) {
        hdi_thread_cache_leave(cache);
        return NULL;
    }
    struct hd_buffer *b = alloc_buffer_of(item);
    alloc_renew_uses(&b->uses, bytes);
    HDI_HANDOVER_BEGIN();
    b->bytes = bytes;
    HDI_HANDOVER_END();
    b->call_site = call_site;
    hdi_buffer_label(b, label);
    b->maker = cache->number;
    hdi_thread_cache_counts *counts = &cache->counts[lane->device->index];
    hdi_count(&counts->allocations, 1);
    hdi_count(&counts->from_magazine, 1);
    hdi_count(&counts->allocated_bytes, bytes);
    /* The buffer becomes live before the thread leaves its cache. A loss first drains the magazines
     * and then marks all live buffers of the device, so it marks this buffer. */
    hdi_self_set(&b->self, hdi_self_get(&b->self) & ~HDI_SELF_DEAD);
    hdi_thread_cache_leave(cache);
    if (hdi_records(&rt->recorder)) {
        hdi_buffer_record_allocation(b, bytes, 0);
    }
    return b;
}

/* Puts a freed buffer into the thread's magazine. False: the caller frees it in another way. */
static inline bool alloc_put_cached(struct hd_buffer *b)
{
    hd_runtime *rt = b->runtime;
    hdi_thread_cache *cache = hdi_thread_cache_own_first;
    /* The analyzer does not see that the first condition excludes a null cache.
     * NOLINTNEXTLINE(clang-analyzer-core.NullDereference) */
    if (__builtin_expect((b->special != 0) | (cache == NULL), 0) || __builtin_expect(cache->runtime_id != rt->id, 0)) {
        return false;
    }
    uint32_t lane = alloc_magazine_lane(b);
    /* Generation 0: every handle of this structure was given out once. */
    if (__builtin_expect(
            (lane / HDI_LANES_MAX != (uint32_t)b->owner) | (hdi_self_generation(hdi_self_get(&b->self)) == 0), 0)) {
        return false;
    }
    hdi_device *device = rt->devices[b->owner];
    hdi_thread_cache_enter(cache);
    b->item.lane = lane;
    /* This thread loads `losses` inside its cache. A loss raises `losses` before it visits the
     * cache to drain it. So a buffer that the loss made useless enters no magazine after the
     * drain. */
    bool put = atomic_load_explicit(&device->losses, memory_order_acquire) == hdi_buffer_losses(b) &&
               (__builtin_expect(b->item.class < HDI_CLASS_LARGE, 1) ? hdi_thread_cache_put(cache, &b->item)
                                                                     : hdi_thread_cache_put_large(cache, &b->item));
    if (put) {
        hdi_thread_cache_counts *counts = &cache->counts[b->owner];
        hdi_count(&counts->frees, 1);
        hdi_count(&counts->freed_bytes, b->bytes);
        hdi_count(&counts->frees_elsewhere, b->maker != cache->number);
    }
    hdi_thread_cache_leave(cache);
    return put;
}

/* ---- taking memory ---- */

void hdi_buffer_count_allocation(hd_runtime *rt, int device, uint64_t bytes, struct hd_buffer *b)
{
    hdi_thread_cache *cache = hdi_thread_cache_own(rt);
    if (cache) {
        hdi_count(&cache->counts[device].allocations, 1);
        hdi_count(&cache->counts[device].allocated_bytes, bytes);
        b->maker = cache->number;
    } else {
        hdi_thread_caches_count_apart(rt, device, bytes, true);
    }
}

static void alloc_count_free(hd_runtime *rt, const struct hd_buffer *b)
{
    hdi_thread_cache *cache = hdi_thread_cache_own(rt);
    if (cache) {
        hdi_count(&cache->counts[b->owner].frees, 1);
        hdi_count(&cache->counts[b->owner].freed_bytes, b->bytes);
        hdi_count(&cache->counts[b->owner].frees_elsewhere, b->maker != cache->number);
    } else {
        hdi_thread_caches_count_apart(rt, b->owner, b->bytes, false);
    }
}

/* Gives the buffer the memory at `address`. The caller still owns `inherited`. False: no host
 * memory. */
static bool alloc_settle_in(struct hd_buffer *b, hd_lane *lane, size_t bytes, uint32_t class, hdcu_deviceptr address,
                            const hdi_points *inherited, uint64_t losses)
{
    hdi_device *device = lane->device;
    hdi_uses_init(&b->uses, bytes);
    const hdi_point *points = hdi_points_data(inherited);
    for (size_t i = 0; i < inherited->count; i++) {
        if (!hdi_uses_inherit(device->runtime, &b->uses, points[i])) {
            hdi_uses_release(&b->uses);
            return false;
        }
    }
    HDI_HANDOVER_BEGIN();
    b->owner = device->index;
    b->order = (uint8_t)device->index;
    b->locks = (uint64_t)1 << device->index;
    b->address = address;
    b->block = address;
    b->bytes = bytes;
    b->host = NULL;
    HDI_HANDOVER_END();
    b->item.class = class;
    b->item.bytes = class == HDI_CLASS_LARGE ? alloc_block_bytes(bytes) : hdi_class_bytes(class);
    b->item.lane = lane->global;
    atomic_store_explicit(&b->losses, losses, memory_order_release);
    return true;
}

/* The lane that an arena block is for, and the block that it got. */
typedef struct placing {
    hd_lane *lane;
    hdcu_deviceptr address;
    hdi_points inherited;
} placing;

/* Implements hdi_take. */
static hd_status alloc_take_block(hdi_device *device, size_t bytes, void *context)
{
    placing *to = context;
    int64_t began = hdi_record_began(&device->runtime->recorder);
    size_t mapped = began ? hdi_arena_mapped_bytes(device->arena) : 0;
    hd_status status = hdi_arena_alloc(device->arena, to->lane->global, bytes, &to->address, &to->inherited);
    if (began && !status) {
        hdi_buffer_record_mapping(device, bytes, began, mapped);
    }
    return status;
}

hd_status hdi_buffer_place_plain(struct hd_buffer *b, hd_lane *lane, size_t bytes)
{
    hdi_device *device = lane->device;
    placing to = {.lane = lane};
    uint64_t losses = atomic_load_explicit(&device->losses, memory_order_acquire);
    uint32_t class = bytes <= HDI_SMALL_BYTES ? hdi_class_of(bytes) : HDI_CLASS_LARGE;
    size_t taken = class == HDI_CLASS_LARGE ? bytes : hdi_class_bytes(class);
    hd_status status = hdi_take_or_wait(device, taken, losses, alloc_take_block, &to);
    if (status == HD_ERROR_DEVICE_LOST && device->runtime->is_process) {
        /* the message of the device's loss gives the reason */
        return hdi_driver_failed(device, HDI_GONE_CLOSED, "");
    }
    if (status) {
        return status;
    }
    if (atomic_load_explicit(&device->losses, memory_order_acquire) != losses) {
        /* The device was lost during the allocation, and perhaps restarted. The arena ignores a
         * block that it no longer owns. */
        hdi_arena_free(device->arena, to.address, hdi_points_data(&to.inherited), to.inherited.count);
        hdi_points_release(&to.inherited);
        int lost = device->runtime->is_process ? HDI_GONE_CLOSED : hdi_device_lost_by(device);
        return hdi_driver_failed(device, lost, "");
    }
    if (!alloc_settle_in(b, lane, bytes, class, to.address, &to.inherited, losses)) {
        hdi_arena_free(device->arena, to.address, hdi_points_data(&to.inherited), to.inherited.count);
        status = hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for use records");
    }
    hdi_points_release(&to.inherited);
    return status;
}

hd_status hdi_buffer_borrow(struct hd_buffer *b, hdi_device *device, uint64_t address, uint64_t bytes, uint64_t losses,
                            unsigned special)
{
    const hdi_points none = {0};
    b->special |= (uint8_t)special;
    return alloc_settle_in(b, device->lane_on, bytes, HDI_CLASS_LARGE, address, &none, losses)
               ? HD_OK
               : hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for use records");
}

/* Puts more blocks of the class into the magazine that was empty, if the arena has some at hand. */
static void alloc_refill(hd_lane *lane, const struct hd_buffer *like)
{
    hdi_device *device = lane->device;
    hd_runtime *rt = device->runtime;
    hdi_thread_cache *cache = hdi_thread_cache_own(rt);
    uint32_t class = like->item.class;
    size_t block = hdi_class_bytes(class);
    size_t count = REFILL_BYTES / block < REFILL_MOST ? REFILL_BYTES / block : REFILL_MOST;
    if (!cache || hdi_buffer_of(rt)->guarded || count < 2 || !hdi_line_is_empty(hdi_line_of(rt, device->index))) {
        return;
    }
    hdcu_deviceptr address[REFILL_MOST];
    hdi_points inherited[REFILL_MOST];
    uint64_t losses = hdi_buffer_losses(like);
    size_t got = hdi_arena_alloc_more(device->arena, lane->global, block, count - 1, address, inherited);
    for (size_t i = 0; i < got; i++) {
        struct hd_buffer *b = hdi_buffer_take(rt);
        bool kept = b && alloc_settle_in(b, lane, block, class, address[i], &inherited[i], losses);
        if (kept) {
            hdi_uses_settle(rt, &b->uses, 0, b->bytes);
            hdi_thread_cache_enter(cache);
            kept = alloc_magazine_lane(b) == lane->global &&
                   atomic_load_explicit(&device->losses, memory_order_acquire) == losses &&
                   hdi_thread_cache_put(cache, &b->item);
            hdi_thread_cache_leave(cache);
            if (!kept) {
                hdi_record_release(b);
            }
        }
        if (!kept) {
            hdi_arena_free(device->arena, address[i], hdi_points_data(&inherited[i]), inherited[i].count);
            if (b) {
                hdi_buffer_give(rt, b);
            }
        }
        hdi_points_release(&inherited[i]);
    }
}

/* Gives the large blocks that left this thread's cache (`leaving`) back to the arena, so that
 * allocations can take them. */
static void alloc_flush_leaving(hd_runtime *rt)
{
    hdi_thread_cache *cache = hdi_thread_cache_own(rt);
    if (!cache) {
        return;
    }
    hdi_thread_cache_enter(cache);
    hdi_item *items = hdi_thread_cache_take_leaving(cache);
    hdi_thread_cache_leave(cache);
    alloc_release_items(rt, -1, items);
}

hd_status hdi_buffer_place(struct hd_buffer *b, hd_lane *lane, size_t bytes)
{
    const hdi_buffer_ops *guarded = hdi_buffer_of(lane->device->runtime)->guarded;
    return guarded ? guarded->place(b, lane, bytes) : hdi_buffer_place_plain(b, lane, bytes);
}

/* Gives the buffer its memory and its kind's own state. On failure the caller gives the structure
 * back. */
static hd_status alloc_equip(struct hd_buffer *b, hd_lane *lane, size_t bytes, const hdi_buffer_ops *kind)
{
    hd_status status = hdi_buffer_place(b, lane, bytes);
    if (!status && kind) {
        status = kind->create(b);
        if (status) {
            hdi_attempt attempt;
            hdi_attempt_begin(&attempt);
            hdi_buffer_release_memory(b);
            hdi_attempt_end(&attempt);
        }
    }
    return status;
}

hd_status __attribute__((noinline)) hdi_alloc_of_kind(hd_lane *handle, size_t bytes, const hdi_buffer_ops *kind,
                                                      const char *label, const void *call_site, hd_buffer **out)
{
    hd_lane *lane = hdi_lane_from_handle(handle);
    if (!lane) {
        return hdi_lane_refused(handle);
    }
    if (!out || bytes == 0) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%s", out ? "bytes is 0" : "out is null");
    }
    hdi_device *device = lane->device;
    hd_runtime *rt = device->runtime;
    if (hdi_device_lost(device)) {
        return hdi_lane_refuses(lane);
    }
    int64_t begin = hdi_clock_ns();
    alloc_flush_leaving(rt);
    hdi_reclaim_early(rt, device, bytes, false);
    struct hd_buffer *b = hdi_buffer_take(rt);
    if (!b) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for a handle");
    }
    hd_status status = alloc_equip(b, lane, bytes, kind);
    if (status) {
        hdi_buffer_give(rt, b);
        if (hdi_records(&rt->recorder)) {
            hdi_buffer_record_refusal(device, bytes, begin);
        }
        hdi_counts_add(&device->memory->failures, 1);
    } else {
        b->call_site = call_site;
        hdi_buffer_label(b, label);
        hdi_buffer_count_allocation(rt, device->index, bytes, b);
        hdi_buffer_make_live(b);
        if (hdi_records(&rt->recorder)) {
            hdi_buffer_record_allocation(b, bytes, begin);
        }
        *out = hdi_buffer_handle(b);
        if (b->item.class != HDI_CLASS_LARGE) {
            alloc_refill(lane, b);
        }
        hdi_maintenance_look(rt, device);
    }
    hdi_counts_raise(&device->memory->longest_pause_ns, (uint64_t)(hdi_clock_ns() - begin));
    return status;
}

hd_status hd_alloc(hd_lane *handle, size_t bytes, hd_buffer **out)
{
    HDI_INSIDE_BRIEFLY_UNNAMED(hdi_lane_runtime(handle));
    hd_lane *lane = hdi_lane_from_handle(handle);
    if (__builtin_expect((lane != NULL) & (out != NULL) & (bytes != 0), 1)) {
        struct hd_buffer *b = alloc_take_cached(lane, bytes, NULL, __builtin_return_address(0));
        if (__builtin_expect(b != NULL, 1)) {
            *out = hdi_buffer_handle(b);
            return HD_OK;
        }
    }
    HDI_CALL(); /* notes the call only here, since the fast path cannot fail */
    return hdi_alloc_of_kind(handle, bytes, NULL, NULL, __builtin_return_address(0), out);
}

hd_status hdi_alloc_with(hd_lane *handle, size_t bytes, const hd_alloc_options *options, const void *call_site,
                         hd_buffer **out)
{
    hd_alloc_options room;
    if (options && !(options = HDI_SIZED_IN(hd_alloc_options, options, &room))) {
        return HD_ERROR_ARGUMENT;
    }
    unsigned flags = options ? options->flags : 0;
    const unsigned known = HD_ALLOC_KEEP | HD_ALLOC_DEDICATED;
    if (flags & ~known) {
        return hdi_fail(HD_ERROR_ARGUMENT, "unknown flags 0x%x", flags & ~known);
    }
    const char *label = options ? options->label : NULL;
    if (flags & HD_ALLOC_DEDICATED) {
        return hdi_piece_alloc(handle, bytes, flags, label, call_site, out);
    }
    hd_lane *lane = hdi_lane_from_handle(handle);
    if (!flags && lane && out && bytes != 0) {
        struct hd_buffer *b = alloc_take_cached(lane, bytes, label, call_site);
        if (b) {
            *out = hdi_buffer_handle(b);
            return HD_OK;
        }
    }
    const hdi_buffer_ops *kind = flags && lane ? hdi_buffer_of(lane->runtime)->kept : NULL;
    return hdi_alloc_of_kind(handle, bytes, kind, label, call_site, out);
}

hd_status hd_alloc_with(hd_lane *handle, size_t bytes, const hd_alloc_options *options, hd_buffer **out)
{
    HDI_INSIDE_BRIEFLY(hdi_lane_runtime(handle));
    return hdi_alloc_with(handle, bytes, options, __builtin_return_address(0), out);
}

/* ---- giving memory back ---- */

/* Collects the points of unfinished work on a buffer without a handle. If the record is long, the
 * function first detaches it. So it does not hold the lock for long. */
static size_t alloc_pending(struct hd_buffer *b, hdi_point *points, size_t room)
{
    hdi_buffer_uses_lock(b);
    bool detached = hdi_uses_is_long(&b->uses, 0, b->bytes);
    if (detached) {
        b->uses.parts->detached = true;
        hdi_buffer_uses_unlock(b);
    }
    size_t n = hdi_uses_pending(b->runtime, &b->uses, 0, b->bytes, true, points, room);
    if (detached) {
        hdi_lock_take(hdi_order_lock(b->runtime, b->order));
        b->uses.parts->detached = false;
    }
    hdi_buffer_uses_unlock(b);
    return n;
}

size_t hdi_buffer_pending(struct hd_buffer *b, hdi_point *on_stack, hdi_point **points)
{
    hd_runtime *rt = b->runtime;
    size_t room = HDI_POINTS_ON_STACK;
    *points = on_stack;
    size_t n = alloc_pending(b, on_stack, room);
    if (n > room) {
        /* This is enough room, since a buffer without a handle gets no new uses. `n` may count a
         * lane twice. */
        room = n;
        hdi_point *many = malloc(room * sizeof *many);
        if (many) {
            *points = many;
            n = alloc_pending(b, many, room);
        } else {
            /* There is no memory for the list of unfinished uses. So this loop waits until no use
             * is unfinished. */
            while ((n = alloc_pending(b, on_stack, HDI_POINTS_ON_STACK)) > 0) {
                hdi_wait_position(rt, on_stack[0].lane, on_stack[0].position, INT64_MAX);
            }
        }
    }
    return n;
}

void hdi_buffer_release_memory(struct hd_buffer *b)
{
    hdi_point on_stack[HDI_POINTS_ON_STACK];
    hdi_point *points = on_stack;
    size_t n = hdi_buffer_is_borrowed(b) ? 0 : hdi_buffer_pending(b, on_stack, &points);
    if (hdi_buffer_is_borrowed(b)) {
        /* the owner of the memory gives it back */
    } else if (hdi_buffer_is_imported(b)) {
        b->kind->leave(b, points, n);
    } else if (b->owner == HDI_OWNER_HOST) {
        hdi_buffer_host_release(b, points, n);
    } else if (hdi_buffer_of_now(b)) {
        hdi_arena_free(b->runtime->devices[b->owner]->arena, b->block, points, n);
    }
    if (points != on_stack) {
        free(points);
    }
    if (b->kind && b->kind->release) {
        b->kind->release(b);
    }
    hdi_record_release(b);
}

void hdi_buffer_end(struct hd_buffer *b)
{
    hd_runtime *rt = b->runtime;
    if (!(b->special & HDI_BUFFER_GUARDED) || hdi_buffer_of(rt)->guarded->check(b)) {
        hdi_buffer_release_memory(b);
        hdi_buffer_give(rt, b);
    }
}

bool hdi_buffers_relieve(void *context)
{
    hdi_device *device = context;
    hd_runtime *rt = device->runtime;
    if (hdi_thread_caches_cached(rt, device->index) > hdi_arena_mapped_bytes(device->arena) / RELIEVE_SHARE) {
        hdi_counts_add(&device->memory->drains, 1);
        hdi_thread_caches_drain(rt, device->index);
        return true;
    }
    return hdi_thread_caches_drain_large(rt, device->index);
}

static void alloc_release_items(void *context, int device, hdi_item *items)
{
    hd_runtime *rt = context;
    (void)device;
    while (items) {
        hdi_item *next = items->next;
        struct hd_buffer *b = alloc_buffer_of(items);
        hdi_buffer_release_memory(b);
        hdi_buffer_give(rt, b);
        items = next;
    }
}

static hd_status alloc_caches_create(hd_runtime *rt)
{
    const hdi_thread_caches_config config = {.release = alloc_release_items, .context = rt};
    return hdi_thread_caches_create(rt, &config);
}

const hdi_lifetime hdi_thread_caches_lifetime = {.create = alloc_caches_create, .release = hdi_thread_caches_destroy};

/* Gives half of the buffer's magazine back to make room. Then tries again to put the buffer into
 * the magazine. */
static bool alloc_put_into_full(struct hd_buffer *b)
{
    hd_runtime *rt = b->runtime;
    hdi_thread_cache *cache = hdi_thread_cache_own(rt);
    if (!cache || b->special || b->item.class >= HDI_CLASS_LARGE) {
        return false;
    }
    uint32_t lane = alloc_magazine_lane(b);
    if (lane / HDI_LANES_MAX != (uint32_t)b->owner) {
        return false;
    }
    hdi_thread_cache_enter(cache);
    hdi_item *half = hdi_thread_cache_take_half(cache, lane, b->item.class);
    hdi_thread_cache_leave(cache);
    alloc_release_items(rt, b->owner, half);
    return alloc_put_cached(b);
}

/* Ends a buffer whose handle this thread made stale. */
static void __attribute__((noinline)) alloc_end_buffer(struct hd_buffer *b)
{
    hd_runtime *rt = b->runtime;
    if (alloc_put_into_full(b)) {
        return;
    }
    /* make room for large blocks, since the blocks in `leaving` count against the cache's limit */
    alloc_flush_leaving(rt);
    bool on_device = hdi_buffer_is_of_arena(b) || hdi_buffer_is_piece(b);
    if (on_device) {
        alloc_count_free(rt, b);
    }
    if (hdi_hold_keeps(b)) {
        return;
    }
    hdi_device *device = on_device ? rt->devices[b->owner] : NULL;
    hdi_buffer_end(b);
    if (on_device) {
        hdi_maintenance_look(rt, device);
    }
}

/* Another thread may submit work on the buffer, and may have found the handle good before. If that
 * thread holds the order lock, this function waits for it. Otherwise that thread takes the lock
 * later, checks the handle again (hdi_use.word), and refuses the work. */
static inline void alloc_await_submitters(struct hd_buffer *b)
{
    hdi_lock *order = hdi_order_lock(b->runtime, b->order);
    if (__builtin_expect(hdi_lock_is_taken(order), 0)) {
        hdi_lock_take(order);
        hdi_lock_release(order);
    }
}

/* The part of hd_free for a handle that does not belong to a live buffer. */
static hd_status __attribute__((noinline))
alloc_free_odd(struct hd_buffer *b, const hd_buffer *handle, const void *call_site)
{
    for (;;) {
        uint64_t word = hdi_self_get(&b->self);
        if ((word & ~HDI_SELF_LOST) != hdi_self_word(handle)) {
            const struct hd_buffer *stale = hdi_buffer_from_stale_handle(handle);
            const hdi_buffer_ops *guarded = stale ? hdi_buffer_of(stale->runtime)->guarded : NULL;
            hd_status status = guarded ? guarded->refuse_free(handle, call_site) : HD_OK;
            return status ? status : hdi_handle_refused(handle, "buffer", "it was freed, or its runtime closed");
        }
        hdi_taken taken = HDI_TAKEN_STALE;
        if (word & HDI_SELF_LOST) {
            taken = hdi_buffer_take_lost_handle(b, handle);
        } else if (hdi_self_change(&b->self, word, hdi_self_after(b, word))) {
            taken = HDI_TAKEN;
        }
        if (taken == HDI_TAKEN) {
            alloc_await_submitters(b);
            if (hdi_records(&b->runtime->recorder)) {
                hdi_buffer_record_free(b);
            }
            alloc_end_buffer(b);
            return HD_OK;
        }
        if (taken == HDI_TAKEN_NOT_NOW) {
            /* the device restarts and restores this buffer */
            hdi_mutex_lock(&b->runtime->restarting);
            hdi_mutex_unlock(&b->runtime->restarting);
        }
    }
}

/* Frees a buffer. `call`: the name of the public call; NULL: none. This function notes the name
 * only once the call may fail. */
static inline hd_status alloc_free_buffer(struct hd_buffer *b, hd_buffer *handle, const char *call,
                                          const void *call_site)
{
    uint64_t word = hdi_self_word(handle);
    /* A plain load checks the handle first. A compare-and-swap writes even if it fails, and a bad
     * handle may lead to read-only memory. If several threads free the same handle, exactly one of
     * them succeeds. */
    if (__builtin_expect(hdi_self_get(&b->self) != word, 0) ||
        __builtin_expect(!hdi_self_change(&b->self, word, hdi_self_after(b, word)), 0)) {
        if (call) {
            hdi_call_continue(call);
        }
        return alloc_free_odd(b, handle, call_site);
    }
    alloc_await_submitters(b);
    if (hdi_records(&b->runtime->recorder)) {
        hdi_buffer_record_free(b);
    }
    if (__builtin_expect(!alloc_put_cached(b), 0)) {
        if (call) {
            hdi_call_continue(call); /* for findings of memory_debug */
        }
        alloc_end_buffer(b);
    }
    return HD_OK;
}

void hdi_buffer_end_borrowed(hd_buffer *handle)
{
    struct hd_buffer *b = hdi_self_object(handle);
    bool ours = false;
    for (uint64_t word; !ours && ((word = hdi_self_get(&b->self)) & ~HDI_SELF_LOST) == hdi_self_word(handle);) {
        ours = word & HDI_SELF_LOST ? hdi_buffer_take_lost_handle(b, handle) == HDI_TAKEN
                                    : hdi_self_change(&b->self, word, hdi_self_after(b, word));
    }
    if (!ours) {
        return; /* hd_close ended the handle */
    }
    alloc_await_submitters(b);
    hdi_point on_stack[HDI_POINTS_ON_STACK];
    hdi_point *points;
    size_t n = hdi_buffer_pending(b, on_stack, &points);
    for (size_t i = 0; i < n; i++) {
        hdi_wait_position(b->runtime, points[i].lane, points[i].position, INT64_MAX);
    }
    if (points != on_stack) {
        free(points);
    }
    alloc_end_buffer(b);
}

void hdi_free(hd_buffer *handle)
{
    if (handle) {
        alloc_free_buffer(hdi_self_object(handle), handle, NULL, __builtin_return_address(0));
    }
}

hd_status hd_free(hd_buffer *handle)
{
    struct hd_buffer *b = hdi_self_object(handle);
    if (!b) {
        return HD_OK;
    }
    HDI_INSIDE_BRIEFLY_UNNAMED(b->runtime);
    return alloc_free_buffer(b, handle, "hd_free", __builtin_return_address(0));
}
