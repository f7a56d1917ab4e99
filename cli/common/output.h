/* output.h - writing the tool's result files: as a whole, or not at all.
 *
 * Threads: the tool's first. Locks: none.
 */
#ifndef CLI_COMMON_OUTPUT_H
#define CLI_COMMON_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

/* Whether such a file can be written; leaves nothing behind. False with errno. */
bool output_may(const char *path);

/* Whether no input, by its device and inode, is the output's file, which would be lost with it. Else it prints a message; nothing was written.
 * Inputs may be NULL, and "-" is the standard input; the output "-" replaces nothing. */
bool output_spares(const char *command, const char *output, const char *const *inputs, size_t n);

/* Replaces a file, or writes into what is none, such as /dev/stdout. False with errno: a file is as it was, unless only it itself, and not its
 * folder, can be written. */
bool output_write(const char *path, const void *content, size_t bytes);

#endif
