/* table.h - prints the JSON of a benchmark as tables for people.
 *
 * Threads: any. Locks: none. No function fails; figures that a record lacks are left out.
 */
#ifndef CLI_COMMON_TABLE_H
#define CLI_COMMON_TABLE_H

#include <stdio.h>
#include "base/json_read.h"

/* Prints the record of one run. Lines take at most 120 columns, unless a name is longer. The output
 * consists of:
 *   - the machine, and how the benchmark ran
 *   - for each array or object of objects: a table with a line for each of these objects, and a
 *     column for each figure. Figures get their unit from the key (median_ns). Columns that do not
 *     fit are left out, extremes first, then counts. If the figures still do not fit, each inner
 *     object gets its own line.
 *   - reasons and notes, below the line that they belong to
 *   - goals, and the number of verified results
 * Arrays with a value for each round are not printed. */
void cli_table_print(const hdi_json_value *record, FILE *out);

#endif
