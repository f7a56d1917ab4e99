/* cpu_core.c - runs the threads of one block at a time on fibers: barriers, warps, and reports of
 * kernels.
 *
 * A fiber takes a thread of the block, runs the thread to its end, and takes the next one. So
 * without barriers one fiber runs the whole block as a plain loop. If a thread reaches a barrier,
 * its fiber stops there, and another fiber goes on with the threads that have not begun. When all
 * threads that still run arrive at the barrier, they continue one after another.
 * The threads of a warp meet in the same way (cpu_warp.h). A fiber switches directly to another
 * fiber. Execution returns to the worker's own stack when the block is done, when more fibers are
 * needed, and after a fault.
 *
 * Threads: see cpu_core.h. The code between hdi_fiber_enter and the kernel's entry runs on fibers.
 * Locks: none.
 * Blocking: see cpu_core.h.
 * Always: every fiber in use is running, in `arrived`, in `ready` from ready_next on, or at a
 * meeting of its warp.
 */
#include "simulator/cpu_core.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/wait.h"

/* The most that one hd_printf writes; it is formatted on a fiber's stack. */
#define PRINT_BYTES 4096

/* ---- memory ---- */

bool hdi_cpu_wait_for_memory(const hdi_cpu_launch *launch)
{
    bool waits = launch->cancel == NULL || __atomic_load_n(launch->cancel, __ATOMIC_RELAXED) == 0;
    if (waits) {
        hdi_sleep_for(1000000);
    }
    return waits;
}

void hdi_cpu_core_destroy(hdi_cpu_core *core)
{
    hdi_fibers_destroy(&core->set);
    hdi_warps_destroy(&core->warps);
    free(core->shared);
    free(core->storage);
    free(core->reserved);
    free(core->arrived);
    free(core->ready);
}

static bool cpu_core_reserve_lists(hdi_cpu_core *core, uint32_t count)
{
    if (count <= core->list_capacity) {
        return true;
    }
    /* If memory runs out, both lists stay as they are. A later block that needs no more fibers than
     * exist can use them. */
    void *arrived = malloc(count * sizeof *core->arrived), *ready = malloc(count * sizeof *core->ready);
    if (arrived == NULL || ready == NULL) {
        free(arrived);
        free(ready);
        return false;
    }
    free(core->arrived);
    free(core->ready);
    core->arrived = arrived;
    core->ready = ready;
    core->list_capacity = count;
    return true;
}

static bool cpu_core_reserve_shared(hdi_cpu_core *core, size_t bytes)
{
    if (bytes <= core->shared_bytes) {
        return true;
    }
    bytes = (bytes + 4095) & ~(size_t)4095;
    void *shared = aligned_alloc(64, bytes);
    if (shared != NULL) {
        free(core->shared);
        core->shared = shared;
        core->shared_bytes = bytes;
    }
    return shared != NULL;
}

static _Thread_local void *own_storage;

void *hdi_cpu_shared(void)
{
    return own_storage;
}

static bool cpu_core_reserve_storage(hdi_cpu_core *core, const hdi_cpu_storage *s)
{
    if (s->bytes <= core->storage_bytes && s->align <= core->storage_align) {
        return true;
    }
    size_t align = s->align > HDI_CPU_STORAGE_ALIGN ? s->align : HDI_CPU_STORAGE_ALIGN;
    size_t bytes = (s->bytes + align - 1) & ~(align - 1);
    void *storage = bytes >= s->bytes ? aligned_alloc(align, bytes) : NULL;
    if (storage != NULL) {
        free(core->storage);
        core->storage = storage;
        core->storage_bytes = bytes;
        core->storage_align = align;
    }
    return storage != NULL;
}

bool hdi_cpu_core_init(hdi_cpu_core *core, size_t storage)
{
    const hdi_cpu_storage usual = {.bytes = storage, .align = HDI_CPU_STORAGE_ALIGN};
    memset(core, 0, sizeof *core);
    if (!hdi_fibers_init(&core->set)) {
        return false;
    }
    bool good = cpu_core_reserve_lists(core, HDI_FIBERS_USUAL) &&
                cpu_core_reserve_shared(core, HDI_CPU_SHARED_BYTES_MAX) && cpu_core_reserve_storage(core, &usual) &&
                hdi_warps_make(&core->warps, HDI_FIBERS_USUAL);
    if (!good) {
        hdi_cpu_core_destroy(core);
    }
    core->reserved_bytes = core->storage_bytes;
    return good;
}

/* Makes the system allocate this thread's storage. False: out of memory.
 * If memory ran out, the system would end the process. So this function first tries to allocate as
 * much memory. In between, another thread may take that memory, but this is very unlikely. */
static bool cpu_core_make_system_storage(const hdi_cpu_storage *s)
{
    /* A statically linked program lacks this function. */
    extern void *__tls_get_addr(size_t index[2]) __attribute__((weak));
    /* The system's own table of all modules. */
    enum { TABLE_BYTES = 64 * 1024 };
    void *storage = NULL;
    if (dlinfo(s->by_system, RTLD_DI_TLS_DATA, &storage) == 0 && storage != NULL) {
        return true;
    }
    if (__tls_get_addr == NULL) {
        return true; /* the first access makes the storage */
    }
    size_t index[2] = {0, 0};
    void *room = malloc(s->bytes + s->align + TABLE_BYTES);
    free(room);
    return room != NULL && dlinfo(s->by_system, RTLD_DI_TLS_MODID, &index[0]) == 0 && __tls_get_addr(index) != NULL;
}

bool hdi_cpu_core_join(hdi_cpu_core *core, const hdi_cpu_launch *launch)
{
    const hdi_cpu_storage *s = launch->storage;
    if (s == NULL || s->bytes == 0) {
        return true;
    }
    if (s->by_system != NULL) {
        return cpu_core_make_system_storage(s);
    }
    if (!cpu_core_reserve_storage(core, s)) {
        return false;
    }
    if (s->image_bytes > 0) {
        memcpy(core->storage, s->image, s->image_bytes);
    }
    own_storage = core->storage;
    return true;
}

/* ---- threads ---- */

/* Returns the number of the thread that starts as the `order`th one, if the order is perturbed. */
HDI_FIBER_CODE static uint32_t cpu_core_thread_at(const hdi_cpu_core *core, uint32_t order)
{
    return (uint32_t)(((uint64_t)order * core->multiplier + core->offset) % core->n_threads);
}

/* Gives the fiber the next thread that has not started. */
HDI_FIBER_CODE static void cpu_core_take_thread(hdi_cpu_core *core, hdi_fiber *fiber)
{
    hd_kernel_thread *self = &fiber->self;
    uint32_t number = core->started++;
    if (core->multiplier != 0) {
        uint32_t n = cpu_core_thread_at(core, number);
        self->thread.x = n % self->block_dim.x;
        self->thread.y = n / self->block_dim.x % self->block_dim.y;
        self->thread.z = n / self->block_dim.x / self->block_dim.y;
        return;
    }
    self->thread.x = core->x, self->thread.y = core->y, self->thread.z = core->z;
    if (++core->x == self->block_dim.x) {
        core->x = 0;
        if (++core->y == self->block_dim.y) {
            core->y = 0;
            core->z++;
        }
    }
}

static void cpu_core_run_threads(void *argument);
static void cpu_core_tell_apart(hdi_cpu_core *core);

/* Called when all threads that still run arrived at the barrier: makes them ready. */
HDI_FIBER_CODE static void cpu_core_pass_barrier(hdi_cpu_core *core)
{
    hdi_fiber **list = core->ready;
    core->ready = core->arrived;
    core->n_ready = core->n_arrived;
    core->ready_next = 0;
    core->arrived = list;
    core->n_arrived = 0;
    if (core->launch->schedule != 0) {
        for (uint32_t i = core->n_ready - 1; i > 0; i--) {
            uint32_t j = (uint32_t)(hdi_random(&core->random) % (i + 1));
            hdi_fiber *f = core->ready[i];
            core->ready[i] = core->ready[j];
            core->ready[j] = f;
        }
    }
}

/* Chooses the fiber that continues when the running fiber cannot: a ready fiber, or a new one. If
 * the block is done, or no thread can go on, the result leads to the worker's own stack. */
HDI_FIBER_CODE static hdi_fiber *cpu_core_pick_fiber(hdi_cpu_core *core)
{
    if (core->ready_next < core->n_ready) {
        return core->ready[core->ready_next++];
    }
    if (core->started < core->n_threads) {
        return hdi_fiber_start(&core->set, cpu_core_run_threads);
    }
    if (core->n_meeting > 0) {
        cpu_core_tell_apart(core);
        return &core->set.main;
    }
    if (core->n_arrived == 0) {
        return &core->set.main;
    }
    cpu_core_pass_barrier(core);
    return core->ready[core->ready_next++];
}

/* Makes the worker create fibers for all threads, before the first fiber parks. */
HDI_FIBER_CODE static void cpu_core_need_fibers(hdi_cpu_core *core, hdi_fiber *fiber)
{
    if (core->set.used == 1 && core->set.owned <= core->n_threads - core->started) {
        core->asking = fiber;
        core->wants_fibers = true;
        hdi_fiber_switch(fiber, &core->set.main);
    }
}

/* The target of hd_barrier. */
HDI_FIBER_CODE static void cpu_core_barrier(hd_kernel_thread *self)
{
    hdi_fiber *fiber = (hdi_fiber *)self; /* `self` is its first member */
    hdi_cpu_core *core = (hdi_cpu_core *)fiber->set;
    if (core->started == core->n_threads && core->n_arrived == 0 && core->ready_next == core->n_ready &&
        core->n_meeting == 0) {
        return; /* no other thread still runs */
    }
    cpu_core_need_fibers(core, fiber);
    core->arrived[core->n_arrived++] = fiber;
    hdi_fiber *next = cpu_core_pick_fiber(core);
    if (next != fiber) {
        hdi_fiber_switch(fiber, next);
    }
}

static void cpu_core_leave_warp(hdi_cpu_core *core, const hd_kernel_thread *self);

/* The function of a fiber: runs threads of the block until all threads have started. */
HDI_FIBER_CODE static void cpu_core_run_threads(void *argument)
{
    hdi_fiber *fiber = argument;
    hdi_cpu_core *core = (hdi_cpu_core *)fiber->set;
    hdi_fiber_begin(fiber);
    void (*entry)(hd_kernel_thread *, const void *) = core->launch->kernel->entry;
    const void *arguments = core->arguments;
    fiber->self = core->model;
    while (core->started < core->n_threads) {
        cpu_core_take_thread(core, fiber);
        entry(&fiber->self, arguments);
        if (core->has_warps) {
            cpu_core_leave_warp(core, &fiber->self);
        }
    }
    hdi_fiber_leave(fiber, cpu_core_pick_fiber(core));
}

/* ---- warps, and reports of kernels ---- */

/* Ends the launch from a fiber. */
HDI_FIBER_CODE __attribute__((noreturn)) static void cpu_core_stop_launch(hdi_cpu_core *core, hdi_fiber *fiber,
                                                                          hdcu_result failure)
{
    core->failure = failure;
    hdi_fiber_leave(fiber, &core->set.main);
}

/* "kernel 'k', block (0, 0, 0)" */
static int cpu_core_tell_block(hdi_cpu_core *core)
{
    const hd_kernel_thread *m = &core->model;
    return snprintf(core->reason, sizeof core->reason, "kernel '%.60s', block (%u, %u, %u)", core->launch->kernel->name,
                    m->block.x, m->block.y, m->block.z);
}

/* Reports that some threads of a warp wait for others, which wait at a barrier. Names one thread of
 * each kind. */
static void cpu_core_tell_apart(hdi_cpu_core *core)
{
    const hdi_warp *w = core->warps.of;
    while (w->arrived == 0) {
        w++;
    }
    const hd_kernel_thread *here = &w->waiting[__builtin_ctz(w->arrived)]->self, *there = here;
    for (uint32_t i = 0; i < core->n_arrived; i++) {
        const hd_kernel_thread *t = &core->arrived[i]->self;
        there = core->warps.of + hdi_thread_number(t) / 32 == w ? t : there;
    }
    int n = cpu_core_tell_block(core);
    snprintf(core->reason + n, sizeof core->reason - (size_t)n,
             ": thread (%u, %u, %u) waits for its warp, and thread (%u, %u, %u) of that warp waits at hd_barrier",
             here->thread.x, here->thread.y, here->thread.z, there->thread.x, there->thread.y, there->thread.z);
    core->failure = HDCU_ERROR_LAUNCH_FAILED;
}

/* Reports that two threads of a warp called different functions. */
static void cpu_core_tell_different(hdi_cpu_core *core, const hdi_warp *w, const hd_kernel_thread *self)
{
    const hd_kernel_thread *other = &w->waiting[__builtin_ctz(w->arrived)]->self;
    int n = cpu_core_tell_block(core);
    snprintf(core->reason + n, sizeof core->reason - (size_t)n,
             ": threads (%u, %u, %u) and (%u, %u, %u) of one warp call different functions of warps", other->thread.x,
             other->thread.y, other->thread.z, self->thread.x, self->thread.y, self->thread.z);
}

/* Makes the warps of the block, with the threads that still run. False: out of memory. */
static bool cpu_core_make_warps(hdi_cpu_core *core, const hdi_fiber *asking)
{
    if (!hdi_warps_make(&core->warps, core->n_threads)) {
        return false;
    }
    for (uint32_t i = core->started; i < core->n_threads; i++) {
        hdi_warps_add(&core->warps, core->multiplier != 0 ? cpu_core_thread_at(core, i) : i);
    }
    for (uint32_t i = 0; i < core->n_arrived; i++) {
        hdi_warps_add(&core->warps, hdi_thread_number(&core->arrived[i]->self));
    }
    for (uint32_t i = core->ready_next; i < core->n_ready; i++) {
        hdi_warps_add(&core->warps, hdi_thread_number(&core->ready[i]->self));
    }
    hdi_warps_add(&core->warps, hdi_thread_number(&asking->self));
    core->has_warps = true;
    return true;
}

/* Ends the meeting of a warp, and makes the waiting lanes ready. `lane`: the running lane, which
 * does not wait. 32: all lanes wait. */
HDI_FIBER_CODE static void cpu_core_end_meeting(hdi_cpu_core *core, hdi_warp *w, uint32_t lane)
{
    uint32_t lanes = hdi_warp_end_meeting(w);
    uint32_t first = core->launch->schedule != 0 ? (uint32_t)(hdi_random(&core->random) % 32) : 0;
    /* the list has room for all fibers, since each fiber is in it at most once */
    if (core->ready_next > 0) {
        core->n_ready -= core->ready_next;
        memmove(core->ready, core->ready + core->ready_next, core->n_ready * sizeof *core->ready);
        core->ready_next = 0;
    }
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t l = (i + first) % 32;
        if ((lanes >> l & 1) != 0 && l != lane) {
            core->ready[core->n_ready++] = w->waiting[l];
            core->n_meeting--;
        }
    }
}

/* The functions of warps call this: hd_cpu_services.meet. */
HDI_FIBER_CODE static const hd_warp_values *cpu_core_meet(hd_kernel_thread *self, uint32_t what, uint64_t value)
{
    hdi_fiber *fiber = (hdi_fiber *)self;
    hdi_cpu_core *core = (hdi_cpu_core *)fiber->set;
    if (!core->has_warps) {
        core->asking = fiber;
        core->wants_warps = true;
        hdi_fiber_switch(fiber, &core->set.main);
    }
    uint32_t number = hdi_thread_number(self), lane = number % 32;
    hdi_warp *w = &core->warps.of[number / 32];
    if (w->arrived != 0 && w->what != what) {
        cpu_core_tell_different(core, w, self);
        cpu_core_stop_launch(core, fiber, HDCU_ERROR_LAUNCH_FAILED);
    }
    hd_warp_values *values = hdi_warp_arrive(w, lane, what, value, fiber);
    if (hdi_warp_is_complete(w)) {
        cpu_core_end_meeting(core, w, lane);
        return values;
    }
    cpu_core_need_fibers(core, fiber);
    core->n_meeting++;
    hdi_fiber_switch(fiber, cpu_core_pick_fiber(core));
    return values;
}

/* Called when a thread returned from the kernel. */
HDI_FIBER_CODE static void cpu_core_leave_warp(hdi_cpu_core *core, const hd_kernel_thread *self)
{
    uint32_t number = hdi_thread_number(self);
    hdi_warp *w = &core->warps.of[number / 32];
    w->alive &= ~((uint32_t)1 << number % 32);
    if (hdi_warp_is_complete(w)) {
        cpu_core_end_meeting(core, w, 32);
    }
}

/* hd_assert calls this if its condition is false: hd_cpu_services.failed. */
HDI_FIBER_CODE __attribute__((noreturn)) static void
cpu_core_fail_assertion(hd_kernel_thread *self, const char *assertion, const char *file, int line)
{
    /* cut a long path at its start, since its end tells more */
    enum { FILE_MOST = 80 };
    hdi_fiber *fiber = (hdi_fiber *)self;
    hdi_cpu_core *core = (hdi_cpu_core *)fiber->set;
    size_t length = strlen(file);
    int n = cpu_core_tell_block(core);
    snprintf(core->reason + n, sizeof core->reason - (size_t)n,
             ", thread (%u, %u, %u): assertion '%.60s' failed at %s:%d", self->thread.x, self->thread.y, self->thread.z,
             assertion, length > FILE_MOST ? file + (length - FILE_MOST) : file, line);
    cpu_core_stop_launch(core, fiber, HDCU_ERROR_ASSERT);
}

/* hd_printf calls this: hd_cpu_services.print. The function writes the text in one piece, and the
 * worker flushes it. */
static int cpu_core_print(hd_kernel_thread *self, const char *format, ...)
{
    hdi_cpu_core *core = (hdi_cpu_core *)((hdi_fiber *)self)->set;
    char text[PRINT_BYTES];
    va_list values;
    va_start(values, format);
    int length = vsnprintf(text, sizeof text, format, values);
    va_end(values);
    if (length > 0) {
        fwrite(text, 1, (size_t)length < sizeof text ? (size_t)length : sizeof text - 1, stdout);
        core->printed = true;
    }
    return length;
}

static const hd_cpu_services services = {cpu_core_meet, cpu_core_print, cpu_core_fail_assertion};

void hdi_cpu_core_flush(hdi_cpu_core *core)
{
    if (core->printed) {
        core->printed = false;
        fflush(stdout);
    }
}

/* ---- blocks ---- */

/* Makes the fibers and warps that the asking fiber waits for. False: the launch is cancelled. */
static bool cpu_core_provide(hdi_cpu_core *core, const hdi_fiber *asking)
{
    bool good;
    do {
        uint32_t count = core->n_threads - core->started + 1;
        good = !core->wants_fibers || (cpu_core_reserve_lists(core, count) && hdi_fibers_reserve(&core->set, count));
        good = good && (!core->wants_warps || cpu_core_make_warps(core, asking));
    } while (!good && hdi_cpu_wait_for_memory(core->launch));
    core->wants_fibers = core->wants_warps = false;
    return good;
}

static hdcu_result cpu_core_fault_result(hdi_cpu_core *core, uintptr_t *fault_address)
{
    switch (core->set.frame.signal) {
    case SIGILL:
        return HDCU_ERROR_ILLEGAL_INSTRUCTION;
    case SIGFPE:
        return HDCU_ERROR_LAUNCH_FAILED;
    default:
        if (fault_address != NULL) {
            *fault_address = core->set.frame.address;
        }
        return HDCU_ERROR_ILLEGAL_ADDRESS;
    }
}

hdcu_result hdi_cpu_core_run_block(hdi_cpu_core *core, const hdi_cpu_launch *launch, const void *arguments, uint32_t x,
                                   uint32_t y, uint32_t z, uintptr_t *fault_address)
{
    core->failure = HDCU_SUCCESS;
    while (!cpu_core_reserve_shared(core, launch->dynamic_shared_bytes)) {
        if (!hdi_cpu_wait_for_memory(launch)) {
            return HDCU_SUCCESS;
        }
    }
    core->launch = launch;
    core->arguments = arguments;
    core->model.block.x = x, core->model.block.y = y, core->model.block.z = z;
    core->model.block_dim.x = launch->block[0];
    core->model.block_dim.y = launch->block[1];
    core->model.block_dim.z = launch->block[2];
    core->model.grid_dim.x = launch->grid[0];
    core->model.grid_dim.y = launch->grid[1];
    core->model.grid_dim.z = launch->grid[2];
    core->model.dynamic_shared = core->shared;
    core->model.barrier = cpu_core_barrier;
    core->model.services = &services;
    core->n_threads = launch->block[0] * launch->block[1] * launch->block[2];
    core->started = 0;
    core->x = core->y = core->z = 0;
    core->multiplier = core->offset = 0;
    core->n_arrived = core->n_ready = core->ready_next = 0;
    core->wants_fibers = core->wants_warps = core->has_warps = false;
    core->asking = NULL;
    core->n_meeting = 0;
    core->set.used = 0;
    if (launch->schedule != 0) {
        core->random = launch->schedule ^ ((uint64_t)z << 42 ^ (uint64_t)y << 21 ^ x);
        core->multiplier = hdi_random_multiplier(&core->random, core->n_threads);
        core->offset = (uint32_t)(hdi_random(&core->random) % core->n_threads);
    }
    hdi_fiber *fiber = hdi_fiber_start(&core->set, cpu_core_run_threads);
    for (;;) {
        hdi_fiber_enter(&core->set, fiber);
        if (core->set.frame.signal != 0) {
            return cpu_core_fault_result(core, fault_address);
        }
        if (core->failure != HDCU_SUCCESS) {
            hdi_fibers_abandon(&core->set);
            return core->failure;
        }
        if (core->asking == NULL) {
            return HDCU_SUCCESS;
        }
        fiber = core->asking;
        core->asking = NULL;
        if (!cpu_core_provide(core, fiber)) {
            hdi_fibers_abandon(&core->set);
            return HDCU_SUCCESS;
        }
    }
}

HDI_FIBER_CODE static void cpu_core_run_copy(void *argument)
{
    hdi_fiber *fiber = argument;
    hdi_cpu_core *core = (hdi_cpu_core *)fiber->set;
    hdi_fiber_begin(fiber);
    core->guarded(core->guarded_data);
    hdi_fiber_leave(fiber, &core->set.main);
}

hdcu_result hdi_cpu_core_run_guarded(hdi_cpu_core *core, void (*copy)(void *), void *data, uintptr_t *fault_address)
{
    core->guarded = copy;
    core->guarded_data = data;
    core->set.used = 0;
    hdi_fiber_enter(&core->set, hdi_fiber_start(&core->set, cpu_core_run_copy));
    return core->set.frame.signal == 0 ? HDCU_SUCCESS : cpu_core_fault_result(core, fault_address);
}
