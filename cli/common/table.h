/* table.h - the tables for people of what a benchmark wrote as JSON.
 *
 * Threads: any. Locks: none. Nothing here fails: what a record lacks is left out.
 */
#ifndef CLI_COMMON_TABLE_H
#define CLI_COMMON_TABLE_H

#include <stdio.h>
#include "base/json_read.h"

/* Prints the record of one run in lines of at most 120 columns, if no name is longer:
 *   - the machine, and how the benchmark ran
 *   - an array or object of objects: a line for each, and a column for each figure. Durations get
 *     their unit from the key (median_ns). What does not fit is left out, extremes first, then
 *     counts. What still does not fit takes a line for each inner object.
 *   - reasons and notes, below the line that they belong to
 *   - goals, and what was verified
 * Arrays with a value for each round are not printed. */
void table_print(const hdi_json_value *record, FILE *out);

#endif
