/* lock.c - the slow halves of the locks, and the check of their order.
 *
 * Threads: any. Locks: those of lock.h themselves.
 * Blocking: hdi_lock_take_slow and hdi_biased_enter_slow until they hold the lock, hdi_biased_visit
 * until the owner is outside.
 * Always: no thread waits forever for a released lock. A debug build aborts before a thread breaks
 * the order.
 */
#include "base/lock.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/thread.h"
#include "base/wait.h"

/* ---- the order: the locks that each thread holds, and the check of a new one (rank.h) ---- */

#ifdef HDI_DEBUG

#define HELD_MOST 62 /* far more locks than any call holds, except for the locks of thread caches */

/* The locks that a thread holds: rank, key and address of each in one word. So the order of the
 * words is the order of the locks. */
typedef struct held {
    struct held *next;
    atomic_bool taken; /* by a thread */
    uint64_t n;
    uint64_t of[HELD_MOST];
} held;

/* the records of all threads; they are never freed: after its thread ended, a record serves another
 * thread */
static _Atomic(held *) every;

_Static_assert(sizeof(void *) == 8 && (int)HDI_RANK_HOST_FAULTS < 256, "a rank has 8 bits, an address the lower 48");

/* A key instead of thread-local storage, which is scarce in programs that load the library. */
static pthread_key_t held_key;
static pthread_once_t held_once = PTHREAD_ONCE_INIT;
static bool has_held_key;
/* some thread had no memory for its record, so it may release locks that are not recorded */
static atomic_bool lacks_some;

static void held_give_back(void *value)
{
    held *h = value;
    h->n = 0;
    atomic_store(&h->taken, false);
}

static void held_make_key(void)
{
    has_held_key = hdi_thread_key(&held_key, held_give_back) == 0;
}

/* NULL: no memory. */
static held *held_take_record(void)
{
    for (held *h = atomic_load(&every); h; h = h->next) {
        if (!atomic_exchange(&h->taken, true)) {
            return h;
        }
    }
    held *h = calloc(1, sizeof *h);
    if (h) {
        atomic_init(&h->taken, true);
        h->next = atomic_load(&every);
        while (!atomic_compare_exchange_weak(&every, &h->next, h)) {
        }
    }
    return h;
}

/* NULL: no memory. */
static held *held_own_record(void)
{
    pthread_once(&held_once, held_make_key);
    held *h = has_held_key ? pthread_getspecific(held_key) : NULL;
    if (!h && has_held_key) {
        h = held_take_record();
        if (h && pthread_setspecific(held_key, h) != 0) {
            held_give_back(h);
            h = NULL;
        }
    }
    if (!h) {
        atomic_store(&lacks_some, true);
    }
    return h;
}

static uint64_t held_word_of(const void *lock, uint32_t rank)
{
    return (uint64_t)(rank >> 16) << 56 | (uint64_t)(rank & 0xff) << 48 | ((uintptr_t)lock & 0xffffffffffff);
}

static uint32_t held_rank_of(uint64_t word)
{
    return HDI_RANKED(word >> 56, word >> 48 & 0xff);
}

static const char *held_rank_name(uint32_t rank)
{
    static const char *const names[] = {"no rank",
#define HDI_RANK_ENTRY(name) #name,
                                        HDI_RANK_MAP(HDI_RANK_ENTRY)
#undef HDI_RANK_ENTRY
    };
    return rank >> 16 < sizeof names / sizeof names[0] ? names[rank >> 16] : "an unknown rank";
}

static void held_abort(const char *what, uint32_t rank, uint32_t other)
{
    fprintf(stderr, "heddle: lock %s/%u %s %s/%u; src/base/rank.h has the order\n", held_rank_name(rank), rank & 0xffff,
            what, held_rank_name(other), other & 0xffff);
    abort();
}

static bool held_has_rank(const held *h, hdi_rank rank)
{
    bool found = false;
    for (uint64_t i = 0; i < h->n; i++) {
        found |= h->of[i] >> 56 == rank;
    }
    return found;
}

void hdi_rank_check(const void *lock, uint32_t rank)
{
    const held *h = held_own_record();
    if (rank >> 16 == HDI_RANK_NONE) {
        held_abort("was made without a rank; this thread holds locks, so many:", rank, h ? (uint32_t)h->n : 0);
    }
    for (uint64_t i = 0; h && i < h->n; i++) {
        if (h->of[i] >= held_word_of(lock, rank)) {
            held_abort("is taken by a thread that holds", rank, held_rank_of(h->of[i]));
        }
    }
}

void hdi_rank_taken(const void *lock, uint32_t rank)
{
    held *h = held_own_record();
    if (!h || (rank >> 16 == HDI_RANK_THREAD_CACHE && held_has_rank(h, HDI_RANK_CACHES))) {
        /* a holder of the list of thread caches may hold any number of their locks, so they are not
         * recorded */
        return;
    }
    if (h->n == HELD_MOST) {
        held_abort("is one too many after", rank, held_rank_of(h->of[h->n - 1]));
    }
    h->of[h->n++] = held_word_of(lock, rank);
}

void hdi_rank_released(const void *lock)
{
    held *h = held_own_record();
    uint64_t i = h ? h->n : 0;
    while (i > 0 && (h->of[i - 1] ^ (uintptr_t)lock) << 16 != 0) {
        i--;
    }
    if (i > 0) {
        memmove(&h->of[i - 1], &h->of[i], (h->n - i) * sizeof h->of[0]);
        h->n--;
    } else if (!atomic_load(&lacks_some) && !held_has_rank(h, HDI_RANK_CACHES)) {
        held_abort("is released by a thread that does not hold it; locks that it holds:", 0, (uint32_t)h->n);
    }
}

#endif

/* ---- for short sections: a thread that found the lock taken ----
 *
 * Threads of the queue get the lock in the order in which they queued up. A waiting thread first
 * checks the lock again and again, for about as long as a section lasts. Then it yields, so that a
 * holder without a processor gets one. Then it queues up. The first of the queue stays awake and
 * keeps newcomers out until it gets the lock. The others sleep, for a short time at once. If the
 * next thread of the queue still sleeps when its turn comes, any thread may take the lock
 * meanwhile. So no open lock is left unused while threads sleep, and no thread waits forever. */

enum { PAUSES = 100, YIELDS = 8, SLEEP_FIRST_NS = 5000, SLEEP_LAST_NS = 50000 };

/* Loads the lock before it tries to take it, so that waiting threads share the cache line instead
 * of taking it from the holder. */
static bool lock_try_when_open(hdi_lock *lock)
{
    return atomic_load_explicit(&lock->taken, memory_order_relaxed) == 0 && hdi_lock_take_open(lock);
}

/* Tries to take the lock for the first of the queue, which has priority. */
static bool lock_try_first(hdi_lock *lock)
{
    return atomic_load_explicit(&lock->taken, memory_order_relaxed) == 0 &&
           /* as in hdi_lock_take_open */
           atomic_exchange_explicit(&lock->taken, 1, memory_order_seq_cst) == 0;
}

static void lock_take_in_turn(hdi_lock *lock)
{
    unsigned mine = atomic_fetch_add_explicit(&lock->last_turn, 1, memory_order_relaxed);
    int64_t sleep_ns = SLEEP_FIRST_NS;
    /* pairs with the release store below: the previous first thread took back `urgent` */
    while (atomic_load_explicit(&lock->turn, memory_order_acquire) != mine) {
        hdi_sleep_for(sleep_ns);
        sleep_ns = sleep_ns * 2 < SLEEP_LAST_NS ? sleep_ns * 2 : SLEEP_LAST_NS;
    }
    atomic_store_explicit(&lock->urgent, 1, memory_order_relaxed);
    for (int looks = 1; !lock_try_first(lock); looks++) {
        if (looks % PAUSES == 0) {
            sched_yield();
        } else {
            hdi_cpu_relax();
        }
    }
    atomic_store_explicit(&lock->urgent, 0, memory_order_relaxed);
    atomic_store_explicit(&lock->turn, mine + 1, memory_order_release);
}

void hdi_lock_take_slow(hdi_lock *lock)
{
    for (int i = 0; i < PAUSES; i++) {
        if (lock_try_when_open(lock)) {
            return;
        }
        hdi_cpu_relax();
    }
    for (int i = 0; i < YIELDS; i++) {
        if (lock_try_when_open(lock)) {
            return;
        }
        sched_yield();
    }
    lock_take_in_turn(lock);
}

/* ---- for one owner ---- */

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

enum { VISIT_YIELDS = 16, VISIT_SLEEP_NS = 20000 };

static long biased_membarrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0);
}

/* Registers the process with the system for membarrier. A second registration costs nothing, and a
 * child of fork() may need its own. */
static bool biased_register_process(void)
{
    return !FENCED && biased_membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0 &&
           biased_membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0;
}

_Atomic int hdi_biased_how;

/* Decided once per process: owners and visitors must agree which of them fences. A forked child
 * must register itself. */
static void biased_in_child(void)
{
    if (atomic_load_explicit(&hdi_biased_how, memory_order_relaxed) == 1 && !biased_register_process()) {
        atomic_store_explicit(&hdi_biased_how, 2, memory_order_relaxed);
    }
}

static void biased_choose_how(void)
{
    pthread_atfork(NULL, NULL, biased_in_child);
    atomic_store_explicit(&hdi_biased_how, biased_register_process() ? 1 : 2, memory_order_relaxed);
}

int hdi_biased_look(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, biased_choose_how);
    return atomic_load_explicit(&hdi_biased_how, memory_order_relaxed);
}

void hdi_biased_barrier(void)
{
    if (hdi_biased_fenced()) {
        static _Atomic int word;
        atomic_fetch_add_explicit(&word, 1, memory_order_seq_cst);
    } else {
        /* cannot fail if registration worked */
        biased_membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    }
}

bool hdi_biased_join(void)
{
    return !FENCED && biased_membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0;
}

bool hdi_biased_barrier_everywhere(void)
{
    return !FENCED && biased_membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED) == 0;
}

void hdi_biased_init(hdi_biased_lock *lock)
{
    atomic_init(&lock->busy, false);
    atomic_init(&lock->wanted, false);
    lock->fenced = !biased_register_process();
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
        /* as in hdi_biased_leave */
        atomic_store_explicit(&lock->busy, false, memory_order_release);
        hdi_mutex_lock(&lock->visit); /* held until the visit is over */
        atomic_store_explicit(&lock->busy, true, memory_order_seq_cst);
        hdi_mutex_unlock(&lock->visit);
        /* Another visitor may have come in between; because of the mutex, that visitor sees
         * `busy`. */
    } while (atomic_load_explicit(&lock->wanted, memory_order_seq_cst));
    hdi_rank_taken(lock, lock->visit.rank);
}

void hdi_biased_visit(hdi_biased_lock *lock)
{
    hdi_mutex_lock(&lock->visit);
    atomic_store_explicit(&lock->wanted, true, memory_order_seq_cst);
    if (!lock->fenced) {
        /* cannot fail if registration worked */
        biased_membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    }
    for (int rounds = 0; atomic_load_explicit(&lock->busy, memory_order_seq_cst); rounds++) {
        if (rounds < VISIT_YIELDS) {
            sched_yield();
        } else {
            /* the owner lost its processor, perhaps to this thread */
            hdi_sleep_for(VISIT_SLEEP_NS);
        }
    }
}

void hdi_biased_end_visit(hdi_biased_lock *lock)
{
    atomic_store_explicit(&lock->wanted, false, memory_order_seq_cst);
    hdi_mutex_unlock(&lock->visit);
}
