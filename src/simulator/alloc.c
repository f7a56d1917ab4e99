/* alloc.c - memory at addresses that the driver chooses: cuMemAlloc, pinned host memory, and each
 * device's default pool.
 *
 * All such memory consists of blocks of fresh pages. A pool consists of segments. A segment
 * consists of 2 MiB that are cut into slots of one size, or of one large slot. The stream that
 * freed a slot may reuse it at once. Another stream may reuse the slot once the first stream is
 * past the free. When the program waits for a stream, an event or a context, the pool gives back
 * memory beyond its threshold.
 * Threads: any. Locks: the host lock.
 * Blocking: cuMemFree waits for the work of the context; cuMemFreeHost and cuMemHostUnregister wait
 * for the work of all contexts. NVIDIA's driver also waits in these calls. So queued work never
 * uses memory that is gone.
 * cuMemAllocAsync waits for the work of the context if memory is short and frees are queued.
 * Always: device memory counts towards its device in whole pages. An inaccessible page lies behind
 * every block that this file makes. A free slot is in the list of its size class. A segment is
 * released only when all its slots are free and the streams are past these frees, or when its
 * context ends. The pool's counters are the sums over segments and live slots.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "simulator/host.h"

/* ---- blocks ---- */

static size_t host_page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static void host_block_release(hdi_host_mapping *m)
{
    if (m->device >= 0) {
        hdi_host.devices[m->device].used -= m->span.bytes;
    }
    hdi_host_set_remove(&hdi_host_mappings, &m->span);
    hdi_host_discard(&m->garbage);
}

/* Makes a block of fresh pages, and counts its bytes for its device. Its size is rounded up to
 * whole pages.
 * Errors: INVALID_VALUE (no bytes), OUT_OF_MEMORY. */
static hdcu_result host_block_make(hdi_host_context *context, hdi_host_memory_kind kind, size_t bytes,
                                   hdi_host_mapping **out)
{
    size_t page = host_page_bytes();
    bool of_device = kind == HDI_HOST_ALLOCATED || kind == HDI_HOST_POOLED;
    if (bytes == 0) {
        return HDCU_ERROR_INVALID_VALUE;
    }
    if (bytes > SIZE_MAX / 2) {
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    bytes = (bytes + page - 1) & ~(page - 1);
    if (of_device && bytes > hdi_host.memory - hdi_host.devices[context->device].used) {
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    hdi_host_mapping *m = calloc(1, sizeof *m);
    if (!m) {
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    char *base = mmap(NULL, bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        free(m);
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    mprotect(base + bytes, page, PROT_NONE);
    m->span = (hdi_host_span){(uintptr_t)base, bytes};
    m->garbage = (hdi_host_garbage){.map = base, .map_bytes = bytes + page, .descriptor = -1, .self = m};
    m->kind = kind;
    m->device = of_device ? context->device : -1;
    m->context = context;
    if (!hdi_host_set_insert(&hdi_host_mappings, &m->span)) {
        hdi_host_discard(&m->garbage);
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    if (of_device) {
        hdi_host.devices[context->device].used += bytes;
    }
    *out = m;
    return HDCU_SUCCESS;
}

enum {
    UNIT = 512,        /* the sizes of slots are multiples of this */
    SMALL = 256 << 10, /* each larger slot takes a segment of its own */
    /* eight classes per doubling of the size, up to sizes far beyond a device's memory */
    CLASSES = 320
};

struct hdi_host_slot {
    hdi_host_segment *segment;
    hdi_host_slot *next; /* the next one in the list of its class, when it is free */
    uint64_t stream;     /* the stream that freed the slot last */
    unsigned pending;    /* frees of this slot that are queued in streams */
    bool live;
};

struct hdi_host_segment {
    hdi_host_mapping *memory;
    hdi_host_segment *next, *previous;
    unsigned class, count, live, pending;
    bool going;
    hdi_host_slot slots[];
};

typedef struct pool {
    hdi_host_segment *segments;
    hdi_host_slot *free[CLASSES];
    uint64_t threshold, reserved, reserved_high, used, used_high;
    unsigned pending;
} pool;

static pool pools[HDI_HOST_DEVICES_MAX];

/* A pool's handle is HANDLE_BASE plus its device's number. */
#define HANDLE_BASE ((uintptr_t)0x706f6f6c << 8)

static pool *mempool_of_handle(hdcu_mempool handle)
{
    uintptr_t number = (uintptr_t)handle - HANDLE_BASE;
    return number < (uintptr_t)hdi_host.device_count ? &pools[number] : NULL;
}

static pool *mempool_of_segment(const hdi_host_segment *segment)
{
    return &pools[segment->memory->device];
}

/* ---- the pools' slots ---- */

static unsigned mempool_class_of(size_t bytes)
{
    size_t last = (bytes - 1) / UNIT;
    if (last < 8) {
        return (unsigned)last;
    }
    unsigned row = 63u - (unsigned)__builtin_clzll(last);
    return (row - 2) * 8 + (unsigned)(last >> (row - 3) & 7);
}

static size_t mempool_class_bytes(unsigned class)
{
    size_t units = class < 8 ? class + 1 : (size_t)(8 + class % 8 + 1) << (class / 8 - 1);
    return units * UNIT;
}

static uintptr_t mempool_slot_address(const hdi_host_slot *slot)
{
    const hdi_host_segment *s = slot->segment;
    return s->memory->span.start + (size_t)(slot - s->slots) * mempool_class_bytes(s->class);
}

/* Returns the live slot that contains an address, or NULL. */
static hdi_host_slot *mempool_live_slot_with(uintptr_t address)
{
    const hdi_host_mapping *m = hdi_host_set_find(&hdi_host_mappings, address);
    if (!m || m->kind != HDI_HOST_POOLED) {
        return NULL;
    }
    hdi_host_segment *s = m->segment;
    size_t number = (address - m->span.start) / mempool_class_bytes(s->class);
    return number < s->count && s->slots[number].live ? &s->slots[number] : NULL;
}

/* Returns the live slot that begins at this address, or NULL. */
static hdi_host_slot *mempool_live_slot_at(uintptr_t address)
{
    hdi_host_slot *slot = mempool_live_slot_with(address);
    return slot && mempool_slot_address(slot) == address ? slot : NULL;
}

bool hdi_host_slot_span(uintptr_t address, hdi_host_span *out)
{
    const hdi_host_slot *slot = mempool_live_slot_with(address);
    if (slot) {
        *out = (hdi_host_span){mempool_slot_address(slot), mempool_class_bytes(slot->segment->class)};
    }
    return slot != NULL;
}

/* Takes a free slot that work of this stream may use from now on. NULL: there is none. */
static hdi_host_slot *mempool_take_slot(pool *p, unsigned class, uint64_t stream)
{
    for (hdi_host_slot **link = &p->free[class]; *link; link = &(*link)->next) {
        hdi_host_slot *slot = *link;
        if (slot->pending == 0 || slot->stream == stream) {
            *link = slot->next;
            slot->live = true;
            slot->segment->live++;
            p->used += mempool_class_bytes(class);
            p->used_high = p->used > p->used_high ? p->used : p->used_high;
            return slot;
        }
    }
    return NULL;
}

static void mempool_give_slot(hdi_host_slot *slot, uint64_t stream)
{
    hdi_host_segment *s = slot->segment;
    pool *p = mempool_of_segment(s);
    slot->live = false;
    slot->stream = stream;
    slot->next = p->free[s->class];
    p->free[s->class] = slot;
    s->live--;
    p->used -= mempool_class_bytes(s->class);
}

void hdi_host_slot_passed(hdi_host_slot *slot)
{
    slot->pending--;
    slot->segment->pending--;
    mempool_of_segment(slot->segment)->pending--;
}

/* ---- the pools' segments ---- */

static hdcu_result mempool_add_segment(pool *p, hdi_host_context *context, unsigned class)
{
    size_t bytes = mempool_class_bytes(class);
    unsigned count = bytes > SMALL ? 1 : (unsigned)(HDI_HOST_GRANULE / bytes);
    hdi_host_segment *s = calloc(1, sizeof *s + count * sizeof s->slots[0]);
    if (!s) {
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    hdcu_result r = host_block_make(context, HDI_HOST_POOLED, count == 1 ? bytes : HDI_HOST_GRANULE, &s->memory);
    if (r != HDCU_SUCCESS) {
        free(s);
        return r;
    }
    s->memory->segment = s;
    s->class = class;
    s->count = count;
    for (unsigned i = count; i-- > 0;) {
        s->slots[i] = (hdi_host_slot){.segment = s, .next = p->free[class]};
        p->free[class] = &s->slots[i];
    }
    s->next = p->segments;
    if (s->next) {
        s->next->previous = s;
    }
    p->segments = s;
    p->reserved += s->memory->span.bytes;
    p->reserved_high = p->reserved > p->reserved_high ? p->reserved : p->reserved_high;
    return HDCU_SUCCESS;
}

static void mempool_remove_segment(pool *p, hdi_host_segment *s)
{
    *(s->previous ? &s->previous->next : &p->segments) = s->next;
    if (s->next) {
        s->next->previous = s->previous;
    }
    p->reserved -= s->memory->span.bytes;
    host_block_release(s->memory);
    free(s);
}

/* Gives unused segments back until at most `keep` bytes are reserved. */
static void mempool_trim(pool *p, uint64_t keep)
{
    uint64_t reserved = p->reserved;
    bool classes[CLASSES] = {false};
    for (hdi_host_segment *s = p->segments; s && reserved > keep; s = s->next) {
        s->going = s->live == 0 && s->pending == 0;
        if (s->going) {
            reserved -= s->memory->span.bytes;
            classes[s->class] = true;
        }
    }
    for (unsigned c = 0; c < CLASSES; c++) {
        for (hdi_host_slot **link = &p->free[c]; classes[c] && *link;) {
            if ((*link)->segment->going) {
                *link = (*link)->next;
            } else {
                link = &(*link)->next;
            }
        }
    }
    hdi_host_segment *next;
    for (hdi_host_segment *s = p->segments; s; s = next) {
        next = s->next;
        if (s->going) {
            mempool_remove_segment(p, s);
        }
    }
}

void hdi_host_pool_settle(const hdi_host_context *context)
{
    pool *p = &pools[context->device];
    if (p->reserved > p->threshold) {
        mempool_trim(p, p->threshold);
    }
}

/* Empties the pool and resets its settings. Call it only when no stream of the context is left. */
static void mempool_release(const hdi_host_context *context)
{
    pool *p = &pools[context->device];
    while (p->segments) {
        mempool_remove_segment(p, p->segments);
    }
    memset(p, 0, sizeof *p);
}

void hdi_host_allocated_release(hdi_host_context *context)
{
    mempool_release(context);
    for (size_t i = hdi_host_mappings.count; i-- > 0;) {
        hdi_host_mapping *m = (hdi_host_mapping *)(void *)hdi_host_mappings.spans[i];
        if (m->context == context) {
            host_block_release(m);
        }
    }
}

/* ---- memory of the pools ---- */

/* Takes a slot from the lists, or from a new segment. If a large slot would raise the pool's peak,
 * the function first gives idle segments back. The driver of a GPU would use their physical memory
 * for the slot. The function also gives idle segments back when memory runs out. */
static hdcu_result mempool_allocate(hdi_host_stream *stream, size_t bytes, hdi_host_slot **out)
{
    hdi_host_context *context = stream->context;
    pool *p = &pools[context->device];
    unsigned class = mempool_class_of(bytes);
    *out = mempool_take_slot(p, class, stream->handle);
    if (*out) {
        return HDCU_SUCCESS;
    }
    uint64_t more = mempool_class_bytes(class);
    if (more > SMALL && p->reserved + more > p->reserved_high) { /* give idle segments back first */
        mempool_trim(p, p->reserved_high > more ? p->reserved_high - more : 0);
    }
    hdcu_result r = mempool_add_segment(p, context, class);
    if (r == HDCU_ERROR_OUT_OF_MEMORY && p->reserved > 0) {
        mempool_trim(p, 0);
        r = mempool_add_segment(p, context, class);
    }
    *out = r == HDCU_SUCCESS ? mempool_take_slot(p, class, stream->handle) : NULL;
    return r;
}

/* Takes the host lock and finds the stream. Fails while the stream captures: the simulator lacks
 * graph nodes for allocations. */
static hdcu_result mempool_enter_stream(hdcu_stream handle, hdi_host_stream **stream)
{
    hdcu_result r = hdi_host_enter_stream(handle, stream);
    if (r == HDCU_SUCCESS && (*stream)->capture) {
        hdi_host_capture_invalidate((*stream)->capture);
        r = HDCU_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return r;
}

static hdcu_result cuMemAllocAsync(hdcu_deviceptr *pointer, size_t bytes, hdcu_stream stream_handle)
{
    hdi_host_stream *stream = NULL;
    hdi_host_slot *slot = NULL;
    hdcu_result r = mempool_enter_stream(stream_handle, &stream);
    if (r == HDCU_SUCCESS && (!pointer || bytes == 0)) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        r = hdi_host_capture_forbids();
    }
    if (r == HDCU_SUCCESS) {
        r = bytes > hdi_host.memory ? HDCU_ERROR_OUT_OF_MEMORY : mempool_allocate(stream, bytes, &slot);
    }
    if (r == HDCU_ERROR_OUT_OF_MEMORY && pointer && bytes <= hdi_host.memory &&
        pools[stream->context->device].pending > 0) {
        /* Other streams have not passed their frees yet. With a GPU, the stream would wait for
         * these frees; here the program waits. */
        r = hdi_host_context_drain(stream->context);
        if (r == HDCU_SUCCESS) {
            r = hdi_host_stream_find(stream_handle, &stream); /* the lock was released meanwhile */
        }
        if (r == HDCU_SUCCESS) {
            r = mempool_allocate(stream, bytes, &slot);
        }
    }
    if (r == HDCU_SUCCESS) {
        *pointer = mempool_slot_address(slot);
    }
    return hdi_host_leave(r);
}

static hdcu_result cuMemFreeAsync(hdcu_deviceptr pointer, hdcu_stream stream_handle)
{
    hdi_host_stream *stream;
    hdcu_result r = mempool_enter_stream(stream_handle, &stream);
    hdi_host_slot *slot = r == HDCU_SUCCESS ? mempool_live_slot_at(pointer) : NULL;
    if (r == HDCU_SUCCESS && (!slot || slot->segment->memory->device != stream->context->device)) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        hdi_host_op op = {.kind = HDI_HOST_OP_FREE, .u.slot = slot};
        slot->pending++;
        slot->segment->pending++;
        mempool_of_segment(slot->segment)->pending++;
        r = hdi_host_submit(stream, &op);
    }
    if (r == HDCU_SUCCESS) {
        mempool_give_slot(slot, stream->handle);
    }
    return hdi_host_leave(r);
}

/* True if live memory of cuMemAllocAsync begins at `address`. */
static bool mempool_has(uintptr_t address)
{
    return mempool_live_slot_at(address) != NULL;
}

/* Waits for the work of the context, then frees memory of cuMemAllocAsync. */
static hdcu_result mempool_free(uintptr_t address)
{
    hdi_host_context_drain(mempool_live_slot_at(address)->segment->memory->context);
    hdi_host_slot *slot = mempool_live_slot_at(address); /* the lock was released meanwhile */
    if (!slot) {
        return HDCU_ERROR_INVALID_VALUE;
    }
    mempool_give_slot(slot, 0);
    return HDCU_SUCCESS;
}

static hdcu_result cuDeviceGetDefaultMemPool(hdcu_mempool *out, hdcu_device device)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS && !out) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS && !hdi_host_device_valid(device)) {
        r = HDCU_ERROR_INVALID_DEVICE;
    }
    if (r == HDCU_SUCCESS) {
        *out = (hdcu_mempool)(HANDLE_BASE + (uintptr_t)device);
    }
    return hdi_host_leave(r);
}

/* Takes the host lock and finds the pool. */
static hdcu_result mempool_enter(hdcu_mempool handle, const void *value, pool **out)
{
    hdcu_result r = hdi_host_enter();
    *out = r == HDCU_SUCCESS ? mempool_of_handle(handle) : NULL;
    return r == HDCU_SUCCESS && (!*out || !value) ? HDCU_ERROR_INVALID_VALUE : r;
}

static uint64_t *mempool_attribute_of(pool *p, int attribute)
{
    switch (attribute) {
    case HDCU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        return &p->threshold;
    case HDCU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return &p->reserved;
    case HDCU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return &p->reserved_high;
    case HDCU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return &p->used;
    case HDCU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return &p->used_high;
    default:
        return NULL;
    }
}

static hdcu_result cuMemPoolGetAttribute(hdcu_mempool handle, int attribute, void *value)
{
    pool *p;
    hdcu_result r = mempool_enter(handle, value, &p);
    const uint64_t *found = r == HDCU_SUCCESS ? mempool_attribute_of(p, attribute) : NULL;
    if (found) {
        memcpy(value, found, sizeof *found);
    }
    return hdi_host_leave(r != HDCU_SUCCESS || found ? r : HDCU_ERROR_INVALID_VALUE);
}

/* Sets the threshold, or resets a peak to the current value. The value for a peak must be 0, as
 * with the real driver. */
static hdcu_result cuMemPoolSetAttribute(hdcu_mempool handle, int attribute, void *value)
{
    pool *p;
    uint64_t wanted = 0;
    hdcu_result r = mempool_enter(handle, value, &p);
    if (r == HDCU_SUCCESS) {
        memcpy(&wanted, value, sizeof wanted);
        if (attribute == HDCU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
            p->threshold = wanted;
        } else if (attribute == HDCU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && wanted == 0) {
            p->reserved_high = p->reserved;
        } else if (attribute == HDCU_MEMPOOL_ATTR_USED_MEM_HIGH && wanted == 0) {
            p->used_high = p->used;
        } else {
            r = HDCU_ERROR_INVALID_VALUE;
        }
    }
    return hdi_host_leave(r);
}

static hdcu_result cuMemPoolTrimTo(hdcu_mempool handle, size_t keep_bytes)
{
    pool *p;
    hdcu_result r = mempool_enter(handle, &keep_bytes, &p);
    if (r == HDCU_SUCCESS) {
        mempool_trim(p, keep_bytes);
    }
    return hdi_host_leave(r);
}

/* ---- plain and pinned memory ---- */

static hdi_host_mapping *host_block_at(uintptr_t address, hdi_host_memory_kind kind)
{
    hdi_host_mapping *m = hdi_host_set_find(&hdi_host_mappings, address);
    return m && m->span.start == address && m->kind == kind ? m : NULL;
}

/* Waits for the work that may use the block, then releases the block. */
static hdcu_result host_block_free(uintptr_t address, hdi_host_memory_kind kind, hdcu_result if_null,
                                   hdcu_result if_unknown)
{
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS && address == 0) {
        return hdi_host_leave(if_null);
    }
    if (r == HDCU_SUCCESS) {
        r = hdi_host_capture_forbids();
    }
    if (r != HDCU_SUCCESS) {
        return hdi_host_leave(r);
    }
    hdi_host_mapping *m = host_block_at(address, kind);
    if (!m && kind == HDI_HOST_ALLOCATED && mempool_has(address)) {
        return hdi_host_leave(mempool_free(address));
    }
    if (m) {
        /* Every device may use pinned memory. A fault during the wait does not prevent the
         * release. */
        bool pinned = kind != HDI_HOST_ALLOCATED;
        for (int i = 0; pinned && i < hdi_host.device_count; i++) {
            if (hdi_host.devices[i].context) {
                hdi_host_context_drain(hdi_host.devices[i].context);
            }
        }
        m = host_block_at(address, kind); /* the lock was released meanwhile */
        if (m && !pinned) {
            hdi_host_context_drain(m->context);
            m = host_block_at(address, kind);
        }
    }
    if (m) {
        host_block_release(m);
    }
    return hdi_host_leave(m ? HDCU_SUCCESS : if_unknown);
}

static hdcu_result cuMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    hdi_host_context *context;
    hdcu_result r = hdi_host_enter_context(&context);
    if (r == HDCU_SUCCESS && (!free_bytes || !total_bytes)) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        *total_bytes = hdi_host.memory;
        *free_bytes = hdi_host.memory - hdi_host.devices[context->device].used;
    }
    return hdi_host_leave(r);
}

static hdcu_result cuMemAlloc(hdcu_deviceptr *pointer, size_t bytes)
{
    hdi_host_context *context;
    hdi_host_mapping *m;
    hdcu_result r = hdi_host_enter_context(&context);
    if (r == HDCU_SUCCESS && !pointer) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        r = hdi_host_capture_forbids();
    }
    if (r == HDCU_SUCCESS) {
        r = host_block_make(context, HDI_HOST_ALLOCATED, bytes, &m);
    }
    if (r == HDCU_SUCCESS) {
        *pointer = m->span.start;
    }
    return hdi_host_leave(r);
}

static hdcu_result cuMemFree(hdcu_deviceptr pointer)
{
    return host_block_free(pointer, HDI_HOST_ALLOCATED, HDCU_SUCCESS, HDCU_ERROR_INVALID_VALUE);
}

static hdcu_result cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
    hdi_host_context *context;
    hdi_host_mapping *m;
    hdcu_result r = hdi_host_enter_context(&context);
    if (r == HDCU_SUCCESS && (!pointer || flags > 7)) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        r = hdi_host_capture_forbids();
    }
    if (r == HDCU_SUCCESS) {
        r = host_block_make(context, HDI_HOST_PINNED, bytes, &m);
    }
    if (r == HDCU_SUCCESS) {
        *pointer = (void *)m->span.start;
    }
    return hdi_host_leave(r);
}

static hdcu_result cuMemFreeHost(void *pointer)
{
    return host_block_free((uintptr_t)pointer, HDI_HOST_PINNED, HDCU_SUCCESS, HDCU_ERROR_INVALID_VALUE);
}

/* True if the program has pages at all addresses of the range. */
static bool host_pages_are_mapped(uintptr_t address, size_t bytes)
{
    enum { AT_ONCE = 4096 };
    unsigned char resident[AT_ONCE];
    size_t page = host_page_bytes();
    uintptr_t end = address + bytes;
    for (uintptr_t at = address / page * page; at < end;) {
        size_t some = end - at < AT_ONCE * page ? end - at : AT_ONCE * page;
        if (mincore((void *)at, some, resident) != 0) {
            return false;
        }
        at += some;
    }
    return true;
}

static hdcu_result cuMemHostRegister(void *pointer, size_t bytes, unsigned flags)
{
    uintptr_t address = (uintptr_t)pointer;
    hdi_host_context *context;
    hdcu_result r = hdi_host_enter_context(&context);
    if (r == HDCU_SUCCESS && (!pointer || bytes == 0 || bytes > UINTPTR_MAX - address || flags > 15 ||
                              hdi_host_set_overlaps(&hdi_host_reservations, address, bytes))) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        r = hdi_host_capture_forbids();
    }
    if (r == HDCU_SUCCESS && hdi_host_set_overlaps(&hdi_host_mappings, address, bytes)) {
        const hdi_host_mapping *m = (const hdi_host_mapping *)(const void *)
                                        hdi_host_mappings.spans[hdi_host_set_seek(&hdi_host_mappings, address)];
        r = m->device < 0 ? HDCU_ERROR_HOST_MEMORY_ALREADY_REGISTERED : HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS && !host_pages_are_mapped(address, bytes)) {
        r = HDCU_ERROR_INVALID_VALUE;
    }
    if (r == HDCU_SUCCESS) {
        hdi_host_mapping *m = calloc(1, sizeof *m);
        if (m) {
            m->span = (hdi_host_span){address, bytes};
            m->garbage = (hdi_host_garbage){.descriptor = -1, .self = m};
            m->kind = HDI_HOST_REGISTERED;
            m->device = -1;
            m->context = context;
        }
        if (!m || !hdi_host_set_insert(&hdi_host_mappings, &m->span)) {
            free(m);
            r = HDCU_ERROR_OUT_OF_MEMORY;
        }
    }
    return hdi_host_leave(r);
}

static hdcu_result cuMemHostUnregister(void *pointer)
{
    return host_block_free((uintptr_t)pointer, HDI_HOST_REGISTERED, HDCU_ERROR_INVALID_VALUE,
                           HDCU_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

static hdcu_result cuMemHostGetDevicePointer(hdcu_deviceptr *device_pointer, void *pointer, unsigned flags)
{
    hdi_host_context *context;
    hdcu_result r = hdi_host_enter_context(&context);
    if (r == HDCU_SUCCESS) {
        const hdi_host_mapping *m = hdi_host_set_find(&hdi_host_mappings, (uintptr_t)pointer);
        if (!device_pointer || flags != 0 || !m || m->device >= 0) {
            r = HDCU_ERROR_INVALID_VALUE;
        } else {
            *device_pointer = (uintptr_t)pointer;
        }
    }
    return hdi_host_leave(r);
}

/* ---- the entry points ---- */

const hdi_driver hdi_host_alloc_entries = {
    .cuMemAllocAsync = cuMemAllocAsync,
    .cuMemFreeAsync = cuMemFreeAsync,
    .cuDeviceGetDefaultMemPool = cuDeviceGetDefaultMemPool,
    .cuMemPoolGetAttribute = cuMemPoolGetAttribute,
    .cuMemPoolSetAttribute = cuMemPoolSetAttribute,
    .cuMemPoolTrimTo = cuMemPoolTrimTo,
    .cuMemGetInfo = cuMemGetInfo,
    .cuMemAlloc = cuMemAlloc,
    .cuMemFree = cuMemFree,
    .cuMemHostAlloc = cuMemHostAlloc,
    .cuMemFreeHost = cuMemFreeHost,
    .cuMemHostRegister = cuMemHostRegister,
    .cuMemHostUnregister = cuMemHostUnregister,
    .cuMemHostGetDevicePointer = cuMemHostGetDevicePointer,
};
