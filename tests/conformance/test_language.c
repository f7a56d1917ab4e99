/* test_language.c - kernel source beyond arithmetic: warps, atomics, halves, shared and constant
 * memory, assert.
 *
 * Promise: Kernels do the same on GPUs and host devices.
 *
 * That covers warps, atomics, 16-bit numbers, shared and constant memory, and assertions. The tool
 * that HEDDLE_TOOL names compiles one source; without it the test skips the cases. It compares
 * 16-bit numbers with those of this program, which tests/kernel/test_half.c tests.
 * Threads: the main one. Locks: none.
 */
#include "conformance.h"

#include <heddle/kernel.h>

#define TEXT(...) #__VA_ARGS__ "\n"

enum { HALVES = 16, WARP_WORDS = 12, THREADS = 250, BLOCKS = 4 };

/* Arithmetic on three halves and a number: the same text in the kernel, and in this program. */
#define HALVES_BODY                                                                                                    \
    hd_f16x2 ab = {a, b};                                                                                              \
    hd_f16x2 ca = {c, a};                                                                                              \
    hd_bf16 p = {a.bits};                                                                                              \
    hd_bf16 q = {b.bits};                                                                                              \
    hd_bf16 r = {c.bits};                                                                                              \
    hd_f16x2 pair = hd_f16x2_fma(hd_f16x2_add(ab, ca), hd_f16x2_mul(ab, ca), hd_f16x2_sub(ab, ca));                    \
    out[0] = hd_f16_add(a, b).bits;                                                                                    \
    out[1] = hd_f16_sub(a, b).bits;                                                                                    \
    out[2] = hd_f16_mul(a, b).bits;                                                                                    \
    out[3] = hd_f16_div(a, b).bits;                                                                                    \
    out[4] = hd_f16_fma(a, b, c).bits;                                                                                 \
    out[5] = hd_f16_from_f64(y).bits;                                                                                  \
    out[6] = hd_f16_from_f32((float)y).bits;                                                                           \
    out[7] = hd_bf16_add(p, q).bits;                                                                                   \
    out[8] = hd_bf16_sub(p, q).bits;                                                                                   \
    out[9] = hd_bf16_mul(p, q).bits;                                                                                   \
    out[10] = hd_bf16_div(p, q).bits;                                                                                  \
    out[11] = hd_bf16_fma(p, q, r).bits;                                                                               \
    out[12] = hd_bf16_from_f64(y).bits;                                                                                \
    out[13] = (uint16_t)(hd_f16_to_i32(a) + hd_bf16_to_i32(p) + hd_f16_lt(a, b));                                      \
    out[14] = pair.x.bits;                                                                                             \
    out[15] = pair.y.bits;
#define EXPANDED(...) TEXT(__VA_ARGS__)

static const char source_start[] =
    "#include <heddle/kernel.h>\n"
    "typedef struct row {\n"
    "    float of[3];\n"
    "    int32_t n;\n"
    "} row;\n"
    "HD_CONSTANT row rows[2] = {{{1, 2, 3}, 4}, {{5, 6, 7}, 8}};\n"
    "HD_CONSTANT uint16_t primes[] = {2, 3, 5, 7};\n"
    "HD_DEVICE uint32_t number(HD_SELF) { return hd_thread_x() + hd_block_dim_x() * hd_thread_y(); }\n";

/* Lane 5 of each second warp returns first. */
static const char source_warps[] = TEXT(
    HD_KERNEL(warps, HD_OUT(uint32_t, out)) {
        uint32_t n = number(hd_self);
        if (n % 64 == 37) {
            return;
        }
        uint32_t *mine = out + n * 12;
        mine[0] = hd_lane_index();
        mine[1] = hd_warp_shuffle_idx_u32(n, 3);
        mine[2] = hd_warp_shuffle_up_u32(n, 6);
        mine[3] = (uint32_t)hd_warp_shuffle_down_f64((double)n, 16);
        mine[4] = (uint32_t)hd_warp_shuffle_xor_i64((int64_t)n, 1);
        mine[5] = hd_warp_ballot(n % 2 == 0);
        mine[6] = hd_warp_active_mask();
        mine[7] = (uint32_t)(hd_warp_any(n == 0) * 2 + hd_warp_all(n < 32));
        mine[8] = hd_warp_match_any_u64((uint64_t)(n / 8) << 40);
        mine[9] = hd_warp_reduce_add_u32(n);
        mine[10] = (uint32_t)(hd_warp_reduce_max_i64((int64_t)n - 1000) + 1000);
        float sum = hd_warp_reduce_add_f32(1.0f / (float)(n + 1));
        __builtin_memcpy(mine + 11, &sum, 4);
    } HD_KERNEL(blocks, HD_OUT(double, out), HD_IN(float, x)) {
        HD_SHARED row all[4];
        HD_SHARED double last;
        uint32_t t = hd_thread_x();
        if (t < 4) {
            all[t] = rows[t % 2];
            all[t].n += primes[t];
        }
        if (t == 4) {
            last = 0.5;
        }
        hd_barrier();
        double *mine = out + (uint64_t)t * 3;
        mine[0] = (double)hd_block_reduce_add_f32(x[t]);
        mine[1] = hd_block_reduce_min_f64((double)x[t]) + hd_block_reduce_max_i32((int32_t)t);
        mine[2] = (double)all[t % 4].n + (double)all[t % 4].of[t % 3] + last;
    });

/* One kernel for each type of integers: u[0..10] begin at 0, but for [2] and [4]. All results are
 * the same in any order. */
#define INTEGERS(T, type)                                                                                              \
    TEXT(HD_KERNEL(integers_##T, HD_INOUT(type, u)) {                                                                  \
        type n = (type)hd_global_x();                                                                                  \
        hd_atomic_add_##T(&u[0], n);                                                                                   \
        hd_atomic_sub_##T(&u[1], n);                                                                                   \
        hd_atomic_min_##T(&u[2], n + 5);                                                                               \
        hd_atomic_max_##T(&u[3], n);                                                                                   \
        hd_atomic_and_##T(&u[4], (type) ~((type)1 << n % 31));                                                         \
        hd_atomic_or_##T(&u[5], (type)1 << n % 31);                                                                    \
        hd_atomic_xor_##T(&u[6], n);                                                                                   \
        type seen = 0;                                                                                                 \
        type found = hd_atomic_cas_##T(&u[7], seen, seen + 3);                                                         \
        while (found != seen) {                                                                                        \
            seen = found;                                                                                              \
            found = hd_atomic_cas_##T(&u[7], seen, seen + 3);                                                          \
        }                                                                                                              \
        hd_atomic_add_##T(&u[8], hd_atomic_exchange_##T(&u[9], n + 1));                                                \
    })
static const char source_integers[] = INTEGERS(u32, uint32_t) INTEGERS(i32, int32_t);
static const char source_long[] = INTEGERS(u64, uint64_t) INTEGERS(i64, int64_t);

static const char source_floats[] = TEXT(
    HD_KERNEL(floats, HD_INOUT(double, d), HD_INOUT(float, f), HD_INOUT(uint16_t, h), HD_INOUT(uint32_t, order)) {
        HD_SHARED uint32_t inside;
        uint32_t n = (uint32_t)hd_global_x();
        if (hd_thread_x() == 0) {
            inside = 0;
        }
        hd_barrier();
        hd_atomic_add_u32(&inside, 1);
        hd_barrier();
        if (hd_thread_x() == 0) {
            hd_atomic_add_u32(&order[0], inside);
        }
        hd_atomic_add_f64(&d[0], (double)n);
        hd_atomic_min_f64(&d[1], -(double)n);
        hd_atomic_max_f64(&d[2], (double)n);
        hd_atomic_add_f64(&d[3], hd_atomic_exchange_f64(&d[4], (double)n + 1));
        hd_atomic_add_f32(&f[0], (float)(n % 4));
        hd_atomic_min_f32(&f[1], -(float)n);
        hd_atomic_max_f32(&f[2], (float)n);
        hd_atomic_add_f32(&f[3], hd_atomic_exchange_f32(&f[4], (float)(n % 4 + 1)));
        if (n % 16 == 0) {
            hd_atomic_add_f16((hd_f16 *)&h[0], hd_f16_from_i32(1));
            hd_atomic_add_bf16((hd_bf16 *)&h[1], hd_bf16_from_i32(2));
        }
        uint16_t seen = 0;
        uint16_t found = hd_atomic_cas_u16(&h[2], seen, (uint16_t)(seen + 1));
        while (found != seen) {
            seen = found;
            found = hd_atomic_cas_u16(&h[2], seen, (uint16_t)(seen + 1));
        }
        /* the last thread sees everything that the others wrote */
        order[2 + n] = n;
        hd_thread_fence_device();
        if (hd_atomic_add_u32(&order[1], 1) == hd_grid_dim_x() * hd_block_dim_x() - 1) {
            hd_thread_fence_device();
            uint32_t sum = 0;
            for (uint32_t i = 0; i <= order[1] - 1; i++) {
                sum += *(volatile uint32_t *)&order[2 + i];
            }
            order[0] += sum << 16;
        }
    } HD_KERNEL(asserts, HD_VALUE(uint32_t, n)) { assert(hd_global_x() < n); });

static const char source_halves[] = TEXT(
    HD_KERNEL(halves, HD_OUT(uint16_t, all), HD_IN(uint16_t, x), HD_IN(double, ys),
              HD_VALUE(uint32_t, n))) "{\n"
                                      "    uint32_t i = (uint32_t)hd_global_x();\n"
                                      "    if (i >= n) { return; }\n"
                                      "    uint16_t *out = all + (uint64_t)i * 16;\n"
                                      "    hd_f16 a = {x[i]}, b = {x[(i * 7 + 1) % n]}, c = {x[(i * 31 + 2) % n]};\n"
                                      "    double y = ys[i];\n" EXPANDED(HALVES_BODY) "}\n";

typedef struct loaded {
    hd_runtime *runtime;
    hd_lane *lane;
    hd_module *module;
} loaded;

/* Loads the module on the first device. False: there is no tool. */
static bool load(loaded *l)
{
    char *text = conf_memory(sizeof source_start + sizeof source_warps + sizeof source_integers + sizeof source_long +
                             sizeof source_floats + sizeof source_halves);
    sprintf(text, "%s%s%s%s%s%s", source_start, source_warps, source_integers, source_long, source_floats,
            source_halves);
    static uint8_t *image;
    static size_t bytes;
    if (image == NULL) {
        image = conf_kernel_file(text, &bytes);
    }
    free(text);
    if (image == NULL) {
        return false;
    }
    l->runtime = conf_open(NULL);
    l->lane = conf_default_lane(l->runtime, 0);
    CONF_OK(hd_module_load(l->runtime, image, bytes, &l->module));
    return true;
}

static void launch(const loaded *l, const char *name, hd_dims grid, hd_dims block, const hd_arg *args, uint32_t n)
{
    hd_kernel *kernel = NULL;
    CONF_OK(hd_kernel_get(l->module, name, &kernel));
    CONF_OK(hd_launch(l->lane, kernel, grid, block, 0, args, n, NULL));
}

static hd_buffer *buffer_of(const loaded *l, const void *content, size_t bytes)
{
    hd_buffer *b = NULL;
    CONF_OK(hd_alloc(l->lane, bytes, &b));
    CONF_OK(hd_write(b, 0, content, bytes));
    return b;
}

static void threads_of_a_warp_exchange_values(void **state)
{
    (void)state;
    loaded l;
    if (!load(&l)) {
        skip();
    }
    static uint32_t out[125 * 2 * WARP_WORDS];
    hd_buffer *b = buffer_of(&l, out, sizeof out);
    hd_arg args[] = {hd_out(b)};
    launch(&l, "warps", conf_dims(1, 1, 1), conf_dims(125, 2, 1), args, 1);
    CONF_OK(hd_read(b, 0, out, sizeof out));
    for (uint32_t n = 0; n < 250; n++) {
        const uint32_t *mine = out + n * WARP_WORDS;
        uint32_t first = n / 32 * 32, there = 0, even = 0, eight = 0, sum = 0, most = 0;
        float all[32], total = 0;
        uint32_t lanes = 0;
        for (uint32_t i = first; i < first + 32 && i < 250; i++) {
            if (i % 64 != 37) {
                there |= (uint32_t)1 << i % 32;
                even |= (uint32_t)(i % 2 == 0) << i % 32;
                eight |= (uint32_t)(i / 8 == n / 8) << i % 32;
                sum += i, most = i;
                all[lanes++] = 1.0f / (float)(i + 1);
            }
        }
        for (uint32_t i = 16; lanes == 32 && i > 0; i /= 2) {
            for (uint32_t j = 0; j < i; j++) {
                all[j] += all[j + i];
            }
        }
        total = all[0];
        for (uint32_t i = 1; lanes < 32 && i < lanes; i++) {
            total += all[i];
        }
        if (n % 64 == 37) {
            continue;
        }
        CONF_EQUAL(mine[0], n % 32);
        CONF_EQUAL(mine[1], first + 3);
        CONF_TRUE(mine[2] == (n % 32 < 6 ? n : n - 6) || (n - 6) % 64 == 37);
        CONF_TRUE(mine[3] == (n % 32 >= 16 ? n : n + 16) || n + 16 >= 250 || (n + 16) % 64 == 37);
        CONF_TRUE(mine[4] == (n ^ 1) || (n ^ 1) % 64 == 37);
        CONF_EQUAL(mine[5], even);
        CONF_EQUAL(mine[6], there);
        CONF_EQUAL(mine[7], first == 0 ? 3 : 0);
        CONF_EQUAL(mine[8], eight);
        CONF_EQUAL(mine[9], sum);
        CONF_EQUAL(mine[10], most);
        CONF_EQUAL(mine[11], conf_bits(total));
    }
    conf_close(l.runtime);
}

static void blocks_have_shared_and_constant_memory(void **state)
{
    (void)state;
    loaded l;
    if (!load(&l)) {
        skip();
    }
    static float x[THREADS];
    static double out[THREADS * 3];
    static const double rows[2][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}}, primes[4] = {2, 3, 5, 7};
    double sum = 0;
    for (int i = 0; i < THREADS; i++) {
        x[i] = (float)(i % 17) - 3; /* their sum is exact in any order */
        sum += (double)x[i];
    }
    hd_buffer *b = buffer_of(&l, out, sizeof out), *in = buffer_of(&l, x, sizeof x);
    hd_arg args[] = {hd_out(b), hd_in(in)};
    launch(&l, "blocks", conf_dims(1, 1, 1), conf_dims(THREADS, 1, 1), args, 2);
    CONF_OK(hd_read(b, 0, out, sizeof out));
    for (int i = 0; i < THREADS; i++) {
        CONF_TRUE(out[i * 3] == sum && out[i * 3 + 1] == -3 + THREADS - 1);
        CONF_TRUE(out[i * 3 + 2] == rows[i % 2][3] + primes[i % 4] + rows[i % 2][i % 3] + 0.5);
    }
    conf_close(l.runtime);
}

/* Checks the integers against the result of any order of the threads. */
static void check_integers(const int64_t *u, uint64_t ones)
{
    const int64_t n = (int64_t)THREADS * BLOCKS, sum = n * (n - 1) / 2;
    int64_t parity = 0;
    for (int64_t i = 0; i < n; i++) {
        parity ^= i;
    }
    CONF_TRUE(u[0] == sum && ((uint64_t)(u[1] + sum) & ones) == 0 && u[2] == 5 && u[3] == n - 1);
    CONF_TRUE(((uint64_t)u[4] & 0x7fffffff) == 0 && (u[5] & 0x7fffffff) == 0x7fffffff && u[6] == parity);
    CONF_TRUE(u[7] == 3 * n && u[8] + u[9] == sum + n);
}

static void atomics_lose_no_update(void **state)
{
    (void)state;
    loaded l;
    if (!load(&l)) {
        skip();
    }
    static const char *const names[] = {"integers_u32", "integers_i32", "integers_u64", "integers_i64"};
    for (int k = 0; k < 4; k++) {
        int64_t u[10] = {0, 0, 1000, 0, -1};
        int32_t v[10] = {0, 0, 1000, 0, -1};
        hd_buffer *b = k < 2 ? buffer_of(&l, v, sizeof v) : buffer_of(&l, u, sizeof u);
        hd_arg args[] = {hd_inout(b)};
        launch(&l, names[k], conf_dims(BLOCKS, 1, 1), conf_dims(THREADS, 1, 1), args, 1);
        CONF_OK(hd_read(b, 0, k < 2 ? (void *)v : (void *)u, k < 2 ? sizeof v : sizeof u));
        for (int i = 0; k < 2 && i < 10; i++) {
            u[i] = v[i];
        }
        check_integers(u, k < 2 ? UINT32_MAX : UINT64_MAX);
    }
    const uint32_t n = THREADS * BLOCKS;
    double d[5] = {0};
    float f[5] = {0};
    uint16_t h[4] = {0};
    static uint32_t order[2 + THREADS * BLOCKS];
    hd_buffer *db = buffer_of(&l, d, sizeof d), *fb = buffer_of(&l, f, sizeof f), *hb = buffer_of(&l, h, sizeof h);
    hd_buffer *ob = buffer_of(&l, order, sizeof order);
    hd_arg args[] = {hd_inout(db), hd_inout(fb), hd_inout(hb), hd_inout(ob)};
    launch(&l, "floats", conf_dims(BLOCKS, 1, 1), conf_dims(THREADS, 1, 1), args, 4);
    CONF_OK(hd_read(db, 0, d, sizeof d));
    CONF_OK(hd_read(fb, 0, f, sizeof f));
    CONF_OK(hd_read(hb, 0, h, sizeof h));
    CONF_OK(hd_read(ob, 0, order, sizeof order));
    double sum = (double)n * (n - 1) / 2;
    CONF_TRUE(d[0] == sum && d[1] == -(double)(n - 1) && d[2] == n - 1 && d[3] + d[4] == sum + n);
    CONF_TRUE(f[0] == n / 4 * 6 && f[1] == -(float)(n - 1) && f[2] == (float)(n - 1));
    CONF_TRUE(f[3] + f[4] == (float)(n / 4 * 10));
    CONF_EQUAL(h[0], hd_f16_from_i32((int32_t)(n + 15) / 16).bits);
    CONF_EQUAL(h[1], hd_bf16_from_i32((int32_t)(n + 15) / 16 * 2).bits);
    CONF_EQUAL(h[2], n);
    CONF_EQUAL(order[0], n + ((uint32_t)sum << 16));
    conf_close(l.runtime);
}

static bool same_half(uint16_t a, uint16_t b, uint16_t infinity)
{
    return a == b || ((a & 0x7fff) > infinity && (b & 0x7fff) > infinity);
}

static void halves_have_the_same_bits(void **state)
{
    (void)state;
    loaded l;
    if (!load(&l)) {
        skip();
    }
    enum { N = 65536 };
    uint16_t *x = conf_memory(N * sizeof *x), *all = conf_memory(N * HALVES * sizeof *all);
    double *ys = conf_memory(N * sizeof *ys);
    for (uint32_t i = 0; i < N; i++) {
        hd_f16 h = {(uint16_t)i};
        hd_bf16 b = {(uint16_t)i};
        x[i] = (uint16_t)(i * 40503);
        ys[i] = (i % 2 ? hd_f16_to_f64(h) : hd_bf16_to_f64(b)) * (1 + (i % 3) * 0x1p-9 + (i % 5) * 0x1p-50);
    }
    hd_buffer *results = buffer_of(&l, all, N * HALVES * sizeof *all), *xb = buffer_of(&l, x, N * sizeof *x);
    hd_buffer *yb = buffer_of(&l, ys, N * sizeof *ys);
    hd_arg args[] = {hd_out(results), hd_in(xb), hd_in(yb), hd_u32(N)};
    launch(&l, "halves", conf_dims(N / 256, 1, 1), conf_dims(256, 1, 1), args, 4);
    CONF_OK(hd_read(results, 0, all, N * HALVES * sizeof *all));
    for (uint32_t i = 0; i < N; i++) {
        uint16_t out[HALVES];
        hd_f16 a = {x[i]}, b = {x[(i * 7 + 1) % N]}, c = {x[(i * 31 + 2) % N]};
        double y = ys[i];
        HALVES_BODY
        for (int k = 0; k < HALVES; k++) {
            CONF_TRUE(k == 13 ? all[i * HALVES + k] == out[k]
                              : same_half(all[i * HALVES + k], out[k], k >= 7 && k < 13 ? 0x7f80 : 0x7c00));
        }
    }
    free(x);
    free(all);
    free(ys);
    conf_close(l.runtime);
}

static void an_assertion_names_the_kernel(void **state)
{
    (void)state;
    loaded l;
    if (!load(&l)) {
        skip();
    }
    if (!conf_isolates(l.runtime) && getenv("HEDDLE_TEST_FAULTS") == NULL) {
        conf_close(l.runtime);
        skip();
    }
    hd_arg args[] = {hd_u32(3 * 64)};
    launch(&l, "asserts", conf_dims(3, 1, 1), conf_dims(64, 1, 1), args, 1);
    CONF_OK(hd_lane_wait(l.lane, 60 * CONF_SECOND));
    args[0] = hd_u32(2 * 64 + 63);
    launch(&l, "asserts", conf_dims(3, 1, 1), conf_dims(64, 1, 1), args, 1);
    CONF_FAILS(hd_lane_wait(l.lane, 60 * CONF_SECOND), HD_ERROR_DEVICE_LOST);
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    CONF_TRUE(strcmp(error.kernel, "asserts") == 0);
    CONF_TRUE(strstr(error.message, "CUDA_ERROR_ASSERT: ") != NULL);
    CONF_TRUE(
        strstr(error.message,
               conf_is_host(l.runtime)
                   ? "kernel 'asserts', block (2, 0, 0), thread (63, 0, 0): assertion 'hd_global_x() < n' failed at "
                   : "the driver wrote the assertion, its block and thread to standard error") != NULL);
    conf_close(l.runtime);
}

int main(void)
{
    conf_begin("test_language");
    const struct CMUnitTest tests[] = {
        CONF_CASE(threads_of_a_warp_exchange_values),
        CONF_CASE(blocks_have_shared_and_constant_memory),
        CONF_CASE(atomics_lose_no_update),
        CONF_CASE(halves_have_the_same_bits),
        CONF_CASE(an_assertion_names_the_kernel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
