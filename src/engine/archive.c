/* archive.c - the entries of an archive of failures. See archive.h.
 *
 * If a failure continues the last entry, an append only changes that entry. Otherwise the append
 * begins a new entry. Before it does so, a short last entry becomes steps. If the entry before it
 * has room, the steps join that entry.
 *
 * Threads, Locks: see archive.h.
 * Always: if an entry does not join the entry in steps before it, that entry never changes again.
 */
#include "engine/archive.h"

#include <stdlib.h>
#include <string.h>
#include "engine/failures.h"

#define ROOM_FIRST 8
/* An entry with more stretches than this would take more memory in steps than without steps. */
#define STRETCHES_FOLDED 32
/* A lookup reads at most this many steps. */
#define STRETCHES_OF_ENTRY 512
#define STEP_BYTES_FIRST 64
/* Three numbers of up to 10 bytes, a mark, the changes, and a cause. */
#define STEP_BYTES_MOST 48

/* The cause of failures, apart from positions. */
typedef struct failure_cause {
    uint32_t lane;
    int32_t driver_code;
    uint16_t kernel;
    uint8_t op;
    uint8_t flags; /* LOST and others */
} failure_cause;

/* Stretches of positions, each of which stands for one hdi_failure. Without `steps`, all stretches
 * failed alike. They are of the same length, and begin at equal distances. From one stretch to the
 * next, the position to blame rises by the same number. With `steps`, or with CLAIMS, the distances
 * may differ. */
typedef struct hdi_archive_entry {
    uint64_t from, to; /* the begin of the first stretch, and the end of the last */
    unsigned char *steps;
    union {
        struct {
            uint64_t position; /* the position to blame for the first stretch */
            uint64_t length;
            /* from the begin of one stretch to the begin of the next; 0: there is only one */
            uint32_t distance;
            uint32_t step; /* how much the position to blame rises from one stretch to the next */
            failure_cause cause;
        };
        struct {
            uint32_t n_bytes, room; /* of `steps` */
            uint32_t n_stretches;
        };
    };
} entry;

/* CLAIMS: claims of this lane that failed one after the other, without a success in between. Each
 * one is to blame for itself, so the distances need not be equal. */
enum { LOST = 1, INHERITED = 2, WAITED = 4, CLAIMS = 8 };

/* A step stores the distance from the end of one stretch to the begin of the next, which is never
 * 0. If anything else changes, the step begins with a 0, the sum of these bits, and the changed
 * values. A new cause is stored as a 0 and the structure. A repeated cause is stored as the place
 * of its structure in the steps. */
enum { CHANGES_CAUSE = 1, CHANGES_LENGTH = 2, CHANGES_BLAMED = 4 };

/* Between the ends of two claims of a lane lie the slots of the second claim, and often a wait. If
 * the distance is larger, a claim that succeeded may lie in between. */
#define CLAIM_DISTANCE (HDI_CLAIM_SLOTS + 1)

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
        for (size_t i = 0; i < archive->count; i++) {
            free(archive->entries[i].steps);
        }
        free(archive->entries);
        free(archive->causes);
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

size_t hdi_archive_bytes(hdi_archive *archive, int64_t *more)
{
    hdi_mutex_lock(&archive->lock);
    size_t bytes =
        archive->bytes + archive->room * sizeof *archive->entries + archive->causes_room * sizeof *archive->causes;
    *more = (int64_t)(bytes - archive->counted);
    archive->counted = bytes;
    hdi_mutex_unlock(&archive->lock);
    return bytes;
}

/* ---- steps ---- */

static uint64_t archive_read_number(const unsigned char **at)
{
    uint64_t number = 0;
    for (unsigned shift = 0;; shift += 7) {
        unsigned char byte = *(*at)++;
        number |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            return number;
        }
    }
}

static unsigned char *archive_write_number(unsigned char *at, uint64_t number)
{
    for (; number >= 128; number >>= 7) {
        *at++ = (unsigned char)(number | 128);
    }
    *at++ = (unsigned char)number;
    return at;
}

/* Turns a difference of either sign into an unsigned number. A small difference gives a small
 * number. */
static uint64_t archive_fold_sign(uint64_t difference)
{
    return difference << 1 ^ (difference >> 63 ? UINT64_MAX : 0);
}

static uint64_t archive_unfold_sign(uint64_t number)
{
    return number >> 1 ^ (number & 1 ? UINT64_MAX : 0);
}

/* Moves the state, and the place in the steps, to the next stretch. */
static void archive_read_step(const unsigned char *steps, const unsigned char **at, hdi_archive_state *s)
{
    uint64_t gap = archive_read_number(at);
    if (gap == 0) {
        unsigned char changes = *(*at)++;
        if (changes & CHANGES_CAUSE) {
            s->cause = (uint32_t)archive_read_number(at);
            if (s->cause == 0) {
                s->cause = (uint32_t)(*at - steps);
                *at += sizeof(failure_cause);
            }
        }
        s->length = changes & CHANGES_LENGTH ? archive_read_number(at) : s->length;
        s->blamed += changes & CHANGES_BLAMED ? archive_unfold_sign(archive_read_number(at)) : 0;
        gap = archive_read_number(at);
    }
    s->to += gap + (s->length - 1);
}

/* Writes the step from one stretch to the next, for the place `place` of the entry's steps.
 * If next->cause is 0, writes `cause`, and sets next->cause to its place. Returns the number of
 * bytes. */
static uint32_t archive_write_step(unsigned char *step, uint32_t place, const hdi_archive_state *before,
                                   hdi_archive_state *next, const failure_cause *cause)
{
    unsigned char *at = step;
    unsigned changes = (next->cause == 0 || next->cause != before->cause ? CHANGES_CAUSE : 0u) |
                       (before->length != next->length ? CHANGES_LENGTH : 0u) |
                       (before->blamed != next->blamed ? CHANGES_BLAMED : 0u);
    if (changes) {
        *at++ = 0;
        *at++ = (unsigned char)changes;
        at = changes & CHANGES_CAUSE ? archive_write_number(at, next->cause) : at;
        if (next->cause == 0) {
            next->cause = place + (uint32_t)(at - step);
            memcpy(at, cause, sizeof *cause);
            at += sizeof *cause;
        }
        at = changes & CHANGES_LENGTH ? archive_write_number(at, next->length) : at;
        at = changes & CHANGES_BLAMED ? archive_write_number(at, archive_fold_sign(next->blamed - before->blamed)) : at;
    }
    return (uint32_t)(archive_write_number(at, next->to - (next->length - 1) - before->to) - step);
}

/* ---- lookup ---- */

static hdi_failure archive_failure(const failure_cause *c, uint64_t from, uint64_t length, uint64_t blamed)
{
    return (hdi_failure){
        .from = from,
        .to = from + (length - 1),
        .position = blamed,
        .lane = c->lane,
        .driver_code = c->driver_code,
        .kernel = c->kernel,
        .op = c->op,
        .lost = (c->flags & LOST) != 0,
        .inherited = (c->flags & INHERITED) != 0,
        .waited = (c->flags & WAITED) != 0,
    };
}

/* Among the stretches of an entry without steps, returns the last one that begins at the position
 * or before it. */
static hdi_failure archive_stretch_with(const entry *e, uint64_t position)
{
    if (e->cause.flags & CLAIMS) {
        return archive_failure(&e->cause, position, 1, position);
    }
    uint64_t number = e->distance ? (position - e->from) / e->distance : 0;
    return archive_failure(&e->cause, e->from + number * e->distance, e->length, e->position + number * e->step);
}

/* Among the stretches of an entry with steps, returns the first one that ends at the position or
 * behind it. */
static hdi_failure archive_stretch_in_steps(const entry *e, uint64_t position)
{
    hdi_archive_state s = {.to = e->from - 1};
    const unsigned char *at = e->steps;
    do {
        archive_read_step(e->steps, &at, &s);
    } while (s.to < position);
    failure_cause cause;
    memcpy(&cause, e->steps + s.cause, sizeof cause);
    uint64_t from = s.to - (s.length - 1);
    if ((cause.flags & CLAIMS) && from <= position) {
        return archive_failure(&cause, position, 1, position);
    }
    return archive_failure(&cause, from, s.length, from + s.blamed);
}

bool hdi_archive_find(hdi_archive *archive, uint64_t position, hdi_failure *out)
{
    hdi_mutex_lock(&archive->lock);
    bool found = archive->forgotten && position <= archive->forgotten;
    if (found) {
        *out = (hdi_failure){
            .from = 1, .to = archive->forgotten, .position = position, .driver_code = HDI_FAILURE_FORGOTTEN};
    }
    size_t low = 0;
    for (size_t high = archive->count; high > low;) {
        size_t middle = low + (high - low) / 2;
        if (archive->entries[middle].to < position) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (!found && low < archive->count && archive->entries[low].from <= position) {
        const entry *e = &archive->entries[low];
        *out = e->steps ? archive_stretch_in_steps(e, position) : archive_stretch_with(e, position);
        found = out->from <= position && position <= out->to;
    }
    hdi_mutex_unlock(&archive->lock);
    return found;
}

/* ---- entries become steps ---- */

/* The place of the cause in the entry's steps; 0: the steps do not contain the cause yet. */
static uint32_t archive_cause_place(const hdi_archive *archive, const entry *e, const failure_cause *cause)
{
    for (uint32_t i = archive->n_causes; i-- > 0;) {
        if (memcmp(e->steps + archive->causes[i], cause, sizeof *cause) == 0) {
            return archive->causes[i];
        }
    }
    return 0;
}

static bool archive_note_cause(hdi_archive *archive, uint32_t place)
{
    if (archive->n_causes == archive->causes_room) {
        uint32_t room = archive->causes_room ? 2 * archive->causes_room : ROOM_FIRST;
        uint32_t *more = realloc(archive->causes, room * sizeof *more);
        if (!more) {
            return false;
        }
        archive->causes = more;
        archive->causes_room = room;
    }
    archive->causes[archive->n_causes++] = place;
    return true;
}

static uint64_t archive_stretches_of(const entry *e)
{
    return e->distance && !(e->cause.flags & CLAIMS) ? (e->to - e->from - (e->length - 1)) / e->distance + 1 : 1;
}

/* Gives the steps of an entry memory of this size. */
static bool archive_resize_steps(hdi_archive *archive, entry *e, uint32_t room)
{
    unsigned char *steps = realloc(e->steps, room);
    if (steps) {
        archive->bytes += room;
        archive->bytes -= e->room;
        e->steps = steps;
        e->room = room;
    }
    return steps != NULL;
}

/* Adds the `n` stretches of `last` to the entry `to`, which has steps or is empty. False: no
 * memory. Then the caller restores archive->state and archive->n_causes. */
static bool archive_add_steps(hdi_archive *archive, entry *to, const entry *last, uint64_t n)
{
    uint32_t n_bytes = to->n_bytes, cause = archive_cause_place(archive, to, &last->cause);
    uint64_t length = last->cause.flags & CLAIMS ? last->to - last->from + 1 : last->length;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t from = last->from + i * last->distance;
        hdi_archive_state next = {
            .to = from + (length - 1),
            .length = length,
            .blamed = last->position + i * last->step - from,
            .cause = cause,
        };
        unsigned char step[STEP_BYTES_MOST];
        uint32_t bytes = archive_write_step(step, n_bytes, &archive->state, &next, &last->cause);
        if (((!to->steps || bytes > to->room - n_bytes) &&
             !archive_resize_steps(archive, to, to->room ? 2 * to->room : STEP_BYTES_FIRST)) ||
            (cause == 0 && !archive_note_cause(archive, next.cause))) {
            return false;
        }
        memcpy(to->steps + n_bytes, step, bytes);
        n_bytes += bytes;
        cause = next.cause;
        archive->state = next;
    }
    to->n_bytes = n_bytes;
    to->n_stretches += (uint32_t)n;
    to->to = last->to;
    return true;
}

/* Turns the last entry into steps, if that saves memory. Joins the steps to the entry before, if
 * that entry has steps and room. If an allocation fails, the last entry stays as it is. */
static void archive_fold_last(hdi_archive *archive)
{
    entry *last = archive->count ? &archive->entries[archive->count - 1] : NULL;
    if (!last || last->steps) {
        return;
    }
    uint64_t n = archive_stretches_of(last);
    entry *before = archive->count > 1 && last[-1].steps ? last - 1 : NULL;
    bool joins = before && before->n_stretches + n <= STRETCHES_OF_ENTRY;
    if (before && (!joins || n > STRETCHES_FOLDED)) {
        /* this entry never changes from now on */
        archive_resize_steps(archive, before, before->n_bytes);
        joins = false;
    }
    if (n > STRETCHES_FOLDED) {
        return;
    }
    hdi_archive_state state = archive->state;
    uint32_t n_causes = archive->n_causes;
    entry steps;
    memset(&steps, 0, sizeof steps);
    steps.from = last->from;
    if (!joins) {
        archive->state = (hdi_archive_state){.to = last->from - 1};
        archive->n_causes = 0;
    }
    if (!archive_add_steps(archive, joins ? before : &steps, last, n)) {
        archive->bytes -= steps.room;
        free(steps.steps);
        archive->state = state;
        archive->n_causes = n_causes;
    } else if (joins) {
        archive->count--;
    } else {
        *last = steps;
    }
}

/* ---- appending ---- */

/* True if the stretch `one` continues the entry. Sets *distance and *step to the values that the
 * entry then has. */
static bool archive_goes_on(const entry *e, const entry *one, uint32_t *distance, uint32_t *step)
{
    const hdi_failure last = archive_stretch_with(e, e->to);
    uint64_t on = one->from - last.from, blamed = one->position - last.position;
    *distance = (uint32_t)on;
    *step = (uint32_t)blamed;
    bool alike = memcmp(&e->cause, &one->cause, sizeof e->cause) == 0 && e->length == one->length;
    return alike && on != 0 && on <= UINT32_MAX && blamed <= UINT32_MAX &&
           (e->distance == 0 || (e->distance == on && e->step == blamed));
}

/* True if `one` and the whole entry are failed claims of the lane `own`, and no claim succeeded
 * between them. */
static bool archive_joins_claims(const entry *e, const entry *one, uint32_t own)
{
    const failure_cause *a = &e->cause, *b = &one->cause;
    bool of_claim = b->op == HDI_OP_CLAIM && b->flags == 0 && b->lane == own && one->length == 1;
    bool alike = (a->flags & ~CLAIMS) == 0 && a->op == b->op && a->lane == b->lane && a->kernel == b->kernel &&
                 a->driver_code == b->driver_code && e->length == one->length;
    return of_claim && alike && one->position == one->from && e->position == e->from && e->step == e->distance &&
           e->distance <= CLAIM_DISTANCE && one->from - e->to <= CLAIM_DISTANCE;
}

/* If the failure `e` continues the last entry, adds it to that entry, and returns true. */
static bool archive_extends(entry *last, const entry *e, uint32_t own)
{
    uint32_t distance, step;
    if (last->steps) {
        return false;
    }
    if (archive_goes_on(last, e, &distance, &step)) {
        last->distance = distance;
        last->step = step;
    } else if (archive_joins_claims(last, e, own)) {
        last->distance = last->step = 0;
        last->cause.flags = CLAIMS;
    } else {
        return false;
    }
    last->to = e->to;
    return true;
}

static bool archive_reserve(hdi_archive *archive)
{
    if (archive->count < archive->room) {
        return true;
    }
    size_t room = archive->room ? archive->room + archive->room / 2 : ROOM_FIRST;
    entry *more = realloc(archive->entries, room * sizeof *more);
    if (more) {
        archive->entries = more;
        archive->room = room;
    }
    return more != NULL;
}

bool hdi_archive_append(hdi_archive *archive, const hdi_failure *f, uint32_t own)
{
    entry e;
    memset(&e, 0, sizeof e);
    e.from = f->from;
    e.to = f->to;
    e.position = f->position;
    e.length = f->to - f->from + 1;
    e.cause.lane = f->lane;
    e.cause.driver_code = f->driver_code;
    e.cause.kernel = (uint16_t)f->kernel;
    e.cause.op = f->op;
    e.cause.flags = (uint8_t)((f->lost ? LOST : 0) | (f->inherited ? INHERITED : 0) | (f->waited ? WAITED : 0));
    hdi_mutex_lock(&archive->lock);
    bool appended = archive->count && archive_extends(&archive->entries[archive->count - 1], &e, own);
    if (!appended && archive_reserve(archive)) {
        archive_fold_last(archive);
        archive->entries[archive->count++] = e;
        appended = true;
    }
    hdi_mutex_unlock(&archive->lock);
    return appended;
}

/* ---- forgetting ---- */

/* The number of stretches in an entry. An entry for claims counts as one stretch. */
static uint64_t archive_least_of(const entry *e)
{
    return e->steps ? e->n_stretches : archive_stretches_of(e);
}

uint64_t hdi_archive_oldest(hdi_archive *archive, uint64_t least)
{
    hdi_mutex_lock(&archive->lock);
    uint64_t left = 0, oldest = 0;
    size_t bytes = archive->bytes + archive->count * sizeof *archive->entries, dropped = 0;
    for (size_t i = 0; i < archive->count; i++) {
        left += archive_least_of(&archive->entries[i]);
    }
    for (size_t i = 0; i < archive->count && dropped < bytes / 4; i++) {
        const entry *e = &archive->entries[i];
        left -= archive_least_of(e);
        if (left < least) {
            break;
        }
        dropped += sizeof *e + (e->steps ? e->room : 0);
        oldest = e->to;
    }
    hdi_mutex_unlock(&archive->lock);
    return oldest;
}

void hdi_archive_forget(hdi_archive *archive, uint64_t to)
{
    hdi_mutex_lock(&archive->lock);
    size_t n = 0;
    for (; n < archive->count && archive->entries[n].to <= to; n++) {
        entry *e = &archive->entries[n];
        archive->forgotten = e->to;
        archive->bytes -= e->steps ? e->room : 0;
        free(e->steps);
    }
    if (n > 0) {
        archive->count -= n;
        memmove(archive->entries, archive->entries + n, archive->count * sizeof *archive->entries);
        size_t room = archive->count > ROOM_FIRST ? archive->count : ROOM_FIRST;
        entry *less = realloc(archive->entries, room * sizeof *less);
        archive->room = less ? room : archive->room;
        archive->entries = less ? less : archive->entries;
    }
    hdi_mutex_unlock(&archive->lock);
}
