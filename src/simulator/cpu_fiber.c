/* cpu_fiber.c - fibers: their stacks, the switches between them, and the handlers that catch their
 * faults.
 *
 * This file reports each switch to the sanitizers.
 * Threads: a set is used by one thread at a time; the list of free fibers is shared. The signal
 * handler runs on the thread that faulted, on its alternate stack if it has one. The handler uses
 * thread-local state in static TLS, `spent`, and `previous_handlers`, which is written before the
 * handler can run.
 * Locks: `lock` guards the free fibers; no thread holds it across a switch. A thread holds
 * `install_lock` while it installs handlers. The handler takes no lock.
 * Blocking: hdi_fibers_reserve waits while too few fibers are free. A set that waits owns only its
 * first fiber, so sets do not wait for each other.
 * Always: `existing` is the number of free fibers and of all sets' fibers beyond the first. Those
 * fibers are never unmapped, so HDI_FIBER_LIMIT bounds their memory. Sets that sleep own at most
 * half of the limit together. `existing` never falls below what was promised.
 * The handler leaves by returning, even when it ends kernel code: it changes the place where the
 * thread continues. Handlers of the program may leave with longjmp, so state recorded while they
 * run may be stale.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/lock.h"
#include "base/thread.h"
#include "simulator/cpu_fiber.h"

#ifdef HDI_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef HDI_TSAN
#include <sanitizer/tsan_interface.h>
#endif

/* ---- faults ---- */

#define ALTERNATE_STACK_BYTES (64 * 1024)

static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
#define N_SIGNALS (sizeof signals / sizeof signals[0])

static hdi_mutex install_lock = HDI_MUTEX_INIT(HOST_FAULTS);
static bool have_thread_key; /* under install_lock */
static pthread_key_t thread_key;
/* Written under install_lock, before our handler is installed. */
static struct sigaction previous_handlers[N_SIGNALS];
/* True if the previous handler was installed for one call (SA_RESETHAND), and was called. Cleared
 * when `previous` is written. Relaxed, since it guards nothing. */
static atomic_bool spent[N_SIGNALS];

/* In static thread-local storage, like all thread-local variables of the library, since the handler
 * must not allocate memory at its first access. */
static _Thread_local hdi_fault_frame *volatile current_frame;

/* The signal that this thread last passed to a handler of the program. Our code cannot see when
 * that handler ends. */
typedef struct passed_signal {
    uintptr_t frame; /* the stack frame of signal_handle; 0: none */
    uintptr_t context;
    int code;
    bool prepared; /* this thread has an alternate stack */
} passed_signal;
/* The whole structure is in static TLS, since the handler cannot allocate. */
static _Thread_local volatile passed_signal last_passed;

/* This structure lies at the upper end of its mapping. */
struct alternate {
    void *base; /* the mapping: one page that faults, then the stack */
    size_t bytes;
    stack_t before;
};

/* True if the program's handler, to which our handler passed a signal, calls our handler in turn.
 * The program's handler does that if it was installed over ours and passes on signals that it does
 * not handle. In this case `context` is the earlier context, or any value if the program's handler
 * gets only a number.
 * A new signal may come during the program's handler, or after the handler left with longjmp. A new
 * signal has a new context, which lies right above our frame. So the new context is below the
 * earlier one, or our frame is no deeper than the earlier frame. */
static bool signal_is_passed_back(uintptr_t frame, uintptr_t context)
{
    bool is_new = context > frame && context < last_passed.context;
    return last_passed.frame != 0 && frame < last_passed.frame && !is_new;
}

/* Restores the default handler, which ends the process. A fault happens again when our handler
 * returns. A signal that was sent must be sent again. */
static void signal_by_default(int signal, int code)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = SIG_DFL;
    sigaction(signal, &action, NULL);
    if (code <= 0) {
        raise(signal);
    }
}

/* Calls the handler as the system would. */
static void signal_call_handler(const struct sigaction *handler, int signal, siginfo_t *info, void *context)
{
    sigset_t mask, itself;
    pthread_sigmask(SIG_BLOCK, &handler->sa_mask, &mask);
    if (handler->sa_flags & SA_NODEFER) {
        sigemptyset(&itself);
        sigaddset(&itself, signal);
        pthread_sigmask(SIG_UNBLOCK, &itself, NULL);
    }
    if (handler->sa_flags & SA_SIGINFO) {
        handler->sa_sigaction(signal, info, context);
    } else {
        handler->sa_handler(signal);
    }
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
}

static void signal_pass_on(int signal, siginfo_t *info, void *context, uintptr_t frame)
{
    size_t i = 0;
    while (i + 1 < N_SIGNALS && signals[i] != signal) {
        i++;
    }
    const struct sigaction *p = &previous_handlers[i];
    bool plain = (p->sa_flags & SA_SIGINFO) == 0;
    if ((plain && p->sa_handler == SIG_DFL) || atomic_load_explicit(&spent[i], memory_order_relaxed)) {
        signal_by_default(signal, info->si_code);
    } else if (plain && p->sa_handler == SIG_IGN) {
        if (info->si_code > 0) { /* the process cannot ignore a fault */
            signal_by_default(signal, info->si_code);
        }
    } else {
        /* the state of an outer handler call, in which this fault happened */
        passed_signal before = last_passed;
        atomic_store_explicit(&spent[i], (p->sa_flags & (int)SA_RESETHAND) != 0, memory_order_relaxed);
        last_passed.frame = frame;
        last_passed.context = (uintptr_t)context;
        last_passed.code = info->si_code;
        signal_call_handler(p, signal, info, context);
        last_passed = before;
    }
}

static void signal_handle(int signal, siginfo_t *info, void *context)
{
    int saved_errno = errno;
    hdi_fault_frame *frame = current_frame;
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    if (signal_is_passed_back(here, (uintptr_t)context)) {
        signal_by_default(signal, last_passed.code);
    } else if (frame != NULL && frame->armed && info->si_code > 0) {
        frame->armed = 0;
        frame->signal = signal;
        frame->address = (uintptr_t)info->si_addr;
        hdi_context_continue_after_signal(context, frame->resume);
    } else {
        signal_pass_on(signal, info, context, here);
    }
    errno = saved_errno;
}

static void signal_thread_ends(void *value)
{
    struct alternate *a = value;
    last_passed.prepared = false; /* a later exit function of the thread may prepare it again */
    sigaltstack(&a->before, NULL);
    munmap(a->base, a->bytes);
}

/* Installs our handlers if they are missing or lack our flags. Programs that save and restore
 * handlers with signal() drop the flags. */
static bool signal_install_handlers(void)
{
    hdi_mutex_lock(&install_lock);
    if (!have_thread_key) {
        have_thread_key = hdi_thread_key(&thread_key, signal_thread_ends) == 0;
    }
    bool ok = have_thread_key;
    for (size_t i = 0; ok && i < N_SIGNALS; i++) {
        struct sigaction now, ours;
        if (sigaction(signals[i], NULL, &now) != 0) {
            ok = false;
            break;
        }
        const int flags = SA_SIGINFO | SA_ONSTACK;
        /* The same field as sa_handler on every system of this file. */
        bool is_ours = now.sa_sigaction == signal_handle;
        if (is_ours && (now.sa_flags & flags) == flags) {
            continue;
        }
        if (!is_ours) {
            previous_handlers[i] = now;
            atomic_store_explicit(&spent[i], false, memory_order_relaxed);
        }
        memset(&ours, 0, sizeof ours);
        ours.sa_sigaction = signal_handle;
        ours.sa_flags = flags;
        sigemptyset(&ours.sa_mask);
        ok = sigaction(signals[i], &ours, NULL) == 0;
    }
    hdi_mutex_unlock(&install_lock);
    return ok;
}

bool hdi_fault_prepare_thread(void)
{
    if (!signal_install_handlers()) {
        return false;
    }
    if (last_passed.prepared) {
        return true;
    }
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t bytes = page + ALTERNATE_STACK_BYTES;
    char *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (base == MAP_FAILED) {
        return false;
    }
    struct alternate *a = (struct alternate *)(base + bytes - (sizeof *a + 63) / 64 * 64);
    a->base = base;
    a->bytes = bytes;
    stack_t stack;
    memset(&stack, 0, sizeof stack);
    stack.ss_sp = base + page;
    stack.ss_size = (size_t)((char *)a - (base + page));
    if (mprotect(base, page, PROT_NONE) != 0 || sigaltstack(&stack, &a->before) != 0) {
        munmap(base, bytes);
        return false;
    }
    if (pthread_setspecific(thread_key, a) != 0) {
        signal_thread_ends(a);
        return false;
    }
    /* unblock these signals: the system ends the process if a fault's signal is blocked */
    sigset_t faults;
    sigemptyset(&faults);
    for (size_t i = 0; i < N_SIGNALS; i++) {
        sigaddset(&faults, signals[i]);
    }
    pthread_sigmask(SIG_UNBLOCK, &faults, NULL);
    last_passed.prepared = true;
    return true;
}

/* Sets this thread's frame (NULL: none) and returns the earlier frame. */
static hdi_fault_frame *signal_set_frame(hdi_fault_frame *frame)
{
    hdi_fault_frame *before = current_frame;
    current_frame = frame;
    return before;
}

/* ---- fibers ---- */

#if defined(HDI_ASAN) || defined(HDI_TSAN)
/* Instrumented code and the sanitizers' own functions need more. */
#define STACK_BYTES ((size_t)256 * 1024)
#else
#define STACK_BYTES ((size_t)64 * 1024)
#endif

static hdi_mutex lock = HDI_MUTEX_INIT(HOST_FIBERS);
static pthread_cond_t freed = PTHREAD_COND_INITIALIZER;
static hdi_fiber *free_fibers; /* under lock */
static uint32_t n_free;        /* under lock */
static uint32_t existing;      /* under lock */
static hdi_fiber_set *asleep;  /* sets that sleep with fibers; under lock */
/* The largest block for which fibers exist. Rises under lock; read without it as a hint, pairs with
 * nothing. */
static _Atomic uint32_t promised = 1;
/* Changed under lock; read without it as a hint, pairs with nothing. */
static _Atomic uint32_t waiting;

static void fibers_end_tsan(hdi_fiber_set *set)
{
#ifdef HDI_TSAN
    if (set->tsan_fibers != NULL) {
        __tsan_destroy_fiber(set->tsan_fibers);
    }
#endif
    set->tsan_fibers = NULL;
}

/* Maps `count` stacks, and puts their fibers in front of a list. False: out of memory.
 * The page below each stack faults, and its hdi_fiber lies at its upper end. */
static bool fibers_map(uint32_t count, hdi_fiber **list)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t step = STACK_BYTES + page, bytes = count * step;
    char *base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (base == MAP_FAILED) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (mprotect(base + i * step + page, STACK_BYTES, PROT_READ | PROT_WRITE) != 0) {
            munmap(base, bytes);
            return false;
        }
    }
    for (uint32_t i = count; i-- > 0;) {
        char *stack = base + i * step + page;
        hdi_fiber *f = (hdi_fiber *)(stack + STACK_BYTES - (sizeof *f + 63) / 64 * 64);
        f->stack = stack;
        f->stack_bytes = (size_t)((char *)f - stack);
        f->next = *list;
        *list = f;
    }
    return true;
}

/* Gives the set a fiber. */
static void fibers_own(hdi_fiber_set *set, hdi_fiber *f)
{
    f->set = set;
    set->fibers[set->owned++] = f;
}

static bool fibers_make_room(hdi_fiber_set *set, uint32_t count)
{
    if (count > set->room) {
        hdi_fiber **list = realloc(set->fibers, count * sizeof *list);
        if (list == NULL) {
            return false;
        }
        set->fibers = list;
        set->room = count;
    }
    return true;
}

bool hdi_fibers_init(hdi_fiber_set *set)
{
    memset(set, 0, sizeof *set);
    set->main.set = set;
    set->frame.resume = &set->main.context;
    hdi_fiber *first = NULL;
    if (!fibers_make_room(set, HDI_FIBERS_USUAL) || !fibers_map(1, &first)) {
        free(set->fibers);
        return false;
    }
    fibers_own(set, first);
    return true;
}

/* Frees all fibers but fiber 0. Under lock. */
static void fibers_free_extras(hdi_fiber_set *set)
{
    if (set->owned > 1) {
        while (set->owned > 1) {
            hdi_fiber *f = set->fibers[--set->owned];
            f->next = free_fibers;
            free_fibers = f;
            n_free++;
        }
        pthread_cond_broadcast(&freed);
    }
}

void hdi_fibers_destroy(hdi_fiber_set *set)
{
    fibers_end_tsan(set);
    hdi_fibers_wake(set);
    hdi_mutex_lock(&lock);
    fibers_free_extras(set);
    hdi_mutex_unlock(&lock);
    hdi_fiber *f = set->fibers[0];
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
#ifdef HDI_ASAN
    __asan_unpoison_memory_region(f->stack, STACK_BYTES);
#endif
    munmap(f->stack - page, STACK_BYTES + page);
    free(set->fibers);
}

/* Under lock. */
static void fibers_take_free(hdi_fiber_set *set, uint32_t count)
{
    while (set->owned < count && n_free > 0) {
        hdi_fiber *f = free_fibers;
        free_fibers = f->next;
        n_free--;
        fibers_own(set, f);
    }
}

/* Without memory for more fibers: the set takes those of sets that sleep. If they are too few, it
 * gives its own back, so that another set has enough. */
static bool fibers_borrow(hdi_fiber_set *set, uint32_t count)
{
    hdi_mutex_lock(&lock);
    for (hdi_fiber_set *s = asleep; s != NULL; s = s->next_asleep) {
        fibers_free_extras(s);
    }
    fibers_take_free(set, count);
    bool enough = set->owned == count;
    if (!enough) {
        fibers_free_extras(set);
    }
    hdi_mutex_unlock(&lock);
    return enough;
}

bool hdi_fibers_promise(uint32_t count)
{
    if (count <= atomic_load_explicit(&promised, memory_order_relaxed)) {
        return true;
    }
    hdi_mutex_lock(&lock);
    uint32_t missing = count - 1 > existing ? count - 1 - existing : 0;
    bool good = count - 1 <= HDI_FIBER_LIMIT && (missing == 0 || fibers_map(missing, &free_fibers));
    if (good) {
        n_free += missing;
        existing += missing;
        atomic_store_explicit(&promised, count, memory_order_relaxed);
        pthread_cond_broadcast(&freed);
    }
    hdi_mutex_unlock(&lock);
    return good;
}

bool hdi_fibers_reserve(hdi_fiber_set *set, uint32_t count)
{
    if (count <= set->owned) {
        return true;
    }
    if (count > HDI_FIBER_LIMIT || !fibers_make_room(set, count)) {
        return false;
    }
    hdi_mutex_lock(&lock);
    if (count - set->owned > n_free + (HDI_FIBER_LIMIT - existing)) {
        /* give the fibers back first: two sets that wait and keep fibers could wait for each
         * other */
        fibers_free_extras(set);
        while (count - 1 > n_free + (HDI_FIBER_LIMIT - existing)) {
            atomic_fetch_add_explicit(&waiting, 1, memory_order_relaxed);
            hdi_mutex_wait(&lock, &freed);
            atomic_fetch_sub_explicit(&waiting, 1, memory_order_relaxed);
        }
    }
    fibers_take_free(set, count);
    uint32_t missing = count - set->owned;
    existing += missing;
    hdi_mutex_unlock(&lock);
    hdi_fiber *more = NULL;
    if (missing > 0 && !fibers_map(missing, &more)) {
        hdi_mutex_lock(&lock);
        existing -= missing;
        if (existing + 1 < atomic_load_explicit(&promised, memory_order_relaxed)) {
            /* a promise relied on these fibers; the next one makes its own */
            atomic_store_explicit(&promised, existing + 1, memory_order_relaxed);
        }
        pthread_cond_broadcast(&freed);
        hdi_mutex_unlock(&lock);
        return fibers_borrow(set, count);
    }
    while (more != NULL) {
        hdi_fiber *f = more;
        more = f->next;
        fibers_own(set, f);
    }
    return true;
}

void hdi_fibers_yield(hdi_fiber_set *set, bool idle)
{
    if (set->owned > 1 && (idle || atomic_load_explicit(&waiting, memory_order_relaxed) != 0)) {
        hdi_mutex_lock(&lock);
        if (atomic_load_explicit(&waiting, memory_order_relaxed) != 0 || existing - n_free > HDI_FIBER_LIMIT / 2) {
            fibers_free_extras(set);
        }
        if (idle && set->owned > 1 && !set->sleeps) {
            set->sleeps = true;
            set->previous_asleep = NULL;
            set->next_asleep = asleep;
            if (asleep != NULL) {
                asleep->previous_asleep = set;
            }
            asleep = set;
        }
        hdi_mutex_unlock(&lock);
    }
}

void hdi_fibers_wake(hdi_fiber_set *set)
{
    if (!set->sleeps) {
        return;
    }
    hdi_mutex_lock(&lock);
    set->sleeps = false;
    if (set->next_asleep != NULL) {
        set->next_asleep->previous_asleep = set->previous_asleep;
    }
    if (set->previous_asleep != NULL) {
        set->previous_asleep->next_asleep = set->next_asleep;
    } else {
        asleep = set->next_asleep;
    }
    hdi_mutex_unlock(&lock);
}

void hdi_fibers_after_fork(void)
{
    hdi_mutex_init(&lock, HDI_RANK_HOST_FIBERS);
    pthread_cond_init(&freed, NULL);
    free_fibers = NULL;
    n_free = 0;
    existing = 0;
    asleep = NULL;
    atomic_store_explicit(&promised, 1, memory_order_relaxed);
    atomic_store_explicit(&waiting, 0, memory_order_relaxed);
}

hdi_fiber *hdi_fiber_start(hdi_fiber_set *set, void (*run)(void *))
{
    hdi_fiber *f = set->fibers[set->used++];
    f->fake_stack = NULL;
    hdi_context_make(&f->context, f->stack, f->stack_bytes, run, f);
    return f;
}

/* After a switch: reports its end to address sanitizer, and stores the place of the worker's own
 * stack. `fake_stack` was saved for the fiber that continues. */
HDI_FIBER_CODE static void fiber_arrived(hdi_fiber_set *set, void *fake_stack)
{
#ifdef HDI_ASAN
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(fake_stack, &bottom, &bytes);
    if (set->entering) {
        set->entering = false;
        set->main.stack = (char *)bottom;
        set->main.stack_bytes = bytes;
    }
#else
    (void)set, (void)fake_stack;
#endif
}

HDI_FIBER_CODE void hdi_fiber_begin(hdi_fiber *fiber)
{
    fiber_arrived(fiber->set, NULL);
}

HDI_FIBER_CODE void hdi_fiber_switch(hdi_fiber *from, hdi_fiber *to)
{
#ifdef HDI_ASAN
    __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->stack_bytes);
#endif
    hdi_context_switch(&from->context, &to->context);
    void *fake_stack = from->fake_stack;
    from->fake_stack = NULL;
    fiber_arrived(from->set, fake_stack);
}

HDI_FIBER_CODE void hdi_fiber_leave(hdi_fiber *from, hdi_fiber *to)
{
#ifdef HDI_ASAN
    __sanitizer_start_switch_fiber(NULL, to->stack, to->stack_bytes);
#endif
    hdi_context_switch(&from->context, &to->context);
    __builtin_unreachable();
}

HDI_FIBER_CODE void hdi_fiber_enter(hdi_fiber_set *set, hdi_fiber *fiber)
{
    hdi_fault_frame *before = signal_set_frame(&set->frame);
#ifdef HDI_TSAN
    set->tsan_main = __tsan_get_current_fiber();
    if (set->tsan_fibers == NULL) {
        set->tsan_fibers = __tsan_create_fiber(0);
    }
    __tsan_switch_to_fiber(set->tsan_fibers, 0);
#endif
#ifdef HDI_ASAN
    __sanitizer_start_switch_fiber(&set->main.fake_stack, fiber->stack, fiber->stack_bytes);
#endif
    set->entering = true;
    set->frame.signal = 0;
    set->frame.armed = 1;
    hdi_context_switch(&set->main.context, &fiber->context);
    set->frame.armed = 0;
    set->entering = false;
    /* A fiber switched to this place, or a fault continued here. After a fault, the fiber did not
     * do its half of the switch. */
#ifdef HDI_ASAN
    if (set->frame.signal != 0) {
        __sanitizer_start_switch_fiber(NULL, set->main.stack, set->main.stack_bytes);
    }
#endif
    fiber_arrived(set, set->main.fake_stack);
    set->main.fake_stack = NULL;
#ifdef HDI_TSAN
    __tsan_switch_to_fiber(set->tsan_main, 0);
#endif
    signal_set_frame(before);
    if (set->frame.signal != 0) {
        hdi_fibers_abandon(set);
    }
}

HDI_FIBER_CODE void hdi_fibers_abandon(hdi_fiber_set *set)
{
#ifdef HDI_ASAN
    for (uint32_t i = 0; i < set->used; i++) {
        hdi_fiber *f = set->fibers[i];
        /* Only code on that stack can free the sanitizer's data, so this code pretends to switch
         * there. */
        if (f->fake_stack != NULL) {
            __sanitizer_start_switch_fiber(&set->main.fake_stack, f->stack, f->stack_bytes);
            __sanitizer_finish_switch_fiber(f->fake_stack, NULL, NULL);
            __sanitizer_start_switch_fiber(NULL, set->main.stack, set->main.stack_bytes);
            __sanitizer_finish_switch_fiber(set->main.fake_stack, NULL, NULL);
            f->fake_stack = NULL;
            set->main.fake_stack = NULL;
        }
        /* clears the sanitizer's marks of functions that did not return */
        __asan_unpoison_memory_region(f->stack, f->stack_bytes);
    }
#endif
    fibers_end_tsan(set); /* the sanitizer's record of calls contains calls that never returned */
    set->used = 0;
}
