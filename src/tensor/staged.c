/* staged.c - tensors between devices that do not reach each other. The elements are packed on the source's device,
 * copied, and unpacked on the destination's device.
 *
 * Elements travel in the order of the destination, and those of a repeated source only once. A side that is a run of
 * bytes in that order needs no packing or unpacking. Large tensors are moved in parts, with two pieces of memory on
 * each device in turn. So the kernels of one part run while the part before it is copied. The ends of the parts are
 * chained, so the last ticket stands for all parts.
 *
 * Threads: any.
 * Locks: none.
 * Blocking: as hd_copy, and as hd_alloc for temporary memory.
 * Always: temporary memory is freed before the call returns; submitted operations keep it until they are done.
 */
#include "tensor/copy.h"

#define PART_BYTES ((uint64_t)64 << 20)
#define TURNS 2

typedef struct staging {
    const hdi_tensor_job *job;
    uint64_t bytes; /* of each piece of temporary memory */
    hdi_device *to, *from;
    hd_lane *to_lane, *from_lane;              /* for kernels */
    hd_buffer *packed[TURNS], *arrived[TURNS]; /* NULL: not allocated so far */
    int turn;
    hdi_point done; /* end of the part before; the next part ends after it */
    hd_ticket *last;
} staging;

/* The bytes of a layout's elements, each counted once. */
static uint64_t bytes_of(const hdi_layout *l)
{
    uint64_t bytes = l->element;
    for (int i = 0; i < l->dims; i++) {
        bytes *= l->src_stride[i] != 0 ? l->shape[i] : 1;
    }
    return bytes;
}

/* The two halves of a layout: from the source to packed elements, and from those to the destination. The packed
 * elements begin at address 0. */
static void halves(const hdi_layout *l, hdi_layout *pack, hdi_layout *unpack)
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

static hd_status scratch(const staging *s, hdi_device *device, hd_buffer **buffer)
{
    return *buffer ? HD_OK : hdi_tensor_scratch(device, s->bytes, buffer);
}

/* The job with temporary memory on one side. Its device may have been lost since the allocation, which the launch
 * detects. */
static hdi_tensor_job job_with(const hdi_tensor_job *job, hd_buffer *own, bool is_dst)
{
    hdi_tensor_job half = *job;
    struct hd_buffer *b = hdi_buffer_from_any_handle(own); /* not NULL: no other code has the handle */
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

static hd_status move_part(staging *s, const hdi_layout *l)
{
    const hdi_tensor_job *job = s->job;
    hdi_layout pack, unpack;
    halves(l, &pack, &unpack);
    uint64_t bytes = bytes_of(l);
    hd_buffer **packed = &s->packed[s->turn], **arrived = &s->arrived[s->turn];
    s->turn = (s->turn + 1) % TURNS;
    hdi_tensor_job way = *job; /* from the packed elements to where they arrive */
    uint64_t from_at = pack.src - job->src_address, to_at = unpack.dst - job->dst_address;
    hd_status status = HD_OK;
    if (!hdi_layout_is_run(&pack)) {
        status = scratch(s, s->from, packed);
        if (!status) {
            hdi_tensor_job half = job_with(job, *packed, true);
            hdi_point none = {0, 0};
            pack.dst += half.dst_address;
            status = hdi_tensor_run(&half, pack, s->from_lane, &none, s->last);
            way.src = half.dst;
            from_at = 0;
        }
    }
    if (hdi_layout_is_run(&unpack)) {
        return status ? status : hdi_tensor_run_bytes(&way, to_at, from_at, bytes, &s->done, s->last);
    }
    status = status ? status : scratch(s, s->to, arrived);
    if (!status) {
        hdi_tensor_job half = job_with(job, *arrived, false);
        hdi_point none = {0, 0};
        way.dst = half.src;
        unpack.src += half.src_address;
        status = hdi_tensor_run_bytes(&way, 0, from_at, bytes, &none, s->last);
        status = status ? status : hdi_tensor_run(&half, unpack, s->to_lane, &s->done, s->last);
    }
    return status;
}

/* Moves a layout in parts of at most s->bytes. Cuts it along the slowest dimension that the source does not repeat.
 * Parts that are still too large are cut again. */
static hd_status move_parts(staging *s, hdi_layout l)
{
    for (;;) {
        uint64_t bytes = bytes_of(&l);
        if (bytes <= s->bytes) {
            return move_part(s, &l);
        }
        int dim = 0;
        while (l.src_stride[dim] == 0) {
            dim++;
        }
        uint64_t fit = s->bytes / (bytes / l.shape[dim]);
        hdi_layout rest;
        hdi_layout_cut(&l, dim, fit ? fit : 1, &rest);
        hd_status status = move_parts(s, l); /* at most one level for each dimension */
        if (status) {
            return status;
        }
        l = rest;
    }
}

hd_status hdi_tensor_run_staged(const hdi_tensor_job *job, hdi_layout layout, int to, int from, hd_ticket *out)
{
    hdi_layout_canonicalize(&layout);
    uint64_t bytes = bytes_of(&layout);
    staging s = {
        .job = job,
        .bytes = bytes < PART_BYTES ? bytes : PART_BYTES,
        .to = job->rt->devices[to],
        .from = job->rt->devices[from],
        .last = out,
    };
    s.to_lane = hdi_tensor_lane(s.to, s.bytes);
    s.from_lane = hdi_tensor_lane(s.from, s.bytes);
    hd_status status = move_parts(&s, layout);
    for (int i = 0; i < TURNS; i++) {
        hdi_free(s.packed[i]);
        hdi_free(s.arrived[i]);
    }
    return status;
}
