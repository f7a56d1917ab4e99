/* heddle/claim.h - claims (bytes that something outside of Heddle uses), work in the program's own
 * streams, and functions of the program.
 *
 * A claim is an operation that the program begins and ends itself. A claim is for bytes that other
 * code uses: MPI, file access, code on the CPU, or work in the program's own stream. The program
 * states which bytes a claim uses, like the arguments of a launch (hd_in, hd_out, hd_inout, with
 * ranges). Heddle orders a claim like any other operation. When earlier work on these bytes is
 * finished, the claim is ready: the bytes then belong to the program. Later work on the bytes waits
 * until the program ends the claim. A claim has a ticket like any other operation. If a claim ends
 * with a failure, work that reads bytes written by the claim also fails. Work that waits for the
 * claim's ticket also fails. Other work goes on.
 *
 * All placements and host devices support claims. Claims on streams and hd_lane_run_native need the
 * driver in the program's process, and therefore do not work with placement=process.
 *
 * The program may free a buffer while a claim uses the buffer. Heddle may use the memory for a new
 * buffer at once; work on the new buffer then waits for the end of the claim.
 *
 * If the program never ends a claim, all work that needs its bytes waits. Reports, and the messages
 * of timeouts and of hd_close, name the claim by its label and by the place of the call that began
 * it. hd_close waits for open claims as it waits for work (option close_timeout). During this wait,
 * any thread may wait for claims and end them. After the time of close_timeout, hd_close ends the
 * remaining claims as failed, and leaves their memory as it is.
 *
 * Each open claim occupies a lane of its device. A device provides up to 160 lanes for claims. If
 * open claims occupy all of them, calls that begin a claim fail with LIMIT. If no lane is free, but
 * a lane's claim was ended, these calls wait for the lane's unfinished work. The device of a claim
 * is the device of its first use of device memory. If a claim uses no device memory, its device is
 * the first device that is not lost and has a free lane. If the device of a claim is lost, the
 * claim fails with DEVICE_LOST, even if the claim uses only pinned memory. If the bytes belong to
 * the program when the device is lost, they stay with the program until hd_claim_end. The bytes
 * that the claim should have written count as failed.
 *
 * Threads: any, even for the end of a claim that another thread began.
 * Blocking: hd_claim_wait waits for the bytes. Calls that begin a claim, hd_launch_host,
 * hd_lane_run_native and hd_lane_add_dependency do not wait for bytes. These calls may wait for
 * room in a full lane, for a free lane or for an earlier call (option submit_timeout), and for the
 * driver. For a claim on a stream, hd_claim_end calls the driver. If the driver refuses the stream,
 * hd_claim_end waits for the device. hd_claim_read and hd_claim_write wait as hd_copy does, and
 * hd_claim_end waits for their unfinished copies. All other calls return at once.
 */
#ifndef HEDDLE_CLAIM_H
#define HEDDLE_CLAIM_H

#include <heddle/module.h>

HD_BEGIN_DECLS

#define HD_REASON_BYTES 160 /* of hd_claim_fail */

/* A claim that the program began and did not end. */
typedef struct hd_claim hd_claim;

/* Options of a claim. */
typedef struct hd_claim_options {
    size_t size; /* sizeof(hd_claim_options) */
    /* For messages and reports. Heddle keeps a copy of at most HD_LABEL_BYTES, with the terminating
     * zero. NULL: none. */
    const char *label;
    /* The program will call hd_claim_read or hd_claim_write with this claim. A claim on a stream
     * cannot set it (ARGUMENT). */
    bool copies;
} hd_claim_options;

/* Begins a claim. `uses` contains up to 128 arguments, all of them buffers. The call reads `uses`
 * before it returns. If `uses` is empty, only work that waits for the claim's ticket waits for the
 * claim. For a use of unified memory, the call claims the host's copy of the bytes. Heddle moves
 * bytes that are newer on the device to the host, and moves them back when a device needs them.
 *
 * The call does not wait for the bytes. Work that was submitted before the call comes before the
 * claim, and work that is submitted after the call comes after the claim. The caller owns *out
 * until hd_claim_end. Any thread may wait for a claim, and any thread may end it.
 * Errors: ARGUMENT (null, a use that is no buffer), HANDLE (a buffer that was freed or is of
 * another runtime), RANGE, ACCESS (mapped unified memory), LIMIT (more than 128 uses, or no lane is
 * left: end claims), FAILED or DEVICE_LOST (a failed operation wrote bytes that the claim reads),
 * MEMORY, HOST_MEMORY, DRIVER, TIMEOUT (option submit_timeout). After an error, there is no claim:
 * the bytes are unchanged, and later work does not wait. */
HD_API hd_status hd_claim_begin(hd_runtime *runtime, const hd_arg *uses, size_t n_uses, hd_claim **out);
/* Begins a claim as hd_claim_begin does, with options (NULL: none). The caller owns *out until
 * hd_claim_end. Errors: as hd_claim_begin. */
HD_API hd_status hd_claim_begin_with(hd_runtime *runtime, const hd_arg *uses, size_t n_uses,
                                     const hd_claim_options *options, hd_claim **out);

/* True if the wait for the bytes is over, with or without success: hd_claim_wait would return at
 * once. The call never blocks, and costs as much as hd_done. The result is true for a bad handle.
 * With placement=inline, a loop that only calls hd_claim_ready may never end (heddle/lane.h). */
HD_API bool hd_claim_ready(const hd_claim *claim);

/* Blocks until the bytes belong to the program, at most timeout_ns nanoseconds (0: only checks;
 * HD_FOREVER: no limit). After a failure, the bytes do not belong to the program, but the program
 * must still end the claim. If the device is lost after the claim was ready, the call returns
 * DEVICE_LOST, but the bytes belong to the program until hd_claim_end.
 * Errors: HANDLE; ARGUMENT (a bad limit); TIMEOUT; FAILED or DEVICE_LOST (a failed operation wrote
 * bytes that the claim reads, or the claim's device is lost). */
HD_API hd_status hd_claim_wait(hd_claim *claim, int64_t timeout_ns);

/* A function for hd_claim_on_ready. `status` is HD_OK or the failure that hd_claim_wait returns.
 * The function may call Heddle, and may end the claim. */
typedef void (*hd_claim_function)(hd_claim *claim, hd_status status, void *context);

/* Makes a thread of Heddle call `function` once, as soon as hd_claim_ready returns true (option
 * call_threads). If the claim ends before that, Heddle does not call the function. A claim can have
 * only one function.
 * Errors: ARGUMENT (null, or the claim has a function already), HANDLE, HOST_MEMORY, SYSTEM (no
 * thread). */
HD_API hd_status hd_claim_on_ready(hd_claim *claim, hd_claim_function function, void *context);

/* Returns the host address of the claim's use `index`, which must be of pinned or unified memory.
 * The address is valid until the end of the claim. Do not call hd_map instead: hd_map would wait
 * for the end of the claim.
 * Errors: ARGUMENT, HANDLE, RANGE (no such use), ACCESS (device memory: use hd_buffer_address). */
HD_API hd_status hd_claim_get_pointer(hd_claim *claim, size_t index, void **out);

/* Copies bytes between device memory that a claim uses and another buffer, such as pinned memory.
 * hd_claim_read copies from the claimed bytes to `dst`, and hd_claim_write copies from `src` to the
 * claimed bytes. `index` is the number of the use, and `offset` counts from its first byte. Both
 * calls submit a copy like hd_copy, and *out (may be NULL) is its ticket.
 *
 * The copy does not wait for the claim, because the claimed bytes belong to the program. It waits
 * for earlier uses of the other buffer's bytes. It also waits for earlier copies of this claim that
 * use the same claimed bytes. If a copy fails, only its ticket and the readers of `dst` fail: the
 * program decides how it ends the claim. hd_claim_end waits for copies that are unfinished.
 * Errors: as hd_copy; HANDLE (the claim was ended), TIMEOUT (the claim is not ready), FAILED or
 * DEVICE_LOST (as hd_claim_wait), ARGUMENT (the claim began without the option `copies`), RANGE (no
 * such use or bytes), ACCESS (pinned or unified memory: use hd_claim_get_pointer; or hd_claim_write
 * to bytes that the claim only reads). */
HD_API hd_status hd_claim_read(hd_claim *claim, size_t index, size_t offset, hd_buffer *dst, size_t dst_offset,
                               size_t bytes, hd_ticket *out);
HD_API hd_status hd_claim_write(hd_claim *claim, size_t index, size_t offset, hd_buffer *src, size_t src_offset,
                                size_t bytes, hd_ticket *out);

/* Returns the claim's ticket. The ticket is done when the claim ends. The ticket's outcome is the
 * outcome that the program passes to hd_claim_end. If the claim failed before that (hd_claim_wait),
 * its failure stays.
 * Errors: ARGUMENT, HANDLE. */
HD_API hd_status hd_claim_get_ticket(hd_claim *claim, hd_ticket *out);

/* Ends a claim: the program no longer uses the bytes. `outcome` is HD_OK, or a status below 0 with
 * which the claim's writes fail. The program may also end a claim before the claim is ready: later
 * work on the bytes still waits for the earlier work. The call blocks in two cases. It waits for
 * unfinished copies of hd_claim_read and hd_claim_write (option transfer_timeout). If the driver
 * refuses the claim's stream, it waits for the device.
 *
 * If the program is capturing the claim's stream, it must end the capture before this call. The
 * thread that began a claim on stream 2 (hd_claim_begin_stream) should also end it. If another
 * thread ends such a claim, the claim also waits for the earlier work in the default streams of all
 * threads.
 * Errors: HANDLE (the claim was ended before), ARGUMENT (`outcome` is no status), TIMEOUT (a copy
 * of the claim is unfinished; the claim stays open). For a claim on a stream also: HANDLE (the
 * stream was destroyed meanwhile), UNSUPPORTED (the stream is being captured), DRIVER, DEVICE_LOST.
 * After such an error of the stream, the claim ends as failed, once the capture is over and the
 * device's work is finished. */
HD_API hd_status hd_claim_end(hd_claim *claim, hd_status outcome);
/* Ends a claim as hd_claim_end does, with a failure and its reason. The messages of the claim's
 * ticket, and of all work that fails with it, contain the reason. Heddle keeps a copy of at most
 * HD_REASON_BYTES, with the terminating zero; control characters become spaces. `outcome` is a
 * status below 0. If `reason` is NULL, the call is hd_claim_end. A runtime keeps at most 4096
 * different failures of claims. For failures beyond this number, the messages name the last one.
 * Errors: as hd_claim_end; ARGUMENT (`outcome` is HD_OK). */
HD_API hd_status hd_claim_fail(hd_claim *claim, hd_status outcome, const char *reason);

/* Begins a claim for work that the program puts into its own stream, a CUstream or cudaStream_t.
 * `device` is the number of the stream's device. If the program then puts work into the stream,
 * this work runs after the earlier work on the claimed bytes. The claim ends when the work that the
 * program put into the stream before hd_claim_end is finished.
 *
 * The call waits until the engine gives the earlier work to the driver, at most for the time of the
 * option submit_timeout. The call waits for the device only if no CUDA event marks the end of that
 * work, and Heddle can no longer record one. Work that the program puts into the stream between two
 * claims keeps its place in the stream.
 *
 * `stream` may also be NULL or 1 for the legacy default stream, or 2 for the default stream of the
 * calling thread. The stream must exist until the claim ends. For a use of unified memory, the call
 * claims the device's copy of the bytes; hd_buffer_address returns its address. `options` may be
 * NULL. The caller owns *out until hd_claim_end.
 * Errors: as hd_claim_begin; NO_DEVICE, UNSUPPORTED (placement=process; a stream that is being
 * captured), ARGUMENT (a stream of another device), UNREACHABLE (memory of a device that `device`
 * cannot reach), MEMORY (there is not enough memory to map another device's memory), TIMEOUT. */
HD_API hd_status hd_claim_begin_stream(hd_runtime *runtime, int device, void *stream, const hd_arg *uses, size_t n_uses,
                                       const hd_claim_options *options, hd_claim **out);

/* A function for hd_lane_run_native. `stream` is the lane's CUstream, and the device's context is
 * current. The function puts work into that stream. The function returns HD_OK, or a status below
 * 0. With a status below 0, the lane call fails, and the lane refuses work until hd_lane_reset. */
typedef hd_status (*hd_lane_function)(void *stream, void *context);

/* Submits a lane call: an operation in a lane for which the engine calls a function of the program.
 * The engine calls the function when the operation's turn comes, instead of calling the driver.
 * Lane calls are for libraries that take a stream: cuFFT, cuDNN, cuSPARSE, NCCL. `uses` are the
 * buffers that the function's work uses. *out (may be NULL) is the ticket of the call. The ticket
 * is done when the work that the function put into the stream is done. `context` must stay valid
 * until the ticket is done.
 *
 * The function runs on the engine's thread (placement=inline: on a thread that submits or waits).
 * All lanes of the device wait until the function returns. The function must not wait for the
 * device, and must return soon.
 *
 * The function must not call Heddle either: in every placement, calls from the function do nothing
 * and return HANDLE. Three kinds of calls are exceptions:
 *   - calls that return a fact instead of a status, such as hd_done, hd_claim_ready,
 *     hd_buffer_address and hd_message
 *   - calls for tensors and tickets that do not touch the runtime, such as hd_tensor_slice and
 *     hd_lane_get_ticket
 *   - hd_wait for a ticket that is already done without failure, which returns HD_OK
 *
 * The engine does not call the function if a failed operation wrote bytes that the function reads.
 * If kernels of several lane calls wait for each other, as those of NCCL do, submit these calls
 * directly one after the other (docs/guide/claims.md).
 * Errors: as hd_launch (but not those of kernels), UNSUPPORTED (placement=process). */
HD_API hd_status hd_lane_run_native(hd_lane *lane, hd_lane_function function, void *context, const hd_arg *uses,
                                    size_t n_uses, hd_ticket *out);

/* A function for hd_launch_host. pointers[i] is the start of use i in pinned or unified memory, and
 * NULL for a use of device memory. The function returns HD_OK, or a status below 0 with which its
 * writes fail. The function may call Heddle and wait. The function must not wait for the bytes that
 * it uses itself, for example in hd_map, because this wait would never end. */
typedef hd_status (*hd_host_function)(void *const *pointers, void *context);

/* Submits a host call: a function of the program that a thread of Heddle runs once earlier work on
 * its bytes is finished. The host call is a claim that ends when the function returns. Heddle
 * therefore orders the function like all other work. *out (may be NULL) is the ticket of the call.
 * `context` must stay valid until the ticket is done. Heddle does not call the function if a failed
 * operation wrote bytes that the function reads.
 *
 * The option call_threads limits how many functions run at the same time. Functions that wait in a
 * call of Heddle do not count, so functions may wait for each other. When such a wait ends, more
 * functions than the option allows may run for a short time.
 *
 * The call blocks while 64 host calls are unfinished (option submit_timeout). In a function that
 * Heddle runs, the call fails with LIMIT instead of blocking. hd_close waits for submitted host
 * calls (option close_timeout). During this wait, their functions may still call Heddle.
 * Errors: as hd_claim_begin; SYSTEM (no thread), TIMEOUT. */
HD_API hd_status hd_launch_host(hd_runtime *runtime, hd_host_function function, void *context, const hd_arg *uses,
                                size_t n_uses, hd_ticket *out);

/* Makes a lane wait for a ticket. Later work in the lane begins only when the ticket is done, and
 * fails if the ticket failed. The ticket may be that of any operation or claim of the same runtime.
 * *out (may be NULL) is the ticket of the wait. The call itself does not wait for `ticket`.
 * Errors: HANDLE, ARGUMENT (a ticket of another runtime, or one that was never given out),
 * NOT_FOUND (the ticket's outcome is forgotten, see hd_ticket), LANE_FAILED, DEVICE_LOST,
 * HOST_MEMORY, TIMEOUT. */
HD_API hd_status hd_lane_add_dependency(hd_lane *lane, hd_ticket ticket, hd_ticket *out);

HD_END_DECLS
#endif
