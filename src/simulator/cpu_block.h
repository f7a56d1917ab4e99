/* cpu_block.h - runs one block of a launch on one worker: its threads are fibers.
 *
 * Threads: a core (what one worker needs to run blocks) is used by one thread at a time. Locks: none of its own.
 */
#ifndef HDI_SIMULATOR_CPU_BLOCK_H
#define HDI_SIMULATOR_CPU_BLOCK_H

#include "simulator/cpu_fiber.h"
#include "simulator/cpu_run.h"

typedef struct hdi_core {
    hdi_fiber_set set;     /* first: a fiber's set is its core */
    struct hdi_core *next; /* for the owner's list of spare ones */
    struct hdi_core *all_next, *all_previous;
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
    bool wants_fibers;
    void (*guarded)(void *);
    void *guarded_data;
} hdi_core;

/* False: out of memory. */
bool hdi_core_init(hdi_core *core);
void hdi_core_destroy(hdi_core *core);

/* Before blocks of this launch, on the thread that will run them. False: out of memory. */
bool hdi_core_join(hdi_core *core, const hdi_cpu_launch *launch);

/* Runs block (x, y, z). As hdi_cpu_run. `arguments` is aligned to 16 bytes. */
hdcu_result hdi_core_block(hdi_core *core, const hdi_cpu_launch *launch, const void *arguments, uint32_t x, uint32_t y,
                           uint32_t z, uintptr_t *fault_address);

/* Calls copy(data) on a fiber, as hdi_cpu_guarded. */
hdcu_result hdi_core_guarded(hdi_core *core, void (*copy)(void *), void *data, uintptr_t *fault_address);

/* The next number of a simple generator; *state may be anything. */
uint64_t hdi_random(uint64_t *state);

/* A multiplier below 2^32 that has no divisor in common with n > 0, so that i -> (i * multiplier + offset) % n visits
 * everything. */
uint32_t hdi_random_multiplier(uint64_t *state, uint64_t n);

#endif
