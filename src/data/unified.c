/* unified.c - buffers that the CPU and the GPU both use. What it does, threads and locks: see unified.h. */
#include "data/unified.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include "base/amount.h"
#include "base/error.h"
#include "base/handover.h"
#include "base/mutex.h"
#include "data/hold.h"
#include "engine/engine.h"

#define CHUNK_SHIFT_LEAST 16
#define CHUNKS_MOST 64

struct hdi_mirror {
    hdi_mutex lock; /* covers all that follows; `pinned` is constant */
    struct hd_buffer *pinned;
    uint64_t host_newer, device_newer; /* chunks; none in both */
    uint64_t pushed; /* of host_newer: a copy to the device was submitted, and is good unless it fails */
    uint64_t pulled; /* of device_newer: likewise to the host */
    uint32_t maps;   /* begun and not ended */
    bool writing;    /* some of them are for writing; until all are ended */
};

/* ---- chunks ---- */

static uint64_t bits(unsigned first, unsigned last)
{
    return (UINT64_MAX >> (63 - last)) & (UINT64_MAX << first);
}

/* Those that [low, high), which is not empty, has bytes of. */
static uint64_t chunks_of(const struct hd_buffer *b, uint64_t low, uint64_t high)
{
    return bits((unsigned)(low >> b->chunk_shift), (unsigned)((high - 1) >> b->chunk_shift));
}

/* Those that it has all bytes of. */
static uint64_t whole_chunks(const struct hd_buffer *b, uint64_t low, uint64_t high)
{
    uint64_t first = (low + ((uint64_t)1 << b->chunk_shift) - 1) >> b->chunk_shift;
    uint64_t end = high == b->bytes ? ((high - 1) >> b->chunk_shift) + 1 : high >> b->chunk_shift;
    return first < end ? bits((unsigned)first, (unsigned)(end - 1)) : 0;
}

/* The bytes of the first run of neighbours among `chunks`, which has some; returns the run. */
static uint64_t first_run(const struct hd_buffer *b, uint64_t chunks, uint64_t *low, uint64_t *high)
{
    unsigned first = (unsigned)__builtin_ctzll(chunks);
    uint64_t behind = ~(chunks >> first); /* 0 in the lowest bits: the run */
    unsigned count = behind == 0 ? 64 : (unsigned)__builtin_ctzll(behind);
    *low = (uint64_t)first << b->chunk_shift;
    uint64_t end = (uint64_t)(first + count) << b->chunk_shift;
    *high = end < b->bytes ? end : b->bytes;
    return bits(first, first + count - 1);
}

/* Of `chunks`, those with bytes whose last writer has failed, and of the others those that no writer is at any more. */
static uint64_t failed_of(const struct hd_buffer *b, struct hd_buffer *record, uint64_t chunks, uint64_t *settled)
{
    uint64_t failed = 0;
    *settled = 0;
    for (uint64_t left = chunks; left != 0; left &= left - 1) {
        uint64_t low, high, one = left & -left;
        first_run(b, one, &low, &high);
        unsigned state = hdi_buffer_state(record, low, high);
        failed |= state & HDI_USES_FAILED ? one : 0;
        *settled |= state & (HDI_USES_FAILED | HDI_USES_WRITTEN) ? 0 : one;
    }
    return failed;
}

static void end_access(struct hd_buffer *b, uint64_t chunks, bool reading_too)
{
    atomic_fetch_and_explicit(&b->writable, ~chunks, memory_order_relaxed);
    if (reading_too) {
        atomic_fetch_and_explicit(&b->readable, ~chunks, memory_order_relaxed);
    }
}

/* ---- copies: the mirror's lock held ---- */

/* Copies the run [low, high) from one side to the other. `losses`: of the buffer, when it was found good. */
static hd_status copy_run(struct hd_buffer *b, bool to_device, hd_lane *lane, uint64_t losses, uint64_t low,
                          uint64_t high, const char *who)
{
    struct hd_buffer *pinned = b->mirror->pinned;
    const hdi_use uses[2] = {
        {.buffer = b, .losses = losses, .low = low, .high = high, .read = !to_device, .write = to_device},
        {.buffer = pinned, .low = low, .high = high, .read = to_device, .write = !to_device},
    };
    hdi_command command = {.op = HDI_OP_COPY, .kind = to_device ? HDI_COPY_TO_DEVICE : HDI_COPY_TO_HOST, .slots = 1};
    command.copy.src = (to_device ? pinned->address : b->address) + low;
    command.copy.dst = (to_device ? b->address : pinned->address) + low;
    command.copy.bytes = high - low;
    return hdi_submit_as_is(lane, uses, 2, &command, (hdi_linked){.ours = 0}, who, NULL);
}

/* Submits copies of `chunks`, which are newer on the host, as far as none is under way, or was and has not failed. */
static hd_status push(struct hd_buffer *b, hd_lane *lane, uint64_t losses, uint64_t chunks, const char *who)
{
    struct hdi_mirror *m = b->mirror;
    uint64_t settled, before = chunks & m->pushed;
    m->pushed &= ~failed_of(b, b, before, &settled);
    m->pushed &= ~settled;
    m->host_newer &= ~settled;
    chunks &= m->host_newer & ~m->pushed;
    /* In the lane of the operation order costs nothing; another device had better not write here. */
    hd_lane *in = lane->device->index == b->owner ? lane : b->runtime->devices[b->owner]->lane_in;
    hd_status status = HD_OK;
    while (chunks != 0 && !status) {
        uint64_t low, high, run = first_run(b, chunks, &low, &high);
        status = copy_run(b, true, in, losses, low, high, who);
        if (!status) {
            m->pushed |= run;
            end_access(b, run, false);
        }
        chunks &= ~run;
    }
    return status;
}

/* Submits copies of `chunks`, which are newer on the device, as far as none is under way or done. */
static hd_status pull(struct hd_buffer *b, uint64_t chunks, const char *who)
{
    struct hdi_mirror *m = b->mirror;
    chunks &= ~m->pulled;
    hd_lane *lane = b->runtime->devices[b->owner]->lane_out;
    uint64_t losses = hdi_buffer_losses(b);
    if (chunks != 0 && losses == HDI_LOST) {
        return hdi_loss_fail(b->runtime, b->owner, who, "the buffer's content was lost (hd_free it)");
    }
    hd_status status = HD_OK;
    while (chunks != 0 && !status) {
        uint64_t low, high, run = first_run(b, chunks, &low, &high);
        status = copy_run(b, false, lane, losses, low, high, who);
        m->pulled |= status ? 0 : run;
        chunks &= ~run;
    }
    return status;
}

/* ---- operations ---- */

/* The mirrors of an operation's uses, of which the buffers are held meanwhile (hold.h); NULL where a use has none. */
typedef struct mirrors {
    struct hdi_mirror *of[HDI_USES_OF_ONE];
} mirrors;

static void let_mirrors_go(const mirrors *all, const hdi_use *uses, size_t n_uses)
{
    for (size_t i = 0; i < n_uses; i++) {
        if (all->of[i]) {
            hdi_hold_end(uses[i].buffer);
        }
    }
}

/* What is freed from now on keeps its mirror. */
static hd_status hold_mirrors(mirrors *all, const hdi_use *uses, size_t n_uses, const char *who)
{
    for (size_t i = 0; i < n_uses; i++) {
        struct hd_buffer *b = uses[i].buffer;
        all->of[i] = NULL;
        if (!(b->special & HDI_BUFFER_UNIFIED)) {
            continue; /* another one's structure, if it becomes one: submitting sees that */
        }
        if (!hdi_hold_begin(b, uses[i].word)) {
            let_mirrors_go(all, uses, i);
            return hdi_fail(HD_ERROR_HANDLE, "%s: a buffer was freed meanwhile", who);
        }
        all->of[i] = b->mirror;
    }
    return HD_OK;
}

/* The mirror that has the lowest address behind `after`; NULL: there is none. */
static struct hdi_mirror *next_mirror(const mirrors *all, size_t n_uses, const struct hdi_mirror *after)
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

static hd_status check_maps(const hdi_use *use, const char *who)
{
    const struct hdi_mirror *m = use->buffer->mirror;
    if (m->maps && (m->writing || use->write)) {
        return hdi_fail(HD_ERROR_ACCESS, "%s: a unified buffer of %s is mapped for %s: hd_unmap first", who,
                        HDI_BYTES(use->buffer->bytes), m->writing ? "writing" : "reading");
    }
    return HD_OK;
}

/* What an operation needs on the device, and is not there. */
static hd_status push_for(hd_lane *lane, const hdi_use *use, const char *who)
{
    struct hd_buffer *b = use->buffer;
    uint64_t chunks = chunks_of(b, use->low, use->high);
    if (!use->read) { /* the rest of a chunk has to be there when it counts as newer there */
        chunks &= ~whole_chunks(b, use->low, use->high);
    }
    chunks &= b->mirror->host_newer;
    return chunks != 0 ? push(b, lane, use->losses, chunks, who) : HD_OK;
}

static void note_written(const hdi_use *use)
{
    struct hd_buffer *b = use->buffer;
    struct hdi_mirror *m = b->mirror;
    uint64_t chunks = chunks_of(b, use->low, use->high);
    m->device_newer |= chunks;
    m->pulled &= ~chunks;
    m->host_newer &= ~chunks;
    m->pushed &= ~chunks;
    end_access(b, chunks, true);
}

hd_status hdi_unified_submit(hd_lane *lane, const hdi_use *uses, size_t n_uses, const hdi_command *command,
                             hdi_linked link, const char *who, hd_ticket *out)
{
    mirrors all;
    hd_status status = hold_mirrors(&all, uses, n_uses, who);
    if (status) {
        return status;
    }
    for (struct hdi_mirror *m = NULL; (m = next_mirror(&all, n_uses, m)) != NULL;) {
        hdi_mutex_lock(&m->lock);
    }
    for (size_t i = 0; i < n_uses && !status; i++) {
        status = all.of[i] ? check_maps(&uses[i], who) : HD_OK;
    }
    for (size_t i = 0; i < n_uses && !status; i++) {
        status = all.of[i] ? push_for(lane, &uses[i], who) : HD_OK;
    }
    if (!status) {
        status = hdi_submit_as_is(lane, uses, n_uses, command, link, who, out);
    }
    for (size_t i = 0; i < n_uses && !status; i++) {
        if (all.of[i] && uses[i].write) {
            note_written(&uses[i]);
        }
    }
    for (struct hdi_mirror *m = NULL; (m = next_mirror(&all, n_uses, m)) != NULL;) {
        hdi_mutex_unlock(&m->lock);
    }
    let_mirrors_go(&all, uses, n_uses);
    return status;
}

/* ---- the host ---- */

/* A submission that waits for room in its lane holds the lock. */
static hd_status lock_until(struct hdi_mirror *m, int64_t deadline, const char *who)
{
    if (hdi_mutex_try(&m->lock)) {
        return HD_OK;
    }
    return hdi_mutex_lock_until(&m->lock, deadline)
               ? HD_OK
               : hdi_fail(HD_ERROR_TIMEOUT,
                          "%s: an operation of another thread that uses the buffer waits for room "
                          "in its lane (option transfer_timeout)",
                          who);
}

/* If the chunks, bytes [low, high), are here, notes what the host may do with them. Lock held. */
static bool note_here(struct hd_buffer *b, uint64_t chunks, uint64_t low, uint64_t high, bool write)
{
    struct hdi_mirror *m = b->mirror;
    unsigned busy = HDI_USES_WRITTEN | HDI_USES_FAILED | (write ? HDI_USES_READ : 0);
    if ((chunks & m->device_newer & ~m->pulled) || (hdi_buffer_state(m->pinned, low, high) & busy)) {
        return false; /* somebody was faster */
    }
    m->device_newer &= ~chunks;
    m->pulled &= ~chunks;
    /* pairs with the acquire loads of hd_element: what the copies wrote is seen */
    atomic_fetch_or_explicit(&b->readable, chunks, memory_order_release);
    if (write) {
        m->host_newer |= chunks;
        m->pushed &= ~chunks;
        atomic_fetch_or_explicit(&b->writable, chunks, memory_order_release);
    }
    return true;
}

hd_status hdi_unified_bring(struct hd_buffer *b, uint64_t low, uint64_t high, hd_access access, int64_t deadline,
                            const char *who)
{
    struct hdi_mirror *m = b->mirror;
    uint64_t chunks = chunks_of(b, low, high);
    bool write = (access & HD_WRITE) != 0;
    uint64_t from = low >> b->chunk_shift << b->chunk_shift;
    uint64_t to = (((high - 1) >> b->chunk_shift) + 1) << b->chunk_shift;
    to = to < b->bytes ? to : b->bytes;
    for (;;) {
        hd_status status = lock_until(m, deadline, who);
        if (status) {
            return status;
        }
        status = pull(b, chunks & m->device_newer, who);
        bool here = !status && note_here(b, chunks, from, to, write);
        hdi_mutex_unlock(&m->lock);
        if (status || here) {
            return status;
        }
        /* Also where only writing is asked for: the rest of a chunk has to be good. */
        status = hdi_buffer_settle(m->pinned, NULL, from, to, HD_READ | (unsigned)access, deadline, who);
        if (status) {
            if (status != HD_ERROR_TIMEOUT) { /* the next one who asks tries again */
                uint64_t settled;
                hdi_mutex_lock(&m->lock);
                m->pulled &= ~failed_of(b, m->pinned, chunks & m->pulled, &settled);
                hdi_mutex_unlock(&m->lock);
            }
            return status;
        }
    }
}

hd_status hdi_unified_map(struct hd_buffer *b, hd_access access, int64_t deadline, const char *who)
{
    struct hdi_mirror *m = b->mirror;
    hd_status status = lock_until(m, deadline, who);
    if (status) {
        return status;
    }
    /* First of all, so that no operation comes in between. */
    m->writing |= (access & HD_WRITE) != 0;
    m->maps++;
    hdi_mutex_unlock(&m->lock);
    status = hdi_unified_bring(b, 0, b->bytes, access, deadline, who);
    if (status) {
        hdi_mutex_lock(&m->lock);
        m->maps--;
        m->writing &= m->maps != 0; /* as long as anybody else has it mapped, it may be for writing */
        hdi_mutex_unlock(&m->lock);
    }
    return status;
}

void hdi_unified_unmap(struct hd_buffer *b)
{
    struct hdi_mirror *m = b->mirror;
    hdi_mutex_lock(&m->lock);
    m->maps -= m->maps != 0;
    m->writing &= m->maps != 0;
    hdi_mutex_unlock(&m->lock);
}

/* ---- the buffer ---- */

hd_status hdi_unified_create(struct hd_buffer *b)
{
    struct hdi_mirror *m = calloc(1, sizeof *m);
    if (!m) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "hd_alloc_unified: no memory");
    }
    hd_status status = hdi_buffer_make_host(b->runtime, b->bytes, true, "hd_alloc_unified", &m->pinned);
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
    b->locks |= HDI_UNIFIED_BIT;
    b->mirror = m;
    HDI_HANDOVER_END();
    return HD_OK;
}

void hdi_unified_release(struct hd_buffer *b)
{
    struct hd_buffer *pinned = b->mirror->pinned;
    hdi_unified_forget(b);
    hdi_free(hdi_buffer_handle(pinned));
}

void hdi_unified_forget(struct hd_buffer *b)
{
    if (b->mirror) {
        hdi_mutex_destroy(&b->mirror->lock);
        free(b->mirror);
        HDI_HANDOVER_BEGIN();
        b->mirror = NULL;
        HDI_HANDOVER_END();
    }
}
