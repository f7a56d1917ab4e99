/* channel.c - makes the shared mapping of a device, and keeps the failure records in it.
 *
 * Threads: create and release in hd_open and hd_close; records are added by the engine alone and read by any thread.
 * Locks: none. Always: one writer; a reader that races with it sees `failures` move and
 * looks again.
 */
#include "engine/channel.h"

#include <stdbool.h>
#include <string.h>
#include <unistd.h>

static size_t round_up(size_t value, size_t unit)
{
    return (value + unit - 1) / unit * unit;
}

typedef struct layout {
    size_t lanes, words, words_bytes, asks, rings, bytes;
} layout;

static layout layout_of(uint32_t slots)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    layout l;
    l.lanes = round_up(sizeof(hdi_engine_shared), page);
    l.words = l.lanes + round_up(sizeof(hdi_lane_shared) * HDI_LANES_MAX, page);
    l.words_bytes = round_up(sizeof(hdi_word) * HDI_LANES_MAX, page);
    l.asks = l.words + l.words_bytes;
    l.rings = l.asks + round_up((size_t)slots * HDI_LANES_MAX / HDI_ASKS_PER_WORD * sizeof(uint64_t), page);
    l.bytes = l.rings + (size_t)slots * HDI_SLOT_BYTES * HDI_LANES_MAX;
    return l;
}

static void place(hdi_channel *channel, uint32_t slots, const layout *l)
{
    unsigned char *base = channel->memory.base;
    channel->engine = (hdi_engine_shared *)base;
    channel->lanes = (hdi_lane_shared *)(base + l->lanes);
    channel->words = (hdi_word *)(base + l->words);
    channel->words_bytes = l->words_bytes;
    channel->asks = (_Atomic uint64_t *)(base + l->asks);
    channel->rings = (hdi_command *)(base + l->rings);
    channel->slots = slots;
}

hd_status hdi_channel_create(uint32_t slots, hdi_channel *out)
{
    layout l = layout_of(slots);
    hdi_channel channel;
    memset(&channel, 0, sizeof channel);
    hd_status status = hdi_shm_create("heddle-channel", l.bytes, &channel.memory);
    if (!status) {
        place(&channel, slots, &l);
        *out = channel;
    }
    return status;
}

hd_status hdi_channel_map(int descriptor, uint32_t slots, hdi_channel *out)
{
    layout l = layout_of(slots);
    hdi_channel channel;
    memset(&channel, 0, sizeof channel);
    hd_status status = hdi_shm_map(descriptor, l.bytes, &channel.memory);
    if (!status) {
        place(&channel, slots, &l);
        *out = channel;
    }
    return status;
}

void hdi_channel_release(hdi_channel *channel)
{
    hdi_shm_release(&channel->memory);
    memset(channel, 0, sizeof *channel);
}

/* A seqlock without fences: the writer's word stores release the odd count before them, the reader's word loads
 * acquire, so a reader that saw a new word also sees that the count has moved. */
static void read_record(const hdi_lane_shared *lane, uint32_t index, hdi_failure *out)
{
    uint64_t words[HDI_FAILURE_WORDS];
    for (size_t i = 0; i < HDI_FAILURE_WORDS; i++) {
        words[i] = atomic_load_explicit(&lane->failure[index][i], memory_order_acquire);
    }
    memcpy(out, words, sizeof words);
}

/* A crashing engine may have left any number there. */
static uint32_t count_of(const hdi_lane_shared *lane)
{
    uint32_t count = atomic_load_explicit(&lane->failures, memory_order_acquire);
    return count < HDI_FAILURES_MAX ? count : HDI_FAILURES_MAX;
}

bool hdi_failure_find(const hdi_lane_shared *lane, uint64_t position, hdi_failure *out)
{
    for (;;) {
        /* pairs with the release stores in write_record */
        uint32_t before = atomic_load_explicit(&lane->failure_changes, memory_order_acquire);
        uint32_t count = count_of(lane);
        bool found = false;
        for (uint32_t i = 0; i < count && !found; i++) {
            read_record(lane, count - 1 - i, out);
            found = position >= out->from && position <= out->to;
        }
        if ((before & 1) == 0 && atomic_load_explicit(&lane->failure_changes, memory_order_relaxed) == before) {
            return found;
        }
    }
}

uint64_t hdi_failure_end(const hdi_lane_shared *lane)
{
    for (;;) {
        /* as in hdi_failure_find */
        uint32_t before = atomic_load_explicit(&lane->failure_changes, memory_order_acquire);
        uint32_t count = count_of(lane);
        uint64_t end = 0;
        for (uint32_t i = 0; i < count; i++) {
            hdi_failure failure;
            read_record(lane, i, &failure);
            end = failure.to > end ? failure.to : end;
        }
        if ((before & 1) == 0 && atomic_load_explicit(&lane->failure_changes, memory_order_relaxed) == before) {
            return end;
        }
    }
}

static void write_record(hdi_lane_shared *lane, uint32_t index, const hdi_failure *failure, uint32_t count)
{
    uint64_t words[HDI_FAILURE_WORDS];
    memcpy(words, failure, sizeof words);
    uint32_t changes = atomic_load_explicit(&lane->failure_changes, memory_order_relaxed);
    atomic_store_explicit(&lane->failure_changes, changes + 1, memory_order_relaxed);
    for (size_t i = 0; i < HDI_FAILURE_WORDS; i++) {
        /* pairs with the acquire loads in read_record */
        atomic_store_explicit(&lane->failure[index][i], words[i], memory_order_release);
    }
    atomic_store_explicit(&lane->failures, count, memory_order_release);
    /* pairs with the acquire load in hdi_failure_find */
    atomic_store_explicit(&lane->failure_changes, changes + 2, memory_order_release);
}

/* Makes the newest record cover from..to, too. */
static void widen(hdi_lane_shared *lane, uint32_t count, uint64_t from, uint64_t to)
{
    hdi_failure newest;
    read_record(lane, count - 1, &newest);
    newest.from = newest.from < from ? newest.from : from;
    newest.to = newest.to > to ? newest.to : to;
    write_record(lane, count - 1, &newest, count);
}

/* Joins the two oldest records, so that there is room for one more. */
static void join_oldest(hdi_lane_shared *lane)
{
    hdi_failure oldest, next;
    read_record(lane, 0, &oldest);
    read_record(lane, 1, &next);
    next.from = next.from < oldest.from ? next.from : oldest.from;
    next.to = next.to > oldest.to ? next.to : oldest.to;
    uint64_t words[HDI_FAILURE_WORDS];
    memcpy(words, &next, sizeof words);
    /* as in write_record, for all records at once */
    uint32_t changes = atomic_load_explicit(&lane->failure_changes, memory_order_relaxed);
    atomic_store_explicit(&lane->failure_changes, changes + 1, memory_order_relaxed);
    for (uint32_t r = 0; r < HDI_FAILURES_MAX - 1; r++) {
        for (size_t i = 0; i < HDI_FAILURE_WORDS; i++) {
            uint64_t word = r == 0 ? words[i] : atomic_load_explicit(&lane->failure[r + 1][i], memory_order_relaxed);
            atomic_store_explicit(&lane->failure[r][i], word, memory_order_release);
        }
    }
    atomic_store_explicit(&lane->failures, HDI_FAILURES_MAX - 1, memory_order_release);
    atomic_store_explicit(&lane->failure_changes, changes + 2, memory_order_release);
}

void hdi_failure_add(hdi_lane_shared *lane, const hdi_failure *failure)
{
    if (atomic_load_explicit(&lane->failures, memory_order_relaxed) == HDI_FAILURES_MAX) {
        join_oldest(lane);
    }
    uint32_t count = atomic_load_explicit(&lane->failures, memory_order_relaxed);
    write_record(lane, count, failure, count + 1);
}

void hdi_failure_extend(hdi_lane_shared *lane, uint64_t to)
{
    uint32_t count = atomic_load_explicit(&lane->failures, memory_order_relaxed);
    if (count > 0) {
        widen(lane, count, UINT64_MAX, to);
    }
}

void hdi_failure_repair(hdi_lane_shared *lane)
{
    atomic_store_explicit(&lane->failures, count_of(lane), memory_order_release);
    uint32_t changes = atomic_load_explicit(&lane->failure_changes, memory_order_acquire);
    if (changes & 1) {
        atomic_store_explicit(&lane->failure_changes, changes + 1, memory_order_release);
    }
}

void hdi_failure_close(hdi_lane_shared *lane, uint64_t to)
{
    uint32_t count = atomic_load_explicit(&lane->failures, memory_order_relaxed);
    hdi_failure newest;
    if (count > 0) {
        read_record(lane, count - 1, &newest);
        if (newest.to == UINT64_MAX) {
            newest.to = to;
            /* Where nothing was unfinished it covers nothing, and goes. */
            write_record(lane, count - 1, &newest, to < newest.from ? count - 1 : count);
        }
    }
}
