/* stream_pool.c - CUDA streams that hd_open makes ahead, for all runtimes of a process.
 *
 * Now and then cuStreamCreate waits for all kernels that run on the device. So the first runtime
 * that uses a context makes streams before any of its kernels runs. Lanes of this runtime, and of
 * runtimes that are opened later, take these streams and put them back.
 *
 * Threads: any.
 * Locks: `lock` guards the list of pools. A thread that holds it makes no call of the driver.
 * Always: a stream in a pool has no work, and its context works as far as Heddle knows.
 */
#include "engine/stream_pool.h"
#include <pthread.h>
#include <stdlib.h>
#include "base/lock.h"

#define STREAMS_MOST 256

typedef struct stream_pool {
    struct stream_pool *next;
    const hdi_driver *driver;
    hdcu_context context;
    uint32_t users; /* the number of engines that use the pool */
    bool dead;      /* the context failed */
    uint32_t n;
    hdcu_stream streams[STREAMS_MOST];
} stream_pool;

static stream_pool *stream_pools;
static hdi_mutex lock = HDI_MUTEX_INIT(STREAM_POOL);

static void stream_pools_before_fork(void)
{
    hdi_mutex_lock_at_fork(&lock);
}

static void stream_pools_in_parent(void)
{
    hdi_mutex_unlock(&lock);
}

/* The child must not use streams of the parent. Their memory stays where it is. */
static void stream_pools_in_child(void)
{
    stream_pools = NULL;
    hdi_mutex_unlock(&lock);
}

static void stream_pools_guard_forks(void)
{
    pthread_atfork(stream_pools_before_fork, stream_pools_in_parent, stream_pools_in_child);
}

/* Returns the link to the pool of the device's context, or the last link. The lock is held. */
static stream_pool **stream_pool_find(const hdi_device *device)
{
    stream_pool **link = &stream_pools;
    while (*link && ((*link)->context != device->context || (*link)->driver != device->runtime->driver)) {
        link = &(*link)->next;
    }
    return link;
}

/* Adds the streams to the pool. Returns the number of streams that fitted into the pool. */
static uint32_t stream_pool_add(const hdi_device *device, const hdcu_stream streams[], uint32_t n)
{
    uint32_t added = 0;
    hdi_mutex_lock(&lock);
    stream_pool *pool = *stream_pool_find(device);
    while (pool && !pool->dead && added < n && pool->n < STREAMS_MOST) {
        pool->streams[pool->n++] = streams[added++];
    }
    hdi_mutex_unlock(&lock);
    return added;
}

void hdi_stream_pool_join(hdi_device *device, bool usable)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, stream_pools_guard_forks);
    const hdi_driver *driver = device->runtime->driver;
    stream_pool *made = calloc(1, sizeof *made);
    hdi_mutex_lock(&lock);
    stream_pool **link = stream_pool_find(device);
    bool first = !*link && made;
    if (first) {
        made->driver = driver;
        made->context = device->context;
        *link = made;
    }
    if (*link) {
        (*link)->users++;
    }
    hdi_mutex_unlock(&lock);
    if (!first) {
        free(made);
        return;
    }
    hdcu_stream streams[STREAMS_MOST];
    uint32_t n = 0, most = usable ? device->runtime->provider->streams_ahead : 0;
    while (n < most && n < STREAMS_MOST &&
           driver->cuStreamCreate(&streams[n], HDCU_STREAM_NON_BLOCKING) == HDCU_SUCCESS) {
        n++;
    }
    stream_pool_add(device, streams, n);
}

hdcu_result hdi_stream_pool_take(const hdi_device *device, hdcu_stream *out)
{
    *out = NULL;
    hdi_mutex_lock(&lock);
    stream_pool *pool = *stream_pool_find(device);
    if (pool && !pool->dead && pool->n > 0) {
        *out = pool->streams[--pool->n];
    }
    hdi_mutex_unlock(&lock);
    return *out ? HDCU_SUCCESS : device->runtime->driver->cuStreamCreate(out, HDCU_STREAM_NON_BLOCKING);
}

void hdi_stream_pool_put(const hdi_device *device, hdcu_stream stream, bool usable)
{
    if (stream && usable && (hdi_device_lost(device) || stream_pool_add(device, &stream, 1) == 0)) {
        device->runtime->driver->cuStreamDestroy(stream);
    }
}

void hdi_stream_pool_leave(hdi_device *device, bool usable)
{
    stream_pool *pool, *last = NULL;
    hdi_mutex_lock(&lock);
    stream_pool **link = stream_pool_find(device);
    pool = *link;
    if (pool && (!usable || hdi_device_lost(device))) {
        pool->dead = true;
    }
    if (pool && --pool->users == 0) {
        *link = pool->next;
        last = pool;
    }
    hdi_mutex_unlock(&lock);
    for (uint32_t i = 0; last && usable && i < last->n; i++) {
        device->runtime->driver->cuStreamDestroy(last->streams[i]);
    }
    free(last);
}
