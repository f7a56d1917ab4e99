/* process.h - reading files whole, for commands that process files or run compilers.
 *
 * Threads: the program's first. Locks: none.
 */
#ifndef CLI_PROCESS_H
#define CLI_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include "cli/common/program.h"

/* Returns the content, malloc'd and zero-terminated, or NULL with errno. The path - is the
 * standard input. The file is opened once, because it may be a pipe. */
void *cli_read_file(const char *path, size_t *bytes);
/* Like cli_read_file, but `wants` sees the first `head` bytes and may reject the file. After a
 * rejection, the function reads no further, and returns NULL with errno 0. A file shorter than
 * `head` is not rejected. */
void *cli_read_file_if(const char *path, size_t *bytes, size_t head, bool (*wants)(const void *, size_t, void *),
                       void *context);

/* The name of a file for messages and results. */
const char *cli_file_name(const char *path);

#endif
