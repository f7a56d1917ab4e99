/* test_pinned.c - pinned host memory on the fake driver: what comes back, and every failure undone. */
#include "support/check.h"

#include <sys/mman.h>
#include <unistd.h>
#include "fake_driver.h"
#include "memory/pinned.h"

static void gives_zeroed_pages(void **unused)
{
    (void)unused;
    fake_reset(0);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    hdi_pinned p;
    assert_ok(hdi_pinned_alloc(&fake_driver, fake_context, page + 1, &p));
    assert_int_equal(p.shm.bytes, 2 * page);
    assert_int_equal((uintptr_t)p.shm.base % page, 0);
    assert_int_not_equal(p.device, 0);
    assert_int_equal(fake.n_registered, 1);
    char *bytes = p.shm.base;
    for (size_t i = 0; i < 2 * page; i++) {
        assert_int_equal(bytes[i], 0);
        bytes[i] = 1;
    }
    assert_ok(hdi_pinned_release(&p, false));
    assert_ok(hdi_pinned_release(&p, false));
    assert_null(p.shm.base);
    assert_true(fake_is_clean());
    assert_int_equal(fake_depth(), 0);
}

static void refuses_bad_sizes(void **unused)
{
    (void)unused;
    fake_reset(0);
    hdi_pinned p = {.device = 7};
    assert_status(hdi_pinned_alloc(&fake_driver, fake_context, 0, &p), HD_ERROR_ARGUMENT);
    assert_status(hdi_pinned_alloc(&fake_driver, fake_context, SIZE_MAX, &p), HD_ERROR_HOST_MEMORY);
    assert_status(hdi_pinned_alloc(&fake_driver, fake_context, SIZE_MAX / 2, &p), HD_ERROR_HOST_MEMORY);
    assert_int_equal(p.device, 7);
    assert_true(fake_is_clean());
}

/* Number of open descriptors, to see that none is left. */
static int descriptors(void)
{
    int count = 0;
    for (int i = 0; i < 256; i++) {
        count += lseek(i, 0, SEEK_CUR) != -1;
    }
    return count;
}

static void failures_are_undone(void **unused)
{
    (void)unused;
    static char other;
    const hdcu_context mine = (hdcu_context)(void *)&other;
    for (int from_good = 0; from_good < 2; from_good++) {
        for (long n = 1;; n++) {
            fake_reset(0);
            fake_set_stack(mine);
            int before = descriptors();
            hdi_pinned p = {.device = 7};
            fake_fail(NULL, n, from_good != 0, n % 2 == 0 ? HDCU_ERROR_OUT_OF_MEMORY : HDCU_ERROR_UNKNOWN);
            hd_status status = hdi_pinned_alloc(&fake_driver, fake_context, 100, &p);
            bool hit = fake.failed != NULL;
            fake_fail(NULL, 0, false, 0);
            if (status == HD_OK) {
                assert_ok(hdi_pinned_release(&p, false));
            } else {
                assert_status(status, n % 2 == 0 ? HD_ERROR_HOST_MEMORY : HD_ERROR_DRIVER);
                assert_int_equal(p.device, 7);
                /* where the driver cannot even let go, it keeps its registration, and nothing else is left */
                assert_true(from_good || fake.n_registered == 0);
            }
            assert_int_equal(descriptors(), before);
            assert_true((from_good && hit) || fake_top() == mine);
            assert_int_equal(fake.misuses, 0);
            if (!hit) {
                assert_true(n > 4);
                break;
            }
        }
    }
}

/* Where the driver keeps its registration, the addresses must not be used for anything else. */
static void keeps_the_addresses_when_unpinning_fails(void **unused)
{
    (void)unused;
    for (int abandoned = 0; abandoned < 2; abandoned++) {
        fake_reset(0);
        hdi_pinned p;
        assert_ok(hdi_pinned_alloc(&fake_driver, fake_context, 1, &p));
        void *base = p.shm.base;
        size_t bytes = p.shm.bytes;
        if (abandoned) {
            fake_fail(NULL, 1, true, HDCU_ERROR_LAUNCH_FAILED);
            assert_ok(hdi_pinned_release(&p, true));
            assert_int_equal(fake.calls, 0);
        } else {
            fake_fail("cuMemHostUnregister", 1, true, HDCU_ERROR_LAUNCH_FAILED);
            assert_status(hdi_pinned_release(&p, false), HD_ERROR_DRIVER);
            assert_message_has("cuMemHostUnregister");
        }
        assert_null(p.shm.base);
        /* taken: a mapping that must not replace another is refused */
        void *there = mmap(base, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        assert_ptr_equal(there, MAP_FAILED);
        munmap(base, bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_zeroed_pages),
        cmocka_unit_test(refuses_bad_sizes),
        cmocka_unit_test(failures_are_undone),
        cmocka_unit_test(keeps_the_addresses_when_unpinning_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
