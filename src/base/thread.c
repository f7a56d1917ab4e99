/* thread.c - threads of the library's own, and what is left to do when any thread ends. See thread.h for threads, locks and what always holds. */
#include "base/thread.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include "base/own_file.h"

/* ---- the library's own ---- */

typedef struct start {
    void *(*run)(void *);
    void *context;
} start;

static _Thread_local bool is_own;

static void *run_own(void *context)
{
    start s = *(start *)context;
    free(context);
    is_own = true;
    return s.run(s.context);
}

bool hdi_thread_is_own(void)
{
    return is_own;
}

int hdi_thread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *), void *context)
{
    start *s = malloc(sizeof *s);
    if (s == NULL) {
        return EAGAIN;
    }
    *s = (start){run, context};
    int error = pthread_create(out, attributes, run_own, s);
    if (error) {
        free(s);
    }
    return error;
}

int hdi_thread_start(pthread_t *out, void *(*run)(void *), void *context)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = hdi_thread_create(out, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* ---- staying loaded ---- */

static void keep_loaded(void)
{
    const char *object = hdi_own_file_name();
    if (object != NULL) {
        dlopen(object, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE); /* of an object that is there, so nothing is opened */
    }
}

void hdi_keep_loaded(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, keep_loaded);
}

int hdi_thread_key(pthread_key_t *out, void (*ends)(void *))
{
    hdi_keep_loaded();
    return pthread_key_create(out, ends);
}
