/* buffer.h - the structure behind hd_buffer, and what the layers below need of it. */
#ifndef HDI_DATA_BUFFER_H
#define HDI_DATA_BUFFER_H

#include <heddle/buffer.h>
#include "data/uses.h"
#include "memory/pinned.h"

#define HDI_BUFFER_MAGIC 0x42554646u
#define HDI_OWNER_HOST (-1)
#define HDI_LOST UINT64_MAX

struct hd_buffer {
    hdi_handle_head head;
    uint8_t order;    /* number of the order lock, see hdi_order_lock */
    int32_t owner;    /* device, or HDI_OWNER_HOST */
    uint64_t address; /* what kernels see */
    uint64_t bytes;
    hd_runtime *runtime;
    hdi_uses uses;         /* under the order lock */
    unsigned char *host;   /* what the program sees; NULL for device memory */
    hdi_pinned pinned;     /* for HDI_OWNER_HOST */
    struct hdi_kept *kept; /* copies in pinned memory (keep.c), or NULL */
    /* Of the owner when the memory was taken; HDI_LOST once it is gone. Changes under the order lock, so that an operation which
     * was checked before a loss is recognised when it is submitted (hdi_use). 0 for pinned memory. */
    _Atomic uint64_t losses;
    bool restoring; /* under the pool's lock: hd_free waits until the restart is over */
    struct hd_buffer *next;
};

/* The buffer behind a live handle, NULL for any other value. */
static inline struct hd_buffer *hdi_buffer_from_handle(const hd_buffer *handle)
{
    struct hd_buffer *b = (struct hd_buffer *)hdi_handle_object(handle);
    return b && hdi_handle_fits(handle, &b->head, HDI_BUFFER_MAGIC) ? b : NULL;
}

/* The same for a handle that is live, or whose content was lost with its device. */
static inline struct hd_buffer *hdi_buffer_from_any_handle(const hd_buffer *handle)
{
    struct hd_buffer *b = (struct hd_buffer *)hdi_handle_object(handle);
    return b && (hdi_handle_fits(handle, &b->head, HDI_BUFFER_MAGIC) ||
                 hdi_handle_fits_lost(handle, &b->head, HDI_BUFFER_MAGIC))
               ? b
               : NULL;
}

static inline hd_buffer *hdi_buffer_handle(struct hd_buffer *b)
{
    return (hd_buffer *)hdi_handle_make(b, hdi_handle_head_generation(&b->head));
}

/* Taken after the handle was found good: HDI_LOST means that it is not any more. */
static inline uint64_t hdi_buffer_losses(const struct hd_buffer *b)
{
    /* pairs with the release stores in buffer.c: the address that belongs to it is seen, too */
    return atomic_load_explicit(&b->losses, memory_order_acquire);
}

static inline hdi_lock *hdi_order_lock(hd_runtime *rt, unsigned number)
{
    return number < HDI_DEVICES_MAX ? &rt->devices[number]->order : &rt->host_order[number - HDI_DEVICES_MAX];
}

/* hd_open and hd_close. Release frees all live buffers; `driver_usable` false: without calling the driver. */
hd_status hdi_buffers_create(hd_runtime *rt);
void hdi_buffers_release(hd_runtime *rt, bool driver_usable);

/* A pinned buffer for the library's own use. Errors: as hd_alloc_host. */
hd_status hdi_buffer_make_host(hd_runtime *rt, size_t bytes, const char *who, struct hd_buffer **out);

/* A device that is not lost, for work that any of them can do; the first one when all are lost. */
hdi_device *hdi_any_device(hd_runtime *rt);

/* Fails for a handle that leads to no live buffer: freed, lost with its device (DEVICE_LOST), or never one (HANDLE). */
hd_status hdi_buffer_refused(const hd_buffer *handle, const char *who);

/* A device was lost: its buffers are, too. Any thread. */
void hdi_buffers_lose(hd_runtime *rt, hdi_device *device);

/* The device works again: gives its buffers with a kept copy their content back. Errors: MEMORY, HOST_MEMORY, DEVICE_LOST, DRIVER,
 * FAILED, TIMEOUT. */
hd_status hdi_buffers_restore(hd_runtime *rt, hdi_device *device);

/* Device memory for a buffer that is not live yet: address, size, owner, a fresh use record. */
hd_status hdi_buffer_place(struct hd_buffer *b, hd_lane *lane, size_t bytes);

/* keep.c: copies of a buffer in pinned memory. */
hd_status hdi_kept_create(struct hd_buffer *b);
void hdi_kept_release(struct hdi_kept *kept); /* NULL is ignored */
void hdi_kept_forget(struct hdi_kept *kept);  /* the same, where the copies are released apart */
/* copy.c: a whole buffer from pinned memory into device memory; all of it is overwritten. */
hd_status hdi_copy_in(struct hd_buffer *dst, struct hd_buffer *src, hd_ticket *out);
/* ... and the other way. */
hd_status hdi_copy_out(struct hd_buffer *dst, struct hd_buffer *src, hd_ticket *out);
/* The copy that the last save finished in time has written; NULL: there is none. No save may be submitted meanwhile. */
struct hd_buffer *hdi_kept_newest(struct hdi_kept *kept, hd_runtime *rt);

/* Checks a handle and a range of it; 'who' for the message. Errors: HANDLE, DEVICE_LOST, RANGE. */
hd_status hdi_buffer_check(const hd_buffer *handle, size_t offset, size_t bytes, const char *who,
                           struct hd_buffer **out);

/* Blocks until submitted writers of [low, high) are done, for HD_WRITE readers too; for HD_READ then says whether the content is
 * good. Errors: TIMEOUT, FAILED, DEVICE_LOST. */
hd_status hdi_buffer_settle(struct hd_buffer *b, uint64_t low, uint64_t high, unsigned access, int64_t deadline,
                            const char *who);

/* The program has replaced the bytes [low, high) of settled pinned memory: writes that failed before no longer matter. */
void hdi_buffer_host_wrote(struct hd_buffer *b, uint64_t low, uint64_t high);

/* Whether kernels of device `from` can use memory that `owner` owns; asks the driver and maps the owner's memory for it on first need. */
bool hdi_reach(hd_runtime *rt, int from, int owner);

/* A device was lost: who reaches whom is found out again. */
void hdi_reach_forget(hd_runtime *rt, int device);

/* Fails with UNREACHABLE, saying why and what else can be done. */
hd_status hdi_reach_failed(hd_runtime *rt, int from, int owner, const char *who);

#endif
