/* test_open.c - opening and closing, options, facts, counters, messages. test_nulls.c tests null
 * pointers.
 *
 * Promise: hd_open applies its options and reports true facts; failures leave outputs alone.
 *
 * Threads: the main one, and short ones that read their own messages.
 * Locks: none.
 * Always: a failed call changes none of its outputs and leaves a message.
 */
#include "conformance.h"

#include <pthread.h>

static hd_runtime *const untouched_runtime = (hd_runtime *)(uintptr_t)0x1234;

static void opens_with_defaults(void **state)
{
    (void)state;
    hd_runtime *runtime = NULL;
    CONF_OK(hd_open(NULL, &runtime));
    CONF_TRUE(runtime != NULL);
    CONF_TRUE(hd_device_count(runtime) >= 1);
    hd_runtime_info info = {.size = sizeof info};
    CONF_OK(hd_runtime_get_info(runtime, &info));
    CONF_EQUAL(info.size, sizeof info);
    CONF_TRUE(strcmp(info.driver, "host") == 0 || strcmp(info.driver, "nvidia") == 0);
    CONF_TRUE(strcmp(info.placement, "inline") == 0 || strcmp(info.placement, "thread") == 0 ||
              strcmp(info.placement, "process") == 0);
    const char *driver = getenv("HEDDLE_DRIVER"), *placement = getenv("HEDDLE_PLACEMENT");
    if (driver != NULL && strcmp(driver, "auto") != 0) {
        assert_string_equal(info.driver, driver);
    }
    assert_string_equal(info.placement, placement != NULL ? placement : "thread");
    CONF_EQUAL(info.device_count, hd_device_count(runtime));
    CONF_TRUE(info.driver_version >= 1000);
    conf_close(runtime);

    hd_options options = {.size = sizeof options, .settings = NULL};
    CONF_OK(hd_open(&options, &runtime));
    conf_close(runtime);
    options.settings = "";
    CONF_OK(hd_open(&options, &runtime));
    conf_close(runtime);
    options.settings = "  , ,  ";
    CONF_OK(hd_open(&options, &runtime));
    conf_close(runtime);
}

static void refuses_bad_options(void **state)
{
    (void)state;
    static const struct {
        const char *settings, *word; /* the message contains the word */
    } bad[] = {
        {"nosuchoption=1", "nosuchoption"},
        {"lane_slots=127", "lane_slots"},
        {"lane_slots=65537", "lane_slots"},
        {"lane_slots=131072", "lane_slots"},
        {"lane_slots=200", "lane_slots"}, /* no power of two */
        {"lane_slots=-128", "lane_slots"},
        {"lane_slots=many", "lane_slots"},
        {"lane_slots=64x", "lane_slots"},
        {"lane_slots=", "lane_slots"},
        {"lane_slots=99999999999999999999999", "lane_slots"},
        {"lane_slots", "lane_slots"},
        {"driver=amd", "driver"},
        {"driver=", "driver"},
        {"placement=somewhere", "placement"},
        {"host_peers=some", "host_peers"},
        {"host_devices=0", "host_devices"},
        {"host_devices=65", "host_devices"},
        {"host_memory=1K", "host_memory"},
        {"host_memory=1Q", "host_memory"},
        {"host_memory=-1G", "host_memory"},
        {"spin_us=-2", "spin_us"},
        {"close_timeout=-1", "close_timeout"},
        {"watchdog=-1", "watchdog"},
        {"worker_timeout=99", "worker_timeout"},
        {"fault=cuLaunchKernel", "fault"},
        {"fault=x+y", "fault"},
        {"delay=3", "delay"},
        {"lane_slots=128 nosuchoption=1", "nosuchoption"},
        {"lane_slots=128,lane_slots=127", "lane_slots"},
        {"=1", NULL},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        hd_runtime *runtime = untouched_runtime;
        hd_status status = conf_try_open(bad[i].settings, &runtime);
        if (status != HD_ERROR_OPTION) {
            conf_fail_at(__FILE__, __LINE__, "\"%s\": %s, not HD_ERROR_OPTION", bad[i].settings,
                         hd_status_name(status));
        }
        conf_fails_at(status, HD_ERROR_OPTION, bad[i].word, bad[i].settings, __FILE__, __LINE__);
        CONF_TRUE(runtime == untouched_runtime);
    }
    /* a missing device: the list is wrong, or there is no such device */
    hd_runtime *runtime = untouched_runtime;
    hd_status status = conf_try_open("devices=4711", &runtime);
    CONF_TRUE(status == HD_ERROR_NO_DEVICE || status == HD_ERROR_OPTION);
    CONF_TRUE(runtime == untouched_runtime);
    CONF_TRUE(hd_message()[0] != '\0');
    status = conf_try_open("devices=zero", &runtime);
    CONF_TRUE(status == HD_ERROR_NO_DEVICE || status == HD_ERROR_OPTION);
    CONF_TRUE(runtime == untouched_runtime);
}

static void refuses_bad_sizes_and_nulls_in_open(void **state)
{
    (void)state;
    hd_runtime *runtime = untouched_runtime;
    static const size_t wrong[] = {0, 1, sizeof(size_t), sizeof(hd_options) - 1};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        hd_options options = {.size = wrong[i], .settings = NULL};
        CONF_FAILS(hd_open(&options, &runtime), HD_ERROR_ARGUMENT);
        CONF_TRUE(runtime == untouched_runtime);
    }
    CONF_FAILS(hd_open(NULL, NULL), HD_ERROR_ARGUMENT);
    hd_options options = {.size = sizeof options, .settings = NULL};
    CONF_FAILS(hd_open(&options, NULL), HD_ERROR_ARGUMENT);
    hd_close(NULL);
    CONF_EQUAL(hd_device_count(NULL), 0);
}

static const char *option_value(hd_runtime *runtime, const char *name, bool *is_default)
{
    hd_option_info info = {.size = sizeof info};
    for (int i = 0; hd_option_get_info(runtime, i, &info) == HD_OK; i++) {
        if (strcmp(info.name, name) == 0) {
            if (is_default != NULL) {
                *is_default = info.is_default;
            }
            return info.value;
        }
    }
    return NULL;
}

static void lists_options(void **state)
{
    (void)state;
    static const char *const names[] = {"driver", "placement",     "devices",     "lane_slots", "spin_us",
                                        "fault",  "close_timeout", "host_memory", "host_peers", "host_schedule",
                                        "delay",  "host_devices",  "watchdog",    "worker",     "worker_timeout"};
    hd_runtime *runtime = conf_open("lane_slots=128, spin_us=7");
    for (int with = 0; with < 2; with++) {
        hd_runtime *of = with ? runtime : NULL;
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            CONF_TRUE(option_value(of, names[i], NULL) != NULL);
        }
        hd_option_info info = {.size = sizeof info};
        int count = 0;
        while (hd_option_get_info(of, count, &info) == HD_OK) {
            CONF_EQUAL(info.size, sizeof info);
            CONF_TRUE(strncmp(info.environment, "HEDDLE_", 7) == 0);
            CONF_TRUE(info.name[0] != '\0' && info.help[0] != '\0' && info.value != NULL);
            count++;
        }
        CONF_TRUE(count >= (int)(sizeof names / sizeof *names));
        hd_option_info before = info;
        CONF_FAILS(hd_option_get_info(of, count, &info), HD_ERROR_NOT_FOUND);
        CONF_FAILS(hd_option_get_info(of, INT32_MAX, &info), HD_ERROR_NOT_FOUND);
        hd_status status = hd_option_get_info(of, -1, &info);
        CONF_TRUE(status == HD_ERROR_NOT_FOUND || status == HD_ERROR_ARGUMENT);
        CONF_TRUE(memcmp(&before, &info, sizeof info) == 0);
        CONF_FAILS(hd_option_get_info(of, 0, NULL), HD_ERROR_ARGUMENT);
        info.size = 0;
        CONF_FAILS(hd_option_get_info(of, 0, &info), HD_ERROR_ARGUMENT);
    }
    bool is_default = true;
    assert_string_equal(option_value(runtime, "lane_slots", &is_default), "128");
    CONF_TRUE(!is_default);
    assert_string_equal(option_value(runtime, "spin_us", &is_default), "7");
    CONF_TRUE(!is_default);
    assert_string_equal(option_value(NULL, "lane_slots", &is_default), "1024");
    CONF_TRUE(is_default);
    conf_close(runtime);
}

static void settings_win_over_the_environment(void **state)
{
    (void)state;
    const char *had = getenv("HEDDLE_LANE_SLOTS");
    char *kept = had == NULL ? NULL : strdup(had);
    setenv("HEDDLE_LANE_SLOTS", "256", 1);
    bool is_default = true;
    hd_runtime *runtime = conf_open(NULL);
    assert_string_equal(option_value(runtime, "lane_slots", &is_default), "256");
    CONF_TRUE(!is_default);
    conf_close(runtime);
    runtime = conf_open("lane_slots=512");
    assert_string_equal(option_value(runtime, "lane_slots", NULL), "512");
    conf_close(runtime);
    setenv("HEDDLE_LANE_SLOTS", "junk", 1);
    runtime = untouched_runtime;
    CONF_FAILS_WITH(hd_open(NULL, &runtime), HD_ERROR_OPTION, "junk");
    CONF_TRUE(runtime == untouched_runtime);
    unsetenv("HEDDLE_LANE_SLOTS");
    if (kept != NULL) {
        setenv("HEDDLE_LANE_SLOTS", kept, 1);
        free(kept);
    }
}

static void tells_facts_about_devices(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    int count = hd_device_count(runtime);
    bool host = conf_is_host(runtime);
    for (int d = 0; d < count; d++) {
        hd_device_info info;
        memset(&info, 0xaa, sizeof info);
        info.size = sizeof info;
        CONF_OK(hd_device_get_info(runtime, d, &info));
        CONF_EQUAL(info.size, sizeof info);
        CONF_TRUE(info.name[0] != '\0' && memchr(info.name, '\0', sizeof info.name) != NULL);
        CONF_TRUE(info.bus_id[0] != '\0' && memchr(info.bus_id, '\0', sizeof info.bus_id) != NULL);
        CONF_EQUAL(info.is_host, host);
        if (host) {
            CONF_TRUE(strncmp(info.bus_id, "host:", 5) == 0);
        } else {
            CONF_TRUE(strlen(info.bus_id) == strlen("0000:1b:00.0"));
            CONF_TRUE(info.compute_major >= 3);
        }
        CONF_TRUE(info.multiprocessors >= 1);
        CONF_TRUE(info.max_threads_per_block >= 256);
        CONF_TRUE(info.max_block[0] >= 256 && info.max_block[1] >= 32 && info.max_block[2] >= 1);
        CONF_TRUE(info.max_grid[0] >= 65535 && info.max_grid[1] >= 65535 && info.max_grid[2] >= 1);
        CONF_TRUE(info.shared_bytes_per_block >= 16384);
        CONF_TRUE(info.shared_bytes_max >= info.shared_bytes_per_block);
        CONF_TRUE(info.memory_bytes >= (size_t)1 << 21);
        CONF_TRUE(info.memory_free_bytes <= info.memory_bytes);
        CONF_TRUE(info.memory_mapped_bytes <= info.memory_bytes);
        CONF_TRUE(info.numa_node >= -1);
        CONF_TRUE((info.peers >> d & 1) == 0);
        CONF_TRUE(count == 64 || info.peers >> count == 0);
        CONF_TRUE(!info.lost);
        CONF_EQUAL(info.losses, 0);
        CONF_EQUAL(info.restarts, 0);
        CONF_EQUAL(info.worker_pid > 0, conf_is_process(runtime));
        for (int e = 0; e < d; e++) {
            hd_device_info other = {.size = sizeof other};
            CONF_OK(hd_device_get_info(runtime, e, &other));
            CONF_TRUE(strcmp(info.bus_id, other.bus_id) != 0);
            CONF_TRUE(memcmp(info.uuid, other.uuid, sizeof info.uuid) != 0);
            CONF_TRUE(info.worker_pid == 0 || info.worker_pid != other.worker_pid);
        }
    }
    hd_device_info info, before;
    memset(&info, 0x55, sizeof info);
    info.size = sizeof info;
    before = info;
    CONF_FAILS(hd_device_get_info(runtime, -1, &info), HD_ERROR_NO_DEVICE);
    CONF_FAILS(hd_device_get_info(runtime, count, &info), HD_ERROR_NO_DEVICE);
    CONF_FAILS(hd_device_get_info(runtime, INT32_MAX, &info), HD_ERROR_NO_DEVICE);
    CONF_FAILS(hd_device_get_info(NULL, 0, &info), HD_ERROR_HANDLE);
    CONF_TRUE(memcmp(&before, &info, sizeof info) == 0);
    CONF_FAILS(hd_device_get_info(runtime, 0, NULL), HD_ERROR_ARGUMENT);
    info.size = 0;
    CONF_FAILS(hd_device_get_info(runtime, 0, &info), HD_ERROR_ARGUMENT);
    info.size = 3;
    CONF_FAILS(hd_device_get_info(runtime, 0, &info), HD_ERROR_ARGUMENT);

    hd_runtime_info about, about_before;
    memset(&about, 0x55, sizeof about);
    about.size = sizeof about;
    about_before = about;
    CONF_FAILS(hd_runtime_get_info(NULL, &about), HD_ERROR_HANDLE);
    CONF_TRUE(memcmp(&about, &about_before, sizeof about) == 0);
    CONF_FAILS(hd_runtime_get_info(runtime, NULL), HD_ERROR_ARGUMENT);
    about.size = 0;
    CONF_FAILS(hd_runtime_get_info(runtime, &about), HD_ERROR_ARGUMENT);
    conf_close(runtime);
}

static void counts_what_happens(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    hd_device_stats before = {.size = sizeof before}, during = before, after = before;
    CONF_OK(hd_device_get_stats(runtime, 0, &before));
    CONF_EQUAL(before.size, sizeof before);
    CONF_EQUAL(before.buffers_live, 0);
    CONF_EQUAL(before.bytes_live, 0);
    hd_lane *lane = conf_default_lane(runtime, 0);
    CONF_TRUE(lane != NULL);
    hd_buffer *buffers[5];
    for (int i = 0; i < 5; i++) {
        CONF_OK(hd_alloc(lane, 1000 + (size_t)i, &buffers[i]));
    }
    conf_kernels k = conf_builtins(runtime);
    for (int i = 0; i < 10; i++) {
        CONF_OK(conf_fill(lane, k, buffers[0], 0, 250, 7, NULL));
    }
    CONF_OK(hd_lane_wait(lane, HD_FOREVER));
    CONF_OK(hd_device_get_stats(runtime, 0, &during));
    CONF_EQUAL(during.buffers_live, 5);
    CONF_EQUAL(during.bytes_live, 5010);
    CONF_TRUE(during.operations >= before.operations + 10);
    CONF_TRUE(during.publishes > before.publishes);
    for (int i = 0; i < 5; i++) {
        hd_free(buffers[i]);
    }
    CONF_OK(hd_device_get_stats(runtime, 0, &after));
    CONF_EQUAL(after.buffers_live, 0);
    CONF_EQUAL(after.bytes_live, 0);

    memset(&after, 0x55, sizeof after);
    after.size = sizeof after;
    before = after;
    CONF_FAILS(hd_device_get_stats(NULL, 0, &after), HD_ERROR_HANDLE);
    CONF_FAILS(hd_device_get_stats(runtime, -1, &after), HD_ERROR_NO_DEVICE);
    CONF_FAILS(hd_device_get_stats(runtime, hd_device_count(runtime), &after), HD_ERROR_NO_DEVICE);
    CONF_TRUE(memcmp(&before, &after, sizeof after) == 0);
    CONF_FAILS(hd_device_get_stats(runtime, 0, NULL), HD_ERROR_ARGUMENT);
    after.size = 0;
    CONF_FAILS(hd_device_get_stats(runtime, 0, &after), HD_ERROR_ARGUMENT);
    conf_close(runtime);
}

static void two_runtimes_at_once(void **state)
{
    (void)state;
    hd_runtime *a = conf_open(NULL), *b = conf_open(NULL);
    CONF_TRUE(a != b);
    hd_lane *in_a = conf_default_lane(a, 0), *in_b = conf_default_lane(b, 0);
    CONF_TRUE(in_a != NULL && in_b != NULL && in_a != in_b);
    hd_buffer *of_a = NULL, *of_b = NULL;
    CONF_OK(hd_alloc(in_a, 4096, &of_a));
    CONF_OK(hd_alloc(in_b, 4096, &of_b));
    /* workers use their own addresses */
    CONF_TRUE(conf_is_process(a) || hd_buffer_address(of_a) != hd_buffer_address(of_b));
    CONF_OK(hd_fill(of_a, 0, 0xaaaaaaaau, 4096, NULL));
    CONF_OK(hd_fill(of_b, 0, 0xbbbbbbbbu, 4096, NULL));

    /* one runtime refuses handles of the other */
    hd_ticket ticket = {NULL, 77};
    CONF_FAILS(hd_copy(of_a, 0, of_b, 0, 16, &ticket), HD_ERROR_HANDLE);
    conf_kernels ka = conf_builtins(a), kb = conf_builtins(b);
    CONF_FAILS(conf_fill(in_a, kb, of_a, 0, 4, 1, &ticket), HD_ERROR_HANDLE);
    CONF_FAILS(conf_fill(in_a, ka, of_b, 0, 4, 1, &ticket), HD_ERROR_HANDLE);
    CONF_TRUE(ticket.lane == NULL && ticket.sequence == 77);

    CONF_FILLED(of_a, 0, 0xaaaaaaaau, 4096);
    CONF_FILLED(of_b, 0, 0xbbbbbbbbu, 4096);
    conf_close(a);
    CONF_OK(conf_fill(in_b, kb, of_b, 0, 512, 5, NULL));
    CONF_FILLED(of_b, 0, 5, 2048);
    CONF_FILLED(of_b, 2048, 0xbbbbbbbbu, 2048);
    conf_close(b);
}

static void names_statuses(void **state)
{
    (void)state;
    assert_string_equal(hd_status_name(HD_OK), "HD_OK");
    assert_string_equal(hd_status_name(HD_ERROR_MEMORY), "HD_ERROR_MEMORY");
    assert_string_equal(hd_status_text(HD_ERROR_TIMEOUT), "the time limit passed");
    for (int i = 0; i >= -20; i--) {
        CONF_TRUE(strncmp(hd_status_name((hd_status)i), "HD_", 3) == 0);
        CONF_TRUE(hd_status_text((hd_status)i)[0] != '\0');
    }
    CONF_TRUE(hd_status_name((hd_status)-4711)[0] != '\0');
    CONF_TRUE(hd_status_text((hd_status)4711)[0] != '\0');
    assert_string_equal(hd_version(), HD_VERSION_STRING);
}

static void *looks_at_a_fresh_message(void *argument)
{
    (void)argument;
    CONF_TRUE(strcmp(hd_message(), "") == 0);
    hd_error error;
    memset(&error, 0xaa, sizeof error);
    error.size = sizeof error;
    hd_last_error(&error);
    CONF_EQUAL(error.size, sizeof error);
    CONF_EQUAL(error.status, HD_OK);
    CONF_EQUAL(error.driver_code, 0);
    CONF_EQUAL(error.device, -1);
    CONF_EQUAL(error.lane, -1);
    CONF_EQUAL(error.ticket, 0);
    CONF_TRUE(error.operation[0] == '\0' && error.kernel[0] == '\0' && error.message[0] == '\0');
    CONF_FAILS(hd_lane_wait(NULL, 0), HD_ERROR_HANDLE);
    return NULL;
}

static void messages_belong_to_threads(void **state)
{
    (void)state;
    CONF_FAILS(hd_open(NULL, NULL), HD_ERROR_ARGUMENT);
    char mine[512];
    snprintf(mine, sizeof mine, "%s", hd_message());
    pthread_t thread;
    CONF_EQUAL(pthread_create(&thread, NULL, looks_at_a_fresh_message, NULL), 0);
    pthread_join(thread, NULL);
    assert_string_equal(hd_message(), mine);

    /* a success leaves it */
    hd_runtime *runtime = conf_open(NULL);
    hd_buffer *buffer = NULL;
    CONF_OK(hd_alloc(conf_default_lane(runtime, 0), 64, &buffer));
    CONF_OK(hd_fill(buffer, 0, 1, 64, NULL));
    CONF_FILLED(buffer, 0, 1, 64);
    assert_string_equal(hd_message(), mine);
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    CONF_EQUAL(error.status, HD_ERROR_ARGUMENT);
    assert_string_equal(error.message, mine);
    /* the next failure replaces it */
    CONF_FAILS(hd_read(buffer, 60, mine, 8), HD_ERROR_RANGE);
    CONF_TRUE(strcmp(error.message, hd_message()) != 0);
    conf_close(runtime);
    CONF_TRUE(strlen(hd_message()) > 0); /* also after hd_close */
}

static void last_error_keeps_to_its_size(void **state)
{
    (void)state;
    CONF_FAILS(hd_open(NULL, NULL), HD_ERROR_ARGUMENT);
    hd_last_error(NULL);
    static const size_t sizes[] = {
        0, 4, sizeof(size_t), offsetof(hd_error, device), offsetof(hd_error, kernel) + 3, sizeof(hd_error)};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        union {
            hd_error error;
            uint8_t bytes[sizeof(hd_error) + 64];
        } u;
        memset(&u, 0xaa, sizeof u);
        u.error.size = sizes[i];
        hd_last_error(&u.error);
        CONF_EQUAL(u.error.size, sizes[i]);
        for (size_t j = sizes[i] < sizeof(size_t) ? sizeof(size_t) : sizes[i]; j < sizeof u; j++) {
            CONF_EQUAL(u.bytes[j], 0xaa);
        }
        if (sizes[i] > offsetof(hd_error, status) + sizeof(hd_status)) {
            CONF_EQUAL(u.error.status, HD_ERROR_ARGUMENT);
        }
    }
}

static void driver_entries(void **state)
{
    (void)state;
    void (*const sentinel)(void) = (void (*)(void))(uintptr_t)0x1234;
    void (*entry)(void) = NULL;
    CONF_OK(hd_driver_entry("host", "cuDriverGetVersion", &entry));
    int version = 0;
    CONF_EQUAL(((int (*)(int *))entry)(&version), 0);
    CONF_TRUE(version >= 1000);
    CONF_OK(hd_driver_entry(NULL, "cuLaunchKernel", &entry));
    CONF_TRUE(entry != NULL);
    entry = sentinel;
    CONF_FAILS_WITH(hd_driver_entry("host", "cuNoSuchThing", &entry), HD_ERROR_NOT_FOUND, "cuNoSuchThing");
    CONF_FAILS(hd_driver_entry("host", NULL, &entry), HD_ERROR_ARGUMENT);
    CONF_FAILS_WITH(hd_driver_entry("amd", "cuInit", &entry), HD_ERROR_ARGUMENT, "amd");
    CONF_TRUE(entry == sentinel);
    CONF_FAILS(hd_driver_entry("host", "cuInit", NULL), HD_ERROR_ARGUMENT);
}

static void chosen_devices(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    int count = hd_device_count(runtime);
    hd_device_info last = {.size = sizeof last};
    CONF_OK(hd_device_get_info(runtime, count - 1, &last));
    conf_close(runtime);
    char settings[64];
    snprintf(settings, sizeof settings, "devices=%d", count - 1);
    runtime = conf_open(settings);
    CONF_EQUAL(hd_device_count(runtime), 1);
    hd_device_info info = {.size = sizeof info};
    CONF_OK(hd_device_get_info(runtime, 0, &info));
    assert_string_equal(info.bus_id, last.bus_id);
    CONF_EQUAL(info.peers, 0);
    conf_close(runtime);
    if (count >= 3) {
        runtime = conf_open("devices=\"0,2\"");
        CONF_EQUAL(hd_device_count(runtime), 2);
        hd_buffer *buffer = NULL;
        CONF_OK(hd_alloc(conf_default_lane(runtime, 1), 4096, &buffer));
        CONF_EQUAL(hd_buffer_device(buffer), 1);
        CONF_OK(hd_fill(buffer, 0, 9, 4096, NULL));
        CONF_FILLED(buffer, 0, 9, 4096);
        conf_close(runtime);
    }
}

int main(void)
{
    conf_begin("test_open");
    const struct CMUnitTest tests[] = {
        CONF_CASE(opens_with_defaults),
        CONF_CASE(refuses_bad_options),
        CONF_CASE(refuses_bad_sizes_and_nulls_in_open),
        CONF_CASE(lists_options),
        CONF_CASE(settings_win_over_the_environment),
        CONF_CASE(tells_facts_about_devices),
        CONF_CASE(counts_what_happens),
        CONF_CASE(two_runtimes_at_once),
        CONF_CASE(names_statuses),
        CONF_CASE(messages_belong_to_threads),
        CONF_CASE(last_error_keeps_to_its_size),
        CONF_CASE(driver_entries),
        CONF_CASE(chosen_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
