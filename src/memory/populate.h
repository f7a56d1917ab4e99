/* populate.h - makes the system allocate and zero pages ahead of their use.
 *
 * A driver that pins fresh memory faults it in page by page, under locks that launches need. With pages that are there
 * already it takes a seventh of the time. Work here holds no such lock, and several threads do it faster than one.
 *
 * Threads: any. A call starts up to three threads and ends them. Locks: none.
 * Blocking: until the pages are there.
 * Always: no failure. Without the pages, the driver faults them in.
 */
#ifndef HDI_MEMORY_POPULATE_H
#define HDI_MEMORY_POPULATE_H

#include <stddef.h>

/* Populates whole pages of a writable mapping. Does nothing where the system cannot do it. */
void hdi_populate(void *base, size_t bytes);

#endif
