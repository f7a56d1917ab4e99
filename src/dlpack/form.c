/* form.c - element types, shapes and strides of DLPack. See form.h for threads, locks and
 * guarantees. */
#include <inttypes.h>
#include <string.h>
#include "base/error.h"
#include "base/sized.h"
#include "dlpack/form.h"
#include "tensor/tensor.h"

static const hdi_dlpack_type types[] = {
    [HD_TYPE_I8] = {HDI_DLPACK_INT, 8, 1},       [HD_TYPE_U8] = {HDI_DLPACK_UINT, 8, 1},
    [HD_TYPE_I16] = {HDI_DLPACK_INT, 16, 1},     [HD_TYPE_U16] = {HDI_DLPACK_UINT, 16, 1},
    [HD_TYPE_I32] = {HDI_DLPACK_INT, 32, 1},     [HD_TYPE_U32] = {HDI_DLPACK_UINT, 32, 1},
    [HD_TYPE_I64] = {HDI_DLPACK_INT, 64, 1},     [HD_TYPE_U64] = {HDI_DLPACK_UINT, 64, 1},
    [HD_TYPE_F16] = {HDI_DLPACK_FLOAT, 16, 1},   [HD_TYPE_BF16] = {HDI_DLPACK_BFLOAT, 16, 1},
    [HD_TYPE_F32] = {HDI_DLPACK_FLOAT, 32, 1},   [HD_TYPE_F64] = {HDI_DLPACK_FLOAT, 64, 1},
    [HD_TYPE_C64] = {HDI_DLPACK_COMPLEX, 64, 1}, [HD_TYPE_C128] = {HDI_DLPACK_COMPLEX, 128, 1},
};
#define TYPES (sizeof types / sizeof types[0])

hd_status hdi_dlpack_take_options(const hd_dlpack_options *options, unsigned known, hd_dlpack_options *out)
{
    hd_dlpack_options none = {.size = sizeof none}, room;
    const hd_dlpack_options *given = options ? HDI_SIZED_IN(hd_dlpack_options, options, &room) : &none;
    if (!given) {
        return HD_ERROR_ARGUMENT;
    }
    if (given->flags & ~known) {
        return hdi_fail(HD_ERROR_ARGUMENT, "flags 0x%x; this call takes those of 0x%x alone: leave out the others",
                        given->flags, known);
    }
    if (given->type && hd_type_size(given->type) == 0) {
        return hdi_fail(HD_ERROR_ARGUMENT, "type %d is no hd_type; give the one that the elements have to be, or 0",
                        (int)given->type);
    }
    *out = *given;
    out->label = out->label ? out->label : "dlpack";
    return HD_OK;
}

hd_status hdi_dlpack_check_stream(int64_t stream, bool is_of_gpu)
{
    if (stream < HD_DLPACK_UNORDERED) {
        return hdi_fail(HD_ERROR_ARGUMENT,
                        "stream %lld; it is 1, 2, a cudaStream_t, HD_DLPACK_CPU or HD_DLPACK_UNORDERED",
                        (long long)stream);
    }
    if (stream == HD_DLPACK_CPU && is_of_gpu) {
        return hdi_fail(HD_ERROR_ARGUMENT,
                        "the tensor is in GPU memory, and stream 0 could be any default stream; give 1 for the "
                        "legacy default stream, or 2 for that of the thread");
    }
    return HD_OK;
}

hd_status hdi_dlpack_write_form(const hd_tensor *t, bool as_bool, int64_t *shape, int64_t *strides,
                                hdi_dlpack_tensor *out)
{
    int64_t size = (int64_t)hd_type_size(t->type);
    if (as_bool && t->type != HD_TYPE_U8) {
        return hdi_fail(HD_ERROR_ARGUMENT, "elements of type %s are no bool; HD_DLPACK_BOOL is for u8",
                        hd_type_name(t->type));
    }
    for (int i = 0; i < t->dims; i++) {
        if (t->shape[i] > INT64_MAX) {
            return hdi_fail(HD_ERROR_ARGUMENT, "dimension %d has %" PRIu64 " elements; DLPack has less than 2^63", i,
                            t->shape[i]);
        }
        if (t->stride[i] % size != 0 && t->shape[i] > 1) {
            return hdi_fail(HD_ERROR_ARGUMENT,
                            "the stride of dimension %d is %" PRId64 " bytes, and DLPack takes multiples of the "
                            "element's %" PRId64 "; copy the tensor (hd_tensor_copy)",
                            i, t->stride[i], size);
        }
        shape[i] = (int64_t)t->shape[i];
        strides[i] = t->stride[i] / size;
    }
    out->dims = t->dims;
    out->type = as_bool ? (hdi_dlpack_type){HDI_DLPACK_BOOL, 8, 1} : types[t->type];
    out->shape = shape;
    out->strides = strides;
    out->byte_offset = 0;
    return HD_OK;
}

static hd_status dlpack_read_type(hdi_dlpack_type from, hd_type *out)
{
    hdi_dlpack_type wanted = from;
    if (from.code == HDI_DLPACK_BOOL && from.bits == 8) {
        wanted.code = HDI_DLPACK_UINT;
    }
    for (size_t i = 1; i < TYPES; i++) {
        if (memcmp(&types[i], &wanted, sizeof wanted) == 0) {
            *out = (hd_type)i;
            return HD_OK;
        }
    }
    return hdi_fail(HD_ERROR_UNSUPPORTED,
                    "elements of DLPack's type code %u with %u bits and %u lanes; hd_type lists the supported ones",
                    from.code, from.bits, from.lanes);
}

hd_status hdi_dlpack_read_form(const hdi_dlpack_tensor *from, hd_tensor *out, uint64_t *elements)
{
    memset(out, 0, sizeof *out);
    hd_status status = dlpack_read_type(from->type, &out->type);
    if (status) {
        return status;
    }
    if (from->dims < 0 || from->dims > HD_TENSOR_DIMS) {
        return hdi_fail(from->dims < 0 ? HD_ERROR_ARGUMENT : HD_ERROR_UNSUPPORTED,
                        "%d dimensions, 0 to %d are possible", from->dims, HD_TENSOR_DIMS);
    }
    if (from->dims > 0 && !from->shape) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%d dimensions, and the shape is null", from->dims);
    }
    out->dims = from->dims;
    for (int i = 0; i < from->dims; i++) {
        if (from->shape[i] < 0) {
            return hdi_fail(HD_ERROR_ARGUMENT, "dimension %d has %" PRId64 " elements", i, from->shape[i]);
        }
        out->shape[i] = (uint64_t)from->shape[i];
        if (from->strides &&
            __builtin_mul_overflow(from->strides[i], (int64_t)hd_type_size(out->type), &out->stride[i])) {
            return hdi_fail(HD_ERROR_ARGUMENT, "the stride of dimension %d is %" PRId64 " elements, 2^63 bytes or more",
                            i, from->strides[i]);
        }
    }
    if (!from->strides && !hdi_tensor_set_row_major(out)) {
        return hdi_fail(HD_ERROR_ARGUMENT, "the tensor takes 2^63 bytes or more");
    }
    return hdi_tensor_check_form(out, "the tensor", elements);
}
