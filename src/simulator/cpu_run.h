/* cpu_run.h - runs the blocks of one launch on the CPU: the "multiprocessors" of the host devices.
 *
 * Each process has one pool of worker threads, made on first use. The pool contains one thread less
 * than there are processors, since the calling thread works, too. All host devices share the pool.
 * Blocks of a launch are handed out to all workers, and several launches (of several streams and
 * devices) run at the same time. Inside a block every thread is a fiber on one worker. Barriers
 * switch fibers; a kernel without barriers runs as a plain loop.
 * Threads: hdi_cpu_run is called on a stream's own thread. It unblocks the four signals below in
 * that thread and gives it an alternate signal stack, until the thread ends.
 * Locks: those of cpu_run.c and cpu_fiber.c; none is held while a kernel runs. Blocking:
 * hdi_cpu_run returns when the whole grid has run.
 * Faults: SIGSEGV, SIGBUS, SIGFPE and SIGILL raised inside kernel code end the launch with the code
 * that a GPU would give. The same signals raised elsewhere go to the previous handler. An overflow
 * of a thread's stack (64 KiB) is such a fault too.
 * End: workers are detached, sleep when idle and end with the process. Nothing needs to be shut
 * down, and leak checkers report nothing. The pool keeps the library loaded. A child made by fork()
 * makes its own pool when it needs one.
 */
#ifndef HDI_SIMULATOR_CPU_RUN_H
#define HDI_SIMULATOR_CPU_RUN_H

#include <stddef.h>
#include <stdint.h>
#include "driver/abi.h"
#include "driver/provider.h"

struct hd_cpu_kernel; /* heddle/kernel.h */

/* The HD_SHARED variables of a module: its thread-local storage. */
typedef struct hdi_cpu_storage {
    size_t bytes, align; /* a power of two */
    const void *image;   /* its first bytes; the rest may hold any value */
    size_t image_bytes;
    /* The module, if the system keeps the storage; NULL: the worker keeps it.
     * The system makes a thread's storage at the first use, and ends the process if memory runs
     * out. So the worker checks just before that enough memory is free. */
    void *by_system;
} hdi_cpu_storage;

/* The storage of the launch that the calling thread works on. hd_cpu_module.shared points to this
 * function. */
void *hdi_cpu_shared(void);

typedef struct hdi_cpu_launch {
    const struct hd_cpu_kernel *kernel;
    const hdi_cpu_storage *storage; /* NULL: none, or the storage belongs to the program */
    /* Packed as the kernel's parameters are; copied unless aligned to 16 bytes. */
    const void *arguments;
    uint32_t grid[3], block[3];
    size_t dynamic_shared_bytes;
    /* The seed of a perturbed schedule of blocks and threads; 0: the usual order. */
    uint64_t schedule;
    /* May be NULL; once it is non-zero, blocks not yet started are skipped. */
    volatile int *cancel;
    /* HDI_DRIVER_REASON_BYTES for the kernel's report when it ended the launch, else ""; may be
     * NULL */
    char *reason;
} hdi_cpu_launch;

/* Reserves the minimum of memory that a thread needs for launches and copies. So a lack of memory
 * shows before the thread accepts work, and does not cost the device later. Any thread may prepare
 * for another one. False: out of memory. */
bool hdi_cpu_prepare(void);
/* Undoes hdi_cpu_prepare for a thread that ends or did not start. */
void hdi_cpu_unprepare(void);

/* Runs a launch. Returns SUCCESS, also if it was cancelled.
 * Errors: ILLEGAL_ADDRESS (SIGSEGV, SIGBUS), ILLEGAL_INSTRUCTION (SIGILL), LAUNCH_FAILED (SIGFPE),
 * OUT_OF_MEMORY (fibers, shared memory of either kind), INVALID_VALUE (an empty grid or block, more
 * than 8192 threads in a block, or more than 4096 bytes of arguments that are not aligned), ASSERT
 * (hd_assert), LAUNCH_FAILED (threads of a warp that do not meet).
 * A barrier that not all threads of a block reach is no error: threads that returned do not count.
 * *fault_address (may be NULL) is the address for ILLEGAL_ADDRESS, and is not touched otherwise. */
hdcu_result hdi_cpu_run(const hdi_cpu_launch *launch, uintptr_t *fault_address);

/* Calls copy(data), a memcpy or memset of the host provider, on the calling thread with the same
 * fault handling.
 * Errors: ILLEGAL_ADDRESS (it touched unmapped memory), OUT_OF_MEMORY. */
hdcu_result hdi_cpu_guarded(void (*copy)(void *), void *data, uintptr_t *fault_address);

/* Returns the next number of a simple generator; *state may be anything. */
uint64_t hdi_random(uint64_t *state);
/* Returns a multiplier below 2^32 that shares no divisor with n > 0. So i -> (i * multiplier +
 * offset) % n takes every value below n. */
uint32_t hdi_random_multiplier(uint64_t *state, uint64_t n);

/* The limit of a launch's dynamic shared memory: the first value, and the largest one that
 * cuFuncSetAttribute may set. */
#define HDI_CPU_SHARED_BYTES_DEFAULT (48 * 1024)
#define HDI_CPU_SHARED_BYTES_MAX (96 * 1024)

#endif
