/* part.h - what the layer of buffers has in each runtime, behind what the layers below have there.
 *
 * hd_open allocates the last layer's structure, which contains all. So an hd_runtime has every part at a constant place,
 * and a layer sees only those below.
 * Threads, locks: as the files that own the members describe.
 * Always: a part has the address of its runtime. All zeros is its state before hd_open creates what it has.
 */
#ifndef HDI_BUFFER_PART_H
#define HDI_BUFFER_PART_H

#include "peer/part.h"

#define HDI_HOST_LOCKS 4 /* order locks of pinned host memory: buffers are spread over them */

/* The use records of several segments under one order lock (uses.h). */
typedef struct hdi_parts_group {
    struct hdi_parts *ring;  /* all of them; the next one to be pruned */
    struct hdi_parts *spare; /* memory of some that are no more, by `behind` */
    uint32_t n_spare;
} hdi_parts_group;

struct hdi_use;
struct hdi_same;

typedef struct hdi_buffer_part {
    hdi_peer_part below; /* first: the runtime's address is that of each part */
    struct hdi_buffers *buffers;
    hdi_lock host_order[HDI_HOST_LOCKS];                     /* use records of pinned host memory */
    hdi_parts_group parts[HDI_DEVICES_MAX + HDI_HOST_LOCKS]; /* by order lock */
    hdi_lock parked_lock;                                    /* `parked` of all lanes */
    struct hdi_shrinker *shrinkers;
    struct hdi_reclaim *reclaim;         /* the program's callback, and when it runs */
    struct hdi_maintenance *maintenance; /* the thread that grows and trims ahead of need */
    _Atomic bool maintenance_asleep;
    struct hdi_holds *holds;
    struct hdi_regions *regions;
    struct hdi_pins *pins;
    const struct hdi_buffer_ops *kept;    /* of buffers with HD_ALLOC_KEEP */
    const struct hdi_buffer_ops *guarded; /* of all device memory; NULL where the option memory_debug is off */
    /* Writes the largest holders of a device's memory (HD_DEVICE_HOST: pinned memory), for the message of an allocation
     * that fails at a limit. The text is "" where host memory is short. Leaves the thread's message alone. */
    void (*on_full)(hd_runtime *rt, int device, char *out, size_t room);
    /* A launch whose kernel needs more uses than these: it adds them, and submits. Errors: as hdi_submit. */
    hd_status (*on_changed)(hd_lane *lane, const struct hdi_use *uses, size_t n_uses, const hdi_command *command,
                            const struct hdi_same *same, hd_ticket *out);
    /* Called a few times a second while memory is in use. Publishes figures. False: they are not complete, and the
     * caller calls again soon. */
    bool (*on_tick)(hd_runtime *rt);
} hdi_buffer_part;

/* A const runtime does not change itself; what it leads to may. */
static inline hdi_buffer_part *hdi_buffer_of(const hd_runtime *rt)
{
    return (hdi_buffer_part *)rt;
}

#endif
