/* cc_messages.h - messages of `heddle cc` about mistakes that no compiler reports.
 *
 * Compilers and linkers write their own messages to stderr; docs/kernels.md explains the usual
 * ones.
 * Threads: the program's first. Locks: none.
 * Always: each message is one line with the file, and with the line number if it is known.
 */
#ifndef CLI_CC_MESSAGES_H
#define CLI_CC_MESSAGES_H

#include <stdbool.h>
#include <stddef.h>

/* `sources` ends with NULL and lists at least one file. */

/* Prints a linker's warnings, except those of undefined names of sanitizers: the program that loads
 * the code provides these. Returns true if another name is undefined. */
bool cc_messages_undefined(const char *warnings);

/* True if the PTX needs a function or a variable that no GPU provides. Prints their names and
 * the lines that call them. */
bool cc_messages_ptx(const char *ptx, size_t bytes, const char *const *sources);

/* Prints that two of the sources define the kernel, and their lines. */
void cc_messages_twice(const char *kernel, const char *const *sources);

/* Prints a message that begins with "kernel NAME", with the place that defines the kernel.
 * Returns false if no source seems to define the kernel. */
bool cc_messages_kernel(const char *message, const char *const *sources);

#endif
