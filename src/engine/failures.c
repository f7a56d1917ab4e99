/* failures.c - the log of a lane's failures in its shared memory, and their way into the archive.
 * Their purpose: see failures.h.
 *
 * Threads, Locks: see failures.h.
 * Always:
 * - Records of the log are sorted and do not overlap. Records of done positions do not change any
 *   more.
 * - A reader that races with the writer sees `failure_changes` move and reads again.
 * - A record is complete in the archive before it leaves the log. So a reader that misses the
 *   record in the log finds it in the archive.
 */
#include <stdlib.h>
#include <string.h>
#include "base/lock.h"
#include "base/wait.h"
#include "engine/archive.h"
#include "engine/engine.h"
#include "engine/failures.h"

/* a writer needs less time than one try, unless the writer's thread is interrupted */
#define TRIES 64
#define UNSURE_NS 1000000000 /* no live writer takes this long for a record */
#define UNSURE_SLEEP_NS 20000

/* ---- the log ---- */

/* The place of the record with this number. The numbers of the log's records run from
 * `failures_first` to `failures_end` - 1. A record keeps its number. */
static _Atomic uint64_t *failure_record_at(const hdi_channel *channel, uint32_t lane, uint64_t number)
{
    return channel->failures +
           ((size_t)lane * channel->failures_room + (number & (channel->failures_room - 1))) * HDI_FAILURE_WORDS;
}

/* A seqlock without fences. Before the writer stores words, it stores an odd count, and its stores
 * of words are release stores. The reader's loads of words are acquire loads. So a reader that saw
 * a new word also sees that the count moved. */
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

/* The number of the last record that begins at `position` or before; `first` - 1: no such
 * record. */
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

/* True if the log did not change since the caller loaded `before` from `failure_changes`. */
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

/* Inserts a record that overlaps no other record. The few records with higher positions move. */
static void failure_insert(const hdi_channel *channel, uint32_t lane, const hdi_failure *failure)
{
    hdi_lane_shared *shared = &channel->lanes[lane];
    uint64_t first, end = failure_log_bounds(channel, lane, &first);
    failure_begin_change(shared);
    if (end - first == channel->failures_room) {
        /* The log is never full here, because submissions keep enough room. If the log were full,
         * this function would mark too many positions as failed, rather than too few. */
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
    /* Each round fills a gap between two records, so few rounds are enough. If the log was
     * overwritten, the limit on the rounds ends the loop. */
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
            /* The record `behind` begins behind part.from, unless the log was overwritten. */
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

/* Gets the oldest record. False: the log is empty, or the answer is unsure (HDI_LOGGED_UNSURE). */
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
    /* Stores a count that no reader saw before, so that all readers read again. */
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
        /* If no work was unfinished, the record covers nothing. Then this removes the record. */
        failure_end_change(shared, to < last.from ? end - 1 : end);
    }
}

/* ---- lookup ---- */

/* Like hdi_failure_logged, but tries again until the answer is sure. */
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

/* Corrects a record that a worker process wrote. The record may name a lane that does not exist, or
 * a loss that the application did not see. */
static void failure_correct(const hd_runtime *rt, uint32_t lane, hdi_failure *f)
{
    if (rt->is_process) {
        f->lane = f->lane < (uint32_t)rt->n_devices * HDI_LANES_MAX ? f->lane : lane;
        const hdi_device *blamed = rt->devices[f->lane / HDI_LANES_MAX];
        bool lost = hdi_device_given_up(blamed) || atomic_load_explicit(&blamed->losses, memory_order_acquire);
        f->lost = f->lost && lost;
        /* only the application forgets */
        f->driver_code = f->driver_code == HDI_FAILURE_FORGOTTEN ? HDI_GONE_CORRUPTED : f->driver_code;
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
    /* The archive is searched after the log, because a record leaves the log only once it is in the
     * archive. A lane that was never made has no log and no archive. */
    const hd_lane *of = device->lanes[number];
    bool found = of && position <= atomic_load_explicit(&of->failures_archived, memory_order_acquire) &&
                 hdi_archive_find(of->archive, position, out);
    if (found && out->driver_code == HDI_FAILURE_FORGOTTEN) {
        out->lane = lane;
    }
    return found;
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

/* Notes how far each lane is filled. If a submission began before this call, it holds the order
 * lock of its lane until its commands are in the ring. So its commands are noted here. If a
 * submission begins later, it sees that this lane is done up to `until`. */
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
    /* relaxed: a submission under an order lock sees this, or its commands are noted below */
    atomic_store_explicit(&of->failures_leaving, archive->until, memory_order_relaxed);
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

/* Corrects the runtime's sum by the bytes that the archive took or gave back since the last
 * correction. */
static void archive_count(const hd_lane *of)
{
    int64_t more;
    hdi_archive_bytes(of->archive, &more);
    atomic_fetch_add_explicit(&of->device->runtime->archives_bytes, more, memory_order_relaxed);
}

/* Moves the records up to `until` into the archive. No engine looks for them in the log any more.
 * False: there was not enough memory to move all of them. */
static bool archive_move(hd_lane *of)
{
    const hdi_channel *channel = &of->device->channel;
    hdi_archive *archive = of->archive;
    hdi_failure f = {0};
    bool appended = true;
    while (appended && failure_first(channel, of->number, &f) && f.to <= archive->until) {
        failure_correct(of->device->runtime, of->global, &f);
        appended = hdi_archive_append(archive, &f, of->global);
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
    archive_count(of);
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

/* ---- forgetting ---- */

uint64_t hdi_failures_to_forget(hd_lane *of)
{
    const hd_runtime *rt = of->device->runtime;
    bool many = atomic_load_explicit(&rt->archives_bytes, memory_order_relaxed) > HDI_ARCHIVES_BYTES;
    return many ? hdi_archive_oldest(of->archive, rt->archive_least ? rt->archive_least : HDI_ARCHIVE_LEAST) : 0;
}

void hdi_failures_forget(hd_lane *of, uint64_t to)
{
    hdi_archive_forget(of->archive, to);
    archive_count(of);
}
