/* test_pairs.c - every pair of public calls on one object by two threads, one of which ends the
 * object: refused or done, never undefined.
 *
 * Promise: Any call that crosses the end of its object is refused or done, never undefined.
 * Tier: stress.
 *
 * At compile time make_pairs makes the list of calls and of their handles from the public headers.
 * Without a recipe in pairs_calls.h for every public function this file does not compile. A
 * function that seems to end an object, but is neither in `ends` nor in `no_ends`, fails the first
 * case by name.
 *
 * One thread makes the call over and over, with the current handle. The main thread makes objects
 * and ends them, each during a call or between two of them. A call may return only statuses that
 * are allowed for good and for stale handles. Afterwards nothing of the ended objects is left.
 *
 * Environment:
 * - HEDDLE_PAIR_MS: how long each pair runs, at least LEAST_ENDS times
 * - HEDDLE_ONLY_PAIR=NAME: only that function's pairs
 *
 * Threads: the main one and one caller.
 * Locks: none.
 * Always: a call that begins after an end returned returns HANDLE.
 */
#include "pairs_calls.h"
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pool.h"

typedef enum type { T_hd_runtime, T_hd_lane, T_hd_buffer, T_hd_module, T_hd_kernel, T_hd_hold, T_hd_claim } type;

static const struct pair_call {
    const char *name;
    type of;
    recipe *call;
} calls[] = {
#define PAIR_CALL(name, of) {#name, T_##of, recipe_##name},
#define PAIR_APART(name)
#define PAIR_END(name, of)
#include "pairs.h"
#undef PAIR_CALL
#undef PAIR_END
};
enum { CALLS = sizeof calls / sizeof calls[0] };

static const char *const look_like_ends[] = {
#define PAIR_CALL(name, of)
#define PAIR_END(name, of) #name,
#include "pairs.h"
};

/* ---- objects and their ends ---- */

static void end_buffer(things *t)
{
    hd_free(t->buffer);
}

static void end_module(things *t)
{
    hd_module_unload(t->module);
}

static void end_lane(things *t)
{
    hd_lane_destroy(t->lane);
}

static void end_hold(things *t)
{
    hd_hold_destroy(t->hold);
}

static void end_claim(things *t)
{
    hd_claim_end(t->claim, HD_OK);
}

/* Fills the buffer under the thread sanitizer. A read of unwritten bytes waits for no work, since
 * they are undefined: work of the memory's former owner may still write there. The thread sanitizer
 * would report that. */
static void begin_content(hd_buffer *buffer)
{
    if (CONF_TSAN) {
        CONF_OK(hd_fill(buffer, 0, 0, PAIR_BYTES, NULL));
    }
}

static void make_device_buffer(things *t, uint64_t turn)
{
    CONF_OK(hd_alloc(conf_default_lane(t->runtime, 0), PAIR_BYTES, &t->buffer));
    begin_content(t->buffer);
    if (turn % 3 == 0) { /* a record of several parts */
        CONF_OK(hd_fill(t->buffer, 512, 1, 512, NULL));
    }
}

static void make_pinned_buffer(things *t, uint64_t turn)
{
    CONF_OK(hd_alloc_host(t->runtime, PAIR_BYTES, &t->buffer));
    begin_content(t->buffer);
    if (turn % 3 == 0) {
        CONF_OK(hd_fill(t->buffer, 512, 1, 512, NULL));
    }
}

static void make_unified_buffer(things *t, uint64_t turn)
{
    CONF_OK(hd_alloc_unified(conf_default_lane(t->runtime, 0), PAIR_BYTES, &t->buffer));
    begin_content(t->buffer);
    if (turn % 3 == 0) { /* newer on the host */
        CONF_TRUE(hd_put_f32(t->buffer, 3, 1));
    } else if (turn % 3 == 1) { /* ... and on the device */
        CONF_OK(hd_fill(t->buffer, 512, 1, 512, NULL));
    }
}

static void make_kept_buffer(things *t, uint64_t turn)
{
    const hd_alloc_options keep = {.size = sizeof keep, .flags = HD_ALLOC_KEEP};
    CONF_OK(hd_alloc_with(conf_default_lane(t->runtime, 0), PAIR_BYTES, &keep, &t->buffer));
    /* otherwise a save reads bytes that work of a former owner still writes */
    CONF_OK(hd_fill(t->buffer, 0, 0, PAIR_BYTES, NULL));
    if (turn % 2 == 0) {
        CONF_OK(hd_buffer_save(t->buffer, NULL));
    }
}

static void make_piece(things *t, uint64_t turn)
{
    const hd_alloc_options piece = {.size = sizeof piece, .flags = HD_ALLOC_DEDICATED};
    CONF_OK(hd_alloc_with(conf_default_lane(t->runtime, 0), PAIR_BYTES, &piece, &t->buffer));
    begin_content(t->buffer);
    if (turn % 3 == 0) {
        CONF_OK(hd_fill(t->buffer, 512, 1, 512, NULL));
    }
}

static void make_module(things *t, uint64_t turn)
{
    (void)turn;
    CONF_OK(hd_module_load(t->runtime, t->image, t->image_bytes, &t->module));
    CONF_OK(hd_kernel_get(t->module, "add_one", &t->kernel));
}

static void make_lane(things *t, uint64_t turn)
{
    CONF_OK(hd_lane_create(t->runtime, 0, &t->lane));
    if (turn % 2 == 0) {
        wk_kernels k = {.add_one = t->kernel};
        CONF_OK(wk_add_one(t->lane, k, t->other, PAIR_WORDS, NULL));
    }
}

static void make_hold(things *t, uint64_t turn)
{
    CONF_OK(hd_hold_create(t->runtime, &t->hold));
    if (turn % 2 == 0) {
        CONF_OK(hd_hold_add(t->hold, t->other));
    }
}

static void make_claim(things *t, uint64_t turn)
{
    hd_arg use = turn % 2 ? hd_inout(t->other) : hd_in(t->other);
    const hd_claim_options copies = {.size = sizeof copies, .copies = true};
    CONF_OK(hd_claim_begin_with(t->runtime, &use, turn % 3 ? 1 : 0, &copies, &t->claim));
}

/* A claim that writes nothing, so its failure fails nothing else. */
static void make_reading_claim(things *t, uint64_t turn)
{
    make_claim(t, turn & ~1ull);
}

static void fail_claim(things *t)
{
    hd_claim_fail(t->claim, HD_ERROR_SYSTEM, "a reason");
}

static const struct pair_end {
    const char *name, *object;
    uint32_t types; /* bits of the handles that it ends */
    void (*make)(things *t, uint64_t turn);
    void (*end)(things *t);
} ends[] = {
    {"hd_free", "of a device", 1u << T_hd_buffer, make_device_buffer, end_buffer},
    {"hd_free", "pinned", 1u << T_hd_buffer, make_pinned_buffer, end_buffer},
    {"hd_free", "unified", 1u << T_hd_buffer, make_unified_buffer, end_buffer},
    {"hd_free", "with checkpoints", 1u << T_hd_buffer, make_kept_buffer, end_buffer},
    {"hd_free", "of one piece", 1u << T_hd_buffer, make_piece, end_buffer},
    {"hd_module_unload", "with its kernels", 1u << T_hd_module | 1u << T_hd_kernel, make_module, end_module},
    {"hd_lane_destroy", "", 1u << T_hd_lane, make_lane, end_lane},
    {"hd_hold_destroy", "", 1u << T_hd_hold, make_hold, end_hold},
    {"hd_claim_end", "", 1u << T_hd_claim, make_claim, end_claim},
    {"hd_claim_fail", "", 1u << T_hd_claim, make_reading_claim, fail_claim},
};
enum { ENDS = sizeof ends / sizeof ends[0] };

/* hd_close has a case of its own */
static const char *const no_ends[] = {"hd_unmap", "hd_trace_stop", "hd_range_pop", "hd_close"};

static bool is_in(const char *name, const char *const *list, size_t n)
{
    bool found = false;
    for (size_t i = 0; i < n && !found; i++) {
        found = strcmp(name, list[i]) == 0;
    }
    return found;
}

static void every_end_is_known(void **state)
{
    (void)state;
    const char *known[ENDS];
    for (int i = 0; i < ENDS; i++) {
        known[i] = ends[i].name;
    }
    for (size_t i = 0; i < sizeof look_like_ends / sizeof look_like_ends[0]; i++) {
        const char *name = look_like_ends[i];
        if (!is_in(name, known, ENDS) && !is_in(name, no_ends, sizeof no_ends / sizeof no_ends[0])) {
            conf_fail_at(__FILE__, __LINE__, "%s looks as if it ended an object: add it to `ends`, or to `no_ends`",
                         name);
        }
    }
}

/* ---- statuses that a call may return ---- */

static bool may_say(const char *name, hd_status status)
{
    static const struct {
        const char *name;
        hd_status status;
    } more[] = {
        {"hd_map", HD_ERROR_ACCESS},
        {"hd_unmap", HD_ERROR_ACCESS},
        {"hd_unmap", HD_ERROR_ARGUMENT /* nothing mapped the buffer */},
        {"hd_element", HD_ERROR_ACCESS},
        {"hd_buffer_save", HD_ERROR_ARGUMENT},
        {"hd_buffer_wait", HD_ERROR_TIMEOUT},
        {"hd_lane_wait", HD_ERROR_TIMEOUT},
        {"hd_lane_reset", HD_ERROR_TIMEOUT},
        {"hd_wait", HD_ERROR_TIMEOUT},
        {"hd_claim_wait", HD_ERROR_TIMEOUT},
        {"hd_claim_ready", HD_ERROR_TIMEOUT},
        {"hd_claim_get_pointer", HD_ERROR_RANGE},
        {"hd_claim_fail", HD_ERROR_ARGUMENT},
        {"hd_close", HD_ERROR_TIMEOUT /* with an open claim */},
    };
    bool may = status == HD_OK || status == HD_ERROR_HANDLE;
    for (size_t i = 0; i < sizeof more / sizeof more[0] && !may; i++) {
        may = status == more[i].status && strcmp(name, more[i].name) == 0;
    }
    return may;
}

/* ---- one pair ---- */

#define LEAST_ENDS 8
#define MOST_ENDS 400
#define MOST_PIECES 64 /* each takes a granule of the device, and a hold may keep all of them */

typedef struct pair {
    const struct pair_call *call;
    const struct pair_end *end;
    things made[MOST_ENDS];
    _Atomic(things *) now; /* NULL: the test is over */
    atomic_ullong made_calls;
    uint64_t good; /* calls that did not return HANDLE */
} pair;

static void *caller(void *context)
{
    pair *p = context;
    for (things *t; (t = atomic_load(&p->now)) != NULL;) {
        things mine = *t;
        hd_status status = p->call->call(&mine);
        if (!may_say(p->call->name, status)) {
            conf_fail_at(__FILE__, __LINE__, "%s crossing %s (%s): %s: %s", p->call->name, p->end->name, p->end->object,
                         hd_status_name(status), hd_message());
        }
        p->good += status != HD_ERROR_HANDLE;
        atomic_fetch_add(&p->made_calls, 1);
    }
    return NULL;
}

/* Waits until the caller has ended n calls from this moment on. With two, the second call began
 * after this moment. */
static void await_calls(pair *p, unsigned n)
{
    unsigned long long before = atomic_load(&p->made_calls);
    while (atomic_load(&p->made_calls) - before < n) {
        sched_yield();
    }
}

static void a_moment(conf_random *r)
{
    volatile uint64_t turns = conf_below(r, conf_chance(r, 50) ? 50 : 3000);
    while (turns > 0) {
        turns = turns - 1;
    }
}

/* Fails the case if the call returns anything but HANDLE for ended objects. */
static void check_stale(const pair *p, const things *t)
{
    static const char *const values[] = {"hd_buffer_", "hd_lane_",
                                         /* these return no status, or take no handle */
                                         "hd_tensor_"};
    things mine = *t;
    hd_status status = p->call->call(&mine);
    bool of_value = false;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        of_value |= strncmp(p->call->name, values[i], strlen(values[i])) == 0;
    }
    of_value |= strcmp(p->call->name, "hd_done") == 0 || strcmp(p->call->name, "hd_wait") == 0;
    /* it uses the ticket only as a number */
    of_value |= strcmp(p->call->name, "hd_trace_add_message") == 0 && strcmp(p->end->name, "hd_lane_destroy") == 0;
    if (status != HD_ERROR_HANDLE && !(status == HD_OK && of_value)) {
        conf_fail_at(__FILE__, __LINE__, "%s after %s (%s): %s: %s", p->call->name, p->end->name, p->end->object,
                     hd_status_name(status), hd_message());
    }
}

/* Freed bytes that are still held. With memory_debug a thread of the library may still check some,
 * but not for long, as all work is over. */
static uint64_t held_in_the_end(hd_runtime *runtime)
{
    int64_t until = conf_now() + 60 * CONF_SECOND;
    uint64_t held;
    while ((held = pool_stats(runtime, 0).held_bytes) != 0 && conf_now() < until) {
        conf_sleep_ms(1);
    }
    return held;
}

static void run_pair(const struct pair_call *call, const struct pair_end *end, things *base, conf_random *random)
{
    static pair p;
    p.call = call;
    p.end = end;
    p.good = 0;
    atomic_store(&p.made_calls, 0);
    uint64_t live = pool_stats(base->runtime, 0).live_count,
             pinned = pool_stats(base->runtime, HD_DEVICE_HOST).live_count;
    int64_t until =
        conf_now() + (int64_t)conf_number_from("HEDDLE_PAIR_MS", CONF_SLOWNESS > 1 ? 20 : 12) * CONF_MILLISECOND;
    pthread_t thread;
    int i = 0, most = end->make == make_piece ? MOST_PIECES : MOST_ENDS;
    for (; i < most && (i < LEAST_ENDS || conf_now() < until); i++) {
        things *t = &p.made[i];
        *t = *base;
        end->make(t, (uint64_t)i);
        atomic_store(&p.now, t);
        if (i == 0) {
            CONF_EQUAL(pthread_create(&thread, NULL, caller, &p), 0);
        }
        await_calls(&p, i == 0 ? 2 : (unsigned)conf_below(random, 3));
        a_moment(random);
        end->end(t);
        if (i % 16 == 0) {
            check_stale(&p, t);
        }
    }
    atomic_store(&p.now, NULL);
    CONF_EQUAL(pthread_join(thread, NULL), 0);
    if (p.good == 0) { /* at least the first object existed during a whole call */
        conf_fail_at(__FILE__, __LINE__, "%s crossing %s (%s): only stale handles: %s", call->name, end->name,
                     end->object, hd_message());
    }
    CONF_OK(hd_lane_wait(base->lane, 60 * CONF_SECOND));
    hd_hold_destroy(base->hold); /* with all that calls added to it */
    CONF_OK(hd_hold_create(base->runtime, &base->hold));
    uint64_t live_now = pool_stats(base->runtime, 0).live_count,
             pinned_now = pool_stats(base->runtime, HD_DEVICE_HOST).live_count, held = held_in_the_end(base->runtime);
    if (live_now != live || pinned_now != pinned || held != 0) {
        conf_fail_at(__FILE__, __LINE__,
                     "%s crossing %s (%s): not everything was given back: buffers %llu, were %llu, pinned %llu, were "
                     "%llu; held %llu bytes",
                     call->name, end->name, end->object, (unsigned long long)live_now, (unsigned long long)live,
                     (unsigned long long)pinned_now, (unsigned long long)pinned, (unsigned long long)held);
    }
}

/* Returns a file in memory with the image, the same for all turns. */
static int image_descriptor(const void *image, size_t bytes)
{
    static int descriptor = -1;
    if (descriptor < 0 && image != NULL) {
        descriptor = memfd_create("image", MFD_CLOEXEC);
        CONF_TRUE(descriptor >= 0 && write(descriptor, image, bytes) == (ssize_t)bytes);
    }
    return descriptor;
}

static void equip(things *t, hd_runtime *runtime)
{
    *t = (things){.runtime = runtime};
    t->image = wk_image(runtime, &t->image_bytes);
    snprintf(t->image_file, sizeof t->image_file, "/proc/self/fd/%d", image_descriptor(t->image, t->image_bytes));
    CONF_OK(hd_lane_create(runtime, 0, &t->lane));
    CONF_OK(hd_alloc(t->lane, PAIR_BYTES, &t->buffer));
    CONF_OK(hd_alloc(t->lane, PAIR_BYTES, &t->other));
    CONF_OK(hd_alloc(t->lane, PAIR_BYTES, &t->third));
    begin_content(t->buffer);
    begin_content(t->third);
    CONF_OK(hd_fill(t->other, 0, 0, PAIR_BYTES, NULL));
    CONF_OK(hd_hold_create(runtime, &t->hold));
    make_module(t, 0);
}

/* On GPUs a library of matrix products keeps a workspace for each lane of the device that made a
 * product. Workspaces are no leak, so all lanes get theirs before the test counts. */
static void open_libraries(hd_runtime *runtime)
{
    hd_lane *lanes[256];
    char name[32];
    int n = 0;
    while (n < (conf_on_gpus ? 256 : 1) && hd_lane_create(runtime, 0, &lanes[n]) == HD_OK) {
        CONF_OK(conf_matmul_library(lanes[n], name, sizeof name, NULL, 0));
        n++;
    }
    while (n > 0) {
        CONF_OK(hd_lane_destroy(lanes[--n]));
    }
}

/* `ended`: kinds of objects to end, as bits. */
static void run_pairs(const char *settings, uint32_t ended)
{
    hd_runtime *runtime =
        conf_open_with("host_devices=1 host_memory=256M pinned_limit=128M copy_threads=0 %s", settings);
    size_t bytes = 0;
    if (wk_image(runtime, &bytes) == NULL) {
        conf_close(runtime);
        skip();
    }
    things base;
    open_libraries(runtime);
    equip(&base, runtime);
    conf_random random = {conf_number_from("HEDDLE_SEED", 1)};
    const char *only = getenv("HEDDLE_ONLY_PAIR");
    for (int e = 0; e < ENDS; e++) {
        for (int c = 0; c < CALLS; c++) {
            if ((ends[e].types & ended) && (ends[e].types >> calls[c].of & 1) &&
                (!only || !only[0] || strcmp(only, calls[c].name) == 0)) {
                conf_watch(calls[c].name, 60);
                run_pair(&calls[c], &ends[e], &base, &random);
            }
        }
    }
    conf_watch("test_pairs", 120);
    conf_close(runtime);
}

static void calls_cross_ends(void **state)
{
    (void)state;
    run_pairs("", ~0u);
}

/* hd_free checks guards, and stale handles are reported. */
static void calls_cross_ends_with_guards(void **state)
{
    (void)state;
    run_pairs("memory_debug=on", 1u << T_hd_buffer);
}

/* ---- hd_device_restart ---- */

/* For objects of a device that is lost, or was. */
static bool may_say_lost(const char *name, hd_status status)
{
    return may_say(name, status) || status == HD_ERROR_DEVICE_LOST || status == HD_ERROR_LANE_FAILED ||
           status == HD_ERROR_FAILED || status == HD_ERROR_TIMEOUT;
}

/* Makes all calls in turn, except those that end objects that others need. It also leaves out
 * hd_loss_next and hd_device_restart: the main thread waits for the loss, and uses the lost
 * device. */
static void *calls_all(void *context)
{
    pair *p = context;
    for (unsigned turn = 0;; turn++) {
        const struct pair_call *c = &calls[turn % CALLS];
        things *t = atomic_load(&p->now);
        if (!t) {
            return NULL;
        }
        if (is_in(c->name, look_like_ends, sizeof look_like_ends / sizeof look_like_ends[0]) ||
            c->call == recipe_hd_loss_next || c->call == recipe_hd_device_restart) {
            continue;
        }
        things mine = *t;
        hd_status status = c->call(&mine);
        if (!may_say_lost(c->name, status)) {
            conf_fail_at(__FILE__, __LINE__, "%s crossing hd_device_restart: %s: %s", c->name, hd_status_name(status),
                         hd_message());
        }
        atomic_fetch_add(&p->made_calls, 1);
    }
}

/* The device is lost and restarts, and the case frees the lost objects, while another thread makes
 * all other calls. */
static void calls_cross_restarts(void **state)
{
    (void)state;
    enum { ROUNDS = 4 };
    static pair p;
    hd_runtime *runtime = conf_open("host_devices=1 host_memory=256M copy_threads=0 watchdog=0");
    size_t bytes = 0;
    if (!conf_is_process(runtime) || wk_image(runtime, &bytes) == NULL) {
        conf_close(runtime);
        skip();
    }
    equip(&p.made[0], runtime);
    atomic_store(&p.made_calls, 0);
    atomic_store(&p.now, &p.made[0]);
    pthread_t thread;
    CONF_EQUAL(pthread_create(&thread, NULL, calls_all, &p), 0);
    for (int i = 0; i < ROUNDS; i++) {
        things *t = &p.made[i], *next = &p.made[i + 1];
        await_calls(&p, CALLS / 2);
        wk_lose_now(runtime, 0);
        await_calls(&p, CALLS / 2);
        CONF_OK(hd_device_restart(runtime, 0));
        *next = *t;
        make_kept_buffer(next, 0);
        CONF_OK(hd_alloc(conf_default_lane(runtime, 0), PAIR_BYTES, &next->other));
        CONF_OK(hd_fill(next->other, 0, 0, PAIR_BYTES, NULL));
        atomic_store(&p.now, next);
        hd_free(t->buffer);
        hd_free(t->other);
    }
    await_calls(&p, CALLS);
    atomic_store(&p.now, NULL);
    CONF_EQUAL(pthread_join(thread, NULL), 0);
    wk_works(runtime, 0);
    conf_close(runtime);
}

/* ---- hd_close ---- */

static void calls_after_close_are_refused(void **state)
{
    (void)state;
    things t;
    size_t bytes = 0;
    hd_runtime *runtime = conf_open("host_devices=1 host_memory=64M copy_threads=0");
    if (wk_image(runtime, &bytes) == NULL) {
        conf_close(runtime);
        skip();
    }
    equip(&t, runtime);
    conf_close(runtime);
    for (int c = 0; c < CALLS; c++) {
        things mine = t;
        hd_status status = calls[c].call(&mine);
        if (status != HD_OK && status != HD_ERROR_HANDLE) {
            conf_fail_at(__FILE__, __LINE__, "%s after hd_close: %s: %s", calls[c].name, hd_status_name(status),
                         hd_message());
        }
    }
    CONF_FAILS(hd_fill(t.buffer, 0, 1, 512, NULL), HD_ERROR_HANDLE);
    CONF_FAILS(hd_lane_wait(t.lane, 0), HD_ERROR_HANDLE);
}

/* Opens a runtime, closes it under the call, and makes the call again. The call may close the
 * runtime first. An open claim holds hd_close up for its whole limit. All else needs more than a
 * second on a busy machine, and a runtime whose close timed out keeps its memory for a while. */
static void call_crosses_close(const struct pair_call *call)
{
    static pair p;
    static const struct pair_end close_end = {"hd_close", "", ~0u, NULL, NULL};
    char settings[96];
    bool with_claim = call->of == T_hd_claim || strcmp(call->name, "hd_close") == 0;
    snprintf(settings, sizeof settings, "host_devices=1 host_memory=64M close_timeout=%d",
             with_claim ? 1000 * CONF_SLOWNESS : 60000);
    hd_runtime *runtime = NULL;
    CONF_OK(hd_open(&(hd_options){sizeof(hd_options), settings}, &runtime));
    p.call = call;
    p.end = &close_end;
    equip(&p.made[0], runtime);
    CONF_OK(hd_claim_begin(runtime, NULL, 0, &p.made[0].claim));
    atomic_store(&p.made_calls, 0);
    atomic_store(&p.now, &p.made[0]);
    pthread_t thread;
    CONF_EQUAL(pthread_create(&thread, NULL, caller, &p), 0);
    await_calls(&p, 2);
    if (call->of != T_hd_claim) {
        hd_claim_end(p.made[0].claim, HD_OK);
    }
    hd_status status = hd_close(runtime);
    CONF_TRUE(status == HD_OK || status == HD_ERROR_TIMEOUT || status == HD_ERROR_HANDLE);
    await_calls(&p, 2); /* after it, too */
    atomic_store(&p.now, NULL);
    CONF_EQUAL(pthread_join(thread, NULL), 0);
}

/* hd_close ends all objects at once. On GPUs a worker takes a second to open: there HEDDLE_SEED
 * decides each call's turn. */
static void calls_cross_close(void **state)
{
    (void)state;
    hd_runtime *look = conf_open("host_devices=1 host_memory=64M");
    bool few = conf_on_gpus && conf_is_process(look);
    int step = few ? 8 : 1;
    conf_close(look);
    for (int c = few ? (int)(conf_number_from("HEDDLE_SEED", 1) % 8) : 0; c < CALLS; c += step) {
        conf_watch(calls[c].name, 60);
        for (int i = 0; i < (few || CONF_SLOWNESS > 1 ? 1 : 3); i++) {
            call_crosses_close(&calls[c]);
        }
    }
}

int main(void)
{
    conf_begin("test_pairs");
    const struct CMUnitTest tests[] = {
        CONF_CASE(every_end_is_known),
        CONF_CASE(calls_cross_ends),
        CONF_CASE(calls_cross_ends_with_guards),
        CONF_CASE(calls_cross_restarts),
        CONF_CASE(calls_after_close_are_refused),
        CONF_CASE(calls_cross_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
