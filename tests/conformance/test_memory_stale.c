/* test_memory_stale.c - handles that another thread frees at the same moment: two frees, or a use
 * and a free.
 *
 * Promise: Of several frees of one handle one succeeds, and every call refuses a stale handle.
 *
 * It also tests handles that are freed and reused again and again, and values that never were a
 * handle.
 *
 * Environment: HEDDLE_REUSES=N: reuses of one structure (200000; 16777300 goes once around its
 * generations).
 *
 * Threads: up to three, which meet at barriers.
 * Locks: none.
 * Always: one free wins, and nothing else happens. Every call refuses a stale handle.
 */
#include "races.h"

/* ---- two at once ---- */

typedef struct race {
    race_rounds rounds;
    hd_buffer *x;
} race;

static void *frees_it(void *argument)
{
    pool_thread *t = argument;
    race *r = t->context;
    while (race_meet(&r->rounds, &t->random)) {
        hd_free(r->x);
        race_part(&r->rounds);
    }
    return NULL;
}

/* Two threads free one handle: one of them succeeds, and nothing else happens. */
static void one_of_two_frees_wins(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=1 host_memory=128M memory_limit=64M");
    hd_lane *lane = conf_default_lane(runtime, 0);
    static race r;
    race_make(&r.rounds, 3);
    pool_thread others[2];
    conf_random random = {conf_number_from("HEDDLE_SEED", 1)};
    pool_start(others, 2, runtime, conf_number_from("HEDDLE_SEED", 1), frees_it, &r);
    for (int i = 0; race_next(&r.rounds, 10000, 2 * CONF_SECOND); i++) {
        size_t bytes = i % 4 == 0 ? 2 * POOL_MIB : i % 4 == 1 ? 100000 : 300;
        if (i % 64 == 5) {
            CONF_OK(hd_alloc_host(runtime, 5000, &r.x));
        } else {
            CONF_OK(hd_alloc(lane, bytes, &r.x));
        }
        if (i % 8 == 0) {
            CONF_OK(hd_fill(r.x, 0, 1, 256, NULL));
        }
        hd_memory_stats before = pool_stats(runtime, 0);
        race_meet(&r.rounds, &random);
        hd_free(r.x);
        race_part(&r.rounds);
        hd_memory_stats s = pool_stats(runtime, 0);
        CONF_EQUAL(s.live_count, 0);
        CONF_EQUAL(s.frees, before.frees + (i % 64 != 5));
        CONF_EQUAL(pool_stats(runtime, HD_DEVICE_HOST).live_count, 0);
        race_none_twice(lane, bytes);
    }
    race_end(&r.rounds, others, 2);
    pool_gives_all_back(runtime, 0);
    conf_close(runtime);
}

typedef struct use_race {
    race_rounds rounds;
    hd_buffer *x;
    hd_lane *lane;
    conf_kernels k;
    bool by_kernel;
} use_race;

/* Uses parts of a buffer that the other thread frees: before the free it works, afterwards it is
 * refused. */
static void *uses_what_is_freed(void *argument)
{
    pool_thread *t = argument;
    use_race *r = t->context;
    while (race_meet(&r->rounds, &t->random)) {
        for (int i = 0; i < 6; i++) {
            size_t at = conf_below(&t->random, 200) * 4;
            hd_status status = r->by_kernel ? conf_fill(r->lane, r->k, r->x, at, 16, 0xdead, NULL)
                                            : hd_fill(r->x, at, 0xdead, 64, NULL);
            if (status != HD_OK) {
                CONF_FAILS(status, HD_ERROR_HANDLE);
            }
        }
        race_part(&r->rounds);
    }
    return NULL;
}

/* One thread submits work while another one frees the buffer. The work runs before any work of the
 * next owner, or is refused. */
static void a_use_races_with_the_free(void **state)
{
    (void)state;
    if (CONF_TSAN) {
        /* fields of a buffer that are read before its handle is checked again are not read
         * atomically */
        skip();
    }
    enum { words = 256 };
    hd_runtime *runtime = conf_open("host_devices=1 host_memory=128M");
    hd_lane *lane = conf_default_lane(runtime, 0);
    static use_race r;
    memset(&r, 0, sizeof r);
    r.k = conf_builtins(runtime);
    CONF_OK(hd_lane_create(runtime, 0, &r.lane));
    race_make(&r.rounds, 2);
    pool_thread other;
    conf_random random = {conf_number_from("HEDDLE_SEED", 1)};
    pool_start(&other, 1, runtime, conf_number_from("HEDDLE_SEED", 1), uses_what_is_freed, &r);
    for (int i = 0; race_next(&r.rounds, 6000, CONF_SECOND); i++) {
        r.by_kernel = i % 2 == 0;
        CONF_OK(hd_alloc(lane, words * 4, &r.x));
        race_meet(&r.rounds, &random);
        hd_free(r.x);
        hd_buffer *next[3];
        for (uint32_t j = 0; j < 3; j++) {
            CONF_OK(hd_alloc(lane, words * 4, &next[j]));
            CONF_OK(conf_fill(lane, r.k, next[j], 0, words, j, NULL));
        }
        race_part(&r.rounds);
        for (uint32_t j = 0; j < 3; j++) {
            CONF_FILLED(next[j], 0, j, words * 4);
            hd_free(next[j]);
        }
    }
    race_end(&r.rounds, &other, 1);
    CONF_OK(hd_lane_wait(r.lane, POOL_WAIT));
    pool_gives_all_back(runtime, 0);
    conf_close(runtime);
}

/* ---- stale handles ---- */

/* No call that takes a buffer accepts a freed one. */
static void is_refused_everywhere(hd_runtime *runtime, hd_lane *lane, conf_kernels k, hd_buffer *stale, hd_buffer *good)
{
    uint32_t word = 5;
    void *p = &word;
    float f = 1;
    hd_hold *hold = NULL;
    hd_ticket ticket = {NULL, 55};
    CONF_FAILS(hd_write(stale, 0, &word, 4), HD_ERROR_HANDLE);
    CONF_FAILS(hd_read(stale, 0, &word, 4), HD_ERROR_HANDLE);
    CONF_FAILS(hd_fill(stale, 0, 7, 4, &ticket), HD_ERROR_HANDLE);
    CONF_FAILS(hd_copy(stale, 0, good, 0, 4, &ticket), HD_ERROR_HANDLE);
    CONF_FAILS(hd_copy(good, 0, stale, 0, 4, &ticket), HD_ERROR_HANDLE);
    CONF_FAILS(hd_map(stale, HD_READ_WRITE, &p), HD_ERROR_HANDLE);
    hd_unmap(stale);
    CONF_FAILS(hd_buffer_wait(stale, HD_READ, HD_FOREVER), HD_ERROR_HANDLE);
    CONF_FAILS(hd_buffer_save(stale, &ticket), HD_ERROR_HANDLE);
    CONF_FAILS(hd_buffer_set_label(stale, "x"), HD_ERROR_HANDLE);
    CONF_FAILS(conf_fill(lane, k, stale, 0, 1, 7, &ticket), HD_ERROR_HANDLE);
    CONF_FAILS(conf_copy(lane, k, good, 0, stale, 0, 1, &ticket), HD_ERROR_HANDLE);
    CONF_OK(hd_hold_create(runtime, &hold));
    CONF_FAILS(hd_hold_add(hold, stale), HD_ERROR_HANDLE);
    hd_hold_destroy(hold);
    CONF_TRUE(hd_element(stale, 0, 4, HD_READ) == NULL);
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    CONF_EQUAL(error.status, HD_ERROR_HANDLE);
    CONF_TRUE(!hd_get_f32(stale, 0, &f) && !hd_put_f32(stale, 0, 2));
    CONF_EQUAL(hd_buffer_size(stale), 0);
    CONF_EQUAL(hd_buffer_device(stale), -2);
    CONF_EQUAL(hd_buffer_address(stale), 0);
    hd_free(stale);
    CONF_TRUE(word == 5 && p == &word && f == 1 && ticket.lane == NULL && ticket.sequence == 55);
}

static void stale_handles_are_refused_everywhere(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=2");
    hd_lane *lane = conf_default_lane(runtime, 0);
    conf_kernels k = conf_builtins(runtime);
    hd_buffer *good = NULL, *next = NULL, *stale[6];
    hd_free(NULL);
    CONF_OK(hd_alloc(lane, 4096, &good));
    CONF_OK(hd_fill(good, 0, 21, 4096, NULL));
    for (int round = 0; round < 3; round++) {
        hd_alloc_options keep = {.size = sizeof keep, .flags = HD_ALLOC_KEEP};
        CONF_OK(hd_alloc(lane, 100, &stale[0]));
        CONF_OK(hd_alloc(lane, 3 * POOL_MIB, &stale[1]));
        CONF_OK(hd_alloc_host(runtime, 100, &stale[2]));
        CONF_OK(hd_alloc_unified(lane, 100, &stale[3]));
        CONF_OK(hd_alloc_with(lane, 100, &keep, &stale[4]));
        CONF_OK(hd_alloc(conf_default_lane(runtime, hd_device_count(runtime) - 1), 100, &stale[5]));
        for (int i = 0; i < 6; i++) {
            CONF_OK(hd_fill(stale[i], 0, 1, 100, NULL));
            hd_free(stale[i]);
            is_refused_everywhere(runtime, lane, k, stale[i], good);
        }
        CONF_OK(hd_alloc(lane, 100, &next)); /* they belong to new owners now */
        CONF_OK(hd_fill(next, 0, 22, 100, NULL));
        for (int i = 0; i < 6; i++) {
            is_refused_everywhere(runtime, lane, k, stale[i], good);
        }
        CONF_FILLED(next, 0, 22, 100);
        hd_free(next);
    }
    CONF_FILLED(good, 0, 21, 4096);
    hd_free(good);
    conf_close(runtime);
}

/* The same structure is reused over and over: no old handle ever fits again. */
static void stale_handles_stay_stale(void **state)
{
    (void)state;
    enum { KEPT = 4096 };
    hd_runtime *runtime = conf_open("host_devices=1 host_memory=64M");
    hd_lane *lane = conf_default_lane(runtime, 0);
    uint64_t reuses = conf_number_from("HEDDLE_REUSES", CONF_TSAN ? 100000 : 200000), same = 0;
    static hd_buffer *kept[KEPT];
    hd_buffer *x = NULL, *last = NULL;
    for (uint64_t i = 0; i < reuses; i++) {
        CONF_OK(hd_alloc(lane, 300, &x));
        if (x == last) {
            conf_fail_at(__FILE__, __LINE__, "reuse %llu has the handle of the one before", (unsigned long long)i);
        }
        last = x;
        uint64_t stride = reuses / KEPT + 1;
        if (i % stride == 0) {
            kept[i / stride] = x;
        } else if (kept[0] == x) {
            same++;
        }
        hd_free(x);
    }
    CONF_EQUAL(same, 0);
    CONF_OK(hd_alloc(lane, 300, &x));
    uint32_t word = 0;
    for (int i = 0; i < KEPT && kept[i] != NULL; i++) {
        CONF_TRUE(kept[i] != x);
        hd_free(kept[i]);
        CONF_FAILS(hd_read(kept[i], 0, &word, 4), HD_ERROR_HANDLE);
        kept[i] = NULL;
    }
    CONF_EQUAL(pool_stats(runtime, 0).live_count, 1);
    CONF_EQUAL(hd_buffer_size(x), 300);
    hd_free(x);
    pool_gives_all_back(runtime, 0);
    conf_close(runtime);
}

/* Values that are no handle are refused, as far as a call can check them. */
static void what_is_no_handle(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=1");
    hd_lane *lane = conf_default_lane(runtime, 0);
    conf_kernels k = conf_builtins(runtime);
    hd_buffer *good = NULL;
    CONF_OK(hd_alloc(lane, 4096, &good));
    static _Alignas(4096) unsigned char zeros[8192];
    is_refused_everywhere(runtime, lane, k, NULL, good);
    is_refused_everywhere(runtime, lane, k, (hd_buffer *)(void *)zeros, good);
    is_refused_everywhere(runtime, lane, k, (hd_buffer *)(void *)(zeros + 512), good);
    uintptr_t bits = (uintptr_t)good;
    /* another generation, or an address inside the same structure */
    for (int bit = 0; bit < 9; bit++) {
        is_refused_everywhere(runtime, lane, k, (hd_buffer *)(bits ^ (uintptr_t)1 << bit), good);
    }
    for (int bit = 48; bit < 64; bit++) {
        is_refused_everywhere(runtime, lane, k, (hd_buffer *)(bits ^ (uintptr_t)1 << bit), good);
    }
    CONF_EQUAL(hd_buffer_size(good), 4096);
    hd_free(good);
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_memory_stale");
    const struct CMUnitTest tests[] = {
        CONF_CASE(one_of_two_frees_wins),
        CONF_CASE(a_use_races_with_the_free),
        CONF_CASE(stale_handles_are_refused_everywhere),
        CONF_CASE(stale_handles_stay_stale),
        CONF_CASE(what_is_no_handle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
