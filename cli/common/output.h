/* output.h - writes the tool's result files, each as a whole or not at all.
 *
 * Threads: the tool's first. Locks: none.
 */
#ifndef CLI_COMMON_OUTPUT_H
#define CLI_COMMON_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

/* Call it first in a program. If a standard descriptor is closed, files that the program or its
 * children open could get its number. This call prevents that. */
void cli_output_begin(void);

/* Returns true if the file can be written, else false with errno. Leaves nothing behind. */
bool cli_output_may(const char *path);

/* Checks, by device and inode, that the output does not overwrite an input. If it would, the
 * function prints a message, writes nothing and returns false. Inputs may be NULL, and "-" is the
 * standard input. The output "-" replaces nothing. */
bool cli_output_spares(const char *command, const char *output, const char *const *inputs, size_t n);

/* Replaces a file atomically, or writes into something that is not a regular file, such as
 * /dev/stdout. False with errno: the old file is unchanged, unless its folder is read-only and
 * the file itself is not. */
bool cli_output_write(const char *path, const void *content, size_t bytes);

#endif
