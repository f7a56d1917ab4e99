/* copy_pairs.c - the parts with two devices: copies through the host without peer access, in one
 * direction and in both, and copies with peer access.
 *
 * Threads: the conductor. Locks: none.
 * Always: the driver's contexts have peer access to each other only while bench_copy_run_peer
 * measures. A separate runtime of Heddle runs without it (peers=off).
 */
#include <string.h>
#include "bench/copy_parts.h"

/* Two blocks on each device, for either side: one to send from, and one to receive into. */
typedef struct memory {
    hd_buffer *out[COPY_DEVICES], *in[COPY_DEVICES];
    hdcu_deviceptr plain_out[COPY_DEVICES], plain_in[COPY_DEVICES];
} memory;

static bool bench_open_memory(copy_experiment *x, hd_runtime *runtime, size_t bytes, memory *m, char *error)
{
    const hdi_driver *d = x->driver;
    for (int i = 0; i < COPY_DEVICES; i++) {
        hd_lane *lane = NULL;
        bench_copy_pattern(x->from, bytes, (uint32_t)(10 + i));
        if (!cli_report_check(hd_lane_get_default(runtime, i, &lane), "hd_lane_get_default", error) ||
            !cli_report_check(hd_alloc(lane, bytes, &m->out[i]), "hd_alloc", error) ||
            !cli_report_check(hd_alloc(lane, bytes, &m->in[i]), "hd_alloc", error) ||
            !DRIVER_TRY(d, error, cuCtxSetCurrent, (x->plain[i].context)) ||
            !DRIVER_TRY(d, error, cuMemAlloc, (&m->plain_out[i], bytes)) ||
            !DRIVER_TRY(d, error, cuMemAlloc, (&m->plain_in[i], bytes)) ||
            !cli_report_check(hd_write(m->out[i], 0, x->from, bytes), "hd_write", error) ||
            !DRIVER_TRY(d, error, cuMemcpyHtoD, (m->plain_out[i], x->from, bytes)) ||
            !DRIVER_TRY(d, error, cuCtxSynchronize, ())) {
            return false;
        }
    }
    return true;
}

static void bench_close_memory(copy_experiment *x, memory *m)
{
    for (int i = 0; i < COPY_DEVICES; i++) {
        hd_free(m->out[i]);
        hd_free(m->in[i]);
        x->driver->cuCtxSetCurrent(x->plain[i].context);
        if (m->plain_out[i]) {
            x->driver->cuMemFree(m->plain_out[i]);
        }
        if (m->plain_in[i]) {
            x->driver->cuMemFree(m->plain_in[i]);
        }
    }
}

static copy_work bench_make_work(copy_experiment *x, const memory *m, int from, size_t bytes)
{
    int to = 1 - from;
    return (copy_work){.x = x,
                       .op = COPY_PEER,
                       .bytes = bytes,
                       .to = m->in[to],
                       .from = m->out[from],
                       .dst = m->plain_in[to],
                       .src = m->plain_out[from],
                       .at = &x->plain[from],
                       .dst_at = &x->plain[to],
                       .src_at = &x->plain[from]};
}

/* Checks the bytes that arrived on device `to`, on both sides. */
static bool bench_verify(copy_experiment *x, const memory *m, int to, size_t bytes, const char *what, char *error)
{
    uint32_t seed = (uint32_t)(10 + 1 - to);
    char by_heddle[96], by_driver[96];
    snprintf(by_heddle, sizeof(by_heddle), "%s by Heddle", what);
    snprintf(by_driver, sizeof(by_driver), "%s by the driver", what);
    return bench_copy_verify_buffer(x, m->in[to], bytes, seed, by_heddle, error) &&
           DRIVER_TRY(x->driver, error, cuCtxSetCurrent, (x->plain[to].context)) &&
           bench_copy_verify_plain(x, m->plain_in[to], bytes, seed, by_driver, error);
}

/* ---- without peer access ---- */

static bool bench_run_staged(copy_experiment *x, hd_runtime *runtime, char *error)
{
    memory m = {0};
    size_t bytes = x->large;
    bool ok = bench_open_memory(x, runtime, bytes, &m, error);
    copy_work w[2] = {bench_make_work(x, &m, 0, bytes), bench_make_work(x, &m, 1, bytes)};
    ok = ok &&
         bench_copy_compare(
             x, bench_copy_row_add(x, "staged", COPY_SPEED, bytes, "staged", "device to device without peer access"),
             &w[0], error) &&
         bench_copy_compare_both(
             x,
             bench_copy_row_add(x, "staged", COPY_SPEED, 2 * bytes, "staged_both", "the same, both directions at once"),
             w, error) &&
         bench_verify(x, &m, 1, bytes, "a copy without peer access", error) &&
         bench_verify(x, &m, 0, bytes, "a copy without peer access", error);
    bench_close_memory(x, &m);
    return ok;
}

bool bench_copy_run_staged(copy_experiment *x, char *error)
{
    hd_runtime *runtime = NULL;
    hd_options options = {.size = sizeof(options), .settings = "peers=off"};
    bool ok = cli_report_check(hd_open(&options, &runtime), "hd_open", error) && bench_run_staged(x, runtime, error);
    hd_close(runtime);
    return ok;
}

/* ---- with peer access ---- */

/* Enables both directions. False without a message in `error`: the driver refuses. */
static bool bench_enable_peers(copy_experiment *x, char *error)
{
    error[0] = 0;
    for (int i = 0; i < COPY_DEVICES; i++) {
        int can = 0;
        if (!DRIVER_TRY(x->driver, error, cuDeviceCanAccessPeer,
                        (&can, x->plain[i].ordinal, x->plain[1 - i].ordinal)) ||
            !can || !DRIVER_TRY(x->driver, error, cuCtxSetCurrent, (x->plain[i].context))) {
            return false;
        }
        hdcu_result r = x->driver->cuCtxEnablePeerAccess(x->plain[1 - i].context, 0);
        if (r != HDCU_ERROR_PEER_ACCESS_ALREADY_ENABLED && !cli_plain_try(r, "cuCtxEnablePeerAccess", error)) {
            return false;
        }
    }
    return true;
}

static void bench_disable_peers(copy_experiment *x)
{
    for (int i = 0; i < COPY_DEVICES; i++) {
        x->driver->cuCtxSetCurrent(x->plain[i].context);
        x->driver->cuCtxDisablePeerAccess(x->plain[1 - i].context);
    }
}

/* Waits for the verdicts, because copies go through pinned memory while the pair is under test. */
static bool bench_await_verdicts(copy_experiment *x, char *error)
{
    hd_peer_info info = {.size = sizeof(info)};
    return cli_report_check(hd_peer_check(x->runtime, 0, 1, &info), "hd_peer_check", error) &&
           cli_report_check(hd_peer_check(x->runtime, 1, 0, &info), "hd_peer_check", error);
}

static bool bench_run_peer(copy_experiment *x, char *error)
{
    memory m = {0};
    size_t bytes = x->large, page = 4 * COPY_KIB;
    bool ok = bench_await_verdicts(x, error) && bench_open_memory(x, x->runtime, bytes, &m, error);
    copy_work w[2] = {bench_make_work(x, &m, 0, bytes), bench_make_work(x, &m, 1, bytes)},
              small = bench_make_work(x, &m, 0, page);
    ok = ok &&
         bench_copy_compare(
             x, bench_copy_row_add(x, "peer", COPY_SPEED, bytes, "peer", "device to device with peer access"), &w[0],
             error) &&
         bench_copy_compare_both(
             x, bench_copy_row_add(x, "peer", COPY_SPEED, 2 * bytes, "peer_both", "the same, both directions at once"),
             w, error) &&
         bench_verify(x, &m, 1, bytes, "a copy with peer access", error) &&
         bench_verify(x, &m, 0, bytes, "a copy with peer access", error) &&
         bench_copy_compare(x, bench_copy_row_add(x, "peer", COPY_TIME, page, "peer_small", "device to device + wait"),
                            &small, error);
    bench_close_memory(x, &m);
    return ok;
}

bool bench_copy_run_peer(copy_experiment *x, char *error)
{
    if (!bench_enable_peers(x, error)) {
        if (error[0]) {
            return false;
        }
        copy_row *row =
            bench_copy_row_add(x, "peer", COPY_SPEED, x->large, "peer", "device to device with peer access");
        snprintf(row->note, sizeof(row->note), "the driver gives these devices no access to each other");
        return true;
    }
    bool ok = bench_run_peer(x, error);
    bench_disable_peers(x);
    return ok;
}
