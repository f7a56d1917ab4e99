/* test_classes.c - size classes: every size from 1 byte to 1 MiB gets the smallest class that fits,
 * and wastes no more than promised.
 *
 * Promise: Every size has the smallest size class that fits, and waste stays within its bound.
 * Threads: one. Locks: none.
 */
#include "support/check.h"

#include <stdbool.h>
#include "memory/arena.h"
#include "memory/blocks.h"
#include "memory/thread_cache.h"

static void every_size_has_its_class(void **unused)
{
    (void)unused;
    uint32_t before = 0;
    for (size_t bytes = 1; bytes <= HDI_SMALL_BYTES; bytes++) {
        uint32_t class = hdi_class_of(bytes);
        size_t room = class < HDI_CLASSES ? hdi_class_bytes(class) : 0;
        bool smallest = class == 0 || hdi_class_bytes(class - 1) < bytes;
        bool wastes_little = room - bytes <= 255 || (room - bytes) * 8 <= bytes;
        if (class >= HDI_CLASSES || room < bytes || !smallest || !wastes_little || class < before ||
            class > before + 1) {
            print_error("%zu bytes: class %u of %zu bytes, after class %u\n", bytes, class, room, before);
            fail();
        }
        before = class;
    }
    assert_int_equal(before, HDI_CLASSES - 1); /* the last class is used */
}

static void classes_are_what_is_stated(void **unused)
{
    (void)unused;
    assert_int_equal(hdi_class_bytes(0), 256);
    assert_int_equal(hdi_class_bytes(7), 2048);
    assert_int_equal(hdi_class_bytes(HDI_CLASSES - 1), HDI_SMALL_BYTES);
    int in_doubling = 0;
    size_t doubling = 4096;
    for (uint32_t class = 0; class < HDI_CLASSES; class ++) {
        size_t bytes = hdi_class_bytes(class);
        assert_int_equal(bytes % HDI_BLOCKS_GRANULE, 0);
        assert_int_equal(hdi_class_of(bytes), class);
        if (class > 0) {
            assert_true(bytes > hdi_class_bytes(class - 1));
        }
        if (class < 8) {
            assert_int_equal(bytes, (class + 1) * 256);
            continue;
        }
        in_doubling++;
        if (bytes == doubling) { /* there are eight per doubling */
            assert_int_equal(in_doubling, 8);
            in_doubling = 0;
            doubling *= 2;
        }
    }
    assert_int_equal(in_doubling, 0);
    assert_int_equal(doubling, 2 * HDI_SMALL_BYTES);
    assert_true(HDI_CLASS_LARGE >= HDI_CLASSES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_has_its_class),
        cmocka_unit_test(classes_are_what_is_stated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
