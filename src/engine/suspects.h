/* suspects.h - the unfinished operations of a device, which are the possible causes of a loss or a
 * delay.
 *
 * A GPU reports an error, but not its cause. So the suspects are the operations that the driver got
 * and that no thread saw end. Kernels come first, since Heddle checked the memory of copies and
 * fills before the driver got them. If there are several kernels, each may be the cause. Kernels
 * that other operations wait for come first.
 *
 * Threads: hdi_suspects_awaited and hdi_suspects_behind: any. The rest: the thread that runs the
 * device's engine, or the holder of the device's order lock, so that no submission overwrites the
 * commands meanwhile.
 * Locks: hdi_suspects_awaited and hdi_suspects_behind take order locks, one at a time.
 * Blocking: none.
 * Always: an operation is no suspect if a thread saw it end before. If the driver got no unfinished
 * operation, the first operations that it did not get are the suspects.
 */
#ifndef HDI_ENGINE_SUSPECTS_H
#define HDI_ENGINE_SUSPECTS_H

#include "engine/runtime.h"

#define HDI_SUSPECTS_NAMED 6

/* One operation, or several of the same kind in one lane. */
typedef struct hdi_suspect {
    uint64_t position, last; /* tickets of the first and of the last one */
    uint32_t lane;           /* global number */
    uint32_t kernel;         /* of a launch: number in the runtime's table */
    uint32_t count;          /* 0: none */
    uint8_t op;
} hdi_suspect;

typedef struct hdi_suspects {
    hdi_suspect named[HDI_SUSPECTS_NAMED];
    uint32_t n_named;
    uint64_t count; /* operations in all, including those without room in `named` */
    /* false: no operation was running, and the driver would have got these operations next */
    bool begun;
    bool certain; /* there is only one suspect, and it is certainly the cause */
} hdi_suspects;

/* Finds the unfinished operations that the work up to a position of a lane finally waits for.
 * Follows WAITs into other lanes and devices. *out: these operations, all of one device. *own: the
 * operation at that position itself (count 0: unknown). False: all operations are finished. Takes
 * order locks, one at a time. */
bool hdi_suspects_awaited(struct hd_runtime *rt, uint32_t lane, uint64_t position, hdi_suspects *out, hdi_suspect *own);
/* Finds the launches right behind the awaited ones, in the same lane, that the driver got. An
 * engine may see the ends of the awaited launches only when these launches end, too. out->count 0:
 * there are none. Takes an order lock. */
void hdi_suspects_behind(struct hd_runtime *rt, const hdi_suspects *awaited, hdi_suspects *out);
/* Collects the suspects of a device that was lost with `code`; 0: it is not lost yet. */
void hdi_suspects_collect(const hdi_device *device, int code, hdi_suspects *out);
/* Finds the first suspect in a lane, or in work on the same device that the lane's operations wait
 * for. False: there is no such suspect, and *out is the device's first suspect. */
bool hdi_suspects_of_lane(const hdi_device *device, uint32_t number, const hdi_suspects *all, hdi_suspect *out);
/* The position up to which the lane's work may have begun. Work behind this position was not under
 * way. */
uint64_t hdi_suspects_begun(const hdi_device *device, uint32_t number);
/* The first operation of a lane in [position, limit), and its end; NULL: none. */
const hdi_command *hdi_lane_operation(const hdi_channel *channel, uint32_t lane, uint64_t position, uint64_t limit,
                                      uint64_t *end);

#endif
