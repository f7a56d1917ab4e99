/* failures.c - the log of a lane's failures in its shared memory. Its purpose: see failures.h.
 *
 * Threads: see failures.h.
 * Locks: none.
 * Always: records are sorted and do not overlap. Records of positions that are done do not change any more. A reader
 * that races with the writer sees `failure_changes` move and reads again.
 */
#include "engine/failures.h"

#include <string.h>
#include "base/wait.h"
#include "engine/runtime.h"

#define TRIES 64 /* a writer needs less than one, unless it is held up */

/* The place of a record. Its number lies between `failures_first` and `failures_end`, and stays the same. */
static _Atomic uint64_t *record_at(const hdi_channel *channel, uint32_t lane, uint64_t number)
{
    return channel->failures +
           ((size_t)lane * channel->failures_room + (number & (channel->failures_room - 1))) * HDI_FAILURE_WORDS;
}

/* A seqlock without fences. The writer's word stores release the odd count that was stored before them. The reader's
 * word loads acquire. So a reader that saw a new word also sees that the count has moved. */
static void read_record(const hdi_channel *channel, uint32_t lane, uint64_t number, hdi_failure *out)
{
    const _Atomic uint64_t *at = record_at(channel, lane, number);
    uint64_t words[HDI_FAILURE_WORDS];
    for (size_t i = 0; i < HDI_FAILURE_WORDS; i++) {
        words[i] = atomic_load_explicit(&at[i], memory_order_acquire);
    }
    memcpy(out, words, sizeof words);
}

static void write_record(const hdi_channel *channel, uint32_t lane, uint64_t number, const hdi_failure *failure)
{
    _Atomic uint64_t *at = record_at(channel, lane, number);
    uint64_t words[HDI_FAILURE_WORDS];
    memcpy(words, failure, sizeof words);
    for (size_t i = 0; i < HDI_FAILURE_WORDS; i++) {
        /* pairs with the acquire loads in read_record */
        atomic_store_explicit(&at[i], words[i], memory_order_release);
    }
}

static void begin_change(hdi_lane_shared *lane)
{
    uint64_t changes = atomic_load_explicit(&lane->failure_changes, memory_order_relaxed);
    atomic_store_explicit(&lane->failure_changes, changes + 1, memory_order_relaxed);
}

static void end_change(hdi_lane_shared *lane, uint64_t end)
{
    atomic_store_explicit(&lane->failures_end, end, memory_order_release);
    uint64_t changes = atomic_load_explicit(&lane->failure_changes, memory_order_relaxed);
    /* pairs with the readers' acquire load of `failure_changes` */
    atomic_store_explicit(&lane->failure_changes, changes + 1, memory_order_release);
}

/* Numbers of the first record and behind the last one. A crashing engine may have left anything there. */
static uint64_t bounds(const hdi_channel *channel, uint32_t lane, uint64_t *first)
{
    const hdi_lane_shared *shared = &channel->lanes[lane];
    *first = atomic_load_explicit(&shared->failures_first, memory_order_acquire);
    uint64_t end = atomic_load_explicit(&shared->failures_end, memory_order_acquire);
    return end - *first <= channel->failures_room ? end : *first;
}

/* The number of the last record that begins at `position` or before; `first` - 1 without one. */
static uint64_t last_before(const hdi_channel *channel, uint32_t lane, uint64_t first, uint64_t end, uint64_t position,
                            hdi_failure *out)
{
    uint64_t low = first - 1;
    for (uint64_t high = end; high - low > 1;) {
        uint64_t middle = low + (high - low) / 2;
        hdi_failure failure;
        read_record(channel, lane, middle, &failure);
        if (failure.from <= position) {
            low = middle;
            *out = failure;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Whether nothing has changed since `before` was loaded. */
static bool is_stable(const hdi_lane_shared *lane, uint64_t before)
{
    return (before & 1) == 0 && atomic_load_explicit(&lane->failure_changes, memory_order_relaxed) == before;
}

hdi_logged hdi_failure_logged(const hdi_channel *channel, uint32_t lane, uint64_t position, hdi_failure *out)
{
    const hdi_lane_shared *shared = &channel->lanes[lane];
    for (int i = 0; i < TRIES; i++) {
        uint64_t before = atomic_load_explicit(&shared->failure_changes, memory_order_acquire);
        uint64_t first, end = bounds(channel, lane, &first);
        bool found = last_before(channel, lane, first, end, position, out) != first - 1 && position <= out->to;
        if (is_stable(shared, before)) {
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
        uint64_t first, end = bounds(channel, lane->number, &first);
        hdi_failure last = {.to = atomic_load_explicit(&lane->failures_archived, memory_order_acquire)};
        if (end != first) {
            read_record(channel, lane->number, end - 1, &last);
        }
        if (is_stable(lane->shared, before)) {
            *out = last.to;
            return true;
        }
        hdi_spin_turn();
    }
    return false;
}

/* Inserts one record between the others, which it does not overlap. The few records behind it move. */
static void insert(const hdi_channel *channel, uint32_t lane, const hdi_failure *failure)
{
    hdi_lane_shared *shared = &channel->lanes[lane];
    uint64_t first, end = bounds(channel, lane, &first);
    begin_change(shared);
    if (end - first == channel->failures_room) {
        /* Submissions keep enough room, so this does not happen. If it did, too much would fail rather than too
         * little. */
        hdi_failure last;
        read_record(channel, lane, end - 1, &last);
        last.to = last.to > failure->to ? last.to : failure->to;
        write_record(channel, lane, end - 1, &last);
        end_change(shared, end);
        return;
    }
    uint64_t at = end;
    for (; at != first; at--) {
        hdi_failure before;
        read_record(channel, lane, at - 1, &before);
        if (before.from < failure->from) {
            break;
        }
        write_record(channel, lane, at, &before);
    }
    write_record(channel, lane, at, failure);
    end_change(shared, end + 1);
}

static bool same_cause(const hdi_failure *a, const hdi_failure *b)
{
    hdi_failure other = *b;
    other.from = a->from;
    other.to = a->to;
    return memcmp(a, &other, sizeof other) == 0;
}

/* Extends the record with this number to `to`. */
static void widen(const hdi_channel *channel, uint32_t lane, uint64_t number, uint64_t end, uint64_t to)
{
    hdi_failure failure;
    read_record(channel, lane, number, &failure);
    begin_change(&channel->lanes[lane]);
    failure.to = to;
    write_record(channel, lane, number, &failure);
    end_change(&channel->lanes[lane], end);
}

void hdi_failure_add(const hdi_channel *channel, uint32_t lane, const hdi_failure *failure)
{
    hdi_failure rest = *failure;
    /* Each round fills a gap between two records, so there are few rounds. The limit holds where the log was
     * overwritten. */
    for (uint32_t i = 0; i <= 2 * channel->failures_room && rest.from <= rest.to; i++) {
        uint64_t first, end = bounds(channel, lane, &first);
        hdi_failure before, behind;
        uint64_t number = last_before(channel, lane, first, end, rest.from, &before);
        if (number != first - 1 && before.to >= rest.from) {
            if (before.to >= rest.to) {
                return;
            }
            rest.from = before.to + 1;
            continue;
        }
        hdi_failure part = rest;
        if (number + 1 != end) {
            read_record(channel, lane, number + 1, &behind);
            /* It begins behind `from`, unless the log was overwritten. */
            part.to = behind.from > part.from && behind.from <= part.to ? behind.from - 1 : part.to;
        }
        if (number != first - 1 && before.to + 1 == part.from && same_cause(&before, &part)) {
            widen(channel, lane, number, end, part.to);
        } else {
            insert(channel, lane, &part);
        }
        if (part.to == rest.to) {
            return;
        }
        rest.from = part.to + 1;
    }
}

bool hdi_failure_first(const hdi_channel *channel, uint32_t lane, hdi_failure *out)
{
    const hdi_lane_shared *shared = &channel->lanes[lane];
    for (int i = 0; i < TRIES; i++) {
        uint64_t before = atomic_load_explicit(&shared->failure_changes, memory_order_acquire);
        uint64_t first, end = bounds(channel, lane, &first);
        if (end != first) {
            read_record(channel, lane, first, out);
        }
        if (is_stable(shared, before)) {
            return end != first;
        }
        hdi_spin_turn();
    }
    return false;
}

void hdi_failure_drop_first(hd_lane *lane)
{
    /* pairs with the acquire load in bounds: a reader that misses the record here finds it in the archive */
    uint64_t first = atomic_load_explicit(&lane->failures_first, memory_order_relaxed) + 1;
    atomic_store_explicit(&lane->failures_first, first, memory_order_relaxed);
    atomic_store_explicit(&lane->shared->failures_first, first, memory_order_release);
}

void hdi_failure_repair(const hdi_channel *channel, uint32_t lane)
{
    hdi_lane_shared *shared = &channel->lanes[lane];
    uint64_t first, end = bounds(channel, lane, &first);
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
        read_record(channel, lane->number, good, &record);
        sane = record.from > known && record.to >= record.from && record.to <= lane->head;
        known = sane ? record.to : known;
        good += sane;
    }
    /* Sets a count that no reader has seen, so that all read again. */
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
    uint64_t first, end = bounds(channel, lane, &first);
    hdi_failure last;
    if (end == first) {
        return;
    }
    read_record(channel, lane, end - 1, &last);
    if (last.to == UINT64_MAX) {
        begin_change(shared);
        last.to = to;
        write_record(channel, lane, end - 1, &last);
        /* Where nothing was unfinished the record covers nothing, and is removed. */
        end_change(shared, to < last.from ? end - 1 : end);
    }
}
