/* test_shm.c - shared memory: zeroed, shared through its descriptor, sealed, named, at an address,
 * buried, and failures.
 *
 * Promise: Shared memory starts zeroed, is the same by descriptor; failures leave nothing behind.
 * Threads: one. Locks: none.
 */
#include "support/check.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/shm.h"
#include "memory/share.h"

static void is_shared_and_sealed(void **unused)
{
    (void)unused;
    hdi_shm shm;
    assert_ok(hdi_shm_create("heddle-test", 1 << 20, &shm));
    assert_int_equal(shm.bytes, 1 << 20);
    char *base = shm.base;
    assert_int_equal(base[0], 0);
    assert_int_equal(base[shm.bytes - 1], 0);
    assert_true(fcntl(shm.descriptor, F_GETFD) & FD_CLOEXEC);

    char *again = mmap(NULL, shm.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shm.descriptor, 0);
    assert_true(again != MAP_FAILED);
    base[12345] = 42;
    assert_int_equal(again[12345], 42);
    munmap(again, shm.bytes);

    assert_int_equal(ftruncate(shm.descriptor, 4096), -1);
    assert_int_equal(ftruncate(shm.descriptor, 1 << 21), -1);
    assert_int_equal(fcntl(shm.descriptor, F_ADD_SEALS, F_SEAL_WRITE), -1);

    hdi_shm_release(&shm);
    assert_null(shm.base);
    hdi_shm_release(&shm);
}

static void shows_its_name(void **unused)
{
    (void)unused;
    hdi_shm shm;
    assert_ok(hdi_shm_create("heddle-named", 5000, &shm));
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    char line[512];
    int found = 0;
    while (fgets(line, sizeof line, maps) != NULL) {
        found += strstr(line, "memfd:heddle-named") != NULL;
    }
    fclose(maps);
    assert_int_equal(found, 1);
    hdi_shm_release(&shm);
}

static void failures_leave_nothing(void **unused)
{
    (void)unused;
    hdi_shm shm = {0};
    int next = dup(0);
    close(next);
    assert_status(hdi_shm_create("heddle-none", 0, &shm), HD_ERROR_SYSTEM);
    assert_message_has("heddle-none");
    assert_null(shm.base);
    int next_after = dup(0);
    close(next_after);
    assert_int_equal(next_after, next);
    hdi_shm_release(&shm);
}

/* The program's file size limit also applies to this memory. Exceeding it neither ends the program
 * nor leaves a signal pending. */
static void a_limit_on_files_is_a_failure(void **unused)
{
    (void)unused;
    hdi_shm shm = {0};
    struct rlimit before, limit;
    sigset_t pending, blocked;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 1 << 20;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_status(hdi_shm_create("heddle-limit", (1 << 20) + 1, &shm), HD_ERROR_SYSTEM);
    assert_message_has("ulimit -f");
    assert_null(shm.base);
    sigpending(&pending);
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    assert_int_equal(sigismember(&pending, SIGXFSZ), 0);
    assert_int_equal(sigismember(&blocked, SIGXFSZ), 0);
    assert_ok(hdi_shm_create("heddle-limit", 1 << 20, &shm));
    hdi_shm_release(&shm);

    /* a SIGXFSZ that was already pending stays pending */
    sigset_t it;
    sigemptyset(&it);
    sigaddset(&it, SIGXFSZ);
    sigprocmask(SIG_BLOCK, &it, &blocked);
    raise(SIGXFSZ);
    assert_status(hdi_shm_create("heddle-limit", (1 << 20) + 1, &shm), HD_ERROR_SYSTEM);
    sigpending(&pending);
    assert_int_equal(sigismember(&pending, SIGXFSZ), 1);
    assert_int_equal(sigwaitinfo(&it, NULL), SIGXFSZ);
    sigprocmask(SIG_SETMASK, &blocked, NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
}

static void maps_what_another_made(void **unused)
{
    (void)unused;
    hdi_shm made, mapped = {0};
    assert_ok(hdi_shm_create("heddle-test", 8192, &made));
    ((char *)made.base)[4097] = 7;
    assert_ok(hdi_shm_map(dup(made.descriptor), 8192, &mapped));
    assert_ptr_not_equal(mapped.base, made.base);
    assert_int_equal(((char *)mapped.base)[4097], 7);
    hdi_shm_release(&mapped);
    /* another size */
    assert_status(hdi_shm_map(dup(made.descriptor), 4096, &mapped), HD_ERROR_SYSTEM);
    hdi_shm_release(&made);
    int unsealed = memfd_create("unsealed", MFD_CLOEXEC);
    assert_int_equal(ftruncate(unsealed, 4096), 0);
    assert_status(hdi_shm_map(unsealed, 4096, &mapped), HD_ERROR_SYSTEM);
    assert_int_equal(close(unsealed), -1); /* hdi_shm_map closed it */
    assert_null(mapped.base);
}

/* True if anything is mapped in this range. */
static bool is_taken(void *address, size_t bytes)
{
    if (!hdi_shm_reserve(address, bytes)) {
        assert_int_equal(errno, EEXIST);
        return true;
    }
    assert_int_equal(munmap(address, bytes), 0);
    return false;
}

/* True if the address is readable. Asks the kernel, so that nothing faults. */
static bool is_readable(const void *address)
{
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    bool readable = write(pipes[1], address, 1) == 1;
    assert_true(readable || errno == EFAULT);
    close(pipes[0]);
    close(pipes[1]);
    return readable;
}

static void lies_in_a_reservation(void **unused)
{
    (void)unused;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *window = (char *)(uintptr_t)HDI_WINDOWS_AT; /* unused addresses */
    assert_true(hdi_shm_reserve(window, 8 * page));
    assert_false(hdi_shm_reserve(window + 2 * page, page));
    assert_int_equal(errno, EEXIST);
    assert_false(is_readable(window + 2 * page));

    hdi_shm a, b;
    assert_ok(hdi_shm_create_at("heddle-at", 2 * page, window + 2 * page, &a));
    assert_ok(hdi_shm_create_at("heddle-at", page, window + 4 * page, &b));
    assert_ptr_equal(a.base, window + 2 * page);
    memset(a.base, 1, a.bytes);
    assert_int_equal(*(char *)b.base, 0);
    assert_false(is_readable(window + page));
    assert_false(is_readable(window + 5 * page));

    hdi_shm_release(&a);
    assert_null(a.base);
    hdi_shm_release(&a);
    assert_false(is_readable(window + 2 * page));
    assert_true(is_taken(window + 2 * page, 2 * page));
    assert_ok(hdi_shm_create_at("heddle-again", 2 * page, window + 2 * page, &a));
    assert_int_equal(*(char *)a.base, 0); /* the memory is new */
    hdi_shm_release(&a);
    hdi_shm_release(&b);
    munmap(window, 8 * page);
    assert_false(is_taken(window, 8 * page));

    int next = dup(0);
    close(next);
    assert_status(hdi_shm_create_at("heddle-odd", page, window + 1, &a), HD_ERROR_SYSTEM);
    assert_status(hdi_shm_create_at("heddle-none", 0, window, &a), HD_ERROR_SYSTEM);
    assert_null(a.base);
    int next_after = dup(0);
    close(next_after);
    assert_int_equal(next_after, next);
}

static void buried_addresses_stay_taken(void **unused)
{
    (void)unused;
    hdi_shm shm;
    assert_ok(hdi_shm_create("heddle-buried", 8192, &shm));
    char *base = shm.base;
    hdi_shm_bury(&shm);
    assert_null(shm.base);
    hdi_shm_bury(&shm);
    assert_true(is_taken(base, 8192));
    assert_false(is_readable(base));
    munmap(base, 8192);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_shared_and_sealed),        cmocka_unit_test(shows_its_name),
        cmocka_unit_test(failures_leave_nothing),      cmocka_unit_test(a_limit_on_files_is_a_failure),
        cmocka_unit_test(maps_what_another_made),      cmocka_unit_test(lies_in_a_reservation),
        cmocka_unit_test(buried_addresses_stay_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
