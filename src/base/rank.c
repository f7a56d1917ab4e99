/* rank.c - what each thread holds, and the check that a lock comes behind it. What it is for, threads and what always holds: see rank.h. */
#include "base/rank.h"

#ifdef HDI_DEBUG

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HELD_MOST 64 /* far more than any call holds, but for thread caches */

typedef struct held {
    const void *lock;
    uint32_t rank;
} held;

static _Thread_local held all[HELD_MOST];
static _Thread_local unsigned n_held;

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

static bool holds(hdi_rank rank)
{
    bool found = false;
    for (unsigned i = 0; i < n_held; i++) {
        found |= all[i].rank >> 16 == rank;
    }
    return found;
}

/* Thread caches, of which a holder of their list may have any number: those have no record. */
static bool is_one_of_many(uint32_t rank)
{
    return rank >> 16 == HDI_RANK_THREAD_CACHE && holds(HDI_RANK_CACHES);
}

void hdi_rank_check(const void *lock, uint32_t rank)
{
    if (rank >> 16 == HDI_RANK_NONE) {
        stop("was made without a rank; this thread holds locks, so many:", rank, n_held);
    }
    for (unsigned i = 0; i < n_held; i++) {
        const held *before = &all[i];
        if (before->rank > rank || (before->rank == rank && (uintptr_t)before->lock >= (uintptr_t)lock)) {
            stop("is taken by a thread that holds", rank, all[i].rank);
        }
    }
}

void hdi_rank_taken(const void *lock, uint32_t rank)
{
    if (is_one_of_many(rank)) {
        return;
    }
    if (n_held == HELD_MOST) {
        stop("is one too many after", rank, all[n_held - 1].rank);
    }
    all[n_held++] = (held){lock, rank};
}

void hdi_rank_released(const void *lock)
{
    unsigned i = n_held;
    while (i > 0 && all[i - 1].lock != lock) {
        i--;
    }
    if (i == 0 && holds(HDI_RANK_CACHES)) {
        return; /* one of many */
    }
    if (i == 0) {
        stop("is released by a thread that does not hold it; locks that it holds:", 0, n_held);
    }
    memmove(&all[i - 1], &all[i], (n_held - i) * sizeof all[0]);
    n_held--;
}

#endif
