/* page.c - publishes a runtime's figures (page.h).
 *
 * Threads: any.
 * Locks: a mutex per page, held while figures are collected.
 * Blocking: for that mutex, and for the locks of report.c.
 * Always: the report that `published` names is complete. It stays as it is until the next but one begins. Only the process that opened the
 * runtime writes.
 */
#include "stats/page.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/error.h"
#include "base/lock.h"
#include "base/shm.h"
#include "base/wait.h"

#define WALK_SHARE 1000

struct hdi_memory_page {
    hdi_shm shm;
    hdi_mutex lock;
    pid_t owner;
    int64_t next_walk; /* clock: when holders may be collected again */
};

void hdi_page_create(hd_runtime *rt)
{
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    struct hdi_memory_page *page = calloc(1, sizeof *page);
    if (page && hdi_shm_create(HDI_PAGE_NAME, sizeof(hdi_page), &page->shm)) {
        free(page);
        page = NULL;
    }
    hdi_attempt_end(&attempt);
    if (page) {
        hdi_mutex_init(&page->lock, HDI_RANK_STATS_PAGE);
        page->owner = getpid();
        rt->memory_page = page;
        hdi_page_publish(rt);
    }
}

void hdi_page_release(hd_runtime *rt)
{
    if (rt->memory_page) {
        hdi_shm_release(&rt->memory_page->shm);
        hdi_mutex_destroy(&rt->memory_page->lock);
        free(rt->memory_page);
        rt->memory_page = NULL;
    }
}

/* Copies the lanes and holders, which are not collected at each time. */
static void copy_holders(hdi_report *to, const hdi_report *from)
{
    for (uint32_t i = 0; i < from->n_devices; i++) {
        hdi_report_device *d = &to->devices[i];
        const hdi_report_device *s = &from->devices[i];
        d->n_lanes = s->n_lanes;
        d->n_holders = s->n_holders;
        memcpy(d->lanes, s->lanes, sizeof d->lanes);
        memcpy(d->holders, s->holders, sizeof d->holders);
        d->other_lanes = s->other_lanes;
        d->other_lanes_bytes = s->other_lanes_bytes;
        d->other_holders = s->other_holders;
        d->others_bytes = s->others_bytes;
        d->others_count = s->others_count;
    }
}

/* Stores behind it become visible after all stores in front of it. The thread sanitizer does not support fences. */
static void end_of_stores(void)
{
#if !defined(__SANITIZE_THREAD__)
    atomic_thread_fence(memory_order_release);
#endif
}

/* Whether holders were collected again. The lock is held. */
static bool publish(hd_runtime *rt, struct hdi_memory_page *page)
{
    hdi_page *shared = page->shm.base;
    uint64_t published = atomic_load_explicit(&shared->published, memory_order_relaxed);
    /* The next report overwrites the one before the last. A reader that still copies that one detects it by `published`. So no store to the
     * report may become visible before the last store to `published`. */
    end_of_stores();
    const hdi_report *last = &shared->reports[published % 2];
    hdi_report *next = &shared->reports[(published + 1) % 2];
    int64_t begin = hdi_clock_ns();
    bool walk = begin >= page->next_walk;
    if (!walk) {
        copy_holders(next, last);
    }
    hdi_report_collect(rt, walk, next); /* without memory for the holders the rest of the report is good */
    if (walk) {
        int64_t end = hdi_clock_ns();
        page->next_walk = end + WALK_SHARE * (end - begin);
    }
    /* Pairs with the reader's loads of `published` before and after it copies: a report that `published` names is complete. */
    atomic_store_explicit(&shared->published, published + 1, memory_order_release);
    if (atomic_load_explicit(&shared->magic, memory_order_relaxed) != HDI_PAGE_MAGIC) {
        shared->version = HDI_PAGE_VERSION;
        shared->bytes = sizeof *shared;
        /* release: a process that reads the magic finds a complete page */
        atomic_store_explicit(&shared->magic, HDI_PAGE_MAGIC, memory_order_release);
    }
    return walk;
}

bool hdi_page_publish(hd_runtime *rt)
{
    struct hdi_memory_page *page = rt->memory_page;
    if (!page || page->owner != getpid()) {
        return true;
    }
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    hdi_mutex_lock(&page->lock);
    bool current = publish(rt, page);
    hdi_mutex_unlock(&page->lock);
    hdi_attempt_end(&attempt);
    return current;
}
