/* blocked.c - counts the streams of a device that wait for others inside the driver.
 *
 * NVIDIA's driver spreads the work of all streams over a few hardware queues, 8 by default. A
 * waiting stream occupies one queue. Once too many queues are occupied, other streams stand still,
 * even if they depend on nothing. In a test on an H200 with 8 queues, all other streams went on
 * while 4 queues were occupied. The same held for 8 of 16 queues, and for 14 of 32. With 5 of 8
 * queues occupied, 40 of 122 other streams stood still. With 16 of 32 occupied, 9 of 111 stood
 * still. Streams of the program occupy queues, too. So for every eight queues, at most three
 * streams wait inside the driver, and at most HDI_BLOCKED_MOST streams in all. All other waiting
 * lanes wait in their engine. They go on when the engine sees that the awaited position is done.
 * Such a wait costs some microseconds more than a wait inside the driver.
 *
 * Threads: the thread that runs the device's engine.
 * Locks: none.
 * Always: every stream that waits inside the driver is listed. A listed wait may already have
 * ended.
 */
#include <stdlib.h>
#include "engine/stream.h"

/* The environment variable by which the driver gets its number of queues. If the program does not
 * set this variable, Heddle sets it from the option `hw_queues`. */
#define VARIABLE "CUDA_DEVICE_MAX_CONNECTIONS"

void hdi_blocked_start(hdi_engine *engine)
{
    const char *text = secure_getenv(VARIABLE);
    long queues = text ? strtol(text, NULL, 10) : 0;
    queues = queues > 0 ? queues : (long)engine->device->runtime->options.hw_queues;
    engine->blocked.most = 3 * queues / 8 < HDI_BLOCKED_MOST ? (uint32_t)(3 * queues / 8) : HDI_BLOCKED_MOST;
}

static bool blocked_is_over(const hdi_engine *engine, uint32_t i)
{
    uint64_t position = engine->blocked.at[i].position;
    return engine->streams[engine->blocked.at[i].stream].passed >= position ||
           (!engine->blocked.at[i].several && hdi_point_done(engine->device->runtime, engine->blocked.at[i].target));
}

bool hdi_blocked_add(hdi_engine *engine, const hdi_stream *stream, const hdi_command *wait)
{
    hdi_blocked *b = &engine->blocked;
    uint32_t at = b->n;
    for (uint32_t i = 0; i < b->n && at == b->n; i++) {
        at = b->at[i].stream == stream->number ? i : at;
    }
    bool several = at < b->n && !blocked_is_over(engine, at);
    for (uint32_t i = 0; i < b->n && at == b->n; i++) {
        at = blocked_is_over(engine, i) ? i : at;
    }
    if (at == b->most) {
        return false;
    }
    b->n += at == b->n;
    b->at[at].stream = stream->number;
    b->at[at].several = several;
    b->at[at].position = stream->issued + wait->slots;
    b->at[at].target = (hdi_point){wait->wait.lane, wait->wait.position};
    return true;
}
