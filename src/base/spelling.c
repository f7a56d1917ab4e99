/* spelling.c - compares short words (spelling.h).
 *
 * Threads: any. Locks: none.
 */
#include "base/spelling.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>

size_t hdi_spelling_distance(const char *given, const char *name)
{
    size_t row[HDI_SPELLING_WORD];
    size_t n = strlen(name);
    if (n >= HDI_SPELLING_WORD) {
        return SIZE_MAX;
    }
    for (size_t j = 0; j <= n; j++) {
        row[j] = j;
    }
    for (size_t i = 1; given[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t changed = diagonal + (tolower((unsigned char)given[i - 1]) != name[j - 1]);
            diagonal = row[j];
            size_t shorter = row[j] < row[j - 1] ? row[j] : row[j - 1];
            row[j] = changed < shorter + 1 ? changed : shorter + 1;
        }
    }
    return row[n];
}

bool hdi_spelling_is_near(size_t distance, const char *name)
{
    return distance <= 1 + strlen(name) / 3;
}
