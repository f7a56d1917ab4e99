/* failures.c - the log of a lane's failures in its shared memory, and the archive of those that
 * left it. Their purpose: see failures.h.
 *
 * The program may keep a ticket forever, so the archive drops nothing. But failures that repeat
 * mostly come at equal distances, and then share an entry. So a loop whose kernel fails a million
 * times takes one entry.
 *
 * Threads, Locks: see failures.h.
 * Always:
 * - Records of the log are sorted and do not overlap. Records of done positions do not change any
 *   more.
 * - A reader that races with the writer sees `failure_changes` move and reads again.
 * - A record is complete in the archive before it leaves the log, so a reader that misses it in the
 *   log finds it there.
 * - Positions in the archive rise. Its entries yield exactly the records that went in. Positions
 *   between two records succeeded, also within an entry. Only between claims that share an entry,
 *   positions without a ticket count as failed, too.
 */
#include <stdlib.h>
#include <string.h>
#include "base/lock.h"
#include "base/wait.h"
#include "engine/engine.h"
#include "engine/failures.h"

#define TRIES 64 /* a writer needs less time than one try, unless it is held up */
#define ROOM_FIRST 8
#define UNSURE_NS 1000000000 /* no live writer takes this long for a record */
#define UNSURE_SLEEP_NS 20000

/* ---- the log ---- */

/* The place of the record with this number. Numbers lie between `failures_first` and
 * `failures_end`, and never change. */
static _Atomic uint64_t *failure_record_at(const hdi_channel *channel, uint32_t lane, uint64_t number)
{
    return channel->failures +
           ((size_t)lane * channel->failures_room + (number & (channel->failures_room - 1))) * HDI_FAILURE_WORDS;
}

/* A seqlock without fences. The writer's word stores release the odd count stored before them. The
 * reader's word loads acquire. So a reader that saw a new word also sees that the count moved. */
static void failure_read_record(const hdi_channel *channel, uint32_t lane, uint64_t number, hdi_failure *out)
{
    const _Atomic uint64_t *at = failure_record_at(channel, lane, number);
    uint64_t words[HDI_FAILURE_WORDS];
    for (size_t i = 0; i < HDI_FAILURE_WORDS; i++) {
        words[i] = atomic_load_explicit(&at[i], memory_order_acquire);
    }
    memcpy(out, words, sizeof words);
}

static void failure_write_record(const hdi_channel *channel, uint32_t lane, uint64_t number, const hdi_failure *failure)
{
    _Atomic uint64_t *at = failure_record_at(channel, lane, number);
    uint64_t words[HDI_FAILURE_WORDS];
    memcpy(words, failure, sizeof words);
    for (size_t i = 0; i < HDI_FAILURE_WORDS; i++) {
        /* pairs with the acquire loads in failure_read_record */
        atomic_store_explicit(&at[i], words[i], memory_order_release);
    }
}

static void failure_begin_change(hdi_lane_shared *lane)
{
    uint64_t changes = atomic_load_explicit(&lane->failure_changes, memory_order_relaxed);
    atomic_store_explicit(&lane->failure_changes, changes + 1, memory_order_relaxed);
}

static void failure_end_change(hdi_lane_shared *lane, uint64_t end)
{
    atomic_store_explicit(&lane->failures_end, end, memory_order_release);
    uint64_t changes = atomic_load_explicit(&lane->failure_changes, memory_order_relaxed);
    /* pairs with the readers' acquire load of `failure_changes` */
    atomic_store_explicit(&lane->failure_changes, changes + 1, memory_order_release);
}

/* Returns the number behind the last record. *first: the number of the first one. A crashed engine
 * may have left any values there. */
static uint64_t failure_log_bounds(const hdi_channel *channel, uint32_t lane, uint64_t *first)
{
    const hdi_lane_shared *shared = &channel->lanes[lane];
    *first = atomic_load_explicit(&shared->failures_first, memory_order_acquire);
    uint64_t end = atomic_load_explicit(&shared->failures_end, memory_order_acquire);
    return end - *first <= channel->failures_room ? end : *first;
}

/* The number of the last record that begins at `position` or before; `first` - 1 without one. */
static uint64_t failure_last_before(const hdi_channel *channel, uint32_t lane, uint64_t first, uint64_t end,
                                    uint64_t position, hdi_failure *out)
{
    uint64_t low = first - 1;
    for (uint64_t high = end; high - low > 1;) {
        uint64_t middle = low + (high - low) / 2;
        hdi_failure failure;
        failure_read_record(channel, lane, middle, &failure);
        if (failure.from <= position) {
            low = middle;
            *out = failure;
        } else {
            high = middle;
        }
    }
    return low;
}

/* True if nothing changed since `before` was loaded. */
static bool failure_log_is_stable(const hdi_lane_shared *lane, uint64_t before)
{
    return (before & 1) == 0 && atomic_load_explicit(&lane->failure_changes, memory_order_relaxed) == before;
}

hdi_logged hdi_failure_logged(const hdi_channel *channel, uint32_t lane, uint64_t position, hdi_failure *out)
{
    const hdi_lane_shared *shared = &channel->lanes[lane];
    for (int i = 0; i < TRIES; i++) {
        uint64_t before = atomic_load_explicit(&shared->failure_changes, memory_order_acquire);
        uint64_t first, end = failure_log_bounds(channel, lane, &first);
        bool found = failure_last_before(channel, lane, first, end, position, out) != first - 1 && position <= out->to;
        if (failure_log_is_stable(shared, before)) {
            return found ? HDI_LOGGED_YES : HDI_LOGGED_NO;
        }
        hdi_spin_turn();
    }
    return HDI_LOGGED_UNSURE;
}

bool hdi_failure_end(const hd_lane *lane, uint64_t *out)
{
    const hdi_channel *channel = &lane->device->channel;
    for (int i = 0; i < TRIES; i++) {
        uint64_t before = atomic_load_explicit(&lane->shared->failure_changes, memory_order_acquire);
        uint64_t first, end = failure_log_bounds(channel, lane->number, &first);
        hdi_failure last = {.to = atomic_load_explicit(&lane->failures_archived, memory_order_acquire)};
        if (end != first) {
            failure_read_record(channel, lane->number, end - 1, &last);
        }
        if (failure_log_is_stable(lane->shared, before)) {
            *out = last.to;
            return true;
        }
        hdi_spin_turn();
    }
    return false;
}

/* Inserts a record that overlaps none of the others. The few records behind it move. */
static void failure_insert(const hdi_channel *channel, uint32_t lane, const hdi_failure *failure)
{
    hdi_lane_shared *shared = &channel->lanes[lane];
    uint64_t first, end = failure_log_bounds(channel, lane, &first);
    failure_begin_change(shared);
    if (end - first == channel->failures_room) {
        /* The log is never full here, because submissions keep enough room. If it were full, too
         * much would count as failed rather than too little. */
        hdi_failure last;
        failure_read_record(channel, lane, end - 1, &last);
        last.to = last.to > failure->to ? last.to : failure->to;
        failure_write_record(channel, lane, end - 1, &last);
        failure_end_change(shared, end);
        return;
    }
    uint64_t at = end;
    for (; at != first; at--) {
        hdi_failure before;
        failure_read_record(channel, lane, at - 1, &before);
        if (before.from < failure->from) {
            break;
        }
        failure_write_record(channel, lane, at, &before);
    }
    failure_write_record(channel, lane, at, failure);
    failure_end_change(shared, end + 1);
}

static bool failure_same_cause(const hdi_failure *a, const hdi_failure *b)
{
    hdi_failure other = *b;
    other.from = a->from;
    other.to = a->to;
    return memcmp(a, &other, sizeof other) == 0;
}

/* Extends the record with this number to `to`. */
static void failure_widen(const hdi_channel *channel, uint32_t lane, uint64_t number, uint64_t end, uint64_t to)
{
    hdi_failure failure;
    failure_read_record(channel, lane, number, &failure);
    failure_begin_change(&channel->lanes[lane]);
    failure.to = to;
    failure_write_record(channel, lane, number, &failure);
    failure_end_change(&channel->lanes[lane], end);
}

void hdi_failure_add(const hdi_channel *channel, uint32_t lane, const hdi_failure *failure)
{
    hdi_failure rest = *failure;
    /* Each round fills a gap between two records, so few rounds are enough. The limit ends the loop
     * if the log was overwritten. */
    for (uint32_t i = 0; i <= 2 * channel->failures_room && rest.from <= rest.to; i++) {
        uint64_t first, end = failure_log_bounds(channel, lane, &first);
        hdi_failure before, behind;
        uint64_t number = failure_last_before(channel, lane, first, end, rest.from, &before);
        if (number != first - 1 && before.to >= rest.from) {
            if (before.to >= rest.to) {
                return;
            }
            rest.from = before.to + 1;
            continue;
        }
        hdi_failure part = rest;
        if (number + 1 != end) {
            failure_read_record(channel, lane, number + 1, &behind);
            /* The next record begins behind `from`, unless the log was overwritten. */
            part.to = behind.from > part.from && behind.from <= part.to ? behind.from - 1 : part.to;
        }
        if (number != first - 1 && before.to + 1 == part.from && failure_same_cause(&before, &part)) {
            failure_widen(channel, lane, number, end, part.to);
        } else {
            failure_insert(channel, lane, &part);
        }
        if (part.to == rest.to) {
            return;
        }
        rest.from = part.to + 1;
    }
}

/* Gets the oldest record. False: there is none, or it is unsure (HDI_LOGGED_UNSURE). */
static bool failure_first(const hdi_channel *channel, uint32_t lane, hdi_failure *out)
{
    const hdi_lane_shared *shared = &channel->lanes[lane];
    for (int i = 0; i < TRIES; i++) {
        uint64_t before = atomic_load_explicit(&shared->failure_changes, memory_order_acquire);
        uint64_t first, end = failure_log_bounds(channel, lane, &first);
        if (end != first) {
            failure_read_record(channel, lane, first, out);
        }
        if (failure_log_is_stable(shared, before)) {
            return end != first;
        }
        hdi_spin_turn();
    }
    return false;
}

/* Removes the oldest record from the log. */
static void failure_drop_first(hd_lane *lane)
{
    /* pairs with the acquire load in failure_log_bounds: a reader that misses the record here finds
     * it in the archive */
    uint64_t first = atomic_load_explicit(&lane->failures_first, memory_order_relaxed) + 1;
    atomic_store_explicit(&lane->failures_first, first, memory_order_relaxed);
    atomic_store_explicit(&lane->shared->failures_first, first, memory_order_release);
}

void hdi_failure_repair(const hdi_channel *channel, uint32_t lane)
{
    hdi_lane_shared *shared = &channel->lanes[lane];
    uint64_t first, end = failure_log_bounds(channel, lane, &first);
    atomic_store_explicit(&shared->failures_end, end, memory_order_release);
    uint64_t changes = atomic_load_explicit(&shared->failure_changes, memory_order_acquire);
    if (changes & 1) {
        atomic_store_explicit(&shared->failure_changes, changes + 1, memory_order_release);
    }
}

uint64_t hdi_failure_mend(const hd_lane *lane)
{
    const hdi_channel *channel = &lane->device->channel;
    hdi_lane_shared *shared = lane->shared;
    uint64_t first = atomic_load_explicit(&lane->failures_first, memory_order_relaxed);
    uint64_t end = atomic_load_explicit(&shared->failures_end, memory_order_acquire);
    uint64_t known = atomic_load_explicit(&lane->failures_archived, memory_order_relaxed);
    bool sane = end - first <= channel->failures_room;
    uint64_t good = first;
    while (sane && good != end) {
        hdi_failure record;
        failure_read_record(channel, lane->number, good, &record);
        sane = record.from > known && record.to >= record.from && record.to <= lane->head;
        known = sane ? record.to : known;
        good += sane;
    }
    /* Sets a count that no reader knows, so that all readers read again. */
    uint64_t least = atomic_load_explicit(&lane->changes_least, memory_order_relaxed);
    uint64_t changes = atomic_load_explicit(&shared->failure_changes, memory_order_relaxed);
    uint64_t seen = lane->failures_known != HDI_FAILURES_UNKNOWN ? lane->failures_known : 0;
    least = seen > least ? seen : least;
    changes = changes > least && changes < UINT64_MAX / 2 ? changes : least;
    atomic_store_explicit(&shared->failures_first, first, memory_order_release);
    atomic_store_explicit(&shared->failures_end, good, memory_order_release);
    if (changes != 0 || !sane) {
        atomic_store_explicit(&shared->failure_changes, (changes | 1) + 1, memory_order_release);
    }
    return sane ? UINT64_MAX : known + 1;
}

void hdi_failure_close(const hdi_channel *channel, uint32_t lane, uint64_t to)
{
    hdi_lane_shared *shared = &channel->lanes[lane];
    uint64_t first, end = failure_log_bounds(channel, lane, &first);
    hdi_failure last;
    if (end == first) {
        return;
    }
    failure_read_record(channel, lane, end - 1, &last);
    if (last.to == UINT64_MAX) {
        failure_begin_change(shared);
        last.to = to;
        failure_write_record(channel, lane, end - 1, &last);
        /* If nothing was unfinished, the record covers nothing, and is removed. */
        failure_end_change(shared, to < last.from ? end - 1 : end);
    }
}

/* ---- the archive ---- */

/* Stretches of positions that failed alike, each an hdi_failure. They are of the same length and
 * begin at equal distances. From one stretch to the next, the position to blame rises by equal
 * steps. */
typedef struct entry {
    uint64_t from, to; /* the begin of the first stretch, and the end of the last */
    uint64_t position; /* the position to blame for the first stretch */
    uint64_t length;
    uint32_t lane;
    int32_t driver_code;
    /* from the begin of one stretch to the begin of the next; 0: there is only one */
    uint32_t distance;
    uint32_t step; /* of the position to blame */
    uint16_t kernel;
    uint8_t op;
    uint8_t flags; /* LOST and so on */
} entry;

/* CLAIMS: claims of this lane that failed one after the other, without a success in between. Each
 * one is to blame for itself, so the entry needs no rhythm. */
enum { LOST = 1, INHERITED = 2, WAITED = 4, CLAIMS = 8 };

/* Between the ends of two claims of a lane lie the slots of the second claim, and often a wait.
 * With more slots, a claim that succeeded may be in between. */
#define CLAIM_DISTANCE (HDI_CLAIM_SLOTS + 1)

struct hdi_archive {
    hdi_mutex moving; /* protects `until` and `heads`; order locks may be taken while it is held */
    hdi_mutex lock;   /* protects the entries; may be taken while an order lock is held */
    entry *entries;
    size_t count, room;
    /* The records up to `until` are the next ones that may leave the log. They leave once each lane
     * is done with the work that it had when this lane was seen done up to `until`. */
    uint64_t until;  /* 0: nothing is planned */
    uint64_t *heads; /* per lane of the runtime; NULL: nothing is planned */
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

/* ---- lookup ---- */

/* The last stretch of an entry that begins at the position or before. */
static hdi_failure archive_stretch_with(const entry *e, uint64_t position)
{
    uint64_t number = e->distance ? (position - e->from) / e->distance : 0;
    if (e->flags & CLAIMS) {
        return (hdi_failure){.from = position,
                             .to = position,
                             .position = position,
                             .lane = e->lane,
                             .driver_code = e->driver_code,
                             .kernel = e->kernel,
                             .op = e->op};
    }
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

static bool archive_find(hdi_archive *archive, uint64_t position, hdi_failure *out)
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
        *out = archive_stretch_with(&archive->entries[low], position);
        found = position <= out->to;
    }
    hdi_mutex_unlock(&archive->lock);
    return found;
}

/* As hdi_failure_logged, but waits until it is sure. */
static bool failure_find_logged(hdi_device *device, uint32_t number, uint64_t position, hdi_failure *out)
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

/* Corrects a record that a worker process wrote. It may name a lane that does not exist, or a loss
 * that the application did not see. */
static void failure_correct(const hd_runtime *rt, uint32_t lane, hdi_failure *f)
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
    if (failure_find_logged(device, number, position, out)) {
        failure_correct(rt, lane, out);
        return true;
    }
    /* The archive is searched after the log, because a record leaves the log only once it is here.
     * A lane that was never made lacks both. */
    const hd_lane *of = device->lanes[number];
    return of && position <= atomic_load_explicit(&of->failures_archived, memory_order_acquire) &&
           archive_find(of->archive, position, out);
}

/* ---- moving ---- */

static uint64_t failure_log_used(const hd_lane *lane)
{
    return atomic_load_explicit(&lane->shared->failures_end, memory_order_acquire) -
           atomic_load_explicit(&lane->failures_first, memory_order_acquire);
}

bool hdi_failures_have_room(const hd_lane *lane)
{
    const hdi_channel *channel = &lane->device->channel;
    return failure_log_used(lane) <= channel->failures_room - channel->slots;
}

bool hdi_failures_are_many(const hd_lane *lane)
{
    return failure_log_used(lane) > lane->device->channel.failures_room / 4;
}

/* Notes how far each lane is filled. A submission that began before this holds the order lock of
 * its lane until its commands are in the ring. A submission that begins later sees this lane done
 * up to `until`. */
static bool archive_note_heads(hd_lane *of)
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

/* Finds the first lane that is not done with all its noted work. False: none. */
static bool archive_find_behind(hd_runtime *rt, const hdi_archive *archive, uint32_t *lane, uint64_t *position)
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

/* True if a stretch continues an entry. Also returns distance and step. */
static bool archive_goes_on(const entry *e, const entry *one, uint32_t *distance, uint32_t *step)
{
    const hdi_failure last = archive_stretch_with(e, e->to);
    uint64_t on = one->from - last.from, blamed = one->position - last.position;
    *distance = (uint32_t)on;
    *step = (uint32_t)blamed;
    bool alike = e->lane == one->lane && e->driver_code == one->driver_code && e->kernel == one->kernel &&
                 e->op == one->op && e->flags == one->flags && e->length == one->length;
    return alike && on != 0 && on <= UINT32_MAX && blamed <= UINT32_MAX &&
           (e->distance == 0 || (e->distance == on && e->step == blamed));
}

/* True if one claim of the lane `own` that failed follows others, and none succeeded in between. */
static bool archive_joins_claims(const entry *e, const entry *one, uint32_t own)
{
    bool of_claim = one->op == HDI_OP_CLAIM && one->flags == 0 && one->lane == own && one->length == 1;
    bool alike = (e->flags & ~CLAIMS) == 0 && e->op == one->op && e->lane == one->lane && e->kernel == one->kernel &&
                 e->driver_code == one->driver_code && e->length == one->length;
    return of_claim && alike && one->position == one->from && e->position == e->from && e->step == e->distance &&
           e->distance <= CLAIM_DISTANCE && one->from - e->to <= CLAIM_DISTANCE;
}

static bool archive_append(hdi_archive *archive, const hdi_failure *f, uint32_t own)
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
    if (last && archive_goes_on(last, &e, &distance, &step)) {
        last->to = f->to;
        last->distance = distance;
        last->step = step;
        return true;
    }
    if (last && archive_joins_claims(last, &e, own)) {
        last->to = f->to;
        last->distance = last->step = 0;
        last->flags = CLAIMS;
        return true;
    }
    if (!archive->entries || archive->count == archive->room) {
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

/* Moves records that are done and that no reader can look for in the log any more. False: no memory
 * for all of them. */
static bool archive_move(hd_lane *of)
{
    const hdi_channel *channel = &of->device->channel;
    hdi_archive *archive = of->archive;
    hdi_failure f = {0};
    bool appended = true;
    while (appended && failure_first(channel, of->number, &f) && f.to <= archive->until) {
        failure_correct(of->device->runtime, of->global, &f);
        hdi_mutex_lock(&archive->lock);
        appended = archive_append(archive, &f, of->global);
        hdi_mutex_unlock(&archive->lock);
        if (appended) {
            atomic_store_explicit(&of->failures_archived, f.to, memory_order_release);
            failure_drop_first(of);
        }
    }
    if (appended) {
        archive->until = 0;
        free(archive->heads); /* the next plan is far away, and many lanes keep an archive */
        archive->heads = NULL;
    }
    return appended;
}

hdi_archived hdi_failures_archive(hd_lane *of, uint32_t *lane, uint64_t *position)
{
    hdi_archive *archive = of->archive;
    hdi_archived result = HDI_ARCHIVED_NO_MEMORY;
    hdi_mutex_lock(&archive->moving);
    if (archive->until || archive_note_heads(of)) {
        bool behind = archive_find_behind(of->device->runtime, archive, lane, position);
        result = behind ? HDI_ARCHIVED_BEHIND : archive_move(of) ? HDI_ARCHIVED : HDI_ARCHIVED_NO_MEMORY;
    }
    hdi_mutex_unlock(&archive->moving);
    return result;
}
