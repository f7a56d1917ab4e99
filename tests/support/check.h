/* check.h - the first include of every cmocka test: the headers in the order that cmocka needs, and
 * asserts for statuses.
 *
 * A test's main is: return cmocka_run_group_tests(tests, NULL, NULL);  or test_skip("why") if it
 * does not apply.
 */
#ifndef TEST_SUPPORT_CHECK_H
#define TEST_SUPPORT_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <heddle/status.h>
#include "support/without.h"

#define TEST_SKIPPED 77 /* exit status if a program's tests do not apply here */

/* The expression, of type hd_status, must be HD_OK; otherwise prints the library's message. */
#define assert_ok(expression) check_status_((expression), HD_OK, #expression, __FILE__, __LINE__)

/* The expression must return this failure. */
#define assert_status(expression, expected) check_status_((expression), (expected), #expression, __FILE__, __LINE__)

/* The calling thread's last message must contain the text. */
#define assert_message_has(text) check_contains_(hd_message(), (text), __FILE__, __LINE__)

/* One string must contain the other. */
#define assert_contains(string, text) check_contains_((string), (text), __FILE__, __LINE__)

static inline void check_status_(hd_status got, hd_status expected, const char *expression, const char *file, int line)
{
    if (got == expected) {
        return;
    }
    fprintf(stderr, "%s:%d: %s\n    returned %s, expected %s\n    message: %s\n", file, line, expression,
            hd_status_name(got), hd_status_name(expected), hd_message());
    _fail(file, line);
}

static inline void check_contains_(const char *string, const char *text, const char *file, int line)
{
    if (strstr(string, text) != NULL) {
        return;
    }
    fprintf(stderr, "%s:%d: \"%s\"\n    does not contain \"%s\"\n", file, line, string, text);
    _fail(file, line);
}

/* Prints why the program's tests do not apply here. Returns the exit status for main. */
static inline int test_skip(const char *why)
{
    printf("skipped: %s\n", why);
    return TEST_SKIPPED;
}

#endif
