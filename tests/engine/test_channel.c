/* test_channel.c - the shared mapping of a device is the same for all who map it. One thread. */
#include "support/check.h"

#include <unistd.h>
#include "engine/channel.h"

static void another_mapping_shows_the_same(void **state)
{
    (void)state;
    hdi_channel channel, other;
    assert_int_equal(hdi_channel_create(128, &channel), HD_OK);
    assert_int_equal(hdi_channel_map(dup(channel.memory.descriptor), 128, &other), HD_OK);
    assert_ptr_not_equal(channel.engine, other.engine);
    atomic_store(&channel.engine->ending, 700);
    atomic_store(&channel.lanes[255].head, 77);
    hdi_command_at(&channel, 255, 130)->op = HDI_OP_FILL;
    assert_int_equal(atomic_load(&other.engine->ending), 700);
    assert_int_equal(atomic_load(&other.lanes[255].head), 77);
    assert_int_equal(hdi_command_at(&other, 255, 2)->op, HDI_OP_FILL);
    hdi_channel_release(&other);
    /* one of another size is not taken, and its descriptor is closed */
    int descriptor = dup(channel.memory.descriptor);
    assert_int_equal(hdi_channel_map(descriptor, 256, &other), HD_ERROR_SYSTEM);
    assert_int_equal(close(descriptor), -1);
    hdi_channel_release(&channel);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_mapping_shows_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
