/* cpu_fiber.h - the stacks that the threads of a block run on, and the switch between them.
 *
 * A fiber set belongs to one worker. Fiber 0 is always there; more come with hdi_fibers_reserve and are kept for the next
 * block. All sets together have at most HDI_FIBER_LIMIT fibers beyond the first ones. A set that needs more waits for
 * others to finish a block. Each stack has a page below it that faults.
 * Sanitizers: address sanitizer gets a report of every switch. For thread sanitizer, all fibers of a set are one thread,
 * apart from the worker's own. That is correct, since the threads of a block never run at the same time.
 * Threads: a set is used by one thread at a time. Locks: one mutex, in reserve and release. Blocking: hdi_fibers_reserve.
 */
#ifndef HDI_SIMULATOR_CPU_FIBER_H
#define HDI_SIMULATOR_CPU_FIBER_H

#include <stdbool.h>
#include <stdint.h>
#include <heddle/kernel.h>
#include "simulator/cpu_context.h"
#include "simulator/cpu_fault.h"

/* Each fiber takes two mappings; the system allows a process 65530 by default. A block may have half as many threads.
 * The other half is what sleeping sets may keep. */
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
    void *fake_stack; /* of address sanitizer, while the fiber is not running */
} hdi_fiber;

typedef struct hdi_fiber_set {
    hdi_fiber main;       /* stands for the worker's own stack */
    hdi_fiber **fibers;   /* [0..owned) */
    uint32_t owned, used; /* fibers[0..used) run or wait in the current block */
    hdi_fault_frame frame;
    bool entering; /* the switch under way leaves the worker's own stack */
    void *tsan_main, *tsan_fibers;
} hdi_fiber_set;

/* Makes a set with fiber 0. False: out of memory. */
bool hdi_fibers_init(hdi_fiber_set *set);
void hdi_fibers_destroy(hdi_fiber_set *set);

/* Makes sure that the set owns `count` fibers. It may wait for other sets. Only while used <= 1, on the worker's own
 * stack. False: out of memory. */
bool hdi_fibers_reserve(hdi_fiber_set *set, uint32_t count);

/* Between blocks: frees the extra fibers when another set waits for some. With `idle` also when sets own more than half
 * of the limit. */
void hdi_fibers_yield(hdi_fiber_set *set, bool idle);

/* The next unused fiber, which must exist. It calls run(fiber) when it is switched to. */
hdi_fiber *hdi_fiber_start(hdi_fiber_set *set, void (*run)(void *));

/* On the worker's own stack: runs `fiber` until some fiber switches to &set->main, or until a fault. A fault leaves its
 * signal in set->frame.signal and makes all fibers unused. */
void hdi_fiber_enter(hdi_fiber_set *set, hdi_fiber *fiber);

/* On a fiber: stops `from` and continues `to`. */
void hdi_fiber_switch(hdi_fiber *from, hdi_fiber *to);

/* On a fiber: continues `to`. `from` has ended and is not continued again. */
void hdi_fiber_leave(hdi_fiber *from, hdi_fiber *to) __attribute__((noreturn));

/* A fiber calls this first. */
void hdi_fiber_begin(hdi_fiber *fiber);

/* On the worker's own stack: makes all fibers unused, whatever they were doing. */
void hdi_fibers_abandon(hdi_fiber_set *set);

/* In the child of a fork: drops all accounts of fibers, whose sets belong to threads that the child does not have. */
void hdi_fibers_after_fork(void);

#endif
