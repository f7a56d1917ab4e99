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

#endif
