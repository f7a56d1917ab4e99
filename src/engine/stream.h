/* stream.h - what the parts of a lane's stream share.
 *
 * stream.c gives its commands to the driver. stream_wait.c makes it wait for other lanes. progress.c determines how far
 * it is.
 *
 * Threads: the thread that runs the device's engine, with the device's context current.
 * Locks: none.
 * Always: done <= passed <= issued <= the lane's head, and signalled <= issued.
 */
#ifndef HDI_ENGINE_STREAM_H
#define HDI_ENGINE_STREAM_H

#include "engine/chain.h"

/* What a lane's work ends in, which decides how its end is signalled (hdi_stream.tail). */
enum {
    HDI_TAIL_KERNEL, /* also what the driver does by kernels: fills, copies inside the device */
    HDI_TAIL_COPY,   /* by a copy engine */
};
#define HDI_SENT_ALONG_MOST ((uint64_t)16 << 10) /* bytes: copies to the device up to this size end like kernels */

/* The most that a visit issues, and so what another lane waits for at most. */
#define HDI_COMMANDS_PER_VISIT HDI_CHAIN_MOST
#define HDI_COMMANDS_IN_COMPANY (HDI_CHAIN_MOST / 2) /* beside lanes with little to do */

/* Entries of the driver's queue that a lane may have unfinished. The driver takes 1021 ahead of a stream that stands
 * still. Then the next call waits, with all other lanes behind it. Measured with 580.159: launches, fills and graphs
 * count alike, events do not count. Where a device has more streams than queues, streams may share a queue, hence a
 * quarter. In the placement inline a call that waits blocks only the caller, which may not call again for long. So more
 * is allowed there. */
#define HDI_ENTRIES_MOST 256
#define HDI_ENTRIES_MOST_INLINE 768

/* ---- progress.c ---- */

/* Makes the device write the position once it has finished everything issued so far. */
void hdi_stream_signal(hdi_engine *engine, hdi_stream *stream);

/* Determines how far the lane is, and moves `done`. */
void hdi_stream_reap(hdi_engine *engine, hdi_stream *stream, hdi_pass *pass);

/* Handles signals that the device has passed. Their work takes no room in the driver's queue any more. They give the
 * kernels' times, and show which kernels end. */
void hdi_stream_pass_signals(hdi_engine *engine, hdi_stream *stream);

/* Reads the completion flag. True when `done` moved. */
bool hdi_stream_read_flag(hdi_engine *engine, hdi_stream *stream);

/* Sets `done` to `position`, and wakes threads that wait for it. */
void hdi_stream_store_done(hdi_engine *engine, hdi_stream *stream, uint64_t position);

/* ---- stream.c ---- */

/* Fails positions `from` to `to` of this lane, since they read a result that another lane's failure left missing. */
void hdi_stream_inherit(hdi_engine *engine, hdi_stream *stream, const hdi_failure *other, uint64_t from, uint64_t to);

/* ---- stream_wait.c ---- */

/* Handles a WAIT. True when the lane may go on behind it. */
bool hdi_stream_wait(hdi_engine *engine, hdi_stream *stream, const hdi_command *c);
/* Handles a SOURCES: further results that the operation behind it reads. True when the lane may go on behind it. */
bool hdi_stream_sources(hdi_engine *engine, hdi_stream *stream, const hdi_command *c);

#endif
