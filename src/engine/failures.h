/* failures.h - which operations of a lane failed, and why.
 *
 * The engine records failures in a log in the lane's shared memory, as stretches of positions
 * sorted by position. A reader does a binary search. Before the log is full, the application moves
 * old records into its own archive, which stores them in a shorter form. No record covers an
 * operation that succeeded.
 *
 * A record may leave the log once no engine can look for it there. This holds when all operations
 * submitted before the failed operation was seen done have finished. An operation submitted later
 * finds the failure itself, and writes no wait for it.
 *
 * The archive grows by 48 bytes with each failure that breaks the rhythm of those before it: of
 * another kind, or at another distance. Failures of one kind at equal distances share one entry,
 * however many they are. Claims that fail one after the other share one at any distance. The
 * archive never drops a failure, since the program may wait for a ticket of any age.
 *
 * Threads: one thread writes the log: the thread that runs the lane's engine, or one thread after
 * the engine ended. Any thread reads the log. Any thread uses the archive.
 * Locks: the archive's mutex. Only `restarting` and `refilling` may be held outside it; order locks
 * are taken inside.
 * Always: a failure is found as long as the runtime is open, however many others follow.
 */
#ifndef HDI_ENGINE_FAILURES_H
#define HDI_ENGINE_FAILURES_H

#include <stdbool.h>
#include <stdint.h>
#include "base/handle.h"
#include "engine/channel.h"

struct hd_runtime;
struct hd_lane;

/* ---- the log ---- */

typedef enum hdi_logged {
    HDI_LOGGED_NO = 0,
    HDI_LOGGED_YES,
    HDI_LOGGED_UNSURE /* the writer is writing, or died while writing: try again */
} hdi_logged;

/* Looks for the failure in the log that covers `position`. Any thread. `done` or `issued` must be
 * past the position. */
hdi_logged hdi_failure_logged(const hdi_channel *channel, uint32_t lane, uint64_t position, hdi_failure *out);

/* Application: the last position that any record covers, 0 without one. False: the answer is unsure
 * (HDI_LOGGED_UNSURE). Any thread. */
bool hdi_failure_end(const struct hd_lane *lane, uint64_t *out);

/* Writer: records the failure for those of its positions that no record covers yet. Joins it to the
 * record right before it, if the cause is the same. */
void hdi_failure_add(const hdi_channel *channel, uint32_t lane, const hdi_failure *failure);

/* Lets readers go on after the engine's process ended, perhaps while it wrote a record. A record
 * that it left half written does not count yet, or is a valid record between the old and the new
 * one. */
void hdi_failure_repair(const hdi_channel *channel, uint32_t lane);

/* Mends the log of an engine whose process ended, and may have written anything. Keeps the lane's
 * first records, up to the first impossible one. Returns the first position that the kept records
 * do not settle; UINT64_MAX if all records are possible. No thread submits. */
uint64_t hdi_failure_mend(const struct hd_lane *lane);

/* Ends a record without an end at `to`, or removes it if it begins behind `to`. No thread runs the
 * engine. */
void hdi_failure_close(const hdi_channel *channel, uint32_t lane, uint64_t to);

/* ---- log and archive ---- */

typedef struct hdi_archive hdi_archive;
hdi_archive *hdi_archive_make(void); /* NULL: no memory */
void hdi_archive_free(hdi_archive *archive);
size_t hdi_archive_entries(hdi_archive *archive); /* number of entries, for tests */

/* Finds the failure that covers `position` of a lane (global number); false: none. Any thread.
 * `done` or `issued` must be past the position. If a worker process leaves its log half written for
 * a second, this gives the device up. */
bool hdi_failure_find(struct hd_runtime *rt, uint32_t lane, uint64_t position, hdi_failure *out);

/* True if the log can take failures of everything that can be in the lane's ring at once. Otherwise
 * a submission makes room first. */
bool hdi_failures_have_room(const struct hd_lane *lane);
/* True if the log is so full that it is time to archive. */
bool hdi_failures_are_many(const struct hd_lane *lane);

typedef enum hdi_archived {
    HDI_ARCHIVED,
    /* Nothing can move before *lane (global number) is done up to *position. */
    HDI_ARCHIVED_BEHIND,
    HDI_ARCHIVED_NO_MEMORY /* not all movable records moved */
} hdi_archived;

/* Moves records that may leave the log into the archive. The caller holds no lock. */
hdi_archived hdi_failures_archive(struct hd_lane *of, uint32_t *lane, uint64_t *position);

#endif
