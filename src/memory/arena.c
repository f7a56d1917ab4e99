/* arena.c - one device's memory: the address range, the physical memory mapped into it, and growth.
 *
 * Threads, locks: see arena.h. Fields of hdi_arena say which lock covers them.
 * Always: while `growing` is free, chunks cover [base, base + mapped) in order, one mapping of one physical allocation
 * each, and `blocks` manages exactly these bytes. A growth that fails is undone; where even that fails, what is left
 * over is remembered, and nothing more is mapped before it is cleared.
 */
#include "memory/arena.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "driver/current.h"

#define GRANULE_LEAST ((size_t)2 << 20)
#define GROWTH ((size_t)64 << 20) /* creating and mapping this much costs 0.2 ms, not much more than one granule does */

/* One physical allocation, mapped or, for a moment or as a left-over, not. */
typedef struct chunk {
    hdcu_deviceptr at;
    size_t bytes;
    hdcu_memhandle handle;
    bool created, mapped;
} chunk;

struct hdi_arena {
    hdi_arena_config config; /* constant, like the next four */
    hdcu_deviceptr base;
    size_t granule, reserved, limit;
    hdcu_mem_prop prop;

    pthread_mutex_t growing;
    chunk *chunks; /* under growing, like all up to blocks_lock */
    size_t n_chunks, chunks_room;
    size_t mapped;
    chunk leftover;               /* of a growth that could not be undone; created or mapped: there is one */
    hdcu_mem_access_desc *access; /* the owner, then the peers */
    size_t n_access;

    pthread_mutex_t blocks_lock;
    hdi_blocks *blocks; /* under blocks_lock */
};

/* A driver call that failed: which, with what. */
typedef struct trouble {
    hdcu_result code;
    const char *entry_point;
} trouble;

static const trouble no_trouble = {HDCU_SUCCESS, ""};

static trouble at_call(hdcu_result code, const char *entry_point)
{
    return (trouble){code, entry_point};
}

static hd_status status_of(hdcu_result code)
{
    if (code == HDCU_ERROR_OUT_OF_MEMORY) {
        return HD_ERROR_MEMORY;
    }
    return hdi_driver_code_is_fatal(code) ? HD_ERROR_DEVICE_LOST : HD_ERROR_DRIVER;
}

static trouble enter(const hdi_arena *arena, hdi_current *current)
{
    trouble t = no_trouble;
    t.code = hdi_current_enter(arena->config.driver, arena->config.context, current, &t.entry_point);
    return t;
}

static size_t round_down(size_t bytes, size_t unit)
{
    return bytes - bytes % unit;
}

/* Rounds up, but stops at the largest multiple that a size_t can hold: no range is that large, so the request fails
 * as too large instead of wrapping around. */
static size_t round_up(size_t bytes, size_t unit)
{
    size_t over = bytes % unit;
    if (over == 0) {
        return bytes;
    }
    return bytes > SIZE_MAX - (unit - over) ? round_down(SIZE_MAX, unit) : bytes + (unit - over);
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* ---- physical memory: `growing` is held and the context is current ---------------------------------------------- */

/* Unmaps and releases as far as the driver lets us; what is left is left in the chunk's flags. */
static trouble chunk_clear(const hdi_arena *arena, chunk *c)
{
    const hdi_driver *driver = arena->config.driver;
    trouble first = no_trouble;
    if (c->mapped) {
        hdcu_result code = driver->cuMemUnmap(c->at, c->bytes);
        if (code != HDCU_SUCCESS) {
            first = at_call(code, "cuMemUnmap");
        }
        c->mapped = code != HDCU_SUCCESS;
    }
    if (c->created) {
        /* also where unmapping failed: the mapping keeps the memory until it ends itself */
        hdcu_result code = driver->cuMemRelease(c->handle);
        if (code != HDCU_SUCCESS && first.code == HDCU_SUCCESS) {
            first = at_call(code, "cuMemRelease");
        }
        c->created = code != HDCU_SUCCESS;
    }
    return first;
}

static bool has_leftover(const hdi_arena *arena)
{
    return arena->leftover.created || arena->leftover.mapped;
}

/* Physical memory mapped at the end of what is mapped, with access for all. Undone on failure. */
static trouble chunk_make(hdi_arena *arena, size_t bytes, chunk *out)
{
    const hdi_driver *driver = arena->config.driver;
    chunk c = {.at = arena->base + arena->mapped, .bytes = bytes};
    trouble t = at_call(driver->cuMemCreate(&c.handle, bytes, &arena->prop, 0), "cuMemCreate");
    if (t.code != HDCU_SUCCESS) {
        return t;
    }
    c.created = true;
    t = at_call(driver->cuMemMap(c.at, bytes, 0, c.handle, 0), "cuMemMap");
    if (t.code == HDCU_SUCCESS) {
        c.mapped = true;
        t = at_call(driver->cuMemSetAccess(c.at, bytes, arena->access, arena->n_access), "cuMemSetAccess");
    }
    if (t.code != HDCU_SUCCESS) {
        if (chunk_clear(arena, &c).code != HDCU_SUCCESS) {
            arena->leftover = c;
        }
        return t;
    }
    *out = c;
    return no_trouble;
}

static hd_status chunks_reserve(hdi_arena *arena)
{
    if (arena->n_chunks < arena->chunks_room) {
        return HD_OK;
    }
    size_t room = arena->chunks_room == 0 ? 16 : arena->chunks_room * 2;
    chunk *chunks = realloc(arena->chunks, room * sizeof *chunks);
    if (chunks == NULL) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "alloc: no host memory to note what is mapped on device %d",
                        arena->config.index);
    }
    arena->chunks = chunks;
    arena->chunks_room = room;
    return HD_OK;
}

/* ---- making and unmaking an arena ------------------------------------------------------------------------------- */

static hd_status fail_create(const hdi_arena *arena, trouble t)
{
    return hdi_fail_driver(status_of(t.code), t.code, t.entry_point, arena->config.index,
                           "hd_open: the memory of device %d cannot be set up", arena->config.index);
}

/* Asks the driver for what the rest depends on. */
static trouble facts(hdi_arena *arena, size_t *total, bool *supported)
{
    const hdi_driver *driver = arena->config.driver;
    hdcu_device device = arena->config.device;
    int value = 0;
    hdcu_result code =
        driver->cuDeviceGetAttribute(&value, HDCU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device);
    if (code != HDCU_SUCCESS) {
        return at_call(code, "cuDeviceGetAttribute");
    }
    *supported = value != 0;
    if (!*supported) {
        return no_trouble;
    }
    code =
        driver->cuDeviceGetAttribute(&value, HDCU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device);
    if (code != HDCU_SUCCESS) {
        return at_call(code, "cuDeviceGetAttribute");
    }
    arena->prop.type = HDCU_MEM_ALLOCATION_TYPE_PINNED;
    arena->prop.location.type = HDCU_MEM_LOCATION_TYPE_DEVICE;
    arena->prop.location.id = device;
    arena->prop.requested_handle_types =
        value != 0 ? HDCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : HDCU_MEM_HANDLE_TYPE_NONE;

    code = driver->cuDeviceTotalMem(total, device);
    if (code != HDCU_SUCCESS) {
        return at_call(code, "cuDeviceTotalMem");
    }
    size_t granule = 0;
    code = driver->cuMemGetAllocationGranularity(&granule, &arena->prop, HDCU_MEM_GRANULARITY_MINIMUM);
    arena->granule = larger(granule, GRANULE_LEAST);
    return at_call(code, "cuMemGetAllocationGranularity");
}

static hd_status reserve(hdi_arena *arena)
{
    size_t total = 0;
    bool supported = false;
    hdi_current current;
    trouble t = enter(arena, &current);
    if (t.code != HDCU_SUCCESS) {
        return fail_create(arena, t);
    }
    t = facts(arena, &total, &supported);
    if (t.code == HDCU_SUCCESS && supported) {
        arena->reserved = round_up(total, arena->granule);
        t = at_call(arena->config.driver->cuMemAddressReserve(&arena->base, arena->reserved, arena->granule, 0, 0),
                    "cuMemAddressReserve");
    }
    hdi_current_leave(&current);
    if (t.code != HDCU_SUCCESS) {
        arena->base = 0;
        return fail_create(arena, t);
    }
    if (!supported) {
        return hdi_fail(HD_ERROR_UNSUPPORTED, "hd_open: device %d has no virtual memory management, which Heddle needs",
                        arena->config.index);
    }
    arena->limit = arena->reserved;
    if (arena->config.limit_bytes != 0) {
        arena->limit = smaller(arena->limit, round_down(arena->config.limit_bytes, arena->granule));
    }
    return HD_OK;
}

static hd_status prepare(hdi_arena *arena)
{
    arena->access = malloc(sizeof *arena->access);
    if (arena->access == NULL) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "hd_open: no host memory for the arena of device %d",
                        arena->config.index);
    }
    arena->access[0] =
        (hdcu_mem_access_desc){{HDCU_MEM_LOCATION_TYPE_DEVICE, arena->config.device}, HDCU_MEM_ACCESS_READWRITE};
    arena->n_access = 1;
    hd_status status = reserve(arena);
    if (status != HD_OK) {
        return status;
    }
    hdi_blocks_config config = {.limit = arena->reserved,
                                .finished = arena->config.finished,
                                .finished_context = arena->config.finished_context};
    return hdi_blocks_create(&config, &arena->blocks);
}

hd_status hdi_arena_create(const hdi_arena_config *config, hdi_arena **out)
{
    hdi_arena *arena = calloc(1, sizeof *arena);
    if (arena == NULL) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "hd_open: no host memory for the arena of device %d", config->index);
    }
    arena->config = *config;
    pthread_mutex_init(&arena->growing, NULL);
    pthread_mutex_init(&arena->blocks_lock, NULL);
    hd_status status = prepare(arena);
    if (status != HD_OK) {
        hd_error saved;
        hdi_error_save(&saved);
        hdi_arena_destroy(arena, false);
        hdi_error_restore(&saved);
        return status;
    }
    *out = arena;
    return HD_OK;
}

/* Everything the driver holds for the arena; returns the first failure. */
static trouble give_all_back(hdi_arena *arena)
{
    hdi_current current;
    trouble first = enter(arena, &current);
    bool entered = first.code == HDCU_SUCCESS;
    /* Without the context the calls are made all the same: they name addresses and handles, which belong to the
     * process. */
    while (arena->n_chunks > 0) {
        trouble t = chunk_clear(arena, &arena->chunks[--arena->n_chunks]);
        first = first.code == HDCU_SUCCESS ? t : first;
    }
    trouble t = chunk_clear(arena, &arena->leftover);
    first = first.code == HDCU_SUCCESS ? t : first;
    t = at_call(arena->config.driver->cuMemAddressFree(arena->base, arena->reserved), "cuMemAddressFree");
    first = first.code == HDCU_SUCCESS ? t : first;
    if (entered) {
        hdi_current_leave(&current);
    }
    return first;
}

hd_status hdi_arena_destroy(hdi_arena *arena, bool abandoned)
{
    if (arena == NULL) {
        return HD_OK;
    }
    hd_status status = HD_OK;
    if (arena->base != 0 && !abandoned) {
        trouble t = give_all_back(arena);
        if (t.code != HDCU_SUCCESS) {
            status = hdi_driver_code_is_fatal(t.code) ? HD_ERROR_DEVICE_LOST : HD_ERROR_DRIVER;
            hdi_fail_driver(status, t.code, t.entry_point, arena->config.index,
                            "hd_close: some memory of device %d could not be given back", arena->config.index);
        }
    }
    hdi_blocks_destroy(arena->blocks);
    free(arena->chunks);
    free(arena->access);
    pthread_mutex_destroy(&arena->blocks_lock);
    pthread_mutex_destroy(&arena->growing);
    free(arena);
    return status;
}

/* ---- memory for owners ------------------------------------------------------------------------------------------ */

/* The one failure of an allocation for want of device memory. `t`: what the driver said, or no trouble when it was
 * not asked. */
static hd_status fail_full(hdi_arena *arena, size_t bytes, trouble t)
{
    hdi_blocks_info info;
    pthread_mutex_lock(&arena->blocks_lock);
    hdi_blocks_get_info(arena->blocks, &info);
    pthread_mutex_unlock(&arena->blocks_lock);

    hd_status status = t.code == HDCU_SUCCESS ? HD_ERROR_MEMORY : status_of(t.code);
    hd_error error = hdi_error_blank(status);
    snprintf(error.message, sizeof error.message,
             "alloc: %zu bytes on device %d: mapped %zu of at most %zu, live %zu, largest free block %zu%s", bytes,
             arena->config.index, arena->mapped, arena->limit, info.live_bytes, info.largest_free,
             t.code == HDCU_SUCCESS ? "; free something, or raise the limit if there is one" : "");
    if (t.code != HDCU_SUCCESS) {
        return hdi_fail_driver(status, t.code, t.entry_point, arena->config.index, "%s", error.message);
    }
    error.device = arena->config.index;
    snprintf(error.operation, sizeof error.operation, "alloc");
    return hdi_fail_error(&error);
}

static hd_status alloc_mapped(hdi_arena *arena, uint32_t lane, size_t bytes, size_t *offset, hdi_marks *inherited)
{
    pthread_mutex_lock(&arena->blocks_lock);
    hd_status status = hdi_blocks_alloc(arena->blocks, bytes, lane, offset, inherited);
    pthread_mutex_unlock(&arena->blocks_lock);
    return status;
}

/* Maps `bytes` more, gives them to the blocks and takes one from them in the same step, so that no other thread can
 * have it in between. NOT_FOUND: the arena grew, but the free block that it would have extended was taken
 * meanwhile. Driver failures are told in `t` instead of the status. */
static hd_status extend(hdi_arena *arena, size_t more, uint32_t lane, size_t bytes, size_t *offset,
                        hdi_marks *inherited, trouble *t)
{
    hd_status status = chunks_reserve(arena);
    if (status != HD_OK) {
        return status;
    }
    chunk c;
    *t = chunk_make(arena, more, &c);
    if (t->code != HDCU_SUCCESS) {
        return HD_OK;
    }
    pthread_mutex_lock(&arena->blocks_lock);
    status = hdi_blocks_grow(arena->blocks, more);
    bool grown = status == HD_OK;
    if (grown) {
        status = hdi_blocks_alloc(arena->blocks, bytes, lane, offset, inherited);
    }
    pthread_mutex_unlock(&arena->blocks_lock);
    if (grown) {
        arena->chunks[arena->n_chunks++] = c;
        arena->mapped += more;
    } else if (chunk_clear(arena, &c).code != HDCU_SUCCESS) {
        arena->leftover = c;
    }
    return status;
}

/* Allocates by growing; `growing` is held and the context is current. */
static hd_status grow_and_alloc(hdi_arena *arena, uint32_t lane, size_t bytes, size_t *offset, hdi_marks *inherited)
{
    if (has_leftover(arena)) {
        trouble t = chunk_clear(arena, &arena->leftover);
        if (t.code != HDCU_SUCCESS) {
            return fail_full(arena, bytes, t);
        }
    }
    bool modest = false; /* the driver could not give more than is needed */
    for (;;) {
        pthread_mutex_lock(&arena->blocks_lock);
        /* again: while this thread waited for `growing`, another one may have grown the arena, or freed something */
        hd_status status = hdi_blocks_alloc(arena->blocks, bytes, lane, offset, inherited);
        size_t tail = hdi_blocks_tail(arena->blocks);
        pthread_mutex_unlock(&arena->blocks_lock);
        if (status != HD_ERROR_NOT_FOUND) {
            return status;
        }
        /* bytes > tail, else the block at the end would have been taken */
        size_t need = round_up(bytes - tail, arena->granule);
        size_t room = arena->limit - arena->mapped;
        if (need > room) {
            return fail_full(arena, bytes, no_trouble);
        }
        size_t more = modest ? need : smaller(room, larger(need, GROWTH));
        trouble t = no_trouble;
        status = extend(arena, more, lane, bytes, offset, inherited, &t);
        if (t.code == HDCU_SUCCESS) {
            if (status != HD_ERROR_NOT_FOUND) {
                return status;
            }
        } else if (t.code != HDCU_ERROR_OUT_OF_MEMORY || more == need || has_leftover(arena)) {
            /* the last chance: something may have been freed while the driver was asked */
            status = t.code == HDCU_ERROR_OUT_OF_MEMORY ? alloc_mapped(arena, lane, bytes, offset, inherited)
                                                        : HD_ERROR_NOT_FOUND;
            return status == HD_ERROR_NOT_FOUND ? fail_full(arena, bytes, t) : status;
        } else {
            modest = true;
        }
    }
}

static hd_status alloc_growing(hdi_arena *arena, uint32_t lane, size_t bytes, size_t *offset, hdi_marks *inherited)
{
    pthread_mutex_lock(&arena->growing);
    hdi_current current;
    trouble t = enter(arena, &current);
    hd_status status;
    if (t.code != HDCU_SUCCESS) {
        status = fail_full(arena, bytes, t);
    } else {
        status = grow_and_alloc(arena, lane, bytes, offset, inherited);
        hdi_current_leave(&current);
    }
    pthread_mutex_unlock(&arena->growing);
    return status;
}

hd_status hdi_arena_alloc(hdi_arena *arena, uint32_t lane, size_t bytes, hdcu_deviceptr *out, hdi_marks *inherited)
{
    size_t offset;
    hd_status status = alloc_mapped(arena, lane, bytes, &offset, inherited);
    if (status == HD_ERROR_NOT_FOUND) {
        status = alloc_growing(arena, lane, bytes, &offset, inherited);
    }
    if (status == HD_OK) {
        *out = arena->base + offset;
    }
    return status;
}

void hdi_arena_free(hdi_arena *arena, hdcu_deviceptr pointer, const hdi_mark *marks, size_t n_marks)
{
    if (pointer < arena->base || pointer - arena->base >= arena->reserved) {
        return;
    }
    pthread_mutex_lock(&arena->blocks_lock);
    hdi_blocks_free(arena->blocks, (size_t)(pointer - arena->base), marks, n_marks);
    pthread_mutex_unlock(&arena->blocks_lock);
}

/* ---- peers ------------------------------------------------------------------------------------------------------ */

/* Sets a peer's access on the first `count` chunks; `done` counts those that succeeded. */
static trouble set_access(const hdi_arena *arena, size_t count, hdcu_mem_access_desc desc, size_t *done)
{
    for (*done = 0; *done < count; ++*done) {
        const chunk *c = &arena->chunks[*done];
        hdcu_result code = arena->config.driver->cuMemSetAccess(c->at, c->bytes, &desc, 1);
        if (code != HDCU_SUCCESS) {
            return at_call(code, "cuMemSetAccess");
        }
    }
    return no_trouble;
}

static hd_status grant(hdi_arena *arena, hdcu_device peer)
{
    for (size_t i = 0; i < arena->n_access; i++) {
        if (arena->access[i].location.id == peer) {
            return HD_OK;
        }
    }
    hdcu_mem_access_desc *access = realloc(arena->access, (arena->n_access + 1) * sizeof *access);
    if (access == NULL) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "peers: no host memory to note a peer of device %d", arena->config.index);
    }
    arena->access = access;

    hdcu_mem_access_desc desc = {{HDCU_MEM_LOCATION_TYPE_DEVICE, peer}, HDCU_MEM_ACCESS_READWRITE};
    hdi_current current;
    trouble t = enter(arena, &current);
    if (t.code == HDCU_SUCCESS) {
        size_t done;
        t = set_access(arena, arena->n_chunks, desc, &done);
        if (t.code != HDCU_SUCCESS) {
            size_t undone;
            desc.flags = HDCU_MEM_ACCESS_NONE;
            set_access(arena, done, desc, &undone);
        }
        hdi_current_leave(&current);
    }
    if (t.code != HDCU_SUCCESS) {
        return hdi_fail_driver(status_of(t.code), t.code, t.entry_point, arena->config.index,
                               "peers: the memory of device %d cannot be made accessible to driver device %d",
                               arena->config.index, peer);
    }
    arena->access[arena->n_access++] = desc;
    return HD_OK;
}

hd_status hdi_arena_grant(hdi_arena *arena, hdcu_device peer)
{
    pthread_mutex_lock(&arena->growing);
    hd_status status = grant(arena, peer);
    pthread_mutex_unlock(&arena->growing);
    return status;
}

/* ---- figures ---------------------------------------------------------------------------------------------------- */

void hdi_arena_get_info(hdi_arena *arena, hdi_arena_info *out)
{
    out->granule = arena->granule;
    out->reserved_bytes = arena->reserved;
    out->limit_bytes = arena->limit;
    pthread_mutex_lock(&arena->growing);
    out->mapped_bytes = arena->mapped;
    pthread_mutex_lock(&arena->blocks_lock);
    hdi_blocks_get_info(arena->blocks, &out->blocks);
    pthread_mutex_unlock(&arena->blocks_lock);
    pthread_mutex_unlock(&arena->growing);
}

bool hdi_arena_check(hdi_arena *arena, char *why, size_t why_bytes)
{
    pthread_mutex_lock(&arena->growing);
    pthread_mutex_lock(&arena->blocks_lock);
    bool good = hdi_blocks_check(arena->blocks, why, why_bytes);
    hdi_blocks_info info;
    hdi_blocks_get_info(arena->blocks, &info);
    size_t at = 0;
    for (size_t i = 0; good && i < arena->n_chunks; i++) {
        good = arena->chunks[i].at == arena->base + at && arena->chunks[i].created && arena->chunks[i].mapped;
        at += arena->chunks[i].bytes;
    }
    if (good && (at != arena->mapped || info.managed_bytes != arena->mapped || arena->mapped > arena->limit)) {
        good = false;
    }
    if (!good && why_bytes > 0 && why[0] == '\0') {
        snprintf(why, why_bytes, "chunks: %zu bytes, mapped %zu, managed %zu", at, arena->mapped, info.managed_bytes);
    }
    pthread_mutex_unlock(&arena->blocks_lock);
    pthread_mutex_unlock(&arena->growing);
    return good;
}
