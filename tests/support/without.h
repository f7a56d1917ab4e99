/* without.h - prints the tests left out because an optional part is not installed. tools/left-out
 * lists these lines at the end of `make test`.
 */
#ifndef TEST_SUPPORT_WITHOUT_H
#define TEST_SUPPORT_WITHOUT_H

#include <stdio.h>

static inline void test_without(const char *part)
{
    printf("without: %s\n", part);
    fflush(stdout);
}

#endif
