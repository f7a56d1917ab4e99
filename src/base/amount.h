/* amount.h - amounts the way a person reads and writes them: bytes and durations, for messages, reports and options.
 *
 * Threads: any. Locks: none. Always: the program's locale changes nothing; what is shown is rounded down.
 */
#ifndef HDI_BASE_AMOUNT_H
#define HDI_BASE_AMOUNT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HDI_AMOUNT_BYTES 64

/* "3.2 GiB", "512 bytes" */
const char *hdi_bytes_text(uint64_t bytes, char out[HDI_AMOUNT_BYTES]);

/* "31 ns", "2.9 us", "1.9 ms" */
const char *hdi_duration_text(uint64_t ns, char out[HDI_AMOUNT_BYTES]);

/* value / unit: "12.3", "4" */
void hdi_tenths_text(uint64_t value, uint64_t unit, char *out, size_t room);

/* A number of bytes: "4096", "32M", "32MB", "32MiB", "1.5G". K, M, G and T are powers of 1024 however they are written. Capitals and
 * small letters are the same. A fraction of a byte is dropped. False: it is none, has a fraction without a unit, or is 2^63 or more. */
bool hdi_bytes_parse(const char *text, int64_t *out);

/* The first for an argument list: storage until the end of the enclosing block. */
#define HDI_BYTES(bytes) hdi_bytes_text(bytes, (char[HDI_AMOUNT_BYTES]){0})

#endif
