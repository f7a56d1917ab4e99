/* submit_rows.c - one sample of a row: threads that submit bursts, and beside them, in some rows, one that launches and waits.
 *
 * Threads: the conductor's, which only waits, and those of the sample, each with a way of its own. They begin together, when all ways are open.
 * Locks: the gate's.
 * Always: when a sample has ended, so have its threads, all that they launched is finished, and counted.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "bench/submit_parts.h"

enum { WARM_BURSTS = 16, EVICT_BYTES = 32 << 20, LINE = 64, TRIPS_LEAST = 20 };

typedef struct sample {
    submit_experiment *x;
    const submit_row *row;
    submit_api api;
    pthread_mutex_t lock; /* of the gate */
    pthread_cond_t moved;
    int ready; /* threads that stand at it */
    bool bad;  /* one of them cannot begin */
    enum { SHUT, OPEN, GIVEN_UP } gate;
    _Atomic bool stop;
} sample;

typedef struct worker {
    sample *s;
    bool trips;    /* the bystander */
    bool measured; /* its calls are those of the row */
    submit_way way;
    unsigned char *evict; /* cold: memory that is walked between bursts */
    uint64_t launches, elapsed_ns;
    stats_histogram calls;
    bool failed;
    char error[PLAIN_ERROR];
} worker;

/* Puts other memory into the caches. */
static void evict(worker *w)
{
    for (size_t i = 0; i < EVICT_BYTES; i += LINE) {
        w->evict[i]++;
    }
}

/* A launch whose call is measured. */
static bool submit(worker *w, int lane)
{
    uint64_t tick = stats_tick_begin();
    bool ok = submit_way_launch(&w->way, lane, w->error);
    stats_record(&w->calls, stats_tick_end() - tick);
    return ok;
}

static bool trip(worker *w)
{
    uint64_t tick = stats_tick_begin();
    bool ok = submit_way_launch(&w->way, 0, w->error) && submit_way_wait(&w->way, 0, w->error);
    stats_record(&w->calls, stats_tick_end() - tick);
    return ok;
}

/* As many launches as a burst has, lane after lane; one in each where they are to be cold. */
static bool burst(worker *w)
{
    bool ok = true;
    int lanes = w->way.lanes, count = w->evict ? lanes : SUBMIT_BURST;
    if (w->evict) {
        evict(w);
    }
    for (int i = 0; ok && i < count; i++) {
        ok = submit(w, i * lanes / count);
    }
    for (int i = 0; ok && i < lanes; i++) {
        ok = submit_way_wait(&w->way, i, w->error);
    }
    w->launches += (uint64_t)count;
    return ok;
}

static bool run(worker *w)
{
    sample *s = w->s;
    uint64_t begin = stats_monotonic(), end = begin + s->x->sample_ns, now = begin;
    bool ok = true, with_bystander = s->row->bystander;
    uint64_t done = 0;
    do {
        ok = w->trips ? trip(w) : burst(w);
        done++;
        now = stats_monotonic();
    } while (ok && (w->trips || !with_bystander ? now < end || (w->trips && done < TRIPS_LEAST)
                                                : !atomic_load_explicit(&s->stop, memory_order_relaxed)));
    w->elapsed_ns = now - begin;
    return ok;
}

/* Long enough for either side to have all that it makes at first. */
static bool warm_up(worker *w)
{
    bool ok = true;
    for (int b = 0; ok && b < WARM_BURSTS; b++) {
        for (int i = 0; ok && i < w->way.lanes; i++) {
            for (int j = 0; ok && j < SUBMIT_BURST; j++) {
                ok = submit_way_launch(&w->way, i, w->error);
            }
            ok = ok && submit_way_wait(&w->way, i, w->error);
        }
    }
    return ok;
}

/* Waits until all threads are there. False: no thread is to begin. */
static bool pass_gate(sample *s, bool ready)
{
    pthread_mutex_lock(&s->lock);
    s->ready++;
    s->bad |= !ready;
    pthread_cond_broadcast(&s->moved);
    while (s->gate == SHUT) {
        pthread_cond_wait(&s->moved, &s->lock);
    }
    bool open = s->gate == OPEN;
    pthread_mutex_unlock(&s->lock);
    return open;
}

/* When `count` threads stand there. `all`: these are all that are wanted. */
static void open_gate(sample *s, int count, bool all)
{
    pthread_mutex_lock(&s->lock);
    while (s->ready < count) {
        pthread_cond_wait(&s->moved, &s->lock);
    }
    s->gate = all && !s->bad ? OPEN : GIVEN_UP;
    pthread_cond_broadcast(&s->moved);
    pthread_mutex_unlock(&s->lock);
}

static void *work(void *argument)
{
    worker *w = argument;
    sample *s = w->s;
    bool opened = submit_way_open(&w->way, w->error);
    bool ok = opened && warm_up(w);
    if (pass_gate(s, ok)) {
        ok = run(w);
        if (w->trips) {
            /* not behind the check: beside threads that still submit, a copy takes the driver seconds */
            atomic_store(&s->stop, true);
        }
        ok = ok && submit_way_check(&w->way, w->error);
    }
    w->failed = !ok;
    if (opened) {
        submit_way_close(&w->way);
    }
    return NULL;
}

static bool start(sample *s, worker *workers, int count, char *error)
{
    pthread_t threads[SUBMIT_THREADS_MAX + 1];
    int started = 0;
    while (started < count && pthread_create(&threads[started], NULL, work, &workers[started]) == 0) {
        started++;
    }
    open_gate(s, started, started == count);
    for (int i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
    }
    if (started < count) {
        snprintf(error, PLAIN_ERROR, "only %d of %d threads could be started", started, count);
    }
    return started == count;
}

static bool collect(sample *s, const worker *workers, int count, char *error)
{
    submit_experiment *x = s->x;
    uint64_t launches = 0, longest = 1;
    memset(&x->sample, 0, sizeof(x->sample));
    for (int i = 0; i < count; i++) {
        const worker *w = &workers[i];
        if (w->failed) {
            snprintf(error, PLAIN_ERROR, "%s", w->error);
            return false;
        }
        if (w->measured) {
            stats_merge(&x->sample.calls, &w->calls);
        }
        if (!w->trips) {
            launches += w->launches;
            longest = w->elapsed_ns > longest ? w->elapsed_ns : longest;
        }
        x->launches += w->trips ? w->calls.count : w->launches;
    }
    x->sample.launches_per_s = (double)launches / (double)longest * 1e9;
    return true;
}

static bool prepare(sample *s, worker *workers, int count, char *error)
{
    const submit_row *row = s->row;
    for (int i = 0; i < count; i++) {
        worker *w = &workers[i];
        w->s = s;
        w->trips = i == row->threads;
        w->measured = w->trips == row->bystander;
        w->way.x = s->x;
        w->way.api = s->api;
        w->way.device = row->all_devices ? i % s->x->n : 0;
        w->way.spread = row->all_devices && row->threads == 1;
        w->way.lanes = row->cold ? SUBMIT_COLD_LANES : w->way.spread ? s->x->n : 1;
        w->way.written = row->written;
        w->way.same = row->same;
        w->evict = row->cold ? calloc(1, EVICT_BYTES) : NULL;
        if (row->cold && !w->evict) {
            snprintf(error, PLAIN_ERROR, "out of memory");
            return false;
        }
    }
    return true;
}

bool submit_row_run(submit_experiment *x, const submit_row *row, submit_api api, char *error)
{
    sample s = {.x = x, .row = row, .api = api, .lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};
    int count = row->threads + row->bystander;
    worker *workers = calloc((size_t)count, sizeof(*workers));
    if (!workers) {
        snprintf(error, PLAIN_ERROR, "out of memory");
        return false;
    }
    bool ok =
        prepare(&s, workers, count, error) && start(&s, workers, count, error) && collect(&s, workers, count, error);
    for (int i = 0; i < count; i++) {
        free(workers[i].evict);
    }
    free(workers);
    pthread_cond_destroy(&s.moved);
    pthread_mutex_destroy(&s.lock);
    return ok;
}
