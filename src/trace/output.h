/* output.h - the file of a trace: nothing else writes it meanwhile, and a pipe whose reader sleeps is given up.
 *
 * Threads: one at a time.
 * Locks: the system's lock of the file, so that of two traces one gets it, also of two processes. It goes with the process.
 * Blocking: opening never blocks. Writing blocks while a pipe is full.
 * Always: a file that another trace is written to is left as it is.
 */
#ifndef HDI_TRACE_OUTPUT_H
#define HDI_TRACE_OUTPUT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <heddle/status.h>

typedef struct hdi_output {
    char *name;
    int descriptor; /* -1: closed */
    bool is_file;   /* no pipe or other device */
    uint64_t bytes; /* that are written */
} hdi_output;

/* Makes or overwrites a file. `number` NULL: this one. Otherwise *number counts the names that were tried: FILE, FILE.2,
 * FILE.3. One that another trace is written to is left out. Errors: HOST_MEMORY, SYSTEM. */
hd_status hdi_output_open(hdi_output *output, const char *file, _Atomic unsigned *number);
/* How many bytes were written; where not all, errno has the reason. Once `ending` is not 0, a pipe has HDI_OUTPUT_STUCK_NS to take some. */
size_t hdi_output_write(hdi_output *output, const void *data, size_t bytes, const _Atomic uint32_t *ending);
#define HDI_OUTPUT_STUCK_NS INT64_C(5000000000)
/* What an errno of both means here. */
const char *hdi_output_reason(int error);
/* Also of one that was not opened, and is zeros but for the descriptor. */
void hdi_output_close(hdi_output *output);

#endif
