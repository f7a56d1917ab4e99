/* peers.h - what is known about devices using each other's memory: results of this process, the result files, the test.
 *
 * Threads: any. Locks: the table's mutex, for look-ups; `linking` while a link in use is taken out of use. A test runs without locks; there is
 * one at a time, and who needs a pair that is being tested waits for its result.
 * Always: what is known of a pair changes only from unknown or inconclusive to a result, by a test that was asked for again, or by
 * the driver's refusal to map memory for it here.
 */
#ifndef HDI_PEER_PEERS_H
#define HDI_PEER_PEERS_H

#include <heddle/peer.h>
#include "engine/runtime.h"

/* hd_open and hd_close. Errors: HOST_MEMORY. */
hd_status hdi_peers_create(hd_runtime *rt);
void hdi_peers_release(hd_runtime *rt);
/* hd_close: a test under way ends soon, with nothing found, and so does the waiting for one. */
void hdi_peers_end(hd_runtime *rt);

/* The path of the program that tests, "": there is none. */
const char *hdi_peers_program(const hd_runtime *rt);

/* Whether the driver offers access to `owner`'s memory to `device` at all. */
static inline bool hdi_peers_offered(const hd_runtime *rt, int device, int owner)
{
    const hdi_facts *facts = &rt->devices[device]->facts;
    return (facts->peers & ~facts->peers_denied) >> owner & 1;
}

/* What is known of `device` using memory of `owner`. Where nothing is, looks into the result files and tests the pair (and the other
 * direction, too), whatever the option peers says. Blocks for the test. `later`: whoever waits for another pair's test goes first. Never fails: what
 * goes wrong is INCONCLUSIVE, which is known, too; UNKNOWN where the runtime is being closed. */
void hdi_peers_ask(hd_runtime *rt, int device, int owner, bool later, hd_peer_info *out);

/* What is known now; asks nobody. False: nothing, or nothing that will stay so. */
bool hdi_peers_known(hd_runtime *rt, int device, int owner, hd_peer_info *out);

/* The driver does not map memory of `owner` for `device` in this process. `for_good`: REFUSED from now on, but not for other processes; else
 * it is only kept for hdi_peers_obstacle. */
void hdi_peers_refuse(hd_runtime *rt, int device, int owner, int code, const char *call, bool for_good);
/* Why the memory was not mapped the last time, in words; "": it is not known. */
void hdi_peers_obstacle(hd_runtime *rt, int device, int owner, char out[HD_PEER_REASON_BYTES]);
/* The device was lost, and with it what was mapped: such refusals are to be tried again. Results stay. */
void hdi_peers_forget(hd_runtime *rt, int device);

#endif
