/* test_shm.c - shared memory: zero, shared through the descriptor, sealed, named, and failures. */
#include "support/check.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/shm.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_shared_and_sealed),
        cmocka_unit_test(shows_its_name),
        cmocka_unit_test(failures_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
