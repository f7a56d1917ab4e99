/* test_worker_returns.c - a device restarts in the middle of another operation, and the restart's
 * own report.
 *
 * Promise: A restart restores everything in the middle of any operation of other threads.
 *
 * The operation is a wait of a lane for another device, growth of an owner, an unload, or a request
 * for facts.
 *
 * Threads: the main one, and those of side.h.
 * Locks: none.
 * Always: a restart that succeeds restored everything. An operation in between behaves as if it
 * came before or after.
 */
#include <sys/personality.h>
#include "side.h"

/* ---- lanes ---- */

static void restarts(side *s)
{
    s->status = hd_device_restart(s->runtime, s->device);
}

/* A lane had to wait for another device when its own was lost, so the wait did not happen. Either
 * the restart waits for it, or the lane waits again. */
static void a_restarted_lane_keeps_the_order_with_other_devices(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    CONF_NEED_DEVICES(runtime, 2);
    wk_kernels k = wk_load(runtime);
    WK_NEED_KERNELS(runtime, k);
    int lost = hd_device_count(runtime) - 1;
    if (!conf_reaches(runtime, lost, 0)) {
        conf_close(runtime);
        skip();
    }
    conf_kernels builtin = conf_builtins(runtime);
    hd_lane *healthy = NULL, *lane = NULL;
    CONF_OK(hd_lane_create(runtime, 0, &healthy));
    CONF_OK(hd_lane_create(runtime, lost, &lane));
    hd_buffer *y = filled(healthy, 0, 1), *z = filled(lane, 0, 2);
    CONF_OK(conf_copy(lane, builtin, z, 0, y, 0, words, NULL));
    CONF_OK(hd_lane_wait(lane, 60 * CONF_SECOND));
    wk_warm(runtime, 0, k);
    wk_gate gate;
    wk_gate_shut(&gate, runtime, healthy, k);
    CONF_OK(conf_fill(healthy, builtin, y, 0, words, 5, NULL)); /* behind the gate */
    hd_ticket earlier = conf_lane_ticket(healthy), ticket;
    CONF_OK(conf_copy(lane, builtin, z, 0, y, 0, words, NULL)); /* behind that */
    wk_lose_now(runtime, lost);
    side s = {.function = restarts, .runtime = runtime, .device = lost};
    side_start(&s);
    for (int i = 0; i < 60 * CONF_SLOWNESS && !atomic_load(&s.ended); i++) {
        conf_sleep_ms(5);
    }
    bool early = atomic_load(&s.ended);
    if (early) { /* then the next work must wait */
        CONF_OK(s.status);
        CONF_OK(conf_fill(lane, builtin, y, 0, words, 9, &ticket));
        conf_sleep_ms(100); /* time in which it could wrongly run */
    }
    wk_gate_open(&gate);
    side_join(&s);
    CONF_OK(s.status);
    wk_check_facts(runtime, lost, 1, 1);
    if (!early) {
        CONF_OK(conf_fill(lane, builtin, y, 0, words, 9, &ticket));
    }
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    CONF_TRUE(hd_done(earlier));
    CONF_OK(hd_lane_wait(healthy, 60 * CONF_SECOND));
    CONF_FILLED(y, 0, 9, bytes);
    hd_unmap(gate.pinned);
    conf_close(runtime);
}

/* ---- restart ---- */

/* An allocation may notice first that the worker is gone. Then the device is lost, and the restart
 * is a real one. */
static void a_restart_after_a_refusal_is_a_restart(void **state)
{
    (void)state;
    enum { rounds = 16, most = 12 };
    hd_runtime *runtime = conf_open_with("host_devices=1 host_memory=1G");
    int device = hd_device_count(runtime) - 1;
    hd_lane *lane = conf_default_lane(runtime, device);
    for (int i = 0; i < (conf_on_gpus ? 3 : rounds); i++) {
        hd_buffer *x[most], *y = NULL;
        hd_status status = HD_OK;
        int n = 0;
        CONF_EQUAL(kill(wk_pid(runtime, device), SIGKILL), 0);
        while (n < most && (status = hd_alloc(lane, 64 << 20, &x[n])) == HD_OK) {
            n++;
        }
        CONF_TRUE(status == HD_ERROR_DEVICE_LOST || n == most);
        if (n == most) {
            CONF_TRUE(wk_readable(wk_descriptor(runtime), 60000));
        }
        restart_works(runtime, device, (uint64_t)i + 1);
        CONF_OK(hd_alloc(lane, bytes, &y));
        CONF_EQUAL(wk_next_loss(runtime).losses, i + 1);
        for (int j = 0; j < n; j++) {
            hd_free(x[j]);
        }
        hd_free(y);
    }
    conf_close(runtime);
}

/* Every checkpointed buffer, not only the last one. */
static void a_restart_that_restores_less_than_all_fails(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open_with("host_devices=1 fault=cuMemcpyHtoDAsync:1=2");
    int device = hd_device_count(runtime) - 1;
    hd_lane *lane = conf_default_lane(runtime, device);
    hd_buffer *kept[3];
    for (int i = 0; i < 3; i++) {
        kept[i] = filled(lane, HD_ALLOC_KEEP, 7 + (uint32_t)i);
        save(kept[i]);
    }
    wk_lose_now(runtime, device);
    for (int round = 0; round < 2; round++) { /* every fresh worker counts anew */
        hd_status status = hd_device_restart(runtime, device);
        CONF_TRUE(status != HD_OK);
        CONF_FAILS(status, status);
        CONF_TRUE(wk_info(runtime, device).lost);
    }
    for (int i = 0; i < 3; i++) {
        CONF_FAILS(hd_read(kept[i], 0, &(uint32_t){0}, 4), HD_ERROR_DEVICE_LOST);
        hd_free(kept[i]);
    }
    CONF_OK(hd_device_restart(runtime, device));
    conf_close(runtime);
}

static void asks_for_facts(side *s)
{
    hd_device_info first = wk_info(s->runtime, s->device);
    for (s->status = HD_OK; !atomic_load(&s->stop); atomic_fetch_add(&s->begun, 1)) {
        hd_device_info info = wk_info(s->runtime, s->device);
        CONF_TRUE(strcmp(info.name, first.name) == 0 && info.memory_bytes == first.memory_bytes);
        CONF_EQUAL(info.peers, first.peers);
    }
}

static void facts_are_read_while_a_device_comes_back(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    side s = {.function = asks_for_facts, .runtime = runtime, .device = hd_device_count(runtime) - 1};
    side_start(&s);
    for (int i = 0; i < 3; i++) {
        wk_lose_now(runtime, s.device);
        restart_works(runtime, s.device, (uint64_t)i + 1);
    }
    atomic_store(&s.stop, true);
    side_join(&s);
    conf_close(runtime);
}

/* ---- peer access ---- */

static void grows(side *s)
{
    for (s->status = HD_OK; s->status == HD_OK && !atomic_load(&s->stop) && atomic_load(&s->begun) < 40;
         atomic_fetch_add(&s->begun, 1)) {
        hd_buffer *more = NULL;
        s->status = hd_alloc(s->lane, 64 << 20, &more);
        conf_sleep_ms(10);
    }
}

/* A launch before the device counts as working is refused, but only for that time. */
static void launches_on_the_lost(side *s)
{
    for (s->status = HD_OK; !atomic_load(&s->stop); atomic_fetch_add(&s->begun, 1)) {
        s->status = conf_fill(s->lane, s->k, s->x, 0, words, 3, NULL);
        conf_sleep_ms(1);
    }
}

/* The peer's start is held up, so that the side gets time. */
static void a_peer_returns_while(void (*function)(side *s), bool lane_of_peer)
{
    hd_runtime *runtime = conf_open_with("host_devices=2 host_memory=4G delay=cuModuleLoadDataEx:1+=150000");
    CONF_NEED_DEVICES(runtime, 2);
    int peer = hd_device_count(runtime) - 1;
    if (!conf_reaches(runtime, peer, 0)) {
        conf_close(runtime);
        skip();
    }
    conf_kernels k = conf_builtins(runtime);
    hd_lane *owners = conf_default_lane(runtime, 0), *peers = conf_default_lane(runtime, peer);
    hd_buffer *x = filled(owners, 0, 1);
    CONF_OK(conf_fill(peers, k, x, 0, words, 2, NULL));
    CONF_FILLED(x, 0, 2, bytes);
    wk_lose_now(runtime, peer);
    side s = {.function = function, .runtime = runtime, .k = k, .x = x, .lane = lane_of_peer ? peers : owners};
    side_start(&s);
    restart_works(runtime, peer, 1);
    atomic_store(&s.stop, true);
    side_join(&s);
    CONF_TRUE(lane_of_peer || s.status == HD_OK);
    for (int i = 0; i < 2; i++) { /* old buffers, and new ones */
        CONF_OK(conf_fill(peers, k, x, 0, words, 4, NULL));
        CONF_FILLED(x, 0, 4, bytes);
        CONF_OK(hd_alloc(owners, 64 << 20, &x));
    }
    wk_works(runtime, peer);
    wk_others_work(runtime, peer);
    conf_close(runtime);
}

static void peer_access_outlives_growth_during_a_restart(void **state)
{
    (void)state;
    a_peer_returns_while(grows, false);
}

static void peer_access_outlives_questions_during_a_restart(void **state)
{
    (void)state;
    a_peer_returns_while(launches_on_the_lost, true);
}

/* ---- modules ---- */

static void unloads(side *s)
{
    hd_module_unload(s->module);
}

/* The unload is held up at the first device. Meanwhile the last one is lost and restarts with a
 * worker that numbers modules anew. */
static void unloading_during_a_restart_unloads_nothing_else(void **state)
{
    (void)state;
    int was = personality(0xffffffff); /* two workers that do the same then use the same numbers */
    if (was >= 0) {
        personality((unsigned long)was | ADDR_NO_RANDOMIZE);
    }
    hd_runtime *runtime = conf_open_with("host_devices=2");
    CONF_NEED_DEVICES(runtime, 2);
    size_t size = 0;
    const void *image = wk_image(runtime, &size);
    if (image == NULL) {
        conf_close(runtime);
        skip();
    }
    int lost = hd_device_count(runtime) - 1;
    side unloading = {.function = unloads, .runtime = runtime};
    side restarting = {.function = restarts, .runtime = runtime, .device = lost};
    CONF_OK(hd_module_load(runtime, image, size, &unloading.module)); /* before the built-in one */
    conf_kernels k = conf_builtins(runtime);
    pid_t worker = wk_pid(runtime, 0);
    CONF_EQUAL(kill(worker, SIGSTOP), 0);
    side_start(&unloading);
    side_settle(&unloading);
    wk_lose_now(runtime, lost);
    side_start(&restarting);
    for (int i = 0; i < 100 * CONF_SLOWNESS && !atomic_load(&restarting.ended); i++) {
        conf_sleep_ms(5); /* it may wait for the other one */
    }
    CONF_EQUAL(kill(worker, SIGCONT), 0);
    side_join(&unloading);
    side_join(&restarting);
    CONF_OK(restarting.status);
    wk_check_facts(runtime, lost, 1, 1);
    hd_buffer *x = filled(conf_default_lane(runtime, lost), 0, 1), *y = filled(conf_default_lane(runtime, lost), 0, 2);
    CONF_OK(conf_copy(conf_default_lane(runtime, lost), k, y, 0, x, 0, words, NULL));
    CONF_FILLED(y, 0, 1, bytes);
    wk_works(runtime, lost);
    wk_others_work(runtime, lost);
    conf_close(runtime);
    if (was >= 0) {
        personality((unsigned long)was);
    }
}

int main(void)
{
    wk_begin("test_worker_returns");
    const struct CMUnitTest tests[] = {
        CONF_CASE(a_restarted_lane_keeps_the_order_with_other_devices),
        CONF_CASE(a_restart_after_a_refusal_is_a_restart),
        CONF_CASE(a_restart_that_restores_less_than_all_fails),
        CONF_CASE(facts_are_read_while_a_device_comes_back),
        CONF_CASE(peer_access_outlives_growth_during_a_restart),
        CONF_CASE(peer_access_outlives_questions_during_a_restart),
        CONF_CASE(unloading_during_a_restart_unloads_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
