/* test_host_memory.c - memory of the host provider: accounting, mappings, access, pinned memory,
 * export, release with the context.
 *
 * Promise: Host devices count memory exactly, and mappings grant exactly the access asked for.
 * Threads: the main one, and the host provider's own.
 */
#include "host_support.h"
#include <unistd.h>

static hdcu_mem_prop prop_of(int device, int handle_types)
{
    return (hdcu_mem_prop){.type = HDCU_MEM_ALLOCATION_TYPE_PINNED,
                           .requested_handle_types = handle_types,
                           .location = {HDCU_MEM_LOCATION_TYPE_DEVICE, device}};
}

static hdcu_mem_access_desc access_of(int device, int flags)
{
    return (hdcu_mem_access_desc){{HDCU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
}

static void devices_describe_themselves(void **state)
{
    (void)state;
    int count, value, version;
    char text[64];
    hdcu_uuid a, b;
    size_t bytes;
    open_host("host_devices=3 host_memory=64M");
    OK(d->cuDriverGetVersion(&version));
    assert_int_equal(version, d->version);
    OK(d->cuDeviceGetCount(&count));
    assert_int_equal(count, 3);
    OK(d->cuDeviceGetName(text, sizeof text, 2));
    assert_string_equal(text, "Heddle host device 2");
    OK(d->cuDeviceGetPCIBusId(text, sizeof text, 1));
    assert_string_equal(text, "host:1");
    assert_int_equal(d->cuDeviceGetPCIBusId(text, 3, 1), HDCU_ERROR_INVALID_VALUE);
    OK(d->cuDeviceGetUuid(&a, 0));
    OK(d->cuDeviceGetUuid(&b, 1));
    assert_memory_not_equal(&a, &b, sizeof a);
    OK(d->cuDeviceTotalMem(&bytes, 0));
    assert_int_equal(bytes, 64 << 20);
    OK(d->cuDeviceGetAttribute(&value, HDCU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0));
    assert_int_equal(value, 1024);
    assert_int_equal(d->cuDeviceGetAttribute(&value, 12345, 0), HDCU_ERROR_INVALID_VALUE);
    assert_int_equal(d->cuDeviceGetName(text, sizeof text, 3), HDCU_ERROR_INVALID_DEVICE);
    const char *name;
    OK(d->cuGetErrorName(700, &name));
    assert_string_equal(name, "CUDA_ERROR_ILLEGAL_ADDRESS");
    hdi_providers_close_driver(d);
}

static void physical_memory_is_counted_exactly(void **state)
{
    (void)state;
    open_host("host_devices=2 host_memory=8M");
    use_device(0);
    hdcu_mem_prop prop = prop_of(0, 0);
    hdcu_memhandle h[5];
    for (int i = 0; i < 4; i++) {
        OK(d->cuMemCreate(&h[i], GRANULE, &prop, 0));
    }
    assert_int_equal(free_memory(), 0);
    assert_int_equal(d->cuMemCreate(&h[4], GRANULE, &prop, 0), HDCU_ERROR_OUT_OF_MEMORY);
    hdcu_deviceptr p;
    assert_int_equal(d->cuMemAlloc(&p, 1), HDCU_ERROR_OUT_OF_MEMORY);
    OK(d->cuMemRelease(h[0]));
    assert_int_equal(free_memory(), GRANULE);
    OK(d->cuMemAlloc(&p, GRANULE));
    assert_int_equal(free_memory(), 0);
    OK(d->cuMemFree(p));
    /* released while mapped: charged until it is unmapped */
    hdcu_deviceptr v;
    OK(d->cuMemAddressReserve(&v, GRANULE, 0, 0, 0));
    OK(d->cuMemMap(v, GRANULE, 0, h[1], 0));
    OK(d->cuMemRelease(h[1]));
    assert_int_equal(free_memory(), GRANULE);
    OK(d->cuMemUnmap(v, GRANULE));
    assert_int_equal(free_memory(), 2 * GRANULE);
    OK(d->cuMemAddressFree(v, GRANULE));
    leave_device(0);
    use_device(0);
    assert_int_equal(free_memory(), 8 << 20); /* the end of the context freed the rest */
    leave_device(0);
    hdi_providers_close_driver(d);
}

static void mappings_follow_their_physical_memory(void **state)
{
    (void)state;
    open_host("host_devices=2 host_memory=16M");
    use_device(0);
    hdcu_mem_prop prop = prop_of(0, 0);
    hdcu_mem_access_desc access = access_of(0, HDCU_MEM_ACCESS_READWRITE);
    hdcu_memhandle a, b;
    hdcu_deviceptr v;
    uint32_t word = 0;
    OK(d->cuMemAddressReserve(&v, 4 * GRANULE, 0, 0, 0));
    assert_int_equal(v % GRANULE, 0);
    OK(d->cuMemCreate(&a, GRANULE, &prop, 0));
    OK(d->cuMemCreate(&b, GRANULE, &prop, 0));
    OK(d->cuMemMap(v, GRANULE, 0, a, 0));
    OK(d->cuMemMap(v + GRANULE, GRANULE, 0, b, 0));
    /* no access yet */
    assert_int_equal(d->cuMemsetD32Async(v, 1, 1, NULL), HDCU_ERROR_INVALID_VALUE);
    OK(d->cuMemSetAccess(v, 2 * GRANULE, &access, 1));
    OK(d->cuMemsetD32Async(v, 0x11111111, 2 * GRANULE / 4, NULL)); /* across both mappings */
    OK(d->cuMemcpyDtoH(&word, v + 2 * GRANULE - 4, 4));
    assert_int_equal(word, 0x11111111);
    OK(d->cuMemUnmap(v + GRANULE, GRANULE));
    assert_int_equal(d->cuMemsetD32Async(v, 1, 2 * GRANULE / 4, NULL), HDCU_ERROR_INVALID_VALUE);
    assert_int_equal(d->cuMemcpyDtoH(&word, v + GRANULE, 4), HDCU_ERROR_INVALID_VALUE);
    /* the same bytes at another address */
    OK(d->cuMemMap(v + 3 * GRANULE, GRANULE, 0, b, 0));
    OK(d->cuMemSetAccess(v + 3 * GRANULE, GRANULE, &access, 1));
    word = 0;
    OK(d->cuMemcpyDtoH(&word, v + 3 * GRANULE, 4));
    assert_int_equal(word, 0x11111111);
    unsigned long long flags;
    OK(d->cuMemGetAccess(&flags, &access.location, v + 3 * GRANULE));
    assert_int_equal(flags, HDCU_MEM_ACCESS_READWRITE);
    /* still mapped */
    assert_int_equal(d->cuMemAddressFree(v, 4 * GRANULE), HDCU_ERROR_INVALID_VALUE);
    OK(d->cuMemUnmap(v, GRANULE));
    OK(d->cuMemUnmap(v + 3 * GRANULE, GRANULE));
    OK(d->cuMemAddressFree(v, 4 * GRANULE));
    OK(d->cuMemRelease(a));
    OK(d->cuMemRelease(b));
    leave_device(0);
    hdi_providers_close_driver(d);
}

static void fresh_physical_memory_has_no_old_bytes_of_its_file(void **state)
{
    (void)state;
    open_host("host_devices=1 host_memory=4M");
    use_device(0);
    for (int round = 0; round < 4; round++) {
        hdcu_deviceptr v = map_new(0, GRANULE);
        uint32_t word = 1;
        OK(d->cuMemcpyDtoH(&word, v, 4));
        assert_int_equal(word, 0);
        OK(d->cuMemsetD8Async(v, 0xff, GRANULE, NULL));
        OK(d->cuCtxSynchronize());
        unmap(v, GRANULE);
    }
    leave_device(0);
    hdi_providers_close_driver(d);
}

static void access_follows_the_peers(void **state)
{
    (void)state;
    int can;
    open_host("host_devices=4 host_memory=8M host_peers=ring");
    hdcu_context c1 = use_device(1);
    hdcu_context c2 = use_device(2);
    hdcu_context c0 = use_device(0);
    OK(d->cuDeviceCanAccessPeer(&can, 0, 3));
    assert_true(can);
    OK(d->cuDeviceCanAccessPeer(&can, 0, 2));
    assert_false(can);
    OK(d->cuDeviceGetP2PAttribute(&can, HDCU_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
    assert_true(can);
    assert_int_equal(d->cuCtxEnablePeerAccess(c2, 0), HDCU_ERROR_PEER_ACCESS_UNSUPPORTED);
    assert_int_equal(d->cuCtxDisablePeerAccess(c1), HDCU_ERROR_PEER_ACCESS_NOT_ENABLED);

    hdcu_deviceptr p;
    OK(d->cuCtxSetCurrent(c1));
    OK(d->cuMemAlloc(&p, 4096));
    OK(d->cuCtxSetCurrent(c0));
    assert_int_equal(d->cuMemsetD8Async(p, 1, 4096, NULL), HDCU_ERROR_INVALID_VALUE);
    OK(d->cuCtxEnablePeerAccess(c1, 0));
    assert_int_equal(d->cuCtxEnablePeerAccess(c1, 0), HDCU_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    OK(d->cuMemsetD8Async(p, 1, 4096, NULL));
    OK(d->cuCtxSynchronize());
    OK(d->cuCtxDisablePeerAccess(c1));
    assert_int_equal(d->cuMemsetD8Async(p, 1, 4096, NULL), HDCU_ERROR_INVALID_VALUE);

    hdcu_deviceptr v = map_new(1, GRANULE);
    hdcu_mem_access_desc near = access_of(0, HDCU_MEM_ACCESS_READWRITE), far = access_of(3, HDCU_MEM_ACCESS_READWRITE);
    assert_int_equal(d->cuMemsetD8Async(v, 1, 16, NULL), HDCU_ERROR_INVALID_VALUE);
    OK(d->cuMemSetAccess(v, GRANULE, &near, 1));
    OK(d->cuMemsetD8Async(v, 1, 16, NULL));
    assert_int_equal(d->cuMemSetAccess(v, GRANULE, &far, 1), HDCU_ERROR_INVALID_DEVICE);
    OK(d->cuCtxSynchronize());

    /* copies work between any two devices */
    hdcu_deviceptr q = map_new(2, GRANULE);
    unsigned char byte = 0;
    OK(d->cuMemcpyPeerAsync(q, c2, v, c1, 16, NULL));
    OK(d->cuMemcpyDtoH(&byte, q + 15, 1));
    assert_int_equal(byte, 1);
    unmap(q, GRANULE);
    unmap(v, GRANULE);
    leave_device(0);
    leave_device(1);
    leave_device(2);
    hdi_providers_close_driver(d);
}

/* Copies rows with cuMemcpy2DAsync from memory of one type to memory of another. */
static hdcu_result copy_rows(int dst_type, uint64_t dst, size_t dst_pitch, int src_type, uint64_t src, size_t src_pitch,
                             size_t row, size_t rows)
{
    hdcu_memcpy2d c = {.src_type = src_type,
                       .src_pitch = src_pitch,
                       .dst_type = dst_type,
                       .dst_pitch = dst_pitch,
                       .row_bytes = row,
                       .rows = rows};
    if (src_type == HDCU_MEMORYTYPE_HOST) {
        c.src_host = (const void *)(uintptr_t)src;
    } else {
        c.src_device = src;
    }
    if (dst_type == HDCU_MEMORYTYPE_HOST) {
        c.dst_host = (void *)(uintptr_t)dst;
    } else {
        c.dst_device = dst;
    }
    return d->cuMemcpy2DAsync(&c, NULL);
}

static void rows_are_copied_with_their_pitches(void **state)
{
    (void)state;
    enum { HOST = HDCU_MEMORYTYPE_HOST, DEVICE = HDCU_MEMORYTYPE_DEVICE, UNIFIED = HDCU_MEMORYTYPE_UNIFIED };
    open_host("host_devices=2 host_memory=8M host_peers=none");
    use_device(1);
    use_device(0);
    hdcu_deviceptr x = map_new(0, GRANULE), y = map_new(1, GRANULE);
    unsigned char in[300], out[300], *pinned;
    void *p;
    OK(d->cuMemHostAlloc(&p, 4096, 0));
    pinned = p;
    for (int i = 0; i < 300; i++) {
        in[i] = pinned[i] = (unsigned char)(i + 1);
    }
    OK(d->cuMemsetD8Async(x, 0, 300, NULL));
    /* device 0 may not fill y */
    OK(d->cuMemcpyDtoDAsync(y, x, 300, NULL));
    OK(copy_rows(DEVICE, x, 30, HOST, (uintptr_t)in, 20, 10, 10)); /* pageable */
    /* to another device */
    OK(copy_rows(DEVICE, y + 5, 25, DEVICE, x, 30, 10, 10));
    OK(copy_rows(UNIFIED, x + 10, 30, UNIFIED, (uintptr_t)pinned, 7, 5, 10)); /* between the rows */
    OK(copy_rows(HOST, (uintptr_t)out, 30, DEVICE, x, 30, 30, 10));
    OK(copy_rows(HOST, (uintptr_t)pinned, 10, DEVICE, y + 5, 25, 10, 10));
    OK(d->cuCtxSynchronize());
    for (int i = 0; i < 300; i++) {
        int row = i / 30, at = i % 30;
        assert_int_equal(out[i], at < 10 ? row * 20 + at + 1 : at < 15 ? row * 7 + at - 10 + 1 : 0);
    }
    for (int i = 0; i < 100; i++) {
        assert_int_equal(pinned[i], i / 10 * 20 + i % 10 + 1);
    }
    /* starting at a column and a row */
    hdcu_memcpy2d c = {.src_type = DEVICE,
                       .src_device = x,
                       .src_x_bytes = 10,
                       .src_y = 2,
                       .src_pitch = 30,
                       .dst_type = HOST,
                       .dst_host = out,
                       .dst_x_bytes = 1,
                       .dst_y = 1,
                       .dst_pitch = 6,
                       .row_bytes = 5,
                       .rows = 3};
    memset(out, 0, sizeof out);
    OK(d->cuMemcpy2DAsync(&c, NULL));
    OK(d->cuCtxSynchronize());
    for (int i = 0; i < 30; i++) {
        int row = i / 6, at = i % 6;
        assert_int_equal(out[i], row >= 1 && row <= 3 && at >= 1 ? (row + 1) * 7 + at - 1 + 1 : 0);
    }
    /* empty copies, and refused ones */
    OK(copy_rows(DEVICE, x, 30, DEVICE, y, 30, 0, 10));
    OK(copy_rows(DEVICE, x, 30, DEVICE, y, 30, 10, 0));
    assert_int_equal(d->cuMemcpy2DAsync(NULL, NULL), HDCU_ERROR_INVALID_VALUE);
    assert_int_equal(copy_rows(DEVICE, x, 9, DEVICE, y, 30, 10, 2), HDCU_ERROR_INVALID_VALUE);
    assert_int_equal(copy_rows(DEVICE, x, 30, DEVICE, y, 0, 10, 2), HDCU_ERROR_INVALID_VALUE);
    assert_int_equal(copy_rows(DEVICE, x, (size_t)INT32_MAX + 1, DEVICE, y, 30, 10, 1), HDCU_ERROR_INVALID_VALUE);
    assert_int_equal(copy_rows(3, x, 30, DEVICE, y, 30, 10, 2), HDCU_ERROR_INVALID_VALUE);
    assert_int_equal(copy_rows(DEVICE, (uintptr_t)out, 10, DEVICE, y, 30, 10, 2), HDCU_ERROR_INVALID_VALUE);
    assert_int_equal(copy_rows(DEVICE, x, GRANULE / 2, DEVICE, y, 30, 10, 3), HDCU_ERROR_INVALID_VALUE);
    OK(copy_rows(DEVICE, x, GRANULE / 2, DEVICE, y, 30, 10, 2));
    int most = 0;
    OK(d->cuDeviceGetAttribute(&most, HDCU_DEVICE_ATTRIBUTE_MAX_PITCH, 0));
    assert_int_equal(most, INT32_MAX);
    OK(d->cuCtxSynchronize());
    OK(d->cuMemFreeHost(p));
    unmap(x, GRANULE);
    unmap(y, GRANULE);
    leave_device(0);
    leave_device(1);
    hdi_providers_close_driver(d);
}

static void pinned_memory_is_device_memory(void **state)
{
    (void)state;
    open_host("host_devices=1 host_memory=8M");
    use_device(0);
    void *pinned;
    hdcu_deviceptr p;
    OK(d->cuMemHostAlloc(&pinned, 5000, HDCU_MEMHOSTALLOC_PORTABLE | HDCU_MEMHOSTALLOC_DEVICEMAP));
    OK(d->cuMemHostGetDevicePointer(&p, pinned, 0));
    assert_int_equal(p, (uintptr_t)pinned);
    OK(d->cuMemsetD8Async(p, 9, 5000, NULL));
    OK(d->cuCtxSynchronize());
    assert_int_equal(((unsigned char *)pinned)[4999], 9);
    assert_int_equal(free_memory(), 8 << 20);
    assert_int_equal(d->cuMemHostRegister(pinned, 10, 0), HDCU_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    assert_int_equal(d->cuMemHostUnregister(pinned), HDCU_ERROR_HOST_MEMORY_NOT_REGISTERED);
    OK(d->cuMemFreeHost(pinned));
    assert_int_equal(d->cuMemFreeHost(pinned), HDCU_ERROR_INVALID_VALUE);
    char *mine = malloc(8192);
    OK(d->cuMemHostRegister(mine, 8192, HDCU_MEMHOSTREGISTER_PORTABLE));
    assert_int_equal(d->cuMemHostRegister(mine + 100, 10, 0), HDCU_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    OK(d->cuMemHostGetDevicePointer(&p, mine + 8, 0));
    OK(d->cuMemHostUnregister(mine));
    assert_int_equal(d->cuMemHostUnregister(mine), HDCU_ERROR_HOST_MEMORY_NOT_REGISTERED);
    assert_int_equal(d->cuMemHostGetDevicePointer(&p, mine, 0), HDCU_ERROR_INVALID_VALUE);
    free(mine);
    leave_device(0);
    hdi_providers_close_driver(d);
}

static void exported_memory_is_the_same_memory(void **state)
{
    (void)state;
    open_host("host_devices=2 host_memory=8M");
    use_device(1);
    hdcu_mem_prop prop = prop_of(1, HDCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR), plain = prop_of(1, 0);
    hdcu_mem_access_desc access = access_of(1, HDCU_MEM_ACCESS_READWRITE);
    hdcu_memhandle h, again, other;
    hdcu_deviceptr v;
    int descriptor;
    uint32_t word = 0;
    OK(d->cuMemCreate(&other, GRANULE, &plain, 0));
    assert_int_equal(d->cuMemExportToShareableHandle(&descriptor, other, 1, 0), HDCU_ERROR_INVALID_VALUE);
    OK(d->cuMemRelease(other));
    OK(d->cuMemCreate(&h, 2 * GRANULE, &prop, 0));
    OK(d->cuMemExportToShareableHandle(&descriptor, h, HDCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(d->cuMemImportFromShareableHandle(&again, (void *)(intptr_t)descriptor, 1));
    assert_int_equal(free_memory(), 2 * GRANULE); /* charged only once */
    OK(d->cuMemAddressReserve(&v, 4 * GRANULE, 0, 0, 0));
    OK(d->cuMemMap(v, 2 * GRANULE, 0, h, 0));
    OK(d->cuMemMap(v + 2 * GRANULE, 2 * GRANULE, 0, again, 0));
    OK(d->cuMemSetAccess(v, 4 * GRANULE, &access, 1));
    OK(d->cuMemsetD32Async(v, 77, 1, NULL));
    OK(d->cuMemcpyDtoH(&word, v + 2 * GRANULE, 4));
    assert_int_equal(word, 77);
    OK(d->cuMemUnmap(v, 4 * GRANULE));
    OK(d->cuMemRelease(h));
    OK(d->cuMemRelease(again));
    assert_int_equal(free_memory(), 4 * GRANULE);
    /* freed here, but the descriptor keeps it, as in another process */
    OK(d->cuMemImportFromShareableHandle(&h, (void *)(intptr_t)descriptor, 1));
    assert_int_equal(free_memory(), 4 * GRANULE);
    OK(d->cuMemMap(v, 2 * GRANULE, 0, h, 0));
    OK(d->cuMemSetAccess(v, 2 * GRANULE, &access, 1));
    word = 0;
    OK(d->cuMemcpyDtoH(&word, v, 4));
    assert_int_equal(word, 77);
    OK(d->cuMemUnmap(v, 2 * GRANULE));
    OK(d->cuMemRelease(h));
    OK(d->cuMemAddressFree(v, 4 * GRANULE));
    close(descriptor);
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(d->cuMemImportFromShareableHandle(&h, (void *)(intptr_t)pipes[0], 1), HDCU_ERROR_INVALID_VALUE);
    close(pipes[0]);
    close(pipes[1]);
    leave_device(1);
    hdi_providers_close_driver(d);
}

static void context_takes_everything_with_it(void **state)
{
    (void)state;
    open_host("host_devices=2 host_memory=8M");
    for (int round = 0; round < 20; round++) {
        hdcu_deviceptr p;
        void *pinned;
        hdcu_stream s;
        hdcu_event e;
        hdcu_memhandle h;
        hdcu_mem_prop prop = prop_of(0, round & 1);
        use_device(0);
        OK(d->cuMemAlloc(&p, 100000));
        OK(d->cuMemHostAlloc(&pinned, 100000, 0));
        OK(d->cuStreamCreate(&s, HDCU_STREAM_NON_BLOCKING));
        OK(d->cuEventCreate(&e, HDCU_EVENT_DISABLE_TIMING));
        OK(d->cuMemCreate(&h, GRANULE, &prop, 0));
        map_new(0, GRANULE);
        OK(d->cuMemsetD8Async(p, 1, 100000, s));
        OK(d->cuEventRecord(e, s));
        leave_device(0);
        assert_int_equal(d->cuMemRelease(h), HDCU_ERROR_INVALID_VALUE);
        assert_int_equal(d->cuEventDestroy(e), HDCU_ERROR_INVALID_HANDLE);
        assert_int_equal(d->cuStreamDestroy(s), HDCU_ERROR_INVALID_HANDLE);
    }
    hdi_providers_close_driver(d);
}

static void settings_change_only_while_nothing_is_open(void **state)
{
    (void)state;
    const hdi_driver *other;
    open_host("host_devices=2 host_memory=8M");
    use_device(0);
    assert_int_equal(open_with("host_devices=3 host_memory=8M", &other), HD_ERROR_OPTION);
    assert_int_equal(open_with("host_devices=2 host_memory=8M", &other), HD_OK);
    leave_device(0);
    assert_int_equal(open_with("host_devices=3 host_memory=16M", &other), HD_OK);
    hdi_providers_close_driver(other);
    hdi_providers_close_driver(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_describe_themselves),
        cmocka_unit_test(physical_memory_is_counted_exactly),
        cmocka_unit_test(mappings_follow_their_physical_memory),
        cmocka_unit_test(fresh_physical_memory_has_no_old_bytes_of_its_file),
        cmocka_unit_test(access_follows_the_peers),
        cmocka_unit_test(rows_are_copied_with_their_pitches),
        cmocka_unit_test(pinned_memory_is_device_memory),
        cmocka_unit_test(exported_memory_is_the_same_memory),
        cmocka_unit_test(context_takes_everything_with_it),
        cmocka_unit_test(settings_change_only_while_nothing_is_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
