/* buffer.h - the structure behind hd_buffer, and what the layers below need of it.
 *
 * Threads: any, unless a comment names one.
 * Locks: where a field changes under a lock, its comment names the lock.
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
/* In hd_buffer.locks, beside order locks: */
#define HDI_KIND_BIT ((uint64_t)1 << 63) /* operations that use it are submitted by its kind (kind.h) */
#define HDI_DIRECT_BIT                                                                                                 \
    ((uint64_t)1 << 62) /* pinned memory of the program: `readable` and `writable` end with the next operation */
#define HDI_ORDER_BITS (~(HDI_KIND_BIT | HDI_DIRECT_BIT))

#define HDI_CHUNK_SHIFT_ONE 63 /* hd_buffer.chunk_shift: all of the buffer is one chunk */

/* Why a buffer takes the careful ways (hd_buffer.special). */
enum {
    HDI_BUFFER_OF_KIND = 1,   /* of a kind (kind.h): no plain device memory */
    HDI_BUFFER_GUARDED = 2,   /* with guard bytes (hd_runtime.guarded) */
    HDI_BUFFER_HELD = 4,      /* in a hold (hold.c) */
    HDI_BUFFER_OWN = 8,       /* the library's own: in no list of what the program holds */
    HDI_BUFFER_BORROWED = 16, /* its memory belongs to a module: it is in no arena, and no peer reaches it */
    HDI_BUFFER_IMPORTED = 32, /* its memory is the program's own: it is in no arena and in no pool (region.h) */
    HDI_BUFFER_PIECE = 64     /* beside IMPORTED: the memory is one piece of the library's own (piece.h) */
};

struct hd_buffer {
    hdi_self self;
    uint64_t locks;   /* bit mask of the order locks that using it takes, HDI_KIND_BIT, HDI_DIRECT_BIT */
    uint64_t address; /* what kernels see */
    uint64_t bytes;
    /* Chunks that the program may read, or write, at `host` now (element.h). Pinned memory has one chunk, under the order lock.
     * Chunks of unified buffers are under the mirror's lock. Other buffers have none. Looked at without a lock. */
    _Atomic uint64_t readable, writable;
    unsigned char *host; /* what the program sees; NULL for device memory */
    uint8_t chunk_shift; /* a chunk is so many bytes, as a power of two */
    hd_runtime *runtime;
    /* Of the owner when the memory was taken; HDI_LOST once it is gone. Changes under the order lock, so that an operation which
     * was checked before a loss is recognised when it is submitted (hdi_use). 0 for pinned memory. */
    _Atomic uint64_t losses;
    int32_t owner;           /* device, or HDI_OWNER_HOST */
    uint8_t order;           /* number of the order lock, see hdi_order_lock */
    _Atomic uint8_t special; /* HDI_BUFFER_*, 0 for most */
    bool restoring;          /* under the list's lock: hd_free waits until the restart is over */
    bool making;             /* under the list's lock, with memory_debug: taken, and there is no handle of it yet */
    hdi_uses uses;           /* under the order lock */
    hdi_item
        item; /* while it is freed and cached: with its memory in a magazine. `class` is that of its memory always */
    uint32_t maker;                    /* number of the thread that allocated it, see hdi_thread_cache */
    uint64_t block;                    /* where its device memory begins: `address`, or in front of it by a guard */
    hdi_host_block pinned;             /* of pinned memory */
    const struct hdi_buffer_ops *kind; /* NULL: plain device memory. See kind.h */
    void *of_kind;                     /* what the kind has beside the memory */
    uint32_t holds;                    /* under the list's lock, like the next one */
    bool handed;                       /* freed, and left to the holds: the end of the last one gives it back */
    _Atomic uint64_t reach;            /* of an import: bit per peer that the driver lets use it (region.h) */
    const void *call_site;
    char label[HD_LABEL_BYTES];
    struct hd_buffer *next;
};
_Static_assert(sizeof(struct hd_buffer) <= HDI_SELF_ALIGN, "a buffer's structure has one place");

/* Counters of a device's memory that are not per thread (thread_cache.h has those) and not the arena's. Relaxed atomics, on paths that are rare.
 * hdi_device.memory points to a device's. */
typedef struct hdi_memory_counts {
    _Atomic uint64_t failures, drains, waits, wait_ns;
    _Atomic uint64_t early_reclaims, early_reclaim_ns, limit_reclaims, limit_reclaim_ns;
    _Atomic uint64_t longest_pause_ns;
    _Atomic uint64_t double_frees, overruns, held_bytes;
    _Atomic uint64_t
        leaving; /* buffers that were freed, and whose memory the library gives back by itself (hdi_memory_leaves) */
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

/* Memory was freed, and a thread of the library gives it back once nothing uses it: an allocation at the limit waits for that (reclaim.c).
 * Relaxed: such an allocation comes behind hd_free, by the program's own order. */
static inline void hdi_memory_leaves(const hdi_device *device)
{
    atomic_fetch_add_explicit(&device->memory->leaving, 1, memory_order_relaxed);
}

/* It was given back. Release: pairs with the acquire of an allocation that waits. It finds the memory when it sees none that leaves. */
static inline void hdi_memory_left(const hdi_device *device)
{
    atomic_fetch_sub_explicit(&device->memory->leaving, 1, memory_order_release);
}

static inline bool hdi_buffer_is_borrowed(const struct hd_buffer *b)
{
    return (atomic_load_explicit(&b->special, memory_order_relaxed) & HDI_BUFFER_BORROWED) != 0;
}

/* Whether its memory is a region (region.h). */
static inline bool hdi_buffer_is_imported(const struct hd_buffer *b)
{
    return (atomic_load_explicit(&b->special, memory_order_relaxed) & HDI_BUFFER_IMPORTED) != 0;
}

/* Whether it is one piece of physical memory that the library allocated. */
static inline bool hdi_buffer_is_piece(const struct hd_buffer *b)
{
    return (atomic_load_explicit(&b->special, memory_order_relaxed) & HDI_BUFFER_PIECE) != 0;
}

/* Whether its memory is of a device's arena. */
static inline bool hdi_buffer_is_of_arena(const struct hd_buffer *b)
{
    unsigned special = atomic_load_explicit(&b->special, memory_order_relaxed);
    return b->owner != HDI_OWNER_HOST && !(special & (HDI_BUFFER_BORROWED | HDI_BUFFER_IMPORTED));
}

/* For HDI_INSIDE, before a check whether it is a buffer: only to be compared. */
static inline const void *hdi_buffer_runtime(const hd_buffer *handle)
{
    const struct hd_buffer *b = (const struct hd_buffer *)hdi_self_object(handle);
    return b ? b->runtime : NULL;
}

/* The buffer behind a live handle, NULL for any other value. */
static inline struct hd_buffer *hdi_buffer_from_handle(const hd_buffer *handle)
{
    struct hd_buffer *b = (struct hd_buffer *)hdi_self_object(handle);
    return b && hdi_self_get(&b->self) == hdi_self_word(handle) ? b : NULL;
}

/* The same for a handle that is live, or whose content was lost with its device. */
static inline struct hd_buffer *hdi_buffer_from_any_handle(const hd_buffer *handle)
{
    struct hd_buffer *b = (struct hd_buffer *)hdi_self_object(handle);
    return b && (hdi_self_get(&b->self) & ~HDI_SELF_LOST) == hdi_self_word(handle) ? b : NULL;
}

/* Of a live or lost buffer. */
static inline hd_buffer *hdi_buffer_handle(struct hd_buffer *b)
{
    return (hd_buffer *)hdi_self_make(b, hdi_self_generation(hdi_self_get(&b->self)));
}

/* Taken after the handle was found good: HDI_LOST means that it is not any more. */
static inline uint64_t hdi_buffer_losses(const struct hd_buffer *b)
{
    /* pairs with the release stores in buffer.c: the address that belongs to it is seen, too */
    return atomic_load_explicit(&b->losses, memory_order_acquire);
}

static inline hdi_lock *hdi_order_lock(hd_runtime *rt, unsigned number)
{
    return number < HDI_DEVICES_MAX ? &rt->devices[number]->order
                                    : &hdi_buffer_of(rt)->host_order[number - HDI_DEVICES_MAX];
}

/* Takes the order lock of a buffer for its use record: waits also while another thread works on the record without the lock. The buffer
 * must not be freed meanwhile: it is the library's own, in a hold, or no handle leads to it. */
void hdi_record_lock(struct hd_buffer *b);

/* The same for a buffer that `handle` led to a moment ago, and that another thread may have freed since. False, with the lock open: it is not
 * that buffer any more. A buffer that was lost with its device still is. NULL: as hdi_record_lock. */
bool hdi_record_lock_of(struct hd_buffer *b, const hd_buffer *handle);
static inline void hdi_record_unlock(struct hd_buffer *b)
{
    hdi_lock_release(hdi_order_lock(b->runtime, b->order));
}

/* Drops all uses, of a buffer that no handle leads to. */
void hdi_record_release(struct hd_buffer *b);

/* ---- buffer.c: the structures ---- */

/* Release drops all live buffers; their memory goes with the arenas and the pool of pinned memory. After close no handle fits any more. */
extern const hdi_lifetime hdi_buffers_lifetime;

/* A structure without a handle, for hdi_buffer_give or hdi_buffer_make_live; NULL: no host memory. */
struct hd_buffer *hdi_buffer_take(hd_runtime *rt);
void hdi_buffer_give(hd_runtime *rt, struct hd_buffer *b);
/* NULL: none. Nothing stays of the label that the structure had before. */
static inline void hdi_buffer_label(struct hd_buffer *b, const char *label)
{
    b->label[0] = 0;
    if (label) {
        hdi_utf8_copy(b->label, sizeof b->label, label);
    }
}

/* Its handle is good from now on, or lost at once if its device is. */
void hdi_buffer_make_live(struct hd_buffer *b);

/* Calls `visit` for every structure that has memory for the program: live, lost or held. Under the list's lock, which is released now and then.
 * A buffer that is freed and allocated anew meanwhile may be seen twice, or not at all. */
void hdi_buffers_each(hd_runtime *rt, bool (*visit)(void *context, struct hd_buffer *b), void *context);

/* Whether the memory was taken since the device was last lost: else it is gone, and its address may belong to another buffer. */
bool hdi_buffer_of_now(const struct hd_buffer *b);

/* A device was lost: its buffers are, too. Any thread. */
void hdi_buffers_lose(hd_runtime *rt, hdi_device *device);

/* The word for a structure whose handle with `word` becomes stale: the next generation, and not good. */
static inline uint64_t hdi_self_after(struct hd_buffer *b, uint64_t word)
{
    uint32_t generation = (hdi_self_generation(word) + 1) % HDI_SELF_GENERATIONS;
    return hdi_self_word(hdi_self_make(b, generation)) | HDI_SELF_DEAD;
}

typedef enum hdi_taken {
    HDI_TAKEN,        /* the handle was good, and is stale now */
    HDI_TAKEN_STALE,  /* it was not good */
    HDI_TAKEN_NOT_NOW /* the buffer is being restored */
} hdi_taken;

/* Makes the handle of a lost buffer stale. */
hdi_taken hdi_buffer_take_lost_handle(struct hd_buffer *b, const hd_buffer *handle);

/* Around all that a comment places under the list's lock. */
void hdi_buffers_lock(hd_runtime *rt);
void hdi_buffers_unlock(hd_runtime *rt);

/* The next lost buffer of the device whose kind restores content, behind `after` (NULL: the first). It is marked as being restored. NULL: there is none. */
struct hd_buffer *hdi_buffers_next_to_restore(hd_runtime *rt, int device, const struct hd_buffer *after);
void hdi_buffers_restored(hd_runtime *rt, struct hd_buffer *b);

/* ---- alloc.c: device memory ---- */

/* Device memory for a buffer that is not live yet: address, size, owner, a fresh use record. The fallback before MEMORY included. The first has
 * guards where the option memory_debug is on. Its errors are also those of hdi_submit then. */
hd_status hdi_buffer_place(struct hd_buffer *b, hd_lane *lane, size_t bytes);
hd_status hdi_buffer_place_plain(struct hd_buffer *b, hd_lane *lane, size_t bytes);

/* Device memory at `address` that is in no arena becomes the buffer's, which is not live yet. Its end gives no memory back.
 * `losses`: of the device, before the address was taken. `special`: HDI_BUFFER_*, why it is not. Errors: HOST_MEMORY. */
hd_status hdi_buffer_borrow(struct hd_buffer *b, hdi_device *device, uint64_t address, uint64_t bytes, uint64_t losses,
                            unsigned special);

/* Counts an allocation of the program's for the calling thread. */
void hdi_buffer_count_allocation(hd_runtime *rt, int device, uint64_t bytes, struct hd_buffer *b);

/* Gives a buffer's memory back, with the points of the work that still uses it. No handle leads to it. */
void hdi_buffer_release_memory(struct hd_buffer *b);

/* The end of a buffer that was freed, and that no hold keeps: gives memory and structure back. Where guards have to be looked at first, that
 * may be done later. */
void hdi_buffer_end(struct hd_buffer *b);

/* hd_alloc_with and hd_free for callers inside a call on the runtime, and for threads of the library. */
hd_status hdi_alloc_with(hd_lane *handle, size_t bytes, const hd_alloc_options *options, const void *call_site,
                         hd_buffer **out);
void hdi_free(hd_buffer *handle);

/* For hdi_arena_config; `device` is an hdi_device. */
bool hdi_buffers_relieve(void *device);
/* The threads' caches of device memory. */
extern const hdi_lifetime hdi_thread_caches_lifetime;

/* Points of unfinished work that uses a buffer which no handle leads to: at `*points`, which is on_stack, or to be freed. */
#define HDI_POINTS_ON_STACK 64
size_t hdi_buffer_pending(struct hd_buffer *b, hdi_point *on_stack, hdi_point **points);

/* ---- hold.c: memory that keeps its address beyond hd_free ---- */

/* After close no handle fits any more. Release drops all holds. Their buffers go with the list. */
extern const hdi_lifetime hdi_holds_lifetime;

/* hd_hold_create for a consumer outside of the library: hd_close has no other record of it. The label is copied. Errors: as that. */
hd_status hdi_hold_create_outside(hd_runtime *rt, const char *label, hd_hold **out);
/* For hd_close, after handles were ended: whether the program may still use memory of such holds. *first: names one of them, unless it has a status
 * already; may be NULL. */
bool hdi_holds_abandon(hd_runtime *rt, hd_error *first);

/* Whether a hold keeps the memory of a buffer that was just freed. Then the structure stays as it is. */
bool hdi_hold_keeps(struct hd_buffer *b);

/* Holds a buffer while a call uses it in several steps. An hd_free by another thread then leaves memory, mirror, checkpoints and use record.
 * `word`: of the handle that led to the buffer a moment ago (hdi_self_word); 0: no thread frees the buffer meanwhile.
 * False: it is not that buffer any more, and nothing is held. A buffer that was lost with its device still is that buffer.
 * The last hdi_hold_end gives back a buffer that was freed meanwhile. So a caller holds no lock that this takes.
 * Only for buffers that are in no magazine (hd_buffer.special): a hold keeps a buffer out of magazines for good. */
bool hdi_hold_begin(struct hd_buffer *b, uint64_t word);
void hdi_hold_end(struct hd_buffer *b);

/* ---- host.c: pinned host memory ---- */

/* The pool of pinned memory, which goes when no buffer is left. */
extern const hdi_lifetime hdi_host_lifetime;

/* A pinned buffer for the library's own use, which nothing uses any more. `wait`: at the limit this waits for memory that work still uses.
 * Errors: as hd_alloc_host, and TIMEOUT. */
/* The message of a wait for a pinned chunk that got none. */
#define HDI_CHUNKS_IN_USE "all pinned chunks are in use (option transfer_timeout)"
hd_status hdi_buffer_make_host(hd_runtime *rt, size_t bytes, bool wait, struct hd_buffer **out);
/* A buffer's pinned memory goes back to the pool; the points are of work that still uses it. */
void hdi_host_release(struct hd_buffer *b, const hdi_point *points, size_t n_points);

/* Memory that the pool does not have becomes a pinned buffer's, which is not live yet. `kind` has map and bring of pinned memory (below). */
struct hdi_buffer_ops;
void hdi_buffer_take_host(struct hd_buffer *b, void *host, uint64_t address, uint64_t bytes,
                          const struct hdi_buffer_ops *kind);
hd_status hdi_host_map(struct hd_buffer *b, hd_access access, int64_t deadline);
hd_status hdi_host_bring(struct hd_buffer *b, const hd_buffer *handle, uint64_t low, uint64_t high, hd_access access,
                         int64_t deadline);

/* A device that is not lost, for work that any of them can do; the first one when all are lost. */
hdi_device *hdi_any_device(hd_runtime *rt);

/* ---- buffer.c: checks and waits ---- */

/* Fails for a handle that leads to no live buffer: freed, lost with its device (DEVICE_LOST), or never one (HANDLE). */
hd_status hdi_buffer_refused(const hd_buffer *handle);

/* The structure that a value leads to which is no good handle. NULL: it leads to none. The value is any that hdi_buffer_from_handle accepts. */
struct hd_buffer *hdi_buffer_from_stale_handle(const hd_buffer *handle);

/* Whether the handle is not that buffer's any more. Then what was found wrong may have been another buffer's: the buffer may have been freed,
 * and its structure used again. */
bool hdi_buffer_is_gone(const struct hd_buffer *b, const hd_buffer *handle);

/* Checks a handle and a range of it; `who` for the message. Errors: HANDLE, DEVICE_LOST, RANGE. */
hd_status hdi_buffer_check(const hd_buffer *handle, size_t offset, size_t bytes, struct hd_buffer **out);

/* Fails with ARGUMENT unless it is one of the three. */
hd_status hdi_access_check(hd_access access);

/* Beside HD_READ and HD_WRITE: the host is about to replace all of these bytes. So an earlier failed write of them does not matter any more. */
#define HDI_ACCESS_REPLACES 4u

/* Blocks until submitted writers of [low, high) are done, for HD_WRITE readers too; for HD_READ then returns whether the content is
 * good. What is submitted from then on stays in the record, whatever the host does. `handle`: as for hdi_record_lock_of. Errors: TIMEOUT,
 * FAILED, DEVICE_LOST, HANDLE (freed meanwhile). */
hd_status hdi_buffer_settle(struct hd_buffer *b, const hd_buffer *handle, uint64_t low, uint64_t high, unsigned access,
                            int64_t deadline);

/* One of what is unfinished of its uses; position 0: nothing is. Takes the record's lock. */
hdi_point hdi_buffer_awaited(struct hd_buffer *b);
/* hdi_uses_state of a part of a buffer that must not be freed meanwhile. */
unsigned hdi_buffer_state(struct hd_buffer *b, uint64_t low, uint64_t high);

#endif
