/* p2p.h - `heddle p2p`: which devices can use each other's memory, how fast they are, and why other
 * devices cannot.
 *
 * The experiment, in this order:
 *   - the verdicts of hd_peers_check for every ordered pair
 *   - bandwidth and latency of every pair, by copy engine and by kernel if the verdict allows
 *     direct access
 *   - bandwidth and latency through pinned memory, by the driver and by hd_copy
 *   - copies between the devices and pinned memory
 *   - facts from /sys and /proc about the devices and the paths between them
 *
 * Threads: the program's first thread calls p2p_run. Locks: none that callers see.
 */
#ifndef CLI_P2P_P2P_H
#define CLI_P2P_P2P_H

#include <stdbool.h>
#include <stddef.h>
#include "cli/common/report.h"

enum {
    P2P_SIZE_MAX = 16384, /* MiB */
    P2P_SAMPLES_MAX = 99,
    P2P_CORRUPT = 3 /* result of p2p_run if a pair loses or changes bytes */
};

typedef struct p2p_options {
    /* in the form of the option `devices`; NULL: from the environment */
    const char *devices;
    int size_mib;                 /* size of the buffers; 0: depends on the kind of device */
    int samples;                  /* 0: 3 */
    bool quick;                   /* smaller buffers, one sample, fewer copies each */
    bool again;                   /* test all pairs again, including known ones */
    bool verdicts_only;           /* measure nothing */
    bool nvbandwidth_on_output;   /* prints this schema instead of the tables */
    const char *nvbandwidth_file; /* also writes the schema into this file; NULL: no file */
    report_run run;
} p2p_options;

/* Makes the experiment and prints the results. Returns:
 *   - 0: done, whatever the verdicts are
 *   - P2P_CORRUPT: a pair is corrupt, or bytes of a measurement arrived changed
 *   - 1: failed; prints the reason as one line on stderr, and the results so far */
int p2p_run(const p2p_options *options);

/* The help text, which explains the measurements and how to read their results. */
extern const char p2p_help[];

#endif
