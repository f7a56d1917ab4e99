/* results.h - result files: results of pairs of devices, in the user's cache folder, for later processes.
 *
 * There is one file per ordered pair, provider, kind of placement and fault of the host provider. The file has the
 * whole key as text, and is ignored where any of it differs. So another boot, driver, kernel command line or test
 * program makes the result unknown. The next result replaces the file, so files do not pile up.
 *
 * Threads: any. Locks: none of this process. A lock file keeps processes from testing at the same time, which would
 * disturb the tests. Its time of change is that of the latest result of the process that has the lock.
 * Blocking: hdi_results_lock waits for other processes.
 * Always:
 * - No function fails for the caller or records a message.
 * - A file that another user could have written is ignored.
 * - Files are replaced as a whole.
 */
#ifndef HDI_PEER_RESULTS_H
#define HDI_PEER_RESULTS_H

#include <heddle/peer.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HDI_RESULT_BYTES 16384 /* the largest file that is read */

/* What a result depends on. The strings may have any content, and stay the caller's. */
typedef struct hdi_result_facts {
    const char *boot, *kernel; /* boot id, and command line of the system's kernel */
    const char *driver;        /* versions */
    const char *program;       /* the build of the test program */
    const char *provider, *placement, *faults;
    const char *device_bus, *owner_bus;
    const uint8_t *device_uuid, *owner_uuid; /* 16 bytes each */
} hdi_result_facts;

typedef struct hdi_result_key {
    char name[48]; /* name of the file */
    char text[8192];
} hdi_result_key;

/* Makes a key. False: it is too long. */
bool hdi_result_key_make(const hdi_result_facts *facts, hdi_result_key *out);

/* The folder that the option `cache` means, made where it is missing. False: there is none, or it cannot be made. */
bool hdi_results_folder(const char *option, char *out, size_t bytes);

/* Loads a result of an earlier process, and sets `remembered`. False: there is none. */
bool hdi_result_load(const char *folder, const hdi_result_key *key, hd_peer_info *out);

/* Saves a result if it can. It does not save an inconclusive result, or a refusal for too many peers, which may
 * pass. */
void hdi_result_save(const char *folder, const hdi_result_key *key, const hd_peer_info *info);

/* Takes the lock of tests on this machine, and waits for the process that has it.
 * It waits `timeout_ns` after each result of that process (hdi_results_extend), and ten times as long in all.
 * It calls `enough` (may be NULL) after each such result and when it has the lock. Where `enough` returns true, or
 * *ended is set (may be NULL), it returns -1.
 * Returns a descriptor for hdi_results_unlock; -1: the lock is not taken, and other processes may test. */
int hdi_results_lock(const char *folder, int64_t timeout_ns, bool (*enough)(void *context), void *context,
                     const _Atomic bool *ended);
/* Notes that the holder of the lock has another result. -1 is ignored. */
void hdi_results_extend(int descriptor);
void hdi_results_unlock(int descriptor);

/* Reads the first line of a system file, with "?" for what cannot be printed; "" where it cannot be read. */
void hdi_results_read_line(const char *path, char *out, size_t bytes);

#endif
