/* failures.h - which operations of a lane have failed, and why.
 *
 * The engine records failures in a log in the lane's shared memory, as stretches of positions sorted by position. Readers search it by halves, and
 * so cost the logarithm of its length. Before it is full, the application moves old records into an archive of its own, where
 * they are shorter and kept as long as the runtime is open: so a failure is found however many others came after it, and two failures are
 * never joined over an operation that succeeded between them.
 *
 * A record may leave the log once no engine can look for it there: once every operation that was submitted before the lane was
 * seen to be done that far has finished. What is submitted later finds the failure itself, and writes no wait for it.
 *
 * The archive grows by 48 bytes with each failure that breaks the rhythm of those before it: of another kind, or at another distance. Failures of one kind
 * at equal distances take one entry, however many they are. It never gives one up, since a ticket of any age may be waited for.
 *
 * Threads: the log has one writer, whoever runs the lane's engine (or nobody runs it any more); any thread reads. The archive: any.
 * Locks: the archive's mutex; above it nothing but `restarting`, below it order locks.
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
    HDI_LOGGED_UNSURE /* the writer is at it, or has died at it: to be asked again */
} hdi_logged;

/* Whether a failure of the log covers `position`, and which. Any thread; `done` or `issued` must have passed the position. */
hdi_logged hdi_failure_logged(const hdi_channel *channel, uint32_t lane, uint64_t position, hdi_failure *out);

/* Application: the last position that any record covers, 0 without one. False: as HDI_LOGGED_UNSURE. Any thread. */
bool hdi_failure_end(const struct hd_lane *lane, uint64_t *out);

/* Writer: records the failure for those of its positions that have none. What follows an earlier record of the same cause at once becomes part
 * of it. */
void hdi_failure_add(const hdi_channel *channel, uint32_t lane, const hdi_failure *failure);

/* The engine's process has ended, perhaps in the middle of writing a record: lets readers go. What is half written either
 * does not count yet, or says something between the old and the new. */
void hdi_failure_repair(const hdi_channel *channel, uint32_t lane);

/* Likewise, and it may have written anything. Of the lane's records stay the first ones that can be. Returns the first position about which
 * they say nothing that counts: UINT64_MAX where all can be. Nobody submits. */
uint64_t hdi_failure_mend(const struct hd_lane *lane);

/* Nobody runs the engine: a record that has no end now ends at `to`, or goes where that is before its begin. */
void hdi_failure_close(const hdi_channel *channel, uint32_t lane, uint64_t to);

/* Application: the oldest record, false without one (or as HDI_LOGGED_UNSURE); and that it leaves the log. */
bool hdi_failure_first(const hdi_channel *channel, uint32_t lane, hdi_failure *out);
void hdi_failure_drop_first(struct hd_lane *lane);

/* ---- log and archive ---- */

typedef struct hdi_archive hdi_archive;
hdi_archive *hdi_archive_make(void); /* NULL: no memory */
void hdi_archive_free(hdi_archive *archive);
size_t hdi_archive_entries(hdi_archive *archive); /* what it holds, for tests */

/* The failure that covers `position` of a lane (global number), or false. Any thread; as hdi_failure_logged. Where a worker process
 * leaves its log half written for a second, the device counts as lost. */
bool hdi_failure_find(struct hd_runtime *rt, uint32_t lane, uint64_t position, hdi_failure *out);

/* Whether the log has room for the failure of everything that can be in the lane's ring at once. A submission that finds none makes room first. */
bool hdi_failures_have_room(const struct hd_lane *lane);
/* Whether there is enough in the log to archive some. */
bool hdi_failures_are_many(const struct hd_lane *lane);

typedef enum hdi_archived {
    HDI_ARCHIVED,
    HDI_ARCHIVED_BEHIND,   /* nothing can go before *lane (global number) has done *position */
    HDI_ARCHIVED_NO_MEMORY /* not all that could go has gone */
} hdi_archived;

/* Moves what may go from the log into the archive. No lock is held. */
hdi_archived hdi_failures_archive(struct hd_lane *of, uint32_t *lane, uint64_t *position);

#endif
