/* cc_tables.h - moves the tables of a library of mathematics from constant to global memory, in LLVM text.
 *
 * Threads: the program's first. Locks: none.
 * Always: what is read from a table is the same; text that is not understood is left as it is.
 */
#ifndef CLI_CC_TABLES_H
#define CLI_CC_TABLES_H

#include <stddef.h>

/* The text is malloc'd, and *text may move. */
void cc_tables_move(void **text, size_t *bytes);

#endif
