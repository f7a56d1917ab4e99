/* test_pinned.c - pinned host memory through one local port to the fake driver: giving it back,
 * undoing failures, lost devices. Memory that every port registers: test_pinned_window.c.
 *
 * Promise: Pinned memory comes back when given back, and every failure is undone.
 * Threads: one. Locks: none.
 */
#include "support/check.h"

#include <sys/mman.h>
#include <unistd.h>
#include "fake_driver.h"
#include "memory/pinned.h"

enum { DEVICES = 3 };
static hdi_port *ports[DEVICES]; /* NULL: lost */
static hdi_port *port;           /* all ports lead to the same driver, so one is enough */

static hdi_port *port_of(void *context, int device)
{
    assert_ptr_equal(context, ports);
    return ports[device];
}

static hdi_pinned_pool *make(void)
{
    const hdi_local_port_config config = {.driver = &fake_driver, .device = 1, .context = fake_context};
    port = hdi_local_port_create(&config);
    assert_non_null(port);
    for (int i = 0; i < DEVICES; i++) {
        ports[i] = port;
    }
    fake_reset(0);
    const hdi_pinned_config pool_config = {.n_devices = DEVICES, .port = port_of, .context = ports};
    hdi_pinned_pool *pool = NULL;
    assert_ok(hdi_pinned_pool_create(&pool_config, &pool));
    return pool;
}

static void end(hdi_pinned_pool *pool)
{
    hdi_pinned_pool_destroy(pool);
    hdi_local_port_destroy(port);
}

static void gives_zeroed_pages(void **unused)
{
    (void)unused;
    hdi_pinned_pool *pool = make();
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    hdi_pinned p;
    assert_ok(hdi_pinned_alloc(pool, page + 1, &p));
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
    assert_int_equal(fake.not_registered, 0);
    assert_int_equal(fake_depth(), 0);
    uint64_t at = 1, bytes_there = 1;
    hdi_pinned_pool_window(pool, &at, &bytes_there);
    assert_int_equal(at + bytes_there, 0);
    assert_ok(hdi_pinned_repin(pool, 0)); /* nothing to do */
    end(pool);
    hdi_pinned_pool_destroy(NULL);
}

/* With `populate`, all pages exist before a driver gets them, in one part or several. */
static void gives_out_pages_ahead(void **unused)
{
    (void)unused;
    hdi_pinned_pool *plain = make();
    hdi_pinned_pool_destroy(plain);
    const hdi_pinned_config config = {.n_devices = DEVICES, .port = port_of, .context = ports, .populate = true};
    hdi_pinned_pool *pool = NULL;
    assert_ok(hdi_pinned_pool_create(&config, &pool));
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t sizes[] = {1, 5 * page, (size_t)33 << 20};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        hdi_pinned p;
        assert_ok(hdi_pinned_alloc(pool, sizes[s], &p));
        size_t pages = p.shm.bytes / page, there = 0;
        unsigned char *resident = malloc(pages);
        assert_non_null(resident);
        assert_int_equal(mincore(p.shm.base, p.shm.bytes, resident), 0);
        for (size_t i = 0; i < pages; i++) {
            there += resident[i] & 1;
        }
        free(resident);
        void *probe = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        bool known = madvise(probe, page, 23 /* MADV_POPULATE_WRITE */) == 0;
        munmap(probe, page);
        assert_int_equal(there, known ? pages : there);
        const char *bytes = p.shm.base;
        assert_true(bytes[0] == 0 && bytes[sizes[s] - 1] == 0);
        assert_ok(hdi_pinned_release(&p, false));
    }
    assert_true(fake_is_clean());
    end(pool);
}

static void refuses_bad_sizes(void **unused)
{
    (void)unused;
    hdi_pinned_pool *pool = make();
    hdi_pinned p = {.device = 7};
    assert_status(hdi_pinned_alloc(pool, 0, &p), HD_ERROR_ARGUMENT);
    assert_status(hdi_pinned_alloc(pool, SIZE_MAX, &p), HD_ERROR_HOST_MEMORY);
    assert_status(hdi_pinned_alloc(pool, SIZE_MAX / 2, &p), HD_ERROR_HOST_MEMORY);
    assert_int_equal(p.device, 7);
    assert_true(fake_is_clean());
    end(pool);
    const hdi_pinned_config none = {.n_devices = 0}, many = {.n_devices = HDI_PINNED_DEVICES_MAX + 1};
    assert_status(hdi_pinned_pool_create(&none, &pool), HD_ERROR_ARGUMENT);
    assert_status(hdi_pinned_pool_create(&many, &pool), HD_ERROR_ARGUMENT);
}

/* Returns the number of open descriptors, which shows leaks. */
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
            hdi_pinned_pool *pool = make();
            fake_set_stack(mine);
            int before = descriptors();
            hdi_pinned p = {.device = 7};
            fake_fail(NULL, n, from_good != 0, n % 2 == 0 ? HDCU_ERROR_OUT_OF_MEMORY : HDCU_ERROR_UNKNOWN);
            hd_status status = hdi_pinned_alloc(pool, 100, &p);
            bool hit = fake.failed != NULL;
            fake_fail(NULL, 0, false, 0);
            if (status == HD_OK) {
                assert_ok(hdi_pinned_release(&p, false));
            } else {
                assert_status(status, n % 2 == 0 ? HD_ERROR_HOST_MEMORY : HD_ERROR_DRIVER);
                assert_int_equal(p.device, 7);
                /* if the driver cannot unregister either, the registration stays, and nothing
                 * else */
                assert_true(from_good || fake.n_registered == 0);
            }
            assert_int_equal(descriptors(), before);
            assert_true((from_good && hit) || fake_top() == mine);
            assert_int_equal(fake.misuses, 0);
            end(pool);
            if (!hit) {
                assert_true(n > 4);
                break;
            }
        }
    }
}

/* If the driver keeps its registration, the addresses must not be reused. */
static void keeps_the_addresses_when_unpinning_fails(void **unused)
{
    (void)unused;
    for (int abandoned = 0; abandoned < 2; abandoned++) {
        hdi_pinned_pool *pool = make();
        hdi_pinned p;
        assert_ok(hdi_pinned_alloc(pool, 1, &p));
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
        /* the addresses are taken: MAP_FIXED_NOREPLACE fails */
        void *there = mmap(base, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        assert_ptr_equal(there, MAP_FAILED);
        munmap(base, bytes);
        end(pool);
    }
}

/* A local port registers memory for this process, so the registration outlives the device. Another
 * device can end it. */
static void outlives_the_device_that_pinned_it(void **unused)
{
    (void)unused;
    hdi_pinned_pool *pool = make();
    hdi_pinned p;
    ports[0] = NULL;
    assert_ok(hdi_pinned_alloc(pool, 1, &p));
    assert_int_equal(fake.n_registered, 1);
    ports[1] = NULL;
    assert_ok(hdi_pinned_release(&p, false));
    assert_int_equal(fake.n_registered, 0);

    /* no device is left to unregister it: the driver keeps the registration, and the addresses stay
     * taken */
    assert_ok(hdi_pinned_alloc(pool, 1, &p));
    ports[2] = NULL;
    void *base = p.shm.base;
    size_t bytes = p.shm.bytes;
    assert_ok(hdi_pinned_release(&p, false));
    assert_int_equal(fake.n_registered, 1);
    assert_false(hdi_shm_reserve(base, bytes));
    munmap(base, bytes);
    assert_status(hdi_pinned_alloc(pool, 1, &p), HD_ERROR_DEVICE_LOST);
    assert_message_has("all devices are lost");

    /* skips a device that reports its loss */
    ports[1] = ports[2] = port;
    fake_fail("cuMemHostRegister", 1, false, HDCU_ERROR_LAUNCH_FAILED);
    assert_ok(hdi_pinned_alloc(pool, 1, &p));
    assert_ok(hdi_pinned_release(&p, false));
    fake_fail("cuMemHostRegister", 1, true, HDCU_ERROR_LAUNCH_FAILED);
    assert_status(hdi_pinned_alloc(pool, 1, &p), HD_ERROR_DEVICE_LOST);
    assert_message_has("cuMemHostRegister");
    end(pool);
}

static void what_is_left_is_given_back(void **unused)
{
    (void)unused;
    hdi_pinned_pool *pool = make();
    hdi_pinned p[2];
    int before = descriptors();
    assert_ok(hdi_pinned_alloc(pool, 1, &p[0]));
    assert_ok(hdi_pinned_alloc(pool, 1, &p[1]));
    end(pool);
    assert_int_equal(descriptors(), before);
    for (int i = 0; i < 2; i++) {
        assert_false(hdi_shm_reserve(p[i].shm.base, p[i].shm.bytes));
        munmap(p[i].shm.base, p[i].shm.bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_zeroed_pages),
        cmocka_unit_test(gives_out_pages_ahead),
        cmocka_unit_test(refuses_bad_sizes),
        cmocka_unit_test(failures_are_undone),
        cmocka_unit_test(keeps_the_addresses_when_unpinning_fails),
        cmocka_unit_test(outlives_the_device_that_pinned_it),
        cmocka_unit_test(what_is_left_is_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
