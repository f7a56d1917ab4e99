/* test.h - runs heddle-probe for some pairs of devices, in a process of its own, and listens.
 *
 * Threads: any; nothing is shared. Locks: none, and none may be held that anybody needs: a test takes a second or so.
 * Always: the program is killed when it is silent for too long, and when the thread that waits for it ends; every pair gets exactly one
 * result.
 */
#ifndef HDI_PEER_TEST_H
#define HDI_PEER_TEST_H

#include <stdatomic.h>
#include "peer/parser.h"

#define HDI_TEST_DEVICES 8 /* in one process, which then has no more peers than every driver allows */

typedef struct hdi_test {
    const char *program;        /* its path */
    const char *settings;       /* for hd_open over there, without the devices */
    const int *ordinals;        /* in the driver, by number in the runtime */
    const uint8_t (*uuids)[16]; /* by number in the runtime */
    int64_t limit_ms;           /* for each pair, and before the first one */
    double slow_margin;         /* as in hdi_peer_parser_begin */
    /* Called once for every pair, in any order, on the calling thread. `fleeting`: there was no descriptor, process or memory to be had for the
     * test, which costs nothing to try again. */
    void (*settled)(void *context, const hdi_pair *pair, const hd_peer_info *info, bool fleeting);
    void *context;
    /* True: nobody wants to know any more, and the program is killed. NULL: that never happens. */
    const _Atomic bool *ended;
} hdi_test;

/* Tests the pairs, of which `device` and `owner` are set. Their order is changed. What is not over when it is ended is inconclusive, and
 * fleeting. */
void hdi_test_pairs(const hdi_test *test, hdi_pair *pairs, int n);

#endif
