/* cpu_core.h - a core: everything that one thread needs to run blocks of launches, one at a time.
 *
 * Threads: a core is used by one thread at a time. Locks: none.
 * Blocking: hdi_cpu_core_run_block waits while there is not enough memory for the block, until the
 * launch is cancelled. Making fibers may wait until other cores free some (cpu_fiber.h).
 * Always: between two blocks a core has no unfinished thread, so the next block may be of another
 * launch. A new core has the memory that usual launches need, so that they do not wait. This is
 * enough for blocks of HDI_FIBERS_USUAL threads, for all dynamic shared memory, and for the
 * HD_SHARED variables of earlier launches.
 */
#ifndef HDI_SIMULATOR_CPU_CORE_H
#define HDI_SIMULATOR_CPU_CORE_H

#include "simulator/cpu_fiber.h"
#include "simulator/cpu_run.h"
#include "simulator/cpu_warp.h"

/* The usual alignment of HD_SHARED variables. */
#define HDI_CPU_STORAGE_ALIGN ((size_t)64)

typedef struct hdi_cpu_core {
    hdi_fiber_set set;         /* first: a fiber's set is its core */
    struct hdi_cpu_core *next; /* the next one in the owner's list of spare cores */
    struct hdi_cpu_core *all_next, *all_previous;
    void *shared; /* dynamic shared memory */
    size_t shared_bytes;
    void *storage; /* of HD_SHARED variables */
    size_t storage_bytes, storage_align;
    /* A larger storage for the next launch that needs it; NULL: none. Under the pool's lock, like
     * `reserved_bytes`: how large it is, or was. */
    void *reserved;
    size_t reserved_bytes;
    /* The block at hand. */
    const hdi_cpu_launch *launch;
    const void *arguments;
    hd_kernel_thread model; /* the values that all threads of the block share */
    uint32_t n_threads;
    /* The number of threads that began. `multiplier` and `offset` change the order in which threads
     * begin. */
    uint32_t started;
    uint32_t x, y, z; /* the next thread, if the order is not perturbed */
    uint32_t multiplier, offset;
    uint64_t random;
    /* `arrived`: fibers that wait at the current barrier. `ready`: fibers that may continue, since
     * they passed the previous barrier. */
    hdi_fiber **arrived, **ready;
    uint32_t n_arrived, n_ready, ready_next, list_capacity;
    hdi_warps warps;
    /* true: `warps` was made for this block, since a thread called a function of warps */
    bool has_warps;
    uint32_t n_meeting; /* threads that wait at meetings of warps */
    hdi_fiber *asking;  /* the fiber that waits for things that the worker makes; NULL: none */
    bool wants_fibers, wants_warps;
    hdcu_result failure; /* the code with which a thread ended the launch; 0: no thread did */
    char reason[HDI_DRIVER_REASON_BYTES];
    bool printed; /* a kernel printed to standard output since the last flush */
    void (*guarded)(void *);
    void *guarded_data;
} hdi_cpu_core;

/* Makes a core with `storage` bytes for HD_SHARED variables. False: out of memory. */
bool hdi_cpu_core_init(hdi_cpu_core *core, size_t storage);
void hdi_cpu_core_destroy(hdi_cpu_core *core);

/* Prepares for blocks of this launch, on the thread that will run them. False: out of memory. */
bool hdi_cpu_core_join(hdi_cpu_core *core, const hdi_cpu_launch *launch);
/* Runs block (x, y, z). `arguments` is aligned to 16 bytes. Result and *fault_address as those of
 * hdi_cpu_run. If core->failure is set, core->reason is the kernel's report. */
hdcu_result hdi_cpu_core_run_block(hdi_cpu_core *core, const hdi_cpu_launch *launch, const void *arguments, uint32_t x,
                                   uint32_t y, uint32_t z, uintptr_t *fault_address);
/* Flushes the text that the kernel printed. A thread calls this function when it leaves the
 * launch. */
void hdi_cpu_core_flush(hdi_cpu_core *core);

/* Calls copy(data) on a fiber, with the results of hdi_cpu_guarded. */
hdcu_result hdi_cpu_core_run_guarded(hdi_cpu_core *core, void (*copy)(void *), void *data, uintptr_t *fault_address);

/* Waits a moment for memory. The device already accepted the work, so a lack of memory must not
 * lose the device, however long it lasts. False: the launch is cancelled. */
bool hdi_cpu_wait_for_memory(const hdi_cpu_launch *launch);

#endif
