/* alloc_check.c - verifies live blocks for `heddle bench alloc`: they do not overlap, have the
 * right sizes, and keep their bytes.
 *
 * Threads: the conductor, or one thread at a time for a checker. Locks: none.
 * Always: nothing here is timed. A wrong block fails the run, whichever allocator made it.
 */
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include "bench/alloc_parts.h"

enum { TAGGED_MOST = 128, WORD = 4, HEDDLE_ALIGNMENT = 256 };

typedef struct span {
    uint64_t address, bytes;
} span;

/* Spans in a tree are disjoint, so treating overlapping spans as equal gives a valid order. */
static int bench_compare_spans(const void *a, const void *b)
{
    const span *x = a, *y = b;
    if (x->address + x->bytes <= y->address) {
        return -1;
    }
    return y->address + y->bytes <= x->address ? 1 : 0;
}

static bool bench_overlap(const span *a, const span *b, char *error)
{
    snprintf(error, PLAIN_ERROR, "two live blocks overlap: %llu bytes at 0x%llx and %llu bytes at 0x%llx",
             (unsigned long long)a->bytes, (unsigned long long)a->address, (unsigned long long)b->bytes,
             (unsigned long long)b->address);
    return false;
}

bool bench_alloc_checker_add(alloc_checker *c, uint64_t address, uint64_t bytes, char *error)
{
    span *s = malloc(sizeof(*s));
    const span *const *found = NULL;
    if (s) {
        *s = (span){address, bytes};
        found = tsearch(s, &c->tree, bench_compare_spans);
    }
    if (!found) {
        free(s);
        snprintf(error, PLAIN_ERROR, "out of memory for what is verified");
        return false;
    }
    c->checked++;
    if (*found != s) {
        bench_overlap(s, *found, error);
        free(s);
        return false;
    }
    return true;
}

void bench_alloc_checker_remove(alloc_checker *c, uint64_t address, uint64_t bytes)
{
    span key = {address, bytes}, **found = tfind(&key, &c->tree, bench_compare_spans);
    if (found) {
        span *s = *found;
        tdelete(&key, &c->tree, bench_compare_spans);
        free(s);
    }
}

void bench_alloc_checker_release(alloc_checker *c)
{
    tdestroy(c->tree, free);
    memset(c, 0, sizeof(*c));
}

/* ---- snapshots ---- */

static int bench_by_address(const void *a, const void *b)
{
    const span *x = a, *y = b;
    return (x->address > y->address) - (x->address < y->address);
}

static bool bench_check_sizes(const alloc_side *s, const alloc_slot *slot, uint64_t bytes, char *error)
{
    if (s->kind != ALLOC_HEDDLE) {
        return true; /* the rivals report no sizes; the checks of the bytes suffice for them */
    }
    uint64_t size = hd_buffer_size(slot->buffer), address = hd_buffer_address(slot->buffer);
    if (size == bytes && address != 0 && address % HEDDLE_ALIGNMENT == 0) {
        return true;
    }
    snprintf(error, PLAIN_ERROR, "a block of %llu bytes has %llu, at 0x%llx", (unsigned long long)bytes,
             (unsigned long long)size, (unsigned long long)address);
    return false;
}

static bool bench_check_overlaps(alloc_side *s, const alloc_slot *slots, const uint64_t *bytes, size_t count,
                                 char *error)
{
    span *spans = malloc((count + 1) * sizeof(*spans));
    size_t n = 0;
    bool ok = spans != NULL;
    if (!ok) {
        snprintf(error, PLAIN_ERROR, "out of memory for what is verified");
    }
    for (size_t i = 0; i < count && ok; i++) {
        if (bench_alloc_is_live(&slots[i])) {
            ok = bench_check_sizes(s, &slots[i], bytes[i], error);
            spans[n++] = (span){bench_alloc_address(s, &slots[i]), bytes[i]};
        }
    }
    if (ok) {
        qsort(spans, n, sizeof(*spans), bench_by_address);
    }
    for (size_t i = 1; i < n && ok; i++) {
        ok = spans[i - 1].address + spans[i - 1].bytes <= spans[i].address ||
             bench_overlap(&spans[i - 1], &spans[i], error);
    }
    free(spans);
    s->x->checked += ok ? n : 0;
    return ok;
}

static bool bench_write_word(alloc_side *s, const alloc_slot *slot, uint64_t offset, uint32_t value, char *error)
{
    switch (s->kind) {
    case ALLOC_HEDDLE:
        return cli_report_check(hd_fill(slot->buffer, offset, value, WORD, NULL), "hd_fill", error);
    case ALLOC_LIBC:
        memcpy((char *)slot->memory + offset, &value, WORD);
        return true;
    default:
        return DRIVER_TRY(s->d, error, cuMemsetD32Async, (slot->pointer + offset, value, 1, s->stream[0]));
    }
}

bool bench_alloc_read(alloc_side *s, uint32_t lane, alloc_slot slot, uint64_t offset, void *out, size_t bytes,
                      char *error)
{
    switch (s->kind) {
    case ALLOC_HEDDLE:
        return cli_report_check(hd_read(slot.buffer, offset, out, bytes), "hd_read", error);
    case ALLOC_LIBC:
        memcpy(out, (char *)slot.memory + offset, bytes);
        return true;
    default:
        return bench_alloc_wait(s, lane, error) &&
               DRIVER_TRY(s->d, error, cuMemcpyDtoH, (out, slot.pointer + offset, bytes));
    }
}

static bool bench_check_word(alloc_side *s, const alloc_slot *slot, uint64_t offset, uint32_t value, char *error)
{
    uint32_t found = 0;
    if (!bench_alloc_read(s, 0, *slot, offset, &found, WORD, error)) {
        return false;
    }
    if (found != value) {
        snprintf(error, PLAIN_ERROR, "%s: byte %llu of a block holds 0x%08x and not the 0x%08x written there",
                 alloc_kind_names[s->kind], (unsigned long long)offset, found, value);
    }
    return found == value;
}

/* Writes or checks the first and the last whole word of a block. The caller writes all blocks
 * before it checks the first. */
static bool bench_tag(alloc_side *s, const alloc_slot *slot, uint64_t bytes, uint32_t number, bool write, char *error)
{
    uint64_t last = (bytes - WORD) & ~(uint64_t)(WORD - 1);
    uint32_t first_value = 0xa0000000u | number, last_value = 0xb0000000u | number;
    bool (*word)(alloc_side *, const alloc_slot *, uint64_t, uint32_t, char *) =
        write ? bench_write_word : bench_check_word;
    return word(s, slot, 0, first_value, error) && word(s, slot, last, last_value, error);
}

bool bench_alloc_check_live(alloc_side *s, alloc_slot *slots, const uint64_t *bytes, size_t count, char *error)
{
    size_t live = 0, step;
    for (size_t i = 0; i < count; i++) {
        live += bench_alloc_is_live(&slots[i]) && bytes[i] >= 2 * WORD;
    }
    step = live / TAGGED_MOST + 1;
    bool ok = bench_check_overlaps(s, slots, bytes, count, error);
    for (int lane = 0; lane < s->lanes && ok; lane++) {
        ok = bench_alloc_wait(s, (uint32_t)lane, error); /* lane 0 reads all blocks below */
    }
    for (int write = 1; write >= 0 && ok; write--) {
        size_t seen = 0;
        for (size_t i = 0; i < count && ok; i++) {
            if (bench_alloc_is_live(&slots[i]) && bytes[i] >= 2 * WORD && seen++ % step == 0) {
                ok = bench_tag(s, &slots[i], bytes[i], (uint32_t)i & 0x0fffffffu, write, error);
                s->x->tagged += ok && !write;
            }
        }
        ok = ok && bench_alloc_wait(s, 0, error);
    }
    return ok;
}

/* ---- replays ---- */

typedef struct checked_replay {
    alloc_side *side;
    alloc_slot *slots;
    alloc_checker checker;
    uint64_t *bytes, live, sampled;
} checked_replay;

/* Reads the amount of memory that the driver has handed out, when live memory peaks. */
static void bench_note_peak(checked_replay *r)
{
    if (r->live > r->sampled + r->sampled / 256) {
        r->sampled = r->live;
        bench_alloc_side_sample(r->side);
    }
}

static alloc_end bench_check_op(checked_replay *r, const alloc_op *op, char *error)
{
    alloc_side *s = r->side;
    alloc_slot *slot = &r->slots[op->slot];
    if (op->bytes) {
        alloc_end end = bench_alloc_take(s, op->lane, op->bytes, slot, error);
        if (end != ALLOC_DONE) {
            /* refused: skipped */
            return end == ALLOC_NO_ROOM && s->kind != ALLOC_HEDDLE ? ALLOC_DONE : end;
        }
        r->bytes[op->slot] = op->bytes;
        r->live += op->bytes;
        bench_note_peak(r);
        return bench_alloc_checker_add(&r->checker, bench_alloc_address(s, slot), op->bytes, error) ? ALLOC_DONE
                                                                                                    : ALLOC_FAILED;
    }
    if (!bench_alloc_is_live(slot)) {
        return ALLOC_DONE;
    }
    bench_alloc_checker_remove(&r->checker, bench_alloc_address(s, slot), r->bytes[op->slot]);
    r->live -= r->bytes[op->slot];
    return bench_alloc_give(s, op->lane, slot, error) ? ALLOC_DONE : ALLOC_FAILED;
}

alloc_end bench_alloc_check_replay(alloc_side *s, const alloc_log *log, uint64_t deadline, alloc_slot *slots,
                                   size_t *done, char *error)
{
    checked_replay r = {.side = s, .slots = slots, .bytes = calloc(log->slots + 1, sizeof(*r.bytes))};
    alloc_end end = r.bytes ? ALLOC_DONE : ALLOC_FAILED;
    size_t i = 0;
    if (!r.bytes) {
        snprintf(error, PLAIN_ERROR, "out of memory for what is verified");
    }
    for (; end == ALLOC_DONE && i < log->count && (i % 32 || cli_stats_monotonic() < deadline); i++) {
        end = bench_check_op(&r, &log->ops[i], error);
    }
    *done = i;
    if (end == ALLOC_DONE && !bench_alloc_check_live(s, slots, r.bytes, log->slots, error)) {
        end = ALLOC_FAILED;
    }
    s->x->checked += r.checker.checked;
    bench_alloc_checker_release(&r.checker);
    free(r.bytes);
    if (!bench_alloc_give_all(s, slots, log->slots, error)) {
        end = ALLOC_FAILED;
    }
    return end;
}
