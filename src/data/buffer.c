/* buffer.c - allocation, free and host access of tracked buffers.
 *
 * Threads: any. Locks: the pool's mutex for handing out structures and for the list of pinned memory that is still in use; then the order
 * lock of the owner; both, in this order, only where a loss marks all buffers of a device.
 * Always: structures live in slabs until hd_close, so a stale handle can be recognised; memory that work still uses goes to the
 * arena with the marks of that work, pinned memory waits in a list until the work is done.
 */
#include "data/buffer.h"

#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/error.h"
#include "engine/engine.h"
#include "memory/arena.h"
#include "memory/share.h"

#define SLAB_BUFFERS 256
#define MARKS_ON_STACK 64

/* Pinned memory whose buffer was freed while work used it. */
typedef struct leftover {
    struct leftover *next;
    hdi_pinned pinned;
    size_t n_marks;
    hdi_mark marks[];
} leftover;

typedef struct slab {
    struct slab *next;
    struct hd_buffer buffers[SLAB_BUFFERS];
} slab;

struct hdi_buffers {
    pthread_mutex_t lock;
    slab *slabs;
    struct hd_buffer *free_list;
    leftover *leftovers;
    uint32_t made; /* spreads pinned buffers over the order locks */
};

hd_status hdi_buffers_create(hd_runtime *rt)
{
    rt->buffers = calloc(1, sizeof *rt->buffers);
    if (!rt->buffers) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "hd_open: no memory");
    }
    pthread_mutex_init(&rt->buffers->lock, NULL);
    return HD_OK;
}

static struct hd_buffer *take_structure(hd_runtime *rt)
{
    struct hdi_buffers *pool = rt->buffers;
    pthread_mutex_lock(&pool->lock);
    if (!pool->free_list) {
        slab *s = calloc(1, sizeof *s);
        if (s) {
            s->next = pool->slabs;
            pool->slabs = s;
            for (int i = SLAB_BUFFERS - 1; i >= 0; i--) {
                hdi_handle_set(&s->buffers[i].head, HDI_BUFFER_MAGIC, 0, 0);
                s->buffers[i].next = pool->free_list;
                pool->free_list = &s->buffers[i];
            }
        }
    }
    struct hd_buffer *b = pool->free_list;
    if (b) {
        pool->free_list = b->next;
        b->next = NULL;
        b->runtime = rt;
        b->order = (uint8_t)(HDI_DEVICES_MAX + pool->made++ % HDI_HOST_LOCKS);
    }
    pthread_mutex_unlock(&pool->lock);
    return b;
}

static void give_structure(hd_runtime *rt, struct hd_buffer *b)
{
    pthread_mutex_lock(&rt->buffers->lock);
    b->next = rt->buffers->free_list;
    rt->buffers->free_list = b;
    pthread_mutex_unlock(&rt->buffers->lock);
}

/* Whether the memory was taken since the device was last lost: else it is gone, and its address may be somebody else's. */
static bool is_of_now(const struct hd_buffer *b)
{
    const hdi_device *device = b->runtime->devices[b->owner];
    return atomic_load_explicit(&device->losses, memory_order_acquire) == hdi_buffer_losses(b);
}

static void make_live(struct hd_buffer *b)
{
    pthread_mutex_lock(&b->runtime->buffers->lock);
    /* Either this sees that the device is lost, or hdi_buffers_lose sees the buffer. */
    bool lost = b->owner != HDI_OWNER_HOST && (hdi_device_lost(b->runtime->devices[b->owner]) || !is_of_now(b));
    hdi_handle_set(&b->head, HDI_BUFFER_MAGIC, hdi_handle_head_generation(&b->head),
                   lost ? HDI_HANDLE_LOST : HDI_HANDLE_LIVE);
    pthread_mutex_unlock(&b->runtime->buffers->lock);
}

/* ---- device memory ---- */

static hd_status take_memory(hdi_device *device, hd_lane *lane, size_t bytes, hdcu_deviceptr *address,
                             hdi_marks *inherited)
{
    hd_status status = hdi_arena_alloc(device->arena, lane->global, bytes, address, inherited);
    if (status == HD_ERROR_MEMORY && device->runtime->is_process && hdi_shares_reap(device->runtime)) {
        /* A peer has let go of memory that this device had before it was restarted. */
        status = hdi_arena_alloc(device->arena, lane->global, bytes, address, inherited);
    }
    return status;
}

hd_status hdi_buffer_place(struct hd_buffer *b, hd_lane *lane, size_t bytes)
{
    hdi_device *device = lane->device;
    hdi_marks inherited = {0};
    hdcu_deviceptr address = 0;
    uint64_t losses = atomic_load_explicit(&device->losses, memory_order_acquire);
    hd_status status = take_memory(device, lane, bytes, &address, &inherited);
    if (status == HD_ERROR_DEVICE_LOST && device->runtime->is_process) {
        return hdi_driver_failed(device, HDI_GONE_CLOSED, "", "hd_alloc"); /* says why */
    }
    if (status) {
        return status;
    }
    hdi_uses_init(&b->uses, bytes);
    const hdi_mark *marks = hdi_marks_data(&inherited);
    for (size_t i = 0; i < inherited.count && !status; i++) {
        if (!hdi_uses_inherit(device->runtime, &b->uses, marks[i])) {
            hdi_arena_free(device->arena, address, marks, inherited.count);
            hdi_uses_release(&b->uses);
            status = hdi_fail(HD_ERROR_HOST_MEMORY, "hd_alloc: no memory for use records");
        }
    }
    hdi_marks_release(&inherited);
    if (!status) {
        b->owner = device->index;
        b->order = (uint8_t)device->index;
        b->address = address;
        b->bytes = bytes;
        b->host = NULL;
        atomic_store_explicit(&b->losses, losses, memory_order_release);
    }
    return status;
}

static void release_memory(struct hd_buffer *b);

static hd_status alloc(hd_lane *handle, size_t bytes, unsigned flags, hd_buffer **out)
{
    hd_lane *lane = hdi_lane_from_handle(handle);
    if (!lane) {
        return hdi_fail(HD_ERROR_HANDLE, "hd_alloc: not a lane");
    }
    if (!out || bytes == 0) {
        return hdi_fail(HD_ERROR_ARGUMENT, "hd_alloc: %s", out ? "bytes is 0" : "out is null");
    }
    hdi_device *device = lane->device;
    hd_runtime *rt = device->runtime;
    if (hdi_device_lost(device)) {
        return hdi_lane_refuses(lane, "hd_alloc");
    }
    struct hd_buffer *b = take_structure(rt);
    if (!b) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "hd_alloc: no memory for a handle");
    }
    hd_status status = hdi_buffer_place(b, lane, bytes);
    if (!status && (flags & HD_ALLOC_KEEP)) {
        status = hdi_kept_create(b);
        if (status) {
            hd_error cause;
            hdi_error_save(&cause);
            release_memory(b);
            hdi_error_restore(&cause);
        }
    }
    if (status) {
        give_structure(rt, b);
        return status;
    }
    atomic_fetch_add_explicit(&device->buffers_live, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&device->bytes_live, bytes, memory_order_relaxed);
    make_live(b);
    *out = hdi_buffer_handle(b);
    return HD_OK;
}

hd_status hd_alloc(hd_lane *lane, size_t bytes, hd_buffer **out)
{
    return alloc(lane, bytes, 0, out);
}

hd_status hd_alloc_with(hd_lane *lane, size_t bytes, const hd_alloc_options *options, hd_buffer **out)
{
    if (options && options->size < sizeof *options) {
        return hdi_fail(HD_ERROR_ARGUMENT, "hd_alloc_with: options.size is %zu, expected %zu", options->size,
                        sizeof *options);
    }
    unsigned flags = options ? options->flags : 0;
    if (flags & ~(unsigned)HD_ALLOC_KEEP) {
        return hdi_fail(HD_ERROR_ARGUMENT, "hd_alloc_with: unknown flags 0x%x", flags & ~(unsigned)HD_ALLOC_KEEP);
    }
    return alloc(lane, bytes, flags, out);
}

/* ---- pinned host memory ---- */

hdi_device *hdi_any_device(hd_runtime *rt)
{
    for (int i = 0; i < rt->n_devices; i++) {
        if (!hdi_device_lost(rt->devices[i])) {
            return rt->devices[i];
        }
    }
    return rt->devices[0];
}

/* Unpins what no work uses any more. */
static void reap_leftovers(hd_runtime *rt, bool all, bool driver_usable)
{
    struct hdi_buffers *pool = rt->buffers;
    leftover *done = NULL;
    pthread_mutex_lock(&pool->lock);
    for (leftover **link = &pool->leftovers; *link;) {
        leftover *l = *link;
        bool busy = false;
        for (size_t i = 0; i < l->n_marks && !busy && !all; i++) {
            busy = !hdi_mark_done(rt, l->marks[i]);
        }
        if (busy) {
            link = &l->next;
        } else {
            *link = l->next;
            l->next = done;
            done = l;
        }
    }
    pthread_mutex_unlock(&pool->lock);
    while (done) {
        leftover *next = done->next;
        hdi_pinned_release(&done->pinned, !driver_usable);
        free(done);
        done = next;
    }
}

hd_status hdi_buffer_make_host(hd_runtime *rt, size_t bytes, const char *who, struct hd_buffer **out)
{
    reap_leftovers(rt, false, true);
    struct hd_buffer *b = take_structure(rt);
    if (!b) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "%s: no memory for a handle", who);
    }
    hdi_pinned pinned;
    hd_status status = hdi_pinned_alloc(rt->pinned, bytes, &pinned);
    if (status) {
        give_structure(rt, b);
        hdi_device *device = hdi_any_device(rt);
        int lost = rt->is_process ? HDI_GONE_CLOSED : hdi_device_lost(device);
        return status == HD_ERROR_DEVICE_LOST && lost ? hdi_driver_failed(device, lost, "", who) : status;
    }
    hdi_uses_init(&b->uses, bytes);
    b->owner = HDI_OWNER_HOST;
    b->address = pinned.device;
    b->bytes = bytes;
    b->host = pinned.shm.base;
    atomic_store_explicit(&b->losses, 0, memory_order_release);
    b->pinned = pinned;
    make_live(b);
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
    hd_status status = hdi_buffer_make_host(rt, bytes, "hd_alloc_host", &b);
    if (!status) {
        *out = hdi_buffer_handle(b);
    }
    return status;
}

/* Pinned memory that work still uses is put aside; where there is no memory to note that, this waits for the work. */
static void release_pinned(hd_runtime *rt, hdi_pinned *pinned, const hdi_mark *marks, size_t n)
{
    if (n) {
        leftover *l = malloc(sizeof *l + n * sizeof *marks);
        if (l) {
            l->pinned = *pinned;
            l->n_marks = n;
            memcpy(l->marks, marks, n * sizeof *marks);
            pthread_mutex_lock(&rt->buffers->lock);
            l->next = rt->buffers->leftovers;
            rt->buffers->leftovers = l;
            pthread_mutex_unlock(&rt->buffers->lock);
            return;
        }
        for (size_t i = 0; i < n; i++) {
            hdi_wait_position(rt, marks[i].lane, marks[i].position, INT64_MAX);
        }
    }
    hdi_pinned_release(pinned, false);
}

/* ---- free ---- */

/* Gives a buffer's memory back, with the marks of the work that still uses it. No handle leads to it. */
static void release_memory(struct hd_buffer *b)
{
    hd_runtime *rt = b->runtime;
    hdi_mark on_stack[MARKS_ON_STACK];
    hdi_mark *marks = on_stack;
    size_t room = MARKS_ON_STACK;
    hdi_lock *order = hdi_order_lock(rt, b->order);
    hdi_lock_take(order);
    size_t n = hdi_uses_pending(rt, &b->uses, marks, room);
    hdi_lock_release(order);
    if (n > room) {
        /* `n` counts a lane twice when it did not fit, so it is enough. Nobody else changes the record any more. */
        room = n;
        marks = malloc(room * sizeof *marks);
        if (marks) {
            n = hdi_uses_pending(rt, &b->uses, marks, room);
        } else {
            /* No memory for the list of who uses it: wait until nobody does. */
            marks = on_stack;
            while ((n = hdi_uses_pending(rt, &b->uses, marks, MARKS_ON_STACK)) > 0) {
                hdi_wait_position(rt, marks[0].lane, marks[0].position, INT64_MAX);
            }
        }
    }
    if (b->owner == HDI_OWNER_HOST) {
        release_pinned(rt, &b->pinned, marks, n);
    } else if (is_of_now(b)) {
        hdi_arena_free(rt->devices[b->owner]->arena, b->address, marks, n);
    }
    if (marks != on_stack) {
        free(marks);
    }
    hdi_kept_release(b->kept);
    b->kept = NULL;
    hdi_uses_release(&b->uses);
}

/* Ends a buffer that no handle leads to any more. */
static void end_buffer(struct hd_buffer *b)
{
    if (b->owner != HDI_OWNER_HOST) {
        hdi_device *device = b->runtime->devices[b->owner];
        atomic_fetch_sub_explicit(&device->buffers_live, 1, memory_order_relaxed);
        atomic_fetch_sub_explicit(&device->bytes_live, b->bytes, memory_order_relaxed);
    }
    release_memory(b);
    /* After its last generation a structure is not used again, so that no old handle can ever fit. */
    if (hdi_handle_head_generation(&b->head) != 0) {
        give_structure(b->runtime, b);
    }
}

/* Makes the handle stale; *ours: it was not before. False: not now. */
static bool take_handle(struct hd_buffer *b, const hd_buffer *handle, bool *ours)
{
    struct hdi_buffers *pool = b->runtime->buffers;
    pthread_mutex_lock(&pool->lock);
    bool busy = b->restoring;
    *ours = !busy && hdi_buffer_from_any_handle(handle) != NULL;
    if (*ours) {
        hdi_handle_set(&b->head, HDI_BUFFER_MAGIC, (uint16_t)(hdi_handle_generation(handle) + 1), HDI_HANDLE_DEAD);
    }
    pthread_mutex_unlock(&pool->lock);
    return !busy;
}

void hd_free(hd_buffer *handle)
{
    struct hd_buffer *b = hdi_handle_object(handle);
    if (!b || !hdi_handle_head_is(&b->head, HDI_BUFFER_MAGIC)) {
        return;
    }
    bool ours = false;
    while (!take_handle(b, handle, &ours)) {
        /* its device is being restarted, and this buffer restored */
        pthread_mutex_lock(&b->runtime->restarting);
        pthread_mutex_unlock(&b->runtime->restarting);
    }
    if (ours) {
        if (b->owner == HDI_OWNER_HOST) {
            reap_leftovers(b->runtime, false, true);
        }
        end_buffer(b);
    }
}

void hdi_buffers_release(hd_runtime *rt, bool driver_usable)
{
    struct hdi_buffers *pool = rt->buffers;
    if (!pool) {
        return;
    }
    reap_leftovers(rt, true, driver_usable);
    for (slab *s = pool->slabs, *next; s; s = next) {
        next = s->next;
        for (int i = 0; i < SLAB_BUFFERS; i++) {
            struct hd_buffer *b = &s->buffers[i];
            if (hdi_handle_head_state(&b->head) != HDI_HANDLE_DEAD) {
                if (b->owner == HDI_OWNER_HOST) {
                    hdi_pinned_release(&b->pinned, !driver_usable);
                }
                hdi_uses_release(&b->uses);
                hdi_kept_forget(b->kept); /* its copies are among these buffers */
            }
        }
        free(s);
    }
    pthread_mutex_destroy(&pool->lock);
    free(pool);
    rt->buffers = NULL;
}

/* ---- looking at buffers ---- */

hd_status hdi_buffer_refused(const hd_buffer *handle, const char *who)
{
    struct hd_buffer *b = hdi_buffer_from_any_handle(handle);
    if (b) {
        return hdi_loss_fail(b->runtime, b->owner, who, "the buffer's content was lost (hd_free it)");
    }
    return hdi_fail(HD_ERROR_HANDLE, "%s: %s", who,
                    handle ? "the buffer was freed, or is not a buffer" : "the buffer is null");
}

hd_status hdi_buffer_check(const hd_buffer *handle, size_t offset, size_t bytes, const char *who,
                           struct hd_buffer **out)
{
    struct hd_buffer *b = hdi_buffer_from_handle(handle);
    if (!b) {
        return hdi_buffer_refused(handle, who);
    }
    if (offset > b->bytes || bytes > b->bytes - offset) {
        return hdi_fail(HD_ERROR_RANGE, "%s: %zu bytes at offset %zu of a buffer of %llu bytes", who, bytes, offset,
                        (unsigned long long)b->bytes);
    }
    *out = b;
    return HD_OK;
}

size_t hd_buffer_size(const hd_buffer *handle)
{
    struct hd_buffer *b = hdi_buffer_from_any_handle(handle);
    return b ? b->bytes : 0;
}

int hd_buffer_device(const hd_buffer *handle)
{
    struct hd_buffer *b = hdi_buffer_from_any_handle(handle);
    return b ? b->owner : -2;
}

uint64_t hd_buffer_address(const hd_buffer *handle)
{
    struct hd_buffer *b = hdi_buffer_from_handle(handle);
    return b ? b->address : 0;
}

/* One mark of [low, high) that is not done, or whether a writer there failed. */
static bool next_pending(struct hd_buffer *b, uint64_t low, uint64_t high, bool write, hdi_mark *out, hdi_mark *failed)
{
    hd_runtime *rt = b->runtime;
    bool found = false;
    hdi_lock *order = hdi_order_lock(rt, b->order);
    hdi_lock_take(order);
    hdi_segment *end = hdi_uses_segments(&b->uses) + b->uses.count;
    for (hdi_segment *s = hdi_uses_find(&b->uses, low); !found && s < end && s->low < high; s++) {
        if (s->writer.position) {
            if (!hdi_mark_done(rt, s->writer)) {
                *out = s->writer;
                found = true;
            } else if (atomic_load_explicit(&hdi_lane_shared_of(rt, s->writer.lane)->failures, memory_order_acquire)) {
                hdi_failure failure;
                if (hdi_failure_find(hdi_lane_shared_of(rt, s->writer.lane), s->writer.position, &failure)) {
                    *failed = s->writer;
                }
            }
        }
        const hdi_mark *readers = hdi_segment_readers(s);
        for (uint32_t i = 0; write && !found && i < s->n_readers; i++) {
            if (!hdi_mark_done(rt, readers[i])) {
                *out = readers[i];
                found = true;
            }
        }
    }
    hdi_lock_release(order);
    return found;
}

hd_status hdi_buffer_settle(struct hd_buffer *b, uint64_t low, uint64_t high, unsigned access, int64_t deadline,
                            const char *who)
{
    bool write = (access & HD_WRITE) != 0;
    hdi_mark mark = {0, 0};
    hdi_mark failed = {0, 0};
    while (next_pending(b, low, high, write, &mark, &failed)) {
        if (!hdi_wait_position(b->runtime, mark.lane, mark.position, deadline)) {
            return hdi_fail(HD_ERROR_TIMEOUT, "%s: work on the buffer is not done", who);
        }
        failed.position = 0;
    }
    bool bad = failed.position && (access & HD_READ);
    return bad ? hdi_position_status(b->runtime, failed.lane, failed.position, who) : HD_OK;
}

void hdi_buffer_host_wrote(struct hd_buffer *b, uint64_t low, uint64_t high)
{
    hdi_lock *order = hdi_order_lock(b->runtime, b->order);
    hdi_lock_take(order);
    /* Without memory for the split the record stays as careful as it was. */
    if (hdi_uses_prepare(b->runtime, &b->uses, low, high)) {
        hdi_uses_commit(&b->uses, low, high, true, (hdi_mark){0, 0});
    }
    hdi_lock_release(order);
}

static hd_status check_access(hd_access access, const char *who)
{
    if (access != HD_READ && access != HD_WRITE && access != HD_READ_WRITE) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%s: access is %d, not HD_READ, HD_WRITE or HD_READ_WRITE", who,
                        (int)access);
    }
    return HD_OK;
}

hd_status hd_buffer_wait(hd_buffer *handle, hd_access access, int64_t timeout_ns)
{
    struct hd_buffer *b = NULL;
    hd_status status = hdi_buffer_check(handle, 0, 0, "hd_buffer_wait", &b);
    status = status ? status : check_access(access, "hd_buffer_wait");
    return status ? status : hdi_buffer_settle(b, 0, b->bytes, access, hdi_deadline(timeout_ns), "hd_buffer_wait");
}

hd_status hd_map(hd_buffer *handle, hd_access access, void **out)
{
    struct hd_buffer *b = NULL;
    hd_status status = hdi_buffer_check(handle, 0, 0, "hd_map", &b);
    status = status ? status : check_access(access, "hd_map");
    if (status) {
        return status;
    }
    if (!out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "hd_map: out is null");
    }
    if (b->owner != HDI_OWNER_HOST) {
        return hdi_fail(
            HD_ERROR_ACCESS,
            "hd_map: this is memory of device %d, which the CPU cannot use: hd_read and hd_write copy it, or "
            "use hd_alloc_host and hd_copy",
            b->owner);
    }
    status =
        hdi_buffer_settle(b, 0, b->bytes, access, hdi_option_deadline(b->runtime->options.transfer_timeout), "hd_map");
    if (!status) {
        if (access == HD_WRITE) {
            hdi_buffer_host_wrote(b, 0, b->bytes);
        }
        *out = b->host;
    }
    return status;
}

void hd_unmap(hd_buffer *handle)
{
    /* Pinned memory stays visible: nothing to undo today. The call is where write-back of other kinds of memory goes. */
    (void)hdi_buffer_from_handle(handle);
}

/* ---- lost devices ---- */

void hdi_buffers_lose(hd_runtime *rt, hdi_device *device)
{
    struct hdi_buffers *pool = rt->buffers;
    if (!pool) {
        return;
    }
    pthread_mutex_lock(&pool->lock);
    hdi_lock_take(&device->order); /* the one place with both: operations under way see it whole */
    for (slab *s = pool->slabs; s; s = s->next) {
        for (int i = 0; i < SLAB_BUFFERS; i++) {
            struct hd_buffer *b = &s->buffers[i];
            if (hdi_handle_head_state(&b->head) == HDI_HANDLE_LIVE && b->owner == device->index) {
                hdi_handle_set(&b->head, HDI_BUFFER_MAGIC, hdi_handle_head_generation(&b->head), HDI_HANDLE_LOST);
                atomic_store_explicit(&b->losses, HDI_LOST, memory_order_release);
            }
        }
    }
    hdi_lock_release(&device->order);
    pthread_mutex_unlock(&pool->lock);
}

/* The next lost buffer of the device that keeps a copy, now marked as being restored; NULL: there is none. */
static struct hd_buffer *next_to_restore(hd_runtime *rt, int device)
{
    struct hdi_buffers *pool = rt->buffers;
    struct hd_buffer *found = NULL;
    pthread_mutex_lock(&pool->lock);
    for (slab *s = pool->slabs; s && !found; s = s->next) {
        for (int i = 0; i < SLAB_BUFFERS && !found; i++) {
            struct hd_buffer *b = &s->buffers[i];
            if (hdi_handle_head_state(&b->head) == HDI_HANDLE_LOST && b->owner == device && b->kept &&
                hdi_kept_newest(b->kept, rt)) {
                b->restoring = true;
                found = b;
            }
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return found;
}

/* Puts the kept content into fresh memory. The handle is lost and hd_free waits, but an operation that was checked before the loss may
 * still come: it finds other `losses`, under the order lock, than it was checked with. */
static hd_status restore(hd_runtime *rt, hdi_device *device, struct hd_buffer *b)
{
    struct hd_buffer fresh = {.runtime = rt};
    hd_status status = hdi_buffer_place(&fresh, device->lane_in, b->bytes);
    if (status) {
        return status;
    }
    hdi_lock_take(&device->order);
    hdi_uses old = b->uses;
    b->uses = fresh.uses;
    b->address = fresh.address;
    atomic_store_explicit(&b->losses, hdi_buffer_losses(&fresh), memory_order_release);
    hdi_lock_release(&device->order);
    hdi_uses_release(&old);
    hd_ticket ticket;
    status = hdi_copy_in(b, hdi_kept_newest(b->kept, rt), &ticket);
    if (!status) {
        uint32_t lane = device->lane_in->global;
        int64_t deadline = hdi_option_deadline(rt->options.transfer_timeout);
        status = hdi_wait_position(rt, lane, ticket.sequence, deadline)
                     ? hdi_position_status(rt, lane, ticket.sequence, "hd_device_restart")
                     : hdi_fail(HD_ERROR_TIMEOUT, "hd_device_restart: a kept buffer is not restored yet (option "
                                                  "transfer_timeout)");
    }
    if (!status) {
        make_live(b);
    }
    return status;
}

hd_status hdi_buffers_restore(hd_runtime *rt, hdi_device *device)
{
    hd_status status = HD_OK;
    for (struct hd_buffer *b; !status && (b = next_to_restore(rt, device->index)) != NULL;) {
        status = restore(rt, device, b);
        pthread_mutex_lock(&rt->buffers->lock);
        b->restoring = false;
        pthread_mutex_unlock(&rt->buffers->lock);
    }
    return status;
}
