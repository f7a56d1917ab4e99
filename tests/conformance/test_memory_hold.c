/* test_memory_hold.c - memory that a hold keeps, also if threads free, hold and let go at the same
 * time, and if the device is lost.
 *
 * Promise: Held memory is not reused, moved or given back until the hold ends.
 *
 * That holds for any fate of its buffer.
 *
 * Threads: two that race.
 * Locks: none.
 * Always: addresses and the limit prove that memory is kept. If the driver is in this process, the
 * content proves it as well.
 */
#include "races.h"
#include "workers.h"

enum { SOME = 200 };

/* Checks that none of `count` blocks of the size, allocated in the lane, lies in [address, address
 * + bytes). */
static void nobody_gets(hd_lane *lane, uint64_t address, size_t bytes, size_t each, int count)
{
    static hd_buffer *others[SOME];
    CONF_TRUE(count <= SOME);
    for (int i = 0; i < count; i++) {
        CONF_OK(hd_alloc(lane, each, &others[i]));
        uint64_t at = hd_buffer_address(others[i]);
        if (at < address + bytes && address < at + each) {
            conf_fail_at(__FILE__, __LINE__, "block %d of %zu bytes at %llx lies in held memory, %zu bytes at %llx", i,
                         each, (unsigned long long)at, bytes, (unsigned long long)address);
        }
        CONF_OK(hd_fill(others[i], 0, 0xbadbadu, each / 4 * 4, NULL));
    }
    for (int i = 0; i < count; i++) {
        hd_free(others[i]);
    }
}

typedef int (*copy_out)(void *dst, uint64_t src, size_t bytes);
typedef int (*set_current)(void *context);
typedef int (*retain)(void **context, int device);
typedef int (*release)(int device);
typedef int (*get_device)(int *device, int ordinal);

/* The driver itself reads bytes at an address of device 0. False: the driver is in another
 * process. */
static bool read_address(hd_runtime *runtime, uint64_t address, void *out, size_t bytes)
{
    static const char *const names[] = {"cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuMemcpyDtoH",
                                        "cuDevicePrimaryCtxRelease"};
    void (*entries[5])(void);
    if (conf_is_process(runtime)) {
        return false;
    }
    for (int i = 0; i < 5; i++) {
        CONF_OK(hd_driver_entry(conf_is_host(runtime) ? "host" : "nvidia", names[i], &entries[i]));
    }
    int device = 0;
    void *context = NULL;
    CONF_EQUAL(((get_device)entries[0])(&device, 0), 0);
    CONF_EQUAL(((retain)entries[1])(&context, device), 0);
    CONF_EQUAL(((set_current)entries[2])(context), 0);
    CONF_EQUAL(((copy_out)entries[3])(out, address, bytes), 0);
    CONF_EQUAL(((set_current)entries[2])(NULL), 0);
    CONF_EQUAL(((release)entries[4])(device), 0);
    return true;
}

/* Checks that the handle is as stale as ever. */
static void is_stale(hd_runtime *runtime, hd_buffer *x, hd_hold *hold)
{
    uint32_t word = 0;
    void *p = &word;
    (void)runtime;
    CONF_FAILS(hd_read(x, 0, &word, 4), HD_ERROR_HANDLE);
    CONF_FAILS(hd_fill(x, 0, 1, 4, NULL), HD_ERROR_HANDLE);
    CONF_FAILS(hd_map(x, HD_READ, &p), HD_ERROR_HANDLE);
    CONF_FAILS(hd_hold_add(hold, x), HD_ERROR_HANDLE);
    CONF_EQUAL(hd_buffer_address(x), 0);
    CONF_EQUAL(hd_buffer_size(x), 0);
    hd_free(x);
}

static void keeps_memory_after_the_free(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 256, 5000, 100000, POOL_MIB, POOL_MIB + 1, 3 * POOL_MIB, 9 * POOL_MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        hd_runtime *runtime = conf_open("host_devices=1 host_memory=256M memory_limit=64M memory_idle=1");
        hd_lane *lane = conf_default_lane(runtime, 0), *other = NULL;
        CONF_OK(hd_lane_create(runtime, 0, &other));
        size_t bytes = sizes[i];
        int count = (int)(40 * POOL_MIB / bytes);
        count = count > SOME ? SOME : count;
        hd_buffer *x = NULL;
        hd_hold *hold = NULL;
        CONF_OK(hd_alloc(lane, bytes, &x));
        CONF_OK(hd_fill(x, 0, 0x600du, bytes / 4 * 4, NULL));
        CONF_OK(hd_buffer_wait(x, HD_READ_WRITE, POOL_WAIT));
        uint64_t address = hd_buffer_address(x);
        CONF_OK(hd_hold_create(runtime, &hold));
        CONF_OK(hd_hold_add(hold, x));
        CONF_EQUAL(pool_stats(runtime, 0).held_bytes, 0);
        hd_free(x);
        is_stale(runtime, x, hold);
        hd_memory_stats s = pool_stats(runtime, 0);
        CONF_EQUAL(s.held_bytes, bytes);
        CONF_EQUAL(s.live_bytes, 0);
        CONF_EQUAL(s.live_count, 0);
        for (int round = 0; round < 4; round++) {
            nobody_gets(round % 2 == 0 ? lane : other, address, bytes,
                        round < 2 ? bytes : pool_size(&(conf_random){i}, 5 * POOL_MIB), round < 2 ? count : 6);
            CONF_OK(hd_memory_trim(runtime, 0, 0, NULL));
            conf_sleep_ms(2); /* for the thread that gives back idle memory */
        }
        CONF_TRUE(pool_stats(runtime, 0).reserved_bytes >= bytes);
        uint32_t *got = conf_memory(bytes + 4);
        if (read_address(runtime, address, got, bytes)) {
            for (size_t j = 0; j < bytes / 4; j++) {
                CONF_EQUAL(got[j], 0x600du);
            }
        }
        free(got);
        hd_hold_destroy(hold);
        CONF_EQUAL(pool_stats(runtime, 0).held_bytes, 0);
        hd_hold_destroy(hold); /* stale */
        CONF_FAILS(hd_hold_add(hold, x), HD_ERROR_HANDLE);
        CONF_OK(hd_lane_wait(other, POOL_WAIT));
        pool_gives_all_back(runtime, 0);
        conf_close(runtime);
    }
}

/* The limit shows it best: held memory is missing, and is back afterwards. */
static void held_memory_counts(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=1 host_memory=128M memory_limit=32M memory_timeout=0");
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_hold *a = NULL, *b = NULL;
    hd_buffer *x = NULL, *y = NULL, *none = NULL;
    CONF_OK(hd_hold_create(runtime, &a));
    CONF_OK(hd_hold_create(runtime, &b));
    CONF_TRUE(a != b);
    CONF_OK(hd_alloc(lane, 20 * POOL_MIB, &x));
    CONF_OK(hd_alloc(lane, 8 * POOL_MIB, &y));
    CONF_OK(hd_hold_add(a, x));
    CONF_OK(hd_hold_add(a, y));
    CONF_OK(hd_hold_add(a, x)); /* a second add changes nothing */
    CONF_OK(hd_hold_add(a, x));
    CONF_OK(hd_hold_add(b, x)); /* and a second hold is another one */
    hd_free(x);
    hd_free(y);
    CONF_EQUAL(pool_stats(runtime, 0).held_bytes, 28 * POOL_MIB);
    CONF_FAILS(hd_alloc(lane, 20 * POOL_MIB, &none), HD_ERROR_MEMORY);
    hd_hold_destroy(a);
    CONF_EQUAL(pool_stats(runtime, 0).held_bytes, 20 * POOL_MIB);
    CONF_FAILS(hd_alloc(lane, 20 * POOL_MIB, &none), HD_ERROR_MEMORY);
    CONF_OK(hd_alloc(lane, 12 * POOL_MIB, &y));
    hd_hold_destroy(b);
    CONF_EQUAL(pool_stats(runtime, 0).held_bytes, 0);
    CONF_OK(hd_alloc(lane, 20 * POOL_MIB, &x));
    hd_free(x);
    hd_free(y);
    hd_hold_destroy(NULL);

    /* an empty hold, many, and one that ends before its buffer is freed */
    hd_hold *many[200];
    CONF_OK(hd_alloc(lane, 5000, &x));
    CONF_OK(hd_fill(x, 0, 77, 5000, NULL));
    for (int i = 0; i < 200; i++) {
        CONF_OK(hd_hold_create(runtime, &many[i]));
        if (i % 2 == 0) {
            CONF_OK(hd_hold_add(many[i], x));
        }
    }
    for (int i = 0; i < 200; i++) {
        hd_hold_destroy(many[i]);
    }
    CONF_FILLED(x, 0, 77, 5000);
    CONF_EQUAL(pool_stats(runtime, 0).live_count, 1);
    hd_free(x);
    CONF_EQUAL(pool_stats(runtime, 0).held_bytes, 0);
    pool_gives_all_back(runtime, 0);
    conf_close(runtime);
}

/* Memory around it moves together; a held block stays in place, freed or not. */
static void is_not_moved(void **state)
{
    (void)state;
    enum { n = 16 };
    hd_runtime *runtime = conf_open("host_devices=1 host_memory=128M memory_limit=40M memory_timeout=60000");
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_hold *hold = NULL;
    hd_buffer *x[n], *large = NULL;
    uint64_t at[n];
    CONF_OK(hd_hold_create(runtime, &hold));
    for (int i = 0; i < n; i++) {
        CONF_OK(hd_alloc(lane, 2 * POOL_MIB, &x[i]));
        CONF_OK(hd_fill(x[i], 0, (uint32_t)i, 2 * POOL_MIB, NULL));
        CONF_OK(hd_buffer_wait(x[i], HD_READ_WRITE, POOL_WAIT));
        at[i] = hd_buffer_address(x[i]);
    }
    for (int i = 0; i < n; i++) { /* of each four: freed and held, held, live, freed */
        if (i % 4 < 2) {
            CONF_OK(hd_hold_add(hold, x[i]));
        }
        if (i % 4 == 0 || i % 4 == 3) {
            hd_free(x[i]);
        }
    }
    for (int round = 0; round < 10; round++) {
        CONF_OK(hd_alloc(lane, 14 * POOL_MIB, &large)); /* 8 unused MiB, 8 in holes */
        uint64_t address = hd_buffer_address(large);
        for (int i = 0; i < n; i++) {
            CONF_TRUE(i % 4 == 3 || at[i] >= address + 14 * POOL_MIB || at[i] + 2 * POOL_MIB <= address);
        }
        CONF_OK(hd_fill(large, 0, 0xbadbadu, 14 * POOL_MIB, NULL));
        hd_free(large);
        nobody_gets(lane, at[0], 2 * POOL_MIB, 3 * POOL_MIB, 4);
    }
    CONF_TRUE(pool_stats(runtime, 0).moved_bytes > 0);
    uint32_t *got = conf_memory(2 * POOL_MIB);
    for (int i = 0; i < n; i++) {
        if (i % 4 == 1 || i % 4 == 2) {
            CONF_EQUAL(hd_buffer_address(x[i]), at[i]);
            CONF_FILLED(x[i], 0, (uint32_t)i, 2 * POOL_MIB);
        } else if (i % 4 == 0 && read_address(runtime, at[i], got, 2 * POOL_MIB)) {
            for (size_t j = 0; j < POOL_MIB / 2; j++) {
                CONF_EQUAL(got[j], i);
            }
        }
    }
    free(got);
    hd_hold_destroy(hold);
    for (int i = 0; i < n; i++) {
        hd_free(x[i]);
    }
    pool_gives_all_back(runtime, 0);
    conf_close(runtime);
}

/* Pinned memory and unified buffers can be held, too, and the list of all buffers shows held
 * memory. */
typedef struct listed {
    int blocks, held, unified, pinned;
    uint64_t bytes;
} listed;

static bool lists(void *context, const hd_memory_block *block)
{
    listed *l = context;
    CONF_TRUE(block->size >= sizeof *block);
    l->blocks++;
    l->held += block->held;
    l->unified += block->unified;
    l->pinned += block->device == HD_DEVICE_HOST;
    l->bytes += block->bytes;
    if (block->held) {
        CONF_TRUE(strcmp(block->label, "kept") == 0);
    }
    return true;
}

static void all_kinds_of_memory(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=1 memory_limit=64M");
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_hold *hold = NULL;
    hd_buffer *x[3];
    uint64_t at[3];
    CONF_OK(hd_hold_create(runtime, &hold));
    CONF_OK(hd_alloc(lane, 100000, &x[0]));
    CONF_OK(hd_alloc_unified(lane, 100000, &x[1]));
    CONF_OK(hd_alloc_host(runtime, 100000, &x[2]));
    for (int i = 0; i < 3; i++) {
        CONF_OK(hd_buffer_set_label(x[i], "kept"));
        CONF_OK(hd_fill(x[i], 0, (uint32_t)i, 100000, NULL));
        at[i] = hd_buffer_address(x[i]);
        CONF_OK(hd_hold_add(hold, x[i]));
    }
    listed l = {0};
    CONF_OK(hd_memory_each(runtime, lists, &l));
    CONF_TRUE(l.blocks == 3 && l.held == 0 && l.unified == 1 && l.pinned == 1 && l.bytes == 300000);
    for (int i = 0; i < 3; i++) {
        hd_free(x[i]);
        is_stale(runtime, x[i], hold);
    }
    l = (listed){0};
    CONF_OK(hd_memory_each(runtime, lists, &l));
    CONF_TRUE(l.blocks == 3 && l.held == 3 && l.unified == 1 && l.pinned == 1 && l.bytes == 300000);
    for (int i = 0; i < 60; i++) {
        hd_buffer *y[3];
        CONF_OK(hd_alloc(lane, 100000, &y[0]));
        CONF_OK(hd_alloc_unified(lane, 100000, &y[1]));
        CONF_OK(hd_alloc_host(runtime, 100000, &y[2]));
        for (int j = 0; j < 3; j++) {
            for (int k = 0; k < 3; k++) {
                uint64_t address = hd_buffer_address(y[j]);
                CONF_TRUE(address >= at[k] + 100000 || at[k] >= address + 100000);
            }
        }
        for (int j = 0; j < 3; j++) {
            hd_free(y[j]);
        }
    }
    hd_hold_destroy(hold);
    l = (listed){0};
    CONF_OK(hd_memory_each(runtime, lists, &l));
    CONF_EQUAL(l.blocks, 0);
    CONF_EQUAL(pool_stats(runtime, HD_DEVICE_HOST).held_bytes, 0);
    CONF_EQUAL(pool_stats(runtime, HD_DEVICE_HOST).live_count, 0);
    pool_gives_all_back(runtime, 0);
    conf_close(runtime);
}

static void refuses_bad_arguments(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL), *second = conf_open(NULL);
    hd_hold *const untouched = (hd_hold *)(uintptr_t)0x1230;
    hd_hold *hold = untouched;
    hd_buffer *x = NULL, *foreign = NULL;
    CONF_FAILS(hd_hold_create(NULL, &hold), HD_ERROR_HANDLE);
    CONF_FAILS(hd_hold_create((hd_runtime *)(uintptr_t)0x12345670, &hold), HD_ERROR_HANDLE);
    CONF_FAILS(hd_hold_create(runtime, NULL), HD_ERROR_ARGUMENT);
    CONF_TRUE(hold == untouched);
    CONF_OK(hd_hold_create(runtime, &hold));
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), 64, &x));
    CONF_OK(hd_alloc(conf_default_lane(second, 0), 64, &foreign));
    CONF_FAILS(hd_hold_add(NULL, x), HD_ERROR_HANDLE);
    CONF_FAILS(hd_hold_add(hold, NULL), HD_ERROR_HANDLE);
    CONF_FAILS(hd_hold_add(hold, foreign), HD_ERROR_HANDLE);
    CONF_FAILS(hd_hold_add((hd_hold *)(void *)x, x), HD_ERROR_HANDLE);
    hd_hold_destroy((hd_hold *)(void *)x);
    hd_hold_destroy(NULL);
    CONF_OK(hd_fill(x, 0, 1, 64, NULL));
    hd_free(x);
    CONF_FAILS(hd_hold_add(hold, x), HD_ERROR_HANDLE);
    hd_hold *stale = hold, *again = NULL;
    hd_hold_destroy(hold);
    CONF_OK(hd_hold_create(runtime, &again));
    CONF_TRUE(again != stale);
    CONF_FAILS(hd_hold_add(stale, foreign), HD_ERROR_HANDLE);
    hd_hold_destroy(stale);
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), 64, &x));
    CONF_OK(hd_hold_add(again, x)); /* still there */
    conf_close(second);
    conf_close(runtime);
}

/* hd_close ends holds, and releases their memory. */
static void close_takes_them_along(void **state)
{
    (void)state;
    for (int round = 0; round < 4; round++) {
        hd_runtime *runtime = conf_open("host_devices=2");
        hd_lane *lane = conf_default_lane(runtime, 0);
        conf_kernels k = conf_builtins(runtime);
        hd_hold *hold = NULL, *empty = NULL;
        CONF_OK(hd_hold_create(runtime, &hold));
        CONF_OK(hd_hold_create(runtime, &empty));
        for (int i = 0; i < 20; i++) {
            hd_buffer *x = NULL;
            if (i % 5 == 4) {
                CONF_OK(hd_alloc_host(runtime, 5000, &x));
            } else if (i % 5 == 3) {
                CONF_OK(hd_alloc_unified(lane, 5000, &x));
            } else {
                CONF_OK(hd_alloc(lane, (size_t)1 << i, &x));
            }
            CONF_OK(hd_hold_add(hold, x));
            if (hd_buffer_size(x) >= 400) {
                CONF_OK(conf_fill(lane, k, x, 0, 100, 1, NULL));
            }
            if (i % 2 == round % 2) {
                hd_free(x);
            }
        }
        if (round >= 2) {
            hd_hold_destroy(hold);
        }
        conf_close(runtime);
    }
}

/* ---- two threads ---- */

typedef struct race {
    race_rounds rounds;
    hd_buffer *x;
    hd_hold *hold;
    int what; /* the action of the other thread: it frees, destroys the hold, or adds to it */
    hd_status added;
} race;

enum { FREES, DESTROYS, ADDS };

static void *races(void *argument)
{
    pool_thread *t = argument;
    race *r = t->context;
    while (race_meet(&r->rounds, &t->random)) {
        if (r->what == FREES) {
            hd_free(r->x);
        } else if (r->what == DESTROYS) {
            hd_hold_destroy(r->hold);
        } else {
            r->added = hd_hold_add(r->hold, r->x);
        }
        race_part(&r->rounds);
    }
    return NULL;
}

/* Checks that the memory of `x` went back exactly once: new allocations do not overlap, and the
 * figures are 0. */
static void is_sound(hd_runtime *runtime, hd_lane *lane, size_t bytes)
{
    race_none_twice(lane, bytes);
    hd_memory_stats s = pool_stats(runtime, 0);
    CONF_EQUAL(s.held_bytes, 0);
    CONF_EQUAL(s.live_count, 0);
}

static void threads_free_and_let_go_at_once(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=1 host_memory=128M memory_limit=64M");
    hd_lane *lane = conf_default_lane(runtime, 0);
    static race r;
    race_make(&r.rounds, 2);
    pool_thread other;
    pool_start(&other, 1, runtime, conf_number_from("HEDDLE_SEED", 1), races, &r);
    conf_random random = {conf_number_from("HEDDLE_SEED", 1)};
    for (int i = 0; race_next(&r.rounds, 10000, 2 * CONF_SECOND); i++) {
        size_t bytes = i % 3 == 0 ? 3 * POOL_MIB : 1000;
        bool frees_here = i % 2 == 0;
        hd_hold *second = NULL;
        CONF_OK(hd_alloc(lane, bytes, &r.x));
        CONF_OK(hd_hold_create(runtime, &r.hold));
        r.what = i % 5 == 0 ? ADDS : frees_here ? DESTROYS : FREES;
        if (r.what != ADDS) {
            CONF_OK(hd_hold_add(r.hold, r.x));
        }
        if (i % 7 == 0) {
            CONF_OK(hd_hold_create(runtime, &second));
            CONF_OK(hd_hold_add(second, r.x));
        }
        race_meet(&r.rounds, &random);
        if (r.what == FREES) {
            hd_hold_destroy(r.hold);
        } else {
            hd_free(r.x);
        }
        race_part(&r.rounds);
        if (r.what == ADDS) {
            CONF_TRUE(r.added == HD_OK || r.added == HD_ERROR_HANDLE);
            hd_memory_stats s = pool_stats(runtime, 0);
            CONF_EQUAL(s.held_bytes, r.added == HD_OK || second != NULL ? bytes : 0);
            hd_hold_destroy(r.hold);
        }
        hd_hold_destroy(second);
        is_sound(runtime, lane, bytes);
    }
    race_end(&r.rounds, &other, 1);
    pool_gives_all_back(runtime, 0);
    conf_close(runtime);
}

/* ---- losses ---- */

static void the_device_is_lost(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("host_devices=2 host_memory=64M memory_limit=48M memory_timeout=0");
    if (!conf_is_process(runtime)) {
        conf_close(runtime);
        skip();
    }
    for (int round = 0; round < 3; round++) {
        hd_lane *lane = conf_default_lane(runtime, 0);
        hd_hold *hold = NULL, *late = NULL;
        hd_buffer *freed = NULL, *live = NULL, *again = NULL, *pinned = NULL;
        CONF_OK(hd_hold_create(runtime, &hold));
        CONF_OK(hd_hold_create(runtime, &late));
        CONF_OK(hd_alloc(lane, 16 * POOL_MIB, &freed));
        CONF_OK(hd_alloc(lane, 16 * POOL_MIB, &live));
        CONF_OK(hd_alloc_host(runtime, 5000, &pinned));
        CONF_OK(hd_fill(pinned, 0, 3, 5000, NULL));
        CONF_OK(hd_buffer_wait(pinned, HD_READ, POOL_WAIT));
        CONF_OK(hd_hold_add(hold, freed));
        CONF_OK(hd_hold_add(hold, live));
        CONF_OK(hd_hold_add(hold, pinned));
        hd_free(freed);
        wk_lose_now(runtime, 0);
        CONF_FAILS(hd_hold_add(late, live), HD_ERROR_DEVICE_LOST);
        CONF_FAILS(hd_hold_add(late, freed), HD_ERROR_HANDLE);
        if (round == 0) {
            hd_hold_destroy(hold); /* before the restart */
        }
        CONF_OK(hd_device_restart(runtime, 0));
        /* held memory ended with the device, and does not count */
        CONF_EQUAL(pool_stats(runtime, 0).held_bytes, 0);
        CONF_OK(hd_alloc(lane, 48 * POOL_MIB, &again));
        CONF_OK(hd_fill(again, 0, 8, 48 * POOL_MIB, NULL));
        if (round == 1) {
            hd_hold_destroy(hold); /* frees no newer memory */
            hd_free(live);
        } else {
            hd_free(live);
            hd_hold_destroy(hold);
        }
        CONF_FILLED(again, 0, 8, 48 * POOL_MIB);
        CONF_FILLED(pinned, 0, 3, 5000);
        CONF_FAILS(hd_alloc(lane, 4 * POOL_MIB, &freed), HD_ERROR_MEMORY);
        hd_free(again);
        hd_free(pinned);
        hd_hold_destroy(late);
        pool_gives_all_back(runtime, 0);
    }
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_memory_hold");
    const struct CMUnitTest tests[] = {
        CONF_CASE(keeps_memory_after_the_free),
        CONF_CASE(held_memory_counts),
        CONF_CASE(is_not_moved),
        CONF_CASE(all_kinds_of_memory),
        CONF_CASE(refuses_bad_arguments),
        CONF_CASE(close_takes_them_along),
        CONF_CASE(threads_free_and_let_go_at_once),
        CONF_CASE(the_device_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
