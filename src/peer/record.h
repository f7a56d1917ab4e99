/* record.h - what the program heddle-probe reports of the pairs of devices that it tests, and its arguments.
 *
 * It gets a descriptor of a pipe, and three arguments:
 * 1. Settings for hd_open.
 * 2. Pairs, as positions in the list of devices in those settings: "0>1,1>0".
 * 3. Hexadecimal UUIDs of these devices, one behind the other. Numbers may mean other devices in that process, as when
 *    the application has changed CUDA_VISIBLE_DEVICES.
 *
 * It writes records of one size to the pipe, each in one write. It reports a step before it takes it, so the last
 * record names the step in which it hung or died. It also reports what it has found. The pairs come in the order of the
 * arguments.
 *
 * Threads, locks, blocking: none; plain data between two processes of one build.
 * Always: the process that reads a record checks all of it.
 */
#ifndef HDI_PEER_RECORD_H
#define HDI_PEER_RECORD_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#define HDI_PROBE_NAME "heddle-probe"
/* The version of records, arguments and tests. A result of another version is ignored. */
#define HDI_PROBE_VERSION 2
#define HDI_PROBE_MAGIC 0x48504252u

/* What the program does next. */
typedef enum hdi_step {
    HDI_STEP_OPEN = 1,    /* before the first pair: hd_open and kernels */
    HDI_STEP_PREPARE,     /* memory on both devices */
    HDI_STEP_GRANT,       /* the driver makes the owner's memory accessible */
    HDI_STEP_COPY_TO,     /* the device's copy engine writes `bytes` */
    HDI_STEP_STORE,       /* its kernels write them */
    HDI_STEP_COPY_FROM,   /* its copy engine reads `bytes` */
    HDI_STEP_LOAD,        /* its kernels read them */
    HDI_STEP_COUNT,       /* its kernels count there with atomic operations */
    HDI_STEP_TIME_DIRECT, /* copies to the owner's memory */
    HDI_STEP_TIME_STAGED, /* the same copies through pinned memory */
    HDI_STEPS
} hdi_step;

typedef enum hdi_record_kind {
    HDI_RECORD_PAIR = 1, /* the next pair begins */
    HDI_RECORD_STEP,     /* the step `step` begins, with `bytes` */
    HDI_RECORD_WRONG,    /* in the current step: byte `at` is `found` instead of `expected` */
    /* In the current step: byte `at`, counted from the step's range and outside of it, is `found`. The step must not
     * touch it. */
    HDI_RECORD_BESIDE,
    HDI_RECORD_MISCOUNT, /* in the current step: counter `at` is `found` instead of `expected` */
    HDI_RECORD_FAILED,   /* a call of the current step failed: `status`, `code`, `text` */
    HDI_RECORD_REFUSED,  /* the driver refused the grant: `code`; `text` is its entry point */
    HDI_RECORD_COUNTS,   /* atomic operations count right */
    HDI_RECORD_RATES,    /* `direct`, `staged`: bytes per second */
    HDI_RECORD_PAIR_END, /* the pair ends */
    HDI_RECORD_END,
    HDI_RECORDS
} hdi_record_kind;

typedef struct hdi_record {
    uint32_t magic, version;
    uint32_t kind, step;
    int32_t device, owner; /* positions; in PAIR */
    int32_t status, code;
    uint64_t bytes;
    int64_t at;
    uint64_t found, expected;
    double direct, staged;
    char text[176];
} hdi_record;

/* Whether this signal is the result of what the process itself did. Other signals come from outside: an administrator,
 * a job's end, a machine short of memory. They report nothing about the step of the process. */
static inline bool hdi_signal_is_crash(int signal)
{
    return signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGFPE || signal == SIGABRT ||
           signal == SIGTRAP || signal == SIGSYS;
}

/* A write of one record is never split: pipes keep up to 4096 bytes together. */
_Static_assert(sizeof(hdi_record) == 256, "a record");

#endif
