/* record.h - what threads of the application write into a trace: each into a ring of its own, which the trace's writer empties.
 *
 *    hdi_recorder   of a runtime: the rings of its threads, and one for those that have none
 *
 * Threads: any; those of engines in worker processes write into their device's channel instead.
 * Locks: a lock per recorder, for a thread's first record and for threads without a ring.
 * Blocking: never.
 * Always: where nothing is recorded, a place that could record costs a load and a branch. A ring has one writer: a thread takes it
 * only after it has found itself to be the owner. What has no room is counted.
 */
#ifndef HDI_RECORD_RECORD_H
#define HDI_RECORD_RECORD_H

#include <heddle/status.h>
#include "base/handle.h"
#include "base/lock.h"
#include "base/presence.h"
#include "base/quick_clock.h"
#include "base/thread.h"
#include "base/wait.h"
#include "record/ring.h"

/* What the file does not have of a thread's ranges. */
typedef struct hdi_record_gap {
    uint32_t trace;    /* what follows is of this one; 0: of none */
    uint32_t left_out; /* innermost ranges that are open, and have no PUSH */
    uint32_t owed;     /* POP records that had no room, of ranges that have a PUSH */
    int64_t owed_at;   /* time of the last of those */
} hdi_record_gap;

/* That of a thread which shares a ring. Where nothing is missing it serves another thread. In stable memory. */
typedef struct hdi_record_sharer {
    hdi_record_gap gap;
    uint32_t thread; /* the system's number */
    struct hdi_record_sharer *next;
} hdi_record_sharer;

/* A thread's ring in one recorder. In stable memory: a thread that comes to it after hd_close reads zeros, and is not the owner. */
typedef struct hdi_record_thread {
    _Atomic uint64_t recorder;           /* id */
    _Atomic(const hdi_presence *) owner; /* what the thread is inside calls by */
    uint32_t thread;                     /* the system's number */
    hdi_record_gap gap;
    hdi_record_ring *ring;
    bool populated; /* the trace's writer has seen to that */
    struct hdi_record_thread *next;
} hdi_record_thread;

#define HDI_RECORD_SHARERS 64 /* lists */

typedef struct hdi_recorder {
    _Atomic uint32_t detail; /* HDI_RECORD_DETAIL_*; 0: nothing is recorded */
    hdi_quick_clock clock;   /* of the records; the trace's writer relates it */
    hdi_stable *stable;
    uint64_t id; /* never used again in this process */
    hdi_lock lock;
    hdi_record_ring *common;              /* of threads without a ring; NULL: nothing was ever recorded */
    _Atomic(hdi_record_thread *) threads; /* only grows */
    uint32_t n_threads, threads_most;
    _Atomic uint32_t trace;                         /* counts them */
    hdi_record_sharer *sharers[HDI_RECORD_SHARERS]; /* under the lock, by the thread's number */
} hdi_recorder;

/* Of one that is all zeros. `stable`: the runtime's. */
void hdi_recorder_init(hdi_recorder *recorder, hdi_stable *stable);
/* Before the first trace: rings of at most so many bytes. Errors: HOST_MEMORY. */
hd_status hdi_recorder_prepare(hdi_recorder *recorder, uint64_t bytes);
/* No thread records any more. */
void hdi_recorder_release(hdi_recorder *recorder);

/* Whether a trace is being written. */
static inline bool hdi_records(const hdi_recorder *recorder)
{
    return __builtin_expect(atomic_load_explicit(&recorder->detail, memory_order_relaxed) != 0, 0);
}

/* The time, for a record of a thread. */
int64_t hdi_record_now(const hdi_recorder *recorder);

/* When something begins that is going to be recorded; 0 where no trace is written. */
static inline int64_t hdi_record_began(const hdi_recorder *recorder)
{
    return hdi_records(recorder) ? hdi_record_now(recorder) : 0;
}

/* `n` records that belong together: none of them is written where they have no room. Fills in the thread. */
void hdi_record_put_slow(hdi_recorder *recorder, hdi_record *records, uint32_t n);

/* The calling thread's ring; NULL: it has none yet, or shares one. */
static inline hdi_record_thread *hdi_record_ring_here(const hdi_recorder *recorder)
{
    const hdi_presence *own = hdi_presence_here.own;
    hdi_record_thread *here = own ? own->records : NULL;
    /* relaxed: both are this thread's own stores where they fit */
    return here && atomic_load_explicit(&here->owner, memory_order_relaxed) == own &&
                   atomic_load_explicit(&here->recorder, memory_order_relaxed) == recorder->id
               ? here
               : NULL;
}

/* Where the thread's next record is to be written, with its thread and otherwise undefined. NULL: there is no room for it. hdi_record_end
 * makes it the reader's. */
static inline hdi_record *hdi_record_begin(const hdi_record_thread *here)
{
    hdi_record_ring *ring = here->ring;
    if (__builtin_expect(!hdi_ring_has_room(ring, 1), 0)) {
        return NULL;
    }
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    hdi_record *at = &ring->records[head % HDI_RING_RECORDS];
    hdi_ring_prepare(ring, head);
    at->thread = here->thread;
    return at;
}

static inline void hdi_record_end(const hdi_record_thread *here)
{
    uint64_t head = atomic_load_explicit(&here->ring->head, memory_order_relaxed);
    atomic_store_explicit(&here->ring->head, head + 1, memory_order_release);
}

/* Fills in the thread. */
static inline void hdi_record_put(hdi_recorder *recorder, hdi_record *record)
{
    const hdi_record_thread *here = hdi_record_ring_here(recorder);
    if (__builtin_expect(!here, 0)) {
        hdi_record_put_slow(recorder, record, 1);
        return;
    }
    record->thread = here->thread;
    hdi_ring_put(here->ring, record);
}

/* A record with a text of at most HDI_RECORD_TEXTS_MOST pieces; the rest is cut off, behind a whole character. NULL: none. */
#define HDI_RECORD_TEXTS_MOST 8
/* Room for such a text, and for the rest of the character at which it is cut. */
#define HDI_RECORD_TEXT_ROOM (HDI_RECORD_TEXTS_MOST * HDI_RECORD_TEXT_BYTES + 4)
void hdi_record_put_text(hdi_recorder *recorder, hdi_record *record, const char *text);
/* A range of the calling thread begins, or its innermost one ends. A range whose PUSH has no room is left out with all within it, and a
 * POP without room comes later. So the ranges around keep their ends. */
void hdi_record_push(hdi_recorder *recorder, hdi_record *record, const char *name);
void hdi_record_pop(hdi_recorder *recorder, hdi_record *record);
/* What the calling thread has no room for otherwise counts as a record that was dropped. */
void hdi_record_drop(hdi_recorder *recorder);
/* The calling thread's number, as records have it. */
uint32_t hdi_record_own_number(void);
/* The same record and its pieces, all[1 + HDI_RECORD_TEXTS_MOST]; returns how many there are. */
uint32_t hdi_record_with_text(hdi_record *all, const hdi_record *record, const char *text);

/* A number for a text as far as it is written, the same one for the same text; never 0. Of 64 bits, so two texts do not have the same. */
uint64_t hdi_record_number(const char *text);
/* One of 32 bits, for a label. Two labels may have the same: the trace's writer gives the later one another. So the text goes with it. */
uint32_t hdi_record_label_number(const char *label);

/* For something that held the calling thread up since `began`; nothing where that is 0. */
typedef struct hdi_pause {
    uint8_t kind, device;
    uint32_t lane, detail;
    uint64_t position, bytes;
} hdi_pause;
/* A pause for mapping or for the callback also counts among the rungs of the thread's next allocation. */
void hdi_pause_end(hdi_recorder *recorder, int64_t began, hdi_pause pause);

/* The calling thread's allocation takes a rung: HDI_RECORD_RUNG_*. */
void hdi_record_add_rung(const hdi_recorder *recorder, unsigned rung);
/* The rungs that the calling thread's allocation took so far, which are no longer counted then. */
unsigned hdi_record_take_rungs(void);

#endif
