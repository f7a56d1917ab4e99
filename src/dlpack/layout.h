/* layout.h - the structures and numbers of DLPack, as this layer reads and writes them.
 *
 * Programs may include DLPack's own header, so this header uses none of its names. If DLPack's
 * header is installed, tests/dlpack compares the two headers.
 * Threads: any. Locks: none.
 * Always: the fields in front of `flags` are the same in every version. So a program can call the
 * deleter of a tensor whose version Heddle refuses.
 */
#ifndef HDI_DLPACK_LAYOUT_H
#define HDI_DLPACK_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#define HDI_DLPACK_MAJOR 1
/* the version of exports; since this version, strides must not be NULL */
#define HDI_DLPACK_MINOR 3

/* DLDeviceType */
enum { HDI_DLPACK_CPU = 1, HDI_DLPACK_CUDA = 2, HDI_DLPACK_CUDA_HOST = 3, HDI_DLPACK_CUDA_MANAGED = 13 };

/* DLDataTypeCode */
enum {
    HDI_DLPACK_INT = 0,
    HDI_DLPACK_UINT = 1,
    HDI_DLPACK_FLOAT = 2,
    HDI_DLPACK_BFLOAT = 4,
    HDI_DLPACK_COMPLEX = 5,
    HDI_DLPACK_BOOL = 6
};

#define HDI_DLPACK_IS_READ_ONLY ((uint64_t)1) /* DLPACK_FLAG_BITMASK_READ_ONLY */

typedef struct hdi_dlpack_type {
    uint8_t code, bits;
    uint16_t lanes;
} hdi_dlpack_type;

/* DLTensor */
typedef struct hdi_dlpack_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t dims;
    hdi_dlpack_type type;
    int64_t *shape;
    int64_t *strides; /* in elements */
    uint64_t byte_offset;
} hdi_dlpack_tensor;

/* DLManagedTensor */
typedef struct hdi_dlpack_unversioned {
    hdi_dlpack_tensor tensor;
    void *context;
    void (*deleter)(struct hdi_dlpack_unversioned *self); /* NULL: nothing to give back */
} hdi_dlpack_unversioned;

/* DLManagedTensorVersioned */
typedef struct hdi_dlpack_versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct hdi_dlpack_versioned *self); /* NULL: nothing to give back */
    uint64_t flags;
    hdi_dlpack_tensor tensor;
} hdi_dlpack_versioned;

#endif
