/* dependencies.h - what an operation has to wait for: earlier uses of the same bytes that are not done.
 *
 * For the order, one wait per lane is enough: for the last position that matters.
 * For what is read, each result that may still fail is a source. Where a lane refuses work after a failure, its last result stands for all before
 * it.
 *
 * Threads: the one that submits.
 * Locks: the caller holds the order locks of the operation's buffers and of its lane. A claimed record needs no lock.
 * Blocking: never.
 * Always: without memory a function returns HDI_COLLECTED_TOO_MUCH, and the waits collected so far stay good.
 */
#ifndef HDI_BUFFER_DEPENDENCIES_H
#define HDI_BUFFER_DEPENDENCIES_H

#include "buffer/submit.h"

typedef enum hdi_collected {
    HDI_COLLECTED = 0,
    HDI_COLLECTED_FAILURE, /* an earlier operation whose result is read has failed; the message is set */
    HDI_COLLECTED_TOO_MUCH /* no memory: some of `waits` has to be waited for first */
} hdi_collected;

typedef struct hdi_collector {
    hd_runtime *rt;
    hd_lane *lane; /* the lane of the operation */
    hdi_waits *waits;
    bool apart; /* without the order lock of the lane: its earlier waits are ignored */
} hdi_collector;

/* Collects one earlier use. `source`: the operation reads what that use wrote. `ours`: see hdi_linked. */
hdi_collected hdi_collect_point(const hdi_collector *g, hdi_point point, bool source, bool ours);

/* Collects all that one use of a buffer has to wait for.
 * Finished points leave the record as by hdi_uses_settle. A read waits for no reader, so it drops finished readers of many lanes only now and
 * then.
 * *room: the argument `room` of hdi_uses_prepare. */
hdi_collected hdi_collect_use(const hdi_collector *g, const hdi_use *use, bool ours, bool *room);

/* The same for a use whose record has several segments, and is claimed and settled. `g` is apart. */
hdi_collected hdi_collect_apart(const hdi_collector *g, const hdi_use *use);

/* Collects all that the uses wait for, in one pass, and makes room for them in the records. Each use has to be of a whole buffer, with a record
 * of one segment. The buffer has to be as it was when its handle was checked. Else *plain is false, and what was collected does not count.
 * `ours`: as in hdi_linked. */
hdi_collected hdi_collect_plain(const hdi_collector *g, const hdi_use *uses, size_t n_uses, unsigned ours, bool *plain);

/* Collects once more, with the lane's lock, what was collected apart. */
hdi_collected hdi_collect_again(const hdi_collector *g, const hdi_waits *apart);

/* The slots that the waits take in the ring. Sorts the sources. */
uint32_t hdi_waits_slots(hdi_waits *waits);

/* Writes the waits of the lane into its ring, where there is room for them. Requests events, or completion without delay, from the other
 * lanes. */
void hdi_waits_write(hd_runtime *rt, hd_lane *lane);

#endif
