/* pairs_calls.h - recipes that make each public call with good handles, for test_pairs.c: one for
 * each function that tests/conformance/make_pairs finds in the public headers.
 *
 * A recipe makes one call with the given objects, ends the objects that the call made, and returns
 * the status of the call. It does not wait for long, and changes nothing that a later call needs. A
 * function without a recipe does not compile: recipe_NAME is not declared.
 *
 * Threads: two run recipes at once, each on its own objects, except for the one that the other
 * thread ends.
 * Locks: none.
 */
#ifndef CONFORMANCE_PAIRS_CALLS_H
#define CONFORMANCE_PAIRS_CALLS_H

#include "support/dlpack.h"
#include "workers.h"

enum { PAIR_BYTES = 4096, PAIR_ROW = 64, PAIR_WORDS = PAIR_BYTES / 4 };

/* Objects that a recipe may use; another thread may end any of them. */
typedef struct things {
    hd_runtime *runtime;
    hd_lane *lane;
    hd_buffer *buffer; /* PAIR_BYTES on a device, pinned, unified or with checkpoints */
    hd_module *module;
    hd_kernel *kernel; /* of the module; wk_add_one launches it */
    hd_hold *hold;
    hd_claim *claim;
    hd_buffer *other, *third; /* on the lane's device */
    const void *image;        /* of the module */
    size_t image_bytes;
    char image_file[64]; /* a file with that image */
} things;

typedef hd_status recipe(things *t);

/* ---- lanes ---- */

static hd_status and_free(hd_status status, hd_buffer *made)
{
    if (!status) {
        hd_free(made);
    }
    return status;
}

static hd_status recipe_hd_alloc(things *t)
{
    hd_buffer *made = NULL;
    hd_status status = hd_alloc(t->lane, 1000, &made);
    return and_free(status, made);
}

static hd_status recipe_hd_alloc_with(things *t)
{
    hd_buffer *made = NULL;
    hd_alloc_options options = {.size = sizeof options, .flags = HD_ALLOC_KEEP, .label = "pair"};
    hd_status status = hd_alloc_with(t->lane, 1000, &options, &made);
    return and_free(status, made);
}

static hd_status recipe_hd_alloc_unified(things *t)
{
    hd_buffer *made = NULL;
    hd_status status = hd_alloc_unified(t->lane, 1000, &made);
    return and_free(status, made);
}

static hd_status recipe_hd_tensor_alloc(things *t)
{
    hd_tensor made;
    hd_status status = hd_tensor_alloc(t->lane, HD_TYPE_F32, 2, (const uint64_t[]){4, 5}, &made);
    return and_free(status, status ? NULL : made.buffer);
}

static hd_status recipe_hd_lane_destroy(things *t)
{
    return hd_lane_destroy(t->lane);
}

static hd_status recipe_hd_lane_device(things *t)
{
    int device = hd_lane_device(t->lane);
    CONF_TRUE(device == 0 || device == -1);
    return HD_OK;
}

static hd_status recipe_hd_lane_number(things *t)
{
    CONF_TRUE(hd_lane_number(t->lane) >= -1);
    return HD_OK;
}

static hd_status recipe_hd_lane_get_ticket(things *t)
{
    return hd_wait(conf_lane_ticket(t->lane), CONF_SECOND);
}

static hd_status recipe_hd_lane_keep_times(things *t)
{
    static _Thread_local unsigned turn;
    return hd_lane_keep_times(t->lane, ++turn % 2 == 0);
}

static hd_status recipe_hd_ticket_get_elapsed(things *t)
{
    hd_ticket ticket = {NULL, 0};
    int64_t ns = 0;
    hd_status status = hd_lane_get_ticket(t->lane, &ticket);
    status = status ? status : hd_ticket_get_elapsed(ticket, ticket, &ns);
    CONF_EQUAL(ns, 0);
    return status == HD_ERROR_NOT_FOUND || status == HD_ERROR_TIMEOUT
               ? HD_OK
               : status; /* the lane is busy, or keeps no times */
}

static hd_status recipe_hd_lane_wait(things *t)
{
    return hd_lane_wait(t->lane, 100000);
}

static hd_status recipe_hd_lane_reset(things *t)
{
    return hd_lane_reset(t->lane, 100000);
}

static hd_status recipe_hd_done(things *t)
{
    hd_done(conf_lane_ticket(t->lane));
    return HD_OK;
}

static hd_status recipe_hd_wait(things *t)
{
    return hd_wait(conf_lane_ticket(t->lane), 100000);
}

static hd_status recipe_hd_matmul_get_info(things *t)
{
    char name[64], why[200];
    return conf_matmul_library(t->lane, name, sizeof name, why, sizeof why);
}

/* ---- buffers ---- */

static hd_status recipe_hd_free(things *t)
{
    return hd_free(t->buffer);
}

static hd_status recipe_hd_buffer_size(things *t)
{
    size_t size = hd_buffer_size(t->buffer);
    CONF_TRUE(size == PAIR_BYTES || size == 0);
    return HD_OK;
}

static hd_status recipe_hd_buffer_device(things *t)
{
    int device = hd_buffer_device(t->buffer);
    CONF_TRUE(device == 0 || device == -1 || device == -2);
    return HD_OK;
}

static hd_status recipe_hd_buffer_address(things *t)
{
    hd_buffer_address(t->buffer);
    return HD_OK;
}

static hd_status recipe_hd_buffer_save(things *t)
{
    return hd_buffer_save(t->buffer, NULL);
}

static hd_status recipe_hd_buffer_set_label(things *t)
{
    return hd_buffer_set_label(t->buffer, "a label of a pair");
}

static hd_status recipe_hd_buffer_wait(things *t)
{
    return hd_buffer_wait(t->buffer, HD_READ_WRITE, 100000);
}

static hd_status recipe_hd_map(things *t)
{
    static _Thread_local unsigned turn;
    void *memory = NULL;
    hd_status status = hd_map(t->buffer, ++turn % 3 + 1, &memory);
    if (!status) {
        hd_unmap(t->buffer);
    }
    return status;
}

static hd_status recipe_hd_unmap(things *t)
{
    return hd_unmap(t->buffer);
}

static hd_status last_status(bool ok)
{
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    return ok ? HD_OK : error.status;
}

static hd_status recipe_hd_element(things *t)
{
    static _Thread_local unsigned turn;
    turn++;
    return last_status(hd_element(t->buffer, 4 * (turn % PAIR_WORDS), 4, turn % 3 + 1) != NULL);
}

static hd_status recipe_hd_write(things *t)
{
    static const uint8_t memory[PAIR_BYTES];
    return hd_write(t->buffer, 0, memory, PAIR_BYTES);
}

static hd_status recipe_hd_read(things *t)
{
    uint8_t memory[PAIR_BYTES];
    return hd_read(t->buffer, 0, memory, PAIR_BYTES);
}

static const hd_box pair_box = {.size = sizeof pair_box,
                                .row = PAIR_ROW / 2,
                                .dims = 1,
                                .count = {PAIR_BYTES / PAIR_ROW},
                                .dst_stride = {PAIR_ROW},
                                .src_stride = {PAIR_ROW}};

static hd_status recipe_hd_write_box(things *t)
{
    static const uint8_t memory[PAIR_BYTES];
    return hd_write_box(t->buffer, 0, memory, &pair_box);
}

static hd_status recipe_hd_read_box(things *t)
{
    uint8_t memory[PAIR_BYTES];
    return hd_read_box(t->buffer, 0, memory, &pair_box);
}

static hd_status recipe_hd_copy(things *t)
{
    static _Thread_local unsigned turn;
    return ++turn % 2 ? hd_copy(t->other, 0, t->buffer, 0, PAIR_BYTES / 2, NULL)
                      : hd_copy(t->buffer, 0, t->other, 0, PAIR_BYTES / 2, NULL);
}

static hd_status recipe_hd_copy_box(things *t)
{
    static _Thread_local unsigned turn;
    return ++turn % 2 ? hd_copy_box(t->other, 0, t->buffer, 0, &pair_box, NULL)
                      : hd_copy_box(t->buffer, 0, t->other, 0, &pair_box, NULL);
}

static hd_status recipe_hd_fill(things *t)
{
    static _Thread_local unsigned turn;
    return hd_fill(t->buffer, ++turn % 8 * 512, 7, 512, NULL);
}

static hd_status recipe_hd_launch(things *t)
{
    static _Thread_local unsigned turn;
    wk_kernels k = {.add_one = t->kernel};
    if (++turn % 4 == 0) { /* no argument of the launch uses the buffer */
        hd_arg args[] = {hd_inout(t->other), hd_u64(16), hd_arg_implicit(hd_inout(t->buffer))};
        return hd_launch(t->lane, t->kernel, conf_grid(16, 128), conf_dims(128, 1, 1), 0, args, 3, NULL);
    }
    return wk_add_one(t->lane, k, t->buffer, turn % 3 ? PAIR_WORDS : 16, NULL);
}

/* ---- tensors ---- */

static const uint64_t pair_shape[] = {16, 16};

static hd_tensor tensor_of(hd_buffer *buffer)
{
    return (hd_tensor){.buffer = buffer,
                       .type = HD_TYPE_F32,
                       .dims = 2,
                       .shape = {16, 16},
                       .stride = {16 * sizeof(float), sizeof(float)}};
}

static hd_tensor turned(hd_buffer *buffer)
{
    hd_tensor t = tensor_of(buffer);
    t.stride[0] = sizeof(float);
    t.stride[1] = 16 * sizeof(float);
    return t;
}

static hd_status recipe_hd_tensor_make(things *t)
{
    hd_tensor made;
    return hd_tensor_make(t->buffer, 0, HD_TYPE_F32, 2, pair_shape, &made);
}

static hd_status recipe_hd_tensor_make_strided(things *t)
{
    hd_tensor made;
    return hd_tensor_make_strided(t->buffer, 0, HD_TYPE_F32, 2, pair_shape, (const int64_t[]){4, 64}, &made);
}

static hd_status recipe_hd_tensor_slice(things *t)
{
    hd_tensor of = tensor_of(t->buffer), made;
    return hd_tensor_slice(&of, 0, 2, 3, 2, &made);
}

static hd_status recipe_hd_tensor_permute(things *t)
{
    hd_tensor of = tensor_of(t->buffer), made;
    return hd_tensor_permute(&of, (const int[]){1, 0}, &made);
}

static hd_status recipe_hd_tensor_transpose(things *t)
{
    hd_tensor of = tensor_of(t->buffer), made;
    return hd_tensor_transpose(&of, 0, 1, &made);
}

static hd_status recipe_hd_tensor_broadcast(things *t)
{
    hd_tensor of = tensor_of(t->buffer), made;
    return hd_tensor_broadcast(&of, 3, (const uint64_t[]){2, 16, 16}, &made);
}

static hd_status recipe_hd_tensor_reshape(things *t)
{
    hd_tensor of = tensor_of(t->buffer), made;
    return hd_tensor_reshape(&of, 1, (const uint64_t[]){256}, &made);
}

static hd_status recipe_hd_tensor_elements(things *t)
{
    hd_tensor of = tensor_of(t->buffer);
    CONF_EQUAL(hd_tensor_elements(&of), 256);
    return HD_OK;
}

static hd_status recipe_hd_tensor_is_contiguous(things *t)
{
    hd_tensor of = tensor_of(t->buffer);
    CONF_TRUE(hd_tensor_is_contiguous(&of));
    return HD_OK;
}

static hd_status recipe_hd_tensor_copy(things *t)
{
    static _Thread_local unsigned turn;
    hd_tensor a = tensor_of(t->buffer), b = ++turn % 4 ? turned(t->other) : tensor_of(t->other);
    return turn % 2 ? hd_tensor_copy(&a, &b, NULL) : hd_tensor_copy(&b, &a, NULL);
}

static hd_status recipe_hd_tensor_write(things *t)
{
    static const float memory[256];
    hd_tensor a = turned(t->buffer);
    return hd_tensor_write(&a, memory);
}

static hd_status recipe_hd_tensor_read(things *t)
{
    float memory[256];
    hd_tensor a = turned(t->buffer);
    return hd_tensor_read(&a, memory);
}

static hd_status recipe_hd_tensor_matmul(things *t)
{
    static _Thread_local unsigned turn;
    hd_tensor a = tensor_of(t->buffer), b = turned(t->other), c = tensor_of(t->third);
    return ++turn % 2 ? hd_tensor_matmul(t->lane, &c, &a, &b, 1, 0, NULL)
                      : hd_tensor_matmul(t->lane, &a, &b, &c, 1, 1, NULL);
}

/* ---- modules, holds ---- */

static hd_status recipe_hd_kernel_get(things *t)
{
    static _Thread_local unsigned turn;
    hd_kernel *made = NULL;
    return hd_kernel_get(t->module, ++turn % 2 ? "hello" : "add_one", &made);
}

static hd_status recipe_hd_kernel_get_parameter(things *t)
{
    hd_parameter_info info = {.size = sizeof info};
    return hd_kernel_get_parameter(t->kernel, 0, &info);
}

static hd_status recipe_hd_module_get_global(things *t)
{
    hd_buffer *made = NULL;
    hd_status status = hd_module_get_global(t->module, 0, "word", &made);
    return and_free(status, made);
}

static hd_status recipe_hd_module_unload(things *t)
{
    return hd_module_unload(t->module);
}

static hd_status recipe_hd_hold_add(things *t)
{
    return hd_hold_add(t->hold, t->buffer);
}

static hd_status recipe_hd_hold_destroy(things *t)
{
    return hd_hold_destroy(t->hold);
}

/* ---- DLPack ---- */

/* Memory that does not fit the stream is refused after the handles: device memory of a GPU, or of a
 * worker. */
static hd_status if_it_fits(hd_status status)
{
    return status == HD_ERROR_UNSUPPORTED || status == HD_ERROR_ARGUMENT ? HD_OK : status;
}

static int64_t any_stream(void)
{
    static _Thread_local unsigned turn;
    static const int64_t streams[] = {HD_DLPACK_CPU, 1, HD_DLPACK_UNORDERED};
    return streams[++turn % 3];
}

static hd_status recipe_hd_dlpack_export(things *t)
{
    DLManagedTensorVersioned *made = NULL;
    hd_tensor of = turned(t->buffer);
    hd_status status = hd_dlpack_export(&of, any_stream(), NULL, &made);
    if (!status) {
        made->deleter(made);
    }
    return if_it_fits(status);
}

static hd_status recipe_hd_dlpack_export_unversioned(things *t)
{
    DLManagedTensor *made = NULL;
    hd_tensor of = turned(t->buffer);
    hd_status status = hd_dlpack_export_unversioned(&of, any_stream(), NULL, &made);
    if (!status) {
        made->deleter(made);
    }
    return if_it_fits(status);
}

static hd_status recipe_hd_dlpack_get_device(things *t)
{
    int32_t type, id;
    hd_tensor of = tensor_of(t->buffer);
    return if_it_fits(hd_dlpack_get_device(&of, any_stream(), &type, &id));
}

static void delete_pair(DLManagedTensorVersioned *self)
{
    free(self->dl_tensor.data);
    free(self);
}

static void delete_old_pair(DLManagedTensor *self)
{
    free(self->dl_tensor.data);
    free(self);
}

static hd_status recipe_hd_dlpack_import(things *t)
{
    static int64_t shape[] = {PAIR_BYTES}, strides[] = {1};
    DLManagedTensorVersioned *m = calloc(1, sizeof *m);
    hd_tensor made = {.buffer = NULL};
    *m = (DLManagedTensorVersioned){.version = {1, 0}, .deleter = delete_pair};
    m->dl_tensor = (DLTensor){aligned_alloc(4096, PAIR_BYTES), {kDLCPU, 0}, 1, {kDLUInt, 8, 1}, shape, strides, 0};
    hd_status status = hd_dlpack_import(t->runtime, m, any_stream(), NULL, &made);
    if (status) {
        m->deleter(m);
    }
    return if_it_fits(and_free(status, made.buffer));
}

static hd_status recipe_hd_dlpack_import_unversioned(things *t)
{
    static int64_t shape[] = {PAIR_BYTES};
    DLManagedTensor *m = calloc(1, sizeof *m);
    hd_tensor made = {.buffer = NULL};
    *m = (DLManagedTensor){.deleter = delete_old_pair};
    m->dl_tensor = (DLTensor){aligned_alloc(4096, PAIR_BYTES), {kDLCPU, 0}, 1, {kDLUInt, 8, 1}, shape, NULL, 0};
    hd_status status = hd_dlpack_import_unversioned(t->runtime, m, any_stream(), NULL, &made);
    if (status) {
        m->deleter(m);
    }
    return if_it_fits(and_free(status, made.buffer));
}

/* ---- imports ---- */

/* No driver knows this address, and workers import nothing: the call is refused after all checks of
 * handles. */
static hd_status recipe_hd_import(things *t)
{
    hd_buffer *made = NULL;
    hd_status status = hd_import(t->runtime, 0, 4096, PAIR_BYTES, NULL, &made);
    status = and_free(status, made);
    return status == HD_ERROR_ARGUMENT || status == HD_ERROR_UNSUPPORTED ? HD_OK : status;
}

static hd_status recipe_hd_import_host(things *t)
{
    hd_buffer *made = NULL;
    void *memory = aligned_alloc(4096, PAIR_BYTES);
    hd_import_options options = {.size = sizeof options, .released = free, .context = memory};
    hd_status status = hd_import_host(t->runtime, memory, PAIR_BYTES, &options, &made);
    if (status) {
        free(memory);
    }
    status = and_free(status, made);
    return status == HD_ERROR_UNSUPPORTED ? HD_OK : status;
}

static hd_status recipe_hd_buffer_export(things *t)
{
    hd_export e = {.size = sizeof e};
    hd_status status = hd_buffer_export(t->buffer, HD_EXPORT_DESCRIPTOR, &e);
    if (!status) {
        close(e.descriptor);
    }
    return status == HD_ERROR_ARGUMENT ? HD_OK : status; /* not a piece */
}

static hd_status recipe_hd_import_descriptor(things *t)
{
    hd_buffer *made = NULL;
    hd_export e = {
        .size = sizeof e, .kind = HD_EXPORT_DESCRIPTOR, .descriptor = -1, .piece_bytes = 2 << 20, .bytes = 4};
    hd_status status = hd_import_descriptor(t->runtime, 0, &e, NULL, &made);
    status = and_free(status, made);
    return status == HD_ERROR_ARGUMENT ? HD_OK : status;
}

/* ---- claims ---- */

static hd_status and_end(hd_status status, hd_claim *made)
{
    if (!status) {
        hd_claim_end(made, HD_OK);
    }
    return status == HD_ERROR_UNSUPPORTED ? HD_OK : status; /* streams, with workers */
}

static hd_status recipe_hd_claim_begin(things *t)
{
    hd_claim *made = NULL;
    hd_arg use = hd_inout(t->buffer);
    hd_status status = hd_claim_begin(t->runtime, &use, 1, &made);
    return and_end(status, made);
}

static hd_status recipe_hd_claim_begin_with(things *t)
{
    hd_claim *made = NULL;
    hd_claim_options options = {.size = sizeof options, .label = "pair"};
    hd_arg use = hd_in_range(t->buffer, 512, 512);
    hd_status status = hd_claim_begin_with(t->runtime, &use, 1, &options, &made);
    return and_end(status, made);
}

static hd_status recipe_hd_claim_begin_stream(things *t)
{
    hd_claim *made = NULL;
    hd_arg use = hd_inout(t->buffer);
    hd_status status = hd_claim_begin_stream(t->runtime, 0, NULL, &use, 1, NULL, &made);
    return and_end(status, made);
}

static hd_status recipe_hd_claim_ready(things *t)
{
    hd_claim_ready(t->claim);
    return hd_claim_wait(t->claim, 0); /* fails if the claim was gone already */
}

static hd_status recipe_hd_claim_wait(things *t)
{
    return hd_claim_wait(t->claim, 0);
}

static void is_ready(hd_claim *claim, hd_status status, void *context)
{
    (void)claim;
    (void)status;
    (void)context;
}

static hd_status recipe_hd_claim_on_ready(things *t)
{
    hd_status status = hd_claim_on_ready(t->claim, is_ready, NULL);
    return status == HD_ERROR_ARGUMENT ? HD_OK : status; /* asked before */
}

static hd_status recipe_hd_claim_get_pointer(things *t)
{
    void *pointer = NULL;
    hd_status status = hd_claim_get_pointer(t->claim, 0, &pointer);
    return status == HD_ERROR_ACCESS ? HD_OK : status; /* memory of a device */
}

/* The claim may use no memory, or memory that the CPU can use, and it may not be ready yet. */
static hd_status and_no_copy(hd_status status)
{
    return status == HD_ERROR_ACCESS || status == HD_ERROR_RANGE || status == HD_ERROR_TIMEOUT ? HD_OK : status;
}

/* The claim that another thread may end, or one of the recipe's own, which *own returns. */
static hd_status claim_to_copy(things *t, hd_claim **own, hd_claim **claim)
{
    const hd_claim_options options = {.size = sizeof options, .copies = true};
    const hd_arg use = hd_inout(t->third);
    *own = NULL;
    hd_status status = t->claim ? HD_OK : hd_claim_begin_with(t->runtime, &use, 1, &options, own);
    *claim = t->claim ? t->claim : *own;
    return status ? status : t->claim ? HD_OK : hd_claim_wait(*own, HD_FOREVER);
}

static hd_status copy_claimed(things *t, bool writes)
{
    hd_claim *own, *claim;
    hd_status status = claim_to_copy(t, &own, &claim);
    if (!status) {
        status = and_no_copy(writes ? hd_claim_write(claim, 0, 256, t->buffer, 0, 512, NULL)
                                    : hd_claim_read(claim, 0, 0, t->buffer, 256, 512, NULL));
    }
    if (own) {
        hd_claim_end(own, HD_OK);
    }
    return status;
}

static hd_status recipe_hd_claim_read(things *t)
{
    return copy_claimed(t, false);
}

static hd_status recipe_hd_claim_write(things *t)
{
    return copy_claimed(t, true);
}

static hd_status recipe_hd_claim_get_ticket(things *t)
{
    hd_ticket ticket;
    return hd_claim_get_ticket(t->claim, &ticket);
}

static hd_status recipe_hd_claim_end(things *t)
{
    return hd_claim_end(t->claim, HD_OK);
}

static hd_status recipe_hd_claim_fail(things *t)
{
    /* refused: a failure would fail the other calls that read the claimed bytes */
    return hd_claim_fail(t->claim, HD_OK, "a reason");
}

static hd_status no_work(void *const *pointers, void *context)
{
    (void)pointers;
    (void)context;
    return HD_OK;
}

static hd_status recipe_hd_launch_host(things *t)
{
    hd_arg use = hd_inout(t->buffer);
    return hd_launch_host(t->runtime, no_work, NULL, &use, 1, NULL);
}

static hd_status no_launch(void *stream, void *context)
{
    (void)stream;
    (void)context;
    return HD_OK;
}

static hd_status recipe_hd_lane_run_native(things *t)
{
    hd_arg use = hd_inout(t->buffer);
    hd_status status = hd_lane_run_native(t->lane, no_launch, NULL, &use, 1, NULL);
    return status == HD_ERROR_UNSUPPORTED ? HD_OK : status;
}

static hd_status recipe_hd_lane_add_dependency(things *t)
{
    hd_ticket ticket = {NULL, 0};
    hd_status status = hd_lane_get_ticket(t->lane, &ticket);
    return status ? status : hd_lane_add_dependency(t->lane, ticket, NULL);
}

/* ---- runtimes ---- */

static hd_status recipe_hd_alloc_host(things *t)
{
    hd_buffer *made = NULL;
    hd_status status = hd_alloc_host(t->runtime, 1000, &made);
    return and_free(status, made);
}

static hd_status recipe_hd_hold_create(things *t)
{
    hd_hold *made = NULL;
    hd_status status = hd_hold_create(t->runtime, &made);
    if (!status) {
        hd_hold_destroy(made);
    }
    return status;
}

static hd_status recipe_hd_lane_create(things *t)
{
    hd_lane *made = NULL;
    hd_status status = hd_lane_create(t->runtime, 0, &made);
    if (!status) {
        hd_lane_destroy(made);
    }
    return status;
}

static hd_status recipe_hd_module_load(things *t)
{
    hd_module *made = NULL;
    hd_status status = hd_module_load(t->runtime, t->image, t->image_bytes, &made);
    if (!status) {
        hd_module_unload(made);
    }
    return status;
}

/* Refused on host devices, and on GPUs without the libraries of the toolkit. */
static hd_status and_unload(hd_status status, hd_module *made)
{
    if (!status) {
        hd_module_unload(made);
    }
    return status == HD_ERROR_UNSUPPORTED ? HD_OK : status;
}

static hd_status recipe_hd_module_compile(things *t)
{
    hd_module *made = NULL;
    hd_status status =
        hd_module_compile(t->runtime, "extern \"C\" __global__ void pair(int *y) { *y = 1; }", NULL, &made);
    return and_unload(status, made);
}

static hd_status recipe_hd_module_link(things *t)
{
    static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry pair() { ret; }\n";
    hd_module *made = NULL;
    hd_code_part part = {ptx, sizeof ptx, "pair"};
    hd_status status = hd_module_link(t->runtime, &part, 1, &made);
    return and_unload(status, made);
}

static hd_status recipe_hd_module_load_file(things *t)
{
    hd_module *made = NULL;
    hd_status status = hd_module_load_file(t->runtime, t->image_file, &made);
    if (!status) {
        hd_module_unload(made);
    }
    return status;
}

static hd_status recipe_hd_module_get_builtin(things *t)
{
    hd_module *made = NULL;
    return hd_module_get_builtin(t->runtime, &made);
}

static hd_status recipe_hd_lane_get_default(things *t)
{
    hd_lane *lane = NULL;
    return hd_lane_get_default(t->runtime, 0, &lane);
}

static hd_status recipe_hd_device_count(things *t)
{
    CONF_TRUE(hd_device_count(t->runtime) <= 32);
    return HD_OK;
}

static hd_status recipe_hd_device_get_info(things *t)
{
    hd_device_info info = {.size = sizeof info};
    return hd_device_get_info(t->runtime, 0, &info);
}

static hd_status recipe_hd_device_get_stats(things *t)
{
    hd_device_stats stats = {.size = sizeof stats};
    return hd_device_get_stats(t->runtime, 0, &stats);
}

static hd_status recipe_hd_device_restart(things *t)
{
    hd_status status = hd_device_restart(t->runtime, 0);
    return status == HD_ERROR_UNSUPPORTED ? HD_OK : status; /* placements without workers */
}

static hd_status recipe_hd_loss_descriptor(things *t)
{
    int descriptor = -1;
    return hd_loss_descriptor(t->runtime, &descriptor);
}

static hd_status recipe_hd_loss_next(things *t)
{
    hd_device_loss loss = {.size = sizeof loss};
    hd_status status = hd_loss_next(t->runtime, &loss);
    return status == HD_ERROR_NOT_FOUND ? HD_OK : status;
}

/* A runtime writes one trace at a time: another pair's call may have begun or ended it. */
static hd_status recipe_hd_trace_start(things *t)
{
    hd_status status = hd_trace_start(t->runtime, "/dev/null", NULL);
    return status == HD_ERROR_ARGUMENT ? HD_OK : status;
}

static hd_status recipe_hd_trace_stop(things *t)
{
    hd_trace_info info = {.size = sizeof info};
    hd_status status = hd_trace_stop(t->runtime, &info);
    return status == HD_ERROR_NOT_FOUND ? HD_OK : status;
}

static hd_status recipe_hd_range_push(things *t)
{
    return hd_range_push(t->runtime, "a range of a pair");
}

static hd_status recipe_hd_range_pop(things *t)
{
    return hd_range_pop(t->runtime);
}

static hd_status recipe_hd_trace_active(things *t)
{
    (void)hd_trace_active(t->runtime);
    return HD_OK;
}

static hd_status recipe_hd_trace_set_rank(things *t)
{
    const hd_trace_rank rank = {.size = sizeof rank, .ranks = 1};
    return hd_trace_set_rank(t->runtime, &rank);
}

static hd_status recipe_hd_trace_add_message(things *t)
{
    const hd_trace_message message = {
        .size = sizeof message, .kind = HD_TRACE_SEND, .ticket = conf_lane_ticket(t->lane)};
    return hd_trace_add_message(t->runtime, &message);
}

static hd_status recipe_hd_runtime_get_info(things *t)
{
    hd_runtime_info info = {.size = sizeof info};
    return hd_runtime_get_info(t->runtime, &info);
}

static hd_status recipe_hd_option_get_info(things *t)
{
    hd_option_info info = {.size = sizeof info};
    return hd_option_get_info(t->runtime, 0, &info);
}

static bool frees_nothing(void *context, const hd_reclaim *reclaim)
{
    (void)context;
    (void)reclaim;
    return false;
}

static hd_status recipe_hd_memory_on_reclaim(things *t)
{
    static _Thread_local unsigned turn;
    return hd_memory_on_reclaim(t->runtime, ++turn % 2 ? frees_nothing : NULL, NULL);
}

static hd_status recipe_hd_memory_on_finding(things *t)
{
    return hd_memory_on_finding(t->runtime, NULL, NULL);
}

static hd_status recipe_hd_memory_trim(things *t)
{
    static _Thread_local unsigned turn;
    return hd_memory_trim(t->runtime, ++turn % 2 ? 0 : HD_DEVICE_HOST, 0, NULL);
}

static bool goes_on(void *context, const hd_memory_block *block)
{
    (void)context;
    return block->bytes != 0;
}

static hd_status recipe_hd_memory_each(things *t)
{
    return hd_memory_each(t->runtime, goes_on, NULL);
}

static hd_status recipe_hd_memory_get_stats(things *t)
{
    hd_memory_stats stats = {.size = sizeof stats};
    return hd_memory_get_stats(t->runtime, 0, &stats);
}

static hd_status recipe_hd_memory_get_lanes(things *t)
{
    hd_lane_memory lanes[4];
    size_t count = 0;
    return hd_memory_get_lanes(t->runtime, 0, lanes, 4, &count);
}

static hd_status recipe_hd_memory_report(things *t)
{
    char text[4000];
    return hd_memory_report(t->runtime, HD_REPORT_TEXT, text, sizeof text, NULL);
}

static hd_status recipe_hd_peer_check(things *t)
{
    hd_peer_info info = {.size = sizeof info};
    return hd_peer_check(t->runtime, 0, 0, &info);
}

static hd_status recipe_hd_peers_check(things *t)
{
    return hd_peers_check(t->runtime, 0, NULL, NULL);
}

static hd_status recipe_hd_close(things *t)
{
    return hd_close(t->runtime);
}

#endif
