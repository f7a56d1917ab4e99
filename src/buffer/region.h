/* region.h - memory that is in no arena and no pool, as buffers: of imports, and of pieces of physical memory.
 *
 * Threads: any; the keeper is one of the library's own, which starts when it is first needed.
 * Locks: one for the list, not held while the driver or the program is called.
 * Blocking: the stop of the keeper, for a function of the program that it is in. Access of a peer, for its port.
 * Always: regions that are not freed do not overlap. `released` of each is called once, or never where work did not end.
 */
#ifndef HDI_BUFFER_REGION_H
#define HDI_BUFFER_REGION_H

#include <heddle/import.h>
#include "buffer/buffer.h"
#include "buffer/pin.h"

typedef struct hdi_region hdi_region;

struct hdi_region {
    hdi_region *next; /* in the list of leaving ones */
    hd_runtime *runtime;
    struct hd_buffer *buffer; /* NULL: freed */
    uint64_t low, high;       /* addresses */
    int owner;                /* device, or HDI_OWNER_HOST */
    bool own;                 /* memory of the library: no import */
    uint64_t losses;          /* of the device, when the memory was taken */
    uint64_t charged;         /* bytes that count against a limit */
    hdi_pin *pin;             /* of the host's memory; NULL: the program's, or memory of a device */
    uint64_t mapped_for;      /* under `linking`: bit per peer that has a mapping of its own */
    /* Gives back what the library has of the memory, once nothing uses it. `closing`: as the runtime does at its end. NULL: there is nothing.
     * May wait for the driver. */
    void (*give_back)(hdi_region *r, bool closing);
    /* Lets the device `from` use it. `linking` is held. NULL: it is asked for in the driver alone. */
    bool (*grant)(hdi_region *r, int from);
    hd_released_function released;
    void *context;
    hdi_point *points; /* leaving: work that still uses it */
    size_t n_points;
};

/* What is imported of a device's memory, or of the host's (HDI_OWNER_HOST). */
typedef struct hdi_region_info {
    uint64_t bytes, count; /* in buffers that are not freed, or in use after that */
} hdi_region_info;

/* Stop ends the keeper. Release ends every region that is left. */
extern const hdi_lifetime hdi_regions_lifetime;

/* Addresses for a piece that are the same in every process, with placement=process. 0: there are none left. The second one ends that, and does
 * nothing for an address that is none of those. The third one returns whether it is one. */
uint64_t hdi_regions_take_addresses(hd_runtime *rt, uint64_t bytes);
void hdi_regions_give_addresses(hd_runtime *rt, uint64_t at);
bool hdi_regions_have_addresses(uint64_t at);

void hdi_regions_get_info(hd_runtime *rt, int owner, hdi_region_info *out);

/* The kinds of their buffers: device memory, and pinned memory. */
extern const struct hdi_buffer_ops hdi_region_device_ops, hdi_region_host_ops;

/* ---- making one, step by step ---- */

/* With a structure for its buffer, which has the label and no memory yet. Errors: HOST_MEMORY. */
hd_status hdi_region_make(hd_runtime *rt, int owner, uint64_t low, size_t bytes, const hd_import_options *options,
                          hdi_region **out);
/* Puts it into the table; its buffer has memory. *inherited: freed regions of the same bytes are in use, so hdi_region_mark has to follow.
 * Errors: ARGUMENT (it overlaps another one), HOST_MEMORY. */
hd_status hdi_region_enlist(hdi_region *r, bool *inherited);
void hdi_region_unlist(hdi_region *r);
/* Errors: as hdi_submit. */
hd_status hdi_region_mark(hdi_region *r);
/* Drops one that is in no table. */
void hdi_region_drop(hdi_region *r);
/* Its handle is good from now on. */
void hdi_region_give_out(hdi_region *r, const void *call_site, hd_buffer **out);

/* ---- other devices ---- */

/* Whether the device `from` may use the memory of another one's region, where the pair's test was good. The first time it asks the driver or the
 * devices' ports for that. Then it is one load. */
bool hdi_region_reach_now(struct hd_buffer *b, int from);
static inline bool hdi_region_is_reached(struct hd_buffer *b, int from)
{
    /* Relaxed: a bit publishes no memory. */
    return (atomic_load_explicit(&b->reach, memory_order_relaxed) >> from & 1) || hdi_region_reach_now(b, from);
}
/* A device was lost, and comes back: it has no mappings of other ones' regions. `linking` is held. */
void hdi_regions_forget_peer(hd_runtime *rt, int peer);

#endif
