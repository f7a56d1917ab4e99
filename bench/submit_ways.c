/* submit_ways.c - a thread's way to a device: a few lanes of Heddle, or streams of the driver, with a count in the memory of each.
 *
 * Threads: a way belongs to one. Locks: none.
 * Always: both sides launch the same kernel with the same grid and arguments. It adds one to a count, so that a launch that was lost
 * or came twice shows.
 */
#include <string.h>
#include "bench/submit_parts.h"

enum { BYTES = 64 };

static const hd_dims one_block = {1, 1, 1}, one_warp = {32, 1, 1};
static const uint32_t one_bits = 0x3f800000; /* of 1.0f */

/* Memory of one word with this value in it. */
static bool make_buffer(hd_lane *lane, uint32_t value, bool written, hd_buffer **out, char *error)
{
    uint32_t words[BYTES / 4];
    for (int i = 0; i < BYTES / 4; i++) {
        words[i] = value;
    }
    return report_check(hd_alloc(lane, BYTES, out), "hd_alloc", error) &&
           (written ? report_check(hd_write(*out, 0, words, BYTES), "hd_write", error)
                    : report_check(hd_fill(*out, 0, value, BYTES, NULL), "hd_fill", error));
}

static int device_of(const submit_way *w, int lane)
{
    return w->spread ? lane : w->device;
}

static bool open_heddle(submit_way *w, int i, char *error)
{
    if (!report_check(hd_lane_create(w->x->runtime, device_of(w, i), &w->lane[i]), "hd_lane_create", error) ||
        !make_buffer(w->lane[i], one_bits, false, &w->one[i], error) ||
        !make_buffer(w->lane[i], 0, w->written, &w->count[i], error)) {
        return false;
    }
    w->arguments[i][0] = hd_inout(w->count[i]);
    w->arguments[i][1] = hd_in(w->one[i]);
    w->arguments[i][2] = hd_f32(w->a);
    w->arguments[i][3] = hd_u64(w->n);
    return true;
}

static bool make_memory(submit_way *w, uint32_t value, bool written, hdcu_stream stream, hdcu_deviceptr *out,
                        char *error)
{
    const plain_driver *d = &w->x->driver;
    uint32_t words[BYTES / 4];
    for (int i = 0; i < BYTES / 4; i++) {
        words[i] = value;
    }
    return PLAIN_TRY(d, error, cuMemAlloc, (out, BYTES)) &&
           (written ? PLAIN_TRY(d, error, cuMemcpyHtoD, (*out, words, BYTES))
                    : PLAIN_TRY(d, error, cuMemsetD32Async, (*out, value, BYTES / 4, stream)) &&
                          PLAIN_TRY(d, error, cuStreamSynchronize, (stream)));
}

/* The context of a lane's device, where another one is current. */
static bool enter(submit_way *w, int lane, char *error)
{
    int device = device_of(w, lane);
    if (device == w->current) {
        return true;
    }
    w->current = device;
    return PLAIN_TRY(&w->x->driver, error, cuCtxSetCurrent, (w->x->context[device]));
}

static bool open_driver(submit_way *w, int i, char *error)
{
    const plain_driver *d = &w->x->driver;
    if (!enter(w, i, error) || !PLAIN_TRY(d, error, cuStreamCreate, (&w->stream[i], HDCU_STREAM_NON_BLOCKING)) ||
        !make_memory(w, one_bits, false, w->stream[i], &w->memory_of_one[i], error) ||
        !make_memory(w, 0, w->written, w->stream[i], &w->memory[i], error)) {
        return false;
    }
    w->parameters[i][0] = &w->memory[i];
    w->parameters[i][1] = &w->memory_of_one[i];
    w->parameters[i][2] = &w->a;
    w->parameters[i][3] = &w->n;
    return true;
}

bool submit_way_open(submit_way *w, char *error)
{
    bool ok = true;
    w->a = 1;
    w->n = 1;
    w->current = -1;
    for (int i = 0; ok && i < w->lanes; i++) {
        ok = w->api == SUBMIT_HEDDLE ? open_heddle(w, i, error) : open_driver(w, i, error);
    }
    if (!ok) {
        submit_way_close(w);
    }
    return ok;
}

static void close_driver(submit_way *w, int i)
{
    char ignored[PLAIN_ERROR];
    const plain_driver *d = &w->x->driver;
    if (!w->stream[i] || !enter(w, i, ignored)) {
        return;
    }
    d->cuStreamDestroy(w->stream[i]);
    if (w->memory[i]) {
        d->cuMemFree(w->memory[i]);
    }
    if (w->memory_of_one[i]) {
        d->cuMemFree(w->memory_of_one[i]);
    }
}

void submit_way_close(submit_way *w)
{
    for (int i = 0; i < w->lanes; i++) {
        hd_free(w->count[i]);
        hd_free(w->one[i]);
        if (w->lane[i]) {
            hd_lane_destroy(w->lane[i]);
        }
        close_driver(w, i);
    }
}

bool submit_way_launch(submit_way *w, int lane, char *error)
{
    w->launched[lane]++;
    if (!w->same) {
        w->n = w->arguments[lane][3].value.u64 = 1 + w->launched[lane] % SUBMIT_VARIANTS;
    }
    if (w->api == SUBMIT_HEDDLE) {
        hd_status status =
            hd_launch(w->lane[lane], w->x->kernel, one_block, one_warp, 0, w->arguments[lane], 4, &w->last[lane]);
        return status == HD_OK || report_check(status, "hd_launch", error);
    }
    if (!enter(w, lane, error)) {
        return false;
    }
    hdcu_result result = w->x->driver.cuLaunchKernel(w->x->function[w->current], 1, 1, 1, 32, 1, 1, 0, w->stream[lane],
                                                     w->parameters[lane], NULL);
    return result == HDCU_SUCCESS || plain_check(&w->x->driver, result, "cuLaunchKernel", error);
}

bool submit_way_wait(submit_way *w, int lane, char *error)
{
    if (w->api == SUBMIT_HEDDLE) {
        hd_status status = hd_wait(w->last[lane], SUBMIT_TIMEOUT_NS);
        return status == HD_OK || report_check(status, "hd_wait", error);
    }
    if (!enter(w, lane, error)) {
        return false;
    }
    hdcu_result result = w->x->driver.cuStreamSynchronize(w->stream[lane]);
    return result == HDCU_SUCCESS || plain_check(&w->x->driver, result, "cuStreamSynchronize", error);
}

/* What the kernels of a lane have counted. */
static bool read_count(submit_way *w, int lane, float *out, char *error)
{
    if (w->api == SUBMIT_HEDDLE) {
        return report_check(hd_read(w->count[lane], 0, out, sizeof(*out)), "hd_read", error);
    }
    return enter(w, lane, error) && PLAIN_TRY(&w->x->driver, error, cuMemcpyDtoH, (out, w->memory[lane], sizeof(*out)));
}

bool submit_way_check(submit_way *w, char *error)
{
    for (int i = 0; i < w->lanes; i++) {
        float count = 0;
        if (!read_count(w, i, &count, error)) {
            return false;
        }
        /* exact as far as a float counts, which no sample comes near */
        if (count != (float)w->launched[i]) {
            snprintf(error, PLAIN_ERROR, "%s, device %d: %llu launches, and the kernels counted %.0f",
                     w->api == SUBMIT_HEDDLE ? "Heddle" : "driver", device_of(w, i), (unsigned long long)w->launched[i],
                     (double)count);
            return false;
        }
    }
    return true;
}
