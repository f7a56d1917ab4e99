/* test_combine.c - the built-in kernels hd_combine_TYPE against C.
 *
 * Promise: y = y op x for each type and each operation, and no other byte changes.
 *
 * Threads: the main one.
 * Locks: none.
 */
#include "conformance.h"

enum { ELEMENTS = 1000, REST = 5, SPACE = 8 * (ELEMENTS + REST) };

static hd_runtime *runtime;

/* Bytes that give equal elements, zeros and large values in each type. */
static void bytes_make(unsigned char *out, uint64_t seed)
{
    conf_random r = {seed};
    for (size_t i = 0; i < SPACE; i++) {
        out[i] = (unsigned char)(conf_below(&r, 3) ? conf_below(&r, 256) : 0);
    }
}

/* Runs one kernel, and compares the result with `wanted`. */
static void compare(const char *name, size_t size, uint32_t op, const void *x, const void *y, const void *wanted)
{
    hd_module *module = NULL;
    hd_kernel *kernel = NULL;
    hd_buffer *bx = NULL, *by = NULL;
    hd_lane *lane = conf_default_lane(runtime, 0);
    const size_t all = size * (ELEMENTS + REST);
    CONF_OK(hd_module_get_builtin(runtime, &module));
    CONF_OK(hd_kernel_get(module, name, &kernel));
    CONF_OK(hd_alloc(lane, all, &bx));
    CONF_OK(hd_alloc(lane, all, &by));
    CONF_OK(hd_write(bx, 0, x, all));
    CONF_OK(hd_write(by, 0, y, all));
    hd_arg args[] = {hd_inout_range(by, 0, size * ELEMENTS), hd_in_range(bx, 0, size * ELEMENTS), hd_u64(ELEMENTS),
                     hd_u32(op)};
    CONF_OK(hd_launch(lane, kernel, conf_grid(ELEMENTS, 128), conf_dims(128, 1, 1), 0, args, 4, NULL));
    CONF_HOLDS(by, 0, wanted, all);
    hd_free(bx);
    hd_free(by);
}

/* Defines a test of one type. VALUE is an expression of a, b and op. */
#define TEST(suffix, type, ops, value)                                                                                 \
    static void suffix(void **state)                                                                                   \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        static type x[ELEMENTS + REST], y[ELEMENTS + REST], wanted[ELEMENTS + REST];                                   \
        static unsigned char bytes[SPACE];                                                                             \
        runtime = conf_open(NULL);                                                                                     \
        for (uint32_t op = 0; op < (ops); op++) {                                                                      \
            bytes_make(bytes, op + 1);                                                                                 \
            memcpy(x, bytes, sizeof x);                                                                                \
            bytes_make(bytes, op + 1001);                                                                              \
            memcpy(y, bytes, sizeof y);                                                                                \
            for (size_t i = 0; i < ELEMENTS + REST; i++) {                                                             \
                TAME(x[i], type);                                                                                      \
                TAME(y[i], type);                                                                                      \
                y[i] = i % 10 ? y[i] : x[i];                                                                           \
                const type a = y[i], b = x[i];                                                                         \
                wanted[i] = i < ELEMENTS ? (type)(value) : y[i];                                                       \
            }                                                                                                          \
            compare("hd_combine_" #suffix, sizeof(type), op, x, y, wanted);                                            \
        }                                                                                                              \
        conf_close(runtime);                                                                                           \
    }

/* A value of floating point becomes a small whole number, so that no result depends on rounding. */
#define TAME(v, type)                                                                                                  \
    do {                                                                                                               \
        unsigned char low;                                                                                             \
        memcpy(&low, &(v), 1);                                                                                         \
        (v) = (type)0.5 == 0 ? (v) : (type)(low) - (type)100;                                                          \
    } while (0)

static uint64_t integer_of(uint32_t op, uint64_t a, uint64_t b, int less)
{
    const uint64_t all[] = {a + b, a * b, less ? b : a, less ? a : b, a & b, a | b, a ^ b, a && b, a || b, !a != !b};
    return all[op];
}

#define INTEGER(suffix, type) TEST(suffix, type, 10, integer_of(op, (uint64_t)a, (uint64_t)b, b < a))
#define FLOATING(suffix, type) TEST(suffix, type, 4, op == 0 ? a + b : op == 1 ? a * b : (op == 2) == (b < a) ? b : a)

INTEGER(i8, int8_t)
INTEGER(u8, uint8_t)
INTEGER(i16, int16_t)
INTEGER(u16, uint16_t)
INTEGER(i32, int32_t)
INTEGER(u32, uint32_t)
INTEGER(i64, int64_t)
INTEGER(u64, uint64_t)
FLOATING(f32, float)
FLOATING(f64, double)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONF_CASE(i8),  CONF_CASE(u8),  CONF_CASE(i16), CONF_CASE(u16), CONF_CASE(i32),
        CONF_CASE(u32), CONF_CASE(i64), CONF_CASE(u64), CONF_CASE(f32), CONF_CASE(f64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
