/* mappings.c - which part of a device's range is mapped.
 *
 * Threads, locks, blocking, and what always holds: see mappings.h.
 */
#include "memory/mappings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

bool hdi_mappings_init(hdi_mappings *p, const hdi_mappings_config *config, size_t granule, size_t count)
{
    *p = (hdi_mappings){.config = *config, .granule = granule, .count = count};
    p->of = count < UINT32_MAX ? calloc(count + 1, sizeof *p->of) : NULL;
    return p->of != NULL;
}

void hdi_mappings_release(hdi_mappings *p)
{
    free(p->of);
    p->of = NULL;
}

void hdi_mappings_forget(hdi_mappings *p, uint64_t base)
{
    if (p->end != 0) {
        memset(p->of, 0, p->end * sizeof *p->of);
    }
    p->unmapped_total += p->mapped;
    p->mapped = 0;
    p->end = 0;
    p->granted = 0;
    p->base = base;
}

size_t hdi_mappings_missing(const hdi_mappings *p, size_t from, size_t to)
{
    size_t missing = 0;
    for (size_t g = from / p->granule; g * p->granule < to; g++) {
        missing += p->of[g].first == 0;
    }
    return missing * p->granule;
}

/* ---- one mapping -------------------------------------------------------------------------------------------------- */

static uint64_t bit_of(int device)
{
    return (uint64_t)1 << device;
}

static hdi_answer share(const hdi_mappings *p, int device, size_t first, size_t count)
{
    const hdi_mappings_config *c = &p->config;
    uint64_t at = p->base + first * p->granule, bytes = count * p->granule;
    return c->share != NULL ? c->share(c->share_context, device, at, bytes)
                            : c->port->calls->grant(c->port, device, at, bytes);
}

/* Takes a mapping back from all peers in `shared`, and unmaps it. */
static hdi_answer take_back(hdi_mappings *p, uint64_t shared, size_t first, size_t count)
{
    const hdi_mappings_config *c = &p->config;
    uint64_t at = p->base + first * p->granule, bytes = count * p->granule;
    for (; c->unshare != NULL && shared != 0; shared &= shared - 1) {
        c->unshare(c->share_context, __builtin_ctzll(shared), at, bytes);
    }
    p->calls++;
    hdi_answer answer = c->port->calls->unmap(c->port, at, bytes);
    p->mapped -= bytes;
    return answer;
}

static hdi_trouble map_mapping(hdi_mappings *p, size_t first, size_t count)
{
    hdi_port *port = p->config.port;
    size_t bytes = count * p->granule;
    hdi_trouble t = {.peer = -1};
    p->mapped += bytes;
    p->calls++;
    t.answer = port->calls->map(port, p->base + first * p->granule, bytes);
    if (hdi_is_trouble(t)) {
        p->mapped -= bytes;
        return t;
    }
    uint64_t shared = 0;
    for (uint64_t left = p->granted; left != 0; left &= left - 1) {
        int device = __builtin_ctzll(left);
        t.answer = share(p, device, first, count);
        if (hdi_is_trouble(t)) {
            t.peer = device;
            take_back(p, shared, first, count);
            return t;
        }
        shared |= bit_of(device);
    }
    for (size_t g = first; g < first + count; g++) {
        p->of[g].first = (uint32_t)first + 1;
    }
    p->of[first].count = (uint32_t)count;
    p->of[first].shared = shared;
    p->end = p->end > first + count ? p->end : first + count;
    p->peak = p->peak > p->mapped ? p->peak : p->mapped;
    p->mapped_total += bytes;
    return t;
}

/* ---- areas ------------------------------------------------------------------------------------------------------ */

/* Most granules for a mapping where so many bytes are missing and memory moves.
 * A mapping that is partly used cannot move. So the larger mappings are, the more memory cannot. The bound is a 256th
 * of the most that was needed, while at most a hundredth more than that is mapped. It falls from there, to nothing
 * where a twentieth more is mapped. */
static size_t movable_mapping(const hdi_mappings *p, size_t missing)
{
    size_t mapped = p->mapped + missing, few = p->needed / 100, many = p->needed / 20;
    size_t excess = mapped > p->needed ? mapped - p->needed : 0;
    double part = excess <= few ? 1 : excess >= many ? 0 : (double)(many - excess) / (double)(many - few);
    return (size_t)(part * (double)(p->needed / 256)) / p->granule * p->granule;
}

/* Granules per mapping where so many bytes are missing.
 * A mapping costs a request whatever its size. So at first a mapping is a thirty-second of what is missing. Only whole
 * mappings can move, and each hole between a program's blocks has parts of two that cannot.
 * So once anything was unmapped, a mapping is an eighth of what is missing, with two more bounds. One is
 * movable_mapping. The other is a 512th of the limit: near the limit, the memory that is lacking may be in parts of
 * mappings. */
static size_t mapping_granules(const hdi_mappings *p, size_t missing)
{
    size_t bytes = missing / 32;
    if (p->unmapped_total != 0) {
        bytes = smaller(smaller(missing / 8, p->config.limit / 512), movable_mapping(p, missing));
    }
    bytes = smaller(bytes, HDI_MAPPING_MOST);
    return bytes != 0 ? (bytes - 1) / p->granule + 1 : 1;
}

hdi_trouble hdi_mappings_map(hdi_mappings *p, size_t from, size_t to, size_t least, size_t *mapped_to)
{
    size_t most = larger(mapping_granules(p, hdi_mappings_missing(p, from, to)), least / p->granule);
    size_t end = to / p->granule;
    hdi_trouble t = {.peer = -1};
    for (size_t g = from / p->granule; g < end;) {
        size_t count = 0;
        while (g + count < end && count < most && p->of[g + count].first == 0) {
            count++;
        }
        if (count != 0) {
            t = map_mapping(p, g, count);
            if (hdi_is_trouble(t)) {
                *mapped_to = g * p->granule;
                return t;
            }
        }
        g += count != 0 ? count : 1;
    }
    *mapped_to = to;
    return t;
}

bool hdi_mappings_within(const hdi_mappings *p, size_t *from, size_t *to)
{
    size_t g = (*from + p->granule - 1) / p->granule, end = *to / p->granule;
    if (g >= end) {
        return false;
    }
    /* Leaves out a mapping that begins before the area, and one that ends behind it. */
    size_t first = p->of[g].first - 1, last = p->of[end - 1].first - 1;
    g = first < g ? first + p->of[first].count : g;
    end = last + p->of[last].count > end ? last : end;
    if (g >= end) {
        return false;
    }
    *from = g * p->granule;
    *to = end * p->granule;
    return true;
}

size_t hdi_mappings_last(const hdi_mappings *p, size_t to)
{
    return (p->of[to / p->granule - 1].first - 1) * p->granule;
}

hdi_answer hdi_mappings_unmap(hdi_mappings *p, size_t from, size_t to, size_t *gone_to)
{
    hdi_answer answer = {HDCU_SUCCESS, ""};
    size_t g = from / p->granule;
    while (g < to / p->granule && hdi_answered(answer)) {
        size_t count = p->of[g].count;
        answer = take_back(p, p->of[g].shared, g, count);
        memset(&p->of[g], 0, count * sizeof *p->of);
        p->unmapped_total += count * p->granule;
        g += count;
    }
    while (p->end > 0 && p->of[p->end - 1].first == 0) {
        p->end--;
    }
    *gone_to = g * p->granule;
    return answer;
}

/* ---- peers ------------------------------------------------------------------------------------------------------ */

/* The first granule of the first mapping from `g` on; p->end: there is none. */
static size_t next_mapping(const hdi_mappings *p, size_t g)
{
    while (g < p->end && p->of[g].first == 0) {
        g++;
    }
    return g;
}

hdi_answer hdi_mappings_grant(hdi_mappings *p, int device)
{
    hdi_answer answer = {HDCU_SUCCESS, ""};
    for (size_t g = next_mapping(p, 0); g < p->end; g = next_mapping(p, g + p->of[g].count)) {
        if ((p->of[g].shared & bit_of(device)) == 0) {
            answer = share(p, device, g, p->of[g].count);
            if (!hdi_answered(answer)) {
                return answer;
            }
            p->of[g].shared |= bit_of(device);
        }
    }
    p->granted |= bit_of(device);
    return answer;
}

void hdi_mappings_revoke(hdi_mappings *p, int device)
{
    for (size_t g = next_mapping(p, 0); g < p->end; g = next_mapping(p, g + p->of[g].count)) {
        p->of[g].shared &= ~bit_of(device);
    }
    p->granted &= ~bit_of(device);
}

bool hdi_mappings_check(const hdi_mappings *p, char *why, size_t why_bytes)
{
    size_t mapped = 0;
    for (size_t g = 0; g < p->count;) {
        const hdi_mapping *mapping = &p->of[g];
        if (mapping->first == 0) {
            g++;
            continue;
        }
        if (mapping->first != g + 1 || mapping->count == 0 || g + mapping->count > p->end) {
            snprintf(why, why_bytes, "granule %zu: in a mapping that does not begin there", g);
            return false;
        }
        if ((mapping->shared & p->granted) != p->granted) {
            snprintf(why, why_bytes, "mapping at granule %zu: a granted peer has not been given it", g);
            return false;
        }
        for (size_t i = 1; i < mapping->count; i++) {
            if (p->of[g + i].first != mapping->first) {
                snprintf(why, why_bytes, "granule %zu: not in the mapping that it lies in", g + i);
                return false;
            }
        }
        mapped += mapping->count * p->granule;
        g += mapping->count;
    }
    if (mapped != p->mapped || p->mapped_total - p->unmapped_total != p->mapped) {
        snprintf(why, why_bytes, "mappings of %zu bytes, %zu counted, %llu mapped less unmapped", mapped, p->mapped,
                 (unsigned long long)(p->mapped_total - p->unmapped_total));
        return false;
    }
    return true;
}
