/* test_trace_cupti.c - trace_detail=cupti, with a library that looks like CUPTI
 * (fake_cupti_kernels.c).
 *
 * Promise: A trace contains or counts all reports of CUPTI; without CUPTI it fails and says why.
 *
 * Threads: the main one. Locks: none.
 */
#include "folder.h"

#include "base/wait.h"
#include "record/format.h"

#define LONG_NAME "second_kernel_of_a_name_that_is_too_long_for_a_single_record_of_text_and_goes_on_in_a_second_one"

static char file_path[128];

/* Opens a runtime with the fake; `words` control how it behaves. */
static hd_runtime *open_with(const char *words)
{
    snprintf(file_path, sizeof file_path, "%s/t", folder);
    setenv("FAKE_CUPTI", words, 1); /* for worker processes, too */
    return conf_open_with("host_devices=2 cupti=%s", HD_TEST_KERNELS);
}

static const hd_trace_options by_cupti = {.size = sizeof by_cupti, .detail = HD_TRACE_CUPTI};

static hdi_record *read_trace(size_t *n)
{
    FILE *in = fopen(file_path, "rb");
    CONF_TRUE(in != NULL);
    CONF_EQUAL(fseek(in, 0, SEEK_END), 0);
    size_t size = (size_t)ftell(in);
    rewind(in);
    hdi_record *records = conf_memory(size);
    *n = size / sizeof *records;
    CONF_EQUAL(fread(records, sizeof *records, *n, in), *n);
    fclose(in);
    CONF_EQUAL(records[0].kind, HDI_RECORD_DETAIL_CUPTI);
    CONF_EQUAL(records[*n - 1].type, HDI_RECORD_END);
    return records;
}

/* Returns the number of the name; 0 if it is missing. */
static uint64_t number_of(const hdi_record *records, size_t n, const char *text)
{
    uint64_t number = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        const hdi_record *r = &records[i];
        char name[512] = "";
        for (size_t p = 1; r->type == HDI_RECORD_NAME && r->kind == HDI_RECORD_NAME_ACTIVITY && p <= r->texts; p++) {
            strncat(name, records[i + p].text.text, records[i + p].text.bytes);
        }
        if (strcmp(name, text) == 0) {
            CONF_EQUAL(number, 0); /* once */
            number = r->name.number;
        }
    }
    return number;
}

/* Checks that all planted activities arrived, each kind as often, with times between `from` and
 * `to`. */
static void check_activities(int64_t from, int64_t to)
{
    size_t n, kernels[2][2] = {{0}}, in[2] = {0}, peer[2] = {0}, fills[2] = {0};
    hdi_record *records = read_trace(&n);
    uint64_t first = number_of(records, n, "first_kernel"), second = number_of(records, n, LONG_NAME);
    CONF_TRUE(first && second && first != second);
    for (size_t i = 0; i < n; i++) {
        const hdi_record *r = &records[i];
        if (r->type != HDI_RECORD_ACTIVITY) {
            continue;
        }
        CONF_TRUE(r->device < 2 && r->time >= from && r->time <= r->activity.ended && r->activity.ended <= to);
        CONF_EQUAL(r->texts, 0);
        if (r->kind == HDI_RECORD_ACTIVITY_KERNEL) {
            bool is_second = r->activity.correlation == 101;
            CONF_TRUE(r->activity.name == (is_second ? second : first) && r->activity.stream == 7);
            CONF_EQUAL(r->activity.ended - r->time, 10);
            kernels[r->device][is_second]++;
        } else if (r->kind == HDI_RECORD_ACTIVITY_FILL) {
            CONF_EQUAL(r->activity.bytes, 64);
            fills[r->device]++;
        } else if (r->activity.bytes == 4096) {
            CONF_TRUE(r->activity.src == HDI_RECORD_NO_DEVICE && r->activity.dst == r->device);
            in[r->device]++;
        } else {
            CONF_TRUE(r->activity.bytes == 512 && r->activity.src == r->device && r->activity.dst == 1);
            peer[r->device]++;
        }
    }
    for (int d = 0; d < 2; d++) {
        CONF_TRUE(fills[d] > 0 && kernels[d][0] == fills[d] && kernels[d][1] == fills[d]);
        CONF_TRUE(in[d] == fills[d] && peer[d] == fills[d]);
    }
    free(records);
}

static void trace_once(hd_runtime *runtime, hd_trace_info *info)
{
    int64_t from = hdi_clock_ns();
    *info = (hd_trace_info){.size = sizeof *info};
    CONF_OK(hd_trace_start(runtime, file_path, &by_cupti));
    CONF_OK(hd_trace_stop(runtime, info));
    /* planted times begin 100 ns before the fake delivers them */
    check_activities(from - 1000000, hdi_clock_ns() + 1000000);
}

static void what_is_reported_is_recorded(void **state)
{
    (void)state;
    hd_runtime *runtime = open_with("");
    for (int i = 0; i < 3; i++) { /* nothing stays attached: another session begins */
        hd_trace_info info;
        trace_once(runtime, &info);
        CONF_EQUAL(info.dropped, 0);
    }
    conf_close(runtime);
}

static void times_of_its_own_clock_are_moved(void **state)
{
    (void)state;
    hd_runtime *runtime = open_with("ownclock");
    hd_trace_info info;
    trace_once(runtime, &info);
    CONF_EQUAL(info.dropped, 0);
    conf_close(runtime);
}

static void what_is_not_good_is_counted(void **state)
{
    (void)state;
    hd_runtime *runtime = open_with("bad");
    hd_trace_info info;
    trace_once(runtime, &info);
    CONF_TRUE(info.dropped >= 2 * 3 + 1);
    conf_close(runtime);
}

static void the_option_begins_and_two_runtimes_share(void **state)
{
    (void)state;
    hd_runtime *first = open_with("");
    CONF_OK(hd_trace_start(first, file_path, &by_cupti));
    hd_runtime *second =
        conf_open_with("host_devices=2 cupti=%s trace=%s/s trace_detail=cupti", HD_TEST_KERNELS, folder);
    conf_close(second);
    CONF_OK(hd_trace_stop(first, NULL));
    check_activities(0, hdi_clock_ns() + 1000000);
    snprintf(file_path, sizeof file_path, "%s/s", folder);
    check_activities(0, hdi_clock_ns() + 1000000);
    conf_close(first);
}

/* Neither the trace nor the file exists, and another trace may begin. */
static void check_refused(const char *words, const char *text)
{
    hd_runtime *runtime = open_with(words);
    CONF_FAILS_WITH(hd_trace_start(runtime, file_path, &by_cupti), HD_ERROR_UNSUPPORTED, text);
    CONF_TRUE(access(file_path, F_OK) != 0);
    CONF_EQUAL(hd_trace_stop(runtime, NULL), HD_ERROR_NOT_FOUND);
    CONF_OK(hd_trace_start(runtime, file_path, NULL));
    CONF_OK(hd_trace_stop(runtime, NULL));
    conf_close(runtime);
    CONF_EQUAL(unlink(file_path), 0);
}

static void an_old_version_is_refused(void **state)
{
    (void)state;
    check_refused("old", "of version 14");
}

static void where_cupti_does_not_work_it_is_said(void **state)
{
    (void)state;
    check_refused("refuses", "another subscriber");
    check_refused("uninitialized", "FAKE_NOT_INITIALIZED");
    check_refused("disabled", "cuptiActivityEnable");
    setenv("FAKE_CUPTI", "", 1);
    hd_runtime *runtime = conf_open("cupti=/nowhere/libcupti.so");
    CONF_FAILS_WITH(hd_trace_start(runtime, file_path, &by_cupti), HD_ERROR_UNSUPPORTED, "/nowhere/libcupti.so");
    conf_close(runtime);
    runtime = conf_open("cupti=libm.so.6");
    CONF_FAILS_WITH(hd_trace_start(runtime, file_path, &by_cupti), HD_ERROR_UNSUPPORTED, "libm.so.6 has no cupti");
    conf_close(runtime);
    char settings[256];
    snprintf(settings, sizeof settings, "cupti=/nowhere/libcupti.so trace_detail=cupti trace=%s", file_path);
    hd_options options = {.size = sizeof options, .settings = settings};
    CONF_FAILS_WITH(hd_open(&options, &runtime), HD_ERROR_UNSUPPORTED, "/nowhere/libcupti.so");
    CONF_TRUE(access(file_path, F_OK) != 0);
}

int main(void)
{
    conf_begin("test_trace_cupti");
    const struct CMUnitTest tests[] = {
        FOLDER_CASE(an_old_version_is_refused), /* before the library is open */
        /* before the fake uses the program's clock */
        FOLDER_CASE(times_of_its_own_clock_are_moved),
        FOLDER_CASE(what_is_reported_is_recorded),
        FOLDER_CASE(what_is_not_good_is_counted),
        FOLDER_CASE(the_option_begins_and_two_runtimes_share),
        FOLDER_CASE(where_cupti_does_not_work_it_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
