/* unified.c - unified buffers, which the CPU and the GPU use: device memory and a mirror in pinned
 * memory. See heddle/unified.h.
 *
 * The use record of a unified buffer covers its device memory. The mirror is a pinned buffer with a
 * use record of its own, for copies between both memories and for accesses by the host. A chunk is
 * a fixed part of the buffer. For each chunk, the mirror records which side (host or device) is
 * newer. Heddle submits a copy to the device in a copy lane, just before the operation that needs
 * the copy. Heddle submits a copy to the host when the host requests the bytes. After a failed
 * copy, the source of the copy is still the newer side.
 *
 * Threads: any.
 * Locks: one mutex per mirror, held while copies and an operation of the buffer are submitted, but
 * not during a wait for them. A thread takes several mutexes by rising address, and order locks
 * under them.
 * Blocking: an access by the host waits until the copies to the host are done. Operations wait as
 * hdi_submit does.
 * Always: a chunk is newer on at most one side. `readable` and `writable` of the buffer (buffer.h)
 * contain only chunks whose bytes are on the host, without pending work. `writable` contains only
 * chunks that count as newer on the host.
 */
#include <heddle/unified.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/error.h"
#include "base/handle.h"
#include "base/lock.h"
#include "base/text.h"
#include "buffer/buffer.h"
#include "buffer/kind.h"
#include "engine/engine.h"
#include "transfer/route.h"

#define CHUNK_SHIFT_LEAST 16
#define CHUNKS_MOST 64

static const hdi_buffer_ops unified_ops; /* below */

struct hdi_mirror {
    hdi_mutex lock; /* protects all members below, except `pinned`, which is constant */
    struct hd_buffer *pinned;
    /* the chunks that are newer on one side; no chunk is in both sets */
    uint64_t host_newer, device_newer;
    /* those chunks of host_newer for which a copy to the device was submitted; once the copy
     * succeeds, both sides are equal */
    uint64_t pushed;
    uint64_t pulled;  /* those chunks of device_newer for which a copy to the host was submitted */
    uint64_t changes; /* counts how often operations or the host changed these four sets */
    uint32_t maps;    /* mappings under way */
    bool writing;     /* some mapping is for writing; stays set until all mappings end */
};

static struct hdi_mirror *unified_mirror_of(const struct hd_buffer *b)
{
    return b->of_kind;
}

/* ---- chunks ---- */

static uint64_t unified_bits(unsigned first, unsigned last)
{
    return (UINT64_MAX >> (63 - last)) & (UINT64_MAX << first);
}

/* The chunks that overlap [low, high), which is not empty. */
static uint64_t unified_chunks_of(const struct hd_buffer *b, uint64_t low, uint64_t high)
{
    return unified_bits((unsigned)(low >> b->chunk_shift), (unsigned)((high - 1) >> b->chunk_shift));
}

/* The chunks that lie inside [low, high). */
static uint64_t unified_whole_chunks(const struct hd_buffer *b, uint64_t low, uint64_t high)
{
    uint64_t first = (low + ((uint64_t)1 << b->chunk_shift) - 1) >> b->chunk_shift;
    uint64_t end = high == b->bytes ? ((high - 1) >> b->chunk_shift) + 1 : high >> b->chunk_shift;
    return first < end ? unified_bits((unsigned)first, (unsigned)(end - 1)) : 0;
}

/* Finds the first run of neighbouring chunks in `chunks`, which is not 0. Sets *low and *high to
 * the bytes of this run, and returns its chunks. */
static uint64_t unified_first_run(const struct hd_buffer *b, uint64_t chunks, uint64_t *low, uint64_t *high)
{
    unsigned first = (unsigned)__builtin_ctzll(chunks);
    uint64_t behind = ~(chunks >> first); /* the chunks of the run are zeros at the low end */
    unsigned count = behind == 0 ? 64 : (unsigned)__builtin_ctzll(behind);
    *low = (uint64_t)first << b->chunk_shift;
    uint64_t end = (uint64_t)(first + count) << b->chunk_shift;
    *high = end < b->bytes ? end : b->bytes;
    return unified_bits(first, first + count - 1);
}

/* Returns those of `chunks` that contain bytes whose last writer failed. *settled: those of the
 * other chunks that contain no bytes with an unfinished writer. */
static uint64_t unified_failed_of(const struct hd_buffer *b, struct hd_buffer *record, uint64_t chunks,
                                  uint64_t *settled)
{
    uint64_t failed = 0;
    *settled = 0;
    for (uint64_t left = chunks; left != 0; left &= left - 1) {
        uint64_t low, high, one = left & -left;
        unified_first_run(b, one, &low, &high);
        unsigned state = hdi_buffer_state(record, low, high);
        failed |= state & HDI_USES_FAILED ? one : 0;
        *settled |= state & (HDI_USES_FAILED | HDI_USES_WRITTEN) ? 0 : one;
    }
    return failed;
}

/* Like unified_first_run, but returns only as many chunks as one copy may contain, and at least
 * one. If one copy contained chunks of several unfinished writers, the failure of one writer would
 * fail the copy of all chunks. */
static uint64_t unified_first_copy(const struct hd_buffer *b, struct hd_buffer *record, uint64_t chunks, uint64_t *low,
                                   uint64_t *high)
{
    uint64_t run = unified_first_run(b, chunks, low, high), size = (uint64_t)1 << b->chunk_shift;
    uint64_t end = hdi_buffer_alike_until(record, *low, *high);
    if (end < *high) {
        end = end >> b->chunk_shift << b->chunk_shift;
        *high = end > *low ? end : *high - *low < size ? *high : *low + size;
        run = unified_chunks_of(b, *low, *high);
    }
    return run;
}

static void unified_end_access(struct hd_buffer *b, uint64_t chunks, bool reading_too)
{
    atomic_fetch_and_explicit(&b->writable, ~chunks, memory_order_relaxed);
    if (reading_too) {
        atomic_fetch_and_explicit(&b->readable, ~chunks, memory_order_relaxed);
    }
}

/* ---- copies: the mirror's lock held ---- */

/* Copies the run [low, high) from one side to the other. `losses`: the buffer's loss count when its
 * handle was checked. The copy does not use a lane of the program. Such a lane may stop or fail,
 * and other lanes may need the bytes. */
static hd_status unified_copy_run(struct hd_buffer *b, bool to_device, uint64_t losses, uint64_t low, uint64_t high)
{
    struct hd_buffer *pinned = unified_mirror_of(b)->pinned;
    const hdi_route route = hdi_route_plan(
        &(hdi_route_facts){.src = to_device ? -1 : b->owner, .dst = to_device ? b->owner : -1, .bytes = high - low});
    hd_lane *lane = hdi_copy_lane(b->runtime->devices[b->owner], to_device ? HDI_WAY_IN : HDI_WAY_OUT, route.lanes);
    const hdi_use uses[2] = {
        {.buffer = b, .losses = losses, .low = low, .high = high, .read = !to_device, .write = to_device},
        {.buffer = pinned, .low = low, .high = high, .read = to_device, .write = !to_device},
    };
    hdi_command command = {.op = HDI_OP_COPY, .kind = to_device ? HDI_COPY_TO_DEVICE : HDI_COPY_TO_HOST, .slots = 1};
    command.copy.src = (to_device ? pinned->address : b->address) + low;
    command.copy.dst = (to_device ? b->address : pinned->address) + low;
    command.copy.bytes = high - low;
    return hdi_submit_as_is(lane, uses, 2, &command, (hdi_linked){.ours = 0}, NULL);
}

/* Submits copies of `chunks`, which are newer on the host. Skips chunks whose copy is under way or
 * succeeded. */
static hd_status unified_push(struct hd_buffer *b, uint64_t losses, uint64_t chunks)
{
    struct hdi_mirror *m = unified_mirror_of(b);
    uint64_t settled, before = chunks & m->pushed;
    m->pushed &= ~unified_failed_of(b, b, before, &settled);
    m->pushed &= ~settled;
    m->host_newer &= ~settled;
    chunks &= m->host_newer & ~m->pushed;
    hd_status status = HD_OK;
    while (chunks != 0 && !status) {
        uint64_t low, high, run = unified_first_copy(b, m->pinned, chunks, &low, &high);
        status = unified_copy_run(b, true, losses, low, high);
        if (!status) {
            m->changes++;
            m->pushed |= run;
            unified_end_access(b, run, false);
        }
        chunks &= ~run;
    }
    return status;
}

/* Submits copies of `chunks`, which are newer on the device. Skips chunks whose copy is under way
 * or done. */
static hd_status unified_pull(struct hd_buffer *b, uint64_t chunks)
{
    struct hdi_mirror *m = unified_mirror_of(b);
    chunks &= ~m->pulled;
    uint64_t losses = hdi_buffer_losses(b);
    if (chunks != 0 && losses == HDI_LOST) {
        return hdi_loss_fail(b->runtime, b->owner, "the buffer's content was lost (hd_free it)");
    }
    hd_status status = HD_OK;
    while (chunks != 0 && !status) {
        uint64_t low, high, run = unified_first_copy(b, b, chunks, &low, &high);
        status = unified_copy_run(b, false, losses, low, high);
        m->changes++;
        m->pulled |= status ? 0 : run;
        chunks &= ~run;
    }
    return status;
}

/* ---- operations ---- */

/* The mirrors of an operation's uses; NULL for a use without a mirror. While this structure exists,
 * the buffers of these mirrors are in holds (hold.c). */
typedef struct mirrors {
    struct hdi_mirror *of[HDI_USES_OF_ONE];
} mirrors;

static void unified_let_mirrors_go(const mirrors *all, const hdi_use *uses, size_t n_uses)
{
    for (size_t i = 0; i < n_uses; i++) {
        if (all->of[i]) {
            hdi_hold_end(uses[i].buffer);
        }
    }
}

/* Puts the buffers into holds, so that a buffer keeps its mirror even if another thread frees
 * it. */
static hd_status unified_hold_mirrors(mirrors *all, const hdi_use *uses, size_t n_uses)
{
    for (size_t i = 0; i < n_uses; i++) {
        struct hd_buffer *b = uses[i].buffer;
        all->of[i] = NULL;
        if (b->kind != &unified_ops) {
            continue; /* if another buffer takes over the structure, the submission notices this */
        }
        if (!hdi_hold_begin(b, uses[i].word)) {
            unified_let_mirrors_go(all, uses, i);
            return hdi_fail(HD_ERROR_HANDLE, "a buffer was freed meanwhile");
        }
        all->of[i] = unified_mirror_of(b);
    }
    return HD_OK;
}

/* The mirror with the lowest address above `after`. NULL: none. */
static struct hdi_mirror *unified_next_mirror(const mirrors *all, size_t n_uses, const struct hdi_mirror *after)
{
    struct hdi_mirror *next = NULL;
    for (size_t i = 0; i < n_uses; i++) {
        struct hdi_mirror *m = all->of[i];
        if ((uintptr_t)m > (uintptr_t)after && (!next || (uintptr_t)m < (uintptr_t)next)) {
            next = m;
        }
    }
    return next;
}

static hd_status unified_check_maps(const hdi_use *use)
{
    const struct hdi_mirror *m = unified_mirror_of(use->buffer);
    if (m->maps && (m->writing || use->write)) {
        return hdi_fail(HD_ERROR_ACCESS, "a unified buffer of %s is mapped for %s: hd_unmap first",
                        HDI_BYTES(use->buffer->bytes), m->writing ? "writing" : "reading");
    }
    return HD_OK;
}

/* Submits copies of the bytes that an operation needs on the device, and that are newer on the
 * host. */
static hd_status unified_push_for(const hdi_use *use)
{
    struct hd_buffer *b = use->buffer;
    uint64_t chunks = unified_chunks_of(b, use->low, use->high);
    /* If an operation writes only some bytes of a chunk, the whole chunk counts as newer on the
     * device. So the device must first get the other bytes of the chunk. */
    if (!use->read) {
        chunks &= ~unified_whole_chunks(b, use->low, use->high);
    }
    chunks &= unified_mirror_of(b)->host_newer;
    return chunks != 0 ? unified_push(b, use->losses, chunks) : HD_OK;
}

/* For an operation that uses the host's side: submits copies of those bytes that the operation
 * needs, and that are newer on the device. *use becomes a use of the pinned memory. */
static hd_status unified_pull_for(hdi_use *use)
{
    struct hd_buffer *b = use->buffer;
    struct hdi_mirror *m = unified_mirror_of(b);
    uint64_t settled, chunks = unified_chunks_of(b, use->low, use->high);
    if (use->losses == HDI_LOST || hdi_buffer_losses(b) != use->losses) {
        return hdi_loss_fail(b->runtime, b->owner, "the buffer's content was lost (hd_free it)");
    }
    if (!use->read) {
        chunks &= ~unified_whole_chunks(b, use->low, use->high);
    }
    chunks &= m->device_newer;
    m->pulled &= ~unified_failed_of(b, m->pinned, chunks & m->pulled, &settled);
    hd_status status = unified_pull(b, chunks);
    bool whole = use->low == 0 && use->high == m->pinned->bytes;
    *use = (hdi_use){.buffer = m->pinned,
                     .losses = hdi_buffer_losses(m->pinned),
                     .low = use->low,
                     .high = use->high,
                     .read = use->read,
                     .write = use->write,
                     .whole = whole};
    return status;
}

/* Notes that an operation on the host's side was submitted. */
static void unified_note_host(const hdi_use *use)
{
    struct hd_buffer *b = use->buffer;
    struct hdi_mirror *m = unified_mirror_of(b);
    uint64_t chunks = unified_chunks_of(b, use->low, use->high);
    if (use->write) {
        m->host_newer |= chunks;
        m->pushed &= ~chunks;
        m->device_newer &= ~chunks;
        m->pulled &= ~chunks;
    }
    m->changes++;
    unified_end_access(b, chunks, use->write);
}

static void unified_note_written(const hdi_use *use)
{
    struct hd_buffer *b = use->buffer;
    struct hdi_mirror *m = unified_mirror_of(b);
    uint64_t chunks = unified_chunks_of(b, use->low, use->high);
    m->device_newer |= chunks;
    m->pulled &= ~chunks;
    m->host_newer &= ~chunks;
    m->pushed &= ~chunks;
    m->changes++;
    unified_end_access(b, chunks, true);
}

/* Notes that an operation on the buffer was submitted. */
static void unified_note(const hdi_use *use)
{
    if (use->host) {
        unified_note_host(use);
    } else if (use->write) {
        unified_note_written(use);
    }
}

/* Notes an operation that may be withdrawn. The buffer stays in its hold, since a withdrawal needs
 * it. */
static void unified_note_to_undo(hdi_undo *undo, const hdi_use *use)
{
    struct hdi_mirror *m = unified_mirror_of(use->buffer);
    hdi_undo_kind *own = &undo->kinds[undo->n_kinds++];
    *own = (hdi_undo_kind){.buffer = use->buffer,
                           .chunks = use->write ? unified_chunks_of(use->buffer, use->low, use->high) : 0,
                           .was = {m->host_newer, m->pushed, m->device_newer, m->pulled},
                           .host = use->host};
    unified_note(use);
    own->changes = use->host || use->write ? m->changes : 0;
}

static void unified_put_back(const hdi_undo_kind *was)
{
    struct hdi_mirror *m = unified_mirror_of(was->buffer);
    hdi_mutex_lock(&m->lock);
    if (was->changes && m->changes == was->changes) {
        uint64_t kept = ~was->chunks;
        /* restores the count, so that the operation's other uses of the buffer find it unchanged */
        m->changes--;
        m->host_newer = (m->host_newer & kept) | (was->was[0] & was->chunks);
        m->pushed = (m->pushed & kept) | (was->was[1] & was->chunks);
        m->device_newer = (m->device_newer & kept) | (was->was[2] & was->chunks);
        m->pulled = (m->pulled & kept) | (was->was[3] & was->chunks);
    }
    hdi_mutex_unlock(&m->lock);
}

/* Submits an operation whose buffers include unified ones. If the call fails, it may have submitted
 * some copies, but these change no content. Errors: as hdi_submit, ACCESS (mapped), and those of
 * the copies. */
static hd_status unified_submit(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                                hdi_linked link, hd_ticket *out)
{
    mirrors all;
    hd_status status = unified_hold_mirrors(&all, uses, n_uses);
    if (status) {
        return status;
    }
    for (struct hdi_mirror *m = NULL; (m = unified_next_mirror(&all, n_uses, m)) != NULL;) {
        hdi_mutex_lock(&m->lock);
    }
    for (size_t i = 0; i < n_uses && !status; i++) {
        status = all.of[i] ? unified_check_maps(&uses[i]) : HD_OK;
    }
    hdi_use changed[HDI_USES_OF_ONE];
    bool of_host = false;
    for (size_t i = 0; i < n_uses; i++) {
        of_host |= all.of[i] && uses[i].host;
    }
    const hdi_use *submitted = of_host ? memcpy(changed, uses, n_uses * sizeof *uses) : uses;
    for (size_t i = 0; i < n_uses && !status; i++) {
        if (all.of[i]) {
            status = uses[i].host ? unified_pull_for(&changed[i]) : unified_push_for(&uses[i]);
        }
    }
    hdi_undo *undo = hdi_linked_undo(&link);
    if (!status && undo && !(undo->kinds = malloc(n_uses * sizeof *undo->kinds))) {
        status = hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for a copy of the use records");
    }
    if (!status) {
        status = hdi_submit_as_is(lane, submitted, n_uses, command, link, out);
    }
    for (size_t i = 0; i < n_uses && !status; i++) {
        if (all.of[i] && undo) {
            unified_note_to_undo(undo, &uses[i]);
        } else if (all.of[i]) {
            unified_note(&uses[i]);
        }
    }
    for (struct hdi_mirror *m = NULL; (m = unified_next_mirror(&all, n_uses, m)) != NULL;) {
        hdi_mutex_unlock(&m->lock);
    }
    if (status || !undo) {
        unified_let_mirrors_go(&all, uses, n_uses);
    }
    return status;
}

/* ---- the host ---- */

/* Takes the mirror's lock. There is a deadline, since a thread may hold the lock while its
 * submission waits for room in a lane. */
static hd_status unified_lock_until(struct hdi_mirror *m, int64_t deadline)
{
    if (hdi_mutex_try(&m->lock)) {
        return HD_OK;
    }
    return hdi_mutex_lock_until(&m->lock, deadline)
               ? HD_OK
               : hdi_fail(HD_ERROR_TIMEOUT, "an operation of another thread that uses the buffer waits for room "
                                            "in its lane (option transfer_timeout)");
}

/* If the chunks of the bytes [low, high) are up to date on the host, notes how the host may access
 * them. The lock is held. */
static bool unified_note_here(struct hd_buffer *b, uint64_t chunks, uint64_t low, uint64_t high, bool write)
{
    struct hdi_mirror *m = unified_mirror_of(b);
    unsigned busy = HDI_USES_WRITTEN | HDI_USES_FAILED | (write ? HDI_USES_READ : 0);
    if ((chunks & m->device_newer & ~m->pulled) || (hdi_buffer_state(m->pinned, low, high) & busy)) {
        return false; /* another operation used the chunks before this thread took the lock */
    }
    m->device_newer &= ~chunks;
    m->pulled &= ~chunks;
    /* pairs with the acquire loads of hd_element, so that the results of the copies are visible */
    atomic_fetch_or_explicit(&b->readable, chunks, memory_order_release);
    if (write) {
        m->host_newer |= chunks;
        m->pushed &= ~chunks;
        m->changes++;
        atomic_fetch_or_explicit(&b->writable, chunks, memory_order_release);
    }
    return true;
}

/* Brings the bytes up to date on the host. The buffer is in a hold. Errors: ACCESS, FAILED,
 * DEVICE_LOST, TIMEOUT, and those of hdi_submit. */
static hd_status unified_bring_held(struct hd_buffer *b, uint64_t low, uint64_t high, hd_access access,
                                    int64_t deadline)
{
    struct hdi_mirror *m = unified_mirror_of(b);
    uint64_t chunks = unified_chunks_of(b, low, high);
    bool write = (access & HD_WRITE) != 0;
    uint64_t from = low >> b->chunk_shift << b->chunk_shift;
    uint64_t to = (((high - 1) >> b->chunk_shift) + 1) << b->chunk_shift;
    to = to < b->bytes ? to : b->bytes;
    for (;;) {
        hd_status status = unified_lock_until(m, deadline);
        if (status) {
            return status;
        }
        status = unified_pull(b, chunks & m->device_newer);
        bool here = !status && unified_note_here(b, chunks, from, to, write);
        hdi_mutex_unlock(&m->lock);
        if (status || here) {
            return status;
        }
        /* Includes HD_READ even if only HD_WRITE is requested, since the other bytes of each chunk
         * must be good. */
        status = hdi_buffer_settle(m->pinned, NULL, from, to, HD_READ | (unsigned)access, deadline);
        if (status) {
            if (status != HD_ERROR_TIMEOUT) { /* the next request tries again */
                uint64_t settled;
                hdi_mutex_lock(&m->lock);
                m->pulled &= ~unified_failed_of(b, m->pinned, chunks & m->pulled, &settled);
                hdi_mutex_unlock(&m->lock);
            }
            return status;
        }
    }
}

static hd_status unified_bring(struct hd_buffer *b, const hd_buffer *handle, uint64_t low, uint64_t high,
                               hd_access access, int64_t deadline)
{
    if (!hdi_hold_begin(b, hdi_self_word(handle))) {
        return hdi_buffer_refused(handle);
    }
    hd_status status = unified_bring_held(b, low, high, access, deadline);
    hdi_hold_end(b);
    return status;
}

/* Brings all bytes of the buffer up to date on the host. */
static hd_status unified_map(struct hd_buffer *b, hd_access access, int64_t deadline)
{
    struct hdi_mirror *m = unified_mirror_of(b);
    hd_status status = unified_lock_until(m, deadline);
    if (status) {
        return status;
    }
    /* The mapping is noted before the copies, so that operations are refused from now on. */
    m->writing |= (access & HD_WRITE) != 0;
    m->maps++;
    hdi_mutex_unlock(&m->lock);
    status = unified_bring_held(b, 0, b->bytes, access, deadline);
    if (status) {
        hdi_mutex_lock(&m->lock);
        m->maps--;
        /* keep `writing` while another mapping exists, since that mapping may be for writing */
        m->writing &= m->maps != 0;
        hdi_mutex_unlock(&m->lock);
    }
    return status;
}

static bool unified_unmap(struct hd_buffer *b)
{
    struct hdi_mirror *m = unified_mirror_of(b);
    hdi_mutex_lock(&m->lock);
    bool mapped = m->maps != 0;
    m->maps -= mapped;
    m->writing &= m->maps != 0;
    hdi_mutex_unlock(&m->lock);
    return mapped;
}

/* ---- the buffer ---- */

static hd_status unified_create(struct hd_buffer *b)
{
    struct hdi_mirror *m = calloc(1, sizeof *m);
    if (!m) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory");
    }
    hd_status status = hdi_buffer_make_host(b->runtime, b->bytes, true, &m->pinned);
    if (status) {
        free(m);
        return status;
    }
    hdi_mutex_init(&m->lock, HDI_RANK_MIRROR);
    unsigned shift = CHUNK_SHIFT_LEAST;
    while ((b->bytes - 1) >> shift >= CHUNKS_MOST) {
        shift++;
    }
    HDI_HANDOVER_BEGIN();
    b->chunk_shift = (uint8_t)shift;
    b->host = m->pinned->host;
    HDI_HANDOVER_END();
    hdi_buffer_set_kind(b, &unified_ops, m);
    return HD_OK;
}

static void unified_forget(struct hd_buffer *b)
{
    struct hdi_mirror *m = unified_mirror_of(b);
    hdi_mutex_destroy(&m->lock);
    free(m);
    HDI_HANDOVER_BEGIN();
    b->of_kind = NULL;
    HDI_HANDOVER_END();
}

static void unified_release(struct hd_buffer *b)
{
    struct hd_buffer *pinned = unified_mirror_of(b)->pinned;
    unified_forget(b);
    hdi_free(hdi_buffer_handle(pinned));
}

static const hdi_buffer_ops unified_ops = {
    .unified = true,
    .create = unified_create,
    .release = unified_release,
    .forget = unified_forget,
    .submit = unified_submit,
    .put_back = unified_put_back,
    .map = unified_map,
    .unmap = unified_unmap,
    .bring = unified_bring,
};

hd_status hd_alloc_unified(hd_lane *handle, size_t bytes, hd_buffer **out)
{
    HDI_INSIDE_BRIEFLY(hdi_lane_runtime(handle));
    return hdi_alloc_of_kind(handle, bytes, &unified_ops, NULL, __builtin_return_address(0), out);
}
