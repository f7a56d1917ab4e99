/* test_bits.c - hd_bits_* on the CPU, against the bits one by one. tests/kernel/pairs uses them on
 * GPUs.
 *
 * Promise: Functions for bits count, find and reverse them, also of 0; floats keep every bit.
 */
#include "support/check.h"

#include <math.h>
#include <heddle/kernel.h>

static void check(uint64_t x)
{
    uint32_t count[2] = {0, 0}, leading[2] = {32, 64}, trailing[2] = {32, 64};
    uint64_t reversed[2] = {0, 0};
    for (int wide = 0; wide < 2; wide++) {
        uint32_t bits = wide ? 64 : 32;
        for (uint32_t i = 0; i < bits; i++) {
            if ((x >> i & 1) != 0) {
                count[wide]++;
                leading[wide] = bits - 1 - i;
                trailing[wide] = trailing[wide] == bits ? i : trailing[wide];
                reversed[wide] |= (uint64_t)1 << (bits - 1 - i);
            }
        }
    }
    assert_int_equal(hd_bits_count_u32((uint32_t)x), count[0]);
    assert_int_equal(hd_bits_count_u64(x), count[1]);
    assert_int_equal(hd_bits_leading_u32((uint32_t)x), leading[0]);
    assert_int_equal(hd_bits_leading_u64(x), leading[1]);
    assert_int_equal(hd_bits_trailing_u32((uint32_t)x), trailing[0]);
    assert_int_equal(hd_bits_trailing_u64(x), trailing[1]);
    assert_int_equal(hd_bits_reverse_u32((uint32_t)x), reversed[0]);
    assert_int_equal(hd_bits_reverse_u64(x), reversed[1]);
}

static void bits_are_those_of_the_number(void **state)
{
    (void)state;
    uint64_t x = 0x123456789abcdef1u;
    check(0);
    check(UINT64_MAX);
    check(UINT32_MAX);
    for (int i = 0; i < 64; i++) {
        check((uint64_t)1 << i);
        check(UINT64_MAX << i);
        check(UINT64_MAX >> i);
    }
    for (int i = 0; i < 1000; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        check(x >> i % 40);
    }
}

static void numbers_keep_their_bits(void **state)
{
    (void)state;
    assert_int_equal(hd_bits_from_f32(1.0f), 0x3f800000);
    assert_int_equal(hd_bits_from_f32(-0.0f), 0x80000000);
    assert_true(hd_bits_to_f32(0xff800000u) == -HUGE_VALF);
    assert_int_equal(hd_bits_from_f32(hd_bits_to_f32(0x7fc01234u)), 0x7fc01234);
    assert_true(hd_bits_from_f64(-2.0) == 0xc000000000000000u);
    assert_true(hd_bits_to_f64(1) == 0x1p-1074);
    assert_true(hd_bits_from_f64(hd_bits_to_f64(0x7ff8000000005678u)) == 0x7ff8000000005678u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_those_of_the_number),
        cmocka_unit_test(numbers_keep_their_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
