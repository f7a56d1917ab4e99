/* heddle/import.h - memory that Heddle did not make, as buffers.
 *
 * hd_import takes device memory of the program's own: of another library, of a framework, of cudaMalloc. hd_import_host takes the program's
 * memory on the host, and pins it. Either becomes a buffer like any other: for launches, copies, claims and tensors.
 * Heddle never frees such memory. It is the program's, and stays where it is.
 *
 * What the program did with the memory before the import is in no order with Heddle's work. So it is finished first, or ordered by a claim
 * (heddle/claim.h). hd_free ends the buffer at once, and work that was submitted goes on. The function `released` is called when Heddle uses the
 * memory no more. From then on the program may free it.
 */
#ifndef HEDDLE_IMPORT_H
#define HEDDLE_IMPORT_H

#include <stddef.h>
#include <stdint.h>
#include <heddle/buffer.h>

HD_BEGIN_DECLS

/* Called once for each import that succeeded, when Heddle uses the memory no more. That is after hd_free, after the last work that uses it has
 * ended, and after the last hold on it. hd_close calls it for buffers that were not freed.
 *   - It runs on the thread that calls hd_free, hd_hold_destroy or hd_close, or on a thread of Heddle's. No lock is held.
 *   - It may call everything but hd_close and hd_device_restart of that runtime. Once hd_close has begun, calls on the runtime fail: HANDLE.
 *   - The buffer of a lost device has to be freed like any other. The call comes once the lost device has ended its work.
 *   - It is never called where hd_close reports that work did not end: that work may still use the memory. */
typedef void (*hd_released_function)(void *context);

typedef struct hd_import_options {
    size_t size;                   /* sizeof(hd_import_options) */
    const char *label;             /* for messages and reports, copied (HD_LABEL_BYTES); NULL: none */
    hd_released_function released; /* NULL: none */
    void *context;                 /* for `released` */
} hd_import_options;

/* Makes a buffer of `bytes` bytes of memory of the device `device` at `address`, which something else than Heddle has allocated.
 * The memory has to stay until `released` is called. options may be NULL. *out is the caller's: hd_free, which does not block.
 * Other devices use it as that of hd_alloc, where the driver grants them access. Memory of cudaMalloc gets that with the first use. For memory
 * of cuMemMap the program sets it (cuMemSetAccess). Without it copies go through pinned memory, and launches fail with UNREACHABLE.
 * The memory counts as imported in reports, and against no limit. memory_debug puts no guards around it. After the loss of its device
 * the buffer stays lost.
 * Where a freed import of the same bytes is still in use, the new buffer's first use waits for that work.
 * Errors: ARGUMENT (null; zero bytes; not memory of that device, or not all of it; it overlaps another import or Heddle's own memory), HANDLE,
 * NO_DEVICE, DEVICE_LOST, HOST_MEMORY, DRIVER, UNSUPPORTED (placement=process: a worker process has no such address). */
HD_API hd_status hd_import(hd_runtime *runtime, int device, uint64_t address, size_t bytes,
                           const hd_import_options *options, hd_buffer **out);

/* Makes a pinned buffer of the program's own memory on the host, as of hd_alloc_host: every device uses it directly, and hd_map maps it.
 * Pinning takes some 0.3 ms per MiB, and launches wait meanwhile. It counts against the option pinned_limit. The memory is unpinned
 * after its last use, before `released` is called. Memory that the program has pinned already is taken as it is, and counts against no limit.
 * Bytes of a freed import that is still in use share its pin, which then lasts until the last import of them has ended. Where they are a part of
 * the new bytes only, the call waits for the end of that work (option transfer_timeout).
 * The driver pins whole pages. Two imports that share a page need pages of their own where the driver refuses that.
 * *out is the caller's: hd_free, which does not block.
 * Errors: ARGUMENT (null; zero bytes; only a part of it is pinned; it overlaps another import or Heddle's own memory), HANDLE, HOST_MEMORY (also:
 * the limit), DRIVER, DEVICE_LOST (no device is left), TIMEOUT, UNSUPPORTED (placement=process: a worker process has no such memory; use hd_alloc_host). */
HD_API hd_status hd_import_host(hd_runtime *runtime, void *memory, size_t bytes, const hd_import_options *options,
                                hd_buffer **out);

/* ---- memory between processes ------------------------------------------------------------------------------------ */

typedef enum hd_export_kind {
    HD_EXPORT_DESCRIPTOR = 1, /* for processes of this machine: a file descriptor */
    HD_EXPORT_FABRIC = 2      /* for other machines of one NVLink fabric, too: 64 bytes */
} hd_export_kind;

#define HD_FABRIC_BYTES 64

/* What stands for a buffer's memory in another process. The program sends it there; a descriptor goes over a socket (SCM_RIGHTS). */
typedef struct hd_export {
    size_t size;                           /* sizeof(hd_export) */
    int kind;                              /* hd_export_kind */
    int descriptor;                        /* of HD_EXPORT_DESCRIPTOR: the caller's, to be closed; else -1 */
    uint64_t piece_bytes;                  /* of the physical memory that it stands for */
    uint64_t offset, bytes;                /* where in it the buffer is */
    unsigned char uuid[16];                /* of the device that has the memory */
    unsigned char fabric[HD_FABRIC_BYTES]; /* of HD_EXPORT_FABRIC */
} hd_export;

/* Describes the memory of a buffer of HD_ALLOC_ONE_PIECE for other processes. The memory lives as long as anything has it: this buffer, the
 * descriptor, or an import. The content and the order of its uses are the programs' to agree on.
 * Asks the driver, or the worker process. Every export makes a descriptor of its own.
 * Errors: ARGUMENT (null; an unknown kind; a buffer that is not one piece: allocate it with HD_ALLOC_ONE_PIECE), HANDLE, DEVICE_LOST, DRIVER,
 * UNSUPPORTED (HD_EXPORT_FABRIC: the device has no such handles, or placement=process). */
HD_API hd_status hd_buffer_export(hd_buffer *buffer, hd_export_kind kind, hd_export *out);

/* Makes a buffer of memory that this or another process has exported, on the device that has it. The descriptor stays the caller's. options may be
 * NULL. The memory counts as imported, and against no limit. Works in every placement.
 * The fields are those that hd_buffer_export wrote, unchanged: a GPU's driver does not report the size of a piece. It refuses one that is too
 * large; a piece_bytes that is too small may import the first bytes alone. Host devices refuse both.
 * In the process that exported it, both buffers are the same bytes at two addresses, and are in no order with each other.
 * Errors: ARGUMENT (null; sizes that do not fit; memory of another device; a descriptor of something else), HANDLE, NO_DEVICE, DEVICE_LOST,
 * HOST_MEMORY, MEMORY (no addresses), DRIVER, UNSUPPORTED (HD_EXPORT_FABRIC: as above). */
HD_API hd_status hd_import_descriptor(hd_runtime *runtime, int device, const hd_export *from,
                                      const hd_import_options *options, hd_buffer **out);

HD_END_DECLS
#endif
