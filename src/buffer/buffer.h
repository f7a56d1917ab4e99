/* buffer.h - the structure behind hd_buffer, and the functions that higher layers call with it.
 *
 * Threads: any, unless a comment names one.
 * Locks: the comment of a field names the lock that guards the field.
 */
#ifndef HDI_BUFFER_BUFFER_H
#define HDI_BUFFER_BUFFER_H

#include <string.h>
#include <heddle/buffer.h>
#include <heddle/memory.h>
#include "buffer/part.h"
#include "buffer/uses.h"
#include "memory/blocks.h"
#include "memory/host_pool.h"
#include "memory/thread_cache.h"

#define HDI_OWNER_HOST (-1)
#define HDI_LOST UINT64_MAX
/* The bits of hd_buffer.locks that do not stand for order locks: */
/* the buffer's kind submits the operations that use it (kind.h) */
#define HDI_KIND_BIT ((uint64_t)1 << 63)
/* pinned memory of the program: the next operation clears `readable` and `writable` */
#define HDI_DIRECT_BIT ((uint64_t)1 << 62)
#define HDI_ORDER_BITS (~(HDI_KIND_BIT | HDI_DIRECT_BIT))

#define HDI_CHUNK_SHIFT_ONE 63 /* hd_buffer.chunk_shift: the whole buffer is one chunk */

/* Why a buffer takes the slow paths (hd_buffer.special). */
enum {
    HDI_BUFFER_OF_KIND = 1, /* the buffer has a kind (kind.h), so it is not plain device memory */
    HDI_BUFFER_GUARDED = 2, /* the buffer has guard bytes (hdi_buffer_part.guarded) */
    HDI_BUFFER_HELD = 4,    /* the buffer is in a hold (hold.c) */
    /* the library's own buffer: lists of the program's buffers omit it */
    HDI_BUFFER_OWN = 8,
    HDI_BUFFER_BORROWED = 16, /* memory of a module: in no arena, and peers cannot access it */
    HDI_BUFFER_IMPORTED = 32, /* memory of the program: in no arena and no pool (region.h) */
    /* set together with IMPORTED: one piece, which the library allocated (piece.h) */
    HDI_BUFFER_PIECE = 64
};

struct hd_buffer {
    hdi_self self;
    /* bit mask: the order locks that an operation on the buffer takes, HDI_KIND_BIT and
     * HDI_DIRECT_BIT */
    uint64_t locks;
    uint64_t address; /* the address as kernels see it */
    uint64_t bytes;
    /* Bit masks of chunks that the program may read or write at `host` now. Pinned memory is one
     * chunk, and its masks change under the order lock. The masks of a unified buffer change under
     * its mirror's lock. The masks of other buffers are 0. Any thread reads the fields without a
     * lock. */
    _Atomic uint64_t readable, writable;
    unsigned char *host; /* the address as the program sees it; NULL for device memory */
    uint8_t chunk_shift; /* log2 of a chunk's size in bytes */
    hd_runtime *runtime;
    /* The owner's loss count when the memory was taken; 0 for pinned memory. HDI_LOST once a loss
     * of the owner destroyed the memory. This field changes under the order lock. So hdi_submit
     * notices if a loss came after the check of the operation's handles (hdi_use). */
    _Atomic uint64_t losses;
    int32_t owner;           /* device, or HDI_OWNER_HOST */
    uint8_t order;           /* number of the order lock, see hdi_order_lock */
    _Atomic uint8_t special; /* HDI_BUFFER_*, 0 for most */
    /* under the list's lock: a restart restores the content now; hd_free waits until the content is
     * restored */
    bool restoring;
    /* under the list's lock, with memory_debug: the structure is taken, but has no handle yet */
    bool making;
    hdi_uses uses; /* under the order lock */
    /* links the buffer while it is in a magazine; its field `class` is valid at all times */
    hdi_item item;
    uint32_t maker; /* number of the allocating thread (hdi_thread_cache) */
    /* start of the buffer's memory: `address`, or the guard in front of `address` */
    uint64_t block;
    hdi_host_block pinned;             /* for pinned memory */
    const struct hdi_buffer_ops *kind; /* NULL: plain device memory. See kind.h */
    void *of_kind;                     /* the kind's own state */
    /* the number of holds that contain the buffer; under the list's lock, like `handed` */
    uint32_t holds;
    /* the buffer was freed while holds contain it; the end of the last hold gives the memory
     * back */
    bool handed;
    /* for a region (region.h): one bit for each peer that can access it */
    _Atomic uint64_t reach;
    const void *call_site;
    char label[HD_LABEL_BYTES];
    struct hd_buffer *next;
};
_Static_assert(sizeof(struct hd_buffer) <= HDI_SELF_ALIGN, "a buffer's structure has one place");

/* Counters of a device's memory that neither the threads' caches (thread_cache.h) nor the arena
 * keep. They are relaxed atomics on rare paths. hdi_device.memory points to them. */
typedef struct hdi_memory_counts {
    _Atomic uint64_t failures, drains, waits, wait_ns;
    _Atomic uint64_t early_reclaims, early_reclaim_ns, limit_reclaims, limit_reclaim_ns;
    _Atomic uint64_t longest_pause_ns;
    _Atomic uint64_t double_frees, overruns, held_bytes;
    /* dedicated pieces: allocations, and requests that map or unmap one */
    _Atomic uint64_t pieces, piece_calls;
    /* the number of freed buffers whose memory a library thread will give back
     * (hdi_memory_leaves) */
    _Atomic uint64_t leaving;
} hdi_memory_counts;

static inline void hdi_counts_add(_Atomic uint64_t *counter, uint64_t more)
{
    atomic_fetch_add_explicit(counter, more, memory_order_relaxed);
}

static inline void hdi_counts_raise(_Atomic uint64_t *peak, uint64_t value)
{
    uint64_t seen = atomic_load_explicit(peak, memory_order_relaxed);
    while (value > seen &&
           !atomic_compare_exchange_weak_explicit(peak, &seen, value, memory_order_relaxed, memory_order_relaxed)) {
    }
}

/* Counts a freed buffer whose memory a library thread will give back when no work uses it. An
 * allocation at the limit waits for this memory (limit.c). Relaxed, since the program orders its
 * hd_free before the allocation. */
static inline void hdi_memory_leaves(const hdi_device *device)
{
    atomic_fetch_add_explicit(&device->memory->leaving, 1, memory_order_relaxed);
}

/* Notes that the library gave the memory of such a buffer back. Release: pairs with the acquire
 * load of a waiting allocation. So an allocation that sees a count of 0 also finds the memory. */
static inline void hdi_memory_left(const hdi_device *device)
{
    atomic_fetch_sub_explicit(&device->memory->leaving, 1, memory_order_release);
}

static inline bool hdi_buffer_is_borrowed(const struct hd_buffer *b)
{
    return (atomic_load_explicit(&b->special, memory_order_relaxed) & HDI_BUFFER_BORROWED) != 0;
}

/* True if the buffer's memory is a region (region.h). */
static inline bool hdi_buffer_is_imported(const struct hd_buffer *b)
{
    return (atomic_load_explicit(&b->special, memory_order_relaxed) & HDI_BUFFER_IMPORTED) != 0;
}

/* True if the buffer is one piece of physical memory that the library allocated. */
static inline bool hdi_buffer_is_piece(const struct hd_buffer *b)
{
    return (atomic_load_explicit(&b->special, memory_order_relaxed) & HDI_BUFFER_PIECE) != 0;
}

/* True if the buffer's memory belongs to a device's arena. */
static inline bool hdi_buffer_is_of_arena(const struct hd_buffer *b)
{
    unsigned special = atomic_load_explicit(&b->special, memory_order_relaxed);
    return b->owner != HDI_OWNER_HOST && !(special & (HDI_BUFFER_BORROWED | HDI_BUFFER_IMPORTED));
}

/* The runtime of a handle, for HDI_INSIDE. The handle is not checked yet, so the caller must only
 * compare the result. */
static inline const void *hdi_buffer_runtime(const hd_buffer *handle)
{
    const struct hd_buffer *b = (const struct hd_buffer *)hdi_self_object(handle);
    return b ? b->runtime : NULL;
}

/* The buffer behind a live handle; NULL for any other value. */
static inline struct hd_buffer *hdi_buffer_from_handle(const hd_buffer *handle)
{
    struct hd_buffer *b = (struct hd_buffer *)hdi_self_object(handle);
    return b && hdi_self_get(&b->self) == hdi_self_word(handle) ? b : NULL;
}

/* Like hdi_buffer_from_handle, but also accepts a handle whose content was lost with its device. */
static inline struct hd_buffer *hdi_buffer_from_any_handle(const hd_buffer *handle)
{
    struct hd_buffer *b = (struct hd_buffer *)hdi_self_object(handle);
    return b && (hdi_self_get(&b->self) & ~HDI_SELF_LOST) == hdi_self_word(handle) ? b : NULL;
}

/* The structure behind a handle that only the caller uses. No thread but that of hd_close ends this
 * handle, which can happen at any time. Afterwards every submission that uses the handle fails. */
static inline struct hd_buffer *hdi_buffer_of_own_handle(const hd_buffer *handle)
{
    return (struct hd_buffer *)hdi_self_object(handle);
}

/* The handle of a live or lost buffer. */
static inline hd_buffer *hdi_buffer_handle(struct hd_buffer *b)
{
    return (hd_buffer *)hdi_self_make(b, hdi_self_generation(hdi_self_get(&b->self)));
}

/* The buffer's loss count. Read the count after you checked the handle. HDI_LOST: the buffer is
 * lost, so the handle is stale now. */
static inline uint64_t hdi_buffer_losses(const struct hd_buffer *b)
{
    /* pairs with the release stores in buffer.c, so that the address of the same allocation is
     * visible */
    return atomic_load_explicit(&b->losses, memory_order_acquire);
}

static inline hdi_lock *hdi_order_lock(hd_runtime *rt, unsigned number)
{
    return number < HDI_DEVICES_MAX ? &rt->devices[number]->order
                                    : &hdi_buffer_of(rt)->host_order[number - HDI_DEVICES_MAX];
}

/* Takes the order lock that guards the buffer's use record. If another thread detached the
 * record, waits until the record is back. No other thread may free the buffer during this call. So
 * the buffer must be the library's own, in a hold, or without a handle. */
void hdi_buffer_uses_lock(struct hd_buffer *b);

/* Like hdi_buffer_uses_lock, for a buffer that the caller just found through `handle`. Another
 * thread may have freed the buffer since. Returns false, with the lock released, if the handle no
 * longer leads to that buffer. A buffer lost with its device still counts as that buffer. If the
 * handle is NULL, this function only calls hdi_buffer_uses_lock. */
bool hdi_buffer_uses_lock_of(struct hd_buffer *b, const hd_buffer *handle);
static inline void hdi_buffer_uses_unlock(struct hd_buffer *b)
{
    hdi_lock_release(hdi_order_lock(b->runtime, b->order));
}

/* Drops all uses of a buffer without a handle. */
void hdi_record_release(struct hd_buffer *b);

/* ---- buffer.c: the structures ---- */

/* `release` drops all live buffers; the arenas and the pinned pool free their memory. After
 * `close`, all handles are stale. */
extern const hdi_lifetime hdi_buffers_lifetime;

/* Takes a structure without a handle. The caller passes it to hdi_buffer_give or
 * hdi_buffer_make_live later. NULL: out of host memory. */
struct hd_buffer *hdi_buffer_take(hd_runtime *rt);
void hdi_buffer_give(hd_runtime *rt, struct hd_buffer *b);
/* Replaces the structure's label. NULL: no label. */
static inline void hdi_buffer_label(struct hd_buffer *b, const char *label)
{
    b->label[0] = 0;
    if (label) {
        hdi_utf8_copy(b->label, sizeof b->label, label);
    }
}

/* Makes the handle good. If the device is lost, the buffer is lost at once. */
void hdi_buffer_make_live(struct hd_buffer *b);

/* Calls `visit` for every buffer of the program that is live, lost or held. This function holds the
 * list's lock, but releases it now and then. If a buffer is freed during the walk, and its
 * structure is used again, `visit` may see the structure twice, or not at all. */
void hdi_buffers_each(hd_runtime *rt, bool (*visit)(void *context, struct hd_buffer *b), void *context);

/* Goes through the use records of all buffers, the library's own included. Each record then notes
 * which of its finished writers failed. False: some record was detached, and remains as it is. The
 * caller holds no lock. */
bool hdi_buffers_settle(hd_runtime *rt);

/* True if the buffer's memory was taken since the last loss of the device. Otherwise the memory is
 * gone, and another buffer may own its address. */
bool hdi_buffer_of_now(const struct hd_buffer *b);

/* The word that replaces `word` when its handle becomes stale. It contains the next generation,
 * whose handle is not good yet. */
static inline uint64_t hdi_self_after(struct hd_buffer *b, uint64_t word)
{
    uint32_t generation = (hdi_self_generation(word) + 1) % HDI_SELF_GENERATIONS;
    return hdi_self_word(hdi_self_make(b, generation)) | HDI_SELF_DEAD;
}

typedef enum hdi_taken {
    HDI_TAKEN,        /* the handle was good, and is now stale */
    HDI_TAKEN_STALE,  /* the handle was not good */
    HDI_TAKEN_NOT_NOW /* the buffer is being restored */
} hdi_taken;

/* Makes the handle of a lost buffer stale. */
hdi_taken hdi_buffer_take_lost_handle(struct hd_buffer *b, const hd_buffer *handle);

/* These two functions take and release the list's lock. */
void hdi_buffers_lock(hd_runtime *rt);
void hdi_buffers_unlock(hd_runtime *rt);

/* Returns the lost buffer of the device that follows `after` (NULL: the first one) and whose kind
 * restores content. Marks the buffer as being restored. NULL: there are no more such buffers. */
struct hd_buffer *hdi_buffers_next_to_restore(hd_runtime *rt, int device, const struct hd_buffer *after);
void hdi_buffers_restored(hd_runtime *rt, struct hd_buffer *b);

/* ---- alloc.c: device memory ---- */

/* These two functions give device memory to a buffer that is not live yet, and set its address,
 * size, owner and a fresh use record. They try the out-of-memory fallback before they fail with
 * MEMORY. With the option memory_debug, hdi_buffer_place adds guards, and can also fail as
 * hdi_submit does. */
hd_status hdi_buffer_place(struct hd_buffer *b, hd_lane *lane, size_t bytes);
hd_status hdi_buffer_place_plain(struct hd_buffer *b, hd_lane *lane, size_t bytes);

/* Gives a buffer that is not live yet the device memory at `address`, outside of any arena. The
 * buffer's end does not free that memory. `losses`: the device's loss count, read before the
 * address was taken. `special`: the reason (HDI_BUFFER_*) why the memory is in no arena. Errors:
 * HOST_MEMORY. */
hd_status hdi_buffer_borrow(struct hd_buffer *b, hdi_device *device, uint64_t address, uint64_t bytes, uint64_t losses,
                            unsigned special);

/* Counts an allocation by the program for the calling thread. */
void hdi_buffer_count_allocation(hd_runtime *rt, int device, uint64_t bytes, struct hd_buffer *b);

/* Gives the memory of a buffer without a handle back, with the points of work that still uses
 * it. */
void hdi_buffer_release_memory(struct hd_buffer *b);

/* Ends a freed buffer that no hold keeps: gives its memory and its structure back. If guards must
 * be checked first, a library thread may end the buffer later. */
void hdi_buffer_end(struct hd_buffer *b);

/* Do the work of hd_alloc_with and hd_free, for callers that are inside a call of the runtime, and
 * for library threads. */
hd_status hdi_alloc_with(hd_lane *handle, size_t bytes, const hd_alloc_options *options, const void *call_site,
                         hd_buffer **out);
void hdi_free(hd_buffer *handle);

/* The function `relieve` of an hdi_arena_config; `device` is an hdi_device. */
bool hdi_buffers_relieve(void *device);
/* The threads' caches of device memory. */
extern const hdi_lifetime hdi_thread_caches_lifetime;

/* Ends a buffer whose memory is borrowed (hdi_buffer_borrow). Makes the handle stale, and waits
 * until no work uses the buffer. The caller holds no lock. */
void hdi_buffer_end_borrowed(hd_buffer *handle);

/* Collects the points of unfinished work on a buffer without a handle. *points is on_stack, or an
 * array that the caller frees. */
#define HDI_POINTS_ON_STACK 64
size_t hdi_buffer_pending(struct hd_buffer *b, hdi_point *on_stack, hdi_point **points);

/* ---- hold.c: memory that keeps its address beyond hd_free ---- */

/* After `close`, all handles are stale. `release` drops all holds; the list drops their buffers. */
extern const hdi_lifetime hdi_holds_lifetime;

/* Does the work of hd_hold_create for a consumer of memory that is outside of the library. Only
 * through this hold does hd_close learn of the consumer. Copies the label. Errors: as
 * hd_hold_create. */
hd_status hdi_hold_create_outside(hd_runtime *rt, const char *label, hd_hold **out);
/* hd_close calls this function after it made all handles stale. True if consumers outside of the
 * library may still use memory of holds. Then *left becomes an error that names the first few of
 * these holds, or gets these names in addition. `left` may be NULL. */
bool hdi_holds_abandon(hd_runtime *rt, hd_error *left);

/* True if a hold keeps the memory of a buffer that was just freed. Then the structure stays as it
 * is. */
bool hdi_hold_keeps(struct hd_buffer *b);

/* Holds a buffer while a call uses it in several steps. During the hold, an hd_free by another
 * thread leaves the memory, the mirror, the checkpoints and the use record in place. `word`: the
 * word of the handle that just led to the buffer (hdi_self_word); 0: no thread can free the buffer
 * during this call. False: the handle no longer leads to that buffer, and nothing is held. A lost
 * buffer still counts.
 * If the buffer is freed during the hold, the last hdi_hold_end gives its memory back. This takes
 * locks, so call hdi_hold_end without a lock. Only hold buffers that never enter a magazine
 * (hd_buffer.special), since a buffer that was in a hold enters no magazine any more. */
bool hdi_hold_begin(struct hd_buffer *b, uint64_t word);
void hdi_hold_end(struct hd_buffer *b);

/* ---- host.c: pinned host memory ---- */

/* The pool of pinned memory, which is destroyed after the last buffer. */
extern const hdi_lifetime hdi_host_lifetime;

/* The message when a wait for a pinned chunk times out. */
#define HDI_CHUNKS_IN_USE "all pinned chunks are in use (option transfer_timeout)"
/* Makes a pinned buffer without pending work for the library's own use. `wait`: an allocation at
 * the limit waits for memory that work still uses. Errors: as hd_alloc_host, and TIMEOUT. */
hd_status hdi_buffer_make_host(hd_runtime *rt, size_t bytes, bool wait, struct hd_buffer **out);
/* Returns a buffer's pinned memory to the pool, with the points of work that still uses it. */
void hdi_buffer_host_release(struct hd_buffer *b, const hdi_point *points, size_t n_points);

/* Gives a pinned buffer that is not live yet memory from outside the pool. `kind` provides `map`
 * and `bring` for pinned memory (below). */
struct hdi_buffer_ops;
void hdi_buffer_take_host(struct hd_buffer *b, void *host, uint64_t address, uint64_t bytes,
                          const struct hdi_buffer_ops *kind);
hd_status hdi_buffer_host_map(struct hd_buffer *b, hd_access access, int64_t deadline);
hd_status hdi_buffer_host_bring(struct hd_buffer *b, const hd_buffer *handle, uint64_t low, uint64_t high,
                                hd_access access, int64_t deadline);

/* Returns a device that is not lost, for work that any device can do. If all are lost, returns the
 * first device. */
hdi_device *hdi_any_device(hd_runtime *rt);

/* ---- buffer.c: checks and waits ---- */

/* The error for a handle that leads to no live buffer. DEVICE_LOST: the buffer was lost with its
 * device. HANDLE: it was freed, or the handle was never valid. */
hd_status hdi_buffer_refused(const hd_buffer *handle);

/* The structure to which a value leads that is not a good handle; NULL: it leads to none. Accepts
 * the same values as hdi_buffer_from_handle. */
struct hd_buffer *hdi_buffer_from_stale_handle(const hd_buffer *handle);

/* True if the handle no longer leads to this buffer: the structure may be freed, and another buffer
 * may use it. Then an error that the caller found may concern that other buffer. */
bool hdi_buffer_is_gone(const struct hd_buffer *b, const hd_buffer *handle);

/* Checks a handle and a byte range. Errors: HANDLE, DEVICE_LOST, RANGE. */
hd_status hdi_buffer_check(const hd_buffer *handle, size_t offset, size_t bytes, struct hd_buffer **out);

/* Fails with ARGUMENT unless `access` is one of the three values. */
hd_status hdi_access_check(hd_access access);

/* A value in addition to HD_READ and HD_WRITE: the host will replace all these bytes. So it does
 * not matter if an earlier write of the bytes failed. */
#define HDI_ACCESS_REPLACES 4u

/* Blocks until the submitted writers of [low, high) are done; for HD_WRITE, also until the readers
 * are done. For HD_READ, this function also returns the failure of the last writer of some bytes.
 * Operations that other threads submit after this call stay in the record. `handle`: as for
 * hdi_buffer_uses_lock_of.
 * Errors: TIMEOUT, FAILED, DEVICE_LOST, HANDLE (freed during the wait). */
hd_status hdi_buffer_settle(struct hd_buffer *b, const hd_buffer *handle, uint64_t low, uint64_t high, unsigned access,
                            int64_t deadline);

/* One of the buffer's unfinished uses; position 0: none. Takes the record's lock. */
hdi_point hdi_buffer_awaited(struct hd_buffer *b);
/* hdi_uses_state for a range of a buffer that no other thread may free during the call. */
unsigned hdi_buffer_state(struct hd_buffer *b, uint64_t low, uint64_t high);
/* hdi_uses_alike_until for a range of a buffer that no other thread may free during the call. */
uint64_t hdi_buffer_alike_until(struct hd_buffer *b, uint64_t low, uint64_t high);

#endif
