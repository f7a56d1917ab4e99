/* handle.h - opaque handles, and the stable memory behind them. A call recognises stale handles.
 *
 * A handle is the object's address with a generation in the free bits of the address. Objects of
 * every kind are in stable memory, at multiples of HDI_SELF_ALIGN, and begin with a word that
 * matches only a valid handle. A handle may be stale, of another kind, or of a closed runtime. Then
 * the word does not match, and the call refuses the handle. So a call never follows a handle into
 * memory that is gone. An object whose generations are used up is not used again. After a fork,
 * handles of the parent are stale in the child. User-space addresses fit in 48 bits on every
 * supported system; the system gives out wider addresses only on request.
 *
 * Threads: any. Locks: none for handles. A separate mutex for stable memory, also across fork(); no
 * lock is taken under it.
 */
#ifndef HDI_BASE_HANDLE_H
#define HDI_BASE_HANDLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <heddle/status.h>

#define HDI_HANDLE_ADDRESS_BITS 48
#define HDI_SELF_ALIGN 512
#define HDI_HANDLE_FIRST 1 /* the first generation; 0: all are used up */

/* The first word of an object behind handles: the magic of its kind, the generation, and a state.
 * The state shows whether handles of this generation are valid. Written under the lock of the code
 * that returns the object. Any thread may read it. */
typedef struct hdi_handle_head {
    _Atomic uint64_t word;
} hdi_handle_head;

/* The magics of kinds. kernel/module.h uses the same numbers for kernels and modules. */
#define HDI_LANE_MAGIC 0x4c414e45u
#define HDI_RUNTIME_MAGIC 0x52554e54u
#define HDI_MODULE_MAGIC 0x4d4f4455u
#define HDI_KERNEL_MAGIC 0x4b45524eu
#define HDI_HOLD_MAGIC 0x484f4c44u
#define HDI_CLAIM_MAGIC 0x434c414du

/* States of a handle. */
enum {
    HDI_HANDLE_DEAD = 0,
    HDI_HANDLE_LIVE = 1,
    /* the object exists, but its device memory is gone: it can only be released */
    HDI_HANDLE_LOST = 2,
    HDI_HANDLE_CAREFUL =
        /* valid, but users take a slow path. Users may store their own bits above this value, since
         * a state has 16 bits */
    3
};

/* Every head contains this value, and every comparison uses it. The value differs between forked
 * processes. Changes only in the child of a fork, before anything else runs there. */
extern uint32_t hdi_handle_salt;

/* From here on, handles become stale in children that this process forks. Any thread may call this
 * function; one call is enough. */
void hdi_handle_guard_forks(void);

static inline uint64_t hdi_handle_word(uint32_t magic, uint16_t generation, int state)
{
    return (uint64_t)state << 48 | (uint64_t)generation << 32 | (magic ^ hdi_handle_salt);
}

static inline void hdi_handle_set(hdi_handle_head *head, uint32_t magic, uint16_t generation, int state)
{
    /* pairs with the acquire loads below: the object is complete before it is seen live */
    atomic_store_explicit(&head->word, hdi_handle_word(magic, generation, state), memory_order_release);
}

static inline uint16_t hdi_handle_head_generation(const hdi_handle_head *head)
{
    return (uint16_t)(atomic_load_explicit(&head->word, memory_order_acquire) >> 32);
}

static inline int hdi_handle_head_state(const hdi_handle_head *head)
{
    return (int)(atomic_load_explicit(&head->word, memory_order_acquire) >> 48 & 3);
}

static inline int hdi_handle_head_live(const hdi_handle_head *head)
{
    return hdi_handle_head_state(head) == HDI_HANDLE_LIVE;
}

static inline int hdi_handle_head_is(const hdi_handle_head *head, uint32_t magic)
{
    return (uint32_t)atomic_load_explicit(&head->word, memory_order_acquire) == (magic ^ hdi_handle_salt);
}

/* Makes all handles so far stale. False: the object used up its generations, so do not use it
 * again. */
static inline bool hdi_handle_end(hdi_handle_head *head, uint32_t magic)
{
    uint16_t next = (uint16_t)(hdi_handle_head_generation(head) + 1);
    hdi_handle_set(head, magic, next, HDI_HANDLE_DEAD);
    return next != 0;
}

/* Makes handles of all generations stale. */
static inline void hdi_handle_close(hdi_handle_head *head)
{
    atomic_store_explicit(&head->word, 0, memory_order_release);
}

static inline void *hdi_handle_make(void *object, uint16_t generation)
{
    return (void *)((uintptr_t)object | (uintptr_t)generation << HDI_HANDLE_ADDRESS_BITS);
}

static inline void *hdi_handle_object(const void *handle)
{
    /* This is the begin of the object even for a handle of another kind: buffers keep a part of
     * their generation in the low bits. */
    return (void *)((uintptr_t)handle & (((uintptr_t)1 << HDI_HANDLE_ADDRESS_BITS) - 1) &
                    ~(uintptr_t)(HDI_SELF_ALIGN - 1));
}

static inline uint16_t hdi_handle_generation(const void *handle)
{
    return (uint16_t)((uintptr_t)handle >> HDI_HANDLE_ADDRESS_BITS);
}

/* True if a handle leads to a live object of the kind and of its own generation: one comparison. */
static inline int hdi_handle_fits(const void *handle, const hdi_handle_head *head, uint32_t magic)
{
    return atomic_load_explicit(&head->word, memory_order_acquire) ==
           hdi_handle_word(magic, hdi_handle_generation(handle), HDI_HANDLE_LIVE);
}

/* True if a handle that was valid when the head was `before` is still valid with `word`. The word
 * is then unchanged, or only became CAREFUL. */
static inline bool hdi_handle_word_is_good(uint64_t word, uint64_t before)
{
    return word == before || ((word ^ before) << 16 == 0 && (word >> 48 & 3) == HDI_HANDLE_CAREFUL);
}

/* Fails with HANDLE. Whatever the handle is, this function reads only stable memory. If `kind` is
 * "buffer", for example, the message is one of
 *   - "FUNCTION: this is a lane, not a buffer"
 *   - "FUNCTION: the buffer is null"
 *   - "FUNCTION: not a buffer, or REASON" */
hd_status hdi_handle_refused(const void *handle, const char *kind, const char *why);

/* ---- self handles: for objects that come and go by the million ----
 *
 * The object's first word is its current handle, so the check is one comparison. Objects are
 * aligned to HDI_SELF_ALIGN, so a handle offers 24 bits for a generation: 16 above the address, 8
 * below. Bits 47 and 8 are never set in a handle. They mark the word of an object whose handle is
 * not valid. */

#define HDI_SELF_GENERATIONS ((uint32_t)1 << 24)
/* the object exists, but its device memory is gone: it can only be released */
#define HDI_SELF_LOST ((uint64_t)1 << 47)
#define HDI_SELF_DEAD ((uint64_t)1 << 8)

typedef struct hdi_self {
    _Atomic uint64_t word;
} hdi_self;

/* The word of the object of a valid handle. */
static inline uint64_t hdi_self_word(const void *handle)
{
    return (uint64_t)(uintptr_t)handle ^ (uint64_t)hdi_handle_salt << 9;
}

static inline void *hdi_self_object(const void *handle)
{
    return (void *)((uintptr_t)handle & 0x00007ffffffffe00u);
}

static inline void *hdi_self_make(void *object, uint32_t generation)
{
    return (void *)((uintptr_t)object | (uintptr_t)(generation >> 8) << HDI_HANDLE_ADDRESS_BITS | (generation & 0xff));
}

/* The generation of a word, whatever its state. */
static inline uint32_t hdi_self_generation(uint64_t word)
{
    return (uint32_t)(word >> HDI_HANDLE_ADDRESS_BITS) << 8 | (word & 0xff);
}

static inline uint64_t hdi_self_get(const hdi_self *self)
{
    /* pairs with the release store in hdi_self_set: the object is complete before it is seen
     * live */
    return atomic_load_explicit(&self->word, memory_order_acquire);
}

static inline void hdi_self_set(hdi_self *self, uint64_t word)
{
    atomic_store_explicit(&self->word, word, memory_order_release);
}

/* Changes the word from `from` to `to`. Fails if the object holds another word by now. */
static inline int hdi_self_change(hdi_self *self, uint64_t from, uint64_t to)
{
    /* seq_cst: hd_free then loads whether a lock is taken, and others take that lock before they
     * load the word */
    return atomic_compare_exchange_strong_explicit(&self->word, &from, to, memory_order_seq_cst, memory_order_acquire);
}

/* Makes all handles of the object stale. The word keeps the generation and the state; only its
 * address changes. */
static inline void hdi_self_close(hdi_self *self)
{
    atomic_fetch_xor_explicit(&self->word, HDI_SELF_ALIGN, memory_order_acq_rel);
}

/* ---- stable memory: its addresses are never used for anything else ----
 *
 * So a call may read the memory behind a stale handle as long as the process lives. While the
 * runtime is open, the handle leads to the structure of the former object, whose head no longer
 * matches. Afterwards the handle leads to zeros, which match no handle. The price is addresses
 * without memory: some hundred kilobytes for each closed runtime. */

typedef struct hdi_stable hdi_stable;

/* NULL: no memory. */
hdi_stable *hdi_stable_create(void);

/* Takes zeroed memory at a multiple of HDI_SELF_ALIGN, which is valid until hdi_stable_clear. NULL:
 * no memory. */
void *hdi_stable_take(hdi_stable *stable, size_t bytes);

/* From here on, all of the memory is read-only and contains zeros. Frees `stable`; NULL is
 * ignored. */
void hdi_stable_clear(hdi_stable *stable);

/* ---- handover: fields that the thread sanitizer must not report ----
 *
 * The library writes these fields when a structure loses its owner or gets a new owner. At the same
 * time a thread with an old handle may read them.
 *
 * A call reads an object's fields, and then checks the handle again under the lock that protects
 * the object. If the structure belongs to another object by then, the call is refused and its reads
 * do not count. The sanitizer would report such a read. So these fields, and no others, are written
 * between HDI_HANDOVER_BEGIN and HDI_HANDOVER_END, which switch the sanitizer's checks off. Data
 * that is valid only under a lock, such as a use record, is written outside of these macros.
 *
 * The two macros are used in pairs in one thread. Without the sanitizer they compile to nothing. */

#if defined(__SANITIZE_THREAD__)
/* These are functions of the sanitizer, which its headers lack. */
extern void AnnotateIgnoreWritesBegin(const char *file, int line);
extern void AnnotateIgnoreWritesEnd(const char *file, int line);
#define HDI_HANDOVER_BEGIN() AnnotateIgnoreWritesBegin(__FILE__, __LINE__)
#define HDI_HANDOVER_END() AnnotateIgnoreWritesEnd(__FILE__, __LINE__)
#else
#define HDI_HANDOVER_BEGIN() ((void)0)
#define HDI_HANDOVER_END() ((void)0)
#endif

#endif
