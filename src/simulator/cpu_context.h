/* cpu_context.h - a place where execution stopped, and the switch to another one: the machine-dependent part of fibers.
 *
 * x86-64 and aarch64 have a switch of their own, in assembly. It saves only what a called function must preserve, and makes
 * no system call. Other machines, and builds with HDI_CONTEXT_UCONTEXT, use ucontext.
 * Threads: a context is used by one thread at a time. Locks: none. Blocking: none.
 */
#ifndef HDI_SIMULATOR_CPU_CONTEXT_H
#define HDI_SIMULATOR_CPU_CONTEXT_H

#include <stddef.h>

#if !defined(HDI_CONTEXT_UCONTEXT) && !defined(__x86_64__) && !defined(__aarch64__)
#define HDI_CONTEXT_UCONTEXT 1
#endif

#ifdef HDI_CONTEXT_UCONTEXT
#include <ucontext.h>
#endif

/* For functions that one fiber enters and another leaves. With instrumentation, the sanitizers' records of calls would
 * not match. */
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
    void *stack_pointer; /* the saved registers lie there */
#endif
} hdi_context;

/* The next switch to `context` calls run(argument) on the given stack. `run` must not return. */
void hdi_context_make(hdi_context *context, void *stack, size_t bytes, void (*run)(void *), void *argument);

/* Saves this execution in `from` and continues `to`. A later switch to `from` returns from this call. */
void hdi_context_switch(hdi_context *from, hdi_context *to);

/* Called in a signal handler. When the handler has returned, the interrupted execution is gone and `to` continues. With
 * ucontext, `to` continues at once. */
void hdi_context_continue_after_signal(void *signal_ucontext, hdi_context *to);

#endif
