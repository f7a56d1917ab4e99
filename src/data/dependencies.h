/* dependencies.h - what an operation has to wait for: earlier uses of the same bytes that are not done.
 *
 * One wait per lane is enough for the order, for the last position that counts. Of what is read, each result counts that may still
 * fail; but where a lane refuses work after a failure, its last result speaks for the ones before it.
 *
 * Threads: the one that submits, with the order locks of the operation's buffers (or their records claimed) and of its lane. Never blocks.
 */
#ifndef HDI_DATA_DEPENDENCIES_H
#define HDI_DATA_DEPENDENCIES_H

#include "data/submit.h"

typedef enum hdi_collected {
    HDI_COLLECTED = 0,
    HDI_COLLECTED_FAILURE, /* an earlier operation whose result is read has failed; said */
    HDI_COLLECTED_TOO_MUCH /* no memory: some of what is in `waits` has to be waited for first */
} hdi_collected;

typedef struct hdi_collector {
    hd_runtime *rt;
    hd_lane *lane; /* of the operation */
    hdi_waits *waits;
    bool apart; /* without the order lock of the lane: what the lane has waited for before is not looked at */
    const char *who;
} hdi_collector;

/* What one earlier use means for the operation. `source`: the operation reads what that use wrote; `ours`: see hdi_linked. */
hdi_collected hdi_collect_point(const hdi_collector *g, hdi_point point, bool source, bool ours);

/* All that one use of a buffer has to wait for. What is finished leaves the record of what is read, as by hdi_uses_settle; readers of many lanes now
 * and then, since a reader waits for none of them. *room: as hdi_uses_prepare wants to know. */
hdi_collected hdi_collect_use(const hdi_collector *g, const hdi_use *use, bool ours, bool *room);

/* The same for a use whose record, of several segments, is claimed, and settled. `g` is apart. */
hdi_collected hdi_collect_apart(const hdi_collector *g, const hdi_use *use);

/* All that the uses wait for, in one pass, and room for them in the records; where each is of a whole buffer that is as it was when its handle was
 * checked, and whose record has one segment. Else *plain is false, and what was collected does not count. `ours`: as in hdi_linked. */
hdi_collected hdi_collect_plain(const hdi_collector *g, const hdi_use *uses, size_t n_uses, unsigned ours, bool *plain);

/* What was collected apart, once more with the lane's lock. */
hdi_collected hdi_collect_again(const hdi_collector *g, const hdi_waits *apart);

/* Slots that the waits take in the ring. Sorts the sources. */
uint32_t hdi_waits_slots(hdi_waits *waits);

/* Puts the waits of the lane into its ring, where there is room for them, and asks the other lanes for events, or for being finished without
 * delay. */
void hdi_waits_write(hd_runtime *rt, hd_lane *lane);

#endif
