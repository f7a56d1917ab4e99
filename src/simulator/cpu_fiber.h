/* cpu_fiber.h - the stacks that the threads of a block run on, the switch between them, and the
 * faults of code that runs there.
 *
 * A context is a place where execution stopped. The switch to another context depends on the
 * machine (cpu_context.c). For x86-64 and aarch64 the switch is written in assembly. It saves only
 * the registers that a called function must preserve, and makes no system call. Other machines, and
 * builds with HDI_CONTEXT_UCONTEXT, use ucontext.
 *
 * Faults: a handler catches SIGSEGV, SIGBUS, SIGFPE and SIGILL in code that runs under a fault
 * frame. The first use installs the handlers for the whole process, and they stay installed. So
 * their code must stay loaded, and the pool keeps it loaded (cpu_run.c). Each thread that runs
 * kernels gets an alternate signal stack, so that an overflow of a fiber's stack is a fault like
 * the others.
 * A signal outside a frame, or a signal sent by kill(), goes to the previous handler, or causes its
 * default effect. A handler that the program installs later replaces our handler. The next launch
 * installs our handler again, and our handler passes signals of other causes to the program's
 * handler. It calls handlers of the program as the system would call them (their masks, SA_NODEFER,
 * SA_RESETHAND). These handlers may leave with longjmp. They may also pass a signal on to our
 * handler; the signal then causes its default effect.
 *
 * A fiber set belongs to one worker. Fiber 0 always exists; more come with hdi_fibers_reserve and
 * are kept for the next block. All sets together own at most HDI_FIBER_LIMIT fibers beyond the
 * first ones. A set that needs more waits for others to finish a block. The page below each stack
 * faults.
 * hdi_fibers_promise makes enough fibers for one block, before the block is accepted. Without
 * memory for more, blocks take these fibers in turns: a set that sleeps lends its own.
 * Sanitizers: address sanitizer gets a report of every switch. For thread sanitizer, all fibers of
 * a set are one thread, separate from the worker's own. This is correct, since the threads of a
 * block never run at the same time.
 * Threads: a context, a frame and a set are used by one thread at a time. Locks: one mutex for the
 * free fibers, and one for the installation of handlers. Blocking: hdi_fibers_reserve waits for
 * other sets.
 */
#ifndef HDI_SIMULATOR_CPU_FIBER_H
#define HDI_SIMULATOR_CPU_FIBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <heddle/kernel.h>

#if !defined(HDI_CONTEXT_UCONTEXT) && !defined(__x86_64__) && !defined(__aarch64__)
#define HDI_CONTEXT_UCONTEXT 1
#endif

#ifdef HDI_CONTEXT_UCONTEXT
#include <ucontext.h>
#endif

/* ---- contexts: cpu_context.c ---- */

/* For functions that one fiber enters and another fiber leaves. The sanitizers' records of calls
 * would not match, so the sanitizers must not instrument these functions. */
#if defined(__has_attribute)
#if __has_attribute(disable_sanitizer_instrumentation)
#define HDI_FIBER_CODE __attribute__((disable_sanitizer_instrumentation, noinline))
#endif
#endif
#ifndef HDI_FIBER_CODE
#define HDI_FIBER_CODE __attribute__((no_sanitize_thread, no_sanitize_address, noinline))
#endif

typedef struct hdi_context {
#ifdef HDI_CONTEXT_UCONTEXT
    ucontext_t state;
#else
    void *stack_pointer; /* points to the saved registers */
#endif
} hdi_context;

/* The next switch to `context` calls run(argument) on the given stack. `run` must not return. */
void hdi_context_make(hdi_context *context, void *stack, size_t bytes, void (*run)(void *), void *argument);

/* Saves this execution in `from` and continues `to`. A later switch to `from` returns from this
 * call. */
void hdi_context_switch(hdi_context *from, hdi_context *to);

/* Called in a signal handler. When the handler returns, the interrupted execution is gone and `to`
 * continues. With ucontext, `to` continues at once. */
void hdi_context_continue_after_signal(void *signal_ucontext, hdi_context *to);

/* ---- faults ---- */

typedef struct hdi_fault_frame {
    hdi_context *resume; /* the thread continues here after a fault */
    volatile int armed;  /* code under the frame runs */
    volatile int signal; /* the fault that was caught, 0: none */
    volatile uintptr_t address;
} hdi_fault_frame;

/* Installs the process's handlers if they are missing, and makes this thread's alternate stack at
 * its first call.
 * Call it before each use of a frame. False: out of memory. */
bool hdi_fault_prepare_thread(void);

/* ---- fibers ---- */

/* Each fiber takes two mappings, and the system allows a process 65530 mappings by default. A block
 * may use half of the fibers. Sets that sleep may keep the other half. */
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

/* The most threads in a block of a launch. A set has room for this number of fibers from the
 * start. */
#define HDI_FIBERS_USUAL 1024u

typedef struct hdi_fiber {
    hd_kernel_thread self; /* the thread of the block that runs here */
    struct hdi_fiber_set *set;
    struct hdi_fiber *next; /* the next one in the list of free fibers */
    hdi_context context;
    char *stack;
    size_t stack_bytes;
    void *fake_stack; /* data of address sanitizer, while the fiber is not running */
} hdi_fiber;

typedef struct hdi_fiber_set {
    hdi_fiber main;       /* stands for the worker's own stack */
    hdi_fiber **fibers;   /* [0..owned) */
    uint32_t owned, used; /* fibers[0..used) run or wait in the current block */
    uint32_t room;        /* of `fibers` */
    /* The list of sets that sleep with fibers. Other threads may take these. Only the thread that
     * uses the set changes `sleeps`. */
    bool sleeps;
    struct hdi_fiber_set *next_asleep, *previous_asleep;
    hdi_fault_frame frame;
    bool entering; /* the switch under way leaves the worker's own stack */
    void *tsan_main, *tsan_fibers;
} hdi_fiber_set;

/* Makes a set with fiber 0. False: out of memory. */
bool hdi_fibers_init(hdi_fiber_set *set);
void hdi_fibers_destroy(hdi_fiber_set *set);

/* Makes sure that enough fibers exist for a block of `count` threads. False: out of memory. */
bool hdi_fibers_promise(uint32_t count);

/* Makes sure that the set owns `count` fibers. It may wait for other sets. Call it only while used
 * <= 1, on the worker's own stack. False: out of memory. Then the set gave its fibers back; try
 * again later. */
bool hdi_fibers_reserve(hdi_fiber_set *set, uint32_t count);

/* Between blocks: frees the extra fibers when another set waits for some. With `idle`, it also
 * frees them when all sets together own more than half of the limit, and the set sleeps. */
void hdi_fibers_yield(hdi_fiber_set *set, bool idle);
/* Call it before a set that sleeps runs a block again. */
void hdi_fibers_wake(hdi_fiber_set *set);

/* Returns the next unused fiber, which must exist. The first switch to it calls run(fiber). */
hdi_fiber *hdi_fiber_start(hdi_fiber_set *set, void (*run)(void *));

/* On the worker's own stack: runs `fiber` until some fiber switches to &set->main, or until a
 * fault. A fault leaves its signal in set->frame.signal and makes all fibers unused. */
void hdi_fiber_enter(hdi_fiber_set *set, hdi_fiber *fiber);

/* On a fiber: stops `from` and continues `to`. */
void hdi_fiber_switch(hdi_fiber *from, hdi_fiber *to);

/* On a fiber: continues `to`. `from` ended and is not continued again. */
void hdi_fiber_leave(hdi_fiber *from, hdi_fiber *to) __attribute__((noreturn));

/* A fiber calls this first. */
void hdi_fiber_begin(hdi_fiber *fiber);

/* On the worker's own stack: makes all fibers unused, whatever they were doing. */
void hdi_fibers_abandon(hdi_fiber_set *set);

/* In the child of a fork: resets the counts and lists of fibers. Their sets belong to threads that
 * do not exist in the child. */
void hdi_fibers_after_fork(void);

#endif
