/* test_peer_options.c - verified peer access: the options, remembered results, and failures around
 * the test.
 *
 * Promise: Peer options work as documented, results are reused, failed tests leave pairs unused.
 *
 * Threads: the main one.
 * Locks: none.
 */
#include "peers.h"

/* ---- the options ---- */

static void trust_and_off_need_no_test(void **state)
{
    (void)state;
    if (!on_host()) {
        skip();
    }
    make_script();
    /* trusts the driver, though it is wrong: writes of device 0 are lost */
    hd_runtime *runtime = open_with_script("peers=trust host_devices=2 host_corrupt=0>1:stores");
    conf_kernels k = conf_builtins(runtime);
    hd_buffer *x[2];
    make_buffers(runtime, x, 2);
    CONF_OK(conf_fill(conf_default_lane(runtime, 0), k, x[1], 0, words, 2, NULL));
    CONF_FILLED(x[1], 0, 1001, bytes);
    kernels_are_right(runtime, 1, 0);
    CONF_EQUAL(count_runs(), 0);
    expect(runtime, 0, 1, HD_PEER_CORRUPT); /* hd_peer_check reports it */
    CONF_EQUAL(count_runs(), 1);
    CONF_OK(conf_fill(conf_default_lane(runtime, 0), k, x[1], 0, words, 2, NULL));
    conf_close(runtime);

    runtime = open_with_script("peers=off host_devices=2");
    kernels_are_refused(runtime, 0, 1, "peers=off");
    copies_are_right(runtime, 0, 1);
    CONF_EQUAL(count_runs(), 1);
    expect_good(runtime, 0, 1);
    kernels_are_refused(runtime, 0, 1, "peers=off");
    conf_close(runtime);

    runtime = open_with_script("peers=trust host_peers=none host_devices=2");
    kernels_are_refused(runtime, 0, 1, "no peer access");
    expect(runtime, 0, 1, HD_PEER_REFUSED); /* the driver's word is enough */
    CONF_EQUAL(count_runs(), 2);
    conf_close(runtime);
}

/* Without the test program there is no access, but everything else works. */
static void programs_may_be_missing(void **state)
{
    (void)state;
    static const char *const programs[] = {"/nonexistent/heddle-probe", "/bin/true", "/bin/false", "/dev/null"};
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        hd_runtime *runtime = conf_open_with("probe=%s cache=%s/cache", programs[i], folder);
        CONF_NEED_DEVICES(runtime, 2);
        if (!conf_reaches(runtime, 0, 1)) {
            conf_close(runtime);
            skip();
        }
        kernels_are_refused(runtime, 0, 1, "peer access could not be tested");
        expect(runtime, 0, 1, HD_PEER_INCONCLUSIVE);
        copies_are_right(runtime, 0, 1);
        conf_close(runtime);
    }
    /* nothing of that was kept */
    hd_runtime *runtime = conf_open_with("cache=%s/cache", folder);
    CONF_TRUE(ask(runtime, 0, 1).verdict != HD_PEER_INCONCLUSIVE);
    conf_close(runtime);
}

/* hd_peer_check repeats an inconclusive test, and its result is used from then on. */
static void what_was_inconclusive_can_be_asked_again(void **state)
{
    (void)state;
    if (!on_host()) {
        skip();
    }
    make_script();
    write_text("extra", "devices=77");
    hd_runtime *runtime = open_with_script("host_devices=2");
    kernels_are_refused(runtime, 0, 1, "could not be tested");
    kernels_are_refused(runtime, 0, 1, "could not be tested");
    copies_are_right(runtime, 0, 1);
    int runs = count_runs();
    CONF_TRUE(runs <= 2); /* not with every use */
    remove_file("extra");
    kernels_are_refused(runtime, 0, 1, "could not be tested");
    CONF_EQUAL(count_runs(), runs);
    expect_good(runtime, 0, 1);
    kernels_are_right(runtime, 0, 1);
    kernels_are_right(runtime, 1, 0);
    conf_close(runtime);
}

/* Driver calls that fail for lack of memory do not count against a pair: neither while copies are
 * timed, nor before. */
static void want_of_memory_is_no_corruption(void **state)
{
    (void)state;
    if (!on_host()) {
        skip();
    }
    make_script();
    bool timed = false, early = false;
    /* at any place in the test: steps of 32 calls, in 16 passes that together reach all */
    for (int i = 0; i < 192 && !(timed && early); i++) {
        char extra[64];
        snprintf(extra, sizeof extra, "fault=cuMemcpyDtoHAsync:%d+=2", 30 + i % 12 * 32 + i / 12 * 2);
        write_text("extra", extra);
        hd_runtime *runtime = conf_open_with("host_devices=2 probe=%s/probe cache=none", folder);
        hd_peer_info info = ask(runtime, 0, 1);
        CONF_TRUE(is_good(info.verdict) || info.verdict == HD_PEER_INCONCLUSIVE);
        timed = timed || (info.verdict == HD_PEER_USABLE && info.direct_bytes_per_s == 0);
        early = early || info.verdict == HD_PEER_INCONCLUSIVE;
        conf_close(runtime);
    }
    CONF_TRUE(timed && early);
}

/* ---- memory ---- */

static void findings_are_remembered(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open_with("cache=%s/cache", folder);
    CONF_NEED_DEVICES(runtime, 2);
    if (!conf_reaches(runtime, 0, 1)) {
        conf_close(runtime);
        skip();
    }
    hd_peer_info found = ask(runtime, 0, 1);
    CONF_TRUE(!found.remembered);
    conf_close(runtime);

    runtime = conf_open_with("cache=%s/cache", folder);
    hd_peer_info again = ask(runtime, 0, 1);
    CONF_TRUE(again.remembered);
    CONF_EQUAL(again.verdict, found.verdict);
    CONF_EQUAL(again.atomics, found.atomics);
    CONF_TRUE(strcmp(again.reason, found.reason) == 0);
    CONF_TRUE(again.direct_bytes_per_s >= found.direct_bytes_per_s - 1 &&
              again.direct_bytes_per_s <= found.direct_bytes_per_s + 1);
    CONF_TRUE(ask(runtime, 1, 0).remembered); /* both directions were tested */
    copies_are_right(runtime, 0, 1);
    /* and can be tested again */
    check_all(runtime, HD_PEERS_AGAIN, &first);
    CONF_TRUE(!first.of[0][1].remembered);
    CONF_TRUE(!ask(runtime, 0, 1).remembered);
    conf_close(runtime);

    runtime = conf_open("cache=none");
    CONF_TRUE(!ask(runtime, 0, 1).remembered);
    bool is_process = conf_is_process(runtime);
    conf_close(runtime);
    /* other mappings need other results */
    if (is_process) {
        runtime = conf_open_with("placement=thread cache=%s/cache", folder);
        CONF_TRUE(!ask(runtime, 0, 1).remembered);
        conf_close(runtime);
    }
    if (!conf_on_gpus) {
        runtime = conf_open_with("host_corrupt=0>1 cache=%s/cache", folder);
        found = ask(runtime, 0, 1);
        CONF_TRUE(!found.remembered);
        CONF_EQUAL(found.verdict, HD_PEER_CORRUPT);
        conf_close(runtime);
        runtime = conf_open_with("host_corrupt=0>1 cache=%s/cache", folder);
        again = ask(runtime, 0, 1);
        CONF_TRUE(again.remembered);
        CONF_EQUAL(again.verdict, HD_PEER_CORRUPT);
        CONF_TRUE(strcmp(again.reason, found.reason) == 0);
        kernels_are_refused(runtime, 0, 1, "did not arrive");
        conf_close(runtime);
    }
}

/* Changes the first character of that line's value in every file of the case's cache folder. */
static void change_line(const char *name)
{
    char path[512], text[16384], heading[32];
    snprintf(path, sizeof path, "%s/cache", folder);
    snprintf(heading, sizeof heading, "\n%s ", name);
    DIR *dir = opendir(path);
    CONF_TRUE(dir != NULL);
    int n = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (strncmp(entry->d_name, "peer-", 5) == 0) {
            snprintf(path, sizeof path, "%s/cache/%s", folder, entry->d_name);
            FILE *file = fopen(path, "r+");
            CONF_TRUE(file != NULL);
            size_t size = fread(text, 1, sizeof text - 1, file);
            text[size] = '\0';
            char *at = strstr(text, heading);
            CONF_TRUE(at != NULL && at[strlen(heading)] != '\n');
            at[strlen(heading)] ^= 1;
            rewind(file);
            CONF_TRUE(fwrite(text, 1, size, file) == size && fclose(file) == 0);
            n++;
        }
    }
    closedir(dir);
    CONF_TRUE(n >= 2);
}

/* After another boot, driver, command line of the kernel, test program or device, nothing is
 * known. */
static void findings_are_of_this_machine_now(void **state)
{
    (void)state;
    if (!on_host()) {
        skip();
    }
    static const char *const lines[] = {"boot", "kernel", "driver", "program", "test", "device", "owner", "placement"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        for (int round = 0; round < 3; round++) {
            hd_runtime *runtime = conf_open_with("host_devices=2 cache=%s/cache", folder);
            CONF_EQUAL(ask(runtime, 0, 1).remembered, (i > 0 && round == 0) || round == 1);
            conf_close(runtime);
            if (round == 1) {
                change_line(lines[i]);
            }
        }
    }
    /* the file contains the system's values, not empty ones */
    static const char *const sources[][2] = {{"boot", "/proc/sys/kernel/random/boot_id"}, {"kernel", "/proc/cmdline"}};
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        char command[512];
        snprintf(command, sizeof command, "grep -qF -- \"%s $(head -n 1 %s | cut -c 1-40)\" %s/cache/peer-*.txt",
                 sources[i][0], sources[i][1], folder);
        CONF_EQUAL(system(command), 0);
    }
}

/* A relative path of an option stays that of the time at which the runtime was opened. */
static void relative_paths_outlive_a_change_of_directory(void **state)
{
    (void)state;
    make_script();
    char here[4096], worker[4096] = "", path[128];
    CONF_TRUE(getcwd(here, sizeof here) != NULL && chdir(folder) == 0);
    const char *real = getenv("HEDDLE_WORKER");
    if (real != NULL && symlink(real, "worker") == 0) {
        snprintf(worker, sizeof worker, "worker=./worker");
    }
    hd_runtime *runtime = conf_open_with("probe=./probe cache=cache/here %s", worker);
    CONF_EQUAL(chdir("/"), 0);
    bool reaches = hd_device_count(runtime) > 1 && conf_reaches(runtime, 0, 1);
    if (reaches) {
        CONF_TRUE(ask(runtime, 0, 1).verdict != HD_PEER_INCONCLUSIVE);
        snprintf(path, sizeof path, "%s/cache/here/lock", folder);
        CONF_EQUAL(access(path, F_OK), 0);
    }
    conf_close(runtime);
    CONF_EQUAL(chdir(here), 0);
}

/* Every file of the case's cache folder gets this content. */
static void spoil_cache(const char *content)
{
    char path[512];
    snprintf(path, sizeof path, "%s/cache", folder);
    DIR *dir = opendir(path);
    CONF_TRUE(dir != NULL);
    int n = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (strncmp(entry->d_name, "peer-", 5) == 0) {
            snprintf(path, sizeof path, "%s/cache/%s", folder, entry->d_name);
            FILE *file = fopen(path, "w");
            CONF_TRUE(file != NULL && fputs(content, file) >= 0 && fclose(file) == 0);
            n++;
        }
    }
    closedir(dir);
    CONF_TRUE(n >= 2);
}

static void trouble_with_the_cache_is_no_trouble(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open_with("cache=%s/cache", folder);
    CONF_NEED_DEVICES(runtime, 2);
    if (!conf_reaches(runtime, 0, 1)) {
        conf_close(runtime);
        skip();
    }
    expect_good(runtime, 0, 1);
    conf_close(runtime);
    static const char *const contents[] = {"", "garbage", "heddle peer finding 1\nverdict usable\n"};
    for (size_t i = 0; i < sizeof contents / sizeof contents[0]; i++) {
        spoil_cache(contents[i]);
        runtime = conf_open_with("cache=%s/cache", folder);
        hd_peer_info info = ask(runtime, 0, 1);
        CONF_TRUE(is_good(info.verdict));
        CONF_TRUE(!info.remembered);
        conf_close(runtime);
        runtime = conf_open_with("cache=%s/cache", folder); /* it was repaired */
        CONF_TRUE(ask(runtime, 0, 1).remembered);
        conf_close(runtime);
    }
    write_text("file", "");
    static const char *const places[] = {"/proc/nothing/here", "/dev/full", "%s/file/below"};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char place[128];
        snprintf(place, sizeof place, "%s%s", places[i][0] == '%' ? folder : "", places[i] + (places[i][0] == '%') * 2);
        runtime = conf_open_with("cache=%s", place);
        hd_peer_info info = ask(runtime, 0, 1);
        CONF_TRUE(is_good(info.verdict));
        CONF_TRUE(!info.remembered);
        copies_are_right(runtime, 0, 1);
        CONF_TRUE(!ask(runtime, 0, 1).remembered);
        conf_close(runtime);
    }
}

int main(void)
{
    conf_begin("test_peer_options");
    const struct CMUnitTest tests[] = {
        PEER_CASE(trust_and_off_need_no_test),
        PEER_CASE(programs_may_be_missing),
        PEER_CASE(what_was_inconclusive_can_be_asked_again),
        PEER_CASE(want_of_memory_is_no_corruption),
        PEER_CASE(findings_are_remembered),
        PEER_CASE(findings_are_of_this_machine_now),
        PEER_CASE(relative_paths_outlive_a_change_of_directory),
        PEER_CASE(trouble_with_the_cache_is_no_trouble),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
