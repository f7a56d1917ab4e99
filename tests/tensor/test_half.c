/* test_half.c - f16 and bf16 in kernels, the CPU's form. Every number there and back, and rounding at, just below and just above every middle
 * between two numbers.
 *
 * Promise: f16 and bf16 conversions are exact where possible and round to nearest even.
 * Threads: one. Locks: none.
 */
#include "support/check.h"

#include <math.h>
#include <stdbool.h>
#include "kernel/builtin/half.h"

typedef struct format {
    const char *name;
    int bits;  /* of the fraction */
    int least; /* exponent */
    float (*wide)(uint16_t);
    uint16_t (*narrow)(float);
} format;

static float wide_f16(uint16_t h)
{
    return hdk_float_of_f16(h);
}
static uint16_t narrow_f16(float f)
{
    return hdk_f16_of_float(f);
}
static float wide_bf16(uint16_t h)
{
    return hdk_float_of_bf16(h);
}
static uint16_t narrow_bf16(float f)
{
    return hdk_bf16_of_float(f);
}

static const format formats[] = {{"f16", 10, -14, wide_f16, narrow_f16}, {"bf16", 7, -126, wide_bf16, narrow_bf16}};

/* By the definition of the format. */
static double value_of(const format *f, uint16_t h)
{
    int exponent = (h & 0x7fff) >> f->bits;
    double fraction = h & ((1 << f->bits) - 1);
    double x = exponent == 0 ? ldexp(fraction, f->least - f->bits)
                             : ldexp(fraction + (1 << f->bits), exponent - 1 + f->least - f->bits);
    return h & 0x8000 ? -x : x;
}

static bool is_finite(const format *f, uint16_t h)
{
    return (h & 0x7fff) < (((1 << (15 - f->bits)) - 1) << f->bits);
}

static void every_number_there_and_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const format *f = &formats[i];
        for (uint32_t h = 0; h < 65536; h++) {
            float x = f->wide((uint16_t)h);
            if (is_finite(f, (uint16_t)h)) {
                assert_true((double)x == value_of(f, (uint16_t)h));
                assert_int_equal(signbit(x) != 0, h >> 15);
                assert_int_equal(f->narrow(x), h);
            } else if ((h & ((1u << f->bits) - 1)) == 0) {
                assert_true(isinf(x) && (signbit(x) != 0) == (h >> 15 != 0));
                assert_int_equal(f->narrow(x), h);
            } else {
                assert_true(isnan(x));
                uint16_t back = f->narrow(x);
                assert_true(!is_finite(f, back) && (back & ((1 << f->bits) - 1)) != 0);
            }
        }
    }
}

static void rounding_is_to_the_nearest_and_to_even(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const format *f = &formats[i];
        for (uint32_t h = 0; is_finite(f, (uint16_t)h); h++) {
            uint16_t next =
                (uint16_t)(h + 1); /* behind the last one infinity, which is as far as the next number would be */
            double above =
                is_finite(f, next) ? value_of(f, next) : 2 * value_of(f, (uint16_t)h) - value_of(f, (uint16_t)(h - 1));
            float middle = (float)((value_of(f, (uint16_t)h) + above) / 2);
            for (int sign = 0; sign < 2; sign++) {
                uint16_t bit = sign ? 0x8000 : 0;
                float s = sign ? -1.0f : 1.0f;
                assert_int_equal(f->narrow(s * middle), bit | (h % 2 == 0 ? h : next));
                assert_int_equal(f->narrow(s * nextafterf(middle, 0)), bit | h);
                assert_int_equal(f->narrow(s * nextafterf(middle, INFINITY)), bit | next);
            }
        }
        assert_int_equal(f->narrow(3.4e38f) & 0x8000, 0);
        assert_int_equal(f->narrow(1e-45f), 0);
        assert_int_equal(f->narrow(-1e-45f), 0x8000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_there_and_back),
        cmocka_unit_test(rounding_is_to_the_nearest_and_to_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
