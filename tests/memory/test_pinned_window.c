/* test_pinned_window.c - pinned memory that every device's port registers at the same address: the
 * window, failures of each port, lost and restarted devices. The ports are fakes that keep records.
 *
 * Promise: Pinned memory has one address in every device's port, and a failing port undoes all.
 * Threads: one; several that pin and unpin in one case.
 */
#include "support/check.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include "memory/share.h"
#include "memory/pinned.h"

enum { DEVICES = 3, PINS = 64 };

/* A device behind its own port. */
typedef struct device {
    hdi_port port; /* first */
    bool lost;
    void *pinned[PINS];
    int n_pinned;
    uint64_t skew; /* offset of the addresses that it reports */
    /* `fail_count` requests fail from number fail_from on; 1 is the next */
    int requests, fail_from, fail_count, fail_code;
    bool keeps; /* a failed pin leaves the memory registered */
} device;

static device devices[DEVICES];
static size_t page;

static bool is_to_fail(device *d)
{
    d->requests++;
    return d->fail_from != 0 && d->requests >= d->fail_from && d->requests < d->fail_from + d->fail_count;
}

static void **find(device *d, const void *base)
{
    for (int i = 0; i < PINS; i++) {
        if (d->pinned[i] == base) {
            return &d->pinned[i];
        }
    }
    return NULL;
}

static hdi_answer pin(hdi_port *port, void *base, uint64_t bytes, int descriptor, uint64_t *address)
{
    device *d = (device *)(void *)port;
    struct stat facts;
    assert_false(d->lost);
    assert_int_equal(fstat(descriptor, &facts), 0);
    assert_int_equal(facts.st_size, bytes);
    assert_int_equal((uintptr_t)base % page, 0);
    bool fails = is_to_fail(d);
    if (find(d, base)) {
        return (hdi_answer){HDCU_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "cuMemHostRegister"};
    }
    if (!fails || d->keeps) {
        *find(d, NULL) = base;
        d->n_pinned++;
        *address = (uintptr_t)base + d->skew;
    }
    return (hdi_answer){fails ? d->fail_code : 0, "cuMemHostRegister"};
}

static hdi_answer unpin(hdi_port *port, void *base, uint64_t bytes)
{
    (void)bytes;
    device *d = (device *)(void *)port;
    assert_false(d->lost);
    if (is_to_fail(d)) {
        return (hdi_answer){d->fail_code, "cuMemHostUnregister"};
    }
    void **entry = find(d, base);
    if (!entry) {
        return (hdi_answer){HDCU_ERROR_HOST_MEMORY_NOT_REGISTERED, "cuMemHostUnregister"};
    }
    unsigned char resident;
    assert_int_equal(mincore(base, page, &resident), 0); /* the memory is still mapped */
    *entry = NULL;
    d->n_pinned--;
    return (hdi_answer){0, ""};
}

static const hdi_port_calls calls = {.pin = pin, .unpin = unpin};

static hdi_port *port_of(void *context, int i)
{
    (void)context;
    return devices[i].lost ? NULL : &devices[i].port;
}

/* From request number `at` on (1 is the next one), `count` requests fail. */
static void fail_at(int i, int at, int count, int code)
{
    devices[i].requests = 0;
    devices[i].fail_from = at;
    devices[i].fail_count = count;
    devices[i].fail_code = code;
}

/* Starts a fresh process, which has registered nothing. */
static void begin_afresh(int i)
{
    devices[i] = (device){.port = {&calls}};
}

static const hdi_pinned_config usual = {.n_devices = DEVICES, .port = port_of, .everywhere = true};

static hdi_pinned_pool *make_from(const hdi_pinned_config *config)
{
    page = (size_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < DEVICES; i++) {
        begin_afresh(i);
    }
    hdi_pinned_pool *pool = NULL;
    assert_ok(hdi_pinned_pool_create(config, &pool));
    return pool;
}

static hdi_pinned_pool *make(void)
{
    return make_from(&usual);
}

static void *window_of(const hdi_pinned_pool *pool, uint64_t *bytes)
{
    uint64_t at;
    hdi_pinned_pool_window(pool, &at, bytes);
    return (void *)(uintptr_t)at;
}

/* Ends the pool, and checks that its window is gone. */
static void end(hdi_pinned_pool *pool)
{
    uint64_t bytes;
    void *window = window_of(pool, &bytes);
    assert_false(hdi_shm_reserve(window, bytes));
    hdi_pinned_pool_destroy(pool);
    assert_true(hdi_shm_reserve(window, bytes));
    munmap(window, bytes);
}

static int all_pinned(void)
{
    int n = 0;
    for (int i = 0; i < DEVICES; i++) {
        n += devices[i].n_pinned;
    }
    return n;
}

static int descriptors(void)
{
    int count = 0;
    for (int i = 0; i < 256; i++) {
        count += lseek(i, 0, SEEK_CUR) != -1;
    }
    return count;
}

static void lies_in_the_window(void **unused)
{
    (void)unused;
    hdi_pinned_pool *pool = make();
    uint64_t bytes;
    char *window = window_of(pool, &bytes);
    assert_int_equal(((uintptr_t)window - HDI_WINDOWS_AT) % HDI_WINDOW_BYTES, 0);
    assert_int_equal(bytes, HDI_WINDOW_BYTES);
    hdi_pinned a, b, c;
    assert_ok(hdi_pinned_alloc(pool, 1, &a));
    assert_ok(hdi_pinned_alloc(pool, 3 * page - 1, &b));
    assert_true((char *)a.shm.base >= window && (char *)b.shm.base + b.shm.bytes <= window + bytes);
    assert_int_equal(b.shm.bytes, 3 * page);
    assert_int_equal(b.device, (uintptr_t)b.shm.base);
    for (int i = 0; i < DEVICES; i++) {
        assert_int_equal(devices[i].n_pinned, 2);
    }
    memset(a.shm.base, 2, a.shm.bytes);
    memset(b.shm.base, 3, b.shm.bytes);
    char *at = b.shm.base;
    assert_ok(hdi_pinned_release(&b, false));
    assert_ok(hdi_pinned_release(&b, false));
    assert_int_equal(all_pinned(), DEVICES);
    assert_false(hdi_shm_reserve(at, page)); /* still reserved */
    assert_ok(hdi_pinned_alloc(pool, 2 * page, &c));
    assert_ptr_equal(c.shm.base, at); /* with new bytes */
    assert_int_equal(*at, 0);
    assert_int_equal(((char *)a.shm.base)[0], 2);
    assert_ok(hdi_pinned_release(&a, false));
    assert_ok(hdi_pinned_release(&c, false));
    assert_int_equal(all_pinned(), 0);
    end(pool);
}

static void pools_have_windows_of_their_own(void **unused)
{
    (void)unused;
    hdi_pinned_pool *first = make(), *second = make(), *third = NULL;
    uint64_t bytes;
    char *a = window_of(first, &bytes), *b = window_of(second, &bytes);
    assert_true(a + bytes <= b || b + bytes <= a);

    hdi_pinned_config config = usual;
    config.window_at = (uintptr_t)b;
    config.window_bytes = 16 * page;
    assert_status(hdi_pinned_pool_create(&config, &third), HD_ERROR_SYSTEM);
    assert_message_has("same in all processes");
    hdi_pinned_pool_destroy(second);
    assert_ok(hdi_pinned_pool_create(&config, &third));
    assert_ptr_equal(window_of(third, &bytes), b);
    assert_int_equal(bytes, 16 * page);
    hdi_pinned p, q;
    assert_ok(hdi_pinned_alloc(third, 10 * page, &p));
    assert_status(hdi_pinned_alloc(third, 7 * page, &q), HD_ERROR_HOST_MEMORY);
    assert_message_has("of the");
    assert_ok(hdi_pinned_alloc(third, 6 * page, &q));
    assert_ok(hdi_pinned_release(&p, false));
    assert_ok(hdi_pinned_release(&q, false));
    assert_ok(hdi_pinned_alloc(third, 16 * page, &p));
    assert_ok(hdi_pinned_release(&p, false));
    end(third);
    end(first);
}

/* Lets this process use `more` bytes of addresses in addition to its present ones; 0: no limit. */
static void limit_addresses(uint64_t more)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu", &pages), 1);
    fclose(file);
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_AS, &limit), 0);
    limit.rlim_cur = more == 0 ? limit.rlim_max : pages * page + more;
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
}

static void takes_a_smaller_window_where_addresses_are_few(void **unused)
{
    (void)unused;
    uint64_t bytes;
    page = (size_t)sysconf(_SC_PAGESIZE);
    hdi_pinned_pool *pool = NULL;
    limit_addresses((uint64_t)20 << 30);
    hd_status status = hdi_pinned_pool_create(&usual, &pool);
    limit_addresses(0);
    assert_ok(status);
    window_of(pool, &bytes);
    assert_int_equal(bytes, HDI_WINDOW_BYTES < (uint64_t)16 << 30 ? HDI_WINDOW_BYTES : (uint64_t)16 << 30);
    hdi_pinned_pool_destroy(pool);
    limit_addresses((uint64_t)2 << 30);
    status = hdi_pinned_pool_create(&usual, &pool);
    limit_addresses(0);
    assert_status(status, HD_ERROR_SYSTEM);
    assert_message_has("ulimit -v");
}

static void lost_devices_are_passed_over(void **unused)
{
    (void)unused;
    hdi_pinned_pool *pool = make();
    hdi_pinned p, q;
    assert_ok(hdi_pinned_alloc(pool, 1, &q));
    devices[1].lost = true;
    fail_at(2, 1, 1, HDI_GONE_SIGNAL - 9); /* the device is lost, but nobody noticed */
    assert_ok(hdi_pinned_alloc(pool, 1, &p));
    assert_int_equal(devices[0].n_pinned, 2);
    char *at = p.shm.base;
    assert_ok(hdi_pinned_release(&p, false));
    assert_ok(hdi_pinned_alloc(pool, 1, &p));
    assert_ptr_equal(p.shm.base, at); /* the registrations of a process end with it */
    assert_int_equal(devices[2].requests, 1);
    assert_ok(hdi_pinned_release(&q, false));
    assert_int_equal(devices[0].n_pinned, 1);
    assert_int_equal(devices[2].requests, 1);

    begin_afresh(2);
    assert_ok(hdi_pinned_repin(pool, 2));
    assert_int_equal(devices[2].n_pinned, 1);
    fail_at(2, 1, 1, HDCU_ERROR_LAUNCH_FAILED); /* fails at unpinning */
    assert_ok(hdi_pinned_release(&p, false));
    assert_int_equal(devices[0].n_pinned, 0);

    fail_at(0, 1, 9, HDCU_ERROR_ILLEGAL_ADDRESS);
    p.device = 7;
    assert_status(hdi_pinned_alloc(pool, 1, &p), HD_ERROR_DEVICE_LOST);
    assert_message_has("cuMemHostRegister on device 0");
    assert_int_equal(p.device, 7);
    assert_status(hdi_pinned_alloc(pool, 1, &p), HD_ERROR_DEVICE_LOST);
    assert_message_has("all devices are lost");
    end(pool);
}

static void other_addresses_are_refused(void **unused)
{
    (void)unused;
    hdi_pinned_pool *pool = make();
    hdi_pinned p = {.device = 7};
    devices[1].skew = 4096;
    assert_status(hdi_pinned_alloc(pool, 1, &p), HD_ERROR_UNSUPPORTED);
    assert_message_has("device 1 has memory of address 0x");
    assert_int_equal(p.device, 7);
    assert_int_equal(all_pinned(), 0);
    devices[1].skew = 0;
    assert_ok(hdi_pinned_alloc(pool, 1, &p));
    devices[1].lost = true;
    assert_ok(hdi_pinned_release(&p, false));
    begin_afresh(1);
    end(pool);
}

/* Allocates and releases memory; requests of one device fail from number `at` on. */
static void try_failure(int who, int at, int count, bool keeps)
{
    hdi_pinned_pool *pool = make();
    int before = descriptors();
    hdi_pinned p = {.device = 7}, q;
    devices[who].keeps = keeps;
    fail_at(who, at, count, at % 2 ? HDCU_ERROR_UNKNOWN : HDCU_ERROR_OUT_OF_MEMORY);
    /* memory that a failed request left registered can be unregistered and registered again */
    bool repaired = at == 1 && keeps && count == 1;
    void *base = NULL;
    if (at == 1 && !repaired) {
        assert_status(hdi_pinned_alloc(pool, 1, &p), HD_ERROR_DRIVER);
        assert_message_has("cuMemHostRegister");
        assert_int_equal(p.device, 7);
    } else {
        assert_ok(hdi_pinned_alloc(pool, 1, &p));
        base = p.shm.base;
        assert_int_equal(hdi_pinned_release(&p, false), at == 2 ? HD_ERROR_DRIVER : HD_OK);
        assert_null(p.shm.base);
    }
    fail_at(who, 0, 0, 0);
    int left = all_pinned();
    assert_int_equal(left, devices[who].n_pinned);
    assert_int_equal(left, (keeps && at == 1 && count > 1) || at == 2);

    /* new memory never lies where something is registered, or it would be registered twice */
    assert_ok(hdi_pinned_alloc(pool, 1, &q));
    assert_int_equal(devices[who].n_pinned, left + 1);
    assert_true(left == 0 || q.shm.base != base);
    assert_ok(hdi_pinned_release(&q, false));
    assert_int_equal(descriptors(), before);
    end(pool);
}

static void any_request_may_fail(void **unused)
{
    (void)unused;
    for (int who = 0; who < DEVICES; who++) {
        for (int at = 1; at <= 3; at++) {
            try_failure(who, at, 1, false);
            try_failure(who, at, 1, true);
            try_failure(who, at, 99, false);
            try_failure(who, at, 99, true);
        }
    }
}

static void abandoned_memory_keeps_its_addresses(void **unused)
{
    (void)unused;
    hdi_pinned_pool *pool = make();
    hdi_pinned p, q;
    assert_ok(hdi_pinned_alloc(pool, 1, &p));
    void *base = p.shm.base;
    for (int i = 0; i < DEVICES; i++) {
        fail_at(i, 1, 1, HDCU_ERROR_UNKNOWN);
    }
    assert_ok(hdi_pinned_release(&p, true));
    for (int i = 0; i < DEVICES; i++) {
        assert_int_equal(devices[i].requests, 0);
        fail_at(i, 0, 0, 0);
    }
    assert_ok(hdi_pinned_alloc(pool, 1, &q));
    assert_ptr_not_equal(q.shm.base, base);
    assert_ok(hdi_pinned_release(&q, false));
    end(pool);
}

static void a_restarted_device_gets_everything_again(void **unused)
{
    (void)unused;
    hdi_pinned_pool *pool = make();
    hdi_pinned p[4];
    assert_ok(hdi_pinned_alloc(pool, 1, &p[0]));
    assert_ok(hdi_pinned_alloc(pool, 1, &p[1]));
    devices[1].lost = true;
    assert_ok(hdi_pinned_alloc(pool, 1, &p[2]));
    begin_afresh(1);
    assert_ok(hdi_pinned_alloc(pool, 1, &p[3])); /* is pinned before the rest */
    assert_int_equal(devices[1].n_pinned, 1);
    assert_ok(hdi_pinned_repin(pool, 1));
    for (int i = 0; i < 4; i++) {
        assert_non_null(find(&devices[1], p[i].shm.base));
    }
    assert_int_equal(devices[0].n_pinned, 4);

    /* released between loss and restart, and between restart and repin */
    devices[2].lost = true;
    assert_ok(hdi_pinned_release(&p[0], false));
    begin_afresh(2);
    assert_ok(hdi_pinned_release(&p[1], false));
    assert_int_equal(devices[0].n_pinned, 2);
    assert_ok(hdi_pinned_repin(pool, 2));
    assert_int_equal(devices[2].n_pinned, 2);

    devices[1].lost = true;
    assert_status(hdi_pinned_repin(pool, 1), HD_ERROR_DEVICE_LOST);
    assert_message_has("device 1 is lost");

    /* all or nothing */
    for (int at = 1; at <= 4; at++) {
        begin_afresh(2);
        fail_at(2, at, 1, at < 3 ? HDCU_ERROR_UNKNOWN : HDI_GONE_CLOSED);
        hd_status status = hdi_pinned_repin(pool, 2);
        assert_int_equal(status, at < 3 ? HD_ERROR_DRIVER : HD_OK);
        assert_int_equal(devices[2].n_pinned, at < 3 ? 0 : 2);
    }
    begin_afresh(2);
    fail_at(2, 2, 9, HDI_GONE_UNANSWERED);
    assert_status(hdi_pinned_repin(pool, 2), HD_ERROR_DEVICE_LOST);
    assert_message_has("did not answer");
    begin_afresh(2);
    devices[2].skew = 1 << 20;
    assert_status(hdi_pinned_repin(pool, 2), HD_ERROR_UNSUPPORTED);
    assert_int_equal(devices[2].n_pinned, 0);
    devices[2].skew = 0;
    assert_ok(hdi_pinned_repin(pool, 2));
    begin_afresh(1);
    for (int i = 2; i < 4; i++) {
        assert_ok(hdi_pinned_release(&p[i], false));
    }
    assert_int_equal(all_pinned(), 0);
    end(pool);
}

/* ---- threads ---- */

enum { THREADS = 3, ROUNDS = 400 };

static void *pin_and_unpin(void *argument)
{
    hdi_pinned_pool *pool = argument;
    hdi_pinned p[3] = {{.device = 0}};
    intptr_t errors = 0;
    for (int i = 0; i < ROUNDS; i++) {
        hdi_pinned *one = &p[i % 3];
        errors += hdi_pinned_release(one, false) != HD_OK;
        errors += hdi_pinned_alloc(pool, page * (size_t)(1 + i % 7), one) != HD_OK;
        errors += one->shm.base == NULL || *(char *)one->shm.base != 0;
        if (one->shm.base != NULL) {
            memset(one->shm.base, 1, one->shm.bytes);
        }
    }
    for (int i = 0; i < 3; i++) {
        errors += hdi_pinned_release(&p[i], false) != HD_OK;
    }
    return (void *)errors;
}

static void threads_share_it(void **unused)
{
    (void)unused;
    hdi_pinned_pool *pool = make();
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, pin_and_unpin, pool), 0);
    }
    for (int i = 0; i < 100; i++) {
        assert_ok(hdi_pinned_repin(pool, i % DEVICES));
    }
    for (int i = 0; i < THREADS; i++) {
        void *errors;
        pthread_join(threads[i], &errors);
        assert_null(errors);
    }
    assert_int_equal(all_pinned(), 0);
    end(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lies_in_the_window),
        cmocka_unit_test(pools_have_windows_of_their_own),
        cmocka_unit_test(takes_a_smaller_window_where_addresses_are_few),
        cmocka_unit_test(lost_devices_are_passed_over),
        cmocka_unit_test(other_addresses_are_refused),
        cmocka_unit_test(any_request_may_fail),
        cmocka_unit_test(abandoned_memory_keeps_its_addresses),
        cmocka_unit_test(a_restarted_device_gets_everything_again),
        cmocka_unit_test(threads_share_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
