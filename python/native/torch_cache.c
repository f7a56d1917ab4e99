/* torch_cache.c - blocks of PyTorch's allocator: their sizes, the table by address, and the caches.
 *
 * The hot path of PyTorch's allocations is here: a block that a stream freed serves the next
 * request of this stream for the same size. The number of sizes is small, so sizes of successive
 * requests rarely differ by a little: up to 1 MiB, the sizes are those of Heddle (heddle/memory.h),
 * and above, there are 64 sizes per doubling, which waste at most 1.6 %.
 *
 * Threads: any. Locks: the callers hold the lock of the device.
 * Always: see torch_part.h.
 */
#include <stdlib.h>
#include "torch_part.h"

/* ---- sizes ---- */

static unsigned torch_log2(size_t bytes)
{
    return (unsigned)(8 * sizeof bytes - 1) - (unsigned)__builtin_clzl(bytes);
}

/* Rounds up to one of 2^steps sizes per doubling. *number counts the sizes. */
static size_t torch_round_in_steps(size_t bytes, unsigned steps, unsigned *number)
{
    unsigned power = torch_log2(bytes - 1), shift = power - steps;
    size_t parts = ((bytes - 1) >> shift) + 1; /* 2^steps + 1 to 2^(steps + 1) */
    *number = ((power - steps) << steps) + (unsigned)parts;
    return parts << shift;
}

size_t torch_round(size_t bytes, unsigned *size_class)
{
    if (bytes <= 2048) {
        *size_class = (unsigned)((bytes + 255) / 256);
        return (size_t)*size_class * 256;
    }
    unsigned number;
    if (bytes <= TORCH_SMALL_BYTES) {
        size_t rounded = torch_round_in_steps(bytes, 3, &number);
        *size_class = number - 64; /* 2 KiB has number 72, and class 8 */
        return rounded;
    }
    size_t rounded = torch_round_in_steps(bytes, 6, &number);
    number -= 960; /* 1 MiB has number 960 */
    *size_class = 80 + number < TORCH_CLASSES ? 80 + number : TORCH_CLASSES - 1;
    return rounded;
}

/* ---- lists ---- */

void torch_list_push(torch_list *list, torch_block *block)
{
    block->previous = NULL;
    block->next = list->first;
    if (list->first) {
        list->first->previous = block;
    }
    list->first = block;
}

void torch_list_remove(torch_list *list, torch_block *block)
{
    *(block->previous ? &block->previous->next : &list->first) = block->next;
    if (block->next) {
        block->next->previous = block->previous;
    }
    block->next = block->previous = NULL;
}

/* ---- the table ---- */

static size_t torch_table_place(const torch_device *d, uint64_t address)
{
    return (size_t)((address >> 8) * 0x9e3779b97f4a7c15U >> 20) & (d->table_room - 1);
}

static bool torch_table_grow_locked(torch_device *d)
{
    size_t room = d->table_room ? d->table_room * 2 : 1024;
    torch_block **table = calloc(room, sizeof *table), **old = d->table;
    size_t old_room = d->table_room;
    if (!table) {
        return d->table_room > 0; /* longer chains are right, too */
    }
    d->table = table;
    d->table_room = room;
    for (size_t i = 0; i < old_room; i++) {
        for (torch_block *b = old[i], *next; b; b = next) {
            next = b->chain;
            size_t place = torch_table_place(d, b->address);
            b->chain = table[place];
            table[place] = b;
        }
    }
    free(old);
    return true;
}

bool torch_table_add_locked(torch_device *d, torch_block *block)
{
    if (d->table_count >= d->table_room && !torch_table_grow_locked(d)) {
        return false;
    }
    size_t place = torch_table_place(d, block->address);
    block->chain = d->table[place];
    d->table[place] = block;
    d->table_count++;
    return true;
}

torch_block *torch_table_find_locked(const torch_device *d, uint64_t address)
{
    torch_block *b = d->table_room ? d->table[torch_table_place(d, address)] : NULL;
    while (b && b->address != address) {
        b = b->chain;
    }
    return b;
}

void torch_table_remove_locked(torch_device *d, torch_block *block)
{
    torch_block **link = &d->table[torch_table_place(d, block->address)];
    while (*link != block) {
        link = &(*link)->chain;
    }
    *link = block->chain;
    d->table_count--;
}

/* ---- caches ---- */

torch_cache *torch_cache_of_locked(torch_device *d, torch_graph *graph, torch_stream stream)
{
    torch_cache **list = graph ? &graph->caches : &d->caches, **link = list;
    while (*link && !torch_streams_equal((*link)->stream, stream)) {
        link = &(*link)->next;
    }
    torch_cache *cache = *link;
    if (!cache) {
        cache = calloc(1, sizeof *cache);
        if (!cache) {
            return NULL;
        }
        cache->stream = stream;
        cache->graph = graph;
    } else {
        *link = cache->next;
    }
    cache->next = *list; /* the streams that are used often are in front */
    *list = cache;
    return cache;
}

void torch_cache_push_locked(torch_cache *cache, torch_block *block)
{
    unsigned size_class;
    torch_round(block->bytes, &size_class);
    torch_list_push(&cache->blocks[size_class], block);
    if (block->bytes > TORCH_SMALL_BYTES) {
        block->newer = NULL;
        block->older = cache->newest;
        *(cache->newest ? &cache->newest->newer : &cache->oldest) = block;
        cache->newest = block;
    }
}

static void torch_cache_remove_locked(torch_cache *cache, unsigned size_class, torch_block *block)
{
    torch_list_remove(&cache->blocks[size_class], block);
    if (block->bytes > TORCH_SMALL_BYTES) {
        *(block->older ? &block->older->newer : &cache->oldest) = block->newer;
        *(block->newer ? &block->newer->older : &cache->newest) = block->older;
    }
}

torch_block *torch_cache_pop_locked(torch_cache *cache, unsigned size_class)
{
    torch_block *block = cache->blocks[size_class].first;
    if (block) {
        torch_cache_remove_locked(cache, size_class, block);
    }
    return block;
}

torch_block *torch_cache_fit_locked(torch_cache *cache, size_t bytes, size_t most)
{
    unsigned first, last;
    torch_round(bytes, &first);
    torch_round(most, &last);
    while (first <= last && !cache->blocks[first].first) {
        first++;
    }
    return first <= last ? torch_cache_pop_locked(cache, first) : NULL;
}

/* Takes one block out of the cache and the table. */
static uint64_t torch_cache_take_one_locked(torch_device *d, torch_cache *cache, unsigned size_class, torch_block *b,
                                            torch_block **out)
{
    torch_cache_remove_locked(cache, size_class, b);
    torch_table_remove_locked(d, b);
    d->figures.cached_bytes -= b->bytes;
    *out = b;
    return b->bytes;
}

size_t torch_cache_take_locked(torch_device *d, torch_cache *cache, uint64_t wanted, torch_block **out)
{
    size_t n = 0;
    uint64_t taken = 0;
    while (n < TORCH_BATCH && taken < wanted && cache->oldest) {
        unsigned size_class;
        torch_round(cache->oldest->bytes, &size_class);
        taken += torch_cache_take_one_locked(d, cache, size_class, cache->oldest, &out[n++]);
    }
    for (unsigned i = TORCH_CLASSES; i-- > 0 && !cache->oldest;) {
        while (n < TORCH_BATCH && taken < wanted && cache->blocks[i].first) {
            taken += torch_cache_take_one_locked(d, cache, i, cache->blocks[i].first, &out[n++]);
        }
    }
    return n;
}
