/* cc_tables.h - moves the tables of a math library from constant to global memory, in LLVM text.
 *
 * Threads: the program's first. Locks: none.
 * Always: reads from a table give the same values. Text that is not understood stays unchanged.
 */
#ifndef CLI_CC_TABLES_H
#define CLI_CC_TABLES_H

#include <stddef.h>

/* The text is malloc'd, and *text may move. */
void cc_tables_make_global(void **text, size_t *bytes);

#endif
