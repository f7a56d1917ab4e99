/* suspects.h - which operations of a device may be under way: the possible causes of a loss.
 *
 * A GPU reports that something went wrong, but not what. Recorded is which operations were given to the driver and have
 * not been seen to end. Kernels are looked for first, since what copies and fills touch was checked before. Of several
 * kernels any may be the cause. Those that others wait for come first.
 *
 * Threads: the thread that runs the device's engine. Or any thread with the device's order lock, so that no submission
 * writes over what is read.
 * Locks: none of its own, except in hdi_suspects_awaited.
 * Always: no operation is named that was seen to end before. None is named that was never given to the driver while
 * another one was.
 */
#ifndef HDI_ENGINE_SUSPECTS_H
#define HDI_ENGINE_SUSPECTS_H

#include <stdbool.h>
#include <stdint.h>

struct hdi_device;
struct hd_runtime;

#define HDI_SUSPECTS_NAMED 6

/* One operation, or several of one lane that are alike. */
typedef struct hdi_suspect {
    uint64_t position, last; /* tickets of the first and of the last one */
    uint32_t lane;           /* global number */
    uint32_t kernel;         /* of a launch: number in the runtime's table */
    uint32_t count;          /* 0: there is none */
    uint8_t op;
} hdi_suspect;

typedef struct hdi_suspects {
    hdi_suspect named[HDI_SUSPECTS_NAMED];
    uint32_t n_named;
    uint64_t count; /* operations in all, also those that have no room in `named` */
    bool begun;     /* false: nothing was under way, and these are what came next */
    bool certain;   /* there is one, and it is certainly the cause */
} hdi_suspects;

/* Collects the suspects of a device that is lost by `code`, or may be soon (0). */
void hdi_suspects_collect(const struct hdi_device *device, int code, hdi_suspects *out);

/* Finds the first suspect in a lane, and among what its operations wait for on the same device. False: there is none
 * there, and *out is the device's first. */
bool hdi_suspects_of_lane(const struct hdi_device *device, uint32_t number, const hdi_suspects *all, hdi_suspect *out);

/* Finds what the work up to a position of a lane waits for in the end, through WAITs into other lanes and devices. *out
 * has the unfinished operations of the first device that has some. *own is the operation at that position itself (count
 * 0: not known). False: nothing is unfinished. Takes order locks, one at a time. */
bool hdi_suspects_awaited(struct hd_runtime *rt, uint32_t lane, uint64_t position, hdi_suspects *out, hdi_suspect *own);

/* How far the lane may have begun. Behind that position nothing was under way. */
uint64_t hdi_suspects_begun(const struct hdi_device *device, uint32_t number);

#endif
