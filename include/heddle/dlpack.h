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
#include <heddle/import.h>
#include <heddle/tensor.h>

HD_BEGIN_DECLS

/* Of DLPack's header. */
struct DLManagedTensor;          /* the form without a version */
struct DLManagedTensorVersioned; /* that of DLPack 1 */

#define HD_DLPACK_UNORDERED (-1)
#define HD_DLPACK_CPU 0

typedef enum hd_dlpack_flags {
    HD_DLPACK_READ_ONLY = 1, /* of an export: the consumer only reads; of an import: so does the program */
    HD_DLPACK_BOOL = 2       /* of an export: elements of type u8 are given as bool */
} hd_dlpack_flags;

typedef struct hd_dlpack_options {
    size_t size;       /* sizeof(hd_dlpack_options) */
    unsigned flags;    /* hd_dlpack_flags, or 0 */
    hd_type type;      /* of an import: what the elements have to be; 0: any type */
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
 *     If not, hd_close returns TIMEOUT, and leaves the memory as it is until the program ends.
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

/* ---- from others ---- */

/* Makes a tensor of one that a producer has given, in a buffer that ends with hd_free(out->buffer), as that of hd_import or hd_import_host.
 * From then on the tensor is Heddle's, which calls the producer's deleter once, when it uses the memory no more (hd_released_function).
 * After a failure it is the caller's still.
 * `stream` is the one that the producer was asked to order its work in. Heddle's uses of the bytes come behind what is there now.
 * With HD_DLPACK_UNORDERED, and for memory of the CPU with HD_DLPACK_CPU, the bytes count as ready.
 *   - CUDA memory has to be of a device of the runtime; out->buffer is memory of that device. So is managed memory, of options->device.
 *   - Memory of the CPU and pinned memory become a pinned buffer. It is pinned in whole pages: small arrays of one page may be refused.
 *     Host devices take all memory that the CPU can use.
 *   - Elements of type bool are u8. Strides may be negative, or 0.
 *   - A read-only tensor is taken with HD_DLPACK_READ_ONLY alone. Then no operation may write it, which nothing checks.
 *   - Without elements nothing is imported: the buffer is one of Heddle's with one byte, and the deleter is called at once.
 * The same bytes are imported once at a time, and Heddle's own memory never: use the buffer that has it.
 * Errors: ARGUMENT (null; a stream, a shape or an address that cannot be; another type than that of the options; what hd_import refuses), HANDLE,
 * ACCESS (a read-only tensor), NO_DEVICE (a device that the runtime does not have), UNSUPPORTED (a major version but 1; a type, a number of
 * dimensions or a kind of device that Heddle does not have; placement=process), DEVICE_LOST, LIMIT, MEMORY, HOST_MEMORY, DRIVER, TIMEOUT. */
HD_API hd_status hd_dlpack_import(hd_runtime *runtime, struct DLManagedTensorVersioned *managed, int64_t stream,
                                  const hd_dlpack_options *options, hd_tensor *out);

/* The same for the form without a version. */
HD_API hd_status hd_dlpack_import_unversioned(hd_runtime *runtime, struct DLManagedTensor *managed, int64_t stream,
                                              const hd_dlpack_options *options, hd_tensor *out);

HD_END_DECLS
#endif
