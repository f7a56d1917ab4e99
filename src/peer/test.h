/* test.h - runs heddle-probe for some pairs of devices, in a process of its own, and reads its records.
 *
 * Threads: any; calls share nothing but a list of processes that are still to be reaped.
 * Locks: one for that list, held for a moment. The caller must hold no lock that other threads need.
 * Blocking: hdi_test_pairs blocks for the test, a second or so.
 * Always:
 * - The program is killed when it reports nothing for too long, and when the thread that waits for it ends.
 * - Every pair gets exactly one result.
 */
#ifndef HDI_PEER_TEST_H
#define HDI_PEER_TEST_H

#include <stdatomic.h>
#include "peer/parser.h"

#define HDI_TEST_DEVICES 8 /* most in one process, so that it has no more peers than any driver allows */

typedef struct hdi_test {
    const char *program;        /* path of heddle-probe */
    const char *settings;       /* for hd_open in that process, without the devices */
    const int *ordinals;        /* numbers in the driver, by number in the runtime */
    const uint8_t (*uuids)[16]; /* by number in the runtime */
    int64_t limit_ms;           /* for each pair, and before the first one */
    double slow_margin;         /* as in hdi_peer_parser_begin */
    /* Called once for every pair, in any order, on the calling thread. `fleeting`: there was no descriptor, process or
     * memory for the test, or `ended` was set. The next attempt may succeed. */
    void (*settled)(void *context, const hdi_pair *pair, const hd_peer_info *info, bool fleeting);
    void *context;
    /* True: the results are not needed any more, so the program is killed. NULL: never. */
    const _Atomic bool *ended;
} hdi_test;

/* Tests the pairs, of which `device` and `owner` are set, and changes their order. A pair that is not over when *ended
 * becomes true is inconclusive and fleeting.
 * Blocks for the test.
 * Never fails: a failure makes pairs inconclusive. */
void hdi_test_pairs(const hdi_test *test, hdi_pair *pairs, int n);

#endif
