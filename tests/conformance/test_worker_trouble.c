/* test_worker_trouble.c - restarts that fail, meet each other, meet the next loss, or happen while
 * other devices work; and the reports of losses meanwhile.
 *
 * Promise: A restart that fails leaves the device lost and can be repeated until it succeeds.
 *
 * Threads: those of traffic.h, some that restart at the same time, and one that kills workers.
 * Locks: none.
 * Always: after a failure the device stays lost, and the call can be repeated until it returns
 * HD_OK.
 */
#include "traffic.h"

enum { words = 5000, bytes = words * 4 };

/* ---- while others work ---- */

/* In every possible way, many times, while the others compute and copy. */
static void others_work_meanwhile(void **state)
{
    (void)state;
    static const char *const peers[] = {"all", "none"};
    for (int i = 0; i < 2; i++) {
        hd_runtime *runtime = conf_open_with("host_peers=%s", peers[i]);
        CONF_NEED_DEVICES(runtime, 2);
        wk_kernels k = wk_load(runtime);
        int lost = hd_device_count(runtime) - 1;
        static traffic apart, all;
        traffic_start(&apart, runtime, lost, true, 1 << 18, false);
        hd_lane *lane = NULL;
        CONF_OK(hd_lane_create(runtime, lost, &lane));
        for (int round = 0; round < 6; round++) {
            static const int ways[] = {WK_KILL, WK_STRAY, WK_CRASH};
            int way = ways[round % 3];
            way = wk_can(runtime, way, k) ? way : WK_KILL;
            hd_buffer *x = NULL;
            traffic_start(&all, runtime, lost, true, 1 << 18, true);
            CONF_OK(hd_alloc(lane, bytes, &x));
            CONF_OK(hd_fill(x, 0, 0, bytes, NULL));
            traffic_goes_on(&all, 1);
            wk_lose(runtime, lost, way, k, lane, x);
            wk_told(runtime, lost, way, (uint64_t)round + 1);
            CONF_OK(hd_device_restart(runtime, lost));
            traffic_notices(&all);
            traffic_goes_on(&all, 1);
            traffic_stop(&all);
            conf_failure_ends_program = true; /* the others continue */
            hd_free(x);
            wk_check_facts(runtime, lost, (uint64_t)round + 1, (uint64_t)round + 1);
            wk_works(runtime, lost);
            traffic_goes_on(&apart, 1);
        }
        traffic_stop(&apart);
        wk_no_loss(runtime);
        conf_close(runtime);
    }
}

typedef struct restarter {
    hd_runtime *runtime;
    int device;
    hd_status status;
    pthread_t thread;
} restarter;

static void *restarts(void *argument)
{
    restarter *r = argument;
    r->status = hd_device_restart(r->runtime, r->device);
    return NULL;
}

/* Several threads restart one device, and all devices, at the same time. */
static void several_threads_restart(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    int count = hd_device_count(runtime);
    count = count > 4 ? 4 : count;
    for (int round = 0; round < 4; round++) {
        enum { n = 8 };
        restarter all[n];
        for (int d = 0; d < count; d++) {
            if (round % 2 == 0 || d == 0) {
                wk_lose_now(runtime, d);
            }
        }
        for (int i = 0; i < n; i++) {
            all[i] = (restarter){.runtime = runtime, .device = round % 2 == 0 ? i % count : 0};
            CONF_EQUAL(pthread_create(&all[i].thread, NULL, restarts, &all[i]), 0);
        }
        for (int i = 0; i < n; i++) {
            pthread_join(all[i].thread, NULL);
            CONF_EQUAL(all[i].status, HD_OK);
        }
        for (int d = 0; d < count; d++) {
            uint64_t losses = d == 0 ? (uint64_t)round + 1 : (uint64_t)round / 2 + 1;
            wk_check_facts(runtime, d, losses, losses);
            wk_works(runtime, d);
        }
        CONF_TRUE(conf_children_become(hd_device_count(runtime)));
    }
    conf_close(runtime);
}

/* ---- restarts that fail ---- */

/* The worker program is gone, and comes back. */
static void the_worker_program_is_gone(void **state)
{
    (void)state;
    const char *worker = getenv("HEDDLE_WORKER");
    if (worker == NULL || worker[0] == '\0') {
        skip();
    }
    char folder[] = "/tmp/heddle-test-XXXXXX", path[128], away[128];
    CONF_TRUE(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/heddle-worker", folder);
    snprintf(away, sizeof away, "%s/away", folder);
    wk_copy_file(worker, path);
    hd_runtime *runtime = conf_open_with("worker=%s worker_timeout=%d", path, wk_stuck_ms());
    int lost = hd_device_count(runtime) - 1;
    hd_buffer *x = NULL;
    hd_alloc_options keep = {.size = sizeof keep, .flags = HD_ALLOC_KEEP};
    hd_ticket ticket;
    CONF_OK(hd_alloc_with(conf_default_lane(runtime, lost), bytes, &keep, &x));
    CONF_OK(hd_fill(x, 0, 0x55, bytes, NULL));
    CONF_OK(hd_buffer_save(x, &ticket));
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    wk_lose_now(runtime, lost);
    wk_usage before = wk_use();
    CONF_EQUAL(rename(path, away), 0);
    for (int i = 0; i < 4; i++) {
        CONF_FAILS_WITH(hd_device_restart(runtime, lost), HD_ERROR_SYSTEM, path);
        hd_device_info info = wk_info(runtime, lost);
        CONF_TRUE(info.lost && info.losses == 1 && info.restarts == 0 && info.worker_pid == 0);
        CONF_FAILS(hd_read(x, 0, &(uint32_t){0}, 4), HD_ERROR_DEVICE_LOST);
        wk_no_loss(runtime);
    }
    FILE *script = fopen(path, "we"); /* one that starts, and never answers */
    CONF_TRUE(script != NULL && fputs("#!/bin/sh\nexec sleep 1000\n", script) >= 0 && fclose(script) == 0);
    CONF_EQUAL(chmod(path, 0700), 0);
    CONF_FAILS_WITH(hd_device_restart(runtime, lost), HD_ERROR_SYSTEM, path);
    wk_usage after = wk_use();
    CONF_EQUAL(after.children, before.children);
    CONF_EQUAL(after.descriptors, before.descriptors);
    CONF_TRUE(wk_info(runtime, lost).lost);
    wk_others_work(runtime, lost);
    CONF_EQUAL(rename(away, path), 0);
    CONF_OK(hd_device_restart(runtime, lost));
    wk_check_facts(runtime, lost, 1, 1);
    CONF_FILLED(x, 0, 0x55, bytes);
    wk_works(runtime, lost);
    conf_close(runtime);
    unlink(path);
    CONF_EQUAL(rmdir(folder), 0);
}

typedef struct killer {
    pid_t spared[64];
    int n_spared;
    atomic_bool stop;
    atomic_int killed;
} killer;

/* Kills every child that is not spared, as soon as it exists. */
static void *kills_what_is_new(void *argument)
{
    killer *k = argument;
    while (!atomic_load(&k->stop)) {
        DIR *proc = opendir("/proc");
        for (struct dirent *entry; proc != NULL && (entry = readdir(proc)) != NULL;) {
            pid_t pid = (pid_t)atoi(entry->d_name);
            bool spared = pid <= 0;
            for (int i = 0; i < k->n_spared; i++) {
                spared = spared || pid == k->spared[i];
            }
            char path[300], line[512] = "";
            snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
            FILE *file = spared ? NULL : fopen(path, "re");
            if (file != NULL) {
                size_t got = fread(line, 1, sizeof line - 1, file);
                line[got] = '\0';
                fclose(file);
            }
            const char *rest = strrchr(line, ')');
            int parent = 0;
            char letter = 0;
            if (rest != NULL && sscanf(rest, ") %c %d", &letter, &parent) == 2 && parent == (int)getpid() &&
                letter != 'Z' && kill(pid, SIGKILL) == 0) {
                atomic_fetch_add(&k->killed, 1);
            }
        }
        if (proc != NULL) {
            closedir(proc);
        }
    }
    return NULL;
}

/* The new worker is killed as well, at any moment of the restart. */
static void lost_again_meanwhile(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    int count = hd_device_count(runtime), lost = count - 1;
    hd_alloc_options keep = {.size = sizeof keep, .flags = HD_ALLOC_KEEP};
    hd_buffer *x = NULL;
    hd_ticket ticket;
    CONF_OK(hd_alloc_with(conf_default_lane(runtime, lost), 8 << 20, &keep, &x));
    CONF_OK(hd_fill(x, 0, 0x66, 8 << 20, NULL));
    CONF_OK(hd_buffer_save(x, &ticket));
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    static killer k;
    memset(&k, 0, sizeof k);
    for (int d = 0; d < count - 1 && d < 64; d++) {
        k.spared[k.n_spared++] = wk_pid(runtime, d);
    }
    pthread_t thread;
    CONF_EQUAL(kill(wk_pid(runtime, lost), SIGKILL), 0);
    CONF_EQUAL(wk_next_loss(runtime).device, lost);
    CONF_EQUAL(pthread_create(&thread, NULL, kills_what_is_new, &k), 0);
    int failures = 0;
    for (int i = 0; i < 20; i++) {
        hd_status status = hd_device_restart(runtime, lost);
        if (status != HD_OK) {
            CONF_TRUE(status == HD_ERROR_SYSTEM || status == HD_ERROR_DEVICE_LOST);
            CONF_TRUE(hd_message()[0] != '\0');
            failures++;
        }
    }
    atomic_store(&k.stop, true);
    pthread_join(thread, NULL);
    fprintf(stderr, "  %d of 20 restarts failed, %d workers killed\n", failures, atomic_load(&k.killed));
    CONF_TRUE(atomic_load(&k.killed) > 0);
    hd_status status = HD_OK;
    for (int i = 0; i < 10; i++) { /* the last kill may not be noticed yet */
        conf_sleep_ms(20);
        status = hd_device_restart(runtime, lost);
    }
    CONF_OK(status);
    CONF_FILLED(x, 0, 0x66, 8 << 20);
    wk_works(runtime, lost);
    hd_device_loss loss = {.size = sizeof loss};
    while (hd_loss_next(runtime, &loss) == HD_OK) {
        CONF_EQUAL(loss.device, lost);
    }
    for (int d = 0; d < count - 1; d++) {
        CONF_EQUAL(wk_info(runtime, d).losses, 0);
        wk_works(runtime, d);
    }
    CONF_TRUE(conf_children_become(count));
    conf_close(runtime);
}

/* Lost again before the loss was reported: reported once, with the newer facts. */
static void a_loss_is_told_once(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    int lost = hd_device_count(runtime) - 1;
    int descriptor = wk_descriptor(runtime);
    CONF_TRUE(!wk_readable(descriptor, 0));
    CONF_EQUAL(kill(wk_pid(runtime, lost), SIGKILL), 0);
    CONF_TRUE(wk_readable(descriptor, 60000));
    CONF_OK(hd_device_restart(runtime, lost));
    CONF_TRUE(wk_readable(descriptor, 0)); /* not reported yet, though it is back */
    pid_t pid = wk_pid(runtime, lost);
    hd_buffer *x = NULL;
    hd_ticket ticket;
    CONF_OK(hd_alloc(conf_default_lane(runtime, lost), bytes, &x));
    CONF_EQUAL(kill(pid, SIGSTOP), 0);
    while (wk_state(pid) != 'T') {
        conf_sleep_ms(1);
    }
    CONF_OK(hd_fill(x, 0, 1, bytes, &ticket));
    CONF_EQUAL(kill(pid, SIGKILL), 0);
    /* after it the loss is reported */
    CONF_FAILS(hd_wait(ticket, 60 * CONF_SECOND), HD_ERROR_DEVICE_LOST);
    hd_device_loss loss = wk_only_loss(runtime, lost);
    CONF_EQUAL(loss.losses, 2);
    CONF_EQUAL(loss.cause, HD_LOSS_WORKER_ENDED);
    CONF_EQUAL(loss.signal, SIGKILL);
    CONF_TRUE(!wk_readable(descriptor, 0));
    CONF_OK(hd_device_restart(runtime, lost));
    CONF_EQUAL(wk_descriptor(runtime), descriptor);
    wk_no_loss(runtime);
    wk_works(runtime, lost);
    conf_close(runtime);
}

/* With a lost device, with a restarted one, and right after a restart. */
static void closing_around_a_restart(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++) {
        hd_runtime *runtime = conf_open(NULL);
        int lost = hd_device_count(runtime) - 1;
        hd_buffer *x = NULL;
        CONF_OK(hd_alloc(conf_default_lane(runtime, lost), bytes, &x));
        CONF_OK(hd_fill(x, 0, 1, bytes, NULL));
        CONF_EQUAL(kill(wk_pid(runtime, lost), SIGKILL), 0);
        if (how > 0) {
            wk_only_loss(runtime, lost);
        }
        if (how > 1) {
            CONF_OK(hd_device_restart(runtime, lost));
        }
        if (how > 2) {
            wk_works(runtime, lost);
            pid_t pid = wk_pid(runtime, lost);
            CONF_EQUAL(kill(pid, SIGSTOP), 0);
            CONF_EQUAL(kill(pid, SIGKILL), 0);
        }
        conf_close(runtime);
        CONF_EQUAL(conf_children(), 0);
    }
}

int main(void)
{
    wk_begin("test_worker_trouble");
    const struct CMUnitTest tests[] = {
        CONF_CASE(others_work_meanwhile), CONF_CASE(several_threads_restart), CONF_CASE(the_worker_program_is_gone),
        CONF_CASE(lost_again_meanwhile),  CONF_CASE(a_loss_is_told_once),     CONF_CASE(closing_around_a_restart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
