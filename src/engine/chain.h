/* chain.h - launches that follow each other in a lane, given to the driver together.
 *
 * A *chain* is an executable graph of 1, 2, 4 ... 32 kernel nodes in a line. Before each launch of the graph every node gets the function, arguments,
 * grid, block and shared memory of one launch. That costs a third to a quarter of launching the kernels one by one, and a single launch gains, too.
 * Each lane has chains of its own, two executables of each size, so that one is filled while the other one's launch has not begun.
 *
 * Threads: whoever runs the device's engine, with the device's context current, unless said otherwise. Locks: `chaining` of the engine, which is
 * held for as long as executables are used, since a module's end (hdi_chains_forget) comes from another thread.
 * Always: a chain never waits to be filled; what is refused is issued one by one, and fails by itself; a kernel that was never seen to end is not part
 * of a chain.
 */
#ifndef HDI_ENGINE_CHAIN_H
#define HDI_ENGINE_CHAIN_H

#include "engine/engine.h"

#define HDI_CHAIN_MOST 32
#define HDI_CHAIN_SIZES 6 /* 1, 2, 4, 8, 16, 32 */

/* hd_open. */
void hdi_chains_start(hdi_engine *engine);

/* Issues launches from where the stream is, up to `head`. Returns how many: 0, the next command is to be issued by itself. *end: where the last one
 * ends. When it returns the device may be lost. */
uint32_t hdi_chain_issue(hdi_engine *engine, hdi_stream *stream, uint64_t head, uint32_t most, uint64_t *end);

/* A launch was issued by itself: a kernel that was never seen to end is looked for. */
void hdi_chain_note(hdi_engine *engine, hdi_stream *stream, uint32_t kernel, uint64_t position);

/* Whether a signal has to stand in front of a launch, and behind it: the kernel was never seen to end. So if it does not, it is known. */
bool hdi_chain_is_new(const hdi_engine *engine, uint32_t kernel);

/* The device has passed stream->passed. */
void hdi_chain_learn(hdi_engine *engine, hdi_stream *stream);

/* Gives executables back that were not used for a while. True: some are left. */
bool hdi_chains_prune(hdi_engine *engine, int64_t now);

/* A module is about to be unloaded: no executable names its functions any more when this returns. Any thread, the device's context current. */
void hdi_chains_forget(hdi_engine *engine);

/* hd_close; the engine has stopped. */
void hdi_chains_end(hdi_engine *engine, bool driver_usable);

#endif
