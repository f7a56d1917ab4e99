/* region.c - regions, which are memory in no arena and no pool: their table, their buffers, and
 * their end.
 *
 * A region is the memory of an import, or a piece of physical memory. Each region belongs to one
 * buffer.
 * A table, sorted by address, contains the regions that are not freed, so that Heddle can refuse a
 * region that overlaps another one. hd_free takes the region out of the table. If work still uses
 * the memory, the region goes into a list, with the points of that work. A thread of the library,
 * the keeper, ends the regions in the list: it unpins or unmaps the memory, and calls the program's
 * function. Unpinning and unmapping may wait for devices, so hd_free leaves them to the keeper. The
 * keeper unpins memory at a time when this holds up no work (engine/rest.h).
 *
 * A new import may contain bytes of a freed import that work still uses. Reads of the new buffer
 * must also wait for that work, since it may write the bytes. So the points of that work become
 * readers in the new buffer's record. Then an empty fill is submitted as a writer: it waits for
 * these readers, and later reads wait for the fill.
 *
 * Threads: any; some functions run on the keeper.
 * Locks: the list's lock. Under it, a thread takes the buffer list's lock, for labels, and order
 * locks. `linking` is held while a peer gains or loses access to a region.
 * Blocking: see region.h. If there is no host memory for the points, or no thread can be started,
 * hd_free waits for the work.
 * Always: a region is in the table, or in the list of freed regions, or one thread owns it.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/service.h"
#include "base/thread.h"
#include "base/wait.h"
#include "buffer/kind.h"
#include "buffer/part.h"
#include "buffer/region.h"
#include "engine/engine.h"
#include "engine/rest.h"
#include "memory/share.h"
/* while the list contains regions, the keeper checks all of them at least this often */

#define LOOK_NS INT64_C(10000000)

struct hdi_regions {
    hd_runtime *runtime;
    hdi_mutex lock;
    hdi_service keeper;
    hdi_rest rest;      /* only the keeper uses it */
    hdi_region **table; /* by address */
    size_t count, room;
    hdi_region *leaving;
    /* the number of freed regions with pinned memory that the keeper got so far, and the number of
     * those that it unpinned */
    _Atomic uint64_t unpins, unpinned;
    hdi_region_info info[HDI_DEVICES_MAX + 1]; /* by owner; the host is the last one */
    /* placement=process: the addresses for pieces; NULL: not needed yet */
    hdi_blocks *addresses;
};

static struct hdi_regions *regions_of(hd_runtime *rt)
{
    return hdi_buffer_of(rt)->regions;
}

static hdi_region_info *regions_info_of(struct hdi_regions *all, int owner)
{
    return &all->info[owner == HDI_OWNER_HOST ? HDI_DEVICES_MAX : owner];
}

void hdi_regions_get_info(hd_runtime *rt, int owner, hdi_region_info *out)
{
    struct hdi_regions *all = regions_of(rt);
    hdi_mutex_lock(&all->lock);
    *out = *regions_info_of(all, owner);
    hdi_mutex_unlock(&all->lock);
}

/* ---- the table: the lock is held ---- */

/* The index of the first entry that ends after an address. */
static size_t regions_seek(const struct hdi_regions *all, uint64_t address)
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

static const hdi_region *regions_overlapping(const struct hdi_regions *all, uint64_t low, uint64_t high)
{
    size_t i = regions_seek(all, low);
    return i < all->count && all->table[i]->low < high ? all->table[i] : NULL;
}

static bool regions_insert(struct hdi_regions *all, hdi_region *e)
{
    if (all->count == all->room) {
        size_t room = all->room ? all->room * 2 : 16;
        hdi_region **table = realloc(all->table, room * sizeof(hdi_region *));
        if (!table) {
            return false;
        }
        all->table = table;
        all->room = room;
    }
    size_t i = regions_seek(all, e->low);
    memmove(&all->table[i + 1], &all->table[i], (all->count - i) * sizeof(hdi_region *));
    all->table[i] = e;
    all->count++;
    if (!e->own) {
        regions_info_of(all, e->owner)->count++;
        regions_info_of(all, e->owner)->bytes += e->high - e->low;
    }
    return true;
}

static void regions_take_out(struct hdi_regions *all, const hdi_region *e)
{
    size_t i = regions_seek(all, e->low);
    all->count--;
    memmove(&all->table[i], &all->table[i + 1], (all->count - i) * sizeof(hdi_region *));
}

/* ---- addresses that are the same in every process ---- */

/* Freed addresses are free at once, since the allocator of addresses waits for no work. */
static bool regions_always_finished(void *context, hdi_point point)
{
    (void)context;
    (void)point;
    return true;
}

/* The lock is held. */
static bool regions_make_addresses(struct hdi_regions *all)
{
    const hdi_blocks_config config = {.limit = HDI_PIECES_BYTES, .finished = regions_always_finished};
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    if (!all->addresses && hdi_blocks_create(&config, &all->addresses) == HD_OK &&
        hdi_blocks_grow(all->addresses, HDI_PIECES_BYTES) != HD_OK) {
        hdi_blocks_destroy(all->addresses);
        all->addresses = NULL;
    }
    hdi_attempt_end(&attempt);
    return all->addresses != NULL;
}

uint64_t hdi_regions_take_addresses(hd_runtime *rt, uint64_t bytes)
{
    struct hdi_regions *all = regions_of(rt);
    size_t offset = 0;
    hdi_points none = {0};
    hdi_mutex_lock(&all->lock);
    /* all sizes are multiples of one step, so all offsets are multiples of this step */
    bool taken = regions_make_addresses(all) && hdi_blocks_alloc(all->addresses, bytes, 0, &offset, &none) == HD_OK;
    hdi_mutex_unlock(&all->lock);
    hdi_points_release(&none);
    return taken ? HDI_PIECES_AT + offset : 0;
}

bool hdi_regions_have_addresses(uint64_t at)
{
    return at - HDI_PIECES_AT < HDI_PIECES_BYTES;
}

void hdi_regions_give_addresses(hd_runtime *rt, uint64_t at)
{
    struct hdi_regions *all = regions_of(rt);
    hdi_mutex_lock(&all->lock);
    if (hdi_regions_have_addresses(at)) {
        hdi_blocks_free(all->addresses, at - HDI_PIECES_AT, NULL, 0);
    }
    hdi_mutex_unlock(&all->lock);
}

/* ---- the end of a region ---- */

static void regions_count_end(struct hdi_regions *all, const hdi_region *e)
{
    hdi_mutex_lock(&all->lock);
    if (!e->own) {
        regions_info_of(all, e->owner)->count--;
        regions_info_of(all, e->owner)->bytes -= e->high - e->low;
    }
    hdi_mutex_unlock(&all->lock);
}

/* Ends a region whose memory nothing uses any more. This thread owns the region, and no lock is
 * held. */
static void region_finish(hdi_region *e, bool closing)
{
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    if (e->give_back) {
        e->give_back(e, closing);
    }
    if (e->unpins) {
        atomic_fetch_add_explicit(&regions_of(e->runtime)->unpinned, 1, memory_order_release);
    }
    regions_count_end(regions_of(e->runtime), e);
    if (e->released) {
        hdi_apart apart = hdi_presence_apart();
        e->released(e->context);
        hdi_presence_together(apart);
    }
    hdi_attempt_end(&attempt);
    free(e->points);
    free(e);
}

bool hdi_regions_unpin(hd_runtime *rt, uint64_t *unpinned)
{
    struct hdi_regions *all = regions_of(rt);
    /* Acquire: pairs with the release in region_finish. So a thread that sees the end of a region
     * can pin the bytes again. */
    *unpinned = all ? atomic_load_explicit(&all->unpinned, memory_order_acquire) : 0;
    /* the keeper does not wait for itself */
    return all && atomic_load_explicit(&all->unpins, memory_order_relaxed) != *unpinned && !hdi_thread_is_own();
}

static bool region_waits_for(const hdi_region *e, hdi_of_point of, void *context)
{
    for (size_t i = 0; i < e->n_points; i++) {
        if (!hdi_point_done(e->runtime, e->points[i]) && of(context, e->points[i])) {
            return true;
        }
    }
    return false;
}

void hdi_regions_get_leaving(hd_runtime *rt, int owner, hdi_of_point of, void *context, hdi_region_leaving *out)
{
    struct hdi_regions *all = regions_of(rt);
    *out = (hdi_region_leaving){.bytes = 0};
    hdi_mutex_lock(&all->lock);
    for (const hdi_region *e = all->leaving; e; e = e->next) {
        if (e->own && e->owner == owner && region_waits_for(e, of, context)) {
            out->bytes += e->high - e->low;
            out->count++;
            if (e->label[0]) {
                memcpy(out->label, e->label, sizeof out->label);
            }
        }
    }
    hdi_mutex_unlock(&all->lock);
}

static uint64_t region_untold_bytes(const hdi_region *e)
{
    return e->pin && !e->released ? e->high - e->low : 0;
}

uint64_t hdi_regions_untold_bytes(hd_runtime *rt)
{
    struct hdi_regions *all = regions_of(rt);
    uint64_t bytes = 0;
    hdi_mutex_lock(&all->lock);
    for (size_t i = 0; i < all->count; i++) {
        bytes += region_untold_bytes(all->table[i]);
    }
    for (const hdi_region *e = all->leaving; e; e = e->next) {
        bytes += region_untold_bytes(e);
    }
    hdi_mutex_unlock(&all->lock);
    return bytes;
}

/* ---- the keeper ---- */

/* True if a lost device of this process still runs work that counts as finished. Calls the
 * driver. */
static bool regions_lost_work_goes_on(const hd_runtime *rt)
{
    bool busy = false;
    for (int i = 0; i < rt->n_devices && !busy; i++) {
        busy = hdi_device_lost(rt->devices[i]) && hdi_engine_is_busy(rt->devices[i]);
    }
    return busy;
}

/* The first point that is not done; NULL: all points are done. */
static const hdi_point *region_pending(const hdi_region *e)
{
    for (size_t i = 0; i < e->n_points; i++) {
        if (!hdi_point_done(e->runtime, e->points[i])) {
            return &e->points[i];
        }
    }
    return NULL;
}

/* Takes a region whose work is done out of the list. `pins`: the region may be one with pinned
 * memory.
 * NULL: no region can end now. Then *wait is an unfinished point of the first region that has one.
 * If the position of *wait is 0, the work of all regions is done. The regions then wait for a lost
 * device, or for a time at which their memory can be unpinned. The lock is held. */
static hdi_region *region_take_due(struct hdi_regions *all, bool busy, bool pins, hdi_point *wait)
{
    *wait = (hdi_point){0, 0};
    for (hdi_region **link = &all->leaving; *link; link = &(*link)->next) {
        const hdi_point *point = region_pending(*link);
        if (!point && !busy && (pins || !(*link)->pin)) {
            hdi_region *e = *link;
            *link = e->next;
            return e;
        }
        if (point && wait->position == 0) {
            *wait = *point;
        }
    }
    return NULL;
}

static int64_t regions_run_keeper(void *context)
{
    struct hdi_regions *all = context;
    hd_runtime *rt = all->runtime;
    hdi_mutex_lock(&all->lock);
    bool empty = !all->leaving;
    hdi_mutex_unlock(&all->lock);
    if (empty) {
        return INT64_MAX;
    }
    bool busy = regions_lost_work_goes_on(rt);
    for (int i = 0; rt->is_inline && i < rt->n_devices; i++) {
        /* with placement inline no other thread may notice finished work */
        hdi_engine_run_inline(rt->devices[i]);
    }
    bool pins = hdi_rest_is_near(&all->rest, rt);
    hdi_point wait;
    hdi_mutex_lock(&all->lock);
    hdi_region *e = region_take_due(all, busy, pins, &wait);
    hdi_mutex_unlock(&all->lock);
    if (e) {
        HDI_INSIDE_STILL(rt); /* hd_close waits for the function, which may call the library */
        region_finish(e, false);
        return 0;
    }
    if (wait.position && !hdi_is_closing(rt)) {
        hdi_wait_position_unrecorded(rt, wait.lane, wait.position, hdi_deadline(LOOK_NS));
        return 0;
    }
    return hdi_deadline(LOOK_NS);
}

/* Takes a region out of the table. After this call, a new import may contain the region's bytes.
 * `kept`: the keeper gets the region. Then the new import waits for the region's unfinished work.
 * The lock is held. */
static void region_let_go(struct hdi_regions *all, hdi_region *e, bool kept)
{
    regions_take_out(all, e);
    e->buffer = NULL;
    if (kept) {
        e->next = all->leaving;
        all->leaving = e;
        e->unpins = e->pin != NULL;
        atomic_fetch_add_explicit(&all->unpins, e->unpins, memory_order_relaxed);
        hdi_service_wake(&all->keeper);
    }
}

/* Leaves a region to the keeper: moves it from the table into the list under one hold of the lock.
 * So an import of the same bytes finds the region in the table or in the list. False: no thread can
 * be started. */
static bool region_leave_to_keeper(struct hdi_regions *all, hdi_region *e)
{
    /* after the keeper's stop, regions_release ends the region */
    bool kept = hdi_service_start(&all->keeper);
    if (kept) {
        hdi_mutex_lock(&all->lock);
        region_let_go(all, e, true);
        hdi_mutex_unlock(&all->lock);
    }
    return kept;
}

static void region_end_here(struct hdi_regions *all, hdi_region *e)
{
    for (const hdi_point *p; (p = region_pending(e)) != NULL;) {
        hdi_wait_position(e->runtime, p->lane, p->position, INT64_MAX);
    }
    hdi_mutex_lock(&all->lock);
    region_let_go(all, e, false);
    hdi_mutex_unlock(&all->lock);
    region_finish(e, false);
}

/* Appends those of the region's points that belong to writers. `points` has room for them. */
static void region_note_writers(hdi_region *e, struct hd_buffer *b)
{
    hdi_buffer_uses_lock(b);
    size_t n = hdi_uses_pending(e->runtime, &b->uses, 0, b->bytes, false, e->points + e->n_points, e->n_points);
    hdi_buffer_uses_unlock(b);
    if (n > e->n_points) { /* `n` may count a lane twice; then all points count as writers */
        memcpy(e->points + e->n_points, e->points, e->n_points * sizeof *e->points);
        n = e->n_points;
    }
    e->n_writers = n;
}

/* Called when the buffer was freed and no hold keeps its memory. */
static void region_leave(struct hd_buffer *b, const hdi_point *points, size_t n_points)
{
    hd_runtime *rt = b->runtime;
    struct hdi_regions *all = regions_of(rt);
    hdi_region *e = b->of_kind;
    if (e->pin) {
        hdi_pin_freed(rt, e->pin);
    }
    hdi_buffers_lock(rt);
    memcpy(e->label, b->label, sizeof e->label);
    hdi_buffers_unlock(rt);
    bool lost = false;
    for (int i = 0; i < rt->n_devices; i++) {
        lost |= hdi_device_lost(rt->devices[i]);
    }
    e->points = n_points ? malloc(2 * n_points * sizeof *points) : NULL;
    e->n_points = e->points ? n_points : 0;
    if (e->points) {
        memcpy(e->points, points, n_points * sizeof *points);
        region_note_writers(e, b);
    }
    /* the list has no room for these points, so this thread waits for them */
    for (size_t i = e->n_points; i < n_points; i++) {
        hdi_wait_position(rt, points[i].lane, points[i].position, INT64_MAX);
    }
    bool at_once = n_points == 0 && !lost && !e->give_back && !hdi_thread_is_own();
    if (at_once || !region_leave_to_keeper(all, e)) {
        region_end_here(all, e);
    }
}

const hdi_buffer_ops hdi_region_device_ops = {.leave = region_leave};
const hdi_buffer_ops hdi_region_host_ops = {
    .map = hdi_buffer_host_map, .bring = hdi_buffer_host_bring, .leave = region_leave};

/* ---- the end of the runtime ---- */

static hd_status regions_create(hd_runtime *rt)
{
    struct hdi_regions *all = calloc(1, sizeof *all);
    if (!all) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    all->runtime = rt;
    hdi_mutex_init(&all->lock, HDI_RANK_REGIONS);
    hdi_service_init(&all->keeper, regions_run_keeper, all);
    hdi_buffer_of(rt)->regions = all;
    return HD_OK;
}

static void regions_stop(hd_runtime *rt)
{
    struct hdi_regions *all = regions_of(rt);
    if (!all) {
        return;
    }
    hdi_service_stop(&all->keeper);
}

/* No other thread uses the runtime. If work did not end, its memory stays as it is. */
static void regions_release(hd_runtime *rt)
{
    struct hdi_regions *all = regions_of(rt);
    if (!all) {
        return;
    }
    while (all->leaving || all->count) {
        hdi_region *e = all->leaving;
        if (e) {
            all->leaving = e->next;
        } else {
            e = all->table[all->count - 1];
            regions_take_out(all, e);
        }
        if (rt->hung) {
            free(e->points);
            free(e);
        } else {
            region_finish(e, true);
        }
    }
    hdi_service_destroy(&all->keeper);
    hdi_rest_end(&all->rest);
    hdi_mutex_destroy(&all->lock);
    free(all->table);
    hdi_blocks_destroy(all->addresses);
    free(all);
    hdi_buffer_of(rt)->regions = NULL;
}

const hdi_lifetime hdi_regions_lifetime = {.create = regions_create, .stop = regions_stop, .release = regions_release};

/* ---- making a region ---- */

static bool region_is_left(const hdi_region *e, const hdi_region *left)
{
    return left->owner == e->owner && left->low < e->high && e->low < left->high;
}

/* True if work may still use a freed region with some of the same bytes. The lock is held. */
static bool region_has_left(const struct hdi_regions *all, const hdi_region *e)
{
    const hdi_region *left = all->leaving;
    while (left && !(region_is_left(e, left) && left->n_points)) {
        left = left->next;
    }
    return left != NULL;
}

/* Adds the points of freed regions with some of the same bytes to the record of a buffer that has
 * no handle yet. `writers`: adds only points of writers. *any: the record got points. */
static hd_status region_inherit(const hdi_region *e, bool writers, bool *any)
{
    struct hdi_regions *all = regions_of(e->runtime);
    bool noted = true;
    *any = false;
    hdi_mutex_lock(&all->lock);
    for (const hdi_region *left = all->leaving; left && noted; left = left->next) {
        const hdi_point *points = writers ? left->points + left->n_points : left->points;
        size_t n = region_is_left(e, left) ? (writers ? left->n_writers : left->n_points) : 0;
        for (size_t i = 0; i < n && noted; i++) {
            hdi_buffer_uses_lock(e->buffer);
            noted = hdi_uses_inherit(all->runtime, &e->buffer->uses, points[i]);
            hdi_buffer_uses_unlock(e->buffer);
            *any = true;
        }
    }
    hdi_mutex_unlock(&all->lock);
    return noted ? HD_OK : hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for use records");
}

/* The lock is held. */
static hd_status region_refuse_overlap(hd_runtime *rt, const hdi_region *e, uint64_t low, uint64_t high)
{
    char label[HD_LABEL_BYTES] = "";
    hdi_buffers_lock(rt);
    memcpy(label, e->buffer->label, sizeof label);
    hdi_buffers_unlock(rt);
    return hdi_fail(HD_ERROR_ARGUMENT,
                    "%" PRIu64 " bytes at 0x%" PRIx64 " overlap the %s%s%s%s of %" PRIu64 " bytes at 0x%" PRIx64
                    "; hd_free that one first, or use its buffer",
                    high - low, low, e->own ? "piece" : "import", label[0] ? " '" : "", label, label[0] ? "'" : "",
                    e->high - e->low, e->low);
}

hd_status hdi_region_enlist(hdi_region *e, bool *inherited)
{
    hd_runtime *rt = e->runtime;
    struct hdi_regions *all = regions_of(rt);
    hdi_mutex_lock(&all->lock);
    const hdi_region *other = regions_overlapping(all, e->low, e->high);
    hd_status status = other ? region_refuse_overlap(rt, other, e->low, e->high) : HD_OK;
    *inherited = !status && region_has_left(all, e);
    if (!status && !regions_insert(all, e)) {
        status = hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for a list of regions");
    }
    hdi_mutex_unlock(&all->lock);
    return status;
}

void hdi_region_unlist(hdi_region *e)
{
    hd_runtime *rt = e->runtime;
    struct hdi_regions *all = regions_of(rt);
    hdi_mutex_lock(&all->lock);
    regions_take_out(all, e);
    hdi_mutex_unlock(&all->lock);
    regions_count_end(all, e);
}

/* Submits a write of no bytes behind all work in the record. Later readers then wait for this
 * write, and so for that work. */
static hd_status region_submit_mark(const hdi_region *e)
{
    struct hd_buffer *b = e->buffer;
    hdi_device *device = e->owner == HDI_OWNER_HOST ? hdi_any_device(e->runtime) : e->runtime->devices[e->owner];
    const hdi_use use = {.buffer = b, .losses = hdi_buffer_losses(b), .high = b->bytes, .write = true, .whole = true};
    hdi_command command = {.op = HDI_OP_FILL, .slots = 1};
    command.fill.dst = b->address;
    return hdi_submit(device->lane_on, &use, 1, &command, NULL);
}

hd_status hdi_region_mark(hdi_region *e)
{
    bool any;
    hd_status status = region_inherit(e, true, &any);
    status = status || !any ? status : region_submit_mark(e);
    /* these points come after the mark, so that the mark does not wait for readers */
    return status ? status : region_inherit(e, false, &any);
}

void hdi_region_drop(hdi_region *e)
{
    struct hd_buffer *b = e->buffer;
    if (b) {
        hdi_record_release(b);
        hdi_buffer_give(e->runtime, b);
    }
    free(e);
}

hd_status hdi_region_make(hd_runtime *rt, int owner, uint64_t low, size_t bytes, const hd_import_options *options,
                          hdi_region **out)
{
    hdi_region *e = calloc(1, sizeof *e);
    struct hd_buffer *b = e ? hdi_buffer_take(rt) : NULL;
    if (!b) {
        free(e);
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for a handle");
    }
    *e = (hdi_region){.runtime = rt, .buffer = b, .low = low, .high = low + bytes, .owner = owner};
    if (options) {
        e->released = options->released;
        e->context = options->context;
    }
    hdi_buffer_label(b, options ? options->label : NULL);
    *out = e;
    return HD_OK;
}

void hdi_region_give_out(hdi_region *e, const void *call_site, hd_buffer **out)
{
    struct hd_buffer *b = e->buffer;
    b->call_site = call_site;
    hdi_buffer_make_live(b);
    *out = hdi_buffer_handle(b);
}

/* ---- other devices ---- */

/* Asks whether the driver lets the current context use the memory. */
static hdi_answer region_ask_access(const hdi_driver *driver, uint64_t address)
{
    int flags = 0;
    hdcu_result r = driver->cuPointerGetAttribute(&flags, HDCU_POINTER_ATTRIBUTE_ACCESS_FLAGS, address);
    if (r == HDCU_SUCCESS && flags != HDCU_MEM_ACCESS_READWRITE) {
        return (hdi_answer){HDCU_ERROR_PEER_ACCESS_NOT_ENABLED, "cuPointerGetAttribute"};
    }
    return (hdi_answer){r, "cuPointerGetAttribute"};
}

/* Lets the pair's contexts use each other's memory, then asks the driver. Both steps must succeed.
 * For memory of cuMemAlloc, driver 580 reports access even if peer access is not enabled, and a
 * kernel that uses the memory then faults. */
static hdi_answer region_ask_driver(const hdi_region *e, int from)
{
    hd_runtime *rt = e->runtime;
    hdi_scope scope;
    if (!rt->driver || hdi_scope_enter(rt->devices[from], &scope) != HD_OK) {
        return (hdi_answer){HDCU_ERROR_PEER_ACCESS_NOT_ENABLED, ""};
    }
    hdcu_result r = rt->driver->cuCtxEnablePeerAccess(rt->devices[e->owner]->context, 0);
    bool enabled = r == HDCU_SUCCESS || r == HDCU_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    hdi_answer answer = enabled ? region_ask_access(rt->driver, e->low) : (hdi_answer){r, "cuCtxEnablePeerAccess"};
    hdi_scope_leave(&scope);
    return answer;
}

hdi_answer hdi_region_reach_now(struct hd_buffer *b, int from)
{
    hd_runtime *rt = b->runtime;
    uint64_t word = hdi_self_get(&b->self);
    hdi_answer answer = {HDCU_ERROR_INVALID_VALUE, ""};
    /* While the hold lasts, no other buffer gets the structure, so the bit describes this
     * buffer. */
    if ((word & HDI_SELF_DEAD) || !hdi_hold_begin(b, word & ~HDI_SELF_LOST)) {
        return answer;
    }
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    hdi_mutex_lock(&hdi_peer_of(rt)->linking);
    uint64_t bit = (uint64_t)1 << from;
    if (atomic_load_explicit(&b->reach, memory_order_relaxed) & bit) {
        answer = (hdi_answer){HDCU_SUCCESS, ""};
    } else if (hdi_buffer_is_imported(b)) {
        hdi_region *e = b->of_kind;
        answer = e->grant ? e->grant(e, from) : region_ask_driver(e, from);
    }
    if (hdi_answered(answer)) {
        atomic_fetch_or_explicit(&b->reach, bit, memory_order_relaxed);
    }
    hdi_mutex_unlock(&hdi_peer_of(rt)->linking);
    hdi_attempt_end(&attempt);
    hdi_hold_end(b);
    return answer;
}

void hdi_regions_forget_peer(hd_runtime *rt, int peer)
{
    struct hdi_regions *all = regions_of(rt);
    uint64_t others = ~((uint64_t)1 << peer);
    hdi_mutex_lock(&hdi_peer_of(rt)->linking); /* protects `mapped_for` */
    hdi_mutex_lock(&all->lock);
    for (size_t i = 0; i < all->count; i++) {
        atomic_fetch_and_explicit(&all->table[i]->buffer->reach, others, memory_order_relaxed);
        all->table[i]->mapped_for &= others;
    }
    for (hdi_region *e = all->leaving; e; e = e->next) {
        e->mapped_for &= others;
    }
    hdi_mutex_unlock(&all->lock);
    hdi_mutex_unlock(&hdi_peer_of(rt)->linking);
}
