/* blocks_tools.h - an allocator over offsets for its tests, which decide what has finished and when
 * host memory runs out.
 *
 * Threads: the test's own.
 */
#ifndef TEST_MEMORY_BLOCKS_TOOLS_H
#define TEST_MEMORY_BLOCKS_TOOLS_H

#include "support/check.h"

#include "memory/blocks.h"

enum { G = 256 };

/* Per lane, the last position that counts as finished in the test. */
extern uint64_t finished_to[256];

/* The number of host allocations before all further ones fail; -1 for no limit. */
extern long allocations_left;

hd_status blocks_create(size_t limit, size_t wall, hdi_blocks **out);
/* Makes an allocator with nothing finished and unlimited host memory. `bytes` of it are free, or,
 * with a wall, all of it is one gap. */
hdi_blocks *blocks_make(size_t limit, size_t bytes);
hdi_blocks *blocks_make_gap(size_t limit, size_t wall);
void blocks_check(const hdi_blocks *b);
hdi_blocks_info blocks_info(const hdi_blocks *b);

/* Allocates; there must be room, and nothing to wait for. */
size_t blocks_take(hdi_blocks *b, size_t bytes, uint32_t lane);
/* Frees with one point. */
void blocks_give(hdi_blocks *b, size_t offset, uint32_t lane, uint64_t position);

#endif
