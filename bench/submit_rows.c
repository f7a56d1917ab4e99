/* submit_rows.c - measurements of `heddle bench submit`: one sample of a row, and the travel time
 * of a cache line between processors.
 *
 * In every row some threads submit bursts. In some rows another thread launches and waits. A thread
 * has a way to a device: a few lanes of Heddle, or streams of the driver. Each lane or stream has a
 * counter in memory. Both sides launch the same kernel with the same grid and arguments. The kernel
 * adds one to a counter, so a lost or repeated launch shows. The cost of a submit is also expressed
 * in travel times of a cache line, because a command must travel to the engine.
 *
 * Threads: the conductor, which only waits, and those of the sample, each with its own way. They
 * begin together, when all ways are open. The travel time is measured by the conductor and another
 * thread, each on its own processor.
 * Locks: the gate's lock.
 * Always:
 *   - When a sample ends, its threads ended, and all their launches are finished and counted.
 *   - Afterwards the conductor's thread may run on the same processors as before.
 */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "bench/submit_parts.h"

/* ---- processors ---- */

enum { PAIRS = 9, WARM = 1000, TURNS = 20000 };

typedef struct ball {
    _Alignas(64) _Atomic uint32_t turn; /* even: the conductor's turn */
    _Alignas(64) int processor;
} ball;

static bool bench_stay_on(int processor)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)processor, &set);
    return sched_setaffinity(0, sizeof(set), &set) == 0;
}

/* Plays every second turn, from turn `from` to turn `end`. */
static void bench_play(ball *b, uint32_t from, uint32_t end)
{
    for (uint32_t i = from; i < end; i += 2) {
        while (atomic_load_explicit(&b->turn, memory_order_acquire) != i) {
        }
        atomic_store_explicit(&b->turn, i + 1, memory_order_release);
    }
}

static void *bench_other_side(void *argument)
{
    ball *b = argument;
    bench_stay_on(b->processor);
    bench_play(b, 1, WARM + TURNS);
    return NULL;
}

/* The travel time in nanoseconds; NaN: it could not be measured. */
static double bench_one_way(int here, int there)
{
    ball b = {.processor = there};
    pthread_t thread;
    if (!bench_stay_on(here) || pthread_create(&thread, NULL, bench_other_side, &b) != 0) {
        return NAN;
    }
    bench_play(&b, 0, WARM);
    uint64_t begin = cli_stats_monotonic();
    bench_play(&b, WARM, WARM + TURNS);
    double ns = (double)(cli_stats_monotonic() - begin);
    pthread_join(thread, NULL);
    return ns / TURNS;
}

void bench_submit_cores_measure(submit_experiment *x)
{
    cpu_set_t before;
    int processors[CPU_SETSIZE], n = 0, pairs = 0;
    double ns[PAIRS];
    x->one_way_ns = x->one_way_least_ns = x->one_way_most_ns = NAN;
    if (sched_getaffinity(0, sizeof(before), &before) != 0) {
        return;
    }
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET((size_t)i, &before)) {
            processors[n++] = i;
        }
    }
    /* pairs the first processor with near and far ones, also outside its own core */
    for (int i = 1; i <= PAIRS && n > 1; i++) {
        int other = n - 1 < PAIRS ? i : 1 + (i - 1) * (n - 2) / (PAIRS - 1);
        double measured = other < n ? bench_one_way(processors[0], processors[other]) : NAN;
        if (!isnan(measured)) {
            ns[pairs++] = measured;
        }
    }
    sched_setaffinity(0, sizeof(before), &before);
    if (pairs) {
        stats_spread s = cli_stats_spread_of(ns, pairs);
        x->one_way_ns = s.median;
        x->one_way_least_ns = s.min;
        x->one_way_most_ns = s.max;
    }
    x->one_way_pairs = pairs;
}

/* ---- a thread's way to a device ---- */

typedef struct submit_way {
    /* set before the way is opened */
    submit_experiment *x;
    submit_api api;
    int device, lanes;
    bool spread;        /* lane i uses device i instead of `device` */
    bool written, same; /* as in the row */

    uint64_t launched[SUBMIT_LANES_MAX];
    /* Heddle */
    hd_lane *lane[SUBMIT_LANES_MAX];
    hd_buffer *count[SUBMIT_LANES_MAX], *one[SUBMIT_LANES_MAX];
    hd_arg arguments[SUBMIT_LANES_MAX][4];
    hd_ticket last[SUBMIT_LANES_MAX];
    /* driver */
    int current; /* the device whose context is current on the thread; -1: none */
    hdcu_stream stream[SUBMIT_LANES_MAX];
    hdcu_deviceptr memory[SUBMIT_LANES_MAX], memory_of_one[SUBMIT_LANES_MAX];
    float a;
    uint64_t n;
    void *parameters[SUBMIT_LANES_MAX][4];
} submit_way;

enum { BYTES = 64 };

static const hd_dims one_block = {1, 1, 1}, one_warp = {32, 1, 1};
static const uint32_t one_bits = 0x3f800000; /* bits of 1.0f */

/* Makes a buffer of one word with this value. */
static bool bench_make_buffer(hd_lane *lane, uint32_t value, bool written, hd_buffer **out, char *error)
{
    uint32_t words[BYTES / 4];
    for (int i = 0; i < BYTES / 4; i++) {
        words[i] = value;
    }
    return cli_report_check(hd_alloc(lane, BYTES, out), "hd_alloc", error) &&
           (written ? cli_report_check(hd_write(*out, 0, words, BYTES), "hd_write", error)
                    : cli_report_check(hd_fill(*out, 0, value, BYTES, NULL), "hd_fill", error));
}

static int bench_device_of(const submit_way *w, int lane)
{
    return w->spread ? lane : w->device;
}

static bool bench_open_heddle(submit_way *w, int i, char *error)
{
    if (!cli_report_check(hd_lane_create(w->x->runtime, bench_device_of(w, i), &w->lane[i]), "hd_lane_create", error) ||
        !bench_make_buffer(w->lane[i], one_bits, false, &w->one[i], error) ||
        !bench_make_buffer(w->lane[i], 0, w->written, &w->count[i], error)) {
        return false;
    }
    w->arguments[i][0] = hd_inout(w->count[i]);
    w->arguments[i][1] = hd_in(w->one[i]);
    w->arguments[i][2] = hd_f32(w->a);
    w->arguments[i][3] = hd_u64(w->n);
    return true;
}

static bool bench_make_memory(submit_way *w, uint32_t value, bool written, hdcu_stream stream, hdcu_deviceptr *out,
                              char *error)
{
    const plain_driver *d = &w->x->driver;
    uint32_t words[BYTES / 4];
    for (int i = 0; i < BYTES / 4; i++) {
        words[i] = value;
    }
    return PLAIN_TRY(d, error, cuMemAlloc, (out, BYTES)) &&
           (written ? PLAIN_TRY(d, error, cuMemcpyHtoD, (*out, words, BYTES))
                    : PLAIN_TRY(d, error, cuMemsetD32Async, (*out, value, BYTES / 4, stream)) &&
                          PLAIN_TRY(d, error, cuStreamSynchronize, (stream)));
}

/* Makes the context of a lane's device current if it is not. */
static bool bench_enter(submit_way *w, int lane, char *error)
{
    int device = bench_device_of(w, lane);
    if (device == w->current) {
        return true;
    }
    w->current = device;
    return PLAIN_TRY(&w->x->driver, error, cuCtxSetCurrent, (w->x->context[device]));
}

static bool bench_open_driver(submit_way *w, int i, char *error)
{
    const plain_driver *d = &w->x->driver;
    if (!bench_enter(w, i, error) || !PLAIN_TRY(d, error, cuStreamCreate, (&w->stream[i], HDCU_STREAM_NON_BLOCKING)) ||
        !bench_make_memory(w, one_bits, false, w->stream[i], &w->memory_of_one[i], error) ||
        !bench_make_memory(w, 0, w->written, w->stream[i], &w->memory[i], error)) {
        return false;
    }
    w->parameters[i][0] = &w->memory[i];
    w->parameters[i][1] = &w->memory_of_one[i];
    w->parameters[i][2] = &w->a;
    w->parameters[i][3] = &w->n;
    return true;
}

static void bench_close_driver(submit_way *w, int i)
{
    char ignored[PLAIN_ERROR];
    const plain_driver *d = &w->x->driver;
    if (!w->stream[i] || !bench_enter(w, i, ignored)) {
        return;
    }
    d->cuStreamDestroy(w->stream[i]);
    if (w->memory[i]) {
        d->cuMemFree(w->memory[i]);
    }
    if (w->memory_of_one[i]) {
        d->cuMemFree(w->memory_of_one[i]);
    }
}

static void bench_submit_way_close(submit_way *w)
{
    for (int i = 0; i < w->lanes; i++) {
        hd_free(w->count[i]);
        hd_free(w->one[i]);
        if (w->lane[i]) {
            hd_lane_destroy(w->lane[i]);
        }
        bench_close_driver(w, i);
    }
}

/* Call all of these on the thread that uses the way; for the driver they make contexts current
 * there. A way that fails to open is closed. */
static bool bench_submit_way_open(submit_way *w, char *error)
{
    bool ok = true;
    w->a = 1;
    w->n = 1;
    w->current = -1;
    for (int i = 0; ok && i < w->lanes; i++) {
        ok = w->api == SUBMIT_HEDDLE ? bench_open_heddle(w, i, error) : bench_open_driver(w, i, error);
    }
    if (!ok) {
        bench_submit_way_close(w);
    }
    return ok;
}

/* _launch: one launch, which counts one. _wait: waits for all launches of a lane, then compares
 * the counts with the launches. */
static bool bench_submit_way_launch(submit_way *w, int lane, char *error)
{
    w->launched[lane]++;
    if (!w->same) {
        w->n = w->arguments[lane][3].value.u64 = 1 + w->launched[lane] % SUBMIT_VARIANTS;
    }
    if (w->api == SUBMIT_HEDDLE) {
        hd_status status =
            hd_launch(w->lane[lane], w->x->kernel, one_block, one_warp, 0, w->arguments[lane], 4, &w->last[lane]);
        return status == HD_OK || cli_report_check(status, "hd_launch", error);
    }
    if (!bench_enter(w, lane, error)) {
        return false;
    }
    hdcu_result result = w->x->driver.cuLaunchKernel(w->x->function[w->current], 1, 1, 1, 32, 1, 1, 0, w->stream[lane],
                                                     w->parameters[lane], NULL);
    return result == HDCU_SUCCESS || cli_plain_check(&w->x->driver, result, "cuLaunchKernel", error);
}

static bool bench_submit_way_wait(submit_way *w, int lane, char *error)
{
    if (w->api == SUBMIT_HEDDLE) {
        hd_status status = hd_wait(w->last[lane], SUBMIT_TIMEOUT_NS);
        return status == HD_OK || cli_report_check(status, "hd_wait", error);
    }
    if (!bench_enter(w, lane, error)) {
        return false;
    }
    hdcu_result result = w->x->driver.cuStreamSynchronize(w->stream[lane]);
    return result == HDCU_SUCCESS || cli_plain_check(&w->x->driver, result, "cuStreamSynchronize", error);
}

/* Reads the counter of a lane's kernels. */
static bool bench_read_count(submit_way *w, int lane, float *out, char *error)
{
    if (w->api == SUBMIT_HEDDLE) {
        return cli_report_check(hd_read(w->count[lane], 0, out, sizeof(*out)), "hd_read", error);
    }
    return bench_enter(w, lane, error) &&
           PLAIN_TRY(&w->x->driver, error, cuMemcpyDtoH, (out, w->memory[lane], sizeof(*out)));
}

static bool bench_submit_way_check(submit_way *w, char *error)
{
    for (int i = 0; i < w->lanes; i++) {
        float count = 0;
        if (!bench_read_count(w, i, &count, error)) {
            return false;
        }
        /* exact up to the limit of a float, which no sample reaches */
        if (count != (float)w->launched[i]) {
            snprintf(error, PLAIN_ERROR, "%s, device %d: %llu launches, and the kernels counted %.0f",
                     w->api == SUBMIT_HEDDLE ? "Heddle" : "driver", bench_device_of(w, i),
                     (unsigned long long)w->launched[i], (double)count);
            return false;
        }
    }
    return true;
}

/* ---- samples ---- */

enum { WARM_BURSTS = 16, EVICT_BYTES = 32 << 20, LINE = 64, TRIPS_LEAST = 20 };

typedef struct sample {
    submit_experiment *x;
    const submit_row *row;
    submit_api api;
    pthread_mutex_t lock; /* of the gate */
    pthread_cond_t moved;
    int ready; /* threads that arrived */
    bool bad;  /* a thread cannot begin */
    enum { SHUT, OPEN, GIVEN_UP } gate;
    _Atomic bool stop;
} sample;

typedef struct worker {
    sample *s;
    bool trips;    /* true for the bystander */
    bool measured; /* the row measures its calls */
    submit_way way;
    unsigned char *evict; /* for cold rows: memory that the thread walks through between bursts */
    uint64_t launches, elapsed_ns;
    stats_histogram calls;
    bool failed;
    char error[PLAIN_ERROR];
} worker;

/* Replaces the contents of the caches. */
static void bench_evict(worker *w)
{
    for (size_t i = 0; i < EVICT_BYTES; i += LINE) {
        w->evict[i]++;
    }
}

/* Launches, and measures the call. */
static bool bench_submit(worker *w, int lane)
{
    uint64_t tick = cli_stats_tick_begin();
    bool ok = bench_submit_way_launch(&w->way, lane, w->error);
    cli_stats_record(&w->calls, cli_stats_tick_end() - tick);
    return ok;
}

static bool bench_trip(worker *w)
{
    uint64_t tick = cli_stats_tick_begin();
    bool ok = bench_submit_way_launch(&w->way, 0, w->error) && bench_submit_way_wait(&w->way, 0, w->error);
    cli_stats_record(&w->calls, cli_stats_tick_end() - tick);
    return ok;
}

/* Launches a burst in one lane after another, and waits for it. For cold rows, makes one launch in
 * each lane. */
static bool bench_burst(worker *w)
{
    bool ok = true;
    int lanes = w->way.lanes, count = w->evict ? lanes : SUBMIT_BURST;
    if (w->evict) {
        bench_evict(w);
    }
    for (int i = 0; ok && i < count; i++) {
        ok = bench_submit(w, i * lanes / count);
    }
    for (int i = 0; ok && i < lanes; i++) {
        ok = bench_submit_way_wait(&w->way, i, w->error);
    }
    w->launches += (uint64_t)count;
    return ok;
}

static bool bench_run(worker *w)
{
    sample *s = w->s;
    uint64_t begin = cli_stats_monotonic(), end = begin + s->x->sample_ns, now;
    bool ok = true, with_bystander = s->row->bystander;
    uint64_t done = 0;
    do {
        ok = w->trips ? bench_trip(w) : bench_burst(w);
        done++;
        now = cli_stats_monotonic();
    } while (ok && (w->trips || !with_bystander ? now < end || (w->trips && done < TRIPS_LEAST)
                                                : !atomic_load_explicit(&s->stop, memory_order_relaxed)));
    w->elapsed_ns = now - begin;
    return ok;
}

/* Runs until each side has made everything that it makes only once. */
static bool bench_warm_up(worker *w)
{
    bool ok = true;
    for (int b = 0; ok && b < WARM_BURSTS; b++) {
        for (int i = 0; ok && i < w->way.lanes; i++) {
            for (int j = 0; ok && j < SUBMIT_BURST; j++) {
                ok = bench_submit_way_launch(&w->way, i, w->error);
            }
            ok = ok && bench_submit_way_wait(&w->way, i, w->error);
        }
    }
    return ok;
}

/* Waits until all threads arrive. False: no thread is to begin. */
static bool bench_pass_gate(sample *s, bool ready)
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

/* Opens the gate when `count` threads arrived. `all`: no thread is missing. */
static void bench_open_gate(sample *s, int count, bool all)
{
    pthread_mutex_lock(&s->lock);
    while (s->ready < count) {
        pthread_cond_wait(&s->moved, &s->lock);
    }
    s->gate = all && !s->bad ? OPEN : GIVEN_UP;
    pthread_cond_broadcast(&s->moved);
    pthread_mutex_unlock(&s->lock);
}

static void *bench_work(void *argument)
{
    worker *w = argument;
    sample *s = w->s;
    bool opened = bench_submit_way_open(&w->way, w->error);
    bool ok = opened && bench_warm_up(w);
    if (bench_pass_gate(s, ok)) {
        ok = bench_run(w);
        if (w->trips) {
            /* stops the others before the check, because the driver needs seconds for a copy while
             * other threads submit */
            atomic_store(&s->stop, true);
        }
        ok = ok && bench_submit_way_check(&w->way, w->error);
    }
    w->failed = !ok;
    if (opened) {
        bench_submit_way_close(&w->way);
    }
    return NULL;
}

static bool bench_start(sample *s, worker *workers, int count, char *error)
{
    pthread_t threads[SUBMIT_THREADS_MAX + 1];
    int started = 0;
    while (started < count && pthread_create(&threads[started], NULL, bench_work, &workers[started]) == 0) {
        started++;
    }
    bench_open_gate(s, started, started == count);
    for (int i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
    }
    if (started < count) {
        snprintf(error, PLAIN_ERROR, "only %d of %d threads could be started", started, count);
    }
    return started == count;
}

static bool bench_collect(sample *s, const worker *workers, int count, char *error)
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
            cli_stats_merge(&x->sample.calls, &w->calls);
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

static bool bench_prepare(sample *s, worker *workers, int count, char *error)
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

bool bench_submit_row_run(submit_experiment *x, const submit_row *row, submit_api api, char *error)
{
    sample s = {.x = x, .row = row, .api = api, .lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};
    int count = row->threads + row->bystander;
    worker *workers = calloc((size_t)count, sizeof(*workers));
    if (!workers) {
        snprintf(error, PLAIN_ERROR, "out of memory");
        return false;
    }
    bool ok = bench_prepare(&s, workers, count, error) && bench_start(&s, workers, count, error) &&
              bench_collect(&s, workers, count, error);
    for (int i = 0; i < count; i++) {
        free(workers[i].evict);
    }
    free(workers);
    pthread_cond_destroy(&s.moved);
    pthread_mutex_destroy(&s.lock);
    return ok;
}
