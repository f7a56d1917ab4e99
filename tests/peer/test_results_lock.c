/* test_results_lock.c - result files and several processes at once. Results stay whole, one process
 * tests at a time, and others wait while the lock's holder makes progress.
 *
 * Promise: Result files stay whole with several writers, one process tests at a time, waits end.
 *
 * Threads: those that write, and one that holds the lock. Locks: the folder's lock.
 * Always: a wait ends, whatever the other process does.
 */
#include "results.h"

static void *save_and_load(void *argument)
{
    (void)argument;
    for (int i = 0; i < 300; i++) {
        hd_peer_info info = info_now(), got;
        info.driver_code = i;
        hdi_result_save(folder, &key, &info);
        /* always one of the saved results, whole */
        if (!hdi_result_load(folder, &key, &got) || got.verdict != HD_PEER_CORRUPT || got.driver_code >= 300 ||
            strcmp(got.reason, info.reason) != 0) {
            return "a result was not whole";
        }
    }
    return NULL;
}

static void many_may_write_at_once(void **state)
{
    (void)state;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, save_and_load, NULL), 0);
    }
    for (int i = 0; i < 4; i++) {
        void *complaint;
        pthread_join(threads[i], &complaint);
        assert_null(complaint);
    }
    assert_int_equal(count_files(), 1);
}

static int lock_now(void)
{
    int fd = hdi_results_lock(folder, 0, NULL, NULL, NULL);
    hdi_results_unlock(fd);
    return fd;
}

/* A lock file that others could lock, or that has another name, does not count: nobody waits for
 * it, and no file's time changes. */
static void locks_of_others_are_none(void **state)
{
    (void)state;
    char lock[200], other[200];
    struct stat before, after;
    snprintf(lock, sizeof lock, "%s/lock", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    assert_true(lock_now() >= 0);
    assert_int_equal(chmod(lock, 0666), 0);
    assert_int_equal(lock_now(), -1);
    assert_int_equal(chmod(lock, 0600), 0);
    assert_true(lock_now() >= 0);

    const struct timespec long_ago[2] = {{1, 0}, {1, 0}};
    assert_int_equal(link(lock, other), 0);
    assert_int_equal(utimensat(AT_FDCWD, other, long_ago, 0), 0);
    assert_int_equal(stat(other, &before), 0);
    assert_int_equal(lock_now(), -1);
    assert_int_equal(stat(other, &after), 0);
    assert_int_equal(after.st_mtim.tv_sec, before.st_mtim.tv_sec);
    assert_int_equal(unlink(other), 0);
    assert_true(lock_now() >= 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(lock, 65534, 65534), 0);
        assert_int_equal(lock_now(), -1);
    }
}

static void one_tests_at_a_time(void **state)
{
    (void)state;
    int a = hdi_results_lock(folder, 0, NULL, NULL, NULL);
    assert_true(a >= 0);
    assert_true(fcntl(a, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(hdi_results_lock(folder, 30000000, NULL, NULL, NULL), -1);
    /* a child with a copy of the descriptor does not keep the lock */
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        pause();
        _exit(0);
    }
    hdi_results_unlock(a);
    int b = hdi_results_lock(folder, 60000000000, NULL, NULL, NULL);
    assert_true(b >= 0);
    hdi_results_unlock(b);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* A thread that holds the lock, and reports progress repeatedly. */
static _Atomic int comings_on;
static _Atomic bool holding;

static void *hold(void *argument)
{
    int fd = hdi_results_lock(folder, 0, NULL, NULL, NULL);
    atomic_store(&holding, true);
    const int64_t sleeps = *(const int64_t *)argument;
    while (atomic_load(&holding)) {
        hdi_sleep_for(sleeps);
        hdi_results_extend(fd);
        atomic_fetch_add(&comings_on, 1);
    }
    hdi_results_unlock(fd);
    return NULL;
}

static int asked;

static bool not_before_the_third(void *context)
{
    (void)context;
    return ++asked == 3;
}

static bool never_enough(void *context)
{
    (void)context;
    asked++;
    return false;
}

/* A wait lasts while the holder reports progress, but not for ever. It ends with the awaited
 * result. */
static void who_comes_on_is_waited_for(void **state)
{
    (void)state;
    int64_t sleeps = 20000000;
    pthread_t holder;
    assert_int_equal(pthread_create(&holder, NULL, hold, &sleeps), 0);
    while (!atomic_load(&holding)) {
        hdi_sleep_for(1000000);
    }
    asked = 0;
    assert_int_equal(hdi_results_lock(folder, 60000000000, not_before_the_third, NULL, NULL), -1);
    assert_int_equal(asked, 3);
    /* it ends at its limit, although the holder continues */
    assert_int_equal(hdi_results_lock(folder, 100000000, never_enough, NULL, NULL), -1);
    atomic_store(&holding, false);
    assert_int_equal(pthread_join(holder, NULL), 0);
    /* the callback runs even if the lock is free, since the result may have arrived meanwhile */
    asked = 2;
    assert_int_equal(hdi_results_lock(folder, 0, not_before_the_third, NULL, NULL), -1);
    asked = 0;
    int fd = hdi_results_lock(folder, 0, never_enough, NULL, NULL);
    assert_true(fd >= 0 && asked == 1);
    hdi_results_unlock(fd);
    hdi_results_extend(-1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(many_may_write_at_once),
        TEST(locks_of_others_are_none),
        TEST(one_tests_at_a_time),
        TEST(who_comes_on_is_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
