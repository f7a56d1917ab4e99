/* test_text.c - texts that are cut to fit.
 *
 * Promise: A text that is cut ends with a whole UTF-8 character; no byte behind it is read.
 * Threads: one. Locks: none.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"

/* Copies the text to memory that ends with it, so that an address sanitizer finds an access behind
 * it. */
static size_t fits(const char *text, size_t most)
{
    char *own = strdup(text);
    assert_non_null(own);
    size_t n = hdi_utf8_fit(own, most);
    free(own);
    return n;
}

static void a_character_is_whole(void **unused)
{
    (void)unused;
    /* characters of 1, 2, 3, 4 and 1 bytes */
    static const char text[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z";
    static const size_t ends[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11, 11};
    for (size_t most = 0; most < sizeof ends / sizeof ends[0]; most++) {
        assert_int_equal(fits(text, most), ends[most]);
    }
}

/* Bytes that are not UTF-8 may be cut anywhere. */
static void other_bytes_are_cut_anywhere(void **unused)
{
    (void)unused;
    assert_int_equal(fits("", 0), 0);
    assert_int_equal(fits("\x80\x80\x80\x80\x80\x80", 5), 5);
    assert_int_equal(fits("ab\xff\xff", 3), 3);
    assert_int_equal(fits("ab\xe2\x82", 3), 3); /* the text ends inside a character */
    assert_int_equal(fits("ab\xe2\x82", 4), 4);
    assert_int_equal(fits("\xc3\xa9", 1), 0);
}

static void a_copy_has_zeros_behind_it(void **unused)
{
    (void)unused;
    char out[6];
    memset(out, 'x', sizeof out);
    hdi_utf8_copy(out, sizeof out, "abc\xe2\x82\xac");
    assert_memory_equal(out, "abc\0\0\0", sizeof out);
    hdi_utf8_copy(out, sizeof out, "ab\xe2\x82\xac");
    assert_memory_equal(out, "ab\xe2\x82\xac\0", sizeof out);
    hdi_utf8_copy(out, 1, "a");
    assert_memory_equal(out, "\0b", 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_character_is_whole),
        cmocka_unit_test(other_bytes_are_cut_anywhere),
        cmocka_unit_test(a_copy_has_zeros_behind_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
