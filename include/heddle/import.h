/* heddle/import.h - buffers over memory that Heddle did not allocate.
 *
 * An import is a buffer over memory that Heddle did not allocate. hd_import makes a buffer over
 * device memory that a library, a framework or cudaMalloc allocated. hd_import_host makes a buffer
 * over host memory of the program, and pins this memory. The program can use an import in launches,
 * copies, claims and tensors like any other buffer. The memory still belongs to the program and
 * stays at its address. Heddle never frees the memory.
 *
 * Heddle does not know of uses of the memory that began before the import. Finish such uses first,
 * or order them with a claim (heddle/claim.h). hd_free ends the buffer at once, but submitted work
 * still uses the memory. When Heddle no longer uses the memory, it calls the function `released` of
 * hd_import_options. After this call, the program may free the memory.
 *
 * The memory may begin at any address: copies, fills, boxes and hd_tensor_copy work at every
 * address. Kernels on a GPU read elements only at addresses that are multiples of the element's
 * size. hd_tensor_matmul therefore refuses memory at other addresses (ARGUMENT). For its own
 * kernels, the program must check the addresses itself.
 *
 * Threads: any.
 * Blocking: all calls wait for the driver or the worker process. hd_import_host may also wait for
 * work, as its comment says.
 */
#ifndef HEDDLE_IMPORT_H
#define HEDDLE_IMPORT_H

#include <stddef.h>
#include <stdint.h>
#include <heddle/buffer.h>

HD_BEGIN_DECLS

/* A function that Heddle calls once for each successful import, when Heddle no longer uses the
 * memory. At that time, the program freed the buffer, the last work on the memory ended,
 * and no hold keeps the memory. For buffers that the program did not free, hd_close calls the
 * function. If other runtimes of the process have work, a thread of Heddle calls the function after
 * hd_close (heddle/runtime.h).
 *   - For memory that hd_import_host pinned, Heddle calls the function at a time when the driver
 *     can unpin without a long wait for kernels. An open claim delays this for about ten seconds,
 *     even if the claim uses other bytes, because the program may run kernels of its own during a
 *     claim.
 *   - The function runs on the thread that calls hd_free, hd_hold_destroy or hd_close, or on a
 *     thread of Heddle. While the function runs, that thread holds no lock of Heddle.
 *   - The function may call everything but hd_close and hd_device_restart of the buffer's runtime.
 *     Once hd_close has begun, calls on that runtime fail with HANDLE.
 *   - If the device of the buffer is lost, the program must still free the buffer. Heddle then
 *     calls the function when the lost device ended its work.
 *   - If hd_close reports that work did not end, Heddle never calls the function, because this work
 *     may still use the memory. */
typedef void (*hd_released_function)(void *context);

/* Options of hd_import, hd_import_host and hd_import_descriptor. */
typedef struct hd_import_options {
    size_t size; /* sizeof(hd_import_options) */
    /* For messages and reports. Heddle keeps a copy of at most HD_LABEL_BYTES, with the terminating
     * zero. NULL: none. */
    const char *label;
    hd_released_function released; /* NULL: none */
    void *context;                 /* for `released` */
} hd_import_options;

/* Makes a buffer over device memory that Heddle did not allocate. The memory is on device number
 * `device`, begins at `address`, and is `bytes` bytes large. The program must keep the memory until
 * Heddle calls `released`. `options` may be NULL. The caller owns *out and frees it with hd_free,
 * which does not block.
 *
 * If other devices get access to the memory, they can use the buffer like a buffer of hd_alloc. For
 * memory of cudaMalloc, Heddle requests the access at the first use. For memory of cuMemMap, the
 * program must set the access (cuMemSetAccess). Without access, another device copies this memory
 * only through pinned memory, and launches on that device that use this memory fail with
 * UNREACHABLE.
 *
 * Reports list the memory as imported. The memory counts against no limit. memory_debug puts no
 * guards around the memory. After the loss of its device, the buffer stays lost. If work still uses
 * an earlier, freed import of the same bytes, the first use of the new buffer waits for that work.
 * Errors: ARGUMENT (null; zero bytes; not memory of that device, or not all of it; it overlaps
 * another import or Heddle's own memory), HANDLE, NO_DEVICE, DEVICE_LOST, HOST_MEMORY, MEMORY (the
 * driver has no memory left), DRIVER, UNSUPPORTED (placement=process: the address is not valid in a
 * worker process). */
HD_API hd_status hd_import(hd_runtime *runtime, int device, uint64_t address, size_t bytes,
                           const hd_import_options *options, hd_buffer **out);

/* Makes a pinned buffer, like one of hd_alloc_host, over the program's own host memory at `memory`.
 * `bytes` is the size of that memory. Every device can use the buffer directly, and hd_map maps it.
 * `options` may be NULL. The caller owns *out and frees it with hd_free, which does not block.
 *
 * Pinning takes some 0.3 ms per MiB, and launches wait during this time. Pinned bytes count against
 * the option pinned_limit. Heddle unpins the memory after its last use, before it calls `released`.
 * NVIDIA's driver unpins only when no kernel of the process runs. So Heddle waits until no runtime
 * of the process has work. If a runtime always has work, Heddle waits until every lane with work
 * kept finishing operations for a second. At the limit, hd_import_host waits until Heddle has
 * unpinned freed imports (option memory_timeout). Memory that the program pinned itself stays
 * pinned, and counts against no limit.
 *
 * After the program frees an earlier import of the same memory, submitted work may still use the
 * memory. If the earlier import pinned only some of the new bytes, the call waits for the end of
 * that work (option transfer_timeout). Otherwise the call does not wait, and the bytes stay pinned
 * until the last of these imports ends. The driver pins whole pages, and may refuse a second import
 * in the same page. In this case, put the memory of the two imports on separate pages.
 * Errors: ARGUMENT (null; zero bytes; only a part of the memory is pinned; the memory overlaps
 * another import or Heddle's own memory), HANDLE, HOST_MEMORY (also: the limit), DRIVER,
 * DEVICE_LOST (no device is left), TIMEOUT, UNSUPPORTED (placement=process: a worker process cannot
 * use this memory; use hd_alloc_host). */
HD_API hd_status hd_import_host(hd_runtime *runtime, void *memory, size_t bytes, const hd_import_options *options,
                                hd_buffer **out);

/* ---- memory between processes ---------------------------------------------------------------- */

/* The kind of an export. */
typedef enum hd_export_kind {
    HD_EXPORT_DESCRIPTOR = 1, /* for processes of this machine: a file descriptor */
    HD_EXPORT_FABRIC = 2      /* for other machines of one NVLink fabric, too: 64 bytes */
} hd_export_kind;

#define HD_FABRIC_BYTES 64 /* bytes of hd_export.fabric */

/* A reference to a buffer's memory, for another process. The program sends this structure to that
 * process. The program must pass the descriptor in it through a socket (SCM_RIGHTS). */
typedef struct hd_export {
    size_t size; /* sizeof(hd_export) */
    int kind;    /* hd_export_kind */
    /* for HD_EXPORT_DESCRIPTOR: the file descriptor, which the caller owns and closes; else -1 */
    int descriptor;
    uint64_t piece_bytes;                  /* size of the exported physical memory */
    uint64_t offset, bytes;                /* position and size of the buffer in that memory */
    unsigned char uuid[16];                /* UUID of the device with the memory */
    unsigned char fabric[HD_FABRIC_BYTES]; /* for HD_EXPORT_FABRIC */
} hd_export;

/* Exports the memory of a buffer made with HD_ALLOC_DEDICATED to other processes. The memory exists
 * as long as this buffer, a descriptor of the memory or an import of the memory exists. The
 * processes must agree on the content of the memory and on the order of their uses. The call waits
 * for the driver or the worker process. Every export of kind HD_EXPORT_DESCRIPTOR makes a new
 * descriptor, which the caller owns.
 * Errors: ARGUMENT (null; an unknown kind; a buffer that is not one piece: allocate it with
 * HD_ALLOC_DEDICATED), HANDLE, DEVICE_LOST, MEMORY (the driver has no memory left), DRIVER,
 * UNSUPPORTED (HD_EXPORT_FABRIC: the device has no such handles, or placement=process). */
HD_API hd_status hd_buffer_export(hd_buffer *buffer, hd_export_kind kind, hd_export *out);

/* Makes a buffer over memory that this or another process exported. `device` is the device with
 * that memory. The caller still owns the descriptor in `from`. The caller also owns *out, and frees
 * it with hd_free. `options` may be NULL. Reports list the memory as imported. The memory counts
 * against no limit. A descriptor works in every placement.
 *
 * Pass all fields as hd_buffer_export wrote them, because a GPU's driver does not report the size
 * of exported memory. If piece_bytes is too large, the driver refuses it. If piece_bytes is too
 * small, the import may cover only the first bytes. Host devices refuse both wrong values.
 *
 * If the process that exported the memory also imports it, there are two buffers over the same
 * bytes, at two addresses. Heddle does not order uses of the first buffer against uses of the
 * second buffer.
 * Errors: ARGUMENT (null; sizes that do not fit; memory of another device; a descriptor of
 * something else), HANDLE, NO_DEVICE, DEVICE_LOST, HOST_MEMORY, MEMORY (no addresses, or the
 * driver has no memory left), DRIVER, UNSUPPORTED (HD_EXPORT_FABRIC: the device has no such
 * handles, or placement=process). */
HD_API hd_status hd_import_descriptor(hd_runtime *runtime, int device, const hd_export *from,
                                      const hd_import_options *options, hd_buffer **out);

HD_END_DECLS
#endif
