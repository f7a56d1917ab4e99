/* buffer.c - allocation, free and host access of tracked buffers.
 *
 * Threads: any. Locks: the pool's mutex for handing out structures and for the list of pinned memory that is still in use; then the order
 * lock of the owner; never both.
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

static void make_live(struct hd_buffer *b)
{
    pthread_mutex_lock(&b->runtime->buffers->lock);
    hdi_handle_set(&b->head, HDI_BUFFER_MAGIC, hdi_handle_head_generation(&b->head), 1);
    pthread_mutex_unlock(&b->runtime->buffers->lock);
}

/* ---- device memory ---- */

hd_status hd_alloc(hd_lane *handle, size_t bytes, hd_buffer **out)
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
    if (atomic_load_explicit(&device->engine->lost, memory_order_acquire)) {
        return hdi_lane_refuses(lane, "hd_alloc");
    }
    struct hd_buffer *b = take_structure(rt);
    if (!b) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "hd_alloc: no memory for a handle");
    }
    hdi_marks inherited = {0};
    hdcu_deviceptr address = 0;
    hd_status status = hdi_arena_alloc(device->arena, lane->global, bytes, &address, &inherited);
    if (!status) {
        hdi_uses_init(&b->uses, bytes);
        const hdi_mark *marks = hdi_marks_data(&inherited);
        for (size_t i = 0; i < inherited.count && !status; i++) {
            if (!hdi_uses_inherit(rt, &b->uses, marks[i])) {
                hdi_arena_free(device->arena, address, marks, inherited.count);
                hdi_uses_release(&b->uses);
                status = hdi_fail(HD_ERROR_HOST_MEMORY, "hd_alloc: no memory for use records");
            }
        }
        hdi_marks_release(&inherited);
    }
    if (status) {
        give_structure(rt, b);
        return status;
    }
    b->owner = device->index;
    b->order = (uint8_t)device->index;
    b->address = address;
    b->bytes = bytes;
    b->host = NULL;
    make_live(b);
    atomic_fetch_add_explicit(&device->buffers_live, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&device->bytes_live, bytes, memory_order_relaxed);
    *out = hdi_handle_make(b, hdi_handle_head_generation(&b->head));
    return HD_OK;
}

/* ---- pinned host memory ---- */

hdi_device *hdi_any_device(hd_runtime *rt)
{
    for (int i = 0; i < rt->n_devices; i++) {
        if (!atomic_load_explicit(&rt->devices[i]->engine->lost, memory_order_acquire)) {
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
    hd_status status = hdi_pinned_alloc(rt->driver, hdi_any_device(rt)->context, bytes, &pinned);
    if (status) {
        give_structure(rt, b);
        return status;
    }
    hdi_uses_init(&b->uses, bytes);
    b->owner = HDI_OWNER_HOST;
    b->address = pinned.device;
    b->bytes = bytes;
    b->host = pinned.shm.base;
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
        *out = hdi_handle_make(b, hdi_handle_head_generation(&b->head));
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

/* Ends a buffer that no handle leads to any more. */
static void end_buffer(struct hd_buffer *b)
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
    } else {
        hdi_device *device = rt->devices[b->owner];
        hdi_arena_free(device->arena, b->address, marks, n);
        atomic_fetch_sub_explicit(&device->buffers_live, 1, memory_order_relaxed);
        atomic_fetch_sub_explicit(&device->bytes_live, b->bytes, memory_order_relaxed);
    }
    if (marks != on_stack) {
        free(marks);
    }
    hdi_uses_release(&b->uses);
    /* After its last generation a structure is not used again, so that no old handle can ever fit. */
    if (hdi_handle_head_generation(&b->head) != 0) {
        give_structure(rt, b);
    }
}

void hd_free(hd_buffer *handle)
{
    struct hd_buffer *b = hdi_handle_object(handle);
    if (!b || !hdi_handle_head_is(&b->head, HDI_BUFFER_MAGIC)) {
        return;
    }
    struct hdi_buffers *pool = b->runtime->buffers;
    pthread_mutex_lock(&pool->lock);
    bool ours = hdi_handle_fits(handle, &b->head, HDI_BUFFER_MAGIC);
    if (ours) {
        hdi_handle_set(&b->head, HDI_BUFFER_MAGIC, (uint16_t)(hdi_handle_generation(handle) + 1), 0);
    }
    pthread_mutex_unlock(&pool->lock);
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
            if (hdi_handle_head_live(&b->head)) {
                if (b->owner == HDI_OWNER_HOST) {
                    hdi_pinned_release(&b->pinned, !driver_usable);
                }
                hdi_uses_release(&b->uses);
            }
        }
        free(s);
    }
    pthread_mutex_destroy(&pool->lock);
    free(pool);
    rt->buffers = NULL;
}

/* ---- looking at buffers ---- */

hd_status hdi_buffer_check(const hd_buffer *handle, size_t offset, size_t bytes, const char *who,
                           struct hd_buffer **out)
{
    struct hd_buffer *b = hdi_buffer_from_handle(handle);
    if (!b) {
        return hdi_fail(HD_ERROR_HANDLE, "%s: %s", who,
                        handle ? "the buffer was freed, or is not a buffer" : "the buffer is null");
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
    struct hd_buffer *b = hdi_buffer_from_handle(handle);
    return b ? b->bytes : 0;
}

int hd_buffer_device(const hd_buffer *handle)
{
    struct hd_buffer *b = hdi_buffer_from_handle(handle);
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
