/* kernel_time.h - how long the kernels of a lane take, as far as an engine can see: it knows when it gave launches to the driver, and when it saw that the
 * device had passed a signal behind them.
 *
 * Several stretches end at a signal: from the signal before to it, and from each of the last batches to it. What a stretch took, divided by its launches,
 * is hardly ever less than a kernel takes, but may be far more: the first counts time in which the engine was with other lanes and the device had
 * nothing of this one, the others count what was in front of them, and all of them the time until the engine looks. The least of them is taken.
 *
 * Threads: whoever runs the device's engine. Locks: none.
 * Always: a stretch in which the lane did something else than launch says nothing.
 */
#ifndef HDI_ENGINE_KERNEL_TIME_H
#define HDI_ENGINE_KERNEL_TIME_H

#include <stdbool.h>
#include <stdint.h>

#define HDI_KERNEL_TIME_BATCHES 4
#define HDI_KERNEL_TIME_SPAN_NS                                                                                        \
    50000 /* a ticket in a chain is known at its end: so much later at most, as far as the timing is known */

/* Launches that were given to the driver in one call. */
typedef struct hdi_kernel_time_batch {
    uint64_t before; /* launches of the lane in front of it */
    int64_t given;   /* clock when the call returned; 0: no batch */
} hdi_kernel_time_batch;

/* What is kept with a signal. */
typedef struct hdi_kernel_time_signal {
    uint64_t launches; /* of the lane in front of it */
    int64_t since;     /* clock before the first call behind the signal before */
    bool others;       /* something else than launches is in front of it, too */
    hdi_kernel_time_batch batches[HDI_KERNEL_TIME_BATCHES];
} hdi_kernel_time_signal;

typedef struct hdi_kernel_time {
    hdi_kernel_time_signal next; /* as a signal would be that is put now */
    uint32_t next_batch;         /* of `next.batches`, the oldest one */
    uint64_t passed;             /* launches in front of the signal that the device was last seen to pass */
    int64_t passed_at;           /* clock of that */
    int64_t asked_at;            /* clock when a signal was last put for the timing alone */
    int64_t kernel_ns;           /* about how long a kernel takes; 0: not known */
} hdi_kernel_time;

/* A call that gave the driver so many launches; 0: something else. The clocks are those before it and behind it. */
void hdi_kernel_time_give(hdi_kernel_time *timing, uint32_t launches, int64_t before, int64_t behind);

/* Whether a signal is to be put behind the launches that were given last, for the timing alone: by what is known so far chains are shorter than `most`,
 * or nearly, and the engine's being elsewhere may be why. */
bool hdi_kernel_time_wants_signal(hdi_kernel_time *timing, uint32_t launches, uint32_t most, int64_t now);

/* A signal is put behind everything that was given. */
void hdi_kernel_time_put_signal(hdi_kernel_time *timing, hdi_kernel_time_signal *signal);

/* The device has passed signals. `first` is the earliest of them, `last` the latest, `others`: one of them says so. `now` is the clock. */
void hdi_kernel_time_pass(hdi_kernel_time *timing, const hdi_kernel_time_signal *first,
                          const hdi_kernel_time_signal *last, bool others, int64_t now);

#endif
