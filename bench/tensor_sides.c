/* tensor_sides.c - the three sides of a row: hd_tensor_copy, the driver's device copy, and a plain
 * kernel. It also contains their memory, checks and samples.
 *
 * Threads: the conductor. Locks: none.
 * Always: Heddle's own launches fill and check Heddle's side, so this works if the engines are in
 * other processes. Both sides rotate over equally many pairs of buffers of the same sizes. A
 * destination is overwritten before a checked copy.
 */
#include <string.h>
#include "bench/tensor_parts.h"
#include "tensor/plan.h"

/* The kernel file embedded in the tool. */
extern const unsigned char layouts_image_bytes[], layouts_image_bytes_end[];

enum {
    TRIES = 2,
    EDGE_X = 32, /* edges of a plain transpose's block */
    EDGE_Y = 8,
    AROUND = 256 /* most bytes checked before the first element and after the last one */
};

static const uint32_t poison = 0xa5a5a5a5;

/* ---- open and close ---- */

static bool bench_open_functions(tensor_experiment *x, char *error)
{
    tensor_plain *p = &x->plain;
    bool ok = TENSOR_TRY(x, error, cuModuleLoadDataEx, (&p->module, x->image.driver, 0, NULL, NULL)) &&
              TENSOR_TRY(x, error, cuModuleGetFunction, (&p->fill, p->module, "hd_layouts_fill")) &&
              TENSOR_TRY(x, error, cuModuleGetFunction, (&p->check, p->module, "hd_layouts_check"));
    for (int i = 0; i < 5 && ok; i++) {
        char name[48];
        snprintf(name, sizeof(name), "hd_layouts_transpose_%d", 1 << i);
        ok = TENSOR_TRY(x, error, cuModuleGetFunction, (&p->transpose[i], p->module, name));
        snprintf(name, sizeof(name), "hd_layouts_copy_%d", 1 << i);
        ok = ok && TENSOR_TRY(x, error, cuModuleGetFunction, (&p->copy[i], p->module, name));
    }
    return ok;
}

static bool bench_open_plain(tensor_experiment *x, char *error)
{
    tensor_plain *p = &x->plain;
    if (!cli_plain_provider(x->on_host, x->settings, &p->d, error) ||
        !cli_plain_find_device(p->d, x->device.uuid, &p->ordinal, error)) {
        return false;
    }
    if (!TENSOR_TRY(x, error, cuDevicePrimaryCtxRetain, (&p->context, p->ordinal))) {
        p->context = NULL;
        return false;
    }
    return TENSOR_TRY(x, error, cuCtxSetCurrent, (p->context)) &&
           TENSOR_TRY(x, error, cuStreamCreate, (&p->stream, HDCU_STREAM_NON_BLOCKING)) &&
           TENSOR_TRY(x, error, cuMemAlloc, (&p->count, 256)) && bench_open_functions(x, error);
}

static bool bench_open_heddle(tensor_experiment *x, char *error)
{
    hd_module *module;
    return cli_report_check(hd_lane_get_default(x->runtime, 0, &x->lane), "hd_lane_get_default", error) &&
           cli_report_check(hd_module_load(x->runtime, x->image.file, x->image.file_bytes, &module), "hd_module_load",
                            error) &&
           cli_report_check(hd_kernel_get(module, "hd_layouts_fill", &x->fill), "hd_kernel_get", error) &&
           cli_report_check(hd_kernel_get(module, "hd_layouts_check", &x->check), "hd_kernel_get", error) &&
           cli_report_check(hd_alloc(x->lane, sizeof(uint64_t), &x->count), "hd_alloc", error);
}

bool bench_tensor_sides_open(tensor_experiment *x, char *error)
{
    return cli_plain_kernels(x->info.driver, layouts_image_bytes,
                             (size_t)(layouts_image_bytes_end - layouts_image_bytes), "the tool's kernels", &x->image,
                             error) &&
           bench_open_heddle(x, error) && bench_open_plain(x, error);
}

void bench_tensor_sides_close(tensor_experiment *x)
{
    tensor_plain *p = &x->plain;
    hd_free(x->count);
    if (!p->context) {
        return;
    }
    p->d->cuCtxSetCurrent(p->context);
    if (p->stream) {
        p->d->cuStreamSynchronize(p->stream);
        p->d->cuStreamDestroy(p->stream);
    }
    if (p->count) {
        p->d->cuMemFree(p->count);
    }
    if (p->module) {
        p->d->cuModuleUnload(p->module);
    }
    p->d->cuCtxSetCurrent(NULL);
    p->d->cuDevicePrimaryCtxRelease(p->ordinal);
    p->context = NULL;
}

/* ---- memory ---- */

static uint32_t bench_blocks_for(uint64_t n)
{
    return (uint32_t)((n + LAYOUT_THREADS - 1) / LAYOUT_THREADS);
}

static void bench_make_layout(const hd_tensor *from, const hd_tensor *to, uint64_t elements, bench_layout *out)
{
    memset(out, 0, sizeof(*out));
    out->dims = (uint32_t)to->dims;
    out->element = (uint32_t)hd_type_size(to->type);
    out->elements = elements;
    out->dst_offset = (int64_t)to->offset;
    out->src_offset = (int64_t)from->offset;
    for (int i = 0; i < to->dims; i++) {
        out->shape[i] = (uint32_t)to->shape[i];
        out->dst_stride[i] = to->stride[i];
        out->src_stride[i] = from->stride[i];
    }
}

static bool bench_take_pair(tensor_memory *m, int k, char *error)
{
    tensor_experiment *x = m->x;
    const tensor_row *row = m->row;
    size_t plain_src = row->src_bytes > row->payload ? row->src_bytes : row->payload;
    uint64_t words = row->src_bytes / 4, plain_words = plain_src / 4;
    hd_dims grid = {bench_blocks_for(words), 1, 1}, block = {LAYOUT_THREADS, 1, 1};
    void *parameters[2] = {&m->plain_src[k], &plain_words};
    if (!cli_report_check(hd_alloc(x->lane, row->src_bytes, &m->src[k]), "hd_alloc", error) ||
        !cli_report_check(hd_alloc(x->lane, row->dst_bytes, &m->dst[k]), "hd_alloc", error) ||
        !bench_tensor_views(row, m->src[k], m->dst[k], &m->from[k], &m->to[k], error) ||
        !TENSOR_TRY(x, error, cuMemAlloc, (&m->plain_src[k], plain_src)) ||
        !TENSOR_TRY(x, error, cuMemAlloc, (&m->plain_dst[k], row->dst_bytes))) {
        return false;
    }
    const hd_arg arguments[2] = {hd_out(m->src[k]), hd_u64(words)};
    return cli_report_check(hd_launch(x->lane, x->fill, grid, block, 0, arguments, 2, NULL), "hd_launch", error) &&
           TENSOR_TRY(x, error, cuLaunchKernel,
                      (x->plain.fill, bench_blocks_for(plain_words), 1, 1, LAYOUT_THREADS, 1, 1, 0, x->plain.stream,
                       parameters, NULL));
}

bool bench_tensor_memory_take(tensor_experiment *x, const tensor_row *row, tensor_memory *m, char *error)
{
    *m = (tensor_memory){.x = x, .row = row};
    for (int k = 0; k < row->pairs; k++) {
        if (!bench_take_pair(m, k, error)) {
            return false;
        }
    }
    bench_make_layout(&m->from[0], &m->to[0], row->elements, &m->layout);
    return cli_report_check(hd_lane_wait(x->lane, TENSOR_TIMEOUT_NS), "hd_lane_wait", error) &&
           TENSOR_TRY(x, error, cuStreamSynchronize, (x->plain.stream));
}

void bench_tensor_memory_give(tensor_memory *m)
{
    tensor_experiment *x = m->x;
    if (!x) {
        return;
    }
    x->plain.d->cuStreamSynchronize(x->plain.stream);
    for (int k = 0; k < TENSOR_PAIRS_MAX; k++) {
        hd_free(m->src[k]);
        hd_free(m->dst[k]);
        if (m->plain_src[k]) {
            x->plain.d->cuMemFree(m->plain_src[k]);
        }
        if (m->plain_dst[k]) {
            x->plain.d->cuMemFree(m->plain_dst[k]);
        }
    }
    hd_memory_trim(x->runtime, 0, 0, NULL); /* the plain side of the next row needs it */
    memset(m, 0, sizeof(*m));
}

/* ---- copies ---- */

static int bench_size_index(const tensor_memory *m)
{
    return __builtin_ctz(m->layout.element);
}

/* True for the transpose of a whole matrix. For that case a programmer would write a special
 * kernel. */
static bool bench_is_matrix(const tensor_memory *m)
{
    const tensor_spec *s = m->row->spec;
    return s->dims == 2 && s->order[0] == 1;
}

bool bench_tensor_launch_plain(tensor_memory *m, int pair, char *error)
{
    tensor_experiment *x = m->x;
    hdcu_deviceptr y = m->plain_dst[pair], from = m->plain_src[pair];
    int size = bench_size_index(m);
    if (bench_is_matrix(m)) {
        uint32_t rows = (uint32_t)m->row->shape[0], columns = (uint32_t)m->row->shape[1];
        y += (hdcu_deviceptr)m->layout.dst_offset, from += (hdcu_deviceptr)m->layout.src_offset;
        void *parameters[4] = {&y, &from, &rows, &columns};
        return TENSOR_TRY(x, error, cuLaunchKernel,
                          (x->plain.transpose[size], (columns + EDGE_X - 1) / EDGE_X, (rows + EDGE_Y - 1) / EDGE_Y, 1,
                           EDGE_X, EDGE_Y, 1, 0, x->plain.stream, parameters, NULL));
    }
    void *parameters[3] = {&y, &from, &m->layout};
    return TENSOR_TRY(x, error, cuLaunchKernel,
                      (x->plain.copy[size], bench_blocks_for(m->layout.elements), 1, 1, LAYOUT_THREADS, 1, 1, 0,
                       x->plain.stream, parameters, NULL));
}

static bool bench_copy_heddle(tensor_memory *m, const hdi_plan_wish *wish, int pair, char *error)
{
    if (wish) {
        return cli_report_check(hdi_tensor_copy_as(&m->to[pair], &m->from[pair], wish, &m->ticket[pair]),
                                "hd_tensor_copy", error);
    }
    return cli_report_check(hd_tensor_copy(&m->to[pair], &m->from[pair], &m->ticket[pair]), "hd_tensor_copy", error);
}

static bool bench_copy_one(tensor_memory *m, tensor_side side, const hdi_plan_wish *wish, int pair, char *error)
{
    tensor_experiment *x = m->x;
    switch (side) {
    case TENSOR_HEDDLE:
        return bench_copy_heddle(m, wish, pair, error);
    case TENSOR_COPY:
        return TENSOR_TRY(x, error, cuMemcpyDtoDAsync,
                          (m->plain_dst[pair], m->plain_src[pair], m->row->payload, x->plain.stream));
    default:
        return bench_tensor_launch_plain(m, pair, error);
    }
}

static bool bench_wait_for(tensor_memory *m, tensor_side side, char *error)
{
    if (side != TENSOR_HEDDLE) {
        return TENSOR_TRY(m->x, error, cuStreamSynchronize, (m->x->plain.stream));
    }
    for (int k = 0; k < m->row->pairs; k++) {
        if (!cli_report_check(hd_wait(m->ticket[k], TENSOR_TIMEOUT_NS), "hd_tensor_copy", error)) {
            return false;
        }
    }
    return true;
}

bool bench_tensor_sample(tensor_memory *m, tensor_side side, const struct hdi_plan_wish *wish, int reps, double *ns,
                         char *error)
{
    uint64_t begin = cli_stats_monotonic();
    bool ok = true;
    for (int i = 0; i < reps && ok; i++) {
        ok = bench_copy_one(m, side, wish, m->next, error);
        m->next = (m->next + 1) % m->row->pairs;
    }
    char later[PLAIN_ERROR];
    ok = bench_wait_for(m, side, ok ? error : later) && ok;
    *ns = (double)(cli_stats_monotonic() - begin);
    return ok;
}

bool bench_tensor_repetitions(tensor_memory *m, tensor_side side, double sample_ns, int *reps, char *error)
{
    double ns;
    int n = TRIES;
    for (;;) {
        if (!bench_tensor_sample(m, side, NULL, n, &ns, error)) {
            return false;
        }
        if (ns * 8 > sample_ns || n > 10000) { /* long enough for an estimate */
            break;
        }
        n *= 4;
    }
    double wanted = sample_ns * n / ns;
    *reps = wanted < 1 ? 1 : wanted > 100000 ? 100000 : (int)(wanted + 0.5);
    return true;
}

/* ---- checking ---- */

/* The number of bytes that are no longer poison. */
static uint64_t bench_count_spoilt(const uint8_t *bytes, size_t n)
{
    uint64_t wrong = 0;
    for (size_t i = 0; i < n; i++) {
        wrong += bytes[i] != (uint8_t)poison;
    }
    return wrong;
}

static bool bench_verify_heddle(tensor_memory *m, const hdi_plan_wish *wish, int pair, uint64_t *wrong, char *error)
{
    tensor_experiment *x = m->x;
    uint8_t front[AROUND], back[AROUND];
    size_t begin = (size_t)m->layout.dst_offset, end = begin + m->row->payload, left = m->row->dst_bytes - end;
    size_t n_front = begin < AROUND ? begin : AROUND, n_back = left < AROUND ? left : AROUND;
    hd_dims grid = {bench_blocks_for(m->layout.elements), 1, 1}, block = {LAYOUT_THREADS, 1, 1};
    const hd_arg arguments[3] = {hd_inout(x->count), hd_in(m->dst[pair]), hd_bytes(&m->layout, sizeof(m->layout))};
    if (!cli_report_check(hd_fill(m->dst[pair], 0, poison, m->row->dst_bytes, NULL), "hd_fill", error) ||
        !cli_report_check(hd_fill(x->count, 0, 0, sizeof(*wrong), NULL), "hd_fill", error) ||
        !bench_copy_heddle(m, wish, pair, error) ||
        !cli_report_check(hd_launch(x->lane, x->check, grid, block, 0, arguments, 3, NULL), "hd_launch", error) ||
        !cli_report_check(hd_read(x->count, 0, wrong, sizeof(*wrong)), "hd_read", error) ||
        (n_front && !cli_report_check(hd_read(m->dst[pair], begin - n_front, front, n_front), "hd_read", error)) ||
        !cli_report_check(hd_read(m->dst[pair], end, back, n_back), "hd_read", error)) {
        return false;
    }
    *wrong += bench_count_spoilt(front, n_front) + bench_count_spoilt(back, n_back);
    return true;
}

static bool bench_verify_plain(tensor_memory *m, int pair, uint64_t *wrong, char *error)
{
    tensor_experiment *x = m->x;
    hdcu_stream stream = x->plain.stream;
    void *parameters[3] = {&x->plain.count, &m->plain_dst[pair], &m->layout};
    return TENSOR_TRY(x, error, cuMemsetD32Async, (m->plain_dst[pair], poison, m->row->dst_bytes / 4, stream)) &&
           TENSOR_TRY(x, error, cuMemsetD32Async, (x->plain.count, 0, 2, stream)) &&
           bench_tensor_launch_plain(m, pair, error) &&
           TENSOR_TRY(x, error, cuLaunchKernel,
                      (x->plain.check, bench_blocks_for(m->layout.elements), 1, 1, LAYOUT_THREADS, 1, 1, 0, stream,
                       parameters, NULL)) &&
           TENSOR_TRY(x, error, cuStreamSynchronize, (stream)) &&
           TENSOR_TRY(x, error, cuMemcpyDtoH, (wrong, x->plain.count, sizeof(*wrong)));
}

bool bench_tensor_verify(tensor_memory *m, tensor_side side, const struct hdi_plan_wish *wish, int pair,
                         uint64_t *wrong, char *error)
{
    *wrong = 0;
    if (side == TENSOR_COPY) {
        return true;
    }
    bool ok = side == TENSOR_HEDDLE ? bench_verify_heddle(m, wish, pair, wrong, error)
                                    : bench_verify_plain(m, pair, wrong, error);
    m->x->checked += ok;
    return ok;
}
