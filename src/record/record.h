/* record.h - records of a trace by the application's threads. Each thread writes into its own ring,
 * which the trace's writer empties.
 *
 *    hdi_recorder   of a runtime: the rings of its threads, and one ring that all other threads
 *    share
 *
 * Threads: any. Engines write into the channels of their devices instead.
 * Locks: a lock per recorder, for a thread's first record and for threads without a ring.
 * Blocking: never.
 * Always: without a trace, each place that could record costs a load and a branch. Only one thread
 * writes a ring: before each use, a thread checks that it owns the ring. Records without room are
 * counted.
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

/* The records of a thread's ranges that are missing in the file. */
typedef struct hdi_record_gap {
    uint32_t trace;    /* the trace that the other fields belong to; 0: none */
    uint32_t left_out; /* how many of the open innermost ranges have no PUSH */
    uint32_t owed;     /* how many POP records of ranges with a PUSH had no room */
    int64_t owed_at;   /* the time of the last of these POP records */
} hdi_record_gap;

/* The gap of a thread that shares a ring. While no record is missing, another thread may take the
 * structure over. It is in stable memory. */
typedef struct hdi_record_sharer {
    hdi_record_gap gap;
    uint32_t thread; /* the system's number */
    struct hdi_record_sharer *next;
} hdi_record_sharer;

/* A thread's ring in one recorder. It is in stable memory: a thread that uses it after hd_close
 * reads zeros, and is not the owner. */
typedef struct hdi_record_thread {
    _Atomic uint64_t recorder;           /* id */
    _Atomic(const hdi_presence *) owner; /* the presence of the thread inside calls */
    uint32_t thread;                     /* the system's number */
    hdi_record_gap gap;
    hdi_record_ring *ring;
    bool populated; /* the trace's writer made the system allocate the ring's memory */
    struct hdi_record_thread *next;
} hdi_record_thread;

/* The most threads with a ring of their own; further threads share one. A ring takes 2 MiB, which
 * is little compared with the memory of a machine that runs so many threads. */
#define HDI_RECORD_OWN_RINGS 127

#define HDI_RECORD_SHARERS 64 /* lists */

typedef struct hdi_recorder {
    _Atomic uint32_t detail; /* HDI_RECORD_DETAIL_*; 0: record nothing */
    /* the clock of the records; the trace's writer relates it to the system's clock */
    hdi_quick_clock clock;
    hdi_stable *stable;
    uint64_t id; /* never used again in this process */
    hdi_lock lock;
    /* for threads without a ring; NULL: nothing was ever recorded */
    hdi_record_ring *common;
    _Atomic(hdi_record_thread *) threads; /* only grows */
    uint32_t n_threads;
    _Atomic uint32_t trace;                         /* counts the traces */
    hdi_record_sharer *sharers[HDI_RECORD_SHARERS]; /* under the lock, by the thread's number */
} hdi_recorder;

/* Initializes a recorder of zeros. `stable`: the runtime's stable memory. */
void hdi_recorder_init(hdi_recorder *recorder, hdi_stable *stable);
/* Prepares for the next trace. Errors: HOST_MEMORY. */
hd_status hdi_recorder_prepare(hdi_recorder *recorder);
/* Releases a recorder, in which no thread records any more. */
void hdi_recorder_release(hdi_recorder *recorder);

/* True while a trace is written. */
static inline bool hdi_records(const hdi_recorder *recorder)
{
    return __builtin_expect(atomic_load_explicit(&recorder->detail, memory_order_relaxed) != 0, 0);
}

/* The time, for a record of a thread. */
int64_t hdi_record_now(const hdi_recorder *recorder);

/* The begin of something that will be recorded; 0 without a trace. */
static inline int64_t hdi_record_began(const hdi_recorder *recorder)
{
    return hdi_records(recorder) ? hdi_record_now(recorder) : 0;
}

/* Writes `n` records that belong together: all, or none if they do not fit. Fills in the thread. */
void hdi_record_put_slow(hdi_recorder *recorder, hdi_record *records, uint32_t n);

/* The calling thread's ring; NULL: none yet, or shared. */
static inline hdi_record_thread *hdi_record_ring_here(const hdi_recorder *recorder)
{
    const hdi_presence *own = hdi_presence_here.own;
    hdi_record_thread *here = own ? own->records : NULL;
    /* relaxed: if they match, both are this thread's own stores */
    return here && atomic_load_explicit(&here->owner, memory_order_relaxed) == own &&
                   atomic_load_explicit(&here->recorder, memory_order_relaxed) == recorder->id
               ? here
               : NULL;
}

/* Returns the place for the thread's next record. Only the thread's number is filled in. NULL: no
 * room. hdi_record_end passes the record to the reader. */
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

/* Writes a record with a text of at most HDI_RECORD_TEXTS_MOST pieces. The rest of the text is cut
 * off, behind a whole character. NULL: no text. */
#define HDI_RECORD_TEXTS_MOST 8
/* Room for such a text, and for the rest of the character at which the text is cut. */
#define HDI_RECORD_TEXT_ROOM (HDI_RECORD_TEXTS_MOST * HDI_RECORD_TEXT_BYTES + 4)
void hdi_record_put_text(hdi_recorder *recorder, hdi_record *record, const char *text);
/* Record that a range of the calling thread begins, or that its innermost range ends. If a PUSH
 * does not fit, its range and all ranges within are left out. A POP that does not fit is written
 * later, so the ranges around it keep their ends. */
void hdi_record_push(hdi_recorder *recorder, hdi_record *record, const char *name);
void hdi_record_pop(hdi_recorder *recorder, hdi_record *record);
/* Counts as dropped a record of the calling thread that does not fit elsewhere. */
void hdi_record_drop(hdi_recorder *recorder);
/* The calling thread's number, as in records. */
uint32_t hdi_record_own_number(void);
/* Makes the record and the pieces of its text in all[1 + HDI_RECORD_TEXTS_MOST]; returns how many
 * there are. */
uint32_t hdi_record_with_text(hdi_record *all, const hdi_record *record, const char *text);

/* A number for as much of a text as a record can contain; never 0. The same text gets the same
 * number. A number has 64 bits, so in practice no two texts share a number. */
uint64_t hdi_record_number(const char *text);
/* A number of 32 bits for a label. Two labels may share a number, and the trace's writer renumbers
 * the later one. So records contain the label's text, too. */
uint32_t hdi_record_label_number(const char *label);

/* hdi_pause_end records that something held the calling thread up since `began`. If `began` is 0,
 * it records nothing. */
typedef struct hdi_pause {
    uint8_t kind, device;
    uint32_t lane, detail;
    uint64_t position, bytes;
} hdi_pause;
/* A pause for mapping or for the callback also counts among the rungs of the thread's next
 * allocation. */
void hdi_pause_end(hdi_recorder *recorder, int64_t began, hdi_pause pause);

/* Notes that the calling thread's allocation took the step `rung` (HDI_RECORD_RUNG_*). */
void hdi_record_add_rung(const hdi_recorder *recorder, unsigned rung);
/* Returns the rungs that the calling thread's allocation took so far, and clears the note. */
unsigned hdi_record_take_rungs(void);

#endif
