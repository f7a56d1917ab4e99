/* lanes_heddle.c - the launch loop through Heddle, and what disturbs it.
 *
 * Threads: the loop on the thread that drives one device or all of them, after lanes_heddle_warm there. The disturber
 * has a thread of its own. Locks: none.
 * Always: at most two batches a device are in flight, and all are finished when the loop returns.
 */
#include "bench/lanes_parts.h"

#include <string.h>

static const hd_dims matmul_grid = {(LANES_N + 31) / 32, (LANES_M + 31) / 32, 1}, matmul_block = {32, 32, 1};

bool lanes_heddle_open(hd_runtime *runtime, int device, const lanes_problem *problem, lanes_heddle *out, char *error)
{
    size_t a_bytes = sizeof(float) * LANES_M * LANES_K, b_bytes = sizeof(float) * LANES_K * LANES_N;
    hd_module *module;
    memset(out, 0, sizeof(*out));
    out->runtime = runtime;
    out->device = device;
    hd_lane *lane = NULL;
    if (!report_check(hd_lane_get_default(runtime, device, &lane), "hd_lane_get_default", error) ||
        !report_check(hd_module_get_builtin(runtime, &module), "hd_module_get_builtin", error) ||
        !report_check(hd_kernel_get(module, "hd_matmul_f32", &out->matmul), "hd_kernel_get", error) ||
        !report_check(hd_kernel_get(module, "hd_fill_u32", &out->fill), "hd_kernel_get", error) ||
        !report_check(hd_alloc(lane, a_bytes, &out->a), "hd_alloc", error) ||
        !report_check(hd_alloc(lane, b_bytes, &out->b), "hd_alloc", error) ||
        !report_check(hd_alloc(lane, sizeof(float) * LANES_M * LANES_N, &out->c), "hd_alloc", error) ||
        !report_check(hd_alloc(lane, 256, &out->word), "hd_alloc", error) ||
        !report_check(hd_write(out->a, 0, problem->a, a_bytes), "hd_write", error) ||
        !report_check(hd_write(out->b, 0, problem->b, b_bytes), "hd_write", error)) {
        lanes_heddle_close(out);
        return false;
    }
    out->matmul_args[0] = hd_out(out->c);
    out->matmul_args[1] = hd_in(out->a);
    out->matmul_args[2] = hd_in(out->b);
    out->matmul_args[3] = hd_u32(LANES_M);
    out->matmul_args[4] = hd_u32(LANES_N);
    out->matmul_args[5] = hd_u32(LANES_K);
    out->fill_args[0] = hd_out(out->word);
    out->fill_args[1] = hd_u64(1);
    out->fill_args[2] = hd_u32(1);
    return true;
}

void lanes_heddle_close(lanes_heddle *h)
{
    hd_free(h->a);
    hd_free(h->b);
    hd_free(h->c);
    hd_free(h->word);
    memset(h, 0, sizeof(*h));
}

bool lanes_heddle_poison(lanes_heddle *h, char *error)
{
    hd_ticket ticket;
    return report_check(hd_fill(h->c, 0, 0xffffffffu, hd_buffer_size(h->c), &ticket), "hd_fill", error) &&
           report_check(hd_wait(ticket, LANES_TIMEOUT_NS), "hd_wait", error);
}

bool lanes_heddle_result(lanes_heddle *h, float *c, char *error)
{
    return report_check(hd_read(h->c, 0, c, hd_buffer_size(h->c)), "hd_read", error);
}

static bool find_lanes(lanes_heddle *devices, int count, hd_lane **lanes, char *error)
{
    for (int i = 0; i < count; i++) {
        if (!report_check(hd_lane_get_default(devices[i].runtime, devices[i].device, &lanes[i]), "hd_lane_get_default",
                          error)) {
            return false;
        }
    }
    return true;
}

static inline hd_status launch_matmul(hd_lane *lane, lanes_heddle *h, hd_ticket *out)
{
    return hd_launch(lane, h->matmul, matmul_grid, matmul_block, 0, h->matmul_args, 6, out);
}

bool lanes_heddle_warm(lanes_heddle *devices, int count, int launches, char *error)
{
    hd_lane *lanes[LANES_DEVICES_MAX] = {NULL};
    if (!find_lanes(devices, count, lanes, error)) {
        return false;
    }
    for (int i = 0; i < launches * count; i++) {
        if (!report_check(launch_matmul(lanes[i % count], &devices[i % count], NULL), "hd_launch", error)) {
            return false;
        }
    }
    for (int i = 0; i < count; i++) {
        if (!report_check(hd_lane_wait(lanes[i], LANES_TIMEOUT_NS), "hd_lane_wait", error)) {
            return false;
        }
    }
    return true;
}

static bool wait_all(const hd_ticket *tickets, int count, char *error)
{
    for (int i = 0; i < count; i++) {
        if (!report_check(hd_wait(tickets[i], LANES_TIMEOUT_NS), "hd_wait", error)) {
            return false;
        }
    }
    return true;
}

bool lanes_heddle_loop(lanes_heddle *devices, int count, const lanes_when *when, lanes_result *out, char *error)
{
    hd_lane *lanes[LANES_DEVICES_MAX] = {NULL};
    hd_ticket tickets[2][LANES_DEVICES_MAX] = {{{NULL, 0}}};
    if (!find_lanes(devices, count, lanes, error)) {
        return false;
    }
    lanes_sleep_until(when->begin);
    uint64_t begin = stats_monotonic(), batches = 0;
    do {
        for (int i = 0; i < when->batch; i++) {
            for (int j = 0; j < count; j++) {
                uint64_t tick = stats_tick_begin();
                hd_status status = launch_matmul(lanes[j], &devices[j], &tickets[batches & 1][j]);
                stats_record(&out->submit, stats_tick_end() - tick);
                if (status != HD_OK) {
                    return report_check(status, "hd_launch", error);
                }
            }
        }
        batches++;
        if (batches > 1 && !wait_all(tickets[batches & 1], count, error)) {
            return false;
        }
    } while (stats_monotonic() < when->end);
    if (!wait_all(tickets[(batches - 1) & 1], count, error)) {
        return false;
    }
    out->elapsed_ns = stats_monotonic() - begin;
    out->kernels = batches * (uint64_t)when->batch * (uint64_t)count;
    return true;
}

static bool disturb_once(lanes_heddle *h, hd_lane *lane, const plain_image *image, size_t device_bytes,
                         size_t pinned_bytes, char *error)
{
    hd_buffer *memory, *pinned;
    hd_module *module;
    if (!report_check(hd_alloc(lane, device_bytes, &memory), "hd_alloc", error)) {
        return false;
    }
    hd_free(memory);
    if (!report_check(hd_alloc_host(h->runtime, pinned_bytes, &pinned), "hd_alloc_host", error)) {
        return false;
    }
    hd_free(pinned);
    if (!report_check(hd_module_load(h->runtime, image->file, image->file_bytes, &module), "hd_module_load", error)) {
        return false;
    }
    hd_module_unload(module);
    return true;
}

bool lanes_heddle_disturb(lanes_heddle *devices, int count, const plain_image *image, const lanes_disturb_size *size,
                          _Atomic uint32_t *stop, lanes_disturbance *out, char *error)
{
    hd_lane *lanes[LANES_DEVICES_MAX] = {NULL};
    if (!find_lanes(devices, count, lanes, error)) {
        return false;
    }
    uint64_t begin = stats_monotonic();
    size_t pinned = size->pinned_low;
    for (int i = 0; !atomic_load_explicit(stop, memory_order_acquire); i = (i + 1) % count) {
        if (!disturb_once(&devices[i], lanes[i], image, size->device_bytes, pinned, error)) {
            return false;
        }
        pinned = pinned < size->pinned_high ? pinned * 2 : size->pinned_low;
        out->cycles++;
    }
    out->elapsed_ns = stats_monotonic() - begin;
    return true;
}
