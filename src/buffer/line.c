/* line.c - see line.h.
 *
 * Threads, locks, blocking, and guarantees: see line.h.
 */
#include "buffer/line.h"
#include "base/wait.h"
#include "buffer/part.h"
#include "memory/arena.h"
#include "memory/host_pool.h"
#include "memory/part.h"
#include "memory/thread_cache.h"

hdi_line *hdi_line_of(hd_runtime *rt, int device)
{
    return &hdi_buffer_of(rt)->lines[device == HD_DEVICE_HOST ? HDI_DEVICES_MAX : device];
}

static void lines_init(hd_runtime *rt)
{
    for (int i = 0; i <= HDI_DEVICES_MAX; i++) {
        hdi_mutex_init(&hdi_buffer_of(rt)->lines[i].lock, HDI_RANK_MEMORY_LINE);
    }
}

static void lines_release(hd_runtime *rt)
{
    for (int i = 0; i <= HDI_DEVICES_MAX; i++) {
        hdi_mutex_destroy(&hdi_buffer_of(rt)->lines[i].lock);
    }
}

const hdi_lifetime hdi_lines_lifetime = {.init = lines_init, .release = lines_release};

/* The bytes that allocations could take now. */
typedef struct room {
    uint64_t limit;
    uint64_t free;  /* in no block */
    uint64_t whole; /* those of the free bytes that are in whole granules, or not mapped yet */
} room;

static uint64_t line_less(uint64_t bytes, uint64_t taken)
{
    return bytes > taken ? bytes - taken : 0;
}

static room line_room(hd_runtime *rt, int device)
{
    if (device == HD_DEVICE_HOST) {
        hdi_host_pool_info info;
        hdi_host_pool_get_info(hdi_memory_of(rt)->host_pool, &info);
        uint64_t kept = line_less(info.reserved_bytes, info.idle_bytes + info.waiting_bytes);
        return (room){.limit = info.limit_bytes,
                      .free = line_less(info.limit_bytes, info.taken_bytes),
                      .whole = line_less(info.limit_bytes, kept)};
    }
    hdi_arena_info info;
    hdi_arena_get_info(rt->devices[device]->arena, &info);
    uint64_t kept = line_less(info.mapped_bytes, info.idle_bytes + info.waiting_bytes);
    return (room){.limit = info.limit_bytes,
                  .free = line_less(info.limit_bytes, info.taken_bytes + info.pieces_bytes),
                  .whole = line_less(info.limit_bytes, kept)};
}

/* The number of bytes that later allocations must leave for the allocation at `place`. `before`:
 * the number of bytes that they must leave for all places in front of it. */
static uint64_t line_kept_for(const hd_runtime *rt, const hdi_in_line *place, uint64_t before, room now)
{
    /* if that many bytes are free, the allocation at `place` is about to take them */
    bool fits = now.whole >= before && now.whole - before >= place->wanted;
    bool long_since = hdi_clock_ns() - place->since >= rt->options.memory_timeout * 1000000;
    uint64_t freed = line_less(place->free_most, place->spare);
    return fits || long_since || freed > place->wanted ? place->wanted : freed;
}

void hdi_line_join(hd_runtime *rt, int device, hdi_in_line *place, uint64_t bytes)
{
    hdi_line *line = hdi_line_of(rt, device);
    if (device != HD_DEVICE_HOST) {
        hdi_thread_caches_close(rt, device);
    }
    hdi_mutex_lock(&line->lock);
    room now = line_room(rt, device);
    uint64_t most = line_less(now.limit, bytes);
    *place = (hdi_in_line){
        .wanted = bytes, .spare = now.free < most ? now.free : most, .free_most = now.free, .since = hdi_clock_ns()};
    hdi_in_line **link = &line->first;
    while (*link) {
        link = &(*link)->next;
    }
    *link = place;
    atomic_fetch_add_explicit(&line->waiting, 1, memory_order_relaxed);
    hdi_mutex_unlock(&line->lock);
}

void hdi_line_leave(hd_runtime *rt, int device, const hdi_in_line *place, bool served)
{
    hdi_line *line = hdi_line_of(rt, device);
    hdi_mutex_lock(&line->lock);
    hdi_in_line **link = &line->first;
    while (*link != place) {
        link = &(*link)->next;
    }
    *link = place->next;
    for (hdi_in_line *p = place->next; served && p; p = p->next) {
        /* the allocation that leaves took these bytes */
        p->free_most = line_less(p->free_most, place->wanted);
    }
    atomic_fetch_sub_explicit(&line->waiting, 1, memory_order_relaxed);
    /* pairs with hdi_line_left */
    atomic_fetch_add_explicit(&line->left, 1, memory_order_release);
    hdi_mutex_unlock(&line->lock);
    if (device != HD_DEVICE_HOST) {
        hdi_thread_caches_open(rt, device);
    }
}

bool hdi_line_enter(hd_runtime *rt, int device, const hdi_in_line *place, uint64_t bytes)
{
    hdi_line *line = hdi_line_of(rt, device);
    hdi_mutex_lock(&line->lock);
    room now = line_room(rt, device);
    uint64_t kept = 0;
    for (hdi_in_line *p = line->first; p && p != place; p = p->next) {
        p->free_most = p->free_most > now.free ? p->free_most : now.free;
        kept += line_kept_for(rt, p, kept, now);
    }
    bool alone = line->first == place || bytes <= line_less(now.free, kept);
    bool may = line->first == place || line->trying + bytes <= line_less(now.free, kept);
    line->trying += may ? bytes : 0;
    line->refused |= alone && !may;
    hdi_mutex_unlock(&line->lock);
    return may;
}

void hdi_line_exit(hd_runtime *rt, int device, uint64_t bytes)
{
    hdi_line *line = hdi_line_of(rt, device);
    hdi_mutex_lock(&line->lock);
    line->trying -= bytes;
    if (line->refused) {
        line->refused = false;
        /* pairs with hdi_line_chances */
        atomic_fetch_add_explicit(&line->chances, 1, memory_order_release);
    }
    hdi_mutex_unlock(&line->lock);
}
