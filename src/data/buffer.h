/* buffer.h - the structure behind hd_buffer, and what the layers below need of it. */
#ifndef HDI_DATA_BUFFER_H
#define HDI_DATA_BUFFER_H

#include <heddle/buffer.h>
#include "data/uses.h"
#include "memory/pinned.h"

#define HDI_BUFFER_MAGIC 0x42554646u
#define HDI_OWNER_HOST (-1)

struct hd_buffer {
    hdi_handle_head head;
    uint8_t order;    /* number of the order lock, see hdi_order_lock */
    int32_t owner;    /* device, or HDI_OWNER_HOST */
    uint64_t address; /* what kernels see */
    uint64_t bytes;
    hd_runtime *runtime;
    hdi_uses uses;       /* under the order lock */
    unsigned char *host; /* what the program sees; NULL for device memory */
    hdi_pinned pinned;   /* for HDI_OWNER_HOST */
    struct hd_buffer *next;
};

/* The buffer behind a live handle, NULL for any other value. */
static inline struct hd_buffer *hdi_buffer_from_handle(const hd_buffer *handle)
{
    struct hd_buffer *b = (struct hd_buffer *)hdi_handle_object(handle);
    return b && hdi_handle_fits(handle, &b->head, HDI_BUFFER_MAGIC) ? b : NULL;
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

/* Checks a handle and a range of it; 'who' for the message. Errors: HANDLE, RANGE. */
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

/* Fails with UNREACHABLE, saying why and what else can be done. */
hd_status hdi_reach_failed(hd_runtime *rt, int from, int owner, const char *who);

#endif
