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

hd_status hdi_channel_create(uint32_t slots, hdi_channel *out)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t lanes_bytes = round_up(sizeof(hdi_lane_shared) * HDI_LANES_MAX, page);
    size_t words_bytes = round_up(sizeof(hdi_word) * HDI_LANES_MAX, page);
    size_t rings_bytes = (size_t)slots * HDI_SLOT_BYTES * HDI_LANES_MAX;
    hdi_channel channel = {.slots = slots, .words_bytes = words_bytes};
    hd_status status = hdi_shm_create("heddle-channel", lanes_bytes + words_bytes + rings_bytes, &channel.memory);
    if (status) {
        return status;
    }
    unsigned char *base = channel.memory.base;
    channel.lanes = (hdi_lane_shared *)base;
    channel.words = (hdi_word *)(base + lanes_bytes);
    channel.rings = (hdi_command *)(base + lanes_bytes + words_bytes);
    *out = channel;
    return HD_OK;
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

bool hdi_failure_find(const hdi_lane_shared *lane, uint64_t position, hdi_failure *out)
{
    for (;;) {
        /* pairs with the release stores in write_record */
        uint32_t before = atomic_load_explicit(&lane->failure_changes, memory_order_acquire);
        uint32_t count = atomic_load_explicit(&lane->failures, memory_order_acquire);
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

void hdi_failure_add(hdi_lane_shared *lane, const hdi_failure *failure)
{
    uint32_t count = atomic_load_explicit(&lane->failures, memory_order_relaxed);
    if (count == HDI_FAILURES_MAX) {
        widen(lane, count, failure->from, failure->to);
    } else {
        write_record(lane, count, failure, count + 1);
    }
}

void hdi_failure_extend(hdi_lane_shared *lane, uint64_t to)
{
    uint32_t count = atomic_load_explicit(&lane->failures, memory_order_relaxed);
    if (count > 0) {
        widen(lane, count, UINT64_MAX, to);
    }
}
