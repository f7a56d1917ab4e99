/* test_memory_fragments.c - under a limit of physical memory, free pieces serve an allocation of
 * one block.
 *
 * Promise: Memory that is free in pieces can be allocated as one block, up to the limit.
 *
 * The pieces move together, also while work still uses freed memory.
 *
 * Threads: the main one.
 * Locks: none.
 * Always: the option memory_timeout is so long that the watchdog would end a case that waits for
 * it.
 */
#include "pool.h"

#define LONG_TIMEOUT "memory_timeout=600000 "

typedef struct piece {
    hd_buffer *buffer;
    uint64_t address;
} piece;

static int by_address(const void *a, const void *b)
{
    uint64_t x = ((const piece *)a)->address, y = ((const piece *)b)->address;
    return x < y ? -1 : x > y;
}

/* Fills the limit with blocks of `each` bytes, in order of addresses. Returns their number. */
static int fill_limit(hd_lane *const *lanes, int n_lanes, size_t each, size_t limit, piece *pieces)
{
    int n = (int)(limit / each);
    for (int i = 0; i < n; i++) {
        CONF_OK(hd_alloc(lanes[i % n_lanes], each, &pieces[i].buffer));
        CONF_OK(hd_fill(pieces[i].buffer, 0, (uint32_t)i, 4, NULL));
        pieces[i].address = hd_buffer_address(pieces[i].buffer);
    }
    qsort(pieces, (size_t)n, sizeof *pieces, by_address);
    return n;
}

/* Blocks of one size fill the limit. Every other granule (or pair of them) is freed. Then the case
 * allocates a block, in the same lane or another. It is larger than every hole, and as large as all
 * holes together. */
static void fragments_move_together(void **state)
{
    (void)state;
    enum { limit = 48 };
    static const size_t sizes[] = {256 * POOL_KIB, POOL_MIB, 2 * POOL_MIB, 4 * POOL_MIB, 8 * POOL_MIB};
    for (size_t i = 0; i < 2 * sizeof sizes / sizeof sizes[0]; i += CONF_TSAN ? 3 : 1) {
        size_t each = sizes[i / 2], stride = each < POOL_GRANULE ? POOL_GRANULE : each;
        hd_runtime *runtime =
            conf_open_with("host_devices=1 host_memory=128M memory_limit=%dM memory_idle=0 " LONG_TIMEOUT, (int)limit);
        hd_lane *lanes[3];
        for (int l = 0; l < 3; l++) {
            CONF_OK(hd_lane_create(runtime, 0, &lanes[l]));
        }
        static piece pieces[limit * 4];
        int n = fill_limit(lanes, i % 2 == 0 ? 1 : 2, each, limit * POOL_MIB, pieces);
        CONF_EQUAL(pool_stats(runtime, 0).reserved_bytes, limit * POOL_MIB);
        size_t free_bytes = 0;
        int kept = 0;
        for (int j = 0; j < n; j++) {
            if (pieces[j].address / stride % 2 == 0) {
                hd_free(pieces[j].buffer);
                free_bytes += each;
            } else {
                pieces[kept++] = pieces[j];
            }
        }
        CONF_TRUE(free_bytes >= limit * POOL_MIB / 4);
        hd_buffer *large = NULL;
        hd_status status = hd_alloc(lanes[i % 2 == 0 ? 0 : 2], free_bytes, &large);
        if (status != HD_OK) {
            conf_fail_at(__FILE__, __LINE__, "blocks of %zu KiB: %zu KiB are free but cannot be had as one block: %s",
                         each >> 10, free_bytes >> 10, hd_message());
        }
        CONF_OK(hd_fill(large, 0, 0x77777777u, free_bytes, NULL));
        hd_memory_stats s = pool_stats(runtime, 0);
        CONF_TRUE(s.moved_bytes > 0);
        CONF_TRUE(s.reserved_peak_bytes <= s.limit_bytes);
        CONF_FILLED(large, 0, 0x77777777u, free_bytes);
        for (int j = 0; j < kept; j++) {
            uint32_t word = 0x77777777u;
            CONF_OK(hd_read(pieces[j].buffer, 0, &word, 4));
            CONF_TRUE(word < (uint32_t)n);
            hd_free(pieces[j].buffer);
        }
        hd_free(large);
        for (int l = 0; l < 3; l++) {
            CONF_OK(hd_lane_wait(lanes[l], POOL_WAIT));
        }
        pool_gives_all_back(runtime, 0);
        conf_close(runtime);
    }
}

/* The same while work in other lanes still uses freed memory. The allocation waits for that work
 * and succeeds. */
static void fragments_in_use_are_waited_for(void **state)
{
    (void)state;
    enum { limit = 32 };
    hd_runtime *runtime =
        conf_open_with("host_devices=1 host_memory=128M memory_limit=%dM memory_idle=0 " LONG_TIMEOUT, (int)limit);
    conf_slow slow;
    conf_slow_make(&slow, runtime, 0);
    hd_lane *lanes[3];
    for (int l = 0; l < 3; l++) {
        CONF_OK(hd_lane_create(runtime, 0, &lanes[l]));
    }
    for (uint32_t round = 0; round < 4; round++) {
        static piece pieces[limit];
        /* the rest is for `slow` */
        int n = fill_limit(lanes, 3, 2 * POOL_MIB, (limit - 8) * POOL_MIB, pieces);
        int freed = 0;
        for (int l = 0; l < 3; l++) {
            conf_slow_run(&slow, lanes[l], NULL, (size_t)l * 4, 10, NULL);
        }
        for (int i = 0; i < n; i += 2, freed++) {
            CONF_OK(conf_fill(lanes[i / 2 % 3], slow.kernels, pieces[i].buffer, 0, POOL_MIB / 2, 0xdeadu, NULL));
            hd_free(pieces[i].buffer);
        }
        hd_buffer *large = NULL;
        CONF_OK(hd_alloc(lanes[2], (size_t)freed * 2 * POOL_MIB, &large));
        CONF_OK(hd_fill(large, 0, round, (size_t)freed * 2 * POOL_MIB, NULL));
        CONF_FILLED(large, 0, round, (size_t)freed * 2 * POOL_MIB);
        hd_free(large);
        for (int i = 1; i < n; i += 2) {
            hd_free(pieces[i].buffer);
        }
        CONF_TRUE(pool_stats(runtime, 0).reserved_peak_bytes <= limit * POOL_MIB);
    }
    conf_slow_free(&slow);
    for (int l = 0; l < 3; l++) {
        CONF_OK(hd_lane_wait(lanes[l], POOL_WAIT));
    }
    pool_gives_all_back(runtime, 0);
    conf_close(runtime);
}

/* A small block in each granule keeps all of it. The message reports the amount, and the blocks. */
static void the_message_has_who_keeps_memory(void **state)
{
    (void)state;
    enum { limit = 32, each = 256 * POOL_KIB };
    hd_runtime *runtime =
        conf_open_with("host_devices=1 host_memory=128M memory_limit=%dM memory_idle=0 memory_timeout=0", (int)limit);
    hd_lane *lane = conf_default_lane(runtime, 0);
    static piece pieces[limit * 4];
    hd_buffer *none = NULL;
    int n = fill_limit(&lane, 1, each, limit * POOL_MIB, pieces);
    for (int i = 0; i < n; i++) {
        CONF_OK(hd_buffer_wait(pieces[i].buffer, HD_READ_WRITE, POOL_WAIT));
    }
    for (int i = 0; i < n; i++) {
        if (i == 0 || pieces[i].address / POOL_GRANULE != pieces[i - 1].address / POOL_GRANULE) {
            CONF_OK(hd_buffer_set_label(pieces[i].buffer, "small"));
        } else {
            hd_free(pieces[i].buffer);
        }
    }
    CONF_FAILS(hd_alloc(lane, 8 * POOL_MIB, &none), HD_ERROR_MEMORY);
    CONF_TRUE(strstr(hd_message(), "4 MiB in use, 28 MiB kept by blocks") != NULL);
    CONF_TRUE(strstr(hd_message(), "'small' 4 MiB in 16 (which keep 28 MiB more)") != NULL);
    for (int i = 0; i < n; i++) {
        if (i == 0 || pieces[i].address / POOL_GRANULE != pieces[i - 1].address / POOL_GRANULE) {
            hd_free(pieces[i].buffer);
        }
    }
    CONF_OK(hd_lane_wait(lane, POOL_WAIT));
    pool_gives_all_back(runtime, 0);
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_memory_fragments");
    const struct CMUnitTest tests[] = {
        CONF_CASE(fragments_move_together),
        CONF_CASE(fragments_in_use_are_waited_for),
        CONF_CASE(the_message_has_who_keeps_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
