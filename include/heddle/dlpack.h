/* heddle/dlpack.h - tensors given to other libraries, and taken from them, without a copy: DLPack in C.
 *
 * DLPack is how NumPy, PyTorch, CuPy, JAX and others hand tensors to each other. It is a structure with an address, a type, a shape and strides.
 * It also has the deleter, a function that the consumer calls when it is done. Heddle gives and takes the versioned form of DLPack 1, and the older
 * form without a version. The structures are those of DLPack's own header, dlpack.h. A program that looks inside them includes it,
 * before or after this one.
 *
 * Stream numbers are DLPack's, for what producer and consumer put in order:
 *   - 1 is CUDA's legacy default stream, 2 the default stream of the calling thread, a larger number is a cudaStream_t
 *   - HD_DLPACK_UNORDERED: nothing is put in order, and the program sees to it
 *   - HD_DLPACK_CPU: the tensor is for the CPU; for memory that only a GPU uses it is refused, as DLPack wants it
 */
#ifndef HEDDLE_DLPACK_H
#define HEDDLE_DLPACK_H

#include <heddle/claim.h>
#include <heddle/tensor.h>

HD_BEGIN_DECLS

/* Of DLPack's header. */
struct DLManagedTensor;          /* the form without a version */
struct DLManagedTensorVersioned; /* that of DLPack 1 */

#define HD_DLPACK_UNORDERED (-1)
#define HD_DLPACK_CPU 0

typedef enum hd_dlpack_flags {
    HD_DLPACK_READ_ONLY =
        1, /* of an export: the consumer only reads; of an import: the program only reads, so read-only tensors are taken */
    HD_DLPACK_BOOL = 2 /* of an export: elements of type u8 are given as bool */
} hd_dlpack_flags;

typedef struct hd_dlpack_options {
    size_t size;       /* sizeof(hd_dlpack_options) */
    unsigned flags;    /* hd_dlpack_flags, or 0 */
    int device;        /* of memory that belongs to no device: the one that the stream is of */
    const char *label; /* names the export's claim, or the imported buffer; copied (HD_LABEL_BYTES). NULL: "dlpack" */
} hd_dlpack_options;

/* ---- to others ---- */

/* Gives a tensor to a consumer. `stream` is the consumer's. *out is the consumer's: it calls the deleter, once, from any thread.
 * Until then the tensor's bytes, from its first element to its last, are claimed (heddle/claim.h), for reading and writing unless
 * HD_DLPACK_READ_ONLY is given. So the consumer's work comes behind what was submitted before, and what is submitted later waits for the deleter.
 *   - With a stream: as hd_claim_begin_stream. What the consumer has put into the stream when the deleter is called comes before later work.
 *   - HD_DLPACK_CPU: waits until the bytes are there (option transfer_timeout).
 *   - HD_DLPACK_UNORDERED: nothing is claimed. The memory is held (hd_hold_add): it stays where it is until the deleter, also beyond
 *     hd_free. For tensors that live long: the program orders each use by a claim of its own. The deleter comes before hd_close.
 * Each claim takes a lane of its device, of which there are 160 for that (LIMIT).
 * What the tensor is of:
 *   - Device memory is CUDA memory, with the driver's number of the device. Pinned memory is CUDA's pinned memory.
 *   - Of unified memory the consumer gets the pinned bytes with HD_DLPACK_CPU, and the device's with a stream. UNORDERED is refused.
 *   - Memory of host devices, and pinned memory where there are no GPUs or with placement=process, is CPU memory.
 * The deleter returns at once. While the stream is being captured the claim goes on until the capture is over.
 * On the default stream of another thread it ends behind the legacy default stream. After hd_close, which names exports that are still out, a deleter does no harm.
 * A tensor without elements has no address, and claims nothing.
 * Errors: ARGUMENT (a stream that does not fit the memory; strides that are no multiple of the element's size), HANDLE, RANGE, NO_DEVICE, LIMIT, FAILED,
 * DEVICE_LOST, ACCESS, TIMEOUT, MEMORY, HOST_MEMORY, DRIVER, UNSUPPORTED (placement=process: device memory, streams; a stream that is being captured). */
HD_API hd_status hd_dlpack_export(const hd_tensor *tensor, int64_t stream, const hd_dlpack_options *options,
                                  struct DLManagedTensorVersioned **out);

/* The same in the form without a version, which cannot be marked as read-only: ARGUMENT with HD_DLPACK_READ_ONLY. */
HD_API hd_status hd_dlpack_export_unversioned(const hd_tensor *tensor, int64_t stream, const hd_dlpack_options *options,
                                              struct DLManagedTensor **out);

/* The device that an export with this stream names: DLPack's DLDeviceType and the number there (what Python's __dlpack_device__ returns).
 * Errors: as hd_dlpack_export, before anything begins. */
HD_API hd_status hd_dlpack_get_device(const hd_tensor *tensor, int64_t stream, int32_t *type, int32_t *id);

HD_END_DECLS
#endif
