/* findings.h - shared by the files that make findings.
 *
 * Threads, Locks: see model.h.
 */
#ifndef CLI_TRACE_FINDINGS_H
#define CLI_TRACE_FINDINGS_H

#include "cli/trace/parts.h"

typedef struct finder {
    trace *t;
    int64_t window;
    /* mean_busy: the mean over the devices in use */
    int64_t busy[TRACE_DEVICES], most_busy, mean_busy, most_compute;
    int64_t slow[TRACE_DEVICES];       /* time of copies that findings about paths explain */
    int64_t memory[TRACE_DEVICES];     /* idle time for memory that trace_finding_memory explains */
    int64_t copy_way[TRACE_DEVICES];   /* idle time while copies were on their way */
    bool ways_stated[TRACE_DEVICES];   /* a finding about copies reports that idle time */
    uint64_t staged[TRACE_DEVICES];    /* bytes of staged copies to the device */
    int64_t for_staged[TRACE_DEVICES]; /* idle time for halves of staged copies */
    trace_gap longest_staged[TRACE_DEVICES];
    int64_t own_moved[TRACE_DEVICES]; /* transfer time of copies of the program's own memory */
    /* a finding reports the time of these copies, and of their way */
    bool own_stated[TRACE_DEVICES];
    bool used[TRACE_DEVICES];
    /* some of the device's work failed or was lost, so its lack of work is no imbalance */
    bool lacks_work[TRACE_DEVICES];
    int n_used;
    int64_t *by_name; /* room for a sum by name */
    size_t room;
    bool failed;         /* out of memory */
    trace_finding spare; /* written if memory ran out, never shown */
} finder;

/* Adds a finding. The pointer is valid until the next call. `gain`: the most by which the window
 * may shrink. */
trace_finding *trace_finding_add(finder *f, const char *id, int device, int other, int64_t gain);
/* True if this much time of a device is worth a finding: both a share of the window and an
 * absolute time. */
bool trace_finding_counts(const finder *f, int64_t ns, int percent);

int trace_finding_percent(int64_t part, int64_t of);

/* A device's idle time of one cause, summed up before each of its pieces. */
typedef struct measure {
    const trace_device *d;
    trace_cause cause;
    int64_t *before; /* n_pieces + 1; the owner frees it */
    int64_t last;    /* no work follows after this time, so a later wait delays nothing */
} measure;

/* False: out of memory. */
bool trace_finding_measure(const trace_device *d, trace_cause cause, measure *out);
/* The measured time between `begin` and `end`. */
int64_t trace_finding_within(const measure *m, int64_t begin, int64_t end);

/* Replaces *gap by `p` if `part`, the time of `p` that concerns the finding, is longer than that of
 * *gap. */
void trace_finding_longer(trace_gap *gap, int device, const trace_piece *p, int64_t part);
/* Calls trace_finding_longer for all pieces of the measure between `begin` and `end`. */
void trace_finding_longest(trace_gap *gap, int device, const measure *m, int64_t begin, int64_t end);

/* How much the window can shrink if this much idle time disappears. */
int64_t trace_finding_bound(const finder *f, int64_t ns);

/* Finds full or moved memory, and sets `memory`. False: out of memory. */
bool trace_finding_memory(finder *f);

/* Findings on idle time without ready work: nothing was submitted, or work was on its way.
 * False: out of memory. */
bool trace_finding_idle_host(finder *f, int device);

#endif
