/* claims.h - the engine's part of claims: which one a lane has, by which call, and how claims and calls ended.
 *
 * A claim has a lane of the library to itself from its begin to its end. In the lane stands one command of two slots (channel.h).
 * The application notes here, beside the lane, what messages name. The engine finds an end in the channel. It never sees a claim that had nothing to
 * wait for: the thread that ends it moves the lane's positions itself.
 *
 * Threads: any. hdi_claim_note: the one that begins a claim. hdi_claim_end_lane: the one that ends it.
 * Locks: one for the table of ends, under which nothing is taken.
 * Always:
 * - What is noted of a claim is there before its command can be seen.
 * - The bytes of a claim that the program may be using stay in use until the program ends it, also when the device is lost.
 */
#ifndef HDI_ENGINE_CLAIMS_H
#define HDI_ENGINE_CLAIMS_H

#include <heddle/memory.h>
#include "base/lock.h"
#include "base/text.h"
#include "base/wait.h"
#include "engine/runtime.h"

/* What hd_lane_call takes (heddle/claim.h). */
typedef hd_status hdi_lane_function(void *stream, void *context);

#define HDI_CLAIM_TEXT (HD_LABEL_BYTES + HDI_SITE_BYTES + 48)

/* The lane's next claim has this label (NULL: none), and was begun by the call at `site`. */
void hdi_claim_note(hd_lane *lane, const char *label, const void *site);

/* The claim that ends at `end` is the program's at once: nothing had to be waited for. */
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

/* Whether the claim that ends at a position is on that stream. Any thread; the lane may be another claim's meanwhile. */
static inline bool hdi_claim_is_on_stream(const hd_lane *lane, uint64_t end, uint64_t id)
{
    /* pairs with the stores above: the id is that of `end`, or a later claim's end is seen the second time */
    bool noted = atomic_load_explicit(&lane->claim_stream_end, memory_order_acquire) == end &&
                 atomic_load_explicit(&lane->claim_stream_id, memory_order_acquire) == id;
    return noted && atomic_load_explicit(&lane->claim_stream_end, memory_order_acquire) == end;
}

/* The event behind what the program has put into its stream in a claim that was ended at `end`. NULL: it was not ended, or not on a stream. It is
 * recorded again for a later claim of the lane, which comes after the end of this one. Any thread. */
static inline hdcu_event hdi_claim_end_event(const hd_lane *lane, uint64_t end)
{
    /* pairs with the stores in hdi_claim_end_lane */
    if (atomic_load_explicit(&lane->claim_ended, memory_order_acquire) < end ||
        atomic_load_explicit(&lane->claim_in_stream, memory_order_relaxed) != end) {
        return NULL;
    }
    return atomic_load_explicit(&lane->claim_event, memory_order_relaxed);
}

/* Publishes a lane's claim that ends at `end`, and notifies the engine. */
void hdi_claim_notify(hd_lane *lane, uint64_t end);

/* The program has ended the claim that ends at `end`. `number`: hdi_outcome_of_claim; 0: well. `event`: it ends with that event; NULL: now.
 * `ready`: the bytes were the program's. Notifies the engine. */
void hdi_claim_end_lane(hd_lane *lane, uint64_t end, bool ready, uint32_t number, hdcu_event event);

/* Whether the claims of a lane up to a position have ended well, also where the engine has not looked yet. Then nothing waits for them. */
static inline bool hdi_claim_is_over(const hd_lane *lane, uint64_t position)
{
    /* pairs with the release store in hdi_claim_end_lane: what the program wrote is visible behind it */
    return atomic_load_explicit(&lane->claim_over, memory_order_acquire) >= position;
}

/* Between the store that a claim is held at once and the load of the device's state. The other side has hdi_biased_barrier (hdi_lane_reach). */
static inline void hdi_claim_fence(void)
{
    if (hdi_biased_fenced()) {
        _Atomic int word = 0;
        atomic_exchange_explicit(&word, 1, memory_order_seq_cst);
    } else {
        atomic_signal_fence(memory_order_seq_cst); /* the compiler keeps the order */
    }
}

/* Whether the program may be using the bytes of a claim whose command, or its second slot, ends at `end`. */
static inline bool hdi_claim_is_open(const hd_lane *lane, uint8_t op, uint64_t end)
{
    /* pairs with the stores of the two functions above */
    return atomic_load_explicit(&lane->claim_ended, memory_order_acquire) < end &&
           (op == HDI_OP_CLAIMED || atomic_load_explicit(&lane->claim_held, memory_order_relaxed) == end);
}

/* Whether the lane has a claim that has begun and was not ended. Relaxed: one that begins or ends meanwhile is open or not. */
static inline bool hdi_claim_has_open(const hd_lane *lane)
{
    return atomic_load_explicit(&lane->claim_ended, memory_order_relaxed) <
           atomic_load_explicit(&lane->claim_begun, memory_order_relaxed);
}

/* Whether some lane has one, of the program's own or of a call. */
bool hdi_claims_are_open(const hd_runtime *rt);

/* No order lock is held. "claim 'left halo' of main+0x1f", or "... on a stream of ...", for the claim of a lane that ends at a position, or its first slot. "a claim" where that is over. */
void hdi_claim_text(hd_runtime *rt, uint32_t lane, uint64_t position, char out[HDI_CLAIM_TEXT]);

/* `done` has moved in a lane that is for claims. Wakes the thread that waits for them. */
static inline void hdi_claim_ring(hdi_engine_shared *engine)
{
    /* Sequentially consistent with the thread that stores the wish, and then loads `done`. */
    if (atomic_load_explicit(&engine->bell_wanted, memory_order_seq_cst)) {
        atomic_fetch_add_explicit(&engine->bell, 1, memory_order_seq_cst);
        hdi_futex_wake(&engine->bell, 1);
    }
}

/* ---- ends without success, as numbers that fit into a record of a failure ---- */

#define HDI_OUTCOME_TEXT 64

/* The lane's claim was ended with this status. */
uint32_t hdi_outcome_of_claim(const hd_lane *lane, hd_status status);
/* The function of a CALL returned it. */
uint32_t hdi_outcome_of_call(hd_runtime *rt, hdi_lane_function *function, hd_status status);

/* "claim 'left halo' of main+0x1f", "it was ended with HD_ERROR_SYSTEM". Order locks may be held. */
void hdi_outcome_text(hd_runtime *rt, uint32_t number, char what[HDI_CLAIM_TEXT], char why[HDI_OUTCOME_TEXT]);

/* Called by hd_close. */
void hdi_outcomes_release(hd_runtime *rt);

#endif
