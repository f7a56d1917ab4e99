/* test_deprecated.c - the names of release 0.2 that have other names now.
 *
 * Promise: A program written for the release before works unchanged.
 *
 * Threads: the main one, and the one that runs its function.
 * Locks: none.
 */
#include "conformance.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

enum { words = 256, bytes = words * 4 };

static hd_status add_one(void *const *pointers, void *context)
{
    uint32_t *word = pointers[0];
    *word += *(const uint32_t *)context;
    return HD_OK;
}

static hd_status enqueue_nothing(void *stream, void *context)
{
    (void)stream;
    *(bool *)context = true;
    return HD_OK;
}

static void former_functions_work(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_lane *lane = conf_default_lane(runtime, 0), *other = NULL;
    conf_kernels k = conf_builtins(runtime);
    hd_buffer *x = NULL, *pinned = NULL, *piece = NULL;
    hd_ticket ticket, last;
    uint32_t one = 1, word = 0;
    CONF_OK(hd_lane_create(runtime, 0, &other));
    CONF_OK(hd_alloc(lane, bytes, &x));
    CONF_OK(hd_alloc_host(runtime, bytes, &pinned));
    CONF_OK(hd_fill(pinned, 0, 41, bytes, NULL));
    CONF_OK(hd_host_call(runtime, add_one, &one, (hd_arg[]){hd_inout(pinned)}, 1, &ticket));
    CONF_OK(hd_lane_after(other, ticket, &last));
    CONF_OK(hd_wait(last, 60 * CONF_SECOND));
    CONF_OK(hd_read(pinned, 0, &word, 4));
    CONF_EQUAL(word, 42);

    const hd_arg args[] = {hd_out_range(x, 0, 4), hd_u64(1), hd_u32(7), hd_also(hd_in(pinned))};
    CONF_OK(hd_launch(lane, k.fill, conf_dims(1, 1, 1), conf_dims(32, 1, 1), 0, args, 4, NULL));
    CONF_OK(hd_read(x, 0, &word, 4));
    CONF_EQUAL(word, 7);

    bool called = false;
    hd_status status = hd_lane_call(lane, enqueue_nothing, &called, (hd_arg[]){hd_inout(x)}, 1, &ticket);
    if (conf_is_process(runtime)) {
        CONF_EQUAL(status, HD_ERROR_UNSUPPORTED);
    } else {
        CONF_OK(status);
        CONF_OK(hd_wait(ticket, 60 * CONF_SECOND));
        CONF_TRUE(called);
    }

    const hd_alloc_options options = {.size = sizeof options, .flags = HD_ALLOC_ONE_PIECE};
    CONF_OK(hd_alloc_with(lane, bytes, &options, &piece));
    hd_free(piece);
    hd_free(pinned);
    hd_free(x);
    conf_close(runtime);
}

static void option_is(hd_runtime *runtime, const char *name, const char *value)
{
    hd_option_info info = {.size = sizeof info};
    for (int i = 0; hd_option_get_info(runtime, i, &info) == HD_OK; i++) {
        if (strcmp(info.name, name) == 0) {
            CONF_TRUE(strcmp(info.value, value) == 0);
            return;
        }
    }
    CONF_TRUE(!"there is such an option");
}

static void former_options_work(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("queues=16 modules=all");
    option_is(runtime, "hw_queues", "16");
    option_is(runtime, "module_loading", "eager");
    conf_close(runtime);
    setenv("HEDDLE_QUEUES", "24", 1);
    setenv("HEDDLE_MODULES", "used", 1);
    runtime = conf_open(NULL);
    option_is(runtime, "hw_queues", "24");
    option_is(runtime, "module_loading", "lazy");
    conf_close(runtime);
    setenv("HEDDLE_HW_QUEUES", "4", 1); /* the new name wins */
    runtime = conf_open(NULL);
    option_is(runtime, "hw_queues", "4");
    conf_close(runtime);
    unsetenv("HEDDLE_HW_QUEUES");
    unsetenv("HEDDLE_QUEUES");
    unsetenv("HEDDLE_MODULES");
    hd_options bad = {.size = sizeof bad, .settings = "modules=some"};
    runtime = NULL;
    CONF_FAILS_WITH(hd_open(&bad, &runtime), HD_ERROR_OPTION, "one of lazy|eager");
}

static void options_that_are_gone_change_nothing(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open("chain_memory=1M, lane_slots=128, trace_memory=4M");
    option_is(runtime, "lane_slots", "128");
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_deprecated");
    const struct CMUnitTest tests[] = {
        CONF_CASE(former_functions_work),
        CONF_CASE(former_options_work),
        CONF_CASE(options_that_are_gone_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
