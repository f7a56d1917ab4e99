/* blocks_lists.c - the records of an allocator over offsets: descriptors of blocks, sets of points,
 * and lists.
 *
 * Descriptors of blocks and nodes of points come from slabs. All slabs are freed when the allocator
 * is destroyed.
 *
 * Free blocks are in lists by size class. Each doubling of the size is a row of SPLIT classes.
 * Bitmaps show the rows and classes with blocks, so a few instructions find the class that fits.
 * All blocks are also in one list in the order of their offsets, for splitting and joining. Live
 * blocks are in a hash table by offset.
 *
 * A free block joins with free neighbours that wait for the same lanes. The queue contains all free
 * blocks that wait for work, and free blocks that could not join with a free neighbour.
 * hdi_blocks_free looks at the oldest block in the queue. If this block leaves the queue, the
 * function looks at the next one, up to LOOK blocks in all. So a block whose wait ended soon
 * joins its neighbours, and soon stops counting as waiting.
 *
 * Threads, locks, blocking: see blocks.h.
 * Always: of two free neighbours without a wall in between, at least one is in the queue.
 */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "memory/blocks_lists.h"

#define BLOCKS_PER_SLAB 128
#define NODES_PER_SLAB 256
#define BUCKETS_FIRST 64
#define LOOK 8 /* the most queued blocks that hdi_blocks_free looks at */

/* ---- host memory ----------------------------------------------------------------------------- */

struct hdi_block_slab {
    hdi_block_slab *next;
    hdi_block blocks[BLOCKS_PER_SLAB];
};

struct hdi_node_slab {
    hdi_node_slab *next;
    hdi_node nodes[NODES_PER_SLAB];
};

static bool slabs_add_blocks(hdi_blocks *b)
{
    hdi_block_slab *slab = hdi_blocks_host_memory(&b->config, sizeof *slab);
    if (slab == NULL) {
        return false;
    }
    slab->next = b->block_slabs;
    b->block_slabs = slab;
    for (size_t i = BLOCKS_PER_SLAB; i-- > 0;) {
        hdi_block_give(b, &slab->blocks[i]);
    }
    b->n_all_blocks += BLOCKS_PER_SLAB;
    return true;
}

static bool slabs_add_nodes(hdi_blocks *b)
{
    hdi_node_slab *slab = hdi_blocks_host_memory(&b->config, sizeof *slab);
    if (slab == NULL) {
        return false;
    }
    slab->next = b->node_slabs;
    b->node_slabs = slab;
    for (size_t i = NODES_PER_SLAB; i-- > 0;) {
        hdi_node_give(b, &slab->nodes[i]);
    }
    b->n_all_nodes += NODES_PER_SLAB;
    return true;
}

bool hdi_blocks_add_slabs(hdi_blocks *b, size_t blocks, size_t nodes)
{
    bool good = true;
    while (good && b->n_spare_blocks < blocks) {
        good = slabs_add_blocks(b);
    }
    while (good && b->n_spare_nodes < nodes) {
        good = slabs_add_nodes(b);
    }
    return good;
}

static void slabs_give_back(hdi_blocks *b)
{
    while (b->block_slabs != NULL) {
        hdi_block_slab *next = b->block_slabs->next;
        free(b->block_slabs);
        b->block_slabs = next;
    }
    while (b->node_slabs != NULL) {
        hdi_node_slab *next = b->node_slabs->next;
        free(b->node_slabs);
        b->node_slabs = next;
    }
}

/* ---- sets of points -------------------------------------------------------------------------- */

void hdi_points_release(hdi_points *points)
{
    if (points->room != 0) {
        free(points->at.many);
    }
    memset(points, 0, sizeof *points);
}

/* Moves the set of `from` into the set of `into`. It needs no new nodes, so it cannot fail. */
static void block_unite_sets(hdi_blocks *b, hdi_block *into, hdi_block *from)
{
    hdi_block_prune(b, into);
    hdi_block_prune(b, from);
    hdi_node **at = &into->pending;
    hdi_node *n = from->pending;
    from->pending = NULL;
    while (n != NULL) {
        hdi_node *next = n->next;
        while (*at != NULL && (*at)->point.lane < n->point.lane) {
            at = &(*at)->next;
        }
        if (*at != NULL && (*at)->point.lane == n->point.lane) {
            if ((*at)->point.position < n->point.position) {
                (*at)->point.position = n->point.position;
            }
            hdi_node_give(b, n);
        } else {
            n->next = *at;
            *at = n;
        }
        n = next;
    }
}

void hdi_block_add_point(hdi_blocks *b, hdi_block *k, hdi_point point)
{
    hdi_node **at = &k->pending;
    while (*at != NULL && (*at)->point.lane < point.lane) {
        at = &(*at)->next;
    }
    if (*at != NULL && (*at)->point.lane == point.lane) {
        if ((*at)->point.position < point.position) {
            (*at)->point.position = point.position;
        }
        return;
    }
    hdi_node *n = hdi_node_new(b);
    n->point = point;
    n->next = *at;
    *at = n;
}

void hdi_block_copy_set(hdi_blocks *b, hdi_block *into, const hdi_block *from)
{
    hdi_node **at = &into->pending;
    for (const hdi_node *n = from->pending; n != NULL; n = n->next) {
        hdi_node *copy = hdi_node_new(b);
        *copy = (hdi_node){.point = n->point};
        *at = copy;
        at = &copy->next;
    }
}

void hdi_block_drop_set(hdi_blocks *b, hdi_block *k)
{
    while (k->pending != NULL) {
        hdi_node *n = k->pending;
        k->pending = n->next;
        hdi_node_give(b, n);
    }
}

size_t hdi_block_count_set(const hdi_block *k)
{
    size_t count = 0;
    for (const hdi_node *n = k->pending; n != NULL; n = n->next) {
        count++;
    }
    return count;
}

static int points_by_lane(const void *left, const void *right)
{
    const hdi_point *a = left, *b = right;
    if (a->lane != b->lane) {
        return a->lane < b->lane ? -1 : 1;
    }
    /* The highest position comes first. */
    return a->position == b->position ? 0 : a->position > b->position ? -1 : 1;
}

/* Sorts the points by rising lane, and keeps the highest point of each lane. */
static size_t points_put_in_order(hdi_point *points, size_t count)
{
    if (count < 2) {
        return count;
    }
    qsort(points, count, sizeof *points, points_by_lane);
    size_t kept = 1;
    for (size_t i = 1; i < count; i++) {
        if (points[i].lane != points[kept - 1].lane) {
            points[kept++] = points[i];
        }
    }
    return kept;
}

bool hdi_blocks_gather(const hdi_blocks *b, const hdi_block *first, size_t end, hdi_points *out)
{
    hdi_points points;
    memset(&points, 0, sizeof points);
    size_t count = 0, sets = 0;
    for (const hdi_block *k = first; k != NULL && k->start < end; k = k->after) {
        count += hdi_block_count_set(k);
        sets += k->pending != NULL;
    }
    hdi_point *to = points.at.few;
    if (count > HDI_POINTS_FEW) {
        to = hdi_blocks_host_memory(&b->config, count * sizeof *to);
        if (to == NULL) {
            return false;
        }
        points.room = count;
        points.at.many = to;
    }
    hdi_point *next = to;
    for (const hdi_block *k = first; k != NULL && k->start < end; k = k->after) {
        for (const hdi_node *n = k->pending; n != NULL; n = n->next) {
            *next++ = n->point;
        }
    }
    points.count = sets > 1 ? points_put_in_order(to, count) : count;
    *out = points;
    return true;
}

/* ---- the queue of free blocks that wait, or are next to a free block ------------------------- */

static void block_enqueue(hdi_blocks *b, hdi_block *k)
{
    k->older = b->newest;
    k->newer = NULL;
    if (b->newest != NULL) {
        b->newest->newer = k;
    } else {
        b->oldest = k;
    }
    b->newest = k;
    k->queued = true;
    b->n_queued++;
}

static void block_dequeue(hdi_blocks *b, hdi_block *k)
{
    if (k->older != NULL) {
        k->older->newer = k->newer;
    } else {
        b->oldest = k->newer;
    }
    if (k->newer != NULL) {
        k->newer->older = k->older;
    } else {
        b->newest = k->older;
    }
    k->queued = false;
    b->n_queued--;
}

static void block_count_waiting(hdi_blocks *b, hdi_block *k, bool waits)
{
    if (k->waits != waits) {
        k->waits = waits;
        b->sums.waiting += waits ? k->units : (size_t)0 - k->units;
    }
}

void hdi_block_prune(hdi_blocks *b, hdi_block *k)
{
    for (hdi_node **at = &k->pending; *at != NULL;) {
        hdi_node *n = *at;
        if (hdi_blocks_finished(b, n->point)) {
            *at = n->next;
            hdi_node_give(b, n);
        } else {
            at = &n->next;
        }
    }
    if (k->pending == NULL) {
        block_count_waiting(b, k, false);
    }
}

/* True if two free neighbours wait for the same lanes. If one of two neighbours waits for more
 * lanes, they stay apart, since the neighbour that waits for fewer lanes can be reused sooner. */
static bool block_can_join(const hdi_blocks *b, const hdi_block *left, const hdi_block *right)
{
    if (!hdi_block_free_pair(b, left, right)) {
        return false;
    }
    const hdi_node *l = left->pending, *r = right->pending;
    while (l != NULL && r != NULL && l->point.lane == r->point.lane) {
        l = l->next;
        r = r->next;
    }
    return l == NULL && r == NULL;
}

/* Joins the oldest queued block with a neighbour if this is possible now. Removes the block from
 * the queue if it need not wait there any more. True: the queue is shorter. */
static bool blocks_look_at_oldest(hdi_blocks *b)
{
    hdi_block *k = b->oldest;
    hdi_block_prune(b, k);
    if (block_can_join(b, k->before, k) || block_can_join(b, k, k->after)) {
        hdi_block_remove_free(b, k);
        hdi_block_set_free(b, k);
        return true;
    }
    block_dequeue(b, k);
    if (k->pending != NULL || hdi_block_free_pair(b, k->before, k) || hdi_block_free_pair(b, k, k->after)) {
        block_enqueue(b, k);
        return false;
    }
    return true;
}

void hdi_blocks_look_at_queue(hdi_blocks *b)
{
    for (int i = 0; i < LOOK && b->oldest != NULL && blocks_look_at_oldest(b); i++) {
    }
}

void hdi_blocks_prune(hdi_blocks *b)
{
    for (size_t i = b->n_queued; i > 0 && b->oldest != NULL; i--) {
        blocks_look_at_oldest(b);
    }
}

/* ---- size classes ---------------------------------------------------------------------------- */

void hdi_block_insert_free(hdi_blocks *b, hdi_block *k)
{
    unsigned class = hdi_block_class(k->units);
    hdi_block **head = hdi_blocks_head(b, (int)class);
    k->kind = HDI_BLOCK_FREE;
    if (*head == NULL) {
        k->next = k;
        k->prev = k;
    } else {
        k->next = *head;
        k->prev = (*head)->prev;
        k->prev->next = k;
        k->next->prev = k;
    }
    *head = k;
    b->classes[class / HDI_SPLIT] |= (uint16_t)(1u << (class % HDI_SPLIT));
    b->rows |= (uint64_t)1 << (class / HDI_SPLIT);
    b->n_free++;
    b->n_whole += k->units == b->wall;
    block_count_waiting(b, k, k->pending != NULL);
    if (k->pending != NULL || hdi_block_free_pair(b, k->before, k) || hdi_block_free_pair(b, k, k->after)) {
        block_enqueue(b, k);
    }
}

void hdi_block_remove_free(hdi_blocks *b, hdi_block *k)
{
    unsigned class = hdi_block_class(k->units);
    hdi_block **head = hdi_blocks_head(b, (int)class);
    if (k->next == k) {
        *head = NULL;
        b->classes[class / HDI_SPLIT] &= (uint16_t) ~(1u << (class % HDI_SPLIT));
        if (b->classes[class / HDI_SPLIT] == 0) {
            b->rows &= ~((uint64_t)1 << (class / HDI_SPLIT));
        }
    } else {
        k->next->prev = k->prev;
        k->prev->next = k->next;
        if (*head == k) {
            *head = k->next;
        }
    }
    b->n_free--;
    b->n_whole -= k->units == b->wall;
    block_count_waiting(b, k, false);
    if (k->queued) {
        block_dequeue(b, k);
    }
}

/* ---- the order of offsets -------------------------------------------------------------------- */

/* Adds a block to the order of offsets behind `before` (NULL: as the first of all). */
static void block_link_behind(hdi_blocks *b, hdi_block *before, hdi_block *k)
{
    k->before = before;
    k->after = before != NULL ? before->after : b->first;
    if (k->after != NULL) {
        k->after->before = k;
    } else {
        b->last = k;
    }
    if (before != NULL) {
        before->after = k;
    } else {
        b->first = k;
    }
}

void hdi_block_unlink(hdi_blocks *b, hdi_block *k)
{
    if (k->before != NULL) {
        k->before->after = k->after;
    } else {
        b->first = k->after;
    }
    if (k->after != NULL) {
        k->after->before = k->before;
    } else {
        b->last = k->before;
    }
}

hdi_block *hdi_block_cut(hdi_blocks *b, hdi_block *k, size_t units)
{
    hdi_block *behind = hdi_block_new(b, k->start + units, k->units - units);
    behind->kind = k->kind;
    behind->fresh = k->fresh;
    behind->lacks = k->lacks;
    k->units = units;
    block_link_behind(b, k, behind);
    return behind;
}

/* Joins a block with the one behind it. Neither is in a class. */
static void block_absorb_after(hdi_blocks *b, hdi_block *k)
{
    hdi_block *gone = k->after;
    block_unite_sets(b, k, gone);
    k->units += gone->units;
    k->fresh = k->fresh && gone->fresh;
    hdi_block_unlink(b, gone);
    hdi_block_give(b, gone);
}

void hdi_block_set_free(hdi_blocks *b, hdi_block *k)
{
    k->kind = HDI_BLOCK_FREE;
    if (hdi_block_free_pair(b, k, k->after)) {
        hdi_block_prune(b, k->after);
    }
    if (hdi_block_free_pair(b, k->before, k)) {
        hdi_block_prune(b, k->before);
    }
    if (block_can_join(b, k, k->after)) {
        hdi_block_remove_free(b, k->after);
        block_absorb_after(b, k);
    }
    if (block_can_join(b, k->before, k)) {
        k = k->before;
        hdi_block_remove_free(b, k);
        block_absorb_after(b, k);
    }
    hdi_block_insert_free(b, k);
}

/* Joins the free blocks between two walls, if nothing else lies there. Block `k` is one of them. */
static void blocks_join_walled(hdi_blocks *b, hdi_block *k)
{
    while (hdi_block_free_pair(b, k->before, k)) {
        k = k->before;
    }
    size_t units = k->units;
    for (hdi_block *next = k; hdi_block_free_pair(b, next, next->after); next = next->after) {
        units += next->after->units;
    }
    if (units == b->wall && k->units < units) {
        hdi_block_remove_free(b, k);
        while (k->units < units) {
            hdi_block_remove_free(b, k->after);
            block_absorb_after(b, k);
        }
        hdi_block_insert_free(b, k);
    }
}

void hdi_blocks_join_whole(hdi_blocks *b)
{
    for (size_t i = b->n_queued; i > 0 && b->oldest != NULL; i--) {
        hdi_block *k = b->oldest;
        block_dequeue(b, k);
        block_enqueue(b, k);
        blocks_join_walled(b, k);
    }
}

/* ---- live blocks by offset ------------------------------------------------------------------- */

void hdi_block_insert_live(hdi_blocks *b, hdi_block *k)
{
    hdi_block **head = &b->buckets[hdi_blocks_bucket(b, k->start)];
    k->kind = HDI_BLOCK_LIVE;
    k->prev = NULL;
    k->next = *head;
    *head = k;
    b->n_live++;
    b->sums.live += k->units;
}

void hdi_block_remove_live(hdi_blocks *b, hdi_block *k)
{
    hdi_block **at = hdi_blocks_live_link(b, k->start);
    *at = k->next;
    b->n_live--;
    b->sums.live -= k->units;
}

/* ---- the range ------------------------------------------------------------------------------- */

hd_status hdi_blocks_create(const hdi_blocks_config *config, hdi_blocks **out)
{
    if (config->limit < HDI_BLOCKS_GRANULE || config->finished == NULL) {
        return hdi_fail(HD_ERROR_ARGUMENT, "blocks: a limit of %zu bytes or no callback", config->limit);
    }
    hdi_blocks *b = hdi_blocks_host_memory(config, sizeof *b);
    if (b == NULL) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "blocks: no host memory for the allocator");
    }
    memset(b, 0, sizeof *b);
    b->config = *config;
    b->limit = config->limit / HDI_BLOCKS_GRANULE;
    b->wall = config->wall / HDI_BLOCKS_GRANULE;
    b->buckets = hdi_blocks_host_memory(config, BUCKETS_FIRST * sizeof(hdi_block *));
    if (b->buckets == NULL || !hdi_blocks_reserve_nodes(b, HDI_SPARE_NODES)) {
        hdi_blocks_destroy(b);
        return hdi_fail(HD_ERROR_HOST_MEMORY, "blocks: no host memory for the allocator");
    }
    memset(b->buckets, 0, BUCKETS_FIRST * sizeof(hdi_block *));
    b->n_buckets = BUCKETS_FIRST;
    *out = b;
    return HD_OK;
}

void hdi_blocks_destroy(hdi_blocks *b)
{
    if (b == NULL) {
        return;
    }
    slabs_give_back(b);
    free(b->buckets);
    free(b);
}

hd_status hdi_blocks_extend(hdi_blocks *b, size_t bytes, hdi_block **out)
{
    size_t units = bytes / HDI_BLOCKS_GRANULE;
    if (units == 0 || bytes % HDI_BLOCKS_GRANULE != 0 || units > b->limit - b->sums.end) {
        return hdi_fail(HD_ERROR_ARGUMENT, "blocks: cannot grow by %zu bytes, %zu are left", bytes,
                        (b->limit - b->sums.end) * HDI_BLOCKS_GRANULE);
    }
    if (!hdi_blocks_reserve(b, 1)) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "blocks: no host memory for a block descriptor");
    }
    hdi_block *k = hdi_block_new(b, b->sums.end, units);
    block_link_behind(b, b->last, k);
    b->sums.end += units;
    *out = k;
    return HD_OK;
}

/* ---- verification ---------------------------------------------------------------------------- */

typedef struct findings {
    char *why;
    size_t why_bytes;
    size_t n[HDI_BLOCK_PLEDGED + 1], units[HDI_BLOCK_PLEDGED + 1]; /* by kind */
    size_t n_blocks, n_nodes, n_whole, n_queued, waiting;
} findings;

static bool __attribute__((format(printf, 2, 3))) blocks_check_failed(const findings *f, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(f->why, f->why_bytes, format, arguments);
    va_end(arguments);
    return false;
}

/* True if the links of a block in its list of free blocks or gaps are right, and its class is
 * marked as not empty. */
static bool block_links_are_right(const hdi_blocks *b, const hdi_block *k)
{
    unsigned class = hdi_block_class(k->units);
    return k->next->prev == k && k->prev->next == k && k->next->kind == k->kind &&
           (k->kind == HDI_BLOCK_GAP
                ? b->gaps != NULL
                : hdi_block_class(k->next->units) == class && b->heads[class / HDI_SPLIT][class % HDI_SPLIT] != NULL);
}

static bool blocks_check_block(const hdi_blocks *b, const hdi_block *k, findings *f)
{
    const hdi_block *before = k->before;
    f->n[k->kind]++;
    f->units[k->kind] += k->units;
    f->n_blocks++;
    f->n_queued += k->queued;
    switch (k->kind) {
    case HDI_BLOCK_LIVE:
        if (*hdi_blocks_live_link(b, k->start) != k) {
            return blocks_check_failed(f, "live block at %zu: not in the table", k->start);
        }
        break;
    case HDI_BLOCK_FREE:
        if (hdi_block_free_pair(b, before, k) && !before->queued && !k->queued) {
            return blocks_check_failed(f, "free block at %zu: follows a free block", k->start);
        }
        f->n_whole += k->units == b->wall;
        f->waiting += k->waits ? k->units : 0;
        if (!block_links_are_right(b, k) || k->waits != (k->pending != NULL) || (k->waits && !k->queued)) {
            return blocks_check_failed(f, "free block at %zu: wrong in its lists", k->start);
        }
        break;
    case HDI_BLOCK_GAP:
        if ((before != NULL && before->kind == HDI_BLOCK_GAP) || !block_links_are_right(b, k)) {
            return blocks_check_failed(f, "gap at %zu: follows a gap, or is wrong in its list", k->start);
        }
        break;
    default:
        break;
    }
    if ((k->pending != NULL && k->kind != HDI_BLOCK_FREE && k->kind != HDI_BLOCK_PLEDGED) ||
        ((k->queued || k->waits) && k->kind != HDI_BLOCK_FREE) || (k->lacks && k->kind != HDI_BLOCK_PLEDGED)) {
        return blocks_check_failed(f, "block at %zu: not free and has a set, or not pledged and lacks memory",
                                   k->start);
    }
    for (const hdi_node *n = k->pending; n != NULL; n = n->next) {
        f->n_nodes++;
        if (n->next != NULL && n->next->point.lane <= n->point.lane) {
            return blocks_check_failed(f, "free block at %zu: its set is not by rising lane", k->start);
        }
    }
    return true;
}

static bool blocks_check_order(const hdi_blocks *b, findings *f)
{
    size_t at = 0;
    const hdi_block *before = NULL;
    for (const hdi_block *k = b->first; k != NULL; before = k, k = k->after) {
        if (k->start != at || k->units == 0 || k->before != before) {
            return blocks_check_failed(f, "block at %zu: starts at %zu, %zu long", at, k->start, k->units);
        }
        at += k->units;
        if (!blocks_check_block(b, k, f)) {
            return false;
        }
    }
    if (at != b->sums.end || before != b->last || b->sums.end > b->limit) {
        return blocks_check_failed(f, "the blocks end at %zu, the range at %zu", at, b->sums.end);
    }
    const size_t *n = f->n, *units = f->units;
    if (n[HDI_BLOCK_LIVE] != b->n_live || n[HDI_BLOCK_FREE] != b->n_free || n[HDI_BLOCK_RETIRED] != b->n_retired ||
        n[HDI_BLOCK_GAP] != b->n_gaps || f->n_whole != b->n_whole || f->n_queued != b->n_queued) {
        return blocks_check_failed(f, "counts: %zu live, %zu free, %zu retired, %zu gaps", n[HDI_BLOCK_LIVE],
                                   n[HDI_BLOCK_FREE], n[HDI_BLOCK_RETIRED], n[HDI_BLOCK_GAP]);
    }
    if (units[HDI_BLOCK_LIVE] != b->sums.live || units[HDI_BLOCK_RETIRED] != b->sums.retired ||
        units[HDI_BLOCK_GAP] != b->sums.gap || units[HDI_BLOCK_PLEDGED] != b->sums.pledged ||
        f->waiting != b->sums.waiting) {
        return blocks_check_failed(f, "sizes: %zu live, %zu retired, %zu gaps, %zu pledged, %zu waiting",
                                   units[HDI_BLOCK_LIVE], units[HDI_BLOCK_RETIRED], units[HDI_BLOCK_GAP],
                                   units[HDI_BLOCK_PLEDGED], f->waiting);
    }
    return true;
}

static bool blocks_check_classes(const hdi_blocks *b, const findings *f)
{
    size_t hanging = 0;
    for (size_t c = 0; c < HDI_ROWS * HDI_SPLIT; c++) {
        const hdi_block *head = b->heads[c / HDI_SPLIT][c % HDI_SPLIT];
        bool marked = (b->classes[c / HDI_SPLIT] >> (c % HDI_SPLIT) & 1) != 0;
        if (marked != (head != NULL) || ((b->rows >> (c / HDI_SPLIT) & 1) != 0) != (b->classes[c / HDI_SPLIT] != 0)) {
            return blocks_check_failed(f, "class %zu: its bit is wrong", c);
        }
        const hdi_block *k = head;
        while (k != NULL) {
            hanging++;
            if (hdi_block_class(k->units) != c || hanging > b->n_free) {
                return blocks_check_failed(f, "class %zu: holds the block at %zu", c, k->start);
            }
            k = k->next != head ? k->next : NULL;
        }
    }
    return hanging == b->n_free || blocks_check_failed(f, "classes: %zu of %zu free blocks", hanging, b->n_free);
}

static bool blocks_check_lists(const hdi_blocks *b, const findings *f)
{
    size_t chained = 0, gaps = 0, queued = 0;
    for (size_t i = 0; i < b->n_buckets; i++) {
        for (const hdi_block *k = b->buckets[i]; k != NULL; k = k->next) {
            chained++;
            if (k->kind != HDI_BLOCK_LIVE || hdi_blocks_bucket(b, k->start) != i || chained > b->n_live) {
                return blocks_check_failed(f, "bucket %zu: holds the block at %zu", i, k->start);
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
            return blocks_check_failed(f, "queue: holds the block at %zu", k->start);
        }
    }
    if (chained != b->n_live || gaps != b->n_gaps || queued != f->n_queued || older != b->newest) {
        return blocks_check_failed(f, "lists: %zu of %zu live, %zu of %zu gaps, %zu of %zu waiting", chained, b->n_live,
                                   gaps, b->n_gaps, queued, f->n_queued);
    }
    return true;
}

static bool blocks_check_spares(const hdi_blocks *b, const findings *f)
{
    size_t blocks = 0, nodes = 0;
    for (const hdi_block *k = b->spare_blocks; k != NULL && blocks <= b->n_all_blocks; k = k->next) {
        blocks++;
    }
    for (const hdi_node *n = b->spare_nodes; n != NULL && nodes <= b->n_all_nodes; n = n->next) {
        nodes++;
    }
    if (blocks != b->n_spare_blocks || blocks + f->n_blocks != b->n_all_blocks || blocks < b->n_pledges) {
        return blocks_check_failed(f, "descriptors: %zu spare and %zu used of %zu, %zu pledges", blocks, f->n_blocks,
                                   b->n_all_blocks, b->n_pledges);
    }
    if (nodes != b->n_spare_nodes || nodes + f->n_nodes != b->n_all_nodes) {
        return blocks_check_failed(f, "points: %zu spare and %zu used of %zu", nodes, f->n_nodes, b->n_all_nodes);
    }
    return true;
}

bool hdi_blocks_check(const hdi_blocks *b, char *why, size_t why_bytes)
{
    findings f = {.why = why, .why_bytes = why_bytes};
    return blocks_check_order(b, &f) && blocks_check_classes(b, &f) && blocks_check_lists(b, &f) &&
           blocks_check_spares(b, &f);
}

void hdi_blocks_check_sometimes(hdi_blocks *b)
{
#ifdef HDI_DEBUG
    if (++b->operations % 64 == 0) {
        char why[160];
        assert(hdi_blocks_check(b, why, sizeof why));
    }
#else
    (void)b;
#endif
}
