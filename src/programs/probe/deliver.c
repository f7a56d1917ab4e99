/* deliver.c - whether bytes arrive: sentinel, one-way transfer, a look by the owner of the bytes alone.
 *
 * Each case has three steps. The device that owns the bytes fills them, and what lies around them, with a sentinel. The case moves a fresh
 * pattern there in one way. The owner reads the bytes back. So none of these looks right: a transfer that only the writer sees, one that
 * never left, and bytes that were there before.
 */
#include <stdio.h>
#include <string.h>
#include "transfer/transfer.h"
#include "programs/probe/pattern.h"
#include "programs/probe/probe.h"

#define SENTINEL 0xa5u
#define BLOCK 256 /* threads */
#define BLOCKS_MOST 512u
#define COUNTERS 16
#define COUNT_BLOCKS 16
#define COUNT_TIMES 8

/* A range of the larger buffer, and one of the other: what is far begins `far_at` bytes behind the margin. */
typedef struct hdi_case {
    size_t bytes, far_at, near_at;
    uint32_t width; /* of kernels' accesses */
} hdi_case;

/* Rising, so that the first one that fails shows most. Ends and beginnings at all alignments; more than a piece of memory (2 MiB). */
static const hdi_case cases[] = {
    {4, 0, 0, 4},
    {8, 12, 4, 4},
    {1, 4095, 3, 1},
    {1000, 3, 5, 1},
    {4092, 0, 16, 16},
    {((size_t)64 << 10) + 12, 4, 8, 4},
    {((size_t)64 << 10) + 7, 1, 1, 1},
    {((size_t)2 << 20), 0, 0, 16},
    {((size_t)2 << 20) + 5, 8, 24, 8},
    {((size_t)16 << 20), 16, 0, 16},
};

static bool failed(const hdi_subject *s, hd_status status)
{
    if (status) {
        hdi_record_failed(s->runtime);
    }
    return status != HD_OK;
}

/* ---- what the owner of the bytes does ---- */

/* Fills a range and what is looked at around it. */
static hd_status fill(hd_buffer *b, size_t at, size_t bytes)
{
    size_t from = (at - HDI_AROUND) / 4 * 4, to = (at + bytes + HDI_AROUND + 3) / 4 * 4;
    hd_ticket ticket;
    hd_status status = hd_fill(b, from, SENTINEL * 0x01010101u, to - from, &ticket);
    return status ? status : hd_wait(ticket, HD_FOREVER);
}

/* True: bytes and surroundings are as they should be. */
static hdi_outcome look(hdi_subject *s, hd_buffer *b, size_t at, size_t bytes)
{
    if (failed(s, hd_read(b, at - HDI_AROUND, s->scratch, bytes + 2 * HDI_AROUND))) {
        return HDI_OUTCOME_FAILED;
    }
    const uint8_t *range = s->scratch + HDI_AROUND;
    size_t wrong = hdi_pattern_check(range, bytes, s->seed);
    if (wrong < bytes) {
        hdi_record_wrong(HDI_RECORD_WRONG, (int64_t)wrong, range[wrong], hdi_pattern_byte(s->seed, wrong));
        return HDI_OUTCOME_BAD;
    }
    for (size_t i = 0; i < HDI_AROUND; i++) {
        if (range[bytes + i] != SENTINEL) {
            hdi_record_wrong(HDI_RECORD_BESIDE, (int64_t)(bytes + i), range[bytes + i], SENTINEL);
            return HDI_OUTCOME_BAD;
        }
        if (range[-(ptrdiff_t)i - 1] != SENTINEL) {
            hdi_record_wrong(HDI_RECORD_BESIDE, -(int64_t)i - 1, range[-(ptrdiff_t)i - 1], SENTINEL);
            return HDI_OUTCOME_BAD;
        }
    }
    return HDI_OUTCOME_GOOD;
}

/* ---- transfers ---- */

static hd_dims blocks_for(size_t bytes, uint32_t width)
{
    size_t blocks = (bytes / width + BLOCK - 1) / BLOCK;
    return (hd_dims){blocks == 0 ? 1 : blocks < BLOCKS_MOST ? (uint32_t)blocks : BLOCKS_MOST, 1, 1};
}

static hd_status launch(hdi_subject *s, int device, hd_kernel *kernel, hd_dims grid, const hd_arg *args, size_t n)
{
    hd_ticket ticket;
    hd_lane *lane = NULL;
    hd_status status = hd_lane_get_default(s->runtime, device, &lane);
    status = status ? status : hd_launch(lane, kernel, grid, (hd_dims){.x = BLOCK}, 0, args, n, &ticket);
    return status ? status : hd_wait(ticket, HD_FOREVER);
}

/* A fresh pattern, by a kernel of `device`. */
static hd_status store(hdi_subject *s, int device, hd_buffer *b, size_t at, size_t bytes, uint32_t width)
{
    const hd_arg args[] = {hd_out_range(b, at, bytes), hd_u64(bytes), hd_u64(s->seed), hd_u32(width)};
    return launch(s, device, s->store, blocks_for(bytes, width), args, 4);
}

/* By the copy engine of the tested device, whichever way hd_copy would go. */
static hd_status copy(hdi_subject *s, hd_buffer *dst, size_t dst_at, hd_buffer *src, size_t src_at, size_t bytes)
{
    hd_lane *lane = s->runtime->devices[s->device]->lane_on;
    hd_ticket ticket;
    hd_status status = hdi_copy_submit(lane, HDI_COPY_ON_DEVICE, hdi_place_of(hdi_buffer_from_any_handle(dst)), dst_at,
                                       hdi_place_of(hdi_buffer_from_any_handle(src)), src_at, bytes, &ticket);
    return status ? status : hd_wait(ticket, HD_FOREVER);
}

/* ---- cases ---- */

/* What is moved to the owner: the far bytes are looked at. */
static hdi_outcome try_to(hdi_subject *s, const hdi_case *c, bool by_copy)
{
    size_t far_at = HDI_MARGIN + c->far_at, near_at = HDI_MARGIN + c->near_at;
    s->seed++;
    if (failed(s, fill(s->far, far_at, c->bytes))) {
        return HDI_OUTCOME_FAILED;
    }
    if (by_copy) {
        hdi_pattern_fill(s->scratch, c->bytes, s->seed);
        if (failed(s, hd_write(s->near, near_at, s->scratch, c->bytes))) {
            return HDI_OUTCOME_FAILED;
        }
    }
    hdi_record_step(by_copy ? HDI_STEP_COPY_TO : HDI_STEP_STORE, c->bytes);
    hd_status status = by_copy ? copy(s, s->far, far_at, s->near, near_at, c->bytes)
                               : store(s, s->device, s->far, far_at, c->bytes, c->width);
    return failed(s, status) ? HDI_OUTCOME_FAILED : look(s, s->far, far_at, c->bytes);
}

/* Fetches bytes that the owner has made by itself: the near bytes are looked at. */
static hdi_outcome try_from(hdi_subject *s, const hdi_case *c, bool by_copy)
{
    size_t far_at = HDI_MARGIN + c->far_at, near_at = HDI_MARGIN + (by_copy ? c->near_at : c->far_at);
    s->seed++;
    if (failed(s, store(s, s->owner, s->far, far_at, c->bytes, c->width)) ||
        failed(s, fill(s->near, near_at, c->bytes))) {
        return HDI_OUTCOME_FAILED;
    }
    hdi_record_step(by_copy ? HDI_STEP_COPY_FROM : HDI_STEP_LOAD, c->bytes);
    hd_status status;
    if (by_copy) {
        status = copy(s, s->near, near_at, s->far, far_at, c->bytes);
    } else {
        const hd_arg args[] = {hd_out_range(s->near, near_at, c->bytes), hd_in_range(s->far, far_at, c->bytes),
                               hd_u64(c->bytes), hd_u32(c->width)};
        status = launch(s, s->device, s->load, blocks_for(c->bytes, c->width), args, 4);
    }
    return failed(s, status) ? HDI_OUTCOME_FAILED : look(s, s->near, near_at, c->bytes);
}

/* ---- counting ---- */

typedef struct counters {
    uint64_t large[COUNTERS];
    uint32_t small[COUNTERS];
    float floats[COUNTERS];
} counters;

static hdi_outcome try_counting(hdi_subject *s)
{
    counters c;
    hd_ticket ticket;
    hd_status status = hd_fill(s->far, HDI_MARGIN, 0, sizeof c, &ticket);
    status = status ? status : hd_wait(ticket, HD_FOREVER);
    if (failed(s, status)) {
        return HDI_OUTCOME_FAILED;
    }
    hdi_record_step(HDI_STEP_COUNT, sizeof c);
    const hd_arg args[] = {hd_inout_range(s->far, HDI_MARGIN, sizeof c), hd_u32(COUNTERS), hd_u32(COUNT_TIMES)};
    status = launch(s, s->device, s->count, (hd_dims){COUNT_BLOCKS, 1, 1}, args, 3);
    status = status ? status : hd_read(s->far, HDI_MARGIN, &c, sizeof c);
    if (failed(s, status)) {
        return HDI_OUTCOME_FAILED;
    }
    const uint64_t expected = (uint64_t)COUNT_BLOCKS * BLOCK / COUNTERS * COUNT_TIMES;
    for (int i = 0; i < COUNTERS; i++) {
        const uint64_t found[] = {c.large[i], c.small[i], (uint64_t)(c.floats[i] >= 0 ? c.floats[i] : 0)};
        for (int k = 0; k < 3; k++) {
            if (found[k] != expected) {
                hdi_record_wrong(HDI_RECORD_MISCOUNT, k * COUNTERS + i, found[k], expected);
                return HDI_OUTCOME_BAD;
            }
        }
    }
    hdi_record_plain(HDI_RECORD_COUNTS);
    return HDI_OUTCOME_GOOD;
}

/* ---- all ---- */

hdi_outcome hdi_deliver(hdi_subject *s)
{
    static hdi_outcome (*const directions[])(hdi_subject *, const hdi_case *, bool) = {try_to, try_from};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const hdi_case *c = &cases[i];
        if (c->bytes + c->far_at > s->room || c->bytes + c->near_at > s->room) {
            continue; /* there is no memory for it */
        }
        for (int d = 0; d < 2; d++) {
            for (int by_copy = 1; by_copy >= 0; by_copy--) {
                hdi_outcome outcome = directions[d](s, c, by_copy);
                if (outcome != HDI_OUTCOME_GOOD) {
                    return outcome;
                }
            }
        }
    }
    return s->claims_atomics ? try_counting(s) : HDI_OUTCOME_GOOD;
}
