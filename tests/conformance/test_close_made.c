/* test_close_made.c - what calls make while hd_close ends all handles.
 *
 * Promise: What a call makes while hd_close is under way has a handle that is stale from its first moment.
 *
 * A call has found its runtime open, and stops in a wrapped function of the library. It goes on when hd_close has ended all handles, and makes
 * its object. hd_close stands still until that object's handle has been tried.
 *
 * Threads: one that makes the call, and the main one, which closes.
 * Locks: none.
 * Always: hd_close waits for the call, and gives back what it made.
 */
#include "workers.h"

#include <pthread.h>
#include <stdatomic.h>
#include "base/presence.h"
#include "buffer/buffer.h"
#include "kernel/module.h"
#include "memory/thread_cache.h"

enum { bytes = 4096 };

static struct {
    _Atomic(hd_runtime *) runtime; /* read by the library's threads, too, like */
    _Atomic(hd_lane *) lane;
    hd_module *module; /* NULL: there are no kernels to load */
    const void *image;
    size_t image_bytes;
    atomic_bool stopped; /* the call has been where it stops */
    atomic_bool frozen;  /* hd_close keeps threads out of their caches of free memory */
    atomic_bool ended;   /* hd_close has ended all handles */
    atomic_bool tried;   /* the handle of what the call made */
} now;

static void await(atomic_bool *fact)
{
    while (!atomic_load(fact)) {
        conf_sleep_ms(1);
    }
}

/* ---- where a call stops, and hd_close ---- */

static _Thread_local bool stops_when_open, stops_at_lane, stops_at_image, stops_at_buffer;

static void stop_once(bool *here)
{
    if (*here) {
        *here = false;
        atomic_store(&now.stopped, true);
        await(&now.ended);
    }
}

bool __real_hdi_runtime_is_open(const hd_runtime *rt);
bool __wrap_hdi_runtime_is_open(const hd_runtime *rt);
bool __wrap_hdi_runtime_is_open(const hd_runtime *rt)
{
    bool open = __real_hdi_runtime_is_open(rt);
    stop_once(&stops_when_open);
    return open;
}

hdi_archive *__real_hdi_archive_make(void);
hdi_archive *__wrap_hdi_archive_make(void);
hdi_archive *__wrap_hdi_archive_make(void)
{
    stop_once(&stops_at_lane); /* which hd_lane_get_default makes for this thread */
    return __real_hdi_archive_make();
}

hd_status __real_hdi_image_find(const hdi_image *image, const char *wanted, const char **symbol,
                                char shown[HDI_KERNEL_NAME_BYTES]);
hd_status __wrap_hdi_image_find(const hdi_image *image, const char *wanted, const char **symbol,
                                char shown[HDI_KERNEL_NAME_BYTES]);
hd_status __wrap_hdi_image_find(const hdi_image *image, const char *wanted, const char **symbol,
                                char shown[HDI_KERNEL_NAME_BYTES])
{
    stop_once(&stops_at_image);
    return __real_hdi_image_find(image, wanted, symbol, shown);
}

struct hd_buffer *__real_hdi_buffer_take(hd_runtime *rt);
struct hd_buffer *__wrap_hdi_buffer_take(hd_runtime *rt);
struct hd_buffer *__wrap_hdi_buffer_take(hd_runtime *rt)
{
    stop_once(&stops_at_buffer);
    return __real_hdi_buffer_take(rt);
}

void __real_hdi_thread_caches_freeze(hd_runtime *rt);
void __wrap_hdi_thread_caches_freeze(hd_runtime *rt);
void __wrap_hdi_thread_caches_freeze(hd_runtime *rt)
{
    hd_lane *own = now.lane;
    if (rt == now.runtime && own != NULL && hd_lane_number(own) < 0) { /* lanes' handles are the first that end */
        atomic_store(&now.frozen, true);
    }
    __real_hdi_thread_caches_freeze(rt);
}

bool __real_hdi_presence_await(const void *runtime, int64_t deadline);
bool __wrap_hdi_presence_await(const void *runtime, int64_t deadline);
bool __wrap_hdi_presence_await(const void *runtime, int64_t deadline)
{
    if (runtime != now.runtime) {
        return __real_hdi_presence_await(runtime, deadline);
    }
    atomic_store(&now.ended, true);
    bool out = __real_hdi_presence_await(runtime, deadline);
    await(&now.tried);
    return out;
}

/* ---- what is made, and how its handle is tried: each fails with HANDLE ---- */

static void try_lane(hd_lane *made)
{
    hd_ticket ticket;
    CONF_FAILS(hd_lane_get_ticket(made, &ticket), HD_ERROR_HANDLE);
    CONF_FAILS(hd_lane_wait(made, 0), HD_ERROR_HANDLE);
}

static void lane(void)
{
    hd_lane *made = NULL;
    stops_when_open = true;
    CONF_OK(hd_lane_create(now.runtime, 0, &made));
    try_lane(made);
    CONF_FAILS(hd_lane_destroy(made), HD_ERROR_HANDLE);
}

static void default_lane(void)
{
    hd_lane *made = NULL;
    stops_at_lane = true;
    CONF_OK(hd_lane_get_default(now.runtime, 0, &made));
    try_lane(made);
}

static void hold(void)
{
    hd_hold *made = NULL;
    stops_when_open = true;
    CONF_OK(hd_hold_create(now.runtime, &made));
    CONF_FAILS(hd_hold_destroy(made), HD_ERROR_HANDLE);
}

static void module(void)
{
    hd_module *made = NULL;
    hd_kernel *kernel = NULL;
    stops_when_open = now.module != NULL;
    if (now.module) {
        CONF_OK(hd_module_load(now.runtime, now.image, now.image_bytes, &made));
        CONF_FAILS(hd_kernel_get(made, "spin", &kernel), HD_ERROR_HANDLE);
        CONF_FAILS(hd_module_unload(made), HD_ERROR_HANDLE);
    }
}

/* A launch is refused for its lane already, so the handle alone is looked at. */
static void kernel(void)
{
    hd_kernel *made = NULL;
    stops_at_image = now.module != NULL;
    if (now.module) {
        CONF_OK(hd_kernel_get(now.module, "spin", &made));
        CONF_TRUE(made != NULL && hdi_kernel_from_handle(made) == NULL);
    }
}

static void try_buffer(hd_buffer *made)
{
    CONF_EQUAL(hd_buffer_size(made), 0);
    CONF_FAILS(hd_buffer_wait(made, HD_READ, 0), HD_ERROR_HANDLE);
    CONF_FAILS(hd_free(made), HD_ERROR_HANDLE);
}

/* The runtime's first buffer: structures are made in slabs, and this slab is made behind hd_close's back. */
static void buffer(void)
{
    hd_buffer *made = NULL;
    stops_at_buffer = true;
    CONF_OK(hd_alloc(now.lane, bytes, &made));
    try_buffer(made);
}

static void pinned_buffer(void)
{
    hd_buffer *made = NULL;
    stops_at_buffer = true;
    CONF_OK(hd_alloc_host(now.runtime, bytes, &made));
    try_buffer(made);
}

static void unified_buffer(void)
{
    hd_buffer *made = NULL;
    stops_at_buffer = true;
    CONF_OK(hd_alloc_unified(now.lane, bytes, &made));
    try_buffer(made);
}

/* A buffer that comes out of a thread's magazine changes its handle without a lock. hd_close waits until no thread is there. */
static void magazine(void)
{
    hd_buffer *first = NULL;
    CONF_OK(hd_alloc(now.lane, bytes, &first));
    CONF_OK(hd_free(first));
    hdi_thread_cache *cache = hdi_thread_cache_own(now.runtime);
    CONF_TRUE(cache != NULL);
    hdi_thread_cache_enter(cache);
    atomic_store(&now.stopped, true);
    while (!atomic_load(&now.frozen) && !atomic_load(&now.ended)) {
        conf_sleep_ms(1);
    }
    bool too_early = atomic_load(&now.ended);
    hdi_thread_cache_leave(cache);
    CONF_TRUE(!too_early);
}

static const struct {
    const char *name;
    void (*make_and_try)(void);
} ways[] = {
    {"hd_lane_create", lane},
    {"hd_lane_get_default", default_lane},
    {"hd_hold_create", hold},
    {"hd_module_load", module},
    {"hd_kernel_get", kernel},
    {"hd_alloc", buffer},
    {"hd_alloc_host", pinned_buffer},
    {"hd_alloc_unified", unified_buffer},
    {"hd_alloc out of a magazine", magazine},
};

static void *makes(void *argument)
{
    void (*make_and_try)(void) = *(void (*const *)(void))argument;
    make_and_try();
    atomic_store(&now.stopped, true); /* where there was nothing to make */
    atomic_store(&now.tried, true);
    return NULL;
}

static void prepare(void)
{
    hd_lane *own = NULL;
    atomic_store(&now.lane, NULL);
    now.runtime = conf_open("close_timeout=100000 host_devices=1 host_memory=64M");
    CONF_OK(hd_lane_create(now.runtime, 0, &own));
    now.lane = own;
    now.module = NULL;
    now.image = wk_image(now.runtime, &now.image_bytes);
    if (now.image) {
        CONF_OK(hd_module_load(now.runtime, now.image, now.image_bytes, &now.module));
    }
    atomic_bool *facts[] = {&now.stopped, &now.frozen, &now.ended, &now.tried};
    for (int i = 0; i < 4; i++) {
        atomic_store(facts[i], false);
    }
}

static void made_beside_close_is_stale(void **state)
{
    (void)state;
    conf_failure_ends_program = true;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        conf_watch(ways[i].name, 60);
        prepare();
        pthread_t thread;
        void (*make_and_try)(void) = ways[i].make_and_try;
        CONF_EQUAL(pthread_create(&thread, NULL, makes, &make_and_try), 0);
        await(&now.stopped);
        conf_close(now.runtime);
        CONF_EQUAL(pthread_join(thread, NULL), 0);
    }
    conf_failure_ends_program = false;
}

int main(void)
{
    conf_begin("test_close_made");
    const struct CMUnitTest tests[] = {CONF_CASE(made_beside_close_is_stale)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
