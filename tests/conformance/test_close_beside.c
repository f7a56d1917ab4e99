/* test_close_beside.c - hd_close while other threads are inside calls.
 *
 * Promise: A call that crosses hd_close returns a status, and its objects live until it returns.
 *
 * Threads: up to 6 that call, and the main one, which closes. Each caller publishes that it is
 * about to call.
 * Locks: none.
 * Always: a call returns HD_OK, HANDLE, or that its work failed. Later calls are refused. hd_close
 * returns within its limit.
 */
#include "workers.h"

#include <pthread.h>
#include <stdatomic.h>

enum { bytes = 1 << 16, callers = 6 };

/* The process leaves work that does not end behind, which is no leak to report. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "report_thread_leaks=0";
}
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return 1;
}

typedef struct shared {
    hd_runtime *runtime;
    hd_lane *lane;
    hd_buffer *x, *y, *kept;
    atomic_int inside;
} shared;

typedef struct caller {
    shared *all;
    int way;
} caller;

static hd_status call(const shared *all, int way, uint32_t *mine)
{
    hd_buffer *buffer = NULL;
    hd_lane *lane = NULL;
    hd_status status;
    switch (way) {
    case 0:
        return hd_buffer_wait(all->x, HD_READ_WRITE, HD_FOREVER);
    case 1:
        return hd_alloc_host(all->runtime, 4096, &buffer); /* which hd_close frees */
    case 2:
        return hd_lane_wait(all->lane, HD_FOREVER);
    case 3:
        return hd_write(all->y, 0, mine, bytes);
    case 4:
        status = hd_lane_create(all->runtime, 0, &lane);
        if (status == HD_OK) {
            hd_lane_destroy(lane);
        }
        return status;
    default:
        return hd_read(all->y, 0, mine, bytes);
    }
}

/* Calls until a call is refused. */
static void *goes_on(void *argument)
{
    const caller *me = argument;
    uint32_t *mine = conf_memory(bytes);
    memset(mine, 0, bytes);
    hd_status status;
    atomic_fetch_add(&me->all->inside, 1);
    do {
        status = call(me->all, me->way, mine);
    } while (status == HD_OK);
    if (status != HD_ERROR_HANDLE) {
        conf_fail_at(__FILE__, __LINE__, "way %d: %s: %s", me->way, hd_status_name(status), hd_message());
    }
    CONF_FAILS(call(me->all, me->way, mine), HD_ERROR_HANDLE);
    free(mine);
    return NULL;
}

static void while_others_go_on(void **state)
{
    (void)state;
    for (int round = 0; round < conf_rounds(CONF_SLOWNESS > 1 ? 3 : 10); round++) {
        shared all = {.runtime = conf_open(NULL)};
        CONF_OK(hd_lane_create(all.runtime, 0, &all.lane));
        CONF_OK(hd_alloc(all.lane, bytes, &all.x));
        CONF_OK(hd_alloc(all.lane, bytes, &all.y));
        CONF_OK(hd_fill(all.x, 0, 0, bytes, NULL));
        CONF_OK(hd_fill(all.y, 0, 0, bytes, NULL));
        pthread_t threads[callers];
        caller each[callers];
        for (int i = 0; i < callers; i++) {
            each[i] = (caller){&all, i};
            CONF_EQUAL(pthread_create(&threads[i], NULL, goes_on, &each[i]), 0);
        }
        while (atomic_load(&all.inside) < callers) {
            conf_sleep_ms(1);
        }
        conf_sleep_ms(round);
        conf_close(all.runtime);
        for (int i = 0; i < callers; i++) {
            pthread_join(threads[i], NULL);
        }
    }
}

/* ---- calls that never stop ---- */

enum { busy_most = 8 };

typedef struct busy {
    const shared *all;
    conf_random random;
    atomic_bool *closed;
    pthread_t thread;
} busy;

static hd_status busy_call(const shared *all, conf_random *random, uint32_t *mine)
{
    hd_claim *claim = NULL;
    hd_arg use = hd_in(all->y);
    hd_buffer *buffer = NULL;
    hd_status status;
    switch (conf_below(random, 9)) {
    case 0:
        return hd_memory_trim(all->runtime, 0, 0, NULL);
    case 1:
        status = hd_claim_begin(all->runtime, &use, 1, &claim);
        return status ? status : hd_claim_end(claim, HD_OK);
    case 2:
        status = hd_alloc(all->lane, 64, &buffer);
        return status ? status : hd_free(buffer);
    default:
        return call(all, (int)conf_below(random, callers), mine);
    }
}

static void *never_stops(void *argument)
{
    busy *me = argument;
    uint32_t *mine = conf_memory(bytes);
    memset(mine, 0, bytes);
    for (bool closed = false; !closed;) {
        closed = atomic_load(me->closed);
        hd_status status = busy_call(me->all, &me->random, mine);
        if (status != HD_ERROR_HANDLE && (closed || status != HD_OK)) {
            conf_fail_at(__FILE__, __LINE__, "%s: %s", hd_status_name(status), hd_message());
        }
    }
    free(mine);
    return NULL;
}

/* Nearly always, each of these threads is inside a call, also once all handles are stale. */
static void while_others_never_stop(void **state)
{
    (void)state;
    conf_random random = {conf_number_from("HEDDLE_SEED", 1)};
    for (int round = 0; round < conf_rounds(CONF_SLOWNESS > 1 ? 3 : 10); round++) {
        shared all = {.runtime = conf_open(NULL)};
        CONF_OK(hd_lane_create(all.runtime, 0, &all.lane));
        CONF_OK(hd_alloc(all.lane, bytes, &all.x));
        CONF_OK(hd_alloc(all.lane, bytes, &all.y));
        atomic_bool closed = false;
        busy each[busy_most];
        int n = 1 + (int)conf_below(&random, busy_most);
        for (int i = 0; i < n; i++) {
            each[i] = (busy){.all = &all, .random = {conf_next(&random)}, .closed = &closed};
            CONF_EQUAL(pthread_create(&each[i].thread, NULL, never_stops, &each[i]), 0);
        }
        conf_sleep_ms((int)conf_below(&random, 20));
        conf_track(all.runtime, NULL);
        CONF_OK(hd_close(all.runtime));
        atomic_store(&closed, true);
        for (int i = 0; i < n; i++) {
            pthread_join(each[i].thread, NULL);
        }
    }
}

/* ---- calls that continue inside after hd_close ended all handles ---- */

enum { rows = 64, row = bytes / rows, seven = 0x07070707 };

/* Half of each row; elements of a transposed matrix. */
static const hd_box half_rows = {
    .size = sizeof half_rows, .row = row / 2, .dims = 1, .count = {rows}, .dst_stride = {row / 2}, .src_stride = {row}};

static hd_tensor matrix(hd_buffer *buffer, bool turned)
{
    return (hd_tensor){.buffer = buffer,
                       .type = HD_TYPE_F32,
                       .dims = 2,
                       .shape = {rows, rows},
                       .stride = {turned ? 4 : rows * 4, turned ? rows * 4 : 4}};
}

/* Makes a call. Some calls make several operations, each behind the one before, and use built-in
 * kernels. *read gets the bytes of `mine` that the call read. */
static hd_status call_of_several(const shared *all, int way, uint32_t *mine, size_t *read)
{
    hd_tensor x = matrix(all->x, false), y = matrix(all->y, true), z = matrix(all->x, true);
    hd_buffer *made = NULL;
    hd_status status;
    *read = 0;
    switch (way) {
    case 0:
        *read = bytes / 2;
        return hd_read_box(all->x, 0, mine, &half_rows);
    case 1:
        *read = rows * rows * sizeof *mine;
        return hd_tensor_read(&z, mine);
    case 2:
        return hd_tensor_copy(&y, &x, NULL);
    case 3:
        status = hd_buffer_save(all->kept, NULL);
        /* with guards, which work writes */
        status = status ? status : hd_alloc(all->lane, row, &made);
        hd_free(made);
        return status;
    case 4:
        return hd_tensor_matmul(all->lane, &y, &x, &z, 1, 0, NULL);
    default:
        return hd_write_box(all->y, 0, mine, &half_rows);
    }
}

/* Calls until a call is refused. A call that returns HD_OK did its work. */
static void *does_it(void *argument)
{
    const caller *me = argument;
    uint32_t *mine = conf_memory(bytes);
    hd_status status = HD_OK;
    atomic_fetch_add(&me->all->inside, 1);
    while (status == HD_OK) {
        size_t read;
        memset(mine, 0xee, bytes);
        status = call_of_several(me->all, me->way, mine, &read);
        for (size_t i = 0; status == HD_OK && i < read / sizeof *mine; i++) {
            if (mine[i] != seven) {
                conf_fail_at(__FILE__, __LINE__, "way %d: HD_OK, and word %zu is %x", me->way, i, mine[i]);
            }
        }
    }
    if (status != HD_ERROR_HANDLE) {
        conf_fail_at(__FILE__, __LINE__, "way %d: %s: %s", me->way, hd_status_name(status), hd_message());
    }
    free(mine);
    return NULL;
}

static void what_is_done_is_right(void **state)
{
    (void)state;
    /* at least one of each length of sleep, with and without memory_debug; opening GPUs takes a
     * second */
    int rounds = CONF_SLOWNESS > 1 ? 5 : conf_on_gpus ? 10 : 30;
    for (int round = 0; round < rounds; round++) {
        const hd_alloc_options keep = {.size = sizeof keep, .flags = HD_ALLOC_KEEP};
        shared all = {.runtime = conf_open(round % 2 ? "memory_debug=on" : NULL)};
        CONF_OK(hd_lane_create(all.runtime, 0, &all.lane));
        CONF_OK(hd_alloc(all.lane, bytes, &all.x));
        CONF_OK(hd_alloc(all.lane, bytes, &all.y));
        CONF_OK(hd_alloc_with(all.lane, bytes, &keep, &all.kept));
        CONF_OK(hd_fill(all.x, 0, seven, bytes, NULL));
        CONF_OK(hd_fill(all.kept, 0, 0, bytes, NULL));
        pthread_t threads[callers];
        caller each[callers];
        for (int i = 0; i < callers; i++) {
            each[i] = (caller){&all, i};
            CONF_EQUAL(pthread_create(&threads[i], NULL, does_it, &each[i]), 0);
        }
        while (atomic_load(&all.inside) < callers) {
            conf_sleep_ms(1);
        }
        conf_sleep_ms(round % 5);
        conf_close(all.runtime);
        for (int i = 0; i < callers; i++) {
            pthread_join(threads[i], NULL);
        }
    }
}

typedef struct waiter {
    hd_runtime *runtime;
    hd_lane *lane;
    hd_buffer *x;
    hd_kernel *kernel;
    hd_ticket ticket;
    int way;
    atomic_bool about_to;
    hd_status status;
} waiter;

static void *waits(void *argument)
{
    waiter *w = argument;
    uint32_t word = 0;
    atomic_store(&w->about_to, w->way != 3);
    switch (w->way) {
    case 0:
        w->status = hd_wait(w->ticket, HD_FOREVER);
        break;
    case 1:
        w->status = hd_lane_wait(w->lane, HD_FOREVER);
        break;
    case 2:
        w->status = hd_buffer_wait(w->x, HD_READ, HD_FOREVER);
        break;
    case 3:
        do { /* until the lane is full, and then it waits for room */
            w->status = hd_launch(w->lane, w->kernel, conf_dims(1, 1, 1), conf_dims(1, 1, 1), 0,
                                  (hd_arg[]){hd_inout(w->x)}, 1, NULL);
            atomic_store(&w->about_to, true);
        } while (w->status == HD_OK);
        break;
    default:
        w->status = hd_read(w->x, 0, &word, sizeof word);
        break;
    }
    return NULL;
}

/* hd_close wakes threads that wait for work that does not end. */
static void while_others_wait(void **state)
{
    (void)state;
    for (int way = 0; way < 5; way++) {
        waiter w = {.runtime = conf_open("close_timeout=2000"), .way = way};
        wk_kernels k = wk_load(w.runtime);
        WK_NEED_KERNELS(w.runtime, k);
        bool is_process = conf_is_process(w.runtime);
        CONF_OK(hd_lane_create(w.runtime, 0, &w.lane));
        CONF_OK(hd_alloc(w.lane, bytes, &w.x));
        CONF_OK(hd_fill(w.x, 0, 0, bytes, NULL));
        wk_gate gate;
        wk_gate_shut(&gate, w.runtime, w.lane, k);
        CONF_OK(wk_launch_one(w.lane, k.hello, w.x, &w.ticket));
        w.kernel = k.hello;
        pthread_t thread;
        CONF_EQUAL(pthread_create(&thread, NULL, waits, &w), 0);
        while (!atomic_load(&w.about_to)) {
            conf_sleep_ms(1);
        }
        conf_sleep_ms(way * 10);
        hd_device_stats stats = {.size = sizeof stats};
        while (way == 3 && stats.ring_full_stalls == 0) { /* it waits for room */
            CONF_OK(hd_device_get_stats(w.runtime, 0, &stats));
            conf_sleep_ms(1);
        }
        conf_close(w.runtime);
        pthread_join(thread, NULL); /* before the gate opens */
        CONF_EQUAL(w.status, HD_ERROR_HANDLE);
        if (!is_process) {
            wk_gate_open(&gate);
        }
    }
}

typedef struct sleeper {
    hd_buffer *x;
    hd_claim *claim;
    hd_ticket ticket;
    int way;
    atomic_int *about_to;
    pthread_t thread;
    hd_status status;
} sleeper;

static void *sleeps(void *argument)
{
    sleeper *s = argument;
    void *there = NULL;
    atomic_fetch_add(s->about_to, 1);
    switch (s->way) {
    case 0:
        s->status = hd_buffer_wait(s->x, HD_READ_WRITE, HD_FOREVER);
        break;
    case 1:
        s->status = hd_wait(s->ticket, HD_FOREVER);
        break;
    case 2:
        s->status = hd_claim_wait(s->claim, HD_FOREVER);
        break;
    default:
        s->status = hd_map(s->x, HD_READ_WRITE, &there);
    }
    return NULL;
}

/* Ends the workers of a runtime that hd_close left as it was. Its own thread reaps them. */
static void end_workers(const int *pids, int n)
{
    for (int i = 0; i < n; i++) {
        if (pids[i] != 0) {
            kill(pids[i], SIGKILL); /* or it is gone: hd_close had enough time */
        }
    }
}

/* hd_close runs out of time and gives up before all waiters notice it. They return nevertheless. */
static void that_wait_when_it_gives_up(void **state)
{
    (void)state;
    enum { sleepers = 8 };
    conf_random random = {conf_number_from("HEDDLE_SEED", 1)};
    for (int round = 0; round < conf_rounds(10); round++) {
        hd_runtime *runtime = conf_open("close_timeout=1 transfer_timeout=600000");
        hd_buffer *x = NULL;
        hd_claim *claim = NULL, *next = NULL;
        hd_ticket ticket;
        CONF_OK(hd_alloc_host(runtime, bytes, &x));
        hd_arg use = hd_inout(x);
        CONF_OK(hd_claim_begin(runtime, &use, 1, &claim));
        CONF_OK(hd_claim_get_ticket(claim, &ticket));
        CONF_OK(hd_claim_begin(runtime, &use, 1, &next));
        atomic_int about_to = 0;
        sleeper each[sleepers];
        for (int i = 0; i < sleepers; i++) {
            each[i] = (sleeper){x, next, ticket, (int)conf_below(&random, 4), &about_to, 0, HD_OK};
            CONF_EQUAL(pthread_create(&each[i].thread, NULL, sleeps, &each[i]), 0);
        }
        while (atomic_load(&about_to) < sleepers) {
            conf_sleep_ms(0);
        }
        conf_sleep_ms((int)conf_below(&random, 5));
        int pids[32] = {0}, devices = hd_device_count(runtime);
        for (int d = 0; d < devices && conf_is_process(runtime); d++) {
            pids[d] = wk_pid(runtime, d);
        }
        conf_track(runtime, NULL);
        CONF_FAILS(hd_close(runtime), HD_ERROR_TIMEOUT);
        for (int i = 0; i < sleepers; i++) {
            pthread_join(each[i].thread, NULL);
            CONF_EQUAL(each[i].status, HD_ERROR_HANDLE);
        }
        end_workers(pids, devices);
    }
}

static bool closes(void *runtime)
{
    hd_close(runtime);
    CONF_TRUE(strstr(hd_message(), "inside a call") != NULL);
    return false;
}

static bool closes_it(void *context, const hd_memory_block *block)
{
    (void)block;
    return closes(context);
}

/* A callback cannot close the runtime whose call it runs in. */
static void from_a_callback(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_buffer *x = NULL;
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), bytes, &x));
    CONF_OK(hd_memory_each(runtime, closes_it, runtime));
    CONF_OK(hd_fill(x, 0, 1, bytes, NULL));
    CONF_FILLED(x, 0, 1, bytes);
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_close_beside");
    const struct CMUnitTest tests[] = {
        CONF_CASE(while_others_go_on), CONF_CASE(while_others_never_stop),    CONF_CASE(what_is_done_is_right),
        CONF_CASE(while_others_wait),  CONF_CASE(that_wait_when_it_gives_up), CONF_CASE(from_a_callback),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
