/* populate.h - has the system give out and zero pages ahead of their use.
 *
 * A driver that pins fresh memory faults it in page by page, with locks held that launches need; pages that it finds
 * there cost it a seventh of the time. What is done here holds nobody up, and several threads do it faster than one.
 *
 * Threads: any; starts up to three of its own for the length of the call. Locks: none.
 */
#ifndef HDI_MEMORY_POPULATE_H
#define HDI_MEMORY_POPULATE_H

#include <stddef.h>

/* `base`: whole pages of a writable mapping. Where the system cannot do it, nothing happens. */
void hdi_populate(void *base, size_t bytes);

#endif
