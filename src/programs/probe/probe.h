/* probe.h - what the files of heddle-probe share. Threads: one. Locks: none. Everything ends with the process. */
#ifndef HDI_PROGRAMS_PROBE_PROBE_H
#define HDI_PROGRAMS_PROBE_PROBE_H

#include <heddle.h>
#include <stdbool.h>
#include "peer/test.h"

/* ---- records.c: records. A write that fails ends the process: no process reads them any more. ---- */

void hdi_record_pair(int device, int owner);
void hdi_record_step(hdi_step step, uint64_t bytes);
void hdi_record_wrong(hdi_record_kind kind, int64_t at, uint64_t found, uint64_t expected);
/* The calling thread's last failure; the runtime may be NULL. */
void hdi_record_failed(const hd_runtime *runtime);
void hdi_record_refused(int code, const char *call);
void hdi_record_rates(double direct, double staged);
void hdi_record_plain(hdi_record_kind kind); /* one without more */

/* ---- deliver.c, time.c ---- */

#define HDI_MARGIN ((size_t)64 << 10) /* bytes in front of and behind those that the cases use */
#define HDI_AROUND ((size_t)4 << 10)  /* so many of them are looked at */

/* An ordered pair under test. */
typedef struct hdi_subject {
    hd_runtime *runtime;
    int device, owner;
    bool claims_atomics;
    hd_kernel *store, *load, *count;
    hd_buffer *near, *far; /* on `device`, on `owner`: room for cases of so many bytes, and margins */
    size_t room;
    uint8_t *scratch; /* as large as a buffer */
    uint64_t seed;    /* of the last pattern */
} hdi_subject;

/* What became of a pair. */
typedef enum hdi_outcome {
    HDI_OUTCOME_GOOD,
    HDI_OUTCOME_BAD,   /* a result was reported; the next pair may be tested */
    HDI_OUTCOME_FAILED /* a call failed, which was reported; nothing is sure any more */
} hdi_outcome;

/* Moves bytes in all ways and sizes. */
hdi_outcome hdi_deliver(hdi_subject *s);

/* Copies from `near` to `far`, directly and through pinned memory. */
hdi_outcome hdi_time(hdi_subject *s);

#endif
