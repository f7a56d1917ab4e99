/* undo.h - records an operation's changes to use records, so that the operation can be withdrawn.
 *
 * A claim may be refused after its submission: its stream may be unable to wait, or its bytes may
 * turn out to be bad. A refused call must leave the use records as they were. So the submission
 * keeps everything that it takes out of the records, and a withdrawal puts this back. The command
 * itself stays in its lane, and ends like a command without uses.
 *
 * Threads: the thread that submits. It calls withdraw or drop before its call returns.
 * Locks: order locks, as in a submission, and the lock of a mirror (src/kinds/unified.c).
 * Blocking: a call waits while another thread detached a record.
 * Always: operations that other threads submit before the withdrawal keep their order. A withdrawal
 * does not touch a buffer that was freed after the submission.
 */
#ifndef HDI_BUFFER_UNDO_H
#define HDI_BUFFER_UNDO_H

#include "buffer/submit.h"
#include "buffer/uses.h"

/* One noted use. */
typedef struct hdi_undo_use {
    hdi_use use;
    uint32_t first, n; /* the place and the number of the segments that the use displaced */
} hdi_undo_use;

/* A buffer in a hold whose kind keeps state in addition to the use record. */
typedef struct hdi_undo_kind {
    struct hd_buffer *buffer;
    uint64_t chunks, was[4], changes; /* data of the kind; `changes` 0: no changes */
    bool host;
} hdi_undo_kind;

/* All zeros: no submission used this structure yet. */
struct hdi_undo {
    hdi_displaced displaced;
    hdi_undo_use *uses;
    hdi_undo_kind *kinds;
    uint32_t n_uses, n_kinds;
};

/* Copies the segments that the uses will displace. The order locks are held. False: no memory. */
bool hdi_undo_note(hd_runtime *rt, hdi_undo *undo, const hdi_use *uses, size_t n_uses);

/* Takes the operation that ends at `point` out of all records, and drops the copies. False: no
 * memory. Then the operation is still the writer of some bytes. No lock is held. */
bool hdi_undo_withdraw(hd_runtime *rt, hdi_undo *undo, hdi_point point);

/* Drops the copies: the operation stays. No lock is held. */
void hdi_undo_drop(hdi_undo *undo);

#endif
