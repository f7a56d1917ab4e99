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

/* Prints a compiler's messages about a source: without notes about Heddle's and the system's headers, with a line about a cause that is known. True: the cause
 * is all of it, and what the compiler wrote beside it was left out. */
bool cc_messages_print(const char *messages, const char *source);

/* Whether PTX calls a function that no GPU has; prints which, and where the source calls it. */
bool cc_messages_ptx(const char *ptx, size_t bytes, const char *source);

#endif
