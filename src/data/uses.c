/* uses.c - use records: splitting, joining, noting uses.
 *
 * Threads: any, under the order lock of the buffer's owner. Locks: none of its own.
 * Always: segments cover the buffer without gaps or overlaps; a segment has at most one reader mark per lane.
 */
#include "data/uses.h"

#include <stdlib.h>
#include <string.h>

#define JOIN_ABOVE 64 /* with more segments than this, neighbours that say the same are joined */

void hdi_uses_init(hdi_uses *u, uint64_t bytes)
{
    memset(u, 0, sizeof *u);
    u->count = 1;
    u->whole.high = bytes;
}

static void release_segment(hdi_segment *s)
{
    if (s->room) {
        free(s->readers.many);
        s->room = 0;
    }
    s->n_readers = 0;
}

void hdi_uses_release(hdi_uses *u)
{
    hdi_segment *segments = hdi_uses_segments(u);
    for (uint32_t i = 0; i < u->count; i++) {
        release_segment(&segments[i]);
    }
    free(u->more);
    memset(u, 0, sizeof *u);
}

void hdi_segment_forget_readers(hd_runtime *rt, hdi_segment *s)
{
    hdi_mark *readers = hdi_segment_readers(s);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->n_readers; i++) {
        if (!hdi_mark_done(rt, readers[i])) {
            readers[kept++] = readers[i];
        }
    }
    s->n_readers = kept;
}

void hdi_segment_forget_writer(hd_runtime *rt, hdi_segment *s)
{
    if (!s->writer.position) {
        return;
    }
    const hdi_lane_shared *lane = hdi_lane_shared_of(rt, s->writer.lane);
    /* `done` before the failures: a failure is recorded before `done` passes it */
    hdi_failure failure;
    if (atomic_load_explicit(&lane->done, memory_order_acquire) >= s->writer.position &&
        (atomic_load_explicit(&lane->failures, memory_order_acquire) == 0 ||
         !hdi_failure_find(lane, s->writer.position, &failure))) {
        s->writer = (hdi_mark){0, 0};
    }
}

static bool room_for_reader(hd_runtime *rt, hdi_segment *s)
{
    uint32_t room = s->room ? s->room : HDI_READERS_FEW;
    if (s->n_readers < room) {
        return true;
    }
    hdi_segment_forget_readers(rt, s);
    if (s->n_readers < room) {
        return true;
    }
    hdi_mark *many = malloc(2 * (size_t)room * sizeof *many);
    if (!many) {
        return false;
    }
    memcpy(many, hdi_segment_readers(s), s->n_readers * sizeof *many);
    if (s->room) {
        free(s->readers.many);
    }
    s->readers.many = many;
    s->room = 2 * room;
    return true;
}

hdi_segment *hdi_uses_find(hdi_uses *u, uint64_t low)
{
    hdi_segment *segments = hdi_uses_segments(u);
    uint32_t first = 0, end = u->count;
    while (end - first > 1) {
        uint32_t middle = first + (end - first) / 2;
        if (segments[middle].low <= low) {
            first = middle;
        } else {
            end = middle;
        }
    }
    return &segments[first];
}

static bool same_marks(const hdi_segment *a, const hdi_segment *b)
{
    return a->n_readers == 0 && b->n_readers == 0 && a->writer.lane == b->writer.lane &&
           a->writer.position == b->writer.position;
}

/* Joins neighbours without readers and with the same writer, after forgetting readers that are finished and writers that have succeeded: so
 * a large transfer, each part of which is a use of its own, leaves no more segments than it has parts under way. A writer that failed is
 * kept: the content is not good. */
static void join(hd_runtime *rt, hdi_uses *u)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < u->count; i++) {
        hdi_segment_forget_readers(rt, &u->more[i]);
        hdi_segment_forget_writer(rt, &u->more[i]);
        if (kept && same_marks(&u->more[kept - 1], &u->more[i])) {
            u->more[kept - 1].high = u->more[i].high;
            release_segment(&u->more[i]);
        } else {
            u->more[kept++] = u->more[i];
        }
    }
    u->count = kept;
    if (kept == 1) {
        u->whole = u->more[0];
    }
}

/* Room for `extra` more segments, all of them in `more`. */
static bool room_for_segments(hdi_uses *u, uint32_t extra)
{
    uint32_t need = u->count + extra;
    if (need > u->room) {
        uint32_t room = u->room ? u->room * 2 : 8;
        room = room < need ? need : room;
        hdi_segment *more = realloc(u->more, room * sizeof *more);
        if (!more) {
            return false;
        }
        u->more = more;
        u->room = room;
    }
    if (u->count == 1) {
        u->more[0] = u->whole;
    }
    return true;
}

/* Makes `at` the border of two segments. */
static bool split(hdi_uses *u, uint64_t at)
{
    hdi_segment *s = hdi_uses_find(u, at);
    if (s->low == at || s->high <= at) {
        return true;
    }
    uint32_t index = (uint32_t)(s - hdi_uses_segments(u));
    if (!room_for_segments(u, 1)) {
        return false;
    }
    hdi_mark *copy = NULL;
    s = &u->more[index];
    if (s->room) {
        copy = malloc(s->room * sizeof *copy);
        if (!copy) {
            return false; /* count is still 1 where it was: `whole` stays what counts */
        }
        memcpy(copy, s->readers.many, s->n_readers * sizeof *copy);
    }
    memmove(s + 2, s + 1, (u->count - index - 1) * sizeof *s);
    s[1] = s[0];
    if (copy) {
        s[1].readers.many = copy;
    }
    s[0].high = at;
    s[1].low = at;
    u->count++;
    return true;
}

void hdi_uses_tidy(hd_runtime *rt, hdi_uses *u)
{
    if (u->count > JOIN_ABOVE) {
        join(rt, u);
    }
}

bool hdi_uses_prepare_parts(hd_runtime *rt, hdi_uses *u, uint64_t low, uint64_t high)
{
    if (!split(u, low) || !split(u, high)) {
        return false;
    }
    hdi_segment *end = hdi_uses_segments(u) + u->count;
    for (hdi_segment *s = hdi_uses_find(u, low); s < end && s->low < high; s++) {
        if (!room_for_reader(rt, s)) {
            return false;
        }
    }
    return true;
}

static void add_reader(hdi_segment *s, hdi_mark mark)
{
    hdi_mark *readers = hdi_segment_readers(s);
    for (uint32_t i = 0; i < s->n_readers; i++) {
        if (readers[i].lane == mark.lane) {
            if (readers[i].position < mark.position) {
                readers[i].position = mark.position;
            }
            return;
        }
    }
    readers[s->n_readers++] = mark;
}

void hdi_uses_commit(hdi_uses *u, uint64_t low, uint64_t high, bool write, hdi_mark mark)
{
    hdi_segment *end = hdi_uses_segments(u) + u->count;
    for (hdi_segment *s = hdi_uses_find(u, low); s < end && s->low < high; s++) {
        if (write) {
            s->writer = mark;
            s->n_readers = 0;
        } else {
            add_reader(s, mark);
        }
    }
}

bool hdi_uses_inherit(hd_runtime *rt, hdi_uses *u, hdi_mark mark)
{
    if (!room_for_reader(rt, &u->whole)) {
        return false;
    }
    add_reader(&u->whole, mark);
    return true;
}

void hdi_uses_renew(hdi_uses *u, uint64_t bytes, hdi_mark mark)
{
    hdi_segment *segments = hdi_uses_segments(u);
    for (uint32_t i = 0; i < u->count; i++) {
        release_segment(&segments[i]);
    }
    u->count = 1;
    u->whole = (hdi_segment){.high = bytes, .n_readers = mark.position != 0, .readers.few = {mark}};
}

static size_t add_pending(hd_runtime *rt, hdi_mark mark, hdi_mark *marks, size_t room, size_t n)
{
    if (!mark.position || hdi_mark_done(rt, mark)) {
        return n;
    }
    for (size_t i = 0; i < n && i < room; i++) {
        if (marks[i].lane == mark.lane) {
            if (marks[i].position < mark.position) {
                marks[i].position = mark.position;
            }
            return n;
        }
    }
    if (n < room) {
        marks[n] = mark;
    }
    return n + 1;
}

size_t hdi_uses_pending(hd_runtime *rt, hdi_uses *u, hdi_mark *marks, size_t room)
{
    size_t n = 0;
    hdi_segment *segments = hdi_uses_segments(u);
    for (uint32_t i = 0; i < u->count; i++) {
        n = add_pending(rt, segments[i].writer, marks, room, n);
        const hdi_mark *readers = hdi_segment_readers(&segments[i]);
        for (uint32_t r = 0; r < segments[i].n_readers; r++) {
            n = add_pending(rt, readers[r], marks, room, n);
        }
    }
    return n;
}

static unsigned writer_state(hd_runtime *rt, hdi_mark writer)
{
    if (!writer.position) {
        return 0;
    }
    if (!hdi_mark_done(rt, writer)) {
        return HDI_USES_WRITTEN;
    }
    const hdi_lane_shared *lane = hdi_lane_shared_of(rt, writer.lane);
    hdi_failure failure;
    bool failed = atomic_load_explicit(&lane->failures, memory_order_acquire) != 0 &&
                  hdi_failure_find(lane, writer.position, &failure);
    return failed ? HDI_USES_FAILED : 0;
}

unsigned hdi_uses_state(hd_runtime *rt, hdi_uses *u, uint64_t low, uint64_t high)
{
    unsigned state = 0;
    const hdi_segment *end = hdi_uses_segments(u) + u->count;
    for (hdi_segment *s = hdi_uses_find(u, low); s < end && s->low < high; s++) {
        state |= writer_state(rt, s->writer);
        const hdi_mark *readers = hdi_segment_readers(s);
        for (uint32_t i = 0; i < s->n_readers && !(state & HDI_USES_READ); i++) {
            state |= hdi_mark_done(rt, readers[i]) ? 0 : HDI_USES_READ;
        }
    }
    return state;
}

static bool check_segment(const hdi_segment *s)
{
    const hdi_mark *readers = s->room ? s->readers.many : s->readers.few;
    bool good = s->low < s->high && s->n_readers <= (s->room ? s->room : HDI_READERS_FEW);
    for (uint32_t i = 0; good && i < s->n_readers; i++) {
        good = readers[i].position != 0;
        for (uint32_t j = 0; good && j < i; j++) {
            good = readers[i].lane != readers[j].lane;
        }
    }
    return good;
}

bool hdi_uses_check(const hdi_uses *u, uint64_t bytes)
{
    const hdi_segment *segments = u->count == 1 ? &u->whole : u->more;
    uint64_t at = 0;
    bool good = u->count >= 1;
    for (uint32_t i = 0; good && i < u->count; i++) {
        good = segments[i].low == at && check_segment(&segments[i]);
        at = segments[i].high;
    }
    return good && at == bytes;
}
