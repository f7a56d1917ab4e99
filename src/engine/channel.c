/* channel.c - makes the shared mapping of a device.
 *
 * Threads: hd_open, hd_close, the start of a worker process.
 * Locks: none.
 * Always: each area begins on a page of its own, so that its protection can differ.
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
    size_t lanes, flags, flags_bytes, requests, rings, failures, bytes;
    uint32_t failures_room;
} layout;

static layout layout_of(uint32_t slots)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    layout l;
    l.lanes = round_up(sizeof(hdi_engine_shared), page);
    l.flags = l.lanes + round_up(sizeof(hdi_lane_shared) * HDI_LANES_MAX, page);
    l.flags_bytes = round_up(sizeof(hdi_completion_flag) * HDI_LANES_MAX, page);
    l.requests = l.flags + l.flags_bytes;
    l.rings = l.requests + round_up((size_t)slots * HDI_LANES_MAX / HDI_REQUESTS_PER_WORD * sizeof(uint64_t), page);
    l.failures = l.rings + round_up((size_t)slots * HDI_SLOT_BYTES * HDI_LANES_MAX, page);
    l.failures_room = slots > HDI_FAILURES_LEAST / 2 ? 2 * slots : HDI_FAILURES_LEAST;
    l.bytes = l.failures + round_up((size_t)l.failures_room * sizeof(hdi_failure) * HDI_LANES_MAX, page);
    return l;
}

static void place(hdi_channel *channel, uint32_t slots, const layout *l)
{
    unsigned char *base = channel->memory.base;
    channel->engine = (hdi_engine_shared *)base;
    channel->lanes = (hdi_lane_shared *)(base + l->lanes);
    channel->flags = (hdi_completion_flag *)(base + l->flags);
    channel->flags_bytes = l->flags_bytes;
    channel->requests = (_Atomic uint64_t *)(base + l->requests);
    channel->rings = (hdi_command *)(base + l->rings);
    channel->slots = slots;
    channel->failures = (_Atomic uint64_t *)(base + l->failures);
    channel->failures_room = l->failures_room;
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

hd_status hdi_channel_map(int descriptor, uint32_t slots, bool peer, hdi_channel *out)
{
    layout l = layout_of(slots);
    hdi_channel channel;
    memset(&channel, 0, sizeof channel);
    hd_status status = hdi_shm_map(descriptor, l.bytes, &channel.memory);
    if (status) {
        return status;
    }
    status = hdi_shm_only_read(&channel.memory, peer ? l.flags : l.rings, peer ? l.bytes : l.failures);
    if (status) {
        hdi_shm_release(&channel.memory);
        return status;
    }
    place(&channel, slots, &l);
    *out = channel;
    return HD_OK;
}

void hdi_channel_release(hdi_channel *channel)
{
    hdi_shm_release(&channel->memory);
    memset(channel, 0, sizeof *channel);
}
