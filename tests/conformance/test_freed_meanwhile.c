/* test_freed_meanwhile.c - calls on a buffer that is freed or used meanwhile, or on a kernel that
 * is unloaded meanwhile.
 *
 * Promise: A call whose buffer or kernel is freed meanwhile succeeds, or fails with HANDLE.
 *
 * That happens at the very moments when the calls wait, copy or submit. The test wraps the
 * library's own functions for these. The free or use happens there, on the calling thread, which
 * acts as another one.
 *
 * Threads: the main one.
 * Locks: none.
 * Always: a call succeeds, or fails with HANDLE. The record keeps all submitted work.
 */
#include "workers.h"
#include "base/presence.h"
#include "transfer/copy_pool.h"
#include "buffer/submit.h"
#include "engine/engine.h"

enum { SIZE = 64 * 1024, LARGE = 4 << 20 }; /* large boxes are copied in several items */

static struct {
    hd_runtime *runtime;
    hd_lane *lane;
    wk_kernels kernels;
    wk_gate gate;      /* work behind it in the lane is unfinished */
    hd_buffer *behind; /* filled behind the gate */
    hd_buffer *x;      /* the buffer of the call */
    hd_buffer *next;   /* allocated meanwhile */
    uint64_t address;  /* of x */
} now;

/* Runs at the next wait, copy or submission, once. */
static void (*at_wait)(void), (*at_copy)(void), (*at_submit)(void), (*at_launch)(void);

static bool happens(void (**what)(void))
{
    void (*happening)(void) = conf_on_main() ? *what : NULL;
    if (happening) {
        *what = NULL;
        hdi_apart apart = hdi_presence_apart(); /* as another thread, it is not inside the call */
        happening();
        hdi_presence_together(apart);
    }
    return happening != NULL;
}

bool __real_hdi_wait_position(hd_runtime *rt, uint32_t lane, uint64_t position, int64_t deadline);
bool __wrap_hdi_wait_position(hd_runtime *rt, uint32_t lane, uint64_t position, int64_t deadline);
bool __wrap_hdi_wait_position(hd_runtime *rt, uint32_t lane, uint64_t position, int64_t deadline)
{
    return happens(&at_wait) || __real_hdi_wait_position(rt, lane, position, deadline);
}

void __real_hdi_copy_pool_run(hd_runtime *rt, int device, size_t items, void (*work)(void *, size_t), void *context);
void __wrap_hdi_copy_pool_run(hd_runtime *rt, int device, size_t items, void (*work)(void *, size_t), void *context);
void __wrap_hdi_copy_pool_run(hd_runtime *rt, int device, size_t items, void (*work)(void *, size_t), void *context)
{
    happens(&at_copy);
    __real_hdi_copy_pool_run(rt, device, items, work, context);
}

hd_status __real_hdi_submit_as_is(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                                  hdi_linked link, hd_ticket *out);
hd_status __wrap_hdi_submit_as_is(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                                  hdi_linked link, hd_ticket *out);
hd_status __wrap_hdi_submit_as_is(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                                  hdi_linked link, hd_ticket *out)
{
    happens(&at_submit);
    return __real_hdi_submit_as_is(lane, uses, n_uses, command, link, out);
}

/* A launch takes the order lock behind all its checks, and finds it taken. */
static void at_next_launch(hd_lane *lane, void (*what)(void))
{
    at_launch = what;
    atomic_store(&hdi_lane_from_handle(lane)->device->order.taken, 1); /* as another thread */
}

void __real_hdi_lock_take_slow(hdi_lock *lock);
void __wrap_hdi_lock_take_slow(hdi_lock *lock);
void __wrap_hdi_lock_take_slow(hdi_lock *lock)
{
    if (conf_on_main() && at_launch) {
        atomic_store(&lock->taken, 0);
        happens(&at_launch);
    }
    __real_hdi_lock_take_slow(lock);
}

/* ---- events that happen meanwhile ---- */

static void is_freed(void)
{
    hd_free(now.x);
}

static void is_freed_and_the_gate_opened(void)
{
    hd_free(now.x);
    wk_gate_open(&now.gate);
}

/* Reuses the structure behind the handle; its next owner has work behind the gate. */
static void is_freed_and_used_again(void)
{
    bool pinned = hd_buffer_device(now.x) < 0;
    hd_free(now.x);
    for (int i = 0; i < 1000; i++) { /* free structures in front of it */
        hd_status status = pinned ? hd_alloc_host(now.runtime, SIZE, &now.next) : hd_alloc(now.lane, SIZE, &now.next);
        CONF_OK(status);
        if (hdi_self_object(now.next) == hdi_self_object(now.x)) {
            break;
        }
    }
    CONF_TRUE(hdi_self_object(now.next) == hdi_self_object(now.x));
    CONF_OK(hd_copy(now.next, 0, now.behind, 0, SIZE, NULL));
}

static void is_freed_and_its_memory_wanted(void)
{
    hd_free(now.x);
    CONF_OK(hd_alloc_host(now.runtime, LARGE, &now.next));
    CONF_TRUE(hd_buffer_address(now.next) != now.address);
}

static void is_written_by_a_copy(void)
{
    CONF_OK(hd_copy(now.x, 0, now.behind, 0, SIZE, NULL));
}

static hd_module *module;

static void is_unloaded(void)
{
    hd_module_unload(module);
}

/* Then another kernel uses the structure. */
static void is_unloaded_and_loaded_anew(void)
{
    hd_kernel *spin = NULL, *stray = NULL;
    hd_module_unload(module);
    module = wk_load(now.runtime).module;
    CONF_OK(hd_kernel_get(module, "spin", &spin));
    CONF_OK(hd_kernel_get(module, "stray", &stray));
}

/* ---- setting up ---- */

static void shut_gate(void)
{
    wk_gate_shut(&now.gate, now.runtime, now.lane, now.kernels);
    CONF_OK(conf_fill(now.lane, conf_builtins(now.runtime), now.behind, 0, SIZE / 4, 2, NULL));
}

/* False: nothing can be held up here. */
static bool begin(const char *settings)
{
    memset(&now, 0, sizeof now);
    now.runtime = conf_open(settings);
    now.kernels = wk_load(now.runtime);
    if (!now.kernels.module || conf_is_inline(now.runtime)) {
        conf_close(now.runtime);
        return false;
    }
    wk_warm(now.runtime, 0, now.kernels);
    CONF_OK(hd_lane_create(now.runtime, 0, &now.lane));
    CONF_OK(hd_alloc(now.lane, SIZE, &now.behind));
    conf_kernels builtin = conf_builtins(now.runtime);
    CONF_OK(conf_fill(now.lane, builtin, now.behind, 0, SIZE / 4, 1, NULL));
    CONF_OK(hd_buffer_wait(now.behind, HD_READ_WRITE, 60 * CONF_SECOND));
    shut_gate();
    return true;
}

static void end(void)
{
    CONF_TRUE(!at_wait && !at_copy && !at_submit && !at_launch); /* all of it happened */
    wk_gate_open(&now.gate);
    CONF_OK(hd_wait(now.gate.ticket, 60 * CONF_SECOND));
    conf_close(now.runtime);
}

/* Makes work behind the gate write a buffer. */
static void make_busy(hd_buffer *x)
{
    now.x = x;
    now.address = hd_buffer_address(x);
    CONF_OK(hd_copy(x, 0, now.behind, 0, SIZE, NULL));
}

#define CONF_BEGIN(settings)                                                                                           \
    (void)state;                                                                                                       \
    if (!begin(settings)) {                                                                                            \
        skip();                                                                                                        \
    }

/* ---- cases ---- */

/* By then the next owner uses the buffer's record. */
static void waiting_for_a_buffer_that_is_freed(void **state)
{
    CONF_BEGIN("transfer_timeout=10000"); /* so that a wrong wait for the next owner's work ends */
    hd_buffer *x = NULL;
    CONF_OK(hd_alloc(now.lane, SIZE, &x));
    make_busy(x);
    at_wait = is_freed_and_used_again;
    CONF_FAILS(hd_buffer_wait(x, HD_READ_WRITE, 0), HD_ERROR_HANDLE);
    CONF_OK(hd_alloc_host(now.runtime, SIZE, &x));
    make_busy(x);
    at_wait = is_freed_and_used_again;
    CONF_TRUE(hd_element(x, 0, 4, HD_READ) == NULL);
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    CONF_EQUAL(error.status, HD_ERROR_HANDLE);
    CONF_FAILS(hd_buffer_wait(now.next, HD_READ, 0), HD_ERROR_TIMEOUT); /* untouched */
    end();
}

/* While a call copies between pinned memory and the program's memory, no other owner gets that
 * pinned memory. */
static void copying_to_and_from_what_is_freed(void **state)
{
    CONF_BEGIN("copy_threads=0");
    static uint8_t memory[LARGE];
    const hd_box rows = {
        .size = sizeof rows, .row = 512, .dims = 1, .count = {LARGE / 1024}, .dst_stride = {1024}, .src_stride = {512}};
    const hd_box back = {
        .size = sizeof back, .row = 512, .dims = 1, .count = {LARGE / 1024}, .dst_stride = {512}, .src_stride = {1024}};
    for (int i = 0; i < 4; i++) {
        CONF_OK(hd_alloc_host(now.runtime, LARGE, &now.x));
        now.address = hd_buffer_address(now.x);
        CONF_OK(hd_fill(now.x, 0, 7, LARGE, NULL));
        at_copy = is_freed_and_its_memory_wanted;
        CONF_OK(i == 0   ? hd_write(now.x, 0, memory, LARGE)
                : i == 1 ? hd_read(now.x, 0, memory, LARGE)
                : i == 2 ? hd_write_box(now.x, 0, memory, &rows)
                         : hd_read_box(now.x, 0, memory, &back));
        CONF_FAILS(hd_read(now.x, 0, memory, LARGE), HD_ERROR_HANDLE);
        hd_free(now.next);
        hd_memory_stats stats = {.size = sizeof stats};
        CONF_OK(hd_memory_get_stats(now.runtime, HD_DEVICE_HOST, &stats));
        CONF_EQUAL(stats.live_count, 1); /* that of the gate */
    }
    end();
}

/* A copy that is submitted while the program's bytes are copied stays in the record. */
static void what_is_submitted_meanwhile_is_not_forgotten(void **state)
{
    CONF_BEGIN("copy_threads=0");
    static uint8_t memory[LARGE];
    const hd_box all = {.size = sizeof all, .row = LARGE};
    for (int i = 0; i < 2; i++) {
        CONF_OK(hd_alloc_host(now.runtime, LARGE, &now.x));
        at_copy = is_written_by_a_copy;
        CONF_OK(i == 0 ? hd_write(now.x, 0, memory, LARGE) : hd_write_box(now.x, 0, memory, &all));
        CONF_FAILS(hd_buffer_wait(now.x, HD_READ, 0), HD_ERROR_TIMEOUT);
        uint64_t address = hd_buffer_address(now.x);
        hd_buffer *next = NULL;
        hd_free(now.x);
        /* perhaps the same memory: then it must wait for the copy */
        CONF_OK(hd_alloc_host(now.runtime, LARGE, &next));
        if (hd_buffer_address(next) == address) {
            CONF_FAILS(hd_buffer_wait(next, HD_READ_WRITE, 0), HD_ERROR_TIMEOUT);
        }
    }
    end();
}

/* The mirror of a unified buffer, and the copies of a buffer that keeps some. */
static void what_belongs_to_a_buffer_stays_meanwhile(void **state)
{
    CONF_BEGIN(NULL);
    conf_kernels builtin = conf_builtins(now.runtime);
    hd_buffer *x = NULL;
    void *memory = NULL;
    CONF_OK(hd_alloc_unified(now.lane, SIZE, &x));
    now.x = x;
    at_submit = is_freed;
    CONF_FAILS(conf_fill(now.lane, builtin, x, 0, 16, 3, NULL), HD_ERROR_HANDLE);
    CONF_OK(hd_alloc_unified(now.lane, SIZE, &x));
    now.x = x;
    CONF_OK(hd_map(x, HD_WRITE, &memory));
    memset(memory, 1, SIZE);
    hd_unmap(x);
    at_submit = is_freed; /* at the copy to the device, so the mirror is in use */
    CONF_FAILS(conf_fill(now.lane, builtin, x, 0, 16, 3, NULL), HD_ERROR_HANDLE);
    hd_alloc_options keep = {.size = sizeof keep, .flags = HD_ALLOC_KEEP};
    CONF_OK(hd_alloc_with(now.lane, SIZE, &keep, &x));
    make_busy(x);
    CONF_OK(hd_buffer_save(x, NULL));
    at_wait = is_freed_and_the_gate_opened;
    hd_ticket saved;
    CONF_OK(hd_buffer_save(x, &saved));
    CONF_OK(hd_wait(saved, 60 * CONF_SECOND));
    end();
}

static void mapping_a_unified_buffer_that_is_freed(void **state)
{
    CONF_BEGIN(NULL);
    hd_buffer *x = NULL;
    void *memory = NULL;
    CONF_OK(hd_alloc_unified(now.lane, SIZE, &x));
    make_busy(x);
    at_wait = is_freed_and_the_gate_opened;
    hd_status status = hd_map(x, HD_READ, &memory);
    CONF_TRUE(status == HD_OK || status == HD_ERROR_HANDLE);
    CONF_FAILS(hd_map(x, HD_READ, &memory), HD_ERROR_HANDLE);
    hd_memory_stats stats = {.size = sizeof stats};
    CONF_OK(hd_memory_get_stats(now.runtime, 0, &stats));
    CONF_EQUAL(stats.held_bytes, 0);
    end();
}

static void open_gate(void)
{
    wk_gate_open(&now.gate);
    CONF_OK(hd_wait(now.gate.ticket, 60 * CONF_SECOND));
}

/* A launch on the fast path, one of a unified buffer, and one that waits for other work. Only for
 * the last one is the gate shut: on a GPU, loading may take as long as a running kernel. */
static void launching_what_is_unloaded(void **state)
{
    CONF_BEGIN(NULL);
    open_gate();
    hd_buffer *x = NULL, *both = NULL;
    hd_lane *lane = NULL;
    CONF_OK(hd_lane_create(now.runtime, 0, &lane));
    CONF_OK(hd_alloc(lane, SIZE, &x));
    CONF_OK(hd_alloc_unified(lane, SIZE, &both));
    for (int i = 0; i < 6; i++) {
        wk_kernels k = wk_load(now.runtime);
        module = k.module;
        if (i >= 4) {
            shut_gate();
        }
        hd_ticket ticket = {NULL, 7};
        at_next_launch(lane, i == 1 || i == 3 || (i == 5 && !conf_on_gpus) ? is_unloaded_and_loaded_anew : is_unloaded);
        CONF_FAILS(wk_add_one(lane, k, i < 2 ? x : i < 4 ? both : now.behind, 16, &ticket), HD_ERROR_HANDLE);
        CONF_TRUE(ticket.lane == NULL && ticket.sequence == 7);
        CONF_FAILS(wk_add_one(lane, k, x, 16, NULL), HD_ERROR_HANDLE);
        open_gate();
        hd_module_unload(module);
    }
    CONF_OK(hd_lane_wait(lane, 60 * CONF_SECOND)); /* nothing of it ran */
    end();
}

static hd_lane *passing, *elses;

static void is_destroyed_and_somebody_elses(void)
{
    hd_lane_destroy(passing);
    CONF_OK(hd_lane_create(now.runtime, 0, &elses));
}

/* A launch into a lane that is destroyed meanwhile never lands in the lane of the next owner. That
 * holds for the usual launch and for one that waits for others. */
static void launching_into_a_lane_that_is_destroyed(void **state)
{
    CONF_BEGIN(NULL);
    for (int i = 0; i < 4; i++) {
        hd_buffer *x = NULL;
        CONF_OK(hd_lane_create(now.runtime, 0, &passing));
        CONF_OK(hd_alloc(passing, SIZE, &x));
        int number = hd_lane_number(passing);
        uint64_t before = conf_lane_ticket(passing).sequence;
        hd_ticket ticket = {NULL, 7};
        at_next_launch(passing, is_destroyed_and_somebody_elses);
        CONF_FAILS_WITH(wk_add_one(passing, now.kernels, i % 2 ? x : now.behind, 16, &ticket), HD_ERROR_HANDLE,
                        "the lane was destroyed meanwhile");
        CONF_TRUE(ticket.lane == NULL && ticket.sequence == 7);
        CONF_EQUAL(hd_lane_number(elses), number);
        CONF_EQUAL(conf_lane_ticket(elses).sequence, before);
        hd_free(x);
        hd_lane_destroy(elses);
    }
    end();
}

/* The first steps of hd_close, which ends all handles. */
static void is_closed(void)
{
    atomic_store(&now.runtime->ended, true);
    hd_lane_destroy(passing);
}

/* The message names hd_close, not a lane that the program did not destroy. */
static void launching_into_a_runtime_that_is_closed(void **state)
{
    CONF_BEGIN(NULL);
    CONF_OK(hd_lane_create(now.runtime, 0, &passing));
    at_next_launch(passing, is_closed);
    CONF_FAILS_WITH(wk_add_one(passing, now.kernels, now.behind, 16, NULL), HD_ERROR_HANDLE,
                    "the runtime was closed meanwhile");
    atomic_store(&now.runtime->ended, false);
    end();
}

int main(void)
{
    conf_begin("test_freed_meanwhile");
    const struct CMUnitTest tests[] = {
        CONF_CASE(waiting_for_a_buffer_that_is_freed),           CONF_CASE(copying_to_and_from_what_is_freed),
        CONF_CASE(what_is_submitted_meanwhile_is_not_forgotten), CONF_CASE(what_belongs_to_a_buffer_stays_meanwhile),
        CONF_CASE(mapping_a_unified_buffer_that_is_freed),       CONF_CASE(launching_what_is_unloaded),
        CONF_CASE(launching_into_a_lane_that_is_destroyed),      CONF_CASE(launching_into_a_runtime_that_is_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
