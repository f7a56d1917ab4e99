/* copy_pool.c - the threads that help to copy (workers), their groups and jobs, and a copy function
 * that bypasses the caches.
 *
 * A transfer that wants workers puts a job into the pool's list. The job is a structure on the
 * stack of the transfer's own thread. A worker takes one turn at the job with the fewest workers,
 * and prefers jobs near its own memory node. After each turn, the worker chooses a job again. So
 * the workers divide themselves among the jobs. Each worker stays at one NUMA node that is near
 * devices. The workers of a node are a group, and each group gets its share of all workers.
 * An idle worker waits until the doorbell of its group changes.
 *
 * Stores that bypass the caches need not read the destination first, and leave the content of the
 * caches unchanged. Such stores write whole cache lines. Ordinary stores write the bytes in front
 * of the first whole line and behind the last one, and all bytes of small blocks. Processors
 * without such stores use memcpy. Builds with sanitizers use memcpy, too, since sanitizers do not
 * see these stores.
 *
 * Threads, locks, blocking: see copy_pool.h.
 * Always: a job is unlinked and without workers before its thread returns. `workers`, `away` and
 * `over` change under the pool's mutex. After a worker counts itself out of a job, it does not
 * touch the job.
 */
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/lock.h"
#include "base/thread.h"
#include "base/wait.h"
#include "transfer/copy_pool.h"
#include "transfer/part.h"

/* ---- past the caches ---- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif

#if defined(__SSE2__) && !defined(SANITIZED)
#include <emmintrin.h>

#define LINE 64
/* Smaller blocks are copied by ordinary stores. So they stay in a cache, where the next use may
 * find them. */
#define LEAST ((size_t)64 << 10)

static void copy_through_lines(unsigned char *dst, const unsigned char *src, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += LINE) {
        const __m128i *from = (const __m128i *)(const void *)(src + i);
        __m128i *to = (__m128i *)(void *)(dst + i);
        __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1);
        __m128i c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3);
        _mm_stream_si128(to, a);
        _mm_stream_si128(to + 1, b);
        _mm_stream_si128(to + 2, c);
        _mm_stream_si128(to + 3, d);
    }
    _mm_sfence(); /* without this instruction, another thread may see later stores before these */
}

void hdi_copy_through(void *dst, const void *src, size_t bytes)
{
    unsigned char *to = dst;
    const unsigned char *from = src;
    if (bytes < LEAST) {
        memcpy(to, from, bytes);
        return;
    }
    size_t head = -(uintptr_t)to % LINE;
    size_t lines = (bytes - head) / LINE * LINE;
    memcpy(to, from, head);
    copy_through_lines(to + head, from + head, lines);
    memcpy(to + head + lines, from + head + lines, bytes - head - lines);
}

#else

void hdi_copy_through(void *dst, const void *src, size_t bytes)
{
    memcpy(dst, src, bytes);
}

#endif

/* ---- the pool ---- */

#define NODE_ANY (-1)
#define NODE_UNREAD (-2)
#define CPUS_LEAST 4

typedef struct job {
    hdi_turn (*turn)(void *context, bool caller);
    void *context;
    size_t most;
    int node;
    /* The number of workers at the job now. The job's own thread reads this field without the
     * mutex. */
    _Atomic size_t workers;
    /* Set: the job wants no workers until its own thread clears this field. The job's own thread
     * reads the field without the mutex. */
    _Atomic bool away;
    bool over;
    struct job *next;
} job;

typedef struct group {
    int node;
    size_t workers, asleep;
    _Atomic uint32_t doorbell;
} group;

typedef struct worker {
    struct hdi_copy_pool *pool;
    pthread_t thread;
    group *group;
} worker;

struct hdi_copy_pool {
    hdi_mutex lock;
    pthread_cond_t left; /* signalled when the last worker leaves a job */
    job *jobs;           /* newest first */
    group groups[HDI_DEVICES_MAX];
    size_t n_groups; /* 0: not determined yet */
    size_t started;
    bool stop;
    bool own_known;
    /* The processors that the thread that opened the runtime was allowed to use. */
    hdi_cpus own;
    int64_t spin_ns;
    _Atomic size_t limit; /* the most workers, plus 1; 0: not determined yet */
    _Atomic int nodes[HDI_DEVICES_MAX];
    worker workers[HDI_COPY_POOL_MOST];
};

static hd_status copy_pool_create(hd_runtime *rt)
{
    struct hdi_copy_pool *pool = calloc(1, sizeof *pool);
    if (!pool) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    hdi_mutex_init(&pool->lock, HDI_RANK_COPY_POOL);
    pthread_cond_init(&pool->left, NULL);
    pool->own_known = hdi_cpus_own(&pool->own);
    pool->spin_ns = rt->spin_ns;
    for (int i = 0; i < HDI_DEVICES_MAX; i++) {
        atomic_store_explicit(&pool->nodes[i], NODE_UNREAD, memory_order_relaxed);
    }
    hdi_transfer_of(rt)->copy_pool = pool;
    return HD_OK;
}

static void copy_pool_stop(hd_runtime *rt)
{
    struct hdi_copy_pool *pool = hdi_transfer_of(rt)->copy_pool;
    if (!pool) {
        return;
    }
    hdi_mutex_lock(&pool->lock);
    pool->stop = true;
    for (size_t i = 0; i < pool->n_groups; i++) {
        atomic_fetch_add_explicit(&pool->groups[i].doorbell, 1, memory_order_relaxed);
    }
    hdi_mutex_unlock(&pool->lock);
    for (size_t i = 0; i < pool->n_groups; i++) {
        hdi_futex_wake(&pool->groups[i].doorbell, INT32_MAX);
    }
    for (size_t i = 0; i < pool->started; i++) {
        pthread_join(pool->workers[i].thread, NULL);
    }
    pthread_cond_destroy(&pool->left);
    hdi_mutex_destroy(&pool->lock);
    free(pool);
    hdi_transfer_of(rt)->copy_pool = NULL;
}

const hdi_lifetime hdi_copy_pool_lifetime = {.create = copy_pool_create, .stop = copy_pool_stop};

/* ---- how many workers, and where. Relaxed, since all threads compute the same values ---- */

static int copy_pool_node_of(hd_runtime *rt, int device)
{
    if (device < 0) {
        return NODE_ANY;
    }
    _Atomic int *known = &hdi_transfer_of(rt)->copy_pool->nodes[device];
    int node = atomic_load_explicit(known, memory_order_relaxed);
    if (node == NODE_UNREAD) {
        node = hdi_numa_node(rt->devices[device]->facts.bus_id);
        node = node < 0 ? NODE_ANY : node;
        atomic_store_explicit(known, node, memory_order_relaxed);
    }
    return node;
}

static size_t copy_pool_nodes_with_devices(hd_runtime *rt)
{
    size_t count = 0;
    for (int i = 0; i < rt->n_devices; i++) {
        bool seen = false;
        for (int j = 0; j < i; j++) {
            seen |= copy_pool_node_of(rt, j) == copy_pool_node_of(rt, i);
        }
        count += !seen;
    }
    return count;
}

/* The most workers that the whole pool may have. */
static size_t copy_pool_limit_of(hd_runtime *rt)
{
    size_t known = atomic_load_explicit(&hdi_transfer_of(rt)->copy_pool->limit, memory_order_relaxed);
    if (known == 0) {
        /* Some processors stay free for the engines and the program. A machine with few processors
         * gets no workers. */
        size_t share = hdi_cpu_count() >= CPUS_LEAST ? (size_t)hdi_cpu_count() * 5 / 8 : 0;
        size_t usual = HDI_COPY_POOL_USUAL * copy_pool_nodes_with_devices(rt);
        size_t most = rt->options.copy_threads >= 0 ? (size_t)rt->options.copy_threads : share < usual ? share : usual;
        most = rt->is_inline ? 0 : most; /* with placement inline Heddle starts no thread */
        known = 1 + (most < HDI_COPY_POOL_MOST ? most : HDI_COPY_POOL_MOST);
        atomic_store_explicit(&hdi_transfer_of(rt)->copy_pool->limit, known, memory_order_relaxed);
    }
    return known - 1;
}

size_t hdi_copy_pool_count(hd_runtime *rt)
{
    size_t limit = copy_pool_limit_of(rt);
    return rt->options.copy_threads >= 0 || limit < HDI_COPY_POOL_USUAL ? limit : HDI_COPY_POOL_USUAL;
}

size_t hdi_copy_pool_next_group(const size_t *workers, size_t groups, size_t wanted, size_t limit)
{
    if (wanted < groups && workers[wanted] < (limit + groups - 1) / groups) {
        return wanted;
    }
    size_t fewest = 0;
    for (size_t i = 1; i < groups; i++) {
        fewest = workers[i] < workers[fewest] ? i : fewest;
    }
    return fewest;
}

/* ---- workers; the caller holds the mutex unless stated otherwise ---- */

/* A measure of how many workers are at a job. The job with the lowest value gets the next worker.
 * If the job is near a node other than `node`, its workers count double. */
static size_t copy_pool_crowd(const job *j, int node)
{
    size_t workers = atomic_load_explicit(&j->workers, memory_order_relaxed);
    return j->node == node || j->node == NODE_ANY ? 2 * workers : 4 * workers + 1;
}

static job *copy_pool_pick_job(const struct hdi_copy_pool *pool, int node)
{
    job *best = NULL;
    for (job *j = pool->jobs; j; j = j->next) {
        bool wanted = !j->over && !atomic_load_explicit(&j->away, memory_order_relaxed) &&
                      atomic_load_explicit(&j->workers, memory_order_relaxed) < j->most;
        if (wanted && (!best || copy_pool_crowd(j, node) < copy_pool_crowd(best, node))) {
            best = j;
        }
    }
    return best;
}

static void copy_pool_take_turn(struct hdi_copy_pool *pool, job *j)
{
    atomic_fetch_add_explicit(&j->workers, 1, memory_order_relaxed);
    hdi_mutex_unlock(&pool->lock);
    hdi_turn turn = j->turn(j->context, false);
    hdi_mutex_lock(&pool->lock);
    j->over |= turn == HDI_TURN_OVER;
    if (turn == HDI_TURN_WAITS) {
        atomic_store_explicit(&j->away, true, memory_order_relaxed);
    }
    /* Pairs with the acquire load of the job's thread: the turn is finished before the job's thread
     * returns. */
    if (atomic_fetch_sub_explicit(&j->workers, 1, memory_order_release) == 1) {
        pthread_cond_broadcast(&pool->left);
    }
}

/* Keeps the worker on the processors of its group's node, as far as the process may use them. Call
 * this without the mutex. */
static void copy_pool_settle_worker(const worker *w)
{
    hdi_cpus near, both;
    if (w->pool->own_known && hdi_numa_cpus(w->group->node, &near) && hdi_cpus_common(&near, &w->pool->own, &both)) {
        hdi_cpus_stay(&both);
    } else if (w->pool->own_known) {
        /* Without this call, the worker could run only on the processors of the thread that started
         * it. */
        hdi_cpus_stay(&w->pool->own);
    }
    /* This thread accesses the program's memory. The program may handle accesses to its own pages
     * by signals. So this thread must not block these signals. */
    sigset_t memory;
    sigemptyset(&memory);
    sigaddset(&memory, SIGSEGV);
    sigaddset(&memory, SIGBUS);
    pthread_sigmask(SIG_UNBLOCK, &memory, NULL);
}

static void *copy_pool_run_worker(void *argument)
{
    const worker *w = argument;
    struct hdi_copy_pool *pool = w->pool;
    group *at = w->group;
    copy_pool_settle_worker(w);
    hdi_mutex_lock(&pool->lock);
    while (!pool->stop) {
        job *j = copy_pool_pick_job(pool, at->node);
        if (j) {
            copy_pool_take_turn(pool, j);
            continue;
        }
        uint32_t doorbell = atomic_load_explicit(&at->doorbell, memory_order_relaxed);
        at->asleep++;
        hdi_mutex_unlock(&pool->lock);
        hdi_futex_wait(&at->doorbell, doorbell, INT64_MAX);
        hdi_mutex_lock(&pool->lock);
        at->asleep--;
    }
    hdi_mutex_unlock(&pool->lock);
    return NULL;
}

/* The index of the group near the job. The result n_groups means that no group is near the job, or
 * that the job has no node. */
static size_t copy_pool_group_of(const struct hdi_copy_pool *pool, const job *j)
{
    size_t i = 0;
    while (i < pool->n_groups && pool->groups[i].node != j->node) {
        i++;
    }
    return i;
}

static void copy_pool_find_groups(hd_runtime *rt)
{
    struct hdi_copy_pool *pool = hdi_transfer_of(rt)->copy_pool;
    for (int i = 0; i < rt->n_devices; i++) {
        const job near = {.node = copy_pool_node_of(rt, i)};
        if (copy_pool_group_of(pool, &near) == pool->n_groups) {
            pool->groups[pool->n_groups++].node = near.node;
        }
    }
}

/* Starts workers until the job can get as many as it wants, or until the pool's limit is reached.
 * Workers start in the group near the job while that group has less than its share. */
static void copy_pool_start_workers(hd_runtime *rt, const job *j)
{
    struct hdi_copy_pool *pool = hdi_transfer_of(rt)->copy_pool;
    if (pool->n_groups == 0) {
        copy_pool_find_groups(rt);
    }
    size_t n_groups = pool->n_groups;
    size_t near = copy_pool_group_of(pool, j), idle = 0, workers[HDI_DEVICES_MAX];
    for (size_t i = 0; i < n_groups; i++) {
        idle += near == i || near == n_groups ? pool->groups[i].asleep : 0;
        workers[i] = pool->groups[i].workers;
    }
    for (; idle < j->most && pool->started < copy_pool_limit_of(rt); idle++) {
        size_t next = hdi_copy_pool_next_group(workers, n_groups, near, copy_pool_limit_of(rt));
        worker *w = &pool->workers[pool->started];
        *w = (worker){.pool = pool, .group = &pool->groups[next]};
        if (hdi_thread_start(&w->thread, copy_pool_run_worker, w)) {
            break; /* the next transfer tries again */
        }
        pool->started++;
        workers[next] = ++pool->groups[next].workers;
    }
}

/* For each group, the number of sleepers to wake. The caller wakes them after it released the
 * mutex. */
typedef struct call {
    int count[HDI_DEVICES_MAX];
} call;

/* Wakes as many sleepers as the job can use, those near it first. A worker that is about to sleep
 * sees that the doorbell changed. */
static void copy_pool_ring(struct hdi_copy_pool *pool, const job *j, size_t n_groups, call *c)
{
    size_t near = copy_pool_group_of(pool, j), left = j->most;
    for (size_t k = 0; k < n_groups; k++) {
        size_t i = (near + k) % n_groups;
        size_t n = left < pool->groups[i].asleep ? left : pool->groups[i].asleep;
        c->count[i] = (int)n;
        left -= n;
        if (n) {
            atomic_fetch_add_explicit(&pool->groups[i].doorbell, 1, memory_order_relaxed);
        }
    }
}

static void copy_pool_wake(struct hdi_copy_pool *pool, const call *c, size_t n_groups)
{
    for (size_t i = 0; i < n_groups; i++) {
        if (c->count[i]) {
            hdi_futex_wake(&pool->groups[i].doorbell, c->count[i]);
        }
    }
}

/* ---- the job's own thread ---- */

static void copy_pool_begin_job(hd_runtime *rt, job *j)
{
    struct hdi_copy_pool *pool = hdi_transfer_of(rt)->copy_pool;
    call c;
    hdi_mutex_lock(&pool->lock);
    j->next = pool->jobs;
    pool->jobs = j;
    /* Read this before copy_pool_start_workers, which may make groups. New groups contain no
     * sleepers yet. */
    size_t n_groups = pool->n_groups;
    copy_pool_ring(pool, j, n_groups, &c);
    copy_pool_start_workers(rt, j);
    hdi_mutex_unlock(&pool->lock);
    copy_pool_wake(pool, &c, n_groups);
}

static void copy_pool_call_back(struct hdi_copy_pool *pool, job *j)
{
    call c;
    hdi_mutex_lock(&pool->lock);
    atomic_store_explicit(&j->away, false, memory_order_relaxed);
    size_t n_groups = pool->n_groups;
    copy_pool_ring(pool, j, n_groups, &c);
    hdi_mutex_unlock(&pool->lock);
    copy_pool_wake(pool, &c, n_groups);
}

static size_t copy_pool_workers_at(const job *j)
{
    return atomic_load_explicit(&j->workers, memory_order_acquire);
}

/* Unlinks the job, so that no worker joins it any more. Then waits for the workers that are still
 * on it. */
static void copy_pool_end_job(struct hdi_copy_pool *pool, job *j)
{
    hdi_mutex_lock(&pool->lock);
    job **link = &pool->jobs;
    while (*link != j) {
        link = &(*link)->next;
    }
    *link = j->next;
    hdi_mutex_unlock(&pool->lock);
    int64_t spin_end = copy_pool_workers_at(j) ? hdi_clock_ns() + pool->spin_ns : 0;
    while (copy_pool_workers_at(j) && hdi_clock_ns() < spin_end) {
        hdi_spin_turn();
    }
    if (copy_pool_workers_at(j)) {
        hdi_mutex_lock(&pool->lock);
        while (copy_pool_workers_at(j)) {
            hdi_mutex_wait(&pool->lock, &pool->left);
        }
        hdi_mutex_unlock(&pool->lock);
    }
}

void hdi_copy_pool_share(hd_runtime *rt, int device, size_t most, hdi_turn (*turn)(void *context, bool caller),
                         void *context)
{
    size_t count = hdi_copy_pool_count(rt);
    most = most < count ? most : count;
    if (most == 0) {
        while (turn(context, true) != HDI_TURN_OVER) {
        }
        return;
    }
    job j = {.turn = turn, .context = context, .most = most, .node = copy_pool_node_of(rt, device)};
    copy_pool_begin_job(rt, &j);
    for (hdi_turn t; (t = turn(context, true)) != HDI_TURN_OVER;) {
        if (t == HDI_TURN_DID && atomic_load_explicit(&j.away, memory_order_relaxed)) {
            copy_pool_call_back(hdi_transfer_of(rt)->copy_pool, &j);
        }
    }
    copy_pool_end_job(hdi_transfer_of(rt)->copy_pool, &j);
}

typedef struct items {
    void (*work)(void *context, size_t item);
    void *context;
    _Atomic size_t next;
    size_t count;
} items;

static hdi_turn copy_pool_next_item(void *context, bool caller)
{
    items *all = context;
    (void)caller;
    size_t item = atomic_fetch_add_explicit(&all->next, 1, memory_order_relaxed);
    if (item >= all->count) {
        return HDI_TURN_OVER;
    }
    all->work(all->context, item);
    return HDI_TURN_DID;
}

void hdi_copy_pool_run(hd_runtime *rt, int device, size_t n_items, void (*work)(void *context, size_t item),
                       void *context)
{
    items all = {.work = work, .context = context, .count = n_items};
    if (n_items) {
        hdi_copy_pool_share(rt, device, n_items - 1, copy_pool_next_item, &all);
    }
}
