/* pin.c - pins of the program's memory, which imports share.
 *
 * The memory of a freed import stays pinned until the import's work is done. A little later, a
 * thread of the library, the keeper, unpins it. The program may import the same bytes again while
 * they are still pinned. The driver then reports that the bytes are pinned, but not whether Heddle
 * or the program pinned them. So a list in this file records the pins that Heddle made. An import
 * whose bytes lie inside one pin uses that pin, and the last user of a pin unpins the memory. A new
 * import may share only some bytes with a pin that only freed imports use. Then it waits until
 * their work is done and the pin ends. While a thread makes or ends a pin, the pin is busy, and
 * imports that need some of its pages wait.
 *
 * The driver pins memory for the whole process, so one list serves all runtimes of the process, and
 * the last user in any runtime unpins. The driver ends a pin together with the context that made
 * it. If the runtime that made the pin closes while another runtime uses the pin, Heddle retains
 * this context for the pin. The bytes of a pin count against the limit of each runtime that uses
 * it.
 *
 * If the device that made a pin was lost, the pin may be gone together with the device's context.
 * An import uses such a pin only if the driver still reports the memory as pinned.
 *
 * Threads: any; the keeper ends uses.
 * Locks: the list's lock, also held during fork(). Under this lock a thread takes only the lock of
 * a pool, to count bytes. The only driver calls under this lock are those that retain a context.
 * Blocking: see pin.h.
 * Always: two pins may overlap only if one of them is busy, or if the device of one was lost. Only
 * the thread that made a pin busy changes its bytes.
 * In a child made by fork() the list is empty.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/error.h"
#include "base/text.h"
#include "base/thread.h"
#include "base/wait.h"
#include "buffer/part.h"
#include "buffer/pin.h"
#include "engine/engine.h"
#include "memory/part.h"
/* a waiting thread checks at least this often whether the runtime is being closed */

#define LOOK_NS INT64_C(10000000)

/* One runtime's share of a pin. */
typedef struct share {
    struct share *next;
    hd_runtime *runtime;
    /* the number of imports that use the pin, and the number of those that the program has not
     * freed */
    int users, live;
} share;

struct hdi_pin {
    hdi_pin *next;
    const hdi_provider *provider;
    uint64_t low, high;
    uint64_t address; /* the address of `low` as devices see it */
    /* the device whose context made the pin; NULL: its runtime was closed, and no other runtime
     * uses this device */
    hdi_device *device;
    uint64_t losses; /* the device's count of losses when the memory was pinned */
    share *shares;
    bool busy;
    bool stays;                 /* work of a closed runtime may use the pin for ever */
    bool retains;               /* the pin retains the context */
    hdcu_device in;             /* the device of the retained context */
    char label[HD_LABEL_BYTES]; /* the label of the latest import that took the pin */
};

static struct hdi_pins {
    hdi_mutex lock;
    pthread_cond_t changed;
    hdi_pin *list;
    uint64_t ended; /* the number of pins that ended so far */
} pins = {.lock = HDI_MUTEX_INIT(PINS)};

/* ---- the driver's answers ---- */

bool hdi_pin_ask_address(const hdi_driver *driver, void *value, int attribute, uint64_t address, hdcu_result *r)
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
        if (hdi_pin_ask_address(driver, &start, pairs[i][0], address, &r) &&
            hdi_pin_ask_address(driver, &bytes, pairs[i][1], address, &r) && start <= address &&
            bytes > address - start && start + bytes < end) {
            end = start + bytes;
        }
    }
    return end == UINT64_MAX ? address : end;
}

/* The type of the memory at an address; -1: the driver does not know the memory. */
static int pin_type_at(const hdi_driver *driver, uint64_t address)
{
    int type = 0;
    hdcu_result r;
    return hdi_pin_ask_address(driver, &type, HDCU_POINTER_ATTRIBUTE_MEMORY_TYPE, address, &r) ? type : -1;
}

/* Enters a device that can make driver calls. NULL: none. */
static hdi_device *pin_enter_any(hd_runtime *rt, hdi_scope *scope)
{
    for (int i = 0; i < rt->n_devices; i++) {
        if (!hdi_device_lost(rt->devices[i]) && hdi_scope_enter(rt->devices[i], scope) == HD_OK) {
            return rt->devices[i];
        }
    }
    return NULL;
}

/* Fails unless all of the memory is pinned. */
static hd_status pin_check_pinned(const hdi_driver *driver, uint64_t low, uint64_t high)
{
    for (uint64_t at = low; at < high;) {
        uint64_t end = pin_type_at(driver, at) == HDCU_MEMORYTYPE_HOST ? hdi_address_end(driver, at) : at;
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

static uint64_t pin_page_down(uint64_t address)
{
    return address / (uint64_t)sysconf(_SC_PAGESIZE) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t pin_page_up(uint64_t address)
{
    return pin_page_down(address + (uint64_t)sysconf(_SC_PAGESIZE) - 1);
}

static bool pin_is_stale(const hdi_pin *p)
{
    return p->device && p->losses != atomic_load_explicit(&p->device->losses, memory_order_acquire);
}

/* Finds a pin other than `except` that overlaps the range. `pinned`: the driver reported the range
 * as pinned. Then a pin also counts if it only shares a page with the range, or may be gone with a
 * lost device. A busy pin always counts if it shares a page with the range. */
static hdi_pin *pin_find(const hd_runtime *rt, const hdi_pin *except, uint64_t low, uint64_t high, bool pinned)
{
    for (hdi_pin *p = pins.list; p; p = p->next) {
        bool near = pin_page_down(p->low) < pin_page_up(high) && pin_page_down(low) < pin_page_up(p->high);
        bool overlaps = p->low < high && low < p->high;
        if (p != except && p->provider == rt->provider && near &&
            (p->busy || pinned || (overlaps && !pin_is_stale(p)))) {
            return p;
        }
    }
    return NULL;
}

static void pin_remove(hdi_pin *pin)
{
    hdi_pin **link = &pins.list;
    while (*link != pin) {
        link = &(*link)->next;
    }
    *link = pin->next;
    pins.ended++;
    pthread_cond_broadcast(&pins.changed);
}

static share *pin_share_of(const hdi_pin *p, const hd_runtime *rt)
{
    share *s = p->shares;
    while (s && s->runtime != rt) {
        s = s->next;
    }
    return s;
}

static bool pin_is_live(const hdi_pin *p)
{
    bool live = false;
    for (const share *s = p->shares; s && !live; s = s->next) {
        live = s->live > 0;
    }
    return live;
}

/* The number of bytes that the pin adds to the count of each runtime with a share. */
static uint64_t pin_charge_of(const hdi_pin *p)
{
    return pin_page_up(p->high) - pin_page_down(p->low);
}

/* ---- the driver's pins ---- */

static hd_status pin_fail_no_device(hd_runtime *rt)
{
    return hdi_loss_fail(rt, hdi_any_device(rt)->index, "no device is left that could pin memory");
}

/* Reports why the driver refuses to pin bytes that are not pinned. The device's context is
 * current. */
static hd_status pin_refuse_bytes(hdi_device *device, uint64_t low, uint64_t high)
{
    if (pin_type_at(device->runtime->driver, low) == HDCU_MEMORYTYPE_DEVICE) {
        return hdi_fail_driver(HD_ERROR_ARGUMENT, HDCU_ERROR_INVALID_VALUE, "cuMemHostRegister", device->index,
                               "0x%" PRIx64 " is memory of a device; hd_import takes it", low);
    }
    return hdi_fail_driver(HD_ERROR_ARGUMENT, HDCU_ERROR_INVALID_VALUE, "cuMemHostRegister", device->index,
                           "%" PRIu64 " bytes at 0x%" PRIx64
                           " are not all memory of the program that can be pinned; give the bytes of one allocation",
                           high - low, low);
}

static hd_status pin_get_address(hdi_device *device, uint64_t low, uint64_t *address)
{
    hdcu_deviceptr at = 0;
    hdcu_result r = device->runtime->driver->cuMemHostGetDevicePointer(&at, (void *)(uintptr_t)low, 0);
    *address = at;
    return r == HDCU_SUCCESS ? HD_OK : hdi_driver_failed(device, r, "cuMemHostGetDevicePointer");
}

/* Pins the bytes of a busy pin. *pinned: at least some of the bytes are pinned already. */
static hd_status pin_make(hd_runtime *rt, hdi_pin *p, bool *pinned)
{
    const hdi_driver *driver = rt->driver;
    hdi_scope scope;
    hdi_device *device = pin_enter_any(rt, &scope);
    if (!device) {
        return pin_fail_no_device(rt);
    }
    void *memory = (void *)(uintptr_t)p->low;
    p->device = device;
    p->in = device->handle;
    p->losses = atomic_load_explicit(&device->losses, memory_order_acquire);
    hdcu_result r = driver->cuMemHostRegister(memory, p->high - p->low,
                                              HDCU_MEMHOSTREGISTER_PORTABLE | HDCU_MEMHOSTREGISTER_DEVICEMAP);
    hd_status status = HD_OK;
    /* NVIDIA's driver returns INVALID_VALUE if only a part of the memory is pinned, or if a part of
     * it does not exist. */
    *pinned = r == HDCU_ERROR_HOST_MEMORY_ALREADY_REGISTERED ||
              (r == HDCU_ERROR_INVALID_VALUE && pin_type_at(driver, p->low) == HDCU_MEMORYTYPE_HOST);
    if (r == HDCU_ERROR_INVALID_VALUE && !*pinned) {
        status = pin_refuse_bytes(device, p->low, p->high);
    } else if (r == HDCU_ERROR_OUT_OF_MEMORY) {
        status = hdi_fail_driver(HD_ERROR_HOST_MEMORY, r, "cuMemHostRegister", device->index,
                                 "%s cannot be pinned: %s; free pinned memory", HDI_BYTES(p->high - p->low),
                                 hdi_driver_code_name(r));
    } else if (r != HDCU_SUCCESS && !*pinned) {
        status = hdi_driver_failed(device, r, "cuMemHostRegister");
    } else if (!*pinned) {
        status = pin_get_address(device, p->low, &p->address);
        if (status) {
            driver->cuMemHostUnregister(memory);
        }
    }
    hdi_scope_leave(&scope);
    return status;
}

/* For memory that the program itself pinned: uses it if the program pinned all the bytes. Otherwise
 * fails. */
static hd_status pin_use_theirs(hd_runtime *rt, uint64_t low, uint64_t high, uint64_t *address)
{
    hdi_scope scope;
    hdi_device *device = pin_enter_any(rt, &scope);
    if (!device) {
        return pin_fail_no_device(rt);
    }
    hd_status status = pin_check_pinned(rt->driver, low, high);
    status = status ? status : pin_get_address(device, low, address);
    hdi_scope_leave(&scope);
    return status;
}

/* ---- taking a pin ---- */

typedef struct request {
    hd_runtime *runtime;
    uint64_t low, high;
    const char *label;
    int64_t deadline;
    uint64_t ended; /* the number of pins that ended before the driver was called */
    share *room;    /* memory for a share; the runtime needs it if it does not use the pin yet */
    hdi_pin *pin;
    uint64_t address;
} request;

static bool pin_has_all(const hdi_pin *p, const request *q, bool pages)
{
    return pages ? pin_page_down(p->low) <= q->low && q->high <= pin_page_up(p->high)
                 : p->low <= q->low && q->high <= p->high;
}

/* Notes that the import uses the pin. `counted`: the bytes already count against the runtime's
 * limit. Fails if the limit is too low, and then changes nothing. The lock is held. */
static hd_status pin_use(hdi_pin *p, request *q, bool counted)
{
    share *s = pin_share_of(p, q->runtime);
    if (!s) {
        hd_status status =
            counted ? HD_OK : hdi_host_pool_count_pinned(hdi_memory_of(q->runtime)->host_pool, pin_charge_of(p));
        if (status) {
            return status;
        }
        s = q->room;
        q->room = NULL;
        *s = (share){.next = p->shares, .runtime = q->runtime};
        p->shares = s;
    }
    s->users++;
    s->live++;
    hdi_utf8_copy(p->label, sizeof p->label, q->label ? q->label : "");
    q->pin = p;
    q->address = p->address + (q->low - p->low);
    return HD_OK;
}

/* Called if the pin `p` covers only a part of the bytes. Waits for the end of that pin. The lock is
 * held, and released during the wait. */
static hd_status pin_await_end(const hdi_pin *p, const request *q)
{
    if (!p->busy && (pin_is_live(p) || p->stays)) {
        return hdi_fail(HD_ERROR_ARGUMENT,
                        "%" PRIu64 " bytes at 0x%" PRIx64 " share pages in part with %" PRIu64 " bytes at 0x%" PRIx64
                        " that are pinned for the import%s%s%s; hd_free that one first, or import bytes with pages of "
                        "their own",
                        q->high - q->low, q->low, p->high - p->low, p->low, p->label[0] ? " '" : "", p->label,
                        p->label[0] ? "'" : "");
    }
    /* a thread of the library must not wait, since it may be the keeper, which would have to unpin
     * the bytes */
    if (!p->busy && hdi_thread_is_own()) {
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
    if (!hdi_cond_wait(&pins.changed, &pins.lock, look < q->deadline ? look : q->deadline) &&
        hdi_clock_ns() >= q->deadline) {
        return hdi_fail(HD_ERROR_TIMEOUT,
                        "%" PRIu64 " bytes at 0x%" PRIx64
                        " share pages with a freed import that is still in use (option transfer_timeout)",
                        q->high - q->low, q->low);
    }
    return HD_OK;
}

/* Uses a pin that covers the bytes, or waits until no pin covers a part of them. If q->pin is NULL
 * afterwards, no pin covers any of the bytes. `pinned`: see pin_find. *again: this function waited,
 * or a pin ended after the thread asked the driver. The lock is held. */
static hd_status pin_search(request *q, bool pinned, bool *again)
{
    *again = pinned && pins.ended != q->ended;
    for (hdi_pin *p; !*again && (p = pin_find(q->runtime, NULL, q->low, q->high, pinned)) != NULL;) {
        if (!p->busy && pin_has_all(p, q, pinned)) {
            return pin_use(p, q, false);
        }
        hd_status status = pin_await_end(p, q);
        if (status) {
            return status;
        }
        *again = pinned;
    }
    return HD_OK;
}

/* Called if the driver reports the bytes as pinned. */
static hd_status pin_take_pinned(request *q, bool *again)
{
    hdi_mutex_lock(&pins.lock);
    hd_status status = pin_search(q, true, again);
    hdi_mutex_unlock(&pins.lock);
    return status || q->pin || *again ? status : pin_use_theirs(q->runtime, q->low, q->high, &q->address);
}

/* Called if the limit allows no new pin. True if the program pinned the bytes itself. Since the
 * busy pin `p` covers the bytes, no other thread of the library pins them. */
static bool pin_take_at_limit(request *q, const hdi_pin *p)
{
    hdi_mutex_lock(&pins.lock);
    bool ours = pin_find(q->runtime, p, q->low, q->high, true) != NULL;
    hdi_mutex_unlock(&pins.lock);
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    bool taken = !ours && pin_use_theirs(q->runtime, q->low, q->high, &q->address) == HD_OK;
    hdi_attempt_end(&attempt);
    return taken;
}

/* Makes a pin. No lock is held, and the list contains the pin as busy. Counts the pages against the
 * limit before the driver pins them, so that the limit is never exceeded. */
static hd_status pin_take_new(request *q, hdi_pin *p, bool *again)
{
    hdi_host_pool *pool = hdi_memory_of(q->runtime)->host_pool;
    uint64_t charged = pin_charge_of(p);
    bool pinned = false;
    hd_status status = hdi_host_pool_count_pinned(pool, charged);
    bool counted = !status;
    if (counted) {
        status = pin_make(q->runtime, p, &pinned);
    } else if (pin_take_at_limit(q, p)) {
        status = HD_OK;
    }
    bool made = counted && !status && !pinned;
    hdi_mutex_lock(&pins.lock);
    if (made) {
        p->busy = false;
        pin_use(p, q, true);
        pthread_cond_broadcast(&pins.changed);
    } else {
        pin_remove(p);
        q->ended++; /* this pin does not count as one that ended */
    }
    hdi_mutex_unlock(&pins.lock);
    if (made) {
        return HD_OK;
    }
    free(p);
    if (counted) {
        hdi_host_pool_count_unpinned(pool, charged);
    }
    return pinned ? pin_take_pinned(q, again) : status;
}

/* One try. *again: the state changed during the try. */
static hd_status pin_try_take(request *q, bool *again)
{
    hdi_pin *p = calloc(1, sizeof *p);
    if (!p) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for a list of pins");
    }
    *p = (hdi_pin){.provider = q->runtime->provider,
                   .low = q->low,
                   .high = q->high,
                   .device = q->runtime->devices[0],
                   .busy = true};
    hdi_mutex_lock(&pins.lock);
    hd_status status = pin_search(q, false, again);
    bool makes = !status && !q->pin;
    if (makes) {
        p->next = pins.list;
        pins.list = p;
        q->ended = pins.ended;
    }
    hdi_mutex_unlock(&pins.lock);
    if (makes) {
        return pin_take_new(q, p, again);
    }
    free(p);
    return status;
}

hd_status hdi_pin_take(hd_runtime *rt, uint64_t low, uint64_t high, const char *label, hdi_pin **out, uint64_t *address)
{
    request q = {.runtime = rt, .low = low, .high = high, .label = label};
    q.deadline = hdi_option_deadline(rt->options.transfer_timeout);
    q.room = malloc(sizeof *q.room);
    hd_status status = q.room ? HD_OK : hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for a list of pins");
    for (bool again = true; again && !status && !q.pin;) {
        status = pin_try_take(&q, &again);
    }
    free(q.room);
    *out = q.pin;
    *address = q.address;
    return status;
}

/* ---- ending a use ---- */

void hdi_pin_freed(hd_runtime *rt, hdi_pin *pin)
{
    hdi_mutex_lock(&pins.lock);
    pin_share_of(pin, rt)->live--;
    hdi_mutex_unlock(&pins.lock);
}

/* True if the pin may have ended with a lost device, and a newer pin covers some of its bytes. The
 * lock is held. */
static bool pin_is_replaced(const hdi_pin *pin)
{
    for (const hdi_pin *p = pins.list; p; p = p->next) {
        if (p != pin && p->provider == pin->provider && p->low < pin->high && pin->low < p->high) {
            return true;
        }
    }
    return false;
}

/* Unpins, if the driver still accepts calls. If all devices are lost, it does not, and it unpins
 * the pages when it ends the contexts. */
static void pin_unpin(hd_runtime *rt, const hdi_pin *pin, bool replaced)
{
    hdi_scope scope;
    if (!replaced && pin_enter_any(rt, &scope)) {
        rt->driver->cuMemHostUnregister((void *)(uintptr_t)pin->low);
        hdi_scope_leave(&scope);
    }
    if (pin->retains) {
        rt->driver->cuDevicePrimaryCtxRelease(pin->in);
    }
}

/* Removes the runtime's share. The lock is held. */
static void pin_remove_share(hdi_pin *pin, share *own)
{
    share **link = &pin->shares;
    while (*link != own) {
        link = &(*link)->next;
    }
    *link = own->next;
}

void hdi_pin_drop(hd_runtime *rt, hdi_pin *pin)
{
    hdi_mutex_lock(&pins.lock);
    share *own = pin_share_of(pin, rt);
    bool gone = --own->users == 0;
    if (gone) {
        pin_remove_share(pin, own);
    }
    bool last = !pin->shares && !pin->stays;
    bool replaced = last && pin_is_replaced(pin);
    uint64_t charged = pin_charge_of(pin);
    pin->busy = last;
    hdi_mutex_unlock(&pins.lock);
    if (last) {
        pin_unpin(rt, pin, replaced);
    }
    if (gone) {
        free(own);
        /* lower the count before the wake-up, so that the woken thread sees the lower count */
        hdi_host_pool_count_unpinned(hdi_memory_of(rt)->host_pool, charged);
    }
    if (last) {
        hdi_mutex_lock(&pins.lock);
        pin_remove(pin);
        hdi_mutex_unlock(&pins.lock);
        free(pin);
    }
}

/* ---- the life of the list ---- */

static void pins_before_fork(void)
{
    hdi_mutex_lock_at_fork(&pins.lock);
}

static void pins_in_parent(void)
{
    hdi_mutex_unlock(&pins.lock);
}

/* The child uses no runtime of the parent. */
static void pins_in_child(void)
{
    pins.list = NULL;
    hdi_cond_init(&pins.changed);
    hdi_mutex_unlock(&pins.lock);
}

static void pins_begin(void)
{
    hdi_cond_init(&pins.changed);
    pthread_atfork(pins_before_fork, pins_in_parent, pins_in_child);
}

static hd_status pins_create(hd_runtime *rt)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)rt;
    pthread_once(&once, pins_begin);
    return HD_OK;
}

/* Called if the runtime whose device made the pin closes while other runtimes use the pin. Retains
 * the context, and gives the pin to the same device of another runtime. The lock is held. */
static void pin_hand_over(hd_runtime *rt, hdi_pin *p)
{
    hdcu_context context;
    if (!p->retains) {
        p->retains = rt->driver->cuDevicePrimaryCtxRetain(&context, p->in) == HDCU_SUCCESS;
    }
    bool stale = pin_is_stale(p);
    int ordinal = p->device->ordinal;
    p->device = NULL;
    for (const share *s = p->shares; s && !p->device && !stale; s = s->next) {
        for (int i = 0; i < s->runtime->n_devices && !p->device; i++) {
            hdi_device *d = s->runtime->devices[i];
            p->device = d->ordinal == ordinal ? d : NULL;
        }
    }
    p->losses = p->device ? atomic_load_explicit(&p->device->losses, memory_order_acquire) : 0;
}

/* Ends the runtime's shares. Pins stay if unfinished work of the runtime may use them. */
static void pins_release(hd_runtime *rt)
{
    hdi_mutex_lock(&pins.lock);
    for (hdi_pin *p = pins.list; p; p = p->next) {
        share *own = pin_share_of(p, rt);
        if (own) {
            p->stays = true;
            pin_remove_share(p, own);
            free(own);
        }
        if (!p->busy && p->device &&
            /* a busy pin is left to the thread that makes or ends it */
            p->device->runtime == rt) {
            pin_hand_over(rt, p);
        }
    }
    hdi_mutex_unlock(&pins.lock);
}

const hdi_lifetime hdi_pins_lifetime = {.create = pins_create, .release = pins_release};
