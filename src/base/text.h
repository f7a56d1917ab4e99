/* text.h - text for messages and reports: readable amounts and call sites, UTF-8, and a FILE that
 * writes into memory.
 *
 * Threads: any; one per hdi_text. Locks: texts of call sites take the locks of dladdr, for a
 * moment.
 * Always: the program's locale changes nothing. A shown amount is rounded down, and a returned text
 * is complete.
 */
#ifndef HDI_BASE_TEXT_H
#define HDI_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ---- amounts: bytes and durations ---- */

#define HDI_AMOUNT_BYTES 64

/* "3.2 GiB", "512 bytes" */
const char *hdi_bytes_text(uint64_t bytes, char out[HDI_AMOUNT_BYTES]);

/* "31 ns", "2.9 us", "1.9 ms" */
const char *hdi_duration_text(uint64_t ns, char out[HDI_AMOUNT_BYTES]);

/* value / unit: "12.3", "4" */
void hdi_tenths_text(uint64_t value, uint64_t unit, char *out, size_t room);

/* hdi_bytes_text for an argument list: the text lasts until the end of the enclosing block. */
#define HDI_BYTES(bytes) hdi_bytes_text(bytes, (char[HDI_AMOUNT_BYTES]){0})

/* ---- UTF-8 ---- */

/* Number of bytes of the character at s in a text that ends with a zero; 0: none. */
int hdi_utf8_length(const unsigned char *s);

/* How many bytes of a text to keep: at most `most`, and no part of a character at the end. Text
 * that is not UTF-8 is cut anywhere. */
size_t hdi_utf8_fit(const char *text, size_t most);

/* Copies as much of the text as fits, and fills the rest of `out` with zeros, at least one. */
void hdi_utf8_copy(char *out, size_t room, const char *text);

/* ---- the address of a call ---- */

#define HDI_SITE_BYTES 128

/* "symbol+0x12", or "module+0x12" for addr2line if the symbol is unknown. */
void hdi_site_text(const void *site, char out[HDI_SITE_BYTES]);

/* ---- a FILE that writes into memory, and reports lack of memory (open_memstream hands out an
 * incomplete text) ---- */

typedef struct hdi_text {
    FILE *file;
    char *bytes;
    size_t length, room;
    bool failed;
} hdi_text;

/* NULL: no memory. */
FILE *hdi_text_open(hdi_text *text);

/* Closes the FILE and returns the written text, with a zero behind it, which the caller frees.
 * False: there was not enough memory, and nothing is returned. Call it even after hdi_text_open
 * failed: it then returns false. */
bool hdi_text_close(hdi_text *text, char **out, size_t *length);

#endif
