/* claim.h - what the files of this layer share: uses of the program's, claims, and their callbacks.
 *
 * Threads: any. Locks: as each file describes; a caller holds none of the library.
 * Always: a claim has a lane of the library to itself. Only one that is done is given to the next claim. So an end of a claim never waits for
 * another claim, and nothing of it is left when the next one begins.
 */
#ifndef HDI_CLAIM_CLAIM_H
#define HDI_CLAIM_CLAIM_H

#include <heddle/claim.h>
#include "buffer/submit.h"
#include "claim/part.h"
#include "engine/claims.h"
#include "engine/engine.h"

#define HDI_POINTERS_NEAR 16

struct hd_claim {
    hdi_handle_head head;
    hd_runtime *runtime;
    hd_lane *lane;
    uint64_t ready, end; /* positions of the lane: where the bytes are the program's, and where the claim ends */
    bool at_once;        /* they were the program's at once */
    bool asked;          /* for a callback; under the pool's lock */
    uint32_t n_uses;
    void **pointers; /* where the program finds each use; `near`, or its own memory where that has no room */
    void *near[HDI_POINTERS_NEAR];
    void *stream;       /* of a claim on a stream */
    uint64_t stream_id; /* of the driver, which never uses it again; 0: the driver has none */
    bool on_stream, stream_gone;
    hdcu_event event; /* the lane's own, at the end of such a claim */
    struct hd_claim *next;
};

/* ---- uses.c ---- */

/* The uses of a claim or a call. `device`: the work runs there, and has to reach them; -1: on the host. n_uses is at most HDI_USES_OF_ONE.
 * Errors: ARGUMENT, HANDLE, RANGE, LIMIT, UNREACHABLE, DEVICE_LOST. */
hd_status hdi_uses_from(hd_runtime *rt, int device, const hd_arg *args, size_t n_args, hdi_use *uses);

/* The same on a runtime that the program names, and that may not be open. Errors: also HANDLE. */
hd_status hdi_uses_of_runtime(hd_runtime *rt, int device, const hd_arg *args, size_t n_args, hdi_use *uses);

/* ---- claim.c ---- */

/* Pools of claims, which end with the runtime. */
extern const hdi_lifetime hdi_claims_lifetime;

/* A claim on a device, which nothing leads to. Errors: LIMIT, MEMORY, HOST_MEMORY, DRIVER, DEVICE_LOST. */
hd_status hdi_claim_take(hd_runtime *rt, int device, struct hd_claim **out);
/* Gives it back, where its command was not submitted. */
void hdi_claim_give(struct hd_claim *claim);
/* Begins it, for uses that have been checked. `kind`: HDI_CLAIM_ON_STREAM, or 0. Errors: those of hdi_submit, HOST_MEMORY. Then it is given back. */
hd_status hdi_claim_submit(struct hd_claim *claim, const hdi_use *uses, size_t n_uses, uint8_t kind, const char *label,
                           const void *site);
/* The claim of a handle; NULL: it is no claim, or was ended. */
struct hd_claim *hdi_claim_from_handle(const hd_claim *handle);
hd_status hdi_claim_refused(const hd_claim *handle);
/* For HDI_INSIDE, before the handle is checked: only to be compared. */
static inline const void *hdi_claim_runtime(const hd_claim *handle)
{
    const struct hd_claim *c = (const struct hd_claim *)hdi_handle_object(handle);
    return c ? c->runtime : NULL;
}
/* Makes a handle of it. Errors: HANDLE (hd_close has begun to end handles). Then the claim has ended. */
hd_status hdi_claim_give_out(struct hd_claim *claim, hd_claim **out);
/* hd_claim_begin_with for callers inside of a call, with arguments of the program. No handle leads to the claim yet. Errors: as that. */
hd_status hdi_claim_begin(hd_runtime *rt, const hd_arg *uses, size_t n_uses, const hd_claim_options *options,
                          const void *site, struct hd_claim **out);
/* Ends a claim that no handle leads to any more. `outcome`: HD_OK, or below 0. Returns the failure of hdi_claim_record_end. */
hd_status hdi_claim_finish(struct hd_claim *claim, hd_status outcome);
/* Events of a device that nothing waits for any more. NULL: there is none. */
hdcu_event hdi_claim_event_take(hd_runtime *rt, int device);
void hdi_claim_event_give(hd_runtime *rt, int device, hdcu_event event);
/* Whether the program's stream with this id was the last one that was found to be of the device; and that it is. */
bool hdi_claim_stream_is_checked(const hdi_device *device, uint64_t id);
void hdi_claim_stream_set_checked(const hdi_device *device, uint64_t id);
/* Whether no call was asked for so far; it is from now on. */
bool hdi_claim_ask(struct hd_claim *claim);
/* The outcome of the wait for the bytes, which is over. */
hd_status hdi_claim_status(const struct hd_claim *claim);

/* For hd_close: ends the claims that the program has not ended, as failed. *first: the first of them, with what becomes of its bytes, unless it has a
 * status already. Returns whether the program may still use bytes of some. */
bool hdi_claims_abandon(hd_runtime *rt, hd_error *first);
/* Calls `visit` for each open claim of a device, and for those that hd_close ended: "claim 'halo' of main+0x1f". */
void hdi_claims_each_open(hd_runtime *rt, int device, void (*visit)(void *context, const char *text), void *context);

/* ---- stream.c ---- */

/* Before the end of a claim on a stream. A failure leaves the claim as it is: UNSUPPORTED (a capture), ARGUMENT (the default stream of another thread).
 * Else the scope may be entered. */
hd_status hdi_claim_check_end(struct hd_claim *claim, hdi_scope *scope);
/* The end of a claim on a stream: *event stands behind what the program has put there. The scope is left, and entered before where it was not. Errors: as
 * hd_claim_end. */
hd_status hdi_claim_record_end(struct hd_claim *claim, hdi_scope *scope, hdcu_event *event);

/* hd_claim_begin_stream for callers inside of a call, with arguments of the program. No handle leads to the claim yet. Errors: as that. */
hd_status hdi_claim_begin_stream(hd_runtime *rt, int device, void *stream, const hd_arg *args, size_t n_args,
                                 const hd_claim_options *options, const void *site, struct hd_claim **out);
/* Whether a claim on this stream could begin. `device` exists. Errors: those of the stream. */
hd_status hdi_claim_check_stream(hd_runtime *rt, int device, void *stream);
/* A claim on the default stream of another thread ends in the legacy default stream instead, which comes behind the default streams of all threads.
 * Errors: DRIVER, DEVICE_LOST. */
hd_status hdi_claim_end_behind_all(struct hd_claim *claim);

/* ---- late.c ---- */

/* Claims that could not be ended when they should have been. */
extern const hdi_lifetime hdi_late_ends_lifetime;

/* Ends a claim well, on any thread and in any state, for code that no failure can be returned to. Where hd_claim_end is refused, the claim is ended
 * as soon as it can be. A claim that was ended, or whose runtime was closed, is left alone. The thread's last failure stays what it was. */
void hdi_claim_end_surely(hd_claim *handle);

/* ---- host_call.c ---- */

/* Threads that wait for claims and call the program. */
extern const hdi_lifetime hdi_callers_lifetime;

/* For hd_close, before handles end: waits until calls and callbacks have run and the program has ended its claims, until the deadline. */
void hdi_callers_settle(hd_runtime *rt, int64_t deadline);

/* Whether a function of the program is still being called, after the threads were to end: "the function main.step of hd_host_call does not return".
 * NULL: none. */
const char *hdi_callers_stuck(hd_runtime *rt);

#endif
