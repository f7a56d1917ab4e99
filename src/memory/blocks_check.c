/* blocks_check.c - figures of the allocator over offsets, and the verification of all its structures.
 *
 * Threads, locks, blocking: see blocks.h.
 * Always: nothing is changed here.
 */
#include "memory/blocks_internal.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- figures ---------------------------------------------------------------------------------------------------- */

const hdi_blocks_sums *hdi_blocks_get_sums(const hdi_blocks *b)
{
    return &b->sums;
}

size_t hdi_blocks_whole(const hdi_blocks *b)
{
    return b->n_whole;
}

static size_t largest_free(const hdi_blocks *b)
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
    size_t other = b->sums.live + b->sums.retired + b->sums.gap + b->sums.claimed;
    *out = (hdi_blocks_info){.managed_bytes = b->sums.end * HDI_BLOCKS_GRANULE,
                             .live_bytes = b->sums.live * HDI_BLOCKS_GRANULE,
                             .free_bytes = (b->sums.end - other) * HDI_BLOCKS_GRANULE,
                             .gap_bytes = b->sums.gap * HDI_BLOCKS_GRANULE,
                             .claimed_bytes = b->sums.claimed * HDI_BLOCKS_GRANULE,
                             .waiting_bytes = b->sums.waiting * HDI_BLOCKS_GRANULE,
                             .retired_bytes = b->sums.retired * HDI_BLOCKS_GRANULE,
                             .largest_free = largest_free(b) * HDI_BLOCKS_GRANULE,
                             .live_blocks = b->n_live,
                             .free_blocks = b->n_free,
                             .retired_blocks = b->n_retired,
                             .pending_points = b->n_all_nodes - b->n_spare_nodes};
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

/* ---- verification ----------------------------------------------------------------------------------------------- */

typedef struct findings {
    char *why;
    size_t why_bytes;
    size_t n[HDI_BLOCK_CLAIMED + 1], units[HDI_BLOCK_CLAIMED + 1]; /* by kind */
    size_t n_blocks, n_nodes, n_whole, n_queued, waiting;
} findings;

static bool __attribute__((format(printf, 2, 3))) wrong(const findings *f, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(f->why, f->why_bytes, format, arguments);
    va_end(arguments);
    return false;
}

/* Whether a block's links in its list of free blocks or gaps are right, and its class is marked as not empty. */
static bool hangs_right(const hdi_blocks *b, const hdi_block *k)
{
    unsigned class = hdi_block_class(k->units);
    return k->next->prev == k && k->prev->next == k && k->next->kind == k->kind &&
           (k->kind == HDI_BLOCK_GAP
                ? b->gaps != NULL
                : hdi_block_class(k->next->units) == class && b->heads[class / HDI_SPLIT][class % HDI_SPLIT] != NULL);
}

static bool check_block(const hdi_blocks *b, const hdi_block *k, findings *f)
{
    const hdi_block *before = k->before;
    f->n[k->kind]++;
    f->units[k->kind] += k->units;
    f->n_blocks++;
    f->n_queued += k->queued;
    switch (k->kind) {
    case HDI_BLOCK_LIVE:
        if (*hdi_blocks_live_link(b, k->start) != k) {
            return wrong(f, "live block at %zu: not in the table", k->start);
        }
        break;
    case HDI_BLOCK_FREE:
        if (hdi_block_free_pair(b, before, k) && !before->queued && !k->queued) {
            return wrong(f, "free block at %zu: follows a free block", k->start);
        }
        f->n_whole += k->units == b->wall;
        f->waiting += k->waits ? k->units : 0;
        if (!hangs_right(b, k) || k->waits != (k->pending != NULL) || (k->waits && !k->queued)) {
            return wrong(f, "free block at %zu: wrong in its lists", k->start);
        }
        break;
    case HDI_BLOCK_GAP:
        if ((before != NULL && before->kind == HDI_BLOCK_GAP) || !hangs_right(b, k)) {
            return wrong(f, "gap at %zu: follows a gap, or is wrong in its list", k->start);
        }
        break;
    default:
        break;
    }
    if ((k->pending != NULL && k->kind != HDI_BLOCK_FREE && k->kind != HDI_BLOCK_CLAIMED) ||
        ((k->queued || k->waits) && k->kind != HDI_BLOCK_FREE) || (k->lacks && k->kind != HDI_BLOCK_CLAIMED)) {
        return wrong(f, "block at %zu: not free and has a set, or not claimed and lacks memory", k->start);
    }
    for (const hdi_node *n = k->pending; n != NULL; n = n->next) {
        f->n_nodes++;
        if (n->next != NULL && n->next->point.lane <= n->point.lane) {
            return wrong(f, "free block at %zu: its set is not by rising lane", k->start);
        }
    }
    return true;
}

static bool check_order(const hdi_blocks *b, findings *f)
{
    size_t at = 0;
    const hdi_block *before = NULL;
    for (const hdi_block *k = b->first; k != NULL; before = k, k = k->after) {
        if (k->start != at || k->units == 0 || k->before != before) {
            return wrong(f, "block at %zu: starts at %zu, %zu long", at, k->start, k->units);
        }
        at += k->units;
        if (!check_block(b, k, f)) {
            return false;
        }
    }
    if (at != b->sums.end || before != b->last || b->sums.end > b->limit) {
        return wrong(f, "the blocks end at %zu, the range at %zu", at, b->sums.end);
    }
    const size_t *n = f->n, *units = f->units;
    if (n[HDI_BLOCK_LIVE] != b->n_live || n[HDI_BLOCK_FREE] != b->n_free || n[HDI_BLOCK_RETIRED] != b->n_retired ||
        n[HDI_BLOCK_GAP] != b->n_gaps || f->n_whole != b->n_whole || f->n_queued != b->n_queued) {
        return wrong(f, "counts: %zu live, %zu free, %zu retired, %zu gaps", n[HDI_BLOCK_LIVE], n[HDI_BLOCK_FREE],
                     n[HDI_BLOCK_RETIRED], n[HDI_BLOCK_GAP]);
    }
    if (units[HDI_BLOCK_LIVE] != b->sums.live || units[HDI_BLOCK_RETIRED] != b->sums.retired ||
        units[HDI_BLOCK_GAP] != b->sums.gap || units[HDI_BLOCK_CLAIMED] != b->sums.claimed ||
        f->waiting != b->sums.waiting) {
        return wrong(f, "sizes: %zu live, %zu retired, %zu gaps, %zu claimed, %zu waiting", units[HDI_BLOCK_LIVE],
                     units[HDI_BLOCK_RETIRED], units[HDI_BLOCK_GAP], units[HDI_BLOCK_CLAIMED], f->waiting);
    }
    return true;
}

static bool check_classes(const hdi_blocks *b, const findings *f)
{
    size_t hanging = 0;
    for (size_t c = 0; c < HDI_ROWS * HDI_SPLIT; c++) {
        const hdi_block *head = b->heads[c / HDI_SPLIT][c % HDI_SPLIT];
        bool marked = (b->classes[c / HDI_SPLIT] >> (c % HDI_SPLIT) & 1) != 0;
        if (marked != (head != NULL) || ((b->rows >> (c / HDI_SPLIT) & 1) != 0) != (b->classes[c / HDI_SPLIT] != 0)) {
            return wrong(f, "class %zu: its bit is wrong", c);
        }
        const hdi_block *k = head;
        while (k != NULL) {
            hanging++;
            if (hdi_block_class(k->units) != c || hanging > b->n_free) {
                return wrong(f, "class %zu: holds the block at %zu", c, k->start);
            }
            k = k->next != head ? k->next : NULL;
        }
    }
    return hanging == b->n_free || wrong(f, "classes: %zu of %zu free blocks", hanging, b->n_free);
}

static bool check_lists(const hdi_blocks *b, const findings *f)
{
    size_t chained = 0, gaps = 0, queued = 0;
    for (size_t i = 0; i < b->n_buckets; i++) {
        for (const hdi_block *k = b->buckets[i]; k != NULL; k = k->next) {
            chained++;
            if (k->kind != HDI_BLOCK_LIVE || hdi_blocks_bucket(b, k->start) != i || chained > b->n_live) {
                return wrong(f, "bucket %zu: holds the block at %zu", i, k->start);
            }
        }
    }
    for (const hdi_block *k = b->gaps; k != NULL && gaps <= b->n_gaps; k = k->next != b->gaps ? k->next : NULL) {
        gaps++;
    }
    const hdi_block *older = NULL;
    for (const hdi_block *k = b->oldest; k != NULL; older = k, k = k->newer) {
        queued++;
        if (!k->queued || k->older != older || queued > f->n_queued) {
            return wrong(f, "queue: holds the block at %zu", k->start);
        }
    }
    if (chained != b->n_live || gaps != b->n_gaps || queued != f->n_queued || older != b->newest) {
        return wrong(f, "lists: %zu of %zu live, %zu of %zu gaps, %zu of %zu waiting", chained, b->n_live, gaps,
                     b->n_gaps, queued, f->n_queued);
    }
    return true;
}

static bool check_spares(const hdi_blocks *b, const findings *f)
{
    size_t blocks = 0, nodes = 0;
    for (const hdi_block *k = b->spare_blocks; k != NULL && blocks <= b->n_all_blocks; k = k->next) {
        blocks++;
    }
    for (const hdi_node *n = b->spare_nodes; n != NULL && nodes <= b->n_all_nodes; n = n->next) {
        nodes++;
    }
    if (blocks != b->n_spare_blocks || blocks + f->n_blocks != b->n_all_blocks || blocks < b->n_claims) {
        return wrong(f, "descriptors: %zu spare and %zu used of %zu, %zu claims", blocks, f->n_blocks, b->n_all_blocks,
                     b->n_claims);
    }
    if (nodes != b->n_spare_nodes || nodes + f->n_nodes != b->n_all_nodes) {
        return wrong(f, "points: %zu spare and %zu used of %zu", nodes, f->n_nodes, b->n_all_nodes);
    }
    return true;
}

bool hdi_blocks_check(const hdi_blocks *b, char *why, size_t why_bytes)
{
    findings f = {.why = why, .why_bytes = why_bytes};
    return check_order(b, &f) && check_classes(b, &f) && check_lists(b, &f) && check_spares(b, &f);
}
