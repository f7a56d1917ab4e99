/* suspects.h - which operations of a device may be under way: what a loss can be due to.
 *
 * A GPU says that something went wrong, not what. What is known is which operations were given to the driver and have not been seen to end.
 * Kernels are looked for first, since what copies and fills touch was checked before. Of several kernels any may be it; those that others
 * wait for come first.
 *
 * Threads: whoever runs the device's engine; or any, with the device's order lock, so that no submission writes over what is read.
 * Always: nothing is named that was seen to end before, or that was never given to the driver while something else was.
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
    bool certain;   /* there is one, and it is known to be the one */
} hdi_suspects;

/* Of a device that is lost by `code`, or may be soon (0). */
void hdi_suspects_collect(const struct hdi_device *device, int code, hdi_suspects *out);

/* The first of them in a lane, and among what its operations wait for on the same device. False: there is none, and *out is the device's. */
bool hdi_suspects_of_lane(const struct hdi_device *device, uint32_t number, const hdi_suspects *all, hdi_suspect *out);

/* What the work up to a position of a lane comes to wait for, through WAITs into other lanes and devices: the first device's where something is
 * unfinished. `own` (count 0: not known) is the operation at that position itself. Takes order locks, one at a time. False: nothing is. */
bool hdi_suspects_awaited(struct hd_runtime *rt, uint32_t lane, uint64_t position, hdi_suspects *out, hdi_suspect *own);

/* How far the lane may have begun: behind that position nothing was under way. */
uint64_t hdi_suspects_begun(const struct hdi_device *device, uint32_t number);

#endif
