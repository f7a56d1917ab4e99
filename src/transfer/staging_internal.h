/* staging_internal.h - what the two files of the staging pools share.
 *
 * staging_pools.c makes the pools, and staging.c takes chunks from them. See staging.h for threads,
 * locks and guarantees.
 */
#ifndef HDI_TRANSFER_STAGING_INTERNAL_H
#define HDI_TRANSFER_STAGING_INTERNAL_H

#include "buffer/reclaim.h"
#include "transfer/part.h"
#include "transfer/staging.h"

/* the number of pools of a device, and of an ordered pair of devices */
enum { HDI_STAGING_OF_DEVICE = 4, HDI_STAGING_OF_PAIR = 3 };

struct hdi_stagings {
    /* NULL: never used */
    _Atomic(hdi_staging *) of_device[HDI_DEVICES_MAX * HDI_STAGING_OF_DEVICE];
    _Atomic(hdi_staging *) of_pair[HDI_DEVICES_MAX * HDI_DEVICES_MAX * HDI_STAGING_OF_PAIR];
    _Atomic(hdi_staging *) pools; /* all pools that were used; the newest first */
    /* the bytes of all chunks in the pools of devices, and in the pools of pairs */
    _Atomic uint64_t bytes, pair_bytes;
    _Atomic uint64_t apart_bytes; /* the bytes of all chunks that are counted (hdi_staging_count) */
    _Atomic uint32_t filled;      /* the number of chunks that have memory; the spare is none */
    /* the memory of the spare chunk, HDI_STAGING_SMALL bytes; NULL: not made, or a pool has it */
    _Atomic(struct hd_buffer *) spare;
    _Atomic bool spare_gone;     /* a pool got the spare, and there is no new one yet */
    _Atomic int64_t spare_again; /* clock time of the next attempt to make the spare */
    hdi_shrinker shrinker;
};

/* Calls `each` for every pool that was used. */
void hdi_staging_visit(hd_runtime *rt, void (*each)(hdi_staging *pool, void *context), void *context);

/* Frees all pools; hd_close frees their chunks. */
void hdi_stagings_release(hd_runtime *rt);

#endif
