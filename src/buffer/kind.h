/* kind.h - in what a buffer differs from plain device memory: a table of operations for each kind.
 *
 * A buffer has one kind: none (plain device memory), pinned (host.c), unified (unified.c), or checkpointed (checkpoint.c).
 * Guards (guard.c) are a table beside that: with memory_debug all device memory has them, whatever the buffer's kind.
 * The code for all buffers refers to no kind by name. It calls these operations where the buffer, or its runtime, has a table.
 * An operation that is NULL means that the kind does there what plain device memory does.
 *
 * Threads: any.
 * Locks: a caller holds none of the library, but where a comment names one.
 * Blocking: for what each operation waits for.
 * Always: a buffer gets its kind before a handle leads to it, and keeps it until its structure has a new owner.
 */
#ifndef HDI_BUFFER_KIND_H
#define HDI_BUFFER_KIND_H

#include "base/handle.h"
#include "buffer/submit.h"

typedef struct hdi_buffer_ops {
    bool unified; /* hd_memory_block.unified */

    /* ---- making and ending: no handle leads to the buffer ---- */

    /* In place of hdi_buffer_place_plain, for all device memory of the runtime (hd_runtime.guarded). */
    hd_status (*place)(struct hd_buffer *b, hd_lane *lane, size_t bytes);
    /* The buffer has device memory. Makes what it has beside that, and calls hdi_buffer_set_kind. */
    hd_status (*create)(struct hd_buffer *b);
    /* Its memory is about to be given back. May wait for the work on it. Sets the thread's message only for a finding.
     * False: the kind keeps the buffer, and calls hdi_buffer_end again. */
    bool (*check)(struct hd_buffer *b);
    /* Its memory is neither an arena's nor a pool's. In place of giving that back; the points are of work that still uses it. The caller
     * is in a call of the program's, and holds no lock. */
    void (*leave)(struct hd_buffer *b, const hdi_point *points, size_t n_points);
    /* Its memory was given back, and the rest is. Work may still use it. */
    void (*release)(struct hd_buffer *b);
    /* For hd_close: as `release`, but leaves the pinned buffers, which go with all others. */
    void (*forget)(struct hd_buffer *b);

    /* ---- handles that are not good ---- */

    /* Both for a handle that leads to a structure of a runtime with this table (hd_runtime.guarded). They note a finding, and fail with HANDLE
     * and a message that names the buffer. HD_OK: nothing is recorded about the handle, and the caller fails. */
    hd_status (*refuse)(const hd_buffer *handle);
    hd_status (*refuse_free)(const hd_buffer *handle, const void *call_site);

    /* ---- use ---- */

    /* In place of hdi_submit_as_is, for an operation with any such buffer among its uses; the same arguments and errors. At most one kind has it. */
    hd_status (*submit)(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command, hdi_linked link,
                        hd_ticket *out);
    /* The first begins a mapping of a buffer in a hold, and the second ends one. Plain device memory cannot be mapped. */
    hd_status (*map)(struct hd_buffer *b, hd_access access, int64_t deadline);
    void (*unmap)(struct hd_buffer *b);
    /* Makes the bytes [low, high) good for access by the host. `handle` led to the buffer a moment ago. */
    hd_status (*bring)(struct hd_buffer *b, const hd_buffer *handle, uint64_t low, uint64_t high, hd_access access,
                       int64_t deadline);

    /* ---- losses ---- */

    /* The pinned memory with the content that a buffer gets back after a loss. NULL: it gets none back. */
    struct hd_buffer *(*content)(struct hd_buffer *b);
} hdi_buffer_ops;

/* The buffer has that kind from now on. No handle leads to it yet. */
static inline void hdi_buffer_set_kind(struct hd_buffer *b, const hdi_buffer_ops *kind, void *of_kind)
{
    HDI_HANDOVER_BEGIN();
    b->kind = kind;
    b->of_kind = of_kind;
    b->locks |= kind->submit ? HDI_KIND_BIT : 0;
    HDI_HANDOVER_END();
    b->special |= HDI_BUFFER_OF_KIND;
}

/* alloc.c: hd_alloc_with, for a buffer of a kind. */
hd_status hdi_alloc_of_kind(hd_lane *handle, size_t bytes, const hdi_buffer_ops *kind, const char *label,
                            const void *call_site, hd_buffer **out);

#endif
