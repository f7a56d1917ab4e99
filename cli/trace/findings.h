/* findings.h - what the files that make findings share.
 *
 * Threads, Locks: see model.h.
 */
#ifndef CLI_TRACE_FINDINGS_H
#define CLI_TRACE_FINDINGS_H

#include "cli/trace/parts.h"

typedef struct finder {
    trace *t;
    int64_t window;
    int64_t busy[TRACE_DEVICES], most_busy, mean_busy, most_compute; /* mean: of the devices that are used */
    int64_t slow[TRACE_DEVICES];       /* time of copies that findings about paths explain */
    int64_t memory[TRACE_DEVICES];     /* idle time for memory that finding_memory explains */
    int64_t copy_way[TRACE_DEVICES];   /* idle time in which copies were on their way */
    bool ways_stated[TRACE_DEVICES];   /* a finding about copies has that time */
    uint64_t staged[TRACE_DEVICES];    /* bytes of staged copies to it */
    int64_t for_staged[TRACE_DEVICES]; /* idle time for halves of staged copies */
    trace_gap longest_staged[TRACE_DEVICES];
    int64_t own_moved[TRACE_DEVICES]; /* time of transfer in which copies of the program's own memory ran */
    bool own_stated[TRACE_DEVICES];   /* a finding has the time of these copies, and of their way */
    bool used[TRACE_DEVICES];
    bool lacks_work[TRACE_DEVICES]; /* work of it failed or was lost: that it has less is no imbalance */
    int n_used;
    int64_t *by_name; /* room for a sum of each name */
    size_t room;
    bool failed;         /* no memory */
    trace_finding spare; /* written, and shown by none, then */
} finder;

/* Adds one, which is valid until the next; gain: what the window may be shorter by, at most. */
trace_finding *finding_add(finder *f, const char *id, int device, int other, int64_t gain);
/* Whether so much time of a device is worth a finding: a share of the window, and a time. */
bool finding_counts(const finder *f, int64_t ns, int percent);

int finding_percent(int64_t part, int64_t of);

/* A device's idle time of one cause, before each of its pieces. */
typedef struct measure {
    const trace_device *d;
    trace_cause cause;
    int64_t *before; /* n_pieces + 1; the owner frees it */
    int64_t last;    /* what is behind that comes before no work: waiting there holds nothing up */
} measure;

/* False: no memory. */
bool finding_measure(const trace_device *d, trace_cause cause, measure *out);
/* How much of it lies from `begin` to `end`. */
int64_t finding_within(const measure *m, int64_t begin, int64_t end);

/* Makes it `p` if more of that is what the finding is about. */
void finding_longer(trace_gap *gap, int device, const trace_piece *p, int64_t part);
/* The same of all pieces of the measure from `begin` to `end`. */
void finding_longest(trace_gap *gap, int device, const measure *m, int64_t begin, int64_t end);

/* What the window can get shorter by, of so much idle time. */
int64_t finding_bound(const finder *f, int64_t ns);

/* Findings on memory that is full or moved; sets `memory`. False: no memory. */
bool finding_memory(finder *f);

/* Idle time of a device without work that could not go: nothing was submitted, or it was on its way. False: no memory. */
bool finding_idle_host(finder *f, int device);

#endif
