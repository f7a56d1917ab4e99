/* claims.h - the engine's part of claims: the claim in a lane, its label and call site, and the
 * outcomes of claims and calls.
 *
 * A claim occupies a lane of the library from its begin to its end. In this lane the claim is one
 * command of two slots (channel.h). The application stores the claim's data for messages in the
 * hd_lane. The engine finds the end of the claim in the channel. The engine usually does not see a
 * claim that waited for nothing. The thread that ends such a claim then moves the lane's positions
 * itself.
 *
 * Threads: any. Only the thread that begins the claim calls hdi_outcome_note_claim. Only the thread
 * that ends the claim calls hdi_claim_end_lane.
 * Locks: one for the table of outcomes. No other lock is taken while it is held.
 * Always:
 * - The notes about a claim are complete before its command is visible.
 * - The bytes of a claim that the program may be using stay in use until the program ends it, even
 *   if the device is lost.
 */
#ifndef HDI_ENGINE_CLAIMS_H
#define HDI_ENGINE_CLAIMS_H

#include <heddle/claim.h>
#include <heddle/memory.h>
#include "base/lock.h"
#include "base/text.h"
#include "base/wait.h"
#include "engine/runtime.h"

/* The function that hd_lane_run_native gets (heddle/claim.h). */
typedef hd_status hdi_lane_function(void *stream, void *context);

#define HDI_CLAIM_TEXT (HD_LABEL_BYTES + HDI_SITE_BYTES + 48)

/* Sets the label (NULL: none) and the call site of the lane's next claim. */
void hdi_outcome_note_claim(hd_lane *lane, const char *label, const void *site);

/* Notes that the program may use the bytes of the claim that ends at `end` at once, since there was
 * nothing to wait for. */
static inline void hdi_claim_hold(hd_lane *lane, uint64_t end)
{
    atomic_store_explicit(&lane->claim_held, end, memory_order_relaxed);
}

/* Notes that the claim that ends at `end` is on the program's stream with this id. */
static inline void hdi_claim_note_stream(hd_lane *lane, uint64_t end, uint64_t id)
{
    atomic_store_explicit(&lane->claim_stream_end, 0, memory_order_relaxed);
    atomic_store_explicit(&lane->claim_stream_id, id, memory_order_release);
    atomic_store_explicit(&lane->claim_stream_end, end, memory_order_release);
}

/* True if the claim that ends at a position is on that stream. Any thread, even while another claim
 * gets the lane. */
static inline bool hdi_claim_is_on_stream(const hd_lane *lane, uint64_t end, uint64_t id)
{
    /* pairs with the stores above: either the id belongs to `end`, or the second load sees the end
     * of a later claim */
    bool noted = atomic_load_explicit(&lane->claim_stream_end, memory_order_acquire) == end &&
                 atomic_load_explicit(&lane->claim_stream_id, memory_order_acquire) == id;
    return noted && atomic_load_explicit(&lane->claim_stream_end, memory_order_acquire) == end;
}

/* The event behind all work that the program put into its stream during the claim that ends at
 * `end`. NULL: the program has not ended the claim yet, or the claim is on no stream. A later claim
 * of the lane records the same event again, after the end of this claim. Any thread. */
static inline hdcu_event hdi_claim_end_event(const hd_lane *lane, uint64_t end)
{
    /* pairs with the stores in hdi_claim_end_lane */
    if (atomic_load_explicit(&lane->claim_ended, memory_order_acquire) < end ||
        atomic_load_explicit(&lane->claim_in_stream, memory_order_relaxed) != end) {
        return NULL;
    }
    return atomic_load_explicit(&lane->claim_event, memory_order_relaxed);
}

/* The stream of the claim that ends at `end`, if the program ended it while that stream was being
 * captured. Otherwise NULL. The claim counts as open until hdi_claim_end_late. */
static inline hdcu_stream hdi_claim_late_stream(const hd_lane *lane, uint64_t end)
{
    /* pairs with the store in hdi_claim_end_lane */
    return atomic_load_explicit(&lane->claim_late_end, memory_order_acquire) == end
               ? atomic_load_explicit(&lane->claim_late, memory_order_relaxed)
               : NULL;
}

/* Ends a claim for which hdi_claim_late_stream returned a stream. `recorded`: the claim ends with
 * the lane's event. Otherwise the claim ends at once. Only the engine's thread calls this. */
static inline void hdi_claim_end_late(hd_lane *lane, uint64_t end, bool recorded)
{
    atomic_store_explicit(&lane->claim_in_stream, recorded ? end : 0, memory_order_relaxed);
    atomic_store_explicit(&lane->claim_late_end, 0, memory_order_relaxed);
    atomic_store_explicit(&lane->claim_ended, end, memory_order_release);
}

/* Publishes a lane's claim that ends at `end`, and notifies the engine. */
void hdi_claim_notify(hd_lane *lane, uint64_t end);

/* How the program ended a claim. */
typedef struct hdi_claim_ending {
    bool ready;       /* the program could use the bytes */
    uint32_t outcome; /* hdi_outcome_of_claim; 0: success */
    /* the claim ends when the device passes this event; NULL: the claim ends now */
    hdcu_event event;
    /* Not NULL: the claim's stream, which is being captured. The engine records `event` in this
     * stream after the capture. */
    hdcu_stream late;
} hdi_claim_ending;

/* Ends the claim that ends at `end`, for the program. Notifies the engine. */
void hdi_claim_end_lane(hd_lane *lane, uint64_t end, const hdi_claim_ending *how);
/* Ends a claim with success. The program could use the claim's bytes, and no event marks the
 * claim's end. False: an engine may see the claim, so this call did not end it. */
bool hdi_claim_end_unseen(hd_lane *lane, uint64_t end);

/* True if all claims of a lane up to a position ended with success, even if the engine has not seen
 * these ends yet. Then nothing needs to wait for the claims. */
static inline bool hdi_claim_is_over(const hd_lane *lane, uint64_t position)
{
    /* pairs with the release store in hdi_claim_end_lane: data that the program wrote is visible
     * behind it */
    return atomic_load_explicit(&lane->claim_over, memory_order_acquire) >= position;
}

/* Call this between two steps: hdi_claim_hold, which stores that the program has the bytes, and the
 * load of the device's state. The other side, hdi_lane_reach, calls hdi_biased_barrier. */
static inline void hdi_claim_fence(void)
{
    if (hdi_biased_fenced()) {
        _Atomic int word = 0;
        atomic_exchange_explicit(&word, 1, memory_order_seq_cst);
    } else {
        atomic_signal_fence(memory_order_seq_cst); /* the compiler keeps the order */
    }
}

/* True if the program may be using the bytes of the claim that ends at `end`. `op`: CLAIM, or
 * CLAIMED if the lane already passed the claim's first slot. */
static inline bool hdi_claim_is_open(const hd_lane *lane, uint8_t op, uint64_t end)
{
    /* pairs with the stores of the two functions above */
    return atomic_load_explicit(&lane->claim_ended, memory_order_acquire) < end &&
           (op == HDI_OP_CLAIMED || atomic_load_explicit(&lane->claim_held, memory_order_relaxed) == end);
}

/* True if the lane's claim began and did not end. The loads are relaxed: if the claim begins or
 * ends meanwhile, either answer is right. */
static inline bool hdi_claim_has_open(const hd_lane *lane)
{
    return atomic_load_explicit(&lane->claim_ended, memory_order_relaxed) <
           atomic_load_explicit(&lane->claim_begun, memory_order_relaxed);
}

/* True if the lane's claim is open, and no library thread calls the program for this claim. So only
 * a thread of the program can end the claim. The loads are relaxed for the reason given at
 * hdi_claim_has_open. */
static inline bool hdi_claim_is_left_to_program(const hd_lane *lane)
{
    uint64_t begun = atomic_load_explicit(&lane->claim_begun, memory_order_relaxed);
    return atomic_load_explicit(&lane->claim_ended, memory_order_relaxed) < begun &&
           atomic_load_explicit(&lane->claim_called, memory_order_relaxed) != begun;
}

/* hdi_claim_is_left_to_program for the work of a point. */
bool hdi_point_is_left_to_program(hd_runtime *rt, hdi_point point);

/* True if some claim is open. Claims of the library for calls of the program count, too. */
bool hdi_claims_are_open(const hd_runtime *rt);

/* Writes a text for the lane's claim that ends at a position, or whose first slot ends there.
 * Examples are "claim 'left halo' of main+0x1f" and "... on a stream of ...". Once the claim is
 * over, the text is "a claim". The caller holds no order lock. */
void hdi_outcome_claim_text(hd_runtime *rt, uint32_t global, uint64_t position, char out[HDI_CLAIM_TEXT]);

/* Call this after `done` moved in a lane for claims. Wakes the thread that waits for claims. */
static inline void hdi_claim_ring(hdi_engine_shared *engine)
{
    /* Sequentially consistent with the thread that stores the wish and then loads `done`. */
    if (atomic_load_explicit(&engine->bell_wanted, memory_order_seq_cst)) {
        atomic_fetch_add_explicit(&engine->bell, 1, memory_order_seq_cst);
        hdi_futex_wake(&engine->bell, 1);
    }
}

/* ---- failed outcomes, as numbers that fit into a record of a failure ---- */

#define HDI_OUTCOME_TEXT (HD_REASON_BYTES + 64)

/* The number of an outcome. The outcome is that the lane's claim ended with this status, for this
 * reason (NULL: none). */
uint32_t hdi_outcome_of_claim(const hd_lane *lane, hd_status status, const char *reason);
/* The number of an outcome. The outcome is that the function of a CALL returned this status. */
uint32_t hdi_outcome_of_call(hd_runtime *rt, hdi_lane_function *function, hd_status status);

/* Writes the claim or call of an outcome into `what`, such as "claim 'left halo' of main+0x1f".
 * Writes the outcome itself into `why`, such as "it was ended with HD_ERROR_SYSTEM". Order locks
 * may be held. */
void hdi_outcome_text(hd_runtime *rt, uint32_t number, char what[HDI_CLAIM_TEXT], char why[HDI_OUTCOME_TEXT]);

/* Called by hd_close. */
void hdi_outcomes_release(hd_runtime *rt);

#endif
