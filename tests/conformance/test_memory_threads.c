/* test_memory_threads.c - threads that allocate and free for themselves and for each other.
 *
 * Promise: Blocks keep their content across threads; others can use memory of an ended thread.
 *
 * Other threads end with memory in their magazines, or outlive their runtime, a device or their
 * process. For threads that work against each other, see test_memory_stale.c.
 *
 * Threads: up to 16.
 * Locks: those of queues and barriers.
 * Always: the owner of a buffer finds its content and its address unchanged.
 */
#include "owned.h"

/* ---- pairs ---- */

enum { PAIR_THREADS = 16, IN_HAND = 24 };

static void *pairs(void *argument)
{
    pool_thread *t = argument;
    hd_lane *lane = conf_default_lane(t->runtime, t->number % hd_device_count(t->runtime));
    owned hand[IN_HAND] = {{0}};
    int steps = CONF_TSAN ? 3000 : 20000;
    for (int i = 0; i < steps; i++) {
        owned *o = &hand[conf_below(&t->random, IN_HAND)];
        put_back(o);
        if (conf_chance(&t->random, 90)) {
            take(lane, o, pool_size(&t->random, 200 * POOL_KIB), (uint32_t)(t->number << 24) + (uint32_t)i);
        }
    }
    for (int i = 0; i < IN_HAND; i++) {
        put_back(&hand[i]);
    }
    return NULL;
}

static void each_for_itself(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=2 host_memory=256M memory_limit=192M");
    int counts[] = {1, 8, PAIR_THREADS};
    for (int i = 0; i < 3; i++) {
        pool_thread threads[PAIR_THREADS];
        pool_start(threads, counts[i], runtime, 11, pairs, NULL);
        pool_join(threads, counts[i]);
        for (int d = 0; d < hd_device_count(runtime); d++) {
            hd_memory_stats s = pool_stats(runtime, d);
            CONF_EQUAL(s.frees_elsewhere, 0);
            CONF_EQUAL(s.cached_bytes, 0); /* the threads ended */
            CONF_TRUE(d > 0 || s.from_magazine > s.allocations / 4);
            pool_gives_all_back(runtime, d);
        }
    }
    conf_close(runtime);
}

/* ---- across threads, devices ---- */

enum { QUEUES = 4, QUEUE = 256 };

typedef struct queue {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    owned items[QUEUE];
    int first, count;
    bool closed;
} queue;

static queue queues[QUEUES];

static void push(queue *q, owned o)
{
    pthread_mutex_lock(&q->lock);
    while (q->count == QUEUE) {
        pthread_cond_wait(&q->changed, &q->lock);
    }
    q->items[(q->first + q->count++) % QUEUE] = o;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
}

static bool pop(queue *q, owned *o)
{
    pthread_mutex_lock(&q->lock);
    while (q->count == 0 && !q->closed) {
        pthread_cond_wait(&q->changed, &q->lock);
    }
    bool got = q->count > 0;
    if (got) {
        *o = q->items[q->first];
        q->first = (q->first + 1) % QUEUE;
        q->count--;
        pthread_cond_broadcast(&q->changed);
    }
    pthread_mutex_unlock(&q->lock);
    return got;
}

static void *makes_for_others(void *argument)
{
    pool_thread *t = argument;
    int steps = CONF_TSAN ? 1500 : 6000;
    for (int i = 0; i < steps; i++) {
        hd_lane *lane =
            conf_default_lane(t->runtime, (int)conf_below(&t->random, (uint64_t)hd_device_count(t->runtime)));
        owned o;
        take(lane, &o, pool_size(&t->random, 100 * POOL_KIB), (uint32_t)(t->number << 24) + (uint32_t)i);
        push(&queues[conf_below(&t->random, QUEUES)], o);
    }
    return NULL;
}

static void *frees_for_others(void *argument)
{
    pool_thread *t = argument;
    owned o;
    while (pop(&queues[t->number % QUEUES], &o)) {
        put_back(&o);
    }
    return NULL;
}

/* Producers and consumers. Threads that free never allocate, so freed memory must find its way
 * back. */
static void across_threads(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=2 host_memory=256M memory_limit=64M memory_timeout=60000");
    memset(queues, 0, sizeof queues);
    for (int i = 0; i < QUEUES; i++) {
        pthread_mutex_init(&queues[i].lock, NULL);
        pthread_cond_init(&queues[i].changed, NULL);
    }
    pool_thread makers[6], takers[QUEUES * 2];
    pool_start(takers, QUEUES * 2, runtime, 1, frees_for_others, NULL);
    pool_start(makers, 6, runtime, 2, makes_for_others, NULL);
    pool_join(makers, 6);
    for (int i = 0; i < QUEUES; i++) {
        pthread_mutex_lock(&queues[i].lock);
        queues[i].closed = true;
        pthread_cond_broadcast(&queues[i].changed);
        pthread_mutex_unlock(&queues[i].lock);
    }
    pool_join(takers, QUEUES * 2);
    uint64_t elsewhere = 0, frees = 0;
    for (int d = 0; d < hd_device_count(runtime); d++) {
        hd_memory_stats s = pool_stats(runtime, d);
        elsewhere += s.frees_elsewhere;
        frees += s.frees;
        CONF_TRUE(s.reserved_peak_bytes <= 64 * POOL_MIB);
        pool_gives_all_back(runtime, d);
    }
    CONF_EQUAL(frees, 6 * (CONF_TSAN ? 1500 : 6000));
    CONF_EQUAL(elsewhere, frees);
    for (int i = 0; i < QUEUES; i++) {
        pthread_cond_destroy(&queues[i].changed);
        pthread_mutex_destroy(&queues[i].lock);
    }
    conf_close(runtime);
}

/* ---- caches of others ---- */

typedef struct guest {
    pthread_barrier_t barrier;
    bool ends;
} guest;

/* Fills magazines of its lane with blocks of several sizes, some of which work was using. */
static void *fills_magazines(void *argument)
{
    pool_thread *t = argument;
    guest *g = t->context;
    hd_lane *lane = conf_default_lane(t->runtime, 0);
    static const size_t sizes[] = {POOL_MIB, 700 * POOL_KIB, 512 * POOL_KIB, 100 * POOL_KIB, 256};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        hd_buffer *x[4];
        for (int j = 0; j < 4; j++) {
            CONF_OK(hd_alloc(lane, sizes[i], &x[j]));
            CONF_OK(hd_fill(x[j], 0, 1, 4, NULL));
            CONF_OK(hd_buffer_wait(x[j], HD_READ_WRITE, POOL_WAIT));
        }
        for (int j = 0; j < 4; j++) {
            hd_free(x[j]);
        }
    }
    if (!g->ends) {
        pthread_barrier_wait(&g->barrier);
        pthread_barrier_wait(&g->barrier);
    }
    return NULL;
}

/* Memory in the magazines of threads can be allocated as one block, after the threads ended or
 * while they sleep. */
static void can_be_had_by_others(void **state)
{
    (void)state;
    for (int ends = 0; ends < 2; ends++) {
        hd_runtime *runtime =
            conf_open("host_devices=1 host_memory=128M memory_limit=48M memory_timeout=60000 memory_idle=0");
        guest g = {.ends = ends != 0};
        pthread_barrier_init(&g.barrier, NULL, 5);
        pool_thread threads[4];
        pool_start(threads, 4, runtime, 1, fills_magazines, &g);
        if (g.ends) {
            pool_join(threads, 4);
            CONF_EQUAL(pool_stats(runtime, 0).cached_bytes, 0);
        } else {
            pthread_barrier_wait(&g.barrier);
            CONF_TRUE(pool_stats(runtime, 0).cached_bytes > 0);
        }
        hd_memory_stats s = pool_stats(runtime, 0);
        CONF_EQUAL(s.live_count, 0);
        hd_buffer *x = NULL;
        CONF_OK(hd_alloc(conf_default_lane(runtime, 0), 48 * POOL_MIB, &x));
        CONF_OK(hd_fill(x, 0, 3, 48 * POOL_MIB, NULL));
        CONF_FILLED(x, 0, 3, 48 * POOL_MIB);
        uint64_t drains = pool_stats(runtime, 0).drains;
        CONF_EQUAL(pool_stats(runtime, 0).cached_bytes, 0);
        hd_free(x);
        if (!g.ends) {
            pthread_barrier_wait(&g.barrier);
            pool_join(threads, 4);
        }
        pthread_barrier_destroy(&g.barrier);
        CONF_TRUE(g.ends || drains > s.drains);
        pool_gives_all_back(runtime, 0);
        conf_close(runtime);
    }
}

/* ---- runtimes and threads ---- */

typedef struct visitor {
    pthread_barrier_t barrier;
    hd_runtime *now; /* the open one; NULL: the test is over */
    int rounds;
} visitor;

static void some_pairs(hd_runtime *runtime, conf_random *r, uint32_t word)
{
    hd_lane *lane = conf_default_lane(runtime, 0);
    owned hand[8] = {{0}};
    CONF_TRUE(lane != NULL);
    for (int i = 0; i < 200; i++) {
        owned *o = &hand[conf_below(r, 8)];
        put_back(o);
        take(lane, o, pool_size(r, 300 * POOL_KIB), word + (uint32_t)i);
    }
    for (int i = 0; i < 7; i++) { /* hd_close frees the last one */
        put_back(&hand[i]);
    }
}

static void *outlives(void *argument)
{
    pool_thread *t = argument;
    visitor *v = t->context;
    for (;;) {
        pthread_barrier_wait(&v->barrier);
        if (v->now == NULL) {
            return NULL;
        }
        some_pairs(v->now, &t->random, (uint32_t)t->number << 24);
        /* and one of its own at the same time, which this thread or another one closes */
        if (t->number % 2 == 0) {
            hd_runtime *own = conf_open("host_devices=2");
            for (int i = 0; i < 3; i++) {
                some_pairs(own, &t->random, 5);
                some_pairs(v->now, &t->random, 6);
            }
            conf_close(own);
        }
        pthread_barrier_wait(&v->barrier);
        pthread_barrier_wait(&v->barrier); /* closed meanwhile, with this thread's magazines full */
    }
}

/* Runtimes are opened and closed. Threads that used them use the next one, and end after the last
 * one closes. */
static void runtimes_come_and_go(void **state)
{
    (void)state;
    enum { n = 6 };
    static visitor v;
    memset(&v, 0, sizeof v);
    pthread_barrier_init(&v.barrier, NULL, n + 1);
    pool_thread threads[n];
    pool_start(threads, n, NULL, 3, outlives, &v);
    for (int round = 0; round < (CONF_TSAN ? 4 : 15); round++) {
        v.now = conf_open("host_devices=2");
        pthread_barrier_wait(&v.barrier);
        pthread_barrier_wait(&v.barrier);
        hd_memory_stats s = pool_stats(v.now, 0);
        CONF_TRUE(s.live_count >= n);
        conf_close(v.now);
        pthread_barrier_wait(&v.barrier);
    }
    v.now = NULL;
    pthread_barrier_wait(&v.barrier);
    pool_join(threads, n);
    pthread_barrier_destroy(&v.barrier);
}

static void *uses_once(void *argument)
{
    pool_thread *t = argument;
    hd_runtime **both = t->context;
    for (int i = 0; i < 4; i++) {
        some_pairs(both[i % 2], &t->random, 7);
    }
    return NULL;
}

/* Threads end while their runtimes are open, with magazines of two of them. Either runtime is
 * closed first. */
static void threads_come_and_go(void **state)
{
    (void)state;
    for (int round = 0; round < 4; round++) {
        hd_runtime *both[2] = {conf_open("host_devices=2"), conf_open("host_devices=2")};
        for (int i = 0; i < (CONF_TSAN ? 2 : 6); i++) {
            pool_thread threads[8];
            pool_start(threads, 8, NULL, (uint64_t)i, uses_once, both);
            pool_join(threads, 8);
            CONF_EQUAL(pool_stats(both[0], 0).cached_bytes, 0);
        }
        conf_close(both[round % 2]);
        conf_random r = {9};
        some_pairs(both[1 - round % 2], &r, 8);
        conf_close(both[1 - round % 2]);
    }
}

/* ---- loss and fork ---- */

typedef struct losing {
    atomic_bool stop;
    atomic_uint good, lost; /* rounds that succeeded, and that the loss ended */
} losing;

/* Allocates, uses, frees. Only a loss may end these. A read without an error is right. */
static void *works_on_what_is_lost(void *argument)
{
    pool_thread *t = argument;
    losing *l = t->context;
    hd_lane *lane = NULL;
    uint32_t word = (uint32_t)(t->number + 1) << 24;
    while (!atomic_load(&l->stop)) {
        hd_buffer *hand[8] = {NULL};
        hd_status status = HD_OK;
        lane = conf_default_lane(t->runtime, 0);
        for (int i = 0; i < 8 && lane != NULL && status == HD_OK; i++) {
            status = hd_alloc(lane, i == 7 ? 2 * POOL_MIB : pool_size(&t->random, 60 * POOL_KIB), &hand[i]);
            uint32_t bytes = (uint32_t)hd_buffer_size(hand[i]) / 4 * 4;
            status = status == HD_OK && i % 2 == 0 ? hd_fill(hand[i], 0, word + (uint32_t)i, bytes, NULL) : status;
        }
        for (int i = 0; i < 8; i += 2) {
            uint32_t got[2] = {0};
            size_t bytes = hd_buffer_size(hand[i]) / 4 * 4;
            if (status == HD_OK && bytes >= 8) {
                status = hd_read(hand[i], bytes - 4, &got[0], 4);
                status = status == HD_OK ? hd_read(hand[i], 0, &got[1], 4) : status;
                CONF_TRUE(status != HD_OK || (got[0] == word + (uint32_t)i && got[1] == got[0]));
            }
        }
        if (status != HD_OK || lane == NULL) {
            hd_error error = {.size = sizeof error};
            hd_last_error(&error);
            if (error.status != HD_ERROR_DEVICE_LOST && error.status != HD_ERROR_FAILED &&
                error.status != HD_ERROR_LANE_FAILED) {
                conf_fail_at(__FILE__, __LINE__, "%s: %s", hd_status_name(error.status), error.message);
            }
            atomic_fetch_add(&l->lost, 1);
            conf_sleep_ms(1);
        } else {
            atomic_fetch_add(&l->good, 1);
        }
        for (int i = 0; i < 8; i++) {
            hd_free(hand[i]);
        }
        word += 8;
    }
    return NULL;
}

/* A device is lost and restarted, several times, while threads allocate and free there. Afterwards
 * magazines return no older memory, and no newer memory is lost. */
static void a_device_is_lost_meanwhile(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=1 host_memory=128M memory_limit=64M");
    if (!conf_is_process(runtime)) {
        conf_close(runtime);
        skip();
    }
    losing l = {.stop = false};
    pool_thread threads[5];
    pool_start(threads, 5, runtime, 21, works_on_what_is_lost, &l);
    for (int round = 0; round < (CONF_SLOWNESS > 1 ? 3 : 12); round++) {
        unsigned good = atomic_load(&l.good);
        while (atomic_load(&l.good) < good + 20) {
            conf_sleep_ms(1);
        }
        unsigned lost = atomic_load(&l.lost);
        hd_device_info info = {.size = sizeof info};
        CONF_OK(hd_device_get_info(runtime, 0, &info));
        CONF_EQUAL(kill(info.worker_pid, SIGKILL), 0);
        while (!info.lost) {
            conf_sleep_ms(1);
            CONF_OK(hd_device_get_info(runtime, 0, &info));
        }
        while (round % 2 == 0 && atomic_load(&l.lost) == lost) {
            conf_sleep_ms(1); /* until one of them notices it */
        }
        CONF_OK(hd_device_restart(runtime, 0));
    }
    unsigned good = atomic_load(&l.good);
    while (atomic_load(&l.good) < good + 50) {
        conf_sleep_ms(1);
    }
    atomic_store(&l.stop, true);
    pool_join(threads, 5);
    fprintf(stderr, "  %u rounds went well, %u were ended by a loss\n", atomic_load(&l.good), atomic_load(&l.lost));
    CONF_TRUE(atomic_load(&l.lost) > 0);
    pool_gives_all_back(runtime, 0);
    conf_close(runtime);
}

/* A forked child refuses all handles of the parent, and does not use the thread's magazines. Its
 * own runtime works. */
static void a_forked_child_starts_afresh(void **state)
{
    (void)state;
    if (CONF_TSAN) {
        skip(); /* it supports no threads in a child of a process with threads */
    }
    hd_runtime *runtime = conf_open("host_devices=1 host_memory=128M");
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *x = NULL, *cached = NULL;
    CONF_OK(hd_alloc(lane, 5000, &x));
    CONF_OK(hd_alloc(lane, 5000, &cached));
    CONF_OK(hd_fill(x, 0, 12, 5000, NULL));
    hd_free(cached);
    bool may_open = conf_is_process(runtime);
    fflush(NULL);
    pid_t child = fork();
    CONF_TRUE(child >= 0);
    if (child == 0) {
        hd_buffer *y = NULL;
        hd_memory_stats s = {.size = sizeof s};
        bool refused = hd_alloc(lane, 5000, &y) == HD_ERROR_HANDLE && y == NULL &&
                       hd_fill(x, 0, 1, 4, NULL) == HD_ERROR_HANDLE &&
                       hd_memory_get_stats(runtime, 0, &s) == HD_ERROR_HANDLE &&
                       hd_memory_trim(runtime, 0, 0, NULL) == HD_ERROR_HANDLE;
        hd_free(x);
        hd_runtime *own = NULL;
        bool works = true;
        if (may_open) {
            uint32_t word = 0;
            works = hd_open(NULL, &own) == HD_OK;
            for (uint32_t i = 0; works && i < 50; i++) {
                works = hd_alloc(conf_default_lane(own, 0), 5000, &y) == HD_OK &&
                        hd_fill(y, 0, i, 5000, NULL) == HD_OK && hd_read(y, 4996, &word, 4) == HD_OK && word == i;
                hd_free(y);
            }
            hd_close(own);
        }
        _exit(!refused ? 2 : !works ? 3 : 0);
    }
    int status = -1;
    CONF_TRUE(waitpid(child, &status, 0) == child);
    CONF_EQUAL(status, 0);
    CONF_FILLED(x, 0, 12, 5000);
    hd_free(x);
    CONF_EQUAL(pool_stats(runtime, 0).frees, 2);
    pool_gives_all_back(runtime, 0);
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_memory_threads");
    const struct CMUnitTest tests[] = {
        CONF_CASE(each_for_itself),
        CONF_CASE(across_threads),
        CONF_CASE(can_be_had_by_others),
        CONF_CASE(runtimes_come_and_go),
        CONF_CASE(threads_come_and_go),
        CONF_CASE(a_device_is_lost_meanwhile),
        CONF_CASE(a_forked_child_starts_afresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
