/* matmul.c - hd_tensor_matmul: checks a product, plans it, and submits it. It becomes calls of the lane's library, or
 * one launch of the built-in kernel.
 *
 * Threads: any.
 * Locks: none of its own, except while a library is opened (matmul_library.h).
 * Blocking: while a library is opened, while kernels are loaded for the first time, and while a lane is full.
 * Always:
 * - Nothing is submitted before every check has passed.
 * - Every operation of a product names all bytes from the first to the last element of each operand, so use records
 *   order it.
 * - c is written last. If an earlier step fails, c stays as it is.
 */
#include <heddle/tensor.h>

#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "base/sized.h"
#include "buffer/submit.h"
#include "engine/engine.h"
#include "tensor/copy.h"
#include "tensor/matmul_library.h"
#include "tensor/matmul_plan.h"

/* A product with its operands and what the checks found. */
typedef struct product {
    hd_lane *lane;
    hdi_same same; /* the word of the lane's handle */
    hd_tensor tensor[HDI_OPERANDS];
    double alpha, beta;
    hdi_extent extent[HDI_OPERANDS];
    hdi_matmul_problem problem;
    hdi_use use[HDI_OPERANDS];
} product;

static const char *const names[HDI_OPERANDS] = {"a", "b", "c"};

/* ---- checks ---- */

static hd_status check_buffer(product *p, int which)
{
    hdi_device *device = p->lane->device;
    hd_runtime *rt = device->runtime;
    const hdi_extent *e = &p->extent[which];
    struct hd_buffer *b = e->buffer;
    if (b->runtime != rt) {
        return hdi_fail(HD_ERROR_HANDLE, "%s is of another runtime than the lane", names[which]);
    }
    p->use[which] = (hdi_use){.buffer = b,
                              .losses = hdi_buffer_losses(b),
                              .word = hdi_self_word(p->tensor[which].buffer),
                              .low = e->low,
                              .high = e->high,
                              .whole = e->low == 0 && e->high == b->bytes,
                              .read = true};
    bool lost = p->use[which].losses == HDI_LOST;
    int owner = b->owner; /* read once: the structure may become another buffer's, which the submission detects */
    bool reaches = lost || e->elements == 0 || hdi_peer_access(rt, device->index, owner);
    if (lost || (!reaches && hdi_buffer_is_gone(b, p->tensor[which].buffer))) {
        return hdi_fail_about(hdi_buffer_refused(p->tensor[which].buffer), "%s", names[which]);
    }
    return reaches ? HD_OK : hdi_fail_about(hdi_peer_access_failed(rt, device->index, owner), "%s", names[which]);
}

/* c is written. It counts as read, too, in two cases: beta is not 0, or bytes that stay as they are lie between its
 * elements. So newer bytes on the host are not lost, and bytes of a failed operation stay failed. */
static void note_result(product *p)
{
    const hdi_extent *c = &p->extent[HDI_C];
    uint64_t written = c->elements * hdi_product_size(p->problem.type);
    hdi_use *use = &p->use[HDI_C];
    use->write = true;
    use->read = p->beta != 0 || written != c->high - c->low;
}

static hd_status check(product *p)
{
    hd_status status = HD_OK;
    for (int i = HDI_OPERANDS - 1; i >= 0 && !status; i--) {
        status = hdi_tensor_check(&p->tensor[i], names[i], &p->extent[i]);
    }
    status = status ? status : hdi_matmul_read(p->tensor, p->extent, p->alpha, p->beta, &p->problem);
    for (int i = HDI_OPERANDS - 1; i >= 0 && !status; i--) {
        status = check_buffer(p, i);
    }
    if (!status) {
        note_result(p);
    }
    return status;
}

/* ---- submitting ---- */

/* The operands that the plan uses. The last one is c. */
static size_t uses_of(const product *p, const hdi_matmul_plan *plan, hdi_use uses[HDI_OPERANDS])
{
    size_t n = plan->reads_factors ? HDI_OPERANDS : 1;
    memcpy(uses, p->use + HDI_OPERANDS - n, n * sizeof uses[0]);
    return n;
}

static hd_status submit_calls(const product *p, const hdi_matmul_plan *plan, hd_ticket *out)
{
    hdi_use uses[HDI_OPERANDS];
    size_t n_uses = uses_of(p, plan, uses);
    hd_status status = HD_OK;
    for (uint64_t i = 0; i < plan->calls && !status; i++) {
        uses[n_uses - 1].read |= i > 0; /* c has the results of the calls before, which stay */
        hdi_product call = hdi_matmul_call(plan, i);
        call.a += p->extent[plan->first].buffer->address;
        call.b += p->extent[plan->second].buffer->address;
        call.c += p->extent[HDI_C].buffer->address;
        hdi_command command[HDI_MATMUL_SLOTS];
        memcpy(command, &call, sizeof call);
        command[0].op = HDI_OP_MATMUL;
        command[0].slots = HDI_MATMUL_SLOTS;
        command[0].kind = 0;
        status = hdi_submit_linked(p->lane, uses, n_uses, command, (hdi_linked){.same = &p->same}, out);
    }
    return status;
}

/* The kernel's argument block. */
typedef struct arguments {
    uint64_t c, a, b;
    hdi_matmul_shape shape;
} arguments;

static hd_status submit_kernel(const product *p, const hdi_matmul_plan *plan, hd_ticket *out)
{
    hdi_device *device = p->lane->device;
    struct hd_kernel *kernel = NULL;
    hd_status status = hdi_products_kernel(device->runtime, p->problem.type, &kernel);
    if (status) {
        return status;
    }
    uint64_t at[HDI_OPERANDS];
    for (int i = 0; i < HDI_OPERANDS; i++) {
        at[i] = p->extent[i].buffer->address + p->extent[i].low;
    }
    /* A factor that is not read may have any address, even behind the end of its buffer. The kernel gets the address of
     * c then. */
    arguments args = {.c = at[HDI_C],
                      .a = plan->reads_factors ? at[plan->first] : at[HDI_C],
                      .b = plan->reads_factors ? at[plan->second] : at[HDI_C],
                      .shape = plan->shape};
    hdi_use uses[HDI_OPERANDS];
    size_t n_uses = uses_of(p, plan, uses);
    bool gpu = device->runtime->provider->threads_parallel;
    uint32_t most = device->limits.grid[0];
    return hdi_launch_linked(p->lane, kernel, plan->tiles < most ? (uint32_t)plan->tiles : most,
                             gpu ? HDI_MATMUL_THREADS : 1, 0, &args, uses, n_uses, (hdi_linked){.same = &p->same}, out);
}

/* ---- operands that have to be dense for a library ---- */

/* An operand with each element once: a batch dimension that repeats matrices has size 1. */
static hd_tensor without_repeats(const hd_tensor *t)
{
    hd_tensor once = *t;
    for (int i = 0; i < once.dims - 2; i++) {
        once.shape[i] = once.stride[i] == 0 ? 1 : once.shape[i];
    }
    return once;
}

/* Allocates a row-major tensor of the same shape. */
static hd_status make_dense(hd_lane *lane, const hd_tensor *like, hd_tensor *out)
{
    uint64_t bytes;
    if (!hdi_tensor_bytes(like, &bytes)) {
        return hdi_fail(HD_ERROR_MEMORY, "an operand's copy takes 2^63 bytes or more");
    }
    hd_buffer *buffer = NULL;
    hd_status status = hdi_tensor_scratch(lane->device, bytes, &buffer);
    *out = hdi_tensor_row_major(like, buffer);
    return status;
}

static hd_status multiply(product *p, bool can_pack, hd_ticket *out);

static hd_status multiply_packed(const product *p, const bool *pack, hd_ticket *out)
{
    product dense = {.lane = p->lane, .alpha = p->alpha, .beta = p->beta};
    memcpy(dense.tensor, p->tensor, sizeof dense.tensor);
    hd_status status = HD_OK;
    for (int i = 0; i < HDI_OPERANDS && !status; i++) {
        if (pack[i]) {
            hd_tensor once = without_repeats(&p->tensor[i]);
            status = make_dense(p->lane, &once, &dense.tensor[i]);
            if (!status && (i != HDI_C || p->beta != 0)) {
                status = hdi_tensor_copy(&dense.tensor[i], &once, NULL, NULL);
            }
        } else {
            dense.tensor[i].buffer = p->tensor[i].buffer;
        }
    }
    status = status ? status : check(&dense);
    status = status ? status : multiply(&dense, false, out);
    if (!status && pack[HDI_C]) {
        status = hdi_tensor_copy(&p->tensor[HDI_C], &dense.tensor[HDI_C], NULL, out);
    }
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    for (int i = 0; i < HDI_OPERANDS; i++) {
        if (pack[i] && dense.tensor[i].buffer != p->tensor[i].buffer) {
            hdi_free(dense.tensor[i].buffer); /* submitted operations keep it until they are done */
        }
    }
    hdi_attempt_end(&attempt);
    return status;
}

static hd_status multiply(product *p, bool can_pack, hd_ticket *out)
{
    const hdi_blas_facts *library = NULL;
    hd_status status = hdi_products_library(p->lane, &library);
    if (status) {
        return status;
    }
    hdi_matmul_facts facts = {.types = library->types,
                              .most = library->most,
                              .most_count = library->most_count,
                              .gpu = p->lane->device->runtime->provider->threads_parallel,
                              .can_pack = can_pack};
    hdi_matmul_plan plan;
    hdi_matmul_make_plan(&p->problem, &facts, &plan);
    if (plan.kind != HDI_MATMUL_LIBRARY) {
        return submit_kernel(p, &plan, out);
    }
    if (!plan.pack[HDI_A] && !plan.pack[HDI_B] && !plan.pack[HDI_C]) {
        return submit_calls(p, &plan, out);
    }
    hdi_attempt attempt;
    hdi_attempt_begin(&attempt);
    status = multiply_packed(p, plan.pack, out);
    if (status == HD_ERROR_MEMORY) { /* no memory for dense copies: the built-in kernel needs none */
        status = multiply(p, false, out);
    }
    return hdi_attempt_result(&attempt, status);
}

hd_status hd_tensor_matmul(hd_lane *handle, const hd_tensor *c, const hd_tensor *a, const hd_tensor *b, double alpha,
                           double beta, hd_ticket *out)
{
    HDI_INSIDE(hdi_lane_runtime(handle));
    product p = {
        .lane = hdi_lane_from_handle(handle), .same = {.lane = hdi_lane_word(handle)}, .alpha = alpha, .beta = beta};
    if (!p.lane) {
        return hdi_lane_refused(handle);
    }
    if (!c || !a || !b) {
        return hdi_fail(HD_ERROR_ARGUMENT, "%s is null", !c ? "c" : !a ? "a" : "b");
    }
    p.tensor[HDI_A] = *a;
    p.tensor[HDI_B] = *b;
    p.tensor[HDI_C] = *c;
    hd_ticket ticket = {NULL, 0};
    hd_status status = check(&p);
    if (!status && p.extent[HDI_C].elements > 0) {
        status = multiply(&p, true, &ticket);
    }
    if (!status && out) {
        *out = ticket;
    }
    return status;
}

hd_status hd_matmul_get_info(hd_lane *handle, hd_matmul_info *out)
{
    HDI_INSIDE(hdi_lane_runtime(handle));
    hd_lane *lane = hdi_lane_from_handle(handle);
    if (!lane) {
        return hdi_lane_refused(handle);
    }
    if (!out) {
        return hdi_fail(HD_ERROR_ARGUMENT, "out is null");
    }
    hd_status status = HDI_SIZED_CHECK(hd_matmul_info, out);
    const hdi_blas_facts *library = NULL;
    status = status ? status : hdi_products_library(lane, &library);
    if (status) {
        return status;
    }
    hd_matmul_info info = {.size = sizeof info};
    snprintf(info.library, sizeof info.library, "%s", library->name);
    snprintf(info.reason, sizeof info.reason, "%s", library->why);
    HDI_SIZED_OUT(hd_matmul_info, out, &info);
    return HD_OK;
}
