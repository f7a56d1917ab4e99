/* alloc_kernels.c - the built-in kernels through Heddle and through the driver, and a kernel of
 * given duration.
 *
 * Threads: those of the case; a lane or stream belongs to one thread at a time. Locks: none.
 * Always: the results of kernels here are known exactly, so they can be checked.
 */
#include <string.h>
#include "bench/alloc_parts.h"

enum {
    DEPTH_FIRST = 4096,   /* depth of the product that shows how long a step takes */
    DEPTH_STEP = 32,      /* step of the kernel's loop */
    DEPTH_MOST = 1 << 24, /* a float holds these whole numbers exactly */
    FILL_BLOCK = 256
};

static const uint32_t one_bits = 0x3f800000; /* bits of 1.0f */

static uint32_t blocks_for(uint64_t n)
{
    return (uint32_t)((n + FILL_BLOCK - 1) / FILL_BLOCK);
}

bool alloc_kernels_open(alloc_side *s, alloc_kernels *out, char *error)
{
    hd_module *module;
    memset(out, 0, sizeof(*out));
    out->side = s;
    if (s->kind == ALLOC_HEDDLE) {
        return cli_report_check(hd_module_get_builtin(s->runtime, &module), "hd_module_get_builtin", error) &&
               cli_report_check(hd_kernel_get(module, "hd_fill_u32", &out->fill), "hd_kernel_get", error) &&
               cli_report_check(hd_kernel_get(module, "hd_copy_u32", &out->copy), "hd_kernel_get", error) &&
               cli_report_check(hd_kernel_get(module, "hd_axpy_f32", &out->axpy), "hd_kernel_get", error) &&
               cli_report_check(hd_kernel_get(module, "hd_matmul_f32", &out->matmul), "hd_kernel_get", error);
    }
    const hdi_driver *d = s->d;
    bool ok = DRIVER_TRY(d, error, cuModuleLoadDataEx, (&out->module, s->x->image.driver, 0, NULL, NULL)) &&
              DRIVER_TRY(d, error, cuModuleGetFunction, (&out->driver_fill, out->module, "hd_fill_u32")) &&
              DRIVER_TRY(d, error, cuModuleGetFunction, (&out->driver_copy, out->module, "hd_copy_u32")) &&
              DRIVER_TRY(d, error, cuModuleGetFunction, (&out->driver_matmul, out->module, "hd_matmul_f32"));
    if (!ok) {
        alloc_kernels_close(out);
    }
    return ok;
}

void alloc_kernels_close(alloc_kernels *k)
{
    if (k->module) {
        k->side->d->cuModuleUnload(k->module);
    }
    memset(k, 0, sizeof(*k));
}

bool alloc_launch_fill(alloc_kernels *k, uint32_t lane, alloc_slot y, uint64_t n, uint32_t value, char *error)
{
    alloc_side *s = k->side;
    if (s->kind == ALLOC_HEDDLE) {
        const hd_arg arguments[3] = {hd_out(y.buffer), hd_u64(n), hd_u32(value)};
        hd_dims grid = {blocks_for(n), 1, 1}, block = {FILL_BLOCK, 1, 1};
        hd_status status = hd_launch(s->lane[lane], k->fill, grid, block, 0, arguments, 3, NULL);
        return status == HD_OK || cli_report_check(status, "hd_launch", error);
    }
    void *parameters[3] = {&y.pointer, &n, &value};
    return DRIVER_TRY(s->d, error, cuLaunchKernel,
                      (k->driver_fill, blocks_for(n), 1, 1, FILL_BLOCK, 1, 1, 0, s->stream[lane], parameters, NULL));
}

bool alloc_launch_copy(alloc_kernels *k, uint32_t lane, alloc_slot y, alloc_slot x, uint64_t n, char *error)
{
    alloc_side *s = k->side;
    if (s->kind == ALLOC_HEDDLE) {
        const hd_arg arguments[3] = {hd_out_range(y.buffer, 0, 4 * n), hd_in_range(x.buffer, 0, 4 * n), hd_u64(n)};
        hd_dims grid = {blocks_for(n), 1, 1}, block = {FILL_BLOCK, 1, 1};
        return cli_report_check(hd_launch(s->lane[lane], k->copy, grid, block, 0, arguments, 3, NULL), "hd_launch",
                                error);
    }
    void *parameters[3] = {&y.pointer, &x.pointer, &n};
    return DRIVER_TRY(s->d, error, cuLaunchKernel,
                      (k->driver_copy, blocks_for(n), 1, 1, FILL_BLOCK, 1, 1, 0, s->stream[lane], parameters, NULL));
}

bool alloc_launch_matmul(alloc_kernels *k, uint32_t lane, alloc_slot c, alloc_slot a, alloc_slot b, uint32_t m,
                         uint32_t n, uint32_t depth, char *error)
{
    alloc_side *s = k->side;
    uint32_t columns = (n + 31) / 32, rows = (m + 31) / 32;
    if (s->kind == ALLOC_HEDDLE) {
        const hd_arg arguments[6] = {hd_out_range(c.buffer, 0, sizeof(float) * m * n),
                                     hd_in(a.buffer),
                                     hd_in(b.buffer),
                                     hd_u32(m),
                                     hd_u32(n),
                                     hd_u32(depth)};
        hd_dims grid = {columns, rows, 1}, block = {32, 32, 1};
        hd_status status = hd_launch(s->lane[lane], k->matmul, grid, block, 0, arguments, 6, NULL);
        return cli_report_check(status, "hd_launch", error);
    }
    void *parameters[6] = {&c.pointer, &a.pointer, &b.pointer, &m, &n, &depth};
    return DRIVER_TRY(s->d, error, cuLaunchKernel,
                      (k->driver_matmul, columns, rows, 1, 32, 32, 1, 0, s->stream[lane], parameters, NULL));
}

/* ---- a kernel of a given length ---- */

static void release_operands(alloc_spin *spin)
{
    alloc_side *s = spin->kernels->side;
    for (int i = 0; i < 2; i++) {
        alloc_slot *slot = i ? &spin->b : &spin->a;
        if (s->kind == ALLOC_HEDDLE) {
            hd_free(slot->buffer);
        } else if (slot->pointer) {
            s->d->cuMemFree(slot->pointer);
        }
        slot->pointer = 0;
    }
}

/* Makes both operands, all ones. For a rival they come from cuMemAlloc, whichever allocator is
 * measured. */
static bool make_operands(alloc_spin *spin, uint32_t depth, char *error)
{
    alloc_side *s = spin->kernels->side;
    size_t words = (size_t)depth * ALLOC_SPIN_EDGE;
    release_operands(spin);
    spin->depth = depth;
    for (int i = 0; i < 2; i++) {
        alloc_slot *slot = i ? &spin->b : &spin->a;
        bool ok = s->kind == ALLOC_HEDDLE
                      ? cli_report_check(hd_alloc(s->lane[0], 4 * words, &slot->buffer), "hd_alloc", error) &&
                            cli_report_check(hd_fill(slot->buffer, 0, one_bits, 4 * words, NULL), "hd_fill", error)
                      : DRIVER_TRY(s->d, error, cuMemAlloc, (&slot->pointer, 4 * words)) &&
                            DRIVER_TRY(s->d, error, cuMemsetD32Async, (slot->pointer, one_bits, words, s->stream[0]));
        if (!ok) {
            return false;
        }
    }
    return s->kind == ALLOC_HEDDLE
               ? cli_report_check(hd_buffer_wait(spin->b.buffer, HD_READ_WRITE, ALLOC_TIMEOUT_NS), "hd_fill", error) &&
                     cli_report_check(hd_buffer_wait(spin->a.buffer, HD_READ_WRITE, ALLOC_TIMEOUT_NS), "hd_fill", error)
               : bench_alloc_wait(s, 0, error);
}

/* Times a launch with its wait, and takes the shorter of two. */
static bool time_spin(alloc_spin *spin, alloc_slot c, char *error)
{
    for (int i = 0; i < 2; i++) {
        uint64_t begin = cli_stats_monotonic();
        if (!alloc_spin_launch(spin, 0, c, error) || !bench_alloc_wait(spin->kernels->side, 0, error)) {
            return false;
        }
        double took = (double)(cli_stats_monotonic() - begin);
        spin->ns = i == 0 || took < spin->ns ? took : spin->ns;
    }
    return true;
}

bool alloc_spin_open(alloc_kernels *k, double ns, alloc_spin *out, char *error)
{
    alloc_side *s = k->side;
    alloc_slot c = {.pointer = 0};
    /* the operands of all sides leave room for the measurements */
    uint64_t fits = s->x->room / 3 / (2 * sizeof(float) * ALLOC_SPIN_EDGE);
    *out = (alloc_spin){.kernels = k};
    bool ok = bench_alloc_take(s, 0, ALLOC_SPIN_BYTES, &c, error) == ALLOC_DONE &&
              make_operands(out, DEPTH_FIRST, error) && time_spin(out, c, error);
    for (int i = 0; i < 3 && ok && (out->ns < 0.85 * ns || out->ns > 1.15 * ns); i++) {
        double steps = (double)out->depth * ns / out->ns / DEPTH_STEP + 0.5;
        uint32_t most = (uint32_t)(fits < DEPTH_MOST ? fits : DEPTH_MOST) / DEPTH_STEP;
        uint32_t wanted = (steps < 1 ? 1 : steps < most ? (uint32_t)steps : most) * DEPTH_STEP;
        if (wanted == out->depth) {
            break; /* a short kernel is mostly launch time */
        }
        ok = make_operands(out, wanted, error) && time_spin(out, c, error);
    }
    ok = ok && alloc_spin_check(out, 0, c, error);
    char later[PLAIN_ERROR];
    ok = bench_alloc_give(s, 0, &c, ok ? error : later) && ok;
    if (!ok) {
        alloc_spin_close(out);
    }
    return ok;
}

void alloc_spin_close(alloc_spin *spin)
{
    if (spin->kernels) {
        release_operands(spin);
    }
    memset(spin, 0, sizeof(*spin));
}

bool alloc_spin_launch(alloc_spin *spin, uint32_t lane, alloc_slot c, char *error)
{
    return alloc_launch_matmul(spin->kernels, lane, c, spin->a, spin->b, ALLOC_SPIN_EDGE, ALLOC_SPIN_EDGE, spin->depth,
                               error);
}

bool alloc_spin_check(alloc_spin *spin, uint32_t lane, alloc_slot c, char *error)
{
    float result[ALLOC_SPIN_EDGE * ALLOC_SPIN_EDGE];
    alloc_side *s = spin->kernels->side;
    if (!bench_alloc_read(s, lane, c, 0, result, sizeof(result), error)) {
        return false;
    }
    for (int i = 0; i < ALLOC_SPIN_EDGE * ALLOC_SPIN_EDGE; i++) {
        if (result[i] != (float)spin->depth) {
            snprintf(error, PLAIN_ERROR, "%s: element %d of a product is %g and not %u", alloc_kind_names[s->kind], i,
                     (double)result[i], spin->depth);
            return false;
        }
    }
    s->x->results++;
    return true;
}
