/* host_pool_tools.h - for tests of the pool of pinned memory: a fake port that keeps records, the
 * finished work, and helpers to take and give blocks.
 *
 * Threads: the port works in every one; the asserts are for the main one. Locks: none; the pool's
 * lock guards the records.
 * Always: a pool that ends has unpinned everything.
 */
#ifndef TEST_MEMORY_HOST_POOL_TOOLS_H
#define TEST_MEMORY_HOST_POOL_TOOLS_H

#include "support/check.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>
#include "base/error.h"
#include "memory/host_pool.h"

#define MIB ((size_t)1 << 20)
enum { LANES = 6, PINS = 512 };

/* Per lane, the last position that counts as finished in the test. */
static _Atomic uint64_t done_to[LANES];
static _Atomic uint64_t lost; /* bits of devices that count as lost; lane i belongs to device i */

static struct {
    hdi_port port; /* first */
    _Atomic uint64_t pinned, peak, requests;
    _Atomic int fail_pins, fail_unpins; /* how many of the next requests fail */
    int code;
    const void *registered[PINS]; /* under the pool's lock */
    _Atomic bool slow;
} device;

static inline const void **find(const void *base)
{
    for (int i = 0; i < PINS; i++) {
        if (device.registered[i] == base) {
            return &device.registered[i];
        }
    }
    return NULL;
}

static inline hdi_answer pin(hdi_port *port, void *base, uint64_t bytes, int descriptor, uint64_t *address)
{
    (void)port;
    (void)descriptor;
    atomic_fetch_add(&device.requests, 1);
    if (atomic_load(&device.slow)) {
        usleep(100);
    }
    if (atomic_load(&device.fail_pins) > 0) {
        atomic_fetch_sub(&device.fail_pins, 1);
        return (hdi_answer){device.code, "cuMemHostRegister"};
    }
    *find(NULL) = base;
    uint64_t now = atomic_fetch_add(&device.pinned, bytes) + bytes;
    uint64_t peak = atomic_load(&device.peak);
    while (now > peak && !atomic_compare_exchange_weak(&device.peak, &peak, now)) {
    }
    *address = (uintptr_t)base;
    return (hdi_answer){0, ""};
}

static inline hdi_answer unpin(hdi_port *port, void *base, uint64_t bytes)
{
    (void)port;
    atomic_fetch_add(&device.requests, 1);
    const void **entry = find(base);
    if (entry == NULL) {
        return (hdi_answer){HDCU_ERROR_HOST_MEMORY_NOT_REGISTERED, "cuMemHostUnregister"};
    }
    if (atomic_load(&device.fail_unpins) > 0) {
        atomic_fetch_sub(&device.fail_unpins, 1);
        return (hdi_answer){device.code, "cuMemHostUnregister"};
    }
    *entry = NULL;
    atomic_fetch_sub(&device.pinned, bytes);
    return (hdi_answer){0, ""};
}

static const hdi_port_calls calls = {.pin = pin, .unpin = unpin};

static inline hdi_port *port_of(void *context, int number)
{
    (void)context;
    (void)number;
    return &device.port;
}

static inline bool finished(void *context, hdi_point point)
{
    assert_ptr_equal(context, done_to);
    return atomic_load(&done_to[point.lane]) >= point.position && !(atomic_load(&lost) >> point.lane & 1);
}

static inline uint64_t lost_devices(void *context)
{
    (void)context;
    return atomic_load(&lost);
}

static hdi_pinned_pool *pinned;
static size_t page;

static inline hdi_host_pool *make(uint64_t limit)
{
    page = (size_t)sysconf(_SC_PAGESIZE);
    memset(&device, 0, sizeof device);
    device.port.calls = &calls;
    for (int i = 0; i < LANES; i++) {
        atomic_store(&done_to[i], 0);
    }
    atomic_store(&lost, 0);
    const hdi_pinned_config pinned_config = {.n_devices = 1, .port = port_of};
    assert_ok(hdi_pinned_pool_create(&pinned_config, &pinned));
    const hdi_host_pool_config config = {
        .pinned = pinned, .limit_bytes = limit, .finished = finished, .lost = lost_devices, .context = done_to};
    hdi_host_pool *pool = NULL;
    assert_ok(hdi_host_pool_create(&config, &pool));
    return pool;
}

static inline void check(hdi_host_pool *pool)
{
    char why[160] = "";
    if (!hdi_host_pool_check(pool, why, sizeof why)) {
        fail_msg("%s", why);
    }
}

static inline void end(hdi_host_pool *pool)
{
    check(pool);
    hdi_host_pool_destroy(pool, false);
    assert_int_equal(atomic_load(&device.pinned), 0);
    hdi_pinned_pool_destroy(pinned);
}

static inline hdi_host_pool_info info_of(hdi_host_pool *pool)
{
    hdi_host_pool_info info;
    hdi_host_pool_get_info(pool, &info);
    return info;
}

/* Takes a block; *waits is the number of its points. */
static inline hdi_host_block take_from(hdi_host_pool *pool, size_t bytes, size_t *waits)
{
    hdi_host_block block = {0};
    hdi_points inherited;
    assert_ok(hdi_host_pool_take(pool, bytes, false, &block, &inherited));
    assert_int_equal((uintptr_t)block.host % page, 0);
    assert_int_equal(block.device, (uintptr_t)block.host);
    *waits = inherited.count;
    hdi_points_release(&inherited);
    return block;
}

/* Takes a block that no work uses. */
static inline hdi_host_block take(hdi_host_pool *pool, size_t bytes)
{
    size_t waits;
    hdi_host_block block = take_from(pool, bytes, &waits);
    assert_int_equal(waits, 0);
    return block;
}

static inline void give(hdi_host_pool *pool, hdi_host_block *block)
{
    hdi_host_pool_give(pool, block, NULL, 0);
    assert_null(block->space);
}

static inline void give_in_use(hdi_host_pool *pool, hdi_host_block *block, uint32_t lane, uint64_t position)
{
    hdi_host_pool_give(pool, block, &(hdi_point){lane, position}, 1);
}

static inline void fails(hdi_host_pool *pool, size_t bytes, hd_status status)
{
    hdi_host_block block = {.offset = 7};
    hdi_points inherited;
    assert_status(hdi_host_pool_take(pool, bytes, false, &block, &inherited), status);
    assert_int_equal(block.offset, 7);
}

#endif
