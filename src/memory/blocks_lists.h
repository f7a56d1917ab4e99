/* blocks_lists.h - the records of an allocator over offsets: descriptors of blocks, nodes of
 * points, lists.
 *
 * - blocks.c: takes blocks from the lists, and puts them back.
 * - blocks_gaps.c: manages gaps, runs and pledges.
 *
 * Threads, locks, blocking: see blocks.h.
 * Always: every pledge has a spare descriptor, so that no pledge needs host memory to end.
 */
#ifndef HDI_MEMORY_BLOCKS_LISTS_H
#define HDI_MEMORY_BLOCKS_LISTS_H

#include <stdlib.h>
#include "memory/blocks.h"

#define HDI_SPLIT_BITS 4
/* The number of classes per doubling of the size. The largest size in a class exceeds the smallest
 * by at most 1/16. */
#define HDI_SPLIT ((size_t)1 << HDI_SPLIT_BITS)
#define HDI_ROWS 54         /* enough for all of size_t in granules of 256 bytes */
#define HDI_SPARE_NODES 256 /* nodes in reserve, in addition to one per live block */

/* One point in the set of a free block. */
typedef struct hdi_node {
    struct hdi_node *next; /* by rising lane; of a spare node: the next spare one */
    hdi_point point;
} hdi_node;

struct hdi_block {
    size_t start, units;       /* in granules */
    hdi_block *before, *after; /* the neighbours by offset; NULL at the ends */
    /* Free: circular list of its class, newest first. Gap: circular list of gaps. Live: `next` is
     * the hash chain. Pledged: `next` is its owner's list. Spare: `next` is the list of spare
     * blocks. */
    hdi_block *next, *prev;
    hdi_block *older, *newer; /* neighbours in the queue */
    /* Free, pledged: the points that the next owner must wait for; else NULL. */
    hdi_node *pending;
    hdi_block_kind kind;
    bool fresh;  /* free, pledged: never handed out */
    bool lacks;  /* pledged: was a gap before */
    bool queued; /* in the queue */
    bool waits;  /* free: carries a set, and counts as waiting */
};

typedef struct hdi_block_slab hdi_block_slab;
typedef struct hdi_node_slab hdi_node_slab;

struct hdi_blocks {
    hdi_blocks_config config;
    hdi_blocks_sums sums;
    size_t limit, wall; /* in granules */
    hdi_block *first, *last;

    uint64_t rows;              /* one bit for each row: some class of the row holds blocks */
    uint16_t classes[HDI_ROWS]; /* one bit for each class: the class holds blocks */
    hdi_block *heads[HDI_ROWS][HDI_SPLIT];
    hdi_block *gaps;
    hdi_block *oldest, *newest; /* the queue: free blocks with a set or a free neighbour */

    hdi_block **buckets; /* live blocks by start */
    size_t n_buckets;

    hdi_block_slab *block_slabs;
    hdi_block *spare_blocks;
    hdi_node_slab *node_slabs;
    hdi_node *spare_nodes;
    size_t n_spare_blocks, n_spare_nodes, n_all_blocks, n_all_nodes;

    size_t n_live, n_free, n_retired, n_gaps, n_pledges, n_whole, n_queued;
#ifdef HDI_DEBUG
    unsigned operations;
#endif
};

/* ---- host memory and sets: make all calls that can fail before the first change ---- */

static inline void *hdi_blocks_host_memory(const hdi_blocks_config *config, size_t bytes)
{
    return config->allocate != NULL ? config->allocate(bytes) : malloc(bytes);
}

/* Takes host memory until this many descriptors and nodes are spare. False: no host memory. */
bool hdi_blocks_add_slabs(hdi_blocks *b, size_t blocks, size_t nodes);

/* Adds a point to a set. A node must be spare. */
void hdi_block_add_point(hdi_blocks *b, hdi_block *k, hdi_point point);
/* Gives `into`, whose set is empty, a copy of the set of `from`. A spare node must exist for each
 * point. */
void hdi_block_copy_set(hdi_blocks *b, hdi_block *into, const hdi_block *from);
void hdi_block_drop_set(hdi_blocks *b, hdi_block *k);
size_t hdi_block_count_set(const hdi_block *k);
/* Gets the points for which an owner of the blocks from `first` up to the granule `end` must wait.
 * False: no host memory. */
bool hdi_blocks_gather(const hdi_blocks *b, const hdi_block *first, size_t end, hdi_points *out);

/* Makes sure that `count` descriptors are spare, in addition to the descriptors that pledges need.
 * False: no host memory. */
static inline bool hdi_blocks_reserve(hdi_blocks *b, size_t count)
{
    return b->n_spare_blocks >= count + b->n_pledges || hdi_blocks_add_slabs(b, count + b->n_pledges, 0);
}

/* Makes sure that `count` nodes are spare. False: no host memory. */
static inline bool hdi_blocks_reserve_nodes(hdi_blocks *b, size_t count)
{
    return b->n_spare_nodes >= count || hdi_blocks_add_slabs(b, 0, count);
}

/* Makes sure that enough nodes are spare for one more live or pledged block, and `more` further
 * nodes. False: no host memory. */
static inline bool hdi_blocks_reserve_for_owner(hdi_blocks *b, size_t more)
{
    return hdi_blocks_reserve_nodes(b, b->n_live + b->n_pledges + 1 + HDI_SPARE_NODES + more);
}

static inline hdi_block *hdi_block_new(hdi_blocks *b, size_t start, size_t units)
{
    hdi_block *k = b->spare_blocks;
    b->spare_blocks = k->next;
    b->n_spare_blocks--;
    *k = (hdi_block){.start = start, .units = units};
    return k;
}

static inline void hdi_block_give(hdi_blocks *b, hdi_block *k)
{
    k->next = b->spare_blocks;
    b->spare_blocks = k;
    b->n_spare_blocks++;
}

static inline hdi_node *hdi_node_new(hdi_blocks *b)
{
    hdi_node *n = b->spare_nodes;
    b->spare_nodes = n->next;
    b->n_spare_nodes--;
    return n;
}

static inline void hdi_node_give(hdi_blocks *b, hdi_node *n)
{
    n->next = b->spare_nodes;
    b->spare_nodes = n;
    b->n_spare_nodes++;
}

static inline bool hdi_blocks_finished(const hdi_blocks *b, hdi_point point)
{
    return b->config.finished(b->config.finished_context, point);
}

/* ---- lists ---- */

/* The class of a size: row * SPLIT + column. Row 0 has one class per size. The sizes of row r begin
 * at SPLIT << (r - 1). */
static inline unsigned hdi_block_class(size_t units)
{
    if (units < HDI_SPLIT) {
        return (unsigned)units;
    }
    unsigned top = 63u - (unsigned)__builtin_clzll(units);
    unsigned row = top - HDI_SPLIT_BITS + 1;
    unsigned column = (unsigned)(units >> (top - HDI_SPLIT_BITS)) & (HDI_SPLIT - 1);
    return row * (unsigned)HDI_SPLIT + column;
}

static inline size_t hdi_blocks_bucket(const hdi_blocks *b, size_t start)
{
    return (size_t)(((uint64_t)start * 0x9e3779b97f4a7c15u) >> 32) & (b->n_buckets - 1);
}

/* The link to the live block at `start`, or to the NULL that ends its chain. */
static inline hdi_block **hdi_blocks_live_link(const hdi_blocks *b, size_t start)
{
    hdi_block **at = &b->buckets[hdi_blocks_bucket(b, start)];
    while (*at != NULL && (*at)->start != start) {
        at = &(*at)->next;
    }
    return at;
}

/* True if two neighbouring blocks are both free, without a wall in between. */
static inline bool hdi_block_free_pair(const hdi_blocks *b, const hdi_block *left, const hdi_block *right)
{
    return left != NULL && right != NULL && left->kind == HDI_BLOCK_FREE && right->kind == HDI_BLOCK_FREE &&
           (b->wall == 0 || right->start % b->wall != 0);
}

static inline hdi_block **hdi_blocks_head(hdi_blocks *b, int class)
{
    return &b->heads[(unsigned)class / HDI_SPLIT][(unsigned)class % HDI_SPLIT];
}

/* The first class from `from` on that holds blocks; -1: none. */
static inline int hdi_blocks_next_class(const hdi_blocks *b, unsigned from)
{
    unsigned row = from / HDI_SPLIT;
    if (row >= HDI_ROWS) {
        return -1;
    }
    unsigned columns = b->classes[row] & (0xffffu << (from % HDI_SPLIT));
    if (columns == 0) {
        /* This shifts ~1, not ~0 by row + 1, since row + 1 may be the width of the word. */
        uint64_t rows = b->rows & (~(uint64_t)1 << row);
        if (rows == 0) {
            return -1;
        }
        row = (unsigned)__builtin_ctzll(rows);
        columns = b->classes[row];
    }
    return (int)(row * HDI_SPLIT + (unsigned)__builtin_ctz(columns));
}

/* True if an owner in `lane` would wait for no other lane. */
static inline bool hdi_block_suits(const hdi_block *k, uint32_t lane)
{
    for (const hdi_node *n = k->pending; n != NULL; n = n->next) {
        if (n->point.lane != lane) {
            return false;
        }
    }
    return true;
}

/* ---- free, live and all blocks ---- */

/* Drops the finished points of a set. */
void hdi_block_prune(hdi_blocks *b, hdi_block *k);
/* Makes a block free and puts it at the head of its class. */
void hdi_block_insert_free(hdi_blocks *b, hdi_block *k);
void hdi_block_remove_free(hdi_blocks *b, hdi_block *k);
/* Makes a block that is in no list free, and joins it with free neighbours that wait for the same
 * lanes. */
void hdi_block_set_free(hdi_blocks *b, hdi_block *k);
void hdi_blocks_look_at_queue(hdi_blocks *b);
/* Makes a block at the end of the range; the block is in no list. Records a message on failure. */
hd_status hdi_blocks_extend(hdi_blocks *b, size_t bytes, hdi_block **out);
/* Removes a block from the order of offsets. */
void hdi_block_unlink(hdi_blocks *b, hdi_block *k);
/* Cuts a block that is in no list into two blocks, and returns the second one. The first one keeps
 * `units` granules and the set. Takes a spare descriptor. */
hdi_block *hdi_block_cut(hdi_blocks *b, hdi_block *k, size_t units);

void hdi_block_insert_live(hdi_blocks *b, hdi_block *k);
void hdi_block_remove_live(hdi_blocks *b, hdi_block *k);
/* Whether a block may get a part of a mapping. */
typedef enum hdi_part {
    HDI_PART_ALLOWED,
    HDI_PART_UNUSED, /* free and unused: the mapping must be divided first */
    HDI_PART_USED    /* free, but work still uses the mapping, which is larger than the block */
} hdi_part;
/* Checks the mapping that contains the granule `at` of the free block `k`. A block of the granules
 * [from, to) would get a part of it. If this is not allowed, `begin` and `end` get the bounds of
 * the mapping. */
hdi_part hdi_block_part(hdi_blocks *b, hdi_block *k, size_t at, size_t from, size_t to, size_t *begin, size_t *end);

/* Verifies the structures in a debug build. Only one of 64 calls does so, since a verification
 * visits every block. */
void hdi_blocks_check_sometimes(hdi_blocks *b);

#endif
