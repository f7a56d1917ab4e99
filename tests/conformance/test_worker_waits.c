/* test_worker_waits.c - every wait for a lost device returns, and waits that the watchdog must
 * ignore.
 *
 * Promise: Every wait for a lost device returns with a failure that names the loss.
 *
 * The cases are waits, reads, writes, maps, full rings, and hd_close. Others are requests to the
 * lost device's worker, and the lanes of healthy devices that depend on the lost one.
 *
 * Threads: one for each call that waits.
 * Locks: none.
 * Always: every call returns, with a failure that the loss explains. Healthy devices work at once
 * again.
 */
#include "workers.h"

#include <errno.h>
#include <spawn.h>
#include <sys/wait.h>

enum { words = 5000, bytes = words * 4 };

/* The watchdog looks at single operations. It ends no device for much work, for idle time, or for a
 * wait for another device. */
static void the_watchdog_knows_who_it_is(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open_with("watchdog=%d", wk_watchdog_ms());
    CONF_NEED_DEVICES(runtime, 2);
    wk_kernels k = wk_load(runtime);
    WK_NEED_KERNELS(runtime, k);
    conf_slow slow;
    conf_slow_make(&slow, runtime, 0);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_ticket ticket;
    for (int i = 0; i < 4; i++) { /* twice the limit, in small pieces, with the lane never empty */
        conf_slow_run(&slow, lane, NULL, 0, wk_watchdog_ms() / 2, &ticket);
    }
    CONF_OK(hd_wait(ticket, 100 * CONF_SECOND));
    conf_slow_free(&slow);
    conf_sleep_ms(wk_watchdog_ms() + wk_watchdog_ms() / 2);
    wk_no_loss(runtime);

    /* device 0 waits for work that device 1 never finishes */
    /* before the rest: it tests the pair, which takes time */
    bool reaches = conf_reaches(runtime, 0, 1);
    hd_lane *stuck = conf_default_lane(runtime, 1);
    hd_buffer *x = NULL, *y = NULL;
    CONF_OK(hd_alloc(stuck, bytes, &x));
    CONF_OK(hd_alloc(lane, bytes, &y));
    CONF_OK(hd_fill(x, 0, 0, bytes, NULL));
    CONF_OK(hd_buffer_wait(x, HD_READ_WRITE, 60 * CONF_SECOND));
    CONF_OK(wk_launch_one(stuck, k.spin, x, NULL));
    hd_status status = HD_OK;
    if (reaches) {
        status = conf_copy(lane, slow.kernels, y, 0, x, 0, words, &ticket);
        /* already lost on a busy machine */
        status = status == HD_OK ? hd_wait(ticket, 60 * CONF_SECOND) : status;
        CONF_TRUE(status == HD_ERROR_FAILED || status == HD_ERROR_DEVICE_LOST);
        CONF_OK(hd_lane_reset(lane, 60 * CONF_SECOND));
    }
    wk_told(runtime, 1, WK_SPIN, 1);
    wk_others_work(runtime, 1);
    conf_close(runtime);
}

/* ---- everything that can wait for a lost device ---- */

typedef struct waiter {
    const char *what;
    void (*function)(struct waiter *w);
    hd_runtime *runtime;
    conf_kernels k;
    int lost;
    /* x, pinned: written by the lost kernel's lane; y, far: of a healthy device */
    hd_buffer *x, *y, *pinned, *far;
    hd_lane *lane, *healthy;
    hd_ticket ticket;
    hd_status status;
    pthread_t thread;
    atomic_bool begun;
    /* it overwrites all bytes that the lost device should have written, so it may also succeed */
    bool heals;
} waiter;

static void waits_for_the_ticket(waiter *w)
{
    w->status = hd_wait(w->ticket, HD_FOREVER);
}
static void waits_for_the_lane(waiter *w)
{
    w->status = hd_lane_wait(w->lane, HD_FOREVER);
}
static void resets_the_lane(waiter *w)
{
    w->status = hd_lane_reset(w->lane, HD_FOREVER);
}
static void waits_for_the_buffer(waiter *w)
{
    w->status = hd_buffer_wait(w->x, HD_READ_WRITE, HD_FOREVER);
}
static void reads_the_buffer(waiter *w)
{
    static uint8_t got[bytes];
    w->status = hd_read(w->x, 0, got, bytes);
}
static void writes_the_buffer_often(waiter *w)
{
    static uint8_t data[1 << 20];
    w->status = HD_OK;
    /* until the pinned chunks are used up */
    for (int i = 0; i < 10000 && w->status == HD_OK; i++) {
        w->status = hd_write(w->x, 0, data, bytes);
    }
}
static void maps_pinned_memory(waiter *w)
{
    void *p = NULL;
    w->status = hd_map(w->pinned, HD_READ_WRITE, &p);
}
static void writes_pinned_memory(waiter *w)
{
    static uint8_t data[bytes];
    w->status = hd_write(w->pinned, 0, data, bytes);
    w->heals = true;
}
static void copies_to_a_healthy_one(waiter *w)
{
    hd_ticket ticket = {NULL, 0};
    w->status = hd_copy(w->y, 0, w->x, 0, bytes, &ticket);
    w->status = w->status == HD_OK ? hd_wait(ticket, HD_FOREVER) : w->status;
}
static void reads_what_depends_on_it(waiter *w)
{
    uint32_t word;
    w->status = hd_copy(w->far, 0, w->x, 0, bytes, NULL);
    w->status = w->status == HD_OK ? hd_read(w->far, 0, &word, 4) : w->status;
}
static void fills_the_ring(waiter *w)
{
    w->status = HD_OK;
    for (int i = 0; i < 1000 && w->status == HD_OK; i++) { /* 64 slots */
        w->status = conf_fill(w->lane, w->k, w->x, 0, words, 1, NULL);
    }
}
/* Fills a healthy lane with work behind an operation that waits for the lost device. */
static void fills_a_healthy_ring(waiter *w)
{
    w->status = HD_OK;
    for (int i = 0; i < 1000 && w->status == HD_OK; i++) {
        w->status = conf_copy(w->healthy, w->k, w->y, 0, w->pinned, 0, words, NULL);
    }
    w->status = w->status == HD_OK ? HD_ERROR_TIMEOUT : w->status;
    CONF_OK(hd_lane_reset(w->healthy, HD_FOREVER));
}

static void *begins(void *argument)
{
    waiter *w = argument;
    atomic_store(&w->begun, true);
    w->function(w);
    return NULL;
}

static void what_waits_for_the_dead_returns(const char *peers, int way)
{
    static const struct {
        const char *what;
        void (*function)(waiter *w);
    } kinds[] = {{"hd_wait", waits_for_the_ticket},    {"hd_lane_wait", waits_for_the_lane},
                 {"hd_lane_reset", resets_the_lane},   {"hd_buffer_wait", waits_for_the_buffer},
                 {"hd_read", reads_the_buffer},        {"hd_write, often", writes_the_buffer_often},
                 {"hd_map", maps_pinned_memory},       {"hd_write to pinned memory", writes_pinned_memory},
                 {"hd_copy", copies_to_a_healthy_one}, {"hd_read of a copy", reads_what_depends_on_it},
                 {"hd_launch, often", fills_the_ring}, {"hd_launch in a healthy lane, often", fills_a_healthy_ring}};
    enum { n = sizeof kinds / sizeof *kinds };
    static waiter waiters[n];
    if (conf_on_gpus && strcmp(peers, "all") != 0) {
        return; /* the links of GPUs are fixed */
    }
    hd_runtime *runtime = conf_open_with("lane_slots=64 host_peers=%s %s", peers, wk_settings(way));
    CONF_NEED_DEVICES(runtime, 2);
    wk_kernels k = wk_load(runtime);
    WK_NEED_KERNELS(runtime, k);
    conf_kernels builtin = conf_builtins(runtime);
    int lost = hd_device_count(runtime) - 1;
    conf_failure_ends_program = true;
    /* each uses its own buffers and lanes, behind the one kernel that does not end */
    hd_lane *first = NULL;
    hd_buffer *shut = NULL;
    CONF_OK(hd_lane_create(runtime, lost, &first));
    CONF_OK(hd_alloc(first, bytes, &shut));
    wk_gate gate;
    for (int i = 0; i < n; i++) {
        waiter *w = &waiters[i];
        *w = (waiter){
            .what = kinds[i].what, .function = kinds[i].function, .runtime = runtime, .k = builtin, .lost = lost};
        CONF_OK(hd_lane_create(runtime, lost, &w->lane));
        CONF_OK(hd_lane_create(runtime, 0, &w->healthy));
        CONF_OK(hd_alloc(w->lane, bytes, &w->x));
        CONF_OK(hd_alloc(w->healthy, bytes, &w->y));
        CONF_OK(hd_alloc(w->healthy, bytes, &w->far));
        CONF_OK(hd_alloc_host(runtime, bytes, &w->pinned));
        hd_buffer *all[] = {w->x, w->y, w->far, w->pinned};
        for (int j = 0; j < 4; j++) {
            CONF_OK(hd_fill(all[j], 0, 1, bytes, NULL));
            CONF_OK(hd_buffer_wait(all[j], HD_READ_WRITE, 60 * CONF_SECOND));
        }
    }
    CONF_OK(hd_fill(shut, 0, 1, bytes, NULL));
    CONF_OK(hd_buffer_wait(shut, HD_READ_WRITE, 60 * CONF_SECOND));
    wk_warm(runtime, lost, k);
    wk_gate_shut(&gate, runtime, first, k);
    CONF_OK(conf_fill(first, builtin, shut, 0, words, 2, NULL));
    for (int i = 0; i < n; i++) {
        waiter *w = &waiters[i];
        CONF_OK(conf_copy(w->lane, builtin, w->x, 0, shut, 0, words, NULL));
        CONF_OK(conf_copy(w->lane, builtin, w->pinned, 0, w->x, 0, words, &w->ticket));
        CONF_EQUAL(pthread_create(&w->thread, NULL, begins, w), 0);
    }
    for (int i = 0; i < n; i++) {
        while (!atomic_load(&waiters[i].begun)) {
            conf_sleep_ms(1);
        }
    }
    conf_sleep_ms(100); /* probably all wait by now; any other state must work as well */
    if (way != WK_SPIN) {
        wk_lose(runtime, lost, way, k, first, shut);
    }
    for (int i = 0; i < n; i++) {
        waiter *w = &waiters[i];
        snprintf(conf_watched, sizeof conf_watched, "%s, waiting for a dead device", w->what);
        pthread_join(w->thread, NULL);
        if (!(w->heals && w->status == HD_OK) && w->status != HD_ERROR_DEVICE_LOST && w->status != HD_ERROR_FAILED &&
            w->status != HD_ERROR_LANE_FAILED) {
            conf_fail_at(__FILE__, __LINE__, "%s: %s", w->what, hd_status_name(w->status));
        }
    }
    wk_told(runtime, lost, way, 1);
    /* healthy devices work at once */
    for (int i = 0; i < n; i++) {
        waiter *w = &waiters[i];
        CONF_OK(conf_fill(w->healthy, builtin, w->y, 0, words, 8, NULL));
        CONF_OK(conf_copy(w->healthy, builtin, w->pinned, 0, w->y, 0, words, NULL));
        CONF_OK(hd_copy(w->far, 0, w->y, 0, bytes, NULL));
        CONF_FILLED(w->y, 0, 8, bytes);
        CONF_FILLED(w->pinned, 0, 8, bytes);
        CONF_FILLED(w->far, 0, 8, bytes);
    }
    conf_failure_ends_program = false;
    wk_others_work(runtime, lost);
    conf_close(runtime);
}

/* With sanitizers one for each way, in turn. */
static void what_waits_returns_with_any_peers(int way)
{
    static const char *const peers[] = {"all", "none"};
    for (int i = 0; i < 2; i++) {
        if (CONF_SLOWNESS == 1 || i == way % 2) {
            what_waits_for_the_dead_returns(peers[i], way);
        }
    }
}

/* An engine without other work sleeps until the program ends its claim, or its function returns. */
static void an_open_claim_is_no_silence(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open_with("worker_timeout=%d", wk_stuck_ms());
    int device = hd_device_count(runtime) - 1;
    hd_buffer *x = NULL;
    hd_claim *claim = NULL;
    CONF_OK(hd_alloc(conf_default_lane(runtime, device), bytes, &x));
    hd_arg use = hd_inout(x);
    CONF_OK(hd_claim_begin(runtime, &use, 1, &claim));
    CONF_OK(hd_claim_wait(claim, 60 * CONF_SECOND));
    for (int64_t until = conf_now() + 2 * wk_stuck_ms() * CONF_MILLISECOND; conf_now() < until;) {
        conf_sleep_ms(10);
    }
    wk_no_loss(runtime);
    CONF_OK(hd_claim_end(claim, HD_OK));
    CONF_OK(hd_fill(x, 0, 3, bytes, NULL));
    CONF_FILLED(x, 0, 3, bytes);
    conf_close(runtime);
}

static void a_program_that_was_stopped_keeps_its_devices(void **state)
{
    (void)state;
    CONF_EQUAL(setpgid(0, 0), 0);
    hd_runtime *runtime = conf_open_with("worker_timeout=%d", wk_stuck_ms());
    hd_claim *claims[32] = {NULL};
    int devices = hd_device_count(runtime);
    for (int d = 0; d < devices; d++) {
        hd_buffer *x = NULL;
        CONF_OK(hd_alloc(conf_default_lane(runtime, d), bytes, &x));
        hd_arg use = hd_inout(x);
        /* a claim of each device is under way */
        CONF_OK(hd_claim_begin(runtime, &use, 1, &claims[d]));
        CONF_OK(hd_claim_wait(claims[d], 60 * CONF_SECOND));
    }
    for (int i = 0; i < 2; i++) {
        wk_stop_all(2 * wk_stuck_ms(), 0);
        conf_sleep_ms(500); /* the watcher looks ten times a second */
        wk_no_loss(runtime);
    }
    for (int d = 0; d < devices; d++) {
        CONF_OK(hd_claim_end(claims[d], HD_OK));
        wk_works(runtime, d);
    }
    conf_close(runtime);
}

static void nothing_waits_for_a_killed_worker(void **state)
{
    (void)state;
    what_waits_returns_with_any_peers(WK_KILL);
}

static void nothing_waits_for_a_stopped_worker(void **state)
{
    (void)state;
    what_waits_returns_with_any_peers(WK_STOP);
}

static void nothing_waits_for_a_kernel_that_never_ends(void **state)
{
    (void)state;
    what_waits_returns_with_any_peers(WK_SPIN);
}

/* ---- requests to a stopped worker ---- */

typedef struct request {
    const char *what;
    int number;
    hd_runtime *runtime;
    wk_kernels k;
    hd_lane *lane;
    const void *image;
    size_t image_size;
    int lost;
    hd_status status;
    pthread_t thread;
} request;

static void *requests(void *argument)
{
    request *r = argument;
    hd_buffer *buffer = NULL;
    hd_module *module = NULL;
    hd_kernel *kernel = NULL;
    hd_lane *lane = NULL;
    hd_device_info info = {.size = sizeof info};
    switch (r->number) {
    case 0:
        r->status = hd_alloc(r->lane, 64 << 20, &buffer);
        break;
    case 1:
        r->status = hd_lane_create(r->runtime, r->lost, &lane);
        break;
    case 2:
        r->status = hd_module_load(r->runtime, r->image, r->image_size, &module);
        break;
    case 3:
        r->status = hd_kernel_get(r->k.module, "bye", &kernel);
        break;
    case 4:
        r->status = hd_alloc_host(r->runtime, 8 << 20, &buffer);
        break;
    case 5:
        r->status = hd_device_get_info(r->runtime, r->lost, &info);
        break;
    default:
        r->status = conf_default_lane(r->runtime, r->lost) != NULL ? HD_OK : HD_ERROR_DEVICE_LOST;
        break;
    }
    return NULL;
}

/* All requests return. Requests to every device may succeed for the others. */
static void requests_to_a_stopped_worker_return(void **state)
{
    (void)state;
    enum { n = 7 };
    /* Each alone, and all at once; with sanitizers only the latter, since each alone is the same
     * code and runs without them. */
    for (int round = conf_on_gpus || CONF_SLOWNESS > 1 ? n : 0; round <= n; round++) {
        hd_runtime *runtime = conf_open_with("%s", wk_settings(WK_STOP));
        int lost = hd_device_count(runtime) - 1;
        static request all[n];
        wk_kernels k = wk_load(runtime);
        WK_NEED_KERNELS(runtime, k);
        hd_lane *lane = NULL;
        CONF_OK(hd_lane_create(runtime, lost, &lane));
        wk_lose(runtime, lost, WK_STOP, k, lane, NULL);
        for (int i = 0; i < n; i++) {
            all[i] = (request){.number = i, .runtime = runtime, .k = k, .lane = lane, .lost = lost};
            all[i].image = wk_image(runtime, &all[i].image_size);
            if (round == i || round == n) {
                CONF_EQUAL(pthread_create(&all[i].thread, NULL, requests, &all[i]), 0);
            }
        }
        for (int i = 0; i < n; i++) {
            if (round == i || round == n) {
                pthread_join(all[i].thread, NULL);
                if (all[i].status != HD_OK && all[i].status != HD_ERROR_DEVICE_LOST) {
                    conf_fail_at(__FILE__, __LINE__, "request %d: %s", i, hd_status_name(all[i].status));
                }
                CONF_TRUE(i != 0 || all[i].status == HD_ERROR_DEVICE_LOST);
            }
        }
        wk_told(runtime, lost, WK_STOP, 1);
        wk_others_work(runtime, lost);
        conf_close(runtime);
    }
}

/* The driver does not return from a request: memory, or code. Every worker counts its own calls. */
static void a_request_hangs_in_the_driver(void **state)
{
    (void)state;
    for (int how = 0; how < 2; how++) {
        /* ten times as long for code */
        hd_runtime *runtime =
            conf_open_with("delay=%s:2=600000000 worker_timeout=%d host_devices=2 module_loading=eager",
                           how == 0 ? "cuMemCreate" : "cuModuleLoadDataEx",
                           how == 0 ? wk_stuck_ms() : wk_stuck_ms() / (conf_on_gpus ? 3 : 6));
        int count = hd_device_count(runtime), last = count - 1;
        if (how == 0) {
            hd_buffer *x = NULL, *large = NULL;
            for (int d = 0; d < count; d++) {
                /* the first call on every device */
                CONF_OK(hd_alloc(conf_default_lane(runtime, d), bytes, &x));
                CONF_OK(hd_fill(x, 0, 7, bytes, NULL));
            }
            hd_status status = HD_OK;
            for (int i = 0; i < 10 && status == HD_OK; i++) {
                status = hd_alloc(conf_default_lane(runtime, last), 100 << 20, &large);
            }
            CONF_FAILS_WITH(status, HD_ERROR_DEVICE_LOST, "worker_timeout");
            hd_device_loss loss = wk_only_loss(runtime, last);
            CONF_EQUAL(loss.cause, HD_LOSS_WORKER_STUCK);
            CONF_FAILS(hd_read(x, 0, &(uint32_t){0}, 4), HD_ERROR_DEVICE_LOST);
            wk_others_work(runtime, last);
        } else {
            size_t size = 0;
            const void *image = wk_image(runtime, &size);
            hd_module *builtin = NULL, *module = NULL;
            CONF_OK(hd_module_get_builtin(runtime, &builtin));
            hd_status status = image == NULL ? HD_ERROR_DEVICE_LOST : hd_module_load(runtime, image, size, &module);
            CONF_EQUAL(status, HD_ERROR_DEVICE_LOST); /* no device is left to load it on */
            for (int d = 0; d < count && image != NULL; d++) {
                hd_device_loss loss = wk_next_loss(runtime);
                CONF_EQUAL(loss.cause, HD_LOSS_WORKER_STUCK);
                CONF_EQUAL(loss.losses, 1);
            }
        }
        conf_close(runtime);
    }
}

/* ---- closing ---- */

/* hd_close while a worker is stopped, inside a driver call, or runs a kernel without end. It
 * returns, and nothing is left. */
static void closing_with_a_stuck_worker(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++) {
        hd_runtime *runtime = conf_open_with("close_timeout=300 worker_timeout=%d %s", wk_stuck_ms(),
                                             how == 2 ? "delay=cuLaunchKernel:3=600000000" : "");
        wk_kernels k = wk_load(runtime);
        WK_NEED_KERNELS(runtime, k);
        int count = hd_device_count(runtime), last = count - 1;
        pid_t pids[64];
        hd_lane *lane = conf_default_lane(runtime, last);
        hd_buffer *x = NULL;
        CONF_OK(hd_alloc(lane, bytes, &x));
        CONF_OK(hd_fill(x, 0, 0, bytes, NULL));
        for (int d = 0; d < count && d < 64; d++) {
            pids[d] = wk_pid(runtime, d);
        }
        if (how == 0) {
            CONF_EQUAL(kill(pids[last], SIGSTOP), 0);
        } else if (how == 1) {
            CONF_OK(wk_launch_one(lane, k.spin, x, NULL));
        } else if (how == 2) {
            for (int i = 0; i < 5; i++) {
                CONF_OK(wk_add_one(lane, k, x, words, NULL));
            }
        } else {
            CONF_EQUAL(kill(pids[last], SIGKILL), 0);
        }
        conf_sleep_ms(how % 2 * 20);
        conf_close(runtime);
        for (int d = 0; d < count && d < 64; d++) {
            CONF_TRUE(wk_goes(pids[d], wk_gone_ms()));
        }
    }
}

int main(void)
{
    wk_begin("test_worker_waits");
    const struct CMUnitTest tests[] = {
        CONF_CASE(an_open_claim_is_no_silence),         CONF_CASE(a_program_that_was_stopped_keeps_its_devices),
        CONF_CASE(the_watchdog_knows_who_it_is),        CONF_CASE(nothing_waits_for_a_killed_worker),
        CONF_CASE(nothing_waits_for_a_stopped_worker),  CONF_CASE(nothing_waits_for_a_kernel_that_never_ends),
        CONF_CASE(requests_to_a_stopped_worker_return), CONF_CASE(a_request_hangs_in_the_driver),
        CONF_CASE(closing_with_a_stuck_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
