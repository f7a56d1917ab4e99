/* blocks_free.c - free blocks in lists by size, all blocks in the order of offsets, and the joining of neighbours.
 *
 * Free blocks are in lists by size. There is a row per doubling, with SPLIT classes each, and a bitmap over rows and
 * over classes. So the class that fits is found in a few instructions. All blocks are also in one list in the order of
 * their offsets, for splitting and joining.
 *
 * Free blocks join with free neighbours that wait for the same lanes. The queue has the others that have a free
 * neighbour, and all that wait, the oldest first. Each free looks at the oldest block, and at more, up to LOOK, while
 * they leave the queue. So joining, and the count of what waits, are soon up to date.
 *
 * Threads, locks, blocking: see blocks.h.
 * Always: of two free neighbours without a wall in between, one is in the queue.
 */
#include "memory/blocks_internal.h"

#define LOOK 8 /* queued blocks to look at, per free */

/* ---- the queue of free blocks that wait, or have a free neighbour ----------------------------------------------- */

static void enqueue(hdi_blocks *b, hdi_block *k)
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

static void dequeue(hdi_blocks *b, hdi_block *k)
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

static void count_waiting(hdi_blocks *b, hdi_block *k, bool waits)
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
        count_waiting(b, k, false);
    }
}

/* Whether two free neighbours wait for the same lanes. If one waits for more lanes than the other, they are not joined:
 * the other one can be reused sooner alone. */
static bool can_join(const hdi_blocks *b, const hdi_block *left, const hdi_block *right)
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

/* Joins the oldest queued block with a neighbour if it can now. True: the queue is shorter. */
static bool look_at_oldest(hdi_blocks *b)
{
    hdi_block *k = b->oldest;
    hdi_block_prune(b, k);
    if (can_join(b, k->before, k) || can_join(b, k, k->after)) {
        hdi_block_remove_free(b, k);
        hdi_block_set_free(b, k);
        return true;
    }
    dequeue(b, k);
    if (k->pending != NULL || hdi_block_free_pair(b, k->before, k) || hdi_block_free_pair(b, k, k->after)) {
        enqueue(b, k);
        return false;
    }
    return true;
}

void hdi_blocks_look_at_queue(hdi_blocks *b)
{
    for (int i = 0; i < LOOK && b->oldest != NULL && look_at_oldest(b); i++) {
    }
}

void hdi_blocks_prune(hdi_blocks *b)
{
    for (size_t i = b->n_queued; i > 0 && b->oldest != NULL; i--) {
        look_at_oldest(b);
    }
}

/* ---- size classes ----------------------------------------------------------------------------------------------- */

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
    count_waiting(b, k, k->pending != NULL);
    if (k->pending != NULL || hdi_block_free_pair(b, k->before, k) || hdi_block_free_pair(b, k, k->after)) {
        enqueue(b, k);
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
    count_waiting(b, k, false);
    if (k->queued) {
        dequeue(b, k);
    }
}

/* ---- the order of offsets --------------------------------------------------------------------------------------- */

void hdi_block_link_behind(hdi_blocks *b, hdi_block *before, hdi_block *k)
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
    hdi_block_link_behind(b, k, behind);
    return behind;
}

/* Joins a block with the one behind it. Neither is in a class. */
static void absorb_after(hdi_blocks *b, hdi_block *k)
{
    hdi_block *gone = k->after;
    hdi_block_unite(b, k, gone);
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
    if (can_join(b, k, k->after)) {
        hdi_block_remove_free(b, k->after);
        absorb_after(b, k);
    }
    if (can_join(b, k->before, k)) {
        k = k->before;
        hdi_block_remove_free(b, k);
        absorb_after(b, k);
    }
    hdi_block_insert_free(b, k);
}

/* Joins the free blocks between two walls, if there is nothing else. One of them is k. */
static void join_whole(hdi_blocks *b, hdi_block *k)
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
            absorb_after(b, k);
        }
        hdi_block_insert_free(b, k);
    }
}

void hdi_blocks_join_whole(hdi_blocks *b)
{
    for (size_t i = b->n_queued; i > 0 && b->oldest != NULL; i--) {
        hdi_block *k = b->oldest;
        dequeue(b, k);
        enqueue(b, k);
        join_whole(b, k);
    }
}
