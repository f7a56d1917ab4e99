/* test_worker_races.c - a device is lost, or comes back, while something else is half-way: an operation that was checked and waits
 * for room, a lane that is being given out, an owner that grows, a module that is being unloaded; and what a restart says of itself.
 *
 * Threads: a case's second thread (side) is stopped where it has to be by a worker that is stopped. Locks: none.
 * Always: where a thread did not get as far as was hoped for, the case still holds, it only shows less.
 */
#include <limits.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include "workers.h"

enum { words = 1 << 14, bytes = words * 4 };

/* ------------------------------------------------------------------------------------------------- the second thread -- */

typedef struct side {
    void (*function)(struct side *s);
    pthread_t thread;
    atomic_int id;     /* of the thread, for /proc */
    atomic_int begun;  /* operations */
    atomic_bool ended; /* it has nothing left to do */
    atomic_bool stop;
    hd_runtime *runtime;
    int device;
    hd_lane *lane;
    hd_buffer *x, *y;
    conf_kernels k;
    hd_module *module;
    hd_status status;
} side;

static void *side_runs(void *argument)
{
    side *s = argument;
    atomic_store(&s->id, (int)syscall(SYS_gettid));
    s->function(s);
    atomic_store(&s->ended, true);
    return NULL;
}

static void side_start(side *s)
{
    conf_failure_ends_program = true;
    CONF_EQUAL(pthread_create(&s->thread, NULL, side_runs, s), 0);
}

/* Waits until the thread has slept for a while over one operation, or has ended, or some seconds are over. */
static void side_settle(side *s)
{
    int quiet = 0, begun = -1;
    for (int i = 0; i < 2000 && quiet < 20 && !atomic_load(&s->ended); i++) {
        int now = atomic_load(&s->begun), id = atomic_load(&s->id);
        quiet = id != 0 && now == begun && wk_state(id) == 'S' ? quiet + 1 : 0;
        begun = now;
        conf_nap_ms(2);
    }
}

static void side_join(side *s)
{
    CONF_EQUAL(pthread_join(s->thread, NULL), 0);
    conf_failure_ends_program = false;
}

static void restart_works(hd_runtime *runtime, int device, uint64_t losses)
{
    CONF_OK(hd_device_restart(runtime, device));
    wk_check_facts(runtime, device, losses, losses);
}

/* A buffer of words, all finished. */
static hd_buffer *filled(hd_lane *lane, unsigned flags, uint32_t word)
{
    hd_alloc_options options = {.size = sizeof options, .flags = flags};
    hd_buffer *buffer = NULL;
    CONF_OK(hd_alloc_with(lane, bytes, &options, &buffer));
    CONF_OK(hd_fill(buffer, 0, word, bytes, NULL));
    CONF_OK(hd_buffer_wait(buffer, HD_READ_WRITE, 60 * CONF_SECOND));
    return buffer;
}

static void save(hd_buffer *buffer)
{
    hd_ticket ticket;
    CONF_OK(hd_buffer_save(buffer, &ticket));
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
}

/* No descriptor is left for this process until that is undone. */
static struct rlimit take_descriptors(void)
{
    struct rlimit before, none;
    int lowest = dup(2);
    CONF_TRUE(lowest >= 0 && close(lowest) == 0);
    CONF_EQUAL(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = (rlim_t)lowest;
    CONF_EQUAL(setrlimit(RLIMIT_NOFILE, &none), 0);
    return before;
}

static void give_descriptors(struct rlimit before)
{
    CONF_EQUAL(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* ------------------------------------------------------------------------------ operations checked before a loss -- */

static void reads_x_until_it_is_refused(side *s)
{
    for (s->status = HD_OK; s->status == HD_OK && !atomic_load(&s->stop); atomic_fetch_add(&s->begun, 1)) {
        s->status = conf_copy(s->lane, s->k, s->y, 0, s->x, 0, words, NULL);
    }
}

static void writes_x_until_it_is_refused(side *s)
{
    for (s->status = HD_OK; s->status == HD_OK && !atomic_load(&s->stop); atomic_fetch_add(&s->begun, 1)) {
        s->status = conf_fill(s->lane, s->k, s->x, 0, words, 77, NULL);
    }
}

/* A launch on a healthy device waits for room in its lane while the owner of a buffer that it uses is lost and brought back: what it
 * was checked with is no longer so. */
static void a_blocked_launch_is_refused(void (*function)(side *s), bool kept)
{
    hd_runtime *runtime = conf_open_with("lane_slots=64");
    CONF_NEED_DEVICES(runtime, 2);
    int owner = hd_device_count(runtime) - 1;
    if (!conf_reaches(runtime, 0, owner)) {
        conf_close(runtime);
        return;
    }
    side s = {.function = function, .runtime = runtime, .k = conf_builtins(runtime)};
    CONF_OK(hd_lane_create(runtime, 0, &s.lane));
    s.x = filled(hd_default_lane(runtime, owner), kept ? HD_ALLOC_KEEP : 0, 5);
    s.y = filled(s.lane, 0, 6);
    CONF_OK(conf_copy(s.lane, s.k, s.y, 0, s.x, 0, words, NULL));
    CONF_OK(hd_lane_wait(s.lane, 60 * CONF_SECOND));
    if (kept) {
        save(s.x);
    }
    pid_t worker = wk_pid(runtime, 0);
    CONF_EQUAL(kill(worker, SIGSTOP), 0);
    side_start(&s);
    side_settle(&s);
    int before = atomic_load(&s.begun);
    CONF_TRUE(!atomic_load(&s.ended));
    wk_lose_now(runtime, owner);
    restart_works(runtime, owner, 1);
    atomic_store(&s.stop, true);
    CONF_EQUAL(kill(worker, SIGCONT), 0);
    side_join(&s);
    CONF_EQUAL(s.status, HD_ERROR_DEVICE_LOST);
    CONF_EQUAL(atomic_load(&s.begun), before + 1); /* that one, not the next */
    CONF_OK(hd_lane_wait(s.lane, 60 * CONF_SECOND));
    if (kept) {
        CONF_FILLED(s.x, 0, 5, bytes);
        CONF_OK(conf_fill(s.lane, s.k, s.x, 0, words, 9, NULL));
        CONF_FILLED(s.x, 0, 9, bytes);
    } else {
        CONF_FAILS(hd_read(s.x, 0, &(uint32_t){0}, 4), HD_ERROR_DEVICE_LOST);
    }
    wk_others_work(runtime, owner);
    wk_works(runtime, owner);
    conf_close(runtime);
}

static void an_operation_checked_before_a_loss_is_refused(void **state)
{
    (void)state;
    a_blocked_launch_is_refused(reads_x_until_it_is_refused, false);
    a_blocked_launch_is_refused(writes_x_until_it_is_refused, false);
}

static void an_operation_checked_before_a_restore_is_refused(void **state)
{
    (void)state;
    a_blocked_launch_is_refused(reads_x_until_it_is_refused, true);
    a_blocked_launch_is_refused(writes_x_until_it_is_refused, true);
}

enum { many_bytes = 64 << 20 }; /* more than all the pinned chunks that copies pass through */

/* A staged copy is submitted as a whole, while the destination's worker takes none of it. The source is lost before any byte has arrived, and
 * comes back: neither what its memory held nor what is there now may count as copied. */
static void a_staged_copy_of_a_buffer_lost_meanwhile_fails(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open_with("host_peers=none");
    CONF_NEED_DEVICES(runtime, 2);
    int owner = hd_device_count(runtime) - 1;
    if (conf_reaches(runtime, 0, owner) || conf_reaches(runtime, owner, 0)) {
        conf_close(runtime);
        skip();
    }
    hd_buffer *x = NULL, *y = NULL;
    CONF_OK(hd_alloc(hd_default_lane(runtime, owner), many_bytes, &x));
    CONF_OK(hd_alloc(hd_default_lane(runtime, 0), many_bytes, &y));
    CONF_OK(hd_fill(x, 0, 1, many_bytes, NULL));
    CONF_OK(hd_fill(y, 0, 2, many_bytes, NULL));
    CONF_OK(hd_copy(y, 0, x, 0, many_bytes, NULL)); /* so that the chunks are pinned: a stopped worker pins none */
    CONF_OK(hd_buffer_wait(x, HD_READ_WRITE, 60 * CONF_SECOND));
    CONF_OK(hd_buffer_wait(y, HD_READ_WRITE, 60 * CONF_SECOND));
    pid_t worker = wk_pid(runtime, 0);
    CONF_EQUAL(kill(worker, SIGSTOP), 0);
    hd_ticket ticket;
    CONF_OK(hd_copy(y, 0, x, 0, many_bytes, &ticket)); /* does not wait for anybody */
    CONF_TRUE(!hd_done(ticket));
    wk_lose_now(runtime, owner);
    CONF_EQUAL(kill(worker, SIGCONT), 0);
    restart_works(runtime, owner, 1);
    CONF_FAILS(hd_wait(ticket, 60 * CONF_SECOND), HD_ERROR_DEVICE_LOST);
    CONF_FAILS(hd_read(y, many_bytes - 4, &(uint32_t){0}, 4), HD_ERROR_DEVICE_LOST);
    CONF_FAILS(hd_copy(y, 0, x, 0, many_bytes, NULL), HD_ERROR_DEVICE_LOST);
    CONF_OK(hd_fill(y, 0, 3, many_bytes, NULL));
    CONF_FILLED(y, 0, 3, bytes);
    wk_others_work(runtime, owner);
    wk_works(runtime, owner);
    conf_close(runtime);
}

/* ------------------------------------------------------------------------------------------------------------- lanes -- */

static void creates_a_lane(side *s)
{
    s->status = hd_lane_create(s->runtime, s->device, &s->lane);
}

/* One waits for the worker, which is stopped, the other for the first; then the device is lost and there is a lane to give out. */
static void a_lane_is_not_given_out_by_a_lost_device(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    int lost = hd_device_count(runtime) - 1;
    hd_lane *lane = NULL;
    CONF_OK(hd_lane_create(runtime, lost, &lane));
    pid_t worker = wk_pid(runtime, lost); /* to be asked before it is stopped */
    CONF_EQUAL(kill(worker, SIGSTOP), 0);
    side first = {.function = creates_a_lane, .runtime = runtime, .device = lost}, second = first;
    side_start(&first);
    side_settle(&first);
    side_start(&second);
    side_settle(&second);
    hd_lane_destroy(lane);
    CONF_EQUAL(kill(worker, SIGKILL), 0);
    side_join(&first);
    side_join(&second);
    CONF_EQUAL(first.status, HD_ERROR_DEVICE_LOST);
    CONF_EQUAL(second.status, HD_ERROR_DEVICE_LOST);
    wk_only_loss(runtime, lost);
    restart_works(runtime, lost, 1);
    CONF_OK(hd_lane_create(runtime, lost, &lane));
    wk_works(runtime, lost);
    conf_close(runtime);
}

static void restarts(side *s)
{
    s->status = hd_device_restart(s->runtime, s->device);
}

/* What a lane had been told to wait for when its device was lost has not been waited for; whether the restart waits for it, or the lane
 * once more. */
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
    hd_ticket earlier = hd_lane_ticket(healthy), ticket;
    CONF_OK(conf_copy(lane, builtin, z, 0, y, 0, words, NULL)); /* behind that */
    wk_lose_now(runtime, lost);
    side s = {.function = restarts, .runtime = runtime, .device = lost};
    side_start(&s);
    for (int i = 0; i < 60 * CONF_SLOWNESS && !atomic_load(&s.ended); i++) {
        conf_nap_ms(5);
    }
    bool early = atomic_load(&s.ended);
    if (early) { /* then whatever comes now has to wait */
        CONF_OK(s.status);
        CONF_OK(conf_fill(lane, builtin, y, 0, words, 9, &ticket));
        conf_nap_ms(100); /* it could run now */
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

/* ------------------------------------------------------------------------------------------------------------ memory -- */

static bool overlap(hd_buffer *a, hd_buffer *b)
{
    uint64_t x = hd_buffer_address(a), y = hd_buffer_address(b);
    return x < y + hd_buffer_size(b) && y < x + hd_buffer_size(a);
}

/* Addresses come again after some losses: what is freed then is not what has the address now. */
static void freeing_what_a_worker_took_along_frees_nothing_else(void **state)
{
    (void)state;
    enum { n = 17 };
    int rounds = conf_on_gpus ? 3 : n;
    hd_runtime *runtime = conf_open_with("host_devices=1 host_memory=64M");
    int device = hd_device_count(runtime) - 1;
    hd_lane *lane = hd_default_lane(runtime, device);
    hd_buffer *old[n], *live[2] = {NULL, NULL};
    for (int i = 0; i < rounds; i++) {
        CONF_OK(hd_alloc(lane, 1 << 20, &old[i]));
        wk_lose_now(runtime, device);
        restart_works(runtime, device, (uint64_t)i + 1);
    }
    CONF_OK(hd_alloc(lane, 1 << 20, &live[0]));
    CONF_OK(hd_fill(live[0], 0, 7, 1 << 20, NULL));
    for (int i = 0; i < rounds; i++) {
        hd_free(old[i]);
    }
    CONF_OK(hd_alloc(lane, 1 << 20, &live[1]));
    CONF_TRUE(!overlap(live[0], live[1]));
    CONF_OK(hd_fill(live[1], 0, 8, 1 << 20, NULL));
    CONF_FILLED(live[0], 0, 7, 1 << 20);
    conf_close(runtime);
}

/* Memory that an allocation took and gave back, because the pinned memory for its copy was not to be had, is still in use by whoever
 * used it before: here by work that waits for another device. */
static void memory_of_a_failed_allocation_stays_ordered(void **state)
{
    (void)state;
    enum { large = 16 << 20 };
    hd_runtime *runtime = conf_open_with("host_memory=64M");
    CONF_NEED_DEVICES(runtime, 2);
    wk_kernels k = wk_load(runtime);
    WK_NEED_KERNELS(runtime, k);
    if (!conf_reaches(runtime, 0, 1)) {
        conf_close(runtime);
        skip();
    }
    conf_kernels builtin = conf_builtins(runtime);
    hd_lane *far = NULL, *lane = NULL, *other = NULL;
    hd_buffer *x = NULL, *y = NULL, *z = NULL, *behind = NULL;
    hd_alloc_options keep = {.size = sizeof keep, .flags = HD_ALLOC_KEEP};
    CONF_OK(hd_lane_create(runtime, 1, &far));
    CONF_OK(hd_lane_create(runtime, 0, &lane));
    CONF_OK(hd_lane_create(runtime, 0, &other));
    hd_buffer *source = filled(far, 0, 1);
    CONF_OK(hd_alloc(lane, large, &x));
    CONF_OK(conf_copy(lane, builtin, x, 0, source, 0, words, NULL));
    CONF_OK(hd_lane_wait(lane, 60 * CONF_SECOND));
    wk_warm(runtime, 0, k);
    wk_warm(runtime, 1, k);
    for (int i = 0; i < 16 && hd_alloc(lane, 4 << 20, &behind) == HD_OK; i++) {
        /* so that there is no other place, and what is freed is not joined with other memory */
    }
    uint64_t at = hd_buffer_address(x);
    wk_gate gate;
    wk_gate_shut(&gate, runtime, far, k);
    CONF_OK(conf_fill(far, builtin, source, 0, words, 5, NULL));     /* behind the gate */
    CONF_OK(conf_copy(lane, builtin, x, 0, source, 0, words, NULL)); /* behind that */
    hd_free(x);
    struct rlimit before = take_descriptors();
    hd_status status = hd_alloc_with(other, large, &keep, &y);
    give_descriptors(before);
    CONF_TRUE(status != HD_OK && status != HD_ERROR_DEVICE_LOST);
    CONF_OK(hd_alloc(other, large, &z));
    CONF_TRUE(conf_on_gpus || hd_buffer_address(z) == at); /* else this shows nothing */
    CONF_OK(conf_fill(other, builtin, z, 0, words, 9, NULL));
    conf_nap_ms(100); /* it could run now */
    wk_gate_open(&gate);
    CONF_OK(hd_lane_wait(lane, 60 * CONF_SECOND));
    CONF_FILLED(z, 0, 9, bytes);
    hd_unmap(gate.pinned);
    wk_no_loss(runtime);
    conf_close(runtime);
}

/* ----------------------------------------------------------------------------------------------------------- restart -- */

/* An allocation may know that the worker is gone before anybody else does; then it is lost, and the restart is one. */
static void a_restart_after_a_refusal_is_a_restart(void **state)
{
    (void)state;
    enum { rounds = 16, most = 12 };
    hd_runtime *runtime = conf_open_with("host_devices=1 host_memory=1G");
    int device = hd_device_count(runtime) - 1;
    hd_lane *lane = hd_default_lane(runtime, device);
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

/* Every kept buffer, not only the last one. */
static void a_restart_that_restores_less_than_all_fails(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open_with("host_devices=1 fault=cuMemcpyHtoDAsync:1=2");
    int device = hd_device_count(runtime) - 1;
    hd_lane *lane = hd_default_lane(runtime, device);
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
    hd_device_info_t first = wk_info(s->runtime, s->device);
    for (s->status = HD_OK; !atomic_load(&s->stop); atomic_fetch_add(&s->begun, 1)) {
        hd_device_info_t info = wk_info(s->runtime, s->device);
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

/* ------------------------------------------------------------------------------------------------------- peer access -- */

static void grows(side *s)
{
    for (s->status = HD_OK; s->status == HD_OK && !atomic_load(&s->stop) && atomic_load(&s->begun) < 40;
         atomic_fetch_add(&s->begun, 1)) {
        hd_buffer *more = NULL;
        s->status = hd_alloc(s->lane, 64 << 20, &more);
        conf_nap_ms(10);
    }
}

/* Whoever asks before the device counts as working is told no, but only for that time. */
static void launches_on_the_lost(side *s)
{
    for (s->status = HD_OK; !atomic_load(&s->stop); atomic_fetch_add(&s->begun, 1)) {
        s->status = conf_fill(s->lane, s->k, s->x, 0, words, 3, NULL);
        conf_nap_ms(1);
    }
}

/* The peer's start is held up, so that there is time for the side. */
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
    hd_lane *owners = hd_default_lane(runtime, 0), *peers = hd_default_lane(runtime, peer);
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
    for (int i = 0; i < 2; i++) { /* what was there, and what is new */
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

static void a_moment_without_descriptors_is_not_remembered(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    CONF_NEED_DEVICES(runtime, 2);
    int peer = hd_device_count(runtime) - 1;
    if (!conf_reaches(runtime, peer, 0)) {
        conf_close(runtime);
        skip();
    }
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane = hd_default_lane(runtime, peer);
    hd_buffer *x = filled(hd_default_lane(runtime, 0), 0, 1);
    struct rlimit before = take_descriptors();
    hd_status status = conf_fill(lane, k, x, 0, words, 2, NULL);
    give_descriptors(before);
    CONF_EQUAL(status, HD_ERROR_UNREACHABLE);
    CONF_OK(conf_fill(lane, k, x, 0, words, 3, NULL));
    CONF_FILLED(x, 0, 3, bytes);
    wk_no_loss(runtime);
    conf_close(runtime);
}

/* ----------------------------------------------------------------------------------------------------------- modules -- */

static void unloads(side *s)
{
    hd_module_unload(s->module);
}

/* Unloading is held up at the first device while the last one is lost and comes back with a worker that numbers modules anew. */
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
        conf_nap_ms(5); /* it may have to wait for the other */
    }
    CONF_EQUAL(kill(worker, SIGCONT), 0);
    side_join(&unloading);
    side_join(&restarting);
    CONF_OK(restarting.status);
    wk_check_facts(runtime, lost, 1, 1);
    hd_buffer *x = filled(hd_default_lane(runtime, lost), 0, 1), *y = filled(hd_default_lane(runtime, lost), 0, 2);
    CONF_OK(conf_copy(hd_default_lane(runtime, lost), k, y, 0, x, 0, words, NULL));
    CONF_FILLED(y, 0, 1, bytes);
    wk_works(runtime, lost);
    wk_others_work(runtime, lost);
    conf_close(runtime);
    if (was >= 0) {
        personality((unsigned long)was);
    }
}

/* --------------------------------------------------------------------------------------- what surrounds the program -- */

static void a_relative_worker_outlives_a_change_of_directory(void **state)
{
    (void)state;
    char path[PATH_MAX], folder[] = "/tmp/heddle-test-XXXXXX", link[64];
    const char *worker = getenv("HEDDLE_WORKER");
    if (worker == NULL || realpath(worker, path) == NULL) {
        skip();
    }
    CONF_TRUE(mkdtemp(folder) != NULL);
    snprintf(link, sizeof link, "%s/worker", folder);
    CONF_EQUAL(symlink(path, link), 0);
    int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CONF_TRUE(here >= 0 && chdir(folder) == 0);
    hd_runtime *runtime = conf_open_with("host_devices=1 worker=./worker");
    CONF_EQUAL(chdir("/"), 0);
    int device = hd_device_count(runtime) - 1;
    wk_lose_now(runtime, device);
    hd_status status = hd_device_restart(runtime, device);
    CONF_TRUE(fchdir(here) == 0 && close(here) == 0 && unlink(link) == 0 && rmdir(folder) == 0);
    CONF_OK(status);
    wk_works(runtime, device);
    conf_close(runtime);
}

/* A path that cannot be written in a settings string, and a variable that has become nonsense, are not the workers' business. */
static void workers_do_not_read_the_environment_again(void **state)
{
    (void)state;
    char path[PATH_MAX], before[PATH_MAX], folder[] = "/tmp/heddle-test-XXXXXX", link[64];
    const char *worker = getenv("HEDDLE_WORKER");
    if (worker == NULL || realpath(worker, path) == NULL || getenv("HEDDLE_SPIN_US") != NULL) {
        skip();
    }
    snprintf(before, sizeof before, "%s", worker);
    CONF_TRUE(mkdtemp(folder) != NULL);
    snprintf(link, sizeof link, "%s/a \"worker\"", folder);
    CONF_EQUAL(symlink(path, link), 0);
    CONF_EQUAL(setenv("HEDDLE_WORKER", link, 1), 0);
    hd_runtime *runtime = NULL;
    hd_status status = conf_try_open("host_devices=1", &runtime);
    CONF_EQUAL(setenv("HEDDLE_WORKER", before, 1), 0);
    if (status == HD_OK) {
        int device = hd_device_count(runtime) - 1;
        wk_lose_now(runtime, device);
        CONF_EQUAL(setenv("HEDDLE_SPIN_US", "nonsense", 1), 0);
        status = hd_device_restart(runtime, device);
        CONF_EQUAL(unsetenv("HEDDLE_SPIN_US"), 0);
        conf_close(runtime);
    }
    CONF_TRUE(unlink(link) == 0 && rmdir(folder) == 0);
    CONF_OK(status);
}

static void a_runtime_opens_with_few_descriptors(void **state)
{
    (void)state;
    struct rlimit before, few;
    CONF_EQUAL(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = (rlim_t)wk_use().descriptors + 40;
    if (conf_on_gpus || few.rlim_cur >= 128 || few.rlim_cur > before.rlim_cur) {
        skip();
    }
    CONF_EQUAL(setrlimit(RLIMIT_NOFILE, &few), 0);
    hd_runtime *runtime = NULL;
    hd_status status = conf_try_open("host_devices=2", &runtime);
    if (status == HD_OK) {
        wk_works(runtime, 1);
        conf_close(runtime);
    }
    give_descriptors(before);
    CONF_OK(status);
}

int main(void)
{
    wk_begin("test_worker_races");
    const struct CMUnitTest tests[] = {
        CONF_CASE(an_operation_checked_before_a_loss_is_refused),
        CONF_CASE(an_operation_checked_before_a_restore_is_refused),
        CONF_CASE(a_staged_copy_of_a_buffer_lost_meanwhile_fails),
        CONF_CASE(a_lane_is_not_given_out_by_a_lost_device),
        CONF_CASE(a_restarted_lane_keeps_the_order_with_other_devices),
        CONF_CASE(freeing_what_a_worker_took_along_frees_nothing_else),
        CONF_CASE(memory_of_a_failed_allocation_stays_ordered),
        CONF_CASE(a_restart_after_a_refusal_is_a_restart),
        CONF_CASE(a_restart_that_restores_less_than_all_fails),
        CONF_CASE(facts_are_read_while_a_device_comes_back),
        CONF_CASE(peer_access_outlives_growth_during_a_restart),
        CONF_CASE(peer_access_outlives_questions_during_a_restart),
        CONF_CASE(a_moment_without_descriptors_is_not_remembered),
        CONF_CASE(unloading_during_a_restart_unloads_nothing_else),
        CONF_CASE(a_relative_worker_outlives_a_change_of_directory),
        CONF_CASE(workers_do_not_read_the_environment_again),
        CONF_CASE(a_runtime_opens_with_few_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
