/* compare.c - compares the functions of kernels.c with MPFR's rounded functions, or with the C
 * library if results are exact.
 *
 * usage: compare SAMPLES KERNELS.hdk     runs the kernels on a host device
 *        compare SAMPLES                 (built with -DDIRECT) calls them: they are linked in
 *        compare ... --table             prints the largest error and the bound of each function
 *
 * Exits with 1 if a function is further from the rounded result than its bound. Threads: one.
 */
#include <heddle.h>
#include <heddle/kernel.h>
#include <math.h>
#include <mpfr.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "functions.h"

typedef int reference_1(mpfr_t, const mpfr_t, mpfr_rnd_t);
typedef int reference_2(mpfr_t, const mpfr_t, const mpfr_t, mpfr_rnd_t);
typedef double exact_f64(double x, double y);
typedef float exact_f32(float x, float y);
typedef void kernel_f64(const double *x, const double *y, double *result, uint64_t count);
typedef void kernel_f32(const float *x, const float *y, float *result, uint64_t count);

typedef struct function {
    const char *name;
    reference_1 *one;
    reference_2 *two;
    exact_f64 *exact;
    exact_f32 *exact_narrow;
    kernel_f64 *wide; /* NULL: use the kernel file */
    kernel_f32 *narrow;
    int bound_f32, bound_f64;
} function;

/* sin and cos of pi x: the reduction of x is exact, and pi is more precise than needed. */
static int of_pi(mpfr_t result, const mpfr_t x, int (*function)(mpfr_t, const mpfr_t, mpfr_rnd_t))
{
    mpfr_t reduced, pi;
    mpfr_init2(reduced, 1300);
    mpfr_init2(pi, 1300);
    mpfr_fmod_ui(reduced, x, 2, MPFR_RNDN);
    mpfr_mul_2ui(pi, reduced, 1, MPFR_RNDN);
    bool whole = mpfr_integer_p(pi) != 0;
    long half_turns = whole ? mpfr_get_si(pi, MPFR_RNDN) & 3 : 0;
    mpfr_const_pi(pi, MPFR_RNDN);
    mpfr_mul(reduced, reduced, pi, MPFR_RNDN);
    if (whole) {
        static const int sines[] = {0, 1, 0, -1};
        mpfr_set_si(result, sines[(half_turns + (function == mpfr_cos)) & 3], MPFR_RNDN);
    } else {
        function(result, reduced, MPFR_RNDN);
    }
    mpfr_clear(reduced);
    mpfr_clear(pi);
    return 0;
}
static int wide_sinpi(mpfr_t result, const mpfr_t x, mpfr_rnd_t round)
{
    (void)round;
    return of_pi(result, x, mpfr_sin);
}
static int wide_cospi(mpfr_t result, const mpfr_t x, mpfr_rnd_t round)
{
    (void)round;
    return of_pi(result, x, mpfr_cos);
}
static int wide_lgamma(mpfr_t result, const mpfr_t x, mpfr_rnd_t round)
{
    int sign;
    return mpfr_lgamma(result, &sign, x, round);
}

#ifdef DIRECT
#define KERNEL_OF(kernel) kernel
#define DECLARE_1(name, mpfr, bound_f32, bound_f64)                                                                    \
    extern kernel_f32 f32_##name;                                                                                      \
    extern kernel_f64 f64_##name;
#define DECLARE_EXACT(name, wide, narrow)                                                                              \
    extern kernel_f32 f32_##name;                                                                                      \
    extern kernel_f64 f64_##name;
MATH_1(DECLARE_1)
MATH_2(DECLARE_1)
MATH_EXACT(DECLARE_EXACT)
#else
#define KERNEL_OF(kernel) NULL
#endif

#define VARIABLES                                                                                                      \
    int n = 0;                                                                                                         \
    double d = 0, e = 0;                                                                                               \
    float f = 0, g = 0;                                                                                                \
    (void)x, (void)y, (void)n, (void)d, (void)e, (void)f, (void)g;
#define EXPECTED(name, wide, narrow)                                                                                   \
    static double exact_f64_##name(double x, double y)                                                                 \
    {                                                                                                                  \
        VARIABLES return wide;                                                                                         \
    }                                                                                                                  \
    static float exact_f32_##name(float x, float y)                                                                    \
    {                                                                                                                  \
        VARIABLES return (float)(narrow);                                                                              \
    }
MATH_EXACT(EXPECTED)

#define ROW_1(name, mpfr, f32, f64)                                                                                    \
    {#name, mpfr, NULL, NULL, NULL, KERNEL_OF(f64_##name), KERNEL_OF(f32_##name), f32, f64},
#define ROW_2(name, mpfr, f32, f64)                                                                                    \
    {#name, NULL, mpfr, NULL, NULL, KERNEL_OF(f64_##name), KERNEL_OF(f32_##name), f32, f64},
#define ROW_EXACT(name, wide, narrow)                                                                                  \
    {#name, NULL, NULL, exact_f64_##name, exact_f32_##name, KERNEL_OF(f64_##name), KERNEL_OF(f32_##name), 0, 0},
static const function functions[] = {MATH_1(ROW_1) MATH_2(ROW_2) MATH_EXACT(ROW_EXACT)};
enum { FUNCTIONS = sizeof functions / sizeof functions[0] };

/* ---- samples ---- */

static const double special[] = {0.0,
                                 -0.0,
                                 1,
                                 -1,
                                 2,
                                 -2,
                                 0.5,
                                 -0.5,
                                 3,
                                 -3,
                                 1.5,
                                 -1.5,
                                 2.5,
                                 -2.5,
                                 INFINITY,
                                 -INFINITY,
                                 NAN,
                                 0x1.fffffffffffffp1023,
                                 -0x1.fffffffffffffp1023,
                                 0x1p-1022,
                                 -0x1p-1022,
                                 0x1p-1074,
                                 -0x1p-1074,
                                 0x1.fffffep127,
                                 -0x1.fffffep127,
                                 0x1p-126,
                                 -0x1p-126,
                                 0x1p-149,
                                 -0x1p-149,
                                 1e10,
                                 -1e10,
                                 4503599627370497.5,
                                 -4503599627370495.5,
                                 8388607.5,
                                 -8388607.5,
                                 8388609,
                                 1e16,
                                 1e-20,
                                 -1e-20,
                                 709.5,
                                 -745,
                                 88.5,
                                 -103,
                                 0.49999999999999994,
                                 -0.49999999999999994,
                                 0.49999997,
                                 10,
                                 -10,
                                 20,
                                 -20,
                                 100,
                                 -100,
                                 170.5,
                                 -170.5,
                                 35,
                                 1e22,
                                 1e300,
                                 -150.5,
                                 -184.5};
enum { SPECIAL = sizeof special / sizeof special[0] };

static uint64_t state = 88172645463325252u;

static uint64_t random_bits(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

/* A quarter each: random bits, up to 1, up to 4 to 1000, magnitudes around 1. */
static double sample(bool wide)
{
    uint64_t bits = random_bits();
    double unit = (double)(random_bits() >> 11) * 0x1p-53, sign = bits & 4 ? 1 : -1;
    static const double within[] = {4, 30, 1000};
    switch (bits & 3) {
    case 0:
        bits = random_bits();
        if (wide) {
            double any;
            memcpy(&any, &bits, sizeof any);
            return any;
        } else {
            float any;
            memcpy(&any, &bits, sizeof any);
            return any;
        }
    case 1:
        return sign * unit;
    case 2:
        return sign * unit * within[(bits >> 3) % 3];
    default:
        return sign * ldexp(1 + unit, (int)((bits >> 3) % 80) - 60);
    }
}

/* Fills x and y: all pairs of special values, then random ones. In a third of these the power is in
 * range, in another third the quotient is near 1. */
static void make_samples(double *x, double *y, size_t count, bool wide)
{
    for (size_t i = 0; i < count; i++) {
        x[i] = i < SPECIAL * SPECIAL ? special[i / SPECIAL] : sample(wide);
        y[i] = i < SPECIAL * SPECIAL ? special[i % SPECIAL] : sample(wide);
        if (i >= SPECIAL * SPECIAL && i % 3 == 0) {
            x[i] = fabs(x[i]);
            y[i] = (wide ? 1500 : 200) * ((double)(random_bits() >> 11) * 0x1p-53 - 0.5) / log2(x[i]);
        } else if (i >= SPECIAL * SPECIAL && i % 3 == 1) {
            y[i] = x[i] * (1 + (double)(random_bits() >> 11) * 0x1p-53);
        }
        x[i] = x[i] != x[i] ? (double)NAN : wide ? x[i] : (float)x[i]; /* no signalling NaN */
        y[i] = y[i] != y[i] ? (double)NAN : wide ? y[i] : (float)y[i];
    }
}

/* ---- distances ---- */

/* The index of a number in the format's order: neighbours differ by 1, and both zeros are 0. */
static int64_t place(double value, bool wide)
{
    int64_t bits = 0;
    float narrow = (float)value;
    if (wide) {
        memcpy(&bits, &value, sizeof value);
    } else {
        int32_t small;
        memcpy(&small, &narrow, sizeof narrow);
        bits = small < 0 ? INT64_MIN + (small & INT32_MAX) : small;
    }
    return bits < 0 ? INT64_MIN - bits : bits;
}

static double distance(double got, double expected, bool wide)
{
    if (got != got || expected != expected) {
        return (got != got) == (expected != expected) ? 0 : INFINITY;
    }
    int64_t a = place(got, wide), b = place(expected, wide);
    return (a < 0) == (b < 0) ? (double)llabs(a - b) : fabs((double)a) + fabs((double)b);
}

static double expected_of(const function *f, double x, double y, bool wide)
{
    static mpfr_t result, a, b;
    static bool ready;
    if (f->exact != NULL) {
        return wide ? f->exact(x, y) : f->exact_narrow((float)x, (float)y);
    }
    if (!ready) {
        mpfr_init2(result, 256);
        mpfr_init2(a, 53);
        mpfr_init2(b, 53);
        ready = true;
    }
    mpfr_set_d(a, x, MPFR_RNDN);
    mpfr_set_d(b, y, MPFR_RNDN);
    if (f->one != NULL) {
        f->one(result, a, MPFR_RNDN);
    } else {
        f->two(result, a, b, MPFR_RNDN);
    }
    if (f->one == mpfr_rec_sqrt && x == 0) {
        return 1 / x; /* C's function keeps the sign of the zero */
    }
    if (f->one == mpfr_gamma && x == 0) {
        return 1 / x;
    }
    return wide ? mpfr_get_d(result, MPFR_RNDN) : (double)mpfr_get_flt(result, MPFR_RNDN);
}

/* CUDA states no bound for lgamma between its negative zeros. */
static bool has_bound(const function *f, double x)
{
    return f->one != wide_lgamma || !(x > -24 && x < -2.2);
}

static int bound_of(const function *f, bool wide)
{
    int bound = wide ? f->bound_f64 : f->bound_f32;
#ifndef DIRECT
    /* bounds from the C library's manual for double */
    static const struct {
        const char *name;
        int bound;
    } libc[] = {{"cbrt", 4}, {"cosh", 2}, {"tanh", 2}, {"log10", 2}, {"exp10", 2}};
    for (size_t i = 0; wide && i < sizeof libc / sizeof libc[0]; i++) {
        if (strcmp(libc[i].name, f->name) == 0) {
            bound = libc[i].bound;
        }
    }
#endif
    return bound;
}

/* ---- running ---- */

static hd_runtime *runtime;
static hd_module *module;

static void check(hd_status status)
{
    if (status != HD_OK) {
        fprintf(stderr, "compare: %s\n", hd_message());
        exit(2);
    }
}

static void start(const char *path)
{
    hd_options options = {sizeof options, "driver=host"};
    check(hd_open(&options, &runtime));
    FILE *file = fopen(path, "rb");
    static char image[4 << 20];
    size_t bytes = file != NULL ? fread(image, 1, sizeof image, file) : 0;
    if (file != NULL) {
        fclose(file);
    }
    check(hd_module_load(runtime, image, bytes, &module));
}

/* Runs the kernel `name` on the arrays. */
static void launch(const char *name, const void *x, const void *y, void *result, size_t count, size_t size)
{
    hd_lane *lane;
    hd_kernel *kernel;
    hd_buffer *buffers[3];
    check(hd_lane_get_default(runtime, 0, &lane));
    check(hd_kernel_get(module, name, &kernel));
    for (int i = 0; i < 3; i++) {
        check(hd_alloc(lane, count * size, &buffers[i]));
    }
    check(hd_write(buffers[0], 0, x, count * size));
    check(hd_write(buffers[1], 0, y, count * size));
    hd_arg arguments[] = {hd_in(buffers[0]), hd_in(buffers[1]), hd_out(buffers[2]), hd_u64(count)};
    hd_dims grid = {2, 1, 1}, block = {4, 1, 1};
    check(hd_launch(lane, kernel, grid, block, 0, arguments, 4, NULL));
    check(hd_read(buffers[2], 0, result, count * size));
    for (int i = 0; i < 3; i++) {
        check(hd_free(buffers[i]));
    }
}

/* Computes a function's results for all samples, as doubles. */
static void run(const function *f, const double *x, const double *y, double *results, size_t count, bool wide)
{
    char name[64];
    snprintf(name, sizeof name, "%s_%s", wide ? "f64" : "f32", f->name);
    if (wide && f->wide != NULL) {
        f->wide(x, y, results, count);
    } else if (wide) {
        launch(name, x, y, results, count, sizeof *x);
    } else {
        float *narrow = malloc(3 * count * sizeof *narrow);
        for (size_t i = 0; narrow != NULL && i < count; i++) {
            narrow[i] = (float)x[i];
            narrow[count + i] = (float)y[i];
        }
        if (narrow == NULL) {
            exit(2);
        }
        if (f->narrow != NULL) {
            f->narrow(narrow, narrow + count, narrow + 2 * count, count);
        } else {
            launch(name, narrow, narrow + count, narrow + 2 * count, count, sizeof *narrow);
        }
        for (size_t i = 0; i < count; i++) {
            results[i] = narrow[2 * count + i];
        }
        free(narrow);
    }
}

/* True if the function stays within its bound. */
static bool compare(const function *f, const double *x, const double *y, double *results, size_t count, bool wide,
                    bool table)
{
    run(f, x, y, results, count, wide);
    double worst = 0;
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        if (f->one != NULL && i < SPECIAL * SPECIAL && i % SPECIAL != 0) {
            continue; /* x is the same as before */
        }
        double d = has_bound(f, x[i]) ? distance(results[i], expected_of(f, x[i], y[i], wide), wide) : 0;
        if (d > worst) {
            worst = d;
            at = i;
        }
    }
    bool good = worst <= bound_of(f, wide);
    if (table || !good) {
        printf("%s %s: distance %g, bound %d%s; (%a, %a) gives %a, not %a\n", wide ? "f64" : "f32", f->name, worst,
               bound_of(f, wide), good ? "" : ", TOO FAR", x[at], y[at], results[at],
               expected_of(f, x[at], y[at], wide));
    }
    return good;
}

int main(int argc, char **argv)
{
    bool table = argc > 1 && strcmp(argv[argc - 1], "--table") == 0, good = true;
    size_t count = SPECIAL * SPECIAL + (argc > 1 ? strtoul(argv[1], NULL, 10) : 0);
    if (argc - table > 2) {
        start(argv[2]);
    }
    double *x = malloc(3 * count * sizeof *x);
    if (x == NULL) {
        return 2;
    }
    for (int wide = 0; wide < 2; wide++) {
        make_samples(x, x + count, count, wide);
        for (int i = 0; i < FUNCTIONS; i++) {
            good &= compare(&functions[i], x, x + count, x + 2 * count, count, wide, table);
        }
    }
    free(x);
    if (runtime != NULL) {
        check(hd_module_unload(module));
        check(hd_close(runtime));
    }
    return good ? 0 : 1;
}
