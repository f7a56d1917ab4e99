/* alloc_access.c - compares reads of single elements of unified memory with a load and with a copy
 * of four bytes. It also compares pairs of pinned memory with pairs of the driver.
 *
 * Threads: the conductor. Locks: none.
 * Always: every element that is read is compared with the value that a kernel wrote.
 */
#include <stdlib.h>
#include <string.h>
#include "bench/alloc_parts.h"

enum {
    ELEMENTS = 1 << 18,
    COPIES_MOST = 20000,
    PINNED_PAIRS = 64, /* most pairs of Heddle in a round */
    PINNED_DRIVER = 4  /* most pairs of the driver */
};

/* ---- unified ---- */

typedef struct unified {
    alloc_side side, plain;
    hd_buffer *buffer;
    float *memory; /* the same numbers, in plain memory */
    hdcu_deviceptr device;
} unified;

static float bench_number_at(uint32_t i)
{
    return (float)(i & 0xffff) + 0.5f;
}

static bool bench_open_unified(alloc_experiment *x, unified *u, double *first_us, char *error)
{
    size_t bytes = sizeof(float) * ELEMENTS;
    u->memory = malloc(bytes);
    if (!u->memory) {
        snprintf(error, PLAIN_ERROR, "out of memory");
        return false;
    }
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        u->memory[i] = bench_number_at(i);
    }
    hd_buffer *source = NULL;
    float found = 0;
    bool ok = bench_alloc_side_open(x, ALLOC_PLAIN, 1, "", &u->plain, error) &&
              DRIVER_TRY(x->driver, error, cuMemAlloc, (&u->device, bytes)) &&
              DRIVER_TRY(x->driver, error, cuMemcpyHtoD, (u->device, u->memory, bytes)) &&
              bench_alloc_side_open(x, ALLOC_HEDDLE, 1, "", &u->side, error) &&
              cli_report_check(hd_alloc_unified(u->side.lane[0], bytes, &u->buffer), "hd_alloc_unified", error) &&
              cli_report_check(hd_alloc(u->side.lane[0], bytes, &source), "hd_alloc", error) &&
              cli_report_check(hd_write(source, 0, u->memory, bytes), "hd_write", error) &&
              cli_report_check(hd_copy(u->buffer, 0, source, 0, bytes, NULL), "hd_copy", error);
    uint64_t begin = cli_stats_monotonic();
    ok = ok && (hd_get_f32(u->buffer, ELEMENTS - 1, &found) || cli_report_check(HD_ERROR_FAILED, "hd_get_f32", error));
    *first_us = (double)(cli_stats_monotonic() - begin) * 1e-3;
    hd_free(source);
    return ok;
}

static void bench_close_unified(unified *u)
{
    hd_free(u->buffer);
    if (u->device) {
        u->plain.d->cuMemFree(u->device);
    }
    bench_alloc_side_close(&u->side);
    bench_alloc_side_close(&u->plain);
    free(u->memory);
}

static bool bench_wrong(uint32_t i, float found, char *error)
{
    snprintf(error, PLAIN_ERROR, "element %u of a unified buffer is %g and not %g", i, (double)found,
             (double)bench_number_at(i));
    return false;
}

static bool bench_read_elements(unified *u, double *ns, char *error)
{
    uint64_t begin = cli_stats_monotonic();
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        float found = 0;
        if (!hd_get_f32(u->buffer, i, &found)) {
            return cli_report_check(HD_ERROR_FAILED, "hd_get_f32", error);
        }
        if (found != u->memory[i]) {
            return bench_wrong(i, found, error);
        }
    }
    *ns = (double)(cli_stats_monotonic() - begin) / ELEMENTS;
    return true;
}

/* Runs the same loop with a load instead of the call; `volatile` keeps the loads. */
static bool bench_load_elements(unified *u, double *ns, char *error)
{
    const volatile float *memory = u->memory;
    uint64_t begin = cli_stats_monotonic();
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        float found = memory[i];
        if (found != u->memory[i]) {
            return bench_wrong(i, found, error);
        }
    }
    *ns = (double)(cli_stats_monotonic() - begin) / ELEMENTS;
    return true;
}

static bool bench_copy_elements(unified *u, double *ns, char *error)
{
    uint64_t begin = cli_stats_monotonic(), end = bench_alloc_slice_end(u->side.x, 0.5);
    uint32_t n = 0;
    for (; n < COPIES_MOST && (n % 16 || cli_stats_monotonic() < end); n++) {
        float found = 0;
        if (!DRIVER_TRY(u->plain.d, error, cuMemcpyDtoH, (&found, u->device + sizeof(float) * n, sizeof(float)))) {
            return false;
        }
        if (found != bench_number_at(n)) {
            return bench_wrong(n, found, error);
        }
    }
    *ns = (double)(cli_stats_monotonic() - begin) / n;
    return true;
}

bool bench_alloc_run_unified(alloc_experiment *x, const alloc_step *step, char *error)
{
    unified u;
    alloc_unified *out = &x->unified;
    (void)step;
    memset(&u, 0, sizeof(u));
    bool ok = bench_open_unified(x, &u, &out->first_us, error);
    for (int round = 0; round < x->rounds && ok; round++) {
        ok = bench_read_elements(&u, &out->element_ns[round], error) &&
             bench_load_elements(&u, &out->load_ns[round], error) &&
             bench_copy_elements(&u, &out->copy_ns[round], error);
        out->rounds = round + ok;
    }
    out->measured = ok;
    x->results += ok;
    bench_close_unified(&u);
    return ok;
}

/* ---- pinned ---- */

/* Allocates, writes both ends, frees. */
static bool bench_heddle_pair(alloc_side *s, size_t bytes, uint64_t *ns, char *error)
{
    hd_buffer *buffer = NULL;
    void *memory = NULL;
    uint64_t begin = cli_stats_monotonic();
    if (!cli_report_check(hd_alloc_host(s->runtime, bytes, &buffer), "hd_alloc_host", error)) {
        return false;
    }
    uint64_t took = cli_stats_monotonic() - begin;
    bool ok = cli_report_check(hd_map(buffer, HD_READ_WRITE, &memory), "hd_map", error);
    if (ok) {
        ((volatile char *)memory)[0] = 1;
        ((volatile char *)memory)[bytes - 1] = 1;
        hd_unmap(buffer);
    }
    ok = ok && (hd_buffer_size(buffer) == bytes || !snprintf(error, PLAIN_ERROR, "pinned memory has another size"));
    begin = cli_stats_monotonic();
    hd_free(buffer);
    *ns = took + cli_stats_monotonic() - begin;
    return ok;
}

static bool bench_driver_pair(alloc_side *s, size_t bytes, uint64_t *ns, char *error)
{
    void *memory = NULL;
    uint64_t begin = cli_stats_monotonic();
    if (!DRIVER_TRY(s->d, error, cuMemHostAlloc,
                    (&memory, bytes, HDCU_MEMHOSTALLOC_PORTABLE | HDCU_MEMHOSTALLOC_DEVICEMAP))) {
        return false;
    }
    uint64_t took = cli_stats_monotonic() - begin;
    ((volatile char *)memory)[0] = 1;
    ((volatile char *)memory)[bytes - 1] = 1;
    begin = cli_stats_monotonic();
    bool ok = DRIVER_TRY(s->d, error, cuMemFreeHost, (memory));
    *ns = took + cli_stats_monotonic() - begin;
    return ok;
}

typedef bool (*pinned_pair)(alloc_side *s, size_t bytes, uint64_t *ns, char *error);

/* Measures the mean of up to `most` pairs. */
static bool bench_pinned_round(alloc_side *s, pinned_pair pair, int most, size_t bytes, double *mean, char *error)
{
    uint64_t end = bench_alloc_slice_end(s->x, 1), sum = 0;
    int n = 0;
    for (; n < most && (n == 0 || cli_stats_monotonic() < end); n++) {
        uint64_t ns = 0;
        if (!pair(s, bytes, &ns, error)) {
            return false;
        }
        sum += ns;
    }
    *mean = (double)sum / n;
    return true;
}

/* a: bytes */
bool bench_alloc_run_pinned(alloc_experiment *x, const alloc_step *step, char *error)
{
    alloc_side side, plain;
    alloc_pinned *out = &x->pinned;
    uint64_t first = 0;
    out->bytes = step->a;
    bool opened = bench_alloc_side_open(x, ALLOC_PLAIN, 1, "", &plain, error);
    bool ok = opened && bench_alloc_side_open(x, ALLOC_HEDDLE, 1, "", &side, error);
    if (ok) {
        ok = bench_heddle_pair(&side, step->a, &first, error);
        out->first_ns = (double)first;
        for (int round = 0; round < x->rounds && ok; round++) {
            ok = bench_pinned_round(&side, bench_heddle_pair, PINNED_PAIRS, step->a, &out->heddle_ns[round], error) &&
                 bench_alloc_side_enter(&plain, error) &&
                 bench_pinned_round(&plain, bench_driver_pair, PINNED_DRIVER, step->a, &out->driver_ns[round], error);
            out->rounds = round + ok;
        }
        bench_alloc_side_close(&side);
    }
    if (opened) {
        bench_alloc_side_close(&plain);
    }
    out->measured = ok;
    return ok;
}
