/* output.h - writes the tool's result files, each as a whole or not at all.
 *
 * Threads: the tool's first thread. Locks: none.
 */
#ifndef CLI_COMMON_OUTPUT_H
#define CLI_COMMON_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

/* Call this function first in a program. If a standard descriptor is closed, a file that the
 * program or its children open could get its number. This call prevents that. */
void cli_output_begin(void);

/* Returns true if the file can be written, else false with errno. Leaves no file behind. */
bool cli_output_may(const char *path);

/* Checks, by device and inode, that the output would not overwrite an input. If it would, the
 * function prints a message and returns false. Inputs may be NULL, and the input "-" is the
 * standard input. The output "-" overwrites no file. */
bool cli_output_spares(const char *command, const char *output, const char *const *inputs, size_t n);

/* Replaces a file atomically. If the path is no regular file (such as /dev/stdout), writes into it.
 * False with errno: the old file is unchanged. The exception is a file in a read-only folder: the
 * function must write into such a file, so a failure may leave it incomplete. */
bool cli_output_write(const char *path, const void *content, size_t bytes);

#endif
