/* test_signals.c - calls whose thread gets signals with a handler, again and again.
 *
 * Promise: A signal with a handler ends no wait early, and moves no time limit.
 *
 * Nor does it make any other call fail. The handlers are installed without SA_RESTART, so each
 * signal interrupts the system call that a wait sleeps in.
 *
 * Threads: the main one, which waits, and one that sends it signals and ends what it waits for.
 * Locks: none.
 * Always: the only upper limit is the watchdog of the case. A wait that begins anew with each
 * signal reaches it.
 */
#include "workers.h"
#include <pthread.h>
#include <stdatomic.h>

enum { words = 1 << 12, bytes = words * 4, limit_ms = 150, signals_first = 100, mib = 1 << 20, slots = 64 };

/* ---- the signals ---- */

typedef struct scene {
    hd_runtime *runtime;
    hd_lane *lane;
    conf_kernels k;
    hd_buffer *x, *pinned, *held; /* the claim has the first two; no room is left beside the last */
    hd_claim *claim;
    hd_ticket ticket; /* behind the claim, in the lane */
} scene;

static atomic_int handled;
static atomic_bool storm_over;

static void counts(int number)
{
    (void)number;
    atomic_fetch_add(&handled, 1);
}

typedef struct storm {
    pthread_t target, thread;
    scene *releases; /* after some signals; NULL: nothing */
} storm;

static void release(scene *s)
{
    CONF_OK(hd_free(s->held));
    /* last: hd_close may wait for it, and then ends all handles */
    CONF_OK(hd_claim_end(s->claim, HD_OK));
}

static void *sends_signals(void *argument)
{
    storm *s = argument;
    bool released = s->releases == NULL;
    while (!atomic_load(&storm_over) || !released) {
        CONF_EQUAL(pthread_kill(s->target, SIGUSR1), 0);
        struct timespec pause = {0, 50000};
        nanosleep(&pause, NULL);
        if (!released && atomic_load(&handled) >= signals_first) {
            release(s->releases);
            released = true;
        }
    }
    return NULL;
}

static void storm_begin(storm *s, scene *releases)
{
    struct sigaction action = {.sa_handler = counts};
    CONF_EQUAL(sigaction(SIGUSR1, &action, NULL), 0);
    atomic_store(&handled, 0);
    atomic_store(&storm_over, false);
    *s = (storm){.target = pthread_self(), .releases = releases};
    conf_failure_ends_program = true;
    CONF_EQUAL(pthread_create(&s->thread, NULL, sends_signals, s), 0);
}

static void storm_end(storm *s)
{
    atomic_store(&storm_over, true);
    CONF_EQUAL(pthread_join(s->thread, NULL), 0);
    conf_failure_ends_program = false;
}

/* ---- the waits ---- */

static hd_status wait_ticket(scene *s, int64_t limit)
{
    return hd_wait(s->ticket, limit);
}

static hd_status wait_lane(scene *s, int64_t limit)
{
    return hd_lane_wait(s->lane, limit);
}

static hd_status reset_lane(scene *s, int64_t limit)
{
    return hd_lane_reset(s->lane, limit);
}

static hd_status wait_buffer(scene *s, int64_t limit)
{
    return hd_buffer_wait(s->x, HD_READ_WRITE, limit);
}

static hd_status wait_claim(scene *s, int64_t limit)
{
    hd_arg use = hd_inout(s->x);
    hd_claim *c = NULL;
    CONF_OK(hd_claim_begin(s->runtime, &use, 1, &c));
    hd_status status = hd_claim_wait(c, limit);
    CONF_OK(hd_claim_end(c, HD_OK));
    return status;
}

static hd_status map_pinned(scene *s, int64_t limit)
{
    (void)limit; /* here and below: an option */
    void *pointer;
    return hd_map(s->pinned, HD_READ_WRITE, &pointer);
}

static hd_status read_buffer(scene *s, int64_t limit)
{
    (void)limit;
    static uint32_t got[words];
    return hd_read(s->x, 0, got, bytes);
}

static hd_status write_pinned(scene *s, int64_t limit)
{
    (void)limit;
    static uint32_t data[words];
    return hd_write(s->pinned, 0, data, bytes);
}

static hd_status alloc_memory(scene *s, int64_t limit)
{
    (void)limit;
    hd_buffer *b = NULL;
    return hd_alloc(s->lane, 8 * mib, &b);
}

static hd_status alloc_dedicated(scene *s, int64_t limit)
{
    (void)limit;
    const hd_alloc_options options = {.size = sizeof options, .flags = HD_ALLOC_DEDICATED};
    hd_buffer *b = NULL;
    return hd_alloc_with(s->lane, 8 * mib, &options, &b);
}

static hd_status fill_lane(scene *s, int64_t limit)
{
    (void)limit;
    hd_status status = HD_OK;
    for (int i = 0; i < 4 * slots && status == HD_OK; i++) {
        status = conf_fill(s->lane, s->k, s->x, 0, words, 9, NULL);
    }
    return status;
}

static const struct {
    const char *name;
    hd_status (*wait)(scene *s, int64_t limit);
    hd_status too_long;
} waits[] = {
    {"hd_wait", wait_ticket, HD_ERROR_TIMEOUT},      {"hd_lane_wait", wait_lane, HD_ERROR_TIMEOUT},
    {"hd_lane_reset", reset_lane, HD_ERROR_TIMEOUT}, {"hd_buffer_wait", wait_buffer, HD_ERROR_TIMEOUT},
    {"hd_claim_wait", wait_claim, HD_ERROR_TIMEOUT}, {"hd_map", map_pinned, HD_ERROR_TIMEOUT},
    {"hd_read", read_buffer, HD_ERROR_TIMEOUT},      {"hd_write", write_pinned, HD_ERROR_TIMEOUT},
    {"hd_alloc", alloc_memory, HD_ERROR_MEMORY},     {"hd_alloc_with", alloc_dedicated, HD_ERROR_MEMORY},
    {"hd_launch", fill_lane, HD_ERROR_TIMEOUT},
};
enum { n_waits = sizeof waits / sizeof waits[0] };

static void scene_begin(scene *s, int ms)
{
    *s = (scene){.runtime = conf_open_with("host_devices=2 memory_limit=16M lane_slots=%d transfer_timeout=%d "
                                           "submit_timeout=%d memory_timeout=%d close_timeout=%d",
                                           (int)slots, ms, ms, ms, ms)};
    s->lane = conf_default_lane(s->runtime, 0);
    s->k = conf_builtins(s->runtime);
    CONF_OK(hd_alloc(s->lane, bytes, &s->x));
    CONF_OK(hd_alloc_host(s->runtime, bytes, &s->pinned));
    CONF_OK(hd_alloc(s->lane, 10 * mib, &s->held));
    hd_arg uses[] = {hd_inout(s->x), hd_inout(s->pinned)};
    CONF_OK(hd_claim_begin(s->runtime, uses, 2, &s->claim));
    CONF_OK(hd_claim_wait(s->claim, 60 * CONF_SECOND));
    CONF_OK(conf_fill(s->lane, s->k, s->x, 0, words, 7, &s->ticket));
}

static void no_wait_ends_early(void **state)
{
    (void)state;
    for (int i = 0; i < n_waits; i++) {
        scene s;
        storm signals;
        scene_begin(&s, limit_ms);
        storm_begin(&signals, NULL);
        int64_t begin = conf_now();
        hd_status status = waits[i].wait(&s, limit_ms * CONF_MILLISECOND);
        int64_t took = conf_now() - begin;
        storm_end(&signals);
        if (status != waits[i].too_long || took < limit_ms * CONF_MILLISECOND) {
            conf_fail_at(__FILE__, __LINE__, "%s: %s after %lld us: %s", waits[i].name, hd_status_name(status),
                         (long long)took / 1000, hd_message());
        }
        release(&s);
        conf_close(s.runtime);
    }
}

static void all_waits_end_with_what_they_wait_for(void **state)
{
    (void)state;
    for (int i = 0; i < n_waits; i++) {
        scene s;
        storm signals;
        scene_begin(&s, 600000);
        storm_begin(&signals, &s);
        hd_status status = waits[i].wait(&s, HD_FOREVER);
        CONF_TRUE(atomic_load(&handled) >= signals_first);
        storm_end(&signals);
        if (status != HD_OK) {
            conf_fail_at(__FILE__, __LINE__, "%s: %s: %s", waits[i].name, hd_status_name(status), hd_message());
        }
        conf_close(s.runtime);
    }
}

/* ---- hd_close ---- */

static void hd_close_waits_as_long(void **state)
{
    (void)state;
    for (int ends = 0; ends < 2; ends++) {
        scene s;
        storm signals;
        scene_begin(&s, ends ? 600000 : limit_ms);
        storm_begin(&signals, ends ? &s : NULL);
        conf_track(s.runtime, NULL);
        int64_t begin = conf_now();
        hd_status status = hd_close(s.runtime);
        CONF_TRUE(ends || conf_now() - begin >= limit_ms * CONF_MILLISECOND);
        storm_end(&signals);
        CONF_EQUAL(status, ends ? HD_OK : HD_ERROR_TIMEOUT);
    }
}

/* ---- calls that make requests ---- */

/* Opening, memory, modules, peers, a restart: their requests to the system and to worker processes
 * are interrupted, too. */
static void other_calls_succeed(void **state)
{
    (void)state;
    hd_runtime *first = conf_open("host_devices=2");
    CONF_NEED_DEVICES(first, 2);
    size_t size;
    wk_image(first, &size); /* made once; the tool that makes it is no part of this */
    conf_close(first);
    for (int round = 0; round < 3; round++) {
        storm signals;
        storm_begin(&signals, NULL);
        hd_runtime *runtime = conf_open("host_devices=2");
        wk_kernels k = wk_load(runtime);
        hd_buffer *x[2] = {NULL}, *pinned = NULL;
        const hd_alloc_options options = {.size = sizeof options, .flags = HD_ALLOC_DEDICATED};
        for (int d = 0; d < 2; d++) {
            CONF_OK(hd_alloc_with(conf_default_lane(runtime, d), 4 * mib, d ? &options : NULL, &x[d]));
            CONF_OK(hd_fill(x[d], 0, 5, 4 * mib, NULL));
        }
        CONF_OK(hd_alloc_host(runtime, 4 * mib, &pinned));
        CONF_OK(hd_copy(x[0], 0, x[1], 0, 4 * mib, NULL));
        CONF_OK(hd_copy(pinned, 0, x[0], 0, 4 * mib, NULL));
        hd_status status = conf_fill(conf_default_lane(runtime, 0), conf_builtins(runtime), x[1], 0, words, 6, NULL);
        CONF_TRUE(status == HD_OK || !conf_is_host(runtime)); /* GPUs may be no peers */
        CONF_FILLED(x[1], 0, status == HD_OK ? 6 : 5, bytes);
        CONF_FILLED(pinned, 0, 5, bytes);
        if (conf_is_process(runtime)) {
            CONF_EQUAL(kill(wk_pid(runtime, 0), SIGKILL), 0);
            while (wk_info(runtime, 0).losses == 0) {
                conf_sleep_ms(1);
            }
            CONF_OK(hd_device_restart(runtime, 0));
            wk_works(runtime, 0);
        }
        if (k.module != NULL) {
            CONF_OK(hd_module_unload(k.module));
        }
        CONF_OK(hd_memory_trim(runtime, 1, 0, NULL));
        hd_peer_info info = {.size = sizeof info};
        if (round == 0) { /* it takes a second */
            CONF_OK(hd_peers_check(runtime, HD_PEERS_AGAIN, NULL, NULL));
        }
        CONF_OK(hd_peer_check(runtime, 0, 1, &info));
        CONF_TRUE(info.verdict == HD_PEER_USABLE || !conf_is_host(runtime));
        conf_close(runtime);
        storm_end(&signals);
    }
}

int main(void)
{
    conf_begin("test_signals");
    const struct CMUnitTest tests[] = {
        CONF_CASE(no_wait_ends_early),
        CONF_CASE(all_waits_end_with_what_they_wait_for),
        CONF_CASE(hd_close_waits_as_long),
        CONF_CASE(other_calls_succeed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
