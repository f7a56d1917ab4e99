/* cpu_block.c - the threads of one block, one after another and around barriers.
 *
 * A fiber takes a thread, runs it to its end and takes the next. So without barriers one fiber runs the whole block as a
 * plain loop. A thread that reaches a barrier parks its fiber, and another fiber goes on with the threads that have not
 * started. When all that still run have arrived, they continue one after another.
 * Control passes from fiber to fiber directly. It comes back to the worker's own stack when the block is done, when more
 * fibers are needed, and on a fault.
 * Threads: one per core. The code between hdi_fiber_enter and the kernel's entry runs on fibers. Locks: none. Blocking:
 * hdi_fibers_reserve.
 * Always: every fiber in use is running, in `arrived`, or in `ready` from ready_next on.
 */
#include "simulator/cpu_block.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

uint64_t hdi_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint32_t hdi_random_multiplier(uint64_t *state, uint64_t n)
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

bool hdi_core_init(hdi_core *core)
{
    memset(core, 0, sizeof *core);
    return hdi_fibers_init(&core->set);
}

void hdi_core_destroy(hdi_core *core)
{
    hdi_fibers_destroy(&core->set);
    free(core->shared);
    free(core->storage);
    free(core->arrived);
    free(core->ready);
}

static bool reserve_lists(hdi_core *core, uint32_t count)
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

static bool reserve_shared(hdi_core *core, size_t bytes)
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

static bool reserve_storage(hdi_core *core, const hdi_cpu_storage *s)
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

bool hdi_core_join(hdi_core *core, const hdi_cpu_launch *launch)
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

/* Gives the fiber the next thread that has not started. */
HDI_FIBER_CODE static void take_thread(hdi_core *core, hdi_fiber *fiber)
{
    hd_kernel_thread *self = &fiber->self;
    uint32_t number = core->started++;
    if (core->multiplier != 0) {
        uint32_t n = (uint32_t)(((uint64_t)number * core->multiplier + core->offset) % core->n_threads);
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

/* Chooses what continues when the running fiber cannot: a new fiber, one that waits, or the worker when the block is
 * done. */
HDI_FIBER_CODE static hdi_fiber *pick(hdi_core *core)
{
    if (core->started < core->n_threads) {
        return hdi_fiber_start(&core->set, run_threads);
    }
    if (core->ready_next == core->n_ready) {
        if (core->n_arrived == 0) {
            return &core->set.main;
        }
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
    return core->ready[core->ready_next++];
}

/* hd_barrier calls this. */
HDI_FIBER_CODE static void barrier(hd_kernel_thread *self)
{
    hdi_fiber *fiber = (hdi_fiber *)self; /* `self` is its first member */
    hdi_core *core = (hdi_core *)fiber->set;
    if (core->started == core->n_threads && core->n_arrived == 0 && core->ready_next == core->n_ready) {
        return; /* the only thread that still runs */
    }
    if (core->set.used == 1 && core->set.owned <= core->n_threads - core->started) {
        core->wants_fibers = true;
        hdi_fiber_switch(fiber, &core->set.main);
    }
    core->arrived[core->n_arrived++] = fiber;
    hdi_fiber *next = pick(core);
    if (next != fiber) {
        hdi_fiber_switch(fiber, next);
    }
}

/* A fiber of a block: runs threads until all have started. */
HDI_FIBER_CODE static void run_threads(void *argument)
{
    hdi_fiber *fiber = argument;
    hdi_core *core = (hdi_core *)fiber->set;
    hdi_fiber_begin(fiber);
    void (*entry)(hd_kernel_thread *, const void *) = core->launch->kernel->entry;
    const void *arguments = core->arguments;
    fiber->self = core->model;
    while (core->started < core->n_threads) {
        take_thread(core, fiber);
        entry(&fiber->self, arguments);
    }
    hdi_fiber_leave(fiber, pick(core));
}

static hdcu_result fault_result(hdi_core *core, uintptr_t *fault_address)
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

hdcu_result hdi_core_block(hdi_core *core, const hdi_cpu_launch *launch, const void *arguments, uint32_t x, uint32_t y,
                           uint32_t z, uintptr_t *fault_address)
{
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
    core->n_threads = launch->block[0] * launch->block[1] * launch->block[2];
    core->started = 0;
    core->x = core->y = core->z = 0;
    core->multiplier = core->offset = 0;
    core->n_arrived = core->n_ready = core->ready_next = 0;
    core->wants_fibers = false;
    core->set.used = 0;
    if (launch->schedule != 0) {
        core->random = launch->schedule ^ ((uint64_t)z << 42 ^ (uint64_t)y << 21 ^ x);
        core->multiplier = hdi_random_multiplier(&core->random, core->n_threads);
        core->offset = (uint32_t)(hdi_random(&core->random) % core->n_threads);
    }
    hdi_fiber *fiber = hdi_fiber_start(&core->set, run_threads);
    for (;;) {
        hdi_fiber_enter(&core->set, fiber);
        if (core->set.frame.signal != 0) {
            return fault_result(core, fault_address);
        }
        if (!core->wants_fibers) {
            return HDCU_SUCCESS;
        }
        core->wants_fibers = false;
        uint32_t count = core->n_threads - core->started + 1;
        if (!reserve_lists(core, count) || !hdi_fibers_reserve(&core->set, count)) {
            hdi_fibers_abandon(&core->set);
            return HDCU_ERROR_OUT_OF_MEMORY;
        }
    }
}

HDI_FIBER_CODE static void run_guarded(void *argument)
{
    hdi_fiber *fiber = argument;
    hdi_core *core = (hdi_core *)fiber->set;
    hdi_fiber_begin(fiber);
    core->guarded(core->guarded_data);
    hdi_fiber_leave(fiber, &core->set.main);
}

hdcu_result hdi_core_guarded(hdi_core *core, void (*copy)(void *), void *data, uintptr_t *fault_address)
{
    core->guarded = copy;
    core->guarded_data = data;
    core->set.used = 0;
    hdi_fiber_enter(&core->set, hdi_fiber_start(&core->set, run_guarded));
    return core->set.frame.signal == 0 ? HDCU_SUCCESS : fault_result(core, fault_address);
}
