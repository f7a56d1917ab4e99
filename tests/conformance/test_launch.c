/* test_launch.c - kernels by name and launches: checks before a launch, and the built-in kernels
 * against references in double precision. test_module.c tests the program's own modules.
 *
 * Promise: A refused launch submits nothing, and the built-in kernels agree with their references.
 *
 * Threads: the main one.
 * Locks: none.
 * Always: a refused launch submits nothing.
 */
#include "conformance.h"

#include <math.h>

/* ---- argument errors ---- */

typedef struct bench {
    hd_runtime *runtime;
    hd_lane *lane;
    conf_kernels k;
    hd_buffer *x, *y; /* 1000 floats each: ones, zeros */
} bench;

enum { elements = 1000 };

static void bench_make(bench *b)
{
    b->runtime = conf_open(NULL);
    b->k = conf_builtins(b->runtime);
    CONF_OK(hd_lane_create(b->runtime, 0, &b->lane));
    CONF_OK(hd_alloc(b->lane, elements * 4, &b->x));
    CONF_OK(hd_alloc(b->lane, elements * 4, &b->y));
    CONF_OK(hd_fill(b->x, 0, conf_bits(1), elements * 4, NULL));
    CONF_OK(hd_fill(b->y, 0, conf_bits(0), elements * 4, NULL));
}

/* After refusals: nothing ran, the lane still works. */
static void bench_end(bench *b)
{
    CONF_FILLED(b->x, 0, conf_bits(1), elements * 4);
    CONF_FILLED(b->y, 0, conf_bits(0), elements * 4);
    CONF_OK(conf_axpy(b->lane, b->k, b->y, 0, b->x, 0, 2.0f, elements, NULL));
    CONF_FILLED(b->y, 0, conf_bits(2), elements * 4);
    conf_close(b->runtime);
}

static hd_status try_launch(bench *b, hd_kernel *kernel, hd_dims grid, hd_dims block, size_t shared, const hd_arg *args,
                            size_t n)
{
    hd_ticket ticket = {NULL, 123}, before = conf_lane_ticket(b->lane);
    hd_status status = hd_launch(b->lane, kernel, grid, block, shared, args, n, &ticket);
    if (status != HD_OK) {
        CONF_TRUE(ticket.lane == NULL && ticket.sequence == 123);
        CONF_EQUAL(conf_lane_ticket(b->lane).sequence, before.sequence);
    }
    return status;
}

/* Extents that are left out at the end are 1. */
static void missing_extents_are_one(void **state)
{
    (void)state;
    bench b;
    bench_make(&b);
    hd_arg args[] = {hd_out(b.y), hd_u64(elements), hd_u32(7)};
    for (uint32_t i = 0; i < 4; i++) {
        hd_dims grid = {(elements + 127) / 128, i & 1, 0}, block = {128, i >> 1, 0};
        args[2] = hd_u32(100 + i);
        CONF_OK(try_launch(&b, b.k.fill, grid, block, 0, args, 3));
        CONF_FILLED(b.y, 0, 100 + i, elements * 4);
    }
    CONF_OK(hd_fill(b.y, 0, conf_bits(0), elements * 4, NULL)); /* as it was */
    bench_end(&b);
}

static void refuses_wrong_dims(void **state)
{
    (void)state;
    bench b;
    bench_make(&b);
    hd_arg args[] = {hd_out(b.y), hd_u64(elements), hd_u32(7)};
    hd_dims one = {1, 1, 1};
    static const hd_dims zeros[] = {{0, 1, 1}, {1, 0, 1}, {0, 2, 0}, {0, 0, 0}};
    for (int i = 0; i < 4; i++) {
        CONF_FAILS(try_launch(&b, b.k.fill, zeros[i], one, 0, args, 3), HD_ERROR_ARGUMENT);
        CONF_FAILS(try_launch(&b, b.k.fill, one, zeros[i], 0, args, 3), HD_ERROR_ARGUMENT);
    }
    hd_device_info info = {.size = sizeof info};
    CONF_OK(hd_device_get_info(b.runtime, 0, &info));
    uint32_t most = (uint32_t)info.max_threads_per_block;
    CONF_FAILS(try_launch(&b, b.k.fill, one, conf_dims(most + 1, 1, 1), 0, args, 3), HD_ERROR_LIMIT);
    CONF_FAILS(try_launch(&b, b.k.fill, one, conf_dims(most, 2, 1), 0, args, 3), HD_ERROR_LIMIT);
    CONF_FAILS(try_launch(&b, b.k.fill, one, conf_dims(most / 2, 3, 1), 0, args, 3), HD_ERROR_LIMIT);
    CONF_FAILS(try_launch(&b, b.k.fill, one, conf_dims(UINT32_MAX, UINT32_MAX, UINT32_MAX), 0, args, 3),
               HD_ERROR_LIMIT);
    CONF_FAILS(try_launch(&b, b.k.fill, one, conf_dims(1u << 31, 2, 1), 0, args, 3), HD_ERROR_LIMIT);
    /* 2^32 */
    CONF_FAILS(try_launch(&b, b.k.fill, one, conf_dims(65536, 65536, 1), 0, args, 3), HD_ERROR_LIMIT);
    CONF_FAILS(try_launch(&b, b.k.fill, one, conf_dims(1, 1, info.max_block[2] + 1), 0, args, 3), HD_ERROR_LIMIT);
    for (int i = 0; i < 3; i++) {
        if (info.max_grid[i] < UINT32_MAX) {
            hd_dims grid = {1, 1, 1};
            *(i == 0 ? &grid.x : i == 1 ? &grid.y : &grid.z) = info.max_grid[i] + 1;
            CONF_FAILS(try_launch(&b, b.k.fill, grid, one, 0, args, 3), HD_ERROR_LIMIT);
        }
    }
    CONF_FAILS(try_launch(&b, b.k.fill, one, one, info.shared_bytes_max + 1, args, 3), HD_ERROR_LIMIT);
    CONF_FAILS(try_launch(&b, b.k.fill, one, one, SIZE_MAX, args, 3), HD_ERROR_LIMIT);
    CONF_FAILS(try_launch(&b, b.k.fill, one, one, (size_t)1 << 32, args, 3), HD_ERROR_LIMIT);
    bench_end(&b);
}

static void refuses_wrong_arguments(void **state)
{
    (void)state;
    bench b;
    bench_make(&b);
    hd_dims grid = {8, 1, 1}, block = {128, 1, 1};
    hd_arg good[] = {hd_out(b.y), hd_u64(elements), hd_u32(7), hd_u32(8)};
    CONF_FAILS(try_launch(&b, b.k.fill, grid, block, 0, good, 2), HD_ERROR_ARGUMENT);
    /* numbers that come from a mistake: nothing reads so many arguments */
    static const size_t absurd[] = {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / sizeof(hd_arg) + 4, UINT32_MAX};
    for (int i = 0; i < 4; i++) {
        CONF_FAILS_WITH(try_launch(&b, b.k.fill, grid, block, 0, good, absurd[i]), HD_ERROR_LIMIT, "it takes 3");
    }
    CONF_FAILS(try_launch(&b, b.k.fill, grid, block, 0, good, 4), HD_ERROR_ARGUMENT);
    CONF_FAILS(try_launch(&b, b.k.fill, grid, block, 0, good, 0), HD_ERROR_ARGUMENT);
    CONF_FAILS(try_launch(&b, b.k.fill, grid, block, 0, NULL, 0), HD_ERROR_ARGUMENT);
    CONF_FAILS(try_launch(&b, b.k.fill, grid, block, 0, NULL, 3), HD_ERROR_ARGUMENT);

    uint64_t eight = elements;
    const struct {
        int index;
        hd_arg arg;
        hd_status status;
    } bad[] = {
        {0, hd_u64(hd_buffer_address(b.y)), HD_ERROR_ARGUMENT}, /* a number for a buffer */
        {1, hd_u32(elements), HD_ERROR_ARGUMENT},               /* too small */
        {1, hd_f64(elements), HD_ERROR_ARGUMENT},               /* as large, but another kind */
        {1, hd_in(b.x), HD_ERROR_ARGUMENT},                     /* a buffer for a number */
        {1, hd_bytes(&eight, 4), HD_ERROR_ARGUMENT},            /* a structure of another size */
        {2, hd_u64(7), HD_ERROR_ARGUMENT},
        {2, hd_f32(7), HD_ERROR_ARGUMENT},
        {2, hd_u16(7), HD_ERROR_ARGUMENT},
        {0, hd_in(b.y), HD_ERROR_ACCESS}, /* the kernel writes it */
        {0, hd_in_range(b.y, 0, 400), HD_ERROR_ACCESS},
        {0, hd_out_range(b.y, elements * 4 + 1, 0), HD_ERROR_RANGE},
        {0, hd_out_range(b.y, 0, elements * 4 + 1), HD_ERROR_RANGE},
        {0, hd_out_range(b.y, 4, elements * 4), HD_ERROR_RANGE},
        {0, hd_out_range(b.y, SIZE_MAX, 2), HD_ERROR_RANGE},
        {0, hd_out_range(b.y, 8, SIZE_MAX), HD_ERROR_RANGE},
        {0, hd_out(NULL), HD_ERROR_HANDLE},
        {0, hd_out((hd_buffer *)(void *)b.lane), HD_ERROR_HANDLE},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        hd_arg args[3] = {good[0], good[1], good[2]};
        args[bad[i].index] = bad[i].arg;
        hd_status status = try_launch(&b, b.k.fill, grid, block, 0, args, 3);
        char what[64];
        snprintf(what, sizeof what, "bad argument, row %zu", i);
        conf_fails_at(status, bad[i].status, "hd_fill_u32", what, __FILE__, __LINE__);
    }
    hd_arg args[3] = {good[0], good[1], good[2]};
    args[0].access = 0;
    CONF_FAILS(try_launch(&b, b.k.fill, grid, block, 0, args, 3), HD_ERROR_ARGUMENT);
    args[0].access = 4;
    CONF_FAILS(try_launch(&b, b.k.fill, grid, block, 0, args, 3), HD_ERROR_ARGUMENT);
    args[0] = good[0];
    args[1].kind = HD_ARG_NONE;
    CONF_FAILS(try_launch(&b, b.k.fill, grid, block, 0, args, 3), HD_ERROR_ARGUMENT);
    args[1].kind = 4711;
    CONF_FAILS(try_launch(&b, b.k.fill, grid, block, 0, args, 3), HD_ERROR_ARGUMENT);
    static uint8_t large[8192];
    args[1] = hd_bytes(large, sizeof large);
    hd_status status = try_launch(&b, b.k.fill, grid, block, 0, args, 3);
    CONF_TRUE(status == HD_ERROR_LIMIT || status == HD_ERROR_ARGUMENT);
    args[1] = hd_bytes(NULL, 8);
    CONF_FAILS(try_launch(&b, b.k.fill, grid, block, 0, args, 3), HD_ERROR_ARGUMENT);

    hd_arg reads[] = {hd_out(b.y), hd_out(b.x), hd_u64(elements)}; /* x is read */
    CONF_FAILS(try_launch(&b, b.k.copy, grid, block, 0, reads, 3), HD_ERROR_ACCESS);
    /* y is read and written */
    hd_arg both[] = {hd_in(b.y), hd_in(b.x), hd_f32(1), hd_u64(elements)};
    CONF_FAILS(try_launch(&b, b.k.axpy, grid, block, 0, both, 4), HD_ERROR_ACCESS);

    /* the lane is no kernel, and the kernel no lane */
    CONF_FAILS(hd_launch(b.lane, (hd_kernel *)(void *)b.lane, grid, block, 0, good, 3, NULL), HD_ERROR_HANDLE);
    CONF_FAILS(hd_launch((hd_lane *)(void *)b.k.fill, b.k.fill, grid, block, 0, good, 3, NULL), HD_ERROR_HANDLE);
    bench_end(&b);
}

static void finds_kernels_by_name(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_module *module = NULL, *again = NULL;
    CONF_OK(hd_module_get_builtin(runtime, &module));
    CONF_OK(hd_module_get_builtin(runtime, &again));
    CONF_TRUE(module == again);
    hd_kernel *kernel = NULL, *same = NULL;
    CONF_OK(hd_kernel_get(module, "hd_sum_f32", &kernel));
    CONF_OK(hd_kernel_get(module, "hd_sum_f32", &same));
    CONF_TRUE(kernel == same);
    CONF_FAILS_WITH(hd_kernel_get(module, "hd_nosuchkernel", &kernel), HD_ERROR_NOT_FOUND, "hd_nosuchkernel");
    CONF_TRUE(kernel == same);
    static const char *const names[] = {"hd_fill_u32", "hd_copy_u32", "hd_axpy_f32", "hd_matmul_f32", "hd_sum_f32"};
    for (int i = 0; i < 5; i++) {
        CONF_TRUE(strstr(hd_message(), names[i]) != NULL);
    }
    CONF_FAILS(hd_kernel_get(module, "", &kernel), HD_ERROR_NOT_FOUND);
    CONF_FAILS(hd_kernel_get(module, "hd_sum", &kernel), HD_ERROR_NOT_FOUND);
    CONF_FAILS(hd_kernel_get(module, "hd_sum_f32 ", &kernel), HD_ERROR_NOT_FOUND);
    char *huge = conf_memory(100000);
    memset(huge, 'k', 99999);
    huge[99999] = '\0';
    CONF_FAILS(hd_kernel_get(module, huge, &kernel), HD_ERROR_NOT_FOUND);
    free(huge);
    conf_close(runtime);
}

/* A kernel file names and describes each parameter. */
static void parameters_are_described(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_module *module = NULL;
    hd_kernel *kernel = NULL;
    CONF_OK(hd_module_get_builtin(runtime, &module));
    CONF_OK(hd_kernel_get(module, "hd_axpy_f32", &kernel));
    const uint32_t f32 = (uint32_t)HD_ARG_F32 << 8 | 4u << 16;
    const hd_parameter_info wanted[] = {{0, HD_ARG_BUFFER, HD_READ_WRITE | f32, 8, "y"},
                                        {0, HD_ARG_BUFFER, HD_READ | f32, 8, "x"},
                                        {0, HD_ARG_F32, 0, 4, "a"},
                                        {0, HD_ARG_U64, 0, 8, "n"}};
    for (int i = 0; i < 4; i++) {
        hd_parameter_info got = {.size = sizeof got};
        CONF_OK(hd_kernel_get_parameter(kernel, i, &got));
        CONF_EQUAL(got.size, sizeof got);
        CONF_EQUAL(got.kind, wanted[i].kind);
        CONF_EQUAL(got.access, wanted[i].access);
        CONF_EQUAL(got.bytes, wanted[i].bytes);
        CONF_TRUE(strcmp(got.name, wanted[i].name) == 0);
    }
    conf_close(runtime);
}

/* ---- built-in kernels ---- */

static float *floats(size_t n, uint64_t seed)
{
    float *v = conf_memory(n * 4);
    conf_random r = {seed};
    for (size_t i = 0; i < n; i++) {
        v[i] = (float)((double)conf_below(&r, 2000001) / 1e6 - 1.0);
    }
    return v;
}

static hd_buffer *buffer_with(hd_lane *lane, const void *data, size_t bytes)
{
    hd_buffer *buffer = NULL;
    CONF_OK(hd_alloc(lane, bytes, &buffer));
    CONF_OK(hd_write(buffer, 0, data, bytes));
    return buffer;
}

static void fill_copy_and_axpy(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    conf_kernels k = conf_builtins(runtime);
    static const uint64_t counts[] = {1, 31, 32, 127, 128, 129, 1000, 65537, 1000003};
    for (int d = 0; d < hd_device_count(runtime) && d < 2; d++) {
        hd_lane *lane = conf_default_lane(runtime, d);
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            uint64_t n = counts[c];
            size_t all = (n + 5) * 4; /* the rest must stay */
            float *x = floats(n + 5, c), *y = floats(n + 5, c + 100), *got = conf_memory(all);
            hd_buffer *bx = buffer_with(lane, x, all), *by = buffer_with(lane, y, all), *bz = buffer_with(lane, y, all);
            CONF_OK(conf_axpy(lane, k, by, 0, bx, 0, 0.37f, n, NULL));
            CONF_OK(hd_read(by, 0, got, all));
            for (uint64_t i = 0; i < n; i++) {
                double wanted = (double)y[i] + (double)0.37f * (double)x[i];
                if (fabs((double)got[i] - wanted) > 3e-7) {
                    conf_fail_at(__FILE__, __LINE__, "axpy of %llu: element %llu is %.9g, not %.9g",
                                 (unsigned long long)n, (unsigned long long)i, (double)got[i], wanted);
                }
            }
            CONF_SAME(got + n, y + n, 20);
            CONF_OK(conf_copy(lane, k, bz, 0, bx, 0, n, NULL));
            CONF_HOLDS(bz, 0, x, n * 4);
            CONF_HOLDS(bz, n * 4, y + n, 20);
            CONF_OK(conf_copy(lane, k, bz, 20, bx, 8, n, NULL)); /* at offsets in both buffers */
            CONF_HOLDS(bz, 20, x + 2, n * 4);
            CONF_OK(conf_fill(lane, k, bz, 8, n, 0x89abcdefu, NULL));
            CONF_FILLED(bz, 8, 0x89abcdefu, n * 4);
            hd_free(bx), hd_free(by), hd_free(bz);
            free(x), free(y), free(got);
        }
    }
    conf_close(runtime);
}

static void matmul(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane = conf_default_lane(runtime, hd_device_count(runtime) - 1);
    static const uint32_t shapes[][3] = {{1, 1, 1},     {32, 32, 32}, {33, 31, 65}, {1, 100, 7},  {100, 1, 33},
                                         {64, 96, 128}, {7, 130, 1},  {65, 66, 67}, {97, 45, 200}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        uint32_t m = shapes[s][0], n = shapes[s][1], depth = shapes[s][2];
        float *a = floats((size_t)m * depth, s), *b = floats((size_t)depth * n, s + 50), *c = floats((size_t)m * n, 3);
        hd_buffer *ba = buffer_with(lane, a, (size_t)m * depth * 4), *bb = buffer_with(lane, b, (size_t)depth * n * 4);
        hd_buffer *bc = buffer_with(lane, c, (size_t)m * n * 4);
        hd_arg args[] = {hd_out(bc), hd_in(ba), hd_in(bb), hd_u32(m), hd_u32(n), hd_u32(depth)};
        CONF_OK(hd_launch(lane, k.matmul, conf_dims((n + 31) / 32, (m + 31) / 32, 1), conf_dims(32, 32, 1), 0, args, 6,
                          NULL));
        CONF_OK(hd_read(bc, 0, c, (size_t)m * n * 4));
        for (uint32_t i = 0; i < m; i++) {
            for (uint32_t j = 0; j < n; j++) {
                double wanted = 0;
                for (uint32_t l = 0; l < depth; l++) {
                    wanted += (double)a[(size_t)i * depth + l] * (double)b[(size_t)l * n + j];
                }
                if (!(fabs((double)c[(size_t)i * n + j] - wanted) <= 1e-6 * depth)) {
                    conf_fail_at(__FILE__, __LINE__, "matmul %u x %u x %u: [%u][%u] is %.9g, not %.9g", m, n, depth, i,
                                 j, (double)c[(size_t)i * n + j], wanted);
                }
            }
        }
        hd_free(ba), hd_free(bb), hd_free(bc);
        free(a), free(b), free(c);
    }
    conf_close(runtime);
}

static void sum(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    conf_kernels k = conf_builtins(runtime);
    hd_lane *lane = conf_default_lane(runtime, 0);
    static const uint64_t counts[] = {1, 2, 255, 256, 257, 1000, 100003};
    static const uint32_t blocks[] = {1, 2, 7, 100};
    hd_buffer *total = NULL;
    CONF_OK(hd_alloc(lane, 4, &total));
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        uint64_t n = counts[c];
        float *x = floats(n, c + 7);
        hd_buffer *bx = buffer_with(lane, x, n * 4);
        double wanted = 0;
        for (uint64_t i = 0; i < n; i++) {
            wanted += (double)x[i];
        }
        for (int g = 0; g < 4; g++) {
            float got = 10;
            CONF_OK(hd_fill(total, 0, conf_bits(10), 4, NULL));
            CONF_OK(conf_sum(lane, k, total, 0, bx, 0, n, blocks[g], NULL));
            CONF_OK(hd_read(total, 0, &got, 4));
            if (!(fabs((double)got - 10 - wanted) <= 1e-6 * (double)n + 1e-5)) {
                conf_fail_at(__FILE__, __LINE__, "sum of %llu by %u blocks is %.9g, not %.9g", (unsigned long long)n,
                             blocks[g], (double)got - 10, wanted);
            }
        }
        hd_free(bx);
        free(x);
    }
    conf_close(runtime);
}

/* No driver call returns the number of a kernel's parameters, so a query behind the last one fails.
 * If the image describes the parameters, no query is made: this one would lose the device. */
static void asks_for_no_parameters_that_are_described(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("fault=cuFuncGetParamInfo:1+=700");
    hd_module *module = NULL;
    CONF_OK(hd_module_get_builtin(runtime, &module));
    for (int device = 0; device < hd_device_count(runtime); device++) {
        hd_kernel *fill = NULL;
        hd_lane *lane = NULL;
        CONF_OK(hd_kernel_get(module, "hd_fill_u32", &fill));
        CONF_OK(hd_lane_get_default(runtime, device, &lane));
        hd_buffer *b = NULL;
        CONF_OK(hd_alloc(lane, 64, &b));
        hd_arg args[] = {hd_out(b), hd_u64(16), hd_u32(7)};
        CONF_OK(hd_launch(lane, fill, (hd_dims){.x = 1}, (hd_dims){.x = 32}, 0, args, 3, NULL));
        uint32_t got[16];
        CONF_OK(hd_read(b, 0, got, sizeof got));
        CONF_TRUE(got[15] == 7);
        hd_free(b);
    }
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_launch");
    const struct CMUnitTest tests[] = {
        CONF_CASE(missing_extents_are_one),
        CONF_CASE(refuses_wrong_dims),
        CONF_CASE(refuses_wrong_arguments),
        CONF_CASE(finds_kernels_by_name),
        CONF_CASE(parameters_are_described),
        CONF_CASE(fill_copy_and_axpy),
        CONF_CASE(matmul),
        CONF_CASE(sum),
        CONF_CASE(asks_for_no_parameters_that_are_described),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
