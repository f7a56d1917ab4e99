/* heddle/buffer.h - buffers: memory whose uses Heddle tracks and orders.
 *
 * Heddle records for each range of a buffer's bytes the last operation that writes these bytes, and
 * the operations that read them since that write. Every operation declares which bytes of which
 * buffers it uses, and whether it reads or writes them. By these rules, an operation waits for
 * earlier operations:
 *   - an operation that uses bytes waits for the last operation that writes them;
 *   - an operation that writes bytes also waits for the operations that read them after that write;
 *   - operations that only read never wait for each other, nor do operations on disjoint bytes.
 *
 * The operations wait in their lanes. The thread that submits an operation does not wait.
 *
 * An operation may also use a buffer of another device if its own device can reach that memory
 * (peer access). Without peer access, a launch fails with UNREACHABLE before it starts, and hd_copy
 * moves the bytes through pinned memory.
 *
 * If an operation that writes bytes fails, later reads of these bytes also fail, until another
 * operation writes the bytes. If the device of a buffer is lost, every call that uses the buffer's
 * content fails with DEVICE_LOST. After hd_device_restart, the program can use only those buffers
 * of the device that have a saved copy (hd_buffer_save).
 *
 * Threads: any.
 * Blocking: hd_map, hd_buffer_wait and hd_buffer_save wait for work. Allocations may wait for the
 * driver or the worker process, and at a limit until memory becomes free (heddle/memory.h). hd_free
 * waits only as its comment says. All other calls return at once.
 */
#ifndef HEDDLE_BUFFER_H
#define HEDDLE_BUFFER_H

#include <stddef.h>
#include <stdint.h>
#include <heddle/lane.h>

HD_BEGIN_DECLS

/* A buffer: memory whose uses Heddle tracks and orders. */
typedef struct hd_buffer hd_buffer;

/* How an operation or the program uses bytes. */
typedef enum hd_access { HD_READ = 1, HD_WRITE = 2, HD_READ_WRITE = 3 } hd_access;

/* Allocates memory on the lane's device. The caller owns the buffer and frees it with hd_free.
 * `bytes` is the buffer's size. The buffer's content is undefined, and its address is a multiple of
 * 256. Pass the lane that will be the first to use the buffer. If this lane was also the last to
 * use the memory, the lane's work need not wait. The call uses the driver only if it must map more
 * physical memory, or move physical memory to another place. The call waits for running work only
 * at the limit, as a last resort before it fails (heddle/memory.h).
 * Errors: ARGUMENT (zero bytes, out is null), HANDLE, MEMORY, HOST_MEMORY, DEVICE_LOST, DRIVER. */
HD_API hd_status hd_alloc(hd_lane *lane, size_t bytes, hd_buffer **out);

/* Flags of hd_alloc_options. */
typedef enum hd_alloc_flags {
    HD_ALLOC_KEEP = 1,      /* keep a copy in pinned host memory, see hd_buffer_save */
    HD_ALLOC_DEDICATED = 2, /* one piece of physical memory, see hd_buffer_export */
#ifndef HD_NO_DEPRECATED
    HD_ALLOC_ONE_PIECE = HD_ALLOC_DEDICATED /* the former name, which release 0.4 removes */
#endif
} hd_alloc_flags;

/* Options of hd_alloc_with. */
typedef struct hd_alloc_options {
    size_t size;    /* sizeof(hd_alloc_options) */
    unsigned flags; /* hd_alloc_flags, or 0 */
    /* For messages and reports. Heddle keeps a copy of at most HD_LABEL_BYTES, with the terminating
     * zero. NULL: none. */
    const char *label;
} hd_alloc_options;

/* Allocates as hd_alloc does, with options (NULL: none). The caller owns the buffer and frees it
 * with hd_free. A buffer with HD_ALLOC_KEEP also takes pinned host memory of twice its size.
 *
 * HD_ALLOC_DEDICATED is for hd_buffer_export (heddle/import.h), and for libraries that register
 * memory, such as those of network cards. The flag cannot be combined with other flags. A buffer
 * with this flag does not come from Heddle's pool. The buffer is one physical allocation of the
 * driver (a piece), whose size is a multiple of 2 MiB. Network cards may use this memory if the
 * device allows it (RDMA). The memory counts against the option memory_limit. After hd_free and the
 * last use, the memory returns to the driver. Each such buffer costs driver calls, so use the flag
 * for memory that you keep. At the limit, the call releases idle memory, and waits as hd_alloc
 * does. The option memory_debug puts no guards around the buffer.
 *
 * Errors: as hd_alloc; DRIVER or SYSTEM (from pinning memory), ARGUMENT (unknown flags, or flags
 * that do not go together). */
HD_API hd_status hd_alloc_with(hd_lane *lane, size_t bytes, const hd_alloc_options *options, hd_buffer **out);

/* Submits a save: a copy of the whole content of a buffer made with HD_ALLOC_KEEP to pinned memory.
 * The save runs in the library's lane for copies to the host, after all writes submitted earlier.
 * If an earlier save of the same buffer is unfinished, the call first waits for it (option
 * transfer_timeout). The call does not wait for the new save. *out (may be NULL) is the ticket of
 * the save.
 *
 * Guarantee: when hd_device_restart returns HD_OK, the buffer contains exactly the content of the
 * last save *finished before the loss*. A save counts as finished once its ticket is done and
 * hd_wait returns HD_OK for this ticket. Saves alternate between two copies, so a save under way
 * during the loss does not count, but leaves the save before it intact. Writes after the last
 * finished save are lost. A buffer that was never saved stays lost, like a buffer without
 * HD_ALLOC_KEEP. A restart may change the buffer's device address. The copies are in memory of this
 * process, and end with the process.
 * Errors: ARGUMENT (the buffer keeps no copy), HANDLE, TIMEOUT, FAILED, DEVICE_LOST,
 * HOST_MEMORY. */
HD_API hd_status hd_buffer_save(hd_buffer *buffer, hd_ticket *out);

/* Allocates pinned host memory. Every device of the runtime can use it directly, and the program
 * can map it (hd_map). The caller owns the buffer and frees it with hd_free. `bytes` is the
 * buffer's size. The buffer's content is undefined, and the buffer begins on a page boundary. If
 * unfinished work still uses the memory through a freed buffer, the first use of the new buffer
 * waits for that work.
 *
 * The memory comes from a pool, which pins more memory (0.3 ms per MiB) only if no free memory of
 * the pool fits. The pool keeps freed memory. If the pool did not grow for the time of the option
 * memory_idle, it releases idle memory. If the program allocated pinned memory during this time,
 * the pool keeps a part of its idle memory. hd_memory_trim releases all idle memory at once. The
 * option pinned_limit bounds all pinned memory, including the library's own.
 * Errors: ARGUMENT, HANDLE, HOST_MEMORY (also: the limit), DRIVER, SYSTEM, DEVICE_LOST (no device
 * is left), UNSUPPORTED (with placement=process, if a device sees pinned memory at another address
 * than the program). */
HD_API hd_status hd_alloc_host(hd_runtime *runtime, size_t bytes, hd_buffer **out);

/* Frees a buffer at once, even while submitted work uses it: the memory stays until that work is
 * finished. The call blocks only while hd_device_restart restores this buffer, or with the option
 * memory_debug (heddle/memory.h). If `buffer` is NULL, nothing happens.
 * Errors: HANDLE (the buffer was freed before, or its runtime closed; nothing happens). */
HD_API hd_status hd_free(hd_buffer *buffer);

/* Returns the requested size in bytes; 0 for a bad handle. */
HD_API size_t hd_buffer_size(const hd_buffer *buffer);

/* Returns the owning device; -1 for pinned host memory, -2 for a bad handle. */
HD_API int hd_buffer_device(const hd_buffer *buffer);

/* Returns the address at which kernels see the buffer; 0 for a bad handle. If code outside of
 * Heddle uses this address, Heddle does not order this use. */
HD_API uint64_t hd_buffer_address(const hd_buffer *buffer);

/* Returns a host pointer to the content of pinned or unified memory (heddle/unified.h). The call
 * waits (option transfer_timeout) for the submitted work that writes the buffer. If `access`
 * includes HD_WRITE, the call also waits for the submitted work that reads the buffer. The pointer
 * stays valid until hd_unmap or hd_free. Work on pinned memory that the program submits after
 * hd_map does not wait for the program's own accesses. To access the memory again after such work,
 * map the buffer again.
 * Errors: ARGUMENT, HANDLE, ACCESS (device memory: use hd_read, hd_write, hd_copy, or
 * hd_alloc_unified), TIMEOUT, FAILED, DEVICE_LOST. */
HD_API hd_status hd_map(hd_buffer *buffer, hd_access access, void **out);

/* Ends one hd_map of a buffer, on any thread. Call it once for each hd_map: a further call would
 * end the mapping of another thread. Mappings of pinned memory are not counted, so for pinned
 * memory the call changes nothing.
 * Errors: HANDLE, ACCESS (device memory, which has no mappings), ARGUMENT (unified memory that is
 * not mapped). */
HD_API hd_status hd_unmap(hd_buffer *buffer);

/* Blocks until the submitted work that writes the buffer is finished, at most timeout_ns
 * nanoseconds (0: only checks; HD_FOREVER: no limit). If `access` includes HD_WRITE, the call also
 * waits for the submitted work that reads the buffer. After a success, no work that was submitted
 * before the call conflicts with this access.
 * Errors: ARGUMENT, HANDLE, TIMEOUT, FAILED, DEVICE_LOST. */
HD_API hd_status hd_buffer_wait(hd_buffer *buffer, hd_access access, int64_t timeout_ns);

HD_END_DECLS
#endif
