/* failures.h - which operations of a lane have failed, and why.
 *
 * The engine records failures in a log in the lane's shared memory, as stretches of positions sorted by position. A
 * reader searches it by halves, in time logarithmic in its length. Before the log is full, the application moves old
 * records into an archive of its own. There they are shorter. Two failures are never joined over an operation that
 * succeeded between them.
 *
 * A record may leave the log once no engine can look for it there. That is once every operation has finished that was
 * submitted before the lane was seen done that far. An operation that is submitted later finds the failure itself, and
 * writes no wait for it.
 *
 * The archive grows by 48 bytes with each failure that breaks the rhythm of those before it: of another kind, or at
 * another distance. Failures of one kind at equal distances take one entry, however many they are. It never drops a
 * failure, since a ticket of any age may be waited for.
 *
 * Threads: the log has one writer, the thread that runs the lane's engine, or one thread after the engine has ended.
 * Any thread reads the log. Any thread uses the archive.
 * Locks: the archive's mutex. Above it there is only `restarting`, below it are order locks.
 * Always: a failure is found as long as the runtime is open, however many others came after it.
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
    HDI_LOGGED_UNSURE /* the writer is writing, or has died while writing: try again */
} hdi_logged;

/* Whether a failure of the log covers `position`, and which one. Any thread. `done` or `issued` must have passed the
 * position. */
hdi_logged hdi_failure_logged(const hdi_channel *channel, uint32_t lane, uint64_t position, hdi_failure *out);

/* Application: the last position that any record covers, 0 without one. False: as HDI_LOGGED_UNSURE. Any thread. */
bool hdi_failure_end(const struct hd_lane *lane, uint64_t *out);

/* Writer: records the failure for those of its positions that have none. A failure that directly follows a record of
 * the same cause is joined to it. */
void hdi_failure_add(const hdi_channel *channel, uint32_t lane, const hdi_failure *failure);

/* The engine's process has ended, perhaps in the middle of writing a record: lets readers go on. A half-written record
 * does not count yet, or holds a state between the old and the new one. */
void hdi_failure_repair(const hdi_channel *channel, uint32_t lane);

/* Likewise, and the process may have written anything. Keeps the lane's first records, up to the first impossible one.
 * Returns the first position that the kept records do not settle; UINT64_MAX where all records are possible. No thread
 * submits. */
uint64_t hdi_failure_mend(const struct hd_lane *lane);

/* No thread runs the engine. Gives a record without an end the end `to`. Removes it where that is before its
 * beginning. */
void hdi_failure_close(const hdi_channel *channel, uint32_t lane, uint64_t to);

/* ---- log and archive ---- */

typedef struct hdi_archive hdi_archive;
hdi_archive *hdi_archive_make(void); /* NULL: no memory */
void hdi_archive_free(hdi_archive *archive);
size_t hdi_archive_entries(hdi_archive *archive); /* number of entries, for tests */

/* The failure that covers `position` of a lane (global number), or false. Any thread. `done` or `issued` must have
 * passed the position. If a worker process leaves its log half written for a second, the device counts as lost. */
bool hdi_failure_find(struct hd_runtime *rt, uint32_t lane, uint64_t position, hdi_failure *out);

/* Whether the log has room for failures of everything that can be in the lane's ring at once. A submission that finds
 * too little room makes room first. */
bool hdi_failures_have_room(const struct hd_lane *lane);
/* Whether the log is full enough for archiving. */
bool hdi_failures_are_many(const struct hd_lane *lane);

typedef enum hdi_archived {
    HDI_ARCHIVED,
    HDI_ARCHIVED_BEHIND,   /* nothing can be moved before *lane (global number) has done *position */
    HDI_ARCHIVED_NO_MEMORY /* not all that could be moved was moved */
} hdi_archived;

/* Moves records that may leave the log into the archive. No lock is held. */
hdi_archived hdi_failures_archive(struct hd_lane *of, uint32_t *lane, uint64_t *position);

#endif
