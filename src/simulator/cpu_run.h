/* cpu_run.h - runs the blocks of one launch on the CPU: the "multiprocessors" of the host devices.
 *
 * Each process has one pool of worker threads, made on first use. The pool contains one thread less
 * than there are processors, since the calling thread also works. All host devices share the pool.
 * Each launch hands out its blocks to all workers, and several launches (of several streams and
 * devices) run at the same time. Inside a block every thread is a fiber on one worker. A barrier
 * switches to another fiber; a kernel without barriers runs as a plain loop.
 * Threads: a stream's own thread calls hdi_cpu_run. The call unblocks the four signals below in
 * that thread, and gives the thread an alternate signal stack until it ends.
 * Locks: those of cpu_run.c and cpu_fiber.c; none is held while a kernel runs. Blocking:
 * hdi_cpu_run returns when the whole grid has run.
 * Faults: SIGSEGV, SIGBUS, SIGFPE and SIGILL raised inside kernel code end the launch with the code
 * that a GPU would give. The same signals outside of kernel code go to the previous handler. An
 * overflow of a thread's stack (64 KiB) is also such a fault. End: workers are detached, sleep when
 * idle and end with the process. No code has to shut them down, and leak checkers report nothing.
 * The pool keeps the library loaded. A child made by fork() makes its own pool when it needs one.
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
    /* The arguments, packed as the kernel's parameters are; copied unless they are aligned to 16
     * bytes. */
    const void *arguments;
    uint32_t grid[3], block[3];
    size_t dynamic_shared_bytes;
    /* The seed of a perturbed schedule of blocks and threads; 0: the usual order. */
    uint64_t schedule;
    /* May be NULL; once it is non-zero, blocks not yet started are skipped. */
    volatile int *cancel;
    /* room for the kernel's report if the kernel ended the launch (HDI_DRIVER_REASON_BYTES), else
     * ""; may be NULL */
    char *reason;
} hdi_cpu_launch;

/* Reserves the minimum of memory that a thread needs for launches and copies. So a lack of memory
 * shows before the thread accepts work; later, it would lose the device. Any thread may prepare for
 * another thread. False: out of memory. */
bool hdi_cpu_prepare(void);
/* Reserves what the thread itself must make, on that thread. False: out of memory. */
bool hdi_cpu_prepare_thread(void);
/* Makes sure that a launch with this number of threads in a block, and with this storage, can run,
 * before it is accepted. False: out of memory. */
bool hdi_cpu_reserve(uint32_t threads, const hdi_cpu_storage *storage);
/* Undoes hdi_cpu_prepare for a thread that ends or did not start. */
void hdi_cpu_unprepare(void);

/* Runs a launch. Returns SUCCESS, even if it was cancelled. After hdi_cpu_prepare,
 * hdi_cpu_prepare_thread and hdi_cpu_reserve, only two things need further memory: HD_SHARED
 * variables of more than 1 MiB, and those that the system keeps. Without memory for them
 * the launch waits, until there is memory or it is cancelled.
 * Errors: ILLEGAL_ADDRESS (SIGSEGV, SIGBUS), ILLEGAL_INSTRUCTION (SIGILL), LAUNCH_FAILED (SIGFPE),
 * OUT_OF_MEMORY (what these three functions reserve), INVALID_VALUE (an empty grid or block, more
 * than 8192 threads in a block, or more than 4096 bytes of arguments that are not aligned), ASSERT
 * (hd_assert), LAUNCH_FAILED (threads of a warp that do not meet).
 * If some threads of a block return before a barrier, the barrier does not wait for them.
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

/* The limit of a launch's dynamic shared memory: its first value, and the largest value that
 * cuFuncSetAttribute may set. */
#define HDI_CPU_SHARED_BYTES_DEFAULT (48 * 1024)
#define HDI_CPU_SHARED_BYTES_MAX (96 * 1024)

#endif
