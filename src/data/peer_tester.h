/* peer_tester.h - the thread that finds out about pairs of devices while copies between them go through pinned memory.
 *
 * It starts with the first copy between two devices of which nothing is known, not with hd_open: a test opens both devices once more, in a
 * process that takes their time and some hundred MiB of each, which a program without such copies is spared.
 *
 * Threads: any may ask. Locks: one mutex around the list of what is asked for, not held while anything is found out.
 * Always: after hdi_peer_tester_stop it makes no request.
 */
#ifndef HDI_DATA_PEER_TESTER_H
#define HDI_DATA_PEER_TESTER_H

#include "engine/runtime.h"

hd_status hdi_peer_tester_create(hd_runtime *rt);
/* hd_close: a test under way is given up, and the thread ends. */
void hdi_peer_tester_stop(hd_runtime *rt);
void hdi_peer_tester_release(hd_runtime *rt);

/* The thread is to call hdi_peer_access_settle for the pair. False: there is no such thread (placement inline has none). */
bool hdi_peer_tester_ask(hd_runtime *rt, int from, int owner);

#endif
