/* test_module.c - modules that a program loads.
 *
 * Promise: Images of every kind get arguments as passed; unloading lets submitted work finish.
 *
 * - images of every kind, and kernel files
 * - arguments as their kernels receive them
 * - loading and unloading while work is in flight
 *
 * Threads: the main one.
 * Locks: none.
 * Always: kernels submitted before the unload of their module run. The tool that HEDDLE_TOOL names
 * makes the kernel files; without it the test skips those cases.
 */
#include "conformance.h"
#include <sys/stat.h>
#include "folder.h"

/* ---- images ---- */

static void refuses_images_that_are_none(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_module *module = NULL;
    static uint8_t noise[10000];
    conf_pattern(noise, sizeof noise, 5);
    static const size_t lengths[] = {1, 2, 3, 4, 8, 15, 16, 64, 1000, 10000};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        CONF_FAILS(hd_module_load(runtime, noise, lengths[i], &module), HD_ERROR_IMAGE);
        memset(noise + 9000, 0, 1000);
        CONF_FAILS(hd_module_load(runtime, noise + 9000, lengths[i] > 1000 ? 1000 : lengths[i], &module),
                   HD_ERROR_IMAGE);
    }
    static const char elf[64] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
    CONF_FAILS(hd_module_load(runtime, elf, sizeof elf, &module), HD_ERROR_IMAGE);
    CONF_FAILS(hd_module_load(runtime, elf, 5, &module), HD_ERROR_IMAGE);
    static const char fatbin[64] = {0x50, (char)0xed, 0x55, (char)0xba, 1, 0, 16, 0};
    CONF_FAILS(hd_module_load(runtime, fatbin, sizeof fatbin, &module), HD_ERROR_IMAGE);
    static const char text[] = ".version 7.0\n.target sm_70\nthis is no PTX\n";
    CONF_FAILS(hd_module_load(runtime, text, sizeof text, &module), HD_ERROR_IMAGE);
    CONF_TRUE(module == NULL);
    /* the runtime still works */
    conf_kernels k = conf_builtins(runtime);
    hd_buffer *y = NULL;
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), 64, &y));
    CONF_OK(conf_fill(conf_default_lane(runtime, 0), k, y, 0, 16, 4, NULL));
    CONF_FILLED(y, 0, 4, 64);
    conf_close(runtime);
}

static const char ptx[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry conf_store(.param .u64 store_y, .param .u32 store_v, .param .align 8 .b8 store_s[16])\n"
    "{\n"
    "    .reg .b64 %rd<3>;\n    .reg .b32 %r<3>;\n"
    "    ld.param.u64 %rd1, [store_y];\n    ld.param.u32 %r1, [store_v];\n    ld.param.u32 %r2, [store_s+8];\n"
    "    cvta.to.global.u64 %rd2, %rd1;\n    st.global.u32 [%rd2], %r1;\n    st.global.u32 [%rd2+4], %r2;\n    ret;\n"
    "}\n";

static void ptx_text(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_module *module = NULL;
    if (conf_is_host(runtime)) { /* runs only kernel files, and reports that */
        CONF_FAILS(hd_module_load(runtime, ptx, sizeof ptx, &module), HD_ERROR_IMAGE);
        CONF_TRUE(module == NULL);
        conf_close(runtime);
        return;
    }
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *y = NULL;
    CONF_OK(hd_alloc(lane, 64, &y));
    for (int zero = 0; zero < 2; zero++) { /* without a terminating zero, and with one */
        CONF_OK(hd_fill(y, 0, 0, 64, NULL));
        size_t length = strlen(ptx);
        char *image = conf_memory(length + 1);
        memcpy(image, ptx, length);
        image[length] = zero ? '\0' : 'x';
        CONF_OK(hd_module_load(runtime, image, length + (size_t)zero, &module));
        memset(image, 'z', length + 1); /* the call returned, so the program may free it */
        free(image);
        hd_kernel *kernel = NULL;
        CONF_OK(hd_kernel_get(module, "conf_store", &kernel));
        hd_kernel *none = NULL;
        CONF_FAILS(hd_kernel_get(module, "conf_load", &none), HD_ERROR_NOT_FOUND);
        uint32_t structure[4] = {1, 2, 33, 4};
        hd_arg args[] = {hd_out(y), hd_u32(22), hd_bytes(structure, 16), hd_u32(1)};
        hd_dims one = {1, 1, 1};
        CONF_OK(hd_launch(lane, kernel, one, one, 0, args, 3, NULL));
        structure[2] = 0; /* the call read it */
        uint32_t got[2];
        CONF_OK(hd_read(y, 0, got, 8));
        CONF_EQUAL(got[0], 22);
        CONF_EQUAL(got[1], 33);
        CONF_FAILS(hd_launch(lane, kernel, one, one, 0, args, 2, NULL), HD_ERROR_ARGUMENT);
        CONF_FAILS(hd_launch(lane, kernel, one, one, 0, args, 4, NULL), HD_ERROR_ARGUMENT);
        args[1] = hd_u64(1);
        CONF_FAILS(hd_launch(lane, kernel, one, one, 0, args, 3, NULL), HD_ERROR_ARGUMENT);
        hd_module_unload(module);
    }
    conf_close(runtime);
}

static const char cuda_source[] = "struct four {\n"
                                  "    unsigned v[4];\n"
                                  "};\n"
                                  "extern \"C\" __global__ void conf_store(unsigned *y, unsigned v, four s)\n"
                                  "{\n"
                                  "    y[0] = v;\n"
                                  "    y[1] = s.v[2];\n"
                                  "}\n";

static void run_stored(hd_runtime *runtime, const void *image, size_t size)
{
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_module *module = NULL;
    hd_kernel *kernel = NULL;
    hd_buffer *y = NULL;
    CONF_OK(hd_alloc(lane, 64, &y));
    CONF_OK(hd_fill(y, 0, 0, 64, NULL));
    CONF_OK(hd_module_load(runtime, image, size, &module));
    CONF_OK(hd_kernel_get(module, "conf_store", &kernel));
    uint32_t structure[4] = {1, 2, 33, 4};
    hd_arg args[] = {hd_out(y), hd_u32(22), hd_bytes(structure, 16)};
    hd_dims one = {1, 1, 1};
    CONF_OK(hd_launch(lane, kernel, one, one, 0, args, 3, NULL));
    uint32_t got[2];
    CONF_OK(hd_read(y, 0, got, 8));
    CONF_EQUAL(got[0], 22);
    CONF_EQUAL(got[1], 33);
    CONF_FAILS(hd_launch(lane, kernel, one, one, 0, args, 2, NULL), HD_ERROR_ARGUMENT);
    args[1] = hd_u64(1);
    CONF_FAILS(hd_launch(lane, kernel, one, one, 0, args, 3, NULL), HD_ERROR_ARGUMENT);
    hd_module_unload(module);
    hd_free(y);
}

/* Made by the CUDA compiler, if there is one, for the GPU of this machine. */
static void cubin_and_fatbin(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    if (conf_is_host(runtime) || system("PATH=$PATH:/usr/local/cuda/bin; command -v nvcc >/dev/null 2>&1") != 0) {
        conf_close(runtime);
        skip();
    }
    static const char *const kinds[] = {"cubin", "fatbin"};
    for (int i = 0; i < 2; i++) {
        char directory[] = "/tmp/heddle-test-XXXXXX", path[80], command[400];
        CONF_TRUE(mkdtemp(directory) != NULL);
        snprintf(path, sizeof path, "%s/k.cu", directory);
        FILE *file = fopen(path, "w");
        CONF_TRUE(file != NULL && fputs(cuda_source, file) >= 0 && fclose(file) == 0);
        snprintf(command, sizeof command,
                 "PATH=$PATH:/usr/local/cuda/bin; cd %s && nvcc -arch=native -%s -o k.bin k.cu >/dev/null 2>&1",
                 directory, kinds[i]);
        CONF_EQUAL(system(command), 0);
        snprintf(path, sizeof path, "%s/k.bin", directory);
        file = fopen(path, "rb");
        CONF_TRUE(file != NULL);
        static uint8_t image[1 << 20];
        size_t size = fread(image, 1, sizeof image, file);
        fclose(file);
        snprintf(command, sizeof command, "rm -rf %s", directory);
        CONF_EQUAL(system(command), 0);
        run_stored(runtime, image, size);
    }
    conf_close(runtime);
}

/* ---- kernel files ---- */

static const char source[] =
    "#include <heddle/kernel.h>\n"
    "typedef struct mixed {\n"
    "    float f;\n"
    "    uint8_t b;\n"
    "    double d;\n"
    "    uint16_t h[3];\n"
    "} mixed;\n"
    "HD_KERNEL(with_struct, HD_OUT(double, y), HD_VALUE(mixed, m), HD_VALUE(uint32_t, n))\n"
    "{\n"
    "    uint64_t i = hd_global_x();\n"
    "    if (i < n) {\n"
    "        y[i] = m.f + m.b + m.d + m.h[0] + m.h[1] + m.h[2] + (double)i;\n"
    "    }\n"
    "}\n"
    "HD_KERNEL(every_kind, HD_OUT(double, y), HD_VALUE(int8_t, a), HD_VALUE(uint8_t, b), HD_VALUE(int16_t, c),\n"
    "          HD_VALUE(uint16_t, d), HD_VALUE(int32_t, e), HD_VALUE(uint32_t, f), HD_VALUE(int64_t, g),\n"
    "          HD_VALUE(uint64_t, h), HD_VALUE(float, i), HD_VALUE(double, j))\n"
    "{\n"
    "    y[0] = a;\n"
    "    y[1] = b;\n"
    "    y[2] = c;\n"
    "    y[3] = d;\n"
    "    y[4] = e;\n"
    "    y[5] = f;\n"
    "    y[6] = (double)g;\n"
    "    y[7] = (double)h;\n"
    "    y[8] = i;\n"
    "    y[9] = j;\n"
    "}\n"
    "typedef struct large {\n"
    "    uint32_t v[1000];\n"
    "} large;\n"
    "HD_KERNEL(with_large, HD_OUT(uint32_t, y), HD_VALUE(large, s))\n"
    "{\n"
    "    uint64_t i = hd_global_x();\n"
    "    if (i < 1000) {\n"
    "        y[i] = s.v[i] + 1;\n"
    "    }\n"
    "}\n"
    "HD_KERNEL(many_buffers, HD_INOUT(uint32_t, y), HD_IN(uint32_t, a), HD_IN(uint32_t, b), HD_IN(uint32_t, c),\n"
    "          HD_IN(uint32_t, d), HD_IN(uint32_t, e), HD_IN(uint32_t, f), HD_IN(uint32_t, g), HD_IN(uint32_t, h),\n"
    "          HD_IN(uint32_t, i), HD_IN(uint32_t, j), HD_IN(uint32_t, k), HD_IN(uint32_t, l), HD_VALUE(uint32_t, n))\n"
    "{\n"
    "    uint64_t t = hd_global_x();\n"
    "    if (t < n) {\n"
    "        y[t] += a[t] + 2 * b[t] + 3 * c[t] + 4 * d[t] + 5 * e[t] + 6 * f[t] + 7 * g[t] + 8 * h[t] + 9 * i[t] +\n"
    "                10 * j[t] + 11 * k[t] + 12 * l[t];\n"
    "    }\n"
    "}\n"
    "HD_KERNEL_BOUNDS(bounded, 64, HD_OUT(uint32_t, y))\n"
    "{\n"
    "    y[hd_thread_x()] = hd_thread_x();\n"
    "}\n"
    "HD_KERNEL(reverse, HD_INOUT(uint32_t, y))\n"
    "{\n"
    "    HD_DYNAMIC_SHARED(uint32_t, tile);\n"
    "    uint32_t t = hd_thread_x(), n = hd_block_dim_x();\n"
    "    tile[t] = y[hd_global_x()];\n"
    "    hd_barrier();\n"
    "    y[hd_global_x()] = tile[n - 1 - t];\n"
    "}\n"
    "HD_KERNEL(places, HD_OUT(uint32_t, y))\n"
    "{\n"
    "    uint64_t w = (uint64_t)hd_grid_dim_x() * hd_block_dim_x(), h = (uint64_t)hd_grid_dim_y() * hd_block_dim_y();\n"
    "    uint64_t at = (hd_global_z() * h + hd_global_y()) * w + hd_global_x();\n"
    "    y[at] = (uint32_t)(hd_global_x() + 100 * hd_global_y() + 10000 * hd_global_z());\n"
    "}\n"
    "HD_KERNEL(no_parameters)\n"
    "{\n"
    "}\n"
    "HD_KERNEL(mix, HD_INOUT(uint32_t, y), HD_VALUE(uint64_t, n), HD_VALUE(uint32_t, k))\n"
    "{\n"
    "    uint64_t i = hd_global_x();\n"
    "    if (i < n) {\n"
    "        y[i] = y[i] * 1664525u + k;\n"
    "    }\n"
    "}\n";

typedef struct mixed {
    float f;
    uint8_t b;
    double d;
    uint16_t h[3];
} mixed;

typedef struct image {
    uint8_t *bytes;
    size_t size;
} image;

/* Made once. Without the tool: {NULL, 0}. */
static image make_kernel_file(void)
{
    static image made;
    static bool tried;
    if (!tried) {
        tried = true;
        made.bytes = conf_kernel_file(source, &made.size);
    }
    return made;
}

#define NEED_KERNEL_FILE(file)                                                                                         \
    image file = make_kernel_file();                                                                                   \
    if (file.bytes == NULL) {                                                                                          \
        skip();                                                                                                        \
    }

static hd_kernel *kernel_of(hd_module *module, const char *name)
{
    hd_kernel *kernel = NULL;
    CONF_OK(hd_kernel_get(module, name, &kernel));
    return kernel;
}

static void arguments_arrive(void **state)
{
    (void)state;
    NEED_KERNEL_FILE(file);
    hd_runtime *runtime = conf_open(NULL);
    hd_module *module = NULL;
    uint8_t *copy = conf_memory(file.size);
    memcpy(copy, file.bytes, file.size);
    CONF_OK(hd_module_load(runtime, copy, file.size, &module));
    memset(copy, 0, file.size); /* the call returned, so the program may free it */
    free(copy);
    hd_dims one = {1, 1, 1};
    for (int dev = 0; dev < hd_device_count(runtime) && dev < 2; dev++) {
        hd_lane *lane = conf_default_lane(runtime, dev);
        hd_buffer *y = NULL;
        CONF_OK(hd_alloc(lane, 8192, &y));

        double got[10];
        hd_arg every[] = {hd_out(y),
                          hd_i8(-100),
                          hd_u8(200),
                          hd_i16(-30000),
                          hd_u16(60000),
                          hd_i32(-2000000000),
                          hd_u32(4000000000u),
                          hd_i64(-(INT64_C(1) << 52)),
                          hd_u64(UINT64_C(1) << 63),
                          hd_f32(0.1f),
                          hd_f64(0.1)};
        CONF_OK(hd_launch(lane, kernel_of(module, "every_kind"), one, one, 0, every, 11, NULL));
        CONF_OK(hd_read(y, 0, got, sizeof got));
        const double wanted[10] = {
            -100, 200, -30000, 60000, -2e9, 4e9, -4503599627370496.0, 9223372036854775808.0, (double)0.1f, 0.1};
        CONF_SAME(got, wanted, sizeof wanted);
        CONF_FAILS(hd_launch(lane, kernel_of(module, "every_kind"), one, one, 0, every, 10, NULL), HD_ERROR_ARGUMENT);

        mixed m = {1.5f, 2, 3.25, {4, 5, 6}};
        hd_arg with[] = {hd_out(y), hd_bytes(&m, sizeof m), hd_u32(100)};
        CONF_OK(hd_launch(lane, kernel_of(module, "with_struct"), conf_dims(4, 1, 1), conf_dims(32, 1, 1), 0, with, 3,
                          NULL));
        memset(&m, 0, sizeof m); /* the call read it */
        double rows[100];
        CONF_OK(hd_read(y, 0, rows, sizeof rows));
        for (int i = 0; i < 100; i++) {
            CONF_TRUE(rows[i] == 21.75 + i);
        }
        with[1].size = sizeof m - 4;
        CONF_FAILS(hd_launch(lane, kernel_of(module, "with_struct"), one, one, 0, with, 3, NULL), HD_ERROR_ARGUMENT);
        with[1] = hd_u64(1);
        CONF_FAILS(hd_launch(lane, kernel_of(module, "with_struct"), one, one, 0, with, 3, NULL), HD_ERROR_ARGUMENT);

        /* a structure that fills many slots of the ring, many times over */
        uint32_t v[1000], back[1000];
        for (uint32_t round = 0; round < 40; round++) {
            for (uint32_t i = 0; i < 1000; i++) {
                v[i] = round * 1000 + i;
            }
            hd_arg large[] = {hd_out(y), hd_bytes(v, sizeof v)};
            CONF_OK(hd_launch(lane, kernel_of(module, "with_large"), conf_dims(8, 1, 1), conf_dims(128, 1, 1), 0, large,
                              2, NULL));
        }
        CONF_OK(hd_read(y, 0, back, sizeof back));
        for (uint32_t i = 0; i < 1000; i++) {
            CONF_EQUAL(back[i], 39 * 1000 + i + 1);
        }

        hd_buffer *inputs[12];
        hd_arg many[14] = {hd_inout(y)};
        uint32_t total = 1000;
        CONF_OK(hd_fill(y, 0, 1000, 8192, NULL));
        for (uint32_t i = 0; i < 12; i++) {
            CONF_OK(hd_alloc(lane, 4096, &inputs[i]));
            CONF_OK(hd_fill(inputs[i], 0, i + 7, 4096, NULL));
            many[i + 1] = hd_in(inputs[i]);
            total += (i + 1) * (i + 7);
        }
        many[13] = hd_u32(1000);
        CONF_OK(hd_launch(lane, kernel_of(module, "many_buffers"), conf_dims(8, 1, 1), conf_dims(128, 1, 1), 0, many,
                          14, NULL));
        for (uint32_t i = 0; i < 12; i++) {
            hd_free(inputs[i]); /* in use */
        }
        CONF_FILLED(y, 0, total, 4000);
        CONF_FILLED(y, 4000, 1000, 4192);

        CONF_OK(hd_launch(lane, kernel_of(module, "no_parameters"), one, one, 0, NULL, 0, NULL));
        CONF_OK(hd_launch(lane, kernel_of(module, "no_parameters"), conf_dims(3, 2, 2), conf_dims(8, 2, 4), 0, many, 0,
                          NULL));
        CONF_OK(hd_lane_wait(lane, 60 * CONF_SECOND));
        hd_free(y);
    }
    hd_module_unload(module);
    conf_close(runtime);
}

static void blocks_and_shared_memory(void **state)
{
    (void)state;
    NEED_KERNEL_FILE(file);
    hd_runtime *runtime = conf_open(NULL);
    hd_module *module = NULL;
    CONF_OK(hd_module_load(runtime, file.bytes, file.size, &module));
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_dims one = {1, 1, 1};
    enum { size = 1 << 16 };
    hd_buffer *y = NULL;
    CONF_OK(hd_alloc(lane, size * 4, &y));
    static uint32_t data[size], back[size];

    hd_arg args[] = {hd_out(y)};
    CONF_OK(hd_launch(lane, kernel_of(module, "places"), conf_dims(5, 4, 3), conf_dims(7, 3, 2), 0, args, 1, NULL));
    CONF_OK(hd_read(y, 0, back, 35 * 12 * 6 * 4));
    for (uint32_t z = 0; z < 6; z++) {
        for (uint32_t r = 0; r < 12; r++) {
            for (uint32_t x = 0; x < 35; x++) {
                CONF_EQUAL(back[(z * 12 + r) * 35 + x], x + 100 * r + 10000 * z);
            }
        }
    }

    conf_pattern(data, sizeof data, 1);
    hd_arg reverse[] = {hd_inout(y)};
    for (uint32_t block = 1; block <= 1024; block *= 4) {
        CONF_OK(hd_write(y, 0, data, sizeof data));
        CONF_OK(hd_launch(lane, kernel_of(module, "reverse"), conf_dims(size / block, 1, 1), conf_dims(block, 1, 1),
                          block * 4, reverse, 1, NULL));
        CONF_OK(hd_read(y, 0, back, sizeof back));
        for (uint32_t i = 0; i < size; i++) {
            CONF_EQUAL(back[i], data[i / block * block + block - 1 - i % block]);
        }
    }
    /* all of the device's shared memory */
    hd_device_info info = {.size = sizeof info};
    CONF_OK(hd_device_get_info(runtime, 0, &info));
    CONF_OK(hd_launch(lane, kernel_of(module, "reverse"), conf_dims(4, 1, 1), conf_dims(256, 1, 1),
                      info.shared_bytes_max, reverse, 1, NULL));
    CONF_OK(hd_lane_wait(lane, 60 * CONF_SECOND));
    CONF_FAILS(hd_launch(lane, kernel_of(module, "reverse"), one, one, info.shared_bytes_max + 1, reverse, 1, NULL),
               HD_ERROR_LIMIT);

    CONF_OK(hd_launch(lane, kernel_of(module, "bounded"), one, conf_dims(64, 1, 1), 0, args, 1, NULL));
    CONF_FAILS(hd_launch(lane, kernel_of(module, "bounded"), one, conf_dims(65, 1, 1), 0, args, 1, NULL),
               HD_ERROR_LIMIT);
    CONF_OK(hd_lane_wait(lane, 60 * CONF_SECOND));
    conf_close(runtime);
}

static void unloads_while_launches_are_pending(void **state)
{
    (void)state;
    NEED_KERNEL_FILE(file);
    hd_runtime *runtime = conf_open(NULL);
    conf_slow slow;
    conf_slow_make(&slow, runtime, 0);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *y = NULL;
    CONF_OK(hd_alloc(lane, 4000, &y));
    for (int round = 0; round < 10; round++) {
        hd_module *module = NULL;
        CONF_OK(hd_module_load(runtime, file.bytes, file.size, &module));
        hd_kernel *mix = kernel_of(module, "mix");
        CONF_OK(hd_fill(y, 0, 3, 4000, NULL));
        conf_slow_run(&slow, lane, NULL, 0, 3, NULL);
        uint32_t wanted = 3;
        for (uint32_t i = 0; i < 50; i++) {
            hd_arg args[] = {hd_inout(y), hd_u64(1000), hd_u32(i)};
            CONF_OK(hd_launch(lane, mix, conf_dims(8, 1, 1), conf_dims(128, 1, 1), 0, args, 3, NULL));
            wanted = wanted * 1664525u + i;
        }
        hd_module_unload(module);
        hd_arg args[] = {hd_inout(y), hd_u64(1000), hd_u32(0)};
        CONF_FAILS(hd_launch(lane, mix, conf_dims(8, 1, 1), conf_dims(128, 1, 1), 0, args, 3, NULL), HD_ERROR_HANDLE);
        hd_kernel *again = NULL;
        CONF_FAILS(hd_kernel_get(module, "mix", &again), HD_ERROR_HANDLE);
        hd_module_unload(module); /* a bad handle now */
        CONF_FILLED(y, 0, wanted, 4000);
    }
    conf_close(runtime);
}

static void loads_while_work_is_in_flight(void **state)
{
    (void)state;
    NEED_KERNEL_FILE(file);
    hd_runtime *runtime = conf_open(NULL);
    conf_slow slow;
    conf_slow_make(&slow, runtime, 0);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_ticket ticket;
    conf_slow_run(&slow, lane, NULL, 0, 20, &ticket);
    hd_module *modules[5];
    hd_buffer *y = NULL;
    CONF_OK(hd_alloc(lane, 4000, &y));
    CONF_OK(hd_fill(y, 0, 1, 4000, NULL));
    uint32_t wanted = 1;
    for (uint32_t i = 0; i < 5; i++) { /* each uses the same names: they stay apart */
        CONF_OK(hd_module_load(runtime, file.bytes, file.size, &modules[i]));
        hd_arg args[] = {hd_inout(y), hd_u64(1000), hd_u32(i)};
        CONF_OK(
            hd_launch(lane, kernel_of(modules[i], "mix"), conf_dims(8, 1, 1), conf_dims(128, 1, 1), 0, args, 3, NULL));
        wanted = wanted * 1664525u + i;
    }
    CONF_FILLED(y, 0, wanted, 4000);
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    hd_module_unload(modules[2]);
    conf_close(runtime); /* the rest ends with the runtime */
}

static void refuses_damaged_kernel_files(void **state)
{
    (void)state;
    NEED_KERNEL_FILE(file);
    hd_runtime *runtime = conf_open(NULL);
    hd_module *module = NULL;
    uint8_t *copy = conf_memory(file.size);
    for (size_t length = 1; length < file.size; length = length < 300 ? length + 1 : length + length / 7 + 1) {
        uint8_t *exact = conf_memory(length); /* so that a read past the end is seen */
        memcpy(exact, file.bytes, length);
        CONF_FAILS(hd_module_load(runtime, exact, length, &module), HD_ERROR_IMAGE);
        free(exact);
    }
    CONF_FAILS(hd_module_load(runtime, file.bytes, file.size - 1, &module), HD_ERROR_IMAGE);
    conf_random r = {3};
    for (int i = 0; i < 300; i++) { /* damage in its head: refused, or harmless */
        memcpy(copy, file.bytes, file.size);
        size_t head = file.size < 64 ? file.size : 64;
        copy[conf_below(&r, head)] ^= (uint8_t)(1 + conf_below(&r, 255));
        hd_status status = hd_module_load(runtime, copy, file.size, &module);
        if (status == HD_OK) {
            hd_module_unload(module);
        } else {
            CONF_FAILS(status, HD_ERROR_IMAGE);
        }
    }
    free(copy);
    CONF_OK(hd_module_load(runtime, file.bytes, file.size, &module));
    conf_close(runtime);
}

/* ---- files ---- */

/* Returns a path in a folder of the case. */
static const char *write_file(const char *name, const void *content, size_t bytes)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    CONF_TRUE(file != NULL && fwrite(content, 1, bytes, file) == bytes && fclose(file) == 0);
    return path;
}

static void loads_files(void **state)
{
    (void)state;
    NEED_KERNEL_FILE(file);
    hd_runtime *runtime = conf_open(NULL);
    hd_module *module = NULL, *kept = NULL;
    const char *path = write_file("a b.hdk", file.bytes, file.size);
    CONF_OK(hd_module_load_file(runtime, path, &kept));
    /* which does not change the loaded module */
    path = write_file("a b.hdk", file.bytes, file.size / 2);
    CONF_TRUE(kernel_of(kept, "places") != NULL);
    CONF_OK(hd_module_unload(kept));
    CONF_FAILS(hd_module_load_file(runtime, path, &module), HD_ERROR_IMAGE);
    CONF_TRUE(strstr(hd_message(), "a b.hdk: ") != NULL && strncmp(hd_message(), "hd_module_load_file: ", 21) == 0);
    CONF_FAILS(hd_module_load_file(runtime, write_file("empty", "", 0), &module), HD_ERROR_IMAGE);
    CONF_TRUE(strstr(hd_message(), "empty: the file is empty") != NULL);
    CONF_FAILS(hd_module_load_file(runtime, "", &module), HD_ERROR_NOT_FOUND);
    CONF_FAILS(hd_module_load_file(runtime, "/nonexistent/scale.hdk", &module), HD_ERROR_NOT_FOUND);
    CONF_TRUE(strstr(hd_message(), "/nonexistent/scale.hdk: No such file") != NULL);
    CONF_FAILS(hd_module_load_file(runtime, folder, &module), HD_ERROR_SYSTEM);
    CONF_FAILS(hd_module_load_file(runtime, "/dev/null", &module), HD_ERROR_SYSTEM);
    CONF_TRUE(strstr(hd_message(), "not a regular file") != NULL && module == NULL);
    char pipe[128];
    snprintf(pipe, sizeof pipe, "%s/pipe", folder);
    /* without a writer: the call refuses it, and does not wait */
    CONF_EQUAL(mkfifo(pipe, 0600), 0);
    CONF_FAILS(hd_module_load_file(runtime, pipe, &module), HD_ERROR_SYSTEM);
    if (!conf_is_host(runtime)) { /* PTX text contains no zero in a file */
        static const char text[] = ".version 6.3\n.target sm_50\n.address_size 64\n.visible .entry k() { ret; }\n";
        CONF_OK(hd_module_load_file(runtime, write_file("k.ptx", text, sizeof text - 1), &module));
        CONF_TRUE(kernel_of(module, "k") != NULL);
    }
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_module");
    const struct CMUnitTest tests[] = {
        CONF_CASE(refuses_images_that_are_none),
        CONF_CASE(ptx_text),
        CONF_CASE(cubin_and_fatbin),
        CONF_CASE(arguments_arrive),
        CONF_CASE(blocks_and_shared_memory),
        CONF_CASE(unloads_while_launches_are_pending),
        CONF_CASE(loads_while_work_is_in_flight),
        CONF_CASE(refuses_damaged_kernel_files),
        FOLDER_CASE(loads_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
