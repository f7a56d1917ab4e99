/* peers.h - which devices can use each other's memory: results of this process, the result files,
 * the test.
 *
 * Threads: any.
 * Locks: the table's mutex for look-ups, and `linking` while hdi_device.peer_access changes. A test
 * runs without locks.
 * Blocking: hdi_peers_ask, hd_peer_check and hd_peers_check wait for a test. Only one test runs at
 * a time. If a thread tests a pair, other threads that need this pair wait for its result.
 * hdi_results_lock waits for other processes.
 * Always: the result of a pair changes only in three ways.
 * - An unknown or inconclusive pair gets a result.
 * - A test that was requested again ends with a result.
 * - The driver refuses to map memory for the pair in this process.
 */
#ifndef HDI_PEER_PEERS_H
#define HDI_PEER_PEERS_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <heddle/peer.h>
#include "engine/runtime.h"

extern const hdi_lifetime hdi_peers_lifetime;
/* hd_close calls this function. A test under way then ends soon without a result, and threads stop
 * waiting for it. */
void hdi_peers_end(hd_runtime *rt);

/* The path of the test program; "": none. */
const char *hdi_peers_program(const hd_runtime *rt);

/* True if, according to the driver, `device` can get access to memory of `owner`. */
static inline bool hdi_peers_offered(const hd_runtime *rt, int device, int owner)
{
    const hdi_facts *facts = &rt->devices[device]->facts;
    return (facts->peers & ~facts->peers_denied) >> owner & 1;
}

/* Gets the result for the pair: may `device` use memory of `owner`? Without a result, this function
 * reads the result files, and tests the pair. If the other direction has no result either, it gets
 * that result, too. The function ignores the option peers. `later`: lets threads that wait for
 * tests of other pairs go first. Blocks for the test. Never fails. A failure gives INCONCLUSIVE,
 * which counts as a result.
 * UNKNOWN: the runtime is being closed. */
void hdi_peers_ask(hd_runtime *rt, int device, int owner, bool later, hd_peer_info *out);

/* Gets the present result without a test. False: there is no result, or a later test may soon give
 * another one. */
bool hdi_peers_known(hd_runtime *rt, int device, int owner, hd_peer_info *out);

/* Records that the driver does not map memory of `owner` for `device` in this process. `for_good`:
 * the pair is REFUSED from now on, but not in other processes. Without `for_good`, only
 * hdi_peers_obstacle uses this record. */
void hdi_peers_refuse(hd_runtime *rt, int device, int owner, int code, const char *call, bool for_good);
/* Gets the reason why the driver last refused to map the memory; "": no reason is known. Returns
 * the driver's code; 0: none. */
int hdi_peers_obstacle(hd_runtime *rt, int device, int owner, char out[HD_PEER_REASON_BYTES]);
/* Call after a loss of the device and all its mappings. Drops the refusals of hdi_peers_refuse, so
 * that access is tried again. Results stay. */
void hdi_peers_forget(hd_runtime *rt, int device);

/* ---- results.c: result files, in the user's cache folder, for later processes ----
 *
 * Each ordered pair, provider, kind of placement and fault of the host provider gets its own file.
 * The file contains the whole key as text, and is ignored if any part differs. So an old result
 * does not count after a restart of the machine, or after a change of driver, kernel command line
 * or test program. The next result replaces the file, so files do not pile up.
 *
 * These functions take no lock of this process. A lock file keeps processes from testing at the
 * same time, because their tests would disturb each other. The modification time of the lock file
 * is the time of the holder's latest result.
 *
 * No function here records a message, since a missing file is no failure of the caller. Files that
 * another user could have written are ignored. Files are replaced as a whole. */

#define HDI_RESULT_BYTES 16384 /* the largest file to read */

/* The facts that a result depends on. The strings may contain any characters, and still belong to
 * the caller. */
typedef struct hdi_result_facts {
    const char *boot, *kernel; /* boot id, and the command line of the system's kernel */
    const char *driver;        /* versions */
    const char *program;       /* the build of the test program */
    const char *provider, *placement, *faults;
    const char *device_bus, *owner_bus;
    const uint8_t *device_uuid, *owner_uuid; /* 16 bytes each */
} hdi_result_facts;

/* The facts that the results of all pairs depend on, as text. */
typedef struct hdi_result_machine {
    char boot[64], kernel[4096], driver[256], program[128];
} hdi_result_machine;

/* Reads these facts. `version_file`: from the provider (may be NULL). `program`: the path of the
 * test program. */
void hdi_result_machine_read(const char *version_file, int driver_version, const char *program,
                             hdi_result_machine *out);

typedef struct hdi_result_key {
    char name[48]; /* name of the file */
    char text[8192];
} hdi_result_key;

/* Makes a key. False: too long. */
bool hdi_result_key_make(const hdi_result_facts *facts, hdi_result_key *out);

/* The folder for the option `cache`, made if it is missing. False: none, or it cannot be made. */
bool hdi_results_folder(const char *option, char *out, size_t bytes);

/* Loads a result of an earlier process, and sets `remembered`. False: none. */
bool hdi_result_load(const char *folder, const hdi_result_key *key, hd_peer_info *out);

/* Saves a result if possible. Does not save an inconclusive result. Does not save a refusal because
 * of too many peers either, since it may be temporary. */
void hdi_result_save(const char *folder, const hdi_result_key *key, const hd_peer_info *info);

/* Takes the lock of tests on this machine, and waits for the process that holds it. The function
 * waits at most `timeout_ns` after each result of that process (hdi_results_extend), and at most
 * ten times as long in all. It calls `enough` (may be NULL) after each such result, and once more
 * when it holds the lock. If `enough` returns true, or *ended (may be NULL) is set, it gives up and
 * returns -1. Returns a descriptor for hdi_results_unlock; -1: the lock is not taken, and other
 * processes may test. */
int hdi_results_lock(const char *folder, int64_t timeout_ns, bool (*enough)(void *context), void *context,
                     const _Atomic bool *ended);
/* Notes that the caller, which holds the lock, got another result. Ignores -1. */
void hdi_results_extend(int descriptor);
void hdi_results_unlock(int descriptor);

/* Reads the first line of a system file, with "?" for unprintable characters; "" if it cannot be
 * read. */
void hdi_results_read_line(const char *path, char *out, size_t bytes);

#endif
