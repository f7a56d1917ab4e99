/* claim.h - declarations that the files of this layer share: uses by the program, claims, and their
 * callbacks.
 *
 * Threads: any. Locks: see each file; a caller holds no lock of the library.
 * Always: each claim occupies a library lane of its own. A lane gets its next claim only after the
 * last claim is done. So no claim waits in its lane for another claim's end, and no claim stands
 * behind other work.
 */
#ifndef HDI_CLAIM_CLAIM_H
#define HDI_CLAIM_CLAIM_H

#include <heddle/claim.h>
#include "buffer/submit.h"
#include "buffer/undo.h"
#include "claim/part.h"
#include "engine/claims.h"
#include "engine/engine.h"

#define HDI_POINTERS_NEAR 16

struct hd_claim {
    hdi_handle_head head;
    hd_runtime *runtime;
    hd_lane *lane;
    /* positions in the lane: at `ready` the program gets the bytes, and at `end` the claim ends */
    uint64_t ready, end;
    bool at_once; /* the program got the bytes when the submission returned */
    bool asked;   /* the claim has a callback; under the pool's lock */
    uint32_t n_uses;
    /* the host address of each use. The addresses are in the member `near`, or in an array of their
     * own if `near` is too small. */
    void **pointers;
    void *near[HDI_POINTERS_NEAR];
    void *stream;       /* the stream of the program; only for a claim on a stream */
    uint64_t stream_id; /* the id that the driver gave the stream, never reused; 0: no id */
    bool on_stream;
    hdcu_event event; /* recorded at the end of a claim on a stream; the lane owns it */
    /* for a claim with copies: an alias of each use; NULL: no claim in this lane had copies */
    struct hdi_claim_alias *aliases;
    _Atomic uint32_t n_aliases; /* 0: the claim has no copies */
    struct hd_claim *next;
};

/* ---- uses.c ---- */

/* Checks the uses of a claim or a call. `device`: the device that runs the work; it must be able to
 * access the buffers. -1: the host. n_uses is at most HDI_USES_OF_ONE. Errors: ARGUMENT, HANDLE,
 * RANGE, LIMIT, UNREACHABLE, DEVICE_LOST. */
hd_status hdi_uses_from(hd_runtime *rt, int device, const hd_arg *args, size_t n_args, hdi_use *uses);

/* Like hdi_uses_from, for a runtime that the program names, and that may not be open. Errors: as
 * hdi_uses_from, and HANDLE. */
hd_status hdi_uses_of_runtime(hd_runtime *rt, int device, const hd_arg *args, size_t n_args, hdi_use *uses);

/* ---- claim.c ---- */

/* Pools of claims, which end with the runtime. */
extern const hdi_lifetime hdi_claims_lifetime;

/* Takes a claim on a device; no handle leads to the claim yet. Errors: LIMIT, MEMORY, HOST_MEMORY,
 * DRIVER, DEVICE_LOST. */
hd_status hdi_claim_take(hd_runtime *rt, int device, struct hd_claim **out);
/* Gives back a claim whose command was not submitted. */
void hdi_claim_give(struct hd_claim *claim);
/* How a claim begins. */
typedef struct hdi_claim_begun {
    const char *label; /* NULL: none */
    const void *site;  /* the call site */
    hdi_undo *undo;    /* not NULL: the claim may be withdrawn */
    bool on_stream;    /* the claim is on a stream of the program */
} hdi_claim_begun;

/* Begins the claim, for uses that were checked. On failure, gives the claim back. Errors: those of
 * hdi_submit, HOST_MEMORY. */
hd_status hdi_claim_submit(struct hd_claim *claim, const hdi_use *uses, size_t n_uses, const hdi_claim_begun *how);
/* Checks the uses of a claim that is on no stream, and takes a claim for them. Errors: those of
 * hdi_uses_of_runtime and hdi_claim_take. */
hd_status hdi_claim_prepare(hd_runtime *rt, const hd_arg *args, size_t n_args, hdi_use *uses, struct hd_claim **out);
/* The claim of a handle; NULL: the value is no handle of a claim, or the claim was ended. */
struct hd_claim *hdi_claim_from_handle(const hd_claim *handle);
hd_status hdi_claim_refused(const hd_claim *handle);
/* The runtime of a handle, for HDI_INSIDE, which runs before the handle is checked. Only compare
 * the result. */
static inline const void *hdi_claim_runtime(const hd_claim *handle)
{
    const struct hd_claim *c = (const struct hd_claim *)hdi_handle_object(handle);
    return c ? c->runtime : NULL;
}
/* Makes a handle for the claim. On failure the claim is over. Errors: HANDLE (hd_close is ending
 * handles). */
hd_status hdi_claim_give_out(struct hd_claim *claim, hd_claim **out);
/* Does the work of hd_claim_begin_with for callers that are inside a call, with arguments of the
 * program. The claim has no handle yet. Errors: the same. */
hd_status hdi_claim_begin(hd_runtime *rt, const hd_arg *uses, size_t n_uses, const hdi_claim_begun *how,
                          struct hd_claim **out);
/* hd_claim_wait for a claim without a handle. Errors: the same. */
hd_status hdi_claim_await(struct hd_claim *claim, int64_t timeout_ns);
/* Ends a claim whose handle is gone. `outcome`: HD_OK, or a failure. Returns the failure of
 * hdi_claim_record_end. */
hd_status hdi_claim_finish(struct hd_claim *claim, hd_status outcome);
/* Ends a claim that never got a handle, as if it had not begun. `undo`: the changes that the
 * claim's begin recorded. */
void hdi_claim_withdraw(struct hd_claim *claim, hdi_undo *undo);
/* Ends a claim with success, on any thread and in any state, for callers that cannot handle a
 * failure. Ignores a claim that was ended, or whose runtime was closed. Leaves the thread's last
 * failure alone. */
void hdi_claim_end_surely(hd_claim *handle);
/* The first function takes a spare event of a device; NULL: there is none. The second one puts an
 * event back. */
hdcu_event hdi_claim_event_take(hd_runtime *rt, int device);
void hdi_claim_event_give(hd_runtime *rt, int device, hdcu_event event);
/* These two functions remember the id of the last stream that was found to belong to the device. So
 * further claims on this stream need no check. */
bool hdi_claim_stream_is_checked(const hdi_device *device, uint64_t id);
void hdi_claim_stream_set_checked(const hdi_device *device, uint64_t id);
/* Notes that the claim has a callback. False if it already had one. */
bool hdi_claim_ask(struct hd_claim *claim);
/* The outcome of the wait for the claim's bytes. Call this only after the wait is over. */
hd_status hdi_claim_status(const struct hd_claim *claim);

/* For hd_close: ends, with a failure, the claims that the program left open. If the status of *left
 * is not set yet, *left becomes an error that names the first few of these claims. If a claim waits
 * for an operation that hangs, the error names this operation first. True if the program may still
 * use bytes of some of these claims. */
bool hdi_claims_abandon(hd_runtime *rt, hd_error *left);
/* Calls `visit` for each open claim of a device, and for each claim that hd_close ended. `text` is
 * the claim's name, such as "claim 'halo' of main+0x1f". */
void hdi_claims_each_open(hd_runtime *rt, int device, void (*visit)(void *context, const char *text), void *context);

/* ---- copy.c ---- */

/* Makes an alias of each use, for a claim with copies. The uses were checked, and the claim is not
 * submitted yet. Errors: HOST_MEMORY. */
hd_status hdi_claim_aliases_make(struct hd_claim *claim, const hdi_use *uses, size_t n_uses);
/* Ends all aliases. The claim's handle leads nowhere. If another thread just submitted a copy,
 * waits for that copy. */
void hdi_claim_aliases_end(struct hd_claim *claim);
/* Waits until all copies of the claim are done (option transfer_timeout). If another thread ends
 * the claim meanwhile, the wait ends. Errors: TIMEOUT. */
hd_status hdi_claim_aliases_await(struct hd_claim *claim, const hd_claim *handle);

/* ---- stream.c ---- */

/* Ends a claim on a stream. *event is an event behind the program's work in that stream; NULL: the
 * device finished the work. UNSUPPORTED: the stream is being captured. Then *late is the stream
 * whose work the claim must wait for after the capture; otherwise *late is NULL. Errors: as
 * hd_claim_end. */
hd_status hdi_claim_record_end(struct hd_claim *claim, hdcu_event *event, hdcu_stream *late);

/* Does the work of hd_claim_begin_stream for callers that are inside a call, with arguments of the
 * program. The claim has no handle yet. Errors: the same. */
hd_status hdi_claim_begin_stream(hd_runtime *rt, int device, void *stream, const hd_arg *args, size_t n_args,
                                 const hd_claim_options *options, const void *site, struct hd_claim **out);
/* Checks that a claim on this stream could begin. `device` exists. Errors: those of the stream. */
hd_status hdi_claim_check_stream(hd_runtime *rt, int device, void *stream);
/* ---- host_call.c ---- */

/* Threads that wait for claims and call the program. */
extern const hdi_lifetime hdi_callers_lifetime;

/* For hd_close, before handles end: waits until calls and callbacks are done and the program ended
 * its claims, at most until the deadline. */
void hdi_callers_settle(hd_runtime *rt, int64_t deadline);

/* Names a function of the program that still runs after its thread should have ended: "the function
 * main.step of hd_launch_host does not return". NULL: no such function runs. */
const char *hdi_callers_stuck(hd_runtime *rt);

#endif
