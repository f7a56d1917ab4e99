/* words.h - text for people: breaks lines between words, and suggests the word that was meant.
 *
 * Threads: any. Locks: none.
 */
#ifndef CLI_COMMON_WORDS_H
#define CLI_COMMON_WORDS_H

#include <stdbool.h>
#include <stdio.h>

enum { WORDS_LINE = 110 };

/* Prints the text, which starts at `column`, and a newline. Breaks lines at WORDS_LINE between
 * words and indents each further line by `indent` blanks. */
void cli_words_put(FILE *out, const char *text, int column, int indent);

/* Keeps `name` in *nearest if it is closer to the word than the names before, and close enough.
 * Start with *distance 0 and *nearest NULL. */
void cli_words_nearest(const char *word, const char *name, size_t *distance, const char **nearest);

#endif
