/* array.c - hd_tensor_write and hd_tensor_read: between tensors and row-major elements in the program's memory.
 *
 * A contiguous tensor is written and read like bytes. Any other tensor goes through temporary device memory in
 * row-major order, a part at a time. For a write, a kernel unpacks each part from that memory. For a read, a kernel
 * packs each part into it.
 *
 * Threads: any.
 * Locks: none.
 * Blocking: as hd_write and hd_read.
 * Always: the temporary memory is freed before the call returns; submitted operations keep it until they are done.
 */
#include <string.h>
#include "base/error.h"
#include "engine/engine.h"
#include "tensor/copy.h"
#include "tensor/overlap.h"
#include <heddle/copy.h>

#define PART_BYTES ((uint64_t)16 << 20)
#define TURNS 2

/* Iterates over a tensor in row-major order, a part at a time. A part has up to `count` indices of dimension `dim`, one
 * index of each dimension before it, and all indices of those behind it. */
typedef struct parts {
    hd_tensor whole;
    int dim;
    uint64_t count; /* at most so many indices */
    uint64_t most;  /* bytes of the largest part, which is the first one */
    uint64_t index[HD_TENSOR_DIMS];
    size_t at; /* offset of the next part in the program's memory */
    bool more;
} parts;

static void begin(parts *p, const hd_tensor *t)
{
    *p = (parts){.whole = *t, .more = true};
    uint64_t bytes = hd_tensor_elements(t) * hd_type_size(t->type);
    while (p->dim < t->dims && bytes / t->shape[p->dim] > PART_BYTES) {
        bytes /= t->shape[p->dim++];
    }
    if (p->dim < t->dims) {
        uint64_t fit = PART_BYTES / (bytes / t->shape[p->dim]);
        p->count = fit < t->shape[p->dim] ? fit : t->shape[p->dim];
        bytes = bytes / t->shape[p->dim] * p->count;
    }
    p->most = bytes;
}

/* Returns the next part. *at, *bytes: where its elements are in the program's memory. */
static void next(parts *p, hd_tensor *part, size_t *at, uint64_t *bytes)
{
    *part = p->whole;
    *at = p->at;
    for (int i = 0; i < p->dim && i < part->dims; i++) {
        part->offset += p->index[i] * (uint64_t)part->stride[i];
        part->shape[i] = 1;
    }
    if (p->dim < part->dims) {
        uint64_t left = part->shape[p->dim] - p->index[p->dim];
        part->offset += p->index[p->dim] * (uint64_t)part->stride[p->dim];
        part->shape[p->dim] = left < p->count ? left : p->count;
        p->index[p->dim] += part->shape[p->dim];
    }
    *bytes = hd_tensor_elements(part) * hd_type_size(part->type);
    p->at += *bytes;
    int i = p->dim < part->dims ? p->dim : -1;
    while (i >= 0 && p->index[i] == p->whole.shape[i]) {
        p->index[i] = 0;
        if (--i >= 0) {
            p->index[i]++;
        }
    }
    p->more = i >= 0;
}

static hdi_device *device_of(const struct hd_buffer *b)
{
    int owner = b->owner; /* read once: the structure may become another buffer's, which the submission detects */
    return owner == HDI_OWNER_HOST ? hdi_any_device(b->runtime) : b->runtime->devices[owner];
}

/* The program's memory may overlap the tensor, if the tensor's buffer is pinned. Then a part could be written before
 * another one is read. */
static hd_status check_apart(const hdi_extent *e, const void *memory, uint64_t bytes)
{
    const struct hd_buffer *b = e->buffer;
    uintptr_t at = (uintptr_t)memory, low = (uintptr_t)b->host + e->low, high = (uintptr_t)b->host + e->high;
    return b->owner == HDI_OWNER_HOST && at < high && low < at + bytes
               ? hdi_fail(HD_ERROR_ARGUMENT, "the program's %llu bytes overlap those of the buffer",
                          (unsigned long long)bytes)
               : HD_OK;
}

hd_status hd_tensor_write(const hd_tensor *dst, const void *src)
{
    HDI_INSIDE(dst ? hdi_buffer_runtime(dst->buffer) : NULL);
    hdi_extent to;
    hd_status status = hdi_tensor_check(dst, "dst", &to);
    if (status || to.elements == 0) {
        return status;
    }
    if (!src) {
        return hdi_fail(HD_ERROR_ARGUMENT, "src is null");
    }
    if (hd_tensor_is_contiguous(dst)) {
        return hd_write(dst->buffer, dst->offset, src, to.high - to.low);
    }
    if (hdi_tensor_repeats(dst)) {
        char text[HDI_TENSOR_TEXT_BYTES];
        return hdi_fail(HD_ERROR_ARGUMENT, "the strides of dst, %s, lead to an element twice, or to parts of others",
                        hdi_tensor_text(dst, text));
    }
    status = check_apart(&to, src, to.elements * hd_type_size(dst->type));
    hd_buffer *memory[TURNS] = {NULL, NULL};
    parts p;
    begin(&p, dst);
    for (int turn = 0; p.more && !status; turn = (turn + 1) % TURNS) {
        hd_tensor part;
        size_t at;
        uint64_t bytes;
        next(&p, &part, &at, &bytes);
        if (!memory[turn]) {
            status = hdi_tensor_scratch(device_of(to.buffer), p.most, &memory[turn]);
        }
        status = status ? status : hd_write(memory[turn], 0, (const unsigned char *)src + at, bytes);
        hd_tensor packed = hdi_tensor_row_major(&part, memory[turn]);
        status = status ? status : hdi_tensor_copy(&part, &packed, NULL, NULL);
    }
    for (int i = 0; i < TURNS; i++) {
        hdi_free(memory[i]);
    }
    return status;
}

hd_status hd_tensor_read(const hd_tensor *src, void *dst)
{
    HDI_INSIDE(src ? hdi_buffer_runtime(src->buffer) : NULL);
    hdi_extent from;
    hd_status status = hdi_tensor_check(src, "src", &from);
    if (status || from.elements == 0) {
        return status;
    }
    if (!dst) {
        return hdi_fail(HD_ERROR_ARGUMENT, "dst is null");
    }
    if (hd_tensor_is_contiguous(src)) {
        return hd_read(src->buffer, src->offset, dst, from.high - from.low);
    }
    uint64_t total;
    if (!hdi_tensor_bytes(src, &total)) {
        char text[HDI_TENSOR_TEXT_BYTES];
        return hdi_fail(HD_ERROR_ARGUMENT, "%s takes 2^63 bytes or more", hdi_tensor_text(src, text));
    }
    status = check_apart(&from, dst, total);
    /* A kernel packs one part while the part before it is read. */
    hd_buffer *memory[TURNS] = {NULL, NULL};
    size_t at[TURNS] = {0, 0};
    uint64_t bytes[TURNS] = {0, 0};
    parts p;
    begin(&p, src);
    int turn = 0;
    for (bool last = false; !last && !status; turn = (turn + 1) % TURNS) {
        bytes[turn] = 0;
        last = !p.more;
        if (p.more) {
            hd_tensor part;
            next(&p, &part, &at[turn], &bytes[turn]);
            if (!memory[turn]) {
                status = hdi_tensor_scratch(device_of(from.buffer), p.most, &memory[turn]);
            }
            hd_tensor packed = hdi_tensor_row_major(&part, memory[turn]);
            status = status ? status : hdi_tensor_copy(&packed, &part, NULL, NULL);
        }
        int before = (turn + 1) % TURNS;
        if (!status && bytes[before]) {
            status = hd_read(memory[before], 0, (unsigned char *)dst + at[before], bytes[before]);
        }
    }
    for (int i = 0; i < TURNS; i++) {
        hdi_free(memory[i]);
    }
    return status;
}
