/* handle.h - opaque handles that know when they are stale.
 *
 * A handle is the object's address with a 16-bit generation in the bits above it. Objects live in slabs that stay mapped as long as
 * their runtime is open, so a stale handle finds an object with another generation and is refused; it is never followed
 * into memory that is gone. User-space addresses fit in 48 bits on every system we build for (wider ones only on request).
 * Any thread; no locks.
 */
#ifndef HDI_BASE_HANDLE_H
#define HDI_BASE_HANDLE_H

#include <stdint.h>

#define HDI_HANDLE_ADDRESS_BITS 48

/* What an object that handles lead to begins with. */
typedef union hdi_handle_head {
    struct {
        uint32_t magic;      /* of the kind of object */
        uint16_t generation; /* moves when the object ends, so older handles no longer fit */
        uint16_t live;       /* 1 while handles of this generation are good */
    };
    uint64_t all;
} hdi_handle_head;

static inline void *hdi_handle_make(void *object, uint16_t generation)
{
    return (void *)((uintptr_t)object | (uintptr_t)generation << HDI_HANDLE_ADDRESS_BITS);
}

static inline void *hdi_handle_object(const void *handle)
{
    return (void *)((uintptr_t)handle & (((uintptr_t)1 << HDI_HANDLE_ADDRESS_BITS) - 1));
}

static inline uint16_t hdi_handle_generation(const void *handle)
{
    return (uint16_t)((uintptr_t)handle >> HDI_HANDLE_ADDRESS_BITS);
}

/* Whether a handle leads to a live object of the kind and of its own generation: one comparison. */
static inline int hdi_handle_fits(const void *handle, const hdi_handle_head *head, uint32_t magic)
{
    /* The structure as a number, as a little-endian machine has it. */
    uint64_t wanted = (uint64_t)1 << 48 | (uint64_t)hdi_handle_generation(handle) << 32 | magic;
    return head->all == wanted;
}

#endif
