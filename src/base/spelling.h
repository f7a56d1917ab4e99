/* spelling.h - the distance between two short words, to suggest the right one for a misspelt one.
 *
 * Threads: any. Locks: none.
 */
#ifndef HEDDLE_BASE_SPELLING_H
#define HEDDLE_BASE_SPELLING_H

#include <stdbool.h>
#include <stddef.h>

enum { HDI_SPELLING_WORD = 64 };

/* The number of single-character edits between `given` and `name`, which is in small letters. The
 * case of `given` does not matter. SIZE_MAX: the name is too long. */
size_t hdi_spelling_distance(const char *given, const char *name);

/* True if a word at this distance can be a misspelt `name`. */
bool hdi_spelling_is_near(size_t distance, const char *name);

#endif
