/* ranges.c - the table of address ranges: which memory is ours, and which devices may access it.
 *
 * Threads: any. Locks: runs under the host lock. Blocking: none.
 * Always: spans of one set do not overlap and are sorted, so a look-up is a binary search. Every mapping made by cuMemMap
 * lies inside one reservation.
 */
#include <stdlib.h>
#include <string.h>
#include "simulator/host.h"

hdi_host_set hdi_host_mappings, hdi_host_reservations;

size_t hdi_host_set_seek(const hdi_host_set *set, uintptr_t address)
{
    size_t low = 0, high = set->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const hdi_host_span *s = set->spans[middle];
        if (s->start + s->bytes <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

void *hdi_host_set_find(const hdi_host_set *set, uintptr_t address)
{
    size_t i = hdi_host_set_seek(set, address);
    return i < set->count && set->spans[i]->start <= address ? set->spans[i] : NULL;
}

bool hdi_host_set_overlaps(const hdi_host_set *set, uintptr_t address, size_t bytes)
{
    size_t i = hdi_host_set_seek(set, address);
    return i < set->count && set->spans[i]->start < address + bytes;
}

bool hdi_host_set_insert(hdi_host_set *set, hdi_host_span *span)
{
    if (set->count == set->capacity) {
        size_t capacity = set->capacity ? set->capacity * 2 : 64;
        hdi_host_span **grown = realloc(set->spans, capacity * sizeof *grown);
        if (!grown) {
            return false;
        }
        set->spans = grown;
        set->capacity = capacity;
    }
    size_t i = hdi_host_set_seek(set, span->start);
    memmove(&set->spans[i + 1], &set->spans[i], (set->count - i) * sizeof *set->spans);
    set->spans[i] = span;
    set->count++;
    return true;
}

void hdi_host_set_remove(hdi_host_set *set, hdi_host_span *span)
{
    size_t i = hdi_host_set_seek(set, span->start);
    if (i < set->count && set->spans[i] == span) {
        set->count--;
        memmove(&set->spans[i], &set->spans[i + 1], (set->count - i) * sizeof *set->spans);
    }
}

/* The devices that may access the mapping, as bits. Of the peers of memory from cuMemAlloc, only `device` is considered. */
static uint64_t access_of(const hdi_host_mapping *m, int device)
{
    if (m->kind == HDI_HOST_VIRTUAL) {
        return m->access;
    }
    if (m->kind == HDI_HOST_ALLOCATED) {
        uint64_t owner = (uint64_t)1 << m->device;
        const hdi_host_context *c = device >= 0 ? hdi_host.devices[device].context : NULL;
        return c && (c->peers & owner) ? owner | (uint64_t)1 << device : owner;
    }
    if (m->kind == HDI_HOST_POOLED) {
        return (uint64_t)1 << m->device;
    }
    return UINT64_MAX;
}

bool hdi_host_may_access(const hdi_host_mapping *m, int device)
{
    return (access_of(m, device) >> device & 1) != 0;
}

int hdi_host_owner_of(uintptr_t address)
{
    const hdi_host_mapping *m = hdi_host_set_find(&hdi_host_mappings, address);
    return m ? m->device : -1;
}

hdi_host_reach hdi_host_reach_of(int device, uintptr_t address, size_t bytes)
{
    size_t i = hdi_host_set_seek(&hdi_host_mappings, address);
    if (i == hdi_host_mappings.count || hdi_host_mappings.spans[i]->start > address) {
        return hdi_host_set_find(&hdi_host_reservations, address) ? HDI_HOST_UNMAPPED : HDI_HOST_UNKNOWN;
    }
    hdi_host_reach reach = HDI_HOST_REACHABLE;
    uintptr_t at = address;
    if (bytes > UINTPTR_MAX - address) {
        return HDI_HOST_UNMAPPED;
    }
    do {
        if (i == hdi_host_mappings.count || hdi_host_mappings.spans[i]->start > at) {
            return HDI_HOST_UNMAPPED;
        }
        const hdi_host_mapping *m = (const hdi_host_mapping *)(const void *)hdi_host_mappings.spans[i++];
        uint64_t access = access_of(m, device);
        if (access == 0) {
            return HDI_HOST_UNMAPPED;
        }
        if (device >= 0 && !(access >> device & 1)) {
            reach = HDI_HOST_UNREACHABLE;
        }
        at = m->span.start + m->span.bytes;
    } while (at < address + bytes);
    return reach;
}
