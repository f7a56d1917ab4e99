/* work.h - work that the conformance programs submit to a runtime.
 *
 * - random numbers, data patterns and checks for them
 * - the built-in kernels and kernel files
 * - work that takes long
 *
 * Threads: the helpers work in every thread.
 * Locks: none.
 * Always: no check measures time.
 */
#ifndef CONFORMANCE_WORK_H
#define CONFORMANCE_WORK_H

#include "checks.h"

/* ---- numbers and data ---- */

/* A small generator with its own state: the same seed gives the same numbers everywhere. */
typedef struct conf_random {
    uint64_t state;
} conf_random;

static inline uint64_t conf_next(conf_random *r)
{
    uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* 0 ... below - 1 */
static inline uint64_t conf_below(conf_random *r, uint64_t below)
{
    return below == 0 ? 0 : conf_next(r) % below;
}

static inline bool conf_chance(conf_random *r, unsigned percent)
{
    return conf_below(r, 100) < percent;
}

CONF_UNUSED static void conf_pattern(void *data, size_t bytes, uint64_t seed)
{
    conf_random r = {seed};
    uint8_t *p = data;
    for (; bytes >= 8; p += 8, bytes -= 8) {
        uint64_t v = conf_next(&r);
        memcpy(p, &v, 8);
    }
    if (bytes > 0) {
        uint64_t v = conf_next(&r);
        memcpy(p, &v, bytes);
    }
}

/* Returns the first byte that differs; `bytes` if none does. */
CONF_UNUSED static size_t conf_difference(const void *a, const void *b, size_t bytes)
{
    const uint8_t *x = a, *y = b;
    if (memcmp(x, y, bytes) == 0) {
        return bytes;
    }
    size_t i = 0;
    while (i < bytes && x[i] == y[i]) {
        i++;
    }
    return i;
}

CONF_UNUSED static void conf_same_at(const void *got, const void *wanted, size_t bytes, const char *what,
                                     const char *file, int line)
{
    size_t i = conf_difference(got, wanted, bytes);
    if (i < bytes) {
        conf_fail_at(file, line, "%s: byte %zu of %zu is %02x, not %02x", what, i, bytes, ((const uint8_t *)got)[i],
                     ((const uint8_t *)wanted)[i]);
    }
}
#define CONF_SAME(got, wanted, bytes) conf_same_at((got), (wanted), (bytes), #got, __FILE__, __LINE__)

CONF_UNUSED static void *conf_memory(size_t bytes)
{
    void *p = malloc(bytes == 0 ? 1 : bytes);
    if (p == NULL) {
        conf_fail_at(__FILE__, __LINE__, "no memory for %zu bytes", bytes);
        abort();
    }
    return p;
}

/* Checks that a buffer's range contains `wanted`. */
CONF_UNUSED static void conf_holds_at(hd_buffer *buffer, size_t offset, const void *wanted, size_t bytes,
                                      const char *what, const char *file, int line)
{
    void *got = conf_memory(bytes);
    memset(got, 0xee, bytes);
    conf_ok_at(hd_read(buffer, offset, got, bytes), what, file, line);
    conf_same_at(got, wanted, bytes, what, file, line);
    free(got);
}
#define CONF_HOLDS(buffer, offset, wanted, bytes)                                                                      \
    conf_holds_at((buffer), (offset), (wanted), (bytes), "content of " #buffer, __FILE__, __LINE__)

/* Checks that every 32-bit word of a buffer's range is `word`. */
CONF_UNUSED static void conf_filled_at(hd_buffer *buffer, size_t offset, uint32_t word, size_t bytes, const char *what,
                                       const char *file, int line)
{
    uint32_t *got = conf_memory(bytes);
    memset(got, 0xee, bytes);
    int64_t until = conf_now() + 60 * CONF_SECOND;
    hd_status status;
    do { /* some tests set a transfer_timeout that is short for a busy machine */
        status = hd_read(buffer, offset, got, bytes);
    } while (status == HD_ERROR_TIMEOUT && conf_now() < until);
    conf_ok_at(status, what, file, line);
    for (size_t i = 0; i < bytes / 4; i++) {
        if (got[i] != word) {
            uint32_t bad = got[i];
            free(got);
            conf_fail_at(file, line, "%s: word %zu is %08x, not %08x", what, i, bad, word);
            return;
        }
    }
    free(got);
}
#define CONF_FILLED(buffer, offset, word, bytes)                                                                       \
    conf_filled_at((buffer), (offset), (word), (bytes), "content of " #buffer, __FILE__, __LINE__)

/* ---- kernels ---- */

static inline hd_dims conf_dims(uint32_t x, uint32_t y, uint32_t z)
{
    hd_dims d = {x, y, z};
    return d;
}

CONF_UNUSED static hd_kernel *conf_kernel(hd_runtime *runtime, const char *name)
{
    hd_module *module = NULL;
    hd_kernel *kernel = NULL;
    CONF_OK(hd_module_get_builtin(runtime, &module));
    CONF_OK(hd_kernel_get(module, name, &kernel));
    return kernel;
}

typedef struct conf_kernels {
    hd_kernel *fill, *copy, *axpy, *matmul, *sum;
} conf_kernels;

CONF_UNUSED static conf_kernels conf_builtins(hd_runtime *runtime)
{
    conf_kernels k = {conf_kernel(runtime, "hd_fill_u32"), conf_kernel(runtime, "hd_copy_u32"),
                      conf_kernel(runtime, "hd_axpy_f32"), conf_kernel(runtime, "hd_matmul_f32"),
                      conf_kernel(runtime, "hd_sum_f32")};
    return k;
}

static inline hd_dims conf_grid(uint64_t n, uint32_t block)
{
    return conf_dims((uint32_t)((n + block - 1) / block), 1, 1);
}

/* y[0..n) = value, from the byte `offset` of the buffer on */
CONF_UNUSED static hd_status conf_fill(hd_lane *lane, conf_kernels k, hd_buffer *y, size_t offset, uint64_t n,
                                       uint32_t value, hd_ticket *out)
{
    hd_arg args[] = {hd_out_range(y, offset, n * 4), hd_u64(n), hd_u32(value)};
    return hd_launch(lane, k.fill, conf_grid(n, 128), conf_dims(128, 1, 1), 0, args, 3, out);
}

/* y[0..n) = x[0..n) */
CONF_UNUSED static hd_status conf_copy(hd_lane *lane, conf_kernels k, hd_buffer *y, size_t y_offset, hd_buffer *x,
                                       size_t x_offset, uint64_t n, hd_ticket *out)
{
    hd_arg args[] = {hd_out_range(y, y_offset, n * 4), hd_in_range(x, x_offset, n * 4), hd_u64(n)};
    return hd_launch(lane, k.copy, conf_grid(n, 128), conf_dims(128, 1, 1), 0, args, 3, out);
}

/* y[0..n) += a x[0..n) */
CONF_UNUSED static hd_status conf_axpy(hd_lane *lane, conf_kernels k, hd_buffer *y, size_t y_offset, hd_buffer *x,
                                       size_t x_offset, float a, uint64_t n, hd_ticket *out)
{
    hd_arg args[] = {hd_inout_range(y, y_offset, n * 4), hd_in_range(x, x_offset, n * 4), hd_f32(a), hd_u64(n)};
    return hd_launch(lane, k.axpy, conf_grid(n, 128), conf_dims(128, 1, 1), 0, args, 4, out);
}

/* total += sum of x[0..n), by `blocks` blocks of 256 threads; one block takes long on every
 * device */
CONF_UNUSED static hd_status conf_sum(hd_lane *lane, conf_kernels k, hd_buffer *total, size_t total_offset,
                                      hd_buffer *x, size_t x_offset, uint64_t n, uint32_t blocks, hd_ticket *out)
{
    hd_arg args[] = {hd_inout_range(total, total_offset, 4), hd_in_range(x, x_offset, n * 4), hd_u64(n)};
    return hd_launch(lane, k.sum, conf_dims(blocks, 1, 1), conf_dims(256, 1, 1), 0, args, 3, out);
}

static inline uint32_t conf_bits(float v)
{
    uint32_t u;
    memcpy(&u, &v, 4);
    return u;
}

extern char **environ;

/* Runs `heddle cc`; for host devices only if there is no compiler for GPUs. False: it did not make
 * the file. */
CONF_UNUSED static bool conf_run_cc(const char *tool, const char *in, const char *out, bool host_only)
{
    char program[4096], command[] = "cc", option[] = "-o", no_gpu[] = "--no-gpu", from[64], to[64];
    snprintf(program, sizeof program, "%s", tool);
    snprintf(from, sizeof from, "%s", in);
    snprintf(to, sizeof to, "%s", out);
    char *arguments[] = {program, command, from, option, to, host_only ? no_gpu : NULL, NULL};
    pid_t child = 0;
    int status = -1;
    CONF_EQUAL(posix_spawn(&child, tool, NULL, NULL, arguments, environ), 0);
    CONF_TRUE(waitpid(child, &status, 0) == child);
    return status == 0;
}

/* Makes a kernel file from C source with the tool. NULL if HEDDLE_TOOL names none, and on GPUs if
 * the tool finds no compiler for them. The caller frees the file. */
CONF_UNUSED static uint8_t *conf_kernel_file(const char *source, size_t *out_size)
{
    const char *tool = getenv("HEDDLE_TOOL");
    if (tool == NULL || tool[0] == '\0') {
        return NULL;
    }
    char folder[] = "/tmp/heddle-test-XXXXXX", in[64], out[64];
    CONF_TRUE(mkdtemp(folder) != NULL);
    snprintf(in, sizeof in, "%s/kernels.c", folder);
    snprintf(out, sizeof out, "%s/kernels.hk", folder);
    FILE *file = fopen(in, "w");
    CONF_TRUE(file != NULL && fputs(source, file) >= 0 && fclose(file) == 0);
    const char *driver = getenv("HEDDLE_DRIVER");
    bool host = driver != NULL && strcmp(driver, "host") == 0;
    if (!conf_run_cc(tool, in, out, false) && !(host && conf_run_cc(tool, in, out, true))) {
        CONF_TRUE(!host); /* a C compiler is enough for host devices */
        unlink(in);
        rmdir(folder);
        return NULL;
    }
    file = fopen(out, "r");
    struct stat about;
    CONF_TRUE(file != NULL && fstat(fileno(file), &about) == 0 && about.st_size > 0);
    *out_size = (size_t)about.st_size;
    uint8_t *image = conf_memory(*out_size);
    CONF_EQUAL(fread(image, 1, *out_size, file), *out_size);
    fclose(file);
    unlink(in);
    unlink(out);
    rmdir(folder);
    return image;
}

/* ---- work that takes long ---- */

/* Adds the sum of many zeros, with one block. It takes as long as the caller needs, and the total
 * keeps its value, which must be a number. It works on one device. All its work reads the zeros. */
typedef struct conf_slow {
    conf_kernels kernels;
    hd_buffer *zeros, *sink;
    uint64_t n;
    double ms; /* measured for one launch */
} conf_slow;

CONF_UNUSED static void conf_slow_make(conf_slow *slow, hd_runtime *runtime, int device)
{
    hd_lane *lane = NULL;
    CONF_OK(hd_lane_create(runtime, device, &lane));
    slow->kernels = conf_builtins(runtime);
    slow->n = CONF_TSAN ? 1 << 17 : 1 << 20;
    CONF_OK(hd_alloc(lane, slow->n * 4, &slow->zeros));
    CONF_OK(hd_alloc(lane, 4096, &slow->sink));
    CONF_OK(hd_fill(slow->zeros, 0, 0, slow->n * 4, NULL));
    CONF_OK(hd_fill(slow->sink, 0, 0, 4096, NULL));
    slow->ms = 1e9;
    for (int i = 0; i < 12; i++) {
        hd_ticket ticket;
        CONF_OK(hd_lane_wait(lane, 60 * CONF_SECOND));
        int64_t start = conf_now();
        CONF_OK(conf_sum(lane, slow->kernels, slow->sink, 0, slow->zeros, 0, slow->n, 1, &ticket));
        CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
        double ms = (double)(conf_now() - start) / 1e6;
        /* the least, so that noise never makes the work shorter than the caller asked for */
        slow->ms = ms < slow->ms ? ms : slow->ms;
    }
    slow->ms = slow->ms < 0.02 ? 0.02 : slow->ms;
    hd_lane_destroy(lane);
}

/* Submits about `ms` milliseconds of work to a lane of that device. *out (may be NULL) gets the
 * ticket of the last launch.
 *
 * The work reads and writes the 4 bytes at `offset` (below 4096) of `total`. If `total` is NULL, it
 * uses an own buffer. Different offsets there keep lanes independent of each other. */
CONF_UNUSED static void conf_slow_run(const conf_slow *slow, hd_lane *lane, hd_buffer *total, size_t offset, double ms,
                                      hd_ticket *out)
{
    int launches = (int)(ms / slow->ms) + 1;
    launches = launches > 4000 ? 4000 : launches;
    for (int i = 0; i < launches; i++) {
        CONF_OK(
            conf_sum(lane, slow->kernels, total == NULL ? slow->sink : total, offset, slow->zeros, 0, slow->n, 1, out));
    }
}

CONF_UNUSED static void conf_slow_free(conf_slow *slow)
{
    hd_free(slow->zeros);
    hd_free(slow->sink);
}

#endif
