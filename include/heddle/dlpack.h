/* heddle/dlpack.h - exchange of tensors with other libraries, without a copy: DLPack in C.
 *
 * NumPy, PyTorch, CuPy, JAX and other libraries exchange tensors through DLPack: a producer gives a
 * tensor to a consumer. A DLPack tensor is a structure with an address, a type, a shape and
 * strides. The structure also contains the deleter, a function that the consumer calls when it no
 * longer uses the tensor. Heddle exports and imports the form of DLPack 1, which contains a
 * version, and the older form without a version. DLPack's own header, dlpack.h, defines the
 * structures of both forms. A program that uses their fields must include dlpack.h, before or after
 * this header.
 *
 * DLPack defines numbers for streams. By one of these numbers, the consumer states where it uses
 * the tensor:
 *   - 1 is CUDA's legacy default stream, 2 is the default stream of the calling thread, and a
 *     larger number is a cudaStream_t
 *   - HD_DLPACK_UNORDERED: Heddle orders nothing, and the program must order the uses itself
 *   - HD_DLPACK_CPU: the CPU uses the tensor; as DLPack demands, Heddle refuses this number for
 *     memory that only a GPU can use
 *
 * Threads: any. A consumer calls the deleter from any thread.
 * Blocking: an export with HD_DLPACK_CPU waits for the bytes (option transfer_timeout). An export
 * with a stream waits as hd_claim_begin_stream does. An import waits as hd_import and
 * hd_import_host do, and with a stream also as hd_claim_begin_stream does. hd_dlpack_get_device may
 * call the driver.
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

#define HD_DLPACK_UNORDERED (-1) /* in place of a stream: Heddle orders nothing */
#define HD_DLPACK_CPU 0          /* in place of a stream: the CPU uses the tensor */

/* Flags of hd_dlpack_options. */
typedef enum hd_dlpack_flags {
    /* For an export: the consumer only reads. For an import: the program only reads. */
    HD_DLPACK_READ_ONLY = 1,
    HD_DLPACK_BOOL = 2 /* for an export: the consumer gets elements of type u8 as bool */
} hd_dlpack_flags;

/* Options of exports and imports. */
typedef struct hd_dlpack_options {
    size_t size;    /* sizeof(hd_dlpack_options) */
    unsigned flags; /* hd_dlpack_flags, or 0 */
    hd_type type;   /* for an import: the required type of elements; 0: any type */
    int device;     /* for memory that belongs to no device: the device of the stream */
    /* The name of the export's claim, or of the imported buffer. Heddle keeps a copy of at most
     * HD_LABEL_BYTES, with the terminating zero. NULL: "dlpack". */
    const char *label;
} hd_dlpack_options;

/* ---- to others ---- */

/* Gives a tensor to a consumer. `stream` is a stream of the consumer. `options` may be NULL. The
 * consumer owns *out, and calls its deleter once, from any thread. Until the consumer calls the
 * deleter, a claim covers the tensor's bytes, from the first element to the last (heddle/claim.h).
 * The claim is for reading and writing, or with HD_DLPACK_READ_ONLY only for reading. The
 * consumer's work therefore runs after earlier work of Heddle, and later work of Heddle waits until
 * the consumer calls the deleter.
 *   - With a stream, the export makes its claim as hd_claim_begin_stream does. Later work of Heddle
 *     also waits for the work that is in the stream when the consumer calls the deleter.
 *   - With HD_DLPACK_CPU, the call waits until earlier work on the bytes is finished (option
 *     transfer_timeout).
 *   - With HD_DLPACK_UNORDERED, the export makes no claim. A hold keeps the memory in place until
 *     the consumer calls the deleter, even after hd_free (hd_hold_add). Use HD_DLPACK_UNORDERED if
 *     the consumer keeps the tensor for a long time. The program must order each use by a claim of
 *     its own. The consumer must call the deleter before hd_close. Otherwise hd_close returns
 *     TIMEOUT, and leaves the memory as it is until the program ends.
 *
 * Each claim takes one of the 160 lanes that its device provides for claims. If open claims occupy
 * all of them, the call fails with LIMIT. The consumer gets these kinds of memory:
 *   - Device memory of a GPU becomes CUDA memory, with the driver's number of the device.
 *   - A unified buffer becomes its pinned memory with HD_DLPACK_CPU, and its device memory with a
 *     stream. Heddle refuses a unified buffer with HD_DLPACK_UNORDERED.
 *   - Memory of a host device becomes CPU memory.
 *   - Pinned memory becomes CPU memory with host devices or placement=process, and pinned memory of
 *     CUDA otherwise.
 *
 * The deleter returns at once. If the stream is being captured when the consumer calls the deleter,
 * the claim ends when the capture is over. With stream 2, the thread that called hd_dlpack_export
 * should also call the deleter. If another thread calls the deleter, the claim also waits for the
 * earlier work in the default streams of all threads. The message of hd_close names exports whose
 * deleter was not called. The consumer may still call a deleter after hd_close. The export of a
 * tensor without elements contains no address, and makes no claim.
 * Errors: ARGUMENT (a stream that does not fit the memory; strides that are no multiples of the
 * element's size), HANDLE, RANGE, NO_DEVICE, LIMIT, FAILED, DEVICE_LOST, ACCESS, TIMEOUT, MEMORY,
 * HOST_MEMORY, DRIVER, UNSUPPORTED (placement=process: device memory, streams; a stream that is
 * being captured). */
HD_API hd_status hd_dlpack_export(const hd_tensor *tensor, int64_t stream, const hd_dlpack_options *options,
                                  struct DLManagedTensorVersioned **out);

/* Gives a tensor as hd_dlpack_export does, in the form without a version. The consumer owns *out.
 * This form cannot be marked as read-only. Errors: as hd_dlpack_export; ARGUMENT (also:
 * HD_DLPACK_READ_ONLY). */
HD_API hd_status hd_dlpack_export_unversioned(const hd_tensor *tensor, int64_t stream, const hd_dlpack_options *options,
                                              struct DLManagedTensor **out);

/* Returns the device that hd_dlpack_export would name for this tensor and this stream. *type is
 * DLPack's DLDeviceType, and *id is the device's number among those of this type. Python's
 * __dlpack_device__ returns this pair.
 * Errors: ARGUMENT (null, or a stream that does not fit the memory), HANDLE, RANGE, DEVICE_LOST,
 * UNSUPPORTED (as hd_dlpack_export). With a stream also DRIVER. */
HD_API hd_status hd_dlpack_get_device(const hd_tensor *tensor, int64_t stream, int32_t *type, int32_t *id);

/* ---- from others ---- */

/* Takes a tensor from a producer, and makes a tensor *out over the same bytes. The buffer of *out
 * is like a buffer from hd_import or hd_import_host: the caller owns the buffer, and frees it with
 * hd_free(out->buffer). After a success, the producer's tensor belongs to Heddle, which calls the
 * deleter once, when it no longer uses the memory (hd_released_function). After a failure, the
 * producer's tensor still belongs to the caller.
 *
 * `stream` is the stream that the caller named when it asked the producer for the tensor. Heddle's
 * uses of the bytes run after the work that is in this stream at the time of the call. With
 * HD_DLPACK_UNORDERED, and for CPU memory with HD_DLPACK_CPU, Heddle waits for nothing, so the
 * bytes must be ready. `options` may be NULL.
 *   - CUDA memory must belong to a device of the runtime. out->buffer is memory of that device.
 *     Managed memory becomes memory of options->device.
 *   - CPU memory and pinned memory become a pinned buffer. The driver pins whole pages, and may
 *     refuse a second small array in the same page. With host devices, any memory that the CPU can
 *     use becomes a pinned buffer.
 *   - Elements of type bool become u8. Strides may be negative or 0.
 *   - To import a read-only tensor, pass HD_DLPACK_READ_ONLY. The program must not submit
 *     operations that write the tensor; Heddle does not check this.
 *   - If a tensor contains no elements, Heddle does not import its memory. The buffer is then one
 *     byte of Heddle's own memory, and hd_dlpack_import itself calls the deleter.
 *
 * Only one import of the same bytes can exist at a time. The call refuses memory of Heddle itself:
 * use the buffer of this memory instead.
 * Errors: ARGUMENT (null; an impossible stream, shape or address; a type other than that of the
 * options; memory that hd_import refuses), HANDLE, ACCESS (a read-only tensor), NO_DEVICE (a device
 * that the runtime does not have), UNSUPPORTED (a major version other than 1; a type, a number of
 * dimensions or a kind of device that Heddle does not support; placement=process), DEVICE_LOST,
 * LIMIT, MEMORY, HOST_MEMORY, DRIVER, TIMEOUT. */
HD_API hd_status hd_dlpack_import(hd_runtime *runtime, struct DLManagedTensorVersioned *managed, int64_t stream,
                                  const hd_dlpack_options *options, hd_tensor *out);

/* Takes a tensor as hd_dlpack_import does, in the form without a version. Errors: as
 * hd_dlpack_import. */
HD_API hd_status hd_dlpack_import_unversioned(hd_runtime *runtime, struct DLManagedTensor *managed, int64_t stream,
                                              const hd_dlpack_options *options, hd_tensor *out);

HD_END_DECLS
#endif
