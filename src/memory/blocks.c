/* blocks.c - an allocator over a range of offsets: two-level segregated fit with the marks of former uses.
 *
 * Free blocks hang in lists by size: a row per doubling, SPLIT classes per row, and a bitmap over each, so that the
 * class that fits is found in a few instructions. All blocks also form one list in the order of their offsets,
 * which is what splitting and merging work on. Live blocks are found by their offset through a hash table with
 * chains.
 *
 * Descriptors and marks come from slabs of host memory that is only given back as a whole. Whatever can fail for
 * want of host memory is asked for at the start of a function, before anything is changed.
 *
 * Threads, locks: none of its own, see blocks.h.
 * Always: hdi_blocks_check says it in code.
 */
#include "memory/blocks.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"

#define SPLIT_BITS 4
#define SPLIT ((size_t)1 << SPLIT_BITS) /* classes per doubling: a class is at most 1/16 wider than its smallest size */
#define ROWS 54                         /* enough for every size_t in granules of 256 bytes */
#define LOOK 8                          /* blocks of a class looked at, and blocks that fit compared, per allocation */
#define BLOCKS_PER_SLAB 128
#define NODES_PER_SLAB 256
#define SPARE_NODES 256 /* kept ready beyond one per live block */
#define BUCKETS_FIRST 64

typedef enum block_state { BLOCK_FREE, BLOCK_LIVE, BLOCK_RETIRED } block_state;

/* One mark in the set of a free block. */
typedef struct node {
    struct node *next; /* by rising lane; or the next spare node */
    hdi_mark mark;
} node;

typedef struct block {
    size_t start, units;          /* in granules */
    struct block *before, *after; /* neighbours by offset; NULL at the ends */
    struct block *next, *prev;    /* free: circular list of its class, newest first. live: `next` is the hash chain.
                                     spare: `next` */
    node *pending;                /* free: what the next owner must wait for; else NULL */
    block_state state;
} block;

typedef struct block_slab {
    struct block_slab *next;
    block blocks[BLOCKS_PER_SLAB];
} block_slab;

typedef struct node_slab {
    struct node_slab *next;
    node nodes[NODES_PER_SLAB];
} node_slab;

struct hdi_blocks {
    hdi_blocks_config config;
    size_t limit, end; /* in granules */
    block *first, *last;

    uint64_t rows;          /* bit: some class of the row has blocks */
    uint16_t classes[ROWS]; /* bit: the class has blocks */
    block *heads[ROWS][SPLIT];

    block **buckets; /* live blocks by start */
    size_t n_buckets;

    block_slab *block_slabs;
    block *spare_blocks;
    node_slab *node_slabs;
    node *spare_nodes;
    size_t n_spare_blocks, n_spare_nodes, n_all_blocks, n_all_nodes;

    size_t live_units, retired_units;
    size_t n_live, n_free, n_retired;
#ifdef HDI_DEBUG
    unsigned operations;
#endif
};

/* Checking walks everything, so a debug build does it now and then instead of every time. */
static void check_sometimes(hdi_blocks *b)
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

/* ---- host memory ------------------------------------------------------------------------------------------------ */

static void *take_memory(const hdi_blocks_config *config, size_t bytes)
{
    return config->allocate != NULL ? config->allocate(bytes) : malloc(bytes);
}

/* Makes sure that one descriptor can be taken. */
static bool reserve_block(hdi_blocks *b)
{
    if (b->spare_blocks != NULL) {
        return true;
    }
    block_slab *slab = take_memory(&b->config, sizeof *slab);
    if (slab == NULL) {
        return false;
    }
    slab->next = b->block_slabs;
    b->block_slabs = slab;
    for (size_t i = BLOCKS_PER_SLAB; i-- > 0;) {
        slab->blocks[i].next = b->spare_blocks;
        b->spare_blocks = &slab->blocks[i];
    }
    b->n_spare_blocks += BLOCKS_PER_SLAB;
    b->n_all_blocks += BLOCKS_PER_SLAB;
    return true;
}

static block *take_block(hdi_blocks *b, size_t start, size_t units)
{
    block *k = b->spare_blocks;
    b->spare_blocks = k->next;
    b->n_spare_blocks--;
    memset(k, 0, sizeof *k);
    k->start = start;
    k->units = units;
    return k;
}

static void give_block(hdi_blocks *b, block *k)
{
    k->next = b->spare_blocks;
    b->spare_blocks = k;
    b->n_spare_blocks++;
}

/* Makes sure that `count` nodes can be taken. */
static bool reserve_nodes(hdi_blocks *b, size_t count)
{
    while (b->n_spare_nodes < count) {
        node_slab *slab = take_memory(&b->config, sizeof *slab);
        if (slab == NULL) {
            return false;
        }
        slab->next = b->node_slabs;
        b->node_slabs = slab;
        for (size_t i = NODES_PER_SLAB; i-- > 0;) {
            slab->nodes[i].next = b->spare_nodes;
            b->spare_nodes = &slab->nodes[i];
        }
        b->n_spare_nodes += NODES_PER_SLAB;
        b->n_all_nodes += NODES_PER_SLAB;
    }
    return true;
}

static node *take_node(hdi_blocks *b)
{
    node *n = b->spare_nodes;
    b->spare_nodes = n->next;
    b->n_spare_nodes--;
    return n;
}

static void give_node(hdi_blocks *b, node *n)
{
    n->next = b->spare_nodes;
    b->spare_nodes = n;
    b->n_spare_nodes++;
}

/* ---- sets of marks ---------------------------------------------------------------------------------------------- */

void hdi_marks_release(hdi_marks *marks)
{
    if (marks->room != 0) {
        free(marks->at.many);
    }
    memset(marks, 0, sizeof *marks);
}

static bool is_finished(const hdi_blocks *b, hdi_mark mark)
{
    return b->config.finished(b->config.finished_context, mark);
}

/* Drops the finished marks of a set. */
static void prune(hdi_blocks *b, block *k)
{
    for (node **at = &k->pending; *at != NULL;) {
        node *n = *at;
        if (is_finished(b, n->mark)) {
            *at = n->next;
            give_node(b, n);
        } else {
            at = &n->next;
        }
    }
}

/* Moves the set of `from` into that of `into`. Takes no nodes, so it cannot fail. */
static void unite(hdi_blocks *b, block *into, block *from)
{
    prune(b, into);
    prune(b, from);
    node **at = &into->pending;
    node *n = from->pending;
    from->pending = NULL;
    while (n != NULL) {
        node *next = n->next;
        while (*at != NULL && (*at)->mark.lane < n->mark.lane) {
            at = &(*at)->next;
        }
        if (*at != NULL && (*at)->mark.lane == n->mark.lane) {
            if ((*at)->mark.position < n->mark.position) {
                (*at)->mark.position = n->mark.position;
            }
            give_node(b, n);
        } else {
            n->next = *at;
            *at = n;
        }
        n = next;
    }
}

/* Adds a mark to a set; a node must be spare. */
static void add_mark(hdi_blocks *b, block *k, hdi_mark mark)
{
    node **at = &k->pending;
    while (*at != NULL && (*at)->mark.lane < mark.lane) {
        at = &(*at)->next;
    }
    if (*at != NULL && (*at)->mark.lane == mark.lane) {
        if ((*at)->mark.position < mark.position) {
            (*at)->mark.position = mark.position;
        }
        return;
    }
    node *n = take_node(b);
    n->mark = mark;
    n->next = *at;
    *at = n;
}

/* A copy of a set that an owner can keep. */
static bool copy_marks(const hdi_blocks *b, const block *k, hdi_marks *out)
{
    hdi_marks marks;
    memset(&marks, 0, sizeof marks);
    for (const node *n = k->pending; n != NULL; n = n->next) {
        marks.count++;
    }
    hdi_mark *to = marks.at.few;
    if (marks.count > HDI_MARKS_FEW) {
        to = take_memory(&b->config, marks.count * sizeof *to);
        if (to == NULL) {
            return false;
        }
        marks.room = marks.count;
        marks.at.many = to;
    }
    for (const node *n = k->pending; n != NULL; n = n->next) {
        *to++ = n->mark;
    }
    *out = marks;
    return true;
}

/* ---- size classes ----------------------------------------------------------------------------------------------- */

/* The class of a size: row * SPLIT + column. Row 0 has one class per size, and row r the sizes from SPLIT << (r -
 * 1) on. */
static unsigned class_of(size_t units)
{
    if (units < SPLIT) {
        return (unsigned)units;
    }
    unsigned top = 63u - (unsigned)__builtin_clzll(units);
    unsigned row = top - SPLIT_BITS + 1;
    unsigned column = (unsigned)(units >> (top - SPLIT_BITS)) & (SPLIT - 1);
    return row * (unsigned)SPLIT + column;
}

/* The first class from `from` on that has blocks; -1 if there is none. */
static int next_class(const hdi_blocks *b, unsigned from)
{
    unsigned row = from / SPLIT;
    if (row >= ROWS) {
        return -1;
    }
    unsigned columns = b->classes[row] & (0xffffu << (from % SPLIT));
    if (columns == 0) {
        /* not one shift by row + 1, which may be the width of the word */
        uint64_t rows = b->rows & (~(uint64_t)1 << row);
        if (rows == 0) {
            return -1;
        }
        row = (unsigned)__builtin_ctzll(rows);
        columns = b->classes[row];
    }
    return (int)(row * SPLIT + (unsigned)__builtin_ctz(columns));
}

static block **head_of(hdi_blocks *b, unsigned class)
{
    return &b->heads[class / SPLIT][class % SPLIT];
}

/* Makes a block free and puts it at the head of its class. */
static void insert_free(hdi_blocks *b, block *k)
{
    unsigned class = class_of(k->units);
    block **head = head_of(b, class);
    k->state = BLOCK_FREE;
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
    b->classes[class / SPLIT] |= (uint16_t)(1u << (class % SPLIT));
    b->rows |= (uint64_t)1 << (class / SPLIT);
    b->n_free++;
}

static void remove_free(hdi_blocks *b, block *k)
{
    unsigned class = class_of(k->units);
    block **head = head_of(b, class);
    if (k->next == k) {
        *head = NULL;
        b->classes[class / SPLIT] &= (uint16_t) ~(1u << (class % SPLIT));
        if (b->classes[class / SPLIT] == 0) {
            b->rows &= ~((uint64_t)1 << (class / SPLIT));
        }
    } else {
        k->next->prev = k->prev;
        k->prev->next = k->next;
        if (*head == k) {
            *head = k->next;
        }
    }
    b->n_free--;
}

/* Whether the next owner would wait for no lane but its own. */
static bool suits(const block *k, uint32_t lane)
{
    for (const node *n = k->pending; n != NULL; n = n->next) {
        if (n->mark.lane != lane) {
            return false;
        }
    }
    return true;
}

typedef struct choice {
    block *block;
    bool suits;
    int compared; /* blocks that fit */
} choice;

static void consider(hdi_blocks *b, block *k, size_t units, uint32_t lane, choice *best)
{
    if (k->units < units) {
        return;
    }
    best->compared++;
    prune(b, k);
    bool good = suits(k, lane);
    if (best->block == NULL || (good && !best->suits) || (good == best->suits && k->units < best->block->units)) {
        best->block = k;
        best->suits = good;
    }
}

/* The block for a request, still in its list; NULL if none is large enough. */
static block *find(hdi_blocks *b, size_t units, uint32_t lane)
{
    choice best = {NULL, false, 0};
    unsigned own = class_of(units);
    for (int class = next_class(b, own); class >= 0 && best.compared < LOOK;
         class = next_class(b, (unsigned)class + 1)) {
        /* From both ends in turn: the newest are most likely this lane's own, the oldest most likely finished. */
        block *newest = *head_of(b, (unsigned)class);
        block *oldest = newest->prev;
        for (int step = 0; step < LOOK && best.compared < LOOK; step++) {
            bool from_newest = step % 2 == 0;
            consider(b, from_newest ? newest : oldest, units, lane, &best);
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
    if (best.block == NULL) {
        /* Only the request's own class mixes blocks that fit with blocks that do not. Before the range has to grow,
         * which costs a thousand times more, all of it is looked at. */
        block *head = *head_of(b, own);
        block *k = head;
        if (head != NULL) {
            do {
                consider(b, k, units, lane, &best);
                k = k->next;
            } while (k != head && best.compared < LOOK);
        }
    }
    return best.block;
}

/* ---- live blocks by offset -------------------------------------------------------------------------------------- */

static size_t bucket_of(const hdi_blocks *b, size_t start)
{
    return (size_t)(((uint64_t)start * 0x9e3779b97f4a7c15u) >> 32) & (b->n_buckets - 1);
}

/* The link that points to the live block at `start`, or to the NULL that ends its chain. */
static block **live_link(const hdi_blocks *b, size_t start)
{
    block **at = &b->buckets[bucket_of(b, start)];
    while (*at != NULL && (*at)->start != start) {
        at = &(*at)->next;
    }
    return at;
}

static block *live_at(const hdi_blocks *b, size_t offset)
{
    return offset % HDI_BLOCKS_GRANULE == 0 ? *live_link(b, offset / HDI_BLOCKS_GRANULE) : NULL;
}

/* Doubles the table once its chains grow. Where host memory has run out they just stay longer. */
static void grow_buckets(hdi_blocks *b)
{
    if (b->n_live < b->n_buckets) {
        return;
    }
    size_t old_count = b->n_buckets;
    block **old = b->buckets;
    block **buckets = take_memory(&b->config, old_count * 2 * sizeof(block *));
    if (buckets == NULL) {
        return;
    }
    memset(buckets, 0, old_count * 2 * sizeof(block *));
    b->buckets = buckets;
    b->n_buckets = old_count * 2;
    for (size_t i = 0; i < old_count; i++) {
        for (block *k = old[i]; k != NULL;) {
            block *next = k->next;
            block **head = &buckets[bucket_of(b, k->start)];
            k->next = *head;
            *head = k;
            k = next;
        }
    }
    free(old);
}

static void insert_live(hdi_blocks *b, block *k)
{
    block **head = &b->buckets[bucket_of(b, k->start)];
    k->state = BLOCK_LIVE;
    k->prev = NULL;
    k->next = *head;
    *head = k;
    b->n_live++;
    b->live_units += k->units;
}

static void remove_live(hdi_blocks *b, block *k)
{
    block **at = live_link(b, k->start);
    *at = k->next;
    b->n_live--;
    b->live_units -= k->units;
}

/* ---- the order of offsets --------------------------------------------------------------------------------------- */

/* Puts a block into the order behind `before` (NULL: as the first of all). */
static void link_behind(hdi_blocks *b, block *before, block *k)
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

/* Joins a block with the one behind it; neither hangs in a class. */
static void absorb_after(hdi_blocks *b, block *k)
{
    block *gone = k->after;
    unite(b, k, gone);
    k->units += gone->units;
    k->after = gone->after;
    if (k->after != NULL) {
        k->after->before = k;
    } else {
        b->last = k;
    }
    give_block(b, gone);
}

/* ---- the interface ---------------------------------------------------------------------------------------------- */

hd_status hdi_blocks_create(const hdi_blocks_config *config, hdi_blocks **out)
{
    if (config->limit < HDI_BLOCKS_GRANULE || config->finished == NULL) {
        return hdi_fail(HD_ERROR_ARGUMENT, "blocks: a limit of %zu bytes or no callback", config->limit);
    }
    hdi_blocks *b = take_memory(config, sizeof *b);
    if (b == NULL) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "blocks: no host memory for the allocator");
    }
    memset(b, 0, sizeof *b);
    b->config = *config;
    b->limit = config->limit / HDI_BLOCKS_GRANULE;
    b->buckets = take_memory(config, BUCKETS_FIRST * sizeof(block *));
    if (b->buckets == NULL || !reserve_nodes(b, SPARE_NODES)) {
        hdi_blocks_destroy(b);
        return hdi_fail(HD_ERROR_HOST_MEMORY, "blocks: no host memory for the allocator");
    }
    memset(b->buckets, 0, BUCKETS_FIRST * sizeof(block *));
    b->n_buckets = BUCKETS_FIRST;
    *out = b;
    return HD_OK;
}

void hdi_blocks_destroy(hdi_blocks *b)
{
    if (b == NULL) {
        return;
    }
    while (b->block_slabs != NULL) {
        block_slab *next = b->block_slabs->next;
        free(b->block_slabs);
        b->block_slabs = next;
    }
    while (b->node_slabs != NULL) {
        node_slab *next = b->node_slabs->next;
        free(b->node_slabs);
        b->node_slabs = next;
    }
    free(b->buckets);
    free(b);
}

hd_status hdi_blocks_grow(hdi_blocks *b, size_t bytes)
{
    size_t units = bytes / HDI_BLOCKS_GRANULE;
    if (units == 0 || bytes % HDI_BLOCKS_GRANULE != 0 || units > b->limit - b->end) {
        return hdi_fail(HD_ERROR_ARGUMENT, "blocks: cannot grow by %zu bytes, %zu are left", bytes,
                        (b->limit - b->end) * HDI_BLOCKS_GRANULE);
    }
    block *last = b->last;
    if (last != NULL && last->state == BLOCK_FREE) {
        remove_free(b, last);
        prune(b, last);
        last->units += units;
    } else {
        if (!reserve_block(b)) {
            return hdi_fail(HD_ERROR_HOST_MEMORY, "blocks: no host memory for a block descriptor");
        }
        last = take_block(b, b->end, units);
        link_behind(b, b->last, last);
    }
    insert_free(b, last);
    b->end += units;
    check_sometimes(b);
    return HD_OK;
}

hd_status hdi_blocks_alloc(hdi_blocks *b, size_t bytes, uint32_t lane, size_t *offset, hdi_marks *inherited)
{
    if (bytes == 0) {
        return hdi_fail(HD_ERROR_ARGUMENT, "blocks: a block of 0 bytes");
    }
    if (bytes > b->end * HDI_BLOCKS_GRANULE) {
        return HD_ERROR_NOT_FOUND;
    }
    size_t units = (bytes - 1) / HDI_BLOCKS_GRANULE + 1;
    block *k = find(b, units, lane);
    if (k == NULL) {
        return HD_ERROR_NOT_FOUND;
    }

    /* Everything that can fail comes before anything is changed. */
    size_t rest = k->units - units;
    hdi_marks marks;
    if ((rest != 0 && !reserve_block(b)) || !reserve_nodes(b, b->n_live + 1 + SPARE_NODES) ||
        !copy_marks(b, k, &marks)) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "blocks: no host memory for the bookkeeping of a block of %zu bytes",
                        bytes);
    }

    remove_free(b, k);
    if (rest != 0) {
        block *behind = take_block(b, k->start + units, rest);
        k->units = units;
        link_behind(b, k, behind);
        behind->pending = k->pending;
        insert_free(b, behind);
    } else {
        while (k->pending != NULL) {
            node *n = k->pending;
            k->pending = n->next;
            give_node(b, n);
        }
    }
    k->pending = NULL;
    grow_buckets(b);
    insert_live(b, k);
    *offset = k->start * HDI_BLOCKS_GRANULE;
    *inherited = marks;
    check_sometimes(b);
    return HD_OK;
}

/* Makes room for `count` nodes, at last by dropping what has finished from every set. */
static bool find_nodes(hdi_blocks *b, size_t count)
{
    if (reserve_nodes(b, count)) {
        return true;
    }
    for (block *k = b->first; k != NULL; k = k->after) {
        if (k->state == BLOCK_FREE) {
            prune(b, k);
        }
    }
    return b->n_spare_nodes >= count;
}

void hdi_blocks_free(hdi_blocks *b, size_t offset, const hdi_mark *marks, size_t n_marks)
{
    block *k = live_at(b, offset);
    if (k == NULL) {
        return;
    }
    size_t unfinished = 0;
    for (size_t i = 0; i < n_marks; i++) {
        unfinished += !is_finished(b, marks[i]);
    }
    remove_live(b, k);
    if (!find_nodes(b, unfinished)) {
        k->state = BLOCK_RETIRED;
        k->next = NULL;
        b->n_retired++;
        b->retired_units += k->units;
        check_sometimes(b);
        return;
    }
    if (k->after != NULL && k->after->state == BLOCK_FREE) {
        remove_free(b, k->after);
        absorb_after(b, k);
    }
    if (k->before != NULL && k->before->state == BLOCK_FREE) {
        k = k->before;
        remove_free(b, k);
        absorb_after(b, k);
    }
    for (size_t i = 0; i < n_marks; i++) {
        /* at most `unfinished` of them: what was finished above still is */
        if (!is_finished(b, marks[i])) {
            add_mark(b, k, marks[i]);
        }
    }
    insert_free(b, k);
    check_sometimes(b);
}

size_t hdi_blocks_size(const hdi_blocks *b, size_t offset)
{
    const block *k = live_at(b, offset);
    return k != NULL ? k->units * HDI_BLOCKS_GRANULE : 0;
}

size_t hdi_blocks_tail(const hdi_blocks *b)
{
    return b->last != NULL && b->last->state == BLOCK_FREE ? b->last->units * HDI_BLOCKS_GRANULE : 0;
}

static size_t largest_free(const hdi_blocks *b)
{
    if (b->rows == 0) {
        return 0;
    }
    unsigned row = 63u - (unsigned)__builtin_clzll(b->rows);
    unsigned column = 31u - (unsigned)__builtin_clz(b->classes[row]);
    const block *head = b->heads[row][column];
    const block *k = head;
    size_t units = 0;
    do {
        units = k->units > units ? k->units : units;
        k = k->next;
    } while (k != head);
    return units;
}

void hdi_blocks_get_info(const hdi_blocks *b, hdi_blocks_info *out)
{
    out->managed_bytes = b->end * HDI_BLOCKS_GRANULE;
    out->live_bytes = b->live_units * HDI_BLOCKS_GRANULE;
    out->retired_bytes = b->retired_units * HDI_BLOCKS_GRANULE;
    out->free_bytes = out->managed_bytes - out->live_bytes - out->retired_bytes;
    out->largest_free = largest_free(b) * HDI_BLOCKS_GRANULE;
    out->live_blocks = b->n_live;
    out->free_blocks = b->n_free;
    out->retired_blocks = b->n_retired;
    out->pending_marks = b->n_all_nodes - b->n_spare_nodes;
}

/* ---- verification ----------------------------------------------------------------------------------------------- */

static bool __attribute__((format(printf, 3, 4))) wrong(char *why, size_t why_bytes, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, why_bytes, format, arguments);
    va_end(arguments);
    return false;
}

/* Whether a block's links in its class hold and the class is marked as having blocks. */
static bool hangs_right(const hdi_blocks *b, const block *k)
{
    unsigned class = class_of(k->units);
    return k->next->prev == k && k->prev->next == k && class_of(k->next->units) == class &&
           k->next->state == BLOCK_FREE && b->heads[class / SPLIT][class % SPLIT] != NULL;
}

bool hdi_blocks_check(const hdi_blocks *b, char *why, size_t why_bytes)
{
    size_t at = 0, n_blocks = 0, n_live = 0, n_free = 0, n_retired = 0, live = 0, retired = 0, n_nodes = 0;
    const block *before = NULL;
    for (const block *k = b->first; k != NULL; before = k, k = k->after) {
        if (k->start != at || k->units == 0 || k->before != before) {
            return wrong(why, why_bytes, "block at %zu: starts at %zu, %zu long", at, k->start, k->units);
        }
        at += k->units;
        n_blocks++;
        if (k->state == BLOCK_LIVE) {
            n_live++;
            live += k->units;
            if (*live_link(b, k->start) != k) {
                return wrong(why, why_bytes, "live block at %zu: not in the table", k->start);
            }
        } else if (k->state == BLOCK_RETIRED) {
            n_retired++;
            retired += k->units;
        } else {
            n_free++;
            if (before != NULL && before->state == BLOCK_FREE) {
                return wrong(why, why_bytes, "free block at %zu: follows a free block", k->start);
            }
            if (!hangs_right(b, k)) {
                return wrong(why, why_bytes, "free block at %zu: wrong in its class", k->start);
            }
        }
        if (k->pending != NULL && k->state != BLOCK_FREE) {
            return wrong(why, why_bytes, "block at %zu: not free and has a set", k->start);
        }
        for (const node *n = k->pending; n != NULL; n = n->next) {
            n_nodes++;
            if (n->next != NULL && n->next->mark.lane <= n->mark.lane) {
                return wrong(why, why_bytes, "free block at %zu: its set is not by rising lane", k->start);
            }
        }
    }
    if (at != b->end || before != b->last || b->end > b->limit) {
        return wrong(why, why_bytes, "the blocks end at %zu, the range at %zu", at, b->end);
    }
    if (n_live != b->n_live || n_free != b->n_free || n_retired != b->n_retired || live != b->live_units ||
        retired != b->retired_units) {
        return wrong(why, why_bytes, "counts: %zu live, %zu free, %zu retired", n_live, n_free, n_retired);
    }

    size_t hanging = 0;
    for (size_t c = 0; c < ROWS * SPLIT; c++) {
        const block *head = b->heads[c / SPLIT][c % SPLIT];
        bool marked = (b->classes[c / SPLIT] >> (c % SPLIT) & 1) != 0;
        if (marked != (head != NULL) || ((b->rows >> (c / SPLIT) & 1) != 0) != (b->classes[c / SPLIT] != 0)) {
            return wrong(why, why_bytes, "class %zu: its bit says otherwise", c);
        }
        const block *k = head;
        while (k != NULL) {
            hanging++;
            if (class_of(k->units) != c || hanging > n_free) {
                return wrong(why, why_bytes, "class %zu: holds the block at %zu", c, k->start);
            }
            k = k->next != head ? k->next : NULL;
        }
    }
    size_t chained = 0;
    for (size_t i = 0; i < b->n_buckets; i++) {
        for (const block *k = b->buckets[i]; k != NULL; k = k->next) {
            chained++;
            if (k->state != BLOCK_LIVE || bucket_of(b, k->start) != i || chained > n_live) {
                return wrong(why, why_bytes, "bucket %zu: holds the block at %zu", i, k->start);
            }
        }
    }
    if (hanging != n_free || chained != n_live) {
        return wrong(why, why_bytes, "lists: %zu of %zu free, %zu of %zu live", hanging, n_free, chained, n_live);
    }

    size_t spare_blocks = 0, spare_nodes = 0;
    for (const block *k = b->spare_blocks; k != NULL && spare_blocks <= b->n_all_blocks; k = k->next) {
        spare_blocks++;
    }
    for (const node *n = b->spare_nodes; n != NULL && spare_nodes <= b->n_all_nodes; n = n->next) {
        spare_nodes++;
    }
    if (spare_blocks != b->n_spare_blocks || spare_blocks + n_blocks != b->n_all_blocks) {
        return wrong(why, why_bytes, "descriptors: %zu spare and %zu used of %zu", spare_blocks, n_blocks,
                     b->n_all_blocks);
    }
    if (spare_nodes != b->n_spare_nodes || spare_nodes + n_nodes != b->n_all_nodes) {
        return wrong(why, why_bytes, "marks: %zu spare and %zu used of %zu", spare_nodes, n_nodes, b->n_all_nodes);
    }
    return true;
}
