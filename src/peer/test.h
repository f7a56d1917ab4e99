/* test.h - the test of pairs of devices: the reports of heddle-probe, the verdicts made from them,
 * and running that program.
 *
 * Threads: one thread uses each parser. Any thread calls hdi_test_pairs; its calls share only a
 * list of processes to reap.
 * Locks: one for the list of processes to reap, held for a moment. The caller must hold no lock
 * that other threads need.
 * Blocking: hdi_test_pairs blocks for the test, a second or so.
 * Always:
 * - The process that reads a record checks each field of the record.
 * - A verdict depends only on the records and the end of the process, so tests can replay any run.
 * - The program is killed if it reports nothing for too long, or if the thread that waits for it
 *   ends.
 * - Every pair gets exactly one result.
 */
#ifndef HDI_PEER_TEST_H
#define HDI_PEER_TEST_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <heddle/peer.h>

/* ---- records: the reports of the program heddle-probe on the pairs that it tests, and its
 * arguments ----
 *
 * The program gets a descriptor of a pipe, and three arguments:
 * 1. Settings for hd_open.
 * 2. Pairs, as positions in the list of devices in those settings: "0>1,1>0".
 * 3. Hexadecimal UUIDs of these devices, one after the other. In the program, the same numbers may
 *    stand for other devices, for example after the application changed CUDA_VISIBLE_DEVICES.
 *
 * The program writes records of one size to the pipe, each in one write. It reports a step before
 * it takes the step, so the last record names the step in which it hung or died. It also reports
 * its results. The pairs come in the order of the arguments. */

#define HDI_PROBE_NAME "heddle-probe"
/* The version of records, arguments and tests. A result of another version is ignored. */
#define HDI_PROBE_VERSION 2
#define HDI_PROBE_MAGIC 0x48504252u

/* The program's next step. */
typedef enum hdi_step {
    HDI_STEP_OPEN = 1,  /* before the first pair: hd_open and kernels */
    HDI_STEP_PREPARE,   /* memory on both devices */
    HDI_STEP_GRANT,     /* the driver makes the owner's memory accessible */
    HDI_STEP_COPY_TO,   /* the device's copy engine writes `bytes` bytes */
    HDI_STEP_STORE,     /* the device's kernels write `bytes` bytes */
    HDI_STEP_COPY_FROM, /* the device's copy engine reads `bytes` bytes */
    HDI_STEP_LOAD,      /* the device's kernels read `bytes` bytes */
    /* the device's kernels count in the owner's memory with atomic operations */
    HDI_STEP_COUNT,
    HDI_STEP_TIME_DIRECT, /* copies to the owner's memory */
    HDI_STEP_TIME_STAGED, /* the same copies through pinned memory */
    HDI_STEPS
} hdi_step;

typedef enum hdi_probe_record_kind {
    HDI_PROBE_RECORD_PAIR = 1, /* the next pair begins */
    HDI_PROBE_RECORD_STEP,     /* the step `step` begins, with `bytes` */
    HDI_PROBE_RECORD_WRONG,    /* in the current step: byte `at` is `found` instead of `expected` */
    /* The current step changed a byte outside of its range to `found`. `at` counts from the begin
     * of the range. */
    HDI_PROBE_RECORD_BESIDE,
    /* in the current step: counter `at` is `found` instead of `expected` */
    HDI_PROBE_RECORD_MISCOUNT,
    HDI_PROBE_RECORD_FAILED,   /* a call of the current step failed: `status`, `code`, `text` */
    HDI_PROBE_RECORD_REFUSED,  /* the driver refused the grant: `code`; `text` is its entry point */
    HDI_PROBE_RECORD_COUNTS,   /* atomic operations count right */
    HDI_PROBE_RECORD_RATES,    /* `direct`, `staged`: bytes per second */
    HDI_PROBE_RECORD_PAIR_END, /* the pair ends */
    HDI_PROBE_RECORD_END,
    HDI_RECORDS
} hdi_probe_record_kind;

typedef struct hdi_probe_record {
    uint32_t magic, version;
    uint32_t kind, step;
    int32_t device, owner; /* positions; in PAIR */
    int32_t status, code;
    uint64_t bytes;
    int64_t at;
    uint64_t found, expected;
    double direct, staged;
    char text[176];
} hdi_probe_record;

/* True if a signal is the result of the process's own action. All other signals come from outside:
 * from an administrator, from the end of a job, or from a system that is short of memory. They
 * prove nothing about the step of the process. */
static inline bool hdi_signal_is_crash(int signal)
{
    return signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGFPE || signal == SIGABRT ||
           signal == SIGTRAP || signal == SIGSYS;
}

/* A write of one record is never split: pipes keep up to 4096 bytes together. */
_Static_assert(sizeof(hdi_probe_record) == 256, "a record");

/* ---- the parser: a verdict per pair from the records of one run and the end of that process
 * ---- */

/* An ordered pair of devices: their numbers in the runtime, and their positions in the program's
 * list. */
typedef struct hdi_pair {
    int device, owner;
    int device_at, owner_at;
} hdi_pair;

typedef enum hdi_ending {
    HDI_ENDING_EXIT,   /* `detail`: the status */
    HDI_ENDING_SIGNAL, /* `detail`: the signal */
    /* the process reported nothing for `detail` milliseconds and was killed */
    HDI_ENDING_SILENT,
    HDI_ENDING_GONE,      /* it is unknown how the process ended */
    HDI_ENDING_MALFORMED, /* the process sent a wrong record and was killed */
    HDI_ENDING_UNWANTED   /* the process was killed since its result is no longer needed */
} hdi_ending;

typedef struct hdi_peer_parser {
    const hdi_pair *pairs;
    int n;
    double slow_margin;
    int current;    /* the current pair; -1: none yet */
    bool in_pair;   /* between PAIR and PAIR_END */
    unsigned steps; /* of this pair: one bit for each step */
    bool risky;     /* of this pair: a step touched the other device's memory */
    bool decided;   /* of this pair: info.verdict is final */
    bool untimed;   /* of this pair: bytes arrive correctly, but a copy for the timing failed */
    bool failed_open;
    bool ended;
    hdi_probe_record step; /* the last STEP; kind 0: none */
    hd_peer_info info;     /* the result of the pair; its reason contains the placeholders below */
} hdi_peer_parser;

/* Placeholders for the two devices in a stored reason, since another runtime may number the devices
 * differently. The function below replaces the placeholders by numbers. */
#define HDI_THE_DEVICE "<device>"
#define HDI_THE_OWNER "<owner>"
void hdi_peer_name_devices(hd_peer_info *info, int device, int owner);

/* Starts a parser. `pairs` must stay valid as long as the parser. `slow_margin`: a pair is slow if
 * copies through pinned memory are more than `slow_margin` times as fast as direct copies. */
void hdi_peer_parser_begin(hdi_peer_parser *h, const hdi_pair *pairs, int n, double slow_margin);

typedef enum hdi_parsed {
    HDI_PARSED_MALFORMED, /* not a record of this version, or not allowed here */
    HDI_PARSED_MORE,
    HDI_PARSED_PAIR,   /* a pair begins */
    HDI_PARSED_RESULT, /* pair h->current is over, with the result h->info */
    HDI_PARSED_END
} hdi_parsed;

hdi_parsed hdi_peer_parser_take(hdi_peer_parser *h, const hdi_probe_record *record);

/* Ends a parser when the program ended. True: the pair h->current had no result yet, and h->info is
 * its result. If no pair had begun, h->current is -1 and h->info is the result of all pairs. */
bool hdi_peer_parser_end(hdi_peer_parser *h, hdi_ending ending, int detail);

/* The first function makes an info without a verdict, the second one an inconclusive info with its
 * reason. */
hd_peer_info hdi_peer_blank(void);
hd_peer_info hdi_peer_inconclusive(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- running heddle-probe for some pairs, in a process of its own ---- */

/* the most devices in one process, so that no driver refuses the number of peers */
#define HDI_TEST_DEVICES 8

typedef struct hdi_test {
    const char *program;        /* path of heddle-probe */
    const char *settings;       /* settings for hd_open in that process, without the devices */
    const int *ordinals;        /* the devices' numbers in the driver, by number in the runtime */
    const uint8_t (*uuids)[16]; /* by number in the runtime */
    /* the limit for each pair, and for the start before the first pair */
    int64_t limit_ms;
    double slow_margin; /* as in hdi_peer_parser_begin */
    /* Called once for every pair, in any order, on the calling thread. `fleeting`: no descriptor,
     * process or memory was available for the test, or `ended` was set. The next attempt may
     * succeed. */
    void (*settled)(void *context, const hdi_pair *pair, const hd_peer_info *info, bool fleeting);
    void *context;
    /* True: the results are no longer needed, so the program is killed. NULL: never. */
    const _Atomic bool *ended;
} hdi_test;

/* Tests the pairs, in which `device` and `owner` are set, and changes their order. A pair whose
 * test is not over when test->ended becomes true is inconclusive and fleeting. Blocks for the test.
 * Never fails: a failure makes pairs inconclusive. */
void hdi_test_pairs(const hdi_test *test, hdi_pair *pairs, int n);

#endif
