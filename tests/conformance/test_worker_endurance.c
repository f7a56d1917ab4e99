/* test_worker_endurance.c - very many faults and restarts in a row: nothing piles up, and the last
 * restart is as good as the first.
 *
 * Promise: A thousand losses and restarts leave no descriptor, mapping, memory or process behind.
 * Tier: stress.
 *
 * There are HEDDLE_FAULT_ROUNDS rounds (1000 on host devices, fewer under a sanitizer; 50 on GPUs).
 *
 * Threads: one that works on the other device all the time.
 * Locks: none.
 * Always: each round works before the fault, during it, and after the restart.
 */
#include "workers.h"

enum { words = 1000, bytes = words * 4 };

typedef struct bystander {
    hd_runtime *runtime;
    int device;
    hd_buffer *pinned;
    atomic_bool stop;
    atomic_int rounds;
    pthread_t thread;
} bystander;

/* Small and slow work, which takes little of the processors. All of it must be exact. */
static void *goes_on(void *argument)
{
    bystander *b = argument;
    conf_kernels k = conf_builtins(b->runtime);
    hd_lane *lane = conf_default_lane(b->runtime, b->device);
    hd_buffer *x = NULL;
    CONF_OK(hd_alloc(lane, bytes, &x));
    while (!atomic_load(&b->stop)) {
        uint32_t word = (uint32_t)atomic_fetch_add(&b->rounds, 1);
        CONF_OK(conf_fill(lane, k, x, 0, words, word, NULL));
        CONF_OK(hd_copy(b->pinned, 0, x, 0, bytes, NULL));
        CONF_FILLED(b->pinned, 0, word, bytes);
        conf_sleep_ms(5);
    }
    hd_free(x);
    return NULL;
}

typedef struct round_state {
    hd_runtime *runtime;
    conf_kernels builtin;
    wk_kernels k;
    int lost, other;
    hd_lane *lane, *reader; /* on the lost device, and on the other one */
    hd_buffer *kept, *pinned, *away;
} round_state;

static int way_of(const round_state *s, int round)
{
    static const int ways[] = {WK_KILL, WK_STRAY, WK_KILL, WK_CRASH, WK_KILL, WK_LEAVE};
    int way = ways[round % 6];
    return wk_can(s->runtime, way, s->k) ? way : WK_KILL;
}

static void one_round(round_state *s, int round)
{
    uint32_t word = (uint32_t)round * 16;
    hd_buffer *x = NULL, *y = NULL;
    hd_lane *fresh = NULL;
    hd_ticket ticket = {NULL, 0};
    CONF_OK(hd_lane_create(s->runtime, s->lost, &fresh));
    CONF_OK(hd_alloc(s->lane, bytes, &x));
    CONF_OK(hd_alloc(fresh, bytes, &y));
    CONF_OK(conf_fill(s->lane, s->builtin, x, 0, words, word, NULL));
    CONF_OK(hd_copy(y, 0, x, 0, bytes, NULL));
    if (s->other != s->lost) { /* over the peers, in both directions */
        CONF_OK(hd_copy(s->away, 0, y, 0, bytes, NULL));
        if (conf_reaches(s->runtime, s->other, s->lost)) {
            CONF_OK(conf_fill(s->reader, s->builtin, y, 0, words / 2, word + 1, NULL));
        }
        CONF_FILLED(s->away, 0, word, bytes);
    }
    CONF_OK(hd_copy(s->pinned, 0, x, 0, bytes, NULL));
    CONF_FILLED(s->pinned, 0, word, bytes);
    CONF_FILLED(s->kept, 0, word == 0 ? 0 : word - 16 + 2, bytes); /* from the round before */
    CONF_OK(hd_fill(s->kept, 0, word + 2, bytes, NULL));
    CONF_OK(hd_buffer_save(s->kept, &ticket));
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    for (int i = 0; i < 5; i++) { /* in flight, or not even issued */
        CONF_OK(conf_fill(fresh, s->builtin, y, 0, words, 9, &ticket));
    }
    int way = way_of(s, round);
    wk_lose(s->runtime, s->lost, way, s->k, s->lane, x);
    wk_told(s->runtime, s->lost, way, (uint64_t)round + 1);
    hd_status status = hd_wait(ticket, 60 * CONF_SECOND);
    CONF_TRUE(status == HD_OK || status == HD_ERROR_DEVICE_LOST);
    if (round % 2 == 0) {
        hd_free(x);
        hd_lane_destroy(fresh);
    }
    CONF_OK(hd_device_restart(s->runtime, s->lost));
    if (round % 2 != 0) {
        hd_free(x);
        hd_lane_destroy(fresh);
    }
    hd_free(y);
    if (s->other != s->lost) {
        CONF_OK(hd_fill(s->away, 0, 0, bytes, NULL));
    }
}

static void faults_and_restarts(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=2 host_memory=64M");
    round_state s = {.runtime = runtime, .lost = hd_device_count(runtime) - 1, .other = 0};
    int rounds = conf_is_host(runtime) ? (CONF_TSAN ? 60 : CONF_ASAN ? 150 : 1000) : 50;
    rounds = (int)conf_number_from("HEDDLE_FAULT_ROUNDS", (uint64_t)rounds);
    hd_alloc_options keep = {.size = sizeof keep, .flags = HD_ALLOC_KEEP};
    s.builtin = conf_builtins(runtime);
    s.k = wk_load(runtime);
    CONF_OK(hd_lane_create(runtime, s.lost, &s.lane));
    CONF_OK(hd_lane_create(runtime, s.other, &s.reader));
    CONF_OK(hd_alloc_with(s.lane, bytes, &keep, &s.kept));
    CONF_OK(hd_fill(s.kept, 0, 0, bytes, NULL));
    CONF_OK(hd_alloc(s.reader, bytes, &s.away));
    CONF_OK(hd_alloc_host(runtime, bytes, &s.pinned));
    static bystander by;
    memset(&by, 0, sizeof by);
    by.runtime = runtime, by.device = s.other;
    CONF_OK(hd_alloc_host(runtime, bytes, &by.pinned));
    bool alone = s.other != s.lost;
    conf_failure_ends_program = alone;
    if (alone) {
        CONF_EQUAL(pthread_create(&by.thread, NULL, goes_on, &by), 0);
    }
    wk_usage early = {0}, late = {0};
    int warm = rounds / 4 < 100 ? rounds / 4 : 100;
    int64_t begin = conf_now();
    for (int i = 0; i < rounds; i++) {
        conf_watch("a round of faults and restarts", 60);
        one_round(&s, i);
        if (i == warm) {
            early = wk_use();
        }
    }
    int seen = atomic_load(&by.rounds);
    while (alone && atomic_load(&by.rounds) < seen + 3) {
        conf_sleep_ms(1);
    }
    late = wk_use();
    wk_check_facts(runtime, s.lost, (uint64_t)rounds, (uint64_t)rounds);
    fprintf(stderr,
            "  %d rounds in %.1f s. Descriptors %d to %d, mappings %d to %d, threads %d to %d, children %d to %d, "
            "resident %ld to %ld kB\n",
            rounds, (double)(conf_now() - begin) / 1e9, early.descriptors, late.descriptors, early.mappings,
            late.mappings, early.threads, late.threads, early.children, late.children, early.resident_kb,
            late.resident_kb);
    CONF_TRUE(late.descriptors <= early.descriptors + 1);
    CONF_TRUE(late.threads <= early.threads + 1);
    CONF_EQUAL(late.children, hd_device_count(runtime));
    if (CONF_SLOWNESS == 1) { /* sanitizers map and keep their own memory */
        CONF_TRUE(late.mappings <= early.mappings + 8);
        CONF_TRUE(late.resident_kb <= early.resident_kb + 4096);
    }
    if (alone) {
        atomic_store(&by.stop, true);
        pthread_join(by.thread, NULL);
        CONF_EQUAL(wk_info(runtime, s.other).losses, 0);
    }
    conf_failure_ends_program = false;
    wk_works(runtime, s.lost);
    wk_no_loss(runtime);
    hd_device_stats stats = {.size = sizeof stats};
    CONF_OK(hd_device_get_stats(runtime, s.lost, &stats));
    CONF_EQUAL(stats.buffers_live, 1);
    conf_close(runtime);
}

/* The worker of the other device does not grow, either: its mappings of its peer's memory go with
 * the peer. */
static void the_other_worker_stays_small(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=2 host_memory=64M");
    CONF_NEED_DEVICES(runtime, 2);
    conf_kernels k = conf_builtins(runtime);
    int lost = hd_device_count(runtime) - 1, rounds = conf_is_host(runtime) ? (CONF_SLOWNESS > 1 ? 20 : 60) : 10;
    pid_t other = wk_pid(runtime, 0);
    hd_lane *here = conf_default_lane(runtime, 0);
    hd_buffer *mine = NULL;
    CONF_OK(hd_alloc(here, 8 << 20, &mine));
    int descriptors = 0, mappings = 0;
    char fds[64], maps[64], line[512];
    snprintf(fds, sizeof fds, "/proc/%d/fd", (int)other);
    snprintf(maps, sizeof maps, "/proc/%d/maps", (int)other);
    for (int i = 0; i < rounds; i++) {
        hd_buffer *x = NULL;
        CONF_OK(hd_alloc(conf_default_lane(runtime, lost), 8 << 20, &x));
        CONF_OK(hd_fill(x, 0, (uint32_t)i, 8 << 20, NULL));
        CONF_OK(hd_copy(mine, 0, x, 0, 8 << 20, NULL));
        if (conf_reaches(runtime, 0, lost)) {
            CONF_OK(conf_copy(here, k, mine, 0, x, 0, 1 << 20, NULL));
        }
        CONF_FILLED(mine, 0, (uint32_t)i, 8 << 20);
        int n = 0;
        FILE *file = fopen(maps, "re");
        while (file != NULL && fgets(line, sizeof line, file) != NULL) {
            n += strchr(line, '\n') != NULL;
        }
        if (file != NULL) {
            fclose(file);
        }
        if (i == rounds / 4) {
            descriptors = wk_entries(fds), mappings = n;
        } else if (i > rounds / 4 && (wk_entries(fds) > descriptors + 2 || (CONF_SLOWNESS == 1 && n > mappings + 8))) {
            conf_fail_at(__FILE__, __LINE__, "round %d: descriptors %d to %d, mappings %d to %d", i, descriptors,
                         wk_entries(fds), mappings, n);
        }
        wk_lose_now(runtime, lost);
        CONF_OK(hd_device_restart(runtime, lost));
        hd_free(x);
    }
    conf_close(runtime);
}

int main(void)
{
    wk_begin("test_worker_endurance");
    const struct CMUnitTest tests[] = {
        CONF_CASE(faults_and_restarts),
        CONF_CASE(the_other_worker_stays_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
