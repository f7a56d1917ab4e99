/* record.h - what the program heddle-probe says about the pairs of devices that it tests, and how it is asked.
 *
 * It is started with three arguments, settings for hd_open, pairs as positions in the list of devices there ("0>1,1>0"), and who these
 * devices are (hexadecimal UUIDs, one behind the other: numbers may mean others by now, as when the application has changed
 * CUDA_VISIBLE_DEVICES), and one descriptor, a pipe. Into that it writes records of one size, each in one write: what it is about to do before it does it, so that
 * the last one names the step in which it hung or died; and what it has found. The pairs come in the order of the arguments.
 *
 * Plain data between two processes of one build. Whoever reads it believes nothing.
 */
#ifndef HDI_PEER_RECORD_H
#define HDI_PEER_RECORD_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#define HDI_PROBE_NAME "heddle-probe"
#define HDI_PROBE_VERSION                                                                                              \
    2 /* of records, arguments, and what is tested: a result of another version counts for nothing */
#define HDI_PROBE_MAGIC 0x48504252u

/* What the program does. */
typedef enum hdi_step {
    HDI_STEP_OPEN = 1,    /* of no pair: hd_open and kernels */
    HDI_STEP_PREPARE,     /* memory on both devices */
    HDI_STEP_GRANT,       /* the owner's memory is made accessible */
    HDI_STEP_COPY_TO,     /* the device's copy engine writes `bytes` */
    HDI_STEP_STORE,       /* its kernels do */
    HDI_STEP_COPY_FROM,   /* its copy engine reads them */
    HDI_STEP_LOAD,        /* its kernels do */
    HDI_STEP_COUNT,       /* its kernels count there, with atomic operations */
    HDI_STEP_TIME_DIRECT, /* copies to the owner's memory */
    HDI_STEP_TIME_STAGED, /* the same through pinned memory */
    HDI_STEPS
} hdi_step;

typedef enum hdi_record_kind {
    HDI_RECORD_PAIR = 1, /* begins the next pair */
    HDI_RECORD_STEP,     /* is about to do `step` with `bytes` */
    HDI_RECORD_WRONG,    /* of the current step: byte `at` is `found` where it should be `expected` */
    HDI_RECORD_BESIDE, /* of the current step: byte `at`, counted from its range, was not to be touched, and is `found` */
    HDI_RECORD_MISCOUNT, /* of the current step: counter `at` is `found`, and should be `expected` */
    HDI_RECORD_FAILED,   /* a call of the current step failed: `status`, `code`, `text` */
    HDI_RECORD_REFUSED,  /* the driver refused the grant: `code`, `text` names the entry point */
    HDI_RECORD_COUNTS,   /* atomic operations count right */
    HDI_RECORD_RATES,    /* `direct`, `staged`: bytes per second */
    HDI_RECORD_PAIR_END, /* no more about this pair */
    HDI_RECORD_END,
    HDI_RECORDS
} hdi_record_kind;

typedef struct hdi_record {
    uint32_t magic, version;
    uint32_t kind, step;
    int32_t device, owner; /* positions; of PAIR */
    int32_t status, code;
    uint64_t bytes;
    int64_t at;
    uint64_t found, expected;
    double direct, staged;
    char text[176];
} hdi_record;

/* Whether a process that ends by this signal ends of what it did itself. Others come from outside (an administrator, a job's end, a machine
 * short of memory), and say nothing of what the process was doing. */
static inline bool hdi_signal_is_crash(int signal)
{
    return signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGFPE || signal == SIGABRT ||
           signal == SIGTRAP || signal == SIGSYS;
}

/* One write, one record: pipes keep up to 4096 bytes together. */
_Static_assert(sizeof(hdi_record) == 256, "a record");

#endif
