/* thread.h - starting a thread of the library's own: the program's signals are not for it. Any thread; no locks. */
#ifndef HDI_BASE_THREAD_H
#define HDI_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>

/* pthread_create with all signals blocked; returns what it returns. */
static inline int hdi_thread_start(pthread_t *out, void *(*run)(void *), void *context)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(out, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

#endif
