/* test_nulls.c - every function with null pointers, and with numbers that name nothing.
 *
 * Promise: A null pointer or false number never crashes a call: it fails and changes no output.
 * Placements: thread.
 *
 * Threads: the main one.
 * Locks: none.
 * Always: a failed call changes none of its outputs and leaves a message. No call crashes on a null
 * pointer.
 */
#include "conformance.h"

static hd_lane *const untouched_lane = (hd_lane *)(uintptr_t)0x1234;
static hd_buffer *const untouched_buffer = (hd_buffer *)(uintptr_t)0x1234;
static hd_module *const untouched_module = (hd_module *)(uintptr_t)0x1234;
static hd_kernel *const untouched_kernel = (hd_kernel *)(uintptr_t)0x1234;

static void lanes_take_nulls(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    int count = hd_device_count(runtime);
    const int none[] = {-1, count, 1000000};
    hd_lane *lane = untouched_lane;
    CONF_FAILS(hd_lane_get_default(NULL, 0, &lane), HD_ERROR_HANDLE);
    CONF_FAILS(hd_lane_get_default(runtime, 0, NULL), HD_ERROR_ARGUMENT);
    for (int i = 0; i < 3; i++) {
        CONF_FAILS(hd_lane_get_default(runtime, none[i], &lane), HD_ERROR_NO_DEVICE);
        char text[128];
        if (count == 1) {
            snprintf(text, sizeof text, "the runtime has no device %d; it has only device 0", none[i]);
        } else {
            snprintf(text, sizeof text, "the runtime has no device %d; its devices are 0 to %d", none[i], count - 1);
        }
        CONF_TRUE(strstr(hd_message(), text) != NULL);
        CONF_FAILS(hd_lane_create(runtime, none[i], &lane), HD_ERROR_NO_DEVICE);
    }
    CONF_FAILS(hd_lane_create(NULL, 0, &lane), HD_ERROR_HANDLE);
    CONF_TRUE(lane == untouched_lane);
    CONF_FAILS(hd_lane_create(runtime, 0, NULL), HD_ERROR_ARGUMENT);
    CONF_OK(hd_lane_destroy(NULL));
    CONF_EQUAL(hd_lane_device(NULL), -1);
    CONF_EQUAL(hd_lane_number(NULL), -1);
    hd_ticket ticket = {NULL, 0};
    CONF_FAILS(hd_lane_get_ticket(NULL, &ticket), HD_ERROR_HANDLE);
    CONF_FAILS(hd_lane_get_ticket(conf_default_lane(runtime, 0), NULL), HD_ERROR_ARGUMENT);
    CONF_TRUE(ticket.lane == NULL && ticket.sequence == 0);
    CONF_FAILS(hd_lane_wait(NULL, 0), HD_ERROR_HANDLE);
    CONF_FAILS(hd_lane_wait(NULL, HD_FOREVER), HD_ERROR_HANDLE);
    CONF_FAILS(hd_lane_reset(NULL, HD_FOREVER), HD_ERROR_HANDLE);
    CONF_TRUE(hd_done(ticket));
    CONF_OK(hd_wait(ticket, 0));
    CONF_OK(hd_wait(ticket, HD_FOREVER));
    conf_close(runtime);
}

static void imports_take_nulls(void **state)
{
    (void)state;
    static char memory[4096];
    hd_runtime *runtime = conf_open(NULL);
    hd_buffer *buffer = NULL;
    const hd_import_options small = {.size = 1};
    CONF_FAILS(hd_import(NULL, 0, 4096, 4096, NULL, &buffer), HD_ERROR_HANDLE);
    CONF_FAILS_WITH(hd_import(runtime, 0, 4096, 4096, NULL, NULL), HD_ERROR_ARGUMENT, "out is null");
    CONF_FAILS_WITH(hd_import(runtime, 0, 0, 4096, NULL, &buffer), HD_ERROR_ARGUMENT, "the address is 0");
    CONF_FAILS_WITH(hd_import(runtime, 0, 4096, 0, NULL, &buffer), HD_ERROR_ARGUMENT, "bytes is 0");
    CONF_FAILS(hd_import(runtime, 0, 4096, 4096, &small, &buffer), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_import(runtime, -1, 4096, 4096, NULL, &buffer), HD_ERROR_NO_DEVICE);
    CONF_FAILS(hd_import(runtime, 1000, 4096, 4096, NULL, &buffer), HD_ERROR_NO_DEVICE);
    CONF_FAILS(hd_import_host(NULL, memory, 4096, NULL, &buffer), HD_ERROR_HANDLE);
    CONF_FAILS_WITH(hd_import_host(runtime, memory, 4096, NULL, NULL), HD_ERROR_ARGUMENT, "out is null");
    CONF_FAILS_WITH(hd_import_host(runtime, NULL, 4096, NULL, &buffer), HD_ERROR_ARGUMENT, "the address is 0");
    CONF_FAILS_WITH(hd_import_host(runtime, memory, 0, NULL, &buffer), HD_ERROR_ARGUMENT, "bytes is 0");
    CONF_FAILS(hd_import_host(runtime, memory, 4096, &small, &buffer), HD_ERROR_ARGUMENT);
    hd_export export = {.size = sizeof export}, tiny = {.size = 1};
    CONF_FAILS(hd_import_descriptor(NULL, 0, &export, NULL, &buffer), HD_ERROR_HANDLE);
    CONF_FAILS_WITH(hd_import_descriptor(runtime, 0, NULL, NULL, &buffer), HD_ERROR_ARGUMENT, "from is null");
    CONF_FAILS_WITH(hd_import_descriptor(runtime, 0, &export, NULL, NULL), HD_ERROR_ARGUMENT, "out is null");
    CONF_FAILS(hd_import_descriptor(runtime, 0, &tiny, NULL, &buffer), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_import_descriptor(runtime, 0, &export, &small, &buffer), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_import_descriptor(runtime, -1, &export, NULL, &buffer), HD_ERROR_NO_DEVICE);
    CONF_FAILS(hd_import_descriptor(runtime, 0, &export, NULL, &buffer), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_buffer_export(NULL, HD_EXPORT_DESCRIPTOR, &export), HD_ERROR_HANDLE);
    CONF_FAILS(hd_buffer_export(NULL, HD_EXPORT_DESCRIPTOR, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_buffer_export(NULL, HD_EXPORT_DESCRIPTOR, &tiny), HD_ERROR_ARGUMENT);
    CONF_TRUE(buffer == NULL);
    conf_close(runtime);
}

static void claims_take_nulls(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_claim *claim = NULL;
    hd_ticket ticket = {NULL, 0};
    void *pointer = NULL;
    CONF_FAILS(hd_claim_begin(NULL, NULL, 0, &claim), HD_ERROR_HANDLE);
    CONF_FAILS(hd_claim_begin(runtime, NULL, 1, &claim), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_claim_begin_with(NULL, NULL, 0, NULL, &claim), HD_ERROR_HANDLE);
    CONF_FAILS(hd_claim_begin_with(runtime, NULL, 0, NULL, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_claim_begin_with(runtime, NULL, 0, &(hd_claim_options){.size = 1}, &claim), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_claim_begin_stream(NULL, 0, NULL, NULL, 0, NULL, &claim), HD_ERROR_HANDLE);
    CONF_FAILS(hd_claim_begin_stream(runtime, -1, NULL, NULL, 0, NULL, &claim), HD_ERROR_NO_DEVICE);
    CONF_FAILS(hd_claim_begin_stream(runtime, 0, NULL, NULL, 0, NULL, NULL), HD_ERROR_ARGUMENT);
    CONF_TRUE(claim == NULL && hd_claim_ready(NULL));
    CONF_FAILS(hd_claim_wait(NULL, 0), HD_ERROR_HANDLE);
    CONF_FAILS(hd_claim_on_ready(NULL, NULL, NULL), HD_ERROR_HANDLE);
    CONF_FAILS(hd_claim_get_ticket(NULL, &ticket), HD_ERROR_HANDLE);
    CONF_FAILS(hd_claim_get_pointer(NULL, 0, &pointer), HD_ERROR_HANDLE);
    CONF_FAILS(hd_claim_read(NULL, 0, 0, NULL, 0, 4, &ticket), HD_ERROR_HANDLE);
    CONF_FAILS(hd_claim_write(NULL, 0, 0, NULL, 0, 4, &ticket), HD_ERROR_HANDLE);
    CONF_FAILS(hd_claim_end(NULL, HD_OK), HD_ERROR_HANDLE);
    CONF_FAILS(hd_claim_fail(NULL, HD_ERROR_SYSTEM, NULL), HD_ERROR_HANDLE);
    CONF_OK(hd_claim_begin(runtime, NULL, 0, &claim));
    CONF_FAILS(hd_claim_get_ticket(claim, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_claim_get_pointer(claim, 0, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_claim_get_pointer(claim, 0, &pointer), HD_ERROR_RANGE);
    CONF_FAILS(hd_claim_on_ready(claim, NULL, NULL), HD_ERROR_ARGUMENT);
    CONF_OK(hd_claim_end(claim, HD_OK));
    CONF_FAILS(hd_launch_host(NULL, NULL, NULL, NULL, 0, NULL), HD_ERROR_HANDLE);
    CONF_FAILS(hd_launch_host(runtime, NULL, NULL, NULL, 0, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_lane_run_native(NULL, NULL, NULL, NULL, 0, NULL), HD_ERROR_HANDLE);
    CONF_FAILS(hd_lane_run_native(lane, NULL, NULL, NULL, 0, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_lane_add_dependency(NULL, ticket, NULL), HD_ERROR_HANDLE);
    CONF_OK(hd_lane_add_dependency(lane, ticket, NULL));
    CONF_FAILS(hd_lane_keep_times(NULL, true), HD_ERROR_HANDLE);
    int64_t ns = 7;
    CONF_FAILS(hd_ticket_get_elapsed(ticket, ticket, &ns), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_ticket_get_elapsed(ticket, ticket, NULL), HD_ERROR_ARGUMENT);
    CONF_EQUAL(ns, 7);
    conf_close(runtime);
}

static void buffers_take_nulls(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_buffer *buffer = untouched_buffer;
    CONF_FAILS(hd_alloc(NULL, 16, &buffer), HD_ERROR_HANDLE);
    CONF_FAILS(hd_alloc(lane, 0, &buffer), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_alloc(lane, (size_t)1 << 60, &buffer), HD_ERROR_MEMORY);
    CONF_FAILS(hd_alloc(lane, SIZE_MAX, &buffer), HD_ERROR_MEMORY);
    CONF_FAILS(hd_alloc(lane, SIZE_MAX - 255, &buffer), HD_ERROR_MEMORY);
    CONF_FAILS(hd_alloc(lane, 16, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_alloc_host(NULL, 16, &buffer), HD_ERROR_HANDLE);
    CONF_FAILS(hd_alloc_host(runtime, 0, &buffer), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_alloc_host(runtime, 16, NULL), HD_ERROR_ARGUMENT);
    hd_status status = hd_alloc_host(runtime, (size_t)1 << 60, &buffer);
    CONF_TRUE(status == HD_ERROR_HOST_MEMORY || status == HD_ERROR_DRIVER || status == HD_ERROR_SYSTEM);
    status = hd_alloc_host(runtime, SIZE_MAX, &buffer);
    CONF_TRUE(status == HD_ERROR_HOST_MEMORY || status == HD_ERROR_DRIVER || status == HD_ERROR_SYSTEM);
    CONF_TRUE(buffer == untouched_buffer);
    CONF_OK(hd_free(NULL));
    CONF_EQUAL(hd_buffer_size(NULL), 0);
    CONF_EQUAL(hd_buffer_device(NULL), -2);
    CONF_EQUAL(hd_buffer_address(NULL), 0);
    void *pointer = &pointer;
    CONF_FAILS(hd_map(NULL, HD_READ, &pointer), HD_ERROR_HANDLE);
    CONF_FAILS(hd_unmap(NULL), HD_ERROR_HANDLE);
    CONF_FAILS(hd_buffer_wait(NULL, HD_READ, 0), HD_ERROR_HANDLE);

    hd_buffer *pinned = NULL, *device = NULL;
    CONF_OK(hd_alloc_host(runtime, 64, &pinned));
    CONF_OK(hd_alloc(lane, 64, &device));
    CONF_FAILS(hd_map(pinned, HD_READ, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_map(pinned, (hd_access)0, &pointer), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_map(pinned, (hd_access)4, &pointer), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_map(device, HD_READ, &pointer), HD_ERROR_ACCESS);
    CONF_TRUE(strstr(hd_message(), "hd_read") != NULL); /* the remedy */
    CONF_TRUE(pointer == &pointer);
    CONF_FAILS(hd_buffer_wait(device, (hd_access)0, 0), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_buffer_wait(device, (hd_access)8, 0), HD_ERROR_ARGUMENT);
    CONF_FAILS_WITH(hd_unmap(device), HD_ERROR_ACCESS, "hd_unmap: ");
    CONF_OK(hd_unmap(pinned)); /* mappings of pinned memory are not counted */
    conf_close(runtime);
}

static void copies_take_nulls(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_buffer *buffer = NULL;
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), 64, &buffer));
    CONF_OK(hd_fill(buffer, 0, 0x11111111u, 64, NULL));
    uint8_t bytes[64] = {0};
    hd_ticket ticket = {NULL, 99};
    CONF_FAILS(hd_write(NULL, 0, bytes, 16), HD_ERROR_HANDLE);
    CONF_FAILS(hd_write(buffer, 0, NULL, 16), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_read(NULL, 0, bytes, 16), HD_ERROR_HANDLE);
    CONF_FAILS(hd_read(buffer, 0, NULL, 16), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_copy(NULL, 0, buffer, 0, 16, &ticket), HD_ERROR_HANDLE);
    CONF_FAILS(hd_copy(buffer, 0, NULL, 0, 16, &ticket), HD_ERROR_HANDLE);
    CONF_FAILS(hd_fill(NULL, 0, 1, 16, &ticket), HD_ERROR_HANDLE);
    CONF_FAILS(hd_fill(buffer, 2, 1, 16, &ticket), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_fill(buffer, 0, 1, 15, &ticket), HD_ERROR_ARGUMENT);
    CONF_TRUE(ticket.lane == NULL && ticket.sequence == 99);
    CONF_FILLED(buffer, 0, 0x11111111u, 64);
    conf_close(runtime);
}

static void dlpack_takes_nulls(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_buffer *buffer = NULL;
    hd_tensor t;
    struct DLManagedTensorVersioned *managed = NULL;
    struct DLManagedTensor *old = NULL;
    hd_dlpack_options options = {.size = 1};
    int32_t type = -7, id = -7;
    CONF_OK(hd_alloc_host(runtime, 64, &buffer));
    CONF_OK(hd_tensor_make(buffer, 0, HD_TYPE_U8, 1, (const uint64_t[]){64}, &t));
    CONF_FAILS(hd_dlpack_export(NULL, 0, NULL, &managed), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_dlpack_export(&t, 0, NULL, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_dlpack_export(&t, 0, &options, &managed), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_dlpack_export_unversioned(NULL, 0, NULL, &old), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_dlpack_export_unversioned(&t, 0, NULL, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_dlpack_export_unversioned(&t, 0, &options, &old), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_dlpack_get_device(NULL, 0, &type, &id), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_dlpack_get_device(&t, 0, NULL, &id), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_dlpack_get_device(&t, 0, &type, NULL), HD_ERROR_ARGUMENT);
    void *zeros[32] = {NULL}; /* larger than either form */
    managed = (struct DLManagedTensorVersioned *)zeros;
    old = (struct DLManagedTensor *)zeros;
    hd_tensor made = {.dims = -7};
    CONF_FAILS(hd_dlpack_import(NULL, managed, 0, NULL, &made), HD_ERROR_HANDLE);
    CONF_FAILS(hd_dlpack_import(runtime, NULL, 0, NULL, &made), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_dlpack_import(runtime, managed, 0, NULL, NULL), HD_ERROR_ARGUMENT);
    /* version 0 */
    CONF_FAILS(hd_dlpack_import(runtime, managed, 0, NULL, &made), HD_ERROR_UNSUPPORTED);
    CONF_FAILS(hd_dlpack_import_unversioned(NULL, old, 0, NULL, &made), HD_ERROR_HANDLE);
    CONF_FAILS(hd_dlpack_import_unversioned(runtime, NULL, 0, NULL, &made), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_dlpack_import_unversioned(runtime, old, 0, NULL, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_dlpack_import_unversioned(runtime, old, 0, &options, &made), HD_ERROR_ARGUMENT);
    /* no type */
    CONF_FAILS(hd_dlpack_import_unversioned(runtime, old, 0, NULL, &made), HD_ERROR_UNSUPPORTED);
    CONF_TRUE(made.dims == -7);
    managed = NULL;
    old = NULL;
    t.buffer = NULL;
    CONF_FAILS(hd_dlpack_export(&t, 0, NULL, &managed), HD_ERROR_HANDLE);
    CONF_FAILS(hd_dlpack_export_unversioned(&t, 0, NULL, &old), HD_ERROR_HANDLE);
    CONF_FAILS(hd_dlpack_get_device(&t, 0, &type, &id), HD_ERROR_HANDLE);
    CONF_TRUE(managed == NULL && old == NULL && type == -7 && id == -7);
    conf_close(runtime);
}

static void modules_take_nulls(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_lane *lane = conf_default_lane(runtime, 0);
    hd_module *module = untouched_module;
    hd_kernel *kernel = untouched_kernel;
    CONF_FAILS(hd_module_load(NULL, "x", 1, &module), HD_ERROR_HANDLE);
    CONF_FAILS(hd_module_load(runtime, NULL, 1, &module), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_module_load(runtime, "x", 1, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_module_load_file(NULL, "x", &module), HD_ERROR_HANDLE);
    CONF_FAILS(hd_module_load_file(runtime, NULL, &module), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_module_load_file(runtime, "x", NULL), HD_ERROR_ARGUMENT);
    hd_status status = hd_module_load(runtime, "x", 0, &module);
    CONF_TRUE(status == HD_ERROR_ARGUMENT || status == HD_ERROR_IMAGE);
    CONF_TRUE(module == untouched_module);
    hd_compile_options compile = {.size = sizeof compile, .n_options = 1};
    CONF_FAILS(hd_module_compile(NULL, "", NULL, &module), HD_ERROR_HANDLE);
    CONF_FAILS(hd_module_compile(runtime, NULL, NULL, &module), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_module_compile(runtime, "", NULL, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_module_compile(runtime, "", &compile, &module), HD_ERROR_ARGUMENT);
    compile = (hd_compile_options){.size = sizeof compile, .kernels = (const char *const[]){NULL}, .n_kernels = 1};
    CONF_FAILS(hd_module_compile(runtime, "", &compile, &module), HD_ERROR_ARGUMENT);
    compile = (hd_compile_options){.size = 1};
    CONF_FAILS(hd_module_compile(runtime, "", &compile, &module), HD_ERROR_ARGUMENT);
    hd_code_part part = {NULL, 1, NULL};
    CONF_FAILS(hd_module_link(NULL, &part, 1, &module), HD_ERROR_HANDLE);
    CONF_FAILS(hd_module_link(runtime, NULL, 1, &module), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_module_link(runtime, &part, 1, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_module_link(runtime, &part, 0, &module), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_module_link(runtime, &part, 1, &module), HD_ERROR_ARGUMENT);
    part = (hd_code_part){"x", 0, NULL};
    CONF_FAILS(hd_module_link(runtime, &part, 1, &module), HD_ERROR_ARGUMENT);
    CONF_TRUE(module == untouched_module);
    CONF_OK(hd_module_unload(NULL));
    CONF_FAILS(hd_module_get_builtin(NULL, &module), HD_ERROR_HANDLE);
    CONF_TRUE(module == untouched_module);
    CONF_FAILS(hd_module_get_builtin(runtime, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_kernel_get(NULL, "hd_fill_u32", &kernel), HD_ERROR_HANDLE);
    CONF_OK(hd_module_get_builtin(runtime, &module));
    CONF_FAILS(hd_kernel_get(module, NULL, &kernel), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_kernel_get(module, "nosuchkernel", &kernel), HD_ERROR_NOT_FOUND);
    CONF_TRUE(kernel == untouched_kernel);
    CONF_FAILS(hd_kernel_get(module, "hd_fill_u32", NULL), HD_ERROR_ARGUMENT);
    hd_buffer *global = untouched_buffer;
    CONF_FAILS(hd_module_get_global(NULL, 0, "x", &global), HD_ERROR_HANDLE);
    CONF_FAILS(hd_module_get_global(module, 0, NULL, &global), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_module_get_global(module, 0, "x", NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_module_get_global(module, 0, "x", &global), HD_ERROR_NOT_FOUND);
    CONF_TRUE(global == untouched_buffer);
    CONF_OK(hd_kernel_get(module, "hd_fill_u32", &kernel));
    hd_parameter_info parameter = {.size = sizeof parameter};
    CONF_FAILS(hd_kernel_get_parameter(NULL, 0, &parameter), HD_ERROR_HANDLE);
    CONF_FAILS(hd_kernel_get_parameter(kernel, 0, NULL), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_kernel_get_parameter(kernel, -1, &parameter), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_kernel_get_parameter(kernel, 3, &parameter), HD_ERROR_NOT_FOUND);
    parameter.size = 1;
    CONF_FAILS(hd_kernel_get_parameter(kernel, 0, &parameter), HD_ERROR_ARGUMENT);

    hd_buffer *buffer = NULL;
    CONF_OK(hd_alloc(lane, 64, &buffer));
    hd_arg args[] = {hd_out(buffer), hd_u64(16), hd_u32(0)};
    hd_ticket ticket = {NULL, 99};
    hd_dims one = {1, 1, 1}, block = {32, 1, 1};
    CONF_FAILS(hd_launch(NULL, kernel, one, block, 0, args, 3, &ticket), HD_ERROR_HANDLE);
    CONF_FAILS(hd_launch(lane, NULL, one, block, 0, args, 3, &ticket), HD_ERROR_HANDLE);
    CONF_FAILS(hd_launch(lane, kernel, one, block, 0, NULL, 3, &ticket), HD_ERROR_ARGUMENT);
    args[0].value.buffer = NULL;
    CONF_FAILS(hd_launch(lane, kernel, one, block, 0, args, 3, &ticket), HD_ERROR_HANDLE);
    CONF_TRUE(ticket.lane == NULL && ticket.sequence == 99);
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_nulls");
    const struct CMUnitTest tests[] = {
        CONF_CASE(lanes_take_nulls),   CONF_CASE(claims_take_nulls), CONF_CASE(imports_take_nulls),
        CONF_CASE(buffers_take_nulls), CONF_CASE(copies_take_nulls), CONF_CASE(modules_take_nulls),
        CONF_CASE(dlpack_takes_nulls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
