/* populate.c - makes the system allocate pages ahead of their use.
 *
 * Threads, locks, blocking, and what always holds: see populate.h.
 */
#include "memory/populate.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/wait.h"
#include "base/thread.h"

#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

#define PART_LEAST ((size_t)8 << 20) /* the system needs some 4 ms for it; a thread costs 50 us */
#define PARTS_MOST 4

typedef struct part {
    pthread_t thread;
    void *at;
    size_t bytes;
} part;

static void *populate(void *context)
{
    const part *p = context;
    /* A system without this request, or without memory, leaves it to the driver, which reports an error then. */
    (void)madvise(p->at, p->bytes, MADV_POPULATE_WRITE);
    return NULL;
}

static size_t start_threads(part *parts, size_t count)
{
    size_t started = 0;
    while (started < count && hdi_thread_start(&parts[started].thread, populate, &parts[started]) == 0) {
        started++;
    }
    return started;
}

void hdi_populate(void *base, size_t bytes)
{
    size_t most = (size_t)hdi_cpu_count() < PARTS_MOST ? (size_t)hdi_cpu_count() : PARTS_MOST;
    size_t count = bytes / PART_LEAST < 1 ? 1 : bytes / PART_LEAST < most ? bytes / PART_LEAST : most;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t each = bytes / count / page * page;
    part parts[PARTS_MOST];
    for (size_t i = 0; i < count; i++) {
        parts[i].at = (char *)base + i * each;
        parts[i].bytes = i + 1 < count ? each : bytes - i * each;
    }
    size_t started = start_threads(parts, count - 1);
    for (size_t i = started; i < count; i++) {
        populate(&parts[i]);
    }
    for (size_t i = 0; i < started; i++) {
        pthread_join(parts[i].thread, NULL);
    }
}
