/* report.h - figures about a runtime's memory as plain data, and functions that print them.
 *
 * hd_memory_report and the report at hd_close print them. The page that other processes read
 * (page.h) contains the structure hdi_report itself.
 *
 * Threads: any. Locks: see hdi_report_collect; a caller holds no lock of src/memory or src/buffer.
 */
#ifndef HDI_STATS_REPORT_H
#define HDI_STATS_REPORT_H

#include <heddle/memory.h>
#include <stdio.h>
#include "base/json.h"
#include "base/text.h"
#include "engine/claims.h"
#include "engine/runtime.h"
#include "kinds/kinds.h"

#define HDI_REPORT_HOLDERS 16
#define HDI_REPORT_LANES 16
#define HDI_REPORT_CLAIMS 8

/* The figures of hd_memory_stats, in the order of the structure. */
#define HDI_STATS_MAP(X)                                                                                               \
    X(limit_bytes)                                                                                                     \
    X(reserved_bytes)                                                                                                  \
    X(reserved_peak_bytes)                                                                                             \
    X(live_bytes)                                                                                                      \
    X(live_count)                                                                                                      \
    X(taken_bytes)                                                                                                     \
    X(taken_peak_bytes)                                                                                                \
    X(cached_bytes)                                                                                                    \
    X(waiting_bytes)                                                                                                   \
    X(held_bytes)                                                                                                      \
    X(allocations)                                                                                                     \
    X(frees)                                                                                                           \
    X(failures)                                                                                                        \
    X(from_magazine)                                                                                                   \
    X(from_same_lane)                                                                                                  \
    X(from_finished)                                                                                                   \
    X(from_waited)                                                                                                     \
    X(from_fresh)                                                                                                      \
    X(frees_elsewhere)                                                                                                 \
    X(driver_calls)                                                                                                    \
    X(mapped_bytes)                                                                                                    \
    X(moved_bytes)                                                                                                     \
    X(returned_bytes)                                                                                                  \
    X(ahead_bytes)                                                                                                     \
    X(drains)                                                                                                          \
    X(waits)                                                                                                           \
    X(wait_ns)                                                                                                         \
    X(early_reclaims)                                                                                                  \
    X(early_reclaim_ns)                                                                                                \
    X(limit_reclaims)                                                                                                  \
    X(limit_reclaim_ns)                                                                                                \
    X(longest_pause_ns)                                                                                                \
    X(double_frees)                                                                                                    \
    X(overruns)                                                                                                        \
    X(imported_bytes)                                                                                                  \
    X(imported_count)

/* Buffers with the same label; or, without a label, from the same call site. */
typedef struct hdi_report_holder {
    char label[HD_LABEL_BYTES]; /* "": the group is by call site */
    /* "symbol+0x12", "module+0x12" or an address; in a group by label, the site of one buffer. */
    char site[HDI_SITE_BYTES];
    uint64_t bytes, count;
} hdi_report_holder;

typedef struct hdi_report_device {
    int32_t device; /* HD_DEVICE_HOST: pinned memory */
    uint32_t lost;
    char name[128];
    hd_memory_stats stats;
    /* the lengths of the arrays, which list the largest lanes and holders */
    uint32_t n_lanes, n_holders;
    hd_lane_memory lanes[HDI_REPORT_LANES];
    hdi_report_holder holders[HDI_REPORT_HOLDERS];
    uint64_t other_lanes, other_lanes_bytes;
    /* the other groups, and the buffers in them */
    uint64_t other_holders, others_bytes, others_count;
} hdi_report_device;

typedef struct hdi_report {
    int64_t pid;
    int64_t time;            /* seconds since 1970 */
    uint64_t holders_age_ns; /* how much older the lanes and holders are than the other figures */
    char version[32], driver[16], placement[16];
    char program[64];
    uint32_t n_devices; /* the number of entries; pinned memory is the last one */
    uint32_t debug;     /* 1 if the option memory_debug is on */
    uint32_t n_findings, n_claims;
    uint64_t findings, claims; /* in all */
    hdi_report_device devices[HDI_DEVICES_MAX + 1];
    hdi_finding finding[HDI_REPORT_FINDINGS];
    /* "claim 'halo' of main+0x1f": claims that are still open. */
    char claim[HDI_REPORT_CLAIMS][HDI_CLAIM_TEXT];
} hdi_report;

/* ---- holders.c: buffers that hold memory ---- */

typedef struct hdi_holder {
    int32_t device;
    char label[HD_LABEL_BYTES];
    const void *site;
    uint64_t bytes, count;
    uint64_t kept; /* HDI_KEEPERS only: memory that the blocks keep from others, but do not use */
} hdi_holder;

typedef enum hdi_holders_of {
    HDI_HOLDERS, /* existing memory, by label, or by call site without a label */
    HDI_KEEPERS, /* the same with `kept`, sorted by the size that includes `kept` */
    HDI_LEAKS    /* memory that the program did not free: by label and call site */
} hdi_holders_of;

/* Collects groups of buffers, sorted by device, with the largest group first. The caller frees
 * *out; NULL if there are none. Allocations of other threads wait while this function walks the
 * list of buffers. Errors: HOST_MEMORY. */
hd_status hdi_holders_collect(hd_runtime *rt, hdi_holders_of what, hdi_holder **out, size_t *n);

extern const hdi_lifetime hdi_holders_lifetime;

/* "; holders: 'weights' 3.2 GiB in 12, main+0x1f 1 MiB in 30 (which keep 59 MiB more), 2 others 12
 * KiB in 40" for a message. Lists the largest five of a device (HD_DEVICE_HOST: pinned memory). The
 * text is "" if host memory is short. If there are very many buffers, an older list may be used,
 * since a new list needs a walk over all of them. Then the text states the age of the list (";
 * holders 3 ms ago: "). Keeps the thread's message. */
void hdi_report_holders(hd_runtime *rt, int device, char *out, size_t room);

/* ---- report.c: figures, as text or JSON ---- */

/* Collects statistics, names and findings. With `with_holders`, also the largest holders and lanes,
 * which otherwise stay as they are. Every byte of a string behind its end is zero. Errors:
 * HOST_MEMORY (then only the holders are missing). */
hd_status hdi_report_collect(hd_runtime *rt, bool with_holders, hdi_report *r);

/* "2026-01-31T12:00:00Z" */
const char *hdi_date_text(int64_t seconds, char out[HDI_AMOUNT_BYTES]);

typedef struct hdi_leaks {
    const hdi_holder *list;
    size_t n;
} hdi_leaks;

/* Writes a report as text with a zero behind it, which the caller frees. `leaks` may be NULL: then
 * the report contains no part about them. Errors: HOST_MEMORY. */
hd_status hdi_report_write(const hdi_report *report, const hdi_leaks *leaks, hd_report_format format, char **text,
                           size_t *length);

/* Like hdi_report_write, for the reports of several programs. */
hd_status hdi_reports_write(const hdi_report *reports, size_t n, hd_report_format format, char **text, size_t *length);

/* Copies such a text to a caller, as hd_memory_report promises. */
void hdi_report_hand_out(const char *text, size_t length, char *out, size_t room, size_t *needed);

/* For hd_close, when work ended and everything still exists. Writes the report to the target of the
 * option `stats`, with leaks if memory_debug is on. *message is the thread's last failure before
 * hd_close. The function replaces *message if there are leaks, or if it could not write the
 * report. */
void hdi_report_at_close(hd_runtime *rt, hd_error *message);

#endif
