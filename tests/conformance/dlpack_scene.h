/* dlpack_scene.h - shared code of the cases of DLPack: deleters of both forms, and reads of
 * elements by address and strides.
 *
 * Threads: any.
 * Locks: none.
 */
#ifndef CONFORMANCE_DLPACK_SCENE_H
#define CONFORMANCE_DLPACK_SCENE_H

#include "support/dlpack.h"
#include "tensors.h"

/* Ends a consumer's use of the tensor. */
CONF_UNUSED static void dl_delete(DLManagedTensorVersioned *m)
{
    m->deleter(m);
}

CONF_UNUSED static DLManagedTensorVersioned *dl_export(const hd_tensor *t, int64_t stream, unsigned flags)
{
    hd_dlpack_options options = {.size = sizeof options, .flags = flags};
    DLManagedTensorVersioned *m = NULL;
    CONF_OK(hd_dlpack_export(t, stream, &options, &m));
    return m;
}

/* Returns a row-major tensor of words over a whole buffer. */
CONF_UNUSED static hd_tensor dl_words(hd_buffer *b)
{
    hd_tensor t;
    const uint64_t shape[] = {hd_buffer_size(b) / 4};
    CONF_OK(hd_tensor_make(b, 0, HD_TYPE_U32, 1, shape, &t));
    return t;
}

/* True if the CPU can use this memory of the runtime by its address. */
CONF_UNUSED static bool dl_is_for_cpu(const DLTensor *t)
{
    return t->device.device_type == kDLCPU || t->device.device_type == kDLCUDAHost;
}

/* Reads all elements in row-major order, as a consumer on the CPU does. */
CONF_UNUSED static void dl_read(const DLTensor *t, uint8_t *out)
{
    uint64_t index[HD_TENSOR_DIMS] = {0}, shape[HD_TENSOR_DIMS] = {0};
    size_t size = t->dtype.bits / 8u;
    bool any = true;
    for (int i = 0; i < t->ndim; i++) {
        shape[i] = (uint64_t)t->shape[i];
        any = any && shape[i] != 0;
    }
    while (any) {
        int64_t at = 0;
        for (int i = 0; i < t->ndim; i++) {
            at += (int64_t)index[i] * t->strides[i];
        }
        memcpy(out, (const uint8_t *)t->data + t->byte_offset + at * (int64_t)size, size);
        out += size;
        any = tensor_step(shape, t->ndim, index);
    }
}

#endif
