/* import.c - hd_import and hd_import_host: the checks before memory of the program becomes a
 * buffer.
 *
 * Threads: any.
 * Locks: no lock is held during driver calls.
 * Blocking: a call waits for driver calls. hd_import_host pins memory (pin.h), and waits for the
 * driver's locks.
 * Always: a failed call changes nothing.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <heddle/import.h>
#include "base/error.h"
#include "base/sized.h"
#include "buffer/import.h"
#include "buffer/kind.h"
#include "buffer/limit.h"
#include "buffer/part.h"
#include "buffer/pin.h"
#include "buffer/region.h"
#include "engine/engine.h"
#include "memory/arena.h"
#include "memory/part.h"

/* ---- checks of the memory ---- */

/* The runtime's device with this number in the driver; -1: none. */
static int import_device_of(const hd_runtime *rt, int ordinal)
{
    for (int i = 0; i < rt->n_devices; i++) {
        if (rt->devices[i]->ordinal == ordinal) {
            return i;
        }
    }
    return -1;
}

/* Fails unless the byte at an address belongs to the device's memory. The device's context is
 * current. */
static hd_status import_check_at(hdi_device *device, uint64_t address)
{
    const hd_runtime *rt = device->runtime;
    int type = 0, ordinal = -1;
    hdcu_result r;
    if (!hdi_pin_ask_address(rt->driver, &type, HDCU_POINTER_ATTRIBUTE_MEMORY_TYPE, address, &r)) {
        return r == HDCU_ERROR_INVALID_VALUE || r == HDCU_ERROR_NOT_FOUND
                   ? hdi_fail(HD_ERROR_ARGUMENT,
                              "0x%" PRIx64 " is no memory of the driver; import memory that the driver allocated",
                              address)
                   : hdi_driver_failed(device, r, "cuPointerGetAttribute");
    }
    if (type == HDCU_MEMORYTYPE_HOST) {
        return hdi_fail(HD_ERROR_ARGUMENT, "0x%" PRIx64 " is memory of the host; hd_import_host takes it", address);
    }
    if (!hdi_pin_ask_address(rt->driver, &ordinal, HDCU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address, &r)) {
        return hdi_driver_failed(device, r, "cuPointerGetAttribute");
    }
    int owner = import_device_of(rt, ordinal);
    if (owner != device->index) {
        return owner < 0
                   ? hdi_fail(HD_ERROR_ARGUMENT,
                              "0x%" PRIx64 " is memory of the driver's device %d, which is no device of the runtime",
                              address, ordinal)
                   : hdi_fail(HD_ERROR_ARGUMENT, "0x%" PRIx64 " is memory of device %d, not %d; import it there",
                              address, owner, device->index);
    }
    return HD_OK;
}

/* Fails unless all bytes of the range belong to the device's memory. A range may consist of several
 * mappings. */
static hd_status import_check_range(hdi_device *device, uint64_t low, uint64_t high)
{
    const hdi_driver *driver = device->runtime->driver;
    uint64_t at = low;
    while (at < high) {
        hdi_attempt attempt;
        hdi_attempt_begin(&attempt);
        hd_status status = hdi_attempt_result(&attempt, import_check_at(device, at));
        if (status == HD_ERROR_ARGUMENT && at != low) {
            return hdi_fail(HD_ERROR_ARGUMENT,
                            "%" PRIu64 " bytes at 0x%" PRIx64 ", but the memory of device %d there ends after %" PRIu64,
                            high - low, low, device->index, at - low);
        }
        if (status) {
            return status;
        }
        uint64_t end = hdi_address_end(driver, at);
        /* if the end of the mapping is unknown, the only other byte that the loop checks is the
         * last one of the range */
        at = end > at ? end : high - 1 > at ? high - 1 : high;
    }
    return HD_OK;
}

/* ---- memory of the library ---- */

typedef struct label_search {
    uint64_t low, high;
    bool found;
    char label[HD_LABEL_BYTES];
} label_search;

static bool import_find_label(void *context, struct hd_buffer *b)
{
    label_search *s = context;
    uint64_t at = b->owner == HDI_OWNER_HOST ? (uint64_t)(uintptr_t)b->host : b->address;
    if (!hdi_buffer_is_imported(b) && at < s->high && s->low < at + b->bytes) {
        memcpy(s->label, b->label, sizeof s->label);
        s->found = true;
    }
    return !s->found;
}

static hd_status import_refuse_own(hd_runtime *rt, uint64_t low, uint64_t high)
{
    label_search s = {.low = low, .high = high};
    hdi_buffers_each(rt, import_find_label, &s);
    return hdi_fail(HD_ERROR_ARGUMENT,
                    "%" PRIu64 " bytes at 0x%" PRIx64 " are memory of Heddle's own%s%s%s; use the buffer that has them",
                    high - low, low, s.label[0] ? ", of buffer '" : "", s.label, s.label[0] ? "'" : "");
}

/* Fails if some of the bytes are memory of the library. */
static hd_status import_check_own(hd_runtime *rt, uint64_t low, uint64_t high)
{
    for (int i = 0; i < rt->n_devices; i++) {
        if (hdi_arena_overlaps(rt->devices[i]->arena, low, high - low)) {
            return import_refuse_own(rt, low, high);
        }
    }
    return hdi_pinned_pool_has(hdi_memory_of(rt)->pinned, (const void *)(uintptr_t)low, high - low)
               ? import_refuse_own(rt, low, high)
               : HD_OK;
}

/* The first checks of both calls. */
static hd_status import_check_call(hd_runtime *rt, bool address, size_t bytes, const hd_import_options **options,
                                   hd_import_options *room, hd_buffer *const *out)
{
    if (!hdi_runtime_is_open(rt)) {
        return hdi_runtime_refused(rt);
    }
    if (!out || !address || bytes == 0) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%s", !out ? "out is null" : !address ? "the address is 0" : "bytes is 0");
    }
    if (*options && !(*options = HDI_SIZED_IN(hd_import_options, *options, room))) {
        return HD_ERROR_ARGUMENT;
    }
    return HD_OK;
}

/* ---- device memory ---- */

static hd_status import_check_memory(hdi_device *device, uint64_t low, size_t bytes)
{
    if (bytes > UINT64_MAX - low) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%zu bytes at 0x%" PRIx64 " go past the last address", bytes, low);
    }
    hd_status status = import_check_own(device->runtime, low, low + bytes);
    hdi_scope scope;
    status = status ? status : hdi_scope_enter(device, &scope);
    if (!status) {
        status = import_check_range(device, low, low + bytes);
        hdi_scope_leave(&scope);
    }
    return status;
}

hd_status hdi_import(hd_runtime *rt, int device, uint64_t address, size_t bytes, const hd_import_options *options,
                     const void *call_site, hd_buffer **out)
{
    hd_import_options room;
    hd_status status = import_check_call(rt, address != 0, bytes, &options, &room, out);
    if (status) {
        return status;
    }
    if (device < 0 || device >= rt->n_devices) {
        return hdi_device_refused(rt, device);
    }
    if (rt->is_process) {
        return hdi_fail(HD_ERROR_UNSUPPORTED,
                        "with placement=process the device's memory belongs to another process without that address; "
                        "open the runtime with placement=thread, or use hd_import_descriptor");
    }
    hdi_device *owner = rt->devices[device];
    uint64_t losses = atomic_load_explicit(&owner->losses, memory_order_acquire);
    if (hdi_device_lost(owner)) {
        return hdi_loss_fail(rt, device, "its memory cannot be imported");
    }
    status = import_check_memory(owner, address, bytes);
    hdi_region *e = NULL;
    status = status ? status : hdi_region_make(rt, device, address, bytes, options, &e);
    if (status) {
        return status;
    }
    bool inherited = false;
    status = hdi_buffer_borrow(e->buffer, owner, address, bytes, losses, HDI_BUFFER_IMPORTED);
    status = status ? status : hdi_region_enlist(e, &inherited);
    if (status) {
        hdi_region_drop(e);
        return status;
    }
    hdi_buffer_set_kind(e->buffer, &hdi_region_device_ops, e);
    status = inherited ? hdi_region_mark(e) : HD_OK;
    if (status) {
        hdi_region_unlist(e);
        hdi_region_drop(e);
        return status;
    }
    hdi_region_give_out(e, call_site, out);
    return HD_OK;
}

hd_status hd_import(hd_runtime *rt, int device, uint64_t address, size_t bytes, const hd_import_options *options,
                    hd_buffer **out)
{
    HDI_INSIDE(rt);
    return hdi_import(rt, device, address, bytes, options, __builtin_return_address(0), out);
}

/* ---- memory of the host ---- */

static void import_unpin(hdi_region *e, bool closing)
{
    (void)closing;
    hdi_pin_drop(e->runtime, e->pin);
}

/* Pins the memory. If pinned memory is at its limit, waits while the memory of freed imports is not
 * unpinned yet (option memory_timeout). */
static hd_status import_pin(hdi_region *e, uint64_t low, uint64_t high, uint64_t *address)
{
    hd_runtime *rt = e->runtime;
    /* if the call succeeds after a wait, its failed attempts leave no message */
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    hdi_memory_wait wait = hdi_memory_wait_begin(rt);
    uint64_t seen, unpinned;
    hdi_regions_unpin(rt, &seen);
    bool possible = hdi_host_pool_allows(hdi_memory_of(rt)->host_pool, high - low);
    hd_status status;
    for (;; seen = unpinned) {
        bool more = hdi_regions_unpin(rt, &unpinned);
        if (unpinned != seen) {
            hdi_memory_wait_moved(&wait);
        }
        status = hdi_pin_take(rt, low, high, e->buffer->label, &e->pin, address);
        if (status != HD_ERROR_HOST_MEMORY || !more || !possible || hdi_memory_wait_over(&wait, false)) {
            break;
        }
        hdi_memory_wait_sleep(&wait);
    }
    hdi_attempt_result(&attempt, status);
    hd_error error;
    hdi_error_get(&error);
    bool limited = status == HD_ERROR_HOST_MEMORY && error.driver_code == 0;
    return limited ? hdi_fail_pass(hdi_buffer_host_fail_take(rt, high - low, &wait)) : status;
}

hd_status hdi_import_host(hd_runtime *rt, void *memory, size_t bytes, const hd_import_options *options,
                          const void *call_site, hd_buffer **out)
{
    hd_import_options room;
    uint64_t low = (uint64_t)(uintptr_t)memory, address = 0;
    hd_status status = import_check_call(rt, memory != NULL, bytes, &options, &room, out);
    if (status) {
        return status;
    }
    if (rt->is_process) {
        return hdi_fail(HD_ERROR_UNSUPPORTED,
                        "with placement=process devices are driven by other processes, which do not have this memory; "
                        "use hd_alloc_host, hd_write and hd_read, or open the runtime with placement=thread");
    }
    if (bytes > UINTPTR_MAX - low) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%zu bytes at %p go past the last address", bytes, memory);
    }
    hdi_region *e = NULL;
    status = import_check_own(rt, low, low + bytes);
    status = status ? status : hdi_region_make(rt, HDI_OWNER_HOST, low, bytes, options, &e);
    if (status) {
        return status;
    }
    bool inherited = false;
    hdi_buffer_take_host(e->buffer, memory, 0, bytes, &hdi_region_host_ops);
    status = hdi_region_enlist(e, &inherited);
    if (status) {
        hdi_region_drop(e);
        return status;
    }
    status = import_pin(e, low, low + bytes, &address);
    if (status) {
        hdi_region_unlist(e);
        hdi_region_drop(e);
        return status;
    }
    e->give_back = e->pin ? import_unpin : NULL;
    e->buffer->address = address;
    e->buffer->of_kind = e;
    status = inherited ? hdi_region_mark(e) : HD_OK;
    if (status) {
        hdi_region_unlist(e);
        if (e->pin) {
            hdi_pin_freed(rt, e->pin);
            import_unpin(e, false);
        }
        hdi_region_drop(e);
        return status;
    }
    hdi_region_give_out(e, call_site, out);
    return HD_OK;
}

hd_status hd_import_host(hd_runtime *rt, void *memory, size_t bytes, const hd_import_options *options, hd_buffer **out)
{
    HDI_INSIDE(rt);
    return hdi_import_host(rt, memory, bytes, options, __builtin_return_address(0), out);
}
