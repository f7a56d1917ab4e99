/* math_sweep.c - mathematics on a GPU: errors over all floats, and speed compared with nvcc.
 *
 * usage: math_sweep KERNELS.hdk [NVCC.hdk] >RESULTS.json
 *
 * Both files are built from math_sweep_kernels.c, in the root of the tree. The first line uses
 * clang, the next two nvcc:
 *
 *     for l in libdevice libclc; do
 *         heddle cc --no-cpu --math $l -I. -o FOLDER/$l.hdk tests/gpu/math_sweep_kernels.c
 *     done
 *     nvcc -x cu -w -O3 -ptx -arch=sm_80 -Iinclude -I. -o NVCC.ptx tests/gpu/math_sweep_kernels.c
 *     heddle cc --no-cpu -I. --ptx NVCC.ptx -o NVCC.hdk tests/gpu/math_sweep_kernels.c
 *     cc -std=gnu11 -O2 -Iinclude -I. -o math_sweep tests/gpu/math_sweep.c -LBUILD -lheddle -lm
 *
 * `PARTS=math MATH=FOLDER tools/gpu-run OUT` does the rest.
 *
 * Every float function of one argument runs on all 2^32 inputs. Its results are compared with the
 * rounded results of the same library's double function. Ratios above 1 are faster than nvcc.
 * Exits with 1 if a distance is above CUDA's bound; lgamma is excluded, since CUDA states none
 * between its negative zeros.
 * Threads: one.
 */
#include <heddle.h>
#include <heddle/kernel.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "tests/kernel/math/functions.h"

enum { ROUNDS = 7, REPEATS = 64 };
#define COUNT ((uint64_t)1 << 25) /* elements of a timed launch */
#define CHUNK ((uint64_t)1 << 28) /* inputs of a sweeping launch */

static hd_lane *lane;
static hd_buffer *xs, *ys;

static void check(hd_status status)
{
    if (status != HD_OK) {
        fprintf(stderr, "math_sweep: %s\n", hd_message());
        exit(2);
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static hd_module *load(hd_runtime *runtime, const char *path)
{
    static char image[16 << 20];
    FILE *file = fopen(path, "rb");
    size_t bytes = file != NULL ? fread(image, 1, sizeof image, file) : 0;
    if (file == NULL) {
        fprintf(stderr, "math_sweep: cannot read %s\n", path);
        exit(2);
    }
    fclose(file);
    hd_module *module;
    check(hd_module_load(runtime, image, bytes, &module));
    return module;
}

static const hd_dims grid = {1024, 1, 1}, block = {256, 1, 1};

/* Returns the worst distance in the upper half, and the argument's bits in the lower half. */
static uint64_t sweep(hd_module *module, const char *function)
{
    char name[64];
    hd_kernel *kernel;
    hd_buffer *worst;
    uint64_t result = 0;
    snprintf(name, sizeof name, "sweep_%s", function);
    check(hd_kernel_get(module, name, &kernel));
    check(hd_alloc(lane, sizeof result, &worst));
    check(hd_write(worst, 0, &result, sizeof result));
    for (uint64_t from = 0; from < (uint64_t)1 << 32; from += CHUNK) {
        hd_arg arguments[] = {hd_inout(worst), hd_u64(from), hd_u64(CHUNK)};
        check(hd_launch(lane, kernel, grid, block, 0, arguments, 3, NULL));
    }
    check(hd_read(worst, 0, &result, sizeof result));
    check(hd_free(worst));
    return result;
}

/* Returns the seconds that a launch takes. */
static double time_once(hd_kernel *kernel, uint32_t repeats, uint64_t count)
{
    hd_arg arguments[] = {hd_in(xs), hd_out(ys), hd_u64(count), hd_u32(repeats)};
    hd_dims blocks = {(uint32_t)((count + block.x - 1) / block.x), 1, 1}; /* one element a thread */
    double begin = now();
    check(hd_launch(lane, kernel, blocks, block, 0, arguments, 4, NULL));
    check(hd_lane_wait(lane, -1));
    return now() - begin;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns nvcc's time divided by ours: the median of alternating rounds, without the first. */
static double ratio(hd_module *ours, hd_module *theirs, const char *name, uint32_t repeats)
{
    hd_kernel *kernels[2];
    double ratios[ROUNDS];
    uint64_t count = repeats > 1 ? COUNT / 8 : COUNT;
    check(hd_kernel_get(ours, name, &kernels[0]));
    check(hd_kernel_get(theirs, name, &kernels[1]));
    for (int round = -1; round < ROUNDS; round++) {
        double first = time_once(kernels[0], repeats, count), second = time_once(kernels[1], repeats, count);
        if (round >= 0) {
            ratios[round] = second / first;
        }
    }
    qsort(ratios, ROUNDS, sizeof ratios[0], compare_doubles);
    return ratios[ROUNDS / 2];
}

/* Fills xs with numbers in (0, 1). */
static void fill(bool wide)
{
    size_t size = wide ? sizeof(double) : sizeof(float);
    char *host = malloc(COUNT * size);
    if (host == NULL) {
        exit(2);
    }
    for (size_t i = 0; i < COUNT; i++) {
        double x = ((double)((i * 2654435761u) % 1000003) + 0.5) / 1000003;
        float narrow = (float)x;
        memcpy(host + i * size, wide ? (void *)&x : (void *)&narrow, size);
    }
    check(hd_write(xs, 0, host, COUNT * size));
    free(host);
}

static const char *separator = "";

static void print_ratios(hd_module *ours, hd_module *theirs, const char *function, bool wide)
{
    char name[64];
    snprintf(name, sizeof name, "%s_%s", wide ? "f64" : "f32", function);
    double memory = ratio(ours, theirs, name, 1), compute = ratio(ours, theirs, name, REPEATS);
    printf("%s\n  {\"speed\": \"%s\", \"memory_bound\": %.3f, \"compute_bound\": %.3f}", separator, name, memory,
           compute);
    separator = ",";
    fprintf(stderr, "%-16s %6.3f memory-bound %6.3f compute-bound\n", name, memory, compute);
}

/* True if the function stays within its bound. */
static bool print_error(hd_module *ours, hd_module *theirs, const char *function, int bound)
{
    uint64_t worst = sweep(ours, function), other = theirs != NULL ? sweep(theirs, function) : 0;
    bool good = worst >> 32 <= (uint64_t)bound || strcmp(function, "lgamma") == 0;
    printf("%s\n  {\"error\": \"%sf\", \"distance\": %u, \"input_bits\": \"0x%08x\", \"bound\": %d, \"nvcc\": %u}",
           separator, function, (unsigned)(worst >> 32), (unsigned)worst, bound, (unsigned)(other >> 32));
    separator = ",";
    fprintf(stderr, "%-10sf distance %u at 0x%08x, bound %d, nvcc's %u%s\n", function, (unsigned)(worst >> 32),
            (unsigned)worst, bound, (unsigned)(other >> 32), good ? "" : ": TOO FAR");
    return good;
}

#define ROW(name, mpfr, f32, f64) {#name, f32},
static const struct {
    const char *name;
    int bound;
} one[] = {MATH_1(ROW)}, two[] = {MATH_2(ROW)};

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: math_sweep KERNELS.hdk [NVCC.hdk]\n");
        return 2;
    }
    hd_runtime *runtime;
    check(hd_open(NULL, &runtime));
    check(hd_lane_get_default(runtime, 0, &lane));
    check(hd_alloc(lane, COUNT * sizeof(double), &xs));
    check(hd_alloc(lane, COUNT * sizeof(double), &ys));
    hd_module *ours = load(runtime, argv[1]), *theirs = argc > 2 ? load(runtime, argv[2]) : NULL;
    bool good = true;
    printf("[");
    for (size_t i = 0; i < sizeof one / sizeof one[0]; i++) {
        good &= print_error(ours, theirs, one[i].name, one[i].bound);
        fflush(stdout);
    }
    for (int wide = 0; theirs != NULL && wide < 2; wide++) {
        fill(wide);
        for (size_t i = 0; i < sizeof one / sizeof one[0]; i++) {
            print_ratios(ours, theirs, one[i].name, wide);
        }
        for (size_t i = 0; i < sizeof two / sizeof two[0]; i++) {
            print_ratios(ours, theirs, two[i].name, wide);
        }
    }
    printf("\n]\n");
    check(hd_close(runtime));
    return good ? 0 : 1;
}
