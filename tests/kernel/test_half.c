/* test_half.c - hd_f16 and hd_bf16 on the CPU, against exact arithmetic that is rounded once.
 *
 * Promise: Numbers of 16 bits compute as if exactly, then round once to the nearest, ties to even.
 */
#include "support/check.h"

#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <heddle/kernel.h>

#ifdef __SIZEOF_FLOAT128__
typedef __float128 wide;
#else
typedef long double wide;
#endif

/* One of the two types: its `bits` of precision, with the leading one, and the exponent of the
 * smallest normal number. */
typedef struct kind {
    int bits, least;
    uint16_t infinity;
} kind;

static const kind f16 = {11, -14, 0x7c00}, bf16 = {8, -126, 0x7f80};

static wide power(int exponent)
{
    return ldexp(1, exponent);
}

static bool is_nan(const kind *k, uint16_t h)
{
    return (h & 0x7fff) > k->infinity;
}

/* Returns the value of a number from its fields; for an infinity, the next power of two. */
static wide value_of(const kind *k, uint16_t h)
{
    int size = h & 0x7fff, exponent = size >> (k->bits - 1), fraction = size & ((1 << (k->bits - 1)) - 1);
    wide x = exponent == 0 ? fraction * power(k->least - k->bits + 1)
                           : (fraction + (1 << (k->bits - 1))) * power(k->least + exponent - k->bits);
    return h & 0x8000 ? -x : x;
}

static double double_of(const kind *k, uint16_t h)
{
    if (is_nan(k, h)) {
        return NAN;
    }
    double size = (h & 0x7fff) == k->infinity ? INFINITY : (double)value_of(k, h & 0x7fff);
    return h & 0x8000 ? -size : size;
}

/* Rounds x + rest; rest is smaller than the last bit of x. `negative` is the sign of a zero. */
static uint16_t rounded(const kind *k, wide x, wide rest, bool negative)
{
    uint16_t sign = x < 0 || (x == 0 && negative) ? 0x8000 : 0;
    wide size = x < 0 ? -x : x;
    rest = x < 0 ? -rest : rest;
    if (size == 0) {
        return sign;
    }
    int exponent = ilogb((double)size); /* at most one too large */
    exponent = exponent < k->least ? k->least : exponent;
    if (exponent > 300) {
        return sign | k->infinity;
    }
    exponent -= exponent > k->least && power(exponent) > size;
    wide units = size / power(exponent - k->bits + 1);
    int64_t n = (int64_t)units;
    wide over = units - n;
    if (over > 0.5 || (over == 0.5 && (rest > 0 || (rest == 0 && n % 2 != 0)))) {
        n++;
    }
    int64_t bits = ((int64_t)(exponent - k->least) << (k->bits - 1)) + n;
    return (uint16_t)(sign | (bits > k->infinity ? k->infinity : bits));
}

static void expect(const kind *k, const char *what, uint16_t a, uint16_t b, uint16_t c, uint16_t got, uint16_t wanted)
{
    if (got != wanted && !(is_nan(k, got) && is_nan(k, wanted))) {
        fail_msg("%s with %d bits: %04x %04x %04x gives %04x, not %04x", what, k->bits, a, b, c, got, wanted);
    }
}

/* Returns the sum, with the sign of a zero as in C. */
static uint16_t rounded_sum(const kind *k, wide p, wide c, bool negative)
{
    wide s = p + c, other = s - p, rest = (p - (s - other)) + (c - other);
    return rounded(k, s, rest, negative);
}

static bool is_special(const kind *k, uint16_t a)
{
    return (a & 0x7fff) >= k->infinity;
}

/* Returns C's result in double for infinities, NaNs and zeros, which need no rounding. */
static uint16_t of_double(const kind *k, double x)
{
    if (x != x) {
        return k->infinity + 1;
    }
    return isinf(x) ? (signbit(x) ? 0x8000 : 0) | k->infinity : rounded(k, x, 0, signbit(x));
}

static uint16_t reference(const kind *k, int op, uint16_t a, uint16_t b, uint16_t c)
{
    double x = double_of(k, a), y = double_of(k, b), z = double_of(k, c);
    double plain = op == 0 ? x + y : op == 1 ? x - y : op == 2 ? x * y : op == 3 ? x / y : x * y + z;
    bool special = is_special(k, a) || is_special(k, b) || (op == 4 && is_special(k, c)) || (op == 3 && y == 0);
    if (special) {
        return of_double(k, plain);
    }
    wide u = value_of(k, a), v = value_of(k, b), w = value_of(k, c);
    switch (op) {
    case 0:
        return rounded_sum(k, u, v, signbit(plain));
    case 1:
        return rounded_sum(k, u, -v, signbit(plain));
    case 2:
        return rounded(k, u * v, 0, signbit(plain));
    case 3:
        /* a quotient with this few bits is never a tie, unless it is exact */
        return rounded(k, u / v, 0, signbit(plain));
    default:
        return rounded_sum(k, u * v, w, signbit(plain));
    }
}

static void check_operations(uint16_t a, uint16_t b, uint16_t c)
{
    static const char *const names[] = {"add", "sub", "mul", "div", "fma"};
    hd_f16 x = {a}, y = {b}, z = {c};
    hd_bf16 u = {a}, v = {b}, w = {c};
    uint16_t halves[] = {hd_f16_add(x, y).bits, hd_f16_sub(x, y).bits, hd_f16_mul(x, y).bits, hd_f16_div(x, y).bits,
                         hd_f16_fma(x, y, z).bits};
    uint16_t brains[] = {hd_bf16_add(u, v).bits, hd_bf16_sub(u, v).bits, hd_bf16_mul(u, v).bits, hd_bf16_div(u, v).bits,
                         hd_bf16_fma(u, v, w).bits};
    for (int op = 0; op < 5; op++) {
        expect(&f16, names[op], a, b, c, halves[op], reference(&f16, op, a, b, c));
        expect(&bf16, names[op], a, b, c, brains[op], reference(&bf16, op, a, b, c));
    }
}

static uint32_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static const uint16_t corners[] = {0,      0x8000, 1,      0x8001, 2,      0x3ff,  0x400,  0x401,  0x7f,
                                   0x80,   0x81,   0x3c00, 0xbc00, 0x3c01, 0x3f80, 0xbf80, 0x3f81, 0x7bff,
                                   0x7c00, 0xfc00, 0x7c01, 0x7e00, 0x7f7f, 0x7f80, 0xff80, 0x7f81, 0xffff};
enum { CORNERS = sizeof corners / sizeof corners[0] };

static void operations_are_rounded_once(void **unused)
{
    (void)unused;
    uint64_t state = 1;
    for (int i = 0; i < CORNERS * CORNERS * CORNERS; i++) {
        check_operations(corners[i % CORNERS], corners[i / CORNERS % CORNERS], corners[i / CORNERS / CORNERS]);
    }
    for (int i = 0; i < 100000; i++) {
        check_operations((uint16_t)next(&state), (uint16_t)next(&state), (uint16_t)next(&state));
    }
    /* a product near the third number, or a tie with a tiny rest */
    for (int i = 0; i < 100000; i++) {
        uint16_t near = (uint16_t)(0x3800 + next(&state) % 0x1000), tiny = (uint16_t)(next(&state) % 0x900);
        check_operations((uint16_t)(near ^ (next(&state) & 0x8000)), (uint16_t)(0x3800 + next(&state) % 0x1000),
                         i % 2 ? tiny : (uint16_t)(0x8000 | (0x3800 + next(&state) % 0x1000)));
    }
}

/* Checks a double and its neighbours, and the same as float, against the reference. */
static void check_from(double x)
{
    for (int step = -1; step <= 1; step++) {
        double d = step == 0 ? x : nextafter(x, step * INFINITY);
        float f = step == 0 ? (float)x : nextafterf((float)x, (float)(step * INFINITY));
        expect(&f16, "from f64", 0, 0, 0, hd_f16_from_f64(d).bits, of_double(&f16, d));
        expect(&bf16, "from f64", 0, 0, 0, hd_bf16_from_f64(d).bits, of_double(&bf16, d));
        expect(&f16, "from f32", 0, 0, 0, hd_f16_from_f32(f).bits, of_double(&f16, f));
        expect(&bf16, "from f32", 0, 0, 0, hd_bf16_from_f32(f).bits, of_double(&bf16, f));
    }
}

/* Checks every number, and the middle between it and the next. */
static void every_number_is_converted(void **unused)
{
    (void)unused;
    for (uint32_t i = 0; i < 65536; i++) {
        hd_f16 h = {(uint16_t)i};
        hd_bf16 b = {(uint16_t)i};
        double x = double_of(&f16, h.bits), y = double_of(&bf16, b.bits);
        float from_half = hd_f16_to_f32(h), from_brain = hd_bf16_to_f32(b);
        assert_true(x != x ? from_half != from_half
                           : from_half == (float)x && !signbit(from_half) == !signbit(x) && hd_f16_to_f64(h) == x);
        assert_true(y != y ? from_brain != from_brain
                           : from_brain == (float)y && !signbit(from_brain) == !signbit(y) && hd_bf16_to_f64(b) == y);
        expect(&f16, "there and back", h.bits, 0, 0, hd_f16_from_f32(from_half).bits, h.bits);
        expect(&bf16, "there and back", b.bits, 0, 0, hd_bf16_from_f32(from_brain).bits, b.bits);
        if (x == x && y == y) {
            double up = double_of(&f16, (uint16_t)(i + 1)), over = double_of(&bf16, (uint16_t)(i + 1));
            check_from(x), check_from(y);
            check_from(isinf(up) ? 65520 : (x + up) / 2);
            check_from(isinf(over) ? ldexp(511, 119) : (y + over) / 2);
        }
        assert_int_equal(hd_f16_isnan(h), x != x);
        assert_int_equal(hd_bf16_isnan(b), y != y);
        assert_int_equal(hd_f16_isinf(h), isinf(x) != 0);
        assert_int_equal(hd_bf16_isinf(b), isinf(y) != 0);
        assert_int_equal(hd_f16_to_i32(h), x != x ? 0 : isinf(x) ? (x > 0 ? INT_MAX : INT_MIN) : (int)x);
        int whole = y != y ? 0 : y >= 0x1p31 ? INT_MAX : y <= -0x1p31 ? INT_MIN : (int)y;
        assert_int_equal(hd_bf16_to_i32(b), whole);
        assert_true(hd_f16_neg(h).bits == (h.bits ^ 0x8000) && hd_bf16_abs(b).bits == (b.bits & 0x7fff));
    }
}

static void integers_are_rounded_once(void **unused)
{
    (void)unused;
    uint64_t state = 2;
    for (int i = 0; i < 400000; i++) {
        int32_t x = i < 140000 ? i - 70000 : (int32_t)(next(&state) << 1 ^ next(&state)) >> next(&state) % 24;
        if (i >= 300000) { /* half of the last place of bf16, and one more or less */
            int shift = (int)(next(&state) % 22);
            x = (int32_t)(((next(&state) % 128 + 128) * 2 + 1) << shift) + (int32_t)(next(&state) % 3) - 1;
        }
        expect(&f16, "from i32", 0, 0, 0, hd_f16_from_i32(x).bits, of_double(&f16, x));
        expect(&bf16, "from i32", 0, 0, 0, hd_bf16_from_i32(x).bits, of_double(&bf16, x));
    }
    assert_int_equal(hd_bf16_from_i32(INT_MIN).bits, of_double(&bf16, INT_MIN));
}

static void check_order(uint16_t a, uint16_t b)
{
    hd_f16 x = {a}, y = {b};
    hd_bf16 u = {a}, v = {b};
    double p = double_of(&f16, a), q = double_of(&f16, b), r = double_of(&bf16, a), s = double_of(&bf16, b);
    assert_true(hd_f16_eq(x, y) == (p == q) && hd_f16_ne(x, y) == (p != q) && hd_f16_lt(x, y) == (p < q));
    assert_true(hd_f16_le(x, y) == (p <= q) && hd_f16_gt(x, y) == (p > q) && hd_f16_ge(x, y) == (p >= q));
    assert_true(hd_bf16_eq(u, v) == (r == s) && hd_bf16_ne(u, v) == (r != s) && hd_bf16_lt(u, v) == (r < s));
    assert_true(hd_bf16_le(u, v) == (r <= s) && hd_bf16_gt(u, v) == (r > s) && hd_bf16_ge(u, v) == (r >= s));
    bool second = p != p || (q == q && (q < p || (q == p && signbit(q))));
    expect(&f16, "min", a, b, 0, hd_f16_min(x, y).bits, second ? b : a);
    expect(&f16, "max", a, b, 0, hd_f16_max(x, y).bits, p != p || (q == q && !second) ? b : a);
    second = r != r || (s == s && (s < r || (s == r && signbit(s))));
    expect(&bf16, "min", a, b, 0, hd_bf16_min(u, v).bits, second ? b : a);
    expect(&bf16, "max", a, b, 0, hd_bf16_max(u, v).bits, r != r || (s == s && !second) ? b : a);
}

static void comparisons_are_those_of_c(void **unused)
{
    (void)unused;
    uint64_t state = 3;
    for (int i = 0; i < CORNERS * CORNERS; i++) {
        check_order(corners[i % CORNERS], corners[i / CORNERS]);
    }
    for (int i = 0; i < 200000; i++) {
        check_order((uint16_t)next(&state), (uint16_t)next(&state));
    }
}

static void pairs_are_two_numbers(void **unused)
{
    (void)unused;
    uint64_t state = 4;
    assert_true(sizeof(hd_f16) == 2 && sizeof(hd_bf16) == 2 && sizeof(hd_f16x2) == 4);
    for (int i = 0; i < 1000; i++) {
        hd_f16 n[6];
        for (int j = 0; j < 6; j++) {
            n[j].bits = (uint16_t)next(&state);
        }
        hd_f16x2 a = {n[0], n[1]}, b = {n[2], n[3]}, c = {n[4], n[5]};
        hd_f16x2 got[] = {hd_f16x2_add(a, b), hd_f16x2_sub(a, b), hd_f16x2_mul(a, b), hd_f16x2_fma(a, b, c)};
        hd_f16 low[] = {hd_f16_add(n[0], n[2]), hd_f16_sub(n[0], n[2]), hd_f16_mul(n[0], n[2]),
                        hd_f16_fma(n[0], n[2], n[4])};
        hd_f16 high[] = {hd_f16_add(n[1], n[3]), hd_f16_sub(n[1], n[3]), hd_f16_mul(n[1], n[3]),
                         hd_f16_fma(n[1], n[3], n[5])};
        for (int op = 0; op < 4; op++) {
            expect(&f16, "x", 0, 0, 0, got[op].x.bits, low[op].bits);
            expect(&f16, "y", 0, 0, 0, got[op].y.bits, high[op].bits);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_is_converted),   cmocka_unit_test(integers_are_rounded_once),
        cmocka_unit_test(operations_are_rounded_once), cmocka_unit_test(comparisons_are_those_of_c),
        cmocka_unit_test(pairs_are_two_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
