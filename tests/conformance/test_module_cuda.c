/* test_module_cuda.c - CUDA C++ on GPUs: output of nvcc, source text, and linked parts.
 *
 * Promise: CUDA C++ kernels get the arguments passed, by every name; their variables are buffers.
 *
 * Heddle refuses wrong arguments. On host devices it refuses the calls, and the test checks only
 * that. It uses nvcc, NVRTC and nvJitLink if they are installed.
 *
 * Threads: the main one.
 * Locks: none.
 */
#include "conformance.h"

static const char source[] = "struct pair {\n"
                             "    float a;\n"
                             "    double b;\n"
                             "};\n"
                             "__constant__ float table[4] = {1, 2, 3, 4};\n"
                             "__device__ int counter = 40;\n"
                             "template <class T> __device__ T total;\n"
                             "namespace ns {\n"
                             "__constant__ float offset = 1;\n"
                             "static __device__ float last;\n"
                             "__global__ void saxpy(float *y, const float *x, float a, int n)\n"
                             "{\n"
                             "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                             "    if (i < n)\n"
                             "        y[i] += a * x[i];\n"
                             "}\n"
                             "}\n"
                             "template <class T, int N> __global__ void fill(T *y, T v)\n"
                             "{\n"
                             "    if (threadIdx.x < (unsigned)N)\n"
                             "        y[threadIdx.x] = v;\n"
                             "}\n"
                             "template __global__ void fill<float, 4>(float *, float);\n"
                             "template __global__ void fill<double, 4>(double *, double);\n"
                             "__global__ void by_value(pair p, char c, float *out)\n"
                             "{\n"
                             "    out[0] = p.a + (float)p.b + c + table[3];\n"
                             "    out[1] = (float)atomicAdd(&counter, 1);\n"
                             "}\n"
                             "__global__ void weigh(float *out)\n"
                             "{\n"
                             "    if (threadIdx.x == 0) {\n"
                             "        out[0] = table[0] + ns::offset + total<float>;\n"
                             "        ns::last = out[0];\n"
                             "        total<float> += 1;\n"
                             "    }\n"
                             "}\n";

enum { N = 4 };

static void launch_one(hd_lane *lane, hd_module *module, const char *name, const hd_arg *args, size_t n)
{
    hd_kernel *kernel = NULL;
    CONF_OK(hd_kernel_get(module, name, &kernel));
    CONF_OK(hd_launch(lane, kernel, conf_dims(1, 1, 1), conf_dims(32, 1, 1), 0, args, n, NULL));
}

static hd_status try_saxpy(hd_lane *lane, hd_module *module, const hd_arg args[6])
{
    hd_kernel *kernel = NULL;
    CONF_OK(hd_kernel_get(module, "saxpy", &kernel));
    return hd_launch(lane, kernel, conf_dims(1, 1, 1), conf_dims(32, 1, 1), 0, args, 6, NULL);
}

static hd_buffer *global_of(hd_module *module, const char *name, size_t bytes)
{
    hd_buffer *b = NULL;
    CONF_OK(hd_module_get_global(module, 0, name, &b));
    CONF_EQUAL(hd_buffer_size(b), bytes);
    return b;
}

static float number_in(hd_buffer *b, size_t index)
{
    float number = 0;
    CONF_OK(hd_read(b, index * sizeof number, &number, sizeof number));
    return number;
}

/* Sets variables of each kind between launches of a kernel that uses them, and reads the results.
 * `by_value` ran once before. */
static void use_variables(hd_lane *lane, hd_module *module)
{
    hd_buffer *counter = global_of(module, "counter", 4), *total = global_of(module, "total<float>", 4),
              *offset = global_of(module, "ns::offset", 4), *last = global_of(module, "ns::last", 4),
              *table = global_of(module, "table", 16), *out = NULL;
    CONF_TRUE(global_of(module, "offset", 4) == offset && global_of(module, "_ZN2ns6offsetE", 4) == offset);
    int32_t count = 0;
    CONF_OK(hd_read(counter, 0, &count, sizeof count));
    CONF_EQUAL(count, 40 + 32); /* `by_value` ran with 32 threads */
    CONF_TRUE(number_in(table, 2) == 3 && number_in(offset, 0) == 1);
    CONF_OK(hd_alloc(lane, 64, &out));
    hd_arg first[] = {hd_out(out)}, second[] = {hd_out_range(out, 4, 4)};
    const float tables[] = {10, 20, 30, 40}, five = 5, two = 2;
    CONF_OK(hd_write(table, 0, tables, sizeof tables));
    CONF_OK(hd_write(total, 0, &five, sizeof five));
    launch_one(lane, module, "weigh", first, 1);
    CONF_OK(hd_write(offset, 0, &two, sizeof two));
    launch_one(lane, module, "weigh", second, 1);
    CONF_TRUE(number_in(out, 0) == 16 && number_in(out, 1) == 18); /* 10 + 1 + 5, then 10 + 2 + 6 */
    CONF_TRUE(number_in(last, 0) == 18 && number_in(total, 0) == 7);
    CONF_OK(hd_copy(out, 0, table, 4, 8, NULL));
    CONF_TRUE(number_in(out, 1) == 30);
    hd_buffer *none = NULL;
    CONF_FAILS_WITH(hd_module_get_global(module, 0, "absent", &none), HD_ERROR_NOT_FOUND, "table");
    CONF_TRUE(none == NULL);
    hd_free(out);
}

/* Launches every kernel of `source`, and checks that wrong arguments are refused. */
static void use_module(hd_runtime *runtime, hd_module *module)
{
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *x = NULL, *y = NULL;
    CONF_OK(hd_alloc(lane, 64, &x));
    CONF_OK(hd_alloc(lane, 64, &y));
    hd_arg fill_x[] = {hd_out(x), hd_f32(3)}, fill_y[] = {hd_out(y), hd_f32(1)};
    launch_one(lane, module, "fill<float, 4>", fill_x, 2);
    launch_one(lane, module, "fill<float,4>(float *, float)", fill_y, 2);
    hd_arg saxpy[] = {hd_inout(y), hd_in(x), hd_f32(2), hd_i32(3)};
    launch_one(lane, module, "saxpy", saxpy, 4);
    float got[N];
    CONF_OK(hd_read(y, 0, got, sizeof got));
    CONF_TRUE(got[0] == 7 && got[1] == 7 && got[2] == 7 && got[3] == 1);
    hd_arg by_address[] = {hd_address(hd_buffer_address(y)), hd_address(hd_buffer_address(x)), hd_f32(-2), hd_i32(3),
                           hd_arg_implicit(hd_inout(y)),     hd_arg_implicit(hd_in(x))};
    launch_one(lane, module, "saxpy", by_address, 6);
    CONF_OK(hd_read(y, 0, got, sizeof got));
    CONF_TRUE(got[0] == 1 && got[1] == 1 && got[2] == 1 && got[3] == 1);
    by_address[3] = hd_address(3); /* the image lists only the size, which is checked */
    CONF_FAILS(try_saxpy(lane, module, by_address), HD_ERROR_ARGUMENT);
    struct {
        float a;
        double b;
    } pair = {0.5f, 0.25};
    hd_arg by_value[] = {hd_bytes(&pair, sizeof pair), hd_i8(10), hd_out(y)};
    launch_one(lane, module, "by_value", by_value, 3);
    CONF_OK(hd_read(y, 0, got, sizeof got));
    CONF_TRUE(got[0] == 14.75f && got[1] == 40);
    use_variables(lane, module);

    hd_kernel *kernel = NULL, *same = NULL;
    CONF_OK(hd_kernel_get(module, "ns::saxpy(float*, const float*, float, int)", &kernel));
    CONF_OK(hd_kernel_get(module, "_ZN2ns5saxpyEPfPKffi", &same));
    CONF_TRUE(kernel == same);
    hd_dims one = {1, 1, 1};
    CONF_FAILS(hd_launch(lane, kernel, one, one, 0, saxpy, 3, NULL), HD_ERROR_ARGUMENT);
    saxpy[2] = hd_f64(2);
    CONF_FAILS(hd_launch(lane, kernel, one, one, 0, saxpy, 4, NULL), HD_ERROR_ARGUMENT);
    CONF_TRUE(strstr(hd_message(), "ns::saxpy") != NULL && strstr(hd_message(), "argument 2") != NULL);
    kernel = NULL;
    CONF_FAILS(hd_kernel_get(module, "fill", &kernel), HD_ERROR_NOT_FOUND); /* two kernels match */
    CONF_FAILS(hd_kernel_get(module, "absent", &kernel), HD_ERROR_NOT_FOUND);
    CONF_TRUE(kernel == NULL);
    hd_free(x);
    hd_free(y);
}

/* Runs a command in its own folder with k.cu, and reads the file k.out that it makes. The caller
 * frees the content. */
static uint8_t *made_by(const char *command, size_t *size)
{
    char directory[] = "/tmp/heddle-test-XXXXXX", path[80], line[600];
    CONF_TRUE(mkdtemp(directory) != NULL);
    snprintf(path, sizeof path, "%s/k.cu", directory);
    FILE *file = fopen(path, "w");
    CONF_TRUE(file != NULL && fputs(source, file) >= 0 && fclose(file) == 0);
    snprintf(line, sizeof line, "PATH=$PATH:/usr/local/cuda/bin; cd %s && %s >/dev/null 2>&1", directory, command);
    int result = system(line);
    snprintf(path, sizeof path, "%s/k.out", directory);
    uint8_t *image = conf_memory(1 << 20);
    file = result == 0 ? fopen(path, "rb") : NULL;
    *size = file ? fread(image, 1, 1 << 20, file) : 0;
    if (file) {
        fclose(file);
    }
    snprintf(line, sizeof line, "rm -rf %s", directory);
    CONF_EQUAL(system(line), 0);
    return image;
}

static void images_of_nvcc(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    if (conf_is_host(runtime) || system("PATH=$PATH:/usr/local/cuda/bin; command -v nvcc >/dev/null 2>&1") != 0) {
        conf_close(runtime);
        skip();
    }
    static const char *const commands[] = {
        "nvcc -arch=native -cubin -o k.out k.cu", "nvcc -arch=native -fatbin -o k.out k.cu",
        "nvcc -arch=compute_75 -ptx -o k.out k.cu",
        "nvcc -arch=compute_75 -fatbin -o k.out k.cu", /* its PTX is compressed */
    };
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        size_t size;
        uint8_t *image = made_by(commands[i], &size);
        CONF_TRUE(size > 0);
        hd_module *module = NULL;
        CONF_OK(hd_module_load(runtime, image, size, &module));
        free(image);
        use_module(runtime, module);
        CONF_OK(hd_module_unload(module));
    }
    conf_close(runtime);
}

static void source_text(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_module *module = NULL;
    hd_compile_options options = {.size = sizeof options, .name = "k.cu"};
    hd_status status = hd_module_compile(runtime, source, &options, &module);
    if (status == HD_ERROR_UNSUPPORTED) { /* host devices, or no NVRTC */
        CONF_TRUE(module == NULL);
        CONF_TRUE(strstr(hd_message(), conf_is_host(runtime) ? "heddle cc" : "option nvrtc") != NULL);
        conf_close(runtime);
        return;
    }
    CONF_OK(status);
    use_module(runtime, module);
    CONF_OK(hd_module_unload(module));
    /* again, from the cache, and with an instance that the source lacks */
    static const char *const kernels[] = {"fill<unsigned, 2>"};
    for (int i = 0; i < 2; i++) {
        options.kernels = kernels;
        options.n_kernels = 1;
        CONF_OK(hd_module_compile(runtime, source, &options, &module));
        hd_kernel *kernel = NULL;
        CONF_OK(hd_kernel_get(module, "fill<unsigned, 2>", &kernel));
        CONF_OK(hd_kernel_get(module, "fill<unsigned int, 2>", &kernel));
        use_module(runtime, module);
        CONF_OK(hd_module_unload(module));
    }
    module = NULL;
    CONF_FAILS(hd_module_compile(runtime, "\n\n__global__ void f() { x = 1; }\n", &options, &module), HD_ERROR_IMAGE);
    CONF_TRUE(strstr(hd_message(), "k.cu(3): error") != NULL);
    CONF_TRUE(module == NULL);
    conf_close(runtime);
}

static const char caller[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                             ".extern .func (.param .b32 out) twice(.param .b32 in);\n"
                             ".visible .entry run(.param .u64 y)\n{\n"
                             "    .reg .b64 %rd<2>;\n    .reg .b32 %r<3>;\n    ld.param.u64 %rd1, [y];\n"
                             "    ld.global.u32 %r1, [%rd1];\n    {\n    .param .b32 p;\n    .param .b32 q;\n"
                             "    st.param.b32 [p], %r1;\n    call.uni (q), twice, (p);\n"
                             "    ld.param.b32 %r2, [q];\n    }\n    st.global.u32 [%rd1], %r2;\n    ret;\n}\n";
static const char callee[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                             ".visible .func (.param .b32 out) twice(.param .b32 in)\n{\n"
                             "    .reg .b32 %r<3>;\n    ld.param.b32 %r1, [in];\n    add.s32 %r2, %r1, %r1;\n"
                             "    st.param.b32 [out], %r2;\n    ret;\n}\n";

static void linked_parts(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_module *module = NULL;
    hd_code_part parts[] = {{caller, sizeof caller, "caller"}, {callee, sizeof callee - 1, NULL}};
    hd_status status = hd_module_link(runtime, parts, 2, &module);
    if (status == HD_ERROR_UNSUPPORTED) { /* host devices, no nvJitLink, or devices that differ */
        CONF_TRUE(module == NULL);
        conf_close(runtime);
        return;
    }
    CONF_OK(status);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *y = NULL;
    CONF_OK(hd_alloc(lane, 64, &y));
    CONF_OK(hd_fill(y, 0, 21, 64, NULL));
    hd_kernel *kernel = NULL;
    CONF_OK(hd_kernel_get(module, "run", &kernel));
    hd_arg args[] = {hd_inout(y)};
    hd_dims one = {1, 1, 1};
    CONF_OK(hd_launch(lane, kernel, one, one, 0, args, 1, NULL));
    uint32_t got = 0;
    CONF_OK(hd_read(y, 0, &got, sizeof got));
    CONF_EQUAL(got, 42);
    CONF_OK(hd_module_unload(module));
    CONF_FAILS(hd_module_link(runtime, parts, 1, &module), HD_ERROR_IMAGE);
    CONF_TRUE(strstr(hd_message(), "twice") != NULL);
    conf_close(runtime);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONF_CASE(images_of_nvcc),
        CONF_CASE(source_text),
        CONF_CASE(linked_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
