/* page.h - a runtime's figures in shared memory, for other processes to look at: what hd_memory_report_of and `heddle info --memory` read.
 *
 * The memory is an anonymous file that is found through /proc/PID/fd by its name. It holds two reports in turn: one is complete
 * while the other is written, so that a reader finds a whole one whenever the program ends. No pointers, and nothing that a reader
 * must believe.
 */
#ifndef HDI_DATA_PAGE_H
#define HDI_DATA_PAGE_H

#include <stdatomic.h>
#include "data/report.h"

#define HDI_PAGE_NAME "heddle-memory"
#define HDI_PAGE_MAGIC UINT64_C(0x59524f4d454d4448) /* "HDMEMORY" in memory */
#define HDI_PAGE_VERSION 1

typedef struct hdi_page {
    _Atomic uint64_t magic;  /* written last, when the first report is there */
    uint32_t version, bytes; /* sizeof(hdi_page): a change of the report without one of the version shows, too */
    /* Reports published so far; the last one is reports[published % 2]. */
    _Atomic uint64_t published;
    hdi_report reports[2];
} hdi_page;

/* hd_open and hd_close. Where there is no memory for it, other processes do not see the figures; nothing else. NULL rt->memory_page is
 * ignored by the others. */
void hdi_page_create(hd_runtime *rt);
void hdi_page_release(hd_runtime *rt);

/* Publishes the figures as they are now. Holders are found again only when that takes less than a thousandth of the time, since other
 * threads' allocations wait for it; false: they are not up to date, to be called again. Any thread; leaves its message alone. */
bool hdi_page_publish(hd_runtime *rt);

/* page_read.c: whether a report from outside has its numbers and texts within bounds. */
bool hdi_report_is_sane(const hdi_report *report);

#endif
