/* cc_messages.h - prints the output of compilers and linkers for `heddle cc`.
 *
 * Threads: the program's first. Locks: none.
 * Always: an error with a known cause becomes one line with file and line number. Other messages
 * about the program's own files are printed, too.
 */
#ifndef CLI_CC_MESSAGES_H
#define CLI_CC_MESSAGES_H

#include <stdbool.h>
#include <stddef.h>

/* `sources` ends with NULL and lists at least one file. A compiler's messages concern the first,
 * a linker's any of them. */

/* Prints a compiler's messages without notes about headers of Heddle and the system. A common
 * mistake becomes one line. A repeated warning about a line is dropped. Returns true if it
 * explained every error. `only_warned`: the linker only warns of undefined names, because
 * sanitizers define some of them. Sets *wrong if any other name is undefined or defined twice. */
bool cc_messages_print(const char *messages, const char *const *sources, bool only_warned, bool *wrong);

/* True if the PTX needs a function or a variable that no GPU provides. Prints their names and
 * the lines that call them. */
bool cc_messages_ptx(const char *ptx, size_t bytes, const char *const *sources);

/* Prints that two of the sources define the kernel, and their lines. */
void cc_messages_twice(const char *kernel, const char *const *sources);

/* Prints a message that begins with "kernel NAME", with the place that defines the kernel.
 * Returns false if no source seems to define it. */
bool cc_messages_kernel(const char *message, const char *const *sources);

/* Turns warnings off or on. */
void cc_messages_quiet(bool on);

/* Forgets printed messages, so that they may be printed again. */
void cc_messages_forget(void);

#endif
