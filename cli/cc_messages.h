/* cc_messages.h - what `heddle cc` prints for the output of compilers and linkers.
 *
 * Threads: the program's first. Locks: none.
 * Always: an error with a known cause becomes one line with file and line. Other messages about the program's own files are
 * printed, too.
 */
#ifndef CLI_CC_MESSAGES_H
#define CLI_CC_MESSAGES_H

#include <stdbool.h>
#include <stddef.h>

/* `sources` ends with NULL and has one at least; a compiler's messages are about the first, a linker's about any. */

/* Prints a compiler's messages, without notes about Heddle's and the system's headers. A usual mistake becomes one line. Warnings about a line
 * that had some before are left out. True: what is wrong was printed completely.
 * `only_warned`: the linker only warns of names that are defined nowhere, since sanitizers have some of them. *wrong becomes true where another is. */
bool cc_messages_print(const char *messages, const char *const *sources, bool only_warned, bool *wrong);

/* Whether PTX needs a function or a variable that no GPU has; prints which, and where a source calls it. */
bool cc_messages_ptx(const char *ptx, size_t bytes, const char *const *sources);

/* Prints that two of the sources define the kernel, and where. */
void cc_messages_twice(const char *kernel, const char *const *sources);

/* Prints a message that begins with "kernel NAME", with the place where a source defines it. False: none is seen to. */
bool cc_messages_kernel(const char *message, const char *const *sources);

/* Whether warnings are left out from here on. */
void cc_messages_quiet(bool on);

/* What was printed before may be printed again. */
void cc_messages_forget(void);

#endif
