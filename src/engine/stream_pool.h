/* stream_pool.h - CUDA streams that hd_open makes ahead, for all runtimes of a process.
 *
 * Threads: any, with the device's context current.
 * Locks: see stream_pool.c.
 */
#ifndef HDI_ENGINE_STREAM_POOL_H
#define HDI_ENGINE_STREAM_POOL_H

#include "engine/engine.h"

/* Called by hd_open. If no other runtime uses the device's context, this function makes
 * streams_ahead streams (driver/provider.h), since no kernel of Heddle runs there. Ignores
 * failures. `usable`: the context is current. */
void hdi_stream_pool_join(hdi_device *device, bool usable);

/* Takes a stream, or makes one if none is left. */
hdcu_result hdi_stream_pool_take(const hdi_device *device, hdcu_stream *out);

/* Gives a stream back, or destroys it if its device is lost. The stream has no work, and may be
 * NULL. `usable`: the driver accepts calls. */
void hdi_stream_pool_put(const hdi_device *device, hdcu_stream stream, bool usable);

/* Called when the device's engine ends, after it gave its streams back. If the engine was the
 * context's last engine, this function destroys the streams. If the device is lost, no runtime gets
 * a stream of this context any more. */
void hdi_stream_pool_leave(hdi_device *device, bool usable);

#endif
