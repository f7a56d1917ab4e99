/* region.h - buffers of memory that is in no arena and no pool: imports, and pieces of physical
 * memory.
 *
 * Threads: any. The keeper is a library thread, which starts when it is first needed.
 * Locks: one for the list, not held during a call of the driver or of the program.
 * Blocking: the stop of the keeper waits while the keeper runs a function of the program. A call
 * that gives a peer access waits for a port.
 * Always: regions that are not freed do not overlap. Heddle calls the function `released` of a
 * region once, or never if work on the region does not end.
 */
#ifndef HDI_BUFFER_REGION_H
#define HDI_BUFFER_REGION_H

#include <heddle/import.h>
#include "buffer/buffer.h"
#include "buffer/pin.h"

typedef struct hdi_region hdi_region;

struct hdi_region {
    hdi_region *next; /* in the list of freed regions */
    hd_runtime *runtime;
    struct hd_buffer *buffer; /* NULL: freed */
    uint64_t low, high;       /* addresses */
    int owner;                /* device, or HDI_OWNER_HOST */
    bool own;                 /* the memory belongs to the library, so it is no import */
    uint64_t losses;          /* the device's count of losses when the memory was taken */
    uint64_t charged;         /* bytes that count against a limit */
    /* the pin of host memory; NULL: the program pinned the memory, or it is device memory */
    hdi_pin *pin;
    /* the region counts among those that the keeper will unpin (`unpins` in region.c) */
    bool unpins;
    uint64_t mapped_for; /* under `linking`: one bit per peer with a mapping of its own */
    /* Unpins or unmaps the memory, once nothing uses it. `closing`: the runtime is ending. NULL:
     * there is nothing to do. May wait for the driver. */
    void (*give_back)(hdi_region *r, bool closing);
    /* Lets the device `from` use the memory. The caller holds `linking`. NULL: only the driver is
     * asked. */
    hdi_answer (*grant)(hdi_region *r, int from);
    hd_released_function released;
    void *context;
    /* of a freed region: the points of the work that still uses it. Behind them, the points of
     * writers are stored once more.
     */
    hdi_point *points;
    size_t n_points, n_writers;
    char label[HD_LABEL_BYTES]; /* of a freed region: the label of its buffer */
};

/* Figures about the imports of a device's memory, or of host memory (HDI_OWNER_HOST). */
typedef struct hdi_region_info {
    /* of buffers that are not freed, or that are freed while work still uses their memory */
    uint64_t bytes, count;
} hdi_region_info;

/* `stop` ends the keeper. `release` ends all regions that are left. */
extern const hdi_lifetime hdi_regions_lifetime;

/* With placement=process: reserves addresses that are the same in every process; 0: none are left.
 * All callers ask for multiples of one size, so all addresses are multiples of this size, too. The
 * second function gives such addresses back, and ignores any other address. The third function
 * returns true if an address is such an address. */
uint64_t hdi_regions_take_addresses(hd_runtime *rt, uint64_t bytes);
void hdi_regions_give_addresses(hd_runtime *rt, uint64_t at);
bool hdi_regions_have_addresses(uint64_t at);

void hdi_regions_get_info(hd_runtime *rt, int owner, hdi_region_info *out);

/* About those freed pieces of a device that wait for an unfinished point for which `of` returns
 * true. `of` is called under the list's lock, perhaps for several points of a piece. */
typedef struct hdi_region_leaving {
    uint64_t bytes, count;
    char label[HD_LABEL_BYTES]; /* the label of one of them; "": none has a label */
} hdi_region_leaving;
void hdi_regions_get_leaving(hd_runtime *rt, int owner, hdi_of_point of, void *context, hdi_region_leaving *out);

/* The pinned bytes of the program for which it gave no function `released`. */
uint64_t hdi_regions_untold_bytes(hd_runtime *rt);

/* True if a thread of the library will unpin memory of freed regions. *unpinned: the number of
 * regions that it unpinned so far. */
bool hdi_regions_unpin(hd_runtime *rt, uint64_t *unpinned);

/* The kinds of the buffers of regions: device memory, and pinned memory. */
extern const struct hdi_buffer_ops hdi_region_device_ops, hdi_region_host_ops;

/* ---- making a region, step by step ---- */

/* Makes a region and its buffer structure, with the label but no memory yet. Errors:
 * HOST_MEMORY. */
hd_status hdi_region_make(hd_runtime *rt, int owner, uint64_t low, size_t bytes, const hd_import_options *options,
                          hdi_region **out);
/* Puts the region into the table, once its buffer's memory is set. *inherited: work may still use
 * freed regions with some of the same bytes, so call hdi_region_mark. Errors: ARGUMENT (it overlaps
 * another region), HOST_MEMORY. */
hd_status hdi_region_enlist(hdi_region *e, bool *inherited);
void hdi_region_unlist(hdi_region *e);
/* Orders the region's buffer behind work on freed regions with some of the same bytes. Readers of
 * the buffer wait for the writers of these regions. Writers of the buffer wait for all work on
 * them. Errors: as hdi_submit. */
hd_status hdi_region_mark(hdi_region *e);
/* Drops a region that is not in the table. */
void hdi_region_drop(hdi_region *e);
/* Makes the handle of the region's buffer good. */
void hdi_region_give_out(hdi_region *e, const void *call_site, hd_buffer **out);

/* ---- other devices ---- */

/* Asks whether the device `from` may use another device's region. Call it only for pairs of devices
 * whose test succeeded. The first call asks the driver or the devices' ports, and returns their
 * answer. Later calls take one load. */
hdi_answer hdi_region_reach_now(struct hd_buffer *b, int from);
static inline bool hdi_region_is_reached(struct hd_buffer *b, int from)
{
    /* Relaxed: a bit publishes no memory. */
    return (atomic_load_explicit(&b->reach, memory_order_relaxed) >> from & 1) ||
           hdi_answered(hdi_region_reach_now(b, from));
}

/* For a lost device that is restarted: forgets its mappings of other devices' regions, which are
 * gone. Takes `linking`. */
void hdi_regions_forget_peer(hd_runtime *rt, int peer);

#endif
