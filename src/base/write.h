/* write.h - writing text to where people look: a file, a pipe, a terminal.
 *
 * Threads: any. Locks: none. Blocking: while a pipe takes nothing, until the deadline. Always: a broken pipe raises no signal.
 */
#ifndef HDI_BASE_WRITE_H
#define HDI_BASE_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All of the text, in one call where it is a regular file, so that lines of programs do not mix. False: with errno; ETIMEDOUT after the
 * deadline (hdi_clock_ns). */
bool hdi_write_quietly(int descriptor, const char *text, size_t length, int64_t deadline);

#endif
