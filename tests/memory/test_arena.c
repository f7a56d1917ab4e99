/* test_arena.c - the arena over a local port to the fake driver: growth and its limits, addresses,
 * every failing call. Peers, moves, threads and restarts are tested in other files.
 *
 * Promise: The arena serves all that fits under its limit; a failing call changes nothing.
 * Threads: one. Locks: none.
 */
#include "arena_tools.h"

#include "memory/share.h"

static void grows_as_needed(void **unused)
{
    (void)unused;
    hdi_arena *arena = tool_make(1000 * MIB + 1, 0);
    hdi_arena_info info = tool_info(arena);
    assert_int_equal(info.granule, 2 * MIB);
    assert_int_equal(info.reserved_bytes, 16 * 1002 * MIB);
    assert_int_equal(info.limit_bytes, 1002 * MIB);
    assert_int_equal(info.mapped_bytes, 0);

    hdcu_deviceptr a, b, c, d;
    assert_ok(tool_take(arena, 1, &a)); /* shares a granule with other small blocks */
    assert_int_equal(a % 256, 0);
    assert_int_equal(tool_info(arena).mapped_bytes, 2 * MIB);
    assert_int_equal(tool_info(arena).taken_bytes, 256);
    assert_true(fake_is_mapped(a, 2 * MIB, 1));
    assert_false(fake_is_mapped(a, 256, 0));
    assert_int_equal(fake.chunks[0].handle_types, HDCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    /* maps exactly the bytes needed, in several mappings */
    assert_ok(tool_take(arena, 63 * MIB, &b));
    assert_int_equal(tool_info(arena).mapped_bytes, 66 * MIB);
    assert_in_range(fake_chunks_mapped(), 8, 33);
    assert_in_range(tool_info(arena).driver_calls, 2, 4); /* one request makes many mappings */

    /* the free end is part of the next block, so only the difference is mapped */
    assert_ok(tool_take(arena, 100 * MIB, &c));
    assert_int_equal(c, b + 63 * MIB);
    assert_int_equal(tool_info(arena).mapped_bytes, 2 * MIB + 164 * MIB);
    tool_check(arena);
    info = tool_info(arena);
    assert_int_equal(info.taken_bytes, 163 * MIB + 256);
    assert_int_equal(info.taken_blocks, 3);
    assert_int_equal(info.from_fresh, 3);
    uint64_t freed = hdi_arena_freed(arena);

    hdi_arena_free(arena, a, NULL, 0);
    hdi_arena_free(arena, b, NULL, 0);
    hdi_arena_free(arena, c, NULL, 0);
    assert_int_equal(hdi_arena_freed(arena), freed + 3);
    hdi_arena_free(arena, c, NULL, 0); /* freed already */
    hdi_arena_free(arena, 0, NULL, 0);
    hdi_arena_free(arena, ~(hdcu_deviceptr)0, NULL, 0);
    assert_int_equal(hdi_arena_freed(arena), freed + 3);
    info = tool_info(arena);
    assert_int_equal(info.taken_bytes, 0);
    assert_int_equal(info.taken_blocks, 0);
    assert_int_equal(info.taken_peak_bytes, 163 * MIB + 256);
    assert_int_equal(hdi_arena_free_bytes(arena), info.mapped_bytes);
    long calls = fake.calls;
    assert_ok(tool_take(arena, 164 * MIB, &d)); /* across several mappings, without the driver */
    assert_int_equal(fake.calls, calls);
    assert_int_equal(d, b);
    assert_int_equal(tool_info(arena).from_finished, 1);
    tool_end(arena);
}

static void takes_what_the_device_has(void **unused)
{
    (void)unused;
    hdi_arena *arena = tool_make(100 * MIB, 0);
    hdcu_deviceptr at;
    assert_status(tool_take(arena, 0, &at), HD_ERROR_ARGUMENT);
    fake.total = 70 * MIB; /* another process holds the rest */
    assert_ok(tool_take(arena, 60 * MIB, &at));
    assert_ok(tool_take(arena, 9 * MIB, &at));
    assert_int_equal(tool_info(arena).mapped_bytes, 70 * MIB);
    assert_status(tool_take(arena, 2 * MIB, &at), HD_ERROR_MEMORY);
    assert_message_has("2 MiB on device 3");
    assert_message_has("70 MiB of at most 100 MiB are held");
    assert_message_has("69 MiB in use");
    assert_message_has("largest free block 1 MiB");
    assert_message_has("cuMemCreate");
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    assert_int_equal(error.driver_code, HDCU_ERROR_OUT_OF_MEMORY);
    assert_int_equal(error.device, 3);
    assert_ok(tool_take(arena, MIB, &at)); /* a small block, at last also between large ones */
    assert_int_equal(tool_info(arena).taken_bytes, 70 * MIB);
    assert_status(tool_take(arena, 1, &at), HD_ERROR_MEMORY);
    tool_check(arena);
    hdi_arena_free(arena, at, NULL, 0);
    assert_ok(tool_take(arena, 1, &at));
    tool_end(arena);
}

/* One driver call for each granule would make 400 calls, while all other threads that grow wait.
 * The device's last granule still gets used. */
static void small_blocks_get_several_granules_at_once(void **unused)
{
    (void)unused;
    hdi_arena *arena = tool_make(1000 * MIB, 0);
    hdcu_deviceptr at;
    for (int i = 0; i < 800; i++) {
        assert_ok(tool_take(arena, MIB, &at));
        assert_true(tool_info(arena).mapped_bytes <=
                    tool_info(arena).taken_bytes + tool_info(arena).taken_bytes / 32 + 2 * MIB);
    }
    assert_true(tool_info(arena).driver_calls < 200);
    tool_check(arena);
    fake.total = tool_info(arena).mapped_bytes + 2 * MIB;
    while (tool_take(arena, MIB, &at) == HD_OK) {
    }
    assert_int_equal(tool_info(arena).mapped_bytes, fake.total);
    assert_int_equal(tool_info(arena).taken_bytes, fake.total);
    tool_end(arena);
}

static void keeps_to_its_limit(void **unused)
{
    (void)unused;
    hdi_arena *arena = tool_make(1000 * MIB, 11 * MIB);
    hdcu_deviceptr at;
    assert_int_equal(tool_info(arena).limit_bytes, 10 * MIB);
    assert_ok(tool_take(arena, 9 * MIB, &at));
    assert_int_equal(tool_info(arena).mapped_bytes, 10 * MIB);
    assert_status(tool_take(arena, 2 * MIB, &at), HD_ERROR_MEMORY);
    hd_error error = {.size = sizeof error};
    hd_last_error(&error);
    assert_int_equal(error.driver_code, 0);
    assert_int_equal(error.device, 3);
    assert_ok(tool_take(arena, MIB, &at));
    for (size_t less = 0; less < 600; less++) {
        assert_status(tool_take(arena, SIZE_MAX - less, &at), HD_ERROR_MEMORY);
    }
    assert_status(tool_take(arena, SIZE_MAX / 2 + 1, &at), HD_ERROR_MEMORY);
    assert_int_equal(fake.misuses, 0);
    tool_end(arena);
}

static void hands_on_points(void **unused)
{
    (void)unused;
    hdi_arena *arena = tool_make(64 * MIB, 0);
    hdcu_deviceptr at;
    assert_ok(tool_take(arena, 64 * MIB, &at));
    hdi_point points[] = {{4, 7}, {5, 8}, {6, 9}};
    atomic_store(&tool_finished_to[5], 8);
    hdi_arena_free(arena, at, points, 3);
    assert_int_equal(tool_info(arena).waiting_bytes, 64 * MIB);
    assert_int_equal(tool_info(arena).idle_bytes, 0);
    assert_int_equal(hdi_arena_free_bytes(arena), 0);
    /* large and small blocks, which can only come from memory in use */
    size_t sizes[] = {3 * MIB, 300};
    for (int i = 0; i < 2; i++) {
        hdi_points got;
        assert_ok(hdi_arena_alloc(arena, 4, sizes[i], &at, &got));
        assert_int_equal(got.count, 2);
        assert_int_equal(hdi_points_data(&got)[0].lane, 4);
        assert_int_equal(hdi_points_data(&got)[1].position, 9);
        hdi_points_release(&got);
        assert_int_equal(tool_info(arena).from_waited, i + 1);
        tool_check(arena);
    }
    /* the granule also turns back from small blocks to a large one */
    hdi_arena_free(arena, at, NULL, 0);
    hdi_points got;
    assert_ok(hdi_arena_alloc(arena, 4, 61 * MIB, &at, &got));
    assert_int_equal(got.count, 2);
    hdi_points_release(&got);
    hdi_arena_free(arena, at, NULL, 0);
    atomic_store(&tool_finished_to[4], 7);
    atomic_store(&tool_finished_to[6], 9);
    assert_int_equal(tool_info(arena).waiting_bytes, 0);
    assert_int_equal(hdi_arena_free_bytes(arena), 61 * MIB);
    tool_end(arena);
}

static void says_what_is_missing(void **unused)
{
    (void)unused;
    fake_reset(64 * MIB);
    fake.no_virtual_memory = 1;
    hdi_arena_config config = tool_config(0);
    hdi_arena *arena = NULL;
    assert_status(hdi_arena_create(&config, &arena), HD_ERROR_UNSUPPORTED);
    assert_null(arena);
    assert_true(fake_is_clean());
    fake.no_virtual_memory = 0;
    fake.no_file_descriptors = 1;
    fake.granularity = 8 * MIB;
    assert_ok(hdi_arena_create(&config, &arena));
    hdcu_deviceptr at;
    assert_ok(tool_take(arena, 1, &at));
    assert_int_equal(tool_info(arena).granule, 8 * MIB);
    assert_int_equal(fake.chunks[0].handle_types, HDCU_MEM_HANDLE_TYPE_NONE);
    tool_end(arena);
    assert_ok(hdi_arena_destroy(NULL, false));
}

static void lies_where_it_is_wanted(void **unused)
{
    (void)unused;
    const uint64_t wanted = hdi_device_range(3, 1, 64 * MIB, 4);
    fake_reset(64 * MIB);
    hdi_arena_config config = tool_config(0);
    config.address = wanted;
    hdi_arena *arena = tool_make_from(&config);
    assert_int_equal(hdi_arena_base(arena), wanted);
    hdcu_deviceptr at;
    assert_ok(tool_take(arena, 1, &at));
    assert_int_equal(at, wanted);
    tool_end(arena);

    fake_reset(64 * MIB);
    fake.elsewhere = true;
    config = tool_config(0);
    config.address = wanted;
    arena = tool_make_from(&config); /* a request */
    assert_int_equal(hdi_arena_base(arena), FAKE_BASE);
    tool_end(arena);

    fake_reset(64 * MIB);
    fake.elsewhere = true;
    config = tool_config(0);
    config.address = wanted;
    config.fixed = true;
    arena = NULL;
    assert_status(hdi_arena_create(&config, &arena), HD_ERROR_UNSUPPORTED);
    assert_message_has("device 3 must lie at address 0x");
    assert_null(arena);
    assert_true(fake_is_clean());
    tool_drop_port();
}

static void takes_the_addresses_there_are(void **unused)
{
    (void)unused;
    fake_reset(64 * MIB);
    hdi_arena_config config = tool_config(0);
    config.range_bytes = 100 * MIB + 1;
    hdi_arena *arena = tool_make_from(&config);
    assert_int_equal(tool_info(arena).reserved_bytes, 102 * MIB);
    tool_end(arena);

    fake_reset(64 * MIB);
    fake.most_addresses = 100 * MIB; /* of 256 */
    config = tool_config(0);
    arena = tool_make_from(&config);
    assert_int_equal(tool_info(arena).reserved_bytes, 64 * MIB);
    hdcu_deviceptr at;
    assert_ok(tool_take(arena, 64 * MIB, &at));
    tool_end(arena);

    fake_reset(64 * MIB);
    fake.most_addresses = 63 * MIB;
    config = tool_config(0);
    arena = NULL;
    assert_status(hdi_arena_create(&config, &arena), HD_ERROR_MEMORY);
    assert_message_has("cuMemAddressReserve");
    assert_null(arena);
    assert_true(fake_is_clean());
    fake.most_addresses = 200 * MIB;
    config.address = hdi_device_range(3, 1, 64 * MIB, 4);
    config.fixed = true; /* others rely on the whole range */
    assert_status(hdi_arena_create(&config, &arena), HD_ERROR_MEMORY);
    assert_true(fake_is_clean());
    tool_drop_port();
}

static void asks_for_no_facts_that_are_known(void **unused)
{
    (void)unused;
    fake_reset(64 * MIB);
    hdi_arena_config config = tool_config(0);
    hdi_facts facts;
    assert_int_equal(tool_port->calls->facts(tool_port, &facts).code, 0);
    assert_int_equal(facts.memory_bytes, 64 * MIB);
    config.total_bytes = facts.memory_bytes;
    config.granule = facts.granule;
    fake_fail(NULL, 0, false, 0);
    hdi_arena *arena = tool_make_from(&config);
    assert_int_equal(fake.calls, 4); /* three for the context, one for the range */
    assert_int_equal(tool_info(arena).reserved_bytes, 1024 * MIB);
    tool_end(arena);
}

/* Repeats a scenario whose Nth driver call fails. Whichever call fails, nothing is lost, and the
 * arena works once the driver works again. */
static void sweep(bool for_good, int code, hd_status expected)
{
    static char other;
    const hdcu_context mine = (hdcu_context)(void *)&other;
    for (long n = 1;; n++) {
        fake_reset(300 * MIB);
        fake_set_stack(mine);
        hdi_arena_config config = tool_config(0);
        fake_fail(NULL, n, for_good, code);
        hdi_arena *arena = NULL;
        hdcu_deviceptr at[4];
        hd_status status = hdi_arena_create(&config, &arena);
        for (int i = 0; i < 3 && status == HD_OK; i++) {
            hdi_arena_info before = tool_info(arena);
            status = tool_take(arena, 64 * MIB, &at[i]);
            tool_check(arena);
            if (status == HD_OK && i == 0) {
                status = hdi_arena_grant(arena, 1);
            } else if (status != HD_OK) {
                /* mappings made before the failure stay, as free memory */
                hdi_arena_info after = tool_info(arena);
                assert_true(after.mapped_bytes >= before.mapped_bytes);
                assert_int_equal(after.taken_bytes, before.taken_bytes);
                assert_int_equal(after.idle_bytes, after.mapped_bytes - after.taken_bytes);
                assert_true(for_good || fake.created == after.mapped_bytes);
            }
        }
        bool hit = fake.failed != NULL;
        if (status != HD_OK) {
            assert_true(hit);
            assert_int_equal(status, expected);
            assert_message_has("(cu"); /* names the call and its code */
        }
        fake_fail(NULL, 0, false, 0);
        assert_true(for_good || fake_top() == mine);
        if (arena != NULL) {
            assert_ok(tool_take(arena, 64 * MIB, &at[3])); /* the failure is over */
            assert_true(fake_is_mapped(at[3], 64 * MIB, 1));
            tool_check(arena);
            assert_ok(hdi_arena_destroy(arena, false));
        }
        tool_drop_port();
        /* if every call fails for good, an arena that was never handed out stays behind */
        assert_true(fake_is_clean() || (for_good && arena == NULL));
        assert_int_equal(fake.misuses, 0);
        if (!hit) {
            assert_true(n > 20);
            break;
        }
    }
}

static void any_call_may_fail_once(void **unused)
{
    (void)unused;
    sweep(false, HDCU_ERROR_UNKNOWN, HD_ERROR_DRIVER);
    sweep(false, HDCU_ERROR_ILLEGAL_ADDRESS, HD_ERROR_DEVICE_LOST);
    sweep(false, HDCU_ERROR_OUT_OF_MEMORY, HD_ERROR_MEMORY);
}

static void any_call_may_fail_for_good(void **unused)
{
    (void)unused;
    sweep(true, HDCU_ERROR_UNKNOWN, HD_ERROR_DRIVER);
    sweep(true, HDCU_ERROR_LAUNCH_FAILED, HD_ERROR_DEVICE_LOST);
    sweep(true, HDCU_ERROR_OUT_OF_MEMORY, HD_ERROR_MEMORY);
}

/* Undoing a growth may fail too; the next growth first clears the rest. */
static void what_cannot_be_undone_is_cleared_later(void **unused)
{
    (void)unused;
    hdi_arena *arena = tool_make(200 * MIB, 0);
    hdcu_deviceptr at;
    /* get, push, create and map work; set access, unmap, release and all later calls fail */
    fake_fail(NULL, 5, true, HDCU_ERROR_UNKNOWN);
    assert_status(tool_take(arena, MIB, &at), HD_ERROR_DRIVER);
    fake_fail(NULL, 0, false, 0);
    fake_set_stack(NULL); /* popping failed as well */
    assert_int_equal(fake.created, 2 * MIB);
    assert_int_equal(tool_info(arena).mapped_bytes, 0);
    fake_fail("cuMemUnmap", 1, true, HDCU_ERROR_UNKNOWN);
    assert_status(tool_take(arena, MIB, &at), HD_ERROR_DRIVER);
    assert_message_has("cuMemUnmap");
    fake_fail(NULL, 0, false, 0);
    assert_ok(tool_take(arena, MIB, &at));
    assert_int_equal(fake.created, 2 * MIB);
    assert_int_equal(fake.misuses, 0);

    /* destroy clears it if no growth follows */
    fake_fail(NULL, 5, true, HDCU_ERROR_UNKNOWN);
    assert_status(tool_take(arena, 100 * MIB, &at), HD_ERROR_DRIVER);
    fake_fail(NULL, 0, false, 0);
    fake_set_stack(NULL);
    tool_check(arena);
    assert_true(fake.created > tool_info(arena).mapped_bytes);
    assert_ok(hdi_arena_destroy(arena, false));
    tool_drop_port();
    assert_true(fake_is_clean());
}

static void destroy_goes_on_past_errors(void **unused)
{
    (void)unused;
    hdi_arena *arena = tool_make(300 * MIB, 0);
    hdcu_deviceptr at;
    for (int i = 0; i < 3; i++) {
        assert_ok(tool_take(arena, 64 * MIB, &at));
    }
    fake_fail("cuMemRelease", 2, false, HDCU_ERROR_UNKNOWN);
    assert_status(hdi_arena_destroy(arena, false), HD_ERROR_DRIVER);
    assert_message_has("cuMemRelease");
    assert_int_equal(fake.created, 0);
    assert_int_equal(fake.base, 0);
    tool_drop_port();

    arena = tool_make(300 * MIB, 0);
    assert_ok(tool_take(arena, 1, &at));
    fake_fail(NULL, 0, false, 0);
    assert_ok(hdi_arena_destroy(arena, true));
    assert_int_equal(fake.calls, 0);
    tool_drop_port();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grows_as_needed),
        cmocka_unit_test(takes_what_the_device_has),
        cmocka_unit_test(small_blocks_get_several_granules_at_once),
        cmocka_unit_test(keeps_to_its_limit),
        cmocka_unit_test(hands_on_points),
        cmocka_unit_test(says_what_is_missing),
        cmocka_unit_test(lies_where_it_is_wanted),
        cmocka_unit_test(takes_the_addresses_there_are),
        cmocka_unit_test(asks_for_no_facts_that_are_known),
        cmocka_unit_test(any_call_may_fail_once),
        cmocka_unit_test(any_call_may_fail_for_good),
        cmocka_unit_test(what_cannot_be_undone_is_cleared_later),
        cmocka_unit_test(destroy_goes_on_past_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
