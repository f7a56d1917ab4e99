/* cc_source.h - searches a source without compiling it, for the messages of `heddle cc`.
 *
 * Threads: the program's first. Locks: none.
 * Always: a file that cannot be read counts as empty. Comments and strings count as text.
 */
#ifndef CLI_CC_SOURCE_H
#define CLI_CC_SOURCE_H

#include <stdbool.h>
#include <ctype.h>

/* True for a letter, digit or _. */
static inline bool cc_is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* True if the file's name is one of CUDA C++. */
bool cc_is_cuda(const char *file);

/* The line that calls the function, also as __builtin_NAME; 0: none does. */
int cc_source_call(const char *file, const char *name);

bool cc_source_has(const char *file, const char *text);

/* The first line that contains the name as a word; 0: none. */
int cc_source_word(const char *file, const char *name);

/* The line that defines a kernel of this name; 0: none does. */
int cc_source_kernel(const char *file, const char *name);

/* The word in the text, where it stands by itself. A word that ends in * is a prefix. NULL: the
 * text does not contain it. */
const char *cc_source_find(const char *text, const char *word);

#endif
