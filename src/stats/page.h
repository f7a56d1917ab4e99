/* page.h - a runtime's figures in shared memory for other processes. hd_memory_report_of and
 * `heddle info --memory` read them.
 *
 * The memory is an anonymous file, which other processes find by its name through /proc/PID/fd. It
 * contains two reports. One is complete while the other one is being written, so a reader finds a
 * complete report even after the program was killed.
 *
 * Threads: any.
 * Locks: a mutex per page; a reader takes none.
 * Blocking: hdi_page_publish waits for that mutex, and for locks of buffers and caches.
 * Always: a page contains no pointers, and nothing that a reader must trust.
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
    _Atomic uint64_t magic; /* written last, when the first report is complete */
    /* `bytes` is sizeof(hdi_page). It reveals a change of hdi_report that did not raise the
     * version. */
    uint32_t version, bytes;
    /* The number of reports published so far. The last report is reports[published % 2]. */
    _Atomic uint64_t published;
    hdi_report reports[2];
} hdi_page;

/* If there is no memory for the page, other processes do not see the figures; nothing else changes.
 * The other functions ignore a NULL hdi_stats_part.memory_page. */
extern const hdi_lifetime hdi_page_lifetime;

/* Publishes the current figures. Any thread; keeps the thread's message. Allocations of other
 * threads wait while this function collects holders, so it collects them in less than a thousandth
 * of all time. False: the published holders are older, and the caller calls again later. */
bool hdi_page_publish(hd_runtime *rt);

/* True if the numbers and texts in a report of another process are within bounds. */
bool hdi_report_is_sane(const hdi_report *report);

#endif
