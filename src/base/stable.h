/* stable.h - memory for the structures that handles lead to: its addresses are never used for anything else.
 *
 * So a stale handle can be looked at for as long as the process lives. While the runtime is open it leads to its structure, whose head no longer fits;
 * afterwards it leads to zeros, which no handle fits. What that costs is addresses: some hundred kilobytes for each runtime that was
 * closed, without memory behind them.
 *
 * Threads: any. Locks: a mutex of its own, also across fork(); nothing is taken under it.
 */
#ifndef HDI_BASE_STABLE_H
#define HDI_BASE_STABLE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct hdi_stable hdi_stable;

/* NULL: no memory. */
hdi_stable *hdi_stable_create(void);

/* Zeroed, at a multiple of HDI_SELF_ALIGN; there until hdi_stable_clear. NULL: no memory. */
void *hdi_stable_take(hdi_stable *stable, size_t bytes);

/* From here on all of it reads as zeros and cannot be written. Frees `stable`; NULL is ignored. */
void hdi_stable_clear(hdi_stable *stable);

/* Whether an address is in stable memory that was not cleared. */
bool hdi_stable_has(const void *address);

#endif
