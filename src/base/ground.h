/* ground.h - memory for the structures that handles lead to: its addresses are never used for anything else.
 *
 * So a stale handle can be looked at for as long as the process lives. While the runtime is open it leads to its structure, which says so;
 * afterwards it leads to zeros, which no handle fits. What that costs is addresses: some hundred kilobytes for each runtime that was
 * closed, without memory behind them.
 *
 * Threads: any. Locks: a mutex of its own, also across fork(); nothing is taken under it.
 */
#ifndef HDI_BASE_GROUND_H
#define HDI_BASE_GROUND_H

#include <stdbool.h>
#include <stddef.h>

typedef struct hdi_ground hdi_ground;

/* NULL: no memory. */
hdi_ground *hdi_ground_create(void);

/* Zeroed, at a multiple of HDI_SELF_ALIGN; there until hdi_ground_clear. NULL: no memory. */
void *hdi_ground_take(hdi_ground *ground, size_t bytes);

/* From here on all of it reads as zeros and cannot be written. Frees `ground`; NULL is ignored. */
void hdi_ground_clear(hdi_ground *ground);

/* Whether an address is in ground that was not cleared. */
bool hdi_ground_has(const void *address);

#endif
