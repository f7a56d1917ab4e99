/* copy.c - the entry points that copy and fill memory.
 *
 * Any thread. Takes the host lock. Always: pointers are looked up at the call and again when the work starts. Copies
 * reach memory of every device, as the driver's do, which stages where there is no peer access; fills reach what
 * their device may access. Pageable host memory behaves as with the driver: a source of up to 64 KiB is read before
 * the call returns, other pageable copies return when they are done.
 */
#include <string.h>
#include "driver/host/host.h"

#define PAGEABLE_SNAPSHOT_BYTES ((size_t)64 << 10)

typedef enum side {
    SIDE_DEVICE, /* must be memory of ours */
    SIDE_ANY     /* pageable memory too */
} side;

static hdcu_result look_up(uintptr_t address, size_t bytes, side kind, bool *known)
{
    hdi_host_reach reach = address == 0 ? HDI_HOST_UNMAPPED : hdi_host_reach_of(-1, address, bytes);
    *known = reach == HDI_HOST_REACHABLE;
    return *known || (kind == SIDE_ANY && reach == HDI_HOST_UNKNOWN) ? HDCU_SUCCESS : HDCU_ERROR_INVALID_VALUE;
}

static hdcu_result submit_copy(hdi_host_stream *stream, uintptr_t dst, side dst_side, uintptr_t src, side src_side,
                               size_t bytes, bool wait)
{
    if (bytes == 0) {
        return HDCU_SUCCESS;
    }
    hdi_host_op op = {.kind = HDI_HOST_OP_COPY};
    op.u.copy.dst = dst;
    op.u.copy.src = src;
    op.u.copy.bytes = bytes;
    hdcu_result r = look_up(dst, bytes, dst_side, &op.u.copy.dst_is_known);
    if (r == HDCU_SUCCESS) {
        r = look_up(src, bytes, src_side, &op.u.copy.src_is_known);
    }
    if (r != HDCU_SUCCESS) {
        return r;
    }
    if (!stream->capture && (!op.u.copy.dst_is_known || !op.u.copy.src_is_known)) {
        void *data;
        if (op.u.copy.dst_is_known && bytes <= PAGEABLE_SNAPSHOT_BYTES && (data = hdi_host_op_data(&op, bytes))) {
            memcpy(data, (const void *)src, bytes);
            op.u.copy.src_is_data = true;
        } else {
            wait = true;
        }
    }
    r = hdi_host_submit(stream, &op);
    return r == HDCU_SUCCESS && wait ? hdi_host_stream_drain(stream) : r;
}

static hdcu_result copy_async(hdcu_deviceptr dst, side dst_side, hdcu_deviceptr src, side src_side, size_t bytes,
                              hdcu_stream stream_handle)
{
    hdi_host_stream *stream;
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        r = hdi_host_stream_find(stream_handle, &stream);
    }
    if (r == HDCU_SUCCESS) {
        r = submit_copy(stream, dst, dst_side, src, src_side, bytes, false);
    }
    return hdi_host_leave(r);
}

static hdcu_result copy_now(hdcu_deviceptr dst, side dst_side, hdcu_deviceptr src, side src_side, size_t bytes)
{
    hdi_host_context *context;
    hdcu_result r = hdi_host_enter_context(&context);
    if (r == HDCU_SUCCESS) {
        r = hdi_host_capture_forbids_null(context);
    }
    if (r == HDCU_SUCCESS) {
        r = hdi_host_capture_forbids();
    }
    if (r == HDCU_SUCCESS) {
        r = submit_copy(context->null_stream, dst, dst_side, src, src_side, bytes, true);
    }
    return hdi_host_leave(r);
}

hdcu_result hdi_host_cuMemcpyHtoD(hdcu_deviceptr dst, const void *src, size_t bytes)
{
    return copy_now(dst, SIDE_DEVICE, (uintptr_t)src, SIDE_ANY, bytes);
}

hdcu_result hdi_host_cuMemcpyDtoH(void *dst, hdcu_deviceptr src, size_t bytes)
{
    return copy_now((uintptr_t)dst, SIDE_ANY, src, SIDE_DEVICE, bytes);
}

hdcu_result hdi_host_cuMemcpyAsync(hdcu_deviceptr dst, hdcu_deviceptr src, size_t bytes, hdcu_stream stream)
{
    return copy_async(dst, SIDE_ANY, src, SIDE_ANY, bytes, stream);
}

hdcu_result hdi_host_cuMemcpyHtoDAsync(hdcu_deviceptr dst, const void *src, size_t bytes, hdcu_stream stream)
{
    return copy_async(dst, SIDE_DEVICE, (uintptr_t)src, SIDE_ANY, bytes, stream);
}

hdcu_result hdi_host_cuMemcpyDtoHAsync(void *dst, hdcu_deviceptr src, size_t bytes, hdcu_stream stream)
{
    return copy_async((uintptr_t)dst, SIDE_ANY, src, SIDE_DEVICE, bytes, stream);
}

hdcu_result hdi_host_cuMemcpyDtoDAsync(hdcu_deviceptr dst, hdcu_deviceptr src, size_t bytes, hdcu_stream stream)
{
    return copy_async(dst, SIDE_DEVICE, src, SIDE_DEVICE, bytes, stream);
}

hdcu_result hdi_host_cuMemcpyPeerAsync(hdcu_deviceptr dst, hdcu_context dst_context, hdcu_deviceptr src,
                                       hdcu_context src_context, size_t bytes, hdcu_stream stream_handle)
{
    hdi_host_stream *stream;
    hdi_host_context *context;
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        r = hdi_host_context_find(dst_context, &context);
    }
    if (r == HDCU_SUCCESS) {
        r = hdi_host_context_find(src_context, &context);
    }
    if (r == HDCU_SUCCESS) {
        r = hdi_host_stream_find(stream_handle, &stream);
    }
    if (r == HDCU_SUCCESS) {
        r = submit_copy(stream, dst, SIDE_DEVICE, src, SIDE_DEVICE, bytes, false);
    }
    return hdi_host_leave(r);
}

static hdcu_result fill_async(hdcu_deviceptr dst, uint32_t value, unsigned width, size_t count,
                              hdcu_stream stream_handle)
{
    hdi_host_stream *stream;
    hdcu_result r = hdi_host_enter();
    if (r == HDCU_SUCCESS) {
        r = hdi_host_stream_find(stream_handle, &stream);
    }
    if (r != HDCU_SUCCESS || count == 0) {
        return hdi_host_leave(r);
    }
    if (dst == 0 || dst % width != 0 || count > SIZE_MAX / width ||
        hdi_host_reach_of(stream->context->device, dst, count * width) != HDI_HOST_REACHABLE) {
        return hdi_host_leave(HDCU_ERROR_INVALID_VALUE);
    }
    hdi_host_op op = {.kind = HDI_HOST_OP_FILL};
    op.u.fill.dst = dst;
    op.u.fill.value = value;
    op.u.fill.width = width;
    op.u.fill.bytes = count * width;
    return hdi_host_leave(hdi_host_submit(stream, &op));
}

hdcu_result hdi_host_cuMemsetD8Async(hdcu_deviceptr dst, unsigned char value, size_t count, hdcu_stream stream)
{
    return fill_async(dst, value, 1, count, stream);
}

hdcu_result hdi_host_cuMemsetD32Async(hdcu_deviceptr dst, unsigned value, size_t count, hdcu_stream stream)
{
    return fill_async(dst, value, 4, count, stream);
}
