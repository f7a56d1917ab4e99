/* test_options.c - the table of options: defaults, environment, settings, and messages about bad
 * values.
 *
 * Promise: Settings override the environment, the environment defaults; messages name bad values.
 * Threads: one. Locks: none.
 */
#include "support/check.h"

#include "base/options.h"

static int clean_environment(void **unused)
{
    (void)unused;
    for (int i = 0; hdi_option_row_at(i) != NULL; i++) {
        unsetenv(hdi_option_row_at(i)->environment);
    }
    return 0;
}

/* The help states the meaning of each word, or the limits. */
static void check_help(const hdi_option_row *row)
{
    bool number = strcmp(row->kind, "text") != 0 && row->choices == NULL;
    assert_true(!number || strstr(row->help, " to ") != NULL);
    for (const char *word = row->choices; word != NULL && *word != '\0';) {
        char meaning[64];
        size_t length = strcspn(word, "|");
        snprintf(meaning, sizeof meaning, "; %.*s: ", (int)length, word);
        const char *at = strstr(row->help, meaning);
        assert_true(at != NULL && at[strlen(meaning)] != '\0');
        assert_non_null(strstr(row->meanings, meaning + 2));
        word += length + (word[length] == '|');
    }
}

static void defaults_are_valid(void **unused)
{
    (void)unused;
    hdi_options o;
    assert_ok(hdi_options_parse(NULL, &o));
    assert_int_equal(o.driver, HDI_DRIVER_AUTO);
    assert_int_equal(o.placement, HDI_PLACEMENT_THREAD);
    assert_string_equal(o.devices, "all");
    assert_string_equal(o.fault, "");
    assert_int_equal(o.lane_slots, 1024);
    assert_int_equal(o.spin_us, -1);
    assert_int_equal(o.host_memory, (int64_t)1 << 30);
    assert_true(o.memory_limit.share == 1 && o.memory_limit.bytes == 0);
    assert_true(o.pinned_limit.share == 0.5);
    assert_int_equal(o.memory_debug, HDI_MEMORY_DEBUG_OFF);
    assert_string_equal(o.stats, "0");
    int rows = 0;
    for (; hdi_option_row_at(rows) != NULL; rows++) {
        const hdi_option_row *row = hdi_option_row_at(rows);
        assert_true(o.is_default[rows]);
        assert_string_equal(o.text[rows], row->default_text);
        assert_true(strncmp(row->environment, "HEDDLE_", 7) == 0);
        assert_true((strcmp(row->kind, "choice") == 0) == (row->choices != NULL));
        assert_true(row->help[0] != '\0');
        check_help(row);
    }
    assert_true(rows >= 12);
    assert_null(hdi_option_row_at(-1));
    hdi_options_release(&o);
    hdi_options_release(&o);
}

static void settings_win_over_the_environment(void **unused)
{
    (void)unused;
    hdi_options o;
    setenv("HEDDLE_DRIVER", "nvidia", 1);
    setenv("HEDDLE_HOST_DEVICES", "2", 1);
    setenv("HEDDLE_DEVICES", "0,1", 1);
    setenv("HEDDLE_PLACEMENT", "", 1);
    assert_ok(hdi_options_parse("driver=host", &o));
    assert_int_equal(o.driver, HDI_DRIVER_HOST);
    assert_int_equal(o.host_devices, 2);
    assert_string_equal(o.devices, "0,1");
    assert_int_equal(o.placement, HDI_PLACEMENT_THREAD);
    assert_false(o.is_default[0]);
    assert_true(o.is_default[1]);
    hdi_options_release(&o);
}

static void settings_are_separated_and_quoted(void **unused)
{
    (void)unused;
    hdi_options o;
    assert_ok(
        hdi_options_parse("  host_memory=64M,placement=inline\thost_devices=8 ,, devices=\"0, 2,3\" fault=\"\"", &o));
    assert_int_equal(o.host_memory, 64 << 20);
    assert_int_equal(o.placement, HDI_PLACEMENT_INLINE);
    assert_int_equal(o.host_devices, 8);
    assert_string_equal(o.devices, "0, 2,3");
    assert_string_equal(o.fault, "");
    hdi_options_release(&o);
    assert_ok(hdi_options_parse("spin_us=5 spin_us=6 fault=cuLaunchKernel:3+=700", &o));
    assert_int_equal(o.spin_us, 6);
    assert_string_equal(o.fault, "cuLaunchKernel:3+=700");
    hdi_options_release(&o);
    assert_ok(hdi_options_parse("", &o));
    hdi_options_release(&o);
}

static void bytes_take_suffixes(void **unused)
{
    (void)unused;
    static const struct {
        const char *settings;
        int64_t bytes;
    } good[] = {
        {"host_memory=2097152", 1 << 21},
        {"host_memory=4096K", 4 << 20},
        {"host_memory=2g", (int64_t)2 << 30},
        {"host_memory=64T", (int64_t)64 << 40},
        {"host_memory=32MB", 32 << 20},
        {"host_memory=32MiB", 32 << 20},
        {"host_memory=32mib", 32 << 20},
        {"host_memory=8192kB", 8 << 20},
        {"host_memory=8192KiB", 8 << 20},
        {"host_memory=1.5G", (int64_t)3 << 29},
        {"host_memory=1.5GB", (int64_t)3 << 29},
        {"host_memory=.5GiB", 1 << 29},
        {"host_memory=3.G", (int64_t)3 << 30},
        {"host_memory=2048.3K", 2048 * 1024 + 307},
        {"host_memory=2.00000000000000000000000009M", 2 << 20},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        hdi_options o;
        assert_ok(hdi_options_parse(good[i].settings, &o));
        assert_int_equal(o.host_memory, good[i].bytes);
        hdi_options_release(&o);
    }
}

/* An amount is a number of bytes or a percentage. */
static void amounts_are_bytes_or_shares(void **unused)
{
    (void)unused;
    static const struct {
        const char *value;
        int64_t bytes;
        double share;
    } good[] = {
        {"12G", (int64_t)12 << 30, 0},
        {"2M", 1 << 21, 0},
        {"2097152", 1 << 21, 0},
        {"1.5GiB", (int64_t)3 << 29, 0},
        {"32MB", 32 << 20, 0},
        {"64t", (int64_t)64 << 40, 0},
        {"80%", 0, 0.8},
        {"100%", 0, 1},
        {"1%", 0, 0.01},
        {"12.5%", 0, 0.125},
        {"0.1%", 0, 0.001},
        {"100.0%", 0, 1},
        {"33.%", 0, 0.33},
        {".5%", 0, 0.005},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        hdi_options o, again;
        char settings[64], formatted[8192];
        snprintf(settings, sizeof settings, "memory_limit=%s", good[i].value);
        assert_ok(hdi_options_parse(settings, &o));
        assert_int_equal(o.memory_limit.bytes, good[i].bytes);
        assert_true(o.memory_limit.share > good[i].share - 1e-9 && o.memory_limit.share < good[i].share + 1e-9);
        /* the other amount keeps its default */
        assert_int_equal(o.pinned_limit.bytes, 0);
        assert_true(o.pinned_limit.share == 0.5);
        /* a worker gets the same values */
        assert_true(hdi_options_format(&o, formatted, sizeof formatted));
        assert_ok(hdi_options_parse_settings(formatted, &again));
        assert_int_equal(again.memory_limit.bytes, o.memory_limit.bytes);
        assert_true(again.memory_limit.share == o.memory_limit.share);
        hdi_options_release(&again);
        hdi_options_release(&o);
    }
    static const struct {
        const char *value, *message;
    } bad[] = {
        {"0%", "above 0% and at most 100%"},
        {"0.0%", "above 0% and at most 100%"},
        {"101%", "above 0% and at most 100%"},
        {"100.0001%", "above 0% and at most 100%"},
        {"-5%", "above 0% and at most 100%"},
        {"+5%", "above 0% and at most 100%"},
        {"1e9%", "above 0% and at most 100%"},
        {"1e1%", "above 0% and at most 100%"},
        {"0x10%", "above 0% and at most 100%"},
        {"inf%", "above 0% and at most 100%"},
        {"nan%", "above 0% and at most 100%"},
        {"5.5.5%", "above 0% and at most 100%"},
        {".%", "above 0% and at most 100%"},
        {"%", "above 0% and at most 100%"},
        {"%%", "above 0% and at most 100%"},
        {"5%%", "above 0% and at most 100%"},
        {"\" 5%\"", "above 0% and at most 100%"},
        {"99999999999999999999999999%", "above 0% and at most 100%"},
        {"80%5", "or a share such as 80%"},
        {"", "or a share such as 80%"},
        {"5x", "or a share such as 80%"},
        {"1M", "from 2M to 64T, such as 1536M, 1536MiB or 1.5G (powers of 1024), or a share such as 80%"},
        {"65T", "from 2M to 64T"},
        {"-1G", "from 2M to 64T"},
        {"0", "from 2M to 64T"},
        {"12GBB", "from 2M to 64T"},
        {"0.5", "from 2M to 64T"},
        {"99999999999999999999", "from 2M to 64T"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        hdi_options o;
        char settings[64], start[64];
        snprintf(settings, sizeof settings, "memory_limit=%s", bad[i].value);
        snprintf(start, sizeof start, "memory_limit=%.20s", bad[i].value[0] == '"' ? " 5%" : bad[i].value);
        assert_status(hdi_options_parse(settings, &o), HD_ERROR_OPTION);
        assert_message_has(bad[i].message);
        assert_message_has(start);
    }
    hdi_options o;
    setenv("HEDDLE_MEMORY_LIMIT", "25%", 1);
    setenv("HEDDLE_PINNED_LIMIT", "3G", 1);
    assert_ok(hdi_options_parse(NULL, &o));
    assert_true(o.memory_limit.share == 0.25);
    assert_int_equal(o.pinned_limit.bytes, (int64_t)3 << 30);
    hdi_options_release(&o);
    /* the setting overrides the environment, also with another kind of amount */
    assert_ok(hdi_options_parse("memory_limit=4M", &o));
    assert_true(o.memory_limit.share == 0);
    assert_int_equal(o.memory_limit.bytes, 4 << 20);
    hdi_options_release(&o);
    setenv("HEDDLE_MEMORY_LIMIT", "lots", 1);
    assert_status(hdi_options_parse(NULL, &o), HD_ERROR_OPTION);
    assert_message_has("HEDDLE_MEMORY_LIMIT=lots: must be");
}

static void says_what_is_wrong(void **unused)
{
    (void)unused;
    static const struct {
        const char *settings, *message;
    } bad[] = {
        {"drivr=host", "did you mean \"driver\""},
        {"hostdevices=2", "did you mean \"host_devices\""},
        {"speed=11", "`heddle info` and hd_option_get_info list all"},
        {"a_name_that_is_much_longer_than_any_option_that_there_is_or_ever_will_be=1",
         "there is no option \"a_name_that_is"},
        {"driver=cuda", "driver=cuda: must be one of auto|nvidia|host"},
        {"driver=", "must be one of"},
        {"peers=yes", "must be one of verify|trust|off (verify: where a test"},
        {"modules=some", "option modules=some: must be one of lazy|eager"},
        {"modules=some", "; module_loading is its name now"},
        {"module_loading=all", "option module_loading=all: must be one of lazy|eager"},
        {"queues=33", "option queues=33: must be a whole number from 1 to 32; hw_queues is its name now"},
        {"driver=auto|host", "must be one of"},
        {"lane_slots=1000", "must be a power of two from"},
        {"lane_slots=32", "must be a power of two from"},
        {"lane_slots=131072", "must be a power of two"},
        {"spin_us=-2", "must be a whole number from -1 to 1000000"},
        {"spin_us=1K", "must be a whole number"},
        {"spin_us=", "must be a whole number"},
        {"spin_us=99999999999999999999", "must be a whole number"},
        {"host_memory=1M", "from 2M to 64T"},
        {"host_memory=9000000000000T", "from 2M to 64T"},
        {"host_memory=1GBB", "from 2M to 64T, such as 1536M, 1536MiB or 1.5G (powers of 1024)"},
        {"host_memory=1Gi", "from 2M to 64T"},
        {"host_memory=1iB", "from 2M to 64T"},
        {"host_memory=2097152.5", "from 2M to 64T"},
        {"host_memory=2097152B", "from 2M to 64T"},
        {"host_memory=.G", "from 2M to 64T"},
        {"host_memory=1..5G", "from 2M to 64T"},
        {"host_memory=1.5", "from 2M to 64T"},
        {"host_memory=0x1p30", "from 2M to 64T"},
        {"host_memory=18446744073709551616", "from 2M to 64T"},
        {"host_memory=16777216.0T", "from 2M to 64T"},
        {"memory_limit=1.5GBs", "or a share such as 80%"},
        {"host_memory=-1G", "from 2M to 64T"},
        {"host_memory=\" 1G\"", "from 2M to 64T"},
        {"memory_reclaim=81", "from 0 to 80"},
        {"memory_timeout=-1", "from 0 to 86400000"},
        {"memory_debug=yes", "must be one of off|on"},
        {"devices=0,1", "expected name=value at \"1\""},
        {"driver", "expected name=value"},
        {"=host", "expected name=value"},
        {"devices=\"0,1", "are not closed"},
        {"devices=\"0\"1", "must hold the whole value"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        hdi_options o;
        memset(&o, 0x55, sizeof o);
        assert_status(hdi_options_parse(bad[i].settings, &o), HD_ERROR_OPTION);
        assert_message_has(bad[i].message);
        assert_int_equal(o.lane_slots, 0x5555555555555555);
    }
    hdi_options o;
    setenv("HEDDLE_LANE_SLOTS", "7", 1);
    assert_status(hdi_options_parse(NULL, &o), HD_ERROR_OPTION);
    assert_message_has("HEDDLE_LANE_SLOTS=7: must be");
    unsetenv("HEDDLE_LANE_SLOTS");
    setenv("HEDDLE_QUEUES", "0", 1);
    assert_status(hdi_options_parse(NULL, &o), HD_ERROR_OPTION);
    assert_message_has("HEDDLE_QUEUES=0: must be a whole number from 1 to 32; HEDDLE_HW_QUEUES is its name now");
    unsetenv("HEDDLE_QUEUES");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(defaults_are_valid, clean_environment, clean_environment),
        cmocka_unit_test_setup_teardown(settings_win_over_the_environment, clean_environment, clean_environment),
        cmocka_unit_test_setup_teardown(settings_are_separated_and_quoted, clean_environment, clean_environment),
        cmocka_unit_test_setup_teardown(bytes_take_suffixes, clean_environment, clean_environment),
        cmocka_unit_test_setup_teardown(amounts_are_bytes_or_shares, clean_environment, clean_environment),
        cmocka_unit_test_setup_teardown(says_what_is_wrong, clean_environment, clean_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
