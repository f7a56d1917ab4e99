/* p2p.h - `heddle p2p`: which device can use which other one's memory, how fast, and what stands in the way.
 *
 * The experiment, in this order:
 *   - the verdicts of hd_peers_check for every ordered pair
 *   - bandwidth and latency of every pair, by copy engine and by kernel where the verdict allows direct access
 *   - the same through pinned memory, by the driver and by hd_copy
 *   - copies between the devices and pinned memory
 *   - what /sys and /proc report of the paths between the devices
 *
 * Threads: p2p_run is called on the program's first. Locks: none that callers see.
 */
#ifndef CLI_P2P_P2P_H
#define CLI_P2P_P2P_H

#include <stdbool.h>
#include <stddef.h>
#include "cli/common/report.h"

enum {
    P2P_SIZE_MAX = 16384, /* MiB */
    P2P_SAMPLES_MAX = 99,
    P2P_CORRUPT = 3 /* what p2p_run returns when bytes do not arrive as they were sent */
};

typedef struct p2p_options {
    const char *devices;          /* as the option `devices`; NULL: as in the environment */
    int size_mib;                 /* of the buffers; 0: by the kind of device */
    int samples;                  /* 0: 3 */
    bool quick;                   /* smaller buffers, one sample, fewer copies in it */
    bool again;                   /* test all pairs, also those that are known */
    bool verdicts_only;           /* measure nothing */
    bool nvbandwidth_on_output;   /* its schema to the output, instead of the tables */
    const char *nvbandwidth_file; /* its schema into this file as well; NULL: no file */
    report_run run;
} p2p_options;

/* Runs it and prints it. Returns:
 *   - 0: done, whatever the verdicts are
 *   - P2P_CORRUPT: a pair is corrupt, or bytes of a measurement arrived wrong
 *   - 1: something failed; one line on stderr has the reason, and what was found out by then is printed */
int p2p_run(const p2p_options *options);

/* What is measured, and how to read it: text for the help. */
extern const char p2p_help[];

#endif
