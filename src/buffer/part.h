/* part.h - the buffer layer's part of each runtime, on top of the parts of the layers below.
 *
 * hd_open allocates the structure of the topmost layer, which contains all parts. So every part of
 * an hd_runtime is at a constant offset, and a layer sees only the parts of the layers that it
 * builds on.
 * Threads, locks: as the files that own the members describe.
 * Always: a part shares the address of its runtime. A part is all zeros until hd_open fills it in.
 */
#ifndef HDI_BUFFER_PART_H
#define HDI_BUFFER_PART_H

#include "base/lock.h"
#include "buffer/line.h"
#include "peer/part.h"

#define HDI_HOST_LOCKS 4 /* order locks of pinned host memory: buffers are spread over them */

/* The use records of several segments under one order lock (uses.h). */
typedef struct hdi_parts_group {
    /* all these records form a ring; this is the record to prune next */
    struct hdi_parts *ring;
    struct hdi_parts *spare; /* memory of ended records, linked by `behind` */
    uint32_t n_spare;
} hdi_parts_group;

/* All structures of buffers (buffer.c). */
typedef struct hdi_buffers {
    hdi_mutex lock;
    struct hdi_slab *slabs;
    struct hd_buffer *free_list;
    uint32_t made; /* counts pinned buffers, to spread them over the order locks */
} hdi_buffers;

/* All holds (hold.c). */
typedef struct hdi_holds {
    hdi_mutex lock;
    struct hd_hold *all;
    struct hd_hold *free_list;
} hdi_holds;

struct hdi_use;
struct hdi_same;

typedef struct hdi_buffer_part {
    hdi_peer_part below; /* first, since all parts share the runtime's address */
    hdi_buffers buffers;
    hdi_lock host_order[HDI_HOST_LOCKS];                     /* use records of pinned host memory */
    hdi_parts_group parts[HDI_DEVICES_MAX + HDI_HOST_LOCKS]; /* by order lock */
    struct hdi_shrinker *shrinkers;
    /* lines of allocations that wait: by device, pinned memory last */
    hdi_line lines[HDI_DEVICES_MAX + 1];
    struct hdi_reclaim *reclaim; /* the program's callback, and when to run it */
    /* the thread that maps memory before it is needed, and gives idle memory back */
    struct hdi_maintenance *maintenance;
    _Atomic bool maintenance_asleep;
    hdi_holds holds;
    struct hdi_regions *regions;
    const struct hdi_buffer_ops *kept; /* the kind of buffers with HD_ALLOC_KEEP */
    /* for all device memory; NULL if the option memory_debug is off */
    const struct hdi_buffer_ops *guarded;
    /* Writes the largest holders of a device's memory (HD_DEVICE_HOST: pinned memory), for the
     * message when an allocation fails at a limit. If host memory is short, the text is "". Leaves
     * the thread's message alone. */
    void (*on_full)(hd_runtime *rt, int device, char *out, size_t room);
    /* For a launch whose kernel needs more uses than its arguments: adds these uses, and submits
     * the launch. Errors: as hdi_submit. */
    hd_status (*on_changed)(hd_lane *lane, const struct hdi_use *uses, size_t n_uses, const hdi_command *command,
                            const struct hdi_same *same, hd_ticket *out);
    /* Publishes figures. Called a few times a second while memory is in use. False: the figures are
     * incomplete, and the caller calls this function again soon. */
    bool (*on_tick)(hd_runtime *rt);
} hdi_buffer_part;

static inline hdi_buffer_part *hdi_buffer_of(hd_runtime *rt)
{
    return (hdi_buffer_part *)rt;
}

#endif
