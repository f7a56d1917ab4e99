/* submit.h - puts one operation into a lane, ordered against everything that its buffers were used for before.
 *
 * Threads: any. Locks: the order locks of the lane's device and of the buffers' owners, by rising number, for some tens of
 * nanoseconds. Blocking: only when the lane is full. Never calls the driver, never allocates on the usual path.
 */
#ifndef HDI_DATA_SUBMIT_H
#define HDI_DATA_SUBMIT_H

#include "data/buffer.h"

#define HDI_USES_OF_ONE 128 /* uses that one operation may have */

typedef struct hdi_use {
    struct hd_buffer *buffer;
    uint64_t losses; /* hdi_buffer_losses when the handle was good and the address taken */
    uint64_t
        word; /* hdi_self_word of that handle, looked at again under the order locks; 0: the library's own use of a buffer that
                           nobody frees meanwhile */
    uint64_t low, high; /* bytes of the buffer */
    bool read, write;
    bool whole; /* low and high are all of it */
} hdi_use;

/* The words of the handles that an operation was made with, looked at again under the order locks. */
typedef struct hdi_same {
    uint64_t lane;                 /* 0: the library's own, which nobody destroys */
    const hdi_handle_head *kernel; /* NULL: nobody unloads it */
    uint64_t kernel_word;
} hdi_same;

/* What one of several operations that are one to the program has to do with the others. */
typedef struct hdi_linked {
    hdi_point
        after; /* it comes after that one, and fails with it, as if it read its result; position 0: there is none */
    unsigned
        ours; /* bit per use: what is read there, one of the others has made. That it has failed, the operation says then, not its
                       submission */
    const hdi_same *same; /* NULL: no handles but the buffers' */
} hdi_linked;

/* `command` has `command->slots` slots. On success *out (may be NULL) is its ticket; on failure nothing was submitted.
 * Errors: FAILED or DEVICE_LOST (a buffer's content was made by a failed operation, or is lost with its device), LANE_FAILED, DEVICE_LOST, HOST_MEMORY, LIMIT (a
 * command longer than half the ring), TIMEOUT (option submit_timeout). */
hd_status hdi_submit(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command, const char *who,
                     hd_ticket *out);

hd_status hdi_submit_linked(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                            hdi_linked link, const char *who, hd_ticket *out);

/* The same without moving the bytes of unified buffers. */
hd_status hdi_submit_as_is(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                           hdi_linked link, const char *who, hd_ticket *out);

#endif
