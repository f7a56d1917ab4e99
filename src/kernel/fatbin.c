/* fatbin.c - the parts of a fatbin: PTX and cubins for several GPUs.
 *
 * Layout; all numbers are little-endian:
 *     container    u32 magic, u16 1, u16 bytes of this header, u64 bytes of the parts
 *     part         u16 kind, u16, u32 bytes of this header, u64 bytes of the content, u32 bytes
 *                  used of the content, ...; at byte 40 u64 flags, at byte 56 u64 bytes when
 *                  unpacked
 *
 * A fatbin may consist of several containers, one after the other.
 *
 * Threads: any; no state. Locks: none. Blocking: the first part that is compressed with zstd opens
 * a library.
 * Always: as in listing.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "kernel/listing.h"
#include "kernel/unpack.h"

#define MAGIC 0xba55ed50u
#define PACKED_LZ4 ((uint64_t)0x2000) /* flags */
#define PACKED_ZSTD ((uint64_t)0x8000)
#define UNPACKED_MOST ((uint64_t)256 << 20) /* the most, if the size is damaged */

enum { PTX = 1, CUBIN = 2, INTERMEDIATE = 8, CONTAINER_BYTES = 16, PART_BYTES_LEAST = 64 };

typedef struct part {
    uint16_t kind;
    const char *content;
    size_t bytes; /* the bytes of the content that are in use */
    uint64_t flags, unpacked;
} part;

bool hdi_fatbin_detect(const void *image, size_t bytes)
{
    uint32_t magic = 0;
    memcpy(&magic, image, bytes >= sizeof magic ? sizeof magic : 0);
    return magic == MAGIC;
}

/* Takes the part at *at. False: the part is cut off. */
static bool fatbin_next_part(const char **at, const char *end, part *out)
{
    uint32_t header, counts;
    uint64_t bytes;
    size_t left = (size_t)(end - *at);
    if (left < PART_BYTES_LEAST) {
        return false;
    }
    memcpy(&out->kind, *at, 2);
    memcpy(&header, *at + 4, 4);
    memcpy(&bytes, *at + 8, 8);
    memcpy(&counts, *at + 16, 4);
    memcpy(&out->flags, *at + 40, 8);
    memcpy(&out->unpacked, *at + 56, 8);
    if (header < PART_BYTES_LEAST || header > left || bytes > left - header) {
        return false;
    }
    out->content = *at + header;
    out->bytes = counts && counts <= bytes ? counts : (size_t)bytes;
    *at += header + bytes;
    return true;
}

static hd_status fatbin_add_content(hdi_listing *listing, uint16_t kind, const char *content, size_t bytes)
{
    if (kind == CUBIN) {
        return hdi_listing_add_cubin(listing, content, bytes);
    }
    /* if the PTX is of a version that this code cannot read, the driver may still take a cubin */
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    hd_status status = hdi_listing_add_ptx(listing, content, bytes);
    if (status == HD_ERROR_IMAGE) {
        hdi_listing_unread(listing, attempt.error.message);
        status = HD_OK;
    }
    return hdi_attempt_result(&attempt, status);
}

static hd_status fatbin_add_packed(hdi_listing *listing, const part *p)
{
    if (p->unpacked == 0 || p->unpacked > UNPACKED_MOST) {
        hdi_listing_unread(listing, "the size of a compressed part is damaged");
        return HD_OK;
    }
    bool is_zstd = (p->flags & PACKED_ZSTD) != 0;
    if (is_zstd && !hdi_unpack_has_zstd()) {
        hdi_listing_unread(listing, "it is compressed with zstd, and libzstd.so.1 cannot be opened");
        return HD_OK;
    }
    size_t bytes = (size_t)p->unpacked;
    char *content = malloc(bytes);
    if (!content) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory to unpack a fatbin");
    }
    hd_status status = HD_OK;
    if (is_zstd ? hdi_unpack_zstd(p->content, p->bytes, content, bytes)
                : hdi_unpack_lz4(p->content, p->bytes, content, bytes)) {
        status = fatbin_add_content(listing, p->kind, content, bytes);
    } else {
        hdi_listing_unread(listing, "a compressed part is damaged");
    }
    free(content);
    return status;
}

static hd_status fatbin_add_parts(hdi_listing *listing, const char *at, const char *end)
{
    hd_status status = HD_OK;
    part p;
    while (at < end && !status) {
        if (!fatbin_next_part(&at, end, &p)) {
            hdi_listing_unread(listing, "a fatbin is damaged or cut off");
            return HD_OK;
        }
        if (p.kind != PTX && p.kind != CUBIN) {
            listing->intermediate = listing->intermediate || p.kind == INTERMEDIATE;
            continue;
        }
        bool packed = (p.flags & (PACKED_LZ4 | PACKED_ZSTD)) != 0;
        status = packed ? fatbin_add_packed(listing, &p) : fatbin_add_content(listing, p.kind, p.content, p.bytes);
    }
    return status;
}

hd_status hdi_listing_add_fatbin(hdi_listing *listing, const void *image, size_t bytes)
{
    const char *at = image, *end = at + bytes;
    hd_status status = HD_OK;
    while (!status && hdi_fatbin_detect(at, (size_t)(end - at))) {
        uint16_t header;
        uint64_t parts;
        if (end - at < CONTAINER_BYTES) {
            hdi_listing_unread(listing, "a fatbin is cut off");
            break;
        }
        memcpy(&header, at + 6, 2);
        memcpy(&parts, at + 8, 8);
        size_t left = (size_t)(end - at);
        if (header < CONTAINER_BYTES || header > left || parts > left - header) {
            hdi_listing_unread(listing, "a fatbin is damaged or cut off");
            break;
        }
        status = fatbin_add_parts(listing, at + header, at + header + parts);
        at += header + parts;
    }
    return status;
}
