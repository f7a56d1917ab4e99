/* peers.h - which devices can use each other's memory: results of this process, the result files, the test.
 *
 * Threads: any.
 * Locks: the table's mutex for look-ups, and `linking` while a link in use changes. A test runs without locks.
 * Blocking: hdi_peers_ask, hd_peer_check and hd_peers_check wait for a test. Only one test runs at a time. A thread
 * that needs a pair under test waits for its result.
 * Always: the result of a pair changes only in three ways.
 * - An unknown or inconclusive pair gets a result.
 * - A test that was requested again has a result.
 * - The driver refuses to map memory for the pair in this process.
 */
#ifndef HDI_PEER_PEERS_H
#define HDI_PEER_PEERS_H

#include <heddle/peer.h>
#include "engine/runtime.h"

/* Called by hd_open and hd_close. `worker` is the program of worker processes, which tests use as this runtime does; ""
 * without them. It lives as long as the runtime.
 * Errors: HOST_MEMORY. */
hd_status hdi_peers_create(hd_runtime *rt, const char *worker);
void hdi_peers_release(hd_runtime *rt);
/* Called by hd_close. A test under way ends soon without a result, and threads stop waiting for it. */
void hdi_peers_end(hd_runtime *rt);

/* The path of the test program; "": there is none. */
const char *hdi_peers_program(const hd_runtime *rt);

/* Whether the driver offers `device` access to memory of `owner` at all. */
static inline bool hdi_peers_offered(const hd_runtime *rt, int device, int owner)
{
    const hdi_facts *facts = &rt->devices[device]->facts;
    return (facts->peers & ~facts->peers_denied) >> owner & 1;
}

/* Gets the result for `device` using memory of `owner`. Where there is none, it reads the result files and tests the
 * pair, and the other direction if that is unknown, too. The option peers does not matter here. `later`: threads that
 * wait for another pair's test go first.
 * Blocks for the test.
 * Never fails. A failure gives INCONCLUSIVE, which counts as a result. UNKNOWN: the runtime is being closed. */
void hdi_peers_ask(hd_runtime *rt, int device, int owner, bool later, hd_peer_info *out);

/* Gets the present result without a test. False: there is none, or none that lasts. */
bool hdi_peers_known(hd_runtime *rt, int device, int owner, hd_peer_info *out);

/* Records that the driver does not map memory of `owner` for `device` in this process. `for_good`: the pair is REFUSED
 * from now on, but not in other processes. Otherwise only hdi_peers_obstacle uses it. */
void hdi_peers_refuse(hd_runtime *rt, int device, int owner, int code, const char *call, bool for_good);
/* The reason why the memory was not mapped the last time; "": not known. */
void hdi_peers_obstacle(hd_runtime *rt, int device, int owner, char out[HD_PEER_REASON_BYTES]);
/* Called after a loss of the device, and of all its mappings. Drops the refusals of hdi_peers_refuse, so that access is
 * tried again. Results stay. */
void hdi_peers_forget(hd_runtime *rt, int device);

#endif
