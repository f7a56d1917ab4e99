/* heddle/dlpack.h - exchange of tensors with other libraries, without a copy: DLPack in C.
 *
 * NumPy, PyTorch, CuPy, JAX and others hand tensors to each other by DLPack. A DLPack tensor is a
 * structure with an address, a type, a shape and strides. It also contains the deleter, a function
 * that the consumer calls when it is done. Heddle gives and takes the versioned form of DLPack 1,
 * and the older form without a version. The structures are those of DLPack's own header, dlpack.h.
 * A program that looks inside them includes it, before or after this one.
 *
 * DLPack defines the stream numbers. They select the work that producer and consumer put in order:
 *   - 1 is CUDA's legacy default stream, 2 the default stream of the calling thread, a larger
 *     number is a cudaStream_t
 *   - HD_DLPACK_UNORDERED: nothing is put in order, and the program must do it
 *   - HD_DLPACK_CPU: the tensor is for the CPU; refused for memory that only a GPU uses, as DLPack
 *     wants it
 *
 * Threads: any. A consumer calls the deleter from any thread.
 * Blocking: an export with HD_DLPACK_CPU, for the bytes (option transfer_timeout). Exports with a
 * stream, as hd_claim_begin_stream. Imports, as hd_import and hd_import_host, and with a stream
 * also as hd_claim_begin_stream. hd_dlpack_get_device may call the driver.
 */
#ifndef HEDDLE_DLPACK_H
#define HEDDLE_DLPACK_H

#include <heddle/claim.h>
#include <heddle/import.h>
#include <heddle/tensor.h>

HD_BEGIN_DECLS

/* Structures of DLPack's header. */
struct DLManagedTensor;          /* the form without a version */
struct DLManagedTensorVersioned; /* the form of DLPack 1 */

#define HD_DLPACK_UNORDERED (-1) /* in place of a stream: nothing is put in order */
#define HD_DLPACK_CPU 0          /* in place of a stream: the tensor is for the CPU */

/* Flags of hd_dlpack_options. */
typedef enum hd_dlpack_flags {
    /* Of an export: the consumer only reads. Of an import: the program only reads. */
    HD_DLPACK_READ_ONLY = 1,
    HD_DLPACK_BOOL = 2 /* of an export: elements of type u8 are given as bool */
} hd_dlpack_flags;

/* Options of exports and imports. */
typedef struct hd_dlpack_options {
    size_t size;    /* sizeof(hd_dlpack_options) */
    unsigned flags; /* hd_dlpack_flags, or 0 */
    hd_type type;   /* of an import: the required type of elements; 0: any type */
    int device;     /* of memory that belongs to no device: the device of the stream */
    /* Names the export's claim, or the imported buffer; copied (HD_LABEL_BYTES). NULL: "dlpack". */
    const char *label;
} hd_dlpack_options;

/* ---- to others ---- */

/* Gives a tensor to a consumer. `stream` is a stream of the consumer. The consumer owns *out: it
 * calls the deleter, once, from any thread. Until then the tensor's bytes, from its first element
 * to its last, are claimed (heddle/claim.h), for reading and writing unless HD_DLPACK_READ_ONLY is
 * given. So the consumer's work runs after earlier work, and later work waits for the deleter.
 *   - With a stream: as hd_claim_begin_stream. Work that is in the stream when the consumer calls
 *     the deleter runs before later work.
 *   - HD_DLPACK_CPU: waits until the bytes are there (option transfer_timeout).
 *   - HD_DLPACK_UNORDERED: nothing is claimed. The memory is held (hd_hold_add): it stays in place
 *     until the deleter, also beyond hd_free. For tensors that live long: the program orders each
 *     use by a claim of its own. The deleter must come before hd_close. If not, hd_close returns
 *     TIMEOUT, and leaves the memory as it is until the program ends.
 *
 * Each claim takes one of the 160 lanes that its device provides for claims (LIMIT). The consumer
 * gets these kinds of memory:
 *   - Device memory is CUDA memory, with the driver's number of the device. Pinned memory is pinned
 *     memory of CUDA.
 *   - Unified memory gives its pinned bytes with HD_DLPACK_CPU, and its device memory with a
 *     stream. UNORDERED is refused.
 *   - Memory of host devices is CPU memory. Pinned memory is, too, without GPUs or with
 *     placement=process.
 *
 * The deleter returns at once. While the stream is being captured the claim goes on until the
 * capture is over. On the default stream of another thread it ends behind the legacy default
 * stream. After hd_close, which names exports that are still out, a deleter does no harm. A tensor
 * without elements has no address, and claims nothing.
 * Errors: ARGUMENT (a stream that does not fit the memory; strides that are no multiple of the
 * element's size), HANDLE, RANGE, NO_DEVICE, LIMIT, FAILED, DEVICE_LOST, ACCESS, TIMEOUT, MEMORY,
 * HOST_MEMORY, DRIVER, UNSUPPORTED (placement=process: device memory, streams; a stream that is
 * being captured). */
HD_API hd_status hd_dlpack_export(const hd_tensor *tensor, int64_t stream, const hd_dlpack_options *options,
                                  struct DLManagedTensorVersioned **out);

/* hd_dlpack_export in the form without a version, which cannot be marked as read-only. Errors: as
 * hd_dlpack_export; ARGUMENT (also: HD_DLPACK_READ_ONLY). */
HD_API hd_status hd_dlpack_export_unversioned(const hd_tensor *tensor, int64_t stream, const hd_dlpack_options *options,
                                              struct DLManagedTensor **out);

/* Returns the device that an export with this stream names: DLPack's DLDeviceType and the number
 * there (the result of Python's __dlpack_device__).
 * Errors: as hd_dlpack_export (before anything begins). */
HD_API hd_status hd_dlpack_get_device(const hd_tensor *tensor, int64_t stream, int32_t *type, int32_t *id);

/* ---- from others ---- */

/* Makes a tensor of one that a producer gave, in a buffer that ends with hd_free(out->buffer), like
 * one of hd_import or hd_import_host. From then on the tensor belongs to Heddle. It calls the
 * producer's deleter once, when it no longer uses the memory (hd_released_function). After a
 * failure the tensor still belongs to the caller.
 *
 * `stream` is the one that the producer was asked to order its work in. Heddle's uses of the bytes
 * run after the work that is there now. With HD_DLPACK_UNORDERED, and for CPU memory with
 * HD_DLPACK_CPU, the bytes count as ready.
 *   - CUDA memory must be of a device of the runtime; out->buffer is memory of that device. Managed
 *     memory becomes memory of options->device.
 *   - CPU memory and pinned memory become a pinned buffer. It is pinned in whole pages: small
 *     arrays of one page may be refused. Host devices take all memory that the CPU can use.
 *   - Elements of type bool are u8. Strides may be negative, or 0.
 *   - A read-only tensor is taken with HD_DLPACK_READ_ONLY alone. Then no operation may write it,
 *     which nothing checks.
 *   - Without elements nothing is imported: the buffer is one byte of Heddle's own memory, and the
 *     deleter is called at once.
 *
 * The same bytes can be imported once at a time, and Heddle's own memory never: use its buffer.
 * Errors: ARGUMENT (null; a stream, a shape or an address that cannot be; another type than that of
 * the options; what hd_import refuses), HANDLE, ACCESS (a read-only tensor), NO_DEVICE (a device
 * that the runtime does not have), UNSUPPORTED (a major version but 1; a type, a number of
 * dimensions or a kind of device that Heddle does not have; placement=process), DEVICE_LOST, LIMIT,
 * MEMORY, HOST_MEMORY, DRIVER, TIMEOUT. */
HD_API hd_status hd_dlpack_import(hd_runtime *runtime, struct DLManagedTensorVersioned *managed, int64_t stream,
                                  const hd_dlpack_options *options, hd_tensor *out);

/* hd_dlpack_import for the form without a version. Errors: as hd_dlpack_import. */
HD_API hd_status hd_dlpack_import_unversioned(hd_runtime *runtime, struct DLManagedTensor *managed, int64_t stream,
                                              const hd_dlpack_options *options, hd_tensor *out);

HD_END_DECLS
#endif
