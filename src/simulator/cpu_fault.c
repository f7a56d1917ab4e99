/* cpu_fault.c - the signal handlers behind hdi_fault_frame.
 *
 * Threads: the handler runs on the thread that faulted, on its alternate stack where it has one. It uses thread-local state
 * in static TLS, `spent`, and `previous`, which is written before the handler can run.
 * Locks: `install_lock`, around installing; the handler takes none. Blocking: none.
 * Always: the handler leaves by returning, also when it ends kernel code: it changes where the thread continues. Handlers
 * of the program may leave with longjmp, so what is recorded while they run may be stale.
 */
#include "simulator/cpu_fault.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/lock.h"
#include "base/thread.h"

#define ALTERNATE_STACK_BYTES (64 * 1024)

static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
#define N_SIGNALS (sizeof signals / sizeof signals[0])

static hdi_mutex install_lock = HDI_MUTEX_INIT(HOST_FAULTS);
static bool have_thread_key; /* under install_lock */
static pthread_key_t thread_key;
static struct sigaction previous[N_SIGNALS]; /* written under install_lock, while ours is not in place */
/* The previous handler was installed for one call (SA_RESETHAND), and has been called. Cleared when `previous` is
 * written. Relaxed, since it guards nothing. */
static atomic_bool spent[N_SIGNALS];

/* In static thread-local storage, as all of the library's: the handler cannot allocate it at its first access. */
static _Thread_local hdi_fault_frame *volatile current;

/* The signal that this thread last passed to a handler of the program. Nothing shows when that handler has ended. */
typedef struct passed_signal {
    uintptr_t frame; /* the stack frame of on_signal; 0: there was none */
    uintptr_t context;
    int code;
    bool prepared; /* of the thread: it has an alternate stack */
} passed_signal;
static _Thread_local volatile passed_signal passed; /* in TLS as a whole, since the handler cannot allocate */

/* Lies at the upper end of its mapping. */
struct alternate {
    void *base; /* one page that faults, then the stack */
    size_t bytes;
    stack_t before;
};

/* Whether the program's handler, to which a signal was passed, calls ours in turn. It does so where it was installed
 * over ours and passes on what it does not handle. Then `context` is the earlier one, or anything where that handler
 * only has a number.
 * A new signal may come during that handler, or after it left with longjmp. Its context is new too, and lies right above
 * our frame. So that context is below the earlier one, or our frame is no deeper than the earlier frame. */
static bool is_passed_back(uintptr_t frame, uintptr_t context)
{
    bool is_new = context > frame && context < passed.context;
    return passed.frame != 0 && frame < passed.frame && !is_new;
}

/* Restores the default, which ends the process. A fault happens again when the handler returns. A signal that was sent
 * is sent again. */
static void by_default(int signal, int code)
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
static void call_handler(const struct sigaction *handler, int signal, siginfo_t *info, void *context)
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

static void pass_on(int signal, siginfo_t *info, void *context, uintptr_t frame)
{
    size_t i = 0;
    while (i + 1 < N_SIGNALS && signals[i] != signal) {
        i++;
    }
    const struct sigaction *p = &previous[i];
    bool plain = (p->sa_flags & SA_SIGINFO) == 0;
    if ((plain && p->sa_handler == SIG_DFL) || atomic_load_explicit(&spent[i], memory_order_relaxed)) {
        by_default(signal, info->si_code);
    } else if (plain && p->sa_handler == SIG_IGN) {
        if (info->si_code > 0) { /* a fault cannot be ignored */
            by_default(signal, info->si_code);
        }
    } else {
        passed_signal before = passed; /* of an outer handler, which faulted itself */
        atomic_store_explicit(&spent[i], (p->sa_flags & (int)SA_RESETHAND) != 0, memory_order_relaxed);
        passed.frame = frame;
        passed.context = (uintptr_t)context;
        passed.code = info->si_code;
        call_handler(p, signal, info, context);
        passed = before;
    }
}

static void on_signal(int signal, siginfo_t *info, void *context)
{
    int saved_errno = errno;
    hdi_fault_frame *frame = current;
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    if (is_passed_back(here, (uintptr_t)context)) {
        by_default(signal, passed.code);
    } else if (frame != NULL && frame->armed && info->si_code > 0) {
        frame->armed = 0;
        frame->signal = signal;
        frame->address = (uintptr_t)info->si_addr;
        hdi_context_continue_after_signal(context, frame->resume);
    } else {
        pass_on(signal, info, context, here);
    }
    errno = saved_errno;
}

static void thread_ends(void *value)
{
    struct alternate *a = value;
    passed.prepared = false; /* a later exit function of the thread may prepare it again */
    sigaltstack(&a->before, NULL);
    munmap(a->base, a->bytes);
}

/* Installs our handlers where they are missing or lack our flags. Programs that save and restore handlers with signal()
 * drop the flags. */
static bool install(void)
{
    hdi_mutex_lock(&install_lock);
    if (!have_thread_key) {
        have_thread_key = hdi_thread_key(&thread_key, thread_ends) == 0;
    }
    bool ok = have_thread_key;
    for (size_t i = 0; ok && i < N_SIGNALS; i++) {
        struct sigaction now, ours;
        if (sigaction(signals[i], NULL, &now) != 0) {
            ok = false;
            break;
        }
        const int flags = SA_SIGINFO | SA_ONSTACK;
        bool is_ours = now.sa_sigaction == on_signal; /* the same field as sa_handler on every system of this file */
        if (is_ours && (now.sa_flags & flags) == flags) {
            continue;
        }
        if (!is_ours) {
            previous[i] = now;
            atomic_store_explicit(&spent[i], false, memory_order_relaxed);
        }
        memset(&ours, 0, sizeof ours);
        ours.sa_sigaction = on_signal;
        ours.sa_flags = flags;
        sigemptyset(&ours.sa_mask);
        ok = sigaction(signals[i], &ours, NULL) == 0;
    }
    hdi_mutex_unlock(&install_lock);
    return ok;
}

bool hdi_fault_prepare_thread(void)
{
    if (!install()) {
        return false;
    }
    if (passed.prepared) {
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
        thread_ends(a);
        return false;
    }
    sigset_t faults; /* a fault ends the process where the thread blocks the signal */
    sigemptyset(&faults);
    for (size_t i = 0; i < N_SIGNALS; i++) {
        sigaddset(&faults, signals[i]);
    }
    pthread_sigmask(SIG_UNBLOCK, &faults, NULL);
    passed.prepared = true;
    return true;
}

hdi_fault_frame *hdi_fault_set_frame(hdi_fault_frame *frame)
{
    hdi_fault_frame *before = current;
    current = frame;
    return before;
}
