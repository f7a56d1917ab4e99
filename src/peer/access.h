/* access.h - which devices use each other's memory.
 *
 * The peer tester is the thread that tests pairs of devices while copies between them go through
 * pinned memory. The thread starts with the first copy between two devices without a result, not
 * with hd_open. A test opens both devices in another process. This takes time, and some hundred MiB
 * of memory on each device. Programs without such copies avoid this cost.
 *
 * Threads: any.
 * Locks: `linking`; one for the peer tester's list of requests, not held during a test.
 * Blocking: a kernel's first use of a pair of devices waits for a test. The stop of the peer tester
 * waits until the thread ends.
 * Always: after its stop the peer tester makes no request.
 */
#ifndef HDI_PEER_ACCESS_H
#define HDI_PEER_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include "engine/engine.h"

/* True if kernels of device `from` can use memory that `owner` owns. On first need, this function
 * finds out about the pair, which may take a test, and maps the owner's memory for `from`. */
bool hdi_peer_access(hd_runtime *rt, int from, int owner);
/* Returns the one of the two devices that copies from `src` to `dst` by accessing the other
 * device's memory. -1: neither device. Then the copy goes through pinned memory: this is faster, or
 * the only way, or the peer tester has no answer yet. Waits for a test only without a peer
 * tester. */
int hdi_peer_access_between(hd_runtime *rt, int src, int dst);
/* Writes the reason why `from` cannot use memory of `owner`, as text to put behind a colon. "": no
 * reason is known. Returns the driver's code; 0: none. */
int hdi_peer_access_explain_refusal(hd_runtime *rt, int from, int owner, char *out, size_t bytes);

/* Call this after a loss of the device. Drops the answers about its pairs, so that the next use
 * finds out again. */
void hdi_peer_access_forget(hd_runtime *rt, int device);

/* At its stop, the peer tester gives up a test under way, and its thread ends. */
extern const hdi_lifetime hdi_peer_tester_lifetime;

#endif
