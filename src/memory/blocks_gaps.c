/* blocks_gaps.c - parts of the range without memory: gaps, runs of gaps and free blocks, and
 * pledges.
 *
 * A pledge is a block, or several neighbouring blocks, outside of all lists by class and of the
 * list of gaps. The pledge of a window keeps the window's parts as separate blocks. So the end of
 * the pledge can restore each part exactly as it was. The caller keeps the window's length. A
 * pledge of finished memory is one block.
 *
 * Threads, locks, blocking: see blocks.h.
 * Always: gaps are in a circular list without an order. One spare descriptor is kept for each
 * pledge, so that the end of a pledge needs no host memory.
 */
#include "base/number.h"
#include "memory/blocks_lists.h"

static void block_link_gap(hdi_blocks *b, hdi_block *k)
{
    k->kind = HDI_BLOCK_GAP;
    if (b->gaps == NULL) {
        k->next = k;
        k->prev = k;
    } else {
        k->next = b->gaps;
        k->prev = b->gaps->prev;
        k->prev->next = k;
        k->next->prev = k;
    }
    b->gaps = k;
    b->n_gaps++;
    b->sums.gap += k->units;
}

static void block_unlink_gap(hdi_blocks *b, hdi_block *k)
{
    if (k->next == k) {
        b->gaps = NULL;
    } else {
        k->next->prev = k->prev;
        k->prev->next = k->next;
        b->gaps = b->gaps == k ? k->next : b->gaps;
    }
    b->n_gaps--;
    b->sums.gap -= k->units;
}

static bool block_is_gap(const hdi_block *k)
{
    return k != NULL && k->kind == HDI_BLOCK_GAP;
}

/* Turns a block that is in no list into a gap, and joins it with neighbouring gaps. */
static void block_set_gap(hdi_blocks *b, hdi_block *k)
{
    hdi_block *after = k->after, *before = k->before;
    k->fresh = k->lacks = false;
    if (block_is_gap(after)) {
        block_unlink_gap(b, after);
        k->units += after->units;
        hdi_block_unlink(b, after);
        hdi_block_give(b, after);
    }
    if (block_is_gap(before)) {
        block_unlink_gap(b, before);
        before->units += k->units;
        hdi_block_unlink(b, k);
        hdi_block_give(b, k);
        k = before;
    }
    block_link_gap(b, k);
}

hd_status hdi_blocks_grow_gap(hdi_blocks *b, size_t bytes)
{
    hdi_block *k = NULL;
    hd_status status = hdi_blocks_extend(b, bytes, &k);
    if (status == HD_OK) {
        block_set_gap(b, k);
        hdi_blocks_check_sometimes(b);
    }
    return status;
}

/* The block that contains the granule `at`. */
static hdi_block *blocks_block_with(const hdi_blocks *b, size_t at)
{
    hdi_block *k = b->first;
    while (k != NULL && k->start + k->units <= at) {
        k = k->after;
    }
    return k;
}

hd_status hdi_blocks_fill(hdi_blocks *b, size_t from, size_t bytes, bool fresh, const hdi_point *points,
                          size_t n_points)
{
    if (!hdi_blocks_reserve(b, 2) || !hdi_blocks_reserve_nodes(b, n_points + HDI_SPARE_NODES)) {
        return HD_ERROR_HOST_MEMORY;
    }
    size_t start = from / HDI_BLOCKS_GRANULE, units = bytes / HDI_BLOCKS_GRANULE;
    hdi_block *k = b->gaps;
    while (k->start > start || k->start + k->units <= start) {
        k = k->next;
    }
    block_unlink_gap(b, k);
    hdi_block *front = k;
    if (start > k->start) {
        k = hdi_block_cut(b, front, start - front->start);
        block_link_gap(b, front);
    }
    if (k->units > units) {
        block_link_gap(b, hdi_block_cut(b, k, units));
    }
    k->fresh = fresh;
    for (size_t i = 0; i < n_points; i++) {
        if (!hdi_blocks_finished(b, points[i])) {
            hdi_block_add_point(b, k, points[i]);
        }
    }
    hdi_block_set_free(b, k);
    hdi_blocks_check_sometimes(b);
    return HD_OK;
}

void hdi_blocks_drop(hdi_blocks *b, size_t offset)
{
    hdi_block *k = *hdi_blocks_live_link(b, offset / HDI_BLOCKS_GRANULE);
    if (k != NULL) {
        hdi_block_remove_live(b, k);
        block_set_gap(b, k);
        hdi_blocks_check_sometimes(b);
    }
}

/* ---- mappings that are entirely free --------------------------------------------------------- */

/* True if all of a mapping is free. *unused: no work uses it. */
static bool blocks_free_between(hdi_blocks *b, hdi_block *k, size_t begin, size_t end, bool *unused)
{
    while (k->start > begin && k->kind == HDI_BLOCK_FREE) {
        k = k->before;
    }
    *unused = true;
    for (; k != NULL && k->start < end; k = k->after) {
        if (k->kind != HDI_BLOCK_FREE) {
            return false;
        }
        hdi_block_prune(b, k);
        *unused &= k->pending == NULL;
    }
    return true;
}

hdi_part hdi_block_part(hdi_blocks *b, hdi_block *k, size_t at, size_t from, size_t to, size_t *begin, size_t *end)
{
    bool unused;
    if (b->config.mapping == NULL ||
        !b->config.mapping(b->config.mapping_context, at * HDI_BLOCKS_GRANULE, begin, end)) {
        return HDI_PART_ALLOWED;
    }
    *begin /= HDI_BLOCKS_GRANULE;
    *end /= HDI_BLOCKS_GRANULE;
    if ((*begin >= from && *end <= to) || !blocks_free_between(b, k, *begin, *end, &unused)) {
        return HDI_PART_ALLOWED;
    }
    return unused ? HDI_PART_UNUSED : *end - *begin > to - from ? HDI_PART_USED : HDI_PART_ALLOWED;
}

bool hdi_blocks_divided(hdi_blocks *b, const hdi_run *run, size_t bytes, size_t *from, size_t *to)
{
    size_t start = run->from / HDI_BLOCKS_GRANULE, end = start + (bytes - 1) / HDI_BLOCKS_GRANULE + 1;
    hdi_block *first = run->at != NULL ? run->at : blocks_block_with(b, start), *last = first;
    while (last->start + last->units < end) {
        last = last->after;
    }
    hdi_block *at[] = {first, last};
    for (int i = 0; i < 2; i++) {
        if (at[i]->kind == HDI_BLOCK_FREE &&
            hdi_block_part(b, at[i], i == 0 ? start : end - 1, start, end, from, to) == HDI_PART_UNUSED) {
            *from *= HDI_BLOCKS_GRANULE;
            *to *= HDI_BLOCKS_GRANULE;
            return true;
        }
    }
    return false;
}

/* ---- the best window of a run ---------------------------------------------------------------- */

/* A search for the best window, in granules. */
typedef struct search {
    size_t units, alignment, unit;
    uint32_t lane;
    bool no_wait, divide;
    size_t run_from, run_to; /* the current run */
    hdi_block *first, *end;  /* the first block of the run, and the block behind its last one */
    bool found;
    size_t from, lacks;
    hdi_block *at;
} search;

/* A place in a run. `lacks`: granules of gaps in front of block `k`. */
typedef struct cursor {
    hdi_block *k;
    size_t lacks;
} cursor;

static bool run_search_usable(hdi_blocks *b, hdi_block *k, const search *s)
{
    if (k == NULL || k->kind == HDI_BLOCK_GAP) {
        return k != NULL;
    }
    if (k->kind != HDI_BLOCK_FREE) {
        return false;
    }
    if (!s->no_wait) {
        return true;
    }
    hdi_block_prune(b, k);
    return hdi_block_suits(k, s->lane);
}

/* Moves a cursor forward to the block that contains the granule `at`. */
static void run_cursor_advance(cursor *c, size_t at)
{
    while (c->k->start + c->k->units <= at) {
        c->lacks += block_is_gap(c->k) ? c->k->units : 0;
        c->k = c->k->after;
    }
}

/* The granules of gaps from the run's start up to `to`, where a window ends. */
static size_t run_cursor_lacks_before(cursor *c, size_t to, const search *s)
{
    run_cursor_advance(c, to - 1);
    return c->lacks + (block_is_gap(c->k) ? hdi_round_up(to - c->k->start, s->unit) : 0);
}

/* True if the mapping at one end of a window, in block `k`, may be divided. */
static bool run_search_may_divide(hdi_blocks *b, const search *s, hdi_block *k, size_t at, size_t from)
{
    size_t begin, end;
    return s->divide || k->kind != HDI_BLOCK_FREE ||
           hdi_block_part(b, k, at, from, from + s->units, &begin, &end) != HDI_PART_USED;
}

/* Compares the window that begins at `from` with the best window. Before the call, the cursor
 * `begin` is not behind the start of the window, and `end` is not behind its end. */
static void run_search_compare(hdi_blocks *b, search *s, size_t from, cursor *begin, cursor *end)
{
    run_cursor_advance(begin, from);
    size_t missing_in_front = begin->lacks + (block_is_gap(begin->k) ? from - begin->k->start : 0);
    size_t lacks = run_cursor_lacks_before(end, from + s->units, s) - missing_in_front;
    if ((!s->found || lacks < s->lacks || (lacks == s->lacks && from < s->from)) &&
        run_search_may_divide(b, s, begin->k, from, from) &&
        run_search_may_divide(b, s, end->k, from + s->units - 1, from)) {
        s->found = true;
        s->from = from;
        s->lacks = lacks;
        s->at = begin->k;
    }
}

/* Compares the windows that can lack the fewest bytes. Such a window begins or ends with a free
 * block, or lies at an end of the run. */
static void run_search_look_at_run(hdi_blocks *b, search *s)
{
    if (s->run_to - s->run_from < s->units) {
        return;
    }
    const size_t latest = s->run_to - s->units;
    /* Two cursors follow the windows with a given begin, and two follow the windows with a given
     * end. Cursors only move forward. */
    cursor begin = {s->first, 0}, begin_end = begin, end_begin = begin, end_end = begin;
    for (hdi_block *k = s->first; k != s->end; k = k->after) {
        if (k == s->first || !block_is_gap(k)) {
            size_t from = hdi_round_up(k->start, s->alignment);
            if (from <= latest) {
                run_search_compare(b, s, from, &begin, &begin_end);
            }
        }
        size_t to = k->start + k->units;
        if ((k->after == s->end || !block_is_gap(k)) && to >= s->run_from + s->units) {
            size_t from = to - s->units;
            run_cursor_advance(&end_begin, from);
            /* A window that begins in a gap begins at a multiple of the unit. */
            size_t step = block_is_gap(end_begin.k) && s->unit > s->alignment ? s->unit : s->alignment;
            from = from / step * step;
            if (from >= end_begin.k->start) {
                run_search_compare(b, s, from, &end_begin, &end_end);
            }
        }
    }
}

static bool run_search_is_seed(const hdi_block *k)
{
    return k->kind == HDI_BLOCK_GAP || k->queued;
}

/* Looks at the run that contains `seed`, a gap or a queued free block. Does so only for the first
 * seed of a run, so that each run is looked at once. Of two free neighbours at least one is queued,
 * so the previous seed of a run is at most two blocks away. */
static void run_search_look_from(hdi_blocks *b, hdi_block *seed, search *s)
{
    hdi_block *first = seed;
    while (run_search_usable(b, first->before, s)) {
        first = first->before;
        if (run_search_is_seed(first)) {
            return;
        }
    }
    s->first = first;
    s->run_from = first->start;
    s->end = first;
    while (run_search_usable(b, s->end, s)) {
        s->run_to = s->end->start + s->end->units;
        s->end = s->end->after;
    }
    run_search_look_at_run(b, s);
}

static void run_search_look_at_all(hdi_blocks *b, search *s)
{
    hdi_block *gap = b->gaps;
    for (size_t i = b->n_gaps; i > 0; i--, gap = gap->next) {
        run_search_look_from(b, gap, s);
    }
    for (hdi_block *k = b->oldest; k != NULL; k = k->newer) {
        if (run_search_usable(b, k, s)) {
            run_search_look_from(b, k, s);
        }
    }
}

bool hdi_blocks_find_run(hdi_blocks *b, const hdi_blocks_request *request, size_t unit, hdi_block *as_gaps,
                         hdi_run *out)
{
    search s = {.units = (request->bytes - 1) / HDI_BLOCKS_GRANULE + 1,
                .alignment = request->alignment > HDI_BLOCKS_GRANULE ? request->alignment / HDI_BLOCKS_GRANULE : 1,
                .unit = unit / HDI_BLOCKS_GRANULE,
                .lane = request->lane,
                .no_wait = request->no_wait,
                .divide = request->divide};
    if (s.units > b->sums.end) {
        return false;
    }
    for (hdi_block *k = as_gaps, *next; k != NULL; k = next) {
        next = k->next;
        k->older = next; /* the list of gaps overwrites `next` */
        block_link_gap(b, k);
    }
    run_search_look_at_all(b, &s);
    for (hdi_block *k = as_gaps; k != NULL; k = k->next) {
        block_unlink_gap(b, k);
        k->kind = HDI_BLOCK_PLEDGED;
        k->next = k->older;
    }
    if (!s.found) {
        return false;
    }
    size_t to = s.from + s.units;
    hdi_block *last = s.at;
    while (last->start + last->units < to) {
        last = last->after;
    }
    if (block_is_gap(last)) {
        to = last->start + hdi_round_up(to - last->start, s.unit);
    }
    *out = (hdi_run){.from = s.from * HDI_BLOCKS_GRANULE,
                     .to = to * HDI_BLOCKS_GRANULE,
                     .lacks = s.lacks * HDI_BLOCKS_GRANULE,
                     .at = as_gaps == NULL ? s.at : NULL};
    return true;
}

bool hdi_blocks_find_gap(const hdi_blocks *b, size_t bytes, hdi_run *out)
{
    hdi_block *best = b->gaps;
    if (best == NULL) {
        return false;
    }
    if (block_is_gap(b->last) && b->last->units >= bytes / HDI_BLOCKS_GRANULE) {
        best = b->last;
    } else {
        for (hdi_block *k = best->next; k != b->gaps; k = k->next) {
            best = k->units > best->units ? k : best;
        }
    }
    size_t length = best->units * HDI_BLOCKS_GRANULE;
    *out = (hdi_run){.from = best->start * HDI_BLOCKS_GRANULE,
                     .to = best->start * HDI_BLOCKS_GRANULE + length,
                     .lacks = length,
                     .at = best};
    return true;
}

/* ---- pledges --------------------------------------------------------------------------------- */

static void block_set_pledged(hdi_blocks *b, hdi_block *k, bool lacks)
{
    k->kind = HDI_BLOCK_PLEDGED;
    k->lacks = lacks;
    k->next = k->prev = NULL;
    b->sums.pledged += k->units;
}

/* Pledges a part of a free block or of a gap, which leaves its list. The rests in front and behind
 * keep their kinds. Before the call, descriptors and nodes for both rests are spare. */
static hdi_block *block_pledge_part(hdi_blocks *b, hdi_block *k, size_t start, size_t end)
{
    bool lacks = block_is_gap(k);
    if (lacks) {
        block_unlink_gap(b, k);
    } else {
        hdi_block_remove_free(b, k);
    }
    hdi_block *part = k, *behind = NULL;
    if (start > k->start) {
        part = hdi_block_cut(b, k, start - k->start);
        hdi_block_copy_set(b, part, k);
    }
    if (end < part->start + part->units) {
        behind = hdi_block_cut(b, part, end - part->start);
        hdi_block_copy_set(b, behind, part);
    }
    hdi_block *rests[] = {part != k ? k : NULL, behind};
    for (int i = 0; i < 2; i++) {
        if (rests[i] != NULL && lacks) {
            block_link_gap(b, rests[i]);
        } else if (rests[i] != NULL) {
            hdi_block_insert_free(b, rests[i]);
        }
    }
    block_set_pledged(b, part, lacks);
    return part;
}

hd_status hdi_blocks_pledge_run(hdi_blocks *b, const hdi_run *run, hdi_points *inherited, hdi_block **pledge)
{
    size_t from = run->from / HDI_BLOCKS_GRANULE, to = run->to / HDI_BLOCKS_GRANULE;
    hdi_block *first = run->at != NULL ? run->at : blocks_block_with(b, from), *last = first;
    for (hdi_block *k = first; k != NULL && k->start < to; k = k->after) {
        hdi_block_prune(b, k);
        last = k;
    }
    /* Two cuts need one descriptor each, and the end of the pledge needs a third one. */
    if (!hdi_blocks_reserve(b, 3) ||
        !hdi_blocks_reserve_for_owner(b, hdi_block_count_set(first) + hdi_block_count_set(last)) ||
        !hdi_blocks_gather(b, first, to, inherited)) {
        return HD_ERROR_HOST_MEMORY;
    }
    b->n_pledges++;
    for (hdi_block *k = first; k != NULL && k->start < to;) {
        size_t end = k->start + k->units;
        hdi_block *part = block_pledge_part(b, k, k->start > from ? k->start : from, end < to ? end : to);
        if (k == first) {
            *pledge = part;
        }
        k = part->after;
    }
    hdi_blocks_check_sometimes(b);
    return HD_OK;
}

void hdi_blocks_finish(hdi_blocks *b, hdi_block *pledge, size_t to, size_t bytes)
{
    size_t end = to / HDI_BLOCKS_GRANULE, units = (bytes - 1) / HDI_BLOCKS_GRANULE + 1;
    hdi_block *k = pledge;
    b->n_pledges--;
    b->sums.pledged -= end - k->start;
    hdi_block_drop_set(b, k);
    while (k->start + k->units < end) {
        hdi_block *gone = k->after;
        hdi_block_drop_set(b, gone);
        k->units += gone->units;
        hdi_block_unlink(b, gone);
        hdi_block_give(b, gone);
    }
    if (k->units > units) {
        hdi_block *rest = hdi_block_cut(b, k, units);
        rest->fresh = true;
        rest->lacks = false;
        hdi_block_set_free(b, rest);
    }
    k->fresh = k->lacks = false;
    hdi_block_insert_live(b, k);
    hdi_blocks_check_sometimes(b);
}

/* Ends the pledge of one block. */
static void block_end_pledge(hdi_blocks *b, hdi_block *k, bool as_gap)
{
    b->sums.pledged -= k->units;
    k->fresh = k->fresh || k->lacks; /* memory in the place of a gap was never handed out */
    k->lacks = false;
    if (as_gap) {
        hdi_block_drop_set(b, k);
        block_set_gap(b, k);
    } else {
        hdi_block_set_free(b, k);
    }
}

void hdi_blocks_settle(hdi_blocks *b, hdi_block *pledge, size_t to, size_t filled_to)
{
    size_t end = to / HDI_BLOCKS_GRANULE, filled = filled_to / HDI_BLOCKS_GRANULE;
    b->n_pledges--;
    for (hdi_block *k = pledge, *after; k != NULL && k->start < end; k = after) {
        if (k->lacks && k->start < filled && k->start + k->units > filled) {
            hdi_block_cut(b, k, filled - k->start);
        }
        after = k->start + k->units < end ? k->after : NULL;
        block_end_pledge(b, k, k->lacks && k->start >= filled);
    }
    hdi_blocks_check_sometimes(b);
}

/* Offers a free block without unfinished uses to `choose`, and pledges the part that `choose`
 * takes. Returns the choice; STOP without host memory. */
static hdi_choice block_offer_pledge(hdi_blocks *b, hdi_block *found, hdi_choose choose, void *context,
                                     hdi_block **list, hd_status *status)
{
    size_t from = found->start * HDI_BLOCKS_GRANULE, to = (found->start + found->units) * HDI_BLOCKS_GRANULE;
    hdi_choice choice = choose(context, &from, &to);
    if (choice == HDI_CHOICE_TAKE) {
        if (!hdi_blocks_reserve(b, 3)) {
            *status = HD_ERROR_HOST_MEMORY;
            return HDI_CHOICE_STOP;
        }
        hdi_block *pledge = block_pledge_part(b, found, from / HDI_BLOCKS_GRANULE, to / HDI_BLOCKS_GRANULE);
        b->n_pledges++;
        pledge->next = *list;
        *list = pledge;
    }
    return choice;
}

static bool block_is_unused(hdi_blocks *b, hdi_block *k)
{
    if (k->kind != HDI_BLOCK_FREE) {
        return false;
    }
    hdi_block_prune(b, k);
    return k->pending == NULL;
}

hd_status hdi_blocks_pledge_finished(hdi_blocks *b, size_t bytes, bool highest_first, hdi_choose choose, void *context,
                                     hdi_block **list)
{
    size_t units = bytes / HDI_BLOCKS_GRANULE;
    hd_status status = HD_OK;
    hdi_choice choice = HDI_CHOICE_SKIP;
    if (highest_first) {
        for (hdi_block *k = b->last, *before; k != NULL && choice != HDI_CHOICE_STOP; k = before) {
            before = k->before;
            if (block_is_unused(b, k) && k->units >= units) {
                choice = block_offer_pledge(b, k, choose, context, list, &status);
            }
        }
        return status;
    }
    for (int class = hdi_blocks_next_class(b, hdi_block_class(units)); class >= 0 && choice != HDI_CHOICE_STOP;
         class = hdi_blocks_next_class(b, (unsigned)class + 1)) {
        /* The rest of a pledged block goes to the head of its list, so the loop does not visit the
         * rest. */
        hdi_block *k = *hdi_blocks_head(b, class), *last = k->prev;
        for (bool more = true; more && choice != HDI_CHOICE_STOP;) {
            hdi_block *next = k->next;
            more = k != last;
            if (block_is_unused(b, k) && k->units >= units) {
                choice = block_offer_pledge(b, k, choose, context, list, &status);
            }
            k = next;
        }
    }
    hdi_blocks_check_sometimes(b);
    return status;
}

hdi_block *hdi_blocks_pledged(const hdi_block *pledge, size_t *from, size_t *to)
{
    *from = pledge->start * HDI_BLOCKS_GRANULE;
    *to = (pledge->start + pledge->units) * HDI_BLOCKS_GRANULE;
    return pledge->next;
}

hdi_block *hdi_blocks_vacate(hdi_blocks *b, hdi_block *pledge, size_t gone_to)
{
    hdi_block *next = pledge->next;
    size_t gone = gone_to / HDI_BLOCKS_GRANULE;
    b->n_pledges--;
    if (gone > pledge->start && gone < pledge->start + pledge->units) {
        hdi_block *rest = hdi_block_cut(b, pledge, gone - pledge->start);
        block_end_pledge(b, pledge, true);
        block_end_pledge(b, rest, false);
    } else {
        block_end_pledge(b, pledge, gone > pledge->start);
    }
    hdi_blocks_check_sometimes(b);
    return next;
}
