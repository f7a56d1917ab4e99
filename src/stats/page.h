/* page.h - a runtime's figures in shared memory for other processes: what hd_memory_report_of and `heddle info --memory` read.
 *
 * The memory is an anonymous file, which other processes find by its name through /proc/PID/fd.
 * It holds two reports. One is complete while the other is written, so a reader finds a complete one even after the program was killed.
 *
 * Threads: any.
 * Locks: a mutex per page; a reader takes none.
 * Blocking: hdi_page_publish, for that mutex and for locks of buffers and caches.
 * Always: a page has no pointers, and nothing that a reader must rely on.
 */
#ifndef HDI_STATS_PAGE_H
#define HDI_STATS_PAGE_H

#include <stdatomic.h>
#include "stats/part.h"
#include "stats/report.h"

#define HDI_PAGE_NAME "heddle-memory"
#define HDI_PAGE_MAGIC UINT64_C(0x59524f4d454d4448) /* "HDMEMORY" in memory */
#define HDI_PAGE_VERSION 2

typedef struct hdi_page {
    _Atomic uint64_t magic;  /* written last, when the first report is complete */
    uint32_t version, bytes; /* sizeof(hdi_page), which also differs when a report has changed without the version */
    /* The number of reports published so far. The last one is reports[published % 2]. */
    _Atomic uint64_t published;
    hdi_report reports[2];
} hdi_page;

/* Where there is no memory for the page, other processes do not see the figures, and nothing else changes. The other
 * functions ignore hdi_stats_part.memory_page that is NULL. */
extern const hdi_lifetime hdi_page_lifetime;

/* Publishes the current figures. Any thread; its message stays as it was.
 * Other threads' allocations wait while holders are collected. So that happens for less than a thousandth of the time.
 * False: the published holders are older, and the caller calls again later. */
bool hdi_page_publish(hd_runtime *rt);

/* Whether a report of another process has its numbers and texts within bounds. */
bool hdi_report_is_sane(const hdi_report *report);

#endif
