/* chain.h - launches that follow each other in a lane, given to the driver together.
 *
 * A *chain* is an executable graph of 1, 2, 4 ... 32 kernel nodes in a line. Before each launch of the graph every node
 * gets the function, arguments, grid, block and shared memory of one launch. That costs a third to a quarter of
 * launching the kernels one by one, and a single launch gains, too. Each lane has chains of its own, two executables of
 * each size. So one is filled while the launch of the other one has not begun.
 *
 * Threads: the thread that runs the device's engine, with the device's context current, unless a comment names others.
 * Locks: `chaining` of the engine, held for as long as executables are used. It is needed since the end of a module
 * (hdi_chains_forget) comes from another thread.
 * Always:
 * - A chain never waits to be filled.
 * - Launches that the driver refuses in a chain are issued one by one, and each fails by itself.
 * - A kernel that was never seen to end is not part of a chain.
 */
#ifndef HDI_ENGINE_CHAIN_H
#define HDI_ENGINE_CHAIN_H

#include "engine/engine.h"

#define HDI_CHAIN_MOST 32
#define HDI_CHAIN_SIZES 6 /* 1, 2, 4, 8, 16, 32 */

/* Called by hd_open. */
void hdi_chains_start(hdi_engine *engine);

/* Issues launches from where the stream is, up to `head`. Returns how many; 0: the next command is to be issued by
 * itself. *end: where the last one ends. The device may be lost when it returns. */
uint32_t hdi_chain_issue(hdi_engine *engine, hdi_stream *stream, uint64_t head, uint32_t most, uint64_t *end);

/* Notes a launch that was issued by itself. If its kernel was never seen to end, its end is looked for. */
void hdi_chain_note(hdi_engine *engine, hdi_stream *stream, uint32_t kernel, uint64_t position);

/* Whether the kernel was never seen to end. Then a signal has to stand in front of a launch and behind it, so that a
 * kernel that does not end can be named. */
bool hdi_chain_is_new(const hdi_engine *engine, uint32_t kernel);

/* Notes which kernels have ended, after the device has passed stream->passed. */
void hdi_chain_learn(hdi_engine *engine, hdi_stream *stream);

/* Gives back executables that were not used for a while. True: some are left. */
bool hdi_chains_prune(hdi_engine *engine, int64_t now);

/* Before a module is unloaded: no executable names its functions any more when this returns. Any thread, with the
 * device's context current. */
void hdi_chains_forget(hdi_engine *engine);

/* Called by hd_close. The engine has stopped. */
void hdi_chains_end(hdi_engine *engine, bool driver_usable);

#endif
