/* mutex.h - a pthread_mutex_t with a rank (rank.h), for sections that may call the driver, allocate or sleep.
 *
 * Threads: any. Locks: itself. Not recursive.
 */
#ifndef HDI_BASE_MUTEX_H
#define HDI_BASE_MUTEX_H

#include <pthread.h>
#include <stdbool.h>
#include <time.h>
#include "base/rank.h"

typedef struct hdi_mutex {
    pthread_mutex_t mutex;
    uint32_t rank;
} hdi_mutex;

#define HDI_MUTEX_INIT(name)                                                                                           \
    {                                                                                                                  \
        PTHREAD_MUTEX_INITIALIZER, HDI_RANKED(HDI_RANK_##name, 0)                                                      \
    }

static inline void hdi_mutex_init(hdi_mutex *mutex, hdi_rank rank)
{
    pthread_mutex_init(&mutex->mutex, NULL);
    mutex->rank = HDI_RANKED(rank, 0);
}

static inline void hdi_mutex_destroy(hdi_mutex *mutex)
{
    pthread_mutex_destroy(&mutex->mutex);
}

static inline void hdi_mutex_lock(hdi_mutex *mutex)
{
    hdi_rank_check(mutex, mutex->rank);
    pthread_mutex_lock(&mutex->mutex);
    hdi_rank_taken(mutex, mutex->rank);
}

/* For handlers of fork(), which run in the order in which they were installed: without the check of the order. Of these locks a thread takes none under
 * another one, so none is waited for in vain. */
static inline void hdi_mutex_lock_at_fork(hdi_mutex *mutex)
{
    pthread_mutex_lock(&mutex->mutex);
    hdi_rank_taken(mutex, mutex->rank);
}

/* False: another thread has it. */
static inline bool hdi_mutex_try(hdi_mutex *mutex)
{
    bool taken = pthread_mutex_trylock(&mutex->mutex) == 0;
    if (taken) {
        hdi_rank_taken(mutex, mutex->rank);
    }
    return taken;
}

static inline void hdi_mutex_unlock(hdi_mutex *mutex)
{
    hdi_rank_released(mutex);
    pthread_mutex_unlock(&mutex->mutex);
}

/* False: another thread had it until the deadline, in the time of hdi_clock_ns (INT64_MAX: none). */
static inline bool hdi_mutex_lock_until(hdi_mutex *mutex, int64_t deadline)
{
    if (deadline == INT64_MAX) {
        hdi_mutex_lock(mutex);
        return true;
    }
    const struct timespec limit = {.tv_sec = (time_t)(deadline / 1000000000), .tv_nsec = (long)(deadline % 1000000000)};
    hdi_rank_check(mutex, mutex->rank);
    bool taken = pthread_mutex_clocklock(&mutex->mutex, CLOCK_MONOTONIC, &limit) == 0;
    if (taken) {
        hdi_rank_taken(mutex, mutex->rank);
    }
    return taken;
}

/* Waits for `cond` without a deadline; the calling thread has the mutex. wait.h has hdi_cond_wait, with one. */
static inline void hdi_mutex_wait(hdi_mutex *mutex, pthread_cond_t *cond)
{
    hdi_rank_released(mutex);
    pthread_cond_wait(cond, &mutex->mutex);
    hdi_rank_taken(mutex, mutex->rank);
}

#endif
