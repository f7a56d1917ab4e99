/* copy.c - moves the elements of tensors: to other tensors (hd_tensor_copy), and between a tensor
 * and row-major elements in the program's memory (hd_tensor_write, hd_tensor_read).
 *
 * If both sides are runs of bytes, copy engines move the elements; otherwise kernels move them.
 *
 * If no device reaches both buffers, a kernel packs the elements on the source's device. A copy
 * moves them, and a kernel unpacks them on the destination's device. Packed elements are in the
 * order of the destination. An element that the source repeats is packed once. A side that is a run
 * of bytes in that order needs no packing or unpacking. Large tensors move in parts, which use two
 * pieces of memory on each device in turn. So the kernels of one part run while the part before it
 * is copied. Each part ends after the part before it, so the last ticket stands for all parts.
 *
 * A contiguous tensor is written and read like bytes. Any other tensor goes through temporary
 * device memory in row-major order, a part at a time. For a write, a kernel unpacks each part from
 * the temporary memory. For a read, a kernel packs each part into that memory.
 *
 * Threads: any.
 * Locks: none of its own.
 * Blocking: a call waits while a lane is full, and while the first copy loads the kernels. For
 * temporary memory it waits as hd_alloc does. Writes and reads wait as hd_write and hd_read do.
 * Always:
 * - Every launch is an operation of its own in a copy lane. Only the buffers' use records decide
 *   its order.
 * - Nothing is submitted before both tensors pass all checks.
 * - Temporary memory is freed before the call returns; submitted operations keep it until they are
 *   done.
 */
#include <assert.h>
#include <heddle/copy.h>
#include <heddle/tensor.h>
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "buffer/parked.h"
#include "engine/engine.h"
#include "kernel/module.h"
#include "tensor/part.h"
#include "tensor/plan.h"
#include "tensor/tensor.h"
#include "transfer/transfer.h"

#define PART_BYTES ((uint64_t)64 << 20) /* the bytes of a part of a copy between devices */
#define ARRAY_PART_BYTES ((uint64_t)16 << 20)
/* The most pieces of memory that hdi_tensor_scratch sets aside while it looks for a piece that does
 * not wait for work of the program. */
#define ASIDE_MOST 64
#define TURNS 2

/* A copy, with the buffers and addresses at the time when their handles were checked. Each
 * submission checks the handles again. */
typedef struct tensor_job {
    hd_runtime *rt;
    const hdi_plan_wish *wish; /* NULL: none */
    hdi_place dst, src;
    uint64_t dst_address, src_address; /* the addresses of the buffers' first bytes */
    bool packed;                       /* the source was packed by another part of this copy */
} tensor_job;

/* ---- launching ---- */

_Static_assert(HDI_PLAN_KERNELS <= HDI_TENSOR_KERNELS, "hd_runtime.tensor_kernels has room");

/* Finds the kernel of a plan. The first look-up loads the module, which may take long. */
static hd_status tensor_job_find_kernel(hd_runtime *rt, const hdi_plan *plan, struct hd_kernel **out)
{
    _Atomic(struct hd_kernel *) *known = &hdi_tensor_of(rt)->tensor_kernels[plan->number];
    /* Pairs with the release store below, so that the kernel's structure is complete. */
    struct hd_kernel *k = atomic_load_explicit(known, memory_order_acquire);
    if (!k) {
        hd_module *module = NULL;
        hd_kernel *handle = NULL;
        hd_status status = hdi_builtin_get(rt, HDI_BUILTIN_TENSOR, &module);
        status = status ? status : hd_kernel_get(module, plan->kernel, &handle);
        if (status) {
            return status;
        }
        k = hdi_kernel_of_builtin(handle);
        atomic_store_explicit(known, k, memory_order_release);
    }
    *out = k;
    return HD_OK;
}

/* Gets the range of bytes from the first to the last element of one side, as offsets in its buffer.
 * `at`: the offset of the element with all indices 0. */
static void tensor_layout_span(const hdi_layout *l, uint64_t at, const int64_t *stride, uint64_t *low, uint64_t *high)
{
    *low = at;
    *high = at + l->element;
    for (int i = 0; i < l->dims; i++) {
        uint64_t way = (l->shape[i] - 1) * (uint64_t)stride[i];
        *(stride[i] < 0 ? low : high) += way;
    }
}

/* The kernel's argument block. */
typedef struct arguments {
    uint64_t dst, src;
    union {
        hd_tensor_units units;
        hd_tensor_tile tile;
    };
} arguments;

static hd_status tensor_job_launch(const tensor_job *job, const hdi_layout *l, const hdi_plan *plan, hd_lane *lane,
                                   hdi_point *after, hd_ticket *out)
{
    if (job->dst.losses == HDI_LOST || job->src.losses == HDI_LOST) {
        const struct hd_buffer *lost = job->dst.losses == HDI_LOST ? job->dst.buffer : job->src.buffer;
        return hdi_loss_fail(job->rt, lost->owner, "a buffer's content was lost meanwhile");
    }
    struct hd_kernel *kernel = NULL;
    hd_status status = tensor_job_find_kernel(job->rt, plan, &kernel);
    if (status) {
        return status;
    }
    arguments block;
    block.dst = plan->dst;
    block.src = plan->src;
    if (plan->kind == HDI_PLAN_UNITS) {
        block.units = plan->units;
    } else {
        block.tile = plan->tile;
    }
    hdi_use uses[2] = {
        {.buffer = job->src.buffer, .losses = job->src.losses, .word = job->src.word, .read = true},
        {.buffer = job->dst.buffer, .losses = job->dst.losses, .word = job->dst.word, .write = true},
    };
    tensor_layout_span(l, l->src - job->src_address, l->src_stride, &uses[0].low, &uses[0].high);
    tensor_layout_span(l, l->dst - job->dst_address, l->dst_stride, &uses[1].low, &uses[1].high);
    for (int i = 0; i < 2; i++) {
        uses[i].whole = uses[i].low == 0 && uses[i].high == uses[i].buffer->bytes;
    }
    /* If other bytes lie between the elements, these bytes do not change. So the operation then
     * also counts as a reader of the destination. */
    uint64_t written = l->element;
    for (int i = 0; i < l->dims; i++) {
        written *= l->shape[i];
    }
    uses[1].read = written != uses[1].high - uses[1].low;
    /* The first part may already change the content. So from the second part on, a failure of an
     * earlier part makes the operation fail, but not its submission. */
    hdi_linked link = {.after = *after, .ours = after->position ? 3 : job->packed};
    hd_ticket ticket;
    status = hdi_launch_linked(lane, kernel, plan->grid, plan->block, 0, &block, uses, 2, link, &ticket);
    if (!status) {
        *after = hdi_ticket_point(ticket);
        *out = ticket;
    }
    return status;
}

/* Moves the elements of a layout by kernels. The layout need not be canonical. The lane's device
 * reaches both buffers. *after: for a copy in several parts, the first launch comes after this
 * point (hdi_linked). Then *after becomes the point of the last launch. *out: the ticket of the
 * last launch.
 * Errors: as hdi_launch_linked and hd_kernel_get; UNSUPPORTED (the wish cannot be granted). */
static hd_status tensor_job_run(const tensor_job *job, hdi_layout layout, hd_lane *lane, hdi_point *after,
                                hd_ticket *out)
{
    const hdi_plan_device facts = {job->rt->provider->threads_parallel, (uint32_t)lane->device->facts.multiprocessors};
    /* The upper parts of layouts that were cut; each part is at most half as large as the one
     * before. */
    hdi_layout waiting[64];
    int n = 0;
    hd_status status = HD_OK;
    hdi_layout_canonicalize(&layout);
    for (;;) {
        hdi_plan plan;
        hdi_plan_make(&layout, &facts, job->wish, &plan);
        if (plan.kind == HDI_PLAN_NONE) {
            assert(job->wish != NULL); /* without a wish, there is always a plan */
            return hdi_fail(HD_ERROR_UNSUPPORTED, "kernel %s cannot move these layouts", job->wish->kernel);
        }
        if (plan.kind == HDI_PLAN_CUT) {
            if (n == (int)(sizeof waiting / sizeof waiting[0])) {
                return hdi_fail(HD_ERROR_LIMIT, "too large for %d launches", n);
            }
            hdi_layout_cut(&layout, plan.cut_dim, plan.cut_at, &waiting[n++]);
            continue;
        }
        status = tensor_job_launch(job, &layout, &plan, lane, after, out);
        if (status || n == 0) {
            return status;
        }
        layout = waiting[--n];
    }
}

/* Moves a run of bytes, as hd_copy does. `dst_at`, `src_at`: offsets in the buffers. Errors: as
 * hd_copy. */
static hd_status tensor_job_run_bytes(const tensor_job *job, uint64_t dst_at, uint64_t src_at, uint64_t bytes,
                                      hdi_point *after, hd_ticket *out)
{
    const hdi_box box = hdi_box_of_bytes(bytes);
    const hdi_transfer transfer = {
        .to = job->dst, .from = job->src, .dst_offset = dst_at, .src_offset = src_at, .box = &box, .after = *after};
    hd_status status = hdi_transfer_run(&transfer, out);
    if (!status) {
        *after = hdi_ticket_point(*out);
    }
    return status;
}

/* The lane for kernels that move `bytes` on a device. Small copies use other lanes than large ones,
 * so that they do not wait behind large copies. */
static hd_lane *tensor_lane_for(hdi_device *device, uint64_t bytes)
{
    return hdi_copy_lane(device, HDI_WAY_ON, bytes <= HDI_QUICK_MEMORY ? HDI_LANES_QUICK : HDI_LANES_BULK);
}

/* Not inlined: its return address is the call site that memory_debug reports.
 * An operation on memory whose last use waits for work of the program would also wait for that
 * work. So the function sets such memory aside, and takes other memory while any is left. */
hd_status __attribute__((noinline)) hdi_tensor_scratch(hdi_device *device, uint64_t bytes, hd_buffer **out)
{
    hd_status status = hdi_copy_alive(device->lane_on);
    if (status) {
        return status;
    }
    const hd_alloc_options options = {.size = sizeof options, .label = hdi_call_name()};
    hd_lane *lane = hdi_lane_handle(hdi_parking_without_roots(device));
    hd_buffer *aside[ASIDE_MOST], *buffer = NULL;
    unsigned n = 0;
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    while (!status) {
        status = hdi_alloc_with(lane, bytes, &options, __builtin_return_address(0), &buffer);
        if (status || n == ASIDE_MOST || !hdi_buffer_has_root(hdi_buffer_of_own_handle(buffer))) {
            break;
        }
        aside[n++] = buffer;
    }
    if (status == HD_ERROR_MEMORY && n) {
        buffer = aside[--n]; /* no other memory is left */
        status = HD_OK;
    }
    for (unsigned i = 0; i < n; i++) {
        hdi_free(aside[i]);
    }
    if (!status) {
        *out = buffer;
    }
    return hdi_attempt_result(&attempt, status);
}

/* ---- between devices that do not reach each other ---- */

typedef struct staging {
    const tensor_job *job;
    uint64_t bytes; /* the bytes of each piece of temporary memory */
    hdi_device *to, *from;
    hd_lane *to_lane, *from_lane;              /* for kernels */
    hd_buffer *packed[TURNS], *arrived[TURNS]; /* NULL: not allocated so far */
    int turn;
    hdi_point done; /* the end of the previous part; the next part ends after it */
    hd_ticket *last;
} staging;

/* The bytes of a layout's elements, each counted once. */
static uint64_t tensor_layout_bytes(const hdi_layout *l)
{
    uint64_t bytes = l->element;
    for (int i = 0; i < l->dims; i++) {
        bytes *= l->src_stride[i] != 0 ? l->shape[i] : 1;
    }
    return bytes;
}

/* Splits a layout into two: from the source to packed elements, and from packed elements to the
 * destination. The packed elements begin at address 0. */
static void tensor_layout_halves(const hdi_layout *l, hdi_layout *pack, hdi_layout *unpack)
{
    *unpack = *l;
    *pack = *l;
    pack->dst = unpack->src = 0;
    int64_t next = (int64_t)l->element;
    for (int i = l->dims - 1; i >= 0; i--) {
        bool once = l->src_stride[i] == 0;
        pack->dst_stride[i] = next;
        pack->shape[i] = once ? 1 : l->shape[i];
        unpack->src_stride[i] = once ? 0 : next;
        next *= (int64_t)pack->shape[i];
    }
    hdi_layout_canonicalize(pack);
    hdi_layout_canonicalize(unpack);
}

static hd_status tensor_ensure_scratch(const staging *s, hdi_device *device, hd_buffer **buffer)
{
    return *buffer ? HD_OK : hdi_tensor_scratch(device, s->bytes, buffer);
}

/* The job with temporary memory on one side. If the device of that memory was lost after the
 * allocation, the launch notices the loss. */
static tensor_job tensor_job_with(const tensor_job *job, hd_buffer *own, bool is_dst)
{
    tensor_job half = *job;
    struct hd_buffer *b = hdi_buffer_of_own_handle(own);
    half.wish = NULL;
    half.packed = !is_dst;
    if (is_dst) {
        half.dst = hdi_place_of_handle(b, own);
        half.dst_address = b->address;
    } else {
        half.src = hdi_place_of_handle(b, own);
        half.src_address = b->address;
    }
    return half;
}

static hd_status tensor_job_move_part(staging *s, const hdi_layout *l)
{
    const tensor_job *job = s->job;
    hdi_layout pack, unpack;
    tensor_layout_halves(l, &pack, &unpack);
    uint64_t bytes = tensor_layout_bytes(l);
    hd_buffer **packed = &s->packed[s->turn], **arrived = &s->arrived[s->turn];
    s->turn = (s->turn + 1) % TURNS;
    tensor_job way = *job; /* the copy from the packed elements to the place where they arrive */
    uint64_t from_at = pack.src - job->src_address, to_at = unpack.dst - job->dst_address;
    hd_status status = HD_OK;
    if (!hdi_layout_is_run(&pack)) {
        status = tensor_ensure_scratch(s, s->from, packed);
        if (!status) {
            tensor_job half = tensor_job_with(job, *packed, true);
            hdi_point none = {0, 0};
            pack.dst += half.dst_address;
            status = tensor_job_run(&half, pack, s->from_lane, &none, s->last);
            way.src = half.dst;
            from_at = 0;
        }
    }
    if (hdi_layout_is_run(&unpack)) {
        return status ? status : tensor_job_run_bytes(&way, to_at, from_at, bytes, &s->done, s->last);
    }
    status = status ? status : tensor_ensure_scratch(s, s->to, arrived);
    if (!status) {
        tensor_job half = tensor_job_with(job, *arrived, false);
        hdi_point none = {0, 0};
        way.dst = half.src;
        unpack.src += half.src_address;
        status = tensor_job_run_bytes(&way, 0, from_at, bytes, &none, s->last);
        status = status ? status : tensor_job_run(&half, unpack, s->to_lane, &s->done, s->last);
    }
    return status;
}

/* Moves a layout in parts of at most s->bytes. Cuts it along the slowest dimension that the source
 * does not repeat. Parts that are still too large are cut again. */
static hd_status tensor_job_move_parts(staging *s, hdi_layout l)
{
    for (;;) {
        uint64_t bytes = tensor_layout_bytes(&l);
        if (bytes <= s->bytes) {
            return tensor_job_move_part(s, &l);
        }
        int dim = 0;
        while (l.src_stride[dim] == 0) {
            dim++;
        }
        uint64_t fit = s->bytes / (bytes / l.shape[dim]);
        hdi_layout rest;
        hdi_layout_cut(&l, dim, fit ? fit : 1, &rest);
        /* the recursion has at most one level for each dimension */
        hd_status status = tensor_job_move_parts(s, l);
        if (status) {
            return status;
        }
        l = rest;
    }
}

/* Moves elements between two buffers if no device reaches both. Packs a part on device `from`,
 * copies it to device `to`, and unpacks it there.
 * Errors: as hd_tensor_copy. */
static hd_status tensor_job_run_staged(const tensor_job *job, hdi_layout layout, int to, int from, hd_ticket *out)
{
    hdi_layout_canonicalize(&layout);
    uint64_t bytes = tensor_layout_bytes(&layout);
    staging s = {
        .job = job,
        .bytes = bytes < PART_BYTES ? bytes : PART_BYTES,
        .to = job->rt->devices[to],
        .from = job->rt->devices[from],
        .last = out,
    };
    s.to_lane = tensor_lane_for(s.to, s.bytes);
    s.from_lane = tensor_lane_for(s.from, s.bytes);
    hd_status status = tensor_job_move_parts(&s, layout);
    for (int i = 0; i < TURNS; i++) {
        hdi_free(s.packed[i]);
        hdi_free(s.arrived[i]);
    }
    return status;
}

/* ---- choosing the way ---- */

/* A device that reaches both buffers, and moves the elements faster than a copy through pinned
 * memory. NULL: no device does. `dst` and `src`: the owners, which the caller read once. */
static hdi_device *tensor_device_for(struct hd_buffer *to, int dst, struct hd_buffer *from, int src)
{
    hd_runtime *rt = to->runtime;
    if (src < 0 && dst < 0) {
        return hdi_any_device(rt);
    }
    if (src < 0 || dst < 0 || src == dst) {
        return rt->devices[src < 0 ? dst : src];
    }
    int by = hdi_buffers_access_between(from, src, to, dst);
    return by < 0 ? NULL : rt->devices[by];
}

/* ---- checks ---- */

static hd_status tensor_check_pair(const hd_tensor *dst, const hdi_extent *to, const hd_tensor *src,
                                   const hdi_extent *from, hd_tensor *fitted)
{
    char dst_text[HDI_TENSOR_TEXT_BYTES], src_text[HDI_TENSOR_TEXT_BYTES];
    if (to->buffer->runtime != from->buffer->runtime) {
        return hdi_fail(HD_ERROR_HANDLE, "the buffers belong to different runtimes");
    }
    if (dst->type != src->type) {
        return hdi_fail(HD_ERROR_ARGUMENT, "dst is %s, src is %s: the types must be the same",
                        hdi_tensor_text(dst, dst_text), hdi_tensor_text(src, src_text));
    }
    if (!hdi_tensor_broadcast_to(src, dst->dims, dst->shape, fitted)) {
        return hdi_fail(HD_ERROR_ARGUMENT,
                        "dst is %s, src is %s, which is not the same shape and cannot be repeated to it",
                        hdi_tensor_text(dst, dst_text), hdi_tensor_text(src, src_text));
    }
    if (to->elements == 0) {
        return HD_OK;
    }
    if (hdi_tensor_repeats(dst)) {
        return hdi_fail(HD_ERROR_ARGUMENT, "the strides of dst, %s, lead to an element twice, or to parts of others",
                        hdi_tensor_text(dst, dst_text));
    }
    if (to->buffer == from->buffer && hdi_tensors_overlap(dst, to, fitted, from)) {
        return hdi_fail(HD_ERROR_ARGUMENT, "dst, bytes %llu..%llu, and src, bytes %llu..%llu of one buffer, overlap",
                        (unsigned long long)to->low, (unsigned long long)to->high, (unsigned long long)from->low,
                        (unsigned long long)from->high);
    }
    return HD_OK;
}

static void tensor_layout_of(const hd_tensor *dst, const hd_tensor *src, const tensor_job *job, hdi_layout *out)
{
    out->element = (uint32_t)hd_type_size(dst->type);
    out->dims = dst->dims;
    out->dst = job->dst_address + dst->offset;
    out->src = job->src_address + src->offset;
    for (int i = 0; i < dst->dims; i++) {
        out->shape[i] = dst->shape[i];
        out->dst_stride[i] = dst->stride[i];
        out->src_stride[i] = src->stride[i];
    }
    hdi_layout_canonicalize(out);
}

hd_status hdi_tensor_copy_as(const hd_tensor *dst, const hd_tensor *src, const hdi_plan_wish *wish, hd_ticket *out)
{
    hdi_extent to, from;
    hd_tensor fitted;
    hd_status status = hdi_tensor_check(dst, "dst", &to);
    status = status ? status : hdi_tensor_check(src, "src", &from);
    status = status ? status : tensor_check_pair(dst, &to, src, &from, &fitted);
    if (status) {
        return status;
    }
    hd_ticket ticket = {NULL, 0};
    if (to.elements > 0) {
        tensor_job job = {
            .rt = to.buffer->runtime,
            .wish = wish,
            .dst = hdi_place_of_handle(to.buffer, dst->buffer),
            .src = hdi_place_of_handle(from.buffer, src->buffer),
            .dst_address = to.buffer->address,
            .src_address = from.buffer->address,
        };
        /* The owners are read once. If another buffer takes over a structure, the submission
         * notices this. */
        int dst_owner = to.buffer->owner, src_owner = from.buffer->owner;
        hdi_layout layout;
        tensor_layout_of(dst, &fitted, &job, &layout);
        uint64_t bytes = to.elements * layout.element;
        hdi_point after = {0, 0};
        hdi_device *device;
        if (hdi_layout_is_run(&layout) && !wish) {
            status = tensor_job_run_bytes(&job, layout.dst - job.dst_address, layout.src - job.src_address, bytes,
                                          &after, &ticket);
        } else if ((device = tensor_device_for(to.buffer, dst_owner, from.buffer, src_owner)) != NULL) {
            status = tensor_job_run(&job, layout, tensor_lane_for(device, bytes), &after, &ticket);
        } else {
            status = tensor_job_run_staged(&job, layout, dst_owner, src_owner, &ticket);
        }
    }
    if (!status && out) {
        *out = ticket;
    }
    return status;
}

hd_status hd_tensor_copy(const hd_tensor *dst, const hd_tensor *src, hd_ticket *out)
{
    HDI_INSIDE(dst ? hdi_buffer_runtime(dst->buffer) : NULL);
    return hdi_tensor_copy_as(dst, src, NULL, out);
}

/* ---- between tensors and the program's memory ---- */

/* Iterates over a tensor in row-major order, a part at a time. A part takes up to `count` indices
 * of dimension `dim`, one index of each dimension before it, and all indices of the dimensions
 * behind it. */
typedef struct parts {
    hd_tensor whole;
    int dim;
    uint64_t count; /* at most this many indices */
    uint64_t most;  /* bytes of the largest part, which is the first one */
    uint64_t index[HD_TENSOR_DIMS];
    size_t at; /* the offset of the next part in the program's memory */
    bool more;
} parts;

static void tensor_parts_begin(parts *p, const hd_tensor *t)
{
    *p = (parts){.whole = *t, .more = true};
    uint64_t bytes = hd_tensor_elements(t) * hd_type_size(t->type);
    while (p->dim < t->dims && bytes / t->shape[p->dim] > ARRAY_PART_BYTES) {
        bytes /= t->shape[p->dim++];
    }
    if (p->dim < t->dims) {
        uint64_t fit = ARRAY_PART_BYTES / (bytes / t->shape[p->dim]);
        p->count = fit < t->shape[p->dim] ? fit : t->shape[p->dim];
        bytes = bytes / t->shape[p->dim] * p->count;
    }
    p->most = bytes;
}

/* Returns the next part. *at, *bytes: the place of its elements in the program's memory. */
static void tensor_parts_next(parts *p, hd_tensor *part, size_t *at, uint64_t *bytes)
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

static hdi_device *tensor_device_of(const struct hd_buffer *b)
{
    /* The owner is read once. If another buffer takes over the structure, the submission notices
     * this. */
    int owner = b->owner;
    return owner == HDI_OWNER_HOST ? hdi_any_device(b->runtime) : b->runtime->devices[owner];
}

/* Fails if the program's memory overlaps the tensor, which is possible if the tensor's buffer is
 * pinned. Otherwise the call could overwrite a part before it reads the part. */
static hd_status tensor_check_apart(const hdi_extent *e, const void *memory, uint64_t bytes)
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
    status = tensor_check_apart(&to, src, to.elements * hd_type_size(dst->type));
    hd_buffer *memory[TURNS] = {NULL, NULL};
    parts p;
    tensor_parts_begin(&p, dst);
    for (int turn = 0; p.more && !status; turn = (turn + 1) % TURNS) {
        hd_tensor part;
        size_t at;
        uint64_t bytes;
        tensor_parts_next(&p, &part, &at, &bytes);
        if (!memory[turn]) {
            status = hdi_tensor_scratch(tensor_device_of(to.buffer), p.most, &memory[turn]);
        }
        status = status ? status : hd_write(memory[turn], 0, (const unsigned char *)src + at, bytes);
        hd_tensor packed = hdi_tensor_row_major(&part, memory[turn]);
        status = status ? status : hdi_tensor_copy_as(&part, &packed, NULL, NULL);
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
    status = tensor_check_apart(&from, dst, total);
    /* A kernel packs one part while the program reads the part before it. */
    hd_buffer *memory[TURNS] = {NULL, NULL};
    size_t at[TURNS] = {0, 0};
    uint64_t bytes[TURNS] = {0, 0};
    parts p;
    tensor_parts_begin(&p, src);
    int turn = 0;
    for (bool last = false; !last && !status; turn = (turn + 1) % TURNS) {
        bytes[turn] = 0;
        last = !p.more;
        if (p.more) {
            hd_tensor part;
            tensor_parts_next(&p, &part, &at[turn], &bytes[turn]);
            if (!memory[turn]) {
                status = hdi_tensor_scratch(tensor_device_of(from.buffer), p.most, &memory[turn]);
            }
            hd_tensor packed = hdi_tensor_row_major(&part, memory[turn]);
            status = status ? status : hdi_tensor_copy_as(&packed, &part, NULL, NULL);
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
