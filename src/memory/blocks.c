/* blocks.c - an allocator over a range of offsets: "two-level segregated fit", extended by the
 * points of former uses.
 *
 * A hash table with chains finds the live block at an offset. blocks_lists.c describes the search
 * for free blocks. A function takes all the host memory that it needs before it changes anything.
 *
 * Threads, locks, blocking: see blocks.h.
 * Always: everything that hdi_blocks_check verifies.
 */
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/text.h"
#include "memory/blocks_lists.h"

/* an allocation looks at up to LOOK blocks of a class, and compares up to LOOK blocks that fit */
#define LOOK 8

/* ---- finding a free block -------------------------------------------------------------------- */

/* A search, in granules, and its best block so far. */
typedef struct choice {
    size_t units, alignment;
    uint32_t lane;
    bool divide; /* as in hdi_blocks_request */
    bool unused; /* a mapping that is unused may be divided, too */
    hdi_block *block;
    size_t start; /* the start of the place in that block */
    bool suits;
    int compared; /* blocks that fit */
} choice;

static choice blocks_choice_of(const hdi_blocks_request *request)
{
    return (choice){.units = (request->bytes - 1) / HDI_BLOCKS_GRANULE + 1,
                    .alignment = request->alignment > HDI_BLOCKS_GRANULE ? request->alignment / HDI_BLOCKS_GRANULE : 1,
                    .lane = request->lane,
                    .divide = request->divide};
}

/* True if an owner may get a place in a free block without dividing a mapping that must stay
 * whole. */
static bool blocks_choice_may_divide(hdi_blocks *b, hdi_block *k, size_t start, const choice *c)
{
    size_t begin, end, to = start + c->units;
    hdi_part first = hdi_block_part(b, k, start, start, to, &begin, &end);
    hdi_part last = hdi_block_part(b, k, to - 1, start, to, &begin, &end);
    return (c->unused || (first != HDI_PART_UNUSED && last != HDI_PART_UNUSED)) &&
           (c->divide || (first != HDI_PART_USED && last != HDI_PART_USED));
}

static void blocks_choice_consider(hdi_blocks *b, hdi_block *k, choice *best)
{
    size_t over = best->alignment > 1 ? k->start % best->alignment : 0;
    size_t skipped = over != 0 ? best->alignment - over : 0;
    if (k->units < best->units || k->units - best->units < skipped) {
        return;
    }
    hdi_block_prune(b, k);
    bool good = hdi_block_suits(k, best->lane);
    bool better =
        best->block == NULL || (good && !best->suits) || (good == best->suits && k->units < best->block->units);
    if (better && b->config.mapping != NULL && !blocks_choice_may_divide(b, k, k->start + skipped, best)) {
        return;
    }
    best->compared++;
    if (better) {
        best->block = k;
        best->start = k->start + skipped;
        best->suits = good;
    }
}

/* Finds the block for a request, and leaves the block in its list. best->block is NULL if no block
 * is large enough. */
static void blocks_choice_find(hdi_blocks *b, choice *best)
{
    unsigned own = hdi_block_class(best->units);
    for (int class = hdi_blocks_next_class(b, own); class >= 0 && best->compared < LOOK;
         class = hdi_blocks_next_class(b, (unsigned)class + 1)) {
        /* Searches from both ends in turn: blocks of this lane are probably the newest, and
         * finished blocks the oldest. */
        hdi_block *newest = *hdi_blocks_head(b, class);
        hdi_block *oldest = newest->prev;
        for (int step = 0; step < LOOK && best->compared < LOOK; step++) {
            bool from_newest = step % 2 == 0;
            blocks_choice_consider(b, from_newest ? newest : oldest, best);
            if (newest == oldest) {
                break;
            }
            if (from_newest) {
                newest = newest->next;
            } else {
                oldest = oldest->prev;
            }
        }
    }
    if (best->block == NULL) {
        /* The class of the request can contain blocks that fit and blocks that do not. With an
         * alignment, the same is true of the next classes, up to the first class in which every
         * block fits. The search of all these classes takes a thousandth of the time of a request
         * for more memory. */
        unsigned last = hdi_block_class(best->units + best->alignment - 1);
        for (int class = hdi_blocks_next_class(b, own); class >= 0 && (unsigned)class <= last && best->compared < LOOK;
             class = hdi_blocks_next_class(b, (unsigned)class + 1)) {
            hdi_block *head = *hdi_blocks_head(b, class);
            hdi_block *k = head;
            do {
                blocks_choice_consider(b, k, best);
                k = k->next;
            } while (k != head && best->compared < LOOK);
        }
    }
}

/* ---- live blocks by offset ------------------------------------------------------------------- */

static hdi_block *blocks_live_at(const hdi_blocks *b, size_t offset)
{
    return offset % HDI_BLOCKS_GRANULE == 0 ? *hdi_blocks_live_link(b, offset / HDI_BLOCKS_GRANULE) : NULL;
}

/* Doubles the table once it contains as many live blocks as chains. If host memory is missing, the
 * chains get longer instead. */
static void blocks_grow_buckets(hdi_blocks *b)
{
    if (b->n_live < b->n_buckets) {
        return;
    }
    size_t old_count = b->n_buckets;
    hdi_block **old = b->buckets;
    hdi_block **buckets = hdi_blocks_host_memory(&b->config, old_count * 2 * sizeof(hdi_block *));
    if (buckets == NULL) {
        return;
    }
    memset(buckets, 0, old_count * 2 * sizeof(hdi_block *));
    b->buckets = buckets;
    b->n_buckets = old_count * 2;
    for (size_t i = 0; i < old_count; i++) {
        for (hdi_block *k = old[i]; k != NULL;) {
            hdi_block *next = k->next;
            hdi_block **head = &buckets[hdi_blocks_bucket(b, k->start)];
            k->next = *head;
            *head = k;
            k = next;
        }
    }
    free(old);
}

/* ---- the interface --------------------------------------------------------------------------- */

hd_status hdi_blocks_grow(hdi_blocks *b, size_t bytes)
{
    hdi_block *k = NULL;
    hd_status status = hdi_blocks_extend(b, bytes, &k);
    if (status == HD_OK) {
        k->fresh = true;
        hdi_block_set_free(b, k);
        hdi_blocks_check_sometimes(b);
    }
    return status;
}

static hdi_origin blocks_origin_of(const hdi_block *k, bool suits)
{
    if (k->pending != NULL) {
        return suits ? HDI_ORIGIN_SAME_LANE : HDI_ORIGIN_WAITED;
    }
    return k->fresh ? HDI_ORIGIN_FRESH : HDI_ORIGIN_FINISHED;
}

/* Cuts the new owner's part out of the free block `k`, and returns this part. The rests in front
 * and behind stay free. On entry, `k` is in no class. */
static hdi_block *blocks_carve(hdi_blocks *b, hdi_block *k, size_t start, size_t units)
{
    if (start > k->start) {
        hdi_block *part = hdi_block_cut(b, k, start - k->start);
        if (part->units > units) {
            hdi_block *behind = hdi_block_cut(b, part, units);
            hdi_block_copy_set(b, behind, k);
            hdi_block_insert_free(b, behind);
        }
        hdi_block_insert_free(b, k);
        return part;
    }
    if (k->units > units) {
        hdi_block *behind = hdi_block_cut(b, k, units);
        behind->pending = k->pending;
        k->pending = NULL;
        hdi_block_insert_free(b, behind);
    } else {
        hdi_block_drop_set(b, k);
    }
    return k;
}

/* Gets the points that the owner of a part of k must wait for. False: no host memory. */
static bool blocks_inherit_points(const hdi_blocks *b, const hdi_block *k, hdi_points *out)
{
    const hdi_node *n = k->pending;
    if (n == NULL || n->next == NULL) {
        memset(out, 0, sizeof *out);
        if (n != NULL) {
            out->count = 1;
            out->at.few[0] = n->point;
        }
        return true;
    }
    return hdi_blocks_gather(b, k, k->start + 1, out);
}

hd_status hdi_blocks_take(hdi_blocks *b, const hdi_blocks_request *request, hdi_blocks_taken *out)
{
    out->origin = HDI_ORIGIN_NONE;
    if (request->bytes > b->sums.end * HDI_BLOCKS_GRANULE) {
        return HD_ERROR_NOT_FOUND;
    }
    choice best = blocks_choice_of(request);
    blocks_choice_find(b, &best);
    hdi_block *k = best.block;
    if (k == NULL || (request->no_wait && !best.suits)) {
        out->origin = k != NULL ? HDI_ORIGIN_WAITED : HDI_ORIGIN_NONE;
        return HD_ERROR_NOT_FOUND;
    }

    /* Everything that can fail comes before the first change. */
    bool in_front = best.start > k->start, behind = best.start + best.units < k->start + k->units;
    hdi_points points;
    if (!hdi_blocks_reserve(b, (size_t)in_front + behind) ||
        !hdi_blocks_reserve_for_owner(b, in_front && behind ? hdi_block_count_set(k) : 0) ||
        !blocks_inherit_points(b, k, &points)) {
        return HD_ERROR_HOST_MEMORY;
    }

    out->origin = blocks_origin_of(k, best.suits);
    hdi_block_remove_free(b, k);
    k = blocks_carve(b, k, best.start, best.units);
    k->fresh = false;
    blocks_grow_buckets(b);
    hdi_block_insert_live(b, k);
    out->offset = k->start * HDI_BLOCKS_GRANULE;
    out->inherited = points;
    hdi_blocks_check_sometimes(b);
    return HD_OK;
}

bool hdi_blocks_find_free(hdi_blocks *b, const hdi_blocks_request *request, hdi_run *out)
{
    choice best = blocks_choice_of(request);
    best.unused = true;
    blocks_choice_find(b, &best);
    if (best.block == NULL || (request->no_wait && !best.suits)) {
        return false;
    }
    *out = (hdi_run){.from = best.start * HDI_BLOCKS_GRANULE,
                     .to = (best.start + best.units) * HDI_BLOCKS_GRANULE,
                     .at = best.block};
    return true;
}

hd_status hdi_blocks_alloc(hdi_blocks *b, size_t bytes, uint32_t lane, size_t *offset, hdi_points *inherited)
{
    if (bytes == 0) {
        return hdi_fail(HD_ERROR_ARGUMENT, "blocks: a block of 0 bytes");
    }
    hdi_blocks_request request = {.bytes = bytes, .lane = lane};
    hdi_blocks_taken taken;
    hd_status status = hdi_blocks_take(b, &request, &taken);
    if (status == HD_ERROR_HOST_MEMORY) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "blocks: no host memory for the bookkeeping of a block of %s",
                        HDI_BYTES(bytes));
    }
    if (status == HD_OK) {
        *offset = taken.offset;
        *inherited = taken.inherited;
    }
    return status;
}

/* Makes room for `count` nodes. Without host memory it drops the finished points of every set. */
static bool blocks_find_nodes(hdi_blocks *b, size_t count)
{
    if (hdi_blocks_reserve_nodes(b, count)) {
        return true;
    }
    hdi_blocks_prune(b);
    return b->n_spare_nodes >= count;
}

bool hdi_blocks_free(hdi_blocks *b, size_t offset, const hdi_point *points, size_t n_points)
{
    hdi_block *k = blocks_live_at(b, offset);
    if (k == NULL) {
        return false;
    }
    size_t unfinished = 0;
    for (size_t i = 0; i < n_points; i++) {
        unfinished += !hdi_blocks_finished(b, points[i]);
    }
    hdi_block_remove_live(b, k);
    if (!blocks_find_nodes(b, unfinished)) {
        k->kind = HDI_BLOCK_RETIRED;
        k->next = NULL;
        b->n_retired++;
        b->sums.retired += k->units;
        hdi_blocks_check_sometimes(b);
        return true;
    }
    for (size_t i = 0; unfinished != 0 && i < n_points; i++) {
        /* At most `unfinished` points are left, since a finished point stays finished. */
        if (!hdi_blocks_finished(b, points[i])) {
            hdi_block_add_point(b, k, points[i]);
        }
    }
    hdi_block_set_free(b, k);
    hdi_blocks_look_at_queue(b);
    hdi_blocks_check_sometimes(b);
    return true;
}

/* ---- figures --------------------------------------------------------------------------------- */

const hdi_blocks_sums *hdi_blocks_get_sums(const hdi_blocks *b)
{
    return &b->sums;
}

size_t hdi_blocks_whole(const hdi_blocks *b)
{
    return b->n_whole;
}

static size_t blocks_largest_free(const hdi_blocks *b)
{
    if (b->rows == 0) {
        return 0;
    }
    unsigned row = 63u - (unsigned)__builtin_clzll(b->rows);
    unsigned column = 31u - (unsigned)__builtin_clz(b->classes[row]);
    const hdi_block *head = b->heads[row][column];
    const hdi_block *k = head;
    size_t units = 0;
    do {
        units = k->units > units ? k->units : units;
        k = k->next;
    } while (k != head);
    return units;
}

void hdi_blocks_get_info(const hdi_blocks *b, hdi_blocks_info *out)
{
    size_t other = b->sums.live + b->sums.retired + b->sums.gap + b->sums.pledged;
    *out = (hdi_blocks_info){.managed_bytes = b->sums.end * HDI_BLOCKS_GRANULE,
                             .live_bytes = b->sums.live * HDI_BLOCKS_GRANULE,
                             .free_bytes = (b->sums.end - other) * HDI_BLOCKS_GRANULE,
                             .gap_bytes = b->sums.gap * HDI_BLOCKS_GRANULE,
                             .pledged_bytes = b->sums.pledged * HDI_BLOCKS_GRANULE,
                             .waiting_bytes = b->sums.waiting * HDI_BLOCKS_GRANULE,
                             .retired_bytes = b->sums.retired * HDI_BLOCKS_GRANULE,
                             .largest_free = blocks_largest_free(b) * HDI_BLOCKS_GRANULE,
                             .live_blocks = b->n_live,
                             .free_blocks = b->n_free,
                             .retired_blocks = b->n_retired,
                             .pending_points = b->n_all_nodes - b->n_spare_nodes};
}

static bool block_waits_for(const hdi_blocks *b, const hdi_block *k, hdi_of_point of, void *context)
{
    for (const hdi_node *n = k->kind == HDI_BLOCK_FREE ? k->pending : NULL; n != NULL; n = n->next) {
        if (!hdi_blocks_finished(b, n->point) && of(context, n->point)) {
            return true;
        }
    }
    return false;
}

size_t hdi_blocks_waiting_of(const hdi_blocks *b, hdi_of_point of, void *context)
{
    size_t units = 0;
    for (const hdi_block *k = b->first; k != NULL; k = k->after) {
        units += block_waits_for(b, k, of, context) ? k->units : 0;
    }
    return units * HDI_BLOCKS_GRANULE;
}

bool hdi_blocks_each(const hdi_blocks *b, bool (*visit)(void *context, size_t from, size_t to, hdi_block_kind kind),
                     void *context)
{
    for (const hdi_block *k = b->first; k != NULL; k = k->after) {
        size_t end = (k->start + k->units) * HDI_BLOCKS_GRANULE;
        if (!visit(context, k->start * HDI_BLOCKS_GRANULE, end, k->kind)) {
            return false;
        }
    }
    return true;
}
