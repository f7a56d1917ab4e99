/* peer_tester.h - the thread that tests pairs of devices while copies between them go through pinned memory.
 *
 * It starts with the first copy between two devices without a result, not with hd_open.
 * A test opens both devices in another process, which takes their time and some hundred MiB of each. Programs without such copies avoid that.
 *
 * Threads: any may request a test.
 * Locks: one mutex for the list of requests, not held during a test.
 * Blocking: hdi_peer_tester_stop, until the thread has ended.
 * Always: after hdi_peer_tester_stop the thread makes no request.
 */
#ifndef HDI_TRANSFER_PEER_TESTER_H
#define HDI_TRANSFER_PEER_TESTER_H

#include "engine/runtime.h"

hd_status hdi_peer_tester_create(hd_runtime *rt);
/* For hd_close: a test under way is given up, and the thread ends. */
void hdi_peer_tester_stop(hd_runtime *rt);
void hdi_peer_tester_release(hd_runtime *rt);

/* Requests hdi_peer_access_settle for the pair from the thread. False: there is no such thread, as with placement inline. */
bool hdi_peer_tester_ask(hd_runtime *rt, int from, int owner);

#endif
