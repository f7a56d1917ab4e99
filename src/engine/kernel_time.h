/* kernel_time.h - how long the kernels of a lane take, as far as an engine can measure it.
 *
 * The engine records when it gave launches to the driver, and when it saw that the device had passed a signal behind
 * them. Several stretches end at a signal: one from the signal before, and one from each of the last batches.
 * The time of a stretch, divided by its launches, is hardly ever less than a kernel takes, but may be far more:
 * - The first stretch includes time in which the engine was with other lanes and the device had nothing of this one.
 * - The others include the work that was in front of them.
 * - All of them include the time until the engine looks.
 *
 * So the least of them is taken.
 *
 * Threads: the thread that runs the device's engine.
 * Locks: none.
 * Always: a stretch in which the lane did something else than launch does not count.
 */
#ifndef HDI_ENGINE_KERNEL_TIME_H
#define HDI_ENGINE_KERNEL_TIME_H

#include <stdbool.h>
#include <stdint.h>

#define HDI_KERNEL_TIME_BATCHES 4
/* A ticket in a chain is seen done at the chain's end: so much later at most, as far as the timing is measured. */
#define HDI_KERNEL_TIME_SPAN_NS 50000

/* Launches that were given to the driver in one call. */
typedef struct hdi_kernel_time_batch {
    uint64_t before; /* launches of the lane in front of it */
    int64_t given;   /* clock when the call returned; 0: no batch */
} hdi_kernel_time_batch;

/* What is stored with a signal. */
typedef struct hdi_kernel_time_signal {
    uint64_t launches; /* of the lane in front of it */
    int64_t since;     /* clock before the first call behind the signal before */
    bool others;       /* something else than launches is in front of it, too */
    hdi_kernel_time_batch batches[HDI_KERNEL_TIME_BATCHES];
} hdi_kernel_time_signal;

typedef struct hdi_kernel_time {
    hdi_kernel_time_signal next; /* the values of a signal that would be put now */
    uint32_t next_batch;         /* of `next.batches`, the oldest one */
    uint64_t passed;             /* launches in front of the signal that the device was last seen to pass */
    int64_t passed_at;           /* clock of that */
    int64_t asked_at;            /* clock when a signal was last put for the timing alone */
    int64_t kernel_ns;           /* about how long a kernel takes; 0: not measured */
} hdi_kernel_time;

/* Notes a call that gave the driver so many launches; 0: something else. The clocks are those before and after it. */
void hdi_kernel_time_give(hdi_kernel_time *timing, uint32_t launches, int64_t before, int64_t behind);

/* Whether to put a signal behind the launches that were given last, for the timing alone. It is put where the present
 * estimate keeps chains shorter than `most`, or nearly. The cause may be that the engine was with other lanes. */
bool hdi_kernel_time_wants_signal(hdi_kernel_time *timing, uint32_t launches, uint32_t most, int64_t now);

/* Notes a signal behind everything that was given. */
void hdi_kernel_time_put_signal(hdi_kernel_time *timing, hdi_kernel_time_signal *signal);

/* Notes that the device has passed signals. `first` is the earliest of them, `last` the latest. `others`: one of them
 * has `others`. `now` is the clock. */
void hdi_kernel_time_pass(hdi_kernel_time *timing, const hdi_kernel_time_signal *first,
                          const hdi_kernel_time_signal *last, bool others, int64_t now);

#endif
