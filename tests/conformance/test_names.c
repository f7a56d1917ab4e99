/* test_names.c - labels and names that are too long for their room.
 *
 * Promise: A cut label or name ends with a whole UTF-8 character, in library and trace.
 *
 * Threads: the main one.
 * Locks: none.
 */
#include "traces.h"

#define EURO "\xe2\x82\xac" /* of 3 bytes: 10 fit into a label, and 149 into a name of a trace */

static char longest[600], label[HD_LABEL_BYTES], name[449];

static void fill(char *out, size_t characters)
{
    out[0] = 0;
    for (size_t i = 0; i < characters; i++) {
        memcpy(out + 3 * i, EURO, sizeof EURO);
    }
}

static int begin_names(void **state)
{
    fill(longest, 199);
    fill(label, 10);
    fill(name, 149);
    return begin_case(state);
}

static bool sees(void *context, const hd_memory_block *block)
{
    int *seen = context;
    CONF_TRUE(strcmp(block->label, label) == 0);
    ++*seen;
    return true;
}

static void labels_of_buffers(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_alloc_options options = {.size = sizeof options, .label = longest};
    hd_buffer *x[2];
    int seen = 0;
    CONF_OK(hd_alloc_with(conf_default_lane(runtime, 0), 4096, &options, &x[0]));
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), 4096, &x[1]));
    CONF_OK(hd_buffer_set_label(x[1], longest));
    CONF_OK(hd_memory_each(runtime, sees, &seen));
    CONF_EQUAL(seen, 2);
    conf_close(runtime);
}

static void a_claim_in_a_message(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_buffer *x = NULL;
    hd_claim *claim = NULL;
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), 4096, &x));
    hd_arg use = hd_out(x);
    hd_claim_options options = {.size = sizeof options, .label = longest};
    CONF_OK(hd_claim_begin_with(runtime, &use, 1, &options, &claim));
    CONF_OK(hd_claim_wait(claim, HD_FOREVER));
    char text[HD_LABEL_BYTES + 16];
    snprintf(text, sizeof text, "claim '%s' of ", label);
    CONF_FAILS_WITH(hd_buffer_wait(x, HD_READ, CONF_MILLISECOND), HD_ERROR_TIMEOUT, text);
    CONF_OK(hd_claim_end(claim, HD_OK));
    conf_close(runtime);
}

static void a_range_of_a_trace(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    CONF_OK(hd_trace_start(runtime, in_folder("t"), NULL));
    CONF_OK(hd_range_push(runtime, longest));
    CONF_OK(hd_range_pop(runtime));
    CONF_OK(hd_trace_stop(runtime, NULL));
    content c = read_file(file_path);
    size_t at = 0;
    const hdi_record *r = next(&c, HDI_RECORD_NAME, &at);
    while (r && r->kind != HDI_RECORD_NAME_RANGE) {
        r = next(&c, HDI_RECORD_NAME, &at);
    }
    CONF_TRUE(r != NULL);
    char text[1024] = "";
    size_t length = 0;
    for (uint8_t p = 1; p <= r->texts; p++) {
        memcpy(text + length, r[p].text.text, r[p].text.bytes);
        length += r[p].text.bytes;
    }
    CONF_TRUE(strcmp(text, name) == 0);
    free(c.records);
    conf_close(runtime);
}

int main(void)
{
    conf_begin("test_names");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(labels_of_buffers, begin_names, end_case),
        cmocka_unit_test_setup_teardown(a_claim_in_a_message, begin_names, end_case),
        cmocka_unit_test_setup_teardown(a_range_of_a_trace, begin_names, end_case),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
