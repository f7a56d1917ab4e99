/* thread.c - threads of the library's own, and what is left to do when any thread ends. See thread.h. */
#include "base/thread.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/self.h"

/* ---- the library's own ---- */

typedef struct start {
    void *(*run)(void *);
    void *context;
} start;

/* Threads of the library's that have begun, and that are about to end. A thread that the system has already, or still has, is in neither
 * count: what is not counted is taken for the program's. */
static _Atomic unsigned long begun, ended;

static void *run_counted(void *context)
{
    start s = *(start *)context;
    free(context);
    atomic_fetch_add(&begun, 1);
    void *result = s.run(s.context);
    atomic_fetch_add(&ended, 1);
    return result;
}

static void in_child(void)
{
    atomic_store(&begun, 0);
    atomic_store(&ended, 0);
}

static void guard_forks(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

int hdi_thread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *), void *context)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, guard_forks);
    start *s = malloc(sizeof *s);
    if (s == NULL) {
        return EAGAIN;
    }
    *s = (start){run, context};
    int error = pthread_create(out, attributes, run_counted, s);
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

/* How many threads the process has; 0: unknown. */
static unsigned long threads_of_process(void)
{
    char text[1024];
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    text[n > 0 ? n : 0] = '\0';
    const char *at = strrchr(text, ')'); /* the end of the second field, which may hold anything */
    for (int field = 2; at != NULL && field < 20; field++) {
        at = strchr(at + 1, ' ');
    }
    return at != NULL ? strtoul(at, NULL, 10) : 0;
}

bool hdi_thread_is_alone(void)
{
    unsigned long ended_before = atomic_load(&ended), begun_before = atomic_load(&begun);
    unsigned long all = threads_of_process();
    return all != 0 && all - 1 <= begun_before - ended_before && atomic_load(&begun) == begun_before &&
           atomic_load(&ended) == ended_before;
}

/* ---- staying loaded ---- */

static void keep_loaded(void)
{
    const char *object = hdi_self_object();
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
