/* stream.h - what the parts of a lane's stream share: stream.c gives its commands to the driver, stream_wait.c makes it wait for other lanes, progress.c
 * finds out how far it is.
 *
 * Threads: whoever runs the device's engine, with the device's context current.
 */
#ifndef HDI_ENGINE_STREAM_H
#define HDI_ENGINE_STREAM_H

#include "engine/chain.h"

/* What a lane's work ends in, for who signals its end (hdi_stream.tail). */
enum {
    HDI_TAIL_KERNEL, /* also what the driver does by kernels: fills, copies inside the device */
    HDI_TAIL_COPY,   /* by a copy engine */
};
#define HDI_SENT_ALONG_MOST ((uint64_t)16 << 10) /* bytes: copies to the device up to this size end like kernels */

/* What a visit issues at most: so much is what another lane waits for. */
#define HDI_COMMANDS_PER_VISIT HDI_CHAIN_MOST
#define HDI_COMMANDS_IN_COMPANY (HDI_CHAIN_MOST / 2) /* beside lanes with little to do */

/* Entries of the driver's queue that a lane may have unfinished. The driver takes 1021 ahead of a stream that stands still (measured with 580.159:
 * launches, fills, graphs alike; events are none), and the next call waits, with all other lanes behind it. Streams may share a queue where a device
 * has more of them than queues, hence a quarter; in the placement inline a call that waits holds up nobody but the caller, who may not call again for long. */
#define HDI_ENTRIES_MOST 256
#define HDI_ENTRIES_MOST_INLINE 768

/* ---- progress.c ---- */

/* Has the device write how far the lane is when it has finished everything issued so far. */
void hdi_stream_signal(hdi_engine *engine, hdi_stream *stream);

/* Looks how far the lane is; moves `done`. */
void hdi_stream_reap(hdi_engine *engine, hdi_stream *stream, hdi_pass *pass);

/* What the device has passed takes no room in the driver's queue any more, and tells how long kernels take and which of them end. */
void hdi_stream_pass_signals(hdi_engine *engine, hdi_stream *stream);

/* Reads the completion flag; true when `done` moved. */
bool hdi_stream_read_flag(hdi_engine *engine, hdi_stream *stream);

/* `done` is `position` now; wakes those who wait. */
void hdi_stream_store_done(hdi_engine *engine, hdi_stream *stream, uint64_t position);

/* ---- stream.c ---- */

/* The result at `position` of another lane, which this lane reads, does not exist. `from`..`to`: what fails here. */
void hdi_stream_inherit(hdi_engine *engine, hdi_stream *stream, const hdi_failure *other, uint64_t from, uint64_t to);

/* ---- stream_wait.c ---- */

/* A WAIT. True when the lane may go on behind it. */
bool hdi_stream_wait(hdi_engine *engine, hdi_stream *stream, const hdi_command *c);
/* Further results that the operation behind it reads. Likewise. */
bool hdi_stream_sources(hdi_engine *engine, hdi_stream *stream, const hdi_command *c);

#endif
