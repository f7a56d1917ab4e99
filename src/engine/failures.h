/* failures.h - which operations of a lane failed, and why.
 *
 * The engine records failures in a log in the lane's shared memory, as stretches of positions
 * sorted by position. A reader does a binary search. Before the log is full, the application moves
 * old records into its own archive, which stores them in a shorter form. No record covers an
 * operation that succeeded.
 *
 * A record may leave the log once no engine can look for it in the log. Engines look for it only on
 * behalf of certain operations: those that were submitted before a submission could see the failed
 * operation done. So all these operations must finish first. A later submission finds the failure
 * by itself, and writes no wait for the failed operation.
 *
 * In the archive, any number of failures of one kind at equal distances share one entry
 * (archive.h). Claims that fail one after the other share an entry even if their distances differ.
 * Any other failure mostly takes one or two bytes. The program may ask for a ticket of any age, so
 * the archive keeps failures as long as it can. If all archives of a runtime together take more
 * than HDI_ARCHIVES_BYTES, a lane forgets its oldest failures. In any case a lane keeps its latest
 * HDI_ARCHIVE_LEAST failures. Positions up to the last forgotten failure have unknown outcomes, and
 * count as failed. Before a lane forgets, the use records of all buffers note which of their
 * writers failed. So if a buffer's writer has an unknown outcome, the writer did fail.
 *
 * Threads: one thread writes the log: the thread that runs the lane's engine, or one thread after
 * the engine ended. Any thread reads the log. Any thread uses the archive.
 * Locks: the archive's mutex. A thread that takes this mutex may hold only `restarting` and
 * `refilling`. Under the mutex, a thread may take order locks.
 * Always: a failure counts as failed as long as the runtime is open, however many other failures
 * follow. A success counts as failed only if its position is forgotten. Its code is then
 * HDI_FAILURE_FORGOTTEN.
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

/* Application: *out is the last position that any record of the log covers; 0: the log is empty.
 * False: the answer is unsure (HDI_LOGGED_UNSURE). Any thread. */
bool hdi_failure_end(const struct hd_lane *lane, uint64_t *out);

/* Writer: records the failure. Positions that another record covers already keep that record. If
 * the record right before has the same cause, extends that record instead. */
void hdi_failure_add(const hdi_channel *channel, uint32_t lane, const hdi_failure *failure);

/* Lets readers go on after the engine's process ended, perhaps while the process wrote a record. A
 * record that is half written does not count yet, or it is valid. A valid one covers at least its
 * old positions, and at most its new ones. */
void hdi_failure_repair(const hdi_channel *channel, uint32_t lane);

/* Mends the log of an engine whose process ended. That process may have written anything into the
 * log. Keeps the lane's first records, up to the first impossible one. If it dropped records,
 * returns the position behind the last kept record: the outcomes from there on are unknown.
 * UINT64_MAX: all records are possible. No thread submits. */
uint64_t hdi_failure_mend(const struct hd_lane *lane);

/* If the last record has no end, this function sets its end to `to`, or removes it if it begins
 * behind `to`. No thread runs the engine. */
void hdi_failure_close(const hdi_channel *channel, uint32_t lane, uint64_t to);

/* ---- log and archive ---- */

#define HDI_ARCHIVES_BYTES ((int64_t)64 << 20)
#define HDI_ARCHIVE_LEAST ((uint64_t)1 << 16)
/* This code stands in place of the driver's code in a failure that covers forgotten positions. */
#define HDI_FAILURE_FORGOTTEN INT32_MIN

/* Finds the failure that covers `position` of a lane (global number); false: none. Any thread.
 * `done` or `issued` must be past the position. If a worker process leaves its log half written for
 * a second, this function gives the device up. */
bool hdi_failure_find(struct hd_runtime *rt, uint32_t lane, uint64_t position, hdi_failure *out);

/* True if the log has room for the failures of all operations that can be in the lane's ring at
 * once. Otherwise a submission makes room first. */
bool hdi_failures_have_room(const struct hd_lane *lane);
/* True if the log is so full that records should move to the archive now. */
bool hdi_failures_are_many(const struct hd_lane *lane);

typedef enum hdi_archived {
    HDI_ARCHIVED,
    /* No record can move before the lane *lane (global number) is done up to *position. */
    HDI_ARCHIVED_BEHIND,
    HDI_ARCHIVED_NO_MEMORY /* some records that may leave the log did not move */
} hdi_archived;

/* Moves records that may leave the log into the archive. The caller holds no lock. */
hdi_archived hdi_failures_archive(struct hd_lane *of, uint32_t *lane, uint64_t *position);

/* If the archives take too much memory, returns the last position that this lane may forget. 0: the
 * lane may forget nothing. */
uint64_t hdi_failures_to_forget(struct hd_lane *of);
/* Forgets the outcomes of the lane's positions up to `to`, or up to an earlier position. */
void hdi_failures_forget(struct hd_lane *of, uint64_t to);

#endif
