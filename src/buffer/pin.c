/* pin.c - pins of the program's memory, which imports share.
 *
 * A freed import stays pinned until its work is done, and the keeper unpins it a little later. The same bytes may be imported meanwhile.
 * So the driver's answer that memory is pinned leaves open whose pin it is; the list here has Heddle's.
 * An import of bytes that a pin has all of uses that pin, and the last user unpins. One that has a part of them waits until freed imports are done.
 * A pin that is being made or ended is busy: an import that needs pages of it waits for that.
 *
 * A pin whose device was lost since may be gone with its context. It is used only where the driver answers that the memory is pinned.
 *
 * Threads: any; the keeper ends uses.
 * Locks: the list's, under which nothing else is taken. The driver is called without it.
 * Blocking: see pin.h.
 * Always: pins that are not busy and whose device was not lost since do not overlap. Only the thread that made a pin busy changes its bytes.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/error.h"
#include "base/thread.h"
#include "base/wait.h"
#include "buffer/part.h"
#include "buffer/pin.h"
#include "engine/engine.h"
#include "memory/part.h"

#define LOOK_NS INT64_C(10000000) /* a thread that waits looks at least so often whether the runtime closes */

struct hdi_pin {
    hdi_pin *next;
    uint64_t low, high;
    uint64_t address; /* of `low`, as devices see it */
    uint64_t charged; /* bytes that count against the limit */
    hdi_device *device;
    uint64_t losses; /* of the device, when it was pinned */
    int users, live; /* imports; those of them that are not freed */
    bool busy;
    char label[HD_LABEL_BYTES]; /* of the import that uses it last */
};

struct hdi_pins {
    hdi_mutex lock;
    pthread_cond_t changed;
    hdi_pin *list;
    uint64_t ended; /* pins, ever */
};

/* ---- what the driver has ---- */

bool hdi_address_ask(const hdi_driver *driver, void *value, int attribute, uint64_t address, hdcu_result *r)
{
    *r = driver->cuPointerGetAttribute(value, attribute, address);
    return *r == HDCU_SUCCESS;
}

uint64_t hdi_address_end(const hdi_driver *driver, uint64_t address)
{
    static const int pairs[2][2] = {
        {HDCU_POINTER_ATTRIBUTE_RANGE_START_ADDR, HDCU_POINTER_ATTRIBUTE_RANGE_SIZE},
        {HDCU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, HDCU_POINTER_ATTRIBUTE_MAPPING_SIZE},
    };
    uint64_t end = UINT64_MAX;
    for (int i = 0; i < 2; i++) {
        uint64_t start = 0;
        size_t bytes = 0;
        hdcu_result r;
        if (hdi_address_ask(driver, &start, pairs[i][0], address, &r) &&
            hdi_address_ask(driver, &bytes, pairs[i][1], address, &r) && start <= address && bytes > address - start &&
            start + bytes < end) {
            end = start + bytes;
        }
    }
    return end == UINT64_MAX ? address : end;
}

/* -1: no memory that the driver has. */
static int type_at(const hdi_driver *driver, uint64_t address)
{
    int type = 0;
    hdcu_result r;
    return hdi_address_ask(driver, &type, HDCU_POINTER_ATTRIBUTE_MEMORY_TYPE, address, &r) ? type : -1;
}

/* A device whose driver calls can be made. NULL: there is none. */
static hdi_device *enter_any(hd_runtime *rt, hdi_scope *scope)
{
    for (int i = 0; i < rt->n_devices; i++) {
        if (!hdi_device_lost(rt->devices[i]) && hdi_scope_enter(rt->devices[i], scope) == HD_OK) {
            return rt->devices[i];
        }
    }
    return NULL;
}

/* Fails unless all of the memory is pinned. */
static hd_status check_pinned(const hdi_driver *driver, uint64_t low, uint64_t high)
{
    for (uint64_t at = low; at < high;) {
        uint64_t end = type_at(driver, at) == HDCU_MEMORYTYPE_HOST ? hdi_address_end(driver, at) : at;
        if (end == at) {
            return hdi_fail(HD_ERROR_ARGUMENT,
                            "%" PRIu64 " bytes at 0x%" PRIx64 " are pinned in part: not from byte %" PRIu64
                            " on; import whole pinned ranges, or memory with pages of its own",
                            high - low, low, at - low);
        }
        at = end;
    }
    return HD_OK;
}

/* ---- the list: the lock is held ---- */

static uint64_t page_down(uint64_t address)
{
    return address / (uint64_t)sysconf(_SC_PAGESIZE) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t page_up(uint64_t address)
{
    return page_down(address + (uint64_t)sysconf(_SC_PAGESIZE) - 1);
}

static bool is_stale(const hdi_pin *p)
{
    return p->losses != atomic_load_explicit(&p->device->losses, memory_order_acquire);
}

/* A pin that has bytes of the range. With `pinned` the driver has answered that the range is pinned. Then pins count that share a page with it,
 * and those that may be gone with a lost device. `except`: none is returned that is this one. */
static hdi_pin *find(const struct hdi_pins *all, const hdi_pin *except, uint64_t low, uint64_t high, bool pinned)
{
    for (hdi_pin *p = all->list; p; p = p->next) {
        bool near = page_down(p->low) < page_up(high) && page_down(low) < page_up(p->high);
        bool overlaps = p->low < high && low < p->high;
        if (p != except && near && (p->busy || pinned || (overlaps && !is_stale(p)))) {
            return p;
        }
    }
    return NULL;
}

static void remove_pin(struct hdi_pins *all, hdi_pin *pin)
{
    hdi_pin **link = &all->list;
    while (*link != pin) {
        link = &(*link)->next;
    }
    *link = pin->next;
    all->ended++;
    pthread_cond_broadcast(&all->changed);
}

/* ---- the driver's pins ---- */

static hd_status no_device(hd_runtime *rt)
{
    return hdi_loss_fail(rt, hdi_any_device(rt)->index, "no device is left that could pin memory");
}

/* Why the driver refuses to pin bytes that are not pinned. The device's context is current. */
static hd_status refuse_bytes(hdi_device *device, uint64_t low, uint64_t high)
{
    if (type_at(device->runtime->driver, low) == HDCU_MEMORYTYPE_DEVICE) {
        return hdi_fail_driver(HD_ERROR_ARGUMENT, HDCU_ERROR_INVALID_VALUE, "cuMemHostRegister", device->index,
                               "0x%" PRIx64 " is memory of a device; hd_import takes it", low);
    }
    return hdi_fail_driver(HD_ERROR_ARGUMENT, HDCU_ERROR_INVALID_VALUE, "cuMemHostRegister", device->index,
                           "%" PRIu64 " bytes at 0x%" PRIx64
                           " are not all memory of the program that can be pinned; give the bytes of one allocation",
                           high - low, low);
}

static hd_status get_address(hdi_device *device, uint64_t low, uint64_t *address)
{
    hdcu_deviceptr at = 0;
    hdcu_result r = device->runtime->driver->cuMemHostGetDevicePointer(&at, (void *)(uintptr_t)low, 0);
    *address = at;
    return r == HDCU_SUCCESS ? HD_OK : hdi_driver_failed(device, r, "cuMemHostGetDevicePointer");
}

/* Pins the bytes of a busy pin. *pinned: they are pinned already, at least the first one. */
static hd_status make(hd_runtime *rt, hdi_pin *p, bool *pinned)
{
    const hdi_driver *driver = rt->driver;
    hdi_scope scope;
    hdi_device *device = enter_any(rt, &scope);
    if (!device) {
        return no_device(rt);
    }
    void *memory = (void *)(uintptr_t)p->low;
    p->device = device;
    p->losses = atomic_load_explicit(&device->losses, memory_order_acquire);
    hdcu_result r = driver->cuMemHostRegister(memory, p->high - p->low,
                                              HDCU_MEMHOSTREGISTER_PORTABLE | HDCU_MEMHOSTREGISTER_DEVICEMAP);
    hd_status status = HD_OK;
    /* What is pinned in part, or is not all there, is INVALID_VALUE of NVIDIA's driver. */
    *pinned = r == HDCU_ERROR_HOST_MEMORY_ALREADY_REGISTERED ||
              (r == HDCU_ERROR_INVALID_VALUE && type_at(driver, p->low) == HDCU_MEMORYTYPE_HOST);
    if (r == HDCU_ERROR_INVALID_VALUE && !*pinned) {
        status = refuse_bytes(device, p->low, p->high);
    } else if (r != HDCU_SUCCESS && !*pinned) {
        status = hdi_driver_failed(device, r, "cuMemHostRegister");
    } else if (!*pinned) {
        status = get_address(device, p->low, &p->address);
        if (status) {
            driver->cuMemHostUnregister(memory);
        }
    }
    hdi_scope_leave(&scope);
    return status;
}

/* Whether the program has pinned all the bytes. */
static hd_status use_theirs(hd_runtime *rt, uint64_t low, uint64_t high, uint64_t *address)
{
    hdi_scope scope;
    hdi_device *device = enter_any(rt, &scope);
    if (!device) {
        return no_device(rt);
    }
    hd_status status = check_pinned(rt->driver, low, high);
    status = status ? status : get_address(device, low, address);
    hdi_scope_leave(&scope);
    return status;
}

/* ---- taking one ---- */

typedef struct request {
    hd_runtime *runtime;
    uint64_t low, high;
    const char *label;
    int64_t deadline;
    uint64_t ended; /* pins, before the driver was called */
    hdi_pin *pin;
    uint64_t address;
} request;

static bool has_all(const hdi_pin *p, const request *q, bool pages)
{
    return pages ? page_down(p->low) <= q->low && q->high <= page_up(p->high) : p->low <= q->low && q->high <= p->high;
}

static void use(hdi_pin *p, request *q)
{
    p->users++;
    p->live++;
    hdi_utf8_copy(p->label, sizeof p->label, q->label ? q->label : "");
    q->pin = p;
    q->address = p->address + (q->low - p->low);
}

/* The bytes are in part those of a pin. The lock is held, and released meanwhile. */
static hd_status await_end(struct hdi_pins *all, const hdi_pin *p, const request *q)
{
    if (!p->busy && p->live) {
        return hdi_fail(HD_ERROR_ARGUMENT,
                        "%" PRIu64 " bytes at 0x%" PRIx64 " share pages in part with %" PRIu64 " bytes at 0x%" PRIx64
                        " that are pinned for the import%s%s%s; hd_free that one first, or import bytes with pages of "
                        "their own",
                        q->high - q->low, q->low, p->high - p->low, p->low, p->label[0] ? " '" : "", p->label,
                        p->label[0] ? "'" : "");
    }
    if (!p->busy && hdi_thread_is_own()) { /* the keeper, which would unpin them, may be what waits */
        return hdi_fail(HD_ERROR_ARGUMENT,
                        "%" PRIu64 " bytes at 0x%" PRIx64 " share pages in part with a freed import of %" PRIu64
                        " bytes at 0x%" PRIx64
                        " that is still in use; import them outside of functions that Heddle calls",
                        q->high - q->low, q->low, p->high - p->low, p->low);
    }
    if (hdi_is_closing(q->runtime)) {
        return hdi_closed_meanwhile();
    }
    int64_t look = hdi_deadline(LOOK_NS);
    if (!hdi_cond_wait(&all->changed, &all->lock, look < q->deadline ? look : q->deadline) &&
        hdi_clock_ns() >= q->deadline) {
        return hdi_fail(HD_ERROR_TIMEOUT,
                        "%" PRIu64 " bytes at 0x%" PRIx64
                        " share pages with a freed import that is still in use (option transfer_timeout)",
                        q->high - q->low, q->low);
    }
    return HD_OK;
}

/* Uses a pin that has the bytes, or waits until none has a part of them. q->pin NULL: there is none. `pinned`: see find. *again: a pin was waited for,
 * or has ended since the driver was asked. The lock is held. */
static hd_status search(struct hdi_pins *all, request *q, bool pinned, bool *again)
{
    *again = pinned && all->ended != q->ended;
    for (hdi_pin *p; !*again && (p = find(all, NULL, q->low, q->high, pinned)) != NULL;) {
        if (!p->busy && has_all(p, q, pinned)) {
            use(p, q);
            return HD_OK;
        }
        hd_status status = await_end(all, p, q);
        if (status) {
            return status;
        }
        *again = pinned;
    }
    return HD_OK;
}

/* The bytes are pinned. */
static hd_status take_pinned(struct hdi_pins *all, request *q, bool *again)
{
    hdi_mutex_lock(&all->lock);
    hd_status status = search(all, q, true, again);
    hdi_mutex_unlock(&all->lock);
    return status || q->pin || *again ? status : use_theirs(q->runtime, q->low, q->high, &q->address);
}

/* The limit lets nothing be pinned. Whether the program has pinned the bytes, and no import. While `p` is busy no other thread pins them. */
static bool take_at_limit(struct hdi_pins *all, request *q, const hdi_pin *p)
{
    hdi_mutex_lock(&all->lock);
    bool ours = find(all, p, q->low, q->high, true) != NULL;
    hdi_mutex_unlock(&all->lock);
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    bool taken = !ours && use_theirs(q->runtime, q->low, q->high, &q->address) == HD_OK;
    hdi_attempt_end(&attempt);
    return taken;
}

/* Makes a pin. No lock is held, and the pin is in the list as busy. Counts the pages first, so that the limit is never exceeded. */
static hd_status take_new(struct hdi_pins *all, request *q, hdi_pin *p, bool *again)
{
    hdi_host_pool *pool = hdi_memory_of(q->runtime)->host_pool;
    p->charged = page_up(p->high) - page_down(p->low);
    uint64_t charged = p->charged;
    bool pinned = false;
    hd_status status = hdi_host_pool_count_pinned(pool, charged);
    bool counted = !status;
    if (counted) {
        status = make(q->runtime, p, &pinned);
    } else if (take_at_limit(all, q, p)) {
        status = HD_OK;
    }
    bool made = counted && !status && !pinned;
    hdi_mutex_lock(&all->lock);
    if (made) {
        p->busy = false;
        use(p, q);
        pthread_cond_broadcast(&all->changed);
    } else {
        remove_pin(all, p);
        q->ended++; /* this one is none of those that end */
    }
    hdi_mutex_unlock(&all->lock);
    if (made) {
        return HD_OK;
    }
    free(p);
    if (counted) {
        hdi_host_pool_count_unpinned(pool, charged);
    }
    return pinned ? take_pinned(all, q, again) : status;
}

hd_status hdi_pin_take(hd_runtime *rt, uint64_t low, uint64_t high, const char *label, hdi_pin **out, uint64_t *address)
{
    struct hdi_pins *all = hdi_buffer_of(rt)->pins;
    request q = {.runtime = rt, .low = low, .high = high, .label = label};
    q.deadline = hdi_option_deadline(rt->options.transfer_timeout);
    hd_status status = HD_OK;
    for (bool again = true; again && !status && !q.pin;) {
        hdi_pin *p = calloc(1, sizeof *p);
        if (!p) {
            return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for a list of pins");
        }
        *p = (hdi_pin){.low = low, .high = high, .device = rt->devices[0], .busy = true};
        hdi_mutex_lock(&all->lock);
        status = search(all, &q, false, &again);
        bool makes = !status && !q.pin;
        if (makes) {
            p->next = all->list;
            all->list = p;
            q.ended = all->ended;
        }
        hdi_mutex_unlock(&all->lock);
        if (makes) {
            status = take_new(all, &q, p, &again);
        } else {
            free(p);
        }
    }
    *out = q.pin;
    *address = q.address;
    return status;
}

/* ---- ending a use ---- */

void hdi_pin_freed(hd_runtime *rt, hdi_pin *pin)
{
    struct hdi_pins *all = hdi_buffer_of(rt)->pins;
    hdi_mutex_lock(&all->lock);
    pin->live--;
    hdi_mutex_unlock(&all->lock);
}

/* Whether a newer pin has bytes of one that a lost device may have unpinned. The lock is held. */
static bool is_replaced(const struct hdi_pins *all, const hdi_pin *pin)
{
    for (const hdi_pin *p = all->list; p; p = p->next) {
        if (p != pin && p->low < pin->high && pin->low < p->high) {
            return true;
        }
    }
    return false;
}

void hdi_pin_drop(hd_runtime *rt, hdi_pin *pin)
{
    struct hdi_pins *all = hdi_buffer_of(rt)->pins;
    hdi_mutex_lock(&all->lock);
    bool last = --pin->users == 0;
    bool replaced = last && is_replaced(all, pin);
    pin->busy = last;
    hdi_mutex_unlock(&all->lock);
    if (!last) {
        return;
    }
    hdi_scope scope;
    /* As far as the driver lets it. Where all devices are lost it does not: the pages are unpinned with the contexts. */
    if (!replaced && enter_any(rt, &scope)) {
        rt->driver->cuMemHostUnregister((void *)(uintptr_t)pin->low);
        hdi_scope_leave(&scope);
    }
    /* before the wake-up, so that a thread that waited finds the limit as it is then */
    hdi_host_pool_count_unpinned(hdi_memory_of(rt)->host_pool, pin->charged);
    hdi_mutex_lock(&all->lock);
    remove_pin(all, pin);
    hdi_mutex_unlock(&all->lock);
    free(pin);
}

/* ---- the life of the list ---- */

static hd_status pins_create(hd_runtime *rt)
{
    struct hdi_pins *all = calloc(1, sizeof *all);
    if (!all) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    hdi_mutex_init(&all->lock, HDI_RANK_PINS);
    hdi_cond_init(&all->changed);
    hdi_buffer_of(rt)->pins = all;
    return HD_OK;
}

/* Where work did not end, what it may use stays pinned. */
static void pins_release(hd_runtime *rt)
{
    struct hdi_pins *all = hdi_buffer_of(rt)->pins;
    if (!all) {
        return;
    }
    for (hdi_pin *p; (p = all->list) != NULL;) {
        all->list = p->next;
        free(p);
    }
    pthread_cond_destroy(&all->changed);
    hdi_mutex_destroy(&all->lock);
    free(all);
    hdi_buffer_of(rt)->pins = NULL;
}

const hdi_lifetime hdi_pins_lifetime = {.create = pins_create, .release = pins_release};
