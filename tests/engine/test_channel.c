/* test_channel.c - the shared mapping of a device is the same everywhere it is mapped.
 *
 * Promise: All mappings of a channel show the same content.
 * Threads: one. Locks: none.
 */
#include "support/check.h"

#include <fcntl.h>
#include <unistd.h>
#include "engine/channel.h"

static void another_mapping_shows_the_same(void **state)
{
    (void)state;
    hdi_channel channel, other;
    assert_int_equal(hdi_channel_create(128, &channel), HD_OK);
    assert_int_equal(hdi_channel_map(dup(channel.memory.descriptor), 128, false, &other), HD_OK);
    assert_ptr_not_equal(channel.engine, other.engine);
    atomic_store(&channel.engine->lost_by, 700);
    atomic_store(&channel.lanes[255].head, 77);
    hdi_command_at(&channel, 255, 130)->op = HDI_OP_FILL;
    assert_int_equal(atomic_load(&other.engine->lost_by), 700);
    assert_int_equal(atomic_load(&other.lanes[255].head), 77);
    assert_int_equal(hdi_command_at(&other, 255, 2)->op, HDI_OP_FILL);
    hdi_channel_release(&other);
    /* a mapping of another size is refused, and its descriptor is closed */
    int descriptor = dup(channel.memory.descriptor);
    assert_int_equal(hdi_channel_map(descriptor, 256, false, &other), HD_ERROR_SYSTEM);
    assert_int_equal(close(descriptor), -1);
    hdi_channel_release(&channel);
}

/* True if the byte is writable. read() of /dev/zero tries it, so no signal is raised. */
static bool is_writable(void *at)
{
    int zeros = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    assert_true(zeros >= 0);
    ssize_t n = read(zeros, at, 1);
    close(zeros);
    return n == 1;
}

static void who_does_not_write_cannot(void **state)
{
    (void)state;
    hdi_channel channel, own, peer;
    assert_int_equal(hdi_channel_create(64, &channel), HD_OK);
    assert_int_equal(hdi_channel_map(dup(channel.memory.descriptor), 64, false, &own), HD_OK);
    assert_int_equal(hdi_channel_map(dup(channel.memory.descriptor), 64, true, &peer), HD_OK);
    size_t last = (size_t)64 * HDI_LANES_MAX - 1;
    hdi_channel *all[] = {&channel, &own, &peer};
    for (int i = 0; i < 3; i++) {
        assert_true(is_writable(all[i]->engine));
        assert_true(is_writable(&all[i]->lanes[HDI_LANES_MAX - 1]));
        assert_int_equal(is_writable(all[i]->flags), i != 2);
        assert_int_equal(is_writable((void *)all[i]->requests), i != 2);
        assert_int_equal(is_writable(all[i]->rings), i == 0);
        assert_int_equal(is_writable(&all[i]->rings[last]), i == 0);
        assert_int_equal(is_writable((void *)all[i]->failures), i != 2);
    }
    hdi_command_at(&channel, 3, 5)->op = HDI_OP_FILL;
    assert_int_equal(hdi_command_at(&own, 3, 5)->op, HDI_OP_FILL);
    hdi_channel_release(&own);
    hdi_channel_release(&peer);
    hdi_channel_release(&channel);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_mapping_shows_the_same),
        cmocka_unit_test(who_does_not_write_cannot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
