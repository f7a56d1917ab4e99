/* times.h - when operations ended, in their device's time, for lanes that keep times
 * (hd_lane_keep_times).
 *
 * Behind each operation of such a lane the engine records an event with timing. Before `done`
 * passes the operation, the engine asks the driver for the time from an anchor to that event. Then
 * the engine stores the event's time in the channel. The anchor is an event of the same engine at a
 * known time. So times of all lanes of a device share one zero point, and mean the same in every
 * process.
 *
 * The driver returns a time as a float of milliseconds, whose error grows with the distance. So an
 * event far from the anchor becomes the next anchor. The error of the sum is 2^-24 of the time
 * between two operations.
 *
 * A lane's table holds the time of an operation in the slot where the operation ends, until a later
 * operation ends in the same slot. So a lane keeps the times of its last `slots` slots.
 *
 * The times of spans (spans.h) count from the same zero point.
 *
 * Threads: the thread that runs the device's engine, with the device's context current. Any thread
 * reads the table.
 * Locks: none.
 * Always:
 * - A time is stored before `done` passes its position. If `done` passes a position without a
 *   stored time, that position never gets a time.
 * - A reader gets a time only together with its position, and both are from one operation.
 * - A lane that keeps no times costs its engine one load in each visit, and its submitters nothing.
 */
#ifndef HDI_ENGINE_TIMES_H
#define HDI_ENGINE_TIMES_H

#include <limits.h>
#include "engine/engine.h"

/* The stored time of an operation for which the driver returned none. */
#define HDI_TIME_REFUSED INT64_MIN

typedef struct hdi_times {
    hdcu_event anchor; /* NULL: no event was read yet */
    int64_t anchor_ns; /* since the first event that was read */
    hdcu_event *spare; /* unused events */
    uint32_t n_spare, room;
} hdi_times;

/* True if operations of the lane get times from here on. Load `head` before you call this. Then all
 * work that was submitted while the lane keeps times gets times. */
static inline bool hdi_times_are_kept(const hdi_lane_shared *shared)
{
    return atomic_load_explicit(&shared->keeps_times, memory_order_relaxed) != 0;
}

struct hdi_stream;

/* The first function takes an unused event with timing. The second one gives an event back, or
 * destroys it if there is no room for it. */
hdcu_result hdi_times_take(hdi_engine *engine, hdcu_event *out);
void hdi_times_give(hdi_engine *engine, hdcu_event event); /* NULL: ignored */

/* The result of hdi_times_read. Unless the result is NOT_YET, the event is unused again. */
typedef enum hdi_time_read { HDI_TIME_NOT_YET, HDI_TIME_NEVER, HDI_TIME_READ } hdi_time_read;
/* Reads when the device passed an event, in the device's own time. */
hdi_time_read hdi_times_read(hdi_engine *engine, hdcu_event event, int64_t *ns);

/* Records an event behind the work issued last, which ends at `end`, since a ticket may name this
 * position. The caller handles a fatal code. */
hdcu_result hdi_times_record(hdi_engine *engine, struct hdi_stream *stream, uint64_t end);
/* Stores the times of operations up to `end`, which the device passed. Returns the position up to
 * which times are stored: `end`, or an earlier one if the driver does not know a time yet. */
uint64_t hdi_times_settle(hdi_engine *engine, struct hdi_stream *stream, uint64_t end);
/* Called by hd_close. The engine is stopped. */
void hdi_times_end(hdi_engine *engine, bool driver_usable);

#endif
