/* test_port.c - the local port over the host provider: facts, memory, sharing it, pinning, modules
 * and kernels.
 *
 * Promise: The local port does each request with its device's context current.
 *
 * Threads: the main one, and those that make one table. Locks: none.
 * Always: each driver call is made with the device's context current.
 */
#include "port_tools.h"

/* ---- facts ---- */

static void tells_the_drivers_facts(void **unused)
{
    (void)unused;
    begin("host_peers=none");
    hdi_facts facts;
    memset(&facts, 0xff, sizeof facts);
    trap.expected = contexts[1];
    OK(ports[1]->calls->facts(ports[1], &facts));
    char name[128], bus_id[32];
    hdcu_uuid uuid;
    int value;
    assert_int_equal(real->cuDeviceGetName(name, sizeof name, handles[1]), 0);
    assert_int_equal(real->cuDeviceGetPCIBusId(bus_id, sizeof bus_id, handles[1]), 0);
    assert_int_equal(real->cuDeviceGetUuid(&uuid, handles[1]), 0);
    assert_string_equal(facts.name, name);
    assert_string_equal(facts.bus_id, bus_id);
    assert_memory_equal(facts.uuid, uuid.bytes, sizeof uuid.bytes);
    const struct {
        int which;
        uint64_t got;
    } same[] = {
        {HDCU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, facts.limits.threads_per_block},
        {HDCU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, facts.limits.block[0]},
        {HDCU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, facts.limits.block[2]},
        {HDCU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, facts.limits.grid[0]},
        {HDCU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, facts.limits.grid[1]},
        {HDCU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, facts.limits.shared_default},
        {HDCU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, facts.limits.shared_max},
        {HDCU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, (uint64_t)facts.compute_major},
        {HDCU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, (uint64_t)facts.multiprocessors},
        {HDCU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, (uint64_t)facts.virtual_memory},
    };
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        assert_int_equal(real->cuDeviceGetAttribute(&value, same[i].which, handles[1]), 0);
        assert_int_equal(same[i].got, value);
    }
    assert_int_equal(facts.memory_bytes, 64 << 20);
    assert_int_equal(facts.granule, GRANULE);
    assert_int_equal(facts.peers, 0);
    assert_int_equal(memory_free(1), 64 << 20);
    end();

    begin("host_peers=all");
    OK(ports[1]->calls->facts(ports[1], &facts));
    assert_int_equal(facts.peers, 1 << 0 | 1 << 2);
    assert_int_equal(facts.peers_denied, 0);
    assert_int_equal(facts.peers_atomic, 1 << 0 | 1 << 2);
    end();
}

/* ---- memory ---- */

/* Mappings that are made, moved and ended together, with their memory. */
static void moves_mappings(void **unused)
{
    (void)unused;
    begin("");
    hdi_port *p = ports[0];
    trap.expected = contexts[0];
    uint64_t a, all = memory_free(0);
    OK(p->calls->reserve(p, 0, 16 * GRANULE, &a));
    OK(p->calls->map_each(p, a, 4 * GRANULE, GRANULE));
    assert_int_equal(memory_free(0), all - 4 * GRANULE);
    for (uint32_t i = 0; i < 4; i++) {
        words(a)[i * GRANULE / 4] = i + 1;
    }
    assert_answer(p->calls->map_each(p, a + 4 * GRANULE, 3 * GRANULE, 2 * GRANULE), HDCU_ERROR_INVALID_VALUE, __LINE__);
    assert_answer(p->calls->map_each(p, a + 3 * GRANULE, 2 * GRANULE, GRANULE), HDCU_ERROR_INVALID_VALUE, __LINE__);
    assert_answer(p->calls->move(p, a + 3 * GRANULE, a + 8 * GRANULE, 2 * GRANULE), HDCU_ERROR_NOT_MAPPED, __LINE__);
    OK(p->calls->move(p, a + GRANULE, a + 8 * GRANULE, 3 * GRANULE));
    assert_int_equal(memory_free(0), all - 4 * GRANULE);
    assert_int_equal(words(a)[0], 1);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(words(a)[(8 + i) * GRANULE / 4], i + 2);
    }
    /* onto an existing mapping: the memory that was to move is given back */
    assert_answer(p->calls->move(p, a + 9 * GRANULE, a + 7 * GRANULE, 2 * GRANULE), HDCU_ERROR_INVALID_VALUE, __LINE__);
    assert_int_equal(memory_free(0), all - 2 * GRANULE);
    OK(p->calls->map_each(p, a + 9 * GRANULE, 6 * GRANULE, 2 * GRANULE));
    OK(p->calls->unmap(p, a + 8 * GRANULE, 7 * GRANULE));
    assert_int_equal(memory_free(0), all - GRANULE);
    OK(p->calls->unreserve(p, a, 16 * GRANULE));
    assert_int_equal(memory_free(0), all);
    end();
}

static void maps_and_unmaps(void **unused)
{
    (void)unused;
    begin("");
    hdi_port *p = ports[0];
    trap.expected = contexts[0];
    uint64_t a, b, all = memory_free(0);
    OK(p->calls->reserve(p, 0, 4 * GRANULE, &a));
    OK(p->calls->reserve(p, 0, 4 * GRANULE, &b));
    OK(p->calls->map(p, a + GRANULE, 2 * GRANULE));
    OK(p->calls->map(p, a, GRANULE));
    OK(p->calls->map(p, b, GRANULE));
    assert_int_equal(memory_free(0), all - 4 * GRANULE);
    words(a)[GRANULE / 4 - 1] = 1;
    words(a)[GRANULE / 4] = 2;
    words(b)[0] = 3;

    /* the range is mapped already */
    assert_answer(p->calls->map(p, a, GRANULE), HDCU_ERROR_INVALID_VALUE, __LINE__);
    assert_answer(p->calls->map(p, 12345 * GRANULE, GRANULE), HDCU_ERROR_INVALID_VALUE, __LINE__);
    assert_answer(p->calls->map(p, a + 3 * GRANULE, 64 << 20), HDCU_ERROR_OUT_OF_MEMORY, __LINE__);
    /* half of a mapping */
    assert_answer(p->calls->unmap(p, a + GRANULE, GRANULE), HDCU_ERROR_NOT_MAPPED, __LINE__);
    assert_int_equal(memory_free(0), all - 4 * GRANULE);

    OK(p->calls->unmap(p, a + GRANULE, 2 * GRANULE));
    assert_answer(p->calls->unmap(p, a + GRANULE, 2 * GRANULE), HDCU_ERROR_NOT_MAPPED, __LINE__);
    assert_int_equal(memory_free(0), all - 2 * GRANULE);
    assert_int_equal(words(a)[GRANULE / 4 - 1], 1);
    OK(p->calls->map(p, a + GRANULE, GRANULE));
    assert_int_equal(words(a)[GRANULE / 4], 0); /* new memory */

    OK(p->calls->unreserve(p, a, 4 * GRANULE));
    assert_int_equal(memory_free(0), all - GRANULE);
    assert_int_equal(words(b)[0], 3);
    assert_answer(p->calls->unreserve(p, a, 4 * GRANULE), HDCU_ERROR_INVALID_VALUE, __LINE__);
    OK(p->calls->unreserve(p, b, 4 * GRANULE));
    assert_int_equal(memory_free(0), all);

    /* any address range may follow, also the one just freed */
    uint64_t again = 0;
    OK(p->calls->reserve(p, b, 4 * GRANULE, &again));
    assert_true(again != 0 && again % GRANULE == 0);
    OK(p->calls->unreserve(p, again, 4 * GRANULE));
    end();
}

static void grants_to_the_runtimes_devices(void **unused)
{
    (void)unused;
    begin("host_peers=ring");
    hdi_port *p = ports[0];
    trap.expected = contexts[0];
    uint64_t at;
    OK(p->calls->reserve(p, 0, GRANULE, &at));
    OK(p->calls->map(p, at, GRANULE));
    OK(p->calls->grant(p, 2, at, GRANULE));
    OK(p->calls->grant(p, 2, at, GRANULE));
    for (int i = 0; i < DEVICES; i++) {
        unsigned long long flags = 99;
        const hdcu_mem_location who = {HDCU_MEM_LOCATION_TYPE_DEVICE, handles[i]};
        assert_int_equal(real->cuMemGetAccess(&flags, &who, at), 0);
        assert_int_equal(flags, i == 1 ? HDCU_MEM_ACCESS_NONE : HDCU_MEM_ACCESS_READWRITE);
    }
    assert_answer(p->calls->grant(p, DEVICES, at, GRANULE), HDCU_ERROR_INVALID_DEVICE, __LINE__);
    assert_answer(p->calls->grant(p, -1, at, GRANULE), HDCU_ERROR_INVALID_DEVICE, __LINE__);
    assert_answer(p->calls->grant(p, 1, at + GRANULE, GRANULE), HDCU_ERROR_INVALID_VALUE, __LINE__);
    OK(p->calls->unreserve(p, at, GRANULE));

    const hdi_local_port_config alone = {.driver = &trapping, .device = handles[1], .context = contexts[1], .index = 1};
    hdi_port *single = hdi_local_port_create(&alone);
    assert_answer(single->calls->grant(single, 0, at, GRANULE), HDCU_ERROR_INVALID_DEVICE, __LINE__);
    trap.expected = contexts[1];
    hdi_facts facts;
    OK(single->calls->facts(single, &facts));
    assert_int_equal(facts.peers, 0);
    hdi_local_port_destroy(single);
    end();
}

static void hands_memory_over(void **unused)
{
    (void)unused;
    begin("");
    hdi_port *owner = ports[0], *other = ports[1];
    uint64_t a, b, free_owner = memory_free(0), free_other = memory_free(1);
    int file = -1;
    OK(owner->calls->reserve(owner, 0, 2 * GRANULE, &a));
    OK(other->calls->reserve(other, 0, 2 * GRANULE, &b));
    OK(owner->calls->map(owner, a, GRANULE));
    words(a)[5] = 17;
    assert_answer(owner->calls->export(owner, a, 2 * GRANULE, &file), HDCU_ERROR_NOT_MAPPED, __LINE__);
    assert_answer(other->calls->export(other, a, GRANULE, &file), HDCU_ERROR_NOT_MAPPED, __LINE__);
    assert_int_equal(file, -1);
    OK(owner->calls->export(owner, a, GRANULE, &file));
    assert_true(fcntl(file, F_GETFD) & FD_CLOEXEC);
    OK(other->calls->import(other, file, b + GRANULE, GRANULE));
    close(file);
    assert_int_equal(words(b + GRANULE)[5], 17);
    words(b + GRANULE)[5] = 18;
    assert_int_equal(words(a)[5], 18);
    assert_int_equal(memory_free(1), free_other); /* charged to its owner */

    /* it lives until both ports have unmapped it */
    OK(owner->calls->unmap(owner, a, GRANULE));
    assert_int_equal(words(b + GRANULE)[5], 18);
    OK(other->calls->unmap(other, b + GRANULE, GRANULE));
    assert_int_equal(memory_free(0), free_owner);
    assert_answer(other->calls->unmap(other, b + GRANULE, GRANULE), HDCU_ERROR_NOT_MAPPED, __LINE__);

    int strange = memfd_create("strange", MFD_CLOEXEC);
    assert_answer(other->calls->import(other, strange, b, GRANULE), HDCU_ERROR_INVALID_VALUE, __LINE__);
    close(strange);
    OK(owner->calls->unreserve(owner, a, 2 * GRANULE));
    OK(other->calls->unreserve(other, b, 2 * GRANULE));
    end();
}

/* ---- pinned memory ---- */

static void pins_and_unpins(void **unused)
{
    (void)unused;
    begin("");
    hdi_port *p = ports[2];
    trap.expected = contexts[2];
    hdi_shm shm;
    assert_ok(hdi_shm_create("test-port", 8192, &shm));
    uint64_t address = 0;
    OK(p->calls->pin(p, shm.base, shm.bytes, shm.descriptor, &address));
    assert_int_equal(address, (uintptr_t)shm.base);
    address = 5;
    assert_answer(p->calls->pin(p, shm.base, shm.bytes, shm.descriptor, &address),
                  HDCU_ERROR_HOST_MEMORY_ALREADY_REGISTERED, __LINE__);
    assert_int_equal(address, 5);
    OK(p->calls->unpin(p, shm.base, shm.bytes));
    assert_answer(p->calls->unpin(p, shm.base, shm.bytes), HDCU_ERROR_HOST_MEMORY_NOT_REGISTERED, __LINE__);
    set_trap("cuMemHostGetDevicePointer", 1, false, HDCU_ERROR_UNKNOWN);
    assert_answer(p->calls->pin(p, shm.base, shm.bytes, shm.descriptor, &address), HDCU_ERROR_UNKNOWN, __LINE__);
    assert_answer(p->calls->unpin(p, shm.base, shm.bytes), HDCU_ERROR_HOST_MEMORY_NOT_REGISTERED, __LINE__);
    /* also without a context */
    OK(p->calls->pin(p, shm.base, shm.bytes, shm.descriptor, &address));
    trap.expected = NULL;
    set_trap("cuCtxGetCurrent", 1, false, HDCU_ERROR_UNKNOWN);
    OK(p->calls->unpin(p, shm.base, shm.bytes));
    hdi_shm_release(&shm);
    end();
}

/* ---- lanes ---- */

static void *make_aligned(size_t bytes)
{
    size_t whole = (bytes + HDI_LINE - 1) / HDI_LINE * HDI_LINE;
    void *made = aligned_alloc(HDI_LINE, whole);
    assert_non_null(made);
    return memset(made, 0, whole);
}

static void makes_lanes_of_its_engine(void **unused)
{
    (void)unused;
    begin("");
    hdi_device *device = make_aligned(sizeof *device);
    hdi_engine *engine = make_aligned(sizeof *engine);
    rt->driver = &trapping;
    device->runtime = rt;
    device->context = contexts[2];
    engine->device = device;
    assert_ok(hdi_channel_create(64, &device->channel));
    engine->shared = device->channel.engine;
    atomic_store(&device->channel.lanes[7].done, 41); /* by an earlier engine */
    atomic_store(&device->channel.lanes[7].head, 43);
    hdi_port *p = ports[2];
    trap.expected = contexts[2];
    hdi_local_port_set_engine(p, engine);
    set_trap("cuStreamCreate", 1, false, HDCU_ERROR_OUT_OF_MEMORY);
    assert_answer(p->calls->lane(p, 7, true), HDCU_ERROR_OUT_OF_MEMORY, __LINE__);
    assert_false(atomic_load(&engine->streams[7].made));
    OK(p->calls->lane(p, 7, true));
    assert_true(atomic_load(&engine->streams[7].made));
    assert_true(engine->streams[7].sticky_failure);
    assert_int_equal(engine->streams[7].issued, 41);
    assert_false(atomic_load(&engine->streams[8].made));
    /* rung for the commands left in the lane */
    assert_int_equal(atomic_load(&engine->shared->doorbell), 1);
    OK(p->calls->lane(p, 8, true));
    assert_int_equal(atomic_load(&engine->shared->doorbell), 1);
    assert_int_equal(real->cuStreamDestroy(engine->streams[8].handle), 0);
    assert_int_equal(real->cuStreamDestroy(engine->streams[7].handle), 0);
    hdi_channel_release(&device->channel);
    free(engine);
    free(device);
    end();
}

/* ---- code ---- */

/* Runs add(y, 3, 8) with the table's function for this kernel number. */
static void run_add(int device, uint32_t number, uint64_t y)
{
    uint32_t value = 3, n = 8;
    void *parameters[] = {&y, &value, &n};
    hdcu_context popped;
    assert_int_equal(real->cuCtxPushCurrent(contexts[device]), 0);
    assert_int_equal(
        real->cuLaunchKernel(hdi_kernel_at(rt, number)->function[device], 1, 1, 1, 8, 1, 1, 0, NULL, parameters, NULL),
        0);
    assert_int_equal(real->cuCtxSynchronize(), 0);
    assert_int_equal(real->cuCtxPopCurrent(&popped), 0);
}

static void loads_code_and_finds_kernels(void **unused)
{
    (void)unused;
    begin("");
    hdi_code code = read_image();
    hdi_port *p = ports[1];
    trap.expected = contexts[1];
    const uint32_t number = 3 * HDI_KERNEL_CHUNK + 2; /* in a chunk that does not exist yet */
    static char log[HDI_CODE_LOG_BYTES];
    static hdi_kernel_facts k;
    uint64_t module = 0;
    OK(p->calls->load(p, &code, &module, log));
    assert_true(module != 0);

    OK(p->calls->kernel(p, module, "add", number, true, &k));
    assert_int_equal(k.max_threads, 1024);
    assert_int_equal(k.static_shared, 0);
    assert_int_equal(k.n_params, 3);
    assert_int_equal(k.params[1].offset, 8);
    assert_int_equal(k.params[1].size, 4);
    assert_int_equal(k.params[2].offset, 12);
    OK(p->calls->kernel(p, module, "add", number, false, &k));
    assert_int_equal(k.max_threads, 1024);
    assert_int_equal(k.n_params, UINT32_MAX);
    assert_null(hdi_kernel_at(rt, number)->function[0]);
    uint64_t y;
    OK(p->calls->reserve(p, 0, GRANULE, &y));
    OK(p->calls->map(p, y, GRANULE));
    run_add(1, number, y);
    assert_int_equal(words(y)[7], 3);
    assert_int_equal(words(y)[8], 0);

    hdcu_function before = hdi_kernel_at(rt, number)->function[1];
    k.n_params = 77;
    assert_answer(p->calls->kernel(p, module, "subtract", number, true, &k), HDCU_ERROR_NOT_FOUND, __LINE__);
    assert_int_equal(k.n_params, 77);
    assert_ptr_equal(hdi_kernel_at(rt, number)->function[1], before);
    trapping.cuFuncGetParamInfo = NULL;
    hdi_answer answer = p->calls->kernel(p, module, "bounded", number + 1, true, &k);
    trapping.cuFuncGetParamInfo = trapped_cuFuncGetParamInfo;
    OK(answer);
    assert_int_equal(k.max_threads, 32);
    assert_int_equal(k.n_params, UINT32_MAX);
    assert_answer(p->calls->kernel(p, module, "add", HDI_KERNEL_CHUNK * HDI_KERNEL_CHUNKS, true, &k),
                  HDCU_ERROR_OUT_OF_MEMORY, __LINE__);

    OK(p->calls->kernel_shared(p, number, 64 << 10));
    assert_answer(p->calls->kernel_shared(p, number, UINT32_MAX), HDCU_ERROR_INVALID_VALUE, __LINE__);
    assert_answer(p->calls->kernel_shared(p, number, INT32_MAX), HDCU_ERROR_INVALID_VALUE, __LINE__);
    assert_answer(p->calls->kernel_shared(p, 7 * HDI_KERNEL_CHUNK, 1), HDCU_ERROR_INVALID_HANDLE, __LINE__);

    hdi_global_place place = {0, 0}, none_such = {5, 5};
    OK(p->calls->global(p, module, "total", &place));
    assert_int_equal(place.bytes, 4 * sizeof(uint32_t));
    assert_int_equal(words(place.address)[1], 22);
    assert_answer(p->calls->global(p, module, "hidden", &none_such), HDCU_ERROR_NOT_FOUND, __LINE__);
    assert_answer(p->calls->global(p, module, "add", &none_such), HDCU_ERROR_NOT_FOUND, __LINE__);
    assert_answer(p->calls->global(p, 1, "total", &none_such), HDCU_ERROR_INVALID_HANDLE, __LINE__);
    assert_int_equal(none_such.address, 5);

    OK(p->calls->unload(p, module));
    assert_answer(p->calls->unload(p, module), HDCU_ERROR_INVALID_HANDLE, __LINE__);
    image[18] = 0x7f; /* makes it an image for another processor */
    uint64_t none = 5;
    assert_answer(p->calls->load(p, &code, &none, log), HDCU_ERROR_INVALID_IMAGE, __LINE__);
    assert_contains(log, "not a shared object for this processor");
    assert_int_equal(none, 5);
    OK(p->calls->unreserve(p, y, GRANULE));
    free(image);
    end();
}

static void *reach(void *argument)
{
    (void)argument;
    for (uint32_t i = 0; i < HDI_KERNEL_CHUNKS; i++) {
        assert_true(hdi_kernel_table_reach(rt, i * HDI_KERNEL_CHUNK + 5));
        assert_non_null(hdi_kernel_at(rt, i * HDI_KERNEL_CHUNK));
    }
    return hdi_kernel_at(rt, 0);
}

static void threads_make_one_table(void **unused)
{
    (void)unused;
    begin("");
    pthread_t threads[3];
    void *chunk;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, reach, NULL), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], &chunk);
        assert_ptr_equal(chunk, hdi_kernel_at(rt, 0));
    }
    assert_false(hdi_kernel_table_reach(rt, HDI_KERNEL_CHUNKS * HDI_KERNEL_CHUNK));
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_the_drivers_facts),   cmocka_unit_test(moves_mappings),
        cmocka_unit_test(maps_and_unmaps),           cmocka_unit_test(grants_to_the_runtimes_devices),
        cmocka_unit_test(hands_memory_over),         cmocka_unit_test(pins_and_unpins),
        cmocka_unit_test(makes_lanes_of_its_engine), cmocka_unit_test(loads_code_and_finds_kernels),
        cmocka_unit_test(threads_make_one_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
