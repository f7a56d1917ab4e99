/* test_sized.c - structures of programs that are older or newer than the library: reading, writing
 * and refusing them.
 *
 * Promise: Structures of other sizes are accessed within bounds; unknown set fields are refused.
 * Threads: one. Locks: none.
 *
 * The test's structures play the library's part; guard bytes surround them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/sized.h"

/* The first release of this structure ended with `second`; `third` came later. */
typedef struct grown {
    size_t size;
    uint64_t first;
    uint64_t second;
    uint64_t third;
} grown;
enum { LEAST = offsetof(grown, third), HDI_LEAST_grown = LEAST };

/* Allocates exactly `size` bytes, so that an address sanitizer finds an access past them. */
static void *exactly(size_t size, int byte)
{
    char *bytes = malloc(size);
    assert_non_null(bytes);
    memset(bytes, byte, size);
    memcpy(bytes, &size, sizeof size);
    return bytes;
}

static void inputs_of_this_version_are_not_copied(void **unused)
{
    (void)unused;
    grown given = {sizeof given, 1, 2, 3}, room;
    assert_ptr_equal(HDI_SIZED_IN(grown, &given, &room), &given);
}

static void older_inputs_have_zeros_where_they_end(void **unused)
{
    (void)unused;
    for (size_t size = LEAST; size < sizeof(grown); size++) {
        grown *given = exactly(size, 7), room;
        memset(&room, 0x55, sizeof room);
        const grown *known = HDI_SIZED_IN(grown, given, &room);
        assert_ptr_equal(known, &room);
        assert_true(known->first == UINT64_C(0x0707070707070707) && known->second == known->first);
        unsigned char third[sizeof known->third];
        memcpy(third, &known->third, sizeof third);
        for (size_t i = 0; i < sizeof third; i++) {
            assert_int_equal(third[i], LEAST + i < size ? 7 : 0);
        }
        free(given);
    }
}

static void newer_inputs_are_taken_while_the_rest_is_zero(void **unused)
{
    (void)unused;
    for (size_t size = sizeof(grown) + 1; size < sizeof(grown) + 40; size++) {
        char *bytes = exactly(size, 0);
        grown room;
        assert_ptr_equal(HDI_SIZED_IN(grown, (grown *)bytes, &room), bytes);
        bytes[size - 1] = 1;
        assert_null(HDI_SIZED_IN(grown, (grown *)bytes, &room));
        assert_non_null(strstr(hd_message(), "the program sets fields of grown that this library"));
        assert_non_null(strstr(hd_message(), HD_VERSION_STRING));
        free(bytes);
    }
}

static void sizes_that_were_not_set_are_refused(void **unused)
{
    (void)unused;
    const size_t bad[] = {0, 1, sizeof(size_t), LEAST - 1, HDI_SIZED_MOST + 1, SIZE_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        grown structure = {bad[i], 1, 2, 3}, room;
        assert_null(HDI_SIZED_IN(grown, &structure, &room));
        assert_non_null(strstr(hd_message(), "set it to sizeof(grown)"));
        assert_int_equal(HDI_SIZED_CHECK(grown, &structure), HD_ERROR_ARGUMENT);
        assert_true(structure.first == 1 && structure.second == 2 && structure.third == 3);
    }
    const size_t good[] = {LEAST, sizeof(grown), sizeof(grown) + 1, HDI_SIZED_MOST};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        grown structure = {.size = good[i]};
        assert_int_equal(HDI_SIZED_CHECK(grown, &structure), HD_OK);
    }
}

static void outputs_are_filled_as_far_as_they_go(void **unused)
{
    (void)unused;
    const grown from = {sizeof from, UINT64_C(0x0101010101010101), UINT64_C(0x0202020202020202),
                        UINT64_C(0x0303030303030303)};
    for (size_t size = LEAST; size < sizeof(grown) + 40; size++) {
        unsigned char *out = exactly(size, 0x55);
        HDI_SIZED_OUT(grown, out, &from);
        assert_int_equal(*(size_t *)(void *)out, size);
        for (size_t i = sizeof(size_t); i < size; i++) {
            assert_int_equal(out[i], i < sizeof from ? ((const unsigned char *)&from)[i] : 0);
        }
        free(out);
    }
}

/* A program of a later release may read fields that this release does not know. */
static void callbacks_find_zeros_behind_what_is_known(void **unused)
{
    (void)unused;
    HDI_SIZED_TOLD(grown) told = {.known = {sizeof told.known, 1, 2, 3}};
    const unsigned char *bytes = (const unsigned char *)&told;
    for (size_t i = sizeof(grown); i < sizeof(grown) + 256; i++) {
        assert_int_equal(bytes[i], 0);
    }
}

/* HDI_SIZED_MAP lists the sizes that programs were compiled with. A size above the structure's size
 * would refuse them all. */
static void the_least_is_never_more_than_there_is(void **unused)
{
    (void)unused;
#define FITS(structure, last) assert_true(HDI_LEAST_##structure <= sizeof(structure));
    HDI_SIZED_MAP(FITS)
#undef FITS
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inputs_of_this_version_are_not_copied),
        cmocka_unit_test(older_inputs_have_zeros_where_they_end),
        cmocka_unit_test(newer_inputs_are_taken_while_the_rest_is_zero),
        cmocka_unit_test(sizes_that_were_not_set_are_refused),
        cmocka_unit_test(outputs_are_filled_as_far_as_they_go),
        cmocka_unit_test(callbacks_find_zeros_behind_what_is_known),
        cmocka_unit_test(the_least_is_never_more_than_there_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
