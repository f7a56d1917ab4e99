/* copy_one.c - the parts with one device: program memory to the device and back, pinned memory,
 * copies on the device, rows with gaps, small transfers.
 *
 * Threads: the conductor. Locks: none.
 * Always: both sides use the same pageable memory, which was touched before. Each side has its own
 * device memory and pinned memory. The received bytes are compared on both sides.
 */
#include <string.h>
#include "bench/copy_parts.h"

/* Two blocks of each kind, for either side. */
typedef struct memory {
    hd_buffer *device[2], *pinned[2];
    hdcu_deviceptr plain[2];
    void *plain_pinned[2];
} memory;

static bool bench_open_memory(copy_experiment *x, size_t bytes, bool pinned, memory *m, char *error)
{
    memset(m, 0, sizeof(*m));
    hd_lane *lane = NULL;
    bool ok = cli_report_check(hd_lane_get_default(x->runtime, 0, &lane), "hd_lane_get_default", error) &&
              DRIVER_TRY(x->driver, error, cuCtxSetCurrent, (x->plain[0].context));
    for (int i = 0; i < 2 && ok; i++) {
        ok = cli_report_check(hd_alloc(lane, bytes, &m->device[i]), "hd_alloc", error) &&
             DRIVER_TRY(x->driver, error, cuMemAlloc, (&m->plain[i], bytes));
        if (ok && pinned) {
            ok = cli_report_check(hd_alloc_host(x->runtime, bytes, &m->pinned[i]), "hd_alloc_host", error) &&
                 DRIVER_TRY(x->driver, error, cuMemHostAlloc,
                            (&m->plain_pinned[i], bytes, HDCU_MEMHOSTALLOC_PORTABLE | HDCU_MEMHOSTALLOC_DEVICEMAP));
        }
    }
    return ok;
}

static void bench_close_memory(copy_experiment *x, memory *m)
{
    x->driver->cuCtxSetCurrent(x->plain[0].context);
    for (int i = 0; i < 2; i++) {
        hd_free(m->device[i]);
        hd_free(m->pinned[i]);
        if (m->plain[i]) {
            x->driver->cuMemFree(m->plain[i]);
        }
        if (m->plain_pinned[i]) {
            x->driver->cuMemFreeHost(m->plain_pinned[i]);
        }
    }
}

static copy_work bench_make_work(copy_experiment *x, copy_op op, size_t bytes)
{
    return (copy_work){.x = x, .op = op, .bytes = bytes, .at = &x->plain[0]};
}

/* Copies program memory to the device and back. `kind` is that of the rows. */
static bool bench_there_and_back(copy_experiment *x, memory *m, const char *part, copy_kind kind, size_t bytes,
                                 const char *to_id, const char *to_name, const char *from_id, const char *from_name,
                                 char *error)
{
    copy_work w = bench_make_work(x, COPY_WRITE, bytes);
    w.memory = x->from;
    w.to = w.from = m->device[0];
    w.dst = w.src = m->plain[0];
    bench_copy_pattern(x->from, bytes, (uint32_t)bytes);
    memset(x->to, 0, bytes);
    if (!bench_copy_compare(x, bench_copy_row_add(x, part, kind, bytes, to_id, to_name), &w, error) ||
        !bench_copy_verify_buffer(x, w.to, bytes, (uint32_t)bytes, to_name, error) ||
        !bench_copy_verify_plain(x, w.dst, bytes, (uint32_t)bytes, to_name, error)) {
        return false;
    }
    w.op = COPY_READ;
    w.memory = x->to;
    return bench_copy_compare(x, bench_copy_row_add(x, part, kind, bytes, from_id, from_name), &w, error) &&
           bench_copy_verify(x, x->to, bytes, (uint32_t)bytes, from_name, error);
}

bool bench_copy_run_pageable(copy_experiment *x, char *error)
{
    memory m;
    bool ok = bench_open_memory(x, x->most, false, &m, error);
    for (size_t bytes = x->large; ok && bytes <= x->most; bytes = bytes < x->most ? x->most : x->most + 1) {
        ok = bench_there_and_back(x, &m, "pageable", COPY_SPEED, bytes, "pageable_h2d", "pageable memory to the device",
                                  "pageable_d2h", "the device to pageable memory", error);
    }
    bench_close_memory(x, &m);
    return ok;
}

bool bench_copy_run_small(copy_experiment *x, char *error)
{
    static const size_t sizes[] = {4, 256, 4 * COPY_KIB, 16 * COPY_KIB, 64 * COPY_KIB};
    memory m;
    bool ok = bench_open_memory(x, 64 * COPY_KIB, false, &m, error);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && ok; i++) {
        if (!x->options->quick || i % 2 == 0) {
            ok = bench_there_and_back(x, &m, "small", COPY_TIME, sizes[i], "small_write", "hd_write + wait",
                                      "small_read", "hd_read", error);
        }
    }
    bench_close_memory(x, &m);
    return ok;
}

/* Copies pinned memory to the device, and from there to other pinned memory. */
static bool bench_run_pinned(copy_experiment *x, memory *m, size_t bytes, char *error)
{
    void *pinned = NULL;
    if (!cli_report_check(hd_map(m->pinned[0], HD_WRITE, &pinned), "hd_map", error)) {
        return false;
    }
    bench_copy_pattern(pinned, bytes, 5);
    hd_unmap(m->pinned[0]);
    bench_copy_pattern(m->plain_pinned[0], bytes, 5);
    copy_work in = bench_make_work(x, COPY_IN, bytes), out = bench_make_work(x, COPY_OUT, bytes);
    in.to = out.from = m->device[0];
    in.from = m->pinned[0];
    out.to = m->pinned[1];
    in.dst = out.src = m->plain[0];
    in.src = (uintptr_t)m->plain_pinned[0];
    out.dst = (uintptr_t)m->plain_pinned[1];
    if (!bench_copy_compare(
            x, bench_copy_row_add(x, "pinned", COPY_SPEED, bytes, "pinned_h2d", "pinned memory to the device"), &in,
            error) ||
        !bench_copy_compare(
            x, bench_copy_row_add(x, "pinned", COPY_SPEED, bytes, "pinned_d2h", "the device to pinned memory"), &out,
            error)) {
        return false;
    }
    return cli_report_check(hd_map(m->pinned[1], HD_READ, &pinned), "hd_map", error) &&
           bench_copy_verify(x, pinned, bytes, 5, "pinned memory of Heddle", error) &&
           bench_copy_verify(x, m->plain_pinned[1], bytes, 5, "pinned memory of the driver", error);
}

bool bench_copy_run_pinned(copy_experiment *x, char *error)
{
    memory m;
    bool ok = bench_open_memory(x, x->large, true, &m, error) && bench_run_pinned(x, &m, x->large, error);
    bench_close_memory(x, &m);
    return ok;
}

bool bench_copy_run_device(copy_experiment *x, char *error)
{
    memory m;
    size_t bytes = x->large;
    bool ok = bench_open_memory(x, bytes, false, &m, error);
    copy_work w = bench_make_work(x, COPY_ON, bytes);
    w.to = m.device[1], w.from = m.device[0];
    w.dst = m.plain[1], w.src = m.plain[0];
    bench_copy_pattern(x->from, bytes, 6);
    ok = ok && cli_report_check(hd_write(w.from, 0, x->from, bytes), "hd_write", error) &&
         DRIVER_TRY(x->driver, error, cuMemcpyHtoD, (w.src, x->from, bytes)) &&
         bench_copy_compare(x, bench_copy_row_add(x, "device", COPY_SPEED, bytes, "device_copy", "copy on the device"),
                            &w, error) &&
         bench_copy_verify_buffer(x, w.to, bytes, 6, "a copy on the device by Heddle", error) &&
         bench_copy_verify_plain(x, w.dst, bytes, 6, "a copy on the device by the driver", error);
    bench_close_memory(x, &m);
    return ok;
}

/* ---- rows ---- */

/* Gathers every second row of a block. */
static bool bench_gather(copy_experiment *x, memory *m, copy_op op, size_t row, const char *id, const char *name,
                         char *error)
{
    copy_work w = bench_make_work(x, op, x->large / 2);
    char full_id[48], full_name[80];
    w.row = row;
    w.pitch = 2 * row;
    w.to = m->device[1];
    w.dst = m->plain[1];
    w.from = op == COPY_IN ? m->pinned[0] : m->device[0];
    w.src = op == COPY_IN ? (uintptr_t)m->plain_pinned[0] : m->plain[0];
    snprintf(full_id, sizeof(full_id), "%s_rows_%zu", id, row);
    snprintf(full_name, sizeof(full_name), "%s, rows of %zu bytes", name, row);
    memset(x->to, 0, w.bytes);
    return bench_copy_compare(x, bench_copy_row_add(x, "box", COPY_SPEED, w.bytes, full_id, full_name), &w, error) &&
           cli_report_check(hd_read(w.to, 0, x->to, w.bytes), "hd_read", error) &&
           bench_copy_verify_rows(x, x->to, &w, 7, "rows gathered by Heddle", error) &&
           DRIVER_TRY(x->driver, error, cuMemcpyDtoH, (x->to, w.dst, w.bytes)) &&
           bench_copy_verify_rows(x, x->to, &w, 7, "rows gathered by the driver", error);
}

static bool bench_run_box(copy_experiment *x, memory *m, char *error)
{
    static const size_t rows[] = {256, 4 * COPY_KIB, 64 * COPY_KIB};
    void *pinned = NULL;
    size_t bytes = x->large;
    if (!cli_report_check(hd_map(m->pinned[0], HD_WRITE, &pinned), "hd_map", error)) {
        return false;
    }
    bench_copy_pattern(pinned, bytes, 7);
    hd_unmap(m->pinned[0]);
    bench_copy_pattern(m->plain_pinned[0], bytes, 7);
    bool ok = cli_report_check(hd_copy(m->device[0], 0, m->pinned[0], 0, bytes, NULL), "hd_copy", error) &&
              DRIVER_TRY(x->driver, error, cuMemcpyHtoD, (m->plain[0], m->plain_pinned[0], bytes));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) && ok; i++) {
        ok = bench_gather(x, m, COPY_ON, rows[i], "device", "gather on the device", error);
    }
    return ok && bench_gather(x, m, COPY_IN, 4 * COPY_KIB, "pinned", "gather from pinned memory", error);
}

bool bench_copy_run_box(copy_experiment *x, char *error)
{
    memory m;
    bool ok = bench_open_memory(x, x->large, true, &m, error) && bench_run_box(x, &m, error);
    bench_close_memory(x, &m);
    return ok;
}
