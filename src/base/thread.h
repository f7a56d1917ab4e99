/* thread.h - threads of the library's own, and what is left to do when any thread ends.
 *
 * Threads: any. Locks: none. Always: code that a thread may still come to is never unloaded. That also holds where the library is
 * linked statically into a shared object that the program closes.
 *
 * What belongs to a thread is a structure behind a pointer. The library's thread-local storage is static (initial-exec): reading it calls
 * nothing and allocates nothing, so it works in signal handlers and when memory is out. A program that loads the library
 * while it runs has little of it to give, for all libraries together. So only pointers and flags are there.
 */
#ifndef HDI_BASE_THREAD_H
#define HDI_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

/* pthread_create for a thread of the library's, which is known as one; returns what it returns. */
int hdi_thread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *), void *context);

/* The same with all signals blocked, since the program's signals are not for such a thread. */
int hdi_thread_start(pthread_t *out, void *(*run)(void *), void *context);

/* Whether the calling thread is one of those. */
bool hdi_thread_is_own(void);

/* pthread_key_create for a function of the library's, which stays loaded from here on; returns what it returns. */
int hdi_thread_key(pthread_key_t *out, void (*ends)(void *));

/* The object that this code is in is never unloaded from here on. The first call takes the dynamic loader's lock; hd_open makes it, so that
 * no thread comes to that with locks of the library's held. */
void hdi_keep_loaded(void);

#endif
