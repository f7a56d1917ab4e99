/* copy.c - hd_tensor_copy: copies the elements of one tensor to another. Copy engines move them where both sides are
 * runs of bytes; kernels do it otherwise.
 *
 * Threads: any.
 * Locks: none of its own.
 * Blocking: while a lane is full, and while the first copy loads the kernels.
 * Always:
 * - Every launch is an operation of its own in a copy lane. Only the buffers' use records order it.
 * - Nothing is submitted before both tensors have passed all checks.
 */
#include "tensor/copy.h"

#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "engine/engine.h"
#include "kernel/module.h"
#include "tensor/overlap.h"

/* ---- launching ---- */

_Static_assert(HDI_PLAN_KERNELS <= HDI_TENSOR_KERNELS, "hd_runtime.tensor_kernels has room");

/* Finds the kernel of a plan. The first look-up loads the module, which may take long. */
static hd_status find_kernel(hd_runtime *rt, const hdi_plan *plan, struct hd_kernel **out)
{
    _Atomic(struct hd_kernel *) *known = &rt->tensor_kernels[plan->number];
    /* pairs with the release store below: the kernel's structure is complete */
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

/* The bytes from the first to the last element of one side, as offsets in its buffer. `at`: the offset of the element
 * with all indices 0. */
static void span_of(const hdi_layout *l, uint64_t at, const int64_t *stride, uint64_t *low, uint64_t *high)
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

static hd_status launch(const hdi_tensor_job *job, const hdi_layout *l, const hdi_plan *plan, hd_lane *lane,
                        hdi_point *after, hd_ticket *out)
{
    if (job->dst.losses == HDI_LOST || job->src.losses == HDI_LOST) {
        const struct hd_buffer *lost = job->dst.losses == HDI_LOST ? job->dst.buffer : job->src.buffer;
        return hdi_loss_fail(job->rt, lost->owner, "a buffer's content was lost meanwhile");
    }
    struct hd_kernel *kernel = NULL;
    hd_status status = find_kernel(job->rt, plan, &kernel);
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
    span_of(l, l->src - job->src_address, l->src_stride, &uses[0].low, &uses[0].high);
    span_of(l, l->dst - job->dst_address, l->dst_stride, &uses[1].low, &uses[1].high);
    for (int i = 0; i < 2; i++) {
        uses[i].whole = uses[i].low == 0 && uses[i].high == uses[i].buffer->bytes;
    }
    /* Bytes between the elements stay as they are. So the destination counts as read, too, where there are such
     * bytes. */
    uint64_t written = l->element;
    for (int i = 0; i < l->dims; i++) {
        written *= l->shape[i];
    }
    uses[1].read = written != uses[1].high - uses[1].low;
    /* From the second part on, the call cannot fail without effect: the first part changes the content and has a
     * ticket. So the operation reports failures of earlier parts, and its submission does not. */
    hdi_linked link = {.after = *after, .ours = after->position ? 3 : job->packed};
    hd_ticket ticket;
    status = hdi_launch_linked(lane, kernel, plan->grid, plan->block, 0, &block, uses, 2, link, &ticket);
    if (!status) {
        *after = hdi_ticket_point(ticket);
        *out = ticket;
    }
    return status;
}

hd_status hdi_tensor_run(const hdi_tensor_job *job, hdi_layout layout, hd_lane *lane, hdi_point *after, hd_ticket *out)
{
    const hdi_plan_device facts = {job->rt->provider->threads_parallel, (uint32_t)lane->device->facts.multiprocessors};
    hdi_layout waiting[64]; /* upper parts of cut layouts, each at most half as large as the former one */
    int n = 0;
    hd_status status = HD_OK;
    hdi_layout_canonicalize(&layout);
    for (;;) {
        hdi_plan plan;
        hdi_plan_make(&layout, &facts, job->wish, &plan);
        if (plan.kind == HDI_PLAN_NONE) {
            return hdi_fail(HD_ERROR_UNSUPPORTED, "kernel %s cannot move these layouts", job->wish->kernel);
        }
        if (plan.kind == HDI_PLAN_CUT) {
            if (n == (int)(sizeof waiting / sizeof waiting[0])) {
                return hdi_fail(HD_ERROR_LIMIT, "too large for %d launches", n);
            }
            hdi_layout_cut(&layout, plan.cut_dim, plan.cut_at, &waiting[n++]);
            continue;
        }
        status = launch(job, &layout, &plan, lane, after, out);
        if (status || n == 0) {
            return status;
        }
        layout = waiting[--n];
    }
}

hd_status hdi_tensor_run_bytes(const hdi_tensor_job *job, uint64_t dst_at, uint64_t src_at, uint64_t bytes,
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

hd_lane *hdi_tensor_lane(hdi_device *device, uint64_t bytes)
{
    return hdi_copy_lane(device, HDI_WAY_ON, bytes <= HDI_QUICK_MEMORY ? HDI_LANES_QUICK : HDI_LANES_BULK);
}

hd_status hdi_tensor_scratch(hdi_device *device, uint64_t bytes, hd_buffer **out)
{
    hd_status status = hdi_copy_alive(device->lane_on);
    const hd_alloc_options options = {.size = sizeof options, .label = hdi_call_name()};
    return status ? status
                  : hdi_alloc_with(hdi_lane_handle(device->lane_on), bytes, &options, __builtin_return_address(0), out);
}

/* ---- which way ---- */

/* A device that reaches both buffers faster than through pinned memory. NULL: there is none. */
static hdi_device *device_for(hd_runtime *rt, int dst, int src)
{
    if (src < 0 && dst < 0) {
        return hdi_any_device(rt);
    }
    if (src < 0 || dst < 0 || src == dst) {
        return rt->devices[src < 0 ? dst : src];
    }
    int by = hdi_peer_access_between(rt, src, dst);
    return by < 0 ? NULL : rt->devices[by];
}

/* ---- checks ---- */

static hd_status check_pair(const hd_tensor *dst, const hdi_extent *to, const hd_tensor *src, const hdi_extent *from,
                            hd_tensor *fitted)
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

static void layout_of(const hd_tensor *dst, const hd_tensor *src, const hdi_tensor_job *job, hdi_layout *out)
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

hd_status hdi_tensor_copy(const hd_tensor *dst, const hd_tensor *src, const hdi_plan_wish *wish, hd_ticket *out)
{
    hdi_extent to, from;
    hd_tensor fitted;
    hd_status status = hdi_tensor_check(dst, "dst", &to);
    status = status ? status : hdi_tensor_check(src, "src", &from);
    status = status ? status : check_pair(dst, &to, src, &from, &fitted);
    if (status) {
        return status;
    }
    hd_ticket ticket = {NULL, 0};
    if (to.elements > 0) {
        hdi_tensor_job job = {
            .rt = to.buffer->runtime,
            .wish = wish,
            .dst = hdi_place_of_handle(to.buffer, dst->buffer),
            .src = hdi_place_of_handle(from.buffer, src->buffer),
            .dst_address = to.buffer->address,
            .src_address = from.buffer->address,
        };
        /* Read once: the structures may become other buffers', which the submission detects. */
        int dst_owner = to.buffer->owner, src_owner = from.buffer->owner;
        hdi_layout layout;
        layout_of(dst, &fitted, &job, &layout);
        uint64_t bytes = to.elements * layout.element;
        hdi_point after = {0, 0};
        hdi_device *device;
        if (hdi_layout_is_run(&layout) && !wish) {
            status = hdi_tensor_run_bytes(&job, layout.dst - job.dst_address, layout.src - job.src_address, bytes,
                                          &after, &ticket);
        } else if ((device = device_for(job.rt, dst_owner, src_owner)) != NULL) {
            status = hdi_tensor_run(&job, layout, hdi_tensor_lane(device, bytes), &after, &ticket);
        } else {
            status = hdi_tensor_run_staged(&job, layout, dst_owner, src_owner, &ticket);
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
    return hdi_tensor_copy(dst, src, NULL, out);
}

hd_status hdi_tensor_copy_as(const hd_tensor *dst, const hd_tensor *src, const hdi_plan_wish *wish, hd_ticket *out)
{
    return hdi_tensor_copy(dst, src, wish, out);
}
