/* test_host_sharing.c - memory of the host provider shared between processes: reserved addresses,
 * exported and imported memory, registered memory.
 *
 * Promise: Memory that a process exports is the same memory in the process that imports it.
 * Threads: the main one and the host provider's own, in both processes.
 *
 * The maker is a second process: this program started again, with a host provider of its own. It
 * serves requests from a socket, and ends with the socket or after a minute.
 */
#include "host_support.h"
#include <dirent.h>
#include <sys/mman.h>

/* Unused addresses. Thread sanitizer allows a program only some of them. */
#if TEST_TSAN
#define FREE_AT ((hdcu_deviceptr)0x2000000000)
#else
#define FREE_AT ((hdcu_deviceptr)0x200000000000)
#endif
#define SETTINGS "host_devices=4 host_memory=64M host_peers=ring"
#define BYTES (2 * GRANULE)
#define RANGE (16 * GRANULE) /* of addresses: the least for a wish, and its alignment */
#define N_WORDS (BYTES / 4)

enum { FROM_MAKER = 0x0a0b0c0d, FROM_HERE = 0x11223344 };

/* ---- requests ---- */

enum {
    /* a: device, b: address, c: word to fill it with; answers with address and descriptor */
    MAKE = 1,
    COUNT, /* a: word; answers with its count in the memory */
    /* a: address, with a file of BYTES; maps and registers it there, answers with the device
     * pointer */
    PIN,
    FILL, /* a: address, b: word; the device fills BYTES there */
};

static hdcu_mem_prop exportable(int device)
{
    return (hdcu_mem_prop){.type = HDCU_MEM_ALLOCATION_TYPE_PINNED,
                           .requested_handle_types = HDCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                           .location = {HDCU_MEM_LOCATION_TYPE_DEVICE, device}};
}

static hdcu_result give_access(hdcu_deviceptr p, size_t bytes, int device)
{
    hdcu_mem_access_desc access = {{HDCU_MEM_LOCATION_TYPE_DEVICE, device}, HDCU_MEM_ACCESS_READWRITE};
    return d->cuMemSetAccess(p, bytes, &access, 1);
}

static size_t count_words(hdcu_deviceptr p, uint32_t word)
{
    size_t found = 0;
    uint32_t *words = malloc(BYTES);
    assert_non_null(words);
    OK(d->cuMemcpyDtoH(words, p, BYTES));
    for (size_t i = 0; i < N_WORDS; i++) {
        found += words[i] == word;
    }
    free(words);
    return found;
}

/* ---- the maker ---- */

#define NEED(condition)                                                                                                \
    if (!(condition)) {                                                                                                \
        fprintf(stderr, "maker: %s failed\n", #condition);                                                             \
        _exit(1);                                                                                                      \
    }

static hdcu_deviceptr made_at;

static void make(role_message *m, int *descriptor)
{
    hdcu_context context;
    hdcu_memhandle handle;
    int device = (int)m->a;
    hdcu_mem_prop prop = exportable(device);
    NEED(!d->cuDevicePrimaryCtxRetain(&context, device) && !d->cuCtxSetCurrent(context));
    NEED(!d->cuMemAddressReserve(&made_at, RANGE, 0, m->b, 0));
    NEED(!d->cuMemCreate(&handle, BYTES, &prop, 0) && !d->cuMemMap(made_at, BYTES, 0, handle, 0));
    NEED(!give_access(made_at, BYTES, device));
    NEED(!d->cuMemsetD32Async(made_at, (unsigned)m->c, N_WORDS, NULL) && !d->cuCtxSynchronize());
    NEED(!d->cuMemExportToShareableHandle(descriptor, handle, HDCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    NEED(!d->cuMemRelease(handle));
    m->a = made_at;
}

static void pin(role_message *m, int descriptor)
{
    hdcu_context context;
    hdcu_deviceptr p;
    void *want = (void *)(uintptr_t)m->a;
    void *at = mmap(want, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, descriptor, 0);
    close(descriptor);
    NEED(at == want);
    NEED(!d->cuDevicePrimaryCtxRetain(&context, 0) && !d->cuCtxSetCurrent(context));
    NEED(!d->cuMemHostRegister(at, BYTES, HDCU_MEMHOSTREGISTER_PORTABLE | HDCU_MEMHOSTREGISTER_DEVICEMAP));
    NEED(!d->cuMemHostGetDevicePointer(&p, at, 0));
    m->a = p;
}

static int maker(const char *settings)
{
    role_message m;
    int given;
    alarm(ROLE_SECONDS);
    NEED(open_with(settings, &d) == HD_OK);
    while (role_receive(ROLE_SOCKET, &m, &given)) {
        int sent = -1;
        switch (m.kind) {
        case MAKE:
            make(&m, &sent);
            break;
        case COUNT:
            m.a = count_words(made_at, (uint32_t)m.a);
            break;
        case PIN:
            pin(&m, given);
            break;
        case FILL:
            NEED(!d->cuMemsetD32Async(m.a, (unsigned)m.b, N_WORDS, NULL) && !d->cuCtxSynchronize());
            break;
        default:
            NEED(false);
        }
        NEED(role_send(ROLE_SOCKET, m, sent));
        if (sent >= 0) {
            close(sent);
        }
    }
    return 0;
}

static role_message ask(role_process *p, role_message m, int give, int *descriptor)
{
    assert_true(role_send(p->socket, m, give));
    assert_true(role_receive(p->socket, &m, descriptor));
    return m;
}

/* Starts a maker with memory of `device` at FREE_AT. */
static role_process start_maker(const char *settings, int device, int *descriptor)
{
    role_process p = role_start("maker", settings);
    role_message m = ask(&p, (role_message){MAKE, (uint64_t)device, FREE_AT, FROM_MAKER}, -1, descriptor);
    assert_int_equal(m.a, FREE_AT);
    assert_true(*descriptor >= 0);
    return p;
}

/* ---- resources of this process ---- */

static size_t descriptors(void)
{
    size_t n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir)) {
        n++;
    }
    closedir(dir);
    return n;
}

/* Counts mappings of shareable memory. */
static size_t mappings(void)
{
    size_t n = 0;
    char line[512];
    FILE *f = fopen("/proc/self/maps", "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        n += strstr(line, "heddle-host-memory:") != NULL;
    }
    fclose(f);
    return n;
}

/* True if nothing is mapped there. */
static bool is_free(hdcu_deviceptr at, size_t bytes)
{
    void *p = mmap((void *)(uintptr_t)at, bytes, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    bool yes = p == (void *)(uintptr_t)at;
    if (p != MAP_FAILED) {
        munmap(p, bytes);
    }
    return yes;
}

static hdcu_memhandle import_it(int descriptor)
{
    hdcu_memhandle handle;
    OK(d->cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)descriptor,
                                         HDCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    return handle;
}

static void reserve_at(hdcu_deviceptr wanted)
{
    hdcu_deviceptr p;
    OK(d->cuMemAddressReserve(&p, RANGE, 0, wanted, 0));
    assert_int_equal(p, wanted);
}

static void unmap_at(hdcu_deviceptr at)
{
    OK(d->cuMemUnmap(at, BYTES));
    OK(d->cuMemAddressFree(at, RANGE));
}

/* ---- the tests ---- */

static void addresses_are_reserved_where_asked(void **state)
{
    (void)state;
    const size_t large = (size_t)144 << 30;
    hdcu_deviceptr p, q;
    open_host(SETTINGS);
    use_device(0);
#if !TEST_TSAN
    for (unsigned k = 0; k < 4; k++) {
        OK(d->cuMemAddressReserve(&p, large, GRANULE, FREE_AT + k * ((hdcu_deviceptr)256 << 30), 0));
        assert_int_equal(p, FREE_AT + k * ((hdcu_deviceptr)256 << 30));
    }
    for (unsigned k = 0; k < 4; k++) {
        OK(d->cuMemAddressFree(FREE_AT + k * ((hdcu_deviceptr)256 << 30), large));
    }
#endif
    (void)large;
    assert_true(is_free(FREE_AT, RANGE + GRANULE));
    reserve_at(FREE_AT);
    assert_true(is_free(FREE_AT - GRANULE, GRANULE));
    assert_false(is_free(FREE_AT + RANGE, 4096)); /* the gap is still in use */
    /* taken, partly taken, unaligned, or no address: reserves elsewhere */
    const hdcu_deviceptr taken[] = {FREE_AT, FREE_AT - GRANULE, FREE_AT + RANGE, FREE_AT + 64 * GRANULE + 4096,
                                    (hdcu_deviceptr)1 << 60};
    for (unsigned i = 0; i < sizeof taken / sizeof taken[0]; i++) {
        OK(d->cuMemAddressReserve(&p, RANGE, 0, taken[i], 0));
        assert_int_not_equal(p, taken[i]);
        assert_int_equal(p % GRANULE, 0);
        OK(d->cuMemAddressFree(p, RANGE));
    }
    OK(d->cuMemAddressReserve(&p, RANGE - GRANULE, 0, FREE_AT + 64 * GRANULE, 0)); /* too few */
    assert_int_not_equal(p, FREE_AT + 64 * GRANULE);
    OK(d->cuMemAddressFree(p, RANGE - GRANULE));
    OK(d->cuMemAddressReserve(&p, RANGE, 16 * GRANULE, FREE_AT + 64 * GRANULE, 0));
    assert_int_equal(p, FREE_AT + 64 * GRANULE);
    OK(d->cuMemAddressReserve(&q, RANGE, 16 * GRANULE, FREE_AT + 72 * GRANULE, 0));
    assert_int_equal(q % (16 * GRANULE), 0);
    OK(d->cuMemAddressFree(p, RANGE));
    OK(d->cuMemAddressFree(q, RANGE));
    OK(d->cuMemAddressFree(FREE_AT, RANGE));
    assert_true(is_free(FREE_AT, RANGE + GRANULE));
    /* the application's own mapping is not replaced */
    unsigned char *mine = mmap((void *)(uintptr_t)(FREE_AT + GRANULE), 4096, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    assert_ptr_equal(mine, (void *)(uintptr_t)(FREE_AT + GRANULE));
    mine[0] = 7;
    OK(d->cuMemAddressReserve(&p, RANGE, 0, FREE_AT, 0));
    assert_int_not_equal(p, FREE_AT);
    assert_int_equal(mine[0], 7);
    munmap(mine, 4096);
    OK(d->cuMemAddressFree(p, RANGE));
    reserve_at(FREE_AT);
    leave_device(0); /* also ends the reservation */
    assert_true(is_free(FREE_AT, RANGE + GRANULE));
    hdi_providers_close_driver(d);
}

static void two_processes_have_the_same_memory(void **state)
{
    (void)state;
    int descriptor;
    role_process p = start_maker(SETTINGS, 0, &descriptor);
    open_host(SETTINGS);
    use_device(1); /* without a context of device 0 */
    size_t before = free_memory();
    hdcu_memhandle h = import_it(descriptor);
    close(descriptor);
    reserve_at(FREE_AT);
    OK(d->cuMemMap(FREE_AT, BYTES, 0, h, 0));
    OK(give_access(FREE_AT, BYTES, 1));
    OK(d->cuMemRelease(h));
    assert_int_equal(count_words(FREE_AT, FROM_MAKER), N_WORDS);
    OK(d->cuMemsetD32Async(FREE_AT, FROM_HERE, N_WORDS, NULL));
    OK(d->cuCtxSynchronize());
    assert_int_equal(ask(&p, (role_message){.kind = COUNT, .a = FROM_HERE}, -1, NULL).a, N_WORDS);
    assert_int_equal(free_memory(), before); /* charged to its maker */
    ask(&p, (role_message){.kind = FILL, .a = FREE_AT, .b = 5}, -1, NULL);
    assert_int_equal(count_words(FREE_AT, 5), N_WORDS);

    assert_int_equal(WTERMSIG(role_end(&p, true)), SIGKILL);
    assert_int_equal(count_words(FREE_AT, 5), N_WORDS);
    hdcu_module module = load_kernels();
    hdcu_stream s;
    hdcu_deviceptr own = map_new(1, BYTES);
    OK(d->cuStreamCreate(&s, HDCU_STREAM_NON_BLOCKING));
    OK(launch_add(kernel_of(module, "add"), s, FREE_AT, 37, 256));
    OK(d->cuMemcpyDtoDAsync(own, FREE_AT, BYTES, s));
    OK(d->cuStreamSynchronize(s));
    assert_int_equal(count_words(own, 42), 256);
    assert_int_equal(count_words(own, 5), N_WORDS - 256);
    unmap(own, BYTES);
    unmap_at(FREE_AT);
    assert_int_equal(mappings(), 0);
    leave_device(1);
    hdi_providers_close_driver(d);
}

/* Kills the maker while a kernel of the importer uses the memory, and while the maker itself
 * works. */
static void the_maker_may_be_killed_at_any_time(void **state)
{
    (void)state;
    open_host(SETTINGS);
    use_device(1);
    hdcu_module module = load_kernels();
    hdcu_function add = kernel_of(module, "add");
    for (uint32_t round = 0; round < 5; round++) {
        int descriptor;
        role_process p = start_maker(SETTINGS, 0, &descriptor);
        hdcu_memhandle h = import_it(descriptor);
        close(descriptor);
        reserve_at(FREE_AT);
        OK(d->cuMemMap(FREE_AT, BYTES, 0, h, 0));
        OK(give_access(FREE_AT, BYTES, 1));
        OK(d->cuMemRelease(h));
        for (uint32_t i = 0; i < 100; i++) {
            OK(launch_add(add, NULL, FREE_AT, 1, 256));
            if (i == 50) {
                kill(p.pid, SIGKILL);
            }
        }
        OK(d->cuCtxSynchronize());
        role_end(&p, true);
        assert_int_equal(count_words(FREE_AT, FROM_MAKER + 100), 256);
        unmap_at(FREE_AT);
        assert_int_equal(mappings(), 0);
    }
    leave_device(1);
    hdi_providers_close_driver(d);
}

static void imports_are_for_those_who_reach_the_owner(void **state)
{
    (void)state;
    int descriptor;
    role_process p = start_maker(SETTINGS, 0, &descriptor);
    open_host(SETTINGS); /* a ring: 0 and 1 are neighbours, 0 and 2 are not */
    hdcu_context c2 = use_device(2);
    use_device(1);
    hdcu_memhandle h = import_it(descriptor);
    reserve_at(FREE_AT);
    OK(d->cuMemMap(FREE_AT, BYTES, 0, h, 0));
    /* no access yet */
    assert_int_equal(d->cuMemsetD32Async(FREE_AT, 1, 1, NULL), HDCU_ERROR_INVALID_VALUE);
    assert_int_equal(give_access(FREE_AT, BYTES, 2), HDCU_ERROR_INVALID_DEVICE);
    assert_int_equal(d->cuMemsetD32Async(FREE_AT, 1, 1, NULL), HDCU_ERROR_INVALID_VALUE);
    OK(give_access(FREE_AT, BYTES, 3));
    OK(give_access(FREE_AT, BYTES, 1));
    OK(give_access(FREE_AT, BYTES, 0)); /* the owner, by its number */
    assert_int_equal(count_words(FREE_AT, FROM_MAKER), N_WORDS);
    OK(d->cuCtxSetCurrent(c2));
    assert_int_equal(d->cuMemsetD32Async(FREE_AT, 1, 1, NULL), HDCU_ERROR_INVALID_VALUE);
    unmap_at(FREE_AT);
    OK(d->cuMemRelease(h));
    leave_device(1);
    OK(d->cuDevicePrimaryCtxRelease(2));
    hdi_providers_close_driver(d);
    role_end(&p, true);

    /* no process reaches another one: access for the owner's number only, and a device that exists
     * only elsewhere */
    close(descriptor);
    p = start_maker("host_devices=4 host_memory=64M", 3, &descriptor);
    open_host("host_devices=4 host_memory=64M host_peers=none");
    use_device(1);
    h = import_it(descriptor);
    reserve_at(FREE_AT);
    OK(d->cuMemMap(FREE_AT, BYTES, 0, h, 0));
    assert_int_equal(give_access(FREE_AT, BYTES, 1), HDCU_ERROR_INVALID_DEVICE);
    OK(give_access(FREE_AT, BYTES, 3));
    leave_device(1);
    hdi_providers_close_driver(d);
    open_host("host_devices=3 host_memory=64M");
    use_device(1);
    assert_int_equal(d->cuMemImportFromShareableHandle(&h, (void *)(intptr_t)descriptor, 1), HDCU_ERROR_NOT_SUPPORTED);
    leave_device(1);
    hdi_providers_close_driver(d);
    close(descriptor);
    role_end(&p, true);
}

/* The steps of an import, which run in every sensible order. */
enum { CLOSE, UNMAP_FIRST, UNMAP_SECOND, RELEASE, AGAIN, N_STEPS };

static void do_step(int step, int descriptor, hdcu_memhandle handle)
{
    switch (step) {
    case CLOSE:
        close(descriptor);
        break;
    case UNMAP_FIRST:
        unmap_at(FREE_AT);
        break;
    case UNMAP_SECOND:
        unmap_at(FREE_AT + 2 * RANGE);
        break;
    case RELEASE:
        OK(d->cuMemRelease(handle));
        break;
    case AGAIN: /* a second handle comes and goes; as the last step it is a new import */
        if (fcntl(descriptor, F_GETFD) >= 0) {
            OK(d->cuMemRelease(import_it(descriptor)));
        }
        break;
    }
}

static void nothing_stays_behind(void **state)
{
    (void)state;
    int descriptor;
    role_process p = start_maker(SETTINGS, 0, &descriptor);
    open_host(SETTINGS);
    use_device(1);
    size_t memory = free_memory(), open = descriptors();
    unsigned orders = 0;
    for (unsigned n = 0; n < 5 * 5 * 5 * 5 * 5; n++) {
        int order[N_STEPS];
        unsigned digits = n, seen = 0;
        for (int i = 0; i < N_STEPS; i++, digits /= N_STEPS) {
            order[i] = (int)(digits % N_STEPS);
            seen |= 1u << order[i];
        }
        if (seen != (1u << N_STEPS) - 1) {
            continue;
        }
        orders++;
        int copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
        hdcu_memhandle h = import_it(copy), same = import_it(copy);
        assert_int_equal(h, same);
        OK(d->cuMemRelease(same));
        for (int i = 0; i < 2; i++) {
            hdcu_deviceptr at = FREE_AT + (hdcu_deviceptr)i * 2 * RANGE;
            reserve_at(at);
            OK(d->cuMemMap(at, BYTES, 0, h, 0));
            OK(give_access(at, BYTES, 1));
        }
        assert_int_equal(mappings(), 2);
        for (int i = 0; i < N_STEPS; i++) {
            do_step(order[i], copy, h);
        }
        assert_int_equal(d->cuMemRelease(h), HDCU_ERROR_INVALID_VALUE);
        assert_int_equal(mappings(), 0);
        assert_int_equal(descriptors(), open);
        assert_true(is_free(FREE_AT, 6 * RANGE));
        assert_int_equal(free_memory(), memory);
    }
    assert_int_equal(orders, 120);
    /* an import mapped without a handle can get a new one and be exported again; its file takes one
     * descriptor */
    hdcu_memhandle h = import_it(descriptor);
    int on;
    reserve_at(FREE_AT);
    OK(d->cuMemMap(FREE_AT, BYTES, 0, h, 0));
    assert_int_equal(descriptors(), open + 1);
    OK(d->cuMemRelease(h));
    assert_int_equal(descriptors(), open + 1);
    h = import_it(descriptor);
    OK(d->cuMemExportToShareableHandle(&on, h, 1, 0));
    assert_int_equal(descriptors(), open + 2);
    assert_int_equal(import_it(on), h);
    close(on);
    OK(d->cuMemRelease(h));
    OK(d->cuMemRelease(h));
    unmap_at(FREE_AT);
    assert_int_equal(descriptors(), open);
    assert_int_equal(mappings(), 0);
    leave_device(1);
    use_device(0); /* the owner's number: never charged, so nothing to give back */
    assert_int_equal(free_memory(), memory);
    leave_device(0);
    hdi_providers_close_driver(d);
    close(descriptor);
    role_end(&p, true);
}

static void imports_outlive_contexts_but_the_last(void **state)
{
    (void)state;
    int descriptor, on;
    role_process p = start_maker(SETTINGS, 0, &descriptor);
    open_host(SETTINGS);
    size_t open = descriptors();
    use_device(0); /* the owner's number, but another context */
    size_t memory = free_memory();
    hdcu_context c1 = use_device(1);
    hdcu_memhandle h = import_it(descriptor);
    reserve_at(FREE_AT);
    OK(d->cuMemMap(FREE_AT, BYTES, 0, h, 0));
    OK(give_access(FREE_AT, BYTES, 1));
    hdcu_deviceptr own = map_new(0, BYTES);
    OK(d->cuDevicePrimaryCtxRelease(0));
    /* ended with its context */
    assert_int_equal(d->cuMemUnmap(own, BYTES), HDCU_ERROR_INVALID_VALUE);
    assert_int_equal(count_words(FREE_AT, FROM_MAKER), N_WORDS);
    OK(d->cuMemExportToShareableHandle(&on, h, 1, 0));
    close(on);
    use_device(0);
    assert_int_equal(free_memory(), memory);
    OK(d->cuCtxSetCurrent(c1));
    leave_device(1); /* its user ends, but another context remains */
    assert_int_equal(mappings(), 1);
    use_device(1);
    assert_int_equal(count_words(FREE_AT, FROM_MAKER), N_WORDS);
    leave_device(1);
    OK(d->cuDevicePrimaryCtxRelease(0)); /* the last context */
    assert_int_equal(mappings(), 0);
    assert_int_equal(descriptors(), open);
    assert_int_equal(d->cuMemRelease(h), HDCU_ERROR_INVALID_VALUE);
    assert_true(is_free(FREE_AT, RANGE + GRANULE));
    assert_int_equal(ask(&p, (role_message){.kind = COUNT, .a = FROM_MAKER}, -1, NULL).a, N_WORDS);
    hdi_providers_close_driver(d);
    close(descriptor);
    role_end(&p, true);
}

static void registered_memory_is_shared_at_its_address(void **state)
{
    (void)state;
    int value = 0, file = memfd_create("heddle-test", MFD_CLOEXEC);
    uint32_t *words = (uint32_t *)(uintptr_t)FREE_AT;
    hdcu_deviceptr device_pointer;
    assert_int_equal(ftruncate(file, BYTES), 0);
    open_host(SETTINGS);
    use_device(1);
    OK(d->cuDeviceGetAttribute(&value, HDCU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1));
    assert_int_equal(value, 1);
    assert_ptr_equal(mmap(words, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, file, 0), words);
    OK(d->cuMemHostRegister(words, BYTES, HDCU_MEMHOSTREGISTER_PORTABLE | HDCU_MEMHOSTREGISTER_DEVICEMAP));
    OK(d->cuMemHostGetDevicePointer(&device_pointer, words, 0));
    assert_int_equal(device_pointer, FREE_AT);
    role_process p = role_start("maker", SETTINGS);
    assert_int_equal(ask(&p, (role_message){.kind = PIN, .a = FREE_AT}, file, NULL).a, FREE_AT);
    close(file);
    ask(&p, (role_message){.kind = FILL, .a = FREE_AT, .b = FROM_MAKER}, -1, NULL);
    assert_int_equal(words[0], FROM_MAKER); /* by the processor, and on a device */
    assert_int_equal(count_words(FREE_AT, FROM_MAKER), N_WORDS);
    hdcu_module module = load_kernels();
    OK(launch_add(kernel_of(module, "add"), NULL, FREE_AT, 1, 100));
    role_end(&p, true);
    OK(d->cuCtxSynchronize());
    assert_int_equal(words[99], FROM_MAKER + 1);
    assert_int_equal(words[100], FROM_MAKER);
    OK(d->cuMemHostUnregister(words));
    assert_int_equal(words[99], FROM_MAKER + 1); /* the mapping still belongs to the application */
    munmap(words, BYTES);
    leave_device(1);
    hdi_providers_close_driver(d);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "maker") == 0) {
        return maker(argv[2]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_reserved_where_asked),
        cmocka_unit_test(two_processes_have_the_same_memory),
        cmocka_unit_test(the_maker_may_be_killed_at_any_time),
        cmocka_unit_test(imports_are_for_those_who_reach_the_owner),
        cmocka_unit_test(nothing_stays_behind),
        cmocka_unit_test(imports_outlive_contexts_but_the_last),
        cmocka_unit_test(registered_memory_is_shared_at_its_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
