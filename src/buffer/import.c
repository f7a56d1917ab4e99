/* import.c - hd_import and hd_import_host: memory of the program's own as buffers, from the call to the last use.
 *
 * Each import has an entry. Those that are not freed are in a table, sorted by address, which finds what overlaps.
 * hd_free takes the entry out. Where work still uses the memory, the entry waits in a list with the points of that work.
 * The keeper ends such entries: it unpins what the library has pinned, and calls the program.
 * Unpinning waits for devices, so hd_free leaves it to the keeper always.
 *
 * The content of an import is the program's, so reads of it wait, too. Where a freed import of the same bytes is still in use, its points become
 * readers of the new buffer. Behind them a fill of nothing is noted as a writer, for which readers wait.
 *
 * Threads: any; the keeper.
 * Locks: the list's; below it that of buffers, for labels, and order locks.
 * Blocking: see import.h. hd_free waits for the work only where there is no host memory for its points, or no thread can be started.
 * Always: an entry belongs to the table, the list of leaving entries, or one thread.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/error.h"
#include "base/sized.h"
#include "base/text.h"
#include "base/thread.h"
#include "base/wait.h"
#include "buffer/import.h"
#include "buffer/kind.h"
#include "buffer/part.h"
#include "engine/engine.h"
#include "memory/arena.h"
#include "memory/part.h"

#define LOOK_NS INT64_C(10000000) /* the keeper looks at all entries at least so often while there are any */

typedef struct import {
    struct import *next; /* in the list of leaving entries */
    hd_runtime *runtime;
    struct hd_buffer *buffer; /* NULL: freed */
    uint64_t low, high;       /* addresses */
    int owner;                /* device, or HDI_OWNER_HOST */
    void *pinned;             /* the host's memory that the library has pinned; NULL: none */
    uint64_t pinned_bytes;
    hd_released_function released;
    void *context;
    hdi_point *points; /* leaving: work that still uses it */
    size_t n_points;
} import;

struct hdi_imports {
    hd_runtime *runtime;
    hdi_mutex lock;
    pthread_cond_t changed;
    import **table; /* by address */
    size_t count, room;
    import *leaving;
    hdi_import_info info[HDI_DEVICES_MAX + 1]; /* by owner, the host last */
    bool started, stop;
    pthread_t keeper;
};

static struct hdi_imports *imports_of(const hd_runtime *rt)
{
    return hdi_buffer_of(rt)->imports;
}

static hdi_import_info *info_of(struct hdi_imports *all, int owner)
{
    return &all->info[owner == HDI_OWNER_HOST ? HDI_DEVICES_MAX : owner];
}

void hdi_imports_get_info(hd_runtime *rt, int owner, hdi_import_info *out)
{
    struct hdi_imports *all = imports_of(rt);
    hdi_mutex_lock(&all->lock);
    *out = *info_of(all, owner);
    hdi_mutex_unlock(&all->lock);
}

/* ---- the table: the lock is held ---- */

/* The number of the first entry that ends behind an address. */
static size_t seek(const struct hdi_imports *all, uint64_t address)
{
    size_t low = 0, high = all->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (all->table[middle]->high <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static const import *overlapping(const struct hdi_imports *all, uint64_t low, uint64_t high)
{
    size_t i = seek(all, low);
    return i < all->count && all->table[i]->low < high ? all->table[i] : NULL;
}

static bool insert(struct hdi_imports *all, import *e)
{
    if (all->count == all->room) {
        size_t room = all->room ? all->room * 2 : 16;
        import **table = realloc(all->table, room * sizeof(import *));
        if (!table) {
            return false;
        }
        all->table = table;
        all->room = room;
    }
    size_t i = seek(all, e->low);
    memmove(&all->table[i + 1], &all->table[i], (all->count - i) * sizeof(import *));
    all->table[i] = e;
    all->count++;
    info_of(all, e->owner)->count++;
    info_of(all, e->owner)->bytes += e->high - e->low;
    return true;
}

static void take_out(struct hdi_imports *all, const import *e)
{
    size_t i = seek(all, e->low);
    all->count--;
    memmove(&all->table[i], &all->table[i + 1], (all->count - i) * sizeof(import *));
}

/* ---- the end of an import ---- */

static void count_end(struct hdi_imports *all, const import *e)
{
    hdi_mutex_lock(&all->lock);
    info_of(all, e->owner)->count--;
    info_of(all, e->owner)->bytes -= e->high - e->low;
    info_of(all, e->owner)->pinned_bytes -= e->pinned_bytes;
    hdi_mutex_unlock(&all->lock);
}

/* A device whose driver calls can be made. NULL: there is none. */
static hdi_device *enter_any(hd_runtime *rt, hdi_scope *scope)
{
    for (int i = 0; i < rt->n_devices; i++) {
        if (!hdi_device_lost(rt->devices[i]) && hdi_scope_enter(rt->devices[i], scope) == HD_OK) {
            return rt->devices[i];
        }
    }
    return NULL;
}

/* Unpins, as far as the driver lets it. On a lost device alone it does not: the driver does with the context. */
static void unpin(const import *e)
{
    hd_runtime *rt = e->runtime;
    hdi_scope scope;
    if (e->pinned && enter_any(rt, &scope)) {
        rt->driver->cuMemHostUnregister(e->pinned);
        hdi_scope_leave(&scope);
    }
    if (e->pinned) {
        hdi_host_pool_count_unpinned(hdi_memory_of(rt)->host_pool, e->pinned_bytes);
    }
}

/* Nothing uses the memory any more. No lock is held, and the entry is this thread's. */
static void finish(import *e)
{
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    unpin(e);
    count_end(imports_of(e->runtime), e);
    if (e->released) {
        hdi_apart apart = hdi_presence_apart();
        e->released(e->context);
        hdi_presence_together(apart);
    }
    hdi_attempt_end(&attempt);
    free(e->points);
    free(e);
}

/* ---- the keeper ---- */

/* Whether a lost device of this process goes on with work that counts as finished. Calls the driver. */
static bool lost_work_goes_on(const hd_runtime *rt)
{
    bool busy = false;
    for (int i = 0; i < rt->n_devices && !busy; i++) {
        busy = hdi_device_lost(rt->devices[i]) && hdi_engine_is_busy(rt->devices[i]);
    }
    return busy;
}

/* The first point that is not done; NULL: all are. */
static const hdi_point *pending(const import *e)
{
    for (size_t i = 0; i < e->n_points; i++) {
        if (!hdi_point_done(e->runtime, e->points[i])) {
            return &e->points[i];
        }
    }
    return NULL;
}

/* Takes an entry out of the list whose work is done. NULL: there is none, and *wait is what the first one waits for; position 0: a lost
 * device. The lock is held. */
static import *take_due(struct hdi_imports *all, bool busy, hdi_point *wait)
{
    *wait = (hdi_point){0, 0};
    for (import **link = &all->leaving; *link; link = &(*link)->next) {
        const hdi_point *point = pending(*link);
        if (!point && !busy) {
            import *e = *link;
            *link = e->next;
            return e;
        }
        if (point && wait->position == 0) {
            *wait = *point;
        }
    }
    return NULL;
}

static void *keep(void *context)
{
    struct hdi_imports *all = context;
    hd_runtime *rt = all->runtime;
    hdi_mutex_lock(&all->lock);
    while (!all->stop) {
        if (!all->leaving) {
            hdi_mutex_wait(&all->lock, &all->changed);
            continue;
        }
        hdi_mutex_unlock(&all->lock);
        bool busy = lost_work_goes_on(rt);
        hdi_point wait;
        hdi_mutex_lock(&all->lock);
        import *e = take_due(all, busy, &wait);
        hdi_mutex_unlock(&all->lock);
        if (e) {
            HDI_INSIDE_STILL(rt); /* hd_close waits for the function, which may call the library */
            finish(e);
        } else if (wait.position && !hdi_is_closing(rt)) {
            hdi_wait_position(rt, wait.lane, wait.position, hdi_deadline(LOOK_NS));
        } else {
            hdi_sleep_for(LOOK_NS);
        }
        hdi_mutex_lock(&all->lock);
    }
    hdi_mutex_unlock(&all->lock);
    return NULL;
}

/* Leaves an entry to the keeper. False: no thread can be started. */
static bool leave_to_keeper(struct hdi_imports *all, import *e)
{
    hdi_mutex_lock(&all->lock);
    if (!all->started && !all->stop) {
        all->started = hdi_thread_start(&all->keeper, keep, all) == 0;
    }
    bool kept = all->started || all->stop; /* once it is stopped, the end of the runtime does it */
    if (kept) {
        e->next = all->leaving;
        all->leaving = e;
        pthread_cond_signal(&all->changed);
    }
    hdi_mutex_unlock(&all->lock);
    return kept;
}

/* The buffer was freed, and no hold keeps its memory. */
static void leave(struct hd_buffer *b, const hdi_point *points, size_t n_points)
{
    hd_runtime *rt = b->runtime;
    struct hdi_imports *all = imports_of(rt);
    import *e = b->of_kind;
    hdi_mutex_lock(&all->lock);
    take_out(all, e);
    e->buffer = NULL;
    hdi_mutex_unlock(&all->lock);
    bool lost = false;
    for (int i = 0; i < rt->n_devices; i++) {
        lost |= hdi_device_lost(rt->devices[i]);
    }
    if (n_points == 0 && !lost && !e->pinned && !hdi_thread_is_own()) {
        finish(e);
        return;
    }
    e->points = n_points ? malloc(n_points * sizeof *points) : NULL;
    if (e->points) {
        memcpy(e->points, points, n_points * sizeof *points);
        e->n_points = n_points;
    }
    for (size_t i = e->n_points; i < n_points; i++) { /* there is no memory for them */
        hdi_wait_position(rt, points[i].lane, points[i].position, INT64_MAX);
    }
    if (leave_to_keeper(all, e)) {
        return;
    }
    for (const hdi_point *p; (p = pending(e)) != NULL;) {
        hdi_wait_position(rt, p->lane, p->position, INT64_MAX);
    }
    finish(e);
}

static const hdi_buffer_ops device_ops = {.leave = leave};
static const hdi_buffer_ops host_ops = {.map = hdi_host_map, .bring = hdi_host_bring, .leave = leave};

/* ---- the end of the runtime ---- */

static hd_status imports_create(hd_runtime *rt)
{
    struct hdi_imports *all = calloc(1, sizeof *all);
    if (!all) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    all->runtime = rt;
    hdi_mutex_init(&all->lock, HDI_RANK_IMPORTS);
    hdi_cond_init(&all->changed);
    hdi_buffer_of(rt)->imports = all;
    return HD_OK;
}

static void imports_stop(hd_runtime *rt)
{
    struct hdi_imports *all = imports_of(rt);
    if (!all) {
        return;
    }
    hdi_mutex_lock(&all->lock);
    all->stop = true;
    bool join = all->started;
    all->started = false;
    pthread_cond_signal(&all->changed);
    hdi_mutex_unlock(&all->lock);
    if (join) {
        pthread_join(all->keeper, NULL);
    }
}

/* No other thread has the runtime. Where work did not end, what it may use stays as it is. */
static void imports_release(hd_runtime *rt)
{
    struct hdi_imports *all = imports_of(rt);
    if (!all) {
        return;
    }
    while (all->leaving || all->count) {
        import *e = all->leaving;
        if (e) {
            all->leaving = e->next;
        } else {
            e = all->table[all->count - 1];
            take_out(all, e);
        }
        if (rt->hung) {
            free(e->points);
            free(e);
        } else {
            finish(e);
        }
    }
    pthread_cond_destroy(&all->changed);
    hdi_mutex_destroy(&all->lock);
    free(all->table);
    free(all);
    hdi_buffer_of(rt)->imports = NULL;
}

const hdi_lifetime hdi_imports_lifetime = {.create = imports_create, .stop = imports_stop, .release = imports_release};

/* ---- what the memory is ---- */

static bool ask(const hdi_driver *driver, void *value, int attribute, uint64_t address, hdcu_result *r)
{
    *r = driver->cuPointerGetAttribute(value, attribute, address);
    return *r == HDCU_SUCCESS;
}

/* Where what the driver has at an address ends: what one of its calls made, or one mapping. The address itself where that is unknown. */
static uint64_t end_at(const hdi_driver *driver, uint64_t address)
{
    static const int pairs[2][2] = {
        {HDCU_POINTER_ATTRIBUTE_RANGE_START_ADDR, HDCU_POINTER_ATTRIBUTE_RANGE_SIZE},
        {HDCU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, HDCU_POINTER_ATTRIBUTE_MAPPING_SIZE},
    };
    uint64_t end = UINT64_MAX;
    for (int i = 0; i < 2; i++) {
        uint64_t start = 0;
        size_t bytes = 0;
        hdcu_result r;
        if (ask(driver, &start, pairs[i][0], address, &r) && ask(driver, &bytes, pairs[i][1], address, &r) &&
            start <= address && bytes > address - start && start + bytes < end) {
            end = start + bytes;
        }
    }
    return end == UINT64_MAX ? address : end;
}

/* The device of the runtime that a driver's number stands for; -1: none. */
static int device_of(const hd_runtime *rt, int ordinal)
{
    for (int i = 0; i < rt->n_devices; i++) {
        if (rt->devices[i]->ordinal == ordinal) {
            return i;
        }
    }
    return -1;
}

/* Fails unless the byte at an address is of the device's memory. The device's context is current. */
static hd_status check_at(hdi_device *device, uint64_t address)
{
    const hd_runtime *rt = device->runtime;
    int type = 0, ordinal = -1;
    hdcu_result r;
    if (!ask(rt->driver, &type, HDCU_POINTER_ATTRIBUTE_MEMORY_TYPE, address, &r)) {
        return r == HDCU_ERROR_INVALID_VALUE || r == HDCU_ERROR_NOT_FOUND
                   ? hdi_fail(HD_ERROR_ARGUMENT, "0x%" PRIx64 " is no memory that the driver has; import what it allocated",
                              address)
                   : hdi_driver_failed(device, r, "cuPointerGetAttribute");
    }
    if (type == HDCU_MEMORYTYPE_HOST) {
        return hdi_fail(HD_ERROR_ARGUMENT, "0x%" PRIx64 " is memory of the host; hd_import_host takes it", address);
    }
    if (!ask(rt->driver, &ordinal, HDCU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address, &r)) {
        return hdi_driver_failed(device, r, "cuPointerGetAttribute");
    }
    int owner = device_of(rt, ordinal);
    if (owner != device->index) {
        return owner < 0 ? hdi_fail(HD_ERROR_ARGUMENT,
                                    "0x%" PRIx64 " is memory of the driver's device %d, which the runtime has not",
                                    address, ordinal)
                         : hdi_fail(HD_ERROR_ARGUMENT, "0x%" PRIx64 " is memory of device %d, not %d; import it there",
                                    address, owner, device->index);
    }
    return HD_OK;
}

/* Fails unless all bytes of the range are. A range may have several mappings. */
static hd_status check_range(hdi_device *device, uint64_t low, uint64_t high)
{
    const hdi_driver *driver = device->runtime->driver;
    uint64_t at = low;
    while (at < high) {
        hdi_attempt attempt;
        hdi_attempt_begin(&attempt);
        hd_status status = hdi_attempt_result(&attempt, check_at(device, at));
        if (status == HD_ERROR_ARGUMENT && at != low) {
            return hdi_fail(HD_ERROR_ARGUMENT,
                            "%" PRIu64 " bytes at 0x%" PRIx64 ", but the memory of device %d there ends after %" PRIu64,
                            high - low, low, device->index, at - low);
        }
        if (status) {
            return status;
        }
        uint64_t end = end_at(driver, at);
        at = end > at ? end : high - 1 > at ? high - 1 : high; /* where that is unknown: the last byte */
    }
    return HD_OK;
}

/* ---- overlaps ---- */

typedef struct label_search {
    uint64_t low, high;
    bool found;
    char label[HD_LABEL_BYTES];
} label_search;

static bool find_label(void *context, struct hd_buffer *b)
{
    label_search *s = context;
    uint64_t at = b->owner == HDI_OWNER_HOST ? (uint64_t)(uintptr_t)b->host : b->address;
    if (!hdi_buffer_is_imported(b) && at < s->high && s->low < at + b->bytes) {
        memcpy(s->label, b->label, sizeof s->label);
        s->found = true;
    }
    return !s->found;
}

static hd_status refuse_own(hd_runtime *rt, uint64_t low, uint64_t high)
{
    label_search s = {.low = low, .high = high};
    hdi_buffers_each(rt, find_label, &s);
    return hdi_fail(HD_ERROR_ARGUMENT,
                    "%" PRIu64 " bytes at 0x%" PRIx64 " are memory of Heddle's own%s%s%s; use the buffer that has them",
                    high - low, low, s.found ? ", of buffer '" : "", s.label, s.found ? "'" : "");
}

/* Fails where some of the bytes are memory of the library's. */
static hd_status check_own(hd_runtime *rt, uint64_t low, uint64_t high)
{
    for (int i = 0; i < rt->n_devices; i++) {
        if (hdi_arena_overlaps(rt->devices[i]->arena, low, high - low)) {
            return refuse_own(rt, low, high);
        }
    }
    return hdi_pinned_pool_has(hdi_memory_of(rt)->pinned, (const void *)(uintptr_t)low, high - low)
               ? refuse_own(rt, low, high)
               : HD_OK;
}

/* The lock is held. */
static hd_status refuse_overlap(hd_runtime *rt, const import *e, uint64_t low, uint64_t high)
{
    char label[HD_LABEL_BYTES] = "";
    hdi_buffers_lock(rt);
    memcpy(label, e->buffer->label, sizeof label);
    hdi_buffers_unlock(rt);
    return hdi_fail(HD_ERROR_ARGUMENT,
                    "%" PRIu64 " bytes at 0x%" PRIx64 " overlap the import%s%s%s of %" PRIu64 " bytes at 0x%" PRIx64
                    "; hd_free that one first, or use its buffer",
                    high - low, low, label[0] ? " '" : "", label, label[0] ? "'" : "", e->high - e->low, e->low);
}

/* ---- making one ---- */

/* Adds the points of freed imports of the same bytes to the record. The lock is held, and no handle leads to the buffer. */
static hd_status inherit(struct hdi_imports *all, const import *e, bool *any)
{
    for (const import *o = all->leaving; o; o = o->next) {
        if (o->owner != e->owner || o->low >= e->high || e->low >= o->high) {
            continue;
        }
        for (size_t i = 0; i < o->n_points; i++) {
            hdi_record_lock(e->buffer);
            bool noted = hdi_uses_inherit(all->runtime, &e->buffer->uses, o->points[i]);
            hdi_record_unlock(e->buffer);
            if (!noted) {
                return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for use records");
            }
            *any = true;
        }
    }
    return HD_OK;
}

/* Puts the entry into the table. Errors: ARGUMENT (it overlaps another one), HOST_MEMORY. */
static hd_status enlist(hd_runtime *rt, import *e, bool *inherited)
{
    struct hdi_imports *all = imports_of(rt);
    hdi_mutex_lock(&all->lock);
    const import *other = overlapping(all, e->low, e->high);
    hd_status status = other ? refuse_overlap(rt, other, e->low, e->high) : inherit(all, e, inherited);
    if (!status && !insert(all, e)) {
        status = hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for a list of imports");
    }
    hdi_mutex_unlock(&all->lock);
    return status;
}

static void unlist(hd_runtime *rt, import *e)
{
    struct hdi_imports *all = imports_of(rt);
    hdi_mutex_lock(&all->lock);
    take_out(all, e);
    hdi_mutex_unlock(&all->lock);
    count_end(all, e);
}

/* Submits a write of nothing behind all inherited work, for readers to wait for. */
static hd_status mark(hdi_device *device, struct hd_buffer *b)
{
    const hdi_use use = {.buffer = b, .losses = hdi_buffer_losses(b), .high = b->bytes, .write = true, .whole = true};
    hdi_command command = {.op = HDI_OP_FILL, .slots = 1};
    command.fill.dst = b->address;
    return hdi_submit(device->lane_on, &use, 1, &command, NULL);
}

/* Gives back what was made for an import that fails. */
static void undo(import *e)
{
    struct hd_buffer *b = e->buffer;
    if (b) {
        hdi_record_release(b);
        hdi_buffer_give(e->runtime, b);
    }
    free(e);
}

/* An entry with a structure for its buffer. */
static hd_status make(hd_runtime *rt, int owner, uint64_t low, size_t bytes, const hd_import_options *options,
                      import **out)
{
    import *e = calloc(1, sizeof *e);
    struct hd_buffer *b = e ? hdi_buffer_take(rt) : NULL;
    if (!b) {
        free(e);
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for a handle");
    }
    *e = (import){.runtime = rt, .buffer = b, .low = low, .high = low + bytes, .owner = owner};
    if (options) {
        e->released = options->released;
        e->context = options->context;
    }
    if (options && options->label) {
        memcpy(b->label, options->label, strnlen(options->label, sizeof b->label - 1));
    }
    *out = e;
    return HD_OK;
}

static void give_out(import *e, const void *call_site, hd_buffer **out)
{
    struct hd_buffer *b = e->buffer;
    b->call_site = call_site;
    hdi_buffer_make_live(b);
    *out = hdi_buffer_handle(b);
}

/* The checks that both calls begin with. */
static hd_status check_call(hd_runtime *rt, bool address, size_t bytes, const hd_import_options **options,
                            hd_import_options *room, hd_buffer *const *out)
{
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    if (!out || !address || bytes == 0) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%s", !out ? "out is null" : !address ? "the address is 0" : "bytes is 0");
    }
    if (*options && !(*options = HDI_SIZED_IN(hd_import_options, *options, room))) {
        return HD_ERROR_ARGUMENT;
    }
    return HD_OK;
}

/* ---- device memory ---- */

static hd_status check_memory(hdi_device *device, uint64_t low, size_t bytes)
{
    if (bytes > UINT64_MAX - low) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%zu bytes at 0x%" PRIx64 " go past the last address", bytes, low);
    }
    hd_status status = check_own(device->runtime, low, low + bytes);
    hdi_scope scope;
    status = status ? status : hdi_scope_enter(device, &scope);
    if (!status) {
        status = check_range(device, low, low + bytes);
        hdi_scope_leave(&scope);
    }
    return status;
}

hd_status hdi_import(hd_runtime *rt, int index, uint64_t address, size_t bytes, const hd_import_options *options,
                     const void *call_site, hd_buffer **out)
{
    hd_import_options room;
    hd_status status = check_call(rt, address != 0, bytes, &options, &room, out);
    if (status) {
        return status;
    }
    if (index < 0 || index >= rt->n_devices) {
        return hdi_fail(HD_ERROR_NO_DEVICE, "device %d of %d", index, rt->n_devices);
    }
    if (rt->is_process) {
        return hdi_fail(HD_ERROR_UNSUPPORTED,
                        "with placement=process the device's memory is another process's, which has no such address; "
                        "open the runtime with placement=thread");
    }
    hdi_device *device = rt->devices[index];
    uint64_t losses = atomic_load_explicit(&device->losses, memory_order_acquire);
    if (hdi_device_lost(device)) {
        return hdi_loss_fail(rt, index, "its memory cannot be imported");
    }
    status = check_memory(device, address, bytes);
    import *e = NULL;
    status = status ? status : make(rt, index, address, bytes, options, &e);
    if (status) {
        return status;
    }
    bool inherited = false;
    status = hdi_buffer_borrow(e->buffer, device, address, bytes, losses, HDI_BUFFER_IMPORTED);
    status = status ? status : enlist(rt, e, &inherited);
    if (status) {
        undo(e);
        return status;
    }
    hdi_buffer_set_kind(e->buffer, &device_ops, e);
    status = inherited ? mark(device, e->buffer) : HD_OK;
    if (status) {
        unlist(rt, e);
        undo(e);
        return status;
    }
    give_out(e, call_site, out);
    return HD_OK;
}

hd_status hd_import(hd_runtime *rt, int device, uint64_t address, size_t bytes, const hd_import_options *options,
                    hd_buffer **out)
{
    HDI_INSIDE(rt);
    return hdi_import(rt, device, address, bytes, options, __builtin_return_address(0), out);
}

/* ---- memory of the host ---- */

static uint64_t pages_of(uint64_t low, uint64_t high)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return (high + page - 1) / page * page - low / page * page;
}

/* Fails unless the program has pinned all of the memory. The device's context is current. */
static hd_status check_pinned(hdi_device *device, const import *e)
{
    const hdi_driver *driver = device->runtime->driver;
    for (uint64_t at = e->low; at < e->high;) {
        int type = 0;
        hdcu_result r;
        uint64_t end = ask(driver, &type, HDCU_POINTER_ATTRIBUTE_MEMORY_TYPE, at, &r) ? end_at(driver, at) : at;
        if (type != HDCU_MEMORYTYPE_HOST || end == at) {
            return hdi_fail(HD_ERROR_ARGUMENT,
                            "%" PRIu64 " bytes at 0x%" PRIx64 " are pinned in part: not from byte %" PRIu64
                            " on; import whole pinned ranges, or memory with pages of its own",
                            e->high - e->low, e->low, at - e->low);
        }
        at = end;
    }
    return HD_OK;
}

/* Pins the memory, or finds that the program has. *address: as devices see it. The device's context is current. */
static hd_status pin(hdi_device *device, import *e, uint64_t *address)
{
    const hdi_driver *driver = device->runtime->driver;
    void *memory = (void *)(uintptr_t)e->low;
    hdcu_result r = driver->cuMemHostRegister(memory, e->high - e->low,
                                              HDCU_MEMHOSTREGISTER_PORTABLE | HDCU_MEMHOSTREGISTER_DEVICEMAP);
    if (r == HDCU_ERROR_HOST_MEMORY_ALREADY_REGISTERED) {
        hd_status status = check_pinned(device, e);
        if (status) {
            return status;
        }
        e->pinned = NULL;
    } else if (r != HDCU_SUCCESS) {
        return hdi_driver_failed(device, r, "cuMemHostRegister");
    } else {
        e->pinned = memory;
    }
    hdcu_deviceptr at = 0;
    r = driver->cuMemHostGetDevicePointer(&at, memory, 0);
    if (r != HDCU_SUCCESS) {
        hd_status status = hdi_driver_failed(device, r, "cuMemHostGetDevicePointer");
        if (e->pinned) {
            driver->cuMemHostUnregister(memory);
        }
        return status;
    }
    *address = at;
    return HD_OK;
}

/* Counts the memory as pinned first, so that the limit is never exceeded. */
static hd_status pin_within_limit(import *e, uint64_t *address)
{
    hd_runtime *rt = e->runtime;
    hdi_host_pool *pool = hdi_memory_of(rt)->host_pool;
    uint64_t pages = pages_of(e->low, e->high);
    hd_status status = hdi_host_pool_count_pinned(pool, pages);
    bool counted = !status;
    hdi_scope scope;
    hdi_device *device = NULL;
    if (!status && !(device = enter_any(rt, &scope))) {
        status = hdi_loss_fail(rt, hdi_any_device(rt)->index, "no device is left that could pin memory");
    }
    if (!status) {
        status = pin(device, e, address);
        hdi_scope_leave(&scope);
    }
    if (counted && (status || !e->pinned)) {
        hdi_host_pool_count_unpinned(pool, pages);
    }
    if (!status && e->pinned) {
        struct hdi_imports *all = imports_of(rt);
        e->pinned_bytes = pages;
        hdi_mutex_lock(&all->lock);
        info_of(all, HDI_OWNER_HOST)->pinned_bytes += pages;
        hdi_mutex_unlock(&all->lock);
    }
    return status;
}

hd_status hdi_import_host(hd_runtime *rt, void *memory, size_t bytes, const hd_import_options *options,
                          const void *call_site, hd_buffer **out)
{
    hd_import_options room;
    uint64_t low = (uint64_t)(uintptr_t)memory, address = 0;
    hd_status status = check_call(rt, memory != NULL, bytes, &options, &room, out);
    if (status) {
        return status;
    }
    if (rt->is_process) {
        return hdi_fail(HD_ERROR_UNSUPPORTED,
                        "with placement=process devices are driven by other processes, which do not have this memory; "
                        "use hd_alloc_host, hd_write and hd_read, or open the runtime with placement=thread");
    }
    if (bytes > UINTPTR_MAX - low) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%zu bytes at %p go past the last address", bytes, memory);
    }
    import *e = NULL;
    status = check_own(rt, low, low + bytes);
    status = status ? status : make(rt, HDI_OWNER_HOST, low, bytes, options, &e);
    if (status) {
        return status;
    }
    bool inherited = false;
    hdi_buffer_take_host(e->buffer, memory, 0, bytes, &host_ops);
    status = enlist(rt, e, &inherited);
    if (status) {
        undo(e);
        return status;
    }
    status = pin_within_limit(e, &address);
    if (status) {
        unlist(rt, e);
        undo(e);
        return status;
    }
    e->buffer->address = address;
    e->buffer->of_kind = e;
    status = inherited ? mark(hdi_any_device(rt), e->buffer) : HD_OK;
    if (status) {
        unlist(rt, e);
        unpin(e);
        undo(e);
        return status;
    }
    give_out(e, call_site, out);
    return HD_OK;
}

hd_status hd_import_host(hd_runtime *rt, void *memory, size_t bytes, const hd_import_options *options, hd_buffer **out)
{
    HDI_INSIDE(rt);
    return hdi_import_host(rt, memory, bytes, options, __builtin_return_address(0), out);
}

/* ---- other devices ---- */

/* Whether the driver lets the context that is current use the memory. */
static bool is_accessible(const hdi_driver *driver, uint64_t address)
{
    int flags = 0;
    hdcu_result r;
    return ask(driver, &flags, HDCU_POINTER_ATTRIBUTE_ACCESS_FLAGS, address, &r) && flags == HDCU_MEM_ACCESS_READWRITE;
}

bool hdi_import_reach_now(struct hd_buffer *b, int from)
{
    hd_runtime *rt = b->runtime;
    uint64_t word = hdi_self_get(&b->self);
    /* The hold keeps the structure with its buffer, so the bit is that buffer's. */
    if ((word & HDI_SELF_DEAD) || !hdi_hold_begin(b, word & ~HDI_SELF_LOST)) {
        return false;
    }
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    hdi_scope scope;
    bool reached = false;
    if (hdi_buffer_is_imported(b) && hdi_scope_enter(rt->devices[from], &scope) == HD_OK) {
        reached = is_accessible(rt->driver, b->address);
        if (!reached) {
            rt->driver->cuCtxEnablePeerAccess(rt->devices[b->owner]->context, 0);
            reached = is_accessible(rt->driver, b->address);
        }
        hdi_scope_leave(&scope);
    }
    if (reached) {
        atomic_fetch_or_explicit(&b->reach, (uint64_t)1 << from, memory_order_relaxed);
    }
    hdi_attempt_end(&attempt);
    hdi_hold_end(b);
    return reached;
}
