/* heddle/buffer.h - tracked memory.
 *
 * A buffer records its owner, its size, and for each range of bytes its last writer and the readers
 * since. Every operation that names a buffer declares which of its bytes it uses, and how. These
 * rules order it against earlier operations:
 *   - a use waits for the last writer of the same bytes;
 *   - a write also waits for the readers since;
 *   - readers never wait for readers, and disjoint bytes never wait for each other.
 *
 * Waits are put into lanes; the host never blocks to order device work.
 *
 * A buffer on one device may be used in lanes of another device that can reach it (peer access). If
 * that device cannot, a launch fails with UNREACHABLE before it starts, and hd_copy moves the bytes
 * another way.
 *
 * If the last write to a buffer failed, reads return that failure until the buffer is written
 * again. On a buffer of a lost device, every call that uses its content fails with DEVICE_LOST.
 * This stays so after hd_device_restart, unless a checkpoint restores the buffer (hd_buffer_save).
 *
 * Threads: any.
 * Blocking: hd_map, hd_buffer_wait and hd_buffer_save, for work. Allocations may wait for the
 * driver or the worker process, and at a limit until memory becomes free (heddle/memory.h). hd_free
 * waits only as its comment says. All other calls return at once.
 */
#ifndef HEDDLE_BUFFER_H
#define HEDDLE_BUFFER_H

#include <stddef.h>
#include <stdint.h>
#include <heddle/lane.h>

HD_BEGIN_DECLS

/* A buffer: tracked memory. */
typedef struct hd_buffer hd_buffer;

/* How an operation or the program uses bytes. */
typedef enum hd_access { HD_READ = 1, HD_WRITE = 2, HD_READ_WRITE = 3 } hd_access;

/* Allocates device memory on the lane's device. The caller owns it and frees it with hd_free. The
 * content is undefined. The memory is aligned to 256 bytes. `lane` should be the lane that uses it
 * first: memory that the same lane used last is reused without a wait. Calls the driver only if the
 * mapped memory must grow or move. Waits for running work only at the limit, as a last resort
 * before it fails (heddle/memory.h).
 * Errors: ARGUMENT (zero bytes, out is null), HANDLE, MEMORY, HOST_MEMORY, DEVICE_LOST, DRIVER. */
HD_API hd_status hd_alloc(hd_lane *lane, size_t bytes, hd_buffer **out);

/* Flags of hd_alloc_options. */
typedef enum hd_alloc_flags {
    HD_ALLOC_KEEP = 1,      /* keep a copy in pinned host memory, see hd_buffer_save */
    HD_ALLOC_DEDICATED = 2, /* one piece of physical memory, see hd_buffer_export */
    /* the former name, which release 0.4 removes */
    HD_ALLOC_ONE_PIECE = HD_ALLOC_DEDICATED
} hd_alloc_flags;

/* Options of hd_alloc_with. */
typedef struct hd_alloc_options {
    size_t size;       /* sizeof(hd_alloc_options) */
    unsigned flags;    /* hd_alloc_flags, or 0 */
    const char *label; /* for messages and reports, copied (HD_LABEL_BYTES); NULL: none */
} hd_alloc_options;

/* hd_alloc with options; NULL: none. HD_ALLOC_KEEP takes twice the size in pinned host memory.
 *
 * HD_ALLOC_DEDICATED is for libraries that register memory, and for hd_buffer_export
 * (heddle/import.h). Such a buffer does not come from Heddle's pool: it is one allocation of the
 * driver, in whole granules (2 MiB). Network cards may use it if the device allows that (RDMA). It
 * counts against memory_limit. After its last use its memory returns to the driver, and serves no
 * other buffer. Each such buffer costs driver calls, so use it for memory that you keep. At the
 * limit the call releases idle memory for it, and waits as hd_alloc does. memory_debug puts no
 * guards around it. It cannot be combined with other flags.
 *
 * Errors: as hd_alloc; DRIVER or SYSTEM (for pinned memory), ARGUMENT (unknown flags, or flags that
 * do not go together). */
HD_API hd_status hd_alloc_with(hd_lane *lane, size_t bytes, const hd_alloc_options *options, hd_buffer **out);

/* Copies the whole content of a buffer with HD_ALLOC_KEEP to its copy in pinned memory. The copy
 * runs in the library's lane for copies to the host, after all writes submitted earlier.
 * Asynchronous, except that it
 * waits (option transfer_timeout) for an earlier save of the same buffer to finish. *out (may be
 * NULL) is its ticket.
 *
 * Guarantee: when hd_device_restart returns HD_OK, the buffer contains exactly the content of the
 * last save *finished before the loss*. A save counts once hd_done returns true for its ticket and
 * hd_wait returns HD_OK. A save under way during the loss does not count and damages nothing, since
 * saves alternate between two copies. Writes after the last counted save are lost. A buffer that
 * was never saved stays lost, like a buffer without HD_ALLOC_KEEP. The buffer's device address may
 * change with a restart. The copies live in this process and do not survive it.
 * Errors: ARGUMENT (the buffer keeps no copy), HANDLE, TIMEOUT, FAILED, DEVICE_LOST,
 * HOST_MEMORY. */
HD_API hd_status hd_buffer_save(hd_buffer *buffer, hd_ticket *out);

/* Allocates pinned host memory that every device of the runtime can use directly and the program
 * can map. The caller owns it and frees it with hd_free. The content is undefined. Aligned to the
 * page size. It comes from a pool, which pins more (0.3 ms per MiB) only if nothing fits. The pool
 * keeps freed memory. After memory_idle milliseconds without new pinning it releases idle memory.
 * While the program still allocates, it keeps part of its idle memory. hd_memory_trim releases all
 * idle memory at once. If earlier work on the memory is not finished, the buffer's first use waits
 * for it. The option pinned_limit bounds pinned memory, including Heddle's own.
 * Errors: ARGUMENT, HANDLE, HOST_MEMORY (also: the limit), DRIVER, SYSTEM, DEVICE_LOST (no device
 * is left), UNSUPPORTED (placement process: a device has pinned memory at another address than the
 * program). */
HD_API hd_status hd_alloc_host(hd_runtime *runtime, size_t bytes, hd_buffer **out);

/* Frees a buffer at once, even while submitted work uses it: that work keeps the memory until it is
 * finished. Does not block, except while hd_device_restart restores this very buffer, and with the
 * option memory_debug (heddle/memory.h). NULL: nothing happens.
 * Errors: HANDLE (it was freed before, or its runtime closed); nothing happens then. */
HD_API hd_status hd_free(hd_buffer *buffer);

/* Returns the requested size in bytes; 0 for a bad handle. */
HD_API size_t hd_buffer_size(const hd_buffer *buffer);

/* Returns the owning device; -1 for pinned host memory, -2 for a bad handle. */
HD_API int hd_buffer_device(const hd_buffer *buffer);

/* Returns the address that kernels see; 0 for a bad handle. If other code uses this address, Heddle
 * does not order that work. */
HD_API uint64_t hd_buffer_address(const hd_buffer *buffer);

/* Returns a host pointer to the content of pinned or unified memory (heddle/unified.h). Waits
 * (option transfer_timeout) for submitted writers, and also for readers if `access` includes
 * HD_WRITE. The pointer stays valid until hd_unmap or hd_free. Later work on pinned memory is not
 * ordered against the program's own accesses: map again to wait again.
 * Errors: ARGUMENT, HANDLE, ACCESS (device memory: use hd_read, hd_write, hd_copy, or
 * hd_alloc_unified), TIMEOUT, FAILED, DEVICE_LOST. */
HD_API hd_status hd_map(hd_buffer *buffer, hd_access access, void **out);

/* Ends one hd_map. Errors: HANDLE. */
HD_API hd_status hd_unmap(hd_buffer *buffer);

/* Blocks until submitted writers are finished, and also readers if `access` includes HD_WRITE.
 * After that, no submitted work conflicts with this access. Blocks at most timeout_ns nanoseconds
 * (0: only checks, HD_FOREVER: no limit).
 * Errors: ARGUMENT, HANDLE, TIMEOUT, FAILED, DEVICE_LOST. */
HD_API hd_status hd_buffer_wait(hd_buffer *buffer, hd_access access, int64_t timeout_ns);

HD_END_DECLS
#endif
