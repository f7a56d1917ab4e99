/* archive.c - failures that have left their lane's log, and how they get here. Its purpose: see failures.h.
 *
 * The program may keep a ticket forever, so nothing here is ever dropped. But what fails again and again mostly does so
 * at equal distances. Such failures share an entry. So a loop whose kernel fails a million times takes one entry.
 *
 * Threads, Locks: see failures.h.
 * Always:
 * - A record is complete in the archive before it leaves the log, so a reader that misses it in the log finds it here.
 * - Positions rise.
 * - Entries yield exactly the records that went in. What lies between two of them has succeeded, also within an
 * entry.
 */
#include "base/lock.h"
#include "engine/failures.h"

#include <stdlib.h>
#include "base/wait.h"
#include "engine/engine.h"

#define ROOM_FIRST 1024
#define UNSURE_NS 1000000000 /* no live writer takes so long for a record */
#define UNSURE_SLEEP_NS 20000

/* Stretches of positions that failed alike, each an hdi_failure. They have one length and begin at equal distances.
 * From one to the next, the position to blame rises by equal steps. */
typedef struct entry {
    uint64_t from, to; /* of the first, and of the last */
    uint64_t position; /* to blame for the first */
    uint64_t length;
    uint32_t lane;
    int32_t driver_code;
    uint32_t distance; /* from one's first position to the next one's; 0: there is only one */
    uint32_t step;     /* of the position to blame */
    uint16_t kernel;
    uint8_t op;
    uint8_t flags; /* LOST and so on */
} entry;

enum { LOST = 1, INHERITED = 2, WAITED = 4 };

struct hdi_archive {
    hdi_mutex moving; /* covers `until` and `heads`; order locks may be taken within */
    hdi_mutex lock;   /* covers the entries; may be taken within an order lock */
    entry *entries;
    size_t count, room;
    /* The next records that may leave the log: those up to `until`. They may leave once each lane has done what it had
     * been given when this lane was seen done that far. */
    uint64_t until;  /* 0: nothing is planned */
    uint64_t *heads; /* per lane of the runtime */
};

hdi_archive *hdi_archive_make(void)
{
    hdi_archive *archive = calloc(1, sizeof *archive);
    if (archive) {
        hdi_mutex_init(&archive->moving, HDI_RANK_ARCHIVES);
        hdi_mutex_init(&archive->lock, HDI_RANK_FAILURES);
    }
    return archive;
}

void hdi_archive_free(hdi_archive *archive)
{
    if (archive) {
        hdi_mutex_destroy(&archive->lock);
        hdi_mutex_destroy(&archive->moving);
        free(archive->entries);
        free(archive->heads);
        free(archive);
    }
}

size_t hdi_archive_entries(hdi_archive *archive)
{
    hdi_mutex_lock(&archive->lock);
    size_t count = archive->count;
    hdi_mutex_unlock(&archive->lock);
    return count;
}

/* ---- finding ---- */

/* The last stretch of an entry that begins at the position or before. */
static hdi_failure stretch_with(const entry *e, uint64_t position)
{
    uint64_t number = e->distance ? (position - e->from) / e->distance : 0;
    uint64_t from = e->from + number * e->distance;
    return (hdi_failure){
        .from = from,
        .to = from + (e->length - 1),
        .position = e->position + number * e->step,
        .lane = e->lane,
        .driver_code = e->driver_code,
        .kernel = e->kernel,
        .op = e->op,
        .lost = (e->flags & LOST) != 0,
        .inherited = (e->flags & INHERITED) != 0,
        .waited = (e->flags & WAITED) != 0,
    };
}

static bool find_archived(hdi_archive *archive, uint64_t position, hdi_failure *out)
{
    bool found = false;
    hdi_mutex_lock(&archive->lock);
    size_t low = 0;
    for (size_t high = archive->count; high > low;) {
        size_t middle = low + (high - low) / 2;
        if (archive->entries[middle].to < position) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low < archive->count && archive->entries[low].from <= position) {
        *out = stretch_with(&archive->entries[low], position);
        found = position <= out->to;
    }
    hdi_mutex_unlock(&archive->lock);
    return found;
}

/* As hdi_failure_logged, but waits until it is sure. */
static bool find_logged(hdi_device *device, uint32_t number, uint64_t position, hdi_failure *out)
{
    hdi_logged logged = hdi_failure_logged(&device->channel, number, position, out);
    for (int64_t deadline = 0; logged == HDI_LOGGED_UNSURE;) {
        int64_t now = hdi_clock_ns();
        deadline = deadline ? deadline : now + UNSURE_NS;
        if (device->runtime->is_process && now > deadline) {
            hdi_device_give_up(device);
            *out = (hdi_failure){
                .from = position,
                .to = position,
                .position = position,
                .lane = (uint32_t)device->index * HDI_LANES_MAX + number,
                .driver_code = HDI_GONE_CORRUPTED,
                .lost = 1,
            };
            return true;
        }
        hdi_sleep_for(UNSURE_SLEEP_NS);
        logged = hdi_failure_logged(&device->channel, number, position, out);
    }
    return logged == HDI_LOGGED_YES;
}

/* Corrects a record that a worker process wrote. It names no lane that does not exist, and no loss that the application
 * has not seen. */
static void tame(const hd_runtime *rt, uint32_t lane, hdi_failure *f)
{
    if (rt->is_process) {
        f->lane = f->lane < (uint32_t)rt->n_devices * HDI_LANES_MAX ? f->lane : lane;
        const hdi_device *blamed = rt->devices[f->lane / HDI_LANES_MAX];
        bool lost = hdi_device_given_up(blamed) || atomic_load_explicit(&blamed->losses, memory_order_acquire);
        f->lost = f->lost && lost;
    }
}

bool hdi_failure_find(hd_runtime *rt, uint32_t lane, uint64_t position, hdi_failure *out)
{
    hdi_device *device = hdi_lane_owner(rt, lane);
    uint32_t number = lane % HDI_LANES_MAX;
    if (atomic_load_explicit(&device->channel.lanes[number].failure_changes, memory_order_acquire) == 0) {
        return false;
    }
    if (find_logged(device, number, position, out)) {
        tame(rt, lane, out);
        return true;
    }
    /* Searched after the log, which gives up only what is here. A lane that was never made has neither. */
    const hd_lane *of = device->lanes[number];
    return of && position <= atomic_load_explicit(&of->failures_archived, memory_order_acquire) &&
           find_archived(of->archive, position, out);
}

/* ---- moving ---- */

static uint64_t used(const hd_lane *lane)
{
    return atomic_load_explicit(&lane->shared->failures_end, memory_order_acquire) -
           atomic_load_explicit(&lane->failures_first, memory_order_acquire);
}

bool hdi_failures_have_room(const hd_lane *lane)
{
    const hdi_channel *channel = &lane->device->channel;
    return used(lane) <= channel->failures_room - channel->slots;
}

bool hdi_failures_are_many(const hd_lane *lane)
{
    return used(lane) > lane->device->channel.failures_room / 4;
}

/* Notes how far each lane is filled. A submission that began before holds the order lock of its lane until it is in the
 * ring. One that begins later sees that this lane is done as far as `until`. */
static bool plan(hd_lane *of)
{
    hd_runtime *rt = of->device->runtime;
    hdi_archive *archive = of->archive;
    if (!archive->heads) {
        archive->heads = calloc((size_t)rt->n_devices * HDI_LANES_MAX, sizeof *archive->heads);
        if (!archive->heads) {
            return false;
        }
    }
    archive->until = atomic_load_explicit(&of->shared->done, memory_order_acquire);
    for (int d = 0; d < rt->n_devices; d++) {
        hdi_device *device = rt->devices[d];
        hdi_lock_take(&device->order);
        uint32_t made = atomic_load_explicit(&device->lanes_made, memory_order_acquire);
        for (uint32_t i = 0; i < HDI_LANES_MAX; i++) {
            archive->heads[(size_t)d * HDI_LANES_MAX + i] = i < made ? device->lanes[i]->head : 0;
        }
        hdi_lock_release(&device->order);
    }
    return true;
}

/* Finds the first lane that has not done all that it had been given. False: there is none. */
static bool find_behind(hd_runtime *rt, const hdi_archive *archive, uint32_t *lane, uint64_t *position)
{
    for (uint32_t i = 0; i < (uint32_t)rt->n_devices * HDI_LANES_MAX; i++) {
        if (archive->heads[i] && !hdi_point_done(rt, (hdi_point){i, archive->heads[i]})) {
            *lane = i;
            *position = archive->heads[i];
            return true;
        }
    }
    return false;
}

/* Whether a stretch continues an entry, and at which distance and step. */
static bool goes_on(const entry *e, const entry *one, uint32_t *distance, uint32_t *step)
{
    const hdi_failure last = stretch_with(e, e->to);
    uint64_t on = one->from - last.from, blamed = one->position - last.position;
    *distance = (uint32_t)on;
    *step = (uint32_t)blamed;
    bool alike = e->lane == one->lane && e->driver_code == one->driver_code && e->kernel == one->kernel &&
                 e->op == one->op && e->flags == one->flags && e->length == one->length;
    return alike && on != 0 && on <= UINT32_MAX && blamed <= UINT32_MAX &&
           (e->distance == 0 || (e->distance == on && e->step == blamed));
}

static bool append(hdi_archive *archive, const hdi_failure *f)
{
    const entry e = {
        .from = f->from,
        .to = f->to,
        .position = f->position,
        .length = f->to - f->from + 1,
        .lane = f->lane,
        .driver_code = f->driver_code,
        .kernel = (uint16_t)f->kernel,
        .op = f->op,
        .flags = (uint8_t)((f->lost ? LOST : 0) | (f->inherited ? INHERITED : 0) | (f->waited ? WAITED : 0)),
    };
    entry *last = archive->count ? &archive->entries[archive->count - 1] : NULL;
    uint32_t distance, step;
    if (last && goes_on(last, &e, &distance, &step)) {
        last->to = f->to;
        last->distance = distance;
        last->step = step;
        return true;
    }
    if (archive->count == archive->room) {
        size_t room = archive->room ? 2 * archive->room : ROOM_FIRST;
        entry *more = realloc(archive->entries, room * sizeof *more);
        if (!more) {
            return false;
        }
        archive->entries = more;
        archive->room = room;
    }
    archive->entries[archive->count++] = e;
    return true;
}

/* Moves records that are done and that no reader can look for in the log any more. False: no memory for all of them. */
static bool move(hd_lane *of)
{
    const hdi_channel *channel = &of->device->channel;
    hdi_archive *archive = of->archive;
    hdi_failure f;
    bool appended = true;
    while (appended && hdi_failure_first(channel, of->number, &f) && f.to <= archive->until) {
        tame(of->device->runtime, of->global, &f);
        hdi_mutex_lock(&archive->lock);
        appended = append(archive, &f);
        hdi_mutex_unlock(&archive->lock);
        if (appended) {
            atomic_store_explicit(&of->failures_archived, f.to, memory_order_release);
            hdi_failure_drop_first(of);
        }
    }
    archive->until = appended ? 0 : archive->until;
    return appended;
}

hdi_archived hdi_failures_archive(hd_lane *of, uint32_t *lane, uint64_t *position)
{
    hdi_archive *archive = of->archive;
    hdi_archived result = HDI_ARCHIVED_NO_MEMORY;
    hdi_mutex_lock(&archive->moving);
    if (archive->until || plan(of)) {
        bool behind = find_behind(of->device->runtime, archive, lane, position);
        result = behind ? HDI_ARCHIVED_BEHIND : move(of) ? HDI_ARCHIVED : HDI_ARCHIVED_NO_MEMORY;
    }
    hdi_mutex_unlock(&archive->moving);
    return result;
}
