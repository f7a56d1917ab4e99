/* submit.h - puts one operation into a lane, in order behind all earlier uses of the same bytes.
 *
 * Threads: any.
 * Locks: the order locks of the lane's device and of the buffers' owners, by rising number, for some tens of nanoseconds.
 * Blocking: while the lane is full, while another thread has detached a record, and for the lane's log of failures.
 * Always: the driver is not called, but by the engine with placement inline. The fast path never allocates.
 */
#ifndef HDI_BUFFER_SUBMIT_H
#define HDI_BUFFER_SUBMIT_H

#include "buffer/buffer.h"

#define HDI_USES_OF_ONE 128 /* the most uses of one operation */

typedef struct hdi_use {
    struct hd_buffer *buffer;
    uint64_t losses; /* hdi_buffer_losses when the handle was good and the address taken */
    uint64_t
        word; /* hdi_self_word of that handle, compared again under the order locks; 0: the library's use, and no thread frees the buffer */
    uint64_t low, high; /* bytes of the buffer */
    bool read, write;
    bool whole; /* low and high are those of the whole buffer */
    bool host;  /* the host uses it: of unified memory, what is in pinned memory */
} hdi_use;

/* The words of the handles that an operation was made with, compared again under the order locks. */
typedef struct hdi_same {
    uint64_t lane;                 /* 0: a lane of the library, which no thread destroys */
    const hdi_handle_head *kernel; /* NULL: no kernel that could be unloaded */
    uint64_t kernel_word;
} hdi_same;

/* How an operation is linked with others that are one transfer to the program. */
typedef struct hdi_linked {
    hdi_point
        after; /* it comes after that operation, and fails with it, as if it read its result; position 0: there is none */
    unsigned
        ours; /* bit per use: it reads there what a linked operation wrote, whose failure fails this operation, not its submission */
    const hdi_same *same; /* NULL: no handles but those of buffers */
    /* Not NULL: where nothing has to be waited for, the commands are not published yet (hdi_claim_notify), and this is set. */
    bool *quiet;
    /* Not NULL: where the operation would be parked (parked.h), it is not submitted. The status is NOT_FOUND, without a message, and this becomes the end
     * of a claim that it would wait for. */
    hdi_point *parked;
} hdi_linked;

/* What would be parked in a copy lane is submitted to a parking lane instead, which the ticket names.
 *
 * `command` has `command->slots` slots. On success *out (may be NULL) is its ticket. On failure nothing was submitted. With a kernel in `link.same`
 * NOT_FOUND, without a message: hdi_kernel_is_changed.
 * Errors: FAILED or DEVICE_LOST (a failed operation made a buffer's content, or its device was lost), LANE_FAILED, DEVICE_LOST, HANDLE (freed
 * or destroyed meanwhile), HOST_MEMORY, LIMIT (a command longer than half the ring), TIMEOUT (option submit_timeout). */
hd_status hdi_submit(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command, hd_ticket *out);

hd_status hdi_submit_linked(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                            hdi_linked link, hd_ticket *out);

/* The same without what a kind does beside it (hdi_buffer_ops.submit). `command` NULL: it only looks, and returns NOT_FOUND without a message
 * (hdi_submit_probe). */
hd_status hdi_submit_as_is(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                           hdi_linked link, hd_ticket *out);

/* Whether an operation with these uses would be parked now. *claim: the end of a claim that it would wait for; position 0: none. `lane`: a copy lane of a
 * device that could do it. Errors: those that its submission would have. */
hd_status hdi_submit_probe(hd_lane *lane, const hdi_use *uses, size_t n_uses, hdi_point *claim);

#endif
