/* cpu_context.c - switching between contexts: assembly for x86-64 and aarch64, ucontext elsewhere.
 *
 * Threads: any, each with contexts of its own. Locks: none.
 * Always: at the stack_pointer of a context that is not running lies exactly the frame that the
 * switch pops.
 */
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>
#include "simulator/cpu_fiber.h"

#ifdef HDI_CONTEXT_UCONTEXT

/* makecontext passes only ints, so a pointer is passed in two halves. */
static void cpu_context_start(unsigned run_high, unsigned run_low, unsigned argument_high, unsigned argument_low)
{
    uintptr_t run = (uintptr_t)((uint64_t)run_high << 32 | run_low);
    uintptr_t argument = (uintptr_t)((uint64_t)argument_high << 32 | argument_low);
    ((void (*)(void *))run)((void *)argument);
}

void hdi_context_make(hdi_context *context, void *stack, size_t bytes, void (*run)(void *), void *argument)
{
    uint64_t r = (uintptr_t)run, a = (uintptr_t)argument;
    getcontext(&context->state);
    context->state.uc_stack.ss_sp = stack;
    context->state.uc_stack.ss_size = bytes;
    context->state.uc_link = NULL;
    makecontext(&context->state, (void (*)(void))cpu_context_start, 4, (unsigned)(r >> 32), (unsigned)r,
                (unsigned)(a >> 32), (unsigned)a);
}

HDI_FIBER_CODE void hdi_context_switch(hdi_context *from, hdi_context *to)
{
    swapcontext(&from->state, &to->state);
}

void hdi_context_continue_after_signal(void *signal_ucontext, hdi_context *to)
{
    (void)signal_ucontext;
    setcontext(&to->state); /* this restores the signal mask, too */
}

#else

/* Saves the registers that a call must preserve, puts their place into *from, and continues the
 * execution that was saved at `to`. */
void hdi_context_swap_stacks(void **from, void *to) __attribute__((visibility("hidden")));
/* Continues the execution saved at `to`, and saves nothing. A thread may call this function at any
 * place, with the floating-point unit in any state. */
void hdi_context_load_stack(void *to) __attribute__((visibility("hidden"), noreturn));
/* The first code of a new context. */
void hdi_context_start(void) __attribute__((visibility("hidden")));

#if defined(__x86_64__)

/* Frame, from the stack pointer up: mxcsr and x87 control word, r15, r14, r13, r12, rbx, rbp,
 * return address. */
#define FRAME_WORDS 8
__asm__(".text\n"
        ".p2align 4\n"
        ".globl hdi_context_swap_stacks\n"
        ".hidden hdi_context_swap_stacks\n"
        ".type hdi_context_swap_stacks, @function\n"
        "hdi_context_swap_stacks:\n"
        "    .cfi_startproc\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    subq $8, %rsp\n"
        "    stmxcsr (%rsp)\n"
        "    fnstcw 4(%rsp)\n"
        "    movq %rsp, (%rdi)\n"
        "1:  movq %rsi, %rsp\n"
        "    ldmxcsr (%rsp)\n"
        "    fldcw 4(%rsp)\n"
        "    addq $8, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".size hdi_context_swap_stacks, . - hdi_context_swap_stacks\n"
        ".globl hdi_context_load_stack\n"
        ".hidden hdi_context_load_stack\n"
        ".type hdi_context_load_stack, @function\n"
        "hdi_context_load_stack:\n"
        "    endbr64\n" /* the return from a signal handler may lead here, like a jump */
        "    cld\n"
        "    fninit\n"
        "    movq %rdi, %rsi\n"
        "    jmp 1b\n"
        ".size hdi_context_load_stack, . - hdi_context_load_stack\n"
        ".globl hdi_context_start\n"
        ".hidden hdi_context_start\n"
        ".type hdi_context_start, @function\n"
        "hdi_context_start:\n"
        "    .cfi_startproc\n"
        "    .cfi_undefined rip\n"
        "    movq %rbx, %rdi\n"
        "    call *%r12\n"
        "    ud2\n"
        "    .cfi_endproc\n"
        ".size hdi_context_start, . - hdi_context_start\n");

static void cpu_context_fill_frame(void **frame, void (*run)(void *), void *argument)
{
    uint32_t mxcsr;
    uint16_t control;
    __asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
    __asm__ volatile("fnstcw %0" : "=m"(control));
    frame[0] = (void *)((uintptr_t)control << 32 | mxcsr);
    memcpy(&frame[4], &run, sizeof run); /* r12 */
    frame[5] = argument;                 /* rbx */
    void (*start)(void) = hdi_context_start;
    memcpy(&frame[7], &start, sizeof start);
}

void hdi_context_continue_after_signal(void *signal_ucontext, hdi_context *to)
{
    ucontext_t *u = signal_ucontext;
    u->uc_mcontext.gregs[REG_RIP] = (greg_t)(uintptr_t)hdi_context_load_stack;
    u->uc_mcontext.gregs[REG_RDI] = (greg_t)(uintptr_t)to->stack_pointer;
}

#else /* aarch64 */

/* Frame, from the stack pointer up: x19..x30, d8..d15, and the stack stays aligned to 16. */
#define FRAME_WORDS 20
__asm__(".text\n"
        ".p2align 4\n"
        ".globl hdi_context_swap_stacks\n"
        ".hidden hdi_context_swap_stacks\n"
        ".type hdi_context_swap_stacks, %function\n"
        "hdi_context_swap_stacks:\n"
        "    hint #34\n" /* bti c */
        "    stp x19, x20, [sp, #-160]!\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "1:  mov sp, x1\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    ldp x19, x20, [sp], #160\n"
        "    ret\n"
        ".size hdi_context_swap_stacks, . - hdi_context_swap_stacks\n"
        ".globl hdi_context_load_stack\n"
        ".hidden hdi_context_load_stack\n"
        ".type hdi_context_load_stack, %function\n"
        "hdi_context_load_stack:\n"
        "    hint #34\n"
        "    mov x1, x0\n"
        "    b 1b\n"
        ".size hdi_context_load_stack, . - hdi_context_load_stack\n"
        ".globl hdi_context_start\n"
        ".hidden hdi_context_start\n"
        ".type hdi_context_start, %function\n"
        "hdi_context_start:\n"
        "    mov x0, x19\n"
        "    blr x20\n"
        "    brk #1\n"
        ".size hdi_context_start, . - hdi_context_start\n");

static void cpu_context_fill_frame(void **frame, void (*run)(void *), void *argument)
{
    frame[0] = argument;                 /* x19 */
    memcpy(&frame[1], &run, sizeof run); /* x20 */
    void (*start)(void) = hdi_context_start;
    memcpy(&frame[11], &start, sizeof start); /* x30 */
}

void hdi_context_continue_after_signal(void *signal_ucontext, hdi_context *to)
{
    ucontext_t *u = signal_ucontext;
    u->uc_mcontext.pc = (uintptr_t)hdi_context_load_stack;
    u->uc_mcontext.regs[0] = (uintptr_t)to->stack_pointer;
}

#endif

void hdi_context_make(hdi_context *context, void *stack, size_t bytes, void (*run)(void *), void *argument)
{
    uintptr_t top = ((uintptr_t)stack + bytes) & ~(uintptr_t)15;
    void **frame = (void **)top - FRAME_WORDS;
    memset(frame, 0, FRAME_WORDS * sizeof *frame);
    cpu_context_fill_frame(frame, run, argument);
    context->stack_pointer = frame;
}

HDI_FIBER_CODE void hdi_context_switch(hdi_context *from, hdi_context *to)
{
    hdi_context_swap_stacks(&from->stack_pointer, to->stack_pointer);
}

#endif
