/* arena_tools.h - an arena over a local port to the fake driver, for the arena's tests.
 *
 * Threads: the test's own makes and ends arenas; any thread may call the rest. One arena at a time.
 */
#ifndef TEST_MEMORY_ARENA_TOOLS_H
#define TEST_MEMORY_ARENA_TOOLS_H

#include "support/check.h"

#include <stdatomic.h>
#include "fake_driver.h"
#include "engine/port.h"
#include "memory/arena.h"

#define MIB FAKE_MIB
#define TOOL_LANES 64

/* Per lane, the last position that counts as finished in the test. */
extern _Atomic uint64_t tool_finished_to[TOOL_LANES];
bool tool_finished(void *context, hdi_point point); /* for hdi_arena_config */

extern hdi_port *tool_port;

/* The arena is the runtime's device 3, which the driver calls 1; its peers 0, 1 and 2 are the
 * driver's 0, 2 and 3. */
hdi_arena_config tool_config(size_t limit);
hdi_arena *tool_make_from(const hdi_arena_config *config);
hdi_arena *tool_make(size_t total, size_t limit); /* calls fake_reset first */
void tool_drop_port(void);

/* Checks that the arena is consistent, and that the driver mapped as much as the arena reports,
 * within the limit. */
void tool_check(hdi_arena *arena);
/* Checks the same, then destroys the arena: it gave everything back and misused no call. */
void tool_end(hdi_arena *arena);
hdi_arena_info tool_info(hdi_arena *arena);

/* Allocates for lane 0 and drops the inherited points. */
hd_status tool_take(hdi_arena *arena, size_t bytes, hdcu_deviceptr *out);
hd_status tool_take_in(hdi_arena *arena, uint32_t lane, size_t bytes, hdcu_deviceptr *out);
/* Frees with one point, or without points at position 0. */
void tool_give(hdi_arena *arena, hdcu_deviceptr at, uint32_t lane, uint64_t position);

#endif
