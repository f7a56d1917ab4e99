/* import.c - tensors of other libraries: hd_dlpack_import, and the call of the producer's deleter.
 *
 * hd_dlpack_import imports the memory like any other memory (buffer/import.c), and the end of the
 * import calls the deleter. The import must come after the producer's work in its stream. So the
 * call begins a claim on that stream, and ends the claim at once. The claim counts as the writer of
 * the bytes.
 *
 * Threads: any; a deleter is called like an hd_released_function. Locks: none. Blocking: a call
 * waits as hd_import and hd_claim_begin_stream do.
 * Always:
 * - The deleter is called once after a success, and never after a failure.
 * - This file only reads the producer's structure, and does not read it after the call of its
 *   deleter.
 */
#include <inttypes.h>
#include <stdlib.h>
#include "base/error.h"
#include "base/presence.h"
#include "buffer/import.h"
#include "claim/claim.h"
#include "dlpack/form.h"
#include "driver/provider.h"
#include "engine/engine.h"
#include "tensor/tensor.h"

/* The producer's structure, in either form. */
typedef struct taken {
    hdi_dlpack_versioned *versioned;
    /* Both NULL: the import failed, or the producer gave no deleter. Then the structure is not read
     * again. */
    hdi_dlpack_unversioned *unversioned;
} taken;

/* The facts about a tensor that the checks find. */
typedef struct plan {
    hd_runtime *runtime;
    hd_dlpack_options options;
    int64_t stream;
    hd_tensor form; /* the tensor without a buffer; `offset` is its offset in the imported bytes */
    uint64_t address, bytes;
    bool empty;
    int device; /* HD_DEVICE_HOST: pinned memory */
} plan;

/* The structure to give back later. Without a deleter there is nothing to give back: the producer's
 * structure may be gone once the import returns. */
static taken dlpack_import_to_give_back(const taken *from)
{
    bool any = from->versioned ? from->versioned->deleter != NULL : from->unversioned->deleter != NULL;
    return any ? *from : (taken){NULL, NULL};
}

static void dlpack_import_give_back(const taken *from)
{
    if (from->versioned) {
        from->versioned->deleter(from->versioned);
    } else if (from->unversioned) {
        from->unversioned->deleter(from->unversioned);
    }
}

/* An hd_released_function: calls the deleter of the producer. */
static void dlpack_import_released(void *context)
{
    taken *t = context;
    dlpack_import_give_back(t);
    free(t);
}

/* ---- checks: nothing happened yet ---- */

static hd_status dlpack_import_find_device(const hdi_dlpack_tensor *from, plan *p)
{
    hd_runtime *rt = p->runtime;
    const hdi_provider *provider = rt->provider;
    int32_t type = from->device_type;
    bool on_cpu = provider->dlpack_device == HDI_DLPACK_CPU, managed = type == HDI_DLPACK_CUDA_MANAGED;
    p->device = HD_DEVICE_HOST;
    if (type == HDI_DLPACK_CPU || type == provider->dlpack_pinned ||
        (on_cpu && (type == HDI_DLPACK_CUDA_HOST || managed))) {
        return HD_OK;
    }
    if (managed && provider->dlpack_device == HDI_DLPACK_CUDA) {
        p->device = p->options.device;
        return p->device >= 0 && p->device < rt->n_devices ? HD_OK : hdi_device_refused(rt, p->device);
    }
    if (on_cpu || type != provider->dlpack_device) {
        return hdi_fail(HD_ERROR_UNSUPPORTED,
                        "the tensor is in memory of DLPack's device type %d, which no device of the runtime uses",
                        type);
    }
    for (int i = 0; i < rt->n_devices; i++) {
        if (rt->devices[i]->ordinal == from->device_id) {
            p->device = i;
            return HD_OK;
        }
    }
    return hdi_fail(HD_ERROR_NO_DEVICE,
                    "the tensor is on device %d of the driver, which the runtime does not have (option devices)",
                    from->device_id);
}

/* Finds the range of bytes that contains all elements. */
static hd_status dlpack_import_find_bytes(const hdi_dlpack_tensor *from, plan *p)
{
    uint64_t before = 0, behind = 0, first = 0, end;
    if (p->empty) {
        return HD_OK;
    }
    if (!from->data) {
        return hdi_fail(HD_ERROR_ARGUMENT, "the tensor has elements, and its address is null");
    }
    if (!hdi_tensor_reach(&p->form, &before, &behind) ||
        __builtin_add_overflow((uint64_t)(uintptr_t)from->data, from->byte_offset, &first) || before > first ||
        __builtin_add_overflow(first, behind, &end)) {
        return hdi_fail(HD_ERROR_ARGUMENT,
                        "the elements lie outside of all addresses: the first at %p + %" PRIu64 ", %" PRIu64
                        " bytes before it and %" PRIu64 " behind",
                        from->data, from->byte_offset, before, behind);
    }
    p->address = first - before;
    p->bytes = before + behind;
    p->form.offset = before;
    return HD_OK;
}

/* Other libraries see memory of a host device as memory of the CPU. If the bytes are such memory,
 * the plan names the device. */
static void dlpack_import_find_host_device(plan *p)
{
    hd_runtime *rt = p->runtime;
    int type = 0, ordinal = -1;
    if (p->address == 0 || p->device >= 0 || rt->provider->dlpack_device != HDI_DLPACK_CPU || rt->is_process ||
        rt->driver->cuPointerGetAttribute(&type, HDCU_POINTER_ATTRIBUTE_MEMORY_TYPE, p->address) != HDCU_SUCCESS ||
        type != HDCU_MEMORYTYPE_DEVICE ||
        rt->driver->cuPointerGetAttribute(&ordinal, HDCU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p->address) !=
            HDCU_SUCCESS) {
        return;
    }
    for (int i = 0; i < rt->n_devices; i++) {
        p->device = rt->devices[i]->ordinal == ordinal ? i : p->device;
    }
}

/* Fills in the plan, whose runtime, options and stream are set. */
static hd_status dlpack_import_check(const hdi_dlpack_tensor *from, plan *p)
{
    uint64_t elements = 0;
    hd_status status = hdi_dlpack_read_form(from, &p->form, &elements);
    if (!status && p->options.type && p->options.type != p->form.type) {
        status = hdi_fail(HD_ERROR_ARGUMENT, "the elements are %s, not %s", hd_type_name(p->form.type),
                          hd_type_name(p->options.type));
    }
    p->empty = elements == 0;
    status = status ? status : dlpack_import_find_device(from, p);
    status = status ? status : dlpack_import_find_bytes(from, p);
    dlpack_import_find_host_device(p);
    bool is_of_gpu =
        p->device >= 0 && from->device_type != HDI_DLPACK_CPU && from->device_type != HDI_DLPACK_CUDA_MANAGED;
    return status ? status : hdi_dlpack_check_stream(p->stream, is_of_gpu);
}

/* ---- taking ---- */

/* Notes the producer's work in the stream as the writer of the bytes. */
static hd_status dlpack_import_order(const plan *p, hd_buffer *buffer, const void *site)
{
    if (p->stream <= HD_DLPACK_CPU) {
        return HD_OK;
    }
    const hd_arg use = hd_out(buffer);
    const hd_claim_options options = {.size = sizeof options, .label = p->options.label};
    struct hd_claim *c;
    hd_status status = hdi_claim_begin_stream(p->runtime, p->device >= 0 ? p->device : p->options.device,
                                              (void *)(intptr_t)p->stream, &use, 1, &options, site, &c);
    return status ? status : hdi_claim_finish(c, HD_OK);
}

/* For a tensor without elements: makes a buffer of Heddle's own memory. */
static hd_status dlpack_import_make_empty(const plan *p, const void *site, hd_buffer **out)
{
    if (p->device >= 0) {
        const hd_alloc_options options = {.size = sizeof options, .label = p->options.label};
        return hdi_alloc_with(hdi_lane_handle(p->runtime->devices[p->device]->lane_on), 1, &options, site, out);
    }
    hd_status status = hd_alloc_host(p->runtime, 1, out);
    if (status) {
        return status;
    }
    status = hd_buffer_set_label(*out, p->options.label);
    if (status) {
        hdi_free(*out);
    }
    return status;
}

static hd_status dlpack_import_buffer(const plan *p, const taken *from, const void *site, hd_buffer **out)
{
    taken *kept = malloc(sizeof *kept);
    if (!kept) {
        return hdi_fail(HD_ERROR_HOST_MEMORY, "no memory for a tensor of DLPack");
    }
    *kept = dlpack_import_to_give_back(from);
    const hd_import_options options = {
        .size = sizeof options, .label = p->options.label, .released = dlpack_import_released, .context = kept};
    hd_status status = p->device < 0
                           ? hdi_import_host(p->runtime, (void *)(uintptr_t)p->address, p->bytes, &options, site, out)
                           : hdi_import(p->runtime, p->device, p->address, p->bytes, &options, site, out);
    if (status) {
        free(kept);
        return status;
    }
    status = dlpack_import_order(p, *out, site);
    if (status) {
        /* After a failure, the end of the buffer must not call the deleter. No other thread knows
         * the buffer, and hd_close waits for this call. */
        *kept = (taken){NULL, NULL};
        hdi_free(*out);
    }
    return status;
}

static hd_status dlpack_import_take(hd_runtime *rt, const taken *from, const hdi_dlpack_tensor *tensor, int64_t stream,
                                    const hd_dlpack_options *options, const void *site, hd_tensor *out)
{
    plan p = {.runtime = rt, .stream = stream};
    hd_buffer *buffer = NULL;
    hd_status status = hdi_dlpack_take_options(options, HD_DLPACK_READ_ONLY, &p.options);
    if (!status && from->versioned && (from->versioned->flags & HDI_DLPACK_IS_READ_ONLY) &&
        !(p.options.flags & HD_DLPACK_READ_ONLY)) {
        status = hdi_fail(HD_ERROR_ACCESS,
                          "the tensor is read-only; give HD_DLPACK_READ_ONLY if no operation writes it, or copy it");
    }
    status = status ? status : dlpack_import_check(tensor, &p);
    if (!status) {
        status = p.empty ? dlpack_import_make_empty(&p, site, &buffer) : dlpack_import_buffer(&p, from, site, &buffer);
    }
    if (status) {
        return status;
    }
    p.form.buffer = buffer;
    *out = p.form;
    if (p.empty) {
        taken now = dlpack_import_to_give_back(from);
        hdi_apart apart = hdi_presence_apart();
        dlpack_import_give_back(&now);
        hdi_presence_together(apart);
    }
    return HD_OK;
}

static hd_status dlpack_import_check_call(hd_runtime *rt, const void *managed, const hd_tensor *out)
{
    if (!managed || !out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%s is null", managed ? "out" : "managed");
    }
    return hdi_runtime_is_open(rt) ? HD_OK : hdi_runtime_refused(rt);
}

hd_status hd_dlpack_import(hd_runtime *rt, struct DLManagedTensorVersioned *managed, int64_t stream,
                           const hd_dlpack_options *options, hd_tensor *out)
{
    HDI_INSIDE(rt);
    hd_status status = dlpack_import_check_call(rt, managed, out);
    if (status) {
        return status;
    }
    taken from = {.versioned = (hdi_dlpack_versioned *)managed};
    if (from.versioned->major != HDI_DLPACK_MAJOR) {
        return hdi_fail(HD_ERROR_UNSUPPORTED,
                        "the tensor is of version %" PRIu32 ".%" PRIu32 " of DLPack, and this library takes %d; call "
                        "its deleter, and ask for another version",
                        from.versioned->major, from.versioned->minor, HDI_DLPACK_MAJOR);
    }
    return dlpack_import_take(rt, &from, &from.versioned->tensor, stream, options, __builtin_return_address(0), out);
}

hd_status hd_dlpack_import_unversioned(hd_runtime *rt, struct DLManagedTensor *managed, int64_t stream,
                                       const hd_dlpack_options *options, hd_tensor *out)
{
    HDI_INSIDE(rt);
    hd_status status = dlpack_import_check_call(rt, managed, out);
    if (status) {
        return status;
    }
    taken from = {.unversioned = (hdi_dlpack_unversioned *)managed};
    return dlpack_import_take(rt, &from, &from.unversioned->tensor, stream, options, __builtin_return_address(0), out);
}
