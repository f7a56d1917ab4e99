/* biased_lock.c - the slow halves of the biased lock. See biased_lock.h for threads, locks and what always holds. */
#include "base/biased_lock.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/wait.h"

#if defined(__SANITIZE_THREAD__)
#define FENCED true
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FENCED true
#endif
#endif
#ifndef FENCED
#define FENCED false
#endif

#define YIELDS 16
#define SLEEP_NS 20000

static long barrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0);
}

/* Again costs nothing, and a child of fork() may have to do it itself. */
static bool register_process(void)
{
    return !FENCED && barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0 &&
           barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0;
}

_Atomic int hdi_biased_how;

/* Once for a process: owners and visitors must agree on which of them fences. A forked child has to register itself. */
static void in_child(void)
{
    if (atomic_load_explicit(&hdi_biased_how, memory_order_relaxed) == 1 && !register_process()) {
        atomic_store_explicit(&hdi_biased_how, 2, memory_order_relaxed);
    }
}

static void look(void)
{
    pthread_atfork(NULL, NULL, in_child);
    atomic_store_explicit(&hdi_biased_how, register_process() ? 1 : 2, memory_order_relaxed);
}

int hdi_biased_look(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, look);
    return atomic_load_explicit(&hdi_biased_how, memory_order_relaxed);
}

void hdi_biased_barrier(void)
{
    if (hdi_biased_fenced()) {
        static _Atomic int word;
        atomic_fetch_add_explicit(&word, 1, memory_order_seq_cst);
    } else {
        barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED); /* cannot fail where it worked at registration */
    }
}

bool hdi_biased_join(void)
{
    return !FENCED && barrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0;
}

bool hdi_biased_barrier_everywhere(void)
{
    return !FENCED && barrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED) == 0;
}

void hdi_biased_init(hdi_biased_lock *lock)
{
    atomic_init(&lock->busy, false);
    atomic_init(&lock->wanted, false);
    lock->fenced = !register_process();
    hdi_mutex_init(&lock->visit, HDI_RANK_THREAD_CACHE);
}

void hdi_biased_destroy(hdi_biased_lock *lock)
{
    hdi_mutex_destroy(&lock->visit);
}

void hdi_biased_enter_slow(hdi_biased_lock *lock)
{
    hdi_rank_released(lock);
    do {
        atomic_store_explicit(&lock->busy, false, memory_order_release); /* as in hdi_biased_leave */
        hdi_mutex_lock(&lock->visit);                                    /* until the visit is over */
        atomic_store_explicit(&lock->busy, true, memory_order_seq_cst);
        hdi_mutex_unlock(&lock->visit);
        /* Another visitor may have come between; the mutex orders `busy` before its look. */
    } while (atomic_load_explicit(&lock->wanted, memory_order_seq_cst));
    hdi_rank_taken(lock, lock->visit.rank);
}

void hdi_biased_visit(hdi_biased_lock *lock)
{
    hdi_mutex_lock(&lock->visit);
    atomic_store_explicit(&lock->wanted, true, memory_order_seq_cst);
    if (!lock->fenced) {
        barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED); /* cannot fail where it worked at registration */
    }
    for (int rounds = 0; atomic_load_explicit(&lock->busy, memory_order_seq_cst); rounds++) {
        if (rounds < YIELDS) {
            sched_yield();
        } else {
            hdi_sleep_for(SLEEP_NS); /* the owner has lost its processor, maybe to this thread */
        }
    }
}

void hdi_biased_end_visit(hdi_biased_lock *lock)
{
    atomic_store_explicit(&lock->wanted, false, memory_order_seq_cst);
    hdi_mutex_unlock(&lock->visit);
}
