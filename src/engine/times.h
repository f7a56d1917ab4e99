/* times.h - when operations ended, in the time of their device: for lanes that keep times (hd_lane_keep_times).
 *
 * Behind each operation of such a lane the engine records an event with timing. Before `done` passes the operation, it asks the driver for
 * the time from an anchor to that event, and stores it in the channel. The anchor is an event of the same engine whose time is known. So times of
 * all lanes of a device have one zero point, and mean the same in every process.
 *
 * The driver gives a time as a float of milliseconds, whose error grows with the distance. So an event that is far from the anchor becomes the
 * next anchor. What is added up has an error of 2^-24 of the time between two operations.
 *
 * A time is in the table of its lane at its slot, until a later operation ends in the same slot. So a lane keeps those of as many slots as it has.
 *
 * Other events of the engine are read in the same time (spans.h).
 *
 * Threads: the thread that runs the device's engine, with the device's context current. The table: also any thread that reads.
 * Locks: none.
 * Always:
 * - A time is stored before `done` passes its position. Where there is none by then, there never is.
 * - A reader finds a time only with the position that it belongs to: both are from one operation.
 * - A lane that keeps no times costs its engine one load in each visit, and those that submit nothing.
 */
#ifndef HDI_ENGINE_TIMES_H
#define HDI_ENGINE_TIMES_H

#include <limits.h>
#include "engine/engine.h"

/* Stored as the time of an operation for which the driver gave none. */
#define HDI_TIME_REFUSED INT64_MIN

typedef struct hdi_times {
    hdcu_event anchor; /* NULL: no event has been read yet */
    int64_t anchor_ns; /* since the first event that was read */
    hdcu_event *spare; /* events in no use */
    uint32_t n_spare, room;
} hdi_times;

/* Whether operations of the lane get times from here on. Load `head` before this: what was submitted while times are kept is seen to be so. */
static inline bool hdi_times_are_kept(const hdi_lane_shared *shared)
{
    return atomic_load_explicit(&shared->keeps_times, memory_order_relaxed) != 0;
}

struct hdi_stream;

/* An event with timing that is in no use, and back. Without room for it, it is destroyed. */
hdcu_result hdi_times_take(hdi_engine *engine, hdcu_event *out);
void hdi_times_give(hdi_engine *engine, hdcu_event event); /* NULL: ignored */

/* What hdi_times_read found. Unless it is NOT_YET, the event is back where hdi_times_take found it. */
typedef enum hdi_time_read { HDI_TIME_NOT_YET, HDI_TIME_NEVER, HDI_TIME_READ } hdi_time_read;
/* When the device passed an event, in its own time. */
hdi_time_read hdi_times_read(hdi_engine *engine, hdcu_event event, int64_t *ns);

/* Records the end of what was issued last, which ends at `end`: a ticket may name it. The device may be lost when it returns. */
void hdi_times_record(hdi_engine *engine, struct hdi_stream *stream, uint64_t end);
/* Stores the times of operations up to `end`, which the device has passed. Returns how far they are there: `end`, or less where the driver does
 * not have one yet. */
uint64_t hdi_times_settle(hdi_engine *engine, struct hdi_stream *stream, uint64_t end);
/* Called by hd_close. The engine has stopped. */
void hdi_times_end(hdi_engine *engine, bool driver_usable);

#endif
