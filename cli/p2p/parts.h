/* parts.h - declarations that the files of `heddle p2p` share.
 *
 *    run.c          the conductor: opens the devices, gets the verdicts, runs the measurements
 *    plain.c        the driver's own calls: devices, memory, kernels, peer access
 *    sample.c       copies behind a gate, timed by device events; dependent loads
 *    pairs.c        measures pairs with plain calls: direct, and staged by the driver
 *    links.c        measures devices with pinned memory in the same way
 *    heddle.c       hd_copy, directly and with peers=off
 *    facts.c        facts from /sys and /proc about devices and the paths between them
 *    report.c       tables, verdicts, reasons, remedies
 *    json.c         the record as JSON, and the figures in nvbandwidth's schema
 *    kernels/p2p.c  the kernels
 *
 * Threads: the conductor. Locks: none.
 * Failures: functions return false and leave one line in `error`, which holds PLAIN_ERROR bytes.
 *
 * Definitions marked "nvbandwidth" follow NVIDIA's nvbandwidth v0.8 (github.com/NVIDIA/nvbandwidth,
 * version.h). We read the definitions in nvbandwidth and wrote new code. Each comment names the
 * original file.
 */
#ifndef CLI_P2P_PARTS_H
#define CLI_P2P_PARTS_H

#include <heddle.h>
#include "cli/p2p/p2p.h"
#include "cli/p2p/facts.h"
#include "cli/common/plain.h"
#include "cli/common/stats.h"
#include "driver/driver.h"

#define P2P_MIB ((size_t)1 << 20)

/* Limit of every wait for hd_copy: a copy that takes longer counts as hanging. */
#define P2P_TIMEOUT_NS ((int64_t)120 * 1000000000)

enum {
    P2P_DEVICES_MAX = 32, /* most devices of a runtime */
    P2P_NOTES_MAX = 64,
    P2P_JOBS_MAX = 2, /* concurrent copies */
    P2P_STREAMS = 2,
    /* nvbandwidth (common.h, memcpy.cpp): buffer size, copies in a sample, copies before it,
     * samples (the median counts) */
    P2P_SIZE_MIB = 512,
    P2P_COPIES = 16,
    P2P_WARM = 4,
    P2P_SAMPLES = 3,
    /* nvbandwidth (common.h, nvbandwidth.cpp): threads in a block; the size in MiB below which
     * kernels copy a buffer up to its last 16 bytes. For chains of loads: the size of their memory,
     * the bytes from one load to the next, and the number of loads. */
    P2P_BLOCK = 512,
    P2P_SMALL_MIB = 64,
    P2P_CHAIN_BYTES = 2 << 20,
    P2P_CHAIN_STEP = 128,
    P2P_CHAIN_LOADS = 1000000,
    /* Only in this tool: the numbers of staged copies in a sample, and of small copies, each of
     * which is waited for. */
    P2P_STAGED_COPIES = 4,
    P2P_STAGED_WARM = 1,
    P2P_SMALL_COPIES = 1000,
    P2P_HOST_SIZE_MIB = 4, /* buffers on host devices */
    P2P_QUICK_SIZE_MIB = 64,
    P2P_QUICK_HOST_SIZE_MIB = 1
};

/* ---- figures ---- */

/* A figure for every ordered pair: value[d][o] is the figure of device d with the memory of device
 * o. NaN: not measured. */
typedef enum p2p_figure_id {
    /* direct access, plain driver calls */
    P2P_CE_WRITE, /* d's copy engine, from its memory into o's memory */
    P2P_CE_READ,  /* d's copy engine, from o's memory into its own */
    P2P_CE_BOTH_WRITE_1,
    P2P_CE_BOTH_WRITE_2,
    P2P_CE_BOTH_WRITE,
    P2P_CE_BOTH_READ_1,
    P2P_CE_BOTH_READ_2,
    P2P_CE_BOTH_READ,
    P2P_SM_WRITE,
    P2P_SM_READ,
    P2P_SM_BOTH_WRITE_1,
    P2P_SM_BOTH_WRITE_2,
    P2P_SM_BOTH_WRITE,
    P2P_SM_BOTH_READ_1,
    P2P_SM_BOTH_READ_2,
    P2P_SM_BOTH_READ,
    P2P_SM_LATENCY,
    P2P_DIRECT_4,    /* 4 bytes from d to o, with a wait */
    P2P_DIRECT_4096, /* 4 KiB */
    /* no peer access: the driver stages */
    P2P_STAGED,
    P2P_STAGED_BOTH,
    P2P_STAGED_4,
    P2P_STAGED_4096,
    /* hd_copy from d to o */
    P2P_HEDDLE_DIRECT,
    P2P_HEDDLE_DIRECT_BOTH,
    P2P_HEDDLE_DIRECT_4,
    P2P_HEDDLE_DIRECT_4096,
    P2P_HEDDLE_STAGED,
    P2P_HEDDLE_STAGED_BOTH,
    P2P_HEDDLE_STAGED_4,
    P2P_HEDDLE_STAGED_4096,
    P2P_FIGURES
} p2p_figure_id;

/* Figures of every device with pinned memory near the device. */
typedef enum p2p_link_id {
    P2P_TO_DEVICE_CE,
    P2P_TO_HOST_CE,
    P2P_TO_DEVICE_BOTH_CE, /* while twice as many bytes flow the other way */
    P2P_TO_HOST_BOTH_CE,
    P2P_TO_DEVICE_SM,
    P2P_TO_HOST_SM,
    P2P_HOST_LATENCY_SM,
    P2P_LOCAL_CE, /* inside the device */
    P2P_LINKS
} p2p_link_id;

typedef struct p2p_figure {
    const char *id, *text;
    const char *unit; /* "GB/s" (1e9 bytes), "us" or "ns" */
} p2p_figure;

extern const p2p_figure p2p_figures[P2P_FIGURES], p2p_links[P2P_LINKS];

typedef double p2p_matrix[P2P_DEVICES_MAX][P2P_DEVICES_MAX];

/* ---- the experiment ---- */

typedef struct p2p_device {
    hd_device_info info;
    hdcu_device ordinal;
    hdcu_context context;
    hdcu_module module;
    hdcu_function copy, chase, fill, check, gate;
    hdcu_stream stream[P2P_STREAMS];
    hdcu_event start[P2P_STREAMS], end[P2P_STREAMS];
    hdcu_deviceptr count; /* 8 bytes: a kernel's result */
    uint32_t multiprocessors;
} p2p_device;

typedef struct p2p_experiment {
    report_record record; /* comes first */
    const p2p_options *options;
    hd_runtime *runtime; /* with the environment's options */
    hd_runtime_info info;
    bool on_host; /* host devices */
    int n;
    p2p_device devices[P2P_DEVICES_MAX];
    hd_peer_info peers[P2P_DEVICES_MAX][P2P_DEVICES_MAX];
    p2p_facts facts;

    const hdi_driver *driver; /* NULL: not open */
    char settings[256];       /* settings of the runtime, with which it was opened */
    plain_image image;
    hdcu_result code; /* result of the driver's last failed call */
    uint32_t *gate;   /* pinned memory: [0] is the gate, [1] notes that a kernel gave up */
    hdcu_deviceptr gate_address;

    size_t bytes; /* of a buffer */
    int copies, warm, samples, staged_copies, staged_warm, small_copies;

    p2p_matrix figures[P2P_FIGURES];
    double links[P2P_LINKS][P2P_DEVICES_MAX];
    uint64_t checked, wrong; /* samples whose bytes were compared; samples with wrong bytes */
    char notes[P2P_NOTES_MAX][PLAIN_ERROR];
    int n_notes, notes_left_out;

    int steps, steps_done; /* progress */
} p2p_experiment;

/* True if the verdict lets d use o's memory. A device is not its own peer. */
bool p2p_direct(const p2p_experiment *x, int d, int o);

/* True if the experiment found a pair that must not be used. */
bool p2p_is_corrupt(const p2p_experiment *x);

/* Notes a line that the report prints below the tables. */
void p2p_note(p2p_experiment *x, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Counts a step of `stage`, and shows the progress. */
void p2p_step(p2p_experiment *x, const char *stage, const char *item);

/* ---- plain driver calls ---- */

bool p2p_check(p2p_experiment *x, hdcu_result result, const char *entry, char *error);
#define P2P_TRY(x, error, entry, arguments) p2p_check(x, (x)->driver->entry arguments, #entry, error)

/* Opens the provider, every device with its kernels and streams, and the gate. */
bool p2p_plain_open(p2p_experiment *x, char *error);
void p2p_plain_close(p2p_experiment *x);

/* the device's context becomes current */
bool p2p_enter(p2p_experiment *x, int device, char *error);

/* Lets d use o's memory, or ends that access. */
bool p2p_connect(p2p_experiment *x, int d, int o, char *error);
void p2p_disconnect(p2p_experiment *x, int d, int o);

/* Memory of a device, or pinned memory (device -1). */
typedef struct p2p_memory {
    int device;
    size_t bytes;
    hdcu_deviceptr address; /* 0: none */
    void *host;             /* address of pinned memory on the host */
} p2p_memory;

bool p2p_take(p2p_experiment *x, int device, size_t bytes, p2p_memory *out, char *error);
void p2p_give(p2p_experiment *x, p2p_memory *m); /* ignores a zeroed `m` */

/* Fills memory with the pattern of a seed, or compares the memory with this pattern, by kernels of
 * `device`. Waits for the end. */
bool p2p_fill(p2p_experiment *x, int device, const p2p_memory *m, size_t bytes, uint32_t seed, char *error);
bool p2p_compare(p2p_experiment *x, int device, const p2p_memory *m, size_t bytes, uint32_t seed, uint64_t *wrong,
                 char *error);

/* ---- samples ---- */

/* One of several concurrent copies. */
typedef struct p2p_job {
    const p2p_memory *dst, *src;
    int on; /* the device whose stream runs it */
    bool by_kernel;
} p2p_job;

/* Measures the GB/s of each job, as the median of the samples. If bytes arrive changed, the result
 * is NaN, and a note states this. */
bool p2p_measure(p2p_experiment *x, const char *what, const p2p_job *jobs, int n, double *out, char *error);

/* Measures nanoseconds per load, with a kernel of `device` that follows a chain in m. */
bool p2p_chase(p2p_experiment *x, const char *what, int device, const p2p_memory *m, double *out, char *error);

/* ---- cases ---- */

int p2p_pairs_steps(const p2p_experiment *x);
bool p2p_pairs_run(p2p_experiment *x, char *error);

int p2p_links_steps(const p2p_experiment *x);
bool p2p_links_run(p2p_experiment *x, char *error);

int p2p_heddle_steps(const p2p_experiment *x);
bool p2p_heddle_run(p2p_experiment *x, char *error);

/* ---- results ---- */

void p2p_print_tables(const void *experiment, FILE *out);
void p2p_print_json(const void *experiment, FILE *out);
void p2p_print_nvbandwidth(const void *experiment, FILE *out);

/* The advice for a verdict; "": none. */
const char *p2p_remedy(const p2p_experiment *x, const hd_peer_info *peer);

/* The version of the driver's kernel module, such as "580.159.04". "host" for host devices. ""
 * if it cannot be read. */
void p2p_driver_text(const p2p_experiment *x, char *out, size_t bytes);

#endif
