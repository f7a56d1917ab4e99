/* submit.h - puts one operation into a lane, behind all earlier uses of its bytes.
 *
 * Threads: any.
 * Locks: the order locks of the lane's device and of the buffers' owners, taken by rising number,
 * and held for some tens of nanoseconds.
 * Blocking: a submission waits while the lane is full, and while another thread detached a
 * record. It also waits if the lane's log of failures is full.
 * Always: a submission makes no driver calls, except those of the engine with placement inline. The
 * fast path never allocates.
 */
#ifndef HDI_BUFFER_SUBMIT_H
#define HDI_BUFFER_SUBMIT_H

#include "buffer/buffer.h"

#define HDI_USES_OF_ONE 128 /* the most uses of one operation */

typedef struct hdi_use {
    struct hd_buffer *buffer;
    /* the value of hdi_buffer_losses at the time when the handle was checked and the address was
     * read */
    uint64_t losses;
    /* the hdi_self_word of the handle, which is compared again under the order locks; 0: the buffer
     * is the library's own, and no thread frees it now */
    uint64_t word;
    uint64_t low, high; /* bytes of the buffer */
    bool read, write;
    bool whole; /* `low` and `high` cover the whole buffer */
    bool host;  /* the host uses the bytes: the pinned side of unified memory */
} hdi_use;

/* The words of an operation's handles. The submission compares them again under the order locks. */
typedef struct hdi_same {
    uint64_t lane;                 /* 0: a lane of the library, which no thread destroys */
    const hdi_handle_head *kernel; /* NULL: no kernel that could be unloaded */
    uint64_t kernel_word;
} hdi_same;

typedef struct hdi_undo hdi_undo; /* undo.h */

/* Requests and answers of a claim's submission, beside its command. */
typedef struct hdi_link_of_claim {
    /* the submission sets it if the claim waits for nothing; then the engine does not see the
     * claim's commands before hdi_claim_notify */
    bool quiet;
    hdi_undo *undo; /* not NULL: the operation may be withdrawn (undo.h) */
} hdi_link_of_claim;

/* The roots of an operation (parked.h), as a submission finds them. */
typedef struct hdi_probe {
    hdi_point root; /* set: one of the roots; position 0: there is none */
    /* The ends of earlier operations in lanes of the library, `n_ends` of them. */
    const hdi_point *ends;
    uint32_t n_ends;
    /* set: the index of the first of `ends` whose roots are all roots of this operation, too;
     * n_ends: there is none */
    uint32_t covered;
} hdi_probe;

/* Links an operation with other operations. To the program, all of them are one transfer. */
typedef struct hdi_linked {
    /* The operation runs after this earlier operation, and fails if the earlier one fails, like a
     * reader of its result. Position 0: there is no such operation. */
    hdi_point after;
    /* One bit for each use that reads the result of a linked operation. If the linked operation
     * already failed, the submission still succeeds, and this operation fails later. */
    unsigned ours;
    const hdi_same *same;     /* NULL: only handles of buffers are compared */
    hdi_link_of_claim *claim; /* NULL: not a claim */
    /* Not NULL: do not submit the operation if it waits for work of the program (parked.h). In that
     * case the status is NOT_FOUND, without a message, and *parked is set. */
    hdi_probe *parked;
} hdi_linked;

static inline bool *hdi_linked_quiet(const hdi_linked *link)
{
    return link->claim ? &link->claim->quiet : NULL;
}

static inline hdi_undo *hdi_linked_undo(const hdi_linked *link)
{
    return link->claim ? link->claim->undo : NULL;
}

/* Submits an operation. If the operation may not stand in its library lane (parked.h), it goes to a
 * parking lane, and the ticket names that lane.
 *
 * `command` fills `command->slots` slots. On success *out (may be NULL) is its ticket. On failure
 * nothing was submitted. If `link.same` names a kernel, NOT_FOUND without a message means that
 * hdi_kernel_is_changed is true.
 * Errors: FAILED or DEVICE_LOST (a failed operation made a buffer's content, or its device was
 * lost), LANE_FAILED, DEVICE_LOST, HANDLE (freed or destroyed during the call), HOST_MEMORY, LIMIT
 * (a command longer than half the ring), TIMEOUT (option submit_timeout). */
hd_status hdi_submit(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command, hd_ticket *out);

hd_status hdi_submit_linked(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                            hdi_linked link, hd_ticket *out);

/* Submits a claim, which sets `link.claim`. Errors: as hdi_submit. */
hd_status hdi_submit_claim(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                           hdi_linked link, hd_ticket *out);

/* Submits an operation without the kind's own step (hdi_buffer_ops.submit). `command` NULL: only
 * finds the roots, and returns NOT_FOUND without a message (hdi_submit_probe). */
hd_status hdi_submit_as_is(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                           hdi_linked link, hd_ticket *out);

/* Finds out whether an operation with these uses would now wait for work of the program, and
 * completes the probe. `lane`: a library lane of a device that could run the operation. Errors: as
 * hdi_submit. */
hd_status hdi_submit_probe(hd_lane *lane, const hdi_use *uses, size_t n_uses, hdi_probe *probe);

#endif
