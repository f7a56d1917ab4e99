/* claims.h - the engine's part of claims: the claim of a lane, the call that began it, and how
 * claims and calls ended.
 *
 * A claim occupies a lane of the library from its begin to its end. The lane contains one command
 * of two slots (channel.h). The application notes the data for messages in the hd_lane. The engine
 * finds the end of the claim in the channel. It never sees a claim that waited for nothing: the
 * thread that ends such a claim moves the lane's positions itself.
 *
 * Threads: any. hdi_claim_note: only the thread that begins the claim. hdi_claim_end_lane: only the
 * thread that ends it.
 * Locks: one for the table of outcomes; none is taken under it.
 * Always:
 * - The notes about a claim are complete before its command is visible.
 * - The bytes of a claim that the program may be using stay in use until the program ends it, even
 *   if the device is lost.
 */
#ifndef HDI_ENGINE_CLAIMS_H
#define HDI_ENGINE_CLAIMS_H

#include <heddle/memory.h>
#include "base/lock.h"
#include "base/text.h"
#include "base/wait.h"
#include "engine/runtime.h"

/* The function that hd_lane_run_native gets (heddle/claim.h). */
typedef hd_status hdi_lane_function(void *stream, void *context);

#define HDI_CLAIM_TEXT (HD_LABEL_BYTES + HDI_SITE_BYTES + 48)

/* Sets the label of the lane's next claim (NULL: none), and the call site that began it. */
void hdi_claim_note(hd_lane *lane, const char *label, const void *site);

/* The program gets the claim that ends at `end` at once: there was nothing to wait for. */
static inline void hdi_claim_hold(hd_lane *lane, uint64_t end)
{
    atomic_store_explicit(&lane->claim_held, end, memory_order_relaxed);
}

/* The claim that ends at `end` is on the program's stream with this id. */
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

/* The event behind all work that the program put into its stream during a claim that it ended at
 * `end`. NULL: the program did not end the claim, or the claim is on no stream. A later claim of
 * the lane records the same event again, after the end of this one. Any thread. */
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

/* Ends such a claim: with its lane's event if `recorded`, else at once. The engine's thread. */
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
    hdcu_event event; /* the claim ends with that event; NULL: now */
    /* Not NULL: the claim's stream, which is being captured. The engine records `event` there
     * afterwards. */
    hdcu_stream late;
} hdi_claim_ending;

/* The program ends the claim that ends at `end`. Notifies the engine. */
void hdi_claim_end_lane(hd_lane *lane, uint64_t end, const hdi_claim_ending *how);
/* Ends a claim that succeeded without an event, while the program could use its bytes. False: an
 * engine saw the claim, so this did not end it. */
bool hdi_claim_end_unseen(hd_lane *lane, uint64_t end);

/* True if all claims of a lane up to a position ended with success, even if the engine did not look
 * yet. Then nothing needs to wait for them. */
static inline bool hdi_claim_is_over(const hd_lane *lane, uint64_t position)
{
    /* pairs with the release store in hdi_claim_end_lane: data that the program wrote is visible
     * behind it */
    return atomic_load_explicit(&lane->claim_over, memory_order_acquire) >= position;
}

/* Call this between the store that the program holds the claim and the load of the device's state.
 * The other side, hdi_lane_reach, calls hdi_biased_barrier. */
static inline void hdi_claim_fence(void)
{
    if (hdi_biased_fenced()) {
        _Atomic int word = 0;
        atomic_exchange_explicit(&word, 1, memory_order_seq_cst);
    } else {
        atomic_signal_fence(memory_order_seq_cst); /* the compiler keeps the order */
    }
}

/* True if the program may be using the bytes of a claim. Its command, or its second slot, ends at
 * `end`. */
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

/* True if the lane's claim is open, and no library thread calls the program for it. So only a
 * thread of the program can end it. Relaxed: as above. */
static inline bool hdi_claim_is_left_to_program(const hd_lane *lane)
{
    uint64_t begun = atomic_load_explicit(&lane->claim_begun, memory_order_relaxed);
    return atomic_load_explicit(&lane->claim_ended, memory_order_relaxed) < begun &&
           atomic_load_explicit(&lane->claim_called, memory_order_relaxed) != begun;
}

/* hdi_claim_is_left_to_program for the work of a point. */
bool hdi_point_is_left_to_program(hd_runtime *rt, hdi_point point);

/* True if some claim is open, of the program or of a call. */
bool hdi_claims_are_open(const hd_runtime *rt);

/* The text for the claim of a lane that ends at a position, or whose first slot ends there. It is
 * "claim 'left halo' of main+0x1f", or "... on a stream of ...", and "a claim" once that is over.
 * The caller holds no order lock. */
void hdi_claim_text(hd_runtime *rt, uint32_t global, uint64_t position, char out[HDI_CLAIM_TEXT]);

/* `done` moved in a lane for claims. Wakes the thread that waits for claims. */
static inline void hdi_claim_ring(hdi_engine_shared *engine)
{
    /* Sequentially consistent with the thread that stores the wish and then loads `done`. */
    if (atomic_load_explicit(&engine->bell_wanted, memory_order_seq_cst)) {
        atomic_fetch_add_explicit(&engine->bell, 1, memory_order_seq_cst);
        hdi_futex_wake(&engine->bell, 1);
    }
}

/* ---- failed outcomes, as numbers that fit into a record of a failure ---- */

#define HDI_OUTCOME_TEXT 64

/* The number of the outcome: the lane's claim ended with this status. */
uint32_t hdi_outcome_of_claim(const hd_lane *lane, hd_status status);
/* The number of the outcome: the function of a CALL returned this status. */
uint32_t hdi_outcome_of_call(hd_runtime *rt, hdi_lane_function *function, hd_status status);

/* Writes the claim or call into `what`, such as "claim 'left halo' of main+0x1f". Writes its
 * outcome into `why`, such as "it was ended with HD_ERROR_SYSTEM". Order locks may be held. */
void hdi_outcome_text(hd_runtime *rt, uint32_t number, char what[HDI_CLAIM_TEXT], char why[HDI_OUTCOME_TEXT]);

/* Called by hd_close. */
void hdi_outcomes_release(hd_runtime *rt);

#endif
