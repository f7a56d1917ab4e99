/* kind.h - the kinds of buffers: each kind that differs from plain device memory has a table of
 * functions.
 *
 * Each buffer is of one kind: none (plain device memory), pinned (host.c), unified (unified.c), or
 * checkpointed (checkpoint.c).
 * Guards (guard.c) use a separate table for each runtime: the option memory_debug puts guards
 * around the device memory of buffers of all kinds. Code for all buffers names no kind. If the
 * buffer or its runtime has a table, this code calls the functions in the table. If a function in
 * the table is NULL, the buffer behaves like plain device memory in this respect.
 *
 * Threads: any.
 * Locks: a caller of these functions holds no lock of the library, unless a comment names one.
 * Blocking: the comment of each function names its waits.
 * Always: a buffer gets its kind before a handle leads to it, and keeps it until its structure gets
 * a new owner.
 */
#ifndef HDI_BUFFER_KIND_H
#define HDI_BUFFER_KIND_H

#include "base/handle.h"
#include "buffer/submit.h"
#include "buffer/undo.h"

typedef struct hdi_buffer_ops {
    bool unified; /* hd_memory_block.unified */

    /* ---- making and ending: no handle leads to the buffer ---- */

    /* Replaces hdi_buffer_place_plain for all device memory of the runtime
     * (hdi_buffer_part.guarded). */
    hd_status (*place)(struct hd_buffer *b, hd_lane *lane, size_t bytes);
    /* Called when the device memory is in place. Makes the kind's own state, and calls
     * hdi_buffer_set_kind. */
    hd_status (*create)(struct hd_buffer *b);
    /* Called before the memory is given back. May wait for the work on the memory. Sets the
     * thread's message only for a finding. False: the kind keeps the buffer for now, and later
     * calls hdi_buffer_end again. */
    bool (*check)(struct hd_buffer *b);
    /* Gives back memory that belongs to no arena and no pool. `points`: the work that still uses
     * it. The caller is in a call of the program, and holds no lock. */
    void (*leave)(struct hd_buffer *b, const hdi_point *points, size_t n_points);
    /* Gives the kind's own state back, after the memory was given back. Work may still use this
     * state. */
    void (*release)(struct hd_buffer *b);
    /* For hd_close: like `release`, but leaves the kind's pinned buffers, which hd_close drops with
     * all other buffers. */
    void (*forget)(struct hd_buffer *b);

    /* ---- handles that are not good ---- */

    /* Heddle calls these two functions for bad handles that lead to a structure of a runtime with
     * this table (hdi_buffer_part.guarded). These functions note a finding, and fail with HANDLE
     * and a message that names the buffer. HD_OK: the function knows nothing about the handle, so
     * the caller reports the failure. */
    hd_status (*refuse)(const hd_buffer *handle);
    hd_status (*refuse_free)(const hd_buffer *handle, const void *call_site);

    /* ---- use ---- */

    /* Replaces hdi_submit_as_is for an operation that uses a buffer of this kind, with the same
     * arguments and errors. At most one kind implements this function. */
    hd_status (*submit)(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command, hdi_linked link,
                        hd_ticket *out);
    /* For kinds with `submit`: called when an operation is withdrawn (undo.h). Restores the kind's
     * own state, unless other operations changed it since. The buffer is in a hold. */
    void (*put_back)(const hdi_undo_kind *was);
    /* `map` begins a mapping of a buffer in a hold, `unmap` ends one. Plain device memory cannot be
     * mapped. `unmap` returns false if the buffer is not mapped. NULL: mappings are not counted. */
    hd_status (*map)(struct hd_buffer *b, hd_access access, int64_t deadline);
    bool (*unmap)(struct hd_buffer *b);
    /* Makes the bytes [low, high) ready for access by the host. The caller just found the buffer
     * through `handle`. */
    hd_status (*bring)(struct hd_buffer *b, const hd_buffer *handle, uint64_t low, uint64_t high, hd_access access,
                       int64_t deadline);

    /* ---- losses ---- */

    /* The pinned memory with the content that the buffer gets back after a loss. NULL: the buffer
     * gets no content back. */
    struct hd_buffer *(*content)(struct hd_buffer *b);
} hdi_buffer_ops;

/* Sets the kind of a buffer without a handle. */
static inline void hdi_buffer_set_kind(struct hd_buffer *b, const hdi_buffer_ops *kind, void *of_kind)
{
    HDI_HANDOVER_BEGIN();
    b->kind = kind;
    b->of_kind = of_kind;
    b->locks |= kind->submit ? HDI_KIND_BIT : 0;
    HDI_HANDOVER_END();
    b->special |= HDI_BUFFER_OF_KIND;
}

/* alloc.c: hd_alloc_with for a buffer of a kind. */
hd_status hdi_alloc_of_kind(hd_lane *handle, size_t bytes, const hdi_buffer_ops *kind, const char *label,
                            const void *call_site, hd_buffer **out);

#endif
