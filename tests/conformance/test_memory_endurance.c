/* test_memory_endurance.c - a day of allocations in some seconds: threads, lanes and holds come and
 * go, memory grows and is given back.
 *
 * Promise: However many rounds of allocation run, process and workers do not grow.
 * Tier: stress.
 *
 * There are HEDDLE_ENDURANCE_ROUNDS rounds (40; fewer under a sanitizer). The test compares the
 * rounds after the first quarter.
 *
 * Threads: four at a time, which end after each round.
 * Locks: none.
 * Always: after the first rounds neither the process nor its workers use more.
 */
#include <malloc.h>
#include "pool.h"
#include "workers.h"

enum { THREADS = 4, IN_HAND = 32, DEVICES = 2 };

static int pairs_each; /* by a thread in a round */

typedef struct usage {
    wk_usage process;
    int worker_descriptors, worker_mappings, worker_threads;
    uint64_t reserved, pinned, taken, cached;
} usage;

static int lines_of(const char *path)
{
    char line[512];
    int n = 0;
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        n += strchr(line, '\n') != NULL;
    }
    if (file != NULL) {
        fclose(file);
    }
    return n;
}

static int more(int before, int now)
{
    return now > before ? now - before : 0;
}

static usage use_now(hd_runtime *runtime, int devices)
{
    usage u = {.process = wk_use()};
    for (int d = 0; d < devices; d++) {
        hd_memory_stats s = pool_stats(runtime, d);
        u.reserved += s.reserved_bytes;
        u.taken += s.taken_bytes;
        u.cached += s.cached_bytes;
        pid_t worker = conf_is_process(runtime) ? wk_pid(runtime, d) : 0;
        if (worker != 0) {
            char path[64];
            snprintf(path, sizeof path, "/proc/%d/fd", (int)worker);
            u.worker_descriptors += wk_entries(path);
            snprintf(path, sizeof path, "/proc/%d/task", (int)worker);
            u.worker_threads += wk_entries(path);
            snprintf(path, sizeof path, "/proc/%d/maps", (int)worker);
            u.worker_mappings += lines_of(path);
        }
    }
    u.pinned = pool_stats(runtime, HD_DEVICE_HOST).reserved_bytes;
    return u;
}

/* Makes one use of memory other than an allocation that is freed at once. */
static void something_rare(pool_thread *t, hd_lane *lane, conf_kernels k)
{
    conf_random *r = &t->random;
    hd_runtime *runtime = t->runtime;
    int device = hd_lane_device(lane);
    hd_buffer *x = NULL, *y = NULL;
    hd_hold *hold = NULL;
    switch (conf_below(r, 6)) {
    case 0: /* a lane for a moment */
        CONF_OK(hd_lane_create(runtime, device, &lane));
        CONF_OK(hd_alloc(lane, pool_size(r, 2 * POOL_MIB), &x));
        if (hd_buffer_size(x) >= 256) {
            CONF_OK(conf_fill(lane, k, x, 0, 64, 1, NULL));
        }
        hd_free(x);
        hd_lane_destroy(lane);
        break;
    case 1: /* a hold */
        CONF_OK(hd_hold_create(runtime, &hold));
        CONF_OK(hd_alloc(lane, pool_size(r, 2 * POOL_MIB), &x));
        CONF_OK(hd_hold_add(hold, x));
        hd_free(x);
        hd_hold_destroy(hold);
        break;
    case 2: /* large blocks, so that the arena grows or moves */
        CONF_OK(hd_alloc(lane, 4 * POOL_MIB + conf_below(r, 8 * POOL_MIB), &x));
        CONF_OK(hd_fill(x, 0, 7, 4096, NULL));
        hd_free(x);
        break;
    case 3: /* pinned and unified memory */
        CONF_OK(hd_alloc_host(runtime, pool_size(r, POOL_MIB), &x));
        CONF_OK(hd_alloc_unified(lane, pool_size(r, POOL_MIB), &y));
        if (hd_buffer_size(y) >= 4) {
            CONF_TRUE(hd_put_u32(y, 0, 3));
            CONF_OK(hd_fill(y, 0, 4, 4, NULL));
        }
        hd_free(x);
        hd_free(y);
        break;
    case 4:
        CONF_OK(hd_memory_trim(runtime, device, conf_below(r, 32 * POOL_MIB), NULL));
        break;
    default: { /* used by a peer */
        int other = (device + 1) % hd_device_count(runtime);
        CONF_OK(hd_alloc(lane, 65536, &x));
        CONF_OK(hd_alloc(conf_default_lane(runtime, other), 65536, &y));
        CONF_OK(hd_fill(x, 0, 9, 65536, NULL));
        CONF_OK(hd_copy(y, 0, x, 0, 65536, NULL));
        if (conf_reaches(runtime, other, device)) {
            CONF_OK(conf_copy(conf_default_lane(runtime, other), k, y, 0, x, 0, 16384, NULL));
        }
        hd_free(x);
        CONF_FILLED(y, 0, 9, 65536);
        hd_free(y);
        break;
    }
    }
}

static void *one_shift(void *argument)
{
    pool_thread *t = argument;
    conf_kernels k = conf_builtins(t->runtime);
    hd_lane *lane = conf_default_lane(t->runtime, t->number % DEVICES % hd_device_count(t->runtime));
    hd_buffer *hand[IN_HAND] = {NULL};
    for (int i = 0; i < pairs_each; i++) {
        hd_buffer **at = &hand[conf_below(&t->random, IN_HAND)];
        hd_free(*at);
        *at = NULL;
        CONF_OK(hd_alloc(lane, pool_size(&t->random, i % 50 == 0 ? 3 * POOL_MIB : 64 * POOL_KIB), at));
        if (i % 512 == 0) {
            CONF_OK(hd_fill(*at, 0, 1, hd_buffer_size(*at) / 4 * 4, NULL));
        }
        if (i % 1024 == 512) {
            something_rare(t, lane, k);
        }
    }
    for (int i = 0; i < IN_HAND; i++) {
        hd_free(hand[i]);
    }
    return NULL;
}

static void a_day(void **state)
{
    (void)state;
    hd_runtime *runtime =
        conf_open("host_devices=2 host_memory=256M memory_limit=160M memory_timeout=60000 memory_idle=200");
    int devices = hd_device_count(runtime) < DEVICES ? hd_device_count(runtime) : DEVICES;
    int rounds = (int)conf_number_from("HEDDLE_ENDURANCE_ROUNDS", CONF_TSAN ? 8 : CONF_ASAN ? 12 : 40);
    pairs_each = CONF_TSAN ? 6000 : CONF_ASAN ? 20000 : 25000;
    conf_builtins(runtime);
    usage early = {0}, late = {0};
    int warm = rounds / 4;
    /* Each round ends in the same way, so the figures of two rounds can be compared. */
    for (int i = 0; i < rounds; i++) {
        conf_watch("a round of allocations", 120);
        pool_thread threads[THREADS];
        pool_start(threads, THREADS, runtime, (uint64_t)i + 1, one_shift, NULL);
        pool_join(threads, THREADS);
        for (int d = 0; d < devices; d++) {
            if (i % 3 == 2) {
                pool_gives_all_back(runtime, d);
            }
            CONF_EQUAL(pool_stats(runtime, d).live_count, 0);
            CONF_EQUAL(pool_stats(runtime, d).cached_bytes, 0);
        }
        CONF_EQUAL(pool_stats(runtime, HD_DEVICE_HOST).live_count, 0);
        if (i == warm / 3 * 3 + 2) {
            early = use_now(runtime, devices);
        }
    }
    for (int d = 0; d < devices; d++) {
        pool_gives_all_back(runtime, d);
    }
    late = use_now(runtime, devices);
    uint64_t pairs = 0;
    for (int d = 0; d < devices; d++) {
        pairs += pool_stats(runtime, d).allocations;
    }
    fprintf(stderr,
            "  %llu pairs. Descriptors %d to %d, mappings %d to %d, threads %d to %d, resident %ld to %ld kB. "
            "Workers: descriptors %d to %d, mappings %d to %d. Pinned %llu to %llu KiB\n",
            (unsigned long long)pairs, early.process.descriptors, late.process.descriptors, early.process.mappings,
            late.process.mappings, early.process.threads, late.process.threads, early.process.resident_kb,
            late.process.resident_kb, early.worker_descriptors, late.worker_descriptors, early.worker_mappings,
            late.worker_mappings, (unsigned long long)early.pinned >> 10, (unsigned long long)late.pinned >> 10);
    CONF_TRUE(early.process.mappings > 0);
    uint64_t pinned_more = late.pinned > early.pinned ? late.pinned - early.pinned : 0;
    /* with worker processes pinned memory grows by 2 MiB, each with a descriptor */
    CONF_TRUE(late.process.descriptors <= early.process.descriptors + 1 + (int)(pinned_more / (2 * POOL_MIB)));
    /* A host device keeps a thread for each of the most lanes that existed at once. Copies make
     * more lanes when more of them wait, so the later rounds of a busy machine may add some. A
     * thread lost in each round would be more. */
    CONF_TRUE(late.process.threads <= early.process.threads + 4 * THREADS);
    CONF_TRUE(late.worker_descriptors <= early.worker_descriptors + 2);
    CONF_TRUE(late.worker_threads <= early.worker_threads + 4 * THREADS);
    CONF_TRUE(late.reserved == 0 && late.taken == 0 && late.cached == 0);
    CONF_TRUE(late.pinned <= early.pinned + 4 * POOL_MIB);
    if (CONF_SLOWNESS == 1) { /* sanitizers map and keep their own memory */
        /* a thread uses a stack with a guard, and perhaps a heap: two mappings each */
        CONF_TRUE(late.process.mappings <=
                  early.process.mappings + 16 + 4 * more(early.process.threads, late.process.threads));
        CONF_TRUE(late.worker_mappings <=
                  early.worker_mappings + 16 + 4 * more(early.worker_threads, late.worker_threads));
        CONF_TRUE(late.process.resident_kb <= early.process.resident_kb + 6144);
    }
    conf_close(runtime);
}

/* Runtimes are opened and closed with everything that memory needs: nothing of them is left. */
static void many_runtimes(void **state)
{
    (void)state;
    int rounds = CONF_TSAN ? 10 : CONF_ASAN ? 20 : 60;
    wk_usage early = {0}, late = {0};
    for (int i = 0; i < rounds; i++) {
        conf_watch("a round of opening and closing", 60);
        hd_runtime *runtime = conf_open("host_devices=2 host_memory=256M memory_limit=64M");
        pool_thread threads[2];
        int before = pairs_each;
        pairs_each = 600;
        pool_start(threads, 2, runtime, (uint64_t)i + 1, one_shift, NULL);
        pool_join(threads, 2);
        pairs_each = before;
        hd_buffer *left = NULL; /* to hd_close */
        CONF_OK(hd_alloc(conf_default_lane(runtime, 0), 5000000, &left));
        CONF_OK(hd_alloc(conf_default_lane(runtime, 0), 5000, &left));
        hd_free(left);
        conf_close(runtime);
        late = wk_use();
        early = i == rounds / 2 ? late : early;
    }
    fprintf(stderr,
            "  %d runtimes; descriptors %d to %d, mappings %d to %d, threads %d to %d, resident %ld to %ld kB\n",
            rounds, early.descriptors, late.descriptors, early.mappings, late.mappings, early.threads, late.threads,
            early.resident_kb, late.resident_kb);
    CONF_TRUE(late.descriptors <= early.descriptors + 1);
    CONF_TRUE(late.threads <= early.threads + 1);
    if (CONF_SLOWNESS == 1) {
        CONF_TRUE(late.mappings <= early.mappings + 8);
        CONF_TRUE(late.resident_kb <= early.resident_kb + 4096);
    }
}

int main(void)
{
    conf_begin("test_memory_endurance");
    /* With one heap resident memory stops growing after some rounds. With many it grows until each
     * was at its peak. The address sanitizer's allocator refuses the call; no figure of resident
     * memory is compared there. */
    CONF_TRUE(mallopt(M_ARENA_MAX, 1) == 1 || CONF_SLOWNESS > 1);
    const struct CMUnitTest tests[] = {
        CONF_CASE(a_day),
        CONF_CASE(many_runtimes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
