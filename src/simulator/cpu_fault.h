/* cpu_fault.h - catches SIGSEGV, SIGBUS, SIGFPE and SIGILL in code that runs under a fault frame.
 *
 * The handlers are installed for the process on first use, and stay. So the code must not be unloaded, which the pool
 * ensures (cpu_run.c). Each thread that runs kernels gets an alternate signal stack, so that an overflow of a fiber's stack
 * is a fault like the others.
 * A signal outside a frame, or one sent by kill(), goes to the handler that was there before, or has its default effect. A
 * handler that the program installs later replaces ours. The next launch installs ours over it, and that handler then gets
 * the signals that are not ours.
 * Handlers of the program are called as the system would call them (their masks, SA_NODEFER, SA_RESETHAND). They may leave
 * with longjmp. They may also pass a signal on to ours, which then has its default effect.
 * Threads: a frame belongs to one thread. Locks: one mutex, around installing. Blocking: none.
 */
#ifndef HDI_SIMULATOR_CPU_FAULT_H
#define HDI_SIMULATOR_CPU_FAULT_H

#include <stdbool.h>
#include <stdint.h>
#include "simulator/cpu_context.h"

typedef struct hdi_fault_frame {
    hdi_context *resume; /* continues here after a fault */
    volatile int armed;  /* code under the frame runs */
    volatile int signal; /* the fault that was caught, 0: none */
    volatile uintptr_t address;
} hdi_fault_frame;

/* Installs the handlers of the process where they are missing, and makes this thread's alternate stack at its first
 * call.
 * To be called before each use of a frame. False: out of memory. */
bool hdi_fault_prepare_thread(void);

/* Sets this thread's frame (NULL: none) and returns the frame before. */
hdi_fault_frame *hdi_fault_set_frame(hdi_fault_frame *frame);

#endif
