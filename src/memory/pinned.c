/* pinned.c - pinned host memory.
 *
 * With `everywhere` in the configuration, a worker's registrations end with its process. So a
 * failure to unregister matters only while the worker runs. Without `everywhere`, the driver of
 * this process keeps its registrations after the loss of a device. So addresses stay reserved while
 * a driver may still have memory there registered.
 *
 * Before drivers pin pages, the caller and up to three threads make the system allocate these
 * pages. The threads end before the memory is pinned.
 *
 * Threads, locks, blocking, and guarantees: see pinned.h.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/error.h"
#include "base/lock.h"
#include "base/number.h"
#include "base/text.h"
#include "base/thread.h"
#include "base/wait.h"
#include "memory/blocks.h"
#include "memory/pinned.h"
#include "memory/share.h"

#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

/* The least bytes per thread: the system needs some 4 ms to allocate these bytes, and starting a
 * thread takes 50 us. */
#define PART_LEAST ((size_t)8 << 20)
#define PARTS_MOST 4

typedef struct hdi_pinned_record {
    struct hdi_pinned_record *before, *after; /* in the pool's list */
    hdi_pinned_pool *pool;
    hdi_shm shm;
    uint64_t by; /* one bit for each device whose port registered the memory */
} record;

struct hdi_pinned_pool {
    hdi_pinned_config config; /* constant, like the next line */
    uint64_t window_at, window_bytes;

    hdi_mutex lock;
    record *first;      /* under lock, as are the records; list of all live memory */
    hdi_blocks *blocks; /* under lock; allocator of the window's offsets */
    /* Under lock, with `everywhere`: one bit for each device that gets no requests. Its port
     * reported a loss, or a repin failed, and no repin succeeded since. */
    uint64_t away;
};

static const hdi_answer good = {HDCU_SUCCESS, ""};

/* The port of a device; NULL: the device is lost. The caller holds lock. */
static hdi_port *pinned_port_of(const hdi_pinned_pool *pool, int device)
{
    return pool->away & hdi_device_bit(device) ? NULL : pool->config.port(pool->config.context, device);
}

/* True if the answer reports a loss of the device. Such a device gets no more requests.
 * The caller holds lock. */
static bool pinned_note_loss(hdi_pinned_pool *pool, int device, hdi_answer answer)
{
    bool lost = pool->config.everywhere && hdi_driver_code_is_fatal(answer.code);
    pool->away |= lost ? hdi_device_bit(device) : 0;
    return lost;
}

/* ---- the pool -------------------------------------------------------------------------------- */

/* The window's allocator never waits for points. */
static bool pinned_window_finished(void *context, hdi_point point)
{
    (void)context;
    (void)point;
    return true;
}

bool hdi_pinned_pool_has(hdi_pinned_pool *pool, const void *base, uint64_t bytes)
{
    uintptr_t low = (uintptr_t)base;
    bool found = false;
    hdi_mutex_lock(&pool->lock);
    for (const record *r = pool->first; r != NULL && !found; r = r->after) {
        uintptr_t at = (uintptr_t)r->shm.base;
        found = low < at + r->shm.bytes && at < low + bytes;
    }
    hdi_mutex_unlock(&pool->lock);
    return found;
}

static bool pinned_take_window(hdi_pinned_pool *pool, uint64_t at, uint64_t bytes)
{
    if (!hdi_shm_reserve((void *)(uintptr_t)at, bytes)) {
        return false;
    }
    pool->window_at = at;
    pool->window_bytes = bytes;
    return true;
}

/* Reserves the first free slot. If the system has no room for a window of this size, or all slots
 * are taken, this function tries half the size. */
static bool pinned_find_window(hdi_pinned_pool *pool, uint64_t bytes)
{
    do {
        for (uint64_t slot = 0; slot < HDI_WINDOWS; slot++) {
            if (pinned_take_window(pool, HDI_WINDOWS_AT + slot * HDI_WINDOW_BYTES, bytes)) {
                return true;
            }
            if (errno != EEXIST) {
                break;
            }
        }
        bytes /= 2;
    } while (bytes >= HDI_WINDOW_BYTES_MIN);
    return false;
}

static hd_status pinned_make_window(hdi_pinned_pool *pool)
{
    const hdi_pinned_config *c = &pool->config;
    uint64_t bytes = c->window_bytes != 0 ? c->window_bytes : HDI_WINDOW_BYTES;
    if (!(c->window_at != 0 ? pinned_take_window(pool, c->window_at, bytes) : pinned_find_window(pool, bytes))) {
        return hdi_fail(
            HD_ERROR_SYSTEM,
            "pinned memory: no addresses that are the same in all processes: mmap: %s; is the address space "
            "limited (ulimit -v), or are many runtimes open?",
            strerror(errno));
    }
    hdi_blocks_config config = {.limit = pool->window_bytes, .finished = pinned_window_finished};
    hd_status status = hdi_blocks_create(&config, &pool->blocks);
    return status != HD_OK ? status : hdi_blocks_grow(pool->blocks, pool->window_bytes);
}

hd_status hdi_pinned_pool_create(const hdi_pinned_config *config, hdi_pinned_pool **out)
{
    if (config->n_devices < 1 || config->n_devices > HDI_PINNED_DEVICES_MAX) {
        return hdi_fail(HD_ERROR_ARGUMENT, "pinned memory: for %d devices, at most %d", config->n_devices,
                        HDI_PINNED_DEVICES_MAX);
    }
    hdi_pinned_pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "pinned memory: no host memory for the pool");
    }
    pool->config = *config;
    hdi_mutex_init(&pool->lock, HDI_RANK_PINNED_CHUNKS);
    hd_status status = config->everywhere ? pinned_make_window(pool) : HD_OK;
    if (status != HD_OK) {
        hdi_pinned_pool_destroy(pool);
        return status;
    }
    *out = pool;
    return HD_OK;
}

void hdi_pinned_pool_destroy(hdi_pinned_pool *pool)
{
    if (pool == NULL) {
        return;
    }
    for (record *r = pool->first, *next; r != NULL; r = next) {
        next = r->after;
        hdi_shm_bury(&r->shm);
        free(r);
    }
    if (pool->window_bytes != 0) {
        munmap((void *)(uintptr_t)pool->window_at, pool->window_bytes);
    }
    hdi_blocks_destroy(pool->blocks);
    hdi_mutex_destroy(&pool->lock);
    free(pool);
}

void hdi_pinned_pool_window(const hdi_pinned_pool *pool, uint64_t *at, uint64_t *bytes)
{
    *at = pool->window_at;
    *bytes = pool->window_bytes;
}

/* ---- memory and its addresses: the caller holds lock ----------------------------------------- */

static hd_status pinned_take_memory(hdi_pinned_pool *pool, size_t bytes, hdi_shm *out)
{
    if (pool->blocks == NULL) {
        return hdi_shm_create("heddle-pinned", bytes, out);
    }
    size_t offset;
    hdi_points none;
    hd_status status = hdi_blocks_alloc(pool->blocks, bytes, 0, &offset, &none);
    if (status == HD_ERROR_NOT_FOUND) {
        hdi_blocks_info info;
        hdi_blocks_get_info(pool->blocks, &info);
        return hdi_fail(HD_ERROR_HOST_MEMORY,
                        "pinned memory: %s: live %s, largest free block %s of the %s of addresses that "
                        "all processes share",
                        HDI_BYTES(bytes), HDI_BYTES(info.live_bytes), HDI_BYTES(info.largest_free),
                        HDI_BYTES(info.managed_bytes));
    }
    if (status == HD_OK) {
        status = hdi_shm_create_at("heddle-pinned", bytes, (void *)(uintptr_t)(pool->window_at + offset), out);
        if (status != HD_OK) {
            hdi_blocks_free(pool->blocks, offset, NULL, 0);
        }
    }
    return status;
}

/* Gives memory back. `kept`: a driver may still have it registered, so its addresses stay
 * reserved. */
static void pinned_give_memory(hdi_pinned_pool *pool, hdi_shm *shm, bool kept)
{
    size_t offset = (size_t)((uintptr_t)shm->base - pool->window_at);
    if (kept) {
        hdi_shm_bury(shm);
    } else {
        hdi_shm_release(shm);
        if (pool->blocks != NULL) {
            hdi_blocks_free(pool->blocks, offset, NULL, 0);
        }
    }
}

/* ---- registering: the caller holds lock ------------------------------------------------------ */

static hd_status pinned_fail_pin(const hdi_pinned_pool *pool, hdi_answer answer, int device, size_t bytes)
{
    hd_status status = answer.code == HDCU_ERROR_OUT_OF_MEMORY ? HD_ERROR_HOST_MEMORY
                       : hdi_driver_code_is_fatal(answer.code) ? HD_ERROR_DEVICE_LOST
                                                               : HD_ERROR_DRIVER;
    bool gone = answer.code < 0;
    return hdi_fail_driver(status, answer.code, answer.call, pool->config.everywhere ? device : -1,
                           "pinned memory: %s cannot be pinned%s%s", HDI_BYTES(bytes), gone ? ": " : "",
                           gone ? hdi_driver_code_name(answer.code) : "");
}

static hd_status pinned_fail_address(const record *r, int device, uint64_t seen)
{
    return hdi_fail(HD_ERROR_UNSUPPORTED,
                    "pinned memory: device %d has memory of address 0x%llx at 0x%llx; placement=process needs devices "
                    "that use the host's addresses",
                    device, (unsigned long long)(uintptr_t)r->shm.base, (unsigned long long)seen);
}

/* True if a driver may still have the memory registered after this answer of `unpin`. */
static bool pinned_may_be_kept(hdi_answer answer)
{
    return !hdi_answered(answer) && answer.code != HDCU_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

/* Registers memory with one device's port. The memory may be registered there already. So if the
 * first attempt fails, this function unregisters the memory. If that succeeds, it tries again. If
 * the second attempt fails, the memory is not registered, unless `*kept` is set. */
static hdi_answer pinned_pin_with(hdi_pinned_pool *pool, int device, hdi_port *port, const record *r, uint64_t *seen,
                                  bool *kept)
{
    const hdi_shm *shm = &r->shm;
    for (int attempt = 0;; attempt++) {
        hdi_answer answer = port->calls->pin(port, shm->base, shm->bytes, shm->descriptor, seen);
        if (hdi_answered(answer) || pinned_note_loss(pool, device, answer)) {
            return answer;
        }
        /* An earlier request may have failed without undoing its work. Or the device restarted, and
         * its new port registered this memory before hdi_pinned_repin did. */
        hdi_answer undone = port->calls->unpin(port, shm->base, shm->bytes);
        if (!hdi_answered(undone) || attempt > 0) {
            bool gone = pinned_note_loss(pool, device, undone);
            *kept = *kept || (!gone && pinned_may_be_kept(undone));
            return answer;
        }
    }
}

/* Unregisters memory with every port that registered it, and continues after failures. If a failure
 * may have left the memory registered, sets *kept, and returns the first such failure. */
static hdi_answer pinned_unpin_all(hdi_pinned_pool *pool, record *r, bool *kept)
{
    hdi_answer first = good;
    for (int d = 0; d < pool->config.n_devices; d++) {
        if (!(r->by & hdi_device_bit(d))) {
            continue;
        }
        hdi_port *port = pinned_port_of(pool, d);
        bool own = port != NULL;
        /* The driver of this process holds the registration, so any device that still works can
         * unregister it. */
        for (int other = 0; port == NULL && !pool->config.everywhere && other < pool->config.n_devices; other++) {
            port = pinned_port_of(pool, other);
        }
        if (port == NULL) {
            *kept = *kept || !pool->config.everywhere;
            continue;
        }
        hdi_answer answer = port->calls->unpin(port, r->shm.base, r->shm.bytes);
        if (!pinned_note_loss(pool, d, answer) && (own ? pinned_may_be_kept(answer) : !hdi_answered(answer))) {
            *kept = true;
            first = hdi_answered(first) ? answer : first;
        }
    }
    r->by = 0;
    return first;
}

/* Registers memory with all ports (`everywhere`), or with the first port that works. On failure,
 * unregisters the memory again, and sets `*kept` if a driver may still have it registered. */
static hd_status pinned_pin_all(hdi_pinned_pool *pool, record *r, uint64_t *address, bool *kept)
{
    hdi_answer lost = {HDI_GONE_CLOSED, ""};
    int lost_device = -1;
    hd_status status = HD_OK;
    for (int d = 0; d < pool->config.n_devices && status == HD_OK && (pool->config.everywhere || r->by == 0); d++) {
        hdi_port *port = pinned_port_of(pool, d);
        if (port == NULL) {
            continue;
        }
        uint64_t seen = 0;
        hdi_answer answer = pinned_pin_with(pool, d, port, r, &seen, kept);
        if (hdi_answered(answer)) {
            r->by |= hdi_device_bit(d);
            *address = seen;
            if (pool->config.everywhere && seen != (uintptr_t)r->shm.base) {
                status = pinned_fail_address(r, d, seen);
            }
        } else if (hdi_driver_code_is_fatal(answer.code)) {
            lost = answer;
            lost_device = d;
        } else {
            status = pinned_fail_pin(pool, answer, d, r->shm.bytes);
        }
    }
    if (status == HD_OK && r->by == 0) {
        status = lost_device >= 0 ? pinned_fail_pin(pool, lost, lost_device, r->shm.bytes)
                                  : hdi_fail(HD_ERROR_DEVICE_LOST, "pinned memory: all devices are lost");
    }
    if (status != HD_OK) {
        pinned_unpin_all(pool, r, kept);
    }
    return status;
}

/* ---- pages ahead of their use ---------------------------------------------------------------- */

typedef struct part {
    pthread_t thread;
    void *at;
    size_t bytes;
} part;

static void *pinned_populate_part(void *context)
{
    const part *p = context;
    /* If the system does not know MADV_POPULATE_WRITE, the driver faults the pages in. If the
     * system lacks memory, the driver reports that. */
    (void)madvise(p->at, p->bytes, MADV_POPULATE_WRITE);
    return NULL;
}

static size_t pinned_start_parts(part *parts, size_t count)
{
    size_t started = 0;
    while (started < count && hdi_thread_start(&parts[started].thread, pinned_populate_part, &parts[started]) == 0) {
        started++;
    }
    return started;
}

/* Makes the system allocate and zero whole pages of a writable mapping. A driver that pins fresh
 * memory faults it in page by page, under locks that launches need. Pinning pages that exist takes
 * a seventh of the time of pinning fresh ones. This function holds no lock, and uses several
 * threads, which are faster than one.
 * If the system cannot allocate pages ahead, the driver faults them in. */
static void pinned_populate(void *base, size_t bytes)
{
    size_t most = (size_t)hdi_cpu_count() < PARTS_MOST ? (size_t)hdi_cpu_count() : PARTS_MOST;
    size_t count = bytes / PART_LEAST < 1 ? 1 : bytes / PART_LEAST < most ? bytes / PART_LEAST : most;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t each = bytes / count / page * page;
    HDI_UNCANCELLED;
    part parts[PARTS_MOST];
    for (size_t i = 0; i < count; i++) {
        parts[i].at = (char *)base + i * each;
        parts[i].bytes = i + 1 < count ? each : bytes - i * each;
    }
    size_t started = pinned_start_parts(parts, count - 1);
    for (size_t i = started; i < count; i++) {
        pinned_populate_part(&parts[i]);
    }
    for (size_t i = 0; i < started; i++) {
        pthread_join(parts[i].thread, NULL);
    }
}

/* ---- pinned memory --------------------------------------------------------------------------- */

static void pinned_link_record(hdi_pinned_pool *pool, record *r)
{
    r->after = pool->first;
    if (r->after != NULL) {
        r->after->before = r;
    }
    pool->first = r;
}

static void pinned_unlink_record(hdi_pinned_pool *pool, record *r)
{
    *(r->before != NULL ? &r->before->after : &pool->first) = r->after;
    if (r->after != NULL) {
        r->after->before = r->before;
    }
}

hd_status hdi_pinned_alloc(hdi_pinned_pool *pool, size_t bytes, hdi_pinned *out)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (bytes == 0) {
        return hdi_fail(HD_ERROR_ARGUMENT, "pinned memory: 0 bytes");
    }
    if (bytes > (size_t)PTRDIFF_MAX - page) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "pinned memory: %s are more than a process can address",
                        HDI_BYTES(bytes));
    }
    record *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "pinned memory: no host memory to note what is pinned");
    }
    r->pool = pool;
    uint64_t address = 0;
    hdi_mutex_lock(&pool->lock);
    hd_status status = pinned_take_memory(pool, (bytes + page - 1) / page * page, &r->shm);
    if (status == HD_OK) {
        hdi_mutex_unlock(&pool->lock);
        if (pool->config.populate) {
            pinned_populate(r->shm.base, r->shm.bytes);
        }
        hdi_mutex_lock(&pool->lock);
        bool kept = false;
        status = pinned_pin_all(pool, r, &address, &kept);
        if (status == HD_OK) {
            pinned_link_record(pool, r);
        } else {
            pinned_give_memory(pool, &r->shm, kept);
        }
    }
    hdi_mutex_unlock(&pool->lock);
    if (status != HD_OK) {
        free(r);
        return status;
    }
    *out = (hdi_pinned){.shm = r->shm, .device = address, .record = r};
    return HD_OK;
}

hd_status hdi_pinned_release(hdi_pinned *pinned, bool abandoned)
{
    record *r = pinned->record;
    if (r == NULL) {
        return HD_OK;
    }
    hdi_pinned_pool *pool = r->pool;
    hdi_answer answer = good;
    bool kept = abandoned;
    hdi_mutex_lock(&pool->lock);
    if (!abandoned) {
        answer = pinned_unpin_all(pool, r, &kept);
    }
    pinned_unlink_record(pool, r);
    pinned_give_memory(pool, &r->shm, kept);
    hdi_mutex_unlock(&pool->lock);
    hd_status status = HD_OK;
    if (!hdi_answered(answer)) {
        status = hdi_fail_driver(HD_ERROR_DRIVER, answer.code, answer.call, -1,
                                 "pinned memory: %s could not be unpinned", HDI_BYTES(pinned->shm.bytes));
    }
    free(r);
    memset(pinned, 0, sizeof *pinned);
    return status;
}

/* Registers all live memory with a fresh port. On failure, the device's bit in `by` marks the
 * records registered so far, and the records that its former process registered. */
static hd_status pinned_repin_all(hdi_pinned_pool *pool, int device, hdi_port *port)
{
    for (record *r = pool->first; r != NULL; r = r->after) {
        uint64_t seen = 0;
        bool kept = false; /* ignored, since after a failure the process is given up */
        hdi_answer answer = pinned_pin_with(pool, device, port, r, &seen, &kept);
        if (!hdi_answered(answer)) {
            return pinned_fail_pin(pool, answer, device, r->shm.bytes);
        }
        r->by |= hdi_device_bit(device);
        if (seen != (uintptr_t)r->shm.base) {
            return pinned_fail_address(r, device, seen);
        }
    }
    return HD_OK;
}

/* Unregisters all memory from a port, and ignores failures. Clears the device's bit in all records,
 * and marks the device as away. */
static void pinned_unpin_from(hdi_pinned_pool *pool, int device, hdi_port *port)
{
    for (record *r = pool->first; r != NULL; r = r->after) {
        if (r->by & hdi_device_bit(device)) {
            port->calls->unpin(port, r->shm.base, r->shm.bytes);
            r->by &= ~hdi_device_bit(device);
        }
    }
    pool->away |= hdi_device_bit(device);
}

hd_status hdi_pinned_repin(hdi_pinned_pool *pool, int device)
{
    if (!pool->config.everywhere) {
        return HD_OK;
    }
    hd_status status;
    hdi_mutex_lock(&pool->lock);
    hdi_port *port = pool->config.port(pool->config.context, device);
    if (port == NULL) {
        status = hdi_fail(HD_ERROR_DEVICE_LOST, "pinned memory: device %d is lost", device);
    } else {
        pool->away &= ~hdi_device_bit(device);
        status = pinned_repin_all(pool, device, port);
        if (status != HD_OK) {
            pinned_unpin_from(pool, device, port);
        }
    }
    hdi_mutex_unlock(&pool->lock);
    return status;
}
