/* layout.c - compares src/dlpack/layout.h with DLPack's own header, at compile time, and includes
 * it before or after heddle.h.
 *
 * test_layout.sh compiles it with every installed DLPack header, as C and as C++. HEDDLE_FIRST:
 * heddle.h comes first. It checks every number, the size of every type, and the offset of every
 * member.
 */
#ifdef HEDDLE_FIRST
#include <heddle.h>
#endif
#include <dlpack/dlpack.h>
#ifndef HEDDLE_FIRST
#include <heddle.h>
#endif

/* A typical use of both headers. */
int64_t give(const hd_tensor *t);
int64_t give(const hd_tensor *t)
{
    DLManagedTensor *old = NULL;
    int64_t first = 0;
    if (hd_dlpack_export_unversioned(t, HD_DLPACK_CPU, NULL, &old) == HD_OK) {
        first = old->dl_tensor.shape[0];
        old->deleter(old);
    }
#ifdef DLPACK_MAJOR_VERSION
    DLManagedTensorVersioned *managed = NULL;
    if (hd_dlpack_export(t, HD_DLPACK_CPU, NULL, &managed) == HD_OK) {
        first = managed->dl_tensor.shape[0];
        managed->deleter(managed);
    }
#endif
    return first;
}

#ifndef __cplusplus
#include "dlpack/layout.h"
#include "../support/same.h"

SAME(HDI_DLPACK_CPU, kDLCPU);
SAME(HDI_DLPACK_CUDA, kDLCUDA);
SAME(HDI_DLPACK_CUDA_HOST, kDLCUDAHost);
SAME(HDI_DLPACK_CUDA_MANAGED, kDLCUDAManaged);
SAME(HDI_DLPACK_INT, kDLInt);
SAME(HDI_DLPACK_UINT, kDLUInt);
SAME(HDI_DLPACK_FLOAT, kDLFloat);
SAME(HDI_DLPACK_BFLOAT, kDLBfloat);
SAME(HDI_DLPACK_COMPLEX, kDLComplex);

SAME_SIZE(hdi_dlpack_type, DLDataType);
SAME_MEMBER(hdi_dlpack_type, code, DLDataType, code);
SAME_MEMBER(hdi_dlpack_type, bits, DLDataType, bits);
SAME_MEMBER(hdi_dlpack_type, lanes, DLDataType, lanes);
SAME_SIZE(hdi_dlpack_tensor, DLTensor);
SAME_MEMBER(hdi_dlpack_tensor, data, DLTensor, data);
SAME_MEMBER(hdi_dlpack_tensor, device_type, DLTensor, device.device_type);
SAME_MEMBER(hdi_dlpack_tensor, device_id, DLTensor, device.device_id);
SAME_MEMBER(hdi_dlpack_tensor, dims, DLTensor, ndim);
SAME_MEMBER(hdi_dlpack_tensor, type, DLTensor, dtype);
SAME_MEMBER(hdi_dlpack_tensor, shape, DLTensor, shape);
SAME_MEMBER(hdi_dlpack_tensor, strides, DLTensor, strides);
SAME_MEMBER(hdi_dlpack_tensor, byte_offset, DLTensor, byte_offset);
SAME_SIZE(hdi_dlpack_unversioned, DLManagedTensor);
SAME_MEMBER(hdi_dlpack_unversioned, tensor, DLManagedTensor, dl_tensor);
SAME_MEMBER(hdi_dlpack_unversioned, context, DLManagedTensor, manager_ctx);
SAME_MEMBER(hdi_dlpack_unversioned, deleter, DLManagedTensor, deleter);

#ifdef DLPACK_MAJOR_VERSION
SAME(HDI_DLPACK_MAJOR, DLPACK_MAJOR_VERSION);
SAME(HDI_DLPACK_BOOL, kDLBool);
SAME(HDI_DLPACK_IS_READ_ONLY, DLPACK_FLAG_BITMASK_READ_ONLY);
SAME_SIZE(hdi_dlpack_versioned, DLManagedTensorVersioned);
SAME_MEMBER(hdi_dlpack_versioned, major, DLManagedTensorVersioned, version.major);
SAME_MEMBER(hdi_dlpack_versioned, minor, DLManagedTensorVersioned, version.minor);
SAME_MEMBER(hdi_dlpack_versioned, context, DLManagedTensorVersioned, manager_ctx);
SAME_MEMBER(hdi_dlpack_versioned, deleter, DLManagedTensorVersioned, deleter);
SAME_MEMBER(hdi_dlpack_versioned, flags, DLManagedTensorVersioned, flags);
SAME_MEMBER(hdi_dlpack_versioned, tensor, DLManagedTensorVersioned, dl_tensor);
#endif
#endif
