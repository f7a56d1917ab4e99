/* test_handles.c - bad handles: of another kind, of a destroyed object, of a closed runtime. Every
 * call refuses them with HANDLE. A call that returns no status does what its header documents for a
 * bad handle.
 *
 * Promise: Every call refuses a handle that is stale, of another kind or of a closed runtime.
 * Placements: thread.
 *
 * Threads: the main one.
 * Locks: none.
 * Always: the library reads no object that was given back; the address sanitizer would see it.
 */
#include "conformance.h"

enum { bytes = 4096 };

/* One handle of each kind, and a ticket. */
typedef struct things {
    hd_runtime *runtime;
    hd_lane *lane;
    hd_buffer *buffer, *pinned, *unified;
    hd_module *module;
    hd_kernel *kernel;
    hd_hold *hold;
    hd_claim *claim;
    hd_ticket ticket;
} things;

static things make_things(void)
{
    things t = {.runtime = conf_open(NULL)};
    CONF_OK(hd_lane_create(t.runtime, 0, &t.lane));
    CONF_OK(hd_alloc(t.lane, bytes, &t.buffer));
    CONF_OK(hd_alloc_host(t.runtime, bytes, &t.pinned));
    CONF_OK(hd_alloc_unified(t.lane, bytes, &t.unified));
    CONF_OK(hd_module_get_builtin(t.runtime, &t.module));
    CONF_OK(hd_kernel_get(t.module, "hd_fill_u32", &t.kernel));
    CONF_OK(hd_hold_create(t.runtime, &t.hold));
    CONF_OK(conf_fill(t.lane, conf_builtins(t.runtime), t.buffer, 0, 16, 1, &t.ticket));
    hd_arg use = hd_in(t.pinned);
    CONF_OK(hd_claim_begin(t.runtime, &use, 1, &t.claim));
    return t;
}

static void refused(hd_status status, const char *word, int line)
{
    if (status != HD_ERROR_HANDLE || strstr(hd_message(), word) == NULL) {
        conf_fail_at(__FILE__, line, "%s, \"%s\": not HANDLE with \"%s\"", hd_status_name(status), hd_message(), word);
    }
}

/* Calls that take a lane. */
static void as_a_lane(const things *t, void *bad, const char *word)
{
    hd_lane *lane = bad;
    hd_buffer *out = NULL;
    refused(hd_lane_wait(lane, 0), word, __LINE__);
    refused(hd_lane_reset(lane, 0), word, __LINE__);
    refused(hd_alloc(lane, bytes, &out), word, __LINE__);
    refused(hd_alloc_unified(lane, bytes, &out), word, __LINE__);
    refused(hd_wait((hd_ticket){lane, 1}, 0), word, __LINE__);
    refused(conf_fill(lane, (conf_kernels){.fill = t->kernel}, t->buffer, 0, 16, 1, NULL), word, __LINE__);
    CONF_TRUE(out == NULL);
    CONF_TRUE(hd_lane_device(lane) == -1 && hd_lane_number(lane) == -1);
    hd_ticket ticket = {NULL, 5};
    refused(hd_lane_get_ticket(lane, &ticket), word, __LINE__);
    CONF_TRUE(ticket.lane == NULL && ticket.sequence == 5);
    CONF_TRUE(hd_done((hd_ticket){lane, 1}));
    refused(hd_lane_destroy(lane), word, __LINE__);
}

/* Calls that take a buffer. */
static void as_a_buffer(const things *t, void *bad, const char *word)
{
    hd_buffer *buffer = bad;
    uint32_t x = 0;
    void *at = NULL;
    refused(hd_read(buffer, 0, &x, 4), word, __LINE__);
    refused(hd_write(buffer, 0, &x, 4), word, __LINE__);
    refused(hd_fill(buffer, 0, 0, 4, NULL), word, __LINE__);
    refused(hd_map(buffer, HD_READ, &at), word, __LINE__);
    refused(hd_buffer_wait(buffer, HD_READ, 0), word, __LINE__);
    refused(hd_buffer_export(buffer, HD_EXPORT_DESCRIPTOR, &(hd_export){.size = sizeof(hd_export)}), word, __LINE__);
    refused(hd_buffer_set_label(buffer, "x"), word, __LINE__);
    refused(hd_copy(buffer, 0, t->pinned, 0, 4, NULL), word, __LINE__);
    CONF_TRUE(hd_buffer_size(buffer) == 0 && hd_buffer_device(buffer) == -2 && hd_buffer_address(buffer) == 0);
    refused(hd_free(buffer), word, __LINE__);
}

/* Calls that take a module, a kernel, a hold or a runtime. */
static void as_a_module(void *bad, const char *word)
{
    hd_kernel *kernel = NULL;
    hd_buffer *global = NULL;
    refused(hd_kernel_get(bad, "hd_fill_u32", &kernel), word, __LINE__);
    refused(hd_module_get_global(bad, 0, "x", &global), word, __LINE__);
    refused(hd_module_unload(bad), word, __LINE__);
}

static void as_a_kernel(const things *t, void *bad, const char *word)
{
    hd_parameter_info parameter = {.size = sizeof parameter};
    refused(conf_fill(t->lane, (conf_kernels){.fill = bad}, t->buffer, 0, 16, 1, NULL), word, __LINE__);
    refused(hd_kernel_get_parameter(bad, 0, &parameter), word, __LINE__);
}

static void as_a_hold(const things *t, void *bad, const char *word)
{
    refused(hd_hold_add(bad, t->buffer), word, __LINE__);
    refused(hd_hold_destroy(bad), word, __LINE__);
}

static void as_a_claim(void *bad, const char *word)
{
    hd_ticket ticket = {NULL, 5};
    void *pointer = NULL;
    refused(hd_claim_wait(bad, 0), word, __LINE__);
    refused(hd_claim_get_ticket(bad, &ticket), word, __LINE__);
    refused(hd_claim_get_pointer(bad, 0, &pointer), word, __LINE__);
    refused(hd_claim_on_ready(bad, NULL, NULL), word, __LINE__);
    refused(hd_claim_read(bad, 0, 0, NULL, 0, 4, &ticket), word, __LINE__);
    refused(hd_claim_write(bad, 0, 0, NULL, 0, 4, &ticket), word, __LINE__);
    refused(hd_claim_end(bad, HD_OK), word, __LINE__);
    refused(hd_claim_fail(bad, HD_ERROR_SYSTEM, "a reason"), word, __LINE__);
    CONF_TRUE(hd_claim_ready(bad) && ticket.sequence == 5 && pointer == NULL);
}

static void as_a_runtime(void *bad, const char *word)
{
    hd_runtime *runtime = bad;
    hd_runtime_info info = {.size = sizeof info};
    hd_device_info device = {.size = sizeof device};
    hd_device_stats stats = {.size = sizeof stats};
    hd_lane *lane = NULL;
    hd_buffer *buffer = NULL;
    hd_module *module = NULL;
    hd_hold *hold = NULL;
    int descriptor = -1;
    size_t freed = 0;
    refused(hd_runtime_get_info(runtime, &info), word, __LINE__);
    refused(hd_device_get_info(runtime, 0, &device), word, __LINE__);
    refused(hd_device_get_stats(runtime, 0, &stats), word, __LINE__);
    refused(hd_device_restart(runtime, 0), word, __LINE__);
    refused(hd_lane_create(runtime, 0, &lane), word, __LINE__);
    refused(hd_alloc_host(runtime, bytes, &buffer), word, __LINE__);
    refused(hd_import(runtime, 0, 4096, bytes, NULL, &buffer), word, __LINE__);
    refused(hd_import_descriptor(runtime, 0, &(hd_export){.size = sizeof(hd_export)}, NULL, &buffer), word, __LINE__);
    refused(hd_import_host(runtime, &info, sizeof info, NULL, &buffer), word, __LINE__);
    refused(hd_module_get_builtin(runtime, &module), word, __LINE__);
    refused(hd_module_load(runtime, "x", 1, &module), word, __LINE__);
    refused(hd_module_compile(runtime, "x", NULL, &module), word, __LINE__);
    refused(hd_module_link(runtime, &(hd_code_part){"x", 1, NULL}, 1, &module), word, __LINE__);
    refused(hd_module_load_file(runtime, "x", &module), word, __LINE__);
    refused(hd_hold_create(runtime, &hold), word, __LINE__);
    void *zeros[32] = {NULL};
    hd_tensor tensor;
    refused(hd_dlpack_import(runtime, (struct DLManagedTensorVersioned *)zeros, 0, NULL, &tensor), word, __LINE__);
    refused(hd_dlpack_import_unversioned(runtime, (struct DLManagedTensor *)zeros, 0, NULL, &tensor), word, __LINE__);
    refused(hd_loss_descriptor(runtime, &descriptor), word, __LINE__);
    refused(hd_memory_trim(runtime, 0, 0, &freed), word, __LINE__);
    refused(hd_memory_on_reclaim(runtime, NULL, NULL), word, __LINE__);
    refused(hd_lane_get_default(runtime, 0, &lane), word, __LINE__);
    CONF_EQUAL(hd_device_count(runtime), 0);
    refused(hd_close(runtime), word, __LINE__);
}

static void of_another_kind(void **state)
{
    (void)state;
    things t = make_things();
    const struct {
        void *handle;
        const char *word;
        int kind;
    } all[] = {
        {t.runtime, "this is a runtime", 0}, {t.lane, "this is a lane", 1},     {t.buffer, "this is a buffer", 2},
        {t.pinned, "this is a buffer", 2},   {t.module, "this is a module", 3}, {t.kernel, "this is a kernel", 4},
        {t.hold, "this is a hold", 5},       {t.claim, "this is a claim", 6},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        void *bad = all[i].handle;
        if (all[i].kind != 0) {
            as_a_runtime(bad, all[i].word);
        }
        if (all[i].kind != 1) {
            as_a_lane(&t, bad, all[i].word);
        }
        if (all[i].kind != 2) {
            as_a_buffer(&t, bad, all[i].word);
        }
        if (all[i].kind != 3) {
            as_a_module(bad, all[i].word);
        }
        if (all[i].kind != 4) {
            as_a_kernel(&t, bad, all[i].word);
        }
        if (all[i].kind != 5) {
            as_a_hold(&t, bad, all[i].word);
        }
        if (all[i].kind != 6) {
            as_a_claim(bad, all[i].word);
        }
    }
    CONF_OK(hd_lane_wait(t.lane, 60 * CONF_SECOND)); /* all of them still work */
    CONF_FILLED(t.buffer, 0, 1, 64);
    CONF_OK(hd_claim_end(t.claim, HD_OK));
    conf_close(t.runtime);
}

/* Some runtimes later, so that freed structures had time for another use. */
static void of_a_closed_runtime(void **state)
{
    (void)state;
    enum { runtimes = 4 };
    things old[runtimes];
    for (int i = 0; i < runtimes; i++) {
        old[i] = make_things();
        CONF_OK(hd_lane_wait(old[i].lane, 60 * CONF_SECOND));
        CONF_OK(hd_claim_end(old[i].claim, HD_OK));
        conf_close(old[i].runtime);
    }
    things t = make_things();
    for (int i = 0; i < runtimes; i++) {
        const char *word = "closed";
        as_a_runtime(old[i].runtime, word);
        as_a_lane(&t, old[i].lane, word);
        as_a_lane(&old[i], old[i].lane, word);
        as_a_buffer(&t, old[i].buffer, word);
        as_a_buffer(&t, old[i].pinned, word);
        as_a_buffer(&t, old[i].unified, word);
        as_a_module(old[i].module, word);
        as_a_kernel(&t, old[i].kernel, word);
        as_a_hold(&t, old[i].hold, word);
        as_a_claim(old[i].claim, "ended");
        refused(hd_hold_add(t.hold, old[i].buffer), word, __LINE__);
        refused(hd_wait(old[i].ticket, 0), word, __LINE__);
        CONF_TRUE(hd_done(old[i].ticket));
    }
    CONF_OK(hd_lane_wait(t.lane, 60 * CONF_SECOND));
    CONF_FILLED(t.buffer, 0, 1, 64);
    CONF_OK(hd_claim_end(t.claim, HD_OK));
    conf_close(t.runtime);
}

/* The handles of one claim run out as well: its lane moves to another structure. */
static void of_a_claim_that_was_made_often(void **state)
{
    (void)state;
    enum { often = 70000 };
    hd_runtime *runtime = conf_open(NULL);
    hd_claim *first = NULL, *claim = NULL;
    CONF_OK(hd_claim_begin(runtime, NULL, 0, &first));
    CONF_OK(hd_claim_end(first, HD_OK));
    for (int i = 0; i < often; i++) {
        CONF_OK(hd_claim_begin(runtime, NULL, 0, &claim));
        CONF_TRUE(claim != first);
        CONF_OK(hd_claim_end(claim, HD_OK));
    }
    CONF_FAILS(hd_claim_end(first, HD_OK), HD_ERROR_HANDLE);
    conf_close(runtime);
}

/* The handles of one structure run out after 65535 of them: the lane moves to another one. */
static void of_a_lane_that_was_made_often(void **state)
{
    (void)state;
    enum { often = 70000 };
    hd_runtime *runtime = conf_open(NULL);
    conf_kernels k = conf_builtins(runtime);
    hd_lane *first = NULL, *lane = NULL;
    hd_buffer *x = NULL;
    hd_ticket ticket;
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), bytes, &x));
    CONF_OK(hd_lane_create(runtime, 0, &first));
    CONF_OK(conf_fill(first, k, x, 0, 16, 1, &ticket));
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    hd_lane_destroy(first);
    for (int i = 0; i < often; i++) {
        CONF_OK(hd_lane_create(runtime, 0, &lane));
        if (lane == first) {
            conf_fail_at(__FILE__, __LINE__, "lane %d has the handle of the first one", i);
        }
        if (i < often - 1) {
            hd_lane_destroy(lane);
        }
    }
    CONF_EQUAL(hd_lane_device(first), -1);
    CONF_FAILS(hd_lane_wait(first, 0), HD_ERROR_HANDLE);
    hd_lane_destroy(first);
    CONF_OK(hd_wait(ticket, 0)); /* tickets stay valid */
    CONF_TRUE(hd_done(ticket));
    CONF_OK(conf_fill(lane, k, x, 0, 16, 2, &ticket));
    CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
    CONF_FILLED(x, 0, 2, 64);
    conf_close(runtime);
}

static void of_a_hold_that_was_made_often(void **state)
{
    (void)state;
    enum { often = 70000 };
    hd_runtime *runtime = conf_open(NULL);
    hd_hold *first = NULL, *hold = NULL;
    hd_buffer *x = NULL;
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), bytes, &x));
    CONF_OK(hd_hold_create(runtime, &first));
    hd_hold_destroy(first);
    for (int i = 0; i < often; i++) {
        CONF_OK(hd_hold_create(runtime, &hold));
        CONF_TRUE(hold != first);
        hd_hold_destroy(hold);
    }
    CONF_FAILS(hd_hold_add(first, x), HD_ERROR_HANDLE);
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_handles");
    const struct CMUnitTest tests[] = {
        CONF_CASE(of_another_kind),
        CONF_CASE(of_a_closed_runtime),
        CONF_CASE(of_a_lane_that_was_made_often),
        CONF_CASE(of_a_claim_that_was_made_often),
        CONF_CASE(of_a_hold_that_was_made_often),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
