/* results.h - result files: what was found about pairs of devices, in the user's cache folder, for later processes.
 *
 * One file per ordered pair, provider, kind of placement and fault of the host provider. It holds the whole key in words, and counts for
 * nothing where one of them differs: another boot, driver, kernel command line or test program makes the result unknown, and the next
 * one takes the file's place, so files do not pile up.
 *
 * Threads: any. Locks: none of this process; a lock file keeps processes from testing, and so disturbing, each other. Its time of change is
 * that of the latest result of whoever has it.
 * Always: nothing here fails for the caller, records a message, or believes a file that somebody else could have written. Files are
 * replaced as a whole.
 */
#ifndef HDI_PEER_RESULTS_H
#define HDI_PEER_RESULTS_H

#include <heddle/peer.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HDI_RESULT_BYTES 16384 /* most that is read of a file */

/* What a result depends on. Strings may be anything, and are the caller's. */
typedef struct hdi_result_facts {
    const char *boot, *kernel; /* boot id and command line; see hdi_result_machine */
    const char *driver;        /* versions */
    const char *program;       /* which build of the test */
    const char *provider, *placement, *faults;
    const char *device_bus, *owner_bus;
    const uint8_t *device_uuid, *owner_uuid; /* 16 bytes each */
} hdi_result_facts;

typedef struct hdi_result_key {
    char name[48]; /* of the file */
    char text[8192];
} hdi_result_key;

/* False: it is too long. */
bool hdi_result_key_make(const hdi_result_facts *facts, hdi_result_key *out);

/* The folder that the option `cache` means; makes it where it is missing. False: there is none, or it cannot be had. */
bool hdi_results_folder(const char *option, char *out, size_t bytes);

/* True: `out` is what an earlier process found, with `remembered` set. */
bool hdi_result_load(const char *folder, const hdi_result_key *key, hd_peer_info *out);

/* Keeps a result if it can. What was inconclusive, or refused because of what else is going on, is not kept. */
void hdi_result_save(const char *folder, const hdi_result_key *key, const hd_peer_info *info);

/* Waits for whoever tests on this machine, as long as it comes on (hdi_results_extend): not without that for `timeout_ns`, nor ten times
 * as long in all. Each time that it has, and when it is done, `enough` is asked (NULL: nobody is); true ends the waiting, and so does *ended
 * (NULL: nothing does). Returns a descriptor for hdi_results_unlock, -1: nobody is kept out, also where others could take the lock. */
int hdi_results_lock(const char *folder, int64_t timeout_ns, bool (*enough)(void *context), void *context,
                     const _Atomic bool *ended);
/* Whoever has the lock has another result. -1: nothing. */
void hdi_results_extend(int descriptor);
void hdi_results_unlock(int descriptor);

/* The first line of a file of the system, without what cannot be printed; "" where it cannot be read. */
void hdi_results_read_line(const char *path, char *out, size_t bytes);

#endif
