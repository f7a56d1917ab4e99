/* test_cpu_warp.c - warps on the CPU: exchanged values, the threads that take part, several
 * schedules, and threads that do not meet.
 *
 * Promise: Warps on the CPU exchange values under any schedule; a missing thread ends the launch.
 */
#include "support/check.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <heddle/kernel.h>
#include "simulator/cpu_run.h"

enum { BLOCKS = 3 };

static hdcu_result run(const hd_cpu_kernel *kernel, const void *arguments, const uint32_t block[3], uint64_t schedule,
                       char *reason)
{
    hdi_cpu_launch l = {.kernel = kernel,
                        .arguments = arguments,
                        .grid = {BLOCKS, 1, 1},
                        .block = {block[0], block[1], block[2]},
                        .schedule = schedule,
                        .reason = reason};
    return hdi_cpu_run(&l, NULL);
}

/* The bits of `gone` mark the lanes whose threads return first. */
HD_KERNEL(exchange, HD_OUT(uint64_t, out), HD_VALUE(uint32_t, gone), HD_VALUE(uint32_t, rounds))
{
    uint32_t n = hd_thread_x() + hd_block_dim_x() * (hd_thread_y() + hd_block_dim_y() * hd_thread_z());
    uint64_t *mine = out + ((uint64_t)hd_block_x() * 1024 + n) * 8;
    if ((gone >> hd_lane_index() & 1) != 0 && n % 64 >= 32) {
        mine[0] = UINT64_MAX;
        return;
    }
    for (uint32_t i = 0; i < rounds; i++) {
        uint64_t value = (uint64_t)n << 32 | i;
        mine[0] = hd_warp_shuffle_xor_u64(value, 5);
        mine[1] = hd_warp_shuffle_down_u64(value, 3);
        mine[2] = hd_warp_shuffle_up_u64(value, 3);
        mine[3] = hd_warp_shuffle_idx_u64(value, 40);
        mine[4] = hd_warp_reduce_add_u32(n + i);
        mine[5] = hd_warp_ballot(n % 3 == 0);
        hd_warp_barrier();
        mine[6] = hd_warp_match_any_u32(n / 4);
        mine[7] = (uint64_t)hd_warp_active_mask() << 32 | (uint32_t)hd_warp_any(n % 32 == 7) << 1 |
                  (uint32_t)hd_warp_all(n % 32 != 7);
        if (i % 3 == 2) {
            hd_barrier();
        }
    }
}

/* True if thread `n` takes part in the meetings of thread `self`'s warp. */
static bool is_there(int64_t n, uint32_t self, uint32_t threads, uint32_t gone)
{
    bool returned = n >= 0 && n % 64 >= 32 && (gone >> n % 32 & 1) != 0;
    return n >= 0 && n < threads && n / 32 == self / 32 && !returned;
}

static uint64_t brought(int64_t n, uint32_t self, uint32_t threads, uint32_t gone, uint32_t i)
{
    return (uint64_t)(is_there(n, self, threads, gone) ? n : self) << 32 | i;
}

static void check_thread(const uint64_t *mine, uint32_t n, uint32_t threads, uint32_t gone, uint32_t i)
{
    uint32_t sum = 0, third = 0, four = 0, there = 0;
    for (uint32_t l = 0; l < 32; l++) {
        uint32_t other = n / 32 * 32 + l;
        if (is_there(other, n, threads, gone)) {
            sum += other + i;
            third |= (uint32_t)(other % 3 == 0) << l;
            four |= (uint32_t)(other / 4 == n / 4) << l;
            there |= (uint32_t)1 << l;
        }
    }
    uint64_t seven = there >> 7 & 1;
    assert_true(mine[0] == brought(n ^ 5, n, threads, gone, i));
    assert_true(mine[1] == brought((int64_t)n + 3, n, threads, gone, i));
    assert_true(mine[2] == brought((int64_t)n - 3, n, threads, gone, i));
    assert_true(mine[3] == brought(n / 32 * 32 + 8, n, threads, gone, i));
    assert_true(mine[4] == sum && mine[5] == third && mine[6] == four);
    assert_true(mine[7] == ((uint64_t)there << 32 | seven << 1 | !seven));
}

static void threads_exchange_values(void **unused)
{
    (void)unused;
    static const uint32_t blocks[][3] = {{1, 1, 1}, {32, 1, 1}, {5, 3, 2}, {100, 1, 1}, {16, 8, 3}, {1024, 1, 1}};
    static const uint32_t gone[] = {0, 1, 0x80000081, 0xfffffffe, 0xffffffff};
    uint64_t *out = calloc((size_t)BLOCKS * 1024 * 8, sizeof *out);
    for (int c = 0; c < 6 * 5 * 4; c++) {
        const uint32_t *block = blocks[c % 6];
        uint32_t threads = block[0] * block[1] * block[2];
        struct exchange_hd_arguments a = {.out = out, .gone = gone[c / 6 % 5], .rounds = 4};
        assert_int_equal(run(&exchange_hd_record.kernel, &a, block, (uint64_t)(c / 30), NULL), HDCU_SUCCESS);
        for (uint32_t i = 0; i < BLOCKS * threads; i++) {
            uint32_t n = i % threads;
            const uint64_t *mine = out + ((size_t)(i / threads) * 1024 + n) * 8;
            if (is_there(n, n, threads, a.gone)) {
                check_thread(mine, n, threads, a.gone, 3);
            } else {
                assert_true(mine[0] == UINT64_MAX);
            }
        }
    }
    free(out);
}

HD_KERNEL(reduce, HD_OUT(float, sums), HD_OUT(double, least), HD_OUT(int64_t, most), HD_IN(float, x))
{
    uint32_t t = hd_thread_x();
    uint32_t at = hd_block_x() * 256 + t;
    sums[at] = hd_block_reduce_add_f32(x[t]);
    least[at] = hd_block_reduce_min_f64(t % 5 == 0 ? (double)NAN : (double)x[t]);
    most[at] = hd_block_reduce_max_i64(-(int64_t)t - 1);
}

/* The order of additions: halves of a whole warp, lane by lane in a partial one, then the warps. */
static float sum_of(const float *x, uint32_t n)
{
    float total = 0;
    for (uint32_t w = 0; w < n; w += 32) {
        float all[32];
        uint32_t lanes = n - w < 32 ? n - w : 32;
        memcpy(all, x + w, lanes * sizeof *all);
        for (uint32_t i = 16; lanes == 32 && i > 0; i /= 2) {
            for (uint32_t j = 0; j < i; j++) {
                all[j] += all[j + i];
            }
        }
        for (uint32_t i = 1; lanes < 32 && i < lanes; i++) {
            all[0] += all[i];
        }
        total = w == 0 ? all[0] : total + all[0];
    }
    return total;
}

static void blocks_are_reduced(void **unused)
{
    (void)unused;
    static float x[256], sums[BLOCKS * 256];
    static double least[BLOCKS * 256];
    static int64_t most[BLOCKS * 256];
    static const uint32_t sizes[] = {1, 31, 32, 33, 96, 250, 256};
    for (uint32_t i = 0; i < 256; i++) {
        x[i] = (float)(i * 7919 % 1000) / 7 - 40;
    }
    for (int c = 0; c < 7 * 3; c++) {
        uint32_t n = sizes[c % 7];
        double low = NAN;
        for (uint32_t i = 0; i < n; i++) {
            low = i % 5 != 0 && !(low <= x[i]) ? x[i] : low;
        }
        struct reduce_hd_arguments a = {.sums = sums, .least = least, .most = most, .x = x};
        assert_int_equal(run(&reduce_hd_record.kernel, &a, (uint32_t[]){n, 1, 1}, (uint64_t)(c / 7), NULL),
                         HDCU_SUCCESS);
        for (uint32_t i = 0; i < BLOCKS * n; i++) {
            uint32_t at = i / n * 256 + i % n;
            assert_true(sums[at] == sum_of(x, n) && most[at] == -1);
            assert_true(least[at] == low || (n == 1 && least[at] != least[at]));
        }
    }
}

HD_KERNEL(apart, HD_VALUE(int, how))
{
    uint32_t t = hd_thread_x();
    if (how == 0 && t % 2 == 0) {
        hd_barrier();
    } else if (how == 1 && t == 3) {
        (void)hd_warp_ballot(1);
    }
    hd_warp_barrier();
    hd_barrier();
}

static void threads_that_do_not_meet_are_named(void **unused)
{
    (void)unused;
    char reason[HDI_DRIVER_REASON_BYTES];
    for (uint64_t schedule = 0; schedule < 5; schedule++) {
        struct apart_hd_arguments a = {.how = 0};
        assert_int_equal(run(&apart_hd_record.kernel, &a, (uint32_t[]){48, 1, 1}, schedule, reason),
                         HDCU_ERROR_LAUNCH_FAILED);
        assert_non_null(strstr(reason, "kernel 'apart', block ("));
        assert_non_null(strstr(reason, "waits for its warp, and thread ("));
        a.how = 1;
        assert_int_equal(run(&apart_hd_record.kernel, &a, (uint32_t[]){48, 1, 1}, schedule, reason),
                         HDCU_ERROR_LAUNCH_FAILED);
        assert_non_null(strstr(reason, "of one warp call different functions of warps"));
        a.how = 2; /* the workers still work */
        assert_int_equal(run(&apart_hd_record.kernel, &a, (uint32_t[]){48, 1, 1}, schedule, reason), HDCU_SUCCESS);
        assert_string_equal(reason, "");
    }
}

enum { ASSERTION = __LINE__ + 4 }; /* the line of hd_assert */
HD_KERNEL(asserts, HD_VALUE(uint32_t, n))
{
    hd_barrier();
    hd_assert(hd_global_x() < n);
}

static void an_assertion_names_the_thread(void **unused)
{
    (void)unused;
    char reason[HDI_DRIVER_REASON_BYTES], where[64];
    struct asserts_hd_arguments a = {.n = 3 * 40};
    assert_int_equal(run(&asserts_hd_record.kernel, &a, (uint32_t[]){40, 1, 1}, 0, reason), HDCU_SUCCESS);
    a.n--;
    assert_int_equal(run(&asserts_hd_record.kernel, &a, (uint32_t[]){40, 1, 1}, 0, reason), HDCU_ERROR_ASSERT);
    snprintf(where, sizeof where, "test_cpu_warp.c:%d", ASSERTION);
    assert_true(strncmp(reason, "kernel 'asserts', block (2, 0, 0), thread (39, 0, 0): assertion 'hd_global_x() < n' ",
                        81) == 0);
    assert_non_null(strstr(reason, where));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_exchange_values),
        cmocka_unit_test(blocks_are_reduced),
        cmocka_unit_test(threads_that_do_not_meet_are_named),
        cmocka_unit_test(an_assertion_names_the_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
