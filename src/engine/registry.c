/* registry.c - which runtimes are open, so that a null or closed runtime is refused and a thread that ends can give its lanes back.
 *
 * Threads: any. Locks: one process-wide mutex, held for a walk over a short list, and across fork(). Always: in a child made by
 * fork() no runtime is open that its parent opened.
 */
#include "engine/engine.h"

#include "base/error.h"

#define RUNTIMES_MAX 256

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static hd_runtime *open_runtimes[RUNTIMES_MAX];
static uint64_t next_id = 1;

/* The list is not being changed while the process is copied, and the copy has no runtimes. */
static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
    for (int i = 0; i < RUNTIMES_MAX; i++) {
        if (open_runtimes[i]) {
            hdi_handle_close(&open_runtimes[i]->head);
            open_runtimes[i] = NULL;
        }
    }
    pthread_mutex_unlock(&lock);
}

static void guard_forks(void)
{
    pthread_atfork(before_fork, in_parent, in_child);
}

bool hdi_runtime_is_open(const hd_runtime *rt)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; rt && !found && i < RUNTIMES_MAX; i++) {
        found = open_runtimes[i] == rt;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

hd_status hdi_runtime_add(hd_runtime *rt)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, guard_forks);
    hd_status status = HD_ERROR_LIMIT;
    pthread_mutex_lock(&lock);
    for (int i = 0; status && i < RUNTIMES_MAX; i++) {
        if (!open_runtimes[i]) {
            rt->id = next_id++;
            hdi_handle_set(&rt->head, HDI_RUNTIME_MAGIC, HDI_HANDLE_FIRST, HDI_HANDLE_LIVE);
            open_runtimes[i] = rt;
            status = HD_OK;
        }
    }
    pthread_mutex_unlock(&lock);
    return status ? hdi_fail(status, "hd_open: %d runtimes are open already", RUNTIMES_MAX) : HD_OK;
}

bool hdi_runtime_remove(hd_runtime *rt)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; rt && i < RUNTIMES_MAX; i++) {
        if (open_runtimes[i] == rt) {
            hdi_handle_close(&rt->head);
            open_runtimes[i] = NULL;
            found = true;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

bool hdi_runtime_with(uint64_t id, void (*visit)(hd_runtime *, void *), void *context)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; !found && i < RUNTIMES_MAX; i++) {
        if (open_runtimes[i] && open_runtimes[i]->id == id) {
            found = true;
            visit(open_runtimes[i], context);
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}
