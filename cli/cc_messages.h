/* cc_messages.h - what `heddle cc` says of what compilers and linkers say.
 *
 * The program's first thread; no locks. Always: a cause that is known is one line with file and line; nothing else that is about the program's own
 * files is left out.
 */
#ifndef CLI_CC_MESSAGES_H
#define CLI_CC_MESSAGES_H

#include <stdbool.h>
#include <stddef.h>

/* Prints a compiler's messages about a source: without notes about Heddle's and the system's headers, with a line about a cause that is known. True: the cause
 * is all of it, and what the compiler wrote beside it was left out. */
bool cc_messages_print(const char *messages, const char *source);

/* Whether PTX calls a function that no GPU has; says which, and where the source calls it. */
bool cc_messages_ptx(const char *ptx, size_t bytes, const char *source);

#endif
