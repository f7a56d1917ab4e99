/* test_results.c - result files: saved results come back, and nothing else does.
 * test_results_lock.c tests several processes at once.
 *
 * Promise: A saved result reads back; a damaged or old one, or one others may write, is ignored.
 *
 * Threads: the main one. Locks: none.
 * Always: a file that cannot be trusted or saved counts as missing.
 */
#include "results.h"

/* ---- saved results ---- */

static void what_is_kept_comes_back(void **state)
{
    (void)state;
    hd_peer_info info = info_now(), got;
    assert_false(hdi_result_load(folder, &key, &got));
    hdi_result_save(folder, &key, &info);
    assert_true(hdi_result_load(folder, &key, &got));
    assert_int_equal(got.size, sizeof got);
    assert_int_equal(got.verdict, HD_PEER_CORRUPT);
    assert_int_equal(got.driver_code, 700);
    assert_true(got.atomics && got.remembered);
    assert_true(got.direct_bytes_per_s == 397e9 && got.staged_bytes_per_s == 53.5e9);
    assert_string_equal(got.reason, info.reason);

    static const hd_peer_verdict kept[] = {HD_PEER_USABLE, HD_PEER_SLOW, HD_PEER_REFUSED};
    for (size_t i = 0; i < 3; i++) {
        info = (hd_peer_info){.verdict = kept[i]};
        hdi_result_save(folder, &key, &info);
        assert_true(hdi_result_load(folder, &key, &got));
        assert_int_equal(got.verdict, kept[i]);
        assert_string_equal(got.reason, "");
        assert_false(got.atomics);
    }
    assert_int_equal(count_files(), 1);
    char path[200];
    struct stat facts;
    path_of_finding(path);
    assert_int_equal(stat(path, &facts), 0);
    assert_int_equal(facts.st_mode & 0777, 0600);
}

static void what_says_nothing_is_not_kept(void **state)
{
    (void)state;
    hd_peer_info info = {.verdict = HD_PEER_INCONCLUSIVE}, got;
    hdi_result_save(folder, &key, &info);
    info.verdict = HD_PEER_UNKNOWN;
    hdi_result_save(folder, &key, &info);
    /* a refusal that depends on other processes */
    info = (hd_peer_info){.verdict = HD_PEER_REFUSED, .driver_code = HDCU_ERROR_TOO_MANY_PEERS};
    hdi_result_save(folder, &key, &info);
    assert_false(hdi_result_load(folder, &key, &got));
    assert_int_equal(count_files(), 0);
}

/* ---- keys ---- */

static void every_part_of_the_key_matters(void **state)
{
    (void)state;
    static const uint8_t other_uuid[16] = {9};
    hdi_result_facts changed[11];
    for (size_t i = 0; i < 11; i++) {
        changed[i] = facts_now();
    }
    changed[0].boot = "6b1e";
    changed[1].kernel = "quiet";
    changed[2].driver = "13000 580.66";
    changed[3].program = "1 2.4";
    changed[4].provider = "host";
    changed[5].placement = "process";
    changed[6].faults = "0>1";
    changed[7].device_bus = "0000:1c:00.0";
    changed[8].owner_bus = "0000:1c:00.0";
    changed[9].device_uuid = other_uuid;
    changed[10].owner_uuid = other_uuid;
    hd_peer_info info = info_now(), got;
    for (size_t i = 0; i < 11; i++) {
        hdi_result_key other;
        assert_true(hdi_result_key_make(&changed[i], &other));
        hdi_result_save(folder, &key, &info);
        assert_false(hdi_result_load(folder, &other, &got));
        hdi_result_save(folder, &other, &info);
        assert_true(hdi_result_load(folder, &other, &got));
        /* changes of the machine replace the file; another pair, or another way to use it, gets a
         * file of its own */
        assert_int_equal(hdi_result_load(folder, &key, &got), i > 3);
        assert_int_equal(strcmp(other.name, key.name) == 0, i <= 3);
    }
    assert_int_equal(count_files(), 8);
    /* the other direction is another pair */
    hdi_result_facts turned = facts_now();
    turned.device_bus = facts_now().owner_bus;
    turned.owner_bus = facts_now().device_bus;
    turned.device_uuid = uuid_b;
    turned.owner_uuid = uuid_a;
    hdi_result_key other;
    assert_true(hdi_result_key_make(&turned, &other));
    assert_false(hdi_result_load(folder, &other, &got));
}

static void keys_may_be_of_any_text(void **state)
{
    (void)state;
    hdi_result_facts facts = facts_now();
    facts.kernel = "a\nverdict usable\n\x01\xff %s%n";
    hdi_result_key odd;
    assert_true(hdi_result_key_make(&facts, &odd));
    hd_peer_info info = info_now(), got;
    hdi_result_save(folder, &odd, &info);
    assert_true(hdi_result_load(folder, &odd, &got));
    assert_int_equal(got.verdict, HD_PEER_CORRUPT);
    char *long_line = malloc(20000);
    memset(long_line, 'x', 19999);
    long_line[19999] = 0;
    facts.kernel = long_line;
    assert_false(hdi_result_key_make(&facts, &odd));
    free(long_line);
}

/* ---- damage ---- */

static char original[HDI_RESULT_BYTES];
static size_t original_bytes;

static void keep_one(char path[200])
{
    hd_peer_info info = info_now();
    hdi_result_save(folder, &key, &info);
    path_of_finding(path);
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    original_bytes = (size_t)read(fd, original, sizeof original);
    close(fd);
    assert_in_range(original_bytes, 100, sizeof original - 1);
}

static void a_part_is_nothing(void **state)
{
    (void)state;
    char path[200];
    keep_one(path);
    hd_peer_info got;
    for (size_t n = 0; n < original_bytes; n++) {
        write_file(path, original, n);
        assert_false(hdi_result_load(folder, &key, &got));
    }
    write_file(path, original, original_bytes);
    assert_true(hdi_result_load(folder, &key, &got));
    original[original_bytes] = '\n'; /* one byte more is invalid, too */
    write_file(path, original, original_bytes + 1);
    assert_false(hdi_result_load(folder, &key, &got));
}

/* Replaces any byte by any other: either nothing comes back, or a consistent result. */
static void damage_is_noticed_or_harmless(void **state)
{
    (void)state;
    char path[200];
    keep_one(path);
    const char *reason = strstr(original, "\nreason ");
    const char *body = strstr(original, "\nverdict ");
    assert_true(reason && body);
    static const char others[] = {0, '\n', ' ', 'x', '0', '9', '-', (char)0xff, '\r'};
    for (size_t i = 0; i < original_bytes; i++) {
        for (size_t k = 0; k < sizeof others; k++) {
            char before = original[i];
            if (before == others[k]) {
                continue;
            }
            original[i] = others[k];
            write_file(path, original, original_bytes);
            hd_peer_info got;
            bool good = hdi_result_load(folder, &key, &got);
            original[i] = before;
            if (original + i < body) {
                assert_false(good);
            }
            if (good) {
                assert_in_range(got.verdict, HD_PEER_USABLE, HD_PEER_CORRUPT);
                assert_in_range(got.driver_code, 0, 100000);
                assert_true(got.direct_bytes_per_s >= 0 && got.staged_bytes_per_s >= 0);
                assert_non_null(memchr(got.reason, 0, sizeof got.reason));
                assert_false(strpbrk(got.reason, "\n\r\xff") != NULL);
            }
        }
    }
}

static void random_files_are_ignored(void **state)
{
    (void)state;
    char path[200];
    path_of_finding(path);
    uint64_t random = 3;
    static char bytes[HDI_RESULT_BYTES + 100];
    for (int round = 0; round < 300; round++) {
        for (size_t i = 0; i < sizeof bytes; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            bytes[i] = (char)(random >> 56);
        }
        write_file(path, bytes, random % sizeof bytes);
        hd_peer_info got;
        assert_false(hdi_result_load(folder, &key, &got));
    }
}

static void bad_values_are_ignored(void **state)
{
    (void)state;
    char path[200];
    path_of_finding(path);
    static const struct {
        const char *body;
        bool good;
    } bodies[] = {
        {"verdict usable\ncode 0\natomics 1\ndirect 5\nstaged 6\nreason \nend\n", true},
        {"verdict usable\ncode 0\natomics 1\ndirect 5\nstaged 6\nreason \nend", false},
        {"verdict usable\ncode 0\natomics 1\ndirect 5\nstaged 6\nreason\nend\n", false},
        {"verdict inconclusive\ncode 0\natomics 1\ndirect 5\nstaged 6\nreason \nend\n", false},
        {"verdict unknown\ncode 0\natomics 1\ndirect 5\nstaged 6\nreason \nend\n", false},
        {"verdict \ncode 0\natomics 1\ndirect 5\nstaged 6\nreason \nend\n", false},
        {"verdict usable\ncode -1\natomics 1\ndirect 5\nstaged 6\nreason \nend\n", false},
        {"verdict usable\ncode 100001\natomics 1\ndirect 5\nstaged 6\nreason \nend\n", false},
        {"verdict usable\ncode 0x1\natomics 1\ndirect 5\nstaged 6\nreason \nend\n", false},
        {"verdict usable\ncode  1\natomics 1\ndirect 5\nstaged 6\nreason \nend\n", false},
        {"verdict usable\ncode 0\natomics 2\ndirect 5\nstaged 6\nreason \nend\n", false},
        {"verdict usable\ncode 0\natomics 1\ndirect nan\nstaged 6\nreason \nend\n", false},
        {"verdict usable\ncode 0\natomics 1\ndirect 5\nstaged 99999999999999999999\nreason \nend\n", false},
        {"verdict usable\ncode 0\natomics 1\nstaged 6\ndirect 5\nreason \nend\n", false},
        {"verdict usable\ncode 0\natomics 1\ndirect 5\nstaged 6\nreason \nend\nend\n", false},
        {"", false},
    };
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        static char text[HDI_RESULT_BYTES];
        int n = snprintf(text, sizeof text, "heddle peer result 1\n%s%s", key.text, bodies[i].body);
        write_file(path, text, (size_t)n);
        hd_peer_info got;
        assert_int_equal(hdi_result_load(folder, &key, &got), bodies[i].good);
    }
    /* a reason that does not fit */
    static char text[HDI_RESULT_BYTES];
    for (int length = HD_PEER_REASON_BYTES - 1; length <= HD_PEER_REASON_BYTES; length++) {
        int n =
            snprintf(text, sizeof text,
                     "heddle peer result 1\n%sverdict slow\ncode 0\natomics 0\ndirect 5\nstaged 6\nreason %0*d\nend\n",
                     key.text, length, 0);
        write_file(path, text, (size_t)n);
        hd_peer_info got;
        assert_int_equal(hdi_result_load(folder, &key, &got), length < HD_PEER_REASON_BYTES);
    }
}

/* ---- owners of files ---- */

static void what_others_can_write_is_ignored(void **state)
{
    (void)state;
    char path[200], elsewhere[240];
    keep_one(path);
    hd_peer_info got;
    static const mode_t open_modes[] = {0620, 0602, 0666};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(chmod(path, open_modes[i]), 0);
        assert_false(hdi_result_load(folder, &key, &got));
    }
    assert_int_equal(chmod(path, 0644), 0); /* others may read it */
    assert_true(hdi_result_load(folder, &key, &got));
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 12345, 0), 0);
        assert_false(hdi_result_load(folder, &key, &got));
        assert_int_equal(chown(path, 0, 0), 0);
        assert_true(hdi_result_load(folder, &key, &got));
    }
    /* a symbolic link could lead to another program's file */
    snprintf(elsewhere, sizeof elsewhere, "%s.moved", path);
    assert_int_equal(rename(path, elsewhere), 0);
    assert_int_equal(symlink(elsewhere, path), 0);
    assert_false(hdi_result_load(folder, &key, &got));
    unlink(path);
    /* not a regular file: must not block, either */
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_false(hdi_result_load(folder, &key, &got));
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_false(hdi_result_load(folder, &key, &got));
    hd_peer_info info = info_now();
    hdi_result_save(folder, &key, &info); /* cannot replace it */
    assert_false(hdi_result_load(folder, &key, &got));
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(count_files(), 1); /* only the renamed file: nothing half-made is left */
}

/* ---- places ---- */

static void folders_are_found_and_made(void **state)
{
    (void)state;
    char out[PATH_MAX], wanted[200];
    assert_false(hdi_results_folder("none", out, sizeof out));
    snprintf(wanted, sizeof wanted, "%s/a/b//c", folder);
    assert_true(hdi_results_folder(wanted, out, sizeof out));
    assert_string_equal(out, wanted);
    struct stat facts;
    assert_int_equal(stat(wanted, &facts), 0);
    assert_true(S_ISDIR(facts.st_mode));
    assert_int_equal(facts.st_mode & 0777, 0700);
    assert_false(hdi_results_folder(wanted, out, 8)); /* the buffer is too small */

    snprintf(wanted, sizeof wanted, "%s/file", folder);
    write_file(wanted, "x", 1);
    assert_false(hdi_results_folder(wanted, out, sizeof out));
    snprintf(wanted, sizeof wanted, "%s/file/below", folder);
    assert_false(hdi_results_folder(wanted, out, sizeof out));
    assert_false(hdi_results_folder("/proc/nothing/here", out, sizeof out));

    char *cache = getenv("XDG_CACHE_HOME") ? strdup(getenv("XDG_CACHE_HOME")) : NULL;
    char *home = getenv("HOME") ? strdup(getenv("HOME")) : NULL;
    snprintf(wanted, sizeof wanted, "%s/xdg", folder);
    setenv("XDG_CACHE_HOME", wanted, 1);
    assert_true(hdi_results_folder("", out, sizeof out));
    assert_string_equal(out + strlen(wanted), "/heddle");
    setenv("XDG_CACHE_HOME", "relative", 1); /* relative, so ignored */
    snprintf(wanted, sizeof wanted, "%s/home", folder);
    setenv("HOME", wanted, 1);
    assert_true(hdi_results_folder("", out, sizeof out));
    assert_string_equal(out + strlen(wanted), "/.cache/heddle");
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", "", 1);
    assert_false(hdi_results_folder("", out, sizeof out));
    unsetenv("HOME");
    assert_false(hdi_results_folder("", out, sizeof out));
    if (cache) {
        setenv("XDG_CACHE_HOME", cache, 1);
    }
    if (home) {
        setenv("HOME", home, 1);
    }
    free(cache);
    free(home);
}

static void a_place_that_takes_nothing_is_no_failure(void **state)
{
    (void)state;
    hd_peer_info info = info_now(), got;
    hdi_result_save("/proc/nothing/here", &key, &info);
    assert_false(hdi_result_load("/proc/nothing/here", &key, &got));
    assert_int_equal(hdi_results_lock("/proc/nothing/here", 0, NULL, NULL, NULL), -1);
    hdi_results_unlock(-1);
    if (geteuid() != 0) {
        assert_int_equal(chmod(folder, 0500), 0);
        hdi_result_save(folder, &key, &info);
        assert_false(hdi_result_load(folder, &key, &got));
        assert_int_equal(hdi_results_lock(folder, 0, NULL, NULL, NULL), -1);
        assert_int_equal(chmod(folder, 0700), 0);
    }
    /* A disk that becomes full during a write, and a limit that sends a signal: in a child, whose
     * limit it is. The previous file stays. */
    info.verdict = HD_PEER_USABLE;
    hdi_result_save(folder, &key, &info);
    info.verdict = HD_PEER_SLOW;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit little = {100, 100};
        setrlimit(RLIMIT_FSIZE, &little);
        hdi_result_save(folder, &key, &info);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_true(hdi_result_load(folder, &key, &got));
    assert_int_equal(got.verdict, HD_PEER_USABLE);
    assert_int_equal(count_files(), 1);
}

static void lines_are_read(void **state)
{
    (void)state;
    char path[200], line[16];
    snprintf(path, sizeof path, "%s/line", folder);
    write_file(path, "one\ttwo\xff\nthree", 14);
    hdi_results_read_line(path, line, sizeof line);
    assert_string_equal(line, "one?two?");
    write_file(path, "0123456789abcdefghij", 20);
    hdi_results_read_line(path, line, sizeof line);
    assert_string_equal(line, "0123456789abcde");
    hdi_results_read_line("/proc/nothing", line, sizeof line);
    assert_string_equal(line, "");
    write_file(path, "", 0);
    hdi_results_read_line(path, line, sizeof line);
    assert_string_equal(line, "");
}

/* The next result of a pair removes the remains of a killed writer, and nothing else. */
static void leftovers_are_swept_away(void **state)
{
    (void)state;
    const struct timespec long_ago[2] = {{1, 0}, {1, 0}};
    char left[200], other[200];
    snprintf(left, sizeof left, "%s/.%s.a1b2c3", folder, key.name);
    snprintf(other, sizeof other, "%s/.another.a1b2c3", folder);
    write_file(left, "half", 4);
    write_file(other, "half", 4);
    assert_int_equal(utimensat(AT_FDCWD, left, long_ago, 0), 0);
    assert_int_equal(utimensat(AT_FDCWD, other, long_ago, 0), 0);
    const hd_peer_info info = info_now();
    hdi_result_save(folder, &key, &info);
    assert_int_equal(access(left, F_OK), -1);
    assert_int_equal(count_files(), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_kept_comes_back),
        TEST(what_says_nothing_is_not_kept),
        TEST(every_part_of_the_key_matters),
        TEST(keys_may_be_of_any_text),
        TEST(a_part_is_nothing),
        TEST(damage_is_noticed_or_harmless),
        TEST(random_files_are_ignored),
        TEST(bad_values_are_ignored),
        TEST(what_others_can_write_is_ignored),
        TEST(folders_are_found_and_made),
        TEST(a_place_that_takes_nothing_is_no_failure),
        TEST(lines_are_read),
        TEST(leftovers_are_swept_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
