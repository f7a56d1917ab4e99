/* blocks_memory.c - host memory for the allocator over offsets: descriptors, nodes, and the sets of points made of them.
 *
 * Descriptors and nodes come from slabs that are only given back as a whole.
 *
 * Threads, locks: none of its own, see blocks.h.
 * Always: see blocks_internal.h.
 */
#include "memory/blocks_internal.h"

#include <stdlib.h>
#include <string.h>

#define BLOCKS_PER_SLAB 128
#define NODES_PER_SLAB 256

struct hdi_block_slab {
    hdi_block_slab *next;
    hdi_block blocks[BLOCKS_PER_SLAB];
};

struct hdi_node_slab {
    hdi_node_slab *next;
    hdi_node nodes[NODES_PER_SLAB];
};

void *hdi_blocks_host_memory(const hdi_blocks_config *config, size_t bytes)
{
    return config->allocate != NULL ? config->allocate(bytes) : malloc(bytes);
}

static bool add_blocks(hdi_blocks *b)
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

static bool add_nodes(hdi_blocks *b)
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
        good = add_blocks(b);
    }
    while (good && b->n_spare_nodes < nodes) {
        good = add_nodes(b);
    }
    return good;
}

void hdi_blocks_give_slabs_back(hdi_blocks *b)
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

/* ---- sets of points ---------------------------------------------------------------------------------------------- */

void hdi_points_release(hdi_points *points)
{
    if (points->room != 0) {
        free(points->at.many);
    }
    memset(points, 0, sizeof *points);
}

void hdi_block_unite(hdi_blocks *b, hdi_block *into, hdi_block *from)
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

static int by_lane(const void *left, const void *right)
{
    const hdi_point *a = left, *b = right;
    if (a->lane != b->lane) {
        return a->lane < b->lane ? -1 : 1;
    }
    return a->position == b->position ? 0 : a->position > b->position ? -1 : 1; /* the highest first */
}

/* By rising lane, the highest of each. */
static size_t put_in_order(hdi_point *points, size_t count)
{
    if (count < 2) {
        return count;
    }
    qsort(points, count, sizeof *points, by_lane);
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
    points.count = sets > 1 ? put_in_order(to, count) : count;
    *out = points;
    return true;
}
