/* heddle/mpi.h - buffers and tensors as operands of MPI, ordered like all other work.
 *
 * This header contains its own implementation, and the program's `mpicc` compiles it. So it works
 * with every MPI of version 3 or later, and the library does not depend on MPI. The program calls
 * MPI_Init_thread and MPI_Finalize, starts its ranks with mpiexec or srun, and uses its own
 * communicators.
 *
 * Every call below submits an operation, like hd_copy: it does not wait for the bytes, and *out is
 * the ticket. A send reads its bytes from the call until the ticket is done, and a receive writes
 * them. So a send runs after the kernel that makes its bytes, and a kernel that reads received
 * bytes waits for the message. If an operation fails, its ticket fails, and later operations that
 * read its bytes fail, too. Everything else goes on.
 *
 * Memory: MPI reads and writes pinned and unified memory directly. For device memory, pieces of
 * `piece_bytes` pass through pinned memory, and copies overlap with the network. If MPI can use
 * device memory itself, hd_mpi_enable_direct lets it do so.
 *
 * Messages: a message of less than `piece_bytes` is one message of MPI, of type MPI_BYTE. So a rank
 * may also use MPI_Send or MPI_Recv for its side. A longer message is a sequence of messages with
 * the same tag. Each of them contains piece_bytes bytes, and the last one fewer, perhaps none. This
 * holds for all kinds of memory, so the two sides may use different kinds. All ranks must use the
 * same `piece_bytes`. The program must not use the same communicator, peer and tag for messages of
 * its own while such a sequence is under way.
 *
 * Order: MPI matches messages in the order in which they are posted. Heddle posts the messages with
 * the same communicator, peer and tag in the order of the calls. It posts the collective operations
 * of a communicator in the order of the calls, too. So all ranks must make their collective calls
 * on a communicator in the same order, as MPI demands. If several threads call, the program
 * determines that order. All of this holds among the calls with one hd_mpi object. So a
 * communicator belongs to the first object that uses it, until hd_mpi_close. Calls with another
 * object fail with ACCESS; give that object a copy of the communicator (MPI_Comm_dup). Messages
 * with other tags, to other peers or on other communicators do not wait for each other.
 *
 * Limits: an operation is a claim (heddle/claim.h). So a device takes up to 160 unfinished
 * operations, and further calls fail with LIMIT until one of them is done. An operation on device
 * memory holds pinned memory while MPI has its message: 64 KiB, or up to 4 times `piece_bytes` if
 * it is longer. Receives whose messages do not come hold at most a quarter of the option
 * pinned_limit. Further receives ask MPI for their messages without memory. So messages arrive
 * although others do not come. Operations that find no pinned memory wait until others give theirs
 * back, and calls do not wait for it.
 *
 * Lifetime: keep the communicator and the MPI_Op of an operation until its ticket is done. MPI
 * allows a program to free them earlier, but Heddle may not have given them to MPI yet. Free a
 * buffer only after its messages are done. If the program frees it earlier, Heddle may give the
 * memory to a new buffer at once. Operations on the new buffer then wait for the message. If one of
 * them is the receive for which the peer waits, no rank goes on.
 *
 * Failures of MPI: the error handler MPI_ERRORS_ARE_FATAL would end the program. The first call
 * with a communicator replaces this handler by MPI_ERRORS_RETURN.
 *
 * Failed data: if a send would read bytes that a failed operation should have written, the send's
 * ticket fails. Its receiver must not wait forever, so Heddle sends an empty message instead. A
 * receive without `status` then fails, since the size differs. In a collective operation, the rank
 * takes part with bytes of value 255, which are NaN in types of floating point. The same holds if
 * the failure is known before the call: the call succeeds, and its ticket fails.
 *
 * Progress: a thread of each hd_mpi object completes operations. It sleeps while none is under way.
 * hd_mpi_wait completes operations on the calling thread, with the latency of MPI.
 *
 * Traces: a rank's trace contains each message (docs/guide/traces.md). `heddle trace` needs the
 * files of all ranks to name who waited for whom. Give communicators with the same ranks different
 * names (MPI_Comm_set_name), unless all ranks use them for the first time in the same order.
 *
 * Threads: any, if MPI provides MPI_THREAD_MULTIPLE. With MPI_THREAD_SERIALIZED, the program names
 * a lock that it holds during its own calls of MPI (hd_mpi_options). While it holds the lock, no
 * message of Heddle makes progress. So it must not wait in MPI for a rank that waits for Heddle.
 * Blocking: calls that submit an operation block as hd_claim_begin does. hd_mpi_wait and
 * hd_mpi_close wait. hd_mpi_runtime_open and hd_mpi_trace_clock wait for the other ranks.
 */
#ifndef HEDDLE_MPI_H
#define HEDDLE_MPI_H

#include <mpi.h>
#include <pthread.h>
#include <time.h>
#include <heddle.h>

#ifndef CLOCK_MONOTONIC
#error "heddle/mpi.h uses POSIX: compile with -std=gnu11, or define _POSIX_C_SOURCE as 200809L before the first header"
#endif

HD_BEGIN_DECLS

/* The link between a runtime and MPI. */
typedef struct hd_mpi hd_mpi;

/* Options of hd_mpi_open. A field of 0 means the default. */
typedef struct hd_mpi_options {
    size_t size; /* sizeof(hd_mpi_options) */
    /* The bytes of a piece, at least 4096; the same on all ranks. 0: 1 MiB. With different values,
     * long messages fail: the message of the receive names both values, or the text of MPI does. */
    size_t piece_bytes;
    /* For MPI_THREAD_SERIALIZED: the program holds this lock during each of its own calls of MPI.
     * The lock must not be recursive. NULL: MPI provides MPI_THREAD_MULTIPLE. */
    pthread_mutex_t *lock;
    /* Nanoseconds after which an operation fails if none of its messages made progress. Only the
     * time counts during which MPI has a message of it, and in which Heddle asks MPI. MPI cannot
     * cancel sends and collective operations. So their tickets fail only when MPI gives the memory
     * back, or in hd_mpi_close. 0: never. */
    int64_t timeout_ns;
} hd_mpi_options;

/* Memory that an operation uses: bytes of a buffer, the elements of a tensor, or several of these.
 * Make it with hd_mpi_buffer, hd_mpi_range, hd_mpi_tensor or hd_mpi_each. */
typedef struct hd_mpi_data {
    hd_buffer *buffer;
    size_t offset, bytes;
    const hd_tensor *tensor;        /* NULL: bytes of the buffer. Only read during the call */
    const struct hd_mpi_data *each; /* not NULL: `n_each` operands. Only read during the call */
    size_t n_each;
} hd_mpi_data;

/* All bytes of a buffer. */
static inline hd_mpi_data hd_mpi_buffer(hd_buffer *buffer);
/* `bytes` bytes of a buffer, from `offset` on. */
static inline hd_mpi_data hd_mpi_range(hd_buffer *buffer, size_t offset, size_t bytes);
/* The elements of a tensor, in row-major order. If the elements do not lie next to each other,
 * Heddle copies them through temporary memory of the same device. */
static inline hd_mpi_data hd_mpi_tensor(const hd_tensor *tensor);
/* Operands of several devices of this rank, for a collective operation: 1 to 64, all of one size.
 * Each of them counts as a participant of its own (see below). */
static inline hd_mpi_data hd_mpi_each(const hd_mpi_data *each, size_t n_each);

/* ---- begin and end --------------------------------------------------------------------------- */

/* The place of a rank among the ranks of its machine: hd_mpi_runtime_open. */
typedef struct hd_mpi_place {
    int rank, ranks; /* among the ranks of this machine */
    int devices;     /* devices of this rank's runtime */
    int first;       /* number of the first of them among the devices that this rank sees */
    int shared;      /* the number of ranks that use the same devices */
} hd_mpi_place;

/* Opens a runtime on this rank's share of the machine's devices. The ranks of one machine divide
 * the devices in the order of their ranks. If the launcher shows each rank other GPUs, only ranks
 * that see the same GPUs divide them. If there are more ranks than devices, several ranks share a
 * device. Without a GPU, each rank works on host devices of its own. All ranks of `comm` must make
 * this call. `settings` is as in hd_options, and may be NULL; if it contains `devices=`, the call
 * opens these devices. *place (may be NULL) tells the share. The caller ends *out with hd_close.
 * The call sets the option `trace_rank` to the rank in MPI_COMM_WORLD, so each rank writes a trace
 * of its own. If a rank writes one, the call works as hd_mpi_trace_clock, too.
 * If the call fails on a rank, it fails on all ranks of `comm`. The others return the status of the
 * first such rank, and their message names it. So no rank waits for a rank that refused its
 * arguments.
 * Errors: as hd_open; ARGUMENT (null), SYSTEM (MPI failed), UNSUPPORTED (MPI is not initialized, or
 * was finalized; this rank alone returns it, as it does for MPI_COMM_NULL). */
static inline hd_status hd_mpi_runtime_open(MPI_Comm comm, const char *settings, hd_runtime **out, hd_mpi_place *place);

/* Links a runtime to MPI, and starts the progress thread. `options` may be NULL. The caller ends
 * *out with hd_mpi_close, before hd_close and before MPI_Finalize. If hd_close comes first, it
 * waits for the operations as for other claims (option close_timeout), and its message names those
 * that remain. Their memory is left as it is, since MPI may still write to it.
 * Errors: ARGUMENT (null, sizes), HANDLE, HOST_MEMORY, SYSTEM (no thread), UNSUPPORTED (MPI was not
 * initialized; MPI provides MPI_THREAD_SINGLE or MPI_THREAD_FUNNELED; or it provides
 * MPI_THREAD_SERIALIZED, and options.lock is NULL). */
static inline hd_status hd_mpi_open(hd_runtime *runtime, const hd_mpi_options *options, hd_mpi **out);

/* Waits until all operations are done, at most timeout_ns nanoseconds (HD_FOREVER: no limit), and
 * gives everything back. After that time, the remaining operations fail with TIMEOUT, and the call
 * returns TIMEOUT with a message that names the first of them. If MPI cannot cancel a message, the
 * pinned memory of its pieces is never given back, and the program must keep its own memory. Other
 * threads must make no calls with `mpi` during this call. If `mpi` is NULL, nothing happens.
 *
 * Afterwards, calls with `mpi` fail with HANDLE, unless a later hd_mpi_open returned the same
 * pointer. If MPI_Finalize comes first, the remaining operations fail, calls with `mpi` fail with
 * UNSUPPORTED, and hd_mpi_close still gives everything back and returns UNSUPPORTED. */
static inline hd_status hd_mpi_close(hd_mpi *mpi, int64_t timeout_ns);

/* Waits for a ticket as hd_wait does, and completes operations meanwhile. The call uses a processor
 * during the first microseconds of a wait. Errors: as hd_wait. */
static inline hd_status hd_mpi_wait(hd_mpi *mpi, hd_ticket ticket, int64_t timeout_ns);

/* Lets MPI read and write device memory itself in messages of `comm`, between all ranks where a
 * test passes. The call asks MPI whether it can use device memory, and does not trust the answer.
 * It sends test messages of several sizes between all ranks of `comm`, from and to the memory of
 * each device. The rank that owns the memory compares the bytes. Messages with a rank go directly
 * only if all bytes arrived in both directions. All other messages, and all collective operations,
 * pass through pinned memory, as without this call.
 *
 * All ranks of `comm` must make this call, and the call waits for all of them. It takes a few
 * milliseconds for each rank. *out (may be NULL) is the number of ranks with which messages go
 * directly; this rank counts, too. It is 0 if MPI cannot use device memory, and with
 * placement=process. A communicator that is made from `comm` needs a call of its own.
 * Errors: ARGUMENT (null), UNSUPPORTED (an intercommunicator), HOST_MEMORY, SYSTEM (MPI failed). */
static inline hd_status hd_mpi_enable_direct(hd_mpi *mpi, MPI_Comm comm, int *out);

/* Compares the clocks of all ranks of `comm` with that of its rank 0, and tells the result to the
 * runtime's traces (hd_trace_set_rank). The error is at most half of the shortest of several round
 * trips. All ranks of `comm` must make this call. A program that opens its runtime by hd_open makes
 * the call once, before the traced work. Call it again at the end of a long trace, since clocks of
 * machines drift.
 * Errors: ARGUMENT (the communicator is MPI_COMM_NULL), HANDLE, SYSTEM (MPI failed). */
static inline hd_status hd_mpi_trace_clock(MPI_Comm comm, hd_runtime *runtime);

/* ---- messages -------------------------------------------------------------------------------- */

/* All calls below may fail as hd_claim_begin does, before anything is posted. Then there is no
 * operation. `out` may be NULL.
 * Errors: ARGUMENT (null; a rank, tag, type or operation that MPI does not allow, or wrong sizes),
 * HANDLE, RANGE, LIMIT, ACCESS (another object uses the communicator), UNSUPPORTED (MPI was
 * finalized). hd_mpi_bcast and hd_mpi_reduce do not take intercommunicators
 * (UNSUPPORTED). */

/* Sends bytes to rank `to` of `comm`. `to` may be MPI_PROC_NULL. */
static inline hd_status hd_mpi_send(hd_mpi *mpi, hd_mpi_data data, int to, int tag, MPI_Comm comm, hd_ticket *out);

/* Receives a message from rank `from` of `comm`. `from` may be MPI_ANY_SOURCE or MPI_PROC_NULL, and
 * `tag` may be MPI_ANY_TAG. The message must be exactly as long as `data`; otherwise the ticket
 * fails. If `status` is not NULL, the message may also be shorter. When the ticket is done, *status
 * is the status of the last part, with its source and tag. Then *received (may be NULL) is the
 * number of bytes. Both must stay valid until then. */
static inline hd_status hd_mpi_recv(hd_mpi *mpi, hd_mpi_data data, int from, int tag, MPI_Comm comm, MPI_Status *status,
                                    size_t *received, hd_ticket *out);

/* Sends and receives, as hd_mpi_send and hd_mpi_recv do, in one call. `sent` and `received` must
 * not overlap. If an argument is wrong, neither happens. If only the receive is refused, for lack
 * of memory or lanes, the send goes on, and *out_sent is its ticket. The operations do not wait for
 * each other. */
static inline hd_status hd_mpi_sendrecv(hd_mpi *mpi, hd_mpi_data sent, int to, int send_tag, hd_mpi_data received,
                                        int from, int receive_tag, MPI_Comm comm, hd_ticket *out_sent,
                                        hd_ticket *out_received);

/* ---- collective operations: every rank of the communicator calls them in the same order ------ */

/* A rank with several devices may pass hd_mpi_each. Then each operand is a participant, as if each
 * device were a rank. With n operands on each rank, operand i of rank r is participant r * n + i.
 * Heddle first works between the devices of a rank, then MPI works between the ranks. All ranks
 * pass the same number of operands; for hd_mpi_bcast, the numbers may differ. Heddle always adds
 * numbers of floating point in the same order. If such a call fails for lack of memory or lanes,
 * `received` may contain anything. */

/* Copies the bytes of rank `root` to all other ranks. The size of `data` is the same on all
 * ranks. With hd_mpi_each, the first operand of the root goes to all other operands. */
static inline hd_status hd_mpi_bcast(hd_mpi *mpi, hd_mpi_data data, int root, MPI_Comm comm, hd_ticket *out);

/* Combines the elements of all ranks with `op`. The result goes to rank `root`, or to all ranks.
 * `sent` and `received` are equally large, and are the same bytes or do not overlap. On ranks other
 * than `root`, hd_mpi_reduce ignores `received`. MPI does not know the types f16 and bf16
 * (UNSUPPORTED). With hd_mpi_each, `received` of hd_mpi_reduce is one operand. Then `op` is one of
 * MPI's sums, products, least and greatest values, and logical or bitwise operations. Products of
 * complex numbers are UNSUPPORTED. */
static inline hd_status hd_mpi_reduce(hd_mpi *mpi, hd_mpi_data sent, hd_mpi_data received, hd_type type, MPI_Op op,
                                      int root, MPI_Comm comm, hd_ticket *out);
static inline hd_status hd_mpi_allreduce(hd_mpi *mpi, hd_mpi_data sent, hd_mpi_data received, hd_type type, MPI_Op op,
                                         MPI_Comm comm, hd_ticket *out);

/* Puts the bytes of rank i at place i of `received` on all ranks. `received` is as large as `sent`
 * of all ranks together. */
static inline hd_status hd_mpi_allgather(hd_mpi *mpi, hd_mpi_data sent, hd_mpi_data received, MPI_Comm comm,
                                         hd_ticket *out);

/* Sends part i of `sent` to rank i, and puts the part that comes from rank i at place i of
 * `received`. Both are equally large, and divisible by the number of ranks. */
static inline hd_status hd_mpi_alltoall(hd_mpi *mpi, hd_mpi_data sent, hd_mpi_data received, MPI_Comm comm,
                                        hd_ticket *out);

/* The ticket is done when all ranks of `comm` made this call, and all earlier collective operations
 * of `comm` were posted. */
static inline hd_status hd_mpi_barrier(hd_mpi *mpi, MPI_Comm comm, hd_ticket *out);

HD_END_DECLS

#include <heddle/mpi/operation.h>
#include <heddle/mpi/link.h>
#include <heddle/mpi/slot.h>
#include <heddle/mpi/trace.h>
#include <heddle/mpi/piece.h>
#include <heddle/mpi/progress.h>
#include <heddle/mpi/call.h>
#include <heddle/mpi/direct.h>
#include <heddle/mpi/each.h>
#include <heddle/mpi/open.h>

#endif
