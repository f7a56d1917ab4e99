/* rank.c - what each thread holds, and the check that a lock comes behind it. What it is for, threads and what always holds: see rank.h. */
#include "base/rank.h"

#ifdef HDI_DEBUG

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/thread.h"

#define HELD_MOST 62 /* far more than any call holds, but for thread caches */

/* What a thread holds: rank, key and address of each lock in one word, so that words are in order as the locks are. */
typedef struct held {
    struct held *next;
    atomic_bool taken; /* by a thread */
    uint64_t n;
    uint64_t of[HELD_MOST];
} held;

static _Atomic(held *) every; /* never freed: one whose thread has ended serves another */

_Static_assert(sizeof(void *) == 8 && (int)HDI_RANK_HOST_FAULTS < 256, "a rank has 8 bits, an address the lower 48");

/* Not thread-local storage, of which programs that load the library have little. */
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool has_key;
static atomic_bool lacks_some; /* there was no memory for what a thread holds: it may release what is not recorded */

static void give(void *value)
{
    held *h = value;
    h->n = 0;
    atomic_store(&h->taken, false);
}

static void make_key(void)
{
    has_key = hdi_thread_key(&key, give) == 0;
}

/* NULL: there is no memory. */
static held *take(void)
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

/* NULL: there is no memory. */
static held *own(void)
{
    pthread_once(&once, make_key);
    held *h = has_key ? pthread_getspecific(key) : NULL;
    if (!h && has_key) {
        h = take();
        if (h && pthread_setspecific(key, h) != 0) {
            give(h);
            h = NULL;
        }
    }
    if (!h) {
        atomic_store(&lacks_some, true);
    }
    return h;
}

static uint64_t word_of(const void *lock, uint32_t rank)
{
    return (uint64_t)(rank >> 16) << 56 | (uint64_t)(rank & 0xff) << 48 | ((uintptr_t)lock & 0xffffffffffff);
}

static uint32_t rank_of(uint64_t word)
{
    return HDI_RANKED(word >> 56, word >> 48 & 0xff);
}

static const char *name_of(uint32_t rank)
{
    static const char *const names[] = {"no rank",
#define HDI_RANK_ENTRY(name) #name,
                                        HDI_RANK_MAP(HDI_RANK_ENTRY)
#undef HDI_RANK_ENTRY
    };
    return rank >> 16 < sizeof names / sizeof names[0] ? names[rank >> 16] : "an unknown rank";
}

static void stop(const char *what, uint32_t rank, uint32_t other)
{
    fprintf(stderr, "heddle: lock %s/%u %s %s/%u; src/base/rank.h has the order\n", name_of(rank), rank & 0xffff, what,
            name_of(other), other & 0xffff);
    abort();
}

static bool holds(const held *h, hdi_rank rank)
{
    bool found = false;
    for (uint64_t i = 0; i < h->n; i++) {
        found |= h->of[i] >> 56 == rank;
    }
    return found;
}

void hdi_rank_check(const void *lock, uint32_t rank)
{
    const held *h = own();
    if (rank >> 16 == HDI_RANK_NONE) {
        stop("was made without a rank; this thread holds locks, so many:", rank, h ? (uint32_t)h->n : 0);
    }
    for (uint64_t i = 0; h && i < h->n; i++) {
        if (h->of[i] >= word_of(lock, rank)) {
            stop("is taken by a thread that holds", rank, rank_of(h->of[i]));
        }
    }
}

void hdi_rank_taken(const void *lock, uint32_t rank)
{
    held *h = own();
    if (!h || (rank >> 16 == HDI_RANK_THREAD_CACHE && holds(h, HDI_RANK_CACHES))) {
        return; /* a holder of their list may have any number of thread caches: those have no record */
    }
    if (h->n == HELD_MOST) {
        stop("is one too many after", rank, rank_of(h->of[h->n - 1]));
    }
    h->of[h->n++] = word_of(lock, rank);
}

void hdi_rank_released(const void *lock)
{
    held *h = own();
    uint64_t i = h ? h->n : 0;
    while (i > 0 && (h->of[i - 1] ^ (uintptr_t)lock) << 16 != 0) {
        i--;
    }
    if (i > 0) {
        memmove(&h->of[i - 1], &h->of[i], (h->n - i) * sizeof h->of[0]);
        h->n--;
    } else if (!atomic_load(&lacks_some) && !holds(h, HDI_RANK_CACHES)) {
        stop("is released by a thread that does not hold it; locks that it holds:", 0, (uint32_t)h->n);
    }
}

#endif
