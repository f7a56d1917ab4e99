/* heddle/claim.h - claims (bytes that something outside of Heddle uses), work in the program's own
 * streams, and functions of the program in lanes.
 *
 * A claim is an operation whose begin and end the program decides. Examples are a request of MPI, a
 * file, code on the CPU, and work in the program's own stream. Its uses are given like the
 * arguments of a launch (hd_in, hd_out, hd_inout, with ranges), and are ordered like those of any
 * operation. Between `ready` and `end` the bytes belong to the program: earlier work is finished,
 * and later work waits. A claim has a ticket like any other operation. A claim that ends with a
 * failure fails the work that reads its bytes, and nothing else.
 *
 * Every placement supports claims, and host devices do, too. Streams, and functions that get a
 * stream, need the driver in the program's process, so they do not work with placement=process.
 *
 * A buffer may be freed while a claim uses it. Its memory may serve a new buffer at once, and work
 * on that buffer waits for the end of the claim.
 *
 * A claim that is never ended holds up all work that waits for its bytes. Timeouts, reports and
 * hd_close name it by its label and by the call that began it. hd_close waits for open claims as it
 * waits for work (option close_timeout). Within that time any thread may wait for them and end
 * them. After it, hd_close ends the remaining claims as failed, and leaves their memory as it is.
 *
 * Each open claim occupies a lane of its device. A device provides up to 160 lanes for claims:
 * LIMIT if none is left. The device is that of the first device memory among the claim's uses.
 * Without device memory it is the first device that is not lost and has a lane left. If that device
 * is lost, the claim fails, even if it uses pinned memory alone: hd_claim_wait and its ticket
 * return DEVICE_LOST. Bytes that belonged to the program stay with it until hd_claim_end, but the
 * claim's writes count as failed.
 *
 * Threads: any, also for the end of a claim that another thread began.
 * Blocking: hd_claim_wait, for the bytes. Calls that begin a claim, hd_launch_host,
 * hd_lane_run_native and hd_lane_add_dependency do not wait for bytes. They may wait for room in a
 * full lane, for a lane or for an earlier call (option submit_timeout), and they may call the
 * driver. hd_claim_end calls the driver for a claim on a stream, and may wait for the device if the
 * driver refuses the stream. All other calls return at once.
 */
#ifndef HEDDLE_CLAIM_H
#define HEDDLE_CLAIM_H

#include <heddle/module.h>

HD_BEGIN_DECLS

/* A claim that is not ended. */
typedef struct hd_claim hd_claim;

/* Options of a claim. */
typedef struct hd_claim_options {
    size_t size;       /* sizeof(hd_claim_options) */
    const char *label; /* for messages and reports, copied (HD_LABEL_BYTES); NULL: none */
} hd_claim_options;

/* Begins a claim. `uses` is read during the call, and contains only buffers; up to 128. A claim
 * without uses is ordered only by work that waits for its ticket. For unified memory the call
 * claims the host's bytes. Heddle fetches bytes that are newer on the device, and moves them back
 * when a device needs them.
 *
 * Does not wait for the bytes. The order is settled when it returns. The caller
 * owns *out until hd_claim_end. Any thread may wait for a claim, and any may end it.
 * Errors: ARGUMENT (null, a use that is no buffer), HANDLE (a freed buffer, or one of another
 * runtime), RANGE, ACCESS (mapped unified memory), LIMIT (more than 128 uses, or no lane is left:
 * end claims), FAILED or DEVICE_LOST (data that it reads failed), MEMORY, HOST_MEMORY, DRIVER,
 * TIMEOUT (option submit_timeout). After an error nothing has begun: the bytes are unchanged, and
 * later work does not wait. */
HD_API hd_status hd_claim_begin(hd_runtime *runtime, const hd_arg *uses, size_t n_uses, hd_claim **out);
/* hd_claim_begin with options; NULL: none. Errors: as hd_claim_begin. */
HD_API hd_status hd_claim_begin_with(hd_runtime *runtime, const hd_arg *uses, size_t n_uses,
                                     const hd_claim_options *options, hd_claim **out);

/* True if the wait for the bytes is over, with or without success: hd_claim_wait would return at
 * once. One load; never blocks. True for a bad handle. With placement=inline polling alone never
 * makes it true (heddle/lane.h). */
HD_API bool hd_claim_ready(const hd_claim *claim);

/* Blocks until the bytes belong to the program, at most timeout_ns nanoseconds (0: only checks,
 * HD_FOREVER: no limit). After a failure the bytes do not belong to the program; end the claim
 * nevertheless. Errors: HANDLE, TIMEOUT; FAILED or DEVICE_LOST (data that it reads failed, or its
 * device is lost). */
HD_API hd_status hd_claim_wait(hd_claim *claim, int64_t timeout_ns);

/* Called at most once, with HD_OK or the failure that hd_claim_wait returns. It may call Heddle,
 * and may end the claim. */
typedef void (*hd_claim_function)(hd_claim *claim, hd_status status, void *context);

/* Calls `function` once hd_claim_wait would no longer block, on a thread of Heddle (option
 * call_threads). Only one function per claim. It is not called if the claim is ended before.
 * Errors: ARGUMENT (null, or asked before), HANDLE, HOST_MEMORY, SYSTEM (no thread). */
HD_API hd_status hd_claim_on_ready(hd_claim *claim, hd_claim_function function, void *context);

/* Returns the host address of the claim's use `index`, in pinned or unified memory. Valid until the
 * end of the claim. (hd_map would wait for the claim.)
 * Errors: ARGUMENT, HANDLE, RANGE (no such use), ACCESS (device memory: hd_buffer_address returns
 * its address). */
HD_API hd_status hd_claim_get_pointer(hd_claim *claim, size_t index, void **out);

/* Returns the claim's ticket. It is done once the claim is ended, with the outcome that was passed
 * to hd_claim_end.
 * Errors: ARGUMENT, HANDLE. */
HD_API hd_status hd_claim_get_ticket(hd_claim *claim, hd_ticket *out);

/* Ends a claim: the program no longer uses its bytes. `outcome`: HD_OK, or a status below 0, with
 * which the claim's writes fail. May be called before the claim is ready, which does not change the
 * order. Does not block, unless the driver refuses the stream: then it waits for the device. End a
 * capture of the claim's stream first. A claim on stream 2 should be ended by the thread that began
 * it. If another thread ends it, it ends behind the default streams of all threads.
 * Errors: HANDLE (ended before), ARGUMENT (no outcome). For a claim on a stream also: HANDLE (the
 * stream was destroyed meanwhile), UNSUPPORTED (it is being captured), DRIVER, DEVICE_LOST. The
 * claim then ends with that failure, as soon as the device finishes its work. */
HD_API hd_status hd_claim_end(hd_claim *claim, hd_status outcome);

/* Begins a claim for work that the program puts into its own stream, a CUstream or cudaStream_t, on
 * the device `device` of the runtime. Work that is put there from now on runs after everything that
 * the uses wait for. The claim ends when the work that was put there before hd_claim_end is
 * finished.
 *
 * This call waits until the engine has given the earlier work to the driver, for at most
 * submit_timeout. It waits for the device only if no event is left. Work that the program enqueues
 * between two claims keeps its stream order.
 *
 * `stream` may be NULL or 1, the legacy default stream, or 2, the default stream of the calling
 * thread. The stream must live until the end. For unified memory the call claims the device's
 * bytes; hd_buffer_address returns their address.
 * Errors: as hd_claim_begin; NO_DEVICE, UNSUPPORTED (placement=process; a stream that is being
 * captured), ARGUMENT (a stream of another device), UNREACHABLE (memory of a device that `device`
 * cannot reach), TIMEOUT. */
HD_API hd_status hd_claim_begin_stream(hd_runtime *runtime, int device, void *stream, const hd_arg *uses, size_t n_uses,
                                       const hd_claim_options *options, hd_claim **out);

/* A function for hd_lane_run_native. `stream` is the lane's CUstream, and the device's context is
 * current. The function enqueues work in that stream. It returns HD_OK, or a status below 0: then
 * the call fails, and with it the lane. */
typedef hd_status (*hd_lane_function)(void *stream, void *context);

/* Submits a lane call, a function of the program, to a lane. The lane's engine calls the function
 * at its turn, where it would issue a launch. It is for libraries that take a stream: cuFFT, cuDNN,
 * cuSPARSE, NCCL. `uses` are the buffers that its work uses. *out (may be NULL) is its ticket,
 * which is done when that work is. `context` must stay valid until then.
 *
 * The function runs on the engine's thread (placement=inline: on a thread that submits or waits).
 * All lanes of the device wait for it meanwhile. It must not wait for the device, nor take long. It
 * must not call Heddle either. Such calls do nothing and return HANDLE, in every placement. Calls
 * that only ask, and return no status, are allowed, such as hd_done, hd_claim_ready,
 * hd_buffer_address and hd_message. Inside the function, hd_wait returns HD_OK for a ticket that is
 * already done without failure. Calls for tensors and tickets that do not touch the runtime are
 * allowed, too, such as hd_tensor_slice and hd_lane_get_ticket.
 *
 * The function is not called if data that it reads failed. If kernels of several calls wait for
 * each other, as those of NCCL do, submit these calls one directly after the other
 * (docs/guide/claims.md).
 * Errors: as hd_launch (but not those of kernels), UNSUPPORTED (placement=process). */
HD_API hd_status hd_lane_run_native(hd_lane *lane, hd_lane_function function, void *context, const hd_arg *uses,
                                    size_t n_uses, hd_ticket *out);

/* A function for hd_launch_host. pointers[i] is the start of use i in pinned or unified memory;
 * NULL for device memory. It returns HD_OK, or a status below 0, with which its writes fail. It may
 * call Heddle and wait, but must not wait for its own bytes, as hd_map would. */
typedef hd_status (*hd_host_function)(void *const *pointers, void *context);

/* Submits a host call, a function of the program. It runs on a thread of Heddle once its bytes are
 * there. The call is a claim that ends when the function returns. So the program's CPU code is
 * ordered with everything else. *out (may be NULL) is its ticket. `context` must stay valid until
 * the ticket is done. The function is not called if data that it reads failed.
 *
 * The option call_threads limits how many run at the same time. Functions that wait inside of
 * Heddle do not count, so functions may wait for each other. When a wait ends, more may run for a
 * moment.
 *
 * Blocks while 64 host calls are unfinished (option submit_timeout). Inside a function that Heddle
 * calls it fails with LIMIT instead. hd_close waits for submitted calls (option close_timeout).
 * Until that limit passes, the functions may still call Heddle.
 * Errors: as hd_claim_begin; SYSTEM (no thread), TIMEOUT. */
HD_API hd_status hd_launch_host(hd_runtime *runtime, hd_host_function function, void *context, const hd_arg *uses,
                                size_t n_uses, hd_ticket *out);

/* Makes the lane wait for a ticket. Work that is submitted to the lane from now on begins when the
 * ticket is done, and fails with it. The ticket may be of any lane, device or claim of the same
 * runtime. *out (may be NULL) is the ticket of the wait. Blocks only while the lane is full.
 * Errors: HANDLE, ARGUMENT (a ticket of another runtime, or one that was never given out),
 * LANE_FAILED, DEVICE_LOST, HOST_MEMORY, TIMEOUT. */
HD_API hd_status hd_lane_add_dependency(hd_lane *lane, hd_ticket ticket, hd_ticket *out);

HD_END_DECLS
#endif
