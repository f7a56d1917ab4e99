/* kernel_time.h - how long the kernels of a lane take, as far as an engine can measure it.
 *
 * The engine records when it gave launches to the driver, and when it saw that the device had
 * passed a signal behind them. Several stretches end at a signal: one begins at the previous
 * signal, and one at each of the last batches of launches. The time of a stretch, divided by the
 * number of its launches, is hardly ever less than the time of a kernel. But it may be far more
 * than the time of a kernel:
 * - The stretch from the previous signal includes time in which the engine visited other lanes, and
 *   the device had no work of this lane.
 * - The other stretches include the rest of the work in front of their launches.
 * - All stretches include the time until the engine sees the signal.
 *
 * So the engine takes the least of these times. It ignores a stretch that contains work other than
 * launches.
 *
 * If a kernel is new, or ran long before, its launch stands between two signals. The engine
 * measures such a launch alone.
 *
 * Threads: the thread that runs the device's engine.
 * Locks: none.
 * Blocking: none.
 * Always: nothing here makes a driver call.
 */
#ifndef HDI_ENGINE_KERNEL_TIME_H
#define HDI_ENGINE_KERNEL_TIME_H

#include <stdbool.h>
#include <stdint.h>

struct hdi_engine;
struct hdi_stream;

#define HDI_KERNEL_TIME_BATCHES 4
/* The engine sees that an operation in a chain is done only when the chain ends. If the time of
 * kernels is measured, this delay is about this time at most. */
#define HDI_KERNEL_TIME_SPAN_NS 50000

/* A batch: the launches that one call gave to the driver. */
typedef struct hdi_kernel_time_batch {
    uint64_t before; /* the number of the lane's launches in front of the batch */
    int64_t given;   /* clock time when the call returned; 0: no batch */
} hdi_kernel_time_batch;

/* Data that the engine stores with a signal. */
typedef struct hdi_kernel_time_signal {
    uint64_t launches; /* the number of the lane's launches in front of the signal */
    int64_t since;     /* clock time before the first call behind the previous signal */
    bool others;       /* work other than launches is in front of the signal, too */
    hdi_kernel_time_batch batches[HDI_KERNEL_TIME_BATCHES];
} hdi_kernel_time_signal;

typedef struct hdi_kernel_time {
    hdi_kernel_time_signal next; /* the values that a signal would get now */
    uint32_t next_batch;         /* the oldest one of `next.batches` */
    /* The number of launches in front of the last signal that the engine saw the device pass. */
    uint64_t passed;
    int64_t passed_at; /* clock time when the engine saw this */
    int64_t asked_at;  /* clock time of the last signal that only served the timing */
    int64_t kernel_ns; /* about how long a kernel takes; 0: not measured */
} hdi_kernel_time;

/* Notes a call that gave `launches` launches to the driver; 0: the call gave other work. `before`
 * and `behind` are the clock times before and after the call. */
void hdi_kernel_time_give(hdi_kernel_time *timing, uint32_t launches, int64_t before, int64_t behind);

/* True if the last `launches` launches should get a signal only for the timing. This is the case if
 * the present estimate of the kernels' time keeps chains shorter than `most`, or nearly does. Such
 * an estimate may be too high, because the engine visited other lanes meanwhile. */
bool hdi_kernel_time_wants_signal(hdi_kernel_time *timing, uint32_t launches, uint32_t most, int64_t now);

/* Notes a signal behind all work given so far. */
void hdi_kernel_time_put_signal(hdi_kernel_time *timing, hdi_kernel_time_signal *signal);

/* Notes that the device passed signals. `first` is the earliest signal, `last` the latest.
 * `others`: work other than launches is in front of one of these signals. `now`: the clock time. */
void hdi_kernel_time_pass(hdi_kernel_time *timing, const hdi_kernel_time_signal *first,
                          const hdi_kernel_time_signal *last, bool others, int64_t now);

/* Notes a launch that was issued between two signals, at these positions. The engine looks for the
 * begin and the end of this launch. */
void hdi_kernel_time_note(struct hdi_stream *stream, uint32_t kernel, uint64_t from, uint64_t position);

/* Notes which kernels ended, and how long they ran, after the device passed stream->passed. */
void hdi_kernel_time_learn(struct hdi_engine *engine, struct hdi_stream *stream);

#endif
