/* heddle/claim.h - bytes that something outside of Heddle uses: claims, the program's own streams, and functions of the program in lanes.
 *
 * A claim is an operation whose begin and end the program decides.
 * Examples are a request of MPI, a file, code on the CPU, and work in a stream of the program's own.
 * Its uses are the arguments of a launch (hd_in, hd_out, hd_inout, with ranges), and are ordered like those of any operation.
 * Between `ready` and `end` the bytes are the program's: what was submitted before is finished, and what is submitted later waits.
 * A claim has a ticket like any other operation. A claim that is ended with a failure fails what reads its bytes, and nothing else.
 *
 * Every placement has claims, and so have host devices. Streams and functions that get one need the driver in the program's process: not
 * with placement=process.
 *
 * A buffer may be freed while a claim has it. Its memory may serve a new buffer at once, and work on that one waits for the end of the claim.
 *
 * A claim that is never ended holds up what waits for its bytes. Timeouts, reports and hd_close name it by its label and call.
 * hd_close waits for open claims as it waits for work (option close_timeout): until then any thread may wait for them and end them.
 * What is open then it ends as failed, and it leaves the memory that such a claim uses.
 * Each open claim has a lane of its device to itself, and a device has 160 for that: LIMIT where none is left.
 * Its device is that of the first device memory among its uses. Without any it is the first one that is not lost and has a lane left.
 * Where that device is lost, the claim fails: hd_claim_wait and its ticket return DEVICE_LOST, also where it has pinned memory alone. Bytes that
 * were the program's stay so until hd_claim_end. What the claim writes counts as failed then.
 */
#ifndef HEDDLE_CLAIM_H
#define HEDDLE_CLAIM_H

#include <heddle/module.h>

HD_BEGIN_DECLS

typedef struct hd_claim hd_claim;

typedef struct hd_claim_options {
    size_t size;       /* sizeof(hd_claim_options) */
    const char *label; /* for messages and reports, copied (HD_LABEL_BYTES); NULL: none */
} hd_claim_options;

/* Begins a claim. `uses` is read during the call, and holds buffers only; up to 128. None: an operation that orders by its ticket alone.
 * Of unified memory the host's bytes are claimed. They come from the device where they are newer there, and go back where they are needed.
 * Returns at once: it does not wait for the bytes. The order is settled when it returns.
 * *out is the caller's until hd_claim_end. Any thread may wait for a claim, and any may end it.
 * Errors: ARGUMENT (null, a use that is no buffer), HANDLE (a freed buffer, or one of another runtime), RANGE, ACCESS (mapped unified memory),
 * LIMIT (more than 128 uses, or no lane is left: end claims), FAILED or DEVICE_LOST (what it reads has failed), MEMORY, HOST_MEMORY, DRIVER,
 * TIMEOUT (option submit_timeout). Then nothing has begun. */
HD_API hd_status hd_claim_begin(hd_runtime *runtime, const hd_arg *uses, size_t n_uses, hd_claim **out);
/* The same with options; NULL: none. */
HD_API hd_status hd_claim_begin_with(hd_runtime *runtime, const hd_arg *uses, size_t n_uses,
                                     const hd_claim_options *options, hd_claim **out);

/* Whether the wait for the bytes is over, with or without success: hd_claim_wait returns at once then. One load; never blocks. True for a bad
 * handle. With placement=inline polling alone never makes it true (heddle/lane.h). */
HD_API bool hd_claim_ready(const hd_claim *claim);

/* Blocks until the bytes are the program's, at most timeout_ns nanoseconds (0: only checks, HD_FOREVER: no limit).
 * After a failure they are not: end the claim. Errors: HANDLE, TIMEOUT; FAILED or DEVICE_LOST (what it reads has failed, or its device is lost). */
HD_API hd_status hd_claim_wait(hd_claim *claim, int64_t timeout_ns);

/* Called once, with HD_OK or the failure that hd_claim_wait returns. It may call Heddle, and end the claim. */
typedef void (*hd_claim_function)(hd_claim *claim, hd_status status, void *context);

/* Asks for a call of `function` when hd_claim_wait would not block any more, on a thread of Heddle's (option call_threads).
 * Once per claim. It is not called where the claim is ended before. Errors: ARGUMENT (null, or asked before), HANDLE, HOST_MEMORY, SYSTEM (no thread). */
HD_API hd_status hd_claim_on_ready(hd_claim *claim, hd_claim_function function, void *context);

/* Where the program finds the bytes of use `index` that the claim has, pinned or unified ones. Good until the end of the claim.
 * hd_map would wait for the claim. Errors: ARGUMENT, HANDLE, RANGE (no such use), ACCESS (device memory: hd_buffer_address has its address). */
HD_API hd_status hd_claim_get_pointer(hd_claim *claim, size_t index, void **out);

/* The claim's ticket, which is done once the claim was ended, and what it was ended with is its outcome. Errors: ARGUMENT, HANDLE. */
HD_API hd_status hd_claim_get_ticket(hd_claim *claim, hd_ticket *out);

/* Ends a claim: the program uses its bytes no more. `outcome`: HD_OK, or a status below 0. Then what the claim should have written counts as failed.
 * May be called before the claim is ready; the order stays. Does not block. Errors: HANDLE (ended before), ARGUMENT (no outcome).
 * Of a claim on a stream also: HANDLE (the stream was destroyed meanwhile), UNSUPPORTED (it is being captured), DRIVER, DEVICE_LOST. Then the
 * claim is ended with that failure, as soon as the device has finished what it was given. */
HD_API hd_status hd_claim_end(hd_claim *claim, hd_status outcome);

/* Begins a claim for work that the program puts into its own stream, a CUstream or cudaStream_t, on the device `device` of the runtime.
 * What is put there from now on comes behind everything that the uses wait for. hd_claim_end ends it behind what was put there until then.
 * Both calls wait for nothing on the device. This one waits for the engine where that has not yet given the driver what comes before,
 * at most for the option submit_timeout. It is the program that puts the stream's own work in order between two claims of one stream: it is in order.
 * `stream` may be NULL or 1, the legacy default stream, and 2, the default stream of the calling thread. The stream must live until the end.
 * Of unified memory the device's bytes are claimed; hd_buffer_address has their address.
 * Errors: as hd_claim_begin; NO_DEVICE, UNSUPPORTED (placement=process; a stream that is being captured), ARGUMENT (a stream of another device),
 * UNREACHABLE (memory of a device that `device` cannot reach), TIMEOUT. */
HD_API hd_status hd_claim_begin_stream(hd_runtime *runtime, int device, void *stream, const hd_arg *uses, size_t n_uses,
                                       const hd_claim_options *options, hd_claim **out);

/* What hd_lane_call submits. `stream` is the lane's CUstream, and the device's context is current. The function gives the driver work in that
 * stream. It returns HD_OK, or a status below 0. Then the call has failed, and with it the lane. */
typedef hd_status (*hd_lane_function)(void *stream, void *context);

/* Submits a function of the program to a lane: its engine calls it when it is its turn, in place of a launch. It is for libraries that take a stream:
 * cuFFT, cuDNN, cuSPARSE, NCCL. `uses` are what its work uses. *out (may be NULL) is its ticket, which is done when that work is.
 * The function runs on the engine's thread (placement=inline: on a thread that submits or waits), and all lanes of the device wait for it
 * meanwhile. So it must not wait for the device, nor take long. It must not call Heddle either: HANDLE, in every placement, before anything happens.
 * Allowed are the questions that return no status, such as hd_done, hd_claim_ready, hd_buffer_address and hd_message. hd_wait returns HD_OK there for a
 * ticket that is done well. So do calls for tensors and tickets that need nothing of the runtime, such as hd_tensor_slice and hd_lane_get_ticket.
 * It is not called where what it reads has failed. `context` must stay good until the ticket is done.
 * Calls whose kernels wait for each other, as NCCL's do, are submitted one after the other, with nothing in between (docs/using.md).
 * Errors: as hd_launch, but for those of kernels; UNSUPPORTED (placement=process). */
HD_API hd_status hd_lane_call(hd_lane *lane, hd_lane_function function, void *context, const hd_arg *uses,
                              size_t n_uses, hd_ticket *out);

/* What hd_host_call submits. pointers[i] is where use i begins, of pinned or unified memory; NULL of device memory. It returns HD_OK, or a status
 * below 0, with which what it should have written fails. It may call Heddle, also wait, but not for its own bytes: hd_map would. */
typedef hd_status (*hd_host_function)(void *const *pointers, void *context);

/* Submits a function of the program that runs on a thread of Heddle's once its bytes are there: a claim that ends when it returns. So the
 * program's CPU code is in order with everything else. The option call_threads has how many run at the same time. Functions that wait inside of
 * Heddle do not count, so functions may wait for each other. For a moment more may run, when a wait ends. It is not called where what it reads
 * has failed. `context` must stay good until the ticket is done.
 * Blocks while 64 calls have not ended (option submit_timeout); inside of such a function it fails instead: LIMIT.
 * hd_close waits for calls that were submitted (option close_timeout), and calls of Heddle in them work until then. *out (may be NULL) is its ticket.
 * Errors: as hd_claim_begin; SYSTEM (no thread), TIMEOUT. */
HD_API hd_status hd_host_call(hd_runtime *runtime, hd_host_function function, void *context, const hd_arg *uses,
                              size_t n_uses, hd_ticket *out);

/* The lane waits for the ticket. What is submitted to it from now on begins when that is done, and fails with it.
 * The ticket may be of any lane, device or claim of the same runtime.
 * *out (may be NULL) is the ticket of the wait. Blocks only while the lane is full.
 * Errors: HANDLE, ARGUMENT (a ticket of another runtime, or one that was never given out), LANE_FAILED, DEVICE_LOST, HOST_MEMORY, TIMEOUT. */
HD_API hd_status hd_lane_after(hd_lane *lane, hd_ticket ticket, hd_ticket *out);

HD_END_DECLS
#endif
