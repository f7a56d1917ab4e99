/* heddle/import.h - buffers over memory that Heddle did not allocate.
 *
 * hd_import takes device memory of another library, of a framework or of cudaMalloc. hd_import_host
 * takes host memory of the program, and pins it. Either becomes a buffer like any other: for
 * launches, copies, claims and tensors. Heddle never frees such memory. It belongs to the program,
 * and stays at its address.
 *
 * Heddle does not order its work against uses of the memory before the import. Finish them first,
 * or order them by a claim (heddle/claim.h). hd_free ends the buffer at once, and submitted work
 * goes on. Heddle calls the function `released` when it no longer uses the memory. From then on the
 * program may free it.
 *
 * Any address is allowed: copies, fills, boxes and hd_tensor_copy work at every one. Kernels on a
 * GPU read elements only at addresses that are multiples of the element's size. So hd_tensor_matmul
 * refuses others (ARGUMENT), and the program must launch its kernels with memory that they can
 * read.
 *
 * Threads: any.
 * Blocking: all calls, for the driver or the worker process. hd_import_host may also wait for work,
 * as its comment says.
 */
#ifndef HEDDLE_IMPORT_H
#define HEDDLE_IMPORT_H

#include <stddef.h>
#include <stdint.h>
#include <heddle/buffer.h>

HD_BEGIN_DECLS

/* Called once for each import that succeeded, when Heddle no longer uses the memory. That is after
 * hd_free, after the end of the last work that uses it, and after the last hold on it. hd_close
 * calls it for buffers that were not freed.
 *   - It runs on the thread that calls hd_free, hd_hold_destroy or hd_close, or on a thread of
 *     Heddle. No lock is held.
 *   - It may call everything but hd_close and hd_device_restart of that runtime. After the start of
 *     hd_close, calls on the runtime fail: HANDLE.
 *   - A buffer of a lost device must be freed like any other. The call comes once the lost device
 *     has ended its work.
 *   - It is never called if hd_close reports that work did not end: that work may still use the
 *     memory. */
typedef void (*hd_released_function)(void *context);

/* Options of hd_import, hd_import_host and hd_import_descriptor. */
typedef struct hd_import_options {
    size_t size; /* sizeof(hd_import_options) */
    /* for messages and reports, copied (HD_LABEL_BYTES); NULL: none */
    const char *label;
    hd_released_function released; /* NULL: none */
    void *context;                 /* for `released` */
} hd_import_options;

/* Makes a buffer over `bytes` bytes at `address` in memory of the device `device` that Heddle did
 * not allocate. The memory must stay until `released` is called. options may be NULL.
 * The caller owns *out and frees it with hd_free, which does not block.
 *
 * Other devices use it like memory of hd_alloc if the driver grants them access. For cudaMalloc
 * memory, Heddle gets that access at the first use. For cuMemMap memory, the program grants it
 * (cuMemSetAccess). Without access, copies go through pinned memory, and launches fail with
 * UNREACHABLE.
 *
 * The memory counts as imported in reports, and against no limit. memory_debug puts no guards
 * around it. After the loss of its device the buffer stays lost. If a freed import of the same
 * bytes is still in use, the new buffer's first use waits for that work.
 * Errors: ARGUMENT (null; zero bytes; not memory of that device, or not all of it; it overlaps
 * another import or Heddle's own memory), HANDLE, NO_DEVICE, DEVICE_LOST, HOST_MEMORY, DRIVER,
 * UNSUPPORTED (placement=process: a worker process has no such address). */
HD_API hd_status hd_import(hd_runtime *runtime, int device, uint64_t address, size_t bytes,
                           const hd_import_options *options, hd_buffer **out);

/* Makes a pinned buffer over the program's own host memory, like one of hd_alloc_host. Every device
 * uses it directly, and hd_map maps it. The caller owns *out and frees it with hd_free, which does
 * not block.
 *
 * Pinning takes some 0.3 ms per MiB, and launches wait meanwhile. It counts against the option
 * pinned_limit. Heddle unpins the memory after its last use, before it calls `released`. Memory
 * that the program pinned before is taken as it is, and counts against no limit.
 *
 * If a freed import of the same bytes is still in use, both share a pin. It lasts until the last
 * import of the bytes ends. If those bytes are only a part of the new ones, the call waits for the
 * end of that work (option transfer_timeout). The driver pins whole pages. If it refuses two
 * imports that share a page, place each on separate pages.
 * Errors: ARGUMENT (null; zero bytes; only a part of it is pinned; it overlaps another import or
 * Heddle's own memory), HANDLE, HOST_MEMORY (also: the limit), DRIVER, DEVICE_LOST (no device is
 * left), TIMEOUT, UNSUPPORTED (placement=process: a worker process has no such memory; use
 * hd_alloc_host). */
HD_API hd_status hd_import_host(hd_runtime *runtime, void *memory, size_t bytes, const hd_import_options *options,
                                hd_buffer **out);

/* ---- memory between processes ---------------------------------------------------------------- */

/* The kind of an export. */
typedef enum hd_export_kind {
    HD_EXPORT_DESCRIPTOR = 1, /* for processes of this machine: a file descriptor */
    HD_EXPORT_FABRIC = 2      /* for other machines of one NVLink fabric, too: 64 bytes */
} hd_export_kind;

#define HD_FABRIC_BYTES 64 /* bytes of hd_export.fabric */

/* A reference to a buffer's memory, for another process. The program sends it there; a descriptor
 * goes over a socket (SCM_RIGHTS). */
typedef struct hd_export {
    size_t size; /* sizeof(hd_export) */
    int kind;    /* hd_export_kind */
    /* for HD_EXPORT_DESCRIPTOR: owned by the caller, which closes it; else -1 */
    int descriptor;
    uint64_t piece_bytes;                  /* bytes of the physical memory that it stands for */
    uint64_t offset, bytes;                /* position and size of the buffer in it */
    unsigned char uuid[16];                /* of the device with the memory */
    unsigned char fabric[HD_FABRIC_BYTES]; /* for HD_EXPORT_FABRIC */
} hd_export;

/* Exports the memory of a buffer made with HD_ALLOC_DEDICATED to other processes. The memory lives
 * as long as this buffer, the descriptor or an import of it exists. The programs must agree on its
 * content and the order of its uses. Calls the driver, or the worker process. Every export of kind
 * DESCRIPTOR makes a new descriptor.
 * Errors: ARGUMENT (null; an unknown kind; a buffer that is not one piece: allocate it with
 * HD_ALLOC_DEDICATED), HANDLE, DEVICE_LOST, DRIVER, UNSUPPORTED (HD_EXPORT_FABRIC: the device has
 * no such handles, or placement=process). */
HD_API hd_status hd_buffer_export(hd_buffer *buffer, hd_export_kind kind, hd_export *out);

/* Makes a buffer over memory that this or another process has exported, on the device with that
 * memory. The caller keeps the descriptor, owns *out, and frees it with hd_free. options may be
 * NULL. The memory counts as imported, and against no limit. A descriptor works in every placement.
 *
 * Pass the fields unchanged, as hd_buffer_export wrote them: a GPU's driver does not report the
 * size of a piece. The driver refuses a size that is too large. With too small a piece_bytes, the
 * import may cover only the first bytes. Host devices refuse both.
 *
 * In the process that exported the memory, both buffers are the same bytes at two addresses. Heddle
 * does not order them against each other.
 * Errors: ARGUMENT (null; sizes that do not fit; memory of another device; a descriptor of
 * something else), HANDLE, NO_DEVICE, DEVICE_LOST, HOST_MEMORY, MEMORY (no addresses), DRIVER,
 * UNSUPPORTED (HD_EXPORT_FABRIC: as above). */
HD_API hd_status hd_import_descriptor(hd_runtime *runtime, int device, const hd_export *from,
                                      const hd_import_options *options, hd_buffer **out);

HD_END_DECLS
#endif
