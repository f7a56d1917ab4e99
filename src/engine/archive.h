/* archive.h - the failures that left their lane's log, in few bytes.
 *
 * Most repeated failures come at equal distances. Such failures share an entry, so a loop whose
 * kernel fails a million times takes one entry. Claims that fail one after the other share an entry
 * even if their distances differ. All other failures go into entries that store steps. Each step
 * leads from one failure to the next one, and most steps take one or two bytes.
 *
 * Threads: any.
 * Locks: the archive's mutex, under which no other lock is taken. The caller may hold order locks.
 * Always:
 * - Positions rise. For positions behind the forgotten ones, the archive returns exactly the
 *   records that were added. A position between two records succeeded, even if both records share
 *   an entry. There is one exception: between claims that share an entry, positions without a
 *   ticket count as failed.
 * - If an allocation fails, an append may fail. The failures that the archive already holds stay.
 */
#ifndef HDI_ENGINE_ARCHIVE_H
#define HDI_ENGINE_ARCHIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/lock.h"
#include "engine/channel.h"

typedef struct hdi_archive hdi_archive;
typedef struct hdi_archive_entry hdi_archive_entry;

/* A stretch of positions in an entry of steps. The entry stores how each stretch differs from the
 * one before. */
typedef struct hdi_archive_state {
    uint64_t to, length;
    uint64_t blamed; /* the position to blame minus the begin of the stretch; may wrap around */
    uint32_t cause;  /* the place of the cause in the steps */
} hdi_archive_state;

struct hdi_archive {
    /* ---- of failures.c ---- */
    hdi_mutex moving; /* protects `until` and `heads`; order locks may be taken while it is held */
    /* The records up to `until` leave the log next. At some time, the work of this lane was done up
     * to `until`. The records leave once every lane finished the work that it contained at that
     * time. */
    uint64_t until;  /* 0: nothing is planned */
    uint64_t *heads; /* per lane of the runtime; NULL: nothing is planned */

    /* ---- of archive.c ---- */
    hdi_mutex lock; /* protects all that follows; may be taken while an order lock is held */
    hdi_archive_entry *entries;
    size_t count, room;
    size_t bytes;   /* the bytes of all steps */
    size_t counted; /* the bytes that the runtime's sum includes */
    /* The outcomes of positions up to this one are unknown. */
    uint64_t forgotten;
    /* About the last entry with steps: the places of its causes, and the state at its end. */
    uint32_t *causes;
    uint32_t n_causes, causes_room;
    hdi_archive_state state;
};

hdi_archive *hdi_archive_make(void); /* NULL: no memory */
void hdi_archive_free(hdi_archive *archive);

size_t hdi_archive_entries(hdi_archive *archive); /* the number of entries, for tests */

/* Returns the bytes of memory that the entries take. *more: by how many bytes they grew since the
 * last call. */
size_t hdi_archive_bytes(hdi_archive *archive, int64_t *more);

/* Adds a failure behind all others. `own`: the global number of its lane. False: no memory. */
bool hdi_archive_append(hdi_archive *archive, const hdi_failure *failure, uint32_t own);

/* Finds the failure that covers the position. A forgotten position counts as failed, with the code
 * HDI_FAILURE_FORGOTTEN. */
bool hdi_archive_find(hdi_archive *archive, uint64_t position, hdi_failure *out);

/* Chooses the oldest entries, which together take about a quarter of the archive's memory. Chooses
 * fewer entries if otherwise fewer than `least` stretches would be left. Returns the last position
 * of the chosen entries; 0: none was chosen. */
uint64_t hdi_archive_oldest(hdi_archive *archive, uint64_t least);

/* Drops the entries that end at the position or before it. */
void hdi_archive_forget(hdi_archive *archive, uint64_t to);

#endif
