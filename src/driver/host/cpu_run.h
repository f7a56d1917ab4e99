/* cpu_run.h - runs the blocks of one launch on the CPU: the "multiprocessors" of the host devices.
 *
 * One pool of worker threads per process, made on first use: one less than there are processors, since the calling
 * thread works too. It is shared by all host devices; blocks of a launch are handed out to all of them, several
 * launches (of several streams and devices) run at the same time. Inside a block every thread is a fiber on one worker:
 * barriers switch fibers, a kernel without barriers runs as a plain loop.
 * Threads: hdi_cpu_run is called on a stream's own thread and blocks until the whole grid has run. It unblocks the four
 * signals below in the calling thread and gives it an alternate signal stack, until the thread ends.
 * Faults: SIGSEGV, SIGBUS, SIGFPE and SIGILL raised inside kernel code end the launch with the code a GPU would give;
 * the same signals raised elsewhere go to the handler that was there before. Overflowing a thread's stack (64 KiB) is
 * such a fault too.
 * End: workers are detached, sleep when idle and die with the process; nothing has to be shut down, and leak checkers
 * see nothing. The pool keeps the library loaded. A child made by fork() makes a pool of its own when it needs one.
 */
#ifndef HDI_DRIVER_HOST_CPU_RUN_H
#define HDI_DRIVER_HOST_CPU_RUN_H

#include <stddef.h>
#include <stdint.h>
#include "driver/abi.h"

struct hd_cpu_kernel; /* heddle/kernel.h */

/* The HD_SHARED variables of a module: its thread-local storage. */
typedef struct hdi_cpu_storage {
    size_t bytes, align; /* a power of two */
    const void *image;   /* what it begins with; the rest is anything */
    size_t image_bytes;
    /* The module, where the system keeps the storage: it makes a thread's when that uses it first, and ends the process when there is no memory,
     * so memory is looked for just before. NULL: the worker keeps it. */
    void *by_system;
} hdi_cpu_storage;

/* The storage of the launch that the calling thread works on; what hd_cpu_module.shared is set to. */
void *hdi_cpu_shared(void);

typedef struct hdi_cpu_launch {
    const struct hd_cpu_kernel *kernel;
    const hdi_cpu_storage *storage; /* NULL: there is none, or it is the program's own */
    const void *arguments;          /* packed as the kernel's parameters are; copied unless aligned to 16 bytes */
    uint32_t grid[3], block[3];
    size_t dynamic_shared_bytes;
    uint64_t schedule;    /* perturbed schedule: the seed of the order of blocks and threads; 0: the usual order */
    volatile int *cancel; /* may be NULL; once non-zero, blocks that have not started are skipped */
} hdi_cpu_launch;

/* HDCU_SUCCESS (also when cancelled), or HDCU_ERROR_ILLEGAL_ADDRESS (SIGSEGV, SIGBUS), HDCU_ERROR_ILLEGAL_INSTRUCTION
 * (SIGILL), HDCU_ERROR_LAUNCH_FAILED (SIGFPE), HDCU_ERROR_OUT_OF_MEMORY (fibers, shared memory of either kind),
 * HDCU_ERROR_INVALID_VALUE (an empty grid or block, or more than 8192 threads in a block). A barrier that not all
 * threads of a block reach is no error: threads that have returned do not count. *fault_address (may be NULL) is the
 * address for ILLEGAL_ADDRESS and is not touched otherwise. */
hdcu_result hdi_cpu_run(const hdi_cpu_launch *launch, uintptr_t *fault_address);

/* Runs `copy` (a memcpy or memset of the host provider) with the same fault handling; ILLEGAL_ADDRESS when it touches
 * unmapped memory. */
hdcu_result hdi_cpu_guarded(void (*copy)(void *), void *data, uintptr_t *fault_address);

/* Dynamic shared memory that a launch may have, static included. */
#define HDI_CPU_SHARED_BYTES_DEFAULT (48 * 1024)
#define HDI_CPU_SHARED_BYTES_MAX (96 * 1024)

#endif
