/* output.h - the file of a trace. No other trace writes the file meanwhile. Writing to a pipe stops
 * for good if its reader takes nothing.
 *
 * Threads: only one thread at a time uses an hdi_output.
 * Locks: the system's lock of the file, so that only one of two traces gets the file, even across
 * processes. The lock ends with the process.
 * Blocking: opening never blocks. Writing blocks while a pipe is full.
 * Always: a file to which another trace is written is never changed.
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
    uint64_t bytes; /* written so far */
} hdi_output;

/* Makes or overwrites a file. `number` NULL: the name is `file`. Otherwise *number counts the names
 * tried: FILE, FILE.2, FILE.3. Skips a file that another trace is written to. Errors: HOST_MEMORY,
 * SYSTEM. */
hd_status hdi_output_open(hdi_output *output, const char *file, _Atomic unsigned *number);
/* Returns how many bytes were written; if not all, errno tells why. Once `ending` is not 0, a pipe
 * must take some bytes within HDI_OUTPUT_STUCK_NS. */
size_t hdi_output_write(hdi_output *output, const void *data, size_t bytes, const _Atomic uint32_t *ending);
#define HDI_OUTPUT_STUCK_NS INT64_C(5000000000)
/* The reason in words, for an errno of these two calls. */
const char *hdi_output_reason(int error);
/* Also accepts an output that was not opened: all zeros except for the descriptor. */
void hdi_output_close(hdi_output *output);

#endif
