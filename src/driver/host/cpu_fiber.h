/* cpu_fiber.h - the stacks that the threads of a block run on, and the switch between them.
 *
 * A fiber set belongs to one worker: fiber 0 is always there; more come with hdi_fibers_reserve and are kept for the
 * next block. All sets together have at most HDI_FIBER_LIMIT fibers beyond the first ones; who needs more waits for
 * others to finish a block. Each stack has a page below it that faults.
 * Sanitizers: address sanitizer is told about every switch. Thread sanitizer sees all fibers of a set as one thread,
 * apart from the worker's own: the threads of a block never run at the same time.
 * Threads: a set is used by one thread at a time. Locks: one mutex, in reserve and release.
 */
#ifndef HDI_DRIVER_HOST_CPU_FIBER_H
#define HDI_DRIVER_HOST_CPU_FIBER_H

#include <stdbool.h>
#include <stdint.h>
#include <heddle/kernel.h>
#include "driver/host/cpu_context.h"
#include "driver/host/cpu_fault.h"

/* Each costs two mappings; the system allows a process 65530 by default. A block may have half as many threads: the
 * other half is what sleeping sets may keep. */
#ifndef HDI_FIBER_LIMIT
#define HDI_FIBER_LIMIT 16384u
#endif

#if defined(__SANITIZE_ADDRESS__)
#define HDI_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define HDI_TSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HDI_ASAN 1
#elif __has_feature(thread_sanitizer)
#define HDI_TSAN 1
#endif
#endif

typedef struct hdi_fiber {
    hd_kernel_thread self; /* the thread of the block that runs here */
    struct hdi_fiber_set *set;
    struct hdi_fiber *next; /* in the list of free ones */
    hdi_context context;
    char *stack;
    size_t stack_bytes;
    void *fake_stack; /* address sanitizer's, while the fiber is not running */
} hdi_fiber;

typedef struct hdi_fiber_set {
    hdi_fiber main;       /* stands for the worker's own stack */
    hdi_fiber **fibers;   /* [0..owned) */
    uint32_t owned, used; /* fibers[0..used) run or wait in the block at hand */
    hdi_fault_frame frame;
    bool entering; /* the switch under way leaves the worker's own stack */
    void *tsan_main, *tsan_fibers;
} hdi_fiber_set;

/* Makes a set with fiber 0. False: out of memory. */
bool hdi_fibers_init(hdi_fiber_set *set);
void hdi_fibers_destroy(hdi_fiber_set *set);

/* Makes sure that the set owns `count` fibers; may wait for other sets. Only while used <= 1, on the worker's own
 * stack. False: out of memory. */
bool hdi_fibers_reserve(hdi_fiber_set *set, uint32_t count);

/* Between blocks: gives fibers up when another set waits for some, and, with `idle`, when more than half are taken. */
void hdi_fibers_yield(hdi_fiber_set *set, bool idle);

/* The next unused fiber, which will call run(fiber) when it is switched to. There must be one. */
hdi_fiber *hdi_fiber_start(hdi_fiber_set *set, void (*run)(void *));

/* On the worker's own stack: runs `fiber` until some fiber switches to &set->main, or until a fault, which leaves its
 * signal in set->frame.signal and makes all fibers unused. */
void hdi_fiber_enter(hdi_fiber_set *set, hdi_fiber *fiber);

/* On a fiber: stops `from` and continues `to`. */
void hdi_fiber_switch(hdi_fiber *from, hdi_fiber *to);

/* On a fiber: continues `to`; `from` has ended and does not come back. */
void hdi_fiber_leave(hdi_fiber *from, hdi_fiber *to) __attribute__((noreturn));

/* The first thing a fiber does. */
void hdi_fiber_begin(hdi_fiber *fiber);

/* All fibers are unused from now on, whatever they were doing. On the worker's own stack. */
void hdi_fibers_abandon(hdi_fiber_set *set);

/* In the child of a fork: sets of threads that are not there do not count. */
void hdi_fibers_after_fork(void);

#endif
