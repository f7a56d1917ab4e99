/* copy.c - the entry points that copy and fill memory.
 *
 * Threads: any. Locks: the host lock.
 * Blocking: as with the driver. A pageable source of up to 64 KiB is read before the call returns; other pageable copies
 * return when they are done. Calls that use hdi_host_enter_work wait
 * while their stream is full.
 * Always: pointers are looked up at the call and again when the work starts. With several rows, all bytes between the first
 * and the last one are looked up. Copies reach memory of every device, as the driver's do, which stages where there is no
 * peer access. Fills reach what their device may access.
 */
#include <string.h>
#include "simulator/host.h"

#define PAGEABLE_SNAPSHOT_BYTES ((size_t)64 << 10)

typedef enum side {
    SIDE_DEVICE, /* must be our memory */
    SIDE_ANY     /* pageable memory, too */
} side;

static hdcu_result look_up(uintptr_t address, size_t bytes, side kind, bool *known)
{
    hdi_host_reach reach = address == 0 ? HDI_HOST_UNMAPPED : hdi_host_reach_of(-1, address, bytes);
    *known = reach == HDI_HOST_REACHABLE;
    return *known || (kind == SIDE_ANY && reach == HDI_HOST_UNKNOWN) ? HDCU_SUCCESS : HDCU_ERROR_INVALID_VALUE;
}

static hdcu_result submit(hdi_host_stream *stream, hdi_host_op *op, side dst_side, side src_side, bool wait)
{
    size_t bytes = op->u.copy.bytes, rows = op->u.copy.rows;
    hdcu_result r =
        look_up(op->u.copy.dst, (rows - 1) * op->u.copy.dst_pitch + bytes, dst_side, &op->u.copy.dst_is_known);
    if (r == HDCU_SUCCESS) {
        r = look_up(op->u.copy.src, (rows - 1) * op->u.copy.src_pitch + bytes, src_side, &op->u.copy.src_is_known);
    }
    if (r != HDCU_SUCCESS) {
        return r;
    }
    if (!stream->capture && (!op->u.copy.dst_is_known || !op->u.copy.src_is_known)) {
        void *data;
        if (op->u.copy.dst_is_known && rows == 1 && bytes <= PAGEABLE_SNAPSHOT_BYTES &&
            (data = hdi_host_op_data(op, bytes))) {
            memcpy(data, (const void *)op->u.copy.src, bytes);
            op->u.copy.src_is_data = true;
        } else {
            wait = true;
        }
    }
    r = hdi_host_submit(stream, op);
    return r == HDCU_SUCCESS && wait ? hdi_host_stream_drain(stream) : r;
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
    op.u.copy.rows = 1;
    return submit(stream, &op, dst_side, src_side, wait);
}

/* One side of a copy of rows: the address of the first row, and which memory is allowed there. False: the type is not
 * supported. */
static bool side_of(int type, const void *host, hdcu_deviceptr device, size_t x, size_t y, size_t pitch, uintptr_t *at,
                    side *kind)
{
    *at = (type == HDCU_MEMORYTYPE_HOST ? (uintptr_t)host : device) + y * pitch + x;
    *kind = type == HDCU_MEMORYTYPE_DEVICE ? SIDE_DEVICE : SIDE_ANY;
    return type == HDCU_MEMORYTYPE_HOST || type == HDCU_MEMORYTYPE_DEVICE || type == HDCU_MEMORYTYPE_UNIFIED;
}

static bool pitch_fits(size_t pitch, size_t x, size_t row_bytes)
{
    return pitch <= HDI_HOST_PITCH_MAX && x <= pitch && row_bytes <= pitch - x;
}

static hdcu_result submit_rows(hdi_host_stream *stream, const hdcu_memcpy2d *c)
{
    if (c->row_bytes == 0 || c->rows == 0) {
        return HDCU_SUCCESS;
    }
    side dst_side, src_side;
    hdi_host_op op = {.kind = HDI_HOST_OP_COPY};
    if (!side_of(c->dst_type, c->dst_host, c->dst_device, c->dst_x_bytes, c->dst_y, c->dst_pitch, &op.u.copy.dst,
                 &dst_side) ||
        !side_of(c->src_type, c->src_host, c->src_device, c->src_x_bytes, c->src_y, c->src_pitch, &op.u.copy.src,
                 &src_side) ||
        !pitch_fits(c->dst_pitch, c->dst_x_bytes, c->row_bytes) ||
        !pitch_fits(c->src_pitch, c->src_x_bytes, c->row_bytes) || c->rows > (size_t)PTRDIFF_MAX / HDI_HOST_PITCH_MAX) {
        return HDCU_ERROR_INVALID_VALUE;
    }
    op.u.copy.bytes = c->row_bytes;
    op.u.copy.rows = c->rows;
    op.u.copy.dst_pitch = c->dst_pitch;
    op.u.copy.src_pitch = c->src_pitch;
    return submit(stream, &op, dst_side, src_side, false);
}

static hdcu_result copy_async(hdcu_deviceptr dst, side dst_side, hdcu_deviceptr src, side src_side, size_t bytes,
                              hdcu_stream stream_handle)
{
    hdi_host_stream *stream;
    hdcu_result r = hdi_host_enter_work(stream_handle, &stream);
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

hdcu_result hdi_host_cuMemcpy2DAsync(const hdcu_memcpy2d *rows, hdcu_stream stream_handle)
{
    hdi_host_stream *stream;
    hdcu_result r = hdi_host_enter_work(stream_handle, &stream);
    if (r == HDCU_SUCCESS) {
        r = rows ? submit_rows(stream, rows) : HDCU_ERROR_INVALID_VALUE;
    }
    return hdi_host_leave(r);
}

static hdcu_result fill_async(hdcu_deviceptr dst, uint32_t value, unsigned width, size_t count,
                              hdcu_stream stream_handle)
{
    hdi_host_stream *stream;
    hdcu_result r = hdi_host_enter_work(stream_handle, &stream);
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

hdcu_result hdi_host_cuStreamWriteValue32(hdcu_stream stream, hdcu_deviceptr address, unsigned value, unsigned flags)
{
    return flags == HDCU_STREAM_WRITE_VALUE_DEFAULT ? fill_async(address, value, 4, 1, stream)
                                                    : HDCU_ERROR_INVALID_VALUE;
}

hdcu_result hdi_host_cuMemsetD32Async(hdcu_deviceptr dst, unsigned value, size_t count, hdcu_stream stream)
{
    return fill_async(dst, value, 4, count, stream);
}
