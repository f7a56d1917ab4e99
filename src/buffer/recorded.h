/* recorded.h - records submissions, allocations and frees in a trace (record/format.h).
 *
 * Threads: any.
 * Locks: a thread holds the order locks of an operation while it records the waits of the
 * submission. All other functions need no lock.
 * Blocking: never.
 * Always: callers call these functions only while a trace is written. The waits of an operation are
 * recorded before the operation.
 */
#ifndef HDI_BUFFER_RECORDED_H
#define HDI_BUFFER_RECORDED_H

#include "buffer/submit.h"
#include "base/wait.h"
#include "engine/runtime.h"

/* The slots of the ring that unfinished work fills. The function reads the lane's `done`. It does
 * not use `done_seen`, which may be old, and which shows a full ring while a submission waits for
 * room. The exception is an impossible position of a worker process: then the function uses
 * `done_seen`. The caller holds the lane's lock. */
static inline uint32_t hdi_lane_taken(const hd_lane *lane)
{
    uint64_t done = atomic_load_explicit(&lane->shared->done, memory_order_relaxed), taken = lane->head - done;
    return (uint32_t)(taken <= lane->mask + 1 ? taken : lane->head - lane->done_seen);
}

/* Facts about an operation, noted just before it is published, with the locks held. */
typedef struct hdi_submitted {
    int64_t time;
    uint64_t before, position; /* end of the operation before it, and its own end */
    uint32_t ring;             /* slots in use */
    uint32_t waits;            /* WAIT records */
} hdi_submitted;

static inline void hdi_submitted_note(const hd_lane *lane, int64_t time, hdi_submitted *out)
{
    *out = (hdi_submitted){.time = time,
                           .before = atomic_load_explicit(&lane->submitted, memory_order_relaxed),
                           .position = lane->head,
                           .ring = hdi_lane_taken(lane),
                           .waits = lane->waits.recorded_of == lane->head ? lane->waits.recorded : 0};
}

/* Records a published operation, without locks, so that other threads do not wait. `command`: a
 * copy, not the one in the ring. */
void hdi_buffer_record_submission(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                                  const hdi_submitted *submitted);
/* Records `lane->waits`. Call this before the uses are noted. `position`: the position at which the
 * operation will end. */
void hdi_buffer_record_waits(hd_lane *lane, const hdi_use *uses, size_t n_uses, uint64_t position);

/* Records an allocation that began at `began`; 0: the memory came from the thread's magazines. */
void hdi_buffer_record_allocation(struct hd_buffer *b, size_t bytes, int64_t began);
/* Records an allocation that failed. */
void hdi_buffer_record_refusal(hdi_device *device, size_t bytes, int64_t began);
void hdi_buffer_record_free(struct hd_buffer *b);
/* Records a new label. The list's lock is held. */
void hdi_buffer_record_label(struct hd_buffer *b);
/* Records that device memory was taken, with `mapped` bytes mapped before. If the driver had to map
 * memory, the call counts as a pause. */
void hdi_buffer_record_mapping(hdi_device *device, size_t bytes, int64_t began, size_t mapped);
/* Records a call that moved bytes, or submitted such work. `way`: HDI_RECORD_WAY_*. A side that is
 * NULL is the program's memory. */
void hdi_buffer_record_transfer(uint8_t way, const struct hd_buffer *src, const struct hd_buffer *dst, uint64_t bytes,
                                int64_t began, hd_ticket ticket);
/* Records a call that copied from or to the program's memory, if its `status` is a success. `way`:
 * HDI_RECORD_WAY_WRITE or READ. `began`: hdi_record_began at its start. */
static inline void hdi_buffer_record_own_transfer(hd_status status, uint8_t way, const struct hd_buffer *b,
                                                  uint64_t bytes, int64_t began)
{
    if (__builtin_expect(began != 0, 0) && !status) {
        bool reads = way == HDI_RECORD_WAY_READ;
        hdi_buffer_record_transfer(way, reads ? b : NULL, reads ? NULL : b, bytes, began, (hd_ticket){NULL, 0});
    }
}

/* The number of a buffer in a trace. */
static inline uint64_t hdi_buffer_trace_number(const struct hd_buffer *b)
{
    return (uint64_t)(uintptr_t)b;
}

#endif
