/* test_close_made.c - calls that are under way while hd_close ends all handles.
 *
 * Promise: hd_close waits for calls; objects that they make meanwhile get handles that are stale.
 *
 * The handles are stale from the first moment. A call finds its runtime open, and stops in a
 * wrapped function of the library. It continues once hd_close has ended all handles, and makes its
 * object. hd_close waits until the test tried that object's handle.
 *
 * In other cases a call describes a freed buffer, for which it looks into the runtime. hd_close
 * finds the call there.
 *
 * Threads: one that makes the call, and the main one, which closes.
 * Locks: none.
 * Always: hd_close waits for the call, and gives back the object that it made.
 */
#include "workers.h"

#include <pthread.h>
#include <stdatomic.h>
#include "base/presence.h"
#include "buffer/buffer.h"
#include "claim/claim.h"
#include "engine/archive.h"
#include "kernel/module.h"
#include "memory/thread_cache.h"

enum { bytes = 4096 };

static struct {
    _Atomic(hd_runtime *) runtime; /* threads of the library read it too, like */
    _Atomic(hd_lane *) lane;
    hd_buffer *pinned;
    hd_module *module; /* NULL: there are no kernels to load */
    const void *image;
    size_t image_bytes;
    atomic_bool stopped; /* the call reached the place where it stops */
    atomic_bool frozen;  /* hd_close keeps threads out of their caches of free memory */
    atomic_bool ended;   /* hd_close ended all handles */
    atomic_bool tried;   /* the test tried the handle of the new object */
    atomic_bool waits;   /* hd_close found the call that is stopped */
    atomic_bool begins;  /* a call is about to begin a claim */
    atomic_bool settled; /* hd_close found no open claim */
    atomic_bool returns; /* the call that began a claim returned */
} now;

static void await(atomic_bool *fact)
{
    while (!atomic_load(fact)) {
        conf_sleep_ms(1);
    }
}

/* ---- the places where a call and hd_close stop ---- */

static _Thread_local bool stops_when_open, stops_at_lane, stops_at_image, stops_at_buffer, stops_at_list, stops_at_uses;

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
    /* the archive of the lane that hd_lane_get_default makes for this thread */
    stop_once(&stops_at_lane);
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

void __real_hdi_buffers_lock(hd_runtime *rt);
void __wrap_hdi_buffers_lock(hd_runtime *rt);
void __wrap_hdi_buffers_lock(hd_runtime *rt)
{
    stop_once(&stops_at_list);
    __real_hdi_buffers_lock(rt);
}

void __real_hdi_thread_caches_freeze(hd_runtime *rt);
void __wrap_hdi_thread_caches_freeze(hd_runtime *rt);
void __wrap_hdi_thread_caches_freeze(hd_runtime *rt)
{
    hd_lane *own = now.lane;
    /* handles of lanes end first */
    if (rt == now.runtime && own != NULL && hd_lane_number(own) < 0) {
        atomic_store(&now.frozen, true);
    }
    __real_hdi_thread_caches_freeze(rt);
}

hd_status __real_hdi_uses_of_runtime(hd_runtime *rt, int device, const hd_arg *args, size_t n_args, hdi_use *uses);
hd_status __wrap_hdi_uses_of_runtime(hd_runtime *rt, int device, const hd_arg *args, size_t n_args, hdi_use *uses);
hd_status __wrap_hdi_uses_of_runtime(hd_runtime *rt, int device, const hd_arg *args, size_t n_args, hdi_use *uses)
{
    hd_status status = __real_hdi_uses_of_runtime(rt, device, args, n_args, uses);
    if (stops_at_uses) {
        stops_at_uses = false;
        atomic_store(&now.begins, true);
        atomic_store(&now.stopped, true);
        await(&now.settled);
    }
    return status;
}

void __real_hdi_callers_settle(hd_runtime *rt, int64_t deadline);
void __wrap_hdi_callers_settle(hd_runtime *rt, int64_t deadline);
void __wrap_hdi_callers_settle(hd_runtime *rt, int64_t deadline)
{
    __real_hdi_callers_settle(rt, deadline);
    if (rt == now.runtime && atomic_load(&now.begins)) {
        atomic_store(&now.settled, true);
        await(&now.returns);
    }
}

bool __real_hdi_presence_await(const void *runtime, int64_t deadline);
bool __wrap_hdi_presence_await(const void *runtime, int64_t deadline);
bool __wrap_hdi_presence_await(const void *runtime, int64_t deadline)
{
    if (runtime != now.runtime) {
        return __real_hdi_presence_await(runtime, deadline);
    }
    atomic_store(&now.waits, !__real_hdi_presence_await(runtime, 0));
    atomic_store(&now.ended, true); /* the call continues */
    bool out = __real_hdi_presence_await(runtime, deadline);
    await(&now.tried);
    return out;
}

/* ---- objects to make, and the use of their handles: each fails with HANDLE ---- */

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

/* It is refused instead, since no thread could end it. */
static void claim(void)
{
    hd_claim *made = NULL;
    stops_when_open = true;
    CONF_FAILS(hd_claim_begin(now.runtime, NULL, 0, &made), HD_ERROR_HANDLE);
    CONF_TRUE(made == NULL);
}

/* hd_close has just found that no claim is open, but handles did not end yet. */
static void claim_at_the_last_moment(void)
{
    hd_claim *made = NULL;
    hd_arg use = hd_inout(now.pinned);
    stops_at_uses = true;
    CONF_FAILS(hd_claim_begin(now.runtime, &use, 1, &made), HD_ERROR_HANDLE);
    CONF_TRUE(made == NULL);
    atomic_store(&now.returns, true);
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

/* A launch is refused for its lane already, so the case looks at the handle alone. */
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

/* The first buffer of the runtime: structures come in slabs, and this slab is made unseen by
 * hd_close. */
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

/* A buffer from a thread's magazine changes its handle without a lock. hd_close waits until no
 * thread is there. */
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

/* ---- calls on a buffer that was freed ---- */

static hd_buffer *freed(void)
{
    hd_buffer *x = NULL;
    CONF_OK(hd_alloc(now.lane, bytes, &x));
    CONF_OK(hd_free(x));
    stops_at_list = true;
    return x;
}

static const uint64_t shape[] = {bytes};

static void freed_tensor(void)
{
    hd_tensor made;
    CONF_FAILS_WITH(hd_tensor_make(freed(), 0, HD_TYPE_U8, 1, shape, &made), HD_ERROR_HANDLE, "freed");
    CONF_TRUE(atomic_load(&now.waits));
}

static void freed_strided_tensor(void)
{
    hd_tensor made;
    CONF_FAILS_WITH(hd_tensor_make_strided(freed(), 0, HD_TYPE_U8, 1, shape, (const int64_t[]){1}, &made),
                    HD_ERROR_HANDLE, "freed");
    CONF_TRUE(atomic_load(&now.waits));
}

static void freed_wait(void)
{
    CONF_FAILS_WITH(hd_buffer_wait(freed(), HD_READ, 0), HD_ERROR_HANDLE, "freed");
    CONF_TRUE(atomic_load(&now.waits));
}

static void freed_twice(void)
{
    CONF_FAILS_WITH(hd_free(freed()), HD_ERROR_HANDLE, "freed");
    CONF_TRUE(atomic_load(&now.waits));
}

typedef struct way {
    const char *name;
    void (*make_and_try)(void);
} way;

static void *makes(void *argument)
{
    const way *w = argument;
    w->make_and_try();
    atomic_store(&now.stopped, true); /* if it stopped nowhere */
    atomic_store(&now.tried, true);
    return NULL;
}

static void prepare(const char *settings)
{
    hd_lane *own = NULL;
    atomic_store(&now.lane, NULL);
    now.runtime = conf_open_with("close_timeout=100000 host_devices=1 host_memory=64M %s", settings);
    CONF_OK(hd_lane_create(now.runtime, 0, &own));
    now.lane = own;
    CONF_OK(hd_alloc_host(now.runtime, bytes, &now.pinned));
    now.module = NULL;
    now.image = wk_image(now.runtime, &now.image_bytes);
    if (now.image) {
        CONF_OK(hd_module_load(now.runtime, now.image, now.image_bytes, &now.module));
    }
    atomic_bool *facts[] = {&now.stopped, &now.frozen, &now.ended,   &now.tried,
                            &now.waits,   &now.begins, &now.settled, &now.returns};
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) {
        atomic_store(facts[i], false);
    }
}

static void close_beside(const way *ways, size_t n, const char *settings)
{
    conf_failure_ends_program = true;
    for (size_t i = 0; i < n; i++) {
        conf_watch(ways[i].name, 60);
        prepare(settings);
        pthread_t thread;
        way w = ways[i];
        CONF_EQUAL(pthread_create(&thread, NULL, makes, &w), 0);
        await(&now.stopped);
        conf_close(now.runtime);
        CONF_EQUAL(pthread_join(thread, NULL), 0);
    }
    conf_failure_ends_program = false;
}

static void made_beside_close_is_stale(void **state)
{
    (void)state;
    static const way ways[] = {
        {"hd_lane_create", lane},
        {"hd_lane_get_default", default_lane},
        {"hd_hold_create", hold},
        {"hd_claim_begin", claim},
        {"hd_claim_begin with a buffer", claim_at_the_last_moment},
        {"hd_module_load", module},
        {"hd_kernel_get", kernel},
        {"hd_alloc", buffer},
        {"hd_alloc_host", pinned_buffer},
        {"hd_alloc_unified", unified_buffer},
        {"hd_alloc out of a magazine", magazine},
    };
    close_beside(ways, sizeof ways / sizeof ways[0], "");
}

static void calls_on_what_was_freed_are_waited_for(void **state)
{
    (void)state;
    static const way ways[] = {
        {"hd_tensor_make", freed_tensor},
        {"hd_tensor_make_strided", freed_strided_tensor},
        {"hd_buffer_wait", freed_wait},
        {"hd_free", freed_twice},
    };
    close_beside(ways, sizeof ways / sizeof ways[0], "memory_debug=on memory_debug_file=/dev/null");
}

int main(void)
{
    conf_begin("test_close_made");
    const struct CMUnitTest tests[] = {
        CONF_CASE(made_beside_close_is_stale),
        CONF_CASE(calls_on_what_was_freed_are_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
