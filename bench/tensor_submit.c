/* tensor_submit.c - the cost of hd_tensor_copy and hd_tensor_matmul for the calling thread, beside
 * calls of the driver and of cuBLAS.
 *
 * Threads: the conductor. Locks: none.
 * Always: so few calls are in flight that none waits for room; the cost of reading the clock is
 * subtracted. The tensors are small, so that the device keeps up.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "bench/tensor_parts.h"

enum { EDGE = 256, PRODUCT_EDGE = 64, BATCH = 32, BATCHES = 100, FEWER_BATCHES = 10 };

static const tensor_spec spec = {.part = "submit",
                                 .id = "submit",
                                 .name = "submit",
                                 .type = HD_TYPE_F32,
                                 .dims = 2,
                                 .shape = {EDGE, EDGE},
                                 .order = {1, 0}};

typedef struct caller {
    tensor_experiment *x;
    tensor_memory m;
    hd_tensor product[3];
    hd_ticket ticket;
    tensor_cublas *cublas;
} caller;

static bool bench_call_tensor_copy(caller *c, char *error)
{
    return cli_report_check(hd_tensor_copy(&c->m.to[0], &c->m.from[0], &c->ticket), "hd_tensor_copy", error);
}

static bool bench_call_launch(caller *c, char *error)
{
    return bench_tensor_launch_plain(&c->m, 0, error);
}

static bool bench_call_copy(caller *c, char *error)
{
    return TENSOR_TRY(c->x, error, cuMemcpyDtoDAsync,
                      (c->m.plain_dst[0], c->m.plain_src[0], c->m.row->payload, c->x->plain.stream));
}

static bool bench_call_matmul(caller *c, char *error)
{
    return cli_report_check(
        hd_tensor_matmul(c->x->lane, &c->product[2], &c->product[0], &c->product[1], 1, 0, &c->ticket),
        "hd_tensor_matmul", error);
}

static bool bench_call_cublas(caller *c, char *error)
{
    hdcu_deviceptr at = c->m.plain_src[0], step = PRODUCT_EDGE * PRODUCT_EDGE * sizeof(float);
    return bench_tensor_cublas_product(c->cublas, HD_TYPE_F32, PRODUCT_EDGE, at, at + step, c->m.plain_dst[0], error);
}

static bool bench_wait_for(caller *c, char *error)
{
    return cli_report_check(hd_wait(c->ticket, TENSOR_TIMEOUT_NS), "hd_wait", error) &&
           TENSOR_TRY(c->x, error, cuStreamSynchronize, (c->x->plain.stream));
}

static bool bench_measure(caller *c, const char *id, const char *name, bool (*call)(caller *, char *), char *error)
{
    tensor_experiment *x = c->x;
    int batches = x->on_host || x->options->quick ? FEWER_BATCHES : BATCHES;
    stats_histogram *h = calloc(1, sizeof(*h));
    bool ok = h != NULL;
    if (!ok) {
        snprintf(error, PLAIN_ERROR, "out of memory");
    }
    for (int b = -1; b < batches && ok; b++) { /* the first one warms up */
        for (int i = 0; i < BATCH && ok; i++) {
            uint64_t begin = cli_stats_tick_begin();
            ok = call(c, error);
            uint64_t end = cli_stats_tick_end();
            if (b >= 0) {
                cli_stats_record(h, end - begin);
            }
        }
        ok = ok && bench_wait_for(c, error);
    }
    if (ok) {
        x->calls[x->n_calls++] = (tensor_call){.id = id, .name = name, .calls = cli_stats_summarise(h)};
    }
    free(h);
    return ok;
}

static bool bench_make_product(caller *c, hd_buffer *buffers[3], char *error)
{
    const uint64_t shape[2] = {PRODUCT_EDGE, PRODUCT_EDGE};
    size_t bytes = sizeof(float) * PRODUCT_EDGE * PRODUCT_EDGE;
    for (int k = 0; k < 3; k++) {
        if (!cli_report_check(hd_alloc(c->x->lane, bytes, &buffers[k]), "hd_alloc", error) ||
            !cli_report_check(hd_fill(buffers[k], 0, 0, bytes, NULL), "hd_fill", error) ||
            !cli_report_check(hd_tensor_make(buffers[k], 0, HD_TYPE_F32, 2, shape, &c->product[k]), "hd_tensor_make",
                              error)) {
            return false;
        }
    }
    return true;
}

bool bench_tensor_run_calls(tensor_experiment *x, char *error)
{
    caller c = {.x = x};
    hd_buffer *buffers[3] = {NULL, NULL, NULL};
    tensor_row row;
    char name[64], why[TENSOR_TEXT];
    bench_tensor_step(x, "submit", "");
    bench_tensor_plan_row(x, &spec, &row);
    row.pairs = 1;
    c.cublas = x->on_host ? NULL : bench_tensor_cublas_open(x, name, why, sizeof(why));
    bool ok = bench_tensor_memory_take(x, &row, &c.m, error) && bench_make_product(&c, buffers, error) &&
              bench_measure(&c, "hd_tensor_copy", "hd_tensor_copy", bench_call_tensor_copy, error) &&
              bench_measure(&c, "cuLaunchKernel", "cuLaunchKernel of a plain transpose", bench_call_launch, error) &&
              bench_measure(&c, "cuMemcpyDtoDAsync", "cuMemcpyDtoDAsync", bench_call_copy, error) &&
              bench_measure(&c, "hd_tensor_matmul", "hd_tensor_matmul", bench_call_matmul, error) &&
              (!c.cublas || bench_measure(&c, "cublasGemmEx", "cublasGemmEx", bench_call_cublas, error));
    for (int k = 0; k < 3; k++) {
        hd_free(buffers[k]);
    }
    bench_tensor_memory_give(&c.m);
    bench_tensor_cublas_close(c.cublas);
    return ok;
}
