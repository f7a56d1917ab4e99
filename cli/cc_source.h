/* cc_source.h - what `heddle cc` finds in a source without compiling it, for messages.
 *
 * Threads: the program's first. Locks: none.
 * Always: a file that cannot be read has nothing in it. Comments and strings count as text.
 */
#ifndef CLI_CC_SOURCE_H
#define CLI_CC_SOURCE_H

#include <stdbool.h>
#include <ctype.h>

/* A letter, digit or _ of a name in C. */
static inline bool cc_is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* The line that calls the function, also as __builtin_NAME; 0: none does. */
int cc_source_call(const char *file, const char *name);

/* The first line that has the name as a word; 0: none. */
int cc_source_word(const char *file, const char *name);

/* The line where a kernel of this name is defined; 0: none is. */
int cc_source_kernel(const char *file, const char *name);

/* The name of the kernel whose first line, from HD_KERNEL to the end of its parameters, has this column of this line; to be freed.
 * NULL: there is none. */
char *cc_source_kernel_at(const char *file, int line, int column);

/* A line of the file, without what is behind // in it; to be freed. "": there is no such line. */
char *cc_source_line(const char *file, int line);

/* Where the text has the word by itself. A word that ends in * is the beginning of one. NULL: it has none. */
const char *cc_source_find(const char *text, const char *word);

#endif
