/* test_peer.c - verified peer access: pairs that are usable, and faulty pairs that Heddle avoids.
 *
 * Promise: Devices use each other's memory only after a test showed that the bytes arrive.
 *
 * Threads: the main one.
 * Locks: none.
 */
#include "peers.h"

/* ---- all is well ---- */

static void every_pair_gets_a_verdict(void **state)
{
    (void)state;
    static const char *const peers[] = {"all", "none", "ring"};
    for (int p = 0; p < 3; p++) {
        hd_runtime *runtime = conf_open_with("host_peers=%s", peers[p]);
        CONF_NEED_DEVICES(runtime, 2);
        check_all(runtime, 0, &first);
        check_all(runtime, 0, &second); /* known by now */
        CONF_OK(hd_peers_check(runtime, 0, NULL, NULL));
        int n = hd_device_count(runtime);
        for (int i = 0; i < n; i++) {
            for (int j = 0; j < n; j++) {
                hd_peer_info info = ask(runtime, i, j);
                if (i == j) {
                    CONF_TRUE(info.verdict == HD_PEER_USABLE && info.atomics && !info.remembered);
                    continue;
                }
                const hd_peer_info *a = &first.of[i][j];
                CONF_EQUAL(a->verdict, second.of[i][j].verdict);
                CONF_EQUAL(a->verdict, info.verdict);
                CONF_TRUE(strcmp(a->reason, info.reason) == 0);
                CONF_TRUE(a->direct_bytes_per_s == info.direct_bytes_per_s);
                if (!conf_reaches(runtime, i, j)) {
                    CONF_EQUAL(info.verdict, HD_PEER_REFUSED);
                } else if (conf_is_host(runtime)) {
                    CONF_TRUE(is_good(info.verdict));
                    CONF_TRUE(info.atomics && info.direct_bytes_per_s > 0 && info.staged_bytes_per_s > 0);
                    kernels_are_right(runtime, i, j);
                }
                if (i < j) {
                    copies_are_right(runtime, i, j);
                }
            }
        }
        conf_close(runtime);
        if (conf_on_gpus) {
            break; /* host_peers means nothing there */
        }
    }
}

/* Numbers in the runtime are not those of the driver. */
static void devices_may_be_chosen(void **state)
{
    (void)state;
    if (!on_host()) {
        skip();
    }
    hd_runtime *runtime = conf_open_with("host_devices=4 devices=3:1 host_corrupt=3>1 cache=%s/cache", folder);
    hd_peer_info info = ask(runtime, 0, 1);
    CONF_EQUAL(info.verdict, HD_PEER_CORRUPT);
    CONF_TRUE(strstr(info.reason, "by device 0 into memory of device 1") != NULL);
    expect_good(runtime, 1, 0);
    conf_close(runtime);
    /* remembered under other numbers, and reported with them */
    runtime = conf_open_with("host_devices=4 devices=1:3 host_corrupt=3>1 cache=%s/cache", folder);
    info = ask(runtime, 1, 0);
    CONF_EQUAL(info.verdict, HD_PEER_CORRUPT);
    CONF_TRUE(info.remembered);
    CONF_TRUE(strstr(info.reason, "by device 1 into memory of device 0") != NULL);
    conf_close(runtime);
}

/* A test of the wrong devices shows nothing about the intended ones: the test's process may number
 * devices differently. */
static void devices_are_known_by_name(void **state)
{
    (void)state;
    if (!on_host()) {
        skip();
    }
    make_script();
    /* wrong: for the test, the device that uses the memory is the first */
    write_text("extra", "devices=0:1");
    hd_runtime *runtime = open_with_script("host_devices=2 host_corrupt=0>1");
    hd_peer_info info = ask(runtime, 1, 0);
    CONF_EQUAL(info.verdict, HD_PEER_INCONCLUSIVE);
    CONF_TRUE(strstr(info.reason, "is another one here") != NULL);
    remove_file("extra");
    expect_good(runtime, 1, 0);
    expect(runtime, 0, 1, HD_PEER_CORRUPT);
    conf_close(runtime);
}

static void bad_arguments_are_refused(void **state)
{
    (void)state;
    hd_runtime *runtime = conf_open(NULL);
    int n = hd_device_count(runtime);
    hd_peer_info info = {.size = sizeof info, .verdict = HD_PEER_SLOW};
    CONF_FAILS(hd_peer_check(runtime, 0, 0, NULL), HD_ERROR_ARGUMENT);
    info.size--;
    CONF_FAILS(hd_peer_check(runtime, 0, 0, &info), HD_ERROR_ARGUMENT);
    info.size++;
    CONF_FAILS(hd_peer_check(runtime, -1, 0, &info), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_peer_check(runtime, 0, -1, &info), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_peer_check(runtime, n, 0, &info), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_peer_check(runtime, 0, n, &info), HD_ERROR_ARGUMENT);
    CONF_FAILS(hd_peer_check(NULL, 0, 0, &info), HD_ERROR_HANDLE);
    CONF_FAILS(hd_peers_check(NULL, 0, note, &first), HD_ERROR_HANDLE);
    CONF_FAILS(hd_peers_check(runtime, 2, note, &first), HD_ERROR_ARGUMENT);
    CONF_EQUAL(info.verdict, HD_PEER_SLOW); /* untouched */
    /* a structure of a later version, which is larger */
    struct {
        hd_peer_info info;
        char more[8];
    } larger = {.info.size = sizeof larger, .more = "later"};
    CONF_OK(hd_peer_check(runtime, 0, 0, &larger.info));
    CONF_EQUAL(larger.info.size, sizeof larger);
    CONF_EQUAL(larger.more[0], 0); /* fields that this library does not know */
    conf_close(runtime);
    CONF_FAILS(hd_peer_check(runtime, 0, 0, &info), HD_ERROR_HANDLE);
    if (conf_on_gpus) {
        return;
    }
    hd_runtime *unused = NULL;
    CONF_FAILS_WITH(conf_try_open("host_corrupt=0:1", &unused), HD_ERROR_OPTION, "host_corrupt");
    CONF_FAILS_WITH(conf_try_open("host_corrupt=0>99", &unused), HD_ERROR_OPTION, "host_corrupt");
    CONF_FAILS(conf_try_open("peers=maybe", &unused), HD_ERROR_OPTION);
    CONF_FAILS(conf_try_open("peer_timeout=5", &unused), HD_ERROR_OPTION);
}

/* ---- peers that lose bytes ---- */

/* The first use finds the fault, and the pair is never used. The other direction, which is good, is
 * used. */
static void corrupt_peers_are_avoided(void **state)
{
    (void)state;
    if (!on_host()) {
        skip();
    }
    static const struct {
        const char *kind, *reason;
    } kinds[] = {
        {"lost", "a copy of 4 bytes by device 0 into memory of device 1 did not arrive"},
        {"copies", "a copy of 4 bytes by device 0 into memory of device 1 did not arrive"},
        {"stores", "a kernel's stores of 4 bytes by device 0 into memory of device 1 did not arrive"},
        {"atomics", "atomic operations by device 0 in memory of device 1 do not count: counter 0 is 0 instead of"},
        {"fault", "while device 0 copied 4 bytes into memory of device 1"},
        {"crash", "while device 0 copied 4 bytes into memory of device 1"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        hd_runtime *runtime =
            conf_open_with("host_devices=3 host_corrupt=0>1:%s cache=%s/cache", kinds[i].kind, folder);
        kernels_are_refused(runtime, 0, 1, kinds[i].reason);
        expect(runtime, 0, 1, HD_PEER_CORRUPT);
        copies_are_right(runtime, 0, 1);
        kernels_are_right(runtime, 1, 0);
        kernels_are_right(runtime, 0, 2);
        kernels_are_refused(runtime, 0, 1, "corrupt");
        for (int d = 0; d < 3; d++) {
            hd_device_info info = {.size = sizeof info};
            CONF_OK(hd_device_get_info(runtime, d, &info));
            CONF_TRUE(!info.lost && info.losses == 0);
        }
        conf_close(runtime);
    }
    /* neither direction: through pinned memory */
    hd_runtime *runtime = conf_open_with("host_devices=2 host_corrupt=\"0>1 1>0:stores\" cache=%s/cache", folder);
    copies_are_right(runtime, 0, 1);
    copies_are_right(runtime, 1, 0);
    expect(runtime, 0, 1, HD_PEER_CORRUPT);
    expect(runtime, 1, 0, HD_PEER_CORRUPT);
    conf_close(runtime);
}

/* The longest names, with the longest reason: the message still contains both devices and both
 * remedies. */
static void long_names_leave_room_for_the_ways_out(void **state)
{
    (void)state;
    if (!on_host()) {
        skip();
    }
    make_script();
    char source[600], name[121], parameter[61];
    memset(name, 'k', 120);
    memset(parameter, 'p', 60);
    name[120] = parameter[60] = '\0';
    snprintf(source, sizeof source,
             "#include <heddle/kernel.h>\nHD_KERNEL(%s, HD_OUT(uint32_t, %s))\n{\n    %s[0] = 1;\n}\n", name, parameter,
             parameter);
    size_t size = 0;
    uint8_t *image = conf_kernel_file(source, &size);
    if (!image) {
        skip();
    }
    char extra[151]; /* an option that the test program refuses, and names */
    memset(extra, 'o', 148);
    snprintf(extra + 148, 3, "=1");
    write_text("extra", extra);
    hd_runtime *runtime = open_with_script("host_devices=2");
    hd_module *module = NULL;
    hd_kernel *kernel = NULL;
    hd_buffer *x = NULL;
    CONF_OK(hd_module_load(runtime, image, size, &module));
    free(image);
    CONF_OK(hd_kernel_get(module, name, &kernel));
    CONF_OK(hd_alloc(conf_default_lane(runtime, 1), 4, &x));
    const hd_arg args[] = {hd_out(x)};
    const hd_dims one = {1, 1, 1};
    CONF_FAILS_WITH(hd_launch(conf_default_lane(runtime, 0), kernel, one, one, 0, args, 1, NULL), HD_ERROR_UNREACHABLE,
                    "kernel 'kkkkkkkk");
    CONF_TRUE(strstr(hd_message(), "device 0 cannot reach a buffer of device 1: ") != NULL);
    CONF_TRUE(strstr(hd_message(), "oooooooo") != NULL);
    CONF_TRUE(strstr(hd_message(), "run the kernel on device 1, or hd_copy the buffer to device 0 first") != NULL);
    conf_close(runtime);
}

static void peers_that_hang_are_found_out(void **state)
{
    (void)state;
    if (!on_host()) {
        skip();
    }
    /* the limit is as long as the test needs to get this far on this machine */
    for (int limit = 1000;; limit *= 2) {
        hd_runtime *runtime = conf_open_with("host_devices=2 host_corrupt=0>1:hang peer_timeout=%d cache=none", limit);
        hd_peer_info info = ask(runtime, 0, 1);
        CONF_TRUE(info.verdict == HD_PEER_CORRUPT || info.verdict == HD_PEER_INCONCLUSIVE);
        CONF_TRUE(strstr(info.reason, "hung") != NULL);
        if (info.verdict == HD_PEER_CORRUPT && strstr(info.reason, "copied 4 bytes") != NULL) {
            kernels_are_refused(runtime, 0, 1, "while device 0 copied 4 bytes into memory of device 1");
            copies_are_right(runtime, 0, 1);
            conf_close(runtime);
            break;
        }
        conf_close(runtime);
    }
}

/* Kernels may use it, copies take another route. Both are right. */
static void slow_peers_are_for_kernels(void **state)
{
    (void)state;
    if (!on_host()) {
        skip();
    }
    hd_runtime *runtime = conf_open_with("host_devices=2 host_corrupt=0>1:slow cache=%s/cache", folder);
    copies_are_right(runtime, 0, 1);
    expect(runtime, 0, 1, HD_PEER_SLOW);
    hd_peer_info info = ask(runtime, 0, 1);
    CONF_TRUE(info.direct_bytes_per_s > 0 && info.staged_bytes_per_s > info.direct_bytes_per_s);
    CONF_TRUE(info.atomics);
    kernels_are_right(runtime, 0, 1);
    copies_are_right(runtime, 0, 1);
    kernels_are_right(runtime, 1, 0);
    expect_good(runtime, 1, 0);
    conf_close(runtime);
}

/* ... and a pair that copies do not use takes none of a device's eight places for peers. */
static void slow_peers_take_no_place(void **state)
{
    (void)state;
    if (!on_host()) {
        skip();
    }
    hd_runtime *runtime =
        conf_open_with("host_devices=10 host_memory=32M host_corrupt=0>1:slow cache=%s/cache", folder);
    conf_kernels k = conf_builtins(runtime);
    hd_buffer *x[10];
    make_buffers(runtime, x, 10);
    copies_are_right(runtime, 0, 1);
    expect(runtime, 0, 1, HD_PEER_SLOW);
    for (int owner = 2; owner < 10; owner++) {
        CONF_OK(conf_fill(conf_default_lane(runtime, 0), k, x[owner], 0, words, 50u + (uint32_t)owner, NULL));
        CONF_FILLED(x[owner], 0, 50u + (uint32_t)owner, bytes);
    }
    kernels_are_refused(runtime, 0, 1, "CUDA_ERROR_TOO_MANY_PEERS");
    copies_are_right(runtime, 0, 1);
    conf_close(runtime);
}

/* A device can use the memory of eight others. The ninth is refused; copies to and from it work. */
static void the_ninth_peer_is_refused(void **state)
{
    (void)state;
    if (!on_host()) {
        skip();
    }
    hd_runtime *runtime = conf_open("host_devices=10 host_memory=32M");
    conf_kernels k = conf_builtins(runtime);
    hd_buffer *x[10];
    make_buffers(runtime, x, 10);
    for (int owner = 1; owner < 10; owner++) {
        expect_good(runtime, 0, owner); /* the test uses only two devices, so it finds no limit */
    }
    for (int owner = 1; owner <= 8; owner++) {
        CONF_OK(conf_fill(conf_default_lane(runtime, 0), k, x[owner], 0, words, 50u + (uint32_t)owner, NULL));
    }
    kernels_are_refused(runtime, 0, 9, "CUDA_ERROR_TOO_MANY_PEERS");
    hd_peer_info info = ask(runtime, 0, 9);
    CONF_EQUAL(info.verdict, HD_PEER_REFUSED);
    CONF_EQUAL(info.driver_code, 711);
    CONF_TRUE(strstr(info.reason, "eight") != NULL);
    copies_are_right(runtime, 0, 9);
    for (int owner = 1; owner <= 8; owner++) {
        CONF_FILLED(x[owner], 0, 50u + (uint32_t)owner, bytes);
        copies_are_right(runtime, 0, owner);
    }
    kernels_are_right(runtime, 9, 0); /* device 9 still has places */
    kernels_are_right(runtime, 0, 8);
    conf_close(runtime);
    /* the limit concerned that runtime, and not the pair */
    runtime = conf_open("host_devices=10 host_memory=32M");
    kernels_are_right(runtime, 0, 9);
    conf_close(runtime);
}

/* If the driver cannot map memory now, the message reports its code, and the next use tries
 * again. */
static void what_cannot_be_mapped_is_said(void **state)
{
    (void)state;
    if (!on_host()) {
        skip();
    }
    bool refused = false;
    for (int call = 1; call < 60 && !refused; call++) {
        hd_runtime *runtime = NULL;
        char settings[128];
        snprintf(settings, sizeof settings, "host_devices=2 peers=trust fault=cuMemSetAccess:%d=2", call);
        if (conf_try_open(settings, &runtime) != HD_OK) {
            continue;
        }
        conf_kernels k = conf_builtins(runtime);
        hd_buffer *x = NULL;
        hd_status status = hd_alloc(conf_default_lane(runtime, 1), bytes, &x);
        status = status ? status : conf_fill(conf_default_lane(runtime, 0), k, x, 0, words, 2, NULL);
        /* the allocation itself may lack memory, too */
        refused = status == HD_ERROR_MEMORY && strstr(hd_message(), "device 0 cannot reach a buffer of device 1: ");
        if (refused) {
            CONF_TRUE(strstr(hd_message(), "cuMemSetAccess: CUDA_ERROR_OUT_OF_MEMORY") != NULL);
            CONF_OK(conf_fill(conf_default_lane(runtime, 0), k, x, 0, words, 2, NULL));
            CONF_FILLED(x, 0, 2, bytes);
        }
        hd_free(x);
        conf_close(runtime);
    }
    CONF_TRUE(refused);
}

int main(void)
{
    conf_begin("test_peer");
    const struct CMUnitTest tests[] = {
        PEER_CASE(every_pair_gets_a_verdict),     PEER_CASE(devices_may_be_chosen),
        PEER_CASE(devices_are_known_by_name),     PEER_CASE(bad_arguments_are_refused),
        PEER_CASE(corrupt_peers_are_avoided),     PEER_CASE(long_names_leave_room_for_the_ways_out),
        PEER_CASE(peers_that_hang_are_found_out), PEER_CASE(slow_peers_are_for_kernels),
        PEER_CASE(slow_peers_take_no_place),      PEER_CASE(the_ninth_peer_is_refused),
        PEER_CASE(what_cannot_be_mapped_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
