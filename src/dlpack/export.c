/* export.c - tensors for other libraries: hd_dlpack_export, and the consumer's deleter.
 *
 * An export is one allocation. It contains DLPack's structure, shape and strides, and the claim or
 * the hold that ends with the export.
 *
 * Threads: any; a consumer may call the deleter on any thread, even after hd_close and in the child
 * of a fork.
 * Locks: none. Blocking: with HD_DLPACK_CPU, an export waits for the bytes (option
 * transfer_timeout).
 * Always:
 * - All checks come before the begin of the claim. After the begin, only the wait can fail, and
 *   then the claim is withdrawn.
 * - A deleter leaves the thread's last failure unchanged. If the end of the claim fails, operations
 *   that read the bytes fail.
 */
#include <stdlib.h>
#include "base/error.h"
#include "base/presence.h"
#include "claim/claim.h"
#include "dlpack/form.h"
#include "driver/provider.h"
#include "engine/engine.h"
#include "buffer/kind.h"
#include "tensor/tensor.h"

typedef struct given {
    union {
        hdi_dlpack_versioned versioned;
        hdi_dlpack_unversioned unversioned;
    } as;            /* first: the consumer holds this address */
    hd_claim *claim; /* NULL: none */
    hd_hold *hold;   /* NULL: none */
    int64_t shape[HD_TENSOR_DIMS], strides[HD_TENSOR_DIMS];
} given;

/* The place of an export's bytes. */
typedef struct place {
    hd_runtime *runtime;
    int32_t type, id; /* the device in DLPack's terms */
    /* the device whose streams the export accepts; -1: any device of the runtime */
    int device;
    unsigned char *data;
} place;

/* ---- the place of a tensor ---- */

static bool dlpack_export_is_unified(const struct hd_buffer *b)
{
    return b->kind && b->kind->unified;
}

/* The values that this function reads from the buffer are valid only if its handle is still good
 * afterwards. The claim or the hold checks the handle. */
static hd_status dlpack_export_find_place(const hd_tensor *t, const struct hd_buffer *b, int64_t stream, place *out)
{
    hd_runtime *rt = b->runtime;
    const hdi_provider *provider = rt->provider;
    int owner = b->owner;
    bool unified = dlpack_export_is_unified(b), host = owner < 0 || (unified && stream == HD_DLPACK_CPU);
    *out = (place){.runtime = rt, .device = owner < 0 || owner >= rt->n_devices ? -1 : owner};
    if (unified && stream == HD_DLPACK_UNORDERED) {
        return hdi_fail(HD_ERROR_UNSUPPORTED, "the bytes of unified memory move, so an export of it is ordered; give a "
                                              "stream, or HD_DLPACK_CPU");
    }
    if (!host && rt->is_process) {
        return hdi_fail(HD_ERROR_UNSUPPORTED,
                        "with placement=process device memory has no address in this process; open "
                        "the runtime with placement=thread");
    }
    if (host) {
        out->type = rt->is_process ? HDI_DLPACK_CPU : provider->dlpack_pinned;
        out->data = b->host + t->offset;
    } else {
        out->type = provider->dlpack_device;
        out->id = provider->dlpack_device == HDI_DLPACK_CPU || out->device < 0 ? 0 : rt->devices[out->device]->ordinal;
        out->data = (unsigned char *)(uintptr_t)(b->address + t->offset);
    }
    return hdi_dlpack_check_stream(stream, !host && out->type != HDI_DLPACK_CPU);
}

/* Refuses a stream that a claim would refuse. Memory that belongs to no device may be exported for
 * a stream of any device. */
static hd_status dlpack_export_check_stream(const place *p, int64_t stream)
{
    int first = p->device >= 0 ? p->device : 0, last = p->device >= 0 ? p->device : p->runtime->n_devices - 1;
    hd_status status = HD_ERROR_ARGUMENT;
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    for (int i = first; status && i <= last; i++) {
        status = hdi_claim_check_stream(p->runtime, i, (void *)(intptr_t)stream);
    }
    return hdi_attempt_result(&attempt, status);
}

hd_status hd_dlpack_get_device(const hd_tensor *t, int64_t stream, int32_t *type, int32_t *id)
{
    HDI_INSIDE(t ? hdi_buffer_runtime(t->buffer) : NULL);
    if (!type || !id) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%s is null", type ? "id" : "type");
    }
    hdi_extent extent;
    place p;
    hd_status status = hdi_tensor_check(t, "the tensor", &extent);
    status = status ? status : dlpack_export_find_place(t, extent.buffer, stream, &p);
    if (!status && stream > 0 && extent.elements) {
        status = dlpack_export_check_stream(&p, stream);
    }
    if (!status) {
        *type = p.type;
        *id = p.id;
    }
    return status;
}

/* ---- keeping the bytes ---- */

static hd_status dlpack_export_hold(const place *p, hd_buffer *buffer, const char *label, given *g)
{
    hd_hold *made;
    hd_status status = hdi_hold_create_outside(p->runtime, label, &made);
    if (status) {
        return status;
    }
    status = hd_hold_add(made, buffer);
    if (status) {
        hdi_attempt attempt;
        hdi_attempt_begin(&attempt);
        hd_hold_destroy(made);
        hdi_attempt_end(&attempt);
        return status;
    }
    g->hold = made;
    return HD_OK;
}

/* Makes a claim, and waits until the CPU may use its bytes. No handle leads to the claim yet. */
static hd_status dlpack_export_claim_for_cpu(const place *p, const hd_arg *use, const char *label, const void *site,
                                             struct hd_claim **out)
{
    int64_t ms = p->runtime->options.transfer_timeout;
    hdi_undo undo = {.n_uses = 0};
    hd_status status =
        hdi_claim_begin(p->runtime, use, 1, &(hdi_claim_begun){.label = label, .site = site, .undo = &undo}, out);
    if (status) {
        return status;
    }
    status = hdi_claim_await(*out, ms < 0 ? HD_FOREVER : ms * 1000000);
    if (status) {
        /* the claim can be withdrawn, since no consumer got the bytes yet */
        hdi_claim_withdraw(*out, &undo);
    } else {
        hdi_undo_drop(&undo);
    }
    return status;
}

static hd_status dlpack_export_claim(const place *p, const hd_arg *use, int64_t stream,
                                     const hd_dlpack_options *options, const void *site, given *g)
{
    hd_claim_options with = {.size = sizeof with, .label = options->label};
    struct hd_claim *c;
    hd_status status = stream == HD_DLPACK_CPU
                           ? dlpack_export_claim_for_cpu(p, use, options->label, site, &c)
                           : hdi_claim_begin_stream(p->runtime, p->device >= 0 ? p->device : options->device,
                                                    (void *)(intptr_t)stream, use, 1, &with, site, &c);
    return status ? status : hdi_claim_give_out(c, &g->claim);
}

/* ---- giving ---- */

static void dlpack_export_end(given *g)
{
    if (g->claim) {
        hdi_claim_end_surely(g->claim);
    }
    if (g->hold) {
        hdi_attempt attempt;
        hdi_attempt_begin(&attempt);
        hd_hold_destroy(g->hold);
        hdi_attempt_end(&attempt);
    }
    free(g);
}

static void dlpack_export_end_versioned(hdi_dlpack_versioned *self)
{
    if (self) {
        dlpack_export_end((given *)self);
    }
}

static void dlpack_export_end_unversioned(hdi_dlpack_unversioned *self)
{
    if (self) {
        dlpack_export_end((given *)self);
    }
}

/* Begins the export `g`, whose shape, strides and type are already set. */
static hd_status dlpack_export_begin(const hd_tensor *t, int64_t stream, const hd_dlpack_options *options,
                                     const void *site, const hdi_extent *extent, given *g, hdi_dlpack_tensor *out)
{
    place p;
    hd_status status = dlpack_export_find_place(t, extent->buffer, stream, &p);
    status =
        status ? status : hdi_dlpack_write_form(t, (options->flags & HD_DLPACK_BOOL) != 0, g->shape, g->strides, out);
    if (status) {
        return status;
    }
    out->device_type = p.type;
    out->device_id = p.id;
    out->data = extent->elements ? p.data : NULL;
    if (extent->elements == 0) {
        return HD_OK;
    }
    if (stream == HD_DLPACK_UNORDERED) {
        return dlpack_export_hold(&p, t->buffer, options->label, g);
    }
    hd_arg use = hd_inout(t->buffer);
    use.access = options->flags & HD_DLPACK_READ_ONLY ? HD_READ : HD_READ_WRITE;
    use.offset = extent->low;
    use.size = extent->high - extent->low;
    return dlpack_export_claim(&p, &use, stream, options, site, g);
}

static hd_status dlpack_export_give(const hd_tensor *t, int64_t stream, const hd_dlpack_options *with, unsigned known,
                                    bool versioned, const void *site, given **out)
{
    hd_dlpack_options options;
    hdi_extent extent;
    hd_status status = hdi_dlpack_take_options(with, known, &options);
    status = status ? status : hdi_tensor_check(t, "the tensor", &extent);
    if (status) {
        return status;
    }
    given *g = calloc(1, sizeof *g);
    if (!g) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for a tensor of DLPack");
    }
    status = dlpack_export_begin(t, stream, &options, site, &extent, g,
                                 versioned ? &g->as.versioned.tensor : &g->as.unversioned.tensor);
    if (status) {
        free(g);
        return status;
    }
    if (versioned) {
        g->as.versioned.major = HDI_DLPACK_MAJOR;
        g->as.versioned.minor = HDI_DLPACK_MINOR;
        g->as.versioned.context = g;
        g->as.versioned.deleter = dlpack_export_end_versioned;
        g->as.versioned.flags = options.flags & HD_DLPACK_READ_ONLY ? HDI_DLPACK_IS_READ_ONLY : 0;
    } else {
        g->as.unversioned.context = g;
        g->as.unversioned.deleter = dlpack_export_end_unversioned;
    }
    *out = g;
    return HD_OK;
}

hd_status hd_dlpack_export(const hd_tensor *t, int64_t stream, const hd_dlpack_options *options,
                           struct DLManagedTensorVersioned **out)
{
    HDI_INSIDE(t ? hdi_buffer_runtime(t->buffer) : NULL);
    if (!out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "out is null");
    }
    given *g;
    hd_status status = dlpack_export_give(t, stream, options, HD_DLPACK_READ_ONLY | HD_DLPACK_BOOL, true,
                                          __builtin_return_address(0), &g);
    if (!status) {
        *out = (struct DLManagedTensorVersioned *)g;
    }
    return status;
}

hd_status hd_dlpack_export_unversioned(const hd_tensor *t, int64_t stream, const hd_dlpack_options *options,
                                       struct DLManagedTensor **out)
{
    HDI_INSIDE(t ? hdi_buffer_runtime(t->buffer) : NULL);
    if (!out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "out is null");
    }
    if (options && options->size >= sizeof *options && (options->flags & HD_DLPACK_READ_ONLY)) {
        return hdi_fail(HD_ERROR_ARGUMENT, "the form without a version cannot be read-only; use hd_dlpack_export");
    }
    given *g;
    hd_status status = dlpack_export_give(t, stream, options, HD_DLPACK_BOOL, false, __builtin_return_address(0), &g);
    if (!status) {
        *out = (struct DLManagedTensor *)g;
    }
    return status;
}
