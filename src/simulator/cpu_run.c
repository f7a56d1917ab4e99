/* cpu_run.c - runs the blocks of all launches on the CPU: the pool of workers, and the threads of each block.
 *
 * There is one worker less than there are processors. A launch is put on a list from which workers take launches. The
 * thread that called hdi_cpu_run works on its own launch too, so a launch makes progress whatever the workers do. An atomic
 * counter hands out blocks in small runs. A worker with nothing to do sleeps.
 * A fiber takes a thread of a block, runs it to its end and takes the next. So without barriers one fiber runs the whole
 * block as a plain loop. A thread that reaches a barrier parks its fiber, and another fiber goes on with the threads that
 * have not started. When all that still run have arrived, they continue one after another.
 * The threads of a warp meet likewise (cpu_warp.h).
 * Control passes from fiber to fiber directly. It comes back to the worker's own stack when the block is done, when more
 * fibers are needed, and on a fault.
 * Threads: workers are made on first use, detached, and stay as long as the process. They block all signals but those that
 * code raises itself. The pool keeps the code that it runs from being unloaded. A child made by fork starts with a pool of
 * its own. A core (what one worker needs to run blocks) is used by one thread at a time. The code between hdi_fiber_enter
 * and the kernel's entry runs on fibers.
 * Locks: `lock` guards the lists, the unused cores and the numbers of helpers; no kernel runs under it.
 * Blocking: hdi_cpu_run returns after the last helper has left its launch. hdi_fibers_reserve may wait for fibers.
 * Always: a job is touched by its caller, and by workers that are counted in its `helpers`. Every fiber in use is running,
 * in `arrived`, in `ready` from ready_next on, or at a meeting of its warp.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/lock.h"
#include "base/thread.h"
#include "base/wait.h"
#include "simulator/cpu_fiber.h"
#include "simulator/cpu_run.h"
#include "simulator/cpu_warp.h"

#define SPARE_CORES 16 /* kept for later callers */
#define TURN_BLOCKS 32 /* after so many a worker checks whether another launch needs help */
#define ARGUMENT_BYTES 4096
#define PRINT_BYTES 4096 /* what one hd_printf writes at most; it is formatted on a fiber's stack */

typedef struct cpu_core {
    hdi_fiber_set set;     /* first: a fiber's set is its core */
    struct cpu_core *next; /* for the owner's list of spare ones */
    struct cpu_core *all_next, *all_previous;
    void *shared; /* dynamic shared memory */
    size_t shared_bytes;
    void *storage; /* of HD_SHARED variables */
    size_t storage_bytes, storage_align;
    /* the block at hand */
    const hdi_cpu_launch *launch;
    const void *arguments;
    hd_kernel_thread model; /* what all threads of the block have in common */
    uint32_t n_threads;
    uint32_t started; /* threads that have begun: taken in this order, as `multiplier` and `offset` change it */
    uint32_t x, y, z; /* the next thread, where the order is not perturbed */
    uint32_t multiplier, offset;
    uint64_t random;
    hdi_fiber **arrived, **ready; /* waiting at this barrier; passed the one before and to be continued */
    uint32_t n_arrived, n_ready, ready_next, list_capacity;
    hdi_warps warps;
    bool has_warps;     /* `warps` has this block's, since a thread called a function of warps */
    uint32_t n_meeting; /* threads that wait at meetings of warps */
    hdi_fiber *asking;  /* waits until the worker has made what it wants; NULL: none */
    bool wants_fibers, wants_warps;
    hdcu_result failure; /* why a thread ended the launch; 0: none did */
    char reason[HDI_DRIVER_REASON_BYTES];
    bool printed; /* to standard output, since it was flushed */
    void (*guarded)(void *);
    void *guarded_data;
} cpu_core;

/* ------------------------------------------------------------------------------------------------ random numbers -- */

uint64_t hdi_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* A multiplier below 2^32 that has no divisor in common with n > 0, so that i -> (i * multiplier + offset) % n visits
 * everything. */
static uint32_t random_multiplier(uint64_t *state, uint64_t n)
{
    for (;;) {
        uint64_t candidate = hdi_random(state) >> 33 | 1;
        uint64_t a = candidate, b = n;
        while (b != 0) {
            uint64_t r = a % b;
            a = b;
            b = r;
        }
        if (a == 1) {
            return (uint32_t)candidate;
        }
    }
}

/* -------------------------------------------------------------------------------------------------------- blocks -- */

/* False: out of memory. */
static bool core_init(cpu_core *core)
{
    memset(core, 0, sizeof *core);
    return hdi_fibers_init(&core->set);
}

/* False: out of memory. */
static void core_destroy(cpu_core *core)
{
    hdi_fibers_destroy(&core->set);
    hdi_warps_destroy(&core->warps);
    free(core->shared);
    free(core->storage);
    free(core->arrived);
    free(core->ready);
}

static bool reserve_lists(cpu_core *core, uint32_t count)
{
    if (count <= core->list_capacity) {
        return true;
    }
    /* Without memory both lists stay as they are, since a block that needs no more fibers than there are uses them again. */
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

static bool reserve_shared(cpu_core *core, size_t bytes)
{
    if (bytes <= core->shared_bytes) {
        return true;
    }
    free(core->shared);
    core->shared_bytes = (bytes + 4095) & ~(size_t)4095;
    core->shared = aligned_alloc(64, core->shared_bytes);
    if (core->shared == NULL) {
        core->shared_bytes = 0;
        return false;
    }
    return true;
}

static _Thread_local void *own_storage;

void *hdi_cpu_shared(void)
{
    return own_storage;
}

static bool reserve_storage(cpu_core *core, const hdi_cpu_storage *s)
{
    if (s->bytes <= core->storage_bytes && s->align <= core->storage_align) {
        return true;
    }
    size_t align = s->align > 64 ? s->align : 64, bytes = (s->bytes + align - 1) & ~(align - 1);
    free(core->storage);
    core->storage = bytes >= s->bytes ? aligned_alloc(align, bytes) : NULL;
    core->storage_bytes = core->storage != NULL ? bytes : 0;
    core->storage_align = core->storage != NULL ? align : 0;
    return core->storage != NULL;
}

/* Makes the system allocate this thread's storage. False: out of memory.
 * The system would end the process without memory, so a trial allocation comes first. Another thread may take that
 * memory, but hardly ever does. */
static bool make_system_storage(const hdi_cpu_storage *s)
{
    extern void *__tls_get_addr(size_t index[2]);
    enum { TABLE_BYTES = 64 * 1024 }; /* the system's own table of all modules */
    void *storage = NULL;
    if (dlinfo(s->by_system, RTLD_DI_TLS_DATA, &storage) == 0 && storage != NULL) {
        return true;
    }
    size_t index[2] = {0, 0};
    void *room = malloc(s->bytes + s->align + TABLE_BYTES);
    free(room);
    return room != NULL && dlinfo(s->by_system, RTLD_DI_TLS_MODID, &index[0]) == 0 && __tls_get_addr(index) != NULL;
}

/* Before blocks of this launch, on the thread that will run them. False: out of memory. */
static bool core_join(cpu_core *core, const hdi_cpu_launch *launch)
{
    const hdi_cpu_storage *s = launch->storage;
    if (s == NULL || s->bytes == 0) {
        return true;
    }
    if (s->by_system != NULL) {
        return make_system_storage(s);
    }
    if (!reserve_storage(core, s)) {
        return false;
    }
    if (s->image_bytes > 0) {
        memcpy(core->storage, s->image, s->image_bytes);
    }
    own_storage = core->storage;
    return true;
}

/* The number of the thread that starts as the `order`th, where the order is perturbed. */
HDI_FIBER_CODE static uint32_t thread_at(const cpu_core *core, uint32_t order)
{
    return (uint32_t)(((uint64_t)order * core->multiplier + core->offset) % core->n_threads);
}

/* Gives the fiber the next thread that has not started. */
HDI_FIBER_CODE static void take_thread(cpu_core *core, hdi_fiber *fiber)
{
    hd_kernel_thread *self = &fiber->self;
    uint32_t number = core->started++;
    if (core->multiplier != 0) {
        uint32_t n = thread_at(core, number);
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

static void run_threads(void *fiber);
static void tell_apart(cpu_core *core);

/* All threads that run have arrived at the barrier: they are ready. */
HDI_FIBER_CODE static void pass_barrier(cpu_core *core)
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

/* Chooses what continues when the running fiber cannot: one that is ready, or a new one. It is the worker when the block is
 * done, or no thread can go on. */
HDI_FIBER_CODE static hdi_fiber *pick(cpu_core *core)
{
    if (core->ready_next < core->n_ready) {
        return core->ready[core->ready_next++];
    }
    if (core->started < core->n_threads) {
        return hdi_fiber_start(&core->set, run_threads);
    }
    if (core->n_meeting > 0) {
        tell_apart(core);
        return &core->set.main;
    }
    if (core->n_arrived == 0) {
        return &core->set.main;
    }
    pass_barrier(core);
    return core->ready[core->ready_next++];
}

/* Has the worker make fibers for all threads, before the first fiber parks. */
HDI_FIBER_CODE static void need_fibers(cpu_core *core, hdi_fiber *fiber)
{
    if (core->set.used == 1 && core->set.owned <= core->n_threads - core->started) {
        core->asking = fiber;
        core->wants_fibers = true;
        hdi_fiber_switch(fiber, &core->set.main);
    }
}

/* hd_barrier calls this. */
HDI_FIBER_CODE static void barrier(hd_kernel_thread *self)
{
    hdi_fiber *fiber = (hdi_fiber *)self; /* `self` is its first member */
    cpu_core *core = (cpu_core *)fiber->set;
    if (core->started == core->n_threads && core->n_arrived == 0 && core->ready_next == core->n_ready &&
        core->n_meeting == 0) {
        return; /* the only thread that still runs */
    }
    need_fibers(core, fiber);
    core->arrived[core->n_arrived++] = fiber;
    hdi_fiber *next = pick(core);
    if (next != fiber) {
        hdi_fiber_switch(fiber, next);
    }
}

static void leave_warp(cpu_core *core, const hd_kernel_thread *self);

/* A fiber of a block: runs threads until all have started. */
HDI_FIBER_CODE static void run_threads(void *argument)
{
    hdi_fiber *fiber = argument;
    cpu_core *core = (cpu_core *)fiber->set;
    hdi_fiber_begin(fiber);
    void (*entry)(hd_kernel_thread *, const void *) = core->launch->kernel->entry;
    const void *arguments = core->arguments;
    fiber->self = core->model;
    while (core->started < core->n_threads) {
        take_thread(core, fiber);
        entry(&fiber->self, arguments);
        if (core->has_warps) {
            leave_warp(core, &fiber->self);
        }
    }
    hdi_fiber_leave(fiber, pick(core));
}

/* ------------------------------------------------------------------------------------------ warps, and what kernels report -- */

/* Ends the launch from a fiber. */
HDI_FIBER_CODE __attribute__((noreturn)) static void stop(cpu_core *core, hdi_fiber *fiber, hdcu_result failure)
{
    core->failure = failure;
    hdi_fiber_leave(fiber, &core->set.main);
}

/* "kernel 'k', block (0, 0, 0)" */
static int tell_block(cpu_core *core)
{
    const hd_kernel_thread *m = &core->model;
    return snprintf(core->reason, sizeof core->reason, "kernel '%.60s', block (%u, %u, %u)", core->launch->kernel->name,
                    m->block.x, m->block.y, m->block.z);
}

/* Some threads of a warp wait for others, which wait at a barrier. Names one of each. */
static void tell_apart(cpu_core *core)
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
    int n = tell_block(core);
    snprintf(core->reason + n, sizeof core->reason - (size_t)n,
             ": thread (%u, %u, %u) waits for its warp, and thread (%u, %u, %u) of that warp waits at hd_barrier",
             here->thread.x, here->thread.y, here->thread.z, there->thread.x, there->thread.y, there->thread.z);
    core->failure = HDCU_ERROR_LAUNCH_FAILED;
}

/* Two threads of a warp called functions that differ. */
static void tell_different(cpu_core *core, const hdi_warp *w, const hd_kernel_thread *self)
{
    const hd_kernel_thread *other = &w->waiting[__builtin_ctz(w->arrived)]->self;
    int n = tell_block(core);
    snprintf(core->reason + n, sizeof core->reason - (size_t)n,
             ": threads (%u, %u, %u) and (%u, %u, %u) of one warp call different functions of warps", other->thread.x,
             other->thread.y, other->thread.z, self->thread.x, self->thread.y, self->thread.z);
}

/* Makes the warps of the block, with the threads that have not returned. False: out of memory. */
static bool make_warps(cpu_core *core, const hdi_fiber *asking)
{
    if (!hdi_warps_make(&core->warps, core->n_threads)) {
        return false;
    }
    for (uint32_t i = core->started; i < core->n_threads; i++) {
        hdi_warps_add(&core->warps, core->multiplier != 0 ? thread_at(core, i) : i);
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

/* Ends the meeting of a warp: the lanes that wait are ready. `lane` runs, and does not wait; 32: all wait. */
HDI_FIBER_CODE static void end_meeting(cpu_core *core, hdi_warp *w, uint32_t lane)
{
    uint32_t lanes = hdi_warp_end_meeting(w);
    uint32_t first = core->launch->schedule != 0 ? (uint32_t)(hdi_random(&core->random) % 32) : 0;
    if (core->ready_next > 0) { /* room for all: each fiber is in the list once */
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
HDI_FIBER_CODE static const hd_warp_values *meet(hd_kernel_thread *self, uint32_t what, uint64_t value)
{
    hdi_fiber *fiber = (hdi_fiber *)self;
    cpu_core *core = (cpu_core *)fiber->set;
    if (!core->has_warps) {
        core->asking = fiber;
        core->wants_warps = true;
        hdi_fiber_switch(fiber, &core->set.main);
    }
    uint32_t number = hdi_thread_number(self), lane = number % 32;
    hdi_warp *w = &core->warps.of[number / 32];
    if (w->arrived != 0 && w->what != what) {
        tell_different(core, w, self);
        stop(core, fiber, HDCU_ERROR_LAUNCH_FAILED);
    }
    hd_warp_values *values = hdi_warp_arrive(w, lane, what, value, fiber);
    if (hdi_warp_is_complete(w)) {
        end_meeting(core, w, lane);
        return values;
    }
    need_fibers(core, fiber);
    core->n_meeting++;
    hdi_fiber_switch(fiber, pick(core));
    return values;
}

/* A thread has returned from the kernel. */
HDI_FIBER_CODE static void leave_warp(cpu_core *core, const hd_kernel_thread *self)
{
    uint32_t number = hdi_thread_number(self);
    hdi_warp *w = &core->warps.of[number / 32];
    w->alive &= ~((uint32_t)1 << number % 32);
    if (hdi_warp_is_complete(w)) {
        end_meeting(core, w, 32);
    }
}

/* hd_assert calls this where it does not hold: hd_cpu_services.failed. */
HDI_FIBER_CODE __attribute__((noreturn)) static void fail_assertion(hd_kernel_thread *self, const char *assertion,
                                                                    const char *file, int line)
{
    enum { FILE_MOST = 80 }; /* the end of a long path has more of interest than its start */
    hdi_fiber *fiber = (hdi_fiber *)self;
    cpu_core *core = (cpu_core *)fiber->set;
    size_t length = strlen(file);
    int n = tell_block(core);
    snprintf(core->reason + n, sizeof core->reason - (size_t)n,
             ", thread (%u, %u, %u): assertion '%.60s' failed at %s:%d", self->thread.x, self->thread.y, self->thread.z,
             assertion, length > FILE_MOST ? file + (length - FILE_MOST) : file, line);
    stop(core, fiber, HDCU_ERROR_ASSERT);
}

/* hd_printf calls this: hd_cpu_services.print. The text goes out in one piece, and the worker flushes it. */
static int print(hd_kernel_thread *self, const char *format, ...)
{
    cpu_core *core = (cpu_core *)((hdi_fiber *)self)->set;
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

static const hd_cpu_services services = {meet, print, fail_assertion};

/* What was printed is there once the worker has left the launch. */
static void flush(cpu_core *core)
{
    if (core->printed) {
        core->printed = false;
        fflush(stdout);
    }
}

/* ------------------------------------------------------------------------------------------------------ blocks -- */

/* Makes what the fiber that asks wants. False: out of memory. */
static bool provide(cpu_core *core, const hdi_fiber *asking)
{
    bool good = true;
    if (core->wants_fibers) {
        uint32_t count = core->n_threads - core->started + 1;
        good = reserve_lists(core, count) && hdi_fibers_reserve(&core->set, count);
    }
    if (core->wants_warps) {
        good = good && make_warps(core, asking);
    }
    core->wants_fibers = core->wants_warps = false;
    return good;
}

static hdcu_result fault_result(cpu_core *core, uintptr_t *fault_address)
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

/* Runs block (x, y, z). As hdi_cpu_run. `arguments` is aligned to 16 bytes. */
static hdcu_result core_block(cpu_core *core, const hdi_cpu_launch *launch, const void *arguments, uint32_t x,
                              uint32_t y, uint32_t z, uintptr_t *fault_address)
{
    core->failure = HDCU_SUCCESS;
    if (!reserve_shared(core, launch->dynamic_shared_bytes) || !reserve_lists(core, 1)) {
        return HDCU_ERROR_OUT_OF_MEMORY;
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
    core->model.barrier = barrier;
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
        core->multiplier = random_multiplier(&core->random, core->n_threads);
        core->offset = (uint32_t)(hdi_random(&core->random) % core->n_threads);
    }
    hdi_fiber *fiber = hdi_fiber_start(&core->set, run_threads);
    for (;;) {
        hdi_fiber_enter(&core->set, fiber);
        if (core->set.frame.signal != 0) {
            return fault_result(core, fault_address);
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
        if (!provide(core, fiber)) {
            hdi_fibers_abandon(&core->set);
            return HDCU_ERROR_OUT_OF_MEMORY;
        }
    }
}

HDI_FIBER_CODE static void run_guarded(void *argument)
{
    hdi_fiber *fiber = argument;
    cpu_core *core = (cpu_core *)fiber->set;
    hdi_fiber_begin(fiber);
    core->guarded(core->guarded_data);
    hdi_fiber_leave(fiber, &core->set.main);
}

/* Calls copy(data) on a fiber, as hdi_cpu_guarded. */
static hdcu_result core_guarded(cpu_core *core, void (*copy)(void *), void *data, uintptr_t *fault_address)
{
    core->guarded = copy;
    core->guarded_data = data;
    core->set.used = 0;
    hdi_fiber_enter(&core->set, hdi_fiber_start(&core->set, run_guarded));
    return core->set.frame.signal == 0 ? HDCU_SUCCESS : fault_result(core, fault_address);
}

/* ------------------------------------------------------------------------------------------------------ launches -- */

typedef struct job {
    struct job *next, *previous; /* the list; under lock */
    uint32_t helpers;            /* workers inside; under lock */
    const hdi_cpu_launch *launch;
    const void *arguments;
    uint64_t n_blocks;
    uint64_t run_blocks;         /* blocks handed out at a time */
    uint64_t multiplier, offset; /* perturb the order of blocks; multiplier 0: the usual order */
    _Atomic uint64_t next_block; /* handed out so far; relaxed: the job was published under lock */
    _Atomic int result;          /* the first failure; relaxed as a hint, read after `helpers` is 0 under lock */
    uintptr_t fault_address;     /* of that failure; written by the thread that set `result` */
    char reason[HDI_DRIVER_REASON_BYTES]; /* likewise: what the kernel reported; empty: nothing */
} job;

static hdi_mutex lock = HDI_MUTEX_INIT(HOST_THREADS);
static pthread_cond_t work = PTHREAD_COND_INITIALIZER; /* a job was added */
static pthread_cond_t left = PTHREAD_COND_INITIALIZER; /* a job's last helper has left */
static job *jobs;                                      /* circular, NULL when empty */
static uint32_t n_idle;
static bool started;
static cpu_core *all_cores; /* so that a forked child, and a leak checker, still find them */
static cpu_core *spare;
static uint32_t n_spare;
static _Atomic uint32_t n_jobs;    /* changed under lock; read without it as a hint */
static _Atomic uint32_t n_workers; /* 0 until started; changed under lock, read without it as a hint */

static void list_add(job *j)
{
    if (jobs == NULL) {
        j->next = j->previous = j;
        jobs = j;
    } else {
        j->next = jobs;
        j->previous = jobs->previous;
        j->previous->next = j;
        jobs->previous = j;
    }
    atomic_fetch_add_explicit(&n_jobs, 1, memory_order_relaxed);
}

static void list_remove(job *j)
{
    if (j->next == j) {
        jobs = NULL;
    } else {
        j->next->previous = j->previous;
        j->previous->next = j->next;
        if (jobs == j) {
            jobs = j->next;
        }
    }
    atomic_fetch_sub_explicit(&n_jobs, 1, memory_order_relaxed);
}

static bool has_work(job *j)
{
    return atomic_load_explicit(&j->next_block, memory_order_relaxed) < j->n_blocks &&
           atomic_load_explicit(&j->result, memory_order_relaxed) == 0;
}

static bool is_cancelled(const hdi_cpu_launch *launch)
{
    return launch->cancel != NULL && __atomic_load_n(launch->cancel, __ATOMIC_RELAXED) != 0;
}

static hdcu_result run_block(cpu_core *core, job *j, uint64_t number, uintptr_t *address)
{
    const hdi_cpu_launch *launch = j->launch;
    if (j->multiplier != 0) {
        number = (number * j->multiplier + j->offset) % j->n_blocks;
    }
    uint64_t row = number / launch->grid[0];
    return core_block(core, launch, j->arguments, (uint32_t)(number % launch->grid[0]),
                      (uint32_t)(row % launch->grid[1]), (uint32_t)(row / launch->grid[1]), address);
}

/* `reason`: what the kernel reported, or empty. */
static void fail(job *j, hdcu_result result, uintptr_t address, const char *reason)
{
    int none = 0;
    if (atomic_compare_exchange_strong_explicit(&j->result, &none, result, memory_order_relaxed,
                                                memory_order_relaxed)) {
        j->fault_address = address;
        snprintf(j->reason, sizeof j->reason, "%s", reason);
    }
}

static void run_blocks(cpu_core *core, job *j, uint64_t most_blocks)
{
    uint64_t done = 0;
    while (has_work(j) && done < most_blocks) {
        uint64_t first = atomic_fetch_add_explicit(&j->next_block, j->run_blocks, memory_order_relaxed);
        uint64_t last = first + j->run_blocks < j->n_blocks ? first + j->run_blocks : j->n_blocks;
        for (uint64_t b = first; b < last; b++, done++) {
            if (atomic_load_explicit(&j->result, memory_order_relaxed) != 0 || is_cancelled(j->launch)) {
                return;
            }
            uintptr_t address = 0;
            hdcu_result result = run_block(core, j, b, &address);
            if (result != HDCU_SUCCESS) {
                fail(j, result, address, core->failure != HDCU_SUCCESS ? core->reason : "");
            }
            hdi_fibers_yield(&core->set, false);
        }
    }
}

/* Runs blocks of the job until none are left, or at least most_blocks are done. */
static void work_on(cpu_core *core, job *j, uint64_t most_blocks)
{
    if (core_join(core, j->launch)) {
        run_blocks(core, j, most_blocks);
    } else {
        fail(j, HDCU_ERROR_OUT_OF_MEMORY, 0, "");
    }
    flush(core);
}

/* A launch that needs help, or NULL. Under lock. */
static job *find_job(void)
{
    job *j = jobs;
    if (j != NULL) {
        do {
            if (has_work(j) && !is_cancelled(j->launch)) {
                jobs = j->next; /* the next worker checks the next launch first */
                return j;
            }
            j = j->next;
        } while (j != jobs);
    }
    return NULL;
}

/* Under lock. */
static cpu_core *new_core(void)
{
    cpu_core *core = malloc(sizeof *core);
    if (core == NULL) {
        return NULL;
    }
    if (!core_init(core)) {
        free(core);
        return NULL;
    }
    core->all_next = all_cores;
    if (all_cores != NULL) {
        all_cores->all_previous = core;
    }
    all_cores = core;
    return core;
}

/* Under lock. */
static void delete_core(cpu_core *core)
{
    if (core->all_next != NULL) {
        core->all_next->all_previous = core->all_previous;
    }
    if (core->all_previous != NULL) {
        core->all_previous->all_next = core->all_next;
    } else {
        all_cores = core->all_next;
    }
    core_destroy(core);
    free(core);
}

static void *worker_main(void *argument)
{
    cpu_core *core = argument;
    if (!hdi_fault_prepare_thread()) { /* without it a fault would end the process */
        hdi_mutex_lock(&lock);
        atomic_fetch_sub_explicit(&n_workers, 1, memory_order_relaxed);
        delete_core(core);
        hdi_mutex_unlock(&lock);
        return NULL;
    }
    bool rested = true;
    hdi_mutex_lock(&lock);
    for (;;) {
        job *j = find_job();
        if (j == NULL && !rested) {
            hdi_mutex_unlock(&lock);
            hdi_fibers_yield(&core->set, true);
            rested = true;
            hdi_mutex_lock(&lock);
            continue;
        }
        if (j == NULL) {
            n_idle++;
            hdi_mutex_wait(&lock, &work);
            n_idle--;
            continue;
        }
        j->helpers++;
        hdi_mutex_unlock(&lock);
        rested = false;
        work_on(core, j, atomic_load_explicit(&n_jobs, memory_order_relaxed) > 1 ? TURN_BLOCKS : UINT64_MAX);
        hdi_mutex_lock(&lock);
        if (--j->helpers == 0) {
            pthread_cond_broadcast(&left);
        }
    }
    return NULL;
}

static void after_fork_in_child(void)
{
    hdi_mutex_init(&lock, HDI_RANK_HOST_THREADS);
    pthread_cond_init(&work, NULL);
    pthread_cond_init(&left, NULL);
    jobs = NULL;
    n_idle = 0;
    started = false;
    spare = NULL;
    n_spare = 0;
    atomic_store_explicit(&n_jobs, 0, memory_order_relaxed);
    atomic_store_explicit(&n_workers, 0, memory_order_relaxed);
    hdi_fibers_after_fork();
}

static void start_workers(void)
{
    sigset_t blocked, before;
    sigfillset(&blocked);
    sigdelset(&blocked, SIGSEGV);
    sigdelset(&blocked, SIGBUS);
    sigdelset(&blocked, SIGFPE);
    sigdelset(&blocked, SIGILL);
    sigdelset(&blocked, SIGTRAP);
    sigdelset(&blocked, SIGABRT);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    for (int i = hdi_cpu_count() - 1; i > 0; i--) {
        cpu_core *core = new_core();
        pthread_t thread;
        if (core == NULL || hdi_thread_create(&thread, &attributes, worker_main, core) != 0) {
            if (core != NULL) {
                delete_core(core);
            }
            break; /* fewer workers are enough */
        }
        atomic_fetch_add_explicit(&n_workers, 1, memory_order_relaxed);
    }
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* A core for the calling thread. Starts the pool where it is not running. NULL: out of memory. */
static cpu_core *take_core(void)
{
    static bool forks_handled; /* under lock */
    hdi_keep_loaded();         /* workers and signal handlers outlive every use */
    if (!hdi_fault_prepare_thread()) {
        return NULL;
    }
    hdi_mutex_lock(&lock);
    if (!started) {
        started = true;
        if (!forks_handled) {
            forks_handled = true;
            pthread_atfork(NULL, NULL, after_fork_in_child);
        }
        start_workers();
    }
    cpu_core *core = spare;
    if (core != NULL) {
        spare = core->next;
        n_spare--;
    } else {
        core = new_core();
    }
    hdi_mutex_unlock(&lock);
    return core;
}

static void put_core(cpu_core *core)
{
    hdi_fibers_yield(&core->set, true);
    hdi_mutex_lock(&lock);
    if (n_spare < SPARE_CORES) {
        core->next = spare;
        spare = core;
        n_spare++;
    } else {
        delete_core(core);
    }
    hdi_mutex_unlock(&lock);
}

hdcu_result hdi_cpu_run(const hdi_cpu_launch *launch, uintptr_t *fault_address)
{
    uint64_t threads = 0, blocks = 0;
    if (__builtin_mul_overflow((uint64_t)launch->block[0] * launch->block[1], launch->block[2], &threads) ||
        __builtin_mul_overflow((uint64_t)launch->grid[0] * launch->grid[1], launch->grid[2], &blocks) || threads == 0 ||
        threads > HDI_FIBER_LIMIT / 2 || blocks == 0 || blocks > INT64_MAX) {
        return HDCU_ERROR_INVALID_VALUE;
    }
    _Alignas(16) char aligned[ARGUMENT_BYTES];
    job j;
    memset(&j, 0, sizeof j);
    j.launch = launch;
    j.arguments = launch->arguments;
    if ((uintptr_t)j.arguments % 16 != 0) {
        if (launch->kernel->argument_bytes > sizeof aligned) {
            return HDCU_ERROR_INVALID_VALUE;
        }
        memcpy(aligned, launch->arguments, launch->kernel->argument_bytes);
        j.arguments = aligned;
    }
    j.n_blocks = blocks;
    if (launch->schedule != 0) {
        uint64_t random = launch->schedule;
        j.multiplier = blocks <= UINT32_MAX ? random_multiplier(&random, blocks) : 1;
        j.offset = hdi_random(&random) % blocks;
    }
    cpu_core *core = take_core();
    if (core == NULL) {
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    uint32_t workers = atomic_load_explicit(&n_workers, memory_order_relaxed);
    uint64_t share = blocks / ((uint64_t)(workers + 1) * 16);
    j.run_blocks = share < 1 || launch->schedule != 0 ? 1 : share > 64 ? 64 : share;
    bool shared = workers > 0 && blocks > 1;
    if (shared) {
        hdi_mutex_lock(&lock);
        list_add(&j);
        for (uint64_t wake = blocks - 1 < n_idle ? blocks - 1 : n_idle; wake > 0; wake--) {
            pthread_cond_signal(&work);
        }
        hdi_mutex_unlock(&lock);
    }
    work_on(core, &j, UINT64_MAX);
    if (shared) {
        hdi_mutex_lock(&lock);
        list_remove(&j);
        while (j.helpers != 0) {
            hdi_mutex_wait(&lock, &left);
        }
        hdi_mutex_unlock(&lock);
    }
    put_core(core);
    int result = atomic_load_explicit(&j.result, memory_order_relaxed);
    if (result == HDCU_ERROR_ILLEGAL_ADDRESS && fault_address != NULL) {
        *fault_address = j.fault_address;
    }
    if (launch->reason != NULL) {
        memcpy(launch->reason, j.reason, sizeof j.reason);
    }
    return result;
}

hdcu_result hdi_cpu_guarded(void (*copy)(void *), void *data, uintptr_t *fault_address)
{
    cpu_core *core = take_core();
    if (core == NULL) {
        return HDCU_ERROR_OUT_OF_MEMORY;
    }
    hdcu_result result = core_guarded(core, copy, data, fault_address);
    put_core(core);
    return result;
}
