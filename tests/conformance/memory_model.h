/* memory_model.h - the model of test_memory_model.c: the addresses of all blocks, to find an
 * overlap at once, and the lanes that use them.
 *
 * Threads: any.
 * Locks: the lock of the model, and one per lane. Threads that use a lane share its lock; the end
 * of the lane takes it exclusively.
 */
#ifndef CONFORMANCE_MEMORY_MODEL_H
#define CONFORMANCE_MEMORY_MODEL_H

#include "pool.h"

enum {
    THREADS = 4,
    GENERATIONS = 3,
    DEVICES = 3,
    LANES = 2,
    SLOTS = 48,
    HOLDS = 4,
    SPANS = 1024,
    KERNEL_WORDS = 16384
};
enum { DEVICE, PINNED, UNIFIED }; /* kinds */

typedef struct block {
    hd_buffer *buffer;
    int kind, device; /* device: -1 for pinned */
    size_t bytes;
    uint64_t address;
    unsigned char *host; /* for PINNED and UNIFIED */
    uint32_t word;       /* throughout its content */
} block;

CONF_UNUSED static block being_used; /* in a slot: a thread took its block */

/* Addresses of live blocks in rising order; no two overlap. */
typedef struct space {
    struct {
        uint64_t low, high;
        uint32_t word;
    } spans[SPANS];
    int count;
} space;

typedef struct lane_slot {
    pthread_rwlock_t lock;
    hd_lane *lane;
} lane_slot;

typedef struct held_block {
    hd_hold *hold;
    block b;
} held_block;

typedef struct model {
    hd_runtime *runtime;
    const char *settings;
    uint64_t seed;
    int devices;
    conf_kernels k;
    conf_slow slow[DEVICES];
    uint64_t peers[DEVICES];
    lane_slot lanes[DEVICES][LANES];
    _Atomic(block *) slots[SLOTS];
    pthread_mutex_t lock;
    space spaces[DEVICES + 1]; /* the last one is host memory, at the program's addresses */
    size_t live[DEVICES + 1], budget;
    held_block held[HOLDS];
    atomic_uint next_word, allocations, refused, late;
    atomic_bool stop;
} model;

CONF_UNUSED static model m;

CONF_UNUSED static void broken(int line, const char *format, ...) __attribute__((format(printf, 2, 3)));
CONF_UNUSED static void broken(int line, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    conf_fail_at(__FILE__, line, "%s; settings %s, HEDDLE_SEED=%llu", text, m.settings, (unsigned long long)m.seed);
}

#define MODEL_OK(call)                                                                                                 \
    do {                                                                                                               \
        hd_status model_status_ = (call);                                                                              \
        if (model_status_ != HD_OK) {                                                                                  \
            broken(__LINE__, "%s: %s: %s", #call, hd_status_name(model_status_), hd_message());                        \
        }                                                                                                              \
    } while (0)

/* ---- addresses of blocks ---- */

/* Returns the first span that ends behind `at`. */
CONF_UNUSED static int span_behind(const space *s, uint64_t at)
{
    int low = 0, high = s->count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (s->spans[middle].high > at) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

CONF_UNUSED static void enter_span(space *s, uint64_t at, size_t bytes, uint32_t word)
{
    pthread_mutex_lock(&m.lock);
    int i = span_behind(s, at);
    if (i < s->count && s->spans[i].low < at + bytes) {
        broken(__LINE__, "block %08x at %llx + %zu overlaps block %08x, which lives at %llx to %llx", word,
               (unsigned long long)at, bytes, s->spans[i].word, (unsigned long long)s->spans[i].low,
               (unsigned long long)s->spans[i].high);
    }
    CONF_TRUE(s->count < SPANS);
    memmove(&s->spans[i + 1], &s->spans[i], (size_t)(s->count - i) * sizeof s->spans[0]);
    s->spans[i].low = at;
    s->spans[i].high = at + bytes;
    s->spans[i].word = word;
    s->count++;
    pthread_mutex_unlock(&m.lock);
}

CONF_UNUSED static void leave_span(space *s, uint64_t at)
{
    pthread_mutex_lock(&m.lock);
    int i = span_behind(s, at);
    CONF_TRUE(i < s->count && s->spans[i].low == at);
    memmove(&s->spans[i], &s->spans[i + 1], (size_t)(s->count - i - 1) * sizeof s->spans[0]);
    s->count--;
    pthread_mutex_unlock(&m.lock);
}

CONF_UNUSED static void enter_block(const block *b)
{
    if (b->kind != PINNED) {
        enter_span(&m.spaces[b->device], b->address, b->bytes, b->word);
    }
    if (b->kind != DEVICE) {
        enter_span(&m.spaces[DEVICES], (uint64_t)(uintptr_t)b->host, b->bytes, b->word);
    }
}

CONF_UNUSED static void leave_block(const block *b)
{
    if (b->kind != PINNED) {
        leave_span(&m.spaces[b->device], b->address);
    }
    if (b->kind != DEVICE) {
        leave_span(&m.spaces[DEVICES], (uint64_t)(uintptr_t)b->host);
    }
}

/* Counts `bytes` more as live there. False: the sum would exceed the budget. The budget is far
 * below the limit, so that few allocations fail. */
CONF_UNUSED static bool reserve(int device, size_t bytes)
{
    size_t *live = &m.live[device < 0 ? DEVICES : device];
    pthread_mutex_lock(&m.lock);
    bool granted = *live + bytes <= m.budget;
    *live += granted ? bytes : 0;
    pthread_mutex_unlock(&m.lock);
    return granted;
}

CONF_UNUSED static void unreserve(int device, size_t bytes)
{
    pthread_mutex_lock(&m.lock);
    m.live[device < 0 ? DEVICES : device] -= bytes;
    pthread_mutex_unlock(&m.lock);
}

/* ---- lanes ---- */

/* Borrows a lane of a device: one of those that come and go, or the thread's own lane. */
CONF_UNUSED static hd_lane *borrow_lane(conf_random *r, int device, lane_slot **slot)
{
    *slot = NULL;
    if (conf_chance(r, 25)) {
        hd_lane *own = conf_default_lane(m.runtime, device);
        CONF_TRUE(own != NULL);
        return own;
    }
    *slot = &m.lanes[device][conf_below(r, LANES)];
    pthread_rwlock_rdlock(&(*slot)->lock);
    return (*slot)->lane;
}

CONF_UNUSED static void return_lane(lane_slot *slot)
{
    if (slot != NULL) {
        pthread_rwlock_unlock(&slot->lock);
    }
}

CONF_UNUSED static void renew_lane(conf_random *r)
{
    int device = (int)conf_below(r, (uint64_t)m.devices);
    lane_slot *slot = &m.lanes[device][conf_below(r, LANES)];
    pthread_rwlock_wrlock(&slot->lock);
    hd_lane_destroy(slot->lane);
    MODEL_OK(hd_lane_create(m.runtime, device, &slot->lane));
    pthread_rwlock_unlock(&slot->lock);
}

/* Returns a device whose kernels may use the block: usually its own, or a peer. */
CONF_UNUSED static int user_of(conf_random *r, const block *b)
{
    int any = (int)conf_below(r, (uint64_t)m.devices);
    if (b->device < 0 || (conf_chance(r, 30) && (m.peers[any] >> b->device & 1) != 0)) {
        return any;
    }
    return b->device;
}

/* Puts long work in front of the next work in the lane. */
CONF_UNUSED static void delay_lane(conf_random *r, hd_lane *lane, int device)
{
    size_t offset = (size_t)hd_lane_number(lane) % 256 * 4;
    double ms = conf_chance(r, 8) ? 8 : 0.1 * (double)conf_below(r, 12);
    conf_slow_run(&m.slow[device], lane, NULL, offset, ms, NULL);
}

#endif
