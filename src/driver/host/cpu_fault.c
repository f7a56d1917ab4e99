/* cpu_fault.c - the signal handlers behind hdi_fault_frame.
 *
 * Threads: the handler runs on whichever thread faulted, on its alternate stack where it has one; it touches only
 * thread-local state in static TLS and `previous`, which is written before the handler can run. Locks: `install_lock`.
 * Always: the handler leaves by returning, also when it ends kernel code: it changes where the thread continues.
 */
#include "driver/host/cpu_fault.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ALTERNATE_STACK_BYTES (64 * 1024)

static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
#define N_SIGNALS (sizeof signals / sizeof signals[0])

static pthread_mutex_t install_lock = PTHREAD_MUTEX_INITIALIZER;
static bool have_thread_key; /* under install_lock */
static pthread_key_t thread_key;
static struct sigaction previous[N_SIGNALS]; /* written under install_lock, while ours is not in place */

/* Static TLS: the handler must not be the one that allocates it. */
static _Thread_local hdi_fault_frame *volatile current __attribute__((tls_model("initial-exec")));
static _Thread_local bool prepared;
static _Thread_local volatile int passing __attribute__((tls_model("initial-exec")));

/* Lies at the upper end of the mapping. */
struct alternate {
    void *base; /* one page that faults, then the stack */
    size_t bytes;
    stack_t before;
};

static void pass_on(int signal, siginfo_t *info, void *context)
{
    size_t i = 0;
    while (i + 1 < N_SIGNALS && signals[i] != signal) {
        i++;
    }
    const struct sigaction *p = &previous[i];
    bool simple = (p->sa_flags & SA_SIGINFO) == 0;
    bool handles = !simple || (p->sa_handler != SIG_DFL && p->sa_handler != SIG_IGN);
    if (handles && !passing) {
        sigset_t mask;
        passing = 1; /* that handler may pass on to us in turn, when it was installed over ours */
        pthread_sigmask(SIG_BLOCK, &p->sa_mask, &mask);
        if (simple) {
            p->sa_handler(signal);
        } else {
            p->sa_sigaction(signal, info, context);
        }
        pthread_sigmask(SIG_SETMASK, &mask, NULL);
        passing = 0;
    } else if (handles || p->sa_handler == SIG_DFL || info->si_code > 0) {
        /* The default ends the process. A fault happens again when this returns; a signal that was sent is sent
         * again. */
        struct sigaction by_default;
        memset(&by_default, 0, sizeof by_default);
        by_default.sa_handler = SIG_DFL;
        sigaction(signal, &by_default, NULL);
        if (info->si_code <= 0) {
            raise(signal);
        }
    }
}

static void on_signal(int signal, siginfo_t *info, void *context)
{
    int saved_errno = errno;
    hdi_fault_frame *frame = current;
    if (frame != NULL && frame->armed && info->si_code > 0) {
        frame->armed = 0;
        frame->signal = signal;
        frame->address = (uintptr_t)info->si_addr;
        hdi_context_continue_after_signal(context, frame->resume);
    } else {
        pass_on(signal, info, context);
    }
    errno = saved_errno;
}

static void thread_ends(void *value)
{
    struct alternate *a = value;
    prepared = false; /* a later exit function of the thread may come back */
    sigaltstack(&a->before, NULL);
    munmap(a->base, a->bytes);
}

/* Puts our handlers in where they are not, or not with our flags (programs that set and restore handlers with signal()
 * lose them). */
static bool install(void)
{
    pthread_mutex_lock(&install_lock);
    if (!have_thread_key) {
        have_thread_key = pthread_key_create(&thread_key, thread_ends) == 0;
    }
    bool ok = have_thread_key;
    for (size_t i = 0; ok && i < N_SIGNALS; i++) {
        struct sigaction now, ours;
        if (sigaction(signals[i], NULL, &now) != 0) {
            ok = false;
            break;
        }
        const int flags = SA_SIGINFO | SA_ONSTACK;
        bool is_ours = now.sa_sigaction == on_signal; /* one field with sa_handler on every system that has this file */
        if (is_ours && (now.sa_flags & flags) == flags) {
            continue;
        }
        if (!is_ours) {
            previous[i] = now;
        }
        memset(&ours, 0, sizeof ours);
        ours.sa_sigaction = on_signal;
        ours.sa_flags = flags;
        sigemptyset(&ours.sa_mask);
        ok = sigaction(signals[i], &ours, NULL) == 0;
    }
    pthread_mutex_unlock(&install_lock);
    return ok;
}

bool hdi_fault_prepare_thread(void)
{
    if (!install()) {
        return false;
    }
    passing = 0; /* in case that handler left with longjmp */
    if (prepared) {
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
    sigset_t faults; /* a fault of a thread that blocks the signal ends the process */
    sigemptyset(&faults);
    for (size_t i = 0; i < N_SIGNALS; i++) {
        sigaddset(&faults, signals[i]);
    }
    pthread_sigmask(SIG_UNBLOCK, &faults, NULL);
    prepared = true;
    return true;
}

hdi_fault_frame *hdi_fault_set_frame(hdi_fault_frame *frame)
{
    hdi_fault_frame *before = current;
    current = frame;
    return before;
}
